//! Mappers, as those of mapper-framework behave (section 12.4): they register once in their life,
//! serve calls a while later, ignore the registration of a device that they have, and refuse to
//! remove one that they do not have.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use edged::limits::MAPPER_CALL_MS;
use edged::model::device::{
    DeviceId, ManagerCallId, Mapper as Registration, MapperCall, MapperCallId, MapperError,
    ObjectText,
};
use serde_json::Value;

use super::{DeviceDue, DeviceSim, Truth};
use crate::rule::judge;
use crate::trace::trace;

/// Calls to one mapper within a minute: each device and model a few times.
const CALLS_A_MINUTE_MAX: u32 = 120;

/// A mapper.
#[derive(Default)]
pub struct Mapper {
    pub name: Box<str>,
    pub protocol: Box<str>,
    /// The number of its process; 0: none ran yet.
    pub process: u32,
    pub state: State,
    /// The process is stopped until then.
    pub hangs_until: u64,
    pub devices: BTreeMap<DeviceId, Value>,
    pub models: BTreeMap<DeviceId, Value>,
    /// Calls that the process has not taken up, the oldest first.
    queue: VecDeque<u64>,
    /// Devices whose removal was answered with success in this life of the agent.
    removed: BTreeSet<DeviceId>,
    /// Since when the agent is answered that nobody listens.
    pub unreachable_since: Option<u64>,
    minute: (u64, u32),
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum State {
    #[default]
    Dead,
    /// It waits for the answer to its registration.
    Registers(ManagerCallId),
    /// It has registered, and does not listen yet.
    Registered,
    Listens,
}

/// A call of the agent to a mapper.
pub struct Call {
    id: MapperCallId,
    life: u32,
    mapper: usize,
    process: u32,
    request: MapperCall,
    answer: Option<Result<(), MapperError>>,
    is_over: bool,
}

impl Mapper {
    pub fn new(name: &str, protocol: &str) -> Self {
        Self { name: name.into(), protocol: protocol.into(), ..Self::default() }
    }

    pub fn registration(&self) -> Registration {
        Registration {
            name: self.name.clone(),
            protocol: self.protocol.clone(),
            address: socket_of(&self.name),
            version: "v1".into(),
            ..Registration::default()
        }
    }

    /// The process ends.
    pub fn die(&mut self) {
        self.state = State::Dead;
        self.hangs_until = 0;
        self.devices.clear();
        self.models.clear();
        self.queue.clear();
    }

    /// It has registered, and got these.
    pub fn registered(
        &mut self,
        models: &[ObjectText],
        devices: &[(ObjectText, Option<ObjectText>)],
    ) {
        self.state = State::Registered;
        let read = |text: &ObjectText| (id_of(text), parse(text));
        self.models = models.iter().map(read).collect();
        self.devices = devices.iter().map(|(device, _)| read(device)).collect();
        self.removed.clear();
    }

    /// The agent begins a life.
    pub fn begin_life(&mut self) {
        self.removed.clear();
        self.unreachable_since = None;
    }

