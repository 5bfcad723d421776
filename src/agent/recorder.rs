//! Events of the Kubernetes kind, kept in a ring and written to the log; those that repeat are
//! found as client-go's `EventCorrelator` finds them.
//!
//! ```text
//!  same object, kind, reason, message ──────────────▶ the one in the ring counts one more
//!    (ids and times taken out: `comparable`)
//!  ten messages of one object, kind and reason, ────▶ one for all of these, with the newest text
//!    none ten minutes after the one before
//!  25 of one object at once, then one in 5 minutes ─▶ in the ring, but told to nobody
//! ```
//!
//! Who is told, the log, which may lie on flash, and the cloud, is told the first, then those whose
//! count is a power of two. The object is what the event names: a pod, or one container of it.

mod comparable;

use std::collections::{BTreeMap, VecDeque};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use comparable::comparable;

use super::event::{Action, Out, Severity};
use super::time::{Instant, Now};
use crate::limits;
use crate::model::recorded_event::{EventType, Object, RecordedEvent};

/// The ring.
#[derive(Debug, Default)]
pub struct Recorder {
    /// The one that happened last is the last.
    ring: VecDeque<Entry>,
    /// Everything that happened, repeats included.
    serial: u64,
    /// Of the next event.
    annotations: BTreeMap<&'static str, String>,
    /// What each object may still tell, by its digest.
    allowances: BTreeMap<u64, Allowance>,
}

#[derive(Debug)]
struct Entry {
    /// Of the newest repeat that is to be told; 0: none was.
    told: u64,
    /// Of what makes two notes the same.
    digest: u64,
    /// It stands for all of its object, kind and reason.
    combined: bool,
    /// When the newest repeat happened.
    at: Instant,
    note: RecordedEvent,
}

/// Of one object.
#[derive(Debug)]
struct Allowance {
    /// Each event that is told takes [`limits::EVENTS_REFILL_MS`] of it.
    left_ms: u64,
    at: Instant,
    /// It was said that some are kept back.
    exhausted: bool,
}

impl Recorder {
    /// The next event carries these.
    pub fn annotate(&mut self, annotations: BTreeMap<&'static str, String>) {
        self.annotations = annotations;
    }

    /// Enters one event.
    pub fn add(
        &mut self,
        now: Now,
        object: Object,
        kind: EventType,
        reason: &'static str,
        message: String,
        out: &mut Out,
    ) {
        let annotations = std::mem::take(&mut self.annotations);
        let note = RecordedEvent {
            involved_object: object,
            kind,
            reason,
            message,
            annotations,
            count: 1,
            first_timestamp: now.timestamp(),
            last_timestamp: now.timestamp(),
        };
        let mut entry = self.merge(now, note);
        self.serial += 1;
        if entry.note.count.is_power_of_two() && self.may_tell(now, &entry.note, out) {
            entry.told = self.serial;
            out.push(Action::RecordedEvent(entry.note.clone()));
        }
        self.make_room(&entry.note.involved_object);
        self.ring.push_back(entry);
    }

    /// The entry of which the note is a repeat, taken out of the ring, or a new one.
    fn merge(&mut self, now: Now, mut note: RecordedEvent) -> Entry {
        let mut digest = digest(&note, Some(&comparable(&note.message)));
        let mut at = self.ring.iter().position(|entry| entry.is(digest, &note));
        let combined = at.is_none() && self.has_many_like(&note, now.boot);
        if combined {
            digest = self::digest(&note, None);
            at = self.ring.iter().position(|entry| entry.is(digest, &note));
            note.message.insert_str(0, COMBINED);
        }
        let Some(mut known) = at.and_then(|at| self.ring.remove(at)) else {
            return Entry { told: 0, digest, combined, at: now.boot, note };
        };
        note.count = known.note.count.saturating_add(1);
        note.first_timestamp = known.note.first_timestamp;
        known.note = note;
        known.at = now.boot;
        known
    }

    /// Whether so much of this object, kind and reason happened, each within a while of the one
    /// before, that another message of them is not worth an entry.
    fn has_many_like(&self, note: &RecordedEvent, now: Instant) -> bool {
        let (mut since, mut count) = (now, 1);
        for entry in self.ring.iter().rev().filter(|entry| entry.is_like(note)) {
            if since.since_ms(entry.at) > limits::EVENTS_SIMILAR_MS {
                return false;
            }
            since = entry.at;
            count += 1;
            if entry.combined || count >= limits::EVENTS_SIMILAR_MAX {
                return true;
            }
        }
        false
    }

