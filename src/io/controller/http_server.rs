//! The HTTP server of the controller's own API, for users and scrapers on this machine: one request
//! per connection.
//!
//! Any user of this machine can connect to the port on loopback, which therefore has only health
//! and metrics, and for who has a token what the page shows. Objects, including Secrets, are read
//! and changed through a unix socket in the data folder, which only its owner and root can open.
//!
//! Reads one request and passes it on, writes the answer, closes. Everything has a bound, as in
//! [`crate::io::server`]; unlike the agent's read-only API, this one accepts a body.
//! **If we crash here** the clients see a reset.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use mio::event::Event as Ready;
use mio::{Registry, Token};

use crate::controller::time::Instant;
use crate::io::socket::{Access, Address, Listener, Stream};
use crate::limits::{
    CONTROLLER_API_BODY_BYTES_MAX, CONTROLLER_API_CONNECTIONS_MAX, CONTROLLER_API_PROTECTED_MIN,
    HTTP_ACCEPTS_PER_TURN, HTTP_ANSWER_MS, HTTP_CLOSE_BYTES_MAX, HTTP_CLOSE_MS,
    HTTP_HEAD_BYTES_MAX, HTTP_REQUEST_MS,
};
use crate::wire::http1::call::{self, Call};

#[derive(Debug)]
pub struct HttpServer {
    /// The address of the port; for the `Host` of requests.
    address: SocketAddr,
    listeners: Vec<Listener>,
    /// The unix socket's token. Connection `n` has the token `n + 1` after it, the port the last
    /// one.
    first: Token,
    connections: [Option<Connection>; CONTROLLER_API_CONNECTIONS_MAX],
}

#[derive(Debug)]
struct Connection {
    stream: Stream,
    access: Access,
    state: State,
    deadline: Instant,
}

#[derive(Debug)]
enum State {
    Reading(Vec<u8>),
    Writing(Vec<u8>, usize),
    /// How many bytes were read and discarded.
    Closing(usize),
}

/// A connection whose request is answered elsewhere. It is not registered any more.
#[derive(Debug)]
pub struct Handover {
    pub stream: Stream,
    pub call: Call,
    /// What the client has sent after the request.
    pub rest: Vec<u8>,
}

enum Next {
    Wait,
    /// The request, and what follows it.
    Answer(Box<Call>, Vec<u8>),
    End,
}

impl HttpServer {
    /// [`HttpServer::tick`] opens the listeners. Port 0: only the unix socket.
    pub fn new(address: SocketAddr, socket: PathBuf, first: Token) -> Self {
        let last = Token(first.0 + 1 + CONTROLLER_API_CONNECTIONS_MAX);
        let name = "the controller's API";
        let mut listeners = vec![Listener::new(Address::Socket(socket), name, first)];
        if address.port() != 0 {
            listeners.push(Listener::new(Address::Port(address), name, last));
        }
        // For a `Host` that is an address: any loopback address is ours.
        let address = if address.port() == 0 { (Ipv4Addr::LOCALHOST, 0).into() } else { address };
        let connections = [const { None }; CONTROLLER_API_CONNECTIONS_MAX];
        Self { address, listeners, first, connections }
    }

    /// Whether the token belongs to a listener or a connection.
    pub fn owns(&self, token: Token) -> bool {
        (self.first.0..=self.first.0 + 1 + CONTROLLER_API_CONNECTIONS_MAX).contains(&token.0)
    }

    /// There are few connections: all of them are checked.
    pub fn ready(&mut self, ready: &Ready) {
        let at = ready.token().0 - self.first.0;
        if at.is_multiple_of(CONTROLLER_API_CONNECTIONS_MAX + 1)
            && let Some(listener) = self.listeners.get_mut(at.min(1))
        {
            listener.ready();
        }
    }

