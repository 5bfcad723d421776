//! Clients of the controller that violate the protocol are refused, counted and logged once; others
//! are not affected. Real sockets on loopback, real TLS.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use edged::wire::ws::{Kind, write};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use rustls::ClientConfig;
use serde_json::{Value, json};

use super::World;
use super::support::controller::{Cloud, Controller, pod};
use super::support::dial::{Dialled, configs, keepalive};
use super::support::http;
use super::support::wait::until;

crate::tests!(
    what_is_no_tls_is_refused_at_both_ports,
    who_dials_and_says_nothing_takes_no_nodes_place,
    what_is_no_request_is_refused,
    messages_that_make_no_sense_are_counted_and_end_one_session_alone,
    a_node_that_floods_holds_back_itself_alone,
    frames_that_no_client_sends_end_the_connection,
);

/// How long a node waits for the next message.
const PATIENCE: Duration = Duration::from_secs(10);
/// More requests than any queue holds.
const FLOOD: u64 = 600;

/// A controller with two registered nodes, and their TLS configurations.
struct Place<'a> {
    cloud: &'a Cloud,
    _controller: Controller<'a>,
    nodes: Vec<Arc<ClientConfig>>,
}

fn cloud(world: &World, name: &str) -> Cloud {
    let cloud = Cloud::new(world.folder(&format!("hostile-{name}")));
    for node in ["bad", "good"] {
        let labels = json!({"node-role.kubernetes.io/edge": ""});
        let node = json!({"kind": "Node", "apiVersion": "v1",
            "metadata": {"name": node, "labels": labels}});
        cloud.put(&format!("{}.json", node["metadata"]["name"]).replace('"', ""), &node);
    }
    cloud
}

impl<'a> Place<'a> {
    fn open(cloud: &'a Cloud) -> Self {
        let controller = cloud.start();
        let names = ["bad", "good"].map(str::to_owned);
        let nodes = configs(&cloud.pki(), names.into_iter());
        Self { cloud, _controller: controller, nodes }
    }

    fn session(&self, at: usize) -> Result<Dialled, String> {
        let node = ["bad", "good"][at];
        let mut dialled = Dialled::session(self.cloud.hub, &self.nodes[at], node)?;
        dialled.send(&keepalive().to_string()).map_err(|error| error.to_string())?;
        Ok(dialled)
    }

    /// The good node promptly gets a new pod.
    fn serves(&self, good: &mut Dialled, name: &str) {
        good.stream.sock.set_read_timeout(Some(PATIENCE)).expect("it is ours");
        self.cloud.put(&format!("{name}.json"), &pod(name, "good", "example.invalid/a:1"));
        good.wait_for(&format!("default/pod/{name}"));
    }

    fn metric(&self, name: &str) -> u64 {
        let page = http::get(self.cloud.api, "/metrics").expect("it answers").body;
        let line =
            page.lines().find_map(|line| line.strip_prefix(&format!("edgecontroller_{name} ")));
        line.unwrap_or_else(|| panic!("{name} is not in\n{page}")).parse().expect("a number")
    }

    fn wait_metric(&self, name: &str, least: u64) {
        until(&format!("{name} is {least} at the least"), || match self.metric(name) {
            value if value >= least => Ok(()),
            value => Err(value.to_string()),
        });
    }

    fn logged(&self, what: &str) -> usize {
        self.cloud.log().lines().filter(|line| line.contains(what)).count()
    }
}

/// Sends these bytes and reads to the end.
fn throw(to: SocketAddr, bytes: &[u8]) {
    let mut stream = http::connect(to).expect("it listens");
    let _ = stream.write_all(bytes);
    let _ = stream.read_to_end(&mut Vec::new());
}

