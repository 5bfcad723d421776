//! `edged pause FOLDER`: holds the process namespace of a pod whose containers share one
//! (`shareProcessNamespace`). Such a namespace lives as long as its first process: this one.
//!
//! ```text
//!  job    unshare(pid) ─▶ starts it ─▶ its cgroup ─▶ mounts its namespace on `pid` ─▶ ready
//!  holder opens `holder` ─▶ an empty root, no user's privileges ─▶ ready ─▶ reaps, and waits
//! ```
//!
//! It is process 1 of the pod, so it reaps what containers leave. It has an empty read-only root,
//! no capabilities and a user of its own, and ends by SIGTERM, or when something is written to the
//! FIFO `holder`: the job that ends the sandbox needs no process id for that. **If we crash here**
//! the kernel kills every process of the pod, and the job that makes its next container finds that
//! the sandbox is lost.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::mount::{MntFlags, MsFlags, umount2};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::prctl;
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::stat::Mode;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{
    ForkResult, Gid, Pid, Uid, chdir, fork, mkfifo, pivot_root, setgroups, setresgid, setresuid,
    setsid,
};

use super::files::{self, at};
use crate::limits::HOLDER_READY_MS;
use crate::model::error::System;

/// What it has in a sandbox's folder: a FIFO, its root, and the namespace.
pub(super) const FILES: [&str; 3] = [HOLDER, ROOT, NAMESPACE];
const HOLDER: &str = "holder";
const ROOT: &str = "root";
const NAMESPACE: &str = "pid";

/// Starts it as the first process of a new process namespace: the caller has made one for its
/// children, and is in the other namespaces of the pod; or it is to be made in the user namespace
/// `users`. `cgroups`: its folders, one for each hierarchy.
pub(super) fn hold(
    program: &Path,
    folder: &Path,
    cgroups: &[impl AsRef<Path>],
    users: Option<&Path>,
) -> Result<(), System> {
    let fifo = folder.join(HOLDER);
    mkfifo(&fifo, Mode::from_bits_truncate(0o600))
        .map_err(|errno| at("mkfifo", &fifo, &errno.into()))?;
    files::make_dir(&folder.join(ROOT))?;
    let mut call = Command::new(program);
    call.arg("pause").arg(folder).env_clear().current_dir("/");
    call.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let failed = |error: io::Error| at("cannot start", program, &error);
    let (mut child, pid) = match users {
        None => {
            let child = call.spawn().map_err(failed)?;
            let pid = Pid::from_raw(child.id() as i32);
            (child, pid)
        }
        Some(users) => {
            let owner = fs::metadata(folder).map_err(failed)?.gid();
            chown(&fifo, Some(owner), Some(owner)).map_err(failed)?;
            spawn_inside(call, users).map_err(failed)?
        }
    };
    let stdout = OwnedFd::from(child.stdout.take().expect("it is piped"));
    let held = settle(pid, stdout, folder, cgroups);
    if held.is_err() {
        let _ = kill(pid, Signal::SIGKILL);
        let _ = child.wait();
    }
    held
}

/// Starts it in a user namespace, as the first process of a process namespace that belongs to it. A
/// process is in another process namespace only from its start on: so there are two, and the first
/// one ends. → the first one, which has ended, and the pid of the second.
#[expect(unsafe_code, reason = "the standard library does not fork twice")]
fn spawn_inside(mut call: Command, users: &Path) -> io::Result<(Child, Pid)> {
    let users = File::open(users)?;
    let (from, to) = nix::unistd::pipe2(OFlag::O_CLOEXEC)?;
    let enter = move || {
        setns(&users, CloneFlags::CLONE_NEWUSER)?;
        setresgid(0.into(), 0.into(), 0.into())?;
        setresuid(0.into(), 0.into(), 0.into())?;
        unshare(CloneFlags::CLONE_NEWPID)?;
        // SAFETY: this process has one thread.
        if let ForkResult::Parent { child } = unsafe { fork() }? {
            let told = nix::unistd::write(&to, &child.as_raw().to_ne_bytes());
            // SAFETY: nothing of the job's is to be run here: no destructor, no exit handler.
            unsafe { libc::_exit(i32::from(told.is_err())) }
        }
        Ok(())
    };
    // SAFETY: a job has one thread, so the child may do all that its parent may.
    let spawned = unsafe { call.pre_exec(enter) }.spawn();
    // With it goes the pipe's end for writing: if the first process dies, reading ends.
    drop(call);
    let mut first = spawned?;
    let pid = read_pid(from, HOLDER_READY_MS);
    if pid.is_err() {
        let _ = first.kill();
    }
    first.wait()?;
    Ok((first, pid?))
}

