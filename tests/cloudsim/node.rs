//! Nodes as the cloud sees them: a store of the received objects, requests, and false reports.

use std::collections::{BTreeMap, BTreeSet};

use edged::controller::event::{Event, Peer};
use edged::limits;
use edged::model::api::Kind;
use edged::model::link::Session;
use edged::model::message::{Header, Message, Route};
use edged::wire::kubeedge;
use serde_json::value::to_raw_value;
use serde_json::{Value, json};

use crate::devices::Devices;
use crate::dynamic::Listening;
use crate::jobs::Work;
use crate::rule::judge;
use crate::trace::trace;
use crate::world::{Due, Link, MORTAL, World};

/// Between two signs of life.
const SIGN_MS: u64 = 10_000;
/// An unanswered request is repeated after this time.
const ASK_AGAIN_MS: u64 = 60_000;

/// The behaviour of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Behaviour {
    /// As an agent.
    Honest,
    /// It acknowledges what it did not get and stores nothing.
    Lies,
    /// It requests objects of other nodes.
    Attacks,
}

pub struct Node {
    pub name: String,
    pub behaviour: Behaviour,
    /// By resource.
    pub store: BTreeMap<String, Value>,
    /// Objects of an earlier life of the controller, which has no records of them.
    pub stale: BTreeSet<String>,
    /// Its session, as far as it knows.
    pub session: Option<Session>,
    /// Unanswered requests: on which session and when they were sent, and about what.
    pub pending: BTreeMap<String, (Session, u64, String)>,
    /// What it has of devices.
    pub devices: Devices,
    /// What it watches.
    pub listening: Listening,
    /// Its jobs.
    pub work: Work,
    /// When its certificate was issued.
    made_s: i64,
    /// It has begun a new life and has not registered since; when it last tried.
    is_new: bool,
    tried_at: Option<u64>,
    signed_at: u64,
    /// How often the cloud reported a pod as missing, by resource and uid.
    missing: BTreeMap<(String, String), u32>,
    /// The last acknowledged message.
    acked: Box<str>,
    last_id: u64,
}

impl Node {
    /// A node that was never connected.
    pub fn new(name: String, behaviour: Behaviour) -> Self {
        Self {
            name,
            behaviour,
            store: BTreeMap::new(),
            stale: BTreeSet::new(),
            session: None,
            pending: BTreeMap::new(),
            devices: Devices::default(),
            listening: Listening::default(),
            work: Work::default(),
            made_s: 0,
            is_new: true,
            tried_at: None,
            signed_at: 0,
            missing: BTreeMap::new(),
            acked: Box::default(),
            last_id: 0,
        }
    }

    /// It begins a new life.
    pub fn restart(&mut self) {
        self.is_new = true;
        self.tried_at = None;
        self.pending.clear();
        self.missing.clear();
    }

    pub(crate) fn message(&mut self, route: [&str; 4], content: Option<&Value>) -> Message {
        self.last_id += 1;
        let [source, group, operation, resource] = route.map(Box::from);
        let id = format!("{}-{}", self.name, self.last_id).into();
        Message {
            header: Header { id, ..Header::default() },
            route: Route { source, group, operation, resource },
            content: content.map(|content| to_raw_value(content).expect("plain data")),
        }
    }

    /// A request or a report.
    pub fn request(&mut self, operation: &str, resource: &str, content: Option<&Value>) -> Message {
        self.message(["edged", "meta", operation, resource], content)
    }

