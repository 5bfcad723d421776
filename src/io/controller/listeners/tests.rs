//! Both ports with real sockets, and clients that are many, slow, silent or greedy. Time is an
//! argument: nothing here waits for real.

use std::io::{Read, Write};
use std::net::TcpStream as Socket;
use std::time::Duration;

use mio::{Events, Poll};
use rustls::ClientConfig;
use rustls::pki_types::CertificateDer;

use super::super::authority::Clients;
use super::*;
use crate::controller::event::HttpRequest;
use crate::io::clock;
use crate::io::tls::loopback;
use crate::limits::{
    EDGE_ANSWER_MS, EDGE_CLOSE_MS, EDGE_FIRST_BYTE_MS, EDGE_OUTPUT_BYTES_MAX,
    EDGE_REQUEST_BYTES_MAX, EDGE_REQUEST_MS, EDGE_STALL_MS, EDGE_UNIDENTIFIED_MAX,
};
use crate::model::cloud_message::{CloudMessage, Content};
use crate::wire::{edge, kubeedge};

struct Bed {
    poll: Poll,
    ready: Events,
    ports: Ports,
    authority: Authority,
    callers: Callers,
    client: Arc<ClientConfig>,
    now: Now,
    /// The events for the core.
    told: Vec<Event>,
}

impl Bed {
    fn new() -> Self {
        Self::on("127.0.0.1:0".parse().expect("an address"))
    }

    /// Websockets on this address.
    fn on(hub: SocketAddr) -> Self {
        let now = Now { boot: Instant(1_000_000), wall: clock::now().wall };
        let now_s = now.timestamp().expect("the clock is set").0;
        let ca = Authority::make_ca(now_s).expect("a CA");
        let mut authority = Authority::of(ca.clone(), ca.clone()).expect("it is whole");
        let server = authority.make_server(&["127.0.0.1".to_owned()], now_s).expect("a server's");
        authority.serve(server).expect("it belongs to the CA");
        // rustls requests client certificates; these clients have none.
        let tls = authority.tls(Clients::Optional).expect("a configuration");
        let any = "127.0.0.1:0".parse().expect("an address");
        let mut bed = Self {
            poll: Poll::new().expect("a poll"),
            ready: Events::with_capacity(512),
            ports: Ports::new(
                (hub, Arc::clone(&tls)),
                (any, Arc::clone(&tls)),
                Some((any, Arc::clone(&tls))),
                Some((any, tls)),
                Token(10),
            ),
            authority,
            callers: Callers::anybody(),
            client: loopback::client(CertificateDer::from(ca.certificate)),
            now,
            told: Vec::new(),
        };
        bed.turn();
        bed
    }

    /// Runs one poll.
    fn listen(&mut self) {
        self.poll.poll(&mut self.ready, Some(Duration::from_millis(1))).expect("it polls");
        for ready in &self.ready {
            self.ports.ready(ready);
        }
    }

    fn tick(&mut self) {
        let trust = Trust { authority: &self.authority, callers: &self.callers };
        self.ports.tick(self.now, self.poll.registry(), trust, &mut self.told);
    }

    fn turn(&mut self) {
        self.listen();
        self.tick();
        let mut dirty = self.ports.sessions.keys().copied().collect();
        self.ports.flush(self.now.boot, &mut dirty, &mut self.told);
    }

    fn turns(&mut self, count: usize) {
        for _ in 0..count {
            self.turn();
        }
    }

    /// Runs turns until this holds.
    fn until(&mut self, mut holds: impl FnMut(&mut Self) -> bool) {
        for _ in 0..20_000 {
            if holds(self) {
                return;
            }
            self.turn();
        }
        panic!("no answer came; the events are {:?}", self.told);
    }

    fn pass_ms(&mut self, ms: u64) {
        self.now.boot = self.now.boot.plus_ms(ms);
        self.turns(3);
    }

    fn address(&self, door: Door) -> SocketAddr {
        let listener = match door {
            Door::Hub => &self.ports.hub,
            Door::Https => &self.ports.https,
            Door::Tunnel => self.ports.tunnel.as_ref().expect("it is on"),
            Door::ApiServer => self.ports.api_server.as_ref().expect("it is on"),
        };
        let socket = listener.socket.as_ref().expect("it listens");
        socket.local_addr().expect("it is bound")
    }

