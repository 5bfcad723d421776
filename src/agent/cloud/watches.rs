//! The watches that the cloud's dynamic controller is to serve this node: all of them are named in
//! one message (`watchapp/sync`, metaserver.md, sections 6 and 18.3), which also ends those that it
//! does not name.
//!
//! ```text
//!  wanted by others ──▶ Open ──message, answer──▶ Taken, or Refused
//!                        ▲ └── no answer ──▶ Unanswered ──┐ some minutes
//!                        └───────────────────────────────┘
//! ```
//!
//! The ids are the same in each connection, because the cloud knows a watch by its id. If we crash
//! here: the next connection names them anew.

use std::sync::Arc;

use super::requests::{CloudContext, RequestKind};
use crate::agent::time::{Instant, Now};
use crate::limits::WATCHES_RETRY_MS;
use crate::model::application::Scope;
use crate::model::downstream::RefusedWatches as Refused;
use crate::model::map::Map;
use crate::model::upstream::Up;

#[derive(Debug, Default)]
pub(super) struct Watches {
    /// The node's name as of the last message.
    node: Box<str>,
    known: Map<Arc<Scope>, WatchState>,
    /// The cloud has others than are wanted, or may have.
    is_dirty: bool,
    /// The message that is not answered yet.
    is_pending: bool,
    /// The last message was answered, or was not in time.
    has_news: bool,
    retry_at: Option<Instant>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum WatchState {
    /// The cloud does not know it yet, or has not answered.
    Open,
    Taken,
    Refused(Box<str>),
    Unanswered,
}

/// The watches that the cloud is to serve: ascending, each once.
pub(super) type Wanted<'a> = Vec<&'a Arc<Scope>>;

impl WatchState {
    /// The cloud has the watch, or is about to.
    fn is_with_the_cloud(&self) -> bool {
        matches!(self, Self::Open | Self::Taken)
    }
}

impl Watches {
    /// The link is up. `may_have_others`: the cloud may have watches of before that nobody wants.
    pub(super) fn up(&mut self, may_have_others: bool) {
        *self = Self { is_dirty: may_have_others, ..Self::default() };
    }

    pub(super) fn state(&self, scope: &Scope) -> Option<&WatchState> {
        self.known.get(scope)
    }

    /// Whether the states are others than at the last call.
    #[cfg(feature = "metaserver")]
    pub(super) fn take_news(&mut self) -> bool {
        std::mem::take(&mut self.has_news)
    }

    /// Takes the answer of the cloud: the ids that it refuses, and why.
    pub(super) fn answered(&mut self, now: Now, refused: Refused) {
        (self.is_pending, self.has_news) = (false, true);
        let asked = self.known.iter_mut().filter(|(_, state)| **state == WatchState::Open);
        match refused {
            Ok(refused) => {
                for (scope, state) in asked {
                    let id = scope.id(&self.node);
                    let found = refused.iter().find(|(refused, _)| **refused == *id);
                    *state = match found {
                        Some((_, why)) => WatchState::Refused(why.clone()),
                        None => WatchState::Taken,
                    };
                }
            }
            Err(why) => asked.for_each(|(_, state)| *state = WatchState::Refused(why.clone())),
        }
        self.retry_later(now);
    }

    /// No answer came in time.
    pub(super) fn unanswered(&mut self, now: Now) {
        (self.is_pending, self.has_news) = (false, true);
        for state in self.known.values_mut().filter(|state| **state == WatchState::Open) {
            *state = WatchState::Unanswered;
        }
        self.retry_later(now);
    }

    fn retry_later(&mut self, now: Now) {
        self.retry_at = (!self.is_settled()).then(|| now.boot.plus_ms(WATCHES_RETRY_MS));
    }

    /// Sends which watches are wanted now, if the cloud has others.
    pub(super) fn step(&mut self, node: &str, wanted: &Wanted<'_>, context: &mut CloudContext<'_>) {
        if self.is_pending {
            return;
        }
        self.compare(context.now, wanted);
        if !self.is_dirty || !context.has_room() {
            return;
        }
        self.node = node.into();
        let watches = self.known.keys().map(|scope| Scope::clone(scope)).collect();
        context.request(RequestKind::Watches, Up::SyncWatches { node: node.into(), watches });
        // Those that were taken are named again: they are taken unless the answer says otherwise.
        self.known.values_mut().for_each(|state| *state = WatchState::Open);
        (self.is_dirty, self.is_pending, self.retry_at) = (false, true, None);
    }

    fn compare(&mut self, now: Now, wanted: &Wanted<'_>) {
        if !self.are_known(wanted) {
            self.known.retain(|scope, state| {
                let is_kept = wanted.binary_search(&scope).is_ok();
                self.is_dirty |= !is_kept && state.is_with_the_cloud();
                is_kept
            });
            for scope in wanted {
                if !self.known.contains_key(*scope) {
                    self.known.insert(Arc::clone(scope), WatchState::Open);
                    self.is_dirty = true;
                }
            }
        }
        if self.is_settled() {
            self.retry_at = None;
        }
        self.is_dirty |= self.retry_at.is_some_and(|at| at <= now.boot);
    }

    /// Whether these are the ones that are known, and no others: so it is in nearly each step.
    fn are_known(&self, wanted: &Wanted<'_>) -> bool {
        self.known.keys().eq(wanted.iter().copied())
    }

    /// Whether the cloud has taken all watches, or has yet to answer.
    fn is_settled(&self) -> bool {
        self.known.values().all(WatchState::is_with_the_cloud)
    }

    /// When the next step is due. `wanted`: as for [`Watches::step`].
    pub(super) fn wake_at(&self, wanted: &Wanted<'_>) -> Option<Instant> {
        if self.is_pending {
            return None;
        }
        let is_due = self.is_dirty || !self.are_known(wanted) && self.differ(wanted);
        if is_due { Some(Instant(0)) } else { self.retry_at }
    }

    /// Whether the cloud does not know one of these yet, or knows others.
    fn differ(&self, wanted: &Wanted<'_>) -> bool {
        let is_left = |(scope, state): (&Arc<Scope>, &WatchState)| {
            state.is_with_the_cloud() && wanted.binary_search(&scope).is_err()
        };
        wanted.iter().any(|scope| !self.known.contains_key(*scope))
            || self.known.iter().any(is_left)
    }
}
