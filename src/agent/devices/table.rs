//! All devices of the node, and what of them is not saved yet.
//!
//! A device exists because the cloud has an object of it for this node. Without an object it exists
//! while a membership message says so: those of clouds up to 1.14, and those whose object is still
//! on its way.
//!
//! Intended behaviour: what nobody repeats is saved at once, and so are the first value of a
//! property and the first state of a device. Later states, and values that the cloud may get only
//! after a save, are saved some seconds after the save before. Other actual values go to the cloud
//! without a save, and are saved some minutes after the save before, all together, because flash
//! wears out; or with a save that is made for another reason. The first one after a quiet time is
//! saved at once.
//!
//! If we crash here: actual values of the last minutes are lost, and states of the last seconds.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::device::{Device, Effects};
use super::twin::Change;
use crate::core::time::{Instant, Now, sooner};
use crate::limits::{
    ATTRIBUTES_MAX, DEVICE_ATTRIBUTES_MAX, DEVICE_SAVE_MS, NODE_DEVICES_MAX, TWIN_MARK_MS,
    TWIN_SAVE_MS, TWINS_MAX,
};
use crate::model::device::{
    AttributeChanges, AttributeRow, DeviceChange, DeviceId, DeviceObject, DeviceUpstream,
    GivenDevice, Member, StoredDevices,
};

#[derive(Debug, Default)]
pub(super) struct Table {
    devices: BTreeMap<DeviceId, Box<Device>>,
    /// Properties of all devices.
    twins: usize,
    /// Devices with something that is not saved, and devices of the save under way.
    unsaved: BTreeSet<DeviceId>,
    saving: BTreeSet<DeviceId>,
    /// Devices whose rows are to be removed, and those of the save under way.
    removed: BTreeSet<DeviceId>,
    removing: BTreeSet<DeviceId>,
    /// When the next save is due.
    save_at: Option<Instant>,
    /// When the last save began; `None`: there was none.
    saved_at: Option<Instant>,
    /// There is a link to the cloud.
    is_linked: bool,
    /// Devices about which there may be a report.
    unsent: BTreeSet<DeviceId>,
}

/// The devices that came and went.
#[derive(Debug, Default)]
pub(super) struct Members {
    pub added: Vec<DeviceId>,
    pub removed: Vec<DeviceId>,
    /// There was no room for some.
    pub is_full: bool,
}

impl Table {
    /// Takes the rows of the store. Returns how many there was no room for.
    pub(super) fn load(&mut self, stored: StoredDevices) -> usize {
        let mut left = 0;
        for row in stored.devices {
            if self.devices.len() < NODE_DEVICES_MAX {
                self.unsent.insert(row.id.clone());
                self.devices.insert(row.id.clone(), Box::new(Device::stored(row)));
            } else {
                left += 1;
            }
        }
        for AttributeRow { device, name, attribute } in stored.attributes {
            let device = self.devices.get_mut(&device);
            match device.filter(|it| it.attributes().len() < DEVICE_ATTRIBUTES_MAX) {
                Some(device) => device.load_attribute(name, attribute),
                None => left += 1,
            }
        }
        for row in stored.twins {
            let has_room = self.twins < TWINS_MAX;
            let device = self.devices.get_mut(&row.device).filter(|_| has_room);
            let before = device.as_ref().map_or(0, |device| device.count());
            let Some(device) = device else {
                left += 1;
                continue;
            };
            left += usize::from(!device.load(row));
            self.twins += device.count() - before;
        }
        left
    }

    pub(super) fn get(&self, id: &DeviceId) -> Option<&Device> {
        self.devices.get(id).map(|device| &**device)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&DeviceId, &Device)> {
        self.devices.iter().map(|(id, device)| (id, &**device))
    }

    /// The objects of the devices.
    pub(super) fn objects(&self) -> impl Iterator<Item = &Arc<DeviceObject>> {
        self.devices.values().filter_map(|device| device.object())
    }

    pub(super) fn members(&self, ids: &[DeviceId]) -> Vec<Member> {
        let member = |id| self.devices.get(id).map(|device| device.member(id));
        ids.iter().filter_map(member).collect()
    }

    /// Changes a device. `change`: gets how many properties more there may be.
    pub(super) fn change<T>(
        &mut self,
        id: &DeviceId,
        change: impl FnOnce(&mut Device, usize) -> T,
    ) -> Option<T> {
        let device = self.devices.get_mut(id)?;
        let before = device.count();
        let result = change(device, TWINS_MAX.saturating_sub(self.twins));
        self.twins += device.count() - before;
        self.unsent.insert(id.clone());
        Some(result)
    }

