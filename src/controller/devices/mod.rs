//! Devices, as `devicecontroller` of KubeEdge serves them (spec `devices`, sections 2, 3 and 17):
//! which devices a node has, and what it reports of them.
//!
//! ```text
//!  Device, DeviceModel ─▶ cache ─▶ objects, acknowledged ─▶ node
//!                           └────▶ membership, a state ───▶
//!  DeviceStatus ◀─ statuses ◀─ status (JSON) ◀─ reports ◀── node
//! ```
//!
//! The objects go the way of pods: `cache`, `downstream`. Membership follows from them: a connected
//! node is told of changes, and one that asks gets the whole list. KubeEdge loses such messages for
//! a node that is away, and does not answer.
//!
//! Every message about a device is confirmed, because EdgeCore repeats it for ever otherwise: that
//! of an unknown device at once, a report when it is written. So a report that was confirmed
//! survives us.
//!
//! If we crash here: what was not confirmed is reported again.

mod status;
pub(super) mod statuses;

use std::collections::BTreeSet;

use super::cache::Cache;
use super::downstream::NodeContext;
use super::event::{Action, Severity};
use super::key::{Key, NodeId};
use super::outbound::{self, Membership, Origin};
use super::requests::{Form, NodeRequest, Then};
use super::session::Link;
use super::time::Now;
use super::watches::Listed;
use super::{Controller, Session};
use crate::limits::DEVICE_MEMBERS_MAX;
use crate::model::api::{Call, Kind, Verb};
use crate::model::cloud_message::{Content, DeviceMember};
use crate::model::device::{DeviceId, DeviceUpstream};
use crate::model::edge_message::{EdgeContent, EdgeMessage};
use statuses::{Report, Waiting};

impl Controller {
    /// A node requests the list of its devices: it is answered when all devices are known.
    pub(super) fn membership(&mut self, id: NodeId, message: &EdgeMessage) {
        let link = self.cache.at(id).link.as_mut().expect("a session that is on");
        link.detail = Some(message.header.id.clone());
        self.cache.ready.insert(id);
    }

    /// It is known now which devices there are.
    pub(super) fn devices_listed(&mut self, listed: Listed) {
        self.cache.devices = listed;
        let links =
            self.cache.nodes.iter().filter_map(|(id, node)| Some((id, node.link.as_ref()?)));
        let waiting = links.filter(|(_, link)| link.detail.is_some() || !link.members.is_empty());
        self.cache.ready.extend(waiting.map(|(id, _)| *id));
    }

    /// A message about devices. It is confirmed whatever it says.
    pub(super) fn device_message(
        &mut self,
        now: Now,
        id: NodeId,
        session: Session,
        message: EdgeMessage,
    ) {
        let waiting = Waiting { node: id, session, message: message.header.id };
        match message.content {
            EdgeContent::Device(report, at_ms) => self.device_report(now, waiting, *report, at_ms),
            EdgeContent::Invalid(why) => {
                self.confirm(waiting);
                self.count_offence(id, &why.to_string());
            }
            _ => {
                self.counters.messages_unserved += 1;
                self.confirm(waiting);
            }
        }
    }

    fn device_report(&mut self, now: Now, waiting: Waiting, report: DeviceUpstream, at_ms: i64) {
        self.counters.device_reports += 1;
        if self.cache.devices == Listed::NotYet {
            // The node sends it again.
            self.counters.device_reports_ignored += 1;
            return;
        }
        let (device, report) = match report {
            DeviceUpstream::Twins(device, twins) => (device, Report::Twins(twins)),
            DeviceUpstream::State(device, state) => (device, Report::State(state, at_ms)),
            DeviceUpstream::GetDetail(_) => return self.confirm(waiting),
        };
        let Some(key) = self.cache.own_device(waiting.node, &device) else {
            // It was moved or deleted.
            self.counters.device_reports_ignored += 1;
            self.look_up_unrecorded(waiting.node, &device);
            return self.confirm(waiting);
        };
        let report = self.cache.without_unknown(&key, report);
        self.statuses.report(now.boot, &key, report, waiting);
    }

    /// A node has a device that is not its own. Where that is on record, its deletion is on the
    /// way. Otherwise the Node was deleted in between, and its records with it: the API server is
    /// asked, because the watch may be behind. One that has no devices at all says nothing of one.
    fn look_up_unrecorded(&mut self, id: NodeId, device: &DeviceId) {
        let key = Key::new(Kind::Device, device.namespace(), device.name());
        let is_on_record = self.cache.nodes[&id].records.contains_key(&key);
        let is_served = self.cache.devices == Listed::Yes;
        if device.namespace().is_empty() || is_on_record || !is_served {
            return;
        }
        let call = Call {
            verb: Verb::Get,
            kind: key.kind,
            namespace: device.namespace().into(),
            name: device.name().into(),
            subresource: None,
            body: None,
        };
        let origin = Origin { id: Box::default(), resource: key.to_string().into() };
        let (call, form, then) = (Box::new(call), Form::Silent, Then::Unrecorded(key));
        // Of too many, the next report is looked at.
        let _ = self.queue_request(id, NodeRequest { origin, call, form, then });
    }

