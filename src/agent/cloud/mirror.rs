//! Mirror pods: how the API server sees the static pods of the manifest folder (behaviour spec
//! section 1.8).
//!
//! A static pod belongs to the node alone. So that the cloud sees it, and its scheduler counts its
//! resources, the node creates a pod of the same name there (wire spec section 5), with an
//! annotation that names the incarnation that it mirrors; statuses are reported to that pod. The
//! cloud sends mirrors like all pods of the node, so the rows of the store show which mirrors
//! exist.
//!
//! ```text
//!  no mirror ──insert──▶ mirrored ──changed, deleted, or its pod is gone──delete──▶ no mirror
//! ```
//!
//! Intended behaviour: level-triggered. Whatever happens to a mirror, the pod keeps running. While
//! a static pod terminates its mirror stays, and all mirrors stay while the folder is not
//! completely known.
//!
//! If we crash here: the rows and the folder are compared again.

use super::meta::Meta;
use super::requests::{CloudContext, RequestKind};
use super::rows::{StoredObject, pod_key};
use crate::agent::event::{Action, Out, Severity};
use crate::agent::pod::{Origin, Pod, Wanted};
use crate::agent::pods::Pods;
use crate::agent::time::{Backoff, Instant, Now};
use crate::limits::{DELETE_RETRY_MS, MIRROR_POD_RETRY_MAX_MS, MIRROR_POD_RETRY_MIN_MS};
use crate::model::downstream::{Answer, Refusal};
use crate::model::pod as api;
use crate::model::pod::MIRROR;
use crate::model::upstream::Up;

/// The open requests, and those that wait for a retry.
#[derive(Debug, Default)]
pub(super) struct Mirrors {
    /// A short list: pods of the folder are written by hand.
    requests: Vec<MirrorRequest>,
    /// The revision of the pods, whether the folder was complete and the node's uid known at the
    /// last comparison; `None`: something else has changed since.
    compared_inputs: Option<(u64, bool, bool)>,
    wake_at: Option<Instant>,
}

#[derive(Debug)]
struct MirrorRequest {
    /// `default/pod/web-gw`
    key: Box<str>,
    change: MirrorChange,
    /// The same request is not repeated before this time; `None`: it is not answered yet.
    retry_at: Option<Instant>,
    backoff: Backoff,
    /// The mirror that the cloud said it has deleted.
    deleted: Option<Box<str>>,
    /// A refusal was logged.
    is_refusal_logged: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MirrorChange {
    Insertion,
    Deletion,
}

/// The node that owns the mirrors, and whether its folder is known.
#[derive(Clone, Copy, Debug)]
pub(super) struct Owner<'a> {
    pub name: &'a str,
    /// The uid of the Node object; `None`: not known yet.
    pub uid: Option<&'a str>,
    /// All pods of the folder are known: a mirror without a pod is left over.
    pub folder_is_whole: bool,
}

impl Mirrors {
    /// Something that decides which mirrors should exist has changed.
    pub(super) fn mark_dirty(&mut self) {
        self.compared_inputs = None;
    }

    /// A new session: no request is open, and retries do not wait.
    pub(super) fn up(&mut self) {
        *self = Self::default();
    }

    /// Takes the answer to the insertion of this key.
    pub(super) fn insertion_answered(
        &mut self,
        now: Now,
        key: &str,
        answer: Answer,
        meta: &mut Meta,
        out: &mut Out,
    ) {
        self.mark_dirty();
        let Some(request) = self.request_of(key) else { return };
        // A created mirror is in the store before the retry.
        request.retry_later(now);
        match answer {
            Answer::Object(object) => {
                request.is_refusal_logged = false;
                // The cloud waits for no acknowledgement.
                let _ = meta.put(key, "pod", &object.text, None);
            }
            Answer::Done => {}
            Answer::Refused(why) => request.log_refusal(&why, out),
        }
    }

    /// Takes the answer to the deletion of the mirror of this key and uid.
    pub(super) fn deletion_answered(
        &mut self,
        now: Now,
        (key, uid): (&str, &str),
        answer: &Answer,
        meta: &mut Meta,
    ) {
        self.mark_dirty();
        let Some(request) = self.request_of(key) else { return };
        request.retry_later(now);
        match answer {
            // The cloud sent the deletion long ago, or there was none to send.
            Answer::Done | Answer::Object(_) if request.deleted.as_deref() == Some(uid) => {
                let _ = meta.delete(key, uid, None);
            }
            Answer::Done | Answer::Object(_) => {
                request.deleted = Some(uid.into());
                request.retry_at = Some(now.boot.plus_ms(DELETE_RETRY_MS));
            }
            Answer::Refused(why) if why.is_not_found() || why.is_conflict() => {
                let _ = meta.delete(key, uid, None);
            }
            Answer::Refused(_) => {}
        }
    }

    /// No answer came: clouds before 1.17 do not know mirrors and do not answer.
    pub(super) fn unanswered(&mut self, now: Now, key: &str) {
        self.mark_dirty();
        if let Some(request) = self.request_of(key) {
            request.retry_later(now);
        }
    }

