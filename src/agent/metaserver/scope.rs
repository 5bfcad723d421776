//! One selection of objects that clients list or watch: how far it is known, and its watch of the
//! cloud.
//!
//! ```text
//!  Idle ──watched──▶ Probing ──served──▶ Probed ──taken──▶ Registered ──listed──▶ Live
//!                       └──refused──▶ Refused, for some minutes
//! ```
//!
//! A watch of a resource that the cloud does not have, or may not read, ends or blocks a stock
//! CloudCore (metaserver.md, section 18.2): so the cloud is asked for a list of one object first,
//! which it refuses without harm. The whole list comes after the watch is registered: what changes
//! between the two is in one of them.

use super::objects::Name;
use crate::agent::time::Instant;
use crate::limits::METASERVER_GRACE_MS;
use crate::model::map::Set;
use crate::model::metaserver::{Failure, Reply};

#[derive(Debug)]
pub(super) struct Tracking {
    /// All changes after this version are known; `None`: nothing of it was given out yet.
    pub from: Option<u64>,
    /// The cloud has listed it: all its objects were known then.
    pub is_whole: bool,
    /// All changes up to this version were given to the watches, at least.
    pub version: u64,
    /// A client watches it, or did lately: its objects are stored.
    pub is_watched: bool,
    /// When it was used last; while a client uses it, when that was looked at.
    pub used_at: Instant,
    /// A client that used it has left, and that is not in `used_at` yet.
    pub is_left: bool,
    pub upstream: Upstream,
    pub listing: Option<Listing>,
    /// Lists that were begun, and the last one that has ended.
    pub begun: u64,
    pub ended: u64,
    /// A list has shown since the link came up that the cloud serves the resource.
    pub is_served: bool,
}

/// The state of its watch of the cloud.
#[derive(Clone, Debug)]
pub(super) enum Upstream {
    Idle,
    Probing,
    Probed,
    /// The cloud has it. The list of this number, or a later one, makes it up to date.
    Registered(u64),
    Live,
    /// Why the cloud does not serve it; it is tried again then.
    Refused(Refusal, Instant),
}

/// A refusal that a client gets.
#[derive(Clone, Debug)]
pub(super) enum Refusal {
    /// The API server's `Status`.
    Remote(u16, Box<str>),
    Own(Failure),
    /// The cloud does not answer: what the node has will do.
    Silence,
}

/// A list under way.
#[derive(Debug, Default)]
pub(super) struct Listing {
    /// The page that was requested is under way.
    pub is_sent: bool,
    pub pages: usize,
    /// The token of the page to request; empty: the first one.
    pub next: Box<str>,
    pub seen: Set<Name>,
}

impl Refusal {
    /// `None`: there is none for the client.
    pub(super) fn reply(self) -> Option<Reply> {
        match self {
            Self::Remote(code, status) => Some(Reply::Remote(code, status)),
            Self::Own(failure) => Some(Reply::Failure(failure)),
            Self::Silence => None,
        }
    }
}

impl Tracking {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            from: None,
            is_whole: false,
            version: 0,
            is_watched: false,
            used_at: now,
            is_left: false,
            upstream: Upstream::Idle,
            listing: None,
            begun: 0,
            ended: 0,
            is_served: false,
        }
    }

    /// When it is forgotten, unless it is in use.
    pub(super) fn due_at(&self) -> Instant {
        self.used_at.plus_ms(METASERVER_GRACE_MS)
    }

    /// Whether the cloud's watch is to be registered, or stays so.
    pub(super) fn wants_watch(&self) -> bool {
        self.is_watched
            && matches!(self.upstream, Upstream::Probed | Upstream::Registered(_) | Upstream::Live)
    }

    pub(super) fn is_live(&self) -> bool {
        matches!(self.upstream, Upstream::Live)
    }

    /// The link is new, or lost: nothing of the cloud is known.
    pub(super) fn reset(&mut self) {
        self.upstream = Upstream::Idle;
        self.listing = None;
        self.is_served = false;
    }

    /// Begins a list unless one is under way.
    pub(super) fn begin_list(&mut self) {
        if self.listing.is_none() {
            self.begun += 1;
            self.listing = Some(Listing::default());
        }
    }
}
