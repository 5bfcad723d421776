//! Ends leftover containerd tasks: after a start whose caller disconnected, processes may remain
//! below a container that has ended as far as CRI can see. containerd refuses to remove such a
//! container while its task exists, and no CRI call ends the task. So a call of containerd's own
//! API ends it before the removal is retried.
//!
//! Not persistent: after a crash the refusal comes again.

use super::{Pod, Step};
use crate::agent::time::Instant;
use crate::limits;
use crate::model::cri::{CallError, Code, ContainerId, TaskEnd};

impl Pod {
    /// The step that removes a container, or the step that has to come before it.
    pub(super) fn removal(&self, id: &ContainerId) -> Step {
        match &self.leftover_task {
            Some((left, Some(end))) if left == id => Step::EndTask { id: id.clone(), end: *end },
            _ => Step::RemoveContainer(id.clone()),
        }
    }

    /// The runtime did not remove a container: returns whether an immediate retry is worthwhile,
    /// because its task has not been ended yet. A runtime other than containerd has no tasks, and
    /// refuses the call.
    pub(super) fn removal_failed(&mut self, id: &ContainerId, error: &CallError) -> bool {
        let CallError::Refused { code: Code::FailedPrecondition, .. } = error else { return false };
        let tried = matches!(&self.leftover_task, Some((left, None)) if left == id);
        self.leftover_task = Some((id.clone(), Some(TaskEnd::Kill)));
        !tried
    }

    /// Done or refused: if it had no effect, the next removal fails.
    pub(super) fn task_ended(&mut self, now: Instant, id: ContainerId, end: TaskEnd) {
        let then = match end {
            TaskEnd::Kill => {
                // containerd has to receive the exit event of the processes it killed.
                let heard_at = Some(now.plus_ms(limits::TASK_END_MS));
                (self.retry_at, self.cleanup_at) = (heard_at, heard_at);
                Some(TaskEnd::Delete)
            }
            TaskEnd::Delete => None,
        };
        self.leftover_task = Some((id, then));
    }
}
