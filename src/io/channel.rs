//! The sockets between the built-in runtime's server and its monitors, and between the agent and
//! the process that serves Services (SOCK_SEQPACKET, unix(7)): each message arrives whole or not at
//! all, so that none needs a length. Nothing here waits.

#![expect(unsafe_code, reason = "accepted and received descriptors come as plain numbers")]

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::sys::socket::{
    AddressFamily, Backlog, ControlMessageOwned, MsgFlags, SockFlag, SockType, UnixAddr, accept4,
    bind, connect, listen, recv, recvmsg, send, socket, socketpair,
};
use nix::sys::stat::Mode;

const FLAGS: SockFlag = SockFlag::SOCK_CLOEXEC.union(SockFlag::SOCK_NONBLOCK);

/// One end of a connection.
#[derive(Debug)]
pub struct Channel(OwnedFd);

/// What a receiver finds.
#[derive(Debug, PartialEq, Eq)]
pub enum Received {
    /// A message of so many bytes; what is longer than the buffer is cut.
    Message(usize),
    Nothing,
    /// The other end is gone.
    End,
}

impl Channel {
    pub fn pair() -> io::Result<(Self, Self)> {
        let (one, other) = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, FLAGS)?;
        Ok((Self(one), Self(other)))
    }

    /// Takes over a descriptor that is such a socket.
    pub fn from_fd(fd: OwnedFd) -> Self {
        Self(fd)
    }

    /// To the socket `name` in `folder`, whose path may be longer than a socket's may.
    pub fn connect(folder: &Path, name: &str) -> io::Result<Self> {
        let folder = handle(folder)?;
        let socket = socket(AddressFamily::Unix, SockType::SeqPacket, FLAGS, None)?;
        let path = format!("/proc/self/fd/{}/{name}", folder.as_raw_fd());
        connect(socket.as_raw_fd(), &UnixAddr::new(path.as_str())?)?;
        Ok(Self(socket))
    }

    /// Whether it was sent: there may be no room, or nobody there.
    pub fn send(&self, bytes: &[u8]) -> bool {
        let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
        loop {
            match send(self.0.as_raw_fd(), bytes, flags) {
                Err(Errno::EINTR) => {}
                sent => return sent == Ok(bytes.len()),
            }
        }
    }

    pub fn receive(&self, buffer: &mut [u8]) -> Received {
        loop {
            match recv(self.0.as_raw_fd(), buffer, MsgFlags::MSG_DONTWAIT) {
                Ok(0) => return Received::End,
                Ok(bytes) => return Received::Message(bytes),
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => return Received::Nothing,
                Err(_) => return Received::End,
            }
        }
    }

    pub fn into_fd(self) -> OwnedFd {
        self.0
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// A folder to name sockets in: a path through it is short enough for their addresses.
fn handle(folder: &Path) -> io::Result<OwnedFd> {
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    Ok(open(folder, flags, Mode::empty())?)
}

/// A listening socket.
#[derive(Debug)]
pub struct Listener(OwnedFd);

impl Listener {
    /// In this folder, whose path may be longer than a socket's may.
    pub fn open_in(folder: &Path, name: &str, kind: SockType) -> io::Result<Self> {
        let folder = handle(folder)?;
        Self::open(&format!("/proc/self/fd/{}/{name}", folder.as_raw_fd()), kind)
    }

    /// In the current folder. Replaces what has this name; for its owner alone.
    pub fn open(name: &str, kind: SockType) -> io::Result<Self> {
        let _ = std::fs::remove_file(name);
        let socket = socket(AddressFamily::Unix, kind, FLAGS, None)?;
        bind(socket.as_raw_fd(), &UnixAddr::new(name)?)?;
        std::fs::set_permissions(name, std::os::unix::fs::PermissionsExt::from_mode(0o600))?;
        listen(&socket, Backlog::new(8)?)?;
        Ok(Self(socket))
    }

    /// A connection, if one waits.
    pub fn accept(&self) -> Option<Channel> {
        let fd = accept4(self.0.as_raw_fd(), FLAGS).ok()?;
        // SAFETY: the kernel has just made this descriptor, and nobody else has it.
        Some(Channel(unsafe { OwnedFd::from_raw_fd(fd) }))
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// The descriptor that a message carries: a console's, from the OCI runtime.
pub fn receive_fd(from: &Channel) -> Option<OwnedFd> {
    let mut byte = [0; 64];
    let mut space = nix::cmsg_space!([i32; 1]);
    let mut parts = [io::IoSliceMut::new(&mut byte)];
    let flags = MsgFlags::MSG_CMSG_CLOEXEC | MsgFlags::MSG_DONTWAIT;
    let fd = from.0.as_raw_fd();
    let message = recvmsg::<()>(fd, &mut parts, Some(&mut space), flags).ok()?;
    let mut carried = message.cmsgs().ok()?.flat_map(|part| match part {
        ControlMessageOwned::ScmRights(fds) => fds,
        _ => Vec::new(),
    });
    // SAFETY: the kernel has just made this descriptor for this process, and nobody else has it.
    carried.next().map(|fd| unsafe { OwnedFd::from_raw_fd(fd) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_arrive_whole_and_the_end_is_seen() {
        let (one, other) = Channel::pair().expect("a pair");
        let mut buffer = [0; 8];
        assert_eq!(other.receive(&mut buffer), Received::Nothing);
        assert!(one.send(b"ab") && one.send(b"cde"));
        assert_eq!(other.receive(&mut buffer), Received::Message(2));
        assert_eq!(other.receive(&mut buffer), Received::Message(3));
        assert_eq!(&buffer[..3], b"cde");
        // One that does not read does not block the other.
        let mut sent = 0;
        while one.send(&[0; 4_096]) {
            sent += 1;
        }
        assert!(sent > 0);
        drop(other);
        assert!(!one.send(b"x"));
        assert_eq!(one.receive(&mut buffer), Received::End);
    }

    #[test]
    fn a_socket_may_lie_deeper_than_its_address_is_long() {
        let top = std::env::temp_dir().join(format!("edged-channel-{}", std::process::id()));
        let deep = top.join("x".repeat(120));
        std::fs::create_dir_all(&deep).expect("a folder");
        assert!(Channel::connect(&deep, "ctl").is_err());
        // The name is relative to the folder of this process, which other tests share.
        let name = format!("/tmp/edged-channel-{}.sock", std::process::id());
        let listener = Listener::open(&name, SockType::SeqPacket).expect("it listens");
        let again = Listener::open(&name, SockType::SeqPacket).expect("the old name is replaced");
        assert!(listener.accept().is_none());
        let place = deep.join("ctl");
        std::fs::rename(&name, &place).expect("a name of ours");
        let mode = std::os::unix::fs::PermissionsExt::mode(
            &std::fs::metadata(&place).expect("it is there").permissions(),
        );
        assert_eq!(mode & 0o777, 0o600);
        let one = Channel::connect(&deep, "ctl").expect("it listens");
        let other = again.accept().expect("a connection");
        assert!(one.send(b"x"));
        assert_eq!(other.receive(&mut [0; 8]), Received::Message(1));
        std::fs::remove_dir_all(&top).expect("ours");
    }
}
