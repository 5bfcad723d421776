//! The event recorder: Kubernetes events are kept in a ring and written to the log; repeats are
//! detected as by client-go's `EventCorrelator`.
//!
//! ```text
//!  same object, kind, reason, message ──────────────▶ the count of the one in the ring grows
//!    (ids and times taken out: `comparable`)
//!  ten messages of one object, kind and reason, ────▶ one for all of these, with the newest text
//!    none ten minutes after the one before
//!  25 of one object at once, then one in 5 minutes ─▶ in the ring, but not reported
//! ```
//!
//! The log, which may lie on flash, and the cloud get the first event, then repeats whose count is
//! a power of two. The object is the one that the event names: a pod, or one container of it.

mod comparable;

use std::collections::{BTreeMap, VecDeque};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use comparable::comparable;

use super::event::{Action, Out, Severity};
use super::time::{Instant, Now};
use crate::limits;
use crate::model::recorded_event::{EventType, Object, RecordedEvent};

/// The ring of events.
#[derive(Debug, Default)]
pub struct Recorder {
    /// The newest event is the last.
    ring: VecDeque<Entry>,
    /// Counts all events, repeats included.
    serial: u64,
    /// Of the next event.
    annotations: BTreeMap<&'static str, String>,
    /// How much each object may still report, by its digest.
    allowances: BTreeMap<u64, Allowance>,
}

#[derive(Debug)]
struct Entry {
    /// Serial number of the newest repeat to report; 0: none.
    reported_serial: u64,
    /// Of the fields in which repeats are equal.
    digest: u64,
    /// It stands for all events of its object, kind and reason.
    combined: bool,
    /// When the newest repeat happened.
    at: Instant,
    event: RecordedEvent,
}

/// The allowance of one object.
#[derive(Debug)]
struct Allowance {
    /// Each reported event takes [`limits::EVENTS_REFILL_MS`] of it.
    left_ms: u64,
    at: Instant,
    /// It is logged that some events are held back.
    exhausted: bool,
}

impl Recorder {
    /// Sets the annotations of the next event.
    pub fn annotate(&mut self, annotations: BTreeMap<&'static str, String>) {
        self.annotations = annotations;
    }

