//! Messages in both directions: whole, in parts, too many, and none.

use std::time::Duration;

use edged::agent::event::Event;
use edged::io::clock;
use edged::limits::{CLOUD_OUTPUT_BYTES_MAX, CLOUD_TURN_MESSAGES};
use edged::model::downstream::Down;
use edged::model::link::Session;
use edged::wire::{edge, kubeedge};

use super::{Fixture, cloud_link, message, pod};

#[test]
fn messages_go_both_ways_and_what_has_left_is_counted() {
    let mut fixture = Fixture::up("both");
    for number in 0..20 {
        fixture.send(&format!("up {number}"));
    }
    let mut sent = 0;
    while sent < 20 {
        sent += fixture.until(|event| match event {
            Event::Sent(Session(1), count) => Some(*count),
            _ => None,
        });
    }
    fixture.cloud.wait("the last", |reported| reported.0["content"] == "up 19");
    let reported: Vec<_> =
        fixture.cloud.received().iter().map(|reported| reported.0["content"].clone()).collect();
    let expected: Vec<_> = (0..20).map(|number| format!("up {number}")).collect();
    assert_eq!(reported, expected);

    let ids: Vec<_> =
        (0..100).map(|at| fixture.cloud.put(&format!("ns/pod/p{at}"), pod(10))).collect();
    for id in ids {
        assert_eq!(*fixture.next_message().origin.id, *id);
    }
}

#[test]
fn fragments_and_single_bytes_make_whole_messages() {
    let mut fixture = Fixture::up("fragments");
    for (fragment, size) in [(4_082, 20_000), (1, 700), (125, 3_000), (1 << 20, 100_000)] {
        fixture.cloud.script(|script| script.fragment = fragment);
        let id = fixture.cloud.put("ns/pod/web", pod(size));
        let message = fixture.next_message();
        assert_eq!(*message.origin.id, *id, "{fragment}");
        let Down::Put(object) = &message.content else { panic!("{message:?}") };
        assert!(object.text.len() > size);
    }
    fixture.cloud.script(|script| {
        script.fragment = 50;
        script.drip = Some(Duration::from_micros(100));
    });
    let id = fixture.cloud.put("ns/pod/web", pod(10));
    assert_eq!(*fixture.next_message().origin.id, *id);
}

#[test]
fn a_turn_takes_a_part_of_a_flood_and_the_next_one_the_rest() {
    let mut fixture = Fixture::up("flood");
    let count = 3 * CLOUD_TURN_MESSAGES;
    for at in 0..count {
        fixture.cloud.put(&format!("ns/pod/p{at}"), pod(1));
    }
    let mut came = 0;
    while came < count {
        fixture.turn(20);
        let is = |event: &&Event| matches!(event, Event::Cloud(..));
        let now = fixture.events.iter().filter(is).count();
        assert!(now <= CLOUD_TURN_MESSAGES, "{now} in one turn");
        let next_message =
            fixture.events.iter().filter(|event| matches!(event, Event::LinkActive(_))).count();
        assert!(next_message <= 1, "a sign of life is reported once a turn");
        came += now;
        fixture.events.clear();
    }
}

#[test]
fn a_cloud_that_takes_nothing_is_left_and_the_memory_is_bounded() {
    let mut fixture = Fixture::up("stuck");
    fixture.cloud.script(|script| script.frozen = true);
    let text = "x".repeat(64 << 10);
    let mut sent = 0;
    while fixture.events.is_empty() {
        fixture.send(&text);
        sent += text.len();
        // The kernel's buffers, and ours.
        assert!(sent < 16 << 20, "it takes without an end");
        fixture.events.retain(|event| !matches!(event, Event::Sent(..)));
    }
    let why = fixture.down();
    assert!(why.contains(": the cloud does not read: "), "{why}");
    assert_eq!(fixture.cloud_link.wake_at(), None);

    let mut fixture = Fixture::up("slow");
    fixture.cloud.script(|script| script.frozen = true);
    // The kernel grows its buffers for a while before they are full.
    while !fixture.events.iter().any(|event| matches!(event, Event::LinkDown(..))) {
        if fixture.cloud_link.wake_at().is_none() {
            fixture.send(&text);
        }
        fixture.turn(20);
    }
    let why = fixture.down();
    assert!(why.ends_with(": the cloud did not read for 1 s"), "{why}");
}

