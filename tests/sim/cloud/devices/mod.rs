//! Devices: their objects in the cloud, MQTT clients, mappers, and what all of them must agree on.
//!
//! ```text
//!  users ─▶ api ─▶ hub ─▶ the agent ◀─▶ clients, mappers
//!                            │   ▲
//!      reports ◀─────────────┤   └── rows of the store
//!  what the cloud has        └─▶ rows of the store
//! ```
//!
//! [`truth::Truth`] follows each event in the order in which the agent receives it, and predicts
//! each answer. Values that are reported are numbers that only grow, so that an older one is known
//! by itself.
//!
//! The draws are a separate random sequence: worlds without devices do not change.

mod acts;
mod ends;
mod mapper;
mod remote;
mod rows;
mod saved;
mod truth;
mod users;

use std::collections::{BTreeMap, VecDeque};

use edged::agent::Config;
use edged::agent::event::{DeviceAction, DeviceEvent, Event};
use edged::limits::MAPPER_LOST_MS;
use edged::model::device::{
    AttributeChanges, ClientContent, ClientRequest, DeviceChange, DeviceId, ManagerAnswer,
    ManagerCall, ManagerCallId, MapperCall, MapperCallId, Member, PropertyUpdate, Publication,
    Published, ReportedTwin,
};
use edged::model::message::Message;
use edged::model::meta::Saved;
use edged::model::settings::{BusSettings, DeviceSettings};
use serde_json::Value;

use super::api::Api;
use super::rules::content;
use super::store::Store;
use super::{CloudSim, Due};
use crate::chance::Chance;
use crate::faults::{Class, RARELY};
use crate::rule::judge;
use crate::trace::trace;
use crate::world::{NODE, World};

use mapper::{Call, Mapper, State, id_in};
use remote::Remote;
use rows::Rows;
use saved::Reported;
use truth::{Members, Refusal, Truth};

/// The share of worlds with a cloud that have devices, percent.
const SHARE_PCT: u64 = 10;

/// All of it.
pub struct DeviceSim {
    chance: Chance,
    rates: Rates,
    life: u32,
    /// The agent serves MQTT clients.
    has_clients: bool,
    /// The broker is away until then, and with it all clients.
    broker_down_until: u64,
    /// The last number that was reported.
    number: u64,
    last_id: u64,
    truth: Truth,
    rows: Rows,
    reported: Reported,
    /// The agent has read its store in this life.
    is_loaded: bool,
    /// When the last life of the agent has ended.
    ended_at: u64,
    mappers: Vec<Mapper>,
    calls: BTreeMap<u64, Call>,
    serial: u64,
    /// Calls that the agent waits for, with their mappers; `None`: a check of the socket.
    asked: BTreeMap<MapperCallId, (usize, Option<MapperCall>)>,
    remote: Remote,
    expected: Expected,
    /// The store was lost, and with it the registrations.
    is_lost: bool,
    /// Something of devices has been written since the agent was last answered.
    is_written: bool,
    timers: Vec<(u64, DeviceDue)>,
    events: Vec<Event>,
    counts: Vec<&'static str>,
}

/// What the agent has to answer in the step that follows.
#[derive(Default)]
struct Expected {
    /// By the event id of the request.
    answers: BTreeMap<Box<str>, Answer>,
    calls: BTreeMap<ManagerCallId, Result<(), Refusal>>,
    members: VecDeque<Members>,
    /// States that mappers have reported.
    states: VecDeque<(DeviceId, Box<str>)>,
    /// Attributes that the cloud has changed.
    attributes: VecDeque<(DeviceId, AttributeChanges)>,
    /// Registrations of mappers that have ended since.
    ended: Vec<ManagerCallId>,
}

enum Answer {
    Refused(Refusal),
    Updated,
    State,
    /// Of this device, as it was then.
    Twins(DeviceId, truth::Known),
    Members(Vec<DeviceId>),
}

