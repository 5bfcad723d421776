//! The node object and its status (core/v1 `NodeStatus`; spec sections 9.1 and 9.2).

mod amounts;
mod health;

use std::collections::BTreeMap;

use super::NodeInputs;
use crate::agent::amounts::Amounts;
use crate::model::node_status::{Condition, NodeAddress, NodeInfo, NodeStatus, OwnStatus};
use crate::model::settings::{Registration, Taint};
use crate::model::upstream::NodeObject;
pub(super) use health::Health;

/// The port of the node's HTTP API, as the cloud reaches it through its tunnel: it is reported
/// once, then the cloud replaces it by the port of the tunnel.
pub(super) const PORT: u16 = 10_350;

/// The version of Kubernetes and of KubeEdge that clouds and users read; our own version is the
/// build metadata.
const VERSION: &str = concat!("v1.32.10-kubeedge-v1.23.1+edged.", env!("CARGO_PKG_VERSION"));

/// The node object for the registration.
pub(super) fn object(
    inputs: &NodeInputs<'_>,
    registration: &Registration,
    status: NodeStatus,
    legacy_namespace: Option<Box<str>>,
) -> NodeObject {
    let configured = inputs.config.node_labels.iter();
    let mut labels: BTreeMap<Box<str>, Box<str>> =
        configured.map(|(key, value)| (key.as_str().into(), value.as_str().into())).collect();
    let machine = super::labels::machine_labels(inputs).into_iter();
    // The cloud treats nodes with the last label as edge nodes.
    let roles = ["node-role.kubernetes.io/agent", "node-role.kubernetes.io/edge"];
    let ours = machine.chain(roles.map(|role| (role, "")));
    labels.extend(ours.map(|(key, value)| (key.into(), value.into())));
    NodeObject {
        name: inputs.config.node_name.as_str().into(),
        labels,
        taints: taints(registration),
        unschedulable: !registration.schedulable,
        status,
        legacy_namespace,
    }
}

/// With the one of a node that is not schedulable.
fn taints(registration: &Registration) -> Vec<Taint> {
    const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";
    let mut taints = registration.taints.clone();
    if !registration.schedulable && taints.iter().all(|taint| taint.key != UNSCHEDULABLE) {
        taints.push(Taint {
            key: UNSCHEDULABLE.to_owned(),
            value: String::new(),
            effect: "NoSchedule".to_owned(),
        });
    }
    taints
}

/// The status with these conditions.
pub(super) fn own(inputs: &NodeInputs<'_>, conditions: Vec<Condition>) -> OwnStatus {
    let quantities = |amounts: Amounts| amounts::quantities(&amounts, inputs.config.pods_max);
    let identity = inputs.config.machine.identity.clone();
    let runtime = inputs.runtime.version().map_or_else(String::new, |version| {
        format!("{}://{}", version.runtime_name, plain_version(&version.runtime_version))
    });
    OwnStatus {
        capacity: quantities(Amounts::capacity(inputs.config)),
        allocatable: quantities(Amounts::allocatable(inputs.config)),
        addresses: addresses(inputs),
        node_info: NodeInfo {
            machine_id: identity.machine_id,
            system_uuid: identity.system_uuid,
            boot_id: identity.boot_id,
            kernel_version: identity.kernel_version,
            os_image: identity.os_image,
            container_runtime_version: runtime,
            kubelet_version: VERSION,
            kube_proxy_version: "",
            operating_system: "linux",
            architecture: identity.architecture,
        },
        conditions,
    }
}

/// A runtime's version as the kubelet shows it: semantic versions whole, without their `v`; of
/// others, such as Debian's `1.6.20~ds1`, only the numbers; unchanged if it has none.
fn plain_version(version: &str) -> &str {
    let plain = version.trim().strip_prefix('v').unwrap_or(version.trim());
    let numbers = plain.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(plain.len());
    let (digits, rest) = plain.split_at(numbers);
    let core = digits.trim_end_matches('.');
    let is_semantic = core == digits
        && core.split('.').count() == 3
        && (rest.is_empty() || rest.starts_with(['-', '+']));
    let has_numbers = core.contains('.') && core.split('.').all(|part| !part.is_empty());
    if !has_numbers {
        return version;
    }
    if is_semantic { plain } else { core }
}

/// The addresses at which others reach the node.
fn addresses(inputs: &NodeInputs<'_>) -> Vec<NodeAddress> {
    let is_own = |address: &&String| address.starts_with("127.") || *address == "::1";
    let reachable = inputs.addresses.iter().filter(|address| !is_own(address));
    let internal = reachable.map(|address| ("InternalIP", address));
    let all = internal.chain([("Hostname", &inputs.config.node_name)]);
    all.map(|(kind, address)| NodeAddress { kind, address: address.as_str().into() }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_runtimes_version_is_shown_as_the_kubelet_shows_it() {
        for (version, shown) in [
            ("1.6.20~ds1", "1.6.20"),
            ("v2.3.4", "2.3.4"),
            ("1.7.34", "1.7.34"),
            ("2.0.0-rc.1+abc", "2.0.0-rc.1+abc"),
            ("1.36", "1.36"),
            ("1.6.20.", "1.6.20"),
            ("unknown", "unknown"),
            ("5", "5"),
            ("", ""),
        ] {
            assert_eq!(plain_version(version), shown, "{version}");
        }
    }
}
