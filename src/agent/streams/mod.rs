//! Requests of people: which pod and container is meant, whether it can be served, and where its
//! answer is. The bytes themselves pass the core by: the event loop reads the log, and relays
//! between the client and the runtime's streaming server.
//!
//! ```text
//!  opened ─▶ Asking ──the runtime's answer──▶ answered, forgotten
//!    │         └── closed by the client: the call is cancelled
//!    └─ logs ─▶ answered; with `follow` ─▶ Following ──the container has ended──▶ LogsEnd
//! ```
//!
//! Statuses and texts are those of the kubelet's server (edgestream.md, section 7), because
//! `kubectl` shows them and scripts compare them.
//!
//! **If we crash here** the clients see the end of their connection; the processes that `exec` has
//! started continue, as with every runtime.

#[cfg(feature = "metaserver")]
pub(super) mod client;
mod target;
#[cfg(feature = "cloud")]
mod tunnel;

use super::calls::{Calls, Class, Owner};
#[cfg(feature = "cloud")]
use super::event::Event;
use super::event::{Action, CallId, Out};
use super::pod::Pod;
use super::pod::observed::ObservedContainer;
use super::pods::Pods;
use super::time::Now;
#[cfg(feature = "cloud")]
use super::time::{Instant, Rng};
use crate::limits::{COMMAND_OUTPUT_BYTES_MAX, COMMAND_S};
use crate::model::cri::{
    CallError, Code, ContainerId, ContainerState, ExecPurpose, Pipes, Reply, Request, StreamingCall,
};
use crate::model::housekeeping::{ContainerUsage, HousekeepingReply};
use crate::model::map::Map;
#[cfg(feature = "cloud")]
use crate::model::settings::TunnelSettings;
use crate::model::stream::{
    Refusal, RefusalKind, StreamAnswer, StreamId, StreamRequest, StreamUsage,
};

#[cfg(feature = "cloud")]
use crate::model::view::TunnelOverview;

/// All requests that the core has still to do with.
#[derive(Debug, Default)]
pub struct Streams {
    /// In the order of their arrival.
    opened: Vec<(StreamId, StreamRequest)>,
    /// What waits for the runtime.
    asking: Map<StreamId, (CallId, Form)>,
    /// The client has left before the runtime's answer.
    left: Vec<CallId>,
    /// Logs that are followed: the pod's uid, and the container.
    following: Map<StreamId, (Box<str>, ContainerId)>,
    /// `None`: switched off.
    #[cfg(feature = "cloud")]
    tunnel: Option<tunnel::Tunnel>,
}

impl Streams {
    /// With a tunnel to the cloud.
    #[cfg(feature = "cloud")]
    pub fn with_tunnel(settings: Option<TunnelSettings>, now: Now) -> Self {
        let tunnel = settings.map(|settings| tunnel::Tunnel::new(settings, now));
        Self { tunnel, ..Self::default() }
    }

    /// The session with EdgeHub is up.
    #[cfg(feature = "cloud")]
    pub fn link_up(&mut self, now: Now) {
        if let Some(tunnel) = &mut self.tunnel {
            tunnel.link_up(now);
        }
    }

    /// Takes an event of the tunnel.
    #[cfg(feature = "cloud")]
    pub fn tunnel_event(&mut self, now: Now, event: &Event, rng: &mut Rng, out: &mut Out) {
        let Some(tunnel) = &mut self.tunnel else { return };
        match event {
            Event::TunnelUp(session) => tunnel.up(now, *session, out),
            Event::TunnelDown(session, cause) => tunnel.down(now, *session, cause, rng, out),
            Event::TunnelActive(session) => tunnel.received(now, *session),
            other => panic!("{:?} is not of the tunnel", std::mem::discriminant(other)),
        }
    }

    /// Dials, pings and hangs up.
    #[cfg(feature = "cloud")]
    pub fn step_tunnel(&mut self, now: Now, ip: Option<&String>, rng: &mut Rng, out: &mut Out) {
        if let Some(tunnel) = &mut self.tunnel {
            tunnel.step(now, ip, rng, out);
        }
    }

