//! Requests that come through the tunnel, with the cloud's end of it.

use super::*;
use crate::io::tls::loopback;
use crate::io::websocket::{Bounds, Received, Role, Websocket};
use crate::limits::{
    TUNNEL_ANSWERS_BYTES_MAX, TUNNEL_BLOCKED_BYTES, TUNNEL_BLOCKED_MS, TUNNEL_DATA_BYTES_MAX,
    TUNNEL_INPUT_BYTES_MAX, TUNNEL_PIECE_BYTES, TUNNEL_SILENT_MS, TUNNEL_STREAMS_MAX,
    TUNNEL_UNSENT_BYTES_MAX,
};
use crate::wire::tunnel::{Connect, Kind, Message};

/// The cloud's end of the tunnel.
struct Far {
    socket: Websocket,
    /// Id, kind and data of what has come.
    came: Vec<(u64, Kind, Vec<u8>)>,
}

impl Far {
    fn send(&mut self, id: u64, kind: Kind, data: &[u8]) {
        let mut bytes = Vec::new();
        Message { id, kind, data }.encode(&mut bytes);
        self.socket.send(&bytes).expect("there is room");
        self.socket.write(Instant(0)).expect("it stands");
    }

    fn asks(&mut self, id: u64, kind: Kind, method: &str, path: &str, query: &str) {
        let connect = Connect {
            id,
            method: method.to_owned(),
            path: path.to_owned(),
            raw_path: path.to_owned(),
            query: query.to_owned(),
            headers: vec![
                ("Upgrade".to_owned(), "SPDY/3.1".to_owned()),
                ("Accept-Encoding".to_owned(), "gzip".to_owned()),
            ],
        };
        self.send(id, kind, &connect.encode(kind));
    }

    fn read(&mut self) {
        self.socket.write(Instant(0)).expect("it stands");
        let came = &mut self.came;
        let read = self.socket.read(&mut |received| match received {
            Received::Message(bytes) => {
                let message = Message::decode(&bytes).expect("a message");
                came.push((message.id, message.kind, message.data.to_vec()));
            }
            Received::TooLarge(size) => panic!("{size} bytes"),
        });
        read.expect("it stands");
    }

    /// The data of one request, and how often its end was told.
    fn of(&self, id: u64) -> (String, usize) {
        let mine = || self.came.iter().filter(move |(of, ..)| *of == id);
        let data: Vec<u8> = mine()
            .filter(|(_, kind, _)| *kind == Kind::Data)
            .flat_map(|(_, _, data)| data.iter().copied())
            .collect();
        let ends = mine().filter(|(_, kind, _)| *kind == Kind::Remove).count();
        (String::from_utf8(data).expect("text"), ends)
    }
}

fn connected(name: &str) -> (Place, Far) {
    let mut place = Place::new(name);
    let (near, far) = loopback::narrow_pair();
    place.streams.tunnel.stands(near);
    let bounds = Bounds { message_bytes_max: 1 << 21, out_bytes_max: 8 << 20 };
    let socket = Websocket::new(far, Vec::new(), Role::Server, bounds);
    (place, Far { socket, came: Vec::new() })
}

fn turns(place: &mut Place, far: &mut Far, count: usize) {
    for _ in 0..count {
        place.turn();
        far.read();
    }
}

#[test]
fn a_log_goes_through_in_pieces_and_ends_once() {
    let (mut place, mut far) = connected("tunnel-log");
    fs::write(place.log(), LINE.repeat(5_000)).expect("written");
    far.asks(300, Kind::Logs, "GET", "/containerLogs/default/p/c", "");
    turns(&mut place, &mut far, 3);
    assert!(matches!(place.events.as_slice(), [.., Event::StreamOpened(..)]));
    place.answers(StreamAnswer::Logs { file: file(), running: false });
    turns(&mut place, &mut far, 100);
    let (text, ends) = far.of(300);
    assert_eq!((text, ends), (TEXT.repeat(5_000), 1), "no head, no chunks");
    let largest = far.came.iter().map(|(_, _, data)| data.len()).max();
    assert_eq!(largest, Some(TUNNEL_PIECE_BYTES));
    assert!(place.closed());
}

