//! MetaManager: what the cloud has said, and which of it counts (wire spec section 6).
//!
//! ```text
//!  heard ──▶ waiting ──Save──▶ saving ──Saved──▶ kept: it counts, and is acknowledged
//!               ▲                 └──SaveFailed──┐
//!               └────────────────────────────────┘ after a while
//! ```
//!
//! Intended behaviour: nothing counts and nothing is acknowledged before it is durable. The store
//! never goes back (rule R9): of one object the greater `resourceVersion` stays, a deletion is
//! final for its uid, a deletion timestamp is never taken back. An update whose only news is a
//! status, mostly the one that we wrote ourselves, costs no write.
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
use crate::model::meta::{Change, DiskError, Revision, Row, StoreOrigin};
use crate::model::object::Object;
use crate::model::token::Token;

use super::content::{self, Content, StoredObject};
use super::mirror::Mirror;
use super::talk::Origin;
use lost::{MARK, UnsavedPods};

/// What is kept, and what is about to be.
#[derive(Debug, Default)]
pub(super) struct Meta {
    node: Box<str>,
    budget: Budget,
    /// By the key of its row.
    kept: BTreeMap<Box<str>, StoredRow>,
    /// What they take, in memory or as texts, whichever is more.
    bytes: usize,
    /// Rows of the store that there is no memory for: uids by key. They are not known, and stay.
    unread: BTreeMap<Box<str>, Box<str>>,
    /// What was refused for want of memory, until it is told.
    refused: Option<String>,
    told_refused: bool,
    waiting: Vec<PendingChange>,
    saving: Option<(Revision, Vec<PendingChange>)>,
    last: Revision,
    backoff: Backoff,
    retry_at: Option<Instant>,
    /// Uids of objects that were deleted, the oldest first: they never come back.
    gone: VecDeque<Box<str>>,
    origin: Option<StoreOrigin>,
    lost: UnsavedPods,
    /// Why nothing can be kept now.
    trouble: Option<String>,
}

/// A durable row, as far as it matters while running.
#[derive(Debug)]
struct StoredRow {
    version: Version,
    /// See [`Meta::bytes`].
    bytes: usize,
    thing: StoredObject,
}

/// What tells one state of an object from another.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Version {
    uid: Box<str>,
    /// `resourceVersion`; 0: not told.
    number: u64,
    /// Of all of it but versions and statuses.
    digest: u64,
    deleting: bool,
}

/// Something heard that is not durable yet.
#[derive(Debug)]
struct PendingChange {
    key: Box<str>,
    /// `None`: the object is deleted.
    version: Option<Version>,
    thing: StoredObject,
    /// That it will take; see [`Meta::bytes`].
    bytes: usize,
    /// `None`: nothing to write; it only waits for what was heard before.
    change: Option<Change>,
    /// Whom to tell that it is durable.
    ack: Option<Origin>,
}

/// What hearing something came to.
#[derive(Debug)]
pub(super) enum ChangeOutcome {
    /// It will be durable; the cloud is told then.
    Waits,
    /// There is nothing to keep: the cloud is told now.
    Settled,
    /// It cannot be kept: the cloud is told why.
    Refused(String),
    /// There is no room now: the cloud is told nothing, and sends it again.
    Dropped,
}

/// What has become durable.
#[derive(Debug, Default)]
pub(super) struct Settled {
    /// To be acknowledged.
    pub acks: Vec<Origin>,
    /// Some pod came, went or changed.
    pub pods: bool,
    /// Objects that pods use came, went or changed.
    pub objects: bool,
}

impl Meta {
    pub(super) fn new(node: &str, budget: Budget) -> Self {
        Self { node: node.into(), budget, ..Self::default() }
    }

    /// What it and all that is read for it may take.
    pub(super) fn budget(&self) -> Budget {
        self.budget
    }

    /// How the store came to hold what it holds; `None`: it was not read yet.
    pub(super) fn origin(&self) -> Option<&StoreOrigin> {
        self.origin.as_ref()
    }

    /// Why nothing can be kept now.
    pub(super) fn trouble(&self) -> Option<&str> {
        self.trouble.as_deref()
    }

    /// Everything that counts, by key.
    pub(super) fn things(&self) -> impl Iterator<Item = &StoredObject> {
        self.kept.values().map(|kept| &kept.thing)
    }

    /// One thing that counts.
    pub(super) fn thing(&self, key: &str) -> Option<&StoredObject> {
        self.kept.get(key).map(|kept| &kept.thing)
    }

