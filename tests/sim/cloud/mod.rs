//! The cloud, the link to it and the store, drawn from the seed like everything else.
//!
//! ```text
//!  users ─▶ api ─▶ hub ─▶ link ─▶ the agent ─▶ store
//!            ▲                        │
//!            └── answers ◀── link ◀───┘
//! ```
//!
//! The draws are a separate random sequence: worlds without a cloud do not change.

mod answers;
mod api;
#[cfg(feature = "devices")]
mod devices;
#[cfg(not(feature = "devices"))]
#[path = "devices/absent.rs"]
mod devices;
mod ends;
#[cfg(feature = "metaserver")]
mod held;
#[cfg(not(feature = "metaserver"))]
#[path = "held/absent.rs"]
mod held;
mod hostile;
mod hub;
#[cfg(feature = "metaserver")]
mod informers;
#[cfg(not(feature = "metaserver"))]
#[path = "informers/absent.rs"]
mod informers;
mod link;
mod merge;
mod mirrors;
#[cfg(feature = "node-jobs")]
mod node_jobs;
#[cfg(not(feature = "node-jobs"))]
#[path = "node_jobs/absent.rs"]
mod node_jobs;
mod rates;
mod rules;
mod store;
mod traffic;

use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use edged::agent::event::{Action, Event, JobId};
use edged::agent::{Agent, Config};
use edged::model::job::JobSpec;
use edged::model::link::Validity;
use edged::model::message::Message;
use edged::model::meta::{Change, DiskError, Revision, StoreOrigin};
use edged::model::pod::Pod;
use edged::model::settings::CloudSettings;
use edged::wire::kubeedge;

use crate::chance::Chance;
use crate::check::Check;
use crate::clocks::TODAY_MS;
use crate::draw::Drawer;
use crate::faults::Class;
use crate::trace::trace;
use crate::world::{World, WorldEvent};

use api::Api;
use devices::{DeviceDue, DeviceSim};
use held::Releases;
use hub::Hub;
use informers::{InformerDue, InformerSim};
use link::Link;
use node_jobs::{JobDue, JobSim};
use rates::Rates;
use rules::Rules;
use store::{Store, Stored};

/// Between two rounds of the synchroniser.
const SYNC_MS: u64 = 5_000;
/// Between two draws of faults.
const TICK_MS: u64 = 500;

/// The cloud, the link and the store.
pub struct CloudSim {
    api: Api,
    hub: Hub,
    link: Link,
    store: Store,
    rules: Rules,
    rates: Rates,
    chance: Chance,
    life: u32,
    /// The node's certificate.
    validity: Option<Validity>,
    /// The lifetime of new certificates, seconds.
    validity_s: i64,
    /// Every dial fails before this time.
    down_until: u64,
    /// No certificate is issued before this time.
    closed_until: u64,
    answers: BTreeMap<u64, (u64, Message)>,
    last_answer: u64,
    /// Pods whose end has just become durable.
    over: Vec<Box<str>>,
    timers: Vec<(u64, Due)>,
    events: Vec<Event>,
    /// The messages in the events that the agent has not received yet.
    coming: VecDeque<Box<Message>>,
    /// The store was new or lost in some life, and the cloud assumes that the node still has its
    /// content.
    lost: bool,
    /// The save under way will fail.
    save_fails: bool,
    counts: BTreeMap<&'static str, u64>,
    devices: Option<Box<DeviceSim>>,
    node_jobs: Option<Box<JobSim>>,
    releases: Option<Releases>,
    informers: Option<Box<InformerSim>>,
}

/// A future event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// The store has finished a save, in this life.
    Saved(u32),
    /// A dial ends.
    Dialled(u64, Outcome),
    /// The first frame of the node arrives.
    Up(u64),
    /// The first frame of the cloud arrives.
    Down(u64),
    /// A message has left the agent.
    Left(u64),
    /// Checks for silence of the node.
    Silence(u64),
    /// An unacknowledged message is sent again.
    Retransmit(u64, u64),
    /// An answer is ready.
    Answer(u64),
    /// The synchroniser compares.
    Sync,
    /// Something may go wrong.
    Tick,
    /// The users change something.
    UserChange,
    /// Of devices.
    #[cfg_attr(not(feature = "devices"), expect(dead_code, reason = "no world has any"))]
    Device(DeviceDue),
    /// Of jobs for the node.
    #[cfg_attr(not(feature = "node-jobs"), expect(dead_code, reason = "no world has any"))]
    Job(JobDue),
    /// Somebody on the node releases pods.
    Release,
    /// Of informers.
    #[cfg_attr(not(feature = "metaserver"), expect(dead_code, reason = "no world has any"))]
    Informer(InformerDue),
}