    /// Records one event.
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
        let event = RecordedEvent {
            involved_object: object,
            kind,
            reason,
            message,
            annotations,
            count: 1,
            first_timestamp: now.timestamp(),
            last_timestamp: now.timestamp(),
        };
        let mut entry = self.merge(now, event);
        self.serial += 1;
        if entry.event.count.is_power_of_two() && self.may_report(now, &entry.event, out) {
            entry.reported_serial = self.serial;
            out.push(Action::RecordedEvent(entry.event.clone()));
        }
        self.make_room(&entry.event.involved_object);
        self.ring.push_back(entry);
    }

    /// The entry that the event repeats, taken out of the ring, or a new one.
    fn merge(&mut self, now: Now, mut event: RecordedEvent) -> Entry {
        let mut digest = digest(&event, Some(&comparable(&event.message)));
        let mut at = self.ring.iter().position(|entry| entry.is(digest, &event));
        let combined = at.is_none() && self.has_many_like(&event, now.boot);
        if combined {
            digest = self::digest(&event, None);
            at = self.ring.iter().position(|entry| entry.is(digest, &event));
            event.message.insert_str(0, COMBINED);
        }
        let Some(mut known) = at.and_then(|at| self.ring.remove(at)) else {
            return Entry { reported_serial: 0, digest, combined, at: now.boot, event };
        };
        event.count = known.event.count.saturating_add(1);
        event.first_timestamp = known.event.first_timestamp;
        known.event = event;
        known.at = now.boot;
        known
    }

    /// Whether there are so many events of this object, kind and reason, each within a while of the
    /// one before, that another message gets no entry of its own.
    fn has_many_like(&self, event: &RecordedEvent, now: Instant) -> bool {
        let (mut since, mut count) = (now, 1);
        for entry in self.ring.iter().rev().filter(|entry| entry.is_like(event)) {
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

    /// Takes one from the object's allowance. That the allowance is used up is logged once, until
    /// some is left again.
    fn may_report(&mut self, now: Now, event: &RecordedEvent, out: &mut Out) -> bool {
        let object = &event.involved_object;
        let key = digest_of(object);
        if !self.allowances.contains_key(&key) && self.allowances.len() >= limits::EVENTS_MAX {
            // The object that was quiet longest has most of its allowance again.
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

    /// Removes the oldest event: of the object if that has its share, otherwise of all.
    fn make_room(&mut self, object: &Object) {
        let own = |entry: &Entry| entry.event.involved_object == *object;
        if self.ring.iter().filter(|entry| own(entry)).count() >= limits::EVENTS_OBJECT_MAX {
            let oldest = self.ring.iter().position(own);
            oldest.and_then(|at| self.ring.remove(at));
        }
        if self.ring.len() == limits::EVENTS_MAX {
            self.ring.pop_front();
        }
    }

    /// All events, the oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &RecordedEvent> {
        self.ring.iter().map(|entry| &entry.event)
    }

    /// Whether the event of this digest is still there.
    #[cfg(feature = "cloud")]
    pub fn holds(&self, digest: u64) -> bool {
        self.ring.iter().any(|entry| entry.digest == digest)
    }

    /// The number of events since the start, repeats included.
    pub fn count(&self) -> u64 {
        self.serial
    }

    /// The events to report after this serial number, the oldest first: the serial number, a digest
    /// for the event and its repeats, and the event.
    pub fn since(&self, serial: u64) -> Vec<(u64, u64, &RecordedEvent)> {
        let new = self.ring.iter().filter(|entry| entry.reported_serial > serial);
        let mut new: Vec<_> =
            new.map(|entry| (entry.reported_serial, entry.digest, &entry.event)).collect();
        new.sort_unstable_by_key(|(reported_serial, ..)| *reported_serial);
        new
    }
}

impl Entry {
    fn is(&self, digest: u64, event: &RecordedEvent) -> bool {
        self.digest == digest && self.is_like(event)
    }

    fn is_like(&self, event: &RecordedEvent) -> bool {
        self.event.reason == event.reason
            && self.event.kind == event.kind
            && self.event.involved_object == event.involved_object
    }
}

/// A digest of the fields in which repeats are equal; `message` as it is compared, `None`: any
/// message.
fn digest(event: &RecordedEvent, message: Option<&str>) -> u64 {
    let mut hasher = DefaultHasher::new();
    let object = &event.involved_object;
    (&object.uid, &object.field_path, event.kind as u8, event.reason, message).hash(&mut hasher);
    hasher.finish()
}

fn digest_of(object: &Object) -> u64 {
    let mut hasher = DefaultHasher::new();
    (object.kind, &object.uid, &object.field_path).hash(&mut hasher);
    hasher.finish()
}

/// Prefix of the message of a combined event (client-go's text).
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

    #[test]
    fn each_event_counts_repeats_as_well() {
        let mut fixture = Fixture::default();
        fixture.add("p", "BackOff", "again");
        fixture.add("p", "BackOff", "again");
        assert_eq!((fixture.recorder.count(), fixture.recorder.iter().count()), (2, 1));
    }

    /// Records warnings about one object, and counts the reported ones.
    #[derive(Default)]
    struct Fixture {
        recorder: Recorder,
        now_ms: u64,
    }

    impl Fixture {
        fn add(&mut self, name: &str, reason: &'static str, message: &str) -> Vec<RecordedEvent> {
            let now = Now { boot: Instant(self.now_ms), wall: None };
            let mut out = Out::default();
            let (object, kind) = (object(name), EventType::Warning);
            self.recorder.add(now, object, kind, reason, message.to_owned(), &mut out);
            let reported_serial = out.actions.into_iter().filter_map(|action| match action {
                Action::RecordedEvent(event) => Some(event),
                _ => None,
            });
            reported_serial.collect()
        }

        fn counts(&self) -> Vec<u32> {
            self.recorder.iter().map(|event| event.count).collect()
        }
    }

    #[test]
    fn repeats_raise_the_count_and_are_logged_ever_more_rarely() {
        let mut fixture = Fixture::default();
        let reported_serial: usize =
            (0..100).map(|_| fixture.add("a", "BackOff", "again").len()).sum();
        assert_eq!(fixture.counts(), [100]);
        assert_eq!(reported_serial, 7, "1, 2, 4 … 64");
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
        assert_eq!(fixture.recorder.iter().next().expect("one").message, message(49));
        // Other differences make another event.
        fixture.add("a", "FailedCreatePodSandBox", "failed: no space left on device");
        fixture.add("a", "FailedMount", &message(1));
        fixture.add("b", "FailedCreatePodSandBox", &message(1));
        assert_eq!(fixture.counts(), [50, 1, 1, 1]);
    }

    #[test]
    fn ten_messages_of_a_reason_are_combined_until_it_was_quiet_for_ten_minutes() {
        let mut fixture = Fixture::default();
        let mut reported_serial = 0;
        for n in 0..40 {
            fixture.now_ms += limits::EVENTS_SIMILAR_MS;
            reported_serial += fixture.add("a", "FailedMount", &format!("try number {n}")).len();
        }
        let alone = limits::EVENTS_SIMILAR_MAX - 1;
        let counts = fixture.counts();
        assert_eq!(counts[..alone], [1].repeat(alone));
        assert_eq!(counts[alone..], [31]);
        assert_eq!(reported_serial, 9 + 5, "1, 2, 4, 8, 16 of the last");
        let last = fixture.recorder.iter().last().expect("ten");
        assert_eq!(last.message, "(combined from similar events): try number 39");
        fixture.now_ms += limits::EVENTS_SIMILAR_MS + 1;
        fixture.add("a", "FailedMount", "another");
        assert_eq!(fixture.counts().len(), counts.len() + 1, "a new story begins");
    }

    #[test]
    fn the_allowance_of_an_object_does_not_affect_others() {
        let mut fixture = Fixture::default();
        let reasons = ["A", "B", "C", "D", "E"];
        let add = |fixture: &mut Fixture, reason, n: u64| {
            fixture.add("noisy", reason, &format!("{n} of {reason}")).len() as u64
        };
        let mut reported_serial = 0;
        for n in 0..9 {
            reported_serial +=
                reasons.map(|reason| add(&mut fixture, reason, n)).iter().sum::<u64>();
        }
        assert_eq!(reported_serial, limits::EVENTS_BURST);
        assert_eq!(fixture.counts().len(), limits::EVENTS_OBJECT_MAX);
        assert_eq!(fixture.add("quiet", "A", "heard").len(), 1);
        fixture.now_ms += limits::EVENTS_REFILL_MS;
        let after = reasons.map(|reason| add(&mut fixture, reason, 100));
        assert_eq!(after, [1, 0, 0, 0, 0]);
    }

    #[test]
    fn too_many_events_of_an_object_are_logged_once() {
        let (mut recorder, mut out) = (Recorder::default(), Out::default());
        let now = Now { boot: Instant(0), wall: None };
        for n in 0..40_u8 {
            let reason = ["A", "B", "C", "D", "E"][usize::from(n % 5)];
            let message = format!("{n} of {reason}");
            recorder.add(now, object("a"), EventType::Normal, reason, message, &mut out);
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
        assert_eq!(&*fixture.recorder.iter().next().expect("full").involved_object.name, "5");
        assert_eq!(fixture.recorder.allowances.len(), limits::EVENTS_MAX);
    }

    #[test]
    fn unread_repeats_are_reported_once() {
        let mut fixture = Fixture::default();
        for _ in 0..3 {
            fixture.add("a", "BackOff", "again");
        }
        fixture.add("b", "Started", "x");
        let reported_serial = |fixture: &Fixture, serial| -> Vec<(u64, u32)> {
            fixture
                .recorder
                .since(serial)
                .iter()
                .map(|(reported_serial, _, event)| (*reported_serial, event.count))
                .collect()
        };
        // The third repeat is not reported by itself, but the second one was not read yet.
        assert_eq!(reported_serial(&fixture, 0), [(2, 3), (4, 1)]);
        assert_eq!(reported_serial(&fixture, 2), [(4, 1)]);
        assert_eq!(reported_serial(&fixture, 4), []);
        fixture.add("a", "BackOff", "again");
        assert_eq!(reported_serial(&fixture, 4), [(5, 4)]);
    }
}
