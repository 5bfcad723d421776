//! Reports the statuses of pods to the cloud (wire spec sections 5.6 and 5.7), and deletes a pod in
//! the cloud when nothing of it is left here.
//!
//! Intended behaviour: level-triggered. For each pod the status that the cloud has is remembered,
//! as far as it is known: from the pod's message, or from the answer to our last patch. Only the
//! difference is reported; the latest wins. An update that only echoes a status that we wrote makes
//! no difference and causes no report.
//!
//! A pod that is starting is reported when it runs, or after [`REPORT_GATHER_MS`]: each patch
//! brings the whole pod back over the link, twice.
//!
//! For a pod that the API server does not have, the whole status is reported once more after
//! [`MISSING_POD_RETRY_MS`]. Mostly its deletion has arrived by then. Where the Node was deleted
//! while the gateway was away, no deletion comes, because the cloud has forgotten what it sent
//! there: then the second answer counts as the deletion, as a kubelet ends pods that the API server
//! does not have.
//!
//! If we crash here: the next process does not know what the cloud has, and reports each pod once
//! as a whole.

use std::collections::BTreeSet;

use super::meta::Meta;
use super::requests::{CloudContext, RequestKind};
use super::rows::{Mirror, pod_key};
use super::terminal_status::TerminalStatuses;
use crate::agent::calls::Uid;
use crate::agent::event::{Action, Out, Severity};
use crate::agent::pod::{Origin, Pod, Wanted};
use crate::agent::pods::Pods;
use crate::agent::time::{Instant, Now};
use crate::limits::{DELETE_RETRY_MS, MISSING_POD_RETRY_MS, REPORT_GATHER_MS, REPORT_RETRY_MS};
use crate::model::downstream::{Answer, Refusal};
use crate::model::map::Map;
use crate::model::remote_pod::{self, ParsedPodStatus, RemotePod, RemotePodStatus};
use crate::model::status::{ConditionKind, Phase};
use crate::model::status_patch::StatusPatch;
use crate::model::upstream::{PodName, Up};

/// The state of the report, for each pod.
#[derive(Debug, Default)]
pub(super) struct Report {
    pods: Map<Uid, PodReport>,
    /// All that is due was reported at this revision of the pods, in this form; `None`: something
    /// else has changed since.
    reported_revision: Option<(u64, bool)>,
    /// When a delayed report is due.
    wake_at: Option<Instant>,
}

/// What decides how and when a status is reported.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReportInputs<'a> {
    /// The terminal statuses that are durable.
    pub terminal_statuses: &'a TerminalStatuses,
    /// The stored objects.
    pub meta: &'a Meta,
    /// The cloud does not understand patches.
    pub is_legacy: bool,
}

#[derive(Debug, Default)]
struct PodReport {
    /// `None`: not known.
    remote_status: Option<RemotePodStatus>,
    /// The pod's `resourceVersion` of that status; 0: not known.
    version: u64,
    /// The revision of our status that the cloud has.
    remote_revision: Option<u64>,
    /// The revision of our status that was sent and is not answered yet.
    in_flight: Option<u64>,
    /// Since when there is something to report.
    since: Option<Instant>,
    retry_at: Option<Instant>,
    /// The last patch that the cloud accepted: if it changed nothing, it is not sent again.
    last_patch: Option<StatusPatch>,
    deletion: Deletion,
    /// The cloud has no such pod any more.
    missing: Option<MissingPod>,
    /// The pod was received and is not among the pods yet: it is about to be stored.
    is_new: bool,
    /// The last error that was logged.
    logged_error: Option<Box<str>>,
}

/// The cloud has answered that it has no such pod.
#[derive(Clone, Copy, Debug)]
struct MissingPod {
    /// When it answered so last.
    at: Instant,
    /// The answer was the API server's own.
    is_sure: bool,
}

