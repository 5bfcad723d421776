//! Attributes, which only the cloud changes.

use super::*;
use crate::limits::{ATTRIBUTES_MAX, DEVICE_ATTRIBUTES_MAX};
use crate::model::device::{Attribute, AttributeRow, Attributes};

fn attribute(value: &str) -> Attribute {
    Attribute { value: value.into(), optional: true, type_name: "string".into() }
}

/// The rows of attributes that were saved since the last call.
fn attribute_rows(world: &mut World) -> Vec<Attributes> {
    let saved = std::mem::take(&mut world.saved).into_iter();
    let all = saved.filter_map(|change| match change {
        DeviceChange::PutAttributes(id, all) if id == dev1() => Some(all),
        _ => None,
    });
    all.collect()
}

#[test]
fn attributes_are_those_of_the_cloud_and_a_message_without_any_leaves_them() {
    let mut world = World::new();
    let say = |world: &mut World, message| {
        world.devices.message(world.now, message, &mut world.rng);
        let published = published(world.step());
        let changes = published.into_iter().filter_map(|it| match it {
            Published::Attributes(id, changes) if id == dev1() => Some(changes),
            _ => None,
        });
        (changes.collect::<Vec<_>>(), attribute_rows(world))
    };
    let member = |attributes: Option<Attributes>| {
        let given =
            GivenDevice { id: dev1(), description: Box::default(), attributes, twins: Vec::new() };
        DeviceDownstream::Membership { added: vec![given], removed: Vec::new() }
    };
    let maker: Attributes = [("maker".into(), attribute("acme"))].into();
    let (told, rows) = say(&mut world, member(Some(maker.clone())));
    assert_eq!(told, [vec![("maker".into(), Some(attribute("acme")))]]);
    assert_eq!(rows, std::slice::from_ref(&maker), "they are saved at once");
    for same in [None, Some(maker.clone())] {
        assert_eq!(say(&mut world, member(same)), (Vec::new(), Vec::new()));
    }
    let changes = vec![("line".into(), Some(attribute("2"))), ("none".into(), None)];
    let (told, rows) = say(&mut world, DeviceDownstream::Attributes(dev1(), changes.clone()));
    assert_eq!((told, rows[0].len()), (vec![changes[..1].to_vec()], 2), "others stay");
    let members = world.devices.table.members(&[dev1()]);
    assert_eq!(members[0].attributes.len(), 2);
    let (told, rows) = say(&mut world, member(Some(maker.clone())));
    assert_eq!((told, rows), (vec![vec![("line".into(), None)]], vec![maker.clone()]));

    // The next process has them.
    let (device, name) = (dev1(), "maker".into());
    let row = AttributeRow { device, name, attribute: attribute("acme") };
    let devices = vec![device_row(&world)];
    let stored = StoredDevices { devices, attributes: vec![row], ..StoredDevices::default() };
    let next = World::with(stored, &[]);
    assert_eq!(next.devices.table.members(&[dev1()])[0].attributes, maker);
    let unknown = DeviceDownstream::Attributes(DeviceId::of("none"), changes);
    assert_eq!(say(&mut world, unknown), (Vec::new(), Vec::new()));
}

#[test]
fn attributes_have_a_bound() {
    let mut world = World::new();
    let many = |count: usize| -> Attributes {
        (0..count).map(|n| (format!("a{n}").into(), attribute("1"))).collect()
    };
    let given = |n: usize| GivenDevice {
        id: DeviceId::of(&format!("d{n}")),
        description: Box::default(),
        attributes: Some(many(DEVICE_ATTRIBUTES_MAX + 1)),
        twins: Vec::new(),
    };
    let added = (0..=ATTRIBUTES_MAX / DEVICE_ATTRIBUTES_MAX).map(given).collect();
    let message = DeviceDownstream::Membership { added, removed: Vec::new() };
    world.devices.message(world.now, message, &mut world.rng);
    let counts: Vec<usize> =
        world.devices.table.iter().map(|(_, it)| it.attributes().len()).collect();
    assert_eq!(counts[0], DEVICE_ATTRIBUTES_MAX);
    assert_eq!(counts.iter().sum::<usize>(), ATTRIBUTES_MAX);
    let full = &DeviceId::of("d0");
    let changes = vec![("a0".into(), Some(attribute("2")))];
    let changed = world.devices.table.change_attributes(full, changes).expect("it is there");
    assert_eq!(changed.attributes.len(), 1, "those that are there may change");
}
