//! Devices that somebody on the node edits, as `keadm ctl edit device` does.

use edged::agent::Config;
use edged::agent::event::{DeviceAction, DeviceEvent, Event};
use edged::limits::{DEVICE_EDIT_BYTES_MAX, DEVICE_EDITS_MAX};
use edged::model::application::{Gvr, Scope};
use edged::model::device::{ClientContent, ClientRequest, DeviceId, MapperCall, Published};
use edged::model::meta::{Change, Row, Saved};
use edged::model::metaserver::{
    Call, Caller, ClientId, DevicePut, Form, MetaServerSettings, Reply, Watch, WatchEvent,
};
use edged::model::settings::{CloudSettings, DeviceSettings};
use serde_json::{Value, json};

use crate::cloud_harness::{CloudHarness, content, row};
use crate::devices::{changed, device, handle, kept, model, register};

fn set(config: &mut Config) {
    config.cloud = Some(CloudSettings::default());
    config.devices = Some(DeviceSettings::default());
    config.metaserver = Some(MetaServerSettings { keadm_ctl: true, ..Default::default() });
    "edge1".clone_into(&mut config.node_name);
}

/// A node that has the recorded device, and a mapper for it.
fn world() -> CloudHarness {
    let mut cloud = CloudHarness::set_up(Saved::kept(Vec::<Row>::new()), set);
    cloud.connect();
    cloud.replay(&model());
    cloud.replay(&device());
    register(&mut cloud);
    answer_calls(&mut cloud);
    cloud
}

/// The mapper takes everything. Returns the values that it was given as desired, and those that
/// MQTT clients are told to reach.
fn answer_calls(cloud: &mut CloudHarness) -> [Vec<String>; 2] {
    let (mut given, mut told) = (Vec::new(), Vec::new());
    loop {
        cloud.pass(1_000);
        let actions = std::mem::take(&mut cloud.devices);
        if actions.is_empty() {
            return [given, told];
        }
        for action in actions {
            match action {
                DeviceAction::Call { id, call, .. } => {
                    given.extend(desired_of(&call));
                    handle(cloud, DeviceEvent::Answered(id, Ok(())));
                }
                DeviceAction::Publish(publication) => {
                    if let Published::Delta { delta, .. } = publication.content {
                        told.extend(delta.into_iter().map(|(_, value)| value.to_string()));
                    }
                }
                _ => {}
            }
        }
    }
}

fn desired_of(call: &MapperCall) -> Option<String> {
    let (MapperCall::RegisterDevice(text, _) | MapperCall::UpdateDevice(text, _)) = call else {
        return None;
    };
    let device: Value = serde_json::from_str(text).expect("JSON");
    Some(desired(&device).as_str().expect("a text").to_owned())
}

/// The device is as desired with this value, for its mapper and for MQTT clients.
fn all(value: &str) -> [Vec<String>; 2] {
    [vec![value.to_owned()], vec![value.to_owned()]]
}

/// What MQTT clients read as expected.
fn expected(cloud: &mut CloudHarness) -> String {
    let content = ClientContent::TwinGet(DeviceId::new("default", "dev1"));
    let request = ClientRequest { event_id: "g".into(), content };
    handle(cloud, DeviceEvent::Request(request));
    let twin = std::mem::take(&mut cloud.devices).into_iter().find_map(|action| match action {
        DeviceAction::Publish(publication) => match publication.content {
            Published::Twins(_, twins) => twins.get("temp").cloned(),
            _ => None,
        },
        _ => None,
    });
    twin.expect("an answer").expected.and_then(|side| side.value).expect("a value").to_string()
}

/// Nobody is told anything.
fn nothing() -> [Vec<String>; 2] {
    [Vec::new(), Vec::new()]
}

fn open(cloud: &mut CloudHarness, id: u64, call: Call) {
    cloud.harness.deliver(Event::MetaServerOpened(ClientId(id), Box::new(call), Caller::Local));
    cloud.settle();
}

