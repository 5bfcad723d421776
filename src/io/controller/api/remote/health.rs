//! Outages of the API server: their duration, and whether its name has other addresses by
//! now. They are looked up in a child process, because a dead DNS server blocks the caller.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::process::Child;

use mio::{Registry, Token};

use crate::controller::time::Instant;
use crate::io::cloud::names::Lookup;
use crate::limits::{API_LOOKUP_MS, API_LOOKUPS_MAX, API_TROUBLE_MS};

/// The health of the connection to the API server.
#[derive(Debug)]
pub(super) struct Health {
    /// The program that children run.
    program: PathBuf,
    trouble: Option<Trouble>,
    lookup: Option<Lookup>,
    /// Lookups that were killed and have not ended yet.
    children: Vec<Child>,
}

/// An outage: no answer since then.
#[derive(Debug)]
struct Trouble {
    since: Instant,
    /// The last error.
    why: String,
    /// When the name is looked up, or the lookup killed.
    lookup_at: Instant,
}

impl Health {
    pub(super) fn new(program: PathBuf) -> Self {
        Self { program, trouble: None, lookup: None, children: Vec::new() }
    }

    /// The API server has answered.
    pub(super) fn answered(&mut self) {
        self.trouble = None;
    }

    /// A connection was lost or could not be opened.
    pub(super) fn lost(&mut self, now: Instant, why: String) {
        let lookup_at = now.plus_ms(API_LOOKUP_MS);
        let new = || Trouble { since: now, why: String::new(), lookup_at };
        self.trouble.get_or_insert_with(new).why = why;
    }

    /// The error, once the outage is longer than a restart.
    pub(super) fn trouble(&self, now: Instant) -> Option<String> {
        let trouble = self.trouble.as_ref()?;
        let ms = now.since_ms(trouble.since);
        (ms >= API_TROUBLE_MS)
            .then(|| format!("no answer from the API server for {} s: {}", ms / 1_000, trouble.why))
    }

    pub(super) fn wake_at(&self) -> Option<Instant> {
        self.trouble.as_ref().map(|trouble| trouble.lookup_at)
    }

    /// Looks up `host:port` if that is due. Returns the addresses when they are found.
    pub(super) fn tick(
        &mut self,
        now: Instant,
        host: &str,
        token: Token,
        registry: &Registry,
    ) -> Option<Vec<SocketAddr>> {
        self.children.retain_mut(|child| matches!(child.try_wait(), Ok(None)));
        let found = self.lookup.as_mut().and_then(Lookup::advance);
        if found.is_some() {
            self.give_up();
        }
        let Some(trouble) = self.trouble.as_mut() else {
            self.give_up();
            return None;
        };
        if trouble.lookup_at <= now {
            trouble.lookup_at = now.plus_ms(API_LOOKUP_MS);
            self.give_up();
            self.start_lookup(host, token, registry);
        }
        match found? {
            Ok(addresses) => Some(addresses).filter(|addresses| !addresses.is_empty()),
            Err(why) => {
                log::warn!("{host} cannot be looked up: {why}");
                None
            }
        }
    }

    fn start_lookup(&mut self, host: &str, token: Token, registry: &Registry) {
        let Some((name, port)) = host.rsplit_once(':') else { return };
        let name = name.trim_start_matches('[').trim_end_matches(']');
        let Ok(port) = port.parse() else { return };
        if name.parse::<IpAddr>().is_ok() || self.children.len() >= API_LOOKUPS_MAX {
            return;
        }
        match Lookup::start(&self.program, (name, port), token, registry) {
            Ok(lookup) => self.lookup = Some(lookup),
            Err(error) => log::warn!("{host} cannot be looked up: {error}"),
        }
    }

    fn give_up(&mut self) {
        if let Some(mut lookup) = self.lookup.take() {
            self.children.extend(lookup.end());
        }
    }
}

impl Drop for Health {
    fn drop(&mut self) {
        self.give_up();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trouble_is_told_of_after_minutes_and_until_there_is_an_answer() {
        let mut health = Health::new("/nonexistent".into());
        let at = |ms: u64| Instant(1_000 + ms);
        assert_eq!(health.trouble(at(API_TROUBLE_MS)), None, "nothing is known to be wrong");
        health.lost(at(0), "refused".to_owned());
        health.lost(at(5_000), "no route".to_owned());
        assert_eq!(health.trouble(at(API_TROUBLE_MS - 1)), None);
        let why = health.trouble(at(API_TROUBLE_MS)).expect("it is trouble");
        assert_eq!(why, "no answer from the API server for 180 s: no route");
        health.answered();
        assert_eq!(health.trouble(at(API_TROUBLE_MS)), None);
        assert_eq!(health.wake_at(), None);
    }
    /// An API server that is lost, and whose lookups hang.
    struct Bed(Health, mio::Poll);

    impl Bed {
        fn new() -> Self {
            let program = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/pipe/hang");
            let mut health = Health::new(program.into());
            health.lost(Instant(0), "refused".to_owned());
            Self(health, mio::Poll::new().expect("a poll"))
        }

        /// The process id of the lookup at that time, if there is one.
        fn lookup(&mut self, ms: u64) -> Option<u32> {
            let Self(health, poll) = self;
            let found = health.tick(Instant(ms), "api.example:443", Token(1), poll.registry());
            assert_eq!(found, None, "nobody answers");
            health.lookup.as_ref().and_then(Lookup::child_id)
        }

        fn hang(&self) -> Child {
            std::process::Command::new(&self.0.program).spawn().expect("it starts")
        }
    }

    impl Drop for Bed {
        fn drop(&mut self) {
            self.0.give_up();
            for child in &mut self.0.children {
                let _ = child.kill().and_then(|()| child.wait());
            }
        }
    }

    #[test]
    fn a_name_is_looked_up_once_it_was_missed_for_long_and_again_as_long_after_that() {
        let mut bed = Bed::new();
        assert_eq!(bed.0.wake_at(), Some(Instant(API_LOOKUP_MS)));
        assert_eq!(bed.lookup(API_LOOKUP_MS - 1), None);
        let first = bed.lookup(API_LOOKUP_MS);
        assert_eq!(bed.0.wake_at(), Some(Instant(2 * API_LOOKUP_MS)));
        assert_eq!(bed.lookup(2 * API_LOOKUP_MS - 1), first);
        let second = bed.lookup(2 * API_LOOKUP_MS);
        assert!(first.is_some() && second.is_some() && first != second, "{first:?} {second:?}");
    }

    #[test]
    fn lookups_that_cannot_be_ended_have_a_bound() {
        for (hanging, begins) in [(API_LOOKUPS_MAX - 1, true), (API_LOOKUPS_MAX, false)] {
            let mut bed = Bed::new();
            for _ in 0..hanging {
                let child = bed.hang();
                bed.0.children.push(child);
            }
            assert_eq!(bed.lookup(API_LOOKUP_MS).is_some(), begins, "{hanging}");
        }
    }
}
