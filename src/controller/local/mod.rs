//! The objects of a cloud without a cluster: what an API server does with them, as far as nodes and
//! their controller notice. Pure: the hands keep it on the disk and feed it a folder of manifests.
//!
//! ```text
//!  manifests ──▶ wanted ──reconcile──▶ objects ──▶ changes ──▶ the disk, then the watches
//!  calls ────────────────────────────────▲
//! ```
//!
//! As an API server: one resourceVersion for all, that only grows; uids; conflicts; status apart
//! from the rest; a pod that is deleted is first marked, until its node says that it is gone. Not
//! as one: nothing is validated beyond what is done here, and no controller of other kinds runs.
//!
//! **What a manifest wants** is brought about again and again: a pod that was deleted comes back,
//! one whose manifest changed in more than its images and metadata is replaced by another of the
//! same name, which begins when the old one is gone. A file that cannot be read is no deletion.

mod calls;
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
pub use wanted::{Twice, Wanted};

/// Which object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// What it is.
    pub kind: Kind,
    /// Where it lies; empty: in none.
    pub namespace: Box<str>,
    /// What it is called.
    pub name: Box<str>,
}

/// One object as it is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Its JSON, whole.
    pub text: Box<str>,
    /// The manifest that it was made of last; `None`: it was made by a call.
    pub made_of: Option<Print>,
}

/// Knows a manifest again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Print {
    /// Of all of it.
    pub whole: u64,
    /// Of what cannot change while the object lives.
    pub fixed: u64,
}

/// As [`Print::fixed`]: every manifest's.
const ANY_PRINT: u64 = 0;

#[derive(Clone, Debug)]
struct Object {
    row: Row,
    /// Whether lists and watches of its kind have it: [`Kind::selector`].
    shown: bool,
    /// The node in whose share it is.
    owner: Option<Box<str>>,
    /// A node made it to show a pod of its own.
    is_mirror: bool,
}

impl Object {
    fn new(key: &Key, row: Row, value: &Value) -> Self {
        let shown = is_shown(key.kind, value);
        let (owner, is_mirror) = (usage::owner(key, value), usage::is_mirror(key, value));
        Self { row, shown, owner, is_mirror }
    }
}

/// Something that has happened to one object.
#[derive(Clone, Debug)]
pub struct Change {
    /// Which.
    pub key: Key,
    /// The resourceVersion that it made.
    pub version: u64,
    /// How it is now; `None`: it is gone.
    pub row: Option<Row>,
    /// For whoever watches; `None`: nothing, the selector has it neither before nor after.
    pub told: Option<Told>,
}

/// What a watch is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    /// `ADDED` or `MODIFIED`: the object.
    Changed(Box<str>),
    /// `DELETED`: as it was at last, with the version of its end.
    Deleted(Box<str>),
}

impl Told {
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
    /// Every source has been read once: what nobody wants may go.
    read: bool,
    version: u64,
    uids: Uids,
    usage: Usage,
    lifecycle: Lifecycle,
    /// Objects that an older version stored beyond today's bounds.
    trimmed: usize,
    /// Not yet taken by the hands.
    changes: Vec<Change>,
    /// For watches that begin a little in the past: what was told, by version.
    history: VecDeque<(u64, Kind, Told)>,
    history_bytes: usize,
    /// Changes up to this version are no longer in the history.
    forgotten: u64,
    events: Recent,
}

impl Objects {
    /// With what was kept. `version`: all that will ever be given are greater.
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
                // They were kept once.
                events.push(key);
                continue;
            }
            let Ok(mut value) = serde_json::from_str::<Value>(&row.text) else { continue };
            // They were kept once, and what its manifest would be without is not known.
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
                objects.changes.push(Change { key: key.clone(), version, row, told: None });
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
        let drop = |key: Key| Change { key, version, row: None, told: None };
        objects.changes.extend(events.into_iter().map(drop));
        objects
    }

    /// How many objects an older version had stored beyond today's bounds.
    pub fn trimmed(&self) -> usize {
        self.trimmed
    }

    /// The store was new: what the manifests want now gets the uids that it had, and will have,
    /// after any other loss of the store.
    pub fn derive_uids(&mut self) {
        self.uids.derive();
    }

    /// What has happened since this was asked last. To be kept before it is told to anybody.
    pub fn take_changes(&mut self) -> Vec<Change> {
        std::mem::take(&mut self.changes)
    }

    /// The resourceVersion of now.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// All objects of a kind that its selector has, in order.
    pub fn list(&self, kind: Kind) -> impl Iterator<Item = &str> {
        let of_kind = self.rows.iter().filter(move |(key, _)| key.kind == kind);
        of_kind.filter(|(_, object)| object.shown).map(|(_, object)| &*object.row.text)
    }

    /// All objects of a kind in a namespace (empty: everywhere), whatever selects them.
    pub fn all(&self, kind: Kind, namespace: &str) -> impl Iterator<Item = &str> {
        self.rows
            .iter()
            .filter(move |(key, _)| key.kind == kind)
            .filter(move |(key, _)| namespace.is_empty() || *key.namespace == *namespace)
            .map(|(_, object)| &*object.row.text)
    }

    /// What a watch that begins at this version has missed; `None`: that is too long ago.
    pub fn since(&self, kind: Kind, version: u64) -> Option<Vec<Told>> {
        if version < self.forgotten {
            return None;
        }
        let later = self.history.iter().filter(|(at, of, _)| *at > version && *of == kind);
        Some(later.map(|(.., told)| told.clone()).collect())
    }

    /// Whether there is such an object.
    pub fn has(&self, key: &Key) -> bool {
        self.rows.contains_key(key)
    }

    /// The file whose manifest wants this object.
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
        let shown = object.shown;
        if key.kind == Kind::Event {
            let old = self.insert(key.clone(), object);
            self.events.put(&key, old.map(|old| old.row.text.len()), text.len());
            while let Some(oldest) = self.events.surplus() {
                self.remove(&oldest);
            }
            return text;
        }
        let before = self.rows.get(&key).is_some_and(|object| object.shown);
        let told = match (before, shown) {
            (_, true) => Some(Told::Changed(text.clone())),
            (true, false) => Some(Told::Deleted(text.clone())),
            (false, false) => None,
        };
        self.insert(key.clone(), object);
        self.note(key, Some(row), told);
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

    /// Takes an object away, for good.
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
        let told = object.shown.then(|| Told::Deleted(text.clone()));
        self.note(key.clone(), None, told);
        Some(text)
    }

    fn note(&mut self, key: Key, row: Option<Row>, told: Option<Told>) {
        let version = self.version;
        if let Some(told) = &told {
            self.history.push_back((version, key.kind, told.clone()));
            self.history_bytes += told.text().len();
            while (self.history.len() > LOCAL_HISTORY_MAX
                || self.history_bytes > LOCAL_HISTORY_BYTES_MAX)
                && let Some((version, _, told)) = self.history.pop_front()
            {
                self.history_bytes -= told.text().len();
                self.forgotten = version;
            }
        }
        self.changes.push(Change { key, version, row, told });
    }

    /// Gives an object what every one has.
    fn found(key: &Key, value: &mut Value, uid: String, now: Option<Timestamp>) {
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

    /// Keys of all objects of which this holds.
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
fn is_shown(kind: Kind, value: &Value) -> bool {
    match kind {
        Kind::Node => value["metadata"]["labels"].get(EDGE_LABEL).is_some(),
        Kind::Pod => value["spec"]["nodeName"].as_str().is_some_and(|name| !name.is_empty()),
        _ => true,
    }
}

#[cfg(test)]
mod tests;
