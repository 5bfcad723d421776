//! Copies a tree with owners, modes, times and extended attributes: the layers of an image where
//! there is no overlayfs, and what an image has in its volumes.
//!
//! Both trees are this program's, and nobody else writes to them meanwhile. But their links are the
//! image's: each folder of the copy is looked at before it is entered, and no link is followed.

#![expect(unsafe_code, reason = "extended attributes and times of links are in no library here")]

use std::collections::BTreeMap;
use std::ffi::{CString, OsStr};
use std::fs::{self, File, Metadata, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::sys::stat::{Mode, SFlag, UtimensatFlags, mknod, utimensat};
use nix::sys::time::TimeSpec;

use super::files;
use crate::limits::{COPY_DEPTH_MAX, COPY_LINKED_MAX, XATTR_BYTES_MAX};

/// Copies the content of one folder over that of another, as overlayfs would show it: whiteouts
/// remove, opaque folders hide, a folder is merged with a folder, and everything else replaces.
pub fn layer(from: &Path, to: &Path) -> io::Result<()> {
    Copy::default().folder(from, to, 0)
}

#[derive(Default)]
struct Copy {
    /// The first copies of files with several names, by device and inode.
    linked: BTreeMap<(u64, u64), PathBuf>,
}

impl Copy {
    fn folder(&mut self, from: &Path, to: &Path, depth: usize) -> io::Result<()> {
        if depth > COPY_DEPTH_MAX {
            let why = format!("{}: deeper than {COPY_DEPTH_MAX} folders", from.display());
            return Err(io::Error::other(why));
        }
        for entry in fs::read_dir(from)? {
            let name = entry?.file_name();
            let (from, to) = (from.join(&name), to.join(&name));
            let copied = self.entry(&from, &to, depth);
            // The innermost place says it best.
            copied.map_err(|error| match error.get_ref() {
                Some(_) => error,
                None => io::Error::other(format!("copy {}: {error}", from.display())),
            })?;
        }
        let meta = fs::symlink_metadata(from)?;
        attributes(from, to, &meta)
    }

    fn entry(&mut self, from: &Path, to: &Path, depth: usize) -> io::Result<()> {
        let meta = fs::symlink_metadata(from)?;
        let kind = meta.file_type();
        if kind.is_char_device() && meta.rdev() == 0 {
            return files::remove_tree(to);
        }
        if kind.is_dir() {
            let there = fs::symlink_metadata(to).is_ok_and(|meta| meta.is_dir());
            if !there || attribute(from, c"trusted.overlay.opaque")?.as_deref() == Some(b"y") {
                files::remove_tree(to)?;
                fs::create_dir(to)?;
            }
            return self.folder(from, to, depth + 1);
        }
        files::remove_tree(to)?;
        let file = (meta.dev(), meta.ino());
        if meta.nlink() > 1 {
            if let Some(first) = self.linked.get(&file)
                && fs::hard_link(first, to).is_ok()
            {
                return Ok(());
            }
            if self.linked.len() < COPY_LINKED_MAX {
                self.linked.insert(file, to.to_owned());
            }
        }
        if kind.is_symlink() {
            std::os::unix::fs::symlink(fs::read_link(from)?, to)?;
        } else if kind.is_file() {
            content(from, to)?;
        } else {
            let kind = SFlag::from_bits_truncate(meta.mode() as libc::mode_t & libc::S_IFMT);
            mknod(to, kind, Mode::S_IRUSR, meta.rdev() as libc::dev_t)?;
        }
        attributes(from, to, &meta)
    }
}

/// The library shares the blocks where the file system can (copy_file_range(2)).
fn content(from: &Path, to: &Path) -> io::Result<()> {
    let mut from = OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW).open(from)?;
    let mut to: File = OpenOptions::new().write(true).create_new(true).mode(0o600).open(to)?;
    io::copy(&mut from, &mut to).map(drop)
}

/// Owner first: a change of it takes set-user-ID bits and capabilities away.
fn attributes(from: &Path, to: &Path, meta: &Metadata) -> io::Result<()> {
    std::os::unix::fs::lchown(to, Some(meta.uid()), Some(meta.gid()))?;
    if !meta.is_symlink() {
        fs::set_permissions(to, fs::Permissions::from_mode(meta.mode() & 0o7777))?;
    }
    for name in names(from)? {
        let bytes = name.as_bytes();
        if bytes == b"security.capability" || bytes.starts_with(b"user.") {
            set(to, &name, &attribute(from, &name)?.unwrap_or_default())?;
        }
    }
    let time = |seconds: i64, nanos: i64| TimeSpec::new(seconds as _, nanos as _);
    let (read, written) =
        (time(meta.atime(), meta.atime_nsec()), time(meta.mtime(), meta.mtime_nsec()));
    let flags = UtimensatFlags::NoFollowSymlink;
    utimensat(nix::fcntl::AT_FDCWD, to, &read, &written, flags)?;
    Ok(())
}

