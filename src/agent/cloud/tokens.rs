//! Service account tokens for the cloud's pods: requested, stored, and requested again before they
//! expire (wire spec section 5.9).
//!
//! A token is replaced after four fifths of its life, or after a day. An expired token stays in
//! place: without the cloud there is no other one, and the cloud decides whether to refuse it.
//!
//! A row is found by the request, because API servers may answer with other values: a shorter life,
//! audiences where none were requested, and up to 1.23 no names. So the key of the row is made from
//! the request, where an `EdgeCore` looks for it; the value is the answer, from which an `EdgeCore`
//! computes the token's life, with the names and `asked` added, which an `EdgeCore` does not read.

use super::meta::Meta;
use super::requests::{CloudContext, RequestKind};
use super::rows;
use super::rows::StoredObject;
use crate::agent::Config;
use crate::agent::time::{Instant, Now, Rng};
#[cfg(feature = "metaserver-auth")]
use crate::limits::TOKENS_REPLACED_MAX;
use crate::limits::{QUERY_RETRY_MS, TOKEN_AGAIN_MS, TOKEN_AGE_MAX_S};
use crate::model::map::Map;
use crate::model::pod::{Pod, ServiceAccountToken};
use crate::model::time::Timestamp;
use crate::model::token::{self, Token};
use crate::model::upstream::{TokenRequest, Up};

/// The tokens that pods need, and the state of each.
#[derive(Debug, Default)]
pub(super) struct Tokens {
    /// Pods or tokens changed since the needs were computed.
    stale: bool,
    /// By the key of the row.
    needs: Map<Box<str>, Need>,
    /// MetaServer knows its clients by the tokens that were handed out.
    #[cfg(feature = "metaserver-auth")]
    remembers: bool,
}

#[derive(Clone, Debug)]
struct Need {
    request: TokenRequest,
    state: State,
    /// When the cloud sent it last.
    received_at: Option<Instant>,
    /// Why the cloud refused it last time.
    refusal: Box<str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Missing; requested not before this time.
    Missing(Instant),
    Requested,
    /// Valid until it is to be replaced; `None`: never replaced.
    Valid(Option<Timestamp>),
}

impl Tokens {
    pub(super) fn new(config: &Config) -> Self {
        #[cfg(feature = "metaserver-auth")]
        let remembers = config.metaserver.as_ref().is_some_and(|it| it.requires_authorization);
        #[cfg(not(feature = "metaserver-auth"))]
        let _ = config;
        Self {
            #[cfg(feature = "metaserver-auth")]
            remembers,
            ..Self::default()
        }
    }

    /// The digests of a row's token and of those before it, if they are needed.
    #[cfg(feature = "metaserver-auth")]
    fn replaced(&self, meta: &Meta, key: &str) -> Vec<Box<str>> {
        let Some(StoredObject::Token(old)) = meta.stored_object(key).filter(|_| self.remembers)
        else {
            return Vec::new();
        };
        let mut all = old.replaced.clone();
        all.push(token::digest(&old.status.token).into());
        let too_many = all.len().saturating_sub(TOKENS_REPLACED_MAX);
        all.split_off(too_many)
    }

    #[cfg(not(feature = "metaserver-auth"))]
    #[expect(clippy::unused_self, reason = "as where it is built in")]
    fn replaced(&self, _: &Meta, _: &str) -> Vec<Box<str>> {
        Vec::new()
    }

    /// Pods or tokens have changed.
    pub(super) fn mark_dirty(&mut self) {
        self.stale = true;
    }

    /// A new session: no request is open.
    pub(super) fn up(&mut self) {
        for need in self.needs.values_mut().filter(|need| !matches!(need.state, State::Valid(_))) {
            need.state = State::Missing(Instant(0));
        }
    }

    /// The cloud sent a token. Returns the row to store; `None`: the token is useless, or needed no
    /// more.
    pub(super) fn answered(
        &mut self,
        now: Now,
        key: &str,
        text: &str,
        meta: &Meta,
    ) -> Option<String> {
        self.retry_after(now, key, QUERY_RETRY_MS);
        let replaced = self.replaced(meta, key);
        let need = self.needs.get_mut(key)?;
        let row = rows::token(text, &need.request, &replaced)?;
        need.received_at = Some(now.boot);
        Some(row)
    }

