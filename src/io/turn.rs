//! One turn of an event loop: how long it sleeps before, how much it does, and what it logs if it
//! took too long. The loops of the agent, the controller and the registry share this.

use std::time::Duration;

use mio::Events;

use super::clock;
use crate::agent::time::Instant;
use crate::limits::{POLL_EVENTS_MAX, POLL_MS_MAX, TURN_MS_MAX, TURN_ROUNDS_MAX};

/// Room for the events of one poll; the rest comes with the next poll.
pub(super) fn events() -> Events {
    Events::with_capacity(POLL_EVENTS_MAX)
}

/// How long a poll may sleep until something is due.
pub(super) fn timeout(now: Instant, due_at: Instant) -> Duration {
    Duration::from_millis(due_at.since_ms(now).min(POLL_MS_MAX))
}

/// Repeats `round` until it returns what follows. `None`: more work is left than one turn may do.
pub(super) fn rounds<T>(mut round: impl FnMut() -> Option<T>) -> Option<T> {
    (0..TURN_ROUNDS_MAX).find_map(|_| round())
}

/// Measures one turn, and which part of it took longest.
#[derive(Debug)]
pub(super) struct Turn {
    began_ms: u64,
    lap_ms: u64,
    longest: (&'static str, u64),
}

impl Turn {
    pub(super) fn begin() -> Self {
        Self::begun_at(clock::coarse_ms())
    }

    fn begun_at(began_ms: u64) -> Self {
        Self { began_ms, lap_ms: began_ms, longest: ("nothing", 0) }
    }

    /// `part` has just ended.
    pub(super) fn lap(&mut self, part: &'static str) {
        self.lap_at(clock::coarse_ms(), part);
    }

    fn lap_at(&mut self, now_ms: u64, part: &'static str) {
        let took_ms = now_ms.saturating_sub(self.lap_ms);
        self.lap_ms = now_ms;
        if took_ms > self.longest.1 {
            self.longest = (part, took_ms);
        }
    }

    /// The turn ends; logs it if it took too long.
    pub(super) fn end(self) {
        if let Some(line) = self.slow_turn_line() {
            log::warn!("{line}");
        }
    }

    fn slow_turn_line(&self) -> Option<String> {
        let took_ms = self.lap_ms.saturating_sub(self.began_ms);
        let (part, part_ms) = self.longest;
        (took_ms > TURN_MS_MAX)
            .then(|| format!("a turn took {took_ms} ms, {part_ms} of them for {part}"))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    use mio::{Interest, Poll, Token};

    use super::*;

    #[test]
    fn a_poll_names_as_much_as_there_is_room_for_and_the_next_one_the_rest() {
        let mut poll = Poll::new().expect("a poll");
        let sources: Vec<_> = (0..=POLL_EVENTS_MAX)
            .map(|number| {
                let (mut theirs, ours) = UnixStream::pair().expect("a pair");
                theirs.write_all(b"x").expect("there is room");
                ours.set_nonblocking(true).expect("ours");
                let mut ours = mio::net::UnixStream::from_std(ours);
                let registry = poll.registry();
                registry.register(&mut ours, Token(number), Interest::READABLE).expect("ours");
                (theirs, ours)
            })
            .collect();
        let mut named = || {
            let mut ready = events();
            poll.poll(&mut ready, Some(Duration::ZERO)).expect("it polls");
            ready.iter().map(|event| event.token().0).collect::<Vec<_>>()
        };
        let (mut first, second) = (named(), named());
        assert_eq!((first.len(), second.len()), (POLL_EVENTS_MAX, 1));
        first.extend(second);
        first.sort_unstable();
        assert_eq!(first, (0..sources.len()).collect::<Vec<_>>(), "each once");
    }

    #[test]
    fn a_sleep_is_no_longer_than_the_clocks_may_differ() {
        let now = Instant(1_000);
        for (due_ms, sleeps_ms) in
            [(0, 0), (POLL_MS_MAX, POLL_MS_MAX), (POLL_MS_MAX + 1, POLL_MS_MAX)]
        {
            assert_eq!(timeout(now, now.plus_ms(due_ms)), Duration::from_millis(sleeps_ms));
        }
        assert_eq!(timeout(now, Instant(0)), Duration::ZERO, "it is late");
    }

    #[test]
    fn a_turn_has_so_many_rounds() {
        for (needed, over) in [(TURN_ROUNDS_MAX, true), (TURN_ROUNDS_MAX + 1, false)] {
            let mut done = 0;
            let next = rounds(|| {
                done += 1;
                (done == needed).then_some("over")
            });
            assert_eq!((next.is_some(), done), (over, TURN_ROUNDS_MAX));
        }
    }

    #[test]
    fn a_turn_that_took_too_long_is_logged_with_its_longest_part() {
        let turn = |took_ms: u64| {
            let mut turn = Turn::begun_at(5_000);
            turn.lap_at(5_010, "one");
            turn.lap_at(5_000 + took_ms, "two");
            turn.slow_turn_line()
        };
        assert_eq!(turn(TURN_MS_MAX), None);
        let (all_ms, part_ms) = (TURN_MS_MAX + 1, TURN_MS_MAX - 9);
        let line = format!("a turn took {all_ms} ms, {part_ms} of them for two");
        assert_eq!(turn(TURN_MS_MAX + 1), Some(line));
    }
}
