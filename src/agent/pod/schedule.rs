//! When a pod is stepped next: at once if something has changed, otherwise at a time.
//!
//! A step that finds no room sets no time: the pod stays due, and takes part in every step of the
//! agent until there is room (rule R8).

use crate::agent::time::Instant;

#[derive(Debug)]
pub(super) struct Schedule {
    /// The plan was not followed to its end since something changed.
    is_dirty: bool,
    /// When there is something to do if nothing changes before.
    wake_at: Option<Instant>,
}

/// A new pod is due.
impl Default for Schedule {
    fn default() -> Self {
        Self { is_dirty: true, wake_at: None }
    }
}

impl Schedule {
    /// Something has changed.
    pub(super) fn mark_dirty(&mut self) {
        self.is_dirty = true;
    }

    /// A step begins. Unless it comes to its end, the pod stays due.
    pub(super) fn begin(&mut self) {
        *self = Self::default();
    }

    /// There is nothing to do until something changes.
    pub(super) fn rest(&mut self) {
        self.is_dirty = false;
    }

    /// There is nothing to do before this time, unless something changes.
    pub(super) fn rest_until(&mut self, at: Instant) {
        *self = Self { is_dirty: false, wake_at: Some(at) };
    }

    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.is_dirty || self.wake_at.is_some_and(|at| at <= now)
    }

    /// When the pod is due if nothing changes before. What has changed already sets no time.
    pub(super) fn wake_at(&self) -> Option<Instant> {
        self.wake_at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_is_due_until_its_step_ends_and_when_something_changes_or_its_time_comes() {
        let mut schedule = Schedule::default();
        let is_due = |schedule: &Schedule| schedule.is_due(Instant(10));
        assert!(is_due(&schedule), "it is new");
        schedule.rest();
        assert!(!is_due(&schedule));
        schedule.mark_dirty();
        assert!(is_due(&schedule));
        schedule.rest_until(Instant(11));
        assert!(!is_due(&schedule) && schedule.is_due(Instant(11)));
        assert_eq!(schedule.wake_at(), Some(Instant(11)));
        schedule.begin();
        assert!(is_due(&schedule), "it has found no room");
        assert_eq!(schedule.wake_at(), None);
    }
}
