//! Connections to ports of a pod, for a client: each is made inside of the sandbox's network
//! namespace, to its loopback address, first of IPv4, then of IPv6.
//!
//! One client has one connection for all of them: while one port does not take its bytes and
//! [`SESSION_FORWARD_BYTES_MAX`] wait, the client is not read, and the others wait as well.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpStream};
use std::os::fd::{AsFd, AsRawFd};
use std::path::PathBuf;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, SockaddrStorage, connect, getsockopt, socket, sockopt,
};

use super::client::Socket;
use crate::io::builtin::layout::Layout;
use crate::io::builtin::namespace::{self, NET};
use crate::limits::{SESSION_FORWARD_BYTES_MAX, SESSION_READ_BYTES, SESSION_UNSENT_BYTES_MAX};
use crate::model::map::Map;
use crate::model::runtime::SandboxId;
use crate::wire::streaming::Violation;
use crate::wire::streaming::forward::{Forward, Incoming};
use crate::wire::streaming::upgrade::Protocol;

/// Where the ports are.
pub(super) struct Place {
    sandbox: SandboxId,
    folder: PathBuf,
    /// `None`: the machine's.
    network: Option<PathBuf>,
}

impl Place {
    pub(super) fn new(layout: &Layout, sandbox: &SandboxId, own_network: bool) -> Self {
        let folder = layout.sandbox(sandbox);
        let network = own_network.then(|| folder.join(NET.0));
        Self { sandbox: sandbox.clone(), folder, network }
    }

    fn connect(&self, address: SocketAddr) -> Result<TcpStream, String> {
        let connect = || begin(address).map_err(|errno| errno.desc().to_lowercase());
        match &self.network {
            None => connect(),
            Some(file) => {
                namespace::inside(NET, file, connect).map_err(|why| why.to_string()).flatten()
            }
        }
    }

    /// containerd's words.
    fn refusal(&self, port: u16, why: &str) -> String {
        let network = self.network.as_deref().unwrap_or(std::path::Path::new("the host's"));
        format!(
            "error forwarding port {port} to pod {}, uid : failed to execute portforward in \
             network namespace {:?}: failed to connect to localhost:{port} inside namespace {:?}, \
             {why}",
            self.sandbox,
            network.display().to_string(),
            self.sandbox.0
        )
    }
}

/// Begins to connect; the socket does not block.
fn begin(address: SocketAddr) -> nix::Result<TcpStream> {
    let family = if address.is_ipv6() { AddressFamily::Inet6 } else { AddressFamily::Inet };
    let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
    let fd = socket(family, SockType::Stream, flags, None)?;
    match connect(fd.as_raw_fd(), &SockaddrStorage::from(address)) {
        Ok(()) | Err(Errno::EINPROGRESS) => Ok(fd.into()),
        Err(errno) => Err(errno),
    }
}

/// One connection.
struct Port {
    number: u16,
    stream: TcpStream,
    /// Until it is connected: why the first address did not answer.
    connecting: Option<String>,
    is_connected: bool,
    to_pod: Vec<u8>,
    client_ended: bool,
    /// Told to the pod.
    pod_told: bool,
    pod_ended: bool,
}

struct Ports<'a> {
    place: &'a Place,
    forward: Forward,
    open: Map<u32, Port>,
    has_left: bool,
}

/// Serves a client until it leaves or the sandbox ends; `rest` was read of it already.
pub(super) fn serve(
    place: &Place,
    numbers: &[u16],
    protocol: Protocol,
    mut socket: Socket,
    rest: &[u8],
) {
    // A sandbox that is taken down loses its files.
    let Ok(watch) = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK) else { return };
    let gone = AddWatchFlags::IN_DELETE | AddWatchFlags::IN_DELETE_SELF;
    if watch.add_watch(&place.folder, gone).is_err() {
        return;
    }
    let forward = Forward::new(protocol, numbers);
    let mut ports = Ports { place, forward, open: Map::new(), has_left: false };
    let mut buffer = vec![0; SESSION_READ_BYTES];
    ports.take(rest);
    loop {
        ports.turn(&mut buffer);
        let sent = socket.write(ports.forward.pending());
        ports.forward.sent(sent);
        if ports.has_left || socket.has_left() || watch.read_events().is_ok() {
            return;
        }
        let is_readable = ports.wait(&socket, &watch);
        if is_readable {
            let count = socket.read(&mut buffer);
            ports.take(&buffer[..count]);
        }
    }
}

