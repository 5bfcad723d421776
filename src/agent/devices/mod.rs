//! Devices: DeviceTwin, and the calls between the agent and mappers (spec `devices`).
//!
//! ```text
//!  objects, membership ─▶ table ◀── MQTT clients, mappers' reports
//!                           │
//!        ┌──────────────┬───┴────────┬─────────────────┐
//!     answers,       rows of      reports to       mappers: what each
//!     documents      the store    the cloud        has acknowledged
//! ```
//!
//! KubeEdge keeps two tables of devices that do not know each other. Here is one: it follows from
//! the objects that the store has, whoever sent them. Messages about membership only add and remove
//! what has no object.
//!
//! Intended behaviour: an update is answered at once, and sent to the cloud, which gets the last
//! value of each property however long the link was away. Actual values that devices report are
//! saved each 20 minutes at most; everything else is saved before the cloud gets it. Desired
//! values of the cloud become expected when they change, so that what was expected here meanwhile
//! is not undone by an echo. A mapper's registration is answered once it is saved: it registers
//! once in its life.
//!
//! If we crash here: rows and acknowledgements are read, and everything is compared again. Actual
//! values may be 20 minutes old until their devices report again.
//!
//! Not here: JSON, MQTT and gRPC. Requests come and answers go as types of
//! [`crate::model::device`].

mod device;
mod mapper;
mod mappers;
mod progress;
mod table;
mod twin;
mod uploads;
mod view;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use crate::agent::event::{Action, DeviceAction, DeviceEvent, Out, Severity};
use crate::agent::rule_rows::RuleRows;
use crate::core::rate::Rate;
use crate::core::time::{Instant, Now, Rng, sooner};
use crate::limits::{
    MANAGER_CALLS_MAX, MAPPER_CALL_MS, MAPPER_SOCKET_BYTES_MAX, RULE_ROW_BYTES_MAX,
    RULE_TOPICS_MAX, TWIN_VALUE_BYTES_MAX,
};
use crate::model::device::{
    ClientContent, ClientRequest, DeviceChange, DeviceDownstream, DeviceId, DeviceObject,
    DeviceState, DeviceUpstream, Door, GivenDevice, ManagerAnswer, ManagerCall, ManagerCallId,
    Mapper, ModelObject, MqttStatus, OtherBroker, PropertyUpdate, Publication, Published,
    ReportedTwin, StoredDevices, Upload,
};
use crate::model::error::Input;

use device::{Device, Effects, wall_ms};
use mapper::Wanted;
use mappers::Mappers;
pub(super) use mappers::RegistrationChange;
use mappers::Request;
use table::{Members, Table};
use twin::{Change, Delta};
use uploads::Uploads;

/// The core of devices.
#[derive(Debug)]
pub(super) struct Devices {
    node: Box<str>,
    /// Somebody may listen to what is published.
    has_clients: bool,
    table: Table,
    mappers: Mappers,
    /// Of mappers' calls.
    rate: Rate,
    /// Answers and publications of events since the last step.
    pending: Vec<DeviceAction>,
    /// Answers to registrations that are not saved yet, and those of the save under way.
    registering: Vec<(ManagerCallId, ManagerAnswer)>,
    saving: Vec<(ManagerCallId, ManagerAnswer)>,
    /// A registration could not be stored, and no save has succeeded since.
    is_unstored: bool,
    lines: Vec<(Severity, String)>,
    /// The list of devices is requested from the cloud.
    detail_is_due: bool,
    is_full_logged: bool,
    uploads: Uploads,
    /// Topics of the cloud's rules: what comes on them goes to the cloud.
    topics: RuleRows,
    mqtt: MqttStatus,
    /// Since when the other broker is connected.
    mqtt_up_at: Option<Instant>,
    /// Updates of twins that were accepted.
    updates: u64,
    refused: Refused,
}

