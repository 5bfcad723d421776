//! The cloud side of the core: EdgeHub and MetaManager (wire spec sections 2 to 6).
//!
//! ```text
//!  Event::Cloud ─┬▶ object ─▶ meta (waits) ─Save─▶ store ─Saved─▶ pods, objects; acknowledged
//!                └▶ response ─▶ requester: node · report · object_fetch
//!  pods' statuses, the node ─▶ report, node ─▶ requests ─▶ hub ─▶ Action::Send
//! ```
//!
//! What the cloud sends applies only once it is durable. What is sent to the cloud is computed from
//! the local state and the state that the cloud is known to have, so nothing is queued and the
//! latest wins; after a disconnect it is computed again.
//!
//! If we crash here: the store is read, the link is dialled, and everything is compared again.

#[cfg(feature = "devices")]
mod devices;
#[cfg(not(feature = "devices"))]
#[path = "devices/absent.rs"]
mod devices;
mod enrol;
mod events;
mod hub;
mod meta;
#[cfg(feature = "metaserver")]
mod metaserver;
#[cfg(not(feature = "metaserver"))]
#[path = "metaserver/absent.rs"]
mod metaserver;
mod metasync;
mod mirror;
mod node;
#[cfg(feature = "node-jobs")]
mod node_jobs;
#[cfg(not(feature = "node-jobs"))]
#[path = "node_jobs/absent.rs"]
mod node_jobs;
mod object_fetch;
mod received;
mod relist;
mod report;
mod requests;
mod route;
mod rows;
#[cfg(feature = "servicebus")]
mod service_bus;
#[cfg(not(feature = "servicebus"))]
#[path = "service_bus/absent.rs"]
mod service_bus;
#[cfg(feature = "services")]
mod services;
#[cfg(not(feature = "services"))]
#[path = "services/absent.rs"]
mod services;
mod terminal_status;
mod tokens;
#[cfg(any(feature = "metaserver", feature = "services"))]
mod watches;

use crate::agent::Config;
#[cfg(feature = "devices")]
use crate::agent::event::DeviceEvent;
use crate::agent::event::{Action, Out, Severity};
use crate::agent::jobs::Jobs;
use crate::agent::pods::Pods;
use crate::agent::recorder::Recorder;
use crate::agent::time::{Instant, Now, Rng, Wall};
use crate::model::downstream::{Answer, Down, Downstream};
use crate::model::job::JobError;
use crate::model::link::{Cause, Session, Validity};
use crate::model::message::Resource;
use crate::model::meta::{DiskError, Revision, Saved};
use crate::model::settings::CloudSettings;
use crate::model::upstream::{Origin, Reply, Up};

use devices::DeviceSide;
use enrol::{Enrol, EnrolEvent};
use events::Events;
use hub::{Hub, LinkEvent};
use meta::{ChangeOutcome, DurableChanges, Meta};
use metaserver::MetaSide;
use metasync::Metasync;
use mirror::{Mirrors, Owner};
use node::{Node, NodeInputs};
use node_jobs::JobSide;
use object_fetch::ObjectFetches;
use relist::{PageError, Relist};
use report::{RemoteExistence, Report, ReportInputs};
use requests::{CloudContext, PendingRequests, RequestKind};
use service_bus::BusSide;
use services::ServiceWatch;
use terminal_status::{Found, TerminalStatuses};
use tokens::Tokens;
#[cfg(any(feature = "metaserver", feature = "services"))]
use watches::{Wanted, Watches};

/// The cloud side.
#[derive(Debug)]
pub(super) struct Cloud {
    settings: CloudSettings,
    hub: Hub,
    meta: Meta,
    terminal_statuses: TerminalStatuses,
    requests: PendingRequests,
    enrol: Enrol,
    node: Node,
    object_fetches: ObjectFetches,
    tokens: Tokens,
    report: Report,
    metasync: Metasync,
    mirrors: Mirrors,
    relist: Relist,
    events: Option<Events>,
    devices: DeviceSide,
    node_jobs: JobSide,
    service_bus: BusSide,
    services: ServiceWatch,
    metaserver: MetaSide,
    #[cfg(any(feature = "metaserver", feature = "services"))]
    watches: Watches,
    /// The cloud's wall clock, with the time since boot when it was received.
    clock: Option<(Instant, Wall)>,
}

