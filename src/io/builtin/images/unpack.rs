//! Makes the files of one layer from its tar archive (OCI image-spec «Image Layer Filesystem
//! Changeset»), as overlayfs wants a lower layer. It runs in a confined process whose root
//! directory is the layer's folder.
//!
//! - A file, folder, link, pipe or device becomes itself, with its owner, mode and time. A later
//!   one replaces an earlier one, but a folder over a folder keeps its content.
//! - A hard link becomes another name of a member of this layer.
//! - `.wh.NAME` becomes a character device 0:0 called NAME: overlayfs hides what is below. A NAME
//!   of this layer itself wins, in whichever order; a folder NAME becomes opaque.
//! - `.wh..wh..opq` makes its folder opaque.
//! - `.wh..wh.…` is AUFS's own, and left out.
//!
//! A name with `..` is refused. A parent that is a symbolic link is followed within the layer. A
//! parent that is no member is made; its owner and mode are told to the parent process, which has
//! the layers below.
//!
//! Extended attributes: `security.capability` and `user.…` are kept, all others are left out:
//! `trusted.overlay.…` would forge the marks of overlayfs. Sparse files are refused by name: those
//! who make layers write none.

use std::collections::{BTreeMap, btree_map};
use std::ffi::{CString, OsStr};
use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, OpenHow, ResolveFlag, openat, openat2};
use nix::sys::stat::{
    FileStat, Mode, SFlag, UtimensatFlags, fchmod, fchmodat, fstatat, futimens, makedev, mkdirat,
    mknodat, utimensat,
};
use nix::sys::statvfs::fstatvfs;
use nix::sys::time::TimeSpec;
use nix::unistd::{Gid, Uid, UnlinkatFlags, fchown, fchownat, linkat, symlinkat, unlinkat};

use crate::io::confine::Confined;
use crate::io::jobs;
use crate::limits::{
    IMAGE_PAX_BYTES_MAX, LAYER_FOLDER_NAMES_BYTES_MAX, LAYER_MEMBERS_MAX, LAYER_SPARE_BYTES,
};
use crate::model::runtime::JobFault;
use crate::wire::tar::{self, Entry, Head, Kind, Pax};

/// What the layer has become.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Unpacked {
    /// Bytes of the files, each rounded up to whole blocks of 4 KiB, and as much for each folder.
    pub(super) bytes: u64,
    /// Folders that somebody with more rights is to complete.
    pub(super) folders: Vec<(Vec<u8>, Incomplete)>,
}

/// What a folder lacks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(super) struct Incomplete {
    /// It is no member: owner and mode are those of the layers below.
    pub(super) implied: bool,
    /// It hides the content of the layers below.
    pub(super) opaque: bool,
}

/// Reads some bytes of the archive; none: it has ended.
pub(super) type Source<'a> = dyn FnMut(&mut [u8]) -> io::Result<usize> + 'a;

/// Unpacks the archive into the root directory.
pub(super) fn unpack(
    confined: &Confined<'_>,
    archive: &mut Source<'_>,
) -> Result<Unpacked, JobFault> {
    let root = confined.root().try_clone().map_err(|error| fault(&error))?;
    let mut layer = Layer::new(root)?;
    layer.members(archive)?;
    layer.finish()
}

const FOLDER: OFlag =
    OFlag::O_RDONLY.union(OFlag::O_DIRECTORY).union(OFlag::O_NOFOLLOW).union(OFlag::O_CLOEXEC);
const BLOCK: u64 = 4 << 10;
const WHITEOUT: &[u8] = b".wh.";
const OPAQUE: &[u8] = b".wh..wh..opq";
const AUFS: &[u8] = b".wh..wh.";

struct Layer {
    root: OwnedFd,
    /// All folders of the layer, by their names.
    folders: BTreeMap<Vec<u8>, Folder>,
    /// Bytes of names of folders that may be kept yet.
    names_left: usize,
    /// Heads that may be read yet: a member may have another one that describes it.
    heads_left: usize,
    /// The folder of the last member: the next one is most often in the same.
    open: Option<(Vec<u8>, OwnedFd)>,
    /// Bytes that may be written yet.
    space_left: u64,
    bytes: u64,
    buffer: Vec<u8>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Folder {
    /// Set when nothing more is made in it.
    modified: Option<(i64, u32)>,
    implied: bool,
    opaque: bool,
}

/// A member with all that its records say.
struct Member<'a> {
    /// Its parent folder, and its own name in it. Without empty parts and dots.
    parent: Vec<u8>,
    base: Vec<u8>,
    kind: Kind,
    size: u64,
    mode: Mode,
    user: Uid,
    group: Gid,
    modified: (i64, u32),
    xattrs: Vec<(&'a [u8], &'a [u8])>,
}

