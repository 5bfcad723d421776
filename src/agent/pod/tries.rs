//! Container starts that do not count as failures, because the sandbox was ending meanwhile.
//!
//! A runtime that stops a sandbox ends its containers first. If an event reports that at once, the
//! sandbox is still ready, and the container is started again in it:
//!
//! ```text
//!  m#0 ends ──▶ Create m#1 ──▶ Start m#1 is refused ──▶ the list: the sandbox is not ready
//!                                                            │
//!  m#1 in a new sandbox ◀── m#1 removed, its back-off and hold taken back ◀┘
//! ```
//!
//! The container did not fail: without this rule it would have restarted twice and waited for ten
//! seconds. One such try is forgiven until a start succeeds, so that a sandbox that never lasts has
//! its back-off as before. Only a refused try is forgiven: a start whose answer was lost may have
//! taken effect.
//!
//! If we crash here: the next start of the agent sees an instance that has ended, and counts it.

use super::crash_backoff::CrashBackoff;
use super::observed::ObservedContainer;
use super::{ContainerRecord, Pod};
use crate::model::cri::{CallError, ContainerId, SandboxId};

/// The newest try to start one container.
#[derive(Clone, Debug, Default)]
pub(super) enum Try {
    /// None since the last start that succeeded.
    #[default]
    None,
    /// Its container is being created or started.
    Begun(Before),
    /// The runtime refused to create or start it.
    Refused(Before, Option<ContainerId>),
    /// It does not count; its container, if there is one, is removed before a new sandbox is
    /// created.
    Forgiven(Option<ContainerId>),
}

/// The state before the try.
#[derive(Clone, Debug)]
pub(super) struct Before {
    sandbox: SandboxId,
    crashes: CrashBackoff,
}

impl Pod {
    /// The container is about to be created in the newest sandbox.
    pub(super) fn begin_try(&mut self, name: &str) {
        let Some(sandbox) = self.observed.sandbox().map(|sandbox| sandbox.id.clone()) else {
            return;
        };
        let record = self.record_mut(name);
        if !matches!(record.tried, Try::Forgiven(_)) {
            record.tried = Try::Begun(Before { sandbox, crashes: record.crashes.clone() });
        }
    }

    /// The runtime did not create it (`None`), or did not start it.
    pub(super) fn fail_try(&mut self, name: &str, id: Option<&ContainerId>, error: &CallError) {
        let record = self.record_mut(name);
        record.tried = match (std::mem::take(&mut record.tried), error) {
            (Try::Begun(before), CallError::Refused { .. }) => Try::Refused(before, id.cloned()),
            (Try::Begun(_) | Try::Refused(..), _) => Try::None,
            (other @ (Try::None | Try::Forgiven(_)), _) => other,
        };
    }

    /// A list was applied: forgives the tries in sandboxes that are not ready any more.
    pub(super) fn forgive_tries(&mut self) {
        let Self { observed, records, .. } = self;
        for record in records.values_mut() {
            let is_over = |before: &Before| {
                let sandbox =
                    observed.sandboxes.iter().find(|sandbox| sandbox.id == before.sandbox);
                sandbox.is_none_or(|sandbox| !sandbox.ready)
            };
            match std::mem::take(&mut record.tried) {
                Try::Refused(before, id) if is_over(&before) => record.forgive(before, id),
                other => record.tried = other,
            }
        }
    }

    /// Whether the container belongs to a forgiven try.
    pub(super) fn is_forgiven(&self, container: &ObservedContainer) -> bool {
        let tried = self.records.get(&container.name).map(|record| &record.tried);
        !container.may_run()
            && matches!(tried, Some(Try::Forgiven(Some(id))) if *id == container.id)
    }

    /// The container is removed: returns whether its attempt number is free again.
    pub(super) fn frees_number(&mut self, name: &str, removed: &ContainerId) -> bool {
        let tried = &mut self.record_mut(name).tried;
        let frees = matches!(tried, Try::Forgiven(Some(id)) if id == removed);
        if frees {
            *tried = Try::Forgiven(None);
        }
        frees
    }
}

impl ContainerRecord {
    fn forgive(&mut self, before: Before, id: Option<ContainerId>) {
        self.crashes = before.crashes;
        self.hold_until = None;
        self.failure = None;
        self.tried = Try::Forgiven(id);
    }
}
