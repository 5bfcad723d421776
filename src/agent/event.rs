//! The interface of the core: inputs come in as [`Event`], requests go out as [`Action`].

#[cfg(feature = "services")]
use std::sync::Arc;

use super::time::Instant;
pub use crate::core::Severity;
use crate::model::cri::{CallError, ContainerId, Dns, Reply, Request};
#[cfg(feature = "devices")]
use crate::model::device::{
    ClientRequest, ManagerAnswer, ManagerCall, ManagerCallId, MapperCall, MapperCallId,
    MapperError, MqttStatus, Publication, Upload,
};
#[cfg(feature = "cloud")]
use crate::model::downstream::Downstream;
use crate::model::housekeeping::{MeasureRequest, Measures};
use crate::model::job::{JobError, JobReply, JobSpec, LastWords};
use crate::model::keyring::Keyring;
#[cfg(feature = "cloud")]
use crate::model::link::{Cause, Session, Validity};
use crate::model::manifest::Folder;
use crate::model::map::Map;
#[cfg(feature = "cloud")]
use crate::model::meta::{Change, DiskError, Revision, Saved};
#[cfg(feature = "metaserver")]
use crate::model::metaserver::{Call, Caller, ClientId, Reply as MetaServerReply};
use crate::model::net::{Finding, Query};
use crate::model::probe::ProbeResults;
use crate::model::recorded_event::RecordedEvent;
#[cfg(feature = "services")]
use crate::model::service::{ServiceEntry, ServicesReport};
#[cfg(feature = "servicebus")]
use crate::model::service_bus::{BusAction, BusEvent};
#[cfg(feature = "streams")]
use crate::model::stream::{StreamAnswer, StreamId, StreamRequest};
#[cfg(feature = "cloud")]
use crate::model::upstream::Upstream;

/// An input from outside: the only way in.
#[derive(Clone, Debug)]
pub enum Event {
    /// The runtime's socket is connected: calls can be made. A second one without a
    /// [`Event::RuntimeDown`] between them never comes.
    RuntimeUp,
    /// The connection is closed, or could not be opened; every call under way has been answered by
    /// [`CallError::Lost`] before. Sent once until the next [`Event::RuntimeUp`].
    RuntimeDown {
        /// For the log and the API.
        cause: String,
    },
    /// The answer to an [`Action::Cri`]: exactly one each, unless it was cancelled.
    Cri(CallId, Result<Reply, CallError>),
    /// The stream of container events reports a change. It is only a reason to relist.
    Changed(CallId),
    /// The manifest folder was read: at start, and when it differs from the last reading.
    Manifests(Folder),
    /// The answer to an [`Action::Job`]: exactly one each.
    Job(JobId, Result<JobReply, JobError>),
    /// The answer to an [`Action::Probe`]: exactly one each, unless it was cancelled.
    Probe(ProbeId, Finding),
    /// The answer to an [`Action::Read`]: exactly one each; empty if there is no message.
    TerminationMessage(JobId, Box<str>),
    /// What the agent last saved by [`Action::SaveProbeResults`] since the machine's boot: once, at
    /// the agent's start, before the runtime is up.
    SavedProbeResults(Map<ContainerId, ProbeResults>),
    /// The content of the host's `resolv.conf`: at start and when it changes.
    Resolver(Box<Dns>),
    /// The node's own credentials of registries: at start, if there are any, and when they change.
    Credentials(Box<Keyring>),
    /// The node's addresses, the primary first: at start and when they change.
    Addresses(Vec<String>),
    /// The answer to an [`Action::Measure`]: exactly one each.
    Measured(Box<Measures>),
    /// The content of the store: the first event of all if a cloud is configured, exactly once.
    #[cfg(feature = "cloud")]
    Loaded(Box<Saved>),
    /// The answer to an [`Action::Save`]: it is on the disk, and survives a power failure now.
    #[cfg(feature = "cloud")]
    Saved(Revision),
    /// The other answer to an [`Action::Save`]: nothing of it is stored. Exactly one of both comes.
    #[cfg(feature = "cloud")]
    SaveFailed(Revision, DiskError),
    /// The session that was dialled is up: messages can be sent.
    #[cfg(feature = "cloud")]
    LinkUp(Session, Validity),
    /// The session is over, or was never opened. Sent once for each [`Action::Dial`], unless we
    /// hung up; nothing of the session follows.
    #[cfg(feature = "cloud")]
    LinkDown(Session, Cause),
    /// Data came from the cloud, even if only a pong: the link is alive. At most once a turn.
    #[cfg(feature = "cloud")]
    LinkActive(Session),
    /// So many of the messages to be sent have left, in the order of the requests.
    #[cfg(feature = "cloud")]
    Sent(Session, usize),
    /// A message from the cloud. A turn brings a bounded number of them.
    #[cfg(feature = "cloud")]
    Cloud(Session, Box<Downstream>),
    /// A person asks for this.
    #[cfg(feature = "streams")]
    StreamOpened(StreamId, Box<StreamRequest>),
    /// The client has left, or the request has ended otherwise.
    #[cfg(feature = "streams")]
    StreamClosed(StreamId),
    /// The tunnel that was dialled is up: requests of people come through it.
    #[cfg(all(feature = "cloud", feature = "streams"))]
    TunnelUp(Session),
    /// It is over, or was never opened. Sent once for each [`Action::DialTunnel`], unless we hung
    /// up.
    #[cfg(all(feature = "cloud", feature = "streams"))]
    TunnelDown(Session, Cause),
    /// Something came through it. At most once a turn.
    #[cfg(all(feature = "cloud", feature = "streams"))]
    TunnelActive(Session),
    /// Something about devices, if the cloud's devices are served.
    #[cfg(feature = "devices")]
    Device(Box<DeviceEvent>),
    /// A client of MetaServer asks for this, if it is on and a cloud is configured: replies follow,
    /// the last of which is no [`Reply::Watching`] and no [`Reply::Event`].
    ///
    /// [`Reply::Watching`]: crate::model::metaserver::Reply::Watching
    /// [`Reply::Event`]: crate::model::metaserver::Reply::Event
    #[cfg(feature = "metaserver")]
    MetaServerOpened(ClientId, Box<Call>, Caller),
    /// Where pods reach MetaServer, if they do; at start, and when that changes.
    #[cfg(feature = "metaserver-auth")]
    InCluster(Option<Box<crate::model::metaserver::InCluster>>),
    /// Such a client has left, or was answered.
    #[cfg(feature = "metaserver")]
    MetaServerClosed(ClientId),
    /// Something about ServiceBus, if it is switched on.
    #[cfg(feature = "servicebus")]
    ServiceBus(Box<BusEvent>),
    /// The process that serves Services tells how that goes.
    #[cfg(feature = "services")]
    Services(Box<ServicesReport>),
    /// Somebody at the node confirms the upgrade that waits for it; without one it is ignored.
    #[cfg(feature = "node-jobs")]
    ConfirmUpgrade,
    /// SIGTERM: leave the pods running and exit, once the runtime has finished creating objects for
    /// us.
    Stop,
}

