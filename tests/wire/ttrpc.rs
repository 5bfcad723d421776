//! ttrpc: both ends, against bytes and messages that are made here without the codec under test.

use edged::limits::{
    CRI_STATUS_TEXT_BYTES_MAX, CRI_STREAMS_MAX, CriBudget, TTRPC_CALLS_MAX,
    TTRPC_MESSAGE_BYTES_MAX, TTRPC_OUTPUT_BYTES_MAX,
};
use edged::wire::rpc::{self, Begun, CallKey, Code, Lost, Refused, Status};
use edged::wire::ttrpc::{Call, Client, Error, Event, Server, StreamId};
use prost::Message as _;
use std::time::Duration;

#[derive(Clone, PartialEq, prost::Message)]
struct Request {
    #[prost(string, tag = "1")]
    service: String,
    #[prost(string, tag = "2")]
    method: String,
    #[prost(bytes = "vec", tag = "3")]
    payload: Vec<u8>,
    #[prost(int64, tag = "4")]
    timeout_nano: i64,
    #[prost(message, repeated, tag = "5")]
    metadata: Vec<KeyValue>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct KeyValue {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(string, tag = "2")]
    value: String,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Response {
    #[prost(message, optional, tag = "1")]
    status: Option<RpcStatus>,
    #[prost(bytes = "vec", tag = "2")]
    payload: Vec<u8>,
}

/// `google.rpc.Status`
#[derive(Clone, PartialEq, prost::Message)]
struct RpcStatus {
    #[prost(int32, tag = "1")]
    code: i32,
    #[prost(string, tag = "2")]
    message: String,
}

const METHOD: (&str, &str) = ("test.v1.Service", "Method");
const REQUEST: u8 = 1;
const RESPONSE: u8 = 2;
const DATA: u8 = 3;

fn frame(stream: u32, kind: u8, flags: u8, data: &[u8]) -> Vec<u8> {
    let mut out = (data.len() as u32).to_be_bytes().to_vec();
    out.extend(stream.to_be_bytes());
    out.extend([kind, flags]);
    out.extend(data);
    out
}

/// `(stream, type, flags, data)` of whole frames.
fn frames(mut bytes: &[u8]) -> Vec<(u32, u8, u8, Vec<u8>)> {
    let mut out = Vec::new();
    while !bytes.is_empty() {
        let number = |at: usize| u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap());
        let end = 10 + number(0) as usize;
        out.push((number(4), bytes[8], bytes[9], bytes[10..end].to_vec()));
        bytes = &bytes[end..];
    }
    out
}

fn request(stream: u32, flags: u8, payload: &[u8]) -> Vec<u8> {
    let request = Request {
        service: METHOD.0.to_owned(),
        method: METHOD.1.to_owned(),
        payload: payload.to_vec(),
        ..Request::default()
    };
    frame(stream, REQUEST, flags, &request.encode_to_vec())
}

fn cancel(stream: u32, cancelled: u8) -> Vec<u8> {
    let request = Request {
        service: "edged.runtime.v1.Calls".to_owned(),
        method: "Cancel".to_owned(),
        payload: vec![8, cancelled],
        ..Request::default()
    };
    frame(stream, REQUEST, 0, &request.encode_to_vec())
}

fn reply(stream: u32, payload: &[u8]) -> Vec<u8> {
    let response = Response { status: None, payload: payload.to_vec() };
    frame(stream, RESPONSE, 0, &response.encode_to_vec())
}

fn refusal(stream: u32, code: i32, message: &str) -> Vec<u8> {
    let status = RpcStatus { code, message: message.to_owned() };
    let response = Response { status: Some(status), payload: Vec::new() };
    frame(stream, RESPONSE, 0, &response.encode_to_vec())
}

fn written(client: &mut Client) -> Vec<u8> {
    let bytes = client.output().to_vec();
    client.sent(bytes.len());
    bytes
}

