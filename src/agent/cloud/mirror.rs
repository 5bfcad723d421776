//! Mirror pods: what the API server is shown of the pods of the manifest folder (behaviour spec
//! section 1.8).
//!
//! Such a pod is nobody's but the node's. For the cloud to see it, and for its scheduler to count
//! what it takes, the node makes a pod of the same name there (wire spec section 5), with an
//! annotation that says which incarnation it mirrors; statuses are told to that. The cloud sends
//! mirrors like all pods of the node, so the rows of the store tell which there are.
//!
//! ```text
//!  no mirror ──insert──▶ mirrored ──changed, deleted, or its pod is gone──delete──▶ no mirror
//! ```
//!
//! Intended behaviour: level-triggered. Whatever becomes of a mirror, the pod runs on. While it
//! ends its mirror stays, and so do all while the folder is not known as a whole.
//!
//! If we crash here: the rows and the folder are compared again.

use serde_json::{Value, json};

use super::answer::{Answer, Refusal};
use super::content::StoredObject;
use super::meta::Meta;
use super::requests::{CloudContext, RequestKind};
use super::talk;
use crate::agent::event::{Action, Out, Severity};
use crate::agent::pod::{Origin, Pod, Wanted};
use crate::agent::pods::Pods;
use crate::agent::source::MIRROR;
use crate::agent::time::{Backoff, Instant, Now};
use crate::limits::{DELETE_AGAIN_MS, MIRROR_POD_RETRY_MAX_MS, MIRROR_POD_RETRY_MIN_MS};

/// A mirror that the API server has, as far as the store knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mirror {
    /// Its own, which the API server gave it.
    pub uid: Box<str>,
    /// The incarnation that it mirrors: the uid of the static pod.
    pub of: Box<str>,
    /// Somebody deletes it.
    pub deleting: bool,
}

/// What was asked for, and is not to be asked for again yet.
#[derive(Debug, Default)]
pub(super) struct Mirrors {
    /// Of few: pods of the folder are written by hand.
    asked: Vec<Asked>,
    /// The revision of the pods, whether the folder was whole and the node known when all was
    /// compared; `None`: something else was learnt since.
    seen: Option<(u64, bool, bool)>,
    wake_at: Option<Instant>,
}

#[derive(Debug)]
struct Asked {
    /// `default/pod/web-gw`
    key: Box<str>,
    what: What,
    /// Not the same again before; `None`: it is not answered.
    until: Option<Instant>,
    backoff: Backoff,
    /// The mirror that the cloud said it has deleted.
    deleted: Option<Box<str>>,
    /// That there is a pod of this name was said before.
    refused: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Insertion,
    Deletion,
}

/// What the node is, and what is known of its folder.
#[derive(Clone, Copy, Debug)]
pub(super) struct Owner<'a> {
    /// The node's name.
    pub name: &'a str,
    /// Of the Node object; `None`: not known yet.
    pub uid: Option<&'a str>,
    /// Nothing of the folder is unknown: what has no pod there is no mirror of one.
    pub folder_is_whole: bool,
}

impl Mirrors {
    /// Something that decides which mirrors there are to be has changed.
    pub(super) fn stir(&mut self) {
        self.seen = None;
    }

    /// The link is new: nothing waits for the end of an old one.
    pub(super) fn up(&mut self) {
        *self = Self::default();
    }

    /// Takes the answer to an insertion or a deletion.
    pub(super) fn answered(
        &mut self,
        now: Now,
        kind: &RequestKind,
        answer: Answer,
        meta: &mut Meta,
        out: &mut Out,
    ) {
        self.stir();
        match kind {
            RequestKind::MirrorMake(key) => {
                let Some(asked) = self.about(key) else { return };
                // What is made is in the store before.
                asked.again(now);
                match answer {
                    Answer::Object(object) => {
                        asked.refused = false;
                        // No answer that the cloud waits for.
                        let _ = meta.put(key, "pod", object.get(), None);
                    }
                    Answer::Done => {}
                    Answer::Refused(why) => asked.is_refused(&why, out),
                }
            }
            RequestKind::MirrorDelete(key, uid) => {
                let Some(asked) = self.about(key) else { return };
                asked.again(now);
                match answer {
                    // It has told of the deletion long ago, or there was none to tell of.
                    Answer::Done | Answer::Object(_) if asked.deleted.as_ref() == Some(uid) => {
                        let _ = meta.delete(key, uid, None);
                    }
                    Answer::Done | Answer::Object(_) => {
                        asked.deleted = Some(uid.clone());
                        asked.until = Some(now.boot.plus_ms(DELETE_AGAIN_MS));
                    }
                    Answer::Refused(why) if why.is_not_found() || why.is_conflict() => {
                        let _ = meta.delete(key, uid, None);
                    }
                    Answer::Refused(_) => {}
                }
            }
            other => panic!("{other:?} is not about a mirror"),
        }
    }

    /// No answer came: clouds before 1.17 know no mirrors, and say nothing.
    pub(super) fn unanswered(&mut self, now: Now, kind: &RequestKind) {
        let (RequestKind::MirrorMake(key) | RequestKind::MirrorDelete(key, _)) = kind else {
            panic!("{kind:?} is not about a mirror");
        };
        self.stir();
        if let Some(asked) = self.about(key) {
            asked.again(now);
        }
    }

    fn about(&mut self, key: &str) -> Option<&mut Asked> {
        self.asked.iter_mut().find(|asked| *asked.key == *key)
    }

