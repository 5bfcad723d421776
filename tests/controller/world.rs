//! The controller between an API server, a store and nodes, all of them in memory. Its requests
//! take effect after a delay: none in stories, random ones in the simulator.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use edged::controller::event::{Action, Answer, CallId, Event, Exchange, Out, Peer, WatchFact};
use edged::controller::event::{Refusal, WatchId};
use edged::controller::identity::{EnrolAgain, Identity};
use edged::controller::time::{Instant, Now, Rng, Wall};
use edged::controller::{AccessRules, Authority, Candidate, Config, Controller, SyncStore};
use edged::model::any_api::AnyCall;
use edged::model::api::{Call, CallError, Kind};
use edged::model::application::Gvr;
use edged::model::link::Session;
use edged::model::message::Message;
use edged::model::meta::{DiskError, Revision};
use edged::model::router::{NodeRuleRow, RouterAction, RouterEvent};
use edged::model::sync::{Change, Record};
use edged::wire::kubeedge;

use super::any_cluster::AnyCluster;
use super::cluster::{Cluster, raw, refused};
use super::edge::Edge;

/// Probabilities of faults, in thousandths.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    pub call_lost: u64,
    pub save_fails: u64,
    pub watch_ends: u64,
    /// The longest delay of an operation.
    pub delay_ms: u64,
}

pub type RowKey = (String, Kind, String, String);

/// An event under way.
enum Fact {
    ToController(Event),
    Call(CallId, Box<Call>),
    List(WatchId, Kind),
    CallAny(CallId, Box<AnyCall>),
    ListAny(WatchId, Arc<Gvr>),
    Save(Revision, Vec<Change>),
    ToEdge(Session, Box<Message>),
}

pub struct World {
    pub now: Now,
    pub rng: Rng,
    pub faults: Faults,
    pub sync: SyncStore,
    pub cluster: Cluster,
    /// Resources of any kind.
    pub any: AnyCluster,
    /// All calls about them.
    pub any_calls: Vec<AnyCall>,
    any_watches: BTreeMap<WatchId, (Arc<Gvr>, u64)>,
    /// The API server answers nothing about them.
    pub any_is_silent: bool,
    /// Its answers to calls about them take so long to arrive.
    pub any_answers_after_ms: u64,
    /// Its answers to calls about all other objects take so long.
    pub answers_after_ms: u64,
    pub controller: Controller,
    pub rows: BTreeMap<RowKey, Record>,
    pub edges: BTreeMap<String, Edge>,
    pub sessions: BTreeMap<Session, String>,
    pub refused: Vec<Refusal>,
    pub closed: Vec<(Session, String)>,
    pub answers: Vec<(Exchange, Answer)>,
    /// What was decided about stream tunnels.
    pub tunnels: Vec<Action>,
    pub signs: Vec<(Exchange, String)>,
    pub logs: Vec<String>,
    /// Stored data of nodes' certificates.
    pub identities: Vec<Identity>,
    /// What the router requested, but rows.
    pub routed: Vec<RouterAction>,
    /// Stored data of what nodes were told of rules.
    pub rule_rows: BTreeSet<NodeRuleRow>,
    pub lists: usize,
    pub exited: bool,
    /// Bytes in the event loop for nodes that accept nothing.
    pub unsent_bytes: usize,
    /// The most messages to nodes in one step.
    pub sends_at_once: usize,
    /// The most rules of service accounts that were put together in one step.
    pub computed_at_once: u64,
    /// All calls.
    pub calls: Vec<Call>,
    /// Calls about these objects are refused by these statuses.
    pub forbidden: Vec<(Kind, String, u16)>,
    /// Watches of these kinds bring nothing.
    pub late: Vec<Kind>,
    /// Of each life.
    config: fn() -> Config,
    /// The version up to which each watch has reported.
    watches: BTreeMap<WatchId, (Kind, u64)>,
    on_the_way: BTreeMap<(u64, u64), (u64, Fact)>,
    /// Session requests without an answer.
    requested: BTreeSet<Session>,
    /// Messages to nodes stay in order.
    arrives_at: BTreeMap<Session, u64>,
    last: u64,
    last_session: u64,
    life: u64,
}

