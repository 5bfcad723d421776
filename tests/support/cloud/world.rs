//! The objects of the cluster as one node's cloud sees them, and CloudCore's answers.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::message;

#[derive(Default)]
pub(super) struct World {
    /// By resource: `default/pod/web`.
    objects: BTreeMap<String, Value>,
    version: u64,
    /// Pushed and not acknowledged, by message id: the resource, and its version; none if it was
    /// removed.
    waiting: BTreeMap<String, (String, Option<String>)>,
    /// Versions that the node has.
    acked: BTreeMap<String, String>,
    /// Removed, which the node may not know.
    gone: BTreeMap<String, Value>,
}

impl World {
    pub(super) fn object(&self, resource: &str) -> Value {
        self.objects.get(resource).cloned().unwrap_or_default()
    }

    pub(super) fn put(&mut self, resource: &str, object: Value) -> Value {
        let known = self.objects.contains_key(resource);
        self.store(resource, object);
        self.push(if known { "update" } else { "insert" }, resource)
    }

    pub(super) fn remove(&mut self, resource: &str) -> Value {
        let mut object = self.objects.remove(resource).unwrap_or_else(|| bare(resource));
        self.version += 1;
        object["metadata"]["resourceVersion"] = self.version.to_string().into();
        self.gone.insert(resource.to_owned(), object.clone());
        let message = message("delete", resource, "", &object);
        self.waiting.insert(id(&message), (resource.to_owned(), None));
        message
    }

    fn store(&mut self, resource: &str, mut object: Value) {
        self.version += 1;
        let (namespace, name) = place(resource);
        let uid = self.objects.get(resource).map(|old| old["metadata"]["uid"].clone());
        let fresh = format!("0b1ec700-0000-4000-8000-{:012x}", self.version);
        let metadata = &mut object["metadata"];
        if metadata["uid"].is_null() {
            metadata["uid"] = uid.unwrap_or_else(|| fresh.into());
        }
        if metadata["creationTimestamp"].is_null() {
            metadata["creationTimestamp"] = "2026-11-20T17:46:19Z".into();
        }
        metadata["name"] = name.into();
        if namespace != "null" {
            metadata["namespace"] = namespace.into();
        }
        metadata["resourceVersion"] = self.version.to_string().into();
        self.gone.remove(resource);
        self.objects.insert(resource.to_owned(), object);
    }

    fn push(&mut self, operation: &str, resource: &str) -> Value {
        let object = self.object(resource);
        let message = message(operation, resource, "", &object);
        let version = object["metadata"]["resourceVersion"].as_str().map(str::to_owned);
        self.waiting.insert(id(&message), (resource.to_owned(), version));
        message
    }

    /// The objects that a connecting node has not acknowledged.
    pub(super) fn missed(&mut self) -> Vec<Value> {
        self.waiting.clear();
        let behind: Vec<String> = self
            .objects
            .iter()
            .filter(|(resource, object)| {
                let version = object["metadata"]["resourceVersion"].as_str();
                is_pushed(resource) && self.acked.get(*resource).map(String::as_str) != version
            })
            .map(|(resource, _)| resource.clone())
            .collect();
        let mut messages: Vec<Value> = Vec::new();
        for (resource, object) in self.gone.clone() {
            let message = message("delete", &resource, "", &object);
            self.waiting.insert(id(&message), (resource, None));
            messages.push(message);
        }
        messages.extend(behind.iter().map(|resource| self.push("update", resource)));
        messages
    }

    /// CloudCore's answers to this message.
    pub(super) fn answer(&mut self, received: &Value) -> Vec<Value> {
        let route = |part: &str| received["route"][part].as_str().unwrap_or_default().to_owned();
        let (operation, resource) = (route("operation"), route("resource"));
        let parent = id(received);
        let kind = resource.split('/').nth(1).unwrap_or_default();
        match (&*operation, kind) {
            ("response", _) => {
                self.acknowledge(received["header"]["parent_msg_id"].as_str().unwrap_or_default());
                Vec::new()
            }
            ("keepalive" | "error", _) => Vec::new(),
            ("query", "lease") => vec![self.object_response(&parent, &resource, &resource)],
            ("query", _) => vec![self.query(&parent, &resource, &received["content"])],
            ("insert", "node") => self.register(&parent, &resource, &received["content"]),
            ("insert" | "update", "lease") => {
                self.store(&resource, received["content"].clone());
                vec![self.object_response(&parent, &resource, &resource)]
            }
            ("patch", "podpatch" | "nodepatch") => {
                self.patch(&parent, &resource, &received["content"])
            }
            ("delete", "pod") => {
                let done = message("response", &resource, &parent, &"OK".into());
                if self.objects.contains_key(&resource) {
                    let gone = self.remove(&resource);
                    vec![done, gone]
                } else {
                    vec![done]
                }
            }
            // Unknown requests are not answered, and events never are.
            _ => Vec::new(),
        }
    }

    fn acknowledge(&mut self, parent: &str) {
        match self.waiting.remove(parent) {
            Some((resource, Some(version))) => {
                self.acked.insert(resource, version);
            }
            Some((resource, None)) => {
                self.acked.remove(&resource);
                self.gone.remove(&resource);
            }
            None => {}
        }
    }