fn answered(server: &mut Server) -> Vec<u8> {
    let bytes = server.output().to_vec();
    server.sent(bytes.len());
    bytes
}

fn client_events(client: &mut Client) -> Vec<rpc::Event> {
    std::iter::from_fn(|| client.poll_event()).collect()
}

fn server_events(server: &mut Server) -> Vec<Event> {
    std::iter::from_fn(|| server.poll_event()).collect()
}

/// A client with a unary call 1 on stream 1 and a stream 2 on stream 3, both written.
fn client() -> Client {
    let mut client = Client::new();
    client.unary(CallKey(1), METHOD, 0, b"one").unwrap();
    client.stream(CallKey(2), METHOD, 0, b"two").unwrap();
    written(&mut client);
    client
}

fn status(code: Code, message: &str) -> Status {
    Status { code, message: message.to_owned() }
}

fn call(stream: u32, payload: &[u8]) -> Event {
    Event::Call(Call {
        stream: StreamId(stream),
        service: METHOD.0.to_owned(),
        method: METHOD.1.to_owned(),
        payload: payload.to_vec(),
        timeout: None,
    })
}

/// Every byte of the protocol's head, once spelled out.
#[test]
fn a_request_is_the_one_of_the_protocol() {
    let mut client = Client::new();
    client.unary(CallKey(7), ("p.S", "M"), 5, b"xyz").unwrap();
    assert_eq!(
        written(&mut client),
        b"\0\0\0\x0f\0\0\0\x01\x01\0\x0a\x03p.S\x12\x01M\x1a\x03xyz\x20\x05"
    );
    client.stream(CallKey(8), METHOD, 0, b"").unwrap();
    let bytes = written(&mut client);
    assert_eq!(bytes, request(3, 1, b""));
    client.unary(CallKey(9), METHOD, 1 << 40, b"x").unwrap();
    let [(5, REQUEST, 0, ref data)] = frames(&written(&mut client))[..] else { panic!("one") };
    let sent = Request::decode(&**data).unwrap();
    assert_eq!((sent.timeout_nano, &*sent.payload), (1 << 40, &b"x"[..]));
}

#[test]
fn each_call_has_one_last_event() {
    let mut client = client();
    client.unary(CallKey(3), METHOD, 0, b"").unwrap();
    let bytes = [
        frame(3, DATA, 0, b"first"),
        reply(1, b"done"),
        frame(3, DATA, 0, b""),
        refusal(5, 5, "no such thing"),
        frame(3, DATA, 1 | 4, b""),
        // All of them are over.
        reply(1, b"again"),
        frame(3, DATA, 0, b"late"),
    ];
    client.receive(&bytes.concat()).unwrap();
    let expected = [
        rpc::Event::Message(CallKey(2), b"first".to_vec()),
        rpc::Event::Reply(CallKey(1), b"done".to_vec()),
        rpc::Event::Message(CallKey(2), Vec::new()),
        rpc::Event::Failed(CallKey(3), status(Code::NotFound, "no such thing")),
        rpc::Event::Done(CallKey(2)),
    ];
    assert_eq!(client_events(&mut client), expected);
    assert_eq!(client.calls(), 0);
}

#[test]
fn a_stream_ends_by_its_last_message_or_by_a_response() {
    let end = |bytes: &[u8]| {
        let mut client = client();
        client.receive(bytes).unwrap();
        client_events(&mut client)
    };
    let last = [rpc::Event::Message(CallKey(2), b"x".to_vec()), rpc::Event::Done(CallKey(2))];
    assert_eq!(end(&frame(3, DATA, 1, b"x")), last);
    assert_eq!(end(&reply(3, b"")), [rpc::Event::Done(CallKey(2))]);
    let failed = rpc::Event::Failed(CallKey(2), status(Code::Unimplemented, "no events"));
    assert_eq!(end(&refusal(3, 12, "no events")), [failed]);
}

