//! Parses an object of the API server as far as necessary: its identity, its version, and a digest
//! that shows whether it has changed for its node.
//!
//! The bytes are kept as they came, except that `managedFields` are removed, which are more than a
//! third of what the API server sends and mean nothing to a node, and that `kind` and `apiVersion`
//! are added, which lists leave out.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::key::Key;
use super::location::{DeviceFacts, PodFacts};
use super::nullable::{Nullable, text};
use crate::limits::NODE_ADDRESSES_MAX;
use crate::model::api::{EDGE_LABEL, Kind};
use crate::model::error::Peer;
use crate::model::node_job::Generation;

pub(super) struct Object {
    pub(super) uid: Arc<str>,
    /// `resourceVersion`; in the API server it only grows.
    pub(super) version: u64,
    /// Hash of what the node has to know. A status that a node has written itself is not part of
    /// it.
    pub(super) digest: u64,
    pub(super) json: Arc<RawValue>,
    /// It has a `deletionTimestamp`.
    pub(super) is_ending: bool,
    /// Only for pods.
    pub(super) pod: Option<Box<PodFacts>>,
    /// Only for devices.
    pub(super) device: Option<Box<DeviceFacts>>,
    /// Only for nodes.
    pub(super) node: Option<Box<NodeFacts>>,
    /// The list in which it was seen last.
    pub(super) round: u32,
}

/// To which node an object is bound.
#[derive(Clone, Copy)]
pub(super) struct Binding<'a> {
    /// Empty: to none.
    pub(super) node: &'a str,
    /// What the node needs for it.
    pub(super) needs: &'a BTreeSet<Key>,
}

pub(super) type Fields<'a> = BTreeMap<Cow<'a, str>, &'a RawValue>;

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
    deletion_timestamp: Option<Box<str>>,
}

/// What is known of a Node beside its identity.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct NodeFacts {
    /// `status.addresses`, each once.
    pub(super) addresses: BTreeSet<Box<str>>,
    /// `status.daemonEndpoints.kubeletEndpoint.Port`; 0: none.
    pub(super) kubelet_port: u16,
    /// Its EdgeCore is older than 1.16.2, and knows devices without their namespaces.
    pub(super) has_short_device_ids: bool,
    /// Its condition `Ready` is `True`.
    pub(super) is_ready: bool,
    /// What its agent understands of jobs.
    pub(super) edge: Edge,
    /// The node group that it belongs to; empty: none.
    pub(super) group: Box<str>,
}

impl NodeFacts {
    /// A status that is not valid has no facts.
    fn read(status: &RawValue) -> Self {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Status {
            #[serde(default)]
            addresses: Nullable<Vec<Address>>,
            #[serde(default)]
            daemon_endpoints: Nullable<Endpoints>,
            #[serde(default)]
            node_info: Nullable<Info>,
            #[serde(default)]
            conditions: Nullable<Vec<Condition>>,
        }
        #[derive(Default, Deserialize)]
        #[serde(default, rename_all = "camelCase")]
        struct Info {
            kubelet_version: Nullable<Box<str>>,
        }
        #[derive(Deserialize)]
        struct Address {
            address: Box<str>,
        }
        #[derive(Default, Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Endpoints {
            #[serde(default)]
            kubelet_endpoint: Nullable<Endpoint>,
        }
        #[derive(Default, Deserialize)]
        struct Endpoint {
            #[serde(default, rename = "Port")]
            port: u16,
        }
        let Ok(status) = serde_json::from_str::<Status>(status.get()) else {
            return Self::default();
        };
        let addresses = status.addresses.0.into_iter().take(NODE_ADDRESSES_MAX);
        let (version, conditions) = (&status.node_info.kubelet_version, &status.conditions);
        Self {
            addresses: addresses.map(|it| it.address).collect(),
            kubelet_port: status.daemon_endpoints.0.kubelet_endpoint.0.port,
            has_short_device_ids: is_before(version, (1, 16, 2)),
            is_ready: conditions.iter().any(|it| (&*it.r#type, &*it.status) == ("Ready", "True")),
            edge: if version.contains("+edged") {
                Edge::Idempotent
            } else if is_before(version, (1, 21, 0)) {
                Edge::Stages
            } else {
                Edge::Flow
            },
            group: Box::default(),
        }
    }
}

/// What the agent of a node understands of jobs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Edge {
    /// EdgeCore up to 1.20: the messages of v1alpha1.
    Stages,
    /// EdgeCore since 1.21: those of v1alpha2.
    #[default]
    Flow,
    /// edged: the same, and a request that comes twice is done once.
    Idempotent,
}

