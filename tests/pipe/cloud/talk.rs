//! Messages both ways: whole, in parts, too many, and none.

use std::time::Duration;

use edged::agent::event::Event;
use edged::io::clock;
use edged::limits::{CLOUD_OUTPUT_BYTES_MAX, CLOUD_TURN_MESSAGES};
use edged::model::link::Session;
use edged::wire::edge;

use super::{Desk, hands, message, pod};

#[test]
fn messages_go_both_ways_and_what_has_left_is_counted() {
    let mut desk = Desk::up("both");
    for number in 0..20 {
        desk.send(&format!("up {number}"));
    }
    let mut sent = 0;
    while sent < 20 {
        sent += desk.until(|event| match event {
            Event::Sent(Session(1), count) => Some(*count),
            _ => None,
        });
    }
    desk.cloud.wait("the last", |told| told.0["content"] == "up 19");
    let told: Vec<_> = desk.cloud.told().iter().map(|told| told.0["content"].clone()).collect();
    let expected: Vec<_> = (0..20).map(|number| format!("up {number}")).collect();
    assert_eq!(told, expected);

    let ids: Vec<_> =
        (0..100).map(|at| desk.cloud.put(&format!("ns/pod/p{at}"), pod(10))).collect();
    for id in ids {
        assert_eq!(*desk.heard().header.id, *id);
    }
}

#[test]
fn fragments_and_single_bytes_make_whole_messages() {
    let mut desk = Desk::up("fragments");
    for (fragment, size) in [(4_082, 20_000), (1, 700), (125, 3_000), (1 << 20, 100_000)] {
        desk.cloud.script(|script| script.fragment = fragment);
        let id = desk.cloud.put("ns/pod/web", pod(size));
        let message = desk.heard();
        assert_eq!(*message.header.id, *id, "{fragment}");
        assert!(message.content.as_ref().is_some_and(|content| content.get().len() > size));
    }
    desk.cloud.script(|script| {
        script.fragment = 50;
        script.drip = Some(Duration::from_micros(100));
    });
    let id = desk.cloud.put("ns/pod/web", pod(10));
    assert_eq!(*desk.heard().header.id, *id);
}

#[test]
fn a_turn_takes_a_part_of_a_flood_and_the_next_one_the_rest() {
    let mut desk = Desk::up("flood");
    let count = 3 * CLOUD_TURN_MESSAGES;
    for at in 0..count {
        desk.cloud.put(&format!("ns/pod/p{at}"), pod(1));
    }
    let mut came = 0;
    while came < count {
        desk.turn(20);
        let is = |event: &&Event| matches!(event, Event::Cloud(..));
        let now = desk.events.iter().filter(is).count();
        assert!(now <= CLOUD_TURN_MESSAGES, "{now} in one turn");
        let heard = desk.events.iter().filter(|event| matches!(event, Event::Heard(_))).count();
        assert!(heard <= 1, "it is told once a turn that somebody is there");
        came += now;
        desk.events.clear();
    }
}

#[test]
fn a_cloud_that_takes_nothing_is_left_and_the_memory_is_bounded() {
    let mut desk = Desk::up("stuck");
    desk.cloud.script(|script| script.frozen = true);
    let text = "x".repeat(64 << 10);
    let mut asked = 0;
    while desk.events.is_empty() {
        desk.send(&text);
        asked += text.len();
        // What the kernel takes, and what we do.
        assert!(asked < 16 << 20, "it takes without an end");
        desk.events.retain(|event| !matches!(event, Event::Sent(..)));
    }
    let why = desk.down();
    assert!(why.contains(": the cloud does not read: "), "{why}");
    assert_eq!(desk.hands.wake_at(), None);

    let mut desk = Desk::up("slow");
    desk.cloud.script(|script| script.frozen = true);
    // The kernel grows its buffers a while before it takes no more either.
    while !desk.events.iter().any(|event| matches!(event, Event::LinkDown(..))) {
        if desk.hands.wake_at().is_none() {
            desk.send(&text);
        }
        desk.turn(20);
    }
    let why = desk.down();
    assert!(why.ends_with(": the cloud did not read for 1 s"), "{why}");
}

#[test]
fn what_waits_for_the_cloud_has_a_bound() {
    let head_bytes = edge::encode(&message("")).len();
    for (more, fits) in [(0, true), (1, false)] {
        let mut desk = Desk::up("bound");
        let text = "x".repeat(CLOUD_OUTPUT_BYTES_MAX - head_bytes + more);
        desk.hands.send(Session(1), &message(&text), &mut desk.events);
        assert_eq!(desk.events.is_empty(), fits, "{:?}", desk.events);
        desk.hands.send(Session(1), &message(""), &mut desk.events);
        let why = desk.down();
        assert!(why.contains(": the cloud does not read: "), "{why}");
    }
}

#[test]
fn what_waited_leaves_when_the_cloud_reads_again() {
    let mut desk = Desk::joined("again");
    desk.link.write_timeout_ms = 20_000;
    desk.hands = hands(&desk.link);
    desk.dial(1).expect("it connects");
    desk.settle();
    desk.cloud.script(|script| script.frozen = true);
    let text = "x".repeat(60 << 10);
    let mut asked = 0;
    while desk.hands.wake_at().is_none() {
        desk.send(&text);
        asked += 1;
    }
    desk.cloud.script(|script| script.frozen = false);
    let sent = |desk: &Desk| -> usize {
        let count = |event: &Event| if let Event::Sent(_, count) = event { *count } else { 0 };
        desk.events.iter().map(count).sum()
    };
    while sent(&desk) < asked {
        desk.turn(20);
    }
    desk.cloud.counted(asked);
    assert!(desk.cloud.told().iter().all(|told| told.0["content"] == text));
}

#[test]
fn a_ping_is_answered_though_nobody_says_anything() {
    let mut desk = Desk::up("ping");
    desk.hands.ping(Session(1), &mut desk.events);
    desk.hands.flush(clock::boot(), &mut desk.events);
    desk.until(|event| matches!(event, Event::Heard(Session(1))).then_some(()));
}

#[test]
fn the_end_of_a_link_is_told_once_and_a_hang_up_not_at_all() {
    let mut desk = Desk::up("ends");
    desk.cloud.drop_link();
    let why = desk.down();
    assert_eq!(why, format!("{}: the cloud closed the connection", desk.link.server));
    desk.send("nobody hears it");
    desk.turn(5);
    assert!(desk.events.is_empty(), "{:?}", desk.events);

    desk.dial(2).expect("it connects again");
    desk.hands.hangup(Session(1));
    assert!(desk.cloud.connected(2).path.starts_with('/'), "another session's is not ours");
    desk.hands.hangup(Session(2));
    desk.cloud.left_alone();
    desk.turn(5);
    assert!(desk.events.is_empty() && desk.hands.wake_at().is_none(), "{:?}", desk.events);

    // A dial ends the session before it.
    desk.dial(3).expect("it connects");
    desk.dial(4).expect("it connects");
    desk.cloud.connected(4);
    desk.cloud.drop_link();
    let name =
        |event: &Event| if let Event::LinkDown(name, _) = event { Some(*name) } else { None };
    assert_eq!(desk.until(name), Session(4));
}
