//! The rules that are checked all the time, and the true state by which they are judged.

use std::collections::{BTreeMap, BTreeSet};

use edged::controller::SyncStore;
use edged::controller::event::CallId;
use edged::model::api::{Call, Kind, Verb};
use edged::model::link::Session;
use edged::model::message::Message;
use serde_json::Value;

use crate::devices::DeviceCheck;
use crate::jobs::JobCheck;
use crate::node::Behaviour;
use crate::rule::judge;
use crate::users::node_of;
use crate::world::{KEEPALIVE_MS, World};

/// In one step.
const ACTIONS_MAX: usize = 20_000;
/// A Node that was deleted within this time is no reason to end a session: the watch may have been
/// behind, and the replica frozen.
const DELETED_MS: u64 = 600_000;
/// Between a deadline and the wake for it.
const SLACK_MS: u64 = 1_000;
/// This long after its deletion a Node may come back.
const GONE_NODE_MS: u64 = 30_000;
/// A leader finishes what it began within this time.
const LED_MS: u64 = 120_000;
/// A replica that is stopping may wait for the API server, but not longer than its lease lasts.
const EXIT_MS: u64 = 30_000;

/// The state of the rules.
#[derive(Default)]
pub struct Check {
    /// Which node has had a pod with this ConfigMap.
    maps: BTreeSet<(String, String)>,
    /// Which node has had a pod of this service account.
    accounts: BTreeSet<(String, String)>,
    /// The last writer of each record, in which life, and at which version.
    writers: BTreeMap<String, Written>,
    /// The time up to which each node's certificates are revoked, and the version at which watches
    /// report it.
    revoked: BTreeMap<String, (i64, u64)>,
    /// When each Node was deleted last, and when its node was admitted again.
    deleted_at: BTreeMap<String, u64>,
    pardoned_at: BTreeMap<String, u64>,
    /// Deletions that nodes have acknowledged, by record, to this replica in this life.
    ended: BTreeSet<(String, usize, u64)>,
    /// Messages by their ids: to which node, about which uid, and whether it is a deletion.
    sent: BTreeMap<Box<str>, (String, String, bool)>,
    /// Registrations of nodes that were requested from the API server, by replica, life and call.
    registering: BTreeMap<(usize, u64, CallId), String>,
    /// The uids that a node has acknowledged since it registered.
    confirmed: BTreeSet<(String, String)>,
    /// When each replica last led.
    led_at: BTreeMap<usize, u64>,
    /// Objects that were sent to nodes.
    pub pushes: u64,
    /// About devices.
    pub devices: DeviceCheck,
    /// About jobs.
    pub jobs: JobCheck,
}

/// The last write of a record.
struct Written {
    /// By which replica, in which of its lives.
    by: (usize, u64),
    version: u64,
    /// Replicas that had a session with the node then: they ignore what others write.
    deaf: BTreeSet<usize>,
}

/// A record of what a node has.
#[derive(Debug)]
pub struct OnRecord {
    pub kind: Kind,
    pub name: String,
    pub uid: String,
    /// The acknowledged version.
    pub version: u64,
    /// The name of the record's own object, if it has one.
    object: String,
}

impl Check {
    /// A user lets a pod of this node use this ConfigMap.
    pub fn allow_map(&mut self, map: &str, node: &str) {
        self.maps.insert((map.to_owned(), node.to_owned()));
    }

    /// A pod of this node has this service account.
    pub fn allow_account(&mut self, account: &str, node: &str) {
        self.accounts.insert((account.to_owned(), node.to_owned()));
    }

    /// ConfigMaps of pods of this node.
    pub fn maps_of(&self, node: &str) -> Vec<String> {
        self.maps.iter().filter(|(_, of)| of == node).map(|(map, _)| map.clone()).collect()
    }

    /// A user revokes this node's certificates.
    pub fn revoked(&mut self, node: &str, until_s: i64, version: u64) {
        self.revoked.insert(node.to_owned(), (until_s, version));
    }

    /// A user removes all revocations.
    pub fn nobody_is_revoked(&mut self, now: u64) {
        let all = std::mem::take(&mut self.revoked).into_keys();
        self.pardoned_at.extend(all.map(|node| (node, now)));
    }