    /// Whether this incarnation is the last that was heard of the key, durable or not.
    pub(super) fn is_latest(&self, key: &str, uid: &str) -> bool {
        self.latest(key).is_some_and(|latest| *latest.uid == *uid)
    }

    /// The uid of the last that was heard of the key, durable or not.
    pub(super) fn uid(&self, key: &str) -> Option<&str> {
        self.latest(key).map(|latest| &*latest.uid)
    }

    /// Whether something of this key is on its way to the disk.
    pub(super) fn awaits(&self, key: &str) -> bool {
        self.heard(key).is_some()
    }

    /// The objects that pods use.
    pub(super) fn objects(&self) -> impl Iterator<Item = Arc<Object>> {
        self.things().filter_map(|thing| match thing {
            StoredObject::Object(object) => Some(object.clone()),
            _ => None,
        })
    }

    /// The mirrors of static pods, by key.
    pub(super) fn mirrors(&self) -> impl Iterator<Item = (&str, &Mirror)> {
        self.kept.iter().filter_map(|(key, kept)| match &kept.thing {
            StoredObject::Mirror(mirror) => Some((&**key, mirror)),
            _ => None,
        })
    }

    /// The tokens of service accounts.
    pub(super) fn tokens(&self) -> impl Iterator<Item = &Arc<Token>> {
        self.things().filter_map(|thing| match thing {
            StoredObject::Token(token) => Some(token),
            _ => None,
        })
    }

    /// The pod is gone, and so is what it was given.
    pub(super) fn delete_tokens(&mut self, uid: &str) {
        let of_it = |thing: &StoredObject| match thing {
            StoredObject::Token(token) => !uid.is_empty() && token.pod_uid() == uid,
            _ => false,
        };
        let keys: Vec<Box<str>> = self
            .kept
            .iter()
            .filter(|(_, kept)| of_it(&kept.thing))
            .map(|(key, _)| key.clone())
            .collect();
        for key in keys {
            let _ = self.delete(&key, "", None);
        }
    }

    /// The object is so.
    pub(super) fn put(
        &mut self,
        key: &str,
        kind: &str,
        value: &str,
        ack: Option<Origin>,
    ) -> ChangeOutcome {
        let content = match content::read(kind, value, &self.budget) {
            Ok(content) => content,
            Err(why) => return ChangeOutcome::Refused(why),
        };
        let version = Version::of(&content);
        let latest = self.latest(key);
        let same = latest.is_some_and(|latest| latest.is_same_as(&version));
        let is_old = latest.is_some_and(|latest| latest.is_newer_than(&version));
        // What is the same was read when it was heard first.
        let read =
            if same { Ok((StoredObject::Other, content.value)) } else { content.thing(&self.node) };
        let (thing, value) = match read {
            Ok(read) => read,
            Err(why) => return ChangeOutcome::Refused(why),
        };
        if self.gone.contains(&version.uid) {
            return ChangeOutcome::Settled;
        }
        if is_old {
            return self.after(key, ack);
        }
        // What takes no memory takes room in the store, which has the same bound.
        let bytes = memory_bytes(key, &version, &thing).max(value.len());
        let bytes = if same { 0 } else { bytes };
        if let Some(why) = self.no_room(key, value.len(), bytes) {
            return ChangeOutcome::Refused(why);
        }
        if same && !self.awaits(key) {
            // Only in memory: what differs is worth no write.
            let kept = self.kept.get_mut(key).expect("the latest is kept");
            kept.version = version;
            return ChangeOutcome::Settled;
        }
        let row = || Row { key: key.into(), kind: kind.into(), value: value.into() };
        self.hear(PendingChange {
            key: key.into(),
            version: Some(version),
            change: (!same).then(|| Change::Put(row())),
            thing,
            bytes,
            ack,
        })
    }

    /// The object is gone; `uid` empty: whichever has the name.
    pub(super) fn delete(&mut self, key: &str, uid: &str, ack: Option<Origin>) -> ChangeOutcome {
        let named = self.latest(key).map(|latest| &latest.uid).filter(|_| uid.is_empty());
        let uid: Box<str> = named.map_or_else(|| uid.into(), Clone::clone);
        if !uid.is_empty() && !self.gone.contains(&uid) {
            if self.gone.len() == TOMBSTONES_MAX {
                self.gone.pop_front();
            }
            self.gone.push_back(uid.clone());
        }
        let dooms = self.doom(key, &uid);
        match self.latest(key) {
            Some(latest) if latest.uid == uid => {}
            // Another of the same name, or nothing: what it is about is not here.
            Some(_) => return self.after(key, ack),
            None if self.has_unread(key, &uid) => {}
            None if self.awaits(key) => return self.after(key, ack),
            None if dooms => return self.after(MARK, ack),
            None => return ChangeOutcome::Settled,
        }
        self.hear(PendingChange::deletion(key, ack))
    }