/// A future event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceDue {
    /// A client or a mapper does something.
    Act,
    /// The users change something in the cloud.
    UserChange,
    /// A mapper takes up a call.
    Taken(u64),
    /// A late answer of a mapper.
    Replies(u64),
    /// The deadline of a call.
    Expires(u64),
    /// A mapper starts.
    Starts(usize),
    /// The process of a mapper listens from now on.
    Listens(usize, u32),
    /// Devices report again what they have, in this life of the agent.
    ReportsAgain(u32),
}

/// `_pct`: percent each time; `_ms`: at most.
#[derive(Clone, Debug, Default)]
struct Rates {
    /// Between two acts of clients and mappers; 0: none.
    act_ms: u64,
    /// Until a mapper takes up a call.
    call_ms: u64,
    /// A mapper refuses an object.
    refuse_pct: u64,
    /// An answer of a mapper is lost.
    lost_pct: u64,
    /// An answer of a mapper comes late.
    late_pct: u64,
    /// A mapper ends, of its acts.
    die_pct: u64,
    /// A mapper is stopped for a while, of its acts.
    hang_pct: u64,
    hang_ms: u64,
    /// The broker goes away, of all acts.
    broker_pct: u64,
    broker_ms: u64,
    /// The cloud confirms a message twice.
    twice_pct: u64,
    /// A message about membership is lost.
    membership_lost_pct: u64,
}

impl Rates {
    fn draw(class: Class, chance: &mut Chance) -> Self {
        let act_ms = match class {
            Class::Site => 60_000 * (1 + chance.below(RARELY)),
            Class::Usual | Class::Calm | Class::Storm | Class::Crowd => 1_000 << chance.below(6),
        };
        if class == Class::Calm {
            return Self { act_ms, call_ms: 5, ..Self::default() };
        }
        Self {
            act_ms,
            call_ms: 1 + chance.spread(9_000),
            refuse_pct: chance.rate(30),
            lost_pct: chance.rate(20),
            late_pct: chance.rate(20),
            die_pct: chance.rate(30),
            hang_pct: chance.rate(15),
            hang_ms: 1 + chance.spread(100_000),
            broker_pct: chance.rate(5),
            broker_ms: chance.spread(120_000),
            twice_pct: chance.rate(20),
            membership_lost_pct: chance.rate(60),
        }
    }
}

/// Draws the devices of a world with a cloud, if it has some.
pub fn draw(class: Class, seed: u64, config: &mut Config) -> Option<Box<DeviceSim>> {
    let mut chance = Chance::new(seed ^ 0x6465_7669_6365_7321);
    // A crowd costs enough.
    if class == Class::Crowd || !chance.percent(SHARE_PCT) {
        return None;
    }
    let has_clients = chance.percent(80);
    let bus = has_clients.then(BusSettings::default);
    config.devices = Some(DeviceSettings { socket: "/run/dmi.sock".to_owned(), bus });
    let mut mappers = vec![Mapper::new("m1", "modbus")];
    if chance.percent(60) {
        mappers.push(Mapper::new("m2", "ble"));
    }
    if chance.percent(30) {
        mappers.push(Mapper::new("m3", "modbus"));
    }
    let rates = Rates::draw(class, &mut chance);
    let starts = (0..mappers.len()).map(|at| (1 + chance.spread(60_000), DeviceDue::Starts(at)));
    let mut timers: Vec<_> = starts.collect();
    timers.extend([(1, DeviceDue::Act), (2, DeviceDue::UserChange)]);
    let remote = Remote::draw(&mut chance);
    Some(Box::new(DeviceSim {
        chance,
        rates,
        life: 0,
        has_clients,
        broker_down_until: 0,
        number: 0,
        last_id: 0,
        truth: Truth::default(),
        rows: Rows::default(),
        reported: Reported::default(),
        is_loaded: false,
        ended_at: 0,
        mappers,
        calls: BTreeMap::new(),
        serial: 0,
        asked: BTreeMap::new(),
        remote,
        expected: Expected::default(),
        is_lost: false,
        is_written: false,
        timers,
        events: Vec::new(),
        counts: Vec::new(),
    }))
}

