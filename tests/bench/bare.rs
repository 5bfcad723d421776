//! The reference: the agent's calls, with the same bytes, without the agent.
//!
//! Each pod goes through its steps one by one; over all pods as many calls are under way as the
//! agent allows itself ([`WORK_CALLS_MAX`]; stops do not count), and the longest waiting one comes
//! first, as in the agent.

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::time::{Duration, Instant};

use edged::agent::downward::Downward;
use edged::agent::objects::Objects;
use edged::agent::pod::config::{MountContext, NewContainer, container_config, sandbox_config};
use edged::agent::pod::env::Sources;
use edged::agent::{Config, pod::hash::container_hash};
use edged::limits::WORK_CALLS_MAX;
use edged::model::cri::{ContainerId, Dns, ImageUser, Reply, Request, SandboxId};
use edged::model::pod::Pod;
use edged::wire::cri::{Rpc, convert};
use edged::wire::grpc::CallKey;
use edged::wire::manifest;

use crate::support::agent::NODE;
use crate::support::cri::{Cri, Refusal};

/// A call of a pod's lifecycle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    RunSandbox,
    SandboxStatus,
    ImageStatus,
    Create,
    Start,
    ContainerStatus,
    StopContainer,
    StopSandbox,
    RemoveContainer,
    RemoveSandbox,
}

/// From nothing to Running, in the agent's order.
pub const START: &[Step] = &[
    Step::RunSandbox,
    Step::SandboxStatus,
    Step::ImageStatus,
    Step::Create,
    Step::Start,
    Step::ContainerStatus,
];

/// From Running to nothing, in the agent's order.
pub const DELETE: &[Step] = &[
    Step::StopContainer,
    Step::StopSandbox,
    Step::ContainerStatus,
    Step::RemoveContainer,
    Step::RemoveSandbox,
];

/// From the state after a reboot to a container that can be started, in the agent's order.
const AGAIN: &[Step] = &[
    Step::ContainerStatus,
    Step::StopSandbox,
    Step::RunSandbox,
    Step::SandboxStatus,
    Step::ImageStatus,
    Step::Create,
];

/// Pods that are started and deleted by bare calls.
pub struct Bare {
    cri: Cri,
    config: Config,
    /// Dead sandboxes keep the names of earlier attempts.
    attempt: u32,
    pods: Vec<BarePod>,
    objects: Objects,
}

struct BarePod {
    api: Pod,
    sandbox: Option<SandboxId>,
    container: Option<ContainerId>,
    image_ref: Box<str>,
    image_user: ImageUser,
    /// Any addresses; only the length matters.
    pod_ips: Vec<String>,
}

impl BarePod {
    fn making<'a>(
        &'a self,
        attempt: u32,
        objects: &'a Objects,
        config: &'a Config,
    ) -> NewContainer<'a> {
        let downward = Downward { pod: &self.api, host_ips: &[], pod_ips: &self.pod_ips, config };
        NewContainer {
            pod: &self.api,
            container: &self.api.spec.containers[0],
            attempt,
            image_ref: &self.image_ref,
            image_user: &self.image_user,
            sources: Sources {
                downward,
                objects,
                #[cfg(feature = "services")]
                services: &[],
            },
            mount_context: MountContext::nothing(&config.root),
            users: None,
            target: None,
        }
    }
}

impl Bare {
    /// Connects, and reads the pods from their manifests.
    pub fn connect(runtime: &Path, pod_logs: &Path, manifests: &[String]) -> Bare {
        let config = Config {
            node_name: NODE.to_owned(),
            root: "/var/lib/kubelet".to_owned(),
            pod_logs: pod_logs.to_string_lossy().into_owned(),
            machine: edged::io::sys::machine("/"),
            pods_max: 110,
            crash_backoff_max_ms: edged::limits::BACKOFF_MAX_MS,
            ..Config::default()
        };
        let objects = Objects::default();
        let pods: Vec<BarePod> =
            manifests.iter().enumerate().map(|(n, text)| pod(n, text)).collect();
        for pod in &pods {
            let sandbox = sandbox_config(&pod.api, 0, None, &Dns::default(), &config);
            let folder = sandbox.expect("a plain pod").log_directory;
            let folder = Path::new(&folder).join(&*pod.api.spec.containers[0].name);
            std::fs::create_dir_all(folder).expect("a folder of ours");
            let made = container_config(&pod.making(0, &objects, &config), &config);
            for mount in made.expect("a plain container").mounts {
                let path = Path::new(&mount.host_path);
                std::fs::create_dir_all(path.parent().expect("a folder")).expect("ours");
                std::fs::write(path, "").expect("a file of ours");
            }
        }
        let cri = Cri::connect(runtime).expect("the runtime listens");
        Bare { cri, config, attempt: 0, pods, objects }
    }

    /// Takes all pods through these steps; returns seconds.
    pub fn run(&mut self, steps: &[Step]) -> f64 {
        let begun = Instant::now();
        let (_, last) = self.take(steps);
        (last - begun).as_secs_f64()
    }

    /// The runtime is up again, with only the leftovers of the pods: lists as the agent does, as
    /// soon as possible, and creates them again. Returns when the first container could be started.
    pub fn run_again(&mut self, runtime: &Path) -> Instant {
        self.cri = Cri::connect(runtime).expect("the runtime listens");
        self.attempt += 1;
        while !self.is_ready() {
            std::thread::sleep(Duration::from_micros(500));
        }
        for list in [Request::ListPodSandbox, Request::ListContainers] {
            self.call(&list).expect("a list");
        }
        let (first, _) = self.take(AGAIN);
        first
    }

