//! The dynamic controller: requests of programs on a node to the API server, through the node's
//! `MetaServer` (spec `metaserver`, sections 6 and 13).
//!
//! ```text
//!  node ─Application─▶ access ─▶ requests of the node ─▶ call ─▶ API server
//!    ▲                   └─watch─▶ listener ─▶ resources: one list and watch for all nodes
//!    └──events, acknowledged── subscriber ◀── changed objects ──┘
//! ```
//!
//! - `access`: what nodes may request. `resources`: what is watched for them. `object`: an object
//!   of any kind. `subscriber`: what one node listens to, and has. `events`: compares the two.
//!
//! Every node has calls and queues of its own, so that a slow answer delays nobody else. A resource
//! that does not exist, or may not be read, is refused with the API server's Status.
//!
//! If we crash here: nodes connect again, and name their watches by `watchapp/sync`.

pub mod access;
mod events;
mod object;
mod resources;
mod subscriber;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use super::calls::{ApplicationCall, OwnPart};
use super::downstream::NodeContext;
use super::event::{WatchFact, WatchId};
use super::key::{Key, NodeId};
use super::outbound::Origin;
use super::overview::ResourceOverview;
use super::time::{Instant, Now};
use super::{Controller, Session, unsupported};
use crate::limits::{
    APPLICATION_ANSWER_BYTES_MAX, APPLICATION_CALLS_ALL_MAX, APPLICATION_CALLS_MAX,
    DYNAMIC_ANSWER_MS, LISTENERS_OF_NODE_MAX,
};
use crate::model::any_api::{AnyCall, AnyTarget, AnyVerb};
use crate::model::api::{CallError, CallResult};
use crate::model::cloud_message::{Content, Failure};
use crate::model::edge_message::{ApplicationRequest, Requested, WatchRequest};
use access::{Access, RequestUser};
pub(in crate::controller) use object::AnyObject;
use object::{ObjectName, Topology};
use resources::{Changes, Place, ResourceId, Resources};
use subscriber::{Listener, PendingAnswer, Request, Subscriber, Then};

/// All nodes and watched resources.
#[derive(Default)]
pub(super) struct Dynamic {
    resources: Resources,
    nodes: BTreeMap<NodeId, Subscriber>,
    /// Calls under way: for which node, in which session.
    calls: BTreeMap<ApplicationCall, (NodeId, Session, Request)>,
    last_call: u64,
    /// Nodes with a request that may be sent, and the one that was served last.
    waiting: BTreeSet<NodeId>,
    called: NodeId,
    /// Nodes whose next request waits for the Services, and until when.
    held_back: BTreeMap<NodeId, Instant>,
    /// Nodes to be served.
    ready: BTreeSet<NodeId>,
    timers: BTreeSet<(Instant, NodeId)>,
}

/// What is listened to, for the metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Gauges {
    pub(super) resources: usize,
    pub(super) listeners: usize,
}

impl Controller {
    /// A request of a node's `MetaServer`.
    pub(super) fn application(
        &mut self,
        now: Now,
        id: NodeId,
        session: Session,
        origin: &Origin,
        application: ApplicationRequest,
    ) {
        let ApplicationRequest { id: application_id, request, requested } = application;
        self.counters.applications += 1;
        let done = match requested {
            Err(failure) => Err(failure),
            Ok(Requested::Call(call)) => self.request_call(id, origin, &request, call),
            Ok(Requested::Watch(watch)) => self.may_watch(&watch).and_then(|user| {
                let of = (application_id, watch);
                self.request_watch(now.boot, id, session, of, Some((origin, &request)), user)
            }),
        };
        if let Err(failure) = done {
            self.answer_application(now, id, origin, request, Err(failure));
        }
    }

    fn access(&self) -> Result<&Access, Failure> {
        let off = || Failure::new(501, "NotImplemented", unsupported::REASON);
        self.config.access.as_ref().ok_or_else(off)
    }

