//! Runs a program to its end: a CNI plugin, `iptables`, `crun --version`. Each has a deadline and
//! is killed with everything that it has started; of what it writes the beginning is kept.
//!
//! The caller waits, so this is for job children and for the server's start. **If we crash here**
//! the program goes on; the server kills a job together with its process group.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Seek, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Command, ExitStatus, Stdio};

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::files;
use crate::io::{clock, sys};
use crate::limits::{PROGRAM_OUTPUT_BYTES_MAX, PROGRAM_POLL_MS};
use crate::model::error::System;
use crate::model::map::Set;

/// How it ended, and the beginning of what it wrote.
#[derive(Debug)]
pub(super) struct Ended {
    pub status: ExitStatus,
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
}

/// One of its streams, until its end.
struct Stream {
    file: Option<File>,
    kept: Vec<u8>,
}

/// Programs find others in the usual folders also where init gave this process no PATH.
pub(super) fn with_path(command: &mut Command) {
    if std::env::var_os("PATH").is_none_or(|path| path.is_empty()) {
        command.env("PATH", PATH);
    }
}

/// A program that this job or monitor runs, without the bound of memory that `edged-run` sets for
/// the server: containers would inherit it, and plugins in Go reserve 8 MB for each thread.
pub(super) fn unbounded(path: impl AsRef<OsStr>) -> Command {
    sys::lift_memory_bound();
    Command::new(path)
}

/// The folders of programs.
pub(super) const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Runs it with this standard input. Output of programs that it leaves behind is not awaited.
pub(super) fn run(command: &mut Command, input: &[u8], deadline_ms: u64) -> Result<Ended, System> {
    let name = command.get_program().to_string_lossy().into_owned();
    let failed = |error: io::Error| System::at(&name, error);
    let until = clock::boot().plus_ms(deadline_ms);
    command.stdin(in_memory(input).map_err(failed)?);
    let mut child =
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().map_err(failed)?;
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let mut streams = [
        Stream::of(stdout.expect("it is piped").into()).map_err(failed)?,
        Stream::of(stderr.expect("it is piped").into()).map_err(failed)?,
    ];
    loop {
        // In this order: whatever it has written is read after it has ended.
        let ended = child.try_wait().map_err(failed)?;
        for stream in &mut streams {
            stream.read().map_err(failed)?;
        }
        if let Some(status) = ended {
            let [stdout, stderr] = streams.map(|stream| stream.kept);
            return Ok(Ended { status, stdout, stderr });
        }
        let left_ms = until.0.saturating_sub(clock::boot().0);
        if left_ms == 0 {
            kill_all(&mut child);
            let seconds = deadline_ms / 1_000;
            return Err(System::at(&name, format_args!("did not end within {seconds} s: killed")));
        }
        let mut waits: Vec<PollFd<'_>> = streams.iter().filter_map(Stream::poll_fd).collect();
        // Its streams usually end with it; otherwise its end is seen after a while.
        let wait_ms = if waits.is_empty() { 1 } else { left_ms.min(PROGRAM_POLL_MS) };
        let _ =
            poll(&mut waits, PollTimeout::try_from(wait_ms as i32).unwrap_or(PollTimeout::ZERO));
    }
}

impl Stream {
    fn of(fd: OwnedFd) -> io::Result<Self> {
        fcntl(&fd, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        Ok(Self { file: Some(fd.into()), kept: Vec::new() })
    }

    fn poll_fd(&self) -> Option<PollFd<'_>> {
        self.file.as_ref().map(|file| PollFd::new(file.as_fd(), PollFlags::POLLIN))
    }

