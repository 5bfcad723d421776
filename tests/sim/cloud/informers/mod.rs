//! Programs on the node that list and watch objects through MetaServer, as client-go's informers
//! do, and the cloud's dynamic controller behind it (metaserver.md, sections 6, 8 and 13).
//!
//! ```text
//!  users ─▶ api ─▶ dynamic controller ─▶ hub ─▶ link ─▶ MetaServer ─▶ informers
//!                        ▲                                  │
//!                        └── list, get, watchapp/sync ◀─────┘
//! ```
//!
//! What an informer has must follow the cloud: nothing goes back, nothing comes twice, and whatever
//! was lost in between, it has the cloud's objects in the end. After a new life of the agent it
//! goes on from the version that it has, and is told to list again where the agent does not know
//! what has changed since.
//!
//! The random numbers are their own, and only worlds without devices, jobs and held pods have
//! informers, so that the other worlds do not change.

mod client;
mod controller;

use std::collections::BTreeMap;
use std::sync::Arc;

use edged::agent::Config;
use edged::agent::event::Event;
use edged::model::application::{Gvr, Scope};
use edged::model::metaserver::{Caller, ClientId, MetaServerSettings, Reply, RowChange, Served};
use edged::model::selector::LabelSelector;
use serde_json::Value;

use super::api::{Api, Change, NAMESPACES};
use super::{CloudSim, Due};
use crate::chance::Chance;
use crate::faults::Class;
use crate::rule::judge;
use crate::trace::trace;
use crate::world::World;
use client::Informer;
use controller::Controller;

/// All of it.
pub struct InformerSim {
    chance: Chance,
    controller: Controller,
    informers: Vec<Informer>,
    /// Between two acts of an informer, and between two changes of the users, at the most.
    act_ms: u64,
    change_ms: u64,
    /// The last client.
    last: u64,
    is_calm: bool,
}

/// A future event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InformerDue {
    /// An informer goes on, now and then.
    Act(usize),
    /// It goes on because something was answered.
    Next(usize),
    /// The users change an object.
    Change,
}

/// The share of the worlds that may have them, percent.
const SHARE_PCT: u64 = 60;
/// In calm.
const CALM_MS: u64 = 3_000;
/// The clients of this module begin here; those that release pods are before.
const FIRST: u64 = 1 << 32;
/// No request is older than that: the agent answers within
/// [`edged::limits::METASERVER_ANSWER_MS`], and may be late.
const PATIENCE_MS: u64 = 120_000;

/// Namespace and name, with uid and version: objects as somebody has them.
type Objects = BTreeMap<(Box<str>, Box<str>), (Box<str>, u64)>;

/// Draws the informers of a world with a cloud, if it has some. `is_alone`: it has nothing else
/// beside its pods.
pub fn draw(
    class: Class,
    seed: u64,
    config: &mut Config,
    is_alone: bool,
) -> Option<Box<InformerSim>> {
    let mut chance = Chance::new(seed ^ 0x696e_666f_726d_6572);
    if !is_alone || class == Class::Crowd || !chance.percent(SHARE_PCT) {
        return None;
    }
    let mut settings = MetaServerSettings::default();
    for (resource, kind) in [("sites", "Site"), ("ghosts", "Ghost")] {
        let gvr = Gvr::new("example.com", "v1", resource);
        settings.served.push(Arc::new(Served { gvr, kind: kind.into(), namespaced: false }));
    }
    config.metaserver = Some(settings);
    let count = chance.between(1, 4);
    let informers = (0..count).map(|_| Informer::new(scope(&mut chance), chance.percent(30)));
    let informers = informers.collect();
    let change_ms = 1_000 << chance.below(8);
    let act_ms = 1_000 << chance.below(9);
    let controller = Controller::new(chance.percent(50));
    let (last, is_calm) = (FIRST, false);
    Some(Box::new(InformerSim { chance, controller, informers, act_ms, change_ms, last, is_calm }))
}

/// What an informer selects.
fn scope(chance: &mut Chance) -> Scope {
    let gvr = match chance.below(10) {
        0..6 => Gvr::new("", "v1", "endpoints"),
        6..9 => Gvr::new("example.com", "v1", "sites"),
        // What the cloud does not have.
        _ => Gvr::new("example.com", "v1", "ghosts"),
    };
    let mut scope = Scope::all(gvr);
    if scope.gvr.group.is_empty() && chance.percent(30) {
        scope.namespace = (*chance.pick(&NAMESPACES)).into();
    }
    match chance.below(10) {
        0..3 => scope.labels = LabelSelector::parse("tier=a").expect("a selector"),
        3 => scope.name = "x1".into(),
        _ => {}
    }
    scope
}