#[test]
fn a_response_cut_or_split_anywhere_gives_whole_events_and_then_the_same() {
    let bytes = [
        frame(3, DATA, 0, b"first"),
        reply(1, &[9; 300]),
        frame(3, DATA, 0, b"second"),
        refusal(3, 14, "gone"),
    ]
    .concat();
    let mut whole = client();
    whole.receive(&bytes).unwrap();
    let expected = client_events(&mut whole);
    assert_eq!(expected.len(), 4);
    for cut in 0..=bytes.len() {
        let mut client = client();
        client.receive(&bytes[..cut]).unwrap();
        let mut got = client_events(&mut client);
        assert!(expected.starts_with(&got), "cut at {cut}");
        client.receive(&bytes[cut..]).unwrap();
        got.extend(client_events(&mut client));
        assert_eq!(got, expected, "cut at {cut}");
    }
    let mut client = client();
    for byte in &bytes {
        client.receive(std::slice::from_ref(byte)).unwrap();
    }
    assert_eq!(client_events(&mut client), expected);
}

#[test]
fn requests_cut_or_split_anywhere_give_whole_calls_and_then_the_same() {
    let bytes = [request(1, 0, b"one"), cancel(3, 1), request(5, 1, &[7; 200])].concat();
    let expected = [call(1, b"one"), Event::Cancelled(StreamId(1)), call(5, &[7; 200])];
    for cut in 0..=bytes.len() {
        let mut server = Server::default();
        server.receive(&bytes[..cut]).unwrap();
        let mut got = server_events(&mut server);
        assert!(expected.starts_with(&got), "cut at {cut}");
        server.receive(&bytes[cut..]).unwrap();
        got.extend(server_events(&mut server));
        assert_eq!(got, expected, "cut at {cut}");
        let answers = [refusal(1, 1, "cancelled by the client"), frame(3, RESPONSE, 0, b"")];
        assert_eq!(answered(&mut server), answers.concat(), "cut at {cut}");
    }
}

/// Whatever a byte is turned into: no panic, no second answer, and at most one error.
#[test]
fn spoilt_bytes_cost_their_call_or_their_connection() {
    let from_server = [frame(3, DATA, 0, b"m"), reply(1, b"r"), refusal(3, 2, "why")].concat();
    let from_client = [request(1, 0, b"one"), cancel(3, 1), request(5, 1, b"two")].concat();
    for at in 0..from_server.len().max(from_client.len()) {
        for bits in [0x01, 0x02, 0x04, 0x80, 0xff] {
            let spoil = |bytes: &[u8]| {
                let mut bytes = bytes.to_vec();
                bytes.get_mut(at).into_iter().for_each(|byte| *byte ^= bits);
                bytes
            };
            let mut client = client();
            let _ = client.receive(&spoil(&from_server));
            client.hangup("closed");
            let is_end = |event: &&rpc::Event| !matches!(event, rpc::Event::Message(..));
            let mut ends: Vec<u64> =
                client_events(&mut client).iter().filter(is_end).map(|end| end.key().0).collect();
            ends.sort_unstable();
            assert_eq!(ends, [1, 2], "byte {at} ^ {bits:#x}");

            let mut server = Server::default();
            let _ = server.receive(&spoil(&from_client));
            for event in server_events(&mut server) {
                if let Event::Call(call) = event {
                    server.answer(call.stream, b"");
                }
            }
            assert_eq!(server.open().count(), 0);
            let mut answers: Vec<u32> =
                frames(&answered(&mut server)).into_iter().map(|frame| frame.0).collect();
            answers.sort_unstable();
            let count = answers.len();
            answers.dedup();
            assert_eq!(answers.len(), count, "byte {at} ^ {bits:#x}");
        }
    }
}

