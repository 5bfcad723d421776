//! While nobody answers: for how long, and whether the API server's name has other addresses by
//! now. They are looked up in a child, because a name server that is gone keeps whoever asks it.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::process::Child;

use mio::{Registry, Token};

use crate::controller::time::Instant;
use crate::io::cloud::names::Lookup;
use crate::limits::{API_LOOKUP_MS, API_LOOKUPS_MAX, API_TROUBLE_MS};

/// What is known of the way to the API server.
#[derive(Debug)]
pub(super) struct Health {
    /// What children run.
    program: PathBuf,
    trouble: Option<Trouble>,
    lookup: Option<Lookup>,
    /// Lookups that were given up and have not ended.
    children: Vec<Child>,
}

/// Nobody has answered since.
#[derive(Debug)]
struct Trouble {
    since: Instant,
    /// What was wrong last.
    why: String,
    /// When the name is looked up, or the lookup given up.
    look_at: Instant,
}

impl Health {
    pub(super) fn new(program: PathBuf) -> Self {
        Self { program, trouble: None, lookup: None, children: Vec::new() }
    }

    /// The API server has answered something.
    pub(super) fn heard(&mut self) {
        self.trouble = None;
    }

    /// A connection was lost or not had.
    pub(super) fn lost(&mut self, now: Instant, why: String) {
        let look_at = now.plus_ms(API_LOOKUP_MS);
        let new = || Trouble { since: now, why: String::new(), look_at };
        self.trouble.get_or_insert_with(new).why = why;
    }

    /// What is wrong, once it is more than a restart.
    pub(super) fn trouble(&self, now: Instant) -> Option<String> {
        let trouble = self.trouble.as_ref()?;
        let ms = now.since_ms(trouble.since);
        (ms >= API_TROUBLE_MS)
            .then(|| format!("no answer of the API server for {} s: {}", ms / 1_000, trouble.why))
    }

    pub(super) fn wake_at(&self) -> Option<Instant> {
        self.trouble.as_ref().map(|trouble| trouble.look_at)
    }

    /// Looks up `host:port` when it is time. The addresses, when they are found.
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
        if trouble.look_at <= now {
            trouble.look_at = now.plus_ms(API_LOOKUP_MS);
            self.give_up();
            self.look(host, token, registry);
        }
        match found? {
            Ok(addresses) => Some(addresses).filter(|addresses| !addresses.is_empty()),
            Err(why) => {
                log::warn!("{host} cannot be looked up: {why}");
                None
            }
        }
    }

    fn look(&mut self, host: &str, token: Token, registry: &Registry) {
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
        let told = health.trouble(at(API_TROUBLE_MS)).expect("it is trouble");
        assert_eq!(told, "no answer of the API server for 180 s: no route");
        health.heard();
        assert_eq!(health.trouble(at(API_TROUBLE_MS)), None);
        assert_eq!(health.wake_at(), None);
    }
}
