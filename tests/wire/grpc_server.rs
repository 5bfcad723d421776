//! The server's end of gRPC, against the client's end of this crate and against frames by hand.

use edged::limits;
use edged::wire::grpc::{Call, CallKey, Client, Code, Event, Incoming, Server, Status};
use edged::wire::h2;

use crate::mutation::Dice;
use crate::peer::{
    self, ACK, CONTINUATION, DATA, END_HEADERS, END_STREAM, Frame, GOAWAY, HEADERS, PING, PRIORITY,
    PUSH_PROMISE, RST_STREAM, SETTINGS, WINDOW_UPDATE, block, frame, frames, message, rst_stream,
    settings, window_update,
};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const PATH: &str = "/test.Service/Method";
const FIELDS: &[(&str, &str)] = &[
    (":method", "POST"),
    (":scheme", "http"),
    (":path", PATH),
    ("content-type", "application/grpc"),
    ("te", "trailers"),
];

fn status(code: Code, text: &str) -> Status {
    Status { code, message: text.to_owned() }
}

/// A server that has got a client's preface and these settings, and whose own are written.
fn server(entries: &[(u16, u32)]) -> Server {
    let mut server = Server::default();
    server.receive(&[PREFACE, &settings(entries)].concat()).unwrap();
    let wrote = written(&mut server);
    assert_eq!((wrote[0].kind, wrote[0].flags), (SETTINGS, 0), "it begins with its settings");
    server
}

fn written(server: &mut Server) -> Vec<Frame> {
    let mut bytes = Vec::new();
    while !server.output().is_empty() {
        bytes.extend_from_slice(server.output());
        server.sent(server.output().len());
    }
    frames(&bytes)
}

fn request(stream: u32, fields: &[(&str, &str)], body: &[u8]) -> Vec<u8> {
    let head = frame(HEADERS, END_HEADERS, stream, &block(fields));
    [head, frame(DATA, END_STREAM, stream, body)].concat()
}

fn incoming(server: &mut Server) -> Vec<Incoming> {
    std::iter::from_fn(|| server.poll_incoming()).collect()
}

fn calls(server: &mut Server) -> Vec<Call> {
    let call = |incoming| match incoming {
        Incoming::Call(call) => call,
        Incoming::Cancelled(stream) => panic!("{stream} was cancelled"),
    };
    incoming(server).into_iter().map(call).collect()
}

/// A header block that is a refusal: its fields.
fn refusal(frame: &Frame) -> Vec<(String, String)> {
    assert_eq!((frame.kind, frame.flags), (HEADERS, END_HEADERS | END_STREAM));
    let mut decoder = edged::wire::hpack::Decoder::new(0, 1 << 16);
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let fields = decoder.decode(&frame.payload).unwrap();
    fields.iter().map(|field| (text(&field.name), text(&field.value))).collect()
}

/// Carries bytes in pieces between the two ends until neither has more; answers with `answer`.
fn converse(client: &mut Client, server: &mut Server, dice: &mut Dice) {
    loop {
        let up = client.output().to_vec();
        client.sent(up.len());
        for part in up.chunks(dice.roll(700) + 1) {
            server.receive(part).unwrap();
            for call in calls(server) {
                let reply: Vec<u8> = call.message.iter().rev().copied().collect();
                server.answer(call.stream, Ok(&reply));
            }
        }
        let down = server.output().to_vec();
        server.sent(down.len());
        for part in down.chunks(dice.roll(700) + 1) {
            client.receive(part).unwrap();
        }
        if up.is_empty() && down.is_empty() {
            return;
        }
    }
}

#[test]
fn calls_of_all_sizes_are_answered_on_one_connection() {
    let mut dice = Dice(3);
    for table in [0, 4_096] {
        let config = h2::Config { header_table_bytes: table, ..h2::Config::default() };
        let (mut client, mut server) = (Client::new(config), Server::default());
        let sizes = [0, 1, 100, 16_384, 70_000, limits::DMI_MESSAGE_BYTES_MAX];
        for (key, size) in (0..).zip(sizes) {
            let message: Vec<u8> = (0..size).map(|n| (n % 251) as u8).collect();
            client.unary(CallKey(key), PATH, &message).unwrap();
        }
        converse(&mut client, &mut server, &mut dice);
        let mut events = peer::events(&mut client);
        events.sort_by_key(Event::key);
        assert_eq!(events.len(), sizes.len());
        for (event, (key, size)) in events.iter().zip((0..).zip(sizes)) {
            let Event::Reply(CallKey(got), reply) = event else { panic!("{event:?}") };
            assert_eq!((*got, reply.len()), (key, size));
            assert!(reply.iter().rev().enumerate().all(|(n, byte)| *byte == (n % 251) as u8));
        }
        assert!(server.is_idle());
        assert_eq!(server.held_bytes(), 0);
    }
}

