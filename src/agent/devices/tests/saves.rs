//! What is saved when, and what of it the cloud gets before.

use super::*;

#[test]
fn the_first_value_is_saved_before_it_is_sent_and_the_latest_value_wins() {
    let mut world = World::linked();
    world.update("u", actual("1"));
    world.step();
    assert!(world.rows().pop().expect("the first value is saved at once").is_unsent);
    let (first, got) = world.reported().expect("and sent");
    assert_eq!(got, "- 1");
    for value in ["2", "3"] {
        world.pass(DEVICE_MESSAGE_MS);
        world.update("u", actual(value));
    }
    assert!(world.reported().is_none(), "one message at a time");
    world.confirm(&first);
    world.step();
    assert!(world.reported().is_none(), "the row says that the cloud does not have 1");
    world.pass(DEVICE_SAVE_MS);
    world.step();
    let row = world.rows().pop().expect("the cloud waits for it");
    assert!(!row.is_unsent && row.twin.actual.expect("a value").text() == "3");
    assert_eq!(world.reported().expect("it is saved").1, "- 3");
}

/// A device whose value is `3`: it is saved, and the cloud has confirmed it.
fn settled() -> World {
    let mut world = World::linked();
    for value in ["1", "2", "3"] {
        world.update("u", actual(value));
        world.pass(DEVICE_SAVE_MS);
        world.step();
        let (id, _) = world.reported().expect("it is sent");
        world.confirm(&id);
        world.pass(DEVICE_SAVE_MS);
        world.step();
        if let Some((id, _)) = world.reported() {
            world.confirm(&id);
        }
    }
    world.pass(TWIN_SAVE_MS);
    world.step();
    world.rows();
    assert!(world.devices.is_saved() && world.reported().is_none());
    world.pass(TWIN_SAVE_MS);
    world
}

#[test]
fn later_values_are_sent_at_once_and_saved_together_after_ten_minutes() {
    let mut world = settled();
    world.update("u", actual("4"));
    assert_eq!(world.rows().len(), 1, "the first one after a quiet time");
    let began = world.now.boot;
    let (id, got) = world.reported().expect("it is new");
    assert_eq!(got, "- 4");
    world.confirm(&id);
    for value in 5..=30 {
        world.pass(DEVICE_SAVE_MS);
        let value = value.to_string();
        world.update("u", actual(&value));
        let (id, got) = world.reported().expect("it is sent at once");
        assert_eq!(got, format!("- {value}"));
        world.confirm(&id);
    }
    assert!(world.rows().is_empty(), "they wait");
    assert_eq!(world.devices.save_at(world.now), Some(began.plus_ms(TWIN_SAVE_MS)));
    world.pass(TWIN_SAVE_MS - world.now.boot.since_ms(began));
    world.step();
    let row = world.rows().pop().expect("it is due");
    assert_eq!((row.is_unsent, row.twin.actual.expect("a value").text()), (false, "30"));
}

#[test]
fn a_save_reserves_versions_and_no_value_is_sent_with_another_one() {
    let mut world = settled();
    let version =
        |twin: &crate::model::device::Twin| twin.actual.as_ref().map(|it| it.version.edge);
    world.update("u", actual("4"));
    let row = world.rows().pop().expect("it is saved");
    assert_eq!(version(&row.twin), version(&world.twin()).map(|it| it + TWIN_VERSIONS_RESERVED));

    // A power cut: versions go on from the reserved ones, of which none is left.
    let stored = StoredDevices {
        twins: vec![row.clone()],
        devices: vec![device_row(&world)],
        ..StoredDevices::default()
    };
    let mut next = World::with(stored, &[]);
    next.link_up();
    assert!(next.reported().is_none(), "the cloud may have a newer value");
    next.saves = false;
    next.update("u", actual("5"));
    assert_eq!(version(&next.twin()), version(&row.twin).map(|it| it + 1));
    assert!(next.reported().is_none(), "no save has reserved this version");
    next.saves = true;
    next.step();
    assert_eq!(next.reported().expect("it is saved").1, "- 5");
}

#[test]
fn after_a_start_a_value_is_sent_when_it_is_reported_even_if_it_is_the_same() {
    let mut world = settled();
    world.update("u", actual("4"));
    let row = world.rows().pop().expect("it is saved");
    let stored = StoredDevices {
        twins: vec![row.clone()],
        devices: vec![device_row(&world)],
        ..StoredDevices::default()
    };
    let mut next = World::with(stored, &[]);
    next.link_up();
    // The cloud may have got 5 before the power cut, and the device has 4 again.
    next.update("u", actual("4"));
    let (id, got) = next.reported().expect("the cloud may have another value");
    assert_eq!(got, "- 4");
    next.confirm(&id);
    next.pass(DEVICE_MESSAGE_MS);
    next.update("u", actual("4"));
    assert!(next.reported().is_none(), "once");
}

