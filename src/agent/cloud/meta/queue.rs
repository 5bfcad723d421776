//! The changes that were received and are not durable yet, and their saves.
//!
//! ```text
//!  waiting ──Save──▶ saving ──Saved──▶ durable
//!     ▲                 └──SaveFailed──┐
//!     └────────────────────────────────┘ retried with back-off
//! ```

use super::ChangeOutcome;
use super::stored::Version;
use crate::agent::cloud::rows::StoredObject;
use crate::agent::event::{Action, Out, Severity};
use crate::agent::time::{Backoff, Instant, Now};
use crate::limits::{META_WAITING_MAX, SAVE_RETRY_MAX_MS, SAVE_RETRY_MIN_MS};
use crate::model::meta::{Change, DiskError, Revision};
use crate::model::upstream::Origin;

/// The changes in the order in which they were received.
#[derive(Debug, Default)]
pub(super) struct SaveQueue {
    waiting: Vec<PendingChange>,
    /// Of other tables, for the save that begins in this step.
    others: Vec<Change>,
    saving: Option<(Revision, Vec<PendingChange>)>,
    last: Revision,
    backoff: Backoff,
    retry_at: Option<Instant>,
    /// The error of the last save, while saves fail.
    trouble: Option<String>,
}

/// A change that was received and is not durable yet.
#[derive(Debug)]
pub(super) struct PendingChange {
    pub key: Box<str>,
    /// `None`: the object is deleted.
    pub version: Option<Version>,
    pub object: StoredObject,
    /// Bytes that the object will take as a stored row.
    pub bytes: usize,
    /// `None`: nothing to write; it only waits for earlier changes of the key.
    pub change: Option<Change>,
    /// The message to acknowledge when the change is durable.
    pub ack: Option<Origin>,
}

impl SaveQueue {
    /// The error of the last save, while saves fail.
    pub(super) fn trouble(&self) -> Option<&str> {
        self.trouble.as_deref()
    }

    /// All changes, those that are being saved first.
    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = &PendingChange> + Clone {
        self.saving.iter().flat_map(|(_, pending)| pending).chain(&self.waiting)
    }

    /// The latest change of the key.
    pub(super) fn latest(&self, key: &str) -> Option<&PendingChange> {
        self.iter().rfind(|pending| *pending.key == *key)
    }

    /// Adds a change, if so many bytes of text may wait.
    pub(super) fn push(&mut self, pending: PendingChange, bytes_max: usize) -> ChangeOutcome {
        // The cloud sent it again because it got no answer; it gets one when the change is durable.
        if pending.ack.as_ref().is_some_and(|ack| self.owes(ack)) {
            return ChangeOutcome::Queued;
        }
        let waiting: usize = self.waiting.iter().map(PendingChange::text_bytes).sum();
        let bytes = waiting + pending.text_bytes();
        if self.waiting.len() >= META_WAITING_MAX || bytes > bytes_max {
            return ChangeOutcome::Dropped;
        }
        self.waiting.push(pending);
        ChangeOutcome::Queued
    }

    fn owes(&self, ack: &Origin) -> bool {
        self.iter().any(|pending| pending.ack.as_ref().is_some_and(|other| other.is_same(ack)))
    }

    /// Adds a change of a row that the node itself makes, in place of one that is not being saved
    /// yet: there is always room for it.
    pub(super) fn replace(&mut self, pending: PendingChange) {
        self.waiting.retain(|other| other.key != pending.key || other.ack.is_some());
        self.waiting.push(pending);
    }

    /// Saves all waiting changes in one transaction.
    pub(super) fn step(&mut self, now: Now, out: &mut Out) {
        let nothing = self.waiting.is_empty() && self.others.is_empty();
        if nothing || self.save_at(now).is_none_or(|at| at > now.boot) {
            return;
        }
        self.retry_at = None;
        self.last = Revision(self.last.0 + 1);
        let pending = std::mem::take(&mut self.waiting);
        let changes = pending.iter().filter_map(|pending| pending.change.clone());
        let changes = changes.chain(std::mem::take(&mut self.others)).collect();
        self.saving = Some((self.last, pending));
        out.push(Action::Save { revision: self.last, changes });
    }

    /// When a save may begin; `None`: after the one under way.
    pub(super) fn save_at(&self, now: Now) -> Option<Instant> {
        self.saving.is_none().then(|| self.retry_at.unwrap_or(now.boot))
    }

    /// Saves these too. The caller has checked that a save may begin now, and keeps them until it
    /// has succeeded.
    #[cfg(any(feature = "devices", feature = "metaserver", feature = "servicebus"))]
    pub(super) fn save_also(&mut self, changes: impl Iterator<Item = Change>) {
        self.others.extend(changes);
    }