#[test]
fn a_call_has_its_path_its_timeout_and_its_message() {
    let mut server = server(&[]);
    let fields = [FIELDS, &[("grpc-timeout", "1500u")]].concat();
    let bytes = request(1, &fields, &message(b"question"));
    for byte in &bytes[..bytes.len() - 1] {
        server.receive(&[*byte]).unwrap();
        assert!(server.waits_for_client());
        assert_eq!(server.poll_incoming(), None);
    }
    server.receive(&bytes[bytes.len() - 1..]).unwrap();
    let [call] = &calls(&mut server)[..] else { panic!("one call") };
    assert_eq!((&*call.path, call.timeout_ms, &*call.message), (PATH, Some(2), &b"question"[..]));
    assert!(!server.waits_for_client() && !server.is_idle(), "it is ours to answer");
    server.answer(call.stream, Ok(b"answer"));
    server.answer(call.stream, Ok(b"again"));
    let [head, data, trailers] = &written(&mut server)[..] else { panic!("three frames") };
    assert_eq!(
        (head.kind, head.flags, &head.payload),
        (HEADERS, END_HEADERS, &block(peer::HEAD_FIELDS))
    );
    assert_eq!((data.kind, data.flags, &data.payload), (DATA, 0, &message(b"answer")));
    assert_eq!(refusal(trailers), [("grpc-status".to_owned(), "0".to_owned())]);
    assert!(server.is_idle());
}

#[test]
fn an_error_is_one_header_block() {
    let mut server = server(&[(1, 0)]);
    server.receive(&request(1, FIELDS, &message(b""))).unwrap();
    let [call] = &calls(&mut server)[..] else { panic!("one call") };
    server.answer(call.stream, Err(&status(Code::NotFound, "device ä")));
    let [head] = &written(&mut server)[..] else { panic!("one frame") };
    let fields = refusal(head);
    let expected = [
        (":status", "200"),
        ("content-type", "application/grpc"),
        ("grpc-status", "5"),
        ("grpc-message", "device %C3%A4"),
    ];
    assert_eq!(fields, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
}

#[test]
fn what_is_no_call_is_refused_and_costs_no_other_call() {
    let with = |name: &str, value: &'static str| {
        FIELDS
            .iter()
            .map(|(n, v)| if *n == name { (*n, value) } else { (*n, *v) })
            .collect::<Vec<_>>()
    };
    let good = message(b"x");
    let timeout = [FIELDS, &[("grpc-timeout", "1x")]].concat();
    let long = "x".repeat(limits::DMI_HEADER_LIST_BYTES_MAX);
    let large = [FIELDS, &[("x", &*long)]].concat();
    let too_long = (limits::DMI_MESSAGE_BYTES_MAX as u32 + 1).to_be_bytes();
    let too_long = [&[0][..], &too_long].concat();
    let table: Vec<(Vec<u8>, &str, &str)> = vec![
        (request(1, &with(":method", "GET"), &good), ":status", "405"),
        (request(1, &with("content-type", "text/html"), &good), ":status", "415"),
        (request(1, &with("content-type", "application/grpcx"), &good), ":status", "415"),
        (request(1, &with(":path", "\u{0}"), b"\x01\0\0\0\0"), "grpc-status", "12"),
        (request(1, &FIELDS[..2], &good), ":status", "415"),
        (request(1, &[&FIELDS[..1], &FIELDS[3..]].concat(), &good), "grpc-status", "12"),
        (request(1, &timeout, &good), "grpc-status", "13"),
        (request(1, &large, &good), "grpc-status", "8"),
        (request(1, FIELDS, &[&good[..], &good].concat()), "grpc-status", "12"),
        (request(1, FIELDS, &good[..3]), "grpc-status", "13"),
        (request(1, FIELDS, &[&good[..], &[0]].concat()), "grpc-status", "13"),
        (request(1, FIELDS, b""), "grpc-status", "13"),
        (request(1, FIELDS, &too_long), "grpc-status", "8"),
        (frame(HEADERS, END_HEADERS | END_STREAM, 1, &block(FIELDS)), "grpc-status", "13"),
    ];
    for (bytes, name, expected) in table {
        let mut server = server(&[]);
        server.receive(&bytes).unwrap();
        server.receive(&request(3, FIELDS, &good)).unwrap();
        let [call] = &calls(&mut server)[..] else { panic!("{expected}: the good call alone") };
        assert_eq!(&*call.message, b"x");
        let wrote = written(&mut server);
        let refused = wrote.iter().find(|f| f.kind == HEADERS && f.stream == 1).expect("answered");
        let fields = refusal(refused);
        let found = fields.iter().find(|(n, _)| n == name).map(|(_, value)| &**value);
        assert_eq!(found, Some(expected), "{fields:?}");
    }
}