    /// When to step again if nothing happens before.
    #[cfg(feature = "cloud")]
    pub fn wake_at(&self) -> Option<Instant> {
        self.tunnel.as_ref()?.wake_at()
    }

    /// The tunnel's state; `None`: it is switched off.
    #[cfg(feature = "cloud")]
    pub fn tunnel_overview(&self, now: Now) -> Option<TunnelOverview> {
        let (up_ms, trouble) = self.tunnel.as_ref()?.overview(now);
        Some(TunnelOverview { up_ms, trouble })
    }

    /// A client asks for this.
    pub fn open(&mut self, id: StreamId, request: StreamRequest) {
        self.opened.push((id, request));
    }

    /// The client is gone.
    pub fn close(&mut self, id: StreamId) {
        self.opened.retain(|(opened, _)| *opened != id);
        self.following.remove(&id);
        self.left.extend(self.asking.remove(&id).map(|(call, _)| call));
    }

    /// Answers what can be answered, and asks the runtime for the rest. `trouble`: why it cannot be
    /// asked now.
    pub fn step(
        &mut self,
        now: Now,
        pods: &Pods,
        trouble: Option<&str>,
        calls: &mut Calls,
        out: &mut Out,
    ) {
        for call in std::mem::take(&mut self.left) {
            calls.cancel(now, call, out);
        }
        for (id, request) in std::mem::take(&mut self.opened) {
            match self.begin(id, &request, pods) {
                Ok(Begun::Answer(answer)) => out.push(Action::Stream(id, answer)),
                Ok(Begun::Call(_)) if trouble.is_some() => {
                    let why = trouble.unwrap_or_default();
                    let text = format!("the container runtime is not usable: {why}");
                    out.push(refused(id, Refusal::new(RefusalKind::Unavailable, text)));
                }
                Ok(Begun::Call(call)) if calls.has_room(Class::Stream) => {
                    let call = calls.begin(now, Owner::Stream(id), call, out);
                    let form = match request {
                        StreamRequest::Command { .. } => Form::Apart,
                        _ => Form::Text,
                    };
                    self.asking.insert(id, (call, form));
                }
                Ok(Begun::Call(_)) => {
                    let text = "too many requests wait for the runtime: try again";
                    out.push(refused(id, Refusal::new(RefusalKind::TooMany, text)));
                }
                Err(refusal) => out.push(refused(id, refusal)),
            }
        }
        self.following.retain(|id, (uid, container)| {
            let observed = pods.get(uid).map(Pod::observed);
            let may_write = observed.is_some_and(|observed| {
                observed.container(container).is_some_and(|it| it.state != ContainerState::Exited)
            });
            if !may_write {
                out.push(Action::Stream(*id, StreamAnswer::LogsEnd));
            }
            may_write
        });
    }

    fn begin(
        &mut self,
        id: StreamId,
        request: &StreamRequest,
        pods: &Pods,
    ) -> Result<Begun, Refusal> {
        let call = match request {
            StreamRequest::Logs { pod, container, options } => {
                let log = target::log(pods, pod, container, options.previous)?;
                if let Some(container) = log.container.filter(|_| options.follow) {
                    self.following.insert(id, (log.file.pod.uid.clone(), container));
                }
                let running = self.following.contains_key(&id);
                return Ok(Begun::Answer(StreamAnswer::Logs { file: log.file, running }));
            }
            StreamRequest::Exec { pod, container, command, pipes } => {
                let container = target::running(pods, pod, container)?;
                // A terminal has one output; the CRI refuses both.
                let stderr = pipes.stderr && !pipes.tty;
                let pipes = Pipes { stderr, ..*pipes };
                StreamingCall::Exec { container, command: command.clone(), pipes }
            }
            StreamRequest::Attach { pod, container, pipes } => {
                let (container, tty) = target::attached(pods, pod, container)?;
                let stderr = pipes.stderr && !tty;
                let pipes = Pipes { stderr, tty, ..*pipes };
                StreamingCall::Attach { container, pipes }
            }
            StreamRequest::PortForward { pod, ports } => {
                let sandbox = target::sandbox(pods, pod)?;
                StreamingCall::PortForward { sandbox, ports: ports.clone() }
            }
            StreamRequest::Run { pod, container, command } => {
                return Ok(Begun::Call(Request::ExecSync {
                    id: target::running(pods, pod, container)?,
                    command: command.clone(),
                    timeout_s: 0,
                    purpose: ExecPurpose::Person,
                }));
            }
            StreamRequest::Command { pod, container, command } => {
                return Ok(Begun::Call(Request::ExecSync {
                    id: target::running(pods, pod, container)?,
                    command: command.clone(),
                    timeout_s: COMMAND_S,
                    purpose: ExecPurpose::Person,
                }));
            }
            StreamRequest::Usage => StreamingCall::ListContainerStats,
        };
        Ok(Begun::Call(Request::Streaming(call)))
    }

