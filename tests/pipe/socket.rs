//! Connecting, writing and reading, when all goes well or only slowly.

use edged::agent::event::{CallId, Event};
use edged::limits::CRI_LIST_ITEMS_MAX;
use edged::model::cri::{CallError, Lost, PodRef, Reply, Request, SandboxConfig};
use edged::wire::cri::Rpc;

use crate::bench::{Bench, Peer};
use crate::peer;
use crate::server::{containers, large_reply, sandboxes};

#[test]
fn an_absent_socket_is_told_once_and_tried_again_within_a_quarter_second() {
    let mut bench = Bench::new();
    let events = bench.turn();
    let [Event::RuntimeDown { cause }] = &events[..] else { panic!("{events:?}") };
    assert!(cause.contains("c.sock: No such file or directory"), "{cause}");
    for _ in 0..20 {
        let wait_ms = bench.runtime.wake_at().expect("a retry").since_ms(bench.now);
        assert!((1..=250).contains(&wait_ms), "{wait_ms}");
        let events = bench.later(wait_ms);
        assert!(events.is_empty(), "{events:?}");
    }
    let _listener = bench.listen();
    let events = bench.later(250);
    assert!(matches!(events[..], [Event::RuntimeUp]), "{events:?}");
}

#[test]
fn a_call_without_a_connection_is_lost_at_once() {
    let mut bench = Bench::new();
    bench.turn();
    let events = bench.turn_asking(&[(1, Request::Status)]);
    assert!(
        matches!(events[..], [Event::Cri(CallId(1), Err(CallError::Lost(Lost::Connection)))]),
        "{events:?}"
    );
}

#[test]
fn the_calls_of_one_turn_leave_in_one_write() {
    let (mut bench, _listener, mut peer) = Bench::connected();
    peer.read();
    let events = bench.turn_asking(&[(1, Request::ListPodSandbox), (2, Request::ListContainers)]);
    assert!(events.is_empty(), "{events:?}");
    assert_eq!(peer.read(), 1, "a read takes what one write wrote");
    assert_eq!(peer.server.calls.len(), 2);
}

#[test]
fn replies_in_single_bytes_and_out_of_order_find_their_calls() {
    let (mut bench, _listener, mut peer) = Bench::connected();
    bench.turn_asking(&[(1, Request::ListPodSandbox), (2, Request::ListContainers)]);
    peer.read();
    let (one, two) =
        (peer.server.stream_of(Rpc::ListPodSandbox), peer.server.stream_of(Rpc::ListContainers));
    let bytes = [peer::reply(two, &containers(2)), peer::reply(one, &sandboxes(1))].concat();
    let mut events = Vec::new();
    for byte in bytes {
        peer.write(&[byte]);
        events.extend(bench.turn());
    }
    let [Event::Cri(CallId(2), Ok(Reply::Containers(two))), Event::Cri(CallId(1), one)] =
        &events[..]
    else {
        panic!("{events:?}")
    };
    assert_eq!(two.len(), 2);
    assert!(matches!(one, Ok(Reply::Sandboxes(list)) if list.len() == 1), "{one:?}");
}

#[test]
fn a_long_list_is_read_to_its_end() {
    let (mut bench, _listener, mut peer) = Bench::connected();
    bench.turn_asking(&[(1, Request::ListContainers)]);
    peer.read();
    let stream = peer.server.stream_of(Rpc::ListContainers);
    let bytes = large_reply(stream, &containers(CRI_LIST_ITEMS_MAX));
    let mut events = Vec::new();
    for piece in bytes.chunks(32 << 10) {
        peer.write(piece);
        events.extend(bench.turn());
        peer.read();
    }
    while events.is_empty() {
        events.extend(bench.turn());
    }
    let [Event::Cri(_, Ok(Reply::Containers(list)))] = &events[..] else { panic!("{events:?}") };
    assert_eq!(list.len(), CRI_LIST_ITEMS_MAX);
}

#[test]
fn a_runtime_that_does_not_read_stalls_the_requests_and_loses_none() {
    let (mut bench, _listener, mut peer) = Bench::connected();
    let config = SandboxConfig {
        pod: PodRef { uid: "u".into(), namespace: "ns".into(), name: "web".into() },
        hostname: "h".repeat(60_000),
        ..SandboxConfig::default()
    };
    // The peer's windows are wide: only the socket limits them.
    let windows = [peer::settings(&[(4, 1 << 20)]), peer::window_update(0, 64 << 20)].concat();
    peer.write(&windows);
    bench.turn();
    for call in 1..=20 {
        bench.turn_asking(&[(call, Request::RunPodSandbox(Box::new(config.clone())))]);
    }
    assert!(peer.server.calls.len() < 20, "the socket's buffer holds less than 1.2 MB");
    for _ in 0..100 {
        peer.read();
        let events = bench.turn();
        assert!(events.is_empty(), "{events:?}");
    }
    assert_eq!(peer.server.calls.len(), 20);
    assert!(peer.server.calls.iter().all(|calls| calls.body.len() > 60_000));
    // And the socket is not watched for writing any more: reading at the other end causes no wake.
    let mut ready = mio::Events::with_capacity(8);
    bench.poll.poll(&mut ready, Some(std::time::Duration::ZERO)).expect("polled");
    assert!(ready.is_empty());
}

