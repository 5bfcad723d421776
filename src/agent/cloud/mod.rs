//! The cloud side of the mind: EdgeHub and MetaManager (wire spec sections 2 to 6).
//!
//! ```text
//!  Event::Cloud ─▶ talk to what it is ─▶ meta (waits) ─Save─▶ store ─Saved─▶ pods, objects; ack
//!                                └▶ an answer ─▶ whoever asked: node · report · wants
//!  pods' statuses, the node ─▶ report, node ─▶ asks ─▶ hub ─▶ Action::Send
//! ```
//!
//! What the cloud says counts only once it is durable. What is said to the cloud is worked out from
//! what is and what the cloud is known to have, so nothing is queued and the latest wins; after a
//! break it is worked out anew.
//!
//! If we crash here: the store is read, the link dialled, and all is compared again.

mod answer;
mod bulk;
mod content;
mod enrol;
mod events;
mod hub;
mod meta;
mod metasync;
mod mirror;
mod node;
mod object_fetch;
mod patch;
mod relist;
mod report;
mod requests;
mod route;
mod talk;
mod terminal_status;
mod tokens;
mod unsupported;
mod view;

use crate::agent::event::{Action, JobId, Out, Severity};
use crate::agent::pods::Pods;
use crate::agent::recorder::Recorder;
use crate::agent::time::{Instant, Now, Rng, Wall};
use crate::limits::Budget;
use crate::model::job::JobError;
use crate::model::link::{Cause, Session, Validity};
use crate::model::message::{Message, Resource};
use crate::model::meta::{DiskError, Revision, Saved};
use crate::model::settings::CloudSettings;
use serde_json::value::RawValue;

use answer::Answer;
use enrol::Enrol;
use events::Events;
use hub::Hub;
use meta::{ChangeOutcome, Meta, Settled};
use metasync::Metasync;
use mirror::{Mirrors, Owner};
use node::{Node, Seen};
use object_fetch::ObjectFetches;
use relist::Relist;
use report::{Report, ReportInputs};
use requests::{CloudContext, PendingRequests, RequestKind};
use talk::Origin;
use terminal_status::TerminalStatuses;
use tokens::Tokens;

/// The cloud side.
#[derive(Debug)]
pub(super) struct Cloud {
    settings: CloudSettings,
    hub: Hub,
    meta: Meta,
    ended: TerminalStatuses,
    asks: PendingRequests,
    enrol: Enrol,
    node: Node,
    wants: ObjectFetches,
    tokens: Tokens,
    report: Report,
    metasync: Metasync,
    mirrors: Mirrors,
    relist: Relist,
    events: Option<Events>,
    /// What the cloud's clock showed when ours, counting from boot, showed this.
    clock: Option<(Instant, Wall)>,
}

/// What the cloud side speaks with, and of.
pub(super) struct CloudInputs<'a> {
    /// All pods.
    pub pods: &'a Pods,
    /// What happened.
    pub recorder: &'a Recorder,
    /// No pod of the manifest folder is unknown.
    pub folder_is_whole: bool,
    /// The node that they run on.
    pub node: Seen<'a>,
    /// For ids, and what is spread in time.
    pub rng: &'a mut Rng,
    /// The last job's number.
    pub last_job: &'a mut u64,
    /// Where requests go.
    pub out: &'a mut Out,
}

/// Something became durable: what of it the rest of the mind has to look at.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Changed {
    /// Pods came, went or changed.
    pub pods: bool,
    /// Objects that pods use came, went or changed.
    pub objects: bool,
}

impl Cloud {
    pub(super) fn new(settings: &CloudSettings, node: &str, budget: Budget, now: Now) -> Self {
        Self {
            hub: Hub::new(settings, now),
            meta: Meta::new(node, budget),
            ended: TerminalStatuses::default(),
            asks: PendingRequests::default(),
            enrol: Enrol::new(settings),
            node: Node::new(node),
            wants: ObjectFetches::default(),
            tokens: Tokens::default(),
            report: Report::default(),
            metasync: Metasync::default(),
            mirrors: Mirrors::default(),
            relist: Relist::default(),
            events: Events::new(settings, now),
            clock: None,
            settings: settings.clone(),
        }
    }

