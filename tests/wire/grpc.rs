//! gRPC: messages, and the handling of invalid responses.

use edged::limits;
use edged::limits::CRI_MESSAGE_BYTES_MAX as MAX;
use edged::wire::grpc::{Assembler, CallKey, Client, Code, Event, Refused, Status, Unreadable};

use crate::peer::{
    self, DATA, END_HEADERS, END_STREAM, HEADERS, RST_STREAM, block, client, client_with_calls,
    events, frame, head, message, trailers, written,
};

/// The status that a unary call on stream 1 gets from these bytes.
fn status(bytes: &[u8]) -> Status {
    let mut client = client_with_calls(1);
    client.receive(bytes).unwrap();
    match events(&mut client).as_slice() {
        [Event::Failed(CallKey(1), status)] => status.clone(),
        other => panic!("{other:?}"),
    }
}

fn only_headers(fields: &[(&str, &str)]) -> Vec<u8> {
    frame(HEADERS, END_HEADERS | END_STREAM, 1, &block(fields))
}

fn data(bytes: &[u8]) -> Vec<u8> {
    frame(DATA, 0, 1, bytes)
}

#[test]
fn messages_are_put_together_from_any_split() {
    let wire = [message(b"one"), message(b""), message(&[7; 300])].concat();
    for size in 1..=wire.len() {
        let mut assembler = Assembler::default();
        let mut got = Vec::new();
        for mut part in wire.chunks(size) {
            while !part.is_empty() {
                got.extend(assembler.next(&mut part, MAX).unwrap());
            }
        }
        assert_eq!(got, [b"one".to_vec(), b"".to_vec(), vec![7; 300]]);
        assert!(!assembler.is_inside());
    }
}

/// An announced length is a promise, not memory.
#[test]
fn memory_follows_what_has_come() {
    let mut assembler = Assembler::default();
    assert_eq!(assembler.next(&mut &[0, 1, 0, 0, 0, 42][..], MAX), Ok(None));
    assert_eq!(assembler.held_bytes(), 1);
    let too_large = [0, 1, 0, 0, 1];
    let got_bytes = (16 << 20) + 1;
    let error = Assembler::default().next(&mut &too_large[..], MAX).unwrap_err();
    assert_eq!(error, Unreadable::TooLarge { got_bytes, max_bytes: MAX });
}

#[test]
fn a_unary_call_wants_one_message_and_ok() {
    let internal = |message: &str| Status { code: Code::Internal, message: message.to_owned() };
    let ok = trailers(1, "0", "");
    assert_eq!(
        status(&[head(1), ok.clone()].concat()),
        internal("status OK without a message, expected one")
    );
    assert_eq!(
        status(&[head(1), data(&message(b"1")), data(&message(b"2")), ok.clone()].concat()),
        internal("second message to a unary call, expected one")
    );
    assert_eq!(
        status(&[head(1), data(&message(b"cut")[..7]), ok].concat()),
        internal("response ended inside a message, expected the rest")
    );
    let refused = trailers(1, "9", "not now");
    assert_eq!(
        status(&[head(1), data(&message(b"1")), refused].concat()),
        Status { code: Code::FailedPrecondition, message: "not now".to_owned() }
    );
}

#[test]
fn an_unreadable_message_ends_the_call_and_its_stream() {
    let large = (limits::CRI_MESSAGE_BYTES_MAX as u32 + 1).to_be_bytes();
    for (body, code, text) in [
        ([1, 0, 0, 0, 1], Code::Internal, "message has compressed flag 1, expected 0"),
        (
            [0, large[0], large[1], large[2], large[3]],
            Code::ResourceExhausted,
            "message has 16777217 bytes, expected at most 16777216",
        ),
    ] {
        let mut client = client_with_calls(1);
        client.receive(&[head(1), data(&body)].concat()).unwrap();
        let status = Status { code, message: text.to_owned() };
        assert_eq!(events(&mut client), [Event::Failed(CallKey(1), status)]);
        let wrote = written(&mut client);
        assert_eq!((wrote.len(), wrote[0].kind, wrote[0].number()), (1, RST_STREAM, 8));
        client.receive(&[data(b"more"), trailers(1, "0", "")].concat()).unwrap();
        assert_eq!(events(&mut client), []);
    }
}

