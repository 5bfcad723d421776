//! Violations: each ends the connection with a text that names the fault, what was got and what was
//! expected; the server is informed by a GOAWAY; every call is lost.

use edged::wire::grpc::{Begun, CallKey, Client, Event, Lost};
use edged::wire::h2;

use crate::peer::{
    self, CONTINUATION, DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, PADDED, PING, PRIORITIZED,
    PRIORITY, PUSH_PROMISE, RST_STREAM, SETTINGS, WINDOW_UPDATE, client_with_calls, events, frame,
    frames, head, settings, window_update,
};

/// Feeds `bytes` to a client with a call on stream 1, and again split at every byte.
fn error(bytes: &[u8]) -> String {
    let whole = failure(client_with_calls(1), &[bytes]);
    for cut in 1..bytes.len().min(64) {
        let (first, second) = bytes.split_at(cut);
        assert_eq!(failure(client_with_calls(1), &[first, second]), whole);
    }
    whole
}

fn failure(mut client: Client, parts: &[&[u8]]) -> String {
    let error = parts.iter().find_map(|part| client.receive(part).err());
    let error = error.expect("an error");
    let lost = Lost { begun: Begun::Perhaps, why: error.to_string() };
    assert_eq!(events(&mut client), [Event::Lost(CallKey(1), lost)]);
    let farewell = frames(client.output()).pop().expect("the server is informed");
    assert_eq!((farewell.kind, &farewell.payload[..4]), (GOAWAY, &[0; 4][..]));
    assert_eq!(farewell.payload[4..], error.code.0.to_be_bytes());
    assert_eq!(client.receive(&peer::reply(1, b"late")), Err(error.clone()), "it stays so");
    assert_eq!(client.poll_event(), None);
    error.to_string()
}

fn check(table: &[(Vec<u8>, &str)]) {
    for (bytes, expected) in table {
        assert_eq!(error(bytes), *expected);
    }
}

#[test]
fn another_protocol_is_recognised() {
    let mut client = Client::new(h2::Config::default());
    let error = client.receive(b"HTTP/1.1 400 Bad Request\r\n\r\n").unwrap_err();
    assert_eq!(
        error.to_string(),
        "server's frame of type 0x50 on stream 825110816: first frame is not the expected \
         SETTINGS: does it speak HTTP/2? (PROTOCOL_ERROR)"
    );
    let mut client = Client::new(h2::Config::default());
    let error = client.receive(&frame(SETTINGS, peer::ACK, 0, &[])).unwrap_err();
    assert_eq!(error.problem, h2::Problem::NotHttp2);
}

#[test]
fn lengths_are_those_of_the_type() {
    check(&[
        (
            frame(PING, 0, 0, &[0; 7]),
            "server's PING on stream 0: length is 7, expected 8 (FRAME_SIZE_ERROR)",
        ),
        (
            frame(SETTINGS, 0, 0, &[0; 7]),
            "server's SETTINGS on stream 0: length is 7, expected a multiple of 6 \
             (FRAME_SIZE_ERROR)",
        ),
        (
            frame(SETTINGS, peer::ACK, 0, &[0; 6]),
            "server's SETTINGS on stream 0: length is 6, expected 0 with ACK (FRAME_SIZE_ERROR)",
        ),
        (
            frame(RST_STREAM, 0, 1, &[0; 5]),
            "server's RST_STREAM on stream 1: length is 5, expected 4 (FRAME_SIZE_ERROR)",
        ),
        (
            frame(WINDOW_UPDATE, 0, 1, &[]),
            "server's WINDOW_UPDATE on stream 1: length is 0, expected 4 (FRAME_SIZE_ERROR)",
        ),
        (
            frame(GOAWAY, 0, 0, &[0; 7]),
            "server's GOAWAY on stream 0: length is 7, expected at least 8 (FRAME_SIZE_ERROR)",
        ),
        (
            frame(PRIORITY, 0, 1, &[0; 4]),
            "server's PRIORITY on stream 1: length is 4, expected 5 (FRAME_SIZE_ERROR)",
        ),
        (
            frame(DATA, 0, 1, &vec![0; 16_385]),
            "server's DATA on stream 1: length is 16385, expected at most 16384 \
             (FRAME_SIZE_ERROR)",
        ),
    ]);
}

