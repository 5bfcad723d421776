//! Calls about one object: the verbs of an API server, with its errors.

use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::{Key, Objects, matches_selector, patch, version_of};
use crate::model::api::{
    Call, CallError, CallResult, Kind, ListOptions, PatchType, Subresource, Verb,
};
use crate::model::time::Timestamp;

impl Objects {
    /// Answers a call.
    pub fn call(&mut self, call: &Call, now: Option<Timestamp>) -> CallResult {
        let namespace = match (call.kind.is_namespaced(), &*call.namespace) {
            (true, "") => "default".into(),
            (true, _) => call.namespace.clone(),
            (false, _) => "".into(),
        };
        let key = Key { kind: call.kind, namespace, name: call.name.clone() };
        let body = match &call.body {
            None => Value::Null,
            Some(body) => serde_json::from_str(body.get())
                .map_err(|error| refused(400, "BadRequest", &key, &error.to_string()))?,
        };
        let about = key.clone();
        let done = match (call.verb, call.subresource) {
            (Verb::Get, _) => self.get(&key),
            (Verb::List, _) => self.list_page(&key, &body),
            (Verb::Create, None) => self.create(key, body, now),
            (Verb::Create, Some(Subresource::Token)) => {
                // Nothing here could verify such an object.
                Err(missing(&key))
            }
            (Verb::Update, list_page) => self.update(key, body, list_page),
            (Verb::Patch(kind), list_page) => self.patch(key, &body, kind, list_page),
            (Verb::Delete, None) => self.delete(&key, &body, now),
            (Verb::Create | Verb::Delete, Some(_)) => {
                Err(refused(405, "MethodNotAllowed", &key, "there is no such part"))
            }
        };
        if self.is_amiss(&about) {
            self.bring_about(about, now);
        }
        done.map(|text| RawValue::from_string(text.into()).expect("it was written as JSON"))
    }

    fn get(&self, key: &Key) -> Result<Box<str>, CallError> {
        self.rows.get(key).map(|object| object.row.text.clone()).ok_or_else(|| missing(key))
    }

