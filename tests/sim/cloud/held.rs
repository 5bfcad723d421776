//! Pods that are held until somebody on the node releases them (metaserver.md, section 11.5), and
//! who does that, in some worlds.
//!
//! The users mark some of their pods. A client of MetaServer releases one of them, or all of the
//! node, now and then. Until the release of a marked pod is durable the rules take it for a pod
//! that no source wants: whatever begins of it is a fault. From then on it is a pod like any other,
//! in every later life: it must run in the end, although nobody releases it again.
//!
//! The random numbers are their own, so that the other worlds do not change.

use std::collections::{BTreeMap, BTreeSet};

use edged::agent::event::Event;
use edged::limits::METASERVER_CLIENTS_MAX;
use edged::model::metaserver::{Call, Caller, ClientId, MetaServerSettings, Release, Reply};
use edged::model::pod::HOLD;
use edged::model::status::Phase;

use super::api::{NAMESPACES, Object};
use super::store::{Store, Stored};
use super::{CloudSim, Config, Due};
use crate::chance::Chance;
use crate::faults::asks_within_ms;
use crate::rule::judge;
use crate::trace::trace;
use crate::turns::Turns;
use crate::world::{NODE, World};

/// The client that asks, and what it asks for.
pub struct Releases {
    chance: Chance,
    /// The longest time between two requests.
    every_ms: u64,
    last: u64,
    /// The request that is not answered yet.
    open: Option<Asked>,
}

struct Asked {
    client: ClientId,
    since: u64,
    /// The uids of the pods that it is about, as far as they were held and durable then.
    of: BTreeSet<Box<str>>,
}

/// The store has its own patience, and the agent may be late.
const PATIENCE_MS: u64 = 120_000;
/// In calm: the end of a world waits for the last release.
const CALM_MS: u64 = 20_000;
/// Percent of the pods of such a world.
const MARKED_PCT: u64 = 40;

/// In every fourth world with a cloud. Returns who marks pods as well.
pub fn draw(seed: u64, config: &mut Config) -> Option<(Releases, Marks)> {
    let mut chance = Chance::new(seed ^ 0x6865_6c64_2070_6f64);
    if !chance.percent(25) {
        return None;
    }
    config.metaserver = Some(MetaServerSettings::default());
    // What is held takes room, and what the rules take for unwanted does not.
    config.pods_max = config.pods_max.max(110);
    let every_ms = 1 + chance.spread(300_000);
    let marks = Marks(Chance::new(chance.bits()));
    Some((Releases { chance, every_ms, last: 0, open: None }, marks))
}

/// Which pods are marked.
pub struct Marks(Chance);

impl Marks {
    pub fn give(&mut self, annotations: &mut BTreeMap<String, String>) {
        if self.0.percent(MARKED_PCT) {
            annotations.insert(HOLD.to_owned(), "true".to_owned());
        }
    }
}

impl CloudSim {
    /// Uids of the pods that may not begin, by what is durable.
    pub(super) fn held(&self) -> BTreeSet<Box<str>> {
        if self.releases.is_none() {
            return BTreeSet::new();
        }
        let all = self.store.iter().filter(|(key, pod)| is_held(&self.store, key, pod));
        all.map(|(_, pod)| pod.uid.clone()).collect()
    }

    pub(super) fn releases_begin_life(&mut self) {
        if let Some(releases) = &mut self.releases {
            releases.open = None;
        }
    }

    pub(super) fn releases_calm(&mut self) {
        if let Some(releases) = &mut self.releases {
            releases.every_ms = CALM_MS;
        }
        self.timers.extend(self.releases.is_some().then_some((CALM_MS, Due::Release)));
    }

