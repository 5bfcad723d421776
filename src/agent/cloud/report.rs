//! What the cloud is told of its pods (wire spec sections 5.6 and 5.7): their statuses, and that
//! nothing of one is left that it wants gone.
//!
//! Intended behaviour: level-triggered. Of each pod it is remembered which status the cloud has, as
//! far as that is known: as it came with the pod, or with the answer to our last patch. What is
//! told is the difference to that; the latest wins. An update whose only news is a status that we
//! wrote makes no difference and is not answered.
//!
//! A pod that is just being started is told of when it runs, or after [`REPORT_GATHER_MS`]: each
//! patch brings the whole pod back over the link, twice.
//!
//! A pod that the API server does not have is asked for once more after [`GONE_AGAIN_MS`], by
//! telling all of it again. Mostly its deletion has come by then. Where the Node was deleted while
//! the gateway was away nobody tells of that, since the cloud has forgotten what it sent there:
//! then the second answer is taken for the deletion, as a kubelet ends what the API server has not.
//!
//! If we crash here: the next life knows nothing of what the cloud has, and tells of each pod once
//! as a whole.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::answer::{Answer, Refusal};
use super::meta::Meta;
use super::mirror::Mirror;
use super::requests::{CloudContext, RequestKind};
use super::terminal_status::TerminalStatuses;
use super::{patch, talk};
use crate::agent::calls::Uid;
use crate::agent::event::{Action, Out, Severity};
use crate::agent::pod::{Origin, Pod, Wanted};
use crate::agent::pods::Pods;
use crate::agent::time::{Instant, Now};
use crate::limits::{DELETE_AGAIN_MS, GONE_AGAIN_MS, REPORT_GATHER_MS, REPORT_RETRY_MS};
use crate::model::status::{ConditionKind, Phase};

/// What the cloud has of each pod.
#[derive(Debug, Default)]
pub(super) struct Report {
    pods: BTreeMap<Uid, PodReport>,
    /// At this revision of the pods all was told that was not to wait, in this form; `None`:
    /// something else was learnt since.
    seen: Option<(u64, bool)>,
    /// When something is due that waits for its time.
    wake_at: Option<Instant>,
}

/// What decides how and when the cloud is told.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReportInputs<'a> {
    /// Whose ends are kept.
    pub ended: &'a TerminalStatuses,
    /// What is kept.
    pub meta: &'a Meta,
    /// The cloud knows no patches.
    pub is_legacy: bool,
}

#[derive(Debug, Default)]
struct PodReport {
    /// `status` as the cloud has it, JSON; `None`: not known.
    base: Option<Box<str>>,
    /// The pod's `resourceVersion` with it; 0: not known.
    version: u64,
    /// The revision of our status that the cloud has.
    has: Option<u64>,
    /// The one that is on its way.
    asked: Option<u64>,
    /// Since when there is something to tell.
    since: Option<Instant>,
    retry_at: Option<Instant>,
    /// The patch that was taken last: where it changed nothing, it is not sent again.
    last: Option<Box<str>>,
    deletion: Deletion,
    /// The cloud has no such pod any more: nobody listens.
    gone: Option<Gone>,
    /// Heard of, and not among the pods yet: it is about to be kept.
    is_new: bool,
    /// What was last said to be wrong.
    said: Option<Box<str>>,
}

/// That the cloud has no such pod.
#[derive(Clone, Copy, Debug)]
struct Gone {
    /// When it said so last.
    at: Instant,
    /// Those were the API server's own words.
    is_sure: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Deletion {
    #[default]
    NotAsked,
    Asked,
    /// The cloud will say that the pod is gone; asked again if it does not.
    Done(Instant),
}

/// Of a pod's message, what is told of its status.
#[derive(Deserialize)]
struct StatusMessage<'a> {
    metadata: Names,
    #[serde(borrow)]
    status: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Names {
    uid: Box<str>,
    resource_version: Box<str>,
}

impl Report {
    /// Something that decides what is told has changed.
    pub(super) fn stir(&mut self) {
        self.seen = None;
    }