    /// Accepts connections and continues them; `answer` makes the bytes of an answer. Without one
    /// the connection is handed over.
    pub fn tick(
        &mut self,
        now: Instant,
        registry: &Registry,
        mut answer: impl FnMut(&Call, Access) -> Option<Vec<u8>>,
    ) -> Vec<Handover> {
        let mut handovers = Vec::new();
        for at in 0..self.listeners.len() {
            self.listeners[at].listen(now, registry, remedy);
            self.accept(at, now, registry);
        }
        for slot in &mut self.connections {
            let Some(connection) = slot else { continue };
            let mut next = connection.turn(now);
            if let Next::Answer(call, rest) = next {
                let bytes = if call::is_local(&call, self.address) {
                    answer(&call, connection.access)
                } else {
                    let why = b"expected the Host of this machine, and no other's Origin\n";
                    Some(call::answer(403, "text/plain", why))
                };
                let Some(bytes) = bytes else {
                    let Some(Connection { mut stream, .. }) = slot.take() else { continue };
                    match stream.deregister(registry) {
                        Ok(()) => handovers.push(Handover { stream, call: *call, rest }),
                        Err(error) => log::warn!("cannot hand a connection over: {error}"),
                    }
                    continue;
                };
                connection.write_answer(bytes, now);
                next = connection.turn(now);
            }
            if let Next::End = next {
                *slot = None;
            }
        }
        handovers
    }

    /// When to call [`HttpServer::tick`] if nothing gets ready before.
    pub fn wake_at(&self) -> Option<Instant> {
        let listeners = self.listeners.iter().filter_map(Listener::wake_at);
        self.connections.iter().flatten().map(|it| it.deadline).chain(listeners).min()
    }

    fn accept(&mut self, listener: usize, now: Instant, registry: &Registry) {
        for _ in 0..HTTP_ACCEPTS_PER_TURN {
            let access = self.listeners[listener].access();
            let Some(mut stream) = self.listeners[listener].accept(now) else { return };
            let Some(at) = self.free(access) else {
                // It fits into the socket's buffer.
                let busy = b"too many connections: try again\n";
                let _ = stream.write(&call::answer(503, "text/plain", busy));
                continue;
            };
            match stream.register(registry, Token(self.first.0 + 1 + at)) {
                Ok(()) => {
                    let (state, deadline) =
                        (State::Reading(Vec::new()), now.plus_ms(HTTP_REQUEST_MS));
                    self.connections[at] = Some(Connection { stream, access, state, deadline });
                }
                Err(error) => log::warn!("the controller's API cannot register a socket: {error}"),
            }
        }
    }

    /// A free slot for a connection with this access, if there is one.
    fn free(&self, access: Access) -> Option<usize> {
        let public = |it: &&Connection| it.access == Access::Public;
        let taken = self.connections.iter().flatten().filter(public).count();
        let full = taken >= CONTROLLER_API_CONNECTIONS_MAX - CONTROLLER_API_PROTECTED_MIN;
        let free = self.connections.iter().position(Option::is_none);
        free.filter(|_| access == Access::Protected || !full)
    }
}

fn remedy(address: &Address, _error: &io::Error) -> &'static str {
    match address {
        Address::Socket(_) => {
            "commands cannot reach the controller: is --data right, and its disk writable?"
        }
        Address::Port(_) => {
            "/healthz, /metrics and the page are not available: choose another address with --api"
        }
    }
}

impl Connection {
    fn write_answer(&mut self, bytes: Vec<u8>, now: Instant) {
        self.state = State::Writing(bytes, 0);
        self.deadline = now.plus_ms(HTTP_ANSWER_MS);
    }

