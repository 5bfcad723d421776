//! Processes that this program did not start, or not directly: each is named by its number, its
//! start time and the boot, so that a later process with its number is not taken for it.

#![expect(unsafe_code, reason = "the calls for pidfds are in no library of the tree")]

use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::model::runtime::{BootId, Process};

/// The running kernel's `boot_id`.
pub fn boot_id() -> io::Result<BootId> {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    Ok(BootId(text.trim().into()))
}

/// Names the process that has this number now.
pub fn name(pid: i32) -> io::Result<Process> {
    Ok(Process { pid, start_time: stat(pid)?.start_time, boot: boot_id()? })
}

/// What of `/proc/PID/stat` is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    /// The session's number.
    pub session: i32,
    /// Clock ticks since boot.
    pub start_time: u64,
    /// It has ended, and its parent does not know yet.
    pub zombie: bool,
    /// Of a zombie: as waitpid(2) has it.
    pub status: i32,
}

/// Of the process that has this number now.
pub fn stat(pid: i32) -> io::Result<Stat> {
    let text = fs::read(format!("/proc/{pid}/stat"))?;
    parse(&text).ok_or_else(|| io::Error::other(format!("/proc/{pid}/stat: not of its form")))
}

/// Fields 3, 6, 22 and 52: the name, which is field 2, may have spaces and brackets.
fn parse(text: &[u8]) -> Option<Stat> {
    let after_name = text.iter().rposition(|byte| *byte == b')')? + 1;
    let text = str::from_utf8(&text[after_name..]).ok()?;
    let fields: Vec<&str> = text.split_ascii_whitespace().collect();
    Some(Stat {
        session: fields.get(3)?.parse().ok()?,
        start_time: fields.get(19)?.parse().ok()?,
        zombie: matches!(fields.first(), Some(&"Z" | &"X")),
        status: fields.get(49).map_or(Ok(0), |status| status.parse()).ok()?,
    })
}

/// A handle on the process, if it is there; it may have ended, while its parent does not know yet.
pub fn open(process: &Process) -> io::Result<Option<PidFd>> {
    if boot_id()? != process.boot {
        return Ok(None);
    }
    let handle = match PidFd::open(process.pid) {
        Ok(handle) => handle,
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => return Ok(None),
        Err(error) => return Err(error),
    };
    // Only now is it certain which process the handle is of.
    let is_it = |stat: &Stat| stat.start_time == process.start_time;
    Ok(stat(process.pid).ok().filter(is_it).map(|_| handle))
}

/// How it has ended, if its parent does not know yet.
pub fn zombie_status(process: &Process) -> Option<i32> {
    let stat = stat(process.pid).ok()?;
    (stat.zombie && stat.start_time == process.start_time).then_some(stat.status)
}

/// Sends a signal if the process is still there.
pub fn signal(process: &Process, signal: i32) -> io::Result<()> {
    match open(process)? {
        Some(handle) => handle.signal(signal),
        None => Ok(()),
    }
}

/// A process by a handle that no other process can get (pidfd_open(2)). Before Linux 5.3 by its
/// number alone.
#[derive(Debug)]
pub struct PidFd {
    pid: i32,
    fd: Option<OwnedFd>,
}

/// `struct pidfd_info` of the kernel's `linux/pidfd.h`, in its first size.
#[repr(C)]
#[derive(Default)]
struct Info {
    mask: u64,
    cgroup: u64,
    /// Numbers and users.
    ids: [u32; 11],
    exit_code: i32,
}

/// `PIDFD_INFO_EXIT`
const INFO_EXIT: u64 = 1 << 3;
/// `PIDFD_GET_INFO`: `_IOWR(0xFF, 11, struct pidfd_info)`
const GET_INFO: u64 = 0xc000_ff0b | (size_of::<Info>() as u64) << 16;

