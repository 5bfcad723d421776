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
    /// The one that happened last is the last. With a digest of what makes two notes the same.
    ring: VecDeque<(u64, Note)>,
    /// Of the next event.
    annotations: BTreeMap<&'static str, String>,
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
        let same = |&(other, ref note): &(u64, Note)| {
            other == digest
                && note.reason == reason
                && note.message == message
                && note.involved_object == object
        };
        let note = match self.ring.iter().position(same) {
            Some(at) => {
                let (_, mut note) = self.ring.remove(at).expect("just found");
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
        self.ring.push_back((digest, note));
    }

    /// The oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &Note> {
        self.ring.iter().map(|(_, note)| note)
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
