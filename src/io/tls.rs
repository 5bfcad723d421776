//! One TLS connection over one socket, for either end; plain bytes on our side.
//!
//! It never blocks, and takes a bounded amount per turn; [`Tls::more`] says that a turn left some,
//! because epoll does not report it again. The configuration decides which peers are trusted.

use std::io::{self, ErrorKind, Read, Write};

use mio::net::TcpStream;
use rustls::Connection;

use crate::limits::CLOUD_TURN_READS;

#[cfg(test)]
pub(in crate::io) mod loopback;

#[derive(Debug)]
pub struct Tls {
    connection: Connection,
    socket: TcpStream,
    /// Reads of the socket that remain in this turn.
    reads_left: usize,
    /// The turn ended before the socket was empty: epoll does not report the rest again.
    pub(in crate::io) more: bool,
    /// Bytes were received since this was last set to false.
    pub(in crate::io) received: bool,
    /// Bytes that were written to the socket.
    pub(in crate::io) written: u64,
}

impl Tls {
    pub(in crate::io) fn new(connection: impl Into<Connection>, socket: TcpStream) -> Self {
        Self {
            connection: connection.into(),
            socket,
            reads_left: CLOUD_TURN_READS,
            more: true,
            received: false,
            written: 0,
        }
    }

    /// Starts a turn with its full allowance.
    pub(in crate::io) fn begin_turn(&mut self) {
        (self.reads_left, self.more) = (CLOUD_TURN_READS, false);
    }

    /// Continues the handshake as far as possible; returns whether it is complete.
    pub(in crate::io) fn handshake(&mut self) -> io::Result<bool> {
        while self.connection.is_handshaking() {
            self.push()?;
            match self.pull() {
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                pulled => pulled?,
            }
        }
        self.push()?;
        Ok(true)
    }

    /// Tries to write all pending bytes to the socket; returns whether that succeeded.
    pub(in crate::io) fn push_all(&mut self) -> io::Result<bool> {
        self.push()?;
        Ok(!self.connection.wants_write())
    }

    /// The other end's own certificate.
    #[cfg(feature = "controller")]
    pub(in crate::io) fn peer_certificate(&self) -> Option<&rustls::pki_types::CertificateDer<'_>> {
        self.connection.peer_certificates()?.first()
    }

    /// The other end's certificates; its own is the first.
    #[cfg(feature = "controller")]
    pub(in crate::io) fn peer_chain(&self) -> Option<&[rustls::pki_types::CertificateDer<'_>]> {
        self.connection.peer_certificates()
    }

    /// Ends the registration of the socket.
    #[cfg(any(feature = "controller", feature = "metaserver-auth"))]
    pub(in crate::io) fn deregister(&mut self, registry: &mio::Registry) -> io::Result<()> {
        registry.deregister(&mut self.socket)
    }

    /// Registers the socket again.
    #[cfg(any(feature = "controller", feature = "metaserver-auth"))]
    pub(in crate::io) fn register(
        &mut self,
        registry: &mio::Registry,
        token: mio::Token,
    ) -> io::Result<()> {
        let both = mio::Interest::READABLE | mio::Interest::WRITABLE;
        registry.register(&mut self.socket, token, both)
    }

    /// Closes the sending direction; the other end receives all that was sent, and the end.
    #[cfg(any(feature = "controller", feature = "metaserver-auth"))]
    pub(in crate::io) fn shut_write(&mut self) {
        let _ = self.socket.shutdown(std::net::Shutdown::Write);
    }

    /// Sends close_notify, as far as the socket takes it.
    pub(in crate::io) fn send_close(&mut self) {
        self.connection.send_close_notify();
        let _ = self.push();
    }

    /// Processes the bytes of one read of the socket.
    fn pull(&mut self) -> io::Result<()> {
        if self.reads_left == 0 {
            self.more = true;
            return Err(ErrorKind::WouldBlock.into());
        }
        self.reads_left -= 1;
        match self.connection.read_tls(&mut self.socket) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(_) => self.received = true,
            Err(error) if error.kind() == ErrorKind::Interrupted => return Ok(()),
            Err(error) => return Err(error),
        }
        self.process()
    }

    fn process(&mut self) -> io::Result<()> {
        match self.connection.process_new_packets() {
            Ok(_) => Ok(()),
            Err(error) => {
                // Sends the alert to the other end.
                while self.connection.wants_write()
                    && self.connection.write_tls(&mut self.socket).is_ok_and(|count| count > 0)
                {
                }
                Err(io::Error::new(ErrorKind::InvalidData, error))
            }
        }
    }

    fn push(&mut self) -> io::Result<()> {
        while self.connection.wants_write() {
            match self.connection.write_tls(&mut self.socket) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(count) => self.written += count as u64,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(self.reason(error)),
            }
        }
        Ok(())
    }

    /// Prefers the alert of the other end, which may say why it closed.
    fn reason(&mut self, error: io::Error) -> io::Error {
        for _ in 0..CLOUD_TURN_READS {
            if !matches!(self.connection.read_tls(&mut self.socket), Ok(1..)) {
                break;
            }
            if let Err(alert) = self.process() {
                return alert;
            }
        }
        error
    }
}

impl Read for Tls {
    /// 0: the other end sent close_notify.
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.connection.reader().read(to) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                read => return read,
            }
            self.pull()?;
            // The other end may have requested a response, such as a key update.
            self.push()?;
        }
    }
}

impl Write for Tls {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        if !self.push_all()? {
            return Err(ErrorKind::WouldBlock.into());
        }
        let count = self.connection.writer().write(from)?;
        self.push()?;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.push_all()? { Ok(()) } else { Err(ErrorKind::WouldBlock.into()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_reads_a_socket_so_often_and_the_next_goes_on() {
        let (mut near, mut far) = loopback::pair();
        // Records of a single byte: they cost more than they are worth.
        let (mut sent, mut came, mut full_turns, mut buffer) = (0, 0, 0, [0; 4 << 10]);
        for _ in 0..1_000 {
            if full_turns == 2 {
                break;
            }
            while sent - came < 64 << 10 && far.write(b"x").is_ok() {
                sent += 1;
            }
            near.begin_turn();
            while let Ok(count) = near.read(&mut buffer) {
                came += count;
            }
            assert_eq!(near.more, near.reads_left == 0, "it says whether it has read all");
            full_turns += usize::from(near.more);
        }
        assert_eq!(full_turns, 2, "no turn read as often as it may");
        while came < sent {
            let _ = far.push_all();
            came += loopback::came(&mut near).expect("it is there").len();
        }
        assert_eq!(came, sent, "nothing is lost between the turns");
        near.begin_turn();
        assert_eq!(near.reads_left, CLOUD_TURN_READS);
    }
}
