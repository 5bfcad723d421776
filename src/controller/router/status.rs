//! The status of a rule: what it has delivered and what not, and why it is not in force. It is
//! written at most once in [`ROUTER_STATUS_MS`].
//!
//! Counts are added to those in the object, and a write fails if another replica has written
//! meanwhile: so nothing is counted twice, and nothing is lost but what was not written when we
//! end.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::super::calls::RuleCall;
use super::super::key::Key;
use super::super::time::{Backoff, Instant};
use super::Entry;
use super::rule::{self, Status};
use crate::limits::{
    ROUTER_ERROR_CHARS_MAX, ROUTER_ERRORS_MAX, ROUTER_STATUS_CALLS_MAX, ROUTER_STATUS_MS,
    ROUTER_STATUS_RETRY_MAX_MS, ROUTER_STATUS_RETRY_MIN_MS,
};
use crate::model::api::{Call, CallError, Subresource};

/// What is known of one rule and not in its status.
#[derive(Debug, Default)]
pub(super) struct Tally {
    delivered: u64,
    failed: u64,
    /// The last failures.
    failures: VecDeque<Box<str>>,
    /// Why it is not in force.
    pub(super) trouble: Option<Box<str>>,
    running: Option<Writing>,
    /// A write without an answer: it may have taken effect.
    lost: Option<Writing>,
    due_at: Option<Instant>,
    /// It is not written before.
    next_at: Instant,
    backoff: Backoff,
}

/// A write, and what it has added.
#[derive(Debug)]
struct Writing {
    id: RuleCall,
    status: Status,
    delivered: u64,
    failed: u64,
}

/// When which status is written.
#[derive(Debug, Default)]
pub(super) struct Statuses {
    queue: BTreeSet<(Instant, Key)>,
    calls: BTreeMap<RuleCall, Key>,
    last: u64,
    /// The API server has no subresource for it, as KubeEdge's CRD says.
    is_whole: bool,
    /// A refusal was logged.
    pub(super) is_refusal_logged: bool,
}

/// What every error begins with that says why a rule is not in force.
const NOT_IN_FORCE: &str = "not in force: ";

impl Tally {
    /// The status as it should be, with what is counted since this one.
    pub(super) fn status(&self, known: &Status) -> Status {
        let reason = self.trouble.as_ref().map(|why| shortened(&format!("{NOT_IN_FORCE}{why}")));
        let errors = reason.map_or_else(
            || {
                let mut errors: Vec<Box<str>> = Vec::new();
                let known = known.errors.iter().filter(|it| !it.starts_with(NOT_IN_FORCE));
                for error in known.chain(&self.failures) {
                    errors.retain(|other| other != error);
                    errors.push(error.clone());
                }
                errors.split_off(errors.len().saturating_sub(ROUTER_ERRORS_MAX))
            },
            |reason| vec![reason],
        );
        let mut status = known.clone();
        status.success_messages.0 = known.success_messages.saturating_add(self.delivered);
        status.fail_messages.0 = known.fail_messages.saturating_add(self.failed);
        status.errors.0 = errors;
        status
    }

    fn subtract(&mut self, written: &Writing) {
        self.delivered -= written.delivered;
        self.failed -= written.failed;
    }

    /// A newer version of the rule was read, with this status.
    pub(super) fn read(&mut self, status: &Status) {
        if let Some(lost) = self.lost.take()
            && lost.status == *status
        {
            self.subtract(&lost);
        }
    }

    pub(super) fn count(&mut self, failure: Option<&str>) {
        let Some(why) = failure else {
            self.delivered += 1;
            return;
        };
        self.failed += 1;
        let why = shortened(why);
        self.failures.retain(|other| *other != why);
        if self.failures.len() >= ROUTER_ERRORS_MAX {
            self.failures.pop_front();
        }
        self.failures.push_back(why);
    }
}

fn shortened(text: &str) -> Box<str> {
    text.chars().take(ROUTER_ERROR_CHARS_MAX).collect::<String>().into()
}

