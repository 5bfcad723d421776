//! Requests and limits → cgroup values and the QoS class (spec section 3.3).

use std::collections::BTreeMap;

use crate::agent::Machine;
use crate::model::cri::Resources;
use crate::model::pod::{Container, PodSpec, ResourceRequirements};
use crate::model::quantity::Quantity;
use crate::model::status::QosClass;

const CPU: &str = "cpu";
const MEMORY: &str = "memory";
/// Microseconds: the kernel's default CFS period.
const CPU_PERIOD: i64 = 100_000;
const SHARES_MIN: i64 = 2;
const SHARES_MAX: i64 = 262_144;
const QUOTA_MIN: i64 = 1_000;

/// Guaranteed: every container's CPU and memory requests equal its limits. BestEffort: none has
/// any. Burstable: all else. A request that is not written equals the limit.
pub fn qos_class(spec: &PodSpec) -> QosClass {
    let mut any = false;
    let mut guaranteed = true;
    for container in spec.init_containers.iter().chain(&spec.containers) {
        let resources = &container.resources;
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

/// `linux.resources` of one container.
pub fn container_resources(spec: &PodSpec, container: &Container, machine: &Machine) -> Resources {
    let of = Needs::of(&container.resources);
    Resources { oom_score_adj: oom_score_adj(spec, &of, machine), ..of.to_cri() }
}

/// `linux.resources` of the sandbox: the sum over the containers that run together, or the
/// largest init container where that needs more.
pub fn pod_resources(spec: &PodSpec) -> Resources {
    let mut sum = Needs::default();
    for container in &spec.containers {
        sum = sum.and(&Needs::of(&container.resources));
    }
    let mut peak = Needs::default();
    for init in &spec.init_containers {
        let needs = Needs::of(&init.resources);
        if init.restart_policy.is_some() {
            sum = sum.and(&needs);
        } else {
            peak = peak.or(&needs);
        }
    }
    let limited = |of: fn(&ResourceRequirements) -> bool| {
        spec.containers.iter().all(|container| of(&container.resources))
    };
    let needs = sum.or(&peak);
    // A limit of the whole holds only where every part has one.
    Needs {
        cpu_limit: needs.cpu_limit.filter(|_| limited(|r| r.limits.contains_key(CPU))),
        memory_limit: needs.memory_limit.filter(|_| limited(|r| r.limits.contains_key(MEMORY))),
        ..needs
    }
    .to_cri()
}

/// Bytes that the pod may take in all; 0: some container of it has no limit.
pub fn memory_limit(spec: &PodSpec) -> i64 {
    pod_resources(spec).memory_limit
}

/// `linux.overhead`: what the sandbox itself needs.
pub fn overhead_resources(overhead: &BTreeMap<String, Quantity>) -> Resources {
    if overhead.is_empty() {
        return Resources::default();
    }
    let limits = overhead.clone();
    Needs::of(&ResourceRequirements { limits, ..ResourceRequirements::default() }).to_cri()
}

/// CPU in thousandths of a core, memory in bytes.
#[derive(Clone, Copy, Debug, Default)]
struct Needs {
    cpu: Option<i64>,
    cpu_limit: Option<i64>,
    memory: Option<i64>,
    memory_limit: Option<i64>,
}

impl Needs {
    fn of(resources: &ResourceRequirements) -> Self {
        let cpu_limit = resources.limits.get(CPU).map(Quantity::milli);
        let memory_limit = resources.limits.get(MEMORY).map(Quantity::whole);
        Self {
            cpu: resources.requests.get(CPU).map(Quantity::milli).or(cpu_limit),
            cpu_limit,
            memory: resources.requests.get(MEMORY).map(Quantity::whole).or(memory_limit),
            memory_limit,
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

    fn to_cri(self) -> Resources {
        let shares = |milli: i64| (milli.saturating_mul(1024) / 1000).clamp(SHARES_MIN, SHARES_MAX);
        let quota = |milli: i64| (milli.saturating_mul(CPU_PERIOD) / 1000).max(QUOTA_MIN);
        Resources {
            cpu_shares: self.cpu.map_or(SHARES_MIN, shares),
            cpu_quota: self.cpu_limit.map_or(0, quota),
            cpu_period: CPU_PERIOD,
            memory_limit: self.memory_limit.unwrap_or(0),
            ..Resources::default()
        }
    }
}

/// Whom the kernel kills first when memory runs out: BestEffort first, Guaranteed last, Burstable
/// by how much of the machine was asked for.
fn oom_score_adj(spec: &PodSpec, needs: &Needs, machine: &Machine) -> i64 {
    match qos_class(spec) {
        QosClass::Guaranteed => -997,
        QosClass::BestEffort => 1000,
        QosClass::Burstable => {
            let asked = i128::from(needs.memory.unwrap_or(0));
            let share = 1000 * asked / i128::from(machine.memory_bytes.max(1));
            (1000 - share).clamp(3, 999) as i64
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(containers: &str) -> PodSpec {
        serde_json::from_str(&format!(r#"{{"containers":{containers}}}"#)).expect("a pod spec")
    }

    #[test]
    fn qos_classes_follow_requests_and_limits() {
        for (containers, class) in [
            (r#"[{"name":"a"}]"#, QosClass::BestEffort),
            (r#"[{"resources":{"requests":{"cpu":"0"}}}]"#, QosClass::BestEffort),
            (r#"[{"resources":{"requests":{"cpu":"1m"}}}]"#, QosClass::Burstable),
            (r#"[{"resources":{"limits":{"cpu":1,"memory":"1Mi"}}}]"#, QosClass::Guaranteed),
            (r#"[{"resources":{"limits":{"cpu":1,"memory":"1Mi"}}},{}]"#, QosClass::Burstable),
            (
                r#"[{"resources":{"limits":{"cpu":1,"memory":"1Mi"},"requests":{"cpu":"1"}}}]"#,
                QosClass::Guaranteed,
            ),
            (
                r#"[{"resources":{"limits":{"cpu":1,"memory":"1Mi"},"requests":{"cpu":"500m"}}}]"#,
                QosClass::Burstable,
            ),
        ] {
            assert_eq!(qos_class(&spec(containers)), class, "{containers}");
        }
    }

    #[test]
    fn cgroup_values_are_the_kubelets() {
        let of = |resources: &str| {
            let spec = spec(&format!(r#"[{{"resources":{resources}}}]"#));
            let machine = Machine { memory_bytes: 1 << 30, ..Machine::default() };
            container_resources(&spec, &spec.containers[0], &machine)
        };
        let none = of("{}");
        assert_eq!((none.cpu_shares, none.cpu_quota, none.memory_limit), (2, 0, 0));
        assert_eq!(none.oom_score_adj, 1000);
        let some = of(r#"{"requests":{"cpu":"250m","memory":"256Mi"},"limits":{"cpu":"500m"}}"#);
        assert_eq!((some.cpu_shares, some.cpu_quota, some.cpu_period), (256, 50_000, 100_000));
        assert_eq!(some.oom_score_adj, 750);
        let tiny = of(r#"{"limits":{"cpu":"1m","memory":"8Mi"}}"#);
        assert_eq!((tiny.cpu_shares, tiny.cpu_quota), (2, 1000));
        assert_eq!((tiny.memory_limit, tiny.oom_score_adj), (8 << 20, -997));
    }

    #[test]
    fn a_pod_needs_its_containers_together_or_its_largest_init_container() {
        let spec: PodSpec = serde_json::from_str(
            r#"{"initContainers":[
                    {"resources":{"limits":{"cpu":"3","memory":"1Mi"}}},
                    {"restartPolicy":"Always","resources":{"limits":{"cpu":"1","memory":"4Mi"}}}],
                "containers":[{"resources":{"limits":{"cpu":"1","memory":"4Mi"}}}]}"#,
        )
        .expect("a pod spec");
        let sum = pod_resources(&spec);
        assert_eq!((sum.cpu_quota, sum.memory_limit), (300_000, 8 << 20));
    }
}
