//! CloudStream: requests of people for logs, commands and usage, through the tunnels that the nodes
//! have opened (edgestream.md, sections 4, 5 and 15).
//!
//! ```text
//!  client ──HTTP──▶ http_server ──▶ Request ──EXEC, ATTACH, DATA, REMOVE──▶ Tunnel ──▶ node
//!    ▲                                 ▲                                       │
//!    └──── the answer, as it comes ────┴────────── DATA, REMOVE ◀──────────────┘
//! ```
//!
//! Each request is a connection to the node's kubelet, of which the bytes come back unchanged: with
//! its status, from EdgeCore as well. So no answer is read here. The core says which tunnel it is.
//!
//! Bytes, requests and time have bounds. A client that is slow holds up the tunnel of its node, and
//! only for seconds; a node that is slow holds up its own clients.
//!
//! **If we crash here** clients and nodes see the end of their connections; the nodes dial again.

mod request;
mod route;
mod tunnel;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::Write;

use mio::event::Event as Ready;
use mio::{Registry, Token};

use super::client::{Asked, Client};
use super::listeners::Upgraded;
use crate::controller::event::{Event, Tunnel as Name};
use crate::controller::time::Instant;
use crate::limits::{CLOUD_STREAM_PIECE_BYTES, CLOUD_STREAMS_MAX, EDGE_CONNECTIONS_PER_TURN};
use crate::model::stream::{Refusal, RefusalKind};
use crate::wire::http1::call::Call;
use crate::wire::tunnel::Kind;
use request::{Next, Refusals, Request};
use route::Route;
pub(super) use route::{Target, is_stream};
use tunnel::{Tunnel, Word};

/// All tunnels and all requests.
#[derive(Debug)]
pub struct Streams {
    /// Request `n` has the token `n` after it, tunnel `n` those after the requests.
    first: Token,
    tunnels: Vec<Option<Tunnel>>,
    free: Vec<usize>,
    /// The slot of each tunnel.
    names: BTreeMap<Name, usize>,
    /// Tunnels with something to read; each is in it once.
    busy: VecDeque<usize>,
    /// Tunnels that are not read until a client has taken what waits for it.
    held: BTreeSet<usize>,
    /// Tunnels with something to write.
    dirty: BTreeSet<usize>,
    due: BTreeSet<(Instant, usize)>,
    requests: Vec<Option<Box<Request>>>,
    /// The slot of each request that a node has.
    by_id: BTreeMap<u64, usize>,
    /// Never used twice, in any tunnel.
    last_id: u64,
    /// The request whose turn is first.
    next_turn: usize,
}

impl Streams {
    pub fn new(first: Token) -> Self {
        let mut requests = Vec::new();
        requests.resize_with(CLOUD_STREAMS_MAX, || None);
        Self {
            first,
            tunnels: Vec::new(),
            free: Vec::new(),
            names: BTreeMap::new(),
            busy: VecDeque::new(),
            held: BTreeSet::new(),
            dirty: BTreeSet::new(),
            due: BTreeSet::new(),
            requests,
            by_id: BTreeMap::new(),
            last_id: 0,
            next_turn: 0,
        }
    }

    pub fn ready(&mut self, ready: &Ready) {
        let at = ready.token().0 - self.first.0;
        if let Some(slot) = at.checked_sub(CLOUD_STREAMS_MAX) {
            self.rouse(slot);
        } else if let Some(request) = &mut self.requests[at] {
            request.ready(ready);
        }
    }

    /// The number of tunnels.
    pub fn tunnels(&self) -> usize {
        self.names.len()
    }

    /// The number of requests.
    pub fn requests(&self) -> usize {
        self.requests.iter().flatten().count()
    }

    // ---- tunnels ----

