//! MetaManager: stores what the cloud sent, and decides which of it applies (wire spec section 6).
//!
//! ```text
//!  received ─▶ waiting ──Save──▶ saving ──Saved──▶ stored: it applies, and is acknowledged
//!                 ▲                 └──SaveFailed──┐
//!                 └────────────────────────────────┘ retried with back-off
//! ```
//!
//! Intended behaviour: nothing applies and nothing is acknowledged before it is durable. The store
//! never goes back (rule R9): the greater `resourceVersion` of an object stays, a deletion is final
//! for its uid, and a deletion timestamp is never removed. An update that changes only the status,
//! mostly the status that we wrote ourselves, costs no write.
//!
//! If we crash here: what was not saved was not acknowledged, and the cloud sends it again.

mod load;
mod lost;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use crate::agent::event::{Action, Out, Severity};
use crate::agent::time::{Backoff, Instant, Now};
use crate::limits::{
    Budget, META_ROWS_MAX, META_WAITING_MAX, SAVE_RETRY_MAX_MS, SAVE_RETRY_MIN_MS,
    STORE_KEY_BYTES_MAX, STORE_VALUE_BYTES_MAX, TOMBSTONES_MAX,
};
#[cfg(doc)]
use crate::model::meta::Saved;
use crate::model::meta::{Change, DiskError, Revision, Row, StoreOrigin};
use crate::model::object::Object;
use crate::model::token::Token;
use crate::model::upstream::Origin;

use super::rows::{self, Content, Mirror, StoredObject};
use lost::{MARK, UnsavedPods};

/// The stored objects, and the changes that are not durable yet.
#[derive(Debug, Default)]
pub(super) struct Meta {
    node: Box<str>,
    budget: Budget,
    /// The durable rows, by key.
    stored: BTreeMap<Box<str>, StoredRow>,
    /// Bytes that the stored objects take, in memory or as text, whichever is more.
    bytes: usize,
    /// Rows of the store for which there is no memory: uids by key. Their content is not known; the
    /// rows stay in the store.
    unread: BTreeMap<Box<str>, Box<str>>,
    /// Log line for the first object that was refused for lack of memory, until it is logged.
    refusal: Option<String>,
    is_refusal_logged: bool,
    waiting: Vec<PendingChange>,
    saving: Option<(Revision, Vec<PendingChange>)>,
    last: Revision,
    backoff: Backoff,
    retry_at: Option<Instant>,
    /// Uids of deleted objects, the oldest first: they are never accepted again.
    deleted_uids: VecDeque<Box<str>>,
    origin: Option<StoreOrigin>,
    /// See [`Saved::is_unsynced`].
    is_unsynced: bool,
    unsaved_pods: UnsavedPods,
    /// The error of the last save, while saves fail.
    trouble: Option<String>,
}

/// A durable row: the part of it that is needed while running.
#[derive(Debug)]
struct StoredRow {
    version: Version,
    /// See [`Meta::bytes`].
    bytes: usize,
    object: StoredObject,
}

/// Distinguishes one state of an object from another.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Version {
    uid: Box<str>,
    /// `resourceVersion`; 0: not given.
    number: u64,
    /// Hash of all fields except versions and statuses.
    digest: u64,
    deleting: bool,
}

/// A change that was received and is not durable yet.
#[derive(Debug)]
struct PendingChange {
    key: Box<str>,
    /// `None`: the object is deleted.
    version: Option<Version>,
    object: StoredObject,
    /// Bytes that the object will take; see [`Meta::bytes`].
    bytes: usize,
    /// `None`: nothing to write; it only waits for earlier changes of the key.
    change: Option<Change>,
    /// The message to acknowledge when the change is durable.
    ack: Option<Origin>,
}

/// The result of receiving a change.
#[derive(Debug)]
pub(super) enum ChangeOutcome {
    /// It will be written; it is acknowledged when it is durable.
    Queued,
    /// There is nothing to write: it is acknowledged now.
    Unchanged,
    /// It cannot be stored: the cloud gets an error with the reason.
    Refused(String),
    /// The queue is full: the cloud gets no answer and sends it again.
    Dropped,
}

