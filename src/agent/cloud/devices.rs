//! Connects the core of devices with the cloud side: objects that became durable, rows that are
//! saved with them, and the reports to the cloud.
//!
//! The registration of a mapper is a row of `meta`, as in KubeEdge; the other rows of devices have
//! tables of their own, and are saved in the same transactions.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::hub::Hub;
use super::meta::{ChangeOutcome, Meta};
use super::requests::CloudContext;
use super::rows::{self, DEVICE_EDIT, DeviceEdit, StoredObject};
use crate::agent::devices::{Devices, RegistrationChange};
use crate::agent::event::{Action, DeviceEvent, Out, Severity};
use crate::agent::time::{Instant, Now, Rng, sooner};
use crate::model::device::{DeviceDownstream, DeviceId, DeviceObject, StoredDevices};
use crate::model::message::Resource;
use crate::model::meta::{Change, Saved};
use crate::model::settings::DeviceSettings;
use crate::model::upstream::Up;

/// The core of devices, if they are served.
#[derive(Debug)]
pub(super) struct DeviceSide {
    node: Box<str>,
    core: Option<Box<Devices>>,
    /// What the store has, until its objects are read.
    stored: StoredDevices,
    topics: Vec<Box<str>>,
    /// The devices that are as an edit says.
    edited: BTreeMap<DeviceId, Edited>,
    /// The keys of edits that are over.
    ended: Vec<Box<str>>,
}

/// A device as it was edited on the node, and what it was made of.
#[derive(Debug)]
struct Edited {
    cloud: Arc<DeviceObject>,
    edit: Arc<DeviceEdit>,
    object: Arc<DeviceObject>,
}

impl DeviceSide {
    pub(super) fn new(node: &str, settings: Option<&DeviceSettings>, now: Now) -> Self {
        let core = settings.map(|it| Box::new(Devices::new(node, it.bus.is_some(), now)));
        let (edited, ended) = (BTreeMap::new(), Vec::new());
        let stored = StoredDevices::default();
        Self { node: node.into(), core, stored, topics: Vec::new(), edited, ended }
    }

    /// `None`: devices are not served.
    pub(super) fn core(&self) -> Option<&Devices> {
        self.core.as_deref()
    }

    /// Takes the rows of the store, before its objects are read.
    pub(super) fn take_stored(&mut self, saved: &mut Saved) {
        self.stored = std::mem::take(&mut saved.devices);
        self.topics = std::mem::take(&mut saved.sub_topics);
    }

    /// The store was read: `meta` has the objects.
    pub(super) fn load(&mut self, now: Now, meta: &Meta, rng: &mut Rng) {
        let stored = std::mem::take(&mut self.stored);
        if let Some(core) = &mut self.core {
            let mappers = meta.stored_objects().filter_map(|object| match object {
                StoredObject::Mapper(mapper) => Some((**mapper).clone()),
                _ => None,
            });
            core.load(now, stored, mappers, std::mem::take(&mut self.topics));
            self.objects_changed(now, meta, rng);
        }
    }

    /// Objects of devices or models, or edits, became durable.
    pub(super) fn objects_changed(&mut self, now: Now, meta: &Meta, rng: &mut Rng) {
        if self.core.is_none() {
            return;
        }
        self.take_edits(meta);
        let Self { core: Some(core), node, edited, .. } = self else { return };
        let devices = meta.stored_rows().filter_map(|(key, object)| match object {
            // A row under another name is a copy that MetaServer has made.
            StoredObject::Device(device)
                if device.view.node == *node && *key == *key_of("device", &device.id) =>
            {
                Some(edited.get(&device.id).map_or(device, |edited| &edited.object))
            }
            _ => None,
        });
        let models = meta.stored_objects().filter_map(|object| match object {
            StoredObject::DeviceModel(model) => Some(model.clone()),
            _ => None,
        });
        let is_unread = |id: &DeviceId| meta.has_unread(&key_of("device", id));
        core.objects_changed(now, devices, models, is_unread, rng);
    }

