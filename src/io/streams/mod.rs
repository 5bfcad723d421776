//! Requests of people: logs, exec, attach, port forwarding, usage. The core says what is meant and
//! where it is; here are the bytes.
//!
//! ```text
//!  client ──HTTP──▶ io/server ──▶ Session ──StreamOpened──▶ core ──Stream──▶ Session
//!    ▲                              │  ▲                                        │
//!    └──────────────────────────────┘  └── log files, or the runtime's server ──┘
//! ```
//!
//! Pods must never wait for this: the number of sessions, the bytes that wait in each, and the work
//! of each in one turn are bounded, and while pods start or end all of it gets a small share of the
//! time. A client that is slow stops its own session only.
//!
//! **If we crash here** the clients see the end of their connections. Commands that were started
//! continue: the runtime does not end them either.

mod logs;
#[cfg(feature = "cloud")]
pub(in crate::io) mod pace;
pub(in crate::io) mod pipe;
mod relay;
mod session;
mod share;
#[cfg(feature = "cloud")]
mod through;
#[cfg(feature = "cloud")]
mod tunnel;
mod usage;
mod watch;

use std::path::PathBuf;

use mio::event::Event as Ready;
use mio::{Registry, Token};

use super::clock;
use super::transport::Transport;
use crate::agent::event::Event;
#[cfg(feature = "cloud")]
use crate::agent::time::sooner;
use crate::agent::time::{Instant, Now};
use crate::limits::{LOG_TURN_BYTES, STREAMS_MAX};
use crate::model::housekeeping::Measures;
use crate::model::stream::{LogFile, Refusal, RefusalKind, StreamAnswer, StreamId};
use crate::wire::http1::Response;
#[cfg(feature = "metaserver")]
use crate::wire::kubelet::messages;
use crate::wire::kubelet::{answer, usage as shown};
#[cfg(feature = "cloud")]
use crate::wire::tunnel::Kind;
use logs::LogReader;
pub use session::Opening;
use session::{Client, Http, Next, Session};
use share::Share;
use watch::Watch;

/// A connection of the HTTP API whose request has come. It is not registered any more.
#[derive(Debug)]
pub struct Handover {
    pub stream: Transport,
    pub opening: Opening,
}

/// All sessions.
#[derive(Debug)]
pub struct Streams {
    /// The token of the watch. Session `n` has the two tokens from `1 + 2n` after it: its client's,
    /// and its connection's to the runtime.
    first: Token,
    /// `<pod logs>`
    pod_logs: PathBuf,
    node: String,
    slots: Vec<Option<Box<Session>>>,
    last_id: u64,
    watch: Watch,
    #[cfg(feature = "cloud")]
    tunnel: tunnel::Tunnel,
    /// The slot whose turn it is to send through the tunnel.
    #[cfg(feature = "cloud")]
    next_turn: usize,
    share: Share,
    rooms: usage::Rooms,
    /// For the bytes that are read; allocated while there are sessions.
    buffer: Box<[u8]>,
}

impl Streams {
    /// Without a tunnel to a cloud.
    pub fn new(first: Token, pod_logs: PathBuf, node: String) -> Self {
        let mut slots = Vec::new();
        slots.resize_with(STREAMS_MAX, || None);
        Self {
            first,
            pod_logs,
            node,
            slots,
            last_id: 0,
            watch: Watch::new(first),
            #[cfg(feature = "cloud")]
            tunnel: tunnel::Tunnel::new(None, PathBuf::new(), tunnel_token(first)),
            #[cfg(feature = "cloud")]
            next_turn: 0,
            share: Share::default(),
            rooms: usage::Rooms::default(),
            buffer: Box::default(),
        }
    }

    /// Whether the token belongs to the watch, a session or the tunnel.
    pub fn owns(&self, token: Token) -> bool {
        (self.first.0..=tunnel_token(self.first).0 + 1).contains(&token.0)
    }

