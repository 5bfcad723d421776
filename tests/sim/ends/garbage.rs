//! Garbage that must not be left at the end.

use std::collections::{BTreeMap, BTreeSet};

use edged::limits;
use edged::model::pod as api;

use crate::draw::full_name;
use crate::runtime::Container;
use crate::world::World;

/// From one round of the collector to the end of the next.
const ROUND_MS: u64 = limits::GARBAGE_MS + 2 * limits::HOUSEKEEPING_LATE_MS;

impl World {
    /// Something that should have been collected by now.
    pub(super) fn garbage_left(&self, wanted: &BTreeMap<Box<str>, &api::Pod>) -> Option<String> {
        self.old_sandbox(wanted)
            .or_else(|| self.dead_beyond_the_policy())
            .or_else(|| self.full_disk(wanted))
            .or_else(|| self.nameless_log())
            .or_else(|| {
                let dangling = self.disk.links.iter().find(|link| !self.disk.leads(link));
                dangling.map(|link| format!("a link leads nowhere: {link:?}"))
            })
    }

    /// A container whose log cannot be found by its name.
    fn nameless_log(&self) -> Option<String> {
        self.runtime.containers.iter().find_map(|(number, it)| {
            let ours = it.alive && it.listed.pod.is_some();
            let folder = &self.runtime.sandboxes[&it.sandbox].log_directory;
            let lost = ours && !self.disk.logs.contains(&format!("{folder}/{}", it.log_path));
            lost.then(|| format!("c{number} writes to a log without a name"))
        })
    }

    /// A sandbox that was replaced and is empty.
    fn old_sandbox(&self, wanted: &BTreeMap<Box<str>, &api::Pod>) -> Option<String> {
        let empty = |number| !self.runtime.containers.values().any(|it| it.sandbox == number);
        self.runtime.sandboxes.iter().find_map(|(&number, sandbox)| {
            let pod = sandbox.listed.pod.as_ref().filter(|pod| wanted.contains_key(&pod.uid))?;
            let newer = self.runtime.sandboxes.values().any(|other| {
                other.listed.pod.as_ref() == Some(pod)
                    && other.listed.attempt > sandbox.listed.attempt
            });
            let old = newer && !sandbox.listed.ready && empty(number);
            old.then(|| format!("s{number} of pod {} was replaced", pod.uid))
        })
    }

    fn dead_beyond_the_policy(&self) -> Option<String> {
        let policy = self.check.garbage.containers();
        let all_max = policy.all_max?;
        // By the runtime's clock, which may have been wrong at the creation. Containers that died
        // since the last collection stay until the next one.
        let born_before = self.clocks.runtime().nanos - policy.age_min_ms as i64 * 1_000_000;
        let died_before = self.clocks.now().saturating_sub(ROUND_MS);
        let old = |it: &Container| {
            it.listed.created_at < born_before && it.ended_at.max(it.made_at) < died_before
        };
        let dead: Vec<&Container> = self
            .runtime
            .containers
            .values()
            .filter(|it| it.listed.pod.is_some() && it.is_exited() && old(it))
            .collect();
        let is_newest = |it: &Container| {
            !self.runtime.containers.values().any(|other| {
                other.listed.pod == it.listed.pod
                    && other.listed.name == it.listed.name
                    && other.listed.attempt > it.listed.attempt
            })
        };
        let spare = dead.iter().filter(|it| !is_newest(it)).count();
        let over = dead.len() > all_max && spare > 0;
        over.then(|| format!("{} dead containers, and {all_max} may be kept", dead.len()))
    }

    /// The disk is full, and something could be removed.
    fn full_disk(&self, wanted: &BTreeMap<Box<str>, &api::Pod>) -> Option<String> {
        let room = self.machine.room(&self.runtime.registry);
        let policy = self.check.garbage.images();
        let used = 100 - room.bytes.available * 100 / room.bytes.capacity;
        // Usage is rounded up: where both bounds are the same, enough may be free at the upper one.
        let enough = room.bytes.capacity * (100 - policy.low_percent) / 100;
        if used < policy.high_percent || room.bytes.available >= enough {
            return None;
        }
        let specs = wanted.values().map(|pod| &pod.spec);
        let all = specs.flat_map(|spec| spec.init_containers.iter().chain(&spec.containers));
        let mut needed: BTreeSet<Box<str>> = all.map(|it| full_name(&it.image)).collect();
        let run = self.runtime.containers.values().map(|it| &it.listed.image_id);
        needed.extend(run.filter_map(|id| id.strip_prefix("sha256:")).map(Into::into));
        // For what a job has brought, only pressure on the disk counts.
        let mut spare = self.runtime.registry.removable(&needed);
        let spare = spare.find(|name| !self.job_keeps(name));
        spare.map(|name| format!("{used} % of the disk are used, and {name} is unused"))
    }
}
