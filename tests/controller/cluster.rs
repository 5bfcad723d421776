//! An API server in memory, by the API's conventions: versions that only grow, watches from a
//! version on, 410 for what is too old, patches, the status subresource, preconditions, conflicts.

use std::collections::BTreeMap;

use edged::model::api::{Call, CallError, CallResult, Kind, PatchType, Subresource, Verb};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};

/// The key of an object.
pub type Name = (Kind, String, String);

#[derive(Default)]
pub struct Cluster {
    pub objects: BTreeMap<Name, Value>,
    pub version: u64,
    last_uid: u64,
    /// The changes of each kind, by version: whether it is a deletion, and the object then.
    pub log: BTreeMap<(Kind, u64), (bool, Value)>,
    /// Earlier versions are dropped.
    pub compacted: u64,
    /// Kinds whose CRDs are not installed.
    pub unserved: Vec<Kind>,
}

pub fn name_of(kind: Kind, object: &Value) -> Name {
    let metadata = &object["metadata"];
    let text = |key: &str| metadata[key].as_str().unwrap_or_default().to_owned();
    (kind, text("namespace"), text("name"))
}

pub fn raw(value: &Value) -> Box<RawValue> {
    to_raw_value(value).expect("plain data")
}

pub fn refused(code: u16, reason: &str) -> CallError {
    let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": reason, "reason": reason, "code": code});
    CallError::Refused { code, status: raw(&status) }
}

/// Whether the kind's selector matches it.
fn is_selected(kind: Kind, object: &Value) -> bool {
    match kind {
        Kind::Node => object["metadata"]["labels"].get("node-role.kubernetes.io/edge").is_some(),
        Kind::Pod => object["spec"]["nodeName"].as_str().is_some_and(|name| !name.is_empty()),
        _ => true,
    }
}

impl Cluster {
    fn next(&mut self) -> u64 {
        self.version += 1;
        self.version
    }

    /// Creates or replaces an object as a user does.
    pub fn apply(&mut self, kind: Kind, mut object: Value) -> Value {
        let name = name_of(kind, &object);
        let uid = if let Some(old) = self.objects.get(&name) {
            old["metadata"]["uid"].clone()
        } else {
            self.last_uid += 1;
            json!(format!("uid-{}", self.last_uid))
        };
        object["metadata"]["uid"] = uid;
        self.put(name, object)
    }

    /// Creates or replaces an object exactly, with its uid.
    pub fn force(&mut self, kind: Kind, object: Value) {
        self.put(name_of(kind, &object), object);
    }

    fn put(&mut self, name: Name, mut object: Value) -> Value {
        let version = self.next();
        object["metadata"]["resourceVersion"] = json!(version.to_string());
        object["metadata"]["managedFields"] = json!([{"manager": "test", "time": version}]);
        self.log.insert((name.0, version), (false, object.clone()));
        self.objects.insert(name, object.clone());
        object
    }

    /// Removes an object at once.
    pub fn remove(&mut self, name: &Name) {
        if let Some(mut object) = self.objects.remove(name) {
            let version = self.next();
            object["metadata"]["resourceVersion"] = json!(version.to_string());
            self.log.insert((name.0, version), (true, object));
        }
    }

    /// Deletes a pod as a user does: its node has to agree.
    pub fn delete_pod(&mut self, name: &Name) {
        if let Some(mut object) = self.objects.get(name).cloned() {
            object["metadata"]["deletionTimestamp"] = json!("2027-01-15T08:00:00Z");
            object["metadata"]["deletionGracePeriodSeconds"] = json!(30);
            self.put(name.clone(), object);
        }
    }

    /// All objects of a kind, as in lists: without `kind` and `apiVersion`.
    pub fn list(&self, kind: Kind) -> Vec<Box<RawValue>> {
        let of_kind = self.objects.iter().filter(|((of, ..), _)| *of == kind);
        let selected = of_kind.filter(|(_, object)| is_selected(kind, object));
        selected.map(|(_, object)| raw(object)).collect()
    }

    /// The next change of a kind after this version: whether it is a deletion, and the object.
    /// `Err`: the version is too old.
    pub fn after(&self, kind: Kind, version: u64) -> Result<Option<(u64, bool, &Value)>, ()> {
        if version < self.compacted {
            return Err(());
        }
        let after = self.log.range((kind, version + 1)..=(kind, u64::MAX));
        let mut reported = after.filter(|(_, (_, object))| is_selected(kind, object));
        Ok(reported.next().map(|((_, at), (gone, object))| (*at, *gone, object)))
    }