/// The inputs of a step of the cloud side.
pub(super) struct CloudInputs<'a> {
    pub pods: &'a Pods,
    /// The recorded events.
    pub recorder: &'a Recorder,
    /// All pods of the manifest folder are known.
    pub folder_is_whole: bool,
    /// The node.
    pub node: NodeInputs<'a>,
    /// For ids and jitter.
    pub rng: &'a mut Rng,
    pub jobs: &'a mut Jobs,
    /// The output of the step.
    pub out: &'a mut Out,
}

/// What became durable, for the rest of the core.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Changed {
    /// Pods were added, changed or deleted.
    pub pods: bool,
    /// Objects that pods use were added, changed or deleted.
    pub objects: bool,
}

impl Cloud {
    pub(super) fn new(config: &Config, settings: &CloudSettings, now: Now) -> Self {
        let (node, budget) = (&*config.node_name, config.machine.budget);
        #[cfg(feature = "devices")]
        let devices = DeviceSide::new(node, config.devices.as_ref(), now);
        #[cfg(not(feature = "devices"))]
        let devices = DeviceSide;
        #[cfg(feature = "node-jobs")]
        let node_jobs = JobSide::new(node, config);
        #[cfg(not(feature = "node-jobs"))]
        let node_jobs = JobSide;
        #[cfg(feature = "metaserver")]
        let metaserver = MetaSide::new(node, config.metaserver.as_ref(), budget.meta_bytes_max);
        #[cfg(not(feature = "metaserver"))]
        let metaserver = MetaSide;
        Self {
            metaserver,
            #[cfg(any(feature = "metaserver", feature = "services"))]
            watches: Watches::default(),
            devices,
            node_jobs,
            service_bus: BusSide::new(config),
            services: ServiceWatch::new(config),
            hub: Hub::new(settings, now),
            meta: Meta::new(node, budget),
            terminal_statuses: TerminalStatuses::default(),
            requests: PendingRequests::default(),
            enrol: Enrol::new(settings),
            node: Node::new(node),
            object_fetches: ObjectFetches::default(),
            tokens: Tokens::new(config),
            report: Report::default(),
            metasync: Metasync::default(),
            mirrors: Mirrors::default(),
            relist: Relist::default(),
            events: Events::new(settings, now),
            clock: None,
            settings: settings.clone(),
        }
    }

    /// The wall clock of the cloud, if our own is not plausible: a gateway without a clock chip
    /// starts in 1970, and its lease must not.
    pub(super) fn correct_clock(&self, now: Now) -> Now {
        let remote = self.clock.map(|(at, wall)| {
            let since_ms = now.boot.since_ms(at);
            Wall(wall.0.saturating_add_unsigned(since_ms))
        });
        Now { wall: now.wall.or(remote), ..now }
    }

    /// Takes the content of the store at the start.
    pub(super) fn loaded(&mut self, now: Now, mut saved: Saved, rng: &mut Rng, out: &mut Out) {
        self.devices.take_stored(&mut saved);
        #[cfg(feature = "metaserver")]
        self.metaserver.load(&mut saved);
        self.service_bus.load(&mut saved);
        self.meta.load(saved, out);
        self.devices.load(now, &self.meta, rng);
        self.node_jobs.load(now, &self.meta);
        self.object_fetches.mark_dirty();
        self.tokens.mark_dirty();
    }

    /// A save succeeded: the changes apply, and are acknowledged.
    pub(super) fn saved(
        &mut self,
        now: Now,
        revision: Revision,
        rng: &mut Rng,
        out: &mut Out,
    ) -> Changed {
        let DurableChanges { acks, pods, objects, devices } = self.meta.saved(revision, out);
        self.devices.end_save(now, true);
        self.metaserver.end_save(now, true);
        self.service_bus.end_save(true);
        if devices {
            self.devices.objects_changed(now, &self.meta, rng);
        }
        self.relist.page_stored(&mut self.meta, out);
        self.report.mark_dirty();
        self.mirrors.mark_dirty();
        for ack in acks {
            self.reply(now, ack, Reply::Stored, rng);
        }
        // A job may name a secret.
        if pods || objects || self.node_jobs.end_save(&self.meta) {
            self.object_fetches.mark_dirty();
            self.tokens.mark_dirty();
        }
        Changed { pods, objects }
    }

