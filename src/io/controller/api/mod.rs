//! The API server as the mind knows it: one interface, whoever answers.

pub mod local;

use crate::controller::event::{CallId, Event, WatchId};
use crate::controller::time::{Instant, Now};
use crate::model::api::{Call, Kind};
use local::Local;

/// Who answers.
#[derive(Debug)]
pub enum Api {
    /// Our own process, over a folder of manifests.
    Local(Box<Local>),
}

impl Api {
    /// Asks about one object.
    pub fn call(&mut self, id: CallId, call: &Call, now: Now) {
        match self {
            Self::Local(local) => local.call(id, call, now),
        }
    }

    /// Begins a list.
    pub fn list(&mut self, id: WatchId, kind: Kind) {
        match self {
            Self::Local(local) => local.list(id, kind),
        }
    }

    /// Begins to tell of changes.
    pub fn watch(&mut self, id: WatchId, kind: Kind, version: &str, events: &mut Vec<Event>) {
        match self {
            Self::Local(local) => local.watch(id, kind, version, events),
        }
    }

    /// Tells no more of it.
    pub fn unwatch(&mut self, id: WatchId) {
        match self {
            Self::Local(local) => local.unwatch(id),
        }
    }

    /// Goes on with what is under way.
    pub fn tick(&mut self, events: &mut Vec<Event>) {
        match self {
            Self::Local(local) => local.tick(events),
        }
    }

    /// When to call [`Api::tick`] if nothing gets ready before.
    pub fn wake_at(&self) -> Option<Instant> {
        match self {
            Self::Local(local) => local.wake_at(),
        }
    }
}
