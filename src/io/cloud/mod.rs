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

pub(in crate::io) mod connector;
pub(in crate::io) mod dial;
mod enrol;
pub(in crate::io) mod files;
mod https;
mod inspect;
pub mod join;
pub(in crate::io) mod names;
mod session;
pub(in crate::io) mod tls;
pub(in crate::io) mod transport;

use std::path::PathBuf;

use mio::event::Event as Ready;
use mio::{Registry, Token};

use crate::agent::event::Event;
use crate::agent::time::{Instant, Now};
use crate::limits::Budget;
use crate::model::link::{Cause, Session};
use crate::model::settings::CloudLink;
use crate::model::upstream::Upstream;
use connector::{Connected, Connector};
use dial::Endpoint;
pub use enrol::enrol;
#[cfg(any(feature = "devices", feature = "metaserver"))]
pub(super) use inspect::reach;
pub use inspect::{Inspection, inspect};
use session::End;
use tls::explain;

/// The link, up or down.
#[derive(Debug)]
pub struct Cloud {
    budget: Budget,
    first: Token,
    connector: Connector,
    up: Option<Up>,
}

#[derive(Debug)]
struct Up {
    session: Box<session::Session>,
    /// There may be bytes to read that epoll will not report again.
    unread: bool,
    to: String,
}

impl Cloud {
    /// `first`: this token and the next are ours. `program`: see [`crate::io::job::Jobs::new`].
    pub fn new(link: Option<CloudLink>, program: PathBuf, first: Token) -> Self {
        let connector = Connector::new(link, program, first);
        Self { budget: Budget::FULL, first, connector, up: None }
    }

    /// The same with other memory limits.
    #[must_use]
    pub fn within(self, budget: Budget) -> Self {
        Self { budget, ..self }
    }

    /// Whether the token is one of ours.
    pub fn owns(&self, token: Token) -> bool {
        self.connector.owns(token)
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
        match self.connector.dial(name, Endpoint::Hub, deadline, now, registry) {
            Ok(()) => self.advance(now.boot, registry, events),
            Err(cause) => events.push(Event::LinkDown(name, cause)),
        }
    }

    /// Queues a message; does nothing if its session has ended.
    pub fn send(&mut self, name: Session, message: &Upstream, events: &mut Vec<Event>) {
        if let Some(Up { session, .. }) = &mut self.up
            && session.name == name
            && let Err(end) = session.send(message)
        {
            self.end(&end, events);
        }
    }

    /// Sends a ping.
    pub fn ping(&mut self, name: Session, events: &mut Vec<Event>) {
        if let Some(Up { session, .. }) = &mut self.up
            && session.name == name
            && let Err(end) = session.ping()
        {
            self.end(&end, events);
        }
    }

    /// Ends the session without an event.
    pub fn hangup(&mut self, name: Session) {
        let current = self.up.as_ref().map(|up| up.session.name);
        if current.or(self.connector.dialling()) == Some(name) {
            self.drop_session();
        }
    }

    pub fn ready(&mut self, ready: &Ready) {
        self.connector.ready();
        if let Some(up) = &mut self.up {
            up.unread |= ready.token() == self.first;
        }
    }

    /// Continues the connection attempt, or reads a bounded amount, and ends what is late.
    pub fn tick(&mut self, now: Instant, registry: &Registry, events: &mut Vec<Event>) {
        let Some(Up { session, unread, .. }) = &mut self.up else {
            return self.advance(now, registry, events);
        };
        if *unread {
            match session.read(now, events) {
                Ok(more) => *unread = more,
                Err(end) => return self.end(&end, events),
            }
        }
        self.flush(now, events);
    }

    /// Writes queued messages, at the end of a turn.
    pub fn flush(&mut self, now: Instant, events: &mut Vec<Event>) {
        let Some(Up { session, .. }) = &mut self.up else { return };
        if let Err(end) = session.write(now, events) {
            return self.end(&end, events);
        }
        let timeout_ms = self.connector.link().map_or(u64::MAX, |link| link.write_timeout_ms);
        if session.blocked_since().is_some_and(|since| since.plus_ms(timeout_ms) <= now) {
            let why = format!("did not read for {} s", timeout_ms / 1_000);
            self.end(&End::Peer(why), events);
        }
    }

    /// When to call [`Cloud::tick`].
    pub fn wake_at(&self) -> Option<Instant> {
        let Some(Up { session, unread, .. }) = &self.up else { return self.connector.wake_at() };
        if *unread {
            return Some(Instant(0));
        }
        let timeout_ms = self.connector.link().map_or(0, |link| link.write_timeout_ms);
        Some(session.blocked_since()?.plus_ms(timeout_ms))
    }

    /// A child of the process has ended, perhaps one of ours.
    pub fn reap(&mut self) {
        self.connector.reap();
    }

    fn advance(&mut self, now: Instant, registry: &Registry, events: &mut Vec<Event>) {
        match self.connector.advance(now, registry) {
            None => {}
            Some((_, Ok(Connected { name, validity, tls, tail }))) => {
                events.push(Event::LinkUp(name, validity));
                let session = Box::new(session::Session::new(name, *tls, tail, self.budget));
                let to = self.connector.link().map(|link| link.server.clone()).unwrap_or_default();
                self.up = Some(Up { session, unread: true, to });
            }
            Some((name, Err(cause))) => events.push(Event::LinkDown(name, cause)),
        }
    }

    fn end(&mut self, end: &End, events: &mut Vec<Event>) {
        let Some(Up { session, to, .. }) = &self.up else { return };
        let name = session.name;
        let cause = match (end, self.connector.link()) {
            (End::Io(error), Some(link)) => explain(error, link, to),
            (End::Io(error), None) => Cause::Link(error.to_string()),
            (End::Peer(why), _) => Cause::Link(format!("{to}: the cloud {why}")),
        };
        self.drop_session();
        events.push(Event::LinkDown(name, cause));
    }

    fn drop_session(&mut self) {
        self.connector.abort();
        if let Some(mut up) = self.up.take() {
            up.session.send_close();
        }
    }
}