#[test]
fn a_response_without_a_status_is_not_a_success() {
    let unknown = |message: &str| Status { code: Code::Unknown, message: message.to_owned() };
    let end = frame(HEADERS, END_HEADERS | END_STREAM, 1, &block(&[("x", "y")]));
    assert_eq!(
        status(&[head(1), data(&message(b"1")), end].concat()),
        unknown("trailers without the grpc-status expected")
    );
    assert_eq!(
        status(&[head(1), frame(DATA, END_STREAM, 1, &message(b"1"))].concat()),
        unknown("response ended with DATA, expected trailers with grpc-status")
    );
    for number in ["17", "", "x", "-1", "99999999999"] {
        let text = format!("grpc-status is \"{number}\", expected 0 to 16: hm");
        assert_eq!(status(&trailers(1, number, "hm")), unknown(&text));
    }
}

#[test]
fn a_status_of_http_is_mapped() {
    let mapped = [
        ("400", Code::Internal),
        ("401", Code::Unauthenticated),
        ("403", Code::PermissionDenied),
        ("404", Code::Unimplemented),
        ("429", Code::Unavailable),
        ("502", Code::Unavailable),
        ("503", Code::Unavailable),
        ("504", Code::Unavailable),
        ("500", Code::Unknown),
        ("200", Code::Unknown),
    ];
    for (number, code) in mapped {
        let fields = [(":status", number), ("content-type", "text/html")];
        let expected = format!(
            "response has :status \"{number}\" and content-type \"text/html\", expected \"200\" \
             and \"application/grpc\""
        );
        let expected = Status { code, message: expected };
        assert_eq!(status(&only_headers(&fields)), expected);
        let with_body = frame(HEADERS, END_HEADERS, 1, &block(&fields));
        assert_eq!(status(&[with_body, data(b"<html>")].concat()), expected);
    }
    // A server that uses gRPC sends both, and the more precise one counts.
    let both = [(":status", "415"), ("grpc-status", "3"), ("grpc-message", "no")];
    assert_eq!(status(&only_headers(&both)).code, Code::InvalidArgument);
    assert_eq!(status(&only_headers(&[])).code, Code::Unknown);
}

#[test]
fn content_types_of_grpc_are_accepted() {
    for (content_type, good) in [
        ("application/grpc", true),
        ("application/grpc+proto", true),
        ("application/grpc;charset=x", true),
        ("application/grpcweb", false),
        ("application/json", false),
    ] {
        let mut client = client_with_calls(1);
        let fields = block(&[(":status", "200"), ("content-type", content_type)]);
        client.receive(&frame(HEADERS, END_HEADERS, 1, &fields)).unwrap();
        client.receive(&[data(&message(b"1")), trailers(1, "0", "")].concat()).unwrap();
        assert_eq!(matches!(events(&mut client)[0], Event::Reply(..)), good, "{content_type}");
    }
}

#[test]
fn texts_are_decoded_as_far_as_they_are_encoded() {
    let table = [
        ("a%20b", "a b"),
        ("100%", "100%"),
        ("%zz%4", "%zz%4"),
        ("%e2%82%AC", "€"),
        ("%ff", "\u{fffd}"),
    ];
    for (wire, text) in table {
        assert_eq!(status(&trailers(1, "2", wire)).message, text);
    }
}

/// A text of 300 KiB does not fit a header list; the code does.
#[test]
fn a_text_that_does_not_fit_leaves_its_code() {
    let text = "é".repeat(150_000);
    let fields = block(&[("grpc-status", "5"), ("grpc-message", &text)]);
    let mut client = client_with_calls(1);
    // Huffman makes it fit a block; here the limit of the block is reached first.
    let mut parts = fields.chunks(16_384);
    client.receive(&frame(HEADERS, END_STREAM, 1, parts.next().unwrap())).unwrap();
    let error = parts.find_map(|part| client.receive(&frame(9, 0, 1, part)).err());
    assert!(error.unwrap().to_string().contains("header block is too large"));

    // "0" has five bits: 200,000 bytes become 320,000.
    let mut fields = block(&[("grpc-status", "5")]);
    fields.extend(b"\x00\x0cgrpc-message\xff\xc1\x99\x0c");
    fields.extend(std::iter::repeat_n(0, 200_000));
    let mut bytes = Vec::new();
    let count = fields.len().div_ceil(16_384);
    for (n, part) in fields.chunks(16_384).enumerate() {
        let kind = if n == 0 { HEADERS } else { peer::CONTINUATION };
        let end = if n == 0 { END_STREAM } else { 0 };
        let last = if n + 1 == count { END_HEADERS } else { 0 };
        bytes.extend(frame(kind, end | last, 1, part));
    }
    let expected = "(1 header fields dropped: beyond the bound)";
    let status = status(&bytes);
    assert_eq!((status.code, status.message.as_str()), (Code::NotFound, expected));
}