    /// The cloud told of a pod, with the status that it has.
    pub(super) fn heard(&mut self, text: &str) {
        self.stir();
        let Ok(StatusMessage { metadata, status }) =
            serde_json::from_str::<StatusMessage<'_>>(text)
        else {
            return;
        };
        let version = metadata.resource_version.parse().unwrap_or(0);
        let new = || PodReport { is_new: true, ..PodReport::default() };
        let told = self.pods.entry(metadata.uid).or_insert_with(new);
        if version >= told.version {
            told.version = version;
            told.base = Some(status.map_or("{}", RawValue::get).into());
            told.has = None;
            told.gone = None;
        }
    }

    /// Takes the answer to a patch or a deletion of the pod of this name. Says whether there is no
    /// such pod any more, and nobody else will say so.
    pub(super) fn answered(
        &mut self,
        now: Now,
        (kind, name): (&RequestKind, &str),
        answer: Answer,
        out: &mut Out,
    ) -> bool {
        self.stir();
        let retry_at = Some(now.boot.plus_ms(REPORT_RETRY_MS));
        match kind {
            RequestKind::PodStatus(uid) => {
                let Some(told) = self.pods.get_mut(uid) else { return false };
                let asked = told.asked.take();
                told.since = None;
                match answer {
                    Answer::Object(object) => {
                        (told.said, told.gone) = (None, None);
                        // What it has now is compared once more: a patch to a status that was not
                        // known takes nothing away.
                        self.heard(object.get());
                    }
                    // The form of old clouds: it has what we said.
                    Answer::Done => {
                        told.said = None;
                        told.has = asked;
                    }
                    Answer::Refused(refusal) if refusal.is_not_found() || refusal.is_conflict() => {
                        return told.is_missing(now, (uid, name), &refusal, out);
                    }
                    Answer::Refused(refusal) => {
                        told.retry_at = retry_at;
                        told.last = None;
                        let why = refusal.to_string();
                        if told.said.as_deref() != Some(&*why) {
                            let line =
                                format!("cloud: the status of pod uid={uid} is not taken: {why}");
                            out.push(Action::Log(Severity::Warn, line));
                            told.said = Some(why.into());
                        }
                    }
                }
            }
            RequestKind::PodDelete(uid) => {
                let Some(told) = self.pods.get_mut(uid) else { return false };
                told.retry_at = retry_at;
                told.deletion = match answer {
                    Answer::Done | Answer::Object(_) => Deletion::Done(now.boot),
                    Answer::Refused(refusal) if refusal.is_not_found() => Deletion::Done(now.boot),
                    Answer::Refused(_) => Deletion::NotAsked,
                };
            }
            other => panic!("{other:?} is not about a pod"),
        }
        false
    }

    /// No answer came.
    pub(super) fn unanswered(&mut self, now: Now, kind: &RequestKind) {
        let (RequestKind::PodStatus(uid) | RequestKind::PodDelete(uid)) = kind else {
            panic!("{kind:?} is not about a pod");
        };
        self.stir();
        let Some(told) = self.pods.get_mut(uid) else { return };
        told.retry_at = Some(now.boot.plus_ms(REPORT_RETRY_MS));
        match kind {
            // It may have arrived.
            RequestKind::PodStatus(_) => (told.asked, told.base, told.last) = (None, None, None),
            _ => told.deletion = Deletion::NotAsked,
        }
    }

    /// The link is new: nothing waits for the end of an old one.
    pub(super) fn up(&mut self) {
        self.stir();
        for told in self.pods.values_mut() {
            told.retry_at = None;
            told.deletion = Deletion::NotAsked;
            // It may have lost what it took, with its store.
            told.last = None;
            // What was not kept comes again.
            told.is_new = false;
        }
    }