#[test]
fn what_waits_for_the_cloud_has_a_bound() {
    let head_bytes = edge::encode(&kubeedge::encode(&message(""))).len();
    for (more, fits) in [(0, true), (1, false)] {
        let mut fixture = Fixture::up("bound");
        let text = "x".repeat(CLOUD_OUTPUT_BYTES_MAX - head_bytes + more);
        fixture.cloud_link.send(Session(1), &message(&text), &mut fixture.events);
        assert_eq!(fixture.events.is_empty(), fits, "{:?}", fixture.events);
        fixture.cloud_link.send(Session(1), &message(""), &mut fixture.events);
        let why = fixture.down();
        assert!(why.contains(": the cloud does not read: "), "{why}");
    }
}

#[test]
fn what_waited_leaves_when_the_cloud_reads_again() {
    let mut fixture = Fixture::joined("again");
    fixture.link.write_timeout_ms = 20_000;
    fixture.cloud_link = cloud_link(&fixture.link);
    fixture.dial(1).expect("it connects");
    fixture.settle();
    fixture.cloud.script(|script| script.frozen = true);
    let text = "x".repeat(60 << 10);
    let mut requested = 0;
    while fixture.cloud_link.wake_at().is_none() {
        fixture.send(&text);
        requested += 1;
    }
    fixture.cloud.script(|script| script.frozen = false);
    let sent = |fixture: &Fixture| -> usize {
        let count = |event: &Event| if let Event::Sent(_, count) = event { *count } else { 0 };
        fixture.events.iter().map(count).sum()
    };
    while sent(&fixture) < requested {
        fixture.turn(20);
    }
    fixture.cloud.counted(requested);
    assert!(fixture.cloud.received().iter().all(|reported| reported.0["content"] == text));
}

#[test]
fn a_ping_is_answered_though_nobody_says_anything() {
    let mut fixture = Fixture::up("ping");
    fixture.cloud_link.ping(Session(1), &mut fixture.events);
    fixture.cloud_link.flush(clock::boot(), &mut fixture.events);
    fixture.until(|event| matches!(event, Event::LinkActive(Session(1))).then_some(()));
}

#[test]
fn the_end_of_a_link_is_told_once_and_a_hang_up_not_at_all() {
    let mut fixture = Fixture::up("ends");
    fixture.cloud.drop_link();
    let why = fixture.down();
    assert_eq!(why, format!("{}: the cloud closed the connection", fixture.link.server));
    fixture.send("nobody hears it");
    fixture.turn(5);
    assert!(fixture.events.is_empty(), "{:?}", fixture.events);

    fixture.dial(2).expect("it connects again");
    fixture.cloud_link.hangup(Session(1));
    assert!(fixture.cloud.connected(2).path.starts_with('/'), "another session's is not ours");
    fixture.cloud_link.hangup(Session(2));
    fixture.cloud.left_alone();
    fixture.turn(5);
    assert!(
        fixture.events.is_empty() && fixture.cloud_link.wake_at().is_none(),
        "{:?}",
        fixture.events
    );

    // A dial ends the session before it.
    fixture.dial(3).expect("it connects");
    fixture.dial(4).expect("it connects");
    fixture.cloud.connected(4);
    fixture.cloud.drop_link();
    let name =
        |event: &Event| if let Event::LinkDown(name, _) = event { Some(*name) } else { None };
    assert_eq!(fixture.until(name), Session(4));
}
