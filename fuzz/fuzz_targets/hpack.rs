//! Header blocks, one after another on one table. Input: table size, list bound, then blocks, each
//! with its length in a byte.
#![no_main]

use edged::wire::hpack::Decoder;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let [table, list, blocks @ ..] = data else { return };
    let list_bytes_max = usize::from(*list) * 16;
    let mut decoder = Decoder::new(usize::from(*table) * 4, list_bytes_max);
    let mut rest = blocks;
    while let Some((&length, after)) = rest.split_first() {
        let (block, next) = after.split_at(after.len().min(length.into()));
        let Ok(fields) = decoder.decode(block) else { return };
        assert!(fields.size_bytes() <= list_bytes_max);
        assert!(fields.iter().count() + fields.dropped() <= block.len());
        rest = next;
    }
});
