//! Writes what nodes report of their devices: at most one write of a device in a second, with all
//! that was reported until then.
//!
//! ```text
//!  report ─▶ waits ─▶ read once ─▶ differs? ─▶ write ─▶ confirmed
//!              ▲                      └─ no ─────────────▶
//!              └──────── refused, lost, another has written ◀┘
//! ```
//!
//! Our watch of Devices may be behind: if the status seems to be of a later state of the Device,
//! that is read first, and nothing is written unless it is the one that is known.
//!
//! The statuses are objects of their own if the API server has the kind, and it may be listed;
//! otherwise those of the devices, as up to KubeEdge 1.22. A device whose write fails is tried
//! again with a back-off of its own, and holds nobody up.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::super::cache::Cache;
use super::super::calls::{OwnPart, StatusCall};
use super::super::event::{Action, Severity};
use super::super::key::{Key, NodeId};
use super::super::object::{Object, Read};
use super::super::time::{Backoff, Instant, Now};
use super::super::{Controller, Session};
use super::status::{Device, Recorded, ReportedState, is_resent, message};
use crate::limits::{
    DEVICE_CALLS_MAX, DEVICE_KIND_MS, DEVICE_KIND_RETRY_MS, DEVICE_RETRY_MAX_MS,
    DEVICE_RETRY_MIN_MS, DEVICE_STATUSES_MAX, DEVICE_WAITING_MAX, DEVICE_WRITE_MS,
};
use crate::model::api::{Call, CallError, CallResult, Kind, ListOptions, Verb};
use crate::model::device::{DeviceState, Twin, TwinSide, Twins};
use crate::model::raw;

/// A message that is confirmed when it is done.
#[derive(Debug)]
pub(in crate::controller) struct Waiting {
    pub(in crate::controller) node: NodeId,
    pub(in crate::controller) session: Session,
    /// Its id.
    pub(in crate::controller) message: Box<str>,
}

/// What a node reports of a device.
#[derive(Debug)]
pub(super) enum Report {
    Twins(Twins),
    /// The state, and when it was reported: milliseconds since 1970 by the node's clock.
    State(DeviceState, i64),
}

/// The statuses of devices with reports.
#[derive(Default)]
pub(in crate::controller) struct Statuses {
    all: BTreeMap<Key, Status>,
    /// When each is due.
    queue: BTreeSet<(Instant, Key)>,
    calls: BTreeMap<StatusCall, Key>,
    /// Those that nothing waits for. They make room for others.
    idle: BTreeSet<Key>,
    last: u64,
    target: Target,
    /// Refusals that were logged: the verb and the kind.
    refused: BTreeSet<(&'static str, Kind)>,
    /// Nodes that have begun anew since we started: what was recorded of their states before says
    /// nothing.
    anew: BTreeSet<NodeId>,
}

/// Where statuses are written.
#[derive(Default)]
struct Target {
    /// `None`: it is not known yet.
    kind: Option<Kind>,
    is_looking: bool,
    /// It is looked for not before this time.
    look_at: Instant,
}

#[derive(Default)]
struct Status {
    /// `None`: it is read before it is written.
    recorded: Option<Recorded>,
    /// Reported, and not known to be recorded.
    twins: Twins,
    state: Option<DeviceState>,
    /// When the last state was reported, by the node's clock.
    state_at_ms: i64,
    /// The node has begun anew since the recorded state.
    is_anew: bool,
    waiting: VecDeque<Waiting>,
    /// The call under way, and how many of the waiting it has; 0: it reads.
    running: Option<(StatusCall, usize)>,
    /// Its place in the queue.
    due_at: Option<Instant>,
    /// It is not written before this time.
    next_at: Instant,
    backoff: Backoff,
}

/// What follows from an answer about a status.
enum Outcome {
    /// It was read.
    Read(Recorded),
    /// It was written.
    Written(Recorded),
    /// There is no object: it is created.
    Missing,
    /// The Device was read after the status, and is as it is known.
    Checked,
    /// The device is gone, or the API server will never take this: nothing more is to be done.
    Given,
    /// Another has written, or it was written for an earlier Device of this name: it is read again.
    Changed,
    /// It is tried again later.
    Failed,
}

impl Statuses {
    /// A node reports something of one of its devices.
    pub(super) fn report(&mut self, now: Instant, key: &Key, report: Report, waiting: Waiting) {
        if self.all.len() >= DEVICE_STATUSES_MAX && !self.all.contains_key(key) {
            let Some(idle) = self.idle.pop_first() else {
                // The node sends it again.
                return;
            };
            self.all.remove(&idle);
        }
        self.idle.remove(key);
        let is_anew = self.anew.contains(&waiting.node);
        let new = || Status { is_anew, ..Status::default() };
        let status = self.all.entry(key.clone()).or_insert_with(new);
        match report {
            Report::Twins(twins) => {
                for (name, twin) in twins {
                    status.take_twin(name, twin);
                }
            }
            Report::State(state, at_ms) => {
                let is_resent = at_ms != 0 && at_ms < status.state_at_ms;
                if !is_resent {
                    (status.state, status.state_at_ms) = (Some(state), at_ms);
                }
            }
        }
        status.wait(waiting);
        if status.running.is_none() && status.due_at.is_none() {
            let at = status.next_at.max(now);
            self.schedule(key, at);
        }
    }

