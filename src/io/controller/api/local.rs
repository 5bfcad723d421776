//! The API server in our own process: the objects of [`crate::controller::local`], which a folder
//! of manifests and the commands write, kept in SQLite.
//!
//! Nobody is told of a change, and no call is answered, before it is on the disk.

use std::collections::{BTreeMap, VecDeque};

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::controller::event::{CallId, Event, WatchFact, WatchId};
use crate::controller::local::{Change, Objects, Told};
use crate::controller::time::{Instant, Now};
use crate::io::log::Limit;
use crate::limits::{LOCAL_LIST_PER_TURN, LOCAL_SAVE_RETRY_MS};
use crate::mind::time::sooner;
use crate::model::api::{Call, CallError, CallResult, Kind, Verb};
use crate::model::sync;

use super::super::store::Store;

/// The objects, who watches them, and what waits for the disk.
#[derive(Debug)]
pub struct Local {
    /// What there is.
    pub objects: Objects,
    watches: BTreeMap<WatchId, Kind>,
    lists: VecDeque<Listing>,
    /// Answers that wait for the disk.
    answers: Vec<Event>,
    unsaved: Vec<Change>,
    retry_at: Option<Instant>,
    limit: Limit,
    /// That a node is refused room.
    full: Limit,
}

/// meta/v1 `Status`
#[derive(Default, Deserialize)]
struct Status {
    #[serde(default)]
    message: String,
}

#[derive(Debug)]
struct Listing {
    id: WatchId,
    /// As of when; what changes later a watch tells.
    version: u64,
    left: VecDeque<Box<str>>,
}

impl Local {
    /// Nobody watches yet.
    pub fn new(objects: Objects) -> Self {
        Self {
            objects,
            watches: BTreeMap::new(),
            lists: VecDeque::new(),
            answers: Vec::new(),
            unsaved: Vec::new(),
            retry_at: None,
            limit: Limit::default(),
            full: Limit::default(),
        }
    }

    /// Does what is asked; the answer follows when it is kept.
    pub fn call(&mut self, id: CallId, call: &Call, now: Now) {
        let result = self.objects.call(call, now.timestamp());
        self.heed(call, &result, now.boot);
        self.answers.push(Event::Called(id, result));
    }

    /// What follows from a call of a node's: it lives; or it is refused room, which is told.
    fn heed(&mut self, call: &Call, result: &CallResult, now: Instant) {
        let is_write = !matches!(call.verb, Verb::Get | Verb::List | Verb::Delete);
        match result {
            Ok(_) if is_write && matches!(call.kind, Kind::Node | Kind::Lease) => {
                self.objects.node_seen(&call.name, now);
            }
            Err(CallError::Refused { code: 413 | 422 | 429, status }) => {
                if let Some(kept) = self.full.pass(now) {
                    let why: Status = serde_json::from_str(status.get()).unwrap_or_default();
                    let why = why.message;
                    log::warn!("a node is refused: {call:?}: {why}; repeats={kept}");
                }
            }
            Ok(_) | Err(_) => {}
        }
    }

    /// Begins a list.
    pub fn list(&mut self, id: WatchId, kind: Kind) {
        let left = self.objects.list(kind).map(Into::into).collect();
        self.lists.push_back(Listing { id, version: self.objects.version(), left });
    }

    /// Begins to tell of changes since this version.
    pub fn watch(&mut self, id: WatchId, kind: Kind, version: &str, events: &mut Vec<Event>) {
        self.gather();
        let missed = version.parse().ok().and_then(|version| self.objects.since(kind, version));
        let Some(missed) = missed else {
            events.push(Event::Watched(id, WatchFact::Gone));
            return;
        };
        // What is not on the disk yet is told when it is.
        let unsaved = self.unsaved.iter().filter(|it| it.key.kind == kind && it.told.is_some());
        let saved = missed.len().saturating_sub(unsaved.count());
        events.extend(missed.iter().take(saved).map(|told| Event::Watched(id, fact(told))));
        self.watches.insert(id, kind);
    }

    /// Tells no more of it.
    pub fn unwatch(&mut self, id: WatchId) {
        self.watches.remove(&id);
        self.lists.retain(|list| list.id != id);
        self.answers.retain(|event| !matches!(event, Event::Watched(of, _) if *of == id));
    }

    /// When there is something to do though nothing happened.
    pub fn wake_at(&self) -> Option<Instant> {
        let monitor_at = Some(self.objects.monitor_at());
        if self.lists.is_empty() { sooner(self.retry_at, monitor_at) } else { Some(Instant(0)) }
    }

    /// Looks at the nodes, and goes on with lists.
    pub fn tick(&mut self, now: Now, events: &mut Vec<Event>) {
        if self.objects.monitor_at() <= now.boot {
            for line in self.objects.monitor(now.boot, now.timestamp()) {
                log::warn!("{line}");
            }
        }
        let Some(list) = self.lists.front_mut() else { return };
        let count = list.left.len().min(LOCAL_LIST_PER_TURN);
        let part = list.left.drain(..count).map(raw).collect();
        events.push(Event::Watched(list.id, WatchFact::Listed(part)));
        if list.left.is_empty() {
            let end = WatchFact::ListEnd(list.version.to_string().into());
            events.push(Event::Watched(list.id, end));
            self.lists.pop_front();
        }
    }

    /// Takes what changed since this was called last, to be kept.
    pub fn gather(&mut self) {
        self.unsaved.append(&mut self.objects.take_changes());
    }

    /// Keeps what changed, and `records` with it; then tells of it. Says whether it was kept.
    pub fn commit(
        &mut self,
        store: &mut Store,
        records: &[sync::Change],
        now: Instant,
        events: &mut Vec<Event>,
    ) -> Result<(), String> {
        self.gather();
        if self.retry_at.is_some_and(|at| now < at) && records.is_empty() {
            return Ok(());
        }
        if let Err(why) = store.save(&self.unsaved, records) {
            if let Some(kept) = self.limit.pass(now) {
                let count = self.unsaved.len();
                log::error!("{count} changes cannot be kept, and wait: {why}; repeats={kept}");
            }
            self.retry_at = Some(now.plus_ms(LOCAL_SAVE_RETRY_MS));
            return Err(why);
        }
        self.retry_at = None;
        for change in self.unsaved.drain(..) {
            if change.key.kind == Kind::Node && change.row.is_none() {
                events.push(Event::NodeDeleted(change.key.name.clone()));
            }
            let Some(told) = &change.told else { continue };
            let of_kind = self.watches.iter().filter(|(_, kind)| **kind == change.key.kind);
            events.extend(of_kind.map(|(id, _)| Event::Watched(*id, fact(told))));
        }
        events.append(&mut self.answers);
        Ok(())
    }
}

fn fact(told: &Told) -> WatchFact {
    match told {
        Told::Changed(text) => WatchFact::Changed(raw(text.clone())),
        Told::Deleted(text) => WatchFact::Deleted(raw(text.clone())),
    }
}

fn raw(text: Box<str>) -> Box<RawValue> {
    RawValue::from_string(text.into()).expect("it was written as JSON")
}
