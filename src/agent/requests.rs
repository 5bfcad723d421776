//! The resource requests of pods (core/v1 `ResourceRequirements.requests`), and which of their disk
//! usage has a limit.

use super::volume::Kind;
use crate::model::pod::{Container, Pod, PodSpec, Volume};
use crate::model::quantity::Quantity;

/// Thousandths of a core.
pub const CPU: &str = "cpu";
/// Bytes.
pub const MEMORY: &str = "memory";
/// Bytes of logs, writable layers and volumes on the node's disk.
pub const STORAGE: &str = "ephemeral-storage";

/// The request of the whole pod for a resource: its own, or else that of its containers, plus the
/// overhead of the sandbox.
pub fn of_pod(spec: &PodSpec, name: &str) -> i64 {
    let unit = unit(name);
    let overhead = spec.overhead.get(name).map_or(0, unit);
    let own = spec.resources.requests.get(name).map(unit);
    let whole = own.unwrap_or_else(|| together(spec, |container| of(container, name)));
    whole.saturating_add(overhead)
}

/// The request of a container; if there is none, its limit.
pub fn of(container: &Container, name: &str) -> i64 {
    let resources = &container.resources;
    let requested = resources.requests.get(name).or_else(|| resources.limits.get(name));
    requested.map_or(0, unit(name))
}

fn unit(name: &str) -> fn(&Quantity) -> i64 {
    if name == CPU { Quantity::milli } else { Quantity::whole }
}

/// The largest sum of containers that run together: the main containers with the sidecars, or an
/// init container with the sidecars before it.
pub fn together(spec: &PodSpec, of: impl Fn(&Container) -> i64) -> i64 {
    let mains = spec.containers.iter().map(&of).fold(0, i64::saturating_add);
    let (mut sidecars, mut peak) = (0_i64, 0_i64);
    for init in &spec.init_containers {
        let with = sidecars.saturating_add(of(init));
        if init.restart_policy.is_some() {
            sidecars = with;
        }
        peak = peak.max(with);
    }
    peak.max(mains.saturating_add(sidecars))
}

/// Whether the pod's disk usage is limited.
pub fn bounds_disk(pod: &Pod) -> bool {
    has_storage_limit(pod) || on_disk(pod).any(|volume| size_limit(volume).is_some())
}

/// Whether some container limits its disk usage.
pub fn has_storage_limit(pod: &Pod) -> bool {
    let spec = &pod.spec;
    let mut containers = spec.init_containers.iter().chain(&spec.containers);
    containers.any(|container| container.resources.limits.contains_key(STORAGE))
}

/// The volumes on the node's disk that belong to the pod alone.
pub fn on_disk(pod: &Pod) -> impl Iterator<Item = &Volume> {
    pod.spec.volumes.iter().filter(|volume| {
        let memory = volume.empty_dir.as_ref().is_some_and(|dir| dir.medium == "Memory");
        Kind::of(volume) == Kind::EmptyDir && !memory
    })
}

/// The limit of a volume's size, if it has one.
pub fn size_limit(volume: &Volume) -> Option<&Quantity> {
    volume.empty_dir.as_ref()?.size_limit.as_ref().filter(|limit| limit.whole() > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_of_containers_that_run_together_are_summed() {
        let container = |kind: &str, of: &str, more: &str| {
            format!(r#"{{"name":"c","resources":{{"{kind}":{{{of}}}}}{more}}}"#)
        };
        let mains = [
            container("requests", r#""cpu":"250m","memory":"10""#, ""),
            container("limits", r#""cpu":1"#, ""),
        ];
        let sidecar = r#","restartPolicy":"Always""#;
        let inits = [
            container("requests", r#""memory":"1""#, sidecar),
            container("requests", r#""memory":"100""#, ""),
        ];
        let (mains, inits) = (mains.join(","), inits.join(","));
        let requested = |more: &str, name: &str| {
            let json = format!(r#"{{"containers":[{mains}],"initContainers":[{inits}]{more}}}"#);
            of_pod(&serde_json::from_str(&json).expect("a spec"), name)
        };
        assert_eq!(requested("", CPU), 1_250, "a limit is a request");
        assert_eq!(requested("", MEMORY), 101, "the init container beside the sidecar");
        assert_eq!(requested("", STORAGE), 0);
        assert_eq!(requested(r#","overhead":{"cpu":"50m"}"#, CPU), 1_300);
        assert_eq!(requested(r#","resources":{"requests":{"cpu":2}}"#, CPU), 2_000, "its own word");
    }
}
