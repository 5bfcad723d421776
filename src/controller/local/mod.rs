//! The objects of a cloud without a cluster: the parts of an API server that nodes and their
//! controller need. Pure: the event loop stores the objects on disk and reads a folder of
//! manifests.
//!
//! ```text
//!  manifests ──▶ wanted ──reconcile──▶ objects ──▶ changes ──▶ the disk, then the watches
//!  calls ────────────────────────────────▲
//! ```
//!
//! Like an API server: one growing resourceVersion for all; uids; conflicts; a status subresource;
//! a deleted pod is first marked, until its node confirms that it is gone. Unlike an API server:
//! nothing is validated beyond what is done here, and there are no controllers of other kinds.
//!
//! **The objects of the manifests** are reconciled: a deleted pod is created again, and a pod whose
//! manifest changed in more than its images and metadata is replaced by another one of the same
//! name, which is created when the old one is gone. A file that cannot be read does not delete
//! anything.

pub mod any;
mod calls;
mod discovery;
mod lifecycle;
pub mod patch;
mod pods;
mod recent;
mod uid;
mod usage;
mod wanted;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde_json::{Value, json};

use super::time::Rng;
use crate::limits::{LOCAL_HISTORY_BYTES_MAX, LOCAL_HISTORY_MAX};
use crate::model::api::{EDGE_LABEL, Kind};
use crate::model::raw::drop_nulls;
use crate::model::time::Timestamp;
use lifecycle::Lifecycle;
use recent::Recent;
use uid::Uids;
use usage::Usage;
pub use wanted::{Duplicate, Wanted};

/// The key of an object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    pub kind: Kind,
    /// Empty: cluster-scoped.
    pub namespace: Box<str>,
    pub name: Box<str>,
}

/// An object as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Its whole JSON.
    pub text: Box<str>,
    /// The manifest that it was last made from; `None`: it was created by a call.
    pub made_of: Option<Print>,
}

/// Identifies the content of a manifest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Print {
    /// Hash of all of it.
    pub whole: u64,
    /// Hash of the immutable fields.
    pub fixed: u64,
}

/// A [`Print::fixed`] that matches every manifest.
const ANY_PRINT: u64 = 0;

#[derive(Clone, Debug)]
struct Object {
    row: Row,
    /// Whether lists and watches of its kind include it: [`Kind::selector`].
    is_selected: bool,
    /// The node whose quota it counts for.
    owner: Option<Box<str>>,
    /// It is the mirror pod of a node.
    is_mirror: bool,
}

impl Object {
    fn new(key: &Key, row: Row, value: &Value) -> Self {
        let is_selected = matches_selector(key.kind, value);
        let (owner, is_mirror) = (usage::owner(key, value), usage::is_mirror(key, value));
        Self { row, is_selected, owner, is_mirror }
    }
}

/// A change of one object.
#[derive(Clone, Debug)]
pub struct Change {
    pub key: Key,
    /// The resourceVersion of the change.
    pub version: u64,
    /// The new state; `None`: it is deleted.
    pub row: Option<Row>,
    /// The event for watches; `None`: the selector excludes it before and after.
    pub watch_event: Option<WatchEvent>,
}

/// The event of a watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WatchEvent {
    /// `ADDED` or `MODIFIED`: the object.
    Changed(Box<str>),
    /// `DELETED`: its last state, with the version of the deletion.
    Deleted(Box<str>),
}

impl WatchEvent {
    fn text(&self) -> &str {
        match self {
            Self::Changed(text) | Self::Deleted(text) => text,
        }
    }
}

/// All objects.
#[derive(Debug)]
pub struct Objects {
    rows: BTreeMap<Key, Object>,
    wanted: BTreeMap<Key, Wanted>,
    /// Every source was read once: objects that no manifest wants may be deleted.
    read: bool,
    version: u64,
    uids: Uids,
    usage: Usage,
    lifecycle: Lifecycle,
    /// Objects of an older version that exceeded today's limits.
    trimmed: usize,
    /// Not yet taken by the event loop.
    changes: Vec<Change>,
    /// For watches that begin a little in the past: the events, by version.
    history: VecDeque<(u64, Kind, WatchEvent)>,
    history_bytes: usize,
    /// Changes up to this version are no longer in the history.
    forgotten: u64,
    events: Recent,
}

