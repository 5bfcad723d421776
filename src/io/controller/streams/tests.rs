//! Requests over real sockets, with nodes that the tests play: those of the captures, and hostile
//! ones. The time is an argument.

use std::io::{ErrorKind, Read, Write};
use std::time::Duration;

use mio::net::UnixStream;
use mio::{Events, Poll};

use super::*;
use crate::io::socket::Stream;
use crate::io::tls::{Tls, loopback};
use crate::io::websocket::{Bounds, Received, Role, Websocket};
use crate::limits::{
    CLOUD_STREAM_ANSWER_MS, CLOUD_STREAM_REMOVE_MS, CLOUD_STREAM_SLOW_MS,
    CLOUD_STREAM_UNSENT_BYTES_MAX, CLOUD_TUNNEL_SILENT_MS, CLOUD_TUNNEL_UNSENT_BYTES_MAX,
    EDGE_STALL_MS, TUNNEL_DATA_BYTES_MAX,
};
use crate::wire::tunnel::{Connect, Message};

const FIRST: Token = Token(100);

/// What a node has received.
type Got = (u64, Kind, Vec<u8>);

struct Edge {
    name: Name,
    socket: Websocket,
    got: Vec<Got>,
    /// It does not read.
    is_stuck: bool,
    is_down: bool,
}

impl Edge {
    fn pull(&mut self, now: Instant) {
        let Self { socket, got, .. } = self;
        let each = &mut |received| match received {
            Received::Message(bytes) => {
                let Message { id, kind, data } = Message::decode(&bytes).expect("a message");
                got.push((id, kind, data.to_vec()));
            }
            Received::TooLarge(size) => panic!("{size} bytes"),
        };
        while !self.is_stuck && !self.is_down {
            match socket.read(each) {
                Ok(true) => {}
                Ok(false) => break,
                Err(_) => self.is_down = true,
            }
        }
        let _ = socket.write(now);
    }

    fn send(&mut self, id: u64, kind: Kind, data: &[u8]) {
        let mut message = Vec::new();
        Message { id, kind, data }.encode(&mut message);
        self.socket.send(&message).expect("there is room");
    }

    /// The requests that it got, with the ids of their messages.
    fn opened(&self) -> Vec<(u64, Kind, Connect)> {
        let opens = |(id, kind, data): &Got| match kind {
            Kind::Data | Kind::Remove => None,
            kind => Some((*id, *kind, Connect::decode(data).expect("a request"))),
        };
        self.got.iter().filter_map(opens).collect()
    }

    fn removes(&self) -> usize {
        self.got.iter().filter(|(_, kind, _)| *kind == Kind::Remove).count()
    }
}

struct Place {
    poll: Poll,
    streams: Streams,
    edges: Vec<Edge>,
    events: Vec<Event>,
    now: Instant,
}

impl Place {
    /// With so many nodes, called 1, 2 …, each with a tunnel.
    fn new(nodes: u64) -> Self {
        let poll = Poll::new().expect("epoll");
        let streams = Streams::new(FIRST);
        let now = Instant(1_000_000);
        let mut place = Self { poll, streams, edges: Vec::new(), events: Vec::new(), now };
        for node in 1..=nodes {
            let (near, far) = loopback::pair();
            let upgraded = Upgraded { tls: far, grant: Vec::new(), tail: Vec::new() };
            let (name, registry) = (Name(node), place.poll.registry());
            let text = node.to_string().into_boxed_str();
            place
                .streams
                .open_tunnel(name, text, upgraded, now, registry)
                .expect("it is registered");
            let bounds = Bounds { message_bytes_max: 4 << 20, out_bytes_max: 64 << 20 };
            let socket = Websocket::new(near, Vec::new(), Role::Client, bounds);
            place.edges.push(Edge {
                name,
                socket,
                got: Vec::new(),
                is_stuck: false,
                is_down: false,
            });
        }
        place.turns(3);
        place
    }

    fn turn(&mut self) {
        let mut ready = Events::with_capacity(64);
        self.poll.poll(&mut ready, Some(Duration::from_millis(1))).expect("epoll");
        for ready in &ready {
            self.streams.ready(ready);
        }
        self.streams.tick(self.now, &mut self.events);
        for edge in &mut self.edges {
            edge.pull(self.now);
        }
    }

