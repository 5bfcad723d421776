//! The link to the cloud: one websocket over TLS. The core requests the connection, and gets an
//! event when it ends.
//!
//! ```text
//!  Dial ─▶ credentials ─▶ name ─▶ TCP ─▶ TLS ─▶ upgrade ─▶ LinkUp ─▶ Cloud*, LinkActive, Sent
//!           from the disk  child   each                                │
//!               │           │     address                              │ end, violation, stuck
//!               └───────────┴───────┴──────┴───────┴────── LinkDown ◀──┘      Hangup: nothing
//! ```
//!
//! The core decides when to connect, how long a silence is too long, and what a message means.
//! Nothing here blocks: whatever may block ([`names`], [`enrol`]) runs in children. The credentials
//! are read again for every connection, so that a new certificate is used from the next one on.
//! tungstenite makes the upgrade; [`crate::wire::ws`] has the frames, because a message that is too
//! large must not end the link, and memory must grow with the received bytes, not with the
//! announced size.
//!
//! **If we crash here** the kernel closes the socket. The cloud sends again what was not
//! acknowledged.

mod dial;
mod enrol;
pub(in crate::io) mod files;
mod https;
mod inspect;
pub mod join;
pub(in crate::io) mod names;
mod session;
mod tls;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Child;

use mio::event::Event as Ready;
use mio::{Registry, Token};

use crate::agent::event::Event;
use crate::agent::time::{Instant, Now};
use crate::limits::{Budget, CLOUD_LOOKUPS_MAX};
use crate::model::link::{Cause, Session};
use crate::model::settings::CloudLink;
use crate::model::upstream::Upstream;
use dial::{Dial, Outcome, Place};
pub use enrol::enrol;
pub use inspect::{Inspection, inspect};
use session::End;
use tls::{Credentials, explain};

/// The link, up or down.
#[derive(Debug)]
pub struct Cloud {
    /// `None`: no cloud is configured.
    link: Option<CloudLink>,
    budget: Budget,
    /// The program that children run.
    program: PathBuf,
    first: Token,
    state: State,
    /// The result of the last lookup of the cloud's name, the address that worked first.
    known: Vec<SocketAddr>,
    /// Children of finished lookups, until they have ended.
    children: Vec<Child>,
}

#[derive(Debug)]
enum State {
    Down,
    Dialling {
        dial: Box<Dial>,
        /// There is something to do now.
        busy: bool,
    },
    Up {
        session: Box<session::Session>,
        /// There may be bytes to read that epoll will not report again.
        unread: bool,
        to: String,
    },
}

impl Cloud {
    /// `first`: this token and the next are ours. `program`: see [`crate::io::job::Jobs::new`].
    pub fn new(link: Option<CloudLink>, program: PathBuf, first: Token) -> Self {
        let (known, children) = (Vec::new(), Vec::new());
        let budget = Budget::FULL;
        Self { link, budget, program, first, state: State::Down, known, children }
    }

    /// The same with other memory limits.
    #[must_use]
    pub fn within(self, budget: Budget) -> Self {
        Self { budget, ..self }
    }

    /// Whether the token is one of ours.
    pub fn owns(&self, token: Token) -> bool {
        token == self.first || token == self.lookup_token()
    }

    /// Starts a session; the previous one ends without an event.
    pub fn dial(
        &mut self,
        name: Session,
        deadline: Instant,
        now: Now,
        registry: &Registry,
        events: &mut Vec<Event>,
    ) {
        self.drop_session();
        match self.begin(name, deadline, now, registry) {
            Ok(dial) => {
                self.state = State::Dialling { dial: Box::new(dial), busy: true };
                self.advance(now.boot, registry, events);
            }
            Err(cause) => events.push(Event::LinkDown(name, cause)),
        }
    }

    fn begin(
        &mut self,
        name: Session,
        deadline: Instant,
        now: Now,
        registry: &Registry,
    ) -> Result<Dial, Cause> {
        let Some(link) = &self.link else {
            return Err(Cause::Link("no cloud is configured".to_owned()));
        };
        if self.children.len() >= CLOUD_LOOKUPS_MAX {
            let count = self.children.len();
            return Err(Cause::Link(format!("{count} name lookups hang and cannot be killed")));
        }
        let credentials = Credentials::find(link, now.wall)?;
        Dial::start(name, deadline, credentials, self.place(link, registry), now.boot)
    }

    /// Queues a message; does nothing if its session has ended.
    pub fn send(&mut self, name: Session, message: &Upstream, events: &mut Vec<Event>) {
        let State::Up { session, .. } = &mut self.state else { return };
        if session.name == name
            && let Err(end) = session.send(message)
        {
            self.end(&end, events);
        }
    }

    /// Sends a ping.
    pub fn ping(&mut self, name: Session, events: &mut Vec<Event>) {
        let State::Up { session, .. } = &mut self.state else { return };
        if session.name == name
            && let Err(end) = session.ping()
        {
            self.end(&end, events);
        }
    }

    /// Ends the session without an event.
    pub fn hangup(&mut self, name: Session) {
        let current = match &self.state {
            State::Down => None,
            State::Dialling { dial, .. } => Some(dial.name),
            State::Up { session, .. } => Some(session.name),
        };
        if current == Some(name) {
            self.drop_session();
        }
    }

