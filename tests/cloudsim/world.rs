//! The world around the controllers: a queue of future events, an API server, a store, nodes.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use edged::controller::dynamic::access::{Access, READS, RequestUser};
use edged::controller::event::{CallId, Event, WatchId};
use edged::controller::identity::{EnrolAgain, Identity};
use edged::controller::time::{Instant, Now, Wall};
use edged::controller::{AccessRules, Authority, Candidate, Config, Controller, SyncStore};
use edged::model::any_api::AnyCall;
use edged::model::api::{Call, Kind};
use edged::model::link::Session;
use edged::model::message::Message;
use edged::model::meta::Revision;
use edged::model::sync::{Change, Record};

use crate::any_cluster::AnyCluster;
use crate::chance::Chance;
use crate::check::Check;
use crate::cluster::Cluster;
use crate::faults::{Class, Faults, Size, TICK_MS};
use crate::node::{Behaviour, Node};
use crate::rule::judge;
use crate::tally::Tally;
use crate::trace::trace;

/// 2027-01-15, milliseconds since 1970, when the world begins.
pub const TODAY_MS: i64 = 1_800_000_000_000;
/// A session without a sign of life ends after this time.
pub const KEEPALIVE_MS: u64 = 30_000;
/// Exists for a while, and never again afterwards.
pub const MORTAL: &str = "mortal";

/// Node, kind, namespace and name.
pub type RowKey = (String, Kind, String, String);

pub struct World {
    /// Milliseconds since the world began.
    pub now: u64,
    /// All random draws.
    pub chance: Chance,
    /// The current rates of faults.
    pub faults: Faults,
    /// The class of the world.
    pub class: Class,
    /// The sizes of the world.
    pub size: Size,
    pub cluster: Cluster,
    /// What nodes watch through their `MetaServers`.
    pub any: AnyCluster,
    /// The API server is down until this time.
    pub api_down_until: u64,
    /// The controllers.
    pub replicas: Vec<Replica>,
    /// The nodes, by name.
    pub nodes: BTreeMap<String, Node>,
    /// Sessions that are requested or up.
    pub links: BTreeMap<Session, Link>,
    /// The table of a controller that stores its records itself, and the stored data of
    /// certificates.
    pub rows: BTreeMap<RowKey, Record>,
    pub identities: BTreeMap<Box<str>, Identity>,
    /// The rules.
    pub check: Check,
    /// The counts.
    pub tally: Tally,
    /// When the mortal node dies.
    pub mortal_until: u64,
    /// Users and faults have stopped.
    pub is_over: bool,
    pub(crate) last_session: u64,
    queue: BTreeMap<(u64, u64), Due>,
    order: u64,
    fed_version: u64,
    fed_any_version: u64,
}

pub struct Replica {
    /// `None`: it is not running.
    pub core: Option<Controller>,
    /// The number of lives so far.
    pub life: u64,
    /// Each replica has its own clocks.
    boot_ms: u64,
    wall_ms: i64,
    /// It is frozen until this time.
    pub frozen_until: u64,
    /// Events that it will receive then.
    inbox: VecDeque<Event>,
    /// When it was stopped.
    pub stopping: Option<u64>,
    /// Watches, and the version up to which each has reported.
    pub watches: BTreeMap<WatchId, Watch>,
    /// The same of Services.
    pub any_watches: BTreeMap<WatchId, AnyWatch>,
    /// A save is under way.
    pub saving: bool,
    wake: Option<u64>,
}

/// A watch of a replica.
#[derive(Clone, Copy)]
pub struct Watch {
    pub kind: Kind,
    /// Reported up to this version.
    pub version: u64,
    /// It is about to report.
    pub is_due: bool,
}

/// A watch of Services.
#[derive(Clone, Copy)]
pub struct AnyWatch {
    /// Reported up to this version.
    pub version: u64,
    /// It is about to report.
    pub is_due: bool,
}

