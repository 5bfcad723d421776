//! Event streams: what a client that keeps a list is told in between.

use super::calls::Calls;
use super::event::{Action, CallId, Out};
use super::refusal::{exhausted, refusal};
use crate::limits::{RUNTIME_EVENTS_MAX, RUNTIME_STREAMS_MAX};
use crate::model::map::Set;
use crate::model::runtime::{Code, Refusal, RuntimeEvent};

#[derive(Debug, Default)]
pub struct Streams {
    open: Set<CallId>,
}

impl Streams {
    pub fn open(&mut self, call: CallId) -> Result<(), Refusal> {
        if self.open.len() >= RUNTIME_STREAMS_MAX {
            return Err(exhausted("an event stream", RUNTIME_STREAMS_MAX));
        }
        self.open.insert(call);
        Ok(())
    }

    pub fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// `false`: it is none.
    pub fn close(&mut self, call: CallId) -> bool {
        self.open.remove(&call)
    }

    /// Sends the events of a step to all. If they are too many the streams end: the clients list.
    pub fn send(&mut self, events: &[RuntimeEvent], calls: &mut Calls, out: &mut Out) {
        if events.len() > RUNTIME_EVENTS_MAX {
            for call in std::mem::take(&mut self.open) {
                let text = format!("more than {RUNTIME_EVENTS_MAX} events at once: list anew");
                calls.answer(call, Err(refusal(Code::ResourceExhausted, text)));
            }
            return;
        }
        for call in self.open.iter() {
            for event in events {
                out.push(Action::Item(*call, Box::new(event.clone())));
            }
        }
    }
}
