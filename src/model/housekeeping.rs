//! What keeps a node in order: the room it has, the settings it is kept by, and the calls for it
//! (spec sections 8, 9.4 and 11). Bytes unless the name says otherwise.

use std::collections::BTreeMap;

use super::cri::ContainerId;
use super::job::{LogDir, LogLink};
use super::quantity::Quantity;
use super::tree::decimal;

/// A call to the runtime that concerns no pod as a whole. Each is the CRI RPC of the same name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HousekeepingCall {
    /// `ImageFsInfo`
    ImageFsInfo,
    /// `ListImages` without a filter.
    ListImages,
    /// `RemoveImage`, with all its names, by its id.
    RemoveImage(Box<str>),
    /// `ReopenContainerLog`
    ReopenContainerLog(ContainerId),
    /// `ListContainerStats` without a filter.
    ListContainerStats,
    /// `ListPodSandboxStats` without a filter.
    ListPodSandboxStats,
}

impl HousekeepingCall {
    /// As [`super::cri::Request::operation`].
    pub fn operation(&self) -> &'static str {
        match self {
            Self::ImageFsInfo => "image_fs_info",
            Self::ListImages => "list_images",
            Self::RemoveImage(_) => "remove_image",
            Self::ReopenContainerLog(_) => "reopen_container_log",
            Self::ListContainerStats => "list_container_stats",
            Self::ListPodSandboxStats => "list_podsandbox_stats",
        }
    }
}

/// The answer to an [`HousekeepingCall`] that answers anything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    /// To `ImageFsInfo`: where the images lie, an absolute path; `None`: the runtime does not say.
    ImageFs(Option<Box<str>>),
    /// To `ListImages`.
    Images(Vec<StoredImage>),
    /// To `ListContainerStats`.
    Containers(Vec<ContainerUsage>),
    /// To `ListPodSandboxStats`.
    Sandboxes(Vec<SandboxUsage>),
}

/// `Image`, as far as it is read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoredImage {
    /// `id`
    pub id: Box<str>,
    /// `repo_tags` and `repo_digests`
    pub names: Vec<Box<str>>,
    /// `size`: layers that other images share are counted for each.
    pub size: u64,
    /// `pinned`: never to be removed.
    pub pinned: bool,
}

/// `ContainerStats`, as far as it is read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ContainerUsage {
    /// Label `io.kubernetes.pod.uid`.
    pub uid: Box<str>,
    /// Label `io.kubernetes.container.name`.
    pub name: Box<str>,
    /// `memory.working_set_bytes`
    pub memory: Option<u64>,
    /// `writable_layer.used_bytes`
    pub disk: Option<u64>,
    /// `writable_layer.inodes_used`, a count.
    pub inodes: Option<u64>,
}

/// `PodSandboxStats`, as far as it is read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SandboxUsage {
    /// `attributes.metadata.uid`
    pub uid: Box<str>,
    /// `linux.process.process_count`
    pub processes: Option<u64>,
}

/// What of the machine is to be told beyond what it always tells.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ask {
    /// The room where the images lie: an absolute path.
    pub image_fs: Option<Box<str>>,
    /// The sizes of these logs.
    pub logs: Vec<LogLink>,
    /// The folders of pods that there are, their logs' and those below the kubelet's root.
    pub log_dirs: bool,
    /// Pods of which an idle cgroup is left, beside these, whose uids are sorted; `None`: cgroups
    /// are not ours to remove.
    pub cgroups_but: Option<Vec<Box<str>>>,
    /// Processes and threads.
    pub pids: bool,
    /// The memory of the cgroup of all pods: its absolute path in the hierarchy.
    pub pods_cgroup: Option<Box<str>>,
}

/// The machine as it is at this moment. `None`: it could not be read, or not without waiting.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Measures {
    /// Memory; what is available is what the kernel can give away: all but the working set.
    pub memory: Option<Amount>,
    /// The working set of all pods together.
    pub pods_memory: Option<u64>,
    /// Processes and threads, a count.
    pub pids: Option<Amount>,
    /// The file system of `<root>`.
    pub node_fs: Option<Room>,
    /// The file system of the images.
    pub image_fs: Option<Room>,
    /// Of the logs asked for; `None`: it is not there.
    pub logs: Vec<(LogLink, Option<u64>)>,
    /// The log folders, if asked for, and of pods that have none but a folder below the kubelet's
    /// root, or an idle cgroup, [`LogDir::nameless`].
    pub log_dirs: Option<Vec<LogDir>>,
}

