//! Requests of nodes and of people: any bytes, first as they come, then cut. What is complete is
//! found complete however much follows; what it asks of an API server is read or refused.
#![no_main]

use edged::wire::http1::call::call;
use edged::wire::rest;
use libfuzzer_sys::fuzz_target;

const BODY_BYTES_MAX: usize = 1 << 10;

fuzz_target!(|data: &[u8]| {
    let whole = call(data, BODY_BYTES_MAX);
    for end in (0..data.len()).rev().take(64) {
        if let (Ok(Some((_, cut))), Ok(Some((_, length)))) =
            (call(&data[..end], BODY_BYTES_MAX), &whole)
        {
            assert_eq!(cut, *length);
        }
    }
    let Ok(Some((request, length))) = whole else { return };
    assert!(length <= data.len() && request.body.len() <= BODY_BYTES_MAX);
    if let Err((status, _)) = rest::read(&request) {
        assert!((400..500).contains(&status));
    }
});