/// A request to the outside: the only way out.
#[derive(Clone, Debug)]
pub enum Action {
    /// Make this call, and answer it by the deadline.
    Cri {
        /// Identifies the answer.
        call: CallId,
        request: Request,
        /// At this time [`CallError::Lost`] is the answer, and the stream is reset.
        deadline: Instant,
    },
    /// The call is no longer needed: reset its stream. No answer follows.
    CancelCri(CallId),
    /// Start this job on the file system.
    Job {
        /// Identifies the answer.
        job: JobId,
        spec: JobSpec,
        /// At this time the child is killed and [`JobError::Deadline`] is the answer.
        deadline: Instant,
    },
    /// The job is no longer needed: end its child. It is still answered, with [`JobError::Killed`]
    /// unless the answer was on its way; what the kernel was doing for the child may take effect
    /// later.
    KillJob(JobId),
    /// Measure the machine's resources. Not requested again before it is answered.
    Measure(Box<MeasureRequest>),
    /// Send this query over the network.
    Probe {
        /// Identifies the answer.
        probe: ProbeId,
        /// The query with its destination.
        query: Query,
        /// At this time the query fails.
        deadline: Instant,
    },
    /// The query is no longer needed. No answer follows.
    CancelProbe(ProbeId),
    /// Replace the saved results by these, at once. They must survive a restart of the agent, not a
    /// reboot of the machine. If they cannot be written, the old ones are removed as well.
    SaveProbeResults(Map<ContainerId, ProbeResults>),
    /// Read the termination message of an ended container, at once.
    Read {
        /// Identifies the answer.
        job: JobId,
        message: LastWords,
    },
    /// Connect to the cloud: name, TCP, TLS with the credentials on the disk, and the upgrade to a
    /// websocket. The previous session is over.
    #[cfg(feature = "cloud")]
    Dial {
        /// Identifies the session from here on.
        session: Session,
        /// Up by then, or [`Event::LinkDown`].
        deadline: Instant,
    },
    /// Send this message to the cloud, after the messages before it.
    #[cfg(feature = "cloud")]
    Send(Session, Box<Upstream>),
    /// Send a websocket ping to the cloud.
    #[cfg(feature = "cloud")]
    Ping(Session),
    /// End the session. No [`Event::LinkDown`] follows.
    #[cfg(feature = "cloud")]
    Hangup(Session),
    /// Store this, all or nothing, in one transaction, durably. Not requested again before it is
    /// answered.
    #[cfg(feature = "cloud")]
    Save {
        /// Identifies the answer.
        revision: Revision,
        /// In this order.
        changes: Vec<Change>,
    },
    /// The answer to an [`Event::StreamOpened`]: one each, and for a log that is followed one more
    /// when it ends; none after [`Event::StreamClosed`].
    #[cfg(feature = "streams")]
    Stream(StreamId, StreamAnswer),
    /// Connect to the cloud's port for streams, as for [`Action::Dial`].
    #[cfg(all(feature = "cloud", feature = "streams"))]
    DialTunnel {
        session: Session,
        /// Up by then, or [`Event::TunnelDown`].
        deadline: Instant,
        /// The node's internal address; empty: not known yet.
        ip: String,
    },
    /// Send a websocket ping through the tunnel.
    #[cfg(all(feature = "cloud", feature = "streams"))]
    PingTunnel(Session),
    /// End the tunnel. No [`Event::TunnelDown`] follows.
    #[cfg(all(feature = "cloud", feature = "streams"))]
    HangupTunnel(Session),
    /// Something about devices.
    #[cfg(feature = "devices")]
    Device(Box<DeviceAction>),
    /// Something about ServiceBus.
    #[cfg(feature = "servicebus")]
    ServiceBus(Box<BusAction>),
    /// Serve these Services from now on, and no others.
    #[cfg(feature = "services")]
    Services(Vec<Arc<ServiceEntry>>),
    /// Answer a client of MetaServer; if it has left, nobody misses it.
    #[cfg(feature = "metaserver")]
    MetaServer(ClientId, MetaServerReply),
    /// Feed the machine's watchdog: every deadline is met.
    #[cfg(feature = "watchdog")]
    Feed,
    /// Write this event to the log.
    RecordedEvent(RecordedEvent),
    /// Write this line to the log: a phase changed, or the agent is degraded.
    Log(Severity, String),
    /// Exit with success; pods continue to run.
    Exit,
}

