//! `wire::manifest::raw`: whatever lies in the cloud's folder is a list of objects with names, or a
//! refusal with its place.
#![no_main]

use edged::wire::manifest::raw::parse;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    match parse(bytes) {
        Ok(manifests) => {
            for one in manifests {
                assert!(!one.name.is_empty());
                assert_eq!(one.namespace.is_empty(), !one.kind.is_namespaced());
            }
        }
        Err(refusal) => assert!(!refusal.to_string().is_empty()),
    }
});