    fn is_ready(&mut self) -> bool {
        matches!(self.call(&Request::Status), Ok(Reply::Status(status)) if status.runtime.is_ok())
    }

    fn call(&mut self, request: &Request) -> Result<Reply, Refusal> {
        let (rpc, message) = convert::encode(request);
        self.cri.begin(rpc, &message);
        let (_, answer) = self.cri.next();
        Ok(convert::decode(rpc, &answer?).expect("a reply"))
    }

    /// When the first pod was finished, and when the last.
    fn take(&mut self, steps: &[Step]) -> (Instant, Instant) {
        let mut first = None;
        let mut queue: VecDeque<(usize, usize)> =
            (0..self.pods.len()).map(|pod| (pod, 0)).collect();
        let mut open: BTreeMap<CallKey, (usize, usize, Rpc)> = BTreeMap::new();
        let mut working = 0;
        loop {
            let mut refused = VecDeque::new();
            while let Some((pod, at)) = queue.pop_front() {
                let works = !steps[at].is_stop();
                if works && working == WORK_CALLS_MAX {
                    refused.push_back((pod, at));
                    continue;
                }
                working += usize::from(works);
                let (rpc, message) = convert::encode(&self.request(pod, steps[at]));
                open.insert(self.cri.begin(rpc, &message), (pod, at, rpc));
            }
            queue = refused;
            if open.is_empty() {
                let last = Instant::now();
                return (first.unwrap_or(last), last);
            }
            let (key, answer) = self.cri.next();
            let (pod, at, rpc) = open.remove(&key).expect("it was requested");
            let step = steps[at];
            let bytes = answer.unwrap_or_else(|refusal| panic!("{step:?}: {refusal:?}"));
            let reply = convert::decode(rpc, &bytes).expect("a reply");
            self.learn(pod, reply);
            working -= usize::from(!step.is_stop());
            if at + 1 < steps.len() {
                queue.push_back((pod, at + 1));
            } else {
                first.get_or_insert_with(Instant::now);
            }
        }
    }

    fn learn(&mut self, pod: usize, reply: Reply) {
        let pod = &mut self.pods[pod];
        match reply {
            Reply::Sandbox(id) => pod.sandbox = Some(id),
            Reply::Container(id) => pod.container = Some(id),
            Reply::Image(image) => {
                let image = image.expect("the image is here");
                (pod.image_ref, pod.image_user) = (image.id, image.user);
            }
            _ => {}
        }
    }

    fn request(&self, pod: usize, step: Step) -> Request {
        let pod = &self.pods[pod];
        let sandbox = || pod.sandbox.clone().expect("a step before made it");
        let container = || pod.container.clone().expect("a step before made it");
        let config = || {
            let made = sandbox_config(&pod.api, self.attempt, None, &Dns::default(), &self.config);
            Box::new(made.expect("a plain pod"))
        };
        match step {
            Step::RunSandbox => Request::RunPodSandbox(config()),
            Step::SandboxStatus => Request::PodSandboxStatus(sandbox()),
            Step::ImageStatus => Request::ImageStatus(pod.api.spec.containers[0].image.clone()),
            Step::Create => Request::CreateContainer {
                sandbox: sandbox(),
                config: Box::new(
                    container_config(
                        &pod.making(self.attempt, &self.objects, &self.config),
                        &self.config,
                    )
                    .expect("a plain container"),
                ),
                sandbox_config: config(),
            },
            Step::Start => Request::StartContainer(container()),
            Step::ContainerStatus => Request::ContainerStatus(container()),
            Step::StopContainer => Request::StopContainer { id: container(), grace_s: 30 },
            Step::StopSandbox => Request::StopPodSandbox(sandbox()),
            Step::RemoveContainer => Request::RemoveContainer(container()),
            Step::RemoveSandbox => Request::RemovePodSandbox(sandbox()),
        }
    }
}

impl Step {
    fn is_stop(self) -> bool {
        matches!(self, Step::StopContainer | Step::StopSandbox)
    }
}

/// As the agent makes it from a manifest, except the uid.
fn pod(n: usize, text: &str) -> BarePod {
    let mut api = manifest::parse(text.as_bytes()).expect("a good manifest").pods.remove(0);
    let hash = container_hash(&n.to_string(), &api.metadata.name);
    api.metadata.uid = format!("{hash:0>16}{n:016}");
    "default".clone_into(&mut api.metadata.namespace);
    api.metadata.name = format!("{}-{NODE}", api.metadata.name);
    let uid = api.metadata.uid.clone();
    let annotations = &mut api.metadata.annotations;
    annotations.insert("kubernetes.io/config.source".to_owned(), "file".to_owned());
    annotations.insert("kubernetes.io/config.hash".to_owned(), uid);
    let observed_at = "2026-01-01T00:00:00Z".to_owned();
    annotations.insert("kubernetes.io/config.seen".to_owned(), observed_at);
    BarePod {
        api,
        sandbox: None,
        container: None,
        image_ref: Box::default(),
        image_user: ImageUser::Unset,
        pod_ips: vec!["10.0.0.5".to_owned()],
    }
}
