//! The process that reads one layer of an image: it sees nothing but its folder and the layer.
//!
//! What it reads comes from anybody who may push an image, and it must be root to give files away.
//! So before the first byte it gives up everything else:
//!
//! - all other files: a root directory of its own (chroot), no descriptor but its two, and no right
//!   to leave it;
//! - the network and System V IPC: namespaces of its own;
//! - other processes and programs: seccomp allows no signal, no ptrace, no fork, no execve;
//! - mounts, modules, settings of devices: all capabilities but six;
//! - memory and core files: rlimits.
//!
//! It ends with the job that started it, however that ends.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;

use nix::errno::Errno;
use nix::sys::prctl::{set_no_new_privs, set_pdeathsig};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::Signal;
use nix::sys::stat::{Mode, umask};
use nix::sys::wait::waitpid;
use nix::unistd::{chdir, chroot, fchdir, getpid, getppid};

use super::child;
use crate::limits::LAYER_MEMORY_BYTES_MAX;

/// What shows that this process is confined, with the folder that it has.
#[derive(Debug)]
pub(super) struct Confined<'a>(&'a OwnedFd);

impl Confined<'_> {
    /// Its root directory.
    pub(super) fn root(&self) -> &OwnedFd {
        self.0
    }
}

/// Runs `work` in a confined process whose root directory is `root`, with `file` and its end of a
/// socket pair; `answer` reads the other end meanwhile. Returns what `answer` returns, and how the
/// process ended if that was not as it should.
pub(super) fn run<T>(
    root: &OwnedFd,
    file: &File,
    work: impl FnOnce(&Confined<'_>, &mut UnixStream),
    answer: impl FnOnce(&mut UnixStream) -> T,
) -> io::Result<(T, Option<String>)> {
    let (mut ours, mut theirs) = UnixStream::pair()?;
    let parent = getpid();
    let kept = [file.as_raw_fd(), theirs.as_raw_fd(), root.as_raw_fd()];
    let child = child::start(move || {
        let confined = set_pdeathsig(Signal::SIGKILL).map_err(io::Error::from);
        if getppid() != parent {
            return ORPHAN;
        }
        match confined.and_then(|()| confine(root, kept)) {
            Ok(confined) => work(&confined, &mut theirs),
            Err(error) => return error.raw_os_error().unwrap_or(UNKNOWN).min(UNKNOWN),
        }
        0
    })?;
    let answer = answer(&mut ours);
    // It must not wait for somebody to read the rest.
    drop(ours);
    let ended = loop {
        match waitpid(child, None) {
            Err(Errno::EINTR) => {}
            ended => break ended?,
        }
    };
    let how = match ended {
        nix::sys::wait::WaitStatus::Exited(_, 0) => None,
        nix::sys::wait::WaitStatus::Exited(_, child::PANICKED) => Some("it panicked".to_owned()),
        nix::sys::wait::WaitStatus::Exited(_, errno) => {
            Some(format!("it could not be confined: {}", Errno::from_raw(errno).desc()))
        }
        other => Some(format!("it ended: {other:?}")),
    };
    Ok((answer, how))
}

/// Exit codes beside 0 and [`child::PANICKED`]; the others are error numbers of [`confine`].
const ORPHAN: i32 = 254;
const UNKNOWN: i32 = 253;

fn confine(root: &OwnedFd, kept: [RawFd; 3]) -> io::Result<Confined<'_>> {
    let memory = memory_bytes()?.saturating_add(LAYER_MEMORY_BYTES_MAX);
    close_others(kept);
    namespaces()?;
    fchdir(root.as_fd())?;
    chroot(".")?;
    chdir("/")?;
    umask(Mode::empty());
    setrlimit(Resource::RLIMIT_DATA, memory, memory)?;
    setrlimit(Resource::RLIMIT_CORE, 0, 0)?;
    set_no_new_privs()?;
    keep_capabilities()?;
    deny_calls()?;
    Ok(Confined(root))
}

/// Bytes of this process that count for RLIMIT_DATA: column 6 of `/proc/self/statm`, in pages.
fn memory_bytes() -> io::Result<u64> {
    let text = std::fs::read_to_string("/proc/self/statm")?;
    let pages = text.split_ascii_whitespace().nth(5).and_then(|pages| pages.parse::<u64>().ok());
    // SAFETY: it reads a constant.
    #[expect(unsafe_code, reason = "nix has sysconf in a feature that nothing else needs")]
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    Ok(pages.unwrap_or(0) * page.max(0) as u64)
}

