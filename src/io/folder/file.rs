//! Reads the folder's names and the bytes of one file, without blocking and within a size limit.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use crate::limits::MANIFEST_BYTES_MAX;
use crate::model::error::{Error, Input, System};

/// Changes whenever the file does: device, inode, size, mtime and ctime in nanoseconds.
pub(super) type Key = (u64, u64, u64, i128, i128);

/// The names in the folder in order, without hidden ones.
pub(super) fn names_in(path: &Path) -> io::Result<BTreeSet<OsString>> {
    let hidden = |name: &OsStr| name.as_bytes().starts_with(b".");
    let mut names = BTreeSet::new();
    for entry in fs::read_dir(path)? {
        let name = entry?.file_name();
        if !hidden(&name) {
            names.insert(name);
        }
    }
    Ok(names)
}

/// Whether the name is one of an editor's temporary files (`sed -i`, vim) or backup copies.
pub(super) fn is_temporary(name: &OsStr) -> bool {
    let name = name.as_bytes();
    let of_sed = |rest: &[u8]| rest.len() == 6 && rest.iter().all(u8::is_ascii_alphanumeric);
    name.strip_prefix(b"sed").is_some_and(of_sed) || name == b"4913" || name.ends_with(b"~")
}

/// The file does not exist, or is a link to nothing.
pub(super) fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}

/// The file's bytes, and its key before the read; `None` if it is absent or not regular. Never
/// blocks: a pipe may have no other end.
pub(super) fn read(path: &Path) -> Result<Option<(Key, Vec<u8>)>, Error> {
    let mut options = OpenOptions::new();
    let file = options.read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY);
    let file: File = match file.open(path) {
        Ok(file) => file,
        Err(error) if is_absent(&error) => return Ok(None),
        Err(error) => return Err(System::at("cannot be opened", error).into()),
    };
    let meta = file.metadata().map_err(|error| System::at("cannot be read", error))?;
    if !meta.is_file() {
        return Ok(None);
    }
    let too_large = |got: u64| {
        let expected = format!("{MANIFEST_BYTES_MAX} at most");
        Error::from(Input::new(format_args!("{got} bytes"), expected))
    };
    if meta.len() > MANIFEST_BYTES_MAX as u64 {
        return Err(too_large(meta.len()));
    }
    let mut text = Vec::with_capacity(meta.len() as usize + 1);
    let read = file.take(MANIFEST_BYTES_MAX as u64 + 1).read_to_end(&mut text);
    match read {
        Ok(size) if size > MANIFEST_BYTES_MAX => Err(too_large(size as u64)),
        Ok(_) => Ok(Some((key_of(&meta), text))),
        Err(error) => Err(System::at("cannot be read", error).into()),
    }
}

pub(super) fn key_of(meta: &Metadata) -> Key {
    let nanos = |s: i64, ns: i64| i128::from(s) * 1_000_000_000 + i128::from(ns);
    let modified = nanos(meta.mtime(), meta.mtime_nsec());
    (meta.dev(), meta.ino(), meta.len(), modified, nanos(meta.ctime(), meta.ctime_nsec()))
}
