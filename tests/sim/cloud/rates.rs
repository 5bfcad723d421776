//! The rates of faults between node and cloud.

use crate::chance::Chance;
use crate::faults::RARELY;

/// `_pct` is a probability in percent each time, `_ppm` in parts per million at each tick.
#[derive(Clone, Debug, Default)]
pub struct Rates {
    /// The longest latency of a frame, one way.
    pub latency_ms: u64,
    /// A dial fails.
    pub dial_fail_pct: u64,
    /// A dial times out.
    pub dial_hang_pct: u64,
    /// A connection breaks, and both ends notice it.
    pub cut_ppm: u64,
    /// One or both directions stop.
    pub hold_ppm: u64,
    /// For this long, or for ever.
    pub hold_ms: u64,
    /// The cloud cannot be reached.
    pub down_ppm: u64,
    /// For this long.
    pub down_ms: u64,
    /// A frame leaves the agent when it arrives, not before.
    pub is_tight: bool,
    /// A request is not answered; processed or not.
    pub mute_pct: u64,
    /// A request fails in the cloud.
    pub fail_pct: u64,
    /// Latency of the API server.
    pub api_ms: u64,
    /// A status that the node wrote comes back at once, not only from the synchroniser.
    pub echoes: bool,
    /// The cloud answers list requests.
    pub lists: bool,
    /// Invalid messages.
    pub mischief_ppm: u64,
    /// Duration of a save.
    pub save_ms: u64,
    /// A save fails.
    pub save_fail_pct: u64,
    /// Every save fails for a while.
    pub full_ppm: u64,
    /// For this long.
    pub full_ms: u64,
    /// At a reboot the store is lost.
    pub lost_pct: u64,
    /// The certificate is revoked.
    pub revoke_ppm: u64,
    /// CloudCore restarts.
    pub restart_ppm: u64,
}

impl Rates {
    /// Nothing goes wrong.
    pub fn calm() -> Self {
        Self {
            latency_ms: 20,
            api_ms: 20,
            save_ms: 5,
            echoes: true,
            lists: true,
            ..Self::default()
        }
    }

    /// At a site that is left alone for days.
    pub fn rare(mut self) -> Self {
        for ppm in [
            &mut self.cut_ppm,
            &mut self.hold_ppm,
            &mut self.down_ppm,
            &mut self.mischief_ppm,
            &mut self.full_ppm,
            &mut self.revoke_ppm,
            &mut self.restart_ppm,
        ] {
            *ppm /= RARELY;
        }
        for pct in [&mut self.mute_pct, &mut self.fail_pct, &mut self.save_fail_pct] {
            *pct = u64::from(*pct > 10);
        }
        // The cloud is occasionally down for days.
        self.down_ms *= RARELY;
        self
    }

    /// The rates of a seed: many are zero.
    pub fn draw(chance: &mut Chance) -> Self {
        Self {
            latency_ms: 1 + chance.spread(3_000),
            dial_fail_pct: chance.rate(50),
            dial_hang_pct: chance.rate(20),
            cut_ppm: chance.rate(10_000),
            hold_ppm: chance.rate(8_000),
            hold_ms: chance.spread(120_000),
            down_ppm: chance.rate(4_000),
            down_ms: chance.spread(300_000),
            is_tight: chance.percent(50),
            mute_pct: chance.rate(15),
            fail_pct: chance.rate(20),
            api_ms: chance.spread(5_000),
            echoes: chance.percent(50),
            mischief_ppm: chance.rate(50_000),
            save_ms: chance.spread(500),
            save_fail_pct: chance.rate(20),
            full_ppm: chance.rate(3_000),
            full_ms: chance.spread(120_000),
            lost_pct: chance.rate(40),
            revoke_ppm: chance.rate(1_000),
            restart_ppm: chance.rate(3_000),
            lists: chance.percent(70),
        }
    }
}