pub struct Link {
    pub node: String,
    pub replica: usize,
    /// The upgrade is answered.
    pub is_on: bool,
    /// When the certificate was issued.
    pub made_s: i64,
    /// The node no longer has the session, and the replica has not noticed.
    pub half_open: bool,
    /// The last sign of life that was delivered.
    pub alive_at: u64,
    /// Messages stay in order both ways.
    pub up_at: u64,
    pub down_at: u64,
}

/// A future event; those of a replica belong to one of its lives.
pub enum Due {
    Tell(usize, u64, Box<Event>),
    Call(usize, u64, CallId, Box<Call>),
    List(usize, u64, WatchId, Kind),
    CallAny(usize, u64, CallId, Box<AnyCall>),
    ListAny(usize, u64, WatchId),
    FeedAny(usize, u64, WatchId),
    Feed(usize, u64, WatchId),
    Save(usize, u64, Revision, Vec<Change>),
    ToNode(Session, Box<Message>),
    Thaw(usize, u64),
    Begin(usize),
    Node(String),
    Tick,
    UserChange,
}

impl World {
    /// A new world, in which nothing runs yet.
    pub fn new(seed: u64) -> Self {
        let mut chance = Chance::new(seed);
        let class = Class::of(seed);
        let faults = Faults::draw(class, &mut chance);
        let size = Size::draw(class, &mut chance);
        let mut nodes: BTreeMap<String, Node> = BTreeMap::new();
        let mut add =
            |name: String, behaviour| drop(nodes.insert(name.clone(), Node::new(name, behaviour)));
        (0..size.nodes).for_each(|at| add(format!("e{at}"), Behaviour::Honest));
        (0..faults.liars).for_each(|at| add(format!("liar{at}"), Behaviour::Lies));
        (0..faults.hostile).for_each(|at| add(format!("hostile{at}"), Behaviour::Attacks));
        add(MORTAL.to_owned(), Behaviour::Honest);
        let mut world = Self {
            now: 0,
            mortal_until: chance.below(size.live_ms),
            replicas: (0..size.replicas).map(|_| Replica::new(&mut chance)).collect(),
            chance,
            faults,
            class,
            size,
            cluster: Cluster::default(),
            any: AnyCluster::default(),
            api_down_until: 0,
            nodes,
            links: BTreeMap::new(),
            rows: BTreeMap::new(),
            identities: BTreeMap::new(),
            check: Check::default(),
            tally: Tally::default(),
            is_over: false,
            last_session: 0,
            queue: BTreeMap::new(),
            order: 0,
            fed_version: 0,
            fed_any_version: 0,
        };
        trace!(0, "seed {seed}: {class:?}, {size:?}");
        trace!(0, "{:?}", world.faults);
        for at in 0..world.size.replicas {
            world.at(0, Due::Begin(at));
        }
        for name in world.nodes.keys().cloned().collect::<Vec<_>>() {
            let ms = world.chance.below(2_000);
            world.at(ms, Due::Node(name));
        }
        world.at(1, Due::Tick);
        world.at(2, Due::UserChange);
        world
    }

    /// Runs the whole seed, and returns the simulated milliseconds.
    pub fn live(&mut self) -> u64 {
        self.run_until(self.size.live_ms);
        self.end_faults();
        self.settle();
        self.stay_quiet();
        self.now
    }

    /// Schedules an event in this many milliseconds.
    pub fn at(&mut self, in_ms: u64, due: Due) {
        self.order += 1;
        self.queue.insert((self.now + in_ms, self.order), due);
    }

    /// The world's clock, by which the nodes' certificates are issued; seconds since 1970.
    pub fn wall_s(&self) -> i64 {
        (TODAY_MS + self.now as i64) / 1_000
    }