impl Edge {
    /// The form of the messages to it.
    pub(super) fn generation(self) -> Generation {
        match self {
            Self::Stages => Generation::V1Alpha1,
            Self::Flow | Self::Idempotent => Generation::V1Alpha2,
        }
    }
}

/// Whether this is the version of an EdgeCore before that one: `v1.22.6-kubeedge-v1.12.1`.
fn is_before(kubelet_version: &str, other: (u32, u32, u32)) -> bool {
    let Some((_, version)) = kubelet_version.split_once("-kubeedge-v") else { return false };
    let number = |text: &str| -> Option<u32> {
        let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        text[..digits].parse().ok()
    };
    let numbers: Vec<Option<u32>> = version.split('.').take(3).map(number).collect();
    match numbers[..] {
        [Some(major), Some(minor), Some(patch)] => (major, minor, patch) < other,
        _ => false,
    }
}

/// The part of a device's status that its mapper reads (section 11.5 of spec `devices`); the rest
/// is what its node has reported.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct DeviceStatus<'a> {
    #[serde(borrow, default)]
    report_to_cloud: Option<&'a RawValue>,
    #[serde(borrow, default)]
    report_cycle: Option<&'a RawValue>,
}

impl DeviceStatus<'_> {
    fn hash(&self, to: &mut DefaultHasher) {
        let given = [self.report_to_cloud, self.report_cycle].map(|it| it.map(RawValue::get));
        // A status that has neither is as none.
        if given != [None, None] {
            given.hash(to);
        }
    }
}

/// The part of a node's status that is written by others than the node.
#[derive(Deserialize, Hash)]
#[serde(rename_all = "camelCase")]
struct NodeStatus {
    #[serde(default)]
    conditions: Nullable<Vec<Condition>>,
    #[serde(default)]
    volumes_attached: Nullable<Vec<Attached>>,
}

#[derive(Deserialize, Hash)]
struct Condition {
    r#type: Box<str>,
    status: Box<str>,
}

#[derive(Deserialize, Hash)]
struct Attached {
    name: Box<str>,
}

/// What can be read of an object that cannot be parsed.
pub(super) struct Sketch {
    pub(super) key: Key,
    pub(super) uid: Box<str>,
    pub(super) version: Option<u64>,
    /// For pods: the node that it is bound to.
    pub(super) node: Option<Box<str>>,
}

impl Sketch {
    /// `None`: not even the name can be read.
    pub(super) fn of(kind: Kind, raw: &RawValue) -> Option<Self> {
        let value: Value = serde_json::from_str(raw.get()).ok()?;
        let word = |key: &str| value["metadata"][key].as_str().unwrap_or_default();
        let name = Some(word("name")).filter(|name| !name.is_empty())?;
        Some(Self {
            key: Key::new(kind, word("namespace"), name),
            uid: word("uid").into(),
            version: word("resourceVersion").parse().ok(),
            node: value["spec"]["nodeName"].as_str().map(Into::into),
        })
    }
}

/// A parsed object and its key.
pub(super) struct Read {
    pub(super) key: Key,
    pub(super) object: Object,
    /// For nodes: it has the label of edge nodes.
    pub(super) is_edge: bool,
}