    /// A client that has sent nothing.
    fn silent(&self, door: Door) -> Socket {
        let socket = Socket::connect(self.address(door)).expect("it listens");
        socket.set_nonblocking(true).expect("it can");
        socket
    }

    /// A client that has a slot and has sent nothing.
    fn stranger(&mut self, door: Door) -> Socket {
        let (socket, before) = (self.silent(door), self.ports.connections());
        self.until(|bed| bed.ports.connections() > before);
        self.turns(3);
        socket
    }

    /// A client after the handshake.
    fn secure(&mut self, door: Door) -> Tls {
        let mut far = loopback::dial(self.address(door), Arc::clone(&self.client));
        self.until(|_| {
            far.begin_turn();
            far.handshake().expect("they agree")
        });
        self.turns(3);
        far
    }

    fn say(&mut self, far: &mut Tls, bytes: &[u8]) {
        let mut said = 0;
        self.until(|_| {
            said += far.write(&bytes[said..]).unwrap_or(0);
            said == bytes.len() && far.push_all().expect("it is taken")
        });
    }

    /// The bytes until the server closes the connection.
    fn read(&mut self, far: &mut Tls) -> String {
        let mut text = Vec::new();
        self.until(|_| match loopback::came(far) {
            Ok(bytes) => {
                text.extend(bytes);
                false
            }
            Err(_) => true,
        });
        String::from_utf8(text).expect("text")
    }

    /// Waits until the server closes.
    fn is_cut(&mut self, socket: &mut Socket) {
        self.until(|_| match socket.read(&mut [0; 64]) {
            Ok(count) => count == 0,
            Err(error) => error.kind() != ErrorKind::WouldBlock,
        });
    }

    /// The requests to the core.
    fn asked(&mut self) -> (Exchange, Box<HttpRequest>) {
        let asked = |told: &Event| matches!(told, Event::HttpRequest(..));
        self.until(|bed| bed.told.iter().any(asked));
        let at = self.told.iter().position(asked).expect("it was just seen");
        match self.told.swap_remove(at) {
            Event::HttpRequest(exchange, ask) => (exchange, ask),
            other => panic!("{other:?}"),
        }
    }

    /// An established websocket.
    fn up(&mut self) -> (Tls, Session) {
        let mut far = self.secure(Door::Hub);
        self.say(
            &mut far,
            b"GET / HTTP/1.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
              Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: x\r\n\r\n",
        );
        let mut found = None;
        self.until(|bed| {
            found = bed.told.iter().find_map(|told| match told {
                Event::EdgeUp(session, _) => Some(*session),
                _ => None,
            });
            found.is_some()
        });
        let session = found.expect("it was just seen");
        self.ports.accept_session(session);
        self.turns(3);
        self.told.clear();
        (far, session)
    }

    /// Why a session ended, if one did.
    fn down(&self) -> Option<&str> {
        self.told.iter().find_map(|told| match told {
            Event::EdgeDown(_, why) => Some(&**why),
            _ => None,
        })
    }

    fn refused(&self, kind: &str) -> u64 {
        self.ports.refused().find(|(known, _)| *known == kind).expect("it is one of them").1
    }
}

/// A message with this many bytes on the wire, without the frame's header.
fn message(bytes: usize) -> CloudMessage {
    let mut message = CloudMessage {
        id: "m".into(),
        parent: "".into(),
        timestamp_ms: 0,
        version: 0,
        source: "",
        group: "",
        operation: "",
        resource: "".into(),
        content: Content::Authority("".into()),
    };
    let rest = edge::encode(&kubeedge::encode_cloud(&message)).len();
    message.content = Content::Authority("x".repeat(bytes - rest).into());
    message
}

/// The header of a server's frame of 64 KiB and more (RFC 6455, section 5.2).
const FRAME_HEAD_BYTES: usize = 10;
const ASK: &[u8] = b"GET /ca.crt HTTP/1.1\r\n\r\n";

