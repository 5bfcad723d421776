//! The API server in our own process: the objects of [`crate::controller::local`], which a folder
//! of manifests and the commands change, stored in SQLite.
//!
//! No change is reported, and no call is answered, before it is on the disk.

use std::collections::{BTreeMap, VecDeque};

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::controller::event::{CallId, Event, WatchFact, WatchId};
use crate::controller::local::any::{kind_of, unknown};
use crate::controller::local::{Change, Objects, WatchEvent};
use crate::controller::time::{Instant, Now};
use crate::core::time::sooner;
use crate::io::log::Limit;
use crate::limits::{LOCAL_LIST_PER_TURN, LOCAL_SAVE_RETRY_MS};
use crate::model::any_api::AnyCall;
use crate::model::api::{Call, CallError, CallResult, Kind, Verb};
use crate::model::application::Gvr;
use crate::model::error::System;
use crate::model::sync;

use super::super::store::Store;

/// The objects, their watches, and the changes that wait for the disk.
#[derive(Debug)]
pub struct Local {
    pub objects: Objects,
    watches: BTreeMap<WatchId, Kind>,
    lists: VecDeque<Listing>,
    /// Answers that wait for the disk.
    answers: Vec<Event>,
    unsaved: Vec<Change>,
    retry_at: Option<Instant>,
    limit: Limit,
    /// Limits the log of nodes that exceed their quota.
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
    /// The version of the list; the watch reports later changes.
    version: u64,
    left: VecDeque<Box<str>>,
}

impl Local {
    /// Without watches.
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

    /// Makes the call; its answer follows when the change is saved.
    pub fn call(&mut self, id: CallId, call: &Call, now: Now) {
        let result = self.objects.call(call, now.timestamp());
        self.after_call(call, &result, now.boot);
        self.answers.push(Event::Called(id, result));
    }

    /// After a node's call: the node is alive; or the refusal of its object is logged.
    fn after_call(&mut self, call: &Call, result: &CallResult, now: Instant) {
        let is_write = !matches!(call.verb, Verb::Get | Verb::List | Verb::Delete);
        match result {
            Ok(_) if is_write && matches!(call.kind, Kind::Node | Kind::Lease) => {
                self.objects.node_heartbeat(&call.name, now);
            }
            Err(CallError::Refused { code: 413 | 422 | 429, status }) => {
                if let Some(repeats) = self.full.pass(now) {
                    let why: Status = serde_json::from_str(status.get()).unwrap_or_default();
                    let why = why.message;
                    log::warn!("a node is refused: {call:?}: {why}; repeats={repeats}");
                }
            }
            Ok(_) | Err(_) => {}
        }
    }

    /// Makes a call about a resource of any kind.
    pub fn call_any(&mut self, id: CallId, call: &AnyCall) {
        self.answers.push(Event::Called(id, self.objects.call_any(call)));
    }

    /// Starts a list of a resource of any kind.
    pub fn list_any(&mut self, id: WatchId, resource: &Gvr) {
        if let Some(kind) = kind_of(resource) {
            self.list(id, kind);
        } else if let CallError::Refused { code, status } = unknown(resource) {
            self.answers.push(Event::Watched(id, WatchFact::Refused(code, status)));
        }
    }

    /// Starts to report changes of a resource of any kind, which was listed.
    pub fn watch_any(
        &mut self,
        id: WatchId,
        resource: &Gvr,
        version: &str,
        events: &mut Vec<Event>,
    ) {
        match kind_of(resource) {
            Some(kind) => self.watch(id, kind, version, events),
            None => events.push(Event::Watched(id, WatchFact::Gone)),
        }
    }

    /// Starts a list.
    pub fn list(&mut self, id: WatchId, kind: Kind) {
        let left = self.objects.list(kind).map(Into::into).collect();
        self.lists.push_back(Listing { id, version: self.objects.version(), left });
    }

    /// Starts to report changes since this version.
    pub fn watch(&mut self, id: WatchId, kind: Kind, version: &str, events: &mut Vec<Event>) {
        self.gather();
        let missed = version.parse().ok().and_then(|version| self.objects.since(kind, version));
        let Some(missed) = missed else {
            events.push(Event::Watched(id, WatchFact::Gone));
            return;
        };
        // A change that is not on the disk yet is reported when it is.
        let unsaved =
            self.unsaved.iter().filter(|it| it.key.kind == kind && it.watch_event.is_some());
        let saved = missed.len().saturating_sub(unsaved.count());
        events.extend(missed.iter().take(saved).map(|change| Event::Watched(id, fact(change))));
        self.watches.insert(id, kind);
    }

    /// Ends the watch.
    pub fn unwatch(&mut self, id: WatchId) {
        self.watches.remove(&id);
        self.lists.retain(|list| list.id != id);
        self.answers.retain(|event| !matches!(event, Event::Watched(of, _) if *of == id));
    }

    /// When there is something to do without an event.
    pub fn wake_at(&self) -> Option<Instant> {
        let monitor_at = Some(self.objects.monitor_at());
        if self.lists.is_empty() { sooner(self.retry_at, monitor_at) } else { Some(Instant(0)) }
    }

    /// Checks the nodes, and continues lists.
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

    /// Takes the changes since the last call, to be saved.
    pub fn gather(&mut self) {
        self.unsaved.append(&mut self.objects.take_changes());
    }