pub fn config() -> Config {
    Config {
        authority: Authority { certificate: [1].into(), key: [2; 32].into() },
        certificate_days: 365,
        enrol_again: EnrolAgain::Refuse,
        namespace: "k".into(),
        keepalive_ms: 30_000,
        nodes_max: 10_000,
        api_authority: None,
        sync: SyncStore::Table,
        candidate: None,
        replica: None,
        access: None,
        access_rules: AccessRules::Off,
    }
}

impl World {
    pub fn new(seed: u64, cluster: Cluster, faults: Faults) -> Self {
        Self::keeping(SyncStore::Table, seed, cluster, faults)
    }

    /// As [`World::new`], with records stored there.
    pub fn keeping(sync: SyncStore, seed: u64, cluster: Cluster, faults: Faults) -> Self {
        Self::with(config, sync, seed, cluster, faults)
    }

    /// As [`World::keeping`], with this configuration.
    pub fn with(
        config: fn() -> Config,
        sync: SyncStore,
        seed: u64,
        cluster: Cluster,
        faults: Faults,
    ) -> Self {
        let now = Now { boot: Instant(1_000), wall: Some(Wall(1_800_000_000_000)) };
        let mut world = Self {
            now,
            rng: Rng::new(seed),
            faults,
            sync,
            cluster,
            any: AnyCluster::default(),
            any_calls: Vec::new(),
            any_watches: BTreeMap::new(),
            any_is_silent: false,
            any_answers_after_ms: 0,
            answers_after_ms: 0,
            controller: Controller::boot(config(), now, seed),
            rows: BTreeMap::new(),
            edges: BTreeMap::new(),
            sessions: BTreeMap::new(),
            refused: Vec::new(),
            closed: Vec::new(),
            answers: Vec::new(),
            tunnels: Vec::new(),
            signs: Vec::new(),
            logs: Vec::new(),
            identities: Vec::new(),
            routed: Vec::new(),
            rule_rows: BTreeSet::new(),
            lists: 0,
            exited: false,
            unsent_bytes: 0,
            sends_at_once: 0,
            computed_at_once: 0,
            calls: Vec::new(),
            forbidden: Vec::new(),
            late: Vec::new(),
            config,
            watches: BTreeMap::new(),
            on_the_way: BTreeMap::new(),
            requested: BTreeSet::new(),
            arrives_at: BTreeMap::new(),
            last: 0,
            last_session: 0,
            life: 0,
        };
        world.start();
        world
    }

    fn start(&mut self) {
        let seed = self.rng.bits();
        let candidate = Candidate { identity: format!("life-{seed}"), namespace: "k".to_owned() };
        let candidate = Some(candidate).filter(|_| self.sync == SyncStore::Objects);
        let config = Config { sync: self.sync, candidate, ..(self.config)() };
        self.controller = Controller::boot(config, self.now, seed);
        let rows = self.rows.values().cloned().collect();
        self.send_event(Event::Loaded(rows));
        let rows = self.rule_rows.iter().cloned().collect();
        self.send_event(Event::Router(Box::new(RouterEvent::Loaded(rows))));
    }

    /// The controller dies, with everything that it had not requested yet, and is started again.
    pub fn crash(&mut self) {
        self.life += 1;
        // Saves and calls under way have taken effect or not.
        let all = std::mem::take(&mut self.on_the_way);
        let done = self.chance(500);
        for (at, (life, fact)) in all {
            match fact {
                Fact::Save(_, changes) if done => {
                    for change in changes {
                        self.keep(change);
                    }
                }
                Fact::Call(_, call) if done => drop(self.cluster.call(&call)),
                Fact::Save(..) | Fact::Call(..) => {}
                other => drop(self.on_the_way.insert(at, (life, other))),
            }
        }
        self.watches.clear();
        self.any_watches.clear();
        self.requested.clear();
        self.sessions.clear();
        self.start();
    }