impl Layer {
    fn new(root: OwnedFd) -> Result<Self, JobFault> {
        let free = fstatvfs(&root).map_err(|errno| failed("statvfs", b"/", errno))?;
        #[allow(clippy::unnecessary_cast, reason = "they have 32 bits on some machines")]
        let free = free.blocks_available() as u64 * free.fragment_size() as u64;
        Ok(Self {
            root,
            folders: BTreeMap::from([(Vec::new(), Folder { implied: true, ..Folder::default() })]),
            names_left: LAYER_FOLDER_NAMES_BYTES_MAX,
            heads_left: 2 * LAYER_MEMBERS_MAX,
            open: None,
            space_left: free.saturating_sub(LAYER_SPARE_BYTES),
            bytes: BLOCK,
            buffer: vec![0; 64 << 10],
        })
    }

    fn members(&mut self, archive: &mut Source<'_>) -> Result<(), JobFault> {
        let (mut name, mut link, mut records) = (None, None, Vec::new());
        let mut block = [0; tar::BLOCK];
        while self.heads_left > 0 {
            self.heads_left -= 1;
            if !read_block(archive, &mut block)? {
                return Ok(());
            }
            let head = tar::head(&block).map_err(|fault| invalid(fault.to_string()))?;
            match head {
                Head::End => return Ok(()),
                Head::LongName(size) => name = Some(self.text(archive, size)?),
                Head::LongLink(size) => link = Some(self.text(archive, size)?),
                Head::More(size) => records = self.records(archive, size, IMAGE_PAX_BYTES_MAX)?,
                Head::Skip(size) => self.pass(archive, padded(size)?)?,
                Head::Entry(mut entry) => {
                    if let Some(name) = name.take() {
                        entry.name = name;
                    }
                    if let (Some(link), Kind::HardLink(target) | Kind::SymbolicLink(target)) =
                        (link.take(), &mut entry.kind)
                    {
                        *target = link;
                    }
                    self.entry(archive, entry, &records)?;
                    records.clear();
                }
            }
        }
        Err(invalid(format!("got more than {LAYER_MEMBERS_MAX} members, expected fewer")))
    }

    fn entry(
        &mut self,
        archive: &mut Source<'_>,
        entry: Entry,
        records: &[u8],
    ) -> Result<(), JobFault> {
        let shown = shown(&entry.name);
        let at = |fault: JobFault| within(&shown, fault);
        let pax = tar::more(records).map_err(|fault| at(invalid(fault.to_string())))?;
        let size = match entry.kind {
            Kind::File => pax.size.unwrap_or(entry.size),
            _ => 0,
        };
        let padded = padded(size).map_err(at)?;
        let Some(member) = member(entry, pax, size).map_err(at)? else {
            return self.pass(archive, padded);
        };
        if let Some(hidden) = member.base.strip_prefix(WHITEOUT) {
            self.hide(&member.parent, hidden, member.base == OPAQUE).map_err(at)?;
            return self.pass(archive, padded);
        }
        self.make(archive, &member).map_err(at)?;
        self.pass(archive, padded - size)
    }

