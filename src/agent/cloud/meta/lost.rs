//! A store that does not know all pods of the cloud that run here: it was new or lost.
//!
//! Pods that run and are not in it are left alone, in the next lives as well, until a look finds
//! none, or the list of all that the cloud wants here is kept. Those of which the cloud says that
//! they are gone end all the same: that is kept, and only then acknowledged, for nobody says it
//! twice.
//!
//! If we crash here: the row [`MARK`] says that all of this goes on.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::{Meta, PendingChange, StoredObject, Version};
use crate::limits::DOOMED_MAX;
use crate::model::message::Resource;
use crate::model::meta::{Change, Row, StoreOrigin};

/// The row that says that the store may not know all pods of the cloud that run here, and which of
/// them are gone in the cloud.
pub(super) const MARK: &str = "edged/store/incomplete";

/// What is known of pods that are not in the store.
#[derive(Debug, Default)]
pub(super) struct UnsavedPods {
    /// Uids of pods that are gone in the cloud, and that is durable.
    doomed: BTreeSet<Box<str>>,
    /// These, and those of which it is not durable yet.
    heard: BTreeSet<Box<str>>,
}

impl UnsavedPods {
    /// Takes a row as the store held it at the start.
    pub(super) fn load(&mut self, key: &str, value: &str) {
        if key == MARK {
            self.heard = uids(value);
            self.doomed.clone_from(&self.heard);
        }
    }

    /// A change is durable. Says whether pods are to be looked at for it.
    pub(super) fn saved(&mut self, key: &str, change: Option<&Change>) -> bool {
        if key != MARK {
            return false;
        }
        match change {
            Some(Change::Put(row)) => self.doomed = uids(&row.value),
            Some(Change::Delete { .. }) => *self = Self::default(),
            None => return false,
        }
        true
    }
}

/// What stands in the row.
#[derive(Default, Serialize, Deserialize)]
struct LostMark {
    /// Uids of pods; rows of earlier versions name none.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    gone: BTreeSet<Box<str>>,
}

fn uids(value: &str) -> BTreeSet<Box<str>> {
    serde_json::from_str::<LostMark>(value).unwrap_or_default().gone
}

impl Meta {
    /// Whether pods of the cloud may run here that the store does not know.
    pub(in crate::agent::cloud) fn is_broken(&self) -> bool {
        matches!(self.origin, Some(StoreOrigin::New | StoreOrigin::Lost(_)))
    }

    /// Every pod of a cloud that is to run here is one that the store knows: it holds all there is.
    pub(in crate::agent::cloud) fn is_whole(&mut self) {
        if self.is_broken() {
            self.origin = Some(StoreOrigin::Kept);
            self.waiting.retain(|heard| *heard.key != *MARK || heard.ack.is_some());
            let change = Some(Change::Delete { key: MARK.into() });
            self.say(None, change);
        }
    }

    /// Uids of pods that end although the store does not know them.
    pub(in crate::agent::cloud) fn doomed(&self) -> &BTreeSet<Box<str>> {
        &self.lost.doomed
    }

    /// The object is gone in the cloud: is it a pod that may run here? The next save says so.
    pub(super) fn doom(&mut self, key: &str, uid: &str) -> bool {
        let is_pod = Resource::parse(key).is_some_and(|told| told.kind == "pod");
        if !self.is_broken() || !is_pod || uid.is_empty() {
            return false;
        }
        let known = self.lost.heard.contains(uid);
        if !known && self.lost.heard.len() < DOOMED_MAX {
            self.lost.heard.insert(uid.into());
            self.mark();
        }
        true
    }

    /// The row as it is to be; one that waits to be written is not written any more.
    pub(super) fn mark(&mut self) {
        let gone = self.lost.heard.clone();
        let value = serde_json::to_string(&LostMark { gone }).expect("plain data");
        let row = Row { key: MARK.into(), kind: "edged".into(), value: value.into() };
        self.waiting.retain(|heard| *heard.key != *MARK || heard.ack.is_some());
        self.say(Some(Version::default()), Some(Change::Put(row)));
    }

    /// About a row of our own, which no message is about.
    fn say(&mut self, version: Option<Version>, change: Option<Change>) {
        let (key, thing) = (MARK.into(), StoredObject::Other);
        self.waiting.push(PendingChange { key, version, thing, bytes: 0, change, ack: None });
    }
}
