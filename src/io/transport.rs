//! The bytes of a client's connection: as they are on loopback, or in TLS.

use std::io::{self, ErrorKind, Read, Write};

use mio::{Registry, Token};

use crate::io::socket::Stream;
#[cfg(feature = "metaserver-auth")]
use crate::io::tls::Tls;

#[derive(Debug)]
pub enum Transport {
    Plain(Stream),
    #[cfg(feature = "metaserver-auth")]
    Tls(Box<Tls>),
}

impl Transport {
    pub(in crate::io) fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        match self {
            Self::Plain(stream) => stream.register(registry, token),
            #[cfg(feature = "metaserver-auth")]
            Self::Tls(tls) => tls.register(registry, token),
        }
    }

    pub(in crate::io) fn deregister(&mut self, registry: &Registry) -> io::Result<()> {
        match self {
            Self::Plain(stream) => stream.deregister(registry),
            #[cfg(feature = "metaserver-auth")]
            Self::Tls(tls) => tls.deregister(registry),
        }
    }

    /// Whoever connects has to show who he is.
    #[cfg(feature = "metaserver")]
    pub(in crate::io) fn is_tls(&self) -> bool {
        !matches!(self, Self::Plain(_))
    }

    /// Starts a turn with its full allowance of reads.
    pub(in crate::io) fn begin_turn(&mut self) {
        match self {
            Self::Plain(_) => {}
            #[cfg(feature = "metaserver-auth")]
            Self::Tls(tls) => tls.begin_turn(),
        }
    }

    /// Whether the turn has left bytes in the socket that epoll will not report again.
    pub(in crate::io) fn has_more(&self) -> bool {
        match self {
            Self::Plain(_) => false,
            #[cfg(feature = "metaserver-auth")]
            Self::Tls(tls) => tls.more,
        }
    }

    /// Whether everything that was written is with the kernel.
    pub(in crate::io) fn is_flushed(&mut self) -> io::Result<bool> {
        match self.flush() {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Closes the sending direction.
    pub(in crate::io) fn shutdown_write(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(stream) => stream.shutdown_write(),
            #[cfg(feature = "metaserver-auth")]
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
            #[cfg(feature = "metaserver-auth")]
            Self::Tls(tls) => tls.read(to),
        }
    }
}

impl Write for Transport {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.write(from),
            #[cfg(feature = "metaserver-auth")]
            Self::Tls(tls) => tls.write(from),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(stream) => stream.flush(),
            #[cfg(feature = "metaserver-auth")]
            Self::Tls(tls) => tls.flush(),
        }
    }
}
