//! `volumeMounts` of a container's status, and which mounts are recursively read-only.

use super::Pod;
use super::step::PodContext;
use crate::model::pod::{Container, RecursiveReadOnly, VolumeMount};
use crate::model::status::VolumeMountStatus;

impl Pod {
    /// Records whether the pod's runtime handler supports recursive read-only mounts.
    pub(super) fn plan_mounts(&mut self, context: &PodContext<'_>) {
        let handler = self.runtime_handler(context);
        let recursive = handler.is_some_and(|handler| handler.recursive_read_only_mounts);
        self.dirty |= recursive != self.recursive;
        self.recursive = recursive;
    }

    /// The container's mounts as the runtime has them, in the order of its spec.
    pub(super) fn mounts_of(&self, spec: &Container) -> Vec<VolumeMountStatus> {
        let status = |mount: &VolumeMount| {
            let mode = if is_recursive(mount, self.recursive) {
                RecursiveReadOnly::Enabled
            } else {
                RecursiveReadOnly::Disabled
            };
            VolumeMountStatus {
                name: mount.name.clone(),
                mount_path: mount.mount_path.as_str().into(),
                read_only: mount.read_only,
                recursive_read_only: mount.read_only.then_some(mode),
            }
        };
        spec.volume_mounts.iter().map(status).collect()
    }
}

/// Whether the mount and everything mounted below it are read-only. `able`: the runtime supports
/// that. If it does not, a container that requires it is not created.
pub(super) fn is_recursive(mount: &VolumeMount, able: bool) -> bool {
    match mount.recursive_read_only {
        None | Some(RecursiveReadOnly::Disabled) => false,
        Some(RecursiveReadOnly::IfPossible) => able,
        Some(RecursiveReadOnly::Enabled) => true,
    }
}
