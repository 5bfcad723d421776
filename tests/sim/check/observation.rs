//! What the agent knows of a pod's state in the runtime.

use edged::agent::event::CallId;

use super::calls::Kind;
use super::instances::Container;

/// The time of the pod's state that the agent knows, in this life, and what may change it.
#[derive(Default)]
pub struct Observation {
    /// That of the last relist that it must have believed.
    known_at: u64,
    /// When that relist was requested.
    requested_at: u64,
    last_call_ended_at: u64,
    /// When a call last brought no answer: the state known before does not count any more.
    last_failed_at: u64,
    open: Vec<(CallId, Kind)>,
    /// The number of requests under way about an image that it has, and when the last of them
    /// ended.
    image_questions: usize,
    image_answered_at: u64,
}

impl Observation {
    /// Whether the agent knows what happened at this time.
    pub fn knows(&self, at: u64) -> bool {
        at < self.known_at
    }

    /// Whether the agent knows that the container runs.
    pub fn shows_alive(&self, container: &Container) -> bool {
        container.alive && self.knows(container.began_at)
    }

    /// The agent observes the pod itself before it acts.
    pub fn restart(&mut self) {
        (self.known_at, self.requested_at) = (0, 0);
    }

    /// A call for the pod is requested.
    pub fn call_begins(&mut self, id: CallId, kind: Kind) {
        self.open.push((id, kind));
    }

    /// A call for the pod is over.
    pub fn call_ends(&mut self, now: u64, id: CallId, kind: Kind, ok: bool) {
        self.open.retain(|&(other, _)| other != id);
        self.last_call_ended_at = now;
        // After a failed request for an image the agent knows as much as before.
        if !ok && kind != Kind::Pull {
            self.last_failed_at = now;
        }
    }

    /// An image that the pod has is asked about.
    pub fn image_question_begins(&mut self) {
        self.image_questions += 1;
    }

    pub fn image_question_ends(&mut self, now: u64) {
        self.image_questions -= 1;
        self.image_answered_at = now;
    }

    /// A relist has arrived: without a request since then it is believed.
    pub fn relisted(&mut self, requested_at: u64, taken_at: u64) {
        // It cannot be seen from outside which pod a request about an image is for.
        let unsure = self.image_questions > 0 || self.image_answered_at >= requested_at;
        let busy = unsure || self.open.iter().any(|&(_, kind)| kind != Kind::StopContainer);
        if !busy && self.last_call_ended_at < requested_at {
            (self.known_at, self.requested_at) = (taken_at, requested_at);
        }
    }

    /// A call under way beside which one of this kind must not be requested.
    pub fn excludes(&self, kind: Kind) -> Option<&(CallId, Kind)> {
        let stops = (Kind::StopContainer, Kind::StopContainer);
        self.open.iter().find(|&&(_, other)| (other, kind) != stops)
    }

    /// Whether nothing keeps the agent from acting on what it knows.
    pub fn is_free(&self) -> bool {
        self.image_questions == 0
            && self.open.iter().all(|&(_, kind)| kind == Kind::Pull)
            && self.requested_at > self.last_failed_at
    }

    /// Whether a stop of one of its containers is under way.
    pub fn is_stopping(&self) -> bool {
        self.open.iter().any(|&(_, kind)| kind == Kind::StopContainer)
    }

    /// Whether the answer to a request for it is pending: it may be found lost by then.
    pub fn is_waited_for(&self) -> bool {
        !self.open.is_empty()
    }
}
