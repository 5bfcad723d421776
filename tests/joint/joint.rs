//! A node and its cloud, joined by a link.

use std::collections::{BTreeMap, BTreeSet};

use edged::agent::Config;
use edged::agent::event::{DeviceAction, Event};
use edged::controller::dynamic::access::{Access, READS, RequestUser};
use edged::controller::{self, SyncStore};
use edged::model::api::Kind;
use edged::model::cri::{Code, ContainerState};
use edged::model::link::Cause;
use edged::model::meta::{Change, Row, Saved, StoreOrigin};
use edged::model::metaserver::{MetaServerSettings, RowChange, StoredItem};
use edged::model::rule_row::RuleRow;
use edged::model::settings::{DeviceSettings, ServiceBusSettings};
use serde_json::{Value, json};

use crate::cloud_harness::CloudHarness;
use crate::controller::cluster::{Cluster, Name};
use crate::controller::world::{self, Faults, World};
use crate::device_rows::Rows as DeviceRows;

/// The name of the node.
pub(crate) const NODE: &str = "gw";

pub(crate) struct Joint {
    pub(crate) world: World,
    pub(crate) node: CloudHarness,
    /// The rows of the agent's store.
    store: BTreeMap<Box<str>, Row>,
    /// The rows of MetaServer.
    items: BTreeMap<Box<str>, StoredItem>,
    /// The tables of devices.
    devices: DeviceRows,
    /// The tables of rules: topics, and URLs of the cloud.
    pub(crate) topics: BTreeSet<Box<str>>,
    pub(crate) urls: BTreeSet<Box<str>>,
    /// The topics that the agent subscribes to.
    pub(crate) subscribed: BTreeSet<Box<str>>,
    /// The link is up, as the node knows.
    is_linked: bool,
    /// The node's dials arrive.
    pub(crate) is_reachable: bool,
    /// Up to when the cloud has lived, by the node's clock, milliseconds.
    lived_ms: u64,
    keepalive_ms: u64,
    /// No pull comes to an end.
    pub(crate) holds_pulls: bool,
    /// The images that were pulled. Those whose name begins with `bad` cannot be.
    pub(crate) pulled: BTreeSet<String>,
}

fn set(config: &mut Config) {
    NODE.clone_into(&mut config.node_name);
    config.devices = Some(DeviceSettings::default());
    config.metaserver = Some(MetaServerSettings::default());
    config.node_jobs = true;
    config.service_bus = Some(ServiceBusSettings::default());
}

/// With a dynamic controller for MetaServers.
fn cloud_config() -> controller::Config {
    let access = Access::parse(READS, "", RequestUser::Controller).expect("resources");
    controller::Config { access: Some(access), ..world::config() }
}

fn keep_rule(rules: &mut BTreeSet<Box<str>>, RuleRow { text, exists }: RuleRow) {
    if exists {
        rules.insert(text);
    } else {
        rules.remove(&text);
    }
}

pub(crate) fn name(kind: Kind, name: &str) -> Name {
    (kind, "n".to_owned(), name.to_owned())
}

/// A pod of the node; with the content of this ConfigMap, if one is named.
pub(crate) fn pod(name: &str, map: Option<&str>) -> Value {
    let mut pod = json!({"kind": "Pod", "apiVersion": "v1",
        "metadata": {"name": name, "namespace": "n"},
        "spec": {"nodeName": NODE, "containers": [{"name": "c", "image": "i:1"}]},
        "status": {"phase": "Pending"}});
    if let Some(map) = map {
        pod["spec"]["volumes"] = json!([{"name": "v", "configMap": {"name": map}}]);
        pod["spec"]["containers"][0]["volumeMounts"] = json!([{"name": "v", "mountPath": "/v"}]);
    }
    pod
}

pub(crate) fn config_map(name: &str, value: &str) -> Value {
    json!({"kind": "ConfigMap", "apiVersion": "v1",
        "metadata": {"name": name, "namespace": "n"}, "data": {"k": value}})
}

impl Joint {
    /// The node has registered, and nothing is there yet.
    pub(crate) fn new(sync: SyncStore, seed: u64) -> Self {
        let mut joint = Self {
            world: World::with(cloud_config, sync, seed, Cluster::default(), Faults::default()),
            node: CloudHarness::set_up(Saved::kept(Vec::new()), set),
            store: BTreeMap::new(),
            items: BTreeMap::new(),
            devices: DeviceRows::default(),
            topics: BTreeSet::new(),
            urls: BTreeSet::new(),
            subscribed: BTreeSet::new(),
            is_linked: false,
            is_reachable: true,
            lived_ms: 0,
            keepalive_ms: 0,
            holds_pulls: false,
            pulled: BTreeSet::new(),
        };
        joint.lived_ms = joint.node_ms();
        joint.pass(5_000);
        joint
    }