    /// A message is done: its node is told, if that session is still open.
    pub(super) fn confirm(&mut self, Waiting { node, session, message }: Waiting) {
        let link = self.cache.nodes.get_mut(&node).and_then(|node| node.link.as_mut());
        if let Some(link) = link.filter(|link| link.session == session) {
            link.confirm(message);
            self.cache.ready.insert(node);
        }
    }

    /// All devices that nodes have, and what is known of their statuses: JSON of objects.
    pub fn devices(&self) -> impl Iterator<Item = (&str, Option<String>)> {
        let from = Key::new(Kind::Device, "", "");
        let keys = self.cache.objects.range(from..).map(|(key, _)| key);
        let keys = keys.take_while(|key| key.kind == Kind::Device);
        keys.filter_map(|key| Some((self.cache.object(key)?.json.get(), self.statuses.text(key))))
    }

    /// The namespaces and names of the devices that are bound to this node.
    pub fn devices_of(&self, node: &str) -> impl Iterator<Item = (&str, &str)> {
        self.bound_to(node, Kind::Device)
    }
}

impl Cache {
    /// The device of a report, if it is bound to the node that sends it. Edges up to 1.16.1 do not
    /// name the namespace.
    fn own_device(&self, id: NodeId, device: &DeviceId) -> Option<Key> {
        let node = &self.nodes[&id];
        if device.namespace().is_empty() {
            let mut bound = node.bound.keys().filter(|key| key.kind == Kind::Device);
            return bound.find(|key| *key.name == *device.name()).cloned();
        }
        let key = Key::new(Kind::Device, device.namespace(), device.name());
        node.bound.contains_key(&key).then_some(key)
    }

    /// The report without properties that the device does not have: a node may make up any number
    /// of them.
    fn without_unknown(&self, device: &Key, mut report: Report) -> Report {
        let facts = self.object(device).and_then(|object| object.device.as_ref());
        if let (Report::Twins(twins), Some(facts)) = (&mut report, facts) {
            twins.retain(|name, _| facts.properties.contains(name));
        }
        report
    }

    /// Tells a node which devices it has: the whole list if it has requested it, and changes.
    pub(super) fn tell_members(
        &mut self,
        id: NodeId,
        link: &mut Link,
        context: &mut NodeContext<'_>,
    ) {
        if self.devices == Listed::NotYet || !link.has_room() {
            return;
        }
        if let Some(request) = link.detail.take() {
            // An empty list would remove the devices of an EdgeCore.
            if self.devices == Listed::Yes {
                self.tell_all_members(id, link, context);
            }
            link.confirm(request);
        }
        if link.members.is_empty() || self.devices == Listed::Unserved {
            return;
        }
        let (mut added, mut removed) = (BTreeSet::new(), BTreeSet::new());
        for (key, membership) in std::mem::take(&mut link.members) {
            match membership {
                Membership::Added => added.insert(key),
                Membership::Removed => removed.insert(key),
            };
        }
        let content = Content::Membership {
            added: self.members(id, added.iter()),
            removed: self.members(id, removed.iter()),
        };
        let message = outbound::membership(context.rng, context.now, "membership", content);
        link.reply(message);
    }

    fn tell_all_members(&self, id: NodeId, link: &mut Link, context: &mut NodeContext<'_>) {
        let node = &self.nodes[&id];
        let devices = node.bound.keys().filter(|key| key.kind == Kind::Device);
        let members = self.members(id, devices);
        if members.len() > DEVICE_MEMBERS_MAX {
            let line = format!(
                "node={}: got {} devices, expected {DEVICE_MEMBERS_MAX} at most: it gets no list \
                 of them",
                node.name,
                members.len()
            );
            context.out.push(Action::Log(Severity::Warn, line));
            return;
        }
        // It has all changes so far.
        link.members.clear();
        let content = Content::MembershipDetail(members);
        let message = outbound::membership(context.rng, context.now, "membership/detail", content);
        link.reply(message);
    }

    /// Devices as this node knows them, each id once.
    fn members<'a>(&self, id: NodeId, devices: impl Iterator<Item = &'a Key>) -> Vec<DeviceMember> {
        let own = self.object(&Key::node(&self.nodes[&id].name));
        let is_short =
            own.and_then(|own| own.node.as_ref()).is_some_and(|facts| facts.has_short_device_ids);
        let mut ids = BTreeSet::new();
        let member = |key: &Key| {
            let id = DeviceId::new(if is_short { "" } else { &key.namespace }, &key.name);
            let facts = self.object(key).and_then(|object| object.device.as_ref());
            let description = facts.map(|facts| facts.description.clone()).unwrap_or_default();
            DeviceMember { id: id.as_str().into(), name: key.name.as_ref().into(), description }
        };
        devices.map(member).filter(|member| ids.insert(member.id.clone())).collect()
    }
}
