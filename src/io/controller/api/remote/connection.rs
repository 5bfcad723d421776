//! One connection to the API server: one request after the other.

use std::io::{self, ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::sync::Arc;

use mio::net::TcpStream;
use mio::{Interest, Registry, Token};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection};

use super::request::{Task, Work};
use crate::controller::event::{Event, WatchId};
use crate::controller::time::Instant;
use crate::io::controller::keepalive;
use crate::io::tls::Tls;
use crate::limits::{API_CONNECT_MS, API_IDLE_MS};
use crate::model::error::{Error, Peer, System};
use crate::wire::http1::response::{Piece, Reader};

#[derive(Debug)]
pub(super) struct Connection {
    to: SocketAddr,
    stage: Stage,
    reader: Reader,
    task: Option<Task>,
    out: Vec<u8>,
    sent: usize,
    /// A part of the answer was received.
    answered: bool,
    /// Bytes were received since the last check.
    received: bool,
    /// Why it failed during a request.
    lost: Option<String>,
    /// It has carried an answer before.
    used: bool,
    /// It can be used again after this answer.
    reusable: bool,
    deadline: Instant,
    busy: bool,
}

#[derive(Debug)]
enum Stage {
    Connecting(TcpStream, Arc<ClientConfig>, ServerName<'static>),
    Open(Box<Tls>),
    Gone,
}

/// The result of a turn.
pub(super) enum Outcome {
    Wait,
    /// Send this request next.
    Send(Work),
    /// The connection has ended; send this request on another one.
    Retry(Work),
    /// The connection has ended.
    Over,
}

impl Connection {
    pub(super) fn open(
        to: SocketAddr,
        (config, name): (Arc<ClientConfig>, ServerName<'static>),
        token: Token,
        registry: &Registry,
        now: Instant,
    ) -> io::Result<Self> {
        let mut socket = TcpStream::connect(to)?;
        keepalive::watch_over(&socket)?;
        registry.register(&mut socket, token, Interest::READABLE | Interest::WRITABLE)?;
        Ok(Self {
            to,
            stage: Stage::Connecting(socket, config, name),
            reader: Reader::default(),
            task: None,
            out: Vec::new(),
            sent: 0,
            answered: false,
            received: false,
            lost: None,
            used: false,
            reusable: true,
            deadline: now.plus_ms(API_CONNECT_MS),
            busy: true,
        })
    }

    pub(super) fn send(&mut self, task: Task, request: Vec<u8>, now: Instant) {
        let connect_ms = if matches!(self.stage, Stage::Open(_)) { 0 } else { API_CONNECT_MS };
        self.deadline = now.plus_ms(connect_ms + task.time_ms());
        (self.task, self.out, self.sent) = (Some(task), request, 0);
        (self.answered, self.busy) = (false, true);
    }

    pub(super) fn is_idle(&self) -> bool {
        self.task.is_none() && matches!(self.stage, Stage::Open(_))
    }

    pub(super) fn is_watch(&self) -> bool {
        self.task.as_ref().is_some_and(|task| matches!(task.work, Work::Watch(..)))
    }

    pub(super) fn watch_id(&self) -> Option<WatchId> {
        self.task.as_ref()?.watch_id()
    }

    /// Whether bytes were received since the last call.
    pub(super) fn received(&mut self) -> bool {
        std::mem::take(&mut self.received)
    }

    /// Why it failed, if it did.
    pub(super) fn lost(&mut self) -> Option<String> {
        self.lost.take()
    }

    pub(super) fn mark_busy(&mut self) {
        self.busy = true;
    }

    pub(super) fn wake_at(&self) -> Instant {
        if self.busy { Instant(0) } else { self.deadline }
    }

    /// Continues as far as possible now.
    pub(super) fn turn(&mut self, now: Instant, events: &mut Vec<Event>) -> Outcome {
        if self.deadline <= now {
            return self.fail("no answer in time", events);
        }
        if !std::mem::take(&mut self.busy) {
            return Outcome::Wait;
        }
        match self.advance(now, events) {
            Ok(outcome) => outcome,
            Err(error) => self.fail(&error.to_string(), events),
        }
    }

    fn fail(&mut self, why: &str, events: &mut Vec<Event>) -> Outcome {
        self.stage = Stage::Gone;
        let Some(task) = self.task.take() else { return Outcome::Over };
        self.lost = Some(format!("{}: {why}", self.to));
        // The server may just have closed a connection that it considered idle.
        if self.used && !self.answered && task.work.is_read() {
            return Outcome::Retry(task.work);
        }
        task.lost(format!("{}: {why}", self.to), events);
        Outcome::Over
    }

    fn advance(&mut self, now: Instant, events: &mut Vec<Event>) -> Result<Outcome, Error> {
        if let Stage::Connecting(..) = &self.stage
            && !self.connect()?
        {
            return Ok(Outcome::Wait);
        }
        let Stage::Open(tls) = &mut self.stage else { return Ok(Outcome::Wait) };
        tls.begin_turn();
        if !tls.handshake()? {
            self.busy = tls.more;
            return Ok(Outcome::Wait);
        }
        while self.sent < self.out.len() {
            match tls.write(&self.out[self.sent..]) {
                Ok(count) => self.sent += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error.into()),
            }
        }
        tls.push_all()?;
        self.read(now, events)
    }

