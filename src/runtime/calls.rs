//! The open calls: each gets exactly one answer.

use super::event::{Action, CallId, Out};
use crate::limits::RUNTIME_CALLS_MAX;
use crate::model::map::Set;
use crate::model::runtime::{Refusal, Reply};

#[derive(Debug, Default)]
pub struct Calls {
    open: Set<CallId>,
    /// Not requested yet.
    answers: Out,
}

impl Calls {
    /// Enters a call. `false`: there are too many.
    pub fn open(&mut self, id: CallId) -> bool {
        let has_room = self.open.len() < RUNTIME_CALLS_MAX;
        assert!(self.open.insert(id), "{id:?} is open already");
        has_room
    }

    pub fn answer(&mut self, id: CallId, answer: Result<Reply, Refusal>) {
        assert!(self.open.remove(&id), "{id:?} is answered twice, or was never open");
        self.answers.push(Action::Answer(id, answer));
    }

    /// Answers all of them alike.
    pub fn answer_all(&mut self, ids: &mut Vec<CallId>, answer: &Result<Reply, Refusal>) {
        for id in ids.drain(..) {
            self.answer(id, answer.clone());
        }
    }

    pub fn take(&mut self, out: &mut Out) {
        out.actions.append(&mut self.answers.actions);
    }
}
