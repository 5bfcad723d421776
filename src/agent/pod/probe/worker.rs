//! One probe of one container: its settings, its state, and how outcomes are counted.

use crate::agent::event::{CallId, ProbeId};
use crate::agent::time::Instant;
use crate::model::cri::ContainerId;
use crate::model::probe::{Handler, Probe, ProbeKind, ProbeResults};

#[derive(Debug)]
pub(super) struct Worker {
    pub container: Box<str>,
    pub kind: ProbeKind,
    pub settings: Settings,
    pub handler: Handler,
    /// The instance that is probed.
    pub id: Option<ContainerId>,
    pub due_at: Instant,
    /// The due time of the period after the current one.
    pub next_at: Instant,
    /// Not probed again before there is another instance.
    pub held: bool,
    /// The current result; `None`: none yet.
    pub result: Option<bool>,
    /// Equal outcomes in a row.
    streak: (bool, u32),
    pub flight: Option<InFlight>,
    /// Of the current round.
    pub tries: u32,
    /// Of the current round, for its message.
    pub command: String,
}

/// A probe's settings, with defaults applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Settings {
    pub delay_ms: u64,
    pub period_ms: u64,
    pub timeout_s: u32,
    pub success_threshold: u32,
    pub failure_threshold: u32,
    pub grace_s: Option<i64>,
}

/// The call or query under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum InFlight {
    Call(CallId),
    Query(ProbeId),
}

/// The outcome of one probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Good,
    Warning(String),
    Bad(String),
    /// The probe could not be made.
    Error(String),
}

impl Worker {
    pub fn new(container: Box<str>, kind: ProbeKind, probe: &Probe) -> Self {
        Self {
            container,
            kind,
            settings: Settings::of(probe),
            handler: probe.handler.clone(),
            id: None,
            due_at: Instant(0),
            next_at: Instant(0),
            held: false,
            result: None,
            streak: (false, 0),
            flight: None,
            tries: 0,
            command: String::new(),
        }
    }

    /// Attaches the worker to another instance, which is not probed before `due_at`. `saved`: its
    /// results from before the agent's restart.
    pub fn attach(&mut self, id: ContainerId, due_at: Instant, saved: Option<ProbeResults>) {
        self.id = Some(id);
        self.due_at = due_at;
        self.streak = (false, 0);
        self.result = match self.kind {
            ProbeKind::Startup => saved.filter(|saved| saved.started).map(|_| true),
            ProbeKind::Readiness => Some(saved.is_some_and(|saved| saved.ready)),
            ProbeKind::Liveness => Some(true),
        };
        self.held = self.kind == ProbeKind::Startup && self.result.is_some();
    }

    /// A round, or another try of it, begins. Periods are counted from the first one; missed
    /// periods are skipped.
    pub fn begin(&mut self, now: Instant) {
        if self.tries == 0 {
            let late_ms = now.since_ms(self.due_at);
            let periods = late_ms / self.settings.period_ms + 1;
            self.next_at = self.due_at.plus_ms(periods * self.settings.period_ms);
        }
        self.tries += 1;
    }

    /// Counts an outcome. Returns whether the result changed.
    pub fn count(&mut self, good: bool) -> bool {
        let (before, count) = self.streak;
        self.streak = (good, if before == good { count.saturating_add(1) } else { 1 });
        let threshold =
            if good { self.settings.success_threshold } else { self.settings.failure_threshold };
        if self.streak.1 < threshold {
            return false;
        }
        let changed = self.result != Some(good);
        self.result = Some(good);
        if self.kind == ProbeKind::Startup || (self.kind == ProbeKind::Liveness && !good) {
            self.held = true;
        }
        changed
    }
}