#[test]
fn a_refused_request_is_cut_off() {
    let mut server = server(&[]);
    server.receive(&frame(HEADERS, END_HEADERS, 1, &block(&FIELDS[..1]))).unwrap();
    let wrote = written(&mut server);
    assert_eq!(wrote[1], Frame { kind: RST_STREAM, flags: 0, stream: 1, payload: vec![0; 4] });
    // What crossed the reset is dropped, and its window returned.
    for _ in 0..20 {
        server.receive(&frame(DATA, 0, 1, &[0; 16_000])).unwrap();
    }
    server.receive(&frame(HEADERS, END_HEADERS | END_STREAM, 1, &block(FIELDS))).unwrap();
    assert!(written(&mut server).iter().all(|f| f.kind == WINDOW_UPDATE && f.stream == 0));
    assert_eq!(incoming(&mut server), []);
}

#[test]
fn a_call_that_is_reset_is_cancelled_if_it_was_reported() {
    let mut server = server(&[]);
    server.receive(&request(1, FIELDS, &message(b"x"))).unwrap();
    let [call] = &calls(&mut server)[..] else { panic!("one call") };
    server.receive(&frame(HEADERS, END_HEADERS, 3, &block(FIELDS))).unwrap();
    server.receive(&[rst_stream(1, 8), rst_stream(3, 8)].concat()).unwrap();
    assert_eq!(incoming(&mut server), [Incoming::Cancelled(call.stream)]);
    server.answer(call.stream, Ok(b"too late"));
    assert_eq!(written(&mut server), []);
    assert!(server.is_idle());
}

#[test]
fn the_windows_of_a_client_are_kept() {
    let mut server = server(&[(4, 10)]);
    server.receive(&request(1, FIELDS, &message(b"x"))).unwrap();
    let [call] = &calls(&mut server)[..] else { panic!("one call") };
    server.answer(call.stream, Ok(&[7; 20]));
    let sizes = |wrote: &[Frame]| wrote.iter().map(|f| f.payload.len()).collect::<Vec<_>>();
    assert_eq!(sizes(&written(&mut server)[1..]), [10]);
    assert!(server.waits_for_client());
    assert_eq!(server.held_bytes(), 15);
    server.receive(&window_update(1, 14)).unwrap();
    assert_eq!(sizes(&written(&mut server)), [14]);
    // A smaller window by SETTINGS, then room for the last byte and the trailers.
    server.receive(&settings(&[(4, 0)])).unwrap();
    assert_eq!(written(&mut server), [Frame { kind: 4, flags: ACK, stream: 0, payload: vec![] }]);
    server.receive(&window_update(1, 11)).unwrap();
    let wrote = written(&mut server);
    assert_eq!(sizes(&wrote[..1]), [1]);
    assert!(wrote[1].is_end());
    assert!(server.is_idle());
}

#[test]
fn the_window_of_a_long_request_is_returned_in_halves() {
    let mut server = server(&[]);
    server.receive(&frame(HEADERS, END_HEADERS, 1, &block(FIELDS))).unwrap();
    let half = limits::DMI_WINDOW_BYTES / 2;
    let count = half.div_ceil(8_000);
    let body = message(&vec![7; 100_000]);
    for part in body.chunks(8_000).take(count as usize - 1) {
        server.receive(&frame(DATA, 0, 1, part)).unwrap();
        assert_eq!(written(&mut server), []);
    }
    server.receive(&frame(DATA, 0, 1, &body[..8_000])).unwrap();
    let wrote = written(&mut server);
    let returned = [0, 1].map(|stream| window_update(stream, count * 8_000)).concat();
    assert_eq!(wrote, frames(&returned));
}

