//! The resources that are watched for nodes: one list and one watch of the API server for each,
//! whatever the number of nodes that listen, and its objects.
//!
//! ```text
//!  first listener ─▶ Listing ──ListEnd──▶ Watching ──Ended──▶ BackingOff ─due─▶ Watching
//!                       ▲ └──Refused│Gone│Ended──▶ BackingOff ─due─▶ Listing │
//!                       └─────────────────────────────────── Gone ◀──────────┘
//! ```
//!
//! A resource that the API server does not have, or does not show to us, is refused: that ends
//! nothing but its own list. It is listed again while a node listens.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::super::event::{Action, Out, Severity, WatchFact, WatchId};
use super::super::key::NodeId;
use super::super::overview::ResourceOverview;
use super::super::time::{Backoff, Instant, Rng};
use super::object::{AnyObject, ObjectName, is_of_addresses};
use crate::limits::{
    DYNAMIC_ALL_BYTES_MAX, DYNAMIC_BYTES_MAX, DYNAMIC_ENTRIES_MAX, DYNAMIC_OBJECTS_MAX,
    DYNAMIC_REFUSED_MS, DYNAMIC_RELIST_MS, DYNAMIC_RESOURCES_MAX, DYNAMIC_SERVICES_MS,
    DYNAMIC_UNUSED_MS, WATCH_CALM_MS, WATCH_RETRY_MAX_MS, WATCH_RETRY_MIN_MS,
};
use crate::model::application::Gvr;
use crate::model::cloud_message::Failure;

/// A watched resource. Never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ResourceId(u32);

/// An object of a watched resource.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    pub(super) resource: ResourceId,
    pub(super) name: Arc<ObjectName>,
}

/// All watched resources.
#[derive(Default)]
pub(super) struct Resources {
    pub(super) all: BTreeMap<ResourceId, Resource>,
    ids: BTreeMap<Gvr, ResourceId>,
    watches: BTreeMap<WatchId, ResourceId>,
    last: u32,
    last_watch: u64,
    /// Of all objects.
    bytes: usize,
    /// The Services whose endpoints are limited to node groups.
    pub(super) limited: BTreeSet<ObjectName>,
}

/// One watched resource.
pub(super) struct Resource {
    pub(super) name: Arc<Gvr>,
    state: State,
    /// `resourceVersion` up to which everything is known.
    at: Box<str>,
    /// Number of lists begun.
    round: u32,
    /// A list was complete, and its objects are kept.
    is_synced: bool,
    /// Why the last list was refused.
    refusal: Option<Failure>,
    backoff: Backoff,
    since: Instant,
    is_trouble_logged: bool,
    /// The nodes that listen, with the number of their listeners.
    pub(super) nodes: BTreeMap<NodeId, usize>,
    /// Since when nobody listens.
    unused_since: Option<Instant>,
    acquired_at: Instant,
    pub(super) objects: BTreeMap<Arc<ObjectName>, Entry>,
    /// Number of those that exist.
    live: usize,
    bytes: usize,
    /// `Service`; empty: no object was seen yet.
    pub(super) kind: Box<str>,
}

enum State {
    Listing(WatchId),
    Watching(WatchId),
    BackingOff { until: Instant, begin: Begin },
}

/// What begins after a pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Begin {
    List,
    /// From [`Resource::at`] on.
    Watch,
}

/// One object of a resource.
#[derive(Default)]
pub(super) struct Entry {
    /// `None`: it does not exist any more.
    pub(super) live: Option<AnyObject>,
    /// The object of this name that existed before, and the version of its deletion: nodes that
    /// have it get it with its deletion.
    pub(super) gone: Option<(AnyObject, u64)>,
    /// The nodes that have it, or the one before, or may have it.
    pub(super) holders: BTreeMap<NodeId, Held>,
    round: u32,
}

