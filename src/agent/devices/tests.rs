//! The core of devices alone: what a client, a mapper and the cloud see of it. Many worlds with
//! faults are the simulator's (`tests/sim/cloud/devices`), where the core has a store and a link.

mod attributes;
mod mappers;
mod saves;
mod view;

use super::*;
use crate::core::time::Wall;
use crate::limits::{
    DEVICE_CONFIRM_MS, DEVICE_GATHER_MS, DEVICE_MESSAGE_MS, DEVICE_PROPERTIES_MAX, DEVICE_SAVE_MS,
    DEVICE_SENDS_MAX, MAPPER_CALL_MS, MAPPER_CHECK_MS, MAPPER_LOST_MS, MAPPER_REFUSED_MAX_MS,
    MAPPER_REFUSED_MIN_MS, MAPPER_REMOVALS_MAX, MAPPER_RETRY_MAX_MS, MAPPER_RETRY_MIN_MS,
    MAPPERS_MAX, NODE_DEVICES_MAX, TWIN_MARK_MS, TWIN_NAME_BYTES_MAX, TWIN_REFRESH_MS,
    TWIN_SAVE_MS, TWIN_VERSIONS_RESERVED, TWINS_MAX,
};
use crate::model::device::{
    DELETED, GivenSide, GivenTwin, ManagerCallId, MapperCall, MapperCallId, MapperError, TwinRow,
    TwinVersion,
};

/// A core with one clock, of which every save succeeds.
struct World {
    devices: Devices,
    now: Now,
    rng: Rng,
    actions: Vec<DeviceAction>,
    saved: Vec<DeviceChange>,
    objects: Vec<Arc<DeviceObject>>,
    models: Vec<Arc<ModelObject>>,
    messages: u32,
    /// Saves what is due in each step, with success.
    saves: bool,
}

impl World {
    fn new() -> Self {
        Self::with(StoredDevices::default(), &[])
    }

    fn with(stored: StoredDevices, mappers: &[Mapper]) -> Self {
        let now = Now { boot: Instant(1_000_000), wall: Some(Wall(1_800_000_000_000)) };
        let mut devices = Devices::new("edge1", true, now);
        devices.load(now, stored, mappers.iter().cloned(), Vec::new());
        let (actions, saved, objects, models) = Default::default();
        let rng = Rng::new(7);
        Self { devices, now, rng, actions, saved, objects, models, messages: 0, saves: true }
    }

    /// With a device, a link to the cloud, and nothing that is not saved.
    fn linked() -> Self {
        let mut world = Self::new();
        world.device("dev1", "", 1);
        world.pass(TWIN_SAVE_MS);
        world.link_up();
        world
    }

    /// Time passes.
    fn pass(&mut self, ms: u64) {
        self.now.boot = self.now.boot.plus_ms(ms);
        self.now.wall = self.now.wall.map(|wall| Wall(wall.0 + ms as i64));
    }

    /// Steps, and saves what is due.
    fn step(&mut self) -> Vec<DeviceAction> {
        let mut out = Out::default();
        loop {
            let is_due = self.devices.save_at(self.now).is_some_and(|at| at <= self.now.boot);
            if self.saves && is_due {
                self.saved.extend(self.devices.begin_save(self.now));
                self.devices.end_save(self.now, true);
            }
            self.devices.step(self.now, &mut self.rng, &mut out);
            // A call waits until its object is stored as in doubt.
            if !self.saves || !self.devices.mappers.has_unsaved() {
                break;
            }
        }
        for action in out.actions {
            if let Action::Device(action) = action {
                self.actions.push(*action);
            }
        }
        std::mem::take(&mut self.actions)
    }

    fn handle(&mut self, event: DeviceEvent) -> Vec<DeviceAction> {
        self.devices.handle(self.now, event, &mut self.rng);
        self.step()
    }

    /// The cloud has these objects.
    fn take_objects(&mut self) -> Vec<DeviceAction> {
        let (objects, models) = (self.objects.clone(), self.models.clone());
        self.devices.objects_changed(
            self.now,
            objects.iter(),
            models.into_iter(),
            |_| false,
            &mut self.rng,
        );
        self.step()
    }

