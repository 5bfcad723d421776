//! All mappers: who is known, which devices each should have, and the calls that follow.
//!
//! A device goes to the mapper of its protocol that has it already, if that one is not lost; else
//! to the first of its protocol. KubeEdge gives all devices of a protocol to the mapper that
//! registered last.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::mapper::{Acknowledgements, Item, Mapper, Next, Wanted};
use crate::core::time::{Instant, Now};
use crate::core::work::WorkBook;
use crate::limits::MAPPERS_MAX;
use crate::model::device::{
    Acknowledged, DeviceChange, DeviceId, DeviceObject, Mapper as Registration, MapperCall,
    MapperCallId, MapperError, MapperMetrics, MapperOverview, ModelObject,
};

#[derive(Debug, Default)]
pub(super) struct Mappers {
    /// In the order of their registrations.
    all: Vec<Entry>,
    models: BTreeMap<DeviceId, Arc<ModelObject>>,
    /// Which device goes to whom has to be decided again.
    is_stale: bool,
    /// The calls under way, with the names of the mappers.
    calls: WorkBook<MapperCallId, Box<str>>,
    /// Registrations that are not stored yet.
    registrations: Vec<RegistrationChange>,
    unsaved: Acknowledgements,
    saving: Acknowledgements,
}

#[derive(Debug)]
struct Entry {
    mapper: Mapper,
    wanted: Wanted,
    /// There may be a call to be made.
    needs_look: bool,
    /// Calls that have ended, and of them those without success.
    calls: u64,
    failures: u64,
}

/// The mapper that a device goes to.
#[derive(Debug)]
pub(super) struct Assignment<'a> {
    mapper: &'a Mapper,
    /// The device's model is here, or it names none.
    has_model: bool,
}

/// A change of the registrations in the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::agent) enum RegistrationChange {
    Put(Registration),
    /// Of this name.
    Remove(Box<str>),
}

/// What is to be done with a mapper.
#[derive(Debug)]
pub(super) enum Request {
    Call(MapperCallId, Box<str>, MapperCall),
    /// Whether the socket accepts connections.
    Check(MapperCallId, Box<str>),
}

impl Mappers {
    /// Takes what the store has.
    pub(super) fn load(
        &mut self,
        now: Now,
        registrations: impl Iterator<Item = Registration>,
        acknowledged: Vec<Acknowledged>,
    ) {
        for registration in registrations.take(MAPPERS_MAX) {
            self.all.push(Entry::new(Mapper::new(now, registration)));
        }
        for Acknowledged { mapper, object, digest } in acknowledged {
            let entry = self.all.iter_mut().find(|it| it.mapper.registration.name == mapper);
            match (entry, Item::parse(&object)) {
                (Some(entry), Some(item)) => entry.mapper.load(item, digest),
                // Of a mapper that is not known any more.
                _ => drop(self.unsaved.insert((mapper, object), None)),
            }
        }
        self.is_stale = true;
    }

    /// The models have changed, or the devices' objects.
    pub(super) fn take_models(&mut self, models: impl Iterator<Item = Arc<ModelObject>>) {
        self.models = models.map(|model| (model.id.clone(), model)).collect();
        self.is_stale = true;
    }

