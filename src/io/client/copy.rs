//! The local side of `cp`: files and folders as a tar archive, and an archive as files and folders.
//!
//! An archive comes from a container, which may be hostile: names lead below the destination or the
//! copy fails, folders are opened one component at a time without following links, and links and
//! devices are left out, with a word about each.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{OFlag, open, openat};
use nix::sys::stat::{Mode, mkdirat};

use crate::limits::{COPY_NOTES_MAX, COPY_RECORDS_BYTES_MAX};
use crate::model::error::Peer;
use crate::wire::tar::{self, Entry, Head, Kind, Written};

fn invalid(why: String) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, why)
}

/// Things that were left out, and why.
#[derive(Debug, Default)]
pub struct Notes {
    pub lines: Vec<String>,
    /// Those beyond [`COPY_NOTES_MAX`].
    pub more: usize,
}

impl Notes {
    fn add(&mut self, line: String) {
        if self.lines.len() < COPY_NOTES_MAX {
            self.lines.push(line);
        } else {
            self.more += 1;
        }
    }
}

// ---- to a pod ----

/// A file or a folder, read as an archive.
#[derive(Debug)]
pub struct Archive {
    /// What is still to be written, the next at the end: its path, and its name in the archive.
    pending: Vec<(PathBuf, Vec<u8>)>,
    file: Option<Contents>,
    buffer: Vec<u8>,
    at: usize,
    is_complete: bool,
    pub notes: Notes,
}

/// The file whose contents come.
#[derive(Debug)]
struct Contents {
    file: File,
    path: PathBuf,
    /// As its head says.
    size: u64,
    left: u64,
}

impl Archive {
    /// Of the file or folder at `path`, under this name.
    pub fn new(path: &Path, name: &str) -> io::Result<Self> {
        // A link that was named is followed, as cp does.
        let path = path.canonicalize()?;
        let pending = vec![(path, name.as_bytes().to_vec())];
        let (buffer, notes) = (Vec::new(), Notes::default());
        Ok(Self { pending, file: None, buffer, at: 0, is_complete: false, notes })
    }

    fn next(&mut self) -> io::Result<()> {
        let Some((path, name)) = self.pending.pop() else {
            self.buffer.resize(2 * tar::BLOCK, 0);
            self.is_complete = true;
            return Ok(());
        };
        let shown = path.display().to_string();
        let at = |error: io::Error| io::Error::new(error.kind(), format!("{shown}: {error}"));
        let meta = fs::symlink_metadata(&path).map_err(at)?;
        let (mode, kind) = (meta.permissions().mode(), meta.file_type());
        let modified_s = u64::try_from(meta.mtime()).unwrap_or(0);
        let member =
            Written { name: &name, size: 0, mode, modified_s, link: None, is_folder: false };
        if kind.is_dir() {
            let folder = [&name[..], b"/"].concat();
            tar::write_head(
                &Written { name: &folder, is_folder: true, ..member },
                &mut self.buffer,
            );
            let mut names = Vec::new();
            for entry in fs::read_dir(&path).map_err(at)? {
                names.push(entry.map_err(at)?.file_name());
            }
            names.sort_by(|one, other| other.cmp(one));
            for child in names {
                let name = [&folder[..], child.as_bytes()].concat();
                self.pending.push((path.join(child), name));
            }
        } else if kind.is_symlink() {
            let target = fs::read_link(&path).map_err(at)?.into_os_string().into_vec();
            tar::write_head(&Written { link: Some(&target), ..member }, &mut self.buffer);
        } else if kind.is_file() {
            let file = File::open(&path).map_err(at)?;
            let size = file.metadata().map_err(at)?.len();
            tar::write_head(&Written { size, ..member }, &mut self.buffer);
            self.file = Some(Contents { file, path, size, left: size });
        } else {
            self.notes
                .add(format!("{}: skipped, as it is no file, folder or link", path.display()));
        }
        Ok(())
    }

    /// Bytes of the open file; 0: it is complete, and its padding is in the buffer.
    fn contents(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let Some(Contents { file, path, size, left }) = &mut self.file else { return Ok(0) };
        let most = to.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
        let count = file.read(&mut to[..most])?;
        if count == 0 && *left > 0 {
            return Err(invalid(format!("{}: it became shorter meanwhile", path.display())));
        }
        *left -= count as u64;
        if *left == 0 {
            self.buffer.resize(tar::padding(*size), 0);
            self.file = None;
        }
        Ok(count)
    }
}

