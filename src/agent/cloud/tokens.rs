//! Tokens of service accounts for the cloud's pods: asked for, kept, and asked for again before
//! they end (wire spec section 5.9).
//!
//! A token is replaced after four fifths of its life, or after a day. One that has ended stays
//! where it is: without the cloud there is no other, and it is the cloud's to refuse it.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde_json::json;

use super::asks::{Mouth, Topic};
use super::content::Thing;
use super::meta::Meta;
use super::talk;
use crate::agent::time::{Instant, Now, Rng};
use crate::limits::{QUERY_RETRY_MS, TOKEN_AGE_MAX_S};
use crate::model::message::Resource;
use crate::model::pod::{Pod, ServiceAccountToken};
use crate::model::time::Timestamp;
use crate::model::token::Token;
use crate::model::tree;

/// What is needed, and how far that is.
#[derive(Debug, Default)]
pub(super) struct Tokens {
    /// Pods or tokens changed since this was worked out.
    stale: bool,
    /// By a name of our own.
    needs: BTreeMap<Box<str>, Need>,
}

#[derive(Clone, Debug)]
struct Need {
    namespace: Box<str>,
    account: Box<str>,
    pod: Box<str>,
    uid: Box<str>,
    audience: Box<str>,
    seconds: i64,
    state: State,
    /// Why the cloud did not give it last time.
    refused: Box<str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Not before.
    Missing(Instant),
    Asked,
    /// Good until it is to be replaced; `None`: until the end.
    Here(Option<Timestamp>),
}

impl Tokens {
    /// Pods or tokens have changed.
    pub(super) fn stir(&mut self) {
        self.stale = true;
    }

    /// The link is new: nothing was asked over it.
    pub(super) fn up(&mut self) {
        for need in self.needs.values_mut().filter(|need| !matches!(need.state, State::Here(_))) {
            need.state = State::Missing(Instant(0));
        }
    }

    /// The cloud gave it: it is here when it is kept. `false`: it is needed no more.
    pub(super) fn answered(&mut self, now: Now, need: &str) -> bool {
        self.again(now, need, QUERY_RETRY_MS);
        self.needs.contains_key(need)
    }

    /// The cloud did not give it. Returns what to say of that, once.
    pub(super) fn refused(
        &mut self,
        now: Now,
        need: &str,
        why: Box<str>,
        rng: &mut Rng,
    ) -> Option<String> {
        self.again(now, need, rng.jitter_ms(QUERY_RETRY_MS));
        let need = self.needs.get_mut(need).filter(|need| need.refused != why)?;
        need.refused = why;
        let Need { namespace, account, pod, refused, .. } = need;
        Some(format!("cloud: no token of {namespace}/{account} for pod {pod}: {refused}"))
    }

    /// No answer came.
    pub(super) fn unanswered(&mut self, now: Now, need: &str) {
        self.again(now, need, QUERY_RETRY_MS);
    }

    fn again(&mut self, now: Now, need: &str, wait_ms: u64) {
        if let Some(need) = self.needs.get_mut(need) {
            need.state = State::Missing(now.boot.plus_ms(wait_ms));
        }
    }

    /// Asks for what is needed and not here, or not for long.
    pub(super) fn step(&mut self, meta: &Meta, mouth: &mut Mouth<'_>) {
        if std::mem::take(&mut self.stale) {
            self.work_out(meta);
        }
        let (now, wall) = (mouth.now.boot, mouth.now.timestamp());
        for (name, need) in &mut self.needs {
            let due = match need.state {
                State::Missing(at) => at <= now,
                State::Asked => false,
                State::Here(until) => until.zip(wall).is_some_and(|(until, now)| until <= now),
            };
            if !due {
                continue;
            }
            if !mouth.has_room() {
                return;
            }
            let resource = Resource {
                namespace: Some(&need.namespace),
                kind: "serviceaccounttoken",
                name: &need.account,
            };
            let audiences = (!need.audience.is_empty()).then_some([&*need.audience]);
            let content = json!({
                "metadata": {"creationTimestamp": null},
                "spec": {
                    "audiences": audiences,
                    "expirationSeconds": need.seconds,
                    "boundObjectRef": {
                        "kind": "Pod", "apiVersion": "v1", "name": need.pod, "uid": need.uid,
                    },
                },
                "status": {"token": "", "expirationTimestamp": null},
            });
            let topic = Topic::Token(name.clone());
            mouth.ask(topic, "query", &resource.to_string(), Some(talk::json(&content)));
            need.state = State::Asked;
        }
    }

