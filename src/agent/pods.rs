//! All pods: which ones the sources want, which ones the runtime has, and in which order they are
//! stepped.
//!
//! No pod is removed as an orphan before the source has delivered (rule R5), and while a manifest
//! cannot be read, pods that came from the folder are not orphans. A pod waits until an earlier one
//! of the same name has ended. Pods that wait for room take turns.
//!
//! Whether the node has room for a pod is decided after a list has shown what exists of it: after a
//! restart of the agent the running pods stay, and the others share the rest.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::Config;
use super::admit::{self, PlacedBy, Surroundings};
use super::calls::Uid;
use super::objects::Key;
use super::pleg::List;
use super::pod::{
    self, HostInfo, LentUsers, NodeView, Origin, Phase, Pod, PodContext, Verdict, Wanted,
};
use super::time::{Instant, Now, sooner};
use crate::limits;
use crate::model::cri::{PodRef, RuntimeStatus};
use crate::model::job::LogDir;
use crate::model::map::Map;
use crate::model::node::Pressure;
use crate::model::pod::{self as api, SEEN};

#[derive(Debug, Default)]
pub struct Pods {
    map: Map<Uid, Box<Pod>>,
    /// The first pod to be stepped: after the pod that last found no room.
    next_turn: Option<Uid>,
    /// Pods that the last list contained and that are not in the map, because it is not known
    /// whether they are wanted; with their names. A pod that is in neither map has nothing in the
    /// runtime, and can start without another list. `None`: not listed yet.
    unclaimed: Option<BTreeMap<Uid, Name>>,
    /// Pods whose admission beside the others is not decided: they have to be listed first.
    unlisted: BTreeSet<Uid>,
    /// Pods that were listed: their admission is decided in the next step, when everything is
    /// known.
    unadmitted: BTreeSet<Uid>,
    /// The pressures of the node.
    pressures: BTreeSet<Pressure>,
    /// Who has which users of the host.
    users: LentUsers,
    orphans: u64,
    /// Pods that were removed and came back: of the cloud, of the folder.
    restarted: [u64; 2],
    revision: u64,
}

/// Namespace and name.
type Name = (Box<str>, Box<str>);

/// What is known of the sources; decides whether a pod in the runtime is an orphan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sources {
    /// For pods of the manifest folder.
    pub folder: Knowledge,
    /// For pods of the cloud.
    pub cloud: Knowledge,
}

/// How much is known of what a source wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Knowledge {
    /// It has not delivered yet: no pod is known to be unwanted.
    Silent,
    /// It could not be read so far: none of its pods is known to be unwanted.
    Unread,
    /// Some manifest cannot be used, or data from the cloud is lost: there may be more pods.
    Broken,
    /// Everything is known.
    Whole,
}

impl Sources {
    /// Whether each source has delivered at least once.
    #[cfg(feature = "services")]
    pub fn are_known(self) -> bool {
        self.of_all() > Knowledge::Silent
    }

    /// What is known of all pods, or of a pod without a source annotation.
    fn of_all(self) -> Knowledge {
        self.folder.min(self.cloud)
    }

    /// Whether everything is known of all pods.
    pub fn are_whole(self) -> bool {
        self.of_all() == Knowledge::Whole
    }

    /// What is known of the pods of a source, by the value of the annotation
    /// `kubernetes.io/config.source`.
    fn of(self, source: Option<&str>) -> Knowledge {
        match source {
            Some("file") => self.folder,
            Some(_) => self.cloud,
            None => self.of_all(),
        }
    }
}

/// The pods that the sources want.
#[derive(Debug, Default)]
pub struct DesiredPods<'a> {
    /// By uid, with the source of each.
    pub pods: BTreeMap<&'a str, (Origin, &'a api::Pod)>,
    /// Pods that are left out because another has the same name or uid: the uid of the one that
    /// stays, and the message.
    pub duplicates: Vec<(Uid, String)>,
    /// Uids of pods that do not begin yet.
    pub held: BTreeSet<&'a str>,
}

