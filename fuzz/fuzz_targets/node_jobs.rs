//! Messages about jobs for the node, in both directions: any content, and any resource. What a node
//! reads as a job, the controller writes so that it is read again; and the same with reports. The
//! same text as an answer about an application.
#![no_main]

use edged::limits::Budget;
use edged::model::downstream::Down;
use edged::model::edge_message::EdgeContent;
use edged::model::message::{Header, Message, Route};
use edged::model::upstream::{Up, Upstream};
use edged::wire::kubeedge::{self, decode_report, encode_request};
use libfuzzer_sys::fuzz_target;
use serde_json::value::RawValue;

fn message(group: &str, operation: &str, resource: &str, content: Option<&RawValue>) -> Message {
    let route = Route {
        source: "taskmanager".into(),
        group: group.into(),
        operation: operation.into(),
        resource: resource.into(),
    };
    let header = Header { parent_id: "p".into(), ..Header::default() };
    Message { header, route, content: content.map(ToOwned::to_owned) }
}

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let content = serde_json::from_str::<&RawValue>(text).ok();
    for (operation, resource) in [
        ("Check", "operations.kubeedge.io/v1alpha2/imageprepulljob/a/node/b"),
        ("Check", "operations.kubeedge.io/v1alpha2/nodeupgradejob/a/node/b"),
        ("prepull", "prepull/a/node/b"),
        ("upgrade", "upgrade/a/node/b"),
    ] {
        let read = |message: &Message| match kubeedge::decode(message, &Budget::FULL).content {
            Down::NodeJob(request) => request,
            other => panic!("{other:?}"),
        };
        let request = read(&message("taskmanager", operation, resource, content));
        let Ok(spec) = &request.spec else { continue };
        let (operation, resource, written) = encode_request(&request.key, request.action, spec);
        let again = read(&message("taskmanager", operation, &resource, Some(&written)));
        assert_eq!((again.key, again.action), (request.key, request.action));
    }
    for (operation, resource) in [
        ("UpdateNodeActionStatus", "operations.kubeedge.io/v1alpha2/imageprepulljob/a/node/b"),
        ("UpdateNodeActionStatus", "operations.kubeedge.io/v1alpha2/nodeupgradejob/a/node/b"),
        ("prepull", "task/a/node/b"),
        ("upgrade", "task/a/node/b"),
    ] {
        let route = message("hub", operation, resource, None).route;
        let Ok(report) = decode_report(&route, text).expect("it names a job") else { continue };
        let content = Up::NodeJob(Box::new(report.clone()));
        let up = kubeedge::encode(&Upstream { id: "1".into(), timestamp_ms: 0, content });
        match kubeedge::decode_edge(up).content {
            EdgeContent::NodeJob(again) => {
                assert_eq!((again.key, again.action), (report.key, report.action));
            }
            other => panic!("{other:?}"),
        }
    }
    for resource in [text, "default/service/web", "null", "watchapp/sync"] {
        for operation in ["applicationResponse", "response", "Check"] {
            let _ =
                kubeedge::decode(&message("resource", operation, resource, content), &Budget::FULL);
            let _ = kubeedge::decode_edge(message("resource", operation, resource, content));
        }
    }
});