/// Of something that runs out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    /// In all.
    pub capacity: u64,
    /// What is left.
    pub available: u64,
}

/// The room on a file system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Room {
    /// What anybody may write, not only root.
    pub bytes: Amount,
    /// A count. Capacity 0: the file system does not count them.
    pub inodes: Amount,
    /// Tells file systems apart.
    pub device: u64,
}

/// By what the node is kept in order; KubeEdge's defaults.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// Of dead containers.
    pub containers: ContainerPolicy,
    /// Of images.
    pub images: ImagePolicy,
    /// Of logs.
    pub logs: LogPolicy,
    /// Of pods where the node runs short.
    pub eviction: EvictionPolicy,
    /// `systemReserved`: of the machine, for what is no pod.
    pub system_reserved: Reserved,
    /// `kubeReserved`: for edged and the runtime.
    pub kube_reserved: Reserved,
}

/// What pods may not take of a machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reserved {
    /// `cpu`, thousandths of a core.
    pub cpu_milli: u64,
    /// `memory`
    pub memory_bytes: u64,
    /// `ephemeral-storage`
    pub storage_bytes: u64,
    /// `pid`, a count.
    pub pids: u64,
}

impl Settings {
    /// Both together.
    pub fn reserved(&self) -> Reserved {
        let (system, kube) = (self.system_reserved, self.kube_reserved);
        Reserved {
            cpu_milli: system.cpu_milli.saturating_add(kube.cpu_milli),
            memory_bytes: system.memory_bytes.saturating_add(kube.memory_bytes),
            storage_bytes: system.storage_bytes.saturating_add(kube.storage_bytes),
            pids: system.pids.saturating_add(kube.pids),
        }
    }
}

/// Which dead containers go (spec section 8.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerPolicy {
    /// `minimumGCAge`: none younger goes, milliseconds.
    pub age_min_ms: u64,
    /// `maxPerPodContainerCount`: so many of each container stay; `None`: any number.
    pub per_container_max: Option<usize>,
    /// `maxContainerCount`: so many stay in all; `None`: any number.
    pub all_max: Option<usize>,
}

impl Default for ContainerPolicy {
    fn default() -> Self {
        Self { age_min_ms: 0, per_container_max: Some(1), all_max: None }
    }
}

/// Which images go (spec section 8.4).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImagePolicy {
    /// `imageGCHighThresholdPercent`: used room that makes images go; 100: none do.
    pub high_percent: u64,
    /// `imageGCLowThresholdPercent`: used room that is enough.
    pub low_percent: u64,
    /// `imageMinimumGCAge`: none younger goes, milliseconds.
    pub age_min_ms: u64,
    /// `imageMaximumGCAge`: one unused for longer goes whatever the room, milliseconds; 0: never.
    pub age_max_ms: u64,
    /// `imageGCPeriod`: between two looks at the room, milliseconds.
    pub period_ms: u64,
    /// `podSandboxImage`: never goes. Runtimes that know pinned images pin their own.
    pub sandbox_image: Box<str>,
}

impl Default for ImagePolicy {
    fn default() -> Self {
        Self {
            high_percent: 85,
            low_percent: 80,
            age_min_ms: 120_000,
            age_max_ms: 0,
            period_ms: 5_000,
            sandbox_image: "kubeedge/pause:3.6".into(),
        }
    }
}

/// When logs are rotated (spec section 11).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogPolicy {
    /// `containerLogMaxSize`: one that is as large is rotated; `None`: none is.
    pub size_max: Option<u64>,
    /// `containerLogMaxFiles`: of one container, the current one included; at least 2.
    pub files_max: usize,
    /// `containerLogMonitorInterval`: between two looks at the sizes, milliseconds.
    pub period_ms: u64,
}

impl Default for LogPolicy {
    fn default() -> Self {
        Self { size_max: Some(10 << 20), files_max: 5, period_ms: 10_000 }
    }
}

/// When pods have to go for the node's sake (spec section 9.4).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EvictionPolicy {
    /// `evictionHard`
    pub hard: BTreeMap<Signal, Threshold>,
    /// `evictionSoft`, each with its `evictionSoftGracePeriod` in milliseconds.
    pub soft: BTreeMap<Signal, (Threshold, u64)>,
    /// `evictionMinimumReclaim`: so much more than the threshold ends a shortage.
    pub reclaim_min: BTreeMap<Signal, Threshold>,
    /// `evictionPressureTransitionPeriod`: a pressure lasts so long beyond its last sight,
    /// milliseconds.
    pub transition_ms: u64,
    /// `evictionMaxPodGracePeriod`: of a pod that goes for a soft threshold, seconds.
    pub grace_max_s: i64,
}