#[test]
fn connections_have_a_bound_in_all_and_at_the_port_of_certificates() {
    let mut bed = Bed::new();
    // As if there were that many others.
    bed.ports.slots.resize_with(EDGE_CONNECTIONS_MAX - 1, || None);
    let last = bed.stranger(Door::Hub);
    assert_eq!(bed.refused("full"), 0);
    for (door, count) in [(Door::Hub, 1), (Door::Https, 2)] {
        let mut more = bed.silent(door);
        bed.is_cut(&mut more);
        assert_eq!((bed.refused("full"), bed.ports.connections()), (count, EDGE_CONNECTIONS_MAX));
    }
    drop(last);
    bed.until(|bed| bed.ports.connections() < EDGE_CONNECTIONS_MAX);
    bed.stranger(Door::Https);

    let mut bed = Bed::new();
    bed.ports.https_connections = EDGE_HTTPS_CONNECTIONS_MAX - 1;
    let last = bed.stranger(Door::Https);
    let mut more = bed.silent(Door::Https);
    bed.is_cut(&mut more);
    assert_eq!(bed.refused("full"), 1);
    bed.stranger(Door::Hub);
    drop(last);
    bed.until(|bed| bed.ports.https_connections < EDGE_HTTPS_CONNECTIONS_MAX);
    bed.stranger(Door::Https);
    assert_eq!(bed.refused("full"), 1, "who is gone has left room");
}

#[test]
fn a_turn_takes_some_of_those_who_dial_and_the_next_one_more() {
    let mut bed = Bed::new();
    let _all: Vec<_> = (0..=EDGE_ACCEPTS_PER_TURN).map(|_| bed.silent(Door::Https)).collect();
    bed.listen();
    bed.tick();
    assert_eq!(bed.ports.connections(), EDGE_ACCEPTS_PER_TURN);
    assert_eq!(bed.ports.wake_at(), Some(Instant(0)), "the kernel will not tell of it again");
    bed.tick();
    assert_eq!(bed.ports.connections(), EDGE_ACCEPTS_PER_TURN + 1);

    // The same for connections that waited for a slot.
    let mut bed = Bed::new();
    let (peer, at) = ("127.0.0.1:1".parse().expect("an address"), bed.now.boot);
    let others = 1_000_000..1_000_000 + EDGE_UNIDENTIFIED_MAX;
    for slot in others.clone() {
        bed.ports.strangers.came(Door::Hub, peer, at, slot);
    }
    let _all: Vec<_> = (0..=EDGE_ACCEPTS_PER_TURN).map(|_| bed.silent(Door::Hub)).collect();
    bed.turns(5);
    assert_eq!(bed.ports.connections(), 0, "there is no place");
    for slot in others {
        bed.ports.strangers.left(Door::Hub, at, slot);
    }
    bed.tick();
    assert_eq!(bed.ports.connections(), EDGE_ACCEPTS_PER_TURN);
    bed.tick();
    assert_eq!(bed.ports.connections(), EDGE_ACCEPTS_PER_TURN + 1);
}

#[test]
fn a_turn_works_at_some_connections_and_the_next_one_at_more() {
    let mut bed = Bed::new();
    let all = EDGE_CONNECTIONS_PER_TURN + 1;
    let mut clients: Vec<_> = (0..all).map(|_| bed.silent(Door::Hub)).collect();
    bed.until(|bed| bed.ports.connections() == all && bed.ports.busy.is_empty());
    for client in &mut clients {
        client.write_all(b"GET / HTTP/1.1\r\n\r\n").expect("it is taken");
    }
    while bed.ports.busy.len() < all {
        bed.listen();
    }
    bed.tick();
    assert_eq!(bed.refused("tls"), EDGE_CONNECTIONS_PER_TURN as u64);
    assert_eq!(bed.ports.wake_at(), Some(Instant(0)), "there is more to do");
    bed.tick();
    assert_eq!(bed.refused("tls"), all as u64);
}

#[test]
fn a_port_that_is_taken_is_tried_again() {
    // The kernel gives no port of this address to a connection of another test.
    let taken = std::net::TcpListener::bind("127.0.2.2:0").expect("a free port");
    let address = taken.local_addr().expect("it is bound");
    let mut bed = Bed::on(address);
    assert_eq!(bed.ports.wake_at(), Some(bed.now.boot.plus_ms(EDGE_LISTEN_RETRY_MS)));
    drop(taken);
    bed.pass_ms(EDGE_LISTEN_RETRY_MS - 1);
    assert!(bed.ports.hub.socket.is_none(), "not before its time");
    bed.pass_ms(1);
    assert_eq!(bed.address(Door::Hub), address);
}

