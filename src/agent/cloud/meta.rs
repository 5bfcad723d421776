//! MetaManager: stores what the cloud sent, and decides which of it applies (wire spec section 6).
//!
//! ```text
//!  received ─▶ queue ──Save, Saved──▶ stored: it applies, and is acknowledged
//! ```
//!
//! Intended behaviour: nothing applies and nothing is acknowledged before it is durable. The store
//! never goes back (rule R9): the greater `resourceVersion` of an object stays, a deletion is final
//! for its uid, and a deletion timestamp is never removed. An update that changes only the status,
//! mostly the status that we wrote ourselves, costs no write.
//!
//! A row for which there is no memory, or that cannot be used, stays in the store as it is. Its
//! object is not known, so pods of the cloud that already run here are left alone, as with a lost
//! store. A deletion of the object is still stored, and so is what the cloud sends in its place.
//!
//! If we crash here: what was not saved was not acknowledged, and the cloud sends it again.

mod lost;
mod queue;
mod stored;

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use crate::agent::event::{Action, Out, Severity};
use crate::agent::time::{Instant, Now};
use crate::limits::{
    Budget, META_ROWS_MAX, STORE_KEY_BYTES_MAX, STORE_VALUE_BYTES_MAX, TOMBSTONES_MAX,
};
use crate::model::message::Resource;
use crate::model::meta::{Change, DiskError, Revision, Row, Saved, StoreOrigin};
use crate::model::object::Object;
use crate::model::token::Token;
use crate::model::upstream::Origin;

use super::rows::{self, Mirror, StoredObject};
use lost::{Completeness, MARK, Tombstone};
use queue::{PendingChange, SaveQueue};
use stored::{Stored, StoredRow, Version, memory_bytes};

/// The stored objects, and the changes that are not durable yet.
#[derive(Debug, Default)]
pub(super) struct Meta {
    node: Box<str>,
    budget: Budget,
    stored: Stored,
    queue: SaveQueue,
    completeness: Completeness,
    /// Deleted objects, the oldest first: they are not accepted again.
    deleted: VecDeque<Deleted>,
    /// See [`Saved::is_unsynced`].
    is_unsynced: bool,
    /// Log line for the first object that was refused for lack of memory, until it is logged.
    refusal: Option<String>,
    is_refusal_logged: bool,
}

#[derive(Debug)]
struct Deleted {
    uid: Box<str>,
    /// From this version on it is accepted again: the cloud has removed what no pod of the node
    /// used, and a pod may come that does. 0: it does not exist any more.
    again_from: u64,
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
    /// A device or a model was added, changed or deleted.
    pub devices: bool,
}

impl Meta {
    pub(super) fn new(node: &str, budget: Budget) -> Self {
        Self { node: node.into(), budget, ..Self::default() }
    }

    /// Takes the content of the store at the start.
    pub(super) fn load(&mut self, saved: Saved, out: &mut Out) {
        self.is_unsynced = saved.is_unsynced;
        for row in saved.rows {
            self.completeness.load(&row.key, &row.value);
            self.load_row(row, out);
        }
        self.stored.restore_terminal_statuses();
        let origin = self.judge(saved.origin);
        self.log_origin(&origin, out);
        self.completeness.set_origin(origin);
        if self.is_incomplete() && self.stored.get(MARK).is_none() {
            self.queue.replace(self.completeness.mark());
        }
    }

    fn load_row(&mut self, Row { key, kind, value }: Row, out: &mut Out) {
        let read = rows::read(&kind, &value, &self.budget).and_then(|content| {
            let version = Version::of(&content);
            Ok((version, content.into_object(&self.node)?.0))
        });
        let (version, object) = match read {
            Ok(read) => read,
            Err(why) => {
                let line = format!("store: row {key} cannot be read and is left as it is: {why}");
                out.push(Action::Log(Severity::Error, line));
                self.stored.add_unread(key, "".into());
                return;
            }
        };
        let bytes = memory_bytes(&key, &version, &object).max(value.len());
        if self.stored.bytes() + bytes > self.budget.meta_bytes_max {
            self.stored.add_unread(key, version.uid);
        } else {
            self.stored.insert(key, StoredRow { version, bytes, object });
        }
    }

