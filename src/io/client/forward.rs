//! Ports of this machine whose connections lead to ports of a pod, all over one connection to the
//! agent.
//!
//! Without flow control in between, what a pod sends to a client that does not read has to be kept
//! or to stop everything. It is kept up to a bound, and then nothing is read for any client until
//! that one reads or hangs up.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::os::fd::AsFd;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::connection::{Connection, again};
use crate::limits::{
    CLIENT_READ_BYTES, CLIENT_UNSENT_BYTES_MAX, FORWARD_CONNECTIONS_MAX, FORWARD_UNREAD_BYTES_MAX,
};
use crate::model::map::Map;
use crate::wire::spdy::forward::{Event, Forward};

/// A local port, and the pod's port behind it.
#[derive(Debug)]
pub struct Listener {
    socket: TcpListener,
    pub local: u16,
    pub remote: u16,
}

impl Listener {
    /// Listens on 127.0.0.1; `local` 0: on any free port.
    pub fn open(local: u16, remote: u16) -> io::Result<Self> {
        let socket = TcpListener::bind((Ipv4Addr::LOCALHOST, local))?;
        socket.set_nonblocking(true)?;
        let local = socket.local_addr()?.port();
        Ok(Self { socket, local, remote })
    }
}

/// A client of a local port.
#[derive(Debug)]
struct Client {
    socket: TcpStream,
    local: u16,
    remote: u16,
    /// From the pod, not written yet.
    unread: Vec<u8>,
    /// The client may send more.
    sends: bool,
    /// The pod may send more.
    receives: bool,
}

/// The forwarding of some ports.
pub struct Ports<'a> {
    connection: Connection,
    forward: Forward,
    listeners: Vec<Listener>,
    clients: Map<u32, Client>,
    out: &'a mut dyn Write,
    err: &'a mut dyn Write,
}

/// What each descriptor is ready for, in the order of [`Ports::wait`].
struct Ready {
    socket: bool,
    listeners: Vec<usize>,
    clients: Vec<(u32, PollFlags)>,
}

impl<'a> Ports<'a> {
    pub fn new(
        connection: Connection,
        listeners: Vec<Listener>,
        out: &'a mut dyn Write,
        err: &'a mut dyn Write,
    ) -> Self {
        let (forward, clients) = (Forward::default(), Map::new());
        Self { connection, forward, listeners, clients, out, err }
    }

    /// Serves the ports until the connection ends; returns why it did. An error: `out` or `err`
    /// could not be written.
    pub fn run(mut self) -> io::Result<String> {
        let early = self.connection.early();
        if let Some(why) = self.receive(&early)? {
            return Ok(why);
        }
        let mut buffer = vec![0; CLIENT_READ_BYTES];
        loop {
            if let Some(why) = self.send() {
                return Ok(why);
            }
            let ready = match self.wait() {
                Ok(ready) => ready,
                Err(Errno::EINTR) => continue,
                Err(errno) => return Ok(format!("poll: {}", errno.desc())),
            };
            if ready.socket {
                let why = match self.connection.read(&mut buffer) {
                    Ok(None) => None,
                    Ok(Some(0)) => Some("it was closed".to_owned()),
                    Ok(Some(count)) => self.receive(&buffer[..count])?,
                    Err(error) => Some(error.to_string()),
                };
                if let Some(why) = why {
                    return Ok(why);
                }
            }
            for at in ready.listeners {
                if let Some(why) = self.accept(at)? {
                    return Ok(why);
                }
            }
            for (id, flags) in ready.clients {
                self.serve(id, flags, &mut buffer);
            }
        }
    }