    /// Reads what is there.
    fn read(&mut self) -> io::Result<()> {
        let mut buffer = [0; 4 << 10];
        while let Some(file) = &mut self.file {
            match file.read(&mut buffer) {
                Ok(0) => self.file = None,
                Ok(count) => {
                    let room = PROGRAM_OUTPUT_BYTES_MAX - self.kept.len();
                    self.kept.extend_from_slice(&buffer[..count.min(room)]);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// A file in memory: a program may end without reading it, and is not waited for.
fn in_memory(bytes: &[u8]) -> io::Result<File> {
    let mut file = File::from(memfd_create(c"stdin", MFdFlags::MFD_CLOEXEC)?);
    file.write_all(bytes)?;
    file.rewind()?;
    Ok(file)
}

/// Kills it and its descendants: a plugin runs further ones, which could wait for a lock and go on
/// later.
fn kill_all(child: &mut Child) {
    for pid in descendants(child.id() as i32) {
        let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
    }
    let _ = child.kill();
    let _ = child.wait();
}

/// As `/proc` shows them now, without the process itself.
fn descendants(of: i32) -> Set<i32> {
    let parents: Vec<(i32, i32)> = files::numbers("/proc")
        .into_iter()
        .filter_map(|pid| {
            let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
            // The name may contain anything: `7 (a) b) S 1 …`.
            let end = stat.iter().rposition(|byte| *byte == b')')?;
            let rest = str::from_utf8(&stat[end..]).ok()?;
            Some((pid, rest.split(' ').nth(2)?.parse().ok()?))
        })
        .collect();
    let mut found = Set::new();
    let mut parents_of = vec![of];
    while let Some(parent) = parents_of.pop() {
        let children = parents.iter().filter(|(_, its)| *its == parent).map(|(pid, _)| *pid);
        parents_of.extend(children.filter(|pid| found.insert(*pid)));
    }
    found
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use nix::libc::RLIM_INFINITY;

    use super::*;
    use crate::config::Config;
    use crate::io::builtin::layout::Settings;
    use crate::io::builtin::{cni, oci};
    use crate::io::test_folder::TestFolder;

    /// What `edged-run` sets for the server is neither for containers nor for plugins.
    #[test]
    fn programs_of_jobs_and_monitors_have_no_bound_of_memory_below_the_hard_one() {
        use nix::sys::resource::{Resource, getrlimit, setrlimit};

        let bound = || getrlimit(Resource::RLIMIT_DATA).expect("it can be read");
        let (_, hard) = bound();
        // No other test lowers it, so nothing but what is tested lifts it for all.
        let lower = || {
            let low = hard.min(1 << 40);
            setrlimit(Resource::RLIMIT_DATA, low, hard).expect("it is below the hard one");
        };
        lower();
        let mut asked = unbounded("/bin/sh");
        let ended = run(asked.args(["-c", "ulimit -d"]), b"", 10_000).expect("it ended");
        let in_kb = if hard == RLIM_INFINITY { "unlimited\n" } else { "" };
        assert!(str::from_utf8(&ended.stdout).is_ok_and(|it| it.ends_with(in_kb)), "{ended:?}");
        let settings = Settings::of(&Config::default());
        let makers: [&dyn Fn() -> Command; 2] =
            [&|| oci::command(&settings, Path::new("/nowhere/log")), &|| {
                cni::command(Path::new("/nowhere"), "bridge")
            }];
        for make in makers {
            lower();
            let command = make();
            assert_eq!(bound(), (hard, hard), "{command:?}");
        }
    }

    fn shell(script: &str) -> Command {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn it_gets_its_input_and_its_output_is_read() {
        let input = "x".repeat(200 << 10);
        let ended = run(&mut shell("wc -c; echo why >&2; exit 3"), input.as_bytes(), 10_000);
        let ended = ended.expect("it ended");
        assert_eq!(ended.status.code(), Some(3));
        assert_eq!((&*ended.stdout, &*ended.stderr), (&b"204800\n"[..], &b"why\n"[..]));
        assert!(run(&mut shell("exit 0"), input.as_bytes(), 10_000).is_ok(), "it reads nothing");
        let absent = run(&mut Command::new("/nowhere/plugin"), b"", 10_000).expect_err("absent");
        assert_eq!(absent.to_string(), "/nowhere/plugin: No such file or directory (os error 2)");
    }

    #[test]
    fn of_much_output_the_beginning_is_kept() {
        let script = format!("head -c {} /dev/zero", 3 * PROGRAM_OUTPUT_BYTES_MAX);
        let ended = run(&mut shell(&script), b"", 10_000).expect("it is not held up");
        assert!(ended.status.success());
        assert_eq!(ended.stdout.len(), PROGRAM_OUTPUT_BYTES_MAX);
    }

    #[test]
    fn what_it_leaves_behind_is_not_awaited() {
        // It would last for more than a day.
        let ended = run(&mut shell("sleep 98766 & echo $!"), b"", 3_600_000).expect("it ended");
        let pid: i32 = String::from_utf8_lossy(&ended.stdout).trim().parse().expect("a pid");
        kill(Pid::from_raw(pid), Signal::SIGKILL).expect("it runs");
    }

    #[test]
    fn what_does_not_end_is_killed_with_what_it_has_started() {
        let top = TestFolder::new("program");
        let place = top.join("pid");
        let script = format!("(sleep 98767; :) & echo $! > {0}; wait", place.display());
        let refused = run(&mut shell(&script), b"", 300).expect_err("it does not end");
        assert_eq!(refused.to_string(), "/bin/sh: did not end within 0 s: killed");
        let pid = fs::read_to_string(&place).expect("it began").trim().to_owned();
        // The signal is on its way; who reaps it is not this program.
        let lives = || {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            !stat.is_empty() && !stat.contains(") Z ")
        };
        while lives() {
            shell(&format!("sleep 0.{PROGRAM_POLL_MS:03}")).status().expect("a shell");
        }
    }
}
