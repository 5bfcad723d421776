//! TLS is not built in: no value of this type exists.

use std::convert::Infallible;
use std::io;
use std::net::IpAddr;

use mio::net::TcpStream;

#[derive(Debug)]
pub(super) struct Tls(Infallible);

impl Tls {
    /// `None`: not built in.
    pub(super) fn new(_: IpAddr) -> Option<Self> {
        None
    }

    pub(super) fn read(&mut self, _: &mut TcpStream, _: &mut [u8]) -> io::Result<usize> {
        match self.0 {}
    }

    pub(super) fn write(&mut self, _: &mut TcpStream, _: &[u8]) -> io::Result<usize> {
        match self.0 {}
    }

    pub(super) fn trouble(&self) -> Option<String> {
        match self.0 {}
    }

    pub(super) fn is_plain_http(&self) -> bool {
        match self.0 {}
    }
}
