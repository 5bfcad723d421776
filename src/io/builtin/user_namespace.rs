//! Pods with users of their own (`hostUsers: false`): their user 0 is somebody without rights on
//! the host.
//!
//! ```text
//!  sandbox    a helper process: a user namespace, and in it those of network, IPC and host name;
//!             the job mounts them in RUN/sb/ID, and enters them to set them up
//!  root       each layer mapped on RUN/c/ID/l/N, overlayfs over them, and the mappings taken away
//!  volumes    each source mapped on RUN/c/ID/m/N, and mounted from there by the OCI runtime
//! ```
//!
//! A mapped mount (mount_setattr(2), `MOUNT_ATTR_IDMAP`) shows what user 0 of the host owns as
//! owned by the pod's user 0, and so on: nothing is written to the disk for that, and a volume is
//! the same for pods with other users. It works from Linux 5.19 on, and on some file systems: not
//! on overlayfs, and on tmpfs from 6.3 on.
//!
//! The OCI runtime sets up the container as the pod's user 0. So that it comes to the bundle, RUN
//! and `RUN/c` may be passed by all, and the bundle by the pod's group 0 alone.
//!
//! **If we crash here** the helper ends with the job. The mappings of layers and volumes are in the
//! container's folder, and whoever takes it down unmounts them first ([`take_down`]).
#![expect(unsafe_code, reason = "mounts are mapped by system calls without a safe form")]

use std::ffi::CString;
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, chown, fchown};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::Duration;

use nix::sched::{CloneFlags, unshare};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::waitpid;
use nix::unistd::{Pid, getpid, getppid};

use super::files;
use super::layout::Layout;
use super::namespace::{Kind, OWN};
use crate::io::child;
use crate::limits::HOLDER_READY_MS;
use crate::model::cri::UserRange;
use crate::model::error::System;

/// The name in a sandbox's folder.
pub(super) const USER: &str = "user";
/// Where volumes are mapped, in a container's folder.
const VOLUMES: &str = "m";

/// A process that is in the new namespaces, and waits until this is dropped.
#[derive(Debug)]
pub(super) struct Holder {
    pid: Pid,
    _until: UnixStream,
}

impl Holder {
    /// Makes a user namespace with these users, and in it namespaces of these kinds.
    pub(super) fn new(users: UserRange, kinds: &[Kind]) -> Result<Self, System> {
        let failed = |what: &str, error: io::Error| {
            System::at(format_args!("cannot make a user namespace: {what}"), error)
        };
        let (mut ours, mut theirs) =
            UnixStream::pair().map_err(|error| failed("a socket", error))?;
        let parent = getpid();
        let flags = kinds.iter().fold(CloneFlags::empty(), |all, (_, flag)| all | *flag);
        let started = child::start(|| {
            let _ = set_pdeathsig(Signal::SIGKILL);
            if getppid() == parent {
                hold(&mut theirs, flags);
            }
            0
        });
        let child = started.map_err(|errno| failed("fork", errno.into()))?;
        drop(theirs);
        let until = ours.try_clone().map_err(|error| failed("a socket", error))?;
        let holder = Self { pid: child, _until: until };
        ours.set_read_timeout(Some(Duration::from_millis(HOLDER_READY_MS.into())))
            .map_err(|error| failed("a socket", error))?;
        let not_made = |why| System::at("cannot make a user namespace", why);
        expect_done(&mut ours).map_err(not_made)?;
        let UserRange { first, count } = users;
        for name in ["uid_map", "gid_map"] {
            let path = format!("/proc/{child}/{name}");
            fs::write(&path, format!("0 {first} {count}")).map_err(|error| failed(name, error))?;
        }
        ours.write_all(&[0]).map_err(|error| failed("a socket", error))?;
        expect_done(&mut ours).map_err(not_made)?;
        Ok(holder)
    }

    /// The file of its namespace of this name.
    pub(super) fn file(&self, name: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/ns/{name}", self.pid))
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = kill(self.pid, Signal::SIGKILL);
        let _ = waitpid(self.pid, None);
    }
}

/// What the helper does, in this order. Between the first and the second its parent maps the users:
/// what is made from then on belongs to the new namespace's user 0, if that is who makes it.
const STEPS: [(&str, Step); 4] = [
    ("unshare", |_| unshare(CloneFlags::CLONE_NEWUSER)),
    ("setresgid in it", |_| nix::unistd::setresgid(0.into(), 0.into(), 0.into())),
    ("setresuid in it", |_| nix::unistd::setresuid(0.into(), 0.into(), 0.into())),
    ("unshare in it", unshare),
];

type Step = fn(CloneFlags) -> nix::Result<()>;

