//! `wire::x509::issue`: applications and certificates of anybody who dials. What is read lies
//! within the bytes.
#![no_main]

use edged::wire::x509::issue::{Application, Subject, halves_of_sec1};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    match Application::read(bytes) {
        Ok(read) => {
            for part in [read.signed, read.signature, read.point] {
                assert!(bytes.as_ptr_range().contains(&part.as_ptr()) || part.is_empty());
            }
        }
        Err(fault) => assert!(fault.at <= bytes.len()),
    }
    if let Err(fault) = Subject::of(bytes) {
        assert!(fault.at <= bytes.len());
    }
    let _ = halves_of_sec1(bytes);
});
