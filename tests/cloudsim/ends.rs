//! The end of a run: faults and users have stopped, and everything must become as it should be.

use std::collections::{BTreeMap, BTreeSet};

use edged::controller::SyncStore;
use edged::model::api::Kind;
use serde_json::Value;

use crate::faults::Faults;
use crate::node::Behaviour;
use crate::rule::judge;
use crate::trace::trace;
use crate::world::{Due, MORTAL, Replica, World};

/// Penalties, back-offs and a reconciliation, one after another.
const SETTLE_MS: u64 = 1_800_000;
/// A prime: periodic events must be checked in all their phases.
const CHECK_MS: u64 = 9_973;
const QUIET_MS: u64 = 45_000;
/// This often something may be under way at the time of a check.
const CHECKS: u32 = 10;
/// The mortal node's registration may have been under way: its Node is deleted once more.
const MORTAL_MS: u64 = 60_000;
const ANSWER_MS: u64 = 60_000;

impl World {
    pub(crate) fn end_faults(&mut self) {
        trace!(self.now, "======== the faults are over");
        self.is_over = true;
        self.faults = Faults::calm();
        self.api_down_until = self.now;
        self.mortal_until = self.mortal_until.min(self.now);
        for at in 0..self.replicas.len() {
            self.at(1, Due::Begin(at));
        }
        self.users_tidy();
        self.any.unserved.clear();
        self.remove_node(MORTAL);
        for name in self.nodes.keys().cloned().collect::<Vec<_>>() {
            if self.nodes[&name].behaviour != Behaviour::Honest {
                self.remove_node(&name);
            }
        }
        self.run_until(self.now + MORTAL_MS);
        self.remove_node(MORTAL);
    }

    /// Waits until everything is as it should be.
    pub(crate) fn settle(&mut self) {
        let began_at = self.now;
        loop {
            self.run_until(self.now + CHECK_MS);
            let Some(why) = self.unsettled() else { break };
            let late = self.now - began_at >= SETTLE_MS;
            judge!(!late, "[converges] in {SETTLE_MS} ms: {why}");
        }
        trace!(self.now, "======== settled after {} ms", self.now - began_at);
    }

    /// Nodes send signs of life and repeat their reports, and get only answers.
    pub(crate) fn stay_quiet(&mut self) {
        let (pushed, version) = (self.check.pushes, self.cluster.version);
        self.run_until(self.now + QUIET_MS);
        let more = self.check.pushes - pushed;
        judge!(more == 0, "[quiet] {more} objects are sent in calm");
        // Nodes still send requests, and an answer may be under way at this moment.
        let mut wanted = self.unsettled();
        for _ in 0..CHECKS {
            if wanted.is_some() {
                self.run_until(self.now + 97);
                wanted = self.unsettled();
            }
        }
        judge!(
            wanted.is_none(),
            "[quiet] it was settled at {version} and is not any more: {wanted:?}"
        );
        self.check_answered();
        let left = self.records(MORTAL);
        judge!(left.is_empty(), "[records gone] of a deleted node: {left:?}");
        self.check_ports();
    }

    /// Each replica has a port of its own in the record for kube-apiserver, and keeps it for life.
    fn check_ports(&self) {
        let name = (Kind::ConfigMap, "k".to_owned(), "tunnelport".to_owned());
        let annotations = &self.cluster.objects[&name]["metadata"]["annotations"];
        let record = annotations["tunnelportrecord.kubeedge.io"].as_str().unwrap_or_default();
        let record: Value = serde_json::from_str(record).unwrap_or_default();
        let ports = record["ipTunnelPort"].as_object().cloned().unwrap_or_default();
        let mut taken: Vec<u64> = ports.values().filter_map(Value::as_u64).collect();
        taken.sort_unstable();
        let expected: Vec<u64> = (10_351..).take(self.replicas.len()).collect();
        judge!(taken == expected, "[own port] of {} replicas: {record}", self.replicas.len());
    }

    /// Every request on a session that lasts was answered.
    fn check_answered(&self) {
        for node in self.nodes.values().filter(|it| it.behaviour == Behaviour::Honest) {
            let Some(session) = node.session else { continue };
            let mut waits = node
                .pending
                .iter()
                .filter(|(_, (of, at, _))| *of == session && self.now > at + ANSWER_MS);
            let first = waits.next();
            judge!(first.is_none(), "[answered] {} waits for an answer: {first:?}", node.name);
        }
    }

