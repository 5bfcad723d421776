//! The order of eviction (spec section 9.4): first pods that use more than they requested, then by
//! priority, then by usage beyond the request.

use std::cmp::Reverse;

use super::local::volumes_of;
use super::usage::{ContainerUse, Usage, Usages};
use crate::agent::admit::is_critical;
use crate::agent::calls::Uid;
use crate::agent::pod::Pod;
use crate::agent::requests::{self, MEMORY, STORAGE};
use crate::model::housekeeping::Signal;
use crate::model::job::Used;
use crate::model::pod as api;

/// The first of these pods to evict for a shortage.
pub fn first<'a>(
    pods: impl Iterator<Item = &'a Pod>,
    signal: Signal,
    dedicated: bool,
    usages: &Usages,
) -> Option<Uid> {
    let ranked = pods.filter(|pod| !is_critical(pod.api())).map(|pod| {
        let usage = usages.get(pod.uid());
        (rank(pod.api(), signal, dedicated, usage), pod.uid())
    });
    ranked.min().map(|(_, uid)| uid.clone())
}

/// The smallest rank is evicted first: whether the usage is known, whether it is within the
/// request, the priority, the usage beyond the request.
type Rank = (bool, bool, i64, Reverse<i128>);

fn rank(pod: &api::Pod, signal: Signal, dedicated: bool, usage: Option<&Usage>) -> Rank {
    let priority = pod.spec.priority();
    if signal == Signal::Pids {
        // Unknown usage only counts among pods of equal priority.
        let processes = usage.and_then(|usage| usage.processes);
        let many = processes.map_or(i128::MAX, i128::from);
        return (true, true, priority, Reverse(many));
    }
    let Some(usage) = usage.filter(|usage| !usage.containers.is_empty()) else {
        return (false, false, priority, Reverse(0));
    };
    let used = match signal {
        Signal::Memory | Signal::PodsMemory => {
            let each = usage.containers.values().filter_map(|it| it.memory);
            each.fold(0, u64::saturating_add)
        }
        Signal::NodeFs => on_disk(usage, dedicated, Disk::Node).bytes,
        Signal::NodeFsInodes => on_disk(usage, dedicated, Disk::Node).inodes,
        Signal::ImageFs => on_disk(usage, dedicated, Disk::Images).bytes,
        Signal::ImageFsInodes => on_disk(usage, dedicated, Disk::Images).inodes,
        Signal::Pids => unreachable!("returned above"),
    };
    let beyond = i128::from(used) - i128::from(requested(pod, signal));
    (true, beyond <= 0, priority, Reverse(beyond))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Disk {
    Node,
    Images,
}

/// The usage that counts for a disk: layers are on the disk of the images, logs and volumes on the
/// disk of the node's files.
fn on_disk(usage: &Usage, dedicated: bool, disk: Disk) -> Used {
    let sum = |of: fn(&ContainerUse) -> Option<Used>| {
        usage.containers.values().filter_map(of).fold(Used::default(), Used::plus)
    };
    let (roots, logs) = (sum(|it| it.root), sum(|it| it.logs));
    match (dedicated, disk) {
        (true, Disk::Images) => roots,
        (true, Disk::Node) => logs.plus(volumes_of(usage)),
        (false, _) => roots.plus(logs).plus(volumes_of(usage)),
    }
}

/// The pod's request for the scarce resource; there are no requests for inodes.
fn requested(pod: &api::Pod, signal: Signal) -> i64 {
    match signal {
        Signal::Memory | Signal::PodsMemory => requests::of_pod(&pod.spec, MEMORY),
        Signal::NodeFs | Signal::ImageFs => requests::of_pod(&pod.spec, STORAGE),
        Signal::NodeFsInodes | Signal::ImageFsInodes | Signal::Pids => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `name priority request`
    fn pod(text: &str) -> api::Pod {
        let words: Vec<&str> = text.split(' ').collect();
        let (priority, request) = (words[1], words[2]);
        serde_json::from_str(&format!(
            r#"{{"metadata":{{"name":"{}"}},"spec":{{"priority":{priority},"containers":[
                {{"name":"c","resources":{{"requests":
                    {{"memory":"{request}","ephemeral-storage":"{request}"}}}}}}]}}}}"#,
            words[0]
        ))
        .expect("a pod")
    }

    fn order(signal: Signal, dedicated: bool, pods: &[(&str, Option<Usage>)]) -> String {
        let mut ranked: Vec<_> = pods
            .iter()
            .map(|(text, usage)| {
                let pod = pod(text);
                (rank(&pod, signal, dedicated, usage.as_ref()), pod.metadata.name)
            })
            .collect();
        ranked.sort();
        ranked.into_iter().map(|(_, name)| name).collect::<Vec<_>>().join(" ")
    }

    fn memory(bytes: u64) -> Usage {
        let container = ContainerUse { memory: Some(bytes), ..ContainerUse::default() };
        Usage { containers: [("c".into(), container)].into(), ..Usage::default() }
    }

    #[test]
    fn pods_over_their_request_go_first_then_by_priority_then_by_excess() {
        let pods = [
            ("modest 0 100", Some(memory(90))),
            ("unknown 9 0", None),
            ("greedy 0 100", Some(memory(300))),
            ("greedier 0 0", Some(memory(301))),
            ("dear 5 0", Some(memory(900))),
            ("modest-and-cheap -1 100", Some(memory(50))),
        ];
        let want = "unknown greedier greedy dear modest-and-cheap modest";
        assert_eq!(order(Signal::Memory, false, &pods), want);
    }

    #[test]
    fn absurd_numbers_do_not_overflow() {
        let container = || ContainerUse { memory: Some(u64::MAX), ..ContainerUse::default() };
        let containers = [("c".into(), container()), ("d".into(), container())].into();
        let most = Usage { containers, ..Usage::default() };
        let pods = [("little 0 0", Some(memory(1))), ("most 0 0", Some(most))];
        assert_eq!(order(Signal::Memory, false, &pods), "most little");
    }

    #[test]
    fn for_pids_priority_counts_before_the_number_of_processes() {
        let many = |count| Some(Usage { processes: count, ..memory(1) });
        let pods = [
            ("few 0 0", many(Some(3))),
            ("many 0 0", many(Some(30))),
            ("unknown 0 0", None),
            ("dear 1 0", many(Some(300))),
        ];
        assert_eq!(order(Signal::Pids, false, &pods), "unknown many few dear");
    }

    #[test]
    fn usage_counts_on_the_disk_where_it_lies() {
        let used = |bytes| Used { bytes, inodes: 100 - bytes };
        let usage = |root, logs, volume| {
            let container =
                ContainerUse { root: Some(used(root)), logs: Some(used(logs)), memory: None };
            Some(Usage {
                containers: [("c".into(), container)].into(),
                volumes: [("v".into(), used(volume))].into(),
                processes: None,
            })
        };
        let pods = [("layers 0 0", usage(9, 1, 1)), ("volumes 0 0", usage(1, 2, 7))];
        assert_eq!(order(Signal::ImageFs, true, &pods), "layers volumes");
        assert_eq!(order(Signal::NodeFs, true, &pods), "volumes layers");
        assert_eq!(order(Signal::NodeFs, false, &pods), "layers volumes");
        assert_eq!(order(Signal::NodeFsInodes, true, &pods), "layers volumes");
        assert_eq!(order(Signal::ImageFsInodes, true, &pods), "volumes layers");
    }
}