    pub fn ready(&mut self, ready: &Ready) {
        #[cfg(feature = "cloud")]
        if self.tunnel.owns(ready.token()) {
            self.tunnel.ready(ready.token());
            return;
        }
        let Some(at) = (ready.token().0 - self.first.0).checked_sub(1) else {
            self.watch.ready();
            return;
        };
        let Some(Some(session)) = self.slots.get_mut(at / 2) else { return };
        if at.is_multiple_of(2) {
            session.client_ready(ready);
        } else {
            session.source_ready(ready);
        }
    }

    /// Takes a connection over.
    pub fn serve(
        &mut self,
        handover: Handover,
        now: Instant,
        registry: &Registry,
        events: &mut Vec<Event>,
    ) {
        let Handover { mut stream, opening } = handover;
        let Some(at) = self.slots.iter().position(Option::is_none) else {
            let text = format!("{STREAMS_MAX} requests are under way: try again");
            let refusal = Refusal::new(RefusalKind::TooMany, text);
            // It fits into the socket's buffer.
            let _ = std::io::Write::write(&mut stream, &session::refusal(opening.form, &refusal));
            let _ = stream.shutdown_write();
            return;
        };
        if let Err(error) = stream.register(registry, self.client_token(at)) {
            log::warn!("cannot register a connection: {error}");
            return;
        }
        self.open(at, opening, Client::Http(Http::new(stream)), now, events);
    }

    fn open(
        &mut self,
        at: usize,
        mut opening: Opening,
        client: Client,
        now: Instant,
        events: &mut Vec<Event>,
    ) {
        self.last_id += 1;
        let id = StreamId(self.last_id);
        let session = Session::new(id, client, now).of(&mut opening);
        self.slots[at] = Some(Box::new(session));
        events.push(Event::StreamOpened(id, Box::new(opening.request)));
    }

    /// A child of the process has ended: none is ours.
    #[cfg(not(feature = "cloud"))]
    pub fn reap(&mut self) {}

    fn client_token(&self, at: usize) -> Token {
        Token(self.first.0 + 1 + 2 * at)
    }

    /// Does what the core has answered; nothing if the session has ended.
    pub fn answer(&mut self, id: StreamId, answer: StreamAnswer, now: Now, registry: &Registry) {
        let is = |slot: &Option<Box<Session>>| slot.as_ref().is_some_and(|it| it.id == id);
        let Some(at) = self.slots.iter().position(is) else { return };
        let source = Token(self.client_token(at).0 + 1);
        let Some(session) = &mut self.slots[at] else { return };
        // It may have been refused meanwhile.
        if !session.is_asked() && answer != StreamAnswer::LogsEnd {
            return;
        }
        match answer {
            StreamAnswer::Refused(refusal) => session.refuse(&refusal, now.boot),
            StreamAnswer::Output(text) => {
                session.complete(answer::TEXT, text.as_bytes(), now.boot);
            }
            StreamAnswer::Usage(all) => {
                let node = usage::of_node(&self.node, now, &self.rooms);
                let (kind, body) = shown::render(session.form, &node, &all);
                session.complete(kind, &body, now.boot);
            }
            #[cfg(feature = "metaserver")]
            StreamAnswer::Command(done) => {
                session.answer(&messages::of_command(&done), now.boot);
            }
            // Only clients of MetaServer ask for it.
            #[cfg(not(feature = "metaserver"))]
            StreamAnswer::Command(_) => {}
            StreamAnswer::Relay(url) => {
                if let Err(why) = session.relay(&url, registry, source, now.boot) {
                    session.refuse(&Refusal::new(RefusalKind::Internal, why.to_string()), now.boot);
                }
            }
            StreamAnswer::Logs { file, running } => {
                self.show(at, &file, running, now, registry);
            }
            StreamAnswer::LogsEnd => session.log_ends(),
        }
    }

