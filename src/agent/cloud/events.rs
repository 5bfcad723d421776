//! Sends events to the cloud, if `reportEvent` is set (wire spec section 5.11).
//!
//! They are not acknowledged and nothing depends on them, so they are sent last and only once:
//! events of the time without a link are sent when it is back, as far as the ring buffer reaches.
//! Repeats are sent as the log has them, ever less often, and never more of an object than the log
//! has.

use std::collections::BTreeSet;

use super::requests::CloudContext;
use crate::agent::rate::Rate;
use crate::agent::recorder::Recorder;
use crate::agent::time::{Instant, Now};
use crate::limits::EVENTS_MAX;
use crate::model::settings::CloudSettings;
use crate::model::upstream::Up;

/// How much was sent to the cloud.
#[derive(Debug)]
pub(super) struct Events {
    /// The last event of the ring buffer that was sent.
    last_sent: u64,
    /// The events in the ring buffer that were sent: repeats of them are updates.
    sent: BTreeSet<u64>,
    rate: Rate,
    waits: bool,
}

impl Events {
    /// `None`: `reportEvent` is not set.
    pub(super) fn new(settings: &CloudSettings, now: Now) -> Option<Self> {
        let rate = Rate::new(settings.events_per_second, settings.events_burst, now.boot);
        settings.report_events.then_some(Self {
            last_sent: 0,
            sent: BTreeSet::new(),
            rate,
            waits: false,
        })
    }

    /// Sends the new events.
    pub(super) fn step(&mut self, recorder: &Recorder, node: &str, context: &mut CloudContext<'_>) {
        self.waits = false;
        for (serial, digest, event) in recorder.since(self.last_sent) {
            if !context.has_room() || !self.rate.has(context.now.boot) {
                self.waits = true;
                return;
            }
            self.rate.take(context.now.boot);
            context.send(Up::Event {
                is_new: event.count == 1 || !self.sent.contains(&digest),
                digest,
                event: Box::new(event.clone()),
                node: node.into(),
            });
            self.last_sent = serial;
            if self.sent.len() >= EVENTS_MAX {
                self.sent.retain(|digest| recorder.holds(*digest));
            }
            self.sent.insert(digest);
        }
    }

    /// When the next event is due, as far as the rate limit decides it.
    pub(super) fn wake_at(&self) -> Option<Instant> {
        self.waits.then(|| self.rate.wake_at())
    }
}