impl<'a> DesiredPods<'a> {
    /// Adds the cloud's pods. If the folder has a pod of the same name or uid, the folder's pod
    /// stays.
    pub fn add_cloud(&mut self, pods: impl Iterator<Item = &'a api::Pod>) {
        let name = |pod: &'a api::Pod| (&*pod.metadata.namespace, &*pod.metadata.name);
        let taken: BTreeMap<_, _> =
            self.pods.iter().map(|(uid, (_, pod))| (name(pod), *uid)).collect();
        let uids: BTreeSet<&str> = taken.values().copied().collect();
        for pod in pods {
            let uid = pod.metadata.uid.as_str();
            let (namespace, plain) = name(pod);
            match taken.get(&name(pod)).or_else(|| uids.get(uid)) {
                Some(holder) => {
                    let message = format!(
                        "the cloud's pod {namespace}/{plain} is not run: the manifest folder has \
                         a pod of the same name"
                    );
                    self.duplicates.push(((*holder).into(), message));
                }
                None => {
                    self.pods.insert(uid, (Origin::Cloud, pod));
                }
            }
        }
    }
}

/// The result of stepping all pods.
#[derive(Debug, Default)]
pub struct Stepped {
    /// Uids of pods whose phase in the API changed.
    pub changed: Vec<Uid>,
    /// Some pod entered another phase.
    pub moved: bool,
}

impl Pods {
    /// Takes the pods that the sources want.
    pub fn set_desired(&mut self, now: Now, desired: DesiredPods<'_>, config: &Config) {
        for (uid, pod) in &mut self.map {
            if *pod.wanted() != Wanted::No && !desired.pods.contains_key(&**uid) {
                pod.mark_unwanted(now);
            }
        }
        for (uid, (origin, api)) in desired.pods {
            match self.map.get_mut(uid) {
                Some(pod) => {
                    let same = match pod.wanted() {
                        Wanted::Yes => is_same(pod.api(), api),
                        Wanted::Recreated(_, desired) => is_same(desired, api),
                        Wanted::No => false,
                    };
                    if !same {
                        pod.want(api.clone(), origin);
                    }
                }
                None => self.add(now, uid.into(), api.clone(), origin, config),
            }
        }
        for (uid, message) in desired.duplicates {
            if let Some(pod) = self.map.get_mut(&uid) {
                pod.warn("FailedValidation", message);
            }
        }
        for pod in self.map.values_mut() {
            pod.set_held(desired.held.contains(&**pod.uid()));
        }
    }

    /// These objects were added, removed or changed: the pods that may use them try again.
    pub fn objects_changed(&mut self, changed: &BTreeSet<Key>) {
        let touched = |pod: &&mut Pod| changed.iter().any(|key| pod.may_use(key));
        self.iter_mut().filter(touched).for_each(Pod::objects_changed);
    }

    fn add(&mut self, now: Now, uid: Uid, mut api: api::Pod, origin: Origin, config: &Config) {
        stamp(&mut api, now);
        let placed_by = if origin == Origin::Cloud { PlacedBy::Scheduler } else { PlacedBy::Node };
        let review = admit::review_here(&api, placed_by, config);
        let mut pod = Pod::new(api, origin, review.refused.as_ref().map(Verdict::rejected), now);
        // Greater than all revisions that were reported for a pod of this uid.
        pod.status_revision_from(self.revision);
        let name = pod.name();
        let is_new = |left: &BTreeMap<Uid, _>| {
            // A running pod of the same name has to be found first, because it has to end before.
            !left.contains_key(&uid) && !left.values().any(|other| *other == name)
        };
        let absent = self.unclaimed.as_ref().is_some_and(is_new);
        if absent {
            pod.observe_nothing();
        }
        if !review.unknown.is_empty() {
            let fields = review.unknown.join(", ");
            pod.warn("UnknownField", format!("unknown, ignored: {fields}"));
        }
        self.map.insert(uid.clone(), Box::new(pod));
        self.revision += 1;
        if absent { &mut self.unadmitted } else { &mut self.unlisted }.insert(uid);
    }

    /// Admits the listed pods, as far as there is room: running pods first. Those that are held are
    /// admitted when they may begin.
    fn admit_all(&mut self, config: &Config) {
        let rank = |uid: &Uid| {
            let observed = self.map.get(uid)?.observed();
            let ready = observed.sandboxes.iter().any(|sandbox| sandbox.ready);
            Some((!observed.may_run(), !ready, uid.clone()))
        };
        if self.unadmitted.is_empty() {
            return;
        }
        let mut ranked: Vec<_> = self.unadmitted.iter().filter_map(rank).collect();
        ranked.sort();
        let mut held = BTreeSet::new();
        for (_, _, uid) in ranked {
            if self.map.get_mut(&uid).is_some_and(|pod| pod.waits_for_release()) {
                held.insert(uid);
                continue;
            }
            self.unadmitted.remove(&uid);
            self.admit(&uid, config);
        }
        self.unadmitted = held;
    }

