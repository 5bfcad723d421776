//! Connects a command in a container with this process: standard input, both outputs, and the
//! terminal's size and signals, by one loop over `poll`.
//!
//! Input is read only while little waits to be sent, and output is written before more is read, so
//! a slow end of either kind slows the other one down, and memory stays bounded.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::connection::Connection;
use super::terminal::{Notice, Terminal};
use crate::limits::{CLIENT_READ_BYTES, CLIENT_UNSENT_BYTES_MAX};
use crate::wire::spdy::exec::{Exec, Outcome, Output};

/// Where the command's standard input comes from.
pub enum Input<'a> {
    /// It has none.
    None,
    /// A descriptor of this process.
    Fd(OwnedFd),
    /// Something that always has bytes, up to its end.
    Source(Box<dyn Read + 'a>),
}

impl Input<'_> {
    /// That of this process.
    pub fn stdin() -> io::Result<Self> {
        Ok(Self::Fd(io::stdin().as_fd().try_clone_to_owned()?))
    }
}

/// How a session ended.
#[derive(Debug)]
pub enum End {
    /// As the command did, as far as that is known.
    Outcome(Outcome),
    /// The connection broke: why.
    Broken(String),
    /// Standard input could not be read.
    Input(io::Error),
    /// This signal ended it here.
    Signal(i32),
}

/// One session.
pub struct Session<'a> {
    pub connection: Connection,
    pub exec: Exec,
    pub input: Input<'a>,
    pub out: &'a mut dyn Write,
    pub err: &'a mut dyn Write,
    pub terminal: Option<&'a Terminal>,
}

/// What `poll` found.
struct Ready {
    socket: bool,
    input: bool,
    signal: bool,
}

