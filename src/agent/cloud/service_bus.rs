//! Connects the core of ServiceBus with the cloud side: messages of the router, rows, and messages
//! to the cloud.

use super::meta::Meta;
use super::requests::CloudContext;
use crate::agent::Config;
use crate::agent::event::{Action, Out, Severity};
use crate::agent::service_bus::{BusUp, ServiceBus};
use crate::agent::time::{Instant, Now, sooner};
use crate::model::meta::{Change, Saved};
use crate::model::service_bus::{BusDownstream, BusEvent};
use crate::model::upstream::{Origin, Up};

/// The core of ServiceBus, if it is switched on.
#[derive(Debug)]
pub(super) struct BusSide(Option<Box<ServiceBus>>);

impl BusSide {
    pub(super) fn new(config: &Config) -> Self {
        let most = config.machine.budget.message_bytes_max;
        let new = |settings: &_| Box::new(ServiceBus::new(Clone::clone(settings), most));
        Self(config.service_bus.as_ref().map(new))
    }

    /// `None`: it is switched off.
    pub(super) fn core(&self) -> Option<&ServiceBus> {
        self.0.as_deref()
    }

    pub(super) fn load(&mut self, saved: &mut Saved) {
        let urls = std::mem::take(&mut saved.target_urls);
        if let Some(core) = &mut self.0 {
            core.load(urls);
        }
    }

    /// Takes a message of the router. Returns whether it is served.
    pub(super) fn message(
        &mut self,
        origin: Origin,
        message: BusDownstream,
        out: &mut Out,
    ) -> bool {
        let Some(core) = &mut self.0 else {
            return !matches!(message, BusDownstream::Call(_));
        };
        if let Some(line) = core.message(origin, message) {
            out.push(Action::Log(Severity::Warn, line));
        }
        true
    }

    pub(super) fn handle(&mut self, now: Now, event: BusEvent) {
        if let Some(core) = &mut self.0 {
            core.handle(now, event);
        }
    }

    pub(super) fn link_up(&mut self) {
        if let Some(core) = &mut self.0 {
            core.link_up();
        }
    }

    pub(super) fn link_down(&mut self) {
        if let Some(core) = &mut self.0 {
            core.link_down();
        }
    }

    pub(super) fn end_save(&mut self, is_saved: bool) {
        if let Some(core) = &mut self.0 {
            core.end_save(is_saved);
        }
    }

    /// Makes calls and answers, and adds rows to the save that begins in this step.
    pub(super) fn step(&mut self, now: Now, meta: &mut Meta, out: &mut Out) {
        let Some(core) = &mut self.0 else { return };
        core.step(now);
        for action in core.take_actions() {
            out.push(Action::ServiceBus(Box::new(action)));
        }
        if core.has_unsaved() && meta.may_save(now) {
            meta.save_also(core.urls().begin_save().into_iter().map(Change::TargetUrl));
        }
    }

    /// Sends what is due.
    pub(super) fn report(&mut self, context: &mut CloudContext<'_>) {
        let Some(core) = &mut self.0 else { return };
        while context.may_send() {
            match core.next_up() {
                None => return,
                Some(BusUp::Answer(to, answer)) => {
                    context.send(Up::ServiceAnswer(to, Box::new(answer)));
                }
                Some(BusUp::Request(id, url, body)) => {
                    let message = context.send(Up::ServiceRequest { url, body });
                    core.sent(id, message);
                }
            }
        }
    }

    /// When the next message is due.
    pub(super) fn report_at(&self) -> Option<Instant> {
        self.0.as_ref()?.has_up().then_some(Instant(0))
    }

    /// When the next step is due.
    pub(super) fn wake_at(&self, now: Now, meta: &Meta) -> Option<Instant> {
        let core = self.0.as_ref()?;
        let save_at = core.has_unsaved().then(|| meta.save_at(now)).flatten();
        sooner(core.wake_at(), save_at)
    }
}