impl Read for Archive {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        loop {
            if self.at < self.buffer.len() {
                let rest = &self.buffer[self.at..];
                let count = rest.len().min(to.len());
                to[..count].copy_from_slice(&rest[..count]);
                self.at += count;
                return Ok(count);
            }
            self.buffer.clear();
            self.at = 0;
            match self.contents(to)? {
                0 if self.is_complete => return Ok(0),
                0 if self.buffer.is_empty() => self.next()?,
                0 => {}
                count => return Ok(count),
            }
        }
    }
}

// ---- from a pod ----

/// Takes an archive and writes what is in it.
#[derive(Debug)]
pub struct Extract {
    /// Where the member of this name goes; what is below it goes below.
    name: String,
    target: PathBuf,
    /// The folder `target`, once the archive has a folder of that name.
    root: Option<OwnedFd>,
    block: Vec<u8>,
    part: Part,
    /// The name of the next member, if it is too long for its head, and its size.
    long_name: Option<Vec<u8>>,
    long_size: Option<u64>,
    members: usize,
    pub notes: Notes,
}

/// What comes next.
#[derive(Debug)]
enum Part {
    Head,
    /// Contents of so many bytes, and padding. Records of the next member are kept.
    Contents {
        to: To,
        left: u64,
        padding: usize,
    },
    /// The end was read.
    End,
}

#[derive(Debug)]
enum To {
    Nothing,
    File(File),
    Name(Vec<u8>),
    Records(Vec<u8>),
}

impl Extract {
    /// For an archive of `name` and what is below it. An empty name: of all that is in it.
    pub fn new(name: &str, target: &Path) -> Self {
        Self {
            name: name.to_owned(),
            target: target.to_owned(),
            root: None,
            block: Vec::new(),
            part: Part::Head,
            long_name: None,
            long_size: None,
            members: 0,
            notes: Notes::default(),
        }
    }

    /// The archive must have ended, and not without a member.
    pub fn finish(&self) -> Result<(), Peer> {
        match (&self.part, self.members) {
            (Part::End, 1..) => Ok(()),
            (Part::End, 0) => Err(Peer::new("got an empty archive")),
            (Part::Head | Part::Contents { .. }, _) => {
                Err(Peer::new("the archive was cut off: the last file may be incomplete"))
            }
        }
    }

    fn head(&mut self) -> io::Result<()> {
        let block: &[u8; tar::BLOCK] = self.block[..].try_into().expect("one block");
        let head = tar::head(block).map_err(|fault| invalid(fault.to_string()))?;
        self.block.clear();
        let (to, size) = match head {
            Head::End => {
                self.part = Part::End;
                return Ok(());
            }
            Head::LongName(size) => (To::Name(Vec::new()), size),
            Head::More(size) => (To::Records(Vec::new()), size),
            Head::LongLink(size) | Head::Skip(size) => (To::Nothing, size),
            Head::Entry(mut entry) => {
                if let Some(name) = self.long_name.take() {
                    entry.name = name;
                }
                if let Some(size) = self.long_size.take()
                    && entry.kind == Kind::File
                {
                    entry.size = size;
                }
                self.members += 1;
                (self.member(&entry)?, entry.size)
            }
        };
        let is_kept = matches!(to, To::Name(_) | To::Records(_));
        if is_kept && size > COPY_RECORDS_BYTES_MAX {
            let why = format!("got records of {size} bytes, expected {COPY_RECORDS_BYTES_MAX}");
            return Err(invalid(format!("{why} at most")));
        }
        let padded = size.checked_next_multiple_of(tar::BLOCK as u64);
        let padded = padded.ok_or_else(|| invalid(format!("got a file of {size} bytes")))?;
        self.part = Part::Contents { to, left: size, padding: (padded - size) as usize };
        self.end_contents()
    }

