//! The cloud's end of the link and the store, for the stories about the cloud.

use std::collections::BTreeMap;

use edged::agent::Config;
#[cfg(feature = "devices")]
use edged::agent::event::DeviceAction;
use edged::agent::event::{Action, Event};
use edged::limits::Budget;
use edged::model::link::{Cause, Session, Validity};
use edged::model::message::{Header, Message, Route};
use edged::model::meta::{Change, DiskError, Revision, Row, Saved};
#[cfg(feature = "metaserver")]
use edged::model::metaserver::{ClientId, Reply};
#[cfg(feature = "servicebus")]
use edged::model::service_bus::BusAction;
use edged::model::settings::CloudSettings;
use edged::wire::kubeedge;
use serde_json::value::to_raw_value;
use serde_json::{Value, json};

use crate::cluster::refusal;
use crate::harness::Harness;

/// A harness with a cloud.
pub struct CloudHarness {
    pub harness: Harness,
    /// Sent messages that the story has not read yet.
    pub sent: Vec<Message>,
    /// Requested saves without an answer.
    pub saves: Vec<(Revision, Vec<Change>)>,
    /// Saves are answered at once.
    pub keeps: bool,
    /// Messages leave at once.
    pub takes: bool,
    /// Changes that were saved at once.
    pub written: Vec<Change>,
    pub dialled: Vec<Session>,
    pub hung_up: usize,
    pub pings: usize,
    /// Requests about devices.
    #[cfg(feature = "devices")]
    pub devices: Vec<DeviceAction>,
    /// Answers to clients of MetaServer.
    #[cfg(feature = "metaserver")]
    pub replies: Vec<(ClientId, Reply)>,
    /// Requests about ServiceBus.
    #[cfg(feature = "servicebus")]
    pub service_bus: Vec<BusAction>,
    /// When each of our requests was answered, by message id: wall-clock milliseconds.
    answered: BTreeMap<Box<str>, i64>,
    pub session: Session,
    budget: Budget,
    last_id: u64,
}

impl CloudHarness {
    /// The store is new, the manifest folder empty, the link up.
    pub fn new() -> Self {
        let mut cloud = Self::with(Saved::kept(Vec::new()));
        cloud.connect();
        cloud
    }

    /// The store has this content; there is no link yet.
    pub fn with(saved: Saved) -> Self {
        Self::on("gw", saved)
    }

    /// As [`CloudHarness::with`], on a node of this name.
    pub fn on(node: &str, saved: Saved) -> Self {
        Self::set(node, saved, CloudSettings::default())
    }

    /// As [`CloudHarness::on`], with these settings.
    pub fn set(node: &str, saved: Saved, settings: CloudSettings) -> Self {
        Self::set_up(saved, |config| {
            config.cloud = Some(settings);
            node.clone_into(&mut config.node_name);
        })
    }

    /// As [`CloudHarness::with`], with other settings.
    pub fn set_up(saved: Saved, change: impl FnOnce(&mut Config)) -> Self {
        Self::beside(saved, change, |_| ())
    }

    /// As [`CloudHarness::set_up`], with objects in the runtime.
    pub fn beside(
        saved: Saved,
        change: impl FnOnce(&mut Config),
        found: impl FnOnce(&mut Harness),
    ) -> Self {
        let mut budget = Budget::FULL;
        let mut harness = Harness::with(|config| {
            config.cloud = Some(CloudSettings::default());
            change(config);
            budget = config.machine.budget;
        });
        found(&mut harness);
        harness.deliver(Event::Loaded(Box::new(saved)));
        harness.manifests(&[]);
        let mut cloud = Self {
            harness,
            sent: Vec::new(),
            saves: Vec::new(),
            written: Vec::new(),
            keeps: true,
            takes: true,
            dialled: Vec::new(),
            hung_up: 0,
            pings: 0,
            #[cfg(feature = "devices")]
            devices: Vec::new(),
            #[cfg(feature = "metaserver")]
            replies: Vec::new(),
            #[cfg(feature = "servicebus")]
            service_bus: Vec::new(),
            answered: BTreeMap::new(),
            session: Session(0),
            budget,
            last_id: 0,
        };
        cloud.settle();
        cloud
    }

    /// The runtime performs all requests.
    pub fn work(&mut self) {
        while let Some(next) = self.harness.open_calls().first().cloned() {
            self.harness.does(&next);
            self.settle();
        }
    }