    /// Asks for what is missing, and for the end of what is too much.
    pub(super) fn step(
        &mut self,
        pods: &Pods,
        owner: Owner<'_>,
        meta: &Meta,
        context: &mut CloudContext<'_>,
    ) {
        let due = self.wake_at.is_some_and(|at| at <= context.now.boot);
        let seen = Some((pods.revision(), owner.folder_is_whole, owner.uid.is_some()));
        if self.seen == seen && !due {
            return;
        }
        self.seen = seen;
        self.wake_at = None;
        let statics = pods.iter().filter(|pod| pod.origin() == Origin::File);
        let statics: Vec<(String, &Pod)> =
            statics.map(|pod| (talk::of_pod(pod, "pod"), pod)).collect();
        let is_ending = |pod: &&Pod| *pod.wanted() == Wanted::No;
        // Of two of a name, the one that ends has the mirror.
        let of = |key: &str| {
            let all = || statics.iter().filter(|(other, _)| other == key).map(|(_, pod)| *pod);
            all().find(is_ending).or_else(|| all().next())
        };
        for (key, mirror) in meta.mirrors() {
            let ends = match of(key) {
                Some(pod) if is_ending(&pod) => false,
                Some(pod) => mirror.deleting || *mirror.of != **pod.uid(),
                None => owner.folder_is_whole,
            };
            if ends && self.may_ask(key, What::Deletion, context) {
                let kind = RequestKind::MirrorDelete(key.into(), mirror.uid.clone());
                context.ask(kind, "delete", key, Some(talk::deletion(&mirror.uid)));
            }
        }
        let Some(node_uid) = owner.uid else { return };
        for (key, pod) in &statics {
            let is_taken =
                matches!(meta.thing(key), Some(StoredObject::Mirror(_) | StoredObject::Pod(_)));
            if is_taken || meta.awaits(key) || of(key).as_ref().is_some_and(is_ending) {
                continue;
            }
            if self.may_ask(key, What::Insertion, context) {
                let kind = RequestKind::MirrorMake(key.as_str().into());
                let content = picture(pod, owner.name, node_uid);
                context.ask(kind, "insert", key, Some(talk::json(&content)));
            }
        }
        // Of what is as it is to be, nothing is remembered.
        self.asked.retain(|asked| {
            let key = &*asked.key;
            let to_be_there = asked.what == What::Insertion && of(key).is_some();
            let is_there = matches!(meta.thing(key), Some(StoredObject::Mirror(_)));
            asked.until.is_none() || to_be_there != is_there
        });
    }

    /// Whether it can be asked for now; if so, it is taken for asked.
    fn may_ask(&mut self, key: &str, what: What, context: &mut CloudContext<'_>) -> bool {
        let now = context.now.boot;
        let asked = self.asked.iter().position(|asked| *asked.key == *key);
        let later = match asked.map(|at| &self.asked[at]) {
            Some(Asked { until: None, .. }) => return false,
            Some(asked) if asked.what == what && asked.until > Some(now) => asked.until,
            _ if !context.has_room() => Some(now),
            _ => None,
        };
        if later.is_some() {
            self.wake_at = self.wake_at.into_iter().chain(later).min();
            return false;
        }
        match asked.map(|at| &mut self.asked[at]) {
            Some(asked) if asked.what == what => asked.until = None,
            Some(asked) => *asked = Asked::new(key, what),
            None => self.asked.push(Asked::new(key, what)),
        }
        true
    }

    /// When something is due, if nothing happens before.
    pub(super) fn wake_at(&self) -> Option<Instant> {
        self.wake_at
    }
}

impl Asked {
    fn new(key: &str, what: What) -> Self {
        let key = key.into();
        Self { key, what, until: None, backoff: Backoff::default(), deleted: None, refused: false }
    }

    /// It is tried again, ever more rarely.
    fn again(&mut self, now: Now) {
        let again_at =
            self.backoff.again(now.boot, MIRROR_POD_RETRY_MIN_MS, MIRROR_POD_RETRY_MAX_MS);
        self.until = Some(again_at);
    }

    /// The API server does not take it, mostly for what the pod uses. One that is there already is
    /// about to be heard of, if it is ours.
    fn is_refused(&mut self, why: &Refusal, out: &mut Out) {
        let is_new = !std::mem::replace(&mut self.refused, true);
        if is_new != why.is_conflict() {
            let line = format!("cloud: {} of the manifest folder is not shown: {why}", self.key);
            out.push(Action::Log(Severity::Warn, line));
        }
    }
}

/// The pod as the API server is to have it.
fn picture(pod: &Pod, node: &str, node_uid: &str) -> Value {
    let text = serde_json::to_string(pod.api()).expect("plain data");
    let mut mirror: Value = serde_json::from_str(&text).expect("it was JSON");
    mirror["apiVersion"] = "v1".into();
    mirror["kind"] = "Pod".into();
    mirror["status"].take();
    let metadata = &mut mirror["metadata"];
    if let Some(metadata) = metadata.as_object_mut() {
        let shown = ["name", "namespace", "labels", "annotations"];
        metadata.retain(|key, _| shown.contains(&&**key));
    }
    metadata["annotations"][MIRROR] = (**pod.uid()).into();
    metadata["ownerReferences"] = json!([{"apiVersion": "v1", "kind": "Node", "name": node,
        "uid": node_uid, "controller": true}]);
    // Or the cloud would delete it when the node is away for five minutes.
    let stays = json!({"operator": "Exists", "effect": "NoExecute"});
    match &mut mirror["spec"]["tolerations"] {
        Value::Array(tolerations) if tolerations.contains(&stays) => {}
        Value::Array(tolerations) => tolerations.push(stays),
        none => *none = json!([stays]),
    }
    mirror
}