    /// A message is under way.
    pub fn sent(&mut self, node: &str, message: &Message) {
        let is_object = &*message.route.group == "resource";
        // The removal of a device that was reported is an answer.
        let is_unrecorded =
            message.route.resource.contains("/device/") && uid_in(message).is_empty();
        let is_push = is_object
            && !is_unrecorded
            && matches!(&*message.route.operation, "insert" | "update" | "delete");
        let id = &message.header.id;
        if is_push && !self.sent.contains_key(id) {
            let is_deletion = &*message.route.operation == "delete";
            let of = (node.to_owned(), uid_in(message), is_deletion);
            self.sent.insert(id.clone(), of);
            self.pushes += 1;
        }
    }

    /// A node reports that it has begun a new life, or the report arrives.
    pub fn registers(&mut self, node: &str) {
        self.confirmed.retain(|(of, _)| of != node);
        // Its acknowledgements of earlier messages do not count.
        self.sent.retain(|_, (of, ..)| of != node);
    }

    /// A replica requests a node's registration from the API server.
    pub fn requests_registration(&mut self, call_key: (usize, u64, CallId), node: &str) {
        self.registering.insert(call_key, node.to_owned());
    }

    /// The answer arrives: from now on the replica knows that the node may have lost its objects.
    pub fn answered(&mut self, call_key: (usize, u64, CallId)) {
        if let Some(node) = self.registering.remove(&call_key) {
            self.registers(&node);
        }
    }

    /// A node's acknowledgement of a message reaches a replica.
    pub fn acknowledged(&mut self, parent: &str) {
        let Some((node, uid, is_deletion)) = self.sent.get(parent) else { return };
        let of = (node.clone(), uid.clone());
        if *is_deletion {
            self.confirmed.remove(&of);
        } else {
            self.confirmed.insert(of);
        }
    }

    /// A node acknowledges the deletion of an object.
    pub fn acknowledges_end(&mut self, record: String, at: usize, life: u64) {
        self.ended.insert((record, at, life));
    }

    /// A Node is deleted.
    pub fn node_deleted(&mut self, node: &str, now: u64) {
        self.deleted_at.insert(node.to_owned(), now);
    }

    /// Whether a Node was deleted at any time.
    pub fn was_deleted(&self, node: &str) -> bool {
        self.deleted_at.contains_key(node)
    }

    /// A record is written.
    pub fn record_written(
        &mut self,
        call: &Call,
        by: (usize, u64),
        version: u64,
        deaf: BTreeSet<usize>,
    ) {
        self.writers.insert(call.name.to_string(), Written { by, version, deaf });
    }

    /// A replica has taken a step.
    pub fn stepped(at: usize, actions: usize) {
        judge!(actions <= ACTIONS_MAX, "[bounded step] r{at} makes {actions} requests at once");
    }
}

impl World {
    /// All records of a node, wherever they are stored.
    pub fn records(&self, node: &str) -> Vec<OnRecord> {
        if self.size.sync == SyncStore::Table {
            let rows = self.rows.values().filter(|row| *row.node == *node);
            let records = rows.map(|row| OnRecord {
                kind: row.kind,
                name: row.name.to_string(),
                uid: row.uid.to_string(),
                version: row.version,
                object: String::new(),
            });
            return records.collect();
        }
        let records = self.cluster.objects.iter().filter_map(|((kind, ..), object)| {
            let is_record = matches!(kind, Kind::ObjectSync | Kind::ClusterObjectSync);
            let (of, uid) =
                object["metadata"]["name"].as_str().filter(|_| is_record)?.rsplit_once('.')?;
            let kind = object["spec"]["objectKind"].as_str().filter(|_| of == node)?;
            let kind = Kind::ALL.into_iter().find(|all| all.name() == kind)?;
            let version = object["status"]["objectResourceVersion"].as_str()?.parse().ok()?;
            let name = object["spec"]["objectName"].as_str()?.to_owned();
            let (uid, object) = (uid.to_owned(), object["metadata"]["name"].as_str()?.to_owned());
            Some(OnRecord { kind, name, uid, version, object })
        });
        records.collect()
    }

    /// Whether the replica may not know the current state of this record: another has written it.
    fn may_not_know(&self, at: usize, record: &str) -> bool {
        let Some(Written { by, version, deaf }) = self.check.writers.get(record) else {
            return false;
        };
        let replica = &self.replicas[at];
        let known = [Kind::ObjectSync, Kind::ClusterObjectSync].map(|kind| replica.knows(kind));
        let known = known.into_iter().map(Option::unwrap_or_default).min().unwrap_or_default();
        *by != (at, replica.life) && (known < *version || deaf.contains(&at))
    }