/// The outcome of a dial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Up,
    /// Established for the cloud only.
    Half,
    /// The cloud keeps it open without a session on it: it has reached its number of nodes.
    Alone,
    Fails,
    /// The certificate is refused.
    Refused,
}

/// Draws the cloud of a seed, if there is one. `pods_wished`: what is left for the folder.
pub fn draw(
    class: Class,
    seed: u64,
    config: &mut Config,
    pods_wished: &mut usize,
) -> Option<Box<CloudSim>> {
    let mut chance = Chance::new(seed ^ 0x736b_7920_6162_6f76);
    // Half of the seeds: each costs as much as a world with two sources.
    if !chance.percent(50) {
        return None;
    }
    let wished = if chance.percent(40) {
        std::mem::take(pods_wished)
    } else {
        let half = *pods_wished / 2;
        *pods_wished -= half;
        half.max(1)
    };
    config.cloud = Some(CloudSettings {
        messages_per_second: *chance.pick(&[30, 30, 30, 5, 0]),
        messages_burst: *chance.pick(&[60, 60, 5]),
        remote_query_timeout_ms: *chance.pick(&[60_000, 10_000]),
        ..CloudSettings::default()
    });
    let (releases, marks) = held::draw(seed, config).unzip();
    let rates = draw_rates(class, releases.is_some(), &mut chance);
    let drawer = Drawer::beside(class, 30_000);
    let mut api = Api::new(drawer, wished, chance.percent(30), marks);
    api.heal();
    for _ in 0..chance.below(wished as u64 + 1) {
        api.add(&mut chance);
    }
    let validity_s =
        if chance.percent(20) { chance.between(600, 7_200) as i64 } else { 31_536_000 };
    let joined = chance.percent(70);
    let now_s = TODAY_MS / 1000;
    let validity = Validity { not_before_s: now_s, not_after_s: now_s + validity_s };
    let mut cloud = CloudSim {
        api,
        hub: Hub::default(),
        link: Link::default(),
        store: Store::new(),
        rules: Rules::default(),
        rates,
        chance,
        life: 0,
        validity: joined.then_some(validity),
        validity_s,
        down_until: 0,
        closed_until: 0,
        answers: BTreeMap::new(),
        last_answer: 0,
        over: Vec::new(),
        timers: vec![(1, Due::Sync), (2, Due::Tick), (3, Due::UserChange), (4, Due::Release)],
        events: Vec::new(),
        coming: VecDeque::new(),
        lost: false,
        save_fails: false,
        counts: BTreeMap::new(),
        devices: devices::draw(class, seed, config),
        node_jobs: node_jobs::draw(class, seed, config),
        releases,
        informers: None,
    };
    cloud.informers = informers::draw(class, seed, config, cloud.is_plain());
    cloud.jobs_begin();
    cloud.informers_begin();
    cloud.inform();
    Some(Box::new(cloud))
}

/// `has_held`: pods are held in this world.
fn draw_rates(class: Class, has_held: bool, chance: &mut Chance) -> Rates {
    let mut rates = match class {
        Class::Calm => Rates::calm(),
        Class::Usual | Class::Storm | Class::Crowd => Rates::draw(chance),
        Class::Site => Rates::draw(chance).rare(),
    };
    if has_held {
        // With the store it would be lost which pods were released.
        rates.lost_pct = 0;
    }
    rates
}

impl CloudSim {
    /// The images that only jobs use.
    pub fn job_images(&self) -> impl Iterator<Item = (Box<str>, u64)> {
        self.node_jobs.iter().flat_map(|_| node_jobs::offers())
    }

    /// Whether there is nothing beside the pods.
    fn is_plain(&self) -> bool {
        self.devices.is_none() && self.node_jobs.is_none() && self.releases.is_none()
    }

    fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    /// The cloud's clock, which is right.
    fn wall_s(now: u64) -> i64 {
        (TODAY_MS + now as i64) / 1000
    }

    /// Informers report the changes.
    fn inform(&mut self) {
        for change in self.api.take_changes() {
            self.hub.informed(&self.api, &change, self.rates.echoes);
            self.informers_change(&change);
        }
    }

