//! The node's certificate: requested with the token, renewed before it expires (wire spec sections
//! 1.5 to 1.8).
//!
//! Intended behaviour: whatever is wrong with the credentials, the pods run, and it is retried: by
//! a dial first, because the clock may have been set meanwhile, then by a certificate request. If a
//! certificate that was just issued is refused, the next is not requested at once: it would be
//! refused too. Until then the existing one is still used.

use crate::agent::event::{Action, Out, Severity};
use crate::agent::jobs::{JobOwner, Jobs};
use crate::agent::time::{Backoff, Instant, Now, Rng};
use crate::limits::{
    ENROL_REFUSED_MAX_MS, ENROL_REFUSED_MIN_MS, ENROL_RETRY_MAX_MS, ENROL_RETRY_MIN_MS,
    RENEW_AGAIN_MS,
};
use crate::model::job::{JobError, JobSpec};
use crate::model::link::{Cause, Validity};
use crate::model::settings::CloudSettings;

#[derive(Debug)]
pub(super) struct Enrol {
    rotate: bool,
    /// The certificate is missing or refused.
    is_needed: bool,
    job: Option<Kind>,
    validity: Option<Validity>,
    /// When to renew it, seconds since 1970.
    renew_at_s: Option<i64>,
    /// When it was renewed last.
    renewed_at: Option<Instant>,
    /// After requests that failed.
    backoff: Backoff,
    /// After certificates that were issued and refused.
    refusals: Backoff,
    retry_at: Option<Instant>,
    /// The certificate was issued, and the cloud has not accepted it yet.
    is_unproven: bool,
    /// The last error that was logged.
    last_error: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// With the token.
    Request,
    /// With the certificate that is renewed.
    Renew,
}

/// What a request for a certificate came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(super) enum EnrolEvent {
    Failed,
    /// There is a new certificate: a new session is needed to use it.
    Issued,
}

impl Enrol {
    pub(super) fn new(settings: &CloudSettings) -> Self {
        Self {
            rotate: settings.rotate_certificates,
            is_needed: false,
            job: None,
            validity: None,
            renew_at_s: None,
            renewed_at: None,
            backoff: Backoff::default(),
            refusals: Backoff::default(),
            retry_at: None,
            is_unproven: false,
            last_error: None,
        }
    }

    /// The cloud has accepted the certificate.
    pub(super) fn up(&mut self, validity: Validity) {
        if self.validity != Some(validity) {
            self.validity = Some(validity);
            self.renew_at_s = None;
            self.backoff = Backoff::default();
            self.refusals = Backoff::default();
            self.retry_at = None;
        }
        self.is_needed = false;
        self.is_unproven = false;
        self.last_error = None;
    }

    pub(super) fn down(&mut self, now: Now, cause: &Cause, out: &mut Out) {
        let (Cause::Credentials(why) | Cause::NotJoined(why)) = cause else { return };
        self.is_needed = true;
        if std::mem::take(&mut self.is_unproven) {
            let left_s = self.retry_at.map_or(0, |at| at.since_ms(now.boot) / 1000);
            let line = format!(
                "cloud: the certificate that was just obtained is refused: {why}; it is tried \
                 again, and the next is applied for in {left_s} s"
            );
            out.push(Action::Log(Severity::Error, line));
        }
    }

    /// Whether a dial makes sense: no certificate request is due or open.
    pub(super) fn may_dial(&self, now: Now) -> bool {
        let waits = self.retry_at.is_some_and(|at| at > now.boot);
        self.job.is_none() && (!self.is_needed || waits)
    }

    /// Requests a certificate if one is needed or due, unless a dial with the existing one is under
    /// way.
    pub(super) fn step(
        &mut self,
        now: Now,
        is_dialing: bool,
        rng: &mut Rng,
        jobs: &mut Jobs,
        out: &mut Out,
    ) {
        let is_due = self.retry_at.is_none_or(|at| at <= now.boot);
        if self.job.is_some() || !is_due || is_dialing {
            return;
        }
        self.plan_renewal(rng);
        let is_old = now.timestamp().zip(self.renew_at_s).is_some_and(|(now, at)| at <= now.0);
        let renews = is_old && self.may_renew_at().is_none_or(|at| at <= now.boot);
        let kind = match (self.is_needed, renews && self.rotate) {
            (true, _) => Kind::Request,
            (false, true) => Kind::Renew,
            (false, false) => return,
        };
        self.job = Some(kind);
        let spec = JobSpec::Enrol { renew: kind == Kind::Renew };
        jobs.begin(now, JobOwner::Cloud, spec, out);
    }

