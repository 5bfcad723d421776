//! What the cloud is told of the node (wire spec sections 5.1 to 5.5): that it is there, how it is,
//! and that it lives.
//!
//! ```text
//!  link up ─▶ lease: query ─▶ insert │ update, again and again
//!         └─▶ register ─▶ look: what has the cloud? ─▶ patch what differs, again and again
//! ```
//!
//! Intended behaviour: level-triggered. The node is registered until the cloud says that it is, and
//! again when it says that there is none. Of its status it is known what the cloud has, as it came
//! with an answer or a push; what is told is the difference to that, and what others have set stays
//! theirs. After a break the cloud may have called the node unknown, so it is asked first, by a
//! patch that changes nothing.
//!
//! A cloud that leaves questions about leases unanswered is older than KubeEdge 1.12: it is told in
//! its own words, the whole status each time, until it answers one.
//!
//! If we crash here: the next life registers, which the cloud answers by that there is one, and
//! asks for the rest.

mod images;
mod labels;
mod lease;
mod remote;
mod status;

use serde_json::{Value, json};

use super::answer::{Answer, Refusal};
use super::content::StoredObject;
use super::meta::Meta;
use super::requests::{CloudContext, RequestKind};
use super::{patch, talk};
use crate::agent::event::{Action, Out, Severity};
use crate::agent::time::{Backoff, Instant, Now};
use crate::limits::{LEGACY_PROBE_MS, REGISTER_RETRY_MAX_MS, REGISTER_RETRY_MIN_MS};
use crate::model::message::Resource;
use crate::model::settings::CloudSettings;
use images::Images;
use labels::Labels;
use lease::Lease;
use remote::RemoteNode;
pub(in crate::agent) use status::Seen;
use status::{Beat, Health};

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
    /// When an old cloud is asked for the lease again.
    probe_at: Instant,
    /// What was last said to be wrong.
    said: Option<String>,
}

/// The words that the cloud understands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// Those of 1.12 and later, as far as nothing speaks against it.
    Assumed,
    /// Those of 1.12 and later: it has answered in this session.
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
    NotAsked,
    Asked,
    Done,
}