impl DeviceSim {
    fn count(&mut self, what: &'static str) {
        self.counts.push(what);
    }

    /// The agent is answered by a mapper.
    fn answered(
        &mut self,
        id: MapperCallId,
        answer: Result<(), edged::model::device::MapperError>,
    ) {
        self.event(DeviceEvent::Answered(id, answer));
    }

    fn event(&mut self, event: DeviceEvent) {
        self.events.push(Event::Device(Box::new(event)));
    }

    // ---- what the agent receives ----

    /// A client's request, a mapper's call, or its answer.
    fn receives(&mut self, now: u64, event: &DeviceEvent) {
        match event {
            DeviceEvent::Request(ClientRequest { event_id, content }) => {
                let answer = self.expect(now, content);
                self.expected.answers.insert(event_id.clone(), answer);
            }
            DeviceEvent::Called(id, call) => {
                let answer = self.expect_call(now, call);
                self.expected.calls.insert(*id, answer);
            }
            DeviceEvent::Answered(id, answer) => self.knows_answer(now, *id, answer),
            // There are none of these.
            DeviceEvent::Upload(_) | DeviceEvent::Mqtt(_) => {}
        }
    }

    fn expect(&mut self, now: u64, content: &ClientContent) -> Answer {
        match content {
            ClientContent::Membership => {
                Answer::Members(self.truth.devices.keys().cloned().collect())
            }
            ClientContent::TwinGet(id) => match self.truth.devices.get(id) {
                Some(known) => Answer::Twins(id.clone(), known.clone()),
                None => Answer::Refused(404),
            },
            ClientContent::TwinUpdate(id, updates) => match self.updated(now, id, updates) {
                Ok(()) => Answer::Updated,
                Err(code) => Answer::Refused(code),
            },
            ClientContent::State(id, state) => match self.set_state(id, state) {
                Ok(()) => Answer::State,
                Err(code) => Answer::Refused(code),
            },
            ClientContent::Invalid(..) => Answer::Refused(400),
        }
    }

    fn set_state(&mut self, id: &DeviceId, state: &str) -> Result<(), Refusal> {
        if !acts::STATES.contains(&state) {
            return Err(400);
        }
        self.truth.devices.get_mut(id).ok_or(404_u16)?.state = state.into();
        Ok(())
    }

    fn updated(
        &mut self,
        now: u64,
        id: &DeviceId,
        updates: &[(Box<str>, PropertyUpdate)],
    ) -> Result<(), Refusal> {
        self.truth.update(id, updates)?;
        self.reported.accept(now, id, updates);
        Ok(())
    }

    fn expect_call(&mut self, now: u64, call: &ManagerCall) -> Result<(), Refusal> {
        match call {
            ManagerCall::Register { .. } => Ok(()),
            ManagerCall::ReportStatus { device, twins } => {
                let updates: Vec<_> = twins.iter().map(|it| self.reported(device, it)).collect();
                self.updated(now, device, &updates)
            }
            ManagerCall::ReportState { device, state } => {
                self.set_state(device, state)?;
                if self.has_clients {
                    self.expected.states.push_back((device.clone(), state.clone()));
                }
                Ok(())
            }
        }
    }

    /// What a mapper observed as desired counts only where nothing is expected.
    fn reported(&self, id: &DeviceId, twin: &ReportedTwin) -> (Box<str>, PropertyUpdate) {
        let ReportedTwin { property, expected, actual } = twin.clone();
        let is_open = self.truth.devices.contains_key(id) && !self.truth.expects(id, &property);
        let expected = expected.filter(|value| is_open && !value.is_empty());
        let type_name = Box::default();
        (property, PropertyUpdate::Set { expected, actual, optional: None, type_name })
    }

