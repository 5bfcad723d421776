//! Whether the machine's watchdog may be fed: only while every part meets its deadlines.
//!
//! ```text
//!  step ─▶ its requests ─▶ book: what is owed, by when ─▶ all in time? ─▶ Feed, three per timeout
//!                           ▲ answers strike it out          └─ no ─▶ said once, and not fed
//! ```
//!
//! The hands answer each call, job, query and dial by its deadline, whatever the other side does.
//! Where an answer is overdue, the hands hang or have lost it, and the pod that waits for it waits
//! for ever: a reset helps. A loop that stands still feeds nothing either.
//!
//! **No reason for a reset** is what errors tell of: a cloud that is away, a disk that fails, a
//! runtime that is away, but for the last if the configuration says so.
//!
//! If we crash here: init starts the next life, which has until the timeout to open the device.

use std::collections::BTreeMap;

use super::event::{Action, CallId, Event, JobId, Out, ProbeId, Severity};
use super::time::Instant;
use crate::limits::{WATCHDOG_LATE_MS, WATCHDOG_PINGS};
use crate::model::watchdog::Settings;

/// The book of what is owed.
#[derive(Debug)]
pub struct Watchdog {
    /// `None`: there is none to feed.
    settings: Option<Settings>,
    owed: BTreeMap<Owed, Instant>,
    feed_at: Instant,
    /// Since when the runtime cannot be used.
    silent_since: Option<Instant>,
    /// The reason that was last told.
    told: Option<String>,
}

/// An answer that the hands owe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Owed {
    Call(CallId),
    Job(JobId),
    Query(ProbeId),
    /// There is one at a time.
    #[cfg(feature = "cloud")]
    Dial,
}

impl Watchdog {
    /// Nothing is owed yet.
    pub fn new(settings: &Settings, now: Instant) -> Self {
        Self {
            settings: (!settings.device.is_empty()).then(|| settings.clone()),
            owed: BTreeMap::new(),
            feed_at: now,
            silent_since: Some(now),
            told: None,
        }
    }

    /// Strikes out what was answered.
    pub fn learn(&mut self, event: &Event) {
        let answered = match event {
            Event::Cri(call, _) => Owed::Call(*call),
            Event::Job(job, _) | Event::Used(job, _) | Event::Attempts(job, _) => Owed::Job(*job),
            Event::Probe(probe, _) => Owed::Query(*probe),
            #[cfg(feature = "cloud")]
            Event::LinkUp(..) | Event::LinkDown(..) => Owed::Dial,
            // All else answers nothing that has a deadline.
            _ => return,
        };
        self.owed.remove(&answered);
    }

    /// Enters what this step asked for, and asks for a meal if one is due and deserved.
    pub fn step(&mut self, now: Instant, runtime_is_ready: bool, out: &mut Out) {
        let Some(settings) = &self.settings else { return };
        for action in &out.actions {
            match action {
                Action::Cri { call, deadline, .. } => {
                    self.owed.insert(Owed::Call(*call), *deadline);
                }
                Action::Job { job, deadline, .. } => {
                    self.owed.insert(Owed::Job(*job), *deadline);
                }
                Action::Probe { probe, deadline, .. } => {
                    self.owed.insert(Owed::Query(*probe), *deadline);
                }
                #[cfg(feature = "cloud")]
                Action::Dial { deadline, .. } => {
                    self.owed.insert(Owed::Dial, *deadline);
                }
                Action::CancelCri(call) => drop(self.owed.remove(&Owed::Call(*call))),
                Action::CancelProbe(probe) => drop(self.owed.remove(&Owed::Query(*probe))),
                #[cfg(feature = "cloud")]
                Action::Hangup(_) => drop(self.owed.remove(&Owed::Dial)),
                // All else has no deadline.
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
        let late = self.owed.iter().find(|(_, by)| now.since_ms(**by) > WATCHDOG_LATE_MS);
        let trouble = if let Some((owed, by)) = late {
            Some(format!("the answer to {owed:?} was due {} s ago", now.since_ms(*by) / 1_000))
        } else if silence_ms > 0 && !runtime_is_ready && silent_ms > silence_ms {
            Some(format!("the runtime has been away for {} s", silent_ms / 1_000))
        } else {
            None
        };
        if trouble.is_none() {
            out.push(Action::Feed);
        }
        if trouble.is_some() != self.told.is_some() {
            out.push(match &trouble {
                Some(why) => {
                    Action::Log(Severity::Error, format!("the watchdog is not fed any more: {why}"))
                }
                None => Action::Log(Severity::Info, "the watchdog is fed again".to_owned()),
            });
            self.told = trouble;
        }
    }

    /// When the next meal is due.
    pub fn wake_at(&self) -> Option<Instant> {
        self.settings.as_ref().map(|_| self.feed_at)
    }
}