impl Objects {
    /// With the content of the store. `version`: every new version is greater.
    pub fn load(rows: Vec<(Key, Row)>, version: u64, seed: u64) -> Self {
        let mut objects = Self {
            rows: BTreeMap::new(),
            wanted: BTreeMap::new(),
            read: false,
            version,
            uids: Uids::new(Rng::new(seed)),
            usage: Usage::default(),
            lifecycle: Lifecycle::default(),
            trimmed: 0,
            changes: Vec::new(),
            history: VecDeque::new(),
            history_bytes: 0,
            forgotten: version,
            events: Recent::default(),
        };
        let mut events = Vec::new();
        for (key, mut row) in rows {
            if key.kind == Kind::Event {
                // An older version stored them.
                events.push(key);
                continue;
            }
            let Ok(mut value) = serde_json::from_str::<Value>(&row.text) else { continue };
            // An older version stored `null` values, and the hash of the manifest without them is
            // not known.
            let respelt = value.get_mut("spec").is_some_and(drop_nulls);
            if drop_nulls(&mut value) || respelt {
                row.text = value.to_string().into();
            }
            if let Some(print) = row.made_of.as_mut().filter(|_| respelt) {
                print.fixed = ANY_PRINT;
            }
            let version = version_of(&value);
            objects.version = objects.version.max(version);
            if usage::trim(&key, &mut value, row.text.len()) {
                row.text = value.to_string().into();
                objects.trimmed += 1;
                let row = Some(row.clone());
                objects.changes.push(Change { key: key.clone(), version, row, watch_event: None });
            }
            objects.lifecycle.load(&key, &value);
            let object = Object::new(&key, row, &value);
            objects.insert(key, object);
        }
        for key in objects.surplus_mirrors() {
            objects.take(&key);
            objects.trimmed += 1;
            events.push(key);
        }
        objects.forgotten = objects.version;
        let version = objects.version;
        let drop = |key: Key| Change { key, version, row: None, watch_event: None };
        objects.changes.extend(events.into_iter().map(drop));
        objects
    }

    /// The number of objects of an older version that exceeded today's limits.
    pub fn trimmed(&self) -> usize {
        self.trimmed
    }

    /// The store was new: the objects of the manifests get derived uids, which are the same after
    /// every loss of the store.
    pub fn derive_uids(&mut self) {
        self.uids.derive();
    }

    /// The changes since the last call. They are stored before they are reported to anybody.
    pub fn take_changes(&mut self) -> Vec<Change> {
        std::mem::take(&mut self.changes)
    }

    /// The current resourceVersion.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// All objects of a kind that its selector includes, in order.
    pub fn list(&self, kind: Kind) -> impl Iterator<Item = &str> {
        let of_kind = self.rows.iter().filter(move |(key, _)| key.kind == kind);
        of_kind.filter(|(_, object)| object.is_selected).map(|(_, object)| &*object.row.text)
    }

    /// All objects of a kind in a namespace (empty: in all), whatever the selector.
    pub fn all(&self, kind: Kind, namespace: &str) -> impl Iterator<Item = &str> {
        self.rows
            .iter()
            .filter(move |(key, _)| key.kind == kind)
            .filter(move |(key, _)| namespace.is_empty() || *key.namespace == *namespace)
            .map(|(_, object)| &*object.row.text)
    }

    /// All objects of a kind with their keys, in order.
    pub fn keyed(&self, kind: Kind) -> impl Iterator<Item = (&Key, &str)> {
        let first = Key { kind, namespace: "".into(), name: "".into() };
        let rows = self.rows.range(first..).take_while(move |(key, _)| key.kind == kind);
        rows.map(|(key, object)| (key, &*object.row.text))
    }

    /// One object.
    pub fn text(&self, key: &Key) -> Option<&str> {
        self.rows.get(key).map(|object| &*object.row.text)
    }

    /// The events that a watch from this version has missed; `None`: that is too long ago.
    pub fn since(&self, kind: Kind, version: u64) -> Option<Vec<WatchEvent>> {
        if version < self.forgotten {
            return None;
        }
        let later = self.history.iter().filter(|(at, of, _)| *at > version && *of == kind);
        Some(later.map(|(.., watch_event)| watch_event.clone()).collect())
    }

    /// Whether the object exists.
    pub fn has(&self, key: &Key) -> bool {
        self.rows.contains_key(key)
    }

    /// The file whose manifest defines this object.
    pub fn source(&self, key: &Key) -> Option<&str> {
        self.wanted.get(key).map(|wanted| &*wanted.source)
    }

    fn value(&self, key: &Key) -> Option<Value> {
        let object = self.rows.get(key)?;
        Some(serde_json::from_str(&object.row.text).expect("it was written as JSON"))
    }

    /// Writes an object with a new version.
    fn put(&mut self, key: Key, mut value: Value, made_of: Option<Print>) -> Box<str> {
        self.version += u64::from(key.kind != Kind::Event);
        value["kind"] = key.kind.name().into();
        value["apiVersion"] = key.kind.api_version().into();
        value["metadata"]["resourceVersion"] = self.version.to_string().into();
        let text: Box<str> = value.to_string().into();
        let row = Row { text: text.clone(), made_of };
        let object = Object::new(&key, row.clone(), &value);
        let is_selected = object.is_selected;
        if key.kind == Kind::Event {
            let old = self.insert(key.clone(), object);
            self.events.put(&key, old.map(|old| old.row.text.len()), text.len());
            while let Some(oldest) = self.events.surplus() {
                self.remove(&oldest);
            }
            return text;
        }
        let before = self.rows.get(&key).is_some_and(|object| object.is_selected);
        let watch_event = match (before, is_selected) {
            (_, true) => Some(WatchEvent::Changed(text.clone())),
            (true, false) => Some(WatchEvent::Deleted(text.clone())),
            (false, false) => None,
        };
        self.insert(key.clone(), object);
        self.record_change(key, Some(row), watch_event);
        text
    }