#[test]
fn who_says_nothing_too_little_or_no_request_is_given_up_in_time() {
    type Begin = fn(&mut Bed) -> Box<dyn std::any::Any>;
    let cases: [(u64, Begin); 3] = [
        (EDGE_FIRST_BYTE_MS, |bed| Box::new(bed.stranger(Door::Hub))),
        (EDGE_REQUEST_MS, |bed| {
            let mut socket = bed.stranger(Door::Hub);
            socket.write_all(&[22]).expect("it is taken");
            bed.turns(3);
            Box::new(socket)
        }),
        (EDGE_REQUEST_MS, |bed| {
            let mut far = bed.secure(Door::Https);
            bed.say(&mut far, &ASK[..ASK.len() - 1]);
            Box::new(far)
        }),
    ];
    for (at, (ms, begin)) in cases.into_iter().enumerate() {
        let mut bed = Bed::new();
        let _client = begin(&mut bed);
        assert_eq!(bed.ports.wake_at(), Some(bed.now.boot.plus_ms(ms)), "{at}");
        bed.pass_ms(ms - 1);
        assert_eq!((bed.ports.connections(), bed.refused("late")), (1, 0), "{at}");
        bed.pass_ms(1);
        assert_eq!((bed.ports.connections(), bed.refused("late")), (0, 1), "{at}");
    }
}

#[test]
fn an_answer_that_does_not_come_or_is_not_taken_ends_the_connection() {
    let huge = Answer { status: 200, body: vec![0; 16 << 20].into() };
    for (answer, late) in [(None, 0), (Some(huge), 1)] {
        let mut bed = Bed::new();
        let mut far = bed.secure(Door::Https);
        bed.say(&mut far, ASK);
        let (exchange, ask) = bed.asked();
        assert!(matches!(*ask, HttpRequest::Authority));
        if let Some(answer) = answer {
            bed.ports.answer(exchange, &answer);
            bed.turns(50);
        }
        bed.pass_ms(EDGE_ANSWER_MS - 1);
        assert_eq!((bed.ports.connections(), bed.refused("late")), (1, 0));
        bed.pass_ms(1);
        assert_eq!((bed.ports.connections(), bed.refused("late")), (0, late));
        assert!(bed.ports.exchanges.is_empty());
    }
}

#[test]
fn who_does_not_hang_up_after_its_answer_is_left() {
    let mut bed = Bed::new();
    let mut far = bed.secure(Door::Https);
    bed.say(&mut far, ASK);
    let (exchange, _) = bed.asked();
    bed.ports.answer(exchange, &Answer { status: 200, body: Box::from(*b"CA") });
    assert!(bed.read(&mut far).ends_with("\r\n\r\nCA"));
    bed.pass_ms(EDGE_CLOSE_MS - 1);
    assert_eq!(bed.ports.connections(), 1);
    bed.pass_ms(1);
    assert_eq!((bed.ports.connections(), bed.ports.wake_at()), (0, None));
}

#[test]
fn an_application_has_a_bound() {
    for (bytes, fits) in [(EDGE_REQUEST_BYTES_MAX, true), (EDGE_REQUEST_BYTES_MAX + 1, false)] {
        let mut bed = Bed::new();
        let mut far = bed.secure(Door::Https);
        let head = format!("GET /edge.crt HTTP/1.1\r\nContent-Length: {bytes}\r\n\r\n");
        bed.say(&mut far, head.as_bytes());
        if fits {
            bed.say(&mut far, &vec![0; bytes]);
            assert!(matches!(*bed.asked().1, HttpRequest::Certificate { .. }));
        } else {
            let text = bed.read(&mut far);
            assert!(text.starts_with("HTTP/1.1 413 "), "{text}");
            assert_eq!(bed.refused("request"), 1);
        }
    }
}