/// The pid that comes from the pipe within this time. Not positive, it would stand for other
/// processes where it is signalled.
fn read_pid(from: OwnedFd, wait_ms: u16) -> io::Result<Pid> {
    let mut waits = [PollFd::new(from.as_fd(), PollFlags::POLLIN)];
    let _ = poll(&mut waits, PollTimeout::from(wait_ms));
    if waits[0].any() != Some(true) {
        let why = format!("got no process id within {wait_ms} ms");
        return Err(io::Error::new(ErrorKind::TimedOut, why));
    }
    let mut bytes = [0; 4];
    File::from(from).read_exact(&mut bytes)?;
    match i32::from_ne_bytes(bytes) {
        pid @ 1.. => Ok(Pid::from_raw(pid)),
        pid => Err(io::Error::other(format!("got the process id {pid}, expected a positive one"))),
    }
}

fn settle(
    pid: Pid,
    stdout: OwnedFd,
    folder: &Path,
    cgroups: &[impl AsRef<Path>],
) -> Result<(), System> {
    for cgroup in cgroups {
        let procs = cgroup.as_ref().join("cgroup.procs");
        fs::write(&procs, pid.to_string()).map_err(|error| at("write", &procs, &error))?;
    }
    let mut waits = [PollFd::new(stdout.as_fd(), PollFlags::POLLIN)];
    let _ = poll(&mut waits, PollTimeout::from(HOLDER_READY_MS));
    if waits[0].any() != Some(true) {
        let why = format!("it is not ready after {HOLDER_READY_MS} ms");
        return Err(System::at("edged pause", why));
    }
    // It writes one line, and closes its end.
    let mut word = String::new();
    let read = File::from(stdout).take(1 << 10).read_to_string(&mut word);
    read.map_err(|error| System::at("edged pause", error))?;
    if word != READY {
        let why = if word.is_empty() { "it ended" } else { &word };
        return Err(System::at("edged pause", why));
    }
    let (from, to) = (format!("/proc/{pid}/ns/pid"), folder.join(NAMESPACE));
    File::create(&to).map_err(|error| at("create", &to, &error))?;
    files::bind(Path::new(&from), &to).map_err(|errno| at("mount on", &to, &errno.into()))
}

const READY: &str = "ready";

/// Tells it to end, if it lives.
pub(super) fn release(folder: &Path) -> Result<(), System> {
    let fifo = folder.join(HOLDER);
    let mut options = OpenOptions::new();
    options.write(true).custom_flags(libc::O_NONBLOCK | libc::O_NOFOLLOW);
    let told = options.open(&fifo).and_then(|mut fifo| fifo.write_all(b"x"));
    match told {
        Ok(()) => Ok(()),
        // Nobody reads.
        Err(error) if error.raw_os_error() == Some(libc::ENXIO) => Ok(()),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::BrokenPipe) => Ok(()),
        Err(error) => Err(at("write", &fifo, &error)),
    }
}

/// Whether it lives, by its cgroup in each hierarchy: a process that ends is no longer in it.
pub(super) fn lives(cgroups: &[impl AsRef<Path>]) -> bool {
    let has_process = |cgroup: &&Path| {
        let list = fs::read(cgroup.join("cgroup.procs"));
        list.is_ok_and(|list| !list.is_empty())
    };
    cgroups.iter().map(AsRef::as_ref).all(|cgroup| has_process(&cgroup))
}

/// Removes its cgroup, once it has left it; otherwise whoever removes the pod's does.
pub(super) fn remove_cgroups(cgroups: &[impl AsRef<Path>]) {
    for cgroup in cgroups {
        for _ in 0..HOLDER_READY_MS / 10 {
            match fs::remove_dir(cgroup) {
                Err(error) if error.kind() == ErrorKind::ResourceBusy => {
                    let _ = poll(&mut [], PollTimeout::from(10_u8));
                }
                _ => break,
            }
        }
    }
}

/// The program.
pub fn run(folder: &Path) -> ExitCode {
    let mut stdout = io::stdout();
    match confine(folder) {
        Ok((fifo, signals, null)) => {
            let told = stdout.write_all(READY.as_bytes()).and_then(|()| stdout.flush());
            // The one who has started it is gone, or has it by now.
            if told.is_err() || nix::unistd::dup2_stdout(&null).is_err() {
                return ExitCode::FAILURE;
            }
            drop(null);
            wait(&fifo, &signals);
            ExitCode::SUCCESS
        }
        Err(why) => {
            let _ = stdout.write_all(why.to_string().as_bytes());
            ExitCode::FAILURE
        }
    }
}

