//! The tables of devices: changes of their rows, and what is found of them.

use edged::model::device::{
    Acknowledged, Attribute, DeviceChange, DeviceId, DeviceRow, DeviceState, Twin, TwinRow,
    TwinSide, TwinVersion,
};
use edged::model::meta::{Change, Saved};

use crate::chance::Chance;

#[path = "../sim/cloud/devices/rows.rs"]
#[expect(dead_code, reason = "shared with the simulator, which gives them to an agent")]
mod rows;

pub use rows::Rows;

const DEVICES: u64 = 4;
const PROPERTIES: u64 = 4;

/// What was read at a start.
pub fn read(saved: &Saved) -> Rows {
    Rows::of(&saved.devices)
}

/// How many rows these are.
pub fn count(saved: &Saved) -> u64 {
    let devices = &saved.devices;
    (devices.devices.len() + devices.twins.len() + devices.acknowledged.len()) as u64
}

/// A change of these tables, in one of three.
pub fn change(revision: u64, chance: &mut Chance) -> Option<Change> {
    if !chance.percent(33) {
        return None;
    }
    let id = DeviceId::new("default", &format!("dev{}", chance.below(DEVICES)));
    let text = |chance: &mut Chance| -> Box<str> {
        let len = chance.spread(500) as usize;
        format!("{revision} {}", "x".repeat(len)).into()
    };
    let change = match chance.below(10) {
        0..2 => DeviceChange::PutDevice(DeviceRow {
            id,
            description: text(chance),
            state: DeviceState { state: "online".into(), last_online: Box::default() },
            is_unsent: chance.percent(50),
            uid: chance.percent(80).then(|| format!("u-{revision}").into()),
        }),
        2 => DeviceChange::RemoveDevice(id),
        3 if chance.percent(30) => {
            let value = format!("{revision}").into();
            let attribute = Attribute { value, optional: true, type_name: "string".into() };
            let names = (0..chance.below(3)).map(|n| format!("a{n}").into());
            let attributes = names.map(|name| (name, attribute.clone())).collect();
            DeviceChange::PutAttributes(id, attributes)
        }
        3..8 => DeviceChange::PutTwin(Box::new(TwinRow {
            device: id,
            property: format!("p{}", chance.below(PROPERTIES)).into(),
            twin: twin(revision, text(chance), chance),
            is_unsent: chance.percent(50),
            is_doubtful: false,
            desired: chance.percent(50).then(|| text(chance)),
        })),
        other => {
            let mapper: Box<str> = format!("m{}", chance.below(2)).into();
            let object: Box<str> = format!("device/{id}").into();
            if other == 8 {
                DeviceChange::RemoveAcknowledged(mapper, object)
            } else {
                let digest = chance.bits();
                DeviceChange::PutAcknowledged(Acknowledged { mapper, object, digest })
            }
        }
    };
    Some(Change::Device(change))
}

fn twin(revision: u64, value: Box<str>, chance: &mut Chance) -> Twin {
    let version = TwinVersion { cloud: 0, edge: revision as i64 };
    let side = TwinSide { value: Some(value), timestamp_ms: revision as i64, version };
    let expected = chance.percent(50).then(|| side.clone());
    Twin { expected, actual: Some(side), optional: chance.percent(80), type_name: "string".into() }
}