    fn admit(&mut self, uid: &str, config: &Config) {
        let pod = self.map.get(uid).expect("just ranked");
        let starts = pod.phase() == Phase::Syncing && pod.is_active();
        if !starts || *pod.wanted() != Wanted::Yes {
            return;
        }
        let open = |uid: &Uid| self.unadmitted.contains(uid) || self.unlisted.contains(uid);
        let stays = |other: &Pod| {
            other.is_active() && other.origin() != Origin::Runtime && *other.wanted() == Wanted::Yes
        };
        let others =
            self.map.iter().filter(|(uid, it)| *uid != pod.uid() && stays(it) && !open(uid));
        let others: Vec<&api::Pod> = others.map(|(_, other)| other.api()).collect();
        let runs = pod.observed().may_run();
        let at = Surroundings { runs, pressures: &self.pressures, others: &others };
        if let Some(refused) = admit::refusal_beside(pod.api(), at, config) {
            let verdict = Verdict::rejected(&refused);
            self.map.get_mut(uid).expect("just seen").refuse(verdict);
        }
    }

    /// Removes pods that have other uids from now on; nothing was started under the old uids.
    pub fn remove(&mut self, uids: &[Uid]) {
        for uid in uids {
            let pod = self.map.remove(uid);
            assert!(pod.is_none_or(|pod| pod.is_untouched()), "pod {uid} has begun");
            self.unlisted.remove(uid);
            self.unadmitted.remove(uid);
        }
        self.revision += 1;
    }

    /// Takes a list of the runtime. `tombstones`: uids of pods that are certainly orphans.
    pub fn take_list(
        &mut self,
        now: Now,
        list: List,
        sources: Sources,
        tombstones: Option<&BTreeSet<Uid>>,
    ) {
        let orphan_count = self.map.values().filter(|pod| pod.origin() == Origin::Runtime).count();
        let mut room = limits::ORPHANS_MAX.saturating_sub(orphan_count);
        // Two pods of one name must not run at the same time, whatever a broken manifest may
        // contain.
        let mut names: BTreeSet<(Box<str>, Box<str>)> = BTreeSet::new();
        if !sources.are_whole() {
            let wanted = self.iter().filter(|pod| *pod.wanted() == Wanted::Yes);
            names.extend(wanted.map(Pod::name));
        }
        let mut left = BTreeMap::new();
        let mut adopt = |pod_ref: &PodRef, source: Option<&str>| {
            let is_replaced = || names.contains(&(pod_ref.namespace.clone(), pod_ref.name.clone()));
            let has_tombstone =
                tombstones.is_some_and(|tombstones| tombstones.contains(&pod_ref.uid));
            let is_orphan = match sources.of(source) {
                _ if has_tombstone => true,
                Knowledge::Silent | Knowledge::Unread => false,
                Knowledge::Broken => is_replaced(),
                Knowledge::Whole => true,
            };
            let adopted = is_orphan && room > 0;
            room -= usize::from(adopted);
            if !adopted {
                let name = (pod_ref.namespace.clone(), pod_ref.name.clone());
                left.insert(pod_ref.uid.clone(), name);
            }
            adopted.then(|| Pod::orphan(pod_ref, now))
        };
        self.users.begin_list();
        for sandbox in list.sandboxes {
            let Some(pod_ref) = &sandbox.pod else { continue };
            if let Some(pod) = self.map.get_mut(&pod_ref.uid) {
                pod.add_listed_sandbox(sandbox);
            } else if let Some(mut orphan) = adopt(pod_ref, sandbox.source.as_deref()) {
                let uid = pod_ref.uid.clone();
                self.orphans += 1;
                orphan.add_listed_sandbox(sandbox);
                self.map.insert(uid, Box::new(orphan));
                self.revision += 1;
            } else {
                self.users.add_unclaimed(&sandbox);
            }
        }
        for container in list.containers {
            let Some(pod_ref) = &container.pod else { continue };
            if let Some(pod) = self.map.get_mut(&pod_ref.uid) {
                pod.add_listed_container(container);
            } else if let Some(mut orphan) = adopt(pod_ref, None) {
                let uid = pod_ref.uid.clone();
                self.orphans += 1;
                orphan.add_listed_container(container);
                self.map.insert(uid, Box::new(orphan));
                self.revision += 1;
            }
        }
        // Running pods are decided before pods that have to start: all must be known as wanted
        // first.
        self.unclaimed = (sources.of_all() > Knowledge::Silent).then_some(left);
        for pod in self.map.values_mut() {
            pod.take_list(now, list.serial);
        }
        self.unadmitted.append(&mut self.unlisted);
    }

