//! The HTTP API over real local sockets, with quick, slow, greedy and rude clients. Time is an
//! argument: what takes ten seconds here takes none.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use edged::agent::event::Event;
use edged::agent::time::{Instant, Now, Wall};
use edged::agent::{Agent, Config, Machine};
use edged::io::server::Server;
use edged::limits::{
    HTTP_ACCEPTS_PER_TURN, HTTP_ANSWER_MS, HTTP_CLOSE_BYTES_MAX, HTTP_CLOSE_MS,
    HTTP_CONNECTIONS_MAX, HTTP_LISTEN_RETRY_MS, HTTP_PROTECTED_MIN, HTTP_REQUEST_MS, HTTP_STALL_MS,
    HTTP_TURN_BYTES, HTTP_UNSENT_BYTES_MAX,
};
use edged::model::manifest::{File, Folder};
use edged::wire::manifest;
use mio::{Events, Poll, Token};
use nix::sys::socket::{setsockopt, sockopt};

use crate::port::free_port;

struct Bed {
    poll: Poll,
    events: Events,
    server: Server,
    agent: Agent,
    now: Now,
    address: SocketAddr,
    /// The socket for root.
    socket: PathBuf,
}

impl Drop for Bed {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.socket);
    }
}

/// The number of sockets of this process so far.
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// A port of this test only.
fn address() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, free_port()).into()
}

impl Bed {
    fn new() -> Self {
        Self::on(address())
    }

    fn on(address: SocketAddr) -> Self {
        let now = Now { boot: Instant(1_000_000), wall: Some(Wall(1_763_666_951_000)) };
        let config = Config {
            node_name: "gw".to_owned(),
            root: "/var/lib/kubelet".to_owned(),
            pod_logs: "/var/log/pods".to_owned(),
            machine: Machine { memory_bytes: 1 << 30, cpu_milli: 1000, ..Machine::default() },
            pods_max: 500,
            crash_backoff_max_ms: 300_000,
            ..Config::default()
        };
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let socket = format!("edged-api-{}-{count}.sock", std::process::id());
        let socket = std::env::temp_dir().join(socket);
        let mut bed = Self {
            poll: Poll::new().expect("a poll"),
            events: Events::with_capacity(64),
            server: Server::new(address, &socket, Token(100)),
            socket,
            agent: Agent::boot(config, now, 1),
            now,
            address,
        };
        bed.turn();
        bed
    }

    /// One turn of the loop, without waiting.
    fn turn(&mut self) {
        let timeout = Some(Duration::from_millis(1));
        self.poll.poll(&mut self.events, timeout).expect("polls");
        for ready in &self.events {
            assert!(self.server.owns(ready.token()));
            self.server.ready(ready);
        }
        self.server.tick(self.now, self.poll.registry(), &self.agent, &mut Vec::new());
    }

    fn turns(&mut self, count: usize) {
        for _ in 0..count {
            self.turn();
        }
    }

    /// Turns until the server waits for nobody: the kernel may take a while to tell it that a
    /// client has hung up.
    fn settle(&mut self) {
        for _ in 0..5_000 {
            if self.server.wake_at().is_none() {
                return;
            }
            self.turn();
        }
        panic!("something is left: {:?}", self.server.wake_at());
    }

    fn pass_ms(&mut self, ms: u64) {
        self.now.boot = self.now.boot.plus_ms(ms);
        self.turns(3);
    }

    fn client(&mut self) -> TcpStream {
        let client = TcpStream::connect(self.address).expect("connects");
        client.set_read_timeout(Some(Duration::from_millis(1))).expect("sets");
        self.turn();
        client
    }

    /// A client with small kernel buffers: for a client that does not read they would take 32 MiB
    /// on some machines, and nothing would ever wait in the server.
    fn narrow_client(&mut self) -> TcpStream {
        let client = self.client();
        setsockopt(&client, sockopt::RcvBuf, &(64 << 10)).expect("sets");
        client
    }

    /// The bytes that the client gets until the server closes.
    fn read(&mut self, client: &mut impl Read) -> String {
        let mut text = Vec::new();
        let mut buffer = vec![0; 64 << 10];
        for _ in 0..100_000 {
            self.turn();
            match client.read(&mut buffer) {
                Ok(0) => return String::from_utf8(text).expect("text"),
                Ok(count) => text.extend_from_slice(&buffer[..count]),
                Err(error)
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
                Err(error) => panic!("after {} bytes: {error}", text.len()),
            }
        }
        panic!("the server never hung up: {}", String::from_utf8_lossy(&text));
    }

