//! One mapper: what it has acknowledged, and the next call to it.
//!
//! ```text
//!  wanted, acknowledged ─▶ next ─▶ call ─▶ answer ─▶ acknowledged
//!                           ▲                 │ refused: again after a while, others go on
//!                           └─ wait ◀─────────┘ not reached: all wait
//! ```
//!
//! Intended behaviour: nothing is queued. What is missing is computed from what the mapper should
//! have and what it has acknowledged, one call after another: removed devices, models, devices,
//! removed models. A device is called for only when the mapper has its model. Before the first call
//! about an object it is stored that the mapper may have it, with any content; from then on only
//! an answer says more.
//!
//! If we crash here: what was acknowledged is stored. An object whose call got no answer is stored
//! as in doubt: it is given again, or removed if nobody wants it any more.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::core::time::{Backoff, Instant, Now};
use crate::limits::{
    MAPPER_CHECK_MS, MAPPER_LOST_MS, MAPPER_REFUSED_MAX_MS, MAPPER_REFUSED_MIN_MS,
    MAPPER_REMOVALS_MAX, MAPPER_RETRY_MAX_MS, MAPPER_RETRY_MIN_MS,
};
use crate::model::device::{
    DeviceId, DeviceObject, Mapper as Registration, MapperCall, MapperCallId, MapperError,
    ModelObject,
};

/// The digest of an object that the mapper may have, with any content.
const IN_DOUBT: u64 = 0;

/// What is to be saved of acknowledgements: digests by mapper and object; `None`: the mapper does
/// not have the object any more.
pub(super) type Acknowledgements = BTreeMap<(Box<str>, Box<str>), Option<u64>>;

/// The objects that a mapper should have.
#[derive(Debug, Default)]
pub(super) struct Wanted {
    /// Each with its model; `None`: it names none, or the model is not here.
    pub devices: Vec<(Arc<DeviceObject>, Option<Arc<ModelObject>>)>,
}

#[derive(Debug)]
pub(super) struct Mapper {
    pub registration: Registration,
    /// Digests by object.
    acknowledged: BTreeMap<Item, u64>,
    /// What is known of objects in doubt; nothing of those from before this process.
    in_doubt: BTreeMap<Item, Doubt>,
    under_way: Option<Work>,
    /// Before the next call it is saved that its object is in doubt.
    waits_for_save: bool,
    /// The id of the last call.
    call: MapperCallId,
    backoff: Backoff,
    retry_at: Option<Instant>,
    refused: BTreeMap<Item, Refusal>,
    /// Since when nobody listens on its socket.
    unreachable_since: Option<Instant>,
    is_lost: bool,
    /// The last time that it was reached.
    reached_at: Instant,
    /// The last error, for the log: it is logged when it changes.
    trouble: Option<Box<str>>,
}

/// An object of a mapper. Models come first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Item {
    Model(DeviceId),
    Device(DeviceId),
}

impl Item {
    /// As it is stored.
    fn text(&self) -> Box<str> {
        match self {
            Self::Model(id) => format!("devicemodel/{id}").into(),
            Self::Device(id) => format!("device/{id}").into(),
        }
    }

    pub(super) fn parse(text: &str) -> Option<Self> {
        match text.split_once('/')? {
            ("devicemodel", id) => Some(Self::Model(DeviceId::of(id))),
            ("device", id) => Some(Self::Device(DeviceId::of(id))),
            _ => None,
        }
    }
}

/// What is known of an object in doubt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Doubt {
    /// No call about it was made.
    Absent,
    /// It has nothing else than this.
    Tried(u64),
    /// It has some content.
    Present,
}

/// The call under way.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Work {
    /// Afterwards it has this; `None`: it does not have the object any more.
    Item(Item, Option<u64>),
    /// Only whether its socket accepts connections.
    Check,
}

#[derive(Debug)]
struct Refusal {
    /// What it was about.
    digest: Option<u64>,
    count: u32,
    backoff: Backoff,
    retry_at: Instant,
    why: Box<str>,
}