    /// Whether the TCP connection is established.
    fn connect(&mut self) -> Result<bool, Error> {
        let stage = std::mem::replace(&mut self.stage, Stage::Gone);
        let Stage::Connecting(socket, config, name) = stage else { return Ok(true) };
        if let Some(error) = socket.take_error()? {
            return Err(error.into());
        }
        match socket.peer_addr() {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::NotConnected => {
                self.stage = Stage::Connecting(socket, config, name);
                return Ok(false);
            }
            Err(error) => return Err(error.into()),
        }
        let _ = socket.set_nodelay(true);
        let connection =
            ClientConnection::new(config, name).map_err(|error| System::new(error.to_string()))?;
        self.stage = Stage::Open(Box::new(Tls::new(connection, socket)));
        Ok(true)
    }

    fn read(&mut self, now: Instant, events: &mut Vec<Event>) -> Result<Outcome, Error> {
        let Stage::Open(tls) = &mut self.stage else { return Ok(Outcome::Wait) };
        let mut buffer = [0; READ_BYTES];
        // Until the socket is empty, or TLS has reached its limit of reads per turn.
        loop {
            let count = match tls.read(&mut buffer) {
                Ok(count) => count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.busy = tls.more;
                    return Ok(Outcome::Wait);
                }
                // Go does not send close_notify; the length of an HTTP answer is known.
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => 0,
                Err(error) => return Err(error.into()),
            };
            if count == 0 {
                return self.closed(events);
            }
            self.reader.receive(&buffer[..count]);
            while let Some(piece) =
                self.reader.piece().map_err(|fault| Peer::new(fault.to_string()))?
            {
                let task = self.task.as_mut();
                let task = task.ok_or_else(|| Peer::new("an answer without a request"))?;
                (self.answered, self.received) = (true, true);
                match piece {
                    Piece::Head(head) => {
                        task.head(head.status);
                        self.reusable = head.reusable;
                    }
                    Piece::Body(bytes) => task.body(bytes, events)?,
                    Piece::End => return Ok(self.ended(now, events)),
                }
            }
        }
    }

    fn ended(&mut self, now: Instant, events: &mut Vec<Event>) -> Outcome {
        let task = self.task.take().expect("its answer has just ended");
        let then = super::after(task.end(events));
        self.used = true;
        self.deadline = now.plus_ms(API_IDLE_MS);
        self.out = Vec::new();
        self.sent = 0;
        if self.reusable && !self.reader.is_within() {
            self.busy = true;
            return then;
        }
        self.stage = Stage::Gone;
        match then {
            Outcome::Send(work) => Outcome::Retry(work),
            _ => Outcome::Over,
        }
    }

    fn closed(&mut self, events: &mut Vec<Event>) -> Result<Outcome, Error> {
        if self.task.is_none() {
            self.stage = Stage::Gone;
            return Ok(Outcome::Over);
        }
        if !self.answered || !self.reader.closed() {
            return Err(Peer::new("it closed the connection").into());
        }
        let task = self.task.take().expect("just looked at");
        self.stage = Stage::Gone;
        Ok(match super::after(task.end(events)) {
            Outcome::Send(work) => Outcome::Retry(work),
            _ => Outcome::Over,
        })
    }
}