    fn make(&mut self, archive: &mut Source<'_>, member: &Member<'_>) -> Result<(), JobFault> {
        let name = joined(&member.parent, &member.base);
        if member.kind == Kind::Folder {
            return self.folder(name, member);
        }
        if member.base.is_empty() {
            return Err(invalid("got the layer's own folder as another kind of member".to_owned()));
        }
        let target = match &member.kind {
            Kind::HardLink(target) => {
                let target = parts(target)?;
                if joined(&target.0, &target.1) == name {
                    return Ok(());
                }
                // Before the parent of the link itself is at hand.
                self.parent(&target.0)?;
                Some((self.take_open(), target.1))
            }
            _ => None,
        };
        let base = OsStr::from_bytes(&member.base);
        self.remove(&member.parent, &member.base)?;
        let dir = self.parent(&member.parent)?;
        let done = match &member.kind {
            Kind::File => {
                let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_CLOEXEC;
                let file = openat(dir, base, flags | OFlag::O_NOFOLLOW, PRIVATE);
                let file = file.map_err(|errno| failed("create", &name, errno))?;
                return self.file(archive, file.into(), member);
            }
            Kind::HardLink(_) => {
                let (folder, target) = target.expect("it is a hard link");
                let linked =
                    linkat(&folder, OsStr::from_bytes(&target), dir, base, AtFlags::empty());
                return linked.map_err(|errno| match errno {
                    Errno::ENOENT => invalid(format!(
                        "got a hard link to {:?}, expected a member before it",
                        shown(&target)
                    )),
                    errno => failed("link", &name, errno),
                });
            }
            Kind::SymbolicLink(target) => symlinkat(OsStr::from_bytes(target), dir, base),
            Kind::Pipe => mknodat(dir, base, SFlag::S_IFIFO, PRIVATE, 0),
            Kind::Character(major, minor) => {
                let device = makedev(u64::from(*major), u64::from(*minor));
                mknodat(dir, base, SFlag::S_IFCHR, PRIVATE, device)
            }
            Kind::Block(major, minor) => {
                let device = makedev(u64::from(*major), u64::from(*minor));
                mknodat(dir, base, SFlag::S_IFBLK, PRIVATE, device)
            }
            Kind::Folder => unreachable!("a folder was made above"),
        };
        let is_link = matches!(member.kind, Kind::SymbolicLink(_));
        done.and_then(|()| {
            let (user, group) = (Some(member.user), Some(member.group));
            fchownat(dir, base, user, group, AtFlags::AT_SYMLINK_NOFOLLOW)?;
            if !is_link {
                // Nothing else runs here that could have replaced it by a link.
                fchmodat(dir, base, member.mode, nix::sys::stat::FchmodatFlags::FollowSymlink)?;
            }
            let time = time(member.modified);
            utimensat(dir, base, &time, &time, UtimensatFlags::NoFollowSymlink)
        })
        .map_err(|errno| failed("make", &name, errno))
    }

    fn file(
        &mut self,
        archive: &mut Source<'_>,
        mut file: File,
        member: &Member<'_>,
    ) -> Result<(), JobFault> {
        let size = member.size;
        if size > self.space_left {
            let left = self.space_left;
            return Err(fault(&format_args!(
                "no space left on device: got {size} bytes, expected {left} at most"
            )));
        }
        self.space_left -= size;
        self.bytes += size.next_multiple_of(BLOCK);
        let mut left = size;
        while left > 0 {
            let count = left.min(self.buffer.len() as u64) as usize;
            read_all(archive, &mut self.buffer[..count])?;
            file.write_all(&self.buffer[..count]).map_err(|error| fault(&error))?;
            left -= count as u64;
        }
        attributes(file.as_fd(), member)?;
        let time = time(member.modified);
        futimens(file.as_fd(), &time, &time).map_err(|errno| fault(&errno))
    }

    fn folder(&mut self, name: Vec<u8>, member: &Member<'_>) -> Result<(), JobFault> {
        let base = OsStr::from_bytes(&member.base);
        let mut opaque = false;
        let dir = if member.base.is_empty() {
            self.root.try_clone().map_err(|error| fault(&error))?
        } else {
            let there = stat(self.parent(&member.parent)?, base)?;
            if !there.is_some_and(|stat| is(&stat, SFlag::S_IFDIR)) {
                opaque = there.is_some_and(|stat| is_whiteout(&stat));
                self.remove(&member.parent, &member.base)?;
                mkdirat(self.parent(&member.parent)?, base, PRIVATE | Mode::S_IXUSR)
                    .map_err(|errno| failed("mkdir", &name, errno))?;
                self.bytes += BLOCK;
            }
            let dir = openat(self.parent(&member.parent)?, base, FOLDER, Mode::empty());
            dir.map_err(|errno| failed("open", &name, errno))?
        };
        attributes(dir.as_fd(), member)?;
        let folder = self.note(name)?;
        folder.modified = Some(member.modified);
        folder.implied = false;
        folder.opaque |= opaque;
        Ok(())
    }

