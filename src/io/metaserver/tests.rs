//! The port, with clients on loopback and a core that the test plays.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use mio::{Events, Poll};

use super::*;
use crate::limits::{
    METASERVER_BODY_BYTES_MAX, METASERVER_QUEUE_MAX, METASERVER_REQUEST_MS, METASERVER_STALL_MS,
    METASERVER_TURN_BYTES,
};
use crate::model::application::Item;
use crate::model::metaserver::{Beginning, Failure, Form, Source, WatchEvent};

pub(super) struct Bench {
    poll: Poll,
    pub(super) server: MetaServer,
    pub(super) now: Now,
    pub(super) events: Vec<Event>,
}

fn item(name: &str, bytes: usize) -> Arc<Item> {
    let text = format!(
        "{{\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",\"metadata\":{{\"name\":\"{name}\"}},\
         \"data\":{{\"k\":\"{}\"}}}}",
        "x".repeat(bytes)
    );
    let item = crate::wire::metaserver::item::read(&text, None);
    Arc::new(item.expect("an object"))
}

impl Bench {
    pub(super) fn new() -> Self {
        let settings =
            MetaServerSettings { server: ([127, 0, 0, 1], 0).into(), ..Default::default() };
        let first = Token(100);
        let address = Address::Port(settings.server);
        let server = MetaServer {
            settings,
            listener: Some(Listener::new(address, "MetaServer", first)),
            secure: None,
            first,
            connections: std::iter::repeat_with(|| None).take(METASERVER_CLIENTS_MAX).collect(),
            requests: 0,
        };
        let now = Now { boot: Instant(1_000), wall: None };
        let mut bench = Self { poll: Poll::new().expect("a poll"), server, now, events: vec![] };
        bench.turn();
        bench
    }

    pub(super) fn turn(&mut self) {
        let mut ready = Events::with_capacity(64);
        let wait = Some(Duration::from_millis(1));
        self.poll.poll(&mut ready, wait).expect("a poll");
        for ready in &ready {
            assert!(self.server.owns(ready.token()));
            self.server.ready(ready);
        }
        self.server.tick(self.now.boot, self.poll.registry(), &mut self.events);
        self.server.flush(self.now, self.poll.registry(), &mut self.events);
    }

    pub(super) fn client(&self, target: &str) -> TcpStream {
        self.client_of(target, "localhost")
    }

    fn client_of(&self, target: &str, host: &str) -> TcpStream {
        let address = self.server.bound().expect("it listens");
        let mut stream = TcpStream::connect(address).expect("it accepts");
        let text = format!("GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n");
        stream.write_all(text.as_bytes()).expect("the kernel takes it");
        stream.set_nonblocking(true).expect("ours");
        stream
    }

    /// Turns until the core has a request.
    fn opened(&mut self) -> (ClientId, Call) {
        for _ in 0..TURNS {
            self.turn();
            if let Some(Event::MetaServerOpened(id, call, _)) = self.events.pop() {
                return (id, *call);
            }
        }
        panic!("no request came");
    }

    fn closed(&mut self) -> Option<ClientId> {
        for _ in 0..TURNS {
            self.turn();
            if let Some(Event::MetaServerClosed(id)) = self.events.pop() {
                return Some(id);
            }
        }
        None
    }

    /// What the client has received when so much of it is there, or its connection has ended.
    pub(super) fn received(&mut self, stream: &mut TcpStream, until: &str) -> String {
        let mut text = String::new();
        for _ in 0..TURNS {
            self.turn();
            let mut bytes = vec![0; 64 << 10];
            match stream.read(&mut bytes) {
                Ok(0) => return text,
                Ok(count) => text.push_str(&String::from_utf8_lossy(&bytes[..count])),
                Err(_) => {}
            }
            if !until.is_empty() && text.contains(until) {
                return text;
            }
        }
        panic!("{until:?} did not come, only {text}");
    }
}

/// Turns that wait for a millisecond at most.
pub(super) const TURNS: usize = 5_000;

#[test]
fn what_is_known_is_answered_at_once() {
    let mut bench = Bench::new();
    let mut stream = bench.client("/version");
    let text = bench.received(&mut stream, "");
    assert!(text.starts_with("HTTP/1.1 200 OK\r\n") && text.contains("gitVersion"), "{text}");
    let mut stream = bench.client("/api/v1/secrets");
    let text = bench.received(&mut stream, "");
    assert!(text.starts_with("HTTP/1.1 404 ") && text.contains("\"kind\":\"Status\""), "{text}");
    let mut stream = bench.client_of("/version", "evil.example");
    assert!(bench.received(&mut stream, "").starts_with("HTTP/1.1 403 "));
    assert!(bench.events.is_empty(), "the core has nothing to do with it");
}