    /// Sets the pressures of the node, by which pods are admitted from now on.
    pub fn set_pressures(&mut self, pressures: &BTreeSet<Pressure>) {
        self.pressures.clone_from(pressures);
    }

    /// The runtime is back, and may be another.
    pub fn up(&mut self) {
        self.unclaimed = None;
    }

    /// Steps each pod, and updates the statuses.
    pub fn step(
        &mut self,
        now: Now,
        runtime: Option<&RuntimeStatus>,
        host_info: HostInfo<'_>,
        context: &mut PodContext<'_>,
    ) -> Stepped {
        let mut stepped = Stepped::default();
        self.admit_all(context.config);
        self.users.lend(&mut self.map, &self.unlisted);
        if !self.map.values().any(|pod| pod.needs_step(now) || pod.is_probe_due(now)) {
            return stepped;
        }
        let waiting = self.waiting(now);
        let first = self.next_turn.take();
        let mut step = |pod: &mut Pod| {
            if pod.is_probe_due(now) {
                pod.probe(now, context);
            }
            if !pod.needs_step(now) {
                return;
            }
            let predecessor = waiting.contains(pod.uid());
            let world = NodeView { runtime, predecessor };
            let before = pod.api().status.phase;
            let phase = pod.phase();
            let gave_up = pod.step(now, &world, context);
            stepped.moved |= gave_up || pod.phase() != phase;
            self.revision += u64::from(pod.refresh(now, host_info));
            if pod.api().status.phase != before {
                stepped.changed.push(pod.uid().clone());
            }
            if pod.needs_step(now) && self.next_turn.is_none() {
                self.next_turn = Some(pod.uid().clone());
            }
        };
        match first {
            None => self.map.values_mut().for_each(|pod| step(pod)),
            Some(first) => {
                let from = |(uid, _): &(&Uid, _)| **uid >= first;
                let before = |(uid, _): &(&Uid, _)| **uid < first;
                self.map.iter_mut().filter(from).for_each(|(_, pod)| step(pod));
                self.map.iter_mut().filter(before).for_each(|(_, pod)| step(pod));
            }
        }
        stepped
    }

    /// Only updates the statuses: the runtime cannot be called now.
    pub fn refresh(&mut self, now: Now, host_info: HostInfo<'_>) {
        for pod in self.map.values_mut().filter(|pod| pod.needs_step(now)) {
            self.revision += u64::from(pod.refresh(now, host_info));
        }
    }

    /// Removes finished pods; those that came back start again. Returns whether any did.
    pub fn forget(&mut self, now: Now, config: &Config) -> bool {
        let finished: Vec<Uid> = self
            .map
            .values()
            .filter(|pod| pod.is_finished())
            .map(|pod| pod.uid().clone())
            .collect();
        let mut anew = false;
        for uid in finished {
            let mut pod = self.map.remove(&uid).expect("just listed");
            self.revision += 1;
            if let Some((origin, api)) = pod.successor() {
                self.restarted[usize::from(origin == Origin::File)] += 1;
                self.add(now, uid, api, origin, config);
                anew = true;
            }
        }
        anew
    }

    /// Pods about to be stepped that have to wait: another pod of their name has not ended yet.
    fn waiting(&self, now: Now) -> BTreeSet<Uid> {
        fn key(pod: &Pod) -> (&str, &str, &str) {
            let metadata = &pod.api().metadata;
            (&metadata.namespace, &metadata.name, pod.uid())
        }
        let is_leaving = |pod: &Pod| {
            pod.phase() < Phase::Terminated
                && (pod.phase() > Phase::Syncing || *pod.wanted() != Wanted::Yes)
        };
        let leaving: BTreeSet<(&str, &str, &str)> =
            self.iter().filter(|pod| is_leaving(pod)).map(key).collect();
        if leaving.is_empty() {
            return BTreeSet::new();
        }
        let starting = |pod: &&Pod| pod.phase() == Phase::Syncing && pod.needs_step(now);
        let waits = |pod: &&Pod| {
            let (namespace, name, uid) = key(pod);
            let of_name = leaving.range((namespace, name, "")..);
            let mut of_name = of_name.take_while(|other| (other.0, other.1) == (namespace, name));
            of_name.any(|other| other.2 != uid)
        };
        self.iter().filter(starting).filter(waits).map(|pod| pod.uid().clone()).collect()
    }