    /// The cloud refused a token. Returns the line to log, once for each reason.
    pub(super) fn refused(
        &mut self,
        now: Now,
        need: &str,
        why: Box<str>,
        rng: &mut Rng,
    ) -> Option<String> {
        self.retry_after(now, need, rng.jitter_ms(QUERY_RETRY_MS));
        let need = self.needs.get_mut(need).filter(|need| need.refusal != why)?;
        need.refusal = why;
        let Need { request: TokenRequest { namespace, account, pod, .. }, refusal, .. } = need;
        Some(format!("cloud: no token of {namespace}/{account} for pod {pod}: {refusal}"))
    }

    pub(super) fn unanswered(&mut self, now: Now, need: &str) {
        self.retry_after(now, need, QUERY_RETRY_MS);
    }

    fn retry_after(&mut self, now: Now, need: &str, wait_ms: u64) {
        if let Some(need) = self.needs.get_mut(need) {
            need.state = State::Missing(now.boot.plus_ms(wait_ms));
        }
    }

    /// Requests tokens that are missing or expire soon.
    pub(super) fn step(&mut self, meta: &Meta, context: &mut CloudContext<'_>) {
        if std::mem::take(&mut self.stale) {
            self.compute_needs(meta);
        }
        let (now, wall) = (context.now.boot, context.now.timestamp());
        for (key, need) in &mut self.needs {
            let due = match need.state {
                State::Missing(at) => at <= now,
                State::Requested => false,
                State::Valid(until) => {
                    let is_old = until.zip(wall).is_some_and(|(until, now)| until <= now);
                    is_old && need.may_replace_at().is_none_or(|at| at <= now)
                }
            };
            if !due || meta.is_pending(key) {
                continue;
            }
            if !context.has_room() {
                return;
            }
            let request = Up::RequestToken(need.request.clone());
            context.request(RequestKind::Token(key.clone()), request);
            need.state = State::Requested;
        }
    }

    fn compute_needs(&mut self, meta: &Meta) {
        let mut old = std::mem::take(&mut self.needs);
        for object in meta.stored_objects() {
            let StoredObject::Pod(pod) = object else { continue };
            if pod.metadata.deletion_timestamp.is_some() || pod.status.phase.is_terminal() {
                continue;
            }
            let projected = pod.spec.volumes.iter().filter_map(|volume| volume.projected.as_ref());
            let sources = projected.flat_map(|projected| &projected.sources);
            for wanted in sources.filter_map(|source| source.service_account_token.as_ref()) {
                let mut need = Need::new(pod, wanted);
                let key = need.key();
                let before = old.remove(&key);
                let all = meta.tokens().map(|token| &**token);
                let TokenRequest { uid, audience, seconds, .. } = &need.request;
                let newest = token::newest(all, uid, audience, *seconds);
                need.state = match (newest, &before) {
                    (Some(token), _) => State::Valid(replace_at(token)),
                    (None, Some(Need { state: State::Valid(_), .. }) | None) => {
                        State::Missing(Instant(0))
                    }
                    (None, Some(before)) => before.state,
                };
                if let Some(before) = before {
                    (need.refusal, need.received_at) = (before.refusal, before.received_at);
                }
                self.needs.insert(key, need);
            }
        }
    }

    /// When the next request is due.
    pub(super) fn wake_at(&self, now: Now, meta: &Meta) -> Option<Instant> {
        let open = self.needs.iter().filter(|(key, _)| !meta.is_pending(key));
        let due = open.filter_map(|(_, need)| match need.state {
            State::Missing(at) => Some(at),
            State::Requested => None,
            State::Valid(until) => {
                let left_s = until?.0.saturating_sub(now.timestamp()?.0);
                let left_ms = u64::try_from(left_s).unwrap_or(0).saturating_mul(1000);
                need.may_replace_at().max(Some(now.boot.plus_ms(left_ms)))
            }
        });
        due.min()
    }
}