    fn device(&mut self, name: &str, desired: &str, version: u32) -> Vec<DeviceAction> {
        let text = format!(
            r#"{{"metadata":{{"name":"{name}","namespace":"default","uid":"u","resourceVersion":
            "{version}"}},"spec":{{"deviceModelRef":{{"name":"model1"}},"nodeName":"edge1",
            "properties":[{{"name":"temp","desired":{{"value":"{desired}"}}}}],
            "protocol":{{"protocolName":"modbus"}}}}}}"#
        );
        let object = Arc::new(DeviceObject::read(&text).expect("a device"));
        self.objects.retain(|other| other.id != object.id);
        self.objects.push(object);
        self.take_objects()
    }

    fn model(&mut self, kind: &str) -> Vec<DeviceAction> {
        let text = format!(
            r#"{{"metadata":{{"name":"model1","namespace":"default"}},
            "spec":{{"properties":[{{"name":"temp","type":"{kind}"}}]}}}}"#
        );
        self.models = vec![Arc::new(ModelObject::read(&text).expect("a model"))];
        self.take_objects()
    }

    fn update(&mut self, event: &str, update: PropertyUpdate) -> Vec<Published> {
        self.update_of("temp", event, update)
    }

    fn update_of(&mut self, name: &str, event: &str, update: PropertyUpdate) -> Vec<Published> {
        let content = ClientContent::TwinUpdate(dev1(), vec![(name.into(), update)]);
        let request = ClientRequest { event_id: event.into(), content };
        published(self.handle(DeviceEvent::Request(request)))
    }

    fn state(&mut self, state: &str) -> Vec<Published> {
        let content = ClientContent::State(dev1(), state.into());
        let request = ClientRequest { event_id: "s".into(), content };
        published(self.handle(DeviceEvent::Request(request)))
    }

    fn call(&mut self, call: ManagerCall) -> (ManagerAnswer, Vec<DeviceAction>) {
        let mut actions = self.handle(DeviceEvent::Called(ManagerCallId(1), call));
        let at = actions.iter().position(|it| matches!(it, DeviceAction::Answer(..)));
        match actions.remove(at.expect("each call is answered")) {
            DeviceAction::Answer(_, answer) => (answer, actions),
            _ => unreachable!("it is an answer"),
        }
    }

    fn register(&mut self, name: &str, with_data: bool) -> (ManagerAnswer, Vec<DeviceAction>) {
        self.call(ManagerCall::Register { mapper: mapper(name), with_data })
    }

    /// The mapper answers the call of this id.
    fn answer(&mut self, id: MapperCallId, answer: Result<(), MapperError>) -> Vec<DeviceAction> {
        self.handle(DeviceEvent::Answered(id, answer))
    }

    /// The report that is due is sent; its message id.
    fn report(&mut self) -> Option<(Box<str>, DeviceUpstream)> {
        let (device, report) = self.devices.report(self.now)?;
        self.messages += 1;
        let id: Box<str> = self.messages.to_string().into();
        if let Some(device) = device {
            self.devices.sent(self.now, &device, id.clone());
        }
        Some((id, report))
    }

    fn confirm(&mut self, id: &str) {
        let message = DeviceDownstream::Confirmed(id.into());
        self.devices.message(self.now, message, &mut self.rng);
    }

    /// The link comes up, and the list of devices is requested.
    fn link_up(&mut self) {
        self.devices.link_up(self.now);
        let Some((_, DeviceUpstream::GetDetail(node))) = self.report() else {
            panic!("the list is requested first")
        };
        assert_eq!(&*node, "edge1");
    }

    /// The values that the cloud gets, `None`: nothing is due.
    fn reported(&mut self) -> Option<(Box<str>, String)> {
        let (id, report) = self.report()?;
        let DeviceUpstream::Twins(_, twins) = report else { panic!("{report:?}") };
        let twin = &twins["temp"];
        let text = |side: &Option<crate::model::device::TwinSide>| {
            side.as_ref().map_or("-".to_owned(), |side| side.text().to_owned())
        };
        Some((id, format!("{} {}", text(&twin.expected), text(&twin.actual))))
    }

    fn twin(&self) -> crate::model::device::Twin {
        self.devices.table.get(&dev1()).expect("it is there").twins()["temp"].clone()
    }

    /// The rows of the property that were saved since the last call.
    fn rows(&mut self) -> Vec<TwinRow> {
        let saved = std::mem::take(&mut self.saved);
        let rows = saved.into_iter().filter_map(|change| match change {
            DeviceChange::PutTwin(row) => Some(*row),
            _ => None,
        });
        rows.collect()
    }
}

