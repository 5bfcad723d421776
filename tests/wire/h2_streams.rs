//! Connections and streams: header blocks in pieces, PING, SETTINGS, GOAWAY, RST_STREAM, and the
//! limit of streams.

use edged::limits;
use edged::wire::grpc::{Begun, CallKey, Client, Code, Event, Lost, Refused, Status};
use edged::wire::h2;

use crate::peer::{
    self, CONTINUATION, DATA, END_HEADERS, END_STREAM, HEADERS, PADDED, PING, PRIORITIZED,
    RST_STREAM, SETTINGS, block, client, client_with_calls, events, frame, go_away, head, message,
    reply, rst_stream, settings, trailers, written,
};

const PATH: &str = "/test.Service/Method";

fn replied(key: u64, bytes: &[u8]) -> Event {
    Event::Reply(CallKey(key), bytes.to_vec())
}

fn lost(key: u64, begun: Begun, why: &str) -> Event {
    Event::Lost(CallKey(key), Lost { begun, why: why.to_owned() })
}

fn failed(key: u64, code: Code, message: &str) -> Event {
    Event::Failed(CallKey(key), Status { code, message: message.to_owned() })
}

#[test]
fn header_blocks_come_in_pieces() {
    let text = "a".repeat(40_000);
    let fields = block(&[("grpc-status", "5"), ("grpc-message", &text)]);
    for piece in [1, 7, 1_000, 16_384] {
        let mut client = client_with_calls(1);
        let mut pieces = fields.chunks(piece).peekable();
        let first = pieces.next().unwrap();
        client.receive(&frame(HEADERS, END_STREAM, 1, first)).unwrap();
        while let Some(part) = pieces.next() {
            let flags = if pieces.peek().is_none() { END_HEADERS } else { 0 };
            let received = client.receive(&frame(CONTINUATION, flags, 1, part));
            if piece == 1 && received.is_err() {
                // 40,000 frames of one byte each exceed the limit, with their heads.
                break;
            }
            received.unwrap();
        }
        let got = events(&mut client);
        if piece == 1 {
            assert_eq!(got, [lost(1, Begun::Perhaps, &too_large_a_block())]);
        } else {
            let Event::Failed(_, status) = &got[0] else { panic!("{got:?}") };
            assert_eq!(status.code, Code::NotFound);
            assert!(status.message.starts_with(&text[..limits::CRI_STATUS_TEXT_BYTES_MAX]));
            assert!(status.message.ends_with("… (31808 bytes cut)"));
        }
    }
}

fn too_large_a_block() -> String {
    let max = limits::CRI_HEADER_BLOCK_BYTES_MAX;
    format!(
        "server's CONTINUATION on stream 1: header block is too large, expected at most {max} \
         bytes (ENHANCE_YOUR_CALM)"
    )
}

#[test]
fn a_header_block_has_a_bound_that_counts_the_heads_of_its_frames() {
    const HEAD_BYTES: usize = 9;
    const FRAME_BYTES: usize = 16_384;
    for beyond in [0, 1] {
        let fields = block(peer::HEAD_FIELDS);
        let mut client = client_with_calls(1);
        client.receive(&frame(HEADERS, 0, 1, &fields)).unwrap();
        let mut left = limits::CRI_HEADER_BLOCK_BYTES_MAX + beyond - HEAD_BYTES - fields.len();
        while left > HEAD_BYTES + FRAME_BYTES {
            left -= HEAD_BYTES + FRAME_BYTES;
            client.receive(&frame(CONTINUATION, 0, 1, &literals(FRAME_BYTES))).unwrap();
        }
        let last = literals(left - HEAD_BYTES);
        let received = client.receive(&frame(CONTINUATION, END_HEADERS, 1, &last));
        if beyond == 0 {
            received.unwrap();
            let rest = [frame(DATA, 0, 1, &message(b"yes")), trailers(1, "0", "")].concat();
            client.receive(&rest).unwrap();
            assert_eq!(events(&mut client), [replied(1, b"yes")]);
        } else {
            assert_eq!(received.unwrap_err().to_string(), too_large_a_block());
        }
    }
}

/// Header fields of this size in a block.
fn literals(bytes: usize) -> Vec<u8> {
    // Without a name, and with a value of the length that is missing.
    let mut fields = [0, 0, 0].repeat(bytes / 3 - 1);
    let rest = bytes - fields.len() - 3;
    fields.extend([0, 0, rest as u8]);
    fields.resize(bytes, b'x');
    fields
}

