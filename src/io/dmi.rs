//! Mappers of devices on unix sockets (DMI): the socket that they call, and calls to theirs.
//!
//! ```text
//!  mapper ──▶ /etc/kubeedge/dmi.sock ──▶ Event::Called ─▶ core ─▶ Dmi::answer ──▶ mapper
//!  core ─▶ Dmi::call ──▶ queue ──▶ the mapper's socket ──▶ Event::Done ─▶ core
//! ```
//!
//! **Intended behaviour.** A call of a mapper is reported once and answered once, at the latest at
//! its deadline. A call to a mapper ends once: with its answer, or with the reason why there is
//! none. Each mapper gets one call at a time, in order, and mappers are called side by side. Each
//! call has a connection of its own, as with EdgeCore: mappers restart at any time, and a
//! connection to a local socket costs less than to keep one, and to tell a dead one from a slow
//! one.
//!
//! **Bounds.** Nothing of a mapper can make the agent wait or grow: connections, calls, bytes that
//! are kept, bytes that are read in a second, and the time for each step have limits. When there is
//! no room for a connection, the one that has been idle for longest is closed, with a GOAWAY.
//!
//! **What is not here.** Authentication: whoever may write the socket, root and its group, may
//! report for any device, as with EdgeCore. Retries: the core knows what a mapper has not got.
//!
//! **If we crash here** mappers see their connections close and report again; the next start makes
//! the socket anew.

mod client;
mod server;

use std::path::Path;

use mio::event::Event as Ready;
use mio::{Registry, Token};

use crate::agent::time::Instant;
use crate::limits::{DMI_CALLS_MAX, DMI_CONNECTIONS_MAX};
use crate::model::device::{ManagerAnswer, ManagerCall, MapperCall, MapperError};
use client::Client;
use server::Server;

/// What mappers did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A call of a mapper. [`Dmi::answer`] ends it.
    Called { id: u64, call: ManagerCall },
    /// A call to a mapper has ended.
    Done { id: u64, result: Result<(), MapperError> },
}

/// Both directions.
#[derive(Debug)]
pub struct Dmi {
    server: Server,
    client: Client,
    first: Token,
}

impl Dmi {
    /// The number of tokens that it uses, from `first` on.
    pub const TOKENS: usize = 1 + DMI_CONNECTIONS_MAX + DMI_CALLS_MAX;

    /// [`Dmi::tick`] opens the socket of that path.
    pub fn new(socket: &Path, first: Token, now: Instant) -> Self {
        Self {
            server: Server::new(socket, first, now),
            client: Client::new(Token(first.0 + 1 + DMI_CONNECTIONS_MAX)),
            first,
        }
    }

    /// Whether the token belongs to the listener or a connection.
    pub fn owns(&self, token: Token) -> bool {
        (self.first.0..=self.first.0 + DMI_CONNECTIONS_MAX + DMI_CALLS_MAX).contains(&token.0)
    }

    /// Retries at once what failed before: the configuration was reloaded.
    pub fn retry(&mut self) {
        self.server.retry();
    }

    pub fn ready(&mut self, ready: &Ready) {
        let at = ready.token().0 - self.first.0;
        if at <= DMI_CONNECTIONS_MAX {
            self.server.ready(at, ready);
        } else {
            self.client.ready(ready);
        }
    }

    /// Listens, accepts, reads, and ends what is late, as far as each is due.
    pub fn tick(&mut self, now: Instant, registry: &Registry, events: &mut Vec<Event>) {
        self.server.tick(now, registry, events);
        self.client.tick(now, events);
    }

    /// Answers a call of a mapper. One that has ended since is ignored.
    pub fn answer(&mut self, now: Instant, id: u64, answer: &ManagerAnswer) {
        self.server.answer(now, id, answer);
    }

    /// Calls a mapper, by the path of its socket. `id` must not be used by two calls at a time.
    /// `deadline`: then it ends, whether its turn has come or not.
    pub fn call(
        &mut self,
        id: u64,
        mapper: &str,
        call: MapperCall,
        deadline: Instant,
        events: &mut Vec<Event>,
    ) {
        self.client.call(id, mapper, call, deadline, events);
    }

    /// Begins the calls whose turn it is, and writes what is to be written, at the end of a turn.
    pub fn flush(&mut self, registry: &Registry, events: &mut Vec<Event>) {
        self.server.flush(registry);
        self.client.flush(registry, events);
    }

    /// When to call [`Dmi::tick`].
    pub fn wake_at(&self) -> Option<Instant> {
        [self.server.wake_at(), self.client.wake_at()].into_iter().flatten().min()
    }
}

/// Whether a mapper listens on this socket. To connect to a unix socket does not wait.
pub fn check(mapper: &str) -> Result<(), MapperError> {
    match mio::net::UnixStream::connect(mapper) {
        Ok(_) => Ok(()),
        // As many wait for it as it bears.
        Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => Ok(()),
        Err(error) => Err(MapperError::Unreachable(error.to_string().into())),
    }
}

#[cfg(test)]
mod tests;