    /// The clock of a node may begin anew: what it reports is not older than before.
    fn node_restarted<'a>(&mut self, node: NodeId, bound: impl Iterator<Item = &'a Key>) {
        self.anew.insert(node);
        for key in bound.filter(|key| key.kind == Kind::Device) {
            if let Some(status) = self.all.get_mut(key) {
                (status.state_at_ms, status.is_anew) = (0, true);
            }
        }
    }

    /// What is known of a status, as JSON of an object; `None`: nothing.
    pub(super) fn text(&self, key: &Key) -> Option<String> {
        Some(self.all.get(key)?.recorded.as_ref()?.text(key))
    }

    /// The device is gone, or on another node. Returns the messages that are done with that.
    fn forget(&mut self, key: &Key) -> VecDeque<Waiting> {
        let Some(status) = self.all.remove(key) else { return VecDeque::new() };
        if let Some(at) = status.due_at {
            self.queue.remove(&(at, key.clone()));
        }
        self.idle.remove(key);
        status.waiting
    }

    fn schedule(&mut self, key: &Key, at: Instant) {
        let status = self.all.get_mut(key).expect("it was just looked at");
        if let Some(before) = status.due_at.replace(at) {
            self.queue.remove(&(before, key.clone()));
        }
        self.queue.insert((at, key.clone()));
    }

    /// The call that finds out where statuses are written, if it is due.
    fn look(&mut self, now: Instant) -> Option<Call> {
        let target = &mut self.target;
        let is_due = !target.is_looking
            && target.kind != Some(Kind::DeviceStatus)
            && target.look_at <= now
            && self.queue.first().is_some_and(|(at, _)| *at <= now);
        if !is_due {
            return None;
        }
        target.is_looking = true;
        Some(Call {
            verb: Verb::List,
            kind: Kind::DeviceStatus,
            namespace: "".into(),
            name: "".into(),
            subresource: None,
            body: Some(raw::json(&ListOptions { limit: 1, ..ListOptions::default() })),
        })
    }

    /// The next call, if one is due and there is room for it; and messages that are done.
    fn next(
        &mut self,
        now: Instant,
        cache: &Cache,
        done: &mut Vec<Waiting>,
    ) -> Option<(OwnPart, Call)> {
        let kind = self.target.kind?;
        while self.calls.len() < DEVICE_CALLS_MAX {
            let (at, key) = self.queue.first().filter(|(at, _)| *at <= now)?.clone();
            self.queue.remove(&(at, key.clone()));
            let object = cache.object(&key);
            let facts = object.and_then(|object| object.device.as_deref());
            let Some((object, facts)) = object.zip(facts) else {
                self.all.get_mut(&key).expect("it is queued").due_at = None;
                done.extend(self.forget(&key));
                continue;
            };
            let status = self.all.get_mut(&key).expect("it is queued");
            status.due_at = None;
            let device = Device { key: &key, uid: &object.uid, version: object.version, facts };
            let id = StatusCall(self.last + 1);
            // With how many of those that wait the call answers.
            let (own, call, answered) = match &status.recorded {
                Some(recorded) if recorded.may_be_ahead(kind, device) => {
                    (OwnPart::DeviceOfStatus(id), get(Kind::Device, &key), 0)
                }
                Some(recorded) => {
                    let state = status.state.as_ref().map(|state| ReportedState {
                        state,
                        at_ms: status.state_at_ms,
                        is_anew: status.is_anew,
                    });
                    let call = recorded.change(kind, device, &status.twins, state);
                    let Some(call) = call else {
                        done.append(&mut status.settled());
                        self.idle.insert(key);
                        continue;
                    };
                    (OwnPart::DeviceStatus(id, verb_of(&call)), call, status.waiting.len())
                }
                None => (OwnPart::DeviceStatus(id, "get"), get(kind, &key), 0),
            };
            status.running = Some((id, answered));
            self.last = id.0;
            self.calls.insert(id, key);
            return Some((own, call));
        }
        None
    }

