//! `wire::kubeconfig`: whatever a file holds is a cluster or a refusal with words.
#![no_main]

use edged::wire::kubeconfig::parse;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Err(refusal) = parse(bytes) {
        assert!(!refusal.to_string().is_empty());
    }
});
