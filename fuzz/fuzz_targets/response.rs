//! Answers over HTTP: the same, however the bytes are cut. The first byte says where, the second
//! whether more than one is read.
#![no_main]

use edged::wire::http1::response::{Fault, Piece, Reader};
use libfuzzer_sys::fuzz_target;

/// Statuses, the bodies put together, how many answers ended, and what ended the reading.
type Found = (Vec<u16>, Vec<u8>, usize, Option<Fault>);

fn read(mut reader: Reader, parts: &[&[u8]]) -> Found {
    let (mut heads, mut body, mut ends) = (vec![], vec![], 0);
    for part in parts {
        reader.receive(part);
        loop {
            match reader.piece() {
                Ok(Some(Piece::Head(head))) => heads.push(head.status),
                Ok(Some(Piece::Body(bytes))) => body.extend_from_slice(bytes),
                Ok(Some(Piece::End)) => ends += 1,
                Ok(None) => break,
                Err(fault) => return (heads, body, ends, Some(fault)),
            }
        }
    }
    (heads, body, ends, None)
}

fuzz_target!(|data: &[u8]| {
    let [at, single, bytes @ ..] = data else { return };
    let (one, two) = bytes.split_at(usize::from(*at).min(bytes.len()));
    let reader = || if single & 1 == 1 { Reader::single() } else { Reader::default() };
    let ((heads, body, ends, fault), cut) = (read(reader(), &[bytes]), read(reader(), &[one, two]));
    assert_eq!((&heads, &body, ends), (&cut.0, &cut.1, cut.2));
    // The first line is told as far as it was there.
    assert_eq!(fault.is_some(), cut.3.is_some());
});
