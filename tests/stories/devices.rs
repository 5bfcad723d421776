//! Devices: what the cloud says of them, and what clients and mappers do.

use edged::agent::event::{DeviceAction, DeviceEvent, Event};
use edged::limits::{SHUTDOWN_MS, TWIN_MARK_MS};
use edged::model::device::{
    AttributeRow, ClientContent, ClientRequest, DeviceChange, DeviceId, ManagerAnswer, ManagerCall,
    ManagerCallId, Mapper, MapperCall, MapperCallId, PropertyUpdate, Published, StoredDevices,
    TwinSide, Upload,
};
use edged::model::message::{Message, Resource};
use edged::model::meta::{Change, DiskError, Row, Saved};
use edged::model::settings::DeviceSettings;
use serde_json::{Value, json};

use crate::cloud_harness::{CloudHarness, content, row};

/// The store has this content, and the link is up.
fn world(saved: Saved) -> CloudHarness {
    let mut cloud = CloudHarness::set_up(saved, |config| {
        config.devices = Some(DeviceSettings::default());
        "edge1".clone_into(&mut config.node_name);
    });
    cloud.connect();
    cloud
}

/// A recorded message (`tests/golden/devices`).
fn recorded(text: &str) -> Message {
    let file: Value = serde_json::from_str(text).expect("a recording");
    serde_json::from_value(file["message"].clone()).expect("a message")
}

pub fn device() -> Message {
    recorded(include_str!("../golden/devices/device.json"))
}

pub fn model() -> Message {
    recorded(include_str!("../golden/devices/devicemodel.json"))
}

/// Another version of the recorded device.
pub fn changed(change: impl FnOnce(&mut Value)) -> Message {
    let mut message = device();
    let mut object = content(&message);
    change(&mut object);
    message.header.id = "changed".into();
    message.content = Some(serde_json::value::to_raw_value(&object).expect("JSON"));
    message
}

fn dev1() -> DeviceId {
    DeviceId::new("default", "dev1")
}

fn published(cloud: &mut CloudHarness) -> Vec<Published> {
    let actions = std::mem::take(&mut cloud.devices);
    let contents = actions.into_iter().filter_map(|action| match action {
        DeviceAction::Publish(publication) => Some(publication.content),
        _ => None,
    });
    contents.collect()
}

pub fn handle(cloud: &mut CloudHarness, event: DeviceEvent) {
    cloud.harness.deliver(Event::Device(Box::new(event)));
    cloud.settle();
}

/// An MQTT client reports this value.
fn report(cloud: &mut CloudHarness, value: &str) {
    let update = PropertyUpdate::Set {
        expected: None,
        actual: Some(value.into()),
        optional: None,
        type_name: Box::default(),
    };
    let content = ClientContent::TwinUpdate(dev1(), vec![("temp".into(), update)]);
    let request = ClientRequest { event_id: "u".into(), content };
    handle(cloud, DeviceEvent::Request(request));
}

pub fn register(cloud: &mut CloudHarness) -> ManagerAnswer {
    let mapper = Mapper {
        name: "m1".into(),
        version: "v1.13.0".into(),
        api_version: "v1.0.0".into(),
        protocol: "modbus".into(),
        address: "/etc/kubeedge/modbus.sock".into(),
        state: "ok".into(),
    };
    let call = ManagerCall::Register { mapper, with_data: true };
    handle(cloud, DeviceEvent::Called(ManagerCallId(1), call));
    let answer = cloud.devices.iter().find_map(|action| match action {
        DeviceAction::Answer(_, answer) => Some(answer.clone()),
        _ => None,
    });
    answer.expect("it is answered")
}

/// The calls to mappers since the last look.
fn calls(cloud: &mut CloudHarness) -> Vec<(MapperCallId, MapperCall)> {
    let actions = std::mem::take(&mut cloud.devices);
    let calls = actions.into_iter().filter_map(|action| match action {
        DeviceAction::Call { id, call, .. } => Some((id, call)),
        _ => None,
    });
    calls.collect()
}

/// The actual values in reports to the cloud since the last look, with the messages.
fn values(cloud: &mut CloudHarness) -> Vec<(Message, String)> {
    let sent = cloud.take_sent("twin");
    let value = |message: &Message| {
        let value = content(message)["twin"]["temp"]["actual"]["value"].clone();
        value.as_str().unwrap_or("-").to_owned()
    };
    sent.into_iter().map(|message| (message.clone(), value(&message))).collect()
}

