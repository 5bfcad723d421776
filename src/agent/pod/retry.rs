//! Retries: calls that the runtime refused or did not answer, and lists that came at the wrong
//! moment.

use super::next::Next;
use super::{Pod, Step};
use crate::agent::pleg::Pleg;
use crate::agent::time::{Backoff, Instant, Now};
use crate::limits;
use crate::model::cri::ContainerId;

impl Pod {
    /// Makes this inspection, unless the runtime has just refused one.
    pub(super) fn inspect(&self, step: Step, now: Instant) -> Next {
        let at = self.inspect_backoff.over_at();
        if at > now { Next::Until(at) } else { Next::Call(step) }
    }

    /// The runtime did not stop the container.
    pub(super) fn stop_later(&mut self, now: Instant, id: &ContainerId) {
        if let Some(container) = self.observed.container_mut(id) {
            container.stops.retry_at(now, limits::RETRY_MIN_MS, limits::RETRY_MS);
        }
    }

    /// The containers have to be stopped for another reason or in less time: tried at once.
    pub(super) fn stop_now(&mut self) {
        for container in &mut self.observed.containers {
            container.stops = Backoff::default();
        }
    }

    /// The runtime did not answer an inspection.
    pub(super) fn delay_inspect(&mut self, now: Instant) {
        self.inspect_backoff.retry_at(now, limits::RETRY_MIN_MS, limits::RETRY_MS);
    }

    /// The answer was older than the known state. Usually the next one is not; a runtime that
    /// always answers so is asked less and less often.
    pub(super) fn retry_inspect(&mut self, now: Instant) {
        self.inspect_backoff.retry_at(now, limits::OLD_ANSWER_MS, limits::RETRY_MS);
    }

    /// The runtime answered an inspection.
    pub(super) fn reset_inspect_backoff(&mut self) {
        self.inspect_backoff = Backoff::default();
    }

    /// A list was discarded. While the event stream is open the next list would come late, and the
    /// change that the event announced would go unnoticed.
    pub(super) fn miss_relist(&mut self) {
        self.relist_missed = true;
        self.needs_plan = true;
    }

    /// Requests another list for one that was discarded, once no call is under way that would make
    /// it stale too.
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