    fn request_of(&mut self, key: &str) -> Option<&mut MirrorRequest> {
        self.requests.iter_mut().find(|request| *request.key == *key)
    }

    /// Requests missing mirrors, and the deletion of those left over.
    pub(super) fn step(
        &mut self,
        pods: &Pods,
        owner: Owner<'_>,
        meta: &Meta,
        context: &mut CloudContext<'_>,
    ) {
        let due = self.wake_at.is_some_and(|at| at <= context.now.boot);
        let inputs = Some((pods.revision(), owner.folder_is_whole, owner.uid.is_some()));
        if self.compared_inputs == inputs && !due {
            return;
        }
        self.compared_inputs = inputs;
        self.wake_at = None;
        let statics = pods.iter().filter(|pod| pod.origin() == Origin::File);
        let statics: Vec<(String, &Pod)> = statics.map(|pod| (pod_key(pod, "pod"), pod)).collect();
        let is_ending = |pod: &&Pod| *pod.wanted() == Wanted::No;
        // Of two static pods with one name, the terminating one owns the mirror.
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
            if ends && self.may_request(key, MirrorChange::Deletion, context) {
                let (key, uid): (Box<str>, _) = (key.into(), mirror.uid.clone());
                let kind = RequestKind::MirrorDelete(key.clone(), uid.clone());
                context.request(kind, Up::DeletePod { key, uid });
            }
        }
        let Some(node_uid) = owner.uid else { return };
        for (key, pod) in &statics {
            let is_taken = matches!(
                meta.stored_object(key),
                Some(StoredObject::Mirror(_) | StoredObject::Pod(_))
            );
            if is_taken || meta.is_pending(key) || of(key).as_ref().is_some_and(is_ending) {
                continue;
            }
            if self.may_request(key, MirrorChange::Insertion, context) {
                let key: Box<str> = key.as_str().into();
                let kind = RequestKind::MirrorMake(key.clone());
                let (node, node_uid) = (owner.name.into(), node_uid.into());
                context
                    .request(kind, Up::InsertMirror { key, pod: mirror_of(pod), node, node_uid });
            }
        }
        // Nothing is remembered of mirrors that are as they should be.
        self.requests.retain(|request| {
            let key = &*request.key;
            let to_be_there = request.change == MirrorChange::Insertion && of(key).is_some();
            let is_there = matches!(meta.stored_object(key), Some(StoredObject::Mirror(_)));
            request.retry_at.is_none() || to_be_there != is_there
        });
    }

    /// Whether it can be requested now; if so, it is recorded as requested.
    fn may_request(
        &mut self,
        key: &str,
        change: MirrorChange,
        context: &mut CloudContext<'_>,
    ) -> bool {
        let now = context.now.boot;
        let request = self.requests.iter().position(|request| *request.key == *key);
        let later = match request.map(|at| &self.requests[at]) {
            Some(MirrorRequest { retry_at: None, .. }) => return false,
            Some(request) if request.change == change && request.retry_at > Some(now) => {
                request.retry_at
            }
            _ if !context.has_room() => Some(now),
            _ => None,
        };
        if later.is_some() {
            self.wake_at = self.wake_at.into_iter().chain(later).min();
            return false;
        }
        match request.map(|at| &mut self.requests[at]) {
            Some(request) if request.change == change => request.retry_at = None,
            Some(request) => *request = MirrorRequest::new(key, change),
            None => self.requests.push(MirrorRequest::new(key, change)),
        }
        true
    }

    pub(super) fn wake_at(&self) -> Option<Instant> {
        self.wake_at
    }
}

impl MirrorRequest {
    fn new(key: &str, change: MirrorChange) -> Self {
        let key = key.into();
        Self {
            key,
            change,
            retry_at: None,
            backoff: Backoff::default(),
            deleted: None,
            is_refusal_logged: false,
        }
    }

    /// Retries later, with a growing back-off.
    fn retry_later(&mut self, now: Now) {
        let retry_at =
            self.backoff.retry_at(now.boot, MIRROR_POD_RETRY_MIN_MS, MIRROR_POD_RETRY_MAX_MS);
        self.retry_at = Some(retry_at);
    }

    /// The API server refuses it, mostly because of what the pod uses. If a pod of this name exists
    /// and is ours, it is about to be received.
    fn log_refusal(&mut self, why: &Refusal, out: &mut Out) {
        let is_new = !std::mem::replace(&mut self.is_refusal_logged, true);
        if is_new != why.is_conflict() {
            let line =
                format!("cloud: no mirror pod for {} of the manifest folder: {why}", self.key);
            out.push(Action::Log(Severity::Warn, line));
        }
    }
}

/// The static pod with the annotation of its mirror.
fn mirror_of(pod: &Pod) -> Box<api::Pod> {
    let mut mirror = pod.api().clone();
    mirror.metadata.annotations.insert(MIRROR.to_owned(), (**pod.uid()).into());
    Box::new(mirror)
}
