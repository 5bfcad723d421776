//! The requests of the replicas, and their effects.

use edged::controller::event::{Action, CallId, Event, WatchFact, WatchId};
use edged::model::api::{Call, CallError, CallResult, Kind, Verb};
use edged::model::cloud_message::CloudMessage;
use edged::model::link::Session;
use edged::model::message::Message;
use edged::model::meta::{DiskError, Revision};
use edged::model::sync::Change;
use edged::wire::kubeedge;

use crate::check::uid_in;
use crate::cluster::raw;
use crate::rule::judge;
use crate::trace::trace;
use crate::world::{Due, Watch, World};

impl World {
    pub(crate) fn delay_ms(&mut self) -> u64 {
        self.chance.below(self.faults.delay_ms + 1)
    }

    /// Sends an event to a replica.
    pub fn send_event(&mut self, at: usize, event: Event) {
        let (mut ms, life) = (self.delay_ms(), self.replicas[at].life);
        if let Event::EdgeMessage(session, _) = &event {
            let Some(link) = self.links.get_mut(session) else { return };
            ms = ms.max(link.up_at.saturating_sub(self.now));
            link.up_at = self.now + ms;
        }
        self.at(ms, Due::Tell(at, life, Box::new(event)));
    }

    pub(crate) fn perform(&mut self, at: usize, action: Action) {
        let life = self.replicas[at].life;
        match action {
            Action::Accept(session) => self.accepted(at, session),
            Action::Refuse(session, refusal) => {
                trace!(self.now, "r{at} refuses {session:?}: {} {}", refusal.status, refusal.body);
                let open = self.links.get(&session).is_some_and(|link| !link.is_on);
                judge!(open, "[one answer] r{at} refuses {session:?}, which was not requested");
                self.refused(session, refusal.status);
            }
            Action::Send(session, message) => self.send_to_node(at, session, &message),
            Action::Close(session, why) => {
                trace!(self.now, "r{at} closes {session:?}: {why}");
                self.check_close(at, session, &why);
                self.unlink(session);
            }
            Action::Call(id, call) => {
                self.check_request(at, &call);
                if call.kind == Kind::Node && call.verb == Verb::Create {
                    self.check.requests_registration((at, life, id), &call.name);
                }
                let ms = self.delay_ms();
                self.at(ms, Due::Call(at, life, id, call));
            }
            Action::List(watch, kind) => {
                let ms = self.delay_ms();
                self.at(ms, Due::List(at, life, watch, kind));
            }
            Action::Watch(id, kind, version) => {
                let version = version.parse().expect("a version");
                let watch = Watch { kind, version, is_due: false };
                self.replicas[at].watches.insert(id, watch);
                self.feed_soon(at, id);
            }
            Action::CallAny(id, call) => self.call_any_soon(at, id, call),
            Action::ListAny(watch, _) => self.list_any_soon(at, watch),
            Action::WatchAny(id, resource, version) => self.watch_any(at, id, &resource, &version),
            Action::Unwatch(watch) => self.unwatch(at, watch),
            Action::Save { revision, changes } => {
                let busy = std::mem::replace(&mut self.replicas[at].saving, true);
                judge!(!busy, "[one save] {revision:?} while another is under way");
                let ms = self.delay_ms();
                self.at(ms, Due::Save(at, life, revision, changes));
            }
            Action::KeepIdentity(identity) => {
                self.identities.insert(identity.node.clone(), identity);
            }
            Action::Log(severity, line) => trace!(self.now, "r{at} {severity:?}: {line}"),
            Action::Exit => {
                let stopping = self.replicas[at].stopping;
                judge!(stopping.is_some(), "[exit] r{at} exits, and was not stopped");
                self.end(at);
                let ms = self.chance.below(self.faults.down_ms + 1);
                self.at(ms, Due::Begin(at));
            }
            Action::Answer(..) | Action::Sign { .. } => panic!("no node requests certificates"),
            Action::Router(action) => panic!("there are no rules, but {action:?}"),
            Action::AcceptTunnel(..) | Action::RefuseTunnel(..) | Action::CloseTunnel(..) => (),
        }
    }

    fn send_to_node(&mut self, at: usize, session: Session, message: &CloudMessage) {
        let Some(link) = self.links.get(&session) else { return };
        judge!(link.is_on, "[one answer] r{at} sends on {session:?} before it is up");
        let message = Box::new(kubeedge::encode_cloud(message));
        let (what, resource) = (&message.route.operation, &message.route.resource);
        trace!(self.now, "r{at} sends {what} {resource}");
        self.check_sent(at, session, &message);
        self.check_job_sent(at, session, &message);
        let ms = self.delay_ms();
        let link = self.links.get_mut(&session).expect("just seen");
        let ms = ms.max(link.down_at.saturating_sub(self.now));
        link.down_at = self.now + ms;
        self.at(ms, Due::ToNode(session, message));
    }

    pub(crate) fn call(&mut self, at: usize, life: u64, id: CallId, call: &Call) {
        if self.replicas[at].life != life {
            return;
        }
        let lost = self.chance.percent(self.faults.call_lost_pct);
        let done = !lost || self.chance.percent(50);
        let result = if self.api_is_up() && done { Some(self.execute(at, call)) } else { None };
        let result = match result {
            Some(result) if !lost => result,
            _ => {
                self.tally.add("calls lost");
                Err(CallError::Lost("drawn".to_owned()))
            }
        };
        self.send_event(at, Event::Called(id, result));
    }

