//! The sockets of the router for custom messages: the REST entry for clients, and requests to REST
//! endpoints. It decides nothing ([`crate::controller`]).
//!
//! **If we crash here** the kernel closes the sockets: clients and endpoints see that.

mod entry;
mod posts;
#[cfg(test)]
mod tests;

use std::path::PathBuf;

use mio::event::Event as Ready;
use mio::{Registry, Token};

use crate::controller::event::Event;
use crate::controller::time::Instant;
use crate::model::router::{Post, PostId, RestId};
use crate::model::service_bus::ServiceAnswer;
use entry::Entry;
pub(super) use entry::Gate;
use posts::Posts;

/// All sockets.
#[derive(Debug)]
pub struct Router {
    first: Token,
    /// `None`: it is off.
    entry: Option<Entry>,
    posts: Posts,
}

impl Router {
    /// `gate`: of the REST entry. `program` looks up names. `authorities`: the file with the CAs of
    /// REST endpoints; `None`: the system's. `first`: the tokens from here on are ours.
    pub(super) fn new(
        gate: Option<Gate>,
        program: PathBuf,
        authorities: Option<PathBuf>,
        first: Token,
    ) -> Self {
        let next = Token(first.0 + Entry::TOKENS);
        let entry = gate.map(|gate| Entry::new(gate, first));
        Self { first, entry, posts: Posts::new(program, authorities, next) }
    }

    /// Whether the token is one of ours.
    pub fn owns(&self, token: Token) -> bool {
        (self.first.0..self.first.0 + Entry::TOKENS + Posts::TOKENS).contains(&token.0)
    }

    pub fn ready(&mut self, ready: &Ready) {
        if ready.token().0 - self.first.0 >= Entry::TOKENS {
            self.posts.ready(ready);
        } else if let Some(entry) = &mut self.entry {
            entry.ready(ready);
        }
    }

    /// Answers a client.
    pub fn answer(&mut self, now: Instant, id: RestId, answer: &ServiceAnswer) {
        if let Some(entry) = &mut self.entry {
            entry.answer(now, id, answer);
        }
    }

    /// Begins a request to a REST endpoint.
    pub fn post(
        &mut self,
        now: Instant,
        id: PostId,
        post: &Post,
        registry: &Registry,
        events: &mut Vec<Event>,
    ) {
        self.posts.start(now, id, post, registry, events);
    }

    /// Continues what is ready or late.
    pub fn tick(&mut self, now: Instant, registry: &Registry, events: &mut Vec<Event>) {
        if let Some(entry) = &mut self.entry {
            entry.tick(now, registry, events);
        }
        self.posts.tick(now, registry, events);
    }

    /// When to call [`Router::tick`].
    pub fn wake_at(&self) -> Option<Instant> {
        let entry = self.entry.as_ref().and_then(Entry::wake_at);
        self.posts.wake_at().into_iter().chain(entry).min()
    }
}