    pub fn ready(&mut self, ready: &Ready) {
        let of_link = ready.token() == self.first;
        match &mut self.state {
            State::Down => {}
            State::Dialling { busy, .. } => *busy = true,
            State::Up { unread, .. } => *unread |= of_link,
        }
    }

    /// Continues the connection attempt, or reads a bounded amount, and ends what is late.
    pub fn tick(&mut self, now: Instant, registry: &Registry, events: &mut Vec<Event>) {
        match &mut self.state {
            State::Down => {}
            State::Dialling { .. } => self.advance(now, registry, events),
            State::Up { session, unread, .. } => {
                if *unread {
                    match session.read(now, events) {
                        Ok(more) => *unread = more,
                        Err(end) => return self.end(&end, events),
                    }
                }
                self.flush(now, events);
            }
        }
    }

    /// Writes queued messages, at the end of a turn.
    pub fn flush(&mut self, now: Instant, events: &mut Vec<Event>) {
        let State::Up { session, .. } = &mut self.state else { return };
        if let Err(end) = session.write(now, events) {
            return self.end(&end, events);
        }
        let timeout_ms = self.link.as_ref().map_or(u64::MAX, |link| link.write_timeout_ms);
        if session.blocked_since().is_some_and(|since| since.plus_ms(timeout_ms) <= now) {
            let why = format!("did not read for {} s", timeout_ms / 1_000);
            self.end(&End::Peer(why), events);
        }
    }

    /// When to call [`Cloud::tick`].
    pub fn wake_at(&self) -> Option<Instant> {
        match &self.state {
            State::Down => None,
            State::Dialling { busy: true, .. } | State::Up { unread: true, .. } => Some(Instant(0)),
            State::Dialling { dial, .. } => Some(dial.wake_at()),
            State::Up { session, .. } => {
                let timeout_ms = self.link.as_ref().map_or(0, |link| link.write_timeout_ms);
                Some(session.blocked_since()?.plus_ms(timeout_ms))
            }
        }
    }

    /// A child of the process has ended, perhaps one of ours.
    pub fn reap(&mut self) {
        self.children.retain_mut(|child| matches!(child.try_wait(), Ok(None)));
    }

    fn advance(&mut self, now: Instant, registry: &Registry, events: &mut Vec<Event>) {
        let (State::Dialling { dial, busy }, Some(link)) = (&mut self.state, &self.link) else {
            return;
        };
        let place = Place {
            link,
            program: &self.program,
            socket: self.first,
            lookup: Token(self.first.0 + 1),
            registry,
        };
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
        match outcome {
            Ok(Outcome::Waiting) => *busy = false,
            Ok(Outcome::Busy) => *busy = true,
            Ok(Outcome::Up(tls, tail)) => {
                events.push(Event::LinkUp(name, dial.validity));
                let session = Box::new(session::Session::new(name, *tls, tail, self.budget));
                self.state = State::Up { session, unread: true, to: link.server.clone() };
            }
            Err(cause) => {
                self.drop_session();
                events.push(Event::LinkDown(name, cause));
            }
        }
    }

    fn end(&mut self, end: &End, events: &mut Vec<Event>) {
        let State::Up { session, to, .. } = &self.state else { return };
        let name = session.name;
        let cause = match (end, &self.link) {
            (End::Io(error), Some(link)) => explain(error, link, to),
            (End::Io(error), None) => Cause::Link(error.to_string()),
            (End::Peer(why), _) => Cause::Link(format!("{to}: the cloud {why}")),
        };
        self.drop_session();
        events.push(Event::LinkDown(name, cause));
    }

    fn drop_session(&mut self) {
        match std::mem::replace(&mut self.state, State::Down) {
            State::Down => {}
            State::Dialling { mut dial, .. } => self.children.extend(dial.end()),
            State::Up { mut session, .. } => session.send_close(),
        }
    }

    fn place<'a>(&'a self, link: &'a CloudLink, registry: &'a Registry) -> Place<'a> {
        Place {
            link,
            program: &self.program,
            socket: self.first,
            lookup: self.lookup_token(),
            registry,
        }
    }

    fn lookup_token(&self) -> Token {
        Token(self.first.0 + 1)
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use mio::Poll;

    use super::*;

    /// A connection attempt of a node without credentials.
    fn dial(cloud: &mut Cloud) -> Cause {
        let poll = Poll::new().expect("a poll");
        let now = Now { boot: Instant(1_000), wall: None };
        let (name, deadline, mut events) = (Session(1), Instant(5_000), Vec::new());
        cloud.dial(name, deadline, now, poll.registry(), &mut events);
        match events.pop() {
            Some(Event::LinkDown(Session(1), cause)) => cause,
            other => panic!("{other:?}"),
        }
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
        let mut cloud = Cloud::new(Some(link), PathBuf::from("/nowhere/edged"), Token(1));
        cloud.children.extend((1..CLOUD_LOOKUPS_MAX).map(|_| hang()));
        assert!(matches!(dial(&mut cloud), Cause::NotJoined(_)), "it goes on");
        cloud.children.push(hang());
        let Cause::Link(why) = dial(&mut cloud) else { panic!("there are too many") };
        assert_eq!(why, format!("{CLOUD_LOOKUPS_MAX} name lookups hang and cannot be killed"));
        for child in &mut cloud.children {
            child.kill().and_then(|()| child.wait()).expect("it is ours");
        }
        cloud.reap();
        assert!(matches!(dial(&mut cloud), Cause::NotJoined(_)), "they have ended after all");
    }
}
