//! Requests that come through the tunnel: they begin, get their bytes, take turns to send, and end
//! with one message (edgestream.md, section 14).

use std::path::PathBuf;

use mio::Registry;

use super::session::{Client, Opening, Session};
use super::tunnel::{Order, Tunnel};
use super::{Streams, tunnel_token};
use crate::agent::event::Event;
use crate::agent::time::{Instant, Now};
use crate::limits::{STREAMS_MAX, TUNNEL_PIECE_BYTES};
use crate::model::link::Session as Name;
use crate::model::settings::CloudLink;
use crate::model::stream::{Refusal, RefusalKind, StreamId};
use crate::wire::http1::{Method, Response, is_of_upgrade};
use crate::wire::kubelet::{self, answer};
use crate::wire::tunnel::{Connect, Kind};

impl Streams {
    /// With a tunnel to this cloud. `program`: see [`crate::io::job::Jobs::new`].
    #[must_use]
    pub fn with_tunnel(self, link: Option<CloudLink>, program: PathBuf) -> Self {
        let tunnel = Tunnel::new(link, program, tunnel_token(self.first));
        Self { tunnel, ..self }
    }

    /// Opens the tunnel; the one before is over, and with it all its requests.
    pub fn dial_tunnel(
        &mut self,
        name: Name,
        ip: String,
        deadline: Instant,
        now: Now,
        registry: &Registry,
        events: &mut Vec<Event>,
    ) {
        self.tunnel.dial(name, ip, deadline, now, registry, events);
    }

    pub fn ping_tunnel(&mut self) {
        self.tunnel.ping();
    }

    pub fn hang_up_tunnel(&mut self) {
        self.tunnel.hang_up();
    }

    /// A child of the process has ended, perhaps one of ours.
    pub fn reap(&mut self) {
        self.tunnel.reap();
    }

    pub(super) fn read_tunnel(
        &mut self,
        now: Instant,
        registry: &Registry,
        api: &dyn Fn(&str) -> Response,
        events: &mut Vec<Event>,
    ) {
        for order in self.tunnel.read(now, registry, self.is_blocked(), events) {
            match order {
                Order::Open { id, kind, connect } => {
                    // The cloud has forgotten an older request of this number.
                    self.end_request(id, registry, events);
                    self.begin_request(id, kind, &connect, now, api, events);
                }
                Order::Bad { id } => self.tunnel.send(id, Kind::Remove, b"", events),
                Order::Data { id, bytes } => {
                    if let Some(at) = self.slot_of(id)
                        && let Some(session) = &mut self.slots[at]
                    {
                        session.take_input(&bytes);
                    }
                }
                // CloudCore repeats it until it is answered; of an unknown one it was.
                Order::Remove { id } => {
                    if self.end_request(id, registry, events) {
                        self.tunnel.send(id, Kind::Remove, b"", events);
                    }
                }
            }
        }
    }

    /// Too much of a request waits for its runtime.
    fn is_blocked(&self) -> bool {
        self.slots.iter().flatten().any(|session| session.blocks_tunnel())
    }

    fn slot_of(&self, id: u64) -> Option<usize> {
        self.slots.iter().position(|slot| slot.as_ref().and_then(|it| it.tunnel_id()) == Some(id))
    }

    /// Returns whether it was there.
    fn end_request(&mut self, id: u64, registry: &Registry, events: &mut Vec<Event>) -> bool {
        let Some(at) = self.slot_of(id) else { return false };
        self.end_slot(at, registry, events);
        true
    }

    fn end_slot(&mut self, at: usize, registry: &Registry, events: &mut Vec<Event>) {
        if let Some(mut session) = self.slots[at].take() {
            session.close(registry);
            events.push(Event::StreamClosed(session.id));
        }
    }

    fn begin_request(
        &mut self,
        id: u64,
        kind: Kind,
        connect: &Connect,
        now: Instant,
        api: &dyn Fn(&str) -> Response,
        events: &mut Vec<Event>,
    ) {
        let has_head = matches!(kind, Kind::Exec | Kind::Attach);
        let Some(at) = self.slots.iter().position(Option::is_none) else {
            let text = format!("{STREAMS_MAX} requests are under way: try again");
            let refusal = Refusal::new(RefusalKind::TooMany, text);
            let answer = if has_head {
                answer::refusal_of_upgrade(&refusal)
            } else {
                answer::line(&refusal)
            };
            self.tunnel.send(id, Kind::Data, &answer, events);
            self.tunnel.send(id, Kind::Remove, b"", events);
            return;
        };
        let client = Client::Tunnel { id, has_head };
        match kubelet::parse(&connect.method, &connect.raw_path, &connect.query) {
            Some(Ok(asked)) => {
                let headers = connect.headers.iter().filter(|(name, _)| is_of_upgrade(name));
                let opening = Opening {
                    request: asked.request,
                    form: asked.form,
                    method: connect.method.clone(),
                    headers: headers.cloned().collect(),
                    input: Vec::new(),
                };
                self.open(at, opening, client, now, events);
            }
            // The core has no part in these; but they wait for room in the tunnel as all others.
            Some(Err(refusal)) => self.add(at, client, now).refuse(&refusal, now),
            None => {
                let response = api(&connect.raw_path);
                let whole = if has_head { response.bytes(Method::Get) } else { response.body };
                self.add(at, client, now).answer(&whole, now);
            }
        }
    }

    /// Adds a request that is answered here.
    fn add(&mut self, at: usize, client: Client, now: Instant) -> &mut Session {
        self.last_id += 1;
        let session = Session::new(StreamId(self.last_id), client, now);
        self.slots[at].insert(Box::new(session))
    }

    /// Lets the requests take turns, as long as the tunnel has room.
    pub(super) fn write_tunnel(
        &mut self,
        now: Instant,
        registry: &Registry,
        events: &mut Vec<Event>,
    ) {
        let mut quiet = 0;
        while quiet < STREAMS_MAX && self.tunnel.room() > 0 {
            let at = self.next_turn;
            self.next_turn = (at + 1) % STREAMS_MAX;
            quiet += 1;
            let room = self.tunnel.room().min(TUNNEL_PIECE_BYTES);
            let Some(session) = &mut self.slots[at] else { continue };
            let Some(id) = session.tunnel_id() else { continue };
            let tunnel = &mut self.tunnel;
            session.take_piece(room, now, &mut |piece| {
                tunnel.send(id, Kind::Data, piece, events);
                quiet = 0;
            });
            if session.is_over() {
                tunnel.send(id, Kind::Remove, b"", events);
                self.end_slot(at, registry, events);
            }
        }
        self.tunnel.write(now, events);
        let is_up = self.tunnel.is_up();
        let is_blocked_long = self.tunnel.is_blocked_long(now);
        for at in 0..STREAMS_MAX {
            let Some(session) = &self.slots[at] else { continue };
            let Some(id) = session.tunnel_id() else { continue };
            if is_blocked_long && session.blocks_tunnel() {
                log::warn!("a request of the cloud sends more than its runtime takes: it ends");
                self.tunnel.send(id, Kind::Remove, b"", events);
                self.end_slot(at, registry, events);
            } else if !is_up {
                self.end_slot(at, registry, events);
            }
        }
    }

    pub(super) fn tunnel_wake_at(&self) -> Option<Instant> {
        let mut sessions = self.slots.iter().flatten();
        let has_piece = sessions.any(|it| it.tunnel_id().is_some() && it.has_piece());
        if has_piece && self.tunnel.room() > 0 {
            return Some(Instant(0));
        }
        self.tunnel.wake_at(self.is_blocked())
    }
}
