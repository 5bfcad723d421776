//! The agent receives an event: from here on it knows its content.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::rc::Rc;

use edged::agent::Agent;
use edged::agent::event::{CallId, Event};
use edged::model::cri::PodRef;
use edged::model::manifest::Folder;
use edged::model::pod as api;

use super::Check;
use crate::world::NODE;

/// The API's default.
const GRACE_DEFAULT_S: i64 = 30;

/// The folder as the agent knows it, in this life.
#[derive(Default)]
pub struct Manifests {
    /// The last valid content of each file.
    files: BTreeMap<Box<str>, Vec<Rc<api::Pod>>>,
    delivered: bool,
}

impl Manifests {
    /// Whether the content was delivered.
    pub fn are_delivered(&self) -> bool {
        self.delivered
    }

    /// The agent receives the content. Returns whether for the first time.
    fn received(&mut self, folder: &Folder) -> bool {
        let mut files = BTreeMap::new();
        for file in &folder.files {
            let old = self.files.remove(&file.path).unwrap_or_default();
            let known = |pod: &api::Pod| old.iter().find(|old| ***old == *pod).cloned();
            let kept = |pod| known(pod).unwrap_or_else(|| Rc::new(pod.clone()));
            let pods = match &file.content {
                Ok(content) => content.pods.iter().map(kept).collect(),
                Err(_) => old,
            };
            files.insert(file.path.clone(), pods);
        }
        self.files = files;
        !std::mem::replace(&mut self.delivered, true)
    }
}

impl Check {
    /// The agent receives this event.
    pub fn received(&mut self, now: u64, event: &Event, agent: &Agent) {
        self.connection.received(now, event);
        match event {
            Event::Cri(id, result) => {
                self.garbage.answered(now, *id, result.as_ref().ok());
                self.exec_answered(now, *id, Some(result));
                self.answered(now, *id, result.is_ok());
            }
            Event::Manifests(folder) => self.received_folder(now, folder, agent),
            Event::Measured(measures) => {
                self.garbage.measured(measures);
                self.evict.measured(now, measures);
            }
            Event::Job(id, result) => {
                self.garbage.job_ended(*id);
                if let Some(files) = self.files_requested.remove(id)
                    && result.is_ok()
                {
                    let made = (files.pod.uid, files.container, files.attempt);
                    self.files_made.insert(made);
                }
            }
            Event::Probe(id, finding) => self.query_answered(now, *id, Some(finding)),
            Event::RuntimeUp
            | Event::RuntimeDown { .. }
            | Event::Changed(_)
            | Event::TerminationMessage(..)
            | Event::SavedProbeResults(_)
            | Event::Resolver(_)
            | Event::Credentials(_)
            | Event::Addresses(_)
            | Event::Stop => {}
            #[cfg(feature = "node-jobs")]
            Event::ConfirmUpgrade => {}
            #[cfg(feature = "streams")]
            Event::StreamOpened(..) | Event::StreamClosed(_) => {}
            #[cfg(all(feature = "cloud", feature = "streams"))]
            Event::TunnelUp(_) | Event::TunnelDown(..) | Event::TunnelActive(_) => {}
            #[cfg(feature = "cloud")]
            Event::Loaded(_)
            | Event::Saved(_)
            | Event::SaveFailed(..)
            | Event::LinkUp(..)
            | Event::LinkDown(..)
            | Event::LinkActive(_)
            | Event::Sent(..)
            | Event::Cloud(..) => {}
            #[cfg(feature = "services")]
            Event::Services(_) => {}
            #[cfg(feature = "devices")]
            Event::Device(_) => {}
            #[cfg(feature = "servicebus")]
            Event::ServiceBus(_) => {}
            #[cfg(feature = "metaserver")]
            Event::MetaServerOpened(..) | Event::MetaServerClosed(_) => {}
            #[cfg(feature = "metaserver-auth")]
            Event::InCluster(_) => {}
        }
    }

    /// A call is over for the agent.
    pub fn answered(&mut self, now: u64, id: CallId, ok: bool) {
        self.garbage.removal_over(id, ok);
        let Some(call) = self.calls.end(id) else { return };
        for &at in &call.has_image {
            self.pods[at].observation.image_question_ends(now);
        }
        if let Some(at) = call.pod {
            self.pods[at].observation.call_ends(now, id, call.kind, ok);
        }
        if let Some((requested_at, taken_at)) = self.relist.answered(&call, ok) {
            for pod in self.pods.iter_mut() {
                pod.observation.relisted(requested_at, taken_at);
            }
        }
    }

    fn received_folder(&mut self, now: u64, folder: &Folder, agent: &Agent) {
        self.review.again();
        let first = self.manifests.received(folder);
        self.set_desired(now, first.then_some(now), agent);
    }

    /// The pods that all sources want now. `first`: a source has delivered for the first time now.
    pub(super) fn set_desired(&mut self, now: u64, first: Option<u64>, agent: &Agent) {
        self.evict.judged = None;
        let wanted = first_of_each_name(self.manifests.files.values().flatten());
        let mut wanted: BTreeMap<Box<str>, (PodRef, Rc<api::Pod>)> = wanted
            .into_iter()
            .map(|(uid, pod)| (uid.clone(), (pod_ref(&uid, pod), pod.clone())))
            .collect();
        for (uid, pod) in &self.cloud.pods {
            let name = pod.metadata.name.as_str().into();
            let of = PodRef { name, ..pod_ref(uid, pod) };
            wanted.insert(uid.clone(), (of, pod.clone()));
        }
        for at in 0..self.pods.len() {
            let pod = &mut self.pods[at];
            if pod.desired.is_some() && !wanted.contains_key(&*pod.uid) {
                pod.desired = None;
                self.newly_gone.push(at);
            }
        }
        for (uid, (of, desired)) in wanted {
            let at = self.pods.index_or_add(&of);
            let pod = &mut self.pods[at];
            pod.forgotten = false;
            if pod.desired.is_none() {
                if !self.watched.contains(&at) {
                    self.watched.push(at);
                }
                // The agent has begun to end it, and continues.
                pod.came_back = agent.pod(&uid).is_some() && !self.cloud.held.contains(&uid);
                pod.gone_at = None;
                pod.delivered_first = first;
                pod.delivered_at = now;
                pod.first_delivered_at = pod.first_delivered_at.min(now);
                pod.observation.restart();
                if !pod.came_back {
                    pod.begin_anew(now);
                }
            }
            let grace_s = desired.spec.termination_grace_period_seconds.unwrap_or(GRACE_DEFAULT_S);
            pod.grace_ms_max = pod.grace_ms_max.max(grace_s.unsigned_abs() * 1000);
            if !pod.came_back {
                pod.spec_was = Some(desired.clone());
            }
            pod.desired = Some(desired);
        }
    }
}

/// Of two pods of one name the first one stays, by path and position.
pub fn first_of_each_name<'a, P: Borrow<api::Pod>>(
    pods: impl Iterator<Item = &'a P>,
) -> BTreeMap<Box<str>, &'a P> {
    let mut names = std::collections::BTreeSet::new();
    let mut first = BTreeMap::new();
    for pod in pods {
        let metadata = &pod.borrow().metadata;
        if names.insert((&metadata.namespace, &metadata.name)) {
            first.insert(metadata.uid.as_str().into(), pod);
        }
    }
    first
}

/// The pod as the runtime's labels name it.
pub fn pod_ref(uid: &str, pod: &api::Pod) -> PodRef {
    PodRef {
        uid: uid.into(),
        namespace: pod.metadata.namespace.as_str().into(),
        name: format!("{}-{NODE}", pod.metadata.name).into(),
    }
}
