//! Rules about garbage collection, and about calls that belong to no pod.

use std::collections::{BTreeMap, BTreeSet};

use edged::agent::event::{CallId, JobId};
use edged::model::cri::Reply;
use edged::model::housekeeping::{
    ContainerPolicy, HousekeepingCall, HousekeepingReply, ImagePolicy, Measures, Room, Settings,
};
use edged::model::job::{JobSpec, LogLink};

use super::Check;
use crate::draw::full_name;
use crate::rule::judge;
use crate::runtime::{Container, ContainerNo, Registry, Runtime};

/// The state of these rules.
#[derive(Default)]
pub struct Garbage {
    settings: Settings,
    /// A measurement is under way.
    measuring: bool,
    /// As the agent last received it.
    room: Option<Room>,
    /// At the last list of images: the room, and the bytes freed since.
    pass: Option<(Room, u64)>,
    /// Removals under way, with the bytes that they free.
    removing: BTreeMap<CallId, u64>,
    /// When each image was first listed, in this life.
    first_seen: BTreeMap<Box<str>, u64>,
    sweeping: Option<JobId>,
    /// Logs that were reported as too large.
    large: BTreeSet<LogLink>,
    /// The rotation under way.
    rotating: Option<(JobId, LogLink)>,
    /// The walk through the pods' disk usage that is under way.
    walking: Option<JobId>,
    /// Removals of containers under way, and the containers whose last removal did not succeed.
    gone_calls: BTreeMap<CallId, ContainerNo>,
    failed: BTreeSet<ContainerNo>,
}

impl Garbage {
    pub fn new(settings: &Settings) -> Self {
        Self { settings: settings.clone(), ..Self::default() }
    }

    /// The image policy of the agent.
    pub fn images(&self) -> &ImagePolicy {
        &self.settings.images
    }

    /// The container policy of the agent.
    pub fn containers(&self) -> &ContainerPolicy {
        &self.settings.containers
    }

    /// The number of dead instances that a pod keeps of each container.
    pub fn dead_max(&self) -> usize {
        self.settings.containers.per_container_max.map_or(1, |most| most.max(1))
    }

    /// Whether dead containers have a bound for the whole node, beyond the one of each pod.
    pub fn is_bounded(&self) -> bool {
        let policy = &self.settings.containers;
        policy.all_max.is_some() || policy.per_container_max == Some(0)
    }

    /// The removal of a container is requested. Returns whether the last call for it did not
    /// succeed: it is repeated once, when its pod may be idle again.
    pub fn retries_removal(&mut self, call: CallId, number: ContainerNo) -> bool {
        self.gone_calls.insert(call, number);
        self.failed.remove(&number)
    }

    /// A removal is over.
    pub fn removal_over(&mut self, call: CallId, ok: bool) {
        if let Some(number) = self.gone_calls.remove(&call)
            && !ok
        {
            self.failed.insert(number);
        }
    }

    pub fn begin_life(&mut self) {
        *self = Self::new(&self.settings);
    }

    /// The agent requests a measurement.
    pub fn measure(&mut self) {
        judge!(
            !self.measuring,
            "[one measuring] a measurement is requested while one is under way"
        );
        self.measuring = true;
    }

    /// The agent receives a measurement.
    pub fn measured(&mut self, measures: &Measures) {
        self.measuring = false;
        self.room = measures.image_fs;
        let size_max = self.settings.logs.size_max.unwrap_or(u64::MAX);
        let large = measures.logs.iter().filter(|(_, size)| size.is_some_and(|it| it >= size_max));
        self.large.extend(large.map(|(log, _)| log.clone()));
    }

    /// A call of the agent is over.
    pub fn answered(&mut self, now: u64, id: CallId, reply: Option<&Reply>) {
        if let Some(Reply::HousekeepingCall(HousekeepingReply::Images(images))) = reply {
            for image in images {
                self.first_seen.entry(image.id.clone()).or_insert(now);
            }
        }
        if let Some(size) = self.removing.remove(&id)
            && reply.is_some()
            && let Some((_, freed)) = &mut self.pass
        {
            *freed += size;
        }
    }

    /// Links are swept one sweep at a time.
    pub fn sweep(&mut self, id: JobId) {
        judge!(self.sweeping.is_none(), "[one sweep] a sweep is requested while one is under way");
        self.sweeping = Some(id);
    }

    /// A job is over.
    pub fn job_ended(&mut self, id: JobId) {
        self.sweeping.take_if(|sweeping| *sweeping == id);
        self.walking.take_if(|walking| *walking == id);
        self.rotating.take_if(|(rotating, _)| *rotating == id);
    }
}

impl Check {
    /// Whether a healthy pod may lose this dead container, however few it has: there is a bound for
    /// the whole node, or the disk was short while the container was dead. It is removed when its
    /// pod is processed.
    pub fn may_spare(&self, dead: &Container) -> bool {
        self.garbage.is_bounded() || self.evict.was_disk_short(dead.ended_at.max(dead.made_at))
    }

