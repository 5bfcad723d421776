//! What goes wrong and how often, drawn once per seed.

use edged::controller::SyncStore;

use crate::chance::Chance;

/// What kind of world a seed is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// A few nodes and one controller, faults as they come.
    Usual,
    /// Nothing goes wrong but what people want.
    Calm,
    /// All rates are high at once.
    Storm,
    /// Many nodes.
    Crowd,
    /// Two or three replicas.
    Replicas,
}

impl Class {
    /// By the seed alone, so that a run of consecutive seeds has them all.
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

/// Rates of everything that can go wrong. Zero, all of them: a calm world.
///
/// `_pct` is a chance in a hundred each time; `_ppm` a chance in a million at each tick; `_ms` the
/// most that something takes.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    /// A call's answer is lost; half of them have done what they were to do.
    pub call_lost_pct: u64,
    /// Nothing of a save is kept.
    pub save_fails_pct: u64,
    /// A watch ends when it is about to tell something.
    pub watch_ends_pct: u64,
    /// A message, a call or an answer takes.
    pub delay_ms: u64,
    /// A watch is behind.
    pub watch_ms: u64,
    /// The API server is away.
    pub api_down_ppm: u64,
    /// For as long as this.
    pub api_down_ms: u64,
    /// What was is forgotten: watches from before are told 410.
    pub compaction_ppm: u64,
    /// A replica is killed.
    pub crash_ppm: u64,
    /// Of these, its store is lost with it.
    pub store_lost_pct: u64,
    /// It is asked to end.
    pub stop_ppm: u64,
    /// Until the next one begins.
    pub down_ms: u64,
    /// It stands still.
    pub freeze_ppm: u64,
    /// For as long as this.
    pub freeze_ms: u64,
    /// A node's link breaks.
    pub link_ppm: u64,
    /// It breaks unnoticed.
    pub half_open_pct: u64,
    /// A node begins to live anew.
    pub node_restart_ppm: u64,
    /// Of these, without what it had.
    pub node_store_lost_pct: u64,
    /// A node's certificates are revoked.
    pub revoke_ppm: u64,
    /// Nodes that say what is not so.
    pub liars: usize,
    /// Nodes that attack.
    pub hostile: usize,
    /// People change something about so often.
    pub will_ms: u64,
}

/// Between two chances for each `_ppm`.
pub const TICK_MS: u64 = 500;

impl Faults {
    /// Draws the rates of a seed.
    pub fn draw(class: Class, chance: &mut Chance) -> Self {
        let will_ms = 500 << chance.below(5);
        match class {
            Class::Calm => Self { will_ms, ..Self::calm() },
            Class::Usual | Class::Crowd | Class::Replicas => Self::rates(will_ms, |max| {
                // Zero in two of five.
                chance.rate(max)
            }),
            Class::Storm => {
                let half = |chance: &mut Chance, max: u64| max / 2 + chance.below(max / 2 + 1);
                Self::rates(will_ms, |max| half(chance, max))
            }
        }
    }

    /// No faults at all; things take their time.
    pub fn calm() -> Self {
        Self { delay_ms: 20, watch_ms: 50, ..Self::default() }
    }

    fn rates(will_ms: u64, mut rate: impl FnMut(u64) -> u64) -> Self {
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
            will_ms,
        }
    }
}

/// How many there are of what.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// Controllers.
    pub replicas: usize,
    /// Honest nodes that stay.
    pub nodes: usize,
    /// Names that pods have.
    pub pods: u64,
    /// Where the records are kept.
    pub sync: SyncStore,
    /// Until the faults stop.
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