    /// The agent receives an event, and acts on it from now on.
    pub fn received(&mut self, now: u64, event: &Event, check: &mut Check, agent: &Agent) {
        if self.lost {
            check.cloud_has(|uid| self.api.pods().any(|(_, object, _)| *object.uid == *uid));
        }
        match event {
            Event::Loaded(_) => {
                check.cloud_read();
                self.deliver_pods(now, check, agent);
            }
            Event::Saved(_) => self.deliver_pods(now, check, agent),
            Event::LinkUp(session, _) if self.link.dialling == Some(*session) => {
                self.link.dialling = None;
                self.link.known_up = Some(*session);
                self.link.unsent = 0;
            }
            Event::LinkDown(session, _) => self.link.down(*session),
            Event::Sent(session, count) if self.link.known_up == Some(*session) => {
                self.link.unsent -= count;
            }
            Event::Cloud(session, content) => {
                let mut coming = self.coming.iter();
                let at = coming.position(|it| it.header.id == content.origin.id);
                let at = at.expect("it was passed on");
                let message = self.coming.remove(at).expect("just found");
                if self.link.known_up != Some(*session) {
                    return;
                }
                trace!(
                    now,
                    "the cloud says {} {} {} {}",
                    message.route.operation,
                    message.route.resource,
                    message.header.resource_version,
                    message.header.id
                );
                self.rules.received(&message, &self.hub, &self.store);
                self.devices_message(&message);
            }
            _ => {}
        }
        self.devices_receive(now, event);
    }

    /// Only durable pods count.
    fn deliver_pods(&self, now: u64, check: &mut Check, agent: &Agent) {
        let held = self.held();
        let is_held = |pod: &Rc<Pod>| held.contains(&*pod.metadata.uid);
        let (held, free): (Vec<_>, Vec<_>) = self.store.pods().partition(is_held);
        check.received_cloud(now, free, agent);
        check.hold(now, &held);
    }

    fn begin_save(&mut self, now: u64, revision: Revision) {
        let full = now < self.store.full_until;
        let fails = self.chance.percent(self.rates.save_fail_pct);
        let ms = self.chance.below(self.rates.save_ms + 1);
        trace!(now, "save {revision:?}{}", if full || fails { ", which fails" } else { "" });
        self.save_fails = full || fails;
        self.timers.push((ms, Due::Saved(self.life)));
    }

    fn save_done(&mut self, now: u64) {
        let Some((revision, changes)) = self.store.end() else { return };
        if std::mem::take(&mut self.save_fails) {
            self.count("saves failed");
            let why = DiskError::Full("database or disk is full".to_owned());
            self.events.push(Event::SaveFailed(revision, why));
            return;
        }
        for change in changes {
            trace!(now, "    {change:?} is durable");
            let (key, stored) = match change {
                Change::Put(row) => (row.key.clone(), Some(Stored::of(row))),
                Change::Delete { key } => (key, None),
                #[cfg(feature = "metaserver")]
                Change::Item(change) => {
                    self.item_written(change);
                    continue;
                }
                #[cfg(feature = "devices")]
                Change::SubTopic(row) => panic!("no rule has {row:?}"),
                #[cfg(feature = "servicebus")]
                Change::TargetUrl(row) => panic!("no rule has {row:?}"),
                #[cfg(feature = "devices")]
                Change::Device(change) => {
                    self.devices_written(change);
                    continue;
                }
            };
            let held = self.store.get(&key);
            let there = self.api.get(&key);
            let is_there = held.zip(there).is_some_and(|(held, there)| held.uid == there.uid);
            self.rules.writes(&key, stored.as_ref(), &self.store, is_there);
            let over = stored.as_ref().filter(|stored| stored.ended.is_some());
            self.over.extend(over.map(|stored| stored.uid.clone()));
            self.devices_object_written(&key);
            self.job_written(&key, stored.as_ref().map(|stored| &stored.row));
            self.store.write(key, stored);
        }
        self.events.push(Event::Saved(revision));
    }
}

impl World {
    /// The agent makes a request of the link or the store.
    pub(crate) fn cloud_requested(&mut self, action: Action) {
        let now = self.clocks.now();
        let dial_ms = match &action {
            Action::Dial { deadline, .. } => self.clocks.world_time(*deadline).saturating_sub(now),
            _ => 0,
        };
        let cloud = self.cloud.as_mut().expect("only where there is a cloud");
        match action {
            Action::Dial { session, .. } => cloud.dial(now, session, dial_ms),
            Action::Send(session, message) => {
                let message = Box::new(kubeedge::encode(&message));
                cloud.rules.sends(now, &message, (&cloud.hub, &cloud.store, &self.check));
                cloud.devices_send(now, &message);
                cloud.send(now, session, message.clone());
                self.job_reported(&message);
            }
            Action::Ping(session) => cloud.ping(now, session),
            Action::Hangup(session) => cloud.hang_up(now, session),
            Action::Save { revision, changes } => {
                cloud.store.begin(revision, changes);
                cloud.begin_save(now, revision);
            }
            other => panic!("{other:?} is not about the cloud"),
        }
        self.cloud_settle();
    }

