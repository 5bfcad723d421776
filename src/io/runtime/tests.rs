//! The connection to a runtime that the test simulates, with a simulated clock: bytes that one end
//! writes to a local socket are readable at the other, so nothing here waits.

use std::fs;
use std::os::unix::net::{UnixListener, UnixStream as Peer};
use std::path::PathBuf;
use std::time::Duration;

use mio::{Events, Poll};

use super::*;

const SETTINGS: &[u8] = &[0, 0, 0, 4, 0, 0, 0, 0, 0];
const PING: &[u8] = b"\0\0\x08\x06\0\0\0\0\0 a ping.";
/// The stream of the first call is still answered.
const GOAWAY: &[u8] = &[0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0];

struct Place {
    path: PathBuf,
    runtime: Runtime,
    poll: Poll,
    now: Instant,
    events: Vec<Event>,
}

impl Place {
    fn new(name: &str) -> Self {
        let name = format!("edged-runtime-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let _ = fs::remove_file(&path);
        let runtime = Runtime::new(RuntimeEndpoint::grpc(path.to_string_lossy()), Token(1));
        let poll = Poll::new().expect("a poll");
        Self { path, runtime, poll, now: Instant(1_000), events: Vec::new() }
    }

    /// The runtime is connected, and both ends have sent their preface.
    fn connected(name: &str) -> (Self, Peer) {
        let mut place = Self::new(name);
        let listener = UnixListener::bind(&place.path).expect("a socket of ours");
        place.turn(0);
        let (mut peer, _) = listener.accept().expect("it connects");
        peer.set_nonblocking(true).expect("ours");
        peer.write_all(SETTINGS).expect("there is room");
        place.turn(0);
        assert!(received(&mut peer) > 0, "a greeting");
        (place, peer)
    }

    fn turn(&mut self, ms: u64) {
        self.now = self.now.plus_ms(ms);
        let mut ready = Events::with_capacity(8);
        self.poll.poll(&mut ready, Some(Duration::ZERO)).expect("it polls");
        for ready in &ready {
            self.runtime.ready(ready);
        }
        self.runtime.tick(self.now, self.poll.registry(), &mut self.events);
        self.runtime.flush(self.now, self.poll.registry(), &mut self.events);
    }

    fn is_down(&self) -> bool {
        self.events.iter().any(|event| matches!(event, Event::RuntimeDown { .. }))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// The number of bytes received.
fn received(peer: &mut Peer) -> usize {
    let mut buffer = [0; 1_024];
    std::iter::from_fn(|| peer.read(&mut buffer).ok().filter(|&count| count > 0)).sum()
}

#[test]
fn a_runtime_that_is_not_there_is_tried_ever_later_up_to_a_bound() {
    let mut place = Place::new("absent");
    let mut waits = Vec::new();
    for _ in 0..6 {
        place.turn(0);
        let wait_ms = place.runtime.wake_at().expect("it is tried again").since_ms(place.now);
        waits.push(wait_ms);
        place.turn(wait_ms - 1);
        assert_eq!(place.runtime.wake_at(), Some(place.now.plus_ms(1)), "not before");
        place.now = place.now.plus_ms(1);
    }
    assert_eq!(waits[..2], [CONNECT_BACKOFF_MIN_MS, 2 * CONNECT_BACKOFF_MIN_MS]);
    assert!(waits.is_sorted() && waits.ends_with(&[CONNECT_BACKOFF_MAX_MS; 3]), "{waits:?}");
}

#[test]
fn what_is_read_in_one_turn_has_a_bound() {
    struct Endless(usize);
    impl Read for Endless {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            self.0 += buffer.len();
            Ok(buffer.len())
        }
    }
    let mut place = Place::new("endless");
    let (mut source, mut received) = (Endless(0), 0);
    let emptied = read_on(&mut source, &mut place.runtime.buffer, false, |bytes| {
        received += bytes.len();
        Ok(())
    });
    assert_eq!(emptied, Ok(false), "the rest comes with the next turn");
    let limit = RUNTIME_TURN_READS * RUNTIME_READ_BYTES;
    assert_eq!((source.0, received), (limit, limit));
    // A read that is shorter than the buffer was the last.
    let long = vec![0; RUNTIME_READ_BYTES + 1];
    let mut short = &long[..];
    let mut parts = Vec::new();
    let emptied = read_on(&mut short, &mut place.runtime.buffer, false, |bytes| {
        parts.push(bytes.len());
        Ok(())
    });
    assert_eq!((emptied, parts), (Ok(true), vec![RUNTIME_READ_BYTES, 1]));
}

#[test]
fn the_answer_to_a_ping_waits_for_a_request_to_go_with() {
    let (mut place, mut peer) = Place::connected("ping");
    peer.write_all(PING).expect("there is room");
    place.turn(0);
    assert_eq!(place.runtime.wake_at(), Some(place.now.plus_ms(RUNTIME_PONG_MS)));
    place.turn(RUNTIME_PONG_MS - 1);
    assert_eq!(received(&mut peer), 0);
    place.turn(1);
    assert_eq!(received(&mut peer), PING.len());
}

#[test]
fn a_runtime_that_sends_goaway_has_time_to_answer_pending_calls() {
    let (mut place, mut peer) = Place::connected("goodbye");
    let (far, mut answers) = (place.now.plus_ms(u64::from(u32::MAX)), Vec::new());
    place.runtime.call(place.now, CallId(1), &Request::Version, far, &mut answers);
    place.turn(0);
    peer.write_all(GOAWAY).expect("there is room");
    place.turn(0);
    assert_eq!(place.runtime.wake_at(), Some(place.now.plus_ms(RUNTIME_GOODBYE_MS)));
    place.turn(RUNTIME_GOODBYE_MS - 1);
    assert!(!place.is_down(), "{:?}", place.events);
    place.turn(1);
    assert!(place.is_down(), "{:?}", place.events);
    let lost = |event: &Event| {
        matches!(event, Event::Cri(CallId(1), Err(CallError::Lost(Lost::Connection))))
    };
    assert!(place.events.iter().any(lost), "{:?}", place.events);
}
