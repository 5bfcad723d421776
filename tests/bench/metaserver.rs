//! MetaServer: a hundred informers on a thousand objects. Their memory, beyond that of the agent
//! before they came; how long a list and an object take, and a change until all have it.
//!
//! **The reference** of the times is a plain HTTP server in this program: it sends the same bytes
//! over loopback, from memory and without a look at what is asked for, one connection after the
//! other. Both are read by the same client, in turns.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::figure::{Figure, Limit};
use crate::rig::Rig;
use crate::support::agent::Site;
use crate::support::cloud::{Cloud, Setup};
use crate::support::dynamic::{is_request, page, reply};
use crate::support::joined::{self, with_metaserver};
use crate::support::line::Line;
use crate::support::port::free_port;
use crate::support::process::pss_kb;
use crate::support::wait::until;
use crate::watched::Watched;

/// Names of [`informers`].
pub const NAMES: &[&str] = &["meta.memory.100", "meta.list_ms", "meta.change_ms", "meta.get_ms"];

const INFORMERS: usize = 100;
const OBJECTS: usize = 1_000;
/// Of the list: objects have smaller ones, changes greater ones.
const LIST_VERSION: u64 = 10_000;
const ROUNDS: usize = 7;
const LISTS_A_ROUND: usize = 10;
const GETS_A_ROUND: usize = 200;
const CHANGES: usize = 30;
/// Start-up is over; what the informers brought is stored, as far as it is at once.
const SETTLE: Duration = Duration::from_secs(20);
/// As client-go begins: any version will do.
const LIST: &str = "/api/v1/configmaps?limit=500&resourceVersion=0";
const GET: &str = "/api/v1/namespaces/default/configmaps/map-0500";

/// A ConfigMap of about one kilobyte.
fn map(number: usize, version: u64) -> Value {
    let line = |n| format!("listen.{n} = 10.1.{number}.{n}:8080 # of site {number}");
    let lines = (0..10).map(line).collect::<Vec<_>>().join("\n");
    json!({"kind": "ConfigMap", "apiVersion": "v1",
        "metadata": {
            "name": format!("map-{number:04}"), "namespace": "default",
            "uid": format!("5b3a7c9e-0000-4000-8000-{number:012x}"),
            "resourceVersion": version.to_string(),
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {"app.kubernetes.io/name": "site", "app.kubernetes.io/part-of": "bench"},
        },
        "data": {"version": version.to_string(), "site.conf": lines, "mode": "m".repeat(200)}})
}

