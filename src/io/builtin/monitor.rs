//! `edged monitor FOLDER`: the parent of one container. It holds the container's streams, writes
//! its log, and keeps its exit code; it goes on if the server ends.
//!
//! ```text
//!  server ── standard input, ctl ──▶ monitor ── crun create, crun start ──▶ container
//!    ▲                                │  ▲                                     │
//!    └── facts: text, one a message ──┘  └──────────── FIFOs out, err ─────────┘
//! ```
//!
//! The streams are FIFOs, and the container's ends are open for reading as well: if the monitor
//! dies, a write blocks once 64 KiB are unread, and does not fail; the next monitor reads on
//! ([`MonitorStart::adopt`]). So the end of a stream is not seen: the container's first process has
//! ended, and nothing more can be read.
//!
//! What a client of `ctl` (SOCK_SEQPACKET) may say, a word a message: `reopen`, `status`, `attach`
//! (from then on it gets output and no facts), `closestdin`, `resize ROWS COLUMNS`, and `exited
//! STATUS`: how an adopted process has ended, from its parent. Output has a byte in front, 1 or 2
//! for the stream. Input is a message with the byte 0 in front; while the container does not take
//! it, its client is not read. A client is told the last fact when it connects.
//!
//! Facts, and the files `pid` and `exit`, are text ([`crate::wire::monitor`]): the server may be of
//! another version.
//!
//! **If it crashes** the container goes on, and at most what was read and not yet written is lost:
//! 64 KiB. The memory is taken at the start and does not grow.

mod control;
mod log;
mod streams;

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid, waitpid};
use nix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use super::cgroup::Cgroup;
use super::fail_point::{self, Who};
use super::layout::Settings;
use super::process::{self, PidFd};
use super::{files, oci, seccomp};
use crate::io::channel::Channel;
use crate::io::clock;
use crate::limits::{
    MONITOR_DRAIN_QUIET_MS, MONITOR_EXIT_WAIT_MS, MONITOR_START_BYTES_MAX, RUNTIME_OCI_CALL_MS_MAX,
};
use crate::model::runtime::{MonitorFact, MonitorStart, Process};
use crate::wire;
use control::Control;
pub(super) use control::{INPUT, WORD_BYTES};
use log::{Log, LogFault};
use streams::Streams;

/// The file `start`: postcard, for the monitor that the same program starts, and for nobody else.
#[derive(Debug, Serialize, Deserialize)]
pub struct Order {
    pub settings: Settings,
    pub start: MonitorStart,
}

/// The names in a container's folder.
pub const START: &str = "start";
pub const CTL: &str = "ctl";
pub const PID: &str = "pid";
/// When the container's program was started, in nanoseconds since 1970.
pub const STARTED: &str = "started";
pub const EXIT: &str = "exit";

/// The main function of a monitor. `folder`: the container's.
pub fn main(folder: &[OsString]) -> ExitCode {
    let [folder] = folder else { return ExitCode::from(2) };
    let Ok(server) = detach() else { return ExitCode::FAILURE };
    let mut control = Control::new(server);
    if let Err(error) = std::env::set_current_dir(folder) {
        control.tell(&MonitorFact::Failed(at("chdir", Path::new(folder), &error)));
        return ExitCode::FAILURE;
    }
    let fact = match Monitor::open(&mut control) {
        Ok(monitor) => monitor.run(&mut control),
        Err(why) => MonitorFact::Failed(why),
    };
    farewell(&mut control, &fact);
    ExitCode::SUCCESS
}

