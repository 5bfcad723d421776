//! With real clients and real REST endpoints on loopback.
#![expect(clippy::disallowed_methods, reason = "the other ends live beside the test")]

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use mio::{Events, Poll};
use rcgen::{CertificateParams, KeyPair, SanType};
use rustls::crypto::ring::default_provider;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{ClientConnection, ServerConfig, ServerConnection, StreamOwned};

use super::*;
use crate::io::clock;
use crate::io::test_folder::TestFolder;
use crate::io::tls::loopback;
use crate::limits::{
    ROUTER_BODIES_BYTES_MAX, ROUTER_BODY_BYTES_MAX, ROUTER_CLIENT_MS, ROUTER_CONNECTIONS_MAX,
    ROUTER_HEAD_MS, ROUTER_NAME_MS, ROUTER_POST_BYTES_MAX, ROUTER_POST_MS, ROUTER_POSTS_MAX,
    ROUTER_STRANGER_MS, ROUTER_TURN_BYTES,
};
use crate::model::router::{PostAnswer, RestRequest, RestUrl, RouterEvent};
use crate::wire::x509::pem;

const TOKEN: &str = "0123456789abcdef-router";
/// More than goes in or out in one turn.
const BODY: usize = ROUTER_TURN_BYTES + 40_000;

struct Bed {
    poll: Poll,
    router: Router,
    events: Vec<Event>,
    /// Milliseconds by which the clock is ahead.
    ahead_ms: u64,
    address: SocketAddr,
    _folder: TestFolder,
}

impl Bed {
    fn new(name: &str, tls: Option<Arc<ServerConfig>>, cas: Option<&str>) -> Self {
        let folder = TestFolder::new(name);
        let token = folder.join("token");
        fs::write(&token, TOKEN).expect("a folder of ours");
        let authorities = cas.map(|text| {
            let path = folder.join("ca.crt");
            fs::write(&path, text).expect("a folder of ours");
            path
        });
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback");
        let address = free.local_addr().expect("an address");
        drop(free);
        let gate = Gate { address, tls, token };
        let program = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/pipe/hang");
        let router = Router::new(Some(gate), program.into(), authorities, Token(8));
        let poll = Poll::new().expect("a poll");
        let mut bed =
            Self { poll, router, events: Vec::new(), ahead_ms: 0, address, _folder: folder };
        bed.turn();
        bed
    }

    fn now(&self) -> Instant {
        clock::boot().plus_ms(self.ahead_ms)
    }

    fn turn(&mut self) {
        let mut ready = Events::with_capacity(64);
        let wait = Some(Duration::from_millis(5));
        match self.poll.poll(&mut ready, wait) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            polled => polled.expect("it polls"),
        }
        for ready in &ready {
            assert!(self.router.owns(ready.token()));
            self.router.ready(ready);
        }
        let now = self.now();
        self.router.tick(now, self.poll.registry(), &mut self.events);
    }

    /// The next event of the router.
    fn next(&mut self) -> RouterEvent {
        for _ in 0..4_000 {
            if let Some(Event::Router(event)) = self.events.pop() {
                return *event;
            }
            self.turn();
        }
        panic!("nothing happens");
    }

    fn request(&mut self) -> (RestId, RestRequest) {
        match self.next() {
            RouterEvent::Request(id, request) => (id, *request),
            other => panic!("{other:?}"),
        }
    }

    fn post(&mut self, id: u64, url: &str, body: &[u8]) {
        let (url, headers) = (RestUrl::parse(url).expect(url), Vec::new());
        let answer_bytes_max = ROUTER_POST_BYTES_MAX;
        let post = Post { url, headers, body: body.to_vec(), answer_bytes_max };
        let now = self.now();
        self.router.post(now, PostId(id), &post, self.poll.registry(), &mut self.events);
    }

    fn posted(&mut self) -> Result<PostAnswer, Box<str>> {
        match self.next() {
            RouterEvent::Posted(_, result) => result,
            other => panic!("{other:?}"),
        }
    }

    /// Runs until the client's thread has ended.
    fn until<T>(&mut self, client: std::thread::JoinHandle<T>) -> T {
        while !client.is_finished() {
            self.turn();
        }
        client.join().expect("it ends")
    }
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("it can");
    stream
}