    /// There is nothing to write, but what was heard of the key before is not durable yet.
    fn after(&mut self, key: &str, ack: Option<Origin>) -> ChangeOutcome {
        if !self.awaits(key) {
            return ChangeOutcome::Settled;
        }
        let version = self.latest(key).cloned();
        let thing = StoredObject::Other;
        self.hear(PendingChange { key: key.into(), version, thing, bytes: 0, change: None, ack })
    }

    fn hear(&mut self, heard: PendingChange) -> ChangeOutcome {
        let saving = self.saving.iter().flat_map(|(_, heard)| heard);
        let mut acks = saving.chain(&self.waiting).filter_map(|heard| heard.ack.as_ref());
        // Sent again for want of an answer, which it gets when it is durable.
        if heard.ack.as_ref().is_some_and(|ack| acks.any(|other| other.is_same(ack))) {
            return ChangeOutcome::Waits;
        }
        let waiting: usize = self.waiting.iter().map(PendingChange::text_bytes).sum();
        let bytes = waiting + heard.text_bytes();
        let max = self.budget.meta_waiting_bytes_max;
        if self.waiting.len() >= META_WAITING_MAX || bytes > max {
            return ChangeOutcome::Dropped;
        }
        self.waiting.push(heard);
        ChangeOutcome::Waits
    }

    /// Why the store would not take it: one row that it refuses fails all that go with it.
    fn no_room(&mut self, key: &str, text_bytes: usize, bytes: usize) -> Option<String> {
        if key.len() > STORE_KEY_BYTES_MAX || text_bytes > STORE_VALUE_BYTES_MAX {
            let (key, max) = (key.len(), STORE_VALUE_BYTES_MAX);
            return Some(format!(
                "got a name of {key} bytes with {text_bytes} bytes, expected \
                 {STORE_KEY_BYTES_MAX} and {max} at most"
            ));
        }
        let old = self.kept.get(key);
        // Of the same key the last counts.
        let saving = self.saving.iter().flat_map(|(_, heard)| heard);
        let others = || saving.clone().chain(&self.waiting).filter(|heard| *heard.key != *key);
        let is_row = |heard: &&PendingChange| heard.version.is_some() && heard.change.is_some();
        let new = others().filter(is_row).filter(|it| !self.kept.contains_key(&it.key)).count();
        if old.is_none() && self.kept.len() + new >= META_ROWS_MAX {
            return Some(format!("got one object more than the {META_ROWS_MAX} that are kept"));
        }
        let coming: usize = others().map(|heard| heard.bytes).sum();
        let sum = self.bytes - old.map_or(0, |old| old.bytes) + coming + bytes;
        let max = self.budget.meta_bytes_max;
        if bytes == 0 || sum <= max {
            return None;
        }
        let why = format!(
            "got objects that take {sum} bytes of memory in all, expected {max} at most{}",
            self.budget.why()
        );
        self.refused.get_or_insert_with(|| format!("{key} of the cloud's is not taken: {why}"));
        Some(why)
    }

    fn heard(&self, key: &str) -> Option<&PendingChange> {
        let saving = self.saving.iter().flat_map(|(_, heard)| heard);
        saving.chain(&self.waiting).rfind(|heard| *heard.key == *key)
    }

    /// The last that was heard of it, durable or not; `None`: there is no such object.
    fn latest(&self, key: &str) -> Option<&Version> {
        match self.heard(key) {
            Some(heard) => heard.version.as_ref(),
            None => self.kept.get(key).map(|kept| &kept.version),
        }
    }

