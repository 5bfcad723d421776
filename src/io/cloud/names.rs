//! Looks up the cloud's addresses in a child process, because a DNS server that is gone blocks
//! the caller for half a minute and more.
//!
//! The child reads the name and writes the addresses through its standard input, a socket pair, and
//! ends. It also ends with the agent, and is killed at the deadline; a child that does not end even
//! then is left to the kernel, and counted.

use std::io::{self, ErrorKind, Read};
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};

use mio::net::UnixStream;
use mio::{Interest, Registry, Token};
use nix::sys::signal::Signal;
use serde::{Deserialize, Serialize};

use super::super::frame::{receive, send};
use crate::limits::{CLOUD_ADDRESSES_MAX, JOB_FRAME_BYTES_MAX};

/// The child's name, as `edged job <kind>` shows it in `ps`.
pub(in crate::io) const KIND: &str = "resolve";

/// A lookup in progress.
#[derive(Debug)]
pub(in crate::io) struct Lookup {
    child: Option<Child>,
    socket: UnixStream,
    answer: Vec<u8>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Question {
    /// The agent's process id: a child that has another parent is an orphan.
    parent: i32,
    host: String,
    port: u16,
}

type Answer = Result<Vec<SocketAddr>, String>;

impl Lookup {
    pub(in crate::io) fn start(
        program: &Path,
        (host, port): (&str, u16),
        token: Token,
        registry: &Registry,
    ) -> io::Result<Self> {
        let (mut ours, theirs) = std::os::unix::net::UnixStream::pair()?;
        let parent = std::process::id() as i32;
        send(&mut ours, &Question { parent, host: host.to_owned(), port })?;
        ours.set_nonblocking(true)?;
        let mut socket = UnixStream::from_std(ours);
        registry.register(&mut socket, token, Interest::READABLE)?;
        let child = Command::new(program)
            .args(["job", KIND])
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::null())
            .spawn()?;
        Ok(Self { child: Some(child), socket, answer: Vec::new() })
    }

    /// The result, if the child has answered; it is complete when the child closes its end.
    pub(in crate::io) fn advance(&mut self) -> Option<Answer> {
        let mut buffer = [0; 1_024];
        loop {
            match self.socket.read(&mut buffer) {
                Ok(0) => break,
                Ok(_) if self.answer.len() > JOB_FRAME_BYTES_MAX => break,
                Ok(count) => self.answer.extend_from_slice(&buffer[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return None,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => break,
            }
        }
        Some(self.read_answer())
    }

    fn read_answer(&self) -> Answer {
        let bytes = self.answer.get(4..).filter(|bytes| !bytes.is_empty());
        let bytes = bytes.ok_or("the lookup's child process ended without an answer")?;
        postcard::from_bytes::<Answer>(bytes).map_err(|error| error.to_string())?
    }

    /// The child's process.
    #[cfg(all(test, feature = "controller"))]
    pub(in crate::io) fn child_id(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// Kills the child, and returns it.
    pub(in crate::io) fn end(&mut self) -> Option<Child> {
        let mut child = self.child.take()?;
        // Either it has ended already, or it is killed now.
        let _ = child.kill();
        match child.try_wait() {
            Ok(None) => Some(child),
            _ => None,
        }
    }
}

/// The main function of the child.
pub(in crate::io) fn child() -> ExitCode {
    let tied = nix::sys::prctl::set_pdeathsig(Signal::SIGKILL);
    let Ok(stdin) = io::stdin().as_fd().try_clone_to_owned() else { return ExitCode::FAILURE };
    let mut socket = std::os::unix::net::UnixStream::from(stdin);
    let Ok(question) = receive::<Question>(&mut socket) else { return ExitCode::FAILURE };
    if tied.is_err() || nix::unistd::getppid().as_raw() != question.parent {
        return ExitCode::FAILURE;
    }
    let answer: Answer = match (&*question.host, question.port).to_socket_addrs() {
        Ok(found) => Ok(first(found)),
        Err(error) => Err(error.to_string()),
    };
    match send(&mut socket, &answer) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

/// The addresses that are tried.
pub(super) fn first(found: impl Iterator<Item = SocketAddr>) -> Vec<SocketAddr> {
    found.take(CLOUD_ADDRESSES_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_many_addresses_the_first_are_tried() {
        let all = |count: usize| (0..count).map(|at| SocketAddr::from(([192, 0, 2, 1], at as u16)));
        let tried = |count: usize| first(all(count)).len();
        assert_eq!(tried(CLOUD_ADDRESSES_MAX), CLOUD_ADDRESSES_MAX);
        assert_eq!(tried(CLOUD_ADDRESSES_MAX + 1), CLOUD_ADDRESSES_MAX);
        assert_eq!(first(all(100))[0].port(), 0, "in the resolver's order");
    }
}