    /// Tells what the cloud does not have.
    pub(super) fn step(
        &mut self,
        pods: &Pods,
        known: ReportInputs<'_>,
        context: &mut CloudContext<'_>,
    ) {
        let due = self.wake_at.is_some_and(|at| at <= context.now.boot);
        let seen = Some((pods.revision(), known.is_legacy));
        if self.seen == seen && !due {
            return;
        }
        self.seen = seen;
        self.wake_at = None;
        // Of pods of the manifest folder it is their mirrors that have a status in the cloud.
        let mirrored = |(_, mirror): (&str, &Mirror)| {
            let pod = pods.get(&mirror.of).filter(|pod| pod.origin() == Origin::File)?;
            Some((Uid::from(&*mirror.uid), pod))
        };
        let mirrors: Vec<(Uid, &Pod)> = known.meta.mirrors().filter_map(mirrored).collect();
        let shown: BTreeSet<&Uid> = mirrors.iter().map(|(mirror, _)| mirror).collect();
        self.pods.retain(|uid, told| {
            let is_here = pods.get(uid).is_some() || shown.contains(uid);
            told.is_new &= !is_here;
            is_here || told.is_new
        });
        let ours = |pod: &&Pod| pod.origin() == Origin::Cloud && *pod.wanted() == Wanted::Yes;
        let of_cloud = pods.iter().filter(ours).map(|pod| (pod.uid().clone(), pod));
        for (uid, pod) in of_cloud.chain(mirrors) {
            let told = self.pods.entry(uid.clone()).or_default();
            let at = told.step(&uid, pod, known, context);
            self.wake_at = self.wake_at.into_iter().chain(at).min();
        }
    }

    /// When something is due, if nothing happens before.
    pub(super) fn wake_at(&self) -> Option<Instant> {
        self.wake_at
    }
}

impl PodReport {
    /// Tells of one pod; says when there is something to do that waits for its time.
    fn step(
        &mut self,
        uid: &Uid,
        pod: &Pod,
        known: ReportInputs<'_>,
        context: &mut CloudContext<'_>,
    ) -> Option<Instant> {
        let now = context.now.boot;
        if self.asked.is_some() {
            return None;
        }
        if let Some(Gone { at, .. }) = self.gone {
            let again_at = at.plus_ms(GONE_AGAIN_MS);
            if again_at > now {
                return Some(again_at);
            }
            (self.base, self.has, self.last) = (None, None, None);
        }
        let of_cloud = pod.origin() == Origin::Cloud;
        let is_cleared = of_cloud && pod.is_cleared();
        let current = self.has == Some(pod.status_revision());
        if current && !is_cleared {
            self.since = None;
            return None;
        }
        if let Some(at) = self.retry_at.filter(|&at| at > now) {
            return Some(at);
        }
        if !current {
            // A static pod that has ended may run again, with the next boot.
            if !pod.is_inspected() || of_cloud && !known.ended.is_kept(known.meta, pod) {
                return None;
            }
            if let Some(at) = self.gathers(pod, now) {
                return Some(at);
            }
            let at = self.tell(uid, pod, known.is_legacy, context);
            if self.has != Some(pod.status_revision()) || !is_cleared {
                return at;
            }
        }
        self.delete(pod, known.is_legacy, context)
    }

    /// The cloud has no such pod. Says whether it said so before, both times without a doubt.
    fn is_missing(
        &mut self,
        now: Now,
        (uid, name): (&Uid, &str),
        why: &Refusal,
        out: &mut Out,
    ) -> bool {
        let is_sure = why.has_no_pod(name);
        let before = self.gone.replace(Gone { at: now.boot, is_sure });
        // It was not taken: where the pod is there again, it is told of again.
        self.last = None;
        if before.is_none() {
            let line = format!("cloud: it has no such pod, which runs on: uid={uid}: {why}");
            out.push(Action::Log(Severity::Warn, line));
        }
        is_sure && before.is_some_and(|before| before.is_sure)
    }

