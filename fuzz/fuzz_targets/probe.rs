//! Answers to the GETs of probes: any bytes, whole, and cut in two anywhere. Both ways the same is
//! read, and no bound is broken.
#![no_main]

use edged::limits::PROBE_BODY_BYTES_MAX;
use edged::model::net::{Expects, HttpQuery};
use edged::wire::probe::{Reader, resolve};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((&cut, answer)) = data.split_first() else { return };
    let mut whole = Reader::default();
    let read = whole.receive(answer);
    if let Some(response) = whole.response() {
        assert!(response.body.len() <= PROBE_BODY_BYTES_MAX);
        if let Some(location) = &response.location {
            let from = HttpQuery {
                tls: false,
                host: "10.0.0.5".into(),
                port: 80,
                target: "/a/b".to_owned(),
                headers: Vec::new(),
                expects: Expects::Success,
            };
            if let Ok(next) = resolve(&from, location) {
                assert!(next.target.starts_with('/') && next.port > 0);
                assert!(next.target.bytes().all(|byte| byte.is_ascii_graphic()));
            }
        }
    }
    let at = usize::from(cut).min(answer.len());
    let mut halves = Reader::default();
    let cut_read = halves
        .receive(&answer[..at])
        .and_then(|done| if done { Ok(true) } else { halves.receive(&answer[at..]) });
    if let (Ok(read), Ok(cut_read)) = (&read, &cut_read) {
        assert_eq!(read, cut_read);
        assert_eq!(whole.response(), halves.response());
        assert_eq!(whole.end(), halves.end());
    }
});
