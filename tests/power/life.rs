//! One seed: a store under power cuts, kills and faults, and the conditions at each start.

use std::collections::BTreeMap;
use std::path::Path;

use edged::agent::event::Event;
use edged::io::disk::{Disk, Vfs};
use edged::model::meta::{Change, Revision, Row, Saved, StoreOrigin};

use crate::chance::Chance;
use crate::devices::{self, Rows};
use crate::disk::{Faults, FaultyDisk};
use crate::vfs;

/// The expected contents of the tables.
#[derive(Clone, Debug, Default, PartialEq)]
struct Tables {
    /// Of objects: by key, kind and value.
    objects: BTreeMap<Box<str>, Row>,
    devices: Rows,
}

/// The counts.
#[derive(Debug, Default)]
pub struct Tally {
    /// Power cuts.
    pub cuts: u64,
    /// Of these, cuts during a start.
    pub cuts_at_start: u64,
    /// Saves that were answered with success, and with failure.
    pub saved: u64,
    pub failed: u64,
    /// Cuts after which the transaction under way was found.
    pub kept_under_way: u64,
    /// Rows that were checked after cuts.
    pub rows: u64,
    /// Likewise of the tables of devices.
    pub device_rows: u64,
}

struct Life {
    chance: Chance,
    /// Every other seed has devices as well; the others stay as they were.
    has_devices: bool,
    faults: Faults,
    /// The last state that was answered with success, or read and synced at a start.
    acked: Tables,
    /// What the running store has: `acked`, or a state that was read at a start and not synced.
    current: Tables,
    /// The states after each save since then: a failed save may be found after a cut, whole, if its
    /// log reached the disk and no later one did.
    asked: Vec<Tables>,
    revision: u64,
}

/// Runs through this many cuts; an error describes the violation.
pub fn live(seed: u64, cuts: u64, lies: bool, tally: &mut Tally) -> Result<(), String> {
    let mut chance = Chance::new(seed);
    let faults = Faults {
        full_percent: if chance.percent(70) { 0 } else { chance.below(5) },
        sync_percent: if chance.percent(70) { 0 } else { chance.below(10) },
        lies,
    };
    vfs::insert(FaultyDisk::new(chance.bits()));
    let mut life = Life {
        chance,
        has_devices: !seed.is_multiple_of(2),
        faults,
        acked: Tables::default(),
        current: Tables::default(),
        asked: Vec::new(),
        revision: 0,
    };
    for _ in 0..cuts {
        let left = 1 + life.chance.spread(2_000);
        vfs::with(|disk| {
            disk.left = left;
            disk.faults = faults;
        });
        life.until_the_cut(tally)?;
        vfs::with(FaultyDisk::reboot);
        tally.cuts += 1;
        // The power may be cut again before the store is checked.
        if life.chance.percent(30) {
            continue;
        }
        vfs::with(|disk| disk.faults = Faults { lies, ..Faults::default() });
        let disk = life.start(tally)?.ok_or("a start without faults failed")?;
        if life.chance.percent(50) {
            crate::trace(format_args!("== close"));
            disk.close();
        } else {
            vfs::with(FaultyDisk::kill);
            drop(disk);
            vfs::with(FaultyDisk::revive);
        }
    }
    Ok(())
}

impl Life {
    /// Starts, saves, ends and starts again until the power is cut.
    fn until_the_cut(&mut self, tally: &mut Tally) -> Result<(), String> {
        let is_dead = || vfs::with(|disk| disk.is_dead());
        while !is_dead() {
            let Some(mut disk) = self.start(tally)? else {
                tally.cuts_at_start += u64::from(is_dead());
                continue;
            };
            for _ in 0..self.chance.spread(200) {
                self.save(&mut disk, tally)?;
                if is_dead() {
                    break;
                }
            }
            if self.chance.percent(50) {
                crate::trace(format_args!("== close"));
                disk.close();
            }
        }
        Ok(())
    }

