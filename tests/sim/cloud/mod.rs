//! The cloud, the link to it and the store, drawn from the seed like everything else.
//!
//! ```text
//!  people ─▶ api ─▶ hub ─▶ link ─▶ the agent ─▶ store
//!             ▲                        │
//!             └── answers ◀── link ◀───┘
//! ```
//!
//! The draws are a chance of their own: worlds without a cloud are what they were.

mod answers;
mod api;
mod ends;
mod hostile;
mod hub;
mod link;
mod merge;
mod mirrors;
mod rates;
mod rules;
mod store;
mod traffic;

use std::collections::BTreeMap;

use edged::agent::event::{Action, Event, JobId};
use edged::agent::{Agent, Config};
use edged::model::job::JobSpec;
use edged::model::link::Validity;
use edged::model::message::Message;
use edged::model::meta::{Change, DiskError, Revision, StoreOrigin};
use edged::model::settings::CloudSettings;

use crate::chance::Chance;
use crate::check::Check;
use crate::draw::Drawer;
use crate::faults::Class;
use crate::trace::trace;
use crate::world::{Thing, World};

use api::Api;
use hub::Hub;
use link::Link;
use rates::Rates;
use rules::Rules;
use store::{Store, Stored};

/// 2025-11-20, milliseconds since 1970, when the world begins.
const TODAY_MS: i64 = 1_763_600_000_000;
/// Between two looks of the synchroniser.
const SYNC_MS: u64 = 5_000;
/// Between two chances for what goes wrong.
const TICK_MS: u64 = 500;

/// The cloud, the link and the store.
pub struct Sky {
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
    /// New ones last so long, seconds.
    validity_s: i64,
    /// No dial succeeds before.
    down_until: u64,
    /// No certificate is given before.
    closed_until: u64,
    answers: BTreeMap<u64, (u64, Message)>,
    last_answer: u64,
    /// Pods of which it is durable now that they have ended.
    over: Vec<Box<str>>,
    timers: Vec<(u64, Due)>,
    events: Vec<Event>,
    /// The store was new or lost in some life, and the cloud thinks that the node has what it had.
    lost: bool,
    /// The save under way will be.
    save_fails: bool,
    counts: BTreeMap<&'static str, u64>,
}

/// Something that is going to happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// The store has done what it was asked to, in this life.
    Kept(u32),
    /// A dial comes to its end.
    Dialled(u64, Outcome),
    /// The first frame on its way up arrives.
    Up(u64),
    /// The first frame on its way down arrives.
    Down(u64),
    /// A message has left the agent.
    Left(u64),
    /// Was there a sign of life?
    Silence(u64),
    /// A message that was not acknowledged is sent again.
    Again(u64, u64),
    /// An answer is ready.
    Answer(u64),
    /// The synchroniser looks.
    Sync,
    /// Something may go wrong.
    Tick,
    /// People change what is wanted.
    Will,
}

/// What becomes of a dial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Up,
    /// The cloud thinks so; nobody else hears of it.
    Half,
    /// The cloud keeps it open and has no session on it: it has as many nodes as it takes.
    Alone,
    Fails,
    /// The certificate does not do.
    Refused,
}

/// Draws the cloud of a seed, if there is one. `pods_wished`: what is left for the folder.
pub fn draw(
    class: Class,
    seed: u64,
    config: &mut Config,
    pods_wished: &mut usize,
) -> Option<Box<Sky>> {
    let mut chance = Chance::new(seed ^ 0x736b_7920_6162_6f76);
    // As many as are worth their time: each is a world with two sources.
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
    let rates = match class {
        Class::Calm => Rates::calm(),
        Class::Usual | Class::Storm | Class::Crowd => Rates::draw(&mut chance),
        Class::Site => Rates::draw(&mut chance).rare(),
    };
    let drawer = Drawer::beside(class, 30_000);
    let mut api = Api::new(drawer, wished, chance.percent(30));
    api.heal();
    for _ in 0..chance.below(wished as u64 + 1) {
        api.add(&mut chance);
    }
    let validity_s =
        if chance.percent(20) { chance.between(600, 7_200) as i64 } else { 31_536_000 };
    let joined = chance.percent(70);
    let now_s = TODAY_MS / 1000;
    let validity = Validity { not_before_s: now_s, not_after_s: now_s + validity_s };
    let mut sky = Sky {
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
        timers: vec![(1, Due::Sync), (2, Due::Tick), (3, Due::Will)],
        events: Vec::new(),
        lost: false,
        save_fails: false,
        counts: BTreeMap::new(),
    };
    sky.inform();
    Some(Box::new(sky))
}

