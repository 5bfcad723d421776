//! What containerd has left of a start whose caller hung up: processes below a container that has
//! ended as far as CRI can see. It refuses to remove such a container for as long as their task is
//! there, which no call of CRI's ends: so containerd's own does, before the removal is tried again.
//!
//! Not persistent: after a crash the refusal comes again.

use super::{Pod, Step};
use crate::agent::time::Instant;
use crate::limits;
use crate::model::cri::{CallError, Code, ContainerId, TaskEnd};

impl Pod {
    /// The step that removes a container, or what has to come before it.
    pub(super) fn removal(&self, id: &ContainerId) -> Step {
        match &self.leftover_task {
            Some((left, Some(end))) if left == id => Step::EndTask { id: id.clone(), end: *end },
            _ => Step::RemoveContainer(id.clone()),
        }
    }

    /// The runtime did not remove a container: says whether that is worth another try at once,
    /// because its task has not been ended yet. Another runtime than containerd knows no tasks, and
    /// says so when it is asked.
    pub(super) fn removal_failed(&mut self, id: &ContainerId, error: &CallError) -> bool {
        let CallError::Refused { code: Code::FailedPrecondition, .. } = error else { return false };
        let tried = matches!(&self.leftover_task, Some((left, None)) if left == id);
        self.leftover_task = Some((id.clone(), Some(TaskEnd::Kill)));
        !tried
    }

    /// Done or refused: if it was in vain, the removal will say so.
    pub(super) fn task_ended(&mut self, now: Instant, id: ContainerId, end: TaskEnd) {
        let then = match end {
            TaskEnd::Kill => {
                // containerd has to hear of the end of what it has killed.
                let heard_at = Some(now.plus_ms(limits::TASK_END_MS));
                (self.retry_at, self.cleanup_at) = (heard_at, heard_at);
                Some(TaskEnd::Delete)
            }
            TaskEnd::Delete => None,
        };
        self.leftover_task = Some((id, then));
    }
}