    /// Opens the tunnel of a node.
    pub(in crate::io) fn open_tunnel(
        &mut self,
        name: Name,
        node: Box<str>,
        upgraded: Upgraded,
        now: Instant,
        registry: &Registry,
    ) -> std::io::Result<()> {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.tunnels.push(None);
            self.tunnels.len() - 1
        });
        let mut upgraded = upgraded;
        let token = Token(self.first.0 + CLOUD_STREAMS_MAX + slot);
        if let Err(error) = upgraded.tls.register(registry, token) {
            self.free.push(slot);
            return Err(error);
        }
        self.tunnels[slot] = Some(Tunnel::new(name, node, upgraded, now));
        self.names.insert(name, slot);
        self.dirty.insert(slot);
        self.rouse(slot);
        self.settle(slot);
        Ok(())
    }

    /// Ends a tunnel without an event, and all its requests.
    pub fn close_tunnel(&mut self, name: Name, why: &str, now: Instant) {
        if let Some(slot) = self.names.get(&name).copied() {
            self.end_tunnel(slot, why, now);
        }
    }

    /// Ends all tunnels.
    pub fn shut(&mut self) {
        for tunnel in self.tunnels.iter_mut().flatten() {
            tunnel.send_close();
        }
    }

    fn end_tunnel(&mut self, slot: usize, why: &str, now: Instant) -> Option<Name> {
        let mut tunnel = self.tunnels[slot].take()?;
        tunnel.send_close();
        self.names.remove(&tunnel.name);
        self.held.remove(&slot);
        self.dirty.remove(&slot);
        if let Some(due) = tunnel.due {
            self.due.remove(&(due, slot));
        }
        self.free.push(slot);
        let text = format!("the stream tunnel of node {} ended: {why}", tunnel.node);
        for at in 0..self.requests.len() {
            let Some(request) = &mut self.requests[at] else { continue };
            if request.tunnel == Some(tunnel.name) && request.removed(&text, now) == Next::End {
                self.end_request(at);
            }
        }
        Some(tunnel.name)
    }

    fn rouse(&mut self, slot: usize) {
        if let Some(Some(tunnel)) = self.tunnels.get_mut(slot)
            && !std::mem::replace(&mut tunnel.queued, true)
        {
            self.busy.push_back(slot);
        }
    }

    /// Stores when a tunnel is due. A later time than the stored one is found out when that comes.
    fn settle(&mut self, slot: usize) {
        let Some(tunnel) = &mut self.tunnels[slot] else { return };
        let at = tunnel.wake_at();
        if tunnel.due.is_some_and(|due| due <= at) {
            return;
        }
        if let Some(before) = tunnel.due.replace(at) {
            self.due.remove(&(before, slot));
        }
        self.due.insert((at, slot));
    }

    // ---- requests ----

    /// Takes a connection over, one of the controller's own API if its request [`is_stream`].
    /// `find`: the node that is meant, and its tunnel.
    pub(in crate::io) fn serve(
        &mut self,
        asked: Asked,
        find: &Find<'_>,
        now: Instant,
        registry: &Registry,
    ) {
        let Asked { mut client, call, rest } = asked;
        let Some(at) = self.requests.iter().position(Option::is_none) else {
            let text = format!("{CLOUD_STREAMS_MAX} requests are under way: try again");
            let refusal = Refusal::new(RefusalKind::TooMany, text);
            // It fits into the socket's buffer.
            let _ = client.write(&Refusals::of(&client, &call.path).answer(&refusal));
            return;
        };
        if let Err(error) = client.register(registry, Token(self.first.0 + at)) {
            log::warn!("cannot register a connection: {error}");
            return;
        }
        let refusals = Refusals::of(&client, &call.path);
        let route = match &client {
            Client::Local(_) => route::of_own_api(&call),
            Client::ApiServer(_) => route::of_api_server(&call),
        };
        let begun = route.and_then(|route| self.begin(route, &call, &rest, find));
        let request = match begun {
            Ok(begun) => begun.request(client, refusals, now),
            Err(refusal) => Request::refused(&refusal, client, refusals, now),
        };
        if request.tunnel.is_some() {
            self.by_id.insert(request.id, at);
        }
        self.requests[at] = Some(Box::new(request));
    }

    /// Sends a request to its node.
    fn begin(
        &mut self,
        mut route: Route,
        call: &Call,
        rest: &[u8],
        find: &Find<'_>,
    ) -> Result<Begun, Refusal> {
        let (node, name) = find(&route.target)?;
        let unavailable = |why: &str| {
            let text = format!("node {node} {why}");
            Refusal::new(RefusalKind::Unavailable, text)
        };
        let slot = self.names.get(&name).copied();
        let tunnel = slot.and_then(|slot| self.tunnels[slot].as_mut());
        let (Some(slot), Some(tunnel)) = (slot, tunnel) else {
            return Err(unavailable("has a stream tunnel that has just ended: try again"));
        };
        if tunnel.room() == 0 {
            return Err(unavailable("does not read what it is sent: try again"));
        }
        self.last_id += 1;
        let id = self.last_id;
        log::info!("stream={id} node={node} {} {}", call.method, call.path);
        route.connect.id = id;
        tunnel.send(id, route.kind, &route.connect.encode(route.kind));
        if route.is_relayed {
            for piece in rest.chunks(CLOUD_STREAM_PIECE_BYTES) {
                tunnel.send(id, Kind::Data, piece);
            }
        }
        self.dirty.insert(slot);
        let (is_relayed, is_patient) = (route.is_relayed, route.is_patient);
        Ok(Begun { name, id, is_relayed, is_patient })
    }

    fn end_request(&mut self, at: usize) {
        if let Some(request) = self.requests[at].take() {
            self.by_id.remove(&request.id);
        }
    }

    // ---- the loop ----

    /// Reads the tunnels and moves bytes, as far as the sockets and the bounds of a turn allow.
    pub fn tick(&mut self, now: Instant, events: &mut Vec<Event>) {
        self.check_due(now, events);
        self.read_tunnels(now, events);
        self.turn_requests(now);
        self.release_held();
        self.write_tunnels(now, events);
    }

    fn check_due(&mut self, now: Instant, events: &mut Vec<Event>) {
        while let Some((at, slot)) = self.due.first().filter(|(at, _)| *at <= now).copied() {
            self.due.remove(&(at, slot));
            let Some(tunnel) = &mut self.tunnels[slot] else { continue };
            tunnel.due = None;
            if self.held.contains(&slot) {
                tunnel.excuse(now);
            }
            match tunnel.over(now) {
                Some(why) => self.fail(slot, why, now, events),
                None => self.settle(slot),
            }
        }
    }

    /// A tunnel has ended by itself.
    fn fail(&mut self, slot: usize, why: String, now: Instant, events: &mut Vec<Event>) {
        if let Some(name) = self.end_tunnel(slot, &why, now) {
            events.push(Event::TunnelDown(name, why));
        }
    }

    fn read_tunnels(&mut self, now: Instant, events: &mut Vec<Event>) {
        for _ in 0..self.busy.len().min(EDGE_CONNECTIONS_PER_TURN) {
            let Some(slot) = self.busy.pop_front() else { break };
            let Some(name) = self.tunnels[slot].as_ref().map(|tunnel| tunnel.name) else {
                continue;
            };
            let is_held = self.is_held(name);
            let Some(tunnel) = &mut self.tunnels[slot] else { continue };
            tunnel.queued = false;
            self.dirty.insert(slot);
            if is_held {
                self.held.insert(slot);
                continue;
            }
            let mut words = Vec::new();
            let read = tunnel.read(now, &mut words);
            for word in words {
                self.obey(name, word, now);
            }
            match read {
                Ok(true) => self.rouse(slot),
                Ok(false) => {}
                Err(end) => self.fail(slot, tunnel::reason(end), now, events),
            }
        }
    }

    /// Whether a client of this tunnel has to take something first.
    fn is_held(&self, name: Name) -> bool {
        let mut requests = self.requests.iter().flatten();
        !self.by_id.is_empty()
            && requests.any(|request| request.tunnel == Some(name) && request.is_full())
    }

    /// What a node says of a request that it does not have is ignored: its end and ours may cross.
    fn obey(&mut self, name: Name, word: Word, now: Instant) {
        let (Word::Data(id, _) | Word::Remove(id)) = &word;
        let Some(at) = self.by_id.get(id).copied() else { return };
        let Some(request) = self.requests[at].as_mut().filter(|it| it.tunnel == Some(name)) else {
            return;
        };
        match word {
            Word::Data(_, bytes) => request.data(&bytes),
            Word::Remove(_) => {
                if request.removed("the node ended the request without an answer", now) == Next::End
                {
                    self.end_request(at);
                }
            }
        }
    }

    fn turn_requests(&mut self, now: Instant) {
        let mut buffer = [0; CLOUD_STREAM_PIECE_BYTES];
        self.next_turn = (self.next_turn + 1) % CLOUD_STREAMS_MAX;
        for turn in 0..CLOUD_STREAMS_MAX {
            let at = (self.next_turn + turn) % CLOUD_STREAMS_MAX;
            let Some(request) = &mut self.requests[at] else { continue };
            let slot = request.tunnel.and_then(|name| self.names.get(&name)).copied();
            let mut tunnel = slot.and_then(|slot| self.tunnels[slot].as_mut());
            let (id, room) = (request.id, tunnel.as_ref().map_or(0, |tunnel| tunnel.room()));
            let mut send = |kind, bytes: &[u8]| {
                if let (Some(tunnel), Some(slot)) = (&mut tunnel, slot) {
                    tunnel.send(id, kind, bytes);
                    self.dirty.insert(slot);
                }
            };
            match request.turn(now, room, &mut buffer, &mut |bytes| send(Kind::Data, bytes)) {
                Next::Wait => {}
                Next::Remove => send(Kind::Remove, b""),
                Next::End => self.end_request(at),
            }
        }
    }

    fn release_held(&mut self) {
        let held: Vec<usize> = self.held.iter().copied().collect();
        for slot in held {
            let name = self.tunnels[slot].as_ref().map(|tunnel| tunnel.name);
            if name.is_none_or(|name| !self.is_held(name)) {
                self.held.remove(&slot);
                self.rouse(slot);
            }
        }
    }

    fn write_tunnels(&mut self, now: Instant, events: &mut Vec<Event>) {
        for slot in std::mem::take(&mut self.dirty) {
            let Some(tunnel) = &mut self.tunnels[slot] else { continue };
            match tunnel.write(now) {
                Ok(()) => self.settle(slot),
                Err(end) => self.fail(slot, tunnel::reason(end), now, events),
            }
        }
    }

    /// When to call [`Streams::tick`] if nothing gets ready before.
    pub fn wake_at(&self) -> Option<Instant> {
        if !self.busy.is_empty() || !self.dirty.is_empty() {
            return Some(Instant(0));
        }
        let requests = self.requests.iter().flatten().filter_map(|request| {
            let slot = request.tunnel.and_then(|name| self.names.get(&name));
            let tunnel = slot.and_then(|slot| self.tunnels[*slot].as_ref());
            request.wake_at(tunnel.map_or(0, Tunnel::room))
        });
        self.due.first().map(|(at, _)| *at).into_iter().chain(requests).min()
    }
}

/// The node that is meant, and its tunnel.
type Find<'a> = dyn Fn(&Target) -> Result<(Box<str>, Name), Refusal> + 'a;

/// A request that was sent to its node.
struct Begun {
    name: Name,
    id: u64,
    is_relayed: bool,
    is_patient: bool,
}

impl Begun {
    fn request(self, stream: Client, refusals: Refusals, now: Instant) -> Request {
        let kind = (self.is_relayed, self.is_patient);
        Request::new((self.name, self.id), stream, kind, refusals, now)
    }
}

#[cfg(test)]
mod tests;