    fn chance(&mut self, thousandths: u64) -> bool {
        thousandths > 0 && self.rng.below(1000) < thousandths
    }

    fn later(&mut self, fact: Fact) {
        let delay =
            if self.faults.delay_ms == 0 { 0 } else { self.rng.below(self.faults.delay_ms) };
        let mut at = self.now.boot.0 + delay;
        if let Fact::ToEdge(session, _) = &fact {
            let before = self.arrives_at.entry(*session).or_default();
            at = at.max(*before);
            *before = at;
        }
        if let Fact::ToController(Event::EdgeMessage(session, _)) = &fact {
            // The other direction is in order as well.
            let before = self.arrives_at.entry(Session(session.0 | 1 << 40)).or_default();
            at = at.max(*before);
            *before = at;
        }
        self.last += 1;
        self.on_the_way.insert((at, self.last), (self.life, fact));
    }

    fn answer_call(&mut self, answer: Event, after_ms: u64) {
        if after_ms == 0 {
            return self.send_event(answer);
        }
        let at = self.now.boot.0 + after_ms;
        self.last += 1;
        self.on_the_way.insert((at, self.last), (self.life, Fact::ToController(answer)));
    }

    fn send_event(&mut self, event: Event) {
        self.later(Fact::ToController(event));
    }

    // ---- the hands ----

    fn perform(&mut self, action: Action) {
        match action {
            Action::Accept(session) => assert!(self.requested.remove(&session), "not requested"),
            Action::Refuse(session, refusal) => {
                assert!(self.requested.remove(&session), "not requested");
                self.sessions.remove(&session);
                self.refused.push(refusal);
            }
            Action::Send(session, message) => {
                assert!(!self.requested.contains(&session), "sent before it is on");
                let Some(node) = self.sessions.get(&session).cloned() else { return };
                let message = Box::new(kubeedge::encode_cloud(&message));
                if self.edges[&node].stuck {
                    self.unsent_bytes += message.content.map_or(0, |it| it.get().len());
                } else {
                    self.later(Fact::ToEdge(session, message));
                }
            }
            Action::Close(session, why) => {
                self.sessions.remove(&session);
                self.closed.push((session, why));
            }
            Action::AcceptTunnel(..) | Action::RefuseTunnel(..) | Action::CloseTunnel(..) => {
                self.tunnels.push(action);
            }
            Action::Answer(exchange, answer) => self.answers.push((exchange, answer)),
            Action::Sign { exchange, node, .. } => {
                self.signs.push((exchange, node));
                self.send_event(Event::Signed(exchange, Ok([9].into())));
            }
            Action::Call(id, call) => {
                self.calls.push((*call).clone());
                self.later(Fact::Call(id, call));
            }
            Action::List(watch, kind) => {
                self.lists += 1;
                self.later(Fact::List(watch, kind));
            }
            Action::Watch(watch, kind, version) => {
                self.watches.insert(watch, (kind, version.parse().expect("a version")));
            }
            Action::CallAny(id, call) => {
                self.any_calls.push((*call).clone());
                if !self.any_is_silent {
                    self.later(Fact::CallAny(id, call));
                }
            }
            Action::ListAny(watch, resource) => {
                if !self.any_is_silent {
                    self.later(Fact::ListAny(watch, resource));
                }
            }
            Action::WatchAny(watch, resource, version) => {
                self.any_watches.insert(watch, (resource, version.parse().expect("a version")));
            }
            Action::Unwatch(watch) => {
                self.watches.remove(&watch);
                self.any_watches.remove(&watch);
            }
            Action::Save { revision, changes } => self.later(Fact::Save(revision, changes)),
            Action::KeepIdentity(identity) => self.identities.push(identity),
            Action::Router(action) => match *action {
                RouterAction::Keep(row, true) => drop(self.rule_rows.insert(row)),
                RouterAction::Keep(row, false) => drop(self.rule_rows.remove(&row)),
                other => self.routed.push(other),
            },
            Action::Log(_, line) => self.logs.push(line),
            Action::Exit => self.exited = true,
        }
    }