    /// Fills the buffer without time passing for the server, which writes meanwhile.
    fn read_some(&mut self, client: &mut TcpStream, buffer: &mut [u8]) {
        let mut filled = 0;
        while filled < buffer.len() {
            match client.read(&mut buffer[filled..]) {
                Ok(0) => panic!("after {filled} bytes: cut"),
                Ok(count) => filled += count,
                Err(error)
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
                Err(error) => panic!("after {filled} bytes: {error}"),
            }
            self.turn();
        }
        // The kernel reports free room at any time.
        let soon = Some(self.now.boot.plus_ms(1));
        while self.server.wake_at().is_some() && self.server.wake_at() <= soon {
            self.turn();
        }
    }

    fn request(&mut self, request: &str) -> String {
        let mut client = self.client();
        client.write_all(request.as_bytes()).expect("writes");
        self.read(&mut client)
    }

    fn get(&mut self, path: &str) -> (String, String) {
        let text = self.request(&format!("GET {path} HTTP/1.1\r\nHost: {}\r\n\r\n", self.address));
        let (head, body) = text.split_once("\r\n\r\n").expect(&text);
        let length = format!("Content-Length: {}", body.len());
        assert!(head.lines().any(|line| line == length), "{head}");
        (head.lines().next().expect("a status").to_owned(), body.to_owned())
    }

    /// The same as root.
    fn ask_as_root(&mut self, request: &str) -> String {
        let mut client = UnixStream::connect(&self.socket).expect("connects");
        client.set_read_timeout(Some(Duration::from_millis(1))).expect("sets");
        client.write_all(request.as_bytes()).expect("writes");
        self.read(&mut client)
    }

    fn want_pods(&mut self, count: usize, bytes: usize) {
        let files = (0..count).map(|n| {
            let text = format!(
                "{{apiVersion: v1, kind: Pod, metadata: {{name: p{n}}}, \
                 spec: {{containers: [{{name: c, image: 'i{}'}}]}}}}",
                // The status contains it again.
                "x".repeat(bytes / 2)
            );
            let content = manifest::parse(format!("# one\n{text}").as_bytes());
            File { path: format!("/m/{n}.yaml").into(), changed_ns: 0, content }
        });
        let event = Event::Manifests(Folder { trouble: None, files: files.collect() });
        self.agent.handle(self.now, event);
        self.agent.step(self.now, &mut edged::agent::event::Out::default());
    }
}

#[test]
fn each_path_shows_what_it_should() {
    let mut bed = Bed::new();
    let ok = "HTTP/1.1 200 OK";
    for path in ["/healthz", "/healthz/ping", "/healthz/log", "/healthz/syncloop"] {
        assert_eq!(bed.get(path), (ok.to_owned(), "ok\n".to_owned()));
    }
    let empty = "{\"kind\":\"PodList\",\"apiVersion\":\"v1\",\"metadata\":{},\"items\":null}\n";
    assert_eq!(bed.get("/pods").1, empty);
    assert_eq!(bed.get("/runningpods/").1, empty);
    assert_eq!(bed.get("/events").1, empty.replace("PodList", "EventList"));
    let (status, body) = bed.get("/nothing");
    assert_eq!(status, "HTTP/1.1 404 Not Found");
    assert!(body.contains("/edged/status") && body.lines().count() == 1, "{body}");
    bed.want_pods(2, 10);
    let (status, body) = bed.get("/pods?limit=1");
    assert_eq!(status, ok);
    let list: serde_json::Value = serde_json::from_str(&body).expect(&body);
    assert_eq!(list["items"][1]["metadata"]["name"], "p1-gw");
    assert_eq!(list["items"][1]["status"]["phase"], "Pending");
    let status: serde_json::Value =
        serde_json::from_str(&bed.get("/edged/status").1).expect("JSON");
    assert_eq!((&status["node"], &status["podsWanted"]), (&"gw".into(), &2.into()));
    let (_, page) = bed.get("/metrics");
    assert!(page.contains("\nkubelet_desired_pods 2\n"), "{page}");
    assert!(page.contains("\nprocess_resident_memory_bytes "), "{page}");
}