/// The replies to this client.
fn replies(cloud: &mut CloudHarness, id: u64) -> Vec<Reply> {
    cloud.replies.extract_if(.., |(of, _)| of.0 == id).map(|(_, reply)| reply).collect()
}

/// A client gives dev1 this object; returns the status and the body of its answer.
fn put(cloud: &mut CloudHarness, object: &Value) -> (u16, Value) {
    let text = object.to_string().into();
    let put = DevicePut { namespace: "default".into(), name: "dev1".into(), text };
    open(cloud, 1, Call::EditDevice(Box::new(put)));
    let reply = replies(cloud, 1).pop().expect("it is answered");
    cloud.harness.deliver(Event::MetaServerClosed(ClientId(1)));
    match reply {
        Reply::Remote(code, text) => (code, serde_json::from_str(&text).expect("JSON")),
        Reply::Failure(failure) => (failure.code, failure.message.into()),
        other => panic!("{other:?}"),
    }
}

fn object() -> Value {
    content(&device())
}

fn desires(value: &str) -> Value {
    let mut object = object();
    object["spec"]["properties"][0]["desired"]["value"] = value.into();
    object
}

fn desired(object: &Value) -> &Value {
    &object["spec"]["properties"][0]["desired"]["value"]
}

/// The cloud sends the device with this version.
fn send(cloud: &mut CloudHarness, version: &str, change: impl FnOnce(&mut Value)) {
    let mut message = changed(|object| {
        object["metadata"]["resourceVersion"] = version.into();
        change(object);
    });
    message.route.operation = "update".into();
    message.header.id = version.into();
    cloud.replay(&message);
    assert!(!cloud.answers(version).is_empty(), "it is acknowledged");
}

/// What a client reads while the cloud is away.
fn read(cloud: &mut CloudHarness) -> Value {
    let served = MetaServerSettings::default();
    let served = served.find(&devices().gvr).expect("it is served").clone();
    let (namespace, name) = ("default".into(), "dev1".into());
    open(cloud, 2, Call::Get { served, namespace, name, form: Form::Whole });
    match replies(cloud, 2).pop().expect("an answer") {
        Reply::Object { item, .. } => serde_json::from_str(&item.text).expect("JSON"),
        other => panic!("{other:?}"),
    }
}

fn devices() -> Scope {
    Scope::all(Gvr::new("devices.kubeedge.io", "v1beta1", "devices"))
}

fn annotation(object: &Value) -> &Value {
    &object["metadata"]["annotations"]["edged.io/local-edit"]
}

#[test]
fn an_edit_is_durable_first_and_its_mapper_and_clients_get_it_without_the_cloud() {
    let mut cloud = world();
    cloud.disconnect();
    cloud.keeps = false;
    let text = desires("33").to_string().into();
    let put = DevicePut { namespace: "default".into(), name: "dev1".into(), text };
    open(&mut cloud, 1, Call::EditDevice(Box::new(put)));
    assert!(replies(&mut cloud, 1).is_empty(), "it is not durable yet");
    cloud.fail_save();
    cloud.settle();
    assert!(replies(&mut cloud, 1).is_empty() && cloud.devices.is_empty());
    cloud.keeps = true;
    cloud.pass(5_000);
    cloud.pass(5_000);
    let Some(Reply::Remote(200, text)) = replies(&mut cloud, 1).pop() else { panic!("no answer") };
    let got: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!((desired(&got), annotation(&got)), (&json!("33"), &json!("spec")));
    assert_eq!(got["metadata"]["uid"], object()["metadata"]["uid"]);
    assert_eq!(answer_calls(&mut cloud), all("33"));
    let shown = read(&mut cloud);
    assert_eq!((desired(&shown), annotation(&shown)), (&json!("33"), &json!("spec")));
    assert_eq!(shown["metadata"]["resourceVersion"], "752", "the cloud's");
}