    /// The store has these objects, and the agent knows it.
    fn objects_are(&mut self, store: &Store) {
        let mut objects = BTreeMap::new();
        for (key, stored) in store.iter() {
            if &*stored.row.kind != "device" {
                continue;
            }
            let object: Value = serde_json::from_str(&stored.row.value).expect("a stored object");
            let id = id_in(&object);
            let is_own = object["spec"]["nodeName"] == NODE
                && **key == *format!("{}/device/{}", id.namespace(), id.name());
            if is_own {
                objects.insert(id, object);
            }
        }
        let members = self.truth.objects(&objects);
        self.members_change(members);
    }

    fn members_change(&mut self, members: Members) {
        for id in &members.removed {
            self.remote.forgotten(id);
            self.reported.forget(id);
        }
        let Members { added, removed } = members;
        for members in
            [Members { removed, ..Members::default() }, Members { added, ..Members::default() }]
        {
            if members.is_empty() {
                continue;
            }
            self.counts.push("devices come and go");
            if self.has_clients {
                self.expected.members.push_back(members);
            }
        }
    }

    /// A message of the cloud about twins.
    fn message(&mut self, message: &Message) {
        if !message.header.parent_id.is_empty() {
            return self.remote.confirmed(&message.header.parent_id);
        }
        let content = content(message);
        let list = |name: &str| -> Vec<DeviceId> {
            let all = content[name].as_array().into_iter().flatten();
            all.map(|it| DeviceId::of(it["id"].as_str().expect("an id"))).collect()
        };
        let (mut added, mut removed) = (Members::default(), Members::default());
        match &*message.route.resource {
            "membership" => {
                for id in list("added_devices") {
                    self.truth.add(&id, &mut added);
                }
                let gone = list("removed_devices");
                self.truth.remove(|id| gone.contains(id), &mut removed);
            }
            "membership/detail" => {
                let all = list("devices");
                for id in &all {
                    self.truth.add(id, &mut added);
                }
                self.truth.remove(|id| !all.contains(id), &mut removed);
            }
            other => {
                if let Some(id) = other.strip_prefix("device/") {
                    self.attributes_change(DeviceId::of(id), &content["attributes"]);
                }
            }
        }
        self.members_change(added);
        self.members_change(removed);
    }

    fn attributes_change(&mut self, id: DeviceId, given: &Value) {
        let changes = self.truth.change_attributes(&id, given);
        if !changes.is_empty() {
            self.counts.push("changes of attributes");
            if self.has_clients {
                self.expected.attributes.push_back((id, changes));
            }
        }
    }

    // ---- what the agent does ----

    fn performs(&mut self, now: u64, action: DeviceAction, deadline: u64) {
        match action {
            DeviceAction::Publish(publication) => self.published(now, &publication),
            DeviceAction::Answer(id, answer) => self.answers_mapper(now, id, &answer),
            DeviceAction::Call { id, socket, call, .. } => {
                trace!(now, "{id:?} calls {socket}: {call:?}");
                let at = self.mappers.iter().position(|it| it.registration().address == socket);
                let at = at.expect("a mapper that has registered");
                self.asked.insert(id, (at, Some(call.clone())));
                self.called(now, (id, &socket), call, deadline);
            }
            DeviceAction::CheckSocket { id, socket } => {
                let at = self.mappers.iter().position(|it| it.registration().address == socket);
                self.asked.insert(id, (at.expect("a mapper that has registered"), None));
                self.checked(id, &socket);
            }
            DeviceAction::Subscribe(_)
            | DeviceAction::Unsubscribe(_)
            | DeviceAction::Pass { .. } => {
                panic!("the cloud has no rules: {action:?}")
            }
        }
    }

