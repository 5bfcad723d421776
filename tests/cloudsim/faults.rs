//! Faults and their rates, drawn once per seed.

use edged::controller::SyncStore;

use crate::chance::Chance;

/// The class of world of a seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// A few nodes and one controller, with faults.
    Usual,
    /// Nothing happens but the changes of users.
    Calm,
    /// All rates are high at once.
    Storm,
    /// Many nodes.
    Crowd,
    /// Two or three replicas.
    Replicas,
}

impl Class {
    /// By the seed alone, so that a run of consecutive seeds has all of them.
    pub fn of(seed: u64) -> Self {
        match seed % 20 {
            7 => Self::Calm,
            3 | 13 => Self::Storm,
            17 => Self::Crowd,
            1 | 5 | 9 | 11 | 15 | 19 => Self::Replicas,
            _ => Self::Usual,
        }
    }
}

/// Rates of all faults; all zero is a calm world.
///
/// `_pct` is a probability in percent each time; `_ppm` in parts per million at each tick; `_ms`
/// the longest duration.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    /// A call's answer is lost; half of them have taken effect.
    pub call_lost_pct: u64,
    /// A save fails as a whole.
    pub save_fails_pct: u64,
    /// A watch ends when it has something to report.
    pub watch_ends_pct: u64,
    /// Delay of a message, a call or an answer.
    pub delay_ms: u64,
    /// Delay of a watch.
    pub watch_ms: u64,
    /// The API server is down.
    pub api_down_ppm: u64,
    /// For this long.
    pub api_down_ms: u64,
    /// The history is dropped: older watches get 410.
    pub compaction_ppm: u64,
    /// A replica is killed.
    pub crash_ppm: u64,
    /// Share of these in which its store is lost.
    pub store_lost_pct: u64,
    /// A replica is stopped.
    pub stop_ppm: u64,
    /// Until the next life begins.
    pub down_ms: u64,
    /// A replica is frozen.
    pub freeze_ppm: u64,
    /// For this long.
    pub freeze_ms: u64,
    /// A node's link breaks.
    pub link_ppm: u64,
    /// Share of these that stay unnoticed.
    pub half_open_pct: u64,
    /// A node begins a new life.
    pub node_restart_ppm: u64,
    /// Share of these in which its store is lost.
    pub node_store_lost_pct: u64,
    /// A node's certificates are revoked.
    pub revoke_ppm: u64,
    /// The number of nodes that send false reports.
    pub liars: usize,
    /// The number of nodes that attack.
    pub hostile: usize,
    /// The users change something about this often.
    pub user_change_ms: u64,
}

/// Between two draws of each `_ppm`.
pub const TICK_MS: u64 = 500;

impl Faults {
    /// Draws the rates of a seed.
    pub fn draw(class: Class, chance: &mut Chance) -> Self {
        let user_change_ms = 500 << chance.below(5);
        match class {
            Class::Calm => Self { user_change_ms, ..Self::calm() },
            Class::Usual | Class::Crowd | Class::Replicas => Self::rates(user_change_ms, |max| {
                // Zero in two of five.
                chance.rate(max)
            }),
            Class::Storm => {
                let half = |chance: &mut Chance, max: u64| max / 2 + chance.below(max / 2 + 1);
                Self::rates(user_change_ms, |max| half(chance, max))
            }
        }
    }

    /// No faults; operations take time.
    pub fn calm() -> Self {
        Self { delay_ms: 20, watch_ms: 50, ..Self::default() }
    }

    fn rates(user_change_ms: u64, mut rate: impl FnMut(u64) -> u64) -> Self {
        Self {
            call_lost_pct: rate(20),
            save_fails_pct: rate(20),
            watch_ends_pct: rate(20),
            delay_ms: rate(8) * rate(1_000),
            watch_ms: rate(8) * rate(1_000),
            api_down_ppm: rate(5_000),
            api_down_ms: rate(60_000),
            compaction_ppm: rate(15_000),
            crash_ppm: rate(8_000),
            store_lost_pct: rate(60),
            stop_ppm: rate(3_000),
            down_ms: rate(30_000),
            freeze_ppm: rate(4_000),
            freeze_ms: rate(40_000),
            link_ppm: rate(30_000),
            half_open_pct: rate(60),
            node_restart_ppm: rate(10_000),
            node_store_lost_pct: rate(60),
            revoke_ppm: rate(3_000),
            liars: rate(2) as usize,
            hostile: rate(2) as usize,
            user_change_ms,
        }
    }
}

/// The sizes of a world.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// The number of controllers.
    pub replicas: usize,
    /// The number of honest nodes that stay.
    pub nodes: usize,
    /// The number of names of pods.
    pub pods: u64,
    /// Where the records are stored.
    pub sync: SyncStore,
    /// The time until the faults stop.
    pub live_ms: u64,
}

impl Size {
    /// Draws the sizes of a seed.
    pub fn draw(class: Class, chance: &mut Chance) -> Self {
        let sync = if chance.percent(50) { SyncStore::Table } else { SyncStore::Objects };
        let usual = Self {
            replicas: 1,
            nodes: chance.between(1, 4) as usize,
            pods: 6,
            sync,
            live_ms: chance.between(30_000, 150_000),
        };
        match class {
            Class::Usual | Class::Calm | Class::Storm => usual,
            Class::Crowd => Self { nodes: 15, pods: 40, live_ms: 40_000, ..usual },
            Class::Replicas => {
                let replicas = chance.between(2, 3) as usize;
                Self { replicas, sync: SyncStore::Objects, ..usual }
            }
        }
    }
}