impl Need {
    fn new(pod: &Pod, wanted: &ServiceAccountToken) -> Self {
        let request = TokenRequest {
            namespace: pod.metadata.namespace.as_str().into(),
            account: pod.service_account().into(),
            pod: pod.metadata.name.as_str().into(),
            uid: pod.metadata.uid.as_str().into(),
            audience: wanted.audience.as_str().into(),
            seconds: wanted.seconds(),
        };
        Self { request, state: State::Requested, received_at: None, refusal: Box::default() }
    }

    /// The key of the token's row, as KubeEdge makes it from the request: in the format of Go.
    fn key(&self) -> Box<str> {
        let TokenRequest { namespace, account, pod, uid, audience, seconds } = &self.request;
        let audiences = match &**audience {
            "" => "(nil)".to_owned(),
            named => format!("{{{named:?}}}"),
        };
        let bound = format!(
            "v1.BoundObjectReference{{Kind:\"Pod\", APIVersion:\"v1\", Name:{pod:?}, UID:{uid:?}}}"
        );
        format!("{account:?}/{namespace:?}/[]string{audiences}/{seconds}/{bound}").into()
    }

    /// With a clock that is far ahead of the cloud's, each new token would be due at once.
    fn may_replace_at(&self) -> Option<Instant> {
        self.received_at.map(|at| at.plus_ms(TOKEN_AGAIN_MS))
    }
}

fn replace_at(token: &Token) -> Option<Timestamp> {
    let life_s = token.spec.expiration_seconds?;
    let ends_at = token.ends_at()?;
    let received_at = ends_at.0.saturating_sub(life_s);
    Some(Timestamp(received_at.saturating_add((life_s / 5 * 4).min(TOKEN_AGE_MAX_S))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::token::{Spec, Status};

    #[test]
    fn a_token_is_replaced_after_four_fifths_of_its_life_or_after_a_day() {
        let at_most_s = TOKEN_AGE_MAX_S / 4 * 5;
        for (life_s, age_s) in [
            (600, 480),
            (at_most_s - 5, TOKEN_AGE_MAX_S - 4),
            (at_most_s, TOKEN_AGE_MAX_S),
            (at_most_s + 5, TOKEN_AGE_MAX_S),
            (30 * at_most_s, TOKEN_AGE_MAX_S),
        ] {
            let ends_at = Timestamp(1_800_000_000 + life_s).to_string();
            let token = Token {
                spec: Spec { expiration_seconds: Some(life_s), ..Spec::default() },
                status: Status { expiration_timestamp: Some(ends_at.into()), ..Status::default() },
                ..Token::default()
            };
            assert_eq!(replace_at(&token), Some(Timestamp(1_800_000_000 + age_s)), "{life_s}");
        }
    }

    #[test]
    fn a_token_is_replaced_after_four_fifths_of_its_life_and_after_a_day_at_the_latest() {
        let end = "2027-01-22T08:00:00Z";
        let ends_at = Timestamp::parse(end).expect("a time").0;
        for (life_s, age_s) in [(600, 480), (86_400, 69_120), (7 * 86_400, 86_400)] {
            let mut token = Token::default();
            token.spec.expiration_seconds = Some(life_s);
            token.status.expiration_timestamp = Some(end.into());
            assert_eq!(replace_at(&token), Some(Timestamp(ends_at - life_s + age_s)), "{life_s}");
        }
    }

    #[test]
    fn the_key_is_the_one_that_kubeedge_gives_it() {
        let mut pod = Pod::default();
        "default".clone_into(&mut pod.metadata.namespace);
        "p2".clone_into(&mut pod.metadata.name);
        pod.metadata.uid = "d4d1".into();
        let url = "https://kubernetes.default.svc.cluster.local";
        let list = format!(r#"[]string{{"{url}"}}"#);
        for (audience, audiences) in [(url, &*list), ("", "[]string(nil)")] {
            let seconds = Some(3_607);
            let wanted = ServiceAccountToken {
                audience: audience.to_owned(),
                expiration_seconds: seconds,
                ..ServiceAccountToken::default()
            };
            let bound = r#"{Kind:"Pod", APIVersion:"v1", Name:"p2", UID:"d4d1"}"#;
            let expected =
                format!(r#""default"/"default"/{audiences}/3607/v1.BoundObjectReference{bound}"#);
            assert_eq!(*Need::new(&pod, &wanted).key(), *expected);
        }
    }
}
