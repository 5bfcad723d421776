//! The mind's door: facts come in as [`Event`], requests go out as [`Action`].

use std::collections::BTreeMap;

use super::image::keyring::Keyring;
use super::time::Instant;
pub use crate::core::Severity;
use crate::model::cri::{CallError, ContainerId, Dns, Reply, Request};
use crate::model::housekeeping::{Ask, Measures};
use crate::model::job::{JobError, JobSpec, LastWords, Used};
#[cfg(feature = "cloud")]
use crate::model::link::{Cause, Session, Validity};
use crate::model::manifest::Folder;
#[cfg(feature = "cloud")]
use crate::model::message::Message;
#[cfg(feature = "cloud")]
use crate::model::meta::{Change, DiskError, Revision, Saved};
use crate::model::net::{Finding, Query};
use crate::model::probe::ProbeResults;
use crate::model::recorded_event::RecordedEvent;

/// A fact from outside: the only way in.
#[derive(Clone, Debug)]
pub enum Event {
    /// The runtime's socket is connected: calls can be made. A second one without a
    /// [`Event::RuntimeDown`] between them never comes.
    RuntimeUp,
    /// The connection is gone, or could not be made; every call under way has been answered
    /// [`CallError::Lost`] before. Told once until the next [`Event::RuntimeUp`].
    RuntimeDown {
        /// For the log and the API.
        cause: String,
    },
    /// The answer to an [`Action::Cri`]: exactly one each, unless it was cancelled.
    Cri(CallId, Result<Reply, CallError>),
    /// Something changed, says the stream of container events. A hint to look, no more.
    Changed(CallId),
    /// The manifest folder was read: at start, and when it differs from the last reading.
    Manifests(Folder),
    /// The answer to an [`Action::Job`]: exactly one each; what succeeds and has more to tell is
    /// answered by [`Event::Used`] or [`Event::Attempts`].
    Job(JobId, Result<(), JobError>),
    /// What the folders take that an [`Action::Job`] asked for, in their order.
    Used(JobId, Vec<Option<Used>>),
    /// The pod's folders are made; of each container in the order asked the newest attempt that
    /// left a log.
    Attempts(JobId, Vec<Option<u32>>),
    /// The answer to an [`Action::Probe`]: exactly one each, unless it was cancelled.
    Probe(ProbeId, Finding),
    /// The answer to an [`Action::Read`]: exactly one each; empty where there is nothing.
    TerminationMessage(JobId, Box<str>),
    /// What the agent last saved by [`Action::SaveProbeResults`] since the machine's boot: once, at
    /// the agent's start, before the runtime is up.
    SavedProbeResults(BTreeMap<ContainerId, ProbeResults>),
    /// What the host's `resolv.conf` says: at start and when it changes.
    Resolver(Box<Dns>),
    /// The node's own credentials of registries: at start, if there are any, and when they change.
    Credentials(Box<Keyring>),
    /// The node's addresses, the primary first: at start and when they change.
    Addresses(Vec<String>),
    /// The answer to an [`Action::Measure`]: exactly one each.
    Measured(Box<Measures>),
    /// What the store holds: the first fact of all where a cloud is configured, exactly once.
    #[cfg(feature = "cloud")]
    Loaded(Box<Saved>),
    /// The answer to an [`Action::Save`]: it is on the disk, and stays there when power fails now.
    #[cfg(feature = "cloud")]
    Saved(Revision),
    /// The other answer to an [`Action::Save`]: nothing of it is kept. Exactly one of both comes.
    #[cfg(feature = "cloud")]
    SaveFailed(Revision, DiskError),
    /// The session that was dialled is up: messages can be sent.
    #[cfg(feature = "cloud")]
    LinkUp(Session, Validity),
    /// The session is over, or never came about. Told once for each [`Action::Dial`], unless we
    /// hung up; nothing of the session follows.
    #[cfg(feature = "cloud")]
    LinkDown(Session, Cause),
    /// Something came from the cloud, were it a pong: the link is alive. At most once a turn.
    #[cfg(feature = "cloud")]
    Heard(Session),
    /// So many of the messages that were to be sent have left, in the order asked.
    #[cfg(feature = "cloud")]
    Sent(Session, usize),
    /// A message of the cloud's. A turn brings a bounded number of them.
    #[cfg(feature = "cloud")]
    Cloud(Session, Box<Message>),
    /// SIGTERM: leave the pods running and exit, once what the runtime makes for us is made.
    Stop,
}