/// Requests and calls that were refused, since the start.
#[derive(Debug, Default)]
struct Refused {
    unknown_device: u64,
    invalid: u64,
    too_many: u64,
}

/// Why a request is refused: as an HTTP status, and for the client.
type Refusal = (u16, Box<str>);

/// `EdgeCore`'s text for an update of an unknown device.
const UNKNOWN: &str = "update rejected due to the device is not existed";
/// The states that a device may have (section 8.7).
const STATES: [&str; 5] = ["online", "offline", "ok", "unknown", "unhealthy"];

impl Devices {
    pub(super) fn new(node: &str, has_clients: bool, now: Now) -> Self {
        Self {
            node: node.into(),
            has_clients,
            table: Table::default(),
            mappers: Mappers::default(),
            rate: Rate::new(MANAGER_CALLS_MAX, MANAGER_CALLS_MAX, now.boot),
            pending: Vec::new(),
            registering: Vec::new(),
            is_unstored: false,
            saving: Vec::new(),
            lines: Vec::new(),
            detail_is_due: false,
            is_full_logged: false,
            uploads: Uploads::default(),
            topics: RuleRows::new(RULE_ROW_BYTES_MAX, RULE_TOPICS_MAX),
            mqtt: MqttStatus::default(),
            mqtt_up_at: None,
            updates: 0,
            refused: Refused::default(),
        }
    }

    /// Takes what the store has, before its objects.
    pub(super) fn load(
        &mut self,
        now: Now,
        mut stored: StoredDevices,
        mappers: impl Iterator<Item = Mapper>,
        topics: Vec<Box<str>>,
    ) {
        self.topics.load(topics);
        let subscribe = |topic: &str| DeviceAction::Subscribe(topic.into());
        self.pending.extend(self.topics.iter().map(subscribe));
        self.mappers.load(now, mappers, std::mem::take(&mut stored.acknowledged));
        let left = self.table.load(stored);
        if left > 0 {
            let line = format!("devices: {left} rows of the store are more than are kept");
            self.lines.push((Severity::Warn, line));
        }
    }

    // ---- the cloud ----