impl Ports<'_> {
    /// Whether the client has sent something, or has closed.
    fn wait(&self, socket: &Socket, watch: &Inotify) -> bool {
        let mut fds: Vec<PollFd<'_>> = Vec::with_capacity(2 + self.open.len());
        fds.push(PollFd::new(watch.as_fd(), PollFlags::POLLIN));
        let mut flags = PollFlags::empty();
        flags.set(PollFlags::POLLIN, self.is_read());
        flags.set(PollFlags::POLLOUT, !self.forward.pending().is_empty());
        fds.extend(socket.watch(flags));
        let has_room = self.has_room();
        for port in self.open.values() {
            let mut flags = PollFlags::empty();
            flags.set(PollFlags::POLLOUT, !port.is_connected || !port.to_pod.is_empty());
            flags.set(PollFlags::POLLIN, port.is_connected && !port.pod_ended && has_room);
            if !flags.is_empty() {
                fds.push(PollFd::new(port.stream.as_fd(), flags));
            }
        }
        let _ = poll(&mut fds, PollTimeout::NONE);
        let closed = PollFlags::POLLIN | PollFlags::POLLHUP | PollFlags::POLLERR;
        fds.get(1).and_then(PollFd::revents).is_some_and(|polled| polled.intersects(closed))
    }

    /// The client is: not too much waits for ports.
    fn is_read(&self) -> bool {
        let waiting: usize = self.open.values().map(|port| port.to_pod.len()).sum();
        waiting < SESSION_FORWARD_BYTES_MAX
    }

    fn has_room(&self) -> bool {
        self.forward.pending().len() < SESSION_UNSENT_BYTES_MAX
    }

    fn take(&mut self, bytes: &[u8]) {
        if self.received(bytes).is_err() {
            self.has_left = true;
        }
    }

    fn received(&mut self, mut bytes: &[u8]) -> Result<(), Violation> {
        loop {
            let (taken, incoming) = self.forward.receive(bytes)?;
            bytes = &bytes[taken..];
            match incoming {
                Some(Incoming::Open(id, number)) => self.open(id, number),
                Some(Incoming::Data(id, data)) => {
                    if let Some(port) = self.open.get_mut(&id).filter(|port| !port.client_ended) {
                        port.to_pod.extend_from_slice(&data);
                    }
                }
                Some(Incoming::End(id)) => {
                    if let Some(port) = self.open.get_mut(&id) {
                        port.client_ended = true;
                    }
                }
                Some(Incoming::Cancel(id)) => drop(self.open.remove(&id)),
                Some(Incoming::Left) => self.has_left = true,
                None if bytes.is_empty() => return Ok(()),
                None => {}
            }
        }
    }

    fn open(&mut self, id: u32, number: u16) {
        let v4 = SocketAddr::from((Ipv4Addr::LOCALHOST, number));
        let (connected, first) = match self.place.connect(v4) {
            Ok(stream) => (Ok(stream), String::new()),
            Err(why) => {
                let first = v4_failed(number, &why);
                (self.place.connect(v6(number)), first)
            }
        };
        match connected {
            Ok(stream) => {
                let connecting = Some(first);
                let port = Port {
                    number,
                    stream,
                    connecting,
                    is_connected: false,
                    to_pod: Vec::new(),
                    client_ended: false,
                    pod_told: false,
                    pod_ended: false,
                };
                self.open.insert(id, port);
            }
            Err(why) => self.fail(id, number, &v6_failed(&first, number, &why)),
        }
    }

    fn fail(&mut self, id: u32, number: u16, why: &str) {
        let text = self.place.refusal(number, why);
        self.forward.close(id, Some(&text));
    }

    /// Moves bytes.
    fn turn(&mut self, buffer: &mut [u8]) {
        let ids: Vec<u32> = self.open.keys().copied().collect();
        for id in ids {
            let Some(mut port) = self.open.remove(&id) else { continue };
            match self.turn_of(id, &mut port, buffer) {
                Ok(true) => self.forward.close(id, None),
                Ok(false) => drop(self.open.insert(id, port)),
                Err(why) => self.fail(id, port.number, &why),
            }
        }
    }

    /// Whether both directions have ended.
    fn turn_of(&mut self, id: u32, port: &mut Port, buffer: &mut [u8]) -> Result<bool, String> {
        if !port.is_connected && !self.connected(port)? {
            return Ok(false);
        }
        let has_failed = |error: &io::Error| {
            !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
        };
        while !port.to_pod.is_empty() {
            match port.stream.write(&port.to_pod) {
                Ok(count) => drop(port.to_pod.drain(..count)),
                Err(error) if has_failed(&error) => {
                    // It takes no more; what it has sent is still read.
                    port.to_pod.clear();
                    port.client_ended = true;
                }
                Err(_) => break,
            }
        }
        if port.client_ended && port.to_pod.is_empty() && !port.pod_told {
            let _ = port.stream.shutdown(Shutdown::Write);
            port.pod_told = true;
        }
        for _ in 0..4 {
            if port.pod_ended || !self.has_room() {
                break;
            }
            match port.stream.read(buffer) {
                Ok(count) if count > 0 => self.forward.data(id, &buffer[..count]),
                Err(error) if !has_failed(&error) => break,
                Ok(_) | Err(_) => {
                    port.pod_ended = true;
                    self.forward.end(id);
                }
            }
        }
        Ok(port.pod_ended && port.pod_told)
    }

    /// Whether it is connected. An address that does not answer is followed by the next one.
    fn connected(&self, port: &mut Port) -> Result<bool, String> {
        let first = port.connecting.clone().unwrap_or_default();
        match getsockopt(&port.stream, sockopt::SocketError) {
            // Not yet, or it is.
            Ok(0) => {
                port.is_connected = port.stream.peer_addr().is_ok();
                Ok(port.is_connected)
            }
            Ok(code) if first.is_empty() => {
                let first = v4_failed(port.number, &Errno::from_raw(code).desc().to_lowercase());
                let next = self.place.connect(v6(port.number));
                port.stream = next.map_err(|why| v6_failed(&first, port.number, &why))?;
                port.connecting = Some(first);
                Ok(false)
            }
            Ok(code) => {
                let why = Errno::from_raw(code).desc().to_lowercase();
                Err(v6_failed(&first, port.number, &why))
            }
            Err(errno) => Err(errno.desc().to_owned()),
        }
    }
}