/// An input about devices.
#[cfg(feature = "devices")]
#[derive(Clone, Debug)]
pub enum DeviceEvent {
    /// A request of an MQTT client. It is answered by publications.
    Request(ClientRequest),
    /// A mapper calls: exactly one [`DeviceAction::Answer`] follows.
    Called(ManagerCallId, ManagerCall),
    /// The answer to a [`DeviceAction::Call`] or a [`DeviceAction::CheckSocket`]: exactly one each.
    Answered(MapperCallId, Result<(), MapperError>),
    /// A message of an MQTT client for an application in the cloud.
    Upload(Upload),
    /// The state of the brokers has changed.
    Mqtt(Box<MqttStatus>),
}

/// A request about devices.
#[cfg(feature = "devices")]
#[derive(Clone, Debug)]
pub enum DeviceAction {
    /// Publish this to MQTT clients; without a broker, nobody misses it.
    Publish(Publication),
    /// What clients publish to this topic is a [`DeviceEvent::Upload`] from now on.
    Subscribe(Box<str>),
    /// It is not any more.
    Unsubscribe(Box<str>),
    /// Publish what the cloud's router has sent.
    Pass { topic: Box<str>, payload: Box<str> },
    /// The answer to a [`DeviceEvent::Called`].
    Answer(ManagerCallId, ManagerAnswer),
    /// Make this call to the mapper that listens on this unix socket.
    Call {
        id: MapperCallId,
        /// Absolute path.
        socket: Box<str>,
        call: MapperCall,
        /// At this time [`MapperError::Deadline`] is the answer.
        deadline: Instant,
    },
    /// Connect to this socket and close the connection: whether anybody listens. That does not
    /// wait, so there is no deadline.
    CheckSocket { id: MapperCallId, socket: Box<str> },
}

/// Identifies one call from its [`Action::Cri`] to its [`Event::Cri`]. Never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CallId(pub u64);

/// Identifies one job from its [`Action::Job`] to its [`Event::Job`]. Never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct JobId(pub u64);

/// Identifies one query from its [`Action::Probe`] to its [`Event::Probe`]. Never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ProbeId(pub u64);

impl From<u64> for CallId {
    fn from(number: u64) -> Self {
        Self(number)
    }
}

impl From<u64> for JobId {
    fn from(number: u64) -> Self {
        Self(number)
    }
}

impl From<u64> for ProbeId {
    fn from(number: u64) -> Self {
        Self(number)
    }
}

/// The requests of a `step`.
pub type Out = crate::core::Out<Action>;
