//! A server's bytes, any, to a client with calls open. Input: how it is split and whether a good
//! SETTINGS frame comes first, then the bytes.
#![no_main]

use std::collections::BTreeSet;

use edged::limits::CRI_OUTPUT_BYTES_MAX;
use edged::wire::grpc::{CallKey, Client, Event};
use edged::wire::h2;
use libfuzzer_sys::fuzz_target;

const CALLS: u64 = 6;
/// The frame that breaks the bound, and the farewell.
const OUTPUT_SLACK_BYTES: usize = 100;

fuzz_target!(|data: &[u8]| {
    let [how, server @ ..] = data else { return };
    let header_table_bytes = if how & 0x20 == 0 { 0 } else { 4096 };
    let mut client = Client::new(h2::Config { header_table_bytes, ..h2::Config::default() });
    for key in 0..CALLS {
        let call = if key % 3 == 2 { Client::stream } else { Client::unary };
        call(&mut client, CallKey(key), "/fuzz.Service/Method", &[0; 100]).unwrap();
    }
    if how & 0x80 != 0 {
        client.receive(&[0, 0, 0, 4, 0, 0, 0, 0, 0]).unwrap();
    }
    if how & 0x40 != 0 {
        client.cancel(CallKey(1));
    }
    let mut ended = BTreeSet::new();
    for part in server.chunks(1 + usize::from(how & 0x1f) * 16) {
        let failed = client.receive(part).is_err();
        assert!(!failed || client.calls() == 0);
        assert!(client.output().len() <= CRI_OUTPUT_BYTES_MAX + OUTPUT_SLACK_BYTES);
        client.sent(client.output().len() / 2);
        take(&mut client, &mut ended);
    }
    client.hangup("end of file");
    take(&mut client, &mut ended);
    let cancelled = usize::from(how & 0x40 != 0 && !ended.contains(&CallKey(1)));
    assert_eq!(ended.len() + cancelled, CALLS as usize, "every call ends");
});

fn take(client: &mut Client, ended: &mut BTreeSet<CallKey>) {
    while let Some(event) = client.poll_event() {
        let last = !matches!(event, Event::Message(..));
        assert!(!ended.contains(&event.key()), "an event after the last one");
        if last {
            ended.insert(event.key());
        }
    }
}