    /// An event of the cloud is due.
    pub(crate) fn cloud_due(&mut self, due: Due) {
        let Some(cloud) = &mut self.cloud else { return };
        let now = self.clocks.now();
        match due {
            Due::Saved(life) if life == cloud.life => cloud.save_done(now),
            Due::Saved(_) => {}
            Due::Dialled(conn, outcome) => cloud.dialled(now, conn, outcome),
            Due::Up(conn) => cloud.goes_up(now, conn),
            Due::Down(conn) => cloud.comes_down(now, conn),
            Due::Left(conn) => cloud.left(conn),
            Due::Silence(conn) => cloud.silence(now, conn),
            Due::Retransmit(conn, serial) => cloud.hub.retransmit(conn, serial),
            Due::Answer(serial) => cloud.answer(serial),
            Due::Sync => {
                cloud.hub.synchronise(&cloud.api);
                cloud.timers.push((SYNC_MS, Due::Sync));
            }
            Due::Tick => cloud.tick(now),
            Due::UserChange => cloud.users_change(now, self.faults.user_change_ms),
            Due::Device(due) => cloud.device_due(now, due, self.faults.user_change_ms),
            Due::Job(due) => cloud.job_due(now, due),
            Due::Release => cloud.release(now, &self.turns),
            Due::Informer(due) => cloud.informer_due(now, due),
        }
        self.cloud_settle();
    }

    /// Moves the outputs of the cloud to their destinations.
    pub(crate) fn cloud_settle(&mut self) {
        let Some(cloud) = &mut self.cloud else { return };
        cloud.devices_settle();
        cloud.flush(self.clocks.now());
        for uid in std::mem::take(&mut cloud.over) {
            self.check.cloud_knows_end(&uid);
        }
        for (what, count) in std::mem::take(&mut cloud.counts) {
            (0..count).for_each(|_| self.tally.add(what));
        }
        let timers = std::mem::take(&mut cloud.timers);
        let events = std::mem::take(&mut cloud.events);
        for (ms, due) in timers {
            self.at(ms, WorldEvent::Cloud(due));
        }
        if !events.is_empty() {
            self.deliver(events);
        }
    }

    /// The next life of the agent begins: the store is read before all else.
    pub(crate) fn cloud_begin_life(&mut self) {
        let Some(cloud) = &mut self.cloud else { return };
        cloud.life = self.life;
        cloud.link.begin_life();
        cloud.rules.begin_life();
        cloud.save_fails = false;
        cloud.coming.clear();
        cloud.releases_begin_life();
        cloud.informers_begin_life();
        let mut saved = cloud.store.open();
        cloud.devices_begin_life(&mut saved);
        trace!(self.clocks.now(), "the store is {:?}: {:?}", saved.origin, saved.rows);
        cloud.events.push(Event::Loaded(Box::new(saved)));
        self.cloud_settle();
    }

    /// The process of the agent ends. An unfinished save is written or not.
    pub(crate) fn cloud_dies(&mut self) {
        let Some(cloud) = &mut self.cloud else { return };
        if cloud.chance.percent(50) {
            cloud.save_done(self.clocks.now());
        }
        cloud.events.clear();
        cloud.devices_die(self.clocks.now());
        cloud.lose_end(self.clocks.now());
        self.cloud_settle();
    }

    /// Rarely, the store does not survive a power cut.
    pub(crate) fn cloud_reboots(&mut self) {
        let Some(cloud) = &mut self.cloud else { return };
        if !cloud.chance.percent(cloud.rates.lost_pct) {
            return;
        }
        cloud.save_done(self.clocks.now());
        // The requester of the save is gone, and so is a result that was durable for a moment.
        cloud.events.clear();
        cloud.over.clear();
        let new = cloud.chance.percent(50);
        let lost = || StoreOrigin::Lost("file is not a database".to_owned());
        cloud.store.lose(if new { StoreOrigin::New } else { lost() });
        cloud.rules.lose();
        cloud.devices_lose_store();
        cloud.jobs_lose_store();
        cloud.lost = true;
        cloud.count("stores lost");
        self.check.cloud_lost();
        trace!(self.clocks.now(), "the store is lost");
    }

    /// A job is done: did it obtain a certificate?
    pub(crate) fn cloud_job(&mut self, id: JobId, spec: &JobSpec) {
        let Some(cloud) = &mut self.cloud else { return };
        if let JobSpec::Enrol { .. } = spec {
            trace!(self.clocks.now(), "{id:?} has brought a certificate");
            let now_s = CloudSim::wall_s(self.clocks.now());
            let (not_before_s, not_after_s) = (now_s, now_s + cloud.validity_s);
            cloud.validity = Some(Validity { not_before_s, not_after_s });
        }
    }

    /// Whether the cloud issues no certificate now.
    pub(crate) fn cloud_is_closed(&self, spec: &JobSpec) -> bool {
        let closed =
            |cloud: &CloudSim| self.clocks.now() < cloud.closed_until.max(cloud.down_until);
        matches!(spec, JobSpec::Enrol { .. }) && self.cloud.as_deref().is_some_and(closed)
    }
}