    /// The save succeeded. Returns what is durable.
    pub(super) fn saved(&mut self, revision: Revision, out: &mut Out) -> Vec<PendingChange> {
        let pending = self.end_save(revision);
        if self.trouble.take().is_some() {
            out.push(Action::Log(Severity::Info, "store: changes are saved again".to_owned()));
        }
        self.backoff = Backoff::default();
        pending
    }

    /// The save failed: nothing of it is durable, and it is retried.
    pub(super) fn save_failed(
        &mut self,
        now: Now,
        revision: Revision,
        why: &DiskError,
        out: &mut Out,
    ) {
        let mut pending = self.end_save(revision);
        pending.append(&mut self.waiting);
        self.waiting = pending;
        let retry_at = self.backoff.retry_at(now.boot, SAVE_RETRY_MIN_MS, SAVE_RETRY_MAX_MS);
        self.retry_at = Some(retry_at);
        let why = why.to_string();
        if self.trouble.as_ref() != Some(&why) {
            let line =
                format!("store: changes from the cloud cannot be saved, pods keep running: {why}");
            out.push(Action::Log(Severity::Error, line));
            self.trouble = Some(why);
        }
    }

    fn end_save(&mut self, revision: Revision) -> Vec<PendingChange> {
        let (expected, pending) = self.saving.take().expect("a save is under way");
        assert_eq!(expected, revision, "saves are answered one by one");
        pending
    }

    /// Whether all received changes are durable.
    pub(super) fn is_settled(&self) -> bool {
        self.saving.is_none() && self.waiting.is_empty()
    }

    /// When the next save is due.
    pub(super) fn wake_at(&self) -> Option<Instant> {
        self.retry_at.filter(|_| !self.waiting.is_empty())
    }
}

impl PendingChange {
    pub(super) fn deletion(key: &str, ack: Option<Origin>) -> Self {
        let change = Some(Change::Delete { key: key.into() });
        Self { key: key.into(), version: None, object: StoredObject::Other, bytes: 0, change, ack }
    }

    /// Whether a row of this key is written.
    pub(super) fn is_row(&self) -> bool {
        self.version.is_some() && self.change.is_some()
    }

    /// Bytes of the text that is to be written.
    fn text_bytes(&self) -> usize {
        if let Some(Change::Put(row)) = &self.change { row.value.len() } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Now {
        Now { boot: Instant(ms), wall: None }
    }

    fn save_at(queue: &mut SaveQueue, ms: u64) -> Option<Revision> {
        let mut out = Out::default();
        queue.step(at(ms), &mut out);
        match out.actions.pop() {
            Some(Action::Save { revision, .. }) => Some(revision),
            _ => None,
        }
    }

    #[test]
    fn failed_saves_back_off() {
        let mut queue = SaveQueue::default();
        let outcome = queue.push(PendingChange::deletion("a", None), 0);
        assert!(matches!(outcome, ChangeOutcome::Queued));
        let mut ms = 0;
        for n in 0..10 {
            let revision = save_at(&mut queue, ms).expect("it is tried");
            let full = DiskError::Full("the disk is full".to_owned());
            queue.save_failed(at(ms), revision, &full, &mut Out::default());
            let wait_ms = (SAVE_RETRY_MIN_MS << n).min(SAVE_RETRY_MAX_MS);
            assert_eq!(queue.wake_at(), Some(Instant(ms + wait_ms)));
            assert_eq!(save_at(&mut queue, ms + wait_ms - 1), None, "not before");
            ms += wait_ms;
        }
    }

    #[test]
    fn what_failed_comes_before_what_was_received_meanwhile() {
        let mut queue = SaveQueue::default();
        let deletion = |key: &str| PendingChange::deletion(key, None);
        let _ = queue.push(deletion("a"), 0);
        let revision = save_at(&mut queue, 0).expect("it is saved");
        let _ = queue.push(deletion("b"), 0);
        let full = DiskError::Full("the disk is full".to_owned());
        queue.save_failed(at(0), revision, &full, &mut Out::default());
        assert_eq!(queue.iter().map(|it| &*it.key).collect::<Vec<_>>(), ["a", "b"]);
        assert!(queue.trouble().is_some() && !queue.is_settled());
        let revision = save_at(&mut queue, SAVE_RETRY_MIN_MS).expect("it is saved");
        assert_eq!(queue.saved(revision, &mut Out::default()).len(), 2);
        assert!(queue.trouble().is_none() && queue.is_settled());
    }

    #[test]
    fn a_row_of_the_node_takes_the_place_of_its_earlier_one_and_always_has_room() {
        let mut queue = SaveQueue::default();
        let deletion = |key: &str| PendingChange::deletion(key, None);
        for n in 0..META_WAITING_MAX {
            let _ = queue.push(deletion(&n.to_string()), 0);
        }
        assert!(matches!(queue.push(deletion("more"), 0), ChangeOutcome::Dropped));
        queue.replace(deletion("mark"));
        queue.replace(deletion("mark"));
        assert_eq!(queue.iter().count(), META_WAITING_MAX + 1);
    }
}
