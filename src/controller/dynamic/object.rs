//! Objects of any kind, as far as listeners select them, and what is left out of them on the way to
//! a node. The bytes are kept as they came, without `managedFields`, as in [`crate::controller`]'s
//! other objects.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::super::nullable::{Nullable, text};
use super::super::object::{fields, whole};
use crate::model::any_api::{AnyCall, AnyTarget, AnyVerb};
use crate::model::api::CallResult;
use crate::model::application::Gvr;
use crate::model::error::Peer;
use crate::model::selector::{Labels, SelectableFields};

/// Namespace and name of an object of a resource.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::controller) struct ObjectName {
    /// Empty: cluster-scoped.
    pub(in crate::controller) namespace: Box<str>,
    pub(in crate::controller) name: Box<str>,
}

/// As in paths of messages: `default/web`, `null/e1`.
impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let namespace = if self.namespace.is_empty() { "null" } else { &self.namespace };
        write!(f, "{namespace}/{}", self.name)
    }
}

/// An object of any kind.
pub(in crate::controller) struct AnyObject {
    pub(super) uid: Arc<str>,
    pub(super) version: u64,
    /// `Service`
    pub(super) kind: Box<str>,
    pub(super) json: Arc<RawValue>,
    pub(in crate::controller) labels: Labels,
    /// `spec.nodeName`; empty: none.
    pub(super) node_name: Box<str>,
    /// `status.phase`; empty: none.
    phase: Box<str>,
    /// Of a Service: its endpoints are limited to the nodes of a group.
    pub(super) is_of_node_group: bool,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Metadata<'a> {
    #[serde(borrow, deserialize_with = "text")]
    name: Cow<'a, str>,
    #[serde(borrow, deserialize_with = "text")]
    namespace: Cow<'a, str>,
    #[serde(borrow, deserialize_with = "text")]
    uid: Cow<'a, str>,
    #[serde(borrow, deserialize_with = "text")]
    resource_version: Cow<'a, str>,
    labels: Nullable<BTreeMap<Box<str>, Nullable<Box<str>>>>,
    annotations: Nullable<BTreeMap<Cow<'a, str>, Nullable<Cow<'a, str>>>>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Part {
    node_name: Value,
    phase: Value,
}

impl AnyObject {
    /// Parses an object with `kind` and `apiVersion`; fails with the reason.
    pub(in crate::controller) fn read(raw: &RawValue) -> Result<(ObjectName, Self), Peer> {
        let of = fields(raw.get(), "the object")?;
        let about = of.get("metadata").ok_or_else(|| Peer::new("got no metadata"))?;
        let metadata: Metadata<'_> =
            serde_json::from_str(about.get()).map_err(|error| Peer::at("metadata", error))?;
        let word = |key: &str| -> Option<Box<str>> {
            of.get(key).and_then(|value| serde_json::from_str(value.get()).ok())
        };
        let (Some(kind), Some(api_version)) = (word("kind"), word("apiVersion")) else {
            return Err(Peer::new("got no kind or no apiVersion"));
        };
        let version = metadata.resource_version.parse().map_err(|_| {
            let got = &metadata.resource_version;
            Peer::new(format!("got resourceVersion {got:?}, expected a number"))
        })?;
        if metadata.name.is_empty() || metadata.uid.is_empty() {
            return Err(Peer::new("got no name or no uid"));
        }
        let part = |key: &str| -> Part {
            // Of many kinds these are no objects, or not of this form.
            of.get(key).and_then(|it| serde_json::from_str(it.get()).ok()).unwrap_or_default()
        };
        let word = |value: Value| value.as_str().unwrap_or_default().into();
        let about = fields(about.get(), "metadata")?;
        let name =
            ObjectName { namespace: (*metadata.namespace).into(), name: (*metadata.name).into() };
        let topology = metadata.annotations.get(TOPOLOGY).map(|value| &*value.0);
        let object = Self {
            uid: (*metadata.uid).into(),
            version,
            json: whole((&kind, &api_version), raw, &of, &about),
            labels: metadata.labels.0.into_iter().map(|(key, value)| (key, value.0)).collect(),
            node_name: word(part("spec").node_name),
            phase: word(part("status").phase),
            is_of_node_group: topology == Some(RANGE_NODE_GROUP),
            kind,
        };
        Ok((name, object))
    }