    fn happen(&mut self, fact: Fact) {
        match fact {
            Fact::ToController(event) => self.hand_in(event),
            Fact::Call(id, call) => {
                self.before_removal(&call);
                let of_it = |it: &&(Kind, String, u16)| (it.0, &*it.1) == (call.kind, &*call.name);
                if let Some((_, _, code)) = self.forbidden.iter().find(of_it) {
                    let result = Err(refused(*code, "Forbidden"));
                    return self.send_event(Event::Called(id, result));
                }
                let rate = self.faults.call_lost;
                let done = self.chance(500);
                let result = if self.chance(rate) {
                    if done {
                        let _ = self.cluster.call(&call);
                    }
                    Err(CallError::Lost("drawn".to_owned()))
                } else {
                    self.cluster.call(&call)
                };
                self.answer_call(Event::Called(id, result), self.answers_after_ms);
            }
            Fact::List(watch, kind) if self.cluster.unserved.contains(&kind) => {
                self.hand_in(Event::Watched(watch, WatchFact::Unserved));
            }
            Fact::List(watch, kind) => {
                let objects = self.cluster.list(kind);
                let version = self.cluster.version.to_string().into();
                self.hand_in(Event::Watched(watch, WatchFact::Listed(objects)));
                self.hand_in(Event::Watched(watch, WatchFact::ListEnd(version)));
            }
            Fact::CallAny(id, call) => {
                let answer = Event::Called(id, self.any.call(&call));
                self.answer_call(answer, self.any_answers_after_ms);
            }
            Fact::ListAny(watch, resource) => match self.any.list(&resource) {
                Ok(objects) => {
                    let version = self.any.version.to_string().into();
                    self.hand_in(Event::Watched(watch, WatchFact::Listed(objects)));
                    self.hand_in(Event::Watched(watch, WatchFact::ListEnd(version)));
                }
                Err((code, status)) => {
                    self.hand_in(Event::Watched(watch, WatchFact::Refused(code, status)));
                }
            },
            Fact::Save(revision, changes) => {
                let rate = self.faults.save_fails;
                if self.chance(rate) {
                    let error = DiskError::Failed("drawn".to_owned());
                    return self.send_event(Event::SaveFailed(revision, error));
                }
                for change in changes {
                    self.keep(change);
                }
                self.send_event(Event::Saved(revision));
            }
            Fact::ToEdge(session, message) => self.arrive(session, &message),
        }
    }

    fn keep(&mut self, change: Change) {
        match change {
            Change::Put(row) => {
                let key = (row.node.to_string(), row.kind, row.namespace.to_string());
                self.rows.insert((key.0, key.1, key.2, row.name.to_string()), row);
            }
            Change::Delete { node, kind, namespace, name } => {
                self.record_removed(&node, kind, &name);
                let key = (node.to_string(), kind, namespace.to_string(), name.to_string());
                self.rows.remove(&key);
            }
        }
    }

    fn arrive(&mut self, session: Session, message: &Message) {
        let Some(name) = self.sessions.get(&session) else { return };
        let edge = self.edges.get_mut(name).expect("it has a session");
        if let Some(ack) = edge.take(message) {
            self.send_event(Event::EdgeMessage(session, Box::new(kubeedge::decode_edge(ack))));
        }
        self.hand_in(Event::EdgeDrained(session, 0));
    }

    fn hand_in(&mut self, event: Event) {
        // No event of an ended session follows: the event loop guarantees that.
        if let Event::EdgeMessage(session, _) = &event
            && !self.sessions.contains_key(session)
        {
            return;
        }
        self.controller.handle(self.now, event);
        self.step();
    }