    /// The client asks for the next release, or goes away.
    pub(super) fn release(&mut self, now: u64, turns: &Turns) {
        let held = self.held();
        let Some(releases) = &mut self.releases else { return };
        let Releases { chance, every_ms, last, open } = releases;
        let is_calm = *every_ms == CALM_MS;
        let within_ms = if is_calm { CALM_MS } else { asks_within_ms(*every_ms, *last) };
        self.timers.push((1 + chance.below(within_ms), Due::Release));
        if let Some(Asked { client, .. }) = open {
            if chance.percent(10) {
                self.events.push(Event::MetaServerClosed(*client));
                *open = None;
            }
            return;
        }
        // The event loop accepts so many. One that does not turn leaves the others to the kernel.
        let is_client = |event: &Event| matches!(event, Event::MetaServerOpened(..));
        if turns.count(is_client) >= METASERVER_CLIENTS_MAX {
            return;
        }
        *last += 1;
        let client = ClientId(*last);
        // In calm all are released, so that the world can become what its users want.
        let (release, of) = if chance.percent(30) || is_calm {
            (Release::Node(NODE.into()), held)
        } else {
            let namespace: Box<str> = (*chance.pick(&NAMESPACES)).into();
            let name: Box<str> = format!("cpod{}", chance.between(1, 12)).into();
            let key = format!("{namespace}/pod/{name}");
            let uid = self.store.get(&key).map(|pod| pod.uid.clone());
            let of = uid.into_iter().filter(|uid| held.contains(uid)).collect();
            (Release::Pod { namespace, name }, of)
        };
        trace!(now, "{client:?} releases {release:?}, of which {of:?} are held");
        *open = Some(Asked { client, since: now, of });
        let call = Box::new(Call::Release(release));
        self.events.push(Event::MetaServerOpened(client, call, Caller::Local));
        self.count("releases");
    }
}

impl World {
    /// MetaServer answers.
    pub(crate) fn released(&mut self, client: ClientId, reply: &Reply) {
        let now = self.clocks.now();
        let cloud = self.cloud.as_mut().expect("only where there is a cloud");
        let held = cloud.held();
        let releases = cloud.releases.as_mut().expect("it is switched on");
        let Some(asked) = releases.open.take_if(|asked| asked.client == client) else { return };
        trace!(now, "{client:?} gets {reply:?}");
        judge_patience(now, client, asked.since);
        // What the cloud has deleted is held no more, before that is durable as well.
        let mut left = asked.of.intersection(&held);
        let left = left.find(|uid| cloud.api.pods().any(|(_, it, _)| lasts(it, uid)));
        match reply {
            Reply::Done => {
                judge!(
                    left.is_none(),
                    "[released is durable] {client:?} is told so of pod {left:?}, and it is not"
                );
                (0..asked.of.len()).for_each(|_| self.tally.add("pods released"));
            }
            Reply::Failure(_) => self.tally.add("releases refused"),
            other => panic!("a release cannot be answered by {other:?}"),
        }
    }

    /// A release that is not answered.
    pub(super) fn releases_unsettled(&self) -> Option<String> {
        let open = self.cloud.as_deref()?.releases.as_ref()?.open.as_ref()?;
        judge_patience(self.clocks.now(), open.client, open.since);
        None
    }
}

fn judge_patience(now: u64, client: ClientId, since: u64) {
    judge!(now - since < PATIENCE_MS, "[releases answered] {client:?} waits since {since} ms");
}

/// Whether this is the object of the pod, and nobody has deleted it.
fn lasts(object: &Object, uid: &str) -> bool {
    *object.uid == *uid && object.value()["metadata"]["deletionTimestamp"].is_null()
}

/// Whether the pod of this row may not begin.
fn is_held(store: &Store, key: &str, stored: &Stored) -> bool {
    let Some(pod) = stored.pod.as_ref().filter(|_| !stored.deleting) else { return false };
    let is_marked = pod.metadata.annotations.get(HOLD).is_some_and(|value| value == "true");
    if !is_marked || pod.status.phase != Phase::Pending {
        return false;
    }
    let row = store.get(&key.replacen("/pod/", "/podrelease/", 1));
    row.is_none_or(|row| row.uid != stored.uid)
}