#[test]
fn after_a_start_a_desired_value_goes_without_the_actual_one_that_may_be_old() {
    let mut world = settled();
    world.update("u", actual("4"));
    let row = world.rows().pop().expect("it is saved");
    let start = |row: TwinRow| {
        let (twins, devices) = (vec![row], vec![device_row(&world)]);
        let stored = StoredDevices { devices, twins, ..StoredDevices::default() };
        let mut next = World::with(stored, &[]);
        next.link_up();
        next
    };
    let mut next = start(row);
    next.update("u", set(Some("9"), None));
    let row = next.rows().pop().expect("it is saved at once");
    assert!(row.is_unsent && row.is_doubtful);
    assert_eq!(next.reported().expect("it is saved").1, "9 -");
    // Another power cut, before the cloud has confirmed it.
    let mut next = start(row);
    let (id, got) = next.reported().expect("it is not confirmed");
    assert_eq!(got, "9 -");
    next.confirm(&id);
    next.pass(DEVICE_MESSAGE_MS);
    next.update("u", actual("4"));
    assert_eq!(next.reported().expect("it is reported").1, "9 4");
}

#[test]
fn what_the_cloud_has_not_confirmed_is_marked_when_the_link_goes_and_then_nothing_overtakes_it() {
    let mut world = settled();
    world.update("u", actual("4"));
    assert!(!world.rows().pop().expect("it is saved").is_unsent);
    world.reported().expect("it is sent, and not confirmed");
    world.devices.link_down(world.now);
    world.pass(TWIN_SAVE_MS);
    world.step();
    assert!(world.rows().pop().expect("the mark").is_unsent);
    world.update("u", actual("5"));
    world.pass(DEVICE_SAVE_MS);
    world.step();
    assert!(world.rows().is_empty(), "without a link there is no hurry");
    world.saves = false;
    world.link_up();
    assert!(world.reported().is_none(), "after a power cut 4 would come after 5");
    world.saves = true;
    world.step();
    assert!(!world.rows().pop().expect("the mark is removed").is_unsent);
    assert_eq!(world.reported().expect("now it may").1, "- 5");
}

#[test]
fn a_desired_value_is_saved_before_it_is_sent_and_takes_the_actual_one_with_it() {
    let mut world = settled();
    world.update("u", actual("4"));
    let (id, _) = world.reported().expect("it is sent");
    world.confirm(&id);
    world.rows();
    world.pass(DEVICE_MESSAGE_MS);
    world.update("u", actual("5"));
    assert!(world.rows().is_empty(), "it waits");
    world.saves = false;
    world.update("u", set(Some("9"), None));
    assert!(world.reported().is_none(), "it is not saved");
    world.saves = true;
    world.step();
    let row = world.rows().pop().expect("at once");
    assert!(row.is_unsent && row.twin.actual.expect("too").text() == "5");
    world.update("u", actual("6"));
    assert_eq!(world.reported().expect("what the disk has").1, "9 5");
}

#[test]
fn that_the_cloud_has_a_value_is_saved_some_day() {
    let mut world = World::linked();
    world.update("u", actual("1"));
    assert!(world.rows().pop().expect("it is saved at once").is_unsent);
    let (id, _) = world.reported().expect("it is sent");
    world.confirm(&id);
    world.pass(TWIN_MARK_MS - 1);
    world.step();
    assert!(world.rows().is_empty(), "a write for it costs more than a message");
    world.pass(1);
    world.step();
    assert!(!world.rows().pop().expect("it is due").is_unsent);
}

#[test]
fn an_unchanged_value_costs_no_write() {
    let mut world = settled();
    for _ in 0..20 {
        world.pass(DEVICE_MESSAGE_MS);
        world.update("u", actual("3"));
        world.step();
    }
    assert!(world.rows().is_empty());
}

#[test]
fn the_first_state_is_saved_and_sent_at_once_and_later_ones_after_seconds() {
    let mut world = World::linked();
    world.update("u", actual("1"));
    world.state("online");
    assert!(matches!(world.saved.pop(), Some(DeviceChange::PutDevice(row)) if row.is_unsent));
    let (id, report) = world.report().expect("it is saved");
    assert!(matches!(report, DeviceUpstream::State(_, state) if &*state.state == "online"));
    world.confirm(&id);
    world.saved.clear();
    world.state("offline");
    assert!(world.saved.is_empty(), "states may change each second");
    world.pass(DEVICE_SAVE_MS);
    world.step();
    assert!(matches!(world.saved.pop(), Some(DeviceChange::PutDevice(_))));
    let (_, report) = world.report().expect("it is saved");
    assert!(matches!(report, DeviceUpstream::State(_, state) if &*state.state == "offline"));
}