    /// What a field selector compares.
    pub(in crate::controller) fn fields<'a>(
        &'a self,
        name: &'a ObjectName,
    ) -> SelectableFields<'a> {
        SelectableFields {
            name: &name.name,
            namespace: &name.namespace,
            node_name: &self.node_name,
            phase: &self.phase,
        }
    }

    /// Whether selectors make no difference between the two.
    pub(super) fn has_labels_of(&self, other: &Self) -> bool {
        (&self.labels, &self.node_name, &self.phase)
            == (&other.labels, &other.node_name, &other.phase)
    }

    /// Its size in memory, about.
    pub(super) fn bytes(&self) -> usize {
        /// Names and labels.
        const REST: usize = 512;
        REST + self.json.get().len()
    }

    /// The object, with this version: that of its deletion.
    pub(super) fn at_version(&self, version: u64) -> Arc<RawValue> {
        if version <= self.version {
            return Arc::clone(&self.json);
        }
        let mut object: Value = serde_json::from_str(self.json.get()).unwrap_or_default();
        object["metadata"]["resourceVersion"] = version.to_string().into();
        raw(&object)
    }
}

/// What an answer of the API server shows of an object.
pub(super) struct Shown {
    pub(super) uid: Arc<str>,
    pub(super) version: u64,
    /// `spec.nodeName`; empty: none.
    pub(super) node_name: Box<str>,
}

/// The objects of an answer: those of a list, or the one that it is. What has no identity is left
/// out.
pub(super) fn shown(answer: &CallResult) -> BTreeMap<ObjectName, Shown> {
    #[derive(Deserialize)]
    struct Item<'a> {
        #[serde(borrow, default)]
        metadata: Option<Metadata<'a>>,
        #[serde(borrow, default)]
        spec: Option<&'a RawValue>,
    }
    #[derive(Deserialize)]
    struct List<'a> {
        #[serde(borrow)]
        items: Option<Vec<&'a RawValue>>,
    }
    let Ok(body) = answer else { return BTreeMap::new() };
    let list: Option<List<'_>> = serde_json::from_str(body.get()).ok();
    let items = list.and_then(|list| list.items).unwrap_or_else(|| vec![body]);
    let identified = |raw: &&RawValue| {
        let item: Item<'_> = serde_json::from_str(raw.get()).ok()?;
        let metadata = item.metadata.filter(|it| !it.name.is_empty() && !it.uid.is_empty())?;
        let version = metadata.resource_version.parse().ok()?;
        let spec = item.spec.and_then(|spec| serde_json::from_str::<Part>(spec.get()).ok());
        let node_name = spec.unwrap_or_default().node_name;
        let node_name = node_name.as_str().unwrap_or_default().into();
        let (namespace, name) = ((*metadata.namespace).into(), (*metadata.name).into());
        let uid = (*metadata.uid).into();
        Some((ObjectName { namespace, name }, Shown { uid, version, node_name }))
    };
    items.iter().filter_map(identified).collect()
}

/// A deleted object of which nothing else is known.
pub(super) fn skeleton(kind: &str, resource: &Gvr, name: &ObjectName, uid: &str) -> Arc<RawValue> {
    let mut metadata = serde_json::json!({"name": name.name, "uid": uid});
    if !name.namespace.is_empty() {
        metadata["namespace"] = (*name.namespace).into();
    }
    let version = resource.api_version();
    raw(&serde_json::json!({"kind": kind, "apiVersion": version, "metadata": metadata}))
}

fn raw(value: &Value) -> Arc<RawValue> {
    Arc::from(serde_json::value::to_raw_value(value).expect("plain data"))
}

/// Annotation of a Service.
const TOPOLOGY: &str = "apps.kubeedge.io/service-topology";
const RANGE_NODE_GROUP: &str = "range-nodegroup";
/// The label of an `EndpointSlice` with the name of its Service.
const SERVICE_NAME: &str = "kubernetes.io/service-name";

/// Which addresses of Services a node is shown (section 13): those on nodes of its own group, if
/// the Service says so.
pub(super) struct Topology<'a> {
    /// The Services that say so.
    pub(super) limited: &'a std::collections::BTreeSet<ObjectName>,
    /// Whether the node of this name is the same, or of the same group.
    pub(super) is_near: &'a dyn Fn(&str) -> bool,
}