    /// Saves the changes and `records`; then reports them. Returns whether they were saved.
    pub fn commit(
        &mut self,
        store: &mut Store,
        records: &[sync::Change],
        now: Instant,
        events: &mut Vec<Event>,
    ) -> Result<(), System> {
        self.gather();
        if self.retry_at.is_some_and(|at| now < at) && records.is_empty() {
            return Ok(());
        }
        if let Err(why) = store.save(&self.unsaved, records) {
            if let Some(repeats) = self.limit.pass(now) {
                let count = self.unsaved.len();
                log::error!("{count} changes cannot be saved, and wait: {why}; repeats={repeats}");
            }
            self.retry_at = Some(now.plus_ms(LOCAL_SAVE_RETRY_MS));
            return Err(why);
        }
        self.retry_at = None;
        for change in self.unsaved.drain(..) {
            if change.key.kind == Kind::Node && change.row.is_none() {
                events.push(Event::NodeDeleted(change.key.name.clone()));
            }
            let Some(watch_event) = &change.watch_event else { continue };
            let of_kind = self.watches.iter().filter(|(_, kind)| **kind == change.key.kind);
            events.extend(of_kind.map(|(id, _)| Event::Watched(*id, fact(watch_event))));
        }
        events.append(&mut self.answers);
        Ok(())
    }
}

fn fact(change: &WatchEvent) -> WatchFact {
    match change {
        WatchEvent::Changed(text) => WatchFact::Changed(raw(text.clone())),
        WatchEvent::Deleted(text) => WatchFact::Deleted(raw(text.clone())),
    }
}

fn raw(text: Box<str>) -> Box<RawValue> {
    RawValue::from_string(text.into()).expect("it was written as JSON")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controller::local::{Key, Row};
    use crate::io::clock;

    fn now(ms: u64) -> Now {
        Now { boot: Instant(1_000_000 + ms), wall: clock::now().wall }
    }

    /// With this many ConfigMaps.
    fn local(count: usize) -> Local {
        let rows = (0..count).map(|number| {
            let name: Box<str> = format!("c-{number}").into();
            let text = format!("{{\"metadata\":{{\"name\":\"{name}\"}}}}").into();
            let key = Key { kind: Kind::ConfigMap, namespace: "default".into(), name };
            (key, Row { text, made_of: None })
        });
        Local::new(Objects::load(rows.collect(), 1_000, 7))
    }

    /// How many objects of a list were reported, and how many times the end of the list.
    fn listed(events: &mut Vec<Event>) -> (usize, usize) {
        let (mut objects, mut ends) = (0, 0);
        for event in events.drain(..) {
            match event {
                Event::Watched(WatchId(1), WatchFact::Listed(part)) => objects += part.len(),
                Event::Watched(WatchId(1), WatchFact::ListEnd(_)) => ends += 1,
                other => panic!("{other:?}"),
            }
        }
        (objects, ends)
    }

    #[test]
    fn a_turn_tells_a_part_of_a_list_and_the_next_one_the_rest() {
        let mut events = Vec::new();
        let mut whole = local(LOCAL_LIST_PER_TURN);
        whole.list(WatchId(1), Kind::ConfigMap);
        whole.tick(now(0), &mut events);
        assert_eq!(listed(&mut events), (LOCAL_LIST_PER_TURN, 1));
        let mut long = local(LOCAL_LIST_PER_TURN + 1);
        long.list(WatchId(1), Kind::ConfigMap);
        long.tick(now(0), &mut events);
        assert_eq!(listed(&mut events), (LOCAL_LIST_PER_TURN, 0));
        assert_eq!(long.wake_at(), Some(Instant(0)));
        long.tick(now(0), &mut events);
        assert_eq!(listed(&mut events), (1, 1));
    }

    #[test]
    fn what_could_not_be_kept_is_tried_again_and_answered_only_then() {
        let folder = std::env::temp_dir().join(format!("edged-local-{}", std::process::id()));
        let (mut store, _) = Store::open(&folder.join("controller.db")).expect("it is made");
        let mut local = local(0);
        let mut events = Vec::new();
        let mut commit = |local: &mut Local, store: &mut Store, ms: u64| {
            let done = local.commit(store, &[], now(ms).boot, &mut events);
            (done.is_ok(), events.drain(..).count())
        };
        local.tick(now(0), &mut Vec::new());
        let body = RawValue::from_string("{}".to_owned()).expect("JSON");
        let call = Call {
            verb: Verb::Create,
            kind: Kind::ConfigMap,
            namespace: "default".into(),
            name: "c".into(),
            subresource: None,
            body: Some(body),
        };
        local.call(CallId(1), &call, now(0));
        store.refuse(true);
        assert_eq!(commit(&mut local, &mut store, 0), (false, 0));
        assert_eq!(local.wake_at(), Some(now(LOCAL_SAVE_RETRY_MS).boot));
        store.refuse(false);
        let early = commit(&mut local, &mut store, LOCAL_SAVE_RETRY_MS - 1);
        assert_eq!(early, (true, 0), "it is not tried");
        assert_eq!(commit(&mut local, &mut store, LOCAL_SAVE_RETRY_MS), (true, 1));
        std::fs::remove_dir_all(folder).expect("it was made");
    }
}