    /// As mapper-framework's server does.
    fn serve(&mut self, call: &MapperCall) -> Result<(), MapperError> {
        let refused = |why: String| Err(MapperError::Refused(2, why.into()));
        match call {
            MapperCall::RegisterDevice(text, _) | MapperCall::UpdateDevice(text, _) => {
                let (id, object) = (id_of(text), parse(text));
                if let Some(model) = model_of(&object)
                    && !self.models.contains_key(&model)
                {
                    return refused(format!("device model {model} not found"));
                }
                let is_update = matches!(call, MapperCall::UpdateDevice(..));
                if is_update || !self.devices.contains_key(&id) {
                    self.devices.insert(id, object);
                }
            }
            MapperCall::RemoveDevice(id) => {
                if self.devices.remove(id).is_none() {
                    return refused(format!("can not find device {id} from device muxs"));
                }
            }
            MapperCall::CreateModel(text) => drop(self.models.insert(id_of(text), parse(text))),
            MapperCall::UpdateModel(text) => {
                let id = id_of(text);
                if self.models.insert(id.clone(), parse(text)).is_none() {
                    self.models.remove(&id);
                    return refused(format!("update device model {id} failed, not existed"));
                }
            }
            MapperCall::RemoveModel(id) => drop(self.models.remove(id)),
        }
        Ok(())
    }
}

impl DeviceSim {
    /// The agent calls a mapper.
    pub(super) fn called(
        &mut self,
        now: u64,
        (id, socket): (MapperCallId, &str),
        call: MapperCall,
        deadline: u64,
    ) {
        let at = self.mapper_at(socket);
        self.judge_call(now, at, id, &call, deadline);
        let life = self.life;
        let mapper = &mut self.mappers[at];
        if mapper.state != State::Listens {
            let why = "connect: connection refused";
            let answer = Err(MapperError::Unreachable(why.into()));
            return self.answered(id, answer);
        }
        self.serial += 1;
        let serial = self.serial;
        mapper.queue.push_back(serial);
        let process = mapper.process;
        let (answer, is_over) = (None, false);
        let call = Call { id, life, mapper: at, process, request: call, answer, is_over };
        self.calls.insert(serial, call);
        let ms = 1 + self.chance.spread(self.rates.call_ms);
        self.timers.push((ms, DeviceDue::Taken(serial)));
        self.timers.push((deadline - now, DeviceDue::Expires(serial)));
    }

    fn judge_call(
        &mut self,
        now: u64,
        at: usize,
        id: MapperCallId,
        call: &MapperCall,
        deadline: u64,
    ) {
        let life = self.life;
        let mapper = &mut self.mappers[at];
        let name = &mapper.name;
        let other = self.calls.values().find(|it| {
            it.life == life && it.mapper == at && it.process == mapper.process && !it.is_over
        });
        judge!(
            other.is_none(),
            "[one mapper call] {name} gets {id:?} beside {:?}",
            other.map(|it| it.id)
        );
        judge!(
            deadline == now + MAPPER_CALL_MS,
            "[mapper deadline] {id:?} has {deadline} at {now}"
        );
        if now - mapper.minute.0 >= 60_000 {
            mapper.minute = (now, 0);
        }
        mapper.minute.1 += 1;
        judge!(
            mapper.minute.1 <= CALLS_A_MINUTE_MAX,
            "[mapper retries] {name} is called {CALLS_A_MINUTE_MAX} times within a minute"
        );
        match call {
            MapperCall::RegisterDevice(text, model) | MapperCall::UpdateDevice(text, model) => {
                self.judge_gift(at, text, model.as_ref());
            }
            MapperCall::RemoveDevice(device) => {
                judge!(
                    !mapper.removed.contains(device),
                    "[removed once] {name} has removed {device} already"
                );
                let protocol = protocol_of(&self.truth, device);
                let is_wanted = protocol.is_some_and(|it| *it == *mapper.protocol);
                let of_others =
                    self.mappers.iter().filter(|it| protocol == Some(&*it.protocol)).count() > 1;
                judge!(
                    !is_wanted || of_others,
                    "[removed once] {} shall remove {device}, which it should have",
                    self.mappers[at].name
                );
            }
            MapperCall::CreateModel(_)
            | MapperCall::UpdateModel(_)
            | MapperCall::RemoveModel(_) => {}
        }
    }

