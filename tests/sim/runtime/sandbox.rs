//! Sandboxes: creating, stopping and removing them.

use std::collections::BTreeMap;
use std::sync::Arc;

use edged::model::cri::{
    self, CallError, Code, Namespaces, Network, PodRef, Reply, SandboxConfig, SandboxId,
    SandboxStatus,
};
use edged::model::pod::{FIRST_USER, SEEN};
use edged::model::time::Timestamp;

use super::number_of;
use super::quirks::{Taken, refused};
use super::{Begun, Clock, Effect, Holder, Operation, Runtime, Sandbox, SandboxNo, Serial};
use crate::chance::Chance;
use crate::faults::Faults;

/// How long a name stays reserved after a failed clean-up, milliseconds.
const LEAK_MS: u64 = 90_000;

impl Runtime {
    pub(super) fn begin_sandbox(
        &mut self,
        clock: Clock,
        serial: Serial,
        config: &SandboxConfig,
        faults: &Faults,
        chance: &mut Chance,
    ) -> Begun {
        let PodRef { uid, namespace, name: pod } = &config.pod;
        let name = format!("{pod}_{namespace}_{uid}_{}", config.attempt);
        if let Some(holder) = self.holder(clock.now, &name) {
            return Begun::Answer(self.sandbox_name_taken(&name, holder));
        }
        self.names.insert(name.clone(), Holder::Operation(serial));
        let config = Box::new(config.clone());
        self.operations.insert(serial, Operation::RunSandbox { config, name });
        Begun::Takes(chance.between(20, 200) + chance.spread(faults.sandbox_ms))
    }

    fn sandbox_name_taken(&self, name: &str, holder: Holder) -> Result<Reply, CallError> {
        match (self.quirks.taken, holder) {
            (Taken::Existing, Holder::Sandbox(number)) => {
                Ok(Reply::Sandbox(self.sandboxes[&number].listed.id.clone()))
            }
            (Taken::Refused(code), _) => Err(reserved("sandbox", code, name, holder)),
            (Taken::Existing | Taken::Removed, _) => {
                Err(reserved("sandbox", Code::Unknown, name, holder))
            }
        }
    }

    pub(super) fn finish_sandbox(
        &mut self,
        clock: Clock,
        config: SandboxConfig,
        name: String,
        faults: &Faults,
        chance: &mut Chance,
    ) -> Result<Reply, CallError> {
        let no_network = config.namespaces.network == Network::Pod && !self.network_ready;
        if no_network || chance.percent(faults.sandbox_fail_pct) {
            self.sandbox_failed(clock, config, name, faults, chance);
            let message = "failed to setup network for sandbox: plugin did not answer".to_owned();
            return Err(refused(Code::Unknown, message));
        }
        let number = self.add_sandbox(clock, config, name);
        let sandbox = self.sandboxes.get_mut(&number).expect("just added");
        if chance.percent(faults.no_ip_pct) {
            sandbox.ip = None;
        }
        Ok(Reply::Sandbox(sandbox.listed.id.clone()))
    }

    /// A sandbox that could not be created is cleaned up, or left behind not ready, or invisibly
    /// holds its name.
    fn sandbox_failed(
        &mut self,
        clock: Clock,
        config: SandboxConfig,
        name: String,
        faults: &Faults,
        chance: &mut Chance,
    ) {
        if !chance.percent(faults.leftover_pct) {
            self.names.remove(&name);
        } else if chance.percent(60) {
            let number = self.add_sandbox(clock, config, name);
            self.sandbox_down(number);
        } else {
            let until = clock.now + chance.below(LEAK_MS);
            self.names.insert(name, Holder::Leaked { until });
        }
    }

    /// A ready sandbox, as if made by an agent.
    pub fn adopt_sandbox(&mut self, clock: Clock, config: SandboxConfig) -> SandboxNo {
        let PodRef { uid, namespace, name } = &config.pod;
        let name = format!("{name}_{namespace}_{uid}_{}", config.attempt);
        self.add_sandbox(clock, config, name)
    }

    /// A ready sandbox that is no Kubernetes pod.
    pub fn foreign_sandbox(&mut self, clock: Clock) -> SandboxNo {
        let config = SandboxConfig {
            pod: PodRef { uid: "foreign".into(), namespace: "".into(), name: "foreign".into() },
            namespaces: Namespaces { network: Network::Node, ..Namespaces::default() },
            ..SandboxConfig::default()
        };
        let name = format!("foreign-{}", self.numbers);
        self.add_sandbox(clock, config, name)
    }

    fn add_sandbox(&mut self, clock: Clock, config: SandboxConfig, name: String) -> SandboxNo {
        let number = self.number();
        let host_network = config.namespaces.network == Network::Node;
        let ip = format!("10.{}.{}.{}", number >> 16, number >> 8 & 255, number & 255);
        let source = config.annotations.get("kubernetes.io/config.source");
        let listed = Arc::new(cri::Sandbox {
            id: SandboxId(format!("s{number}").into()),
            pod: pod_of(&config.labels),
            attempt: config.attempt,
            ready: true,
            created_at: clock.nanos,
            source: source.map(|source| source.as_str().into()),
            seen_at: config.annotations.get(SEEN).and_then(|at| Timestamp::parse(at)),
            first_user: config.annotations.get(FIRST_USER).and_then(|first| first.parse().ok()),
        });
        self.names.insert(name.clone(), Holder::Sandbox(number));
        let sandbox = Sandbox {
            listed,
            ip: (!host_network).then(|| ip.into()),
            host_network,
            log_directory: config.log_directory,
            cgroup_parent: config.cgroup_parent,
            name,
        };
        self.sandboxes.insert(number, sandbox);
        self.outputs.effects.push(Effect::SandboxMade(number));
        number
    }