impl Session<'_> {
    /// Runs it to its end. An error: `out` or `err` could not be written.
    pub fn run(mut self) -> io::Result<End> {
        self.resize();
        let early = self.connection.early();
        let mut buffer = vec![0; CLIENT_READ_BYTES];
        let mut broken = self.receive(&early)?;
        loop {
            if self.exec.is_finished() {
                return Ok(End::Outcome(self.exec.outcome()));
            }
            if let Some(why) = broken {
                return Ok(match self.exec.outcome() {
                    Outcome::Lost => End::Broken(why),
                    known => End::Outcome(known),
                });
            }
            self.send();
            let ready = match self.wait() {
                Ok(ready) => ready,
                Err(Errno::EINTR) => continue,
                Err(errno) => return Ok(End::Broken(format!("poll: {}", errno.desc()))),
            };
            if ready.signal
                && let Some(signal) = self.signal()
            {
                return Ok(End::Signal(signal));
            }
            if ready.socket {
                broken = match self.connection.read(&mut buffer) {
                    Ok(None) => None,
                    Ok(Some(0)) => Some("the connection was closed".to_owned()),
                    Ok(Some(count)) => self.receive(&buffer[..count])?,
                    Err(error) => Some(error.to_string()),
                };
            }
            if ready.input
                && let Err(error) = self.feed(&mut buffer)
            {
                return Ok(End::Input(error));
            }
        }
    }

    fn resize(&mut self) {
        if let Some((columns, rows)) = self.terminal.and_then(Terminal::size) {
            self.exec.resize(columns, rows);
        }
    }

    /// Passes output on; returns why the connection is unusable.
    fn receive(&mut self, bytes: &[u8]) -> io::Result<Option<String>> {
        let mut rest = bytes;
        loop {
            match self.exec.receive(rest) {
                Err(violation) => return Ok(Some(violation.to_string())),
                Ok((_, None)) => break,
                Ok((taken, Some(output))) => {
                    rest = &rest[taken..];
                    match output {
                        Output::Stdout(bytes) => self.out.write_all(bytes)?,
                        Output::Stderr(bytes) => {
                            // In the order in which it came.
                            self.out.flush()?;
                            self.err.write_all(bytes)?;
                        }
                    }
                }
            }
        }
        self.out.flush()?;
        self.err.flush()?;
        Ok(None)
    }

    /// What cannot be sent is not an error yet: the reason may be waiting to be read.
    fn send(&mut self) {
        while !self.exec.output().is_empty() {
            match self.connection.write(self.exec.output()) {
                Ok(Some(count)) => self.exec.sent(count),
                Ok(None) => return,
                Err(_) => {
                    self.exec.sent(self.exec.output().len());
                    self.input = Input::None;
                }
            }
        }
    }

    fn wait(&self) -> nix::Result<Ready> {
        let has_room = self.exec.output().len() < CLIENT_UNSENT_BYTES_MAX;
        let takes_input = self.exec.takes_input() && has_room;
        let mut socket = PollFlags::POLLIN;
        socket.set(PollFlags::POLLOUT, !self.exec.output().is_empty());
        let mut fds = vec![PollFd::new(self.connection.fd(), socket)];
        let (mut input_at, mut signal_at, mut timeout) = (None, None, PollTimeout::NONE);
        match &self.input {
            Input::Fd(fd) if takes_input => {
                input_at = Some(fds.len());
                fds.push(PollFd::new(fd.as_fd(), PollFlags::POLLIN));
            }
            Input::Source(_) if takes_input => timeout = PollTimeout::ZERO,
            Input::None | Input::Fd(_) | Input::Source(_) => {}
        }
        if let Some(terminal) = self.terminal {
            signal_at = Some(fds.len());
            fds.push(PollFd::new(terminal.signals(), PollFlags::POLLIN));
        }
        poll(&mut fds, timeout)?;
        let has = |at: usize, flags: PollFlags| {
            fds[at].revents().is_some_and(|found| found.intersects(flags))
        };
        let readable = PollFlags::POLLIN | PollFlags::POLLHUP | PollFlags::POLLERR;
        let is_source = matches!(self.input, Input::Source(_)) && takes_input;
        Ok(Ready {
            socket: has(0, readable),
            input: is_source || input_at.is_some_and(|at| has(at, readable | PollFlags::POLLNVAL)),
            signal: signal_at.is_some_and(|at| has(at, readable)),
        })
    }

    /// Handles signals; returns one that ends the session.
    fn signal(&mut self) -> Option<i32> {
        let terminal = self.terminal?;
        while let Some(notice) = terminal.take() {
            match notice {
                Notice::Resized => self.resize(),
                Notice::Ended(signal) => return Some(signal),
            }
        }
        None
    }

    fn feed(&mut self, buffer: &mut [u8]) -> io::Result<()> {
        let count = match &mut self.input {
            Input::None => return Ok(()),
            Input::Fd(fd) => match nix::unistd::read(fd, buffer) {
                Ok(count) => count,
                Err(Errno::EINTR | Errno::EAGAIN) => return Ok(()),
                // The terminal was closed.
                Err(Errno::EIO) => 0,
                Err(errno) => return Err(errno.into()),
            },
            Input::Source(source) => source.read(buffer)?,
        };
        if count == 0 {
            self.exec.end_input();
            self.input = Input::None;
        } else {
            self.exec.input(&buffer[..count]);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;
    use crate::wire::spdy::exec::Wanted;

    /// Bytes without an end.
    struct Endless;

    impl Read for Endless {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            assert_eq!(buffer.len(), CLIENT_READ_BYTES);
            buffer.fill(b'x');
            Ok(buffer.len())
        }
    }

    #[test]
    fn input_is_read_only_while_little_waits_to_be_sent() {
        let (ours, mut theirs) = UnixStream::pair().expect("two sockets");
        // So that there is always something to return for.
        theirs.write_all(b"x").expect("it fits");
        let connection = Connection::of(ours, "HTTP/1.1 101 X\r\n\r\n");
        let wanted = Wanted { stdin: true, stdout: true, stderr: true, tty: false };
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let mut session = Session {
            connection,
            exec: Exec::new(wanted),
            input: Input::Source(Box::new(Endless)),
            out: &mut out,
            err: &mut err,
            terminal: None,
        };
        let mut buffer = vec![0; CLIENT_READ_BYTES];
        let mut reads = 0;
        while session.wait().expect("poll").input {
            session.feed(&mut buffer).expect("it never fails");
            reads += 1;
            assert!(reads < 100, "it does not stop");
        }
        let waiting = session.exec.output().len();
        let most = CLIENT_UNSENT_BYTES_MAX + CLIENT_READ_BYTES + 1_000;
        assert!((CLIENT_UNSENT_BYTES_MAX..most).contains(&waiting), "{waiting} bytes wait");
        session.exec.sent(waiting);
        assert!(session.wait().expect("poll").input);
        session.input = Input::None;
        assert!(!session.wait().expect("poll").input);
    }
}