/// On the stack.
const READ_BYTES: usize = 16 << 10;

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::os::fd::AsFd;

    use mio::Poll;
    use nix::sys::socket::{getsockopt, sockopt};
    use rustls::ServerConnection;

    use super::super::request::Listed;
    use super::*;
    use crate::controller::event::CallId;
    use crate::io::tls::loopback;
    use crate::limits::{
        API_CALL_MS, API_DEAD_MS, API_KEEPALIVE_IDLE_S, API_KEEPALIVE_PROBE_S,
        API_KEEPALIVE_PROBES, API_LIST_MS, API_WATCH_LATE_MS, API_WATCH_S,
    };
    use crate::model::api::{Call, Kind, Verb};

    struct Bed {
        listener: TcpListener,
        server: Arc<rustls::ServerConfig>,
        line: Connection,
        events: Vec<Event>,
    }

    fn at(ms: u64) -> Instant {
        Instant(1_000 + ms)
    }

    fn call() -> Work {
        let call = Call {
            verb: Verb::Get,
            kind: Kind::Node,
            namespace: "".into(),
            name: "gw".into(),
            subresource: None,
            body: None,
        };
        Work::Call(CallId(1), Box::new(call))
    }

    impl Bed {
        /// A connection in progress; the server has not accepted it yet.
        fn new() -> Self {
            let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
            let poll = Poll::new().expect("a poll");
            let (client, server) = loopback::configs();
            let to = listener.local_addr().expect("an address");
            let way = (client, ServerName::from(to.ip()));
            let line = Connection::open(to, way, Token(1), poll.registry(), at(0)).expect("a line");
            Self { listener, server, line, events: Vec::new() }
        }

        fn send(&mut self, work: Work, ms: u64) {
            let task = Task::new(work);
            let request = task.request("api", "");
            self.line.send(task, request, at(ms));
        }

        fn turn(&mut self, ms: u64) -> Outcome {
            self.line.turn(at(ms), &mut self.events)
        }

        /// The server's end, after the first request has come.
        fn far_end(&mut self) -> Tls {
            let (socket, _) = self.listener.accept().expect("it has dialled");
            socket.set_nonblocking(true).expect("it can");
            let server = ServerConnection::new(Arc::clone(&self.server)).expect("a server");
            let mut far = Tls::new(server, TcpStream::from_std(socket));
            let mut came = Vec::new();
            while !came.ends_with(b"\r\n\r\n") {
                self.line.mark_busy();
                assert!(matches!(self.turn(0), Outcome::Wait));
                far.begin_turn();
                if far.handshake().expect("they agree") {
                    came.extend(loopback::came(&mut far).expect("it stands"));
                }
            }
            far
        }
    }

    #[test]
    fn one_whose_other_end_is_gone_without_a_word_is_noticed_within_a_minute() {
        let bed = Bed::new();
        let Stage::Connecting(socket, ..) = &bed.line.stage else { panic!("{:?}", bed.line) };
        let socket = socket.as_fd();
        assert_eq!(getsockopt(&socket, sockopt::KeepAlive), Ok(true));
        let idle_s = getsockopt(&socket, sockopt::TcpKeepIdle).expect("it has one");
        let probe_s = getsockopt(&socket, sockopt::TcpKeepInterval).expect("it has one");
        let probes = getsockopt(&socket, sockopt::TcpKeepCount).expect("it has one");
        let expected = (API_KEEPALIVE_IDLE_S, API_KEEPALIVE_PROBE_S, API_KEEPALIVE_PROBES);
        assert_eq!((idle_s, probe_s, probes), expected);
        assert_eq!(getsockopt(&socket, sockopt::TcpUserTimeout), Ok(API_DEAD_MS));
        assert!(idle_s + probes * probe_s <= 60);
    }

    #[test]
    fn each_question_has_its_time_and_the_way_there_its_own() {
        let (id, kind) = (WatchId(1), Kind::Pod);
        for (work, ms) in [
            (call(), API_CALL_MS),
            (Work::List(id, Listed::Kind(kind), String::new()), API_LIST_MS),
            (
                Work::Watch(id, Listed::Kind(kind), "5".into()),
                API_WATCH_S * 1_000 + API_WATCH_LATE_MS,
            ),
        ] {
            let mut bed = Bed::new();
            bed.send(work, 0);
            let end = API_CONNECT_MS + ms;
            for now in [0, end - 1] {
                assert!(matches!(bed.turn(now), Outcome::Wait));
                assert_eq!((bed.line.wake_at(), bed.events.len()), (at(end), 0));
            }
            assert!(matches!(bed.turn(end), Outcome::Over));
            assert!(
                matches!(
                    &bed.events[..],
                    [Event::Called(CallId(1), Err(_)) | Event::Watched(WatchId(1), _)]
                ),
                "{:?}",
                bed.events
            );
        }
        // No request is pending.
        let mut bed = Bed::new();
        assert!(matches!(bed.turn(API_CONNECT_MS - 1), Outcome::Wait));
        assert!(matches!(bed.turn(API_CONNECT_MS), Outcome::Over));
    }

    #[test]
    fn a_connection_is_kept_for_a_while_and_asked_again() {
        for reusable in [false, true] {
            let mut bed = Bed::new();
            bed.send(call(), 0);
            let mut far = bed.far_end();
            far.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}").expect("it is taken");
            while bed.events.is_empty() {
                bed.line.mark_busy();
                assert!(matches!(bed.turn(0), Outcome::Wait));
            }
            assert!(matches!(bed.turn(API_IDLE_MS - 1), Outcome::Wait) && bed.line.is_idle());
            if reusable {
                bed.send(call(), API_IDLE_MS - 1);
                assert!(matches!(bed.turn(API_IDLE_MS), Outcome::Wait));
                let end = at(API_IDLE_MS - 1 + API_CALL_MS);
                assert_eq!(bed.line.wake_at(), end, "it stands: there is no way to be had");
            } else {
                assert!(matches!(bed.turn(API_IDLE_MS), Outcome::Over));
            }
        }
    }
}
