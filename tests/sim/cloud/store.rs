//! The store on the disk: saved rows survive a crash, an unfinished save is written whole or not at
//! all.

use std::collections::BTreeMap;
use std::rc::Rc;
#[cfg(feature = "metaserver")]
use std::sync::Arc;

#[cfg(feature = "metaserver")]
use edged::model::application::Item;
use edged::model::meta::{Change, Revision, Row, Saved, StoreOrigin};
#[cfg(feature = "metaserver")]
use edged::model::metaserver::{RowChange, StoredItem};
use edged::model::pod::Pod;
use edged::model::status::Phase;
#[cfg(feature = "metaserver")]
use edged::wire::metaserver::item;
use serde::Deserialize as _;
use serde_json::Value;

use super::mirrors::MIRROR;
use super::{api, hub};
use crate::rule::judge;

/// The rows.
#[derive(Default)]
pub struct Store {
    rows: BTreeMap<Box<str>, Stored>,
    /// The state in which the next life finds it; `None`: as it was left.
    found: Option<StoreOrigin>,
    saving: Option<(Revision, Vec<Change>)>,
    last: Revision,
    /// The rows of `meta_v2`, by key.
    #[cfg(feature = "metaserver")]
    items: BTreeMap<Box<str>, Arc<Item>>,
    /// No write succeeds before this time.
    pub full_until: u64,
}

/// One row, and its meaning.
pub struct Stored {
    pub row: Row,
    pub uid: Box<str>,
    pub version: u64,
    pub deleting: bool,
    pub essence: u64,
    /// Its text, for objects that volumes contain.
    pub text: Option<String>,
    /// The pod, if it is one of this node's.
    pub pod: Option<Rc<Pod>>,
    /// The terminal phase, if the row is of a pod that has ended: the pod's row, or the node's
    /// status row.
    pub ended: Option<Phase>,
    /// It is the mirror of a pod of the manifest folder.
    pub is_mirror: bool,
}

impl Store {
    pub fn new() -> Self {
        Self { found: Some(StoreOrigin::New), ..Self::default() }
    }

    /// The agent begins a life.
    pub fn open(&mut self) -> Saved {
        self.saving = None;
        self.last = Revision::default();
        let rows = self.rows.values().map(|stored| stored.row.clone()).collect();
        #[allow(unused_mut, reason = "only MetaServer's objects are added")]
        let mut saved = Saved::new(rows, self.found.take().unwrap_or(StoreOrigin::Kept));
        #[cfg(feature = "metaserver")]
        {
            saved.items = self.stored_items();
        }
        saved
    }

    /// The store is unusable or missing from now on.
    pub fn lose(&mut self, origin: StoreOrigin) {
        self.rows.clear();
        #[cfg(feature = "metaserver")]
        self.items.clear();
        self.found = Some(origin);
    }

    /// The agent requests a save.
    pub fn begin(&mut self, revision: Revision, changes: Vec<Change>) {
        judge!(self.saving.is_none(), "[one save] {revision:?} while another is under way");
        judge!(revision > self.last, "[one save] {revision:?} after {:?}", self.last);
        judge!(!changes.is_empty() || revision.0 > 0, "[one save] of no changes");
        self.last = revision;
        self.saving = Some((revision, changes));
    }

    /// Ends the save under way; returns its changes.
    pub fn end(&mut self) -> Option<(Revision, Vec<Change>)> {
        self.saving.take()
    }

    /// Writes or removes a row.
    pub fn write(&mut self, key: Box<str>, stored: Option<Stored>) {
        match stored {
            Some(stored) => self.rows.insert(key, stored),
            None => self.rows.remove(&key),
        };
    }

    pub fn get(&self, key: &str) -> Option<&Stored> {
        self.rows.get(key)
    }

    /// The pods of this node, with whether they have ended.
    pub fn pods(&self) -> impl Iterator<Item = Rc<Pod>> {
        self.rows.iter().filter_map(|(key, stored)| {
            let pod = stored.pod.as_ref()?;
            let status_row =
                self.get(&word_key(key)).filter(|status_row| status_row.uid == stored.uid);
            Some(match status_row.and_then(|status_row| status_row.ended) {
                Some(phase) if stored.ended.is_none() => {
                    let mut pod = (**pod).clone();
                    pod.status.phase = phase;
                    Rc::new(pod)
                }
                _ => pod.clone(),
            })
        })
    }

    /// Whether the end of the pod is durable.
    pub fn has_ended(&self, key: &str, uid: &str) -> bool {
        let says =
            |key: &str| self.get(key).is_some_and(|it| *it.uid == *uid && it.ended.is_some());
        says(key) || says(&word_key(key))
    }

    /// The objects that MetaServer may serve: its rows, and rows of `meta`.
    #[cfg(feature = "metaserver")]
    fn stored_items(&self) -> Vec<StoredItem> {
        let of_meta = self.rows.values().filter(|it| &*it.row.kind == "endpoints");
        let of_meta = of_meta.filter_map(|it| item::read(&it.row.value, None).map(Arc::new));
        let of_meta = of_meta.map(|item| StoredItem { item, has_row: false });
        let own = self.items.values().cloned().map(|item| StoredItem { item, has_row: true });
        own.chain(of_meta).collect()
    }

    /// Writes or removes a row of `meta_v2`.
    #[cfg(feature = "metaserver")]
    pub fn write_item(&mut self, change: RowChange) {
        match change {
            RowChange::Put(gvr, item) => {
                self.items.insert(gvr.key(&item.namespace, &item.name).into(), item);
            }
            RowChange::Delete(key) => drop(self.items.remove(&key)),
        }
    }

    /// The rows of `meta_v2`.
    #[cfg(feature = "metaserver")]
    pub fn items(&self) -> impl Iterator<Item = &Item> {
        self.items.values().map(|item| &**item)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&Box<str>, &Stored)> {
        self.rows.iter()
    }
}

impl Stored {
    /// Reads a row.
    pub fn of(row: Row) -> Self {
        let value: Value = serde_json::from_str(&row.value).unwrap_or_default();
        let metadata = &value["metadata"];
        let text = |value: &Value| value.as_str().map(Box::from);
        let is_mirror = metadata["annotations"].get(MIRROR).is_some();
        let ours =
            &*row.kind == "pod" && value["spec"]["nodeName"] == crate::world::NODE && !is_mirror;
        let ended = match value["status"]["phase"].as_str() {
            Some("Succeeded") => Some(Phase::Succeeded),
            Some("Failed") => Some(Phase::Failed),
            _ => None,
        };
        let ended = ended.filter(|_| ours || &*row.kind == "podpatch");
        Self {
            uid: text(&metadata["uid"]).unwrap_or_default(),
            version: text(&metadata["resourceVersion"]).and_then(|it| it.parse().ok()).unwrap_or(0),
            deleting: metadata.get("deletionTimestamp").is_some(),
            essence: hub::essence(&value),
            text: api::text(&value),
            pod: ours.then(|| {
                let mut pod: Pod = Pod::deserialize(&value).expect("a pod");
                pod.status.phase = ended.unwrap_or(Phase::Pending);
                Rc::new(pod)
            }),
            ended,
            is_mirror,
            row,
        }
    }
}

/// The key of the node's status row of a pod that has ended.
fn word_key(key: &str) -> String {
    key.replacen("/pod/", "/podpatch/", 1)
}