#[cfg(feature = "page")]
#[test]
fn a_browser_gets_the_page_and_what_it_may_do() {
    let mut bed = Bed::new();
    for (path, kind) in [
        ("/", "text/html"),
        ("/?x=y", "text/html"),
        ("/page.css", "text/css"),
        ("/page.js", "text/javascript"),
        ("/load.js", "text/javascript"),
    ] {
        let text = bed.request(&format!("GET {path} HTTP/1.1\r\nHost: localhost:1\r\n\r\n"));
        let (head, body) = text.split_once("\r\n\r\n").expect("a head");
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n") && !body.is_empty(), "{path}: {head}");
        for line in [
            &format!("Content-Type: {kind}; charset=utf-8"),
            "Content-Security-Policy: default-src 'none'; script-src 'self'; style-src 'self'; \
             connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
            "X-Content-Type-Options: nosniff",
            "Referrer-Policy: no-referrer",
            "Cache-Control: no-store",
        ] {
            assert!(head.lines().any(|it| it == line), "{path}: {line} in {head}");
        }
        for headers in
            ["Host: rebound.example", "Host: localhost\r\nOrigin: http://rebound.example"]
        {
            let text = bed.request(&format!("GET {path} HTTP/1.1\r\n{headers}\r\n\r\n"));
            assert!(text.starts_with("HTTP/1.1 403 "), "{path} {headers}: {text}");
        }
        let head = bed.request(&format!("HEAD {path} HTTP/1.1\r\nHost: localhost\r\n\r\n"));
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n") && head.ends_with("\r\n\r\n"), "{head}");
    }
}

/// The page asks for the lists only when it has changed.
#[cfg(feature = "page")]
#[test]
fn a_change_of_the_pods_changes_the_revision_of_the_status() {
    let mut bed = Bed::new();
    let revision = |bed: &mut Bed| {
        let (_, body) = bed.get("/edged/status");
        let status: serde_json::Value = serde_json::from_str(&body).expect("JSON");
        assert_eq!(status["time"], "2025-11-20T19:29:11Z");
        status["revision"].as_u64().expect("a number")
    };
    let before = revision(&mut bed);
    assert_eq!(revision(&mut bed), before, "nothing has changed");
    bed.want_pods(1, 10);
    assert!(revision(&mut bed) > before);
}

#[test]
fn a_request_may_come_in_any_pieces() {
    let mut bed = Bed::new();
    let mut client = bed.client();
    for byte in b"HEAD /healthz/ping HTTP/1.1\r\nHost: localhost\r\n\r\n" {
        client.write_all(&[*byte]).expect("writes");
        bed.turn();
    }
    client.shutdown(Shutdown::Write).expect("shuts");
    let text = bed.read(&mut client);
    assert!(text.contains("Content-Length: 3\r\n") && text.ends_with("\r\n\r\n"), "{text}");
}

#[test]
fn strangers_and_nonsense_are_refused() {
    let mut bed = Bed::new();
    for (request, status) in [
        ("GET /pods HTTP/1.1\r\nHost: evil.example\r\n\r\n".to_owned(), "403 "),
        ("GET / HTTP/1.1\r\nHost: localhost\r\nOrigin: null\r\n\r\n".to_owned(), "403 "),
        ("POST /pods HTTP/1.1\r\nHost: localhost\r\n\r\n".to_owned(), "405 "),
        ("\x16\x03\x01".to_owned(), "400 "),
        (format!("GET /{} HTTP/1.1\r\n", "a".repeat(100_000)), "414 "),
        (format!("GET / HTTP/1.1\r\nX: {}", "a".repeat(30_000)), "431 "),
    ] {
        let text = bed.request(&request);
        assert!(text.starts_with(&format!("HTTP/1.1 {status}")), "{text}");
    }
}

#[test]
fn a_client_that_does_not_ask_is_cut() {
    let mut bed = Bed::new();
    let mut silent = bed.client();
    let mut slow = bed.client();
    assert_eq!(bed.server.wake_at(), Some(bed.now.boot.plus_ms(HTTP_REQUEST_MS)));
    bed.pass_ms(HTTP_REQUEST_MS - 1);
    slow.write_all(b"GET / HTTP/1.1\r\n").expect("writes");
    bed.pass_ms(1);
    for client in [&mut silent, &mut slow] {
        let text = bed.read(client);
        assert!(text.starts_with("HTTP/1.1 408 "), "{text}");
    }
    drop((silent, slow));
    bed.settle();
}