    /// A whiteout of this name, or of all that is in the folder.
    fn hide(&mut self, parent: &[u8], name: &[u8], all: bool) -> Result<(), JobFault> {
        if all {
            self.parent(parent)?;
            self.note(parent.to_vec())?.opaque = true;
            return Ok(());
        }
        if matches!(name, b"" | b"." | b"..") {
            return Err(invalid("got a whiteout of no name".to_owned()));
        }
        let base = OsStr::from_bytes(name);
        let dir = self.parent(parent)?;
        match stat(dir, base)? {
            None => mknodat(dir, base, SFlag::S_IFCHR, Mode::empty(), 0)
                .map_err(|errno| failed("mknod", &joined(parent, name), errno)),
            Some(stat) if is(&stat, SFlag::S_IFDIR) => {
                self.note(joined(parent, name))?.opaque = true;
                Ok(())
            }
            Some(_) => Ok(()),
        }
    }

    /// Removes what is called so, with all that is below it.
    fn remove(&mut self, parent: &[u8], base: &[u8]) -> Result<(), JobFault> {
        let dir = self.parent(parent)?;
        let Some(there) = stat(dir, OsStr::from_bytes(base))? else { return Ok(()) };
        let name = joined(parent, base);
        if is(&there, SFlag::S_IFDIR) {
            jobs::remove_tree(dir, OsStr::from_bytes(base)).map_err(|error| fault(&error))?;
            let below = [&name[..], b"/"].concat();
            self.folders.remove(&name);
            let inside = self.folders.range(below.clone()..).map(|(folder, _)| folder);
            let inside = inside.take_while(|folder| folder.starts_with(&below));
            for folder in inside.cloned().collect::<Vec<_>>() {
                self.folders.remove(&folder);
            }
        } else {
            let removed = unlinkat(dir, OsStr::from_bytes(base), UnlinkatFlags::NoRemoveDir);
            removed.map_err(|errno| failed("unlink", &name, errno))?;
        }
        // A link may have led to it, or it was the link.
        self.open = None;
        Ok(())
    }

    /// The folder of this name, made if it is absent. It stays open for the next member.
    fn parent(&mut self, name: &[u8]) -> Result<BorrowedFd<'_>, JobFault> {
        if self.open.as_ref().is_none_or(|(open, _)| open != name) {
            let dir = match self.resolve(name) {
                Err(Errno::ENOENT) => {
                    self.make_parents(name)?;
                    self.resolve(name)
                }
                resolved => resolved,
            };
            let dir = dir.map_err(|errno| failed("open", name, errno))?;
            self.open = Some((name.to_vec(), dir));
        }
        Ok(self.open.as_ref().expect("it was opened above").1.as_fd())
    }

    fn take_open(&mut self) -> OwnedFd {
        self.open.take().expect("it was just opened").1
    }

    /// Links are followed, and cannot leave the layer: the root directory of this process is the
    /// layer's folder. `openat2` says so once more; kernels before 5.6 lack it.
    fn resolve(&self, name: &[u8]) -> Result<OwnedFd, Errno> {
        let name = if name.is_empty() { b"." } else { name };
        let name = OsStr::from_bytes(name);
        let flags = FOLDER.difference(OFlag::O_NOFOLLOW);
        let resolve = ResolveFlag::RESOLVE_IN_ROOT | ResolveFlag::RESOLVE_NO_MAGICLINKS;
        match openat2(&self.root, name, OpenHow::new().flags(flags).resolve(resolve)) {
            Err(Errno::ENOSYS | Errno::EPERM) => openat(&self.root, name, flags, Mode::empty()),
            resolved => resolved,
        }
    }

    fn make_parents(&mut self, name: &[u8]) -> Result<(), JobFault> {
        let ends = name.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
        for end in ends.chain([name.len()]) {
            let name = &name[..end];
            let (above, base) = match name.iter().rposition(|byte| *byte == b'/') {
                Some(slash) => (&name[..slash], &name[slash + 1..]),
                None => (&b""[..], name),
            };
            let dir = self.resolve(above).map_err(|errno| failed("open", above, errno))?;
            let mode = Mode::from_bits_truncate(0o755);
            match mkdirat(&dir, OsStr::from_bytes(base), mode) {
                Ok(()) => {
                    self.bytes += BLOCK;
                    self.note(name.to_vec())?.implied = true;
                }
                Err(Errno::EEXIST) => {}
                Err(errno) => return Err(failed("mkdir", name, errno)),
            }
        }
        Ok(())
    }

    fn note(&mut self, name: Vec<u8>) -> Result<&mut Folder, JobFault> {
        let length = name.len();
        let folder = self.folders.entry(name);
        if matches!(folder, btree_map::Entry::Vacant(_)) {
            let left = self.names_left.checked_sub(length).ok_or_else(|| {
                let max = LAYER_FOLDER_NAMES_BYTES_MAX;
                invalid(format!("got folders with names of {max} bytes, expected fewer"))
            })?;
            self.names_left = left;
        }
        Ok(folder.or_default())
    }

    /// Sets the times of folders, the deepest first, and says which ones are incomplete.
    fn finish(self) -> Result<Unpacked, JobFault> {
        let mut unpacked = Unpacked { bytes: self.bytes, folders: Vec::new() };
        for (name, folder) in self.folders.iter().rev() {
            if let Some(modified) = folder.modified {
                let time = time(modified);
                let dir = self.resolve(name);
                dir.and_then(|dir| futimens(dir.as_fd(), &time, &time))
                    .map_err(|errno| failed("set the time of", name, errno))?;
            }
        }
        for (name, Folder { implied, opaque, .. }) in self.folders {
            if implied || opaque {
                unpacked.folders.push((name, Incomplete { implied, opaque }));
            }
        }
        Ok(unpacked)
    }

    /// Contents that are the name or the target of the next member.
    fn text(&mut self, archive: &mut Source<'_>, size: u64) -> Result<Vec<u8>, JobFault> {
        let bytes = self.records(archive, size, 2 * tar::NAME_MAX)?;
        Ok(tar::until_zero(&bytes).to_vec())
    }

    fn records(
        &mut self,
        archive: &mut Source<'_>,
        size: u64,
        bytes_max: usize,
    ) -> Result<Vec<u8>, JobFault> {
        if size > bytes_max as u64 {
            return Err(invalid(format!(
                "got {size} bytes that describe a member, expected {bytes_max} at most"
            )));
        }
        let mut bytes = vec![0; size as usize];
        read_all(archive, &mut bytes)?;
        self.pass(archive, padded(size)? - size)?;
        Ok(bytes)
    }

    /// Reads so many bytes and drops them.
    fn pass(&mut self, archive: &mut Source<'_>, bytes: u64) -> Result<(), JobFault> {
        let mut left = bytes;
        while left > 0 {
            let count = left.min(self.buffer.len() as u64) as usize;
            read_all(archive, &mut self.buffer[..count])?;
            left -= count as u64;
        }
        Ok(())
    }
}

