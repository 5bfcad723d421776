//! Takes the program and its signature out of one layer of an image: `edged` and `edged.sig` in its
//! root directory. Other members are passed over. A later layer replaces what a lower one has, and
//! a whiteout removes it (OCI image-spec «Image Layer Filesystem Changeset»).

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;

use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::Mode;
use nix::unistd::{UnlinkatFlags, unlinkat};

use super::{Failure, PROGRAM, SIGNATURE};
use crate::limits::{IMAGE_PAX_BYTES_MAX, RELEASE_BYTES_MAX, UPGRADE_LAYER_BYTES_MAX};
use crate::wire::inflate::Gunzip;
use crate::wire::tar::{self, Entry, Head, Kind};

/// In a confined process: the two files of the layer, if it has them, go into the folder.
pub(super) fn extract(folder: &OwnedFd, layer: &File) -> Result<(), Failure> {
    read(folder, layer).map_err(Failure)
}

fn read(folder: &OwnedFd, layer: &File) -> Result<(), String> {
    let mut magic = [0; 4];
    layer.read_exact_at(&mut magic, 0).map_err(text)?;
    let mut layer = layer;
    match magic {
        [0x1f, 0x8b, ..] => members(folder, &mut Gunzip::new(layer)),
        [0x28, 0xb5, 0x2f, 0xfd] => {
            Err("got a layer that zstd has compressed, expected gzip or no compression".to_owned())
        }
        _ => members(folder, &mut layer),
    }
}

fn members(folder: &OwnedFd, archive: &mut dyn Read) -> Result<(), String> {
    let mut archive = archive.take(UPGRADE_LAYER_BYTES_MAX);
    let (mut name, mut records) = (None, Vec::new());
    let mut block = [0; tar::BLOCK];
    loop {
        if archive.limit() == 0 {
            return Err(format!("got more than {UPGRADE_LAYER_BYTES_MAX} bytes"));
        }
        // An archive may end without the two empty blocks.
        if !read_block(&mut archive, &mut block)? {
            return Ok(());
        }
        match tar::head(&block).map_err(text)? {
            Head::End => return Ok(()),
            Head::LongName(size) => name = Some(contents(&mut archive, size, tar::NAME_MAX)?),
            Head::LongLink(size) | Head::Skip(size) => pass(&mut archive, padded(size)?)?,
            Head::More(size) => records = contents(&mut archive, size, IMAGE_PAX_BYTES_MAX)?,
            Head::Entry(entry) => {
                let pax = tar::more(&records).map_err(text)?;
                let full = pax.name.map(<[u8]>::to_vec).or(name.take());
                let size = match entry.kind {
                    Kind::File => pax.size.unwrap_or(entry.size),
                    _ => 0,
                };
                let entry = Entry { name: full.unwrap_or(entry.name), size, ..entry };
                member(folder, &mut archive, &entry)?;
                records.clear();
            }
        }
    }
}

/// `false`: the archive has ended.
fn read_block(archive: &mut dyn Read, block: &mut [u8; tar::BLOCK]) -> Result<bool, String> {
    let mut read = 0;
    while read < block.len() {
        match archive.read(&mut block[read..]).map_err(text)? {
            0 if read == 0 => return Ok(false),
            0 => return Err("got an archive that ends within a head".to_owned()),
            count => read += count,
        }
    }
    Ok(true)
}

fn member(folder: &OwnedFd, archive: &mut dyn Read, entry: &Entry) -> Result<(), String> {
    let mut name = &entry.name[..];
    while let Some(rest) = name.strip_prefix(b"./").or(name.strip_prefix(b"/")) {
        name = rest;
    }
    let padded = padded(entry.size)?;
    if name == b".wh..wh..opq" {
        remove(folder, PROGRAM)?;
        remove(folder, SIGNATURE)?;
        return pass(archive, padded);
    }
    for file in [PROGRAM, SIGNATURE] {
        if name.strip_prefix(b".wh.") == Some(file.as_bytes()) {
            remove(folder, file)?;
        } else if name == file.as_bytes() {
            let Kind::File = entry.kind else {
                return Err(format!("got /{file} as {:?}, expected a file", entry.kind));
            };
            remove(folder, file)?;
            write(folder, file, archive, entry.size)?;
            return pass(archive, padded - entry.size);
        }
    }
    pass(archive, padded)
}