    /// As whose user a watch is requested, if it is allowed.
    fn may_watch(&mut self, watch: &WatchRequest) -> Result<RequestUser, Failure> {
        let access = self.access()?;
        if !access.may_read(&watch.resource, "") {
            return Err(forbidden("watch", &watch.resource.to_string()));
        }
        Ok(access.user)
    }

    fn request_call(
        &mut self,
        id: NodeId,
        origin: &Origin,
        request: &str,
        mut call: Box<AnyCall>,
    ) -> Result<(), Failure> {
        let node = self.cache.at(id).name.clone();
        if let Some(own) = unsupported::own_pods(&call, &node, origin, request) {
            return self.queue_request(id, own).then_some(()).ok_or_else(too_many);
        }
        let access = self.access()?;
        if !access.may_call(&call) {
            let resource = call.resource().map(ToString::to_string).unwrap_or_default();
            return Err(forbidden(verb_of(&call), &resource));
        }
        call.node = (access.user == RequestUser::Node).then(|| (&*node).into());
        let then = Then::Answer(request.into());
        self.queue_application(id, Request { origin: origin.clone(), call, then })
    }

    fn queue_application(&mut self, id: NodeId, request: Request) -> Result<(), Failure> {
        if !self.dynamic.nodes.entry(id).or_default().add(request) {
            return Err(too_many());
        }
        self.dynamic.waiting.insert(id);
        Ok(())
    }

    /// `user`: the API server is asked first whether that user may list what it wants to watch,
    /// because all nodes share one watch.
    fn request_watch(
        &mut self,
        now: Instant,
        id: NodeId,
        session: Session,
        (application, watch): (Box<str>, Box<WatchRequest>),
        answer: Option<(&Origin, &str)>,
        user: RequestUser,
    ) -> Result<(), Failure> {
        let known = self.dynamic.nodes.get(&id).and_then(|it| it.listeners.get(&application));
        let is_known = known.is_some_and(|listener| listener.request == *watch);
        let answer_to = answer.map(|(origin, request)| (origin.clone(), Box::from(request)));
        if is_known || user == RequestUser::Controller {
            return self.listen(now, id, session, (application, watch), answer_to);
        }
        let mut query = watch.query.clone();
        query.push(("limit".into(), "1".into()));
        let target = AnyTarget::Object {
            resource: watch.resource.clone(),
            namespace: watch.namespace.clone(),
            name: Box::default(),
            subresource: Box::default(),
        };
        let node = Some(Box::from(&*self.cache.at(id).name));
        let call = AnyCall { verb: AnyVerb::List, target, query, body: Box::default(), node };
        let (origin, request) = match answer_to {
            Some((origin, request)) => (origin, Some(request)),
            None => (Origin { id: Box::default(), resource: Box::default() }, None),
        };
        let then = Then::Listen(application, watch, request);
        self.queue_application(id, Request { origin, call: Box::new(call), then })
    }

    /// A node listens from now on.
    fn listen(
        &mut self,
        now: Instant,
        id: NodeId,
        session: Session,
        (application, watch): (Box<str>, Box<WatchRequest>),
        answer: Option<(Origin, Box<str>)>,
    ) -> Result<(), Failure> {
        let subscriber = self.dynamic.nodes.entry(id).or_default();
        let known = subscriber.listeners.get(&application);
        let known = known.filter(|listener| listener.request == *watch).map(|it| it.resource);
        let resource = if let Some(resource) = known {
            resource
        } else {
            self.end_listener(now, id, &application);
            self.add_listener(now, id, session, &application, *watch)?
        };
        let subscriber = self.dynamic.nodes.entry(id).or_default();
        subscriber.scans.insert(resource, None);
        let listener = subscriber.listeners.get_mut(&application).expect("just added");
        listener.session = session;
        listener.answer = answer.map(|(origin, request)| PendingAnswer {
            origin,
            request,
            until: now.plus_ms(DYNAMIC_ANSWER_MS),
        });
        self.dynamic.ready.insert(id);
        Ok(())
    }