    /// The wall clock by the cloud's, where our own is not plausible: a gateway without a clock
    /// chip starts in 1970, and its lease must not.
    pub(super) fn correct(&self, now: Now) -> Now {
        let told = self.clock.map(|(at, wall)| {
            let since_ms = now.boot.since_ms(at);
            Wall(wall.0.saturating_add_unsigned(since_ms))
        });
        Now { wall: now.wall.or(told), ..now }
    }

    /// Takes what the store held.
    pub(super) fn loaded(&mut self, saved: Saved, out: &mut Out) {
        self.meta.load(saved, out);
        self.wants.stir();
        self.tokens.stir();
    }

    /// It is durable: it counts, and the cloud is told.
    pub(super) fn saved(
        &mut self,
        now: Now,
        revision: Revision,
        rng: &mut Rng,
        out: &mut Out,
    ) -> Changed {
        let Settled { acks, pods, objects } = self.meta.saved(revision, out);
        self.relist.conclude(&mut self.meta, out);
        self.report.stir();
        self.mirrors.stir();
        for ack in acks {
            self.hub.answer(talk::ack(rng, now, &ack));
        }
        if pods || objects {
            self.wants.stir();
            self.tokens.stir();
        }
        Changed { pods, objects }
    }

    /// It is not.
    pub(super) fn save_failed(
        &mut self,
        now: Now,
        revision: Revision,
        why: &DiskError,
        out: &mut Out,
    ) {
        self.meta.save_failed(now, revision, why, out);
    }

