//! `wire::kubeedge`: an Application with any key, verb and option is a request or is refused with a
//! reason, and leads to no other path; a selector is what it is written as.
#![no_main]

use edged::model::any_api::AnyTarget;
use edged::model::base64;
use edged::model::edge_message::{EdgeContent, Requested};
use edged::model::message::{Header, Message, Route};
use edged::model::selector::{FieldSelector, LabelSelector};
use edged::wire::{kubeedge, rest};
use libfuzzer_sys::fuzz_target;
use serde_json::json;

const VERBS: [&str; 9] =
    ["get", "list", "watch", "create", "update", "updatestatus", "patch", "delete", "connect"];

fuzz_target!(|input: (u8, &str, &str, &str)| {
    let (verb, key, option, subresource) = input;
    let _ = FieldSelector::parse(option);
    if let Ok(selector) = LabelSelector::parse(option) {
        let again = LabelSelector::parse(&selector.to_string()).expect("what is written is read");
        assert_eq!(again, selector);
    }
    let verb = VERBS[usize::from(verb) % VERBS.len()];
    let request = json!({"ID": "i", "Verb": verb, "Key": key, "Subresource": subresource,
        "Option": base64::encode(option.as_bytes()), "ReqBody": null});
    let content = serde_json::value::to_raw_value(&request).expect("JSON");
    let [source, group, operation, resource] =
        ["metaserver", "dynamiccontroller", "null", "null"].map(Box::from);
    let route = Route { source, group, operation, resource };
    let message = Message { header: Header::default(), route, content: Some(content) };
    let EdgeContent::Application(request) = kubeedge::decode_edge(message).content else {
        panic!("it is an Application")
    };
    if let Ok(Requested::Call(call)) = request.requested {
        let path = rest::of_any_call(&call).path;
        let (path, _) = path.split_once('?').unwrap_or((&path, ""));
        assert!(
            path.starts_with('/') && !path.contains("/../") && !path.ends_with("/.."),
            "{path}"
        );
        if let AnyTarget::Object { resource, .. } = &call.target {
            assert!(path.contains(&*resource.resource), "{path}");
        }
    }
});
