//! What has to be asked once more: what the runtime refused to do or to answer, looks that came at
//! the wrong moment.

use super::next::Next;
use super::{Pod, Step};
use crate::agent::pleg::Pleg;
use crate::agent::time::{Backoff, Instant, Now};
use crate::limits;
use crate::model::cri::ContainerId;

impl Pod {
    /// This question, unless the runtime has only just refused one.
    pub(super) fn inspect(&self, step: Step, now: Instant) -> Next {
        let at = self.inspect_backoff.over_at();
        if at > now { Next::Until(at) } else { Next::Call(step) }
    }

    /// The runtime did not stop the container.
    pub(super) fn stop_later(&mut self, now: Instant, id: &ContainerId) {
        if let Some(container) = self.observed.container_mut(id) {
            container.stops.again(now, limits::RETRY_MIN_MS, limits::RETRY_MS);
        }
    }

    /// They are to be stopped for another reason, or in less time: this is tried at once.
    pub(super) fn stop_now(&mut self) {
        for container in &mut self.observed.containers {
            container.stops = Backoff::default();
        }
    }

    /// The runtime did not answer a question.
    pub(super) fn delay_inspect(&mut self, now: Instant) {
        self.inspect_backoff.again(now, limits::RETRY_MIN_MS, limits::RETRY_MS);
    }

    /// The answer was older than what is known. Mostly the next is not; who answers so for ever is
    /// asked ever more rarely.
    pub(super) fn retry_inspect(&mut self, now: Instant) {
        self.inspect_backoff.again(now, limits::OLD_ANSWER_MS, limits::RETRY_MS);
    }

    /// The runtime answered a question.
    pub(super) fn reset_inspect_backoff(&mut self) {
        self.inspect_backoff = Backoff::default();
    }

    /// A look cannot be believed. Where the event stream tells of changes the next would be long in
    /// coming, and what that event was about would go unnoticed.
    pub(super) fn miss_relist(&mut self) {
        self.relist_missed = true;
        self.needs_plan = true;
    }

    /// Looks again for one that was missed, once nothing is under way that would spoil it too.
    pub(super) fn retry_missed_relist(&mut self, now: Now, pleg: &mut Pleg) {
        let spoils = self.pending_calls.iter().any(|pending| pending.step.is_change());
        if self.relist_missed && !spoils {
            self.relist_missed = false;
            if pleg.is_evented(now) {
                pleg.request_relist();
            }
        }
    }
}