    /// Lets time pass up to `end`.
    pub fn run_until(&mut self, end: u64) {
        loop {
            self.feed();
            let due_at = self.queue.first_key_value().map(|((at, _), _)| *at);
            let wakes = self.replicas.iter().enumerate();
            let wake = wakes.filter_map(|(at, it)| Some((it.wake?.max(it.frozen_until), at))).min();
            let (at, replica) = match (due_at, wake) {
                (Some(due), Some((wake, replica))) if wake < due => (wake, Some(replica)),
                (Some(due), _) => (due, None),
                (None, Some((wake, replica))) => (wake, Some(replica)),
                (None, None) => break,
            };
            if at > end {
                break;
            }
            self.now = at.max(self.now);
            if let Some(replica) = replica {
                self.step(replica);
            } else {
                let (_, due) = self.queue.pop_first().expect("just seen");
                self.happen(due);
            }
        }
        self.now = end;
    }

    /// Watches with pending changes report them after a while.
    fn feed(&mut self) {
        if self.fed_any_version != self.any.version {
            self.fed_any_version = self.any.version;
            self.feed_any();
        }
        if self.fed_version == self.cluster.version {
            return;
        }
        self.fed_version = self.cluster.version;
        for at in 0..self.replicas.len() {
            let idle = self.replicas[at].watches.iter().filter(|(_, watch)| !watch.is_due);
            let idle: Vec<(WatchId, Kind, u64)> =
                idle.map(|(id, watch)| (*id, watch.kind, watch.version)).collect();
            for (id, kind, version) in idle {
                if self.cluster.after(kind, version) != Ok(None) {
                    self.feed_soon(at, id);
                }
            }
        }
    }

    /// This watch reports after a while.
    pub fn feed_soon(&mut self, at: usize, id: WatchId) {
        let ms = self.chance.below(self.faults.watch_ms + 1);
        let replica = &mut self.replicas[at];
        if let Some(watch) = replica.watches.get_mut(&id) {
            watch.is_due = true;
            let life = replica.life;
            self.at(ms, Due::Feed(at, life, id));
        }
    }

    fn happen(&mut self, due: Due) {
        match due {
            Due::Tell(at, life, event) => {
                if self.replicas[at].life == life {
                    self.deliver(at, *event);
                }
            }
            Due::Call(at, life, id, call) => self.call(at, life, id, &call),
            Due::List(at, life, id, kind) => self.list(at, life, id, kind),
            Due::CallAny(at, life, id, call) => self.call_any(at, life, id, &call),
            Due::ListAny(at, life, id) => self.list_any(at, life, id),
            Due::FeedAny(at, life, id) => {
                let frozen_ms = self.frozen_ms(at);
                match frozen_ms {
                    Some(ms) => self.at(ms, Due::FeedAny(at, life, id)),
                    None => self.any_watch_tells(at, life, id),
                }
            }
            Due::Feed(at, life, id) => match self.frozen_ms(at) {
                Some(ms) => self.at(ms, Due::Feed(at, life, id)),
                None => self.watch_tells(at, life, id),
            },
            Due::Save(at, life, revision, changes) => self.save(at, life, revision, changes),
            Due::ToNode(session, message) => self.arrive(session, &message),
            Due::Thaw(at, life) => {
                if self.replicas[at].life == life {
                    self.thaw(at, life);
                }
            }
            Due::Begin(at) => self.begin(at),
            Due::Node(name) => self.node_turns(&name),
            Due::Tick => {
                self.tick();
                self.at(TICK_MS, Due::Tick);
            }
            Due::UserChange => self.users_change(),
        }
    }

    /// How long a replica is still frozen; `None`: it is not, and has handled all that came.
    fn frozen_ms(&self, at: usize) -> Option<u64> {
        let replica = &self.replicas[at];
        let frozen_ms = replica.frozen_until.saturating_sub(self.now);
        (frozen_ms > 0 || !replica.inbox.is_empty()).then_some(frozen_ms)
    }