    /// The agent requests a housekeeping call.
    pub(super) fn check_housekeeping(
        &mut self,
        now: u64,
        runtime: &Runtime,
        id: CallId,
        housekeeping: &HousekeepingCall,
    ) {
        match housekeeping {
            HousekeepingCall::ImageFsInfo
            | HousekeepingCall::ListContainerStats
            | HousekeepingCall::ListPodSandboxStats => {}
            HousekeepingCall::ListImages => {
                let garbage = &mut self.garbage;
                garbage.pass = garbage.room.map(|room| (room, 0));
            }
            HousekeepingCall::RemoveImage(image) => {
                self.check_remove_image(now, runtime, id, image);
            }
            HousekeepingCall::ReopenContainerLog(_) => {}
        }
    }

    fn check_remove_image(&mut self, now: u64, runtime: &Runtime, id: CallId, image_id: &str) {
        let name = image_id.strip_prefix("sha256:").expect("an id of this runtime");
        judge!(!Registry::is_pinned(name), "[pinned stays] {name} is removed");
        let user = runtime.containers.iter().find(|(_, it)| {
            &*it.listed.image_id == image_id && it.made_at < self.relist.requested_at()
        });
        let user = user.map(|(number, _)| number);
        judge!(user.is_none(), "[used stays] {name} is removed, and {user:?} runs it");
        let wants = |pod: &super::Pod| {
            let spec = pod.desired.as_ref().map(|desired| &desired.spec);
            let mut all =
                spec.into_iter().flat_map(|it| it.init_containers.iter().chain(&it.containers));
            all.any(|container| &*full_name(&container.image) == name)
        };
        let pod = self.pods.iter().find(|pod| wants(pod)).map(|pod| &pod.uid);
        judge!(pod.is_none(), "[wanted stays] {name} is removed, and pod {pod:?} wants it");
        let policy = &self.garbage.settings.images;
        let seen_at = self.garbage.first_seen.get(image_id).copied();
        let age_ms = seen_at.map(|seen_at| now - seen_at).unwrap_or_default();
        judge!(age_ms >= policy.age_min_ms, "[young stays] {name} is {age_ms} ms old");
        if self.evict.is_disk_short(now) {
            // Everything unused may be removed.
            return;
        }
        judge!(
            self.garbage.pass.is_some(),
            "[room first] {name} is removed before the room was measured"
        );
        let Some((room, freed)) = self.garbage.pass else { return };
        let (capacity, available) = (room.bytes.capacity, room.bytes.available);
        let used = 100 - available * 100 / capacity;
        let target = capacity * (100 - policy.low_percent) / 100;
        judge!(
            used >= policy.high_percent && available + freed < target,
            "[room is enough] {name} is removed; {used} % were used, and {freed} bytes were freed"
        );
        judge!(self.garbage.removing.is_empty(), "[one by one] two images are removed at once");
        let size = runtime.registry.size(name).unwrap_or_default();
        self.garbage.removing.insert(id, size);
    }

    /// The agent requests a job of the node.
    pub(super) fn check_node_job(&mut self, id: JobId, spec: &JobSpec) -> bool {
        match spec {
            JobSpec::SweepLinks { .. } => {
                judge!(
                    self.manifests.are_delivered(),
                    "[sources first] links are removed before a source has delivered"
                );
                self.garbage.sweep(id);
                true
            }
            JobSpec::MakePodDirs { .. }
            | JobSpec::MakeContainerFiles(_)
            | JobSpec::LinkLog(_)
            | JobSpec::RemoveLog(_)
            | JobSpec::RemoveLogDir(_)
            | JobSpec::RemovePodDir(_)
            | JobSpec::SetUpVolume(_)
            | JobSpec::BindSubPath(_)
            | JobSpec::MakePodCgroup(_)
            | JobSpec::RemovePodCgroup(_)
            | JobSpec::TearDownVolumes(_) => false,
            JobSpec::RotateLog { log, files_max, .. } => {
                let garbage = &mut self.garbage;
                judge!(
                    garbage.large.remove(log),
                    "[rotation] {log:?} is rotated, and it is not too large"
                );
                judge!(*files_max == garbage.settings.logs.files_max, "[rotation] {spec:?}");
                let under_way = garbage.rotating.replace((id, log.clone()));
                judge!(under_way.is_none(), "[rotation] {log:?} and {under_way:?} at once");
                true
            }
            JobSpec::RestoreLog(_) | JobSpec::CompressLogs(_) | JobSpec::SetQosCgroups(_) => true,
            #[cfg(feature = "cloud")]
            JobSpec::Enrol { .. } => true,
            #[cfg(feature = "node-jobs")]
            JobSpec::MeasureNode { .. } | JobSpec::Upgrade(_) => true,
            JobSpec::Measure(_) => {
                let under_way = self.garbage.walking.replace(id);
                judge!(under_way.is_none(), "[one walk] {spec:?} while {under_way:?} is under way");
                true
            }
        }
    }
}
