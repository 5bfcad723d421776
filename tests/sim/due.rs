//! The queue of future events.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use edged::agent::event::{JobId, ProbeId};

use crate::cloud;
use crate::runtime::{Serial, Timer};

/// Future events, those of the same time in the order in which they were put in.
#[derive(Default)]
pub struct Queue {
    all: BinaryHeap<Reverse<Due>>,
    order: u64,
}

struct Due {
    /// World time.
    at: u64,
    order: u64,
    event: WorldEvent,
}

/// A future event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorldEvent {
    /// The runtime takes up a call.
    Begin(Serial),
    /// The runtime ends an operation.
    Finish(Serial),
    /// An answer arrives.
    Answer(Serial),
    /// A call's deadline.
    Expire(Serial),
    /// A timer of the runtime.
    Runtime(Timer),
    /// The daemon is up again.
    DaemonUp,
    /// The agent of this life tries to connect.
    Connect(u32),
    /// A condition that was not ready is ready again.
    Ready,
    /// A job of this life ends.
    JobEnds(u32, JobId),
    /// A query of this life is answered.
    QueryEnds(u32, ProbeId),
    /// The last words of a container are read in this life.
    WordsRead(u32, JobId),
    /// The event loop of this life has read the folder.
    Read(u32),
    /// The event loop of this life has the addresses.
    Addresses(u32),
    /// The users may change the manifests.
    UserChange,
    /// Somebody asks for a log or a command, or leaves.
    #[cfg(feature = "streams")]
    Person,
    /// A fault may happen.
    Tick,
    /// The clock is set by the network.
    ClockSet,
    /// The event loop of this life has measured.
    Measured(u32),
    /// By now the stops of this pod must have been requested.
    StopDue(usize),
    /// An event between node and cloud.
    #[cfg_attr(not(feature = "cloud"), expect(dead_code, reason = "there is no cloud"))]
    Cloud(cloud::Due),
}

impl Queue {
    /// At this world time the event happens.
    pub fn push(&mut self, at: u64, event: WorldEvent) {
        self.order += 1;
        self.all.push(Reverse(Due { at, order: self.order, event }));
    }

    /// The time of the next event.
    pub fn next_at(&self) -> Option<u64> {
        self.all.peek().map(|Reverse(due)| due.at)
    }

    pub fn pop(&mut self) -> Option<WorldEvent> {
        self.all.pop().map(|Reverse(due)| due.event)
    }

    pub fn retain(&mut self, keep: impl Fn(WorldEvent) -> bool) {
        self.all.retain(|Reverse(due)| keep(due.event));
    }
}

impl Eq for Due {}

impl PartialEq for Due {
    fn eq(&self, other: &Self) -> bool {
        self.order == other.order
    }
}

impl Ord for Due {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.order).cmp(&(other.at, other.order))
    }
}

impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