    /// Decides which device goes to which mapper.
    fn assign<'a>(&mut self, devices: impl Iterator<Item = &'a Arc<DeviceObject>>) {
        let mut wanted: Vec<Wanted> = self.all.iter().map(|_| Wanted::default()).collect();
        for device in devices {
            let candidates = || {
                let all = self.all.iter().enumerate();
                all.filter(|(_, it)| it.mapper.registration.protocol == device.view.protocol)
            };
            let alive = || candidates().filter(|(_, it)| !it.mapper.is_lost());
            let chosen = alive()
                .find(|(_, it)| it.mapper.has(&device.id))
                .or_else(|| alive().next())
                .or_else(|| candidates().find(|(_, it)| it.mapper.has(&device.id)))
                .or_else(|| candidates().next());
            if let Some((at, _)) = chosen {
                let model = device.model().and_then(|id| self.models.get(&id).cloned());
                wanted[at].devices.push((device.clone(), model));
            }
        }
        for (entry, wanted) in self.all.iter_mut().zip(wanted) {
            entry.wanted = wanted;
            entry.needs_look = true;
        }
        self.is_stale = false;
    }

    /// A mapper registers. Returns what it should have, if it asks for it. Fails if there are too
    /// many mappers.
    pub(super) fn register<'a>(
        &mut self,
        now: Now,
        registration: Registration,
        with_data: bool,
        devices: impl Iterator<Item = &'a Arc<DeviceObject>>,
    ) -> Option<&Wanted> {
        // Another name on the same socket is the mapper that is there now.
        let is_same =
            |it: &Registration| it.name == registration.name || it.address == registration.address;
        let known = self.all.iter().position(|it| is_same(&it.mapper.registration));
        let known = match known {
            Some(at) if self.all[at].mapper.registration.name != registration.name => {
                self.remove(at);
                None
            }
            known => known,
        };
        if known.is_none() && self.all.len() >= MAPPERS_MAX {
            let unreachable =
                |(at, it): (usize, &Entry)| Some((it.mapper.unreachable_since()?, at));
            let (_, at) = self.all.iter().enumerate().filter_map(unreachable).min()?;
            self.remove(at);
        }
        let at = known.unwrap_or_else(|| {
            self.all.push(Entry::new(Mapper::new(now, registration.clone())));
            self.all.len() - 1
        });
        if known.is_none() || self.all[at].mapper.registration != registration {
            self.registrations.push(RegistrationChange::Put(registration.clone()));
        }
        // It is alive, and has the protocol that it says now.
        self.all[at].mapper.revive(now, registration.clone());
        self.assign(devices);
        let Entry { mapper, wanted, .. } = &mut self.all[at];
        let given = with_data.then_some(&*wanted);
        mapper.registered(now, registration, given, &mut self.unsaved);
        Some(wanted)
    }

    fn remove(&mut self, at: usize) {
        let Entry { mapper, .. } = self.all.remove(at);
        mapper.forget(&mut self.unsaved);
        self.registrations.push(RegistrationChange::Remove(mapper.registration.name));
    }

    /// Makes the calls that are due, one at a time for each mapper. Returns the devices of mappers
    /// that are lost from now on.
    pub(super) fn step<'a>(
        &mut self,
        now: Now,
        devices: impl Iterator<Item = &'a Arc<DeviceObject>>,
        requests: &mut Vec<Request>,
    ) -> Vec<DeviceId> {
        let mut lost = Vec::new();
        for Entry { mapper, .. } in &mut self.all {
            if mapper.becomes_lost(now) {
                lost.extend(mapper.devices().cloned());
                self.is_stale = true;
            }
        }
        if self.is_stale {
            self.assign(devices);
        }
        for Entry { mapper, wanted, needs_look, .. } in &mut self.all {
            let is_due = mapper.wake_at(wanted).is_some_and(|at| at <= now.boot);
            if !*needs_look && !is_due {
                continue;
            }
            *needs_look = false;
            let next = mapper.next(now, wanted, &mut self.unsaved, &self.saving);
            let Some(next) = next else { continue };
            let id = self.calls.begin(mapper.registration.name.clone());
            mapper.begin(id);
            let socket = mapper.registration.address.clone();
            requests.push(match next {
                Next::Call(call) => Request::Call(id, socket, call),
                Next::Check => Request::Check(id, socket),
            });
        }
        lost
    }

    /// The answer to a request. Returns the line for the log.
    pub(super) fn answered(
        &mut self,
        now: Now,
        id: MapperCallId,
        answer: Result<(), MapperError>,
    ) -> Option<String> {
        let name = self.calls.end(id).expect("each call is answered once");
        // The mapper may not be known any more.
        let mut all = self.all.iter_mut();
        let Entry { mapper, needs_look, calls, failures, .. } =
            all.find(|entry| entry.mapper.registration.name == name)?;
        let was_lost = mapper.is_lost();
        if mapper.is_calling(id) {
            *calls += 1;
            *failures += u64::from(answer.is_err());
        }
        let line = mapper.answered(now, id, answer, &mut self.unsaved);
        *needs_look = true;
        self.is_stale |= was_lost != mapper.is_lost();
        line.map(|line| format!("devices: mapper {name}: {line}"))
    }

    /// When the next call is due.
    pub(super) fn wake_at(&self) -> Option<Instant> {
        self.all.iter().filter_map(|entry| entry.mapper.wake_at(&entry.wanted)).min()
    }

    /// Something is to be decided at once.
    pub(super) fn needs_step(&self) -> bool {
        self.is_stale || self.all.iter().any(|entry| entry.needs_look)
    }

    // ---- what is shown ----

    /// The mapper of each device that goes to one.
    pub(super) fn assignments(&self) -> BTreeMap<&DeviceId, Assignment<'_>> {
        let mut all = BTreeMap::new();
        for Entry { mapper, wanted, .. } in &self.all {
            for (device, model) in &wanted.devices {
                let has_model = model.is_some() || device.model().is_none();
                all.insert(&device.id, Assignment { mapper, has_model });
            }
        }
        all
    }

    pub(super) fn model(&self, id: &DeviceId) -> Option<&ModelObject> {
        self.models.get(id).map(|model| &**model)
    }

    pub(super) fn overviews(&self, now: Now) -> Vec<MapperOverview> {
        let overview = |Entry { mapper, wanted, .. }: &Entry| MapperOverview {
            name: mapper.registration.name.to_string(),
            protocol: mapper.registration.protocol.to_string(),
            socket: mapper.registration.address.to_string(),
            unreachable_ms: mapper.unreachable_since().map(|since| now.boot.since_ms(since)),
            devices: wanted.devices.len(),
            trouble: mapper.trouble().unwrap_or_default().to_owned(),
        };
        self.all.iter().map(overview).collect()
    }

    pub(super) fn metrics(&self) -> Vec<MapperMetrics> {
        let of = |Entry { mapper, calls, failures, .. }: &Entry| MapperMetrics {
            name: mapper.registration.name.clone(),
            protocol: mapper.registration.protocol.clone(),
            is_up: mapper.unreachable_since().is_none(),
            calls: *calls,
            failures: *failures,
        };
        self.all.iter().map(of).collect()
    }

    // ---- the store ----

    /// The registrations that are not stored yet.
    pub(super) fn registrations(&mut self) -> &mut Vec<RegistrationChange> {
        &mut self.registrations
    }

    /// Whether nothing has to be saved, and no save is under way.
    pub(super) fn is_saved(&self) -> bool {
        self.registrations.is_empty() && self.unsaved.is_empty() && self.saving.is_empty()
    }

    pub(super) fn has_unsaved(&self) -> bool {
        !self.unsaved.is_empty()
    }

    pub(super) fn begin_save(&mut self, changes: &mut Vec<DeviceChange>) {
        self.saving = std::mem::take(&mut self.unsaved);
        for ((mapper, object), digest) in self.saving.clone() {
            changes.push(match digest {
                Some(digest) => {
                    DeviceChange::PutAcknowledged(Acknowledged { mapper, object, digest })
                }
                None => DeviceChange::RemoveAcknowledged(mapper, object),
            });
        }
    }

    pub(super) fn end_save(&mut self, is_saved: bool) {
        for entry in &mut self.all {
            entry.needs_look |= !self.saving.is_empty();
        }
        for (row, digest) in std::mem::take(&mut self.saving) {
            if !is_saved {
                // What came later counts.
                self.unsaved.entry(row).or_insert(digest);
            }
        }
    }
}

impl Entry {
    fn new(mapper: Mapper) -> Self {
        Self { mapper, wanted: Wanted::default(), needs_look: true, calls: 0, failures: 0 }
    }
}

impl<'a> Assignment<'a> {
    pub(super) fn mapper_name(&self) -> &'a str {
        &self.mapper.registration.name
    }

    /// Why the mapper does not have the device as the cloud wants it; empty: it has.
    pub(super) fn trouble(&self, object: &DeviceObject) -> String {
        let model = object.model();
        match (&model, self.mapper.refusal(&object.id, model.as_ref())) {
            (Some(model), _) if !self.has_model => format!("the model {model} is not here"),
            (_, Some(why)) => why.to_owned(),
            (_, None) if self.mapper.unreachable_since().is_some() => {
                let why = self.mapper.trouble().unwrap_or_default();
                format!("its mapper cannot be reached: {why}")
            }
            (_, None) => String::new(),
        }
    }
}