    /// What a message that lists all attributes changes of those of its device. Clouds since 1.15
    /// give none, and then all stay: EdgeCore would delete them.
    pub(super) fn attribute_changes(&self, given: &GivenDevice) -> AttributeChanges {
        let Some(all) = &given.attributes else { return Vec::new() };
        let known = self.get(&given.id).map(Device::attributes);
        let gone = known.into_iter().flatten().filter(|(name, _)| !all.contains_key(*name));
        let gone = gone.map(|(name, _)| (name.clone(), None));
        gone.chain(all.iter().map(|(name, it)| (name.clone(), Some(it.clone())))).collect()
    }

    /// Changes attributes of a device. Returns what has changed; `None`: there is no such device.
    pub(super) fn change_attributes(
        &mut self,
        id: &DeviceId,
        changes: AttributeChanges,
    ) -> Option<Effects> {
        let count: usize = self.devices.values().map(|device| device.attributes().len()).sum();
        let device = self.devices.get_mut(id)?;
        Some(device.change_attributes(changes, ATTRIBUTES_MAX.saturating_sub(count)))
    }

    /// A device has changed: when it has to be saved.
    pub(super) fn changed(&mut self, now: Now, id: &DeviceId, change: Change) {
        let after = |ms: u64| self.saved_at.map_or(now.boot, |at| at.plus_ms(ms).max(now.boot));
        let is_blocked = || self.is_linked && self.get(id).is_some_and(Device::is_blocked);
        let at = match change {
            Change::Nothing => return,
            Change::Value if !is_blocked() => after(TWIN_SAVE_MS),
            Change::Value | Change::Soon => after(DEVICE_SAVE_MS),
            Change::AtOnce => now.boot,
        };
        self.unsaved.insert(id.clone());
        self.save_at = sooner(self.save_at, Some(at));
    }

    // ---- which devices there are ----

