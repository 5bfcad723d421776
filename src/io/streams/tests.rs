//! Sessions over real sockets and files, with the time as an argument.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::PathBuf;
use std::time::Duration;

use mio::net::UnixStream;
use mio::{Events, Poll};
use nix::sys::socket::{setsockopt, sockopt};

use super::*;
use crate::agent::time::Wall;
use crate::io::socket::Stream;
use crate::limits::{
    LOG_REST_MS, STREAM_ANSWER_MS, STREAM_INPUT_BYTES_MAX, STREAM_SOCKET_BYTES, STREAM_STALL_MS,
    STREAM_TURN_BYTES, STREAM_UNSENT_BYTES_MAX,
};
use crate::model::cri::Pipes;
use crate::model::job::LogDir;
use crate::model::stream::{LogOptions, PodName, StreamRequest};
use crate::wire::http1::Status;
use crate::wire::kubelet::Form;

#[cfg(feature = "cloud")]
mod tunnel;

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
        let handover = Handover { stream: Transport::Plain(Stream::Socket(near)), opening };
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
    // With the frames of the chunks.
    let most = LOG_TURN_BYTES + 64;
    let unsent = place.session().unsent();
    assert!((LOG_TURN_BYTES / 2..most).contains(&unsent), "{unsent}");
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
fn a_log_gives_way_to_pods_that_start() {
    let mut place = Place::new("share");
    fs::write(place.log(), LINE.repeat(200_000)).expect("written");
    let mut client = place.opens_log(LogOptions::default());
    place.answers(StreamAnswer::Logs { file: file(), running: true });
    let mut all = Vec::new();
    // How much comes in one turn.
    let mut comes = |place: &mut Place| {
        let before = all.len();
        place.turn();
        assert!(!take(&mut client, &mut all), "it ends before it has given way");
        all.len() - before
    };
    assert!(comes(&mut place) > 0, "no pod starts");
    place.streams.give_way(true);
    // No time passes, so its share is soon used up.
    while comes(&mut place) > 0 {}
    assert_eq!(comes(&mut place), 0);
    let wake_at = place.streams.wake_at().expect("there is more of it");
    assert!(wake_at > place.now, "it rests");
    place.now = wake_at;
    assert!(comes(&mut place) > 0, "its time has come");
    while comes(&mut place) > 0 {}
    place.streams.give_way(false);
    assert!(comes(&mut place) > 0, "no pod starts any more");
    let rest = place.all(&mut client);
    assert!(all.len() + rest.len() > TEXT.len() * 200_000, "whole");
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

#[cfg(feature = "metaserver")]
#[test]
fn a_log_for_metaserver_is_one_json_text_of_a_bounded_length() {
    let ask = |place: &mut Place, limit_bytes| {
        let options = LogOptions { limit_bytes, ..LogOptions::default() };
        let request = StreamRequest::Logs { pod: pod_name(), container: "c".into(), options };
        let mut client = place.opens(request, Form::LogMessages, b"");
        place.answers(StreamAnswer::Logs { file: file(), running: false });
        let answer = place.all(&mut client);
        let (head, _) = answer.split_once("\r\n\r\n").expect("a head");
        assert!(
            head.starts_with("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"),
            "{head}"
        );
        let value: serde_json::Value = serde_json::from_str(&unchunked(&answer)).expect("JSON");
        let text = value["logMessages"][0].as_str().expect("a text").to_owned();
        (text, value["errMessages"][0].as_str().unwrap_or_default().to_owned())
    };
    let mut place = Place::new("json");
    fs::write(place.log(), LINE.repeat(1_000)).expect("written");
    assert_eq!(ask(&mut place, None), (TEXT.repeat(1_000), String::new()));
    assert_eq!(ask(&mut place, Some(50)), (format!("{TEXT}012345678"), String::new()));
    let most = crate::limits::METASERVER_LOG_BYTES_MAX as usize;
    fs::write(place.log(), LINE.repeat(most / TEXT.len() + 1)).expect("written");
    let (text, why) = ask(&mut place, None);
    assert_eq!(text.len(), most);
    assert!(why.starts_with("the log has 16777216 bytes or more, and is cut"), "{why}");
    let request = StreamRequest::Logs {
        pod: pod_name(),
        container: "c".into(),
        options: LogOptions::default(),
    };
    let mut client = place.opens(request, Form::LogMessages, b"");
    place.answers(StreamAnswer::Refused(Refusal::new(RefusalKind::NotFound, "no pod")));
    let answer = place.all(&mut client);
    assert!(answer.starts_with("HTTP/1.1 404 Not Found\r\n"), "{answer}");
    assert!(answer.contains("\"reason\":\"NotFound\""), "{answer}");
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
    assert_eq!(place.session().unread(), STREAM_INPUT_BYTES_MAX);
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
fn a_command_whose_output_nobody_reads_gets_its_input_and_costs_a_bounded_amount() {
    let mut place = Place::new("unread");
    let server = TcpListener::bind("127.0.0.1:0").expect("a port");
    let mut client = place.opens_exec(b"");
    let url = format!("http://{}/exec/token", server.local_addr().expect("bound"));
    place.answers(StreamAnswer::Relay(url.into()));
    let (mut runtime, _) = server.accept().expect("it connects");
    runtime.set_nonblocking(true).expect("set");
    for _ in 0..300 {
        while runtime.write(&[b'y'; 4_096]).is_ok() {}
        place.turn();
    }
    let unsent = place.session().unsent();
    assert!((STREAM_UNSENT_BYTES_MAX / 2..=STREAM_UNSENT_BYTES_MAX).contains(&unsent), "{unsent}");
    client.write_all(b"quit").expect("written");
    place.turns(2);
    let mut came = vec![0; 4_096];
    let count = runtime.read(&mut came).expect("the request, and the input");
    assert!(came[..count].ends_with(b"quit"));
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
    setsockopt(&server, sockopt::RcvBuf, &(8 << 10)).expect("set");
    let mut client = place.opens_exec(b"");
    let url = format!("http://{}/exec/token", server.local_addr().expect("bound"));
    place.answers(StreamAnswer::Relay(url.into()));
    let (_runtime, _) = server.accept().expect("it connects");
    // The runtime takes nothing: what its socket does not hold waits here.
    let mut sent = 0;
    for _ in 0..2_000 {
        let count = client.write(&[b'x'; 8 << 10]);
        place.turn();
        sent += count.as_ref().unwrap_or(&0);
        if count.is_err() && place.session().unread() >= STREAM_INPUT_BYTES_MAX {
            break;
        }
    }
    assert!(place.session().unread() >= STREAM_INPUT_BYTES_MAX);
    // With the buffers of both other sockets.
    assert!(sent < 2 * STREAM_SOCKET_BYTES + (768 << 10), "{sent}");
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
