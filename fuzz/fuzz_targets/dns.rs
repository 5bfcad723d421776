//! DNS messages of pods and of other servers, and what the kernel says about links: any bytes. A
//! query that is read is answered within its bound, and the answer is one to it.
#![no_main]

use edged::model::dns::{Answer, Data, Record};
use edged::wire::dns::{Refusal, parse, records};
use edged::wire::rtnetlink::replies;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let _ = records(data);
    assert!(replies(data).len() <= data.len() / 16);
    match parse(data) {
        Ok(query) => {
            let name = query.question.name.clone();
            let record = Record { name, ttl_s: 5, data: Data::A([10, 0, 0, 1].into()) };
            let answer = Answer { answers: vec![record; 100], ..Answer::default() };
            let bytes = query.answer(&answer, query.udp_bytes_max());
            assert!(bytes.len() <= query.udp_bytes_max());
            assert!(query.is_answered_by(query.id, &bytes));
            assert!(records(&bytes).is_some());
        }
        Err(Refusal::Answer(bytes)) => assert!(bytes.len() <= data.len() + 11),
        Err(Refusal::Drop) => {}
    }
});