#[test]
fn a_frame_beyond_the_bound_costs_only_its_call() {
    let long = TTRPC_MESSAGE_BYTES_MAX + 1;
    let mut client = client();
    client.receive(&frame(1, RESPONSE, 0, &vec![0; long])).unwrap();
    client.receive(&frame(3, DATA, 0, b"next")).unwrap();
    let text = format!("reply has {long} bytes, expected at most {TTRPC_MESSAGE_BYTES_MAX}");
    let expected = [
        rpc::Event::Failed(CallKey(1), status(Code::ResourceExhausted, &text)),
        rpc::Event::Message(CallKey(2), b"next".to_vec()),
    ];
    assert_eq!(client_events(&mut client), expected);
    assert!(written(&mut client).is_empty(), "the call has ended at the server");
    // A stream has not: it is cancelled.
    client.receive(&frame(3, DATA, 0, &vec![0; long])).unwrap();
    assert_eq!(written(&mut client), cancel(5, 3));

    let mut server = Server::default();
    server.receive(&frame(1, REQUEST, 0, &vec![0; long])).unwrap();
    server.receive(&request(3, 0, b"next")).unwrap();
    assert_eq!(server_events(&mut server), [call(3, b"next")]);
    let text = text.replace("reply", "request");
    assert_eq!(answered(&mut server), refusal(1, 8, &text));
    // Of an answer, and of a message.
    server.answer(StreamId(3), &vec![0; long]);
    let [(3, RESPONSE, 0, ref data)] = frames(&answered(&mut server))[..] else { panic!("one") };
    assert_eq!(Response::decode(&**data).unwrap().status.unwrap().code, 8);
    server.receive(&request(5, 1, b"")).unwrap();
    server.item(StreamId(5), &vec![0; long]);
    let text = text.replace("request", "reply");
    assert_eq!(answered(&mut server), refusal(5, 8, &text));
}

#[test]
fn a_smaller_budget_bounds_replies() {
    let budget = CriBudget { message_bytes_max: 100, ..CriBudget::default() };
    let mut client = Client::new().within(&budget);
    client.unary(CallKey(1), METHOD, 0, b"").unwrap();
    client.receive(&frame(1, RESPONSE, 0, &[0; 101])).unwrap();
    let text = "reply has 101 bytes, expected at most 100";
    let failed = rpc::Event::Failed(CallKey(1), status(Code::ResourceExhausted, text));
    assert_eq!(client_events(&mut client), [failed]);
}

#[test]
fn a_request_beyond_the_bound_is_not_sent() {
    let mut client = Client::new();
    let max_bytes = TTRPC_MESSAGE_BYTES_MAX;
    let refused = client.unary(CallKey(1), METHOD, 0, &vec![1; max_bytes]).unwrap_err();
    let Refused::TooLarge { got_bytes, max_bytes: max } = refused else { panic!("{refused}") };
    assert!(got_bytes > max_bytes && max == max_bytes);
    assert!(client.output().is_empty() && client.calls() == 0);
}

#[test]
fn calls_at_once_have_a_bound_at_either_end() {
    let mut client = Client::new();
    for key in 0..CRI_STREAMS_MAX as u64 {
        client.unary(CallKey(key), METHOD, 0, b"").unwrap();
    }
    let refused = client.unary(CallKey(1_000), METHOD, 0, b"").unwrap_err();
    assert_eq!(refused, Refused::Full { max: CRI_STREAMS_MAX });
    client.cancel(CallKey(0));
    client.unary(CallKey(1_000), METHOD, 0, b"").unwrap();

    let (mut server, count) = (Server::default(), TTRPC_CALLS_MAX as u32);
    for n in 0..count {
        server.receive(&request(2 * n + 1, 0, b"")).unwrap();
    }
    assert_eq!(server_events(&mut server).len(), TTRPC_CALLS_MAX);
    server.receive(&request(2 * count + 1, 0, b"")).unwrap();
    assert_eq!(server_events(&mut server), []);
    let text = format!("{TTRPC_CALLS_MAX} calls are open, expected fewer");
    assert_eq!(answered(&mut server), refusal(2 * count + 1, 8, &text));
    server.answer(StreamId(1), b"");
    server.receive(&request(2 * count + 3, 0, b"")).unwrap();
    assert_eq!(server_events(&mut server).len(), 1);
    const { assert!(CRI_STREAMS_MAX < TTRPC_CALLS_MAX, "the agent is never refused") };
}