    fn register(&mut self, parent: &str, resource: &str, node: &Value) -> Vec<Value> {
        if self.objects.contains_key(resource) {
            let (_, name) = place(resource);
            let error = status("AlreadyExists", 409, "nodes", name, "already exists");
            let content = json!({ "Object": bare(resource), "Err": error });
            return vec![message("response", resource, parent, &content)];
        }
        self.store(resource, node.clone());
        vec![self.object_response(parent, resource, resource), self.push("update", resource)]
    }

    /// The object is in the answer, and again in an update.
    fn patch(&mut self, parent: &str, resource: &str, patch: &Value) -> Vec<Value> {
        let of = resource.replacen("podpatch", "pod", 1).replacen("nodepatch", "node", 1);
        let patch: Value = match patch {
            Value::String(text) => serde_json::from_str(text).expect("a patch is JSON"),
            other => panic!("a patch is JSON in a string, got {other}"),
        };
        let Some(object) = self.objects.get(&of) else {
            return vec![self.object_response(parent, resource, &of)];
        };
        let uid = &patch["metadata"]["uid"];
        if !uid.is_null() && *uid != object["metadata"]["uid"] {
            let (_, name) = place(resource);
            let error = status("Conflict", 409, "pods", name, "uid mismatch");
            let content = json!({ "Object": bare(resource), "Err": error });
            return vec![message("response", resource, parent, &content)];
        }
        let mut patched = object.clone();
        merge(&mut patched, &patch);
        if patched == *object {
            return vec![self.object_response(parent, resource, &of)];
        }
        self.store(&of, patched);
        vec![self.object_response(parent, resource, &of), self.push("update", &of)]
    }

    fn query(&mut self, parent: &str, resource: &str, https_requests: &Value) -> Value {
        let (_, name) = place(resource);
        if resource.contains("/serviceaccounttoken/") {
            let mut token = https_requests.clone();
            token["status"] = json!({
                "token": format!("token-of-{name}"), "expirationTimestamp": "2099-01-01T00:00:00Z",
            });
            return message("response", resource, parent, &token);
        }
        let Some(object) = self.objects.get(resource) else {
            let kind = format!("{}s", resource.split('/').nth(1).unwrap_or_default());
            let error = status("NotFound", 404, &kind, name, "not found");
            return message("response", resource, parent, &error);
        };
        let answer = message("response", resource, parent, object);
        let version = object["metadata"]["resourceVersion"].as_str().map(str::to_owned);
        self.waiting.insert(id(&answer), (resource.to_owned(), version));
        answer
    }

    fn object_response(&self, parent: &str, resource: &str, of: &str) -> Value {
        let content = if let Some(object) = self.objects.get(of) {
            json!({ "Object": object, "Err": null })
        } else {
            let kind = of.split('/').nth(1).unwrap_or_default();
            let error = status("NotFound", 404, kind, place(of).1, "not found");
            json!({ "Object": null, "Err": error })
        };
        message("response", resource, parent, &content)
    }
}

fn id(message: &Value) -> String {
    message["header"]["msg_id"].as_str().unwrap_or_default().to_owned()
}

/// Namespace and name.
fn place(resource: &str) -> (&str, &str) {
    let mut parts = resource.split('/');
    (parts.next().unwrap_or_default(), parts.next_back().unwrap_or_default())
}

fn is_pushed(resource: &str) -> bool {
    ["/pod/", "/configmap/", "/secret/"].iter().any(|kind| resource.contains(kind))
}

fn bare(resource: &str) -> Value {
    let (namespace, name) = place(resource);
    json!({ "metadata": { "namespace": namespace, "name": name } })
}

fn status(reason: &str, code: u16, kind: &str, name: &str, why: &str) -> Value {
    json!({ "ErrStatus": {
        "metadata": {}, "status": "Failure", "message": format!("{kind} {name:?} {why}"),
        "reason": reason, "details": { "name": name, "kind": kind }, "code": code,
    } })
}

/// A strategic merge, as far as statuses need it: conditions and addresses by their types, other
/// lists as a whole.
fn merge(to: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *to = patch.clone();
        return;
    };
    if !to.is_object() {
        *to = Value::Object(Map::new());
    }
    for (key, value) in patch.iter().filter(|(key, _)| !key.starts_with('$')) {
        match value {
            Value::Null => {
                to.as_object_mut().expect("made above").remove(key);
            }
            Value::Array(items) if matches!(&**key, "conditions" | "addresses") => {
                merge_by_type(&mut to[key], items);
            }
            Value::Object(_) => merge(&mut to[key], value),
            other => to[key] = other.clone(),
        }
    }
}

fn merge_by_type(to: &mut Value, items: &[Value]) {
    let replace = items.iter().any(|item| item["$patch"] == "replace");
    let mut list = if replace { Vec::new() } else { to.as_array().cloned().unwrap_or_default() };
    for item in items.iter().filter(|item| item["$patch"] != "replace") {
        match list.iter_mut().find(|old| old["type"] == item["type"]) {
            Some(old) if item["$patch"] == "delete" => *old = Value::Null,
            Some(old) => merge(old, item),
            None => list.push(item.clone()),
        }
    }
    list.retain(|item| !item.is_null());
    *to = list.into();
}