    /// Whether every pod that the runtime has is among these.
    pub fn is_complete(&self) -> bool {
        self.unclaimed.as_ref().is_some_and(BTreeMap::is_empty)
    }

    /// Whether each wanted pod was listed: what of it runs is known.
    #[cfg(feature = "services")]
    pub fn is_listed(&self) -> bool {
        self.unclaimed.is_some() && self.unlisted.is_empty()
    }

    /// Only directories or a cgroup are left of a pod: adds it as an orphan, which ends and removes
    /// them.
    pub fn adopt_dirs(&mut self, now: Now, dir: &LogDir) {
        let orphan_count = self.map.values().filter(|pod| pod.origin() == Origin::Runtime).count();
        if orphan_count < limits::ORPHANS_MAX && self.is_complete() {
            let LogDir { uid, namespace, name } = dir.clone();
            let mut pod = Pod::orphan(&PodRef { uid: uid.clone(), namespace, name }, now);
            pod.observe_nothing();
            self.map.insert(uid, Box::new(pod));
            self.revision += 1;
        }
    }

    pub fn get(&self, uid: &str) -> Option<&Pod> {
        self.map.get(uid).map(|pod| &**pod)
    }

    pub fn get_mut(&mut self, uid: &str) -> Option<&mut Pod> {
        self.map.get_mut(uid).map(|pod| &mut **pod)
    }

    /// The pod that a call, job or query belongs to: it is not removed before that is answered.
    pub fn with_work(&mut self, uid: &str) -> &mut Pod {
        self.get_mut(uid).expect("a pod with outstanding work is not removed")
    }

    /// All pods, by uid.
    pub fn iter(&self) -> impl Iterator<Item = &Pod> {
        self.map.values().map(|pod| &**pod)
    }

    /// All pods, by uid.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Pod> {
        self.map.values_mut().map(|pod| &mut **pod)
    }

    /// Whether there is no pod, neither wanted nor listed.
    pub fn is_empty(&self) -> bool {
        self.map.is_empty()
    }

    /// When the next pod has to be stepped if nothing happens before.
    pub fn wake_at(&self) -> Option<Instant> {
        self.iter().map(Pod::wake_at).fold(None, sooner)
    }

    /// Grows whenever a pod is added, removed, or has its status computed: as long as it is
    /// unchanged, the pods are.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// Pods found in the runtime that no source wants, since the start.
    pub fn orphans_total(&self) -> u64 {
        self.orphans
    }

    /// Pods that were removed and came back under their uid, since the start: of the cloud, of the
    /// folder.
    pub fn restarted_total(&self) -> [u64; 2] {
        self.restarted
    }
}

/// Annotates when the agent first saw the pod. The annotation of a copied manifest is another
/// agent's.
fn stamp(api: &mut api::Pod, now: Now) {
    match now.timestamp() {
        Some(at) => api.metadata.annotations.insert(SEEN.to_owned(), at.to_string()),
        None => api.metadata.annotations.remove(SEEN),
    };
}

/// Whether the source's copy equals ours.
fn is_same<'a>(ours: &'a api::Pod, theirs: &'a api::Pod) -> bool {
    let is_ours = |(key, _): &(&String, &String)| *key == SEEN;
    let annotations = |pod: &'a api::Pod| pod.metadata.annotations.iter().filter(|it| !is_ours(it));
    (Arc::ptr_eq(&ours.spec, &theirs.spec) || ours.spec == theirs.spec)
        && ours.metadata.labels == theirs.metadata.labels
        && annotations(ours).eq(annotations(theirs))
        && ours.metadata.deletion_timestamp == theirs.metadata.deletion_timestamp
        && ours.metadata.deletion_grace_period_seconds
            == theirs.metadata.deletion_grace_period_seconds
        && !pod::overrules(&ours.status, &theirs.status)
}
