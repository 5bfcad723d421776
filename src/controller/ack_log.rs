//! Saves the acknowledgement records durably.
//!
//! A record is in the store before its object is sent for the first time, so that a node that may
//! have it gets its deletion, whatever happens to us in between. An acknowledgement may be saved
//! later: if it is lost, the object is sent once more.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::event::{Action, Out, Severity};
use super::key::{Key, NodeId};
use super::time::{Backoff, Instant};
use crate::limits::{SAVE_RETRY_MAX_MS, SAVE_RETRY_MIN_MS, SYNC_CALLS_MAX, SYNC_ROWS_MAX};
use crate::model::error::System;
use crate::model::meta::{DiskError, Revision};
use crate::model::sync::Change;

/// The records that are not saved yet.
#[derive(Default)]
pub(super) struct AckLog {
    /// Changed since it was saved.
    pending: BTreeSet<Line>,
    /// The save under way, of these records in order.
    saving: Option<(Revision, Vec<(NodeId, Key)>)>,
    /// The calls about ObjectSyncs under way, one at a time for each.
    running: BTreeSet<Line>,
    last: Revision,
    backoff: Backoff,
    retry_at: Instant,
    is_trouble_logged: bool,
    /// We stop: nothing is retried. A record that is never saved costs one more message.
    is_stopping: bool,
}

/// A record: node, object and uid.
pub(super) type Line = (NodeId, Key, Arc<str>);

impl AckLog {
    /// The node's record of this object has changed.
    pub(super) fn mark_changed(&mut self, id: NodeId, key: &Key, uid: &Arc<str>) {
        self.pending.insert((id, key.clone(), Arc::clone(uid)));
    }

    /// Whether the record is not saved yet.
    pub(super) fn is_pending(&self, id: NodeId, key: &Key) -> bool {
        let from = (id, key.clone(), Arc::from(""));
        [&self.pending, &self.running].iter().any(|lines| {
            let next = lines.range(from.clone()..).next();
            next.is_some_and(|line| line.0 == id && line.1 == *key)
        })
    }

    /// Whether the current state of the record is saved: no save is due or under way.
    pub(super) fn is_saved(&self, id: NodeId, key: &Key) -> bool {
        !self.is_pending(id, key)
            && self.saving.as_ref().is_none_or(|(_, keys)| {
                keys.binary_search_by(|(of, it)| (of, it).cmp(&(&id, key))).is_err()
            })
    }

    /// Whether a record of this node is not saved yet.
    pub(super) fn concerns(&self, id: NodeId) -> bool {
        let from = (id, Key::new(crate::model::api::Kind::ALL[0], "", ""), Arc::from(""));
        self.pending.range(from.clone()..).next().is_some_and(|(first, ..)| *first == id)
            || self.running.range(from..).next().is_some_and(|(first, ..)| *first == id)
            || self.saving.as_ref().is_some_and(|(_, keys)| {
                keys.binary_search_by(|(expected, _)| expected.cmp(&id)).is_ok()
            })
    }

    /// The save succeeded. Returns the records that have not changed meanwhile.
    pub(super) fn saved(&mut self, revision: Revision) -> Vec<(NodeId, Key)> {
        let (expected, mut keys) = self.saving.take().expect("a save is under way");
        assert_eq!(expected, revision, "the answer to another save");
        keys.retain(|(id, key)| !self.is_pending(*id, key));
        self.is_trouble_logged = false;
        self.backoff = Backoff::default();
        keys
    }

    /// The save failed.
    pub(super) fn failed(
        &mut self,
        now: Instant,
        revision: Revision,
        error: &DiskError,
        out: &mut Out,
    ) {
        let (expected, keys) = self.saving.take().expect("a save is under way");
        assert_eq!(expected, revision, "the answer to another save");
        if !self.is_stopping {
            // The uid does not matter to a table: the row is made from the current state.
            self.pending.extend(keys.into_iter().map(|(id, key)| (id, key, Arc::from(""))));
        }
        self.trouble(now, &error.to_string(), out);
    }