    /// Applies the edits that hold. Where the cloud has changed or deleted the device, the edit is
    /// over.
    fn take_edits(&mut self, meta: &Meta) {
        let mut before = std::mem::take(&mut self.edited);
        self.ended.clear();
        for (key, object) in meta.stored_rows() {
            let StoredObject::DeviceEdit(edit) = object else { continue };
            let id = Resource::parse(key)
                .map(|it| DeviceId::new(it.namespace.unwrap_or_default(), it.name));
            let Some(id) = id.filter(|id| *key == *key_of(DEVICE_EDIT, id)) else { continue };
            let row = key_of("device", &id);
            let cloud = match meta.stored_object(&row) {
                Some(StoredObject::Device(device)) => Some(device),
                _ => None,
            };
            if let Some(cloud) = cloud.filter(|cloud| edit.holds_for(cloud)) {
                let known = before
                    .remove(&id)
                    .filter(|it| Arc::ptr_eq(&it.cloud, cloud) && Arc::ptr_eq(&it.edit, edit));
                if let Some(edited) = known.or_else(|| Edited::new(cloud, edit)) {
                    self.edited.insert(id, edited);
                    continue;
                }
            } else if meta.has_unread(&row) {
                continue;
            }
            // Another edit may be on its way, or the end of this one.
            if !meta.is_pending(key) {
                self.ended.push(key.into());
            }
        }
    }

    /// Whether it is a device of this node, and devices are served.
    #[cfg(feature = "metaserver")]
    pub(super) fn serves(&self, device: &DeviceObject) -> bool {
        self.core.is_some() && device.view.node == self.node
    }

    /// JSON of a device as it is here, with its edit, if it has one.
    #[cfg(feature = "metaserver")]
    pub(super) fn text(&self, id: &DeviceId) -> Option<&str> {
        Some(&self.core.as_ref()?.object(id)?.text)
    }

    /// The same of a text of the cloud; `None`: no edit changes it.
    #[cfg(feature = "metaserver")]
    pub(super) fn edited(&self, namespace: &str, name: &str, text: &str) -> Option<String> {
        let edited = self.edited.get(&DeviceId::new(namespace, name))?;
        DeviceObject::read(text).ok().filter(|cloud| edited.edit.holds_for(cloud))?;
        edited.edit.apply(text)
    }

    #[cfg(feature = "metaserver")]
    pub(super) fn has_edits(&self) -> bool {
        !self.edited.is_empty()
    }

    /// Takes a message about twins.
    pub(super) fn message(
        &mut self,
        now: Now,
        message: Result<Box<DeviceDownstream>, String>,
        rng: &mut Rng,
    ) {
        let Some(core) = &mut self.core else { return };
        match message {
            Ok(message) => core.message(now, *message, rng),
            Err(why) => core.message_refused(&why),
        }
    }

    pub(super) fn handle(&mut self, now: Now, event: DeviceEvent, rng: &mut Rng) {
        let core = self.core.as_mut().expect("only served devices have events");
        core.handle(now, event, rng);
    }

    pub(super) fn link_up(&mut self, now: Now) {
        if let Some(core) = &mut self.core {
            core.link_up(now);
        }
    }

    pub(super) fn link_down(&mut self, now: Now) {
        if let Some(core) = &mut self.core {
            core.link_down(now);
        }
    }

    /// The save under way has ended; there may be nothing of devices in it.
    pub(super) fn end_save(&mut self, now: Now, is_saved: bool) {
        if let Some(core) = &mut self.core {
            core.end_save(now, is_saved);
        }
    }

    /// Makes calls and answers, and saves what is due, or all with a save that begins in any case.
    pub(super) fn step(&mut self, now: Now, meta: &mut Meta, rng: &mut Rng, out: &mut Out) {
        let Some(core) = &mut self.core else { return };
        if meta.origin().is_none() {
            return;
        }
        for key in self.ended.drain(..) {
            let line = format!("devices: {key} is over: the cloud has changed the device");
            out.push(Action::Log(Severity::Info, line));
            let _ = meta.delete(&key, "", None);
        }
        core.step(now, rng, out);
        store_registrations(core, meta);
        let is_due = core.save_at(now).is_some_and(|at| at <= now.boot);
        let joins = !meta.is_settled() && core.has_unsaved();
        if meta.may_save(now) && (is_due || joins) {
            begin_save(core, meta, now);
        }
    }

