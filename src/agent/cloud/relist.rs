//! The list of all pods that the cloud wants here: asked for where the store was new or lost.
//!
//! KubeEdge's cloud tells a node nothing twice that it has acknowledged, so a node that lost its
//! store has to ask. The protocol has one question for that, MetaServer's (wire spec sections 4.12
//! and 5.12): a list by the cloud's dynamic controller, which reads the API server itself. A cloud
//! without that one does not answer; then the store fills with what is pushed, as before.
//!
//! ```text
//!  Resting ──due──▶ Asked ──a page──▶ Keeping ──durable──▶ Asked … ──▶ Keeping ──durable──▶ whole
//!     ▲                └──none, refused, no room──┐
//!     └───────────────────────────────────────────┘ after a while
//! ```
//!
//! Intended behaviour: pods of the list are kept as if they had been pushed. When all of them are
//! durable the store holds all there is, and what else runs here is nobody's. A pod of the list
//! that cannot be kept is still the cloud's, so then nothing follows.
//!
//! If we crash here: the next life asks again.

use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;

use super::meta::{ChangeOutcome, Meta};
use super::requests::{CloudContext, RequestKind};
use super::{bulk, talk};
use crate::agent::event::{Action, Out, Severity};
use crate::agent::time::{Backoff, Instant, Now};
use crate::limits::{RELIST_PAGE, RELIST_RETRY_MAX_MS, RELIST_RETRY_MIN_MS};
use crate::model::message::{Message, Resource};
use crate::model::{base64, message};

/// The list, as far as it has come.
#[derive(Debug)]
pub(super) struct Relist {
    state: State,
    /// Pods of one answer: fewer, once no answer came. It may have been too large for the link.
    page: u32,
    backoff: Backoff,
    /// What was last said to be wrong.
    said: Option<String>,
}

#[derive(Debug)]
enum State {
    /// Not asked; not before.
    Resting(Instant),
    Asked,
    /// What came is about to be durable; then it goes on behind this. `None`: that was all.
    Keeping(Option<Box<str>>),
}

/// As of the answer's content.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Application {
    status: Box<str>,
    #[serde(default)]
    reason: Option<Box<str>>,
    #[serde(default)]
    error: Option<Failure>,
    #[serde(default)]
    resp_body: Option<Box<str>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Failure {
    #[serde(default)]
    err_status: Words,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Words {
    message: Box<str>,
}

/// core/v1 `PodList`
#[derive(Deserialize)]
struct List<'a> {
    kind: Option<Box<str>>,
    #[serde(default)]
    metadata: ListMetadata,
    /// Nothing is `null`; what has no such key is no list.
    #[serde(borrow, deserialize_with = "Option::deserialize")]
    items: Option<Vec<&'a RawValue>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ListMetadata {
    r#continue: Option<Box<str>>,
}

#[derive(Deserialize)]
struct Named {
    metadata: Names,
}

#[derive(Deserialize)]
struct Names {
    name: Box<str>,
    namespace: Box<str>,
}

impl Default for Relist {
    fn default() -> Self {
        let state = State::Resting(Instant(0));
        Self { state, page: RELIST_PAGE, backoff: Backoff::default(), said: None }
    }
}

impl Relist {
    /// Takes the answer.
    pub(super) fn answered(&mut self, now: Now, answer: &Message, meta: &mut Meta, out: &mut Out) {
        match keep(answer, meta) {
            Ok(next) => {
                self.state = State::Keeping(next);
                self.conclude(meta, out);
            }
            Err(why) => {
                self.again(now);
                self.say(format!("store: the cloud's list of pods is of no use: {why}"), out);
            }
        }
    }

    /// No answer came.
    pub(super) fn unanswered(&mut self, now: Now) {
        self.page = 1;
        self.again(now);
    }

    fn again(&mut self, now: Now) {
        let again_at = self.backoff.again(now.boot, RELIST_RETRY_MIN_MS, RELIST_RETRY_MAX_MS);
        self.state = State::Resting(again_at);
    }

    fn say(&mut self, line: String, out: &mut Out) {
        if self.said.as_ref() != Some(&line) {
            out.push(Action::Log(Severity::Warn, line.clone()));
            self.said = Some(line);
        }
    }