/// What the answer to a patch says about the pod in the cloud.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(super) enum RemoteExistence {
    /// The cloud has the pod, or will send its deletion.
    Assumed,
    /// The API server has answered twice that it has no such pod: its deletion will not be sent.
    Denied,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Deletion {
    #[default]
    NotRequested,
    Requested,
    /// The cloud will send the deletion of the pod; if it does not, we ask again.
    Done(Instant),
}

impl Report {
    /// Something that decides what is reported has changed.
    pub(super) fn mark_dirty(&mut self) {
        self.reported_revision = None;
    }

    /// The cloud sent a pod with its status.
    pub(super) fn pod_received(&mut self, pod: &RemotePod) {
        self.mark_dirty();
        let new = || PodReport { is_new: true, ..PodReport::default() };
        let report = self.pods.entry(pod.uid.clone()).or_insert_with(new);
        if pod.version >= report.version {
            report.version = pod.version;
            report.remote_status = Some(pod.status.clone());
            report.remote_revision = None;
            report.missing = None;
        }
    }

    /// Takes the answer to a patch of the pod of this uid and name.
    pub(super) fn patch_answered(
        &mut self,
        now: Now,
        (uid, name): (&Uid, &str),
        answer: Answer,
        out: &mut Out,
    ) -> RemoteExistence {
        self.mark_dirty();
        let Some(report) = self.pods.get_mut(uid) else { return RemoteExistence::Assumed };
        let sent = report.in_flight.take();
        report.since = None;
        match answer {
            Answer::Object(object) => {
                (report.logged_error, report.missing) = (None, None);
                // The new remote status is compared once more: a patch against an unknown status
                // removes nothing.
                if let Some(pod) = object.pod() {
                    self.pod_received(pod);
                }
            }
            // The answer of old clouds: the cloud has what we sent.
            Answer::Done => {
                report.logged_error = None;
                report.remote_revision = sent;
            }
            Answer::Refused(refusal) if refusal.is_not_found() || refusal.is_conflict() => {
                return report.is_missing(now, (uid, name), &refusal, out);
            }
            Answer::Refused(refusal) => {
                report.retry_later(now);
                report.last_patch = None;
                let why = refusal.to_string();
                if report.logged_error.as_deref() != Some(&*why) {
                    let line = format!("cloud: the status of pod uid={uid} is refused: {why}");
                    out.push(Action::Log(Severity::Warn, line));
                    report.logged_error = Some(why.into());
                }
            }
        }
        RemoteExistence::Assumed
    }

    /// Takes the answer to the deletion of a pod.
    pub(super) fn deletion_answered(&mut self, now: Now, uid: &Uid, answer: &Answer) {
        self.mark_dirty();
        let Some(report) = self.pods.get_mut(uid) else { return };
        report.retry_later(now);
        report.deletion = match answer {
            Answer::Done | Answer::Object(_) => Deletion::Done(now.boot),
            Answer::Refused(refusal) if refusal.is_not_found() => Deletion::Done(now.boot),
            Answer::Refused(_) => Deletion::NotRequested,
        };
    }

    /// No answer to a patch: it may have arrived.
    pub(super) fn patch_unanswered(&mut self, now: Now, uid: &Uid) {
        self.mark_dirty();
        let Some(report) = self.pods.get_mut(uid) else { return };
        report.retry_later(now);
        (report.in_flight, report.remote_status, report.last_patch) = (None, None, None);
    }

    pub(super) fn deletion_unanswered(&mut self, now: Now, uid: &Uid) {
        self.mark_dirty();
        let Some(report) = self.pods.get_mut(uid) else { return };
        report.retry_later(now);
        report.deletion = Deletion::NotRequested;
    }

    /// A new session: retries do not wait, and no deletion is in flight.
    pub(super) fn up(&mut self) {
        self.mark_dirty();
        for report in self.pods.values_mut() {
            report.retry_at = None;
            report.deletion = Deletion::NotRequested;
            // The cloud may have lost what it accepted, together with its database.
            report.last_patch = None;
            // The cloud sends again what was not stored.
            report.is_new = false;
        }
    }