    /// If nothing is left of the contents.
    fn end_contents(&mut self) -> io::Result<()> {
        let Part::Contents { left: 0, padding: 0, .. } = &self.part else { return Ok(()) };
        let Part::Contents { to, .. } = std::mem::replace(&mut self.part, Part::Head) else {
            return Ok(());
        };
        match to {
            To::Nothing | To::File(_) => {}
            To::Name(bytes) => self.long_name = Some(tar::until_zero(&bytes).to_vec()),
            To::Records(bytes) => {
                let more = tar::more(&bytes).map_err(|fault| invalid(fault.to_string()))?;
                let name = more.name.map(<[u8]>::to_vec);
                self.long_name = name.or(self.long_name.take());
                self.long_size = more.size;
            }
        }
        Ok(())
    }

    fn member(&mut self, entry: &Entry) -> io::Result<To> {
        let below = self.below(&entry.name)?;
        let shown = String::from_utf8_lossy(&entry.name);
        match &entry.kind {
            Kind::File => self.file(&shown, &below, entry.mode).map(To::File),
            Kind::Folder => self.folder(&below).map(|()| To::Nothing),
            Kind::HardLink(target) | Kind::SymbolicLink(target) => {
                let target = String::from_utf8_lossy(target);
                self.notes.add(format!("{shown}: skipped, a link to {target}"));
                Ok(To::Nothing)
            }
            Kind::Character(..) | Kind::Block(..) | Kind::Pipe => {
                self.notes.add(format!("{shown}: skipped, as it is no file or folder"));
                Ok(To::Nothing)
            }
        }
    }

    /// The components of a name below that of the archive.
    fn below<'n>(&self, name: &'n [u8]) -> io::Result<Vec<&'n OsStr>> {
        let parts = name.split(|byte| *byte == b'/').filter(|part| !matches!(*part, b"" | b"."));
        let mut parts = parts.peekable();
        let is_ours = self.name.is_empty() || parts.next_if_eq(&self.name.as_bytes()).is_some();
        let parts: Vec<&OsStr> = parts.map(OsStr::from_bytes).collect();
        if !is_ours || parts.contains(&OsStr::new("..")) {
            let expected = if self.name.is_empty() { "." } else { &self.name };
            let name = String::from_utf8_lossy(name);
            return Err(invalid(format!("got the name {name:?}, expected one below {expected:?}")));
        }
        Ok(parts)
    }

    fn file(&mut self, name: &str, below: &[&OsStr], mode: u32) -> io::Result<File> {
        let at = |error: io::Error| io::Error::new(error.kind(), format!("{name}: {error}"));
        // O_NONBLOCK: what is there may be a pipe, whose open would wait.
        let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_TRUNC | OFlag::O_CLOEXEC;
        let flags = flags | OFlag::O_NONBLOCK;
        let mode = Mode::from_bits_truncate(mode & 0o777);
        let fd = match below.split_last() {
            // The path is the user's own, so its links are followed.
            None => {
                let is_folder = !self.name.is_empty() && self.target.is_dir();
                let path =
                    if is_folder { self.target.join(&self.name) } else { self.target.clone() };
                if let Some(above) = path.parent() {
                    fs::create_dir_all(above).map_err(at)?;
                }
                open(&path, flags, mode)
            }
            Some((last, folders)) => {
                let folder = self.open_folder(folders).map_err(at)?;
                openat(folder.as_fd(), *last, flags | OFlag::O_NOFOLLOW, mode)
            }
        };
        let file = File::from(fd.map_err(|errno| at(no_link(errno)))?);
        if !file.metadata().map_err(at)?.is_file() {
            return Err(at(invalid("what is there is no file".to_owned())));
        }
        Ok(file)
    }

    fn folder(&mut self, below: &[&OsStr]) -> io::Result<()> {
        self.open_folder(below).map(drop)
    }

    /// Opens a folder below the target, and makes those that are absent.
    fn open_folder(&mut self, below: &[&OsStr]) -> io::Result<OwnedFd> {
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        if self.root.is_none() {
            let target = &self.target;
            let at = |error: io::Error| {
                io::Error::new(error.kind(), format!("{}: {error}", target.display()))
            };
            fs::create_dir_all(target).map_err(at)?;
            self.root = Some(open(target, flags, Mode::empty()).map_err(|it| at(it.into()))?);
        }
        let mut folder = self.root.as_ref().expect("just opened").try_clone()?;
        for (depth, part) in below.iter().enumerate() {
            let at = |errno: Errno| {
                let (error, shown) = (no_link(errno), below[..=depth].iter().collect::<PathBuf>());
                io::Error::new(error.kind(), format!("{}: {error}", shown.display()))
            };
            match mkdirat(folder.as_fd(), *part, Mode::from_bits_truncate(0o755)) {
                Ok(()) | Err(Errno::EEXIST) => {}
                Err(errno) => return Err(at(errno)),
            }
            let flags = flags | OFlag::O_NOFOLLOW;
            folder = openat(folder.as_fd(), *part, flags, Mode::empty()).map_err(at)?;
        }
        Ok(folder)
    }
}

