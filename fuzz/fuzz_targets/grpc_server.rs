//! A client's bytes, any, to the server's end of gRPC. Input: how it is split and whether a good
//! preface comes first, then the bytes.
#![no_main]

use edged::limits::{DMI_MESSAGE_BYTES_MAX, DMI_OUTPUT_BYTES_MAX};
use edged::wire::grpc::{Incoming, Server};
use libfuzzer_sys::fuzz_target;

/// The answer that breaks the bound, and the farewell.
const OUTPUT_SLACK_BYTES: usize = 4 << 10;

fuzz_target!(|data: &[u8]| {
    let [how, client @ ..] = data else { return };
    let mut server = Server::default();
    if how & 0x80 != 0 {
        server.receive(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").unwrap();
    }
    for part in client.chunks(1 + usize::from(how & 0x1f) * 16) {
        let failed = server.receive(part).is_err();
        assert!(server.output().len() <= DMI_OUTPUT_BYTES_MAX + OUTPUT_SLACK_BYTES);
        server.sent(server.output().len() / 2);
        while let Some(incoming) = server.poll_incoming() {
            let Incoming::Call(call) = incoming else { continue };
            assert!(call.message.len() <= DMI_MESSAGE_BYTES_MAX);
            if how & 0x40 == 0 {
                server.answer(call.stream, Ok(&call.message));
            }
        }
        if failed {
            return;
        }
    }
});
