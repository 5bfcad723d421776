//! The second phase: faults are over, and the world must become what the manifests say.
//!
//! It must do so in bounded time, then stay unchanged and quiet, and recover from a few last
//! shocks: a new life of the agent, a restart of the daemon, a killed container, a removed pod.

mod garbage;
mod phase;
mod pods;

pub use pods::claimed_wrongly;

use std::collections::BTreeMap;

use edged::agent::pod::cgroup::are_ours;
use edged::model::pod as api;

use crate::check::events::first_of_each_name;
use crate::faults::{Class, Faults};
use crate::rule::judge;
use crate::runtime::Container;
use crate::trace::trace;
use crate::world::{World, WorldEvent};

/// The longest grace period, deadline and back-offs one after another.
const SETTLE_MS: u64 = 2_400_000;
const HOUR_MS: u64 = 3_600_000;
/// A prime: periodic events must not be checked at the same phase each time.
const CHECK_MS: u64 = 4_877;
const QUIET_MS: u64 = 90_000;
/// The longest grace period, the slowest relist, and a turn at pulling.
const PATIENCE_MS: u64 = 430_000;

impl World {
    /// Runs the whole seed, and returns the simulated milliseconds.
    pub fn live(&mut self) -> u64 {
        let ms = match self.class {
            Class::Crowd => self.chance.between(60_000, 600_000),
            Class::Site => self.chance.between(12 * HOUR_MS, 48 * HOUR_MS),
            Class::Usual | Class::Calm | Class::Storm => {
                self.chance.between(60_000, 600_000) + self.chance.spread(1_800_000)
            }
        };
        self.run_until(ms);
        self.end_faults();
        self.settle();
        self.stay_quiet();
        for _ in 0..self.chance.between(1, 3) {
            self.shock();
            self.settle();
        }
        self.stay_quiet();
        self.clocks.now()
    }

    fn end_faults(&mut self) {
        trace!(self.clocks.now(), "======== the faults are over");
        self.faults = Faults::calm();
        self.stop_faults();
        self.folder.heal();
        #[cfg(feature = "streams")]
        self.people.retire();
        self.become_ready();
        self.runtime.ready_at = self.runtime.ready_at.min(self.clocks.now());
        self.runtime.clear_leaks();
        self.turns.stall_until(self.clocks.now());
        self.disk.read_only_until = 0;
        self.machine.tidy(self.check.evict.is_on());
        self.set_clock();
        self.daemon_up();
        self.break_off();
        self.end_late_calls();
        self.settle_runtime();
        let life = self.life;
        self.at(1, WorldEvent::Connect(life));
        self.folder_changed();
        self.cloud_calms();
    }

    /// Waits until everything is as it should be.
    fn settle(&mut self) {
        let began_at = self.clocks.now();
        loop {
            self.run_until(self.clocks.now() + CHECK_MS);
            self.judge_all_again();
            let blind = self.check.relist.requested_at() < began_at;
            let blind = blind.then(|| "the agent has not relisted".to_owned());
            let Some(why) = blind.or_else(|| self.unsettled()) else { break };
            judge!(
                self.clocks.now() - began_at < SETTLE_MS,
                "[converges] in {SETTLE_MS} ms: {why}"
            );
        }
        #[cfg(feature = "services")]
        self.judge_services();
        let took_ms = self.clocks.now() - began_at;
        trace!(self.clocks.now(), "======== settled after {took_ms} ms");
        self.tally.settled_ms_max = self.tally.settled_ms_max.max(took_ms);
    }

    /// Nothing happens without a reason.
    fn stay_quiet(&mut self) {
        let began_at = self.clocks.now();
        let steady = self.steady();
        let mut trouble: Option<(u64, String)> = None;
        while self.clocks.now() < began_at + QUIET_MS || trouble.is_some() {
            self.run_until(self.clocks.now() + CHECK_MS);
            self.judge_all_again();
            trouble = match (trouble, self.unsettled()) {
                // Containers end and start; only a condition that lasts is wrong.
                (Some((since, before)), Some(why)) if why == before => {
                    let long = self.clocks.now() - since > PATIENCE_MS;
                    judge!(!long, "[stays so] it was settled and is not any more: {why}");
                    Some((since, why))
                }
                (_, Some(why)) if self.clocks.now() < began_at + QUIET_MS => {
                    Some((self.clocks.now(), why))
                }
                _ => None,
            };
        }
        self.devices_quiet(began_at);
        self.check_steady(&steady, began_at, "in calm");
        let noisy = steady.iter().find(|uid| !self.cloud_is_quiet(uid, began_at));
        judge!(noisy.is_none(), "[quiet] {noisy:?} runs well and is reported again in calm");
    }

    /// Nothing is under way: all statuses are judged, whatever the agent's revision is.
    fn judge_all_again(&mut self) {
        self.check.judge_all_again();
        self.check.evictions(self.clocks.now(), &self.agent, &self.disk.volumes);
        let due = self.check.stepped(self.clocks.now(), &self.runtime, &self.agent);
        assert!(due.is_empty(), "removed pods were handled before a step");
    }

    fn check_steady(&self, steady: &[Box<str>], since: u64, when: &str) {
        for uid in steady {
            let pod = self.check.pod(uid).expect("it is wanted");
            // Evictions were judged when they happened: what runs may be too much for the node.
            let quiet = pod.requested_at < since || pod.is_out();
            judge!(quiet, "[quiet] pod {uid} runs well, and the agent acts on it {when}");
        }
    }

