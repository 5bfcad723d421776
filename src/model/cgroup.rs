//! The machine's cgroups, and the cgroups of pods.

use serde::{Deserialize, Serialize};

use super::status::QosClass;

/// The cgroup driver, which also decides the names of cgroups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CgroupDriver {
    /// Slices.
    Systemd,
    /// Plain folders.
    Cgroupfs,
}

/// The kernel's cgroup interface, for code that makes cgroups itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Hierarchy {
    /// None that this process could write to.
    #[default]
    None,
    /// A hierarchy for each controller.
    V1,
    /// One for all.
    V2,
}

/// The properties of the machine's cgroups that decide how pods are run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cgroups {
    /// Where they can be made.
    pub hierarchy: Hierarchy,
    /// The use of swap by a cgroup can be limited.
    pub swap: bool,
    /// The sizes of huge pages that the kernel supports, bytes, ascending.
    pub huge_pages: Vec<u64>,
}

/// The keys of edgecore.yaml about cgroups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// `cgroupsPerQOS`: pods have their own cgroups, below those of their QoS class.
    pub per_qos: bool,
    /// `cgroupDriver`: for runtimes that do not report theirs.
    pub driver: CgroupDriver,
    /// `cgroupRoot`: the path above all of them, in parts.
    pub root: Vec<Box<str>>,
    /// `podPidsLimit`: processes of one pod; `None`: no limit.
    pub pids_max: Option<u64>,
    /// `cpuCFSQuota`: limits of CPU time are enforced.
    pub cpu_quota: bool,
    /// `cpuCFSQuotaPeriod`, microseconds.
    pub cpu_period_us: i64,
    /// `singleProcessOOMKill`: a process without memory does not end the whole container. Only with
    /// cgroup v2; under v1 it never does.
    pub single_oom_kill: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            per_qos: true,
            driver: CgroupDriver::Cgroupfs,
            root: Vec::new(),
            pids_max: None,
            cpu_quota: true,
            cpu_period_us: 100_000,
            single_oom_kill: false,
        }
    }
}

/// The desired cgroup of one pod.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PodCgroup {
    /// `[0-9a-z-]{1,64}`
    pub uid: Box<str>,
    /// The QoS class below which it is.
    pub class: QosClass,
    /// Its limits.
    pub values: Values,
}

/// The values of the parent cgroups of pods.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct QosCgroups {
    /// `kubepods`: all pods together.
    pub all: Values,
    /// `burstable`: shares for the requests of its pods.
    pub burstable_shares: i64,
}

/// The values of one cgroup, in the terms of version 1.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Values {
    /// Relative weight, 2–262144.
    pub cpu_shares: i64,
    /// Microseconds per period; `None`: no limit.
    pub cpu_quota: Option<i64>,
    /// Microseconds.
    pub cpu_period: i64,
    /// Bytes; `None`: no limit.
    pub memory: Option<i64>,
    /// Processes; `None`: no limit.
    pub pids: Option<u64>,
    /// Bytes by the kernel's name of the page's size (`2MB`).
    pub huge_pages: Vec<(Box<str>, u64)>,
}

/// A weight of cgroup v2, 1–10000, for a number of shares.
pub fn weight(shares: i64) -> i64 {
    let shares = shares.clamp(SHARES_MIN, SHARES_MAX);
    1 + (shares - SHARES_MIN) * 9_999 / (SHARES_MAX - SHARES_MIN)
}

/// Shares for thousandths of a core.
pub fn shares(milli: i64) -> i64 {
    (milli.saturating_mul(1_024) / 1_000).clamp(SHARES_MIN, SHARES_MAX)
}

/// The kernel's minimum: for pods without requests.
pub const SHARES_MIN: i64 = 2;
/// The kernel's maximum.
pub const SHARES_MAX: i64 = 262_144;

/// The kernel's name of a huge page's size: `2MB`, `1GB`.
pub fn huge_page_name(bytes: u64) -> Box<str> {
    let units = [(1 << 30, "GB"), (1 << 20, "MB"), (1 << 10, "KB")];
    let unit = units.iter().find(|(unit, _)| bytes >= *unit && bytes.is_multiple_of(*unit));
    let (unit, name) = unit.unwrap_or(&(1, "B"));
    format!("{}{name}", bytes / unit).into()
}