/// Bytes of contents with those that fill up their last block.
fn padded(size: u64) -> Result<u64, JobFault> {
    tar::next(0, size).ok_or_else(|| invalid(format!("got a member of {size} bytes")))
}

/// `None`: it is to be skipped.
fn member(entry: Entry, pax: Pax<'_>, size: u64) -> Result<Option<Member<'_>>, JobFault> {
    if pax.is_sparse {
        return Err(invalid("got a sparse file, expected all of its bytes".to_owned()));
    }
    let (parent, base) = parts(pax.name.unwrap_or(&entry.name))?;
    let is_aufs = |part: &[u8]| part.starts_with(AUFS);
    if parent.split(|byte| *byte == b'/').any(is_aufs) || (is_aufs(&base) && base != OPAQUE) {
        return Ok(None);
    }
    let owner = entry.owner.ok_or_else(|| {
        invalid("got an owner that is no number of 32 bits, expected one".to_owned())
    })?;
    let kind = match (entry.kind, pax.link) {
        (Kind::HardLink(_), Some(link)) => Kind::HardLink(link.to_vec()),
        (Kind::SymbolicLink(_), Some(link)) => Kind::SymbolicLink(link.to_vec()),
        (kind, _) => kind,
    };
    Ok(Some(Member {
        parent,
        base,
        kind,
        size,
        mode: Mode::from_bits_truncate(entry.mode as libc::mode_t),
        user: Uid::from_raw(pax.user.unwrap_or(owner.0)),
        group: Gid::from_raw(pax.group.unwrap_or(owner.1)),
        modified: pax.modified.unwrap_or((entry.modified_s, 0)),
        xattrs: pax.xattrs,
    }))
}

/// The folder and the last part of a name, both empty for the layer's own folder.
fn parts(name: &[u8]) -> Result<(Vec<u8>, Vec<u8>), JobFault> {
    if name.len() > tar::NAME_MAX {
        let (got, max) = (name.len(), tar::NAME_MAX);
        return Err(invalid(format!("got a name of {got} bytes, expected {max} at most")));
    }
    let (mut folder, mut last) = (Vec::new(), Vec::new());
    for part in name.split(|byte| *byte == b'/') {
        match part {
            b"" | b"." => {}
            b".." => {
                return Err(invalid(format!("got the name {:?}, expected no ..", shown(name))));
            }
            part => {
                folder = joined(&folder, &last);
                last = part.to_vec();
            }
        }
    }
    Ok((folder, last))
}

fn joined(folder: &[u8], name: &[u8]) -> Vec<u8> {
    match (folder, name) {
        (b"", name) => name.to_vec(),
        (folder, b"") => folder.to_vec(),
        (folder, name) => [folder, b"/", name].concat(),
    }
}

/// Owner, mode and extended attributes, in this order: a new owner takes away set-user-ID bits and
/// capabilities.
fn attributes(fd: BorrowedFd<'_>, member: &Member<'_>) -> Result<(), JobFault> {
    fchown(fd, Some(member.user), Some(member.group))
        .and_then(|()| fchmod(fd, member.mode))
        .map_err(|errno| fault(&errno))?;
    for (name, value) in &member.xattrs {
        let is_kept = *name == b"security.capability"
            || (name.starts_with(b"user.") && !name.starts_with(b"user.overlay."));
        if !is_kept {
            continue;
        }
        let shown = shown(name);
        let wrong = |_| invalid(format!("got an extended attribute called {shown:?}"));
        let name = CString::new(*name).map_err(wrong)?;
        // SAFETY: the name ends with a zero, the value is as long as it says, and the kernel keeps
        // neither.
        #[expect(unsafe_code, reason = "nix does not have it")]
        let set = unsafe {
            libc::fsetxattr(fd.as_raw_fd(), name.as_ptr(), value.as_ptr().cast(), value.len(), 0)
        };
        match Errno::result(set) {
            Ok(_) => {}
            Err(Errno::EOPNOTSUPP) if !shown.starts_with("user.") => {
                log::warn!("the file system does not keep {shown}: a program lacks capabilities");
            }
            Err(Errno::EOPNOTSUPP) => {}
            Err(errno) => return Err(fault(&format_args!("{shown}: {}", errno.desc()))),
        }
    }
    Ok(())
}

fn stat(dir: BorrowedFd<'_>, name: &OsStr) -> Result<Option<FileStat>, JobFault> {
    match fstatat(dir, name, AtFlags::AT_SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some(stat)),
        Err(Errno::ENOENT) => Ok(None),
        Err(errno) => Err(failed("stat", name.as_bytes(), errno)),
    }
}

