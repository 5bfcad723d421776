//! Listening sockets of the local APIs: a port on loopback, which every user of this machine can
//! reach, and a unix socket, which only its owner and root can open.
//!
//! If a socket cannot be opened this is reported once and tried again; the program continues. **If
//! we crash here** the unix socket's file stays, and the next start replaces it.

use std::fmt;
use std::fs::{DirBuilder, Permissions, remove_file, set_permissions, symlink_metadata};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};

use mio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use mio::{Interest, Registry, Token};
#[cfg(feature = "streams")]
use nix::sys::socket::MsgFlags;
use nix::sys::socket::{self, AddressFamily, Backlog, SockFlag, SockType, UnixAddr};
use nix::sys::stat::{Mode, fchmod};

use crate::agent::time::Instant;
use crate::limits::HTTP_LISTEN_RETRY_MS;

/// Where an API listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// A port on loopback.
    Port(SocketAddr),
    /// The path of a unix socket.
    Socket(PathBuf),
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Port(address) => address.fmt(f),
            Self::Socket(path) => write!(f, "unix://{}", path.display()),
        }
    }
}

/// Which users may have sent a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Any user of this machine: it came through the port.
    Public,
    /// The owner of the unix socket, or root.
    Protected,
}

/// A listening socket, opened when it can be.
#[derive(Debug)]
pub struct Listener {
    address: Address,
    /// For the log: `the HTTP API`.
    name: &'static str,
    token: Token,
    /// Of a unix socket's file.
    mode: Mode,
    bound: Option<Bound>,
    /// When to try again to listen.
    retry_at: Instant,
    /// The error that was logged last.
    logged: Option<String>,
    /// There may be connections that epoll will not report again.
    waiting: bool,
}

#[derive(Debug)]
enum Bound {
    Port(TcpListener),
    Socket(UnixListener),
}

impl Listener {
    /// [`Listener::listen`] opens it.
    pub fn new(address: Address, name: &'static str, token: Token) -> Self {
        let (bound, retry_at, logged) = (None, Instant(0), None);
        let mode = Mode::S_IRUSR | Mode::S_IWUSR;
        Self { address, name, token, mode, bound, retry_at, logged, waiting: false }
    }

    /// The same for the group of a unix socket's owner, as well.
    #[cfg(feature = "devices")]
    #[must_use]
    pub fn for_group(self) -> Self {
        Self { mode: self.mode | Mode::S_IRGRP | Mode::S_IWGRP, ..self }
    }

    /// Which users can reach it.
    pub fn access(&self) -> Access {
        match self.address {
            Address::Port(_) => Access::Public,
            Address::Socket(_) => Access::Protected,
        }
    }

    /// Retries at once what failed before.
    pub fn retry(&mut self) {
        self.retry_at = Instant(0);
    }

    /// There are connections.
    pub fn ready(&mut self) {
        self.waiting = true;
    }

    /// Opens the socket if that is due. `remedy` says what the operator can do if it fails.
    pub fn listen(
        &mut self,
        now: Instant,
        registry: &Registry,
        remedy: fn(&Address, &io::Error) -> &'static str,
    ) {
        if self.bound.is_some() || now < self.retry_at {
            return;
        }
        self.retry_at = now.plus_ms(HTTP_LISTEN_RETRY_MS);
        let (name, address) = (self.name, &self.address);
        match Bound::open(address, self.mode, self.token, registry) {
            Ok(bound) => {
                log::info!("{name} listens on {address}");
                (self.bound, self.waiting, self.logged) = (Some(bound), true, None);
            }
            Err(error) => {
                let remedy = remedy(address, &error);
                let why = format!("{name} cannot listen on {address}: {error}; {remedy}");
                if self.logged.as_ref() != Some(&why) {
                    log::warn!("{why}");
                    self.logged = Some(why);
                }
            }
        }
    }

