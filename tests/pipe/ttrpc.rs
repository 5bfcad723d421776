//! `io::runtime` and the built-in runtime's codec at the two ends of a pipe that splits bytes
//! anywhere, and of a real socket: what the agent asks for is what the server gets, and what the
//! server answers is what the agent learns.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::os::unix::net::UnixListener;
use std::time::Duration;

use edged::agent::event::{CallId, Event};
use edged::agent::time::{Instant, Rng};
use edged::io::runtime::Runtime;
use edged::io::runtime::calls::Calls;
use edged::model::cri::{CallError, Code, ContainerId, Lost, Reply, Request, SandboxId};
use edged::model::endpoint::{Framing, RuntimeEndpoint};
use edged::model::runtime::{self as served, Refusal};
use edged::wire::cri::serve::{self, Context};
use edged::wire::ttrpc::{self, Server, StreamId};
use mio::{Events, Poll, Token};

const NOW: Instant = Instant(1_000);
const LATER: Instant = Instant(60_000);
const CONTEXT: Context<'_> =
    Context { version: "1", layers: "/l", own_layers: "/c", now: 1, verbose: false };

/// Lets the server read the waiting bytes, in pieces.
fn write(calls: &mut Calls, server: &mut Server, rng: &mut Rng) -> Vec<ttrpc::Event> {
    let mut events = Vec::new();
    while !calls.output().is_empty() {
        let piece = 1 + rng.below(40);
        let count = 1 + rng.below(piece.min(calls.output().len() as u64)) as usize;
        server.receive(&calls.output()[..count]).expect("good bytes");
        calls.sent(count);
        events.extend(std::iter::from_fn(|| server.poll_event()));
    }
    events
}

/// Lets the agent read the answers, in pieces.
fn read(calls: &mut Calls, server: &mut Server, rng: &mut Rng) -> Vec<Event> {
    let mut events = Vec::new();
    while !server.output().is_empty() {
        let most = 1 + rng.below(server.output().len() as u64);
        let count = 1 + rng.below(most) as usize;
        calls.receive(NOW, &server.output()[..count], &mut events).expect("good bytes");
        server.sent(count);
    }
    events
}

fn asked(call: &ttrpc::Call) -> served::Request {
    serve::decode(&call.service, &call.method, &call.payload).expect("a request").request
}

fn answer(server: &mut Server, stream: StreamId, reply: &served::Reply) {
    server.answer(stream, &serve::encode(reply, &CONTEXT));
}

#[test]
fn every_call_gets_its_own_answer_once_however_the_bytes_are_split() {
    for seed in 0..200 {
        let mut rng = Rng::new(seed);
        let (mut calls, mut server) = (Calls::new(Framing::Ttrpc), Server::default());
        let mut events = Vec::new();
        let mut wanted = BTreeMap::new();
        for number in 0..=rng.below(20) {
            let (id, kind) = (CallId(100 + number), rng.below(4));
            let request = match kind {
                0 => Request::ListPodSandbox,
                1 => Request::RemoveContainer(ContainerId(number.to_string().into())),
                2 => Request::StartContainer(ContainerId(number.to_string().into())),
                _ => Request::Version,
            };
            calls.start(NOW, id, &request, LATER, &mut events);
            wanted.insert(id, (number, kind));
        }
        let mut open = write(&mut calls, &mut server, &mut rng);
        assert_eq!(open.len(), wanted.len(), "seed {seed}");
        while !open.is_empty() {
            let next = open.remove(rng.below(open.len() as u64) as usize);
            let ttrpc::Event::Call(call) = next else { panic!("seed {seed}: {next:?}") };
            assert_eq!(call.timeout, Some(Duration::from_secs(59)));
            match asked(&call) {
                served::Request::StartContainer(id) => {
                    let refusal = Refusal { code: Code::NotFound, message: id.into() };
                    server.refuse(call.stream, &serve::status(&refusal));
                }
                served::Request::RemoveContainer(_) => {
                    answer(&mut server, call.stream, &served::Reply::Done);
                }
                served::Request::ListPodSandbox(_) => {
                    answer(&mut server, call.stream, &served::Reply::Sandboxes(Vec::new()));
                }
                _ => answer(&mut server, call.stream, &served::Reply::Version),
            }
        }
        for event in read(&mut calls, &mut server, &mut rng) {
            let Event::Cri(id, answer) = event else { panic!("seed {seed}: {event:?}") };
            let (number, kind) = wanted.remove(&id).expect("one answer to each");
            let is_right = match (kind, &answer) {
                (0, Ok(Reply::Sandboxes(list))) => list.is_empty(),
                (1, Ok(Reply::Done)) | (3, Ok(Reply::Version(_))) => true,
                (2, Err(CallError::Refused { code: Code::NotFound, message })) => {
                    *message == number.to_string()
                }
                _ => false,
            };
            assert!(is_right, "seed {seed}: {kind}: {answer:?}");
        }
        assert!(wanted.is_empty(), "seed {seed}: no answer for {wanted:?}");
        assert_eq!((calls.unanswered(), calls.wake_at()), (0, None), "seed {seed}");
        assert_eq!(server.open().count(), 0, "seed {seed}");
    }
}

