//! The store on the disk: what was kept is there after a crash, all or nothing of what was not.

use std::collections::BTreeMap;
use std::rc::Rc;

use edged::model::meta::{Change, Revision, Row, Saved, StoreOrigin};
use edged::model::pod::Pod;
use edged::model::status::Phase;
use serde::Deserialize as _;
use serde_json::Value;

use super::mirrors::MIRROR;
use super::{api, hub};
use crate::rule::judge;

/// The rows.
#[derive(Default)]
pub struct Store {
    rows: BTreeMap<Box<str>, Stored>,
    /// How the next life finds it; `None`: as it was left.
    found: Option<StoreOrigin>,
    saving: Option<(Revision, Vec<Change>)>,
    last: Revision,
    /// Nothing can be written before.
    pub full_until: u64,
}

/// One row, and what it means.
pub struct Stored {
    pub row: Row,
    pub uid: Box<str>,
    pub version: u64,
    pub deleting: bool,
    pub essence: u64,
    /// What it says, where pods have it in a file.
    pub text: Option<String>,
    /// The pod, if it is one of this node's.
    pub pod: Option<Rc<Pod>>,
    /// What it says of a pod, if that has ended: the pod's row, or the node's word.
    pub ended: Option<Phase>,
    /// It shows a pod of the manifest folder.
    pub is_mirror: bool,
}

impl Store {
    /// There is none yet.
    pub fn new() -> Self {
        Self { found: Some(StoreOrigin::New), ..Self::default() }
    }

    /// The agent begins a life.
    pub fn open(&mut self) -> Saved {
        self.saving = None;
        self.last = Revision::default();
        let rows = self.rows.values().map(|stored| stored.row.clone()).collect();
        Saved { rows, origin: self.found.take().unwrap_or(StoreOrigin::Kept) }
    }

    /// It cannot be used any more, or is not there.
    pub fn lose(&mut self, origin: StoreOrigin) {
        self.rows.clear();
        self.found = Some(origin);
    }

    /// The agent asks for something to be kept.
    pub fn begin(&mut self, revision: Revision, changes: Vec<Change>) {
        judge!(self.saving.is_none(), "[one save] {revision:?} while another is under way");
        judge!(revision > self.last, "[one save] {revision:?} after {:?}", self.last);
        judge!(!changes.is_empty() || revision.0 > 0, "[one save] of nothing");
        self.last = revision;
        self.saving = Some((revision, changes));
    }

    /// What is to be written.
    pub fn end(&mut self) -> Option<(Revision, Vec<Change>)> {
        self.saving.take()
    }

    /// Writes one change: a row, or that there is none.
    pub fn write(&mut self, key: Box<str>, stored: Option<Stored>) {
        match stored {
            Some(stored) => self.rows.insert(key, stored),
            None => self.rows.remove(&key),
        };
    }

    /// One row.
    pub fn get(&self, key: &str) -> Option<&Stored> {
        self.rows.get(key)
    }

    /// The pods that are this node's, and whether they have ended.
    pub fn pods(&self) -> impl Iterator<Item = Rc<Pod>> {
        self.rows.iter().filter_map(|(key, stored)| {
            let pod = stored.pod.as_ref()?;
            let said = self.get(&word_key(key)).filter(|said| said.uid == stored.uid);
            Some(match said.and_then(|said| said.ended) {
                Some(phase) if stored.ended.is_none() => {
                    let mut pod = (**pod).clone();
                    pod.status.phase = phase;
                    Rc::new(pod)
                }
                _ => pod.clone(),
            })
        })
    }

    /// Whether it is durable that the pod has ended.
    pub fn has_ended(&self, key: &str, uid: &str) -> bool {
        let says =
            |key: &str| self.get(key).is_some_and(|it| *it.uid == *uid && it.ended.is_some());
        says(key) || says(&word_key(key))
    }

    /// All of them.
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

/// Where the node keeps its word of a pod that has ended.
fn word_key(key: &str) -> String {
    key.replacen("/pod/", "/podpatch/", 1)
}
