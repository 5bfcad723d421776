//! What the core learns, and what it requests.

use crate::core::time::Instant;
use crate::model::runtime::{
    BootId, Conditions, ContainerId, ContainerRecord, DiffId, ImageRecord, Job, JobFault, JobReply,
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
    /// known of it: its monitor answers, its exit record is there, or neither. Also, as
    /// [`Found::Remains`], containers with a layer of their own in DATA and without a record.
    pub found: Vec<(ContainerId, Found)>,
    /// Sandboxes with a folder in RUN.
    pub found_sandboxes: Vec<crate::model::runtime::SandboxId>,
    /// Sandboxes with something kept of their network in DATA, which also survives a reboot.
    pub found_networks: Vec<crate::model::runtime::SandboxId>,
}

/// What a restarted server finds of a container in RUN.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// Its monitor answers: what it says comes as [`Event::Monitor`].
    Monitored,
    /// It has ended, and its monitor as well.
    Ended(MonitorFact),
    /// There is no monitor; this process of the container lives. With it the moment when its
    /// program was started, in nanoseconds since 1970; `None`: it was not.
    Alone(crate::model::runtime::Process, Option<i64>),
    /// Neither monitor nor process.
    Remains,
}

/// What the core learns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    Call(CallId, Request),
    /// Nobody waits for its answer any more, or its stream takes no more: what need not go on is
    /// cancelled (pull, exec, event stream) and answered with `Cancelled`. All else goes on and is
    /// answered in its time.
    Cancel(CallId),
    Job(JobId, Result<JobReply, JobFault>),
    Monitor(ContainerId, MonitorFact),
    /// Everything that was to be saved before it in the order of requests is durable. The core
    /// waits for it, or for [`Event::NotSaved`], before it requests the next [`Durability::Now`]
    /// or [`Action::Erase`].
    Saved,
    /// Some of it could not be saved: the system's text. Nothing is known of the rest.
    NotSaved(String),
    /// All layers that are unpacked in DATA: at the start, and right after the answer of a pull, an
    /// import or a removal of layers that failed.
    Layers(Vec<DiffId>),
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
    /// Written before the next [`Event::Saved`]. Unless it is to be saved `Now`, within a second is
    /// enough, and no [`Event::Saved`] answers it.
    Save(Box<Record>, Durability),
    /// Removed before the next [`Event::Saved`], with what is still to be saved lazily of it. It is
    /// no error if there is none.
    Erase(RecordKey),
    /// The job is killed at this moment, and answered with [`JobFault::Died`].
    Job(JobId, Job, Instant),
    /// The job is killed and answered as it ends: with [`JobFault::Died`], if not before.
    KillJob(JobId),
    /// Starts a monitor, which starts the container or adopts it. An adopting one says `Started`
    /// once it has taken over, and `Failed` where the process is gone and nobody knows its exit
    /// code.
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
    /// In RUN before what follows it, and on the disk soon.
    InRun,
}

/// Where the core leaves its requests.
pub type Out = crate::core::Out<Action>;
