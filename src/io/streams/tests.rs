//! Sessions over real sockets and files, with the time as an argument.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::PathBuf;
use std::time::Duration;

use mio::net::UnixStream;
use mio::{Events, Poll};

use super::*;
use crate::agent::time::Wall;
use crate::limits::{
    LOG_REST_MS, STREAM_ANSWER_MS, STREAM_INPUT_BYTES_MAX, STREAM_STALL_MS, STREAM_TURN_BYTES,
    STREAM_UNSENT_BYTES_MAX,
};
use crate::model::cri::Pipes;
use crate::model::job::LogDir;
use crate::model::stream::{LogOptions, PodName, StreamRequest};
use crate::wire::http1::Status;
use crate::wire::kubelet::Form;

struct Place {
    poll: Poll,
    streams: Streams,
    events: Vec<Event>,
    now: Instant,
    dir: PathBuf,
}

impl Drop for Place {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.dir).expect("it is ours");
    }
}

const LINE: &str = "2026-11-25T10:00:00.5Z stdout F 0123456789012345678901234567890123456789\n";
const TEXT: &str = "0123456789012345678901234567890123456789\n";

fn pod_name() -> PodName {
    PodName { namespace: "default".into(), name: "p".into(), uid: None }
}

fn file() -> LogFile {
    let pod = LogDir { namespace: "default".into(), name: "p".into(), uid: "u".into() };
    LogFile { pod, container: "c".into(), attempt: 0 }
}