#[test]
fn more_streams_than_announced_are_refused_one_by_one() {
    let mut server = server(&[]);
    let max = limits::DMI_STREAMS_MAX as u32;
    for n in 0..=max {
        server.receive(&request(2 * n + 1, FIELDS, &message(b"x"))).unwrap();
    }
    let open = calls(&mut server);
    assert_eq!(open.len(), limits::DMI_STREAMS_MAX);
    let refused = frame(RST_STREAM, 0, 2 * max + 1, &7u32.to_be_bytes());
    assert_eq!(written(&mut server), frames(&refused));
    server.answer(open[0].stream, Ok(b""));
    server.receive(&request(2 * max + 3, FIELDS, &message(b"x"))).unwrap();
    assert_eq!(calls(&mut server).len(), 1, "there is room again");
}

#[test]
fn a_server_that_leaves_names_the_last_stream_that_it_processes() {
    let mut server = server(&[]);
    server.receive(&request(5, FIELDS, &message(b"x"))).unwrap();
    server.leave();
    server.leave();
    let payload = [5u32.to_be_bytes(), [0; 4]].concat();
    assert_eq!(written(&mut server), [Frame { kind: GOAWAY, flags: 0, stream: 0, payload }]);
    server.receive(&request(7, FIELDS, &message(b"x"))).unwrap();
    let [call] = &calls(&mut server)[..] else { panic!("the one before") };
    server.answer(call.stream, Ok(b""));
    let wrote = written(&mut server);
    assert_eq!((wrote[0].kind, wrote[0].stream), (RST_STREAM, 7));
    assert_eq!(wrote.len(), 4, "the other is answered");
}

#[test]
fn pings_settings_and_priorities_are_served() {
    let mut server = server(&[(2, 1)]);
    let mut bytes = frame(PING, 0, 0, b"12345678");
    bytes.extend(frame(PING, ACK, 0, b"12345678"));
    bytes.extend(frame(PRIORITY, 0, 9, &[0; 5]));
    bytes.extend(frame(0x42, 0xff, 9, b"unknown"));
    bytes.extend(peer::go_away(0, 0, b"bye"));
    server.receive(&bytes).unwrap();
    assert_eq!(written(&mut server), frames(&frame(PING, ACK, 0, b"12345678")));
    server.receive(&request(1, FIELDS, &message(b"x"))).unwrap();
    assert_eq!(incoming(&mut server).len(), 1);
}

fn failure(parts: &[&[u8]]) -> String {
    let mut server = server(&[]);
    let error = parts.iter().find_map(|part| server.receive(part).err()).expect("an error");
    let farewell = frames(server.output()).pop().expect("the client is informed");
    assert_eq!(farewell.kind, GOAWAY);
    assert_eq!(farewell.payload[4..8], error.code.0.to_be_bytes());
    assert_eq!(server.receive(&frame(PING, 0, 0, &[0; 8])), Err(error.clone()), "it stays so");
    error.to_string()
}

#[test]
fn a_violation_ends_the_connection_with_a_text() {
    let head = frame(HEADERS, END_HEADERS, 1, &block(FIELDS));
    let ended = request(1, FIELDS, &message(b"x"));
    for (bytes, expected) in [
        (
            frame(DATA, 0, 1, b"x"),
            "client's DATA on stream 1: stream not open yet, expected one below 1 (PROTOCOL_ERROR)",
        ),
        (
            frame(HEADERS, END_HEADERS, 2, &block(FIELDS)),
            "client's HEADERS on stream 2: even stream, expected an odd one (PROTOCOL_ERROR)",
        ),
        (
            frame(HEADERS, END_HEADERS, 0, &block(FIELDS)),
            "client's HEADERS on stream 0: expected on a stream (PROTOCOL_ERROR)",
        ),
        (
            [&ended[..], &frame(DATA, 0, 1, b"x")].concat(),
            "client's DATA on stream 1: nothing is expected after END_STREAM (STREAM_CLOSED)",
        ),
        (
            [&ended[..], &head].concat(),
            "client's HEADERS on stream 1: nothing is expected after END_STREAM (STREAM_CLOSED)",
        ),
        (
            [&head[..], &head].concat(),
            "client's HEADERS on stream 1: trailers without END_STREAM, expected it \
             (PROTOCOL_ERROR)",
        ),
        (
            frame(PUSH_PROMISE, END_HEADERS, 1, &[0; 4]),
            "client's PUSH_PROMISE on stream 1: not expected: push is disabled (PROTOCOL_ERROR)",
        ),
        (
            frame(HEADERS, END_HEADERS, 1, &[0x80]),
            "client's HEADERS on stream 1: header index is 0, expected 1 to 61 (COMPRESSION_ERROR)",
        ),
        (
            settings(&[(2, 2)]),
            "client's SETTINGS on stream 0: ENABLE_PUSH is 2, expected 0 (PROTOCOL_ERROR)",
        ),
    ] {
        assert_eq!(failure(&[&bytes]), expected);
        let parts: Vec<&[u8]> = bytes.chunks(1).collect();
        assert_eq!(failure(&parts), expected, "byte by byte");
    }
}

