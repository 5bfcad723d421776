//! One source of images: an OCI layout in a folder, or a tar archive of such a layout or of what
//! `docker save` writes. Read once for its names and places; contents are read where they lie, so
//! that nothing is unpacked onto flash.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::Path;

use nix::fcntl::{OFlag, open, openat};
use nix::sys::stat::Mode;

use crate::limits::{IMAGE_JSON_BYTES_MAX, IMAGE_MEMBERS_MAX, IMAGE_PAX_BYTES_MAX};
use crate::model::image::{ImageName, has_tag};
use crate::wire::oci::json::{self, Descriptor, Saved};
use crate::wire::oci::tar::{self, Head, Kind};

/// What a source has.
#[derive(Debug)]
pub struct Catalog {
    /// By the order in the source.
    pub images: Vec<Image>,
    blobs: Blobs,
}

/// One image under one name.
#[derive(Debug)]
pub struct Image {
    /// With a tag, always.
    pub name: ImageName,
    /// Its manifest, or an index of several.
    pub descriptor: Descriptor,
}

#[derive(Debug)]
enum Blobs {
    /// `blobs/sha256/…` in the folder.
    Folder,
    Archive {
        /// Where each begins in the archive, and how long it is.
        spans: BTreeMap<String, Span>,
        /// Manifests that the archive lacks.
        made: BTreeMap<String, Vec<u8>>,
    },
}

/// A part of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The first byte.
    pub at: u64,
    /// How many.
    pub size: u64,
}

/// Contents that were found.
#[derive(Debug)]
pub enum Blob {
    /// These.
    Bytes(Vec<u8>),
    /// A part of this file.
    File(File, Span),
}

impl Blob {
    /// How many bytes.
    pub fn size(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::File(_, span) => span.size,
        }
    }

    /// All of it, where it is a JSON text.
    pub fn json(self) -> io::Result<Vec<u8>> {
        match self {
            Self::Bytes(bytes) => Ok(bytes),
            Self::File(file, span) => read(&file, span),
        }
    }
}

impl Catalog {
    /// Reads what the file or folder has. The error says what was got, what expected, and where in
    /// it.
    pub fn open(path: &Path) -> Result<Self, String> {
        let file = file(path).map_err(|error| error.to_string())?;
        let kind = file.metadata().map_err(|error| error.to_string())?;
        let stem = path.file_stem().unwrap_or_default().to_string_lossy().to_lowercase();
        if kind.is_dir() {
            let whole = path.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
            let index = member(&file, &["index.json"]).and_then(|file| whole_json(&file));
            let index = index.map_err(|error| format!("index.json: {error}"))?;
            let images = named(&index, &whole).map_err(|why| format!("index.json: {why}"))?;
            return Ok(Self { images, blobs: Blobs::Folder });
        }
        if !kind.is_file() {
            return Err("got no file and no folder".to_owned());
        }
        archive(&file, kind.len(), &stem)
    }

    /// Contents by their digest, which has the form of one. `None`: not here.
    pub fn blob(&self, path: &Path, digest: &str) -> io::Result<Option<Blob>> {
        let hex = digest.trim_start_matches("sha256:");
        let found = match &self.blobs {
            Blobs::Folder => {
                let blob = file(path).and_then(|dir| member(&dir, &["blobs", "sha256", hex]));
                match blob {
                    Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
                    blob => {
                        let blob = blob?;
                        let metadata = blob.metadata()?;
                        if !metadata.is_file() {
                            return Ok(None);
                        }
                        Blob::File(blob, Span { at: 0, size: metadata.len() })
                    }
                }
            }
            Blobs::Archive { spans, made } => {
                if let Some(bytes) = made.get(digest) {
                    Blob::Bytes(bytes.clone())
                } else if let Some(span) = spans.get(digest) {
                    Blob::File(file(path)?, *span)
                } else {
                    return Ok(None);
                }
            }
        };
        Ok(Some(found))
    }
}

/// Opens what the path names: no link, and no waiting for whoever writes into a pipe.
pub fn file(path: &Path) -> io::Result<File> {
    let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
    Ok(File::from(open(path, flags, Mode::empty())?))
}

/// A file below a folder; links are not followed.
fn member(dir: &File, path: &[&str]) -> io::Result<File> {
    let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
    let mut at = dir.try_clone()?;
    for part in path {
        at = File::from(openat(at.as_fd(), *part, flags, Mode::empty())?);
    }
    Ok(at)
}

fn whole_json(file: &File) -> io::Result<Vec<u8>> {
    let size = file.metadata()?.len();
    read(file, Span { at: 0, size })
}

