//! Requests and limits → the QoS class, the resources of each container for the runtime, and the
//! values of the pod's own cgroup (spec section 3.3).

mod needs;

use std::collections::BTreeMap;

use crate::agent::Config;
use crate::model::cgroup::{Hierarchy, SHARES_MIN, Settings, Values, huge_page_name};
use crate::model::cri::Resources;
use crate::model::pod::{Container, PodSpec};
use crate::model::quantity::Quantity;
use crate::model::status::QosClass;
use needs::{CPU, HUGE_PAGES, MEMORY, Needs};

/// Pods of this class are the node's own: they are killed last when memory runs out.
const NODE_CRITICAL: &str = "system-node-critical";

/// Guaranteed: every container's CPU and memory requests equal its limits. BestEffort: no container
/// has any. Burstable: all others. A missing request equals the limit. If the pod has pod-level
/// resources, only these count.
pub fn qos_class(spec: &PodSpec) -> QosClass {
    let whole = [&spec.resources];
    let containers = spec.init_containers.iter().chain(&spec.containers);
    let parts: Vec<_> = containers.map(|container| &container.resources).collect();
    let stated = if has_own(spec) { &whole[..] } else { &parts[..] };
    let mut any = false;
    let mut guaranteed = true;
    for resources in stated {
        for name in [CPU, MEMORY] {
            let limit = resources.limits.get(name).map(Quantity::milli);
            let request = resources.requests.get(name).map(Quantity::milli).or(limit);
            any |= request.is_some_and(|milli| milli > 0);
            guaranteed &= limit.is_some_and(|milli| milli > 0) && request == limit;
        }
    }
    match (any, guaranteed) {
        (false, _) => QosClass::BestEffort,
        (true, true) => QosClass::Guaranteed,
        (true, false) => QosClass::Burstable,
    }
}

/// Whether the pod has pod-level resources.
pub fn has_own(spec: &PodSpec) -> bool {
    !(spec.resources.limits.is_empty() && spec.resources.requests.is_empty())
}

/// `linux.resources` of one container.
pub fn container_resources(spec: &PodSpec, container: &Container, config: &Config) -> Resources {
    let of = Needs::of(&container.resources);
    let cgroups = &config.machine.cgroups;
    let mut resources = to_cri(&of, &config.settings.cgroups);
    resources.oom_score_adj = oom_score_adj(spec, container, config.machine.memory_bytes);
    let limits = needs::huge_limits_of(&container.resources).collect();
    let pages = huge_pages(&limits, &cgroups.huge_pages);
    resources.hugepages = pages.map(|(name, bytes)| (name.into(), bytes)).collect();
    match cgroups.hierarchy {
        Hierarchy::V2 => {
            let mut set = |file: &str, value: &str| {
                resources.unified.insert(file.to_owned(), value.to_owned());
            };
            if !config.settings.cgroups.single_oom_kill {
                set("memory.oom.group", "1");
            }
            if cgroups.swap {
                set("memory.swap.max", "0");
            }
        }
        Hierarchy::V1 if cgroups.swap => resources.memory_swap_limit = resources.memory_limit,
        Hierarchy::V1 | Hierarchy::None => {}
    }
    resources
}

/// `linux.resources` of the sandbox: the sum over the containers that run together, or the largest
/// init container if that needs more.
pub fn pod_resources(spec: &PodSpec, settings: &Settings) -> Resources {
    to_cri(&whole(spec), settings)
}

/// The values of the pod's own cgroup. `overhead` is what the sandbox itself needs.
pub fn pod_values(
    spec: &PodSpec,
    overhead: &BTreeMap<String, Quantity>,
    config: &Config,
) -> Values {
    let settings = &config.settings.cgroups;
    let needs = whole(spec).and_beside(&Needs::of_overhead(overhead));
    let class = qos_class(spec);
    let has_pages = |size: &u64| *size > 0;
    let pages: Vec<u64> =
        config.machine.cgroups.huge_pages.iter().copied().filter(has_pages).collect();
    let mut values = Values {
        cpu_shares: SHARES_MIN,
        cpu_period: settings.cpu_period_us,
        pids: settings.pids_max,
        huge_pages: huge_pages(&needs::huge_limits(spec), &pages).collect(),
        ..Values::default()
    };
    if class != QosClass::BestEffort {
        values.cpu_shares = needs.shares();
        let quota = needs.quota(settings.cpu_period_us).filter(|_| settings.cpu_quota);
        values.cpu_quota = quota;
        values.memory = needs.memory_limit;
    }
    values
}