fn device_row(world: &World) -> crate::model::device::DeviceRow {
    let device = world.devices.table.get(&dev1()).expect("it is there");
    crate::model::device::DeviceRow {
        id: dev1(),
        description: device.description().into(),
        state: device.state().clone(),
        is_unsent: false,
        uid: Some("u".into()),
    }
}

fn dev1() -> DeviceId {
    DeviceId::new("default", "dev1")
}

fn mapper(name: &str) -> Mapper {
    Mapper {
        name: name.into(),
        protocol: "modbus".into(),
        address: format!("/run/{name}.sock").into(),
        ..Mapper::default()
    }
}

fn set(expected: Option<&str>, actual: Option<&str>) -> PropertyUpdate {
    let [expected, actual] = [expected, actual].map(|value| value.map(Into::into));
    PropertyUpdate::Set { expected, actual, optional: None, type_name: Box::default() }
}

fn actual(value: &str) -> PropertyUpdate {
    set(None, Some(value))
}

fn published(actions: Vec<DeviceAction>) -> Vec<Published> {
    let contents = actions.into_iter().filter_map(|action| match action {
        DeviceAction::Publish(publication) => Some(publication.content),
        _ => None,
    });
    contents.collect()
}

/// The one call to a mapper among these.
fn called(actions: Vec<DeviceAction>) -> Option<(MapperCallId, MapperCall)> {
    let mut calls = actions.into_iter().filter_map(|action| match action {
        DeviceAction::Call { id, call, .. } => Some((id, call)),
        _ => None,
    });
    let call = calls.next();
    assert!(calls.next().is_none(), "one call at a time");
    call
}

fn refusal(published: &[Published]) -> (u16, &str) {
    match published {
        [Published::Refused(_, _, code, why)] => (*code, why),
        other => panic!("{other:?}"),
    }
}

// ---- clients ----

#[test]
fn an_update_is_answered_with_result_document_and_delta() {
    let mut world = World::new();
    world.device("dev1", "", 1);
    let got = world.update("u1", set(Some("20"), Some("19")));
    let [Published::Updated(..), Published::Document(_, changes), Published::Delta { delta, .. }] =
        &got[..]
    else {
        panic!("{got:?}")
    };
    assert!(changes[0].1.last.is_none() && changes[0].1.current.is_some());
    assert_eq!(delta[..], [("temp".into(), "20".into())]);
    let got = world.update("u2", actual("20"));
    assert!(matches!(got[..], [Published::Updated(..), Published::Document(..)]), "{got:?}");
    let got = world.update("u3", actual("20"));
    assert!(matches!(got[..], [Published::Updated(..)]), "nothing has changed: {got:?}");
    assert_eq!(world.twin().actual.expect("it was set").version, TwinVersion { cloud: 0, edge: 2 });
}