#[test]
fn an_idle_connection_wakes_for_nothing() {
    let (mut bench, _listener, mut peer) = Bench::connected();
    peer.read();
    assert!(bench.turn().is_empty(), "the preface causes no event");
    peer.read();
    assert_eq!(bench.runtime.wake_at(), None);
}

#[test]
fn a_late_call_is_lost_its_stream_reset_and_its_late_reply_ignored() {
    let (mut bench, _listener, mut peer) = Bench::connected();
    bench.turn_asking(&[(1, Request::ListPodSandbox), (2, Request::ListContainers)]);
    peer.read();
    let (one, two) =
        (peer.server.stream_of(Rpc::ListPodSandbox), peer.server.stream_of(Rpc::ListContainers));
    assert!(bench.later(5_000).is_empty());
    peer.write(&peer::reply(two, &containers(1)));
    assert_eq!(bench.turn().len(), 1);
    let wake_at = bench.runtime.wake_at().expect("the deadline");
    assert_eq!(wake_at.since_ms(bench.now), 5_000);
    let events = bench.later(5_000);
    assert!(
        matches!(events[..], [Event::Cri(CallId(1), Err(CallError::Lost(Lost::Deadline)))]),
        "{events:?}"
    );
    peer.read();
    assert_eq!(peer.server.resets(), [one]);
    peer.write(&peer::reply(one, &sandboxes(1)));
    assert!(bench.turn().is_empty());
}

#[test]
fn a_cancelled_call_is_never_answered() {
    let (mut bench, _listener, mut peer) = Bench::connected();
    bench.turn_asking(&[(1, Request::ListPodSandbox)]);
    bench.runtime.cancel(CallId(1));
    assert!(bench.turn().is_empty());
    peer.read();
    let stream = peer.server.stream_of(Rpc::ListPodSandbox);
    assert_eq!(peer.server.resets(), [stream]);
    peer.write(&peer::reply(stream, &sandboxes(1)));
    assert!(bench.later(20_000).is_empty());
}

#[test]
fn a_ping_is_answered_with_the_next_request_or_after_twelve_seconds() {
    let ping = peer::frame(peer::PING, 0, 0, b"\x02\x04\x10\x10\x09\x0e\x07\x07");
    let pongs = |peer: &Peer| {
        let is_pong = |frame: &&peer::Frame| frame.kind == peer::PING && frame.flags == peer::ACK;
        peer.server.frames.iter().filter(is_pong).count()
    };
    let (mut bench, _listener, mut peer) = Bench::connected();
    bench.turn();
    peer.write(&ping);
    bench.turn();
    peer.read();
    assert_eq!(pongs(&peer), 0);
    bench.turn_asking(&[(1, Request::ListPodSandbox)]);
    assert_eq!(peer.read(), 1, "one write for both");
    assert_eq!(pongs(&peer), 1);
    let stream = peer.server.stream_of(Rpc::ListPodSandbox);
    peer.write(&peer::reply(stream, &sandboxes(1)));
    bench.turn();
    peer.write(&ping);
    bench.turn();
    assert_eq!(bench.runtime.wake_at().map(|at| at.since_ms(bench.now)), Some(12_000));
    bench.later(12_000);
    peer.read();
    assert_eq!(pongs(&peer), 2);
}

#[test]
fn a_new_connection_starts_from_nothing() {
    let (mut bench, listener, mut peer) = Bench::connected();
    bench.turn_asking(&[(1, Request::ListPodSandbox)]);
    peer.read();
    drop(peer);
    let events = bench.turn();
    assert!(matches!(events[..], [Event::Cri(..), Event::RuntimeDown { .. }]), "{events:?}");
    let events = bench.later(250);
    assert!(matches!(events[..], [Event::RuntimeUp]), "{events:?}");
    let mut peer = Peer::accept(&listener);
    bench.turn_asking(&[(2, Request::ListPodSandbox)]);
    peer.read();
    assert_eq!(peer.server.calls.len(), 1, "the lost call is not made again");
    let stream = peer.server.stream_of(Rpc::ListPodSandbox);
    peer.write(&peer::reply(stream, &sandboxes(0)));
    let events = bench.turn();
    assert!(matches!(events[..], [Event::Cri(CallId(2), Ok(_))]), "{events:?}");
}