    fn node_ms(&self) -> u64 {
        self.node.harness.now.boot.0
    }

    /// Time passes for both.
    pub(crate) fn pass(&mut self, ms: u64) {
        let end = self.node_ms() + ms;
        self.exchange();
        while self.node_ms() < end {
            let step = (end - self.node_ms()).min(1_000);
            self.node.pass(step);
            self.exchange();
        }
    }

    /// Messages go to and fro until nobody has anything to say.
    fn exchange(&mut self) {
        for _ in 0..1_000 {
            self.work();
            self.keep_changes();
            self.subscribe();
            self.world.pass(self.node_ms().saturating_sub(self.lived_ms));
            self.lived_ms = self.lived_ms.max(self.node_ms());
            self.link();
            if !self.deliver() {
                return;
            }
        }
        panic!("the node and its cloud do not stop talking");
    }

    /// The runtime performs what it was asked for.
    fn work(&mut self) {
        loop {
            let open = self.node.harness.open_calls();
            let is_held = |call: &&String| self.holds_pulls && call.starts_with("pull_image");
            let Some(next) = open.iter().find(|call| !is_held(call)) else { return };
            match next.strip_prefix("pull_image ") {
                Some(image) if image.starts_with("bad") => {
                    self.node.harness.refuses(next, Code::NotFound, "no such image");
                }
                image => {
                    self.pulled.extend(image.map(str::to_owned));
                    self.node.harness.does(next);
                }
            }
            self.node.settle();
        }
    }

    fn keep_changes(&mut self) {
        for change in std::mem::take(&mut self.node.written) {
            match change {
                Change::Put(row) => drop(self.store.insert(row.key.clone(), row)),
                Change::Delete { key } => drop(self.store.remove(&key)),
                Change::Item(RowChange::Put(gvr, item)) => {
                    let key = gvr.key(&item.namespace, &item.name).into();
                    self.items.insert(key, StoredItem { item, has_row: true });
                }
                Change::Item(RowChange::Delete(key)) => drop(self.items.remove(&key)),
                Change::Device(change) => self.devices.write(change),
                Change::TargetUrl(row) => keep_rule(&mut self.urls, row),
                Change::SubTopic(row) => keep_rule(&mut self.topics, row),
            }
        }
    }

    fn subscribe(&mut self) {
        for action in std::mem::take(&mut self.node.devices) {
            match action {
                DeviceAction::Subscribe(topic) => drop(self.subscribed.insert(topic)),
                DeviceAction::Unsubscribe(topic) => drop(self.subscribed.remove(&topic)),
                _ => {}
            }
        }
    }

    /// The link comes up where the node dials, and goes down where the cloud has closed it.
    fn link(&mut self) {
        if self.is_linked && self.world.session(NODE).is_none() {
            self.is_linked = false;
            self.node.disconnect();
        }
        if !self.node.dialled.is_empty() && self.is_reachable {
            self.world.connect(NODE);
            self.world.edge(NODE).deaf = true;
            self.world.edge(NODE).messages.clear();
            self.world.pass(100);
            if self.world.session(NODE).is_some() {
                self.is_linked = true;
                self.node.connect();
            }
        } else if let Some(session) = self.node.dialled.pop() {
            let cause = Cause::Link("no route to host".to_owned());
            self.node.harness.deliver(Event::LinkDown(session, cause));
            self.node.settle();
        }
    }

    /// Returns whether somebody has got something.
    fn deliver(&mut self) -> bool {
        let sent = std::mem::take(&mut self.node.sent);
        if !self.is_linked {
            return false;
        }
        let received = std::mem::take(&mut self.world.edge(NODE).messages);
        let is_news = !sent.is_empty() || !received.is_empty();
        for message in sent {
            if self.world.session(NODE).is_some() {
                self.world.send(NODE, message);
            }
        }
        for message in received {
            self.node.replay(&message);
        }
        if self.node_ms() >= self.keepalive_ms + 10_000 && self.world.session(NODE).is_some() {
            self.keepalive_ms = self.node_ms();
            let keepalive = self.world.edge(NODE).keepalive();
            self.world.send(NODE, keepalive);
            self.node.sign_of_life();
        }
        is_news
    }

    // ---- what goes wrong ----

    /// The link breaks; both notice.
    pub(crate) fn cut(&mut self) {
        if let Some(session) = self.world.session(NODE) {
            self.world.disconnect(session);
        }
        if self.is_linked {
            self.is_linked = false;
            self.node.disconnect();
        }
    }

    /// The agent is told to end, as before an update, and started again. The pods run on.
    pub(crate) fn stop_agent(&mut self) {
        self.node.harness.deliver(Event::Stop);
        self.node.settle();
        assert!(self.node.harness.exited, "the store is quick");
        self.restart_agent();
    }