#[test]
fn wrong_updates_are_refused_with_edgecores_reasons_and_change_nothing() {
    let mut world = World::new();
    let unknown = world.update("u", actual("1"));
    assert_eq!(refusal(&unknown), (404, "update rejected due to the device is not existed"));
    world.device("dev1", "", 1);
    let got = world.update("u", PropertyUpdate::Delete);
    assert!(matches!(&got[..], [Published::Updated(_, names)] if names.is_empty()), "{got:?}");
    let typed = |type_name: &str, value: &str| PropertyUpdate::Set {
        expected: None,
        actual: Some(value.into()),
        optional: None,
        type_name: type_name.into(),
    };
    for (type_name, value, why) in [
        ("int", "abc", "the value is not int or integer"),
        ("float", "x", "the value is not float"),
        ("boolean", "True", "the bool value must be true or false"),
        ("bytes", "%", "the value is not base64"),
        ("colour", "red", "the value type is not allowed"),
        ("string", &"x".repeat(513), "the length of value should be less than 512 bytes"),
    ] {
        let got = world.update("u", typed(type_name, value));
        assert_eq!(refusal(&got), (400, why), "{type_name}");
    }
    for name in ["", "a b", &"x".repeat(TWIN_NAME_BYTES_MAX + 1)] {
        let content = ClientContent::TwinUpdate(dev1(), vec![(name.into(), actual("1"))]);
        let request = ClientRequest { event_id: "u".into(), content };
        let got = published(world.handle(DeviceEvent::Request(request)));
        assert!(refusal(&got).1.starts_with("The key of twin must only include"), "{name}");
    }
    let both = vec![("good".into(), actual("1")), ("temp".into(), typed("int", "x"))];
    let content = ClientContent::TwinUpdate(dev1(), both);
    world.handle(DeviceEvent::Request(ClientRequest { event_id: "u".into(), content }));
    let twins = world.devices.table.get(&dev1()).expect("it is there").twins();
    assert!(!twins.contains_key("good"), "all or nothing");
    for (type_name, value) in [("double", "6E+01"), ("bytes", "AAE="), ("float", "inf")] {
        let got = world.update("u", typed(type_name, value));
        assert!(matches!(got[0], Published::Updated(..)), "{type_name}: {got:?}");
        world.update("u", PropertyUpdate::Delete);
    }
}

#[test]
fn a_deleted_property_leaves_a_tombstone_whose_versions_go_on() {
    let mut world = World::new();
    world.device("dev1", "", 1);
    world.update("u1", set(Some("20"), Some("19")));
    let got = world.update("u2", PropertyUpdate::Delete);
    let [Published::Updated(_, answers), Published::Document(_, changes)] = &got[..] else {
        panic!("{got:?}")
    };
    assert!(answers[0].1.is_none() && changes[0].1.current.is_none());
    let row = world.rows().pop().expect("it is saved at once");
    assert_eq!((&*row.twin.type_name, row.twin.expected.and_then(|it| it.value)), (DELETED, None));
    let got = world.update("u3", actual("5"));
    let [Published::Updated(_, answers), Published::Document(_, changes)] = &got[..] else {
        panic!("{got:?}")
    };
    let answer = answers[0].1.as_ref().expect("it is there again");
    assert!(answer.expected.is_none() && answer.actual.is_some(), "what was given");
    let twin = changes[0].1.current.clone().expect("it is there again");
    let [expected, actual] = [twin.expected, twin.actual].map(|side| side.expect("as before"));
    assert_eq!((expected.value, expected.version.edge), (None, 2));
    assert_eq!((actual.text(), actual.version.edge), ("5", 3));
    let kept = PropertyUpdate::Set {
        expected: None,
        actual: None,
        optional: Some(false),
        type_name: Box::default(),
    };
    world.update("u4", kept);
    let got = world.update("u5", PropertyUpdate::Delete);
    assert!(matches!(&got[..], [Published::Updated(_, none)] if none.is_empty()), "{got:?}");
}

#[test]
fn states_are_those_of_kubeedge_and_others_are_refused_with_an_answer() {
    let mut world = World::new();
    assert_eq!(refusal(&world.state("online")).0, 404);
    world.device("dev1", "", 1);
    assert_eq!(refusal(&world.state("disconnected")).0, 400);
    let got = world.state("ONLINE");
    let [Published::State(_, state)] = &got[..] else { panic!("{got:?}") };
    assert_eq!((&*state.state, &*state.last_online), ("ONLINE", "2027-01-15T08:00:00Z"));
    let got = world.state("offline");
    let [Published::State(_, state)] = &got[..] else { panic!("{got:?}") };
    assert_eq!((&*state.state, &*state.last_online), ("offline", ""));
}