fn head(target: &str, token: &str, length: usize) -> Vec<u8> {
    format!(
        "POST {target} HTTP/1.1\r\nHost: c\r\nAuthorization: Bearer {token}\r\nContent-Length: \
         {length}\r\n\r\n"
    )
    .into_bytes()
}

/// All that comes.
fn read(mut stream: impl Read) -> Vec<u8> {
    let mut bytes = Vec::new();
    let _ = stream.read_to_end(&mut bytes);
    bytes
}

fn ask(address: SocketAddr, bytes: Vec<u8>) -> std::thread::JoinHandle<String> {
    std::thread::spawn(move || {
        let mut stream = connect(address);
        // A refusal may come before all of it was sent.
        let _ = stream.write_all(&bytes);
        String::from_utf8_lossy(&read(stream)).into_owned()
    })
}

fn ok(body: &[u8]) -> ServiceAnswer {
    ServiceAnswer { status: 200, headers: Vec::new(), body: body.to_vec() }
}

#[test]
fn a_client_with_the_token_gets_the_answer_over_tls() {
    let (client, server) = loopback::configs();
    let mut bed = Bed::new("router-tls", Some(server), None);
    let address = bed.address;
    let asked = std::thread::spawn(move || {
        let connection = ClientConnection::new(client, address.ip().into()).expect("a client");
        let mut stream = StreamOwned::new(connection, connect(address));
        let body = vec![b'a'; BODY];
        stream.write_all(&[&head("/e1/n/a?x", TOKEN, BODY)[..], &body].concat()).expect("sent");
        read(stream)
    });
    let (id, request) = bed.request();
    assert_eq!((&*request.node, &*request.path, &*request.query), ("e1", "a", "x"));
    assert_eq!((&*request.method, request.body.len()), ("POST", BODY));
    assert!(request.headers.iter().all(|(name, _)| &**name != "authorization"));
    let now = bed.now();
    bed.router.answer(now, id, &ok(&vec![b'b'; BODY]));
    let answer = bed.until(asked);
    assert!(answer.starts_with(b"HTTP/1.1 200 OK\r\n") && answer.ends_with(b"bbbb"));
    assert!(answer.len() > BODY);
}

#[test]
fn who_has_no_token_or_no_request_is_refused() {
    let mut bed = Bed::new("router-refused", None, None);
    for (bytes, status) in [
        (head("/e1/n/a", "wrong", 0), 401),
        (b"GET /e1/n/a HTTP/1.1\r\n\r\n".to_vec(), 401),
        (head("/e1", TOKEN, 0), 404),
        (head("/e1/n/a", TOKEN, ROUTER_BODY_BYTES_MAX + 1), 413),
        (b"SSH-2.0-x\r\n\r\n".to_vec(), 400),
    ] {
        let asked = ask(bed.address, bytes);
        let answer = bed.until(asked);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
    }
    assert!(bed.events.is_empty());
}

#[test]
fn the_bodies_of_all_requests_have_a_bound() {
    let mut bed = Bed::new("router-bodies", None, None);
    let fit = ROUTER_BODIES_BYTES_MAX / ROUTER_BODY_BYTES_MAX;
    let large = || head("/e1/n/a", TOKEN, ROUTER_BODY_BYTES_MAX);
    let mut open: Vec<TcpStream> = (0..fit).map(|_| connect(bed.address)).collect();
    for stream in &mut open {
        stream.write_all(&large()).expect("sent");
    }
    for _ in 0..20 {
        bed.turn();
    }
    let asked = ask(bed.address, large());
    let answer = bed.until(asked);
    assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
    // One leaves: there is room.
    drop(open.pop());
    for _ in 0..20 {
        bed.turn();
    }
    let mut next = connect(bed.address);
    let body = vec![b'x'; ROUTER_BODY_BYTES_MAX];
    let sent = std::thread::spawn(move || {
        next.write_all(&[&large()[..], &body].concat()).expect("sent");
        next
    });
    let (_, request) = bed.request();
    assert_eq!(request.body.len(), ROUTER_BODY_BYTES_MAX);
    // The core is told that its client has left.
    drop(bed.until(sent));
    assert!(matches!(bed.next(), RouterEvent::Gone(_)));
}