fn is(stat: &FileStat, kind: SFlag) -> bool {
    stat.st_mode & SFlag::S_IFMT.bits() == kind.bits()
}

fn is_whiteout(stat: &FileStat) -> bool {
    is(stat, SFlag::S_IFCHR) && stat.st_rdev == 0
}

#[allow(clippy::cast_lossless, reason = "a number of 32 bits on some machines")]
fn time((seconds, nanos): (i64, u32)) -> TimeSpec {
    let seconds = libc::time_t::try_from(seconds).unwrap_or(libc::time_t::MAX);
    TimeSpec::new(seconds, nanos as _)
}

/// For its owner, until its own mode is set.
const PRIVATE: Mode = Mode::S_IRUSR.union(Mode::S_IWUSR);

/// Reads a whole block; returns whether there was one.
fn read_block(from: &mut Source<'_>, block: &mut [u8; tar::BLOCK]) -> Result<bool, JobFault> {
    let mut got = 0;
    while got < block.len() {
        match from(&mut block[got..]) {
            Ok(0) if got == 0 => return Ok(false),
            Ok(0) => return Err(invalid("the archive ends within a head".to_owned())),
            Ok(count) => got += count,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(reading(&error)),
        }
    }
    Ok(true)
}

fn read_all(from: &mut Source<'_>, mut to: &mut [u8]) -> Result<(), JobFault> {
    while !to.is_empty() {
        match from(to) {
            Ok(0) => return Err(invalid("the archive ends within a member".to_owned())),
            Ok(count) => to = &mut to[count..],
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(reading(&error)),
        }
    }
    Ok(())
}

