//! The two sides of KubeEdge's messages against each other: the controller reads what a node
//! writes, and the other way round.

use std::sync::Arc;

use edged::limits::Budget;
use edged::model::any_api::AnyVerb;
use edged::model::api::Kind;
use edged::model::application::Gvr;
use edged::model::cloud_message::{CloudMessage, Content, Failure, Tombstone};
use edged::model::downstream::{Answer, Down};
use edged::model::edge_message::{EdgeContent, Requested};
use edged::model::message::{Message, Route};
use edged::model::raw;
use edged::model::status::PodStatus;
use edged::model::upstream::{Lease, PodName, TokenRequest, Up, Upstream};
use edged::wire::edge::{content, decode, encode};
use edged::wire::kubeedge;
use serde_json::json;

use crate::edge::captured;
use crate::mutation::Dice;

pub fn from_node(up: Up) -> EdgeContent {
    let sent = kubeedge::encode(&Upstream { id: "m".into(), timestamp_ms: 1, content: up });
    let bytes = encode(&sent);
    kubeedge::decode_edge(decode(&bytes).expect("a message")).content
}

pub fn cloud_message(content: Content, operation: &'static str) -> CloudMessage {
    CloudMessage {
        id: "m".into(),
        parent: "q".into(),
        timestamp_ms: 1,
        version: 0,
        source: "edgecontroller",
        group: "resource",
        operation,
        resource: "default/configmap/cm".into(),
        content,
    }
}

pub fn to_node(content: Content, operation: &'static str) -> Down {
    read_by_node(&cloud_message(content, operation))
}

pub fn read_by_node(message: &CloudMessage) -> Down {
    let bytes = encode(&kubeedge::encode_cloud(message));
    assert!(
        message.bytes() + 64 > bytes.len() / 2,
        "{} is far from {}",
        message.bytes(),
        bytes.len()
    );
    kubeedge::decode(&decode(&bytes).expect("a message"), &Budget::FULL).content
}

#[test]
fn the_controller_reads_what_edged_writes() {
    let pod = || PodName { namespace: "default".into(), name: "web".into(), uid: "u".into() };
    let labels = Up::LabelNode { node: "gw".into(), labels: [("a", "b".into())].into() };
    let EdgeContent::Object(labelled) = from_node(labels) else { panic!("no object") };
    assert_eq!(labelled["metadata"]["labels"], json!({"a": "b"}));
    let patch = from_node(Up::PatchNode { node: "gw".into(), patch: None });
    assert!(matches!(patch, EdgeContent::Object(patch) if patch == json!({})), "a text of JSON");
    let lease =
        Lease { node: "gw".into(), owner: None, version: None, duration_s: 40, renewed_at_ms: 0 };
    let EdgeContent::Object(lease) = from_node(Up::WriteLease(lease)) else { panic!("no object") };
    assert_eq!(lease["spec"]["leaseDurationSeconds"], json!(40));
    let all = Up::LegacyPodStatuses {
        namespace: "default".into(),
        pods: vec![(pod(), PodStatus::default()), (pod(), PodStatus::default())],
    };
    let one = Up::LegacyPodStatus { pod: pod(), status: Box::default() };
    for (sent, count) in [(one, 1), (all, 2)] {
        let EdgeContent::PodStatuses(read) = from_node(sent) else { panic!("no statuses") };
        assert_eq!(read.len(), count);
        assert!(read.iter().all(|it| *it.uid == *"u" && *it.name == *"web"), "{read:?}");
    }
    let delete = Up::DeletePod { key: "default/pod/web".into(), uid: "u".into() };
    assert!(matches!(from_node(delete), EdgeContent::Deletion(uid) if *uid == *"u"));
    let token = TokenRequest {
        namespace: "default".into(),
        account: "default".into(),
        pod: "web".into(),
        uid: "u".into(),
        audience: "".into(),
        seconds: 3_600,
    };
    let EdgeContent::Token(bound) = from_node(Up::RequestToken(token)) else { panic!("no token") };
    assert_eq!((&*bound.kind, &*bound.name, &*bound.uid), ("Pod", "web", "u"));
    let list = Up::ListPods { node: "gw".into(), limit: 5, page: "p".into() };
    let EdgeContent::Application(list) = from_node(list) else { panic!("no application") };
    let Ok(Requested::Call(call)) = list.requested else { panic!("no call") };
    assert_eq!((call.verb, call.parameter("fieldSelector")), (AnyVerb::List, "spec.nodeName=gw"));
    assert_eq!((call.parameter("limit"), call.parameter("continue")), ("5", "p"));
    assert_eq!(call.resource(), Some(&Gvr::new("", "v1", "pods")));
    assert!(matches!(from_node(Up::KeepAlive), EdgeContent::Nothing));
    assert!(matches!(from_node(Up::QueryLease { node: "gw".into() }), EdgeContent::Nothing));
}

