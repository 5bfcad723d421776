//! Answers of an API server: the same pieces, however the bytes are cut.
//! The first byte says where.
#![no_main]

use edged::wire::http1::response::{Piece, Reader};
use libfuzzer_sys::fuzz_target;

/// All that came: bodies put together, since they come as they are cut.
fn read(parts: &[&[u8]]) -> (Vec<u16>, Vec<u8>, usize, bool) {
    let (mut reader, mut heads, mut body, mut ends) = (Reader::default(), vec![], vec![], 0);
    for part in parts {
        let Ok(pieces) = reader.receive(part) else { return (heads, body, ends, false) };
        for piece in pieces {
            match piece {
                Piece::Head(status, _) => heads.push(status),
                Piece::Body(bytes) => body.extend(bytes),
                Piece::End => ends += 1,
            }
        }
    }
    (heads, body, ends, true)
}

fuzz_target!(|data: &[u8]| {
    let Some((at, bytes)) = data.split_first() else { return };
    let (one, two) = bytes.split_at(usize::from(*at).min(bytes.len()));
    let (whole, cut) = (read(&[bytes]), read(&[one, two]));
    // A fault behind something good takes what came with it.
    if whole.3 && cut.3 {
        assert_eq!(whole, cut);
    }
    assert!(whole.3 || !cut.3, "only whole it is refused, or only cut");
});
