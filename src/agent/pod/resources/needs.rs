//! Requests and limits of a pod, summed up as its containers run: main containers and sidecars
//! together, each plain init container with the sidecars before it.

use std::collections::BTreeMap;

use crate::model::cgroup::{SHARES_MIN, shares};
use crate::model::pod::{PodSpec, ResourceRequirements};
use crate::model::quantity::Quantity;

pub(super) const CPU: &str = "cpu";
pub(super) const MEMORY: &str = "memory";
/// Followed by the page size.
pub(super) const HUGE_PAGES: &str = "hugepages-";

/// The kernel's minimum, in microseconds.
const QUOTA_MIN: i64 = 1_000;

/// CPU in thousandths of a core, memory in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Needs {
    pub cpu: Option<i64>,
    pub cpu_limit: Option<i64>,
    pub memory: Option<i64>,
    pub memory_limit: Option<i64>,
}

impl Needs {
    /// A missing request equals the limit.
    pub(super) fn of(resources: &ResourceRequirements) -> Self {
        let cpu_limit = resources.limits.get(CPU).map(Quantity::milli);
        let memory_limit = resources.limits.get(MEMORY).map(Quantity::whole);
        Self {
            cpu: resources.requests.get(CPU).map(Quantity::milli).or(cpu_limit),
            cpu_limit,
            memory: resources.requests.get(MEMORY).map(Quantity::whole).or(memory_limit),
            memory_limit,
        }
    }

    pub(super) fn of_overhead(overhead: &BTreeMap<String, Quantity>) -> Self {
        let limits = overhead.clone();
        Self::of(&ResourceRequirements { limits, ..ResourceRequirements::default() })
    }

    /// Of the containers that run together, or of the largest init container if that needs more.
    pub(super) fn of_containers(spec: &PodSpec) -> Self {
        let (mut sidecars, mut peak) = (Self::default(), Self::default());
        for init in &spec.init_containers {
            let needs = Self::of(&init.resources);
            if init.restart_policy.is_some() {
                sidecars = sidecars.and(&needs);
            } else {
                peak = peak.or(&sidecars.and(&needs));
            }
        }
        let mains = spec.containers.iter().map(|main| Self::of(&main.resources));
        mains.fold(sidecars, |sum, needs| sum.and(&needs)).or(&peak)
    }

    /// Pod-level resources override the sum of the containers.
    pub(super) fn overruled_by(self, own: &ResourceRequirements) -> Self {
        let limit = |name: &str, of: fn(&Quantity) -> i64| own.limits.get(name).map(of);
        let request = |name: &str, of: fn(&Quantity) -> i64| own.requests.get(name).map(of);
        let (cpu_limit, memory_limit) =
            (limit(CPU, Quantity::milli), limit(MEMORY, Quantity::whole));
        Self {
            cpu: request(CPU, Quantity::milli).or(self.cpu).or(cpu_limit),
            cpu_limit: cpu_limit.or(self.cpu_limit),
            memory: request(MEMORY, Quantity::whole).or(self.memory).or(memory_limit),
            memory_limit: memory_limit.or(self.memory_limit),
        }
    }

    /// With the overhead of the sandbox; the overhead alone adds no limit where there was none.
    pub(super) fn and_beside(self, overhead: &Self) -> Self {
        let sum = self.and(overhead);
        Self {
            cpu_limit: sum.cpu_limit.filter(|_| self.cpu_limit.is_some()),
            memory_limit: sum.memory_limit.filter(|_| self.memory_limit.is_some()),
            ..sum
        }
    }

    fn with(&self, other: &Self, join: fn(i64, i64) -> i64) -> Self {
        let both = |a: Option<i64>, b: Option<i64>| match (a, b) {
            (Some(a), Some(b)) => Some(join(a, b)),
            (one, other) => one.or(other),
        };
        Self {
            cpu: both(self.cpu, other.cpu),
            cpu_limit: both(self.cpu_limit, other.cpu_limit),
            memory: both(self.memory, other.memory),
            memory_limit: both(self.memory_limit, other.memory_limit),
        }
    }

    fn and(&self, other: &Self) -> Self {
        self.with(other, i64::saturating_add)
    }

    fn or(&self, other: &Self) -> Self {
        self.with(other, i64::max)
    }

    /// The CPU weight in the kernel.
    pub(super) fn shares(&self) -> i64 {
        self.cpu.map_or(SHARES_MIN, shares)
    }

    /// Microseconds in each period; `None`: no limit.
    pub(super) fn quota(&self, period_us: i64) -> Option<i64> {
        let limit = self.cpu_limit.filter(|&milli| milli > 0)?;
        Some((limit.saturating_mul(period_us) / 1000).max(QUOTA_MIN))
    }
}

/// Limits of huge pages in bytes for the whole pod: its own values, otherwise the sum over the
/// containers that run together. A sum may exceed the range of a quantity.
pub(super) fn huge_limits(spec: &PodSpec) -> BTreeMap<&str, i64> {
    let (mut sum, mut peak) = (BTreeMap::new(), BTreeMap::new());
    for init in &spec.init_containers {
        let beside = sum.clone();
        for (name, bytes) in huge_limits_of(&init.resources) {
            if init.restart_policy.is_some() {
                add(&mut sum, name, bytes);
            } else {
                let all = bytes.saturating_add(beside.get(name).copied().unwrap_or(0));
                let most = peak.entry(name).or_default();
                *most = all.max(*most);
            }
        }
    }
    for main in &spec.containers {
        huge_limits_of(&main.resources).for_each(|(name, bytes)| add(&mut sum, name, bytes));
    }
    for (name, bytes) in peak {
        let most = sum.entry(name).or_default();
        *most = bytes.max(*most);
    }
    sum.extend(huge_limits_of(&spec.resources));
    sum
}

/// Bytes of huge pages by name.
pub(super) fn huge_limits_of(
    resources: &ResourceRequirements,
) -> impl Iterator<Item = (&str, i64)> {
    let pages = resources.limits.iter().filter(|(name, _)| name.starts_with(HUGE_PAGES));
    pages.map(|(name, bytes)| (name.as_str(), bytes.whole()))
}

fn add<'a>(sum: &mut BTreeMap<&'a str, i64>, name: &'a str, bytes: i64) {
    let all = sum.entry(name).or_default();
    *all = bytes.saturating_add(*all);
}
