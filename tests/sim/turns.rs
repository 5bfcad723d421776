//! The agent's event loop: what it delivers, when it turns, and how often. An agent that wakes
//! without end uses up a processor unnoticed.

use std::collections::VecDeque;

use edged::agent::event::Event;

use crate::chance::Chance;
use crate::rule::judge;

/// At one moment.
const AT_ONCE_MAX: u32 = 40;
/// In one second without an input: a tenth of what a wake in every millisecond makes.
const IDLE_MAX: u32 = 100;

/// The state of the loop.
#[derive(Default)]
pub struct Turns {
    /// Events on their way to the agent, in bundles of those that belong together.
    inbox: VecDeque<Vec<Event>>,
    next_at: Option<u64>,
    /// The agent gets no processor time until then.
    stalled_until: u64,
    count: Count,
}

#[derive(Default)]
struct Count {
    last: u64,
    at_once: u32,
    idle_since: u64,
    idle: u32,
}

impl Turns {
    /// The agent begins a new life, with this event.
    pub fn begin_life(&mut self, now: u64, event: Event) {
        self.inbox = [vec![event]].into();
        self.next_at = Some(now);
    }

    /// These events belong together.
    pub fn push(&mut self, bundle: Vec<Event>) {
        self.inbox.push_back(bundle);
    }

    /// The loop turns at this time at the latest.
    pub fn turn_by(&mut self, at: u64) {
        self.next_at = Some(self.next_at.map_or(at, |turn| turn.min(at)));
    }

    /// When it turns next.
    pub fn next_at(&self, now: u64) -> Option<u64> {
        self.next_at.map(|at| at.max(self.stalled_until).max(now))
    }

    pub fn stall_until(&mut self, at: u64) {
        self.stalled_until = at;
    }

    pub fn stalled_until(&self) -> u64 {
        self.stalled_until
    }

    pub fn has_input(&self) -> bool {
        !self.inbox.is_empty()
    }

    /// The loop turns. Returns the events that it delivers, rarely not all.
    pub fn turn(&mut self, now: u64, chance: &mut Chance) -> Vec<Event> {
        self.count.turn(now, self.has_input());
        self.next_at = None;
        let all = self.inbox.len();
        let some = if chance.percent(5) { chance.index(all + 1) } else { all };
        self.inbox.drain(..some).flatten().collect()
    }

    /// Takes back an event that was not delivered yet. Returns whether there was one.
    pub fn withdraw(&mut self, is_it: impl Fn(&Event) -> bool) -> bool {
        self.inbox.iter_mut().any(|bundle| {
            let before = bundle.len();
            bundle.retain(|event| !is_it(event));
            bundle.len() < before
        })
    }

    /// Number of such events that were not delivered yet.
    pub fn count(&self, is_it: impl Fn(&Event) -> bool) -> usize {
        self.inbox.iter().flatten().filter(|event| is_it(event)).count()
    }

    /// Puts an event before the news of a disconnection, if that was not delivered yet.
    pub fn push_before_disconnection(&mut self, event: &Event) -> bool {
        let is_end = |event: &Event| matches!(event, Event::RuntimeDown { .. });
        let end = self.inbox.iter_mut().find(|bundle| bundle.iter().any(is_end));
        end.map(|bundle| bundle.insert(0, event.clone())).is_some()
    }
}

impl Count {
    fn turn(&mut self, now: u64, has_input: bool) {
        if now == self.last {
            self.at_once += 1;
            judge!(self.at_once <= AT_ONCE_MAX, "[busy loop] {AT_ONCE_MAX} turns at one moment");
        } else {
            (self.last, self.at_once) = (now, 0);
        }
        if has_input || now >= self.idle_since + 1_000 {
            (self.idle_since, self.idle) = (now, 0);
        }
        self.idle += 1;
        judge!(
            self.idle <= IDLE_MAX,
            "[idle loop] {IDLE_MAX} turns within a second in which nothing happened"
        );
    }
}