    /// Until when it is waited for more to tell.
    fn gathers(&mut self, pod: &Pod, now: Instant) -> Option<Instant> {
        let since = *self.since.get_or_insert(now);
        let starts = pod.api().status.phase == Phase::Pending && pod.is_active();
        let until = since.plus_ms(REPORT_GATHER_MS);
        (starts && until > now).then_some(until)
    }

    fn tell(
        &mut self,
        uid: &Uid,
        pod: &Pod,
        is_legacy: bool,
        context: &mut CloudContext<'_>,
    ) -> Option<Instant> {
        let api = pod.api();
        let revision = pod.status_revision();
        let mut status = serde_json::to_value(&api.status).expect("plain data");
        if !is_legacy && let Some(status) = status.as_object_mut() {
            // Given once and for all when the pod was made.
            status.remove("qosClass");
        }
        let base: Option<Value> =
            self.base.as_ref().and_then(|base| serde_json::from_str(base).ok());
        let is_fully_observed = base.is_some();
        let of_cloud = pod.origin() == Origin::Cloud;
        if of_cloud && base.as_ref().is_some_and(is_over) && !api.status.phase.is_terminal() {
            // Somebody has said that it has ended, which is about to be durable here.
            return None;
        }
        let difference = match base {
            _ if is_legacy => Some(status),
            Some(base) => patch::diff(&ours(base, pod), &status),
            None => Some(whole(status)),
        };
        let Some(difference) = difference else {
            self.has = Some(revision);
            self.since = None;
            return None;
        };
        if !context.has_room() {
            return Some(context.now.boot);
        }
        let metadata = &api.metadata;
        let resource = |kind| talk::of_pod(pod, kind);
        let kind = RequestKind::PodStatus(uid.clone());
        if is_legacy {
            let content = json!({"UID": uid, "Name": metadata.name, "Status": difference});
            context.ask(kind, "update", &resource("podstatus"), Some(talk::json(&content)));
        } else {
            let mut patch = json!({"metadata": {"uid": uid}});
            patch["status"] = difference;
            let text = serde_json::to_string(&patch).expect("plain data");
            if self.last.as_deref() == Some(&*text) && is_fully_observed {
                // Taken before, and the cloud still has something else: it wants it so.
                self.has = Some(revision);
                return None;
            }
            // A JSON text that holds JSON, as KubeEdge has it.
            context.ask(kind, "patch", &resource("podpatch"), Some(talk::json(&text)));
            self.last = Some(text.into());
        }
        self.asked = Some(revision);
        None
    }

    /// Nothing of the pod is left here, and the cloud knows: it may forget it (section 5.7).
    fn delete(
        &mut self,
        pod: &Pod,
        is_legacy: bool,
        context: &mut CloudContext<'_>,
    ) -> Option<Instant> {
        // An old cloud deletes by itself.
        if is_legacy || self.deletion == Deletion::Asked {
            return None;
        }
        let now = context.now.boot;
        if let Deletion::Done(at) = self.deletion
            && at.plus_ms(DELETE_AGAIN_MS) > now
        {
            return Some(at.plus_ms(DELETE_AGAIN_MS));
        }
        if !context.has_room() {
            return Some(now);
        }
        let kind = RequestKind::PodDelete(pod.uid().clone());
        context.ask(kind, "delete", &talk::of_pod(pod, "pod"), Some(talk::deletion(pod.uid())));
        self.deletion = Deletion::Asked;
        None
    }
}

fn is_over(status: &Value) -> bool {
    matches!(status["phase"].as_str(), Some("Succeeded" | "Failed"))
}

/// What of a status in the cloud is the node's to tell: others set conditions of their own, and one
/// kind is set by whoever makes the pod go.
fn ours(mut status: Value, pod: &Pod) -> Value {
    if let Some(status) = status.as_object_mut() {
        status.remove("qosClass");
    }
    let is_ours = |condition: &Value| {
        condition["type"].as_str().and_then(ConditionKind::parse).is_some_and(|kind| {
            let told = || pod.api().status.conditions.iter().any(|told| told.kind == kind);
            // Nobody but the node makes a static pod go.
            let theirs = kind == ConditionKind::DisruptionTarget && pod.origin() == Origin::Cloud;
            !theirs || told()
        })
    };
    if let Some(conditions) = status.get_mut("conditions").and_then(Value::as_array_mut) {
        conditions.retain(is_ours);
    }
    status
}

/// The whole status as a patch to one that is not known: lists that would be merged are replaced,
/// but conditions, of which others may have set some. Why it is as it is may have been told by an
/// earlier life, and be true no more.
fn whole(mut status: Value) -> Value {
    for word in ["reason", "message"] {
        if status.get(word).is_none() {
            status[word] = Value::Null;
        }
    }
    for list in ["podIPs", "hostIPs"] {
        if let Some(list) = status.get_mut(list).and_then(Value::as_array_mut) {
            list.insert(0, json!({"$patch": "replace"}));
        }
    }
    status
}

#[cfg(test)]
mod tests {
    use serde_json::value::to_raw_value;
    use serde_json::{Value, json};

