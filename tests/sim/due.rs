//! What is going to happen, in order.

use edged::agent::event::{JobId, ProbeId};

use crate::cloud;
use crate::runtime::{Serial, Timer};

/// Something, and when.
pub struct Due {
    /// World time.
    pub at: u64,
    /// Decides between what falls on one moment.
    pub order: u64,
    /// What.
    pub thing: Thing,
}

/// Something that is going to happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Thing {
    /// The runtime takes up a call.
    Begin(Serial),
    /// The runtime ends an operation.
    Finish(Serial),
    /// An answer arrives.
    Answer(Serial),
    /// A call's deadline.
    Expire(Serial),
    /// Inside the runtime.
    Runtime(Timer),
    /// The daemon is there again.
    DaemonUp,
    /// The agent of this life tries to connect.
    Connect(u32),
    /// What was not ready is again.
    Ready,
    /// A job of this life ends.
    JobEnds(u32, JobId),
    /// A query of this life is answered.
    QueryEnds(u32, ProbeId),
    /// What a container left is read in this life.
    WordsRead(u32, JobId),
    /// The hands of this life have read the folder.
    Read(u32),
    /// The hands of this life know the addresses.
    Addresses(u32),
    /// Somebody may change the manifests.
    Will,
    /// Something may go wrong.
    Tick,
    /// The clock is set by the network.
    ClockSet,
    /// The hands of this life have read the gauges.
    Measured(u32),
    /// By now the stops of this pod must have been asked for.
    StopDue(usize),
    /// Between node and cloud.
    #[cfg_attr(not(feature = "cloud"), expect(dead_code, reason = "there is no cloud"))]
    Sky(cloud::Due),
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