fn remove(folder: &OwnedFd, file: &str) -> Result<(), String> {
    match unlinkat(folder, OsStr::new(file), UnlinkatFlags::NoRemoveDir) {
        Ok(()) | Err(Errno::ENOENT) => Ok(()),
        Err(errno) => Err(format!("unlink {file}: {}", errno.desc())),
    }
}

/// So many bytes, or all that there are in what ends by itself.
fn write(folder: &OwnedFd, file: &str, from: &mut dyn Read, size: u64) -> Result<(), String> {
    if size > RELEASE_BYTES_MAX as u64 {
        return Err(format!("/{file}: got {size} bytes, expected {RELEASE_BYTES_MAX} at most"));
    }
    let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW;
    let mode = Mode::S_IRUSR | Mode::S_IWUSR;
    let opened = openat(folder, file, flags | OFlag::O_CLOEXEC, mode);
    let mut to = File::from(opened.map_err(|errno| format!("create {file}: {}", errno.desc()))?);
    let (mut left, mut buffer) = (size, vec![0; 64 << 10]);
    while left > 0 {
        let count = left.min(buffer.len() as u64) as usize;
        from.read_exact(&mut buffer[..count]).map_err(text)?;
        to.write_all(&buffer[..count]).map_err(|error| format!("write {file}: {error}"))?;
        left -= count as u64;
    }
    Ok(())
}

fn contents(archive: &mut dyn Read, size: u64, bytes_max: usize) -> Result<Vec<u8>, String> {
    if size > bytes_max as u64 {
        return Err(format!("got {size} bytes about a member, expected {bytes_max} at most"));
    }
    let mut contents = vec![0; size as usize];
    archive.read_exact(&mut contents).map_err(text)?;
    pass(archive, padded(size)? - size)?;
    if contents.last() == Some(&0) {
        contents.pop();
    }
    Ok(contents)
}

/// With the padding of the archive.
fn padded(size: u64) -> Result<u64, String> {
    tar::next(0, size).ok_or_else(|| format!("got a member of {size} bytes"))
}

fn pass(archive: &mut dyn Read, bytes: u64) -> Result<(), String> {
    match io::copy(&mut archive.take(bytes), &mut io::sink()) {
        Ok(passed) if passed == bytes => Ok(()),
        Ok(_) => Err("got an archive that ends within a member".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// Copies the two files out of unpacked layers, of which the last one is on top.
#[cfg(feature = "runtime")]
pub(super) fn copy(layers: &[std::path::PathBuf], folder: &std::path::Path) -> Result<(), Failure> {
    use std::os::unix::fs::FileTypeExt;

    use super::failed;

    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let to: OwnedFd = nix::fcntl::open(folder, flags, Mode::empty())
        .map_err(|errno| failed("open", folder, &errno.into()))?;
    for name in [PROGRAM, SIGNATURE] {
        for path in layers.iter().rev().map(|layer| layer.join(name)) {
            let has = match std::fs::symlink_metadata(&path) {
                Ok(has) => has,
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(failed("stat", &path, &error)),
            };
            if has.file_type().is_char_device() {
                // A whiteout.
                break;
            }
            if !has.is_file() {
                let path = path.display();
                return Err(Failure(format!("got {path} as something else, expected a file")));
            }
            let mut file = File::open(&path).map_err(|error| failed("open", &path, &error))?;
            write(&to, name, &mut file, has.len()).map_err(Failure)?;
            break;
        }
    }
    Ok(())
}
