//! Leader election: which of several replicas does the work that only one may do. It is the holder
//! of the Lease, by the rules of client-go's leader election.
//!
//! ```text
//!  Read ──free, ours, or not renewed for its duration──▶ Write ──▶ leader, until RENEW_DEADLINE
//!   ▲ └─ no Lease ─▶ Create ─▶ leader                       │       after the last write began
//!   └──────────── every RETRY, while held ◀── conflict ─────┘
//! ```
//!
//! Whether the Lease of another replica has expired is measured with our own clock, from when we
//! saw it change: the clocks of replicas need not agree. A write names the version that was read,
//! so of two replicas that take over at once one fails. The holder stops well before another may
//! begin: its time counts from before the write, the other's from after it was read.
//!
//! If we crash here: there is no leader until the Lease has expired.

use serde_json::{Value, json};

use super::event::{Action, Out, Severity};
use super::time::{Instant, Now, Rng};
use crate::limits::{LEASE_MS, LEASE_RELEASE_MS, LEASE_RENEW_MS, LEASE_RETRY_MS};
use crate::model::api::{Call, CallError, CallResult, Kind, Verb};
use crate::model::raw;

/// The identity of this replica, and where the Lease is.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// Unique among replicas and restarts.
    pub identity: String,
    /// The namespace of the Lease.
    pub namespace: String,
}

/// The state of the Lease as this replica knows it.
pub(super) struct LeaderElection {
    /// `None`: there are no other replicas.
    candidate: Option<Candidate>,
    observed: Option<ObservedLease>,
    /// We hold the Lease, at least until then.
    held_until: Option<Instant>,
    /// The call under way, and since when.
    in_flight: Option<(Step, Instant)>,
    next_at: Instant,
    /// The last write may not be what the API server has.
    is_uncertain: bool,
    /// We stop: since then the Lease is only released.
    stopped_at: Option<Instant>,
    /// The trouble was logged.
    is_trouble_logged: bool,
}

/// The Lease as it was read, and since when it is unchanged.
struct ObservedLease {
    lease: Value,
    at: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Read,
    /// Create, take over or renew the Lease.
    Write,
    Release,
}

/// The name of the Lease.
const NAME: &str = "edgecontroller";

impl LeaderElection {
    pub(super) fn new(candidate: Option<Candidate>) -> Self {
        Self {
            candidate,
            observed: None,
            held_until: None,
            in_flight: None,
            next_at: Instant(0),
            is_uncertain: true,
            stopped_at: None,
            is_trouble_logged: false,
        }
    }

    /// Whether this replica is the leader.
    pub(super) fn leads(&self, now: Instant) -> bool {
        self.candidate.is_none() || self.held_until.is_some_and(|until| now < until)
    }

    /// The call that is due now.
    pub(super) fn step(&mut self, now: Now, out: &mut Out) -> Option<Call> {
        let candidate = self.candidate.as_ref()?;
        if self.held_until.take_if(|until| *until <= now.boot).is_some() {
            let line = "lease: lost: it could not be renewed in time".to_owned();
            out.push(Action::Log(Severity::Warn, line));
        }
        if self.in_flight.is_some() {
            return None;
        }
        if self.stopped_at.is_some() {
            self.held_until.take()?;
            let observed = self.observed.as_ref().expect("it is ours");
            let call = candidate.write(Some(&observed.lease), now, Step::Release)?;
            self.in_flight = Some((Step::Release, now.boot));
            return Some(call);
        }
        if now.boot < self.next_at {
            return None;
        }
        self.next_at = now.boot.plus_ms(LEASE_RETRY_MS);
        let observed =
            self.observed.as_ref().filter(|_| !self.is_uncertain && self.held_until.is_some());
        let (step, call) = match observed {
            Some(observed) => {
                (Step::Write, candidate.write(Some(&observed.lease), now, Step::Write)?)
            }
            None => (Step::Read, candidate.call(Verb::Get, None)),
        };
        self.in_flight = Some((step, now.boot));
        Some(call)
    }