    /// A save failed.
    pub(super) fn save_failed(
        &mut self,
        now: Now,
        revision: Revision,
        why: &DiskError,
        out: &mut Out,
    ) {
        self.meta.save_failed(now, revision, why, out);
        self.devices.end_save(now, false);
        self.metaserver.end_save(now, false);
        self.service_bus.end_save(false);
    }

    /// Takes an input about devices.
    #[cfg(feature = "devices")]
    pub(super) fn device_event(&mut self, now: Now, event: DeviceEvent, rng: &mut Rng) {
        self.devices.handle(now, event, rng);
    }

    pub(super) fn link_up(
        &mut self,
        now: Now,
        session: Session,
        validity: Validity,
        out: &mut Out,
    ) {
        if self.hub.up(now, session, out) == LinkEvent::Up {
            self.enrol.up(validity);
            self.node.up(now);
            self.object_fetches.up();
            self.tokens.up();
            self.report.up();
            self.metasync.up();
            self.mirrors.up();
            self.devices.link_up(now);
            self.node_jobs.link_up();
            self.service_bus.link_up();
            self.services.up();
            self.metaserver.link_up();
            #[cfg(any(feature = "metaserver", feature = "services"))]
            self.watches.up(self.metaserver.is_on());
        }
    }

    pub(super) fn link_down(
        &mut self,
        now: Now,
        session: Session,
        cause: &Cause,
        rng: &mut Rng,
        out: &mut Out,
    ) {
        if self.hub.down(now, session, cause, rng, out) == LinkEvent::Lost {
            self.enrol.down(now, cause, out);
            self.link_lost(now);
        }
    }

    /// The link is lost: no request is answered any more.
    fn link_lost(&mut self, now: Now) {
        self.devices.link_down(now);
        self.metaserver.link_down();
        self.service_bus.link_down();
        for kind in self.requests.clear() {
            self.unanswered(now, &kind, &mut Out::default());
        }
    }

    pub(super) fn received(&mut self, now: Now, session: Session) {
        self.hub.received(now, session);
    }

    pub(super) fn sent(&mut self, session: Session, count: usize) {
        self.hub.sent(session, count);
        self.devices.sent(&self.hub);
    }

    /// Takes the result of the job of the cloud side.
    pub(super) fn job_done(
        &mut self,
        now: Now,
        result: &Result<(), JobError>,
        rng: &mut Rng,
        out: &mut Out,
    ) {
        match self.enrol.job_done(now, result, rng, out) {
            EnrolEvent::Failed => {}
            EnrolEvent::Issued => {
                if self.hub.renew(now, out) == LinkEvent::Lost {
                    self.link_lost(now);
                }
            }
        }
    }

