//! The fake runtime's objects, and its answers.

use std::collections::BTreeMap;
use std::time::SystemTime;

use edged::wire::cri::Rpc;
use edged::wire::cri::container as c;
use edged::wire::cri::image::{
    FilesystemIdentifier, FilesystemUsage, Image, ImageFsInfoResponse, ImageStatusRequest,
    ImageStatusResponse, ListImagesResponse, RemoveImageRequest, RemoveImageResponse,
};
use edged::wire::cri::runtime as r;
use edged::wire::cri::sandbox as s;
use edged::wire::cri::security::NamespaceMode;
use prost::Message;

use super::http2::Refusal;

#[derive(Default)]
pub struct State {
    last_id: u64,
    sandboxes: BTreeMap<String, Sandbox>,
    containers: BTreeMap<String, Container>,
    /// Beside the one that all pods use.
    images: Vec<String>,
}

struct Sandbox {
    config: s::PodSandboxConfig,
    state: s::PodSandboxState,
    created_at: i64,
}

struct Container {
    config: c::ContainerConfig,
    sandbox: String,
    state: c::ContainerState,
    created_at: i64,
    started_at: i64,
    finished_at: i64,
}

type Answer = Result<Vec<u8>, Refusal>;

const IMAGE: &str = "sha256:8d147537fb7d1ac8895da4d55a5e53621949981e2e6460976dae812f83d84a44";

/// More items for a list call; nothing for another call.
pub fn crowd(path: &str, count: usize) -> Vec<u8> {
    let labels = |n: usize| {
        let name = n.to_string();
        let container = ("io.kubernetes.container.name", "c".to_owned());
        let all = [
            ("io.kubernetes.pod.name", format!("{n:0>300}")),
            ("io.kubernetes.pod.namespace", "n".to_owned()),
            ("io.kubernetes.pod.uid", name),
            container,
        ];
        all.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
    };
    if path == Rpc::ListPodSandbox.path() {
        let item = |n: usize| s::PodSandbox {
            id: format!("s{n}"),
            labels: labels(n),
            ..s::PodSandbox::default()
        };
        s::ListPodSandboxResponse { items: (0..count).map(item).collect() }.encode_to_vec()
    } else if path == Rpc::ListContainers.path() {
        let item = |n: usize| c::Container {
            id: format!("c{n}"),
            pod_sandbox_id: format!("s{n}"),
            state: c::ContainerState::Running as i32,
            labels: labels(n),
            ..c::Container::default()
        };
        c::ListContainersResponse { containers: (0..count).map(item).collect() }.encode_to_vec()
    } else {
        Vec::new()
    }
}

impl State {
    /// Answers one call.
    pub fn answer(&mut self, path: &str, message: &[u8]) -> Answer {
        let rpc = Rpc::ALL.iter().find(|rpc| rpc.path() == path);
        match rpc {
            Some(Rpc::Version) => ok(&r::VersionResponse {
                version: "0.1.0".to_owned(),
                runtime_name: "pretended".to_owned(),
                runtime_version: "1.0".to_owned(),
                runtime_api_version: "v1".to_owned(),
            }),
            Some(Rpc::Status) => ok(&status()),
            Some(Rpc::ListPodSandbox) => ok(&self.list_sandboxes()),
            Some(Rpc::ListContainers) => ok(&self.list_containers()),
            Some(Rpc::RunPodSandbox) => self.run_sandbox(read(message)),
            Some(Rpc::PodSandboxStatus) => self.sandbox_status(&read(message)),
            Some(Rpc::StopPodSandbox) => self.stop_sandbox(&read(message)),
            Some(Rpc::RemovePodSandbox) => self.remove_sandbox(&read(message)),
            Some(Rpc::CreateContainer) => self.create(read(message)),
            Some(Rpc::StartContainer) => self.start(&read(message)),
            Some(Rpc::StopContainer) => self.stop(&read(message)),
            Some(Rpc::RemoveContainer) => self.remove(&read(message)),
            Some(Rpc::ContainerStatus) => self.container_status(&read(message)),
            Some(Rpc::ImageStatus) => ok(&image(read(message))),
            Some(Rpc::ListImages) => ok(&self.list_images()),
            Some(Rpc::RemoveImage) => self.remove_image(read(message)),
            Some(Rpc::ImageFsInfo) => ok(&image_fs()),
            _ => Err((12, "not here")),
        }
    }

    fn id(&mut self) -> String {
        self.last_id += 1;
        // As long as containerd's, and as dissimilar.
        let scattered =
            u128::from(self.last_id).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
        format!("{scattered:032x}{scattered:032x}")
    }

    fn run_sandbox(&mut self, request: s::RunPodSandboxRequest) -> Answer {
        let config = request.config.ok_or((3, "no config"))?;
        if self.sandboxes.values().any(|other| other.config.metadata == config.metadata) {
            return Err((2, "the name is reserved"));
        }
        let id = self.id();
        let sandbox = Sandbox { config, state: s::PodSandboxState::Ready, created_at: now() };
        self.sandboxes.insert(id.clone(), sandbox);
        ok(&s::RunPodSandboxResponse { pod_sandbox_id: id })
    }