/// Which objects of the cluster a request or a watch means.
#[derive(Clone, Debug, PartialEq)]
struct Selection {
    /// In the plural.
    resource: Box<str>,
    /// Empty: all.
    namespace: Box<str>,
    labels: LabelSelector,
    /// Empty: any.
    name: Box<str>,
}

impl Selection {
    fn of(scope: &Scope) -> Self {
        let Scope { gvr, namespace, labels, name, .. } = scope.clone();
        Self { resource: gvr.resource, namespace, labels, name }
    }

    /// Whether it has the object of this key.
    fn has(&self, key: &str, object: &Value) -> bool {
        let Some((namespace, resource, name)) = parts(key) else { return false };
        resource == &*self.resource
            && (self.namespace.is_empty() || namespace == &*self.namespace)
            && (self.name.is_empty() || name == &*self.name)
            && self.labels.matches(&controller::labels(object))
    }

    /// What the cloud has of it.
    fn truth(&self, api: &Api) -> Objects {
        let all = api.iter().filter(|(key, object)| self.has(key, object.value()));
        let named = all.map(|(key, object)| {
            let (namespace, _, name) = parts(key).expect("it is selected");
            let namespace = if namespace == "null" { "" } else { namespace };
            ((namespace.into(), name.into()), (object.uid.clone(), object.version))
        });
        named.collect()
    }
}

/// Namespace, resource and name of an object that only informers watch.
fn parts(key: &str) -> Option<(&str, &'static str, &str)> {
    let mut parts = key.split('/');
    let (namespace, kind, name) = (parts.next()?, parts.next()?, parts.next()?);
    let resource = match kind {
        "endpoints" => "endpoints",
        "site" => "sites",
        _ => return None,
    };
    Some((namespace, resource, name))
}

impl CloudSim {
    pub(super) fn informers_begin(&mut self) {
        let Some(sim) = &mut self.informers else { return };
        for at in 0..sim.informers.len() {
            self.timers.push((6 + at as u64, Due::Informer(InformerDue::Act(at))));
        }
        self.timers.push((5, Due::Informer(InformerDue::Change)));
        for _ in 0..sim.chance.below(12) {
            sim.controller.change(0, &mut self.api, &mut sim.chance);
        }
    }

    /// Informers of the dynamic controller report a change.
    pub(super) fn informers_change(&mut self, change: &Change) {
        if let Some(sim) = &mut self.informers {
            sim.controller.informed(change, &mut self.hub);
        }
    }

    /// CloudCore restarts: its watches are only in memory.
    pub(super) fn informers_restart_cloud(&mut self) {
        if let Some(sim) = &mut self.informers {
            sim.controller.restart();
        }
    }

    /// A session begins.
    pub(super) fn informers_connected(&mut self) {
        if let Some(sim) = &mut self.informers {
            sim.controller.connected();
        }
    }

    pub(super) fn informers_begin_life(&mut self) {
        let informers = self.informers.iter_mut().flat_map(|sim| &mut sim.informers);
        informers.for_each(Informer::agent_ended);
    }

    pub(super) fn informers_calm(&mut self) {
        let Some(sim) = &mut self.informers else { return };
        (sim.is_calm, sim.act_ms) = (true, CALM_MS);
        for at in 0..sim.informers.len() {
            self.timers.push((1 + at as u64, Due::Informer(InformerDue::Act(at))));
        }
    }

    /// Whether the users change no more of it at the end.
    pub(super) fn is_informer_fault(due: Due) -> bool {
        due == Due::Informer(InformerDue::Change)
    }

    pub(super) fn informer_due(&mut self, now: u64, due: InformerDue) {
        let Some(sim) = &mut self.informers else { return };
        match due {
            InformerDue::Change => {
                let what = sim.controller.change(now, &mut self.api, &mut sim.chance);
                trace!(now, "users, in the cloud: {what}");
                let ms = 1 + sim.chance.below(sim.change_ms * 2);
                self.timers.push((ms, Due::Informer(InformerDue::Change)));
                self.inform();
            }
            InformerDue::Next(at) => {
                if self.informers.as_ref().is_some_and(|sim| sim.informers[at].open().is_none()) {
                    self.informer_acts(now, at);
                }
            }
            InformerDue::Act(at) => {
                let ms = 1 + sim.chance.below(sim.act_ms * 2);
                self.timers.push((ms, Due::Informer(InformerDue::Act(at))));
                self.informer_acts(now, at);
            }
        }
    }

