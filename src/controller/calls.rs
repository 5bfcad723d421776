//! The calls to the API server under way: those for nodes' requests, and our own.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::json;
use serde_json::value::RawValue;

use super::Session;
use super::ack_log::Line;
use super::cache::{Cache, From};
use super::downstream::NodeContext;
use super::event::{Action, CallId};
use super::key::{Key, NodeId};
use super::object::{Object, Sketch};
use super::requests::{Ask, Form, Then};
use super::say::{self, Origin};
use super::session::Given;
use super::time::Instant;
use super::unsupported;
use super::upstream::delete_options;
use super::watches::Watches;
use crate::limits::{CALLS_MAX, FETCH_RETRY_MS, FETCHES_MAX};
use crate::model::api::{Call, CallError, CallResult, Kind, Verb};

/// All calls under way.
#[derive(Default)]
pub(super) struct Calls {
    asked: BTreeMap<CallId, Asked>,
    last: u64,
    fetching: BTreeSet<Key>,
    /// How many of the calls under way write records.
    records: usize,
    /// Nodes that wait for room.
    starved: BTreeSet<NodeId>,
    /// Nothing is fetched before this time.
    fetch_at: Instant,
}

enum Asked {
    /// For a request of a node, in this session.
    Node(NodeId, Session, Box<Ask>),
    /// To fetch an object that a node wants.
    Fetch(Key),
    /// To write a record.
    Record(Line, Verb),
    /// For a part of the controller that takes the answer itself.
    Own(Own),
    /// The answer does not matter.
    Chore,
}

/// The parts of the controller that make calls of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Own {
    LeaderElection,
    Garbage,
}

impl Calls {
    pub(super) fn len(&self) -> usize {
        self.asked.len()
    }

    fn call(&mut self, asked: Asked, call: Box<Call>, context: &mut NodeContext<'_>) {
        self.last += 1;
        let id = CallId(self.last);
        self.asked.insert(id, asked);
        context.out.push(Action::Call(id, call));
    }

    /// Makes a call for a part of the controller.
    pub(super) fn own(&mut self, own: Own, call: Box<Call>, context: &mut NodeContext<'_>) {
        self.call(Asked::Own(own), call, context);
    }

    /// Sends the requests of this node, as far as there is room.
    pub(super) fn serve(&mut self, world: &mut Cache, id: NodeId, context: &mut NodeContext<'_>) {
        loop {
            let Some(link) = &mut world.at(id).link else { return };
            if self.asked.len() - self.fetching.len() - self.records >= CALLS_MAX {
                if link.asks.is_waiting() {
                    self.starved.insert(id);
                }
                return;
            }
            let Some(ask) = link.asks.next() else { return };
            let session = link.session;
            if let Then::Give(key) = &ask.then
                && let Some(given) = shelf(world, key, &ask.origin)
            {
                let link = world.at(id).link.as_mut().expect("just seen");
                link.asks.done(&ask.call);
                link.give(given);
                continue;
            }
            let call = ask.call.clone();
            self.call(Asked::Node(id, session, Box::new(ask)), call, context);
        }
    }

    /// Fetches the objects that are wanted and not known, as far as there is room.
    pub(super) fn fetch(
        &mut self,
        world: &mut Cache,
        watches: &Watches,
        context: &mut NodeContext<'_>,
    ) {
        if context.now.boot < self.fetch_at {
            return;
        }
        let mut next = world.fetch.first().cloned();
        while let Some(key) = next.filter(|_| self.fetching.len() < FETCHES_MAX) {
            let behind = (std::ops::Bound::Excluded(&key), std::ops::Bound::Unbounded);
            next = world.fetch.range(behind).next().cloned();
            // The first list is about to bring it; or it is being fetched for an earlier want, and
            // the answer may be older than the new one.
            if !watches.was_listed(key.kind) || self.fetching.contains(&key) {
                continue;
            }
            world.fetch.remove(&key);
            self.fetching.insert(key.clone());
            let call = Call {
                verb: Verb::Get,
                kind: key.kind,
                namespace: key.namespace.as_ref().into(),
                name: key.name.as_ref().into(),
                subresource: None,
                body: None,
            };
            self.call(Asked::Fetch(key), Box::new(call), context);
        }
    }

    /// Writes records to the API server, as far as there is room.
    pub(super) fn record(&mut self, world: &mut Cache, context: &mut NodeContext<'_>) {
        while let Some(line) = world.ack_log.next(context.now.boot) {
            let call = world.record_call(&line);
            self.records += 1;
            self.call(Asked::Record(line, call.verb), Box::new(call), context);
        }
    }

    /// When objects are fetched again, if nothing happens before.
    pub(super) fn wake_at(&self, world: &Cache, now: Instant) -> Option<Instant> {
        // Otherwise it waits for an answer.
        (!world.fetch.is_empty() && now < self.fetch_at).then_some(self.fetch_at)
    }