    /// The runtime has answered.
    pub fn answer(
        &mut self,
        (id, call): (StreamId, CallId),
        result: Result<Reply, CallError>,
        pods: &Pods,
        out: &mut Out,
    ) {
        let Some((_, form)) = self.asking.remove(&id) else {
            // The client has left in the same turn: there is nothing to cancel any more.
            self.left.retain(|left| *left != call);
            return;
        };
        let answer = match result {
            Ok(Reply::Url(url)) => StreamAnswer::Relay(url),
            Ok(Reply::Exec(done)) if form == Form::Apart => StreamAnswer::Command(done),
            Ok(Reply::Exec(done)) if done.is_cut => {
                let most = COMMAND_OUTPUT_BYTES_MAX;
                let text = format!("got more than {most} bytes of output, expected less: use exec");
                StreamAnswer::Refused(Refusal::new(RefusalKind::Internal, text))
            }
            Ok(Reply::Exec(done)) if done.exit_code != 0 => {
                let (code, output) = (done.exit_code, &done.output);
                let text = format!("command terminated with exit code {code}: {output}");
                StreamAnswer::Refused(Refusal::new(RefusalKind::Internal, text))
            }
            Ok(Reply::Exec(done)) => StreamAnswer::Output(done.output),
            Ok(Reply::HousekeepingCall(HousekeepingReply::Containers(all))) => {
                StreamAnswer::Usage(all.into_iter().filter_map(|it| usage(pods, it)).collect())
            }
            Ok(other) => panic!("the wire has checked the reply's kind, got {}", other.kind()),
            Err(error) => {
                let kind = match &error {
                    CallError::Refused { code: Code::NotFound, .. } => RefusalKind::NotFound,
                    CallError::Refused { code: Code::ResourceExhausted, .. } => {
                        RefusalKind::TooMany
                    }
                    CallError::Refused { .. } | CallError::Lost(_) => RefusalKind::Internal,
                };
                StreamAnswer::Refused(Refusal::new(kind, error.to_string()))
            }
        };
        out.push(Action::Stream(id, answer));
    }
}

/// How the output of a command is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Text,
    /// Output, errors and exit code apart.
    Apart,
}

/// What a request leads to.
enum Begun {
    Answer(StreamAnswer),
    Call(Request),
}

fn refused(id: StreamId, refusal: Refusal) -> Action {
    Action::Stream(id, StreamAnswer::Refused(refusal))
}

/// Only containers that run, of pods that are known.
fn usage(pods: &Pods, usage: ContainerUsage) -> Option<StreamUsage> {
    let pod = pods.get(&usage.uid)?;
    let is = |it: &&ObservedContainer| *it.id.0 == *usage.id;
    let observed = pod.observed().containers.iter().find(is)?;
    if observed.state != ContainerState::Running {
        return None;
    }
    let metadata = &pod.api().metadata;
    let status = target::status(pod, &usage.name);
    Some(StreamUsage {
        namespace: metadata.namespace.as_str().into(),
        pod: metadata.name.as_str().into(),
        uid: usage.uid.clone(),
        pod_started_at: pod.api().status.start_time,
        started_at: status.and_then(target::started_at),
        usage,
    })
}
