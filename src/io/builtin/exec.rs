//! The job that runs a command in a container: the OCI runtime's `exec` with the container's own
//! user, variables, capabilities and folder, without input and terminal.
//!
//! SIGTERM kills the command with its session, as its timeout does: it is what a cancelled call and
//! the server's death come to. **If it is killed otherwise** the command goes on in the container,
//! until the container ends.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::Pid;

use super::container::CONFIG;
use super::layout::Settings;
use super::process::{self, PidFd};
use super::{cgroup, files, monitor, oci, user_namespace};
use crate::io::clock;
use crate::limits::{
    EXEC_DRAIN_MS, EXEC_OUTPUT_BYTES_MAX, RUNTIME_KILL_PASSES_MAX, RUNTIME_KILL_PAUSE_MS,
};
use crate::model::runtime::{ContainerFolder, ExecOutput, JobFault, JobReply};
use crate::wire::oci::spec;

/// Runs `command`; `timeout_s` 0: as long as it takes. What it writes beyond
/// [`EXEC_OUTPUT_BYTES_MAX`] of each stream is dropped. A command that is killed at its timeout is
/// [`JobFault::TimedOut`]; one that cannot be started is [`JobFault::Failed`] with the text of the
/// OCI runtime.
pub fn exec(
    settings: &Settings,
    container: &ContainerFolder,
    command: &[String],
    timeout_s: u32,
) -> Result<JobReply, JobFault> {
    let failed = |what: &str, error: &dyn std::fmt::Display| {
        JobFault::Failed(format!("failed to exec in container: {what}: {error}"))
    };
    let told = told_to_end().map_err(|error| failed("signals", &error))?;
    let folder = settings.layout.container(&container.id);
    let (files, mut call) = prepare(settings, &folder, command, false)?;
    call.arg(&*container.id.0);
    let mut child = spawn(call).map_err(|error| failed("the OCI runtime", &error))?;
    user_namespace::own_streams(&folder, &child).map_err(|error| failed("streams", &error))?;
    cgroup::begin_grace_period();
    let outcome = watch(&mut child, timeout_s, &files, told.as_fd());
    let output = match outcome.map_err(|error| failed("output", &error))? {
        Outcome::Ended(output) => output,
        Outcome::Late => return Err(JobFault::TimedOut(format!("timeout {timeout_s}s exceeded"))),
        Outcome::Told => return Err(JobFault::Died("it was told to end".to_owned())),
    };
    // It notes the process once it has one.
    if files.path("pid").exists() {
        return Ok(JobReply::Exec(output));
    }
    let words = || String::from_utf8_lossy(&output.stderr).trim().to_owned();
    let why = oci::last_error(&files.path("log")).unwrap_or_else(words);
    Err(failed("exec failed", &why))
}

/// A call of the OCI runtime's `exec`, and its files. The container's name is to follow as the last
/// argument.
/// Several commands may run at once; this process runs one.
pub(super) fn prepare(
    settings: &Settings,
    folder: &Path,
    command: &[String],
    tty: bool,
) -> Result<(Files, Command), JobFault> {
    if command.is_empty() {
        return Err(JobFault::Invalid("got no command, expected a program".to_owned()));
    }
    let failed = |what: &str, error: &dyn std::fmt::Display| {
        JobFault::Failed(format!("failed to exec in container: {what}: {error}"))
    };
    let config = fs::read(folder.join(CONFIG)).map_err(|error| failed(CONFIG, &error))?;
    let form = || JobFault::Failed(format!("{CONFIG}: not of its form"));
    let process = spec::exec_process(&config, command, tty).ok_or_else(form)?;
    drop(config);
    let files = Files::new(folder);
    monitor::replace_in(folder, &Files::name("process"), &process)
        .map_err(|error| failed("process", &error))?;
    let mut call = oci::command(settings, &files.path("log"));
    call.arg("exec").arg("--process").arg(files.path("process"));
    call.arg("--pid-file").arg(files.path("pid"));
    Ok((files, call))
}

