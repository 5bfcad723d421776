//! Flow control, in both directions.

use edged::wire::grpc::{CallKey, Event};

use crate::peer::{
    self, DATA, Frame, HEADERS, PING, WINDOW_UPDATE, client, events, frame, settings,
    window_update, written,
};

const PATH: &str = "/test.Service/Method";
const FRAME_BYTES: usize = 16_384;
const WINDOW_INITIAL: usize = 65_535;

fn body(frames: &[Frame]) -> Vec<u8> {
    let data = frames.iter().filter(|frame| frame.kind == DATA);
    data.flat_map(|frame| frame.payload.clone()).collect()
}

fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|n| (n % 251) as u8).collect()
}

#[test]
fn a_request_is_split_at_the_peers_frame_size() {
    let mut client = client(&[]);
    client.unary(CallKey(0), PATH, &pattern(40_000)).unwrap();
    let wrote = written(&mut client);
    let sizes: Vec<usize> = wrote[1..].iter().map(|frame| frame.payload.len()).collect();
    assert_eq!(sizes, [FRAME_BYTES, FRAME_BYTES, 40_005 - 2 * FRAME_BYTES]);
    assert_eq!(wrote.iter().map(Frame::is_end).collect::<Vec<_>>(), [false, false, false, true]);
    assert_eq!(body(&wrote), peer::message(&pattern(40_000)));
}

#[test]
fn a_larger_frame_size_is_used_when_allowed() {
    let mut client = client(&[(5, 50_000)]);
    client.unary(CallKey(0), PATH, &pattern(40_000)).unwrap();
    assert_eq!(written(&mut client)[1].payload.len(), 40_005);
}

#[test]
fn no_frame_takes_the_room_that_is_kept_for_answers() {
    let mut client = client(&[(4, 1 << 20), (5, 1 << 20)]);
    client.receive(&window_update(0, 1 << 20)).unwrap();
    client.unary(CallKey(0), PATH, &pattern(200_000)).unwrap();
    client.receive(&frame(PING, 0, 0, &[0; 8])).expect("its question is no fault of the server's");
    assert_eq!(body(&written(&mut client)), peer::message(&pattern(200_000)));
}

#[test]
fn tiny_windows_are_kept_to_the_byte() {
    let mut client = client(&[(4, 10)]);
    let request = pattern(95);
    client.unary(CallKey(0), PATH, &request).unwrap();
    let mut wrote = written(&mut client);
    assert_eq!(wrote[1].payload.len(), 10);
    for step in 1..10 {
        assert!(written(&mut client).is_empty());
        client.receive(&window_update(1, 10)).unwrap();
        let more = written(&mut client);
        assert_eq!((more.len(), more[0].payload.len()), (1, 10));
        assert_eq!(more[0].is_end(), step == 9);
        wrote.extend(more);
    }
    assert_eq!(body(&wrote), peer::message(&request));
}

#[test]
fn the_connections_window_bounds_all_streams_together() {
    let mut client = client(&[(4, 1 << 20)]);
    client.unary(CallKey(0), PATH, &pattern(60_000)).unwrap();
    client.unary(CallKey(1), PATH, &pattern(60_000)).unwrap();
    let wrote = written(&mut client);
    assert_eq!(body(&wrote).len(), WINDOW_INITIAL);
    client.receive(&window_update(1, 1000)).unwrap();
    assert!(written(&mut client).is_empty(), "the stream's window alone does not help");
    client.receive(&window_update(0, 100_000)).unwrap();
    let more = written(&mut client);
    assert_eq!(body(&more).len(), 2 * 60_005 - WINDOW_INITIAL);
    assert!(more.last().unwrap().is_end());
}

/// RFC 9113 section 6.9.2: a smaller initial window can leave a stream below zero.
#[test]
fn settings_move_the_windows_of_open_streams() {
    let mut client = client(&[]);
    client.unary(CallKey(0), PATH, &pattern(100_000)).unwrap();
    client.receive(&window_update(0, 1 << 20)).unwrap();
    assert_eq!(body(&written(&mut client)).len(), WINDOW_INITIAL);
    client.receive(&settings(&[(4, 1_000)])).unwrap();
    client.receive(&window_update(1, 64_535)).unwrap();
    assert_eq!(body(&written(&mut client)).len(), 0, "the window is at zero now");
    client.receive(&window_update(1, 1)).unwrap();
    assert_eq!(body(&written(&mut client)).len(), 1);
    client.receive(&settings(&[(4, 1_100)])).unwrap();
    assert_eq!(body(&written(&mut client)).len(), 100);
}

