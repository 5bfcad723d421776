//! Any bytes to either end of a ttrpc connection, and any message to the built-in runtime's codec.
//! Input: how it is split and which method, then the bytes.
#![no_main]

use std::collections::BTreeSet;

use edged::limits::TTRPC_CALLS_MAX;
use edged::wire::cri::{Rpc, serve};
use edged::wire::rpc::{CallKey, Event};
use edged::wire::ttrpc::{self, Client, Server};
use libfuzzer_sys::fuzz_target;

const METHOD: (&str, &str) = ("fuzz.Service", "Method");
const CALLS: u64 = 6;

fuzz_target!(|data: &[u8]| {
    let [how, which, bytes @ ..] = data else { return };
    let piece = 1 + usize::from(how & 0x1f) * 16;
    client(*how, bytes.chunks(piece));
    server(bytes.chunks(piece));
    let rpc = Rpc::ALL[usize::from(*which) % Rpc::ALL.len()];
    let read = serve::decode(rpc.service(), rpc.name(), bytes);
    assert_eq!(serve::decode(rpc.service(), rpc.name(), bytes), read);
});

fn client<'a>(how: u8, parts: impl Iterator<Item = &'a [u8]>) {
    let mut client = Client::new();
    for key in 0..CALLS {
        let call = if key % 3 == 2 { Client::stream } else { Client::unary };
        call(&mut client, CallKey(key), METHOD, 0, &[0; 100]).unwrap();
    }
    if how & 0x40 != 0 {
        client.cancel(CallKey(1));
    }
    let mut ended = BTreeSet::new();
    let mut take = |client: &mut Client| {
        while let Some(event) = client.poll_event() {
            assert!(!ended.contains(&event.key()), "an event after the last one");
            if !matches!(event, Event::Message(..)) {
                ended.insert(event.key());
            }
        }
        ended.len()
    };
    for part in parts {
        let failed = client.receive(part).is_err();
        assert!(!failed || client.calls() == 0);
        client.sent(client.output().len() / 2);
        take(&mut client);
        if failed {
            break;
        }
    }
    client.hangup("end of file");
    let ended = take(&mut client) + usize::from(how & 0x40 != 0);
    assert_eq!(ended, CALLS as usize, "every call ends");
}

fn server<'a>(parts: impl Iterator<Item = &'a [u8]>) {
    let mut server = Server::default();
    let mut count = 0_usize;
    for part in parts {
        let failed = server.receive(part).is_err();
        while let Some(event) = server.poll_event() {
            let ttrpc::Event::Call(call) = event else { continue };
            count += 1;
            if count % 3 == 0 {
                server.answer(call.stream, &call.payload);
            }
        }
        assert!(server.open().count() <= TTRPC_CALLS_MAX);
        server.sent(server.output().len() / 2);
        if failed {
            break;
        }
    }
}
