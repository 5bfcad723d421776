//! Faults and their rates, drawn once per seed.

use crate::chance::Chance;

/// Rates of all faults; all zero is a calm world.
///
/// `_pct` is a probability in percent each time; `_ppm` in parts per million at each tick of
/// [`TICK_MS`]; `_ms` the longest additional duration.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    /// A call is refused and has no effect.
    pub refuse_pct: u64,
    /// A call's answer is lost; it takes effect.
    pub mute_pct: u64,
    /// A request is lost.
    pub never_pct: u64,
    /// A call takes effect after its deadline.
    pub late_pct: u64,
    /// Calls that the end of a connection cuts off take effect later, not before.
    pub cut_late_pct: u64,
    /// An answer arrives late.
    pub slow_pct: u64,
    /// The longest such delay.
    pub slow_ms: u64,
    /// The longest time until the runtime takes up a call.
    pub latency_ms: u64,
    /// Duration of making a sandbox.
    pub sandbox_ms: u64,
    /// A sandbox's network fails.
    pub sandbox_fail_pct: u64,
    /// A failed operation leaves something behind.
    pub leftover_pct: u64,
    /// A sandbox has no address.
    pub no_ip_pct: u64,
    /// A sandbox's network cannot be taken down.
    pub teardown_fail_pct: u64,
    /// A container's start fails.
    pub start_fail_pct: u64,
    /// A pull breaks.
    pub pull_fail_pct: u64,
    /// A pull neither ends nor fails.
    pub pull_hang_pct: u64,
    /// Duration of a pull over a slow link.
    pub pull_ms: u64,
    /// A hint of the event stream is lost.
    pub hint_lost_pct: u64,
    /// The event stream breaks.
    pub stream_ppm: u64,
    /// The agent is killed.
    pub crash_ppm: u64,
    /// The agent is stopped.
    pub stop_ppm: u64,
    /// The connection to the runtime breaks.
    pub flap_ppm: u64,
    /// The runtime's daemon restarts.
    pub daemon_ppm: u64,
    /// For this long.
    pub daemon_ms: u64,
    /// After its start the daemon refuses every call for this long.
    pub init_ms: u64,
    /// After its start the daemon has lost track of a container that lives.
    pub unknown_alive_pct: u64,
    /// The machine restarts.
    pub reboot_ppm: u64,
    /// A container is killed.
    pub kill_ppm: u64,
    /// A sandbox is killed.
    pub kill_sandbox_ppm: u64,
    /// A dead container is removed by hand.
    pub lose_ppm: u64,
    /// An image is removed by hand.
    pub lose_image_ppm: u64,
    /// Other data fills the disk, or is removed.
    pub fill_ppm: u64,
    /// `RuntimeReady` or `NetworkReady` turns false.
    pub unready_ppm: u64,
    /// For this long.
    pub unready_ms: u64,
    /// Containers of others and orphans appear in the runtime.
    pub foreign_ppm: u64,
    /// The wall clock jumps.
    pub jump_ppm: u64,
    /// The agent gets no processor time.
    pub stall_ppm: u64,
    /// For this long.
    pub stall_ms: u64,
    /// The node's addresses change.
    pub address_ppm: u64,
    /// A job fails.
    pub job_fail_pct: u64,
    /// A job never answers.
    pub job_lost_pct: u64,
    /// The disk turns read-only.
    pub disk_ppm: u64,
    /// Duration of a job.
    pub job_ms: u64,
    /// The users change the manifests about this often; 0: never.
    pub user_change_ms: u64,
    /// Events are delivered together.
    pub batch_pct: u64,
    /// After at most this delay.
    pub batch_ms: u64,
    /// A changed folder is read after at most this delay.
    pub read_ms: u64,
}

/// Between two draws of each `_ppm`.
pub const TICK_MS: u64 = 500;

/// How much rarer faults are at a site that is left alone.
pub const RARELY: u64 = 200;

/// The longest time until somebody asks again who has asked this often. After a few thousand times
/// it is [`RARELY`], or a world of days would take hundreds of times as long to run.
#[cfg(any(feature = "metaserver", feature = "streams"))]
pub fn asks_within_ms(every_ms: u64, asked: u64) -> u64 {
    const OFTEN_MAX: u64 = 5_000;
    every_ms * if asked > OFTEN_MAX { RARELY } else { 1 }
}

/// The class of world of a seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// A few pods, with faults.
    Usual,
    /// Nothing happens but the changes of users.
    Calm,
    /// Every container crashes again and again.
    Storm,
    /// As many pods as a node can hold.
    Crowd,
    /// A site that is left alone for days: every fault happens at some time, and few at once.
    Site,
}

impl Class {
    /// By the seed alone, so that a run of consecutive seeds has all of them. A site takes as long
    /// as some 200 usual worlds.
    pub fn of(seed: u64) -> Self {
        match seed % 100 {
            7 => Self::Crowd,
            13 | 33 | 53 | 73 | 93 => Self::Storm,
            3 | 23 => Self::Calm,
            17 | 37 => Self::Site,
            _ => Self::Usual,
        }
    }
}

