//! Faults and their rates, drawn once per seed.

use crate::chance::Chance;

/// The class of world of a seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// With faults.
    Usual,
    /// Nothing happens but the client's calls.
    Calm,
    /// All rates are high at once.
    Storm,
}

impl Class {
    /// By the seed alone, so that a run of consecutive seeds has all of them.
    pub fn of(seed: u64) -> Self {
        match seed % 10 {
            7 => Self::Calm,
            3 => Self::Storm,
            _ => Self::Usual,
        }
    }
}

/// Rates of all faults; all zero is a calm world. `_pct` is a probability in percent each time;
/// `_ppm` in parts per million at each tick.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    pub job_fails_pct: u64,
    pub job_dies_pct: u64,
    pub job_hangs_pct: u64,
    pub start_fails_pct: u64,
    pub save_fails_pct: u64,
    /// At a start of the server.
    pub record_lost_pct: u64,
    pub server_ppm: u64,
    pub monitor_ppm: u64,
    /// The first process of a pod's process namespace ends.
    pub holder_ppm: u64,
    pub power_ppm: u64,
    /// A server that is killed right after one of its requests.
    pub at_action_ppm: u64,
    pub cancel_pct: u64,
    pub exit_ppm: u64,
    pub delay_ms: u64,
    /// The client makes a call about this often.
    pub call_ms: u64,
}

/// Between two draws of each `_ppm`.
pub const TICK_MS: u64 = 100;

impl Faults {
    /// Draws the rates of a seed.
    pub fn draw(class: Class, chance: &mut Chance) -> Self {
        let call_ms = 20 << chance.below(6);
        match class {
            Class::Calm => Self { call_ms, exit_ppm: 5_000, ..Self::calm() },
            Class::Usual => Self::rates(call_ms, |max| chance.rate(max)),
            Class::Storm => Self::rates(call_ms, |max| max / 2 + chance.below(max / 2 + 1)),
        }
    }

    /// No faults; operations take time.
    pub fn calm() -> Self {
        Self { delay_ms: 20, ..Self::default() }
    }

    fn rates(call_ms: u64, mut rate: impl FnMut(u64) -> u64) -> Self {
        Self {
            job_fails_pct: rate(20),
            job_dies_pct: rate(10),
            job_hangs_pct: rate(3),
            start_fails_pct: rate(20),
            save_fails_pct: rate(15),
            record_lost_pct: rate(10),
            server_ppm: rate(10_000),
            monitor_ppm: rate(10_000),
            holder_ppm: rate(20_000),
            power_ppm: rate(4_000),
            at_action_ppm: rate(10_000),
            cancel_pct: rate(20),
            exit_ppm: rate(30_000),
            delay_ms: 1 + rate(2_000),
            call_ms,
        }
    }
}