impl PidFd {
    pub fn open(pid: i32) -> io::Result<Self> {
        // SAFETY: the call takes two numbers and gives back a descriptor, or an error.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
        match Errno::result(fd) {
            Ok(fd) => {
                // SAFETY: the kernel has just made this descriptor, and nobody else has it.
                let fd = unsafe { OwnedFd::from_raw_fd(fd as i32) };
                Ok(Self { pid, fd: Some(fd) })
            }
            Err(Errno::ENOSYS) => {
                nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), None)?;
                Ok(Self { pid, fd: None })
            }
            Err(errno) => Err(errno.into()),
        }
    }

    /// Readable once the process has ended; `None` on old kernels.
    pub fn readable(&self) -> Option<BorrowedFd<'_>> {
        self.fd.as_ref().map(AsFd::as_fd)
    }

    /// A process that is gone is no error.
    pub fn signal(&self, signal: i32) -> io::Result<()> {
        let null = std::ptr::null::<libc::siginfo_t>();
        let done = match &self.fd {
            // SAFETY: the descriptor is open; without a siginfo the kernel fills in its own.
            Some(fd) => unsafe {
                libc::syscall(libc::SYS_pidfd_send_signal, fd.as_raw_fd(), signal, null, 0)
            },
            // SAFETY: the call takes two numbers.
            None => i64::from(unsafe { libc::kill(self.pid, signal) }) as libc::c_long,
        };
        match Errno::result(done) {
            Ok(_) | Err(Errno::ESRCH) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Whether it has ended, waiting for that at most so many milliseconds.
    pub fn has_ended(&self, wait_ms: u16) -> bool {
        let Some(fd) = self.readable() else {
            return stat(self.pid).map_or(true, |stat| stat.zombie);
        };
        let mut fds = [PollFd::new(fd, PollFlags::POLLIN)];
        poll(&mut fds, PollTimeout::from(wait_ms)).is_ok_and(|ready| ready > 0)
    }

    /// The status, as waitpid(2) has it, of a process that has ended and that its parent knows of.
    /// `None`: not yet, or the kernel does not tell (before 6.15).
    pub fn exit_status(&self) -> Option<i32> {
        let fd = self.fd.as_ref()?;
        let mut info = Info { mask: INFO_EXIT, ..Info::default() };
        // SAFETY: the argument is a structure of the size that the request's number says, and
        // lives through the call.
        let done = unsafe { libc::ioctl(fd.as_raw_fd(), GET_INFO as _, &raw mut info) };
        (done == 0 && info.mask & INFO_EXIT != 0).then_some(info.exit_code)
    }
}

/// Waits. For jobs and monitors, which do one thing; a loop that does several must not.
pub fn pause(ms: u16) {
    let _ = poll(&mut [], PollTimeout::from(ms));
}

/// As the shell counts: the exit code, or 128 and the number of the signal.
pub fn code_of(status: i32) -> i32 {
    if libc::WIFSIGNALED(status) { 128 + libc::WTERMSIG(status) } else { libc::WEXITSTATUS(status) }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_name_with_brackets_does_not_confuse() {
        let text = b"7 (a) Z (b)) S 1 7 9 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 4711 0 0\n";
        let stat = Stat { session: 9, start_time: 4_711, zombie: false, status: 0 };
        assert_eq!(parse(text), Some(stat));
        for end in 0..40 {
            assert_eq!(parse(&text[..end]), None, "{end}");
        }
        assert_eq!(stat_of_self().session, nix::unistd::getsid(None).expect("ours").as_raw());
    }

    fn stat_of_self() -> Stat {
        stat(std::process::id() as i32).expect("this process")
    }

    #[test]
    fn a_process_is_found_by_its_name_and_another_is_not() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().expect("cat");
        let process = name(child.id() as i32).expect("it runs");
        let handle = open(&process).expect("no error").expect("it runs");
        assert!(!handle.has_ended(0) && handle.exit_status().is_none());
        for other in [
            Process { start_time: process.start_time + 1, ..process.clone() },
            Process { boot: BootId("other".into()), ..process.clone() },
            Process { pid: i32::MAX, ..process.clone() },
        ] {
            assert!(open(&other).expect("no error").is_none(), "{other:?}");
            signal(&other, libc::SIGKILL).expect("nobody is there");
        }
        signal(&process, libc::SIGKILL).expect("it runs");
        assert!(handle.has_ended(5_000));
        assert!(open(&process).expect("no error").is_some_and(|zombie| zombie.has_ended(0)));
        assert_eq!(zombie_status(&process), Some(libc::SIGKILL));
        let other = Process { start_time: process.start_time + 1, ..process.clone() };
        assert_eq!(zombie_status(&other), None);
        let status = child.wait().expect("ours");
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(libc::SIGKILL));
        // Kernels before 6.15 do not tell.
        let told = handle.exit_status();
        assert!(told.is_none_or(|status| code_of(status) == 137), "{told:?}");
        signal(&process, libc::SIGKILL).expect("it is gone");
        assert!(open(&process).expect("no error").is_none());
    }

    #[test]
    fn a_status_is_counted_as_the_shell_does() {
        assert_eq!((code_of(0), code_of(42 << 8), code_of(9)), (0, 42, 137));
    }
}