/// The dynamic controller, until the flag is set.
fn dynamic_controller(cloud: &Cloud, objects: &[Value], ends: &AtomicBool) {
    let mut answered = 0;
    while !ends.load(Ordering::Relaxed) {
        let received = cloud.received();
        for request in received[answered..].iter().filter(|it| is_request(it)) {
            if request.resource() == "watchapp/sync" {
                reply(cloud, request, "watchapp/sync", &json!({}));
            } else {
                page(cloud, request, "ConfigMap", objects, LIST_VERSION);
            }
        }
        answered = received.len();
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn request(to: SocketAddr, target: &str) -> String {
    format!("GET {target} HTTP/1.1\r\nHost: {to}\r\nAccept: application/json\r\n\r\n")
}

/// All bytes of an answer.
fn fetch(to: SocketAddr, target: &str) -> Vec<u8> {
    let mut stream = TcpStream::connect(to).expect("it listens");
    stream.write_all(request(to, target).as_bytes()).expect("it reads");
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).expect("it answers");
    bytes
}

/// Milliseconds of one of so many answers.
fn time(count: usize, to: SocketAddr, target: &str, length: usize) -> f64 {
    let begun = Instant::now();
    for _ in 0..count {
        assert_eq!(fetch(to, target).len(), length);
    }
    begun.elapsed().as_secs_f64() * 1e3 / count as f64
}

/// A connection on which events come.
struct Events {
    stream: TcpStream,
    text: Vec<u8>,
}

impl Events {
    /// Asks for them; the head of the answer comes first.
    fn ask(to: SocketAddr, target: &str) -> Self {
        let mut stream = TcpStream::connect(to).expect("it listens");
        stream.set_read_timeout(Some(Duration::from_secs(60))).expect("ours");
        stream.write_all(request(to, target).as_bytes()).expect("it reads");
        Self { stream, text: Vec::new() }
    }

    /// Waits until this has come; returns what has come since the last call.
    fn wait(&mut self, what: &str) -> Vec<u8> {
        let mut buffer = [0; 16 << 10];
        loop {
            if self.text.windows(what.len()).any(|it| it == what.as_bytes()) {
                return std::mem::take(&mut self.text);
            }
            let length = self.stream.read(&mut buffer).expect("it comes");
            assert!(length > 0, "the watch has ended");
            self.text.extend_from_slice(&buffer[..length]);
        }
    }
}

/// A list, and a watch from there on.
fn inform(port: SocketAddr) -> Events {
    let list = String::from_utf8(fetch(port, LIST)).expect("JSON");
    let (_, rest) = list.split_once("\"resourceVersion\":\"").expect("a list");
    let (version, _) = rest.split_once('"').expect("a number");
    let target = format!(
        "/api/v1/configmaps?allowWatchBookmarks=true&resourceVersion={version}\
         &timeoutSeconds=3600&watch=true"
    );
    let mut events = Events::ask(port, &target);
    let head = events.wait("\r\n\r\n");
    assert!(head.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&head));
    events
}

/// A plain server that answers each request with these bytes.
fn plain(answer: Vec<u8>) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port is free");
    let address = listener.local_addr().expect("it is bound");
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            if read_head(&mut stream) {
                let _ = stream.write_all(&answer);
            }
        }
    });
    address
}

/// A plain server whose connections stay open: all get the bytes that are sent to it here.
fn plain_watches(count: usize) -> (SocketAddr, Sender<Vec<u8>>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port is free");
    let address = listener.local_addr().expect("it is bound");
    let (to, bytes) = channel::<Vec<u8>>();
    std::thread::spawn(move || {
        let mut streams: Vec<TcpStream> = listener.incoming().flatten().take(count).collect();
        for stream in &mut streams {
            read_head(stream);
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n");
        }
        for bytes in bytes {
            for stream in &mut streams {
                let _ = stream.write_all(&bytes);
            }
        }
    });
    (address, to)
}

fn read_head(stream: &mut TcpStream) -> bool {
    let (mut head, mut buffer) = (Vec::new(), [0; 1_024]);
    while let Ok(length @ 1..) = stream.read(&mut buffer) {
        head.extend_from_slice(&buffer[..length]);
        if head.ends_with(b"\r\n\r\n") {
            return true;
        }
    }
    false
}

/// An agent that has joined over this line, with MetaServer on this port.
fn joined_by(site: &mut Site, cloud: &Cloud, line: &Line, port: u16) -> Watched {
    let (https, websocket) = (cloud.https.to_string(), line.address.to_string());
    joined::configure(site, &joined::store(site), &https, &websocket, &cloud.token());
    with_metaserver(site, port, "");
    let agent = crate::memory::start(site);
    cloud.connected(1);
    std::thread::sleep(SETTLE);
    agent
}

/// Opens all informers.
fn open_all(site: &Site, cloud: &Cloud, port: SocketAddr) -> Vec<Events> {
    let objects: Vec<Value> = (0..OBJECTS).map(|n| map(n, n as u64 + 1)).collect();
    let ends = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| dynamic_controller(cloud, &objects, &ends));
        let first = inform(port);
        // From now on lists are answered by the node.
        until("the cloud's watch is up to date", || {
            let watches = site.status()?["metaserver"]["upstreamWatches"].clone();
            (watches == 1).then_some(()).ok_or(watches.to_string())
        });
        let others = (1..INFORMERS).map(|_| inform(port));
        let all = std::iter::once(first).chain(others).collect();
        ends.store(true, Ordering::Relaxed);
        all
    })
}