    /// Every other one is edged, and the others are EdgeCores.
    fn version(&self) -> &'static str {
        match self.name.bytes().last().unwrap_or_default() % 2 {
            0 => "v1.32.10-kubeedge-v1.23.1+edged.0.1.0",
            _ => "v1.32.10-kubeedge-v1.22.0",
        }
    }

    /// A message about devices.
    pub fn twin(&mut self, operation: &str, resource: &str, content: &Value) -> Message {
        self.message(["twin", "resource", operation, resource], Some(content))
    }

    fn register(&mut self) -> Message {
        // Of a node that registers more often than that, the oldest answers are dropped.
        let registrations = || {
            let all = self.pending.iter().filter(|(_, (.., what))| what == "register");
            all.filter(|(_, (session, ..))| Some(*session) == self.session)
        };
        if registrations().count() >= limits::EDGE_CALLS_MAX {
            let oldest =
                registrations().min_by_key(|(_, (_, at, _))| *at).map(|(id, _)| id.clone());
            self.pending.remove(&oldest.expect("there are some"));
        }
        let node = json!({"metadata": {"name": self.name, "labels": {
            "node-role.kubernetes.io/edge": "", "kubernetes.io/arch": "arm"}},
            "spec": {}, "status": {"conditions": [{"type": "Ready", "status": "True"}],
            "nodeInfo": {"kubeletVersion": self.version()}}});
        let resource = format!("null/node/{}", self.name);
        self.request("insert", &resource, Some(&node))
    }

    /// The status of a pod.
    fn report(&mut self, pod: &Value) -> Message {
        let metadata = &pod["metadata"];
        let patch = json!({"metadata": {"uid": metadata["uid"]}, "status": {"phase": "Running",
            "conditions": [{"type": "Ready", "status": "True"}]}});
        let name = metadata["name"].as_str().expect("a pod");
        self.request("patch", &format!("n/podpatch/{name}"), Some(&json!(patch.to_string())))
    }

    /// Processes a message; returns its acknowledgement, where one is due.
    fn take(&mut self, message: &Message) -> Option<Message> {
        let Route { source, group, resource, .. } = message.route.clone();
        if group.as_ref() == "taskmanager" {
            self.work.take(message);
            return None;
        }
        if group.as_ref() != "resource" {
            self.devices.take(message);
            return None;
        }
        let content: Value = message
            .content
            .as_ref()
            .map_or(Value::Null, |content| serde_json::from_str(content.get()).expect("JSON"));
        if &*source == "dynamiccontroller" {
            if !self.listening.take(message, &content) {
                return None;
            }
        } else {
            self.take_object(message, &content);
        }
        let mut ack = self.message([&source, &group, "response", &resource], Some(&json!("OK")));
        ack.header.parent_id = message.header.id.clone();
        Some(ack)
    }

    fn take_object(&mut self, message: &Message, content: &Value) {
        let Route { operation, resource, .. } = &message.route;
        match &**operation {
            "insert" | "update" => {
                let old = self.store.get(&**resource).map(|old| old["metadata"]["uid"].clone());
                let replaced = old.is_some_and(|old| old != content["metadata"]["uid"]);
                let stale = self.stale.remove(&**resource);
                judge!(
                    !replaced || stale || self.behaviour != Behaviour::Honest,
                    "[predecessor first] {resource} of {} was replaced without a deletion",
                    self.name
                );
                self.store.insert(resource.to_string(), content.clone());
            }
            "delete" => {
                // Rules of service accounts have no uid; nor has what is removed whichever it is.
                let uid = |object: &Value| {
                    object["metadata"]["uid"].as_str().unwrap_or_default().to_owned()
                };
                let old = self.store.get(&**resource);
                if old.is_some_and(|old| uid(content).is_empty() || uid(old) == uid(content)) {
                    self.store.remove(&**resource);
                    self.devices.deleted(resource);
                }
            }
            "response" => self.answered(message, content),
            other => panic!("a node got {other} of {resource}"),
        }
    }

    fn answered(&mut self, message: &Message, content: &Value) {
        let resource = message.route.resource.to_string();
        let pending = self.pending.remove(&*message.header.parent_id);
        let reason = &content["Err"]["ErrStatus"]["reason"];
        if content["metadata"]["uid"].is_string() && !message.header.resource_version.is_empty() {
            self.store.insert(resource.clone(), content.clone());
        }
        if pending.as_ref().is_some_and(|(.., what)| what == "register") {
            self.is_new &= !(content["Err"].is_null() || reason == "AlreadyExists");
            return;
        }
        let Some((.., uid)) = pending.filter(|_| resource.contains("/podpatch/")) else { return };
        // An agent believes that a pod is missing after the second report.
        let key = resource.replacen("/podpatch/", "/pod/", 1);
        if reason == "NotFound" {
            let count = self.missing.entry((key.clone(), uid.clone())).or_default();
            *count += 1;
            if *count >= 2 && self.store.get(&key).is_some_and(|it| it["metadata"]["uid"] == *uid) {
                self.store.remove(&key);
            }
        }
    }
}