    /// A device is given to a mapper.
    fn judge_gift(&mut self, at: usize, text: &ObjectText, model: Option<&ObjectText>) {
        let mapper = &mut self.mappers[at];
        let name = &mapper.name;
        let device = id_of(text);
        mapper.removed.remove(&device);
        let known = self.truth.devices.get(&device);
        let object = known.and_then(|known| known.object.as_ref());
        let is_same = object.is_some_and(|it| it["spec"] == parse(text)["spec"]);
        judge!(
            is_same,
            "[mapper gets what is durable] {device}: {text}, and durable is {object:?}"
        );
        let model = model.map(id_of);
        let named = object.and_then(model_of);
        judge!(
            model == named,
            "[model first] {device} is given with {model:?}, and names {named:?}"
        );
        let has = model.as_ref().is_none_or(|id| mapper.models.contains_key(id));
        let listens = mapper.state == State::Listens;
        judge!(has || !listens, "[model first] {name} gets {device}, and does not have {model:?}");
    }

    /// The agent checks whether somebody listens.
    pub(super) fn checked(&mut self, id: MapperCallId, socket: &str) {
        let at = self.mapper_at(socket);
        let listens = self.mappers[at].state == State::Listens;
        let refused = || MapperError::Unreachable("connect: connection refused".into());
        self.answered(id, if listens { Ok(()) } else { Err(refused()) });
    }

    /// The mapper takes up its calls up to this one.
    pub(super) fn taken(&mut self, now: u64, serial: u64) {
        let Some(call) = self.calls.get(&serial) else { return };
        let (at, process) = (call.mapper, call.process);
        let mapper = &mut self.mappers[at];
        if mapper.process != process || mapper.state == State::Dead {
            let why = MapperError::Unreachable("closed by the mapper".into());
            return self.reply(serial, Err(why));
        }
        if mapper.hangs_until > now {
            let ms = mapper.hangs_until - now;
            return self.timers.push((ms, DeviceDue::Taken(serial)));
        }
        let Some(place) = mapper.queue.iter().position(|it| *it == serial) else { return };
        let taken: Vec<u64> = mapper.queue.drain(..=place).collect();
        for serial in taken {
            let call = self.calls.get_mut(&serial).expect("it is queued");
            let is_left = call.is_over || call.life != self.life;
            // Who called has closed the connection: the mapper notices it before, or after.
            if is_left && self.chance.percent(50) {
                self.calls.remove(&serial);
                continue;
            }
            let is_removal = matches!(call.request, MapperCall::RemoveDevice(_));
            let refuses = !is_removal && self.chance.percent(self.rates.refuse_pct);
            let result = if refuses {
                Err(MapperError::Refused(2, "no driver".into()))
            } else {
                self.mappers[at].serve(&call.request)
            };
            let (call, name) = (&call.request, &self.mappers[at].name);
            trace!(now, "    {name} serves {call:?}: {result:?}");
            if self.chance.percent(self.rates.lost_pct) {
                continue;
            }
            if self.chance.percent(self.rates.late_pct) {
                let call = self.calls.get_mut(&serial).expect("just used");
                call.answer = Some(result);
                let ms = self.chance.spread(2 * MAPPER_CALL_MS);
                self.timers.push((ms, DeviceDue::Replies(serial)));
            } else {
                self.reply(serial, result);
            }
        }
    }

    /// A late answer comes.
    pub(super) fn replies(&mut self, serial: u64) {
        let answer = self.calls.get_mut(&serial).and_then(|call| call.answer.take());
        if let Some(answer) = answer {
            self.reply(serial, answer);
        }
    }

    fn reply(&mut self, serial: u64, answer: Result<(), MapperError>) {
        let Some(call) = self.calls.remove(&serial) else { return };
        self.mappers[call.mapper].queue.retain(|it| *it != serial);
        if !call.is_over && call.life == self.life {
            self.answered(call.id, answer);
        }
    }

    pub(super) fn expires(&mut self, serial: u64) {
        let Some(call) = self.calls.get_mut(&serial) else { return };
        let (id, is_open) = (call.id, !call.is_over && call.life == self.life);
        call.is_over = true;
        let is_taken = !self.mappers[call.mapper].queue.contains(&serial);
        if is_taken {
            self.calls.remove(&serial);
        }
        if is_open {
            self.count("calls to mappers late");
            self.answered(id, Err(MapperError::Deadline));
        }
    }

