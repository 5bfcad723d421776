//! A node as the cloud sees it: a store of the received objects, and requests.

use std::collections::{BTreeMap, BTreeSet};

use edged::model::api::{Call, Kind, Verb};
use edged::model::link::Session;
use edged::model::message::{Header, Message, Route};
use serde_json::value::to_raw_value;
use serde_json::{Value, json};

use super::world::World;

#[derive(Default)]
pub struct Edge {
    pub name: String,
    /// By resource.
    pub store: BTreeMap<String, Value>,
    /// Received messages, in short: operation, resource, `resourceVersion`.
    pub received: Vec<(String, String, String)>,
    /// Answers to requests, by the request's id.
    pub answers: BTreeMap<String, Value>,
    /// The same, whole messages.
    pub replies: BTreeMap<String, Message>,
    /// All received messages.
    pub messages: Vec<Message>,
    /// Its socket accepts nothing: messages stay in the event loop.
    pub stuck: bool,
    /// Objects from before its Node was deleted, without records.
    pub stale: BTreeSet<String>,
    /// It sends no acknowledgements.
    pub deaf: bool,
    last_id: u64,
}

impl Edge {
    pub fn new(name: &str) -> Self {
        Self { name: name.to_owned(), ..Self::default() }
    }

    fn message(&mut self, route: [&str; 4], content: Option<&Value>) -> Message {
        self.last_id += 1;
        let [source, group, operation, resource] = route.map(Box::from);
        let id = format!("{}-{}", self.name, self.last_id).into();
        Message {
            header: Header { id, ..Header::default() },
            route: Route { source, group, operation, resource },
            content: content.map(|content| to_raw_value(content).expect("plain data")),
        }
    }

    pub fn keepalive(&mut self) -> Message {
        self.message(["websocket", "resource", "keepalive", "node"], Some(&json!("ping")))
    }

    /// A request or a report.
    pub fn request(&mut self, operation: &str, resource: &str, content: Option<&Value>) -> Message {
        self.message(["edged", "meta", operation, resource], content)
    }

    /// A request of its MetaServer's.
    pub fn apply(&mut self, resource: &str, content: &Value) -> Message {
        self.message(["metaserver", "dynamiccontroller", "null", resource], Some(content))
    }

    /// The registration at the start of its life.
    pub fn register(&mut self) -> Message {
        let node = json!({"metadata": {"name": self.name, "labels": {
            "node-role.kubernetes.io/edge": "", "kubernetes.io/arch": "arm"}},
            "spec": {}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}});
        let resource = format!("null/node/{}", self.name);
        self.request("insert", &resource, Some(&node))
    }

    /// A report about a device, or the request for the list of devices.
    pub fn twin(&mut self, operation: &str, resource: &str, content: &Value) -> Message {
        self.message(["twin", "resource", operation, resource], Some(content))
    }

    /// The status of a pod, as KubeEdge's HEAD reports it.
    pub fn pod_patch(&mut self, pod: &Value, phase: &str) -> Message {
        let metadata = &pod["metadata"];
        let patch = json!({"metadata": {"uid": metadata["uid"]}, "status": {"phase": phase,
            "conditions": [{"type": "Ready", "status": "True"}]}});
        let (namespace, name) = (metadata["namespace"].as_str(), metadata["name"].as_str());
        let resource = format!("{}/podpatch/{}", namespace.expect("a pod"), name.expect("a pod"));
        self.request("patch", &resource, Some(&json!(patch.to_string())))
    }

    /// Processes a message; returns its acknowledgement, where one is due.
    pub fn take(&mut self, message: &Message) -> Option<Message> {
        let Route { source, group, operation, resource } = message.route.clone();
        let version = message.header.resource_version.to_string();
        self.received.push((operation.to_string(), resource.to_string(), version));
        self.messages.push(message.clone());
        if group.as_ref() != "resource" {
            return None;
        }
        if self.deaf {
            return None;
        }
        let content: Value = message
            .content
            .as_ref()
            .map_or(Value::Null, |content| serde_json::from_str(content.get()).expect("JSON"));
        match &*operation {
            "insert" | "update" => {
                let old = self.store.get(&*resource).map(|old| old["metadata"]["uid"].clone());
                let uid = &content["metadata"]["uid"];
                let replaced = old.is_some_and(|old| old != *uid);
                let stale = self.stale.remove(&*resource);
                assert!(
                    !replaced || stale,
                    "{resource} was replaced without its predecessor's end"
                );
                self.store.insert(resource.to_string(), content);
            }
            "delete" => {
                // Rules of service accounts have no uid.
                let uid = |object: &Value| {
                    object["metadata"]["uid"].as_str().unwrap_or_default().to_owned()
                };
                let old = self.store.get(&*resource);
                if old.is_some_and(|old| uid(old) == uid(&content)) {
                    self.store.remove(&*resource);
                }
            }
            "response" | "applicationResponse" => {
                let is_object = content["metadata"]["uid"].is_string();
                if is_object && !message.header.resource_version.is_empty() {
                    self.store.insert(resource.to_string(), content.clone());
                }
                let parent = message.header.parent_id.to_string();
                self.replies.insert(parent.clone(), message.clone());
                self.answers.insert(parent, content);
            }
            other => panic!("a node got {other} of {resource}"),
        }
        let mut ack = self.message([&source, &group, "response", &resource], Some(&json!("OK")));
        ack.header.parent_id = message.header.id.clone();
        Some(ack)
    }
}

impl World {
    /// With a certificate that was issued at this time.
    pub fn connect_made(&mut self, name: &str, made_s: i64) -> Session {
        let session = self.connect_as(name, |peer| peer.made_s = made_s);
        self.pass(1);
        session
    }

    /// A record may be about to be removed.
    pub fn before_removal(&mut self, call: &Call) {
        let key = (call.kind, call.namespace.to_string(), call.name.to_string());
        if let (Verb::Delete, Some(object)) = (call.verb, self.cluster.objects.get(&key))
            && let Some((node, _)) = call.name.rsplit_once('.')
        {
            let spec = object["spec"].clone();
            let kind = Kind::ALL.into_iter().find(|kind| spec["objectKind"] == kind.name());
            let name = spec["objectName"].as_str().unwrap_or_default();
            self.record_removed(node, kind.expect("a kind"), name);
        }
    }

    /// A record is removed. For a deleted node that is all: it may come back with its objects, as a
    /// new one.
    pub fn record_removed(&mut self, node: &str, kind: Kind, name: &str) {
        let own = (Kind::Node, String::new(), node.to_owned());
        if self.session(node).is_none()
            && !self.cluster.objects.contains_key(&own)
            && let Some(edge) = self.edges.get_mut(node)
        {
            let namespace = if kind == Kind::Node { "null" } else { "n" };
            edge.stale.insert(format!("{namespace}/{}/{name}", kind.name().to_lowercase()));
        }
    }
}
