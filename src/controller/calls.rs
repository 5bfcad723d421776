//! The calls to the API server under way: those for nodes' requests, and our own.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::value::RawValue;

use super::Session;
use super::ack_log::Line;
use super::cache::{Cache, From};
use super::downstream::NodeContext;
use super::event::{Action, CallId};
use super::key::{Key, NodeId};
use super::object::{Object, Sketch};
use super::outbound::{self, Origin};
use super::requests::{Form, NodeRequest, Then};
use super::session::RequestedObject;
use super::time::Instant;
use super::unsupported;
use super::upstream::delete_options;
use super::watches::Watches;
use crate::limits::{CALLS_MAX, FETCH_RETRY_MS, FETCHES_MAX};
use crate::model::any_api::AnyCall;
use crate::model::api::{Call, CallError, CallResult, Kind, Verb};
use crate::model::cloud_message::{Content, Failure};
use crate::model::raw;

/// All calls under way.
#[derive(Default)]
pub(super) struct Calls {
    open: BTreeMap<CallId, Purpose>,
    last: u64,
    fetching: BTreeSet<Key>,
    /// How many of the calls under way write records.
    records: usize,
    /// Nodes that wait for room.
    starved: BTreeSet<NodeId>,
    /// Nothing is fetched before this time.
    fetch_at: Instant,
}

enum Purpose {
    /// For a request of a node, in this session.
    Node(NodeId, Session, Box<NodeRequest>),
    /// To fetch an object that a node wants.
    Fetch(Key),
    /// To write a record.
    Record(Line, Verb),
    /// For a part of the controller that takes the answer itself.
    OwnPart(OwnPart),
    /// The answer does not matter.
    NoAnswer,
}

/// Identifies a call about the status of a device. Never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct StatusCall(pub(super) u64);

/// Identifies a call for a node's `MetaServer`. Never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ApplicationCall(pub(super) u64);

/// Identifies a call about a job. Never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct JobCall(pub(super) u64);

/// Identifies a write of a rule's status. Never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RuleCall(pub(super) u64);

/// The parts of the controller that make calls of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OwnPart {
    LeaderElection,
    Garbage,
    TunnelPort,
    /// The port of this Node.
    KubeletPort(NodeId),
    /// Whether the API server has the kind of devices' statuses.
    DeviceStatusKind,
    /// The status of a device, and the verb of the call.
    DeviceStatus(StatusCall, &'static str),
    /// The Device of a status.
    DeviceOfStatus(StatusCall),
    /// The status of a job for nodes.
    NodeJob(JobCall),
    /// A request of a node's `MetaServer`.
    Application(ApplicationCall),
    /// The status of a rule.
    Rule(RuleCall),
}

impl Calls {
    pub(super) fn len(&self) -> usize {
        self.open.len()
    }

    fn call(&mut self, purpose: Purpose, call: Box<Call>, context: &mut NodeContext<'_>) {
        self.last += 1;
        let id = CallId(self.last);
        self.open.insert(id, purpose);
        context.out.push(Action::Call(id, call));
    }

    /// Makes a call for a part of the controller.
    pub(super) fn call_own(
        &mut self,
        own: OwnPart,
        call: Box<Call>,
        context: &mut NodeContext<'_>,
    ) {
        self.call(Purpose::OwnPart(own), call, context);
    }

    /// Makes a call about a resource of any kind.
    pub(super) fn call_any(
        &mut self,
        own: OwnPart,
        call: Box<AnyCall>,
        context: &mut NodeContext<'_>,
    ) {
        self.last += 1;
        let id = CallId(self.last);
        self.open.insert(id, Purpose::OwnPart(own));
        context.out.push(Action::CallAny(id, call));
    }

