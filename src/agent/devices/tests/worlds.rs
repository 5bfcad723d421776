//! Many small worlds with faults, drawn from a seed: reports, changes in the cloud, lost messages,
//! failed saves, power cuts, and a mapper that comes and goes.

use std::collections::BTreeMap;

use super::*;
use crate::model::device::{Acknowledged, DeviceRow};

const SEEDS: u64 = 100;
const STEPS: u32 = 300;

#[derive(Clone, Default)]
struct Disk {
    devices: BTreeMap<DeviceId, DeviceRow>,
    twins: BTreeMap<(DeviceId, Box<str>), TwinRow>,
    acknowledged: BTreeMap<(Box<str>, Box<str>), u64>,
    mappers: BTreeMap<Box<str>, Mapper>,
}

impl Disk {
    fn write(&mut self, change: DeviceChange) {
        match change {
            DeviceChange::PutDevice(row) => drop(self.devices.insert(row.id.clone(), row)),
            DeviceChange::RemoveDevice(id) => {
                self.devices.remove(&id);
                self.twins.retain(|(device, _), _| *device != id);
            }
            DeviceChange::PutTwin(row) => {
                self.twins.insert((row.device.clone(), row.property.clone()), *row);
            }
            DeviceChange::PutAcknowledged(Acknowledged { mapper, object, digest }) => {
                self.acknowledged.insert((mapper, object), digest);
            }
            DeviceChange::RemoveAcknowledged(mapper, object) => {
                self.acknowledged.remove(&(mapper, object));
            }
        }
    }

    fn stored(&self) -> StoredDevices {
        let acknowledged = self.acknowledged.iter().map(|((mapper, object), digest)| {
            Acknowledged { mapper: mapper.clone(), object: object.clone(), digest: *digest }
        });
        StoredDevices {
            devices: self.devices.values().cloned().collect(),
            twins: self.twins.values().cloned().collect(),
            acknowledged: acknowledged.collect(),
        }
    }
}

/// A core, and all around it.
struct Faulty {
    world: World,
    chance: Rng,
    disk: Disk,
    is_up: bool,
    /// What the cloud has of each actual side: the version and the value.
    cloud: BTreeMap<DeviceId, (i64, String)>,
    /// Reports on their way.
    reports: Vec<(Box<str>, DeviceUpstream)>,
    /// What the mapper has; `None`: it is away.
    mapper: Option<BTreeMap<String, String>>,
    calls: Vec<(MapperCallId, Option<MapperCall>)>,
    values: u32,
    versions: u32,
    has_faults: bool,
}

impl Faulty {
    fn new(seed: u64) -> Self {
        let mut faulty = Self {
            world: World::new(),
            chance: Rng::new(seed),
            disk: Disk::default(),
            is_up: false,
            cloud: BTreeMap::new(),
            reports: Vec::new(),
            mapper: None,
            calls: Vec::new(),
            values: 0,
            versions: 1,
            has_faults: true,
        };
        faulty.world.saves = false;
        faulty.world.model("INT");
        faulty
    }

    fn percent(&mut self, percent: u64) -> bool {
        self.has_faults && self.chance.below(100) < percent
    }

    fn some_device(&mut self) -> DeviceId {
        DeviceId::new("default", &format!("dev{}", self.chance.below(3)))
    }

    fn take(&mut self, actions: Vec<DeviceAction>) {
        for action in actions {
            match action {
                DeviceAction::Call { id, call, .. } => self.calls.push((id, Some(call))),
                DeviceAction::CheckSocket { id, .. } => self.calls.push((id, None)),
                DeviceAction::Publish(_) | DeviceAction::Answer(..) => {}
            }
        }
    }

    fn expected(&self, id: &DeviceId) -> Option<String> {
        let twins = self.world.devices.table.get(id)?.twins();
        Some(twins.get("temp")?.expected.as_ref()?.text().to_owned())
    }