    fn mapper_at(&self, socket: &str) -> usize {
        let at = self.mappers.iter().position(|it| *socket_of(&it.name) == *socket);
        at.expect("the agent calls only mappers that have registered")
    }

    /// The agent receives the answer to a call.
    pub(super) fn knows_answer(
        &mut self,
        now: u64,
        id: MapperCallId,
        answer: &Result<(), MapperError>,
    ) {
        let Some((at, call)) = self.asked.remove(&id) else { return };
        let mapper = &mut self.mappers[at];
        match answer {
            Err(MapperError::Unreachable(_)) => {
                mapper.unreachable_since.get_or_insert(now);
            }
            Ok(()) | Err(MapperError::Refused(..)) => mapper.unreachable_since = None,
            Err(MapperError::Deadline | MapperError::Unwritable(_)) => {}
        }
        if let (Ok(()), Some(MapperCall::RemoveDevice(device))) = (answer, call) {
            mapper.removed.insert(device);
        }
    }

    /// What mappers should have and do not have.
    pub(super) fn mappers_unsettled(&self, models: &BTreeMap<DeviceId, Value>) -> Option<String> {
        let listening = || self.mappers.iter().filter(|it| it.state == State::Listens);
        for (id, known) in &self.truth.devices {
            let Some(object) = &known.object else { continue };
            let protocol = object["spec"]["protocol"]["protocolName"].as_str().unwrap_or_default();
            let model = model_of(object);
            let is_usable = model.as_ref().is_none_or(|model| models.contains_key(model));
            let of_protocol: Vec<&Mapper> =
                listening().filter(|it| *it.protocol == *protocol).collect();
            let having: Vec<&&Mapper> =
                of_protocol.iter().filter(|it| it.devices.contains_key(id)).collect();
            let [mapper] = having[..] else {
                if is_usable && !of_protocol.is_empty() {
                    return Some(format!("{} mappers have {id}", having.len()));
                }
                continue;
            };
            if mapper.devices[id]["spec"] != object["spec"] {
                return Some(format!("{} has another {id}", mapper.name));
            }
            let of_mapper = model.as_ref().and_then(|model| mapper.models.get(model));
            let ours = model.as_ref().and_then(|model| models.get(model));
            if is_usable && of_mapper.map(|it| &it["spec"]) != ours.map(|it| &it["spec"]) {
                return Some(format!("{} has another {model:?}", mapper.name));
            }
        }
        listening().find_map(|mapper| {
            let is_wrong = |id: &&DeviceId| {
                protocol_of(&self.truth, id).is_none_or(|it| *it != *mapper.protocol)
            };
            let left = mapper.devices.keys().find(is_wrong)?;
            Some(format!("{} still has {left}", mapper.name))
        })
    }
}

fn socket_of(name: &str) -> Box<str> {
    format!("/run/{name}.sock").into()
}

fn parse(text: &str) -> Value {
    serde_json::from_str(text).expect("JSON")
}

fn id_of(text: &ObjectText) -> DeviceId {
    id_in(&parse(text))
}

/// Of an object.
pub fn id_in(object: &Value) -> DeviceId {
    let word = |key: &str| object["metadata"][key].as_str().unwrap_or_default();
    DeviceId::new(word("namespace"), word("name"))
}

/// The model that a device names.
pub fn model_of(device: &Value) -> Option<DeviceId> {
    let name = device["spec"]["deviceModelRef"]["name"].as_str()?;
    let namespace = device["metadata"]["namespace"].as_str().unwrap_or_default();
    Some(DeviceId::new(namespace, name))
}

fn protocol_of<'a>(truth: &'a Truth, device: &DeviceId) -> Option<&'a str> {
    truth.devices.get(device)?.object.as_ref()?["spec"]["protocol"]["protocolName"].as_str()
}