/// What is to be done with a mapper next.
#[derive(Debug)]
pub(super) enum Next {
    Call(MapperCall),
    Check,
}

impl Mapper {
    pub(super) fn new(now: Now, registration: Registration) -> Self {
        Self {
            registration,
            acknowledged: BTreeMap::new(),
            in_doubt: BTreeMap::new(),
            under_way: None,
            waits_for_save: false,
            call: MapperCallId(0),
            backoff: Backoff::default(),
            retry_at: None,
            refused: BTreeMap::new(),
            unreachable_since: None,
            is_lost: false,
            reached_at: now.boot,
            trouble: None,
        }
    }

    /// What the store has acknowledged.
    pub(super) fn load(&mut self, item: Item, digest: u64) {
        self.acknowledged.insert(item, digest);
    }

    /// It is about to register: it is not lost.
    pub(super) fn revive(&mut self, now: Now, registration: Registration) {
        self.registration = registration;
        self.reached(now);
    }

    /// It has registered, and got this by the answer; `None`: it has nothing yet.
    pub(super) fn registered(
        &mut self,
        now: Now,
        registration: Registration,
        given: Option<&Wanted>,
        changes: &mut Acknowledgements,
    ) {
        let before = std::mem::take(&mut self.acknowledged);
        // The answer to a call to the process before says nothing about this one.
        *self = Self::new(now, registration);
        if let Some(wanted) = given {
            self.acknowledged = wanted.items().collect();
        }
        for item in before.keys().filter(|item| !self.acknowledged.contains_key(*item)) {
            changes.insert(self.row(item), None);
        }
        for (item, digest) in &self.acknowledged {
            if before.get(item) != Some(digest) {
                changes.insert(self.row(item), Some(*digest));
            }
        }
    }

    /// The key of what is stored of it.
    fn row(&self, item: &Item) -> (Box<str>, Box<str>) {
        (self.registration.name.clone(), item.text())
    }

    /// It is not known any more: removes all that is stored of it.
    pub(super) fn forget(&self, changes: &mut Acknowledgements) {
        changes.extend(self.acknowledged.keys().map(|item| (self.row(item), None)));
    }

    /// It has this device, as far as it has said.
    pub(super) fn has(&self, device: &DeviceId) -> bool {
        self.acknowledged.contains_key(&Item::Device(device.clone()))
    }

    /// The devices that it has.
    pub(super) fn devices(&self) -> impl Iterator<Item = &DeviceId> {
        self.acknowledged.keys().filter_map(|item| match item {
            Item::Device(id) => Some(id),
            Item::Model(_) => None,
        })
    }

    /// Nobody has listened on its socket for a while.
    pub(super) fn is_lost(&self) -> bool {
        self.is_lost
    }

    pub(super) fn unreachable_since(&self) -> Option<Instant> {
        self.unreachable_since
    }

    /// The last error; `None`: none since the last success.
    pub(super) fn trouble(&self) -> Option<&str> {
        self.trouble.as_deref()
    }

    /// Why it does not have this device, or its model, as it should.
    pub(super) fn refusal(&self, device: &DeviceId, model: Option<&DeviceId>) -> Option<&str> {
        let of = |item: Item| self.refused.get(&item).map(|refusal| &*refusal.why);
        of(Item::Device(device.clone())).or_else(|| of(Item::Model(model?.clone())))
    }

    /// Whether it is lost since this moment.
    pub(super) fn becomes_lost(&mut self, now: Now) -> bool {
        let lost_at = self.unreachable_since.map(|since| since.plus_ms(MAPPER_LOST_MS));
        let becomes = !self.is_lost && lost_at.is_some_and(|at| at <= now.boot);
        self.is_lost |= becomes;
        becomes
    }