    /// Somebody does something.
    fn act(&mut self) {
        let id = self.some_device();
        self.versions += 1;
        match self.chance.below(8) {
            0 => {
                let desired = self.chance.below(5).to_string();
                let actions = self.world.device(id.name(), &desired, self.versions);
                self.take(actions);
            }
            1 => {
                // An echo: only the version is another one.
                let there = self.world.objects.iter().find(|object| object.id == id).cloned();
                let Some(there) = there else { return };
                let before = self.expected(&id);
                let desired = there.view.desired["temp"].to_string();
                let actions = self.world.device(id.name(), &desired, self.versions);
                self.take(actions);
                assert_eq!(self.expected(&id), before, "[echo] it has undone what was expected");
            }
            2 if self.percent(30) => {
                self.world.objects.retain(|object| object.id != id);
                let actions = self.world.take_objects();
                self.take(actions);
            }
            3 => self.register(),
            other => {
                self.values += 1;
                let value = Some(self.values.to_string().into());
                let (expected, actual) = if other == 4 { (value, None) } else { (None, value) };
                let type_name = Box::default();
                let update = PropertyUpdate::Set { expected, actual, optional: None, type_name };
                let content = ClientContent::TwinUpdate(id, vec![("temp".into(), update)]);
                let request = ClientRequest { event_id: "u".into(), content };
                self.world.devices.handle(
                    self.world.now,
                    DeviceEvent::Request(request),
                    &mut self.world.rng,
                );
            }
        }
    }

    /// The mapper starts anew, or ends.
    fn register(&mut self) {
        if self.percent(40) {
            self.mapper = None;
            return;
        }
        let (answer, actions) = self.world.register("m1", true);
        self.take(actions);
        let ManagerAnswer::Registered { devices, .. } = answer else { panic!("{answer:?}") };
        let devices = devices.into_iter().map(|(text, _)| {
            let object = DeviceObject::read(&text).expect("a device");
            (object.id.name().to_owned(), text.to_string())
        });
        self.mapper = Some(devices.collect());
        let registrations = std::mem::take(self.world.devices.registrations());
        for change in registrations {
            match change {
                RegistrationChange::Put(mapper) => {
                    self.disk.mappers.insert(mapper.name.clone(), mapper);
                }
                RegistrationChange::Remove(name) => drop(self.disk.mappers.remove(&name)),
            }
        }
    }

    /// The mapper answers its calls, or does not.
    fn answer_calls(&mut self) {
        for (id, call) in std::mem::take(&mut self.calls) {
            let is_lost = self.percent(20);
            let answer = match &mut self.mapper {
                None => Err(MapperError::Unreachable("nobody listens".into())),
                Some(has) => call.map_or(Ok(()), |call| mapper_does(has, call)),
            };
            let answer = if is_lost { Err(MapperError::Deadline) } else { answer };
            self.world.devices.handle(
                self.world.now,
                DeviceEvent::Answered(id, answer),
                &mut self.world.rng,
            );
        }
    }

    /// A save that is due succeeds or fails, or the power fails with it.
    fn save(&mut self) {
        let now = self.world.now;
        let world = &mut self.world;
        if world.devices.save_at(now).is_none_or(|at| at > now.boot) {
            return;
        }
        let changes = world.devices.begin_save(now);
        let is_saved = !self.percent(20);
        if is_saved {
            for change in changes {
                self.disk.write(change);
            }
        }
        if self.percent(10) {
            self.restart();
        } else {
            self.world.devices.end_save(self.world.now, is_saved);
        }
    }

    /// Power fails: the next process has what is on the disk.
    fn restart(&mut self) {
        let mut devices = Devices::new("edge1", true, self.world.now);
        let mappers: Vec<Mapper> = self.disk.mappers.values().cloned().collect();
        devices.load(self.world.now, self.disk.stored(), mappers.into_iter());
        self.world.devices = devices;
        (self.is_up, self.calls) = (false, Vec::new());
        self.reports.clear();
        let actions = self.world.take_objects();
        self.take(actions);
    }

    /// Reports go up, and confirmations come down.
    fn talk(&mut self) {
        if !self.is_up && !self.percent(80) {
            self.is_up = true;
            self.reports.clear();
            self.world.devices.link_up();
        }
        if self.percent(5) {
            self.is_up = false;
        }
        while self.is_up {
            let Some((id, report)) = self.world.report() else { break };
            self.reports.push((id, report));
        }
        for (message, report) in std::mem::take(&mut self.reports) {
            if self.percent(20) {
                continue;
            }
            self.received(&report);
            if !self.percent(20) {
                self.world.confirm(&message);
            }
        }
    }

