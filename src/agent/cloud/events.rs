//! Events for the cloud, where `reportEvent` asks for them (wire spec section 5.11).
//!
//! Nobody answers them and nothing hangs on them, so they come last and are told once: what
//! happened while the link was down is told when it is back, as far as the ring reaches. Repeats
//! are told as the log has them, ever more rarely, and never more of one object than it has.

use std::collections::BTreeSet;

use serde::Serialize;

use super::requests::CloudContext;
use super::talk;
use crate::agent::rate::Rate;
use crate::agent::recorder::Recorder;
use crate::agent::time::{Instant, Now};
use crate::limits::NOTES_MAX;
use crate::model::message::Resource;
use crate::model::recorded_event::{EventMetadata, RecordedEvent};
use crate::model::settings::CloudSettings;

/// How much the cloud was told.
#[derive(Debug)]
pub(super) struct Events {
    /// Up to this event of the ring.
    told: u64,
    /// Those of the ring that the cloud was given: repeats of them are updates.
    given: BTreeSet<u64>,
    rate: Rate,
    waits: bool,
}

/// core/v1 `Event`
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Event<'a> {
    metadata: EventMetadata<'a>,
    #[serde(flatten)]
    note: &'a RecordedEvent,
    source: Source<'a>,
    reporting_component: &'static str,
    reporting_instance: &'a str,
}

#[derive(Serialize)]
struct Source<'a> {
    component: &'static str,
    host: &'a str,
}

/// What the kubelet calls itself there.
const COMPONENT: &str = "kubelet";

impl Events {
    /// `None`: nobody asks for them.
    pub(super) fn new(settings: &CloudSettings, now: Now) -> Option<Self> {
        let rate = Rate::new(settings.events_per_second, settings.events_burst, now.boot);
        settings.report_events.then_some(Self {
            told: 0,
            given: BTreeSet::new(),
            rate,
            waits: false,
        })
    }

    /// Tells what happened since.
    pub(super) fn step(&mut self, notes: &Recorder, node: &str, context: &mut CloudContext<'_>) {
        self.waits = false;
        for (serial, digest, note) in notes.since(self.told) {
            if !context.has_room() || !self.rate.has(context.now.boot) {
                self.waits = true;
                return;
            }
            self.rate.take(context.now.boot);
            let object = &note.involved_object;
            let namespace = if object.namespace.is_empty() { "default" } else { &object.namespace };
            let name = format!("{}.{digest:016x}", object.name);
            let event = Event {
                metadata: EventMetadata { name: &name, namespace, annotations: &note.annotations },
                note,
                source: Source { component: COMPONENT, host: node },
                reporting_component: COMPONENT,
                reporting_instance: node,
            };
            let is_new = note.count == 1 || !self.given.contains(&digest);
            let operation = if is_new { "insert" } else { "update" };
            let resource = Resource { namespace: Some(namespace), kind: "event", name: &name };
            context.say(operation, &resource.to_string(), talk::json(&event));
            self.told = serial;
            if self.given.len() >= NOTES_MAX {
                self.given.retain(|digest| notes.holds(*digest));
            }
            self.given.insert(digest);
        }
    }

    /// When the next is due, as far as its rate decides it.
    pub(super) fn wake_at(&self) -> Option<Instant> {
        self.waits.then(|| self.rate.wake_at())
    }
}