    /// The next call, which begins: see [`Mapper::begin`]. `changes` are not saved yet, `saving`
    /// are being saved.
    pub(super) fn next(
        &mut self,
        now: Now,
        wanted: &Wanted,
        changes: &mut Acknowledgements,
        saving: &Acknowledgements,
    ) -> Option<Next> {
        let waits = self.retry_at.is_some_and(|at| at > now.boot);
        if self.under_way.is_some() || waits {
            return None;
        }
        self.retry_at = None;
        self.waits_for_save = false;
        self.drop_untried(wanted, changes);
        let (work, next) = match self.next_call(now, wanted) {
            Some((item, digest, call)) => {
                self.doubt(&item, changes);
                let row = self.row(&item);
                if changes.contains_key(&row) || saving.contains_key(&row) {
                    self.waits_for_save = true;
                    return None;
                }
                (Work::Item(item, digest), Next::Call(call))
            }
            None if self.check_at(wanted)? <= now.boot => (Work::Check, Next::Check),
            None => return None,
        };
        self.under_way = Some(work);
        Some(next)
    }

    /// Whether the call of this id is under way; checks of the socket are no calls.
    pub(super) fn is_calling(&self, id: MapperCallId) -> bool {
        self.call == id && matches!(self.under_way, Some(Work::Item(..)))
    }

    /// The call that has just begun has this id.
    pub(super) fn begin(&mut self, call: MapperCallId) {
        self.call = call;
    }

    /// From now on it may have another content of this object, or none.
    fn doubt(&mut self, item: &Item, changes: &mut Acknowledgements) {
        let before = self.acknowledged.insert(item.clone(), IN_DOUBT);
        if before != Some(IN_DOUBT) {
            let doubt = if before.is_some() { Doubt::Present } else { Doubt::Absent };
            self.in_doubt.insert(item.clone(), doubt);
            changes.insert(self.row(item), Some(IN_DOUBT));
        }
    }

    /// What it was not called about, and is not wanted any more, it does not have.
    fn drop_untried(&mut self, wanted: &Wanted, changes: &mut Acknowledgements) {
        let untried = self.in_doubt.iter().filter(|(_, doubt)| **doubt == Doubt::Absent);
        let unwanted = untried.filter(|(item, _)| !wanted.names(item));
        let unwanted: Vec<Item> = unwanted.map(|(item, _)| item.clone()).collect();
        for item in unwanted {
            self.acknowledge(item, None, changes);
        }
    }

    fn next_call(&mut self, now: Now, wanted: &Wanted) -> Option<(Item, Option<u64>, MapperCall)> {
        let items: BTreeMap<Item, u64> = wanted.items().collect();
        let keeps = |item: &Item| items.contains_key(item) || wanted.names(item);
        let acknowledged = &self.acknowledged;
        self.refused.retain(|item, refusal| match refusal.digest {
            Some(digest) => items.get(item) == Some(&digest),
            None => acknowledged.contains_key(item) && !keeps(item),
        });
        let mut gone = self.acknowledged.keys().filter(|item| !keeps(item));
        // Models come first in the order of items, and leave last.
        let (mut models, mut devices) = (None, None);
        for item in gone.by_ref().filter(|item| self.may_call(now, item, None)) {
            match item {
                Item::Model(id) if models.is_none() => {
                    models = Some((item.clone(), None, MapperCall::RemoveModel(id.clone())));
                }
                Item::Device(id) if devices.is_none() => {
                    devices = Some((item.clone(), None, MapperCall::RemoveDevice(id.clone())));
                }
                Item::Model(_) | Item::Device(_) => {}
            }
        }
        let has = |item: &Item, digest: &u64| self.acknowledged.get(item) == Some(digest);
        // A mapper refuses a device whose model it does not have.
        let has_model = |item: &Item| match item {
            Item::Device(id) => {
                let model = wanted.device(id).1.as_ref();
                model.is_none_or(|it| has(&Item::Model(it.id.clone()), &it.spec))
            }
            Item::Model(_) => true,
        };
        let differs = |(item, digest): &(&Item, &u64)| {
            !has(item, digest) && has_model(item) && self.may_call(now, item, Some(**digest))
        };
        let missing = || {
            let (item, digest) = items.iter().find(differs)?;
            Some((item.clone(), Some(*digest), self.call(wanted, item, *digest)))
        };
        devices.or_else(missing).or(models)
    }