#[test]
fn a_connection_without_a_token_makes_room_for_the_next() {
    let mut bed = Bed::new("router-strangers", None, None);
    let strangers: Vec<TcpStream> =
        (0..ROUTER_CONNECTIONS_MAX).map(|_| connect(bed.address)).collect();
    for _ in 0..20 {
        bed.turn();
    }
    let asked = ask(bed.address, head("/e1/n/a", TOKEN, 0));
    for _ in 0..20 {
        bed.turn();
    }
    assert!(bed.events.is_empty(), "they have a little time");
    bed.ahead_ms += ROUTER_STRANGER_MS;
    let (id, _) = bed.request();
    let now = bed.now();
    bed.router.answer(now, id, &ok(b"ok"));
    assert!(bed.until(asked).ends_with("ok"));
    drop(strangers);
}

#[test]
fn a_head_and_a_body_have_their_time() {
    for (bytes, ms) in
        [(b"POST /e1/n".to_vec(), ROUTER_HEAD_MS), (head("/e1/n/a", TOKEN, 9), ROUTER_CLIENT_MS)]
    {
        let mut bed = Bed::new("router-late", None, None);
        let asked = ask(bed.address, bytes);
        for _ in 0..20 {
            bed.turn();
        }
        bed.ahead_ms += ms - 2_000;
        bed.turn();
        assert!(!asked.is_finished(), "{ms}");
        bed.ahead_ms += 2_000;
        assert_eq!(bed.until(asked), "", "{ms}");
    }
}

#[test]
fn a_client_that_waits_to_be_told_sends_its_body() {
    let mut bed = Bed::new("router-continue", None, None);
    let mut stream = connect(bed.address);
    let head = format!(
        "POST /e1/n/a HTTP/1.1\r\nAuthorization: Bearer {TOKEN}\r\nExpect: 100-continue\r\n\
         Content-Length: 2\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).expect("sent");
    let told = std::thread::spawn(move || {
        let mut interim = [0; 25];
        stream.read_exact(&mut interim).expect("an interim answer");
        stream.write_all(b"ok").expect("sent");
        (interim, stream)
    });
    let (_, request) = bed.request();
    assert_eq!(request.body, b"ok");
    assert_eq!(&told.join().expect("it ends").0, b"HTTP/1.1 100 Continue\r\n\r\n");
}

/// Answers each connection with these bytes, after its request; returns the port.
fn endpoint(answer: Vec<u8>) -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback");
    let port = listener.local_addr().expect("an address").port();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            serve(stream, &answer);
        }
    });
    port
}

fn serve(mut stream: impl Read + Write, answer: &[u8]) {
    let (mut bytes, mut buffer) = (Vec::new(), [0; 4_096]);
    let end = loop {
        let Ok(count @ 1..) = stream.read(&mut buffer) else { return };
        bytes.extend_from_slice(&buffer[..count]);
        if let Some(at) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break at + 4;
        }
    };
    let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
    let length = head.split("Content-Length: ").nth(1).and_then(|it| it.lines().next());
    let length: usize = length.and_then(|it| it.parse().ok()).unwrap_or(0);
    while bytes.len() < end + length {
        let Ok(count @ 1..) = stream.read(&mut buffer) else { return };
        bytes.extend_from_slice(&buffer[..count]);
    }
    let _ = stream.write_all(answer);
}

fn of(body: usize) -> Vec<u8> {
    let head = format!("HTTP/1.1 201 Created\r\nContent-Length: {body}\r\n\r\n");
    [head.into_bytes(), vec![b'x'; body]].concat()
}

