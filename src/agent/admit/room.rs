//! Admission by room: whether the pod fits beside the others (spec section 1.2, rows 4c and 4d).
//!
//! Pods of the manifest folder are static: they are admitted whatever they request, because the
//! node is useless without them; only their number and their host ports are limited.

use super::pressure::is_static;
use super::{Refused, pages};
use crate::agent::Config;
use crate::agent::amounts::Amounts;
use crate::agent::requests::{self, CPU, MEMORY, STORAGE};
use crate::model::pod::{ContainerPort, Pod, PodSpec};

/// Why the pod does not fit beside the others. Its requests do not count if it `runs`.
pub(super) fn without_room(
    pod: &Pod,
    runs: bool,
    others: &[&Pod],
    config: &Config,
) -> Option<Refused> {
    let asks = !(runs || is_static(pod));
    too_many(others.len(), config.pods_max)
        .or_else(|| if asks { too_much(&pod.spec, others, config) } else { None })
        .or_else(|| if runs { None } else { pages::too_many(pod, others, config) })
        .or_else(|| taken_port(pod, others))
}

fn too_many(others: usize, pods_max: usize) -> Option<Refused> {
    let (used, capacity) = (others, pods_max);
    (used >= capacity).then(|| Refused {
        reason: "OutOfpods",
        message: format!(
            "Node didn't have enough resource: pods, requested: 1, used: {used}, capacity: \
             {capacity}"
        ),
    })
}

/// Whether it requests more than the others leave of the allocatable amounts.
fn too_much(spec: &PodSpec, others: &[&Pod], config: &Config) -> Option<Refused> {
    let (all, amounts) = (Amounts::capacity(config), Amounts::allocatable(config));
    let resources = [
        ("OutOfcpu", CPU, all.cpu_milli, amounts.cpu_milli),
        ("OutOfmemory", MEMORY, all.memory_bytes, amounts.memory_bytes),
        ("OutOfephemeral-storage", STORAGE, all.storage_bytes, amounts.storage_bytes),
    ];
    // An unknown amount limits nothing.
    let known = resources.into_iter().filter(|(_, _, all, _)| *all > 0);
    known.into_iter().find_map(|(reason, name, _, capacity)| {
        let requested = requests::of_pod(spec, name);
        let of_others = others.iter().map(|other| requests::of_pod(&other.spec, name));
        let used = of_others.fold(0, i64::saturating_add);
        let after = u64::try_from(used.saturating_add(requested)).unwrap_or(0);
        (requested > 0 && after > capacity).then(|| Refused {
            reason,
            message: format!(
                "Node didn't have enough resource: {name}, requested: {requested}, used: {used}, \
                 capacity: {capacity}"
            ),
        })
    })
}

fn taken_port(pod: &Pod, others: &[&Pod]) -> Option<Refused> {
    let mut taken = others.iter().flat_map(|other| host_ports(other));
    let taken = taken.find(|taken| host_ports(pod).any(|port| clash(port, taken)))?;
    let port = taken.host_port;
    let message = format!("Predicate NodePorts failed: host port {port} is in use on this node");
    Some(Refused { reason: "NodePorts", message })
}

fn host_ports(pod: &Pod) -> impl Iterator<Item = &ContainerPort> {
    let ports = pod.spec.containers.iter().flat_map(|container| &container.ports);
    ports.filter(|port| port.host_port > 0)
}

fn clash(one: &ContainerPort, other: &ContainerPort) -> bool {
    let any = |ip: &str| ip.is_empty() || ip == "0.0.0.0" || ip == "::";
    one.host_port == other.host_port
        && one.protocol == other.protocol
        && (one.host_ip == other.host_ip || any(&one.host_ip) || any(&other.host_ip))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::Machine;
    use crate::model::housekeeping::{Signal, Threshold};

    fn pod(requests: &str, source: &str) -> Pod {
        let json = format!(
            r#"{{"metadata":{{"annotations":{{"kubernetes.io/config.source":"{source}"}}}},
                 "spec":{{"containers":[
                     {{"name":"c","resources":{{"requests":{{{requests}}}}}}}]}}}}"#
        );
        serde_json::from_str(&json).expect("a pod")
    }

    #[test]
    fn pods_of_the_cloud_share_what_the_node_gives_to_pods() {
        let machine = Machine { memory_bytes: 200 << 20, cpu_milli: 2_000, ..Machine::default() };
        let mut config = Config { machine, pods_max: 9, ..Config::default() };
        config.housekeeping.eviction.hard = [(Signal::Memory, Threshold::Amount(100 << 20))].into();
        let of_folder = pod(r#""cpu":"500m""#, "file");
        let others = [&pod(r#""cpu":1,"memory":"60Mi""#, "api"), &of_folder];
        let short = |what: &str| Some(format!("Node didn't have enough resource: {what}"));
        for (requests, source, runs, want) in [
            ("", "api", false, None),
            (r#""cpu":"500m","memory":"40Mi""#, "api", false, None),
            (
                r#""cpu":"501m","memory":"41Mi""#,
                "api",
                false,
                short("cpu, requested: 501, used: 1500, capacity: 2000"),
            ),
            (
                r#""memory":"41Mi""#,
                "api",
                false,
                short("memory, requested: 42991616, used: 62914560, capacity: 104857600"),
            ),
            // The size of the disk is not known.
            (r#""ephemeral-storage":"1Ti""#, "api", false, None),
            (r#""cpu":"501m""#, "api", true, None),
            (r#""cpu":"501m""#, "file", false, None),
        ] {
            let refused = without_room(&pod(requests, source), runs, &others, &config);
            assert_eq!(refused.map(|it| it.message), want, "{requests} {source} {runs}");
        }
        let others = [&of_folder; 9];
        let refused = without_room(&of_folder, true, &others, &config).expect("they are too many");
        assert_eq!(refused.reason, "OutOfpods");
    }
}