    fn work_out(&mut self, meta: &Meta) {
        let mut old = std::mem::take(&mut self.needs);
        for thing in meta.things() {
            let Thing::Pod(pod) = thing else { continue };
            if pod.metadata.deletion_timestamp.is_some() || pod.status.phase.is_terminal() {
                continue;
            }
            let projected = pod.spec.volumes.iter().filter_map(|volume| volume.projected.as_ref());
            let sources = projected.flat_map(|projected| &projected.sources);
            for wanted in sources.filter_map(|source| source.service_account_token.as_ref()) {
                let (name, mut need) = need(pod, wanted);
                let before = old.remove(&name);
                need.state = match (newest(meta, &need), &before) {
                    (Some(token), _) => State::Here(replace_at(token)),
                    (None, Some(Need { state: State::Here(_), .. }) | None) => {
                        State::Missing(Instant(0))
                    }
                    (None, Some(before)) => before.state,
                };
                need.refused = before.map(|before| before.refused).unwrap_or_default();
                self.needs.insert(name, need);
            }
        }
    }

    /// When the next question is due, if nothing happens before.
    pub(super) fn wake_at(&self, now: Now) -> Option<Instant> {
        let due = self.needs.values().filter_map(|need| match need.state {
            State::Missing(at) => Some(at),
            State::Asked => None,
            State::Here(until) => {
                let left_s = until?.0.saturating_sub(now.timestamp()?.0);
                Some(now.boot.plus_ms(u64::try_from(left_s).unwrap_or(0).saturating_mul(1000)))
            }
        });
        due.min()
    }
}

fn need(pod: &Pod, wanted: &ServiceAccountToken) -> (Box<str>, Need) {
    let need = Need {
        namespace: pod.metadata.namespace.as_str().into(),
        account: pod.service_account().into(),
        pod: pod.metadata.name.as_str().into(),
        uid: pod.metadata.uid.as_str().into(),
        audience: wanted.audience.as_str().into(),
        seconds: wanted.seconds(),
        state: State::Asked,
        refused: Box::default(),
    };
    let name = format!("{}/{}/{}/{}", need.uid, need.account, need.audience, need.seconds);
    (name.into(), need)
}

fn newest<'a>(meta: &'a Meta, need: &Need) -> Option<&'a Token> {
    let fits = |token: &&Token| {
        token.pod_uid() == &*need.uid && token.answers(&need.account, &need.audience, need.seconds)
    };
    meta.tokens().map(|token| &**token).filter(fits).max_by_key(|token| token.ends_at())
}

fn replace_at(token: &Token) -> Option<Timestamp> {
    let life_s = token.spec.expiration_seconds?;
    let ends_at = token.ends_at()?;
    let given_at = ends_at.0.saturating_sub(life_s);
    Some(Timestamp(given_at.saturating_add((life_s / 5 * 4).min(TOKEN_AGE_MAX_S))))
}

/// The key of a token's row, as KubeEdge has it: in Go's words.
pub(super) fn key(text: &str) -> Option<Box<str>> {
    let token: Token = tree::of_json(text).ok()?;
    let mut key = format!("{:?}/{:?}/", token.metadata.name, token.metadata.namespace);
    match &token.spec.audiences {
        None => key.push_str("[]string(nil)"),
        Some(audiences) => {
            let list: Vec<String> = audiences.iter().map(|told| format!("{told:?}")).collect();
            write!(key, "[]string{{{}}}", list.join(", ")).expect("a text takes all");
        }
    }
    let bound = token.spec.bound_object_ref.as_ref()?;
    write!(
        key,
        "/{}/v1.BoundObjectReference{{Kind:\"Pod\", APIVersion:\"v1\", Name:{:?}, UID:{:?}}}",
        token.spec.expiration_seconds?, bound.name, bound.uid
    )
    .expect("a text takes all");
    Some(key.into())
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_key_is_the_one_that_kubeedge_gives_it() {
        let text = r#"{"metadata":{"name":"default","namespace":"default"},"spec":{
            "audiences":["https://kubernetes.default.svc.cluster.local"],
            "expirationSeconds":3607,
            "boundObjectRef":{"kind":"Pod","apiVersion":"v1","name":"p2","uid":"d4d1"}},
            "status":{"token":"x","expirationTimestamp":"2026-11-20T19:36:29Z"}}"#;
        let audiences = r#"[]string{"https://kubernetes.default.svc.cluster.local"}"#;
        let bound = r#"{Kind:"Pod", APIVersion:"v1", Name:"p2", UID:"d4d1"}"#;
        let expected =
            format!(r#""default"/"default"/{audiences}/3607/v1.BoundObjectReference{bound}"#);
        assert_eq!(super::key(text).as_deref(), Some(&*expected));
    }
}