/// What a link here would lead to is not this copy's to write.
fn no_link(errno: Errno) -> io::Error {
    match errno {
        Errno::ELOOP => invalid("there is a link, which is not followed".to_owned()),
        errno => errno.into(),
    }
}

impl Write for Extract {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.part {
            // Some write padding behind the end.
            Part::End => Ok(bytes.len()),
            Part::Head => {
                let count = bytes.len().min(tar::BLOCK - self.block.len());
                self.block.extend_from_slice(&bytes[..count]);
                if self.block.len() == tar::BLOCK {
                    self.head()?;
                }
                Ok(count)
            }
            Part::Contents { to, left, padding } => {
                let count = if *left > 0 {
                    let count = bytes.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
                    match to {
                        To::Nothing => {}
                        To::File(file) => file.write_all(&bytes[..count])?,
                        To::Name(kept) | To::Records(kept) => {
                            kept.extend_from_slice(&bytes[..count]);
                        }
                    }
                    *left -= count as u64;
                    count
                } else {
                    let count = bytes.len().min(*padding);
                    *padding -= count;
                    count
                };
                self.end_contents()?;
                Ok(count)
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::io::test_folder::TestFolder;

    fn head(name: &str, size: u64, kind: u8) -> Vec<u8> {
        let member = Written {
            name: name.as_bytes(),
            size,
            mode: 0o4755,
            modified_s: 0,
            link: (kind == b'2').then_some(b"/etc/passwd"),
            is_folder: kind == b'5',
        };
        let mut bytes = Vec::new();
        tar::write_head(&member, &mut bytes);
        if !matches!(kind, b'0' | b'2' | b'5') {
            bytes[156] = kind;
            bytes[148..156].fill(b' ');
            let sum: u64 = bytes.iter().map(|byte| u64::from(*byte)).sum();
            bytes[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        }
        bytes
    }

    #[test]
    fn what_was_read_is_written_again() {
        let folder = TestFolder::new("copy");
        let from = folder.join("from");
        let long = "n".repeat(200);
        fs::create_dir_all(from.join("sub").join(&long)).expect("a folder of ours");
        for (name, bytes) in [("a", 0), ("b", 1), ("sub/c", 511), ("d", 512), ("e", 40_000)] {
            fs::write(from.join(name), vec![b'x'; bytes]).expect("a file of ours");
        }
        fs::write(from.join("sub").join(&long).join("f"), "deep").expect("a file of ours");
        symlink("a", from.join("link")).expect("a link");
        for size in [1, 7, 512, 100_000] {
            let mut archive = Archive::new(&from, "top").expect("it is there");
            let to = folder.join(format!("to-{size}"));
            let mut extract = Extract::new("top", &to);
            let mut buffer = vec![0; size];
            loop {
                match archive.read(&mut buffer).expect("it can be read") {
                    0 => break,
                    count => extract.write_all(&buffer[..count]).expect("it can be written"),
                }
            }
            extract.finish().expect("a whole archive");
            for (name, bytes) in [("a", 0), ("b", 1), ("sub/c", 511), ("d", 512), ("e", 40_000)] {
                assert_eq!(fs::read(to.join(name)).expect(name).len(), bytes, "{name}");
            }
            assert_eq!(fs::read(to.join("sub").join(&long).join("f")).expect("f"), b"deep");
            assert_eq!(extract.notes.lines, ["top/link: skipped, a link to a"]);
            assert!(!to.join("link").exists());
        }
    }

    #[test]
    fn names_may_be_of_any_encoding() {
        let folder = TestFolder::new("copy");
        let from = folder.join("from");
        fs::create_dir(&from).expect("a folder of ours");
        let names: [&[u8]; 2] = [b"Men\xfc.txt", b"Men\xf6.txt"];
        for name in names {
            fs::write(from.join(OsStr::from_bytes(name)), name).expect("a file of ours");
        }
        let mut bytes = Vec::new();
        Archive::new(&from, "top").expect("it is there").read_to_end(&mut bytes).expect("read");
        // The same name by a pax record.
        bytes.truncate(bytes.len() - 2 * tar::BLOCK);
        let record = b"19 path=top/P\xfc.txt\n";
        bytes.extend(head("more", record.len() as u64, b'x'));
        bytes.extend_from_slice(record);
        bytes.resize(bytes.len().next_multiple_of(tar::BLOCK), 0);
        bytes.extend(head("short", 0, b'0'));
        bytes.extend([0; 2 * tar::BLOCK]);
        let to = folder.join("to");
        let mut extract = Extract::new("top", &to);
        extract.write_all(&bytes).expect("written");
        extract.finish().expect("whole");
        for name in names {
            assert_eq!(fs::read(to.join(OsStr::from_bytes(name))).expect("a file"), name);
        }
        assert!(to.join(OsStr::from_bytes(b"P\xfc.txt")).exists());
    }

    #[test]
    fn permissions_are_kept_but_no_set_user_id() {
        let folder = TestFolder::new("copy");
        let mut extract = Extract::new("f", &folder.join("f"));
        extract.write_all(&[head("f", 0, b'0'), vec![0; 512]].concat()).expect("written");
        let mode = fs::metadata(folder.join("f")).expect("a file").permissions().mode();
        assert_eq!(mode & 0o7700, 0o700);
    }

    #[test]
    fn devices_and_links_are_left_out_and_counted() {
        let folder = TestFolder::new("copy");
        let mut extract = Extract::new("top", &folder.join("to"));
        let mut bytes = head("top/", 0, b'5');
        for kind in [b'1', b'2', b'3', b'4', b'6'] {
            bytes.extend(head("top/x", 0, kind));
        }
        for _ in 0..COPY_NOTES_MAX {
            bytes.extend(head("top/y", 0, b'2'));
        }
        bytes.extend([0; 512]);
        extract.write_all(&bytes).expect("written");
        extract.finish().expect("whole");
        assert_eq!((extract.notes.lines.len(), extract.notes.more), (COPY_NOTES_MAX, 5));
        assert_eq!(fs::read_dir(folder.join("to")).expect("a folder").count(), 0);
    }

    #[test]
    fn records_have_a_bound() {
        let folder = TestFolder::new("copy");
        for (size, fits) in [(COPY_RECORDS_BYTES_MAX, true), (COPY_RECORDS_BYTES_MAX + 1, false)] {
            for kind in [b'L', b'x'] {
                let mut extract = Extract::new("top", &folder);
                let written = extract.write_all(&head("n", size, kind));
                assert_eq!(written.is_ok(), fits, "{size} {kind}");
            }
        }
    }

    #[test]
    fn an_existing_pipe_or_folder_is_no_file_to_write_to() {
        let folder = TestFolder::new("copy");
        let to = folder.join("to");
        fs::create_dir_all(to.join("folder")).expect("a folder of ours");
        nix::unistd::mkfifo(&to.join("pipe"), Mode::S_IRWXU).expect("a pipe");
        for name in ["top/folder", "top/pipe", "top/pipe/x"] {
            let mut extract = Extract::new("top", &to);
            extract.write_all(&head(name, 0, b'0')).expect_err(name);
        }
    }

    #[test]
    fn any_bytes_are_an_archive_or_an_error() {
        let folder = TestFolder::new("copy");
        let mut archive = Vec::new();
        fs::write(folder.join("f"), "text").expect("a file of ours");
        Archive::new(&folder.join("f"), "f")
            .expect("a file")
            .read_to_end(&mut archive)
            .expect("read");
        for at in 0..archive.len() {
            let mut cut = Extract::new("f", &folder.join("g"));
            cut.write_all(&archive[..at]).expect("a part of it");
            // The first block of zeros is the end.
            assert_eq!(cut.finish().is_ok(), at >= 3 * tar::BLOCK, "{at}");
            let mut spoilt = archive.clone();
            spoilt[at] ^= 0x55;
            let mut extract = Extract::new("f", &folder.join("g"));
            let _ = extract.write_all(&spoilt);
        }
    }
}
