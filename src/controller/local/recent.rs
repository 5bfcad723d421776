//! Keeps the latest Events, in memory only: nodes create them without end, nobody watches them, and
//! a restart may lose them.

use std::collections::VecDeque;

use super::Key;
use crate::limits::{LOCAL_EVENTS_BYTES_MAX, LOCAL_EVENTS_MAX};

/// The keys of the Events, the oldest first.
#[derive(Debug, Default)]
pub(super) struct Recent {
    keys: VecDeque<Key>,
    bytes: usize,
}

impl Recent {
    /// An Event was written, with its old and its new size.
    pub(super) fn put(&mut self, key: &Key, old: Option<usize>, bytes: usize) {
        if old.is_none() {
            self.keys.push_back(key.clone());
        }
        self.bytes = self.bytes - old.unwrap_or(0) + bytes;
    }

    /// An Event was deleted.
    pub(super) fn removed(&mut self, key: &Key, bytes: usize) {
        // It is the oldest, or a user deleted it.
        if let Some(at) = self.keys.iter().position(|it| it == key) {
            self.keys.remove(at);
            self.bytes -= bytes;
        }
    }

    /// The next one to delete, while there are too many.
    pub(super) fn surplus(&self) -> Option<Key> {
        let full = self.keys.len() > LOCAL_EVENTS_MAX || self.bytes > LOCAL_EVENTS_BYTES_MAX;
        self.keys.front().filter(|_| full).cloned()
    }
}