    /// Whether the store that was read is complete.
    fn judge(&mut self, found: StoreOrigin) -> StoreOrigin {
        let found = match found {
            StoreOrigin::Part { unread } => {
                for (key, uid) in unread {
                    self.stored.add_unread(key, uid);
                }
                StoreOrigin::Kept
            }
            found => found,
        };
        match found {
            StoreOrigin::Kept if self.stored.unread_count() > 0 => {
                StoreOrigin::Lost(format!("{} rows of it stay unread", self.stored.unread_count()))
            }
            StoreOrigin::Kept if self.stored.get(MARK).is_some() => StoreOrigin::Lost(
                "it was incomplete before, and not all objects have come back".to_owned(),
            ),
            // The process that created the store ended before it could record that it is new.
            StoreOrigin::Kept if self.stored.len() == 0 => StoreOrigin::New,
            other => other,
        }
    }

    fn log_origin(&self, origin: &StoreOrigin, out: &mut Out) {
        if self.stored.unread_count() > 0 {
            let (count, max, why) =
                (self.stored.unread_count(), self.budget.meta_bytes_max, self.budget.why());
            let line = format!(
                "store: {count} rows stay unread: stored objects may use {max} bytes \
                 of memory{why}"
            );
            out.push(Action::Log(Severity::Error, line));
        }
        match origin {
            StoreOrigin::Kept | StoreOrigin::Part { .. } => {}
            StoreOrigin::New => {
                let line = "store: new; cloud pods that already run here are left alone";
                out.push(Action::Log(Severity::Info, line.to_owned()));
            }
            StoreOrigin::Lost(why) => {
                let line = format!(
                    "store: the stored objects are lost, running pods are left alone: {why}"
                );
                out.push(Action::Log(Severity::Error, line));
            }
        }
    }

    /// Whether the store was new, lost or complete at the start; `None`: it is not read yet.
    pub(super) fn origin(&self) -> Option<&StoreOrigin> {
        self.completeness.origin()
    }

    /// The error of the last save, while saves fail.
    pub(super) fn trouble(&self) -> Option<&str> {
        self.queue.trouble()
    }

    /// All durable objects, in the order of their keys.
    pub(super) fn stored_objects(&self) -> impl Iterator<Item = &StoredObject> {
        self.stored.iter().map(|(_, object)| object)
    }

    /// The same with their keys.
    #[cfg(feature = "devices")]
    pub(super) fn stored_rows(&self) -> impl Iterator<Item = (&str, &StoredObject)> {
        self.stored.iter()
    }

    /// Whether the store has an object of this key that could not be read.
    #[cfg(feature = "devices")]
    pub(super) fn has_unread(&self, key: &str) -> bool {
        self.stored.has_unread(key, "")
    }

    /// The durable object of this key.
    pub(super) fn stored_object(&self, key: &str) -> Option<&StoredObject> {
        self.stored.get(key).map(|row| &row.object)
    }

    /// The keys of the durable objects of this kind.
    #[cfg(feature = "services")]
    pub(super) fn keys_of(&self, kind: &str) -> impl Iterator<Item = &str> {
        let is_it = move |key: &&str| Resource::parse(key).is_some_and(|it| it.kind == kind);
        self.stored.iter().map(|(key, _)| key).filter(is_it)
    }

    /// Whether this uid is the latest that was received for the key, durable or not.
    pub(super) fn is_latest(&self, key: &str, uid: &str) -> bool {
        self.latest(key).is_some_and(|latest| *latest.uid == *uid)
    }

    /// The uid of the latest object that was received for the key, durable or not.
    pub(super) fn uid(&self, key: &str) -> Option<&str> {
        self.latest(key).map(|latest| &*latest.uid)
    }

    #[cfg(all(feature = "devices", feature = "metaserver"))]
    pub(super) fn budget(&self) -> &Budget {
        &self.budget
    }