    /// Takes a message from the cloud.
    pub(super) fn message(
        &mut self,
        now: Now,
        session: Session,
        message: Downstream,
        rng: &mut Rng,
        out: &mut Out,
    ) {
        if !self.hub.is_up_in(session) {
            return;
        }
        self.hub.message_received(session);
        if message.timestamp_ms > 0 {
            self.clock = Some((now.boot, Wall(message.timestamp_ms)));
        }
        let origin = message.origin;
        match message.content {
            Down::Transport => self.reply(now, origin, Reply::Received, rng),
            Down::Answer(parent, answer) => match self.requests.answered(&parent) {
                Some((kind, number)) => {
                    self.node_jobs.answered(number);
                    self.response(now, &kind, answer, origin, rng, out);
                }
                None => self.late_response(now, answer, origin, rng),
            },
            Down::Pods(parent, page) => match self.requests.answered(&parent) {
                Some((RequestKind::Pods, _)) => {
                    let page = page.map_err(PageError::Unusable);
                    self.relist.answered(now, page, &mut self.meta, out);
                }
                #[cfg(feature = "services")]
                Some((RequestKind::Services, _)) => {
                    self.services.listed(now, page, &mut self.meta, out);
                }
                Some((other, _)) => self.unanswered(now, &other, out),
                None => {}
            },
            #[cfg(any(feature = "metaserver", feature = "services"))]
            Down::WatchesSynced(parent, refused) => {
                self.watches_answered(now, &parent, refused, out);
            }
            #[cfg(feature = "metaserver")]
            Down::Application(parent, answer) => {
                self.application_answered(now, &parent, answer, out);
            }
            Down::Put(object) => self.object_received(now, &object, origin, rng),
            Down::Delete { uid, version } => {
                self.object_deleted(now, (&uid, version), origin, rng);
            }
            Down::TooLarge(why) => self.reply(now, origin, Reply::Refused(why.into()), rng),
            Down::NoObject => self.reply(now, origin, Reply::Stored, rng),
            Down::VolumeCall => self.reply(now, origin, Reply::NoVolumes, rng),
            Down::NodeJob(request) => {
                if let Some(report) = self.node_jobs.request(now, *request) {
                    self.hub.answer(now, Up::NodeJob(Box::new(report)), rng);
                }
            }
            Down::ServiceCall => self.reply(now, origin, Reply::NoServices, rng),
            #[cfg(feature = "servicebus")]
            Down::ServiceBus(message) => {
                let to = origin.clone();
                if !self.service_bus.message(origin, *message, out) {
                    self.reply(now, to, Reply::NoServices, rng);
                }
            }
            #[cfg(feature = "devices")]
            Down::Device(message) => self.devices.message(now, message, rng),
            Down::Unsupported => {}
        }
    }

    /// Takes a response to a request that is not open any more: the cloud may wait for an
    /// acknowledgement.
    fn late_response(&mut self, now: Now, answer: Answer, origin: Origin, rng: &mut Rng) {
        let resource = Resource::parse(&origin.resource);
        if resource.is_some_and(|resource| object_fetch::is_kept(resource.kind)) {
            match answer {
                Answer::Object(object) => self.object_received(now, &object, origin, rng),
                Answer::Done | Answer::Refused(_) => self.reply(now, origin, Reply::Stored, rng),
            }
        }
    }

    /// Takes the response to one of our requests.
    fn response(
        &mut self,
        now: Now,
        kind: &RequestKind,
        answer: Answer,
        origin: Origin,
        rng: &mut Rng,
        out: &mut Out,
    ) {
        match kind {
            RequestKind::Pods => {
                let refusal = match answer {
                    Answer::Refused(why) => Some(why),
                    Answer::Object(_) | Answer::Done => None,
                };
                let why = PageError::NoPage(refusal);
                self.relist.answered(now, Err(why), &mut self.meta, out);
            }
            #[cfg(feature = "services")]
            RequestKind::Services => self.unanswered(now, kind, out),
            #[cfg(any(feature = "metaserver", feature = "services"))]
            RequestKind::Watches => self.unanswered(now, kind, out),
            #[cfg(feature = "metaserver")]
            RequestKind::Application(_) => self.unanswered(now, kind, out),
            RequestKind::Token(need) => self.token_answered(now, need, answer, rng, out),
            RequestKind::Object(key) => self.fetch_answered(now, key, answer, origin, rng),
            RequestKind::Register => {
                self.node.registration_answered(now, answer, &mut self.meta, out);
            }
            RequestKind::NodeStatus => self.node.status_answered(now, answer, out),
            RequestKind::Lease => self.node.lease_answered(now, answer, out),
            RequestKind::PodStatus(uid) => {
                let resource = &*origin.resource;
                self.pod_answered(now, resource, &answer);
                let name = Resource::parse(resource).map_or("", |resource| resource.name);
                match self.report.patch_answered(now, (uid, name), answer, out) {
                    RemoteExistence::Assumed => {}
                    RemoteExistence::Denied => self.pod_missing(resource, uid, out),
                }
            }
            RequestKind::PodDelete(uid) => {
                self.pod_answered(now, &origin.resource, &answer);
                self.report.deletion_answered(now, uid, &answer);
            }
            RequestKind::MirrorMake(key) => {
                self.mirrors.insertion_answered(now, key, answer, &mut self.meta, out);
            }
            RequestKind::MirrorDelete(key, uid) => {
                self.mirrors.deletion_answered(now, (key, uid), &answer, &mut self.meta);
            }
        }
    }

