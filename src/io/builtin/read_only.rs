//! The OCI runtime's program on a read-only mount of our own: `RUN/bin/NAME`.
//!
//! A container could overwrite the program that makes it, by way of `/proc/self/exe`
//! (CVE-2019-5736). So crun and runc mount themselves read-only and start anew from there, at each
//! call, unless they already run from a read-only mount. Here they do: with crun 1.8 a call takes
//! 1.3 ms where it took 4.
//!
//! The server mounts at its start, before there are jobs; jobs and monitors only look. A program
//! that was replaced since is called as it is, until the server starts again.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::mount::{MntFlags, MsFlags, umount2};

use super::files;
use super::layout::Layout;

/// Mounts each program. One for which that fails is called where it is.
pub fn hold<'a>(layout: &Layout, programs: impl IntoIterator<Item = &'a Path>) {
    for program in programs {
        if let Err(error) = hold_one(layout, program) {
            log::warn!("{}: not mounted read-only, calls take longer: {error}", program.display());
        }
    }
}

fn hold_one(layout: &Layout, program: &Path) -> io::Result<()> {
    let Some(place) = place(layout, program) else { return Ok(()) };
    if is_same(&place, program) {
        return Ok(());
    }
    let folder = place.parent().expect("it is below RUN");
    files::make_dir(folder).map_err(io::Error::other)?;
    // Of a program that was replaced. Calls of it that still run go on.
    while umount2(&place, MntFlags::MNT_DETACH).is_ok() {}
    OpenOptions::new().create(true).append(true).open(&place)?;
    files::bind(program, &place)?;
    let flags = MsFlags::MS_REMOUNT | MsFlags::MS_BIND | MsFlags::MS_RDONLY;
    files::mount(None, &place, None, flags, None).or_else(|errno: Errno| {
        // One that can be written to would be taken for the guarded one.
        umount2(&place, MntFlags::MNT_DETACH)?;
        Err(errno.into())
    })
}

/// The path by which it is called.
pub fn path(layout: &Layout, program: &Path) -> PathBuf {
    let held = place(layout, program).filter(|place| is_same(place, program));
    held.unwrap_or_else(|| program.to_owned())
}

/// `None`: it has no name.
fn place(layout: &Layout, program: &Path) -> Option<PathBuf> {
    program.file_name().map(|name| layout.programs().join(name))
}

/// Whether both are one file. Two programs of one name share a place, and the first one has it.
fn is_same(place: &Path, program: &Path) -> bool {
    let identity = |path| fs::metadata(path).map(|meta| (meta.dev(), meta.ino()));
    matches!((identity(place), identity(program)), (Ok(one), Ok(other)) if one == other)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::test_folder::TestFolder;

    #[test]
    fn a_program_is_called_from_the_mount_until_it_is_replaced() {
        let folder = TestFolder::new("read-only");
        let program = folder.join("crun");
        fs::copy("/bin/true", &program).expect("it can be copied");
        let layout = Layout::new(folder.join("run"), folder.join("data"));
        assert_eq!(path(&layout, &program), program, "nothing is mounted");
        hold(&layout, [&*program]);
        let held = path(&layout, &program);
        assert_eq!(held, folder.join("run/bin/crun"));
        // It runs, and nobody can write to it there.
        assert!(std::process::Command::new(&held).status().expect("it runs").success());
        let written = OpenOptions::new().write(true).open(&held).expect_err("it is read-only");
        assert_eq!(written.raw_os_error(), Some(Errno::EROFS as i32));

        let newer = folder.join("newer");
        fs::copy("/bin/true", &newer).expect("it can be copied");
        fs::rename(&newer, &program).expect("it is replaced");
        assert_eq!(path(&layout, &program), program, "the old one is not called");
        hold(&layout, [&*program]);
        hold(&layout, [&*program]);
        assert_eq!(path(&layout, &program), held);
        umount2(&held, MntFlags::MNT_DETACH).expect("it is mounted");
        assert_eq!(umount2(&held, MntFlags::MNT_DETACH), Err(Errno::EINVAL), "it was mounted once");
    }
}