    /// Opens the store and checks its contents. None if the power was cut meanwhile or a fault
    /// prevented reading.
    fn start(&mut self, tally: &mut Tally) -> Result<Option<Disk>, String> {
        let opened = Disk::open_on(Vfs::of_test(vfs::VFS), Path::new("/edgecore.db"));
        let (disk, saved) = opened.map_err(|refused| refused.to_string())?;
        let (devices, device_rows) = (devices::read(&saved), devices::count(&saved));
        let Saved { rows, origin, is_unsynced, .. } = saved;
        let what = if is_unsynced { "unsynced rows" } else { "rows" };
        crate::trace(format_args!("== opened: {origin:?}, {} {what}", rows.len()));
        let whole = match &origin {
            StoreOrigin::Kept => true,
            // Nothing was acknowledged yet, so the table may be empty.
            StoreOrigin::New => true,
            StoreOrigin::Part { unread } => {
                return Err(format!("these rows stayed unread: {unread:?}"));
            }
            StoreOrigin::Lost(why) => {
                let (dead, faults) = vfs::with(|disk| (disk.is_dead(), disk.faults));
                let excused = dead || faults.full_percent + faults.sync_percent > 0;
                if !excused || why.contains("damaged") {
                    return Err(format!("the store was lost: {why}"));
                }
                false
            }
        };
        if !whole {
            return Ok(None);
        }
        tally.rows += rows.len() as u64;
        tally.device_rows += device_rows;
        let objects = rows.into_iter().map(|row| (row.key.clone(), row)).collect();
        let found = Tables { objects, devices };
        if found != self.acked {
            if !self.asked.contains(&found) {
                return Err(self.difference(&found, &origin));
            }
            tally.kept_under_way += 1;
        }
        if !is_unsynced {
            self.acked = found.clone();
            self.asked.clear();
        }
        self.current = found;
        if vfs::with(|disk| disk.is_dead()) { Ok(None) } else { Ok(Some(disk)) }
    }

    fn save(&mut self, disk: &mut Disk, tally: &mut Tally) -> Result<(), String> {
        let changes: Vec<Change> = (0..=self.chance.spread(8)).map(|_| self.change()).collect();
        let mut next = self.current.clone();
        for change in &changes {
            match change {
                Change::Put(row) => drop(next.objects.insert(row.key.clone(), row.clone())),
                Change::Delete { key } => drop(next.objects.remove(key)),
                #[cfg(feature = "metaserver")]
                Change::Item(_) => {}
                #[cfg(feature = "devices")]
                Change::SubTopic(row) => panic!("none is drawn: {row:?}"),
                #[cfg(feature = "servicebus")]
                Change::TargetUrl(row) => panic!("none is drawn: {row:?}"),
                #[cfg(feature = "devices")]
                Change::Device(change) => next.devices.write(change.clone()),
            }
        }
        self.revision += 1;
        let answer = disk.save(Revision(self.revision), &changes);
        crate::trace(format_args!("== {answer:?}"));
        match answer {
            Event::Saved(Revision(revision)) if revision == self.revision => {
                tally.saved += 1;
                (self.acked, self.current) = (next.clone(), next);
                self.asked.clear();
                Ok(())
            }
            Event::SaveFailed(Revision(revision), _) if revision == self.revision => {
                tally.failed += 1;
                self.asked.push(next);
                Ok(())
            }
            other => Err(format!("got {other:?} for the revision {}", self.revision)),
        }
    }

    fn change(&mut self) -> Change {
        if self.has_devices
            && let Some(change) = devices::change(self.revision, &mut self.chance)
        {
            return change;
        }
        let key = format!("default/pod/p{}", self.chance.below(40)).into_boxed_str();
        if self.chance.percent(25) {
            return Change::Delete { key };
        }
        let letter = char::from(b'a' + self.chance.below(26) as u8);
        let len = self.chance.spread(20_000) as usize;
        let value = format!("\"{}{}\"", self.revision, letter.to_string().repeat(len));
        Change::Put(Row { key, kind: "pod".into(), value: value.into() })
    }

    fn difference(&self, found: &Tables, origin: &StoreOrigin) -> String {
        let (acked, found_objects) = (&self.acked.objects, &found.objects);
        let lost: Vec<&str> = acked
            .keys()
            .filter(|key| !found_objects.contains_key(*key))
            .map(|key| &**key)
            .collect();
        let other: Vec<&str> = found_objects
            .iter()
            .filter(|(key, row)| acked.get(*key) != Some(row))
            .map(|(key, _)| &**key)
            .collect();
        let faults = &self.faults;
        let asked = self.asked.len();
        format!(
            "after {} saves ({faults:?}, {asked} failed since the last) the store ({origin:?}) \
             holds {} rows, expected {}: lost {lost:?}, reverted or unknown {other:?}; of devices \
             {:?}, expected {:?}",
            self.revision,
            found_objects.len(),
            acked.len(),
            found.devices,
            self.acked.devices
        )
    }
}