    fn token_answered(
        &mut self,
        now: Now,
        need: &str,
        answer: Answer,
        rng: &mut Rng,
        out: &mut Out,
    ) {
        match answer {
            Answer::Object(object) => {
                // For a deleted pod there is none any more.
                if let Some(row) = self.tokens.answered(now, need, &object.text, &self.meta) {
                    // The cloud waits for no acknowledgement.
                    let _ = self.meta.put(need, "serviceaccounttoken", &row, None);
                }
            }
            Answer::Done => self.tokens.unanswered(now, need),
            Answer::Refused(why) => {
                let line = self.tokens.refused(now, need, why.message, rng);
                out.actions.extend(line.map(|line| Action::Log(Severity::Warn, line)));
            }
        }
    }

    fn fetch_answered(
        &mut self,
        now: Now,
        key: &str,
        answer: Answer,
        origin: Origin,
        rng: &mut Rng,
    ) {
        match answer {
            Answer::Object(object) => {
                let kind = Resource::parse(key).map_or("", |resource| resource.kind);
                let outcome = self.meta.put(key, kind, &object.text, Some(origin.clone()));
                self.respond(now, outcome, origin, rng);
                self.object_fetches.answered(now, key, &self.settings, rng);
            }
            Answer::Done | Answer::Refused(_) => {
                self.object_fetches.refused(now, key, &self.settings, rng);
                self.reply(now, origin, Reply::Stored, rng);
            }
        }
    }

    /// An answer about a pod may hold the pod with the status that the cloud has accepted. That a
    /// pod has ended must survive a restart: a process that finds no trace of it in the runtime
    /// would start it again.
    fn pod_answered(&mut self, now: Now, resource: &str, answer: &Answer) {
        let Answer::Object(object) = answer else { return };
        #[cfg(feature = "metaserver")]
        self.metaserver.pushed(now, object.item.as_ref());
        #[cfg(not(feature = "metaserver"))]
        let _ = now;
        let Some(resource) = Resource::parse(resource) else { return };
        let key = Resource { kind: "pod", ..resource }.to_string();
        if self.meta.stored_object(&key).is_some() {
            // The cloud waits for no acknowledgement.
            let _ = self.meta.put(&key, "pod", &object.text, None);
        }
    }

    /// The API server has answered twice that it does not have this pod. With an incomplete store,
    /// only a deletion from the cloud counts.
    fn pod_missing(&mut self, resource: &str, uid: &str, out: &mut Out) {
        let Some(resource) = Resource::parse(resource).filter(|_| !self.meta.is_incomplete())
        else {
            return;
        };
        let line =
            format!("cloud: the API server still has no such pod, which is stopped: uid={uid}");
        out.push(Action::Log(Severity::Warn, line));
        // No acknowledgement is due; if the queue is full, the status is reported again.
        let _ = self.deleted(Resource { kind: "pod", ..resource }, (uid, 0), None);
    }

    /// An object was deleted; with a pod, the rows that belong to it are deleted too.
    fn deleted(
        &mut self,
        resource: Resource<'_>,
        (uid, version): (&str, u64),
        ack: Option<Origin>,
    ) -> ChangeOutcome {
        let is_pod = resource.kind == "pod";
        if is_pod {
            // Old clouds delete by name alone.
            let named = self.meta.uid(&resource.to_string()).filter(|_| uid.is_empty());
            let of_pod: Box<str> = named.unwrap_or(uid).into();
            self.meta.delete_tokens(&of_pod);
            let ended = Resource { kind: rows::TERMINAL_STATUS, ..resource }.to_string();
            let _ = self.meta.delete(&ended, uid, None);
        }
        // A pod that has left the node does not come back.
        let version = if is_pod { 0 } else { version };
        let outcome = self.meta.delete_at(&resource.to_string(), uid, version, ack);
        self.pod_changed(resource);
        outcome
    }