    fn wait(&self) -> nix::Result<Ready> {
        let is_full = |client: &Client| client.unread.len() >= FORWARD_UNREAD_BYTES_MAX;
        let mut flags = PollFlags::empty();
        flags.set(PollFlags::POLLIN, !self.clients.values().any(is_full));
        flags.set(PollFlags::POLLOUT, !self.forward.output().is_empty());
        let mut fds = vec![PollFd::new(self.connection.fd(), flags)];
        let mut accepts = PollFlags::empty();
        accepts.set(PollFlags::POLLIN, self.clients.len() < FORWARD_CONNECTIONS_MAX);
        fds.extend(self.listeners.iter().map(|it| PollFd::new(it.socket.as_fd(), accepts)));
        let has_room = self.forward.output().len() < CLIENT_UNSENT_BYTES_MAX;
        fds.extend(self.clients.values().map(|client| {
            let mut flags = PollFlags::empty();
            flags.set(PollFlags::POLLIN, client.sends && has_room);
            flags.set(PollFlags::POLLOUT, !client.unread.is_empty());
            PollFd::new(client.socket.as_fd(), flags)
        }));
        poll(&mut fds, PollTimeout::NONE)?;
        let found = |fd: &PollFd<'_>| fd.revents().unwrap_or(PollFlags::empty());
        let (first, rest) = fds.split_at(1 + self.listeners.len());
        let is_readable = |fd: &PollFd<'_>| found(fd).intersects(!PollFlags::POLLOUT);
        let listeners = (0..self.listeners.len()).filter(|at| is_readable(&first[1 + at]));
        let clients = self.clients.keys().copied().zip(rest.iter().map(found));
        Ok(Ready {
            socket: is_readable(&first[0]),
            listeners: listeners.collect(),
            clients: clients.filter(|(_, flags)| !flags.is_empty()).collect(),
        })
    }