#[test]
fn what_waits_for_a_node_has_a_bound() {
    for (more, fits) in [(0, true), (1, false)] {
        let mut bed = Bed::new();
        let (_far, session) = bed.up();
        let half = EDGE_OUTPUT_BYTES_MAX / 2;
        bed.ports.send(session, &message(half), &mut bed.told);
        let last = message(half - FRAME_HEAD_BYTES + more);
        bed.ports.send(session, &last, &mut bed.told);
        assert_eq!(bed.down().is_none(), fits, "{:?}", bed.down());
        bed.ports.send(session, &message(100), &mut bed.told);
        let why = bed.down().expect("it is too much");
        assert!(why.starts_with("does not read: "), "{why}");
    }
}

#[test]
fn a_node_that_takes_nothing_is_left() {
    let mut bed = Bed::new();
    let (_far, session) = bed.up();
    bed.ports.send(session, &message(EDGE_OUTPUT_BYTES_MAX - 100), &mut bed.told);
    // As much as the kernel accepts.
    bed.turns(50);
    assert_eq!(bed.ports.wake_at(), Some(bed.now.boot.plus_ms(EDGE_STALL_MS)));
    bed.pass_ms(EDGE_STALL_MS - 1);
    assert_eq!(bed.down(), None);
    bed.pass_ms(1);
    let why = format!("did not read for {} s", EDGE_STALL_MS / 1_000);
    assert_eq!(bed.down(), Some(&*why));
}

/// A request for a tunnel.
fn tunnel_request(path: &str, headers: &str) -> String {
    format!(
        "GET {path} HTTP/1.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: x\r\n{headers}\r\n"
    )
}

#[test]
fn the_port_of_tunnels_has_one_path_and_wants_an_upgrade() {
    let path = "/v1/kubeedge/connect";
    let two = "SessionHostNameOverride: a\r\nSessionHostNameOveride: b\r\n";
    for (request, status) in [
        (tunnel_request("/v1/kubeedge", ""), 404),
        (tunnel_request("/", ""), 404),
        (tunnel_request(path, two), 403),
        (tunnel_request(path, "").replace("Upgrade: websocket\r\n", ""), 400),
        (tunnel_request(path, "").replace("Version: 13", "Version: 8"), 400),
        (tunnel_request(path, "").replace("GET", "POST"), 400),
    ] {
        let mut bed = Bed::new();
        let mut far = bed.secure(Door::Tunnel);
        bed.say(&mut far, request.as_bytes());
        let answer = bed.read(&mut far);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{request}: {answer}");
        assert!(bed.told.is_empty(), "the core is not asked: {:?}", bed.told);
    }
}

#[test]
fn a_tunnel_is_refused_or_handed_over_as_the_core_says() {
    for (path, header, name) in [
        ("/v1/kubeedge/connect", "SessionHostNameOverride: gw1\r\n", "gw1"),
        ("/v1/kubeedge/connect/", "SessionHostNameOveride: gw1\r\n", "gw1"),
        ("/v1/kubeedge/connect", "", ""),
    ] {
        for is_granted in [true, false] {
            let mut bed = Bed::new();
            let mut far = bed.secure(Door::Tunnel);
            let request = [tunnel_request(path, header).as_bytes(), b"tail"].concat();
            bed.say(&mut far, &request);
            bed.until(|bed| !bed.told.is_empty());
            let (tunnel, peer) = match bed.told.pop() {
                Some(Event::TunnelUp(tunnel, peer)) => (tunnel, peer),
                other => panic!("{other:?}"),
            };
            assert_eq!(peer.node_id, name);
            if is_granted {
                let registry = bed.poll.registry();
                let upgraded = bed.ports.hand_over(tunnel, registry).expect("it waits");
                assert!(upgraded.grant.starts_with(b"HTTP/1.1 101 "), "{upgraded:?}");
                assert_eq!(upgraded.tail, b"tail");
                assert!(bed.ports.hand_over(tunnel, registry).is_none(), "once");
                assert_eq!(bed.ports.connections(), 0, "its place is free");
            } else {
                let refusal = Refusal { status: 403, body: "no".to_owned() };
                bed.ports.refuse_tunnel(tunnel, &refusal);
                assert!(bed.read(&mut far).starts_with("HTTP/1.1 403 Forbidden\r\n"));
            }
        }
    }
}

