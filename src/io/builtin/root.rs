//! Names inside a container's root file system, where links are the image's and may lead anywhere:
//! they are followed as the container would follow them, and never out of the root.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, OpenHow, ResolveFlag, openat, openat2};
use nix::sys::stat::{Mode, mkdirat};
use nix::unistd::{Gid, Uid, fchownat};

/// A root file system.
#[derive(Debug)]
pub struct Root(OwnedFd);

impl Root {
    pub fn open(path: &Path) -> io::Result<Self> {
        let flags = libc::O_DIRECTORY | libc::O_NOFOLLOW | libc::O_PATH;
        Ok(Self(OpenOptions::new().read(true).custom_flags(flags).open(path)?.into()))
    }

    /// What `path` leads to. Absent: `None`.
    pub fn get(&self, path: &str, flags: OFlag) -> io::Result<Option<OwnedFd>> {
        let flags = flags | OFlag::O_CLOEXEC;
        let path = path.trim_start_matches('/');
        let path = if path.is_empty() { "." } else { path };
        let how = OpenHow::new()
            .flags(flags)
            .resolve(ResolveFlag::RESOLVE_IN_ROOT | ResolveFlag::RESOLVE_NO_MAGICLINKS);
        let opened = match openat2(&self.0, path, how) {
            // Before Linux 5.6, or below a seccomp profile that does not know the call.
            Err(Errno::ENOSYS | Errno::EPERM) => self.walk(path, flags),
            opened => opened,
        };
        match opened {
            Ok(fd) => Ok(Some(fd)),
            Err(Errno::ENOENT | Errno::ENOTDIR) => Ok(None),
            Err(errno) => Err(io::Error::other(format!("open {path} in the image: {errno}"))),
        }
    }

    /// The same without links.
    fn walk(&self, path: &str, flags: OFlag) -> nix::Result<OwnedFd> {
        let folder = OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_PATH | OFlag::O_CLOEXEC;
        let (above, last) = path.trim_end_matches('/').rsplit_once('/').unwrap_or((".", path));
        let mut at = openat(&self.0, ".", folder, Mode::empty())?;
        for part in above.split('/').filter(|part| !matches!(*part, "" | ".")) {
            if part == ".." {
                return Err(Errno::ELOOP);
            }
            at = openat(&at, part, folder, Mode::empty())?;
        }
        if last == ".." {
            return Err(Errno::ELOOP);
        }
        openat(at, last, flags | OFlag::O_NOFOLLOW, Mode::empty())
    }