/// What a node has of an object.
#[derive(Clone, Debug)]
pub(super) struct Held {
    pub(super) uid: Arc<str>,
    /// The newest version that it was sent by an event; 0: none.
    pub(super) sent: u64,
    /// The newest version that an answer has shown it; 0: none.
    pub(super) shown: u64,
    /// Of the acknowledged content; 0: not known.
    pub(super) digest: u64,
    /// What it has is selected by no listener of this generation; `None`: by one, or that is not
    /// known.
    pub(super) unselected_by: Option<u32>,
}

/// What has changed.
#[derive(Default)]
pub(super) struct Changes {
    pub(super) objects: Vec<Arc<ObjectName>>,
    /// Objects whose labels or fields have changed, as they were before.
    pub(super) relabelled: Vec<(Arc<ObjectName>, AnyObject)>,
    /// Watches of the resource can be answered.
    pub(super) is_settled: bool,
    /// Other Services are limited to node groups.
    pub(super) limited_changed: bool,
}

/// Watches of this part have ids with this bit.
const OWN: u64 = 1 << 63;

impl Resource {
    /// Whether all is known that happened up to this version. `live`: the object that it is about.
    pub(super) fn knows(&self, live: Option<&AnyObject>, version: u64) -> bool {
        let at = || self.at.parse().unwrap_or(u64::MAX);
        live.is_some_and(|object| object.version >= version) || (self.is_synced && at() >= version)
    }

    /// Whether its objects are known.
    pub(super) fn is_synced(&self) -> bool {
        self.is_synced
    }

    /// Milliseconds that it is kept without a listener.
    fn kept_ms(&self) -> u64 {
        let is_served = self.is_synced && self.refusal.is_none();
        if is_served { DYNAMIC_UNUSED_MS } else { DYNAMIC_REFUSED_MS }
    }

    /// In short.
    pub(super) fn overview(&self) -> ResourceOverview {
        let Gvr { group, resource, .. } = &*self.name;
        let dot = if group.is_empty() { "" } else { "." };
        let trouble = self.refusal.as_ref().map(Failure::text).unwrap_or_default();
        let state = match self.state {
            State::Listing(_) => "listing",
            State::Watching(_) => "watching",
            State::BackingOff { .. } => "waiting",
        };
        ResourceOverview {
            name: format!("{resource}{dot}{group}"),
            state: state.to_owned(),
            objects: self.live,
            bytes: self.bytes,
            nodes: self.nodes.len(),
            watches: self.nodes.values().sum(),
            trouble,
        }
    }

    /// Why it cannot be listened to, as far as known.
    pub(super) fn refusal(&self) -> Option<&Failure> {
        self.refusal.as_ref()
    }

    /// Whether it is known that its objects are known, or that they will not be.
    fn is_settled(&self) -> bool {
        self.is_synced || self.refusal.is_some()
    }
}

impl Resources {
    /// The resource of this name; its first list is begun by the next step.
    pub(super) fn acquire(
        &mut self,
        now: Instant,
        name: &Gvr,
        out: &mut Out,
    ) -> Result<ResourceId, Failure> {
        if let Some(id) = self.ids.get(name) {
            return Ok(*id);
        }
        if self.all.len() >= DYNAMIC_RESOURCES_MAX {
            let idle = self.all.iter().find(|(_, it)| !self.is_used(it)).map(|(id, _)| *id);
            let Some(idle) = idle else {
                let why =
                    format!("{DYNAMIC_RESOURCES_MAX} resources are watched, as many as may be");
                return Err(Failure::new(429, "TooManyRequests", why));
            };
            self.drop_resource(idle, out);
        }
        self.last += 1;
        let id = ResourceId(self.last);
        self.ids.insert(name.clone(), id);
        self.all.insert(
            id,
            Resource {
                name: Arc::new(name.clone()),
                state: State::BackingOff { until: now, begin: Begin::List },
                at: "".into(),
                round: 0,
                is_synced: false,
                refusal: None,
                backoff: Backoff::default(),
                since: now,
                is_trouble_logged: false,
                nodes: BTreeMap::new(),
                unused_since: Some(now),
                acquired_at: now,
                objects: BTreeMap::new(),
                live: 0,
                bytes: 0,
                kind: Box::default(),
            },
        );
        Ok(id)
    }

