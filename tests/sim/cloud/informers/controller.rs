//! The cloud's dynamic controller, and the users who change what it watches.

use std::collections::BTreeMap;

use edged::model::application::Item;
use edged::model::base64;
use edged::model::selector::{LabelSelector, Labels};
use serde_json::{Value, json};

use super::super::api::{Api, Change, ChangeKind, NAMESPACES};
use super::super::hub::{Cause, Hub};
use super::{Selection, parts};
use crate::chance::Chance;
use crate::rule::judge;

/// Objects of a resource in a namespace.
const NAMES: u64 = 5;

pub struct Controller {
    /// It is CloudCore's: a watch gets an object only while it selects it.
    is_stock: bool,
    /// The watches of the node, by their ids.
    watches: BTreeMap<String, Selection>,
    /// The selections of which a list was approved.
    listed: Vec<Selection>,
    /// Labels of objects before their last change, by key.
    labels: BTreeMap<Box<str>, Value>,
    /// What objects were, by uid and version.
    written: BTreeMap<(Box<str>, u64), u64>,
    /// When objects were deleted, by uid.
    removed: BTreeMap<Box<str>, u64>,
    numbers: u64,
}

/// The number in an object.
pub(super) fn number(text: &str) -> Option<u64> {
    let object: Value = serde_json::from_str(text).ok()?;
    object["spec"]["number"].as_u64()
}

pub(super) fn labels(object: &Value) -> Labels {
    let labels = object["metadata"]["labels"].as_object().into_iter().flatten();
    labels.map(|(key, value)| (key.as_str().into(), value.as_str().unwrap_or("").into())).collect()
}

impl Controller {
    pub fn new(is_stock: bool) -> Self {
        Self {
            is_stock,
            watches: BTreeMap::new(),
            listed: Vec::new(),
            labels: BTreeMap::new(),
            written: BTreeMap::new(),
            removed: BTreeMap::new(),
            numbers: 0,
        }
    }

    /// Watches are only in memory.
    pub fn restart(&mut self) {
        self.watches.clear();
    }

    // ---- users ----

    /// The users change an object.
    pub fn change(&mut self, now: u64, api: &mut Api, chance: &mut Chance) -> String {
        let (kind, namespace) = match chance.below(3) {
            0 => ("site", "null"),
            _ => ("endpoints", *chance.pick(&NAMESPACES)),
        };
        let name = format!("x{}", chance.below(NAMES));
        let key = format!("{namespace}/{kind}/{name}");
        let there = api.get(&key).map(|it| (it.uid.clone(), it.value()["metadata"].clone()));
        let Some((uid, metadata)) = there else {
            self.write(api, &key, None, chance.pick::<&str>(&["a", "b"]));
            return format!("make {key}");
        };
        if chance.percent(25) {
            self.removed.insert(uid, now);
            api.remove(&key);
            if chance.percent(40) {
                self.write(api, &key, None, chance.pick::<&str>(&["a", "b"]));
                return format!("make {key} anew");
            }
            return format!("delete {key}");
        }
        let before = metadata["labels"]["tier"].as_str().unwrap_or("a");
        let tier = if chance.percent(30) { *chance.pick(&["a", "b"]) } else { before };
        self.write(api, &key, Some(&uid), tier);
        format!("change {key}, {tier}")
    }

    fn write(&mut self, api: &mut Api, key: &str, uid: Option<&str>, tier: &str) {
        let (namespace, resource, name) = parts(key).expect("one of these");
        let (kind, api_version) = match resource {
            "endpoints" => ("Endpoints", "v1"),
            _ => ("Site", "example.com/v1"),
        };
        self.numbers += 1;
        let action = if uid.is_some() { ChangeKind::Changed } else { ChangeKind::Added };
        let uid = uid.map_or_else(|| api.uid(), Box::from);
        let mut metadata = json!({"name": name, "uid": uid, "labels": {"tier": tier}});
        if namespace != "null" {
            metadata["namespace"] = namespace.into();
        }
        let object = json!({"apiVersion": api_version, "kind": kind, "metadata": metadata,
            "spec": {"number": self.numbers}});
        let object = api.put(key, object, action);
        self.written.insert((object.uid.clone(), object.version), self.numbers);
    }

    // ---- pushes ----

    /// A change that its informers report.
    pub fn informed(&mut self, change: &Change, hub: &mut Hub) {
        let Change { action, key, object } = change;
        if parts(key).is_none() {
            return;
        }
        let mut before = object.value().clone();
        before["metadata"]["labels"] =
            self.labels.get(key).cloned().unwrap_or_else(|| before["metadata"]["labels"].clone());
        self.labels.insert(key.clone(), object.value()["metadata"]["labels"].clone());
        let is_of = |watch: &Selection| {
            watch.has(key, object.value()) || !self.is_stock && watch.has(key, &before)
        };
        if !self.watches.values().any(is_of) {
            return;
        }
        let operation = match action {
            ChangeKind::Added => "insert",
            ChangeKind::Changed | ChangeKind::Reported => "update",
            ChangeKind::Deleted => "delete",
        };
        hub.line_up(operation, key, object, Cause::Watch);
    }

