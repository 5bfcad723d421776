//! The agent's calls: what is under way, the connection they need, and what the lists show.

use std::collections::BTreeMap;

use edged::agent::event::{CallId, Event};
use edged::model::cri::{ExecPurpose, Reply, Request};

use crate::rule::judge;

/// The calls under way.
pub struct Calls {
    open: BTreeMap<CallId, Open>,
    last: CallId,
}

/// A call under way.
pub struct Open {
    pub class: Class,
    pub pod: Option<usize>,
    pub kind: Kind,
    pub requested_at: u64,
    /// Pods that the request about an image may be for.
    pub has_image: Vec<usize>,
}

/// Calls with a limit of their own, as in `edged::limits`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    List,
    Stop,
    Pull,
    Work,
    Exec,
    Hook,
    HousekeepingCall,
    #[cfg(feature = "streams")]
    Stream,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    ListSandboxes,
    ListContainers,
    Status,
    StopContainer,
    Pull,
    ImageStatus,
    Change,
    Question,
    Exec,
    Other,
}

impl Calls {
    /// None, in a life that begins.
    pub fn new() -> Self {
        Self { open: BTreeMap::new(), last: CallId(0) }
    }

    /// The agent takes a new id.
    pub fn take_id(&mut self, id: CallId) {
        judge!(id > self.last, "[ids] {id:?} after {:?}", self.last);
        self.last = id;
    }

    pub fn begin(&mut self, id: CallId, call: Open) {
        self.open.insert(id, call);
    }

    /// The call is over for the agent.
    pub fn end(&mut self, id: CallId) -> Option<Open> {
        self.open.remove(&id)
    }

    /// The number of calls of this class under way.
    pub fn count(&self, class: Class) -> usize {
        self.open.values().filter(|open| open.class == class).count()
    }
}

/// The connection as the agent knows it, in this life.
#[derive(Default)]
pub struct Connection {
    up: bool,
    /// When the runtime last reported that it is ready.
    ready_at: Option<u64>,
}

impl Connection {
    /// The agent receives this event.
    pub fn received(&mut self, now: u64, event: &Event) {
        match event {
            Event::RuntimeUp => self.up = true,
            Event::RuntimeDown { .. } => *self = Self::default(),
            Event::Cri(_, Ok(Reply::Status(status))) => {
                self.ready_at = status.runtime.is_ok().then_some(now);
            }
            _ => {}
        }
    }

    pub fn is_up(&self) -> bool {
        self.up
    }

    /// Whether the runtime reported less than `valid_ms` ago that it is ready.
    pub fn is_ready(&self, now: u64, valid_ms: u64) -> bool {
        self.up && self.ready_at.is_some_and(|at| now - at < valid_ms)
    }
}

/// The two lists that are believed together.
#[derive(Default)]
pub struct Relist {
    sandboxes: Half,
    containers: Half,
    /// When the last complete relist was requested, in any life.
    requested_at: u64,
}

#[derive(Clone, Copy, Default)]
struct Half {
    requested: Option<CallId>,
    taken_at: u64,
    /// When the list that arrived last was requested and taken.
    arrived: Option<(u64, u64)>,
}

impl Relist {
    pub fn begin_life(&mut self) {
        *self = Self { requested_at: self.requested_at, ..Self::default() };
    }

    /// When the last complete relist was requested.
    pub fn requested_at(&self) -> u64 {
        self.requested_at
    }

    fn half(&mut self, kind: Kind) -> Option<&mut Half> {
        match kind {
            Kind::ListSandboxes => Some(&mut self.sandboxes),
            Kind::ListContainers => Some(&mut self.containers),
            _ => None,
        }
    }

    /// The agent requests a call, which may be for a list.
    pub fn requested(&mut self, kind: Kind, id: CallId) {
        if let Some(half) = self.half(kind) {
            *half = Half { requested: Some(id), ..Half::default() };
        }
    }

    /// The runtime has made a list.
    pub fn taken(&mut self, now: u64, id: CallId) {
        let mut halves = [&mut self.sandboxes, &mut self.containers].into_iter();
        if let Some(half) = halves.find(|half| half.requested == Some(id)) {
            half.taken_at = now;
        }
    }

    /// A call is over. Returns when both lists were requested and the first of them taken, if this
    /// completes a relist.
    pub fn answered(&mut self, call: &Open, ok: bool) -> Option<(u64, u64)> {
        let half = self.half(call.kind)?;
        half.arrived = ok.then_some((call.requested_at, half.taken_at));
        let (one, two) = (self.sandboxes.arrived?, self.containers.arrived?);
        if one.0 != two.0 {
            return None;
        }
        self.requested_at = one.0;
        Some((one.0, one.1.min(two.1)))
    }
}

/// The limit that a call counts for, and what it is to its pod.
pub fn classify(request: &Request) -> (Class, Kind) {
    match request {
        Request::ListPodSandbox => (Class::List, Kind::ListSandboxes),
        Request::ListContainers => (Class::List, Kind::ListContainers),
        Request::Status => (Class::List, Kind::Status),
        Request::Version | Request::RuntimeConfig | Request::GetContainerEvents => {
            (Class::List, Kind::Other)
        }
        Request::StopContainer { .. } => (Class::Stop, Kind::StopContainer),
        Request::StopPodSandbox(_) => (Class::Stop, Kind::Change),
        Request::PullImage { .. } => (Class::Pull, Kind::Pull),
        Request::ImageStatus(_) => (Class::Work, Kind::ImageStatus),
        Request::PodSandboxStatus(_) | Request::ContainerStatus(_) => (Class::Work, Kind::Question),
        Request::ExecSync { purpose: ExecPurpose::Probe, .. } => (Class::Exec, Kind::Exec),
        Request::ExecSync { purpose: ExecPurpose::Hook, .. } => (Class::Hook, Kind::Exec),
        Request::HousekeepingCall(_) => (Class::HousekeepingCall, Kind::Other),
        #[cfg(feature = "streams")]
        Request::ExecSync { purpose: ExecPurpose::Person, .. } | Request::Streaming(_) => {
            (Class::Stream, Kind::Other)
        }
        Request::RunPodSandbox(_)
        | Request::RemovePodSandbox(_)
        | Request::CreateContainer { .. }
        | Request::StartContainer(_)
        | Request::RemoveContainer(_)
        | Request::Task { .. } => (Class::Work, Kind::Change),
    }
}
