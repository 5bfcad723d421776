//! Connects MetaServer with the cloud side: its requests, the objects that the cloud pushes, and
//! the rows that are saved with those of `meta`.

#[cfg(feature = "metaserver-auth")]
mod access;
#[cfg(not(feature = "metaserver-auth"))]
#[path = "metaserver/access/absent.rs"]
mod access;
#[cfg(feature = "devices")]
mod device_edit;
mod hold;
mod restart;

use std::sync::Arc;

use super::devices::DeviceSide;
use super::meta::Meta;
use super::requests::{CloudContext, RequestKind};
use super::watches::{WatchState, Watches};
use crate::agent::event::Out;
use crate::agent::metaserver::{MetaServer, Registration};
use crate::agent::time::{Instant, Now, Rng};
use crate::limits::METASERVER_ANSWER_MS;
use crate::model::application::{Item, Scope};
use crate::model::message::Resource;
use crate::model::meta::{Change, Saved};
use crate::model::metaserver::{
    Answer, Call, Caller, ClientId, Failure, MetaServerSettings, Reply,
};
use crate::model::upstream::Up;
use hold::Releases;
pub(super) use restart::restart;

/// The core of MetaServer, if it is on.
#[derive(Debug)]
pub(super) struct MetaSide {
    core: Option<Box<MetaServer>>,
    releases: Releases,
    #[cfg(feature = "devices")]
    edits: device_edit::Edits,
}

impl MetaSide {
    pub(super) fn new(node: &str, settings: Option<&MetaServerSettings>, bytes_max: usize) -> Self {
        let core = settings.map(|it| Box::new(MetaServer::new(it.clone(), node, bytes_max)));
        Self {
            core,
            releases: Releases::default(),
            #[cfg(feature = "devices")]
            edits: Vec::new(),
        }
    }

    pub(super) fn core(&self) -> Option<&MetaServer> {
        self.core.as_deref()
    }

    pub(super) fn is_on(&self) -> bool {
        self.core.is_some()
    }

    /// Takes the rows of the store.
    pub(super) fn load(&mut self, saved: &mut Saved) {
        let items = std::mem::take(&mut saved.items);
        if let Some(core) = &mut self.core {
            core.load(&items);
        }
    }

    /// Whether this client may do this; an error is the answer that it gets.
    pub(super) fn judge(
        &self,
        now: Now,
        meta: &Meta,
        caller: &Caller,
        call: &Call,
    ) -> Result<(), Failure> {
        let settings = self.core.as_ref().and_then(|core| core.authorization());
        settings.map_or(Ok(()), |settings| access::judge(now, meta, settings, caller, call))
    }

    /// It may not.
    pub(super) fn refuse(&mut self, now: Now, id: ClientId, call: Call, failure: Failure) {
        let core = self.core.as_mut().expect("only a MetaServer that is on has clients");
        core.refused(now, id, call, failure);
    }

    pub(super) fn opened(&mut self, now: Now, id: ClientId, call: Call) {
        let core = self.core.as_mut().expect("only a MetaServer that is on has clients");
        core.opened(now, id, call);
    }

    /// Answers a client that is still there.
    pub(super) fn reply(&mut self, id: ClientId, reply: Reply) {
        if let Some(core) = &mut self.core {
            core.reply_to(id, reply);
        }
    }

    pub(super) fn closed(&mut self, id: ClientId) {
        let core = self.core.as_mut().expect("only a MetaServer that is on has clients");
        core.closed(id);
    }

    fn durable_releases(&mut self, meta: &Meta) -> Vec<ClientId> {
        let Some(core) = &self.core else { return Vec::new() };
        self.releases.take_durable(meta, |id| core.waits(id))
    }

    pub(super) fn link_up(&mut self) {
        self.core.iter_mut().for_each(|core| core.link_up());
    }

    pub(super) fn link_down(&mut self) {
        self.core.iter_mut().for_each(|core| core.link_down());
    }

    /// The cloud has sent an object, for whichever purpose.
    pub(super) fn pushed(&mut self, now: Now, item: Option<&Arc<Item>>) {
        if let (Some(core), Some(item)) = (&mut self.core, item) {
            core.pushed(now, item);
        }
    }

