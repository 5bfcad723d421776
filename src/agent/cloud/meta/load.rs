//! The start: what the store holds, and whether that is all there ever was.
//!
//! A row that there is no memory for, or that cannot be used, stays in the store as it is. What
//! it is about is not known, so pods of the cloud that run here are left alone as those of a store
//! that was lost. A deletion of it is kept, and so is what the cloud sends in its place.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::lost::MARK;
use super::{Meta, Version, memory_bytes};
use crate::agent::cloud::content::{self, StoredObject};
use crate::agent::event::{Action, Out, Severity};
use crate::model::meta::{Row, Saved, StoreOrigin};
use crate::model::status::PodStatus;

impl Meta {
    /// Takes what the store held at the start.
    pub(in crate::agent::cloud) fn load(&mut self, saved: Saved, out: &mut Out) {
        for row in saved.rows {
            self.lost.load(&row.key, &row.value);
            self.load_row(row, out);
        }
        self.remember_ends();
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
            StoreOrigin::Kept if self.kept.contains_key(MARK) => {
                StoreOrigin::Lost("it was in an earlier life, and not all has come back".to_owned())
            }
            // The life that made it was cut off before it could say so.
            StoreOrigin::Kept if self.kept.is_empty() => StoreOrigin::New,
            other => other,
        };
        self.tell(&origin, out);
        self.origin = Some(origin);
        if self.is_broken() && !self.kept.contains_key(MARK) {
            self.mark();
        }
    }

    fn load_row(&mut self, Row { key, kind, value }: Row, out: &mut Out) {
        let read = content::read(&kind, &value, &self.budget).and_then(|content| {
            let version = Version::of(&content);
            Ok((version, content.thing(&self.node)?.0))
        });
        let (version, thing) = match read {
            Ok(read) => read,
            Err(why) => {
                let line = format!("store: row {key} cannot be used and stays: {why}");
                out.push(Action::Log(Severity::Error, line));
                self.unread.insert(key, "".into());
                return;
            }
        };
        let bytes = memory_bytes(&key, &version, &thing).max(value.len());
        if self.bytes + bytes > self.budget.meta_bytes_max {
            self.unread.insert(key, version.uid);
        } else {
            self.keep(key, version, bytes, thing);
        }
    }

    fn tell(&self, origin: &StoreOrigin, out: &mut Out) {
        if !self.unread.is_empty() {
            let (count, max, why) =
                (self.unread.len(), self.budget.meta_bytes_max, self.budget.why());
            let line = format!(
                "store: {count} rows stay unread: what is kept of the cloud's may take {max} bytes \
                 of memory{why}"
            );
            out.push(Action::Log(Severity::Error, line));
        }
        match origin {
            StoreOrigin::Kept | StoreOrigin::Part { .. } => {}
            StoreOrigin::New => {
                let line = "store: new; pods of a cloud that run here already are left alone";
                out.push(Action::Log(Severity::Info, line.to_owned()));
            }
            StoreOrigin::Lost(why) => {
                let line = format!(
                    "store: what the cloud sent is lost, pods that run are left alone: {why}"
                );
                out.push(Action::Log(Severity::Error, line));
            }
        }
    }

    /// Whether the store has a row of this key, of this uid, of which nothing else is known. An
    /// empty uid is any.
    pub(super) fn has_unread(&self, key: &str, uid: &str) -> bool {
        let unread = self.unread.get(key);
        unread.is_some_and(|unread| unread.is_empty() || uid.is_empty() || **unread == *uid)
    }

    /// Pods of which an earlier life found that they had ended, and perhaps told the cloud.
    fn remember_ends(&mut self) {
        let ends: BTreeMap<Box<str>, PodStatus> = self
            .things()
            .filter_map(|thing| match thing {
                StoredObject::TerminalStatuses(uid, status) => {
                    Some((uid.clone(), (**status).clone()))
                }
                _ => None,
            })
            .collect();
        for kept in self.kept.values_mut() {
            if let StoredObject::Pod(pod) = &mut kept.thing
                && !pod.status.phase.is_terminal()
                && let Some(status) = ends.get(&*pod.metadata.uid)
            {
                Arc::make_mut(pod).status = status.clone();
            }
        }
    }
}
