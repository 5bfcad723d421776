//! Hooks are not built in: admission refuses a pod that has any.
#![expect(clippy::unused_self, reason = "same interface as the full version")]

use super::observed::ObservedContainer;
use super::plan::{Next, Step, StopReason};
use super::{Pod, PodContext};
use crate::agent::event::{CallId, ProbeId};
use crate::agent::time::{Instant, Now};
use crate::model::cri::{CallError, ContainerId, Reply, SandboxId};
use crate::model::net::Finding;
use crate::model::probe::HookKind;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(dead_code, reason = "only a build with hooks has the others")]
pub(super) enum PreStop {
    None,
    Due,
    Running(Instant, Option<Instant>),
    Over(Instant),
}

impl Pod {
    pub(super) fn expect_post_start(&mut self, _: Instant, _: &ContainerId, _: &str) {}

    pub(super) fn is_starting(&self, _: &ObservedContainer) -> bool {
        false
    }

    pub(super) fn post_start(&self) -> Option<Next> {
        None
    }

    pub(super) fn has_failed_to_start(&self, _: &ObservedContainer) -> bool {
        false
    }

    pub(super) fn pre_stop(&self, _: &ObservedContainer) -> PreStop {
        PreStop::None
    }

    pub(super) fn has_pre_stop_begun(&self, _: &ObservedContainer) -> bool {
        false
    }

    pub(super) fn restore_hooks(&mut self) {}

    pub(super) fn address_for_hooks(&self, _: Instant) -> Option<Step> {
        None
    }

    pub(super) fn take_address(&mut self, _: &SandboxId) {}

    pub(super) fn tick_hooks(&mut self, _: Now, _: &mut PodContext<'_>) {}

    pub(super) fn end_hooks(&mut self, _: Now, _: &mut PodContext<'_>) {}

    pub(super) fn no_hook_running(&self) -> bool {
        true
    }

    pub(super) fn begin_hook(
        &mut self,
        _: Now,
        id: &ContainerId,
        kind: HookKind,
        _: StopReason,
        _: &mut PodContext<'_>,
    ) -> bool {
        unreachable!("{kind:?} of {id} in a build without hooks");
    }

    pub(super) fn give_up_hook(&mut self, _: Now, id: &ContainerId, _: &mut PodContext<'_>) {
        unreachable!("a hook of {id} in a build without hooks");
    }

    pub fn hook_exec_done(&mut self, call: CallId, _: Result<Reply, CallError>) {
        unreachable!("{call:?} of a hook in a build without hooks");
    }

    pub fn hook_query_done(&mut self, _: Instant, probe: ProbeId, _: Finding) {
        unreachable!("{probe:?} of a hook in a build without hooks");
    }
}