    /// Takes the API server's answer. Returns the next call, if there is one.
    pub(super) fn answered(
        &mut self,
        now: Now,
        result: CallResult,
        rng: &mut Rng,
        out: &mut Out,
    ) -> Option<Call> {
        let candidate = self.candidate.as_ref().expect("only a candidate makes calls");
        let (step, asked_at) = self.in_flight.take().expect("a call is under way");
        // As client-go: with jitter, so that not all retry at once when a Lease expires.
        let wait_ms = LEASE_RETRY_MS + rng.below(LEASE_RETRY_MS * 6 / 5);
        self.next_at = now.boot.plus_ms(wait_ms);
        let is_none = matches!(result, Err(CallError::Refused { code: 404, .. }));
        let lease: Value = match result {
            Ok(raw) => serde_json::from_str(raw.get()).unwrap_or_default(),
            Err(_) if is_none && step == Step::Read => {
                self.observed = None;
                let call = candidate.write(None, now, Step::Write)?;
                self.in_flight = Some((Step::Write, now.boot));
                return Some(call);
            }
            Err(error) => {
                self.is_uncertain = true;
                if let Some(line) = trouble(&error).filter(|_| !self.is_trouble_logged) {
                    self.is_trouble_logged = true;
                    out.push(Action::Log(Severity::Warn, line));
                }
                return None;
            }
        };
        self.is_trouble_logged = false;
        let same =
            self.observed.as_ref().filter(|observed| observed.lease["spec"] == lease["spec"]);
        let at = same.map_or(now.boot, |observed| observed.at);
        let observed = self.observed.insert(ObservedLease { lease, at });
        match step {
            Step::Read if observed.is_free(&candidate.identity, now.boot) => {
                let call = candidate.write(Some(&observed.lease), now, Step::Write)?;
                self.in_flight = Some((Step::Write, now.boot));
                Some(call)
            }
            Step::Read | Step::Release => None,
            Step::Write => {
                self.is_uncertain = false;
                self.next_at = asked_at.plus_ms(LEASE_RETRY_MS);
                let until = asked_at.plus_ms(LEASE_RENEW_MS);
                if now.boot < until && self.held_until.replace(until).is_none() {
                    let line = format!("lease: {} is the leader", candidate.identity);
                    out.push(Action::Log(Severity::Info, line));
                }
                None
            }
        }
    }

    /// We stop: our Lease is released, so that nobody waits for it to expire.
    pub(super) fn stop(&mut self, now: Instant) {
        self.stopped_at.get_or_insert(now);
    }

    /// The Lease is released, or that takes too long.
    pub(super) fn may_stop(&self, now: Instant) -> bool {
        let is_late = self.stopped_at.is_some_and(|at| at.plus_ms(LEASE_RELEASE_MS) <= now);
        is_late || (self.in_flight.is_none() && self.held_until.is_none())
    }

    /// When the next call is due, if nothing happens before.
    pub(super) fn wake_at(&self) -> Option<Instant> {
        self.candidate.as_ref()?;
        let late_at = self.stopped_at.map(|at| at.plus_ms(LEASE_RELEASE_MS));
        let next_at = match (self.in_flight, late_at) {
            (Some(_), late_at) => late_at,
            (None, Some(_)) => None,
            (None, None) => Some(self.next_at),
        };
        next_at.into_iter().chain(self.held_until).min()
    }
}

impl ObservedLease {
    /// Whether this replica may take the Lease.
    fn is_free(&self, identity: &str, now: Instant) -> bool {
        let spec = &self.lease["spec"];
        let holder = spec["holderIdentity"].as_str().unwrap_or_default();
        let seconds = spec["leaseDurationSeconds"].as_u64();
        let duration_ms = seconds.map_or(LEASE_MS, |seconds| seconds.saturating_mul(1_000));
        holder.is_empty() || holder == identity || self.at.plus_ms(duration_ms) <= now
    }
}

impl Candidate {
    fn call(&self, verb: Verb, body: Option<&Value>) -> Call {
        let (namespace, body) = (self.namespace.as_str().into(), body.map(raw::json));
        let (kind, name) = (Kind::Lease, NAME.into());
        Call { verb, kind, namespace, name, subresource: None, body }
    }

    /// The call that makes the Lease ours, or releases it; `None`: the time is not known.
    fn write(&self, old: Option<&Value>, now: Now, step: Step) -> Option<Call> {
        let at = micro_time(now)?;
        let verb = if old.is_some() { Verb::Update } else { Verb::Create };
        let mut lease = old.cloned().unwrap_or_else(|| {
            json!({
                "kind": Kind::Lease.name(), "apiVersion": Kind::Lease.api_version(),
                "metadata": {"name": NAME, "namespace": self.namespace},
            })
        });
        let spec = &mut lease["spec"];
        if spec["holderIdentity"] != self.identity {
            let changes = spec["leaseTransitions"].as_u64();
            spec["leaseTransitions"] = json!(changes.map_or(0, |count| count.saturating_add(1)));
            spec["acquireTime"] = json!(at);
        }
        spec["renewTime"] = json!(at);
        let (holder, duration_ms) = match step {
            Step::Release => ("", 1_000),
            Step::Read | Step::Write => (&*self.identity, LEASE_MS),
        };
        spec["holderIdentity"] = json!(holder);
        spec["leaseDurationSeconds"] = json!(duration_ms / 1_000);
        Some(self.call(verb, Some(&lease)))
    }
}

/// The line to log; `None`: another replica was faster, which is normal.
fn trouble(error: &CallError) -> Option<String> {
    match error {
        CallError::Refused { code: 404 | 409, .. } => None,
        CallError::Refused { code, status } => Some(format!("lease: {code}: {status}")),
        CallError::Lost(why) => Some(format!("lease: {why}")),
    }
}

/// `metav1.MicroTime`
fn micro_time(now: Now) -> Option<String> {
    let (wall, seconds) = (now.wall?, now.timestamp()?.to_string());
    let ms = wall.0.rem_euclid(1_000);
    Some(format!("{}.{ms:03}000Z", seconds.trim_end_matches('Z')))
}
