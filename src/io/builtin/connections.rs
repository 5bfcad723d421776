//! The clients of the built-in runtime: one listener, a few connections, the calls on them.
//!
//! Only root may connect: the socket's mode is 0600, and each peer's credentials are looked at.

use std::fs;
use std::io::{self, ErrorKind, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use mio::event::Event as Ready;
use mio::net::{UnixListener, UnixStream};
use mio::{Interest, Registry, Token};
use nix::sys::socket::{getsockopt, sockopt};

use crate::io::socket_writer::SocketWriter;
use crate::limits::{RUNTIME_CONNECTIONS_MAX, RUNTIME_READ_BYTES, RUNTIME_TURN_READS};
use crate::model::map::Map;
use crate::model::runtime::{Refusal, Reply, RuntimeEvent};
use crate::runtime::event::{CallId, Event};
use crate::wire::cri::serve;
use crate::wire::ttrpc::{self, Server, StreamId};

/// The listener and its connections.
#[derive(Debug)]
pub struct Connections {
    listener: UnixListener,
    first: Token,
    /// By the number that follows the listener's token.
    open: Map<usize, Connection>,
    calls: Map<CallId, Call>,
    last: u64,
    buffer: Box<[u8]>,
}

#[derive(Debug)]
struct Connection {
    socket: UnixStream,
    server: Server,
    unread: bool,
    writer: SocketWriter,
}

#[derive(Clone, Copy, Debug)]
struct Call {
    connection: usize,
    stream: StreamId,
    verbose: bool,
}

impl Connections {
    /// Listens on this path; a socket that a dead server left is replaced.
    pub fn listen(path: &Path, registry: &Registry, first: Token) -> io::Result<Self> {
        match fs::remove_file(path) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut listener = UnixListener::bind(path)?;
        fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
        registry.register(&mut listener, first, Interest::READABLE)?;
        let buffer = vec![0; RUNTIME_READ_BYTES].into();
        Ok(Self { listener, first, open: Map::new(), calls: Map::new(), last: 0, buffer })
    }

    pub fn ready(&mut self, ready: &Ready, registry: &Registry) {
        let Some(at) = ready.token().0.checked_sub(self.first.0) else { return };
        if at == 0 {
            return self.accept(registry);
        }
        if let Some(connection) = self.open.get_mut(&at) {
            connection.unread |= ready.is_readable() || ready.is_read_closed() || ready.is_error();
            if ready.is_writable() {
                connection.writer.ready();
            }
        }
    }

    fn accept(&mut self, registry: &Registry) {
        loop {
            let mut socket = match self.listener.accept() {
                Ok((socket, _)) => socket,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => {
                    if error.kind() != ErrorKind::WouldBlock {
                        log::warn!("cannot accept a connection: {error}");
                    }
                    return;
                }
            };
            let uid = getsockopt(&socket.as_fd(), sockopt::PeerCredentials).map(|peer| peer.uid());
            if uid != Ok(nix::unistd::geteuid().as_raw()) {
                log::warn!("a connection is refused: got user {uid:?}, expected our own");
                continue;
            }
            let free = (1..=RUNTIME_CONNECTIONS_MAX).find(|at| !self.open.contains_key(at));
            let Some(at) = free else {
                log::warn!("a connection is refused: there are {RUNTIME_CONNECTIONS_MAX} already");
                continue;
            };
            let token = Token(self.first.0 + at);
            if let Err(error) = registry.register(&mut socket, token, Interest::READABLE) {
                log::warn!("cannot watch a connection: {error}");
                continue;
            }
            let (server, writer) = (Server::default(), SocketWriter::default());
            self.open.insert(at, Connection { socket, server, unread: true, writer });
        }
    }

    /// Reads what is there, a bounded amount of each connection, and returns whether some remains.
    pub fn tick(&mut self, events: &mut Vec<Event>) -> bool {
        let numbers: Vec<usize> = self.open.keys().copied().collect();
        for at in numbers {
            let Some(connection) = self.open.get_mut(&at) else { continue };
            let read = connection.read(&mut self.buffer);
            self.take(at, events);
            if let Err(why) = read {
                log::debug!("connection={at} ended: {why}");
                self.close(at, events);
            }
        }
        self.open.values().any(Connection::has_more)
    }

    /// The calls that have come.
    fn take(&mut self, at: usize, events: &mut Vec<Event>) {
        while let Some(connection) = self.open.get_mut(&at)
            && let Some(incoming) = connection.server.poll_event()
        {
            match incoming {
                ttrpc::Event::Call(call) => {
                    match serve::decode(&call.service, &call.method, &call.payload) {
                        Err(refusal) => {
                            connection.server.refuse(call.stream, &serve::status(&refusal));
                        }
                        Ok(serve::Call { request, verbose }) => {
                            self.last += 1;
                            let id = CallId(self.last);
                            log::debug!("call={} method={} connection={at}", id.0, call.method);
                            let call = Call { connection: at, stream: call.stream, verbose };
                            self.calls.insert(id, call);
                            events.push(Event::Call(id, request));
                        }
                    }
                }
                // The core answers it, which nobody reads.
                ttrpc::Event::Cancelled(stream) => {
                    let is_it = |call: &Call| call.connection == at && call.stream == stream;
                    let found = self.calls.iter().find(|(_, call)| is_it(call));
                    if let Some((id, _)) = found {
                        events.push(Event::Cancel(*id));
                    }
                }
            }
        }
    }

    fn close(&mut self, at: usize, events: &mut Vec<Event>) {
        self.open.remove(&at);
        self.calls.retain(|id, call| {
            if call.connection == at {
                events.push(Event::Cancel(*id));
            }
            call.connection != at
        });
    }

    /// Answers a call, unless its client is gone.
    pub fn answer(
        &mut self,
        id: CallId,
        answer: &Result<Reply, Refusal>,
        context: serve::Context<'_>,
    ) {
        let Some(call) = self.calls.remove(&id) else { return };
        let Some(connection) = self.open.get_mut(&call.connection) else { return };
        match answer {
            Ok(reply) => {
                let context = serve::Context { verbose: call.verbose, ..context };
                connection.server.answer(call.stream, &serve::encode(reply, &context));
            }
            Err(refusal) => connection.server.refuse(call.stream, &serve::status(refusal)),
        }
    }

    /// One message of a stream. Whoever does not read its messages gets no more of them.
    pub fn item(&mut self, id: CallId, event: &RuntimeEvent, events: &mut Vec<Event>) {
        let Some(call) = self.calls.get(&id) else { return };
        let Some(connection) = self.open.get_mut(&call.connection) else { return };
        if connection.server.is_full() {
            events.push(Event::Cancel(id));
        } else {
            connection.server.item(call.stream, &serve::encode_event(event));
        }
    }

    /// Writes what is to be written; a connection that fails is closed.
    pub fn flush(&mut self, registry: &Registry, events: &mut Vec<Event>) {
        let numbers: Vec<usize> = self.open.keys().copied().collect();
        for at in numbers {
            let token = Token(self.first.0 + at);
            let Some(connection) = self.open.get_mut(&at) else { continue };
            if let Err(why) = connection.write(registry, token) {
                log::debug!("connection={at} ended: {why}");
                self.close(at, events);
            }
        }
    }
}

impl Connection {
    /// There may be bytes that epoll will not report again.
    fn has_more(&self) -> bool {
        self.unread && !self.server.is_full()
    }

    fn read(&mut self, buffer: &mut [u8]) -> io::Result<()> {
        for _ in 0..RUNTIME_TURN_READS {
            // Who does not read its answers is not read.
            if !self.has_more() {
                return Ok(());
            }
            match self.socket.read(buffer) {
                Ok(0) => return Err(io::Error::other("closed by the client")),
                Ok(count) => {
                    let received = self.server.receive(&buffer[..count]);
                    received.map_err(|why| io::Error::other(why.to_string()))?;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.unread = false,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn write(&mut self, registry: &Registry, token: Token) -> io::Result<()> {
        while let count @ 1.. = self.writer.write(&mut self.socket, self.server.output())? {
            self.server.sent(count);
        }
        self.writer.watch(&mut self.socket, registry, token)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::net;
    use std::time::Duration;

    use mio::{Events, Poll};

    use super::*;
    use crate::io::test_folder::TestFolder;
    use crate::model::runtime::Request;
    use crate::wire::rpc::{self, CallKey};

    struct Scene {
        top: TestFolder,
        poll: Poll,
        clients: Connections,
    }

    impl Scene {
        fn new(name: &str) -> Self {
            let top = TestFolder::new(name);
            let poll = Poll::new().expect("a poll");
            let clients = Connections::listen(&top.join("sock"), poll.registry(), Token(8));
            Self { clients: clients.expect("it listens"), top, poll }
        }

        fn dial(&self) -> net::UnixStream {
            let socket = net::UnixStream::connect(self.top.join("sock")).expect("it listens");
            socket.set_read_timeout(Some(Duration::from_secs(5))).expect("ours");
            socket
        }

        /// What comes until nothing more does.
        fn turn(&mut self) -> Vec<Event> {
            let mut events = Vec::new();
            let mut ready = Events::with_capacity(64);
            self.poll.poll(&mut ready, Some(Duration::from_millis(20))).expect("it polls");
            for ready in &ready {
                self.clients.ready(ready, self.poll.registry());
            }
            while self.clients.tick(&mut events) {}
            self.clients.flush(self.poll.registry(), &mut events);
            events
        }
    }

    fn context() -> serve::Context<'static> {
        serve::Context { version: "1", layers: "/l", own_layers: "/c", now: 0, verbose: false }
    }

    #[test]
    fn so_many_clients_are_served_and_a_place_that_is_left_is_given_away() {
        let mut scene = Scene::new("clients");
        let mut inside: Vec<_> = (0..RUNTIME_CONNECTIONS_MAX).map(|_| scene.dial()).collect();
        let mut outside = scene.dial();
        scene.turn();
        assert_eq!(outside.read(&mut [0]).expect("an end"), 0, "there is no place for it");
        assert_eq!(scene.clients.open.len(), RUNTIME_CONNECTIONS_MAX);
        inside.pop();
        scene.turn();
        assert_eq!(scene.clients.open.len(), RUNTIME_CONNECTIONS_MAX - 1);
        let _late = scene.dial();
        scene.turn();
        assert_eq!(scene.clients.open.len(), RUNTIME_CONNECTIONS_MAX);
    }

    #[test]
    fn a_call_is_answered_on_its_connection_and_cancelled_with_it() {
        let mut scene = Scene::new("calls");
        let mut socket = scene.dial();
        scene.turn();
        let mut client = ttrpc::Client::default();
        let service = "runtime.v1.RuntimeService";
        for key in [1, 2] {
            let status = client.unary(CallKey(key), (service, "Status"), 0, &[]);
            status.expect("there is room");
        }
        socket.write_all(client.output()).expect("it is read");
        let events = scene.turn();
        let [Event::Call(first, Request::Status), Event::Call(second, Request::Status)] =
            events[..]
        else {
            panic!("{events:?}");
        };
        scene.clients.answer(first, &Ok(Reply::Done), context());
        let mut none = Vec::new();
        scene.clients.flush(scene.poll.registry(), &mut none);
        let mut buffer = [0; 256];
        let bytes = socket.read(&mut buffer).expect("an answer");
        client.receive(&buffer[..bytes]).expect("ttrpc");
        assert!(matches!(client.poll_event(), Some(rpc::Event::Reply(CallKey(1), _))));
        drop(socket);
        assert_eq!(scene.turn(), [Event::Cancel(second)]);
        assert!(scene.clients.calls.is_empty());
        // Too late.
        scene.clients.answer(second, &Ok(Reply::Done), context());
    }
}
