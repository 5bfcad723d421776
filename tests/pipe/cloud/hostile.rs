//! A hostile or broken cloud: its messages cost itself, or the link, and never more memory than one
//! message may have.

use edged::agent::event::Event;
use edged::limits::MESSAGE_BYTES_MAX;
use edged::model::downstream::Down;
use edged::model::link::Session;

use super::{Fixture, pod};

/// The head of a server's frame with this length, whatever follows.
fn head(first: u8, length: u64) -> Vec<u8> {
    let mut bytes = vec![first, 127];
    bytes.extend(length.to_be_bytes());
    bytes
}

fn frame(payload: &[u8]) -> Vec<u8> {
    [head(0x81, payload.len() as u64), payload.to_vec()].concat()
}

/// The peak memory of this process, bytes.
fn peak() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux has it");
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).expect("it is there");
    line.split_whitespace().nth(1).and_then(|size| size.parse::<usize>().ok()).expect("kB") << 10
}

#[test]
fn a_message_that_cannot_be_read_costs_itself() {
    let mut fixture = Fixture::up("unread");
    let deep = format!("{{\"content\":{}1{}}}", "[".repeat(200_000), "]".repeat(200_000));
    for bytes in [
        b"".to_vec(),
        b"no JSON".to_vec(),
        b"{\"header\":{\"msg_id\":7}}".to_vec(),
        b"{\"header\":{\"msg_id\":\"\xff\xfe\"}}".to_vec(),
        b"{\"header\":{\"msg_id\":\"".to_vec(),
        b"{\"content\":\"\xc3\"}".to_vec(),
        vec![b'['; 100_000],
        vec![b' '; MESSAGE_BYTES_MAX + 1],
    ] {
        fixture.cloud.raw(frame(&bytes));
        let id = fixture.cloud.put("ns/pod/web", pod(1));
        assert_eq!(*fixture.next_message().origin.id, *id, "{:?}", bytes.first());
    }
    // This one is only large: nothing here parses it.
    fixture.cloud.raw(frame(deep.as_bytes()));
    assert!(matches!(fixture.next_message().content, Down::Unsupported));
}

#[test]
fn what_breaks_the_rules_costs_the_link() {
    for (bytes, expected) in [
        (vec![0xc1, 0], "got the head 0xc1, expected no reserved bit"),
        (vec![0x81, 0x85, 1, 2, 3, 4, 0, 0, 0, 0, 0], "got a masked frame"),
        (vec![0x83, 0], "got the opcode 0x3"),
        (head(0x81, 1 << 40), "got a message of 1099511627776 bytes, expected"),
        (b"\x88\x05\x03\xe9bye".to_vec(), "the cloud closed the connection (1001): \"bye\""),
    ] {
        let mut fixture = Fixture::up("rules");
        fixture.cloud.raw(bytes);
        let why = fixture.down();
        assert!(why.contains(expected), "{why}\n{expected}");
    }
}

#[test]
fn no_flood_takes_more_memory_than_messages_may_have() {
    let mut fixture = Fixture::up("memory");
    let before = peak();
    // Announced and not sent; sent and too large; in a thousand parts; of the largest size.
    fixture.cloud.raw(frame(&vec![b'x'; 8 * MESSAGE_BYTES_MAX]));
    fixture.cloud.raw(head(0x01, 4));
    fixture.cloud.raw(b"[[[[".to_vec());
    for _ in 0..1_000 {
        fixture.cloud.raw([&[0x00, 126, 0x20, 0x00][..], &[b'['; 0x2000]].concat());
    }
    fixture.cloud.raw(vec![0x80, 0]);
    for _ in 0..10_000 {
        fixture.cloud.raw(vec![0x89, 0]);
    }
    let id = fixture.cloud.put("ns/pod/web", pod(1));
    assert_eq!(*fixture.next_message().origin.id, *id);
    // The cloud runs in this process too: its sent bytes exist once more, in its queue and outside.
    let sent = 8 * MESSAGE_BYTES_MAX + 1_000 * 0x2000;
    let took = peak().saturating_sub(before);
    assert!(took < 3 * sent + 4 * MESSAGE_BYTES_MAX, "{took} bytes");
    let next_message = |event: &Event| matches!(event, Event::LinkActive(Session(1))).then_some(());
    fixture.cloud.raw(vec![0x8a, 0]);
    fixture.until(next_message);
}
