//! WebSocket frames: real bytes, cut everywhere, too large, and invalid.

use edged::wire::ws::{Incoming, Kind, Receiver, Violation, write, write_plain};

const MAX: usize = 1_000;

/// Everything that these pieces complete.
fn all(pieces: &[&[u8]]) -> Result<Vec<Incoming>, Violation> {
    taken(Receiver::new(MAX), pieces)
}

fn taken(mut receiver: Receiver, pieces: &[&[u8]]) -> Result<Vec<Incoming>, Violation> {
    let mut found = Vec::new();
    for piece in pieces {
        let mut rest = *piece;
        loop {
            let (taken, incoming) = receiver.receive(rest)?;
            rest = &rest[taken..];
            match incoming {
                Some(incoming) => found.push(incoming),
                None if rest.is_empty() => break,
                None => assert!(taken > 0, "it stands still"),
            }
        }
    }
    Ok(found)
}

/// A server's frame.
fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![first];
    match payload.len() {
        length @ ..126 => bytes.push(length as u8),
        length @ ..65_536 => {
            bytes.push(126);
            bytes.extend((length as u16).to_be_bytes());
        }
        length => {
            bytes.push(127);
            bytes.extend((length as u64).to_be_bytes());
        }
    }
    bytes.extend(payload);
    bytes
}

fn message(text: &str) -> Incoming {
    Incoming::Message(text.as_bytes().to_vec())
}

#[test]
fn the_two_ways_in_which_go_fragments_are_read() {
    // A full buffer and the rest; and a whole message followed by an empty frame.
    let (large, whole) = ("a".repeat(900), "b".repeat(500));
    let bytes = [
        frame(0x01, &large.as_bytes()[..700]),
        frame(0x80, &large.as_bytes()[700..]),
        frame(0x01, whole.as_bytes()),
        frame(0x80, b""),
    ]
    .concat();
    let expected = vec![message(&large), message(&whole)];
    assert_eq!(all(&[&bytes]), Ok(expected.clone()));
    for at in 0..=bytes.len() {
        assert_eq!(all(&[&bytes[..at], &bytes[at..]]), Ok(expected.clone()), "cut at {at}");
    }
    let single: Vec<&[u8]> = bytes.chunks(1).collect();
    assert_eq!(all(&single), Ok(expected));
}

#[test]
fn control_frames_stand_between_fragments() {
    let bytes = [
        frame(0x01, b"one "),
        frame(0x89, b"are you there"),
        frame(0x00, b""),
        frame(0x8a, b""),
        frame(0x80, b"message"),
        frame(0x82, b"bytes"),
        frame(0x88, &[0x03, 0xe9, b'b', b'y', b'e']),
        frame(0x88, b""),
    ]
    .concat();
    let expected = vec![
        Incoming::Ping(b"are you there".to_vec()),
        Incoming::Pong,
        message("one message"),
        message("bytes"),
        Incoming::Close(Some(1001), "bye".to_owned()),
        Incoming::Close(None, String::new()),
    ];
    assert_eq!(all(&[&bytes]), Ok(expected));
}

#[test]
fn what_is_too_large_is_passed_over_and_the_next_is_read() {
    let bytes = [
        frame(0x81, &[b'x'; MAX + 1]),
        frame(0x81, b"next"),
        // Too large only with its third part.
        frame(0x01, &[b'x'; MAX - 1]),
        frame(0x00, b"x"),
        frame(0x00, b"x"),
        frame(0x80, b"x"),
        frame(0x81, &[b'y'; MAX]),
    ]
    .concat();
    let expected = vec![
        Incoming::TooLarge(MAX as u64 + 1),
        message("next"),
        Incoming::TooLarge(MAX as u64 + 2),
        message(&"y".repeat(MAX)),
    ];
    for size in [1, 7, 999, bytes.len()] {
        let pieces: Vec<&[u8]> = bytes.chunks(size).collect();
        assert_eq!(all(&pieces), Ok(expected.clone()), "pieces of {size}");
    }
}