    fn step(&mut self) {
        let mut out = Out::default();
        let has_rules = (self.config)().access_rules == AccessRules::On;
        let computed = |of: &Controller| if has_rules { of.counters().policy_computed } else { 0 };
        let before = computed(&self.controller);
        self.controller.step(self.now, &mut out);
        let at_once = computed(&self.controller) - before;
        self.computed_at_once = self.computed_at_once.max(at_once);
        let sends = out.actions.iter().filter(|action| matches!(action, Action::Send(..)));
        self.sends_at_once = self.sends_at_once.max(sends.count());
        for action in out.actions {
            self.perform(action);
        }
        if let Some(at) = self.controller.wake_at() {
            assert!(at > self.now.boot, "it wants to wake in the past");
        }
    }

    fn feed_any_watches(&mut self) {
        for (watch, (resource, version)) in self.any_watches.clone() {
            let next = self.any.after(&resource, version);
            let next = next.map(|next| next.map(|(at, gone, object)| (at, gone, raw(object))));
            let fact = match next {
                Err(()) => {
                    self.any_watches.remove(&watch);
                    WatchFact::Gone
                }
                Ok(None) => continue,
                Ok(Some((at, gone, object))) => {
                    self.any_watches.insert(watch, (resource, at));
                    if gone { WatchFact::Deleted(object) } else { WatchFact::Changed(object) }
                }
            };
            self.hand_in(Event::Watched(watch, fact));
        }
    }

    fn feed_watches(&mut self) {
        self.feed_any_watches();
        for (watch, (kind, version)) in self.watches.clone() {
            if self.late.contains(&kind) {
                continue;
            }
            let next = self
                .cluster
                .after(kind, version)
                .map(|next| next.map(|(at, gone, object)| (at, gone, raw(object))));
            let ends = self.faults.watch_ends;
            let fact = match next {
                Err(()) => {
                    self.watches.remove(&watch);
                    WatchFact::Gone
                }
                Ok(_) if self.chance(ends) => {
                    self.watches.remove(&watch);
                    WatchFact::Ended("drawn".to_owned())
                }
                Ok(None) => continue,
                Ok(Some((at, gone, object))) => {
                    self.watches.insert(watch, (kind, at));
                    if gone { WatchFact::Deleted(object) } else { WatchFact::Changed(object) }
                }
            };
            self.hand_in(Event::Watched(watch, fact));
        }
    }

    /// Everything happens that is due now, or within this time.
    pub fn pass(&mut self, ms: u64) {
        let end = self.now.boot.0 + ms;
        loop {
            let pending = |world: &Self| {
                let mut watches = world.watches.values();
                let mut any = world.any_watches.values();
                watches.any(|(kind, at)| {
                    !world.late.contains(kind) && world.cluster.after(*kind, *at) != Ok(None)
                }) || any.any(|(resource, at)| world.any.after(resource, *at) != Ok(None))
            };
            if pending(self) {
                self.feed_watches();
                continue;
            }
            let fact_at = self.on_the_way.first_key_value().map(|((at, _), _)| *at);
            let wake_at = self.controller.wake_at().map(|at| at.0);
            let Some(at) = fact_at.into_iter().chain(wake_at).min().filter(|at| *at <= end) else {
                break;
            };
            if at > self.now.boot.0 {
                let by = at - self.now.boot.0;
                self.now.boot = Instant(at);
                self.now.wall = self.now.wall.map(|wall| Wall(wall.0 + by as i64));
            }
            if fact_at.is_some_and(|fact_at| fact_at <= at) {
                let (_, (life, fact)) = self.on_the_way.pop_first().expect("just seen");
                // Events for a controller that died do not reach the next one.
                if life == self.life {
                    self.happen(fact);
                }
            } else {
                self.step();
            }
        }
        let by = end - self.now.boot.0;
        self.now.boot = Instant(end);
        self.now.wall = self.now.wall.map(|wall| Wall(wall.0 + by as i64));
    }