    fn turn(&mut self, now: Instant) -> Next {
        if self.deadline <= now {
            return Next::End;
        }
        let mut buffer = [0; READ_BYTES];
        loop {
            match &mut self.state {
                State::Reading(request) => match self.stream.read(&mut buffer) {
                    Ok(0) => return Next::End,
                    Ok(count) => {
                        request.extend_from_slice(&buffer[..count]);
                        match call::call(request, CONTROLLER_API_BODY_BYTES_MAX) {
                            Ok(Some((call, length))) => {
                                return Next::Answer(Box::new(call), request.split_off(length));
                            }
                            Ok(None) if request.len() > REQUEST_BYTES_MAX => return Next::End,
                            Ok(None) => {}
                            Err(refused) => {
                                let why = format!("{}\n", refused.why);
                                let bytes =
                                    call::answer(refused.status, "text/plain", why.as_bytes());
                                self.write_answer(bytes, now);
                            }
                        }
                    }
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Err(error) if error.kind() == ErrorKind::WouldBlock => return Next::Wait,
                    Err(_) => return Next::End,
                },
                State::Writing(bytes, sent) if *sent < bytes.len() => {
                    match self.stream.write(&bytes[*sent..]) {
                        Ok(count) => *sent += count,
                        Err(error) if error.kind() == ErrorKind::Interrupted => {}
                        Err(error) if error.kind() == ErrorKind::WouldBlock => return Next::Wait,
                        Err(_) => return Next::End,
                    }
                }
                State::Writing(..) => {
                    let _ = self.stream.shutdown_write();
                    self.state = State::Closing(0);
                    self.deadline = now.plus_ms(HTTP_CLOSE_MS);
                }
                // Closing a socket that has unread bytes resets the connection.
                State::Closing(read) => match self.stream.read(&mut buffer) {
                    Ok(count @ 1..) if *read + count <= HTTP_CLOSE_BYTES_MAX => *read += count,
                    Ok(1..) => return Next::End,
                    Err(error) if error.kind() == ErrorKind::WouldBlock => return Next::Wait,
                    Ok(0) | Err(_) => return Next::End,
                },
            }
        }
    }
}

/// On the stack.
const READ_BYTES: usize = 8 << 10;
const REQUEST_BYTES_MAX: usize = CONTROLLER_API_BODY_BYTES_MAX + HTTP_HEAD_BYTES_MAX + READ_BYTES;

#[cfg(test)]
mod tests {
    use std::net::TcpStream;
    use std::os::unix::net::UnixStream;
    use std::time::Duration;

    use mio::{Events, Poll};

    use super::*;
    use crate::io::socket::Access::{Protected, Public};

    struct Bed {
        poll: Poll,
        ready: Events,
        front: HttpServer,
        socket: PathBuf,
        now: Instant,
    }

    impl Bed {
        fn new(name: &str) -> Self {
            let socket = format!("edged-front-{name}-{}.sock", std::process::id());
            let socket = std::env::temp_dir().join(socket);
            // The kernel gives no port of this address to a connection of another test.
            let free = std::net::TcpListener::bind("127.0.2.1:0").expect("a free port");
            let address = free.local_addr().expect("an address");
            drop(free);
            let mut bed = Self {
                poll: Poll::new().expect("a poll"),
                ready: Events::with_capacity(64),
                front: HttpServer::new(address, socket.clone(), Token(1)),
                socket,
                now: Instant(1_000_000),
            };
            bed.turn();
            bed
        }

        fn turn(&mut self) {
            self.poll.poll(&mut self.ready, Some(Duration::from_millis(1))).expect("it polls");
            for ready in &self.ready {
                assert!(self.front.owns(ready.token()));
                self.front.ready(ready);
            }
            let answer = |_: &Call, _| Some(call::answer(200, "text/plain", b"ok\n"));
            self.front.tick(self.now, self.poll.registry(), answer);
        }

        /// A client that sends nothing.
        fn client(&self, access: Access) -> Client {
            match access {
                Public => {
                    let stream = TcpStream::connect(self.front.address).expect("it listens");
                    stream.set_nonblocking(true).expect("it can");
                    Box::new(stream)
                }
                Protected => {
                    let stream = UnixStream::connect(&self.socket).expect("it listens");
                    stream.set_nonblocking(true).expect("it can");
                    Box::new(stream)
                }
            }
        }

        /// The number of connections.
        fn served(&self) -> usize {
            self.front.connections.iter().flatten().count()
        }

        /// The bytes that the client receives until the server closes.
        fn read(&mut self, client: &mut Client) -> String {
            let (mut text, mut buffer) = (Vec::new(), [0; 1 << 10]);
            for _ in 0..10_000 {
                match client.read(&mut buffer) {
                    Ok(0) => return String::from_utf8(text).expect("text"),
                    Ok(count) => text.extend_from_slice(&buffer[..count]),
                    Err(error) if error.kind() == ErrorKind::WouldBlock => self.turn(),
                    Err(error) => panic!("after {} bytes: {error}", text.len()),
                }
            }
            panic!("nobody hangs up");
        }
    }