    /// Returns why no client can be accepted any more.
    fn accept(&mut self, at: usize) -> io::Result<Option<String>> {
        let Listener { socket, local, remote } = &self.listeners[at];
        let (local, remote) = (*local, *remote);
        let accepted = socket.accept().and_then(|(client, _)| {
            client.set_nonblocking(true)?;
            Ok(client)
        });
        match accepted {
            Ok(socket) => {
                writeln!(self.out, "Handling connection for {local}")?;
                self.out.flush()?;
                let id = self.forward.open(remote);
                let unread = Vec::new();
                let client = Client { socket, local, remote, unread, sends: true, receives: true };
                self.clients.insert(id, client);
                Ok(None)
            }
            // The client has gone again.
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::ConnectionAborted) =>
            {
                Ok(None)
            }
            Err(error) => Ok(Some(format!("cannot accept a connection to {local}: {error}"))),
        }
    }

    /// Passes received bytes on; returns why the connection is unusable.
    fn receive(&mut self, bytes: &[u8]) -> io::Result<Option<String>> {
        let mut rest = bytes;
        loop {
            match self.forward.receive(rest) {
                Err(violation) => return Ok(Some(violation.to_string())),
                Ok((_, None)) => break,
                Ok((taken, Some(event))) => {
                    rest = &rest[taken..];
                    match event {
                        Event::Data(id, bytes) => {
                            if let Some(client) = self.clients.get_mut(&id) {
                                client.unread.extend_from_slice(bytes);
                            }
                        }
                        Event::End(id) => {
                            if let Some(client) = self.clients.get_mut(&id) {
                                client.receives = false;
                            }
                        }
                        Event::Failed(id, why) => self.failed(id, &why)?,
                    }
                }
            }
        }
        let ids: Vec<u32> = self.clients.keys().copied().collect();
        for id in ids {
            self.write(id);
        }
        Ok(None)
    }

    fn failed(&mut self, id: u32, why: &str) -> io::Result<()> {
        let Some(Client { local, remote, .. }) = self.clients.remove(&id) else { return Ok(()) };
        let why = crate::io::log::printable(why);
        writeln!(self.err, "an error occurred forwarding {local} -> {remote}: {why}")
    }

    /// Returns why nothing can be sent any more.
    fn send(&mut self) -> Option<String> {
        while !self.forward.output().is_empty() {
            match self.connection.write(self.forward.output()) {
                Ok(Some(count)) => self.forward.sent(count),
                Ok(None) => return None,
                Err(error) => return Some(error.to_string()),
            }
        }
        None
    }

    fn serve(&mut self, id: u32, flags: PollFlags, buffer: &mut [u8]) {
        if flags.contains(PollFlags::POLLOUT) {
            self.write(id);
        }
        let Some(client) = self.clients.get_mut(&id) else { return };
        if !flags.intersects(!PollFlags::POLLOUT) {
            return;
        }
        if !client.sends {
            // It has hung up, and takes nothing more either.
            return self.drop_client(id);
        }
        match again(client.socket.read(buffer)) {
            Ok(None) => {}
            Ok(Some(0)) => {
                client.sends = false;
                self.forward.end(id);
                self.drop_if_ended(id);
            }
            Ok(Some(count)) => self.forward.data(id, &buffer[..count]),
            Err(_) => self.drop_client(id),
        }
    }

    /// Writes what waits for a client.
    fn write(&mut self, id: u32) {
        let Some(client) = self.clients.get_mut(&id) else { return };
        while !client.unread.is_empty() {
            match again(client.socket.write(&client.unread)) {
                Ok(Some(count)) => drop(client.unread.drain(..count)),
                Ok(None) => return,
                Err(_) => return self.drop_client(id),
            }
        }
        if !client.receives {
            // One that has hung up is dropped all the same.
            let _ = client.socket.shutdown(Shutdown::Write);
            self.drop_if_ended(id);
        }
    }

    fn drop_if_ended(&mut self, id: u32) {
        let ended = |client: &Client| !client.sends && !client.receives && client.unread.is_empty();
        if self.clients.get(&id).is_some_and(ended) {
            self.clients.remove(&id);
        }
    }

    fn drop_client(&mut self, id: u32) {
        self.clients.remove(&id);
        self.forward.cancel(id);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    /// Runs a test with a port, whose number is passed on, and the agent's end of the connection.
    fn with_port(test: impl FnOnce(&mut Ports<'_>, u16, UnixStream)) {
        let (ours, theirs) = UnixStream::pair().expect("two sockets");
        let connection = Connection::of(ours, "HTTP/1.1 101 X\r\n\r\n");
        let listener = Listener::open(0, 80).expect("a port");
        let local = listener.local;
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let mut ports = Ports::new(connection, vec![listener], &mut out, &mut err);
        test(&mut ports, local, theirs);
    }

    fn connect(ports: &mut Ports<'_>, port: u16) -> (TcpStream, u32) {
        let client = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("it listens");
        assert_eq!(ports.wait().expect("poll").listeners, [0]);
        assert_eq!(ports.accept(0).expect("memory takes what is written"), None);
        (client, *ports.clients.keys().next_back().expect("a client"))
    }

    fn data(stream: u32, bytes: &[u8]) -> Vec<u8> {
        [&stream.to_be_bytes()[..], &(bytes.len() as u32).to_be_bytes(), bytes].concat()
    }

    #[test]
    fn nothing_is_read_while_a_client_leaves_too_much_unread() {
        with_port(|ports, port, mut agent| {
            let (_client, id) = connect(ports, port);
            agent.write_all(b"x").expect("it fits");
            assert!(ports.wait().expect("poll").socket);
            // Its socket takes some, the rest waits.
            let mut received = 0;
            while ports.clients[&id].unread.len() < FORWARD_UNREAD_BYTES_MAX {
                ports.receive(&data(id, &[b'x'; 10_000])).expect("memory takes what is written");
                received += 10_000;
                assert!(received < 64 << 20, "it takes everything");
            }
            ports.forward.data(id, b"so that the socket is ready to be written");
            assert!(!ports.wait().expect("poll").socket);
            ports.clients.get_mut(&id).expect("it is there").unread.clear();
            assert!(ports.wait().expect("poll").socket);
        });
    }

    #[test]
    fn clients_have_a_bound() {
        with_port(|ports, port, mut agent| {
            agent.write_all(b"x").expect("it fits");
            let mut clients = Vec::new();
            for _ in 0..FORWARD_CONNECTIONS_MAX {
                clients.push(connect(ports, port).0);
            }
            clients.push(TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("it listens"));
            assert!(ports.wait().expect("poll").listeners.is_empty());
            let first = *ports.clients.keys().next().expect("a client");
            ports.drop_client(first);
            assert_eq!(ports.wait().expect("poll").listeners, [0]);
        });
    }

    #[test]
    fn a_client_that_hangs_up_is_forgotten() {
        with_port(|ports, port, _agent| {
            let (client, id) = connect(ports, port);
            let mut buffer = [0; 9];
            // It ends its side, and reads what comes.
            client.shutdown(Shutdown::Write).expect("it is open");
            ports.serve(id, PollFlags::POLLIN, &mut buffer);
            assert!(ports.clients.contains_key(&id) && ports.forward.has(id));
            ports.serve(id, PollFlags::POLLHUP, &mut buffer);
            assert!(!ports.clients.contains_key(&id) && !ports.forward.has(id));
            // What still comes for it is for nobody.
            let late = ports.receive(&data(id, b"late"));
            assert_eq!(late.expect("memory takes what is written"), None);
        });
    }
}