    pub(super) fn removed(&mut self, now: Now, resource: Resource<'_>, uid: &str, version: u64) {
        if let Some(core) = &mut self.core {
            let name = (resource.namespace.unwrap_or_default(), resource.name);
            core.removed(now, resource.kind, name, uid, version);
        }
    }

    pub(super) fn answered(&mut self, now: Now, number: u64, answer: Answer) {
        if let Some(core) = &mut self.core {
            core.answered(now, number, answer);
        }
    }

    pub(super) fn unanswered(&mut self, now: Now, number: u64, is_up: bool) {
        if let Some(core) = &mut self.core {
            core.unanswered(now, number, is_up);
        }
    }

    /// Adds the rows that are due to a save that may begin.
    pub(super) fn save(&mut self, now: Now, meta: &mut Meta) {
        let Some(core) = self.core.as_mut().filter(|_| meta.origin().is_some()) else { return };
        let is_due = core.save_at().is_some_and(|at| at <= now.boot);
        if is_due && meta.may_save(now) {
            let changes = core.begin_save(now);
            if changes.is_empty() {
                core.end_save(now, true);
            }
            meta.save_also(changes.into_iter().map(Change::Item));
        }
    }

    /// Takes what the cloud has said of the watches.
    pub(super) fn registered(&mut self, now: Now, watches: &mut Watches) {
        let Some(core) = &mut self.core else { return };
        core.registered(now, watches.take_news(), |scope| match watches.state(scope) {
            Some(WatchState::Taken) => Registration::Taken,
            Some(WatchState::Refused(why)) => Registration::Refused(why.clone()),
            Some(WatchState::Unanswered) => Registration::Silent,
            Some(WatchState::Open) | None => Registration::Open,
        });
    }

    /// Answers clients.
    pub(super) fn step(
        &mut self,
        now: Now,
        (meta, devices): (&Meta, &DeviceSide),
        rng: &mut Rng,
        out: &mut Out,
    ) {
        if let Some(core) = self.core.as_mut().filter(|_| meta.origin().is_some()) {
            core.step(now, rng, out, |item| local(devices, item));
        }
    }

    /// The save under way has ended; there may be nothing of MetaServer in it.
    pub(super) fn end_save(&mut self, now: Now, is_saved: bool) {
        if let Some(core) = &mut self.core {
            core.end_save(now, is_saved);
        }
    }

    /// Sends the requests that are due.
    pub(super) fn send(&mut self, context: &mut CloudContext<'_>) {
        let Some(core) = &mut self.core else { return };
        while context.has_room() {
            let Some((number, request)) = core.next_request() else { return };
            let kind = RequestKind::Application(number);
            let request = Up::Application(Box::new(request));
            context.request_within(METASERVER_ANSWER_MS, kind, request);
        }
    }

    pub(super) fn watches(&self) -> impl Iterator<Item = &Arc<Scope>> {
        self.core.iter().flat_map(|core| core.watches())
    }

    /// When requests are due.
    pub(super) fn send_at(&self) -> Option<Instant> {
        self.core.as_ref().filter(|core| core.has_request()).map(|_| Instant(0))
    }

    /// When the next step is due.
    pub(super) fn wake_at(&self, now: Now, meta: &Meta) -> Option<Instant> {
        let core = self.core.as_ref().filter(|_| meta.origin().is_some())?;
        let save_at = core.save_at().and_then(|at| Some(at.max(meta.save_at(now)?)));
        core.wake_at().into_iter().chain(save_at).min()
    }
}

/// What is shown in the place of an object: a device as it was edited on the node.
#[cfg(feature = "devices")]
fn local(devices: &DeviceSide, item: &Item) -> Option<Arc<Item>> {
    if !devices.has_edits() || &*item.kind != "Device" {
        return None;
    }
    let text = devices.edited(&item.namespace, &item.name, &item.text)?;
    Some(Arc::new(Item { text: text.into(), ..item.clone() }))
}

#[cfg(not(feature = "devices"))]
fn local(_: &DeviceSide, _: &Item) -> Option<Arc<Item>> {
    None
}