/// Closes all descriptors but these, and standard error for what a panic says.
fn close_others(kept: [RawFd; 3]) {
    let mut kept: Vec<u32> =
        kept.into_iter().chain([libc::STDERR_FILENO]).map(|fd| fd as u32).collect();
    kept.sort_unstable();
    let mut from = 0;
    for fd in kept.into_iter().chain([u32::MAX]) {
        if from < fd {
            close_range(from, fd - 1);
        }
        from = fd.saturating_add(1);
    }
}

fn close_range(from: u32, to: u32) {
    // SAFETY: nobody in this process uses them: it was forked to use those that are kept.
    #[expect(unsafe_code, reason = "nix does not have it")]
    let closed = unsafe { libc::syscall(libc::SYS_close_range, from, to, 0) };
    if closed == 0 {
        return;
    }
    // Before kernel 5.9 one by one.
    let (open_max, _) = getrlimit(Resource::RLIMIT_NOFILE).unwrap_or((DESCRIPTORS_MAX, 0));
    for fd in from..=to.min(open_max.min(DESCRIPTORS_MAX) as u32) {
        // SAFETY: as above.
        #[expect(unsafe_code, reason = "an owner for a number that may not be open")]
        unsafe {
            libc::close(fd as RawFd)
        };
    }
}

/// What the kernel allows by default.
const DESCRIPTORS_MAX: u64 = 1 << 20;

fn namespaces() -> io::Result<()> {
    // SAFETY: it changes what this process sees, and no memory.
    #[expect(unsafe_code, reason = "nix has it in a feature of its own")]
    let done = unsafe { libc::unshare(libc::CLONE_NEWNET | libc::CLONE_NEWIPC) };
    Errno::result(done)?;
    Ok(())
}

/// Of capset(2), version 3.
#[repr(C)]
struct CapabilityHead {
    version: u32,
    pid: i32,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Capabilities {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

/// CAP_CHOWN, CAP_DAC_OVERRIDE, CAP_FOWNER, CAP_FSETID, CAP_MKNOD, CAP_SETFCAP: all are in the
/// first of the two words.
const KEPT: u32 = 1 | 1 << 1 | 1 << 3 | 1 << 4 | 1 << 27 | 1 << 31;

/// Those of [`KEPT`] that it has.
fn keep_capabilities() -> io::Result<()> {
    let head = CapabilityHead { version: 0x2008_0522, pid: 0 };
    let mut words = [Capabilities::default(); 2];
    // SAFETY: both have the layout that version 3 demands: a head and two words.
    #[expect(unsafe_code, reason = "nix does not have it")]
    let got = unsafe { libc::syscall(libc::SYS_capget, &raw const head, words.as_mut_ptr()) };
    Errno::result(got)?;
    let kept = words[0].permitted & KEPT;
    words = [Capabilities::default(); 2];
    (words[0].effective, words[0].permitted) = (kept, kept);
    // SAFETY: as above.
    #[expect(unsafe_code, reason = "nix does not have it")]
    let set = unsafe { libc::syscall(libc::SYS_capset, &raw const head, words.as_ptr()) };
    Errno::result(set)?;
    Ok(())
}

/// System calls that reach beyond this process and its files, and that its user (root) could do
/// without a capability. They fail with EPERM.
const DENIED: &[libc::c_long] = &[
    // Other processes.
    libc::SYS_kill,
    libc::SYS_tkill,
    libc::SYS_tgkill,
    libc::SYS_rt_sigqueueinfo,
    libc::SYS_rt_tgsigqueueinfo,
    libc::SYS_pidfd_open,
    libc::SYS_pidfd_getfd,
    libc::SYS_pidfd_send_signal,
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_prlimit64,
    libc::SYS_setpriority,
    libc::SYS_sched_setaffinity,
    libc::SYS_sched_setscheduler,
    // New ones.
    libc::SYS_clone,
    libc::SYS_clone3,
    libc::SYS_execve,
    libc::SYS_execveat,
    // Other namespaces and mounts, a new user namespace's capabilities among them.
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_chroot,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_open_by_handle_at,
    // Sockets of any kind.
    libc::SYS_socket,
    libc::SYS_socketpair,
    libc::SYS_connect,
    libc::SYS_bind,
    // Large parts of the kernel that it does not need.
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_io_uring_setup,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
];

/// Those that newer architectures do not have.
#[cfg(any(target_arch = "x86_64", target_arch = "arm"))]
const DENIED_OLD: &[libc::c_long] = &[libc::SYS_fork, libc::SYS_vfork];
#[cfg(not(any(target_arch = "x86_64", target_arch = "arm")))]
const DENIED_OLD: &[libc::c_long] = &[];

/// `AUDIT_ARCH_…` of linux/audit.h; `None`: the filter is left out there.
const AUDIT_ARCH: Option<u32> = if cfg!(target_arch = "x86_64") {
    Some(0xc000_003e)
} else if cfg!(target_arch = "aarch64") {
    Some(0xc000_00b7)
} else if cfg!(target_arch = "arm") {
    Some(0x4000_0028)
} else if cfg!(target_arch = "riscv64") {
    Some(0xc000_00f3)
} else {
    None
};

/// Denies [`DENIED`] (seccomp(2), SECCOMP_MODE_FILTER). A kernel without seccomp has the other
/// walls.
fn deny_calls() -> io::Result<()> {
    let Some(arch) = AUDIT_ARCH else { return Ok(()) };
    let op = |code: u32, jt: u8, jf: u8, k: u32| libc::sock_filter { code: code as u16, jt, jf, k };
    let load = |at| op(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, at);
    let is = |k, jt, jf| op(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, jt, jf, k);
    let at_least = |k, jt, jf| op(libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K, jt, jf, k);
    let end = |k| op(libc::BPF_RET | libc::BPF_K, 0, 0, k);
    // Offsets in `struct seccomp_data`: the number is first, the architecture follows. Numbers
    // from 0x40000000 on are x32's, another architecture with the same name.
    let mut program = vec![
        load(4),
        is(arch, 1, 0),
        end(libc::SECCOMP_RET_KILL_PROCESS),
        load(0),
        at_least(0x4000_0000, 0, 1),
        end(libc::SECCOMP_RET_KILL_PROCESS),
    ];
    for number in DENIED.iter().chain(DENIED_OLD) {
        program
            .extend([is(*number as u32, 0, 1), end(libc::SECCOMP_RET_ERRNO | libc::EPERM as u32)]);
    }
    program.push(end(libc::SECCOMP_RET_ALLOW));
    let program = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: the kernel copies the program, which lives until the call returns.
    #[expect(unsafe_code, reason = "nix does not have it")]
    let set =
        unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) };
    match Errno::result(set) {
        Ok(_) | Err(Errno::EINVAL) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::fd::OwnedFd;

    use nix::fcntl::{OFlag, open};
    use nix::sys::signal::kill;

    use super::*;
    use crate::io::test_folder::TestFolder;

    /// What the confined process writes, and how it ends.
    fn run_with(work: impl FnOnce() -> String) -> (String, Option<String>) {
        let place = TestFolder::new("confined");
        std::fs::write(place.join("inside"), "it").expect("a file of ours");
        let root: OwnedFd = open(&*place, OFlag::O_DIRECTORY, Mode::empty()).expect("a folder");
        let file = File::open("/etc/passwd").expect("any file");
        let work = |_: &Confined<'_>, to: &mut UnixStream| {
            to.write_all(work().as_bytes()).expect("it is read");
        };
        let answer = |from: &mut UnixStream| {
            let mut text = String::new();
            from.read_to_string(&mut text).map(|_| text).expect("it is written")
        };
        run(&root, &file, work, answer).expect("it is started")
    }

