//! Gzip as other programs write it, cut and spoilt everywhere, and as none writes it.

use std::io::{self, ErrorKind, Read, Write};
use std::process::{Command, Stdio};

use crate::wire::inflate::Gunzip;

/// Packed by another program.
fn packed(text: &[u8], level: &str) -> Vec<u8> {
    let mut gzip = Command::new("gzip");
    let child = gzip.arg(level).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let mut child = child.expect("gzip is part of every Debian");
    let mut input = child.stdin.take().expect("piped");
    let text = text.to_vec();
    #[expect(clippy::disallowed_methods, reason = "the other end of two pipes")]
    let writer = std::thread::spawn(move || input.write_all(&text));
    let output = child.wait_with_output().expect("it ends");
    writer.join().expect("it ends").expect("it reads everything");
    output.stdout
}

fn unpacked(packed: &[u8]) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    Gunzip::new(packed).read_to_end(&mut text).map(|_| text)
}

fn noise(length: usize) -> Vec<u8> {
    let mut state = 1_u32;
    let next = |_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    (0..length).map(next).collect()
}

#[test]
fn what_gzip_packs_is_unpacked() {
    let line = |n: usize| format!("{n:09} a line of a text that repeats itself, {}\n", n * n);
    let lines: Vec<u8> = (0..4_000).flat_map(|n| line(n).into_bytes()).collect();
    // Rare symbols have codes that are longer than those that are looked up.
    let skewed: Vec<u8> =
        noise(150_000).iter().map(|byte| (byte.leading_zeros() * 31) as u8).collect();
    let program = std::fs::read("/bin/sh").expect("a shell is here");
    let texts =
        [b"".to_vec(), b"a".to_vec(), vec![0; 300_000], noise(150_000), lines, skewed, program];
    for text in &texts {
        for level in ["-1", "-9"] {
            let packed = packed(text, level);
            let got = unpacked(&packed).expect("it is gzip");
            assert!(got == *text, "{} bytes at {level}", text.len());
        }
    }
    let members = [packed(&texts[4], "-6"), packed(b"b", "-1"), packed(&texts[3], "-1")];
    let want = [&texts[4][..], b"b", &texts[3]].concat();
    assert!(unpacked(&members.concat()).expect("they are gzip") == want, "three members");
}

#[test]
fn what_is_cut_or_spoilt_is_an_error_or_another_text() {
    let text: Vec<u8> =
        (0..60).flat_map(|n: u32| format!("{n} {}\n", n * 7).into_bytes()).collect();
    let good = packed(&text, "-9");
    for end in 0..good.len() {
        let why = unpacked(&good[..end]).expect_err("it is cut off");
        assert_eq!(why.kind(), ErrorKind::UnexpectedEof, "{end}: {why}");
    }
    // Each bit: no panic, no endless loop, no more bytes than a member can have.
    for at in 0..good.len() * 8 {
        let mut bad = good.clone();
        bad[at / 8] ^= 1 << (at % 8);
        let mut text = Vec::new();
        let _ = Gunzip::new(&bad[..]).take(64 << 10).read_to_end(&mut text);
    }
    for end in [&[0][..], b"\x1f\x8b\x09"] {
        let why = unpacked(&[&good, end].concat()).expect_err("more follows").to_string();
        assert!(why.starts_with("gzip: "), "{why}");
    }
}

#[test]
fn what_no_packer_writes_is_refused() {
    let of = |block: &[u8]| {
        let head = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3];
        unpacked(&[&head[..], block].concat()).expect_err("it is wrong").to_string()
    };
    // A match before the first byte, in the fixed codes: symbol 257, distance 1.
    assert!(of(&[0x03, 0x02, 0, 0, 0, 0, 0, 0]).contains("distance of 1, expected 0"));
    assert!(of(&[0x07, 0, 0, 0]).contains("unknown type"));
    assert!(of(&[0x01, 1, 0, 1, 0, 0, 0]).contains("without its length"));
    // 31 + 257 codes for literals.
    assert!(of(&[0xfd, 0x00, 0, 0, 0, 0, 0]).contains("more codes than there are"));
    // All lengths of lengths are 1.
    assert!(
        of(&[0x05, 0xe0, 0x93, 0x24, 0x49, 0x92, 0x24, 0x49, 0x92, 0x24]).contains("of a length")
    );
    // A stored block of one byte, and another length at the end.
    let stored = [1, 1, 0, 0xfe, 0xff, b'a', 0, 0, 0, 0, 2, 0, 0, 0];
    assert!(of(&stored).contains("member of 1 bytes, expected 2"));
}