impl Statuses {
    /// The status of a rule may have to be written.
    pub(super) fn mark(&mut self, now: Instant, key: &Key, tally: &mut Tally) {
        if tally.running.is_some() || tally.due_at.is_some() {
            return;
        }
        let at = now.max(tally.next_at);
        tally.due_at = Some(at);
        self.queue.insert((at, key.clone()));
    }

    /// The rule is gone, or another.
    pub(super) fn remove(&mut self, key: &Key, tally: &mut Tally) {
        if let Some(at) = tally.due_at.take() {
            self.queue.remove(&(at, key.clone()));
        }
    }

    /// The next write that is due.
    pub(super) fn next(
        &mut self,
        now: Instant,
        rules: &mut BTreeMap<Key, Entry>,
    ) -> Option<(RuleCall, Call)> {
        while self.calls.len() < ROUTER_STATUS_CALLS_MAX {
            let (at, key) = self.queue.first().filter(|(at, _)| *at <= now)?.clone();
            self.queue.remove(&(at, key.clone()));
            let Entry { rule, tally, .. } = rules.get_mut(&key).expect("it is queued");
            tally.due_at = None;
            let status = tally.status(&rule.status);
            if status == rule.status {
                continue;
            }
            self.last += 1;
            let id = RuleCall(self.last);
            tally.next_at = now.plus_ms(ROUTER_STATUS_MS);
            let part = (!self.is_whole).then_some(Subresource::Status);
            let call = rule::write(&key, rule.version, &status, part);
            let (delivered, failed) = (tally.delivered, tally.failed);
            tally.failures.clear();
            tally.running = Some(Writing { id, status, delivered, failed });
            self.calls.insert(id, key);
            return Some((id, call));
        }
        None
    }

    /// The rule of a call that was answered.
    pub(super) fn end(&mut self, id: RuleCall) -> Key {
        self.calls.remove(&id).expect("an answer to a call that was made")
    }

    /// A write was answered, with this status of the rule, as far as it can be read.
    pub(super) fn answered(
        &mut self,
        now: Instant,
        id: RuleCall,
        key: &Key,
        tally: &mut Tally,
        answer: Result<Option<&Status>, &CallError>,
    ) {
        let Some(written) = tally.running.take_if(|writing| writing.id == id) else { return };
        match answer {
            // An API server takes a status from one of both places alone.
            Ok(Some(status)) if *status != written.status => self.is_whole = !self.is_whole,
            Ok(_) => {
                tally.subtract(&written);
                tally.backoff = Backoff::default();
                return self.mark(now, key, tally);
            }
            // Another has written; the watch brings it.
            Err(CallError::Refused { code: 409, .. }) => {}
            // Or the rule is gone: then the watch says so.
            Err(CallError::Refused { code: 404, .. }) if !self.is_whole => self.is_whole = true,
            Err(error) => {
                let (min_ms, max_ms) = (ROUTER_STATUS_RETRY_MIN_MS, ROUTER_STATUS_RETRY_MAX_MS);
                tally.next_at = tally.backoff.retry_at(now, min_ms, max_ms);
                if matches!(error, CallError::Lost(_)) {
                    tally.lost = Some(written);
                    return self.mark(now, key, tally);
                }
            }
        }
        // Its errors are not in the status.
        for error in written.status.errors.0.into_iter().rev() {
            let is_own = !error.starts_with(NOT_IN_FORCE) && !tally.failures.contains(&error);
            if is_own && tally.failures.len() < ROUTER_ERRORS_MAX {
                tally.failures.push_front(error);
            }
        }
        self.mark(now, key, tally);
    }

    pub(super) fn wake_at(&self) -> Option<Instant> {
        let has_room = self.calls.len() < ROUTER_STATUS_CALLS_MAX;
        self.queue.first().filter(|_| has_room).map(|(at, _)| *at)
    }
}