/// SIGTERM as a descriptor: from the server that cancels the call, or from the kernel if the server
/// dies.
fn told_to_end() -> io::Result<SignalFd> {
    let mask = SigSet::from(Signal::SIGTERM);
    mask.thread_block()?;
    let told = SignalFd::with_flags(&mask, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?;
    nix::sys::prctl::set_pdeathsig(Signal::SIGTERM)?;
    Ok(told)
}

/// In a session of its own, in which the command is unless the OCI runtime makes another one for
/// it: what is killed at a timeout is not in this program's session.
#[expect(unsafe_code, reason = "the standard library sets no session")]
fn spawn(mut call: Command) -> io::Result<Child> {
    let before_exec = || {
        nix::unistd::setsid()?;
        Ok(SigSet::empty().thread_set_mask()?)
    };
    // SAFETY: between fork and exec there are two system calls, and nothing else of this program.
    unsafe {
        call.pre_exec(before_exec);
    }
    call.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()
}

/// This call's files in the container's folder, removed at the end.
pub(super) struct Files(PathBuf);

impl Files {
    fn new(folder: &Path) -> Self {
        Self(folder.to_owned())
    }

    pub(super) fn path(&self, of: &str) -> PathBuf {
        self.0.join(Self::name(of))
    }

    pub(super) fn name(of: &str) -> String {
        format!("exec-{}.{of}", std::process::id())
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        for of in ["process", "log", "pid", "console"] {
            let _ = fs::remove_file(self.path(of));
        }
    }
}

/// What became of a command.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    Ended(ExecOutput),
    /// Its time was over, and it was killed.
    Late,
    /// This process is told to end, and the command was killed.
    Told,
}

/// Until it has ended, or was killed. `told` is readable when it is to be killed.
fn watch(
    child: &mut Child,
    timeout_s: u32,
    files: &Files,
    told: BorrowedFd<'_>,
) -> io::Result<Outcome> {
    let mut streams = [
        Stream::new(File::from(std::os::fd::OwnedFd::from(child.stdout.take().expect("piped"))))?,
        Stream::new(File::from(std::os::fd::OwnedFd::from(child.stderr.take().expect("piped"))))?,
    ];
    let handle = PidFd::open(child.id() as i32)?;
    let until = clock::precise() + Duration::from_secs(u64::from(timeout_s));
    let mut ended: Option<(i32, Duration)> = None;
    loop {
        if ended.is_none()
            && let Some(status) = child.try_wait()?
        {
            let status = std::os::unix::process::ExitStatusExt::into_raw(status);
            let drained_at = clock::precise() + Duration::from_millis(EXEC_DRAIN_MS);
            ended = Some((process::code_of(status), drained_at));
        }
        let open = streams.iter().any(|stream| stream.file.is_some());
        let until = match ended {
            Some((exit_code, drained_at)) if !open || clock::precise() >= drained_at => {
                let [stdout, stderr] = streams.map(|stream| stream.kept);
                return Ok(Outcome::Ended(ExecOutput { stdout, stderr, exit_code }));
            }
            Some((_, drained_at)) => Some(drained_at),
            None => Some(until).filter(|_| timeout_s > 0),
        };
        let left = until.map(|until| until.saturating_sub(clock::precise()));
        let is_late = ended.is_none() && left.is_some_and(|left| left.is_zero());
        let handle = handle.readable().filter(|_| ended.is_none());
        if is_late || wait(&streams, handle, told, left, ended.is_none()) {
            kill_sessions(child.id() as i32, files);
            child.kill()?;
            child.wait()?;
            return Ok(if is_late { Outcome::Late } else { Outcome::Told });
        }
        for stream in &mut streams {
            stream.read();
        }
    }
}

/// Whether it is told to end.
fn wait(
    streams: &[Stream; 2],
    handle: Option<BorrowedFd<'_>>,
    told: BorrowedFd<'_>,
    left: Option<Duration>,
    running: bool,
) -> bool {
    let files = streams.iter().filter_map(|stream| stream.file.as_ref()).map(AsFd::as_fd);
    let has_handle = handle.is_some();
    let readable = |fd| PollFd::new(fd, PollFlags::POLLIN);
    let mut fds: Vec<PollFd<'_>> =
        [told].into_iter().chain(files).chain(handle).map(readable).collect();
    // Without a handle its end is looked for.
    let most = if has_handle || !running { Duration::from_secs(3_600) } else { POLL };
    let left = left.unwrap_or(most).min(most).max(Duration::from_millis(1));
    let _ = poll(&mut fds, PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX));
    fds[0].any() == Some(true)
}

const POLL: Duration = Duration::from_millis(10);

struct Stream {
    /// `None`: it has ended.
    file: Option<File>,
    kept: Vec<u8>,
}