    /// Spread over the time from 70 to 90 % of the certificate's life, as the kubelet does, so that
    /// gateways that joined together do not renew together.
    fn plan_renewal(&mut self, rng: &mut Rng) {
        if self.renew_at_s.is_some() {
            return;
        }
        let Some(Validity { not_before_s, not_after_s }) = self.validity else { return };
        let life_s = not_after_s.saturating_sub(not_before_s).max(0);
        let permille = 700 + rng.below(200) as i64;
        self.renew_at_s = Some(not_before_s.saturating_add(life_s / 1000 * permille));
    }

    /// Takes the result of the job.
    pub(super) fn job_done(
        &mut self,
        now: Now,
        result: &Result<(), JobError>,
        rng: &mut Rng,
        out: &mut Out,
    ) -> EnrolEvent {
        let kind = self.job.take().expect("a certificate is being applied for");
        self.is_needed = false;
        // An issued certificate may still be refused, with a clock that is a year ahead: only a
        // session with the cloud ends the back-off.
        let boot = now.boot;
        self.retry_at = match (result, kind) {
            (Err(_), _) => {
                Some(self.backoff.retry_at(boot, ENROL_RETRY_MIN_MS, ENROL_RETRY_MAX_MS))
            }
            (Ok(()), Kind::Request) => {
                self.refusals.retry_at(boot, ENROL_REFUSED_MIN_MS, ENROL_REFUSED_MAX_MS);
                // Gateways that a cloud refuses together do not retry together.
                Some(boot.plus_ms(rng.jitter_ms(self.refusals.delay_ms())))
            }
            (Ok(()), Kind::Renew) => self.retry_at,
        };
        self.is_unproven = result.is_ok();
        match result {
            Ok(()) => {
                let what = if kind == Kind::Renew { "renewed" } else { "obtained" };
                out.push(Action::Log(Severity::Info, format!("cloud: certificate {what}")));
                self.validity = None;
                self.renew_at_s = None;
                self.renewed_at = Some(now.boot);
                self.last_error = None;
            }
            Err(why) => {
                let why = why.to_string();
                if self.last_error.as_ref() != Some(&why) {
                    let line = format!("cloud: no certificate, the pods stay as they are: {why}");
                    out.push(Action::Log(Severity::Error, line));
                    self.last_error = Some(why);
                }
            }
        }
        if result.is_ok() { EnrolEvent::Issued } else { EnrolEvent::Failed }
    }

    pub(super) fn wake_at(&self, now: Now) -> Option<Instant> {
        if self.job.is_some() {
            return None;
        }
        if self.is_needed {
            let soon = now.boot.plus_ms(1);
            return Some(self.retry_at.map_or(soon, |at| at.max(soon)));
        }
        let wall = now.timestamp()?;
        let left_s = u64::try_from(self.renew_at_s?.saturating_sub(wall.0)).unwrap_or(0);
        let due = now.boot.plus_ms(left_s.saturating_mul(1000).max(1));
        let not_before = self.retry_at.max(self.may_renew_at());
        (self.rotate).then_some(not_before.map_or(due, |at| at.max(due)))
    }