/// The helper: it is in the namespaces until its parent closes the socket.
fn hold(socket: &mut UnixStream, flags: CloneFlags) {
    for (at, (_, step)) in STEPS.iter().enumerate() {
        let error = step(flags).map_or_else(|errno| errno as i32 as u8, |()| 0);
        let is_awaited = error != 0 || at == 0 || at == STEPS.len() - 1;
        if is_awaited {
            let told = socket.write_all(&[at as u8, error]);
            if told.is_err() || error != 0 || !matches!(socket.read(&mut [0]), Ok(1)) {
                return;
            }
        }
    }
}

/// The helper's word: the number of its last step, and the error of that one, or 0.
fn expect_done(socket: &mut UnixStream) -> Result<(), String> {
    let mut word = [0; 2];
    match socket.read_exact(&mut word) {
        Ok(()) if word[1] == 0 => Ok(()),
        Ok(()) => {
            let step = STEPS.get(usize::from(word[0])).map_or("an unknown step", |(name, _)| name);
            Err(format!("{step}: {}", io::Error::from_raw_os_error(word[1].into())))
        }
        Err(error) => Err(match error.kind() {
            ErrorKind::UnexpectedEof => "its helper has ended".to_owned(),
            ErrorKind::WouldBlock => {
                format!("its helper has said nothing within {HOLDER_READY_MS} ms")
            }
            _ => format!("a socket: {error}"),
        }),
    }
}

/// Whether this machine can: the kernel knows user namespaces, and maps mounts on this folder's
/// file system, also below overlayfs.
pub(super) fn works(folder: &Path) -> Result<(), System> {
    let text = |path: &str| fs::read_to_string(path).unwrap_or_default();
    if text("/proc/sys/user/max_user_namespaces").trim() == "0"
        || !Path::new(OWN).join(USER).exists()
    {
        return Err(System::new("the kernel makes no user namespaces"));
    }
    // `5.19.0-rc1`
    let release = text("/proc/sys/kernel/osrelease");
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|it| it.parse().ok());
    let version = (numbers.next().flatten(), numbers.next().flatten());
    if version < (Some(5_u32), Some(19_u32)) {
        return Err(System::new(format!("got Linux {}, expected 5.19 or later", release.trim())));
    }
    let holder = Holder::new(UserRange { first: 65_536, count: 1 }, &[])?;
    let failed = |error| System::at(folder.display(), error);
    let mapping = File::open(holder.file(USER)).map_err(failed)?;
    mapped(folder, &mapping).map(drop).map_err(failed)
}

/// A copy of the mount on `source`, with all that is mounted below it, on which this user namespace
/// sees the owners that the host's users are.
fn mapped(source: &Path, users: &File) -> io::Result<OwnedFd> {
    let path = CString::new(source.as_os_str().as_bytes())?;
    let flags = libc::OPEN_TREE_CLONE | libc::OPEN_TREE_CLOEXEC | libc::AT_RECURSIVE as u32;
    // SAFETY: the path ends with a zero, and the call returns a descriptor or an error.
    let fd = unsafe { libc::syscall(libc::SYS_open_tree, libc::AT_FDCWD, path.as_ptr(), flags) };
    let fd = i32::try_from(fd).ok().filter(|fd| *fd >= 0).ok_or_else(io::Error::last_os_error)?;
    // SAFETY: it is open, and nobody else's.
    let tree = unsafe { OwnedFd::from_raw_fd(fd) };
    let attr = MountAttr {
        attr_set: MOUNT_ATTR_IDMAP,
        attr_clr: 0,
        propagation: 0,
        userns_fd: users.as_raw_fd() as u64,
    };
    // SAFETY: the path is empty and ends with a zero; the kernel reads as many bytes as `attr` has.
    let done = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            tree.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH,
            &raw const attr,
            size_of::<MountAttr>(),
        )
    };
    if done == 0 { Ok(tree) } else { Err(io::Error::last_os_error()) }
}

/// `struct mount_attr` of mount_setattr(2).
#[repr(C)]
struct MountAttr {
    attr_set: u64,
    attr_clr: u64,
    propagation: u64,
    userns_fd: u64,
}

const MOUNT_ATTR_IDMAP: u64 = 0x0010_0000;