/// A hundred informers, from their first lists to a cloud that is away.
pub fn informers(rig: &Rig) -> Vec<Figure> {
    rig.wipe();
    let cloud = Cloud::start(&Setup::default());
    let line = Line::open(cloud.websocket);
    let mut site = rig.site();
    let port = free_port();
    let agent = joined_by(&mut site, &cloud, &line, port);
    let port = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port);
    let before = pss_kb(agent.pid()) as f64;
    let mut watches = open_all(&site, &cloud, port);
    std::thread::sleep(SETTLE);
    let memory = (pss_kb(agent.pid()) as f64 - before) / 1_024.0;

    let list = fetch(port, LIST);
    eprintln!("bench:   a list of {} bytes", list.len());
    let (lists, plain_lists) = beside(LISTS_A_ROUND, port, LIST, list);
    let (changes, plain_changes) = changes(&cloud, &line, &mut watches);

    line.cut(true);
    let from_store = || fetch(port, GET);
    until("the node answers", || {
        let answer = String::from_utf8(from_store()).map_err(|error| error.to_string())?;
        let is_it = answer.starts_with("HTTP/1.1 200") && answer.contains("Warning: 299");
        is_it.then_some(()).ok_or(answer)
    });
    let (gets, plain_gets) = beside(GETS_A_ROUND, port, GET, from_store());
    drop(agent);
    rig.wipe();
    // A list leaves in turns of 32 KiB, between which everything else gets its turn.
    vec![
        Figure::alone(NAMES[0], memory, "MB", Some(Limit::Most(4.0))),
        Figure::beside(NAMES[1], &lists, &plain_lists, "ms", Limit::Ratio(12.0)),
        Figure::beside(NAMES[2], &changes, &plain_changes, "ms", Limit::Ratio(2.0)),
        Figure::beside(NAMES[3], &gets, &plain_gets, "ms", Limit::Ratio(4.0)),
    ]
}

/// Milliseconds of answers, and of the same bytes from the plain server.
fn beside(count: usize, port: SocketAddr, target: &str, answer: Vec<u8>) -> (Vec<f64>, Vec<f64>) {
    let length = answer.len();
    let reference = plain(answer);
    let round = |_| (time(count, port, target, length), time(count, reference, target, length));
    (0..ROUNDS).map(round).unzip()
}

/// Milliseconds from a change on the line until all watches have it; and of the same bytes from the
/// plain server.
fn changes(cloud: &Cloud, line: &Line, watches: &mut [Events]) -> (Vec<f64>, Vec<f64>) {
    let (address, to) = plain_watches(watches.len());
    let mut plain: Vec<Events> = watches.iter().map(|_| Events::ask(address, "/")).collect();
    for client in &mut plain {
        client.wait("\r\n\r\n");
    }
    let round = |number: usize| {
        let version = LIST_VERSION + 1 + number as u64;
        let marker = format!("\"version\":\"{version}\"");
        let before = line.carried().1;
        cloud.send(&json!({
            "header": {"msg_id": format!("change-{number}"), "timestamp": 1,
                       "resourceversion": version.to_string()},
            "route": {"source": "dynamiccontroller", "group": "resource", "operation": "update",
                      "resource": "default/configmap/map-0500"},
            "content": map(500, version),
        }));
        while line.carried().1 == before {
            std::hint::spin_loop();
        }
        let begun = Instant::now();
        let mut event = Vec::new();
        for watch in &mut *watches {
            event = watch.wait(&marker);
        }
        let took = begun.elapsed().as_secs_f64() * 1e3;
        std::thread::sleep(Duration::from_millis(100));
        let begun = Instant::now();
        to.send(event).expect("it reads");
        for client in &mut plain {
            client.wait(&marker);
        }
        let reference = begun.elapsed().as_secs_f64() * 1e3;
        std::thread::sleep(Duration::from_millis(100));
        (took, reference)
    };
    (0..CHANGES).map(round).unzip()
}