#[test]
fn a_followed_log_that_the_cloud_ends_wakes_nobody_any_more() {
    let (mut place, mut far) = connected("tunnel-follow");
    fs::write(place.log(), LINE).expect("written");
    far.asks(1, Kind::Logs, "GET", "/containerLogs/default/p/c", "follow=true");
    turns(&mut place, &mut far, 3);
    place.answers(StreamAnswer::Logs { file: file(), running: true });
    turns(&mut place, &mut far, 3);
    fs::write(place.log(), LINE.repeat(2)).expect("written");
    turns(&mut place, &mut far, 3);
    assert_eq!(place.streams.wake_at(), Some(place.now.plus_ms(LOG_REST_MS)));
    far.send(1, Kind::Remove, b"");
    turns(&mut place, &mut far, 3);
    assert!(place.closed());
    assert_eq!(place.streams.wake_at(), None);
    assert_eq!(place.streams.buffer.len(), 0, "nothing is kept for nobody");
}

#[test]
fn a_refusal_of_a_log_is_a_line_and_of_a_command_an_http_answer() {
    let (mut place, mut far) = connected("tunnel-refusal");
    far.asks(1, Kind::Logs, "GET", "/containerLogs/default/p/c", "tailLines=x");
    far.asks(2, Kind::Exec, "POST", "/exec/default/p/c", "command=ls");
    far.asks(3, Kind::Logs, "GET", "/containerLogs/default/p/c", "");
    turns(&mut place, &mut far, 3);
    let text = "container \"c\" in pod \"p\" is not available";
    place.answers(StreamAnswer::Refused(Refusal::new(RefusalKind::BadRequest, text)));
    turns(&mut place, &mut far, 3);
    let undecodable = "edged: {\"message\": \"Unable to decode query.\"}\n";
    assert_eq!(far.of(1), (undecodable.to_owned(), 1));
    let (answer, ends) = far.of(2);
    assert!(answer.starts_with("HTTP/1.1 400 Bad Request\r\n"), "{answer}");
    assert!(answer.ends_with("you must specify at least 1 of stdin, stdout, stderr"));
    assert_eq!(ends, 1);
    assert_eq!(far.of(3), (format!("edged: {text}\n"), 1));
}

#[test]
fn other_paths_of_the_api_are_answered() {
    let (mut place, mut far) = connected("tunnel-api");
    far.asks(1, Kind::Metrics, "GET", "/healthz", "");
    far.asks(2, Kind::Exec, "GET", "/healthz", "");
    turns(&mut place, &mut far, 3);
    assert_eq!(far.of(1), ("ok\n".to_owned(), 1));
    let (answer, ends) = far.of(2);
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("\r\n\r\nok\n"));
    assert_eq!(ends, 1);
}

#[test]
fn a_large_answer_of_the_api_waits_for_room_in_the_tunnel() {
    let (mut place, mut far) = connected("tunnel-large");
    far.asks(1, Kind::Metrics, "GET", "/pods", "");
    turns(&mut place, &mut far, 3);
    let unsent = place.streams.tunnel.unsent();
    assert!(unsent <= TUNNEL_UNSENT_BYTES_MAX + TUNNEL_PIECE_BYTES, "{unsent}");
    turns(&mut place, &mut far, 100);
    let (text, ends) = far.of(1);
    assert_eq!((text.len(), ends), ((1 << 20) + 1, 1));
    assert!(place.streams.tunnel.is_up());
}

#[test]
fn a_flood_of_removes_is_answered_once() {
    let (mut place, mut far) = connected("tunnel-flood");
    far.send(7, Kind::Remove, b"");
    far.asks(1, Kind::Exec, "POST", "/exec/default/p/c", "command=ls&output=1");
    for _ in 0..648 {
        far.send(1, Kind::Remove, b"");
    }
    far.send(1, Kind::Data, b"late");
    far.send(9, Kind::Unknown(17), b"of a later version");
    turns(&mut place, &mut far, 50);
    assert_eq!((far.of(1), far.of(7)), ((String::new(), 1), (String::new(), 0)));
    assert!(place.closed() && place.streams.tunnel.is_up());
}