    /// Reports what the cloud does not have.
    pub(super) fn step(
        &mut self,
        pods: &Pods,
        inputs: ReportInputs<'_>,
        context: &mut CloudContext<'_>,
    ) {
        let due = self.wake_at.is_some_and(|at| at <= context.now.boot);
        let revision = Some((pods.revision(), inputs.is_legacy));
        if self.reported_revision == revision && !due {
            return;
        }
        self.reported_revision = revision;
        self.wake_at = None;
        // For pods of the manifest folder the status in the cloud is that of their mirrors.
        let mirrored = |(_, mirror): (&str, &Mirror)| {
            let pod = pods.get(&mirror.of).filter(|pod| pod.origin() == Origin::File)?;
            Some((Uid::from(&*mirror.uid), pod))
        };
        let mirrors: Vec<(Uid, &Pod)> = inputs.meta.mirrors().filter_map(mirrored).collect();
        let mirror_uids: BTreeSet<&Uid> = mirrors.iter().map(|(mirror, _)| mirror).collect();
        self.pods.retain(|uid, report| {
            let is_here = pods.get(uid).is_some() || mirror_uids.contains(uid);
            report.is_new &= !is_here;
            is_here || report.is_new
        });
        let ours = |pod: &&Pod| pod.origin() == Origin::Cloud && *pod.wanted() == Wanted::Yes;
        let of_cloud = pods.iter().filter(ours).map(|pod| (pod.uid().clone(), pod));
        for (uid, pod) in of_cloud.chain(mirrors) {
            let report = self.pods.entry(uid.clone()).or_default();
            let at = report.step(&uid, pod, inputs, context);
            self.wake_at = self.wake_at.into_iter().chain(at).min();
        }
    }

    pub(super) fn wake_at(&self) -> Option<Instant> {
        self.wake_at
    }
}

impl PodReport {
    /// Reports one pod; returns when a delayed report is due.
    fn step(
        &mut self,
        uid: &Uid,
        pod: &Pod,
        inputs: ReportInputs<'_>,
        context: &mut CloudContext<'_>,
    ) -> Option<Instant> {
        let now = context.now.boot;
        if self.in_flight.is_some() {
            return None;
        }
        if let Some(MissingPod { at, .. }) = self.missing {
            let retry_at = at.plus_ms(MISSING_POD_RETRY_MS);
            if retry_at > now {
                return Some(retry_at);
            }
            (self.remote_status, self.remote_revision, self.last_patch) = (None, None, None);
        }
        let of_cloud = pod.origin() == Origin::Cloud;
        let is_cleared = of_cloud && pod.is_cleared();
        let current = self.remote_revision == Some(pod.status_revision());
        if current && !is_cleared {
            self.since = None;
            return None;
        }
        if let Some(at) = self.retry_at.filter(|&at| at > now) {
            return Some(at);
        }
        if !current {
            // A static pod that has ended may run again after the next boot.
            if !pod.is_inspected()
                || of_cloud && !inputs.terminal_statuses.is_stored(inputs.meta, pod)
            {
                return None;
            }
            if let Some(at) = self.delay_until(pod, now) {
                return Some(at);
            }
            let at = self.report_status(uid, pod, inputs.is_legacy, context);
            if self.remote_revision != Some(pod.status_revision()) || !is_cleared {
                return at;
            }
        }
        self.delete(pod, inputs.is_legacy, context)
    }

    fn retry_later(&mut self, now: Now) {
        self.retry_at = Some(now.boot.plus_ms(REPORT_RETRY_MS));
    }