    /// The agent is about to exit: starts to save what is not saved, due or not. Returns whether
    /// everything is.
    pub(super) fn save_all(&mut self, now: Now, meta: &mut Meta, out: &mut Out) -> bool {
        let Some(core) = &mut self.core else { return true };
        // Before the store is read nothing is known that is not in it.
        if meta.origin().is_none() {
            return true;
        }
        core.link_down(now);
        if core.is_saved() {
            return true;
        }
        store_registrations(core, meta);
        if meta.may_save(now) {
            begin_save(core, meta, now);
            meta.step(now, out);
        }
        core.is_saved()
    }

    /// When [`DeviceSide::save_all`] may go on after a save that failed.
    pub(super) fn save_all_at(&self, now: Now, meta: &Meta) -> Option<Instant> {
        let core = self.core.as_ref()?;
        meta.save_at(now).filter(|_| !core.is_saved())
    }

    /// Sends the reports that are due.
    pub(super) fn report(&mut self, context: &mut CloudContext<'_>) {
        let Some(core) = &mut self.core else { return };
        while context.may_send() {
            let Some((device, report)) = core.report(context.now) else { break };
            let message = context.send(Up::Device(Box::new(report)));
            if let Some(device) = device {
                core.sent(context.now, &device, message);
            }
        }
        // After all else: a client must not delay what the cloud decides by.
        while context.may_send() {
            let Some(upload) = core.next_upload() else { return };
            context.send(Up::Upload(upload));
            core.upload_handed_over(context.hub.counts().0);
        }
    }

    /// Messages have left.
    pub(super) fn sent(&mut self, hub: &Hub) {
        if let Some(core) = &mut self.core {
            core.uploads_left(hub.counts().1);
        }
    }

    /// When the next report is due.
    pub(super) fn report_at(&self, now: Now) -> Option<Instant> {
        self.core.as_ref()?.report_at(now)
    }

    /// When the next step is due.
    pub(super) fn wake_at(&self, now: Now, meta: &Meta) -> Option<Instant> {
        let core = self.core.as_ref()?;
        let save_at = core.save_at(now).and_then(|at| Some(at.max(meta.save_at(now)?)));
        sooner(core.wake_at(now), save_at).filter(|_| meta.origin().is_some())
    }
}

impl Edited {
    /// `None`: it does not make a device of this one.
    fn new(cloud: &Arc<DeviceObject>, edit: &Arc<DeviceEdit>) -> Option<Self> {
        let object = DeviceObject::read(&edit.apply(&cloud.text)?).ok()?;
        let object = Arc::new(DeviceObject { is_edited: true, ..object });
        Some(Self { cloud: cloud.clone(), edit: edit.clone(), object })
    }
}

/// Adds what is not saved to the save that begins in this step; there may be nothing to be saved.
fn begin_save(core: &mut Devices, meta: &mut Meta, now: Now) {
    let changes = core.begin_save(now);
    let topics = core.topics().begin_save();
    if changes.is_empty() && topics.is_empty() && meta.is_settled() {
        core.end_save(now, true);
    }
    meta.save_also(changes.into_iter().map(Change::Device));
    meta.save_also(topics.into_iter().map(Change::SubTopic));
}

/// Queues the registrations of mappers for the next save.
fn store_registrations(core: &mut Devices, meta: &mut Meta) {
    core.registrations().retain(|change| {
        let outcome = match change {
            RegistrationChange::Put(mapper) => {
                let row = rows::mapper(mapper);
                meta.put(&mapper_key(&mapper.name), rows::MAPPER, &row, None)
            }
            RegistrationChange::Remove(name) => meta.delete(&mapper_key(name), "", None),
        };
        matches!(outcome, ChangeOutcome::Dropped)
    });
}

/// The key of the row that a device has of this kind.
pub(super) fn key_of(kind: &str, id: &DeviceId) -> String {
    let namespace = Some(id.namespace()).filter(|namespace| !namespace.is_empty());
    Resource { namespace, kind, name: id.name() }.to_string()
}

/// As `EdgeCore` has it, to the letter.
fn mapper_key(name: &str) -> String {
    format!("node/nodeID/namespace/{}/{name}", rows::MAPPER)
}