    #[test]
    fn it_sees_its_folder_and_nothing_else() {
        let parent = getpid();
        let (seen, ended) = run_with(move || {
            let name = |error: io::Error| error.kind().to_string();
            let errno = |errno: Errno| format!("{errno:?}");
            let inside = std::fs::read_to_string("/inside").unwrap_or_else(name);
            let passwd = std::fs::read("/../../etc/passwd").map_or_else(name, |_| "read".into());
            let socket = UnixStream::pair().map_or_else(name, |_| "a pair".into());
            let network = std::net::UdpSocket::bind("0.0.0.0:0").map_or_else(name, |_| "up".into());
            let signal = kill(parent, None).map_or_else(errno, |()| "sent".into());
            let program = std::process::Command::new("/inside").spawn();
            let program = program.map_or_else(name, |_| "started".into());
            let root = chroot("/").map_or_else(errno, |()| "changed".into());
            // Its own two, the folder and standard error.
            let open = (0..1_000).filter(|fd| {
                nix::fcntl::fcntl(
                    // SAFETY: it is only looked at.
                    #[expect(unsafe_code, reason = "any number")]
                    unsafe {
                        std::os::fd::BorrowedFd::borrow_raw(*fd)
                    },
                    nix::fcntl::FcntlArg::F_GETFD,
                )
                .is_ok()
            });
            let open = open.count();
            [inside, passwd, socket, network, signal, program, root, open.to_string()].join(", ")
        });
        let denied = "permission denied";
        let want = format!("it, entity not found, {denied}, {denied}, EPERM, {denied}, EPERM, 4");
        assert_eq!((seen, ended), (want, None));
    }