    /// The first thing that is not yet as it should be.
    fn unsettled(&self) -> Option<String> {
        let honest = self.nodes.values().filter(|it| it.behaviour == Behaviour::Honest);
        let mut alive = honest.filter(|it| it.name != MORTAL);
        let queued = self.replicas.iter().filter_map(|it| it.core.as_ref());
        let queued: usize = queued.map(|core| core.counters().queued).sum();
        // Unused objects are kept for a while.
        let waits = (queued > 0).then(|| format!("{queued} objects wait for their nodes"));
        let waits = waits.or_else(|| self.job_unsettled());
        let lacks =
            |name: &str| self.node_unsettled(name).or_else(|| self.listening_unsettled(name));
        waits.or_else(|| alive.find_map(|node| lacks(&node.name))).or_else(|| {
            let left = self.records(MORTAL);
            let leads = self.replicas.iter().any(Replica::leads);
            let led = self.size.sync == SyncStore::Table || leads;
            (!left.is_empty() || !led).then(|| format!("of a deleted node: {left:?}"))
        })
    }

    /// What a pod uses, by resource.
    fn used_by(&self, pod: &Value) -> Vec<(String, Value)> {
        let spec = &pod["spec"];
        let account = spec["serviceAccountName"].as_str().expect("each has one");
        let rules = self.rules_of(account);
        let rules = rules.map(|rules| (format!("n/serviceaccountaccess/{account}"), rules));
        let map = &spec["volumes"][0]["configMap"]["name"];
        let secret = &spec["imagePullSecrets"][0]["name"];
        let named = [(Kind::ConfigMap, map), (Kind::Secret, secret)];
        let objects = named.into_iter().filter_map(|(kind, used)| {
            let used = used.as_str().expect("each uses one");
            let object = self.cluster.objects.get(&(kind, "n".to_owned(), used.to_owned()))?;
            Some((format!("n/{}/{used}", kind.name().to_lowercase()), own(object)))
        });
        objects.chain(rules).collect()
    }

    fn node_unsettled(&self, name: &str) -> Option<String> {
        let node = &self.nodes[name];
        if node.session.is_none() {
            return Some(format!("{name} is not connected"));
        }
        let (mut expected, mut members) = (BTreeMap::new(), BTreeSet::new());
        for ((kind, ..), object) in &self.cluster.objects {
            let of = object["metadata"]["name"].as_str().expect("a name");
            match kind {
                Kind::Pod if object["spec"]["nodeName"] == name => {
                    if object["status"]["phase"] != "Running" {
                        return Some(format!("{name}: the status of {of} has not arrived"));
                    }
                    if object["metadata"]["deletionTimestamp"].is_string() {
                        return Some(format!("{name}: {of} is not deleted"));
                    }
                    expected.insert(format!("n/pod/{of}"), own(object));
                    expected.extend(self.used_by(object));
                }
                Kind::Device if object["spec"]["nodeName"] == name => {
                    if let Some(why) = self.device_unsettled(node, of) {
                        return Some(why);
                    }
                    members.insert(format!("n/{of}"));
                    let all = self.objects_of(object).into_iter();
                    expected.extend(all.map(|(key, object)| (key, own(object))));
                }
                Kind::Node if of == name => {
                    expected.insert(format!("null/node/{name}"), own(object));
                }
                _ => {}
            }
        }
        if let Some(why) = node.devices.members_unsettled(&members) {
            return Some(format!("{name}: {why}"));
        }
        if !expected.contains_key(&format!("null/node/{name}")) {
            return Some(format!("{name} is not registered"));
        }
        // An unused object costs a few bytes until its name is used again; a pod is reported by its
        // node, which then removes it.
        let is_left = |key: &str| {
            !key.contains("/pod/") && node.stale.contains(key) && !expected.contains_key(key)
        };
        let has = node.store.iter().filter(|(key, _)| !is_left(key));
        let has: BTreeMap<String, Value> = has.map(|(key, it)| (key.clone(), own(it))).collect();
        if let Some((key, _)) = has.iter().find(|(key, it)| expected.get(*key) != Some(*it)) {
            return Some(format!(
                "{name} has {key} at {}, expected {:?}",
                has[key],
                expected.get(key)
            ));
        }
        if let Some(key) = expected.keys().find(|key| !has.contains_key(*key)) {
            return Some(format!("{name} does not have {key}"));
        }
        let records = self.records(name);
        let differs = records.len() != expected.len();
        differs.then(|| format!("{name}: expected {} records: {records:?}", expected.len()))
    }
}

/// An object without the fields that the API server sets.
fn own(object: &Value) -> Value {
    let mut object = object.clone();
    for key in ["managedFields", "resourceVersion"] {
        object["metadata"].as_object_mut().expect("metadata").remove(key);
    }
    let fields = object.as_object_mut().expect("an object");
    fields.retain(|key, _| !matches!(&**key, "status" | "kind" | "apiVersion"));
    object
}
