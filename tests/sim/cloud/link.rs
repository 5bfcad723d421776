//! The link: connections that are made or not, hang, lose one direction, or break.

use std::collections::{BTreeMap, VecDeque};

use edged::limits;
use edged::model::link::Session;
use edged::model::message::Message;

use crate::rule::judge;

/// All connections that somebody still holds.
#[derive(Default)]
pub struct Link {
    conns: BTreeMap<u64, Conn>,
    last: u64,
    /// The session that the agent knows to be up.
    pub told_up: Option<Session>,
    /// The session that the agent dials.
    pub dialling: Option<Session>,
    /// The last one that was dialled in this life.
    last_session: Option<Session>,
    /// Messages that the agent asked to be sent and was not told to have left.
    pub unsent: usize,
}

/// One connection.
pub struct Conn {
    /// As the agent calls it.
    pub session: Session,
    /// Of the agent.
    pub life: u32,
    pub up: Way,
    pub down: Way,
    /// The agent has not hung up.
    pub edge_open: bool,
    /// The cloud has not.
    pub cloud_open: bool,
    /// The cloud has no session on it.
    pub alone: bool,
}

/// One direction: what was sent arrives in order, or not at all.
#[derive(Default)]
pub struct Way {
    pub frames: VecDeque<Frame>,
    /// When the last of them arrives.
    last_at: u64,
    /// Nothing arrives before; never, if it is [`u64::MAX`].
    pub held_until: u64,
}

/// What goes over a connection.
pub enum Frame {
    Message(Box<Message>),
    Ping,
    Pong,
    /// The other side has ended it.
    End,
}

/// Heartbeats go out whatever waits: so many until silence is noticed.
const HEARTBEATS_MAX: usize = 4;

impl Link {
    /// A new connection; its number.
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
            self.told_up.is_none() && self.dialling.is_none(),
            "[one session] dials {session:?} beside {:?} and {:?}",
            self.told_up,
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
            self.told_up == Some(session),
            "[dead session] sends over {session:?}, and {:?} is up",
            self.told_up
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
        self.told_up.take_if(|it| *it == session);
        self.dialling.take_if(|it| *it == session);
    }

    /// The agent has a new life.
    pub fn be_born(&mut self) {
        self.told_up = None;
        self.dialling = None;
        self.last_session = None;
        self.unsent = 0;
    }

    /// One connection, if it is not over for both.
    pub fn get_mut(&mut self, conn: u64) -> Option<&mut Conn> {
        self.conns.get_mut(&conn)
    }

    /// The agent's connection by its name for it.
    pub fn find(&self, life: u32, session: Session) -> Option<u64> {
        let is_it = |conn: &&u64| {
            let it = &self.conns[*conn];
            it.life == life && it.session == session
        };
        self.conns.keys().find(is_it).copied()
    }

    /// All of them.
    pub fn numbers(&self) -> Vec<u64> {
        self.conns.keys().copied().collect()
    }

    /// Nobody holds it any more.
    pub fn forget(&mut self, conn: u64) {
        self.conns.remove(&conn);
    }
}

impl Way {
    /// Takes a frame; in so many milliseconds it arrives.
    pub fn push(&mut self, now: u64, frame: Frame, latency_ms: u64) -> u64 {
        self.frames.push_back(frame);
        self.last_at = self.last_at.max(now + latency_ms);
        self.last_at - now
    }

    /// Whether nothing arrives now: then in so many milliseconds; `None`: never.
    #[allow(clippy::option_option, reason = "not held, held for a while, held for ever")]
    pub fn held(&self, now: u64) -> Option<Option<u64>> {
        if self.held_until <= now {
            return None;
        }
        Some((self.held_until != u64::MAX).then(|| self.held_until - now))
    }
}
