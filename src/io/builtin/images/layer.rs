//! Unpacked layers: `layers/HEX/fs` and `layers/HEX/size`, by the digest of the uncompressed layer.
//!
//! ```text
//!  tmp/layer-HEX ── a confined process unpacks, both digests are compared ──▶ marks ──▶ size
//!       ──▶ syncfs ──▶ rename to layers/HEX ──▶ fsync of layers/
//! ```
//!
//! What is in `layers/` is whole and on the disk. A crash leaves something in `tmp/` only, which
//! the next attempt, or the next start of the server, removes. One process unpacks at a time.

use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File};
use std::io::{self, ErrorKind, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, FileExt};
use std::os::unix::net::UnixStream;
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg, OFlag, open};
use nix::sys::stat::{FileStat, Mode, fchmod, fstat};
use nix::unistd::{Gid, Uid, fchown, fsync, syncfs};
use ring::digest::{Context, SHA256};
use serde::{Deserialize, Serialize};

use super::unpack::{Incomplete, Source, Unpacked, reading, unpack, within};
use crate::io::builtin::layout::Layout;
use crate::io::image_import::archive::Span;
use crate::io::{confine, frame, jobs};
use crate::limits::{LAYER_FOLDER_NAMES_BYTES_MAX, LAYER_RATIO_FROM_BYTES, LAYER_RATIO_MAX};
use crate::model::error::System;
use crate::model::runtime::{DiffId, JobFault};
use crate::wire::inflate::Gunzip;
use crate::wire::oci::digest_text;

/// A layer as an archive.
pub(super) struct Archive<'a> {
    pub(super) file: &'a File,
    /// Where it is in the file.
    pub(super) span: Span,
    /// Of the archive as it is.
    pub(super) digest: &'a str,
    /// Of the archive without its compression.
    pub(super) diff_id: &'a DiffId,
}