    fn list_sandboxes(&self) -> s::ListPodSandboxResponse {
        let item = |(id, sandbox): (&String, &Sandbox)| s::PodSandbox {
            id: id.clone(),
            metadata: sandbox.config.metadata.clone(),
            state: sandbox.state as i32,
            created_at: sandbox.created_at,
            labels: sandbox.config.labels.clone(),
            annotations: sandbox.config.annotations.clone(),
            runtime_handler: String::new(),
        };
        s::ListPodSandboxResponse { items: self.sandboxes.iter().map(item).collect() }
    }

    fn sandbox_status(&self, request: &s::PodSandboxStatusRequest) -> Answer {
        let id = &request.pod_sandbox_id;
        let sandbox = self.sandboxes.get(id).ok_or((5, "no such sandbox"))?;
        let linux = sandbox.config.linux.clone().unwrap_or_default();
        let options = linux.security_context.and_then(|security| security.namespace_options);
        let node = options.as_ref().is_some_and(|it| it.network == NamespaceMode::Node as i32);
        let ip = if node { String::new() } else { "10.88.0.9".to_owned() };
        let status = s::PodSandboxStatus {
            id: id.clone(),
            metadata: sandbox.config.metadata.clone(),
            state: sandbox.state as i32,
            created_at: sandbox.created_at,
            network: Some(s::PodSandboxNetworkStatus { ip, additional_ips: Vec::new() }),
            linux: Some(s::LinuxPodSandboxStatus { namespaces: Some(s::Namespace { options }) }),
            labels: sandbox.config.labels.clone(),
            annotations: sandbox.config.annotations.clone(),
            runtime_handler: String::new(),
        };
        ok(&s::PodSandboxStatusResponse { status: Some(status), ..Default::default() })
    }

    fn stop_sandbox(&mut self, request: &s::StopPodSandboxRequest) -> Answer {
        if let Some(sandbox) = self.sandboxes.get_mut(&request.pod_sandbox_id) {
            sandbox.state = s::PodSandboxState::NotReady;
        }
        let inside = self.containers.values_mut().filter(|c| c.sandbox == request.pod_sandbox_id);
        inside.for_each(Container::end);
        ok(&s::StopPodSandboxResponse {})
    }

    fn remove_sandbox(&mut self, request: &s::RemovePodSandboxRequest) -> Answer {
        self.sandboxes.remove(&request.pod_sandbox_id);
        self.containers.retain(|_, container| container.sandbox != request.pod_sandbox_id);
        ok(&s::RemovePodSandboxResponse {})
    }

    fn create(&mut self, request: c::CreateContainerRequest) -> Answer {
        if !self.sandboxes.contains_key(&request.pod_sandbox_id) {
            return Err((5, "no such sandbox"));
        }
        let container = Container {
            config: request.config.ok_or((3, "no config"))?,
            sandbox: request.pod_sandbox_id,
            state: c::ContainerState::Created,
            created_at: now(),
            started_at: 0,
            finished_at: 0,
        };
        let id = self.id();
        self.containers.insert(id.clone(), container);
        ok(&c::CreateContainerResponse { container_id: id })
    }

    fn container(&mut self, id: &str) -> Result<&mut Container, Refusal> {
        self.containers.get_mut(id).ok_or((5, "no such container"))
    }

    fn start(&mut self, request: &c::StartContainerRequest) -> Answer {
        let container = self.container(&request.container_id)?;
        container.state = c::ContainerState::Running;
        container.started_at = now();
        ok(&c::StartContainerResponse {})
    }

    fn stop(&mut self, request: &c::StopContainerRequest) -> Answer {
        self.container(&request.container_id)?.end();
        ok(&c::StopContainerResponse {})
    }

    fn remove(&mut self, request: &c::RemoveContainerRequest) -> Answer {
        self.containers.remove(&request.container_id);
        ok(&c::RemoveContainerResponse {})
    }

    fn list_containers(&self) -> c::ListContainersResponse {
        let item = |(id, container): (&String, &Container)| c::Container {
            id: id.clone(),
            pod_sandbox_id: container.sandbox.clone(),
            metadata: container.config.metadata.clone(),
            image: container.config.image.clone(),
            image_ref: IMAGE.to_owned(),
            state: container.state as i32,
            created_at: container.created_at,
            labels: container.config.labels.clone(),
            annotations: container.config.annotations.clone(),
            image_id: String::new(),
        };
        c::ListContainersResponse { containers: self.containers.iter().map(item).collect() }
    }