    pub(super) fn link_up(
        &mut self,
        now: Now,
        session: Session,
        validity: Validity,
        out: &mut Out,
    ) {
        if self.hub.up(now, session, out) {
            self.enrol.up(validity);
            self.node.up(now);
            self.wants.up();
            self.tokens.up();
            self.report.up();
            self.metasync.up();
            self.mirrors.up();
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
        if self.hub.down(now, session, cause, rng, out) {
            self.enrol.down(now, cause, out);
            self.lost(now);
        }
    }

    /// The link is gone: no question is answered any more.
    fn lost(&mut self, now: Now) {
        for kind in self.asks.clear() {
            self.unanswered(now, &kind);
        }
    }

    pub(super) fn heard(&mut self, now: Now, session: Session) {
        self.hub.heard(now, session);
    }

    pub(super) fn sent(&mut self, session: Session, count: usize) {
        self.hub.sent(session, count);
    }

    /// Takes the answer to a job. `false`: it is not ours.
    pub(super) fn job_done(
        &mut self,
        now: Now,
        job: JobId,
        result: &Result<(), JobError>,
        rng: &mut Rng,
        out: &mut Out,
    ) -> bool {
        match self.enrol.job_done(now, job, result, rng, out) {
            None => false,
            Some(renewed) => {
                if renewed {
                    self.hub.renew(now, out);
                    self.lost(now);
                }
                true
            }
        }
    }

    /// Takes a message of the cloud's.
    pub(super) fn message(
        &mut self,
        now: Now,
        session: Session,
        message: &Message,
        rng: &mut Rng,
        out: &mut Out,
    ) {
        if !self.hub.speaks(session) {
            return;
        }
        if message.header.timestamp_ms > 0 {
            self.clock = Some((now.boot, Wall(message.header.timestamp_ms)));
        }
        let route = &message.route;
        match (&*route.group, &*route.operation) {
            // Viaduct's own: answered by whoever reads them (wire spec section 2.2).
            (_, "config" | "ping" | "pong") => {
                let to = Origin::of(message);
                self.hub.answer(talk::answer(rng, now, &to, "response", talk::json("ack")));
            }
            (_, "response" | "error" | "applicationResponse")
                if !message.header.parent_id.is_empty() =>
            {
                self.response(now, message, rng, out);
            }
            ("resource" | "func", _) => self.object(now, message, rng),
            _ => {
                if let Some(answer) = unsupported::answer(rng, now, message) {
                    self.hub.answer(answer);
                }
            }
        }
    }

    /// An answer to a question of ours, mostly.
    fn response(&mut self, now: Now, message: &Message, rng: &mut Rng, out: &mut Out) {
        let Some(kind) = self.asks.answered(&message.header.parent_id) else {
            // Too late for who asked; but the cloud may wait to hear that we have it.
            if Resource::parse(&message.route.resource)
                .is_some_and(|told| object_fetch::is_kept(told.kind))
            {
                match Answer::read(message, &self.meta.budget()) {
                    Answer::Object(_) => self.object(now, message, rng),
                    Answer::Done | Answer::Refused(_) => self.ack(now, message, rng),
                }
            }
            return;
        };
        let answer = Answer::read(message, &self.meta.budget());
        match &kind {
            RequestKind::Pods => self.relist.answered(now, message, &mut self.meta, out),
            RequestKind::Token(need) => match answer {
                Answer::Object(object) => {
                    // For a pod that is gone there is none any more.
                    if let Some(row) = self.tokens.answered(now, need, object.get()) {
                        // No answer that the cloud waits for.
                        let _ = self.meta.put(need, "serviceaccounttoken", &row, None);
                    }
                }
                Answer::Done => self.tokens.unanswered(now, need),
                Answer::Refused(why) => {
                    let line = self.tokens.refused(now, need, why.message, rng);
                    out.actions.extend(line.map(|line| Action::Log(Severity::Warn, line)));
                }
            },
            RequestKind::Object(key) => match answer {
                Answer::Object(object) => {
                    let kind = Resource::parse(key).map_or("", |told| told.kind);
                    let ack = Some(Origin::of(message));
                    let hearing = self.meta.put(key, kind, object.get(), ack);
                    self.conclude(now, hearing, message, rng);
                    self.wants.answered(now, key, &self.settings, rng);
                }
                Answer::Done | Answer::Refused(_) => {
                    self.wants.refused(now, key, &self.settings, rng);
                    self.ack(now, message, rng);
                }
            },
            RequestKind::Register | RequestKind::NodeStatus | RequestKind::Lease => {
                self.node.answered(now, &kind, answer, &mut self.meta, out);
            }
            RequestKind::PodStatus(uid) | RequestKind::PodDelete(uid) => {
                let resource = &*message.route.resource;
                if let Answer::Object(object) = &answer {
                    self.reported(resource, object);
                }
                let name = Resource::parse(resource).map_or("", |told| told.name);
                if self.report.answered(now, (&kind, name), answer, out) {
                    self.gone(resource, uid, out);
                }
            }
            RequestKind::MirrorMake(_) | RequestKind::MirrorDelete(..) => {
                self.mirrors.answered(now, &kind, answer, &mut self.meta, out);
            }
        }
    }

    /// The cloud has taken a status. That a pod has ended must outlive us: a next life that finds
    /// nothing of it in the runtime would start it again.
    fn reported(&mut self, resource: &str, object: &RawValue) {
        let Some(told) = Resource::parse(resource) else { return };
        let key = Resource { kind: "pod", ..told }.to_string();
        if self.meta.thing(&key).is_some() {
            // No answer that the cloud waits for.
            let _ = self.meta.put(&key, "pod", object.get(), None);
        }
    }

    /// The API server does not have this pod, and has said so twice. A store that does not know all
    /// pods takes nobody's word but that of a deletion.
    fn gone(&mut self, resource: &str, uid: &str, out: &mut Out) {
        let Some(told) = Resource::parse(resource).filter(|_| !self.meta.is_broken()) else {
            return;
        };
        let line = format!("cloud: it still has no such pod, which ends: uid={uid}");
        out.push(Action::Log(Severity::Warn, line));
        // Nobody waits to hear of it; where there is no room now, it is asked for again.
        let _ = self.deleted(Resource { kind: "pod", ..told }, uid, None);
    }

    /// An object is gone, and with a pod what is kept for it.
    fn deleted(&mut self, resource: Resource<'_>, uid: &str, ack: Option<Origin>) -> ChangeOutcome {
        if resource.kind == "pod" {
            // Old clouds delete by name alone.
            let named = self.meta.uid(&resource.to_string()).filter(|_| uid.is_empty());
            let of_pod: Box<str> = named.unwrap_or(uid).into();
            self.meta.delete_tokens(&of_pod);
            let ended = Resource { kind: terminal_status::KIND, ..resource }.to_string();
            let _ = self.meta.delete(&ended, uid, None);
        }
        self.meta.delete(&resource.to_string(), uid, ack)
    }

    /// No answer came in time, or none will.
    fn unanswered(&mut self, now: Now, kind: &RequestKind) {
        match kind {
            RequestKind::Object(key) => self.wants.unanswered(now, key),
            RequestKind::Token(need) => self.tokens.unanswered(now, need),
            RequestKind::Register | RequestKind::NodeStatus | RequestKind::Lease => {
                let timeout_ms = self.settings.remote_query_timeout_ms;
                self.node.unanswered(now, kind, self.hub.is_up(), timeout_ms);
            }
            RequestKind::PodStatus(_) | RequestKind::PodDelete(_) => {
                self.report.unanswered(now, kind)
            }
            RequestKind::MirrorMake(_) | RequestKind::MirrorDelete(..) => {
                self.mirrors.unanswered(now, kind);
            }
            RequestKind::Pods => self.relist.unanswered(now),
        }
    }

    /// An object came, changed or went.
    fn object(&mut self, now: Now, message: &Message, rng: &mut Rng) {
        let route = &message.route;
        let Some(resource) = Resource::parse(&route.resource) else {
            self.ack(now, message, rng);
            return;
        };
        if unsupported::is_volume(&route.operation) {
            self.hub.answer(unsupported::no_volume(rng, now, message));
            return;
        }
        let ack = Some(Origin::of(message));
        let text = match bulk::content(message, &self.meta.budget()) {
            Ok(text) => text,
            Err(why) => return self.conclude(now, ChangeOutcome::Refused(why), message, rng),
        };
        let hearing = if &*route.operation == "delete" {
            self.deleted(resource, &content::uid(&text), ack)
        } else {
            if resource.kind == "node" {
                self.node.heard(now, &text);
            }
            let hearing = self.meta.put(&route.resource, resource.kind, &text, ack);
            // Of what is not kept nothing is remembered: it comes again, or never will.
            let is_pod = resource.kind == "pod";
            if is_pod && self.meta.is_latest(&route.resource, &content::uid(&text)) {
                self.report.heard(&text);
            }
            hearing
        };
        if resource.kind == "pod" {
            terminal_status::tidy(&mut self.meta, resource);
        }
        self.conclude(now, hearing, message, rng);
    }

    fn conclude(&mut self, now: Now, hearing: ChangeOutcome, message: &Message, rng: &mut Rng) {
        match hearing {
            ChangeOutcome::Waits | ChangeOutcome::Dropped => {}
            ChangeOutcome::Settled => self.ack(now, message, rng),
            ChangeOutcome::Refused(why) => {
                let to = Origin::of(message);
                self.hub.answer(talk::refusal(rng, now, &to, &why));
            }
        }
    }

    fn ack(&mut self, now: Now, message: &Message, rng: &mut Rng) {
        self.hub.answer(talk::ack(rng, now, &Origin::of(message)));
    }

    /// Speaks with the cloud.
    pub(super) fn step(&mut self, now: Now, inputs: CloudInputs<'_>) {
        let CloudInputs { pods, recorder, folder_is_whole, node, rng, last_job, out } = inputs;
        if self.ended.step(pods, &mut self.meta) {
            self.report.stir();
        }
        self.meta.step(now, out);
        self.enrol.step(now, self.hub.is_dialing(), rng, last_job, out);
        if self.hub.step(now, self.enrol.may_dial(now), rng, out) {
            self.lost(now);
        }
        for kind in self.asks.overdue(now.boot) {
            self.unanswered(now, &kind);
        }
        if !self.hub.is_up() {
            return;
        }
        let timeout_ms = self.settings.remote_query_timeout_ms;
        let mut context =
            CloudContext { hub: &mut self.hub, asks: &mut self.asks, rng, out, now, timeout_ms };
        self.node.step(&node, &self.meta, &self.settings, &mut context);
        self.relist.step(&node.config.node_name, &self.meta, &mut context);
        self.wants.step(&self.meta, &mut context);
        self.tokens.step(&self.meta, &mut context);
        let told =
            ReportInputs { ended: &self.ended, meta: &self.meta, is_legacy: self.node.is_legacy() };
        self.report.step(pods, told, &mut context);
        if !told.is_legacy {
            let (name, uid) = (&*node.config.node_name, self.node.uid());
            self.mirrors.step(pods, Owner { name, uid, folder_is_whole }, &self.meta, &mut context);
        }
        self.metasync.step(pods, told, self.settings.pod_status_sync_ms, &mut context);
        if let Some(events) = &mut self.events {
            events.step(recorder, &node.config.node_name, &mut context);
        }
    }
}
