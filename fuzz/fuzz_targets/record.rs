//! `wire::cri::record` and `wire::monitor`: records, facts of monitors and what they note come back
//! as they were read, or are refused with words.
#![no_main]

use edged::wire::cri::record;
use edged::wire::monitor;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    match record::decode(bytes) {
        Ok(record) => assert_eq!(record::decode(&record::encode(&record)), Ok(record)),
        Err(refusal) => assert!(!refusal.to_string().is_empty()),
    }
    if let Ok(fact) = monitor::read_fact(bytes) {
        assert_eq!(monitor::read_fact(monitor::fact(&fact).as_bytes()), Ok(fact));
    }
    if let Ok((process, cgroup)) = monitor::read_pid(bytes) {
        let text = monitor::pid(&process, &cgroup);
        assert_eq!(monitor::read_pid(text.as_bytes()), Ok((process, cgroup)));
    }
    let _ = monitor::read_number(bytes);
});