    /// Takes the answer to a call. Returns the messages that are done.
    fn answered(&mut self, now: Instant, id: StatusCall, outcome: Outcome) -> Vec<Waiting> {
        let key = self.calls.remove(&id).expect("an answer to a call that was made");
        // It may have been forgotten, and begun anew.
        let Some(status) = self.all.get_mut(&key) else { return Vec::new() };
        let Some((_, count)) = status.running.take_if(|(running, _)| *running == id) else {
            return Vec::new();
        };
        let mut done = Vec::new();
        let mut at = now;
        match outcome {
            Outcome::Read(recorded) => status.recorded = Some(recorded),
            Outcome::Missing => status.recorded = Some(Recorded::default()),
            Outcome::Checked => {
                if let Some(recorded) = &mut status.recorded {
                    recorded.is_checked = true;
                }
            }
            Outcome::Written(recorded) => {
                // Once its state is recorded, so is its new clock.
                status.is_anew &= recorded.state_at_ms != status.state_at_ms;
                status.recorded = Some(recorded);
                status.backoff = Backoff::default();
                status.next_at = now.plus_ms(DEVICE_WRITE_MS);
                at = status.next_at;
                done.extend(status.waiting.drain(..count.min(status.waiting.len())));
            }
            Outcome::Given => {
                status.recorded = None;
                done.append(&mut status.settled());
            }
            Outcome::Changed => {
                status.recorded = None;
                at = now.plus_ms(DEVICE_WRITE_MS);
            }
            Outcome::Failed => {
                status.recorded = None;
                at = status.backoff.retry_at(now, DEVICE_RETRY_MIN_MS, DEVICE_RETRY_MAX_MS);
            }
        }
        if status.waiting.is_empty() {
            status.twins.clear();
            status.state = None;
            self.idle.insert(key);
        } else {
            self.schedule(&key, at);
        }
        done
    }

    /// When to step again if nothing happens before.
    pub(in crate::controller) fn wake_at(&self) -> Option<Instant> {
        let (at, _) = self.queue.first()?;
        let Target { kind, is_looking, look_at } = self.target;
        let look_at = (!is_looking).then(|| look_at.max(*at));
        match kind {
            None => look_at,
            Some(_) => (self.calls.len() < DEVICE_CALLS_MAX).then_some(*at),
        }
    }
}

impl Status {
    /// Takes the sides that are not older than what was reported before.
    fn take_twin(&mut self, name: Box<str>, twin: Twin) {
        let Some(before) = self.twins.get_mut(&name) else {
            self.twins.insert(name, twin);
            return;
        };
        let take = |before: &mut Option<TwinSide>, side: Option<TwinSide>| {
            let Some(side) = side.filter(|side| side.value.is_some()) else { return };
            if before.as_ref().is_none_or(|before| !is_resent(&side, before)) {
                *before = Some(side);
            }
        };
        take(&mut before.expected, twin.expected);
        take(&mut before.actual, twin.actual);
        before.type_name = twin.type_name;
    }

    /// A message waits until it is done. Of too many the oldest is not confirmed: its node sends it
    /// again.
    fn wait(&mut self, waiting: Waiting) {
        if self.waiting.len() >= DEVICE_WAITING_MAX {
            self.waiting.pop_front();
            if let Some((_, count)) = &mut self.running {
                *count = count.saturating_sub(1);
            }
        }
        self.waiting.push_back(waiting);
    }

    /// Everything that was reported is recorded. Returns the messages that are done.
    fn settled(&mut self) -> Vec<Waiting> {
        self.twins.clear();
        self.state = None;
        self.waiting.drain(..).collect()
    }
}