#[test]
fn properties_and_devices_have_a_bound() {
    let mut world = World::new();
    world.device("dev1", "", 1);
    let many = |from: usize, count: usize| {
        let names = (from..from + count).map(|n| (format!("p{n}").into(), actual("1")));
        ClientContent::TwinUpdate(dev1(), names.collect())
    };
    let mut ask = |content| {
        let request = ClientRequest { event_id: "u".into(), content };
        published(world.handle(DeviceEvent::Request(request)))
    };
    ask(many(0, DEVICE_PROPERTIES_MAX));
    assert_eq!(refusal(&ask(many(DEVICE_PROPERTIES_MAX, 1))).0, 400);
    assert!(
        matches!(ask(many(0, 1))[0], Published::Updated(..)),
        "those that are there may change"
    );
    let none = vec![("none".into(), PropertyUpdate::Delete)];
    assert!(
        matches!(ask(ClientContent::TwinUpdate(dev1(), none))[0], Published::Updated(..)),
        "what does not exist needs no room"
    );

    let mut world = World::new();
    let given = |n: usize| GivenDevice {
        id: DeviceId::of(&format!("d{n}")),
        description: Box::default(),
        attributes: None,
        twins: (0..9).map(|at| (format!("p{at}").into(), GivenTwin::default())).collect(),
    };
    let added = (0..=NODE_DEVICES_MAX).map(given).collect();
    let message = DeviceDownstream::Membership { added, removed: Vec::new() };
    world.devices.message(world.now, message, &mut world.rng);
    assert_eq!(world.devices.table.iter().count(), NODE_DEVICES_MAX);
    let twins: usize = world.devices.table.iter().map(|(_, device)| device.count()).sum();
    assert_eq!(twins, TWINS_MAX);
}

// ---- the cloud ----

#[test]
fn a_desired_value_is_expected_when_it_changes_and_an_echo_undoes_nothing() {
    let mut world = World::new();
    let got = published(world.device("dev1", "20", 7));
    let [Published::MembersChanged { .. }, Published::Document(..), last] = &got[..] else {
        panic!("{got:?}")
    };
    let Published::Delta { delta, .. } = last else { panic!("{last:?}") };
    assert_eq!(delta[..], [("temp".into(), "20".into())]);
    let version = TwinVersion { cloud: 7, edge: 0 };
    assert_eq!(world.twin().expected.expect("it is desired").version, version);
    world.update("u", set(Some("30"), None));
    for version in [8, 9] {
        let got = published(world.device("dev1", "20", version));
        assert!(got.is_empty(), "an echo: {got:?}");
    }
    assert_eq!(world.twin().expected.expect("ours").text(), "30");
    world.device("dev1", "21", 10);
    assert_eq!(world.twin().expected.expect("it has changed").text(), "21");
    world.device("dev1", "", 11);
    assert_eq!(world.twin().expected.expect("nothing is desired").text(), "21");

    // The next process knows what it has seen.
    let row = world.rows().pop().expect("it is saved at once");
    assert_eq!(
        (row.desired.as_deref(), row.twin.expected.expect("it").text().into()),
        (Some(""), "21".to_owned())
    );
}

#[test]
fn what_a_mapper_observed_as_desired_undoes_nothing_either() {
    let mut world = World::new();
    world.device("dev1", "20", 1);
    let report = |expected: &str, actual: &str| ManagerCall::ReportStatus {
        device: dev1(),
        twins: vec![ReportedTwin {
            property: "temp".into(),
            expected: Some(expected.into()),
            actual: Some(actual.into()),
        }],
    };
    world.device("dev1", "25", 2);
    assert_eq!(world.call(report("20", "20")).0, ManagerAnswer::Done);
    assert_eq!(world.twin().expected.expect("it is desired").text(), "25");
    assert_eq!(world.twin().actual.expect("it is reported").text(), "20");
    let long = "x".repeat(513);
    assert!(matches!(world.call(report("", &long)).0, ManagerAnswer::Invalid(_)));
    let empty = ManagerCall::ReportStatus { device: dev1(), twins: Vec::new() };
    assert!(matches!(world.call(empty).0, ManagerAnswer::Invalid(_)));
    let unknown = DeviceId::new("default", "dev2");
    let unknown = ManagerCall::ReportState { device: unknown, state: "online".into() };
    assert!(matches!(world.call(unknown).0, ManagerAnswer::NotFound(_)));
}

