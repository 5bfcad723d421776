//! The port of MetaServer: accepts connections, reads one request from each, and writes answers and
//! the events of watches as its client takes them.
//!
//! Everything has a bound: connections, bytes of requests, what waits for a client, and the time
//! that a client may take. A client that does not keep up is disconnected, and lists again.
//!
//! Any user of this machine can connect, so only a read-only part of the API without secrets is
//! served, unless the operator has said otherwise. A request from a web page does not get through
//! (`wire/http1`).
//!
//! **If we crash here** clients see a reset, and connect again.

mod connection;
#[cfg(test)]
mod tests;

use std::net::SocketAddr;

use mio::event::Event as Ready;
use mio::{Registry, Token};

use super::socket::{Address, Listener};
use crate::agent::event::Event;
use crate::agent::time::{Instant, Now};
use crate::config::Config;
use crate::limits::{
    METASERVER_CLIENTS_MAX, METASERVER_QUEUES_MAX, METASERVER_READING_BYTES_MAX,
    METASERVER_TURN_ACCEPTS,
};
use crate::model::metaserver::{Call, ClientId, MetaServerSettings, Reply};
use crate::wire::metaserver::reply::{self, Piece};
use crate::wire::metaserver::request::{self, Asked};
use connection::{Connection, Next};

/// The listener and its connections.
#[derive(Debug)]
pub struct MetaServer {
    settings: MetaServerSettings,
    /// `None`: it is switched off.
    listener: Option<Listener>,
    /// Its token; connection `n` has the token `n + 1` after it.
    first: Token,
    connections: Vec<Option<Connection>>,
    /// Requests since the start: parts of their ids.
    requests: u64,
}

impl MetaServer {
    pub fn new(config: &Config, first: Token) -> Self {
        let settings = config.metaserver.settings().filter(|_| config.cloud.is_configured());
        let listener = settings
            .map(|settings| Listener::new(Address::Port(settings.server), "MetaServer", first));
        let count = if listener.is_some() { METASERVER_CLIENTS_MAX } else { 0 };
        Self {
            settings: settings.cloned().unwrap_or_default(),
            listener,
            first,
            connections: std::iter::repeat_with(|| None).take(count).collect(),
            requests: 0,
        }
    }

    pub fn owns(&self, token: Token) -> bool {
        (self.first.0..=self.first.0 + METASERVER_CLIENTS_MAX).contains(&token.0)
    }

    /// Retries at once what failed before.
    pub fn retry(&mut self) {
        self.listener.iter_mut().for_each(Listener::retry);
    }

    pub fn ready(&mut self, ready: &Ready) {
        let at = ready.token().0 - self.first.0;
        if at == 0 {
            self.listener.iter_mut().for_each(Listener::ready);
        } else if let Some(Some(connection)) = self.connections.get_mut(at - 1) {
            connection.ready(ready);
        }
    }

    /// Listens, accepts, and reads requests.
    pub fn tick(&mut self, now: Instant, registry: &Registry, events: &mut Vec<Event>) {
        let Some(listener) = &mut self.listener else { return };
        listener.listen(now, registry, |_, _| {
            "choose another with modules.metaManager.metaServer.server; the pods do not need it"
        });
        let bound = listener.bound().unwrap_or(self.settings.server);
        self.accept(now, registry);
        let mut reading: usize =
            self.connections.iter().flatten().map(Connection::read_bytes).sum();
        for at in 0..self.connections.len() {
            let Some(connection) = &mut self.connections[at] else { continue };
            let before = connection.read_bytes();
            let next = connection.read(
                now,
                bound,
                METASERVER_READING_BYTES_MAX - reading.min(METASERVER_READING_BYTES_MAX),
            );
            reading = reading + connection.read_bytes() - before;
            match next {
                Next::Wait => {}
                Next::End => self.end(at, registry, events),
                Next::Request(call) => self.request(at, now, &call, events),
            }
        }
    }