impl Topology<'_> {
    /// The object without the addresses of other groups; `None`: it stays as it is.
    pub(super) fn filtered(
        &self,
        resource: &Gvr,
        name: &ObjectName,
        object: &AnyObject,
    ) -> Option<(u64, Arc<RawValue>)> {
        if self.limited.is_empty() || !is_of_addresses(resource) {
            return None;
        }
        let is_slice = &*resource.resource == SLICES;
        let service = if is_slice { object.labels.get(SERVICE_NAME)? } else { &name.name };
        let mut value: Value = self
            .is_limited(&name.namespace, service)
            .then(|| serde_json::from_str(object.json.get()).unwrap_or_default())?;
        self.filter(&mut value, is_slice);
        let text = raw(&value);
        let mut hasher = DefaultHasher::new();
        text.get().hash(&mut hasher);
        // The highest bit tells it from a version.
        Some((hasher.finish() | 1 << 63, text))
    }

    fn is_limited(&self, namespace: &str, service: &str) -> bool {
        self.limited.contains(&ObjectName { namespace: namespace.into(), name: service.into() })
    }

    fn filter(&self, object: &mut Value, is_slice: bool) {
        let is_near =
            |address: &Value| address["nodeName"].as_str().is_some_and(|node| (self.is_near)(node));
        if is_slice {
            if let Some(endpoints) = object["endpoints"].as_array_mut() {
                endpoints.retain(is_near);
            }
            return;
        }
        let Some(subsets) = object["subsets"].as_array_mut() else { return };
        for subset in subsets.iter_mut() {
            for of in ["addresses", "notReadyAddresses"] {
                if let Some(addresses) = subset.get_mut(of).and_then(Value::as_array_mut) {
                    addresses.retain(is_near);
                }
            }
        }
        subsets.retain(|subset| {
            let has = |of: &str| subset[of].as_array().is_some_and(|all| !all.is_empty());
            has("addresses") || has("notReadyAddresses")
        });
    }

    /// The body of an answer as the node gets it.
    pub(super) fn answer_to(&self, call: &AnyCall, body: &RawValue) -> Box<str> {
        match (&call.target, call.verb) {
            (_, AnyVerb::Delete) => Box::default(),
            // What is no JSON comes as a JSON string.
            (AnyTarget::Path(_), _) => {
                serde_json::from_str(body.get()).unwrap_or_else(|_| body.get().into())
            }
            (AnyTarget::Object { resource, .. }, _) => self.answer(resource, body),
        }
    }

    /// A list or an object of the API server as the node gets it: without `managedFields`, and
    /// without the addresses of other groups.
    fn answer(&self, resource: &Gvr, body: &RawValue) -> Box<str> {
        #[derive(Deserialize)]
        struct List<'a> {
            #[serde(borrow)]
            items: Option<Vec<&'a RawValue>>,
        }
        let list: Option<List<'_>> = serde_json::from_str(body.get()).ok();
        let Some(items) = list.and_then(|list| list.items) else {
            return self.shown(resource, body);
        };
        let items: Vec<Box<str>> = items.iter().map(|item| self.shown(resource, item)).collect();
        let Ok(of) = fields(body.get(), "the list") else { return body.get().into() };
        let parts: Vec<String> = of
            .iter()
            .map(|(key, value)| match &**key {
                "items" => format!("\"items\":[{}]", items.join(",")),
                _ => format!("{}:{}", Value::from(&**key), value.get()),
            })
            .collect();
        format!("{{{}}}", parts.join(",")).into()
    }

    fn shown(&self, resource: &Gvr, object: &RawValue) -> Box<str> {
        let Some((of, about)) = fields(object.get(), "the object").ok().and_then(|of| {
            let about = fields(of.get("metadata")?.get(), "metadata").ok()?;
            Some((of, about))
        }) else {
            return object.get().into();
        };
        let word = |key: &str| -> Box<str> {
            of.get(key).and_then(|it| serde_json::from_str(it.get()).ok()).unwrap_or_default()
        };
        let is_kinded = of.contains_key("kind") && of.contains_key("apiVersion");
        let text = if is_kinded {
            whole((&word("kind"), &word("apiVersion")), object, &of, &about)
        } else {
            // An item of a list has no kind, and needs none.
            super::super::object::without_managed_fields(object, &of, &about)
        };
        if !is_of_addresses(resource) || self.limited.is_empty() {
            return text.get().into();
        }
        let mut value: Value = serde_json::from_str(text.get()).unwrap_or_default();
        let is_slice = &*resource.resource == SLICES;
        let metadata = &value["metadata"];
        let service = if is_slice { &metadata["labels"][SERVICE_NAME] } else { &metadata["name"] };
        let namespace = metadata["namespace"].as_str().unwrap_or_default();
        if self.is_limited(namespace, service.as_str().unwrap_or_default()) {
            self.filter(&mut value, is_slice);
        }
        value.to_string().into()
    }
}

/// Whether its objects have the addresses of Services.
pub(super) fn is_of_addresses(resource: &Gvr) -> bool {
    resource.is("", "endpoints") || resource.is("discovery.k8s.io", SLICES)
}