fn v6(number: u16) -> SocketAddr {
    SocketAddr::from((Ipv6Addr::LOCALHOST, number))
}

fn v4_failed(number: u16, why: &str) -> String {
    format!("IPv4: dial tcp4 127.0.0.1:{number}: connect: {why}")
}

fn v6_failed(first: &str, number: u16, why: &str) -> String {
    format!("{first} IPv6 dial tcp6 [::1]:{number}: connect: {why}")
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;
    use crate::wire::spdy::forward::Forward as Peer;

    #[test]
    fn while_much_waits_for_a_port_the_client_is_not_read() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let number = listener.local_addr().expect("bound").port();
        let layout = Layout::new("/nowhere".into(), "/nowhere".into());
        let place = Place::new(&layout, &SandboxId("a".into()), false);
        let forward = Forward::new(Protocol::Spdy(1), &[]);
        let mut ports = Ports { place: &place, forward, open: Map::new(), has_left: false };
        let mut peer = Peer::default();
        let id = peer.open(number);
        peer.data(id, &vec![b'x'; SESSION_FORWARD_BYTES_MAX - 1]);
        ports.take(peer.output());
        assert!(ports.is_read());
        peer.sent(peer.output().len());
        peer.data(id, b"x");
        ports.take(peer.output());
        assert!(!ports.is_read());
        let (mut far, _) = listener.accept().expect("it was dialled");
        let mut buffer = [0; 4 << 10];
        let mut came = 0;
        while came < SESSION_FORWARD_BYTES_MAX {
            ports.turn(&mut buffer);
            came += far.read(&mut buffer).expect("it comes");
        }
        assert!(ports.is_read());
    }
}
