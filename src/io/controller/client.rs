//! The client of a request for a stream: a connection to the controller's own API, or
//! kube-apiserver's, which has TLS.

use std::io::{self, Read, Write};

use mio::{Registry, Token};

use crate::io::socket::Stream;
use crate::io::tls::Tls;
use crate::wire::http1::call::Call;

/// A request, and its client, which is not registered any more.
#[derive(Debug)]
pub(in crate::io) struct Asked {
    pub(in crate::io) client: Client,
    pub(in crate::io) call: Call,
    /// What the client has sent after the request.
    pub(in crate::io) rest: Vec<u8>,
}

#[derive(Debug)]
pub(in crate::io) enum Client {
    Local(Stream),
    ApiServer(Box<Tls>),
}

impl Client {
    /// Registers for readable and writable events.
    pub(in crate::io) fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        match self {
            Self::Local(stream) => stream.register(registry, token),
            Self::ApiServer(tls) => tls.register(registry, token),
        }
    }

    /// Begins a turn, of which the reads are bounded.
    pub(super) fn begin_turn(&mut self) {
        match self {
            Self::Local(_) => {}
            Self::ApiServer(tls) => tls.begin_turn(),
        }
    }

    /// After a read that would block: whether there is more in the next turn all the same.
    pub(super) fn has_more(&self) -> bool {
        match self {
            Self::Local(_) => false,
            Self::ApiServer(tls) => tls.more,
        }
    }

    /// Whether everything that was written is with the kernel.
    pub(super) fn push(&mut self) -> io::Result<bool> {
        match self {
            Self::Local(_) => Ok(true),
            Self::ApiServer(tls) => tls.push_all(),
        }
    }

    /// Closes the sending direction.
    pub(super) fn shutdown_write(&mut self) -> io::Result<()> {
        match self {
            Self::Local(stream) => stream.shutdown_write(),
            Self::ApiServer(tls) => {
                tls.send_close();
                tls.shut_write();
                Ok(())
            }
        }
    }
}

impl Read for Client {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Local(stream) => stream.read(buffer),
            Self::ApiServer(tls) => tls.read(buffer),
        }
    }
}

impl Write for Client {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Local(stream) => stream.write(bytes),
            Self::ApiServer(tls) => tls.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
