//! Where runtimes keep the layers of an image.
//!
//! ```text
//!  containerd   IMAGES/../io.containerd.content.v1.content/blobs/sha256/HEX
//!               index ─▶ manifest for this machine ─▶ layers: tar archives, compressed or not
//!  built in     IMAGES/../images/HEX.rec ─▶ IMAGES/HEX/fs: unpacked
//! ```
//!
//! `IMAGES` is the mount point that the runtime's `ImageFsInfo` names. The digests of what is read
//! are not compared: the signature of the program counts, which is checked afterwards.

use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use nix::fcntl::{OFlag, open};
use nix::sys::stat::Mode;

use super::{Failure, failed, layer};
use crate::io::frame::{receive, send};
use crate::io::{confine, sys};
use crate::limits::{IMAGE_INDEX_DEPTH_MAX, IMAGE_JSON_BYTES_MAX};
use crate::model::image::is_sha256;
use crate::wire::oci::manifest::{Document, document};

/// Takes program and signature out of the image into `folder`, as far as they are in it.
pub(super) fn take(
    image_fs: &Path,
    image: &str,
    digests: &[Box<str>],
    folder: &Path,
) -> Result<(), Failure> {
    let above = image_fs.parent().unwrap_or(image_fs);
    let blobs = above.join("io.containerd.content.v1.content/blobs/sha256");
    if blobs.is_dir() {
        let layers = layers(&blobs, digests)?;
        return layers.iter().try_for_each(|path| unpack(path, folder));
    }
    #[cfg(feature = "runtime")]
    if above.join("images").is_dir() {
        let layers = crate::io::builtin::records::layers_of(above, image);
        let layers = layers.map_err(|error| Failure(error.to_string()))?;
        return layer::copy(&layers, folder);
    }
    let image_fs = image_fs.display();
    Err(Failure(format!(
        "got the image {image} in {image_fs}, expected it in containerd's content store beside it, \
         or in the runtime built in"
    )))
}

/// The archives of the layers, the lowest first.
fn layers(blobs: &Path, digests: &[Box<str>]) -> Result<Vec<PathBuf>, Failure> {
    let of_name = |name: &str| name.rsplit_once('@').map(|(_, digest)| digest.to_owned());
    let is_there = |digest: &String| blob(blobs, digest).is_some_and(|path| path.is_file());
    let mut digest =
        digests.iter().filter_map(|name| of_name(name)).find(is_there).ok_or_else(|| {
            let blobs = blobs.display();
            Failure(format!("got the digests {digests:?} of the image, expected one in {blobs}"))
        })?;
    let machine = sys::image_machine();
    for _ in 0..=IMAGE_INDEX_DEPTH_MAX {
        let wrong = |why: &dyn std::fmt::Display| Failure(format!("{digest}: {why}"));
        let path = blob(blobs, &digest).ok_or_else(|| wrong(&"expected a digest of SHA-256"))?;
        let mut text = Vec::new();
        let read = File::open(&path)
            .and_then(|file| file.take(IMAGE_JSON_BYTES_MAX as u64).read_to_end(&mut text));
        read.map_err(|error| failed("read", &path, &error))?;
        match document(&text).map_err(|fault| wrong(&fault))? {
            Document::Manifest(manifest) => {
                let path = |digest: &str| {
                    let why = "got the digest of a layer that is none of SHA-256";
                    blob(blobs, digest).ok_or_else(|| Failure(why.to_owned()))
                };
                return manifest.layers.iter().map(|layer| path(&layer.digest)).collect();
            }
            Document::Index(entries) => {
                let none = format!("got no manifest for {machine}");
                digest = machine.choose(&entries).ok_or_else(|| wrong(&none))?.digest.to_string();
            }
        }
    }
    Err(Failure(format!("got indexes in {IMAGE_INDEX_DEPTH_MAX} indexes, expected a manifest")))
}

/// The file of a digest; `None`: it is none of SHA-256.
fn blob(blobs: &Path, digest: &str) -> Option<PathBuf> {
    is_sha256(digest).then(|| blobs.join(digest.strip_prefix("sha256:").unwrap_or(digest)))
}

/// Lets a confined process take the two files out of a layer.
fn unpack(layer: &Path, folder: &Path) -> Result<(), Failure> {
    let file = File::open(layer).map_err(|error| failed("open", layer, &error))?;
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let root: OwnedFd = open(folder, flags, Mode::empty())
        .map_err(|errno| failed("open", folder, &errno.into()))?;
    let (told, ended) = confine::run(
        &root,
        &file,
        |confined, to| {
            // The job that does not read it any more has ended.
            let done = layer::extract(confined.root(), &file);
            let _ = send(to, &done.map_err(|Failure(why)| why));
        },
        receive::<Result<(), String>>,
    )
    .map_err(|error| failed("read", layer, &error))?;
    let why = match (told, ended) {
        (Ok(Ok(())), None) => return Ok(()),
        (Ok(Err(why)), None) => why,
        (_, Some(how)) => format!("the process that reads it: {how}"),
        (Err(why), None) => format!("the process that reads it: {why}"),
    };
    Err(Failure(format!("layer {}: {why}", layer.display())))
}
