//! A restart that somebody on the node asks for (metaserver.md, section 11.3).
//!
//! Intended behaviour: each main container and each sidecar that runs is stopped as for a changed
//! definition, with its preStop hook and the pod's grace period, and started again whatever the
//! restart policy; it counts for the back-off like any other restart. What does not run is left to
//! the pod, which starts it when it is due. KubeEdge stops all containers within 3 s, also of pods
//! that are never started again: those are refused here.
//!
//! **If we crash here** what was not stopped yet goes on.

use super::observed::ObservedContainer;
use super::{Phase, Pod, next};
use crate::model::cri::ContainerState;
use crate::model::pod::RestartPolicy;

impl Pod {
    /// Starts its containers anew; the error says why not.
    pub fn restart(&mut self) -> Result<(), &'static str> {
        if self.api.spec.restart_policy == RestartPolicy::Never {
            return Err("its restartPolicy is Never");
        }
        let ends = self.api.metadata.deletion_timestamp.is_some() || !self.is_active();
        if self.phase() != Phase::Syncing || ends {
            return Err("it ends, or has ended");
        }
        let spec = &self.api.spec;
        let sidecars = spec.init_containers.iter().filter(|init| next::is_sidecar(init));
        let newest = spec.containers.iter().chain(sidecars);
        let newest = newest.filter_map(|container| self.observed.newest(&container.name));
        let is_running = |it: &&ObservedContainer| it.state == ContainerState::Running;
        let running: Vec<_> =
            newest.filter(is_running).map(|it| (it.name.clone(), it.id.clone())).collect();
        if running.is_empty() {
            return Err("none of its containers runs: they start by themselves when they are due");
        }
        for (name, id) in running {
            self.records.of(&name).want_restart(id);
        }
        self.mark_dirty();
        Ok(())
    }
}
