//! Reports the node to the cloud (wire spec sections 5.1 to 5.5): registration, status and lease.
//!
//! ```text
//!  link up ─▶ lease: query ─▶ insert │ update, periodically
//!         └─▶ register ─▶ read the remote status ─▶ patch the difference, periodically
//! ```
//!
//! Intended behaviour: level-triggered. The node is registered until the cloud confirms it, and
//! again when the cloud says that there is no such node. The status that the cloud has is known
//! from its answers and pushes; only the difference is reported, and what others have set stays.
//! After a disconnect the cloud may have marked the node unknown, so its status is requested first,
//! by a patch that changes nothing.
//!
//! A cloud that does not answer requests about leases is older than KubeEdge 1.12: it gets the
//! legacy messages, with the whole status each time, until it answers one.
//!
//! If we crash here: the next process registers again, which the cloud answers with «exists», and
//! requests the rest.

mod images;
mod labels;
mod lease;
mod status;

use super::meta::Meta;
use super::requests::{CloudContext, RequestKind};
use super::rows::StoredObject;
use crate::agent::Config;
use crate::agent::event::{Action, Out, Severity};
use crate::agent::node::Node as OwnNode;
use crate::agent::pleg::Pleg;
use crate::agent::runtime::Runtime;
use crate::agent::time::{Backoff, Instant, Now};
use crate::limits::{LEGACY_PROBE_MS, REGISTER_RETRY_MAX_MS, REGISTER_RETRY_MIN_MS};
use crate::model::downstream::{Answer, Refusal};
use crate::model::housekeeping::StoredImage;
use crate::model::message::Resource;
use crate::model::node_status::{Beat, NodeStatus, OwnStatus, RemoteNode};
use crate::model::settings::CloudSettings;
use crate::model::status_patch::StatusPatch;
use crate::model::upstream::Up;
use images::Images;
use labels::Labels;
use lease::Lease;
use status::Health;

/// What the core knows of its node.
#[derive(Clone, Copy, Debug)]
pub(in crate::agent) struct NodeInputs<'a> {
    pub config: &'a Config,
    pub addresses: &'a [String],
    pub runtime: &'a Runtime,
    pub pleg: &'a Pleg,
    pub node: &'a OwnNode,
    /// Images to report; `None`: not known yet.
    pub images: Option<&'a [StoredImage]>,
}

/// What the cloud has of the node.
#[derive(Debug)]
pub(super) struct Node {
    name: Box<str>,
    form: Form,
    uid: Option<Box<str>>,
    registration: Registration,
    status: Status,
    health: Health,
    lease: Lease,
    labels: Labels,
    /// When the lease is requested from an old cloud again.
    probe_at: Instant,
    /// The last error that was logged.
    last_error: Option<String>,
}

/// The form of the messages that the cloud understands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// Those of 1.12 and later, until proven otherwise.
    Assumed,
    /// Those of 1.12 and later: the cloud has answered one in this session.
    Current,
    /// Those up to 1.11.
    Legacy,
}

#[derive(Debug, Default)]
struct Registration {
    state: Registered,
    backoff: Backoff,
    retry_at: Option<Instant>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Registered {
    #[default]
    NotRequested,
    Requested,
    Done,
}

#[derive(Debug, Default)]
struct Status {
    /// The status as the cloud has it; `None`: not known.
    remote: Option<NodeStatus>,
    /// In that status the node is not ready.
    unready: bool,
    /// The node's `resourceVersion` of that status.
    version: u64,
    in_flight: bool,
    /// When the status is compared next.
    check_at: Instant,
    /// When the status was last reported.
    reported_at: Option<Instant>,
    /// The last patch that was sent: if the cloud still has another status, it stays as the cloud
    /// has it, and the patch is not sent again.
    last_patch: Option<StatusPatch>,
    /// That the node is ready again was reported at once.
    hurried: bool,
    images: Images,
}

impl Node {
    pub(super) fn new(name: &str) -> Self {
        Self {
            name: name.into(),
            form: Form::Assumed,
            uid: None,
            registration: Registration::default(),
            status: Status::default(),
            health: Health::default(),
            lease: Lease::default(),
            labels: Labels::default(),
            probe_at: Instant(0),
            last_error: None,
        }
    }