/// The cloud confirms this message as CloudCore does.
fn confirm(cloud: &mut CloudHarness, message: &Message) {
    let mut confirmation = Message::default();
    confirmation.header.id = "c".into();
    confirmation.header.parent_id = message.header.id.clone();
    let [source, group] = ["devicecontroller", "twin"];
    confirmation.route.source = source.into();
    confirmation.route.group = group.into();
    confirmation.route.operation = "response".into();
    confirmation.route.resource = "twin".into();
    confirmation.content = Some(serde_json::value::to_raw_value("OK").expect("JSON"));
    cloud.replay(&confirmation);
}

/// The cloud confirms all that is sent to it, until nothing more is.
fn confirm_all(cloud: &mut CloudHarness) {
    loop {
        let sent = values(cloud);
        if sent.is_empty() {
            return;
        }
        for (message, _) in sent {
            confirm(cloud, &message);
        }
        cloud.pass(2_000);
    }
}

/// What the store has after all that was saved.
pub fn kept(cloud: &CloudHarness) -> Saved {
    let mut rows: Vec<Row> = Vec::new();
    let mut devices = StoredDevices::default();
    for change in cloud.written.clone() {
        match change {
            Change::Put(row) => {
                rows.retain(|other| other.key != row.key);
                rows.push(row);
            }
            Change::Delete { key } => rows.retain(|other| other.key != key),
            #[cfg(feature = "metaserver")]
            Change::Item(_) => {}
            #[cfg(feature = "servicebus")]
            Change::TargetUrl(row) => panic!("{row:?}"),
            Change::SubTopic(row) => panic!("{row:?}"),
            Change::Device(DeviceChange::PutDevice(row)) => {
                devices.devices.retain(|other| other.id != row.id);
                devices.devices.push(row);
            }
            Change::Device(DeviceChange::RemoveDevice(id)) => {
                devices.devices.retain(|other| other.id != id);
                devices.twins.retain(|other| other.device != id);
            }
            Change::Device(DeviceChange::PutTwin(row)) => {
                devices.twins.retain(|other| other.property != row.property);
                devices.twins.push(*row);
            }
            Change::Device(DeviceChange::PutAttributes(device, attributes)) => {
                devices.attributes.retain(|other| other.device != device);
                let rows = attributes.into_iter().map(|(name, attribute)| {
                    let device = device.clone();
                    AttributeRow { device, name, attribute }
                });
                devices.attributes.extend(rows);
            }
            Change::Device(DeviceChange::PutAcknowledged(row)) => {
                devices.acknowledged.retain(|other| other.object != row.object);
                devices.acknowledged.push(row);
            }
            Change::Device(DeviceChange::RemoveAcknowledged(_, object)) => {
                devices.acknowledged.retain(|other| other.object != object);
            }
        }
    }
    rows.sort_by(|one, other| one.key.cmp(&other.key));
    let mut saved = Saved::kept(rows);
    saved.devices = devices;
    saved
}

#[test]
fn a_recorded_device_is_acknowledged_as_edgecore_does_and_its_desired_value_is_published() {
    let mut cloud = world(Saved::default());
    let membership = recorded(include_str!("../golden/devices/membership.json"));
    cloud.replay(&membership);
    assert!(cloud.answers(&membership.header.id).is_empty(), "it is not acknowledged");
    let got = published(&mut cloud);
    assert!(matches!(&got[..], [Published::MembersChanged { added, .. }] if added.len() == 1));
    for (message, route) in [
        (model(), ["meta", "twin"]),
        (device(), ["meta", "twin"]),
        (changed(|_| ()), ["meta", "twin"]),
    ] {
        cloud.replay(&message);
        let answers = cloud.answers(&message.header.id);
        let got: Vec<_> = answers.iter().map(|it| [&*it.route.source, &*it.route.group]).collect();
        assert_eq!(got, [route]);
    }
    let mut update = changed(|object| {
        object["metadata"]["resourceVersion"] = "760".into();
        object["spec"]["properties"][0]["desired"]["value"] = "42".into();
    });
    update.route.operation = "update".into();
    update.header.id = "update".into();
    let got = published(&mut cloud);
    let [Published::Document(..), Published::Delta { delta, .. }] = &got[..] else {
        panic!("{got:?}")
    };
    assert_eq!(delta[..], [("temp".into(), "20".into())]);
    cloud.replay(&update);
    let answers = cloud.answers("update");
    assert_eq!(&*answers[0].route.source, "devicecontroller");
    let got = published(&mut cloud);
    let Some(Published::Delta { delta, .. }) = got.last() else { panic!("{got:?}") };
    assert_eq!(delta[..], [("temp".into(), "42".into())]);
}