/// The changes that became durable.
#[derive(Debug, Default)]
pub(super) struct DurableChanges {
    /// Messages to acknowledge.
    pub acks: Vec<Origin>,
    /// A pod was added, changed or deleted.
    pub pods: bool,
    /// An object that pods use was added, changed or deleted.
    pub objects: bool,
}

impl Meta {
    pub(super) fn new(node: &str, budget: Budget) -> Self {
        Self { node: node.into(), budget, ..Self::default() }
    }

    /// Whether the store was new, lost or complete at the start; `None`: it is not read yet.
    pub(super) fn origin(&self) -> Option<&StoreOrigin> {
        self.origin.as_ref()
    }

    /// The error of the last save, while saves fail.
    pub(super) fn trouble(&self) -> Option<&str> {
        self.trouble.as_deref()
    }

    /// All durable objects, in the order of their keys.
    pub(super) fn stored_objects(&self) -> impl Iterator<Item = &StoredObject> {
        self.stored.values().map(|row| &row.object)
    }

    /// The durable object of this key.
    pub(super) fn stored_object(&self, key: &str) -> Option<&StoredObject> {
        self.stored.get(key).map(|row| &row.object)
    }

    /// Whether this uid is the latest that was received for the key, durable or not.
    pub(super) fn is_latest(&self, key: &str, uid: &str) -> bool {
        self.latest(key).is_some_and(|latest| *latest.uid == *uid)
    }

    /// The uid of the latest object that was received for the key, durable or not.
    pub(super) fn uid(&self, key: &str) -> Option<&str> {
        self.latest(key).map(|latest| &*latest.uid)
    }

    /// Whether a change of this key is not durable yet.
    pub(super) fn is_pending(&self, key: &str) -> bool {
        self.pending(key).is_some()
    }

    /// The objects that pods use.
    pub(super) fn objects(&self) -> impl Iterator<Item = Arc<Object>> {
        self.stored_objects().filter_map(|object| match object {
            StoredObject::Object(object) => Some(object.clone()),
            _ => None,
        })
    }

    /// The mirrors of static pods, by key.
    pub(super) fn mirrors(&self) -> impl Iterator<Item = (&str, &Mirror)> {
        self.stored.iter().filter_map(|(key, row)| match &row.object {
            StoredObject::Mirror(mirror) => Some((&**key, mirror)),
            _ => None,
        })
    }

    pub(super) fn tokens(&self) -> impl Iterator<Item = &Arc<Token>> {
        self.stored_objects().filter_map(|object| match object {
            StoredObject::Token(token) => Some(token),
            _ => None,
        })
    }

    /// Deletes the tokens of a pod that was deleted.
    pub(super) fn delete_tokens(&mut self, uid: &str) {
        let of_it = |object: &StoredObject| match object {
            StoredObject::Token(token) => !uid.is_empty() && token.pod_uid() == uid,
            _ => false,
        };
        let keys: Vec<Box<str>> = self
            .stored
            .iter()
            .filter(|(_, row)| of_it(&row.object))
            .map(|(key, _)| key.clone())
            .collect();
        for key in keys {
            let _ = self.delete(&key, "", None);
        }
    }