    /// Whether a change of this key is not durable yet.
    pub(super) fn is_pending(&self, key: &str) -> bool {
        self.queue.latest(key).is_some()
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
        self.stored.iter().filter_map(|(key, object)| match object {
            StoredObject::Mirror(mirror) => Some((key, mirror)),
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
        let of_pod = self.stored.iter().filter(|(_, object)| of_it(object));
        let keys: Vec<Box<str>> = of_pod.map(|(key, _)| key.into()).collect();
        for key in keys {
            let _ = self.delete(&key, "", None);
        }
    }

    /// A pod was received, or deleted: the rows that the node made of another pod of its name are
    /// deleted.
    pub(super) fn delete_rows_of_earlier(&mut self, pod: Resource<'_>) {
        for kind in rows::MADE_OF_PODS {
            let key = Resource { kind, ..pod }.to_string();
            let made_of = self.stored_object(&key).and_then(StoredObject::made_of);
            let Some(uid) = made_of.map(Box::<str>::from) else { continue };
            if !self.is_latest(&pod.to_string(), &uid) {
                let _ = self.delete(&key, &uid, None);
            }
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
        if !self.may_come_again(&version) {
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
            self.stored.set_version(key, version);
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

    /// Whether a deletion allows this version.
    fn may_come_again(&self, version: &Version) -> bool {
        let deleted = self.deleted.iter().find(|deleted| deleted.uid == version.uid);
        deleted.is_none_or(|it| it.again_from > 0 && version.number >= it.again_from)
    }

    fn remember_deleted(&mut self, uid: &str, again_from: u64) {
        if uid.is_empty() {
            return;
        }
        if let Some(known) = self.deleted.iter_mut().find(|deleted| *deleted.uid == *uid) {
            // Whichever allows less.
            let is_final = known.again_from == 0 || again_from == 0;
            known.again_from = if is_final { 0 } else { known.again_from.max(again_from) };
            return;
        }
        if self.deleted.len() == TOMBSTONES_MAX {
            self.deleted.pop_front();
        }
        self.deleted.push_back(Deleted { uid: uid.into(), again_from });
    }

    /// Receives a deletion of an object that does not exist any more; `uid` empty: of any object of
    /// this key.
    pub(super) fn delete(&mut self, key: &str, uid: &str, ack: Option<Origin>) -> ChangeOutcome {
        self.delete_at(key, uid, 0, ack)
    }

    /// As [`Meta::delete`]. `version`: of the deletion, or of the object that the node is not to
    /// have any more, which may come again; 0: not given.
    pub(super) fn delete_at(
        &mut self,
        key: &str,
        uid: &str,
        version: u64,
        ack: Option<Origin>,
    ) -> ChangeOutcome {
        let named = self.latest(key).map(|latest| &latest.uid).filter(|_| uid.is_empty());
        let uid: Box<str> = named.map_or_else(|| uid.into(), Clone::clone);
        self.remember_deleted(&uid, version);
        let tombstone = self.completeness.deleted(key, &uid);
        if tombstone == Tombstone::New {
            self.queue.replace(self.completeness.mark());
        }
        match self.latest(key) {
            Some(latest) if latest.uid == uid => {}
            // The deletion is about another object of the same name, or about one that is not
            // stored.
            Some(_) => return self.wait_for_earlier(key, ack),
            None if self.stored.has_unread(key, &uid) => {}
            None if tombstone != Tombstone::NotNeeded => return self.wait_for_earlier(MARK, ack),
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
        self.queue.push(pending, self.budget.meta_waiting_bytes_max)
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
        let old = self.stored.get(key).map(|old| old.bytes);
        // The last change of a key wins.
        let others = || self.queue.iter().filter(|pending| *pending.key != *key);
        let is_new = |it: &&PendingChange| it.is_row() && self.stored.get(&it.key).is_none();
        if old.is_none() && self.stored.len() + others().filter(is_new).count() >= META_ROWS_MAX {
            return Some(format!(
                "got one object more than the {META_ROWS_MAX} that can be stored"
            ));
        }
        let coming: usize = others().map(|pending| pending.bytes).sum();
        let sum = self.stored.bytes() - old.unwrap_or(0) + coming + bytes;
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

    /// The latest version that was received, durable or not; `None`: there is no such object.
    fn latest(&self, key: &str) -> Option<&Version> {
        match self.queue.latest(key) {
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
        if self.origin().is_some() {
            self.queue.step(now, out);
        }
    }

    /// Whether a save may begin now.
    #[cfg(any(feature = "devices", feature = "metaserver", feature = "servicebus"))]
    pub(super) fn may_save(&self, now: Now) -> bool {
        self.save_at(now).is_some_and(|at| at <= now.boot)
    }

    /// When a save may begin; `None`: after the one under way, or once the store is read.
    #[cfg(any(feature = "devices", feature = "metaserver", feature = "servicebus"))]
    pub(super) fn save_at(&self, now: Now) -> Option<Instant> {
        self.origin()?;
        self.queue.save_at(now)
    }

    /// Changes of other tables, for the save that begins in this step.
    #[cfg(any(feature = "devices", feature = "metaserver", feature = "servicebus"))]
    pub(super) fn save_also(&mut self, changes: impl Iterator<Item = Change>) {
        self.queue.save_also(changes);
    }

    /// Takes the result of a save that succeeded.
    pub(super) fn saved(&mut self, revision: Revision, out: &mut Out) -> DurableChanges {
        let pending = self.queue.saved(revision, out);
        self.is_unsynced = false;
        let mut durable = DurableChanges::default();
        for PendingChange { key, version, object, bytes, change, ack } in pending {
            durable.acks.extend(ack);
            let Some(change) = change else {
                if let Some(version) = version {
                    self.stored.set_version(&key, version);
                }
                continue;
            };
            if *key == *MARK {
                self.completeness.saved(&change);
                durable.pods = true;
            }
            let before = self.stored.remove(&key);
            for object in before.iter().chain([&object]) {
                durable.pods |= object.decides_about_pods();
                durable.objects |=
                    matches!(object, StoredObject::Object(_) | StoredObject::Token(_));
                durable.devices |= object.is_of_devices();
            }
            if let Some(version) = version {
                self.stored.insert(key, StoredRow { version, bytes, object });
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
        self.queue.save_failed(now, revision, why, out);
    }

    /// Whether pods of the cloud may run here that the store does not know.
    pub(super) fn is_incomplete(&self) -> bool {
        self.completeness.is_incomplete()
    }

    /// The store is complete: it knows every pod of the cloud that runs here.
    pub(super) fn set_complete(&mut self) {
        if let Some(deletion) = self.completeness.complete() {
            self.queue.replace(deletion);
        }
    }

    /// Uids of pods that end although the store does not know them.
    pub(super) fn tombstones(&self) -> &BTreeSet<Box<str>> {
        self.completeness.tombstones()
    }

    /// Whether all received changes are durable.
    pub(super) fn is_settled(&self) -> bool {
        self.queue.is_settled()
    }

    /// When the next save is due.
    pub(super) fn wake_at(&self) -> Option<Instant> {
        self.queue.wake_at()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let mut out = Out::default();
        meta.step(Now { boot: Instant(0), wall: None }, &mut out);
        let Some(Action::Save { revision, .. }) = out.actions.pop() else {
            panic!("something waits");
        };
        revision
    }

    #[test]
    fn objects_have_a_limit_that_counts_those_being_written() {
        let mut meta = loaded();
        for n in 1..META_ROWS_MAX - 1 {
            let (key, text) = keyed(n);
            let content = rows::read("configmap", &text, &meta.budget).expect("a map");
            let version = Version::of(&content);
            let row = StoredRow { version, bytes: 0, object: StoredObject::Other };
            meta.stored.insert(key.as_str().into(), row);
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
        let mut meta = Meta::new("gw", budget);
        meta.completeness.set_origin(StoreOrigin::Kept);
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
        let bytes = meta.stored.bytes();
        assert!(bytes <= budget.meta_bytes_max && meta.stored.len() == 2, "{bytes}");
    }

    #[test]
    fn a_deletion_that_a_lost_store_keeps_is_not_lost_by_other_changes() {
        let mut meta = Meta::new("gw", Budget::FULL);
        meta.load(Saved::new(Vec::new(), StoreOrigin::New), &mut Out::default());
        let _ = meta.delete("n/pod/a", "u", None);
        let revision = save(&mut meta);
        assert!(meta.saved(revision, &mut Out::default()).pods, "it may end now");
        assert!(meta.tombstones().contains("u"));
        assert!(matches!(put(&mut meta, 1), ChangeOutcome::Queued));
        let revision = save(&mut meta);
        assert!(!meta.saved(revision, &mut Out::default()).pods);
        assert!(meta.tombstones().contains("u"));
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
}