#[test]
fn the_list_of_devices_is_requested_once_for_each_link_as_edgecore_does() {
    let mut cloud = world(Saved::default());
    let requests = |cloud: &mut CloudHarness| -> Vec<Message> {
        let sent = std::mem::take(&mut cloud.sent);
        sent.into_iter().filter(|it| &*it.route.resource == "membership/detail").collect()
    };
    let recorded = recorded(include_str!("../golden/devices/get-detail.json"));
    let got = requests(&mut cloud);
    assert_eq!(got.len(), 1);
    assert_eq!(got[0].route, recorded.route);
    let inner = |message: &Message| -> serde_json::Map<String, Value> {
        let text = content(message);
        serde_json::from_str(text.as_str().expect("JSON in a string")).expect("a map")
    };
    let (got, want) = (inner(&got[0]), inner(&recorded));
    assert_eq!(got.keys().collect::<Vec<_>>(), want.keys().collect::<Vec<_>>());
    assert_eq!((&got["group_id"], &got["operation"]), (&json!("edge1"), &json!("detail")));
    cloud.pass(120_000);
    assert!(requests(&mut cloud).is_empty(), "it is not repeated");
    cloud.disconnect();
    cloud.pass(20_000);
    cloud.connect();
    assert_eq!(requests(&mut cloud).len(), 1);
}

#[test]
fn of_values_that_were_reported_while_the_link_was_away_the_last_one_arrives() {
    let mut cloud = world(Saved::default());
    cloud.replay(&device());
    let desired = values(&mut cloud);
    assert_eq!(desired.len(), 1, "what is desired is observed");
    confirm(&mut cloud, &desired[0].0);
    cloud.pass(2_000);
    confirm_all(&mut cloud);
    cloud.disconnect();
    for value in 0..20 {
        report(&mut cloud, &value.to_string());
        cloud.pass(1_000);
    }
    cloud.pass(20_000);
    cloud.connect();
    cloud.pass(2_000);
    let got = values(&mut cloud);
    let last: Vec<&str> = got.iter().map(|(_, value)| &**value).collect();
    assert_eq!(last, ["19"]);
    confirm(&mut cloud, &got[0].0);
    cloud.pass(1_000);
    assert!(values(&mut cloud).is_empty());
}

/// Acceptance (c) of spec `devices`, section 18.
#[test]
fn after_an_hour_without_a_link_the_last_values_arrive_within_seconds_in_one_message_each() {
    let mut cloud = world(Saved::default());
    let names: Vec<String> = (0..10).map(|n| format!("dev{n}")).collect();
    for name in &names {
        let mut message = changed(|object| {
            object["metadata"]["name"] = name.as_str().into();
            object["metadata"]["uid"] = format!("uid-{name}").into();
        });
        message.header.id = name.as_str().into();
        message.route.resource = format!("default/device/{name}").into();
        cloud.replay(&message);
    }
    let report = |cloud: &mut CloudHarness, name: &str, value: u32| {
        let update = PropertyUpdate::Set {
            expected: None,
            actual: Some(value.to_string().into()),
            optional: None,
            type_name: Box::default(),
        };
        let id = DeviceId::new("default", name);
        let content = ClientContent::TwinUpdate(id, vec![("temp".into(), update)]);
        let request = ClientRequest { event_id: "u".into(), content };
        cloud.harness.deliver(Event::Device(Box::new(DeviceEvent::Request(request))));
        cloud.settle();
        cloud.devices.clear();
    };
    for name in &names {
        report(&mut cloud, name, 1);
    }
    confirm_all(&mut cloud);
    cloud.disconnect();
    // Ten reports in a second.
    let mut last_value = 0;
    let before = cloud.written.len();
    let began = cloud.harness.now.boot;
    for value in 0.. {
        if cloud.harness.now.boot.since_ms(began) >= 3_600_000 {
            break;
        }
        last_value = value;
        for name in &names {
            report(&mut cloud, name, value);
        }
        cloud.pass(500);
    }
    let saves = cloud.written.len() - before;
    assert!(saves <= 4 * names.len(), "{saves} rows were written in an hour");
    cloud.connect();
    let mut arrived: Vec<(String, String)> = Vec::new();
    for _ in 0..10 {
        for (message, value) in values(&mut cloud) {
            let resource = message.route.resource.to_string();
            arrived.push((resource, value));
            confirm(&mut cloud, &message);
        }
        cloud.pass(1_000);
    }
    arrived.sort();
    let last = |name: &String| {
        (format!("device/default/{name}/twin/edge_updated"), last_value.to_string())
    };
    assert_eq!(arrived, names.iter().map(last).collect::<Vec<_>>());
}