    /// Receives an object that was added or changed.
    pub(super) fn put(
        &mut self,
        key: &str,
        kind: &str,
        value: &str,
        ack: Option<Origin>,
    ) -> ChangeOutcome {
        let content = match rows::read(kind, value, &self.budget) {
            Ok(content) => content,
            Err(why) => return ChangeOutcome::Refused(why),
        };
        let version = Version::of(&content);
        let latest = self.latest(key);
        let same = latest.is_some_and(|latest| latest.is_same_as(&version));
        let is_old = latest.is_some_and(|latest| latest.is_newer_than(&version));
        // An unchanged object was read when it was received first.
        let read = if same {
            Ok((StoredObject::Other, content.value))
        } else {
            content.into_object(&self.node)
        };
        let (object, value) = match read {
            Ok(read) => read,
            Err(why) => return ChangeOutcome::Refused(why),
        };
        if self.deleted_uids.contains(&version.uid) {
            return ChangeOutcome::Unchanged;
        }
        if is_old {
            return self.wait_for_earlier(key, ack);
        }
        // An object that takes no memory takes room in the store, which has the same limit.
        let bytes = memory_bytes(key, &version, &object).max(value.len());
        let bytes = if same { 0 } else { bytes };
        if let Some(why) = self.no_room(key, value.len(), bytes) {
            return ChangeOutcome::Refused(why);
        }
        if same && !self.must_wait(key) {
            // Only in memory: the difference is not worth a write.
            let row = self.stored.get_mut(key).expect("the latest is stored");
            row.version = version;
            return ChangeOutcome::Unchanged;
        }
        let row = || Row { key: key.into(), kind: kind.into(), value: value.into() };
        self.enqueue(PendingChange {
            key: key.into(),
            version: Some(version),
            change: (!same).then(|| Change::Put(row())),
            object,
            bytes,
            ack,
        })
    }

    /// Receives a deletion; `uid` empty: of any object of this key.
    pub(super) fn delete(&mut self, key: &str, uid: &str, ack: Option<Origin>) -> ChangeOutcome {
        let named = self.latest(key).map(|latest| &latest.uid).filter(|_| uid.is_empty());
        let uid: Box<str> = named.map_or_else(|| uid.into(), Clone::clone);
        if !uid.is_empty() && !self.deleted_uids.contains(&uid) {
            if self.deleted_uids.len() == TOMBSTONES_MAX {
                self.deleted_uids.pop_front();
            }
            self.deleted_uids.push_back(uid.clone());
        }
        let is_unsaved_pod = self.add_tombstone(key, &uid);
        match self.latest(key) {
            Some(latest) if latest.uid == uid => {}
            // The deletion is about another object of the same name, or about one that is not
            // stored.
            Some(_) => return self.wait_for_earlier(key, ack),
            None if self.has_unread(key, &uid) => {}
            None if is_unsaved_pod => return self.wait_for_earlier(MARK, ack),
            None => return self.wait_for_earlier(key, ack),
        }
        self.enqueue(PendingChange::deletion(key, ack))
    }

    /// Whether the latest state of the key is not durable yet.
    fn must_wait(&self, key: &str) -> bool {
        self.is_unsynced || self.is_pending(key)
    }

    /// There is nothing to write, but the latest state of the key may not be durable yet.
    fn wait_for_earlier(&mut self, key: &str, ack: Option<Origin>) -> ChangeOutcome {
        if !self.must_wait(key) {
            return ChangeOutcome::Unchanged;
        }
        let version = self.latest(key).cloned();
        let object = StoredObject::Other;
        self.enqueue(PendingChange {
            key: key.into(),
            version,
            object,
            bytes: 0,
            change: None,
            ack,
        })
    }

    fn enqueue(&mut self, pending: PendingChange) -> ChangeOutcome {
        let saving = self.saving.iter().flat_map(|(_, pending)| pending);
        let mut acks = saving.chain(&self.waiting).filter_map(|pending| pending.ack.as_ref());
        // The cloud sent it again because it got no answer; it gets one when the change is durable.
        if pending.ack.as_ref().is_some_and(|ack| acks.any(|other| other.is_same(ack))) {
            return ChangeOutcome::Queued;
        }
        let waiting: usize = self.waiting.iter().map(PendingChange::text_bytes).sum();
        let bytes = waiting + pending.text_bytes();
        let max = self.budget.meta_waiting_bytes_max;
        if self.waiting.len() >= META_WAITING_MAX || bytes > max {
            return ChangeOutcome::Dropped;
        }
        self.waiting.push(pending);
        ChangeOutcome::Queued
    }