    /// All records of a node, wherever they are stored: kind, name, uid and version.
    pub fn records(&self, node: &str) -> Vec<(Kind, String, String, u64)> {
        if self.sync == SyncStore::Table {
            let rows = self.rows.values().filter(|row| *row.node == *node);
            let reported = rows.map(|r| (r.kind, r.name.to_string(), r.uid.to_string(), r.version));
            return reported.collect();
        }
        let reported = self.cluster.objects.iter().filter_map(|((kind, ..), object)| {
            let of_node = matches!(kind, Kind::ObjectSync | Kind::ClusterObjectSync);
            let (of, uid) = object["metadata"]["name"].as_str()?.rsplit_once('.')?;
            let kind = object["spec"]["objectKind"].as_str().filter(|_| of_node && of == node)?;
            let kind = Kind::ALL.into_iter().find(|all| all.name() == kind)?;
            let version = object["status"]["objectResourceVersion"].as_str()?.parse().ok()?;
            let name = object["spec"]["objectName"].as_str()?;
            Some((kind, name.to_owned(), uid.to_owned(), version))
        });
        reported.collect()
    }

    /// Its next life has this configuration.
    pub fn set_config(&mut self, config: fn() -> Config) {
        self.config = config;
    }

    /// Whether there is a watch of this kind.
    pub fn is_watched(&self, kind: Kind) -> bool {
        self.watches.values().any(|(of, _)| *of == kind)
    }

    /// Resources of any kind that are watched.
    pub fn any_watched(&self) -> Vec<String> {
        self.any_watches.values().map(|(resource, _)| resource.to_string()).collect()
    }

    // ---- nodes ----

    /// A node connects with its own certificate.
    pub fn connect(&mut self, name: &str) -> Session {
        self.connect_as(name, |_| ())
    }

    pub fn connect_as(&mut self, name: &str, change: impl FnOnce(&mut Peer)) -> Session {
        let edge = || Edge::new(name);
        self.edges.entry(name.to_owned()).or_insert_with(edge);
        self.last_session += 1;
        let session = Session(self.last_session);
        let mut peer = Peer {
            common_name: format!("system:node:{name}"),
            organization: "system:nodes".to_owned(),
            node_id: name.to_owned(),
            usage: "msg".to_owned(),
            ..Peer::default()
        };
        change(&mut peer);
        self.requested.insert(session);
        self.sessions.insert(session, name.to_owned());
        self.hand_in(Event::EdgeUp(session, Box::new(peer)));
        session
    }

    pub fn disconnect(&mut self, session: Session) {
        if self.sessions.remove(&session).is_some() {
            self.hand_in(Event::EdgeDown(session, "reset".to_owned()));
        }
    }

    pub fn session(&self, name: &str) -> Option<Session> {
        let on = self.sessions.iter().filter(|(session, _)| !self.requested.contains(session));
        on.filter(|(_, of)| *of == name).map(|(session, _)| *session).next_back()
    }

    /// The node sends a message.
    pub fn send(&mut self, name: &str, message: Message) -> String {
        let session = self.session(name).expect("a session that is on");
        let id = message.header.id.to_string();
        self.send_event(Event::EdgeMessage(session, Box::new(kubeedge::decode_edge(message))));
        id
    }

    pub fn edge(&mut self, name: &str) -> &mut Edge {
        self.edges.get_mut(name).expect("a node")
    }

    /// A request on the HTTPS port.
    pub fn http(&mut self, ask: edged::controller::event::HttpRequest) -> Exchange {
        self.last += 1;
        let exchange = Exchange(self.last);
        self.hand_in(Event::HttpRequest(exchange, Box::new(ask)));
        exchange
    }

    pub fn deliver(&mut self, event: Event) {
        self.hand_in(event);
    }
}
