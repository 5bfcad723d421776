//! Hooks of pods that nobody wants and whose manifest nobody has: what was noted on their
//! containers when they were made, by us or by any kubelet, is all that is known (spec sections 1.5
//! and 1.9). Their time is the orphan's grace period, which is short.

use std::sync::Arc;

use super::super::{Origin, Pod, Step};
use crate::agent::time::Instant;
use crate::model::cri::{self, ContainerState, SandboxId};
use crate::model::pod::{Container, ContainerPort};
use crate::model::probe::{Handler, HookKind, Lifecycle};

impl Pod {
    /// Takes what a look found of an orphan's hooks.
    pub(in crate::agent::pod) fn restore_hooks(&mut self) {
        if self.origin != Origin::Runtime {
            return;
        }
        for container in self.listed.containers.clone() {
            let Some(noted) = &container.pre_stop else { continue };
            if self.spec_of(&container.name).is_some() {
                continue;
            }
            let spec = restored(&container.name, noted);
            let unread = spec.is_err();
            let name = container.name.clone();
            let spec = spec.unwrap_or_else(|_| Container { name, ..Container::default() });
            Arc::make_mut(&mut self.api.spec).containers.push(spec);
            if unread {
                self.warn_of_hook(&container.name, HookKind::PreStop);
            }
        }
    }

    /// The look that tells the address of an orphan, if a hook that is to be begun needs it: of no
    /// other pod it is unknown when it ends.
    pub(in crate::agent::pod) fn address_for_hooks(&self, now: Instant) -> Option<Step> {
        let ending = self.ending.filter(|_| self.origin == Origin::Runtime)?;
        let in_time = now.since_ms(ending.since) < ending.grace_s.unsigned_abs() * 1_000;
        let sandbox = self.observed.sandbox().filter(|it| it.ready && it.status.is_none())?;
        let needs =
            |handler: &Handler| handler.http_get.as_ref().is_some_and(|get| get.host.is_empty());
        let any = self.observed.containers.iter().any(|observed| {
            let handler = self.handler(&observed.name, HookKind::PreStop);
            observed.state == ContainerState::Running && handler.is_some_and(needs)
        });
        (in_time && any).then(|| Step::InspectSandbox(sandbox.id.clone()))
    }

    /// The sandbox was looked at: an orphan has no other status that would tell its address.
    pub(in crate::agent::pod) fn take_address(&mut self, id: &SandboxId) {
        if self.origin != Origin::Runtime {
            return;
        }
        let status = self.observed.sandbox_mut(id).and_then(|sandbox| sandbox.status.as_ref());
        if let Some(ip) = status.and_then(|status| status.ips.first()) {
            self.api.status.pod_ip = ip.to_string();
        }
    }
}

/// A container of which nothing is known but its hook.
fn restored(name: &str, noted: &cri::PreStop) -> serde_json::Result<Container> {
    let ports: Vec<ContainerPort> = match &*noted.ports {
        "" => Vec::new(),
        ports => serde_json::from_str(ports)?,
    };
    let pre_stop: Handler = serde_json::from_str(&noted.handler)?;
    let lifecycle = Lifecycle { pre_stop: Some(pre_stop), ..Lifecycle::default() };
    let lifecycle = Some(Box::new(lifecycle));
    Ok(Container { name: name.into(), ports, lifecycle, ..Container::default() })
}