    /// The reason why the store would refuse it: one row that it refuses fails the whole
    /// transaction.
    fn no_room(&mut self, key: &str, text_bytes: usize, bytes: usize) -> Option<String> {
        if key.len() > STORE_KEY_BYTES_MAX || text_bytes > STORE_VALUE_BYTES_MAX {
            let (key, max) = (key.len(), STORE_VALUE_BYTES_MAX);
            return Some(format!(
                "got a key of {key} bytes with a value of {text_bytes} bytes, expected \
                 {STORE_KEY_BYTES_MAX} and {max} at most"
            ));
        }
        let old = self.stored.get(key);
        // The last change of a key wins.
        let saving = self.saving.iter().flat_map(|(_, pending)| pending);
        let others = || saving.clone().chain(&self.waiting).filter(|pending| *pending.key != *key);
        let is_row =
            |pending: &&PendingChange| pending.version.is_some() && pending.change.is_some();
        let new = others().filter(is_row).filter(|it| !self.stored.contains_key(&it.key)).count();
        if old.is_none() && self.stored.len() + new >= META_ROWS_MAX {
            return Some(format!(
                "got one object more than the {META_ROWS_MAX} that can be stored"
            ));
        }
        let coming: usize = others().map(|pending| pending.bytes).sum();
        let sum = self.bytes - old.map_or(0, |old| old.bytes) + coming + bytes;
        let max = self.budget.meta_bytes_max;
        if bytes == 0 || sum <= max {
            return None;
        }
        let why = format!(
            "got objects that take {sum} bytes of memory in all, expected {max} at most{}",
            self.budget.why()
        );
        self.refusal
            .get_or_insert_with(|| format!("store: object {key} of the cloud is refused: {why}"));
        Some(why)
    }

    fn pending(&self, key: &str) -> Option<&PendingChange> {
        let saving = self.saving.iter().flat_map(|(_, pending)| pending);
        saving.chain(&self.waiting).rfind(|pending| *pending.key == *key)
    }

    /// The latest version that was received, durable or not; `None`: there is no such object.
    fn latest(&self, key: &str) -> Option<&Version> {
        match self.pending(key) {
            Some(pending) => pending.version.as_ref(),
            None => self.stored.get(key).map(|row| &row.version),
        }
    }

    /// Saves all waiting changes in one transaction.
    pub(super) fn step(&mut self, now: Now, out: &mut Out) {
        // Only once: a cloud that has too many objects sends them again and again.
        if let Some(line) = self.refusal.take().filter(|_| !self.is_refusal_logged) {
            self.is_refusal_logged = true;
            out.push(Action::Log(Severity::Error, line));
        }
        let due = self.retry_at.is_none_or(|at| at <= now.boot);
        if self.saving.is_some() || self.waiting.is_empty() || !due || self.origin.is_none() {
            return;
        }
        self.retry_at = None;
        self.last = Revision(self.last.0 + 1);
        let pending = std::mem::take(&mut self.waiting);
        let changes = pending.iter().filter_map(|pending| pending.change.clone()).collect();
        self.saving = Some((self.last, pending));
        out.push(Action::Save { revision: self.last, changes });
    }

    /// Takes the result of a save that succeeded.
    pub(super) fn saved(&mut self, revision: Revision, out: &mut Out) -> DurableChanges {
        let (expected, pending) = self.saving.take().expect("a save is under way");
        assert_eq!(expected, revision, "saves are answered one by one");
        if self.trouble.take().is_some() {
            out.push(Action::Log(Severity::Info, "store: changes are saved again".to_owned()));
        }
        self.backoff = Backoff::default();
        self.is_unsynced = false;
        let mut durable = DurableChanges::default();
        for PendingChange { key, version, object, bytes, change, ack } in pending {
            durable.acks.extend(ack);
            durable.pods |= self.unsaved_pods.saved(&key, change.as_ref());
            if change.is_none() {
                if let (Some(row), Some(version)) = (self.stored.get_mut(&key), version) {
                    row.version = version;
                }
                continue;
            }
            self.unread.remove(&key);
            let before = self.remove_row(&key);
            for object in before.iter().chain([&object]) {
                durable.pods |= matches!(object, StoredObject::Pod(_));
                durable.objects |=
                    matches!(object, StoredObject::Object(_) | StoredObject::Token(_));
            }
            if let Some(version) = version {
                self.insert_row(key, version, bytes, object);
            }
        }
        durable
    }