    /// The cloud receives a report: the node's disk has it, and it is not older than the last one.
    fn received(&mut self, report: &DeviceUpstream) {
        let DeviceUpstream::Twins(id, twins) = report else { return };
        let Some(actual) = twins.get("temp").and_then(|twin| twin.actual.as_ref()) else { return };
        let (version, value) = (actual.version.edge, actual.text().to_owned());
        let row =
            self.disk.twins.get(&(id.clone(), "temp".into())).expect("[durable] it is stored");
        let stored = row.twin.actual.as_ref().expect("[durable] it is stored");
        assert_eq!((stored.version.edge, stored.text()), (version, &*value), "[durable] {id}");
        let before = self.cloud.insert(id.clone(), (version, value));
        let is_old = before.is_some_and(|(before, _)| before > version);
        assert!(!is_old, "[order] {id}: an older value");
    }

    fn turn(&mut self) {
        self.answer_calls();
        let mut out = Out::default();
        self.world.devices.step(self.world.now, &mut self.world.rng, &mut out);
        let actions = out.actions.into_iter().filter_map(|action| match action {
            Action::Device(action) => Some(*action),
            _ => None,
        });
        let actions: Vec<_> = actions.collect();
        self.take(actions);
        self.save();
        self.talk();
        // A device that comes back begins with new versions.
        let devices = &self.world.devices;
        self.cloud.retain(|id, _| devices.table.get(id).is_some());
    }
}

/// As mapper-framework does.
fn mapper_does(has: &mut BTreeMap<String, String>, call: MapperCall) -> Result<(), MapperError> {
    let name = |text: &str| DeviceObject::read(text).expect("a device").id.name().to_owned();
    match call {
        MapperCall::RegisterDevice(text, _) => {
            has.entry(name(&text)).or_insert_with(|| text.to_string());
        }
        MapperCall::UpdateDevice(text, _) => drop(has.insert(name(&text), text.to_string())),
        MapperCall::RemoveDevice(id) if has.remove(id.name()).is_none() => {
            let why = format!("can not find device {id} from device muxs");
            return Err(MapperError::Refused(2, why.into()));
        }
        MapperCall::RemoveDevice(_)
        | MapperCall::CreateModel(_)
        | MapperCall::UpdateModel(_)
        | MapperCall::RemoveModel(_) => {}
    }
    Ok(())
}

fn play(seed: u64) {
    let mut faulty = Faulty::new(seed);
    for _ in 0..STEPS {
        if faulty.chance.below(3) == 0 {
            faulty.act();
        }
        let ms = [0, 1, 300, 2_000, 15_000][faulty.chance.below(5) as usize];
        faulty.world.pass(ms);
        faulty.turn();
    }
    // Now all is well.
    faulty.has_faults = false;
    if faulty.mapper.is_none() && !faulty.disk.mappers.is_empty() {
        faulty.register();
    }
    for _ in 0..300 {
        faulty.world.pass(5_000);
        faulty.turn();
    }
    let Faulty { world, cloud, mapper, disk, .. } = &faulty;
    for (id, device) in world.devices.table.iter() {
        let twins = device.twins();
        let actual = twins.get("temp").and_then(|twin| twin.actual.as_ref());
        if let Some(actual) = actual {
            let got = cloud.get(id).map(|(_, value)| &**value);
            assert_eq!(got, Some(actual.text()), "[arrives] seed {seed}: {id}");
        }
        if let Some(row) = disk.twins.get(&(id.clone(), "temp".into())) {
            assert_eq!(Some(&row.twin), twins.get("temp"), "[saved] seed {seed}: {id}");
            assert!(!row.is_unsent, "[saved] seed {seed}: {id} is confirmed");
        }
    }
    assert_eq!(disk.devices.len(), world.objects.len(), "[removed] seed {seed}");
    if let Some(mapper) = mapper {
        let specs = |text: &str| DeviceObject::read(text).expect("a device").view.spec;
        let got: BTreeMap<&str, u64> =
            mapper.iter().map(|(name, text)| (&**name, specs(text))).collect();
        let want = world.objects.iter().map(|object| (object.id.name(), object.view.spec));
        assert_eq!(got, want.collect(), "[mapper] seed {seed}");
    }
}

#[test]
fn in_many_worlds_the_last_value_arrives_and_the_cloud_has_nothing_newer_than_the_disk() {
    for seed in 0..SEEDS {
        play(seed);
    }
}
