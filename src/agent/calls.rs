//! Pending runtime calls: their owner, their class, and since when they run.
//!
//! Every call is entered here before it is requested and removed when its answer comes, so the
//! bounds hold for all parts together and the counters are complete. Each class has its own bound
//! (rule R1): a pull that takes an hour blocks neither a relist nor a stop.
//!
//! Not persistent: after a crash the runtime is listed.

use std::collections::BTreeMap;

use super::event::{Action, CallId, Out, Severity};
use super::time::{Instant, Now};
use crate::core::work::WorkBook;
use crate::limits;
use crate::model::cri::{ExecPurpose, Request};
use crate::model::metrics::{Histogram, Operation};
#[cfg(feature = "streams")]
use crate::model::stream::StreamId;

/// The uid of a pod, as in the runtime's labels and the API.
pub type Uid = Box<str>;

/// The receiver of the answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Owner {
    /// [`super::runtime`]
    Runtime,
    /// [`super::pleg`]
    Pleg,
    /// One pod.
    Pod(Uid),
    /// [`super::housekeeping`]
    Housekeeping(CallTask),
    /// [`super::node_jobs`]
    #[cfg(feature = "node-jobs")]
    NodeJobs,
    /// A probe of one pod, in parallel to the pod's other calls.
    Probe(Uid),
    /// A hook of one pod, in parallel to the pod's other calls.
    Hook(Uid),
    /// A request of a person.
    #[cfg(feature = "streams")]
    Stream(StreamId),
}

/// The task of housekeeping that has made a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallTask {
    /// Garbage collection of images: where they are.
    ImagePath,
    /// Garbage collection of images: their list and their removal.
    Images,
    /// The list of images in the node's status.
    #[cfg(feature = "cloud")]
    Inventory,
    /// The rotation of a log.
    Logs,
    /// The resource usage of pods.
    #[cfg(feature = "eviction")]
    Eviction,
}

/// Calls with a common bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Lists, `Status`, `Version` and the event stream: their owners make one of each at a time.
    List,
    /// `StopContainer` and `StopPodSandbox`: may last as long as the grace period.
    Stop,
    /// `PullImage`: may last for hours.
    Pull,
    /// `ExecSync` of probes: they end within their timeouts.
    Exec,
    /// `ExecSync` of hooks: may last as long as the grace period, or a container's start.
    Hook,
    /// All others: create, start, inspect and remove.
    Work,
    /// Calls of housekeeping: the owner makes one of each kind at a time.
    HousekeepingCall,
    /// For people: commands may last for hours, the others end soon.
    #[cfg(feature = "streams")]
    Stream,
}

impl Class {
    /// The class of a request.
    pub fn of(request: &Request) -> Self {
        class_and_deadline(request).0
    }

    fn calls_max(self, pulls_max: usize) -> usize {
        match self {
            Self::List => limits::READ_CALLS_MAX,
            Self::Stop => limits::STOP_CALLS_MAX,
            Self::Exec => limits::EXEC_CALLS_MAX,
            Self::Hook => limits::HOOK_CALLS_MAX,
            Self::Pull => pulls_max,
            Self::Work => limits::WORK_CALLS_MAX,
            Self::HousekeepingCall => limits::HOUSEKEEPING_CALLS_MAX,
            #[cfg(feature = "streams")]
            Self::Stream => limits::STREAM_CALLS_MAX,
        }
    }
}

/// All pending calls.
#[derive(Debug)]
pub struct Calls {
    /// 1 to [`limits::PULL_CALLS_MAX`].
    pulls_max: usize,
    open: WorkBook<CallId, Open>,
    /// Pending calls by class.
    counts: [usize; 8],
    /// A pod could not begin a pull for lack of room, since its last pull or step.
    pull_waits: bool,
    operations: BTreeMap<&'static str, Operation>,
}

#[derive(Debug)]
struct Open {
    owner: Owner,
    operation: &'static str,
    class: Class,
    began: Instant,
    /// For a pull: the image, and when its progress is logged next.
    pull: Option<(Box<str>, Instant)>,
}

impl Calls {
    /// No pending calls. `pulls_max` is the bound of [`Class::Pull`].
    pub fn new(pulls_max: usize) -> Self {
        assert!((1..=limits::PULL_CALLS_MAX).contains(&pulls_max), "{pulls_max} pulls at once");
        let (open, operations) = (WorkBook::default(), BTreeMap::new());
        Self { pulls_max, open, counts: [0; 8], pull_waits: false, operations }
    }