/// What is longer than the list that was announced is dropped, and the call fails without it.
#[test]
fn a_field_beyond_the_announced_header_list_costs_nothing_but_itself() {
    const FIELD_BYTES: usize = 32;
    let max = limits::CRI_HEADER_LIST_BYTES_MAX;
    let mut fresh = Client::new(h2::Config::default());
    let greeting = written(&mut fresh);
    let announced = [&[0, 6][..], &(max as u32).to_be_bytes()].concat();
    assert!(greeting[0].payload.chunks(6).any(|entry| entry == announced), "{greeting:?}");
    let status = ("grpc-status", "5");
    let status_bytes = FIELD_BYTES + status.0.len() + status.1.len();
    let text_bytes = max - status_bytes - FIELD_BYTES - "grpc-message".len();
    for beyond in [0, 1] {
        let text = "a".repeat(text_bytes + beyond);
        let fields = block(&[status, ("grpc-message", &text)]);
        let mut client = client_with_calls(1);
        let mut pieces = fields.chunks(16_384).peekable();
        client.receive(&frame(HEADERS, END_STREAM, 1, pieces.next().unwrap())).unwrap();
        while let Some(part) = pieces.next() {
            let flags = if pieces.peek().is_none() { END_HEADERS } else { 0 };
            client.receive(&frame(CONTINUATION, flags, 1, part)).unwrap();
        }
        let got = events(&mut client);
        let [Event::Failed(CallKey(1), Status { code, message })] = &got[..] else {
            panic!("{got:?}")
        };
        assert_eq!(*code, Code::NotFound);
        assert_eq!(message.starts_with("aaa"), beyond == 0, "{message}");
    }
}

#[test]
fn headers_may_have_padding_and_priority() {
    let fields = block(peer::HEAD_FIELDS);
    let mut client = client_with_calls(1);
    let padded = [&[3, 0, 0, 0, 0, 16][..], &fields, &[0, 0, 0]].concat();
    let flags = END_HEADERS | PADDED | PRIORITIZED;
    client.receive(&frame(HEADERS, flags, 1, &padded)).unwrap();
    let data = [&[4][..], &message(b"yes"), &[0; 4]].concat();
    client.receive(&frame(DATA, PADDED, 1, &data)).unwrap();
    client.receive(&trailers(1, "0", "")).unwrap();
    assert_eq!(events(&mut client), [replied(1, b"yes")]);
}

#[test]
fn a_1xx_response_is_skipped() {
    let mut client = client_with_calls(1);
    let early = block(&[(":status", "103")]);
    client.receive(&frame(HEADERS, END_HEADERS, 1, &early)).unwrap();
    client.receive(&reply(1, b"yes")).unwrap();
    assert_eq!(events(&mut client), [replied(1, b"yes")]);
}

#[test]
fn frames_without_meaning_here_are_ignored() {
    let mut client = client_with_calls(1);
    for ignored in [
        frame(peer::PRIORITY, 0, 1, &[0; 5]),
        frame(0x0a, 0xff, 0, b"ALTSVC"),
        frame(0xfe, 0, 1, &[0; 16_384]),
        frame(PING, peer::ACK, 0, &[0; 8]),
        settings(&[(3, 100), (6, 1), (0x4d4d, 1)]),
        rst_stream(1, 0)[..0].to_vec(),
    ] {
        client.receive(&ignored).unwrap();
    }
    client.receive(&reply(1, b"yes")).unwrap();
    assert_eq!(events(&mut client), [replied(1, b"yes")]);
    let wrote = written(&mut client);
    assert_eq!(wrote.len(), 1);
    assert_eq!((wrote[0].kind, wrote[0].flags), (SETTINGS, peer::ACK));
}

#[test]
fn pings_are_answered_with_their_own_bytes() {
    let mut client = client_with_calls(0);
    client.receive(&frame(PING, 0, 0, b"12345678")).unwrap();
    let wrote = written(&mut client);
    assert_eq!((wrote.len(), wrote[0].kind, wrote[0].flags), (1, PING, peer::ACK));
    assert_eq!(wrote[0].payload, b"12345678");
}

/// RFC 7541 section 4.2: a server that changes its table wants to hear what we make of it.
#[test]
fn a_changed_header_table_is_given_up_once() {
    let mut client = client(&[(1, 100)]);
    for first in [0x20, 0x00] {
        client.unary(CallKey(first), PATH, b"").unwrap();
        assert_eq!(u64::from(written(&mut client)[0].payload[0]), first);
    }
}