impl World {
    /// A session ends, and its node notices.
    pub fn unlink(&mut self, session: Session) {
        if let Some(link) = self.links.remove(&session)
            && let Some(node) = self.nodes.get_mut(&link.node)
            && node.session == Some(session)
        {
            node.session = None;
        }
    }

    /// A session is refused; a node with a revoked certificate joins again.
    pub fn refused(&mut self, session: Session, status: u16) {
        let Some(link) = self.links.remove(&session) else { return };
        let (now_s, node) = (self.wall_s(), self.nodes.get_mut(&link.node).expect("a node"));
        node.session = None;
        if status == 403 && node.behaviour == Behaviour::Honest {
            node.made_s = now_s + 1;
        }
    }

    pub(crate) fn node_takes(&mut self, name: &str, message: &Message) -> Option<Message> {
        trace!(
            self.now,
            "  {name} gets {} {} {}",
            message.route.operation,
            message.route.resource,
            message.header.resource_version
        );
        let node = self.nodes.get_mut(name).expect("a node");
        let mut ack = node.take(message)?;
        let before = std::mem::replace(&mut node.acked, ack.header.parent_id.clone());
        if node.behaviour == Behaviour::Lies {
            match self.chance.below(5) {
                0 => return None,
                // Of another message, or of none.
                1 => ack.header.parent_id = before,
                2 => ack.header.parent_id = "nothing".into(),
                3 => drop(node.store.remove(&*message.route.resource)),
                _ => {}
            }
        }
        Some(ack)
    }

    /// The regular work of a node, about once a second.
    pub(crate) fn node_turns(&mut self, name: &str) {
        let most_ms = if self.is_over { 16_000 } else { 2_000 };
        let ms = self.chance.between(200, most_ms);
        self.at(ms, Due::Node(name.to_owned()));
        let gone = name == MORTAL && self.now >= self.mortal_until;
        let honest = self.nodes[name].behaviour == Behaviour::Honest;
        if gone || (self.is_over && !honest) {
            if let Some(session) = self.nodes[name].session {
                self.cut(session);
            }
            return;
        }
        if self.nodes[name].session.is_none() && self.chance.percent(70) {
            self.dial(name);
        }
        let Some(session) = self.nodes[name].session else { return };
        if !self.links.get(&session).is_some_and(|link| link.is_on) {
            return;
        }
        match self.nodes[name].behaviour {
            Behaviour::Honest => self.live_normally(name, session),
            Behaviour::Lies => {
                self.live_normally(name, session);
                self.report_falsely(name);
                self.report_foreign_device(name);
                self.report_jobs_falsely(name);
            }
            Behaviour::Attacks => {
                self.live_normally(name, session);
                self.attack(name, session);
                self.attack_by_metaserver(name);
                self.report_jobs_falsely(name);
            }
        }
    }