#[test]
fn streams_are_the_right_ones() {
    check(&[
        (
            frame(PING, 0, 1, &[0; 8]),
            "server's PING on stream 1: expected on stream 0 (PROTOCOL_ERROR)",
        ),
        (
            frame(SETTINGS, 0, 1, &[]),
            "server's SETTINGS on stream 1: expected on stream 0 (PROTOCOL_ERROR)",
        ),
        (
            frame(GOAWAY, 0, 1, &[0; 8]),
            "server's GOAWAY on stream 1: expected on stream 0 (PROTOCOL_ERROR)",
        ),
        (
            frame(DATA, 0, 0, &[]),
            "server's DATA on stream 0: expected on a stream (PROTOCOL_ERROR)",
        ),
        (head(0), "server's HEADERS on stream 0: expected on a stream (PROTOCOL_ERROR)"),
        (
            peer::rst_stream(0, 0),
            "server's RST_STREAM on stream 0: expected on a stream (PROTOCOL_ERROR)",
        ),
        (
            head(2),
            "server's HEADERS on stream 2: even stream, expected an odd one \
             (PROTOCOL_ERROR)",
        ),
        (
            head(3),
            "server's HEADERS on stream 3: stream not open yet, expected one below 3 \
             (PROTOCOL_ERROR)",
        ),
        (
            window_update(5, 1),
            "server's WINDOW_UPDATE on stream 5: stream not open yet, expected one below 3 \
             (PROTOCOL_ERROR)",
        ),
        (
            frame(PUSH_PROMISE, END_HEADERS, 1, &[0; 4]),
            "server's PUSH_PROMISE on stream 1: not expected: push is disabled (PROTOCOL_ERROR)",
        ),
    ]);
}

#[test]
fn header_blocks_are_whole_and_in_order() {
    let open = frame(HEADERS, 0, 1, &peer::block(peer::HEAD_FIELDS));
    let headers = |payload: &[u8], flags| frame(HEADERS, END_HEADERS | flags, 1, payload);
    check(&[
        (
            frame(CONTINUATION, END_HEADERS, 1, &[]),
            "server's CONTINUATION on stream 1: no header block to continue, expected HEADERS \
             (PROTOCOL_ERROR)",
        ),
        (
            [open.clone(), frame(PING, 0, 0, &[0; 8])].concat(),
            "server's PING on stream 0: inside a header block, expected CONTINUATION on 1 \
             (PROTOCOL_ERROR)",
        ),
        (
            [open, frame(CONTINUATION, 0, 3, &[])].concat(),
            "server's CONTINUATION on stream 3: inside a header block, expected CONTINUATION on 1 \
             (PROTOCOL_ERROR)",
        ),
        (
            headers(&[0xbe], 0),
            "server's HEADERS on stream 1: header index is 62, expected 1 to 61 \
             (COMPRESSION_ERROR)",
        ),
        (
            headers(&[], PADDED),
            "server's HEADERS on stream 1: length is 0, expected the padding's length \
             (FRAME_SIZE_ERROR)",
        ),
        (
            headers(&[0; 4], PRIORITIZED),
            "server's HEADERS on stream 1: length is 4, expected 5 bytes of priority \
             (FRAME_SIZE_ERROR)",
        ),
        (
            headers(&[3, 0, 0], PADDED),
            "server's HEADERS on stream 1: padding is 3, expected at most 2 (PROTOCOL_ERROR)",
        ),
        (
            [head(1), head(1)].concat(),
            "server's HEADERS on stream 1: trailers without END_STREAM, expected it \
             (PROTOCOL_ERROR)",
        ),
        (
            headers(&peer::block(&[(":status", "100")]), END_STREAM),
            "server's HEADERS on stream 1: 1xx with END_STREAM, expected a response \
             (PROTOCOL_ERROR)",
        ),
    ]);
}

