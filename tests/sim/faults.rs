//! What goes wrong and how often, drawn once per seed.

use crate::chance::Chance;

/// Rates of everything that can go wrong. Zero, all of them: a calm world.
///
/// `_pct` is a chance in a hundred each time; `_ppm` a chance in a million at each tick of
/// [`TICK_MS`]; `_ms` the most that something takes beyond what it must.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    /// A call is refused and nothing happens.
    pub refuse_pct: u64,
    /// A call's answer is lost; its effect is there.
    pub mute_pct: u64,
    /// A call is lost on the way.
    pub never_pct: u64,
    /// A call takes effect after its deadline.
    pub late_pct: u64,
    /// Calls that the connection's end cut off take effect later, not before.
    pub cut_late_pct: u64,
    /// An answer lies around before it arrives.
    pub slow_pct: u64,
    /// For as long as this.
    pub slow_ms: u64,
    /// Until the runtime takes up a call.
    pub latency_ms: u64,
    /// Making a sandbox.
    pub sandbox_ms: u64,
    /// A sandbox's network fails.
    pub sandbox_fail_pct: u64,
    /// What failed leaves something behind.
    pub leftover_pct: u64,
    /// A sandbox comes without an address.
    pub no_ip_pct: u64,
    /// A sandbox's network cannot be taken down.
    pub teardown_fail_pct: u64,
    /// A container's start fails.
    pub start_fail_pct: u64,
    /// A pull breaks.
    pub pull_fail_pct: u64,
    /// A pull neither ends nor fails.
    pub pull_hang_pct: u64,
    /// A pull over a thin line.
    pub pull_ms: u64,
    /// A hint of the event stream is lost.
    pub hint_lost_pct: u64,
    /// The event stream breaks.
    pub stream_ppm: u64,
    /// The agent is killed.
    pub crash_ppm: u64,
    /// The agent is asked to end.
    pub stop_ppm: u64,
    /// The connection to the runtime breaks.
    pub flap_ppm: u64,
    /// The runtime's daemon restarts.
    pub daemon_ppm: u64,
    /// For as long as this.
    pub daemon_ms: u64,
    /// After its start the daemon refuses everything.
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
    /// Others fill the disk, or tidy it up.
    pub fill_ppm: u64,
    /// `RuntimeReady` or `NetworkReady` turns false.
    pub unready_ppm: u64,
    /// For as long as this.
    pub unready_ms: u64,
    /// Strangers and orphans appear in the runtime.
    pub stranger_ppm: u64,
    /// The wall clock jumps.
    pub jump_ppm: u64,
    /// The agent does not get the processor.
    pub stall_ppm: u64,
    /// For as long as this.
    pub stall_ms: u64,
    /// The node's addresses change.
    pub address_ppm: u64,
    /// A job fails.
    pub job_fail_pct: u64,
    /// A job never answers.
    pub job_lost_pct: u64,
    /// The disk turns read-only.
    pub disk_ppm: u64,
    /// A job takes.
    pub job_ms: u64,
    /// Somebody changes the manifests about so often; 0: never.
    pub will_ms: u64,
    /// Facts wait for each other.
    pub batch_pct: u64,
    /// For as long as this.
    pub batch_ms: u64,
    /// A changed folder is read after as long as this.
    pub read_ms: u64,
}

/// Between two chances for each `_ppm`.
pub const TICK_MS: u64 = 500;

/// So much rarer than elsewhere things go wrong where a site is left alone.
pub const RARELY: u64 = 200;

/// What kind of world a seed is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// A handful of pods, faults as they come.
    Usual,
    /// Nothing goes wrong but what people want.
    Calm,
    /// Every container crashes, again and again.
    Storm,
    /// As many pods as a node can hold.
    Crowd,
    /// A site that is left alone for days: all goes wrong at some time, and little at once.
    Site,
}

impl Class {
    /// By the seed alone, so that a run of consecutive seeds has them all.
    pub fn of(seed: u64) -> Self {
        match seed % 100 {
            7 => Self::Crowd,
            13 | 33 | 53 | 73 | 93 => Self::Storm,
            3 | 23 => Self::Calm,
            17 | 37 | 43 | 57 | 67 | 83 => Self::Site,
            _ => Self::Usual,
        }
    }
}

impl Faults {
    /// Draws the rates of a seed.
    pub fn draw(class: Class, chance: &mut Chance) -> Self {
        match class {
            Class::Calm => Self { will_ms: will_ms(chance), ..Self::calm() },
            Class::Usual | Class::Storm => Self::rates(chance),
            // Each fault hits more pods there, and the seed costs more.
            Class::Crowd => Self::rates(chance).thinned(),
            Class::Site => Self::rates(chance).rare(),
        }
    }

    /// No faults at all; things take their time.
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
        it.will_ms = will_ms(chance);
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
        self.stranger_ppm = chance.rate(5_000);
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

    /// What happens each minute elsewhere happens each few hours: much of what an agent does by the
    /// clock shows only in between.
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
            &mut self.stranger_ppm,
            &mut self.jump_ppm,
            &mut self.stall_ppm,
            &mut self.address_ppm,
            &mut self.disk_ppm,
        ] {
            *ppm /= RARELY;
        }
        // Looks are asked for each second, and the like.
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
        self.will_ms *= RARELY;
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

/// From a person who tries things out to a site that is left alone.
fn will_ms(chance: &mut Chance) -> u64 {
    1_000 << chance.below(8)
}
