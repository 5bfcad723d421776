//! Reads what a cloud sends: what a message is about, and the answers to a node's requests.
//!
//! Every text is measured before it is parsed: three bytes of it may become a struct of a kilobyte.
//! The objects themselves stay texts: what is stored of them is read when there is room for it.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::application::{self, Answered};
use super::node_jobs::decode_request;
use crate::limits::Budget;
#[cfg(feature = "devices")]
use crate::model::device::DeviceDownstream;
#[cfg(any(feature = "metaserver", feature = "services"))]
use crate::model::downstream::RefusedWatches;
use crate::model::downstream::{
    Answer, Down, Downstream, ObjectView, PodPage, Refusal, RemoteLease, RemoteObject,
};
use crate::model::message::{self, Message, Resource};
use crate::model::node_job::JobRequest;
use crate::model::node_status::RemoteNode;
use crate::model::remote_pod::RemotePod;
#[cfg(feature = "servicebus")]
use crate::model::service_bus::{BusDownstream, ServiceAnswer};
use crate::model::tree::{self, Value};
use crate::model::upstream::Origin;
#[cfg(feature = "devices")]
use crate::wire::devices;
#[cfg(feature = "servicebus")]
use crate::wire::service_bus;

/// The meaning of a message.
pub fn decode(message: &Message, budget: &Budget) -> Downstream {
    let (origin, timestamp_ms) = (Origin::of(message), message.header.timestamp_ms);
    Downstream { origin, timestamp_ms, content: down(message, budget) }
}

fn down(message: &Message, budget: &Budget) -> Down {
    let (route, parent) = (&message.route, &message.header.parent_id);
    match (&*route.group, &*route.operation) {
        (_, "config" | "ping" | "pong") => Down::Transport,
        #[cfg(feature = "devices")]
        ("twin", _) => device(message, budget),
        #[cfg(feature = "devices")]
        ("user", operation) if &*route.source == "router_eventbus" => event_bus(operation, message),
        #[cfg(feature = "servicebus")]
        ("user", _) if service_bus::is_of_router(route) => service_bus(message, budget),
        (_, "response" | "error" | "applicationResponse") if !parent.is_empty() => {
            #[cfg(any(feature = "metaserver", feature = "services"))]
            if &*route.resource == WATCHES {
                return Down::WatchesSynced(parent.clone(), refused_watches(message));
            }
            #[cfg(feature = "metaserver")]
            if let Some(answer) = application::answer(message, budget) {
                return Down::Application(parent.clone(), answer);
            }
            // Only the request for a list is about no resource.
            if &*route.operation == "applicationResponse" || &*route.resource == "null" {
                Down::Pods(parent.clone(), pods(message, budget))
            } else {
                Down::Answer(parent.clone(), answer(message, budget))
            }
        }
        ("resource" | "func", _) => object(message, budget),
        ("taskmanager", _) => node_job(message, budget),
        // Subscriptions are not answered.
        #[cfg(not(feature = "servicebus"))]
        ("user", operation) if &*route.source == "router_servicebus" && is_http(operation) => {
            Down::ServiceCall
        }
        _ => Down::Unsupported,
    }
}

/// A message with a parent is a confirmation, whatever else it is (section 10.3 of spec `devices`).
#[cfg(feature = "devices")]
fn device(message: &Message, budget: &Budget) -> Down {
    let (route, parent) = (&message.route, &message.header.parent_id);
    if !parent.is_empty() {
        return Down::Device(Ok(Box::new(DeviceDownstream::Confirmed(parent.clone()))));
    }
    let text = message.content.as_deref().map_or(Ok(Cow::default()), |it| inner(it, budget));
    let wrong =
        |why: &dyn std::fmt::Display| Down::Device(Err(format!("{}: {why}", route.resource)));
    match text.map(|text| devices::decode_cloud(&route.resource, &text)) {
        Ok(Some(Ok(read))) => Down::Device(Ok(Box::new(read))),
        Ok(Some(Err(why))) => wrong(&why),
        Ok(None) => Down::Unsupported,
        Err(why) => wrong(&why),
    }
}