    fn trouble(&mut self, now: Instant, why: &str, out: &mut Out) {
        self.retry_at = self.backoff.retry_at(now, SAVE_RETRY_MIN_MS, SAVE_RETRY_MAX_MS);
        if !std::mem::replace(&mut self.is_trouble_logged, true) {
            let line = format!("store: records cannot be saved, nodes get no new objects: {why}");
            out.push(Action::Log(Severity::Error, line));
        }
    }

    /// Requests a save if something has changed. `row`: the current state of a record.
    pub(super) fn step(
        &mut self,
        now: Instant,
        row: impl Fn(NodeId, &Key) -> Change,
        out: &mut Out,
    ) {
        if self.saving.is_some() || self.pending.is_empty() || now < self.retry_at {
            return;
        }
        let mut keys: Vec<(NodeId, Key)> = Vec::new();
        while keys.len() < SYNC_ROWS_MAX
            && let Some((id, key, _)) = self.pending.pop_first()
        {
            if keys.last().is_none_or(|last| *last != (id, key.clone())) {
                keys.push((id, key));
            }
        }
        self.last.0 += 1;
        let changes = keys.iter().map(|(id, key)| row(*id, key)).collect();
        out.push(Action::Save { revision: self.last, changes });
        self.saving = Some((self.last, keys));
    }

    /// The next ObjectSync to write, if there is one and room for it.
    pub(super) fn next(&mut self, now: Instant) -> Option<Line> {
        if now < self.retry_at || self.running.len() >= SYNC_CALLS_MAX {
            return None;
        }
        let line = self.pending.iter().find(|line| !self.running.contains(*line)).cloned()?;
        self.pending.remove(&line);
        self.running.insert(line.clone());
        Some(line)
    }

    /// The call about an ObjectSync is answered; `Err`: it is retried.
    pub(super) fn settled(
        &mut self,
        now: Instant,
        line: &Line,
        result: Result<(), System>,
        out: &mut Out,
    ) {
        self.running.remove(line);
        match result {
            Ok(()) => {
                self.is_trouble_logged = false;
                self.backoff = Backoff::default();
            }
            Err(why) => {
                if !self.is_stopping {
                    self.pending.insert(line.clone());
                }
                self.trouble(now, &why.to_string(), out);
            }
        }
    }

    /// When the next save is due, if nothing happens before.
    pub(super) fn wake_at(&self) -> Option<Instant> {
        let waits = self.saving.is_some() || !self.running.is_empty();
        (!waits && !self.pending.is_empty()).then_some(self.retry_at)
    }

    /// We stop: pending saves are tried once more at most, because the other side waits for our
    /// end.
    pub(super) fn stop(&mut self) {
        self.is_stopping = true;
    }

