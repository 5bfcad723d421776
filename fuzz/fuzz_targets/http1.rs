//! Requests of the HTTP API: any bytes, first as they come, then cut. What is complete is found
//! complete however much follows, and what was refused when it was cut stays refused.
#![no_main]

use edged::wire::http1::request;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let bound = ([127, 0, 0, 1], 10_350).into();
    let whole = request(data, bound);
    for end in (0..data.len()).rev().take(64) {
        match request(&data[..end], bound) {
            Ok(None) => {}
            Ok(Some(found)) => {
                if let Ok(whole) = &whole {
                    assert_eq!(whole.as_ref(), Some(&found));
                }
            }
            Err(_) => assert!(whole.is_err()),
        }
    }
});