/// A message of the router for ServiceBus. What is no JSON of few enough values is refused where a
/// caller waits.
#[cfg(feature = "servicebus")]
fn service_bus(message: &Message, budget: &Budget) -> Down {
    let Message { header, route, content } = message;
    let text = content.as_deref().map_or(Cow::default(), message::inner);
    let measured = if is_http(&route.operation) {
        tree::within_values(&text, budget.message_values_max, budget)
    } else {
        Ok(())
    };
    let read = match measured {
        Ok(()) => service_bus::decode_cloud(route, &header.parent_id, &text),
        Err(why) => Some(BusDownstream::Call(Err(ServiceAnswer::own(413, &why.to_string())))),
    };
    read.map_or(Down::Unsupported, |read| Down::ServiceBus(Box::new(read)))
}

/// A message of the router for EventBus (spec `servicebus-router-tasks`, section 10).
#[cfg(feature = "devices")]
fn event_bus(operation: &str, message: &Message) -> Down {
    let topic = message.route.resource.clone();
    let read = match operation {
        "subscribe" => DeviceDownstream::Subscribe(topic),
        "unsubscribe" => DeviceDownstream::Unsubscribe(topic),
        "publish" => {
            let payload = message.content.as_deref().map_or(Cow::default(), message::inner);
            DeviceDownstream::Publish { topic, payload: payload.into() }
        }
        _ => return Down::Unsupported,
    };
    Down::Device(Ok(Box::new(read)))
}

fn node_job(message: &Message, budget: &Budget) -> Down {
    let text = message.content.as_deref().map_or(Ok(Cow::default()), |it| inner(it, budget));
    let request = match text {
        Ok(text) => decode_request(&message.route, &text),
        Err(why) => decode_request(&message.route, "null").map(|request| {
            let spec = Err(why.into());
            JobRequest { spec, ..request }
        }),
    };
    request.map_or(Down::Unsupported, |request| Down::NodeJob(Box::new(request)))
}

fn is_http(operation: &str) -> bool {
    matches!(operation, "GET" | "HEAD" | "POST" | "PUT" | "PATCH" | "DELETE" | "OPTIONS")
}

fn is_volume_call(operation: &str) -> bool {
    matches!(
        operation,
        "createvolume" | "deletevolume" | "controllerpublishvolume" | "controllerunpublishvolume"
    )
}

/// An object was added, changed or deleted.
fn object(message: &Message, budget: &Budget) -> Down {
    let route = &message.route;
    let Some(resource) = Resource::parse(&route.resource) else { return Down::NoObject };
    if is_volume_call(&route.operation) {
        return Down::VolumeCall;
    }
    let text = message.content.as_deref().map_or(Ok(Cow::default()), |it| inner(it, budget));
    match text {
        Err(why) => Down::TooLarge(why),
        Ok(text) if &*route.operation == "delete" => {
            let [uid, version] = ["uid", "resourceVersion"].map(|key| metadata_word(&text, key));
            Down::Delete { uid, version: version.parse().unwrap_or(0) }
        }
        Ok(text) => {
            let is_watched = &*route.source == "dynamiccontroller";
            Down::Put(Box::new(remote_object(resource.kind, text.into(), is_watched)))
        }
    }
}