    /// The agent is killed, and started again. The pods run on.
    pub(crate) fn restart_agent(&mut self) {
        self.keep_changes();
        self.start_agent(StoreOrigin::Kept);
    }

    /// The agent is started again, with an empty store: the file was damaged. The pods run on.
    pub(crate) fn lose_store(&mut self) {
        self.node.written.clear();
        self.store.clear();
        self.items.clear();
        self.devices = DeviceRows::default();
        self.topics.clear();
        self.urls.clear();
        self.start_agent(StoreOrigin::Lost("damaged".to_owned()));
    }

    fn start_agent(&mut self, origin: StoreOrigin) {
        self.cut();
        self.keep_changes();
        let items = self.items.values().cloned().collect();
        let rows = self.store.values().cloned().collect();
        let devices = self.devices.stored();
        let sub_topics = self.topics.iter().cloned().collect();
        let target_urls = self.urls.iter().cloned().collect();
        let rest = Saved::new(rows, origin);
        let saved = Saved { items, devices, sub_topics, target_urls, ..rest };
        self.subscribed.clear();
        let before = &mut self.node.harness;
        let sandboxes = std::mem::take(&mut before.sandboxes);
        let containers = std::mem::take(&mut before.containers);
        let exit_codes = std::mem::take(&mut before.exit_codes);
        let stored = std::mem::take(&mut before.stored);
        let (wall, made) = (before.now.wall, before.made);
        self.node = CloudHarness::beside(saved, set, |harness| {
            harness.now.wall = wall;
            harness.sandboxes = sandboxes;
            harness.containers = containers;
            harness.exit_codes = exit_codes;
            harness.stored = stored;
            harness.made = made;
        });
        self.lived_ms = self.node_ms();
        self.keepalive_ms = 0;
        self.exchange();
    }

    // ---- users ----

    pub(crate) fn apply(&mut self, kind: Kind, object: Value) {
        self.world.cluster.apply(kind, object);
        self.exchange();
    }

    pub(crate) fn delete_pod(&mut self, pod: &str) {
        self.world.cluster.delete_pod(&name(Kind::Pod, pod));
        self.exchange();
    }

    pub(crate) fn remove(&mut self, kind: Kind, of: &str) {
        self.world.cluster.remove(&name(kind, of));
        self.exchange();
    }

    /// Deletes the Node.
    pub(crate) fn delete_node(&mut self) {
        self.world.cluster.remove(&(Kind::Node, String::new(), NODE.to_owned()));
        self.exchange();
    }

    // ---- what is seen ----

    /// The pods in the API server: name, uid and phase.
    pub(crate) fn wanted(&self) -> Vec<(String, String, String)> {
        let pods = self.world.cluster.objects.iter().filter(|((kind, ..), _)| *kind == Kind::Pod);
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        pods.map(|((.., name), pod)| {
            (name.clone(), text(&pod["metadata"]["uid"]), text(&pod["status"]["phase"]))
        })
        .collect()
    }

    /// The uids of the pods with a container that runs.
    pub(crate) fn running(&self) -> Vec<String> {
        let all = &self.node.harness.containers;
        let running = all.iter().filter(|it| it.state == ContainerState::Running);
        let mut uids: Vec<String> =
            running.filter_map(|it| Some(it.pod.as_ref()?.uid.to_string())).collect();
        uids.sort();
        uids
    }

    /// Whether the node's store has this row.
    pub(crate) fn has(&self, key: &str) -> bool {
        self.store.contains_key(key)
    }

    /// The object in this row of the node's store, if there is one.
    pub(crate) fn row(&self, key: &str) -> Option<Value> {
        Some(serde_json::from_str(&self.store.get(key)?.value).expect("JSON"))
    }

    /// The value in the node's copy of a ConfigMap.
    pub(crate) fn kept(&self, map: &str) -> Option<String> {
        let map = self.row(&format!("n/configmap/{map}"))?;
        Some(map["data"]["k"].as_str().unwrap_or_default().to_owned())
    }

    /// Each pod of the API server runs and is reported as running, and no other runs.
    #[track_caller]
    pub(crate) fn is_settled(&self) {
        let wanted = self.wanted();
        for (name, _, phase) in &wanted {
            assert_eq!(
                phase,
                "Running",
                "{name} in the API server; log of the node:\n{}",
                self.log()
            );
        }
        let mut uids: Vec<String> = wanted.into_iter().map(|(_, uid, _)| uid).collect();
        uids.sort();
        assert_eq!(self.running(), uids, "the node:\n{}", self.log());
    }

    /// What both have logged, for a test that fails.
    pub(crate) fn log(&self) -> String {
        let (node, cloud) = (&self.node.harness, &self.world.logs);
        format!("{}\n{:?}\nof the cloud:\n{}", node.log.join("\n"), node.events, cloud.join("\n"))
    }
}