    /// Takes the answer to a call. Returns it if another part of the controller has to take it.
    pub(super) fn answered(
        &mut self,
        id: CallId,
        result: CallResult,
        world: &mut Cache,
        watches: &Watches,
        context: &mut NodeContext<'_>,
    ) -> Option<(Own, CallResult)> {
        let asked = self.asked.remove(&id).expect("an answer to a call that was made");
        if let Some(id) = self.starved.pop_first() {
            world.ready.insert(id);
        }
        match asked {
            Asked::Chore => {}
            Asked::Own(own) => return Some((own, result)),
            Asked::Record(line, verb) => {
                self.records -= 1;
                world.recorded(context.now.boot, &line, verb, result, context.out);
            }
            Asked::Fetch(key) => self.fetched(key, result, world, watches, context),
            Asked::Node(id, session, ask) => {
                let node = world.nodes.get_mut(&id)?;
                if let Some(link) = node.link.as_mut().filter(|link| link.session == session) {
                    link.asks.done(&ask.call);
                }
                self.settle(id, session, &ask, result, world, watches, context);
                world.ready.insert(id);
            }
        }
        None
    }

    fn fetched(
        &mut self,
        key: Key,
        result: CallResult,
        world: &mut Cache,
        watches: &Watches,
        context: &mut NodeContext<'_>,
    ) {
        self.fetching.remove(&key);
        if world.fetch.contains(&key) {
            return;
        }
        match result {
            Ok(raw) => {
                learn(key.kind, &raw, world, watches, context);
                // The watch has delivered its deletion meanwhile, or the answer cannot be parsed.
                world.absent(&key);
            }
            Err(CallError::Refused { code: 404, .. }) => world.absent(&key),
            Err(CallError::Refused { .. } | CallError::Lost(_)) => {
                if world.is_unknown(&key) {
                    world.fetch.insert(key);
                }
                self.fetch_at = context.now.boot.plus_ms(FETCH_RETRY_MS);
            }
        }
    }

    #[expect(clippy::too_many_arguments, reason = "all that an answer may change")]
    fn settle(
        &mut self,
        id: NodeId,
        session: Session,
        ask: &Ask,
        result: CallResult,
        world: &mut Cache,
        watches: &Watches,
        context: &mut NodeContext<'_>,
    ) {
        let mut version = 0;
        let result = match result {
            Ok(raw) => match self.follow(id, session, ask, raw, world, watches, context) {
                Outcome::Tell(object, at) => {
                    version = at;
                    Ok(object)
                }
                Outcome::Refuse(code, reason, words) => {
                    Err((code, say::status(code, reason, words)))
                }
                Outcome::Told => return,
            },
            Err(CallError::Refused { code, status }) => {
                if code == 409 && ask.then == Then::Registered {
                    world.doubt(id);
                }
                if let Then::Missing { key, uid } = &ask.then
                    && code == 404
                {
                    world.banish(id, key, uid);
                }
                Err((code, status))
            }
            Err(CallError::Lost(why)) => {
                let words = format!("the API server did not answer: {why}");
                Err((503, say::status(503, "ServiceUnavailable", &words)))
            }
        };
        if let Then::List(asked) = &ask.then {
            let answer = unsupported::listed(context, &ask.origin, asked, &result);
            return world.tell(id, session, answer);
        }
        let Some(content) = content(ask.form, &result) else { return };
        let message = say::response(context.rng, context.now, &ask.origin, version, Some(content));
        match ask.then {
            Then::Registered => world.welcome(id, session, message),
            _ => world.tell(id, session, message),
        }
    }

