//! Connects to a port of the cloud when the core requests it: credentials from the disk, name, TCP,
//! TLS, the upgrade to a websocket. Each connection begins anew, with the credentials of that
//! moment.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Child;

use mio::{Registry, Token};

use super::dial::{Dial, Endpoint, Outcome, Place};
use super::tls::Credentials;
use crate::agent::time::{Instant, Now};
use crate::io::tls::Tls;
use crate::limits::CLOUD_LOOKUPS_MAX;
use crate::model::link::{Cause, Session, Validity};
use crate::model::settings::CloudLink;

#[derive(Debug)]
pub(in crate::io) struct Connector {
    /// `None`: no cloud is configured.
    link: Option<CloudLink>,
    /// The program that children run.
    program: PathBuf,
    /// This token is that of the connection; the next one of the lookup.
    first: Token,
    attempt: Option<Attempt>,
    /// The result of the last lookup of the cloud's name, the address that worked first.
    known: Vec<SocketAddr>,
    /// Children of finished lookups, until they have ended.
    children: Vec<Child>,
}

#[derive(Debug)]
struct Attempt {
    dial: Box<Dial>,
    endpoint: Endpoint,
    /// There is something to do now.
    busy: bool,
}

/// A connection that is up.
#[derive(Debug)]
pub(in crate::io) struct Connected {
    pub(in crate::io) name: Session,
    pub(in crate::io) validity: Validity,
    pub(in crate::io) tls: Box<Tls>,
    /// The bytes after the upgrade.
    pub(in crate::io) tail: Vec<u8>,
}

impl Connector {
    /// `program`: see [`crate::io::job::Jobs::new`].
    pub(in crate::io) fn new(link: Option<CloudLink>, program: PathBuf, first: Token) -> Self {
        Self { link, program, first, attempt: None, known: Vec::new(), children: Vec::new() }
    }

    pub(in crate::io) fn link(&self) -> Option<&CloudLink> {
        self.link.as_ref()
    }

    pub(in crate::io) fn owns(&self, token: Token) -> bool {
        token == self.first || token == self.lookup_token()
    }

    fn lookup_token(&self) -> Token {
        Token(self.first.0 + 1)
    }

    /// Begins an attempt; the one before is over.
    pub(in crate::io) fn dial(
        &mut self,
        name: Session,
        endpoint: Endpoint,
        deadline: Instant,
        now: Now,
        registry: &Registry,
    ) -> Result<(), Cause> {
        self.abort();
        let Some(link) = &self.link else {
            return Err(Cause::Link("no cloud is configured".to_owned()));
        };
        if self.children.len() >= CLOUD_LOOKUPS_MAX {
            let count = self.children.len();
            return Err(Cause::Link(format!("{count} name lookups hang and cannot be killed")));
        }
        let credentials = Credentials::find(link, now.wall)?;
        let place = Place {
            link,
            endpoint: &endpoint,
            program: &self.program,
            socket: self.first,
            lookup: self.lookup_token(),
            registry,
        };
        let dial = Dial::start(name, deadline, credentials, place, now.boot)?;
        self.attempt = Some(Attempt { dial: Box::new(dial), endpoint, busy: true });
        Ok(())
    }

    /// The session that is being dialled.
    pub(in crate::io) fn dialling(&self) -> Option<Session> {
        self.attempt.as_ref().map(|attempt| attempt.dial.name)
    }

    /// Ends the attempt.
    pub(in crate::io) fn abort(&mut self) {
        if let Some(mut attempt) = self.attempt.take() {
            self.children.extend(attempt.dial.end());
        }
    }

    pub(in crate::io) fn ready(&mut self) {
        if let Some(attempt) = &mut self.attempt {
            attempt.busy = true;
        }
    }

    /// Continues the attempt. `Some`: it is over.
    pub(in crate::io) fn advance(
        &mut self,
        now: Instant,
        registry: &Registry,
    ) -> Option<(Session, Result<Connected, Cause>)> {
        let lookup = self.lookup_token();
        let (Some(attempt), Some(link)) = (&mut self.attempt, &self.link) else { return None };
        let Attempt { dial, endpoint, busy } = attempt;
        let place =
            Place { link, endpoint, program: &self.program, socket: self.first, lookup, registry };
        let name = dial.name;
        let address = dial.address();
        let outcome = match dial.advance(place, &mut self.known, now) {
            Ok(Outcome::Waiting | Outcome::Busy) if dial.deadline <= now => {
                Err(Cause::Link(dial.step()))
            }
            outcome => outcome,
        };
        self.children.extend(dial.done());
        // Of the known addresses, the one that answers is tried first the next time.
        if let Some(to) = address.or_else(|| dial.address()) {
            self.known.sort_by_key(|known| *known != to);
        }
        let result = match outcome {
            Ok(Outcome::Waiting) => {
                *busy = false;
                return None;
            }
            Ok(Outcome::Busy) => {
                *busy = true;
                return None;
            }
            Ok(Outcome::Up(tls, tail)) => {
                Ok(Connected { name, validity: dial.validity, tls, tail })
            }
            Err(cause) => Err(cause),
        };
        self.abort();
        Some((name, result))
    }

    /// When to call [`Connector::advance`].
    pub(in crate::io) fn wake_at(&self) -> Option<Instant> {
        let attempt = self.attempt.as_ref()?;
        Some(if attempt.busy { Instant(0) } else { attempt.dial.wake_at() })
    }

    /// A child of the process has ended, perhaps one of ours.
    pub(in crate::io) fn reap(&mut self) {
        self.children.retain_mut(|child| matches!(child.try_wait(), Ok(None)));
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use mio::Poll;

    use super::*;

    /// A connection attempt of a node without credentials.
    fn dial(connector: &mut Connector) -> Cause {
        let poll = Poll::new().expect("a poll");
        let now = Now { boot: Instant(1_000), wall: None };
        let (name, deadline) = (Session(1), Instant(5_000));
        let dialled = connector.dial(name, Endpoint::Hub, deadline, now, poll.registry());
        dialled.expect_err("it has no credentials")
    }

    #[test]
    fn lookups_that_cannot_be_ended_have_a_bound() {
        let hang = || {
            let program = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/pipe/hang");
            Command::new(program).spawn().expect("it starts")
        };
        let server = "cloud.example:10000".to_owned();
        let link =
            CloudLink { server, ca_file: "/nowhere/ca.crt".to_owned(), ..Default::default() };
        let mut connector = Connector::new(Some(link), PathBuf::from("/nowhere/edged"), Token(1));
        connector.children.extend((1..CLOUD_LOOKUPS_MAX).map(|_| hang()));
        assert!(matches!(dial(&mut connector), Cause::NotJoined(_)), "it goes on");
        connector.children.push(hang());
        let Cause::Link(why) = dial(&mut connector) else { panic!("there are too many") };
        assert_eq!(why, format!("{CLOUD_LOOKUPS_MAX} name lookups hang and cannot be killed"));
        for child in &mut connector.children {
            child.kill().and_then(|()| child.wait()).expect("it is ours");
        }
        connector.reap();
        assert!(matches!(dial(&mut connector), Cause::NotJoined(_)), "they have ended after all");
    }
}
