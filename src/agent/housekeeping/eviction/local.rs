//! Limits of a pod's disk usage: of its volumes, of its containers, and of all together (spec
//! section 9.4).

use super::usage::Usage;
use crate::agent::requests::{STORAGE, on_disk, size_limit, together};
use crate::model::job::Used;
use crate::model::pod as api;
use crate::model::quantity::Quantity;

/// The first limit that the pod exceeds: the signal it is counted under, and the message.
pub fn violation(pod: &api::Pod, usage: &Usage, dedicated: bool) -> Option<(&'static str, String)> {
    if let Some(message) = volume_violation(pod, usage) {
        return Some(("emptydirfs.limit", message));
    }
    if let Some(message) = pod_violation(pod, usage) {
        return Some(("ephemeralpodfs.limit", message));
    }
    let container = |spec: &api::Container| container_violation(spec, usage, dedicated);
    let message = pod.spec.containers.iter().find_map(container)?;
    Some(("ephemeralcontainerfs.limit", message))
}

fn volume_violation(pod: &api::Pod, usage: &Usage) -> Option<String> {
    on_disk(pod).find_map(|volume| {
        let (name, limit) = (&volume.name, size_limit(volume)?);
        let used = usage.volumes.get(name)?;
        let limit_bytes = limit.whole().unsigned_abs();
        let limit = limit.canonical();
        (used.bytes > limit_bytes)
            .then(|| format!("Usage of EmptyDir volume \"{name}\" exceeds the limit \"{limit}\". "))
    })
}

/// All containers' layers and logs and all volumes on the disk, against the sum of the limits.
fn pod_violation(pod: &api::Pod, usage: &Usage) -> Option<String> {
    let (limit, form) = limit(&pod.spec)?;
    let total = all(usage).plus(volumes_of(usage));
    (total.bytes > limit.unsigned_abs()).then(|| {
        let limit = form.like(limit);
        format!("Pod ephemeral local storage usage exceeds the total limit of containers {limit}. ")
    })
}

fn container_violation(spec: &api::Container, usage: &Usage, dedicated: bool) -> Option<String> {
    let limit = spec.resources.limits.get(STORAGE).filter(|limit| limit.whole() > 0)?;
    let used = usage.containers.get(&spec.name)?;
    let root = used.root.filter(|_| !dedicated).unwrap_or_default();
    let used = used.logs.unwrap_or_default().plus(root);
    let (name, shown) = (&spec.name, limit.canonical());
    (used.bytes > limit.whole().unsigned_abs()).then(|| {
        format!("Container {name} exceeded its local ephemeral storage limit \"{shown}\". ")
    })
}

/// Disk usage of all containers.
fn all(usage: &Usage) -> Used {
    let each = usage.containers.values().flat_map(|it| [it.root, it.logs]).flatten();
    each.fold(Used::default(), Used::plus)
}

/// Disk usage of all volumes.
pub fn volumes_of(usage: &Usage) -> Used {
    usage.volumes.values().copied().fold(Used::default(), Used::plus)
}

/// The limit of the containers that run together, or of the largest init container; and a quantity
/// whose notation the message uses. `None`: no container has a limit.
fn limit(spec: &api::PodSpec) -> Option<(i64, &Quantity)> {
    let mut each = spec.init_containers.iter().chain(&spec.containers);
    let form = each.find_map(|container| container.resources.limits.get(STORAGE))?;
    let limit = |container: &api::Container| {
        container.resources.limits.get(STORAGE).map_or(0, Quantity::whole)
    };
    Some((together(spec, limit), form))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::housekeeping::eviction::usage::ContainerUse;

    fn used(bytes: u64) -> Used {
        Used { bytes, inodes: 1 }
    }

    fn found(spec: &str, usage: &Usage, dedicated: bool) -> Option<(&'static str, String)> {
        let pod: api::Pod = serde_json::from_str(&format!(r#"{{"spec":{spec}}}"#)).expect("a pod");
        violation(&pod, usage, dedicated)
    }

    #[test]
    fn a_volume_may_be_as_large_as_its_limit() {
        let spec = r#"{"volumes":[
            {"name":"free","emptyDir":{}},
            {"name":"mem","emptyDir":{"medium":"Memory","sizeLimit":"1"}},
            {"name":"v","emptyDir":{"sizeLimit":"1024Mi"}}]}"#;
        let usage = |bytes| Usage {
            volumes: [("free", 1 << 40), ("mem", 9), ("v", bytes)]
                .map(|(name, bytes)| (name.into(), used(bytes)))
                .into(),
            ..Usage::default()
        };
        assert_eq!(found(spec, &usage(1 << 30), false), None);
        let message = "Usage of EmptyDir volume \"v\" exceeds the limit \"1Gi\". ".to_owned();
        assert_eq!(found(spec, &usage((1 << 30) + 1), false), Some(("emptydirfs.limit", message)));
    }

    #[test]
    fn containers_have_limits_of_their_own_and_together() {
        let spec = r#"{"volumes":[{"name":"v","emptyDir":{}}],
            "initContainers":[{"name":"i","resources":{"limits":{"ephemeral-storage":"20"}}}],
            "containers":[{"name":"a","resources":{"limits":{"ephemeral-storage":"10"}}},
                          {"name":"b","resources":{"limits":{"ephemeral-storage":"20"}}}]}"#;
        let usage = |root, logs, volume| Usage {
            containers: [(
                "a".into(),
                ContainerUse { root: Some(used(root)), logs: Some(used(logs)), memory: None },
            )]
            .into(),
            volumes: [("v".into(), used(volume))].into(),
            processes: None,
        };
        assert_eq!(found(spec, &usage(5, 5, 20), false), None);
        let pod = "Pod ephemeral local storage usage exceeds the total limit of containers 30. ";
        let pod = Some(("ephemeralpodfs.limit", pod.to_owned()));
        assert_eq!(found(spec, &usage(5, 5, 21), false), pod);
        let own = "Container a exceeded its local ephemeral storage limit \"10\". ".to_owned();
        let own = Some(("ephemeralcontainerfs.limit", own));
        assert_eq!(found(spec, &usage(6, 5, 0), false), own);
        // On another disk the layers are not counted.
        assert_eq!(found(spec, &usage(6, 5, 0), true), None);
        assert_eq!(found(spec, &usage(0, 11, 0), true), own);
    }

    #[test]
    fn limits_of_containers_that_run_together_are_summed() {
        let spec: api::PodSpec = serde_json::from_str(
            r#"{"initContainers":[{"name":"4"},{"name":"1","restartPolicy":"Always"},
                                  {"name":"5"}],
                "containers":[{"name":"2"},{"name":"1"}]}"#,
        )
        .expect("a spec");
        let named = |container: &api::Container| container.name.parse().expect("a number");
        assert_eq!(together(&spec, named), 6);
    }
}
