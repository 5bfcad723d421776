//! A session's connection to its client, and for commands what the client has sent and the command
//! has not taken.

use std::io::{ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::io::clock;
use crate::limits::{
    SESSION_OPEN_MS, SESSION_ORPHAN_BYTES_MAX, SESSION_ORPHAN_MS, SESSION_READ_BYTES,
    SESSION_STALL_MS, SESSION_UNSENT_BYTES_MAX,
};
use crate::wire::streaming::Violation;
use crate::wire::streaming::command::{Command, Ended, Incoming, Output};

/// A connection, which does not block.
#[derive(Debug)]
pub(super) struct Socket {
    stream: UnixStream,
    has_left: bool,
}

impl Socket {
    pub(super) fn new(stream: UnixStream) -> Self {
        Self { stream, has_left: false }
    }

    /// The client has closed, or cannot be reached.
    pub(super) fn has_left(&self) -> bool {
        self.has_left
    }

    pub(super) fn leave(&mut self) {
        self.has_left = true;
    }

    /// What to poll for; nothing is polled once the client has left.
    pub(super) fn watch(&self, flags: PollFlags) -> Option<PollFd<'_>> {
        (!self.has_left).then(|| PollFd::new(self.stream.as_fd(), flags))
    }

    /// How many bytes have come.
    pub(super) fn read(&mut self, buffer: &mut [u8]) -> usize {
        loop {
            match self.stream.read(buffer) {
                Ok(count) => {
                    self.has_left |= count == 0;
                    return count;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return 0,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => {
                    self.has_left = true;
                    return 0;
                }
            }
        }
    }

    /// How many bytes were taken.
    pub(super) fn write(&mut self, bytes: &[u8]) -> usize {
        let mut sent = 0;
        while sent < bytes.len() && !self.has_left {
            match self.stream.write(&bytes[sent..]) {
                Ok(count) => sent += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => self.has_left = true,
            }
        }
        sent
    }

    /// Whether it was ready in time.
    pub(super) fn wait(&self, flags: PollFlags, until: Duration) -> bool {
        let left = until.saturating_sub(clock::precise());
        let mut fds = [PollFd::new(self.stream.as_fd(), flags)];
        let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
        !left.is_zero() && poll(&mut fds, timeout) != Ok(0)
    }

    /// Whether all was taken in time.
    pub(super) fn write_all(&mut self, bytes: &[u8], until: Duration) -> bool {
        let mut sent = 0;
        loop {
            sent += self.write(&bytes[sent..]);
            if sent == bytes.len() || self.has_left {
                return sent == bytes.len();
            }
            if !self.wait(PollFlags::POLLOUT, until) {
                return false;
            }
        }
    }
}

/// The client of a command.
#[derive(Debug)]
pub(super) struct Client {
    socket: Socket,
    command: Command,
    /// What the command has not taken. While there is some, nothing is read.
    pub(super) input: Vec<u8>,
    /// No more comes.
    pub(super) input_ended: bool,
    /// A size for the terminal: columns and rows.
    pub(super) size: Option<(u16, u16)>,
    /// When it has left. What it has sent before may not be read yet.
    left_at: Option<Duration>,
    /// Bytes of output that were dropped since.
    dropped: usize,
    buffer: Box<[u8]>,
}

impl Client {
    pub(super) fn new(socket: Socket, command: Command) -> Self {
        Self {
            socket,
            command,
            input: Vec::new(),
            input_ended: false,
            size: None,
            left_at: None,
            dropped: 0,
            buffer: vec![0; SESSION_READ_BYTES].into(),
        }
    }

    /// Waits until its streams are open; `rest` was read already. Whether they are.
    pub(super) fn open(&mut self, rest: &[u8]) -> bool {
        let until = clock::precise() + Duration::from_millis(SESSION_OPEN_MS);
        self.take(rest);
        loop {
            self.flush();
            if self.socket.has_left {
                return false;
            }
            if self.command.is_ready() {
                return true;
            }
            if !self.socket.wait(PollFlags::POLLIN, until) {
                return false;
            }
            self.read();
        }
    }

    /// It has left: its input has ended, and what the command writes is dropped.
    pub(super) fn has_left(&self) -> bool {
        self.socket.has_left
    }

    /// When the session of a client that has left ends.
    pub(super) fn orphan_until(&self) -> Option<Duration> {
        let most = if self.dropped > SESSION_ORPHAN_BYTES_MAX { 0 } else { SESSION_ORPHAN_MS };
        self.left_at.map(|at| at + Duration::from_millis(most))
    }

    /// Whether more of the command's output is taken.
    pub(super) fn has_room(&self) -> bool {
        self.socket.has_left || self.command.pending().len() < SESSION_UNSENT_BYTES_MAX
    }

    pub(super) fn watch(&self) -> Option<PollFd<'_>> {
        let mut flags = PollFlags::empty();
        flags.set(PollFlags::POLLIN, self.input.is_empty());
        flags.set(PollFlags::POLLOUT, !self.command.pending().is_empty());
        // That it has closed would be told again and again, while what it has sent waits.
        let is_quiet = self.left_at.is_some() && flags.is_empty();
        self.socket.watch(flags).filter(|_| !is_quiet)
    }

    /// After a poll with this result: reads and writes.
    pub(super) fn turn(&mut self, polled: PollFlags) {
        if polled.intersects(PollFlags::POLLHUP | PollFlags::POLLERR) {
            self.left_at.get_or_insert_with(clock::precise);
        }
        if self.input.is_empty() && !polled.is_empty() {
            self.read();
        }
        self.flush();
    }

    fn read(&mut self) {
        let mut buffer = std::mem::take(&mut self.buffer);
        let count = self.socket.read(&mut buffer);
        self.take(&buffer[..count]);
        self.buffer = buffer;
    }

    fn take(&mut self, bytes: &[u8]) {
        if self.received(bytes).is_err() {
            // Nothing that follows can be understood, nor an answer be.
            self.socket.leave();
        }
        self.note_end();
    }

    fn received(&mut self, mut bytes: &[u8]) -> Result<(), Violation> {
        loop {
            let (taken, incoming) = self.command.receive(bytes)?;
            bytes = &bytes[taken..];
            match incoming {
                Some(Incoming::Input(input)) if !self.input_ended => {
                    self.input.extend_from_slice(&input);
                }
                Some(Incoming::Input(_)) => {}
                Some(Incoming::EndOfInput) => self.input_ended = true,
                Some(Incoming::Size { columns, rows }) => self.size = Some((columns, rows)),
                Some(Incoming::Left) => {
                    self.flush();
                    self.socket.leave();
                    return Ok(());
                }
                None if bytes.is_empty() => return Ok(()),
                None => {}
            }
        }
    }

    fn flush(&mut self) {
        let sent = self.socket.write(self.command.pending());
        self.command.sent(sent);
        self.note_end();
    }

    fn note_end(&mut self) {
        if self.socket.has_left {
            self.input_ended = true;
            self.left_at.get_or_insert_with(clock::precise);
            let unsent = self.command.pending().len();
            self.command.sent(unsent);
        }
    }

    /// Sends output of the command, as far as anybody wants it.
    pub(super) fn output(&mut self, output: Output, bytes: &[u8]) {
        if self.socket.has_left {
            self.dropped += bytes.len();
        } else {
            self.command.output(output, bytes);
        }
    }

    /// Sends how the command has ended, and waits until that has been taken.
    pub(super) fn finish(mut self, ended: &Ended) {
        if self.socket.has_left {
            return;
        }
        self.command.finish(ended);
        loop {
            let before = self.command.pending().len();
            self.flush();
            let left = self.command.pending().len();
            let until = clock::precise() + Duration::from_millis(SESSION_STALL_MS);
            if left == 0 || left == before && !self.socket.wait(PollFlags::POLLOUT, until) {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::cri::Pipes;
    use crate::wire::streaming::upgrade::Protocol;
    use crate::wire::ws;

    fn pair() -> (Client, UnixStream) {
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        ours.set_nonblocking(true).expect("ours");
        let pipes = Pipes { stdin: true, stdout: true, ..Pipes::default() };
        let command = Command::new(Protocol::WebSocket(4), pipes);
        (Client::new(Socket::new(ours), command), theirs)
    }

    fn input(bytes: &[u8]) -> Vec<u8> {
        let mut frame = Vec::new();
        ws::write(ws::Kind::Text, &[b"\0", bytes].concat(), [0; 4], &mut frame);
        frame
    }

    #[test]
    fn input_waits_in_the_socket_until_the_command_takes_it() {
        let (mut client, mut other) = pair();
        assert!(client.open(&input(b"first")));
        assert_eq!(client.input, b"first");
        other.write_all(&input(&vec![b'x'; 2 * SESSION_READ_BYTES])).expect("there is room");
        client.turn(PollFlags::POLLIN);
        assert_eq!(client.input, b"first", "nothing more is read");
        client.input.clear();
        client.turn(PollFlags::POLLIN);
        assert!(client.input.is_empty(), "half a message");
        client.turn(PollFlags::POLLIN);
        client.turn(PollFlags::POLLIN);
        assert_eq!(client.input.len(), 2 * SESSION_READ_BYTES);
    }

    #[test]
    fn output_waits_in_the_command_while_much_waits_for_the_client() {
        let (mut client, _other) = pair();
        client.output(Output::Stdout, &vec![0; SESSION_UNSENT_BYTES_MAX]);
        assert!(!client.has_room());
        client.turn(PollFlags::POLLOUT);
        assert!(client.has_room(), "the kernel has taken it");
    }

    #[test]
    fn one_that_has_left_ends_the_input_and_its_command_is_heard_for_a_while() {
        let (mut client, mut other) = pair();
        assert!(client.open(b""));
        other.write_all(&input(b"last")).expect("there is room");
        drop(other);
        assert_eq!(client.orphan_until(), None);
        let before = clock::precise();
        client.turn(PollFlags::POLLIN | PollFlags::POLLHUP);
        assert_eq!((&*client.input, client.input_ended), (&b"last"[..], false));
        assert!(client.watch().is_none(), "it would be told again and again that it has left");
        client.input.clear();
        client.turn(PollFlags::POLLIN | PollFlags::POLLHUP);
        assert!(client.input_ended && client.has_left());
        let until = client.orphan_until().expect("it has left");
        assert!(until >= before + Duration::from_millis(SESSION_ORPHAN_MS));
        client.output(Output::Stdout, &vec![0; SESSION_ORPHAN_BYTES_MAX]);
        assert_eq!(client.orphan_until(), Some(until));
        client.output(Output::Stdout, b"x");
        assert!(client.orphan_until().is_some_and(|until| until <= clock::precise()));
        client.finish(&Ended::Exited(0));
    }

    #[test]
    fn what_is_no_message_ends_the_connection() {
        let (mut client, mut other) = pair();
        assert!(client.open(b""));
        // Not masked.
        other.write_all(b"\x82\x01\0\0\0\0\0").expect("there is room");
        client.turn(PollFlags::POLLIN);
        assert!(client.has_left());
        let (mut client, _other) = pair();
        assert!(!client.open(b"\x82\x01\0\0\0\0\0"), "it says so at once");
        const { assert!(SESSION_STALL_MS > SESSION_OPEN_MS) }
    }
}