impl Sky {
    fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    /// The cloud's clock, which is right.
    fn wall_s(now: u64) -> i64 {
        (TODAY_MS + now as i64) / 1000
    }

    /// What changed is told to those who watch.
    fn inform(&mut self) {
        for change in self.api.take_changes() {
            self.hub.informed(&self.api, &change, self.rates.echoes);
        }
    }

    /// The agent is told something, and acts on it from now on.
    pub fn told(&mut self, now: u64, event: &Event, check: &mut Check, agent: &Agent) {
        if self.lost {
            check.cloud_has(|uid| self.api.pods().any(|(_, object, _)| *object.uid == *uid));
        }
        match event {
            Event::Loaded(_) => {
                check.cloud_read();
                self.tell_pods(now, check, agent);
            }
            Event::Saved(_) => self.tell_pods(now, check, agent),
            Event::LinkUp(session, _) if self.link.dialling == Some(*session) => {
                self.link.dialling = None;
                self.link.told_up = Some(*session);
                self.link.unsent = 0;
            }
            Event::LinkDown(session, _) => self.link.down(*session),
            Event::Sent(session, count) if self.link.told_up == Some(*session) => {
                self.link.unsent -= count;
            }
            Event::Cloud(session, message) if self.link.told_up == Some(*session) => {
                trace!(
                    now,
                    "the cloud says {} {} {} {}",
                    message.route.operation,
                    message.route.resource,
                    message.header.resource_version,
                    message.header.id
                );
                self.rules.heard(message, &self.hub, &self.store);
            }
            _ => {}
        }
    }

    /// What is durable counts.
    fn tell_pods(&self, now: u64, check: &mut Check, agent: &Agent) {
        check.told_cloud(now, self.store.pods().collect(), agent);
    }

    fn keep(&mut self, now: u64, revision: Revision) {
        let full = now < self.store.full_until;
        let fails = self.chance.percent(self.rates.save_fail_pct);
        let ms = self.chance.below(self.rates.save_ms + 1);
        trace!(now, "save {revision:?}{}", if full || fails { ", in vain" } else { "" });
        self.save_fails = full || fails;
        self.timers.push((ms, Due::Kept(self.life)));
    }

    fn kept(&mut self, now: u64) {
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
            };
            let held = self.store.get(&key);
            let there = self.api.get(&key);
            let is_there = held.zip(there).is_some_and(|(held, there)| held.uid == there.uid);
            self.rules.writes(&key, stored.as_ref(), &self.store, is_there);
            let over = stored.as_ref().filter(|stored| stored.ended.is_some());
            self.over.extend(over.map(|stored| stored.uid.clone()));
            self.store.write(key, stored);
        }
        self.events.push(Event::Saved(revision));
    }
}

impl World {
    /// The agent asks for something of the link or the store.
    pub(crate) fn sky_asked(&mut self, action: Action) {
        let now = self.now;
        let dial_ms = match &action {
            Action::Dial { deadline, .. } => self.world_time(*deadline).saturating_sub(now),
            _ => 0,
        };
        let sky = self.sky.as_mut().expect("only where there is a cloud");
        match action {
            Action::Dial { session, .. } => sky.dial(now, session, dial_ms),
            Action::Send(session, message) => {
                sky.rules.sends(now, &message, (&sky.hub, &sky.store, &self.check));
                sky.send(now, session, message);
            }
            Action::Ping(session) => sky.ping(now, session),
            Action::Hangup(session) => sky.hang_up(now, session),
            Action::Save { revision, changes } => {
                sky.store.begin(revision, changes);
                sky.keep(now, revision);
            }
            other => panic!("{other:?} is not about the cloud"),
        }
        self.sky_settle();
    }

