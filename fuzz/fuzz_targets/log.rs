//! `wire::log::follow`: the output of a log does not depend on how its file is cut into pieces, and
//! never passes its limit.
#![no_main]

use edged::wire::log::follow::{Formatter, More};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u8, u16, Vec<u8>)| {
    let (options, limit, log) = input;
    let piece = usize::from(options >> 3) + 1;
    let limit = (options & 1 != 0).then_some(u64::from(limit));
    let since = (options & 2 != 0).then_some(1_700_000_000_000_000_000);
    let timestamps = options & 4 != 0;
    let output = |piece: usize| {
        let mut formatter = Formatter::new(timestamps, since, limit);
        let mut out = Vec::new();
        for piece in log.chunks(piece) {
            match formatter.take(piece, &mut out) {
                Ok(More::Yes) => {}
                Ok(More::No) => return Some(out),
                Err(_) => return None,
            }
        }
        Some(out)
    };
    let (whole, cut) = (output(log.len().max(1)), output(piece));
    assert_eq!(whole, cut);
    if let (Some(out), Some(limit)) = (whole, limit) {
        assert!(out.len() as u64 <= limit);
    }
});
