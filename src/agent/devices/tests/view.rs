//! What is shown of devices.

use super::*;
use crate::model::device::TwinSide;

/// Mapper and trouble of the one device.
fn shown(world: &World) -> (String, String) {
    let infos: Vec<_> = world.devices.infos().collect();
    let [device] = &infos[..] else { panic!("{infos:?}") };
    assert_eq!(*device.id, dev1());
    (device.mapper.to_owned(), device.trouble.clone())
}

fn pair(mapper: &str, trouble: &str) -> (String, String) {
    (mapper.to_owned(), trouble.to_owned())
}

#[test]
fn a_device_is_shown_with_its_values_and_whether_the_cloud_has_them() {
    let mut world = World::new();
    world.link_up();
    let text = r#"{"metadata":{"name":"model1","namespace":"default"},
        "spec":{"properties":[{"name":"temp","unit":"C"}]}}"#;
    world.models = vec![Arc::new(ModelObject::read(text).expect("a model"))];
    world.device("dev1", "20", 1);
    world.state("online");
    world.update("u", actual("19"));
    let reported_s = world.now.wall.expect("it is set").0 / 1_000;
    let is_confirmed = |world: &World| {
        let infos: Vec<_> = world.devices.infos().collect();
        let property = &infos[0].properties[0];
        assert_eq!((property.name, property.unit), ("temp", "C"));
        assert_eq!(property.twin.expected.as_ref().map(TwinSide::text), Some("20"));
        assert_eq!(property.twin.actual.as_ref().map(TwinSide::text), Some("19"));
        assert_eq!(property.reported_at().map(|at| at.0), Some(reported_s));
        assert_eq!((infos[0].model, infos[0].protocol), ("model1", "modbus"));
        assert_eq!(&*infos[0].state.state, "online");
        property.is_confirmed
    };
    assert!(!is_confirmed(&world));
    assert_eq!(world.devices.overview(world.now).unconfirmed, 2, "the value and the state");
    world.pass(TWIN_SAVE_MS);
    world.step();
    while let Some((id, _)) = world.report() {
        world.confirm(&id);
        world.pass(DEVICE_MESSAGE_MS);
    }
    assert_eq!(world.devices.overview(world.now).unconfirmed, 0);
    assert!(is_confirmed(&world));
    world.update("d", PropertyUpdate::Delete);
    let infos: Vec<_> = world.devices.infos().collect();
    assert!(infos[0].properties.is_empty(), "what is deleted is not shown");
}

#[test]
fn why_a_mapper_does_not_have_a_device_is_shown() {
    let mut world = World::new();
    world.device("dev1", "20", 1);
    assert_eq!(shown(&world), pair("", "no mapper has registered for the protocol modbus"));
    world.register("m1", false);
    assert_eq!(shown(&world), pair("m1", "the model default/model1 is not here"));
    let (id, _) = called(world.model("INT")).expect("the model");
    assert_eq!(shown(&world), pair("m1", ""));
    let actions = world.answer(id, Err(MapperError::Refused(2, "no room".into())));
    let why = "it refuses: no room (gRPC status 2)";
    assert_eq!(shown(&world), pair("m1", why));
    assert!(called(actions).is_none(), "the device waits for its model");
    let call = world.devices.mappers.overviews(world.now)[0].clone();
    assert_eq!((&*call.name, &*call.trouble, call.devices), ("m1", why, 1));
}

#[test]
fn an_object_that_cannot_be_written_is_named_with_its_reason() {
    let mut world = World::new();
    world.model("INT");
    world.device("dev1", "20", 1);
    world.register("m1", true);
    let (id, _) = called(world.device("dev1", "21", 2)).expect("it has changed");
    world.answer(id, Err(MapperError::Unwritable("configData.x: got a list".into())));
    assert_eq!(shown(&world), pair("m1", "configData.x: got a list"));
    // Another spec is another try.
    called(world.device("dev1", "22", 3)).expect("it has changed");
    assert_eq!(shown(&world), pair("m1", ""));
}

#[test]
fn a_mapper_that_is_not_reached_is_shown_and_counted() {
    let mut world = World::new();
    world.model("INT");
    world.device("dev1", "20", 1);
    world.register("m1", true);
    let (id, _) = called(world.device("dev1", "21", 2)).expect("it has changed");
    world.answer(id, Err(MapperError::Unreachable("nobody listens".into())));
    world.pass(500);
    assert_eq!(shown(&world), pair("m1", "its mapper cannot be reached: nobody listens"));
    let overview = world.devices.overview(world.now);
    assert_eq!(overview.mappers[0].unreachable_ms, Some(500));
    let metrics = &world.devices.metrics().mappers[0];
    assert_eq!((metrics.is_up, metrics.calls, metrics.failures), (false, 1, 1));
    world.pass(MAPPER_RETRY_MIN_MS);
    let (id, _) = called(world.step()).expect("again");
    world.answer(id, Ok(()));
    let metrics = &world.devices.metrics().mappers[0];
    assert_eq!((metrics.is_up, metrics.calls, metrics.failures), (true, 2, 1));
    world.pass(MAPPER_CHECK_MS);
    let checks = world.step();
    let [DeviceAction::CheckSocket { id, .. }] = checks[..] else { panic!("{checks:?}") };
    world.answer(id, Ok(()));
    assert_eq!(world.devices.metrics().mappers[0].calls, 2, "a check is no call");
    assert_eq!(shown(&world), pair("m1", ""));
}

#[test]
fn requests_are_counted_by_what_became_of_them() {
    let mut world = World::new();
    world.update("unknown", actual("1"));
    world.device("dev1", "", 1);
    world.update("fine", actual("1"));
    world.update("long", actual(&"x".repeat(600)));
    world.state("asleep");
    world.call(ManagerCall::ReportState { device: DeviceId::of("none"), state: "ok".into() });
    for _ in 0..=MANAGER_CALLS_MAX {
        world.call(ManagerCall::ReportStatus { device: dev1(), twins: Vec::new() });
    }
    let metrics = world.devices.metrics();
    let invalid = 2 + u64::from(MANAGER_CALLS_MAX) - 1;
    assert_eq!(metrics.refused, [("unknown_device", 2), ("invalid", invalid), ("too_many", 2)]);
    assert_eq!((metrics.updates, metrics.devices), (1, 1));
}

#[test]
fn the_time_of_a_connection_begins_when_it_comes_up() {
    let mut world = World::new();
    let status = |state: Result<(), &str>, published| {
        let trouble = state.err().map(Box::from);
        let client = Some(OtherBroker { server: "tcp://b:1".into(), trouble });
        DeviceEvent::Mqtt(Box::new(MqttStatus { client, published, ..MqttStatus::default() }))
    };
    let mqtt = |world: &World| world.devices.overview(world.now).mqtt.expect("it is on");
    world.handle(status(Err("refused"), 0));
    assert_eq!((mqtt(&world).up_ms, &*mqtt(&world).trouble), (None, "refused"));
    world.handle(status(Ok(()), 0));
    world.pass(3_000);
    world.handle(status(Ok(()), 5));
    assert_eq!((mqtt(&world).up_ms, &*mqtt(&world).trouble), (Some(3_000), ""));
    world.handle(status(Err("closed"), 5));
    assert_eq!(mqtt(&world).up_ms, None);
    assert_eq!(world.devices.metrics().mqtt.expect("it is on").published, 5);
}