    /// The text of a plain file; absent: empty. What is larger than `bytes_max` is refused.
    pub fn text(&self, path: &str, bytes_max: u64) -> io::Result<String> {
        // A FIFO would wait for a writer.
        let Some(fd) = self.get(path, OFlag::O_RDONLY | OFlag::O_NONBLOCK)? else {
            return Ok(String::new());
        };
        let file = File::from(fd);
        let meta = file.metadata()?;
        if !meta.is_file() {
            return Err(io::Error::other(format!("{path} in the image: got no plain file")));
        }
        let mut bytes = Vec::new();
        if file.take(bytes_max + 1).read_to_end(&mut bytes)? as u64 > bytes_max {
            let why = format!("{path} in the image: got more than {bytes_max} bytes");
            return Err(io::Error::new(ErrorKind::InvalidData, why));
        }
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Makes the folders of a path that are absent, for everybody to read. `owner`: the user and
    /// the group that they belong to.
    pub fn make_folders(&self, path: &str, owner: u32) -> io::Result<()> {
        let mut so_far = String::new();
        for part in path.split('/').filter(|part| !matches!(*part, "" | ".")) {
            let above = if so_far.is_empty() { ".".to_owned() } else { so_far.clone() };
            so_far = format!("{so_far}/{part}");
            let folder = OFlag::O_PATH | OFlag::O_DIRECTORY;
            if part == ".." || self.get(&so_far, folder)?.is_some() {
                continue;
            }
            let parent = self.get(&above, folder)?.ok_or(ErrorKind::NotADirectory)?;
            let made = mkdirat(parent.as_fd(), part, Mode::from_bits_truncate(0o755));
            let flags = AtFlags::AT_SYMLINK_NOFOLLOW;
            let (user, group) = (Uid::from_raw(owner), Gid::from_raw(owner));
            made.and_then(|()| fchownat(parent.as_fd(), part, Some(user), Some(group), flags))
                .map_err(|errno| {
                    io::Error::other(format!("mkdir {so_far} in the image: {errno}"))
                })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt, symlink};

    use super::*;
    use crate::io::test_folder::TestFolder;

    struct Place(TestFolder);

    impl Place {
        fn new() -> Self {
            let top = TestFolder::new("root");
            fs::create_dir_all(top.join("root/etc")).expect("folders");
            top.write("secret", "host");
            Self(top)
        }

        fn root(&self) -> Root {
            Root::open(&self.0.join("root")).expect("it is there")
        }
    }

    #[test]
    fn links_of_an_image_stay_inside() {
        let place = Place::new();
        let inside = place.0.join("root");
        fs::write(inside.join("etc/real"), "image").expect("a file");
        let outside = place.0.join("secret");
        for (name, to) in [
            ("etc/passwd", "real"),
            ("etc/absolute", "/etc/real"),
            ("etc/up", "../../../etc/real"),
            ("etc/out", "../../secret"),
            ("etc/host", outside.to_str().expect("text")),
            ("etc/magic", "/proc/self/root/etc/passwd"),
            ("etc/loop", "loop"),
        ] {
            symlink(to, inside.join(name)).expect("a link");
        }
        let root = place.root();
        for name in ["etc/passwd", "/etc/absolute", "etc/up", "/etc/real"] {
            assert_eq!(root.text(name, 5).expect("plain"), "image", "{name}");
        }
        for name in ["etc/out", "etc/host", "etc/none", "etc/magic", "../secret"] {
            assert_eq!(root.text(name, 5).expect("absent"), "", "{name}");
        }
        assert!(root.text("etc/loop", 5).is_err());
        // Without openat2 no link is followed.
        for name in ["etc/passwd", "etc/../etc/real", "..", "../secret"] {
            assert!(root.walk(name, OFlag::O_RDONLY).is_err(), "{name}");
        }
        assert!(root.walk("etc/real", OFlag::O_RDONLY).is_ok());
        assert!(root.walk("etc", OFlag::O_RDONLY).is_ok());
    }

    #[test]
    fn only_a_plain_file_of_a_bounded_size_is_read() {
        let place = Place::new();
        let etc = place.0.join("root/etc");
        fs::write(etc.join("large"), "123456").expect("a file");
        nix::unistd::mkfifo(&etc.join("fifo"), Mode::S_IRUSR).expect("a FIFO");
        let root = place.root();
        let why = |name: &str| root.text(name, 5).expect_err(name).to_string();
        assert_eq!(why("etc/large"), "etc/large in the image: got more than 5 bytes");
        assert_eq!(why("etc/fifo"), "etc/fifo in the image: got no plain file");
        assert_eq!(why("etc"), "etc in the image: got no plain file");
    }

    #[test]
    fn folders_are_made_where_the_container_would_see_them() {
        let place = Place::new();
        symlink("/srv", place.0.join("root/var")).expect("a link");
        fs::create_dir(place.0.join("root/srv")).expect("a folder");
        let root = place.root();
        root.make_folders("/var/lib//app/", 7).expect("made");
        root.make_folders("/var/lib/app", 7).expect("there");
        let made = fs::metadata(place.0.join("root/srv/lib/app")).expect("it is there");
        assert_eq!((made.is_dir(), made.uid(), made.gid()), (true, 7, 7));
        root.make_folders("../x", 7).expect("made");
        assert!(place.0.join("root/x").is_dir(), "above the root is the root");
        fs::write(place.0.join("root/file"), "").expect("a file");
        assert!(root.make_folders("/file/x", 7).is_err());
    }
}
