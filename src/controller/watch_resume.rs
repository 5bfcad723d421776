//! Handles the events of lists and watches.

use serde_json::value::RawValue;

use super::cache::{Cache, From};
use super::event::{Action, Severity, WatchFact, WatchId};
use super::identity::DENIED;
use super::key::Key;
use super::object::{Object, Sketch};
use super::time::Now;
use super::watches::Listed;
use super::{Controller, syncs};
use crate::limits::UNREAD_LOGGED_MAX;
use crate::model::api::Kind;
use crate::model::error::Peer;
use crate::model::sync;

impl Controller {
    pub(super) fn watched(&mut self, now: Now, watch: WatchId, fact: WatchFact) {
        let Some(fact) = self.dynamic_watched(now, watch, fact) else { return };
        let Some(kind) = self.watches.kind(watch) else { return };
        if matches!(kind, Kind::ObjectSync | Kind::ClusterObjectSync)
            && let WatchFact::Changed(raw) | WatchFact::Deleted(raw) = &fact
        {
            let is_deleted = matches!(fact, WatchFact::Deleted(_));
            return self
                .record_received(kind, raw, |cache, row, at| cache.adopt(row, at, is_deleted));
        }
        match fact {
            WatchFact::Listed(objects) => {
                for raw in objects {
                    match kind {
                        Kind::ObjectSync | Kind::ClusterObjectSync => {
                            self.record_listed(kind, &raw);
                        }
                        _ => drop(self.learn(now, kind, &raw)),
                    }
                }
            }
            WatchFact::ListEnd(version) => {
                let at = version.parse().unwrap_or(u64::MAX);
                let round = self.watches.round(kind);
                if kind == Kind::Secret && self.identities.denied_round != round {
                    self.identities.deny(None);
                }
                match kind {
                    Kind::ObjectSync | Kind::ClusterObjectSync => {
                        self.cache.sweep_records(kind, round, at);
                    }
                    _ if kind.is_node_job() => self.jobs_listed(kind, round, at),
                    _ if kind.is_of_rules() => self.rules_listed(now, kind, round, at),
                    _ if kind.is_of_policy() => self.policy_listed(kind, round, at),
                    _ => self.cache.sweep(now.boot, kind, round, at),
                }
                self.watches.listed(now.boot, kind, version, &mut self.pending);
                match kind {
                    Kind::Device => self.devices_listed(Listed::Yes),
                    Kind::DeviceModel => self.cache.are_models_unlisted = false,
                    _ => {}
                }
            }
            WatchFact::Changed(raw) => {
                if let Some(version) = self.learn(now, kind, &raw) {
                    self.watches.received(kind, &version.to_string());
                }
            }
            WatchFact::Deleted(raw) => self.forget(now, kind, &raw),
            WatchFact::Bookmark(version) => self.watches.received(kind, &version),
            WatchFact::Unserved => {
                let (rng, out) = (&mut self.rng, &mut self.pending);
                self.watches.unserved(now.boot, kind, rng, out);
                match kind {
                    Kind::Device => self.devices_listed(Listed::Unserved),
                    Kind::DeviceModel => self.cache.are_models_unlisted = true,
                    _ => {}
                }
            }
            WatchFact::Gone => self.watches.expired(now.boot, kind, &mut self.rng),
            WatchFact::Refused(code, _) => {
                self.watch_ended(now, kind, &format!("got status {code}, expected 200"));
            }
            WatchFact::Ended(why) => self.watch_ended(now, kind, &why),
        }
    }

    fn watch_ended(&mut self, now: Now, kind: Kind, why: &str) {
        if kind == Kind::DeviceModel && !self.watches.was_listed(kind) {
            self.cache.are_models_unlisted = true;
        }
        let (rng, out) = (&mut self.rng, &mut self.pending);
        self.watches.ended(now.boot, kind, why, rng, out);
    }

