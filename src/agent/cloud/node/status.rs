//! Builds the node object and its status (core/v1 `NodeStatus`; spec sections 9.1 and 9.2).

mod amounts;
mod health;

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::agent::Config;
use crate::agent::amounts::Amounts;
use crate::agent::node::Node;
use crate::agent::pleg::Pleg;
use crate::agent::runtime::Runtime;
use crate::agent::time::Now;
use crate::model::housekeeping::StoredImage;
use crate::model::settings::Registration;
pub(super) use health::{Condition, Health};

/// The port of the node's HTTP API, as the cloud reaches it through its tunnel: it is reported
/// once, then the cloud replaces it by the port of the tunnel.
pub(super) const PORT: u16 = 10_350;

/// The version of Kubernetes and of KubeEdge that clouds and users read; our own version is the
/// build metadata.
const VERSION: &str = concat!("v1.32.10-kubeedge-v1.23.1+edged.", env!("CARGO_PKG_VERSION"));

/// What the core knows of its node.
#[derive(Clone, Copy, Debug)]
pub(in crate::agent) struct NodeInputs<'a> {
    pub config: &'a Config,
    pub addresses: &'a [String],
    pub runtime: &'a Runtime,
    pub pleg: &'a Pleg,
    pub node: &'a Node,
    /// Images to report; `None`: not known yet.
    pub images: Option<&'a [StoredImage]>,
}

/// Which heartbeat times are new.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Beat {
    /// Of all conditions.
    New,
    /// Of conditions that have changed.
    WithChanges,
}

/// The node object for the registration.
pub(super) fn object(
    inputs: &NodeInputs<'_>,
    registration: &Registration,
    status: &Value,
) -> Value {
    let name = inputs.config.node_name.as_str();
    let mut labels: BTreeMap<&str, &str> = inputs
        .config
        .node_labels
        .iter()
        .map(|(key, value)| (key.as_str(), value.as_str()))
        .collect();
    labels.extend(super::labels::machine_labels(inputs));
    labels.insert("node-role.kubernetes.io/agent", "");
    // The cloud treats nodes with this label as edge nodes.
    labels.insert("node-role.kubernetes.io/edge", "");
    json!({
        "metadata": {
            "name": name,
            "labels": labels,
            "annotations": {"volumes.kubernetes.io/controller-managed-attach-detach": "true"},
        },
        "spec": spec(registration),
        "status": status,
    })
}

fn spec(registration: &Registration) -> Value {
    const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";
    let mut taints = Vec::new();
    for taint in &registration.taints {
        let mut entry = json!({"key": taint.key, "effect": taint.effect});
        if !taint.value.is_empty() {
            entry["value"] = taint.value.as_str().into();
        }
        taints.push(entry);
    }
    let mut spec = json!({});
    if !registration.schedulable {
        spec["unschedulable"] = true.into();
        if registration.taints.iter().all(|taint| taint.key != UNSCHEDULABLE) {
            taints.push(json!({"key": UNSCHEDULABLE, "effect": "NoSchedule"}));
        }
    }
    if !taints.is_empty() {
        spec["taints"] = taints.into();
    }
    spec
}

/// The status without the conditions.
pub(super) fn status(inputs: &NodeInputs<'_>) -> Value {
    let quantities = |amounts: Amounts| amounts::quantities(&amounts, inputs.config.pods_max);
    let identity = &inputs.config.machine.identity;
    let runtime = inputs.runtime.version().map_or_else(String::new, |version| {
        format!("{}://{}", version.runtime_name, plain_version(&version.runtime_version))
    });
    json!({
        "capacity": quantities(Amounts::capacity(inputs.config)),
        "allocatable": quantities(Amounts::allocatable(inputs.config)),
        "addresses": addresses(inputs),
        "nodeInfo": {
            "machineID": identity.machine_id,
            "systemUUID": identity.system_uuid,
            "bootID": identity.boot_id,
            "kernelVersion": identity.kernel_version,
            "osImage": identity.os_image,
            "containerRuntimeVersion": runtime,
            "kubeletVersion": VERSION,
            "kubeProxyVersion": "",
            "operatingSystem": "linux",
            "architecture": identity.architecture,
        },
    })
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
fn addresses(inputs: &NodeInputs<'_>) -> Value {
    let is_own = |address: &&String| address.starts_with("127.") || *address == "::1";
    let reachable = inputs.addresses.iter().filter(|address| !is_own(address));
    let internal = reachable.map(|address| json!({"type": "InternalIP", "address": address}));
    let hostname = json!({"type": "Hostname", "address": inputs.config.node_name});
    internal.chain([hostname]).collect()
}

/// The status as the cloud has it, with ours over it: what others have set stays.
pub(super) fn over(base: &Value, ours: Value) -> Value {
    match (base, ours) {
        (Value::Object(base), Value::Object(mut ours)) => {
            let mut all = Map::new();
            for (key, old) in base {
                let value = ours.remove(key).map_or_else(|| old.clone(), |value| over(old, value));
                all.insert(key.clone(), value);
            }
            for (key, value) in ours {
                all.insert(key, value);
            }
            Value::Object(all)
        }
        (_, ours) => ours,
    }
}

/// The conditions: ours, and those of others that the cloud has, in the order of the cloud.
pub(super) fn conditions(own: &[Condition], base: Option<&Value>, now: Now, beat: Beat) -> Value {
    let remote = remote_conditions(base);
    let is_fully_observed = |kind: &str| remote.iter().any(|it| it["type"] == kind);
    let own_of = |it: &Value| own.iter().find(|own| it["type"] == own.kind);
    let updated =
        remote.iter().map(|it| own_of(it).map_or(it.clone(), |own| own.over(it, now, beat)));
    let new = own.iter().filter(|own| !is_fully_observed(own.kind));
    updated.chain(new.map(|own| own.over(&Value::Null, now, beat))).collect()
}

fn remote_conditions(base: Option<&Value>) -> &[Value] {
    base.and_then(|base| base["conditions"].as_array()).map_or(&[], Vec::as_slice)
}

/// Whether the cloud has the condition at all.
fn has(base: Option<&Value>, kind: &str) -> bool {
    remote_conditions(base).iter().any(|it| it["type"] == kind)
}

/// Whether the cloud has the node as ready.
pub(super) fn is_ready(base: &Value) -> bool {
    remote_conditions(Some(base)).iter().any(|it| it["type"] == "Ready" && it["status"] == "True")
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