    /// The cloud has no such pod. Only the API server's own answer counts, and only the second one.
    fn is_missing(
        &mut self,
        now: Now,
        (uid, name): (&Uid, &str),
        why: &Refusal,
        out: &mut Out,
    ) -> RemoteExistence {
        let is_sure = why.has_no_pod(name);
        let before = self.missing.replace(MissingPod { at: now.boot, is_sure });
        // The patch was not accepted: if the pod exists again, it is reported again.
        self.last_patch = None;
        if before.is_none() {
            let line = format!(
                "cloud: the API server has no such pod, which keeps running: uid={uid}: {why}"
            );
            out.push(Action::Log(Severity::Warn, line));
        }
        if is_sure && before.is_some_and(|before| before.is_sure) {
            RemoteExistence::Denied
        } else {
            RemoteExistence::Assumed
        }
    }

    /// Until when the report waits for more changes.
    fn delay_until(&mut self, pod: &Pod, now: Instant) -> Option<Instant> {
        let since = *self.since.get_or_insert(now);
        let starts = pod.api().status.phase == Phase::Pending && pod.is_active();
        let until = since.plus_ms(REPORT_GATHER_MS);
        (starts && until > now).then_some(until)
    }

    fn report_status(
        &mut self,
        uid: &Uid,
        pod: &Pod,
        is_legacy: bool,
        context: &mut CloudContext<'_>,
    ) -> Option<Instant> {
        let status = &pod.api().status;
        let revision = pod.status_revision();
        let base = self.remote_status.as_ref().and_then(RemotePodStatus::parse);
        let is_known = base.is_some();
        let of_cloud = pod.origin() == Origin::Cloud;
        let has_ended = base.as_ref().is_some_and(ParsedPodStatus::is_terminal);
        if of_cloud && has_ended && !status.phase.is_terminal() {
            // The pod has ended in the cloud; that status is about to be durable here.
            return None;
        }
        let name = pod_name(pod, uid);
        let kind = RequestKind::PodStatus(uid.clone());
        if is_legacy {
            if !context.has_room() {
                return Some(context.now.boot);
            }
            let status = Box::new(status.clone());
            context.request(kind, Up::LegacyPodStatus { pod: name, status });
            self.in_flight = Some(revision);
            return None;
        }
        let difference = match base {
            Some(base) => base.patch_to(status, |kind| is_ours(kind, pod)),
            None => Some(remote_pod::whole(status)),
        };
        let Some(patch) = difference else {
            self.remote_revision = Some(revision);
            self.since = None;
            return None;
        };
        if !context.has_room() {
            return Some(context.now.boot);
        }
        if self.last_patch.as_ref() == Some(&patch) && is_known {
            // The cloud accepted it before and still has another status: it stays as the cloud has
            // it.
            self.remote_revision = Some(revision);
            return None;
        }
        context.request(kind, Up::PatchPod { pod: name, patch: patch.clone() });
        self.last_patch = Some(patch);
        self.in_flight = Some(revision);
        None
    }

    /// Nothing of the pod is left here, and the cloud has the last status: deletes the pod in the
    /// cloud (section 5.7).
    fn delete(
        &mut self,
        pod: &Pod,
        is_legacy: bool,
        context: &mut CloudContext<'_>,
    ) -> Option<Instant> {
        // An old cloud deletes it by itself.
        if is_legacy || self.deletion == Deletion::Requested {
            return None;
        }
        let now = context.now.boot;
        if let Deletion::Done(at) = self.deletion
            && at.plus_ms(DELETE_RETRY_MS) > now
        {
            return Some(at.plus_ms(DELETE_RETRY_MS));
        }
        if !context.has_room() {
            return Some(now);
        }
        let kind = RequestKind::PodDelete(pod.uid().clone());
        let (key, uid) = (pod_key(pod, "pod").into(), pod.uid().clone());
        context.request(kind, Up::DeletePod { key, uid });
        self.deletion = Deletion::Requested;
        None
    }
}

/// Whether the node owns the conditions of this kind: `DisruptionTarget` is set by the component
/// that evicts the pod.
fn is_ours(kind: ConditionKind, pod: &Pod) -> bool {
    let is_set = || pod.api().status.conditions.iter().any(|own| own.kind == kind);
    // Only the node itself evicts a static pod.
    let theirs = kind == ConditionKind::DisruptionTarget && pod.origin() == Origin::Cloud;
    !theirs || is_set()
}