    fn turns(&mut self, count: usize) {
        for _ in 0..count {
            self.turn();
        }
    }

    fn until(&mut self, what: &str, mut holds: impl FnMut(&mut Self) -> bool) {
        for _ in 0..20_000 {
            if holds(self) {
                return;
            }
            self.turn();
        }
        panic!("{what}: it did not happen");
    }

    fn pass_ms(&mut self, ms: u64) {
        self.now = self.now.plus_ms(ms);
        self.turns(3);
    }

    /// A client that sends this; `node`: that of its pod.
    fn asks(&mut self, node: u64, call: Call, rest: &[u8]) -> UnixStream {
        let (near, far) = UnixStream::pair().expect("a pair");
        let client = Client::Local(Stream::Socket(near));
        let asked = Asked { client, call, rest: rest.to_vec() };
        let find = |_: &Target| Ok((node.to_string().into_boxed_str(), Name(node)));
        self.streams.serve(asked, &find, self.now, self.poll.registry());
        far
    }

    fn asks_log(&mut self, node: u64) -> UnixStream {
        let call = call("GET", "/containerLogs/default/p/c", "", &[]);
        self.asks(node, call, b"")
    }

    fn asks_exec(&mut self, node: u64) -> UnixStream {
        let headers = [("connection", "Upgrade"), ("upgrade", "SPDY/3.1")];
        self.asks(node, call("POST", "/exec/default/p/c", "command=sh&output=1", &headers), b"")
    }

    /// The id of the last request that this node got.
    fn opened(&mut self, node: usize) -> u64 {
        let count = self.edges[node - 1].opened().len();
        let id = self.streams.last_id;
        self.until("the node has the request", |place| {
            let opened = place.edges[node - 1].opened();
            opened.len() > count || opened.iter().any(|(got, ..)| *got == id)
        });
        id
    }

    /// Everything up to the end of a client's connection.
    fn all(&mut self, client: &mut UnixStream) -> Vec<u8> {
        let mut all = Vec::new();
        self.until("the connection ends", |_| take(client, &mut all));
        all
    }

    fn down(&self, node: u64) -> Option<&str> {
        self.events.iter().find_map(|event| match event {
            Event::TunnelDown(name, why) if *name == Name(node) => Some(&**why),
            _ => None,
        })
    }
}

fn call(method: &str, path: &str, query: &str, headers: &[(&str, &str)]) -> Call {
    let headers = headers.iter().map(|(name, value)| ((*name).into(), (*value).into()));
    Call {
        method: method.into(),
        path: path.into(),
        query: query.into(),
        headers: headers.collect(),
        body: Vec::new(),
    }
}

