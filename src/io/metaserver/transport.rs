//! The bytes of one connection: as they are on loopback, or in TLS.

use std::io::{self, ErrorKind, Read, Write};

use mio::{Registry, Token};

use crate::io::socket::Stream;
use crate::io::tls::Tls;

#[derive(Debug)]
pub(super) enum Transport {
    Plain(Stream),
    Tls(Box<Tls>),
}

impl Transport {
    pub(super) fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        match self {
            Self::Plain(stream) => stream.register(registry, token),
            Self::Tls(tls) => tls.register(registry, token),
        }
    }

    pub(super) fn deregister(&mut self, registry: &Registry) -> io::Result<()> {
        match self {
            Self::Plain(stream) => stream.deregister(registry),
            Self::Tls(tls) => tls.deregister(registry),
        }
    }

    /// Whoever connects has to show who he is.
    pub(super) fn is_tls(&self) -> bool {
        matches!(self, Self::Tls(_))
    }

    /// Starts a turn with its full allowance of reads.
    pub(super) fn begin_turn(&mut self) {
        if let Self::Tls(tls) = self {
            tls.begin_turn();
        }
    }

    /// Whether the turn has left bytes in the socket that epoll will not report again.
    pub(super) fn has_more(&self) -> bool {
        match self {
            Self::Plain(_) => false,
            Self::Tls(tls) => tls.more,
        }
    }

    /// Whether everything that was written is with the kernel.
    pub(super) fn is_flushed(&mut self) -> io::Result<bool> {
        match self.flush() {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Closes the sending direction.
    pub(super) fn shutdown_write(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(stream) => stream.shutdown_write(),
            Self::Tls(tls) => {
                tls.send_close();
                tls.shut_write();
                Ok(())
            }
        }
    }
}

impl Read for Transport {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.read(to),
            Self::Tls(tls) => tls.read(to),
        }
    }
}

impl Write for Transport {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.write(from),
            Self::Tls(tls) => tls.write(from),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(stream) => stream.flush(),
            Self::Tls(tls) => tls.flush(),
        }
    }
}