    fn add_listener(
        &mut self,
        now: Instant,
        id: NodeId,
        session: Session,
        application: &str,
        request: WatchRequest,
    ) -> Result<ResourceId, Failure> {
        let dynamic = &mut self.dynamic;
        let subscriber = dynamic.nodes.entry(id).or_default();
        if subscriber.listeners.len() >= LISTENERS_OF_NODE_MAX {
            let why = format!("the node has {LISTENERS_OF_NODE_MAX} watches, as many as it may");
            return Err(Failure::new(429, "TooManyRequests", why));
        }
        let resource = dynamic.resources.acquire(now, &request.resource, &mut self.pending)?;
        if let Some(refusal) = dynamic.resources.all[&resource].refusal() {
            return Err(refusal.clone());
        }
        // Their first list begins together.
        let _ = dynamic.resources.waits_for_services(now, &request.resource, &mut self.pending);
        dynamic.resources.listen(resource, id);
        subscriber.generation = subscriber.generation.wrapping_add(1);
        let listener = Listener { resource, request, session, answer: None };
        subscriber.listeners.insert(application.into(), listener);
        Ok(resource)
    }

    /// A listener ends, and what the node has of the resource is forgotten if it was the last one.
    fn end_listener(&mut self, now: Instant, id: NodeId, application: &str) {
        if let Some(resource) = self.remove_listener(now, id, application) {
            self.forget_unwatched(id, resource);
        }
    }

    /// Returns its resource.
    fn remove_listener(
        &mut self,
        now: Instant,
        id: NodeId,
        application: &str,
    ) -> Option<ResourceId> {
        let Dynamic { nodes, resources, .. } = &mut self.dynamic;
        let listener = nodes.get_mut(&id)?.listeners.remove(application)?;
        resources.unlisten(now, listener.resource, id);
        Some(listener.resource)
    }

    /// Forgets what a node has of a resource to which it does not listen any more.
    fn forget_unwatched(&mut self, id: NodeId, resource: ResourceId) {
        let Dynamic { nodes, resources, .. } = &mut self.dynamic;
        if !resources.is_watched_by(resource, id) {
            resources.forget(resource, id);
            if let Some(subscriber) = nodes.get_mut(&id) {
                subscriber.forget(resource);
            }
        }
    }

    /// A node names all watches that it has.
    pub(super) fn sync_watches(
        &mut self,
        now: Now,
        id: NodeId,
        session: Session,
        origin: &Origin,
        watches: Vec<ApplicationRequest>,
    ) {
        let named: BTreeSet<&str> = watches.iter().map(|it| &*it.id).collect();
        let held = self.dynamic.nodes.get(&id).map(|it| it.listeners.keys());
        let left: Vec<Box<str>> =
            held.into_iter().flatten().filter(|it| !named.contains(&***it)).cloned().collect();
        let ended = left.iter().filter_map(|it| self.remove_listener(now.boot, id, it));
        let ended: BTreeSet<ResourceId> = ended.collect();
        let mut rejected = Vec::new();
        for ApplicationRequest { id: application, request, requested } in watches {
            let done = match requested {
                Ok(Requested::Watch(watch)) => self.may_watch(&watch).and_then(|user| {
                    let of = (application.clone(), watch);
                    self.request_watch(now.boot, id, session, of, None, user)
                }),
                Ok(Requested::Call(_)) => {
                    Err(Failure::new(400, "BadRequest", "Verb: expected watch"))
                }
                Err(failure) => Err(failure),
            };
            if let Err(failure) = done {
                rejected.push((application, request, failure));
            }
        }
        // Only now: another watch of the same resource may have begun.
        for resource in ended {
            self.forget_unwatched(id, resource);
        }
        if self.config.access.is_none() {
            self.counters.messages_unserved += 1;
        }
        let content = Content::WatchesRejected(rejected);
        let answer = unsupported::answer(&mut self.rng, now, origin, content);
        self.answer(id, answer);
    }

