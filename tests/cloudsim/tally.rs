//! The counts of a run: proof that the faults happen at all, and the speed of the world. For the
//! simulators of the cloud side and of the built-in runtime.

use std::collections::BTreeMap;

use crate::faults::Class;
use crate::rule::Judged;

/// Counts of one run, or of many.
#[derive(Clone, Default)]
pub struct Tally {
    /// How often each rule was judged.
    pub judged: Judged,
    /// Steps of all cores.
    pub steps: u64,
    kinds: BTreeMap<Class, Spent>,
    counts: BTreeMap<&'static str, u64>,
}

/// The cost of worlds of one class.
#[derive(Clone, Copy, Default)]
struct Spent {
    worlds: u64,
    simulated_ms: u64,
    cpu_ns: u64,
}

impl Tally {
    /// The run is over: its simulated and its processor time.
    pub fn spent(&mut self, class: Class, simulated_ms: u64, cpu_ns: u64) {
        self.kinds.insert(class, Spent { worlds: 1, simulated_ms, cpu_ns });
    }

    /// Counts something that happens.
    pub fn add(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    /// Adds another run's counts.
    pub fn merge(&mut self, other: &Self) {
        self.judged.merge(&other.judged);
        self.steps += other.steps;
        for (&class, theirs) in &other.kinds {
            let mine = self.kinds.entry(class).or_default();
            mine.worlds += theirs.worlds;
            mine.simulated_ms += theirs.simulated_ms;
            mine.cpu_ns += theirs.cpu_ns;
        }
        for (&what, count) in &other.counts {
            *self.counts.entry(what).or_default() += count;
        }
    }

    /// The counts, a line for each kind. `cpu_s`: the processor time used.
    pub fn lines(&self, cpu_s: f64) -> Vec<String> {
        let speed = |(class, spent): (&Class, &Spent)| {
            let (worlds, cpu_s) = (spent.worlds, spent.cpu_ns as f64 / 1e9);
            format!("{worlds} {class:?} of {:.3} s", cpu_s / worlds.max(1) as f64)
        };
        let kinds: Vec<String> = self.kinds.iter().map(speed).collect();
        let counts: Vec<String> =
            self.counts.iter().map(|(what, count)| format!("{count} {what}")).collect();
        vec![
            format!("steps: {}, in {cpu_s:.1} s of CPU", self.steps),
            format!("kinds: {}", kinds.join(", ")),
            format!("faults: {}", counts.join(", ")),
            format!("rules: {}", self.judged.line()),
        ]
    }
}