impl Object {
    /// Parses an object; fails with the reason.
    pub(super) fn read(kind: Kind, raw: &RawValue) -> Result<Read, Peer> {
        let fields = fields(raw.get(), "the object")?;
        let about = fields.get("metadata").ok_or_else(|| Peer::new("got no metadata"))?;
        let metadata: Metadata<'_> =
            serde_json::from_str(about.get()).map_err(|error| Peer::at("metadata", error))?;
        let about = self::fields(about.get(), "metadata")?;
        let version = metadata.resource_version.parse().map_err(|_| {
            let got = &metadata.resource_version;
            Peer::new(format!("got resourceVersion {got:?}, expected a number"))
        })?;
        if metadata.name.is_empty() || metadata.uid.is_empty() {
            return Err(Peer::new("got no name or no uid"));
        }
        let pod = match (kind, fields.get("spec")) {
            (Kind::Pod, Some(spec)) => Some(Box::new(PodFacts::read(&metadata.namespace, spec)?)),
            (Kind::Pod, None) => return Err(Peer::new("got a pod without spec")),
            _ => None,
        };
        let label = metadata.labels.get("description").map_or("", |label| &**label);
        let device = (kind == Kind::Device)
            .then(|| DeviceFacts::read(&metadata.namespace, fields.get("spec").copied(), label));
        let device = device.transpose()?.map(Box::new);
        let status = fields.get("status").filter(|_| kind == Kind::Node);
        let node = (kind == Kind::Node).then(|| {
            let mut facts = status.map(|status| NodeFacts::read(status)).unwrap_or_default();
            facts.group = metadata.labels.get(NODE_GROUP).cloned().unwrap_or_default().0;
            Box::new(facts)
        });
        let key = Key::new(kind, &metadata.namespace, &metadata.name);
        let object = Self {
            uid: metadata.uid.as_ref().into(),
            version,
            digest: digest(kind, &fields, &about),
            json: whole((kind.name(), kind.api_version()), raw, &fields, &about),
            is_ending: metadata.deletion_timestamp.is_some(),
            pod,
            device,
            node,
            round: 0,
        };
        Ok(Read { key, object, is_edge: metadata.labels.contains_key(EDGE_LABEL) })
    }

    /// To which node it is bound; `None`: it is not of a kind that is.
    pub(super) fn binding(&self) -> Option<Binding<'_>> {
        let pod = self.pod.as_ref().map(|it| Binding { node: &it.node, needs: &it.needs });
        pod.or_else(|| self.device.as_ref().map(|it| Binding { node: &it.node, needs: &it.needs }))
    }

    /// `metadata.labels`
    pub(super) fn labels(&self) -> BTreeMap<Box<str>, Box<str>> {
        #[derive(Deserialize)]
        struct Document<'a> {
            #[serde(borrow)]
            metadata: Metadata<'a>,
        }
        let document: Option<Document<'_>> = serde_json::from_str(self.json.get()).ok();
        let labels = document.map(|document| document.metadata.labels.0).unwrap_or_default();
        labels.into_iter().map(|(key, value)| (key, value.0)).collect()
    }

    /// Of a node.
    pub(super) fn addresses(&self) -> Vec<Box<str>> {
        let facts = self.node.iter().flat_map(|facts| &facts.addresses);
        facts.cloned().collect()
    }
}

pub(super) fn fields<'a>(text: &'a str, what: &str) -> Result<Fields<'a>, Peer> {
    serde_json::from_str(text).map_err(|error| Peer::at(what, error))
}