impl Faults {
    /// Draws the rates of a seed.
    pub fn draw(class: Class, chance: &mut Chance) -> Self {
        match class {
            Class::Calm => Self { user_change_ms: user_change_ms(chance), ..Self::calm() },
            Class::Usual | Class::Storm => Self::rates(chance),
            // Each fault affects more pods there, and the seed costs more.
            Class::Crowd => Self::rates(chance).thinned(),
            Class::Site => Self::rates(chance).rare(),
        }
    }

    /// No faults; operations take time.
    pub fn calm() -> Self {
        Self {
            latency_ms: 5,
            job_ms: 5,
            read_ms: 50,
            batch_pct: 10,
            batch_ms: 5,
            ..Self::default()
        }
    }

    fn rates(chance: &mut Chance) -> Self {
        let mut it = Self::default();
        it.draw_calls(chance);
        it.draw_pods(chance);
        it.draw_outages(chance);
        it.user_change_ms = user_change_ms(chance);
        it.batch_pct = chance.rate(60);
        it.batch_ms = chance.spread(200);
        it.read_ms = chance.spread(20_000);
        it
    }

    fn draw_calls(&mut self, chance: &mut Chance) {
        self.refuse_pct = if chance.percent(3) { 80 } else { chance.rate(20) };
        self.mute_pct = chance.rate(8);
        self.never_pct = chance.rate(8);
        self.late_pct = chance.rate(8);
        self.cut_late_pct = chance.rate(60);
        self.slow_pct = chance.rate(30);
        self.slow_ms = 1 + chance.spread(8_000);
        self.latency_ms = 1 + chance.spread(3_000);
        self.hint_lost_pct = chance.rate(50);
        self.stream_ppm = chance.rate(20_000);
        self.job_fail_pct = chance.rate(20);
        self.disk_ppm = chance.rate(4_000);
        self.job_lost_pct = chance.rate(5);
        self.job_ms = 1 + chance.spread(20_000);
    }

    fn draw_pods(&mut self, chance: &mut Chance) {
        self.sandbox_ms = chance.spread(20_000);
        self.sandbox_fail_pct = chance.rate(30);
        self.leftover_pct = chance.rate(80);
        self.no_ip_pct = chance.rate(10);
        self.teardown_fail_pct = chance.rate(20);
        self.start_fail_pct = chance.rate(10);
        self.pull_fail_pct = chance.rate(40);
        self.pull_hang_pct = chance.rate(5);
        self.pull_ms = chance.spread(600_000);
        self.kill_ppm = chance.rate(30_000);
        self.kill_sandbox_ppm = chance.rate(10_000);
        self.lose_ppm = chance.rate(5_000);
        self.lose_image_ppm = chance.rate(5_000);
        self.fill_ppm = chance.rate(10_000);
        self.foreign_ppm = chance.rate(5_000);
    }

    fn draw_outages(&mut self, chance: &mut Chance) {
        self.crash_ppm = chance.rate(20_000);
        self.stop_ppm = chance.rate(3_000);
        self.flap_ppm = chance.rate(20_000);
        self.daemon_ppm = chance.rate(8_000);
        self.daemon_ms = chance.spread(60_000);
        self.init_ms = chance.spread(20_000);
        self.unknown_alive_pct = chance.rate(20);
        self.reboot_ppm = chance.rate(2_500);
        self.unready_ppm = chance.rate(8_000);
        self.unready_ms = chance.spread(60_000);
        self.jump_ppm = chance.rate(5_000);
        self.stall_ppm = chance.rate(8_000);
        self.stall_ms = chance.spread(60_000);
        self.address_ppm = chance.rate(3_000);
    }

    /// What happens each minute elsewhere happens every few hours: much of what an agent does by
    /// the clock is visible only in between.
    fn rare(mut self) -> Self {
        for ppm in [
            &mut self.stream_ppm,
            &mut self.crash_ppm,
            &mut self.stop_ppm,
            &mut self.flap_ppm,
            &mut self.daemon_ppm,
            &mut self.reboot_ppm,
            &mut self.kill_ppm,
            &mut self.kill_sandbox_ppm,
            &mut self.lose_ppm,
            &mut self.lose_image_ppm,
            &mut self.fill_ppm,
            &mut self.unready_ppm,
            &mut self.foreign_ppm,
            &mut self.jump_ppm,
            &mut self.stall_ppm,
            &mut self.address_ppm,
            &mut self.disk_ppm,
        ] {
            *ppm /= RARELY;
        }
        // Some calls, such as lists, are made every second.
        for pct in [
            &mut self.refuse_pct,
            &mut self.mute_pct,
            &mut self.never_pct,
            &mut self.late_pct,
            &mut self.slow_pct,
            &mut self.job_fail_pct,
            &mut self.job_lost_pct,
        ] {
            *pct = u64::from(*pct > 10);
        }
        self.user_change_ms *= RARELY;
        self
    }

    fn thinned(mut self) -> Self {
        for ppm in [
            &mut self.crash_ppm,
            &mut self.stop_ppm,
            &mut self.flap_ppm,
            &mut self.daemon_ppm,
            &mut self.reboot_ppm,
        ] {
            *ppm /= 4;
        }
        self
    }
}

/// From a user who experiments to a site that is left alone.
fn user_change_ms(chance: &mut Chance) -> u64 {
    1_000 << chance.below(8)
}