    fn insert(&mut self, key: Key, object: Object) -> Option<Object> {
        let counts = key.kind != Kind::Event;
        if counts {
            self.usage.add(&object);
        }
        let old = self.rows.insert(key, object);
        if let Some(old) = old.as_ref().filter(|_| counts) {
            self.usage.remove(old);
        }
        old
    }

    fn take(&mut self, key: &Key) -> Option<Object> {
        let object = self.rows.remove(key)?;
        if key.kind != Kind::Event {
            self.usage.remove(&object);
        }
        Some(object)
    }

    /// Deletes an object.
    fn remove(&mut self, key: &Key) -> Option<Box<str>> {
        let mut value = self.value(key)?;
        let object = self.take(key)?;
        if key.kind == Kind::Event {
            self.events.removed(key, object.row.text.len());
            return Some(object.row.text);
        }
        if key.kind == Kind::Node {
            self.lifecycle.removed(&key.name);
        }
        self.version += 1;
        value["metadata"]["resourceVersion"] = self.version.to_string().into();
        let text: Box<str> = value.to_string().into();
        let watch_event = object.is_selected.then(|| WatchEvent::Deleted(text.clone()));
        self.record_change(key.clone(), None, watch_event);
        if key.kind == Kind::Device {
            // It owns its status.
            self.remove(&Key { kind: Kind::DeviceStatus, ..key.clone() });
        }
        Some(text)
    }

    fn record_change(&mut self, key: Key, row: Option<Row>, watch_event: Option<WatchEvent>) {
        let version = self.version;
        if let Some(watch_event) = &watch_event {
            self.history.push_back((version, key.kind, watch_event.clone()));
            self.history_bytes += watch_event.text().len();
            while (self.history.len() > LOCAL_HISTORY_MAX
                || self.history_bytes > LOCAL_HISTORY_BYTES_MAX)
                && let Some((version, _, watch_event)) = self.history.pop_front()
            {
                self.history_bytes -= watch_event.text().len();
                self.forgotten = version;
            }
        }
        self.changes.push(Change { key, version, row, watch_event });
    }

    /// Deletes the oldest jobs for nodes that a command has made and that are over, except so many.
    pub fn prune_jobs(&mut self, kept: usize) {
        let made = |key: &Key| self.rows[key].row.made_of.is_none();
        let all = Kind::NODE_JOBS.into_iter().flat_map(|kind| self.keyed(kind));
        let over = all.filter(|(key, _)| made(key)).filter_map(|(key, text)| {
            let value: Value = serde_json::from_str(text).ok()?;
            let phase = value["status"]["phase"].as_str()?;
            matches!(phase, "Completed" | "Failure").then(|| (version_of(&value), key.clone()))
        });
        let over: BTreeSet<(u64, Key)> = over.collect();
        let surplus = over.len().saturating_sub(kept);
        for (_, key) in over.into_iter().take(surplus) {
            self.remove(&key);
        }
    }

    /// Sets the fields that every new object has.
    fn complete_metadata(key: &Key, value: &mut Value, uid: String, now: Option<Timestamp>) {
        if !value.is_object() {
            *value = json!({});
        }
        let metadata = &mut value["metadata"];
        metadata["name"] = (&*key.name).into();
        if key.kind.is_namespaced() {
            metadata["namespace"] = (&*key.namespace).into();
        }
        metadata["uid"] = uid.into();
        metadata["creationTimestamp"] =
            now.map_or(Value::Null, |now| Value::String(now.to_string()));
        if key.kind == Kind::Pod {
            pods::complete(value);
        }
    }

    /// The keys of all objects for which this holds.
    fn keys_where(&self, holds: impl Fn(&Key, &Object) -> bool) -> BTreeSet<Key> {
        let held = self.rows.iter().filter(|(key, object)| holds(key, object));
        held.map(|(key, _)| key.clone()).collect()
    }
}

fn version_of(value: &Value) -> u64 {
    let text = value["metadata"]["resourceVersion"].as_str().unwrap_or_default();
    text.parse().unwrap_or(0)
}

/// [`Kind::selector`]
fn matches_selector(kind: Kind, value: &Value) -> bool {
    match kind {
        Kind::Node => value["metadata"]["labels"].get(EDGE_LABEL).is_some(),
        Kind::Pod => value["spec"]["nodeName"].as_str().is_some_and(|name| !name.is_empty()),
        _ => true,
    }
}

#[cfg(test)]
mod tests;