#[test]
fn a_list_is_answered_and_the_connection_ends() {
    let mut bench = Bench::new();
    let mut stream = bench.client("/api/v1/configmaps");
    let (id, call) = bench.opened();
    let Call::List { scope, form, .. } = call else { panic!("{call:?}") };
    let served = bench.server.settings.find(&scope.gvr).expect("it is served").clone();
    // More than the kernel takes at once.
    let items = vec![item("a", 600 << 10); 8];
    let reply = Reply::List { served, items, version: 7, form, source: Source::Cloud };
    bench.server.reply(bench.now.boot, id, reply);
    let text = bench.received(&mut stream, "");
    assert!(text.ends_with("\r\n0\r\n\r\n"), "it is whole");
    assert_eq!(text.matches("\"name\":\"a\"").count(), 8);
    drop(stream);
    assert_eq!(bench.closed(), Some(id));
}

#[test]
fn a_watch_stays_open_and_its_end_is_told() {
    let mut bench = Bench::new();
    let mut stream = bench.client("/api/v1/configmaps?watch=true");
    let (id, _) = bench.opened();
    let (gone, items, bookmark) = (vec![], vec![item("a", 1)], None);
    let beginning = Beginning { form: Form::Whole, gone, items, bookmark };
    bench.server.reply(bench.now.boot, id, Reply::Watching(beginning));
    let text = bench.received(&mut stream, "\"type\":\"ADDED\"");
    assert!(text.contains("Transfer-Encoding: chunked"), "{text}");
    let event = || Reply::Event(WatchEvent::Modified(Form::Whole, item("b", 1)));
    bench.server.reply(bench.now.boot, id, event());
    bench.received(&mut stream, "\"type\":\"MODIFIED\"");
    // An idle watch lasts.
    bench.now.boot = bench.now.boot.plus_ms(600_000);
    bench.turn();
    assert!(bench.events.is_empty());
    drop(stream);
    assert_eq!(bench.closed(), Some(id));
    // Replies to a client that has left are ignored, also if another has its place.
    let _other = bench.client("/api/v1/configmaps?watch=true");
    let (other, _) = bench.opened();
    assert_ne!(id, other);
    bench.server.reply(bench.now.boot, id, event());
    assert_eq!(bench.server.connections.iter().flatten().map(Connection::queued).sum::<usize>(), 0);
}

#[test]
fn a_client_that_does_not_read_is_disconnected() {
    let mut bench = Bench::new();
    let _stream = bench.client("/api/v1/configmaps?watch=true");
    let (id, _) = bench.opened();
    let event = item("b", 4 << 10);
    for _ in 0..=2 * METASERVER_QUEUE_MAX {
        let event = WatchEvent::Modified(Form::Whole, event.clone());
        bench.server.reply(bench.now.boot, id, Reply::Event(event));
    }
    assert_eq!(bench.closed(), Some(id));
}

#[test]
fn a_request_that_does_not_end_is_refused() {
    let mut bench = Bench::new();
    let address = bench.server.bound().expect("it listens");
    let mut stream = TcpStream::connect(address).expect("it accepts");
    stream.write_all(b"GET /version HTTP/1.1\r\n").expect("the kernel takes it");
    stream.set_nonblocking(true).expect("ours");
    for _ in 0..20 {
        bench.turn();
    }
    bench.now.boot = bench.now.boot.plus_ms(METASERVER_REQUEST_MS);
    assert!(bench.received(&mut stream, "").starts_with("HTTP/1.1 408 "));
    for (code, is_repeated) in [(503, false), (429, true)] {
        let mut failed = bench.client("/api/v1/configmaps");
        let (id, _) = bench.opened();
        let failure = Failure::new(code, "", "not now");
        bench.server.reply(bench.now.boot, id, Reply::Failure(failure));
        let answer = bench.received(&mut failed, "");
        assert_eq!(answer.contains("Retry-After: 1\r\n"), is_repeated, "{answer}");
    }
}

#[test]
fn clients_beyond_the_limit_wait_for_a_free_place() {
    let mut bench = Bench::new();
    let mut all: Vec<TcpStream> = Vec::new();
    for _ in 0..METASERVER_CLIENTS_MAX {
        all.push(bench.client("/api/v1/configmaps?watch=true"));
        bench.opened();
    }
    let mut late = bench.client("/version");
    for _ in 0..20 {
        bench.turn();
    }
    assert!(bench.events.is_empty());
    drop(all.pop());
    assert!(bench.received(&mut late, "gitVersion").contains("200 OK"));
}

/// A request whose body is announced with this length.
fn posting(bench: &Bench, length: usize) -> TcpStream {
    let address = bench.server.bound().expect("it listens");
    let mut stream = TcpStream::connect(address).expect("it accepts");
    let text = format!("POST /x HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n");
    stream.write_all(text.as_bytes()).expect("the kernel takes it");
    stream.set_nonblocking(true).expect("ours");
    stream
}

