//! What the core learns, and what it requests.

use crate::core::time::Instant;
use crate::model::runtime::{
    BootId, Conditions, ContainerId, ContainerRecord, ImageRecord, Job, JobFault, JobReply,
    MonitorFact, MonitorStart, Record, RecordKey, Refusal, Reply, Request, RuntimeEvent,
    SandboxRecord,
};

/// A call of a client, unique over all connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CallId(pub u64);

/// A job that the core has requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct JobId(pub u64);

impl From<u64> for JobId {
    fn from(id: u64) -> Self {
        Self(id)
    }
}

/// What the core is started with.
#[derive(Clone, Debug, Default)]
pub struct Stored {
    pub boot: BootId,
    /// All records that could be read; the others were put aside.
    pub sandboxes: Vec<SandboxRecord>,
    pub containers: Vec<ContainerRecord>,
    pub images: Vec<ImageRecord>,
    /// Containers with a folder in RUN, so that something of them may live, each with what is
    /// known of it: its monitor answers, its exit record is there, or neither.
    pub found: Vec<(ContainerId, Found)>,
    /// Ids of sandboxes with a folder in RUN or a result of CNI.
    pub found_sandboxes: Vec<crate::model::runtime::SandboxId>,
}

/// What a restarted server finds of a container in RUN.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// Its monitor answers: what it says comes as [`Event::Monitor`].
    Monitored,
    /// It has ended, and its monitor as well.
    Ended(MonitorFact),
    /// There is no monitor; this process of the container lives.
    Alone(crate::model::runtime::Process),
    /// Neither monitor nor process.
    Remains,
}

/// What the core learns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    Call(CallId, Request),
    /// Nobody waits for its answer any more: what need not go on is cancelled (pull, exec).
    Cancel(CallId),
    Job(JobId, Result<JobReply, JobFault>),
    Monitor(ContainerId, MonitorFact),
    /// Everything that was to be saved before it in the order of requests is durable.
    Saved,
    /// It could not be saved: the system's text. What waited for it fails.
    NotSaved(String),
    /// Whether the runtime and the network are ready; at the start and after each change.
    Conditions(Conditions),
}

/// What the core requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// The one answer to a call.
    Answer(CallId, Result<Reply, Refusal>),
    /// One item of a stream.
    Item(CallId, Box<RuntimeEvent>),
    /// Written before the next [`Event::Saved`]; `Lazily`: within a second is enough, and no
    /// [`Event::Saved`] answers it.
    Save(Box<Record>, Durability),
    /// Removed before the next [`Event::Saved`].
    Erase(RecordKey),
    Job(JobId, Job, Instant),
    /// The job is answered with [`JobFault::Died`] at once.
    KillJob(JobId),
    /// Starts a monitor, which starts the container or adopts it.
    Monitor(Box<MonitorStart>),
    /// The monitor shall open the log anew.
    Reopen(ContainerId),
    /// Signals the container's first process.
    Signal(ContainerId, crate::model::runtime::Process, i32),
    Log(crate::core::Severity, String),
}

/// When a record has to be on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// Before what follows it.
    Now,
    /// Soon: the truth is in RUN as well, until the next power cut.
    Lazily,
}