    /// The uid of the Node object; `None`: not known yet.
    pub(super) fn uid(&self) -> Option<&str> {
        self.uid.as_deref()
    }

    /// Whether the cloud is older than 1.12 and gets the legacy messages.
    pub(super) fn is_legacy(&self) -> bool {
        self.form == Form::Legacy
    }

    /// A new session: what the cloud has may have changed.
    pub(super) fn up(&mut self, now: Now) {
        match self.form {
            Form::Current => self.form = Form::Assumed,
            Form::Assumed => {}
            // An old cloud does not say when it has no such node.
            Form::Legacy => self.registration = Registration::default(),
        }
        self.registration.retry_at = None;
        self.status = Status {
            reported_at: self.status.reported_at,
            check_at: now.boot,
            remote: self.status.remote.take().filter(|_| self.form == Form::Legacy),
            ..Status::default()
        };
        self.lease.up();
        self.labels.up();
        self.probe_at = now.boot;
    }

    /// The cloud sent a node.
    pub(super) fn received(&mut self, now: Now, remote: &RemoteNode) {
        if remote.name == self.name && remote.version >= self.status.version {
            self.learn(now, remote);
        }
    }

    fn learn(&mut self, now: Now, remote: &RemoteNode) {
        self.uid = Some(remote.uid.clone()).filter(|uid| !uid.is_empty());
        self.status.version = remote.version;
        if self.is_legacy() {
            return;
        }
        if self.status.remote.is_none() {
            self.status.check_at = now.boot;
        }
        self.status.unready = !remote.status.is_ready();
        self.status.hurried &= self.status.unready;
        self.status.images.learn(remote);
        self.labels.learn(remote);
        self.status.remote = Some(remote.status.clone());
    }

    /// Takes the answer to a request about the lease.
    pub(super) fn lease_answered(&mut self, now: Now, answer: Answer, out: &mut Out) {
        self.set_current_form(out);
        let uid = self.lease.answered(now, answer, out);
        self.uid = self.uid.take().or(uid);
    }

    /// The cloud has answered a request that clouds up to 1.11 do not understand.
    fn set_current_form(&mut self, out: &mut Out) {
        if self.is_legacy() {
            let line = "cloud: it supports leases; using the protocol of KubeEdge 1.12 and later";
            out.push(Action::Log(Severity::Info, line.to_owned()));
            self.registration = Registration::default();
            self.status = Status::default();
        }
        self.form = Form::Current;
    }

    /// Takes the answer to the registration.
    pub(super) fn registration_answered(
        &mut self,
        now: Now,
        answer: Answer,
        meta: &mut Meta,
        out: &mut Out,
    ) {
        let done = match answer {
            Answer::Object(object) => {
                match object.node() {
                    Some(remote) if !remote.uid.is_empty() => {
                        self.set_current_form(out);
                        self.learn(now, remote);
                        self.status.reported_at = Some(now.boot);
                        // The cloud waits for no acknowledgement.
                        let _ = meta.put(&self.key(), "node", &object.text, None);
                        Ok(())
                    }
                    _ => Err("got no node, expected the one that was made".to_owned()),
                }
            }
            // The answer of old clouds.
            Answer::Done => Ok(()),
            Answer::Refused(refusal) if refusal.is_conflict() => {
                self.set_current_form(out);
                Ok(())
            }
            Answer::Refused(refusal) => Err(refusal.to_string()),
        };
        match done {
            Ok(()) => {
                self.registration = Registration { state: Registered::Done, ..Default::default() };
                self.status.check_at = now.boot;
                self.last_error = None;
                let line = format!("cloud: node {} is registered", self.name);
                out.push(Action::Log(Severity::Info, line));
            }
            Err(why) => {
                self.registration.retry_later(now);
                self.log_once(format!("cloud: node {} is not registered: {why}", self.name), out);
            }
        }
    }

