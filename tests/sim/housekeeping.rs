//! The machine's resources, and the runtime's calls for housekeeping.

use std::collections::BTreeSet;

use edged::agent::event::Event;
use edged::model::cri::{CallError, Code, Reply};
use edged::model::housekeeping::{
    Amount, HousekeepingCall, HousekeepingReply, MeasureRequest, Measures, Room, StoredImage,
};
use edged::model::job::{LogDir, LogLink};

use crate::chance::Chance;
use crate::rule::judge;
use crate::runtime::{Effect, Registry, Runtime, number_of, refused};
use crate::short::{self, Rest};
use crate::trace::trace;
use crate::world::{World, WorldEvent};

/// The disk.
pub struct Machine {
    /// Of the file system with images and logs.
    capacity: u64,
    /// Used by other data.
    other: u64,
    rest: Rest,
    ask: Option<MeasureRequest>,
}

/// The path of the images.
const IMAGES: &str = "/var/lib/images";
/// The most that other data takes, percent.
const OTHER_PERCENT_MAX: u64 = 90;

impl Machine {
    /// Some disks are so small that a few images fill them.
    pub fn draw(chance: &mut Chance) -> Self {
        let capacity = if chance.percent(40) { chance.between(12, 60) << 20 } else { 1 << 40 };
        Self { capacity, other: 0, rest: Rest::default(), ask: None }
    }

    /// Other data fills the disk, or is removed.
    pub fn change(&mut self, chance: &mut Chance) {
        self.other = self.capacity * chance.below(OTHER_PERCENT_MAX) / 100;
        // A separate random sequence, as for all shortages.
        self.rest.change(&mut Chance::new(self.other));
    }

    /// Removes all other data; and where pods are evicted, there is enough room.
    pub fn tidy(&mut self, evicts: bool) {
        if evicts {
            self.capacity = 1 << 40;
        }
        self.other = 0;
        self.rest = Rest::default();
    }

    /// No measurement is pending any more.
    pub fn forget(&mut self) {
        self.ask = None;
    }

    /// The room that the images leave.
    pub fn room(&self, registry: &Registry) -> Room {
        let available = self.capacity.saturating_sub(self.other + registry.bytes());
        let bytes = Amount { capacity: self.capacity, available };
        Room { bytes, inodes: Amount { capacity: 0, available: 0 }, device: 1 }
    }
}

impl World {
    /// The agent requests a measurement; it may take some time.
    pub(crate) fn measure(&mut self, ask: MeasureRequest) {
        trace!(self.clocks.now(), "{ask:?}");
        self.check.garbage.measure();
        self.machine.ask = Some(ask);
        let (ms, life) = (self.chance.below(self.faults.latency_ms + 1), self.life);
        self.at(ms, WorldEvent::Measured(life));
    }

    /// The measurement is done.
    pub(crate) fn measured(&mut self, life: u32) {
        if life != self.life {
            return;
        }
        let ask = self.machine.ask.take().expect("it was requested in this life");
        let room = self.machine.room(&self.runtime.registry);
        let blind = self.chance.percent(self.faults.job_fail_pct);
        let mut measures = Measures {
            image_fs: ask.image_fs.as_ref().filter(|_| !blind).map(|place| {
                judge!(&**place == IMAGES, "[image fs] requests {place}");
                room
            }),
            logs: ask.logs.iter().map(|log| self.size_of_log(log.clone())).collect(),
            log_dirs: ask.log_dirs.then(|| {
                let mut dirs = self.disk.pods_with_logs();
                let idle = ask.cgroups_but.as_ref().map(|known| self.idle_cgroups(known));
                let more = idle.into_iter().flatten();
                let more = more.filter(|uid| !dirs.iter().any(|dir| dir.uid == *uid));
                let more: Vec<LogDir> = more.map(|uid| LogDir::nameless(&uid)).collect();
                dirs.extend(more);
                dirs
            }),
            ..Measures::default()
        };
        self.machine.rest.fill(&self.runtime, &ask, room, &mut measures);
        trace!(self.clocks.now(), "→ {measures:?}");
        self.deliver(vec![Event::Measured(Box::new(measures))]);
    }
}

impl World {
    /// Some logs are large.
    fn size_of_log(&mut self, log: LogLink) -> (LogLink, Option<u64>) {
        let large = self.chance.percent(3);
        let size = if large { 1 << 40 } else { 1_000 };
        let is_there = self.disk.leads(&log);
        (log, is_there.then_some(size))
    }
}

impl Runtime {
    pub(crate) fn housekeeping(
        &mut self,
        housekeeping: &HousekeepingCall,
    ) -> Result<Reply, CallError> {
        Ok(match housekeeping {
            HousekeepingCall::ImageFsInfo => {
                Reply::HousekeepingCall(HousekeepingReply::ImageFs(Some(IMAGES.into())))
            }
            HousekeepingCall::ListImages => {
                Reply::HousekeepingCall(HousekeepingReply::Images(self.registry.list()))
            }
            HousekeepingCall::RemoveImage(id) => {
                let name = id.strip_prefix("sha256:").unwrap_or(id);
                self.registry.forget(name);
                Reply::Done
            }
            HousekeepingCall::ReopenContainerLog(id) => {
                let number = number_of(&id.0);
                if !self.containers.get(&number).is_some_and(|it| it.alive) {
                    let message = format!("container {id} is not running");
                    return Err(refused(Code::FailedPrecondition, message));
                }
                self.outputs.effects.push(Effect::Reopened(number));
                Reply::Done
            }
            HousekeepingCall::ListContainerStats => {
                Reply::HousekeepingCall(HousekeepingReply::Containers(short::containers(self)))
            }
            HousekeepingCall::ListPodSandboxStats => {
                Reply::HousekeepingCall(HousekeepingReply::Sandboxes(short::sandboxes(self)))
            }
        })
    }
}

impl Registry {
    /// The size of an image that is present, bytes.
    pub fn size(&self, name: &str) -> Option<u64> {
        self.has(name).then(|| size_of(name))
    }

    /// Whether the runtime pins it.
    pub fn is_pinned(name: &str) -> bool {
        name.contains("side")
    }

    /// Of all images.
    pub fn bytes(&self) -> u64 {
        self.names().map(|name| size_of(name)).sum()
    }

    fn list(&self) -> Vec<StoredImage> {
        let image = |name: &str| StoredImage {
            id: format!("sha256:{name}").into(),
            names: vec![name.into()],
            size: size_of(name),
            pinned: Self::is_pinned(name),
        };
        self.names().map(|name| image(name)).collect()
    }

    /// Images that are removed when room is short, except these.
    pub fn removable(&self, needed: &BTreeSet<Box<str>>) -> impl Iterator<Item = &Box<str>> {
        self.names().filter(|name| !Self::is_pinned(name) && !needed.contains(&***name))
    }
}

/// From 1 to 8 MiB.
fn size_of(name: &str) -> u64 {
    (1 + name.len() as u64 % 8) << 20
}
