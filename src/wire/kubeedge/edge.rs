//! Reads what a node sends to the controller: the content of each message, by its route.

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::application;
use super::node_jobs::decode_report;
use super::router::decode_upload;
use crate::model::edge_message::{BoundToken, EdgeContent, EdgeMessage, PodStatusReport};
use crate::model::error::Peer;
use crate::model::message::{Message, Resource, Route, inner};
use crate::wire::devices;

/// The resource of all watch requests of MetaServer, which it repeats now and then.
const WATCHES: &str = "watchapp/sync";

/// The message of an envelope.
pub fn decode_edge(message: Message) -> EdgeMessage {
    /// Header and route.
    const REST: usize = 256;
    let Message { header, route, content } = message;
    let bytes = REST + content.as_ref().map_or(0, |content| content.get().len());
    let upload = decode_upload(&route, &header, content.as_deref());
    let read = upload.unwrap_or_else(|| read(&route, content.as_deref()));
    let content = read.unwrap_or_else(EdgeContent::Invalid);
    EdgeMessage { header, route, bytes, content }
}

fn read(route: &Route, content: Option<&RawValue>) -> Result<EdgeContent, Peer> {
    let operation = &*route.operation;
    if operation == "error" {
        return Ok(EdgeContent::Refusal(content.map_or("", RawValue::get).into()));
    }
    let text = content.map(inner);
    if let Some(report) = decode_report(route, text.as_deref().unwrap_or_default()) {
        return Ok(EdgeContent::NodeJob(Box::new(report?)));
    }
    if &*route.source == "twin" {
        let report = devices::decode_report(&route.resource, &text.unwrap_or_default());
        return Ok(match report.transpose()? {
            Some((report, at_ms)) => EdgeContent::Device(Box::new(report), at_ms),
            None => EdgeContent::Nothing,
        });
    }
    if &*route.source == "metaserver" {
        let text = text.unwrap_or_default();
        // An older edge has its own name before it.
        return Ok(if route.resource.ends_with(WATCHES) {
            EdgeContent::Watches(application::cloud::read_sync(&text)?)
        } else {
            EdgeContent::Application(Box::new(application::cloud::read(&text)?))
        });
    }
    let kind = Resource::parse(&route.resource).map(|resource| resource.kind);
    let is_write = matches!(operation, "insert" | "update" | "patch" | "delete");
    let Some(kind) = kind.filter(|kind| is_write || *kind == "serviceaccounttoken") else {
        return Ok(EdgeContent::Nothing);
    };
    let text = text.ok_or_else(|| Peer::new("got no content"))?;
    match (operation, kind) {
        ("update", "nodestatus") => {
            let NodeStatus { status } = parsed(&text)?;
            Ok(EdgeContent::NodeStatus(status))
        }
        ("update", "podstatus") => pod_statuses(&text),
        ("delete", "pod") => deletion(&text),
        (_, "serviceaccounttoken") => token(&text),
        (_, "event") => event(&text),
        _ => parsed(&text).map(EdgeContent::Object),
    }
}

fn parsed<'a, T: Deserialize<'a>>(text: &'a str) -> Result<T, Peer> {
    serde_json::from_str(text).map_err(|error| Peer::at("content", error))
}

#[derive(Deserialize)]
struct NodeStatus {
    #[serde(rename = "Status", default)]
    status: Map<String, Value>,
}

#[derive(Deserialize)]
struct PodStatus {
    #[serde(rename = "UID", default)]
    uid: Box<str>,
    #[serde(rename = "Name", default)]
    name: Box<str>,
    #[serde(rename = "Status", default)]
    status: Map<String, Value>,
}

/// One status, or a list of them.
fn pod_statuses(text: &str) -> Result<EdgeContent, Peer> {
    let all: Vec<PodStatus> =
        if text.trim_start().starts_with('[') { parsed(text)? } else { vec![parsed(text)?] };
    let report = |PodStatus { uid, name, status }| PodStatusReport { uid, name, status };
    Ok(EdgeContent::PodStatuses(all.into_iter().map(report).collect()))
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct DeleteOptions {
    preconditions: Option<Preconditions>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Preconditions {
    uid: Box<str>,
}

/// Old edges send the uid alone.
fn deletion(text: &str) -> Result<EdgeContent, Peer> {
    let options: DeleteOptions = serde_json::from_str(text).unwrap_or_default();
    let named = text.trim_matches('"');
    match options.preconditions {
        Some(preconditions) => Ok(EdgeContent::Deletion(preconditions.uid)),
        None if !named.is_empty() && !named.contains(['{', ' ']) => {
            Ok(EdgeContent::Deletion(named.into()))
        }
        None => Err(Peer::new("got no uid")),
    }
}

#[derive(Deserialize)]
struct TokenRequest {
    spec: TokenSpec,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct TokenSpec {
    bound_object_ref: Bound,
}

#[derive(Deserialize)]
struct Bound {
    kind: Box<str>,
    name: Box<str>,
    uid: Box<str>,
}

fn token(text: &str) -> Result<EdgeContent, Peer> {
    let TokenRequest { spec: TokenSpec { bound_object_ref: bound } } = parsed(text)?;
    let Bound { kind, name, uid } = bound;
    let request = parsed::<&RawValue>(text)?.to_owned();
    Ok(EdgeContent::Token(Box::new(BoundToken { kind, name, uid, request })))
}

/// An event, or `{"event":…,"patchData":…}`, of which the patch is a text or JSON.
fn event(text: &str) -> Result<EdgeContent, Peer> {
    let mut content: Value = parsed(text)?;
    let Some(patch) = content.get("patchData") else {
        return Ok(EdgeContent::Event(content, None));
    };
    let patch = patch.as_str().map_or_else(|| patch.to_string(), ToOwned::to_owned);
    let patch = RawValue::from_string(patch).map_err(|error| Peer::at("patchData", error));
    Ok(EdgeContent::Event(content["event"].take(), Some(patch)))
}