    fn dial(&mut self, name: &str) {
        // Each node stays with one replica. If a node moves while its former replica still has
        // something to write, a record may be left behind for good: once the controller can handle
        // that, any replica is to be drawn here.
        let replica = name.bytes().map(usize::from).sum::<usize>() % self.replicas.len();
        if self.replicas[replica].core.is_none() {
            return;
        }
        self.last_session += 1;
        let session = Session(self.last_session);
        let now = self.now;
        let node = self.nodes.get_mut(name).expect("a node");
        node.session = Some(session);
        node.pending.clear();
        node.tried_at = None;
        node.signed_at = 0;
        let made_s = node.made_s;
        let peer = Peer {
            common_name: format!("system:node:{name}"),
            organization: "system:nodes".to_owned(),
            node_id: name.to_owned(),
            usage: "msg".to_owned(),
            made_s,
            ..Peer::default()
        };
        let node = name.to_owned();
        let link = Link {
            node,
            replica,
            is_on: false,
            made_s,
            half_open: false,
            alive_at: now,
            up_at: now,
            down_at: now,
        };
        self.links.insert(session, link);
        trace!(now, "{name} dials r{replica}: {session:?}");
        self.deliver(replica, Event::EdgeUp(session, Box::new(peer)));
    }

    pub(crate) fn accepted(&mut self, at: usize, session: Session) {
        let now = self.now;
        let link = self.links.get_mut(&session).filter(|link| !link.is_on);
        judge!(link.is_some(), "[one answer] r{at} accepts {session:?}, which was not requested");
        let Some(link) = link else { return };
        link.is_on = true;
        link.alive_at = now;
    }

    pub(crate) fn send_message(&mut self, name: &str, message: Message) {
        let Some(session) = self.nodes[name].session else { return };
        let Some(replica) = self.links.get(&session).map(|link| link.replica) else { return };
        self.send_event(
            replica,
            Event::EdgeMessage(session, Box::new(kubeedge::decode_edge(message))),
        );
    }

    /// Sends a request, and waits for the answer.
    fn question(&mut self, name: &str, message: Message, what: &str) {
        let now = self.now;
        let node = self.nodes.get_mut(name).expect("a node");
        if let Some(session) = node.session {
            let id = message.header.id.to_string();
            node.pending.insert(id, (session, now, what.to_owned()));
        }
        self.send_message(name, message);
    }

    /// It registers, reports its pods and deletes those that end.
    fn live_normally(&mut self, name: &str, session: Session) {
        let now = self.now;
        let own = (Kind::Node, String::new(), name.to_owned());
        let is_there = self.cluster.objects.contains_key(&own);
        let node = self.nodes.get_mut(name).expect("a node");
        if now >= node.signed_at + SIGN_MS || node.signed_at == 0 {
            node.signed_at = now;
            let sign =
                node.message(["websocket", "resource", "keepalive", "node"], Some(&json!("ping")));
            self.send_message(name, sign);
        }
        let node = self.nodes.get_mut(name).expect("a node");
        let due = node.tried_at.is_none_or(|at| now >= at + 10_000);
        if (node.is_new || !is_there) && due {
            node.tried_at = Some(now);
            let message = node.register();
            self.check.registers(name);
            self.question(name, message, "register");
        }
        let pods: Vec<Value> = {
            let all = self.nodes[name].store.iter();
            all.filter(|(key, _)| key.contains("/pod/")).map(|(_, pod)| pod.clone()).collect()
        };
        for pod in pods {
            if self.chance.percent(75) {
                continue;
            }
            let node = self.nodes.get_mut(name).expect("a node");
            let uid = pod["metadata"]["uid"].as_str().expect("a uid").to_owned();
            let waits = node
                .pending
                .values()
                .any(|(of, at, what)| *of == session && *what == uid && now < at + ASK_AGAIN_MS);
            if waits {
                continue;
            }
            let message = if pod["metadata"]["deletionTimestamp"].is_string() {
                let options = json!({"preconditions": {"uid": uid}});
                let name = pod["metadata"]["name"].as_str().expect("a name");
                node.request("delete", &format!("n/pod/{name}"), Some(&options))
            } else {
                node.report(&pod)
            };
            self.question(name, message, &uid);
        }
        self.serve_devices(name, session);
        self.listen(name, session);
        self.work(name);
        if self.chance.percent(10) {
            let maps = self.check.maps_of(name);
            if !maps.is_empty() {
                let map = self.chance.pick(&maps).clone();
                let node = self.nodes.get_mut(name).expect("a node");
                let message = node.request("query", &format!("n/configmap/{map}"), None);
                self.question(name, message, "query");
            }
        }
    }