    /// The call that gives it this object. A mapper ignores the content of a registration of a
    /// device that it has, and makes one that is updated; it refuses to update a model that it does
    /// not have, and replaces one that is made.
    fn call(&self, wanted: &Wanted, item: &Item, digest: u64) -> MapperCall {
        let doubt = match self.acknowledged.get(item) {
            None => Some(Doubt::Absent),
            Some(&IN_DOUBT) => self.in_doubt.get(item).copied(),
            Some(_) => Some(Doubt::Present),
        };
        match item {
            Item::Model(id) => {
                let text = wanted.model(id).text.clone();
                if doubt == Some(Doubt::Present) {
                    MapperCall::UpdateModel(text)
                } else {
                    MapperCall::CreateModel(text)
                }
            }
            Item::Device(id) => {
                let (device, model) = wanted.device(id);
                let model = model.as_ref().map(|model| model.text.clone());
                let is_new = match doubt {
                    Some(Doubt::Absent) => true,
                    Some(Doubt::Tried(tried)) => tried == digest,
                    Some(Doubt::Present) | None => false,
                };
                if is_new {
                    MapperCall::RegisterDevice(device.text.clone(), model)
                } else {
                    MapperCall::UpdateDevice(device.text.clone(), model)
                }
            }
        }
    }

    fn may_call(&self, now: Now, item: &Item, digest: Option<u64>) -> bool {
        let refusal = self.refused.get(item).filter(|refusal| refusal.digest == digest);
        refusal.is_none_or(|refusal| refusal.retry_at <= now.boot)
    }

    /// When its socket is to be checked, if nothing is called before.
    fn check_at(&self, wanted: &Wanted) -> Option<Instant> {
        (!wanted.devices.is_empty()).then(|| self.reached_at.plus_ms(MAPPER_CHECK_MS))
    }

    /// The answer to the call of this id, which may be of the process before. Returns the line for
    /// the log.
    pub(super) fn answered(
        &mut self,
        now: Now,
        id: MapperCallId,
        answer: Result<(), MapperError>,
        changes: &mut Acknowledgements,
    ) -> Option<String> {
        if self.call != id {
            return None;
        }
        let work = self.under_way.take()?;
        let why = match answer {
            Ok(()) => {
                self.reached(now);
                if let Work::Item(item, digest) = work {
                    self.acknowledge(item, digest, changes);
                }
                return self.trouble.take().map(|_| "it answers again".to_owned());
            }
            Err(MapperError::Unreachable(why)) => {
                self.unreachable_since.get_or_insert(now.boot);
                self.wait(now, work);
                why
            }
            Err(MapperError::Deadline) => {
                self.wait(now, work);
                "no answer by the deadline".into()
            }
            Err(MapperError::Refused(code, why)) => {
                self.reached(now);
                let why: Box<str> = format!("it refuses: {why} (gRPC status {code})").into();
                self.refuse(now, work, &why, changes);
                why
            }
            Err(MapperError::Unwritable(why)) => {
                self.refuse(now, work, &why, changes);
                why
            }
        };
        let is_new = self.trouble.as_ref() != Some(&why);
        self.trouble = Some(why.clone());
        is_new.then(|| why.into())
    }

    fn reached(&mut self, now: Now) {
        self.reached_at = now.boot;
        self.unreachable_since = None;
        self.is_lost = false;
        self.backoff = Backoff::default();
        self.retry_at = None;
    }

    fn wait(&mut self, now: Now, work: Work) {
        if let Work::Item(item, digest) = work {
            self.tried(&item, digest);
        }
        let bounds = (MAPPER_RETRY_MIN_MS, MAPPER_RETRY_MAX_MS);
        self.retry_at = Some(self.backoff.retry_at(now.boot, bounds.0, bounds.1));
    }

