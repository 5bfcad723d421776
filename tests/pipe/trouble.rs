//! A runtime that dies, closes the connection, or is none: every call is answered, the connection's
//! end is reported once and after them, and the next connection works.

use edged::agent::event::{CallId, Event};
use edged::model::cri::{CallError, Lost, Request};
use edged::wire::cri::Rpc;

use crate::bench::{Bench, Peer};
use crate::peer;
use crate::server::{containers, large_reply, sandboxes};

/// Two calls are lost, then the connection ends; returns the cause.
fn lost_both(events: &[Event]) -> String {
    let [
        Event::Cri(CallId(1), Err(CallError::Lost(Lost::Connection))),
        Event::Cri(CallId(2), Err(CallError::Lost(Lost::Connection))),
        Event::RuntimeDown { cause },
    ] = events
    else {
        panic!("{events:?}")
    };
    cause.clone()
}

/// The next connection is up and works.
fn works(bench: &mut Bench, listener: &std::os::unix::net::UnixListener) {
    let events = bench.later(250);
    assert!(matches!(events[..], [Event::RuntimeUp]), "{events:?}");
    let mut peer = Peer::accept(listener);
    bench.turn_asking(&[(77, Request::ListPodSandbox)]);
    peer.read();
    let stream = peer.server.stream_of(Rpc::ListPodSandbox);
    peer.write(&peer::reply(stream, &sandboxes(1)));
    let events = bench.turn();
    assert!(matches!(events[..], [Event::Cri(CallId(77), Ok(_))]), "{events:?}");
}

const BOTH: [(u64, Request); 2] = [(1, Request::ListPodSandbox), (2, Request::ListContainers)];

#[test]
fn a_runtime_that_dies_in_the_middle_of_a_reply_loses_both_calls() {
    let (mut bench, listener, mut peer) = Bench::connected();
    bench.turn_asking(&BOTH);
    peer.read();
    let reply = large_reply(1, &containers(2_000));
    peer.write(&reply[..reply.len() / 2]);
    assert!(bench.turn().is_empty());
    drop(peer);
    assert_eq!(lost_both(&bench.turn()), "closed by the runtime");
    works(&mut bench, &listener);
}

#[test]
fn what_a_dying_runtime_still_answered_counts() {
    let (mut bench, listener, mut peer) = Bench::connected();
    bench.turn_asking(&BOTH);
    peer.read();
    let stream = peer.server.stream_of(Rpc::ListPodSandbox);
    // The answer and the end of file arrive together.
    peer.write(&peer::reply(stream, &sandboxes(1)));
    drop(peer);
    let events = bench.turn();
    assert!(
        matches!(
            events[..],
            [
                Event::Cri(CallId(1), Ok(_)),
                Event::Cri(CallId(2), Err(CallError::Lost(Lost::Connection))),
                Event::RuntimeDown { .. }
            ]
        ),
        "{events:?}"
    );
    works(&mut bench, &listener);
}

#[test]
fn bytes_that_are_no_http2_end_the_connection() {
    for bytes in [
        &b"HTTP/1.1 400 Bad Request\r\n\r\n"[..],
        &[0xff; 64][..],
        &peer::frame(peer::DATA, 0, 99, b"a stream of nobody"),
        &peer::frame(peer::SETTINGS, 0, 0, b"five!"),
    ] {
        let (mut bench, listener, mut peer) = Bench::connected();
        bench.turn_asking(&BOTH);
        peer.write(bytes);
        let cause = lost_both(&bench.turn());
        assert!(!cause.is_empty());
        works(&mut bench, &listener);
    }
}

#[test]
fn a_goodbye_waits_for_the_calls_under_way_and_no_longer_than_a_second() {
    for answered in [true, false] {
        let (mut bench, listener, mut peer) = Bench::connected();
        bench.turn_asking(&[(1, Request::ListPodSandbox), (9, Request::GetContainerEvents)]);
        peer.read();
        let stream = peer.server.stream_of(Rpc::ListPodSandbox);
        peer.write(&peer::go_away(0x7fff_ffff, 0, b""));
        assert!(bench.turn().is_empty(), "the call may still be answered");
        let events = bench.turn_asking(&[(2, Request::ListContainers)]);
        assert!(
            matches!(events[..], [Event::Cri(CallId(2), Err(CallError::Lost(Lost::Connection)))]),
            "{events:?}"
        );
        let events = if answered {
            peer.write(&peer::reply(stream, &sandboxes(1)));
            bench.turn()
        } else {
            assert_eq!(bench.runtime.wake_at().map(|at| at.since_ms(bench.now)), Some(1_000));
            bench.later(1_000)
        };
        let mut calls: Vec<_> = events
            .iter()
            .filter_map(|event| match event {
                Event::Cri(call, answer) => Some((call.0, answer.is_ok())),
                _ => None,
            })
            .collect();
        calls.sort_unstable();
        assert_eq!(calls, [(1, answered), (9, false)]);
        assert!(matches!(events.last(), Some(Event::RuntimeDown { .. })), "{events:?}");
        works(&mut bench, &listener);
    }
}

#[test]
fn one_that_accepts_and_hangs_up_is_tried_more_slowly_and_told_in_turns() {
    let (mut bench, listener, peer) = Bench::connected();
    drop(peer);
    let mut waits = Vec::new();
    for _ in 0..4 {
        let events = bench.turn();
        assert!(matches!(events[..], [Event::RuntimeDown { .. }]), "{events:?}");
        let wait_ms = bench.runtime.wake_at().expect("a retry").since_ms(bench.now);
        waits.push(wait_ms);
        let events = bench.later(wait_ms);
        assert!(matches!(events[..], [Event::RuntimeUp]), "{events:?}");
        drop(Peer::accept(&listener));
    }
    assert_eq!(waits, [25, 50, 100, 100]);
}

#[test]
fn a_runtime_that_stopped_listening_is_down_once() {
    let (mut bench, listener, peer) = Bench::connected();
    drop((listener, peer));
    let events = bench.turn();
    assert!(matches!(events[..], [Event::RuntimeDown { .. }]), "{events:?}");
    for _ in 0..5 {
        assert!(bench.later(250).is_empty(), "reported once");
    }
    let listener = bench.listen();
    works(&mut bench, &listener);
}