/// Bytes of an unpacked layer; `None`: it is not there.
pub(super) fn size(layout: &Layout, id: &DiffId) -> Result<Option<u64>, JobFault> {
    let path = layout.layer(id).join("size");
    match fs::read_to_string(&path) {
        Ok(text) => Ok(text.trim().parse().ok()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(failed("read", &path, &error)),
    }
}

/// Keeps others from unpacking until it is dropped. The folders are there then.
pub(super) fn lock(layout: &Layout) -> Result<Flock<File>, JobFault> {
    let (path, tmp) = (layout.layers(), layout.tmp());
    let made = [&path, &tmp].into_iter().try_for_each(fs::create_dir_all);
    let opened = made.and_then(|()| File::open(&path));
    let opened = opened.map_err(|error| failed("open", &path, &error))?;
    Flock::lock(opened, FlockArg::LockExclusive)
        .map_err(|(_, errno)| failed("lock", &path, &errno.into()))
}

/// Unpacks a layer and returns its size. `below`: the layers that it is made for, the lowest first.
pub(super) fn store(
    layout: &Layout,
    archive: &Archive<'_>,
    below: &[DiffId],
) -> Result<u64, JobFault> {
    let target = layout.layer(archive.diff_id);
    let hex = target.file_name().unwrap_or_default().to_os_string();
    let name = [OsStr::new("layer-"), &hex].join(OsStr::new(""));
    let tmp = folder(&layout.tmp())?;
    jobs::remove_tree(tmp.as_fd(), &name).map_err(|error| refused(&error))?;
    let work = layout.tmp().join(&name);
    let done = fill(layout, archive, below, &work).and_then(|bytes| {
        // What is called so without a size is no layer.
        let layers = folder(&layout.layers())?;
        jobs::remove_tree(layers.as_fd(), &hex).map_err(|error| refused(&error))?;
        fs::rename(&work, &target).map_err(|error| failed("rename", &work, &error))?;
        fsync(layers.as_fd()).map_err(|errno| failed("sync", &target, &errno.into()))?;
        Ok(bytes)
    });
    if done.is_err() {
        // It takes space; if it cannot be removed, the next attempt or start tries again.
        let _ = jobs::remove_tree(tmp.as_fd(), &name);
    }
    done.map_err(|fault| within(&format!("layer {}", archive.digest), fault))
}

fn fill(
    layout: &Layout,
    archive: &Archive<'_>,
    below: &[DiffId],
    work: &Path,
) -> Result<u64, JobFault> {
    let fs = work.join("fs");
    let made = DirBuilder::new().mode(0o700).create(work).and_then(|()| fs::create_dir(&fs));
    made.map_err(|error| failed("mkdir", work, &error))?;
    let root = folder(&fs)?;
    let (told, ended) = confine::run(
        &root,
        archive.file,
        |confined, to| {
            let told = read(confined, archive);
            // The job that does not read it any more has ended.
            let _ = tell(to, told);
        },
        |from| hear(from, LAYER_FOLDER_NAMES_BYTES_MAX),
    )
    .map_err(|error| JobFault::Failed(format!("fork: {error}")))?;
    let unpacked = match (told, ended) {
        (Ok(told), None) => told?,
        (_, Some(how)) => return Err(JobFault::Failed(format!("the unpacking process: {how}"))),
        (Err(why), None) => return Err(JobFault::Failed(format!("the unpacking process: {why}"))),
    };
    let below: Vec<OwnedFd> =
        below.iter().rev().filter_map(|id| folder(&layout.layer(id).join("fs")).ok()).collect();
    for (name, incomplete) in &unpacked.folders {
        complete(root.as_fd(), name, *incomplete, &below)?;
    }
    let note = work.join("size");
    fs::write(&note, unpacked.bytes.to_string()).map_err(|error| failed("write", &note, &error))?;
    syncfs(root.as_fd()).map_err(|errno| failed("sync", work, &errno.into()))?;
    Ok(unpacked.bytes)
}

/// In the confined process: unpacks, reads the archive to its end, compares the digests.
fn read(confined: &confine::Confined<'_>, archive: &Archive<'_>) -> Result<Unpacked, JobFault> {
    let mut part = Part { file: archive.file, span: archive.span };
    let mut magic = [0; 4];
    let count = archive.span.size.min(4) as usize;
    archive
        .file
        .read_exact_at(&mut magic[..count], archive.span.at)
        .map_err(|error| reading(&error))?;
    if magic == ZSTD {
        let why = "got a layer that zstd has compressed, expected gzip or no compression";
        return Err(JobFault::Invalid(why.to_owned()));
    }
    let (unpacked, packed, plain) = if magic[..2] == GZIP {
        let mut plain = Plain::new(Gunzip::new(Hashed::new(part)));
        let unpacked = unpack(confined, &mut |to| plain.read(to))?;
        drain(&mut |to| plain.read(to))?;
        let packed = plain.from.from.from().sum();
        (unpacked, packed, plain.from.sum())
    } else {
        let mut plain = Hashed::new(&mut part);
        let unpacked = unpack(confined, &mut |to| plain.read(to))?;
        drain(&mut |to| plain.read(to))?;
        (unpacked, plain.sum(), plain.sum())
    };
    for (what, got, expected) in
        [("as it is", packed, archive.digest), ("uncompressed", plain, &archive.diff_id.0)]
    {
        if got != expected {
            let why = format!("got the digest {got} of the layer {what}, expected {expected}");
            return Err(JobFault::Invalid(why));
        }
    }
    Ok(unpacked)
}

const GZIP: [u8; 2] = [0x1f, 0x8b];
const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// A part of a file.
struct Part<'a> {
    file: &'a File,
    span: Span,
}

impl Read for Part<'_> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let most = (to.len() as u64).min(self.span.size) as usize;
        let count = self.file.read_at(&mut to[..most], self.span.at)?;
        self.span.at += count as u64;
        self.span.size -= count as u64;
        Ok(count)
    }
}

/// Computes the digest of what is read.
struct Hashed<R> {
    from: R,
    context: Context,
    bytes: u64,
}

impl<R: Read> Hashed<R> {
    fn new(from: R) -> Self {
        Self { from, context: Context::new(&SHA256), bytes: 0 }
    }

    fn sum(&self) -> String {
        digest_text(self.context.clone().finish().as_ref())
    }
}