/// Becomes a process that nothing of the server's ends; gives back the connection to it.
#[expect(unsafe_code, reason = "handlers of signals are set")]
fn detach() -> io::Result<Channel> {
    use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};
    extern "C" fn nothing(_: i32) {}
    // Ignored signals would stay ignored in the container: a handler does not outlive exec.
    let ignore = SigAction::new(SigHandler::Handler(nothing), SaFlags::empty(), SigSet::empty());
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGCHLD] {
        // SAFETY: the handler does nothing, which is safe at any moment.
        unsafe { sigaction(signal, &ignore) }?;
    }
    crate::io::signal::let_through();
    // It is the leader of a session already if a person starts it.
    let _ = nix::unistd::setsid();
    nix::sys::prctl::set_child_subreaper(true)?;
    let _ = nix::sys::prctl::set_name(c"edged-monitor");
    // Refused without CAP_SYS_RESOURCE: then it is as likely to be killed as its server.
    let _ = fs::write("/proc/self/oom_score_adj", "-999");
    let server = io::stdin().as_fd().try_clone_to_owned()?;
    nix::unistd::dup2_stdin(File::open("/dev/null")?)?;
    Ok(Channel::from_fd(server))
}

struct Monitor {
    order: Order,
    streams: Streams,
    log: Log,
    /// `None`: an adopted process that is gone.
    container: Option<PidFd>,
    process: Process,
    /// The status, once it is known.
    status: Option<i32>,
}

impl Monitor {
    fn open(control: &mut Control) -> Result<Self, String> {
        let start = Path::new(START);
        let order = read_order().map_err(|error| at("read", start, &error))?;
        control.listen(CTL).map_err(|error| at("listen on", Path::new(CTL), &error))?;
        let log = Log::open(&order.start.log).map_err(|LogFault(why)| why)?;
        step("listens");
        let failed = |error: io::Error| format!("streams: {error}");
        let mut streams = Streams::open(&order.start).map_err(failed)?;
        step("has its streams");
        let (container, process) = if let Some(process) = &order.start.adopt {
            let handle = process::open(process).map_err(|error| error.to_string())?;
            (handle, process.clone())
        } else {
            let process = create(&order.settings, &order.start, &mut streams)?;
            (PidFd::open(process.pid).ok(), process)
        };
        let mut monitor = Self { order, streams, log, container, process, status: None };
        if monitor.order.start.adopt.is_none() {
            monitor.start()?;
        }
        let at = nanos();
        if monitor.order.start.adopt.is_none() {
            step("has started the container");
            // Before anybody knows of it: the server may save later that it runs.
            let noted = replace(STARTED, at.to_string().as_bytes());
            noted.map_err(|error| self::at("write", Path::new(STARTED), &error))?;
            step("has noted the start");
        }
        control.tell(&MonitorFact::Started { process: monitor.process.clone(), at });
        Ok(monitor)
    }

    fn start(&mut self) -> Result<(), String> {
        let Order { settings, start } = &self.order;
        let log = Path::new(OCI_LOG);
        let mut call = oci::command(settings, log);
        call.arg("start").arg(&*start.id.0);
        oci::run(call, log, OCI_CALL).map_err(|error| {
            delete(settings, start);
            error.to_string()
        })
    }

    /// Until the container has ended.
    fn run(mut self, control: &mut Control) -> MonitorFact {
        loop {
            self.turn(control, TURN_MS);
            if self.container.as_ref().is_none_or(|handle| handle.has_ended(0)) {
                break;
            }
        }
        let at = nanos();
        step("sees the end");
        self.drain(at, control);
        step("has read all output");
        let cgroup = Cgroup::find(&self.order.start.cgroup).ok();
        // Before anybody removes the cgroup.
        let oom_kills = cgroup.and_then(|cgroup| cgroup.oom_kills());
        let code = self.exit_code(control);
        MonitorFact::Exited { code, oom_killed: oom_kills.is_some_and(|count| count > 0), at }
    }