    /// An informer leaves, or asks for what it needs next.
    fn informer_acts(&mut self, now: u64, at: usize) {
        let sim = self.informers.as_mut().expect("its caller has it");
        let informer = &mut sim.informers[at];
        if let Some(since) = informer.waits_since() {
            judge!(
                now - since < PATIENCE_MS,
                "[informers answered] {at} waits since {since} ms: {informer:?}"
            );
        }
        if informer.open().is_some() {
            if sim.is_calm || !sim.chance.percent(10) {
                return;
            }
            let client = informer.leave();
            trace!(now, "informer {at} leaves {client:?}");
            self.events.push(Event::MetaServerClosed(client));
            if sim.chance.percent(30) {
                informer.restart();
            }
            return;
        }
        sim.last += 1;
        let client = ClientId(sim.last);
        let call = informer.ask(now, client, &self.api, &mut sim.chance);
        trace!(now, "informer {at} is {client:?} and asks for {call:?}");
        self.events.push(Event::MetaServerOpened(client, Box::new(call), Caller::Local));
        self.count("requests of informers");
    }

    /// The dynamic controller's answer to an application; `None`: it is about something else.
    pub(super) fn informers_application(&mut self, now: u64, content: &Value) -> Option<Value> {
        let sim = self.informers.as_mut()?;
        let fails = sim.chance.percent(self.rates.fail_pct);
        sim.controller.application(now, content, &self.api, fails)
    }

    /// The dynamic controller's answer to the list of all watches.
    pub(super) fn informers_watches(&mut self, content: &Value) -> Value {
        let Some(sim) = &mut self.informers else { return serde_json::json!({}) };
        let refuses = sim.chance.percent(self.rates.fail_pct);
        sim.controller.take_watches(content, refuses, &self.api, &mut self.hub)
    }

    /// A row of `meta_v2` is durable, or deleted.
    pub(super) fn item_written(&mut self, change: RowChange) {
        if let (Some(sim), RowChange::Put(_, item)) = (&self.informers, &change) {
            sim.controller.judge_text(item);
        }
        self.store.write_item(change);
    }

    /// What informers do not have as the cloud has it, and the store as they have it.
    pub(super) fn informers_unsettled(&self) -> Option<String> {
        let sim = self.informers.as_deref()?;
        let all = sim.informers.iter().enumerate().filter(|(_, it)| !it.is_of_ghosts());
        for (at, informer) in all {
            let truth = informer.selection().truth(&self.api);
            if !informer.is_watching() {
                return Some(format!("informer {at} has no watch: {informer:?}"));
            }
            // Without a dynamic controller it has what once came.
            if !self.rates.lists {
                continue;
            }
            if *informer.objects() != truth {
                let has = informer.objects();
                return Some(format!("informer {at} has {has:?}, expected {truth:?}"));
            }
            if let Some(why) = self.rows_unsettled(&informer.selection()) {
                return Some(format!("the rows for informer {at}: {why}"));
            }
        }
        let is_left = |key: &str| parts(key).is_some() && self.api.get(key).is_none();
        let left = self.store.iter().find(|(key, _)| is_left(key));
        left.map(|(key, _)| format!("the store holds {key}, which is deleted"))
    }

    /// The rows of what is watched are those of the cloud, apart from versions.
    fn rows_unsettled(&self, selection: &Selection) -> Option<String> {
        let all = self.api.iter().filter(|(key, it)| selection.has(key, it.value()));
        for (key, object) in all {
            let (namespace, _, name) = parts(key).expect("it is selected");
            let mut rows = self.store.items().filter(|item| {
                let place = if item.namespace.is_empty() { "null" } else { &item.namespace };
                place == namespace
                    && *item.name == *name
                    && item.kind.to_lowercase() == selection.kind()
            });
            let Some(row) = rows.next() else { return Some(format!("{key} has none")) };
            let is_same = row.uid == object.uid
                && controller::number(&row.text) == object.value()["spec"]["number"].as_u64();
            if !is_same {
                return Some(format!("{key} is {}, expected {}", row.text, object.text()));
            }
        }
        None
    }
}

impl Selection {
    /// In messages.
    fn kind(&self) -> &'static str {
        if &*self.resource == "endpoints" { "endpoints" } else { "site" }
    }
}

impl World {
    /// MetaServer answers.
    pub(crate) fn metaserver_replies(&mut self, client: ClientId, reply: Reply) {
        if client.0 < FIRST {
            return self.released(client, &reply);
        }
        let now = self.clocks.now();
        let cloud = self.cloud.as_mut().expect("only where there is a cloud");
        let sim = cloud.informers.as_mut().expect("it is switched on");
        let Some(at) = sim.informers.iter().position(|it| it.open() == Some(client)) else {
            return;
        };
        trace!(now, "informer {at}, {client:?}, gets {reply:?}");
        let informer = &mut sim.informers[at];
        let what = informer.take(now, reply, &cloud.api, &sim.controller);
        // It goes on at once, mostly.
        if informer.open().is_none() && sim.chance.percent(70) {
            cloud.timers.push((1, Due::Informer(InformerDue::Next(at))));
        }
        cloud.count(what);
    }
}