    /// An object was deleted.
    fn forget(&mut self, now: Now, kind: Kind, raw: &RawValue) {
        match Object::read(kind, raw) {
            Ok(read) => {
                if self.denies(&read.key) {
                    self.identities.deny(None);
                }
                if kind.is_node_job() {
                    self.job_deleted(&read.key);
                    return self.watches.received(kind, &read.object.version.to_string());
                }
                if kind.is_of_rules() {
                    self.rule_deleted(now, &read.key);
                    return self.watches.received(kind, &read.object.version.to_string());
                }
                if kind.is_of_policy() {
                    self.policy_deleted(&read.key);
                    return self.watches.received(kind, &read.object.version.to_string());
                }
                let known = self.cache.object(&read.key);
                if known.is_none_or(|known| known.version <= read.object.version) {
                    let node = read.object.binding().map(|binding| binding.node);
                    self.cache.deleted(now.boot, &read.key, node);
                }
                self.watches.received(kind, &read.object.version.to_string());
            }
            Err(why) => {
                if let Some(sketch) = self.not_read(kind, raw, &why) {
                    if kind.is_node_job() {
                        self.job_deleted(&sketch.key);
                    }
                    if kind.is_of_rules() {
                        self.rule_deleted(now, &sketch.key);
                    }
                    if kind.is_of_policy() {
                        self.policy_deleted(&sketch.key);
                    }
                    let node = sketch.node.as_deref();
                    self.cache.deleted(now.boot, &sketch.key, node);
                    self.unread.remove(&sketch.key);
                }
            }
        }
    }

    fn record_listed(&mut self, kind: Kind, raw: &RawValue) {
        let round = self.watches.round(kind);
        self.record_received(kind, raw, |cache, row, at| cache.adopt_listed(row, at, round));
    }

    fn record_received(
        &mut self,
        kind: Kind,
        raw: &RawValue,
        take: impl FnOnce(&mut Cache, &sync::Record, u64),
    ) {
        match syncs::read(raw) {
            Ok((row, version)) => {
                if let Some(row) = row {
                    take(&mut self.cache, &row, version);
                }
                self.watches.received(kind, &version.to_string());
            }
            Err(why) => drop(self.not_read(kind, raw, &why)),
        }
    }

    fn learn(&mut self, now: Now, kind: Kind, raw: &RawValue) -> Option<u64> {
        match Object::read(kind, raw) {
            Ok(mut read) => {
                read.object.round = self.watches.round(kind);
                let version = read.object.version;
                if kind.is_node_job()
                    && let Err(why) = self.job_read(now, &read.object, &read.key)
                {
                    return self.stays_unread(kind, raw, &why);
                }
                if kind.is_of_rules()
                    && let Err(why) = self.rule_read(now, &read.object, &read.key)
                {
                    return self.stays_unread(kind, raw, &why);
                }
                if kind.is_of_policy()
                    && let Err(why) = self.policy_read(&read.object, &read.key)
                {
                    return self.stays_unread(kind, raw, &why);
                }
                self.unread.remove(&read.key);
                if self.denies(&read.key) {
                    self.identities.denied_round = self.watches.round(kind);
                    self.deny(raw);
                }
                if !kind.is_node_job() && !kind.is_of_rules() && !kind.is_of_policy() {
                    self.cache.put(now.boot, read, From::Watch);
                }
                Some(version)
            }
            Err(why) => self.stays_unread(kind, raw, &why),
        }
    }

    /// The object exists, and stays as it was.
    fn stays_unread(&mut self, kind: Kind, raw: &RawValue, why: &Peer) -> Option<u64> {
        let sketch = self.not_read(kind, raw, why)?;
        let round = self.watches.round(kind);
        self.cache.seen_unread(&sketch.key, round);
        self.job_unread(&sketch.key, round);
        self.rule_unread(&sketch.key, round);
        self.policy_unread(&sketch.key, round);
        sketch.version
    }

    /// Whether this is the Secret with the denied nodes.
    fn denies(&self, key: &Key) -> bool {
        key.kind == Kind::Secret && *key.name == *DENIED && *key.namespace == *self.config.namespace
    }

    fn deny(&mut self, raw: &RawValue) {
        for line in self.identities.deny(Some(raw)).into_iter().take(UNREAD_LOGGED_MAX) {
            self.pending.push(Action::Log(Severity::Warn, line));
        }
        self.end_revoked();
    }

    /// Logged once for each object, while there are few of them.
    fn not_read(&mut self, kind: Kind, raw: &RawValue, why: &Peer) -> Option<Sketch> {
        let sketch = Sketch::of(kind, raw);
        let key = sketch.as_ref().map_or_else(|| Key::new(kind, "", ""), |it| it.key.clone());
        if self.unread.len() < UNREAD_LOGGED_MAX && self.unread.insert(key.clone()) {
            let why: String = why.to_string().chars().take(256).collect();
            let mut line = format!("api: {key} cannot be read and stays as it was: {why}");
            if self.unread.len() == UNREAD_LOGGED_MAX {
                line += "; others are not logged";
            }
            self.pending.push(Action::Log(Severity::Warn, line));
        }
        sketch
    }
}