    /// Something of the cloud's happens.
    pub(crate) fn sky_due(&mut self, due: Due) {
        let Some(sky) = &mut self.sky else { return };
        let now = self.now;
        match due {
            Due::Kept(life) if life == sky.life => sky.kept(now),
            Due::Kept(_) => {}
            Due::Dialled(conn, outcome) => sky.dialled(now, conn, outcome),
            Due::Up(conn) => sky.goes_up(now, conn),
            Due::Down(conn) => sky.comes_down(now, conn),
            Due::Left(conn) => sky.left(conn),
            Due::Silence(conn) => sky.silence(now, conn),
            Due::Again(conn, serial) => sky.hub.again(conn, serial),
            Due::Answer(serial) => sky.answer(serial),
            Due::Sync => {
                sky.hub.synchronise(&sky.api);
                sky.timers.push((SYNC_MS, Due::Sync));
            }
            Due::Tick => sky.tick(now),
            Due::Will => sky.will(now, self.faults.will_ms),
        }
        self.sky_settle();
    }

    /// What the cloud has left is taken to where it belongs.
    fn sky_settle(&mut self) {
        let Some(sky) = &mut self.sky else { return };
        sky.flush(self.now);
        for uid in std::mem::take(&mut sky.over) {
            self.check.cloud_knows_end(&uid);
        }
        for (what, count) in std::mem::take(&mut sky.counts) {
            (0..count).for_each(|_| self.tally.add(what));
        }
        let timers = std::mem::take(&mut sky.timers);
        let events = std::mem::take(&mut sky.events);
        for (ms, due) in timers {
            self.at(ms, Thing::Sky(due));
        }
        if !events.is_empty() {
            self.tell(events);
        }
    }

    /// The next life of the agent begins: the store is read before all else.
    pub(crate) fn sky_born(&mut self) {
        let Some(sky) = &mut self.sky else { return };
        sky.life = self.life;
        sky.link.be_born();
        sky.rules.be_born();
        sky.save_fails = false;
        let saved = sky.store.open();
        trace!(self.now, "the store is {:?}: {:?}", saved.origin, saved.rows);
        sky.events.push(Event::Loaded(Box::new(saved)));
        self.sky_settle();
    }

    /// The process of the agent is gone. What it was writing is written or not.
    pub(crate) fn sky_dies(&mut self) {
        let Some(sky) = &mut self.sky else { return };
        if sky.chance.percent(50) {
            sky.kept(self.now);
        }
        sky.events.clear();
        sky.lose_end(self.now);
        self.sky_settle();
    }

    /// Seldom, what was on the disk does not survive a power cut.
    pub(crate) fn sky_reboots(&mut self) {
        let Some(sky) = &mut self.sky else { return };
        if !sky.chance.percent(sky.rates.lost_pct) {
            return;
        }
        sky.kept(self.now);
        // Who asked for it is gone, and so is what was durable for a moment.
        sky.events.clear();
        sky.over.clear();
        let new = sky.chance.percent(50);
        let lost = || StoreOrigin::Lost("file is not a database".to_owned());
        sky.store.lose(if new { StoreOrigin::New } else { lost() });
        sky.rules.lose();
        sky.lost = true;
        sky.count("stores lost");
        self.check.cloud_lost();
        trace!(self.now, "the store is lost");
    }

    /// A job has been done: was it the one that obtains a certificate?
    pub(crate) fn sky_job(&mut self, id: JobId, spec: &JobSpec) {
        let Some(sky) = &mut self.sky else { return };
        if let JobSpec::Enrol { .. } = spec {
            trace!(self.now, "{id:?} has brought a certificate");
            let now_s = Sky::wall_s(self.now);
            let (not_before_s, not_after_s) = (now_s, now_s + sky.validity_s);
            sky.validity = Some(Validity { not_before_s, not_after_s });
        }
    }

    /// Whether the cloud gives no certificate now.
    pub(crate) fn sky_is_closed(&self, spec: &JobSpec) -> bool {
        let closed = |sky: &Sky| self.now < sky.closed_until.max(sky.down_until);
        matches!(spec, JobSpec::Enrol { .. }) && self.sky.as_deref().is_some_and(closed)
    }
}