impl Settings {
    /// Zero stands for the default.
    fn of(probe: &Probe) -> Self {
        let or = |value: i32, default: u32| match u32::try_from(value) {
            Ok(0) | Err(_) => default,
            Ok(value) => value,
        };
        Self {
            delay_ms: u64::from(or(probe.initial_delay_seconds, 0)) * 1000,
            period_ms: u64::from(or(probe.period_seconds, 10)) * 1000,
            timeout_s: or(probe.timeout_seconds, 1),
            success_threshold: or(probe.success_threshold, 1),
            failure_threshold: or(probe.failure_threshold, 3),
            grace_s: probe.termination_grace_period_seconds,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn worker(kind: ProbeKind, success: i32, failure: i32) -> Worker {
        let probe =
            Probe { success_threshold: success, failure_threshold: failure, ..Probe::default() };
        let mut worker = Worker::new("c".into(), kind, &probe);
        worker.attach(ContainerId("1".into()), Instant(0), None);
        worker
    }

    #[test]
    fn settings_have_the_defaults_of_the_api() {
        let settings = Settings::of(&Probe::default());
        assert_eq!((settings.delay_ms, settings.period_ms, settings.timeout_s), (0, 10_000, 1));
        assert_eq!((settings.success_threshold, settings.failure_threshold), (1, 3));
    }

    #[test]
    fn outcomes_count_once_there_are_enough_in_a_row() {
        use ProbeKind::{Liveness, Readiness, Startup};
        for (kind, success, failure, outcomes, expected) in [
            (Readiness, 1, 3, "+", (Some(true), false)),
            (Readiness, 2, 3, "+", (Some(false), false)),
            (Readiness, 2, 3, "+-+", (Some(false), false)),
            (Readiness, 2, 3, "++", (Some(true), false)),
            (Readiness, 1, 3, "+--", (Some(true), false)),
            (Readiness, 1, 3, "+--+--", (Some(true), false)),
            (Readiness, 1, 3, "+---", (Some(false), false)),
            (Readiness, 1, 3, "+---+", (Some(true), false)),
            (Liveness, 1, 2, "-", (Some(true), false)),
            (Liveness, 1, 2, "-+-", (Some(true), false)),
            (Liveness, 1, 2, "--", (Some(false), true)),
            (Startup, 1, 2, "", (None, false)),
            (Startup, 1, 2, "-", (None, false)),
            (Startup, 1, 2, "-+", (Some(true), true)),
            (Startup, 1, 2, "--", (Some(false), true)),
        ] {
            let mut worker = worker(kind, success, failure);
            for outcome in outcomes.chars() {
                worker.count(outcome == '+');
            }
            assert_eq!((worker.result, worker.held), expected, "{kind:?} {outcomes}");
        }
    }

    #[test]
    fn a_new_instance_begins_with_its_saved_results_only() {
        let mut worker = worker(ProbeKind::Liveness, 1, 2);
        worker.count(false);
        worker.attach(ContainerId("2".into()), Instant(0), None);
        worker.count(false);
        assert_eq!((worker.result, worker.held), (Some(true), false), "one failure of its own");
        let saved = |started, ready| Some(ProbeResults { started, ready });
        for (kind, saved, expected) in [
            (ProbeKind::Startup, saved(true, false), (Some(true), true)),
            (ProbeKind::Startup, saved(false, false), (None, false)),
            (ProbeKind::Startup, None, (None, false)),
            (ProbeKind::Readiness, saved(true, true), (Some(true), false)),
            (ProbeKind::Readiness, saved(true, false), (Some(false), false)),
            (ProbeKind::Readiness, None, (Some(false), false)),
            (ProbeKind::Liveness, None, (Some(true), false)),
        ] {
            let mut worker = self::worker(kind, 1, 1);
            worker.attach(ContainerId("2".into()), Instant(0), saved);
            assert_eq!((worker.result, worker.held), expected, "{kind:?} {saved:?}");
        }
    }

    #[test]
    fn periods_count_from_the_first_and_missed_ones_are_past() {
        let mut worker = worker(ProbeKind::Readiness, 1, 1);
        worker.due_at = Instant(1_000);
        for (now, next) in [(1_000, 11_000), (1_300, 11_000), (10_999, 11_000), (31_500, 41_000)] {
            worker.tries = 0;
            worker.begin(Instant(now));
            assert_eq!(worker.next_at, Instant(next), "{now}");
        }
        // Another try belongs to the same round.
        worker.begin(Instant(90_000));
        assert_eq!((worker.next_at, worker.tries), (Instant(41_000), 2));
    }
}