#[test]
fn an_unconfirmed_report_is_repeated_with_the_value_of_then_and_given_up() {
    let mut world = World::linked();
    world.update("u", actual("1"));
    world.step();
    let mut sends = 1;
    world.reported().expect("it is sent");
    while sends < DEVICE_SENDS_MAX {
        world.pass(DEVICE_CONFIRM_MS - 1);
        assert!(world.reported().is_none(), "not before");
        world.pass(1);
        world.reported().expect("it is repeated");
        sends += 1;
    }
    world.pass(TWIN_SAVE_MS);
    assert!(world.reported().is_none() && world.devices.report_at(world.now).is_none());
    world.update("u", actual("2"));
    world.step();
    assert_eq!(world.reported().expect("it has changed").1, "- 2");
    world.link_up();
    assert_eq!(world.reported().expect("the link is new").1, "- 2");
}

#[test]
fn at_a_new_link_a_device_has_one_message_with_all_that_must_be_saved_first() {
    let mut world = World::new();
    world.device("dev1", "", 1);
    world.update("u", actual("1"));
    world.step();
    world.pass(TWIN_SAVE_MS);
    world.step();
    let properties = |report: Option<(Box<str>, DeviceUpstream)>| match report {
        Some((_, DeviceUpstream::Twins(_, twins))) => twins.len(),
        None => 0,
        other => panic!("{other:?}"),
    };
    for is_full in [false, true] {
        // A new property: its version must be saved first.
        world.saves = false;
        world.update("u", actual(&is_full.to_string()));
        world.update_of(&format!("rpm{is_full}"), "u", actual("7"));
        world.link_up();
        assert_eq!(properties(world.report()), 0, "it is being saved");
        if is_full {
            world.pass(DEVICE_GATHER_MS);
            assert_eq!(properties(world.report()), 1, "a full disk holds nothing else up");
        } else {
            world.saves = true;
            world.step();
            assert_eq!(properties(world.report()), 2);
        }
    }
}

#[test]
fn the_cloud_is_told_now_and_then_that_a_value_is_still_so() {
    let mut world = World::linked();
    world.update("u", actual("1"));
    world.step();
    let (id, _) = world.reported().expect("it is new");
    world.confirm(&id);
    world.pass(DEVICE_MESSAGE_MS);
    let (id, _) = world.reported().expect("the first one is repeated");
    world.confirm(&id);
    world.pass(TWIN_REFRESH_MS - 1);
    world.update("u", actual("1"));
    assert!(world.reported().is_none());
    world.pass(1);
    world.update("u", actual("1"));
    assert_eq!(world.reported().expect("ten minutes").1, "- 1");
}

#[test]
fn what_an_earlier_process_could_not_send_is_sent() {
    let mut world = World::new();
    world.device("dev1", "", 1);
    world.update("u", actual("1"));
    world.step();
    world.state("online");
    world.pass(TWIN_SAVE_MS);
    world.step();
    let mut stored = StoredDevices::default();
    for change in std::mem::take(&mut world.saved) {
        match change {
            DeviceChange::PutDevice(row) => stored.devices = vec![row],
            DeviceChange::PutTwin(row) => stored.twins = vec![*row],
            other => panic!("{other:?}"),
        }
    }
    let mut next = World::with(stored, &[]);
    next.objects = world.objects;
    let got = published(next.take_objects());
    assert!(got.is_empty(), "nothing of old is published: {got:?}");
    next.link_up();
    let (id, report) = next.report().expect("the state");
    assert!(matches!(report, DeviceUpstream::State(..)), "{report:?}");
    next.confirm(&id);
    assert!(next.reported().is_none(), "one message a second");
    next.pass(DEVICE_MESSAGE_MS);
    assert_eq!(next.reported().expect("the value").1, "- 1");
    // The object went while it was away.
    next.objects.clear();
    next.take_objects();
    assert!(matches!(next.saved[..], [.., DeviceChange::RemoveDevice(_)]), "{:?}", next.saved);
}

