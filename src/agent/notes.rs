//! Events of the Kubernetes kind, kept in a ring and written to the log.
//!
//! An event that repeats raises the count of the one in the ring. The log, which may lie on flash,
//! gets the first, then those whose count is a power of two.

use std::collections::{BTreeMap, VecDeque};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use super::event::{Action, Out};
use super::time::Now;
use crate::limits;
use crate::model::note::{Note, NoteKind, Object};

/// The ring.
#[derive(Debug, Default)]
pub struct Notes {
    /// The one that happened last is the last.
    ring: VecDeque<Entry>,
    /// Everything that happened, repeats included.
    serial: u64,
    /// Of the next event.
    annotations: BTreeMap<&'static str, String>,
}

#[derive(Debug)]
struct Entry {
    /// Of the newest repeat.
    serial: u64,
    /// Of what makes two notes the same.
    digest: u64,
    note: Note,
}

impl Notes {
    /// The next event carries these.
    pub fn annotate(&mut self, annotations: BTreeMap<&'static str, String>) {
        self.annotations = annotations;
    }

    /// Enters one event.
    pub fn add(
        &mut self,
        now: Now,
        object: Object,
        kind: NoteKind,
        reason: &'static str,
        message: String,
        out: &mut Out,
    ) {
        let annotations = std::mem::take(&mut self.annotations);
        let digest = digest(&object, reason, &message);
        let same = |Entry { digest: other, note, .. }: &Entry| {
            *other == digest
                && note.reason == reason
                && note.message == message
                && note.involved_object == object
        };
        let note = match self.ring.iter().position(same) {
            Some(at) => {
                let Entry { mut note, .. } = self.ring.remove(at).expect("just found");
                note.count = note.count.saturating_add(1);
                note.last_timestamp = now.timestamp();
                note
            }
            None => Note {
                involved_object: object,
                kind,
                reason,
                message,
                annotations,
                count: 1,
                first_timestamp: now.timestamp(),
                last_timestamp: now.timestamp(),
            },
        };
        if note.count.is_power_of_two() {
            out.push(Action::Note(note.clone()));
        }
        if self.ring.len() == limits::NOTES_MAX {
            self.ring.pop_front();
        }
        self.serial += 1;
        self.ring.push_back(Entry { serial: self.serial, digest, note });
    }

    /// The oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &Note> {
        self.ring.iter().map(|entry| &entry.note)
    }

    /// What happened after this serial number, the oldest first: its own number, a digest that
    /// stands for it and its repeats, and what it was.
    pub fn since(&self, serial: u64) -> impl Iterator<Item = (u64, u64, &Note)> {
        let from = self.ring.partition_point(|entry| entry.serial <= serial);
        self.ring.iter().skip(from).map(|entry| (entry.serial, entry.digest, &entry.note))
    }
}

fn digest(object: &Object, reason: &str, message: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    (&object.uid, &object.field_path, reason, message).hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::time::Instant;

    fn object(name: &str) -> Object {
        Object {
            kind: "Pod",
            namespace: "default".into(),
            name: name.into(),
            uid: "1".into(),
            field_path: String::new(),
        }
    }

    #[test]
    fn repeats_raise_the_count_and_are_logged_ever_more_rarely() {
        let (mut notes, mut out) = (Notes::default(), Out::default());
        let now = Now { boot: Instant(0), wall: None };
        for _ in 0..100 {
            notes.add(now, object("a"), NoteKind::Warning, "BackOff", "again".into(), &mut out);
        }
        assert_eq!(notes.iter().map(|note| note.count).collect::<Vec<_>>(), [100]);
        assert_eq!(out.actions.len(), 7, "1, 2, 4 … 64");
    }

    #[test]
    fn the_ring_keeps_the_newest() {
        let (mut notes, mut out) = (Notes::default(), Out::default());
        let now = Now { boot: Instant(0), wall: None };
        for n in 0..limits::NOTES_MAX + 5 {
            let name = n.to_string();
            notes.add(now, object(&name), NoteKind::Normal, "Started", "x".into(), &mut out);
        }
        assert_eq!(notes.iter().count(), limits::NOTES_MAX);
        assert_eq!(&*notes.iter().next().expect("full").involved_object.name, "5");
    }
}
