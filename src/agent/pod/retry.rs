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
    pub(super) fn ask(&self, question: Step, now: Instant) -> Next {
        let at = self.questions.over_at();
        if at > now { Next::Until(at) } else { Next::Call(question) }
    }

    /// The runtime did not stop the container.
    pub(super) fn stop_later(&mut self, now: Instant, id: &ContainerId) {
        if let Some(container) = self.seen.container_mut(id) {
            container.stops.retry_at(now, limits::RETRY_MIN_MS, limits::RETRY_MS);
        }
    }

    /// They are to be stopped for another reason, or in less time: this is tried at once.
    pub(super) fn stop_now(&mut self) {
        for container in &mut self.seen.containers {
            container.stops = Backoff::default();
        }
    }

    /// The runtime did not answer a question.
    pub(super) fn ask_later(&mut self, now: Instant) {
        self.questions.retry_at(now, limits::RETRY_MIN_MS, limits::RETRY_MS);
    }

    /// The answer was older than what is known. Mostly the next is not; who answers so for ever is
    /// asked ever more rarely.
    pub(super) fn ask_once_more(&mut self, now: Instant) {
        self.questions.retry_at(now, limits::OLD_ANSWER_MS, limits::RETRY_MS);
    }

    /// The runtime answered a question.
    pub(super) fn is_answered(&mut self) {
        self.questions = Backoff::default();
    }

    /// A look cannot be believed. Where the event stream tells of changes the next would be long in
    /// coming, and what that event was about would go unnoticed.
    pub(super) fn miss_look(&mut self) {
        self.missed = true;
        self.restless = true;
    }

    /// Looks again for one that was missed, once nothing is under way that would spoil it too.
    pub(super) fn make_up_for_look(&mut self, now: Now, pleg: &mut Pleg) {
        let spoils = self.doing.iter().any(|doing| doing.step.is_change());
        if self.missed && !spoils {
            self.missed = false;
            if pleg.is_evented(now) {
                pleg.want();
            }
        }
    }
}
