//! What the runtime last reported of one pod: its sandboxes and containers, the newest first.
//!
//! A list contains the objects and their states. Calls that inspect one object return the rest,
//! which is kept as long as the state it was reported for lasts. The effect of our own calls is
//! entered at once (rule R2), so the next step does not have to wait for a list.

use std::sync::Arc;

use super::users;
use crate::agent::time::{Backoff, Instant};
use crate::model::cri::{
    Container, ContainerId, ContainerState, ContainerStatus, Sandbox, SandboxId, SandboxStatus,
    UserRange,
};
use crate::model::map::Map;
use crate::model::time::Timestamp;

/// One pod in the runtime.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Observed {
    /// The newest first.
    pub sandboxes: Vec<ObservedSandbox>,
    /// The newest first, of all names.
    pub containers: Vec<ObservedContainer>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct ObservedSandbox {
    /// The runtime's id.
    pub id: SandboxId,
    /// Counts from 0.
    pub attempt: u32,
    /// Can hold containers.
    pub ready: bool,
    /// Nanoseconds since 1970; 0: created by us, not yet listed.
    pub created_at: i64,
    /// When an agent first saw the pod, as annotated on the sandbox.
    pub seen_at: Option<Timestamp>,
    /// The users of its own.
    pub users: Option<UserRange>,
    /// Inspected while it was ready; `None`: not inspected yet.
    pub status: Option<SandboxStatus>,
    /// `StopPodSandbox` succeeded since the agent's start.
    pub stopped: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub struct ObservedContainer {
    /// The runtime's id.
    pub id: ContainerId,
    /// As in the pod spec.
    pub name: Box<str>,
    /// Its sandbox.
    pub sandbox: SandboxId,
    /// Counts from 0: the restart count.
    pub attempt: u32,
    /// As last listed, or as left by our last call.
    pub state: ContainerState,
    /// Nanoseconds since 1970; 0: created by us, not yet listed.
    pub created_at: i64,
    /// As the pod spec names it.
    pub image: Box<str>,
    /// From the annotation.
    pub hash: Option<Box<str>>,
    /// From the annotation, in seconds.
    pub grace_s: Option<i64>,
    /// Inspected in the current state; `None`: not inspected yet.
    pub status: Option<Box<ContainerStatus>>,
    /// When we first saw that it ran; `None`: it ran already when we first saw it.
    pub began_at: Option<Instant>,
    /// When we first saw that it had ended.
    pub exited_at: Option<Instant>,
    /// Stops of it that the runtime refused.
    pub stops: Backoff,
}

impl ObservedSandbox {
    /// A sandbox that we have just created: ready, nothing else known.
    pub fn made(id: SandboxId, attempt: u32, users: Option<UserRange>) -> Self {
        Self {
            id,
            attempt,
            ready: true,
            created_at: 0,
            seen_at: None,
            users,
            status: None,
            stopped: false,
        }
    }

    /// Takes the answer of `PodSandboxStatus`. An answer is ignored if it says that the sandbox is
    /// ready although a list said that it is not: a sandbox never becomes ready again, so the
    /// answer is older than the list.
    pub fn inspect(&mut self, status: SandboxStatus) {
        if !status.ready || self.ready {
            self.ready = status.ready;
            self.status = Some(status);
        }
    }

    fn is_as_listed(&self, listed: &Sandbox) -> bool {
        self.ready == listed.ready
            && self.created_at == listed.created_at
            && !(self.ready && self.stopped)
    }

    fn from_list(known: Option<Self>, listed: &Sandbox) -> Self {
        let &Sandbox { ref id, attempt, ready, created_at, seen_at, .. } = listed;
        let stopped = !ready && known.as_ref().is_some_and(|known| known.stopped);
        let same = known.filter(|known| known.ready == ready);
        let status = same.and_then(|known| known.status);
        let (id, users) = (id.clone(), users::lent_to(listed));
        Self { id, attempt, ready, created_at, seen_at, users, status, stopped }
    }
}

impl ObservedContainer {
    fn is_as_listed(&self, listed: &Container) -> bool {
        self.state == listed.state
            && self.created_at == listed.created_at
            && self.exited_at.is_some() == (self.state == ContainerState::Exited)
    }

    fn from_list(now: Instant, known: Option<Self>, listed: &Container) -> Self {
        let ended = listed.state == ContainerState::Exited;
        let seen_at = known.as_ref().and_then(|known| known.exited_at).unwrap_or(now);
        let began = |known: &Self| {
            let begins = known.state != listed.state && listed.state == ContainerState::Running;
            known.began_at.or(begins.then_some(now))
        };
        let began_at = known.as_ref().and_then(began);
        let stops = known.as_ref().map(|known| known.stops.clone()).unwrap_or_default();
        let same = known.filter(|known| known.state == listed.state);
        Self {
            status: same.and_then(|known| known.status),
            began_at,
            exited_at: ended.then_some(seen_at),
            id: listed.id.clone(),
            name: listed.name.clone(),
            sandbox: listed.sandbox.clone(),
            attempt: listed.attempt,
            state: listed.state,
            created_at: listed.created_at,
            image: listed.image.clone(),
            hash: listed.hash.clone(),
            grace_s: listed.grace_s,
            stops,
        }
    }

    /// May have a living process.
    pub fn may_run(&self) -> bool {
        matches!(self.state, ContainerState::Running | ContainerState::Unknown)
    }

    /// Changes the state: details of the old state no longer apply.
    pub fn turn(&mut self, now: Instant, state: ContainerState) {
        if self.state != state {
            self.state = state;
            self.status = None;
            self.began_at = self.began_at.or((state == ContainerState::Running).then_some(now));
        }
        if state == ContainerState::Exited && self.exited_at.is_none() {
            self.exited_at = Some(now);
        }
    }

    /// Takes the answer of `ContainerStatus`. `false`: it contradicts the end of the container. A
    /// container never runs again, so the answer is older than the list that reported the end; it
    /// is ignored.
    pub fn inspect(&mut self, now: Instant, status: Box<ContainerStatus>) -> bool {
        let ended = ContainerState::Exited;
        if self.state == ended && status.state != ended {
            return false;
        }
        self.turn(now, status.state);
        self.status = Some(status);
        true
    }

    /// Ended with success. Some runtimes report exit code 0 for an init container that ran out of
    /// memory.
    pub fn succeeded(&self) -> bool {
        self.state == ContainerState::Exited
            && self
                .status
                .as_ref()
                .is_some_and(|status| status.exit_code == 0 && &*status.reason != "OOMKilled")
    }
}

impl Observed {
    /// Takes the pod's part of a list, in any order. Returns whether anything differs.
    ///
    /// This happens each second for every pod, and nearly always nothing differs.
    pub fn take(
        &mut self,
        now: Instant,
        sandboxes: &mut Vec<Arc<Sandbox>>,
        containers: &mut Vec<Arc<Container>>,
    ) -> bool {
        if self.is_as_listed(sandboxes, containers) {
            sandboxes.clear();
            containers.clear();
            return false;
        }
        let Self { sandboxes: old_sandboxes, containers: old_containers } = std::mem::take(self);
        let mut known: Map<SandboxId, ObservedSandbox> =
            old_sandboxes.into_iter().map(|old| (old.id.clone(), old)).collect();
        for listed in sandboxes.drain(..) {
            let known = known.remove(&listed.id);
            self.sandboxes.push(ObservedSandbox::from_list(known, &listed));
        }
        let mut known: Map<ContainerId, ObservedContainer> =
            old_containers.into_iter().map(|old| (old.id.clone(), old)).collect();
        for listed in containers.drain(..) {
            let known = known.remove(&listed.id);
            self.containers.push(ObservedContainer::from_list(now, known, &listed));
        }
        self.sort();
        true
    }

    fn is_as_listed(&self, sandboxes: &[Arc<Sandbox>], containers: &[Arc<Container>]) -> bool {
        // Lists name each object once, so equal counts mean the same objects.
        if self.sandboxes.len() != sandboxes.len() || self.containers.len() != containers.len() {
            return false;
        }
        let by_id: Map<&SandboxId, &ObservedSandbox> =
            self.sandboxes.iter().map(|known| (&known.id, known)).collect();
        let same = |listed: &Arc<Sandbox>| {
            by_id.get(&listed.id).is_some_and(|known| known.is_as_listed(listed))
        };
        if !sandboxes.iter().all(same) {
            return false;
        }
        let by_id: Map<&ContainerId, &ObservedContainer> =
            self.containers.iter().map(|known| (&known.id, known)).collect();
        containers
            .iter()
            .all(|listed| by_id.get(&listed.id).is_some_and(|known| known.is_as_listed(listed)))
    }

    /// Attempt numbers only grow, whatever the runtime's clock does; the clock decides between
    /// equal numbers.
    fn sort(&mut self) {
        self.sandboxes.sort_by(|a, b| {
            (b.attempt, b.created_at, &b.id).cmp(&(a.attempt, a.created_at, &a.id))
        });
        self.containers.sort_by(|a, b| {
            (b.attempt, b.created_at, &b.id).cmp(&(a.attempt, a.created_at, &a.id))
        });
    }

    /// Enters a sandbox that we created.
    pub fn add_sandbox(&mut self, sandbox: ObservedSandbox) {
        self.sandboxes.insert(0, sandbox);
        self.sort();
    }

    /// Enters a container that we created.
    pub fn add_container(&mut self, container: ObservedContainer) {
        self.containers.insert(0, container);
        self.sort();
    }

    /// The newest sandbox.
    pub fn sandbox(&self) -> Option<&ObservedSandbox> {
        self.sandboxes.first()
    }

    pub fn sandbox_of(&self, id: &SandboxId) -> Option<&ObservedSandbox> {
        self.sandboxes.iter().find(|sandbox| sandbox.id == *id)
    }

    pub(super) fn sandbox_mut(&mut self, id: &SandboxId) -> Option<&mut ObservedSandbox> {
        self.sandboxes.iter_mut().find(|sandbox| sandbox.id == *id)
    }

    pub fn container(&self, id: &ContainerId) -> Option<&ObservedContainer> {
        self.containers.iter().find(|container| container.id == *id)
    }

    pub(super) fn container_mut(&mut self, id: &ContainerId) -> Option<&mut ObservedContainer> {
        self.containers.iter_mut().find(|container| container.id == *id)
    }

    /// All instances of one container of the spec, the newest first.
    pub fn of<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a ObservedContainer> + 'a {
        self.containers.iter().filter(move |container| &*container.name == name)
    }

    /// The newest instance of one container of the spec.
    pub fn newest(&self, name: &str) -> Option<&ObservedContainer> {
        self.containers.iter().find(|container| &*container.name == name)
    }

    /// Whether a process of the pod may be alive.
    pub fn may_run(&self) -> bool {
        self.containers.iter().any(ObservedContainer::may_run)
    }

    /// Whether the runtime has nothing of the pod.
    pub fn is_empty(&self) -> bool {
        self.sandboxes.is_empty() && self.containers.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::cri::Network;

    const NOW: Instant = Instant(1_000);
    const LATER: Instant = Instant(2_000);

    fn sandbox(id: &str, attempt: u32, ready: bool) -> Sandbox {
        Sandbox {
            id: SandboxId(id.into()),
            pod: None,
            attempt,
            ready,
            created_at: 1,
            source: None,
            seen_at: None,
            first_user: None,
        }
    }

    fn container(id: &str, attempt: u32, state: ContainerState) -> Container {
        Container {
            id: ContainerId(id.into()),
            pod: None,
            name: "m".into(),
            sandbox: SandboxId("s".into()),
            attempt,
            state,
            created_at: 1,
            image: "i:1".into(),
            image_id: "sha256:1".into(),
            hash: None,
            grace_s: None,
            pre_stop: None,
        }
    }

    fn status(state: ContainerState, exit_code: i32, reason: &str) -> ContainerStatus {
        ContainerStatus {
            state,
            exit_code,
            reason: reason.into(),
            started_at: 1,
            finished_at: 1,
            message: "".into(),
            image: "i:1".into(),
            image_ref: "sha256:1".into(),
            message_file: None,
            message_from_log: false,
        }
    }

    fn sandbox_status(ready: bool) -> SandboxStatus {
        SandboxStatus { ready, created_at: 1, network: Network::Pod, ips: Vec::new() }
    }

    /// Takes a list; returns whether anything differs.
    fn take(observed: &mut Observed, now: Instant, lists: &(Vec<Sandbox>, Vec<Container>)) -> bool {
        let mut sandboxes: Vec<_> = lists.0.iter().cloned().map(Arc::new).collect();
        let mut containers: Vec<_> = lists.1.iter().cloned().map(Arc::new).collect();
        let differs = observed.take(now, &mut sandboxes, &mut containers);
        assert!(sandboxes.is_empty() && containers.is_empty(), "taken");
        differs
    }

    type Change = fn(&mut (Vec<Sandbox>, Vec<Container>));

    #[test]
    fn only_a_change_in_the_list_is_a_difference() {
        let lists = (
            vec![sandbox("s", 1, true), sandbox("t", 0, false)],
            vec![
                container("a", 1, ContainerState::Running),
                container("b", 0, ContainerState::Exited),
            ],
        );
        let changes: [Change; 8] = [
            |it| it.0[0].ready = false,
            |it| it.0[1].created_at = 2,
            |it| it.1[0].state = ContainerState::Exited,
            |it| it.1[1].created_at = 2,
            |it| it.0.truncate(1),
            |it| it.1.truncate(1),
            |it| it.0[1].id.0 = "u".into(),
            |it| it.1[1].id.0 = "c".into(),
        ];
        for (at, change) in changes.into_iter().enumerate() {
            let mut observed = Observed::default();
            assert!(take(&mut observed, NOW, &lists));
            let before = observed.clone();
            assert!(!take(&mut observed, LATER, &lists), "it is the same");
            let turned =
                (lists.0.iter().rev().cloned().collect(), lists.1.iter().rev().cloned().collect());
            assert!(!take(&mut observed, LATER, &turned), "in another order");
            assert_eq!(observed, before);
            let mut other = lists.clone();
            change(&mut other);
            assert!(take(&mut observed, LATER, &other), "change {at}");
            assert_ne!(observed, before, "change {at}");
            assert!(!take(&mut observed, LATER, &other), "change {at} is taken");
        }
    }

    #[test]
    fn an_inspection_holds_while_the_state_lasts() {
        let up = (vec![sandbox("s", 0, true)], vec![container("a", 0, ContainerState::Running)]);
        let mut observed = Observed::default();
        take(&mut observed, NOW, &up);
        observed.sandboxes[0].inspect(sandbox_status(true));
        assert!(
            observed.containers[0].inspect(NOW, Box::new(status(ContainerState::Running, 0, "")))
        );
        // Something else of the pod changes.
        let mut more = up.clone();
        more.1.push(container("b", 1, ContainerState::Created));
        assert!(take(&mut observed, LATER, &more));
        assert!(observed.sandboxes[0].status.is_some());
        let known = observed.container(&ContainerId("a".into())).expect("it is there");
        assert!(known.status.is_some());
        let mut down = more.clone();
        (down.0[0].ready, down.1[0].state) = (false, ContainerState::Exited);
        assert!(take(&mut observed, LATER, &down));
        let known = observed.container(&ContainerId("a".into())).expect("it is there");
        assert_eq!((known.status.as_ref(), known.exited_at), (None, Some(LATER)));
        assert_eq!(observed.sandboxes[0].status, None);
    }

    #[test]
    fn the_first_observed_start_and_end_are_kept() {
        let one = |state| (Vec::new(), vec![container("a", 0, state)]);
        let mut observed = Observed::default();
        // The start of a container that ran before the first list is unknown.
        take(&mut observed, NOW, &one(ContainerState::Running));
        assert_eq!(
            (observed.containers[0].began_at, observed.containers[0].exited_at),
            (None, None)
        );
        let mut observed = Observed::default();
        take(&mut observed, NOW, &one(ContainerState::Created));
        take(&mut observed, LATER, &one(ContainerState::Running));
        assert_eq!(observed.containers[0].began_at, Some(LATER));
        let end = Instant(3_000);
        take(&mut observed, end, &one(ContainerState::Exited));
        assert_eq!(
            (observed.containers[0].began_at, observed.containers[0].exited_at),
            (Some(LATER), Some(end))
        );
        let mut other = one(ContainerState::Exited);
        other.1[0].created_at = 7;
        take(&mut observed, Instant(4_000), &other);
        assert_eq!(
            (observed.containers[0].began_at, observed.containers[0].exited_at),
            (Some(LATER), Some(end))
        );
    }

    #[test]
    fn an_unobserved_start_has_no_time() {
        let one = |state| (Vec::new(), vec![container("a", 0, state)]);
        let mut observed = Observed::default();
        take(&mut observed, NOW, &one(ContainerState::Running));
        let mut other = one(ContainerState::Running);
        other.1[0].created_at = 7;
        assert!(take(&mut observed, LATER, &other));
        assert_eq!(observed.containers[0].began_at, None, "it ran before");
        let mut observed = Observed::default();
        take(&mut observed, NOW, &one(ContainerState::Created));
        take(&mut observed, LATER, &one(ContainerState::Exited));
        assert_eq!(observed.containers[0].began_at, None, "it was never seen to run");
        let mut observed = Observed::default();
        take(&mut observed, NOW, &one(ContainerState::Created));
        observed.containers[0].turn(LATER, ContainerState::Exited);
        assert_eq!(observed.containers[0].began_at, None);
    }

    #[test]
    fn an_inspection_that_reports_the_end_ends_the_container() {
        let mut observed = Observed::default();
        take(&mut observed, NOW, &(Vec::new(), vec![container("a", 0, ContainerState::Running)]));
        let it = &mut observed.containers[0];
        assert!(it.inspect(LATER, Box::new(status(ContainerState::Exited, 1, ""))));
        assert_eq!((it.state, it.exited_at), (ContainerState::Exited, Some(LATER)));
    }

    #[test]
    fn a_created_object_is_the_newest_only_by_its_attempt() {
        let lists = (vec![sandbox("b", 2, true)], vec![container("b", 2, ContainerState::Exited)]);
        let mut observed = Observed::default();
        take(&mut observed, NOW, &lists);
        observed.add_sandbox(ObservedSandbox::made(SandboxId("a".into()), 1, None));
        let older = Arc::new(container("a", 1, ContainerState::Created));
        observed.add_container(ObservedContainer::from_list(NOW, None, &older));
        assert_eq!(&*observed.sandboxes[0].id.0, "b");
        assert_eq!(&*observed.containers[0].id.0, "b");
        let (sandboxes, containers) = lists;
        for one in [(sandboxes, Vec::new()), (Vec::new(), containers)] {
            let mut observed = Observed::default();
            take(&mut observed, NOW, &one);
            assert!(!observed.is_empty());
        }
    }

    #[test]
    fn only_another_state_is_a_change() {
        let mut observed = Observed::default();
        take(&mut observed, NOW, &(Vec::new(), vec![container("a", 0, ContainerState::Created)]));
        let it = &mut observed.containers[0];
        it.turn(NOW, ContainerState::Running);
        assert_eq!((it.began_at, it.exited_at), (Some(NOW), None));
        assert!(it.inspect(NOW, Box::new(status(ContainerState::Running, 0, ""))));
        it.turn(LATER, ContainerState::Running);
        assert!(it.status.is_some() && it.began_at == Some(NOW));
        it.turn(LATER, ContainerState::Exited);
        assert_eq!((it.status.as_ref(), it.exited_at), (None, Some(LATER)));
        it.turn(Instant(3_000), ContainerState::Exited);
        assert_eq!(it.exited_at, Some(LATER));
        // An answer that is older than that.
        assert!(!it.inspect(LATER, Box::new(status(ContainerState::Running, 0, ""))));
        assert_eq!((it.state, it.status.as_ref()), (ContainerState::Exited, None));
        assert!(it.inspect(LATER, Box::new(status(ContainerState::Exited, 0, ""))));
    }

    #[test]
    fn exit_code_0_without_an_oom_kill_is_success() {
        let ended = ContainerState::Exited;
        for (state, reported, good) in [
            (ended, Some((0, "Completed")), true),
            (ended, Some((0, "OOMKilled")), false),
            (ended, Some((1, "Error")), false),
            (ended, None, false),
            (ContainerState::Running, Some((0, "")), false),
        ] {
            let mut observed = Observed::default();
            take(&mut observed, NOW, &(Vec::new(), vec![container("a", 0, state)]));
            let it = &mut observed.containers[0];
            if let Some((code, reason)) = reported {
                it.inspect(NOW, Box::new(status(state, code, reason)));
            }
            assert_eq!(it.succeeded(), good, "{state:?} {reported:?}");
        }
    }

    #[test]
    fn an_inspection_makes_no_stopped_sandbox_ready() {
        let mut observed = Observed::default();
        take(&mut observed, NOW, &(vec![sandbox("s", 0, false)], Vec::new()));
        observed.sandboxes[0].inspect(sandbox_status(true));
        assert_eq!(
            (observed.sandboxes[0].ready, observed.sandboxes[0].status.is_some()),
            (false, false)
        );
        observed.sandboxes[0].inspect(sandbox_status(false));
        assert!(observed.sandboxes[0].status.is_some());
        let mut observed = Observed::default();
        take(&mut observed, NOW, &(vec![sandbox("s", 0, true)], Vec::new()));
        observed.sandboxes[0].inspect(sandbox_status(false));
        assert_eq!(
            (observed.sandboxes[0].ready, observed.sandboxes[0].status.is_some()),
            (false, true)
        );
    }

    #[test]
    fn a_stopped_sandbox_stays_stopped_while_it_is_not_ready() {
        let lists = |ready| (vec![sandbox("s", 0, ready)], Vec::new());
        let mut observed = Observed::default();
        take(&mut observed, NOW, &lists(true));
        let stop = |observed: &mut Observed| {
            (observed.sandboxes[0].stopped, observed.sandboxes[0].ready) = (true, false);
        };
        stop(&mut observed);
        assert!(!take(&mut observed, LATER, &lists(false)), "as it was left");
        let mut other = lists(false);
        other.0[0].created_at = 2;
        assert!(take(&mut observed, LATER, &other));
        assert!(observed.sandboxes[0].stopped);
        // Somebody started it: it has to be stopped again.
        assert!(take(&mut observed, LATER, &lists(true)));
        assert!(!observed.sandboxes[0].stopped);
        observed.sandboxes[0].stopped = true;
        assert!(take(&mut observed, LATER, &lists(true)), "no sandbox is both");
        assert!(!observed.sandboxes[0].stopped);
    }

    #[test]
    fn objects_are_sorted_by_attempt_then_by_creation_time() {
        let mut sandboxes =
            vec![sandbox("a", 0, true), sandbox("b", 2, true), sandbox("c", 2, true)];
        sandboxes[1].created_at = 5;
        let states = [ContainerState::Exited; 3];
        let names = ["a", "b", "c"].into_iter().zip([0, 2, 2]);
        let mut containers: Vec<_> =
            names.zip(states).map(|((id, attempt), state)| container(id, attempt, state)).collect();
        containers[1].created_at = 5;
        let mut observed = Observed::default();
        take(&mut observed, NOW, &(sandboxes, containers));
        let order =
            |all: &[ObservedContainer]| all.iter().map(|it| it.id.to_string()).collect::<String>();
        assert_eq!(order(&observed.containers), "bca");
        let ids: String = observed.sandboxes.iter().map(|it| it.id.to_string()).collect();
        assert_eq!(ids, "bca");
        let mut new = ObservedSandbox::made(SandboxId("d".into()), 3, None);
        new.created_at = 0;
        observed.add_sandbox(new);
        assert_eq!(observed.sandbox().map(|it| it.id.to_string()).as_deref(), Some("d"));
        assert!(!observed.is_empty() && !observed.may_run());
        assert!(Observed::default().is_empty());
    }
}