    /// Until when objects of this resource wait for the Services that limit its addresses, if they
    /// do. Begins to watch the Services.
    pub(super) fn waits_for_services(
        &mut self,
        now: Instant,
        of: &Gvr,
        out: &mut Out,
    ) -> Option<Instant> {
        if !is_of_addresses(of) {
            return None;
        }
        let id = self.acquire(now, &services(), out).ok()?;
        let resource = self.all.get_mut(&id).expect("just acquired");
        if let Some(since) = &mut resource.unused_since {
            *since = now;
        }
        let until = resource.acquired_at.plus_ms(DYNAMIC_SERVICES_MS);
        (!resource.is_settled() && now < until).then_some(until)
    }

    /// Until when objects with addresses are not sent, because the Services that limit them are not
    /// known yet.
    pub(super) fn services_until(&self, now: Instant) -> Option<Instant> {
        let resource = self.ids.get(&services()).map(|id| &self.all[id])?;
        let until = resource.acquired_at.plus_ms(DYNAMIC_SERVICES_MS);
        (!resource.is_settled() && now < until).then_some(until)
    }

    /// A node begins to listen.
    pub(super) fn listen(&mut self, id: ResourceId, node: NodeId) {
        let Some(resource) = self.all.get_mut(&id) else { return };
        *resource.nodes.entry(node).or_default() += 1;
        resource.unused_since = None;
    }

    /// A listener of a node ends.
    pub(super) fn unlisten(&mut self, now: Instant, id: ResourceId, node: NodeId) {
        let Some(resource) = self.all.get_mut(&id) else { return };
        let count = resource.nodes.get_mut(&node).expect("it listens");
        *count -= 1;
        if *count == 0 {
            resource.nodes.remove(&node);
            if resource.nodes.is_empty() {
                resource.unused_since = Some(now);
            }
        }
    }

    /// Whether the node listens.
    pub(super) fn is_watched_by(&self, id: ResourceId, node: NodeId) -> bool {
        self.all.get(&id).is_some_and(|resource| resource.nodes.contains_key(&node))
    }

    /// Whether a node listens, or needs it for what it listens to.
    fn is_used(&self, resource: &Resource) -> bool {
        let has_listeners = |it: &Resource| !it.nodes.is_empty();
        let mut all = self.all.values();
        has_listeners(resource)
            || (*resource.name == services()
                && all.any(|it| is_of_addresses(&it.name) && has_listeners(it)))
    }

    /// When its next list or watch is due. A refused one is listed again for who needs it, or is
    /// forgotten.
    fn begins_at(&self, resource: &Resource) -> Option<(Instant, Begin)> {
        match resource.state {
            State::BackingOff { until, begin } => {
                (resource.refusal.is_none() || self.is_used(resource)).then_some((until, begin))
            }
            State::Listing(_) | State::Watching(_) => None,
        }
    }

    fn drop_resource(&mut self, id: ResourceId, out: &mut Out) {
        let Some(resource) = self.all.remove(&id) else { return };
        self.ids.remove(&*resource.name);
        self.bytes -= resource.bytes;
        if let State::Listing(watch) | State::Watching(watch) = resource.state {
            self.watches.remove(&watch);
            out.push(Action::Unwatch(watch));
        }
        if *resource.name == services() {
            self.limited.clear();
        }
    }