    use super::super::{Cloud, hub::Hub};
    use super::{CloudContext, Pods, ReportInputs};
    use crate::agent::event::Out;
    use crate::agent::time::{Instant, Now, Rng};
    use crate::limits::{Budget, META_WAITING_MAX};
    use crate::model::link::Session;
    use crate::model::message::{Header, Message, Route};
    use crate::model::settings::CloudSettings;

    #[test]
    fn of_pods_that_are_not_kept_nothing_is_remembered() {
        let now = Now { boot: Instant(7), wall: None };
        let (mut rng, mut out) = (Rng::new(1), Out::default());
        let settings = CloudSettings::default();
        let mut cloud = Cloud::new(&settings, "gw", Budget::FULL, now);
        cloud.hub = Hub::new(&settings, now);
        cloud.hub.step(now, true, &mut rng, &mut out);
        assert!(cloud.hub.up(now, Session(1), &mut out));
        let message = |id: String, resource: &str, object: &Value| Message {
            header: Header { id: id.into(), ..Header::default() },
            route: Route {
                source: "edgecontroller".into(),
                group: "resource".into(),
                operation: "update".into(),
                resource: resource.into(),
            },
            content: Some(to_raw_value(object).expect("JSON")),
        };
        let map = json!({"metadata": {"name": "c", "namespace": "ns", "uid": "c",
            "resourceVersion": "3"}});
        let map = message("c".to_owned(), "ns/configmap/c", &map);
        cloud.message(now, Session(1), &map, &mut rng, &mut out);
        assert_eq!(cloud.report.pods.len(), 0, "nor of what is no pod");
        // Each takes the place of the one before, and is older; nothing is kept as yet.
        for n in (1..10 * META_WAITING_MAX).rev() {
            let pod = json!({"metadata": {"name": "p", "namespace": "ns",
                "uid": format!("u{n}"), "resourceVersion": n.to_string()},
                "spec": {"nodeName": "gw", "containers": [{"name": "m", "image": "i:1"}]}});
            let pod = message(n.to_string(), "ns/pod/p", &pod);
            cloud.message(now, Session(1), &pod, &mut rng, &mut out);
        }
        assert_eq!(cloud.report.pods.len(), 1);
        // What was not kept comes again over the next link; until then it is about to be.
        let pods = Pods::default();
        let mut step = |cloud: &mut Cloud| {
            let known = ReportInputs { ended: &cloud.ended, meta: &cloud.meta, is_legacy: false };
            let (hub, asks, rng, out) = (&mut cloud.hub, &mut cloud.asks, &mut rng, &mut out);
            let mut context = CloudContext { hub, asks, rng, out, now, timeout_ms: 1 };
            cloud.report.step(&pods, known, &mut context);
            cloud.report.pods.len()
        };
        assert_eq!(step(&mut cloud), 1);
        cloud.report.up();
        assert_eq!(step(&mut cloud), 0);
    }
}