    /// Waits for something, and does it.
    fn turn(&mut self, control: &mut Control, wait_ms: u16) {
        let mut fds: Vec<PollFd<'_>> = Vec::with_capacity(FDS_MAX);
        let watched = |fd| PollFd::new(fd, PollFlags::POLLIN);
        fds.extend(self.streams.fds().map(watched));
        let output = fds.len();
        let handle = self.container.as_ref().and_then(PidFd::readable);
        // An old kernel tells of the end by a signal, which may come just before the wait.
        let wait_ms = if handle.is_some() { PollTimeout::NONE } else { wait_ms.into() };
        fds.extend(handle.map(watched));
        fds.extend(control.fds().map(watched));
        if control.has_input() {
            fds.extend(self.streams.input().map(|fd| PollFd::new(fd, PollFlags::POLLOUT)));
        }
        let _ = poll(&mut fds, wait_ms);
        let readable = fds[..output].iter().any(|fd| fd.any() == Some(true));
        drop(fds);
        if readable {
            self.streams.pump(nanos(), &mut self.log, &mut |output| control.relay(output));
        }
        self.reap();
        control.turn(&mut self.streams, &mut self.log, &mut self.status);
    }

    /// The container's first process, and what is left to this process as a subreaper.
    fn reap(&mut self) {
        let pid = self.process.pid;
        let peek = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
        loop {
            match waitid(Id::All, peek) {
                // It stays a zombie: if this process dies now, the server learns how it has ended.
                Ok(WaitStatus::Exited(of, code)) if of.as_raw() == pid => {
                    return self.status = Some(code << 8);
                }
                Ok(WaitStatus::Signaled(of, signal, _)) if of.as_raw() == pid => {
                    return self.status = Some(signal as i32);
                }
                Ok(WaitStatus::Exited(of, _) | WaitStatus::Signaled(of, ..)) => {
                    let _ = waitpid(of, Some(WaitPidFlag::WNOHANG));
                }
                Ok(_) | Err(_) => return,
            }
        }
    }

    /// Reads what is left. Others than the first process may still write: in the machine's process
    /// namespace, for a moment.
    fn drain(&mut self, at: i64, control: &mut Control) {
        let shared = Cgroup::find(&self.order.start.cgroup).is_ok_and(|cgroup| !cgroup.is_empty());
        let quiet_ms = if shared { MONITOR_DRAIN_QUIET_MS } else { 0 };
        self.streams.drain(quiet_ms, at, &mut self.log, &mut |output| control.relay(output));
    }

    /// Of the child; of an adopted process from its parent, or from the kernel.
    fn exit_code(&mut self, control: &mut Control) -> i32 {
        let until = clock::precise() + Duration::from_millis(MONITOR_EXIT_WAIT_MS);
        loop {
            self.reap();
            let kernels = || self.container.as_ref().and_then(PidFd::exit_status);
            let zombies = || process::zombie_status(&self.process);
            if let Some(status) = self.status.or_else(kernels).or_else(zombies) {
                return process::code_of(status);
            }
            if clock::precise() >= until {
                return EXIT_UNKNOWN;
            }
            process::pause(5);
            control.turn(&mut self.streams, &mut self.log, &mut self.status);
        }
    }
}

/// The exit code of a process whose end nobody saw.
const EXIT_UNKNOWN: i32 = 255;
const OCI_LOG: &str = "oci.log";
const OCI_CALL: Duration = Duration::from_millis(RUNTIME_OCI_CALL_MS_MAX);
/// Without a handle on the container.
const TURN_MS: u16 = 200;
const FDS_MAX: usize = 16;

/// Makes the container, which then waits to be started, and notes its process in `pid`.
fn create(
    settings: &Settings,
    start: &MonitorStart,
    streams: &mut Streams,
) -> Result<Process, String> {
    let log = Path::new(OCI_LOG);
    let mut call = oci::command(settings, log);
    call.args(["create", "--bundle", ".", "--pid-file", "oci.pid"]);
    streams.hand_to(&mut call);
    call.arg(&*start.id.0);
    let created = oci::run_joining(call, log, OCI_CALL).map_err(|error| error.to_string());
    let noted = created.and_then(|()| {
        seccomp::keep(settings, &start.id.0);
        streams.take_console().map_err(|error| error.to_string())?;
        let text = fs::read_to_string("oci.pid").map_err(|error| format!("oci.pid: {error}"))?;
        let pid = text.trim().parse().map_err(|_| format!("oci.pid: got {text:?}"))?;
        let process = process::name(pid).map_err(|error| format!("process {pid}: {error}"))?;
        let text = wire::monitor::pid(&process, &start.cgroup);
        step("has made the container");
        replace(PID, text.as_bytes()).map_err(|error| at("write", Path::new(PID), &error))?;
        step("has noted the process");
        Ok(process)
    });
    noted.map_err(|why| {
        delete(settings, start);
        let words = streams.last_words();
        if words.is_empty() || oci::last_error(log).is_some() { why } else { words }
    })
}

