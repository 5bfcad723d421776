//! `wire::x509`: whatever a file or the cloud has is a certificate or a fault with its place.
#![no_main]

use edged::wire::x509::{is_sec1, pem, private_of_pkcs8, read};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Err(fault) = read(bytes) {
        assert!(fault.at <= bytes.len());
    }
    let _ = private_of_pkcs8(bytes);
    let _ = is_sec1(bytes);
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let Ok(blocks) = pem::decode(text) else { return };
    for block in blocks {
        let again = pem::decode(&pem::encode(&block.label, &block.der));
        assert_eq!(again.expect("what is written can be read"), [block]);
    }
});