    pub fn call(&mut self, call: &Call) -> CallResult {
        let name = (call.kind, call.namespace.to_string(), call.name.to_string());
        let body = call
            .body
            .as_ref()
            .map_or(Value::Null, |body| serde_json::from_str(body.get()).expect("JSON"));
        if call.subresource == Some(Subresource::Token) {
            let mut token = body;
            token["metadata"] = json!({"name": name.2, "namespace": name.1});
            token["status"] = json!({"token": "t", "expirationTimestamp": "2027-01-15T09:00:00Z"});
            return Ok(raw(&token));
        }
        if self.unserved.contains(&call.kind) {
            return Err(refused(404, "NotFound"));
        }
        if call.verb == Verb::List && call.kind == Kind::DeviceStatus {
            assert_eq!(body["limit"], 1, "whether there is the kind");
            return Ok(raw(&json!({"kind": "DeviceStatusList", "items": []})));
        }
        if call.verb == Verb::List {
            return Ok(self.part(&body));
        }
        let old = self.objects.get(&name).cloned();
        match (call.verb, old) {
            (Verb::List, _) => unreachable!("just seen"),
            (Verb::Create, None) => {
                assert_eq!(name_of(call.kind, &body), name, "the body is another object");
                self.last_uid += 1;
                let mut object = body;
                object["metadata"]["uid"] = json!(format!("uid-{}", self.last_uid));
                Ok(raw(&self.put(name, object)))
            }
            (Verb::Create, Some(_)) => Err(refused(409, "AlreadyExists")),
            (_, None) => Err(refused(404, "NotFound")),
            (Verb::Get, Some(object)) => Ok(raw(&object)),
            (Verb::Update, Some(old)) => {
                let reported = &body["metadata"]["resourceVersion"];
                if reported.is_string() && *reported != old["metadata"]["resourceVersion"] {
                    return Err(refused(409, "Conflict"));
                }
                Ok(raw(&self.apply(call.kind, body)))
            }
            (Verb::Patch(how), Some(old)) => self.patch(name, &old, &body, how, call.subresource),
            (Verb::Delete, Some(old)) => {
                let uid = &body["preconditions"]["uid"];
                if uid.is_string() && *uid != old["metadata"]["uid"] {
                    return Err(refused(409, "Conflict"));
                }
                self.remove(&name);
                Ok(raw(&json!({"kind": "Status", "status": "Success"})))
            }
        }
    }

    /// Pods of one node.
    fn part(&self, options: &Value) -> Box<RawValue> {
        let selector = options["fieldSelector"].as_str().expect("a selector");
        let node = selector.strip_prefix("spec.nodeName=").expect("one node's");
        let of_it = |object: &&Value| object["spec"]["nodeName"] == node;
        let pods = self.objects.iter().filter(|((kind, ..), _)| *kind == Kind::Pod);
        let items: Vec<&Value> = pods.map(|(_, pod)| pod).filter(of_it).collect();
        raw(&json!({"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": items}))
    }

    fn patch(
        &mut self,
        name: Name,
        old: &Value,
        patch: &Value,
        how: PatchType,
        part: Option<Subresource>,
    ) -> CallResult {
        let uid = &patch["metadata"]["uid"];
        if uid.is_string() && *uid != old["metadata"]["uid"] {
            return Err(refused(409, "Conflict"));
        }
        let reported = &patch["metadata"]["resourceVersion"];
        if reported.is_string() && *reported != old["metadata"]["resourceVersion"] {
            return Err(refused(409, "Conflict"));
        }
        let mut new = old.clone();
        merge(&mut new, patch, how);
        if part == Some(Subresource::Status) {
            assert!(patch.get("spec").is_none(), "a node changes a spec");
        }
        if new == *old {
            return Ok(raw(old));
        }
        Ok(raw(&self.put(name, new)))
    }
}

/// RFC 7396; strategically, lists of conditions are merged by their type.
fn merge(to: &mut Value, patch: &Value, how: PatchType) {
    let Some(patch) = patch.as_object() else { return to.clone_from(patch) };
    if !to.is_object() {
        *to = json!({});
    }
    for (key, value) in patch.iter().filter(|(key, _)| !key.starts_with('$')) {
        if value.is_null() {
            to.as_object_mut().expect("just made one").remove(key);
        } else if how == PatchType::Strategic && key == "conditions" && to[key].is_array() {
            for condition in value.as_array().into_iter().flatten() {
                let all = to[key].as_array_mut().expect("just seen");
                match all.iter_mut().find(|old| old["type"] == condition["type"]) {
                    Some(old) => merge(old, condition, how),
                    None => all.push(condition.clone()),
                }
            }
        } else {
            merge(&mut to[key], value, how);
        }
    }
}