    /// Begins the lists and watches that are due, and ends those that nobody needs. Returns how
    /// many lists were begun.
    pub(super) fn step(&mut self, now: Instant, out: &mut Out) -> u64 {
        let idle = self.all.iter().filter(|(_, resource)| {
            resource.unused_since.is_some_and(|since| now.since_ms(since) >= resource.kept_ms())
        });
        let idle: Vec<(ResourceId, bool)> =
            idle.map(|(id, resource)| (*id, self.is_used(resource))).collect();
        for (id, is_used) in idle {
            if is_used {
                let resource = self.all.get_mut(&id).expect("just seen");
                resource.unused_since = Some(now);
            } else {
                self.drop_resource(id, out);
            }
        }
        let due = self.all.iter().filter_map(|(id, resource)| {
            let (_, begin) = self.begins_at(resource).filter(|(at, _)| *at <= now)?;
            Some((*id, begin))
        });
        let mut lists = 0;
        for (id, begin) in due.collect::<Vec<(ResourceId, Begin)>>() {
            let resource = self.all.get_mut(&id).expect("just seen");
            self.last_watch += 1;
            let watch = WatchId(OWN | self.last_watch);
            self.watches.insert(watch, id);
            resource.since = now;
            let name = Arc::clone(&resource.name);
            match begin {
                Begin::List => {
                    lists += 1;
                    resource.round += 1;
                    resource.state = State::Listing(watch);
                    out.push(Action::ListAny(watch, name));
                }
                Begin::Watch => {
                    resource.state = State::Watching(watch);
                    out.push(Action::WatchAny(watch, name, resource.at.clone()));
                }
            }
        }
        lists
    }

    /// When the next step is due, if nothing happens before.
    pub(super) fn wake_at(&self) -> Option<Instant> {
        let due = self.all.values().filter_map(|resource| {
            let begins = self.begins_at(resource).map(|(at, _)| at);
            let ends = resource.unused_since.map(|since| since.plus_ms(resource.kept_ms()));
            begins.into_iter().chain(ends).min()
        });
        due.min()
    }

    /// The resource of this name, if it is watched.
    pub(super) fn of_name(&self, name: &Gvr) -> Option<ResourceId> {
        self.ids.get(name).copied()
    }

    /// The resource of a list or a watch; `None`: it is none of these, or was ended.
    pub(super) fn of_watch(&self, watch: WatchId) -> Option<ResourceId> {
        self.watches.get(&watch).copied()
    }

    /// Handles an event of a list or a watch.
    pub(super) fn watched(
        &mut self,
        now: Instant,
        id: ResourceId,
        fact: WatchFact,
        rng: &mut Rng,
        out: &mut Out,
    ) -> Changes {
        let mut changes = Changes::default();
        match fact {
            WatchFact::Listed(objects) => {
                for raw in objects {
                    let read = AnyObject::read(&raw);
                    self.put(now, id, read, &mut changes, out);
                }
            }
            WatchFact::Changed(raw) => {
                let read = AnyObject::read(&raw);
                self.put(now, id, read, &mut changes, out);
            }
            WatchFact::Deleted(raw) => {
                if let Ok((name, object)) = AnyObject::read(&raw) {
                    self.received(id, &object.version.to_string());
                    self.remove(id, &Arc::new(name), object.version, &mut changes);
                }
            }
            WatchFact::ListEnd(version) => self.listed(now, id, version, &mut changes),
            WatchFact::Bookmark(version) => self.received(id, &version),
            WatchFact::Refused(code, status) => {
                let why = format!("the API server refuses to list it: {code}");
                self.refuse(now, id, Failure::Remote(status), &why, out);
                changes.is_settled = true;
            }
            WatchFact::Unserved => {
                let why = "the API server does not have this resource";
                let failure = Failure::new(404, "NotFound", why);
                self.refuse(now, id, failure, why, out);
                changes.is_settled = true;
            }
            WatchFact::Gone => self.fail(now, id, Begin::List, rng),
            WatchFact::Ended(why) => self.ended(now, id, &why, rng, out),
        }
        changes
    }

    fn received(&mut self, id: ResourceId, version: &str) {
        let resource = self.all.get_mut(&id).expect("it is watched");
        if matches!(resource.state, State::Watching(_)) {
            resource.at = version.into();
        }
    }

