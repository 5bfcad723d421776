//! The pods' cgroups: which machine has any, and the rules about them.

use edged::agent::pod::cgroup::are_ours;
use edged::model::cgroup::{self, Cgroups, Hierarchy};
use edged::model::cri::{CgroupDriver, Reply, Request};
use edged::model::settings::PodSettings;
use edged::model::status::QosClass;

use crate::chance::Chance;
use crate::rule::judge;
use crate::runtime::SandboxNo;
use crate::world::World;

/// Apart from all else, so that the other worlds are what they were.
fn chance(seed: u64) -> Chance {
    Chance::new(seed ^ 0x6367_726f_7570_7321)
}

/// What this seed's machine has.
pub fn draw(seed: u64) -> Cgroups {
    let hierarchy =
        *chance(seed).pick(&[Hierarchy::None, Hierarchy::V1, Hierarchy::V2, Hierarchy::V2]);
    Cgroups { hierarchy, swap: true, huge_pages: vec![2 << 20] }
}

/// What its edgecore.yaml says.
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

    /// No sandbox is made before the pod's cgroup, and all are where its class is.
    pub(crate) fn check_cgroup(&self, request: &Request) {
        let Request::RunPodSandbox(config) = request else { return };
        let uid = &config.pod.uid;
        let settings = &self.config.settings.cgroups;
        let parent = &config.cgroup_parent;
        if !settings.per_qos || self.config.machine.cgroups.hierarchy == Hierarchy::None {
            judge!(parent.is_empty(), "[cgroups] pod {uid} is put into {parent}");
            return;
        }
        // Nobody here asks for resources.
        let class = QosClass::BestEffort;
        let wanted = cgroup::parent(self.driver(), &settings.root, class, uid);
        judge!(*parent == wanted, "[cgroups] pod {uid} is put into {parent}, not {wanted}");
        judge!(
            !are_ours(&self.config, self.driver()) || self.disk.cgroups.contains(uid),
            "[cgroup first] pod {uid}: a sandbox before its cgroup"
        );
    }

    /// The runtime makes what is missing of the way down.
    pub(crate) fn cgroup_made(&mut self, number: SandboxNo) {
        let Some(sandbox) = self.runtime.sandboxes.get(&number) else { return };
        let ours = are_ours(&self.config, self.driver()) && !sandbox.cgroup_parent.is_empty();
        if let Some(pod) = sandbox.listed.pod.as_ref().filter(|_| ours) {
            self.disk.cgroups.insert(pod.uid.clone());
        }
    }

    /// Pods, but not these, that have a cgroup in which nothing runs.
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

    /// What is wrong with the cgroup of a wanted pod in the end.
    pub(crate) fn cgroup_unsettled(&self, uid: &str, ended: bool) -> Option<String> {
        let left = ended && self.disk.cgroups.contains(uid);
        left.then(|| "its cgroup is left behind".to_owned())
    }
}