    /// The stored objects of this node are these. `is_unread`: the store has a device that could
    /// not be read.
    pub(super) fn objects_changed<'a>(
        &mut self,
        now: Now,
        devices: impl Iterator<Item = &'a Arc<DeviceObject>>,
        models: impl Iterator<Item = Arc<ModelObject>>,
        is_unread: impl Fn(&DeviceId) -> bool,
        rng: &mut Rng,
    ) {
        let (members, effects) = self.table.take_objects(now, devices, is_unread);
        self.mappers.take_models(models);
        self.members_changed(now, &members, rng);
        for (id, effects) in effects {
            self.publish_effects(now, &id, effects, None, rng);
        }
    }

    /// The object of a device.
    #[cfg(feature = "metaserver")]
    pub(super) fn object(&self, id: &DeviceId) -> Option<&Arc<DeviceObject>> {
        self.table.get(id)?.object()
    }

    /// Takes a message about twins.
    pub(super) fn message(&mut self, now: Now, message: DeviceDownstream, rng: &mut Rng) {
        match message {
            DeviceDownstream::Confirmed(id) => self.table.confirmed(now, &id),
            DeviceDownstream::Membership { added, removed } => {
                self.take_members(now, &added, rng);
                self.remove_members(now, removed, rng);
            }
            DeviceDownstream::Detail(all) => {
                self.take_members(now, &all, rng);
                let listed = |id: &DeviceId| all.iter().any(|device| device.id == *id);
                let others = self.table.iter().map(|(id, _)| id);
                let others = others.filter(|id| !listed(id)).cloned().collect();
                self.remove_members(now, others, rng);
            }
            DeviceDownstream::CloudUpdated(id, twins) => {
                let synced = self.table.change(&id, |device, room| device.sync(now, &twins, room));
                if let Some(effects) = synced {
                    self.publish_effects(now, &id, effects, None, rng);
                }
            }
            DeviceDownstream::Subscribe(topic) => self.subscribe(&topic),
            DeviceDownstream::Unsubscribe(topic) => {
                if self.topics.remove(&topic) {
                    self.pending.push(DeviceAction::Unsubscribe(topic));
                }
            }
            DeviceDownstream::Publish { topic, payload } => {
                self.pending.push(DeviceAction::Pass { topic, payload });
            }
            DeviceDownstream::Attributes(id, changes) => {
                if let Some(effects) = self.table.change_attributes(&id, changes) {
                    self.publish_effects(now, &id, effects, None, rng);
                }
            }
        }
    }

    /// A rule of the cloud has this topic as its source.
    fn subscribe(&mut self, topic: &str) {
        let added = if topic.contains(['+', '#']) {
            // CloudCore finds its rule by the topic of the message.
            Err(Input::quoted(topic, "a topic without + and #"))
        } else {
            self.topics.add(topic)
        };
        match added {
            Ok(false) => {}
            Ok(true) => self.pending.push(DeviceAction::Subscribe(topic.into())),
            Err(why) => {
                let line = format!("eventbus: a rule is not served: {why}");
                self.lines.push((Severity::Warn, line));
            }
        }
    }

    /// The rows of the table `sub_topics`.
    pub(super) fn topics(&mut self) -> &mut RuleRows {
        &mut self.topics
    }

    /// A message about twins could not be used.
    pub(super) fn message_refused(&mut self, why: &str) {
        self.lines.push((Severity::Warn, format!("devices: a message of the cloud: {why}")));
    }

    /// Devices that the cloud names. They may be known.
    fn take_members(&mut self, now: Now, given: &[GivenDevice], rng: &mut Rng) {
        let (mut members, mut all) = (Members::default(), Vec::new());
        for device in given {
            if self.table.add(now, &device.id, &device.description, &mut members) {
                let sync =
                    self.table.change(&device.id, |it, room| it.sync(now, &device.twins, room));
                all.push((&device.id, sync.expect("it is there")));
                let attributes = self.table.attribute_changes(device);
                let changed = self.table.change_attributes(&device.id, attributes);
                all.push((&device.id, changed.expect("it is there")));
            }
        }
        self.members_changed(now, &members, rng);
        for (id, effects) in all {
            self.publish_effects(now, id, effects, None, rng);
        }
    }

    /// Devices that the cloud does not name any more. Those with an object stay.
    fn remove_members(&mut self, now: Now, ids: Vec<DeviceId>, rng: &mut Rng) {
        let mut members = Members::default();
        for id in ids {
            if self.table.get(&id).is_some_and(|device| !device.had_object()) {
                self.table.remove(now, id, &mut members);
            }
        }
        self.members_changed(now, &members, rng);
    }

    fn members_changed(&mut self, now: Now, members: &Members, rng: &mut Rng) {
        if members.is_full && !self.is_full_logged {
            self.is_full_logged = true;
            let line = "devices: the node has as many devices as it may have; others are left out";
            self.lines.push((Severity::Error, line.to_owned()));
        }
        // One of them may have been replaced: it is removed first.
        let added = self.table.members(&members.added);
        for (added, removed) in [(Vec::new(), members.removed.clone()), (added, Vec::new())] {
            if !added.is_empty() || !removed.is_empty() {
                let id = event_id(rng);
                self.publish(now, id, Published::MembersChanged { added, removed });
            }
        }
    }

    /// The link is new: the list of devices is requested, and everything unconfirmed is sent.
    pub(super) fn link_up(&mut self, now: Now) {
        self.detail_is_due = true;
        self.table.link_up(now);
        let dropped = self.uploads.link_up();
        if dropped > 0 {
            let line = format!("devices: {dropped} messages of MQTT clients were dropped");
            self.lines.push((Severity::Warn, line));
        }
    }

    /// The link is lost, or is about to be.
    pub(super) fn link_down(&mut self, now: Now) {
        self.table.link_down(now);
    }

    /// The next message of a client for the cloud.
    pub(super) fn next_upload(&self) -> Option<Arc<Upload>> {
        self.uploads.next().cloned()
    }

    /// It was sent as the message of this number.
    pub(super) fn upload_handed_over(&mut self, number: u64) {
        self.uploads.handed_over(number);
    }

    /// All messages up to this number have left.
    pub(super) fn uploads_left(&mut self, number: u64) {
        self.uploads.left(number);
    }

    /// The report to the cloud that is due; the device that it is about, if it is about one.
    pub(super) fn report(&mut self, now: Now) -> Option<(Option<DeviceId>, DeviceUpstream)> {
        if std::mem::take(&mut self.detail_is_due) {
            return Some((None, DeviceUpstream::GetDetail(self.node.clone())));
        }
        self.table.report(now).map(|(id, report)| (Some(id), report))
    }

    /// When a report is due.
    pub(super) fn report_at(&self, now: Now) -> Option<Instant> {
        let is_due = self.detail_is_due || self.uploads.next().is_some();
        sooner(is_due.then_some(now.boot), self.table.report_at())
    }

    /// The report about this device was sent as the message of this id.
    pub(super) fn sent(&mut self, now: Now, id: &DeviceId, message: Box<str>) {
        self.table.sent(now, id, message);
    }

    // ---- clients and mappers ----

    /// Takes a request of an MQTT client, a call of a mapper, or a mapper's answer.
    pub(super) fn handle(&mut self, now: Now, event: DeviceEvent, rng: &mut Rng) {
        match event {
            DeviceEvent::Request(request) => self.request(now, request, rng),
            DeviceEvent::Upload(upload) => {
                if self.uploads.push(upload) {
                    let line = "devices: messages of MQTT clients wait for the cloud, and there is \
                                no room for more: the oldest are dropped";
                    self.lines.push((Severity::Warn, line.to_owned()));
                }
            }
            DeviceEvent::Mqtt(status) => {
                let is_up = status.client.as_ref().is_some_and(OtherBroker::is_up);
                self.mqtt_up_at = self.mqtt_up_at.or(Some(now.boot)).filter(|_| is_up);
                self.mqtt = *status;
            }
            DeviceEvent::Called(id, call) => {
                let registers = matches!(call, ManagerCall::Register { .. });
                let answer = self.call(now, call, rng);
                match answer {
                    ManagerAnswer::NotFound(_) => self.refused.unknown_device += 1,
                    ManagerAnswer::Invalid(_) => self.refused.invalid += 1,
                    ManagerAnswer::TooMany(_) => self.refused.too_many += 1,
                    ManagerAnswer::Done | ManagerAnswer::Registered { .. } => {}
                }
                if registers && (self.is_unstored || !self.mappers.is_saved()) {
                    self.registering.push((id, answer));
                } else {
                    self.pending.push(DeviceAction::Answer(id, answer));
                }
            }
            DeviceEvent::Answered(id, answer) => {
                let line = self.mappers.answered(now, id, answer);
                self.lines.extend(line.map(|line| (Severity::Info, line)));
            }
        }
    }

    fn request(&mut self, now: Now, request: ClientRequest, rng: &mut Rng) {
        let ClientRequest { event_id, content } = request;
        let answer = match content {
            ClientContent::Membership => {
                let members = self.table.iter().map(|(id, device)| device.member(id));
                Published::Members(members.collect())
            }
            ClientContent::TwinGet(id) => {
                if let Some(device) = self.table.get(&id) {
                    Published::Twins(id, device.twins())
                } else {
                    let why = format!("Device {id} not found while getting twin");
                    Published::Refused(Door::TwinGet, Some(id), 404, why.into())
                }
            }
            ClientContent::TwinUpdate(id, updates) => match self.update(now, &id, &updates) {
                Ok(effects) => {
                    self.publish_effects(now, &id, effects, Some(event_id), rng);
                    return;
                }
                Err((code, why)) => Published::Refused(Door::TwinUpdate, Some(id), code, why),
            },
            ClientContent::State(id, state) => match self.set_state(now, &id, &state) {
                Ok(state) => Published::State(id, state),
                Err((code, why)) => Published::Refused(Door::State, Some(id), code, why),
            },
            ClientContent::Invalid(id, door, why) => Published::Refused(door, id, 400, why),
        };
        match &answer {
            Published::Refused(_, _, 404, _) => self.refused.unknown_device += 1,
            Published::Refused(..) => self.refused.invalid += 1,
            _ => {}
        }
        self.publish(now, event_id, answer);
    }

    fn update(
        &mut self,
        now: Now,
        id: &DeviceId,
        updates: &[(Box<str>, PropertyUpdate)],
    ) -> Result<Effects, Refusal> {
        let updated = self.table.change(id, |device, room| device.update(now, updates, room));
        match updated {
            None => Err((404, UNKNOWN.into())),
            Some(Err(why)) => Err((400, why.into())),
            Some(Ok(effects)) => {
                self.updates += 1;
                Ok(effects)
            }
        }
    }

    fn set_state(&mut self, now: Now, id: &DeviceId, state: &str) -> Result<DeviceState, Refusal> {
        let known = state.to_ascii_lowercase();
        if !STATES.contains(&&*known) {
            let shown: String = state.chars().take(40).collect();
            let why = format!("got the state {shown:?}, expected one of {}", STATES.join(", "));
            return Err((400, why.into()));
        }
        let is_online = matches!(&*known, "online" | "ok");
        let last_online = now.timestamp().filter(|_| is_online);
        let last_online = last_online.map_or(Box::default(), |at| at.to_string().into());
        let state = DeviceState { state: state.into(), last_online };
        let change = self.table.change(id, |device, _| device.set_state(now, state.clone()));
        let change = change.ok_or_else(|| (404, Box::from(UNKNOWN)))?;
        self.table.changed(now, id, change);
        Ok(state)
    }

    fn call(&mut self, now: Now, call: ManagerCall, rng: &mut Rng) -> ManagerAnswer {
        if !self.rate.has(now.boot) {
            let why = format!("got more than {MANAGER_CALLS_MAX} calls in a second");
            return ManagerAnswer::TooMany(why.into());
        }
        self.rate.take(now.boot);
        match call {
            ManagerCall::Register { mapper, with_data } => self.register(now, mapper, with_data),
            ManagerCall::ReportStatus { device, twins } => {
                if twins.is_empty() {
                    let why = "ReportDeviceStatusRequest does not have twin data";
                    return ManagerAnswer::Invalid(why.into());
                }
                let updates: Vec<_> =
                    twins.into_iter().map(|it| self.reported(&device, it)).collect();
                match self.update(now, &device, &updates) {
                    Ok(effects) => {
                        self.publish_effects(now, &device, effects, Some(Box::default()), rng);
                        ManagerAnswer::Done
                    }
                    Err(refusal) => answer_of(refusal),
                }
            }
            ManagerCall::ReportState { device, state } => {
                match self.set_state(now, &device, &state) {
                    Ok(state) => {
                        let id = event_id(rng);
                        self.publish(now, id, Published::State(device, state));
                        ManagerAnswer::Done
                    }
                    Err(refusal) => answer_of(refusal),
                }
            }
        }
    }

    /// What a mapper observed as desired is expected only where nothing else is: it may be what was
    /// desired when the mapper registered, which must not undo what is expected now.
    fn reported(&self, id: &DeviceId, report: ReportedTwin) -> (Box<str>, PropertyUpdate) {
        let ReportedTwin { property, expected, actual } = report;
        let is_open = self.table.get(id).is_some_and(|device| !device.expects(&property));
        let expected = expected.filter(|value| is_open && !value.is_empty());
        let type_name = Box::default();
        (property, PropertyUpdate::Set { expected, actual, optional: None, type_name })
    }

    fn register(&mut self, now: Now, mapper: Mapper, with_data: bool) -> ManagerAnswer {
        let name = mapper.name.clone();
        if mapper.protocol.is_empty() {
            let why = format!("fail to register mapper {name} because the protocol is nil");
            return ManagerAnswer::Invalid(why.into());
        }
        let words = [&mapper.name, &mapper.protocol, &mapper.version, &mapper.api_version];
        let is_named = !name.is_empty() && !name.contains('/');
        if !is_named || words.iter().any(|word| word.len() > TWIN_VALUE_BYTES_MAX) {
            let why = "got a mapper without a name that can be stored, expected a short one \
                       without a slash";
            return ManagerAnswer::Invalid(why.into());
        }
        let bytes = mapper.address.len();
        if !mapper.address.starts_with('/') || bytes > MAPPER_SOCKET_BYTES_MAX {
            let why = format!(
                "got an address of {bytes} bytes, expected an absolute path of at most \
                 {MAPPER_SOCKET_BYTES_MAX}"
            );
            return ManagerAnswer::Invalid(why.into());
        }
        let line = format!("devices: mapper {name} registers for {}", mapper.protocol);
        let objects = self.table.objects();
        let Some(wanted) = self.mappers.register(now, mapper, with_data, objects) else {
            return ManagerAnswer::TooMany("there are as many mappers as there may be".into());
        };
        let answer = if with_data { listed(wanted) } else { ManagerAnswer::Done };
        self.lines.push((Severity::Info, line));
        answer
    }

    // ---- publications ----

    /// Publishes what an update has changed, in KubeEdge's order, and has it saved. `answer`: the
    /// id of the request, if it was one.
    fn publish_effects(
        &mut self,
        now: Now,
        id: &DeviceId,
        effects: Effects,
        answer: Option<Box<str>>,
        rng: &mut Rng,
    ) {
        let Effects { answers, changes, attributes, change } = effects;
        self.table.changed(now, id, change.unwrap_or(Change::Nothing));
        if !self.has_clients {
            return;
        }
        let is_request = answer.is_some();
        let request = answer.unwrap_or_default();
        if is_request {
            self.publish(now, request.clone(), Published::Updated(id.clone(), answers));
        }
        let has_changes = !changes.is_empty();
        if has_changes {
            self.publish(now, request, Published::Document(id.clone(), changes));
        }
        let delta = self.table.get(id).filter(|_| has_changes || is_request);
        if let Some(Delta { twins, values: delta }) = delta.and_then(Device::delta) {
            let device = id.clone();
            let id = event_id(rng);
            self.publish(now, id, Published::Delta { device, twins, delta });
        }
        if !attributes.is_empty() {
            // As EdgeCore does, without an id.
            let content = Published::Attributes(id.clone(), attributes);
            self.publish(now, Box::default(), content);
        }
    }

    fn publish(&mut self, now: Now, event_id: Box<str>, content: Published) {
        if self.has_clients {
            let timestamp_ms = wall_ms(now);
            let publication = Publication { event_id, timestamp_ms, content };
            self.pending.push(DeviceAction::Publish(publication));
        }
    }

    // ---- the store ----

    /// When a save is due.
    pub(super) fn save_at(&self, now: Now) -> Option<Instant> {
        let is_due = self.mappers.has_unsaved() || !self.registering.is_empty();
        let is_due = is_due || self.topics.has_unsaved();
        sooner(is_due.then_some(now.boot), self.table.save_at())
    }

    /// Whether something has to be saved, due or not.
    pub(super) fn has_unsaved(&self) -> bool {
        self.table.has_unsaved() || self.mappers.has_unsaved() || self.topics.has_unsaved()
    }

    /// Starts to save all that is not saved; there may be nothing.
    pub(super) fn begin_save(&mut self, now: Now) -> Vec<DeviceChange> {
        let mut changes = self.table.begin_save(now);
        self.mappers.begin_save(&mut changes);
        self.saving.append(&mut self.registering);
        changes
    }

    /// The save under way has ended; there may be none.
    pub(super) fn end_save(&mut self, now: Now, is_saved: bool) {
        self.table.end_save(now, is_saved);
        self.mappers.end_save(is_saved);
        self.topics.end_save(is_saved);
        self.is_unstored = !is_saved && (self.is_unstored || !self.saving.is_empty());
        for (id, answer) in self.saving.drain(..) {
            let refused = || ManagerAnswer::TooMany("the registration could not be stored".into());
            let answer = if is_saved { answer } else { refused() };
            self.pending.push(DeviceAction::Answer(id, answer));
        }
    }

    /// Whether nothing has to be saved, and no save is under way.
    pub(super) fn is_saved(&self) -> bool {
        self.table.is_saved() && self.mappers.is_saved() && self.topics.is_saved()
    }

    /// The registrations of mappers that are not stored yet.
    pub(super) fn registrations(&mut self) -> &mut Vec<RegistrationChange> {
        self.mappers.registrations()
    }

    // ---- the step ----

    /// Answers, publishes, and calls mappers.
    pub(super) fn step(&mut self, now: Now, rng: &mut Rng, out: &mut Out) {
        let mut requests = Vec::new();
        let lost = self.mappers.step(now, self.table.objects(), &mut requests);
        for id in lost {
            let state = self.table.get(&id).map(|device| device.state().state.to_ascii_lowercase());
            if !state.is_some_and(|state| matches!(&*state, "online" | "ok")) {
                continue;
            }
            if let Ok(state) = self.set_state(now, &id, "unknown") {
                let event = event_id(rng);
                self.publish(now, event, Published::State(id, state));
            }
        }
        for (severity, line) in self.lines.drain(..) {
            out.push(Action::Log(severity, line));
        }
        for action in self.pending.drain(..) {
            out.push(Action::Device(Box::new(action)));
        }
        let deadline = now.boot.plus_ms(MAPPER_CALL_MS);
        for request in requests {
            let action = match request {
                Request::Call(id, socket, call) => {
                    DeviceAction::Call { id, socket, call, deadline }
                }
                Request::Check(id, socket) => DeviceAction::CheckSocket { id, socket },
            };
            out.push(Action::Device(Box::new(action)));
        }
    }

    /// When the next step is due.
    pub(super) fn wake_at(&self, now: Now) -> Option<Instant> {
        let is_due = self.mappers.needs_step() || !self.pending.is_empty();
        sooner(is_due.then_some(now.boot), self.mappers.wake_at())
    }
}

/// The answer to a registration: each model once, then the devices that can be used.
fn listed(wanted: &Wanted) -> ManagerAnswer {
    let mut models: Vec<&Arc<ModelObject>> = Vec::new();
    let mut devices = Vec::new();
    for (device, model) in wanted.usable() {
        if let Some(model) = model.as_ref().filter(|it| !models.iter().any(|one| one.id == it.id)) {
            models.push(model);
        }
        let model = model.as_ref().map(|model| model.text.clone());
        devices.push((device.text.clone(), model));
    }
    let models = models.into_iter().map(|model| model.text.clone()).collect();
    ManagerAnswer::Registered { models, devices }
}

fn answer_of((code, why): Refusal) -> ManagerAnswer {
    if code == 404 { ManagerAnswer::NotFound(why) } else { ManagerAnswer::Invalid(why) }
}

/// Any text works that nobody else uses, as for messages to the cloud.
fn event_id(rng: &mut Rng) -> Box<str> {
    format!("{:016x}", rng.bits()).into()
}
