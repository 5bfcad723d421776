//! The part of an API server that nodes' `MetaServers` use: resources of any kind, with versions
//! that only grow, watches from a version on, and 403 and 404 for what is not shown or not there.

use std::collections::{BTreeMap, BTreeSet};

use edged::model::any_api::{AnyCall, AnyTarget, AnyVerb};
use edged::model::api::{CallError, CallResult};
use edged::model::application::Gvr;
use edged::model::selector::{FieldSelector, LabelSelector, Labels, SelectableFields};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::cluster::{raw, refused};

/// Namespace and name.
pub type Place = (String, String);

#[derive(Default)]
pub struct AnyCluster {
    pub objects: BTreeMap<(Gvr, Place), Value>,
    pub version: u64,
    last_uid: u64,
    /// The changes by version: of which resource, whether it is a deletion, and the object then.
    log: BTreeMap<u64, (Gvr, bool, Value)>,
    /// Earlier versions are dropped.
    pub compacted: u64,
    /// Resources without a CRD.
    pub unserved: BTreeSet<Gvr>,
    /// Resources that are not shown to us.
    pub forbidden: BTreeSet<Gvr>,
    /// Nodes as whose user nothing may be listed.
    pub powerless: BTreeSet<Box<str>>,
}

impl AnyCluster {
    /// Creates or replaces an object.
    pub fn apply(&mut self, resource: &Gvr, mut object: Value) -> Value {
        let text = |key: &str| object["metadata"][key].as_str().unwrap_or_default().to_owned();
        let key = (resource.clone(), (text("namespace"), text("name")));
        self.version += 1;
        let uid = if let Some(old) = self.objects.get(&key) {
            old["metadata"]["uid"].clone()
        } else {
            self.last_uid += 1;
            json!(format!("any-{}", self.last_uid))
        };
        object["metadata"]["uid"] = uid;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        object["metadata"]["managedFields"] = json!([{"manager": "test"}]);
        self.log.insert(self.version, (resource.clone(), false, object.clone()));
        self.objects.insert(key, object.clone());
        object
    }

    pub fn remove(&mut self, resource: &Gvr, namespace: &str, name: &str) {
        let key = (resource.clone(), (namespace.to_owned(), name.to_owned()));
        if let Some(mut object) = self.objects.remove(&key) {
            self.version += 1;
            object["metadata"]["resourceVersion"] = json!(self.version.to_string());
            self.log.insert(self.version, (resource.clone(), true, object));
        }
    }

    fn refusal(&self, resource: &Gvr) -> Option<(u16, Box<RawValue>)> {
        let refusal = if self.unserved.contains(resource) {
            refused(404, "NotFound")
        } else if self.forbidden.contains(resource) {
            refused(403, "Forbidden")
        } else {
            return None;
        };
        match refusal {
            CallError::Refused { code, status } => Some((code, status)),
            CallError::Lost(_) => unreachable!("it is refused"),
        }
    }

    /// All objects, or why they are not shown.
    pub fn list(&self, resource: &Gvr) -> Result<Vec<Box<RawValue>>, (u16, Box<RawValue>)> {
        match self.refusal(resource) {
            Some(refusal) => Err(refusal),
            None => Ok(self.of(resource).map(|(_, object)| raw(object)).collect()),
        }
    }

    /// All objects of a resource.
    pub fn of<'a>(&'a self, resource: &'a Gvr) -> impl Iterator<Item = (&'a Place, &'a Value)> {
        let of_it = self.objects.iter().filter(move |((of, _), _)| of == resource);
        of_it.map(|((_, place), object)| (place, object))
    }

    /// The next change after this version; `Err`: the version is too old.
    pub fn after(&self, resource: &Gvr, version: u64) -> Result<Option<(u64, bool, &Value)>, ()> {
        if version < self.compacted || self.refusal(resource).is_some() {
            return Err(());
        }
        let mut after = self.log.range(version + 1..).filter(|(_, (of, ..))| of == resource);
        Ok(after.next().map(|(at, (_, gone, object))| (*at, *gone, object)))
    }

    pub fn call(&mut self, call: &AnyCall) -> CallResult {
        let AnyTarget::Object { resource, namespace, name, .. } = &call.target else {
            return Ok(raw(&json!("ok")));
        };
        if call.node.as_ref().is_some_and(|node| self.powerless.contains(node)) {
            return Err(refused(403, "Forbidden"));
        }
        if let Some((code, status)) = self.refusal(resource) {
            return Err(CallError::Refused { code, status });
        }
        let key = (resource.clone(), (namespace.to_string(), name.to_string()));
        let body: Value = serde_json::from_slice(&call.body).unwrap_or_default();
        match (call.verb, self.objects.get(&key).cloned()) {
            (AnyVerb::List, _) => Ok(self.selected(resource, namespace, call)),
            (AnyVerb::Create, _) => Ok(raw(&self.apply(resource, body))),
            (_, None) => Err(refused(404, "NotFound")),
            (AnyVerb::Get, Some(object)) => Ok(raw(&object)),
            (AnyVerb::Update | AnyVerb::Patch(_), Some(_)) => Ok(raw(&self.apply(resource, body))),
            (AnyVerb::Delete, Some(_)) => {
                self.remove(resource, namespace, name);
                Ok(raw(&json!({"kind": "Status", "status": "Success"})))
            }
        }
    }

    fn selected(&self, resource: &Gvr, namespace: &str, call: &AnyCall) -> Box<RawValue> {
        let labels = LabelSelector::parse(call.parameter("labelSelector")).expect("a selector");
        let fields = FieldSelector::parse(call.parameter("fieldSelector")).expect("a selector");
        let of_it = self.of(resource).filter(|(place, object)| {
            (namespace.is_empty() || place.0 == namespace)
                && labels.matches(&labels_of(object))
                && fields.matches(&fields_of(place, object))
        });
        let items: Vec<&Value> = of_it.map(|(_, object)| object).collect();
        raw(&json!({"kind": "List", "apiVersion": "v1",
            "metadata": {"resourceVersion": self.version.to_string()}, "items": items}))
    }
}

/// The labels of an object.
pub fn labels_of(object: &Value) -> Labels {
    let labels = object["metadata"]["labels"].as_object();
    let labels = labels.into_iter().flatten();
    labels.map(|(key, value)| (key.as_str().into(), value.as_str().unwrap_or("").into())).collect()
}

/// What field selectors compare.
pub fn fields_of<'a>(place: &'a Place, object: &'a Value) -> SelectableFields<'a> {
    SelectableFields {
        name: &place.1,
        namespace: &place.0,
        node_name: object["spec"]["nodeName"].as_str().unwrap_or_default(),
        phase: object["status"]["phase"].as_str().unwrap_or_default(),
    }
}
