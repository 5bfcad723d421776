//! Hooks of orphaned pods: no source wants the pod and its manifest is gone, so only the
//! annotations of its containers are known. We or any kubelet wrote them when the containers were
//! created (spec sections 1.5 and 1.9). The time for hooks is the orphan's grace period, which is
//! short.

use std::sync::Arc;

use crate::agent::pod::plan::Step;
use crate::agent::pod::{Origin, Pod};
use crate::agent::time::Instant;
use crate::model::cri::{ContainerState, PreStop, SandboxId};
use crate::model::pod::Container;
use crate::model::probe::{Handler, HookKind, Lifecycle};

impl Pod {
    /// Reads the hooks of an orphan from a list.
    pub(in crate::agent::pod) fn restore_hooks(&mut self) {
        if self.origin != Origin::Runtime {
            return;
        }
        for container in self.observed.listed_containers().to_vec() {
            let Some(noted) = &container.pre_stop else { continue };
            if self.spec_of(&container.name).is_some() {
                continue;
            }
            let spec = restored(&container.name, noted);
            let unread = spec.is_none();
            let name = container.name.clone();
            let spec = spec.unwrap_or_else(|| Container { name, ..Container::default() });
            Arc::make_mut(&mut self.api.spec).containers.push(spec);
            if unread {
                self.warn_of_hook(&container.name, HookKind::PreStop);
            }
        }
    }

    /// The inspection that returns the orphan's address, if a hook that has to be started needs it.
    /// The address of any other pod is known when it ends.
    pub(in crate::agent::pod) fn address_for_hooks(&self, now: Instant) -> Option<Step> {
        let ending = self.lifecycle.ending().filter(|_| self.origin == Origin::Runtime)?;
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

    /// The sandbox was inspected: an orphan has no other status that would contain its address.
    pub(in crate::agent::pod) fn take_address(&mut self, id: &SandboxId) {
        if self.origin != Origin::Runtime {
            return;
        }
        let status = self.observed.sandbox_of(id).and_then(|sandbox| sandbox.status.as_ref());
        if let Some(ip) = status.and_then(|status| status.ips.first()) {
            self.api.status.pod_ip = ip.to_string();
        }
    }
}

/// A container of which only the hook is known.
fn restored(name: &str, noted: &PreStop) -> Option<Container> {
    let (pre_stop, ports) = noted.read()?;
    let lifecycle = Lifecycle { pre_stop: Some(pre_stop), ..Lifecycle::default() };
    let lifecycle = Some(Box::new(lifecycle));
    Some(Container { name: name.into(), ports, lifecycle, ..Container::default() })
}