    /// It sends false reports: of pods that it never had, of others' and of its own.
    fn report_falsely(&mut self, name: &str) {
        let pods: Vec<Value> = self
            .cluster
            .objects
            .iter()
            .filter(|((kind, ..), _)| *kind == Kind::Pod)
            .map(|(_, pod)| pod.clone())
            .collect();
        if pods.is_empty() || self.chance.percent(60) {
            return;
        }
        self.tally.add("lies");
        let pod = self.chance.pick(&pods).clone();
        let pod_name = pod["metadata"]["name"].as_str().expect("a name");
        let uid = match self.chance.below(3) {
            0 => json!("uid-0"),
            1 => Value::Null,
            _ => pod["metadata"]["uid"].clone(),
        };
        let patch = json!({"metadata": {"uid": uid, "labels": {"by": format!("hacked by {name}")}},
            "spec": {"nodeName": name},
            "status": {"phase": "Failed", "message": format!("hacked by {name}")}});
        let node = self.nodes.get_mut(name).expect("a node");
        let message = node.request(
            "patch",
            &format!("n/podpatch/{pod_name}"),
            Some(&json!(patch.to_string())),
        );
        self.send_message(name, message);
    }

    /// It requests and changes objects of other nodes, and sends unreadable messages.
    fn attack(&mut self, name: &str, session: Session) {
        let other = format!("e{}", self.chance.below(self.size.nodes as u64));
        let mark = format!("hacked by {name}");
        let uids: Vec<Value> =
            self.cluster.objects.values().map(|it| it["metadata"]["uid"].clone()).collect();
        let uid = if uids.is_empty() { Value::Null } else { self.chance.pick(&uids).clone() };
        let pod = self.chance.below(self.size.pods);
        let map = self.chance.below(3);
        let object = json!({"metadata": {"uid": uid, "name": other, "labels": {"by": mark}},
            "spec": {"nodeName": other}, "status": {"phase": "Failed", "message": mark}});
        let text = json!(object.to_string());
        let delete = json!({"preconditions": {"uid": uid}, "message": mark});
        let requests: [(&str, String, Option<&Value>); 11] = [
            ("insert", format!("null/node/{other}"), Some(&object)),
            ("patch", format!("null/nodepatch/{other}"), Some(&text)),
            ("update", format!("null/node/{other}"), Some(&object)),
            ("query", format!("null/node/{other}"), None),
            ("update", format!("kube-node-lease/lease/{other}"), Some(&object)),
            ("patch", format!("n/podpatch/p{pod}"), Some(&text)),
            ("delete", format!("n/pod/p{pod}"), Some(&delete)),
            ("query", format!("n/configmap/m{map}"), None),
            ("query", format!("n/secret/s-{other}"), None),
            ("insert", format!("n/pod/p{pod}"), Some(&object)),
            ("query", "x".repeat(300), None),
        ];
        for _ in 0..self.chance.below(4) {
            let (operation, resource, content) = self.chance.pick(&requests).clone();
            let node = self.nodes.get_mut(name).expect("a node");
            let message = node.request(operation, &resource, content);
            self.tally.add("attacks");
            self.send_message(name, message);
        }
        if self.chance.percent(5) {
            let replica = self.links[&session].replica;
            for _ in 0..self.chance.below(150) {
                self.tally.add("unreadable messages");
                self.deliver(
                    replica,
                    Event::EdgeBadMessage(session, "got 9 bytes, expected JSON".to_owned()),
                );
            }
        }
    }
}