#[derive(Debug, Default)]
struct Status {
    /// As the cloud has it; `None`: not known.
    base: Option<Value>,
    /// By that, the node is not ready.
    unready: bool,
    /// The node's `resourceVersion` with it.
    version: u64,
    asked: bool,
    /// When it is looked at next whether there is news.
    look_at: Instant,
    /// When it was last told.
    told_at: Option<Instant>,
    /// The patch that was told last: where the cloud has something else all the same, it wants it
    /// so, and is not told again.
    last: Option<String>,
    /// That the node is ready again was told at once.
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
            said: None,
        }
    }

    /// Of the Node object; `None`: not known yet.
    pub(super) fn uid(&self) -> Option<&str> {
        self.uid.as_deref()
    }

    /// Whether the cloud is older than 1.12, and is to be told in its words.
    pub(super) fn is_legacy(&self) -> bool {
        self.form == Form::Legacy
    }

    /// The link is new: what the cloud has may be something else by now.
    pub(super) fn up(&mut self, now: Now) {
        match self.form {
            Form::Current => self.form = Form::Assumed,
            Form::Assumed => {}
            // It does not say when it has no such node.
            Form::Legacy => self.registration = Registration::default(),
        }
        self.registration.retry_at = None;
        self.status = Status {
            told_at: self.status.told_at,
            look_at: now.boot,
            base: self.status.base.take().filter(|_| self.form == Form::Legacy),
            ..Status::default()
        };
        self.lease.up();
        self.labels.up();
        self.probe_at = now.boot;
    }

    /// The cloud told of the node.
    pub(super) fn heard(&mut self, now: Now, text: &str) {
        let Some(told) = RemoteNode::read(text) else { return };
        if told.metadata.name == self.name && told.version() >= self.status.version {
            self.learn(now, &told);
        }
    }

    fn learn(&mut self, now: Now, told: &RemoteNode<'_>) {
        self.uid = Some(told.metadata.uid.clone()).filter(|uid| !uid.is_empty());
        self.status.version = told.version();
        if self.is_legacy() {
            return;
        }
        if self.status.base.is_none() {
            self.status.look_at = now.boot;
        }
        let base = told.status();
        self.status.unready = !status::is_ready(&base);
        self.status.hurried &= self.status.unready;
        self.status.base = Some(base);
        self.status.images.learn(told);
        self.labels.learn(told);
    }

    /// Takes the answer to something that was said of the node.
    pub(super) fn answered(
        &mut self,
        now: Now,
        kind: &RequestKind,
        answer: Answer,
        meta: &mut Meta,
        out: &mut Out,
    ) {
        match kind {
            RequestKind::Register => self.registered(now, answer, meta, out),
            RequestKind::NodeStatus => self.status_taken(now, answer, out),
            RequestKind::Lease => {
                self.understood(out);
                let uid = self.lease.answered(now, answer, out);
                self.uid = self.uid.take().or(uid);
            }
            other => panic!("{other:?} is not about the node"),
        }
    }

    /// The cloud has answered what those up to 1.11 do not understand.
    fn understood(&mut self, out: &mut Out) {
        if self.is_legacy() {
            let line = "cloud: it knows leases, and is told in the words of 1.12 and later";
            out.push(Action::Log(Severity::Info, line.to_owned()));
            self.registration = Registration::default();
            self.status = Status::default();
        }
        self.form = Form::Current;
    }

    fn registered(&mut self, now: Now, answer: Answer, meta: &mut Meta, out: &mut Out) {
        let done = match answer {
            Answer::Object(object) => {
                match RemoteNode::read(object.get()) {
                    Some(told) if !told.metadata.uid.is_empty() => {
                        self.understood(out);
                        self.learn(now, &told);
                        self.status.told_at = Some(now.boot);
                        // The cloud waits for no answer.
                        let _ = meta.put(&self.resource("node"), "node", object.get(), None);
                        Ok(())
                    }
                    _ => Err("got no node, expected the one that was made".to_owned()),
                }
            }
            // The form of old clouds.
            Answer::Done => Ok(()),
            Answer::Refused(refusal) if refusal.is_conflict() => {
                self.understood(out);
                Ok(())
            }
            Answer::Refused(refusal) => Err(refusal.to_string()),
        };
        match done {
            Ok(()) => {
                self.registration = Registration { state: Registered::Done, ..Default::default() };
                self.status.look_at = now.boot;
                self.said = None;
                let line = format!("cloud: node {} is registered", self.name);
                out.push(Action::Log(Severity::Info, line));
            }
            Err(why) => {
                self.registration.again(now);
                self.say(format!("cloud: node {} is not registered: {why}", self.name), out);
            }
        }
    }

    fn status_taken(&mut self, now: Now, answer: Answer, out: &mut Out) {
        let refusal = match answer {
            Answer::Object(object) => match RemoteNode::read(object.get()) {
                Some(told) if !told.metadata.uid.is_empty() => {
                    self.status.asked = false;
                    self.understood(out);
                    self.said = None;
                    self.learn(now, &told);
                    return;
                }
                _ => Refusal::default(),
            },
            Answer::Done => Refusal::default(),
            Answer::Refused(refusal) => refusal,
        };
        self.status.untell();
        if refusal.is_not_found() {
            self.understood(out);
            self.uid = None;
            self.registration = Registration::default();
        }
        self.say(format!("cloud: the status of node {} is not taken: {refusal}", self.name), out);
    }

    fn say(&mut self, line: String, out: &mut Out) {
        if self.said.as_ref() != Some(&line) {
            out.push(Action::Log(Severity::Warn, line.clone()));
            self.said = Some(line);
        }
    }

    /// No answer came: in time, or since the link is lost.
    pub(super) fn unanswered(
        &mut self,
        now: Now,
        kind: &RequestKind,
        is_up: bool,
        timeout_ms: u64,
    ) {
        match kind {
            RequestKind::Register => self.registration.again(now),
            // It may have arrived.
            RequestKind::NodeStatus => self.status.untell(),
            RequestKind::Lease => {
                let silent_ms = self.lease.unanswered(now);
                if is_up && self.form == Form::Assumed && silent_ms >= timeout_ms {
                    self.form = Form::Legacy;
                    self.registration = Registration::default();
                    self.status = Status::default();
                    self.probe_at = now.boot.plus_ms(LEGACY_PROBE_MS);
                }
            }
            other => panic!("{other:?} is not about the node"),
        }
    }

    /// Says what the cloud does not have.
    pub(super) fn step(
        &mut self,
        seen: &Seen<'_>,
        meta: &Meta,
        settings: &CloudSettings,
        context: &mut CloudContext<'_>,
    ) {
        self.health.look(seen, context.now);
        if self.uid.is_none()
            && let Some(StoredObject::Node(uid)) = meta.thing(&self.resource("node"))
        {
            self.uid = Some(uid.clone()).filter(|uid| !uid.is_empty());
        }
        if !self.is_legacy() {
            self.lease.step(&self.name, self.uid.as_deref(), settings, context);
            // The cloud's answers about the lease bring the time where there is no other.
            if context.now.wall.is_some() {
                self.register(seen, meta, settings, context);
                self.tell(seen, meta, settings, context);
            }
            if let Some(labels) = self.labels.missing(seen).filter(|_| context.may_speak()) {
                let content = json!({"metadata": {"name": self.name, "labels": labels}});
                context.say("update", &self.resource("node"), talk::json(&content));
                self.labels.told();
            }
            return;
        }
        if self.probe_at <= context.now.boot && self.lease.probe(&self.name, settings, context) {
            self.probe_at = context.now.boot.plus_ms(LEGACY_PROBE_MS);
        }
        self.register(seen, meta, settings, context);
        self.tell_whole(seen, meta, settings, context);
    }

    fn register(
        &mut self,
        seen: &Seen<'_>,
        meta: &Meta,
        settings: &CloudSettings,
        context: &mut CloudContext<'_>,
    ) {
        if !settings.registration.register {
            self.registration.state = Registered::Done;
        }
        let due = self.registration.retry_at.is_none_or(|at| at <= context.now.boot);
        if self.registration.state != Registered::NotAsked || !due || !context.may_speak() {
            return;
        }
        let status = self.whole(seen, meta, context.now);
        let node = status::object(seen, &settings.registration, &status);
        let resource = match self.form {
            Form::Legacy => self.legacy_resource(settings),
            Form::Assumed | Form::Current => self.resource("node"),
        };
        context.ask(RequestKind::Register, "insert", &resource, Some(talk::json(&node)));
        self.registration.state = Registered::Asked;
    }

    /// The whole status, with all times new.
    fn whole(&self, seen: &Seen<'_>, meta: &Meta, now: Now) -> Value {
        let told = self.health.conditions(seen, meta.trouble(), self.status.base.as_ref());
        let mut status = status::status(seen);
        let conditions = status::conditions(&told, self.status.base.as_ref(), now, Beat::New);
        status["conditions"] = conditions;
        status["daemonEndpoints"] = json!({"kubeletEndpoint": {"Port": status::PORT}});
        status
    }

    /// Tells what differs from what the cloud has.
    fn tell(
        &mut self,
        seen: &Seen<'_>,
        meta: &Meta,
        settings: &CloudSettings,
        context: &mut CloudContext<'_>,
    ) {
        let now = context.now.boot;
        let registered = self.registration.state == Registered::Done;
        let hurries = self.is_ready_again();
        let due = self.status.look_at <= now || hurries;
        if !registered || self.status.asked || !due || !context.may_speak() {
            return;
        }
        self.status.hurried |= hurries;
        self.status.look_at = now.plus_ms(settings.status_update_ms);
        let text = match &self.status.base {
            None => json!({}).to_string(),
            Some(base) => {
                let report_at = self.status.told_at.map(|at| at.plus_ms(settings.status_report_ms));
                let report = report_at.is_none_or(|at| at <= now);
                let beat = if report { Beat::New } else { Beat::WithChanges };
                let told = self.health.conditions(seen, meta.trouble(), Some(base));
                let mut status = status::over(base, status::status(seen));
                status["conditions"] = status::conditions(&told, Some(base), context.now, beat);
                let mut difference = patch::diff(base, &status);
                if let Some(images) = self.status.images.news(seen) {
                    difference.get_or_insert_with(|| json!({}))["images"] = images;
                }
                let Some(difference) = difference else { return };
                let text = json!({"status": difference}).to_string();
                if self.status.last.as_ref() == Some(&text) {
                    return;
                }
                self.status.last = Some(text.clone());
                if report {
                    self.status.told_at = Some(now);
                }
                text
            }
        };
        // A JSON text that holds JSON, as KubeEdge has it.
        let content = Some(talk::json(&text));
        context.ask(RequestKind::NodeStatus, "patch", &self.resource("nodepatch"), content);
        self.status.asked = true;
    }

    /// The cloud thinks that the node is not ready, and it is: told at once.
    fn is_ready_again(&self) -> bool {
        let Status { base, unready, hurried, .. } = &self.status;
        base.is_some() && *unready && !hurried && self.health.is_ready()
    }

    /// Tells an old cloud all of it.
    fn tell_whole(
        &mut self,
        seen: &Seen<'_>,
        meta: &Meta,
        settings: &CloudSettings,
        context: &mut CloudContext<'_>,
    ) {
        let now = context.now.boot;
        let registered = self.registration.state == Registered::Done;
        if !registered || self.status.look_at > now || !context.may_speak() {
            return;
        }
        self.status.look_at = now.plus_ms(settings.status_update_ms);
        let status = self.whole(seen, meta, context.now);
        let content = json!({
            "UID": self.uid.as_deref().unwrap_or_default(),
            "Status": status,
            "ExtendResources": null,
        });
        // Answered by «OK», or not at all.
        context.say("update", &self.legacy_resource(settings), talk::json(&content));
        self.status.base = Some(status);
    }

    /// Any namespace will do; 1.23 and later use this one.
    fn resource(&self, kind: &str) -> String {
        Resource { namespace: None, kind, name: &self.name }.to_string()
    }

    fn legacy_resource(&self, settings: &CloudSettings) -> String {
        let namespace = Some(settings.registration.namespace.as_str());
        Resource { namespace, kind: "nodestatus", name: &self.name }.to_string()
    }

    /// When something is due, if nothing happens before.
    pub(super) fn wake_at(&self, now: Now, settings: &CloudSettings) -> Option<Instant> {
        let register_at = self.registration.retry_at.unwrap_or(now.boot);
        let speaks = self.is_legacy() || now.wall.is_some();
        let own = match self.registration.state {
            Registered::NotAsked => Some(register_at),
            Registered::Asked => None,
            Registered::Done => Some(self.status.look_at).filter(|_| !self.status.asked),
        };
        let lease = if self.is_legacy() {
            Some(self.probe_at).filter(|_| !self.lease.is_asked())
        } else {
            self.lease.wake_at(now, settings.lease_interval_ms, self.uid.is_some())
        };
        own.filter(|_| speaks).into_iter().chain(lease).min()
    }
}

impl Status {
    /// What was told last does not count as told.
    fn untell(&mut self) {
        (self.asked, self.base, self.told_at, self.last) = (false, None, None, None);
        self.images.untell();
    }
}

impl Registration {
    fn again(&mut self, now: Now) {
        self.state = Registered::NotAsked;
        let again_at = self.backoff.again(now.boot, REGISTER_RETRY_MIN_MS, REGISTER_RETRY_MAX_MS);
        self.retry_at = Some(again_at);
    }
}