/// Takes what has come; `true`: the connection has ended.
fn take(client: &mut UnixStream, all: &mut Vec<u8>) -> bool {
    let mut buffer = [0; 16 << 10];
    loop {
        match client.read(&mut buffer) {
            Ok(0) => return true,
            Ok(count) => all.extend_from_slice(&buffer[..count]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return false,
            Err(error) => panic!("{error}"),
        }
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The messages of a capture in their order: whether the edge sent it, its kind and its data, of
/// which long ones have only the beginning.
fn captured(file: &str) -> Vec<(bool, Kind, Vec<u8>)> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/stream");
    let all = std::fs::read_to_string(format!("{folder}/{file}")).expect("a capture");
    let mut lines = all.lines();
    let mut messages = Vec::new();
    while let Some(line) = lines.next() {
        let is_edge = line.starts_with("from the edge");
        if !is_edge && !line.starts_with("to the edge") {
            continue;
        }
        let hex = lines.next().and_then(|line| line.trim().strip_prefix("hex "));
        let hex = hex.expect("the bytes").trim_end_matches(" (cut)");
        let byte = |at| u8::from_str_radix(&hex[at..at + 2], 16).expect("two digits");
        let bytes: Vec<u8> = (0..hex.len()).step_by(2).map(byte).collect();
        let Message { kind, data, .. } = Message::decode(&bytes).expect("a message");
        let text = lines.next().and_then(|line| line.trim().strip_prefix("txt "));
        let data = match text {
            Some(json) if kind == Kind::Exec => json.as_bytes(),
            _ => data,
        };
        messages.push((is_edge, kind, data.to_vec()));
    }
    messages
}

#[test]
fn what_edgecore_answered_comes_to_the_client_unchanged() {
    for (file, begin) in [
        ("tunnel-ours-logs-by-exec.txt", "HTTP/1.1 200 OK\r\n"),
        ("tunnel-ours-logs-by-exec-404.txt", "HTTP/1.1 404 Not Found\r\n"),
        ("tunnel-ours-exec-websocket.txt", "HTTP/1.1 101 Switching Protocols\r\n"),
        ("tunnel-ours-portforward.txt", "HTTP/1.1 101 Switching Protocols\r\n"),
    ] {
        let mut place = Place::new(1);
        let (mut client, mut id) = (None, 0);
        let (mut expected, mut sent) = (Vec::new(), Vec::new());
        for (is_edge, kind, data) in captured(file) {
            match (is_edge, kind) {
                (false, Kind::Exec) => {
                    let connect = Connect::decode(&data).expect("a request");
                    let headers = connect.headers.iter();
                    let headers: Vec<_> =
                        headers.map(|(name, value)| (name.to_lowercase(), value.clone())).collect();
                    let call = Call {
                        method: connect.method.clone(),
                        path: connect.raw_path.clone(),
                        query: connect.query.clone(),
                        headers,
                        body: Vec::new(),
                    };
                    client = Some(place.asks(1, call, b""));
                    id = place.opened(1);
                    let (_, kind, got) = place.edges[0].opened().remove(0);
                    assert_eq!((kind, got.id), (Kind::Exec, id), "{file}");
                    assert_eq!(got.method, connect.method, "{file}");
                    assert_eq!(got.target(), connect.target(), "{file}");
                    let of_upgrade = |it: &&(String, String)| it.0 != "Content-Length";
                    let wanted: Vec<_> = connect.headers.iter().filter(of_upgrade).collect();
                    assert_eq!(got.headers.iter().collect::<Vec<_>>(), wanted, "{file}");
                }
                (false, _) => {
                    let client = client.as_mut().expect("it has asked");
                    client.write_all(&data).expect("there is room");
                    sent.extend_from_slice(&data);
                }
                (true, kind) => {
                    expected.extend_from_slice(&data);
                    place.edges[0].send(id, kind, &data);
                }
            }
        }
        // Where the capture ends before the request does.
        place.edges[0].send(id, Kind::Remove, b"");
        let all = place.all(&mut client.expect("it has asked"));
        assert!(all.starts_with(begin.as_bytes()), "{file}: {}", text(&all));
        assert_eq!(text(&all), text(&expected), "{file}");
        place.until("the node has it all", |place| {
            let datas = place.edges[0].got.iter().filter(|(_, kind, _)| *kind == Kind::Data);
            datas.flat_map(|(_, _, data)| data.clone()).collect::<Vec<u8>>() == sent
        });
        assert_eq!(place.edges[0].removes(), 0, "{file}");
    }
}

#[test]
fn ids_are_never_used_twice_and_each_node_has_its_own_requests() {
    let mut place = Place::new(2);
    let (mut one, mut two) = (place.asks_log(1), place.asks_log(2));
    place
        .until("both have theirs", |place| place.edges.iter().all(|edge| edge.opened().len() == 1));
    let ids: Vec<u64> = place.edges.iter().map(|edge| edge.opened()[0].0).collect();
    assert_eq!(ids, [1, 2]);
    // Node 2 answers for node 1's request, too: nobody hears it.
    place.edges[1].send(1, Kind::Data, b"forged");
    place.edges[1].send(1, Kind::Remove, b"");
    place.edges[1].send(2, Kind::Data, b"two");
    place.edges[1].send(2, Kind::Remove, b"");
    assert_eq!(place.all(&mut two), b"two");
    place.edges[0].send(1, Kind::Data, b"one");
    place.edges[0].send(1, Kind::Remove, b"");
    assert_eq!(place.all(&mut one), b"one");
    drop((one, two));
    place.until("nothing is left", |place| place.streams.requests() == 0);
    let _three = place.asks_log(1);
    assert_eq!(place.opened(1), 3);
}

#[test]
fn requests_have_a_bound() {
    let mut place = Place::new(1);
    let mut clients = Vec::new();
    for _ in 0..CLOUD_STREAMS_MAX {
        clients.push(place.asks_log(1));
        place.turn();
    }
    let mut more = place.asks_log(1);
    let all = place.all(&mut more);
    assert!(text(&all).starts_with("HTTP/1.1 429 "), "{}", text(&all));
    drop(clients);
    place.until("the node is told of each", |place| place.edges[0].removes() == CLOUD_STREAMS_MAX);
    // Until it confirms that, they count.
    assert_eq!(place.streams.requests(), CLOUD_STREAMS_MAX);
    place.pass_ms(CLOUD_STREAM_REMOVE_MS);
    assert_eq!(place.streams.requests(), 0);
}

#[test]
fn a_client_that_leaves_is_told_once_and_confirmed() {
    let mut place = Place::new(1);
    for is_confirmed in [true, false] {
        let client = place.asks_exec(1);
        let id = place.opened(1);
        place.edges[0].got.clear();
        drop(client);
        place.until("the node is told", |place| place.edges[0].removes() > 0);
        // What was on its way is for nobody.
        place.edges[0].send(id, Kind::Data, b"late");
        if is_confirmed {
            place.edges[0].send(id, Kind::Remove, b"");
            place.until("it is over", |place| place.streams.requests() == 0);
        }
        place.turns(5);
        assert_eq!(place.streams.requests(), usize::from(!is_confirmed));
        place.pass_ms(CLOUD_STREAM_REMOVE_MS);
        assert_eq!((place.streams.requests(), place.edges[0].removes()), (0, 1));
    }
}

#[test]
fn a_node_that_does_not_answer_has_a_minute_and_a_followed_log_has_more() {
    let mut place = Place::new(1);
    let mut client = place.asks_log(1);
    let mut follower =
        place.asks(1, call("GET", "/containerLogs/default/p/c", "follow=true", &[]), b"");
    place.pass_ms(CLOUD_STREAM_ANSWER_MS - 1);
    assert_eq!(place.edges[0].removes(), 0);
    place.pass_ms(1);
    let all = place.all(&mut client);
    assert!(text(&all).ends_with("\r\n\r\nthe node did not answer for 60 s"), "{}", text(&all));
    place.until("the node is told", |place| place.edges[0].removes() == 1);
    place.edges[0].send(2, Kind::Data, b"a line at last");
    place.edges[0].send(2, Kind::Remove, b"");
    assert_eq!(place.all(&mut follower), b"a line at last");
}

#[test]
fn a_request_that_ends_before_its_answer_is_refused_with_a_status() {
    let mut place = Place::new(1);
    let mut client = place.asks_log(1);
    let id = place.opened(1);
    place.edges[0].send(id, Kind::Remove, b"");
    let all = text(&place.all(&mut client));
    assert!(all.starts_with("HTTP/1.1 503 "), "{all}");
    assert!(all.ends_with("the node ended the request without an answer"), "{all}");
}

#[test]
fn a_tunnel_that_ends_or_is_replaced_ends_its_requests() {
    let mut place = Place::new(2);
    let (mut asked, mut answered) = (place.asks_log(1), place.asks_log(1));
    let mut other = place.asks_log(2);
    place.opened(1);
    place.edges[0].send(2, Kind::Data, b"half");
    place.until("it came", |place| {
        let mut requests = place.streams.requests.iter().flatten();
        requests.any(|request| request.id == 2 && request.wake_at(0).is_none())
    });
    place.streams.close_tunnel(Name(1), "replaced by a newer one", place.now);
    let why = "the stream tunnel of node 1 ended: replaced by a newer one";
    let all = text(&place.all(&mut asked));
    assert!(all.starts_with("HTTP/1.1 503 ") && all.ends_with(why), "{all}");
    assert_eq!(place.all(&mut answered), b"half");
    assert_eq!((place.down(1), place.streams.tunnels()), (None, 1));
    place.until("it is closed", |place| place.edges[0].is_down);
    place.edges[1].send(3, Kind::Data, b"other");
    place.edges[1].send(3, Kind::Remove, b"");
    assert_eq!(place.all(&mut other), b"other");
}

#[test]
fn a_hostile_edge_changes_nothing_for_others() {
    let mut place = Place::new(2);
    let mut client = place.asks_log(2);
    place.opened(2);
    for id in 0..2_000 {
        place.edges[0].send(id, Kind::Remove, b"");
        place.edges[0].send(u64::MAX - id, Kind::Data, b"x");
    }
    for kind in [Kind::Logs, Kind::Exec, Kind::Attach, Kind::Metrics, Kind::Unknown(99)] {
        place.edges[0].send(1, kind, b"{}");
    }
    place.edges[0].send(0, Kind::Close, b"");
    place.edges[0].send(9, Kind::Data, &vec![b'x'; TUNNEL_DATA_BYTES_MAX]);
    place.turns(50);
    assert_eq!(place.down(1), None, "it may say that");
    assert_eq!(place.edges[0].got, [], "and gets no answer");
    place.edges[1].send(1, Kind::Data, b"all is well");
    place.edges[1].send(1, Kind::Remove, b"");
    assert_eq!(place.all(&mut client), b"all is well");
}

#[test]
fn what_cannot_be_read_ends_its_tunnel() {
    for (message, why) in [
        (vec![], "ends early, expected an id"),
        (vec![0x80; 11], "expected an id of 64 bits"),
        (vec![1], "ends early, expected a kind"),
        ([&[1, 3][..], &vec![0; TUNNEL_DATA_BYTES_MAX + 1]].concat(), "bytes of data"),
        (vec![0; TUNNEL_DATA_BYTES_MAX + 21], "at most"),
    ] {
        let mut place = Place::new(1);
        let mut client = place.asks_log(1);
        place.opened(1);
        place.edges[0].socket.send(&message).expect("there is room");
        place.until("it ends", |place| place.down(1).is_some());
        assert!(place.down(1).is_some_and(|got| got.contains(why)), "{:?}", place.down(1));
        let all = text(&place.all(&mut client));
        assert!(all.starts_with("HTTP/1.1 503 "), "{all}");
    }
}

#[test]
fn a_silent_node_is_closed_and_one_that_pings_is_not() {
    let mut place = Place::new(2);
    place.pass_ms(CLOUD_TUNNEL_SILENT_MS - 1);
    assert_eq!((place.down(1), place.down(2)), (None, None));
    place.edges[1].socket.ping().expect("there is room");
    place.turns(5);
    place.until("the ping is answered", |place| place.edges[1].socket.take_received());
    place.pass_ms(1);
    place.until("the silent one is closed", |place| place.down(1).is_some());
    place.pass_ms(CLOUD_TUNNEL_SILENT_MS - 2);
    assert_eq!(place.down(2), None);
    place.pass_ms(2);
    assert!(place.down(2).is_some(), "it was silent since");
    assert_eq!(place.streams.tunnels(), 0);
}

/// A node sends so much for a client that it is full. Returns its id.
fn fill(place: &mut Place, id: u64) {
    for _ in 0..64 {
        place.edges[0].send(id, Kind::Data, &[b'x'; 16 << 10]);
    }
    place.until("the client is full", |place| {
        place.turns(3);
        !place.streams.held.is_empty()
    });
    let request = place.streams.requests.iter().flatten().find(|it| it.id == id);
    let unsent = request.expect("it is there").unsent();
    assert!(unsent >= CLOUD_STREAM_UNSENT_BYTES_MAX, "{unsent}");
    assert!(
        unsent < CLOUD_STREAM_UNSENT_BYTES_MAX + (512 << 10),
        "and what a turn brings: {unsent}"
    );
}

#[test]
fn a_slow_client_holds_up_its_node_for_seconds_and_then_ends() {
    let mut place = Place::new(1);
    let mut slow = place.asks_log(1);
    place.opened(1);
    let mut quick = place.asks_log(1);
    place.opened(1);
    fill(&mut place, 1);
    place.edges[0].send(2, Kind::Data, b"after it");
    place.edges[0].send(2, Kind::Remove, b"");
    place.pass_ms(CLOUD_STREAM_SLOW_MS - 1);
    let mut all = Vec::new();
    assert!(!take(&mut quick, &mut all) && all.is_empty(), "it waits");
    place.pass_ms(1);
    assert_eq!(place.all(&mut quick), b"after it");
    place.until("the node is told", |place| place.edges[0].removes() == 1);
    let mut rest = Vec::new();
    place.until("the slow one is cut", |_| take(&mut slow, &mut rest));
    assert!(rest.len() < 64 * (16 << 10), "{}", rest.len());
}

#[test]
fn a_client_that_takes_enough_stays_however_much_there_is() {
    let mut place = Place::new(1);
    let mut client = place.asks_log(1);
    place.opened(1);
    fill(&mut place, 1);
    // What a socket holds was taken before it was full.
    let mut all = Vec::new();
    for _ in 0..20 {
        let before = all.len();
        let mut buffer = [0; 16 << 10];
        while all.len() - before < 2 * CLOUD_STREAM_UNSENT_BYTES_MAX {
            match client.read(&mut buffer) {
                Ok(0) => panic!("it was cut after {}", all.len()),
                Ok(count) => all.extend_from_slice(&buffer[..count]),
                Err(_) => break,
            }
            place.turn();
        }
        place.pass_ms(CLOUD_STREAM_SLOW_MS - 1);
        for _ in 0..16 {
            place.edges[0].send(1, Kind::Data, &[b'x'; 16 << 10]);
        }
    }
    place.edges[0].send(1, Kind::Remove, b"");
    place.until("all of it came", |_| take(&mut client, &mut all));
    assert_eq!(all.len(), (64 + 20 * 16) * (16 << 10));
}

#[test]
fn a_node_that_does_not_read_stops_its_clients_and_is_closed() {
    let mut place = Place::new(1);
    let mut client = place.asks_exec(1);
    place.opened(1);
    place.edges[0].is_stuck = true;
    let (piece, mut sent, mut refused) = ([b'x'; 16 << 10], 0, 0);
    while refused < 50 {
        match client.write(&piece) {
            Ok(count) => (sent, refused) = (sent + count, 0),
            Err(_) => refused += 1,
        }
        place.turn();
        let tunnel = place.streams.tunnels[0].as_ref().expect("it stands");
        assert_eq!(tunnel.name, place.edges[0].name);
        let most = CLOUD_TUNNEL_UNSENT_BYTES_MAX;
        assert!(tunnel.room() > 0 || sent > most, "{sent}");
    }
    let tunnel = place.streams.tunnels[0].as_ref().expect("it stands");
    assert_eq!(tunnel.room(), 0, "its clients are not read");
    let mut next = place.asks_log(1);
    let all = text(&place.all(&mut next));
    assert!(all.ends_with("node 1 does not read what it is sent: try again"), "{all}");
    place.pass_ms(EDGE_STALL_MS);
    place.until("it is closed", |place| place.down(1).is_some());
    assert_eq!(place.down(1), Some("it did not read for 30 s"));
}

#[test]
fn clients_without_an_upgrade_send_nothing_to_a_node() {
    let mut place = Place::new(1);
    let mut client = place.asks_log(1);
    let id = place.opened(1);
    client.write_all(b"more").expect("there is room");
    place.turns(5);
    place.edges[0].send(id, Kind::Data, b"HTTP/1.1 200 OK\r\n\r\n");
    place.edges[0].send(id, Kind::Remove, b"");
    assert_eq!(place.all(&mut client), b"HTTP/1.1 200 OK\r\n\r\n");
    assert_eq!(place.edges[0].got.len(), 1, "only the request");
}

#[test]
fn what_follows_the_head_of_an_upgrade_goes_first() {
    let mut place = Place::new(1);
    let headers = [("connection", "Upgrade"), ("upgrade", "SPDY/3.1")];
    let exec = call("POST", "/exec/default/p/c", "command=sh&output=1", &headers);
    let first = vec![b'x'; CLOUD_STREAM_PIECE_BYTES + 1];
    let mut client = place.asks(1, exec, &first);
    client.write_all(b"second").expect("there is room");
    place.until("all of it came", |place| {
        let datas = place.edges[0].got.iter().filter(|(_, kind, _)| *kind == Kind::Data);
        let all: Vec<u8> = datas.flat_map(|(_, _, data)| data.clone()).collect();
        all == [&first[..], b"second"].concat()
    });
    let sizes: Vec<usize> = place.edges[0].got[1..].iter().map(|(.., data)| data.len()).collect();
    assert_eq!(sizes[..2], [CLOUD_STREAM_PIECE_BYTES, 1]);
}

#[test]
fn a_refusal_is_a_whole_answer_and_costs_the_node_nothing() {
    let mut place = Place::new(1);
    let mut client = place.asks(1, call("GET", "/nodes/1/pods", "", &[]), b"");
    let all = text(&place.all(&mut client));
    assert!(all.starts_with("HTTP/1.1 404 Not Found\r\n"), "{all}");
    assert_eq!(place.edges[0].got, []);
    let mut client = place.asks_log(7);
    let all = text(&place.all(&mut client));
    assert!(all.ends_with("node 7 has a stream tunnel that has just ended: try again"), "{all}");
}

/// kube-apiserver, over TLS, which sends this request.
fn api_server(place: &mut Place, node: Option<u64>, call: Call, rest: &[u8]) -> Tls {
    let (near, far) = loopback::pair();
    let client = Client::ApiServer(Box::new(far));
    let asked = Asked { client, call, rest: rest.to_vec() };
    let find = |_: &Target| match node {
        Some(node) => Ok((node.to_string().into_boxed_str(), Name(node))),
        None => Err(Refusal::new(RefusalKind::Unavailable, "node 1 is away")),
    };
    place.streams.serve(asked, &find, place.now, place.poll.registry());
    near
}

/// Everything that it gets up to the end, and whether the end was said.
fn all_of(place: &mut Place, client: &mut Tls) -> Vec<u8> {
    let mut all = Vec::new();
    place.until("the connection ends", |_| {
        client.begin_turn();
        let mut buffer = [0; 8 << 10];
        loop {
            match client.read(&mut buffer) {
                Ok(0) => return true,
                Ok(count) => all.extend_from_slice(&buffer[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return false,
                Err(error) => panic!("after {} bytes: {error}", all.len()),
            }
        }
    });
    all
}

#[test]
fn kube_apiserver_is_served_over_tls_both_ways() {
    let mut place = Place::new(1);
    let headers = [("connection", "Upgrade"), ("upgrade", "SPDY/3.1")];
    let exec = call("POST", "/exec/default/p/c", "command=sh&output=1", &headers);
    let mut client = api_server(&mut place, Some(1), exec, b"first");
    let id = place.opened(1);
    let sent = vec![b'x'; 3 * CLOUD_TUNNEL_UNSENT_BYTES_MAX];
    let mut count = 0;
    place.until("the node has all bytes of the client", |place| {
        count += client.write(&sent[count..]).unwrap_or(0);
        let _ = client.push_all();
        let data = |(_, kind, data): &Got| if *kind == Kind::Data { data.len() } else { 0 };
        place.edges[0].got.iter().map(data).sum::<usize>() == sent.len() + 5
    });
    let answer = vec![b'y'; 5 * CLOUD_STREAM_UNSENT_BYTES_MAX];
    for piece in answer.chunks(8 << 10) {
        place.edges[0].send(id, Kind::Data, piece);
    }
    place.edges[0].send(id, Kind::Remove, b"");
    assert_eq!(all_of(&mut place, &mut client), answer, "all of it, and its end");
    drop(client);
    place.until("it is over", |place| place.streams.requests() == 0);
}

#[test]
fn kube_apiserver_is_told_in_its_own_form_why_there_is_nothing() {
    for (path, status, text) in [
        ("/containerLogs/default/p/c", "500 Internal Server Error", "node 1 is away"),
        ("/pods", "503 Service Unavailable", "\"message\":\"node 1 is away\""),
        ("/nothing", "404 Not Found", "\"message\":\"got /nothing, expected "),
    ] {
        let mut place = Place::new(0);
        let call = call("GET", path, "", &[("host", "192.0.2.1:10351")]);
        let mut client = api_server(&mut place, None, call, b"");
        let answer = String::from_utf8(all_of(&mut place, &mut client)).expect("text");
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}\r\n")), "{path}: {answer}");
        assert!(answer.contains(text), "{path}: {answer}");
    }
}

#[test]
fn a_kube_apiserver_that_takes_nothing_is_left_and_the_node_is_told() {
    let mut place = Place::new(1);
    let log = call("GET", "/containerLogs/default/p/c", "", &[]);
    let _client = api_server(&mut place, Some(1), log, b"");
    let id = place.opened(1);
    let piece = vec![b'y'; 16 << 10];
    for _ in 0..1_000 {
        if place.streams.requests[0].as_ref().is_some_and(|request| request.is_full()) {
            break;
        }
        place.edges[0].send(id, Kind::Data, &piece);
        place.turns(2);
    }
    place.pass_ms(CLOUD_STREAM_SLOW_MS);
    place.pass_ms(1);
    place.until("the node is told", |place| place.edges[0].removes() == 1);
}
