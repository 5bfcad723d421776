//! `wire::router`: requests of clients at the REST entry, and answers of nodes' services. What is
//! passed on can end no header, and no path leads out of a rule's own.
#![no_main]

use edged::model::edge_message::EdgeContent;
use edged::model::message::{Header, Message, Route};
use edged::wire::http1::call::call;
use edged::wire::kubeedge::decode_edge;
use edged::wire::router::{answer, bearer, read_request};
use libfuzzer_sys::fuzz_target;
use serde_json::value::RawValue;

fuzz_target!(|data: &[u8]| {
    if let Ok(Some((call, _))) = call(data, 1 << 10) {
        assert!(bearer(&call).len() <= data.len());
        if let Ok(request) = read_request(&call) {
            assert!(!request.path.starts_with("../") || call.path.contains(".."));
            for (name, value) in &request.headers {
                assert!(!name.contains(['\r', '\n', ':']) && !value.contains(['\r', '\n']));
                assert_ne!(&**name, "authorization");
            }
        }
    }
    let Ok(text) = str::from_utf8(data) else { return };
    let Ok(content) = RawValue::from_string(text.to_owned()) else { return };
    let [source, group, operation] = ["servicebus", "user", "upload"].map(Box::from);
    let header = Header { parent_id: "m".into(), ..Header::default() };
    let route = Route { source, group, operation, resource: Box::default() };
    let message = decode_edge(Message { header, route, content: Some(content) });
    if let EdgeContent::ServiceAnswer(of) = message.content {
        let bytes = answer(&of, false);
        let heads = bytes.windows(4).filter(|four| *four == b"\r\n\r\n").count();
        assert_eq!(heads, 1, "one head");
    }
});