    /// The node names all its watches. Returns those that are refused.
    pub fn take_watches(
        &mut self,
        content: &Value,
        refuses: bool,
        api: &Api,
        hub: &mut Hub,
    ) -> Value {
        let mut refused = json!({});
        let mut watches = BTreeMap::new();
        for (id, application) in content.as_object().into_iter().flatten() {
            let Some(selection) = selection(application) else { continue };
            let is_listed = self.listed.contains(&selection);
            judge!(
                is_listed,
                "[listed first] a watch of {selection:?}, of which no list was given"
            );
            if refuses {
                refused[id] = application.clone();
                refused[id]["Status"] = "Rejected".into();
                refused[id]["Reason"] = "failed to add listener".into();
            } else {
                watches.insert(id.clone(), selection);
            }
        }
        let before = std::mem::replace(&mut self.watches, watches);
        for (_, watch) in self.watches.iter().filter(|(id, _)| !before.contains_key(*id)) {
            let all = api.iter().filter(|(key, object)| watch.has(key, object.value()));
            for (key, object) in all {
                hub.line_up("insert", key, object, Cause::Watch);
            }
        }
        refused
    }

    // ---- requests ----

    /// The answer to a request; `None`: it is about something else.
    pub fn application(
        &mut self,
        now: u64,
        content: &Value,
        api: &Api,
        fails: bool,
    ) -> Option<Value> {
        let mut reply = content.clone();
        let key = content["Key"].as_str().expect("a key").to_owned();
        if key.contains("/ghosts/") {
            refuse(&mut reply, 404, self.is_stock);
            return Some(reply);
        }
        let selection = selection(content)?;
        if fails {
            refuse(&mut reply, 500, now.is_multiple_of(2));
            return Some(reply);
        }
        let all: Vec<&Value> = api
            .iter()
            .filter(|(key, object)| selection.has(key, object.value()))
            .map(|(_, object)| object.value())
            .collect();
        judge!(content["Verb"] == "list", "[listed first] got {content}, expected a list");
        let options = options(content);
        let limit = options["limit"].as_u64().expect("a limit") as usize;
        let more = if all.len() > limit { "more" } else { "" };
        judge!(
            options["continue"].is_null() && limit > 0,
            "[listed first] got {options}, expected the first page of a list"
        );
        let items: Vec<&&Value> = all.iter().take(limit).collect();
        let (kind, api_version) = match &*selection.resource {
            "endpoints" => ("EndpointsList", "v1"),
            _ => ("SiteList", "example.com/v1"),
        };
        let list = json!({"kind": kind, "apiVersion": api_version, "items": items,
            "metadata": {"resourceVersion": api.version().to_string(), "continue": more}});
        reply["RespBody"] = base64::encode(list.to_string().as_bytes()).into();
        reply["Status"] = "Approved".into();
        if !self.listed.contains(&selection) {
            self.listed.push(selection);
        }
        Some(reply)
    }

    /// The link is over: the cloud may be another one in the next.
    pub fn connected(&mut self) {
        self.listed.clear();
    }

    // ---- rules ----

    /// What is served or stored of an object is what the cloud had at that version.
    pub fn judge_text(&self, item: &Item) {
        let written = self.written.get(&(item.uid.clone(), item.version));
        judge!(
            written.is_some() && number(&item.text) == written.copied(),
            "[served is true] got {}, expected the number {written:?}",
            item.text
        );
    }

    /// Whether this object had been deleted by then.
    pub fn was_removed(&self, uid: &str, by: u64) -> bool {
        self.removed.get(uid).is_some_and(|at| *at < by)
    }
}

fn options(application: &Value) -> Value {
    let text = application["Option"].as_str().and_then(base64::decode).expect("base64");
    serde_json::from_slice(&text).expect("JSON")
}

/// What an application selects; `None`: nothing of informers.
fn selection(application: &Value) -> Option<Selection> {
    let key = application["Key"].as_str().expect("a key");
    let mut parts = key.split('/').skip(3);
    let (resource, namespace) = (parts.next()?, parts.next()?);
    if !matches!(resource, "endpoints" | "sites") {
        judge!(resource != "ghosts", "[listed first] got {application}, which no list has");
        return None;
    }
    let options = options(application);
    let labels = options["labelSelector"].as_str().unwrap_or_default();
    let fields = options["fieldSelector"].as_str().unwrap_or_default();
    Some(Selection {
        resource: resource.into(),
        namespace: if namespace == "null" { "" } else { namespace }.into(),
        labels: LabelSelector::parse(labels).expect("a selector"),
        name: fields.strip_prefix("metadata.name=").unwrap_or_default().into(),
    })
}

/// `is_text`: as a stock CloudCore does for lists.
fn refuse(reply: &mut Value, code: u16, is_text: bool) {
    reply["Status"] = "Rejected".into();
    let (reason, message) = match code {
        404 => ("NotFound", "the server could not find the requested resource"),
        _ => ("InternalError", "etcdserver: request timed out"),
    };
    if is_text {
        reply["Reason"] = format!("get current list error: {message}").into();
        return;
    }
    reply["Error"] = json!({"ErrStatus": {"metadata": {}, "status": "Failure",
        "message": message, "reason": reason, "code": code}});
}
