//! The link between node and cloud: connections that fail, hang, lose one direction, or break.

use std::collections::{BTreeMap, VecDeque};

use edged::limits;
use edged::model::link::Session;
use edged::model::message::Message;

use crate::rule::judge;

/// All connections that one side still has open.
#[derive(Default)]
pub struct Link {
    conns: BTreeMap<u64, Conn>,
    last: u64,
    /// The session that the agent knows to be up.
    pub known_up: Option<Session>,
    /// The session that the agent is dialling.
    pub dialling: Option<Session>,
    /// The last session that was dialled in this life.
    last_session: Option<Session>,
    /// Messages that the agent sent and whose transmission was not reported yet.
    pub unsent: usize,
}

/// One connection.
pub struct Conn {
    /// The agent's name of it.
    pub session: Session,
    /// The life of the agent.
    pub life: u32,
    pub up: Way,
    pub down: Way,
    /// The agent has not closed it.
    pub edge_open: bool,
    /// The cloud has not closed it.
    pub cloud_open: bool,
    /// The cloud has no session on it.
    pub alone: bool,
}

/// One direction: frames arrive in order, or not at all.
#[derive(Default)]
pub struct Way {
    pub frames: VecDeque<Frame>,
    /// When the last frame arrives.
    last_at: u64,
    /// Nothing arrives before this time; [`u64::MAX`]: never.
    pub held_until: u64,
}

/// A frame on a connection.
pub enum Frame {
    Message(Box<Message>),
    Ping,
    Pong,
    /// The other side has closed it.
    End,
}

/// Heartbeats are sent whatever else waits: so many until silence is noticed.
const HEARTBEATS_MAX: usize = 4;

impl Link {
    /// Opens a connection; returns its number.
    pub fn open(&mut self, life: u32, session: Session) -> u64 {
        self.last += 1;
        let (up, down) = (Way::default(), Way::default());
        let conn =
            Conn { session, life, up, down, edge_open: true, cloud_open: false, alone: false };
        self.conns.insert(self.last, conn);
        self.last
    }

    /// The agent dials.
    pub fn dial(&mut self, session: Session) {
        judge!(
            self.known_up.is_none() && self.dialling.is_none(),
            "[one session] dials {session:?} beside {:?} and {:?}",
            self.known_up,
            self.dialling
        );
        judge!(
            self.last_session.is_none_or(|last| last < session),
            "[one session] {session:?} after {:?}",
            self.last_session
        );
        self.last_session = Some(session);
        self.dialling = Some(session);
    }

    /// The agent sends something.
    pub fn sends(&mut self, session: Session) {
        judge!(
            self.known_up == Some(session),
            "[dead session] sends over {session:?} while {:?} is up",
            self.known_up
        );
        self.unsent += 1;
        judge!(
            self.unsent <= limits::UNSENT_MAX + HEARTBEATS_MAX,
            "[back-pressure] {} messages have not left",
            self.unsent
        );
    }

    /// The session is over for the agent.
    pub fn down(&mut self, session: Session) {
        self.known_up.take_if(|it| *it == session);
        self.dialling.take_if(|it| *it == session);
    }

    /// A new life of the agent begins.
    pub fn begin_life(&mut self) {
        self.known_up = None;
        self.dialling = None;
        self.last_session = None;
        self.unsent = 0;
    }

    /// A connection, if it is not closed by both.
    pub fn get_mut(&mut self, conn: u64) -> Option<&mut Conn> {
        self.conns.get_mut(&conn)
    }

    /// The agent's connection by its session.
    pub fn find(&self, life: u32, session: Session) -> Option<u64> {
        let is_it = |conn: &&u64| {
            let it = &self.conns[*conn];
            it.life == life && it.session == session
        };
        self.conns.keys().find(is_it).copied()
    }

    pub fn numbers(&self) -> Vec<u64> {
        self.conns.keys().copied().collect()
    }

    /// Both sides have closed it.
    pub fn forget(&mut self, conn: u64) {
        self.conns.remove(&conn);
    }
}

impl Way {
    /// Accepts a frame; returns in how many milliseconds it arrives.
    pub fn push(&mut self, now: u64, frame: Frame, latency_ms: u64) -> u64 {
        self.frames.push_back(frame);
        self.last_at = self.last_at.max(now + latency_ms);
        self.last_at - now
    }

    /// Whether the link is held now: if so, for how many milliseconds; `None`: for ever.
    #[allow(clippy::option_option, reason = "not held, held for a while, held for ever")]
    pub fn held(&self, now: u64) -> Option<Option<u64>> {
        if self.held_until <= now {
            return None;
        }
        Some((self.held_until != u64::MAX).then(|| self.held_until - now))
    }
}