    /// Takes the answer to a patch of the status.
    pub(super) fn status_answered(&mut self, now: Now, answer: Answer, out: &mut Out) {
        let refusal = match answer {
            Answer::Object(object) => match object.node() {
                Some(remote) if !remote.uid.is_empty() => {
                    self.status.in_flight = false;
                    self.set_current_form(out);
                    self.last_error = None;
                    self.learn(now, remote);
                    return;
                }
                _ => Refusal::default(),
            },
            Answer::Done => Refusal::default(),
            Answer::Refused(refusal) => refusal,
        };
        self.status.discard_report();
        if refusal.is_not_found() {
            self.set_current_form(out);
            self.uid = None;
            self.registration = Registration::default();
        }
        self.log_once(
            format!("cloud: the status of node {} is refused: {refusal}", self.name),
            out,
        );
    }

    fn log_once(&mut self, line: String, out: &mut Out) {
        if self.last_error.as_ref() != Some(&line) {
            out.push(Action::Log(Severity::Warn, line.clone()));
            self.last_error = Some(line);
        }
    }

    pub(super) fn registration_unanswered(&mut self, now: Now) {
        self.registration.retry_later(now);
    }

    /// No answer to a patch of the status: it may have arrived.
    pub(super) fn status_unanswered(&mut self) {
        self.status.discard_report();
    }

    /// No answer about the lease came in time, or the link was lost.
    pub(super) fn lease_unanswered(&mut self, now: Now, is_up: bool, timeout_ms: u64) {
        let silent_ms = self.lease.unanswered(now);
        if is_up && self.form == Form::Assumed && silent_ms >= timeout_ms {
            self.form = Form::Legacy;
            self.registration = Registration::default();
            self.status = Status::default();
            self.probe_at = now.boot.plus_ms(LEGACY_PROBE_MS);
        }
    }

    /// Reports what the cloud does not have.
    pub(super) fn step(
        &mut self,
        inputs: &NodeInputs<'_>,
        meta: &Meta,
        settings: &CloudSettings,
        context: &mut CloudContext<'_>,
    ) {
        self.health.update(inputs, context.now);
        if self.uid.is_none()
            && let Some(StoredObject::Node(uid)) = meta.stored_object(&self.key())
        {
            self.uid = Some(uid.clone()).filter(|uid| !uid.is_empty());
        }
        if !self.is_legacy() {
            self.lease.step(&self.name, self.uid.as_deref(), settings, context);
            // Without a clock of our own, the time comes with the cloud's answers about the lease.
            if context.now.wall.is_some() {
                self.register(inputs, meta, settings, context);
                self.report_status(inputs, meta, settings, context);
            }
            if let Some(labels) = self.labels.missing(inputs).filter(|_| context.may_send()) {
                let labels = labels.into_iter().map(|(key, value)| (key, value.into())).collect();
                context.send(Up::LabelNode { node: self.name.clone(), labels });
                self.labels.mark_reported();
            }
            return;
        }
        let probes = self.probe_at <= context.now.boot && !self.lease.is_requested();
        if probes && context.may_send() {
            self.lease.query(&self.name, settings, context);
            self.probe_at = context.now.boot.plus_ms(LEGACY_PROBE_MS);
        }
        self.register(inputs, meta, settings, context);
        self.report_legacy(inputs, meta, settings, context);
    }

    fn register(
        &mut self,
        inputs: &NodeInputs<'_>,
        meta: &Meta,
        settings: &CloudSettings,
        context: &mut CloudContext<'_>,
    ) {
        if !settings.registration.register {
            self.registration.state = Registered::Done;
        }
        let due = self.registration.retry_at.is_none_or(|at| at <= context.now.boot);
        if self.registration.state != Registered::NotRequested || !due || !context.may_send() {
            return;
        }
        let namespace = &settings.registration.namespace;
        let legacy_namespace = self.is_legacy().then(|| namespace.as_str().into());
        let status = self.full_status(inputs, meta, context.now);
        let node = status::object(inputs, &settings.registration, status, legacy_namespace);
        context.request(RequestKind::Register, Up::InsertNode(Box::new(node)));
        self.registration.state = Registered::Requested;
    }

    /// The whole status, with all times new.
    fn full_status(&self, inputs: &NodeInputs<'_>, meta: &Meta, now: Now) -> NodeStatus {
        let remote = self.status.remote.as_ref();
        let own = self.own_status(inputs, meta, remote);
        NodeStatus::whole(&own, remote, now.timestamp(), status::PORT)
    }