impl Controller {
    /// Makes the calls about statuses that are due.
    pub(in crate::controller) fn write_device_statuses(&mut self, now: Now) {
        for key in std::mem::take(&mut self.cache.gone_devices) {
            for waiting in self.statuses.forget(&key) {
                self.confirm(waiting);
            }
        }
        if !self.is_ready() || self.stopping {
            return;
        }
        for id in std::mem::take(&mut self.cache.registered) {
            if let Some(node) = self.cache.nodes.get(&id) {
                self.statuses.node_restarted(id, node.bound.keys());
            }
        }
        let look = self.statuses.look(now.boot);
        self.call_own(now, OwnPart::DeviceStatusKind, look);
        let mut done = Vec::new();
        while let Some((own, call)) = self.statuses.next(now.boot, &self.cache, &mut done) {
            self.call_own(now, own, Some(call));
        }
        for waiting in done {
            self.confirm(waiting);
        }
    }

    /// The API server has answered whether it has the kind of statuses.
    pub(in crate::controller) fn device_status_kind_answered(
        &mut self,
        now: Now,
        result: &CallResult,
    ) {
        let (kind, after_ms) = match result {
            Ok(_) => (Some(Kind::DeviceStatus), DEVICE_KIND_MS),
            Err(CallError::Refused { code: 403, status }) => {
                self.device_call_forbidden("list", Kind::DeviceStatus, &message(status));
                (Some(Kind::Device), DEVICE_KIND_MS)
            }
            Err(CallError::Refused { code: 404, .. }) => (Some(Kind::Device), DEVICE_KIND_MS),
            Err(_) => (self.statuses.target.kind, DEVICE_KIND_RETRY_MS),
        };
        let statuses = &mut self.statuses;
        if statuses.target.kind != kind {
            for status in statuses.all.values_mut() {
                status.recorded = None;
            }
        }
        let look_at = now.boot.plus_ms(after_ms);
        statuses.target = Target { kind, is_looking: false, look_at };
    }

    /// The API server has answered a call about a status.
    pub(in crate::controller) fn device_status_answered(
        &mut self,
        now: Now,
        id: StatusCall,
        verb: &'static str,
        result: CallResult,
    ) {
        let kind = self.statuses.target.kind.unwrap_or(Kind::DeviceStatus);
        let outcome = match result {
            Ok(raw) => match Recorded::read(&raw) {
                Ok(recorded) if verb == "get" => Outcome::Read(recorded),
                Ok(recorded) => {
                    self.counters.device_writes += 1;
                    self.statuses.refused.remove(&(verb, kind));
                    let key = self.statuses.calls.get(&id);
                    let known = key.and_then(|key| self.cache.object(key));
                    if known.is_some_and(|device| recorded.is_foreign(kind, &device.uid)) {
                        Outcome::Changed
                    } else {
                        Outcome::Written(recorded)
                    }
                }
                Err(_) => Outcome::Failed,
            },
            Err(CallError::Refused { code: 404, .. }) => match (verb, kind) {
                ("create", _) => {
                    // The kind is gone, or the namespace.
                    self.statuses.target = Target::default();
                    Outcome::Failed
                }
                (_, Kind::DeviceStatus) => Outcome::Missing,
                _ => Outcome::Given,
            },
            Err(CallError::Refused { code: 409, .. }) => Outcome::Changed,
            Err(CallError::Refused { code: code @ (400 | 403 | 413 | 422), status }) => {
                self.device_call_forbidden(verb, kind, &message(&status));
                if code == 403 { Outcome::Failed } else { Outcome::Given }
            }
            Err(CallError::Refused { .. } | CallError::Lost(_)) => Outcome::Failed,
        };
        for waiting in self.statuses.answered(now.boot, id, outcome) {
            self.confirm(waiting);
        }
    }

    /// The API server has answered what the Device of a status is now. If it is not the one that is
    /// known, the watch is about to bring it.
    pub(in crate::controller) fn device_of_status_answered(
        &mut self,
        now: Now,
        id: StatusCall,
        result: &CallResult,
    ) {
        let known = self.statuses.calls.get(&id).and_then(|key| self.cache.object(key));
        let read = result.as_ref().ok().and_then(|raw| Object::read(Kind::Device, raw).ok());
        let is_known = known.zip(read).is_some_and(|(known, Read { object, .. })| {
            (&known.uid, known.version) == (&object.uid, object.version)
        });
        let outcome = if is_known { Outcome::Checked } else { Outcome::Failed };
        for waiting in self.statuses.answered(now.boot, id, outcome) {
            self.confirm(waiting);
        }
    }