fn read(file: &File, span: Span) -> io::Result<Vec<u8>> {
    if span.size > IMAGE_JSON_BYTES_MAX as u64 {
        let got = span.size;
        let why = format!("got {got} bytes of JSON, expected {IMAGE_JSON_BYTES_MAX} at most");
        return Err(io::Error::other(why));
    }
    let mut bytes = vec![0; span.size as usize];
    file.read_exact_at(&mut bytes, span.at)?;
    Ok(bytes)
}

/// The images of an index. Where only a tag is written, the file's name stands before it.
fn named(index: &[u8], stem: &str) -> Result<Vec<Image>, String> {
    let descriptors = json::index(index)?;
    let image = |descriptor: Descriptor| {
        let said = descriptor.name().unwrap_or("latest");
        let whole = said.contains(['/', ':', '@']);
        let said = if whole { said.to_owned() } else { format!("{stem}:{said}") };
        Ok(Image { name: name(&said)?, descriptor })
    };
    descriptors.into_iter().map(image).collect()
}

fn name(said: &str) -> Result<ImageName, String> {
    let shown: String = said.chars().take(300).collect();
    let tagged = if has_tag(said) { shown.clone() } else { format!("{shown}:latest") };
    let name = ImageName::parse(&tagged).map_err(|why| format!("got the name {shown:?}: {why}"))?;
    let tag = name.tag.clone().or_else(|| Some("latest".into()));
    Ok(ImageName { tag, ..name })
}

/// A member's place, or the member it stands for.
#[derive(Debug)]
enum Member {
    Here(Span),
    Link(String),
}

type Members = BTreeMap<String, Member>;

fn archive(file: &File, length: u64, stem: &str) -> Result<Catalog, String> {
    let members = members(file, length)?;
    let json = |name: &str| -> Result<Option<Vec<u8>>, String> {
        let Some(span) = find(&members, name) else { return Ok(None) };
        read(file, span).map(Some).map_err(|error| format!("{name}: {error}"))
    };
    let mut spans: BTreeMap<String, Span> = BTreeMap::new();
    for name in members.keys() {
        if let (Some(hex), Some(span)) = (name.strip_prefix("blobs/sha256/"), find(&members, name))
        {
            spans.insert(format!("sha256:{hex}"), span);
        }
    }
    if let Some(index) = json("index.json")? {
        let images = named(&index, stem).map_err(|why| format!("index.json: {why}"))?;
        for image in &images {
            let digest = &image.descriptor.digest;
            if !spans.contains_key(digest) {
                return Err(format!("index.json names {digest}, which is not in the archive"));
            }
        }
        return Ok(Catalog { images, blobs: Blobs::Archive { spans, made: BTreeMap::new() } });
    }
    let Some(saved) = json("manifest.json")? else {
        return Err("got neither index.json nor manifest.json in it, expected an OCI archive or \
                    what `docker save` writes"
            .to_owned());
    };
    let saved = json::saved(&saved).map_err(|why| format!("manifest.json: {why}"))?;
    let (mut images, mut made) = (Vec::new(), BTreeMap::new());
    for one in saved {
        let (descriptor, manifest) = assemble(file, &members, &one, &mut spans)?;
        for said in one.repo_tags.iter().flatten() {
            let name = name(said).map_err(|why| format!("manifest.json: {why}"))?;
            images.push(Image { name, descriptor: descriptor.clone() });
        }
        if one.repo_tags.iter().flatten().next().is_none() {
            images.push(Image { name: name(stem)?, descriptor: descriptor.clone() });
        }
        made.insert(descriptor.digest, manifest);
    }
    Ok(Catalog { images, blobs: Blobs::Archive { spans, made } })
}

/// Makes the manifest that `docker save` leaves out.
fn assemble(
    file: &File,
    members: &Members,
    saved: &Saved,
    spans: &mut BTreeMap<String, Span>,
) -> Result<(Descriptor, Vec<u8>), String> {
    let span = |name: &str| {
        find(members, name).ok_or_else(|| {
            let shown: String = name.chars().take(120).collect();
            format!("manifest.json names {shown:?}, which is not in the archive")
        })
    };
    let at = span(&saved.config)?;
    let config = read(file, at).map_err(|error| format!("{}: {error}", saved.config))?;
    let digests = json::diff_ids(&config).map_err(|why| format!("{}: {why}", saved.config))?;
    if digests.len() != saved.layers.len() {
        let (got, expected) = (saved.layers.len(), digests.len());
        return Err(format!(
            "manifest.json: got {got} layers, expected {expected} as in the \
                            configuration"
        ));
    }
    let mut layers = Vec::new();
    for (digest, layer) in digests.into_iter().zip(&saved.layers) {
        let span = span(layer)?;
        let mut magic = [0; 2];
        if span.size >= 2 && file.read_exact_at(&mut magic, span.at).is_ok() && magic == GZIP {
            return Err(format!("{layer}: got a compressed layer, expected a plain one"));
        }
        layers.push((digest.clone(), span.size));
        spans.insert(digest, span);
    }
    let (descriptor, manifest) = json::manifest(&config, &layers);
    spans.insert(crate::wire::oci::sha256(&config), at);
    Ok((descriptor, manifest))
}