    /// Sends the requests of this node, as far as there is room.
    pub(super) fn serve(&mut self, cache: &mut Cache, id: NodeId, context: &mut NodeContext<'_>) {
        loop {
            let Some(link) = &mut cache.at(id).link else { return };
            if self.open.len() - self.fetching.len() - self.records >= CALLS_MAX {
                if link.requests.is_waiting() {
                    self.starved.insert(id);
                }
                return;
            }
            let Some(request) = link.requests.next() else { return };
            let session = link.session;
            if let Then::Give(key) = &request.then
                && let Some(requested) = from_cache(cache, key, &request.origin)
            {
                let link = cache.at(id).link.as_mut().expect("just checked");
                link.requests.done(&request.call);
                link.queue_object(requested);
                continue;
            }
            let call = request.call.clone();
            self.call(Purpose::Node(id, session, Box::new(request)), call, context);
        }
    }

    /// Fetches the objects that are wanted and not known, as far as there is room.
    pub(super) fn fetch(
        &mut self,
        cache: &mut Cache,
        watches: &Watches,
        context: &mut NodeContext<'_>,
    ) {
        if context.now.boot < self.fetch_at {
            return;
        }
        let mut next = cache.fetch.first().cloned();
        while let Some(key) = next.filter(|_| self.fetching.len() < FETCHES_MAX) {
            let behind = (std::ops::Bound::Excluded(&key), std::ops::Bound::Unbounded);
            next = cache.fetch.range(behind).next().cloned();
            // The first list is about to bring it; or it is being fetched for an earlier want, and
            // the answer may be older than the new one.
            if !watches.was_listed(key.kind) || self.fetching.contains(&key) {
                continue;
            }
            cache.fetch.remove(&key);
            self.fetching.insert(key.clone());
            let call = Call {
                verb: Verb::Get,
                kind: key.kind,
                namespace: key.namespace.as_ref().into(),
                name: key.name.as_ref().into(),
                subresource: None,
                body: None,
            };
            self.call(Purpose::Fetch(key), Box::new(call), context);
        }
    }

    /// Writes records to the API server, as far as there is room.
    pub(super) fn record(&mut self, cache: &mut Cache, context: &mut NodeContext<'_>) {
        while let Some(line) = cache.ack_log.next(context.now.boot) {
            let call = cache.record_call(&line);
            self.records += 1;
            self.call(Purpose::Record(line, call.verb), Box::new(call), context);
        }
    }

    /// When objects are fetched again, if nothing happens before.
    pub(super) fn wake_at(&self, cache: &Cache, now: Instant) -> Option<Instant> {
        // Otherwise it waits for an answer.
        (!cache.fetch.is_empty() && now < self.fetch_at).then_some(self.fetch_at)
    }

    /// Takes the answer to a call. Returns it if another part of the controller has to take it.
    pub(super) fn answered(
        &mut self,
        id: CallId,
        result: CallResult,
        cache: &mut Cache,
        watches: &Watches,
        context: &mut NodeContext<'_>,
    ) -> Option<(OwnPart, CallResult)> {
        let purpose = self.open.remove(&id).expect("an answer to a call that was made");
        if let Some(id) = self.starved.pop_first() {
            cache.ready.insert(id);
        }
        match purpose {
            Purpose::NoAnswer => {}
            Purpose::OwnPart(own) => return Some((own, result)),
            Purpose::Record(line, verb) => {
                self.records -= 1;
                cache.recorded(context.now.boot, &line, verb, result, context.out);
            }
            Purpose::Fetch(key) => self.fetched(key, result, cache, watches, context),
            Purpose::Node(id, session, request) => {
                let node = cache.nodes.get_mut(&id)?;
                if let Some(link) = node.link.as_mut().filter(|link| link.session == session) {
                    link.requests.done(&request.call);
                }
                self.settle(id, session, &request, result, cache, watches, context);
                cache.ready.insert(id);
            }
        }
        None
    }

