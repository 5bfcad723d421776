//! `wire::edge` and `wire::kubeedge`: whatever the other end sends is a message or an error, and
//! both a node and the controller make something of any message.
#![no_main]

use edged::limits::Budget;
use edged::model::message::inner;
use edged::wire::edge::{decode, encode};
use edged::wire::kubeedge;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(message) = decode(bytes) else { return };
    if let Some(content) = &message.content {
        let _ = inner(content);
    }
    let _ = kubeedge::decode(&message, &Budget::FULL);
    let again = decode(&encode(&message)).expect("what is written can be read");
    assert_eq!((again.header, again.route), (message.header.clone(), message.route.clone()));
    let _ = kubeedge::decode_edge(message);
});