fn what_is_no_tls_is_refused_at_both_ports(world: &World) {
    let cloud = cloud(world, "no-tls");
    let place = Place::open(&cloud);
    let mut good = place.session(1).expect("it is a node");
    let noise: Vec<u8> = (0..4_000_u32).map(|at| (at * 7 + at / 251) as u8).collect();
    for port in [cloud.hub, cloud.https] {
        throw(port, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        throw(port, &noise);
        // The head of a record, larger than any allowed.
        throw(port, &[0x16, 3, 1, 0xff, 0xff, 1, 0, 0xff]);
    }
    place.wait_metric("connections_refused_total{reason=\"tls\"}", 6);
    assert_eq!(place.logged("is refused: TLS"), 1, "{}", cloud.log());
    // A client that only checks whether the port is open is not logged.
    drop(TcpStream::connect(cloud.hub).expect("it listens"));
    place.serves(&mut good, "after");
    assert_eq!(place.metric("connections_refused_total{reason=\"tls\"}"), 6);
}

/// More connections than may wait silently; half of them send single bytes.
const CROWD: usize = 1_500;

fn who_dials_and_says_nothing_takes_no_nodes_place(world: &World) {
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE).expect("a limit");
    setrlimit(Resource::RLIMIT_NOFILE, most.min(8_192), most).expect("it is ours");
    let cloud = cloud(world, "crowd");
    let place = Place::open(&cloud);
    let mut good = place.session(1).expect("it is a node");
    let mut crowd: Vec<TcpStream> = Vec::new();
    let hello = [0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3];
    for at in 0..CROWD {
        // The kernel's queue is full at times.
        let wait = Duration::from_secs(20);
        let mut one = TcpStream::connect_timeout(&cloud.hub, wait).expect("it listens");
        if at % 2 == 0 {
            let _ = one.write_all(&hello[..=at % hello.len()]);
        }
        crowd.push(one);
    }
    place.serves(&mut good, "during");
    // They keep dialling as fast as they are refused; from another address a node connects at once.
    let over = Arc::new(AtomicBool::new(false));
    let (hub, stop) = (cloud.hub, Arc::clone(&over));
    let flood = std::thread::spawn(move || {
        let mut own: Vec<Option<TcpStream>> = (0..512).map(|_| None).collect();
        for at in 0.. {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            let slot: usize = at % 512;
            own[slot] = TcpStream::connect_timeout(&hub, Duration::from_secs(1)).ok();
        }
    });
    let elsewhere = Dialled::session_from([127, 0, 0, 7], cloud.hub, &place.nodes[0], "bad");
    over.store(true, Ordering::Relaxed);
    flood.join().expect("it ends");
    drop(elsewhere.expect("a node from another address connects at once"));
    let mut late = place.session(0).expect("another node connects all the same");
    late.wait_for("null/node/bad");
    // Those that dialled first may have waited too long before the last has come.
    let refused = || -> u64 {
        let count = |why| place.metric(&format!("connections_refused_total{{reason=\"{why}\"}}"));
        ["crowded", "late"].map(count).into_iter().sum()
    };
    until("all but 1,024 of the crowd are refused", || match refused() {
        count if count >= (CROWD - 1_024) as u64 => Ok(()),
        count => Err(count.to_string()),
    });
    assert!(place.metric("connections") <= 1_024 + 2);
    // One line for all, whichever was refused first: on a busy machine one that waited too long.
    assert_eq!(place.logged(" is refused: "), 1, "{}", cloud.log());
}

fn what_is_no_request_is_refused(world: &World) {
    let cloud = cloud(world, "requests");
    let place = Place::open(&cloud);
    let mut good = place.session(1).expect("it is a node");
    let long = format!("GET / HTTP/1.1\r\nHost: {}\r\n\r\n", "a".repeat(100_000));
    let body = "POST /edge.crt HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000000\r\n\r\n";
    for (port, request, expected) in [
        (cloud.hub, "GET /p/bad/events HTTP/1.1\r\nHost: a\r\n\r\n", " 426 "),
        (cloud.hub, "\0\0\0\0 no request\r\n\r\n", " 400 "),
        (cloud.hub, &*long, " 431 "),
        (cloud.https, body, " 413 "),
        (cloud.https, "DELETE /ca.crt HTTP/1.1\r\nHost: a\r\n\r\n", " 405 "),
        (cloud.https, "GET /../etc/passwd HTTP/1.1\r\nHost: a\r\n\r\n", " 404 "),
    ] {
        let answer = Dialled::tls(port, &place.nodes[0]).request(request.as_bytes());
        assert!(
            answer.split_inclusive(' ').take(2).collect::<String>().contains(expected.trim()),
            "{expected}: {answer}"
        );
    }
    place.wait_metric("connections_refused_total{reason=\"request\"}", 6);
    // An invalid application, and one of an unknown node.
    let csr =
        "GET /edge.crt HTTP/1.1\r\nHost: a\r\nNodeName: bad\r\nContent-Length: 4\r\n\r\n\x30\x7fab";
    let answer = Dialled::tls(cloud.https, &place.nodes[0]).request(csr.as_bytes());
    assert!(answer.starts_with("HTTP/1.1 4"), "{answer}");
    assert!(place.logged("is refused: ") <= 1, "{}", cloud.log());
    place.serves(&mut good, "after");
}