    /// The pods are about to be stepped: those that wait for room say so again.
    pub fn begin_pods(&mut self) {
        self.pull_waits = false;
    }

    /// A pod waits for room for a call of this class.
    pub fn wait_for_room(&mut self, class: Class) {
        self.pull_waits |= class == Class::Pull;
    }

    /// Whether a pod waits for room for a pull.
    #[cfg(feature = "node-jobs")]
    pub fn is_pull_waiting(&self) -> bool {
        self.pull_waits
    }

    /// Whether one more call of the class may begin.
    pub fn has_room(&self, class: Class) -> bool {
        self.counts[class as usize] < class.calls_max(self.pulls_max)
    }

    /// Whether any object is being created, started or removed; this is over soon. If the caller
    /// disconnects meanwhile, a runtime may leave a partial object; containerd a process that it
    /// cannot remove.
    pub fn has_work(&self) -> bool {
        self.counts[Class::Work as usize] > 0
    }

    /// Requests a call. The class must have room: see [`Calls::has_room`].
    pub fn begin(&mut self, now: Now, owner: Owner, request: Request, out: &mut Out) -> CallId {
        let (class, deadline_ms) = class_and_deadline(&request);
        assert!(self.has_room(class), "a {class:?} call beyond its bound: {}", request.operation());
        self.counts[class as usize] += 1;
        let operation = request.operation();
        let pull = match &request {
            Request::PullImage { image, .. } => {
                Some((image.clone(), now.boot.plus_ms(limits::PULL_LOG_MS)))
            }
            _ => None,
        };
        let call = self.open.begin(Open { owner, operation, class, began: now.boot, pull });
        let deadline = now.boot.plus_ms(deadline_ms);
        out.push(Action::Cri { call, request, deadline });
        call
    }

    /// Removes an answered call: returns its owner and how many milliseconds it took. `None`: not
    /// pending, because it was cancelled while its answer was on the way.
    pub fn end(&mut self, now: Now, call: CallId, outcome: Outcome) -> Option<(Owner, u64)> {
        let open = self.open.end(call)?;
        self.counts[open.class as usize] -= 1;
        let took_ms = now.boot.since_ms(open.began);
        let operation = self.operations.entry(open.operation).or_default();
        operation.total += 1;
        operation.errors += u64::from(outcome == Outcome::Failed);
        operation.duration.observe_ms(took_ms);
        Some((open.owner, took_ms))
    }

    /// Cancels a call: no answer will come.
    pub fn cancel(&mut self, now: Now, call: CallId, out: &mut Out) {
        let ended = self.end(now, call, Outcome::Failed);
        assert!(ended.is_some(), "cancelled {call:?}, which is not under way");
        out.push(Action::CancelCri(call));
    }

    /// Images that are being pulled, and since when.
    pub fn pulls(&self) -> impl Iterator<Item = (&str, Instant)> {
        self.open.owners().filter_map(|open| Some((&*open.pull.as_ref()?.0, open.began)))
    }

    /// Logs the progress of long pulls from time to time.
    pub fn log_long_pulls(&mut self, now: Now, out: &mut Out) {
        if self.counts[Class::Pull as usize] == 0 {
            return;
        }
        for open in self.open.owners_mut() {
            if let Some((image, log_at)) = open.pull.as_mut().filter(|(_, at)| *at <= now.boot) {
                *log_at = now.boot.plus_ms(limits::PULL_LOG_MS);
                let seconds = now.boot.since_ms(open.began) / 1_000;
                let line = format!("pulling image \"{image}\" for {seconds} s");
                out.push(Action::Log(Severity::Info, line));
            }
        }
    }

    /// When the next line is due.
    pub fn wake_at(&self) -> Option<Instant> {
        if self.counts[Class::Pull as usize] == 0 {
            return None;
        }
        self.open.owners().filter_map(|open| Some(open.pull.as_ref()?.1)).min()
    }

    /// Counters by RPC, for the metrics.
    pub fn operations(&self) -> &BTreeMap<&'static str, Operation> {
        &self.operations
    }

    /// Durations of one RPC.
    pub fn duration_of(&self, operation: &'static str) -> Histogram {
        self.operations
            .get(operation)
            .map(|operation| operation.duration.clone())
            .unwrap_or_default()
    }
}

/// The result of a call, for the error counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// With a reply.
    Answered,
    /// Refused, lost or cancelled.
    Failed,
}

