//! The pods' cgroups: which machines have them, and the rules about them.

use edged::agent::pod::cgroup::are_ours;
use edged::model::cgroup::{self, Cgroups, Hierarchy};
use edged::model::cri::{CgroupDriver, Reply, Request};
use edged::model::settings::PodSettings;
use edged::model::status::QosClass;

use crate::chance::Chance;
use crate::rule::judge;
use crate::runtime::SandboxNo;
use crate::world::World;

/// A separate random sequence, so that other worlds do not change.
fn chance(seed: u64) -> Chance {
    Chance::new(seed ^ 0x6367_726f_7570_7321)
}

/// The cgroup settings of this seed's machine.
pub fn draw(seed: u64) -> Cgroups {
    let hierarchy =
        *chance(seed).pick(&[Hierarchy::None, Hierarchy::V1, Hierarchy::V2, Hierarchy::V2]);
    Cgroups { hierarchy, swap: true, huge_pages: vec![2 << 20] }
}

/// The cgroup settings of its edgecore.yaml.
pub fn settings(seed: u64) -> PodSettings {
    let mut chance = chance(!seed);
    let mut settings = PodSettings::default();
    settings.cgroups.per_qos = chance.percent(90);
    settings.cgroups.root = if chance.percent(20) { vec!["edge".into()] } else { Vec::new() };
    settings
}

impl World {
    pub(crate) fn driver(&self) -> CgroupDriver {
        match self.runtime.quirks.runtime_config() {
            Ok(Reply::CgroupDriver(Some(driver))) => driver,
            _ => self.config.settings.cgroups.driver,
        }
    }

    /// A sandbox is made only after its pod's cgroup, and below the cgroup of its QoS class.
    pub(crate) fn check_cgroup(&self, request: &Request) {
        let Request::RunPodSandbox(config) = request else { return };
        let uid = &config.pod.uid;
        let settings = &self.config.settings.cgroups;
        let parent = &config.cgroup_parent;
        if !settings.per_qos || self.config.machine.cgroups.hierarchy == Hierarchy::None {
            judge!(parent.is_empty(), "[cgroups] pod {uid} is put into {parent}");
            return;
        }
        // No pod here has resource requests.
        let class = QosClass::BestEffort;
        let wanted = cgroup::parent(self.driver(), &settings.root, class, uid);
        judge!(*parent == wanted, "[cgroups] pod {uid} is put into {parent}, not {wanted}");
        judge!(
            !are_ours(&self.config, self.driver()) || self.disk.cgroups.contains(uid),
            "[cgroup first] pod {uid}: a sandbox before its cgroup"
        );
    }

    /// The runtime creates missing parents.
    pub(crate) fn cgroup_made(&mut self, number: SandboxNo) {
        let Some(sandbox) = self.runtime.sandboxes.get(&number) else { return };
        let ours = are_ours(&self.config, self.driver()) && !sandbox.cgroup_parent.is_empty();
        if let Some(pod) = sandbox.listed.pod.as_ref().filter(|_| ours) {
            self.disk.cgroups.insert(pod.uid.clone());
        }
    }

    /// Pods other than `known` that have a cgroup in which nothing runs.
    pub(crate) fn idle_cgroups(&self, known: &[Box<str>]) -> Vec<Box<str>> {
        let busy = |uid: &str| {
            self.runtime
                .containers
                .values()
                .any(|it| it.alive && it.listed.pod.as_ref().is_some_and(|pod| *pod.uid == *uid))
        };
        let all = self.disk.cgroups.iter();
        all.filter(|uid| known.binary_search(uid).is_err() && !busy(uid)).cloned().collect()
    }

    /// What is wrong with the cgroup of a desired pod at the end of the run.
    pub(crate) fn cgroup_unsettled(&self, uid: &str, ended: bool) -> Option<String> {
        let left = ended && self.disk.cgroups.contains(uid);
        left.then(|| "its cgroup is left behind".to_owned())
    }
}