    fn own_status(
        &self,
        inputs: &NodeInputs<'_>,
        meta: &Meta,
        remote: Option<&NodeStatus>,
    ) -> OwnStatus {
        status::own(inputs, self.health.conditions(inputs, meta.trouble(), remote))
    }

    /// Reports what differs from the status that the cloud has.
    fn report_status(
        &mut self,
        inputs: &NodeInputs<'_>,
        meta: &Meta,
        settings: &CloudSettings,
        context: &mut CloudContext<'_>,
    ) {
        let now = context.now.boot;
        let registered = self.registration.state == Registered::Done;
        let hurries = self.is_ready_again();
        let due = self.status.check_at <= now || hurries;
        if !registered || self.status.in_flight || !due || !context.may_send() {
            return;
        }
        self.status.hurried |= hurries;
        self.status.check_at = now.plus_ms(settings.status_update_ms);
        let patch = match &self.status.remote {
            None => None,
            Some(remote) => {
                let report_at =
                    self.status.reported_at.map(|at| at.plus_ms(settings.status_report_ms));
                let report = report_at.is_none_or(|at| at <= now);
                let beat = if report { Beat::New } else { Beat::WithChanges };
                let own = self.own_status(inputs, meta, Some(remote));
                let images = self.status.images.changed_list(inputs);
                let at = context.now.timestamp();
                let patch = remote.patch_to(&own, images.as_deref(), at, beat);
                if patch.is_none() || self.status.last_patch == patch {
                    return;
                }
                self.status.last_patch.clone_from(&patch);
                if report {
                    self.status.reported_at = Some(now);
                }
                patch
            }
        };
        let node = self.name.clone();
        context.request(RequestKind::NodeStatus, Up::PatchNode { node, patch });
        self.status.in_flight = true;
    }

    /// Whether the cloud has the node as not ready while it is ready: that is reported at once.
    fn is_ready_again(&self) -> bool {
        let Status { remote, unready, hurried, .. } = &self.status;
        remote.is_some() && *unready && !hurried && self.health.is_ready()
    }

    /// Reports the whole status to an old cloud.
    fn report_legacy(
        &mut self,
        inputs: &NodeInputs<'_>,
        meta: &Meta,
        settings: &CloudSettings,
        context: &mut CloudContext<'_>,
    ) {
        let now = context.now.boot;
        let registered = self.registration.state == Registered::Done;
        if !registered || self.status.check_at > now || !context.may_send() {
            return;
        }
        self.status.check_at = now.plus_ms(settings.status_update_ms);
        let status = self.full_status(inputs, meta, context.now);
        // Answered by «OK», or not at all.
        context.send(Up::LegacyNodeStatus {
            node: self.name.clone(),
            namespace: settings.registration.namespace.as_str().into(),
            uid: self.uid.clone().unwrap_or_default(),
            status: status.clone(),
        });
        self.status.remote = Some(status);
    }

    /// The key of the Node object.
    fn key(&self) -> String {
        Resource { namespace: None, kind: "node", name: &self.name }.to_string()
    }

    pub(super) fn wake_at(&self, now: Now, settings: &CloudSettings) -> Option<Instant> {
        let register_at = self.registration.retry_at.unwrap_or(now.boot);
        let may_report = self.is_legacy() || now.wall.is_some();
        let own = match self.registration.state {
            Registered::NotRequested => Some(register_at),
            Registered::Requested => None,
            Registered::Done => Some(self.status.check_at).filter(|_| !self.status.in_flight),
        };
        let lease = if self.is_legacy() {
            Some(self.probe_at).filter(|_| !self.lease.is_requested())
        } else {
            self.lease.wake_at(now, settings.lease_interval_ms, self.uid.is_some())
        };
        own.filter(|_| may_report).into_iter().chain(lease).min()
    }
}

impl Status {
    /// The last report does not count: the cloud may not have it.
    fn discard_report(&mut self) {
        (self.in_flight, self.remote, self.reported_at, self.last_patch) =
            (false, None, None, None);
        self.images.discard_report();
    }
}

impl Registration {
    fn retry_later(&mut self, now: Now) {
        self.state = Registered::NotRequested;
        let retry_at =
            self.backoff.retry_at(now.boot, REGISTER_RETRY_MIN_MS, REGISTER_RETRY_MAX_MS);
        self.retry_at = Some(retry_at);
    }
}