impl Place {
    fn new(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("edged-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(dir.join("default_p_u/c")).expect("a folder");
        Self {
            poll: Poll::new().expect("epoll"),
            streams: Streams::new(Token(100), dir.clone(), "gw".to_owned()),
            events: Vec::new(),
            now: Instant(1_000),
            dir,
        }
    }

    fn log(&self) -> PathBuf {
        self.dir.join("default_p_u/c/0.log")
    }

    fn opens(&mut self, request: StreamRequest, form: Form, input: &[u8]) -> UnixStream {
        let (near, far) = UnixStream::pair().expect("a pair");
        let opening = Opening {
            request,
            form,
            method: "POST".to_owned(),
            headers: vec![("Upgrade".to_owned(), "SPDY/3.1".to_owned())],
            input: input.to_vec(),
        };
        let handover = Handover { stream: Stream::Socket(near), opening };
        self.streams.serve(handover, self.now, self.poll.registry(), &mut self.events);
        far
    }

    fn opens_log(&mut self, options: LogOptions) -> UnixStream {
        let request = StreamRequest::Logs { pod: pod_name(), container: "c".into(), options };
        self.opens(request, Form::Text, b"")
    }

    fn opens_exec(&mut self, input: &[u8]) -> UnixStream {
        let pipes = Pipes { stdin: true, ..Pipes::default() };
        let (container, command) = ("c".into(), Vec::new());
        let request = StreamRequest::Exec { pod: pod_name(), container, command, pipes };
        self.opens(request, Form::Relayed, input)
    }

    fn answers(&mut self, answer: StreamAnswer) {
        let now = Now { boot: self.now, wall: Some(Wall(1_800_000_000_000)) };
        let id = StreamId(self.streams.last_id);
        self.streams.answer(id, answer, now, self.poll.registry());
    }

    /// One turn of the loop.
    fn turn(&mut self) {
        #[cfg(feature = "cloud")]
        self.streams.tunnel.ready(tunnel_token(Token(100)));
        let mut ready = Events::with_capacity(64);
        self.poll.poll(&mut ready, Some(Duration::from_millis(5))).expect("epoll");
        for ready in &ready {
            self.streams.ready(ready);
        }
        let now = Now { boot: self.now, wall: None };
        let api = |path: &str| match path {
            "/healthz" => Response::text(Status::Ok, "ok"),
            "/pods" => Response::text(Status::Ok, &"p".repeat(1 << 20)),
            other => Response::text(Status::NotFound, other),
        };
        self.streams.tick(now, self.poll.registry(), &api, &mut self.events);
    }

    fn turns(&mut self, count: usize) {
        for _ in 0..count {
            self.turn();
        }
    }

    /// Takes turns until the client's connection has ended, and returns what came.
    fn all(&mut self, client: &mut UnixStream) -> String {
        let mut all = Vec::new();
        for _ in 0..10_000 {
            self.turn();
            if take(client, &mut all) {
                return String::from_utf8(all).expect("text");
            }
        }
        panic!("no end after {} bytes", all.len());
    }

    fn closed(&self) -> bool {
        self.events.iter().any(|event| matches!(event, Event::StreamClosed(_)))
    }

    fn session(&self) -> &Session {
        self.streams.slots[0].as_ref().expect("it is open")
    }
}

/// Reads what is there; `true`: the end.
fn take(client: &mut UnixStream, all: &mut Vec<u8>) -> bool {
    let mut buffer = [0; 8 << 10];
    loop {
        match client.read(&mut buffer) {
            Ok(0) => return true,
            Ok(count) => all.extend_from_slice(&buffer[..count]),
            Err(_) => return false,
        }
    }
}

/// The text of a chunked answer.
fn unchunked(answer: &str) -> String {
    let (head, mut rest) = answer.split_once("\r\n\r\n").expect("a head");
    assert!(head.contains("Transfer-Encoding: chunked"), "{head}");
    let mut text = String::new();
    loop {
        let (length, after) = rest.split_once("\r\n").expect("a length");
        let length = usize::from_str_radix(length, 16).expect("a number");
        if length == 0 {
            assert_eq!(after, "\r\n", "nothing follows the last chunk");
            return text;
        }
        text.push_str(&after[..length]);
        rest = after[length..].strip_prefix("\r\n").expect("the end of a chunk");
    }
}

#[test]
fn a_log_is_shown_and_the_connection_closed() {
    let mut place = Place::new("log");
    fs::write(place.log(), LINE.repeat(50_000)).expect("written");
    let mut client = place.opens_log(LogOptions::default());
    place.answers(StreamAnswer::Logs { file: file(), running: false });
    let answer = place.all(&mut client);
    assert_eq!(unchunked(&answer), TEXT.repeat(50_000));
    drop(client);
    place.turns(2);
    assert!(place.closed());
}

#[test]
fn a_slow_client_costs_little_and_is_closed_after_a_time() {
    let mut place = Place::new("slow");
    fs::write(place.log(), LINE.repeat(50_000)).expect("written");
    let _client = place.opens_log(LogOptions::default());
    place.answers(StreamAnswer::Logs { file: file(), running: false });
    place.turns(200);
    // The buffer of a read, and the frames of the chunks.
    let most = STREAM_UNSENT_BYTES_MAX + LOG_TURN_BYTES + 1_024;
    let unsent = place.session().unsent();
    assert!((STREAM_UNSENT_BYTES_MAX..most).contains(&unsent), "{unsent}");
    place.now = place.now.plus_ms(STREAM_STALL_MS - 1);
    place.turn();
    assert!(!place.closed());
    place.now = place.now.plus_ms(1);
    place.turn();
    assert!(place.closed());
}

#[test]
fn one_turn_moves_a_bounded_amount() {
    let mut place = Place::new("turn");
    fs::write(place.log(), LINE.repeat(50_000)).expect("written");
    let mut client = place.opens_log(LogOptions::default());
    place.answers(StreamAnswer::Logs { file: file(), running: false });
    let mut most = 0;
    for _ in 0..100 {
        place.turn();
        let mut came = Vec::new();
        take(&mut client, &mut came);
        most = most.max(came.len());
    }
    assert!(most > LOG_TURN_BYTES / 4, "{most}");
    assert!(most <= STREAM_TURN_BYTES + STREAM_UNSENT_BYTES_MAX, "{most}");
}

#[test]
fn a_followed_log_grows_through_rotations_until_its_container_ends() {
    let mut place = Place::new("follow");
    fs::write(place.log(), LINE).expect("written");
    let options = LogOptions { follow: true, ..LogOptions::default() };
    let mut client = place.opens_log(options);
    place.answers(StreamAnswer::Logs { file: file(), running: true });
    place.turns(3);
    let append = |path: &PathBuf, text: &str| {
        let mut log = fs::OpenOptions::new().append(true).create(true).open(path).expect("a log");
        log.write_all(text.as_bytes()).expect("written");
    };
    append(&place.log(), LINE);
    place.turns(2);
    assert_eq!(place.streams.wake_at(), Some(place.now.plus_ms(LOG_REST_MS)), "not at once");
    place.now = place.now.plus_ms(LOG_REST_MS);
    place.turns(2);
    let mut came = Vec::new();
    take(&mut client, &mut came);
    let twice = String::from_utf8(came).expect("text");
    assert_eq!(twice.matches(TEXT).count(), 2, "{twice}");
    assert_eq!(place.streams.wake_at(), None, "it waits for a change");
    // The runtime still writes to the renamed file; then it opens the new one.
    let renamed = place.dir.join("default_p_u/c/0.log.20261125-100000");
    fs::rename(place.log(), &renamed).expect("renamed");
    append(&renamed, "2026-11-25T10:00:01Z stdout F last of the old\n");
    append(&place.log(), "2026-11-25T10:00:02Z stdout F first of the new\n");
    place.turns(2);
    place.now = place.now.plus_ms(LOG_REST_MS);
    place.turns(3);
    append(&place.log(), "2026-11-25T10:00:03Z stdout F at the end\n");
    place.answers(StreamAnswer::LogsEnd);
    let rest = place.all(&mut client);
    let lines: Vec<&str> = rest.lines().filter(|line| line.contains(" the ")).collect();
    assert_eq!(lines, ["last of the old", "first of the new", "at the end"]);
}

#[test]
fn a_log_that_is_not_there_is_refused() {
    let mut place = Place::new("none");
    let mut client = place.opens_log(LogOptions::default());
    place.answers(StreamAnswer::Logs { file: file(), running: true });
    let answer = place.all(&mut client);
    assert!(answer.starts_with("HTTP/1.1 400 Bad Request\r\n"), "{answer}");
    assert!(answer.contains("failed to try resolving symlinks in path"), "{answer}");
}

#[test]
fn a_link_in_place_of_a_log_is_not_followed() {
    let mut place = Place::new("link");
    std::os::unix::fs::symlink("/etc/passwd", place.log()).expect("a link");
    let mut client = place.opens_log(LogOptions::default());
    place.answers(StreamAnswer::Logs { file: file(), running: true });
    let answer = place.all(&mut client);
    assert!(answer.starts_with("HTTP/1.1 400") && !answer.contains("root:"), "{answer}");
}

#[test]
fn a_session_is_relayed_in_both_directions() {
    let mut place = Place::new("relay");
    let server = TcpListener::bind("127.0.0.1:0").expect("a port");
    let mut client = place.opens_exec(b"first ");
    place.turn();
    client.write_all(b"second").expect("written");
    place.turn();
    let url = format!("http://{}/exec/token", server.local_addr().expect("bound"));
    place.answers(StreamAnswer::Relay(url.into()));
    let (mut runtime, _) = server.accept().expect("it connects");
    place.turns(3);
    let mut came = vec![0; 4_096];
    let count = runtime.read(&mut came).expect("the request");
    let request = String::from_utf8_lossy(&came[..count]).into_owned();
    assert!(request.starts_with("POST /exec/token HTTP/1.1\r\nHost: 127.0.0.1:"), "{request}");
    assert!(request.ends_with("\r\nUpgrade: SPDY/3.1\r\n\r\nfirst second"), "{request}");
    runtime.write_all(b"HTTP/1.1 101 Switching Protocols\r\n\r\nbytes").expect("written");
    drop(runtime);
    let answer = place.all(&mut client);
    assert_eq!(answer, "HTTP/1.1 101 Switching Protocols\r\n\r\nbytes");
}

#[test]
fn what_a_client_sends_early_has_a_bound_and_arrives_whole() {
    let mut place = Place::new("early");
    let server = TcpListener::bind("127.0.0.1:0").expect("a port");
    let mut client = place.opens_exec(b"");
    let sent: Vec<u8> = (0..400_000_u32).flat_map(u32::to_le_bytes).collect();
    let mut rest = &sent[..];
    for _ in 0..50 {
        if let Ok(count) = client.write(rest) {
            rest = &rest[count..];
        }
        place.turn();
    }
    let kept = place.session().unread();
    assert!((STREAM_INPUT_BYTES_MAX..STREAM_INPUT_BYTES_MAX + LOG_TURN_BYTES).contains(&kept));
    let url = format!("http://{}/exec/token", server.local_addr().expect("bound"));
    place.answers(StreamAnswer::Relay(url.into()));
    let (mut runtime, _) = server.accept().expect("it connects");
    runtime.set_nonblocking(true).expect("set");
    let mut came = Vec::new();
    let mut buffer = vec![0; 64 << 10];
    while came.len() < sent.len() {
        if let Ok(count) = client.write(rest) {
            rest = &rest[count..];
        }
        place.turn();
        while let Ok(count) = runtime.read(&mut buffer) {
            came.extend_from_slice(&buffer[..count]);
            let end = came.windows(4).position(|four| four == b"\r\n\r\n");
            if let Some(at) = end.filter(|_| came.starts_with(b"POST")) {
                came.drain(..at + 4);
            }
        }
    }
    assert_eq!(came, sent);
}

#[test]
fn a_runtime_that_does_not_listen_is_an_answer() {
    let mut place = Place::new("deaf");
    let mut client = place.opens_exec(b"");
    // The port of tcpmux, which is closed.
    place.answers(StreamAnswer::Relay("http://127.0.0.1:1/x".into()));
    let answer = place.all(&mut client);
    assert!(answer.starts_with("HTTP/1.1 500 Internal Server Error\r\n"), "{answer}");
    assert!(answer.contains("dial tcp 127.0.0.1:"), "{answer}");
}

#[test]
fn the_core_answers_in_time_or_the_client_is_told() {
    let mut place = Place::new("mute");
    let mut client = place.opens_exec(b"");
    place.now = place.now.plus_ms(STREAM_ANSWER_MS - 1);
    place.turn();
    let mut came = Vec::new();
    assert!(!take(&mut client, &mut came) && came.is_empty());
    place.now = place.now.plus_ms(1);
    place.turn();
    // Too late for an answer of the core.
    place.answers(StreamAnswer::Output("late".into()));
    let answer = place.all(&mut client);
    assert!(answer.starts_with("HTTP/1.1 503 Service Unavailable\r\n"), "{answer}");
    assert!(answer.ends_with("no answer within 60 s: try again"), "{answer}");
    drop(client);
    place.turns(2);
    assert!(place.closed());
}

#[test]
fn a_command_without_a_terminal_may_last() {
    let mut place = Place::new("run");
    let (container, command) = ("c".into(), Vec::new());
    let request = StreamRequest::Run { pod: pod_name(), container, command };
    let mut client = place.opens(request, Form::Text, b"");
    place.turn();
    assert_eq!(place.streams.wake_at(), None);
    place.now = place.now.plus_ms(20 * STREAM_ANSWER_MS);
    place.turn();
    place.answers(StreamAnswer::Output("done".into()));
    let answer = place.all(&mut client);
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("done"), "{answer}");
}