impl<R: Read> Read for Hashed<R> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let count = self.from.read(to)?;
        self.context.update(&to[..count]);
        self.bytes += count as u64;
        Ok(count)
    }
}

/// The uncompressed layer; its size is bounded by that of the compressed one.
struct Plain<'a> {
    from: Hashed<Gunzip<Hashed<Part<'a>>>>,
}

impl<'a> Plain<'a> {
    fn new(from: Gunzip<Hashed<Part<'a>>>) -> Self {
        Self { from: Hashed::new(from) }
    }
}

impl Plain<'_> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let count = self.from.read(to)?;
        let (plain, packed) = (self.from.bytes, self.from.from.from().bytes);
        if is_bomb(plain, packed) {
            let why = format!(
                "got {plain} bytes out of {packed}, expected {LAYER_RATIO_MAX} times as many at \
                 most"
            );
            return Err(io::Error::new(ErrorKind::InvalidData, why));
        }
        Ok(count)
    }
}

/// Whether so many bytes cannot be the content of an honest layer of this packed size.
fn is_bomb(plain: u64, packed: u64) -> bool {
    plain > LAYER_RATIO_FROM_BYTES && plain / LAYER_RATIO_MAX > packed
}

fn drain(from: &mut Source<'_>) -> Result<(), JobFault> {
    let mut buffer = [0; 4 << 10];
    loop {
        match from(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(reading(&error)),
        }
    }
}

/// What the confined process tells, a frame each: folders, then one of the two ends.
#[derive(Serialize, Deserialize)]
enum Told {
    Folder(Vec<u8>, Incomplete),
    Done(u64),
    Failed(JobFault),
}

fn tell(to: &mut UnixStream, told: Result<Unpacked, JobFault>) -> io::Result<()> {
    match told {
        Ok(unpacked) => {
            for (name, incomplete) in unpacked.folders {
                frame::send(to, &Told::Folder(name, incomplete))?;
            }
            frame::send(to, &Told::Done(unpacked.bytes))
        }
        Err(fault) => frame::send(to, &Told::Failed(fault)),
    }
}

/// Of a folder without its name.
const FOLDER_BYTES: usize = 48;

/// The job's end. The other one may tell anything: folders of so many bytes are kept.
fn hear(from: &mut UnixStream, bytes_max: usize) -> Result<Result<Unpacked, JobFault>, System> {
    let (mut folders, mut bytes_left) = (Vec::new(), bytes_max);
    loop {
        let told = frame::receive(from).map_err(|error| System::new(error.to_string()))?;
        match told {
            Told::Folder(name, incomplete) => {
                let rest = bytes_left.checked_sub(name.len() + FOLDER_BYTES);
                bytes_left = rest.ok_or_else(|| System::new("it told too many folders"))?;
                folders.push((name, incomplete));
            }
            Told::Done(bytes) => return Ok(Ok(Unpacked { bytes, folders })),
            Told::Failed(fault) => return Ok(Err(fault)),
        }
    }
}

/// Marks an opaque folder, and gives an implied one the owner and mode that it has below. The name
/// comes from the confined process: no link is followed.
fn complete(
    root: BorrowedFd<'_>,
    name: &[u8],
    incomplete: Incomplete,
    below: &[OwnedFd],
) -> Result<(), JobFault> {
    let place = String::from_utf8_lossy(name).into_owned();
    let at = |error: System| within(&place, refused(&error));
    let mut dir = root.try_clone_to_owned().map_err(|error| at(error.into()))?;
    for part in name.split(|byte| *byte == b'/').filter(|part| !part.is_empty()) {
        let next = jobs::folder_in(dir.as_fd(), OsStr::from_bytes(part)).map_err(at)?;
        dir = next.ok_or_else(|| at(System::new("the folder is gone")))?;
    }
    if incomplete.implied {
        let there = below.iter().find_map(|layer| folder_below(layer, name));
        let (user, group, mode) =
            there.map_or((0, 0, 0o755), |stat| (stat.st_uid, stat.st_gid, stat.st_mode & 0o7777));
        fchown(dir.as_fd(), Some(Uid::from_raw(user)), Some(Gid::from_raw(group)))
            .and_then(|()| fchmod(dir.as_fd(), Mode::from_bits_truncate(mode)))
            .map_err(|errno| at(System::at("chown", errno)))?;
    }
    if incomplete.opaque {
        // SAFETY: both texts end with a zero or have their length, and the kernel keeps neither.
        #[expect(unsafe_code, reason = "nix does not have it")]
        let set = unsafe {
            libc::fsetxattr(
                dir.as_raw_fd(),
                c"trusted.overlay.opaque".as_ptr(),
                c"y".as_ptr().cast(),
                1,
                0,
            )
        };
        Errno::result(set).map_err(|errno| {
            at(System::at("cannot mark a folder as opaque (trusted.overlay.opaque)", errno))
        })?;
    }
    Ok(())
}

