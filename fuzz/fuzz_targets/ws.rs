//! `wire::ws`: any bytes, whole and one by one, bring the same; and no more is kept than a message
//! may have.
#![no_main]

use edged::wire::ws::{Incoming, Receiver, Violation};
use libfuzzer_sys::fuzz_target;

const MAX: usize = 256;

fuzz_target!(|bytes: &[u8]| {
    let whole = all(bytes, bytes.len().max(1));
    assert_eq!(whole, all(bytes, 1));
    assert_eq!(whole, all(bytes, 7));
});

fn all(bytes: &[u8], size: usize) -> (Vec<Incoming>, Option<Violation>) {
    let mut receiver = Receiver::new(MAX);
    let mut found = Vec::new();
    for piece in bytes.chunks(size) {
        let mut rest = piece;
        while !rest.is_empty() {
            match receiver.receive(rest) {
                Err(violation) => return (found, Some(violation)),
                Ok((taken, incoming)) => {
                    rest = &rest[taken..];
                    if let Some(Incoming::Message(message)) = &incoming {
                        assert!(message.len() <= MAX);
                    }
                    found.extend(incoming);
                }
            }
        }
    }
    (found, None)
}