    fn put(
        &mut self,
        now: Instant,
        id: ResourceId,
        read: Result<(ObjectName, AnyObject), crate::model::error::Peer>,
        changes: &mut Changes,
        out: &mut Out,
    ) {
        let Some(resource) = self.all.get_mut(&id) else { return };
        if !matches!(resource.state, State::Listing(_) | State::Watching(_)) {
            // It has just become too large.
            return;
        }
        let (name, object) = match read {
            Ok(read) => read,
            Err(why) => {
                if !std::mem::replace(&mut resource.is_trouble_logged, true) {
                    let line = format!("api: {}: an object cannot be read: {why}", resource.name);
                    out.push(Action::Log(Severity::Warn, line));
                }
                return;
            }
        };
        if matches!(resource.state, State::Watching(_)) {
            resource.at = object.version.to_string().into();
        }
        let name = Arc::new(name);
        let entry = resource.objects.entry(Arc::clone(&name)).or_default();
        entry.round = resource.round;
        if entry.live.as_ref().is_some_and(|old| old.version >= object.version) {
            return;
        }
        if resource.kind.is_empty() {
            resource.kind = object.kind.clone();
        }
        let added = object.bytes();
        changes.limited_changed |=
            *resource.name == services() && note_limited(&mut self.limited, &name, &object);
        let version = object.version;
        if let Some(old) = entry.live.replace(object) {
            let is_new = entry.live.as_ref().is_some_and(|object| object.uid != old.uid);
            if is_new && !entry.holders.is_empty() {
                resource.bytes += added;
                self.bytes += added;
                // It was deleted before this one was created: a node that has its deletion must
                // still take this one.
                let deleted_at = version - 1;
                keep_gone(entry, old, deleted_at, &mut resource.bytes, &mut self.bytes);
            } else {
                let removed = old.bytes();
                resource.bytes = resource.bytes + added - removed;
                self.bytes = self.bytes + added - removed;
                let live = entry.live.as_ref().expect("just put");
                if !resource.nodes.is_empty() && !live.has_labels_of(&old) {
                    changes.relabelled.push((Arc::clone(&name), old));
                }
            }
        } else {
            resource.live += 1;
            resource.bytes += added;
            self.bytes += added;
        }
        changes.objects.push(name);
        if self.is_too_large(id) {
            self.overflow(now, id, out);
            (changes.objects, changes.relabelled) = (Vec::new(), Vec::new());
            changes.is_settled = true;
        }
    }

    fn is_too_large(&self, id: ResourceId) -> bool {
        let resource = &self.all[&id];
        resource.live > DYNAMIC_OBJECTS_MAX
            || resource.objects.len() > DYNAMIC_ENTRIES_MAX
            || resource.bytes > DYNAMIC_BYTES_MAX
            || self.bytes > DYNAMIC_ALL_BYTES_MAX
    }

    /// The resource has more objects than may be kept: its listeners get nothing more.
    fn overflow(&mut self, now: Instant, id: ResourceId, out: &mut Out) {
        let resource = self.all.get_mut(&id).expect("it is watched");
        let why = format!(
            "it has more than {DYNAMIC_OBJECTS_MAX} objects or {DYNAMIC_BYTES_MAX} bytes: nodes \
             are not told of its changes"
        );
        if let State::Listing(watch) | State::Watching(watch) = resource.state {
            out.push(Action::Unwatch(watch));
        }
        self.bytes -= std::mem::take(&mut resource.bytes);
        // What nodes have is kept: what was deleted meanwhile is found by the next list.
        let is_kept = resource.objects.len() <= DYNAMIC_ENTRIES_MAX;
        resource.objects.retain(|_, entry| {
            (entry.live, entry.gone) = (None, None);
            is_kept && !entry.holders.is_empty()
        });
        (resource.live, resource.is_synced) = (0, false);
        let failure = Failure::new(413, "RequestEntityTooLarge", &*why);
        self.refuse(now, id, failure, &why, out);
    }

    fn remove(
        &mut self,
        id: ResourceId,
        name: &Arc<ObjectName>,
        version: u64,
        changes: &mut Changes,
    ) {
        let resource = self.all.get_mut(&id).expect("it is watched");
        let Some(entry) = resource.objects.get_mut(name) else { return };
        if entry.live.as_ref().is_none_or(|object| object.version > version) {
            return;
        }
        let old = entry.live.take().expect("just seen");
        resource.live -= 1;
        if *resource.name == services() {
            changes.limited_changed |= self.limited.remove(name);
        }
        if !entry.holders.is_empty() || !resource.nodes.is_empty() {
            keep_gone(entry, old, version, &mut resource.bytes, &mut self.bytes);
            changes.objects.push(Arc::clone(name));
        } else {
            let bytes = old.bytes();
            (resource.bytes, self.bytes) = (resource.bytes - bytes, self.bytes - bytes);
            resource.objects.remove(name);
        }
    }