/// Acceptance (d): what a power cut leaves of a desired value.
#[test]
fn a_power_cut_takes_reported_values_only_and_they_are_told_when_they_are_reported_again() {
    let mut cloud = world(Saved::default());
    cloud.replay(&device());
    report(&mut cloud, "1");
    confirm_all(&mut cloud);
    for _ in 0..40 {
        cloud.pass(20_000);
        cloud.sign_of_life();
    }
    let mut sent = Vec::new();
    for value in ["2", "3"] {
        report(&mut cloud, value);
        let got = values(&mut cloud);
        for (message, _) in &got {
            confirm(&mut cloud, message);
        }
        sent.extend(got);
        cloud.pass(2_000);
    }
    assert_eq!(sent.last().map(|(_, value)| &**value), Some("3"), "it is sent before it is saved");
    let version = |message: &Message| {
        content(message)["twin"]["temp"]["actual_version"]["edge"].as_i64().expect("a version")
    };
    let last = version(&sent.last().expect("just seen").0);

    let mut next = world(kept(&cloud));
    next.pass(2_000);
    assert!(values(&mut next).is_empty(), "the cloud has a newer value than the store");
    report(&mut next, "3");
    next.pass(2_000);
    let again = values(&mut next);
    assert_eq!(again.iter().map(|(_, value)| &**value).collect::<Vec<_>>(), ["3"]);
    assert!(version(&again[0].0) > last, "{} after {last}", version(&again[0].0));
    let got = published(&mut next);
    let twin = got.iter().rev().find_map(|it| match it {
        Published::Delta { twins, .. } => Some(twins["temp"].clone()),
        _ => None,
    });
    let expected = twin.expect("it is not as desired").expected;
    assert_eq!(expected.as_ref().map(TwinSide::text), Some("20"), "what is desired is not lost");
}

#[test]
fn nothing_is_sent_that_is_not_saved() {
    let mut cloud = world(Saved::default());
    cloud.replay(&device());
    confirm_all(&mut cloud);
    cloud.pass(20_000);
    cloud.keeps = false;
    report(&mut cloud, "1");
    let (revision, changes) = cloud.saves.pop().expect("it is to be saved");
    assert!(matches!(changes[..], [Change::Device(DeviceChange::PutTwin(_))]), "{changes:?}");
    let full = DiskError::Full("no room".to_owned());
    cloud.harness.deliver(Event::SaveFailed(revision, full));
    cloud.settle();
    assert!(values(&mut cloud).is_empty());
    cloud.pass(2_000);
    let (revision, _) = cloud.saves.pop().expect("it is tried again");
    cloud.harness.deliver(Event::Saved(revision));
    cloud.settle();
    assert_eq!(values(&mut cloud)[0].1, "1");
}

#[test]
fn sigterm_saves_the_last_values_before_the_agent_exits() {
    let mut cloud = world(Saved::default());
    cloud.replay(&device());
    cloud.pass(20_000);
    // The first one after a quiet time is saved at once; others wait.
    report(&mut cloud, "1");
    cloud.written.clear();
    report(&mut cloud, "2");
    assert!(cloud.written.is_empty(), "{:?}", cloud.written);
    cloud.keeps = false;
    cloud.harness.deliver(Event::Stop);
    cloud.settle();
    assert!(!cloud.harness.exited, "it is not saved yet");
    let (revision, changes) = cloud.saves.pop().expect("a save");
    let [Change::Device(DeviceChange::PutTwin(row))] = &changes[..] else { panic!("{changes:?}") };
    assert_eq!(row.twin.actual.as_ref().map(TwinSide::text), Some("2"));
    // A disk that is full for a moment.
    let full = DiskError::Full("no room".to_owned());
    cloud.harness.deliver(Event::SaveFailed(revision, full));
    cloud.settle();
    cloud.harness.pass(1_500);
    cloud.settle();
    let (revision, _) = cloud.saves.pop().expect("it is tried again");
    assert!(!cloud.harness.exited);
    cloud.harness.deliver(Event::Saved(revision));
    assert!(cloud.harness.exited);
}