    fn answer_application(
        &mut self,
        now: Now,
        id: NodeId,
        origin: &Origin,
        request: Box<str>,
        result: Result<Box<str>, Failure>,
    ) {
        if self.config.access.is_none() {
            self.counters.messages_unserved += 1;
        }
        self.counters.applications_rejected += u64::from(result.is_err());
        let mut answer = Content::Applied(request, result);
        let link = self.cache.nodes.get(&id).and_then(|node| node.link.as_ref());
        if let Content::Applied(_, result @ Ok(_)) = &mut answer
            && let Ok(body) = &*result
            && link.is_some_and(|link| !link.has_room_for(body.len() / 3 * 4))
        {
            *result = Err(too_many());
        }
        let answer = unsupported::answer(&mut self.rng, now, origin, answer);
        self.answer(id, answer);
    }

    /// Does what is due.
    pub(super) fn run_dynamic(&mut self, now: Now) {
        for id in std::mem::take(&mut self.cache.restarted) {
            self.node_restarted(now.boot, id);
        }
        if std::mem::take(&mut self.cache.have_groups_changed) {
            self.rescan_addresses();
        }
        self.counters.lists += self.dynamic.resources.step(now.boot, &mut self.pending);
        while let Some((at, id)) = self.dynamic.timers.first().copied()
            && at <= now.boot
        {
            self.dynamic.timers.remove(&(at, id));
            if let Some(subscriber) = self.dynamic.nodes.get_mut(&id) {
                subscriber.timer = None;
            }
            self.dynamic.ready.insert(id);
        }
        self.call_for_nodes(now);
        self.serve_listeners(now);
    }

    /// Sends requests of nodes, as far as there is room, one node after the other.
    fn call_for_nodes(&mut self, now: Now) {
        let dynamic = &mut self.dynamic;
        let over = dynamic.held_back.iter().filter(|(_, until)| **until <= now.boot);
        for id in over.map(|(id, _)| *id).collect::<Vec<NodeId>>() {
            dynamic.held_back.remove(&id);
            dynamic.waiting.insert(id);
        }
        while dynamic.calls.len() < APPLICATION_CALLS_ALL_MAX {
            let behind = (Bound::Excluded(dynamic.called), Bound::Unbounded);
            let next = dynamic.waiting.range(behind).next().or_else(|| dynamic.waiting.first());
            let Some(id) = next.copied() else { break };
            dynamic.called = id;
            let link = self.cache.nodes.get(&id).and_then(|node| node.link.as_ref());
            let subscriber =
                dynamic.nodes.get_mut(&id).filter(|it| it.running < APPLICATION_CALLS_MAX);
            let (Some(session), Some(subscriber)) = (link.map(|it| it.session), subscriber) else {
                dynamic.waiting.remove(&id);
                continue;
            };
            let first = subscriber.requests.front().and_then(|it| it.call.resource());
            let waits = first.and_then(|resource| {
                dynamic.resources.waits_for_services(now.boot, resource, &mut self.pending)
            });
            if let Some(until) = waits {
                dynamic.waiting.remove(&id);
                dynamic.held_back.insert(id, until);
                continue;
            }
            let Some(request) = subscriber.next_request() else {
                dynamic.waiting.remove(&id);
                continue;
            };
            subscriber.running += 1;
            dynamic.last_call += 1;
            let call_id = ApplicationCall(dynamic.last_call);
            let mut context = NodeContext {
                now,
                rng: &mut self.rng,
                counters: &mut self.counters,
                out: &mut self.pending,
            };
            self.calls.call_any(OwnPart::Application(call_id), request.call.clone(), &mut context);
            dynamic.calls.insert(call_id, (id, session, request));
        }
    }