#[test]
fn going_away_refuses_what_was_not_begun_and_lets_the_rest_end() {
    let mut client = client_with_calls(3);
    client.receive(&go_away(3, 0, b"bye")).unwrap();
    let why = "server is going away";
    assert_eq!(events(&mut client), [lost(5, Begun::Never, why)]);
    assert_eq!(client.closing(), Some("server is going away: NO_ERROR \"bye\""));
    assert_eq!(client.unary(CallKey(9), PATH, b""), Err(Refused::Closing));
    client.receive(&reply(3, b"three")).unwrap();
    // The second GOAWAY of a graceful end names a lower stream.
    client.receive(&go_away(0, 0, b"")).unwrap();
    let got = events(&mut client);
    assert_eq!(got, [replied(3, b"three"), lost(1, Begun::Never, why)]);
    assert_eq!(client.calls(), 0);
}

#[test]
fn going_away_loses_what_waits_for_a_stream() {
    let mut client = client(&[(3, 1)]);
    client.unary(CallKey(1), PATH, b"").unwrap();
    client.unary(CallKey(2), PATH, b"").unwrap();
    client.receive(&go_away(0x7fff_ffff, 11, b"too_many_pings")).unwrap();
    let why = "server is going away: ENHANCE_YOUR_CALM \"too_many_pings\"";
    assert_eq!(events(&mut client), [lost(2, Begun::Never, why)]);
    client.receive(&reply(1, b"one")).unwrap();
    assert_eq!(events(&mut client), [replied(1, b"one")]);
}

#[test]
fn a_reset_is_a_status() {
    let mut client = client_with_calls(4);
    for (stream, code) in [(1, 2), (3, 8), (5, 11), (7, 7)] {
        client.receive(&rst_stream(stream, code)).unwrap();
    }
    let why = "server reset the stream: ";
    assert_eq!(
        events(&mut client),
        [
            failed(1, Code::Internal, &format!("{why}INTERNAL_ERROR")),
            failed(3, Code::Cancelled, &format!("{why}CANCEL")),
            failed(5, Code::ResourceExhausted, &format!("{why}ENHANCE_YOUR_CALM")),
            lost(7, Begun::Never, &format!("{why}REFUSED_STREAM")),
        ]
    );
}

#[test]
fn what_comes_after_the_end_is_ignored() {
    let mut client = client_with_calls(2);
    client.receive(&trailers(1, "5", "gone")).unwrap();
    client.receive(&rst_stream(1, 0)).unwrap();
    client.receive(&reply(1, b"late")).unwrap();
    client.receive(&peer::window_update(1, 5)).unwrap();
    client.cancel(CallKey(3));
    client.receive(&reply(3, b"late")).unwrap();
    assert_eq!(events(&mut client), [failed(1, Code::NotFound, "gone")]);
    let wrote = written(&mut client);
    assert_eq!((wrote.len(), wrote[0].kind, wrote[0].stream), (1, RST_STREAM, 3));
    assert_eq!(wrote[0].number(), 8);
}

/// The table is the connection's: the block of a stream that was given up still counts.
#[test]
fn the_header_table_outlives_a_cancelled_stream() {
    let config = h2::Config { header_table_bytes: 4096, ..h2::Config::default() };
    let mut client = Client::new(config);
    client.receive(&settings(&[])).unwrap();
    client.unary(CallKey(1), PATH, b"").unwrap();
    client.unary(CallKey(3), PATH, b"").unwrap();
    client.cancel(CallKey(1));
    let indexed = b"\x88\x5f\x10application/grpc";
    client.receive(&frame(HEADERS, END_HEADERS, 1, indexed)).unwrap();
    client.receive(&frame(HEADERS, END_HEADERS, 3, b"\x88\xbe")).unwrap();
    client.receive(&frame(DATA, 0, 3, &message(b"yes"))).unwrap();
    client.receive(&trailers(3, "0", "")).unwrap();
    assert_eq!(events(&mut client), [replied(3, b"yes")]);
}