#[test]
fn a_disk_that_saves_nothing_does_not_keep_the_agent() {
    let mut cloud = world(Saved::default());
    cloud.replay(&device());
    cloud.pass(20_000);
    report(&mut cloud, "1");
    report(&mut cloud, "2");
    cloud.keeps = false;
    cloud.harness.deliver(Event::Stop);
    cloud.settle();
    cloud.harness.pass(SHUTDOWN_MS / 2);
    assert!(!cloud.harness.exited);
    cloud.harness.pass(SHUTDOWN_MS);
    assert!(cloud.harness.exited);
}

fn upload(cloud: &mut CloudHarness, payload: &str) {
    let upload = Upload { topic: "plant/user/line1".into(), payload: payload.into() };
    handle(cloud, DeviceEvent::Upload(upload));
}

/// The payloads that were sent to the cloud's router since the last look.
fn uploads(cloud: &mut CloudHarness) -> Vec<String> {
    let (uploads, rest) = std::mem::take(&mut cloud.sent)
        .into_iter()
        .partition::<Vec<_>, _>(|message| &*message.route.source == "bus");
    cloud.sent = rest;
    let payload = |message: &Message| {
        let route = [&message.route.group, &message.route.operation, &message.route.resource];
        assert_eq!(route.map(|word| &**word), ["user", "upload", "plant/user/line1"]);
        content(message).as_str().expect("a text").to_owned()
    };
    uploads.iter().map(payload).collect()
}

#[test]
fn messages_for_applications_in_the_cloud_wait_for_the_link_and_keep_their_order() {
    let mut cloud = world(Saved::default());
    upload(&mut cloud, "0");
    assert_eq!(uploads(&mut cloud), ["0"]);
    cloud.disconnect();
    for payload in ["1", "2", "3"] {
        upload(&mut cloud, payload);
    }
    assert_eq!(uploads(&mut cloud), [""; 0]);
    cloud.pass(20_000);
    cloud.connect();
    cloud.pass(1_000);
    assert_eq!(uploads(&mut cloud), ["1", "2", "3"]);
}

#[test]
fn what_had_not_left_when_the_link_broke_is_sent_again() {
    let mut cloud = world(Saved::default());
    cloud.pass(1_000);
    cloud.takes = false;
    for payload in ["1", "2", "3"] {
        upload(&mut cloud, payload);
    }
    assert_eq!(uploads(&mut cloud), ["1", "2", "3"]);
    cloud.leave(2);
    cloud.disconnect();
    cloud.takes = true;
    cloud.pass(20_000);
    cloud.connect();
    cloud.pass(1_000);
    assert_eq!(uploads(&mut cloud), ["3"]);
}

#[test]
fn the_first_report_of_a_property_is_sent_twice_because_cloudcore_records_the_second() {
    let mut cloud = world(Saved::default());
    cloud.replay(&recorded(include_str!("../golden/devices/membership.json")));
    report(&mut cloud, "21");
    let first = values(&mut cloud);
    assert_eq!(first[0].1, "21");
    confirm(&mut cloud, &first[0].0);
    cloud.pass(2_000);
    let second = values(&mut cloud);
    assert_eq!(second.iter().map(|(_, value)| &**value).collect::<Vec<_>>(), ["21"]);
    confirm(&mut cloud, &second[0].0);
    for _ in 0..4 {
        cloud.pass(20_000);
        cloud.sign_of_life();
    }
    assert!(values(&mut cloud).is_empty(), "it is recorded");
    report(&mut cloud, "22");
    cloud.pass(2_000);
    let third = values(&mut cloud);
    assert_eq!(third.iter().map(|(_, value)| &**value).collect::<Vec<_>>(), ["22"]);
    confirm(&mut cloud, &third[0].0);
    cloud.pass(2_000);
    assert!(values(&mut cloud).is_empty());
    // The mark is removed: the next process has nothing to say.
    cloud.pass(TWIN_MARK_MS);
    let mut next = world(kept(&cloud));
    next.pass(2_000);
    assert!(values(&mut next).is_empty());
}