    fn request(
        &mut self,
        at: usize,
        now: Instant,
        call: &crate::wire::http1::call::Call,
        events: &mut Vec<Event>,
    ) {
        let Some(connection) = &mut self.connections[at] else { return };
        match request::read(call, &self.settings) {
            Ok(Asked::Known(kind, body)) => {
                connection.push(now, reply::whole(200, kind, "", &body));
            }
            Ok(Asked::Call(call)) => {
                self.requests += 1;
                let id = self.requests * METASERVER_CLIENTS_MAX as u64 + at as u64;
                connection.waits(ClientId(id));
                events.push(opened(ClientId(id), call));
            }
            Err(failure) => connection.push(now, reply::refusal(&failure)),
        }
    }

    /// Takes a reply for a client; one that has left is ignored.
    pub fn reply(&mut self, now: Instant, id: ClientId, reply: Reply) {
        let at = (id.0 % METASERVER_CLIENTS_MAX as u64) as usize;
        let found = self.connections.get_mut(at).and_then(Option::as_mut);
        if let Some(connection) = found.filter(|it| it.client() == Some(id)) {
            connection.push(now, reply::pieces(reply));
        }
    }

    /// Writes what clients take. `now`: its wall clock gives the ages in tables.
    pub fn flush(&mut self, now: Now, registry: &Registry, events: &mut Vec<Event>) {
        let now_s = now.wall.map(|wall| wall.0.div_euclid(1_000));
        let mut queued: usize = self.connections.iter().flatten().map(Connection::queued).sum();
        for at in 0..self.connections.len() {
            let Some(connection) = &mut self.connections[at] else { continue };
            let before = connection.queued();
            let is_over = connection.write(now.boot, now_s);
            queued = queued - before + connection.queued();
            if is_over {
                queued -= connection.queued();
                self.end(at, registry, events);
            }
        }
        while queued > METASERVER_QUEUES_MAX {
            // The one that is furthest behind: it lists again.
            let length = |at: &usize| self.connections[*at].as_ref().map_or(0, Connection::queued);
            let Some(at) = (0..self.connections.len()).max_by_key(length) else { return };
            queued = queued.saturating_sub(length(&at).max(1));
            self.end(at, registry, events);
        }
    }

    fn end(&mut self, at: usize, registry: &Registry, events: &mut Vec<Event>) {
        let Some(mut connection) = self.connections[at].take() else { return };
        connection.leave(registry);
        if let Some(id) = connection.client() {
            events.push(closed(id));
        }
    }

    fn accept(&mut self, now: Instant, registry: &Registry) {
        let Some(listener) = &mut self.listener else { return };
        for _ in 0..METASERVER_TURN_ACCEPTS {
            let Some(at) = self.connections.iter().position(Option::is_none) else {
                // The kernel keeps a few more until one ends.
                return;
            };
            let Some(mut stream) = listener.accept(now) else { return };
            match stream.register(registry, Token(self.first.0 + 1 + at)) {
                Ok(()) => self.connections[at] = Some(Connection::new(stream, now)),
                Err(error) => log::warn!("MetaServer cannot register a connection: {error}"),
            }
        }
    }

    /// When to call [`MetaServer::tick`] and [`MetaServer::flush`] if nothing gets ready before.
    pub fn wake_at(&self) -> Option<Instant> {
        let is_full = self.connections.iter().all(Option::is_some);
        let listener = self.listener.as_ref().and_then(Listener::wake_at).filter(|_| !is_full);
        self.connections.iter().flatten().map(Connection::wake_at).chain(listener).min()
    }

    /// The address of the port, once it listens.
    pub fn bound(&self) -> Option<SocketAddr> {
        self.listener.as_ref().and_then(Listener::bound)
    }
}

fn opened(id: ClientId, call: Call) -> Event {
    Event::MetaServerOpened(id, Box::new(call))
}

fn closed(id: ClientId) -> Event {
    Event::MetaServerClosed(id)
}

/// The pieces of a connection's answer.
type Pieces = std::collections::VecDeque<Piece>;