#[test]
fn an_endpoint_gets_the_body_and_its_answer_has_a_bound() {
    let mut bed = Bed::new("router-post", None, None);
    for (bytes, fits) in [(ROUTER_POST_BYTES_MAX, true), (ROUTER_POST_BYTES_MAX + 1, false)] {
        let port = endpoint(of(bytes));
        bed.post(1, &format!("http://127.0.0.1:{port}/in"), &vec![b'y'; BODY]);
        match bed.posted() {
            Ok(answer) => assert!(fits && answer.status == 201 && answer.body.len() == bytes),
            Err(why) => assert!(!fits && why.contains("got a longer answer"), "{why}"),
        }
    }
    for (answer, expected) in [
        (&b"SSH-2.0-x\r\n\r\n"[..], "expected an HTTP answer"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nx", "it has closed the connection"),
        (b"", "it has closed the connection"),
    ] {
        let port = endpoint(answer.to_vec());
        bed.post(1, &format!("http://127.0.0.1:{port}/in"), b"y");
        let why = bed.posted().expect_err("no answer");
        assert!(why.contains(expected), "{why}");
    }
    let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback");
    let port = free.local_addr().expect("an address").port();
    drop(free);
    bed.post(1, &format!("http://127.0.0.1:{port}/in"), b"y");
    let why = bed.posted().expect_err("nobody listens");
    assert!(why.starts_with(&format!("127.0.0.1:{port}: ")) && why.contains("refused"), "{why}");
}

#[test]
fn an_endpoint_that_is_silent_ends_in_time_and_so_many_may_be() {
    let mut bed = Bed::new("router-silent", None, None);
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback");
    let port = listener.local_addr().expect("an address").port();
    for id in 0..ROUTER_POSTS_MAX as u64 {
        bed.post(id, &format!("http://127.0.0.1:{port}/in"), b"y");
    }
    bed.turn();
    bed.ahead_ms += ROUTER_POST_MS - 2_000;
    bed.turn();
    assert!(bed.events.is_empty());
    bed.ahead_ms += 2_000;
    for _ in 0..ROUTER_POSTS_MAX {
        let why = bed.posted().expect_err("no answer");
        assert!(why.ends_with("no answer for 30 s"), "{why}");
    }
}

#[test]
fn the_certificate_of_an_endpoint_is_verified() {
    let key = KeyPair::generate().expect("a key");
    let mut params = CertificateParams::default();
    params.subject_alt_names = vec![SanType::IpAddress([127, 0, 0, 1].into())];
    let own = params.self_signed(&key).expect("a certificate").der().clone();
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let server = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .expect("ring has these")
        .with_no_client_auth()
        .with_single_cert(vec![own.clone()], key)
        .expect("they belong together");
    let server = Arc::new(server);
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback");
    let port = listener.local_addr().expect("an address").port();
    std::thread::spawn(move || {
        for socket in listener.incoming().flatten() {
            let connection = ServerConnection::new(Arc::clone(&server)).expect("a server");
            serve(StreamOwned::new(connection, socket), &of(2));
        }
    });
    let other = include_bytes!("../../../../tests/golden/x509/go-ca.der");
    for (ca, is_trusted) in [(&own[..], true), (&other[..], false)] {
        let mut bed = Bed::new("router-verify", None, Some(&pem::encode("CERTIFICATE", ca)));
        bed.post(1, &format!("https://127.0.0.1:{port}/in"), &vec![b'y'; BODY]);
        match bed.posted() {
            Ok(answer) => assert!(is_trusted && answer.body == b"xx"),
            Err(why) => assert!(!is_trusted && why.contains("invalid peer certificate"), "{why}"),
        }
    }
}

#[test]
fn a_file_without_a_ca_is_named() {
    let mut bed = Bed::new("router-cas", None, Some("nothing"));
    bed.post(1, "https://127.0.0.1:1/in", b"y");
    let why = bed.posted().expect_err("there is no CA");
    assert!(why.contains("ca.crt: "), "{why}");
}

#[test]
fn a_look_up_that_hangs_ends_with_its_request() {
    let mut bed = Bed::new("router-names", None, None);
    bed.post(1, "http://a.example/in", b"y");
    bed.turn();
    bed.ahead_ms += ROUTER_POST_MS;
    let why = bed.posted().expect_err("the look-up hangs");
    assert_eq!(&*why, "a.example: no answer for 30 s");
    // Addresses that were found are used for a while.
    let port = endpoint(of(2));
    let found = vec![SocketAddr::from((Ipv4Addr::LOCALHOST, port))];
    let until = bed.now().plus_ms(ROUTER_NAME_MS);
    bed.router.posts.names.insert(("a.example".into(), 80), (found, until));
    bed.post(2, "http://a.example/in", b"y");
    assert_eq!(bed.posted().expect("an answer").status, 201);
    bed.ahead_ms += ROUTER_NAME_MS;
    bed.post(3, "http://a.example/in", b"y");
    bed.turn();
    bed.ahead_ms += ROUTER_POST_MS;
    assert!(bed.posted().is_err(), "it is looked up again");
}