    /// The answer to a call for a node's `MetaServer`.
    pub(super) fn application_called(
        &mut self,
        now: Now,
        call: ApplicationCall,
        result: CallResult,
    ) {
        let of_it = self.dynamic.calls.remove(&call).expect("it was made");
        let (id, session, Request { origin, call, then }) = of_it;
        if let Some(subscriber) = self.dynamic.nodes.get_mut(&id) {
            subscriber.running = subscriber.running.saturating_sub(1);
            self.dynamic.waiting.insert(id);
            self.dynamic.ready.insert(id);
        }
        let link = self.cache.nodes.get(&id).and_then(|node| node.link.as_ref());
        if link.is_none_or(|link| link.session != session) {
            return;
        }
        let (request, result) = match then {
            Then::Answer(request) => {
                self.note_shown(id, &call, &result);
                (request, self.shown(id, &call, result))
            }
            Then::Listen(application, watch, request) => {
                let answer = request.clone().map(|request| (origin.clone(), request));
                let of = (application, watch);
                let allowed = result.map_err(|error| failure(&call, error));
                let done = allowed.and_then(|_| self.listen(now.boot, id, session, of, answer));
                match (request, done) {
                    (Some(request), Err(failure)) => (request, Err(failure)),
                    // It is answered when its resource is listed, or needs no answer.
                    (_, Ok(()) | Err(_)) => return,
                }
            }
        };
        self.answer_application(now, id, &origin, request, result);
    }

    /// An answer shows objects to a node that listens to them. What happened to them before the
    /// watch brought it may never come, if they are listed anew meanwhile: so it counts as what the
    /// node has.
    fn note_shown(&mut self, id: NodeId, call: &AnyCall, result: &CallResult) {
        let Dynamic { nodes, resources, ready, .. } = &mut self.dynamic;
        let of_it = call.resource().filter(|_| call.is_read());
        let Some(resource) = of_it.and_then(|name| resources.of_name(name)) else { return };
        let Some(subscriber) = nodes.get_mut(&id) else { return };
        if subscriber.listeners.values().all(|listener| listener.resource != resource) {
            return;
        }
        let node = &self.cache.nodes[&id].name;
        let is_of_pods = resources.all[&resource].name.is("", "pods");
        let objects = object::shown(result);
        for (name, shown) in &objects {
            // It gets its own pods as pods.
            let is_own_pod = is_of_pods && *shown.node_name == **node;
            if is_own_pod || !subscriber.may_select(resource, name) {
                continue;
            }
            let place = Place { resource, name: Arc::new(name.clone()) };
            if resources.show(&place, id, &shown.uid, shown.version) {
                subscriber.dirty.insert(place);
            }
        }
        subscriber.overtake(resource, &objects);
        ready.insert(id);
    }

    /// The answer as the node gets it.
    fn shown(&self, id: NodeId, call: &AnyCall, result: CallResult) -> Result<Box<str>, Failure> {
        let body = result.map_err(|error| failure(call, error))?;
        let node = &self.cache.nodes[&id].name;
        let is_near = |other: &str| self.cache.is_near(node, other);
        let limited = &self.dynamic.resources.limited;
        let shown = Topology { limited, is_near: &is_near }.answer_to(call, &body);
        if shown.len() > APPLICATION_ANSWER_BYTES_MAX {
            let why = format!(
                "the answer has {} bytes, and a node gets {APPLICATION_ANSWER_BYTES_MAX} at once: \
                 request it in pages (limit), or a part of it",
                shown.len()
            );
            return Err(Failure::new(413, "RequestEntityTooLarge", why));
        }
        Ok(shown)
    }

    /// An event of a list or a watch for nodes. Returns it if it is none.
    pub(super) fn dynamic_watched(
        &mut self,
        now: Now,
        watch: WatchId,
        fact: WatchFact,
    ) -> Option<WatchFact> {
        let Some(id) = self.dynamic.resources.of_watch(watch) else { return Some(fact) };
        let resources = &mut self.dynamic.resources;
        let changes = resources.watched(now.boot, id, fact, &mut self.rng, &mut self.pending);
        for node in resources.all[&id].nodes.keys().copied().collect::<Vec<NodeId>>() {
            self.mark_changed(node, id, &changes);
        }
        for name in &changes.objects {
            self.dynamic.resources.drop_if_untold(id, name);
        }
        if changes.is_settled {
            let held_back = std::mem::take(&mut self.dynamic.held_back);
            self.dynamic.waiting.extend(held_back.into_keys());
            self.settle_watches(now, id);
        }
        if changes.limited_changed || changes.is_settled {
            self.rescan_addresses();
        }
        None
    }

