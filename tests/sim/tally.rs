//! The counts of a run: proof that the faults happen at all, and the speed of the world.

use std::collections::BTreeMap;

use crate::faults::Class;
use crate::folder::ChangeKind;
use crate::rule::Judged;

/// Counts of one run, or of many.
#[derive(Clone, Default)]
pub struct Tally {
    /// Events delivered to the agent.
    pub events: u64,
    /// Steps of the agent.
    pub steps: u64,
    /// Kubernetes events that it recorded.
    pub notes: u64,
    /// Log lines that it wrote.
    pub lines: u64,
    /// Simulated milliseconds.
    pub simulated_ms: u64,
    /// The longest time to settle, milliseconds.
    pub settled_ms_max: u64,
    /// How often each rule was judged.
    pub judged: Judged,
    kinds: BTreeMap<Class, Spent>,
    calls: BTreeMap<&'static str, u64>,
    faults: BTreeMap<&'static str, u64>,
    changes: BTreeMap<&'static str, u64>,
}

/// The cost of worlds of one class.
#[derive(Clone, Copy, Default)]
struct Spent {
    simulated_ms: u64,
    cpu_ns: u64,
}

impl Tally {
    /// The run is over: its simulated and its processor time.
    pub fn spent(&mut self, class: Class, simulated_ms: u64, cpu_ns: u64) {
        self.simulated_ms = simulated_ms;
        self.kinds.insert(class, Spent { simulated_ms, cpu_ns });
    }

    /// One more call.
    pub fn call(&mut self, operation: &'static str) {
        *self.calls.entry(operation).or_default() += 1;
    }

    /// Counts something that happens to the agent.
    pub fn add(&mut self, what: &'static str) {
        *self.faults.entry(what).or_default() += 1;
    }

    /// Counts a change of the manifests.
    pub fn change(&mut self, change: ChangeKind) {
        let name = match change {
            ChangeKind::Add => "add",
            ChangeKind::Remove => "remove",
            ChangeKind::Return => "give back",
            ChangeKind::Replace => "replace",
            ChangeKind::ChangeImage => "change image",
            ChangeKind::ChangeGrace => "change grace",
            ChangeKind::Break => "break",
            ChangeKind::Heal => "heal",
            ChangeKind::Move => "move",
            ChangeKind::Copy => "copy",
            ChangeKind::RemoveAll => "remove all",
            ChangeKind::ChangeObject => "change object",
            ChangeKind::Nothing => "nothing",
        };
        *self.changes.entry(name).or_default() += 1;
    }

    /// Adds another run's counts.
    pub fn merge(&mut self, other: &Self) {
        self.events += other.events;
        self.steps += other.steps;
        self.notes += other.notes;
        self.lines += other.lines;
        self.simulated_ms += other.simulated_ms;
        self.settled_ms_max = self.settled_ms_max.max(other.settled_ms_max);
        self.judged.merge(&other.judged);
        for (&class, theirs) in &other.kinds {
            let mine = self.kinds.entry(class).or_default();
            mine.simulated_ms += theirs.simulated_ms;
            mine.cpu_ns += theirs.cpu_ns;
        }
        for (mine, theirs) in [
            (&mut self.calls, &other.calls),
            (&mut self.faults, &other.faults),
            (&mut self.changes, &other.changes),
        ] {
            for (&name, count) in theirs {
                *mine.entry(name).or_default() += count;
            }
        }
    }

    /// The counts, a line for each kind. `cpu_s`: the processor time used.
    pub fn lines(&self, cpu_s: f64) -> Vec<String> {
        let list = |counts: &BTreeMap<&'static str, u64>| {
            let one = |(name, count): (&&str, &u64)| format!("{count} {name}");
            counts.iter().map(one).collect::<Vec<_>>().join(", ")
        };
        let speed = |(class, spent): (&Class, &Spent)| {
            let (hours, cpu_s) = (spent.simulated_ms as f64 / 3.6e6, spent.cpu_ns as f64 / 1e9);
            format!("{class:?} {hours:.1} h at {:.1} h/s", hours / cpu_s.max(1e-9))
        };
        let hours = self.simulated_ms as f64 / 3_600_000.0;
        let settled_s = self.settled_ms_max / 1000;
        vec![
            format!("events: {}, steps: {}", self.events, self.steps),
            format!(
                "simulated: {hours:.1} h in {cpu_s:.1} s of CPU, {:.1} h per s; settled within \
                 {settled_s} s",
                hours / cpu_s.max(0.001)
            ),
            format!("kinds: {}", self.kinds.iter().map(speed).collect::<Vec<_>>().join(", ")),
            format!("calls: {}", list(&self.calls)),
            format!("faults: {}", list(&self.faults)),
            format!("manifests: {}", list(&self.changes)),
            format!("rules: {}", self.judged.line()),
        ]
    }
}
