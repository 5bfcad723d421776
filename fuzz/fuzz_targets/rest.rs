//! `wire::rest`: paths of anybody on loopback. What is read is written the same way again.
#![no_main]

use edged::wire::http1::call::call;
use edged::wire::rest::{self, ApiRequest};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((verb, path)) = data.split_first() else { return };
    let method = ["GET", "POST", "PUT", "PATCH", "DELETE"][usize::from(*verb) % 5];
    let read = |method: &str, path: &[u8], kind: &str| {
        let mut bytes = format!("{method} /").into_bytes();
        bytes.extend_from_slice(path);
        let rest = format!(" HTTP/1.1\r\nHost: a\r\nContent-Type: {kind}\r\n\r\n");
        bytes.extend_from_slice(rest.as_bytes());
        let (request, _) = call(&bytes, 1 << 10).ok()??;
        rest::read(&request).ok()
    };
    let Some(ApiRequest::Call(first)) = read(method, path, "application/merge-patch+json") else {
        return;
    };
    let target = rest::of_call(&first);
    let again = read(target.method, target.path[1..].as_bytes(), target.content_type);
    let Some(ApiRequest::Call(again)) = again else {
        // A name of nothing, or one that a path cannot hold.
        assert!(first.name.is_empty() || first.name.contains('/') || first.namespace.is_empty());
        return;
    };
    assert_eq!((first.verb, first.kind), (again.verb, again.kind));
});