    fn container_status(&mut self, request: &c::ContainerStatusRequest) -> Answer {
        let container = self.container(&request.container_id)?;
        let ended = container.state == c::ContainerState::Exited;
        let status = c::ContainerStatus {
            id: request.container_id.clone(),
            metadata: container.config.metadata.clone(),
            state: container.state as i32,
            created_at: container.created_at,
            started_at: container.started_at,
            finished_at: container.finished_at,
            reason: if ended { "Completed".to_owned() } else { String::new() },
            image: container.config.image.clone(),
            image_ref: IMAGE.to_owned(),
            labels: container.config.labels.clone(),
            annotations: container.config.annotations.clone(),
            ..Default::default()
        };
        ok(&c::ContainerStatusResponse { status: Some(status), info: BTreeMap::new() })
    }
}

/// What garbage collection finds and leaves.
impl State {
    /// As if each running container had been restarted this many times; returns the paths of their
    /// logs.
    pub fn restart_all(&mut self, times: u32) -> Vec<String> {
        let running: Vec<String> = self.containers.keys().cloned().collect();
        let mut logs = Vec::new();
        for id in running {
            for attempt in 0..=times {
                let container = &self.containers[&id];
                let mut copy = container.at(attempt, times);
                let folder = &self.sandboxes[&copy.sandbox].config.log_directory;
                logs.push(format!("{folder}/{}", copy.config.log_path));
                if attempt == times {
                    self.containers.insert(id.clone(), copy);
                } else {
                    copy.end();
                    let id = self.id();
                    self.containers.insert(id, copy);
                }
            }
        }
        logs
    }

    /// This many unused images.
    pub fn add_images(&mut self, count: usize) {
        self.images = (0..count).map(|n| format!("sha256:{n:064x}")).collect();
    }

    /// The numbers of running containers, of ended ones, and of images.
    pub fn count(&self) -> (usize, usize, usize) {
        let runs = |it: &&Container| it.state == c::ContainerState::Running;
        let running = self.containers.values().filter(runs).count();
        (running, self.containers.len() - running, self.list_images().images.len())
    }

    fn list_images(&self) -> ListImagesResponse {
        let image = |(id, tag): (&str, String)| Image {
            id: id.to_owned(),
            repo_tags: vec![tag],
            size: 1 << 20,
            ..Default::default()
        };
        let unused =
            self.images.iter().map(|id| (id.as_str(), format!("localhost/{}:1", &id[60..])));
        let used = (IMAGE, "localhost/pause:1".to_owned());
        ListImagesResponse { images: unused.chain([used]).map(image).collect() }
    }

    fn remove_image(&mut self, request: RemoveImageRequest) -> Answer {
        let id = request.image.map(|spec| spec.image).unwrap_or_default();
        if id == IMAGE {
            return Err((9, "containers use it"));
        }
        self.images.retain(|image| *image != id);
        ok(&RemoveImageResponse {})
    }
}

impl Container {
    /// Its attempt of this number, when the last of them is `newest`.
    fn at(&self, attempt: u32, newest: u32) -> Container {
        let mut config = self.config.clone();
        if let Some(metadata) = &mut config.metadata {
            config.log_path = format!("{}/{attempt}.log", metadata.name);
            metadata.attempt = attempt;
        }
        let count = "io.kubernetes.container.restartCount".to_owned();
        config.annotations.insert(count, attempt.to_string());
        let at = self.created_at - i64::from(newest - attempt) * 1_000_000_000;
        let sandbox = self.sandbox.clone();
        Container {
            config,
            sandbox,
            state: self.state,
            created_at: at,
            started_at: at,
            finished_at: 0,
        }
    }

    fn end(&mut self) {
        if self.state == c::ContainerState::Running {
            self.finished_at = now();
        }
        self.state = c::ContainerState::Exited;
    }
}

fn status() -> r::StatusResponse {
    let condition = |kind: &str| r::RuntimeCondition {
        r#type: kind.to_owned(),
        status: true,
        reason: String::new(),
        message: String::new(),
    };
    let conditions = vec![condition("RuntimeReady"), condition("NetworkReady")];
    r::StatusResponse { status: Some(r::RuntimeStatus { conditions }), ..Default::default() }
}

fn image(request: ImageStatusRequest) -> ImageStatusResponse {
    let image = Image {
        id: IMAGE.to_owned(),
        repo_tags: request.image.into_iter().map(|spec| spec.image).collect(),
        size: 1 << 20,
        ..Default::default()
    };
    ImageStatusResponse { image: Some(image), ..Default::default() }
}

fn image_fs() -> ImageFsInfoResponse {
    let usage = FilesystemUsage {
        timestamp: now(),
        fs_id: Some(FilesystemIdentifier { mountpoint: "/".to_owned() }),
        used_bytes: None,
        inodes_used: None,
    };
    ImageFsInfoResponse { image_filesystems: vec![usage], ..Default::default() }
}

#[expect(clippy::unnecessary_wraps, reason = "every answer that is not a refusal ends with it")]
fn ok(message: &impl Message) -> Answer {
    Ok(message.encode_to_vec())
}

fn read<M: Message + Default>(bytes: &[u8]) -> M {
    M::decode(bytes).expect("our own client's message")
}

fn now() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    since.as_nanos() as i64
}
