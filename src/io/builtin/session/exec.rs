//! A command in a container, for a client: the OCI runtime starts it and leaves it to this process,
//! which becomes its parent.
//!
//! A client that leaves ends the command's input. A terminal is hung up then; without one the
//! command goes on, and what it writes is read and dropped: for [`SESSION_ORPHAN_MS`], and up to
//! [`SESSION_ORPHAN_BYTES_MAX`]. Then its outputs are closed, so that a write fails.
//!
//! [`SESSION_ORPHAN_MS`]: crate::limits::SESSION_ORPHAN_MS
//! [`SESSION_ORPHAN_BYTES_MAX`]: crate::limits::SESSION_ORPHAN_BYTES_MAX

use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::process::Stdio;
use std::time::Duration;

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::SockType;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use super::client::Client;
use crate::io::builtin::exec::{Files, prepare};
use crate::io::builtin::layout::Settings;
use crate::io::builtin::process::{self, PidFd};
use crate::io::builtin::{cgroup, oci, terminal, user_namespace};
use crate::io::channel::{Listener, receive_fd};
use crate::io::clock;
use crate::limits::{EXEC_DRAIN_MS, RUNTIME_OCI_CALL_MS_MAX, SESSION_READ_BYTES};
use crate::model::cri::Pipes;
use crate::model::runtime::{ContainerFolder, JobFault};
use crate::wire::streaming::command::{Ended, Output};

/// Runs it for a client to its end; `rest` was read of the client already.
pub(super) fn serve(
    settings: &Settings,
    container: &ContainerFolder,
    command: &[String],
    pipes: Pipes,
    mut client: Client,
    rest: &[u8],
) {
    if !client.open(rest) {
        return;
    }
    let ended = match start(settings, container, command, pipes) {
        Ok(mut running) => running.run(&mut client),
        Err(fault) => Some(Ended::Failed(fault.text().to_owned())),
    };
    if let Some(ended) = ended {
        client.finish(&ended);
    }
}

/// A command that was started.
struct Running {
    pid: i32,
    handle: PidFd,
    /// As waitpid(2) has it.
    status: Option<i32>,
    /// It has one for everything.
    is_terminal: bool,
    input: Option<File>,
    outputs: [Option<File>; 2],
}

fn start(
    settings: &Settings,
    container: &ContainerFolder,
    command: &[String],
    pipes: Pipes,
) -> Result<Running, JobFault> {
    let failed = |what: &str, error: &dyn std::fmt::Display| {
        JobFault::Failed(format!("failed to exec in container: {what}: {error}"))
    };
    let of_streams = |error: io::Error| failed("streams", &error);
    nix::sys::prctl::set_child_subreaper(true).map_err(|errno| of_streams(errno.into()))?;
    let folder = settings.layout.container(&container.id);
    let (files, mut call) = prepare(settings, &folder, command, pipes.tty)?;
    call.arg("--detach");
    let console = if pipes.tty {
        let name = Files::name("console");
        let listener = Listener::open_in(&folder, &name, SockType::Stream).map_err(of_streams)?;
        // A socket's path must be short.
        call.current_dir(&folder).arg("--console-socket").arg(name);
        Some(listener)
    } else {
        let piped = |is_wanted| if is_wanted { Stdio::piped() } else { Stdio::null() };
        call.stdin(piped(pipes.stdin));
        // Its reason if it fails to start.
        call.stdout(piped(pipes.stdout)).stderr(Stdio::piped());
        None
    };
    call.arg(&*container.id.0);
    let mut child = call.spawn().map_err(|error| failed("the OCI runtime", &error))?;
    drop(call);
    user_namespace::own_streams(&folder, &child).map_err(of_streams)?;
    cgroup::begin_grace_period();
    let mut input = child.stdin.take().map(|pipe| File::from(OwnedFd::from(pipe)));
    let mut outputs = [
        child.stdout.take().map(|pipe| File::from(OwnedFd::from(pipe))),
        child.stderr.take().map(|pipe| File::from(OwnedFd::from(pipe))),
    ];
    let most = Duration::from_millis(RUNTIME_OCI_CALL_MS_MAX);
    let status = oci::wait(child, most).map_err(|error| failed("the OCI runtime", &error))?;
    for file in input.iter().chain(outputs.iter().flatten()) {
        set_nonblocking(file).map_err(of_streams)?;
    }
    if !status.is_some_and(|status| status.success()) {
        let words = outputs[1].as_mut().map(first_words).unwrap_or_default();
        let why = oci::last_error(&files.path("log")).unwrap_or(words);
        return Err(failed("exec failed", &why));
    }
    if let Some(listener) = console {
        let sent = listener.accept().and_then(|connection| receive_fd(&connection));
        let terminal = sent.ok_or_else(|| failed("terminal", &"the OCI runtime sent none"))?;
        let terminal = File::from(terminal);
        set_nonblocking(&terminal).map_err(of_streams)?;
        input = Some(terminal.try_clone().map_err(of_streams)?);
        outputs[0] = Some(terminal);
    }
    let pid = pid(&files).map_err(|error| failed("pid", &error))?;
    let handle = PidFd::open(pid).map_err(|error| failed("pid", &error))?;
    Ok(Running { pid, handle, status: None, is_terminal: pipes.tty, input, outputs })
}