#[test]
fn a_request_with_a_number_in_use_ends_the_older_one() {
    let (mut place, mut far) = connected("tunnel-twice");
    for _ in 0..2 {
        far.asks(1, Kind::Exec, "POST", "/exec/default/p/c", "command=ls&output=1");
        turns(&mut place, &mut far, 2);
    }
    let opened = |event: &&Event| matches!(event, Event::StreamOpened(..));
    assert_eq!(place.events.iter().filter(opened).count(), 2);
    assert!(place.closed());
    assert_eq!(place.streams.slots.iter().flatten().count(), 1);
}

#[test]
fn a_request_that_cannot_be_read_is_ended() {
    let (mut place, mut far) = connected("tunnel-bad");
    far.send(4, Kind::Exec, b"{not json");
    far.send(5, Kind::Exec, b"{}");
    turns(&mut place, &mut far, 3);
    assert_eq!(far.of(4), (String::new(), 1));
    let (answer, ends) = far.of(5);
    assert!(answer.starts_with("HTTP/1.1 404 Not Found\r\n") && ends == 1, "{answer}");
}

#[test]
fn a_command_is_relayed_and_what_came_early_is_kept() {
    let (mut place, mut far) = connected("tunnel-exec");
    let server = TcpListener::bind("127.0.0.1:0").expect("a port");
    far.asks(1, Kind::Exec, "POST", "/exec/default/p/c", "command=cat&input=1");
    far.send(1, Kind::Data, b"early ");
    turns(&mut place, &mut far, 3);
    let url = format!("http://{}/exec/token", server.local_addr().expect("bound"));
    place.answers(StreamAnswer::Relay(url.into()));
    far.send(1, Kind::Data, b"late");
    turns(&mut place, &mut far, 3);
    let (mut runtime, _) = server.accept().expect("it connects");
    let mut came = vec![0; 4_096];
    let count = runtime.read(&mut came).expect("the request");
    let request = String::from_utf8_lossy(&came[..count]).into_owned();
    assert!(request.ends_with("Upgrade: SPDY/3.1\r\n\r\nearly late"), "{request}");
    assert!(!request.contains("gzip"), "{request}");
    runtime.write_all(b"HTTP/1.1 101 Switching Protocols\r\n\r\nout").expect("written");
    drop(runtime);
    turns(&mut place, &mut far, 10);
    let answer = "HTTP/1.1 101 Switching Protocols\r\n\r\nout".to_owned();
    assert_eq!(far.of(1), (answer, 1));
}

#[test]
fn a_runtime_that_takes_nothing_ends_its_own_request_only() {
    let (mut place, mut far) = connected("tunnel-stuck");
    far.asks(1, Kind::Exec, "POST", "/exec/default/p/c", "command=cat&input=1");
    far.asks(2, Kind::Exec, "POST", "/exec/default/p/c", "command=ls&output=1");
    for _ in 0..TUNNEL_INPUT_BYTES_MAX / TUNNEL_PIECE_BYTES + 2 {
        far.send(1, Kind::Data, &[b'x'; TUNNEL_PIECE_BYTES]);
    }
    turns(&mut place, &mut far, 50);
    assert!(place.session().unread() < 2 * TUNNEL_INPUT_BYTES_MAX, "the rest waits");
    assert_eq!(far.of(1).1, 0);
    assert_eq!(place.streams.wake_at(), Some(place.now.plus_ms(TUNNEL_BLOCKED_MS)));
    place.now = place.now.plus_ms(TUNNEL_BLOCKED_MS);
    turns(&mut place, &mut far, 10);
    assert_eq!((far.of(1).1, far.of(2).1), (1, 0));
    far.asks(3, Kind::Metrics, "GET", "/healthz", "");
    turns(&mut place, &mut far, 5);
    assert_eq!(far.of(3).1, 1, "the tunnel is read again");
}