    /// A replica begins a life.
    fn begin(&mut self, at: usize) {
        if self.replicas[at].core.is_some() {
            return;
        }
        let seed = self.chance.bits();
        let candidate = Candidate { identity: format!("r{at}-{seed}"), namespace: "k".to_owned() };
        let config = Config {
            authority: Authority { certificate: [1].into(), key: [2; 32].into() },
            certificate_days: 365,
            enrol_again: EnrolAgain::Refuse,
            namespace: "k".into(),
            keepalive_ms: KEEPALIVE_MS,
            nodes_max: 10_000,
            api_authority: None,
            sync: self.size.sync,
            candidate: Some(candidate).filter(|_| self.size.sync == SyncStore::Objects),
            replica: Some(edged::controller::Replica {
                address: format!("192.0.2.{at}"),
                namespace: "k".to_owned(),
            }),
            access: Some(Access::parse(READS, "", RequestUser::Controller).expect("a list")),
            access_rules: AccessRules::On,
        };
        let now = self.now;
        let replica = &mut self.replicas[at];
        replica.life += 1;
        replica.boot_ms = self.chance.below(1 << 30);
        replica.wall_ms = TODAY_MS + self.chance.below(1 << 20) as i64;
        replica.stopping = None;
        replica.frozen_until = now;
        replica.saving = false;
        replica.core = Some(Controller::boot(config, replica.clock(now), seed));
        trace!(now, "======== r{at} begins its life {}", replica.life);
        let identities = self.identities.values().cloned().collect();
        self.deliver(at, Event::Identities(identities));
        let rows = self.rows.values().cloned().collect();
        self.deliver(at, Event::Loaded(rows));
    }

    /// A replica ends, for whatever reason; its requests take effect or not.
    pub fn end(&mut self, at: usize) {
        let life = self.replicas[at].life;
        let is_its = |due: &Due| match due {
            Due::Tell(of, in_life, _)
            | Due::Call(of, in_life, ..)
            | Due::List(of, in_life, ..)
            | Due::CallAny(of, in_life, ..)
            | Due::ListAny(of, in_life, _)
            | Due::FeedAny(of, in_life, _)
            | Due::Feed(of, in_life, _)
            | Due::Thaw(of, in_life)
            | Due::Save(of, in_life, ..) => (*of, *in_life) == (at, life),
            Due::ToNode(..) | Due::Begin(_) | Due::Node(_) | Due::Tick | Due::UserChange => false,
        };
        let (its, others) =
            std::mem::take(&mut self.queue).into_iter().partition(|(_, it)| is_its(it));
        self.queue = others;
        let its: BTreeMap<(u64, u64), Due> = its;
        for due in its.into_values() {
            match due {
                Due::Save(_, _, _, changes) if self.chance.percent(50) => self.keep(changes),
                Due::Call(_, _, _, call) if self.chance.percent(50) && self.api_is_up() => {
                    drop(self.execute(at, &call));
                }
                _ => {}
            }
        }
        let replica = &mut self.replicas[at];
        replica.core = None;
        replica.wake = None;
        replica.watches.clear();
        replica.any_watches.clear();
        replica.inbox.clear();
        let own = self.links.iter().filter(|(_, link)| link.replica == at);
        let own: BTreeSet<Session> = own.map(|(session, _)| *session).collect();
        for session in own {
            self.unlink(session);
        }
    }

    /// Whether the API server answers.
    pub fn api_is_up(&self) -> bool {
        self.now >= self.api_down_until
    }

    /// An event reaches a replica, which takes a step.
    pub fn deliver(&mut self, at: usize, event: Event) {
        let now = self.now;
        if self.replicas[at].core.is_none() {
            return;
        }
        // A frozen replica receives them all later, in order.
        let replica = &mut self.replicas[at];
        if replica.frozen_until > now || !replica.inbox.is_empty() {
            if replica.inbox.is_empty() {
                let (ms, life) = (replica.frozen_until - now, replica.life);
                self.at(ms, Due::Thaw(at, life));
            }
            self.replicas[at].inbox.push_back(event);
            return;
        }
        self.deliver_now(at, event);
    }

