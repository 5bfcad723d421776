//! Rules about the cloud: what is acknowledged is durable, the store never goes back, a pod's
//! deletion is requested when nothing of it is left.

use std::collections::{BTreeMap, BTreeSet};

use edged::model::message::{Message, Resource};
use serde_json::Value;

use super::hub::{Hub, Sent, is_over};
use super::store::{Store, Stored};
use crate::check::Check;
use crate::rule::judge;

/// The state of these rules.
#[derive(Default)]
pub struct Rules {
    /// Objects whose deletion the agent received in this life: key and uid.
    deletions_received: BTreeSet<(Box<str>, Box<str>)>,
    /// Pods that the cloud once reported as missing in this life: key and uid.
    reported_missing: BTreeSet<(Box<str>, Box<str>)>,
    /// Uids of objects that the store had and removed.
    gone: BTreeSet<Box<str>>,
    /// The last durable text of each object; its version only grows.
    texts: BTreeMap<Box<str>, u64>,
    /// When reports of each pod were sent.
    reports: BTreeMap<Box<str>, Vec<u64>>,
    /// Messages that the agent refused.
    pub refusals: u64,
}

impl Rules {
    pub fn begin_life(&mut self) {
        self.deletions_received.clear();
        self.reported_missing.clear();
    }

    /// The content of the store is lost.
    pub fn lose(&mut self) {
        self.gone.clear();
    }

    /// The agent receives a message of the cloud.
    pub fn received(&mut self, message: &Message, hub: &Hub, store: &Store) {
        if let Some(sent) = hub.sent.get(&message.header.id).filter(|sent| sent.gone) {
            self.deletions_received.insert((sent.key.clone(), sent.uid.clone()));
        }
        let route = &message.route;
        let is_missing =
            || message.content.as_ref().is_some_and(|it| it.get().contains("NotFound"));
        let answers = &*route.operation == "response" && route.resource.contains("/podpatch/");
        if answers && is_missing() {
            self.answered(&route.resource, &content(message), store);
        }
    }

    /// A pod that the cloud twice reported as missing is deleted there, though no deletion was
    /// sent.
    fn answered(&mut self, resource: &str, answer: &Value, store: &Store) {
        if answer["Err"]["ErrStatus"]["reason"] != "NotFound" {
            return;
        }
        let key: Box<str> = resource.replacen("/podpatch/", "/pod/", 1).into();
        let Some(row) = store.get(&key) else { return };
        let pod = (key, row.uid.clone());
        if !self.reported_missing.insert(pod.clone()) {
            self.deletions_received.insert(pod);
        }
    }

    /// The agent sends a message to the cloud.
    pub fn sends(
        &mut self,
        now: u64,
        message: &Message,
        (hub, store, check): (&Hub, &Store, &Check),
    ) {
        let route = &message.route;
        match &*route.operation {
            "response" => {
                let sent = hub.sent.get(&message.header.parent_id);
                if let Some(sent) = sent.filter(|sent| !sent.nonsense && !sent.is_cached) {
                    let row = store.get(&sent.key);
                    judge!(
                        self.is_durable(sent, row),
                        "[acked is durable] {sent:?} is acknowledged, and the store has {:?}",
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
                "[reported is durable] {key} {uid} is reported as ended, which is not durable"
            );
            return;
        }
        if resource.kind != "pod" {
            return;
        }
        let uid = content["preconditions"]["uid"].as_str().expect("a deletion names its pod");
        judge!(content["gracePeriodSeconds"] == 0, "[delete last] {content}");
        let alive = check.pod(uid).map_or(0, |pod| pod.alive);
        judge!(
            alive == 0,
            "[delete last] pod {uid} is reported for deletion while {alive} of its containers run"
        );
    }

    fn is_durable(&self, sent: &Sent, row: Option<&Stored>) -> bool {
        let is_known_deleted = |uid: &str| {
            self.deletions_received.contains(&(sent.key.clone(), uid.into()))
                || self.gone.contains(uid)
        };
        match row {
            None => sent.gone || is_known_deleted(&sent.uid),
            Some(row) if sent.gone => !sent.uid.is_empty() && row.uid != sent.uid,
            // A static pod that has ended may begin again, and then there is nothing to write: that
            // its mirror had ended in between is no loss.
            Some(row) if row.uid == sent.uid => {
                row.is_mirror || row.version >= sent.version || row.essence == sent.essence
            }
            Some(row) => row.version > sent.version || is_known_deleted(&sent.uid),
        }
    }

    /// The store is about to write this. `is_there`: the cloud has the object that the store holds.
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
        // What is stored beside a pod is removed with it.
        let key = key.replacen("/podpatch/", "/pod/", 1).replacen("/podrelease/", "/pod/", 1);
        let key: Box<str> = key.into();
        let any = || self.deletions_received.contains(&(key.clone(), "".into()));
        let same = self.deletions_received.contains(&(key.clone(), old.uid.clone()));
        let token = &*old.row.kind == "serviceaccounttoken";
        let ours = matches!(&*old.row.kind, "edged" | "nodejob");
        let mirror = old.is_mirror && !is_there;
        // Another incarnation has taken the pod's place.
        let is_beside = matches!(&*old.row.kind, "podpatch" | "podrelease");
        let past = is_beside && store.get(&key).is_none_or(|pod| pod.uid != old.uid);
        judge!(
            same || token || ours || mirror || past || any(),
            "[others' deletion] {key} {} is removed, and nobody reported its deletion",
            old.uid
        );
        self.gone.insert(old.uid.clone());
    }

    /// A file of a volume is about to get this text of an object.
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