/// The pod as the cloud knows it: by this uid, which is that of its mirror for a static pod.
pub(super) fn pod_name(pod: &Pod, uid: &Uid) -> PodName {
    let metadata = &pod.api().metadata;
    PodName {
        namespace: metadata.namespace.as_str().into(),
        name: metadata.name.as_str().into(),
        uid: uid.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Cloud;
    use super::super::hub::{Hub, LinkEvent};
    use super::{CloudContext, Pods, ReportInputs};
    use crate::agent::Config;
    use crate::agent::event::Out;
    use crate::agent::time::{Instant, Now, Rng};
    use crate::limits::{Budget, META_WAITING_MAX};
    use crate::model::downstream::{Down, Downstream, ObjectView, RemoteObject};
    use crate::model::link::Session;
    use crate::model::remote_pod::RemotePod;
    use crate::model::settings::CloudSettings;
    use crate::model::upstream;

    #[test]
    fn pods_that_are_not_stored_are_not_remembered() {
        let now = Now { boot: Instant(7), wall: None };
        let (mut rng, mut out) = (Rng::new(1), Out::default());
        let settings = CloudSettings::default();
        let mut config = Config { node_name: "gw".to_owned(), ..Config::default() };
        config.machine.budget = Budget::FULL;
        let mut cloud = Cloud::new(&config, &settings, now);
        cloud.hub = Hub::new(&settings, now);
        let _ = cloud.hub.step(now, true, &mut rng, &mut out);
        assert_eq!(cloud.hub.up(now, Session(1), &mut out), LinkEvent::Up);
        let message = |id: String, resource: &str, text: String| {
            let view = RemotePod::read(&text).map_or(ObjectView::Other, ObjectView::Pod);
            let object = RemoteObject {
                text: text.into(),
                view,
                #[cfg(feature = "metaserver")]
                item: None,
            };
            let (id, resource) = (id.into(), resource.into());
            let origin = upstream::Origin { id, resource, ..upstream::Origin::default() };
            Downstream { origin, timestamp_ms: 0, content: Down::Put(Box::new(object)) }
        };
        let map = r#"{"metadata":{"name":"c","namespace":"ns","uid":"c","resourceVersion":"3"}}"#;
        let map = message("c".to_owned(), "ns/configmap/c", map.to_owned());
        cloud.message(now, Session(1), map, &mut rng, &mut out);
        assert_eq!(cloud.report.pods.len(), 0, "nor of what is no pod");
        // Each replaces the one before, and is older; nothing is stored yet.
        for n in (1..10 * META_WAITING_MAX).rev() {
            let pod = format!(
                r#"{{"metadata":{{"name":"p","namespace":"ns","uid":"u{n}",
                    "resourceVersion":"{n}"}},
                    "spec":{{"nodeName":"gw","containers":[{{"name":"m","image":"i:1"}}]}}}}"#
            );
            let pod = message(n.to_string(), "ns/pod/p", pod);
            cloud.message(now, Session(1), pod, &mut rng, &mut out);
        }
        assert_eq!(cloud.report.pods.len(), 1);
        // What was not stored comes again in the next session; until then it counts as about to be
        // stored.
        let pods = Pods::default();
        let mut step = |cloud: &mut Cloud| {
            let known = ReportInputs {
                terminal_statuses: &cloud.terminal_statuses,
                meta: &cloud.meta,
                is_legacy: false,
            };
            let (hub, requests, rng, out) =
                (&mut cloud.hub, &mut cloud.requests, &mut rng, &mut out);
            let mut context = CloudContext { hub, requests, rng, out, now, timeout_ms: 1 };
            cloud.report.step(&pods, known, &mut context);
            cloud.report.pods.len()
        };
        assert_eq!(step(&mut cloud), 1);
        cloud.report.up();
        assert_eq!(step(&mut cloud), 0);
    }
}
