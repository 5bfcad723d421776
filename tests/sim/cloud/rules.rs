//! Rules about the cloud: what is acknowledged is durable, the store never goes back, a pod's end
//! is asked for when nothing of it is left.

use std::collections::{BTreeMap, BTreeSet};

use edged::model::message::{Message, Resource};
use serde_json::Value;

use super::hub::{Hub, Said, is_over};
use super::store::{Store, Stored};
use crate::check::Check;
use crate::rule::judge;

/// What has to be remembered for them.
#[derive(Default)]
pub struct Rules {
    /// Objects that the agent heard in this life to be gone: key and uid.
    heard_gone: BTreeSet<(Box<str>, Box<str>)>,
    /// Pods of which it once heard in this life that the cloud has no such pod: key and uid.
    heard_missing: BTreeSet<(Box<str>, Box<str>)>,
    /// Uids of objects that the store held and parted with.
    gone: BTreeSet<Box<str>>,
    /// What each object said last when it was durable; it only grows.
    texts: BTreeMap<Box<str>, u64>,
    /// When reports of each pod were sent.
    reports: BTreeMap<Box<str>, Vec<u64>>,
    /// Messages that the agent refused.
    pub refusals: u64,
}

impl Rules {
    /// A new life of the agent.
    pub fn be_born(&mut self) {
        self.heard_gone.clear();
        self.heard_missing.clear();
    }

    /// What the store held is lost.
    pub fn lose(&mut self) {
        self.gone.clear();
    }

    /// The agent is told something by the cloud.
    pub fn heard(&mut self, message: &Message, hub: &Hub, store: &Store) {
        if let Some(said) = hub.said.get(&message.header.id).filter(|said| said.gone) {
            self.heard_gone.insert((said.key.clone(), said.uid.clone()));
        }
        let route = &message.route;
        let is_missing =
            || message.content.as_ref().is_some_and(|it| it.get().contains("NotFound"));
        let answers = &*route.operation == "response" && route.resource.contains("/podpatch/");
        if answers && is_missing() {
            self.answered(&route.resource, &content(message), store);
        }
    }

    /// A pod that the cloud has not, twice, is gone there, though it never said so by itself.
    fn answered(&mut self, resource: &str, answer: &Value, store: &Store) {
        if answer["Err"]["ErrStatus"]["reason"] != "NotFound" {
            return;
        }
        let key: Box<str> = resource.replacen("/podpatch/", "/pod/", 1).into();
        let Some(row) = store.get(&key) else { return };
        let pod = (key, row.uid.clone());
        if !self.heard_missing.insert(pod.clone()) {
            self.heard_gone.insert(pod);
        }
    }

    /// The agent says something to the cloud.
    pub fn sends(
        &mut self,
        now: u64,
        message: &Message,
        (hub, store, check): (&Hub, &Store, &Check),
    ) {
        let route = &message.route;
        match &*route.operation {
            "response" => {
                let said = hub.said.get(&message.header.parent_id);
                if let Some(said) = said.filter(|said| !said.nonsense) {
                    let row = store.get(&said.key);
                    judge!(
                        self.is_durable(said, row),
                        "[acked is durable] {said:?} is acknowledged, and the store has {:?}",
                        row.map(|row| (&row.uid, row.version, row.deleting))
                    );
                }
            }
            "error" => self.refusals += 1,
            "patch" | "delete" => self.about_pod(now, message, store, check),
            _ => {}
        }
    }

    fn about_pod(&mut self, now: u64, message: &Message, store: &Store, check: &Check) {
        let Some(resource) = Resource::parse(&message.route.resource) else { return };
        let content = content(message);
        if resource.kind == "podpatch" {
            let uid = content["metadata"]["uid"].as_str().expect("a patch names its pod");
            self.reports.entry(uid.into()).or_default().push(now);
            let over = content["status"]["phase"].as_str().is_some_and(is_over);
            let key = Resource { kind: "pod", ..resource }.to_string();
            let is_mirror = store.get(&key).is_some_and(|row| row.is_mirror);
            judge!(
                !over || is_mirror || store.has_ended(&key, uid),
                "[told is durable] {key} {uid} is said to have ended, which is not durable"
            );
            return;
        }
        if resource.kind != "pod" {
            return;
        }
        let uid = content["preconditions"]["uid"].as_str().expect("a deletion names its pod");
        judge!(content["gracePeriodSeconds"] == 0, "[delete last] {content}");
        let alive = check.pod(uid).map_or(0, |pod| pod.alive);
        judge!(alive == 0, "[delete last] pod {uid} is to be deleted, and {alive} of it run");
    }