#[test]
fn a_client_that_does_not_read_is_not_read() {
    let mut server = Server::default();
    server.receive(&request(1, 1, b"")).unwrap();
    let half = vec![0; TTRPC_OUTPUT_BYTES_MAX / 2];
    server.item(StreamId(1), &half);
    assert!(!server.is_full());
    server.item(StreamId(1), &half);
    assert!(server.is_full());
    server.sent(half.len());
    assert!(!server.is_full());
}

#[test]
fn a_cancelled_call_has_no_event_and_the_server_is_told() {
    let mut client = client();
    client.receive(&reply(1, b"ready")).unwrap();
    client.cancel(CallKey(1));
    assert!(written(&mut client).is_empty(), "the call has ended: nothing to cancel");
    client.cancel(CallKey(2));
    client.cancel(CallKey(2));
    let bytes = written(&mut client);
    assert_eq!(bytes, cancel(5, 3));
    assert_eq!(client.calls(), 0);
    // What the server answers is dropped.
    let late = [frame(3, DATA, 0, b"x"), refusal(3, 1, "cancelled"), reply(5, b"")];
    client.receive(&late.concat()).unwrap();
    assert_eq!(client_events(&mut client), []);

    let mut server = Server::default();
    server.receive(&[request(1, 0, b"a"), request(3, 1, b"b"), bytes].concat()).unwrap();
    let expected = [call(1, b"a"), call(3, b"b"), Event::Cancelled(StreamId(3))];
    assert_eq!(server_events(&mut server), expected);
    let answers = [refusal(3, 1, "cancelled by the client"), frame(5, RESPONSE, 0, b"")];
    assert_eq!(answered(&mut server), answers.concat());
    server.item(StreamId(3), b"late");
    server.end(StreamId(3));
    server.answer(StreamId(3), b"late");
    server.refuse(StreamId(3), &status(Code::Unknown, "late"));
    assert!(answered(&mut server).is_empty(), "it has its answer");
    // Neither is one that has just been answered an error, nor one that was never made.
    server.answer(StreamId(1), b"");
    answered(&mut server);
    server.receive(&[cancel(7, 1), cancel(9, 99)].concat()).unwrap();
    let answers = [frame(7, RESPONSE, 0, b""), frame(9, RESPONSE, 0, b"")];
    assert_eq!(answered(&mut server), answers.concat());
    assert_eq!(server_events(&mut server), []);
}

#[test]
fn a_lost_call_may_have_begun_only_if_its_request_was_written() {
    let mut client = Client::new();
    client.unary(CallKey(1), METHOD, 0, b"one").unwrap();
    let first = client.output().len();
    client.unary(CallKey(2), METHOD, 0, b"two").unwrap();
    client.sent(first + 1);
    client.hangup("end of file");
    let lost =
        |key, begun| rpc::Event::Lost(CallKey(key), Lost { begun, why: "end of file".into() });
    assert_eq!(client_events(&mut client), [lost(1, Begun::Perhaps), lost(2, Begun::Never)]);
    assert_eq!(client.closing(), Some("end of file"));
    assert_eq!(client.unary(CallKey(3), METHOD, 0, b""), Err(Refused::Closing));
}