    /// The next pending connection.
    pub fn accept(&mut self, now: Instant) -> Option<Stream> {
        while self.waiting {
            let error = match self.bound.as_ref()?.accept() {
                Ok(stream) => return Some(stream),
                Err(error) => error,
            };
            match error.kind() {
                ErrorKind::WouldBlock => self.waiting = false,
                ErrorKind::ConnectionAborted | ErrorKind::Interrupted => {}
                // Most likely there are no descriptors: the open connections stay.
                _ => {
                    log::warn!("{} cannot accept a connection: {error}", self.name);
                    (self.bound, self.waiting) = (None, false);
                    self.retry_at = now.plus_ms(HTTP_LISTEN_RETRY_MS);
                }
            }
        }
        None
    }

    /// When to listen or to accept if no event comes before.
    pub fn wake_at(&self) -> Option<Instant> {
        match (&self.bound, self.waiting) {
            (None, _) => Some(self.retry_at),
            (Some(_), true) => Some(Instant(0)),
            (Some(_), false) => None,
        }
    }

    /// The port that it listens on.
    pub fn bound(&self) -> Option<SocketAddr> {
        match self.bound.as_ref()? {
            Bound::Port(listener) => listener.local_addr().ok(),
            Bound::Socket(_) => None,
        }
    }
}

impl Bound {
    fn open(address: &Address, mode: Mode, token: Token, registry: &Registry) -> io::Result<Self> {
        match address {
            Address::Port(address) => {
                let mut listener = TcpListener::bind(*address)?;
                registry.register(&mut listener, token, Interest::READABLE)?;
                Ok(Self::Port(listener))
            }
            Address::Socket(path) => {
                let mut listener = bind(path, mode)?;
                registry.register(&mut listener, token, Interest::READABLE)?;
                Ok(Self::Socket(listener))
            }
        }
    }

    fn accept(&self) -> io::Result<Stream> {
        Ok(match self {
            Self::Port(listener) => Stream::Port(listener.accept()?.0),
            Self::Socket(listener) => Stream::Socket(listener.accept()?.0),
        })
    }
}

/// Binds a unix socket that is never open to users beyond its mode, not even for a moment: the file
/// gets the mode that its descriptor already has, less the umask, and the rest of the mode then.
fn bind(path: &Path, mode: Mode) -> io::Result<UnixListener> {
    match symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            if let Some(folder) = path.parent() {
                DirBuilder::new().recursive(true).mode(FOLDER).create(folder)?;
            }
        }
        Err(error) => return Err(error),
        Ok(about) if !about.file_type().is_socket() => {
            return Err(io::Error::new(ErrorKind::AlreadyExists, "a file that is not a socket"));
        }
        // Left by an earlier run, or in use by a running process.
        Ok(_) => match UnixStream::connect(path) {
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => remove_file(path)?,
            Ok(_) => return Err(ErrorKind::AddrInUse.into()),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                return Err(ErrorKind::AddrInUse.into());
            }
            Err(error) => return Err(error),
        },
    }
    let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
    let file = socket::socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
    fchmod(&file, mode)?;
    socket::bind(file.as_raw_fd(), &UnixAddr::new(path)?)?;
    set_permissions(path, Permissions::from_mode(mode.bits()))?;
    socket::listen(&file, Backlog::new(WAITING_MAX)?)?;
    Ok(UnixListener::from_std(file.into()))
}

/// The backlog in the kernel; each turn accepts all connections that it has room for.
const WAITING_MAX: i32 = 64;
const FOLDER: u32 = 0o750;

/// A connection.
#[derive(Debug)]
pub enum Stream {
    /// To the port.
    Port(TcpStream),
    /// To the unix socket.
    Socket(UnixStream),
}

impl Stream {
    /// Registers for readable and writable events.
    pub fn register(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        let both = Interest::READABLE | Interest::WRITABLE;
        match self {
            Self::Port(stream) => registry.register(stream, token, both),
            Self::Socket(stream) => registry.register(stream, token, both),
        }
    }

