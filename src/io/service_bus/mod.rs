//! The sockets of ServiceBus: calls to services of the node, and requests of applications.
//!
//! It decides nothing ([`crate::agent::service_bus`]).
//!
//! **If we crash here** the kernel closes the sockets: services and applications see that.

mod call;
mod entry;
#[cfg(test)]
mod tests;

use mio::event::Event as Ready;
use mio::{Poll, Registry, Token};

use crate::agent::event::Event;
use crate::agent::time::Instant;
use crate::config::Config;
use crate::limits::{SERVICE_BUS_BODY_BYTES_MAX, SERVICE_BUS_CALLS_MAX};
use crate::model::service_bus::BusAction;
use call::Calls;
use entry::Entries;

/// All sockets; nothing where ServiceBus is switched off.
#[derive(Debug)]
pub struct ServiceBus {
    first: Token,
    calls: Calls,
    entries: Option<Entries>,
}

impl ServiceBus {
    /// `first`: the tokens from here on are ours.
    pub fn new(config: &Config, first: Token) -> Self {
        let calls = Calls::new(first, SERVICE_BUS_BODY_BYTES_MAX);
        let next = Token(first.0 + SERVICE_BUS_CALLS_MAX);
        let address = config.service_bus.address();
        Self { first, calls, entries: address.map(|address| Entries::new(address, next)) }
    }

    /// Whether the token is one of ours.
    pub fn owns(&self, token: Token) -> bool {
        (self.first.0..self.first.0 + SERVICE_BUS_CALLS_MAX + Entries::TOKENS).contains(&token.0)
    }

    pub fn ready(&mut self, ready: &Ready) {
        let number = ready.token().0 - self.first.0;
        if number < SERVICE_BUS_CALLS_MAX {
            self.calls.ready(ready);
        } else if let Some(entries) = &mut self.entries {
            entries.ready(ready);
        }
    }

    /// Does what the core asks for.
    pub fn perform(
        &mut self,
        now: Instant,
        action: BusAction,
        poll: &Poll,
        events: &mut Vec<Event>,
    ) {
        match action {
            BusAction::Call(id, call) => {
                self.calls.start(now, id, &call, poll.registry(), events);
            }
            BusAction::Answer(id, answer) => {
                if let Some(entries) = &mut self.entries {
                    entries.answer(now, id, &answer);
                }
            }
            BusAction::Listen(is_on) => {
                if let Some(entries) = &mut self.entries {
                    entries.listen(is_on);
                }
            }
        }
    }

    /// Continues what is ready or late.
    pub fn tick(&mut self, now: Instant, registry: &Registry, events: &mut Vec<Event>) {
        self.calls.tick(now, events);
        if let Some(entries) = &mut self.entries {
            entries.tick(now, registry, events);
        }
    }

    /// When to call [`ServiceBus::tick`].
    pub fn wake_at(&self) -> Option<Instant> {
        let entries = self.entries.as_ref().and_then(Entries::wake_at);
        self.calls.wake_at().into_iter().chain(entries).min()
    }
}