#[test]
fn a_node_reads_what_the_controller_writes() {
    let object = || raw::json(&json!({"metadata": {"name": "cm", "uid": "u"}}));
    let Down::Put(put) = to_node(Content::Object(Arc::from(object())), "update") else {
        panic!("no object")
    };
    assert_eq!(*put.text, *object().get(), "as it came");
    let deleted = Tombstone {
        kind: Kind::ConfigMap,
        namespace: "default".into(),
        name: "cm".into(),
        uid: "u".into(),
        version: 0,
    };
    let unused = Tombstone { version: 7, ..deleted.clone() };
    for (tombstone, expected) in [(deleted, 0), (unused, 7)] {
        let deleted = to_node(Content::Tombstone(Box::new(tombstone)), "delete");
        let Down::Delete { uid, version, .. } = deleted else { panic!("no deletion") };
        assert_eq!((&*uid, version), ("u", expected));
    }
    let answer = |content: Content| match to_node(content, "response") {
        Down::Answer(to, answer) => {
            assert_eq!(*to, *"q");
            answer
        }
        other => panic!("got {other:?}"),
    };
    assert!(matches!(answer(Content::Done), Answer::Done));
    assert!(matches!(answer(Content::ObjectResp(Ok(object()))), Answer::Object(_)));
    assert!(matches!(answer(Content::Object(Arc::from(object()))), Answer::Object(_)));
    let own = || Failure::new(404, "NotFound", "gone");
    let remote = || {
        Failure::Remote(raw::json(&json!({"code": 404, "reason": "NotFound", "message": "gone"})))
    };
    for failure in [own(), remote()] {
        for content in [
            Content::ObjectResp(Err(failure.clone())),
            Content::Failure(failure.clone()),
            Content::NotMade(failure.clone()),
        ] {
            let Answer::Refused(refusal) = answer(content.clone()) else { panic!("{content:?}") };
            assert!(refusal.is_not_found() && *refusal.message == *"gone", "{refusal:?}");
        }
    }
}

#[test]
fn what_cannot_be_read_is_named_by_its_place() {
    let read = |operation: &str, resource: &str, text: Option<&str>| {
        let route =
            Route { operation: operation.into(), resource: resource.into(), ..Route::default() };
        let message = Message { route, content: text.map(content), ..Message::default() };
        kubeedge::decode_edge(message).content
    };
    for (operation, resource, text, expected) in [
        ("insert", "null/node/gw", None, "got no content"),
        ("insert", "null/node/gw", Some("{"), "content: EOF while parsing an object"),
        ("update", "default/podstatus/web", Some("[5]"), "content: invalid type: integer `5`"),
        ("delete", "default/pod/web", Some("{}"), "got no uid"),
        ("query", "default/serviceaccounttoken/a", Some("{}"), "content: missing field `spec`"),
        ("patch", "default/event/e", Some(r#"{"patchData": "{"}"#), ""),
    ] {
        match read(operation, resource, text) {
            EdgeContent::Invalid(why) => {
                assert!(why.to_string().starts_with(expected), "{why}\n{expected}");
            }
            EdgeContent::Event(_, Some(Err(why))) => {
                assert!(why.to_string().starts_with("patchData: "), "{why}");
            }
            other => panic!("got {other:?}"),
        }
    }
    let old = read("delete", "default/pod/web", Some("the-uid"));
    assert!(matches!(old, EdgeContent::Deletion(uid) if *uid == *"the-uid"), "old edges");
}

#[test]
fn captured_and_spoilt_messages_are_read_or_refused() {
    for line in captured() {
        let mut dice = Dice(0x5eed);
        for _ in 0..50 {
            let mut bytes = line.clone().into_bytes();
            if let Ok(message) = decode(&bytes) {
                let sent = message.content.as_ref().map_or(0, |content| content.get().len());
                assert!(kubeedge::decode_edge(message).bytes >= sent);
            }
            dice.damage(&mut bytes);
            let _ = decode(&bytes).map(kubeedge::decode_edge);
        }
    }
}