const GZIP: [u8; 2] = [0x1f, 0x8b];

/// Goes over the heads of an archive.
fn members(file: &File, length: u64) -> Result<Members, String> {
    let mut members = Members::new();
    let mut at = 0;
    let (mut name_next, mut size_next) = (None, None);
    let mut heads = 0;
    while at < length {
        let mut block = [0; tar::BLOCK];
        let failed = |error: io::Error| match error.kind() {
            ErrorKind::UnexpectedEof => format!("byte {at}: the archive ends within a head"),
            _ => format!("byte {at}: {error}"),
        };
        file.read_exact_at(&mut block, at).map_err(failed)?;
        if at == 0 && (block[..2] == GZIP || block[..4] == [0x28, 0xb5, 0x2f, 0xfd]) {
            return Err(
                "got a compressed archive, expected a plain one: decompress it first".to_owned()
            );
        }
        let head = tar::head(&block).map_err(|why| format!("byte {at}: {why}"))?;
        heads += 1;
        if heads > 2 * IMAGE_MEMBERS_MAX {
            return Err(format!("got more than {IMAGE_MEMBERS_MAX} members, expected fewer"));
        }
        let begin = at + tar::BLOCK as u64;
        let size = match &head {
            Head::End => break,
            Head::Entry(entry) => size_next.take().unwrap_or(entry.size),
            Head::LongName(size) | Head::More(size) | Head::Skip(size) => *size,
        };
        let end = tar::next(begin, size).filter(|_| begin + size <= length);
        let end = end.ok_or_else(|| {
            format!("byte {at}: got a member of {size} bytes in an archive of {length}")
        })?;
        let more = |what: &str, bytes_max: usize| {
            if size > bytes_max as u64 {
                let got = format!("byte {at}: got {size} bytes of {what}");
                return Err(format!("{got}, expected {bytes_max} at most"));
            }
            let bytes = read(file, Span { at: begin, size });
            bytes.map_err(|error| format!("byte {begin}: {error}"))
        };
        match head {
            Head::LongName(_) => {
                name_next = Some(tar::text(&more("a name", 2 * tar::NAME_MAX)?));
            }
            Head::More(_) => {
                let said = tar::more(&more("pax records", IMAGE_PAX_BYTES_MAX)?)
                    .map_err(|why| format!("byte {begin}: {why}"))?;
                name_next = said.0.or(name_next);
                size_next = said.1;
            }
            Head::Entry(entry) => {
                let name = name_next.take().unwrap_or(entry.name);
                let member = match entry.kind {
                    Kind::File => Some(Member::Here(Span { at: begin, size })),
                    Kind::Link(target) => Some(Member::Link(target)),
                    Kind::Other => None,
                };
                if let (Some(member), Some(name)) = (member, plain(&name, "")) {
                    members.insert(name, member);
                }
                if members.len() > IMAGE_MEMBERS_MAX {
                    return Err(format!("got more than {IMAGE_MEMBERS_MAX} members"));
                }
            }
            Head::Skip(_) | Head::End => {}
        }
        at = end;
    }
    Ok(members)
}

/// Where a member lies; one link is followed, within the archive.
fn find(members: &Members, name: &str) -> Option<Span> {
    let name = plain(name, "")?;
    match members.get(&name)? {
        Member::Here(span) => Some(*span),
        Member::Link(target) => {
            let folder = name.rsplit_once('/').map_or("", |(folder, _)| folder);
            // A symbolic link is seen from its folder, a hard link from the archive's top.
            let named = [plain(target, folder), plain(target, "")];
            named.into_iter().flatten().find_map(|name| match members.get(&name)? {
                Member::Here(span) => Some(*span),
                Member::Link(_) => None,
            })
        }
    }
}

/// A name in the archive without detours. `None`: it leads out of it, or nowhere.
fn plain(name: &str, folder: &str) -> Option<String> {
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    if name.starts_with('/') {
        return None;
    }
    for part in name.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            part => parts.push(part),
        }
    }
    (!parts.is_empty()).then(|| parts.join("/"))
}