    fn fetched(
        &mut self,
        key: Key,
        result: CallResult,
        cache: &mut Cache,
        watches: &Watches,
        context: &mut NodeContext<'_>,
    ) {
        self.fetching.remove(&key);
        if cache.fetch.contains(&key) {
            return;
        }
        match result {
            Ok(raw) => {
                learn(key.kind, &raw, cache, watches, context);
                // The watch has delivered its deletion meanwhile, or the answer cannot be parsed.
                cache.absent(context.now.boot, &key);
            }
            Err(CallError::Refused { code: 404, .. }) => cache.absent(context.now.boot, &key),
            Err(CallError::Refused { .. } | CallError::Lost(_)) => {
                cache.unanswered(&key);
                if cache.is_unknown(&key) {
                    cache.fetch.insert(key);
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
        request: &NodeRequest,
        result: CallResult,
        cache: &mut Cache,
        watches: &Watches,
        context: &mut NodeContext<'_>,
    ) {
        let mut version = 0;
        let result = match result {
            Ok(raw) => match self.apply(id, session, request, raw, cache, watches, context) {
                Outcome::Answer(object, at) => {
                    version = at;
                    Ok(object)
                }
                Outcome::Refuse(code, reason, why) => Err((code, Failure::new(code, reason, why))),
                Outcome::AnsweredSeparately => return,
            },
            Err(CallError::Refused { code, status }) => {
                if code == 409 && request.then == Then::Registered {
                    cache.mark_uncertain(id);
                }
                if let Then::Missing { key, uid } = &request.then
                    && code == 404
                {
                    cache.request_deletion(id, key, uid);
                }
                if let Then::Unrecorded(key) = &request.then
                    && code == 404
                {
                    remove_unrecorded(
                        cache,
                        (id, session),
                        key,
                        watches.known_version(key.kind),
                        context,
                    );
                }
                Err((code, Failure::Remote(status)))
            }
            Err(CallError::Lost(why)) => {
                let why = format!("the API server did not answer: {why}");
                Err((503, Failure::new(503, "ServiceUnavailable", why)))
            }
        };
        if let Then::List(application) = &request.then {
            let answer = unsupported::listed(context, &request.origin, application, result);
            return cache.answer(id, session, answer);
        }
        let Some(content) = content(request.form, result) else { return };
        let message =
            outbound::response(context.rng, context.now, &request.origin, version, content);
        match request.then {
            Then::Registered => cache.answer_registration(id, session, message),
            _ => cache.answer(id, session, message),
        }
    }

    /// Applies a successful answer.
    #[expect(clippy::too_many_arguments, reason = "all that an answer may change")]
    fn apply(
        &mut self,
        id: NodeId,
        session: Session,
        request: &NodeRequest,
        raw: Box<RawValue>,
        cache: &mut Cache,
        watches: &Watches,
        context: &mut NodeContext<'_>,
    ) -> Outcome {
        let kind = request.call.kind;
        match &request.then {
            Then::Nothing | Then::List(_) => Outcome::Answer(raw, 0),
            Then::Learn | Then::Registered | Then::Finish { .. } => {
                if let Then::Finish { uid } = &request.then {
                    let mut call = request.call.clone();
                    (call.verb, call.subresource) = (Verb::Delete, None);
                    call.body = Some(raw::json(&delete_options(uid)));
                    self.call(Purpose::NoAnswer, call, context);
                }
                if request.then == Then::Registered {
                    cache.mark_uncertain(id);
                }
                match learn(kind, &raw, cache, watches, context) {
                    // As in KubeEdge.
                    Some(_) if request.then == Then::Registered => {
                        Outcome::Answer(without_managed_fields(kind, raw), 0)
                    }
                    Some(version) => Outcome::Answer(without_managed_fields(kind, raw), version),
                    None => Outcome::Answer(raw, 0),
                }
            }
            Then::Give(key) => {
                learn(kind, &raw, cache, watches, context);
                match from_cache(cache, key, &request.origin) {
                    Some(requested) => {
                        cache.queue_object(id, session, requested);
                        Outcome::AnsweredSeparately
                    }
                    None => Outcome::Refuse(404, "NotFound", "it does not exist any more"),
                }
            }
            Then::Bound(claims) => {
                let bound = bound_to(&raw).is_some_and(|claim| claims.contains(&claim));
                if bound { Outcome::Answer(raw, 0) } else { FOREIGN }
            }
            Then::Attached(node) => {
                let own = attached_to(&raw).is_some_and(|to| to == *node);
                if own { Outcome::Answer(raw, 0) } else { FOREIGN }
            }
            Then::Unrecorded(key) => {
                unrecorded_found(cache, (id, session), key, &raw, context);
                Outcome::AnsweredSeparately
            }
            Then::Missing { key, uid } => {
                // A pod that cannot be parsed in full still exists.
                let found = Sketch::of(Kind::Pod, &raw).is_some_and(|pod| {
                    pod.node.as_deref() == Some(&*cache.nodes[&id].name) && pod.uid == *uid
                });
                if !found {
                    cache.request_deletion(id, key, uid);
                    return Outcome::Refuse(404, "NotFound", "there is no such pod on this node");
                }
                Outcome::Refuse(503, "ServiceUnavailable", "not known here yet")
            }
        }
    }
}

enum Outcome {
    /// The object, and its version if it is in the answer.
    Answer(Box<RawValue>, u64),
    Refuse(u16, &'static str, &'static str),
    /// It is answered separately.
    AnsweredSeparately,
}

const FOREIGN: Outcome = Outcome::Refuse(403, "Forbidden", "it does not belong to this node");

/// A device that a node has without a record exists.
fn unrecorded_found(
    cache: &mut Cache,
    of: (NodeId, Session),
    key: &Key,
    raw: &RawValue,
    context: &mut NodeContext<'_>,
) {
    let own = &*cache.nodes[&of.0].name;
    let found = Sketch::of(key.kind, raw).filter(|it| it.node.as_deref() != Some(own));
    if let Some(version) = found.and_then(|it| it.version) {
        remove_unrecorded(cache, of, key, version, context);
    }
}

/// A node has a device that was not its own in this version.
fn remove_unrecorded(
    cache: &mut Cache,
    (id, session): (NodeId, Session),
    key: &Key,
    version: u64,
    context: &mut NodeContext<'_>,
) {
    let node = &cache.nodes[&id];
    if node.wanted.contains(key) || node.records.contains_key(key) {
        // It has come to the node meanwhile.
        return;
    }
    let removal = outbound::removal(context.rng, context.now, key, version);
    cache.answer(id, session, removal);
}

/// The content of the answer to the node; `None`: no answer.
pub(super) fn content(
    form: Form,
    result: Result<Box<RawValue>, (u16, Failure)>,
) -> Option<Content> {
    Some(match (form, result) {
        (Form::Silent, _) | (Form::OkOrNothing, Err(_)) => return None,
        (Form::ObjectResp | Form::Made, Ok(object)) => Content::ObjectResp(Ok(object)),
        (Form::ObjectResp, Err((_, failure))) => Content::ObjectResp(Err(failure)),
        (Form::Made, Err((_, failure))) => Content::NotMade(failure),
        (Form::Object, Ok(object)) => Content::Object(object.into()),
        (Form::Ok | Form::OkIfGone | Form::OkIfThere | Form::OkOrNothing, Ok(_))
        // Deleted, or deleted and created again: it is done.
        | (Form::OkIfGone, Err((404 | 409, _)))
        | (Form::OkIfThere, Err((409, _))) => Content::Done,
        (Form::OkIfThere, Err((_, failure))) => Content::FailureText(failure),
        (Form::Object | Form::Ok | Form::OkIfGone, Err((_, failure))) => Content::Failure(failure),
    })
}

/// The object from the cache, if it is there.
fn from_cache(cache: &Cache, key: &Key, origin: &Origin) -> Option<RequestedObject> {
    let object = cache.object(key)?;
    Some(RequestedObject {
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
    cache: &mut Cache,
    watches: &Watches,
    context: &mut NodeContext<'_>,
) -> Option<u64> {
    let read = Object::read(kind, raw).ok()?;
    let version = read.object.version;
    cache.put(context.now.boot, read, From::Call(watches.known_version(kind)));
    Some(version)
}

fn without_managed_fields(kind: Kind, raw: Box<RawValue>) -> Box<RawValue> {
    match Object::read(kind, &raw) {
        Ok(read) => (*read.object.json).to_owned(),
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