    /// Whether the sandbox was created with this configuration, as far as it is stored.
    pub(super) fn is_made_with(&self, id: &str, config: &SandboxConfig) -> bool {
        self.sandboxes.get(&number_of(id)).is_none_or(|sandbox| {
            sandbox.listed.pod.as_ref() == Some(&config.pod)
                && sandbox.listed.attempt == config.attempt
                && sandbox.log_directory == config.log_directory
                // An agent without pod cgroups sends none.
                && (sandbox.cgroup_parent.is_empty()
                    || sandbox.cgroup_parent == config.cgroup_parent)
                && sandbox.host_network == (config.namespaces.network == Network::Node)
        })
    }

    pub(super) fn sandbox_down(&mut self, number: SandboxNo) {
        let sandbox = self.sandboxes.get_mut(&number).expect("callers pass an existing one");
        if sandbox.listed.ready {
            Arc::make_mut(&mut sandbox.listed).ready = false;
            self.outputs.effects.push(Effect::SandboxDown(number));
        }
    }

    pub(super) fn stop_sandbox(
        &mut self,
        clock: Clock,
        id: &str,
        fails: bool,
    ) -> Result<Reply, CallError> {
        let number = number_of(id);
        if !self.sandboxes.contains_key(&number) {
            let done = self.quirks.stop_missing_is_done;
            return if done { Ok(Reply::Done) } else { Err(self.quirks.not_found(id)) };
        }
        for container in self.containers_in(number) {
            self.end(clock, container, 137, "");
        }
        if fails {
            let message = format!("failed to destroy network for sandbox {id:?}");
            return Err(refused(Code::Unknown, message));
        }
        self.sandbox_down(number);
        Ok(Reply::Done)
    }

    pub(super) fn remove_sandbox(&mut self, clock: Clock, id: &str) -> Result<Reply, CallError> {
        let number = number_of(id);
        let Some(sandbox) = self.sandboxes.get(&number) else { return Ok(Reply::Done) };
        if sandbox.listed.ready && !self.quirks.removes_ready {
            let message = format!("sandbox {id:?} is not fully stopped");
            return Err(refused(Code::Unknown, message));
        }
        for container in self.containers_in(number) {
            self.check_task(container)?;
        }
        self.drop_sandbox(clock, number);
        Ok(Reply::Done)
    }

    /// A user removes it by hand, with everything that runs in it.
    pub fn drop_sandbox(&mut self, clock: Clock, number: SandboxNo) {
        for container in self.containers_in(number) {
            self.end(clock, container, 137, "");
            self.forget_container(container);
        }
        self.sandbox_down(number);
        self.forget_sandbox(number);
    }

    pub(super) fn forget_sandbox(&mut self, number: SandboxNo) {
        let sandbox = self.sandboxes.remove(&number).expect("callers pass an existing one");
        self.names.remove(&sandbox.name);
        self.outputs.effects.push(Effect::SandboxGone(number));
    }

    pub(super) fn sandbox_status(&self, id: &str) -> Result<Reply, CallError> {
        let found = self.sandboxes.get(&number_of(id));
        let sandbox = found.ok_or_else(|| self.quirks.not_found(id))?;
        let ip = sandbox.ip.clone().filter(|_| sandbox.listed.ready);
        Ok(Reply::SandboxStatus(Box::new(SandboxStatus {
            ready: sandbox.listed.ready,
            created_at: sandbox.listed.created_at,
            network: if sandbox.host_network { Network::Node } else { Network::Pod },
            ips: ip.into_iter().collect(),
        })))
    }

    pub(super) fn list_sandboxes(&self) -> Vec<Arc<cri::Sandbox>> {
        self.sandboxes.values().map(|sandbox| sandbox.listed.clone()).collect()
    }

    fn containers_in(&self, sandbox: SandboxNo) -> Vec<u32> {
        let inside = self.containers.iter().filter(|(_, it)| it.sandbox == sandbox);
        inside.map(|(&number, _)| number).collect()
    }
}

/// The pod that these labels name.
pub(super) fn pod_of(labels: &BTreeMap<String, String>) -> Option<PodRef> {
    let label = |key: &str| Some(labels.get(key)?.as_str().into());
    Some(PodRef {
        uid: label("io.kubernetes.pod.uid")?,
        namespace: label("io.kubernetes.pod.namespace")?,
        name: label("io.kubernetes.pod.name")?,
    })
}

pub(super) fn reserved(what: &str, code: Code, name: &str, holder: Holder) -> CallError {
    let id = match holder {
        Holder::Sandbox(number) => format!("s{number}"),
        Holder::Container(number) => format!("c{number}"),
        Holder::Operation(_) | Holder::Leaked { .. } => "0".to_owned(),
    };
    refused(
        code,
        format!("failed to reserve {what} name {name:?}: name {name:?} is reserved for {id:?}"),
    )
}