/// A folder of a layer below, which may have been made by anybody: no link is followed.
fn folder_below(layer: &OwnedFd, name: &[u8]) -> Option<FileStat> {
    let mut dir = layer.try_clone().ok()?;
    for part in name.split(|byte| *byte == b'/').filter(|part| !part.is_empty()) {
        dir = jobs::folder_in(dir.as_fd(), OsStr::from_bytes(part)).ok()??;
    }
    fstat(dir.as_fd()).ok()
}

fn folder(path: &Path) -> Result<OwnedFd, JobFault> {
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    open(path, flags, Mode::empty()).map_err(|errno| failed("open", path, &errno.into()))
}

fn refused(error: &System) -> JobFault {
    JobFault::Failed(error.to_string())
}

pub(super) fn failed(what: &str, path: &Path, error: &io::Error) -> JobFault {
    JobFault::Failed(format!("{what} {}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::builtin::images::tests::support::{Place, gzip};

    #[test]
    fn far_too_many_bytes_are_a_bomb() {
        assert!(!is_bomb(LAYER_RATIO_FROM_BYTES, 0));
        let packed = LAYER_RATIO_FROM_BYTES / LAYER_RATIO_MAX + 1;
        assert!(is_bomb(LAYER_RATIO_FROM_BYTES + 1, packed - 2));
        assert!(!is_bomb(LAYER_RATIO_FROM_BYTES + 1, packed));
        assert!(is_bomb((packed + 1) * LAYER_RATIO_MAX, packed));
    }

    /// It is found while it is read: what it becomes is never whole anywhere.
    #[test]
    fn a_bomb_is_not_read_to_its_end() {
        let place = Place::new();
        let path = place.0.join("layer");
        fs::write(&path, gzip(&vec![0; 1 << 20])).expect("a file of ours");
        let file = File::open(&path).expect("it is there");
        let span = Span { at: 0, size: file.metadata().expect("it is there").len() };
        for (before, is_bomb) in [(0, false), (LAYER_RATIO_FROM_BYTES, true)] {
            let mut plain = Plain::new(Gunzip::new(Hashed::new(Part { file: &file, span })));
            plain.from.bytes = before;
            let read = drain(&mut |to| plain.read(to));
            assert_eq!(read.is_err(), is_bomb, "{read:?}");
            assert!(plain.from.bytes < before + (1 << 20) || !is_bomb);
        }
    }

    #[test]
    fn what_the_confined_process_tells_has_a_bound() {
        let (mut ours, mut theirs) = UnixStream::pair().expect("a pair");
        let told = |name: &[u8]| Told::Folder(name.to_vec(), Incomplete::default());
        let bytes_max = 2 * (3 + FOLDER_BYTES);
        for (names, want) in [(&[b"abc", b"abc"][..], true), (&[b"abc", b"abc", b"abc"], false)] {
            for name in names {
                frame::send(&mut theirs, &told(*name)).expect("there is room");
            }
            frame::send(&mut theirs, &Told::Done(7)).expect("there is room");
            match hear(&mut ours, bytes_max) {
                Ok(Ok(unpacked)) => assert_eq!((unpacked.bytes, want), (7, true)),
                other => {
                    let why = other.expect_err("it tells too much").to_string();
                    assert_eq!((&*why, want), ("it told too many folders", false));
                }
            }
        }
    }
}