impl Stream {
    fn new(file: File) -> io::Result<Self> {
        fcntl(&file, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        Ok(Self { file: Some(file), kept: Vec::new() })
    }

    fn read(&mut self) {
        let mut buffer = [0; 4_096];
        // Not without end: the other stream and the time count as well.
        for _ in 0..16 {
            let Some(file) = &mut self.file else { return };
            match file.read(&mut buffer) {
                Ok(0) => self.file = None,
                Ok(bytes) => {
                    let room = EXEC_OUTPUT_BYTES_MAX - self.kept.len();
                    self.kept.extend_from_slice(&buffer[..bytes.min(room)]);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(_) => self.file = None,
            }
        }
    }
}

/// Kills the command and what it has started in its session, again until nothing is left.
fn kill_sessions(oci: i32, files: &Files) {
    let noted = fs::read_to_string(files.path("pid")).unwrap_or_default();
    let of_command = noted.trim().parse().ok().and_then(|pid| process::stat(pid).ok());
    let sessions = [oci, of_command.map_or(oci, |stat| stat.session)];
    for _ in 0..RUNTIME_KILL_PASSES_MAX {
        let of_it = |pid: &i32| {
            process::stat(*pid).is_ok_and(|stat| sessions.contains(&stat.session) && !stat.zombie)
        };
        let mut left = false;
        for pid in files::numbers("/proc").into_iter().filter(of_it) {
            left |= kill(Pid::from_raw(pid), Signal::SIGKILL).is_ok();
        }
        if !left {
            return;
        }
        process::pause(RUNTIME_KILL_PAUSE_MS);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A program in the OCI runtime's place. `told`: what tells this process to end.
    fn run_until(name: &str, script: &str, timeout_s: u32, told: BorrowedFd<'_>) -> Outcome {
        let folder = std::env::temp_dir().join(format!("edged-exec-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder of ours");
        let files = Files::new(&folder);
        let pid = files.path("pid");
        let mut call = Command::new("sh");
        call.args(["-c", &format!("echo $$ > {}; {script}", pid.display())]).stdin(Stdio::null());
        let mut child = spawn(call).expect("sh");
        let outcome = watch(&mut child, timeout_s, &files, told).expect("no error");
        drop(files);
        fs::remove_dir_all(&folder).expect("ours");
        outcome
    }

    fn run(name: &str, script: &str, timeout_s: u32) -> Outcome {
        let (told, _never) = nix::unistd::pipe().expect("a pipe");
        run_until(name, script, timeout_s, told.as_fd())
    }

    fn output(name: &str, script: &str, timeout_s: u32) -> ExecOutput {
        match run(name, script, timeout_s) {
            Outcome::Ended(output) => output,
            other => panic!("{script}: {other:?}"),
        }
    }

    fn lives(mark: &str) -> bool {
        let entries = fs::read_dir("/proc").expect("mounted").flatten();
        let mut lines = entries.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
        lines.any(|line| line.starts_with(format!("sleep\0{mark}").as_bytes()))
    }

    #[test]
    fn output_and_exit_code_come_back_and_much_of_it_is_dropped() {
        let expected = ExecOutput { stdout: b"a\n".into(), stderr: b"b\n".into(), exit_code: 5 };
        assert_eq!(output("out", "echo a; echo b >&2; exit 5", 0), expected);
        let much = output("out", "head -c 300000 /dev/zero; kill -9 $$", 3_600);
        assert_eq!((much.stdout.len(), much.exit_code), (EXEC_OUTPUT_BYTES_MAX, 137));
    }

    #[test]
    fn whoever_keeps_a_stream_open_is_waited_for_but_a_moment() {
        let began = clock::precise();
        // It would last for more than a day.
        let left = output("left", "sleep 98765 & echo $!", 0);
        assert!(clock::precise().saturating_sub(began) >= Duration::from_millis(EXEC_DRAIN_MS));
        let pid = String::from_utf8_lossy(&left.stdout).trim().parse().expect("a number");
        kill(Pid::from_raw(pid), Signal::SIGKILL).expect("it still runs");
    }

    #[test]
    fn at_the_timeout_the_whole_session_is_killed() {
        let mark = format!("97{}", std::process::id());
        let began = clock::precise();
        let outcome = run("late", &format!("sleep {mark} & sleep {mark}"), 1);
        assert_eq!(outcome, Outcome::Late);
        assert!(clock::precise().saturating_sub(began) >= Duration::from_secs(1));
        assert!(!lives(&mark), "a child of it lives");
    }

    #[test]
    fn a_job_that_is_told_to_end_kills_its_command() {
        let mark = format!("96{}", std::process::id());
        let fifo = std::env::temp_dir().join(format!("edged-exec-{mark}"));
        nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).expect("a file of ours");
        let both = fs::OpenOptions::new().read(true).write(true).open(&fifo);
        let told = both.expect("a file of ours");
        // The command tells, once its children run.
        let script = format!("sleep {mark} & sleep {mark} & echo x > {}; wait", fifo.display());
        assert_eq!(run_until("told", &script, 0, told.as_fd()), Outcome::Told);
        fs::remove_file(&fifo).expect("ours");
        assert!(!lives(&mark), "a child of it lives");
    }
}
