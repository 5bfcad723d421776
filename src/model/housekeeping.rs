//! Housekeeping of a node: the free resources, its settings, and the calls for it (spec sections 8,
//! 9.4 and 11). Sizes in bytes unless the name says otherwise.

use std::collections::BTreeMap;

use super::error::Input;
use super::ids::ContainerId;
use super::job::{LogDir, LogLink};
use super::quantity::Quantity;
use super::tree::decimal;

/// A call to the runtime that belongs to no single pod. Each is the CRI RPC of the same name.
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

/// The reply to a [`HousekeepingCall`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HousekeepingReply {
    /// To `ImageFsInfo`: the absolute path of the images; `None`: not reported.
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
    /// The container's id.
    pub id: Box<str>,
    /// Label `io.kubernetes.pod.uid`.
    pub uid: Box<str>,
    /// Label `io.kubernetes.container.name`.
    pub name: Box<str>,
    /// `memory.working_set_bytes`
    pub memory: Option<u64>,
    /// `memory.usage_bytes`
    pub memory_usage: Option<u64>,
    /// `memory.rss_bytes`
    pub memory_rss: Option<u64>,
    /// `memory.timestamp`, nanoseconds since 1970.
    pub memory_at: i64,
    /// `cpu.usage_core_nano_seconds`
    pub cpu_ns: Option<u64>,
    /// `cpu.usage_nano_cores`
    pub cpu_nano_cores: Option<u64>,
    /// `cpu.timestamp`, nanoseconds since 1970.
    pub cpu_at: i64,
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

/// What to measure beyond the values that are always measured.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MeasureRequest {
    /// The room on the file system of the images: an absolute path.
    pub image_fs: Option<Box<str>>,
    /// The sizes of these logs.
    pub logs: Vec<LogLink>,
    /// The existing folders of pods: of logs, and below the kubelet's root.
    pub log_dirs: bool,
    /// Pods with an idle cgroup, except these, whose uids are sorted; `None`: the cgroups are not
    /// ours to remove.
    pub cgroups_but: Option<Vec<Box<str>>>,
    /// Processes and threads.
    pub pids: bool,
    /// The memory of the cgroup of all pods: its absolute path in the hierarchy.
    pub pods_cgroup: Option<Box<str>>,
}

/// The current state of the machine. `None`: it could not be read, or not without waiting.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Measures {
    /// Memory; available is all but the working set, as the kernel can free the rest.
    pub memory: Option<Amount>,
    /// The working set of all pods together.
    pub pods_memory: Option<u64>,
    /// Processes and threads, a count.
    pub pids: Option<Amount>,
    /// The file system of `<root>`.
    pub node_fs: Option<Room>,
    /// The file system of the images.
    pub image_fs: Option<Room>,
    /// Of the requested logs; `None`: it does not exist.
    pub logs: Vec<(LogLink, Option<u64>)>,
    /// The log folders, if requested, and for pods without one that have a folder below the
    /// kubelet's root, or an idle cgroup, [`LogDir::nameless`].
    pub log_dirs: Option<Vec<LogDir>>,
}

/// The amount of a limited resource.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    /// The total.
    pub capacity: u64,
    /// The rest.
    pub available: u64,
}

/// The room on a file system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Room {
    /// Available to any user, not only to root.
    pub bytes: Amount,
    /// A count. Capacity 0: the file system has no such limit.
    pub inodes: Amount,
    /// Identifies the file system.
    pub device: u64,
}

/// The housekeeping settings; KubeEdge's defaults.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// Of dead containers.
    pub containers: ContainerPolicy,
    /// Of images.
    pub images: ImagePolicy,
    /// Of logs.
    pub logs: LogPolicy,
    /// Of evictions.
    pub eviction: EvictionPolicy,
    /// `systemReserved`: for everything outside of pods.
    pub system_reserved: Reserved,
    /// `kubeReserved`: for edged and the runtime.
    pub kube_reserved: Reserved,
}

/// Resources of a machine that are not available to pods.
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
    /// The sum of both.
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

/// Which dead containers are removed (spec section 8.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerPolicy {
    /// `minimumGCAge`: younger ones stay, milliseconds.
    pub age_min_ms: u64,
    /// `maxPerPodContainerCount`: this many of each container stay; `None`: any number.
    pub per_container_max: Option<usize>,
    /// `maxContainerCount`: this many stay in all; `None`: any number.
    pub all_max: Option<usize>,
}

