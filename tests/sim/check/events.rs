//! The agent receives an event: from here on it knows its content.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::rc::Rc;

use edged::agent::Agent;
use edged::agent::event::{CallId, Event};
use edged::model::cri::{PodRef, Reply};
use edged::model::manifest::Folder;
use edged::model::pod as api;

use super::{Check, Half, Kind, Relist};
use crate::world::NODE;

/// The API's default.
const GRACE_DEFAULT_S: i64 = 30;

impl Check {
    /// The agent receives this event.
    pub fn received(&mut self, now: u64, event: &Event, agent: &Agent) {
        match event {
            Event::RuntimeUp => self.connected = true,
            Event::RuntimeDown { .. } => {
                self.connected = false;
                self.ready_reported_at = None;
            }
            Event::Cri(id, result) => {
                if let Ok(Reply::Status(status)) = result {
                    self.ready_reported_at = status.runtime.is_ok().then_some(now);
                }
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
            Event::Changed(_)
            | Event::TerminationMessage(..)
            | Event::SavedProbeResults(_)
            | Event::Resolver(_)
            | Event::Credentials(_)
            | Event::Addresses(_)
            | Event::Stop => {}
            #[cfg(feature = "cloud")]
            Event::Loaded(_)
            | Event::Saved(_)
            | Event::SaveFailed(..)
            | Event::LinkUp(..)
            | Event::LinkDown(..)
            | Event::LinkActive(_)
            | Event::Sent(..)
            | Event::Cloud(..) => {}
        }
    }

    /// A call is over for the agent.
    pub fn answered(&mut self, now: u64, id: CallId, ok: bool) {
        self.garbage.removal_over(id, ok);
        let Some(open) = self.open.remove(&id) else { return };
        self.counts[open.class as usize] -= 1;
        for at in open.has_image {
            self.pods[at].image_questions -= 1;
            self.pods[at].image_answered_at = now;
        }
        if let Some(at) = open.pod {
            let pod = &mut self.pods[at];
            pod.open.retain(|&(other, _)| other != id);
            pod.last_call_ended_at = now;
            // After a failed request for an image the agent knows as much as before.
            if !ok && open.kind != Kind::Pull {
                pod.last_failed_at = now;
            }
        }
        let half = match open.kind {
            Kind::ListSandboxes => &mut self.relist.sandboxes,
            Kind::ListContainers => &mut self.relist.containers,
            _ => return,
        };
        half.arrived = ok.then_some((open.requested_at, half.taken_at));
        self.believe();
    }

    /// The runtime has made a list.
    pub fn list_taken(&mut self, now: u64, id: CallId) {
        let is_it = |half: &Half| half.requested.is_some_and(|(requested, _)| requested == id);
        if is_it(&self.relist.sandboxes) {
            self.relist.sandboxes.taken_at = now;
        } else if is_it(&self.relist.containers) {
            self.relist.containers.taken_at = now;
        }
    }

    /// Both lists of a relist have arrived: pods without a request since then believe it.
    fn believe(&mut self) {
        let Relist {
            sandboxes: Half { arrived: Some(one), .. },
            containers: Half { arrived: Some(two), .. },
        } = self.relist
        else {
            return;
        };
        if one.0 != two.0 {
            return;
        }
        let (requested_at, taken_at) = (one.0, one.1.min(two.1));
        self.relisted_at = requested_at;
        for pod in &mut self.pods {
            // It cannot be seen from outside which pod a request about an image is for.
            let unsure = pod.image_questions > 0 || pod.image_answered_at >= requested_at;
            let busy = unsure || pod.open.iter().any(|&(_, kind)| kind != Kind::StopContainer);
            if !busy && pod.last_call_ended_at < requested_at {
                pod.known_at = taken_at;
                pod.known_requested_at = requested_at;
            }
        }
    }

    fn received_folder(&mut self, now: u64, folder: &Folder, agent: &Agent) {
        self.judged = None;
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
        let first = !std::mem::replace(&mut self.delivered, true);
        self.set_desired(now, first.then_some(now), agent);
    }

    /// The pods that all sources want now. `first`: a source has delivered for the first time now.
    pub(super) fn set_desired(&mut self, now: u64, first: Option<u64>, agent: &Agent) {
        self.evict.judged = None;
        let wanted = first_of_each_name(self.files.values().flatten());
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
            let at = self.pod_at(&of);
            let pod = &mut self.pods[at];
            pod.forgotten = false;
            if pod.desired.is_none() {
                if !self.watched.contains(&at) {
                    self.watched.push(at);
                }
                // The agent has begun to end it, and continues.
                pod.came_back = agent.pod(&uid).is_some();
                pod.gone_at = None;
                pod.delivered_first = first;
                pod.delivered_at = now;
                pod.first_delivered_at = pod.first_delivered_at.min(now);
                // The agent observes the pod itself before it acts.
                pod.known_at = 0;
                pod.known_requested_at = 0;
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