/// What is left of a container that did not start.
fn delete(settings: &Settings, start: &MonitorStart) {
    let log = Path::new("delete.log");
    let mut call = oci::command(settings, log);
    call.args(["delete", "--force"]).arg(&*start.id.0);
    // The server's job does it again, with more force.
    let _ = oci::run(call, log, OCI_CALL);
}

fn read_order() -> io::Result<Order> {
    let bytes = files::read(Path::new(START), MONITOR_START_BYTES_MAX)?;
    if bytes.len() > MONITOR_START_BYTES_MAX {
        let why = format!("got a longer file, expected {MONITOR_START_BYTES_MAX} bytes at most");
        return Err(io::Error::other(why));
    }
    postcard::from_bytes(&bytes).map_err(io::Error::other)
}

/// The current folder is `c/ID` in RUN.
fn step(what: &str) {
    fail_point::step(Path::new("../.."), Who::Monitor, what);
}

fn replace(name: &str, content: &[u8]) -> io::Result<()> {
    replace_in(Path::new(""), name, content)
}

/// Writes a file so that a reader finds the old or the new content.
pub(super) fn replace_in(folder: &Path, name: &str, content: &[u8]) -> io::Result<()> {
    let new = folder.join(format!("{name}.tmp"));
    fs::write(&new, content)?;
    fs::rename(&new, folder.join(name))
}

/// Keeps the last fact in `exit` and tells it. Without room for the file, it waits for somebody to
/// tell it to; without the folder, nobody can want it.
fn farewell(control: &mut Control, fact: &MonitorFact) {
    let text = wire::monitor::fact(fact);
    loop {
        step("has not kept the end");
        let kept = replace(EXIT, text.as_bytes());
        step("has kept the end, and not told it");
        let told = control.tell(fact);
        let gone = kept.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
        if kept.is_ok() || told || gone {
            return;
        }
        control.wait(Duration::from_secs(1));
    }
}

/// Nanoseconds since 1970.
pub(super) fn nanos() -> i64 {
    let time = clock_gettime(ClockId::CLOCK_REALTIME).expect("every kernel has this clock");
    Duration::from(time).as_nanos() as i64
}

fn at(what: &str, place: &Path, error: &io::Error) -> String {
    format!("{what} {}: {error}", place.display())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::builtin::layout::Layout;
    use crate::model::builtin::Registries;
    use crate::model::runtime::ContainerId;

    #[test]
    fn the_longest_order_is_read() {
        let start = MonitorStart {
            id: ContainerId("a".repeat(64).into()),
            log: "\u{1}".repeat(4_096).into(),
            stdin: true,
            tty: false,
            cgroup: "\u{1}".repeat(4_096).into(),
            program: "x".repeat(4_096).into(),
            adopt: None,
        };
        let settings = Settings {
            layout: Layout::new("/run".into(), "/data".into()),
            oci: "/oci".into(),
            handlers: Vec::new(),
            cni_conf_dir: "/c".into(),
            cni_bin_dir: "/b".into(),
            registries: Registries::default(),
        };
        let order = postcard::to_stdvec(&Order { settings, start }).expect("plain data");
        assert!(order.len() < MONITOR_START_BYTES_MAX, "{}", order.len());
    }
}