    /// With a clock that is far ahead of the cloud's, each new certificate would be due at once.
    fn may_renew_at(&self) -> Option<Instant> {
        self.renewed_at.map(|at| at.plus_ms(RENEW_AGAIN_MS))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::agent::time::Wall;
    use crate::limits::ENROL_MS;

    fn at(ms: u64) -> Now {
        Now { boot: Instant(ms), wall: Some(Wall(1_800_000_000_000 + ms as i64)) }
    }

    /// Whether it requests a job at this moment.
    fn requested(enrol: &mut Enrol, ms: u64) -> bool {
        let mut out = Out::default();
        enrol.step(at(ms), false, &mut Rng::new(1), &mut Jobs::default(), &mut out);
        let Some(Action::Job { deadline, .. }) = out.actions.pop() else { return false };
        assert_eq!(deadline, Instant(ms + ENROL_MS), "its time begins with the request");
        true
    }

    /// The certificate is refused; the request for another one has this result.
    fn apply(enrol: &mut Enrol, ms: u64, result: &Result<(), JobError>) {
        let refused = Cause::Credentials("the certificate has ended".to_owned());
        enrol.down(at(ms), &refused, &mut Out::default());
        assert!(requested(enrol, ms), "it applies");
        let (mut rng, mut out) = (Rng::new(ms), Out::default());
        let event = enrol.job_done(at(ms), result, &mut rng, &mut out);
        assert_eq!(event == EnrolEvent::Issued, result.is_ok(), "{result:?}");
        enrol.down(at(ms), &refused, &mut out);
    }

    #[test]
    fn failed_certificate_requests_back_off_and_refused_certificates_more() {
        let failed = || Err(JobError::Failed("401".to_owned()));
        for (result, min_ms, max_ms) in [
            (failed(), ENROL_RETRY_MIN_MS, ENROL_RETRY_MAX_MS),
            (Ok(()), ENROL_REFUSED_MIN_MS, ENROL_REFUSED_MAX_MS),
        ] {
            let mut enrol = Enrol::new(&CloudSettings::default());
            let mut ms = 1_000;
            for n in 0..10 {
                apply(&mut enrol, ms, &result);
                let delay_ms = (min_ms << n).min(max_ms);
                let wait_ms = enrol.wake_at(at(ms)).expect("it tries again").since_ms(Instant(ms));
                // Those that got a certificate at the same time are spread.
                let most_ms = if result.is_ok() { delay_ms / 2 * 3 } else { delay_ms };
                assert!((delay_ms..=most_ms).contains(&wait_ms), "{n}: {wait_ms} of {delay_ms}");
                assert!(!requested(&mut enrol, ms + wait_ms - 1), "not before");
                ms += wait_ms;
            }
        }
    }

    #[test]
    fn when_a_certificate_is_replaced_is_drawn_once() {
        let mut enrol = Enrol::new(&CloudSettings::default());
        let not_before_s = 1_800_000_000;
        enrol.up(Validity { not_before_s, not_after_s: not_before_s + 1_000_000 });
        let (mut rng, mut jobs) = (Rng::new(1), Jobs::default());
        let mut due_s = BTreeSet::new();
        for ms in 1..100 {
            enrol.step(at(ms), false, &mut rng, &mut jobs, &mut Out::default());
            due_s.insert(enrol.renew_at_s);
        }
        assert_eq!(due_s.len(), 1, "who draws again and again is early: {due_s:?}");
    }

    #[test]
    fn nothing_is_dialled_while_a_certificate_is_missing_or_applied_for() {
        let mut enrol = Enrol::new(&CloudSettings::default());
        assert!(enrol.may_dial(at(1)), "nothing speaks against the one that is there");
        enrol.down(at(1), &Cause::NotJoined("none is there".to_owned()), &mut Out::default());
        assert!(!enrol.may_dial(at(1)), "there is nothing to show");
        assert!(requested(&mut enrol, 1), "it applies");
        assert!(!enrol.may_dial(at(2)), "it is being replaced");
        let failed = Err(JobError::Failed("401".to_owned()));
        let _ = enrol.job_done(at(2), &failed, &mut Rng::new(1), &mut Out::default());
        assert!(enrol.may_dial(at(2)), "a clock may have been set");
        enrol.down(at(3), &Cause::Credentials("it has ended".to_owned()), &mut Out::default());
        assert!(enrol.may_dial(at(3)), "it is shown until the next is applied for");
        let next = enrol.wake_at(at(3)).expect("it applies again").0;
        assert!(enrol.may_dial(at(next - 1)));
        assert!(!enrol.may_dial(at(next)), "now it applies first");
        assert!(requested(&mut enrol, next), "it applies");
        let _ = enrol.job_done(at(next), &Ok(()), &mut Rng::new(1), &mut Out::default());
        assert!(enrol.may_dial(at(next)), "with the new one");
        // A renewal uses the existing certificate; the link is kept until it is done.
        enrol.up(Validity { not_before_s: 0, not_after_s: 1_000 });
        assert!(requested(&mut enrol, next + RENEW_AGAIN_MS), "it is renewed");
        assert!(!enrol.may_dial(at(next + RENEW_AGAIN_MS)));
    }

    #[test]
    fn a_certificate_that_is_due_at_once_is_not_replaced_at_once() {
        let mut enrol = Enrol::new(&CloudSettings::default());
        // With a clock that is years ahead.
        let ended = |not_before_s| Validity { not_before_s, not_after_s: not_before_s + 1_000 };
        enrol.up(ended(0));
        assert!(requested(&mut enrol, 1), "it is renewed");
        let _ = enrol.job_done(at(1), &Ok(()), &mut Rng::new(1), &mut Out::default());
        enrol.up(ended(1_000));
        assert!(!requested(&mut enrol, RENEW_AGAIN_MS));
        assert_eq!(enrol.wake_at(at(2)), Some(Instant(1 + RENEW_AGAIN_MS)));
        assert!(requested(&mut enrol, 1 + RENEW_AGAIN_MS));
    }
}