#[test]
fn what_a_request_sends_is_taken_as_fast_as_its_runtime_takes_it() {
    let (mut place, mut far) = connected("tunnel-upload");
    let server = TcpListener::bind("127.0.0.1:0").expect("a port");
    far.asks(1, Kind::Exec, "POST", "/exec/default/p/c", "command=cat&input=1");
    turns(&mut place, &mut far, 3);
    let url = format!("http://{}/token", server.local_addr().expect("bound"));
    place.answers(StreamAnswer::Relay(url.into()));
    turns(&mut place, &mut far, 3);
    let (mut runtime, _) = server.accept().expect("it connects");
    runtime.set_nonblocking(true).expect("set");
    let pieces = 64 * TUNNEL_INPUT_BYTES_MAX / TUNNEL_PIECE_BYTES;
    let (mut sent, mut came, mut buffer) = (0, 0, vec![0; 64 << 10]);
    let (mut blocked, mut free, mut was_blocked) = (0, 0, false);
    while came < pieces * TUNNEL_PIECE_BYTES + 60 {
        while sent < pieces && far.socket.unsent_bytes() < 1 << 20 {
            far.send(1, Kind::Data, &[b'x'; TUNNEL_PIECE_BYTES]);
            sent += 1;
        }
        turns(&mut place, &mut far, 1);
        let is_blocked = place.session().blocks_tunnel();
        if is_blocked || sent == pieces {
            // Only now the runtime takes something.
            while let Ok(count) = runtime.read(&mut buffer) {
                came += count;
            }
        } else if was_blocked {
            free += 1;
            assert_eq!(place.streams.wake_at(), Some(Instant(0)), "the rest is read at once");
        }
        blocked += usize::from(is_blocked);
        was_blocked = is_blocked;
    }
    assert!(blocked > 1 && free > 1, "{blocked} {free}");
    let head = came - pieces * TUNNEL_PIECE_BYTES;
    assert!(head < 200, "no byte twice: {head}");
    assert_eq!(far.of(1).1, 0, "it goes on");
}

/// How many seconds a request lasts whose runtime takes so many bytes each second.
fn lasts_s(name: &str, bytes_per_s: usize) -> usize {
    let (mut place, mut far) = connected(name);
    let server = TcpListener::bind("127.0.0.1:0").expect("a port");
    setsockopt(&server, sockopt::RcvBuf, &(8 << 10)).expect("set");
    far.asks(1, Kind::Exec, "POST", "/exec/default/p/c", "command=cat&input=1");
    turns(&mut place, &mut far, 3);
    let url = format!("http://{}/token", server.local_addr().expect("bound"));
    place.answers(StreamAnswer::Relay(url.into()));
    turns(&mut place, &mut far, 3);
    let (mut runtime, _) = server.accept().expect("it connects");
    runtime.set_nonblocking(true).expect("set");
    let mut buffer = vec![0; 64 << 10];
    for second in 0..30 {
        while far.socket.unsent_bytes() < 1 << 20 {
            far.send(1, Kind::Data, &[b'x'; TUNNEL_PIECE_BYTES]);
        }
        let mut left = bytes_per_s;
        for _ in 0..8 {
            if let Ok(count) = runtime.read(&mut buffer[..left.min(64 << 10)]) {
                left -= count;
            }
            turns(&mut place, &mut far, 1);
            if far.of(1).1 > 0 {
                return second;
            }
        }
        place.now = place.now.plus_ms(1_000);
    }
    30
}

#[test]
fn a_runtime_that_takes_little_is_waited_for_and_one_that_takes_next_to_nothing_is_not() {
    assert_eq!(lasts_s("tunnel-little", TUNNEL_BLOCKED_BYTES), 30);
    let lasts_s = lasts_s("tunnel-next-to-nothing", 1_024);
    assert!(lasts_s <= 11, "{lasts_s} s");
}

