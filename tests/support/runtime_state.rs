//! The objects of the runtime, read from the runtime itself.

use std::path::Path;

use edged::wire::cri::container::{
    Container, ContainerState, ContainerStatus, ContainerStatusRequest, ListContainersRequest,
    RemoveContainerRequest,
};
use edged::wire::cri::sandbox::{
    ListPodSandboxRequest, PodSandbox, PodSandboxState, PodSandboxStatusRequest,
    RemovePodSandboxRequest, StopPodSandboxRequest,
};
use serde_json::Value;

use super::cri::Cri;

/// All objects of the runtime at one moment.
#[derive(Clone, Debug, Default)]
pub struct RuntimeState {
    /// All sandboxes.
    pub sandboxes: Vec<PodSandbox>,
    /// All containers.
    pub containers: Vec<Container>,
}

/// Lists all objects.
pub fn list(socket: &Path) -> RuntimeState {
    let mut cri = connect(socket);
    let sandboxes = cri.call(&ListPodSandboxRequest { filter: None }).expect("a list").items;
    let containers = cri.call(&ListContainersRequest { filter: None }).expect("a list").containers;
    RuntimeState { sandboxes, containers }
}

fn connect(socket: &Path) -> Cri {
    Cri::connect(socket).unwrap_or_else(|error| panic!("{}: {error}", socket.display()))
}

impl RuntimeState {
    /// The objects of one pod.
    pub fn of(&self, pod_uid: &str) -> RuntimeState {
        let is = |labels: &std::collections::BTreeMap<String, String>| {
            labels.get("io.kubernetes.pod.uid").is_some_and(|uid| uid == pod_uid)
        };
        RuntimeState {
            sandboxes: self.sandboxes.iter().filter(|one| is(&one.labels)).cloned().collect(),
            containers: self.containers.iter().filter(|one| is(&one.labels)).cloned().collect(),
        }
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.sandboxes.is_empty() && self.containers.is_empty()
    }

    /// Running containers of that name.
    pub fn running(&self, name: &str) -> Vec<&Container> {
        let named = |one: &&Container| one.metadata.as_ref().is_some_and(|it| it.name == name);
        let running = |one: &&Container| one.state() == ContainerState::Running;
        self.containers.iter().filter(named).filter(running).collect()
    }

    /// Sandboxes that are ready.
    pub fn ready(&self) -> Vec<&PodSandbox> {
        self.sandboxes.iter().filter(|one| one.state() == PodSandboxState::Ready).collect()
    }

    /// One line for messages.
    pub fn short(&self) -> String {
        let sandboxes = self.sandboxes.iter().map(|one| {
            let metadata = one.metadata.clone().unwrap_or_default();
            format!("{}#{} {:?}", metadata.name, metadata.attempt, one.state())
        });
        let containers = self.containers.iter().map(|one| {
            let metadata = one.metadata.clone().unwrap_or_default();
            format!("{}#{} {:?}", metadata.name, metadata.attempt, one.state())
        });
        let all: Vec<_> = sandboxes.chain(containers).collect();
        format!("[{}]", all.join(", "))
    }
}

/// A container's status, with the runtime's `info` (JSON).
pub fn container(socket: &Path, id: &str) -> (ContainerStatus, Value) {
    let request = ContainerStatusRequest { container_id: id.to_owned(), verbose: true };
    let mut reply = connect(socket).call(&request).expect("a status");
    let info = reply.info.remove("info").unwrap_or_default();
    (reply.status.expect("a status"), serde_json::from_str(&info).unwrap_or_default())
}

/// The process of a running container.
pub fn pid_of(socket: &Path, container_id: &str) -> u32 {
    let (_, info) = container(socket, container_id);
    pid_in(&info)
}

/// The process of a sandbox, which holds its namespaces.
pub fn sandbox_pid_of(socket: &Path, sandbox_id: &str) -> u32 {
    pid_in(&sandbox_info(socket, sandbox_id))
}

/// The runtime's `info` of a sandbox.
pub fn sandbox_info(socket: &Path, sandbox_id: &str) -> Value {
    let request = PodSandboxStatusRequest { pod_sandbox_id: sandbox_id.to_owned(), verbose: true };
    let mut reply = connect(socket).call(&request).expect("a status");
    let info = reply.info.remove("info").unwrap_or_default();
    serde_json::from_str(&info).unwrap_or_default()
}

fn pid_in(info: &Value) -> u32 {
    let pid = info["pid"].as_u64().and_then(|pid| u32::try_from(pid).ok());
    pid.filter(|pid| *pid > 1).unwrap_or_else(|| panic!("no pid in {info}"))
}

/// Stops and removes all objects, of any owner: between tests.
pub fn wipe(socket: &Path) {
    let state = list(socket);
    let mut cri = connect(socket);
    for sandbox in state.sandboxes {
        let pod_sandbox_id = sandbox.id;
        let _ = cri.call(&StopPodSandboxRequest { pod_sandbox_id: pod_sandbox_id.clone() });
        let _ = cri.call(&RemovePodSandboxRequest { pod_sandbox_id });
    }
    for container in list(socket).containers {
        let _ = cri.call(&RemoveContainerRequest { container_id: container.id });
    }
}
