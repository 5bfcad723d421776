//! The Services of the cluster, through the cloud's dynamic controller (metaserver.md, sections 6,
//! 8 and 18.4): the node lists them once per connection, and then watches them.
//!
//! ```text
//!  Waiting ──due──▶ Listing ──page──▶ Storing ──durable──▶ Listing … ──▶ Syncing ──▶ Watching
//!     ▲                └──────no answer, refused──────────────────────────┘
//!     └── some minutes
//! ```
//!
//! The list comes first, so that what the watch then offers again is known already and costs no
//! write. What was stored and is not in a whole list is deleted: the cloud does not say that an
//! object was deleted while the node was away. The watch is one for the node, with constant
//! options, and registered with all others of the node ([`super::watches`]). What it brings comes
//! as any object does: stored, and acknowledged once it is durable.
//!
//! A cloud without a dynamic controller does not answer: that is logged once, and the list is tried
//! again every few minutes.
//!
//! If we crash here: the stored Services apply, and the next connection lists again.

use std::sync::Arc;

use super::meta::{ChangeOutcome, Meta};
use super::requests::{CloudContext, RequestKind};
use super::rows::SERVICE;
use super::watches::{WatchState, Watches};
use crate::agent::Config;
use crate::agent::event::{Action, Out, Severity};
use crate::agent::time::{Instant, Now};
use crate::limits::{SERVICES_LIST_PAGE, SERVICES_LIST_RETRY_MS, SERVICES_MAX};
use crate::model::application::{Gvr, Scope};
use crate::model::downstream::PodPage;
use crate::model::map::Set;
use crate::model::upstream::Up;

#[derive(Debug)]
pub(super) struct ServiceWatch {
    is_on: bool,
    scope: Arc<Scope>,
    state: State,
    /// The keys of the pages so far.
    listed: Set<Box<str>>,
    /// A page had more than is stored: what is missing in it may exist.
    is_partial: bool,
    /// The last trouble that was logged.
    logged: Option<String>,
}

#[derive(Debug, PartialEq, Eq)]
enum State {
    /// No request is open; the next is not sent before this time.
    Waiting(Instant),
    Listing,
    /// The token of the next page, `None`: it was the last one.
    Storing(Option<Box<str>>),
    Syncing,
    Watching,
}

impl ServiceWatch {
    pub(super) fn new(config: &Config) -> Self {
        Self {
            is_on: config.services.is_some(),
            scope: Arc::new(Scope::all(Gvr::new("", "v1", "services"))),
            state: State::Waiting(Instant(0)),
            listed: Set::new(),
            is_partial: false,
            logged: None,
        }
    }

    /// The link is up: everything begins anew.
    pub(super) fn up(&mut self) {
        self.begin(Instant(0));
    }

    fn begin(&mut self, at: Instant) {
        self.state = State::Waiting(at);
        self.listed = Set::new();
        self.is_partial = false;
    }

    /// Takes a page of the list, or why it cannot be used.
    pub(super) fn listed(
        &mut self,
        now: Now,
        page: Result<PodPage, String>,
        meta: &mut Meta,
        out: &mut Out,
    ) {
        let stored = page.and_then(|page| self.store(page, meta));
        match stored {
            Ok(next) => {
                if next.is_none() {
                    self.remove_others(meta);
                }
                self.state = State::Storing(next);
            }
            Err(why) => self.failed(now, &format!("the cloud's list cannot be used: {why}"), out),
        }
    }

    /// Stores a page; returns the token of the next one.
    fn store(&mut self, page: PodPage, meta: &mut Meta) -> Result<Option<Box<str>>, String> {
        for (key, text) in page.pods {
            if !key.contains("/service/") {
                return Err(format!("got {key}, expected Services"));
            }
            if self.listed.len() == SERVICES_MAX {
                self.is_partial = true;
                return Ok(None);
            }
            match meta.put(&key, SERVICE, &text, None) {
                ChangeOutcome::Queued | ChangeOutcome::Unchanged => {}
                ChangeOutcome::Dropped => return Err(format!("{key}: too many changes wait")),
                // The others are served all the same.
                ChangeOutcome::Refused(_) => self.is_partial = true,
            }
            self.listed.insert(key);
        }
        page.next
    }