    fn show(&mut self, at: usize, file: &LogFile, runs: bool, now: Now, registry: &Registry) {
        let Some(session) = &mut self.slots[at] else { return };
        let now_s = now.wall.map_or(0, |wall| wall.0.div_euclid(1_000));
        match LogReader::open(&self.pod_logs, file, &session.bounded_options(), runs, now_s) {
            Ok(reader) => {
                if session.options().follow && runs {
                    self.watch.add(reader.dir(), now.boot, registry);
                }
                session.show(reader, now.boot);
            }
            Err(error) => {
                let refusal = Refusal::new(RefusalKind::BadRequest, error.to_string());
                session.refuse(&refusal, now.boot);
            }
        }
    }

    /// The room on file systems was measured.
    pub fn measured(&mut self, measures: &Measures) {
        let Measures { node_fs, image_fs, .. } = *measures;
        // The file system of images is not measured each time.
        let image_fs = image_fs.or(self.rooms.image_fs);
        self.rooms = usage::Rooms { node_fs, image_fs };
    }

    /// Whether objects of pods are being made or removed: requests of people slow down meanwhile.
    pub fn give_way(&mut self, gives_way: bool) {
        self.share.limit(gives_way);
    }

    /// Moves bytes, as far as the sockets and the bounds of a turn allow. `api` answers a path of
    /// the HTTP API that came through the tunnel.
    pub fn tick(
        &mut self,
        now: Now,
        registry: &Registry,
        api: &dyn Fn(&str) -> Response,
        events: &mut Vec<Event>,
    ) {
        #[cfg(feature = "cloud")]
        self.read_tunnel(now.boot, registry, events);
        #[cfg(feature = "cloud")]
        self.answer_path(now.boot, api);
        #[cfg(not(feature = "cloud"))]
        let _ = api;
        if self.share.is_ours(now.boot) {
            let began = self.share.is_limited().then(clock::precise);
            self.move_bytes(now.boot, registry, events);
            if let Some(began) = began {
                let took = clock::precise().saturating_sub(began);
                self.share.took(now.boot, took.as_micros() as u64);
            }
        }
        #[cfg(feature = "cloud")]
        self.write_tunnel(now.boot, registry, events);
    }

    fn move_bytes(&mut self, now: Instant, registry: &Registry, events: &mut Vec<Event>) {
        if self.slots.iter().all(Option::is_none) {
            // Requests of the tunnel also end outside of this function.
            self.idle();
            return;
        }
        let has_grown = self.watch.tick(now, registry);
        if self.buffer.is_empty() {
            self.buffer = vec![0; LOG_TURN_BYTES].into();
        }
        let mut follows = false;
        for slot in &mut self.slots {
            let Some(session) = slot else { continue };
            if has_grown {
                session.look();
            }
            if session.turn(now, &mut self.buffer) == Next::End {
                session.close(registry);
                events.push(Event::StreamClosed(session.id));
                #[cfg(feature = "cloud")]
                if let Some(id) = session.tunnel_id() {
                    self.tunnel.send(id, Kind::Remove, b"", events);
                }
                *slot = None;
            } else {
                follows |= session.follows();
            }
        }
        if !follows {
            self.watch.stop();
        }
        if self.slots.iter().all(Option::is_none) {
            self.idle();
        }
    }

    /// There is no session: nothing is watched, and no memory kept.
    fn idle(&mut self) {
        self.watch.stop();
        self.buffer = Box::default();
    }

    /// When to call [`Streams::tick`] if nothing gets ready before.
    pub fn wake_at(&self) -> Option<Instant> {
        let sessions = self.slots.iter().flatten().map(|session| session.wake_at());
        let at = sessions.chain(self.watch.wake_at()).min().filter(|at| *at < Instant(u64::MAX));
        let at = at.map(|at| self.share.delay(at));
        #[cfg(feature = "cloud")]
        let at = sooner(at, self.tunnel_wake_at());
        at
    }
}

/// After those of the sessions.
fn tunnel_token(first: Token) -> Token {
    Token(first.0 + 1 + 2 * STREAMS_MAX)
}

#[cfg(test)]
mod tests;