    fn shock(&mut self) {
        let began_at = self.clocks.now();
        let steady = self.steady();
        let life = self.life;
        match self.chance.below(5) {
            0 => {
                trace!(self.clocks.now(), "======== shock: the agent is killed");
                self.agent_dies();
                self.run_until(self.clocks.now() + 30_000);
                self.check_steady(&steady, began_at, "by a new life of the agent");
            }
            1 => {
                self.restart_daemon();
                self.run_until(self.clocks.now() + 30_000);
                self.check_steady(&steady, began_at, "after a restart of the daemon");
            }
            2 => {
                self.disconnect("connection reset by peer");
                self.at(500, WorldEvent::Connect(life));
                self.run_until(self.clocks.now() + 30_000);
                self.check_steady(&steady, began_at, "after the connection was lost");
            }
            3 => {
                if let Some(number) = self.some_living() {
                    self.kill(number, "");
                    self.settle_runtime();
                }
            }
            _ => {
                let wanted: Vec<Box<str>> = self.wanted().into_keys().collect();
                if !wanted.is_empty() {
                    let uid = self.chance.pick(&wanted).clone();
                    trace!(
                        self.clocks.now(),
                        "======== shock: the manifest of pod {uid} is removed"
                    );
                    self.folder.remove_pod(&uid);
                    self.folder_changed();
                    self.cloud_removes(&uid);
                }
            }
        }
    }

    pub(crate) fn wanted(&self) -> BTreeMap<Box<str>, &api::Pod> {
        let mut wanted = first_of_each_name(self.folder.pods());
        for pod in self.cloud_wants() {
            wanted.insert(pod.metadata.uid.as_str().into(), pod);
        }
        wanted
    }

    /// Containers by pod.
    fn instances(&self) -> BTreeMap<&str, Vec<&Container>> {
        let mut instances: BTreeMap<&str, Vec<&Container>> = BTreeMap::new();
        for container in self.runtime.containers.values() {
            if let Some(pod) = &container.listed.pod {
                instances.entry(&pod.uid).or_default().push(container);
            }
        }
        instances
    }

    /// The first thing that is not yet as it should be.
    fn unsettled(&self) -> Option<String> {
        let wanted = self.wanted();
        self.left_behind(&wanted)
            .or_else(|| self.garbage_left(&wanted))
            .or_else(|| self.untold(&wanted))
            .or_else(|| {
                let instances = self.instances();
                wanted.iter().find_map(|(uid, pod)| {
                    let containers = instances.get(&**uid).map(Vec::as_slice).unwrap_or_default();
                    let why = self.pod_unsettled(uid, pod, containers)?;
                    Some(format!("pod {uid}: {why}"))
                })
            })
            .or_else(|| self.cloud_unsettled())
            .or_else(|| self.services_unsettled())
            .or_else(|| self.hanging())
            .or_else(|| self.log_without_end())
    }

    #[cfg(not(feature = "services"))]
    #[expect(clippy::unused_self, reason = "as where there are Services")]
    fn services_unsettled(&self) -> Option<String> {
        None
    }

    #[cfg(not(feature = "streams"))]
    #[expect(clippy::unused_self, reason = "as where there are logs to follow")]
    fn log_without_end(&self) -> Option<String> {
        None
    }

    /// Unwanted objects that still exist.
    fn left_behind(&self, wanted: &BTreeMap<Box<str>, &api::Pod>) -> Option<String> {
        let unwanted = |uid: &str| !wanted.contains_key(uid);
        for (number, sandbox) in &self.runtime.sandboxes {
            if let Some(pod) = &sandbox.listed.pod
                && unwanted(&pod.uid)
            {
                return Some(format!("s{number} of pod {} is left behind", pod.uid));
            }
        }
        for (number, container) in &self.runtime.containers {
            if let Some(pod) = &container.listed.pod
                && unwanted(&pod.uid)
            {
                return Some(format!("c{number} of pod {} is left behind", pod.uid));
            }
        }
        if let Some(dir) = self.disk.pod_dirs.iter().find(|dir| unwanted(&dir.uid)) {
            return Some(format!("the folder of {dir:?} is left behind"));
        }
        let ours = are_ours(&self.config, self.driver());
        if let Some(uid) = self.disk.cgroups.iter().find(|uid| ours && unwanted(uid)) {
            return Some(format!("the cgroup of pod {uid} is left behind"));
        }
        if let Some(((uid, volume), _)) =
            self.disk.volumes.iter().find(|((uid, _), _)| unwanted(uid))
        {
            return Some(format!("volume {volume} of pod {uid} is left behind"));
        }
        self.disk.dirs.iter().find_map(|dir| {
            let uid = dir.split('/').nth(4)?.rsplit('_').next()?;
            unwanted(uid).then(|| format!("log folder {dir} is left behind"))
        })
    }

    /// Whether the agent's pods are the desired ones.
    fn untold(&self, wanted: &BTreeMap<Box<str>, &api::Pod>) -> Option<String> {
        let shown = || self.agent.pods().map(|pod| pod.metadata.uid.as_str());
        if let Some(uid) = shown().find(|uid| !wanted.contains_key(*uid)) {
            return Some(format!("pod {uid} is shown, and no source wants it"));
        }
        let count = shown().count();
        let expected = wanted.len();
        (count != expected).then(|| format!("{count} pods are shown, expected {expected}"))
    }
}