#[test]
fn a_client_that_does_not_read_is_cut_and_holds_up_nobody() {
    let mut bed = Bed::new();
    bed.want_pods(450, 10_000);
    let request = format!("GET /pods HTTP/1.1\r\nHost: {}\r\n\r\n", bed.address);
    let mut greedy = bed.narrow_client();
    greedy.write_all(request.as_bytes()).expect("writes");
    bed.turns(50);
    assert_eq!(bed.server.wake_at(), Some(bed.now.boot.plus_ms(HTTP_STALL_MS)), "it waits");
    assert_eq!(bed.get("/healthz/ping").1, "ok\n");
    bed.pass_ms(HTTP_STALL_MS);
    assert_eq!(bed.server.wake_at(), None, "it was cut");
    let (status, body) = bed.get("/pods");
    assert_eq!(status, "HTTP/1.1 200 OK");
    let list: serde_json::Value = serde_json::from_str(&body).expect("JSON");
    assert_eq!(list["items"].as_array().map(Vec::len), Some(450));
}

#[test]
fn answers_that_wait_are_bounded_in_all() {
    let mut bed = Bed::new();
    let request = format!("GET /pods HTTP/1.1\r\nHost: {}\r\n\r\n", bed.address);
    // An answer below the limit, however much of it the kernel takes; and one so much larger that
    // the server's side of the sockets cannot take the difference.
    for (bytes, status) in [(HTTP_UNSENT_BYTES_MAX / 2, "200"), (5 * HTTP_UNSENT_BYTES_MAX, "503")]
    {
        bed.want_pods(500, bytes / 500);
        let mut greedy = bed.narrow_client();
        greedy.write_all(request.as_bytes()).expect("writes");
        while greedy.peek(&mut [0]).is_err() {
            bed.turn();
        }
        bed.turns(100);
        let text = bed.request(&request);
        assert!(text.starts_with(&format!("HTTP/1.1 {status} ")), "{}", &text[..40]);
    }
    bed.settle();
    let text = bed.request(&request);
    assert!(text.starts_with("HTTP/1.1 200 "), "{}", &text[..40]);
}

#[test]
fn a_steady_trickle_has_an_end() {
    let mut bed = Bed::new();
    bed.want_pods(500, 40_000);
    let mut client = bed.narrow_client();
    let request = format!("GET /pods HTTP/1.1\r\nHost: {}\r\n\r\n", bed.address);
    client.write_all(request.as_bytes()).expect("writes");
    bed.turns(50);
    // A third of its 4 MiB must be free before the kernel reports room to the server.
    let mut buffer = vec![0; 2 << 20];
    for _ in 0..HTTP_ANSWER_MS / (HTTP_STALL_MS - 1) {
        assert!(bed.server.wake_at().is_some(), "reading keeps it alive");
        bed.read_some(&mut client, &mut buffer);
        bed.pass_ms(HTTP_STALL_MS - 1);
    }
    assert!(bed.server.wake_at().is_some(), "reading keeps it alive");
    bed.read_some(&mut client, &mut buffer);
    bed.pass_ms(HTTP_STALL_MS - 1);
    assert_eq!(bed.server.wake_at(), None, "it was cut");
}

#[test]
fn more_connections_than_there_is_room_for_are_turned_away() {
    let mut bed = Bed::new();
    let held: Vec<TcpStream> = (0..HTTP_CONNECTIONS_MAX).map(|_| bed.client()).collect();
    let mut more = bed.client();
    let text = bed.read(&mut more);
    assert!(text.starts_with("HTTP/1.1 503 "), "{text}");
    drop(held);
    bed.settle();
    assert_eq!(bed.get("/healthz/ping").1, "ok\n");
}

#[test]
fn root_is_answered_while_others_hold_the_port() {
    let mut bed = Bed::new();
    let mut held: Vec<TcpStream> = (0..HTTP_CONNECTIONS_MAX).map(|_| bed.client()).collect();
    let mut turned_away = held.split_off(HTTP_CONNECTIONS_MAX - HTTP_PROTECTED_MIN);
    assert!(bed.read(&mut turned_away[0]).starts_with("HTTP/1.1 503 "));
    held.last().expect("there are some").read(&mut [0]).expect_err("it is read completely");
    let request = "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n";
    // Each of the connections reserved for root, and no more.
    let mut others = Vec::new();
    for _ in 0..HTTP_PROTECTED_MIN {
        assert!(bed.ask_as_root(request).ends_with("ok\n"));
        // The server has closed it.
        bed.turns(30);
        others.push(UnixStream::connect(&bed.socket).expect("connects"));
        bed.turns(30);
    }
    let text = bed.ask_as_root("");
    assert!(text.starts_with("HTTP/1.1 503 "), "{text}");
}

