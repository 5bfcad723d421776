//! The sandboxes and containers that truly exist.

use std::collections::BTreeMap;

use edged::model::time::Timestamp;

use crate::rule::judge;
use crate::runtime::{ContainerNo, SandboxNo};

/// All of them. Others only read: what happens in the runtime comes through the methods.
#[derive(Default)]
pub struct Instances {
    sandboxes: BTreeMap<SandboxNo, Sandbox>,
    containers: BTreeMap<ContainerNo, Container>,
    /// The pod of each container that ever existed; `None`: of no pod.
    owners: BTreeMap<ContainerNo, Option<usize>>,
    /// The same of each sandbox: the agent may request something of one that is gone.
    sandbox_owners: BTreeMap<SandboxNo, Option<usize>>,
}

/// The true state of one sandbox.
pub struct Sandbox {
    /// `None`: of no pod.
    pub pod: Option<usize>,
    pub made_at: u64,
    pub down_at: Option<u64>,
    pub has_ip: bool,
    pub seen_at: Option<Timestamp>,
}

/// The true state of one container.
pub struct Container {
    /// The pod and its slot; `None`: of no pod.
    pub place: Option<(usize, usize)>,
    pub sandbox: SandboxNo,
    pub image: Box<str>,
    pub alive: bool,
    pub began_at: u64,
    /// The last grace period it was stopped with, in this life.
    pub grace_s: Option<i64>,
}

impl Container {
    /// Whether it runs in this pod.
    pub fn runs_in(&self, pod: usize) -> bool {
        self.alive && self.place.is_some_and(|(at, _)| at == pod)
    }
}

impl Instances {
    pub fn begin_life(&mut self) {
        for container in self.containers.values_mut() {
            container.grace_s = None;
        }
    }

    pub fn sandbox(&self, number: SandboxNo) -> Option<&Sandbox> {
        self.sandboxes.get(&number)
    }

    /// The sandboxes of a pod.
    pub fn sandboxes_of(&self, pod: usize) -> impl Iterator<Item = (SandboxNo, &Sandbox)> {
        let all = self.sandboxes.iter().map(|(&number, sandbox)| (number, sandbox));
        all.filter(move |(_, sandbox)| sandbox.pod == Some(pod))
    }

    pub fn container(&self, number: ContainerNo) -> Option<&Container> {
        self.containers.get(&number)
    }

    pub fn containers(&self) -> impl Iterator<Item = (ContainerNo, &Container)> {
        self.containers.iter().map(|(&number, container)| (number, container))
    }

    /// The pod and the slot of a container that exists.
    pub fn place_of(&self, number: ContainerNo) -> Option<(usize, usize)> {
        self.container(number)?.place
    }

    /// Whether there ever was this container.
    pub fn has_existed(&self, number: ContainerNo) -> bool {
        self.owners.contains_key(&number)
    }

    /// The pod of a container that ever existed; `None`: of no pod.
    pub fn owner_of(&self, number: ContainerNo) -> Option<usize> {
        self.owners.get(&number).copied().flatten()
    }

    /// Whether there ever was this sandbox.
    pub fn has_sandbox_existed(&self, number: SandboxNo) -> bool {
        self.sandbox_owners.contains_key(&number)
    }

    /// The pod of a sandbox that ever existed; `None`: of no pod.
    pub fn sandbox_owner(&self, number: SandboxNo) -> Option<usize> {
        self.sandbox_owners.get(&number).copied().flatten()
    }

    /// Whether no newer instance of its container exists.
    pub fn is_last(&self, number: ContainerNo) -> bool {
        let Some((at, slot)) = self.place_of(number) else { return false };
        let later = self.owners.range(number + 1..);
        let mut own = later.filter(|(_, owner)| **owner == Some(at)).map(|(later, _)| later);
        own.all(|later| self.place_of(*later).is_some_and(|(_, other)| other != slot))
    }

    pub fn sandbox_made(&mut self, number: SandboxNo, sandbox: Sandbox) {
        self.sandbox_owners.insert(number, sandbox.pod);
        self.sandboxes.insert(number, sandbox);
    }

    /// Returns its pod.
    pub fn sandbox_down(&mut self, now: u64, number: SandboxNo) -> Option<usize> {
        let sandbox = self.sandboxes.get_mut(&number).expect("it was made");
        sandbox.down_at = Some(now);
        sandbox.pod
    }

    /// Returns its pod.
    pub fn sandbox_gone(&mut self, number: SandboxNo) -> Option<usize> {
        self.sandboxes.remove(&number)?.pod
    }

    pub fn made(&mut self, number: ContainerNo, container: Container) {
        self.owners.insert(number, container.place.map(|(pod, _)| pod));
        self.containers.insert(number, container);
    }

    pub fn started(&mut self, now: u64, number: ContainerNo) -> &Container {
        let container = self.containers.get_mut(&number).expect("it was made");
        (container.alive, container.began_at) = (true, now);
        container
    }

    /// Returns the container, and whether it was alive.
    pub fn ended(&mut self, number: ContainerNo) -> (&Container, bool) {
        let container = self.containers.get_mut(&number).expect("it was made");
        let was_alive = std::mem::take(&mut container.alive);
        (container, was_alive)
    }

    /// Returns its place.
    pub fn gone(&mut self, number: ContainerNo) -> Option<(usize, usize)> {
        self.containers.remove(&number).expect("it was made").place
    }

    /// A container is stopped: its grace period only gets shorter.
    pub fn stopped(&mut self, number: ContainerNo, grace_s: i64) {
        let Some(container) = self.containers.get_mut(&number) else { return };
        judge!(
            container.grace_s.is_none_or(|before| grace_s <= before),
            "[grace] c{number} is given {grace_s} s, and was given {:?} before",
            container.grace_s
        );
        container.grace_s = Some(grace_s);
    }
}
