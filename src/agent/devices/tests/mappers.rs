//! What mappers are told, and what they tell.

use super::*;
use crate::model::device::Acknowledged;

#[test]
fn a_registration_lists_what_the_mapper_should_have_and_later_changes_are_called_for() {
    let mut world = World::new();
    world.model("INT");
    world.device("dev1", "20", 1);
    let (answer, actions) = world.register("m1", true);
    let ManagerAnswer::Registered { models, devices } = answer else { panic!("{answer:?}") };
    assert_eq!((models.len(), devices.len()), (1, 1));
    assert!(called(actions).is_none(), "it has all of it");
    let (id, call) = called(world.device("dev1", "21", 2)).expect("it has changed");
    assert!(matches!(call, MapperCall::UpdateDevice(_, Some(_))), "{call:?}");
    let actions = world.device("dev1", "22", 3);
    assert!(called(actions).is_none(), "one call at a time");
    let (id, call) = called(world.answer(id, Ok(()))).expect("the latest");
    assert!(matches!(&call, MapperCall::UpdateDevice(text, _) if text.contains("22")), "{call:?}");
    assert!(called(world.answer(id, Ok(()))).is_none());
    let (id, call) = called(world.model("FLOAT")).expect("its model has changed");
    assert!(matches!(call, MapperCall::UpdateModel(_)), "{call:?}");
    let (id, call) = called(world.answer(id, Ok(()))).expect("then the device");
    assert!(matches!(call, MapperCall::UpdateDevice(..)), "{call:?}");
    world.answer(id, Ok(()));
    world.objects.clear();
    let (id, call) = called(world.take_objects()).expect("it is deleted");
    assert_eq!(call, MapperCall::RemoveDevice(dev1()));
    let (_, call) = called(world.answer(id, Ok(()))).expect("nothing needs the model");
    assert_eq!(call, MapperCall::RemoveModel(DeviceId::new("default", "model1")));
}

#[test]
fn a_mapper_that_wants_no_list_is_called_and_a_device_waits_for_its_model() {
    let mut world = World::new();
    world.device("dev1", "20", 1);
    let (answer, actions) = world.register("m1", false);
    assert_eq!(answer, ManagerAnswer::Done);
    assert!(called(actions).is_none(), "its model is not here");
    let (id, call) = called(world.model("INT")).expect("it is");
    assert!(matches!(call, MapperCall::CreateModel(_)), "{call:?}");
    let (id, call) = called(world.answer(id, Ok(()))).expect("now the device");
    assert!(matches!(call, MapperCall::RegisterDevice(..)), "{call:?}");
    // The mapper may have it, and would ignore another registration.
    world.answer(id, Err(MapperError::Deadline));
    world.device("dev1", "21", 2);
    world.pass(MAPPER_RETRY_MIN_MS);
    let (_, call) = called(world.step()).expect("again");
    assert!(matches!(call, MapperCall::UpdateDevice(..)), "{call:?}");
}

#[test]
fn a_mapper_that_cannot_be_reached_is_called_until_it_answers() {
    let mut world = World::new();
    world.model("INT");
    world.device("dev1", "20", 1);
    let (_, actions) = world.register("m1", false);
    let mut call = called(actions);
    let mut wait_ms = MAPPER_RETRY_MIN_MS;
    for _ in 0..9 {
        let (id, _) = call.expect("it is tried");
        let why = MapperError::Unreachable("nobody listens".into());
        assert!(called(world.answer(id, Err(why))).is_none());
        world.pass(wait_ms - 1);
        assert!(called(world.step()).is_none(), "not before {wait_ms} ms");
        world.pass(1);
        call = called(world.step());
        wait_ms = (2 * wait_ms).min(MAPPER_RETRY_MAX_MS);
    }
    let (id, _) = call.expect("it is tried");
    assert!(called(world.answer(id, Ok(()))).is_some(), "it goes on");
    let deadline = world.now.boot.plus_ms(MAPPER_CALL_MS);
    assert!(deadline > world.now.boot);
}