    /// Everything is saved, or nothing can be saved.
    pub(super) fn may_stop(&self, now: Instant) -> bool {
        let waits = self.saving.is_some() || !self.running.is_empty();
        !waits && (self.pending.is_empty() || now < self.retry_at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::api::Kind;

    fn with_changes(count: usize) -> AckLog {
        let mut ack_log = AckLog::default();
        for at in 0..count {
            ack_log.mark_changed(
                NodeId(1),
                &Key::new(Kind::Pod, "n", &at.to_string()),
                &Arc::from("u"),
            );
        }
        ack_log
    }

    /// The save that is requested at this moment, and how many rows it has.
    fn save(ack_log: &mut AckLog, ms: u64) -> Option<(Revision, usize)> {
        let row = |_: NodeId, key: &Key| Change::Delete {
            node: "e".into(),
            kind: key.kind,
            namespace: "n".into(),
            name: key.name.as_ref().into(),
        };
        let mut out = Out::default();
        ack_log.step(Instant(ms), row, &mut out);
        match out.actions.pop() {
            Some(Action::Save { revision, changes }) => Some((revision, changes.len())),
            _ => None,
        }
    }

    #[test]
    fn a_save_has_a_limit_of_rows_and_the_next_has_the_rest() {
        let mut ack_log = with_changes(SYNC_ROWS_MAX + 1);
        let (revision, rows) = save(&mut ack_log, 1).expect("a save");
        assert_eq!(rows, SYNC_ROWS_MAX);
        assert_eq!(save(&mut ack_log, 1), None, "one at a time");
        ack_log.saved(revision);
        assert_eq!(save(&mut ack_log, 1).map(|(_, rows)| rows), Some(1));
    }

    #[test]
    fn records_being_saved_are_not_saved_and_concern_their_node() {
        let mut ack_log = with_changes(SYNC_ROWS_MAX);
        let key = |name: &str| Key::new(Kind::Pod, "n", name);
        ack_log.mark_changed(NodeId(2), &key("0"), &Arc::from("u"));
        let (revision, rows) = save(&mut ack_log, 1).expect("a save");
        assert_eq!(rows, SYNC_ROWS_MAX);
        for at in 0..SYNC_ROWS_MAX {
            assert!(!ack_log.is_saved(NodeId(1), &key(&at.to_string())), "{at} is being saved");
        }
        assert!(!ack_log.is_saved(NodeId(2), &key("0")), "it waits for its turn");
        assert!(ack_log.is_saved(NodeId(2), &key("1")), "another node's of this name is saved");
        assert!(ack_log.concerns(NodeId(1)) && ack_log.concerns(NodeId(2)));
        ack_log.saved(revision);
        assert!(ack_log.is_saved(NodeId(1), &key("0")));
        assert!(!ack_log.concerns(NodeId(1)) && ack_log.concerns(NodeId(2)));
    }

    #[test]
    fn object_sync_calls_have_a_limit() {
        let mut ack_log = with_changes(SYNC_CALLS_MAX + 1);
        let lines: Vec<Line> = std::iter::from_fn(|| ack_log.next(Instant(1))).collect();
        assert_eq!(lines.len(), SYNC_CALLS_MAX);
        ack_log.settled(Instant(1), &lines[0], Ok(()), &mut Out::default());
        assert!(ack_log.next(Instant(1)).is_some());
        assert!(ack_log.next(Instant(1)).is_none());
    }

    #[test]
    fn failed_saves_back_off_until_one_succeeds() {
        let mut ack_log = with_changes(1);
        let mut ms = 1;
        for n in 0..10 {
            let (revision, _) = save(&mut ack_log, ms).expect("it is tried");
            // It takes its time.
            ms += 10;
            let full = DiskError::Full("the disk is full".to_owned());
            ack_log.failed(Instant(ms), revision, &full, &mut Out::default());
            let wait_ms = (SAVE_RETRY_MIN_MS << n).min(SAVE_RETRY_MAX_MS);
            assert_eq!(ack_log.wake_at(), Some(Instant(ms + wait_ms)), "{n}");
            assert_eq!(save(&mut ack_log, ms + wait_ms - 1), None, "not before");
            ms += wait_ms;
        }
        let (revision, _) = save(&mut ack_log, ms).expect("it is tried");
        ack_log.saved(revision);
        ack_log.mark_changed(NodeId(1), &Key::new(Kind::Pod, "n", "0"), &Arc::from("u"));
        let (revision, _) = save(&mut ack_log, ms).expect("another");
        let full = DiskError::Full("the disk is full".to_owned());
        ack_log.failed(Instant(ms), revision, &full, &mut Out::default());
        assert_eq!(ack_log.wake_at(), Some(Instant(ms + SAVE_RETRY_MIN_MS)));
    }

    #[test]
    fn who_stops_tries_nothing_again() {
        let mut ack_log = with_changes(2);
        let lines: Vec<Line> = std::iter::from_fn(|| ack_log.next(Instant(1))).collect();
        ack_log.stop();
        let fails = |ack_log: &mut AckLog, line, ms| {
            ack_log.settled(Instant(ms), line, Err(System::new("lost")), &mut Out::default());
        };
        fails(&mut ack_log, &lines[0], 2);
        let later = Instant(2 + SAVE_RETRY_MAX_MS);
        assert!(!ack_log.may_stop(later), "the other may still be saved");
        fails(&mut ack_log, &lines[1], later.0);
        let latest = later.plus_ms(SAVE_RETRY_MAX_MS);
        assert!(ack_log.next(latest).is_none());
        assert!(ack_log.may_stop(latest));
        let mut ack_log = with_changes(1);
        let (revision, _) = save(&mut ack_log, 1).expect("a save");
        ack_log.stop();
        let full = DiskError::Full("the disk is full".to_owned());
        ack_log.failed(Instant(2), revision, &full, &mut Out::default());
        assert_eq!(save(&mut ack_log, latest.0), None);
    }
}