    /// Logged once for each verb and kind, until it succeeds.
    fn device_call_forbidden(&mut self, verb: &'static str, kind: Kind, why: &str) {
        if self.statuses.refused.insert((verb, kind)) {
            let why: String = why.chars().take(512).collect();
            let line = format!(
                "devices: reports are recorded late or elsewhere, because the API server refuses \
                 to {verb} {}: {why}",
                kind.plural()
            );
            self.pending.push(Action::Log(Severity::Warn, line));
        }
    }
}

fn get(kind: Kind, key: &Key) -> Call {
    let (namespace, name) = (key.namespace.as_ref().into(), key.name.as_ref().into());
    Call { verb: Verb::Get, kind, namespace, name, subresource: None, body: None }
}

/// As RBAC calls it.
fn verb_of(call: &Call) -> &'static str {
    match call.verb {
        Verb::Get => "get",
        Verb::List => "list",
        Verb::Create => "create",
        Verb::Update => "update",
        Verb::Patch(_) => "patch",
        Verb::Delete => "delete",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(at: usize) -> Key {
        Key::new(Kind::Device, "n", &at.to_string())
    }

    fn report(statuses: &mut Statuses, now: u64, at: usize) {
        let waiting = Waiting { node: NodeId(1), session: Session(1), message: "m".into() };
        let state = DeviceState { state: "ok".into(), ..DeviceState::default() };
        statuses.report(Instant(now), &key(at), Report::State(state, 0), waiting);
    }

    /// The API server has answered a call about a device.
    fn answer(statuses: &mut Statuses, now: u64, at: usize, outcome: Outcome) -> usize {
        statuses.last += 1;
        let id = StatusCall(statuses.last);
        statuses.calls.insert(id, key(at));
        let status = statuses.all.get_mut(&key(at)).expect("it has reported");
        let before = status.due_at.take();
        before.map(|before| statuses.queue.remove(&(before, key(at))));
        status.running = Some((id, status.waiting.len()));
        statuses.answered(Instant(now), id, outcome).len()
    }

    #[test]
    fn statuses_have_a_limit_and_one_that_nothing_waits_for_makes_room() {
        let mut statuses = Statuses::default();
        for at in 0..=DEVICE_STATUSES_MAX {
            report(&mut statuses, 1, at);
        }
        assert_eq!(statuses.all.len(), DEVICE_STATUSES_MAX);
        assert!(!statuses.all.contains_key(&key(DEVICE_STATUSES_MAX)), "all are needed");
        assert_eq!(answer(&mut statuses, 2, 7, Outcome::Written(Recorded::default())), 1);
        report(&mut statuses, 3, DEVICE_STATUSES_MAX);
        assert!(statuses.all.contains_key(&key(DEVICE_STATUSES_MAX)));
        assert!(!statuses.all.contains_key(&key(7)));
        assert_eq!(statuses.all.len(), DEVICE_STATUSES_MAX);
    }

    #[test]
    fn an_answer_about_a_device_that_was_forgotten_says_nothing_of_its_successor() {
        let mut statuses = Statuses::default();
        report(&mut statuses, 1, 1);
        statuses.last += 1;
        let id = StatusCall(statuses.last);
        statuses.calls.insert(id, key(1));
        assert_eq!(statuses.forget(&key(1)).len(), 1);
        report(&mut statuses, 2, 1);
        let done = statuses.answered(Instant(3), id, Outcome::Written(Recorded::default()));
        assert!(done.is_empty() && statuses.all[&key(1)].recorded.is_none());
        assert_eq!(statuses.wake_at(), Some(Instant(2)), "it waits for its own");
    }

    #[test]
    fn what_the_api_server_never_takes_is_given_up() {
        let mut statuses = Statuses::default();
        report(&mut statuses, 1, 1);
        assert_eq!(answer(&mut statuses, 2, 1, Outcome::Given), 1);
        assert!(statuses.wake_at().is_none() && statuses.idle.contains(&key(1)));
    }
}