/// → the FIFO, the signals, and `/dev/null`.
fn confine(folder: &Path) -> Result<(File, SignalFd, File), System> {
    if nix::unistd::getpid().as_raw() != 1 {
        let why = "edged pause: got another process than the first of a namespace, expected to be \
                   started by edged runtime";
        return Err(System::new(why));
    }
    close_others();
    let step = |what: &'static str| move |errno: Errno| System::at(what, errno.desc());
    let mut signals = SigSet::empty();
    signals.extend([Signal::SIGTERM, Signal::SIGINT, Signal::SIGCHLD]);
    SigSet::all().thread_block().map_err(step("sigprocmask"))?;
    let signals = SignalFd::with_flags(&signals, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)
        .map_err(step("signalfd"))?;
    let (fifo, null) = (folder.join(HOLDER), Path::new("/dev/null"));
    let mut options = OpenOptions::new();
    let opened = options.read(true).custom_flags(libc::O_NONBLOCK).open(&fifo);
    let fifo = opened.map_err(|error| at("open", &fifo, &error))?;
    let null =
        OpenOptions::new().write(true).open(null).map_err(|error| at("open", null, &error))?;
    // A job that is killed takes its group with it.
    setsid().map_err(step("setsid"))?;
    // As other runtimes have it; without the privilege it stays as it is.
    let _ = fs::write("/proc/self/oom_score_adj", "-998");
    unshare(CloneFlags::CLONE_NEWNS).map_err(step("unshare"))?;
    let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
    files::mount(None, Path::new("/"), None, private, None).map_err(step("mount /"))?;
    let root = folder.join(ROOT);
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC | MsFlags::MS_RDONLY;
    files::mount(Some(Path::new("none")), &root, Some("tmpfs"), flags, Some(OF_ROOT))
        .map_err(step("mount tmpfs"))?;
    chdir(&root).map_err(step("chdir"))?;
    pivot_root(".", ".").map_err(step("pivot_root"))?;
    umount2(".", MntFlags::MNT_DETACH).map_err(step("umount"))?;
    chdir("/").map_err(step("chdir"))?;
    setgroups(&[]).map_err(step("setgroups"))?;
    let (user, group) = (Uid::from_raw(NOBODY), Gid::from_raw(NOBODY));
    setresgid(group, group, group).map_err(step("setresgid"))?;
    setresuid(user, user, user).map_err(step("setresuid"))?;
    prctl::set_no_new_privs().map_err(step("prctl"))?;
    prctl::set_dumpable(false).map_err(step("prctl"))?;
    prctl::set_name(c"pause").map_err(step("prctl"))?;
    Ok((fifo, signals, null))
}

/// For an empty root.
const OF_ROOT: &str = "size=4k,mode=0555";

/// A descriptor that this process was started with by mistake could lead out of its root.
fn close_others() {
    for fd in files::numbers("/proc/self/fd").into_iter().filter(|fd| *fd > libc::STDERR_FILENO) {
        let _ = nix::unistd::close(fd);
    }
}

/// The user that pause programs have elsewhere.
const NOBODY: u32 = 65_535;

fn wait(fifo: &File, signals: &SignalFd) {
    loop {
        let mut waits = [
            PollFd::new(fifo.as_fd(), PollFlags::POLLIN),
            PollFd::new(signals.as_fd(), PollFlags::POLLIN),
        ];
        let _ = poll(&mut waits, PollTimeout::NONE);
        if waits[0].any() == Some(true) {
            return;
        }
        while let Ok(Some(signal)) = signals.read_signal() {
            if signal.ssi_signo != Signal::SIGCHLD as u32 {
                return;
            }
        }
        // One signal may stand for several children.
        while let Ok(ended) = waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            if ended == WaitStatus::StillAlive {
                break;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_holder_whose_pid_does_not_come_is_a_failure_and_no_wait() {
        let pipe = || nix::unistd::pipe2(OFlag::O_CLOEXEC).expect("a pipe");
        for (bytes, expected) in [
            (7_i32.to_ne_bytes().to_vec(), Ok(7)),
            (0_i32.to_ne_bytes().to_vec(), Err("got the process id 0, expected a positive one")),
            ((-1_i32).to_ne_bytes().to_vec(), Err("got the process id -1, expected a positive")),
            (vec![1, 0], Err("failed to fill whole buffer")),
        ] {
            let (from, to) = pipe();
            File::from(to).write_all(&bytes).expect("a pipe has room");
            match (read_pid(from, HOLDER_READY_MS), expected) {
                (Ok(pid), Ok(expected)) => assert_eq!(pid.as_raw(), expected),
                (Err(why), Err(begin)) => assert!(why.to_string().starts_with(begin), "{why}"),
                (got, expected) => panic!("got {got:?}, expected {expected:?}"),
            }
        }
        let (from, _to) = pipe();
        let why = read_pid(from, 10).expect_err("nothing comes");
        assert_eq!(why.to_string(), "got no process id within 10 ms");
    }

    #[test]
    #[expect(unsafe_code, reason = "it has to die before the program begins")]
    fn a_first_process_that_dies_is_noticed_at_once() {
        let mut call = Command::new("/bin/true");
        // SAFETY: it ends the process, and runs nothing of the parent's.
        unsafe { call.pre_exec(|| libc::_exit(3)) };
        let why = spawn_inside(call, Path::new("/proc/self/ns/user")).expect_err("it has died");
        assert_eq!(why.kind(), ErrorKind::UnexpectedEof, "{why}");
    }
}
