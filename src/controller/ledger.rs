//! What is to be kept of the records, durably.
//!
//! A record is in the store before its object is sent for the first time, so that a node that may
//! have it is told when it is gone, whatever happens to us in between. An acknowledgement may be
//! kept later: if it is lost, the object is sent once more.

use std::collections::BTreeSet;

use super::event::{Action, Out, Severity};
use super::key::{Key, NodeId};
use super::time::{Backoff, BackoffBounds, Instant};
use crate::limits::{SAVE_RETRY_MAX_MS, SAVE_RETRY_MIN_MS, SYNC_ROWS_MAX};
use crate::model::meta::{DiskError, Revision};
use crate::model::sync::Change;

/// What is not kept yet.
#[derive(Default)]
pub(super) struct Ledger {
    /// Changed since it was saved.
    pending: BTreeSet<(NodeId, Key)>,
    /// Under way.
    asked: Option<(Revision, Vec<(NodeId, Key)>)>,
    last: Revision,
    backoff: Backoff,
    retry_at: Instant,
    said: bool,
}

impl Ledger {
    /// The node's record of this object has changed.
    pub(super) fn note(&mut self, id: NodeId, key: &Key) {
        self.pending.insert((id, key.clone()));
    }

    /// Whether something about this node is not kept yet.
    pub(super) fn concerns(&self, id: NodeId) -> bool {
        let from = (id, Key::new(crate::model::api::Kind::ALL[0], "", ""));
        self.pending.range(from..).next().is_some_and(|(first, _)| *first == id)
            || self.asked.iter().flat_map(|(_, keys)| keys).any(|(asked, _)| *asked == id)
    }

    /// It is kept. Those that have not changed meanwhile.
    pub(super) fn saved(&mut self, revision: Revision) -> Vec<(NodeId, Key)> {
        let (asked, mut keys) = self.asked.take().expect("a save was asked for");
        assert_eq!(asked, revision, "the answer to another save");
        keys.retain(|pair| !self.pending.contains(pair));
        self.said = false;
        keys
    }

    /// Nothing of it is kept.
    pub(super) fn failed(
        &mut self,
        now: Instant,
        revision: Revision,
        error: &DiskError,
        out: &mut Out,
    ) {
        let (asked, keys) = self.asked.take().expect("a save was asked for");
        assert_eq!(asked, revision, "the answer to another save");
        self.pending.extend(keys);
        let bounds = BackoffBounds {
            min_ms: SAVE_RETRY_MIN_MS,
            max_ms: SAVE_RETRY_MAX_MS,
            calm_ms: SAVE_RETRY_MAX_MS,
        };
        self.backoff.grow(now, now, bounds);
        self.retry_at = now.plus_ms(self.backoff.delay_ms());
        if !std::mem::replace(&mut self.said, true) {
            let line = format!("store: nodes get nothing new while it keeps nothing: {error}");
            out.push(Action::Log(Severity::Error, line));
        }
    }

    /// Asks for a save, if there is something to keep. `row`: how the record is now.
    pub(super) fn step(
        &mut self,
        now: Instant,
        row: impl Fn(NodeId, &Key) -> Change,
        out: &mut Out,
    ) {
        if self.asked.is_some() || self.pending.is_empty() || now < self.retry_at {
            return;
        }
        let mut keys = Vec::new();
        while keys.len() < SYNC_ROWS_MAX
            && let Some(pair) = self.pending.pop_first()
        {
            keys.push(pair);
        }
        self.last.0 += 1;
        let changes = keys.iter().map(|(id, key)| row(*id, key)).collect();
        out.push(Action::Save { revision: self.last, changes });
        self.asked = Some((self.last, keys));
    }

    /// When something is to be asked for, if nothing happens before.
    pub(super) fn wake_at(&self) -> Option<Instant> {
        (self.asked.is_none() && !self.pending.is_empty()).then_some(self.retry_at)
    }

    /// All is kept, or nothing can be.
    pub(super) fn may_stop(&self, now: Instant) -> bool {
        self.asked.is_none() && (self.pending.is_empty() || now < self.retry_at)
    }
}
