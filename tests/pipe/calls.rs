//! `io::runtime::calls` over a pipe in memory: bytes arrive in pieces of any size, answers in any
//! order, and each call is answered exactly once.

use std::collections::BTreeMap;

use edged::agent::event::{CallId, Event};
use edged::agent::time::{Instant, Rng};
use edged::io::runtime::calls::Calls;
use edged::model::cri::{CallError, Code, ContainerId, Lost, Reply, Request};
use edged::model::endpoint::Framing;

use crate::peer;
use crate::server::{Server, containers, greeting, refusal, sandboxes};

const NOW: Instant = Instant(1_000);
const LATER: Instant = Instant(60_000);

/// Lets the server read the waiting bytes, in pieces.
fn write(calls: &mut Calls, server: &mut Server, rng: &mut Rng) {
    while !calls.output().is_empty() {
        let piece = 1 + rng.below(300);
        let count = 1 + rng.below(piece.min(calls.output().len() as u64)) as usize;
        server.receive(&calls.output()[..count]);
        calls.sent(count);
    }
}

/// Passes in bytes in pieces.
fn read(calls: &mut Calls, mut bytes: &[u8], rng: &mut Rng) -> Vec<Event> {
    let mut events = Vec::new();
    while !bytes.is_empty() {
        let most = 1 + rng.below(bytes.len() as u64);
        let (piece, rest) = bytes.split_at(1 + rng.below(most) as usize);
        calls.receive(NOW, piece, &mut events).expect("good bytes");
        bytes = rest;
    }
    events
}

#[derive(Clone, Debug, PartialEq)]
enum Wanted {
    Sandboxes(usize),
    Containers(usize),
    Refused,
    Lost,
    Done,
}

fn request(wanted: &Wanted) -> Request {
    match wanted {
        Wanted::Sandboxes(_) => Request::ListPodSandbox,
        Wanted::Containers(_) => Request::ListContainers,
        Wanted::Refused | Wanted::Lost | Wanted::Done => {
            Request::StartContainer(ContainerId("c".into()))
        }
    }
}

fn response(wanted: &Wanted, stream: u32) -> Vec<u8> {
    match wanted {
        Wanted::Sandboxes(count) => peer::reply(stream, &sandboxes(*count)),
        Wanted::Containers(count) => peer::reply(stream, &containers(*count)),
        Wanted::Refused => refusal(stream, 5, "no such container"),
        Wanted::Lost => refusal(stream, 14, "going away"),
        Wanted::Done => peer::reply(stream, &[]),
    }
}

fn is(wanted: &Wanted, got: &Result<Reply, CallError>) -> bool {
    match (wanted, got) {
        (Wanted::Sandboxes(count), Ok(Reply::Sandboxes(list))) => list.len() == *count,
        (Wanted::Containers(count), Ok(Reply::Containers(list))) => list.len() == *count,
        (Wanted::Refused, Err(CallError::Refused { code: Code::NotFound, message })) => {
            message == "no such container"
        }
        (Wanted::Lost, Err(CallError::Lost(Lost::Runtime { code, message }))) => {
            *code == Code::Unavailable && message == "going away"
        }
        (Wanted::Done, Ok(Reply::Done)) => true,
        _ => false,
    }
}

#[test]
fn every_call_gets_its_own_answer_once_however_the_bytes_are_split() {
    for seed in 0..200 {
        let mut rng = Rng::new(seed);
        let (mut calls, mut server) = (Calls::new(Framing::Grpc), Server::default());
        let mut wanted = BTreeMap::new();
        let mut events = Vec::new();
        for number in 0..=rng.below(20) {
            let kind = match rng.below(5) {
                0 => Wanted::Sandboxes(rng.below(40) as usize),
                1 => Wanted::Containers(rng.below(40) as usize),
                2 => Wanted::Refused,
                3 => Wanted::Lost,
                _ => Wanted::Done,
            };
            let id = CallId(100 + number);
            calls.start(NOW, id, &request(&kind), LATER, &mut events);
            wanted.insert(id, kind);
        }
        assert!(events.is_empty(), "seed {seed}: {events:?}");
        write(&mut calls, &mut server, &mut rng);
        // Streams are opened in the order of the calls; answers come in any order.
        let mut open: Vec<(u32, Wanted)> =
            server.calls.iter().map(|calls| calls.stream).zip(wanted.values().cloned()).collect();
        assert_eq!(open.len(), wanted.len(), "seed {seed}");
        let mut bytes = greeting();
        while !open.is_empty() {
            let (stream, kind) = open.remove(rng.below(open.len() as u64) as usize);
            bytes.extend(response(&kind, stream));
        }
        for event in read(&mut calls, &bytes, &mut rng) {
            let Event::Cri(id, answer) = event else { panic!("seed {seed}: {event:?}") };
            let kind = wanted.remove(&id).unwrap_or_else(|| panic!("seed {seed}: {id:?} again"));
            assert!(is(&kind, &answer), "seed {seed}: expected {kind:?}, got {answer:?}");
        }
        assert!(wanted.is_empty(), "seed {seed}: no answer for {wanted:?}");
        assert_eq!((calls.unanswered(), calls.wake_at()), (0, None), "seed {seed}");
    }
}