    /// The cloud's objects for this node. `is_unread`: the store has an object that could not be
    /// read. Returns also what each object has changed.
    pub(super) fn take_objects<'a>(
        &mut self,
        now: Now,
        objects: impl Iterator<Item = &'a Arc<DeviceObject>>,
        is_unread: impl Fn(&DeviceId) -> bool,
    ) -> (Members, Vec<(DeviceId, Effects)>) {
        let (mut members, mut effects) = (Members::default(), Vec::new());
        let mut there = BTreeSet::new();
        for object in objects {
            let id = &object.id;
            // A device that was deleted and made anew: nothing of the old one is left.
            if self.devices.get(id).is_some_and(|device| device.is_replaced_by(object)) {
                self.remove(now, id.clone(), &mut members);
            }
            if !self.add(now, id, &object.view.description, &mut members) {
                continue;
            }
            there.insert(id.clone());
            let taken = self.change(id, |device, room| device.take_object(now, object, room));
            let taken = taken.expect("it is there");
            self.changed(now, id, taken.change.unwrap_or(Change::Nothing));
            effects.push((id.clone(), taken));
        }
        let gone: Vec<DeviceId> = self
            .devices
            .iter()
            .filter(|(id, device)| device.had_object() && !there.contains(*id) && !is_unread(id))
            .map(|(id, _)| id.clone())
            .collect();
        for id in gone {
            self.remove(now, id, &mut members);
        }
        (members, effects)
    }

    /// Adds a device unless it is there. Returns whether it is there now.
    pub(super) fn add(
        &mut self,
        now: Now,
        id: &DeviceId,
        description: &str,
        members: &mut Members,
    ) -> bool {
        if self.devices.contains_key(id) {
            return true;
        }
        if self.devices.len() >= NODE_DEVICES_MAX {
            members.is_full = true;
            return false;
        }
        self.devices.insert(id.clone(), Box::new(Device::new(description)));
        self.changed(now, id, Change::AtOnce);
        members.added.push(id.clone());
        true
    }

    /// Removes a device, if it is there.
    pub(super) fn remove(&mut self, now: Now, id: DeviceId, members: &mut Members) {
        let Some(device) = self.devices.remove(&id) else { return };
        self.twins -= device.count();
        self.unsent.remove(&id);
        self.unsaved.remove(&id);
        self.saving.remove(&id);
        self.removed.insert(id.clone());
        self.save_at = Some(now.boot);
        members.removed.push(id);
    }

    // ---- the store ----

    /// When the next save is due.
    pub(super) fn save_at(&self) -> Option<Instant> {
        self.save_at
    }

    /// Whether something has to be saved, due or not.
    pub(super) fn has_unsaved(&self) -> bool {
        !self.unsaved.is_empty() || !self.removed.is_empty()
    }

    /// Whether nothing has to be saved, and no save is under way.
    pub(super) fn is_saved(&self) -> bool {
        let all = [&self.unsaved, &self.saving, &self.removed, &self.removing];
        all.into_iter().all(BTreeSet::is_empty)
    }

    /// Starts to save all that is not saved.
    pub(super) fn begin_save(&mut self, now: Now) -> Vec<DeviceChange> {
        self.save_at = None;
        self.saved_at = Some(now.boot);
        self.removing = std::mem::take(&mut self.removed);
        let mut changes: Vec<DeviceChange> =
            self.removing.iter().cloned().map(DeviceChange::RemoveDevice).collect();
        self.saving = std::mem::take(&mut self.unsaved);
        for id in &self.saving {
            let device = self.devices.get_mut(id).expect("it is not removed");
            device.begin_save(id, self.is_linked, &mut changes);
        }
        changes
    }

    /// The save under way has ended.
    pub(super) fn end_save(&mut self, now: Now, is_saved: bool) {
        let removing = std::mem::take(&mut self.removing);
        for id in std::mem::take(&mut self.saving) {
            if let Some(device) = self.devices.get_mut(&id) {
                device.end_save(is_saved);
                self.unsent.insert(id.clone());
            }
            if !is_saved {
                self.unsaved.insert(id);
            }
        }
        if !is_saved {
            self.removed.extend(removing);
            self.save_at = Some(now.boot);
        }
    }

    // ---- the cloud ----

    /// The link is new: everything that is not confirmed may be sent, or is saved for that.
    pub(super) fn link_up(&mut self, now: Now) {
        self.is_linked = true;
        for (id, device) in &mut self.devices {
            device.link_up(now);
            self.unsent.insert(id.clone());
        }
        let blocked = self.devices.iter().filter(|(_, device)| device.is_blocked());
        let blocked: Vec<DeviceId> = blocked.map(|(id, _)| id.clone()).collect();
        for id in blocked {
            self.changed(now, &id, Change::AtOnce);
        }
    }

    /// The link is lost: it is saved that the cloud does not have what it has not confirmed.
    pub(super) fn link_down(&mut self, now: Now) {
        self.is_linked = false;
        let differ = self.devices.iter().filter(|(_, device)| device.needs_save(false));
        let differ: Vec<DeviceId> = differ.map(|(id, _)| id.clone()).collect();
        for id in differ {
            self.changed(now, &id, Change::Value);
        }
    }

    /// A report that is due now, and the device that it is about.
    pub(super) fn report(&mut self, now: Now) -> Option<(DeviceId, DeviceUpstream)> {
        let Self { unsent, devices, .. } = self;
        // Those about which there is nothing to say.
        unsent.retain(|id| devices[id].report_at().is_some());
        unsent.iter().find_map(|id| Some((id.clone(), devices[id].report(now, id)?)))
    }

    /// When the next report is due.
    pub(super) fn report_at(&self) -> Option<Instant> {
        self.unsent.iter().filter_map(|id| self.devices[id].report_at()).min()
    }

    /// That report was sent as the message of this id.
    pub(super) fn sent(&mut self, now: Now, id: &DeviceId, message: Box<str>) {
        if let Some(device) = self.devices.get_mut(id) {
            device.sent(now, message);
        }
    }

    /// The cloud has what the message of this id said.
    pub(super) fn confirmed(&mut self, now: Now, message: &str) {
        let found = self
            .devices
            .iter_mut()
            .find_map(|(id, device)| device.confirmed(message).then(|| id.clone()));
        let Some(id) = found else { return };
        self.unsent.insert(id.clone());
        if self.devices[&id].is_blocked() {
            self.changed(now, &id, Change::Soon);
        } else if self.devices[&id].needs_save(self.is_linked) {
            // The mark is removed with what is saved next, or some day.
            self.unsaved.insert(id);
            let some_day = Some(now.boot.plus_ms(TWIN_MARK_MS));
            self.save_at = sooner(self.save_at, some_day);
        }
    }
}