#[test]
fn a_refused_object_waits_and_others_go_on() {
    let mut world = World::new();
    world.model("INT");
    world.device("dev1", "1", 1);
    world.device("dev2", "1", 1);
    let (_, actions) = world.register("m1", false);
    let (id, _) = called(actions).expect("the model");
    let (id, _) = called(world.answer(id, Ok(()))).expect("the first device");
    let refused = || Err(MapperError::Refused(2, "no driver".into()));
    let (id, call) = called(world.answer(id, refused())).expect("the second one");
    assert!(matches!(&call, MapperCall::RegisterDevice(text, _) if text.contains("dev2")));
    assert!(called(world.answer(id, Ok(()))).is_none());
    world.pass(MAPPER_REFUSED_MIN_MS);
    let (id, _) = called(world.step()).expect("the first one again");
    world.answer(id, refused());
    world.pass(MAPPER_REFUSED_MAX_MS);
    let (id, _) = called(world.step()).expect("and again");
    world.answer(id, Ok(()));
    // A mapper refuses to remove what it does not have.
    world.objects.clear();
    let mut calls = 0;
    let mut next = called(world.take_objects());
    while let Some((id, call)) = next {
        calls += u32::from(matches!(call, MapperCall::RemoveDevice(_)));
        next = called(world.answer(id, refused()));
        if next.is_none() {
            world.pass(MAPPER_REFUSED_MAX_MS);
            next = called(world.step());
        }
    }
    assert_eq!(calls, 2 * MAPPER_REMOVALS_MAX);
}

#[test]
fn the_devices_of_a_mapper_that_is_gone_are_unknown_and_go_to_another_one() {
    let mut world = World::new();
    world.model("INT");
    world.device("dev1", "1", 1);
    world.register("m1", true);
    let (answer, _) = world.register("m2", true);
    let ManagerAnswer::Registered { devices, .. } = answer else { panic!("{answer:?}") };
    assert!(devices.is_empty(), "the first one has it");
    world.state("online");
    world.pass(MAPPER_CHECK_MS);
    let since = world.now.boot;
    loop {
        let actions = world.step();
        let [.., DeviceAction::CheckSocket { id, .. }] = actions[..] else {
            panic!("its socket is checked: {actions:?}")
        };
        world.answer(id, Err(MapperError::Unreachable("nobody listens".into())));
        world.pass(MAPPER_RETRY_MAX_MS);
        if world.now.boot.since_ms(since) >= MAPPER_LOST_MS {
            break;
        }
    }
    let actions = world.step();
    let to_other = |it: &DeviceAction| match it {
        DeviceAction::Call { socket, call, .. } => {
            &**socket == "/run/m2.sock" && matches!(call, MapperCall::CreateModel(_))
        }
        _ => false,
    };
    assert!(actions.iter().any(to_other), "{actions:?}");
    world.step();
    let state = world.devices.table.get(&dev1()).expect("it is there").state().clone();
    assert_eq!(&*state.state, "unknown");
}