#[test]
fn a_value_that_changes_faster_than_it_can_be_saved_reaches_the_cloud() {
    let mut cloud = world(Saved::default());
    cloud.replay(&device());
    confirm_all(&mut cloud);
    cloud.pass(20_000);
    cloud.keeps = false;
    let expect = |cloud: &mut CloudHarness, value: u32| {
        let update = PropertyUpdate::Set {
            expected: Some(value.to_string().into()),
            actual: None,
            optional: None,
            type_name: Box::default(),
        };
        let content = ClientContent::TwinUpdate(dev1(), vec![("temp".into(), update)]);
        let request = ClientRequest { event_id: "u".into(), content };
        handle(cloud, DeviceEvent::Request(request));
    };
    expect(&mut cloud, 0);
    for value in 1..4 {
        // This slow disk has a value only when the next one is there.
        let (revision, _) = cloud.saves.pop().expect("the value before is saved");
        expect(&mut cloud, value);
        cloud.harness.deliver(Event::Saved(revision));
        cloud.settle();
        let got = values(&mut cloud);
        let texts = got.iter().map(|(message, _)| {
            content(message)["twin"]["temp"]["expected"]["value"].as_str().map(str::to_owned)
        });
        let texts: Vec<_> = texts.map(|text| text.expect("a value")).collect();
        assert_eq!(texts, [(value - 1).to_string()], "the cloud gets what is saved");
        confirm(&mut cloud, &got[0].0);
        cloud.pass(20_000);
        assert!(values(&mut cloud).is_empty(), "nothing newer is saved");
    }
}

#[test]
fn a_device_that_was_made_anew_is_another_one() {
    let mut cloud = world(Saved::default());
    cloud.replay(&device());
    report(&mut cloud, "21");
    cloud.pass(20_000);
    confirm_all(&mut cloud);
    published(&mut cloud);
    // The sync controller sends the new object, and only then the deletion of the old one.
    let mut anew = changed(|object| {
        object["metadata"]["uid"] = "another".into();
        object["metadata"]["resourceVersion"] = "900".into();
    });
    anew.route.operation = "update".into();
    anew.route.source = "edgecontroller".into();
    cloud.replay(&anew);
    cloud.replay(&recorded(include_str!("../golden/devices/delete-device.json")));
    let got = published(&mut cloud);
    let [Published::MembersChanged { removed, .. }, Published::MembersChanged { added, .. }, ..] =
        &got[..]
    else {
        panic!("{got:?}")
    };
    assert_eq!((&removed[..], &added[0].id), (&[dev1()][..], &dev1()));
    let (_, value) = values(&mut cloud).pop().expect("the new object has no status");
    assert_eq!(value, "-", "what was reported of the old one is not of the new one");
    assert_eq!(kept(&cloud).devices.twins.len(), 1);
}

#[test]
fn a_device_that_was_deleted_while_the_node_was_away_is_removed_everywhere() {
    let mut cloud = world(Saved::default());
    cloud.replay(&model());
    cloud.replay(&device());
    let answer = register(&mut cloud);
    assert!(matches!(answer, ManagerAnswer::Registered { .. }), "{answer:?}");
    published(&mut cloud);
    // The sync controller says so, with a skeleton of the object.
    cloud.replay(&recorded(include_str!("../golden/devices/delete-device.json")));
    let removes = cloud.devices.iter().any(|action| match action {
        DeviceAction::Call { call, .. } => *call == MapperCall::RemoveDevice(dev1()),
        _ => false,
    });
    assert!(removes, "{:?}", cloud.devices);
    let got = published(&mut cloud);
    assert!(
        matches!(&got[..], [Published::MembersChanged { removed, .. }] if *removed == [dev1()])
    );
    cloud.pass(1_000);
    let stored = kept(&cloud);
    assert!(stored.devices.devices.is_empty() && stored.devices.twins.is_empty());
    // A deletion of the object before this one changes nothing.
    let mut again = device();
    again.header.id = "again".into();
    let mut object = content(&again);
    object["metadata"]["uid"] = "another".into();
    again.content = Some(serde_json::value::to_raw_value(&object).expect("JSON"));
    cloud.replay(&again);
    let mut late = recorded(include_str!("../golden/devices/delete-device.json"));
    late.header.id = "late".into();
    cloud.replay(&late);
    let got = published(&mut cloud);
    assert!(matches!(got[0], Published::MembersChanged { ref added, .. } if added.len() == 1));
    assert!(!got.iter().skip(1).any(|it| matches!(it, Published::MembersChanged { .. })));
}