    /// A frozen replica continues.
    fn thaw(&mut self, at: usize, life: u64) {
        let frozen_ms = self.replicas[at].frozen_until.saturating_sub(self.now);
        if frozen_ms > 0 {
            return self.at(frozen_ms, Due::Thaw(at, life));
        }
        while self.replicas[at].life == life
            && let Some(event) = self.replicas[at].inbox.pop_front()
        {
            self.deliver_now(at, event);
        }
    }

    fn deliver_now(&mut self, at: usize, event: Event) {
        let now = self.now;
        // No event of an ended session follows: the event loop guarantees that.
        if let Event::EdgeMessage(session, _)
        | Event::EdgeBadMessage(session, _)
        | Event::EdgeDrained(session, _)
        | Event::EdgeDown(session, _) = &event
        {
            let Some(link) = self.links.get_mut(session) else { return };
            match &event {
                Event::EdgeMessage(_, message) if &*message.route.operation == "keepalive" => {
                    link.alive_at = now;
                }
                Event::EdgeMessage(_, message) if &*message.route.operation == "response" => {
                    self.check.acknowledged(&message.header.parent_id);
                }
                Event::EdgeDown(..) => drop(self.links.remove(session)),
                _ => {}
            }
        }
        if let Event::Called(id, _) = &event {
            self.check.answered((at, self.replicas[at].life, *id));
        }
        let replica = &mut self.replicas[at];
        let clock = replica.clock(now);
        replica.core.as_mut().expect("just seen").handle(clock, event);
        self.step(at);
    }

    /// A replica takes a step.
    pub fn step(&mut self, at: usize) {
        self.tally.steps += 1;
        let now = self.now;
        let replica = &mut self.replicas[at];
        let clock = replica.clock(now);
        let Some(core) = &mut replica.core else { return };
        let mut out = edged::controller::event::Out::default();
        core.step(clock, &mut out);
        let wake = core.wake_at();
        judge!(
            wake.is_none_or(|wake| wake > clock.boot),
            "[wake later] r{at} wants to wake at {wake:?}, and it is {:?}",
            clock.boot
        );
        replica.wake = wake.map(|wake| wake.0 - replica.boot_ms);
        Check::stepped(at, out.actions.len());
        let life = replica.life;
        for action in out.actions {
            self.perform(at, action);
            if self.replicas[at].life != life || self.replicas[at].core.is_none() {
                return;
            }
        }
        self.check_revoked(at);
        self.check_leaders(at);
    }
}

impl Replica {
    fn new(chance: &mut Chance) -> Self {
        Self {
            core: None,
            life: 0,
            boot_ms: chance.below(1 << 30),
            wall_ms: TODAY_MS,
            frozen_until: 0,
            inbox: VecDeque::new(),
            stopping: None,
            watches: BTreeMap::new(),
            any_watches: BTreeMap::new(),
            saving: false,
            wake: None,
        }
    }

    fn clock(&self, now: u64) -> Now {
        Now { boot: Instant(self.boot_ms + now), wall: Some(Wall(self.wall_ms + now as i64)) }
    }

    /// Whether it considers itself the leader.
    pub fn leads(&self) -> bool {
        self.core.as_ref().is_some_and(|core| core.counters().leads)
    }

    /// The same, at this moment and not at its last step: it is about to wake by then.
    pub fn leads_now(&self, now: u64) -> bool {
        self.wake.is_none_or(|wake| wake > now) && self.leads()
    }

    /// The version up to which it has this kind; `None`: it is listing.
    pub fn knows(&self, kind: Kind) -> Option<u64> {
        self.watches.values().filter(|it| it.kind == kind).map(|it| it.version).max()
    }
}