    /// Ends the registration.
    pub fn deregister(&mut self, registry: &Registry) -> io::Result<()> {
        match self {
            Self::Port(stream) => registry.deregister(stream),
            Self::Socket(stream) => registry.deregister(stream),
        }
    }

    /// Closes the sending direction.
    pub fn shutdown_write(&self) -> io::Result<()> {
        match self {
            Self::Port(stream) => stream.shutdown(Shutdown::Write),
            Self::Socket(stream) => stream.shutdown(Shutdown::Write),
        }
    }
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Port(stream) => stream.read(buffer),
            Self::Socket(stream) => stream.read(buffer),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Port(stream) => stream.write(bytes),
            Self::Socket(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes what more follows at once: a port then sends full packets only, which wake the reader
/// less often. What is not followed by more is sent by the kernel after 200 ms.
#[cfg(feature = "streams")]
pub struct BeforeMore<'a>(pub &'a mut Stream);

#[cfg(feature = "streams")]
impl Write for BeforeMore<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.0 {
            Stream::Port(stream) => {
                let flags = MsgFlags::from_bits_retain(libc::MSG_MORE) | MsgFlags::MSG_NOSIGNAL;
                Ok(socket::send(stream.as_raw_fd(), bytes, flags)?)
            }
            Stream::Socket(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::test_folder::TestFolder;

    fn bind_private(path: &Path) -> io::Result<UnixListener> {
        bind(path, Mode::S_IRUSR | Mode::S_IWUSR)
    }

    #[test]
    fn a_group_is_let_in_whatever_the_umask() {
        let folder = TestFolder::new("socket");
        let path = folder.join("dmi.sock");
        bind(&path, Mode::from_bits_truncate(0o660)).expect("a socket");
        let mode = std::fs::metadata(&path).expect("it is there").permissions().mode();
        assert_eq!(mode & 0o777, 0o660);
    }

    #[test]
    fn a_socket_is_its_owners_alone() {
        let folder = TestFolder::new("socket");
        let path = folder.join("below/api.sock");
        let first = bind_private(&path).expect("a socket");
        let mode = std::fs::metadata(&path).expect("it is there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let taken = bind_private(&path).map_err(|error| error.kind());
        assert_eq!(taken.err(), Some(ErrorKind::AddrInUse), "somebody listens there");
        drop(first);
        bind_private(&path).expect("the file of one that has ended is replaced");
    }

    #[cfg(feature = "streams")]
    #[test]
    fn what_more_follows_arrives_whole_and_also_if_nothing_follows() {
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).expect("a port");
        let near = std::net::TcpStream::connect(listener.local_addr().expect("bound"));
        let near = near.expect("it listens");
        let (mut far, _) = listener.accept().expect("it was dialled");
        let mut stream = Stream::Port(TcpStream::from_std(near));
        assert_eq!(BeforeMore(&mut stream).write(b"one ").expect("there is room"), 4);
        assert_eq!(stream.write(b"two ").expect("there is room"), 4);
        assert_eq!(BeforeMore(&mut stream).write(b"three").expect("there is room"), 5);
        let mut came = [0; 13];
        far.read_exact(&mut came).expect("the kernel sends it in the end");
        assert_eq!(&came, b"one two three");
    }

    #[test]
    fn a_file_of_somebody_elses_is_left_alone() {
        let folder = TestFolder::new("socket");
        let path = folder.join("api.sock");
        std::fs::write(&path, "precious").expect("a file of ours");
        let refused = bind_private(&path).map_err(|error| error.kind());
        assert_eq!(refused.err(), Some(ErrorKind::AlreadyExists));
        assert_eq!(std::fs::read_to_string(&path).expect("it is there"), "precious");
        let long = folder.join("x".repeat(200));
        assert!(bind_private(&long).is_err(), "a path longer than an address is no panic");
    }
}