/// A server that reads slowly does not make us copy a large request into the output at once.
#[test]
fn a_large_request_waits_outside_of_the_output() {
    let mut client = client(&[(4, 1 << 30)]);
    client.receive(&window_update(0, 1 << 30)).unwrap();
    let request = pattern(4 << 20);
    client.unary(CallKey(0), PATH, &request).unwrap();
    let mut wrote = Vec::new();
    while !client.output().is_empty() {
        assert!(client.output().len() < 100_000, "{} bytes wait", client.output().len());
        let count = client.output().len().min(1_000);
        wrote.extend_from_slice(&client.output()[..count]);
        client.sent(count);
    }
    assert_eq!(body(&peer::frames(&wrote)), peer::message(&request));
}

/// As grpc-go: sends data as far as our windows allow, more after WINDOW_UPDATEs.
struct Server {
    stream_window: usize,
    connection_window: usize,
    updates: usize,
}

impl Server {
    fn receive(&mut self, frames: &[Frame]) {
        for update in frames.iter().filter(|frame| frame.kind == WINDOW_UPDATE) {
            self.updates += 1;
            let window = match update.stream {
                0 => &mut self.connection_window,
                1 => &mut self.stream_window,
                other => panic!("a window for stream {other}"),
            };
            *window += update.number() as usize;
            assert!(*window <= 1 << 20, "no more is given than was used");
        }
    }
}

#[test]
fn a_reply_of_16_mib_never_stalls() {
    let mut client = client(&[]);
    client.unary(CallKey(7), PATH, b"list").unwrap();
    written(&mut client);
    let reply = pattern(16 << 20);
    let bytes = peer::message(&reply);
    let mut rest = &bytes[..];
    let mut server = Server { stream_window: 1 << 20, connection_window: 1 << 20, updates: 0 };
    client.receive(&peer::head(1)).unwrap();
    while !rest.is_empty() {
        let window = server.stream_window.min(server.connection_window);
        let count = rest.len().min(FRAME_BYTES).min(window);
        assert!(count > 0, "stalled with {} bytes to go", rest.len());
        client.receive(&frame(DATA, 0, 1, &rest[..count])).unwrap();
        rest = &rest[count..];
        server.stream_window -= count;
        server.connection_window -= count;
        server.receive(&written(&mut client));
        assert_eq!(client.poll_event(), None);
    }
    client.receive(&peer::trailers(1, "0", "")).unwrap();
    assert_eq!(events(&mut client), [Event::Reply(CallKey(7), reply)]);
    assert!(server.updates <= 64, "{} updates for 16 MiB", server.updates);
}

/// Padding counts against the windows, and small frames do not cost an update each.
#[test]
fn padding_is_given_back_as_well() {
    let mut client = client(&[]);
    client.stream(CallKey(7), PATH, b"watch").unwrap();
    written(&mut client);
    client.receive(&peer::head(1)).unwrap();
    let mut server = Server { stream_window: 1 << 20, connection_window: 1 << 20, updates: 0 };
    let item = [&[200][..], &peer::message(b"event"), &[0; 200]].concat();
    for _ in 0..20_000 {
        client.receive(&frame(DATA, peer::PADDED, 1, &item)).unwrap();
        server.stream_window -= item.len();
        server.connection_window -= item.len();
        server.receive(&written(&mut client));
        assert_eq!(events(&mut client), [Event::Message(CallKey(7), b"event".to_vec())]);
    }
    assert!((2..=20).contains(&server.updates), "{} updates", server.updates);
}

/// What comes for a call that was given up still uses the connection's window.
#[test]
fn data_of_a_cancelled_call_is_given_back_to_the_connection() {
    let mut client = client(&[]);
    client.unary(CallKey(7), PATH, b"list").unwrap();
    client.receive(&peer::head(1)).unwrap();
    client.cancel(CallKey(7));
    written(&mut client);
    let mut given = 0;
    for _ in 0..64 {
        client.receive(&frame(DATA, 0, 1, &[0; FRAME_BYTES])).unwrap();
        for update in written(&mut client) {
            assert_eq!((update.kind, update.stream), (WINDOW_UPDATE, 0));
            given += update.number() as usize;
        }
    }
    assert_eq!(given, 64 * FRAME_BYTES);
    assert_eq!(events(&mut client), []);
}

#[test]
fn a_request_that_is_not_wanted_to_the_end_is_cut_off() {
    let mut client = client(&[(4, 10)]);
    client.unary(CallKey(7), PATH, &pattern(100)).unwrap();
    written(&mut client);
    client.receive(&peer::trailers(1, "3", "no")).unwrap();
    let wrote = written(&mut client);
    assert_eq!((wrote.len(), wrote[0].kind, wrote[0].number()), (1, peer::RST_STREAM, 8));
    client.receive(&window_update(1, 1000)).unwrap();
    assert!(written(&mut client).iter().all(|frame| frame.kind != DATA && frame.kind != HEADERS));
    assert_eq!(events(&mut client).len(), 1);
}