    /// The API server executes a call.
    pub(crate) fn execute(&mut self, at: usize, call: &Call) -> CallResult {
        let spoilt = self.forbidden_change(call);
        self.before_removal(call);
        let name = (call.kind, call.namespace.to_string(), call.name.to_string());
        let before = self.cluster.objects.get(&name).cloned();
        let result = self.cluster.call(call);
        if result.is_ok() && !matches!(call.verb, Verb::Get | Verb::List) {
            self.check_status_write(call, before.as_ref());
            self.check_job_write(call, before.as_ref());
            self.collect_jobs();
        }
        if let Some(why) = spoilt {
            judge!(why.is_empty() || result.is_err(), "[stays its own] {why}");
        }
        trace!(
            self.now,
            "    r{at}: {:?} {:?} {} {}",
            call.verb,
            call.kind,
            call.name,
            result.as_ref().map_or("refused", |_| "done")
        );
        let is_record = matches!(call.kind, Kind::ObjectSync | Kind::ClusterObjectSync);
        if is_record && result.is_ok() && !matches!(call.verb, Verb::Get | Verb::List) {
            let (life, version) = (self.replicas[at].life, self.cluster.version);
            let node = call.name.rsplit_once('.').map(|(node, _)| node).unwrap_or_default();
            let of_node = self.links.values().filter(|link| link.node == node);
            let deaf = of_node.map(|link| link.replica).collect();
            self.check.record_written(call, (at, life), version, deaf);
        }
        result
    }

    pub(crate) fn list(&mut self, at: usize, life: u64, id: WatchId, kind: Kind) {
        if self.replicas[at].life != life {
            return;
        }
        if !self.api_is_up() {
            return self.deliver(at, Event::Watched(id, WatchFact::Ended("refused".to_owned())));
        }
        self.tally.add("lists");
        let objects = self.cluster.list(kind);
        let version = self.cluster.version.to_string().into();
        self.deliver(at, Event::Watched(id, WatchFact::Listed(objects)));
        self.deliver(at, Event::Watched(id, WatchFact::ListEnd(version)));
    }

    pub(crate) fn watch_tells(&mut self, at: usize, life: u64, id: WatchId) {
        if self.replicas[at].life != life {
            return;
        }
        let Some(watch) = self.replicas[at].watches.get_mut(&id) else { return };
        watch.is_due = false;
        let Watch { kind, version, .. } = *watch;
        let next = self.cluster.after(kind, version);
        let next = next.map(|next| next.map(|(at, gone, object)| (at, gone, raw(object))));
        let ends = self.chance.percent(self.faults.watch_ends_pct);
        let fact = match next {
            _ if !self.api_is_up() => WatchFact::Ended("the API server is down".to_owned()),
            Err(()) => {
                self.tally.add("watches too old");
                WatchFact::Gone
            }
            Ok(None) => return,
            Ok(Some(_)) if ends => {
                self.tally.add("watches ended");
                WatchFact::Ended("drawn".to_owned())
            }
            Ok(Some((up_to, gone, object))) => {
                if let Some(watch) = self.replicas[at].watches.get_mut(&id) {
                    watch.version = up_to;
                }
                let more = self.cluster.after(kind, up_to) != Ok(None);
                let fact =
                    if gone { WatchFact::Deleted(object) } else { WatchFact::Changed(object) };
                self.deliver(at, Event::Watched(id, fact));
                if more {
                    self.feed_soon(at, id);
                }
                return;
            }
        };
        self.replicas[at].watches.remove(&id);
        self.deliver(at, Event::Watched(id, fact));
    }

    pub(crate) fn save(&mut self, at: usize, life: u64, revision: Revision, all: Vec<Change>) {
        if self.replicas[at].life != life {
            return;
        }
        self.replicas[at].saving = false;
        if self.chance.percent(self.faults.save_fails_pct) {
            self.tally.add("saves failed");
            let error = DiskError::Failed("drawn".to_owned());
            return self.send_event(at, Event::SaveFailed(revision, error));
        }
        self.keep(all);
        self.send_event(at, Event::Saved(revision));
    }

    pub(crate) fn keep(&mut self, changes: Vec<Change>) {
        for change in changes {
            match change {
                Change::Put(row) => {
                    let (node, space) = (row.node.to_string(), row.namespace.to_string());
                    self.rows.insert((node, row.kind, space, row.name.to_string()), row);
                }
                Change::Delete { node, kind, namespace, name } => {
                    self.record_removed(&node, kind, &name);
                    let key = (node.to_string(), kind, namespace.to_string(), name.to_string());
                    self.rows.remove(&key);
                }
            }
        }
    }

    /// A message arrives at its node.
    pub(crate) fn arrive(&mut self, session: Session, message: &Message) {
        let Some(link) = self.links.get(&session).filter(|link| !link.half_open) else { return };
        let (at, name) = (link.replica, link.node.clone());
        if &*message.route.operation == "delete" {
            let uid = uid_in(message);
            let life = self.replicas[at].life;
            self.check.acknowledges_end(format!("{name}.{uid}"), at, life);
        }
        let ack = self.node_takes(&name, message);
        if let Some(ack) = ack {
            self.send_event(at, Event::EdgeMessage(session, Box::new(kubeedge::decode_edge(ack))));
        }
        self.deliver(at, Event::EdgeDrained(session, 0));
    }
}