    /// Asks for what waits to be kept, in one transaction.
    pub(super) fn step(&mut self, now: Now, out: &mut Out) {
        // Once: a cloud that has too much says so again and again.
        if let Some(line) = self.refused.take().filter(|_| !self.told_refused) {
            self.told_refused = true;
            out.push(Action::Log(Severity::Error, line));
        }
        let due = self.retry_at.is_none_or(|at| at <= now.boot);
        if self.saving.is_some() || self.waiting.is_empty() || !due || self.origin.is_none() {
            return;
        }
        self.retry_at = None;
        self.last = Revision(self.last.0 + 1);
        let heard = std::mem::take(&mut self.waiting);
        let changes = heard.iter().filter_map(|heard| heard.change.clone()).collect();
        self.saving = Some((self.last, heard));
        out.push(Action::Save { revision: self.last, changes });
    }

    /// It is durable.
    pub(super) fn saved(&mut self, revision: Revision, out: &mut Out) -> Settled {
        let (asked, heard) = self.saving.take().expect("an answer to what was asked");
        assert_eq!(asked, revision, "saves are answered one by one");
        if self.trouble.take().is_some() {
            out.push(Action::Log(Severity::Info, "store: changes are kept again".to_owned()));
        }
        self.backoff = Backoff::default();
        let mut settled = Settled::default();
        for PendingChange { key, version, thing, bytes, change, ack } in heard {
            settled.acks.extend(ack);
            settled.pods |= self.lost.saved(&key, change.as_ref());
            if change.is_none() {
                if let (Some(kept), Some(version)) = (self.kept.get_mut(&key), version) {
                    kept.version = version;
                }
                continue;
            }
            self.unread.remove(&key);
            let before = self.forget(&key);
            for thing in before.iter().chain([&thing]) {
                settled.pods |= matches!(thing, StoredObject::Pod(_));
                settled.objects |=
                    matches!(thing, StoredObject::Object(_) | StoredObject::Token(_));
            }
            if let Some(version) = version {
                self.keep(key, version, bytes, thing);
            }
        }
        settled
    }

    /// Nothing of it is durable: it is tried again.
    pub(super) fn save_failed(
        &mut self,
        now: Now,
        revision: Revision,
        why: &DiskError,
        out: &mut Out,
    ) {
        let (asked, mut heard) = self.saving.take().expect("an answer to what was asked");
        assert_eq!(asked, revision, "saves are answered one by one");
        heard.append(&mut self.waiting);
        self.waiting = heard;
        let again_at = self.backoff.again(now.boot, SAVE_RETRY_MIN_MS, SAVE_RETRY_MAX_MS);
        self.retry_at = Some(again_at);
        let why = why.to_string();
        if self.trouble.as_ref() != Some(&why) {
            let line = format!("store: what the cloud sends is not taken, pods go on: {why}");
            out.push(Action::Log(Severity::Error, line));
            self.trouble = Some(why);
        }
    }

    fn keep(&mut self, key: Box<str>, version: Version, bytes: usize, thing: StoredObject) {
        self.bytes += bytes;
        self.kept.insert(key, StoredRow { version, bytes, thing });
    }

    fn forget(&mut self, key: &str) -> Option<StoredObject> {
        let kept = self.kept.remove(key)?;
        self.bytes -= kept.bytes;
        Some(kept.thing)
    }

    /// Whether all that was heard is durable.
    pub(super) fn is_settled(&self) -> bool {
        self.saving.is_none() && self.waiting.is_empty()
    }

    /// When the next try to save is due.
    pub(super) fn wake_at(&self) -> Option<Instant> {
        self.retry_at.filter(|_| !self.waiting.is_empty())
    }
}

/// What a row takes in memory.
fn memory_bytes(key: &str, version: &Version, thing: &StoredObject) -> usize {
    let texts = 2 * size_of::<Box<str>>() + key.len() + version.uid.len();
    size_of::<StoredRow>() + texts + thing.memory_bytes()
}

impl PendingChange {
    fn deletion(key: &str, ack: Option<Origin>) -> Self {
        let change = Some(Change::Delete { key: key.into() });
        Self { key: key.into(), version: None, thing: StoredObject::Other, bytes: 0, change, ack }
    }

    /// Of the text that is to be written.
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

    /// Whether the other says nothing else of the same object.
    fn is_same_as(&self, other: &Self) -> bool {
        self.uid == other.uid && self.digest == other.digest
    }

