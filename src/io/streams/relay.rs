//! The connection to the runtime's streaming server, at a URL that is valid once (edgestream.md,
//! section 9.2).

use std::fmt;
use std::io::{self, ErrorKind, Read};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use mio::event::Event as Ready;
use mio::net::{TcpStream, UnixStream};
use mio::{Registry, Token};
use nix::sys::socket::{setsockopt, sockopt};

use super::pipe::Pipe;
use crate::io::socket::Stream;
use crate::limits::STREAM_SOCKET_BYTES;
use crate::model::error::{Error, Peer, System};

#[derive(Debug)]
pub(super) struct Relay {
    socket: Stream,
    /// For errors.
    address: String,
    /// Something has come.
    has_answered: bool,
    /// There may be bytes that epoll will not report again.
    readable: bool,
    writable: bool,
}

/// What a turn has led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Moved {
    /// So many bytes were read.
    Bytes(usize),
    /// The runtime has closed.
    Closed,
}

impl Relay {
    /// Connects, and puts the request's head before what the client has sent.
    pub(super) fn open(
        url: &str,
        method: &str,
        headers: &[(String, String)],
        registry: &Registry,
        token: Token,
    ) -> Result<(Self, Vec<u8>), Error> {
        let Place { address, authority, target } = place(url)?;
        let failed = |error| System::at(format_args!("dial {address}"), error);
        let mut socket = connect(&address).map_err(failed)?;
        socket.register(registry, token).map_err(failed)?;
        let mut head = format!("{method} {target} HTTP/1.1\r\nHost: {authority}\r\n");
        for (name, value) in headers {
            head.extend([name, ": ", value, "\r\n"]);
        }
        head.push_str("\r\n");
        let address = address.to_string();
        let relay = Self { socket, address, has_answered: false, readable: false, writable: false };
        Ok((relay, head.into_bytes()))
    }

    pub(super) fn ready(&mut self, ready: &Ready) {
        self.readable |= ready.is_readable() || ready.is_read_closed() || ready.is_error();
        self.writable |= ready.is_writable() || ready.is_write_closed() || ready.is_error();
    }

    pub(super) fn is_readable(&self) -> bool {
        self.readable
    }

    /// Writes what the client has sent, and reads for it what the buffer holds. An error: nothing
    /// has come from the runtime at all.
    pub(super) fn turn(
        &mut self,
        buffer: &mut [u8],
        input: &mut Pipe,
        out: &mut Pipe,
    ) -> Result<Moved, System> {
        if self.writable && !input.is_empty() {
            match input.write_to(&mut self.socket) {
                Ok(all) => self.writable = all,
                // Whatever the runtime has still sent is read, even if it takes nothing more.
                Err(_) if self.has_answered => self.writable = false,
                Err(error) => return Err(self.failed(&error)),
            }
        }
        while self.readable && !buffer.is_empty() {
            match self.socket.read(buffer) {
                Ok(0) if self.has_answered => return Ok(Moved::Closed),
                Ok(0) => return Err(self.failed(&"closed without an answer")),
                Ok(count) => {
                    self.has_answered = true;
                    out.push(&buffer[..count]);
                    return Ok(Moved::Bytes(count));
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.readable = false,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) if self.has_answered => return Ok(Moved::Closed),
                Err(error) => return Err(self.failed(&error)),
            }
        }
        Ok(Moved::Bytes(0))
    }

    fn failed(&self, why: &dyn fmt::Display) -> System {
        System::at(format_args!("dial {}", self.address), why)
    }

    pub(super) fn close(&mut self, registry: &Registry) {
        // Closing does the same; both fail only where there is nothing to undo.
        let _ = self.socket.shutdown_write();
        let _ = self.socket.deregister(registry);
    }
}

