//! Renews the node's lease, by which the cloud knows that the node is alive
//! (coordination.k8s.io/v1; wire spec section 5.5).
//!
//! ```text
//!  Unknown ──query──▶ Missing ──insert──▶ Known ──update, each interval──▶ Known
//!     ▲                                     │ conflict, no answer
//!     └─────────────────────────────────────┘
//! ```
//!
//! Intended behaviour: renewed at once when the link comes up and a renewal is due, but not while
//! the time is unknown: a lease of 1970 has expired. Answers are not acknowledged; the cloud does
//! not expect it, and it would be half of the traffic of an idle link.

use crate::agent::cloud::requests::{CloudContext, RequestKind};
use crate::agent::event::{Action, Out, Severity};
use crate::agent::time::{Backoff, Instant, Now};
use crate::limits::LEASE_RETRY_MIN_MS;
use crate::model::downstream::{Answer, ObjectView, RemoteLease};
use crate::model::settings::CloudSettings;
use crate::model::upstream::{self, Up};

/// The lease as the cloud has it.
#[derive(Debug, Default)]
pub(super) struct Lease {
    known: Known,
    request: Option<(Operation, Instant)>,
    renewed_at: Option<Instant>,
    interval_ms: u64,
    /// Since when the cloud has not answered requests of this session.
    silent_since: Option<Instant>,
    backoff: Backoff,
    retry_at: Option<Instant>,
    /// The last error that was logged.
    last_error: Option<String>,
}

#[derive(Debug, Default)]
enum Known {
    #[default]
    Nothing,
    Missing,
    /// The `resourceVersion` of the lease.
    Version(Box<str>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operation {
    Query,
    Insert,
    Update,
}

impl Lease {
    /// A new session.
    pub(super) fn up(&mut self) {
        self.silent_since = None;
        self.retry_at = None;
    }

    /// Takes an answer; returns the uid of the node that owns the lease.
    pub(super) fn answered(&mut self, now: Now, answer: Answer, out: &mut Out) -> Option<Box<str>> {
        let (operation, at) = self.request.take()?;
        self.silent_since = None;
        let refusal = match answer {
            Answer::Object(object) => match object.view {
                ObjectView::Lease(RemoteLease { version, owner }) if !version.is_empty() => {
                    self.known = Known::Version(version);
                    if operation != Operation::Query {
                        self.renewed_at = Some(at);
                        self.backoff = Backoff::default();
                        self.last_error = None;
                    }
                    return owner;
                }
                _ => "got no lease, expected one".to_owned(),
            },
            Answer::Done => "got no lease, expected one".to_owned(),
            Answer::Refused(refusal)
                if refusal.is_not_found() && operation != Operation::Insert =>
            {
                self.known = Known::Missing;
                return None;
            }
            Answer::Refused(refusal) => refusal.to_string(),
        };
        self.known = Known::Nothing;
        self.retry_later(now);
        let line = format!("cloud: the lease is not renewed: {refusal}");
        if self.last_error.as_ref() != Some(&line) {
            out.push(Action::Log(Severity::Warn, line.clone()));
            self.last_error = Some(line);
        }
        None
    }

    fn retry_later(&mut self, now: Now) {
        let retry_at = self.backoff.retry_at(
            now.boot,
            LEASE_RETRY_MIN_MS,
            self.interval_ms.max(LEASE_RETRY_MIN_MS),
        );
        self.retry_at = Some(retry_at);
    }

    /// No answer came: the request may have arrived. Returns for how long the cloud has not
    /// answered, in milliseconds.
    pub(super) fn unanswered(&mut self, now: Now) -> u64 {
        self.request = None;
        self.known = Known::Nothing;
        self.silent_since.map_or(0, |since| now.boot.since_ms(since))
    }

    /// Sends the request that is due.
    pub(super) fn step(
        &mut self,
        node: &str,
        uid: Option<&str>,
        settings: &CloudSettings,
        context: &mut CloudContext<'_>,
    ) {
        self.interval_ms = settings.lease_interval_ms;
        let due = self.wake_at(context.now, settings.lease_interval_ms, uid.is_some());
        if due.is_none_or(|at| at > context.now.boot) || !context.may_send() {
            return;
        }
        let version = match &self.known {
            Known::Nothing => return self.query(node, settings, context),
            Known::Missing => None,
            Known::Version(version) => Some(version.clone()),
        };
        let operation = if version.is_some() { Operation::Update } else { Operation::Insert };
        let lease = upstream::Lease {
            node: node.into(),
            owner: uid.map(Box::from),
            version,
            duration_s: settings.lease_duration_s,
            renewed_at_ms: context.now.wall.expect("otherwise it is not due").0,
        };
        self.request(operation, Up::WriteLease(lease), settings, context);
    }

    /// Whether a request is open.
    pub(super) fn is_requested(&self) -> bool {
        self.request.is_some()
    }

    /// Reads the lease: a cloud that answers knows leases. The caller has checked the room, and
    /// that no request is open.
    pub(super) fn query(
        &mut self,
        node: &str,
        settings: &CloudSettings,
        context: &mut CloudContext<'_>,
    ) {
        let query = Up::QueryLease { node: node.into() };
        self.request(Operation::Query, query, settings, context);
    }

    fn request(
        &mut self,
        operation: Operation,
        content: Up,
        settings: &CloudSettings,
        context: &mut CloudContext<'_>,
    ) {
        // A later answer is useless: the lease would have expired.
        let timeout_ms = settings.lease_interval_ms.min(settings.remote_query_timeout_ms);
        context.request_within(timeout_ms, RequestKind::Lease, content);
        let now = context.now.boot;
        self.request = Some((operation, now));
        self.silent_since.get_or_insert(now);
    }

    /// When the next step is due. `has_owner`: the node's uid is known; a lease without an owner
    /// would outlive its node.
    pub(super) fn wake_at(&self, now: Now, interval_ms: u64, has_owner: bool) -> Option<Instant> {
        if self.request.is_some() {
            return None;
        }
        let due_at = match &self.known {
            Known::Nothing => now.boot,
            Known::Missing | Known::Version(_) if now.wall.is_none() => return None,
            Known::Missing if !has_owner => return None,
            Known::Missing => now.boot,
            Known::Version(_) => self.renewed_at.map_or(now.boot, |at| at.plus_ms(interval_ms)),
        };
        Some(self.retry_at.map_or(due_at, |at| at.max(due_at)))
    }
}