#[test]
fn membership_adds_and_removes_only_what_has_no_object() {
    let mut world = World::new();
    world.device("dev1", "", 1);
    let given = |id: &str| GivenDevice {
        id: DeviceId::of(id),
        description: Box::default(),
        attributes: None,
        twins: Vec::new(),
    };
    let mut say = |message| {
        world.devices.message(world.now, message, &mut world.rng);
        published(world.step())
    };
    let added = vec![given("default/dev1"), given("dev9")];
    let got = say(DeviceDownstream::Membership { added, removed: vec![dev1()] });
    let [Published::MembersChanged { added, removed }] = &got[..] else { panic!("{got:?}") };
    assert_eq!((added.len(), added[0].id.as_str(), removed.len()), (1, "dev9", 0));
    let got = say(DeviceDownstream::Detail(Vec::new()));
    let [Published::MembersChanged { added, removed }] = &got[..] else { panic!("{got:?}") };
    assert_eq!((added.len(), &removed[..]), (0, &[DeviceId::of("dev9")][..]));
}

#[test]
fn a_device_that_was_deleted_and_made_again_is_another_one() {
    let mut world = World::linked();
    world.update("u", actual("1"));
    world.step();
    world.saved.clear();
    let text = world.objects[0].text.replace(r#""uid":"u""#, r#""uid":"other""#);
    world.objects = vec![Arc::new(DeviceObject::read(&text).expect("a device"))];
    let got = published(world.take_objects());
    let [
        Published::MembersChanged { added: none, removed },
        Published::MembersChanged { added, removed: none_either },
    ] = &got[..]
    else {
        panic!("{got:?}")
    };
    assert!(none.is_empty() && none_either.is_empty());
    assert_eq!((&removed[..], &added[0].id), (&[dev1()][..], &dev1()));
    assert!(world.devices.table.get(&dev1()).expect("it is there").twins().is_empty());
    world.step();
    let [DeviceChange::RemoveDevice(_), DeviceChange::PutDevice(row)] = &world.saved[..] else {
        panic!("{:?}", world.saved)
    };
    assert_eq!(row.uid.as_deref(), Some("other"));
    // The next process knows of which object the row is.
    let stored = StoredDevices { devices: vec![row.clone()], ..StoredDevices::default() };
    let mut next = World::with(stored.clone(), &[]);
    next.objects.clone_from(&world.objects);
    assert!(published(next.take_objects()).is_empty(), "it is the same");
    let mut next = World::with(stored, &[]);
    let got = published(next.device("dev1", "", 1));
    assert!(matches!(got[..], [Published::MembersChanged { .. }, ..]), "it is another: {got:?}");
}

#[test]
fn the_cloud_changes_a_side_unless_the_node_has_a_newer_one() {
    let mut world = World::linked();
    let sync = |cloud: i64, edge: i64, value: &str| {
        let version = Some(TwinVersion { cloud, edge });
        let expected = Some(GivenSide { value: value.into(), version });
        let twin = GivenTwin { expected, type_name: "string".into(), ..GivenTwin::default() };
        DeviceDownstream::CloudUpdated(dev1(), vec![("temp".into(), twin)])
    };
    world.devices.message(world.now, sync(700, 0, "1"), &mut world.rng);
    world.step();
    assert_eq!(world.twin().expected.expect("it").text(), "1");
    let (id, _) = world.reported().expect("it goes up");
    world.confirm(&id);
    world.pass(DEVICE_MESSAGE_MS);
    world.devices.message(world.now, sync(600, 0, "2"), &mut world.rng);
    assert_eq!(world.twin().expected.expect("it").text(), "1");
    assert_eq!(world.reported().expect("the node's goes up").1, "1 -");
}