    /// Objects of a resource to which the node listens have changed.
    fn mark_changed(&mut self, node: NodeId, id: ResourceId, changes: &Changes) {
        let Dynamic { nodes, resources, ready, .. } = &mut self.dynamic;
        let subscriber = nodes.get_mut(&node).expect("it listens");
        let place = |name: &Arc<ObjectName>| Place { resource: id, name: Arc::clone(name) };
        // A list before the watch may have shown it to the node.
        let may_hold = |resources: &Resources, place: &Place, before: &AnyObject| {
            resources.held(place, node).is_none() && subscriber.selects(id, &place.name, before)
        };
        for (name, before) in &changes.relabelled {
            let place = place(name);
            if may_hold(resources, &place, before) {
                resources.show(&place, node, &before.uid, before.version);
            }
        }
        for name in &changes.objects {
            let place = place(name);
            let entry = resources.all[&id].objects.get(name);
            let gone = entry.filter(|entry| entry.live.is_none()).and_then(|it| it.gone.as_ref());
            let held = gone.filter(|(object, _)| may_hold(resources, &place, object));
            if let Some((uid, version)) = held.map(|(it, _)| (Arc::clone(&it.uid), it.version)) {
                resources.show(&place, node, &uid, version);
            }
        }
        let changed = changes.objects.iter().map(place);
        subscriber.dirty.extend(changed);
        if changes.is_settled {
            // What was deleted meanwhile has no event.
            subscriber.scans.insert(id, None);
        }
        ready.insert(node);
    }

    /// Answers the watches of a resource: it is listed, or refused.
    fn settle_watches(&mut self, now: Now, id: ResourceId) {
        let resource = &self.dynamic.resources.all[&id];
        let refusal = resource.refusal().cloned();
        for node in resource.nodes.keys().copied().collect::<Vec<NodeId>>() {
            let subscriber = self.dynamic.nodes.get_mut(&node).expect("it listens");
            let of_it = subscriber.listeners.iter_mut().filter(|(_, it)| it.resource == id);
            let answers = of_it.filter_map(|(key, it)| Some((key.clone(), it.answer.take()?)));
            for (key, PendingAnswer { origin, request, .. }) in answers.collect::<Vec<_>>() {
                let result = match &refusal {
                    Some(failure) => {
                        self.end_listener(now.boot, node, &key);
                        Err(failure.clone())
                    }
                    None => Ok(Box::default()),
                };
                self.answer_application(now, node, &origin, request, result);
            }
        }
    }

    /// Other Services are limited, or nodes are in other groups: addresses are compared anew.
    fn rescan_addresses(&mut self) {
        for id in self.dynamic.resources.of_addresses() {
            for node in self.dynamic.resources.all[&id].nodes.keys() {
                let subscriber = self.dynamic.nodes.get_mut(node).expect("it listens");
                subscriber.scans.insert(id, None);
                self.dynamic.ready.insert(*node);
            }
        }
    }

    /// A session of the node is open.
    pub(super) fn dynamic_connected(&mut self, id: NodeId) {
        if let Some(subscriber) = self.dynamic.nodes.get_mut(&id) {
            subscriber.gone_since = None;
            self.dynamic.ready.insert(id);
        }
    }

    /// The socket has accepted data.
    pub(super) fn dynamic_drained(&mut self, id: NodeId) {
        if self.dynamic.nodes.contains_key(&id) {
            self.dynamic.ready.insert(id);
        }
    }