    /// Takes the agent's requests; the store performs them.
    pub fn settle(&mut self) {
        while !self.harness.cloud.is_empty() {
            for action in std::mem::take(&mut self.harness.cloud) {
                match action {
                    Action::Dial { session, .. } => self.dialled.push(session),
                    Action::Send(session, message) => {
                        assert_eq!(session, self.session, "sent over a link that is gone");
                        self.sent.push(kubeedge::encode(&message));
                        if self.takes {
                            self.harness.deliver(Event::Sent(session, 1));
                        }
                    }
                    Action::Ping(_) => self.pings += 1,
                    Action::Hangup(_) => self.hung_up += 1,
                    Action::Save { revision, changes } if self.keeps => {
                        self.written.extend(changes);
                        self.harness.deliver(Event::Saved(revision));
                    }
                    Action::Save { revision, changes } => self.saves.push((revision, changes)),
                    #[cfg(feature = "devices")]
                    Action::Device(action) => self.devices.push(*action),
                    #[cfg(feature = "metaserver")]
                    Action::MetaServer(id, reply) => self.replies.push((id, reply)),
                    #[cfg(feature = "servicebus")]
                    Action::ServiceBus(action) => self.service_bus.push(*action),
                    other => panic!("{other:?} is not about the cloud"),
                }
            }
        }
    }

    /// The dial under way succeeds.
    pub fn connect(&mut self) {
        let up = self.comes_up();
        self.harness.deliver(up);
        self.settle();
    }

    /// As [`CloudHarness::connect`]; before any other message on the link, the cloud deletes these
    /// objects.
    pub fn connect_amid(&mut self, gone: impl IntoIterator<Item = (String, String)>) {
        let up = self.comes_up();
        self.harness.agent.handle(self.harness.now, up);
        self.flood(gone);
    }

    fn comes_up(&mut self) -> Event {
        self.session = self.dialled.pop().expect("a dial");
        let validity = Validity { not_before_s: 1_799_000_000, not_after_s: 1_830_000_000 };
        Event::LinkUp(self.session, validity)
    }

    /// The link is lost.
    pub fn disconnect(&mut self) {
        let cause = Cause::Link("connection reset".to_owned());
        self.harness.deliver(Event::LinkDown(self.session, cause));
        self.settle();
    }

    pub fn pass(&mut self, ms: u64) {
        let end = self.harness.now.boot.plus_ms(ms);
        while self.harness.now.boot < end {
            let left = end.since_ms(self.harness.now.boot);
            self.harness.pass(left.min(1_000));
            self.settle();
        }
    }

    /// The link delivers a sign of life.
    pub fn sign_of_life(&mut self) {
        self.harness.deliver(Event::LinkActive(self.session));
        self.settle();
    }

    /// This many of the sent messages have left.
    pub fn leave(&mut self, count: usize) {
        self.harness.deliver(Event::Sent(self.session, count));
        self.settle();
    }

    /// The cloud pushes this; returns the message id.
    pub fn push(&mut self, operation: &str, resource: &str, content: &Value) -> String {
        let header = self.header(content);
        let id = header.id.to_string();
        self.deliver(header, ["edgecontroller", "resource", operation, resource], content);
        id
    }

    /// The cloud deletes these objects, by resource and uid, faster than it gets answers.
    pub fn flood(&mut self, gone: impl IntoIterator<Item = (String, String)>) {
        for (resource, uid) in gone {
            let content = json!({"metadata": {"uid": uid}});
            let header = self.header(&content);
            let route = ["edgecontroller", "resource", "delete", &resource].map(Box::from);
            let event = self.event(&message(header, route, &content));
            self.harness.agent.handle(self.harness.now, event);
        }
        self.sign_of_life();
    }

    fn header(&mut self, content: &Value) -> Header {
        self.last_id += 1;
        let version = content.pointer("/metadata/resourceVersion").and_then(Value::as_str);
        Header {
            id: format!("cloud-{}", self.last_id).into(),
            timestamp_ms: 1_800_000_000_000,
            resource_version: version.unwrap_or_default().into(),
            ..Header::default()
        }
    }

    /// The cloud sends this to a module, not about an object.
    pub fn push_to(&mut self, route: [&str; 4], content: &Value) -> String {
        let header = self.header(content);
        let id = header.id.to_string();
        self.deliver(header, route, content);
        id
    }

    /// The answers to the message with this id.
    pub fn answers(&mut self, id: &str) -> Vec<Message> {
        let sent = std::mem::take(&mut self.sent);
        let (answers, rest): (Vec<_>, Vec<_>) =
            sent.into_iter().partition(|message| *message.header.parent_id == *id);
        self.sent = rest;
        answers
    }

    /// The cloud answers this.
    pub fn answer(&mut self, to: &Message, content: &Value) -> String {
        self.last_id += 1;
        let id = format!("cloud-{}", self.last_id);
        let header = Header {
            id: id.as_str().into(),
            parent_id: to.header.id.clone(),
            timestamp_ms: 1_800_000_000_000,
            ..Header::default()
        };
        let resource = to.route.resource.clone();
        self.deliver(header, ["edgecontroller", "resource", "response", &resource], content);
        id
    }