    /// Seen from outside: each of these would be behind another wall.
    #[test]
    fn it_has_namespaces_and_limits_of_its_own() {
        let place = TestFolder::new("confined");
        let root: OwnedFd = open(&*place, OFlag::O_DIRECTORY, Mode::empty()).expect("a folder");
        let file = File::open("/etc/passwd").expect("any file");
        let work = |_: &Confined<'_>, to: &mut UnixStream| {
            to.write_all(&getpid().as_raw().to_ne_bytes()).expect("it is read");
            // Until it has been looked at.
            to.read_exact(&mut [0]).expect("it is written");
        };
        let seen = run(&root, &file, work, |from| {
            let mut number = [0; 4];
            from.read_exact(&mut number).expect("it is written");
            let child = format!("/proc/{}", i32::from_ne_bytes(number));
            let link = |of: &str, name: &str| std::fs::read_link(format!("{of}/ns/{name}"));
            let own = |name: &str| {
                let [its, ours] = [&*child, "/proc/self"].map(|of| link(of, name).expect("a link"));
                format!("{name} {}", if its == ours { "shared" } else { "its own" })
            };
            let line = |name: &str, start: &str| {
                let text = std::fs::read_to_string(format!("{child}/{name}")).expect("it lives");
                let line = text.lines().find(|line| line.starts_with(start)).expect(start);
                line.split_ascii_whitespace().collect::<Vec<_>>().join(" ")
            };
            let status = ["Umask:", "NoNewPrivs:", "Seccomp:"].map(|name| line("status", name));
            let core = line("limits", "Max core file size");
            let seen = [own("net"), own("ipc"), status.join(", "), core].join(", ");
            from.write_all(&[0]).expect("it waits");
            seen
        });
        let want = "net its own, ipc its own, Umask: 0000, NoNewPrivs: 1, Seccomp: 2, \
                    Max core file size 0 0 bytes";
        assert_eq!(seen.expect("it is started"), (want.to_owned(), None));
    }

    #[test]
    fn its_memory_has_a_bound() {
        const PIECE: u64 = 4 << 20;
        // It may also use what other tests have freed in this process.
        let most = LAYER_MEMORY_BYTES_MAX * 16;
        let (seen, ended) = run_with(|| {
            let mut pieces = Vec::new();
            while (pieces.len() as u64) * PIECE < most {
                let mut piece = Vec::<u8>::new();
                if piece.try_reserve_exact(PIECE as usize).is_err() {
                    break;
                }
                pieces.push(piece);
            }
            (pieces.len() as u64 * PIECE).to_string()
        });
        assert_eq!(ended, None);
        let bytes: u64 = seen.parse().expect("a number");
        assert!((LAYER_MEMORY_BYTES_MAX / 2..most).contains(&bytes), "{bytes}");
    }

    #[test]
    fn it_keeps_six_capabilities() {
        let (seen, _) = run_with(|| {
            let head = CapabilityHead { version: 0x2008_0522, pid: 0 };
            let mut words = [Capabilities::default(); 2];
            // SAFETY: as in [`keep_capabilities`].
            #[expect(unsafe_code, reason = "nix does not have it")]
            let got =
                unsafe { libc::syscall(libc::SYS_capget, &raw const head, words.as_mut_ptr()) };
            assert_eq!(got, 0);
            let [low, high] = words;
            format!(
                "{:x} {:x} {:x}",
                low.effective & !KEPT | high.effective,
                low.permitted & !KEPT | high.permitted,
                low.inheritable | high.inheritable
            )
        });
        assert_eq!(seen, "0 0 0");
    }

    #[test]
    fn it_does_not_wait_for_a_reader_that_is_gone() {
        let place = TestFolder::new("confined");
        let root: OwnedFd = open(&*place, OFlag::O_DIRECTORY, Mode::empty()).expect("a folder");
        let file = File::open("/etc/passwd").expect("any file");
        let work = |_: &Confined<'_>, to: &mut UnixStream| {
            let refused = to.write_all(&vec![0; 8 << 20]).expect_err("nobody reads it");
            assert_eq!(refused.kind(), io::ErrorKind::BrokenPipe);
        };
        let (read, ended) = run(&root, &file, work, |_| "nothing").expect("it is started");
        assert_eq!((read, ended), ("nothing", None));
    }

    #[test]
    fn its_end_is_told() {
        let (seen, ended) = run_with(|| panic!("a bug"));
        assert_eq!((&*seen, ended.as_deref()), ("", Some("it panicked")));
        let (_, ended) = run_with(|| {
            // SAFETY: it ends the process.
            #[expect(unsafe_code, reason = "abort needs a signal, which it may not send")]
            unsafe {
                libc::_exit(libc::ENOSYS)
            }
        });
        let why = ended.expect("it did not end well");
        assert_eq!(why, "it could not be confined: Function not implemented");
    }
}