    fn answers_mapper(&mut self, now: u64, id: ManagerCallId, answer: &ManagerAnswer) {
        trace!(now, "  {id:?} is answered by {answer:?}");
        let expected = self.expected.calls.remove(&id);
        let fits = match (&expected, answer) {
            // A registration that could not be stored.
            (Some(Ok(())), ManagerAnswer::TooMany(_)) => self.is_registration(id),
            (Some(Ok(())), ManagerAnswer::Done | ManagerAnswer::Registered { .. })
            | (Some(Err(404)), ManagerAnswer::NotFound(_))
            | (Some(Err(400)), ManagerAnswer::Invalid(_)) => true,
            (Some(_) | None, _) => false,
        };
        judge!(fits, "[mapper answered] {id:?} by {answer:?}, expected {expected:?}");
        let is_it = |it: &Mapper| it.state == State::Registers(id);
        let Some(at) = self.mappers.iter().position(is_it) else { return };
        if matches!(answer, ManagerAnswer::TooMany(_)) {
            self.count("registrations not stored");
            self.mappers[at].die();
            self.timers.push((1_000, DeviceDue::Starts(at)));
        }
        if let ManagerAnswer::Registered { models, devices } = answer {
            self.mappers[at].registered(models, devices);
            self.count("mappers registered");
            let (ms, process) = (1 + self.chance.spread(5_000), self.mappers[at].process);
            self.timers.push((ms, DeviceDue::Listens(at, process)));
        }
    }

    fn published(&mut self, now: u64, publication: &Publication) {
        trace!(now, "  publishes {publication:?}");
        let Publication { event_id, content, .. } = publication;
        judge!(self.has_clients, "[client answered] {content:?} is published for nobody");
        match content {
            Published::MembersChanged { added, removed } => {
                let id = |member: &Member| member.id.clone();
                let got = Members {
                    added: added.iter().map(id).collect(),
                    removed: removed.iter().cloned().collect(),
                };
                let expected = self.expected.members.pop_front();
                judge!(
                    expected.as_ref() == Some(&got),
                    "[members] {got:?} is published, expected {expected:?}"
                );
                return;
            }
            Published::Attributes(id, changes) => {
                let expected = self.expected.attributes.pop_front();
                judge!(
                    expected.as_ref().is_some_and(|(of, all)| (of, all) == (id, changes)),
                    "[attributes] {changes:?} of {id} are published, expected {expected:?}"
                );
                return;
            }
            Published::Document(..) | Published::Delta { .. } => return,
            Published::Updated(..)
            | Published::Refused(..)
            | Published::Members(_)
            | Published::Twins(..)
            | Published::State(..) => {}
        }
        let expected = self.expected.answers.remove(event_id);
        match (expected, content) {
            (Some(Answer::Refused(code)), Published::Refused(_, _, got, why)) => {
                judge!(code == *got, "[client answered] by {got} {why}, expected {code}");
            }
            (Some(Answer::Updated), Published::Updated(..))
            | (Some(Answer::State), Published::State(..)) => {}
            (Some(Answer::Twins(id, known)), Published::Twins(got, twins)) => {
                let differs = known.differs(twins);
                judge!(
                    id == *got && differs.is_none(),
                    "[twins] {id}: {}",
                    differs.unwrap_or_default()
                );
            }
            (Some(Answer::Members(ids)), Published::Members(members)) => {
                let got: Vec<DeviceId> = members.iter().map(|it| it.id.clone()).collect();
                judge!(ids == got, "[members] {got:?} are shown, expected {ids:?}");
            }
            (None, Published::State(id, state)) => {
                self.state_published(now, id, &state.state);
            }
            // What a mapper reports has no id, and is answered to the mapper.
            (None, Published::Updated(..)) if event_id.is_empty() => {}
            (_, content) => {
                judge!(false, "[client answered] {event_id} by {content:?}, which is not expected");
            }
        }
    }

    /// A state that a mapper has reported; or a mapper is lost.
    fn state_published(&mut self, now: u64, id: &DeviceId, state: &str) {
        let front = self.expected.states.front();
        if front.is_some_and(|(device, reported)| device == id && **reported == *state) {
            self.expected.states.pop_front();
            return;
        }
        let lost = |it: &Mapper| it.unreachable_since.is_some_and(|at| now - at >= MAPPER_LOST_MS);
        let known = self.truth.devices.get_mut(id).expect("it is published");
        let was_online = matches!(&*known.state, "online" | "ok");
        judge!(
            state == "unknown" && was_online && self.mappers.iter().any(lost),
            "[lost mapper] {id} is {state:?}, and was {:?}",
            known.state
        );
        known.state = state.into();
        self.counts.push("devices unknown");
    }