impl Default for EvictionPolicy {
    fn default() -> Self {
        let percent = |signal, percent: u64| (signal, Threshold::Millionths(percent * 10_000));
        let hard = [
            (Signal::Memory, Threshold::Amount(100 << 20)),
            percent(Signal::NodeFs, 10),
            percent(Signal::NodeFsInodes, 5),
            percent(Signal::ImageFs, 15),
            percent(Signal::ImageFsInodes, 5),
        ];
        Self {
            hard: hard.into(),
            soft: BTreeMap::new(),
            reclaim_min: BTreeMap::new(),
            transition_ms: 300_000,
            grace_max_s: 0,
        }
    }
}

/// What may run short; the order is that in which shortages are met.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Signal {
    /// `memory.available`
    Memory,
    /// `allocatableMemory.available`: of what all pods together may take.
    PodsMemory,
    /// `nodefs.available`
    NodeFs,
    /// `nodefs.inodesFree`
    NodeFsInodes,
    /// `imagefs.available`
    ImageFs,
    /// `imagefs.inodesFree`
    ImageFsInodes,
    /// `pid.available`
    Pids,
}

impl Signal {
    /// Each, with its name in the configuration.
    pub const ALL: [(Self, &'static str); 7] = [
        (Self::Memory, "memory.available"),
        (Self::PodsMemory, "allocatableMemory.available"),
        (Self::NodeFs, "nodefs.available"),
        (Self::NodeFsInodes, "nodefs.inodesFree"),
        (Self::ImageFs, "imagefs.available"),
        (Self::ImageFsInodes, "imagefs.inodesFree"),
        (Self::Pids, "pid.available"),
    ];
}

/// How much is to be left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Threshold {
    /// So much.
    Amount(u64),
    /// So much of the capacity, in millionths.
    Millionths(u64),
}

impl Threshold {
    /// As the configuration writes it: `100Mi`, `15%`, `0.5%`. `None`: 0 % or 100 %, which switch
    /// the signal off.
    pub fn parse(said: &str) -> Result<Option<Self>, String> {
        let wrong = || format!("got {said:?}, expected a quantity such as 100Mi or a share as 15%");
        if let Some(share) = said.strip_suffix('%') {
            let digits = share.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
            let percent = decimal(share).filter(|_| digits).ok_or_else(wrong)?;
            if percent > 100.0 {
                return Err(format!("got {said}, expected at most 100%"));
            }
            let millionths = (percent * 10_000.0).round() as u64;
            let off = millionths == 0 || millionths == 1_000_000;
            return Ok((!off).then_some(Self::Millionths(millionths)));
        }
        let quantity: Quantity = said.parse().map_err(|_| wrong())?;
        match u64::try_from(quantity.whole()) {
            Ok(amount) if amount > 0 => Ok(Some(Self::Amount(amount))),
            Ok(_) | Err(_) => Err(format!("got {said}, expected more than 0")),
        }
    }

    /// The same of a capacity.
    pub fn of(self, capacity: u64) -> u64 {
        match self {
            Self::Amount(amount) => amount,
            Self::Millionths(share) => {
                u64::try_from(u128::from(capacity) * u128::from(share) / 1_000_000)
                    .expect("a share is no more than the whole")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thresholds_are_amounts_or_shares() {
        for (said, want) in [
            ("100Mi", Some(Threshold::Amount(100 << 20))),
            ("1e9", Some(Threshold::Amount(1_000_000_000))),
            ("15%", Some(Threshold::Millionths(150_000))),
            ("0.5%", Some(Threshold::Millionths(5_000))),
            ("0%", None),
            ("100%", None),
        ] {
            assert_eq!(Threshold::parse(said), Ok(want), "{said}");
        }
        for said in ["", "%", "-5%", "101%", "1e1%", "0", "-1Mi", "many"] {
            let why = Threshold::parse(said).expect_err(said);
            assert!(why.contains("got") && why.contains("expected"), "{why}");
        }
        assert_eq!(Threshold::Millionths(150_000).of(200), 30);
        assert_eq!(Threshold::Amount(7).of(200), 7);
    }
}