/// The archive's own faults are told by [`ErrorKind::InvalidData`].
pub(super) fn reading(error: &io::Error) -> JobFault {
    match error.kind() {
        ErrorKind::InvalidData | ErrorKind::UnexpectedEof => invalid(error.to_string()),
        _ => fault(error),
    }
}

fn failed(what: &str, name: &[u8], errno: Errno) -> JobFault {
    fault(&format_args!("{what} {}: {}", shown(name), errno.desc()))
}

fn fault(why: &dyn std::fmt::Display) -> JobFault {
    JobFault::Failed(why.to_string())
}

fn invalid(why: impl Into<String>) -> JobFault {
    JobFault::Invalid(why.into())
}

/// `place: fault`
pub(super) fn within(place: &str, fault: JobFault) -> JobFault {
    with(fault, |why| format!("{place}: {why}"))
}

/// The fault with more at the end of its text.
pub(super) fn after(fault: JobFault, more: &str) -> JobFault {
    with(fault, |why| why + more)
}

fn with(mut fault: JobFault, change: impl FnOnce(String) -> String) -> JobFault {
    let (JobFault::Invalid(why)
    | JobFault::NotFound(why)
    | JobFault::Denied(why)
    | JobFault::Exhausted(why)
    | JobFault::TimedOut(why)
    | JobFault::Failed(why)
    | JobFault::Died(why)
    | JobFault::SandboxLost(why)) = &mut fault;
    *why = change(std::mem::take(why));
    fault
}

fn shown(name: &[u8]) -> String {
    String::from_utf8_lossy(&name[..name.len().min(SHOWN_BYTES_MAX)]).into_owned()
}

/// Of a name in an error.
const SHOWN_BYTES_MAX: usize = 200;

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use nix::fcntl::open;

    use super::*;
    use crate::io::builtin::images::tests::support::{Place, Tar};

    /// Unpacks into a folder, as the confined process does.
    fn layer(place: &Place) -> Layer {
        Layer::new(open(&*place.0, FOLDER, Mode::empty()).expect("a folder")).expect("a layer")
    }

    fn members(layer: &mut Layer, mut tar: &[u8]) -> Result<(), JobFault> {
        layer.members(&mut |to| tar.read(to))
    }

    #[test]
    fn members_have_a_bound() {
        let place = Place::new();
        let mut layer = layer(&place);
        assert_eq!(layer.heads_left, 2 * LAYER_MEMBERS_MAX);
        let tar = Tar::default().file("a", b"").file("b", b"").file("c", b"").end();
        layer.heads_left = 3;
        let why = format!("{:?}", members(&mut layer, &tar).expect_err("three, and the end"));
        assert!(why.contains(&format!("more than {LAYER_MEMBERS_MAX} members")), "{why}");
        layer.heads_left = 4;
        assert_eq!(members(&mut layer, &tar), Ok(()));
    }

    #[test]
    fn names_of_folders_have_a_bound() {
        let place = Place::new();
        let mut layer = layer(&place);
        assert_eq!(layer.names_left, LAYER_FOLDER_NAMES_BYTES_MAX);
        let tar = Tar::default().folder("abc").folder("abc").file("abc/d/e", b"").end();
        layer.names_left = 7;
        let why = format!("{:?}", members(&mut layer, &tar).expect_err("abc and abc/d"));
        assert!(why.contains("got folders with names of"), "{why}");
        layer.folders.clear();
        layer.names_left = 8;
        std::fs::remove_dir_all(place.0.join("abc")).expect("it was made");
        layer.open = None;
        assert_eq!(members(&mut layer, &tar), Ok(()));
    }

    #[test]
    fn some_space_stays_free() {
        let place = Place::new();
        let mut layer = layer(&place);
        let stat = fstatvfs(&layer.root).expect("a file system");
        let free = stat.blocks_available() * stat.fragment_size();
        // Others write to it as well.
        let slack = 1 << 30;
        assert!(layer.space_left + LAYER_SPARE_BYTES < free + slack);
        assert!(layer.space_left + LAYER_SPARE_BYTES + slack > free);
        layer.space_left = 9;
        let tar = Tar::default().file("a", b"12345").file("b", b"12345").end();
        let why = format!("{:?}", members(&mut layer, &tar).expect_err("ten bytes"));
        assert!(why.contains("got 5 bytes, expected 4 at most"), "{why}");
    }
}
