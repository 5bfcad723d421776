//! The machine's watchdog: it is fed only while every part meets its deadlines.
//!
//! ```text
//!  step ─▶ its requests ─▶ pending answers and deadlines ─▶ all met? ─▶ Feed, three per timeout
//!                           ▲ answers remove them                └─ no ─▶ logged once, not fed
//! ```
//!
//! The event loop answers each call, job, query and dial by its deadline, whatever the other side
//! does. If an answer is overdue, the event loop hangs or has lost it, and the pod that waits for
//! it waits for ever: a reset helps. A loop that hangs does not feed the watchdog either.
//!
//! Errors are **no reason for a reset**: a cloud that cannot be reached, a disk that fails, a
//! runtime that is down. The last one is a reason if the configuration says so.
//!
//! If we crash here: init restarts the agent, which has until the timeout to open the device.

use super::event::{Action, CallId, Event, JobId, Out, ProbeId, Severity};
use super::time::Instant;
use crate::limits::{WATCHDOG_LATE_MS, WATCHDOG_PINGS};
use crate::model::map::Map;
use crate::model::watchdog::Settings;

/// The pending answers and their deadlines.
#[derive(Debug)]
pub struct Watchdog {
    /// `None`: there is no watchdog.
    settings: Option<Settings>,
    pending: Map<Answer, Instant>,
    feed_at: Instant,
    /// Since when the runtime cannot be used.
    silent_since: Option<Instant>,
    /// The last logged reason.
    logged_trouble: Option<String>,
}

/// An answer that the event loop has to give.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Answer {
    Call(CallId),
    Job(JobId),
    Query(ProbeId),
    /// There is one at a time.
    #[cfg(feature = "cloud")]
    Dial,
}

impl Watchdog {
    /// No answer is pending yet.
    pub fn new(settings: &Settings, now: Instant) -> Self {
        Self {
            settings: (!settings.device.is_empty()).then(|| settings.clone()),
            pending: Map::new(),
            feed_at: now,
            silent_since: Some(now),
            logged_trouble: None,
        }
    }

    /// Removes the answered request.
    pub fn learn(&mut self, event: &Event) {
        let answered = match event {
            Event::Cri(call, _) => Answer::Call(*call),
            Event::Job(job, _) => Answer::Job(*job),
            Event::Probe(probe, _) => Answer::Query(*probe),
            #[cfg(feature = "cloud")]
            Event::LinkUp(..) | Event::LinkDown(..) => Answer::Dial,
            // All other events answer nothing that has a deadline.
            _ => return,
        };
        self.pending.remove(&answered);
    }

    /// Adds the requests of this step, and requests a feeding if it is due and every deadline is
    /// met.
    pub fn step(&mut self, now: Instant, runtime_is_ready: bool, out: &mut Out) {
        let Some(settings) = &self.settings else { return };
        for action in &out.actions {
            match action {
                Action::Cri { call, deadline, .. } => {
                    self.pending.insert(Answer::Call(*call), *deadline);
                }
                Action::Job { job, deadline, .. } => {
                    self.pending.insert(Answer::Job(*job), *deadline);
                }
                Action::Probe { probe, deadline, .. } => {
                    self.pending.insert(Answer::Query(*probe), *deadline);
                }
                #[cfg(feature = "cloud")]
                Action::Dial { deadline, .. } => {
                    self.pending.insert(Answer::Dial, *deadline);
                }
                Action::CancelCri(call) => drop(self.pending.remove(&Answer::Call(*call))),
                Action::CancelProbe(probe) => drop(self.pending.remove(&Answer::Query(*probe))),
                #[cfg(feature = "cloud")]
                Action::Hangup(_) => drop(self.pending.remove(&Answer::Dial)),
                // All other actions have no deadline.
                _ => {}
            }
        }
        let silent_since = self.silent_since.get_or_insert(now);
        let silent_ms = now.since_ms(*silent_since);
        if runtime_is_ready {
            self.silent_since = None;
        }
        if now < self.feed_at {
            return;
        }
        self.feed_at = now.plus_ms(u64::from(settings.timeout_s) * 1_000 / WATCHDOG_PINGS);
        let silence_ms = settings.runtime_silence_ms;
        let late = self.pending.iter().find(|(_, by)| now.since_ms(**by) > WATCHDOG_LATE_MS);
        let trouble = if let Some((pending, by)) = late {
            Some(format!("the answer to {pending:?} was due {} s ago", now.since_ms(*by) / 1_000))
        } else if silence_ms > 0 && !runtime_is_ready && silent_ms > silence_ms {
            Some(format!("the runtime has not been usable for {} s", silent_ms / 1_000))
        } else {
            None
        };
        if trouble.is_none() {
            out.push(Action::Feed);
        }
        if trouble.is_some() != self.logged_trouble.is_some() {
            out.push(match &trouble {
                Some(why) => {
                    Action::Log(Severity::Error, format!("the watchdog is not fed any more: {why}"))
                }
                None => Action::Log(Severity::Info, "the watchdog is fed again".to_owned()),
            });
            self.logged_trouble = trouble;
        }
    }

    /// When the next feeding is due.
    pub fn wake_at(&self) -> Option<Instant> {
        self.settings.as_ref().map(|_| self.feed_at)
    }
}