    /// The cloud sends exactly this message.
    pub fn replay(&mut self, message: &Message) {
        self.harness.deliver(Event::LinkActive(self.session));
        let parent = message.header.parent_id.clone();
        let at = self.harness.now.wall.map(|wall| wall.0);
        self.answered.extend(at.map(|at| (parent, at)));
        let event = self.event(message);
        self.harness.deliver(event);
        self.settle();
    }

    /// The wall clock, milliseconds: messages carry it as the time of sending.
    pub fn clock_ms(&self) -> i64 {
        self.harness.now.wall.expect("a clock").0
    }

    /// How long after the answer to one message the other was sent, milliseconds.
    pub fn wait_ms(&self, answered: &Message, next: &Message) -> u64 {
        let at = self.answered[&answered.header.id];
        (next.header.timestamp_ms - at).try_into().expect("the answer came first")
    }

    /// Time passes until something is said about a resource of this kind: the first of it. The link
    /// is alive, and nothing about leases is answered but that it is not to be.
    #[track_caller]
    pub fn next(&mut self, kind: &str, within_ms: u64) -> Message {
        let end = self.harness.now.boot.plus_ms(within_ms);
        loop {
            let mut taken = self.take_sent(kind);
            if !taken.is_empty() {
                return taken.remove(0);
            }
            assert!(self.harness.now.boot < end, "no message about a {kind}");
            let left_ms = end.since_ms(self.harness.now.boot);
            self.pass(left_ms.min(1_000));
            self.sign_of_life();
            let leases = if kind == "lease" { Vec::new() } else { self.take_sent("lease") };
            for record_call in leases {
                self.answer(&record_call, &refusal("InternalError", 500));
            }
        }
    }

    /// The message as the event loop passes it on.
    pub fn event(&self, message: &Message) -> Event {
        let message = kubeedge::decode(message, &self.budget);
        Event::Cloud(self.session, Box::new(message))
    }

    fn deliver(&mut self, header: Header, route: [&str; 4], content: &Value) {
        self.replay(&message(header, route.map(Box::from), content));
    }

    /// The ids of the messages that were acknowledged.
    pub fn acked(&mut self) -> Vec<String> {
        let sent = std::mem::take(&mut self.sent);
        let (acks, rest): (Vec<_>, Vec<_>) =
            sent.into_iter().partition(|message| !message.header.parent_id.is_empty());
        self.sent = rest;
        let reported = |message: Message| {
            assert_eq!(content(&message), json!("OK"), "{:?}", message.route);
            assert_eq!(&*message.route.operation, "response");
            message.header.parent_id.into()
        };
        acks.into_iter().map(reported).collect()
    }

    /// Takes our own messages about resources of this kind.
    pub fn take_sent(&mut self, kind: &str) -> Vec<Message> {
        let sent = std::mem::take(&mut self.sent);
        let middle = format!("/{kind}/");
        let (taken, rest): (Vec<_>, Vec<_>) = sent.into_iter().partition(|message| {
            message.header.parent_id.is_empty() && message.route.resource.contains(&middle)
        });
        self.sent = rest;
        taken
    }

    /// The save fails.
    pub fn fail_save(&mut self) {
        let (revision, _) = self.saves.pop().expect("a save");
        let why = DiskError::Full("database or disk is full".to_owned());
        self.harness.deliver(Event::SaveFailed(revision, why));
        self.settle();
    }

    /// The save succeeds.
    pub fn save(&mut self) -> Vec<Change> {
        let (revision, changes) = self.saves.pop().expect("a save");
        self.harness.deliver(Event::Saved(revision));
        self.settle();
        changes
    }
}

fn message(header: Header, route: [Box<str>; 4], content: &Value) -> Message {
    let [source, group, operation, resource] = route;
    let content = Some(to_raw_value(content).expect("JSON"));
    Message { header, route: Route { source, group, operation, resource }, content }
}

/// The content of a message.
pub fn content(message: &Message) -> Value {
    let text = message.content.as_ref().map_or("null", |content| content.get());
    serde_json::from_str(text).expect("JSON")
}

/// The patch in a message: JSON in a string.
pub fn patch(message: &Message) -> Value {
    let content = content(message);
    serde_json::from_str(content.as_str().expect("a text")).expect("JSON")
}

/// A pod of the cloud for this node, with one container `m`.
pub fn pod(name: &str, uid: &str, version: u64) -> Value {
    json!({
        "kind": "Pod", "apiVersion": "v1",
        "metadata": {
            "name": name, "namespace": "ns", "uid": uid,
            "resourceVersion": version.to_string(),
            "managedFields": [{"manager": "x"}],
        },
        "spec": {"nodeName": "gw", "containers": [{"name": "m", "image": "i:1"}]},
        "status": {"phase": "Pending", "qosClass": "BestEffort"},
    })
}

/// A row of the store.
pub fn row(key: &str, value: &Value) -> Row {
    let kind = key.split('/').nth(1).expect("a kind");
    Row { key: key.into(), kind: kind.into(), value: value.to_string().into() }
}