    /// Applies a successful answer.
    #[expect(clippy::too_many_arguments, reason = "all that an answer may change")]
    fn follow(
        &mut self,
        id: NodeId,
        session: Session,
        ask: &Ask,
        raw: Box<RawValue>,
        world: &mut Cache,
        watches: &Watches,
        context: &mut NodeContext<'_>,
    ) -> Outcome {
        let kind = ask.call.kind;
        match &ask.then {
            Then::Nothing | Then::List(_) => Outcome::Tell(raw, 0),
            Then::Learn | Then::Registered | Then::Finish { .. } => {
                if let Then::Finish { uid } = &ask.then {
                    let mut call = ask.call.clone();
                    (call.verb, call.subresource) = (Verb::Delete, None);
                    call.body = Some(say::json(&delete_options(uid)));
                    self.call(Asked::Chore, call, context);
                }
                if ask.then == Then::Registered {
                    world.doubt(id);
                }
                match learn(kind, &raw, world, watches, context) {
                    // As in KubeEdge.
                    Some(_) if ask.then == Then::Registered => {
                        Outcome::Tell(without_managers(kind, raw), 0)
                    }
                    Some(version) => Outcome::Tell(without_managers(kind, raw), version),
                    None => Outcome::Tell(raw, 0),
                }
            }
            Then::Give(key) => {
                learn(kind, &raw, world, watches, context);
                match shelf(world, key, &ask.origin) {
                    Some(given) => {
                        world.give(id, session, given);
                        Outcome::Told
                    }
                    None => Outcome::Refuse(404, "NotFound", "it is gone by now"),
                }
            }
            Then::Bound(claims) => {
                let bound = bound_to(&raw).is_some_and(|claim| claims.contains(&claim));
                if bound { Outcome::Tell(raw, 0) } else { FOREIGN }
            }
            Then::Attached(node) => {
                let own = attached_to(&raw).is_some_and(|to| to == *node);
                if own { Outcome::Tell(raw, 0) } else { FOREIGN }
            }
            Then::Missing { key, uid } => {
                // A pod that cannot be parsed in full still exists.
                let found = Sketch::of(Kind::Pod, &raw).is_some_and(|pod| {
                    pod.node.as_deref() == Some(&*world.nodes[&id].name) && pod.uid == *uid
                });
                if !found {
                    world.banish(id, key, uid);
                    return Outcome::Refuse(404, "NotFound", "there is no such pod on this node");
                }
                Outcome::Refuse(503, "ServiceUnavailable", "not seen here yet")
            }
        }
    }
}

enum Outcome {
    /// The object, and its version if it is in the answer.
    Tell(Box<RawValue>, u64),
    Refuse(u16, &'static str, &'static str),
    /// It is answered separately.
    Told,
}

const FOREIGN: Outcome = Outcome::Refuse(403, "Forbidden", "it is no business of this node's");

/// The content of the answer to the node; `None`: no answer.
pub(super) fn content(
    form: Form,
    result: &Result<Box<RawValue>, (u16, Box<RawValue>)>,
) -> Option<Box<RawValue>> {
    let ok = || Some(say::json("OK"));
    match (form, result) {
        (Form::Silent, _) | (Form::OkOrNothing, Err(_)) => None,
        (Form::ObjectResp | Form::Made, Ok(object)) => Some(say::object_resp(Some(object), None)),
        (Form::ObjectResp, Err((_, status))) => Some(say::object_resp(None, Some(status))),
        (Form::Made, Err((_, status))) => {
            Some(say::object_resp(Some(&say::json(&json!({}))), Some(status)))
        }
        (Form::Object, Ok(object)) => Some(object.clone()),
        (Form::Ok | Form::OkIfGone | Form::OkIfThere | Form::OkOrNothing, Ok(_)) => ok(),
        // Deleted, or deleted and created again: it is done.
        (Form::OkIfGone, Err((404 | 409, _))) | (Form::OkIfThere, Err((409, _))) => ok(),
        (Form::OkIfThere, Err((_, status))) => Some(say::json(status.get())),
        (Form::Object | Form::Ok | Form::OkIfGone, Err((_, status))) => Some(say::failure(status)),
    }
}

/// The object from the cache, if it is there.
fn shelf(world: &Cache, key: &Key, origin: &Origin) -> Option<Given> {
    let object = world.object(key)?;
    Some(Given {
        origin: origin.clone(),
        key: key.clone(),
        uid: object.uid.clone(),
        version: object.version,
        digest: object.digest,
        content: object.json.clone(),
    })
}

/// Puts an object from an answer into the cache. Returns its version.
fn learn(
    kind: Kind,
    raw: &RawValue,
    world: &mut Cache,
    watches: &Watches,
    context: &mut NodeContext<'_>,
) -> Option<u64> {
    let read = Object::read(kind, raw).ok()?;
    let version = read.object.version;
    world.put(context.now.boot, read, From::Call(watches.seen(kind)));
    Some(version)
}

fn without_managers(kind: Kind, raw: Box<RawValue>) -> Box<RawValue> {
    match Object::read(kind, &raw) {
        Ok(read) => say::copy(&read.object.json),
        Err(_) => raw,
    }
}

/// The claim that a volume is bound to: namespace and name.
fn bound_to(volume: &RawValue) -> Option<(Box<str>, Box<str>)> {
    let volume: serde_json::Value = serde_json::from_str(volume.get()).ok()?;
    let claim = &volume["spec"]["claimRef"];
    Some((claim["namespace"].as_str()?.into(), claim["name"].as_str()?.into()))
}

/// The node that a volume is attached to.
fn attached_to(attachment: &RawValue) -> Option<Box<str>> {
    let attachment: serde_json::Value = serde_json::from_str(attachment.get()).ok()?;
    Some(attachment["spec"]["nodeName"].as_str()?.into())
}