    /// No answer came in time, or none will come.
    fn unanswered(&mut self, now: Now, kind: &RequestKind, out: &mut Out) {
        match kind {
            #[cfg(feature = "services")]
            RequestKind::Services => self.services.unanswered(now, self.hub.is_up(), out),
            #[cfg(any(feature = "metaserver", feature = "services"))]
            RequestKind::Watches => {
                self.watches.unanswered(now);
                if self.hub.is_up() {
                    self.services.watch_answered(now, &self.watches, out);
                }
            }
            #[cfg(feature = "metaserver")]
            RequestKind::Application(number) => {
                self.metaserver.unanswered(now, *number, self.hub.is_up());
            }
            RequestKind::Object(key) => self.object_fetches.unanswered(now, key),
            RequestKind::Token(need) => self.tokens.unanswered(now, need),
            RequestKind::Register => self.node.registration_unanswered(now),
            RequestKind::NodeStatus => self.node.status_unanswered(),
            RequestKind::Lease => {
                let timeout_ms = self.settings.remote_query_timeout_ms;
                self.node.lease_unanswered(now, self.hub.is_up(), timeout_ms);
            }
            RequestKind::PodStatus(uid) => self.report.patch_unanswered(now, uid),
            RequestKind::PodDelete(uid) => self.report.deletion_unanswered(now, uid),
            RequestKind::MirrorMake(key) | RequestKind::MirrorDelete(key, _) => {
                self.mirrors.unanswered(now, key);
            }
            RequestKind::Pods => self.relist.unanswered(now),
        }
        #[cfg(not(feature = "services"))]
        let _ = out;
    }

    fn reply(&mut self, now: Now, to: Origin, reply: Reply, rng: &mut Rng) {
        self.hub.answer(now, Up::Reply(to, reply), rng);
    }

    /// Queues the rows of jobs for the node that are due for the next save. Those that the store
    /// has already are durable at once.
    fn store_jobs(&mut self, now: Now, rng: &mut Rng) {
        for refused in self.node_jobs.store(now, &mut self.meta) {
            self.hub.answer(now, Up::NodeJob(Box::new(refused)), rng);
        }
    }

    /// Sends what is due to the cloud.
    pub(super) fn step(&mut self, now: Now, inputs: CloudInputs<'_>) {
        let CloudInputs { pods, recorder, folder_is_whole, node, rng, jobs, out } = inputs;
        match self.terminal_statuses.step(pods, &mut self.meta) {
            Found::Nothing => {}
            Found::Changes => self.report.mark_dirty(),
        }
        self.devices.step(now, &mut self.meta, rng, out);
        self.store_jobs(now, rng);
        self.answer_releases();
        #[cfg(all(feature = "devices", feature = "metaserver"))]
        self.answer_edits();
        self.metaserver.save(now, &mut self.meta);
        self.service_bus.step(now, &mut self.meta, out);
        self.meta.step(now, out);
        self.enrol.step(now, self.hub.is_dialing(), rng, jobs, out);
        if self.hub.step(now, self.enrol.may_dial(now), rng, out) == LinkEvent::Lost {
            self.link_lost(now);
        }
        for kind in self.requests.overdue(now.boot) {
            self.unanswered(now, &kind, out);
        }
        // After what else may answer its clients, or end their requests.
        #[cfg(any(feature = "metaserver", feature = "services"))]
        if self.hub.is_up() {
            self.metaserver.registered(now, &mut self.watches);
        }
        self.metaserver.step(now, (&self.meta, &self.devices), rng, out);
        if !self.hub.is_up() {
            return;
        }
        let timeout_ms = self.settings.remote_query_timeout_ms;
        let mut context = CloudContext {
            hub: &mut self.hub,
            requests: &mut self.requests,
            rng,
            out,
            now,
            timeout_ms,
        };
        self.node.step(&node, &self.meta, &self.settings, &mut context);
        self.relist.step(&node.config.node_name, &self.meta, &mut context);
        self.object_fetches.step(&self.meta, &mut context);
        self.services.step(&node.config.node_name, &self.meta, &mut context);
        #[cfg(any(feature = "metaserver", feature = "services"))]
        {
            self.metaserver.send(&mut context);
            let wanted = wanted_watches(&self.services, &self.metaserver);
            self.watches.step(&node.config.node_name, &wanted, &mut context);
        }
        self.tokens.step(&self.meta, &mut context);
        let report_inputs = ReportInputs {
            terminal_statuses: &self.terminal_statuses,
            meta: &self.meta,
            is_legacy: self.node.is_legacy(),
        };
        self.report.step(pods, report_inputs, &mut context);
        if !report_inputs.is_legacy {
            let (name, uid) = (&*node.config.node_name, self.node.uid());
            self.mirrors.step(pods, Owner { name, uid, folder_is_whole }, &self.meta, &mut context);
        }
        self.metasync.step(pods, report_inputs, self.settings.pod_status_sync_ms, &mut context);
        if let Some(events) = &mut self.events {
            events.step(recorder, &node.config.node_name, &mut context);
        }
        self.node_jobs.report(&mut context);
        self.devices.report(&mut context);
        self.service_bus.report(&mut context);
    }