    /// Takes one from the object's allowance. The line that says that it is used up is written
    /// once, until some is left again.
    fn may_tell(&mut self, now: Now, note: &RecordedEvent, out: &mut Out) -> bool {
        let object = &note.involved_object;
        let key = digest_of(object);
        if !self.allowances.contains_key(&key) && self.allowances.len() >= limits::EVENTS_MAX {
            // Who was quiet longest has most of its own again.
            let quietest = self.allowances.iter().min_by_key(|(_, it)| it.at).map(|(key, _)| *key);
            quietest.and_then(|key| self.allowances.remove(&key));
        }
        let full_ms = limits::EVENTS_REFILL_MS * limits::EVENTS_BURST;
        let new = Allowance { left_ms: full_ms, at: now.boot, exhausted: false };
        let allowance = self.allowances.entry(key).or_insert(new);
        let grown = now.boot.since_ms(allowance.at);
        allowance.left_ms = allowance.left_ms.saturating_add(grown).min(full_ms);
        allowance.at = now.boot;
        if let Some(left_ms) = allowance.left_ms.checked_sub(limits::EVENTS_REFILL_MS) {
            allowance.left_ms = left_ms;
            allowance.exhausted = false;
            return true;
        }
        if !std::mem::replace(&mut allowance.exhausted, true) {
            let Object { kind, namespace, name, field_path, .. } = object;
            let line = format!(
                "{}={namespace}/{name} {field_path} has too many events: got {} at once, from now \
                 on one in {} s is logged; `edged events` shows all",
                kind.to_ascii_lowercase(),
                limits::EVENTS_BURST,
                limits::EVENTS_REFILL_MS / 1000,
            );
            out.push(Action::Log(Severity::Warn, line));
        }
        false
    }

    /// The oldest goes: of the object where that has its share, else of all.
    fn make_room(&mut self, object: &Object) {
        let own = |entry: &Entry| entry.note.involved_object == *object;
        if self.ring.iter().filter(|entry| own(entry)).count() >= limits::EVENTS_OBJECT_MAX {
            let oldest = self.ring.iter().position(own);
            oldest.and_then(|at| self.ring.remove(at));
        }
        if self.ring.len() == limits::EVENTS_MAX {
            self.ring.pop_front();
        }
    }

    /// The oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &RecordedEvent> {
        self.ring.iter().map(|entry| &entry.note)
    }

    /// Whether the one of this digest is still there.
    #[cfg(feature = "cloud")]
    pub fn holds(&self, digest: u64) -> bool {
        self.ring.iter().any(|entry| entry.digest == digest)
    }

    /// What was to be told after this serial number, the oldest first: its own number, a digest
    /// that stands for it and its repeats, and what it was.
    pub fn since(&self, serial: u64) -> Vec<(u64, u64, &RecordedEvent)> {
        let new = self.ring.iter().filter(|entry| entry.told > serial);
        let mut new: Vec<_> = new.map(|entry| (entry.told, entry.digest, &entry.note)).collect();
        new.sort_unstable_by_key(|(told, ..)| *told);
        new
    }
}

impl Entry {
    fn is(&self, digest: u64, note: &RecordedEvent) -> bool {
        self.digest == digest && self.is_like(note)
    }

    fn is_like(&self, note: &RecordedEvent) -> bool {
        self.note.reason == note.reason
            && self.note.kind == note.kind
            && self.note.involved_object == note.involved_object
    }
}

/// Of what makes two notes the same; `message` as it is compared, `None`: whatever it is.
fn digest(note: &RecordedEvent, message: Option<&str>) -> u64 {
    let mut hasher = DefaultHasher::new();
    let object = &note.involved_object;
    (&object.uid, &object.field_path, note.kind as u8, note.reason, message).hash(&mut hasher);
    hasher.finish()
}

fn digest_of(object: &Object) -> u64 {
    let mut hasher = DefaultHasher::new();
    (object.kind, &object.uid, &object.field_path).hash(&mut hasher);
    hasher.finish()
}

/// Begins the message of one that stands for many (client-go's words).
const COMBINED: &str = "(combined from similar events): ";

#[cfg(test)]
mod tests {
    use super::*;

    fn object(name: &str) -> Object {
        Object {
            kind: "Pod",
            namespace: "default".into(),
            name: name.into(),
            uid: name.into(),
            field_path: String::new(),
        }
    }

    /// Enters warnings about one object, and counts what is told.
    #[derive(Default)]
    struct Fixture {
        notes: Recorder,
        now_ms: u64,
    }

    impl Fixture {
        fn add(&mut self, name: &str, reason: &'static str, message: &str) -> Vec<RecordedEvent> {
            let now = Now { boot: Instant(self.now_ms), wall: None };
            let mut out = Out::default();
            let (object, kind) = (object(name), EventType::Warning);
            self.notes.add(now, object, kind, reason, message.to_owned(), &mut out);
            let told = out.actions.into_iter().filter_map(|action| match action {
                Action::RecordedEvent(note) => Some(note),
                _ => None,
            });
            told.collect()
        }

        fn counts(&self) -> Vec<u32> {
            self.notes.iter().map(|note| note.count).collect()
        }
    }

    #[test]
    fn repeats_raise_the_count_and_are_logged_ever_more_rarely() {
        let mut fixture = Fixture::default();
        let told: usize = (0..100).map(|_| fixture.add("a", "BackOff", "again").len()).sum();
        assert_eq!(fixture.counts(), [100]);
        assert_eq!(told, 7, "1, 2, 4 … 64");
    }