#[test]
fn a_client_that_leaves_is_reported() {
    let mut place = Place::new("leaves");
    drop(place.opens_exec(b""));
    place.turns(2);
    assert!(place.closed());
}

#[test]
fn a_client_that_leaves_while_its_input_waits_is_noticed() {
    let mut place = Place::new("full");
    let server = TcpListener::bind("127.0.0.1:0").expect("a port");
    let mut client = place.opens_exec(b"");
    let url = format!("http://{}/exec/token", server.local_addr().expect("bound"));
    place.answers(StreamAnswer::Relay(url.into()));
    let (_runtime, _) = server.accept().expect("it connects");
    // The runtime takes nothing: what its socket does not hold waits here.
    for _ in 0..2_000 {
        let sent = client.write(&[b'x'; 64 << 10]);
        place.turn();
        if sent.is_err() && place.session().unread() >= STREAM_INPUT_BYTES_MAX {
            break;
        }
    }
    assert!(place.session().unread() >= STREAM_INPUT_BYTES_MAX);
    drop(client);
    place.turns(3);
    assert!(place.closed());
}

#[test]
fn so_many_are_served_at_once_and_no_more() {
    let mut place = Place::new("many");
    let clients: Vec<UnixStream> = (0..STREAMS_MAX).map(|_| place.opens_exec(b"")).collect();
    let mut one_more = place.opens_exec(b"");
    let mut answer = Vec::new();
    assert!(take(&mut one_more, &mut answer), "it is closed");
    let answer = String::from_utf8(answer).expect("text");
    assert!(answer.starts_with("HTTP/1.1 429 Too Many Requests\r\n"), "{answer}");
    drop(clients);
    place.turns(3);
    assert_eq!(place.streams.buffer.len(), 0, "nothing is kept for nobody");
    place.events.clear();
    let _client = place.opens_exec(b"");
    assert!(matches!(place.events[..], [Event::StreamOpened(..)]));
}

#[cfg(feature = "cloud")]
mod tunnel {
    use nix::sys::socket::{setsockopt, sockopt};

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
        assert!(place.session().unsent() < STREAM_UNSENT_BYTES_MAX + 2 * LOG_TURN_BYTES);
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
}