#[test]
fn data_is_in_place_and_within_the_windows() {
    check(&[
        (
            frame(DATA, 0, 1, b"early"),
            "server's DATA on stream 1: expected HEADERS first (PROTOCOL_ERROR)",
        ),
        (
            [head(1), frame(DATA, PADDED, 1, &[5, 0, 0, 0, 0])].concat(),
            "server's DATA on stream 1: padding is 5, expected at most 4 (PROTOCOL_ERROR)",
        ),
        (
            [head(1), frame(DATA, PADDED, 1, &[])].concat(),
            "server's DATA on stream 1: length is 0, expected the padding's length \
             (FRAME_SIZE_ERROR)",
        ),
        (
            window_update(0, 0),
            "server's WINDOW_UPDATE on stream 0: increment is 0, expected at least 1 \
             (PROTOCOL_ERROR)",
        ),
        (
            window_update(0, 0x7fff_ffff),
            "server's WINDOW_UPDATE on stream 0: window becomes 2147549169, expected at most \
             2147483647 (FLOW_CONTROL_ERROR)",
        ),
        (
            window_update(1, 0x7fff_ffff),
            "server's WINDOW_UPDATE on stream 1: window becomes 2147549169, expected at most \
             2147483647 (FLOW_CONTROL_ERROR)",
        ),
    ]);
}

/// Half of the connection's window is always more than a frame, so only a stream's can be exceeded,
/// and only if it is small.
#[test]
fn a_window_that_is_overrun_is_noticed() {
    let config = h2::Config { stream_window_bytes: 100, ..h2::Config::default() };
    let mut client = Client::new(config);
    client.unary(CallKey(1), "/a/b", b"").unwrap();
    let bytes = [settings(&[]), head(1), frame(DATA, 0, 1, &[0; 101])].concat();
    assert_eq!(
        failure(client, &[&bytes]),
        "server's DATA on stream 1: length is 101, expected at most the stream's 100 \
         (FLOW_CONTROL_ERROR)"
    );
}

#[test]
fn settings_are_in_their_ranges() {
    check(&[
        (
            settings(&[(2, 1)]),
            "server's SETTINGS on stream 0: ENABLE_PUSH is 1, expected 0 (PROTOCOL_ERROR)",
        ),
        (
            settings(&[(4, 1 << 31)]),
            "server's SETTINGS on stream 0: INITIAL_WINDOW_SIZE is 2147483648, expected at most \
             2147483647 (FLOW_CONTROL_ERROR)",
        ),
        (
            settings(&[(5, 16_383)]),
            "server's SETTINGS on stream 0: MAX_FRAME_SIZE is 16383, expected 16384 to 16777215 \
             (PROTOCOL_ERROR)",
        ),
        (
            settings(&[(5, 1 << 24)]),
            "server's SETTINGS on stream 0: MAX_FRAME_SIZE is 16777216, expected 16384 to \
             16777215 (PROTOCOL_ERROR)",
        ),
        (
            [window_update(1, 0x7fff_0000), settings(&[(4, 0x7fff_ffff)])].concat(),
            "server's SETTINGS on stream 0: window becomes 4294901746, expected at most \
             2147483647 (FLOW_CONTROL_ERROR)",
        ),
    ]);
}

#[test]
fn a_server_that_only_asks_is_left() {
    let mut client = client_with_calls(1);
    let ping = frame(PING, 0, 0, &[0; 8]);
    let error = (0..10_000).find_map(|_| client.receive(&ping).err()).unwrap();
    assert_eq!(
        error.to_string(),
        "server's PING on stream 0: 131087 bytes of answers unread, expected at most 131072 \
         (ENHANCE_YOUR_CALM)"
    );
}