#[test]
fn an_edit_stays_over_a_restart_and_the_echo_of_the_cloud() {
    let mut cloud = world();
    assert_eq!(put(&mut cloud, &desires("33")).0, 200);
    answer_calls(&mut cloud);
    let saved = kept(&cloud);
    let mut cloud = CloudHarness::set_up(saved, set);
    cloud.connect();
    let [given, told] = answer_calls(&mut cloud);
    assert!(given.is_empty(), "the mapper has it: {given:?}");
    assert!(told.is_empty(), "nothing has changed: {told:?}");
    assert_eq!(expected(&mut cloud), "33");
    assert_eq!(edited_row(&cloud), Value::Null, "nothing is written");
    // Its status makes new versions of it, and so does the report of a value.
    send(&mut cloud, "760", |object| object["status"] = json!({"reportToCloud": true}));
    send(&mut cloud, "761", |_| ());
    assert_eq!(answer_calls(&mut cloud), nothing());
    assert_eq!(expected(&mut cloud), "33");
    cloud.disconnect();
    assert_eq!(desired(&put(&mut cloud, &desires("34")).1), "34", "it can be edited again");
    assert_eq!(answer_calls(&mut cloud), all("34"));
}

/// The row of the edit that was saved last.
fn edited_row(cloud: &CloudHarness) -> Value {
    let row = cloud.written.iter().rev().find_map(|change| match change {
        Change::Put(row) if &*row.kind == "deviceedit" => Some(&row.value),
        _ => None,
    });
    row.map_or(Value::Null, |text| serde_json::from_str(text).expect("JSON"))
}

fn is_deleted(cloud: &CloudHarness) -> bool {
    let key = "default/deviceedit/dev1";
    cloud.written.iter().any(|it| matches!(it, Change::Delete { key: of } if **of == *key))
}

#[test]
fn the_cloud_wins_when_it_changes_the_spec_and_when_it_deletes_the_device() {
    let mut cloud = world();
    put(&mut cloud, &desires("33"));
    answer_calls(&mut cloud);
    send(&mut cloud, "770", |object| {
        object["spec"]["properties"][0]["desired"]["value"] = "50".into();
    });
    assert_eq!(answer_calls(&mut cloud), all("50"));
    assert!(is_deleted(&cloud), "the edit is forgotten");
    // Back to what was edited: the edit does not come back.
    send(&mut cloud, "780", |_| ());
    assert_eq!(answer_calls(&mut cloud), all("20"));

    put(&mut cloud, &desires("33"));
    answer_calls(&mut cloud);
    cloud.written.clear();
    let route = ["devicecontroller", "resource", "delete", "default/device/dev1"];
    cloud.push_to(route, &object());
    cloud.pass(1_000);
    assert!(is_deleted(&cloud));
    assert_eq!(put(&mut cloud, &desires("33")).0, 404);
}

#[test]
fn the_spec_of_the_cloud_ends_an_edit() {
    let mut cloud = world();
    put(&mut cloud, &desires("33"));
    answer_calls(&mut cloud);
    let (code, got) = put(&mut cloud, &object());
    assert_eq!((code, annotation(&got)), (200, &Value::Null));
    assert!(is_deleted(&cloud));
    assert_eq!(answer_calls(&mut cloud), all("20"));
    // The device itself was not deleted by that.
    send(&mut cloud, "790", |object| {
        object["spec"]["properties"][0]["desired"]["value"] = "51".into();
    });
    assert_eq!(answer_calls(&mut cloud), all("51"));
}