/// A message of the bad node about this resource.
fn message(operation: &str, resource: &str, content: &Value) -> String {
    json!({
        "header": {"msg_id": "m", "timestamp": 1},
        "route": {"source": "edged", "group": "meta", "operation": operation, "resource": resource},
        "content": content,
    })
    .to_string()
}

fn messages_that_make_no_sense_are_counted_and_end_one_session_alone(world: &World) {
    let cloud = cloud(world, "messages");
    let place = Place::open(&cloud);
    let (mut bad, mut good) =
        (place.session(0).expect("a node"), place.session(1).expect("a node"));
    place.serves(&mut good, "before");
    let large = message("update", "default/podstatus/a", &json!("x".repeat(5 << 20)));
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let of_another =
        message("patch", "default/podpatch/before", &json!({"status": {"phase": "Failed"}}));
    let secret = message("query", "default/secret/any", &Value::Null);
    let node = message("patch", "default/nodepatch/good", &json!({"status": {}}));
    let nonsense = ["", "{", "[]", "null", "\u{0}", "{\"header\":7}", &*deep, &*large];
    for text in nonsense.into_iter().chain([&*of_another, &*secret, &*node]) {
        bad.send(text).expect("it listens");
    }
    // A pod of another node may have been this node's before: that is answered, and no violation.
    place.wait_metric("messages_refused_total", 9);
    place.serves(&mut good, "between");
    let before = cloud.pod("before").expect("it answers").expect("it is there");
    assert_eq!(before["status"]["phase"], "Pending", "another node wrote its status");
    assert_eq!(place.logged("node=bad: refused, further ones are counted"), 1, "{}", cloud.log());
    assert_eq!(place.metric("nodes_connected"), 2, "ten mistakes are no attack");
    for _ in 0..100 {
        let _ = bad.send("{");
    }
    until("the bad node's session ends", || match place.metric("nodes_connected") {
        1 => Ok(()),
        more => Err(more.to_string()),
    });
    place.serves(&mut good, "after");
}

fn a_node_that_floods_holds_back_itself_alone(world: &World) {
    let cloud = cloud(world, "flood");
    let place = Place::open(&cloud);
    let (mut bad, mut good) =
        (place.session(0).expect("a node"), place.session(1).expect("a node"));
    // Endless requests, without reading any answer.
    let wait = Some(Duration::from_millis(500));
    bad.stream.sock.set_write_timeout(wait).expect("it is ours");
    let question = message("query", "default/node/bad", &Value::Null);
    let served = Arc::new(AtomicBool::new(false));
    let over = Arc::clone(&served);
    let flood = std::thread::spawn(move || {
        let mut sent = 0_u64;
        while (sent <= FLOOD || !over.load(Ordering::Relaxed)) && bad.send(&question).is_ok() {
            sent += 1;
        }
        sent
    });
    for at in 0..5 {
        place.serves(&mut good, &format!("p{at}"));
    }
    served.store(true, Ordering::Relaxed);
    let sent = flood.join().expect("it ends");
    assert!(sent > FLOOD, "{sent}: that is no flood");
}

fn frames_that_no_client_sends_end_the_connection(world: &World) {
    let cloud = cloud(world, "frames");
    let place = Place::open(&cloud);
    let mut good = place.session(1).expect("it is a node");
    let mut unmasked = Vec::new();
    edged::wire::ws::write_plain(Kind::Text, b"{}", &mut unmasked);
    let mut reserved = Vec::new();
    write(Kind::Text, b"{}", [1, 2, 3, 4], &mut reserved);
    reserved[0] |= 0x70;
    let endless = [0x81, 0xff, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 2, 3, 4];
    for frame in [&unmasked[..], &reserved, &[0x8f, 0x80, 1, 2, 3, 4], &[0x89, 0xfe, 1, 0]] {
        let mut bad = place.session(0).expect("it may connect again");
        // Followed by as many bytes as the longest head has.
        bad.stream.write_all(&[frame, &[0; 16]].concat()).expect("it listens");
        bad.stream.sock.set_read_timeout(Some(PATIENCE)).expect("it is ours");
        let end = loop {
            if let Err(end) = bad.receive() {
                break end;
            }
        };
        assert_ne!(
            end.kind(),
            ErrorKind::WouldBlock,
            "{frame:?} is accepted, and nothing is answered"
        );
    }
    // A message of exabytes is skipped as it arrives, and takes no memory.
    let mut bad = place.session(0).expect("it may connect again");
    bad.stream.write_all(&endless).expect("it listens");
    let _ = bad.stream.write_all(&vec![0; 4 << 20]);
    place.serves(&mut good, "after");
}
