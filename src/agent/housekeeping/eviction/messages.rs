//! Messages in the status and the event of an evicted pod: the kubelet's own words, which tools
//! match on.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::shortage::{Observed, Threshold};
use super::usage::Usage;
use crate::agent::requests::{self, STORAGE};
use crate::model::housekeeping::Signal;
use crate::model::pod::{Container, Pod};
use crate::model::quantity::{Quantity, binary, decimal};

/// The scarce resource, as events name it.
pub fn resource(signal: Signal) -> &'static str {
    match signal {
        Signal::Memory | Signal::PodsMemory => "memory",
        Signal::NodeFs | Signal::ImageFs => STORAGE,
        Signal::NodeFsInodes | Signal::ImageFsInodes => "inodes",
        Signal::Pids => "pids",
    }
}

/// The message, and the annotations of the event.
pub fn message(
    pod: &Pod,
    usage: Option<&Usage>,
    due: &[Threshold],
    observed: &Observed,
) -> (String, BTreeMap<&'static str, String>) {
    let resource = resource(due[0].signal);
    let mut message = format!("The node was low on resource: {resource}. ");
    if let Some((quantity, available)) = threshold_met(resource, due, observed) {
        let _ = write!(message, "Threshold quantity: {quantity}, available: {available}. ");
    }
    let mut names = Vec::new();
    let mut usages = Vec::new();
    for (name, used) in usage.into_iter().flat_map(|usage| &usage.containers) {
        let bytes = match resource {
            "memory" => used.memory,
            STORAGE => match (used.root, used.logs) {
                (Some(root), Some(logs)) => Some(root.plus(logs).bytes),
                _ => None,
            },
            _ => None,
        };
        let mut containers = pod.spec.containers.iter().chain(&pod.spec.init_containers);
        let of_spec = containers.find(|container| container.name == *name);
        let (Some(bytes), Some(container)) = (bytes, of_spec) else { continue };
        if i128::from(bytes) > i128::from(requests::of(container, resource)) {
            let (shown, request) = (binary(bytes), request(container, resource));
            let _ = write!(
                message,
                "Container {name} was using {shown}, request is {request}, has larger consumption \
                 of {resource}. "
            );
            names.push(name.to_string());
            usages.push(shown);
        }
    }
    let annotations = [
        ("offending_containers", names.join(",")),
        ("offending_containers_usage", usages.join(",")),
        ("starved_resource", resource.to_owned()),
    ];
    (message, annotations.into())
}

/// The quantity and the available amount of the first threshold for the resource.
fn threshold_met(
    resource: &str,
    due: &[Threshold],
    observed: &Observed,
) -> Option<(String, String)> {
    let about = |threshold: &&Threshold| self::resource(threshold.signal) == resource;
    due.iter().filter(about).find_map(|threshold| {
        let amount = observed.get(threshold.signal)?;
        let available = match threshold.signal {
            Signal::Memory | Signal::PodsMemory | Signal::NodeFs | Signal::ImageFs => {
                binary(amount.available)
            }
            Signal::NodeFsInodes | Signal::ImageFsInodes | Signal::Pids => {
                decimal(amount.available)
            }
        };
        Some((binary(threshold.least.of(amount.capacity)), available))
    })
}

fn request(container: &Container, resource: &str) -> String {
    let resources = &container.resources;
    let written = resources.requests.get(resource).or_else(|| resources.limits.get(resource));
    written.map_or_else(|| "0".to_owned(), Quantity::canonical)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::housekeeping::eviction::usage::ContainerUse;
    use crate::model::housekeeping::{Amount, Measures, Room, Threshold as Least};
    use crate::model::job::Used;

    fn due(signal: Signal, least: Least) -> Vec<Threshold> {
        vec![Threshold { signal, least, reclaim_min: None, grace_ms: None }]
    }

    fn pod() -> Pod {
        serde_json::from_str(
            r#"{"spec":{"containers":[{"name":"a"},
                {"name":"b","resources":{"requests":{"memory":"300Mi"}}}]}}"#,
        )
        .expect("a pod")
    }

    #[test]
    fn a_message_names_the_shortage_and_containers_over_their_request() {
        let memory = |mib: u64| ContainerUse { memory: Some(mib << 20), ..ContainerUse::default() };
        let usage = Usage {
            containers: [("a".into(), memory(200)), ("b".into(), memory(300))].into(),
            ..Usage::default()
        };
        let measures = Measures {
            memory: Some(Amount { capacity: 1 << 30, available: 90 << 20 }),
            ..Measures::default()
        };
        let due = due(Signal::Memory, Least::Amount(100 << 20));
        let (text, annotations) = message(&pod(), Some(&usage), &due, &Observed::of(&measures, 0));
        assert_eq!(
            text,
            "The node was low on resource: memory. Threshold quantity: 100Mi, available: 90Mi. \
             Container a was using 200Mi, request is 0, has larger consumption of memory. "
        );
        assert_eq!(annotations["offending_containers"], "a");
        assert_eq!(annotations["offending_containers_usage"], "200Mi");
        assert_eq!(annotations["starved_resource"], "memory");
    }

    #[test]
    fn disk_messages_use_bytes_or_inodes() {
        let room = Room {
            bytes: Amount { capacity: 1_000_000, available: 1_536 },
            inodes: Amount { capacity: 100_000, available: 2_000 },
            device: 1,
        };
        let measures = Measures { node_fs: Some(room), ..Measures::default() };
        let used = |bytes| Some(Used { bytes, inodes: 1 });
        let container = ContainerUse { root: used(1 << 20), logs: used(1 << 20), memory: None };
        let usage = Usage { containers: [("a".into(), container)].into(), ..Usage::default() };
        let reported = |signal, least| {
            let observed = Observed::of(&measures, 0);
            message(&pod(), Some(&usage), &due(signal, least), &observed).0
        };
        assert_eq!(
            reported(Signal::NodeFs, Least::Millionths(100_000)),
            "The node was low on resource: ephemeral-storage. Threshold quantity: 100000, \
             available: 1536. Container a was using 2Mi, request is 0, has larger consumption of \
             ephemeral-storage. "
        );
        assert_eq!(
            reported(Signal::NodeFsInodes, Least::Millionths(50_000)),
            "The node was low on resource: inodes. Threshold quantity: 5000, available: 2k. "
        );
    }
}
