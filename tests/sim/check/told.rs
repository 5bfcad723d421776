//! What the agent is told: from here on it knows.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::rc::Rc;

use edged::agent::Agent;
use edged::agent::event::{CallId, Event};
use edged::model::cri::{PodRef, Reply};
use edged::model::manifest::Folder;
use edged::model::pod as api;

use super::{Check, Half, Kind, Look};
use crate::world::NODE;

/// The API's default.
const GRACE_DEFAULT_S: i64 = 30;

impl Check {
    /// The agent learns this.
    pub fn told(&mut self, now: u64, event: &Event, agent: &Agent) {
        match event {
            Event::RuntimeUp => self.connected = true,
            Event::RuntimeDown { .. } => {
                self.connected = false;
                self.ready_told_at = None;
            }
            Event::Cri(id, result) => {
                if let Ok(Reply::Status(status)) = result {
                    self.ready_told_at = status.runtime.is_ok().then_some(now);
                }
                self.garbage.answered(now, *id, result.as_ref().ok());
                self.exec_told(now, *id, Some(result));
                self.answered(now, *id, result.is_ok());
            }
            Event::Manifests(folder) => self.told_folder(now, folder, agent),
            Event::Measured(measures) => {
                self.garbage.measured(measures);
                self.evict.measured(now, measures);
            }
            Event::Used(id, _) | Event::Attempts(id, _) => self.garbage.job_ended(*id),
            Event::Job(id, result) => {
                self.garbage.job_ended(*id);
                if let Some(files) = self.files_asked.remove(id)
                    && result.is_ok()
                {
                    let made = (files.pod.uid, files.container, files.attempt);
                    self.files_made.insert(made);
                }
            }
            Event::Probe(id, finding) => self.query_told(now, *id, Some(finding)),
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
            // Who only asked for an image knows as much as before.
            if !ok && open.kind != Kind::Pull {
                pod.last_failed_at = now;
            }
        }
        let half = match open.kind {
            Kind::ListSandboxes => &mut self.look.sandboxes,
            Kind::ListContainers => &mut self.look.containers,
            _ => return,
        };
        half.told = ok.then_some((open.asked_at, half.taken_at));
        self.believe();
    }

    /// The runtime has made up a list.
    pub fn list_taken(&mut self, now: u64, id: CallId) {
        let is_it = |half: &Half| half.asked.is_some_and(|(asked, _)| asked == id);
        if is_it(&self.look.sandboxes) {
            self.look.sandboxes.taken_at = now;
        } else if is_it(&self.look.containers) {
            self.look.containers.taken_at = now;
        }
    }

    /// Both halves of a look have come: pods that nothing was done to since believe it.
    fn believe(&mut self) {
        let Look {
            sandboxes: Half { told: Some(one), .. },
            containers: Half { told: Some(two), .. },
        } = self.look
        else {
            return;
        };
        if one.0 != two.0 {
            return;
        }
        let (asked_at, taken_at) = (one.0, one.1.min(two.1));
        self.looked_at = asked_at;
        for pod in &mut self.pods {
            // Whose a question about an image is cannot be told from outside.
            let unsure = pod.image_questions > 0 || pod.image_answered_at >= asked_at;
            let busy = unsure || pod.open.iter().any(|&(_, kind)| kind != Kind::StopContainer);
            if !busy && pod.last_call_ended_at < asked_at {
                pod.known_at = taken_at;
                pod.known_asked_at = asked_at;
            }
        }
    }

    fn told_folder(&mut self, now: u64, folder: &Folder, agent: &Agent) {
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
        self.told_wanted(now, first.then_some(now), agent);
    }

    /// What all sources want now. `first`: now one of them has told it for the first time.
    pub(super) fn told_wanted(&mut self, now: u64, first: Option<u64>, agent: &Agent) {
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
            if pod.told.is_some() && !wanted.contains_key(&*pod.uid) {
                pod.told = None;
                self.newly_gone.push(at);
            }
        }
        for (uid, (of, told)) in wanted {
            let at = self.pod_at(&of);
            let pod = &mut self.pods[at];
            pod.forgotten = false;
            if pod.told.is_none() {
                if !self.watched.contains(&at) {
                    self.watched.push(at);
                }
                // The agent has begun to end it, and goes on with that.
                pod.again = agent.pod(&uid).is_some();
                pod.gone_at = None;
                pod.told_first = first;
                pod.told_at = now;
                pod.first_told_at = pod.first_told_at.min(now);
                // It looks for itself before it acts.
                pod.known_at = 0;
                pod.known_asked_at = 0;
                if !pod.again {
                    pod.begin_anew(now);
                }
            }
            let grace_s = told.spec.termination_grace_period_seconds.unwrap_or(GRACE_DEFAULT_S);
            pod.grace_ms_max = pod.grace_ms_max.max(grace_s.unsigned_abs() * 1000);
            if !pod.again {
                pod.spec_was = Some(told.clone());
            }
            pod.told = Some(told);
        }
    }
}

/// Of two pods of one name the first stays, by path and place.
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