#[test]
fn bodies_are_bounded_each_and_together() {
    let mut bench = Bench::new();
    let mut large = posting(&bench, METASERVER_BODY_BYTES_MAX + 1);
    assert!(bench.received(&mut large, "").starts_with("HTTP/1.1 413 "));
    // Each of these may be sent; all together are too much.
    let count = METASERVER_READING_BYTES_MAX / METASERVER_BODY_BYTES_MAX + 1;
    let mut all: Vec<TcpStream> =
        (0..count).map(|_| posting(&bench, METASERVER_BODY_BYTES_MAX)).collect();
    let part = vec![b'x'; METASERVER_TURN_BYTES];
    let mut is_refused = false;
    for _ in 0..TURNS {
        for stream in &mut all {
            let _ = stream.write(&part);
        }
        bench.turn();
        let reading: usize =
            bench.server.connections.iter().flatten().map(Connection::read_bytes).sum();
        let most = METASERVER_READING_BYTES_MAX + count * METASERVER_TURN_BYTES;
        assert!(reading <= most, "{reading} bytes are held");
        let mut start = [0; 13];
        is_refused |= all
            .iter_mut()
            .any(|stream| stream.peek(&mut start).is_ok() && start.starts_with(b"HTTP/1.1 429 "));
        if is_refused {
            return;
        }
    }
    panic!("none was refused");
}

#[test]
fn a_client_that_stalls_is_disconnected_in_time() {
    let mut bench = Bench::new();
    let _stream = bench.client("/api/v1/configmaps?watch=true");
    let (id, _) = bench.opened();
    for _ in 0..64 {
        let event = WatchEvent::Modified(Form::Whole, item("b", 600 << 10));
        bench.server.reply(bench.now.boot, id, Reply::Event(event));
        bench.turn();
    }
    assert!(bench.events.is_empty(), "it has time");
    bench.now.boot = bench.now.boot.plus_ms(METASERVER_STALL_MS);
    assert_eq!(bench.closed(), Some(id));
}

#[test]
fn where_all_queues_are_full_the_longest_goes() {
    let mut bench = Bench::new();
    let mut all = Vec::new();
    // So many that none is at its own limit.
    let count = METASERVER_QUEUES_MAX / (METASERVER_QUEUE_MAX / 2) + 2;
    let event = item("b", 4 << 10);
    assert!(count <= METASERVER_TURN_ACCEPTS * 8);
    for _ in 0..count {
        let stream = bench.client("/api/v1/configmaps?watch=true");
        let (id, _) = bench.opened();
        for _ in 0..METASERVER_QUEUE_MAX - 1 {
            let event = WatchEvent::Modified(Form::Whole, event.clone());
            bench.server.reply(bench.now.boot, id, Reply::Event(event));
        }
        all.push(stream);
        bench.turn();
    }
    // The kernel takes some of it first.
    let is_closed = |event: &Event| matches!(event, Event::MetaServerClosed(_));
    let mut turns = 0..TURNS;
    while !bench.events.iter().any(is_closed) {
        assert!(turns.next().is_some(), "none was disconnected");
        bench.turn();
    }
    for _ in 0..20 {
        bench.turn();
    }
    let queued: usize = bench.server.connections.iter().flatten().map(Connection::queued).sum();
    assert!(queued <= METASERVER_QUEUES_MAX, "{queued}");
}

#[cfg(feature = "streams")]
#[test]
fn a_connection_is_given_away_with_what_its_client_has_sent_and_only_once_it_may() {
    use crate::wire::kubelet;
    let mut bench = Bench::new();
    bench.server.settings.keadm_ctl = true;
    let target = "/api/v1/namespaces/ns/pods/p/exec?command=sh&stdout=true";
    let bound = bench.server.bound().expect("it listens");
    let exec = |bench: &Bench| {
        let mut stream = TcpStream::connect(bound).expect("a connection");
        stream.set_nonblocking(true).expect("it can");
        let head = format!(
            "POST {target} HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: \
             SPDY/3.1\r\nX-Stream-Protocol-Version: v4.channel.k8s.io\r\n\r\nearly"
        );
        stream.write_all(head.as_bytes()).expect("there is room");
        let _ = bench;
        stream
    };
    let mut client = exec(&bench);
    let (id, call) = bench.opened();
    let Call::Stream(request) = call else { panic!("{call:?}") };
    // While the core decides, the connection waits without work.
    assert!(bench.server.wake_at().is_none_or(|at| at > bench.now.boot), "it spins");
    let registry = bench.poll.registry();
    let other = ClientId(id.0 + METASERVER_CLIENTS_MAX as u64);
    assert!(bench.server.hand_over(other, (*request).clone(), registry).is_none());
    let handover = bench.server.hand_over(id, (*request).clone(), registry).expect("it is there");
    let Opening { form, method, headers, input, .. } = handover.opening;
    assert_eq!((form, &*method, &*input), (kubelet::Form::Relayed, "POST", &b"early"[..]));
    assert_eq!(headers.len(), 3, "those of the upgrade: {headers:?}");
    assert!(bench.server.hand_over(id, (*request).clone(), registry).is_none(), "once");
    drop(handover.stream);
    assert_eq!(bench.received(&mut client, ""), "");
    // A refusal is answered here.
    let mut client = exec(&bench);
    let (id, _) = bench.opened();
    bench.server.reply(bench.now.boot, id, Reply::Failure(Failure::new(403, "Forbidden", "no")));
    let answer = bench.received(&mut client, "\"no\"");
    assert!(answer.starts_with("HTTP/1.1 403 Forbidden\r\n"), "{answer}");
    let registry = bench.poll.registry();
    assert!(bench.server.hand_over(id, *request, registry).is_none(), "it was answered");
}