fn connect(address: &Address<'_>) -> io::Result<Stream> {
    let bounded = |socket: &dyn AsFd| {
        if let Err(error) = setsockopt(&socket.as_fd(), sockopt::SndBuf, &STREAM_SOCKET_BYTES) {
            log::warn!("cannot bound the buffer of a connection to the runtime: {error}");
        }
    };
    match address {
        Address::Port(address) => {
            let socket = TcpStream::connect(*address)?;
            bounded(&socket);
            Ok(Stream::Port(socket))
        }
        Address::Socket(path) => {
            // A path through its folder is short enough for a socket's address.
            let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
                return Err(ErrorKind::InvalidInput.into());
            };
            let mut options = std::fs::OpenOptions::new();
            let folder = options.read(true).custom_flags(libc::O_PATH).open(folder)?;
            let through = format!("/proc/self/fd/{}", folder.as_raw_fd());
            let socket = UnixStream::connect(Path::new(&through).join(name))?;
            bounded(&socket);
            Ok(Stream::Socket(socket))
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Address<'a> {
    Port(SocketAddr),
    /// The built-in runtime's.
    Socket(&'a Path),
}

impl fmt::Display for Address<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Port(address) => write!(f, "tcp {address}"),
            Self::Socket(path) => write!(f, "unix {}", path.display()),
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
struct Place<'a> {
    address: Address<'a>,
    /// For the `Host`.
    authority: &'a str,
    target: &'a str,
}

/// The parts of a URL of the runtime. Without a host, or with that of all addresses, it is this
/// machine. Of `unix://PATH` the whole path is that of a socket, which serves one thing.
fn place(url: &str) -> Result<Place<'_>, Peer> {
    let rest = match url.split_once("://") {
        Some(("http", rest)) => rest,
        Some(("unix", path)) if path.starts_with('/') => {
            let address = Address::Socket(Path::new(path));
            return Ok(Place { address, authority: "localhost", target: "/" });
        }
        Some((scheme, _)) => {
            return Err(Peer::new(format!(
                "got the streaming URL {url:?} of the runtime, expected http, not {scheme}: switch \
                 TLS of its streaming server off"
            )));
        }
        // Some versions of cri-dockerd leave the scheme out.
        None => url.strip_prefix("//").unwrap_or(url),
    };
    let (authority, target) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let target = if target.is_empty() { "/" } else { target };
    let wrong =
        || Peer::new(format!("got the streaming URL {url:?} of the runtime, expected an address"));
    if target.bytes().any(|byte| byte <= b' ' || byte == 0x7f) {
        return Err(wrong());
    }
    let (host, port) = authority.rsplit_once(':').ok_or_else(wrong)?;
    let port = port.parse().map_err(|_| wrong())?;
    let ip = match host.trim_start_matches('[').trim_end_matches(']') {
        "" | "localhost" => Ipv4Addr::LOCALHOST.into(),
        host => host.parse::<IpAddr>().map_err(|_| wrong())?,
    };
    let ip = if ip.is_unspecified() { Ipv4Addr::LOCALHOST.into() } else { ip };
    Ok(Place { address: Address::Port(SocketAddr::new(ip, port)), authority, target })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_of_runtimes_are_understood() {
        for (url, address, target) in [
            ("http://127.0.0.1:41513/exec/Pg5N5NtS", "tcp 127.0.0.1:41513", "/exec/Pg5N5NtS"),
            ("http://[::1]:80/attach/x", "tcp [::1]:80", "/attach/x"),
            ("http://0.0.0.0:1/x", "tcp 127.0.0.1:1", "/x"),
            ("//:8080/exec/x", "tcp 127.0.0.1:8080", "/exec/x"),
            ("http://localhost:8080", "tcp 127.0.0.1:8080", "/"),
            ("unix:///run/edged/rt/s/0-12ab", "unix /run/edged/rt/s/0-12ab", "/"),
        ] {
            let got = place(url).expect(url);
            assert_eq!((got.address.to_string().as_str(), got.target), (address, target), "{url}");
        }
        for url in [
            "",
            "http://host/exec/x",
            "https://127.0.0.1:1/x",
            "http://127.0.0.1:x/",
            "http://h:1/",
            "unix://run/x",
        ] {
            assert!(place(url).is_err(), "{url}");
        }
        assert!(place("http://127.0.0.1:1/x y").is_err(), "no second word in a request line");
    }
}
