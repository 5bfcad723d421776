//! The rules' names, and how often each was judged: a rule that is never judged finds nothing.

use std::cell::RefCell;

use crate::rules::NAMES;

/// At least this many seeds of a gateway must judge each rule at least once.
pub const SEEDS_ENOUGH: u64 = 2_000;

const COUNT: usize = NAMES.len();

/// How often each rule was judged.
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

/// The index of the rule that a message names.
///
/// # Panics
///
/// If there is no such rule.
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

/// Counts a judgement of the rule.
pub fn count(rule: usize) {
    JUDGED.with_borrow_mut(|judged| judged.0[rule] += 1);
}

/// Takes the counts of this thread since the last call.
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

    /// The rules that were never judged.
    pub fn asleep(&self) -> Vec<&'static str> {
        self.all().filter(|&(count, _)| count == 0).map(|(_, name)| name).collect()
    }

    fn all(&self) -> impl Iterator<Item = (u64, &'static str)> {
        self.0.iter().zip(NAMES).map(|(&count, &name)| (count, name))
    }
}