fn c_path(path: &Path) -> io::Result<CString> {
    Ok(CString::new(path.as_os_str().as_bytes())?)
}

/// The names of a file's extended attributes; none where the file system has none.
fn names(path: &Path) -> io::Result<Vec<CString>> {
    let path = c_path(path)?;
    let mut buffer = vec![0_u8; XATTR_BYTES_MAX];
    // SAFETY: the path ends with a zero byte, and the buffer is as long as said.
    let length =
        unsafe { libc::llistxattr(path.as_ptr(), buffer.as_mut_ptr().cast(), buffer.len()) };
    match Errno::result(length) {
        Ok(length) => {
            let names = buffer[..length as usize].split(|byte| *byte == 0);
            let names = names.filter(|name| !name.is_empty());
            Ok(names.filter_map(|name| CString::new(name).ok()).collect())
        }
        Err(Errno::ENOTSUP) => Ok(Vec::new()),
        Err(errno) => Err(errno.into()),
    }
}

/// `None`: it has no such attribute.
fn attribute(path: &Path, name: &std::ffi::CStr) -> io::Result<Option<Vec<u8>>> {
    let path = c_path(path)?;
    let mut buffer = vec![0_u8; XATTR_BYTES_MAX];
    // SAFETY: path and name end with a zero byte, and the buffer is as long as said.
    let length = unsafe {
        libc::lgetxattr(path.as_ptr(), name.as_ptr(), buffer.as_mut_ptr().cast(), buffer.len())
    };
    match Errno::result(length) {
        Ok(length) => {
            buffer.truncate(length as usize);
            Ok(Some(buffer))
        }
        Err(Errno::ENODATA | Errno::ENOTSUP) => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}

fn set(path: &Path, name: &std::ffi::CStr, value: &[u8]) -> io::Result<()> {
    let c_path = c_path(path)?;
    // SAFETY: path and name end with a zero byte, and the value is as long as said.
    let done = unsafe {
        libc::lsetxattr(c_path.as_ptr(), name.as_ptr(), value.as_ptr().cast(), value.len(), 0)
    };
    match Errno::result(done) {
        Err(Errno::ENOTSUP) => {
            // Without a capability a program works for root alone; other attributes are a note.
            let name = OsStr::from_bytes(name.to_bytes()).to_string_lossy();
            log::warn!("{}: the file system cannot keep {name}", path.display());
            Ok(())
        }
        done => Ok(done.map(drop)?),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::io::test_folder::TestFolder;

    struct Place(TestFolder);

    impl Place {
        fn new() -> Self {
            let top = TestFolder::new("copy");
            for folder in ["a", "b", "to", "outside"] {
                fs::create_dir_all(top.join(folder)).expect("folders");
            }
            Self(top)
        }

        fn write(&self, name: &str, text: &str) {
            self.0.write(name, text);
        }

        fn copy(&self) {
            for from in ["a", "b"] {
                layer(&self.0.join(from), &self.0.join("to")).expect("copied");
            }
        }

        fn read(&self, name: &str) -> Option<String> {
            fs::read_to_string(self.0.join("to").join(name)).ok()
        }
    }

    fn whiteout(path: &Path) {
        mknod(path, SFlag::S_IFCHR, Mode::empty(), 0).expect("root may");
    }

    #[test]
    fn layers_lie_one_over_the_other() {
        let place = Place::new();
        place.write("a/kept", "1");
        place.write("a/gone", "1");
        place.write("a/dir/x", "1");
        place.write("a/dir/y", "1");
        place.write("a/hidden/x", "1");
        place.write("a/file", "1");
        place.write("a/folder/x", "1");
        whiteout(&place.0.join("b/gone"));
        fs::create_dir(place.0.join("b/dir")).expect("a folder");
        whiteout(&place.0.join("b/dir/x"));
        place.write("b/hidden/y", "2");
        set(&place.0.join("b/hidden"), c"trusted.overlay.opaque", b"y").expect("root may");
        place.write("b/file/x", "2");
        place.write("b/folder", "2");
        whiteout(&place.0.join("b/never-there"));
        place.copy();
        for (name, text) in [
            ("kept", Some("1")),
            ("gone", None),
            ("dir/x", None),
            ("dir/y", Some("1")),
            ("hidden/x", None),
            ("hidden/y", Some("2")),
            ("file/x", Some("2")),
            ("folder", Some("2")),
            ("never-there", None),
        ] {
            assert_eq!(place.read(name).as_deref(), text, "{name}");
        }
        let opaque = attribute(&place.0.join("to/hidden"), c"trusted.overlay.opaque");
        assert_eq!(opaque.expect("readable"), None);
    }

    #[test]
    fn a_link_of_a_lower_layer_is_not_followed() {
        let place = Place::new();
        let outside = place.0.join("outside");
        symlink(&outside, place.0.join("a/dir")).expect("a link");
        symlink(outside.join("file"), place.0.join("a/file")).expect("a link");
        place.write("b/dir/x", "2");
        place.write("b/file", "2");
        place.copy();
        assert_eq!(fs::read_dir(&outside).expect("there").count(), 0);
        assert_eq!(
            (place.read("dir/x").as_deref(), place.read("file").as_deref()),
            (Some("2"), Some("2"))
        );
    }

    #[test]
    fn what_a_file_has_beside_its_content_is_copied() {
        let place = Place::new();
        place.write("a/tool", "x");
        let tool = place.0.join("a/tool");
        std::os::unix::fs::chown(&tool, Some(7), Some(8)).expect("root may");
        fs::set_permissions(&tool, fs::Permissions::from_mode(0o4750)).expect("ours");
        set(&tool, c"user.note", b"n").expect("this file system can");
        set(&tool, c"trusted.note", b"n").expect("root may");
        fs::hard_link(&tool, place.0.join("a/other")).expect("a link");
        symlink("tool", place.0.join("a/link")).expect("a link");
        std::os::unix::fs::lchown(place.0.join("a/link"), Some(9), None).expect("root may");
        nix::unistd::mkfifo(&place.0.join("a/fifo"), Mode::S_IRWXU).expect("a FIFO");
        let then = TimeSpec::new(1_000_000, 5);
        let flags = UtimensatFlags::NoFollowSymlink;
        for name in ["a/tool", "a"] {
            let path = place.0.join(name);
            utimensat(nix::fcntl::AT_FDCWD, &path, &then, &then, flags).expect("ours");
        }
        layer(&place.0.join("a"), &place.0.join("to")).expect("copied");
        let meta = |name: &str| fs::symlink_metadata(place.0.join("to").join(name)).expect(name);
        let tool = meta("tool");
        assert_eq!((tool.uid(), tool.gid(), tool.mode() & 0o7777), (7, 8, 0o4750));
        assert_eq!((tool.mtime(), tool.mtime_nsec()), (1_000_000, 5));
        assert_eq!((meta("other").ino(), tool.nlink()), (tool.ino(), 2));
        assert_eq!((meta("link").uid(), meta("link").is_symlink()), (9, true));
        assert!(meta("fifo").file_type().is_fifo());
        assert_eq!(meta("").mtime(), 1_000_000);
        let copied = place.0.join("to/tool");
        assert_eq!(attribute(&copied, c"user.note").expect("it can").as_deref(), Some(&b"n"[..]));
        assert_eq!(attribute(&copied, c"trusted.note").expect("it can"), None);
    }

    #[test]
    fn a_tree_that_is_too_deep_is_refused() {
        let place = Place::new();
        let deep = place.0.join("a").join("x/".repeat(COPY_DEPTH_MAX));
        fs::create_dir_all(&deep).expect("folders");
        layer(&place.0.join("a"), &place.0.join("to")).expect("as deep as may be");
        fs::create_dir_all(deep.join("x")).expect("folders");
        let why = layer(&place.0.join("a"), &place.0.join("to")).expect_err("too deep");
        assert!(why.to_string().ends_with(&format!("deeper than {COPY_DEPTH_MAX} folders")));
    }

    #[test]
    fn beyond_what_is_remembered_each_name_of_a_file_gets_a_copy() {
        let place = Place::new();
        place.write("a/one", "x");
        fs::hard_link(place.0.join("a/one"), place.0.join("a/other")).expect("a link");
        let mut copy = Copy::default();
        copy.linked.extend((0..COPY_LINKED_MAX as u64).map(|at| ((u64::MAX, at), PathBuf::new())));
        copy.folder(&place.0.join("a"), &place.0.join("to"), 0).expect("copied");
        let inode = |name: &str| fs::metadata(place.0.join("to").join(name)).expect("there").ino();
        assert_ne!(inode("one"), inode("other"));
        assert_eq!(copy.linked.len(), COPY_LINKED_MAX);
    }

    #[test]
    fn an_attribute_is_copied_whole() {
        let place = Place::new();
        place.write("a/one", "x");
        let one = place.0.join("a/one");
        // As large as the kernel takes, or else this file system.
        let sizes = [XATTR_BYTES_MAX, 3_000, 100];
        let value = sizes.iter().map(|bytes| vec![b'v'; *bytes]);
        let value = value.into_iter().find(|value| set(&one, c"user.large", value).is_ok());
        let value = value.expect("one of them");
        layer(&place.0.join("a"), &place.0.join("to")).expect("copied");
        let copied = attribute(&place.0.join("to/one"), c"user.large").expect("readable");
        assert_eq!(copied, Some(value));
    }
}