#[test]
fn calls_beyond_the_servers_bound_wait_their_turn() {
    let mut client = client(&[(3, 2)]);
    for key in 1..=5 {
        client.unary(CallKey(key), PATH, &[key as u8]).unwrap();
    }
    let opened = |client: &mut Client| -> Vec<u32> {
        let frames = written(client);
        frames.iter().filter(|frame| frame.kind == HEADERS).map(|frame| frame.stream).collect()
    };
    assert_eq!(opened(&mut client), [1, 3]);
    assert_eq!(client.calls(), 5);
    client.receive(&reply(3, b"two")).unwrap();
    assert_eq!(opened(&mut client), [5]);
    // A waiting call and an open one are cancelled: the last one takes the free place.
    client.cancel(CallKey(4));
    client.cancel(CallKey(1));
    assert_eq!(opened(&mut client), [7]);
    client.receive(&reply(7, b"five")).unwrap();
    client.receive(&reply(5, b"three")).unwrap();
    assert_eq!(
        events(&mut client),
        [replied(2, b"two"), replied(5, b"five"), replied(3, b"three")]
    );
    assert_eq!(client.calls(), 0);
    client.receive(&settings(&[(3, 0)])).unwrap();
    client.unary(CallKey(6), PATH, b"").unwrap();
    assert_eq!(opened(&mut client), [0u32; 0]);
    client.receive(&settings(&[(3, 1)])).unwrap();
    assert_eq!(opened(&mut client), [9]);
}

#[test]
fn the_queue_of_waiting_calls_has_a_bound() {
    let mut client = client(&[(3, 0)]);
    for key in 0..limits::CRI_CALLS_WAITING_MAX as u64 {
        client.unary(CallKey(key), PATH, b"").unwrap();
    }
    let refused = client.unary(CallKey(1_000), PATH, b"").unwrap_err();
    assert_eq!(refused, Refused::Full { max: limits::CRI_CALLS_WAITING_MAX });
    assert_eq!(refused.to_string(), "300 calls wait for the runtime, expected fewer");
    client.cancel(CallKey(0));
    client.unary(CallKey(1_000), PATH, b"").unwrap();
}

/// Without a limit of the server, ours applies.
#[test]
fn open_streams_have_a_bound() {
    let mut client = client(&[]);
    client.receive(&peer::window_update(0, 1 << 20)).unwrap();
    let mut opened = 0;
    for key in 0..500 {
        client.unary(CallKey(key), PATH, &[0; 1_000]).unwrap();
        opened += written(&mut client).iter().filter(|frame| frame.kind == HEADERS).count();
    }
    assert_eq!((opened, client.calls()), (limits::CRI_STREAMS_MAX, 500));
}

/// A server that does not read is not written to without end, and gets it all once it does.
#[test]
fn the_output_has_a_bound() {
    let mut client = client(&[]);
    client.receive(&peer::window_update(0, 1 << 20)).unwrap();
    for key in 0..300 {
        client.unary(CallKey(key), PATH, &[0; 1_000]).unwrap();
        assert!(client.output().len() < limits::CRI_OUTPUT_BYTES_MAX);
    }
    let frames = written(&mut client);
    let ends = frames.iter().filter(|frame| frame.kind == DATA && frame.is_end()).count();
    assert_eq!(ends, 300);
}

#[test]
fn a_hangup_loses_every_call() {
    let mut client = client(&[(3, 1)]);
    client.unary(CallKey(1), PATH, b"").unwrap();
    client.stream(CallKey(2), PATH, b"").unwrap();
    client.receive(&head(1)).unwrap();
    client.hangup("end of file");
    let why = "end of file";
    assert_eq!(events(&mut client), [lost(2, Begun::Never, why), lost(1, Begun::Perhaps, why)]);
    assert_eq!(client.closing(), Some(why));
    assert_eq!(client.unary(CallKey(3), PATH, b""), Err(Refused::Closing));
    client.cancel(CallKey(1));
}

#[test]
fn stream_events_come_as_they_are() {
    let mut client = client(&[]);
    client.stream(CallKey(1), PATH, b"watch").unwrap();
    written(&mut client);
    client.receive(&head(1)).unwrap();
    let two = [message(b"one"), message(b""), message(b"two")].concat();
    let (first, second) = two.split_at(6);
    client.receive(&frame(DATA, 0, 1, first)).unwrap();
    assert_eq!(events(&mut client), []);
    client.receive(&frame(DATA, 0, 1, second)).unwrap();
    let item = |bytes: &[u8]| Event::Message(CallKey(1), bytes.to_vec());
    assert_eq!(events(&mut client), [item(b"one"), item(b""), item(b"two")]);
    client.receive(&trailers(1, "0", "")).unwrap();
    assert_eq!(events(&mut client), [Event::Done(CallKey(1))]);
}