fn pid(files: &Files) -> io::Result<i32> {
    let text = fs::read_to_string(files.path("pid"))?;
    text.trim().parse().map_err(|_| io::Error::other(format!("got {text:?}, expected a number")))
}

fn first_words(file: &mut File) -> String {
    let mut words = [0; 4 << 10];
    let count = file.read(&mut words).unwrap_or(0);
    String::from_utf8_lossy(&words[..count]).trim().to_owned()
}

fn set_nonblocking(file: &File) -> io::Result<()> {
    fcntl(file, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
    Ok(())
}

impl Running {
    /// `None`: nobody is there to be told how it has ended.
    fn run(&mut self, client: &mut Client) -> Option<Ended> {
        let mut buffer = vec![0; SESSION_READ_BYTES];
        // Once it has ended: what others write who have its outputs is not waited for.
        let mut quiet_at = None;
        loop {
            let has_moved = self.read_outputs(client, &mut buffer);
            self.write_input(client);
            let now = clock::precise();
            let is_late = client.orphan_until().is_some_and(|until| until <= now);
            if is_late || client.has_left() && self.is_terminal {
                return None;
            }
            self.reap();
            if let Some(status) = self.status {
                if has_moved || quiet_at.is_none() || !client.has_room() {
                    quiet_at = Some(now + Duration::from_millis(EXEC_DRAIN_MS));
                }
                let is_quiet = quiet_at.is_some_and(|at| at <= now);
                if is_quiet || self.outputs.iter().all(Option::is_none) {
                    return Some(Ended::Exited(process::code_of(status)));
                }
            }
            let until = quiet_at.into_iter().chain(client.orphan_until()).min();
            let polled = self.wait(client, until.map(|until| until.saturating_sub(now)));
            client.turn(polled);
        }
    }

    /// Returns what the client's connection is ready for.
    fn wait(&self, client: &Client, left: Option<Duration>) -> PollFlags {
        let mut fds: Vec<PollFd<'_>> = Vec::with_capacity(5);
        fds.extend(client.watch());
        let has_client = !fds.is_empty();
        if let Some(input) = self.input.as_ref().filter(|_| !client.input.is_empty()) {
            fds.push(PollFd::new(input.as_fd(), PollFlags::POLLOUT));
        }
        if client.has_room() {
            let outputs = self.outputs.iter().flatten();
            fds.extend(outputs.map(|file| PollFd::new(file.as_fd(), PollFlags::POLLIN)));
        }
        let mut left = left;
        if self.status.is_none() {
            match self.handle.readable() {
                Some(handle) => fds.push(PollFd::new(handle, PollFlags::POLLIN)),
                // Without a handle its end is looked for.
                None => left = Some(left.unwrap_or(LOOK).min(LOOK)),
            }
        }
        // Rounded up, so that the moment has come.
        let rounded = left.map(|left| left + Duration::from_millis(1));
        let timeout = rounded.map(|left| PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX));
        let _ = poll(&mut fds, timeout.unwrap_or(PollTimeout::NONE));
        let polled = fds.first().filter(|_| has_client).and_then(PollFd::revents);
        polled.unwrap_or(PollFlags::empty())
    }

    fn write_input(&mut self, client: &mut Client) {
        if let (Some((columns, rows)), true) = (client.size.take(), self.is_terminal)
            && let Some(input) = &self.input
        {
            terminal::resize(input, rows, columns);
        }
        while let Some(input) = self.input.as_mut().filter(|_| !client.input.is_empty()) {
            match input.write(&client.input) {
                Ok(count) => drop(client.input.drain(..count)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // It has closed its input.
                Err(_) => self.input = None,
            }
        }
        if self.input.is_none() {
            client.input.clear();
        }
        if client.input_ended && !self.is_terminal {
            self.input = None;
        }
    }

    /// Whether there was any output.
    fn read_outputs(&mut self, client: &mut Client, buffer: &mut [u8]) -> bool {
        let mut any = false;
        for (slot, output) in self.outputs.iter_mut().zip([Output::Stdout, Output::Stderr]) {
            // Not without end: the other stream and the client count as well.
            for _ in 0..4 {
                let Some(file) = slot.as_mut().filter(|_| client.has_room()) else { break };
                match file.read(buffer) {
                    Ok(count) if count > 0 => {
                        any = true;
                        client.output(output, &buffer[..count]);
                    }
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    // Nobody has it open any more.
                    Ok(_) | Err(_) => *slot = None,
                }
            }
        }
        any
    }

    fn reap(&mut self) {
        if self.status.is_some() {
            return;
        }
        match waitpid(Pid::from_raw(self.pid), Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::Exited(_, code)) => self.status = Some(code << 8),
            Ok(WaitStatus::Signaled(_, signal, _)) => self.status = Some(signal as i32),
            Ok(_) => {}
            // Somebody else's child.
            Err(_) if self.handle.has_ended(0) => self.status = Some(UNKNOWN << 8),
            Err(_) => {}
        }
    }
}

/// Without a handle on the process.
const LOOK: Duration = Duration::from_millis(10);
/// The exit code of a command whose end nobody saw.
const UNKNOWN: i32 = 255;