#[test]
fn a_text_is_cut_between_characters() {
    let text = format!("x{}", "é".repeat(5_000));
    let status = status(&trailers(1, "2", &text));
    assert_eq!(status.message.len(), 8_191 + "… (1810 bytes cut)".len());
    assert!(status.message.ends_with("é… (1810 bytes cut)"));
}

/// Two lists of 16 MiB at once are more than the gateway wants to hold.
#[test]
fn unfinished_replies_have_a_bound_together() {
    let mut client = client_with_calls(2);
    client.receive(&[head(1), head(3)].concat()).unwrap();
    let prefix = [0, 1, 0, 0, 0];
    client.receive(&frame(DATA, 0, 1, &prefix)).unwrap();
    client.receive(&frame(DATA, 0, 3, &prefix)).unwrap();
    let got = 'full: loop {
        for stream in [1, 3] {
            client.receive(&frame(DATA, 0, stream, &[0; 16_384])).unwrap();
            if let Some(event) = client.poll_event() {
                break 'full event;
            }
        }
        written(&mut client);
    };
    let Event::Failed(CallKey(1), status) = got else { panic!("{got:?}") };
    assert_eq!(status.code, Code::ResourceExhausted);
    assert_eq!(status.message, "unfinished replies have 25165824 bytes, expected at most 25165824");
    assert_eq!(client.calls(), 1);
}

#[test]
fn a_request_beyond_the_bound_is_not_sent() {
    let mut client = client(&[]);
    let request = vec![0; limits::CRI_MESSAGE_BYTES_MAX + 1];
    let refused = client.unary(CallKey(1), "/a/b", &request).unwrap_err();
    let max_bytes = limits::CRI_MESSAGE_BYTES_MAX;
    assert_eq!(refused, Refused::TooLarge { got_bytes: request.len(), max_bytes });
    assert_eq!(refused.to_string(), "request has 16777217 bytes, expected at most 16777216");
    assert_eq!(client.calls(), 0);
}

#[test]
fn metadata_goes_with_its_call_and_with_no_other() {
    let mut client = client(&[]);
    let is_waiting = |client: &Client| {
        let text = b"\x14containerd-namespace\x06k8s.io";
        client.output().windows(text.len()).any(|part| part == text)
    };
    client.unary(CallKey(1), "/a/b", b"").unwrap();
    assert!(!is_waiting(&client));
    written(&mut client);
    let metadata = Some(("containerd-namespace", "k8s.io"));
    client.unary_with(CallKey(2), "/a/c", metadata, b"").unwrap();
    assert!(is_waiting(&client));
    written(&mut client);
    client.unary(CallKey(3), "/a/b", b"").unwrap();
    assert!(!is_waiting(&client));
}

#[test]
#[should_panic(expected = "call 1 is under way already")]
fn a_key_names_one_call() {
    let mut client = client(&[]);
    client.unary(CallKey(1), "/a/b", b"").unwrap();
    client.unary(CallKey(1), "/a/b", b"").unwrap();
}

#[test]
fn a_cancelled_call_has_no_event_even_if_one_was_ready() {
    let mut client = client_with_calls(2);
    client.receive(&[peer::reply(1, b"one"), peer::reply(3, b"two")].concat()).unwrap();
    client.cancel(CallKey(1));
    assert_eq!(events(&mut client), [Event::Reply(CallKey(3), b"two".to_vec())]);
    assert!(written(&mut client).is_empty(), "the stream had ended: nothing to reset");
}

#[test]
fn codes_have_their_numbers() {
    for (number, code) in Code::ALL.into_iter().enumerate() {
        assert_eq!(code as usize, number);
        assert_eq!(Code::from_u32(number as u32), Some(code));
    }
    assert_eq!(Code::from_u32(17), None);
    assert_eq!(Code::NotFound.to_string(), "NOT_FOUND");
}