#[test]
fn a_connection_that_dies_anywhere_loses_what_was_not_answered_and_nothing_twice() {
    let rng = &mut Rng::new(7);
    let whole = [
        greeting(),
        peer::reply(1, &sandboxes(3)),
        refusal(3, 2, "no"),
        peer::reply(5, &containers(2)),
    ]
    .concat();
    for cut in 0..=whole.len() {
        let (mut calls, mut server) = (Calls::new(Framing::Grpc), Server::default());
        let mut events = Vec::new();
        for (id, request) in
            [(1, Request::ListPodSandbox), (2, Request::Status), (3, Request::ListContainers)]
        {
            calls.start(NOW, CallId(id), &request, LATER, &mut events);
        }
        write(&mut calls, &mut server, rng);
        events.extend(read(&mut calls, &whole[..cut], rng));
        let answered = events.len();
        calls.hangup("end of file", &mut events);
        let mut ids: Vec<_> = events
            .iter()
            .map(|event| match event {
                Event::Cri(id, _) => id.0,
                other => panic!("{other:?}"),
            })
            .collect();
        assert!(
            events[answered..].iter().all(|event| matches!(
                event,
                Event::Cri(_, Err(CallError::Lost(Lost::Connection)))
            ))
        );
        ids.sort_unstable();
        assert_eq!(ids, [1, 2, 3], "cut at {cut}");
    }
}

#[test]
fn the_stream_of_events_gives_one_hint_per_burst_and_its_end_is_an_answer() {
    let rng = &mut Rng::new(3);
    let (mut calls, mut server) = (Calls::new(Framing::Grpc), Server::default());
    let mut events = Vec::new();
    calls.start(NOW, CallId(9), &Request::GetContainerEvents, LATER, &mut events);
    write(&mut calls, &mut server, rng);
    assert_eq!(calls.unanswered(), 0, "a stream is not waited for");
    let items: Vec<u8> =
        (0..50).flat_map(|_| peer::frame(peer::DATA, 0, 1, &peer::message(b"\x0a\x01c"))).collect();
    let burst = [greeting(), peer::head(1), items].concat();
    calls.receive(NOW, &burst, &mut events).expect("good bytes");
    assert!(matches!(events[..], [Event::Changed(CallId(9))]), "{events:?}");
    events.clear();
    calls.receive(NOW, &peer::trailers(1, "0", ""), &mut events).expect("good bytes");
    assert!(
        matches!(events[..], [Event::Cri(CallId(9), Err(CallError::Lost(Lost::Connection)))]),
        "{events:?}"
    );
}

#[test]
fn a_runtime_without_events_says_so() {
    let rng = &mut Rng::new(3);
    let (mut calls, mut server) = (Calls::new(Framing::Grpc), Server::default());
    let mut events = Vec::new();
    calls.start(NOW, CallId(9), &Request::GetContainerEvents, LATER, &mut events);
    write(&mut calls, &mut server, rng);
    let bytes = [greeting(), refusal(1, 12, "unknown method")].concat();
    calls.receive(NOW, &bytes, &mut events).expect("good bytes");
    let [Event::Cri(CallId(9), Err(CallError::Refused { code, .. }))] = &events[..] else {
        panic!("{events:?}")
    };
    assert_eq!(*code, Code::Unimplemented);
}

#[test]
fn codes_that_do_not_tell_the_outcome_are_lost() {
    let rng = &mut Rng::new(3);
    let lost = |code| CallError::Lost(Lost::Runtime { code, message: "why".to_owned() });
    for (status, expected) in [
        (1, lost(Code::Cancelled)),
        (4, lost(Code::DeadlineExceeded)),
        (14, lost(Code::Unavailable)),
        (2, CallError::Refused { code: Code::Unknown, message: "why".to_owned() }),
        (9, CallError::Refused { code: Code::FailedPrecondition, message: "why".to_owned() }),
    ] {
        let (mut calls, mut server) = (Calls::new(Framing::Grpc), Server::default());
        let mut events = Vec::new();
        calls.start(NOW, CallId(1), &Request::Status, LATER, &mut events);
        write(&mut calls, &mut server, rng);
        let bytes = [greeting(), refusal(1, status, "why")].concat();
        calls.receive(NOW, &bytes, &mut events).expect("good bytes");
        let [Event::Cri(_, Err(got))] = &events[..] else { panic!("{events:?}") };
        assert_eq!(*got, expected, "status {status}");
        assert!(got.to_string().ends_with("why"), "its own words: {got}");
    }
}

#[test]
fn a_reply_that_makes_no_sense_loses_its_call_and_no_other() {
    let rng = &mut Rng::new(3);
    let (mut calls, mut server) = (Calls::new(Framing::Grpc), Server::default());
    let mut events = Vec::new();
    calls.start(NOW, CallId(1), &Request::ListPodSandbox, LATER, &mut events);
    calls.start(NOW, CallId(2), &Request::ListContainers, LATER, &mut events);
    write(&mut calls, &mut server, rng);
    let bytes =
        [greeting(), peer::reply(1, b"\xff\xff\xff"), peer::reply(3, &containers(1))].concat();
    calls.receive(NOW, &bytes, &mut events).expect("good frames");
    assert!(
        matches!(
            &events[..],
            [
                Event::Cri(CallId(1), Err(CallError::Lost(Lost::Connection))),
                Event::Cri(CallId(2), Ok(Reply::Containers(_))),
            ]
        ),
        "{events:?}"
    );
}