    #[test]
    fn a_message_that_differs_by_an_id_or_a_time_is_a_repeat_with_the_newest_text() {
        let mut fixture = Fixture::default();
        let message = |n: u64| {
            format!("failed for sandbox \"{n:064x}\" at 2026-11-24T10:47:{n:02}Z: no network")
        };
        for n in 0..50 {
            fixture.add("a", "FailedCreatePodSandBox", &message(n));
        }
        assert_eq!(fixture.counts(), [50]);
        assert_eq!(fixture.notes.iter().next().expect("one").message, message(49));
        // What else differs makes another.
        fixture.add("a", "FailedCreatePodSandBox", "failed: no space left on device");
        fixture.add("a", "FailedMount", &message(1));
        fixture.add("b", "FailedCreatePodSandBox", &message(1));
        assert_eq!(fixture.counts(), [50, 1, 1, 1]);
    }

    #[test]
    fn ten_messages_of_a_reason_are_combined_until_it_was_quiet_for_ten_minutes() {
        let mut fixture = Fixture::default();
        let mut told = 0;
        for n in 0..40 {
            fixture.now_ms += limits::EVENTS_SIMILAR_MS;
            told += fixture.add("a", "FailedMount", &format!("try number {n}")).len();
        }
        let alone = limits::EVENTS_SIMILAR_MAX - 1;
        let counts = fixture.counts();
        assert_eq!(counts[..alone], [1].repeat(alone));
        assert_eq!(counts[alone..], [31]);
        assert_eq!(told, 9 + 5, "1, 2, 4, 8, 16 of the last");
        let last = fixture.notes.iter().last().expect("ten");
        assert_eq!(last.message, "(combined from similar events): try number 39");
        fixture.now_ms += limits::EVENTS_SIMILAR_MS + 1;
        fixture.add("a", "FailedMount", "another");
        assert_eq!(fixture.counts().len(), counts.len() + 1, "a new story begins");
    }

    #[test]
    fn an_object_tells_so_much_at_once_and_leaves_others_their_room() {
        let mut fixture = Fixture::default();
        let reasons = ["A", "B", "C", "D", "E"];
        let tell = |fixture: &mut Fixture, reason, n: u64| {
            fixture.add("noisy", reason, &format!("{n} of {reason}")).len() as u64
        };
        let mut told = 0;
        for n in 0..9 {
            told += reasons.map(|reason| tell(&mut fixture, reason, n)).iter().sum::<u64>();
        }
        assert_eq!(told, limits::EVENTS_BURST);
        assert_eq!(fixture.counts().len(), limits::EVENTS_OBJECT_MAX);
        assert_eq!(fixture.add("quiet", "A", "heard").len(), 1);
        fixture.now_ms += limits::EVENTS_REFILL_MS;
        let after = reasons.map(|reason| tell(&mut fixture, reason, 100));
        assert_eq!(after, [1, 0, 0, 0, 0]);
    }

    #[test]
    fn that_an_object_has_too_many_events_is_said_once() {
        let (mut notes, mut out) = (Recorder::default(), Out::default());
        let now = Now { boot: Instant(0), wall: None };
        for n in 0..40_u8 {
            let reason = ["A", "B", "C", "D", "E"][usize::from(n % 5)];
            let message = format!("{n} of {reason}");
            notes.add(now, object("a"), EventType::Normal, reason, message, &mut out);
        }
        let lines = out.actions.iter().filter(|action| matches!(action, Action::Log(..)));
        assert_eq!(lines.count(), 1);
    }

    #[test]
    fn the_ring_keeps_the_newest() {
        let mut fixture = Fixture::default();
        for n in 0..limits::EVENTS_MAX + 5 {
            fixture.add(&n.to_string(), "Started", "x");
        }
        assert_eq!(fixture.counts().len(), limits::EVENTS_MAX);
        assert_eq!(&*fixture.notes.iter().next().expect("full").involved_object.name, "5");
        assert_eq!(fixture.notes.allowances.len(), limits::EVENTS_MAX);
    }

    #[test]
    fn what_repeats_untold_is_told_once_whoever_asks_later() {
        let mut fixture = Fixture::default();
        for _ in 0..3 {
            fixture.add("a", "BackOff", "again");
        }
        fixture.add("b", "Started", "x");
        let told = |fixture: &Fixture, serial| -> Vec<(u64, u32)> {
            fixture.notes.since(serial).iter().map(|(told, _, note)| (*told, note.count)).collect()
        };
        // The third of the first is not for itself, but the second was not heard yet.
        assert_eq!(told(&fixture, 0), [(2, 3), (4, 1)]);
        assert_eq!(told(&fixture, 2), [(4, 1)]);
        assert_eq!(told(&fixture, 4), []);
        fixture.add("a", "BackOff", "again");
        assert_eq!(told(&fixture, 4), [(5, 4)]);
    }
}