    fn is_registration(&self, id: ManagerCallId) -> bool {
        let is_it = |it: &Mapper| it.state == State::Registers(id);
        self.mappers.iter().any(is_it) || self.expected.ended.contains(&id)
    }

    /// All requests of the events before this step are answered.
    fn stepped(&mut self) {
        let Expected { answers, calls, members, states, attributes, .. } = &self.expected;
        // A mapper's registration is answered once it is durable.
        let is_answered = answers.is_empty() && calls.keys().all(|id| self.is_registration(*id));
        judge!(is_answered, "[client answered] {} requests have no answer", answers.len());
        let is_told = members.is_empty() && states.is_empty();
        judge!(is_told, "[members] {members:?} and {states:?} are not published");
        judge!(attributes.is_empty(), "[attributes] {attributes:?} are not published");
    }
}

// ---- in the world ----

impl CloudSim {
    pub(super) fn devices_receive(&mut self, now: u64, event: &Event) {
        let Some(devices) = &mut self.devices else { return };
        match event {
            Event::Device(event) => devices.receives(now, event),
            Event::Loaded(saved) => {
                let rows = Rows::of(&saved.devices);
                devices.reported.judge(devices.ended_at, &rows);
                devices.is_loaded = true;
                devices.truth.load(&rows);
                devices.objects_are(&self.store);
            }
            Event::Saved(_) if std::mem::take(&mut devices.is_written) => {
                devices.objects_are(&self.store);
            }
            Event::SaveFailed(..) => devices.reported.save_failed(),
            Event::LinkUp(session, _) if self.link.known_up == Some(*session) => {
                devices.remote.link_up();
            }
            _ => {}
        }
    }

    /// The agent receives a message of the cloud.
    pub(super) fn devices_message(&mut self, message: &Message) {
        if let Some(devices) = &mut self.devices
            && &*message.route.group == "twin"
        {
            devices.message(message);
        }
    }

    /// The agent sends a message.
    pub(super) fn devices_send(&mut self, now: u64, message: &Message) {
        if let Some(devices) = &mut self.devices
            && &*message.route.source == "twin"
        {
            let DeviceSim { remote, rows, .. } = &mut **devices;
            remote.sends(now, message, rows);
        }
    }

    pub(super) fn devices_written(&mut self, change: DeviceChange) {
        self.devices.as_mut().expect("only where there are devices").rows.write(change);
    }

    /// A row of an object was written.
    pub(super) fn devices_object_written(&mut self, key: &str) {
        if let Some(devices) = &mut self.devices {
            devices.is_written |= key.contains("/device/");
        }
    }

    /// A report of the node has arrived.
    pub(super) fn devices_report(&mut self, now: u64, conn: u64, message: &Message, is_mute: bool) {
        let Some(devices) = &mut self.devices else { return };
        let answers = devices.remote.receives(now, message, &self.api, &mut devices.chance);
        for (resource, content) in answers.into_iter().filter(|_| !is_mute) {
            let parent = if resource == "twin" { &*message.header.id } else { "" };
            let operation = if resource == "twin" { "response" } else { "update" };
            let mut answer = self.hub.message(operation, resource, parent, &content);
            answer.route.group = "twin".into();
            answer.route.source = "devicecontroller".into();
            let devices = self.devices.as_mut().expect("there are some");
            if devices.chance.percent(devices.rates.twice_pct) {
                self.answer_later(conn, answer.clone());
            }
            self.answer_later(conn, answer);
        }
    }

