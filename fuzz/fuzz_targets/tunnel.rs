//! `wire::tunnel`: whatever the cloud sends is a message or an error, and what is read of it is
//! what is written again.
#![no_main]

use edged::wire::tunnel::{Connect, Kind, Message};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(message) = Message::decode(bytes) {
        let mut again = Vec::new();
        message.encode(&mut again);
        assert_eq!(Message::decode(&again), Ok(message));
        read(message.data);
    }
    read(bytes);
});

fn read(data: &[u8]) {
    let Ok(connect) = Connect::decode(data) else { return };
    let forged = |text: &str| text.contains(['\r', '\n', '\0', ' ']);
    assert!(!forged(&connect.target()) && !forged(&connect.method));
    for (name, value) in &connect.headers {
        assert!(!forged(name) && !value.contains(['\r', '\n', '\0']));
    }
    // Names of headers are written in one spelling, so those that differ in case alone are joined.
    if let Ok(again) = Connect::decode(&connect.encode(Kind::Exec)) {
        assert_eq!((again.id, again.target()), (connect.id, connect.target()));
        assert_eq!(again.headers.len(), connect.headers.len());
    }
}