#[test]
fn what_was_acknowledged_to_an_earlier_process_is_not_called_for_again() {
    let mut world = World::new();
    world.model("INT");
    world.device("dev1", "1", 1);
    world.register("m1", true);
    world.step();
    let mut stored = StoredDevices::default();
    for change in std::mem::take(&mut world.saved) {
        match change {
            DeviceChange::PutDevice(row) => stored.devices = vec![row],
            DeviceChange::PutTwin(row) => stored.twins = vec![*row],
            DeviceChange::PutAcknowledged(row) => stored.acknowledged.push(row),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(stored.acknowledged.len(), 2);
    let registered = RegistrationChange::Put(mapper("m1"));
    assert_eq!(world.devices.registrations()[..], [registered]);
    let mut next = World::with(stored, &[mapper("m1")]);
    (next.objects, next.models) = (world.objects.clone(), world.models.clone());
    assert!(called(next.take_objects()).is_none());
    let (_, call) = called(next.device("dev1", "2", 2)).expect("it has changed");
    assert!(matches!(call, MapperCall::UpdateDevice(..)), "{call:?}");
}

/// A mapper with the model and the device, of which nothing is in doubt.
fn acquainted() -> World {
    let mut world = World::new();
    world.model("INT");
    world.device("dev1", "1", 1);
    world.register("m1", true);
    world.step();
    world.saved.clear();
    world
}

fn no_answer() -> Result<(), MapperError> {
    Err(MapperError::Deadline)
}

#[test]
fn what_a_mapper_may_have_is_removed_when_nobody_wants_it() {
    let mut world = acquainted();
    let (id, _) = called(world.device("dev2", "1", 2)).expect("a new one");
    world.answer(id, no_answer());
    world.objects.clear();
    world.take_objects();
    world.pass(MAPPER_RETRY_MIN_MS);
    let mut removed = Vec::new();
    let mut next = called(world.step());
    while let Some((id, call)) = next {
        removed.push(call);
        next = called(world.answer(id, Ok(())));
    }
    let device = |name| MapperCall::RemoveDevice(DeviceId::new("default", name));
    let model = MapperCall::RemoveModel(DeviceId::new("default", "model1"));
    assert_eq!(removed, [device("dev1"), device("dev2"), model]);
}

#[test]
fn a_call_without_an_answer_is_followed_by_one_that_fits_both_cases() {
    let mut world = acquainted();
    let (id, _) = called(world.device("dev1", "2", 2)).expect("it has changed");
    world.answer(id, no_answer());
    // The object is again as the mapper has acknowledged it, and the mapper may have the other.
    world.device("dev1", "1", 3);
    world.pass(MAPPER_RETRY_MIN_MS);
    let (id, call) = called(world.step()).expect("it is in doubt");
    assert!(matches!(&call, MapperCall::UpdateDevice(text, _) if text.contains(r#""1""#)));
    world.answer(id, Ok(()));
    // A removal may have been done, and the model is wanted again.
    let objects = std::mem::take(&mut world.objects);
    let (id, _) = called(world.take_objects()).expect("the device goes");
    let (id, call) = called(world.answer(id, Ok(()))).expect("the model goes");
    assert!(matches!(call, MapperCall::RemoveModel(_)), "{call:?}");
    world.answer(id, no_answer());
    world.objects = objects;
    world.take_objects();
    world.pass(MAPPER_RETRY_MAX_MS);
    let (id, call) = called(world.step()).expect("the model again");
    assert!(matches!(call, MapperCall::CreateModel(_)), "{call:?}");
    // A mapper that refuses an update may have lost the model.
    let (id, _) = called(world.answer(id, Ok(()))).expect("the device again");
    world.answer(id, Ok(()));
    let (id, call) = called(world.model("FLOAT")).expect("it has changed");
    assert!(matches!(call, MapperCall::UpdateModel(_)), "{call:?}");
    let refused = Err(MapperError::Refused(2, "no such model".into()));
    assert!(called(world.answer(id, refused)).is_none(), "the device waits for its model");
    world.pass(MAPPER_REFUSED_MIN_MS);
    let (_, call) = called(world.step()).expect("the model again");
    assert!(matches!(call, MapperCall::CreateModel(_)), "{call:?}");
}

#[test]
fn before_a_call_it_is_saved_that_the_mapper_may_have_the_object() {
    let mut world = acquainted();
    world.saves = false;
    assert!(called(world.device("dev2", "1", 2)).is_none(), "it is not saved");
    let changes = world.devices.begin_save(world.now);
    assert!(called(world.step()).is_none(), "it is being saved");
    world.devices.end_save(world.now, false);
    assert!(called(world.step()).is_none(), "the save has failed");
    world.devices.begin_save(world.now);
    world.devices.end_save(world.now, true);
    assert!(called(world.step()).is_some());
    let doubt =
        Acknowledged { mapper: "m1".into(), object: "device/default/dev2".into(), digest: 0 };
    assert!(changes.contains(&DeviceChange::PutAcknowledged(doubt.clone())), "{changes:?}");
    // The next process does not know whether the call was made.
    let stored = StoredDevices { acknowledged: vec![doubt], ..StoredDevices::default() };
    let mut next = World::with(stored, &[mapper("m1")]);
    let (_, call) = called(next.take_objects()).expect("nobody wants it");
    assert_eq!(call, MapperCall::RemoveDevice(DeviceId::new("default", "dev2")));
}

#[test]
fn what_was_never_called_for_needs_no_removal() {
    let mut world = acquainted();
    world.saves = false;
    world.device("dev2", "1", 2);
    world.objects.retain(|object| object.id == dev1());
    world.take_objects();
    world.saves = true;
    assert!(called(world.step()).is_none());
}

#[test]
fn a_registration_that_could_not_be_stored_is_not_stored_when_it_comes_again() {
    let mut world = World::new();
    world.saves = false;
    let register = || ManagerCall::Register { mapper: mapper("m1"), with_data: true };
    world.handle(DeviceEvent::Called(ManagerCallId(7), register()));
    // The store takes it, and cannot write it. The mapper has no devices.
    world.devices.registrations().clear();
    world.devices.begin_save(world.now);
    world.devices.end_save(world.now, false);
    world.step();
    let got = world.handle(DeviceEvent::Called(ManagerCallId(8), register()));
    assert!(got.is_empty(), "it is not stored yet: {got:?}");
    assert_eq!(world.devices.save_at(world.now), Some(world.now.boot));
    world.devices.begin_save(world.now);
    world.devices.end_save(world.now, true);
    let got = world.step();
    let [DeviceAction::Answer(ManagerCallId(8), ManagerAnswer::Registered { .. })] = &got[..]
    else {
        panic!("{got:?}")
    };
}

#[test]
fn a_registration_is_answered_once_it_is_saved() {
    let mut world = World::new();
    world.model("INT");
    world.device("dev1", "1", 1);
    world.saves = false;
    let register = || ManagerCall::Register { mapper: mapper("m1"), with_data: true };
    let is_answer = |it: &DeviceAction| matches!(it, DeviceAction::Answer(..));
    let got = world.handle(DeviceEvent::Called(ManagerCallId(7), register()));
    assert!(!got.iter().any(is_answer), "{got:?}");
    assert_eq!(world.devices.save_at(world.now), Some(world.now.boot));
    world.devices.begin_save(world.now);
    world.devices.end_save(world.now, false);
    let got = world.step();
    let [DeviceAction::Answer(ManagerCallId(7), ManagerAnswer::TooMany(why))] = &got[..] else {
        panic!("{got:?}")
    };
    assert_eq!(&**why, "the registration could not be stored");
    world.handle(DeviceEvent::Called(ManagerCallId(8), register()));
    world.devices.registrations().clear();
    world.devices.begin_save(world.now);
    world.devices.end_save(world.now, true);
    let got = world.step();
    let [DeviceAction::Answer(ManagerCallId(8), ManagerAnswer::Registered { .. })] = &got[..]
    else {
        panic!("{got:?}")
    };
    // Nothing of it changes any more.
    let got = world.handle(DeviceEvent::Called(ManagerCallId(9), register()));
    assert!(got.iter().any(is_answer), "{got:?}");
}

#[test]
fn mappers_have_a_bound_and_an_unreachable_one_makes_room() {
    let mut world = World::new();
    world.model("INT");
    world.device("dev1", "1", 1);
    let (_, actions) = world.register("m0", false);
    let (id, _) = called(actions).expect("the model");
    for n in 1..MAPPERS_MAX {
        world.register(&format!("m{n}"), false);
    }
    assert!(matches!(world.register("more", false).0, ManagerAnswer::TooMany(_)));
    world.answer(id, Err(MapperError::Unreachable("nobody listens".into())));
    assert_eq!(world.register("more", false).0, ManagerAnswer::Done);
    for (wrong, change) in [
        ("a name", Mapper { name: "a/b".into(), ..mapper("m") }),
        ("a protocol", Mapper { protocol: Box::default(), ..mapper("m") }),
        ("a path", Mapper { address: "m.sock".into(), ..mapper("m") }),
        (
            "a short path",
            Mapper { address: "/x".repeat(MAPPER_SOCKET_BYTES_MAX).into(), ..mapper("m") },
        ),
    ] {
        let call = ManagerCall::Register { mapper: change, with_data: true };
        assert!(matches!(world.call(call).0, ManagerAnswer::Invalid(_)), "without {wrong}");
    }
}

#[test]
fn calls_of_mappers_have_a_rate() {
    let mut world = World::new();
    let call = || ManagerCall::ReportState { device: dev1(), state: "online".into() };
    for _ in 0..MANAGER_CALLS_MAX {
        assert!(matches!(world.call(call()).0, ManagerAnswer::NotFound(_)));
    }
    assert!(matches!(world.call(call()).0, ManagerAnswer::TooMany(_)));
    world.pass(1_000);
    assert!(matches!(world.call(call()).0, ManagerAnswer::NotFound(_)));
}