const SLICES: &str = "endpointslices";

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::json;

    use super::*;

    fn boxed(value: &Value) -> Box<RawValue> {
        serde_json::value::to_raw_value(value).expect("JSON")
    }

    #[test]
    fn an_object_of_any_kind_is_read() {
        let raw = boxed(&json!({"kind": "Gadget", "apiVersion": "x.org/v1", "metadata": {
            "name": "a", "namespace": "n", "uid": "u", "resourceVersion": "7",
            "labels": {"l": "m"}, "managedFields": [1]}, "spec": {"nodeName": "e"}, "status": 3}));
        let (name, object) = AnyObject::read(&raw).expect("an object");
        assert_eq!(
            (name.to_string().as_str(), object.version, &*object.kind),
            ("n/a", 7, "Gadget")
        );
        assert_eq!((&*object.node_name, &*object.phase), ("e", ""));
        assert!(!object.json.get().contains("managedFields"), "{}", object.json);
        assert!(object.at_version(9).get().contains(r#""resourceVersion":"9""#));
        for (value, why) in [
            (json!({"metadata": {}}), "got no kind or no apiVersion"),
            (json!({"kind": "A", "apiVersion": "v1", "metadata": {}}), "got resourceVersion \"\""),
            (json!([]), "the object: "),
        ] {
            let got = AnyObject::read(&boxed(&value)).err().expect("no object").to_string();
            assert!(got.starts_with(why), "{got}");
        }
    }

    #[test]
    fn addresses_of_other_groups_are_left_out_if_the_service_says_so() {
        let limited = BTreeSet::from([ObjectName { namespace: "n".into(), name: "web".into() }]);
        let is_near = |node: &str| node == "e1";
        let topology = Topology { limited: &limited, is_near: &is_near };
        let of = |name: &str| {
            json!({"metadata": {"name": name, "namespace": "n"}, "subsets": [
            {"addresses": [
                {"ip": "1", "nodeName": "e1"}, {"ip": "2", "nodeName": "e2"}, {"ip": "3"}]},
            {"notReadyAddresses": [{"ip": "4", "nodeName": "e2"}]}]})
        };
        let endpoints = Gvr::new("", "v1", "endpoints");
        let list = json!({"kind": "EndpointsList", "metadata": {"continue": "c"},
            "items": [of("web"), of("other")]});
        let shown = topology.answer(&endpoints, &boxed(&list));
        let shown: Value = serde_json::from_str(&shown).expect("JSON");
        assert_eq!(
            shown["items"][0]["subsets"],
            json!([{"addresses": [{"ip": "1", "nodeName": "e1"}]}])
        );
        assert_eq!(shown["items"][1], of("other"));
        assert_eq!(shown["metadata"]["continue"], "c");

        let slices = Gvr::new("discovery.k8s.io", "v1", "endpointslices");
        let slice = json!({"kind": "EndpointSlice", "apiVersion": "discovery.k8s.io/v1",
            "metadata": {"name": "web-x", "namespace": "n",
                "labels": {SERVICE_NAME: "web"}, "uid": "u",
            "resourceVersion": "1"},
            "endpoints": [{"nodeName": "e2"}, {"nodeName": "e1"}, {"addresses": []}]});
        let (name, object) = AnyObject::read(&boxed(&slice)).expect("a slice");
        let (digest, text) = topology.filtered(&slices, &name, &object).expect("it is limited");
        assert!(digest > u64::MAX / 2 && !text.get().contains("e2"), "{text}");
        let nobody = BTreeSet::new();
        let topology = Topology { limited: &nobody, is_near: &is_near };
        assert!(topology.filtered(&slices, &name, &object).is_none());
    }

    #[test]
    fn managed_fields_are_left_out_of_lists_and_objects() {
        let nobody = BTreeSet::new();
        let topology = Topology { limited: &nobody, is_near: &|_| false };
        let maps = Gvr::new("", "v1", "configmaps");
        let item = json!({"metadata": {"name": "a", "managedFields": [1]}, "data": {"k": "v"}});
        let plain = json!({"metadata": {"name": "a"}, "data": {"k": "v"}});
        let list = json!({"kind": "ConfigMapList", "items": [item]});
        let shown: Value =
            serde_json::from_str(&topology.answer(&maps, &boxed(&list))).expect("JSON");
        assert_eq!(shown, json!({"kind": "ConfigMapList", "items": [plain]}));
        let mut one = item.clone();
        (one["kind"], one["apiVersion"]) = (json!("ConfigMap"), json!("v1"));
        let shown = topology.answer(&maps, &boxed(&one));
        assert!(!shown.contains("managedFields") && shown.contains("\"kind\":\"ConfigMap\""));
        assert_eq!(&*topology.answer(&maps, &boxed(&json!("x"))), "\"x\"");
    }
}