#[test]
fn a_tunnel_whose_node_hangs_up_before_the_answer_is_reported() {
    let mut bed = Bed::new();
    let mut far = bed.secure(Door::Tunnel);
    bed.say(&mut far, tunnel_request("/v1/kubeedge/connect", "").as_bytes());
    bed.until(|bed| !bed.told.is_empty());
    bed.pass_ms(EDGE_ANSWER_MS);
    assert!(matches!(bed.told[..], [Event::TunnelUp(..), Event::TunnelDown(..)]), "{:?}", bed.told);
}

#[test]
fn a_kube_apiserver_that_has_vanished_is_noticed() {
    for (door, is_probed) in [(Door::ApiServer, true), (Door::Hub, false)] {
        let mut bed = Bed::new();
        let client = bed.stranger(door);
        bed.turns(3);
        let ports = (bed.address(door), client.local_addr().expect("it is connected"));
        let row = format!("{:04X} 0100007F:{:04X} 01 ", ports.0.port(), ports.1.port());
        let table = std::fs::read_to_string("/proc/net/tcp").expect("the kernel has it");
        let row = table.lines().find(|line| line.contains(&row)).expect(&table);
        // Of proc_net_tcp(5): 2 is the timer of keepalive, 0 is none.
        let timer = row.split_ascii_whitespace().nth(5).expect("it has a timer");
        assert_eq!(timer.starts_with("02:"), is_probed, "{door:?}: {row}");
    }
}

#[test]
fn a_request_to_a_kubelet_is_handed_over_if_its_client_is_let_in() {
    let request = b"POST /exec/n/p/c HTTP/1.1\r\nHost: 192.0.2.1:10351\r\n\r\nrest";
    let mut bed = Bed::new();
    let mut far = bed.secure(Door::ApiServer);
    bed.say(&mut far, request);
    bed.until(|bed| !bed.ports.asked.is_empty());
    assert_eq!(bed.ports.connections(), 0, "its place is free");
    let mut asked = bed.ports.asked().pop().expect("it was just seen");
    assert_eq!((&*asked.call.path, &*asked.rest), ("/exec/n/p/c", &b"rest"[..]));
    assert!(matches!(asked.client, Client::ApiServer(_)));
    asked.client.write_all(b"an answer").expect("there is room");
    drop(asked);
    assert_eq!(bed.read(&mut far), "an answer");
    for (callers, status) in [(Callers::of_cluster(), 503), (signed(), 401)] {
        bed.callers = callers;
        let mut far = bed.secure(Door::ApiServer);
        bed.say(&mut far, request);
        let answer = bed.read(&mut far);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
        assert!(bed.ports.asked.is_empty() && bed.told.is_empty());
    }
    assert_eq!(bed.refused("request"), 2);
}

/// The clients of a CA that nobody here has a certificate of.
fn signed() -> Callers {
    let now_s = clock::now().timestamp().expect("the clock is set").0;
    let ca = Authority::make_ca(now_s).expect("a CA");
    let text = crate::wire::x509::pem::encode("CERTIFICATE", &ca.certificate);
    let path = std::env::temp_dir().join(format!("edged-callers-{}.crt", std::process::id()));
    std::fs::write(&path, text).expect("a file of ours");
    let callers = Callers::of_file(&path).expect("a CA");
    std::fs::remove_file(&path).expect("it was just written");
    callers
}

#[test]
fn a_request_to_a_kubelet_has_no_body_and_a_bound_in_time() {
    let mut bed = Bed::new();
    let mut far = bed.secure(Door::ApiServer);
    bed.say(&mut far, b"POST /run/n/p/c HTTP/1.1\r\nContent-Length: 1\r\n\r\nx");
    let answer = bed.read(&mut far);
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
    let mut bed = Bed::new();
    let late = bed.refused("late");
    let mut silent = bed.stranger(Door::ApiServer);
    bed.pass_ms(EDGE_FIRST_BYTE_MS);
    bed.is_cut(&mut silent);
    let mut slow = bed.secure(Door::ApiServer);
    bed.say(&mut slow, b"GET /pods HTTP/1.1\r\n");
    bed.pass_ms(EDGE_REQUEST_MS);
    bed.read(&mut slow);
    assert_eq!((bed.ports.connections(), bed.refused("late")), (0, late + 2));
}