impl Default for ContainerPolicy {
    fn default() -> Self {
        Self { age_min_ms: 0, per_container_max: Some(1), all_max: None }
    }
}

/// Which images are removed (spec section 8.4).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImagePolicy {
    /// `imageGCHighThresholdPercent`: disk usage from which images are removed; 100: none are.
    pub high_percent: u64,
    /// `imageGCLowThresholdPercent`: disk usage at which the removal stops.
    pub low_percent: u64,
    /// `imageMinimumGCAge`: younger ones stay, milliseconds.
    pub age_min_ms: u64,
    /// `imageMaximumGCAge`: an image that is unused for longer is removed in any case,
    /// milliseconds; 0: never.
    pub age_max_ms: u64,
    /// `imageGCPeriod`: between two checks of the disk usage, milliseconds.
    pub period_ms: u64,
    /// `podSandboxImage`: never removed. Runtimes that support pinned images pin their own.
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
    /// `containerLogMaxSize`: a log of this size is rotated; `None`: none is.
    pub size_max: Option<u64>,
    /// `containerLogMaxFiles`: of one container, the current one included; at least 2.
    pub files_max: usize,
    /// `containerLogMonitorInterval`: between two checks of the sizes, milliseconds.
    pub period_ms: u64,
}

impl Default for LogPolicy {
    fn default() -> Self {
        Self { size_max: Some(10 << 20), files_max: 5, period_ms: 10_000 }
    }
}

/// When pods are evicted (spec section 9.4).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EvictionPolicy {
    /// `evictionHard`
    pub hard: BTreeMap<Signal, Threshold>,
    /// `evictionSoft`, each with its `evictionSoftGracePeriod` in milliseconds.
    pub soft: BTreeMap<Signal, (Threshold, u64)>,
    /// `evictionMinimumReclaim`: this much more than the threshold ends a shortage.
    pub reclaim_min: BTreeMap<Signal, Threshold>,
    /// `evictionPressureTransitionPeriod`: a pressure lasts this long after it was last observed,
    /// milliseconds.
    pub transition_ms: u64,
    /// `evictionMaxPodGracePeriod`: of a pod that is evicted for a soft threshold, seconds.
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

/// The eviction signals; shortages are handled in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Signal {
    /// `memory.available`
    Memory,
    /// `allocatableMemory.available`: of the memory for all pods together.
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

/// The smallest allowed rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Threshold {
    /// An amount.
    Amount(u64),
    /// A share of the capacity, in millionths.
    Millionths(u64),
}

impl Threshold {
    /// From the configuration: `100Mi`, `15%`, `0.5%`. `None`: 0 % or 100 %, which switch the
    /// signal off.
    pub fn parse(text: &str) -> Result<Option<Self>, Input> {
        let wrong = || Input::quoted(text, "a quantity such as 100Mi or a share as 15%");
        if let Some(share) = text.strip_suffix('%') {
            let digits = share.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
            let percent = decimal(share).filter(|_| digits).ok_or_else(wrong)?;
            if percent > 100.0 {
                return Err(Input::new(text, "at most 100%"));
            }
            let millionths = (percent * 10_000.0).round() as u64;
            let off = millionths == 0 || millionths == 1_000_000;
            return Ok((!off).then_some(Self::Millionths(millionths)));
        }
        let quantity: Quantity = text.parse().map_err(|_| wrong())?;
        match u64::try_from(quantity.whole()) {
            Ok(amount) if amount > 0 => Ok(Some(Self::Amount(amount))),
            Ok(_) | Err(_) => Err(Input::new(text, "more than 0")),
        }
    }

    /// The threshold as an amount of a capacity.
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
        for (text, want) in [
            ("100Mi", Some(Threshold::Amount(100 << 20))),
            ("1e9", Some(Threshold::Amount(1_000_000_000))),
            ("15%", Some(Threshold::Millionths(150_000))),
            ("0.5%", Some(Threshold::Millionths(5_000))),
            ("0%", None),
            ("100%", None),
        ] {
            assert_eq!(Threshold::parse(text), Ok(want), "{text}");
        }
        for text in ["", "%", "-5%", "101%", "1e1%", "0", "-1Mi", "many"] {
            let why = Threshold::parse(text).expect_err(text).to_string();
            assert!(why.contains("got") && why.contains("expected"), "{why}");
        }
        assert_eq!(Threshold::Millionths(150_000).of(200), 30);
        assert_eq!(Threshold::Amount(7).of(200), 7);
    }
}