/// `is_watched`: it comes by a watch of the dynamic controller.
fn remote_object(kind: &str, text: Box<str>, is_watched: bool) -> RemoteObject {
    let view = match kind {
        "node" | "nodepatch" | "nodestatus" => {
            RemoteNode::read(&text).map(|node| ObjectView::Node(Box::new(node)))
        }
        "pod" | "podpatch" | "podstatus" => RemotePod::read(&text).map(ObjectView::Pod),
        "lease" => lease(&text).map(ObjectView::Lease),
        _ => None,
    };
    #[cfg(not(feature = "metaserver"))]
    let _ = is_watched;
    #[cfg(feature = "metaserver")]
    let of = match kind {
        "device" => Some(("devices.kubeedge.io/v1beta1", "Device")),
        "devicemodel" => Some(("devices.kubeedge.io/v1beta1", "DeviceModel")),
        _ => None,
    };
    #[cfg(feature = "metaserver")]
    let item = if is_watched || of.is_some() || matches!(view, Some(ObjectView::Pod(_))) {
        crate::wire::metaserver::item::read(&text, of).map(std::sync::Arc::new)
    } else {
        None
    };
    RemoteObject {
        #[cfg(feature = "metaserver")]
        item,
        text,
        view: view.unwrap_or(ObjectView::Other),
    }
}

/// `metadata.uid`, or another text there; empty: not given.
fn metadata_word(text: &str, key: &str) -> Box<str> {
    let root = tree::parse_json(text.as_bytes()).map(|root| root.value);
    let Ok(Value::Map(mut object)) = root else { return Box::default() };
    let metadata = object.remove("metadata").map(|entry| entry.node.value);
    let Some(Value::Map(mut metadata)) = metadata else { return Box::default() };
    match metadata.remove(key).map(|entry| entry.node.value) {
        Some(Value::Text(text)) => text,
        _ => Box::default(),
    }
}

/// The content of a message as an object's JSON; fails if it has too many values.
fn inner<'a>(content: &'a RawValue, budget: &Budget) -> Result<Cow<'a, str>, String> {
    let text = message::inner(content);
    tree::within_values(&text, budget.message_values_max, budget).map_err(|it| it.to_string())?;
    Ok(text)
}

// ---- answers ----

/// `ObjectResp`: both keys are always present, which distinguishes it from a bare object.
#[derive(Deserialize)]
struct ObjectResp<'a> {
    #[serde(borrow, rename = "Object", deserialize_with = "Option::deserialize")]
    object: Option<&'a RawValue>,
    #[serde(rename = "Err", deserialize_with = "Option::deserialize")]
    error: Option<Failure>,
}

#[derive(Deserialize)]
struct Failure {
    #[serde(default, rename = "ErrStatus")]
    status: Refusal,
}

#[derive(Deserialize)]
struct Bare {
    #[serde(rename = "ErrStatus")]
    status: Option<Refusal>,
    metadata: Option<serde::de::IgnoredAny>,
}

#[derive(Deserialize)]
struct Named {
    metadata: Name,
}

#[derive(Deserialize)]
struct Name {
    #[serde(default)]
    name: Box<str>,
}

/// Reads an answer. Anything that is neither an object nor «OK» is a refusal: an answer that is not
/// understood must not count as an object.
fn answer(message: &Message, budget: &Budget) -> Answer {
    let Some(content) = &message.content else { return unclear("nothing") };
    let text = match inner(content, budget) {
        Ok(text) => text,
        Err(why) => return unclear(&why),
    };
    if &*message.route.operation == "error" {
        return unclear(&text);
    }
    if text == "OK" {
        return Answer::Done;
    }
    let kind = Resource::parse(&message.route.resource).map_or("", |resource| resource.kind);
    let object = |text: &str| Answer::Object(Box::new(remote_object(kind, text.into(), false)));
    if let Ok(parsed) = serde_json::from_str::<ObjectResp<'_>>(&text) {
        return match (parsed.error, parsed.object) {
            // Go sometimes writes an empty error for «no error».
            (Some(failure), _) if failure.status != Refusal::default() => {
                Answer::Refused(failure.status)
            }
            // Go's cloud writes «{}» for an error that is not from the API server, beside an object
            // without any field.
            (Some(_), Some(unnamed)) if !is_named(unnamed) => {
                unclear("an empty error and an empty object")
            }
            (Some(_) | None, Some(named)) => object(named.get()),
            (Some(_) | None, None) => unclear("neither an object nor an error"),
        };
    }
    match serde_json::from_str::<Bare>(&text) {
        Ok(Bare { status: Some(refusal), .. }) => Answer::Refused(refusal),
        Ok(Bare { metadata: Some(_), .. }) => object(&text),
        Ok(_) => unclear("neither an object nor an error"),
        Err(_) => unclear(&text),
    }
}