#[test]
fn what_breaks_the_rules_ends_it() {
    for (bytes, expected) in [
        (&[0xc1, 0][..], "got the head 0xc1, expected no reserved bit"),
        (&[0x81, 0x80, 0, 0, 0, 0], "got a masked frame"),
        (&[0x80, 0], "got a continuation"),
        (&[0x01, 0, 0x81, 0], "got another message"),
        (&[0x09, 0], "got a control frame"),
        (&[0x89, 126, 0, 126], "got a control frame of 126 bytes"),
        (&[0x83, 0], "got the opcode 0x3"),
        (&[0x8b, 0], "got the opcode 0xb"),
        (&[0x81, 127, 0xff, 0, 0, 0, 0, 0, 0, 0], "got a message of 18374686479671623680 bytes"),
        (&[0x01, 0, 0x80, 127, 0, 0, 0, 0, 0xff, 0, 0, 0], "expected 16000 at most"),
    ] {
        match all(&[bytes]) {
            Err(Violation(why)) => assert!(why.contains(expected), "{why}\n{expected}"),
            other => panic!("{bytes:x?}: {other:?}"),
        }
    }
}

#[test]
fn the_keepalive_is_written_byte_for_byte() {
    let text = "{\"header\":{\"msg_id\":\"5ac8a0d6-2f5d-4f2a-9a57-5f0f3c0f1b11\",\"timestamp\":\
        1700000000000},\"route\":{\"source\":\"websocket\",\"group\":\"resource\",\"operation\":\
        \"keepalive\",\"resource\":\"node\"},\"content\":\"ping\"}\n";
    let mut bytes = Vec::new();
    write(Kind::Text, text.as_bytes(), [0x37, 0xfa, 0x21, 0x3d], &mut bytes);
    let expected = [
        0x81, 0xfe, 0x00, 0xc4, 0x37, 0xfa, 0x21, 0x3d, 0x4c, 0xd8, 0x49, 0x58, 0x56, 0x9e, 0x44,
        0x4f, 0x15, 0xc0, 0x5a, 0x1f, 0x5a, 0x89, 0x46, 0x62,
    ];
    assert_eq!((bytes.len(), &bytes[..expected.len()]), (8 + 196, &expected[..]));
    for (kind, size, head) in [
        (Kind::Ping, 0, &[0x89, 0x80][..]),
        (Kind::Pong, 125, &[0x8a, 0xfd]),
        (Kind::Close, 2, &[0x88, 0x82]),
        (Kind::Text, 65_536, &[0x81, 0xff, 0, 0, 0, 0, 0, 1, 0, 0]),
    ] {
        let mut bytes = Vec::new();
        write(kind, &vec![7; size], [7; 4], &mut bytes);
        assert!(bytes.starts_with(head), "{bytes:x?}");
        assert_eq!(bytes.len(), head.len() + 4 + size);
        assert!(bytes[head.len() + 4..].iter().all(|byte| *byte == 0), "it is masked");
    }
}

#[test]
fn a_server_reads_what_a_client_masked_wherever_it_is_cut() {
    let (small, large) = ("a".repeat(125), "bc".repeat(400));
    let mut bytes = Vec::new();
    write(Kind::Text, small.as_bytes(), [0x37, 0xfa, 0x21, 0x3d], &mut bytes);
    write(Kind::Ping, b"now", [1, 2, 3, 4], &mut bytes);
    write(Kind::Text, large.as_bytes(), [0, 0, 0, 9], &mut bytes);
    let expected = vec![message(&small), Incoming::Ping(b"now".to_vec()), message(&large)];
    assert_eq!(taken(Receiver::of_client(MAX), &[&bytes]), Ok(expected.clone()));
    for size in 1..40 {
        let pieces: Vec<&[u8]> = bytes.chunks(size).collect();
        assert_eq!(taken(Receiver::of_client(MAX), &pieces), Ok(expected.clone()), "{size}");
    }
}

#[test]
fn each_end_refuses_the_frames_of_its_own_kind() {
    let (mut plain, mut masked) = (Vec::new(), Vec::new());
    write_plain(Kind::Text, b"{}", &mut plain);
    write(Kind::Text, b"{}", [1, 2, 3, 4], &mut masked);
    assert_eq!(plain, [0x81, 2, b'{', b'}']);
    assert_eq!(all(&[&plain]), Ok(vec![message("{}")]));
    assert_eq!(taken(Receiver::of_client(MAX), &[&masked]), Ok(vec![message("{}")]));
    assert!(all(&[&masked]).is_err());
    plain.extend([0; 8]);
    let why = taken(Receiver::of_client(MAX), &[&plain]).expect_err("it has no mask");
    assert_eq!(why.0, "got an unmasked frame, expected a mask from a client");
}

#[test]
fn what_a_server_writes_is_what_go_writes() {
    for length in [0, 125, 126, 900] {
        let text = "x".repeat(length);
        let mut bytes = Vec::new();
        write_plain(Kind::Text, text.as_bytes(), &mut bytes);
        assert_eq!(bytes, frame(0x81, text.as_bytes()));
    }
}
