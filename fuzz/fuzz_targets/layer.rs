//! What a runtime reads of an image before its digest is known: any bytes as gzip, as the heads of a
//! tar archive inside it, as an index, a manifest and a configuration, and as a registry's words.
#![no_main]

use std::io::Read;

use edged::wire::inflate::Gunzip;
use edged::wire::oci::image::{self, Challenge, Document, Machine};
use edged::wire::tar::{self, Head, Kind};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let mut plain = Vec::new();
    let _ = Gunzip::new(data).take(1 << 20).read_to_end(&mut plain);
    heads(&plain);
    heads(data);
    if let Ok(Document::Index(entries)) = image::document(data) {
        let machine = Machine { architecture: "arm", variant: 7 };
        if let Some(chosen) = machine.choose(&entries) {
            assert!(entries.contains(chosen));
        }
    }
    let _ = (image::config(data), image::refusal(data));
    if let Some(token) = image::token(data) {
        assert!(token.bytes().all(|byte| byte.is_ascii_graphic()));
    }
    if let Ok(text) = core::str::from_utf8(data) {
        let _ = Challenge::parse(text);
        assert!(image::encoded(text).is_ascii());
    }
});

fn heads(archive: &[u8]) {
    let mut at = 0_u64;
    while let Some(block) = archive.get(at as usize..).and_then(|rest| rest.first_chunk()) {
        let size = match tar::head(block) {
            Ok(Head::Entry(entry)) => {
                assert!(entry.size == 0 || entry.kind == Kind::File);
                entry.size
            }
            Ok(Head::More(size)) => {
                let begin = at as usize + tar::BLOCK;
                let end = begin.saturating_add(size as usize);
                if let Some(Ok(pax)) = archive.get(begin..end).map(tar::more) {
                    assert!(pax.modified.is_none_or(|(_, nanos)| nanos < 1_000_000_000));
                }
                size
            }
            Ok(Head::LongName(size) | Head::LongLink(size) | Head::Skip(size)) => size,
            Ok(Head::End) | Err(_) => return,
        };
        let Some(next) = tar::next(at + tar::BLOCK as u64, size) else { return };
        assert!(next > at);
        if next > archive.len() as u64 {
            return;
        }
        at = next;
    }
}
