//! Lists all pods of this node from the cloud, if the store was new or lost.
//!
//! KubeEdge's cloud does not send again what a node has acknowledged, so a node that lost its store
//! has to ask. The protocol has one request for that, MetaServer's (wire spec sections 4.12 and
//! 5.12): a list by the cloud's dynamic controller, which reads from the API server. A cloud
//! without that controller does not answer; then the store fills with what is pushed, as before.
//!
//! ```text
//!  Waiting ──due──▶ Requested ──page──▶ Storing ──durable──▶ Requested … ──durable──▶ complete
//!     ▲                └──no answer, refused, no room──┐
//!     └────────────────────────────────────────────────┘ back-off
//! ```
//!
//! Intended behaviour: the listed pods are stored as if they had been pushed. When all of them are
//! durable the store is complete, and other pods that run here are orphans. If a listed pod cannot
//! be stored, it still belongs to the cloud, so the store stays incomplete.
//!
//! If we crash here: the next process lists again.

use std::fmt;

use super::meta::{ChangeOutcome, Meta};
use super::requests::{CloudContext, RequestKind};
use crate::agent::event::{Action, Out, Severity};
use crate::agent::time::{Backoff, Instant, Now};
use crate::limits::{RELIST_PAGE, RELIST_RETRY_MAX_MS, RELIST_RETRY_MIN_MS};
use crate::model::downstream::{PodPage, Refusal};
use crate::model::upstream::Up;

/// The state of the list.
#[derive(Debug)]
pub(super) struct Relist {
    state: State,
    /// Limit of pods in an answer: lower after a request without an answer, which may have been too
    /// large for the link.
    page: u32,
    backoff: Backoff,
    /// The last error that was logged.
    last_error: Option<String>,
}

#[derive(Debug)]
enum State {
    /// No request is open; the next is not sent before this time.
    Waiting(Instant),
    Requested,
    /// A page is received and about to be durable; the value is the continue token of the next
    /// page, `None`: it was the last page.
    Storing(Option<Box<str>>),
}

/// Why a page of the list cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PageError {
    /// The answer is no page, and perhaps says why.
    NoPage(Option<Refusal>),
    /// It cannot be read, for this reason.
    Unusable(String),
    /// Too many changes wait: the pod of this key has no place.
    NoRoom(Box<str>),
    /// The pod of this key cannot be stored, for this reason.
    Unstorable(Box<str>, String),
}

impl fmt::Display for PageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoPage(Some(refusal)) => write!(f, "got no Application: {refusal}"),
            Self::NoPage(None) => f.write_str("got no Application"),
            Self::Unusable(why) => f.write_str(why),
            Self::NoRoom(key) => write!(f, "{key}: too many changes wait to be saved"),
            Self::Unstorable(key, why) => write!(f, "{key}: {why}"),
        }
    }
}

impl Default for Relist {
    fn default() -> Self {
        let state = State::Waiting(Instant(0));
        Self { state, page: RELIST_PAGE, backoff: Backoff::default(), last_error: None }
    }
}

impl Relist {
    /// Takes a page of the list, or why it cannot be used.
    pub(super) fn answered(
        &mut self,
        now: Now,
        page: Result<PodPage, PageError>,
        meta: &mut Meta,
        out: &mut Out,
    ) {
        match page.and_then(|page| store_pods(page, meta)) {
            Ok(next) => {
                self.state = State::Storing(next);
                self.page_stored(meta, out);
            }
            Err(why) => {
                self.retry_later(now);
                self.log_once(
                    format!("store: the cloud's list of pods cannot be used: {why}"),
                    out,
                );
            }
        }
    }

    pub(super) fn unanswered(&mut self, now: Now) {
        self.page = 1;
        self.retry_later(now);
    }

    fn retry_later(&mut self, now: Now) {
        let retry_at = self.backoff.retry_at(now.boot, RELIST_RETRY_MIN_MS, RELIST_RETRY_MAX_MS);
        self.state = State::Waiting(retry_at);
    }

    fn log_once(&mut self, line: String, out: &mut Out) {
        if self.last_error.as_ref() != Some(&line) {
            out.push(Action::Log(Severity::Warn, line.clone()));
            self.last_error = Some(line);
        }
    }

    /// Something became durable: continues the list, or completes the store after the last page.
    pub(super) fn page_stored(&mut self, meta: &mut Meta, out: &mut Out) {
        if meta.is_incomplete() && meta.is_settled() && matches!(self.state, State::Storing(None)) {
            let line = "store: all pods of this node are stored; other pods are stopped";
            out.push(Action::Log(Severity::Info, line.to_owned()));
            meta.set_complete();
        }
    }

    /// Requests the next page.
    pub(super) fn step(&mut self, node: &str, meta: &Meta, context: &mut CloudContext<'_>) {
        if !meta.is_incomplete() {
            return;
        }
        let next = match &self.state {
            State::Waiting(at) if *at <= context.now.boot => "",
            State::Storing(Some(next)) if meta.is_settled() => next,
            State::Waiting(_) | State::Requested | State::Storing(_) => return,
        };
        if !context.has_room() {
            return;
        }
        let list = Up::ListPods { node: node.into(), limit: self.page, page: next.into() };
        context.request(RequestKind::Pods, list);
        self.state = State::Requested;
    }

    pub(super) fn wake_at(&self, meta: &Meta) -> Option<Instant> {
        match &self.state {
            State::Waiting(at) if meta.is_incomplete() => Some(*at),
            State::Storing(Some(_)) if meta.is_incomplete() && meta.is_settled() => {
                Some(Instant(0))
            }
            State::Waiting(_) | State::Requested | State::Storing(_) => None,
        }
    }
}

/// Stores the pods of a page; returns the continue token of the next one.
fn store_pods(page: PodPage, meta: &mut Meta) -> Result<Option<Box<str>>, PageError> {
    for (key, text) in page.pods {
        if !key.contains("/pod/") {
            return Err(PageError::Unusable(format!("got {key}, expected pods")));
        }
        match meta.put(&key, "pod", &text, None) {
            ChangeOutcome::Queued | ChangeOutcome::Unchanged => {}
            ChangeOutcome::Dropped => {
                return Err(PageError::NoRoom(key));
            }
            ChangeOutcome::Refused(why) => return Err(PageError::Unstorable(key, why)),
        }
    }
    page.next.map_err(PageError::Unusable)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::Budget;
    use crate::model::meta::Saved;

    #[test]
    fn failed_lists_back_off() {
        let mut meta = Meta::new("gw", Budget::FULL);
        let origin = crate::model::meta::StoreOrigin::New;
        meta.load(Saved::new(Vec::new(), origin), &mut Out::default());
        let mut relist = Relist::default();
        let mut now = Now { boot: Instant(7), wall: None };
        for n in 0..12 {
            assert_eq!(relist.page, if n == 0 { RELIST_PAGE } else { 1 });
            relist.unanswered(now);
            let wait_ms = (RELIST_RETRY_MIN_MS << n).min(RELIST_RETRY_MAX_MS);
            let next = now.boot.plus_ms(wait_ms);
            assert_eq!(relist.wake_at(&meta), Some(next));
            now.boot = next;
        }
    }
}
