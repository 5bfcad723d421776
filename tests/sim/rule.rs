//! The rules' names, and how often each was judged: a rule that is never asked finds nothing.

use std::cell::RefCell;

/// So many seeds of a gateway have to judge each of them at least once.
pub const SEEDS_ENOUGH: u64 = 2_000;

/// All of them, by where they are judged.
#[rustfmt::skip]
const NAMES: &[&str] = &[
    // What the agent asks the runtime for.
    "attempts grow", "cancel", "cgroup last", "connection", "deadline", "files first",
    "gone is gone", "grace", "ids", "labels", "last one kept", "logs", "no kill",
    "no stop without reason", "old run first", "one call", "one sandbox", "prompt stop",
    "ready sandbox", "refused", "restart policy", "retries", "room", "sandbox config",
    "sources first", "stop before start", "strangers", "volumes last",
    // What becomes of the runtime.
    "back-off", "ended is ended", "init order", "one instance", "one pod of a name",
    // What it says of its pods.
    "active deadline", "forgotten last", "restarts grow", "revision", "room for pods",
    "start time", "true end", "who runs stays",
    // Jobs, volumes, cgroups and logs.
    "cgroup first", "cgroups", "jobs", "kill", "mounts", "mounts in vain", "rotation",
    "volumes first",
    // Probes and hooks.
    "held", "hooks once", "initial delay", "nothing probed after the end", "post start first",
    "pre stop first", "probe the living", "probes", "ready by its probes", "startup first",
    // What the node parts with.
    "eviction", "gauges first", "image fs", "limits are passed", "one at a time", "one by one",
    "one measuring", "one sweep", "one walk", "pinned stays", "pressure is true", "room first",
    "room is enough", "threshold first", "used stays", "wanted stays", "who is needed stays",
    "young stays",
    // Its steps.
    "bounded step", "busy loop", "exit", "idle loop", "leaving", "settled", "wake later",
    "watchdog",
    // The cloud and the store.
    "acked is durable", "acted on is durable", "back-pressure", "dead session", "delete last",
    "lost store", "mirrors", "never back", "one save", "one session", "others' conditions",
    "others' deletion", "told is durable",
    // The end.
    "converges", "quiet", "stays so",
];

const COUNT: usize = NAMES.len();

/// How often each was judged.
#[derive(Clone, Copy)]
pub struct Judged([u64; COUNT]);

thread_local! {
    static JUDGED: RefCell<Judged> = const { RefCell::new(Judged([0; COUNT])) };
}

/// Like `assert!`, with a message that begins with the rule's name in brackets.
macro_rules! judge {
    ($holds:expr, $why:literal $($rest:tt)*) => {{
        const RULE: usize = $crate::rule::place($why);
        $crate::rule::count(RULE);
        assert!($holds, $why $($rest)*);
    }};
}
pub(crate) use judge;

/// The place of the rule that a message names.
///
/// # Panics
///
/// Where there is no such rule.
pub const fn place(why: &str) -> usize {
    let mut at = 0;
    while at < COUNT {
        if names(NAMES[at], why) {
            return at;
        }
        at += 1;
    }
    panic!("expected a message that begins with the name of a rule, as \"[room] …\"")
}

/// Whether a message begins with this name in brackets.
const fn names(name: &str, why: &str) -> bool {
    let (name, why) = (name.as_bytes(), why.as_bytes());
    if why.len() < name.len() + 2 || why[0] != b'[' || why[name.len() + 1] != b']' {
        return false;
    }
    let mut at = 0;
    while at < name.len() {
        if name[at] != why[at + 1] {
            return false;
        }
        at += 1;
    }
    true
}

/// The rule is judged once more.
pub fn count(rule: usize) {
    JUDGED.with_borrow_mut(|judged| judged.0[rule] += 1);
}

/// What was judged on this thread since this was last asked.
pub fn take() -> Judged {
    JUDGED.take()
}

impl Default for Judged {
    fn default() -> Self {
        Self([0; COUNT])
    }
}

impl Judged {
    /// Adds another run's counts.
    pub fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.0.iter_mut().zip(&other.0) {
            *mine += theirs;
        }
    }

    /// The rules and their counts, the rarest first.
    pub fn line(&self) -> String {
        let mut all: Vec<(u64, &str)> = self.all().collect();
        all.sort_unstable();
        let all: Vec<String> = all.iter().map(|(count, name)| format!("{count} {name}")).collect();
        all.join(", ")
    }

    /// The rules that nobody asked.
    pub fn asleep(&self) -> Vec<&'static str> {
        self.all().filter(|&(count, _)| count == 0).map(|(_, name)| name).collect()
    }

    fn all(&self) -> impl Iterator<Item = (u64, &'static str)> {
        self.0.iter().zip(NAMES).map(|(&count, &name)| (count, name))
    }
}