    /// Takes the result of a save that failed: nothing of it is durable, and it is retried.
    pub(super) fn save_failed(
        &mut self,
        now: Now,
        revision: Revision,
        why: &DiskError,
        out: &mut Out,
    ) {
        let (expected, mut pending) = self.saving.take().expect("a save is under way");
        assert_eq!(expected, revision, "saves are answered one by one");
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

    fn insert_row(&mut self, key: Box<str>, version: Version, bytes: usize, object: StoredObject) {
        self.bytes += bytes;
        self.stored.insert(key, StoredRow { version, bytes, object });
    }

    fn remove_row(&mut self, key: &str) -> Option<StoredObject> {
        let row = self.stored.remove(key)?;
        self.bytes -= row.bytes;
        Some(row.object)
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

/// Bytes that a row takes in memory.
fn memory_bytes(key: &str, version: &Version, object: &StoredObject) -> usize {
    let texts = 2 * size_of::<Box<str>>() + key.len() + version.uid.len();
    size_of::<StoredRow>() + texts + object.memory_bytes()
}

impl PendingChange {
    fn deletion(key: &str, ack: Option<Origin>) -> Self {
        let change = Some(Change::Delete { key: key.into() });
        Self { key: key.into(), version: None, object: StoredObject::Other, bytes: 0, change, ack }
    }

    /// Bytes of the text that is to be written.
    fn text_bytes(&self) -> usize {
        match &self.change {
            Some(Change::Put(row)) => row.value.len(),
            Some(Change::Delete { .. }) | None => 0,
        }
    }
}

impl Version {
    fn of(content: &Content<'_>) -> Self {
        Self {
            uid: content.uid.clone(),
            number: content.version,
            digest: content.digest,
            deleting: content.deleting,
        }
    }

    /// Whether the other version is the same state of the same object.
    fn is_same_as(&self, other: &Self) -> bool {
        self.uid == other.uid && self.digest == other.digest
    }

    /// Whether the other version must not replace this one. A version without a number is accepted.
    fn is_newer_than(&self, other: &Self) -> bool {
        let older = other.number != 0 && other.number < self.number;
        older || (self.uid == other.uid && self.deleting && !other.deleting)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::meta::Saved;

    fn at(ms: u64) -> Now {
        Now { boot: Instant(ms), wall: None }
    }

    fn map(uid: &str) -> String {
        format!(r#"{{"metadata":{{"name":"m","namespace":"n","uid":"{uid}"}}}}"#)
    }

    fn loaded() -> Meta {
        let mut meta = Meta::new("gw", Budget::FULL);
        let row =
            Row { key: "n/configmap/a".into(), kind: "configmap".into(), value: map("a").into() };
        meta.load(Saved::kept(vec![row]), &mut Out::default());
        meta
    }

    fn keyed(n: usize) -> (String, String) {
        (format!("n/configmap/m{n}"), map(&format!("u{n}")))
    }

    fn put(meta: &mut Meta, n: usize) -> ChangeOutcome {
        let (key, text) = keyed(n);
        meta.put(&key, "configmap", &text, None)
    }

    /// Starts to save the waiting changes.
    fn save(meta: &mut Meta) -> Revision {
        meta.step(at(0), &mut Out::default());
        meta.saving.as_ref().expect("something waits").0
    }

    #[test]
    fn objects_have_a_limit_that_counts_those_being_written() {
        let mut meta = loaded();
        for n in 1..META_ROWS_MAX - 1 {
            let (key, text) = keyed(n);
            let content = rows::read("configmap", &text, &meta.budget).expect("a map");
            meta.insert_row(key.as_str().into(), Version::of(&content), 0, StoredObject::Other);
        }
        assert!(matches!(put(&mut meta, 0), ChangeOutcome::Queued));
        assert!(matches!(put(&mut meta, META_ROWS_MAX), ChangeOutcome::Refused(_)), "one waits");
        let revision = save(&mut meta);
        assert!(
            matches!(put(&mut meta, META_ROWS_MAX), ChangeOutcome::Refused(_)),
            "it is written"
        );
        meta.saved(revision, &mut Out::default());
        assert_eq!(meta.stored.len(), META_ROWS_MAX);
        assert!(matches!(put(&mut meta, META_ROWS_MAX), ChangeOutcome::Refused(_)), "it is stored");
        // A stored object may change, and makes room when it is deleted.
        let changed = map("u1").replace(r#""n":"#, r#""labels":{},"n":"#);
        assert!(!matches!(
            meta.put("n/configmap/m1", "configmap", &changed, None),
            ChangeOutcome::Refused(_)
        ));
        assert!(matches!(meta.delete("n/configmap/m0", "u0", None), ChangeOutcome::Queued));
        let revision = save(&mut meta);
        meta.saved(revision, &mut Out::default());
        assert!(matches!(put(&mut meta, META_ROWS_MAX), ChangeOutcome::Queued));
    }

    #[test]
    fn what_is_being_written_takes_memory() {
        let budget = Budget { meta_bytes_max: 10_000, ..Budget::FULL };
        let mut meta = Meta { budget, origin: Some(StoreOrigin::Kept), ..Meta::new("gw", budget) };
        let large = |n: usize, more: &str| {
            let data = format!(r#","data":{{"a":"{}{more}"}}}}"#, "x".repeat(4_000));
            (format!("n/configmap/m{n}"), map(&format!("u{n}")).replace("}}", &format!("}}{data}")))
        };
        let put = |meta: &mut Meta, n: usize, more: &str| {
            let (key, text) = large(n, more);
            let outcome = meta.put(&key, "configmap", &text, None);
            assert!(
                matches!(outcome, ChangeOutcome::Queued | ChangeOutcome::Refused(_)),
                "{outcome:?}"
            );
            matches!(outcome, ChangeOutcome::Queued)
        };
        assert!(put(&mut meta, 1, "") && put(&mut meta, 2, ""));
        let revision = save(&mut meta);
        assert!(!put(&mut meta, 3, ""), "there is no memory for three");
        assert!(put(&mut meta, 2, "y"), "the second is to be in the place of the one before");
        meta.saved(revision, &mut Out::default());
        let revision = save(&mut meta);
        meta.saved(revision, &mut Out::default());
        assert!(meta.bytes <= budget.meta_bytes_max && meta.stored.len() == 2, "{}", meta.bytes);
    }

    #[test]
    fn deleted_uids_have_a_limit_and_the_oldest_is_forgotten() {
        let mut meta = loaded();
        for n in 0..=TOMBSTONES_MAX {
            let _ = meta.delete(&keyed(n).0, &format!("u{n}"), None);
        }
        let mut comes_back = |n: usize| matches!(put(&mut meta, n), ChangeOutcome::Queued);
        assert!(comes_back(0), "the oldest is forgotten");
        assert!(!comes_back(1));
        assert!(!comes_back(TOMBSTONES_MAX));
    }

    #[test]
    fn failed_saves_back_off() {
        let mut meta = loaded();
        assert!(matches!(put(&mut meta, 1), ChangeOutcome::Queued));
        let save_at = |meta: &mut Meta, ms: u64| {
            let mut out = Out::default();
            meta.step(at(ms), &mut out);
            match out.actions.pop() {
                Some(Action::Save { revision, .. }) => Some(revision),
                _ => None,
            }
        };
        let mut ms = 0;
        for n in 0..10 {
            let revision = save_at(&mut meta, ms).expect("it is tried");
            let full = DiskError::Full("the disk is full".to_owned());
            meta.save_failed(at(ms), revision, &full, &mut Out::default());
            let wait_ms = (SAVE_RETRY_MIN_MS << n).min(SAVE_RETRY_MAX_MS);
            assert_eq!(meta.wake_at(), Some(Instant(ms + wait_ms)));
            assert_eq!(save_at(&mut meta, ms + wait_ms - 1), None, "not before");
            ms += wait_ms;
        }
    }
}