    /// The node's session is over.
    pub(super) fn dynamic_disconnected(&mut self, now: Instant, id: NodeId) {
        if let Some(subscriber) = self.dynamic.nodes.get_mut(&id) {
            subscriber.disconnected(now);
            self.dynamic.ready.insert(id);
        }
    }

    /// The node has begun a new life: its former watches are over, and it may have lost what it
    /// had, or kept it.
    fn node_restarted(&mut self, now: Instant, id: NodeId) {
        let session = self.cache.nodes.get(&id).and_then(|node| node.link.as_ref());
        let session = session.map(|link| link.session);
        let Some(subscriber) = self.dynamic.nodes.get_mut(&id) else { return };
        let former = subscriber.listeners.iter().filter(|(_, it)| Some(it.session) != session);
        for application in former.map(|(key, _)| key.clone()).collect::<Vec<_>>() {
            self.end_listener(now, id, &application);
        }
        let Dynamic { nodes, resources, .. } = &mut self.dynamic;
        let Some(subscriber) = nodes.get_mut(&id) else { return };
        let watched: BTreeSet<ResourceId> =
            subscriber.listeners.values().map(|it| it.resource).collect();
        for resource in watched {
            resources.doubt(resource, id);
            subscriber.scans.insert(resource, None);
        }
        self.dynamic.ready.insert(id);
    }

    /// When to step again, if nothing happens before.
    pub(super) fn dynamic_wake_at(&self, now: Instant) -> Option<Instant> {
        let dynamic = &self.dynamic;
        let may_call =
            !dynamic.waiting.is_empty() && dynamic.calls.len() < APPLICATION_CALLS_ALL_MAX;
        let ready = (!dynamic.ready.is_empty() || may_call).then_some(now);
        let timer = dynamic.timers.first().map(|(at, _)| *at);
        let held_back = dynamic.held_back.values().min().copied();
        [ready, timer, held_back, dynamic.resources.wake_at()].into_iter().flatten().min()
    }

    /// What is watched for nodes.
    pub(super) fn resource_overviews(&self) -> Vec<ResourceOverview> {
        self.dynamic.resources.all.values().map(resources::Resource::overview).collect()
    }

    /// What is listened to.
    pub(super) fn dynamic_gauges(&self) -> Gauges {
        let listeners = self.dynamic.nodes.values().map(|it| it.listeners.len()).sum();
        Gauges { resources: self.dynamic.resources.all.len(), listeners }
    }
}

impl super::cache::Cache {
    /// Whether the other node is the same, or of the same node group. Only edge nodes are known.
    pub(super) fn is_near(&self, node: &str, other: &str) -> bool {
        let group = |name: &str| {
            let facts = self.object(&Key::node(name)).and_then(|it| it.node.as_ref());
            facts.map(|facts| &*facts.group).filter(|group| !group.is_empty())
        };
        node == other || group(node).is_some_and(|own| group(other) == Some(own))
    }
}

fn verb_of(call: &AnyCall) -> &'static str {
    match call.verb {
        AnyVerb::Get => "get",
        AnyVerb::List => "list",
        AnyVerb::Create => "create",
        AnyVerb::Update => "update",
        AnyVerb::Patch(_) => "patch",
        AnyVerb::Delete => "delete",
    }
}

fn forbidden(verb: &str, resource: &str) -> Failure {
    let why = format!("edgecontroller does not let nodes {verb} {resource}");
    Failure::new(403, "Forbidden", why)
}

fn too_many() -> Failure {
    Failure::new(429, "TooManyRequests", "too many requests of this node at once")
}

/// Why a call failed, for the node.
fn failure(call: &AnyCall, error: CallError) -> Failure {
    match error {
        CallError::Refused { status, .. } => Failure::Remote(status),
        CallError::Lost(why) => {
            let effect = if call.is_read() { "" } else { "; it may have been executed" };
            let why = format!("the API server did not answer: {why}{effect}");
            Failure::new(504, "Timeout", why)
        }
    }
}