/// The CPU request of a Burstable pod in thousandths of a core; its class gets shares for the sum.
pub fn burstable_milli(spec: &PodSpec) -> i64 {
    if qos_class(spec) == QosClass::Burstable { whole(spec).cpu.unwrap_or(0) } else { 0 }
}

/// Bytes that the whole pod may use; 0: some container of it has no limit.
pub fn memory_limit(spec: &PodSpec) -> i64 {
    whole(spec).memory_limit.unwrap_or(0)
}

/// `linux.overhead`: what the sandbox itself needs.
pub fn overhead_resources(overhead: &BTreeMap<String, Quantity>, settings: &Settings) -> Resources {
    if overhead.is_empty() {
        return Resources::default();
    }
    to_cri(&Needs::of_overhead(overhead), settings)
}

/// The needs of the whole pod. A limit of the whole pod applies only if every container has one, or
/// if the pod itself has it.
fn whole(spec: &PodSpec) -> Needs {
    let all = || spec.init_containers.iter().chain(&spec.containers);
    let limited = |name: &str| all().all(|container| container.resources.limits.contains_key(name));
    let needs = Needs::of_containers(spec);
    let needs = Needs {
        cpu_limit: needs.cpu_limit.filter(|_| limited(CPU)),
        memory_limit: needs.memory_limit.filter(|_| limited(MEMORY)),
        ..needs
    };
    needs.overruled_by(&spec.resources)
}

fn to_cri(needs: &Needs, settings: &Settings) -> Resources {
    let period = settings.cpu_period_us;
    Resources {
        cpu_shares: needs.shares(),
        cpu_quota: needs.quota(period).filter(|_| settings.cpu_quota).unwrap_or(0),
        cpu_period: if settings.cpu_quota { period } else { 0 },
        memory_limit: needs.memory_limit.unwrap_or(0),
        ..Resources::default()
    }
}

/// The allowed amount of each huge page size that the kernel knows, by its name.
fn huge_pages(
    limits: &BTreeMap<&str, i64>,
    sizes: &[u64],
) -> impl Iterator<Item = (Box<str>, u64)> {
    let allowed = |size: u64| {
        let of_size = limits.iter().filter_map(move |(name, bytes)| {
            let named: Quantity = name.strip_prefix(HUGE_PAGES)?.parse().ok()?;
            (u64::try_from(named.whole()) == Ok(size)).then(|| bytes.unsigned_abs())
        });
        of_size.fold(0, u64::saturating_add)
    };
    sizes.iter().map(move |&size| (huge_page_name(size), allowed(size)))
}

/// Which processes the kernel kills first when memory runs out: BestEffort first, Guaranteed last,
/// Burstable by the requested share of the machine's memory.
fn oom_score_adj(spec: &PodSpec, container: &Container, machine_bytes: u64) -> i64 {
    if spec.priority_class_name() == Some(NODE_CRITICAL) {
        return -997;
    }
    match qos_class(spec) {
        QosClass::Guaranteed => -997,
        QosClass::BestEffort => 1000,
        QosClass::Burstable => {
            let requested = i128::from(requested_bytes(spec, container));
            let share = 1000 * requested / i128::from(machine_bytes.max(1));
            (1000 - share).clamp(3, 999) as i64
        }
    }
}

/// The memory request in bytes of a container of a Burstable pod. A sidecar counts at least as much
/// as the smallest main container; the part of the pod's own request beyond its containers' is
/// shared by them.
fn requested_bytes(spec: &PodSpec, container: &Container) -> i64 {
    let of = |container: &Container| Needs::of(&container.resources).memory.unwrap_or(0);
    let is_sidecar = spec.init_containers.iter().any(|init| init.name == container.name)
        && container.restart_policy.is_some();
    let mut requested = of(container);
    if has_own(spec) {
        let whole = whole(spec).memory.unwrap_or(0);
        let sum = spec.containers.iter().map(of).fold(0, i64::saturating_add);
        let count = i64::try_from(spec.containers.len().max(1)).unwrap_or(1);
        requested = requested.saturating_add((whole - sum).max(0) / count);
    }
    let least = spec.containers.iter().map(of).min().unwrap_or(0);
    if is_sidecar { requested.max(least) } else { requested }
}

#[cfg(test)]
mod tests;