#[test]
fn a_deadline_and_a_cancel_reach_the_server() {
    let rng = &mut Rng::new(3);
    let (mut calls, mut server) = (Calls::new(Framing::Ttrpc), Server::default());
    let mut events = Vec::new();
    calls.start(NOW, CallId(1), &Request::ImageStatus("i".into()), LATER, &mut events);
    calls.start(NOW, CallId(2), &Request::Status, NOW.plus_ms(5), &mut events);
    let open = write(&mut calls, &mut server, rng);
    assert_eq!(open.len(), 2);
    calls.cancel(CallId(1));
    calls.tick(NOW.plus_ms(5), &mut events);
    let lost = Err(CallError::Lost(Lost::Deadline));
    assert!(matches!(&events[..], [Event::Cri(CallId(2), got)] if *got == lost), "{events:?}");
    let cancelled = write(&mut calls, &mut server, rng);
    let expected = [StreamId(1), StreamId(3)].map(ttrpc::Event::Cancelled);
    assert_eq!(cancelled, expected);
    assert!(read(&mut calls, &mut server, rng).is_empty(), "both have had their end");
}

#[test]
fn events_are_hints_until_the_stream_ends() {
    let rng = &mut Rng::new(5);
    let (mut calls, mut server) = (Calls::new(Framing::Ttrpc), Server::default());
    let mut events = Vec::new();
    calls.start(NOW, CallId(9), &Request::GetContainerEvents, LATER, &mut events);
    let open = write(&mut calls, &mut server, rng);
    let [ttrpc::Event::Call(call)] = &open[..] else { panic!("{open:?}") };
    assert_eq!(asked(call), served::Request::GetContainerEvents);
    let event = served::RuntimeEvent {
        id: "c".into(),
        kind: served::EventKind::Started,
        at: 1,
        sandbox: None,
        containers: Vec::new(),
    };
    server.item(call.stream, &serve::encode_event(&event));
    let got = read(&mut calls, &mut server, rng);
    assert!(matches!(&got[..], [Event::Changed(CallId(9))]), "{got:?}");
    server.end(call.stream);
    let got = read(&mut calls, &mut server, rng);
    let lost = Err(CallError::Lost(Lost::Connection));
    assert!(matches!(&got[..], [Event::Cri(CallId(9), end)] if *end == lost), "{got:?}");
}

#[test]
fn a_socket_is_dialled_used_and_dialled_again() {
    let socket = std::env::temp_dir().join(format!("edged-ttrpc-{}", std::process::id()));
    let _ = std::fs::remove_file(&socket);
    let listener = UnixListener::bind(&socket).expect("a socket of the test");
    let endpoint = RuntimeEndpoint::ttrpc(socket.to_string_lossy().into_owned());
    let mut runtime = Runtime::new(endpoint.expect("it is built in"), Token(1));
    let mut poll = Poll::new().expect("a poll");
    let mut turn = |runtime: &mut Runtime, now: Instant, request: Option<&Request>| {
        let mut ready = Events::with_capacity(8);
        poll.poll(&mut ready, Some(Duration::ZERO)).expect("it polls");
        for ready in &ready {
            runtime.ready(ready);
        }
        let mut events = Vec::new();
        runtime.tick(now, poll.registry(), &mut events);
        if let Some(request) = request {
            runtime.call(now, CallId(1), request, now.plus_ms(10_000), &mut events);
        }
        runtime.flush(now, poll.registry(), &mut events);
        events
    };
    let events = turn(&mut runtime, NOW, None);
    assert!(matches!(events[..], [Event::RuntimeUp]), "{events:?}");
    let (mut peer, _) = listener.accept().expect("it connects");
    peer.set_nonblocking(true).expect("ours");
    let mut buffer = [0; 1_024];
    assert!(peer.read(&mut buffer).is_err(), "the protocol has no greeting");

    let stop = Request::StopPodSandbox(SandboxId("s".into()));
    turn(&mut runtime, NOW, Some(&stop));
    let mut server = Server::default();
    let count = peer.read(&mut buffer).expect("a request");
    server.receive(&buffer[..count]).expect("a good one");
    let Some(ttrpc::Event::Call(call)) = server.poll_event() else { panic!("a call") };
    assert_eq!(asked(&call), served::Request::StopPodSandbox("s".into()));
    answer(&mut server, call.stream, &served::Reply::Done);
    peer.write_all(server.output()).expect("there is room");
    let events = turn(&mut runtime, NOW, None);
    assert!(matches!(events[..], [Event::Cri(CallId(1), Ok(Reply::Done))]), "{events:?}");

    // A frame that a server may not send ends the connection, and another one follows.
    turn(&mut runtime, NOW, Some(&stop));
    peer.write_all(b"\0\0\0\0\0\0\0\x02\x01\0").expect("there is room");
    let events = turn(&mut runtime, NOW, None);
    let [Event::Cri(CallId(1), Err(CallError::Lost(_))), Event::RuntimeDown { cause }] =
        &events[..]
    else {
        panic!("{events:?}")
    };
    assert!(cause.contains("got a ttrpc frame of type 1, expected 2 (response)"), "{cause}");
    let at = runtime.wake_at().expect("it is tried again");
    let events = turn(&mut runtime, at, None);
    assert!(matches!(events[..], [Event::RuntimeUp]), "{events:?}");
    let _ = std::fs::remove_file(&socket);
}