#[test]
fn a_turn_takes_some_of_those_who_dial_and_the_next_one_more() {
    let mut bed = Bed::new();
    let dial = || TcpStream::connect(bed.address).expect("connects");
    let _first: Vec<TcpStream> = (0..HTTP_ACCEPTS_PER_TURN).map(|_| dial()).collect();
    let mut last = dial();
    last.set_read_timeout(Some(Duration::from_millis(1))).expect("sets");
    bed.turn();
    assert_eq!(bed.server.wake_at(), Some(Instant(0)), "there may be more");
    last.read(&mut [0]).expect_err("it was not read");
    let text = bed.read(&mut last);
    assert!(text.starts_with("HTTP/1.1 503 "), "{text}");
}

#[test]
fn a_turn_writes_a_part_of_an_answer_and_the_next_one_more() {
    let mut bed = Bed::new();
    bed.want_pods(100, HTTP_TURN_BYTES / 10);
    let mut client = bed.client();
    let request = format!("GET /pods HTTP/1.1\r\nHost: {}\r\n\r\n", bed.address);
    client.write_all(request.as_bytes()).expect("writes");
    bed.turn();
    assert_eq!(bed.server.wake_at(), Some(Instant(0)), "the socket takes more");
    let (mut came, mut buffer) = (0, vec![0; 64 << 10]);
    while came < HTTP_TURN_BYTES {
        came += client.read(&mut buffer).unwrap_or(0);
    }
    assert_eq!(came, HTTP_TURN_BYTES);
    client.read(&mut buffer).expect_err("no more was written");
    assert!(bed.read(&mut client).ends_with("}\n"));
}

#[test]
fn a_client_that_goes_on_to_send_after_its_answer_is_cut() {
    let mut bed = Bed::new();
    let mut client = bed.client();
    client.write_all(b"GET /healthz/ping HTTP/1.0\r\n\r\n").expect("writes");
    assert!(bed.read(&mut client).ends_with("ok\n"));
    client.write_all(&vec![b'x'; HTTP_CLOSE_BYTES_MAX]).expect("writes");
    bed.turns(30);
    assert_eq!(bed.server.wake_at(), Some(bed.now.boot.plus_ms(HTTP_CLOSE_MS)));
    client.write_all(b"x").expect("writes");
    bed.settle();
}

#[test]
fn values_that_may_be_secrets_are_shown_to_root_alone() {
    let mut bed = Bed::new();
    let text = "{apiVersion: v1, kind: Pod, metadata: {name: p, annotations: {a: s3cret}}, spec: \
                {containers: [{name: c, image: i, args: [s3cret], env: [{name: PASSWORD, value: \
                s3cret}]}]}}";
    let content = manifest::parse(format!("# one\n{text}").as_bytes());
    let file = File { path: "/m/p.yaml".into(), changed_ns: 0, content };
    bed.agent.handle(bed.now, Event::Manifests(Folder { files: vec![file], trouble: None }));
    bed.agent.step(bed.now, &mut edged::agent::event::Out::default());
    let (_, public) = bed.get("/pods");
    assert!(public.contains("PASSWORD") && !public.contains("s3cret"), "{public}");
    let root = bed.ask_as_root("GET /pods HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert_eq!(root.matches("s3cret").count(), 3, "{root}");
}

#[test]
fn a_client_that_does_not_hang_up_is_left() {
    let mut bed = Bed::new();
    let mut client = bed.client();
    client.write_all(b"GET /healthz/ping HTTP/1.0\r\n\r\n").expect("writes");
    assert!(bed.read(&mut client).ends_with("ok\n"));
    assert_eq!(bed.server.wake_at(), Some(bed.now.boot.plus_ms(HTTP_CLOSE_MS)));
    bed.pass_ms(HTTP_CLOSE_MS);
    assert_eq!(bed.server.wake_at(), None);
}

#[test]
fn a_port_that_is_taken_is_tried_again() {
    let address = address();
    let taken = TcpListener::bind(address).expect("a port of this test only");
    let mut bed = Bed::on(address);
    assert_eq!(bed.server.bound(), None);
    assert_eq!(bed.server.wake_at(), Some(bed.now.boot.plus_ms(HTTP_LISTEN_RETRY_MS)));
    drop(taken);
    bed.turn();
    assert_eq!(bed.server.bound(), None, "not before its time");
    bed.pass_ms(HTTP_LISTEN_RETRY_MS);
    assert_eq!(bed.server.bound(), Some(bed.address));
    assert_eq!(bed.get("/healthz/ping").1, "ok\n");
}

#[test]
fn port_0_is_no_api() {
    let mut bed = Bed::on("127.0.0.1:0".parse().expect("an address"));
    bed.pass_ms(HTTP_LISTEN_RETRY_MS);
    assert_eq!((bed.server.bound(), bed.server.wake_at()), (None, None));
}
