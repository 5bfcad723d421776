//! The API server for the core: one interface for our own and a real one.

pub mod local;
pub mod remote;

use std::sync::Arc;

use mio::Registry;
use mio::event::Event as Ready;

use super::store::Store;
use crate::controller::event::{CallId, Event, WatchId};
use crate::controller::time::{Instant, Now};
use crate::model::any_api::AnyCall;
use crate::model::api::{Call, Kind};
use crate::model::application::Gvr;
use crate::model::error::System;
use crate::model::sync;
use local::Local;
use remote::Remote;

#[derive(Debug)]
pub enum Api {
    /// In our own process, with a folder of manifests.
    Local(Box<Local>),
    /// A real API server.
    Remote(Box<Remote>),
}

impl Api {
    /// Makes a call about one object.
    pub fn call(&mut self, id: CallId, call: &Call, now: Now) {
        match self {
            Self::Local(local) => local.call(id, call, now),
            Self::Remote(remote) => remote.call(id, call),
        }
    }

    /// Makes a call about a resource of any kind.
    pub fn call_any(&mut self, id: CallId, call: Box<AnyCall>) {
        match self {
            Self::Local(local) => local.call_any(id, &call),
            Self::Remote(remote) => remote.call_any(id, call),
        }
    }

    /// Starts a list of a resource of any kind.
    pub fn list_any(&mut self, id: WatchId, resource: Arc<Gvr>) {
        match self {
            Self::Local(local) => local.list_any(id, &resource),
            Self::Remote(remote) => remote.list_any(id, resource),
        }
    }

    /// Starts to report changes of a resource of any kind.
    pub fn watch_any(
        &mut self,
        id: WatchId,
        resource: Arc<Gvr>,
        version: &str,
        events: &mut Vec<Event>,
    ) {
        match self {
            Self::Local(local) => local.watch_any(id, &resource, version, events),
            Self::Remote(remote) => remote.watch_any(id, resource, version),
        }
    }

    /// Starts a list.
    pub fn list(&mut self, id: WatchId, kind: Kind) {
        match self {
            Self::Local(local) => local.list(id, kind),
            Self::Remote(remote) => remote.list(id, kind),
        }
    }

    /// Starts to report changes.
    pub fn watch(&mut self, id: WatchId, kind: Kind, version: &str, events: &mut Vec<Event>) {
        match self {
            Self::Local(local) => local.watch(id, kind, version, events),
            Self::Remote(remote) => remote.watch(id, kind, version),
        }
    }

    /// Ends the watch.
    pub fn unwatch(&mut self, id: WatchId) {
        match self {
            Self::Local(local) => local.unwatch(id),
            Self::Remote(remote) => remote.unwatch(id),
        }
    }

    /// Why the API server does not answer, if it is more than a restart.
    pub fn trouble(&self, now: Instant) -> Option<String> {
        match self {
            Self::Local(_) => None,
            Self::Remote(remote) => remote.trouble(now),
        }
    }

    pub fn ready(&mut self, ready: &Ready) {
        match self {
            Self::Local(_) => {}
            Self::Remote(remote) => remote.ready(ready),
        }
    }

    /// The objects, if they are our own.
    pub fn local(&mut self) -> Option<&mut Local> {
        match self {
            Self::Local(local) => Some(local),
            Self::Remote(_) => None,
        }
    }

    /// Saves changes and `records`, and reports them.
    pub fn commit(
        &mut self,
        store: &mut Store,
        records: &[sync::Change],
        now: Instant,
        events: &mut Vec<Event>,
    ) -> Result<(), System> {
        match self {
            Self::Local(local) => local.commit(store, records, now, events),
            Self::Remote(_) => store.save(&[], records),
        }
    }

    /// Continues calls, lists and watches.
    pub fn tick(&mut self, now: Now, registry: &Registry, events: &mut Vec<Event>) {
        match self {
            Self::Local(local) => local.tick(now, events),
            Self::Remote(remote) => remote.tick(now.boot, registry, events),
        }
    }

    /// When to call [`Api::tick`] if nothing gets ready before.
    pub fn wake_at(&self) -> Option<Instant> {
        match self {
            Self::Local(local) => local.wake_at(),
            Self::Remote(remote) => remote.wake_at(),
        }
    }
}