    /// The pods of a node, or a page of them, as nodes request them; or statuses of devices.
    fn list_page(&self, key: &Key, options: &Value) -> Result<Box<str>, CallError> {
        if !self.read {
            // Pods of the manifests may be missing yet, and the client would take the list as
            // complete.
            return Err(refused(503, "ServiceUnavailable", key, "the manifests are being read"));
        }
        let options: ListOptions = serde_json::from_value(options.clone()).unwrap_or_default();
        let node = options.field_selector.strip_prefix("spec.nodeName=");
        let is_valid = node.is_some() == (key.kind == Kind::Pod);
        if !is_valid || !matches!(key.kind, Kind::Pod | Kind::DeviceStatus) {
            let why = "expected pods, and fieldSelector spec.nodeName=…";
            return Err(refused(400, "BadRequest", key, why));
        }
        let place = |key: &Key| format!("{}/{}", key.namespace, key.name);
        let all = self.rows.iter().filter(|(at, _)| at.kind == key.kind);
        // Only the node's own pods are parsed: any node may repeat the request.
        let mut items: Vec<(String, Value)> = all
            .filter(|(_, pod)| pod.owner.as_deref() == node)
            .map(|(at, _)| (place(at), at))
            .filter(|(place, _)| *place > options.r#continue)
            .map(|(place, at)| (place, self.value(at).unwrap_or_default()))
            .collect();
        items.sort_by(|one, other| one.0.cmp(&other.0));
        let limit = if options.limit == 0 { usize::MAX } else { options.limit as usize };
        let rest = items.split_off(items.len().min(limit));
        let mut metadata = json!({"resourceVersion": self.version.to_string()});
        if let Some((last, _)) = items.last().filter(|_| !rest.is_empty()) {
            metadata["continue"] = last.as_str().into();
        }
        let items: Vec<Value> = items.into_iter().map(|(_, pod)| pod).collect();
        let (kind, version) = (format!("{}List", key.kind.name()), key.kind.api_version());
        let list =
            json!({"kind": kind, "apiVersion": version, "metadata": metadata, "items": items});
        Ok(list.to_string().into())
    }

    fn create(
        &mut self,
        mut key: Key,
        mut body: Value,
        now: Option<Timestamp>,
    ) -> Result<Box<str>, CallError> {
        let named = body["metadata"]["name"].as_str().unwrap_or_default();
        if key.name.is_empty() {
            key.name = named.into();
        }
        readable(&key, &body)?;
        if key.name.is_empty() {
            let why = "metadata.name: expected a name";
            return Err(refused(422, "Invalid", &key, why));
        }
        if self.rows.contains_key(&key) {
            let (plural, name) = (key.kind.plural(), &key.name);
            let why = format!("{plural} \"{name}\" already exists");
            return Err(refused(409, "AlreadyExists", &key, &why));
        }
        let uid = self.uids.random();
        Self::complete_metadata(&key, &mut body, uid, now);
        self.admit(&key, &body, None)?;
        Ok(self.put(key, body, None))
    }

    fn update(
        &mut self,
        key: Key,
        mut body: Value,
        list_page: Option<Subresource>,
    ) -> Result<Box<str>, CallError> {
        let old = self.value(&key).ok_or_else(|| missing(&key))?;
        preconditions(&key, &old, &body["metadata"])?;
        readable(&key, &body)?;
        let mut new = old.clone();
        if list_page == Some(Subresource::Status) {
            new["status"] = body["status"].take();
        } else {
            let status = new["status"].take();
            for field in IMMUTABLE {
                body["metadata"][field] = old["metadata"][field].clone();
            }
            new = body;
            if has_status(key.kind) {
                new["status"] = status;
            }
        }
        self.change(key, &old, new, list_page)
    }

    fn patch(
        &mut self,
        key: Key,
        body: &Value,
        kind: PatchType,
        list_page: Option<Subresource>,
    ) -> Result<Box<str>, CallError> {
        let old = self.value(&key).ok_or_else(|| missing(&key))?;
        preconditions(&key, &old, &body["metadata"])?;
        let mut new = old.clone();
        match kind {
            PatchType::Merge => patch::merge(&mut new, body),
            PatchType::Strategic => patch::strategic(&mut new, body)
                .map_err(|why| refused(400, "BadRequest", &key, &why.to_string()))?,
        }
        readable(&key, &new)?;
        if list_page == Some(Subresource::Status) {
            let status = new["status"].take();
            new = old.clone();
            new["status"] = status;
        } else {
            if has_status(key.kind) {
                new["status"] = old["status"].clone();
            }
            for field in IMMUTABLE {
                new["metadata"][field] = old["metadata"][field].clone();
            }
        }
        self.change(key, &old, new, list_page)
    }

    /// Nothing is written if nothing differs, as in an API server.
    fn change(
        &mut self,
        key: Key,
        old: &Value,
        mut new: Value,
        list_page: Option<Subresource>,
    ) -> Result<Box<str>, CallError> {
        new["metadata"]["resourceVersion"] = old["metadata"]["resourceVersion"].clone();
        drop_nulls(&mut new["metadata"]);
        if new.get("status") == Some(&Value::Null) {
            new.as_object_mut().expect("it has a status").remove("status");
        }
        let object = &self.rows[&key];
        if new == *old {
            return Ok(object.row.text.clone());
        }
        let made_of = object.row.made_of;
        self.admit(&key, &new, list_page)?;
        Ok(self.put(key, new, made_of))
    }

    /// A pod that is bound to a node is marked, and deleted when its node confirms; every other
    /// object is deleted at once.
    pub(super) fn delete(
        &mut self,
        key: &Key,
        options: &Value,
        now: Option<Timestamp>,
    ) -> Result<Box<str>, CallError> {
        let mut old = self.value(key).ok_or_else(|| missing(key))?;
        preconditions(key, &old, &options["preconditions"])?;
        let phase = old["status"]["phase"].as_str().unwrap_or_default();
        let ended = matches!(phase, "Succeeded" | "Failed");
        let requested_s = options["gracePeriodSeconds"].as_i64();
        let own_s = old["spec"]["terminationGracePeriodSeconds"].as_i64().unwrap_or(30);
        let grace_s = requested_s.unwrap_or(own_s).max(0);
        let at_once = key.kind != Kind::Pod
            || !matches_selector(key.kind, &old)
            || requested_s == Some(0)
            || (ended && requested_s.is_none())
            || grace_s == 0
            || !self.has_node(key);
        if at_once {
            return Ok(self.remove(key).expect("it is there"));
        }
        let metadata = &mut old["metadata"];
        let before_s = metadata["deletionGracePeriodSeconds"].as_i64();
        if before_s.is_some_and(|before_s| before_s <= grace_s) {
            // A grace period can only be shortened.
            return Ok(self.rows[key].row.text.clone());
        }
        let ends = now.map(|now| now.0.saturating_add(grace_s).min(LAST_WRITTEN_S));
        let ends = ends.map(|ends| Timestamp(ends).to_string());
        metadata["deletionTimestamp"] = ends.unwrap_or_else(|| UNKNOWN_TIME.to_owned()).into();
        metadata["deletionGracePeriodSeconds"] = grace_s.into();
        let made_of = self.rows[key].row.made_of;
        Ok(self.put(key.clone(), old, made_of))
    }
}

impl Objects {
    /// Whether the pod's node exists: otherwise nobody would confirm the deletion.
    pub(super) fn has_node(&self, pod: &Key) -> bool {
        let owner = self.rows.get(pod).and_then(|pod| pod.owner.clone());
        let node = owner.map(|name| Key { kind: Kind::Node, namespace: "".into(), name });
        node.is_some_and(|node| self.rows.contains_key(&node))
    }
}

/// Whether it can be an object at all: a node may send anything.
fn readable(key: &Key, value: &Value) -> Result<(), CallError> {
    let metadata = &value["metadata"];
    if value.is_object() && (metadata.is_object() || metadata.is_null()) {
        return Ok(());
    }
    Err(refused(400, "BadRequest", key, "got no object with metadata, expected one"))
}

/// 9999-12-31T23:59:59Z: RFC 3339 has no later one.
const LAST_WRITTEN_S: i64 = 253_402_300_799;

/// `resourceVersion` and `uid`, where the request has them.
fn preconditions(key: &Key, old: &Value, options: &Value) -> Result<(), CallError> {
    let metadata = &old["metadata"];
    if let Some(uid) = options["uid"].as_str().filter(|uid| !uid.is_empty())
        && metadata["uid"] != uid
    {
        let got = metadata["uid"].as_str().unwrap_or_default();
        let why =
            format!("Precondition failed: UID in precondition: {uid}, UID in object meta: {got}");
        return Err(refused(409, "Conflict", key, &conflict(key, &why)));
    }
    if let Some(version) = options["resourceVersion"].as_str().filter(|it| !it.is_empty())
        && version.parse() != Ok(version_of(old))
    {
        let why = "the object has been modified; please apply your changes to the latest version \
                   and try again";
        return Err(refused(409, "Conflict", key, &conflict(key, why)));
    }
    Ok(())
}

fn conflict(key: &Key, why: &str) -> String {
    format!("Operation cannot be fulfilled on {} \"{}\": {why}", key.kind.plural(), key.name)
}

fn missing(key: &Key) -> CallError {
    let why = format!("{} \"{}\" not found", key.kind.plural(), key.name);
    refused(404, "NotFound", key, &why)
}

/// meta/v1 `Status`
pub(super) fn refused(code: u16, reason: &str, key: &Key, why: &str) -> CallError {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": why, "reason": reason, "code": code,
        "details": {"name": key.name, "kind": key.kind.plural()},
    });
    let status = RawValue::from_string(status.to_string()).expect("it was written as JSON");
    CallError::Refused { code, status }
}

fn drop_nulls(value: &mut Value) {
    if let Some(map) = value.as_object_mut() {
        map.retain(|_, value| !value.is_null());
    }
}

/// Whether this kind has a status subresource.
fn has_status(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::Node
            | Kind::Pod
            | Kind::PersistentVolume
            | Kind::PersistentVolumeClaim
            | Kind::VolumeAttachment
            | Kind::ImagePrePullJob
            | Kind::NodeUpgradeJob
            | Kind::ConfigUpdateJob
            | Kind::Rule
    )
}

/// Fields of metadata that an update cannot change.
const IMMUTABLE: [&str; 6] = [
    "name",
    "namespace",
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
];
/// While the clock is not set: a time in the past, which still marks the object.
const UNKNOWN_TIME: &str = "1970-01-01T00:00:00Z";