    /// A message is sent to a node.
    pub(crate) fn check_sent(&self, at: usize, session: Session, message: &Message) {
        self.check_confirmed(at, message);
        let link = &self.links[&session];
        let (node, route) = (&link.node, &message.route);
        let text = message.content.as_ref().map(|it| it.get()).unwrap_or_default();
        // A Secret contains the name of its node.
        let foreign = text.match_indices("\"only-").find(|(place, mark)| {
            let owner = &text[place + mark.len()..];
            !owner.starts_with(&format!("{node}-"))
        });
        judge!(foreign.is_none(), "[own objects] {node} gets a foreign Secret: {}", route.resource);
        let parts: Vec<&str> = route.resource.split('/').collect();
        let [_, kind, name] = parts[..] else { return };
        if kind == "serviceaccountaccess" {
            let had = self.check.accounts.contains(&(name.to_owned(), node.clone()));
            judge!(had, "[own objects] {node} gets the rules of {name}");
            return;
        }
        let kind = match kind {
            "pod" => Kind::Pod,
            "configmap" => Kind::ConfigMap,
            "secret" => Kind::Secret,
            "node" => Kind::Node,
            "device" => Kind::Device,
            "devicemodel" => Kind::DeviceModel,
            _ => return,
        };
        let content: Value = serde_json::from_str(text).unwrap_or_default();
        if !matches!(&*route.operation, "insert" | "update" | "delete") {
            let object = content["metadata"]["uid"].is_string();
            let map = (name.to_owned(), node.clone());
            let fine = kind != Kind::ConfigMap || !object || self.check.maps.contains(&map);
            judge!(fine, "[own objects] {node} gets a foreign map in an answer: {name}");
            return;
        }
        match kind {
            Kind::Pod if &*route.operation != "delete" => {
                judge!(node_of(&content) == node, "[own objects] {node} gets the pod {name}");
            }
            Kind::ConfigMap => {
                let map = (name.to_owned(), node.clone());
                judge!(self.check.maps.contains(&map), "[own objects] {node} gets the map {name}");
            }
            Kind::Device if content["metadata"]["uid"] == "" => {
                return self.check_unrecorded(at, node, name, &content);
            }
            Kind::Device | Kind::DeviceModel => {
                let had = self.had(&route.resource, node);
                judge!(had, "[own objects] {node} gets {}", route.resource);
            }
            Kind::Node => judge!(name == node, "[own objects] {node} gets the Node {name}"),
            _ => {}
        }
        let uid = content["metadata"]["uid"].as_str().expect("a uid");
        self.check_recorded(at, session, (kind, name, uid), message);
    }

    fn check_recorded(
        &self,
        at: usize,
        session: Session,
        (kind, name, uid): (Kind, &str, &str),
        message: &Message,
    ) {
        let node = &self.links[&session].node;
        // A message that was sent before is sent until it is acknowledged to this replica.
        let is_repeated = self.check.sent.contains_key(&message.header.id);
        if is_repeated || self.nodes[node].behaviour != Behaviour::Honest {
            // A node that reports pods under foreign uids damages its own records only.
            return;
        }
        let route = &message.route;
        let version = &message.header.resource_version;
        let what =
            format!("{} {} {uid} {version} to {node} by r{at}", route.operation, route.resource);
        let records = self.records(node);
        let record = records.iter().find(|it| it.kind == kind && it.name == name && it.uid == uid);
        let own_record = format!("{node}.{uid}");
        // The named object may exist under another name, or on another node: nodes may send any
        // name.
        let mut live = self.cluster.objects.iter();
        let is_gone = live.all(|((of, ..), object)| {
            let metadata = &object["metadata"];
            *of != kind
                || metadata["uid"] != uid
                || metadata["name"] != name
                || (matches!(kind, Kind::Pod | Kind::Device) && node_of(object) != node)
        });
        let node_has = || {
            let key = &*message.route.resource;
            let store = &self.nodes[node].store;
            store.get(key).is_some_and(|it| it["metadata"]["uid"] == uid)
        };
        let in_objects = self.size.sync == SyncStore::Objects;
        // Those that no device needs are deleted at once, and a watch of records that is behind
        // reports them too.
        let is_unused = matches!(kind, Kind::Device | Kind::DeviceModel)
            && &*message.route.operation == "delete";
        if record.is_none() && (is_gone || is_unused) && (in_objects || node_has()) {
            // A watch of records that is behind reports a removed one: the deletion is sent to the
            // node once more, without harm. The same holds for a watch that reports a pod without a
            // record, because the store was lost, or because there never was one.
            let fine = &*message.route.operation == "delete" || self.may_not_know(at, &own_record);
            judge!(fine, "[on record] {what} is deleted, and not on record");
            return;
        }
        judge!(
            record.is_some() || self.may_not_know(at, &own_record),
            "[on record] {what} is not on record: {records:?}"
        );
        let Some(record) = record else { return };
        // It may have lost what it acknowledged before it registered.
        let confirmed = self.check.confirmed.contains(&(node.clone(), uid.to_owned()));
        if !confirmed || self.may_not_know(at, &record.object) {
            return;
        }
        if kind == Kind::Device {
            // It is sent again after its model, and if that goes away meanwhile, without it.
            return;
        }
        let version = message.header.resource_version.parse().unwrap_or(u64::MAX);
        judge!(version > record.version, "[not again] {what} was acknowledged before: {record:?}");
    }