fn unclear(got: &str) -> Answer {
    let got: String = got.chars().take(256).collect();
    Answer::Refused(Refusal { message: got.into(), ..Refusal::default() })
}

fn is_named(object: &RawValue) -> bool {
    serde_json::from_str::<Named>(object.get()).is_ok_and(|parsed| !parsed.metadata.name.is_empty())
}

#[derive(Deserialize)]
struct Lease {
    metadata: LeaseMetadata,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct LeaseMetadata {
    #[serde(default)]
    resource_version: Box<str>,
    owner_references: Option<Vec<Owner>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Owner {
    kind: Box<str>,
    uid: Box<str>,
}

fn lease(text: &str) -> Option<RemoteLease> {
    let Lease { metadata } = serde_json::from_str(text).ok()?;
    let owners = metadata.owner_references.into_iter().flatten();
    let mut nodes = owners.filter(|owner| &*owner.kind == "Node" && !owner.uid.is_empty());
    let owner = nodes.next().map(|owner| owner.uid);
    Some(RemoteLease { version: metadata.resource_version, owner })
}

// ---- lists ----

/// core/v1 `PodList`
#[derive(Deserialize)]
struct List<'a> {
    kind: Option<Box<str>>,
    #[serde(default)]
    metadata: ListMetadata,
    /// Not `null`; without this key it is not a list.
    #[serde(borrow, deserialize_with = "Option::deserialize")]
    items: Option<Vec<&'a RawValue>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ListMetadata {
    r#continue: Option<Box<str>>,
}

#[derive(Deserialize)]
struct Item {
    metadata: ItemNames,
}

#[derive(Deserialize)]
struct ItemNames {
    name: Box<str>,
    namespace: Box<str>,
}

fn pods(message: &Message, budget: &Budget) -> Result<PodPage, String> {
    let content = message.content.as_deref().ok_or("got no content")?;
    let text = message::inner(content);
    let answered: Answered<'_> =
        serde_json::from_str(&text).map_err(|error| format!("got no Application: {error}"))?;
    if !answered.is_approved() {
        return Err(format!("got {}, expected Approved: {}", answered.status, answered.why()));
    }
    let body = application::body(answered.resp_body.as_deref(), budget);
    let body = body.map_err(|why| why.to_string())?;
    drop(answered);
    drop(text);
    let list: List<'_> =
        serde_json::from_str(&body).map_err(|error| format!("got no list: {error}"))?;
    let kind = match list.kind.as_deref() {
        None | Some("PodList" | "List") => "pod",
        #[cfg(feature = "services")]
        Some("ServiceList") => "service",
        Some(other) => return Err(format!("got a {other}, expected a PodList")),
    };
    let mut next = Ok(list.metadata.r#continue.filter(|next| !next.is_empty()));
    let mut pods = Vec::new();
    for item in list.items.unwrap_or_default() {
        match listed(kind, item) {
            Ok(pod) => pods.push(pod),
            Err(why) => {
                next = Err(why);
                break;
            }
        }
    }
    Ok(PodPage { pods, next })
}

/// The key of an object in a list, and its text.
fn listed(kind: &str, item: &RawValue) -> Result<(Box<str>, Box<str>), String> {
    let Item { metadata: ItemNames { name, namespace } } =
        serde_json::from_str(item.get()).map_err(|error| format!("got no {kind}: {error}"))?;
    let key = Resource { namespace: Some(&namespace), kind, name: &name }.to_string();
    Ok((key.into(), item.get().into()))
}

/// The resource of messages about all live watches.
#[cfg(any(feature = "metaserver", feature = "services"))]
const WATCHES: &str = "watchapp/sync";

#[cfg(any(feature = "metaserver", feature = "services"))]
fn refused_watches(message: &Message) -> RefusedWatches {
    let Some(text) = message.content.as_deref().map(message::inner) else {
        return Ok(Vec::new());
    };
    let parsed: Result<std::collections::BTreeMap<Box<str>, Answered<'_>>, _> =
        serde_json::from_str(&text);
    match parsed {
        Ok(refused) => Ok(refused.into_iter().map(|(id, one)| (id, one.why())).collect()),
        Err(error) => Err(format!("got an answer that is no map of Applications: {error}").into()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::model::message::{Header, Route};

    fn read(operation: &str, content: &Value) -> Answer {
        let content = serde_json::value::to_raw_value(content).expect("JSON");
        let route = Route { operation: operation.into(), ..Route::default() };
        let message = Message { header: Header::default(), route, content: Some(content) };
        answer(&message, &Budget::FULL)
    }

    #[test]
    fn an_answer_is_an_object_done_or_a_refusal() {
        let object = json!({"metadata": {"name": "p"}, "spec": {}});
        let unnamed = json!({"metadata": {"creationTimestamp": null}, "spec": {}});
        let not_found =
            json!({"ErrStatus": {"reason": "NotFound", "message": "no p", "code": 404}});
        let no_p = "no p (NotFound)";
        for (operation, content, expected) in [
            ("response", json!("OK"), "done"),
            ("response", object.clone(), "object"),
            ("response", json!({"Object": object, "Err": null}), "object"),
            // How Go writes «no error».
            ("response", json!({"Object": object, "Err": {}}), "object"),
            ("response", json!({"Object": object, "Err": {"ErrStatus": {}}}), "object"),
            (
                "response",
                json!({"Object": unnamed, "Err": {}}),
                "an empty error and an empty object",
            ),
            ("response", json!({"Object": unnamed, "Err": not_found}), no_p),
            ("response", json!({"Object": null, "Err": not_found}), no_p),
            ("response", not_found, no_p),
            ("response", json!({"Object": null, "Err": null}), "neither an object nor an error"),
            ("response", json!({"spec": {}}), "neither an object nor an error"),
            ("response", json!("no"), "no"),
            // Whatever the content is.
            ("error", json!("OK"), "OK"),
            ("error", object.clone(), &*object.to_string()),
        ] {
            let got = match read(operation, &content) {
                Answer::Object(_) => "object".to_owned(),
                Answer::Done => "done".to_owned(),
                Answer::Refused(why) => why.to_string(),
            };
            assert_eq!(got, expected, "{operation} {content}");
        }
    }

    #[test]
    fn a_message_has_a_bound_in_either_form() {
        let list = |length: usize| format!("[{}]", vec!["0"; length].join(","));
        let full = Budget::FULL;
        let most = full.message_values_max;
        for (length, fits) in [(most, true), (most + 1, false)] {
            let list = list(length);
            let quoted = serde_json::to_string(&list).expect("a text");
            for content in [list, quoted] {
                let raw = RawValue::from_string(content).expect("JSON");
                assert_eq!(inner(&raw, &full).is_ok(), fits, "{length}");
            }
        }
    }

    #[test]
    fn the_uid_of_what_is_deleted_is_a_text_or_not_given() {
        for (text, expected) in [
            (r#"{"metadata":{"uid":"u"}}"#, "u"),
            (r#"{"metadata":{"uid":7}}"#, ""),
            (r#"{"metadata":{"uid":null}}"#, ""),
            (r#"{"metadata":null}"#, ""),
            ("[]", ""),
            ("", ""),
        ] {
            assert_eq!(&*metadata_word(text, "uid"), expected, "{text}");
        }
    }
}
