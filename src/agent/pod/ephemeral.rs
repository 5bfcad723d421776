//! Ephemeral containers: added to a running pod for debugging. Started once, whatever the restart
//! policy; nothing depends on them (spec section 2.10).

use super::{HostInfo, Pod};
use crate::model::cri::{ContainerId, ContainerState};
use crate::model::pod::Container;

impl Pod {
    /// Those that have never been started.
    pub(super) fn unstarted_ephemerals(&self) -> impl Iterator<Item = &Container> {
        self.api.spec.ephemeral_containers.iter().filter(|container| {
            let newest = self.observed.newest(&container.name);
            newest.is_none_or(|observed| observed.state == ContainerState::Created)
        })
    }

    /// The container whose processes this one can see.
    pub(super) fn target(&self, container: &Container) -> Result<Option<ContainerId>, String> {
        let name = container.target_container_name.as_deref().filter(|name| !name.is_empty());
        let Some(name) = name else { return Ok(None) };
        match self.observed.newest(name) {
            Some(observed) => Ok(Some(observed.id.clone())),
            None => Err(format!("unable to find target container {name}")),
        }
    }

    /// The pod's addresses, the primary first.
    pub(super) fn ips(&self, host_info: HostInfo<'_>) -> Vec<String> {
        if self.api.spec.host_network {
            return host_info.addresses.to_vec();
        }
        let status = self.observed.sandbox().and_then(|sandbox| sandbox.status.as_ref());
        status
            .map(|status| status.ips.iter().map(ToString::to_string).collect())
            .unwrap_or_default()
    }
}