    /// What a node has of an object.
    pub(super) fn held(&self, place: &Place, node: NodeId) -> Option<&Held> {
        let entry = self.all.get(&place.resource)?.objects.get(&place.name)?;
        entry.holders.get(&node)
    }

    /// A node has this from now on, or may have it.
    pub(super) fn hold(&mut self, place: &Place, node: NodeId, held: Held) {
        let Some(resource) = self.all.get_mut(&place.resource) else { return };
        if resource.objects.len() < DYNAMIC_ENTRIES_MAX
            || resource.objects.contains_key(&place.name)
        {
            let entry = resource.objects.entry(Arc::clone(&place.name)).or_default();
            entry.holders.insert(node, held);
        }
    }

    /// A node may have this version of an object: it was shown to it. Returns whether it had no
    /// such version before.
    pub(super) fn show(
        &mut self,
        place: &Place,
        node: NodeId,
        uid: &Arc<str>,
        version: u64,
    ) -> bool {
        let held = self.held(place, node);
        let is_new = held.is_none_or(|held| held.sent.max(held.shown) < version);
        if is_new {
            let sent = held.filter(|held| held.uid == *uid).map_or(0, |held| held.sent);
            let (uid, shown) = (Arc::clone(uid), version);
            self.hold(place, node, Held { uid, sent, shown, digest: 0, unselected_by: None });
        }
        is_new
    }

    /// A node does not have an object any more.
    pub(super) fn released(&mut self, place: &Place, node: NodeId) {
        let objects = self.all.get_mut(&place.resource).map(|resource| &mut resource.objects);
        if let Some(entry) = objects.and_then(|objects| objects.get_mut(&place.name)) {
            entry.holders.remove(&node);
            self.drop_if_untold(place.resource, &place.name);
        }
    }

    /// It is not known any more what a node has of a resource's objects.
    pub(super) fn doubt(&mut self, id: ResourceId, node: NodeId) {
        let Some(resource) = self.all.get_mut(&id) else { return };
        for held in resource.objects.values_mut().filter_map(|it| it.holders.get_mut(&node)) {
            held.digest = 0;
        }
    }

    /// A node does not listen any more.
    pub(super) fn forget(&mut self, id: ResourceId, node: NodeId) {
        let Some(resource) = self.all.get_mut(&id) else { return };
        let all = resource.objects.iter_mut();
        let held = all.filter_map(|(name, entry)| entry.holders.remove(&node).map(|_| name));
        for name in held.cloned().collect::<Vec<Arc<ObjectName>>>() {
            self.drop_if_untold(id, &name);
        }
    }

    /// Nobody has to be told of the former object any more.
    pub(super) fn drop_if_untold(&mut self, id: ResourceId, name: &Arc<ObjectName>) {
        let Some(resource) = self.all.get_mut(&id) else { return };
        let Some(entry) = resource.objects.get_mut(name).filter(|it| it.holders.is_empty()) else {
            return;
        };
        if let Some((old, _)) = entry.gone.take() {
            let bytes = old.bytes();
            (resource.bytes, self.bytes) = (resource.bytes - bytes, self.bytes - bytes);
        }
        if entry.live.is_none() {
            resource.objects.remove(name);
        }
    }

    /// The list is complete: objects that are not in it are deleted.
    fn listed(&mut self, now: Instant, id: ResourceId, version: Box<str>, changes: &mut Changes) {
        let resource = self.all.get_mut(&id).expect("it is listed");
        if !matches!(resource.state, State::Listing(_)) {
            return;
        }
        // It is a number, as those of its objects.
        let at = version.parse().unwrap_or(u64::MAX);
        let round = resource.round;
        let left = resource.objects.iter().filter(|(_, it)| it.round != round && it.live.is_some());
        let left: Vec<Arc<ObjectName>> = left.map(|(name, _)| Arc::clone(name)).collect();
        (resource.at, resource.is_synced) = (version, true);
        (resource.refusal, resource.is_trouble_logged) = (None, false);
        self.end(id, State::BackingOff { until: now, begin: Begin::Watch });
        for name in left {
            self.remove(id, &name, at, changes);
        }
        changes.is_settled = true;
    }