fn digest(kind: Kind, fields: &Fields<'_>, metadata: &Fields<'_>) -> u64 {
    let mut to = DefaultHasher::new();
    for (name, value) in metadata {
        if !matches!(&**name, "resourceVersion" | "generation" | "managedFields") {
            (name, value.get()).hash(&mut to);
        }
    }
    for (name, value) in fields {
        match (kind, &**name) {
            (_, "kind" | "apiVersion" | "metadata") | (Kind::Pod, "status") => {}
            (Kind::Node, "status") => {
                let status = serde_json::from_str::<NodeStatus>(value.get());
                status.ok().hash(&mut to);
            }
            (Kind::Device, "status") => {
                if let Ok(status) = serde_json::from_str::<DeviceStatus<'_>>(value.get()) {
                    status.hash(&mut to);
                }
            }
            _ => (name, value.get()).hash(&mut to),
        }
    }
    // 0 means «not known».
    to.finish().max(1)
}

/// The object with `kind` and `apiVersion`, and without `managedFields`.
pub(super) fn whole(
    (kind, api_version): (&str, &str),
    raw: &RawValue,
    fields: &Fields<'_>,
    metadata: &Fields<'_>,
) -> Arc<RawValue> {
    let complete = fields.contains_key("kind") && fields.contains_key("apiVersion");
    if complete && !metadata.contains_key("managedFields") {
        return Arc::from(raw.to_owned());
    }
    let mut text = String::with_capacity(raw.get().len());
    let quoted = |word: &str| serde_json::to_string(word).expect("a text");
    text.extend([r#"{"kind":"#, &quoted(kind), r#","apiVersion":"#, &quoted(api_version)]);
    text.push_str(r#","metadata":{"#);
    join(&mut text, metadata, &["managedFields"]);
    text.push('}');
    if fields.keys().any(|name| !OWN.contains(&&**name)) {
        text.push(',');
    }
    join(&mut text, fields, &OWN);
    text.push('}');
    Arc::from(RawValue::from_string(text).expect("put together of JSON"))
}

/// The object without `managedFields`.
pub(super) fn without_managed_fields(
    raw: &RawValue,
    fields: &Fields<'_>,
    metadata: &Fields<'_>,
) -> Arc<RawValue> {
    if !metadata.contains_key("managedFields") {
        return Arc::from(raw.to_owned());
    }
    let mut text = String::with_capacity(raw.get().len());
    text.push_str(r#"{"metadata":{"#);
    join(&mut text, metadata, &["managedFields"]);
    text.push('}');
    if fields.keys().any(|name| &**name != "metadata") {
        text.push(',');
    }
    join(&mut text, fields, &["metadata"]);
    text.push('}');
    Arc::from(RawValue::from_string(text).expect("put together of JSON"))
}

/// The label of a node with its group (`NodeGroup` of KubeEdge).
const NODE_GROUP: &str = "apps.kubeedge.io/belonging-to";
const OWN: [&str; 3] = ["kind", "apiVersion", "metadata"];

fn join(text: &mut String, fields: &Fields<'_>, without: &[&str]) {
    let mut first = true;
    for (name, value) in fields.iter().filter(|(name, _)| !without.contains(&&***name)) {
        if !std::mem::take(&mut first) {
            text.push(',');
        }
        let name = serde_json::to_string(name).expect("a text");
        text.push_str(&name);
        text.push(':');
        text.push_str(value.get());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(kind: Kind, text: &str) -> Read {
        let raw = RawValue::from_string(text.to_owned()).expect("JSON");
        Object::read(kind, &raw).expect("an object")
    }

    #[test]
    fn managed_fields_are_removed_and_kind_is_added() {
        let read = read(
            Kind::ConfigMap,
            r#"{"metadata":{"name":"a","namespace":"n","uid":"u","resourceVersion":"7",
                "managedFields":[{"x":1}]},"data":{"k":"<v>"}}"#,
        );
        assert_eq!(
            read.object.json.get(),
            r#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a","namespace":"n","#
                .to_owned()
                + r#""resourceVersion":"7","uid":"u"},"data":{"k":"<v>"}}"#
        );
        assert_eq!((read.key.to_string().as_str(), read.object.version), ("n/configmap/a", 7));
    }

    #[test]
    fn a_status_of_the_nodes_own_is_no_news() {
        let pod = |version: u32, label: &str, phase: &str| {
            let text = format!(
                r#"{{"metadata":{{"name":"a","namespace":"n","uid":"u","labels":{{"l":"{label}"}},
                "resourceVersion":"{version}"}},"spec":{{"nodeName":"e"}},
                "status":{{"phase":"{phase}"}}}}"#
            );
            read(Kind::Pod, &text).object.digest
        };
        assert_eq!(pod(1, "x", "Pending"), pod(2, "x", "Running"));
        assert_ne!(pod(1, "x", "Pending"), pod(2, "y", "Pending"));
        let node = |at: &str, ready: &str| {
            let text = format!(
                r#"{{"metadata":{{"name":"e","uid":"u","resourceVersion":"1"}},"spec":{{}},
                "status":{{"conditions":[{{"type":"Ready","status":"{ready}",
                "lastHeartbeatTime":"{at}"}}]}}}}"#
            );
            read(Kind::Node, &text).object.digest
        };
        assert_eq!(node("1", "True"), node("2", "True"));
        assert_ne!(node("1", "True"), node("1", "Unknown"), "somebody else has said that");
    }

    #[test]
    fn what_a_device_reports_is_no_news_and_how_it_reports_is() {
        let device = |version: u32, spec: &str, status: &str| {
            let text = format!(
                r#"{{"metadata":{{"name":"d","namespace":"n","uid":"u","resourceVersion":
                "{version}"}},"spec":{spec},"status":{status}}}"#
            );
            read(Kind::Device, &text).object.digest
        };
        let plain = device(1, "{}", "{}");
        let bare = r#"{"metadata":{"name":"d","namespace":"n","uid":"u",
            "resourceVersion":"1"},"spec":{}}"#;
        assert_eq!(plain, read(Kind::Device, bare).object.digest);
        assert_eq!(plain, device(2, "{}", r#"{"twins":[{"propertyName":"t"}],"state":"ok"}"#));
        assert_ne!(plain, device(2, r#"{"nodeName":"e"}"#, "{}"));
        assert_ne!(plain, device(2, "{}", r#"{"reportToCloud":true}"#));
        assert_ne!(plain, device(2, "{}", r#"{"reportCycle":7}"#));
    }

    #[test]
    fn edges_before_1_16_2_know_devices_without_namespaces() {
        for (version, is_before) in [
            ("v1.22.6-kubeedge-v1.12.1", true),
            ("v1.27.7-kubeedge-v1.16.1-5+a", true),
            ("v1.27.7-kubeedge-v1.16.2", false),
            ("v1.32.10-kubeedge-v1.23.0", false),
            ("v1.32.10-kubeedge-v1.23.0-12+5d", false),
            ("v1.32.10-kubeedge-v", false),
            ("v1.32.10", false),
            ("", false),
        ] {
            let text = format!(
                r#"{{"metadata":{{"name":"e","uid":"u","resourceVersion":"1"}},
                "status":{{"nodeInfo":{{"kubeletVersion":"{version}"}}}}}}"#
            );
            let node = read(Kind::Node, &text).object.node.expect("a status");
            assert_eq!(node.has_short_device_ids, is_before, "{version}");
        }
    }

    #[test]
    fn what_is_no_object_is_named() {
        for (text, why) in [
            ("[]", "the object: "),
            ("{}", "got no metadata"),
            (r#"{"metadata":{"name":"a","uid":"u"}}"#, "got resourceVersion"),
            (r#"{"metadata":{"name":"a","resourceVersion":"1"}}"#, "got no name or no uid"),
            (r#"{"metadata":{"name":"a","uid":"u","resourceVersion":"1"}}"#, "got a pod without"),
        ] {
            let raw = RawValue::from_string(text.to_owned()).expect("JSON");
            let parsed = Object::read(Kind::Pod, &raw).err().expect("no object").to_string();
            assert!(parsed.starts_with(why), "{parsed}");
        }
    }
}