    /// A replica makes a request of the API server.
    pub(crate) fn check_request(&self, at: usize, call: &Call) {
        let is_record = matches!(call.kind, Kind::ObjectSync | Kind::ClusterObjectSync);
        let removed = call.verb == Verb::Delete && is_record;
        let Some((node, uid)) = call.name.rsplit_once('.').filter(|_| removed) else { return };
        let honest = self.nodes.get(node).is_some_and(|it| it.behaviour == Behaviour::Honest);
        // It continues what it began as a leader, and what its own nodes reported.
        let led = self.check.led_at.get(&at).is_some_and(|led_at| self.now - led_at < LED_MS);
        let deletion = (call.name.to_string(), at, self.replicas[at].life);
        // The record of an object that another one of its name has replaced is removed once both
        // are visible.
        let key = (call.kind, call.namespace.to_string(), call.name.to_string());
        // It opens a record before it sends the object, and closes it if that is gone meanwhile.
        let writer = self.check.writers.get(&*call.name).map(|written| written.by);
        let is_opened = writer == Some((at, self.replicas[at].life))
            && self
                .cluster
                .objects
                .get(&key)
                .is_some_and(|record| record["status"]["objectResourceVersion"] == "0");
        let is_replaced = self.cluster.objects.get(&key).is_some_and(|record| {
            let spec = &record["spec"];
            let of_name = self.cluster.objects.iter().filter(|((kind, ..), object)| {
                spec["objectKind"] == kind.name()
                    && spec["objectName"] == object["metadata"]["name"]
            });
            of_name.into_iter().any(|(_, object)| object["metadata"]["uid"] != uid)
        });
        let own = (Kind::Node, String::new(), node.to_owned());
        // What was removed before is removed once more by a replica whose watch is behind: it sees
        // the record beside that of the object which has replaced its own. Nothing is lost by that.
        let is_removed = !self.cluster.objects.contains_key(&key);
        let is_gone = !self.cluster.objects.contains_key(&own)
            && self.check.deleted_at.get(node).is_some_and(|at| self.now - at >= GONE_NODE_MS);
        judge!(
            !is_gone
                || led
                || !honest
                || is_removed
                || is_replaced
                || is_opened
                || self.check.ended.contains(&deletion),
            "[leader cleans] r{at} removes {}, and does not lead",
            call.name
        );
    }

    /// Why the API server must not do this, if it does: a node may mark only its own objects.
    pub(crate) fn forbidden_change(&self, call: &Call) -> Option<String> {
        let text = call.body.as_ref().map(|it| it.get()).unwrap_or_default();
        let (_, by) = text.split_once("hacked by ")?;
        let by: String = by.chars().take_while(char::is_ascii_alphanumeric).collect();
        let name = (call.kind, call.namespace.to_string(), call.name.to_string());
        let own = match call.kind {
            Kind::Pod => self.cluster.objects.get(&name).is_none_or(|pod| node_of(pod) == by),
            _ => *call.name == *by,
        };
        let places = !text.contains("\"nodeName\"") || call.verb == Verb::Create;
        let fine = own && places;
        Some(if fine { String::new() } else { format!("{by} does {:?} of {name:?}", call.verb) })
    }