/// A request to the outside: the only way out.
#[derive(Clone, Debug)]
pub enum Action {
    /// Make this call, answer by the deadline.
    Cri {
        /// Names it in the answer.
        call: CallId,
        /// What.
        request: Request,
        /// Then [`CallError::Lost`] is the answer, and the stream is reset.
        deadline: Instant,
    },
    /// The call is of no more interest: reset its stream. No answer follows.
    CancelCri(CallId),
    /// Do this on the file system.
    Job {
        /// Names it in the answer.
        job: JobId,
        /// What.
        spec: JobSpec,
        /// Then the child is killed and [`JobError::Deadline`] is the answer.
        deadline: Instant,
    },
    /// The job is of no more interest: end its child. It is answered all the same, with
    /// [`JobError::Killed`] unless the answer was on its way; what the kernel was doing for the
    /// child may take effect later.
    KillJob(JobId),
    /// Look how much room the machine has. Not asked again before it is answered.
    Measure(Box<Ask>),
    /// Ask this over the network.
    Probe {
        /// Names it in the answer.
        probe: ProbeId,
        /// What, and whom.
        query: Query,
        /// Then the answer is that there was none.
        deadline: Instant,
    },
    /// The query is of no more interest. No answer follows.
    CancelProbe(ProbeId),
    /// Replace the saved results by these, at once. They must survive a restart of the agent, not
    /// a reboot of the machine. If they cannot be written, the old ones are removed as well.
    SaveProbeResults(BTreeMap<ContainerId, ProbeResults>),
    /// Read what an ended container left: at once.
    Read {
        /// Names it in the answer.
        job: JobId,
        /// What.
        words: LastWords,
    },
    /// Connect to the cloud: name, TCP, TLS with the credentials that are on the disk by now, and
    /// the upgrade to a websocket. The session before is over.
    #[cfg(feature = "cloud")]
    Dial {
        /// Names it from here on.
        session: Session,
        /// Up by then, or [`Event::LinkDown`].
        deadline: Instant,
    },
    /// Send this to the cloud, after what was asked before.
    #[cfg(feature = "cloud")]
    Send(Session, Box<Message>),
    /// Ask the cloud for a sign of life: a websocket ping.
    #[cfg(feature = "cloud")]
    Ping(Session),
    /// End the session. No [`Event::LinkDown`] follows.
    #[cfg(feature = "cloud")]
    Hangup(Session),
    /// Keep this, all or nothing, in one transaction, durably. Not asked again before answered.
    #[cfg(feature = "cloud")]
    Save {
        /// Names it in the answer.
        revision: Revision,
        /// In this order.
        changes: Vec<Change>,
    },
    /// Feed the machine's watchdog: all is in time.
    #[cfg(feature = "watchdog")]
    Feed,
    /// Write this event to the log.
    RecordedEvent(RecordedEvent),
    /// Write this line to the log: a phase changed, or we degraded.
    Log(Severity, String),
    /// End the process with success; pods stay as they are.
    Exit,
}

/// Names one call from its [`Action::Cri`] to its [`Event::Cri`]. Never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CallId(pub u64);

/// Names one job from its [`Action::Job`] to its [`Event::Job`]. Never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct JobId(pub u64);

/// Names one query from its [`Action::Probe`] to its [`Event::Probe`]. Never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ProbeId(pub u64);

/// Where `step` leaves its requests.
pub type Out = crate::core::Out<Action>;