    fn refuse(&mut self, now: Instant, id: ResourceId, failure: Failure, why: &str, out: &mut Out) {
        let resource = self.all.get_mut(&id).expect("it is listed");
        resource.refusal = Some(failure);
        if !std::mem::replace(&mut resource.is_trouble_logged, true) {
            let line = format!("api: {}: {why}", resource.name);
            out.push(Action::Log(Severity::Warn, line));
        }
        if resource.nodes.is_empty() {
            resource.unused_since = Some(now);
        }
        let until = now.plus_ms(DYNAMIC_RELIST_MS);
        self.end(id, State::BackingOff { until, begin: Begin::List });
    }

    fn ended(&mut self, now: Instant, id: ResourceId, why: &str, rng: &mut Rng, out: &mut Out) {
        let resource = self.all.get_mut(&id).expect("it is watched");
        let begin = match resource.state {
            State::Listing(_) => Begin::List,
            State::Watching(_) => Begin::Watch,
            // It is over already.
            State::BackingOff { .. } => return,
        };
        if begin == Begin::Watch && now.since_ms(resource.since) >= WATCH_CALM_MS {
            (resource.is_trouble_logged, resource.backoff) = (false, Backoff::default());
            return self.end(id, State::BackingOff { until: now, begin });
        }
        if !std::mem::replace(&mut resource.is_trouble_logged, true) {
            let line = format!("api: {}: {why}", resource.name);
            out.push(Action::Log(Severity::Warn, line));
        }
        self.fail(now, id, begin, rng);
    }

    fn fail(&mut self, now: Instant, id: ResourceId, begin: Begin, rng: &mut Rng) {
        let resource = self.all.get_mut(&id).expect("it is watched");
        let is_watch = matches!(resource.state, State::Watching(_));
        if is_watch && now.since_ms(resource.since) >= WATCH_CALM_MS {
            // It has held for long: earlier failures do not count.
            resource.backoff = Backoff::default();
        }
        let _ = resource.backoff.retry_at(now, WATCH_RETRY_MIN_MS, WATCH_RETRY_MAX_MS);
        let until = now.plus_ms(rng.jitter_ms(resource.backoff.delay_ms()));
        self.end(id, State::BackingOff { until, begin });
    }

    fn end(&mut self, id: ResourceId, next: State) {
        let resource = self.all.get_mut(&id).expect("it is watched");
        if let State::Listing(watch) | State::Watching(watch) = resource.state {
            self.watches.remove(&watch);
        }
        resource.state = next;
    }

    /// The resources with addresses of Services.
    pub(super) fn of_addresses(&self) -> Vec<ResourceId> {
        let all = self.all.iter().filter(|(_, it)| is_of_addresses(&it.name));
        all.map(|(id, _)| *id).collect()
    }
}

/// An object is gone, and nodes have it: it is kept for its deletion. One that was kept before
/// makes room: all that is needed of it is its name.
fn keep_gone(
    entry: &mut Entry,
    old: AnyObject,
    version: u64,
    bytes: &mut usize,
    all_bytes: &mut usize,
) {
    if let Some((before, _)) = entry.gone.replace((old, version)) {
        let removed = before.bytes();
        (*bytes, *all_bytes) = (*bytes - removed, *all_bytes - removed);
    }
}

/// Takes a Service. Returns whether others are limited to node groups now.
fn note_limited(
    limited: &mut BTreeSet<ObjectName>,
    name: &ObjectName,
    service: &AnyObject,
) -> bool {
    if service.is_of_node_group { limited.insert(name.clone()) } else { limited.remove(name) }
}

/// The resource whose objects limit addresses.
fn services() -> Gvr {
    Gvr::new("", "v1", "services")
}

#[cfg(test)]
mod tests;
