//! Checks that a hostPath volume exists on the node (`HostPathVolumeSource.type`), with the
//! kubelet's messages.

use std::fs::{self, Metadata, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, OpenOptionsExt};
use std::path::Path;

use super::Failure;
use crate::model::job::HostPathKind;

pub(super) fn check(path: &str, kind: HostPathKind) -> Result<(), Failure> {
    let place = Path::new(path);
    let there = fs::metadata(place).ok();
    let exists = there.is_some();
    let failed = |what: &str, error: std::io::Error| Failure(format!("{what} {path}: {error}"));
    let is = |what: &str, test: fn(&Metadata) -> bool| {
        if fs::metadata(place).is_ok_and(|found| test(&found)) {
            return Ok(());
        }
        Err(Failure(format!("hostPath type check failed: {path} is not a {what}")))
    };
    match kind {
        HostPathKind::Unset => Ok(()),
        HostPathKind::DirectoryOrCreate if !exists => fs::DirBuilder::new()
            .recursive(true)
            .mode(0o755)
            .create(place)
            .map_err(|error| failed("mkdir", error)),
        HostPathKind::FileOrCreate if !exists => {
            let new = OpenOptions::new().write(true).create_new(true).mode(0o644).open(place);
            match new {
                Ok(_) => Ok(()),
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                    is("file", |found| !found.is_dir())
                }
                Err(error) => Err(failed("open", error)),
            }
        }
        HostPathKind::DirectoryOrCreate | HostPathKind::Directory => {
            is("directory", Metadata::is_dir)
        }
        HostPathKind::FileOrCreate | HostPathKind::File => is("file", Metadata::is_file),
        HostPathKind::Socket => is("socket file", |found| found.file_type().is_socket()),
        HostPathKind::CharDevice => {
            is("character device", |found| found.file_type().is_char_device())
        }
        HostPathKind::BlockDevice => {
            is("block device", |found| found.file_type().is_block_device())
        }
    }
}