fn attach(tree: &OwnedFd, place: &Path) -> io::Result<()> {
    /// `MOVE_MOUNT_F_EMPTY_PATH`
    const FROM_DESCRIPTOR: libc::c_uint = 4;
    let to = CString::new(place.as_os_str().as_bytes())?;
    // SAFETY: both paths end with a zero, and the call changes nothing of this program.
    let done = unsafe {
        libc::syscall(
            libc::SYS_move_mount,
            tree.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_FDCWD,
            to.as_ptr(),
            FROM_DESCRIPTOR,
        )
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The users of a container's pod.
#[derive(Debug)]
pub(super) struct Users {
    /// The sandbox's user namespace.
    namespace: File,
    range: UserRange,
}

impl Users {
    /// `sandbox`: its folder.
    pub(super) fn of(sandbox: &Path, range: UserRange) -> io::Result<Self> {
        Ok(Self { namespace: File::open(sandbox.join(USER))?, range })
    }

    pub(super) fn range(&self) -> UserRange {
        self.range
    }

    /// Gives a folder or a file to the pod's user 0.
    pub(super) fn own(&self, path: &Path) -> io::Result<()> {
        chown(path, Some(self.range.first), Some(self.range.first))
    }

    /// Maps a folder on another one, which is made.
    pub(super) fn map_folder(&self, source: &Path, place: &Path) -> io::Result<()> {
        fs::create_dir(place)?;
        attach(&mapped(source, &self.namespace)?, place)
    }

    /// Maps the source of the volume of this number. → where it is.
    pub(super) fn map_volume(
        &self,
        container: &Path,
        at: usize,
        source: &Path,
    ) -> io::Result<PathBuf> {
        let all = container.join(VOLUMES);
        DirBuilder::new().recursive(true).mode(0o711).create(&all)?;
        let place = all.join(at.to_string());
        if fs::metadata(source)?.is_dir() {
            fs::create_dir(&place)?;
        } else {
            OpenOptions::new().write(true).create_new(true).open(&place)?;
        }
        attach(&mapped(source, &self.namespace)?, &place)?;
        Ok(place)
    }
}

/// Lets the pod's user 0 come to its sandbox's or its container's folder.
pub(super) fn open_way(layout: &Layout, folder: &Path, users: UserRange) -> io::Result<()> {
    let above = folder.parent().expect("it is below RUN");
    for passed in [layout.run(), above] {
        fs::set_permissions(passed, Permissions::from_mode(0o711))?;
    }
    for passed in layout.run().ancestors() {
        let mode = fs::metadata(passed)?.mode() & 0o777;
        if mode & 0o001 == 0 {
            let why = format!(
                "{}: got the mode {mode:03o}, expected a folder that everybody may pass, since the \
                 pod has users of its own",
                passed.display()
            );
            return Err(io::Error::other(why));
        }
    }
    chown(folder, None, Some(users.first))?;
    fs::set_permissions(folder, Permissions::from_mode(0o710))
}

/// Who the pod's user 0 is on the host, by the container's folder; `None`: the host's.
fn user_0(folder: &Path) -> Option<u32> {
    fs::metadata(folder).ok().map(|meta| meta.gid()).filter(|gid| *gid != 0)
}

/// Gives a stream to the pod's user 0, who could not open it by `/dev/stdout` otherwise. `folder`:
/// the container's.
pub(super) fn own_stream(folder: &Path, stream: impl AsFd) -> io::Result<()> {
    user_0(folder).map_or(Ok(()), |id| fchown(stream, Some(id), Some(id)))
}

/// The same for the pipes of a command that was started in the container.
pub(super) fn own_streams(folder: &Path, child: &Child) -> io::Result<()> {
    let input = child.stdin.as_ref().map(AsFd::as_fd);
    let outputs = [child.stdout.as_ref().map(AsFd::as_fd), child.stderr.as_ref().map(AsFd::as_fd)];
    let mut all = outputs.into_iter().chain([input]).flatten();
    all.try_for_each(|stream| own_stream(folder, stream))
}

/// Takes down the mapped volumes of a container.
pub(super) fn take_down(container: &Path) -> io::Result<()> {
    unmap_all(&container.join(VOLUMES))
}

/// Takes down what is mapped on the entries of a folder, and removes them. What is below a mount is
/// never removed: it would be the volume's content.
pub(super) fn unmap_all(folder: &Path) -> io::Result<()> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    for entry in entries {
        let entry = entry?;
        if entry.file_type()?.is_symlink() {
            continue;
        }
        files::unmount(&entry.path())?;
        // Still a mount point, or not empty: both fail.
        fs::remove_file(entry.path()).or_else(|_| fs::remove_dir(entry.path()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::net::Shutdown;

    use super::*;
    use crate::io::builtin::namespace::{NET, UTS, in_those};
    use crate::io::test_folder::TestFolder;

    const USERS: UserRange = UserRange { first: 200_000, count: 1_000 };

    #[test]
    fn namespaces_belong_to_the_new_users_and_are_gone_with_their_holder() {
        let holder = Holder::new(USERS, &[NET, UTS]).expect("root may");
        let map = fs::read_to_string(format!("/proc/{}/gid_map", holder.pid)).expect("it lives");
        assert_eq!(map.split_whitespace().collect::<Vec<_>>(), ["0", "200000", "1000"]);
        let link = |path: &Path| fs::read_link(path).expect("it is there");
        for (name, _) in [NET, UTS, (USER, CloneFlags::CLONE_NEWUSER)] {
            assert_ne!(link(&holder.file(name)), link(&Path::new(OWN).join(name)), "{name}");
        }
        // Who enters them from the host has all rights there.
        let named = in_those(&[UTS], |name| holder.file(name), || nix::unistd::sethostname("pod"));
        named.expect("root may enter").expect("and set it up");
        let held = holder.file(USER);
        drop(holder);
        assert!(!held.exists());
    }

    #[test]
    fn a_failure_names_the_step_that_failed() {
        // No namespace is of this kind.
        let why = Holder::new(USERS, &[("x", CloneFlags::CLONE_PTRACE)]).expect_err("invalid");
        let expected = "cannot make a user namespace: unshare in it: Invalid argument";
        assert!(why.to_string().starts_with(expected), "{why}");
        let none = Holder::new(UserRange { first: 7, count: 0 }, &[]).expect_err("no users");
        assert!(none.to_string().starts_with("cannot make a user namespace: uid_map: "), "{none}");

        // Nobody is user 0 before the users are mapped.
        let (mut ours, mut theirs) = UnixStream::pair().expect("a pair");
        let started = child::start(|| {
            hold(&mut theirs, CloneFlags::empty());
            0
        });
        let helper = Holder { pid: started.expect("a process"), _until: theirs };
        assert_eq!(expect_done(&mut ours), Ok(()));
        ours.write_all(&[0]).expect("it reads");
        let why = "setresgid in it: Invalid argument (os error 22)";
        assert_eq!(expect_done(&mut ours), Err(why.to_owned()));
        drop(helper);

        let (mut ours, mut theirs) = UnixStream::pair().expect("a pair");
        ours.set_read_timeout(Some(Duration::from_millis(10))).expect("ours");
        let mut told = |word: &[u8]| {
            theirs.write_all(word).expect("a socket has room");
            expect_done(&mut ours)
        };
        assert_eq!(told(&[0, 0]), Ok(()));
        for (step, name) in [(0, "unshare"), (1, "setresgid in it"), (2, "setresuid in it")] {
            let why = told(&[step, libc::EPERM as u8]).expect_err("it has failed");
            assert_eq!(why, format!("{name}: Operation not permitted (os error 1)"));
        }
        let silent = format!("its helper has said nothing within {HOLDER_READY_MS} ms");
        assert_eq!(told(&[]), Err(silent));
        // A child of another test may have it as well.
        theirs.shutdown(Shutdown::Both).expect("ours");
        assert_eq!(expect_done(&mut ours), Err("its helper has ended".to_owned()));
    }

    #[test]
    fn a_volume_is_mapped_and_never_emptied() {
        let top = TestFolder::new("mapped");
        let container = top.join("container");
        let sandbox = top.join("sandbox");
        let source = top.join("source");
        for folder in [&container, &sandbox, &source] {
            fs::create_dir(folder).expect("ours");
        }
        fs::write(source.join("file"), "content").expect("ours");
        chown(source.join("file"), Some(7), Some(8)).expect("root may");
        let holder = Holder::new(USERS, &[]).expect("root may");
        std::os::unix::fs::symlink(holder.file(USER), sandbox.join(USER)).expect("ours");
        let users = Users::of(&sandbox, USERS).expect("it is held");
        let folder = users.map_volume(&container, 0, &source).expect("mapped");
        let file = users.map_volume(&container, 3, &source.join("file")).expect("mapped");
        for path in [folder.join("file"), file] {
            let meta = fs::metadata(&path).expect("it is there");
            assert_eq!((meta.uid(), meta.gid()), (200_007, 200_008), "{}", path.display());
        }
        let again = users.map_volume(&container, 0, &source).expect_err("it is taken");
        assert_eq!(again.kind(), ErrorKind::AlreadyExists);
        for _ in 0..2 {
            take_down(&container).expect("ours");
            assert!(fs::read_dir(container.join(VOLUMES)).expect("ours").next().is_none());
        }
        assert_eq!(fs::read_to_string(source.join("file")).expect("untouched"), "content");
        // What is still mounted stops it: the content is not its own.
        let place = container.join(VOLUMES).join("1");
        fs::create_dir(&place).expect("ours");
        fs::write(place.join("left"), "").expect("ours");
        assert!(take_down(&container).is_err());
        assert!(place.join("left").exists());
    }

    #[test]
    fn a_machine_that_can_says_so_and_another_one_why() {
        let top = TestFolder::new("works");
        works(&top).expect("Linux 5.19 or later, and a file system that maps");
        let why = works(Path::new("/proc")).expect_err("no owners on it can be mapped");
        assert!(why.to_string().starts_with("/proc: "), "{why}");
    }
}
