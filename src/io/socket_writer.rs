//! Writes a local socket until the kernel's buffer is full, and watches for room only from then on:
//! otherwise each read of the other end would wake us.

use std::io::{self, ErrorKind, Write};

use mio::net::UnixStream;
use mio::{Interest, Registry, Token};

/// One for each connection; the socket is registered for reading by its owner.
#[derive(Debug, Default)]
pub(super) struct SocketWriter {
    /// The kernel's buffer is full.
    full: bool,
    /// The socket is registered for writing as well.
    watches_writable: bool,
}

impl SocketWriter {
    /// The socket is ready for writing.
    pub(super) fn ready(&mut self) {
        self.full = false;
    }

    /// Writes once, and returns how many of the bytes have left: 0 if the kernel takes no more.
    pub(super) fn write(&mut self, socket: &mut UnixStream, bytes: &[u8]) -> io::Result<usize> {
        while !self.full && !bytes.is_empty() {
            match socket.write(bytes) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(count) => return Ok(count),
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.full = true,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(0)
    }

    /// After the writes of a turn: watches for room, or no more.
    pub(super) fn watch(
        &mut self,
        socket: &mut UnixStream,
        registry: &Registry,
        token: Token,
    ) -> io::Result<()> {
        if self.full != self.watches_writable {
            let both = Interest::READABLE | Interest::WRITABLE;
            let interest = if self.full { both } else { Interest::READABLE };
            registry.reregister(socket, token, interest)?;
            self.watches_writable = self.full;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::time::Duration;

    use mio::{Events, Poll};

    use super::*;

    #[test]
    fn what_does_not_fit_waits_until_the_other_end_reads() {
        let (mut ours, mut theirs) = UnixStream::pair().expect("two sockets");
        let mut poll = Poll::new().expect("a poll");
        poll.registry().register(&mut ours, Token(1), Interest::READABLE).expect("a new socket");
        let mut writer = SocketWriter::default();
        let bytes = vec![7; 4 << 20];
        let mut sent = 0;
        while let count @ 1.. = writer.write(&mut ours, &bytes[sent..]).expect("it is open") {
            sent += count;
        }
        assert!(sent < bytes.len(), "the kernel keeps less");
        writer.watch(&mut ours, poll.registry(), Token(1)).expect("registered");
        let mut left = Events::with_capacity(4);
        poll.poll(&mut left, Some(Duration::ZERO)).expect("it polls");
        assert_eq!(writer.write(&mut ours, &bytes[sent..]).expect("it is open"), 0);
        let mut buffer = vec![0; sent];
        theirs.read_exact(&mut buffer).expect("all of it is there");
        let mut events = Events::with_capacity(4);
        poll.poll(&mut events, Some(Duration::from_secs(5))).expect("it polls");
        assert!(events.iter().any(mio::event::Event::is_writable), "there is room again");
        writer.ready();
        assert!(writer.write(&mut ours, &bytes[sent..]).expect("it is open") > 0);
        drop(theirs);
        assert!(writer.write(&mut ours, &bytes).is_err());
    }
}
