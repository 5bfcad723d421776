//! Requests that come through the tunnel: they begin, get their bytes, take turns to send, and end
//! with one message (edgestream.md, section 14).

use std::path::PathBuf;

use mio::Registry;

use super::session::{Client, Opening, Session};
use super::tunnel::{Order, Tunnel};
use super::{Streams, tunnel_token};
use crate::agent::event::Event;
use crate::agent::time::{Instant, Now, sooner};
use crate::limits::{
    STREAMS_MAX, TUNNEL_ANSWERS_BYTES_MAX, TUNNEL_PIECE_BYTES, TUNNEL_SILENT_MS, TUNNEL_STREAMS_MAX,
};
use crate::model::link::Session as Name;
use crate::model::settings::CloudLink;
use crate::model::stream::{Refusal, RefusalKind, StreamId};
use crate::wire::http1::{Response, is_of_upgrade};
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
        events: &mut Vec<Event>,
    ) {
        for order in self.tunnel.read(now, registry, self.is_blocked(), events) {
            match order {
                Order::Open { id, kind, connect } => {
                    // The cloud has forgotten an older request of this number.
                    self.end_request(id, registry, events);
                    self.begin_request(id, kind, &connect, now, registry, events);
                }
                Order::Bad { id } => self.tunnel.send(id, Kind::Remove, b"", events),
                Order::Data { id, bytes } => {
                    if let Some(at) = self.slot_of(id)
                        && let Some(session) = &mut self.slots[at]
                    {
                        session.take_input(&bytes, now);
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
        registry: &Registry,
        events: &mut Vec<Event>,
    ) {
        let has_head = matches!(kind, Kind::Exec | Kind::Attach);
        let Some(at) = self.free_slot(now, registry, events) else {
            let text = format!("{TUNNEL_STREAMS_MAX} requests are under way: try again");
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
            Some(Err(refusal)) => {
                let mut session = self.made(client, now);
                session.refuse(&refusal, now);
                self.slots[at] = Some(Box::new(session));
            }
            None => {
                let session = self.made(client, now).of_path(&connect.raw_path);
                self.slots[at] = Some(Box::new(session));
            }
        }
    }

    /// A request that is answered here.
    fn made(&mut self, client: Client, now: Instant) -> Session {
        self.last_id += 1;
        Session::new(StreamId(self.last_id), client, now)
    }

    /// A place for a request of the tunnel; if all are taken, that of the one for which the cloud
    /// has sent nothing for longest.
    fn free_slot(
        &mut self,
        now: Instant,
        registry: &Registry,
        events: &mut Vec<Event>,
    ) -> Option<usize> {
        let is_of_tunnel = |session: &Session| session.tunnel_id().is_some();
        let count = self.slots.iter().flatten().filter(|it| is_of_tunnel(it)).count();
        if count < TUNNEL_STREAMS_MAX {
            return self.slots.iter().position(Option::is_none);
        }
        let slots = self.slots.iter().enumerate();
        let of_tunnel = slots.filter_map(|(at, slot)| Some((at, slot.as_ref()?)));
        let (at, oldest) = of_tunnel
            .filter(|(_, session)| is_of_tunnel(session))
            .min_by_key(|(_, session)| session.heard_at())?;
        if oldest.heard_at().plus_ms(TUNNEL_SILENT_MS) > now {
            return None;
        }
        if let Some(id) = oldest.tunnel_id() {
            log::info!(
                "a request of the cloud ends after a long silence: another one needs its place"
            );
            self.tunnel.send(id, Kind::Remove, b"", events);
        }
        self.end_slot(at, registry, events);
        Some(at)
    }

    /// Answers one path of the HTTP API, the oldest, if there is room for it.
    pub(super) fn answer_path(&mut self, now: Instant, api: &dyn Fn(&str) -> Response) {
        if !self.has_room_for_answers() {
            return;
        }
        let waiting = self.slots.iter_mut().flatten().filter(|session| session.path().is_some());
        let Some(session) = waiting.min_by_key(|session| session.id) else { return };
        if let Some(response) = session.path().map(api) {
            session.answer_path(response, now);
        }
    }

    fn has_room_for_answers(&self) -> bool {
        let of_tunnel = self.slots.iter().flatten().filter(|it| it.tunnel_id().is_some());
        of_tunnel.map(|session| session.unsent_bytes()).sum::<usize>() < TUNNEL_ANSWERS_BYTES_MAX
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
        for at in 0..STREAMS_MAX {
            let Some(session) = &mut self.slots[at] else { continue };
            let Some(id) = session.tunnel_id() else { continue };
            if session.is_slow(now) {
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
        let mut sessions = self.slots.iter().flatten();
        if sessions.any(|it| it.path().is_some()) && self.has_room_for_answers() {
            return Some(Instant(0));
        }
        let slow_at = self.slots.iter().flatten().filter_map(|session| session.slow_at()).min();
        sooner(slow_at, self.tunnel.wake_at(self.is_blocked()))
    }
}