    /// Whether the other may not take its place. One without a number is taken at its word.
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
        meta.load(Saved { rows: vec![row], origin: StoreOrigin::Kept }, &mut Out::default());
        meta
    }

    fn keyed(n: usize) -> (String, String) {
        (format!("n/configmap/m{n}"), map(&format!("u{n}")))
    }

    fn put(meta: &mut Meta, n: usize) -> ChangeOutcome {
        let (key, text) = keyed(n);
        meta.put(&key, "configmap", &text, None)
    }

    /// It is asked for that what waits is kept.
    fn save(meta: &mut Meta) -> Revision {
        meta.step(at(0), &mut Out::default());
        meta.saving.as_ref().expect("something waits").0
    }

    #[test]
    fn so_many_objects_are_kept_and_one_that_is_being_written_counts() {
        let mut meta = loaded();
        for n in 1..META_ROWS_MAX - 1 {
            let (key, text) = keyed(n);
            let content = content::read("configmap", &text, &meta.budget).expect("a map");
            meta.keep(key.as_str().into(), Version::of(&content), 0, StoredObject::Other);
        }
        assert!(matches!(put(&mut meta, 0), ChangeOutcome::Waits));
        assert!(matches!(put(&mut meta, META_ROWS_MAX), ChangeOutcome::Refused(_)), "one waits");
        let revision = save(&mut meta);
        assert!(
            matches!(put(&mut meta, META_ROWS_MAX), ChangeOutcome::Refused(_)),
            "it is written"
        );
        meta.saved(revision, &mut Out::default());
        assert_eq!(meta.kept.len(), META_ROWS_MAX);
        assert!(matches!(put(&mut meta, META_ROWS_MAX), ChangeOutcome::Refused(_)), "it is kept");
        // What is there may change, and makes room when it goes.
        let changed = map("u1").replace(r#""n":"#, r#""labels":{},"n":"#);
        assert!(!matches!(
            meta.put("n/configmap/m1", "configmap", &changed, None),
            ChangeOutcome::Refused(_)
        ));
        assert!(matches!(meta.delete("n/configmap/m0", "u0", None), ChangeOutcome::Waits));
        let revision = save(&mut meta);
        meta.saved(revision, &mut Out::default());
        assert!(matches!(put(&mut meta, META_ROWS_MAX), ChangeOutcome::Waits));
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
            let hearing = meta.put(&key, "configmap", &text, None);
            assert!(
                matches!(hearing, ChangeOutcome::Waits | ChangeOutcome::Refused(_)),
                "{hearing:?}"
            );
            matches!(hearing, ChangeOutcome::Waits)
        };
        assert!(put(&mut meta, 1, "") && put(&mut meta, 2, ""));
        let revision = save(&mut meta);
        assert!(!put(&mut meta, 3, ""), "there is no memory for three");
        assert!(put(&mut meta, 2, "y"), "the second is to be in the place of the one before");
        meta.saved(revision, &mut Out::default());
        let revision = save(&mut meta);
        meta.saved(revision, &mut Out::default());
        assert!(meta.bytes <= budget.meta_bytes_max && meta.kept.len() == 2, "{}", meta.bytes);
    }

    #[test]
    fn so_many_deletions_are_final_and_the_oldest_is_forgotten() {
        let mut meta = loaded();
        for n in 0..=TOMBSTONES_MAX {
            let _ = meta.delete(&keyed(n).0, &format!("u{n}"), None);
        }
        let mut comes_back = |n: usize| matches!(put(&mut meta, n), ChangeOutcome::Waits);
        assert!(comes_back(0), "the oldest is forgotten");
        assert!(!comes_back(1));
        assert!(!comes_back(TOMBSTONES_MAX));
    }

    #[test]
    fn a_save_that_fails_is_tried_again_ever_more_rarely() {
        let mut meta = loaded();
        assert!(matches!(put(&mut meta, 1), ChangeOutcome::Waits));
        let asked = |meta: &mut Meta, ms: u64| {
            let mut out = Out::default();
            meta.step(at(ms), &mut out);
            match out.actions.pop() {
                Some(Action::Save { revision, .. }) => Some(revision),
                _ => None,
            }
        };
        let mut ms = 0;
        for n in 0..10 {
            let revision = asked(&mut meta, ms).expect("it is tried");
            let full = DiskError::Full("the disk is full".to_owned());
            meta.save_failed(at(ms), revision, &full, &mut Out::default());
            let wait_ms = (SAVE_RETRY_MIN_MS << n).min(SAVE_RETRY_MAX_MS);
            assert_eq!(meta.wake_at(), Some(Instant(ms + wait_ms)));
            assert_eq!(asked(&mut meta, ms + wait_ms - 1), None, "not before");
            ms += wait_ms;
        }
    }
}