/// The folder above all pods' cgroups.
pub const ALL_PODS: &str = "kubepods";

/// The folder of a class's pods below `kubepods`; Guaranteed pods are in `kubepods` itself.
pub fn class_folder(class: QosClass) -> Option<&'static str> {
    match class {
        QosClass::Guaranteed => None,
        QosClass::Burstable => Some("burstable"),
        QosClass::BestEffort => Some("besteffort"),
    }
}

/// `PodSandboxConfig.linux.cgroup_parent`, in the driver's form.
pub fn parent(driver: CgroupDriver, root: &[Box<str>], class: QosClass, uid: &str) -> String {
    let pod = format!("pod{uid}");
    path(driver, root, class_folder(class).into_iter().chain([&*pod]))
}

/// The cgroup of all pods, in the driver's form.
pub fn all_pods(driver: CgroupDriver, root: &[Box<str>]) -> String {
    path(driver, root, None)
}

fn path<'a>(
    driver: CgroupDriver,
    root: &'a [Box<str>],
    below: impl IntoIterator<Item = &'a str>,
) -> String {
    let parts = root.iter().map(|part| &**part).chain([ALL_PODS]).chain(below);
    match driver {
        CgroupDriver::Cgroupfs => parts.flat_map(|part| ["/", part]).collect(),
        CgroupDriver::Systemd => slices(parts),
    }
}

/// As systemd nests slices: each by its whole name, with dashes between the parts.
fn slices<'a>(parts: impl Iterator<Item = &'a str>) -> String {
    let (mut path, mut name) = (String::new(), String::new());
    for part in parts {
        let part = part.replace('-', "_");
        let part = part.strip_suffix(".slice").unwrap_or(&part);
        if !name.is_empty() {
            name.push('-');
        }
        name.push_str(part);
        path.push('/');
        path.push_str(&name);
        path.push_str(".slice");
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pods_place_is_named_as_its_driver_wants_it() {
        for (driver, root, class, want) in [
            (CgroupDriver::Cgroupfs, &[][..], QosClass::Guaranteed, "/kubepods/poda-b"),
            (CgroupDriver::Cgroupfs, &[], QosClass::Burstable, "/kubepods/burstable/poda-b"),
            (
                CgroupDriver::Cgroupfs,
                &["x", "y-z"],
                QosClass::BestEffort,
                "/x/y-z/kubepods/besteffort/poda-b",
            ),
            (
                CgroupDriver::Systemd,
                &[],
                QosClass::Guaranteed,
                "/kubepods.slice/kubepods-poda_b.slice",
            ),
            (
                CgroupDriver::Systemd,
                &[],
                QosClass::Burstable,
                "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-poda_b.slice",
            ),
            (
                CgroupDriver::Systemd,
                &["x.slice"],
                QosClass::Guaranteed,
                "/x.slice/x-kubepods.slice/x-kubepods-poda_b.slice",
            ),
        ] {
            let root: Vec<Box<str>> = root.iter().map(|&part| part.into()).collect();
            assert_eq!(parent(driver, &root, class, "a-b"), want);
            assert!(want.starts_with(&all_pods(driver, &root)), "{want}");
        }
    }

    #[test]
    fn shares_become_weights() {
        let pairs = [
            (2, 1),
            (1, 1),
            (0, 1),
            (1_024, 39),
            (102_400, 3_906),
            (262_144, 10_000),
            (1 << 40, 10_000),
        ];
        for (shares, want) in pairs {
            assert_eq!(weight(shares), want, "{shares}");
        }
    }

    #[test]
    fn huge_pages_are_named_as_the_kernel_does() {
        for (bytes, want) in [(2 << 20, "2MB"), (1 << 30, "1GB"), (64 << 10, "64KB")] {
            assert_eq!(&*huge_page_name(bytes), want);
        }
    }
}