    /// When the next step is due.
    fn wake_at(&self, now: Now) -> Option<Instant> {
        let mut wake_at = [
            self.meta.wake_at(),
            self.enrol.wake_at(now).filter(|_| !self.hub.is_dialing()),
            self.hub.wake_at(self.enrol.may_dial(now)),
            self.requests.wake_at(),
            self.devices.wake_at(now, &self.meta),
            self.metaserver.wake_at(now, &self.meta),
            self.service_bus.wake_at(now, &self.meta),
        ]
        .into_iter()
        .flatten()
        .min();
        // Messages wait for their time, and for room.
        if let Some(room_at) = self.hub.room_at() {
            let own = [
                self.node.wake_at(now, &self.settings),
                self.metasync.wake_at(),
                self.devices.report_at(now),
                self.node_jobs.report_at(now),
                self.service_bus.report_at(),
            ];
            let mut send_at = own.into_iter().flatten().min();
            if self.requests.has_room() {
                let others = [
                    self.object_fetches.wake_at(&self.meta),
                    self.relist.wake_at(&self.meta),
                    self.services.wake_at(&self.meta),
                    self.metaserver.send_at(),
                    self.watches_at(),
                    self.tokens.wake_at(now, &self.meta),
                    self.report.wake_at(),
                    self.mirrors.wake_at().filter(|_| !self.node.is_legacy()),
                    self.events.as_ref().and_then(Events::wake_at),
                ];
                send_at = others.into_iter().chain([send_at]).flatten().min();
            }
            let send_at = send_at.map(|at| at.max(room_at));
            wake_at = wake_at.into_iter().chain(send_at).min();
        }
        wake_at.map(|at| at.max(now.boot.plus_ms(1)))
    }

    /// The agent is about to exit: saves what of devices is not saved. Returns whether everything
    /// is.
    pub(super) fn save_devices(&mut self, now: Now, out: &mut Out) -> bool {
        self.devices.save_all(now, &mut self.meta, out)
    }

    /// When [`Cloud::save_devices`] may go on.
    fn save_devices_at(&self, now: Now) -> Option<Instant> {
        self.devices.save_all_at(now, &self.meta)
    }
}

#[cfg(any(feature = "metaserver", feature = "services"))]
fn wanted_watches<'a>(services: &'a ServiceWatch, metaserver: &'a MetaSide) -> Wanted<'a> {
    let mut wanted: Wanted<'_> = metaserver.watches().collect();
    // A client of MetaServer may watch the same.
    let own = services.watch();
    if let Some((at, own)) = own.and_then(|own| Some((wanted.binary_search(&own).err()?, own))) {
        wanted.insert(at, own);
    }
    wanted
}