    /// The list is whole: what it does not have was deleted.
    fn remove_others(&mut self, meta: &mut Meta) {
        if self.is_partial {
            return;
        }
        let gone: Vec<Box<str>> = meta
            .keys_of(SERVICE)
            .filter(|key| !self.listed.contains(*key))
            .map(Into::into)
            .collect();
        for key in gone {
            let uid: Box<str> = meta.uid(&key).unwrap_or_default().into();
            // No acknowledgement is due; where the queue is full, the next list finds it.
            let _ = meta.delete(&key, &uid, None);
        }
    }

    /// The watch that the cloud is to serve, once everything that it has is stored.
    pub(super) fn watch(&self) -> Option<&Arc<Scope>> {
        let is_listed = matches!(self.state, State::Syncing | State::Watching);
        Some(&self.scope).filter(|_| self.is_on && is_listed)
    }

    /// Whether objects of this kind are stored here, whatever asks the cloud for them.
    #[cfg(feature = "metaserver")]
    pub(super) fn keeps(&self, kind: &str) -> bool {
        self.is_on && kind == SERVICE
    }

    /// Looks at what the cloud says of the watch.
    pub(super) fn watch_answered(&mut self, now: Now, watches: &Watches, out: &mut Out) {
        if self.state != State::Syncing {
            return;
        }
        match watches.state(&self.scope) {
            None | Some(WatchState::Open) => {}
            Some(WatchState::Taken) => {
                self.state = State::Watching;
                if self.logged.take().is_some() {
                    let line = "cloud: Services are watched".to_owned();
                    out.push(Action::Log(Severity::Info, line));
                }
            }
            Some(WatchState::Refused(why)) => {
                self.failed(now, &format!("the cloud does not watch them: {why}"), out);
            }
            Some(WatchState::Unanswered) => self.unanswered(now, true, out),
        }
    }

    /// No answer came in time.
    pub(super) fn unanswered(&mut self, now: Now, is_up: bool, out: &mut Out) {
        if is_up {
            let why = "no answer: the cloud has no dynamic controller \
                       (dynamicController.enable), or an old one";
            self.failed(now, why, out);
        }
    }

    fn failed(&mut self, now: Now, why: &str, out: &mut Out) {
        self.begin(now.boot.plus_ms(SERVICES_LIST_RETRY_MS));
        if self.logged.as_deref() != Some(why) {
            let line = format!("cloud: Services are as last stored: {why}");
            out.push(Action::Log(Severity::Warn, line));
            self.logged = Some(why.to_owned());
        }
    }

    /// Sends what is due.
    pub(super) fn step(&mut self, node: &str, meta: &Meta, context: &mut CloudContext<'_>) {
        if self.wake_at(meta).is_none_or(|at| at > context.now.boot) || !context.has_room() {
            return;
        }
        let page = match &mut self.state {
            State::Waiting(_) => Some(Box::default()),
            State::Storing(next) => next.take(),
            State::Listing | State::Syncing | State::Watching => return,
        };
        if let Some(page) = page {
            let node = node.into();
            let list = Up::ListServices { node, limit: SERVICES_LIST_PAGE, page };
            context.request(RequestKind::Services, list);
            self.state = State::Listing;
        } else {
            self.state = State::Syncing;
        }
    }

    pub(super) fn wake_at(&self, meta: &Meta) -> Option<Instant> {
        match &self.state {
            _ if !self.is_on => None,
            State::Waiting(at) => Some(*at),
            State::Storing(_) if meta.is_settled() => Some(Instant(0)),
            State::Storing(_) | State::Listing | State::Syncing | State::Watching => None,
        }
    }
}