#[test]
fn a_device_of_another_node_is_none_of_ours() {
    let mut cloud = world(Saved::default());
    cloud.replay(&device());
    published(&mut cloud);
    let moved = changed(|object| {
        object["metadata"]["resourceVersion"] = "761".into();
        object["spec"]["nodeName"] = "edge2".into();
    });
    cloud.replay(&moved);
    let got = published(&mut cloud);
    assert!(
        matches!(&got[..], [Published::MembersChanged { removed, .. }] if *removed == [dev1()])
    );
}

#[test]
fn a_restarted_agent_knows_mappers_and_calls_only_for_what_has_changed() {
    let mut cloud = world(Saved::default());
    cloud.replay(&model());
    cloud.replay(&device());
    register(&mut cloud);
    cloud.pass(1_000);
    let saved = kept(&cloud);
    let mapper = saved.rows.iter().find(|row| &*row.kind == "devicemapper").expect("it is stored");
    assert_eq!(&*mapper.key, "node/nodeID/namespace/devicemapper/m1");
    let mut next = world(saved.clone());
    assert_eq!(calls(&mut next), []);
    next.replay(&changed(|object| {
        object["metadata"]["resourceVersion"] = "761".into();
        object["spec"]["properties"][0]["desired"]["value"] = "43".into();
    }));
    let got = calls(&mut next);
    assert!(matches!(&got[..], [(_, MapperCall::UpdateDevice(..))]), "{got:?}");
    // What changed while no agent ran.
    let mut saved = saved;
    let stored = saved.rows.iter_mut().find(|row| &*row.kind == "device").expect("it is stored");
    stored.value = stored.value.replace("\"20\"", "\"44\"").into();
    let mut next = world(saved);
    let got = calls(&mut next);
    assert!(matches!(&got[..], [(_, MapperCall::UpdateDevice(..))]), "{got:?}");
    assert_eq!(got[0].0, MapperCallId(1));
}

#[test]
fn rows_of_edgecore_are_taken_over() {
    let object = content(&device());
    let mapper = json!({"name": "m1", "version": "v1.13.0", "api_version": "v1.0.0",
        "protocol": "modbus", "address": "L2V0Yy9rdWJlZWRnZS9tb2RidXMuc29jaw==", "state": "ok"});
    let mut rows = vec![
        row("default/device/dev1", &object),
        // MetaServer's copy of a device that somebody has written there.
        row("default/device/updated", &object),
        row("default/devicemodel/model1", &content(&model())),
    ];
    let key = "node/nodeID/namespace/devicemapper/m1";
    let value = mapper.to_string().into();
    rows.push(Row { key: key.into(), kind: "devicemapper".into(), value });
    let mut cloud = world(Saved::kept(rows));
    let actions = std::mem::take(&mut cloud.devices);
    let sockets: Vec<&str> = actions
        .iter()
        .filter_map(|action| match action {
            DeviceAction::Call { socket, .. } => Some(&**socket),
            _ => None,
        })
        .collect();
    assert_eq!(sockets, ["/etc/kubeedge/modbus.sock"]);
    handle(
        &mut cloud,
        DeviceEvent::Request(ClientRequest {
            event_id: "m".into(),
            content: ClientContent::Membership,
        }),
    );
    let got = published(&mut cloud);
    assert!(matches!(&got[..], [Published::Members(all)] if all.len() == 1), "{got:?}");
}

#[test]
fn where_devices_are_not_served_their_objects_are_only_stored() {
    let mut cloud = CloudHarness::set_up(Saved::default(), |config| {
        "edge1".clone_into(&mut config.node_name);
    });
    cloud.connect();
    cloud.replay(&recorded(include_str!("../golden/devices/membership.json")));
    cloud.replay(&device());
    assert_eq!(cloud.answers(&device().header.id).len(), 1);
    assert!(cloud.devices.is_empty());
    let twins = |it: &Message| &*it.route.source == "twin";
    assert!(!cloud.sent.iter().any(twins));
    let key = Resource { namespace: Some("default"), kind: "device", name: "dev1" }.to_string();
    let stored = cloud.written.iter().any(|it| matches!(it, Change::Put(row) if *row.key == *key));
    assert!(stored);
}