#[test]
fn who_breaks_the_protocol_loses_the_connection() {
    for (bytes, expected) in [
        (request(3, 0, b""), Error::Kind { got: 1, expected: "2 (response) or 3 (data)" }),
        (frame(3, 9, 0, b""), Error::Kind { got: 9, expected: "2 (response) or 3 (data)" }),
        (reply(2, b""), Error::Stream { got: 2, expected: "one that a request was sent on" }),
        (reply(5, b""), Error::Stream { got: 5, expected: "one that a request was sent on" }),
    ] {
        let mut client = client();
        assert_eq!(client.receive(&bytes), Err(expected));
        assert_eq!(client_events(&mut client).len(), 2, "both calls are lost");
        assert!(client.closing().is_some());
    }
    let above = "an odd number above those before";
    for (bytes, expected) in [
        (request(2, 0, b""), Error::Stream { got: 2, expected: above }),
        (request(1, 0, b""), Error::Stream { got: 1, expected: above }),
        (reply(3, b""), Error::Kind { got: 2, expected: "1 (request) or 3 (data)" }),
        (frame(3, DATA, 0, b""), Error::Stream { got: 3, expected: "one of a request before" }),
    ] {
        let mut server = Server::default();
        server.receive(&request(1, 0, b"")).unwrap();
        assert_eq!(server.receive(&bytes), Err(expected));
    }
    let shown = Error::Stream { got: 2, expected: above }.to_string();
    assert_eq!(shown, "got a ttrpc frame of stream 2, expected an odd number above those before");
}

#[test]
fn what_is_no_message_or_no_unary_answer_fails_its_call() {
    let mut client = client();
    let bytes = [frame(1, DATA, 0, b"x"), frame(3, RESPONSE, 0, b"\xff")];
    client.receive(&bytes.concat()).unwrap();
    let [first, second] = &client_events(&mut client)[..] else { panic!("two") };
    let text = "data on the stream of a unary call, expected a response";
    assert_eq!(*first, rpc::Event::Failed(CallKey(1), status(Code::Internal, text)));
    let text = "response is malformed: got no field at byte 0 of 1, expected one";
    assert_eq!(*second, rpc::Event::Failed(CallKey(2), status(Code::Internal, text)));

    let mut server = Server::default();
    server.receive(&frame(1, REQUEST, 0, b"\xff")).unwrap();
    server.receive(&request(3, 2, b"")).unwrap();
    assert_eq!(server_events(&mut server), []);
    let text = "request is malformed: got no field at byte 0 of 1, expected one";
    let answers = [refusal(1, 3, text), refusal(3, 12, "client streams are not served")];
    assert_eq!(answered(&mut server), answers.concat());
    // Its data is dropped.
    server.receive(&frame(3, DATA, 1, b"more")).unwrap();
    assert!(answered(&mut server).is_empty());
}

#[test]
fn a_status_text_has_a_bound_and_a_code_is_known() {
    for (code, expected) in [(99, "status has code 99,"), (-1, "status has code -1,")] {
        let mut client = client();
        client.receive(&refusal(1, code, "why")).unwrap();
        let [rpc::Event::Failed(_, status)] = &client_events(&mut client)[..] else {
            panic!("one")
        };
        assert_eq!(status.code, Code::Unknown);
        assert!(status.message.starts_with(expected), "{status}");
    }
    let mut client = client();
    client.receive(&refusal(1, 2, &"x".repeat(2 * CRI_STATUS_TEXT_BYTES_MAX))).unwrap();
    let [rpc::Event::Failed(_, status)] = &client_events(&mut client)[..] else { panic!("one") };
    assert!(status.message.len() < CRI_STATUS_TEXT_BYTES_MAX + 100, "{}", status.message.len());
}

#[test]
fn the_time_that_a_client_waits_goes_with_its_call() {
    for (timeout_nano, expected) in
        [(0, None), (-1, None), (1_500_000_000, Some(Duration::from_millis(1_500)))]
    {
        let metadata = vec![KeyValue { key: "k".to_owned(), value: "v".to_owned() }];
        let request = Request { timeout_nano, metadata, ..Request::default() };
        let mut server = Server::default();
        server.receive(&frame(1, REQUEST, 0, &request.encode_to_vec())).unwrap();
        let [Event::Call(call)] = &server_events(&mut server)[..] else { panic!("one call") };
        assert_eq!(call.timeout, expected);
    }
}