    /// Something has become durable: was it the last of the list?
    pub(super) fn conclude(&mut self, meta: &mut Meta, out: &mut Out) {
        if meta.is_broken() && meta.is_settled() && matches!(self.state, State::Keeping(None)) {
            let line = "store: all pods that the cloud wants here are kept; others end";
            out.push(Action::Log(Severity::Info, line.to_owned()));
            meta.is_whole();
        }
    }

    /// Asks for what has not come.
    pub(super) fn step(&mut self, node: &str, meta: &Meta, context: &mut CloudContext<'_>) {
        if !meta.is_broken() {
            return;
        }
        let next = match &self.state {
            State::Resting(at) if *at <= context.now.boot => "",
            State::Keeping(Some(next)) if meta.is_settled() => next,
            State::Resting(_) | State::Asked | State::Keeping(_) => return,
        };
        if !context.has_room() {
            return;
        }
        let content = talk::json(&question(node, self.page, next));
        let message = talk::application(context.rng, context.now, content);
        context.ask_by(RequestKind::Pods, message);
        self.state = State::Asked;
    }

    /// When something is due, if nothing happens before.
    pub(super) fn wake_at(&self, meta: &Meta) -> Option<Instant> {
        match &self.state {
            State::Resting(at) if meta.is_broken() => Some(*at),
            State::Keeping(Some(_)) if meta.is_broken() && meta.is_settled() => Some(Instant(0)),
            State::Resting(_) | State::Asked | State::Keeping(_) => None,
        }
    }
}

/// No `resourceVersion`: the API server answers by what is, not by what some cache of it has.
fn question(node: &str, page: u32, next: &str) -> serde_json::Value {
    let mut options = json!({"fieldSelector": format!("spec.nodeName={node}"), "limit": page});
    if !next.is_empty() {
        options["continue"] = next.into();
    }
    json!({
        // KubeEdge has a digest here, by which it knows watches again. This is none.
        "ID": "edged", "Key": "/core/v1/pods/null/null", "Verb": "list", "Nodename": node,
        "Option": base64::encode(options.to_string().as_bytes()), "ReqBody": "",
        "Subresource": "", "RespBody": null, "Status": "InApplying", "Reason": "",
    })
}

/// Keeps the pods of an answer; says behind what the list goes on.
fn keep(answer: &Message, meta: &mut Meta) -> Result<Option<Box<str>>, String> {
    let content = answer.content.as_deref().ok_or("got no content")?;
    let text = message::inner(content);
    let told: Application =
        serde_json::from_str(&text).map_err(|error| format!("got no Application: {error}"))?;
    if &*told.status != "Approved" {
        let said = told.error.map(|error| error.err_status.message).filter(|it| !it.is_empty());
        let said = said.or(told.reason).unwrap_or_default();
        return Err(format!("got {}, expected Approved: {said}", told.status));
    }
    let body = told.resp_body.as_deref().and_then(base64::decode).ok_or("got no base64")?;
    drop(text);
    let body = String::from_utf8(body).map_err(|_| "got no UTF-8".to_owned())?;
    bulk::within_a_message(&body, &meta.budget())?;
    let list: List<'_> =
        serde_json::from_str(&body).map_err(|error| format!("got no list: {error}"))?;
    if list.kind.as_deref().is_some_and(|kind| !matches!(kind, "PodList" | "List")) {
        return Err(format!("got a {}, expected a PodList", list.kind.unwrap_or_default()));
    }
    for item in list.items.unwrap_or_default() {
        let Named { metadata: Names { name, namespace } } =
            serde_json::from_str(item.get()).map_err(|error| format!("got no pod: {error}"))?;
        let key = Resource { namespace: Some(&namespace), kind: "pod", name: &name }.to_string();
        match meta.put(&key, "pod", item.get(), None) {
            ChangeOutcome::Waits | ChangeOutcome::Settled => {}
            ChangeOutcome::Dropped => return Err(format!("{key}: too much waits to be kept")),
            ChangeOutcome::Refused(why) => return Err(format!("{key}: {why}")),
        }
    }
    Ok(list.metadata.r#continue.filter(|next| !next.is_empty()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::Budget;
    use crate::model::meta::Saved;

    #[test]
    fn a_list_that_does_not_come_is_asked_for_ever_more_rarely() {
        let mut meta = Meta::new("gw", Budget::FULL);
        let origin = crate::model::meta::StoreOrigin::New;
        meta.load(Saved { rows: Vec::new(), origin }, &mut Out::default());
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
