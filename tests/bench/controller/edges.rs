//! Many edges in one process: TLS, the upgrade, and an acknowledgement of every push. No other part
//! of a node: the other end is measured.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use edged::wire::ws::{Incoming, Kind, Receiver, write};
use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection};
use serde_json::{Value, json};

use crate::support::dial;

/// All edges of a run.
pub struct Edges {
    hub: SocketAddr,
    configs: Vec<Arc<ClientConfig>>,
    poll: Poll,
    all: Vec<Option<Edge>>,
    /// Edges to dial.
    waiting: VecDeque<usize>,
    dialling: usize,
    /// Edges whose upgrade was accepted.
    pub up: usize,
    /// Acknowledged pushes so far.
    pub acked: u64,
    /// Connections that ended unexpectedly.
    pub lost: u64,
    next_beat: Instant,
}

struct Edge {
    socket: TcpStream,
    tls: ClientConnection,
    receiver: Receiver,
    head: Vec<u8>,
    up: bool,
}

/// Parallel handshakes: a real fleet does not connect in one moment either.
const AT_ONCE: usize = 256;

/// The name of an edge.
pub fn name(at: usize) -> String {
    format!("edge-{at}")
}

impl Edges {
    /// This many, with certificates of the CA in this folder; none dials yet.
    pub fn new(count: usize, pki: &Path, hub: SocketAddr) -> Self {
        Self {
            hub,
            configs: dial::configs(pki, (0..count).map(name)),
            poll: Poll::new().expect("a poll"),
            all: (0..count).map(|_| None).collect(),
            waiting: VecDeque::new(),
            dialling: 0,
            up: 0,
            acked: 0,
            lost: 0,
            next_beat: Instant::now(),
        }
    }

    /// Closes all connections, and dials again.
    pub fn storm(&mut self) {
        for edge in &mut self.all {
            *edge = None;
        }
        self.waiting = (0..self.all.len()).collect();
        (self.dialling, self.up) = (0, 0);
    }

    /// Continues until this holds; returns the duration. Fails after the timeout.
    pub fn until(
        &mut self,
        what: &str,
        bound: Duration,
        holds: impl Fn(&Self) -> bool,
    ) -> Duration {
        let begun = Instant::now();
        let mut events = Events::with_capacity(1_024);
        while !holds(self) {
            assert!(
                begun.elapsed() < bound,
                "waited {bound:?} for: {what}; up {}, acknowledged {}, lost {}",
                self.up,
                self.acked,
                self.lost
            );
            self.turn(&mut events);
        }
        begun.elapsed()
    }

    /// Continues for this long.
    pub fn rest(&mut self, time: Duration) {
        let end = Instant::now() + time;
        let mut events = Events::with_capacity(1_024);
        while Instant::now() < end {
            self.turn(&mut events);
        }
    }

    fn turn(&mut self, events: &mut Events) {
        while self.dialling < AT_ONCE
            && let Some(at) = self.waiting.pop_front()
        {
            self.dial(at);
        }
        self.poll.poll(events, Some(Duration::from_millis(20))).expect("a poll");
        for ready in events.iter() {
            self.serve(ready.token().0);
        }
        if Instant::now() >= self.next_beat {
            self.next_beat = Instant::now() + Duration::from_secs(10);
            for at in 0..self.all.len() {
                if let Some(edge) = self.all[at].as_mut().filter(|edge| edge.up) {
                    edge.send(&dial::keepalive());
                }
            }
        }
    }

    fn dial(&mut self, at: usize) {
        let mut socket = TcpStream::connect(self.hub).expect("a socket");
        let both = Interest::READABLE | Interest::WRITABLE;
        self.poll.registry().register(&mut socket, Token(at), both).expect("a poll");
        let server = ServerName::try_from("127.0.0.1").expect("a name");
        let mut tls = ClientConnection::new(Arc::clone(&self.configs[at]), server).expect("TLS");
        let request = dial::upgrade(&name(at));
        tls.writer().write_all(request.as_bytes()).expect("it is kept until the handshake is over");
        let receiver = Receiver::new(4 << 20);
        self.all[at] = Some(Edge { socket, tls, receiver, head: Vec::new(), up: false });
        self.dialling += 1;
    }

    fn serve(&mut self, at: usize) {
        let Some(edge) = &mut self.all[at] else { return };
        let was_up = edge.up;
        let Ok(acked) = edge.serve() else {
            self.lost += 1;
            if was_up {
                self.up -= 1;
            } else {
                self.dialling -= 1;
            }
            self.all[at] = None;
            self.waiting.push_back(at);
            return;
        };
        self.acked += acked;
        if edge.up && !was_up {
            self.up += 1;
            self.dialling -= 1;
            edge.send(&dial::keepalive());
        }
    }
}

impl Edge {
    /// Reads and writes what is possible; returns the number of acknowledgements.
    fn serve(&mut self) -> std::io::Result<u64> {
        let mut acked = 0;
        let mut buffer = [0; 16 << 10];
        loop {
            self.flush()?;
            match self.tls.read_tls(&mut self.socket) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(acked),
                Err(error) if error.kind() == ErrorKind::NotConnected => return Ok(acked),
                Err(error) => return Err(error),
            }
            self.tls.process_new_packets().map_err(std::io::Error::other)?;
            while let Ok(count @ 1..) = self.tls.reader().read(&mut buffer) {
                acked += self.parse(&buffer[..count])?;
            }
        }
    }

    fn parse(&mut self, bytes: &[u8]) -> std::io::Result<u64> {
        let mut bytes = bytes.to_vec();
        if !self.up {
            self.head.extend_from_slice(&bytes);
            let Some(end) = self.head.windows(4).position(|it| it == b"\r\n\r\n") else {
                return Ok(0);
            };
            if !self.head.starts_with(b"HTTP/1.1 101") {
                let said = String::from_utf8_lossy(&self.head).into_owned();
                return Err(std::io::Error::other(said));
            }
            bytes = std::mem::take(&mut self.head).split_off(end + 4);
            self.up = true;
        }
        let (mut rest, mut acked) = (&bytes[..], 0);
        while !rest.is_empty() {
            let (taken, incoming) =
                self.receiver.receive(rest).map_err(|why| std::io::Error::other(why.0))?;
            rest = &rest[taken..];
            match incoming {
                Some(Incoming::Message(message)) => acked += u64::from(self.message(&message)),
                Some(Incoming::Close(..)) => return Err(ErrorKind::UnexpectedEof.into()),
                Some(_) | None => {}
            }
        }
        Ok(acked)
    }

    /// Acknowledges it if it is a pod.
    fn message(&mut self, bytes: &[u8]) -> bool {
        let message = edged::wire::edge::decode(bytes).expect("a message");
        let route = &message.route;
        self.send(&json!({
            "header": {"msg_id": "a", "parent_msg_id": message.header.id, "timestamp": 1},
            "route": {"source": route.source, "group": route.group, "operation": "response",
                      "resource": route.resource},
            "content": "OK",
        }));
        route.resource.contains("/pod/")
    }

    fn send(&mut self, message: &Value) {
        let mut frame = Vec::new();
        write(Kind::Text, format!("{message}\n").as_bytes(), [1, 2, 3, 4], &mut frame);
        let _ = self.tls.writer().write_all(&frame);
        let _ = self.flush();
    }

    fn flush(&mut self) -> std::io::Result<()> {
        while self.tls.wants_write() {
            match self.tls.write_tls(&mut self.socket) {
                Ok(_) => {}
                Err(error)
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::NotConnected) =>
                {
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}