    /// A record is about to be removed.
    pub(crate) fn before_removal(&mut self, call: &Call) {
        let key = (call.kind, call.namespace.to_string(), call.name.to_string());
        if let (Verb::Delete, Some(object)) = (call.verb, self.cluster.objects.get(&key))
            && let Some((node, _)) = call.name.rsplit_once('.')
        {
            let spec = object["spec"].clone();
            let kind = Kind::ALL.into_iter().find(|kind| spec["objectKind"] == kind.name());
            let name = spec["objectName"].as_str().unwrap_or_default();
            if let Some(kind) = kind {
                self.record_removed(node, kind, name);
            }
        }
    }

    /// A record is removed. For a deleted node that is all: it may come back with its objects, as a
    /// new one.
    pub(crate) fn record_removed(&mut self, node: &str, kind: Kind, name: &str) {
        let own = (Kind::Node, String::new(), node.to_owned());
        let is_on =
            self.links.values().any(|link| link.node == node && link.is_on && !link.half_open);
        if !is_on
            && !self.cluster.objects.contains_key(&own)
            && let Some(node) = self.nodes.get_mut(node)
        {
            let namespace = if kind == Kind::Node { "null" } else { "n" };
            node.stale.insert(format!("{namespace}/{}/{name}", kind.name().to_lowercase()));
        }
    }

    /// A replica ends a session: there must be a reason in the world.
    pub(crate) fn check_close(&self, at: usize, session: Session, why: &str) {
        let Some(link) = self.links.get(&session) else { return };
        let replica = &self.replicas[at];
        let newer = self
            .links
            .iter()
            .any(|(other, it)| *other > session && it.replica == at && it.node == link.node);
        let deleted = self.check.deleted_at.get(&link.node);
        let pardoned = self.check.pardoned_at.get(&link.node);
        let fine = newer
            || link.half_open
            || deleted.max(pardoned).is_some_and(|at| self.now - at < DELETED_MS)
            || self.check.revoked.contains_key(&link.node)
            || replica.stopping.is_some()
            || self.now - link.alive_at >= KEEPALIVE_MS
            || self.nodes[&link.node].behaviour != Behaviour::Honest;
        judge!(fine, "[signs of life] r{at} closes {session:?} of {}: {why}", link.node);
    }

    /// No session has a certificate that is known to be revoked.
    pub(crate) fn check_revoked(&self, at: usize) {
        if self.check.revoked.is_empty() || self.replicas[at].stopping.is_some() {
            return;
        }
        let Some(known) = self.replicas[at].knows(Kind::Secret) else { return };
        for (session, link) in self.links.iter().filter(|(_, it)| it.replica == at && it.is_on) {
            let Some((until_s, version)) = self.check.revoked.get(&link.node) else { continue };
            judge!(
                link.made_s > *until_s || known < *version,
                "[revoked] r{at} serves {} on {session:?}, whose certificate is revoked",
                link.node
            );
        }
    }

    /// At most one of the replicas that are not frozen considers itself the leader.
    pub(crate) fn check_leaders(&mut self, at: usize) {
        if !self.replicas[at].leads() {
            return;
        }
        self.check.led_at.insert(at, self.now);
        for other in (0..self.replicas.len()).filter(|other| *other != at) {
            let it = &self.replicas[other];
            let up = it.frozen_until <= self.now && it.stopping.is_none();
            judge!(!(up && it.leads_now(self.now)), "[one leader] r{at} and r{other} lead");
        }
    }

    /// Time has passed.
    pub(crate) fn check_time(&self) {
        for (session, link) in self.links.iter().filter(|(_, link)| link.is_on) {
            let replica = &self.replicas[link.replica];
            if replica.stopping.is_some() || replica.frozen_until > self.now {
                continue;
            }
            let since = link.alive_at.max(replica.frozen_until);
            judge!(
                self.now <= since + KEEPALIVE_MS + SLACK_MS,
                "[silence] {session:?} of {} is up without a sign of life since {since}",
                link.node
            );
        }
        for (at, replica) in self.replicas.iter().enumerate() {
            let Some(since) = replica.stopping.filter(|_| replica.core.is_some()) else { continue };
            let since = since.max(replica.frozen_until);
            judge!(self.now < since + EXIT_MS, "[exit] r{at} was stopped at {since}");
        }
    }
}

/// The uid of the object in a message.
pub fn uid_in(message: &Message) -> String {
    let text = message.content.as_ref().map(|it| it.get()).unwrap_or_default();
    let content: Value = serde_json::from_str(text).unwrap_or_default();
    content["metadata"]["uid"].as_str().unwrap_or_default().to_owned()
}