    /// The call about this object got no answer; `None`: it was to be removed.
    fn tried(&mut self, item: &Item, digest: Option<u64>) {
        match (self.in_doubt.get(item).copied(), digest) {
            (Some(Doubt::Absent), Some(digest)) => {
                self.in_doubt.insert(item.clone(), Doubt::Tried(digest));
            }
            (Some(Doubt::Tried(before)), Some(digest)) if before == digest => {}
            (Some(Doubt::Present), Some(_)) => {}
            (_, _) => drop(self.in_doubt.remove(item)),
        }
    }

    fn acknowledge(&mut self, item: Item, digest: Option<u64>, changes: &mut Acknowledgements) {
        self.refused.remove(&item);
        self.in_doubt.remove(&item);
        changes.insert(self.row(&item), digest);
        match digest {
            Some(digest) => drop(self.acknowledged.insert(item, digest)),
            None => drop(self.acknowledged.remove(&item)),
        }
    }

    fn refuse(&mut self, now: Now, work: Work, why: &str, changes: &mut Acknowledgements) {
        let Work::Item(item, digest) = work else { return };
        if matches!(item, Item::Model(_)) {
            // It may have none.
            self.in_doubt.remove(&item);
        }
        let before = self.refused.remove(&item).filter(|before| before.digest == digest);
        let (before, mut backoff) =
            before.map_or((0, Backoff::default()), |it| (it.count, it.backoff));
        let count = before + 1;
        if digest.is_none() && count >= MAPPER_REMOVALS_MAX {
            self.acknowledge(item, None, changes);
            return;
        }
        let retry_at = backoff.retry_at(now.boot, MAPPER_REFUSED_MIN_MS, MAPPER_REFUSED_MAX_MS);
        let why = why.into();
        self.refused.insert(item, Refusal { digest, count, backoff, retry_at, why });
    }

    /// When something may be due.
    pub(super) fn wake_at(&self, wanted: &Wanted) -> Option<Instant> {
        let lost_at = self.unreachable_since.filter(|_| !self.is_lost);
        let lost_at = lost_at.map(|since| since.plus_ms(MAPPER_LOST_MS));
        if self.under_way.is_some() || self.waits_for_save {
            return lost_at;
        }
        let again_at = self.refused.values().map(|refusal| refusal.retry_at);
        let due_at = again_at.chain(self.check_at(wanted)).min();
        lost_at.into_iter().chain(self.retry_at.or(due_at)).min()
    }
}

impl Wanted {
    /// A device whose model is not here is left out: a mapper cannot use it.
    pub(super) fn usable(
        &self,
    ) -> impl Iterator<Item = &(Arc<DeviceObject>, Option<Arc<ModelObject>>)> {
        self.devices.iter().filter(|(device, model)| model.is_some() || device.model().is_none())
    }

    /// What the mapper should have now, with the digests.
    fn items(&self) -> impl Iterator<Item = (Item, u64)> {
        self.usable().flat_map(|(device, model)| {
            let of_model = model.as_ref().map_or(0, |model| model.spec);
            let digest = device.view.spec ^ of_model.rotate_left(1);
            let model = model.as_ref().map(|it| (Item::Model(it.id.clone()), it.spec));
            model.into_iter().chain([(Item::Device(device.id.clone()), digest)])
        })
    }

    /// Whether a device is wanted, or names this model.
    fn names(&self, item: &Item) -> bool {
        match item {
            Item::Device(id) => self.devices.iter().any(|(device, _)| device.id == *id),
            Item::Model(id) => {
                self.devices.iter().any(|(device, _)| device.model().as_ref() == Some(id))
            }
        }
    }

    fn device(&self, id: &DeviceId) -> &(Arc<DeviceObject>, Option<Arc<ModelObject>>) {
        self.devices.iter().find(|(device, _)| device.id == *id).expect("it is wanted")
    }

    fn model(&self, id: &DeviceId) -> &Arc<ModelObject> {
        let mut models = self.devices.iter().filter_map(|(_, model)| model.as_ref());
        models.find(|model| model.id == *id).expect("a device has it")
    }
}
