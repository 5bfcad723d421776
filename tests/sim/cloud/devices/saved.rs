//! What devices have reported, and by when it must be in the store: after a power cut a value may
//! be 20 minutes old.

use std::collections::{BTreeMap, VecDeque};

use edged::limits::TWIN_SAVE_MS;
use edged::model::device::{DeviceId, PropertyUpdate};

use super::rows::Rows;
use crate::rule::judge;

/// Until a save that is due has ended: the agent may be stalled, and the disk slow.
const SLOW_MS: u64 = 120_000;

/// Times, and the numbers that were reported then.
type Numbers = VecDeque<(u64, u64)>;

/// The numbers that the agent has accepted in this life.
#[derive(Default)]
pub struct Reported {
    /// By device and property.
    numbers: BTreeMap<(DeviceId, Box<str>), Numbers>,
    /// A save has failed: there is no time by which anything is saved.
    has_failed: bool,
}

impl Reported {
    pub fn save_failed(&mut self) {
        self.has_failed = true;
    }

    /// The device is gone.
    pub fn forget(&mut self, id: &DeviceId) {
        self.numbers.retain(|(device, _), _| device != id);
    }

    pub fn accept(&mut self, now: u64, id: &DeviceId, updates: &[(Box<str>, PropertyUpdate)]) {
        for (name, update) in updates {
            let key = (id.clone(), name.clone());
            let PropertyUpdate::Set { actual, .. } = update else {
                self.numbers.remove(&key);
                continue;
            };
            let number = actual.as_ref().and_then(|it| it.parse().ok());
            let Some(number) = number else { continue };
            let all = self.numbers.entry(key).or_default();
            all.push_back((now, number));
            // Only the last one of those that must be saved counts.
            while all.get(1).is_some_and(|(at, _)| at + TWIN_SAVE_MS + SLOW_MS <= now) {
                all.pop_front();
            }
        }
    }

    /// A life begins with these rows; the one before has ended then.
    pub fn judge(&mut self, ended_at: u64, rows: &Rows) {
        let Self { numbers, has_failed } = std::mem::take(self);
        if has_failed {
            return;
        }
        for ((id, name), all) in numbers {
            let is_due = |(at, _): &&(u64, u64)| at + TWIN_SAVE_MS + SLOW_MS <= ended_at;
            let Some((at, number)) = all.iter().rfind(is_due) else { continue };
            let row = rows.twins.get(&(id.clone(), name.clone()));
            let text = row.and_then(|row| row.twin.actual.as_ref()).map(|it| it.text().to_owned());
            let stored = text.as_ref().and_then(|it| it.parse::<u64>().ok());
            judge!(
                stored.is_none_or(|stored| stored >= *number),
                "[saved in time] {id} {name} was {number} at {at}, {text:?} is stored at {ended_at}"
            );
        }
    }
}