    impl Drop for Bed {
        fn drop(&mut self) {
            let _ = std::fs::remove_file(&self.socket);
        }
    }

    trait Both: Read + Write {}
    impl<Stream: Read + Write> Both for Stream {}
    type Client = Box<dyn Both>;

    #[test]
    fn the_socket_has_places_that_the_port_cannot_take() {
        let mut bed = Bed::new("places");
        let mut served = Vec::new();
        for (access, limit) in [
            (Public, CONTROLLER_API_CONNECTIONS_MAX - CONTROLLER_API_PROTECTED_MIN),
            (Protected, CONTROLLER_API_CONNECTIONS_MAX),
        ] {
            while served.len() < limit {
                served.push(bed.client(access));
                bed.turn();
            }
            for _ in 0..5 {
                bed.turn();
            }
            assert_eq!(bed.served(), limit, "{access:?}");
            let text = {
                let mut more = bed.client(access);
                bed.read(&mut more)
            };
            assert!(text.starts_with("HTTP/1.1 503 "), "{access:?}: {text}");
            assert_eq!(bed.served(), limit, "{access:?}");
        }
    }

    #[test]
    fn a_request_without_an_answer_is_handed_over_with_what_follows_it() {
        let mut bed = Bed::new("handover");
        let mut client = bed.client(Protected);
        let text = b"POST /exec HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\nokrest";
        client.write_all(text).expect("it is taken");
        let mut handovers = Vec::new();
        for _ in 0..1_000 {
            bed.poll.poll(&mut bed.ready, Some(Duration::from_millis(1))).expect("it polls");
            for ready in &bed.ready {
                bed.front.ready(ready);
            }
            handovers.extend(bed.front.tick(bed.now, bed.poll.registry(), |_, _| None));
            if !handovers.is_empty() {
                break;
            }
        }
        let mut handover = handovers.pop().expect("it came");
        assert_eq!((&*handover.call.path, &*handover.call.body), ("/exec", &b"ok"[..]));
        assert_eq!((handover.rest, bed.served()), (b"rest".to_vec(), 0));
        handover.stream.write_all(b"from elsewhere").expect("there is room");
        drop(handover.stream);
        assert_eq!(bed.read(&mut client), "from elsewhere");
    }

    #[test]
    fn a_turn_takes_some_of_those_who_dial_and_the_next_one_more() {
        let mut bed = Bed::new("turn");
        let _held: Vec<_> = (0..HTTP_ACCEPTS_PER_TURN).map(|_| bed.client(Public)).collect();
        let mut last = bed.client(Public);
        bed.turn();
        assert_eq!(bed.front.wake_at(), Some(Instant(0)), "there may be more");
        let error = last.read(&mut [0; 64]).expect_err("nobody has looked at it");
        assert_eq!(error.kind(), ErrorKind::WouldBlock);
        assert!(bed.read(&mut last).starts_with("HTTP/1.1 503 "));
    }

    #[test]
    fn who_goes_on_to_send_after_its_answer_is_cut() {
        for (more, served) in [(0, 1), (1, 0)] {
            let mut bed = Bed::new("leave");
            let mut client = bed.client(Public);
            client.write_all(b"GET /x HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("it is taken");
            assert!(bed.read(&mut client).ends_with("\r\n\r\nok\n"));
            let bytes = vec![b'x'; HTTP_CLOSE_BYTES_MAX + more];
            let mut sent = 0;
            while sent < bytes.len() {
                sent += client.write(&bytes[sent..]).unwrap_or(0);
                bed.turn();
            }
            for _ in 0..5 {
                bed.turn();
            }
            assert_eq!(bed.served(), served, "{more}");
            bed.now = bed.now.plus_ms(HTTP_CLOSE_MS);
            bed.turn();
            assert_eq!(bed.served(), 0);
        }
    }
}
