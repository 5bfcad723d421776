//! Reads the store at the start, and decides whether it is complete.
//!
//! A row for which there is no memory, or that cannot be used, stays in the store as it is. Its
//! object is not known, so pods of the cloud that already run here are left alone, as with a lost
//! store. A deletion of the object is still stored, and so is what the cloud sends in its place.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::lost::MARK;
use super::{Meta, Version, memory_bytes};
use crate::agent::cloud::rows::{self, StoredObject};
use crate::agent::event::{Action, Out, Severity};
use crate::model::meta::{Row, Saved, StoreOrigin};
use crate::model::status::PodStatus;

impl Meta {
    /// Takes the content of the store at the start.
    pub(in crate::agent::cloud) fn load(&mut self, saved: Saved, out: &mut Out) {
        self.is_unsynced = saved.is_unsynced;
        for row in saved.rows {
            self.unsaved_pods.load(&row.key, &row.value);
            self.load_row(row, out);
        }
        self.restore_terminal_statuses();
        let found = match saved.origin {
            StoreOrigin::Part { unread } => {
                self.unread.extend(unread);
                StoreOrigin::Kept
            }
            found => found,
        };
        let origin = match found {
            StoreOrigin::Kept if !self.unread.is_empty() => {
                StoreOrigin::Lost(format!("{} rows of it stay unread", self.unread.len()))
            }
            StoreOrigin::Kept if self.stored.contains_key(MARK) => StoreOrigin::Lost(
                "it was incomplete before, and not all objects have come back".to_owned(),
            ),
            // The process that created the store ended before it could record that it is new.
            StoreOrigin::Kept if self.stored.is_empty() => StoreOrigin::New,
            other => other,
        };
        self.log_origin(&origin, out);
        self.origin = Some(origin);
        if self.is_incomplete() && !self.stored.contains_key(MARK) {
            self.mark();
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
                self.unread.insert(key, "".into());
                return;
            }
        };
        let bytes = memory_bytes(&key, &version, &object).max(value.len());
        if self.bytes + bytes > self.budget.meta_bytes_max {
            self.unread.insert(key, version.uid);
        } else {
            self.insert_row(key, version, bytes, object);
        }
    }

    fn log_origin(&self, origin: &StoreOrigin, out: &mut Out) {
        if !self.unread.is_empty() {
            let (count, max, why) =
                (self.unread.len(), self.budget.meta_bytes_max, self.budget.why());
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

    /// Whether the store has an unread row of this key and uid. An empty uid matches any.
    pub(super) fn has_unread(&self, key: &str, uid: &str) -> bool {
        let unread = self.unread.get(key);
        unread.is_some_and(|unread| unread.is_empty() || uid.is_empty() || **unread == *uid)
    }

    /// Restores the terminal statuses that an earlier process stored, and perhaps reported.
    fn restore_terminal_statuses(&mut self) {
        let statuses: BTreeMap<Box<str>, PodStatus> = self
            .stored_objects()
            .filter_map(|object| match object {
                StoredObject::TerminalStatuses(uid, status) => {
                    Some((uid.clone(), (**status).clone()))
                }
                _ => None,
            })
            .collect();
        for row in self.stored.values_mut() {
            if let StoredObject::Pod(pod) = &mut row.object
                && !pod.status.phase.is_terminal()
                && let Some(status) = statuses.get(&*pod.metadata.uid)
            {
                Arc::make_mut(pod).status = status.clone();
            }
        }
    }
}