/// The class of a request, and the milliseconds after which its answer is given up (spec section
/// 13.1).
fn class_and_deadline(request: &Request) -> (Class, u64) {
    match request {
        Request::Version
        | Request::Status
        | Request::RuntimeConfig
        | Request::ListPodSandbox
        | Request::ListContainers => (Class::List, limits::READ_DEADLINE_MS),
        Request::GetContainerEvents => (Class::List, limits::STREAM_DEADLINE_MS),
        Request::StopContainer { grace_s, .. } => {
            let grace_ms = u64::try_from(*grace_s).unwrap_or(0).saturating_mul(1000);
            (Class::Stop, grace_ms.saturating_add(limits::CALL_DEADLINE_MS))
        }
        Request::StopPodSandbox(_) => (Class::Stop, limits::CALL_DEADLINE_MS),
        Request::PullImage { .. } => (Class::Pull, limits::PULL_DEADLINE_MS),
        Request::ExecSync { purpose, timeout_s, .. } => {
            let class = match purpose {
                ExecPurpose::Probe => Class::Exec,
                ExecPurpose::Hook => Class::Hook,
                #[cfg(feature = "streams")]
                ExecPurpose::Person => Class::Stream,
            };
            let deadline_ms = match timeout_s {
                0 => limits::EXEC_DEADLINE_MS,
                timeout_s => limits::CALL_DEADLINE_MS + u64::from(*timeout_s) * 1000,
            };
            (class, deadline_ms)
        }
        Request::RunPodSandbox(_) => (Class::Work, 2 * limits::CALL_DEADLINE_MS),
        Request::RemovePodSandbox(_)
        | Request::PodSandboxStatus(_)
        | Request::CreateContainer { .. }
        | Request::StartContainer(_)
        | Request::RemoveContainer(_)
        | Request::Task { .. }
        | Request::ContainerStatus(_)
        | Request::ImageStatus(_) => (Class::Work, limits::CALL_DEADLINE_MS),
        Request::HousekeepingCall(_) => (Class::HousekeepingCall, limits::CALL_DEADLINE_MS),
        #[cfg(feature = "streams")]
        Request::Streaming(_) => (Class::Stream, limits::STREAM_CALL_MS),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::{
        CALL_DEADLINE_MS, EXEC_DEADLINE_MS, PULL_DEADLINE_MS, READ_DEADLINE_MS, STREAM_DEADLINE_MS,
    };
    use crate::model::cri::{ContainerId, SandboxConfig, SandboxId};
    use crate::model::housekeeping::HousekeepingCall;

    #[test]
    fn each_kind_of_call_has_its_deadline() {
        let (sandbox, id) = (SandboxId("s".into()), ContainerId("c".into()));
        let stop = |grace_s| Request::StopContainer { id: id.clone(), grace_s };
        let exec = |timeout_s| Request::ExecSync {
            id: id.clone(),
            command: Vec::new(),
            timeout_s,
            purpose: ExecPurpose::Probe,
        };
        let sandbox_config = Box::new(SandboxConfig::default());
        let pull = Request::PullImage {
            image: "i:1".into(),
            auth: None,
            sandbox_config: sandbox_config.clone(),
        };
        for (request, ms) in [
            (Request::Version, READ_DEADLINE_MS),
            (Request::ListContainers, READ_DEADLINE_MS),
            (Request::GetContainerEvents, STREAM_DEADLINE_MS),
            (stop(0), CALL_DEADLINE_MS),
            (stop(30), 30_000 + CALL_DEADLINE_MS),
            (stop(-1), CALL_DEADLINE_MS),
            (Request::StopPodSandbox(sandbox), CALL_DEADLINE_MS),
            (pull, PULL_DEADLINE_MS),
            (exec(0), EXEC_DEADLINE_MS),
            (exec(5), 5_000 + CALL_DEADLINE_MS),
            (Request::RunPodSandbox(sandbox_config), 2 * CALL_DEADLINE_MS),
            (Request::StartContainer(id.clone()), CALL_DEADLINE_MS),
            (Request::HousekeepingCall(HousekeepingCall::ListImages), CALL_DEADLINE_MS),
        ] {
            let now = Now { boot: Instant(1_000), wall: None };
            let mut out = Out::default();
            Calls::new(1).begin(now, Owner::Runtime, request.clone(), &mut out);
            let Some(Action::Cri { deadline, .. }) = out.actions.pop() else {
                panic!("{request:?}")
            };
            assert_eq!(deadline, now.boot.plus_ms(ms), "{request:?}");
        }
    }
}
