//! Containers that wait because their configuration is incomplete: an object is missing, or the
//! user may not be root. They are retried after a while, and at once when an object may have come.

use super::{Pod, PodContext, Step, dns};
use crate::agent::objects::Key;
use crate::agent::time::Now;
use crate::limits;
use crate::model::recorded_event::EventType;
use crate::model::status::Waiting;

/// The waiting reason of a container whose configuration cannot be built.
pub(super) const CONFIG_ERROR: &str = "CreateContainerConfigError";

impl Pod {
    /// Whether the pod can use this object: it is in the pod's namespace, or has none.
    pub fn may_use(&self, key: &Key) -> bool {
        key.namespace.is_empty() || *key.namespace == *self.api.metadata.namespace
    }

    /// An object that it may use was added, removed or changed.
    pub fn objects_changed(&mut self) {
        self.try_configuration();
        self.volumes.mark_dirty();
        self.mark_dirty();
    }

    /// The call cannot be built: it waits until something may have changed.
    pub(super) fn misconfigured(&mut self, now: Now, step: &Step, why: &str) {
        match step {
            Step::Create { container, .. } => self.unconfigured(now, container, why),
            Step::RunSandbox { .. } => {
                self.runner.hold(now.boot.plus_ms(limits::RETRY_MS));
                self.warn("FailedCreatePodSandBox", format!("Failed to create pod sandbox: {why}"));
            }
            other => panic!("{other:?} needs no configuration: {why}"),
        }
    }

    /// The container waits.
    pub(super) fn unconfigured(&mut self, now: Now, container: &str, why: &str) {
        let retry_at = now.boot.plus_ms(limits::RETRY_MS);
        let record = self.record_mut(container);
        record.files = None;
        record.hold_until = Some(retry_at);
        record.failure = Some(Waiting { reason: CONFIG_ERROR, message: why.to_owned() });
        self.dirty = true;
        self.record_event(container, EventType::Warning, "Failed", format!("Error: {why}"));
    }

    /// Records where the pod's resolver differs from the requested configuration.
    pub(super) fn record_dns_events(&mut self, context: &PodContext<'_>) {
        for (reason, message) in dns::form(&self.api, context.resolver, context.config).events {
            self.warn(reason, message);
        }
    }

    /// What a container waits for may exist now.
    fn try_configuration(&mut self) {
        for record in self.records.values_mut() {
            if record.failure.as_ref().is_some_and(|failure| failure.reason == CONFIG_ERROR) {
                record.hold_until = None;
            }
        }
    }
}