#[test]
fn some_places_are_kept_from_the_cloud() {
    let (mut place, mut far) = connected("tunnel-places");
    let ask = |far: &mut Far, id: usize| {
        far.asks(id as u64, Kind::Exec, "POST", "/exec/default/p/c", "command=ls&output=1");
    };
    // It accepts connections and says nothing.
    let server = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}/token", server.local_addr().expect("bound"));
    for id in 1..=TUNNEL_STREAMS_MAX {
        place.now = place.now.plus_ms(1);
        ask(&mut far, id);
        while place.streams.slots.iter().flatten().count() < id {
            turns(&mut place, &mut far, 1);
        }
        place.answers(StreamAnswer::Relay(url.as_str().into()));
    }
    ask(&mut far, TUNNEL_STREAMS_MAX + 1);
    turns(&mut place, &mut far, 3);
    let (answer, ends) = far.of(TUNNEL_STREAMS_MAX as u64 + 1);
    assert!(answer.starts_with("HTTP/1.1 429 Too Many Requests\r\n"), "{answer}");
    assert_eq!(ends, 1);
    let opened = |place: &Place| {
        let is = |event: &&Event| matches!(event, Event::StreamOpened(..));
        place.events.iter().filter(is).count()
    };
    let _client = place.opens_log(LogOptions::default());
    assert_eq!(opened(&place), TUNNEL_STREAMS_MAX + 1, "people at the gateway have a place");
    // The first goes on to send, the second is silent for longest.
    place.now = place.now.plus_ms(1);
    far.send(1, Kind::Data, b"more");
    turns(&mut place, &mut far, 2);
    // The second was asked for at 1,002 ms.
    place.now = Instant(1_002 + TUNNEL_SILENT_MS - 1);
    ask(&mut far, 900);
    turns(&mut place, &mut far, 3);
    assert_eq!((far.of(900).1, far.of(2).1), (1, 0), "not before its time");
    place.now = place.now.plus_ms(1);
    ask(&mut far, 901);
    turns(&mut place, &mut far, 3);
    assert_eq!((far.of(1).1, far.of(2).1, far.of(3).1, far.of(901).1), (0, 1, 0, 0));
}

#[test]
fn answers_of_the_api_wait_for_each_other() {
    let (mut place, mut far) = connected("tunnel-answers");
    for id in 1..=20 {
        far.asks(id, Kind::Metrics, "GET", "/pods", "");
    }
    place.turns(100);
    let sessions = || place.streams.slots.iter().flatten();
    let unsent: usize = sessions().map(|session| session.unsent()).sum();
    assert!(unsent < TUNNEL_ANSWERS_BYTES_MAX + (1 << 20) + 1_024, "{unsent}");
    while !place.streams.slots.iter().all(Option::is_none) {
        turns(&mut place, &mut far, 1);
    }
    turns(&mut place, &mut far, 5);
    for id in 1..=20 {
        let (text, ends) = far.of(id);
        assert_eq!((text.len(), ends), ((1 << 20) + 1, 1), "{id}");
    }
}

#[test]
fn bytes_that_are_lost_end_the_tunnel() {
    let (mut place, mut far) = connected("tunnel-huge");
    far.asks(1, Kind::Exec, "POST", "/exec/default/p/c", "command=cat&input=1");
    turns(&mut place, &mut far, 3);
    far.send(1, Kind::Data, &vec![0; TUNNEL_DATA_BYTES_MAX + 100]);
    for _ in 0..200 {
        let _ = far.socket.write(Instant(0));
        place.turn();
    }
    assert!(place.closed() && !place.streams.tunnel.is_up());
    let why = place.events.iter().find_map(|event| match event {
        Event::TunnelDown(_, cause) => Some(cause.to_string()),
        _ => None,
    });
    let why = why.expect("it is down");
    assert!(why.contains("expected 1048576 at most"), "{why}");
}

#[test]
fn a_cloud_that_reads_nothing_costs_a_bounded_amount() {
    let (mut place, mut far) = connected("tunnel-slow");
    fs::write(place.log(), LINE.repeat(200_000)).expect("written");
    far.asks(1, Kind::Logs, "GET", "/containerLogs/default/p/c", "");
    place.turns(3);
    place.answers(StreamAnswer::Logs { file: file(), running: false });
    place.turns(300);
    let unsent = place.streams.tunnel.unsent();
    assert!(unsent > 0 && unsent <= TUNNEL_UNSENT_BYTES_MAX + TUNNEL_PIECE_BYTES, "{unsent}");
    assert!(place.session().unsent() <= LOG_TURN_BYTES);
}

#[test]
fn with_the_tunnel_its_requests_end() {
    let (mut place, mut far) = connected("tunnel-lost");
    far.asks(1, Kind::Exec, "POST", "/exec/default/p/c", "command=ls&output=1");
    turns(&mut place, &mut far, 2);
    far.send(0, Kind::Close, b"failed to Update KubeletEndpoint Port");
    place.turns(3);
    assert!(place.closed());
    let down = place.events.iter().find_map(|event| match event {
        Event::TunnelDown(_, cause) => Some(cause.to_string()),
        _ => None,
    });
    assert!(down.expect("it is down").contains("failed to Update KubeletEndpoint Port"));
}
