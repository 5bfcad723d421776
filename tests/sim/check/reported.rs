//! What the status of a pod reported, in this life and run.

use edged::model::status::{Phase, PodStatus};
use edged::model::time::Timestamp;

use crate::rule::judge;
use crate::trace::trace;

/// What was reported.
#[derive(Default)]
pub struct Reported {
    phase: Option<Phase>,
    terminal: Option<Phase>,
    /// When its end was first reported.
    ended_at: u64,
    /// Refused because the node is full.
    no_room: bool,
    /// Evicted, or not admitted under pressure.
    evicted: bool,
    start_time: Option<Timestamp>,
    /// The same, in an earlier life.
    started_before: Option<Timestamp>,
    restarts: Vec<u32>,
    /// The status as it was last observed in this life, and its revision.
    shown: Option<(u64, PodStatus)>,
}

impl Reported {
    pub fn begin_life(&mut self) {
        self.shown = None;
        self.forget();
    }

    /// Another run begins: forgets all that was reported except the start time.
    pub fn forget(&mut self) {
        let started_before = self.start_time.or(self.started_before);
        *self = Self { started_before, shown: self.shown.take(), ..Self::default() };
    }

    /// The phase in which the pod has ended.
    pub fn terminal(&self) -> Option<Phase> {
        self.terminal
    }

    /// Whether its end was reported before this time.
    pub fn has_ended_before(&self, now: u64) -> bool {
        self.terminal.is_some() && self.ended_at < now
    }

    /// Whether the agent refused it because the node is full.
    pub fn is_refused(&self) -> bool {
        self.no_room
    }

    /// Returns whether that is news.
    pub fn refuse(&mut self) -> bool {
        !std::mem::replace(&mut self.no_room, true)
    }

    pub fn is_evicted(&self) -> bool {
        self.evicted
    }

    pub fn evict(&mut self) {
        self.evicted = true;
    }

    /// Whether the agent evicted it, or did not admit it for lack of room, which was judged then.
    pub fn is_out(&self) -> bool {
        self.no_room || self.evicted
    }

    /// A reader that checks only when a revision has changed, the agent's or the pod's, must not
    /// miss a change. `whole`: it is checked although the pod's revision is the same.
    pub fn compare(
        &mut self,
        uid: &str,
        reported: Option<(u64, &PodStatus)>,
        moved: bool,
        whole: bool,
    ) {
        let before = self.shown.as_ref();
        let same_revision = before.map(|(revision, _)| *revision) == reported.map(|it| it.0);
        if same_revision && !whole {
            return;
        }
        if before.map(|(_, status)| status) != reported.map(|it| it.1) {
            judge!(
                moved && !same_revision,
                "[revision] pod {uid} changes at the same revision: {before:?}, now {reported:?}"
            );
            self.shown = reported.map(|(revision, status)| (revision, status.clone()));
        } else if let (Some((revision, _)), Some(reported)) = (&mut self.shown, reported) {
            *revision = reported.0;
        }
    }

    /// The start time of an earlier life stays valid if the one sandbox has it in an annotation.
    pub fn started(&mut self, uid: &str, status: &PodStatus, is_noted: impl Fn(Timestamp) -> bool) {
        let Some((before, reported)) = self.started_before.zip(status.start_time) else {
            return;
        };
        judge!(
            reported == before || !is_noted(before),
            "[start time] pod {uid} started at {before}, by a later life at {reported}"
        );
        self.started_before = None;
    }

    /// The pod has this status, and `alive` of its containers run. Returns whether it is now
    /// reported as ended, and was not before.
    pub fn status(&mut self, now: u64, uid: &str, alive: u32, status: &PodStatus) -> bool {
        let phase = status.phase;
        let mut ends = false;
        if self.phase != Some(phase) {
            trace!(now, "    pod {uid} is reported as {phase:?}, {:?}", status.reason);
            self.phase = Some(phase);
        }
        if let Some(before) = self.terminal {
            judge!(phase == before, "[ended is ended] pod {uid} was {before:?}, is {phase:?}");
        }
        if phase.is_terminal() {
            judge!(
                alive == 0,
                "[ended is ended] pod {uid} is reported {phase:?} while {alive} of its containers \
                 run"
            );
            if self.terminal.replace(phase).is_none() {
                self.ended_at = now;
                ends = true;
            }
        }
        let since = self.start_time;
        judge!(
            since.is_none() || since == status.start_time,
            "[start time] pod {uid} started at {since:?}, now at {:?}",
            status.start_time
        );
        self.start_time = status.start_time;
        let all = status.init_container_statuses.iter().chain(&status.container_statuses);
        for (at, container) in all.enumerate() {
            let count = container.restart_count;
            let before = self.restarts.get(at).copied().unwrap_or(0);
            judge!(
                count >= before,
                "[restarts grow] pod {uid}: {} was restarted {before} times, now {count}",
                container.name
            );
            if at < self.restarts.len() {
                self.restarts[at] = count;
            } else {
                self.restarts.push(count);
            }
        }
        ends
    }
}