    fn is_durable(&self, said: &Said, row: Option<&Stored>) -> bool {
        let told_gone = |uid: &str| {
            self.heard_gone.contains(&(said.key.clone(), uid.into())) || self.gone.contains(uid)
        };
        match row {
            None => said.gone || told_gone(&said.uid),
            Some(row) if said.gone => !said.uid.is_empty() && row.uid != said.uid,
            // A static pod that has ended may begin again, and then there is nothing to write: that
            // a mirror had ended in between is no loss.
            Some(row) if row.uid == said.uid => {
                row.is_mirror || row.version >= said.version || row.essence == said.essence
            }
            Some(row) => row.version > said.version || told_gone(&said.uid),
        }
    }

    /// The store is about to hold this.
    /// `is_there`: the cloud has the object that the store holds.
    pub fn writes(&mut self, key: &str, new: Option<&Stored>, store: &Store, is_there: bool) {
        let Some(new) = new else { return self.deletes(key, store, is_there) };
        if new.uid.is_empty() {
            return;
        }
        if let Some(text) = new.text.as_ref().and_then(|text| text.parse().ok()) {
            self.texts.insert(key.into(), text);
        }
        judge!(
            !self.gone.contains(&new.uid),
            "[never back] {key} {} was deleted, and comes back",
            new.uid
        );
        let Some(old) = store.get(key) else { return };
        judge!(
            new.version == 0 || new.version >= old.version,
            "[never back] {key} {} at version {} after {} at {}",
            new.uid,
            new.version,
            old.uid,
            old.version
        );
        judge!(
            old.uid != new.uid || !old.deleting || new.deleting,
            "[never back] {key} {} is not deleted any more",
            new.uid
        );
        if old.uid != new.uid {
            self.gone.insert(old.uid.clone());
        }
    }

    fn deletes(&mut self, key: &str, store: &Store, is_there: bool) {
        let Some(old) = store.get(key) else { return };
        // With a pod goes what the node has said of it.
        let key: Box<str> = key.replacen("/podpatch/", "/pod/", 1).into();
        let any = || self.heard_gone.contains(&(key.clone(), "".into()));
        let same = self.heard_gone.contains(&(key.clone(), old.uid.clone()));
        let token = &*old.row.kind == "serviceaccounttoken";
        let ours = &*old.row.kind == "edged";
        let mirror = old.is_mirror && !is_there;
        // Another has taken the pod's place.
        let past =
            &*old.row.kind == "podpatch" && store.get(&key).is_none_or(|pod| pod.uid != old.uid);
        judge!(
            same || token || ours || mirror || past || any(),
            "[others' deletion] {key} {} is forgotten, and nobody said that it is gone",
            old.uid
        );
        self.gone.insert(old.uid.clone());
    }

    /// A file of a volume is about to say this of an object.
    pub fn shows(&self, key: &str, text: &str) {
        let durable = self.texts.get(key).copied().unwrap_or(0);
        let shown: u64 = text.parse().expect("a version");
        judge!(
            shown <= durable,
            "[acted on is durable] a volume says {shown} of {key}, and {durable} is durable"
        );
    }

    /// How often this pod was reported since then.
    pub fn reports(&self, uid: &str, since: u64) -> usize {
        let reports = self.reports.get(uid).map(Vec::as_slice).unwrap_or_default();
        reports.iter().filter(|&&at| at >= since).count()
    }
}

/// The content of a message: JSON, or a text that holds JSON.
pub fn content(message: &Message) -> Value {
    let text = message.content.as_deref().map(edged::model::message::inner).unwrap_or_default();
    serde_json::from_str(&text).unwrap_or_default()
}
