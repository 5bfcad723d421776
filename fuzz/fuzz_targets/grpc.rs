//! Responses whose frames are right and whose content is any. Input: lengths of a status, a text
//! and the pieces of the body, then what is in them.
#![no_main]

use edged::limits::{CRI_MESSAGE_BYTES_MAX, CRI_STATUS_TEXT_BYTES_MAX};
use edged::wire::grpc::{Assembler, CallKey, Client, Event};
use edged::wire::{h2, hpack};
use libfuzzer_sys::fuzz_target;

const CUT_NOTE_BYTES: usize = 100;

fuzz_target!(|data: &[u8]| {
    let [status, text, piece, rest @ ..] = data else { return };
    let (status, rest) = rest.split_at(rest.len().min(usize::from(*status & 7)));
    let (text, body) = rest.split_at(rest.len().min(usize::from(*text)));
    let piece = 1 + usize::from(*piece);

    let mut assembler = Assembler::default();
    let mut messages = Vec::new();
    let readable = body.chunks(piece).try_for_each(|mut part| {
        while !part.is_empty() {
            messages.extend(assembler.next(&mut part, CRI_MESSAGE_BYTES_MAX)?);
        }
        Ok::<(), edged::wire::grpc::Unreadable>(())
    });

    let mut client = Client::new(h2::Config::default());
    client.unary(CallKey(1), "/fuzz.Service/Unary", b"").unwrap();
    client.stream(CallKey(3), "/fuzz.Service/Stream", b"").unwrap();
    client.receive(&frame(4, 0, 0, &[])).unwrap();
    for stream in [1, 3] {
        let head = fields(&[(":status", b"200"), ("content-type", b"application/grpc")]);
        client.receive(&frame(1, 4, stream, &head)).unwrap();
        for part in body.chunks(piece) {
            client.receive(&frame(0, 0, stream, part)).unwrap();
        }
        let end = fields(&[("grpc-status", status), ("grpc-message", text)]);
        client.receive(&frame(1, 5, stream, &end)).unwrap();
    }

    let (mut seen, mut ends) = (Vec::new(), 0);
    while let Some(event) = client.poll_event() {
        match event {
            Event::Message(CallKey(3), message) => seen.push(message),
            Event::Reply(CallKey(1), reply) => {
                assert_eq!((messages.as_slice(), status), (&[reply][..], &b"0"[..]));
                ends += 1;
            }
            Event::Done(CallKey(3)) => {
                assert!(readable.is_ok() && !assembler.is_inside());
                ends += 1;
            }
            Event::Failed(_, status) => {
                assert!(status.message.len() <= CRI_STATUS_TEXT_BYTES_MAX + CUT_NOTE_BYTES);
                ends += 1;
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((seen, ends), (messages, 2));
});

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut out = (payload.len() as u32).to_be_bytes()[1..].to_vec();
    out.extend([kind, flags]);
    out.extend(stream.to_be_bytes());
    out.extend(payload);
    out
}

/// Values are any bytes, which our own encoder, made for text, does not take.
fn fields(fields: &[(&str, &[u8])]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        let mut field = Vec::new();
        hpack::encode(name, &"x".repeat(value.len()), &mut field);
        field.truncate(field.len() - value.len());
        block.extend(field);
        block.extend(*value);
    }
    block
}