    pub(super) fn devices_begin_life(&mut self, saved: &mut Saved) {
        let Some(devices) = &mut self.devices else { return };
        saved.devices = devices.rows.stored();
        devices.life = self.life;
        devices.expected = Expected::default();
        devices.asked.clear();
        devices.is_written = false;
        devices.is_loaded = false;
        devices.remote.link_up();
        devices.report_again(1_000);
        for at in 0..devices.mappers.len() {
            devices.mappers[at].begin_life();
            // Its registration was not answered: it ends, and is started again.
            if matches!(devices.mappers[at].state, State::Registers(_)) {
                devices.mappers[at].die();
                devices.timers.push((1_000, DeviceDue::Starts(at)));
            }
        }
    }

    /// The events that the agent has not received are lost with it.
    pub(super) fn devices_die(&mut self, now: u64) {
        if let Some(devices) = &mut self.devices {
            devices.events.clear();
            devices.ended_at = now;
        }
    }

    pub(super) fn devices_lose_store(&mut self) {
        if let Some(devices) = &mut self.devices {
            devices.rows = Rows::default();
            devices.remote.lost();
            devices.reported = Reported::default();
            devices.is_lost = true;
        }
    }

    /// Moves the outputs to those of the cloud.
    pub(super) fn devices_settle(&mut self) {
        let Some(devices) = &mut self.devices else { return };
        let timers = std::mem::take(&mut devices.timers);
        self.timers.extend(timers.into_iter().map(|(ms, due)| (ms, Due::Device(due))));
        self.events.append(&mut devices.events);
        for what in std::mem::take(&mut devices.counts) {
            *self.counts.entry(what).or_default() += 1;
        }
    }
}

impl World {
    /// The agent does something about devices.
    pub(crate) fn device_requested(&mut self, action: DeviceAction) {
        let now = self.clocks.now();
        let deadline = match &action {
            DeviceAction::Call { deadline, .. } => self.clocks.world_time(*deadline),
            _ => 0,
        };
        let cloud = self.cloud.as_mut().expect("devices are the cloud's");
        let devices = cloud.devices.as_mut().expect("only where there are devices");
        devices.performs(now, action, deadline);
        self.cloud_settle();
    }

    pub(crate) fn has_devices(&self) -> bool {
        self.cloud.as_deref().is_some_and(|cloud| cloud.devices.is_some())
    }

    /// The agent exits, in time for all that it wants to do before.
    pub(crate) fn devices_exit(&self) {
        let Some(devices) = self.cloud.as_deref().and_then(|cloud| cloud.devices.as_deref()) else {
            return;
        };
        let unsaved = devices.truth.differs(&devices.rows);
        judge!(unsaved.is_none(), "[saved before exit] {}", unsaved.unwrap_or_default());
    }

    /// The agent has taken a step, and performed all of it.
    pub(crate) fn devices_stepped(&mut self) {
        let is_leaving = self.leaving.is_some();
        if let Some(devices) = self.cloud.as_mut().and_then(|cloud| cloud.devices.as_mut())
            && !is_leaving
        {
            devices.stepped();
        }
    }
}

impl CloudSim {
    /// An event of devices is due.
    pub(super) fn device_due(&mut self, now: u64, due: DeviceDue, user_change_ms: u64) {
        let Some(devices) = &mut self.devices else { return };
        match due {
            DeviceDue::Act => devices.act(now),
            DeviceDue::UserChange => self.users_change_devices(now, user_change_ms),
            DeviceDue::Taken(serial) => devices.taken(now, serial),
            DeviceDue::Replies(serial) => devices.replies(serial),
            DeviceDue::Expires(serial) => devices.expires(serial),
            DeviceDue::Starts(at) => devices.starts(now, at),
            DeviceDue::Listens(at, process) => devices.listens(at, process),
            DeviceDue::ReportsAgain(life) => devices.reports_again(life),
        }
    }

    fn models(api: &Api) -> BTreeMap<DeviceId, Value> {
        let models = api.iter().filter(|(key, _)| key.contains("/devicemodel/"));
        models.map(|(_, object)| (id_in(object.value()), object.value().clone())).collect()
    }
}