#[test]
fn another_protocol_is_recognised_by_its_first_byte() {
    for bytes in [&b"GET / HTTP/1.1\r\n\r\n"[..], b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\r", b"\0"] {
        let error = Server::default().receive(bytes).unwrap_err();
        assert_eq!(error.problem, h2::Problem::NotHttp2);
    }
    let ping = [PREFACE, &frame(PING, 0, 0, &[0; 8])].concat();
    let error = Server::default().receive(&ping).unwrap_err();
    assert_eq!(error.problem, h2::Problem::NotHttp2, "SETTINGS come first");
}

#[test]
fn a_header_block_has_a_bound() {
    let mut server = server(&[]);
    server.receive(&frame(HEADERS, 0, 1, &[])).unwrap();
    let endless = frame(CONTINUATION, 0, 1, &[]);
    let frames_max = limits::DMI_HEADER_BLOCK_BYTES_MAX / 9;
    let failed = (0..frames_max).position(|_| server.receive(&endless).is_err());
    assert_eq!(failed, Some(frames_max - 1), "empty frames count by their heads");
}

#[test]
fn floods_of_a_client_that_does_not_read_cost_little() {
    let ping = frame(PING, 0, 0, &[0; 8]);
    let reset = [frame(HEADERS, END_HEADERS, 1, &block(FIELDS)), rst_stream(1, 8)].concat();
    for flood in [&ping, &settings(&[]), &settings(&[(4, 0), (4, 1 << 30)])] {
        let mut server = server(&[]);
        let failed = (0..100_000).find_map(|_| server.receive(flood).err()).expect("its end");
        assert!(matches!(failed.problem, h2::Problem::AnswersUnread { .. }), "{failed}");
        assert!(server.output().len() < limits::DMI_OUTPUT_BYTES_MAX + 100);
    }
    let mut server = server(&[]);
    for n in 0..100_000u32 {
        let stream = (2 * n + 1).to_be_bytes();
        let mut bytes = reset.clone();
        let second = bytes.len() - 13;
        for at in [5, second + 5] {
            bytes[at..at + 4].copy_from_slice(&stream);
        }
        server.receive(&bytes).unwrap();
        assert!(server.held_bytes() < 100, "nothing stays of a stream that was reset");
    }
    assert_eq!(incoming(&mut server), []);
}

#[test]
fn a_window_that_is_never_opened_holds_no_more_than_the_answers() {
    let mut server = server(&[(4, 0)]);
    for n in 0..limits::DMI_STREAMS_MAX as u32 {
        server.receive(&request(2 * n + 1, FIELDS, &message(b"x"))).unwrap();
    }
    for call in calls(&mut server) {
        server.answer(call.stream, Ok(&[0; 1_000]));
    }
    written(&mut server);
    assert_eq!(server.held_bytes(), limits::DMI_STREAMS_MAX * 1_005);
    for _ in 0..10_000 {
        server.receive(&settings(&[(4, 1 << 30), (4, 0)])).unwrap();
        server.sent(server.output().len());
    }
    assert!(server.is_idle() || server.held_bytes() <= limits::DMI_STREAMS_MAX * 1_005);
}

#[test]
fn damaged_requests_end_in_calls_refusals_or_an_error() {
    let mut dice = Dice(17);
    let (mut errors, mut reported) = (0, 0);
    for _ in 0..20_000 {
        let mut bytes = settings(&[(4, dice.roll(70_000) as u32)]);
        for n in 0..4 {
            bytes.extend(request(2 * n + 1, FIELDS, &message(&[7; 90])));
            bytes.extend(window_update(0, 1_000));
        }
        bytes.extend(rst_stream(3, 8));
        dice.damage(&mut bytes);
        let mut server = Server::default();
        server.receive(PREFACE).unwrap();
        let mut failed = false;
        for part in bytes.chunks(1 + dice.roll(200)) {
            failed |= server.receive(part).is_err();
            for incoming in incoming(&mut server) {
                if let Incoming::Call(call) = incoming {
                    reported += 1;
                    server.answer(call.stream, Ok(&call.message));
                }
            }
            server.sent(dice.roll(server.output().len() + 1));
            assert!(server.held_bytes() < 1 << 18);
        }
        errors += usize::from(failed);
    }
    assert!(errors > 1_000 && errors < 19_000, "{errors} errors");
    assert!(reported > 20_000, "{reported} calls");
}