#[test]
fn those_that_watch_devices_are_told_of_an_edit() {
    let mut cloud = world();
    cloud.disconnect();
    let (version, timeout_s, bookmarks) = (0, Some(3_600), false);
    let (initial_events, form) = (false, Form::Whole);
    let scope = devices();
    let watch = Watch { scope, version, timeout_s, bookmarks, initial_events, form };
    open(&mut cloud, 3, Call::Watch(watch));
    assert!(matches!(&replies(&mut cloud, 3)[..], [Reply::Watching(it)] if it.items.len() == 1));
    put(&mut cloud, &desires("33"));
    let got = replies(&mut cloud, 3);
    let [Reply::Event(WatchEvent::Modified(_, item))] = &got[..] else { panic!("{got:?}") };
    let item: Value = serde_json::from_str(&item.text).expect("JSON");
    assert_eq!((desired(&item), annotation(&item)), (&json!("33"), &json!("spec")));
    put(&mut cloud, &object());
    let got = replies(&mut cloud, 3);
    let [Reply::Event(WatchEvent::Modified(_, item))] = &got[..] else { panic!("{got:?}") };
    let item: Value = serde_json::from_str(&item.text).expect("JSON");
    assert_eq!((desired(&item), annotation(&item)), (&json!("20"), &Value::Null));
}

#[test]
fn what_is_no_edit_of_this_device_is_refused() {
    let mut cloud = world();
    let refused = |cloud: &mut CloudHarness, change: fn(&mut Value)| {
        let mut object = desires("33");
        change(&mut object);
        let (code, why) = put(cloud, &object);
        (code, why.as_str().unwrap_or_default().to_owned())
    };
    for (change, code, why) in [
        ((|it| it["metadata"]["name"] = "dev2".into()) as fn(&mut Value), 400, "default/dev2"),
        (|it| it["metadata"]["uid"] = "other".into(), 409, "the device was made anew"),
        (|it| it["spec"]["nodeName"] = "edge2".into(), 422, "spec.nodeName"),
        (|it| it["spec"]["properties"] = json!({}), 400, "spec.properties"),
        (|it| it["spec"]["x"] = "x".repeat(DEVICE_EDIT_BYTES_MAX).into(), 400, "bytes of spec"),
        (|it| it["spec"]["x"] = vec![0; 200_000].into(), 400, "values"),
    ] {
        let got = refused(&mut cloud, change);
        assert!(got.0 == code && got.1.contains(why), "{got:?}, expected {code} {why}");
    }
    assert_eq!((answer_calls(&mut cloud), edited_row(&cloud)), (nothing(), Value::Null));
    let text = desires("33").to_string().into();
    let other = DevicePut { namespace: "default".into(), name: "dev9".into(), text };
    open(&mut cloud, 1, Call::EditDevice(Box::new(other)));
    let got = replies(&mut cloud, 1);
    assert!(matches!(&got[..], [Reply::Failure(it)] if it.code == 404), "{got:?}");
}

#[test]
fn edits_have_a_limit() {
    let mut rows = Vec::new();
    let named = |number: usize| {
        let mut object = object();
        object["metadata"]["name"] = format!("d{number}").into();
        object["metadata"]["uid"] = format!("u{number}").into();
        object
    };
    for number in 0..=DEVICE_EDITS_MAX {
        rows.push(row(&format!("default/device/d{number}"), &named(number)));
    }
    let mut cloud = CloudHarness::set_up(Saved::kept(rows), set);
    let mut edit = |number: usize| {
        let mut object = named(number);
        object["spec"]["properties"][0]["desired"]["value"] = "33".into();
        let name = format!("d{number}").into();
        let text = object.to_string().into();
        let put = DevicePut { namespace: "default".into(), name, text };
        open(&mut cloud, 1, Call::EditDevice(Box::new(put)));
        let reply = replies(&mut cloud, 1).pop().expect("it is answered");
        match reply {
            Reply::Remote(code, _) => code,
            Reply::Failure(failure) => failure.code,
            other => panic!("{other:?}"),
        }
    };
    for number in 0..DEVICE_EDITS_MAX {
        assert_eq!(edit(number), 200);
    }
    assert_eq!(edit(DEVICE_EDITS_MAX), 429);
    assert_eq!(edit(3), 200, "one that is edited may be edited again");
}
