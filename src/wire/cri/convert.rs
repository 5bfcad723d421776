//! Conversion between the core's types and CRI v1 messages.
//!
//! [`encode`] makes the request of a call, [`decode`] reads its reply; fields that the core does
//! not read are dropped here, so that a list of a hundred containers is small once it is read.
//! Rules of the kubelet that are the same for every pod (namespaces, seccomp, masked paths) are
//! applied here as well, in `config`. Sections refer to the node agent's behaviour specification.

mod config;
mod housekeeping;
mod security;
#[cfg(feature = "streams")]
mod streaming;

use std::fmt;

use super::bounds::{self, decode_within as decode_reply};
use super::container as c;
use super::image as i;
use super::runtime as r;
use super::sandbox as s;
use super::security::NamespaceMode;
use super::task as t;
use super::{DecodeError, Rpc, events, lists};
use crate::limits::{COMMAND_OUTPUT_BYTES_MAX, CriBudget, IMAGE_DIGESTS_MAX};
use crate::model::cri::{
    CgroupDriver, ContainerId, ContainerState, ContainerStatus, Exec, Image, ImageUser, Network,
    Reply, Request, RuntimeHandler, RuntimeStatus, SandboxId, SandboxStatus, TaskEnd, Version,
};
#[cfg(feature = "runtime")]
use crate::model::cri::{ContainerConfig, SandboxConfig};

/// The version in the request of the `Version` call (section 13.1).
const VERSION: &str = "0.1.0";

/// The signal's number on Linux.
const SIGKILL: u32 = 9;

/// The method and the message of a call.
pub fn encode(request: &Request) -> (Rpc, Vec<u8>) {
    match request {
        Request::Version => of(&r::VersionRequest { version: VERSION.to_owned() }),
        Request::Status => of(&r::StatusRequest { verbose: false }),
        Request::RuntimeConfig => of(&r::RuntimeConfigRequest {}),
        Request::ListPodSandbox => of(&s::ListPodSandboxRequest { filter: None }),
        Request::ListContainers => of(&c::ListContainersRequest { filter: None }),
        Request::GetContainerEvents => of(&events::GetEventsRequest {}),
        Request::RunPodSandbox(wanted) => of(&s::RunPodSandboxRequest {
            config: Some(config::sandbox(wanted)),
            runtime_handler: wanted.runtime_handler.to_string(),
        }),
        Request::StopPodSandbox(id) => {
            of(&s::StopPodSandboxRequest { pod_sandbox_id: id.to_string() })
        }
        Request::RemovePodSandbox(id) => {
            of(&s::RemovePodSandboxRequest { pod_sandbox_id: id.to_string() })
        }
        Request::PodSandboxStatus(id) => {
            of(&s::PodSandboxStatusRequest { pod_sandbox_id: id.to_string(), verbose: false })
        }
        Request::CreateContainer { sandbox, config: wanted, sandbox_config } => {
            of(&c::CreateContainerRequest {
                pod_sandbox_id: sandbox.to_string(),
                config: Some(config::container(wanted)),
                sandbox_config: Some(config::sandbox(sandbox_config)),
            })
        }
        Request::StartContainer(id) => {
            of(&c::StartContainerRequest { container_id: id.to_string() })
        }
        Request::StopContainer { id, grace_s } => {
            of(&c::StopContainerRequest { container_id: id.to_string(), timeout: *grace_s })
        }
        Request::RemoveContainer(id) => {
            of(&c::RemoveContainerRequest { container_id: id.to_string() })
        }
        Request::Task { id, end } => task(id, *end),
        Request::ContainerStatus(id) => {
            of(&c::ContainerStatusRequest { container_id: id.to_string(), verbose: false })
        }
        Request::ExecSync { id, command, timeout_s, purpose: _ } => of(&c::ExecSyncRequest {
            container_id: id.to_string(),
            cmd: command.clone(),
            timeout: i64::from(*timeout_s),
        }),
        Request::ImageStatus(image) => {
            of(&i::ImageStatusRequest { image: Some(config::image(image, image)), verbose: false })
        }
        Request::PullImage { image, auth, sandbox_config } => of(&i::PullImageRequest {
            image: Some(i::ImageSpec {
                // Runtimes may check which pod wants the image.
                annotations: sandbox_config.annotations.clone(),
                ..config::image(image, image)
            }),
            auth: auth.as_ref().map(|auth| i::AuthConfig {
                username: auth.username.to_string(),
                password: auth.password.to_string(),
                ..i::AuthConfig::default()
            }),
            sandbox_config: Some(config::sandbox(sandbox_config)),
        }),
        Request::HousekeepingCall(wanted) => housekeeping::encode(wanted),
        #[cfg(feature = "streams")]
        Request::Streaming(call) => streaming::encode(call),
    }
}

/// `PodSandboxConfig`. The runtime handler is beside it in a request.
#[cfg(feature = "runtime")]
pub(super) fn sandbox_config(from: &SandboxConfig) -> Vec<u8> {
    prost::Message::encode_to_vec(&config::sandbox(from))
}

/// `ContainerConfig`
#[cfg(feature = "runtime")]
pub(super) fn container_config(from: &ContainerConfig) -> Vec<u8> {
    prost::Message::encode_to_vec(&config::container(from))
}

fn task(id: &ContainerId, end: TaskEnd) -> (Rpc, Vec<u8>) {
    let container_id = id.to_string();
    match end {
        TaskEnd::Kill => {
            let exec_id = String::new();
            of(&t::KillRequest { container_id, exec_id, signal: SIGKILL, all: true })
        }
        TaskEnd::Delete => of(&t::DeleteTaskRequest { container_id }),
    }
}

fn of<R: super::Request>(request: &R) -> (Rpc, Vec<u8>) {
    (R::RPC, prost::Message::encode_to_vec(request))
}

/// Reads the reply to a call of `rpc`, which must be one that [`encode`] makes.
pub fn decode(rpc: Rpc, bytes: &[u8]) -> Result<Reply, Unusable> {
    decode_within(rpc, bytes, &CriBudget::default())
}

/// The same with other bounds.
pub fn decode_within(rpc: Rpc, bytes: &[u8], budget: &CriBudget) -> Result<Reply, Unusable> {
    decode_one(rpc, bytes, budget).map_err(|why| Unusable { rpc, why })
}

fn decode_one(rpc: Rpc, bytes: &[u8], budget: &CriBudget) -> Result<Reply, Why> {
    Ok(match rpc {
        Rpc::Version => version(decode_reply::<r::VersionRequest>(bytes, budget)?)?,
        Rpc::Status => status(decode_reply::<r::StatusRequest>(bytes, budget)?)?,
        Rpc::RuntimeConfig => {
            let reply = decode_reply::<r::RuntimeConfigRequest>(bytes, budget)?;
            Reply::CgroupDriver(reply.linux.map(|linux| match linux.cgroup_driver() {
                r::CgroupDriver::Systemd => CgroupDriver::Systemd,
                r::CgroupDriver::Cgroupfs => CgroupDriver::Cgroupfs,
            }))
        }
        Rpc::ListPodSandbox => Reply::Sandboxes(within(bytes, budget, lists::sandboxes)?),
        Rpc::ListContainers => Reply::Containers(within(bytes, budget, lists::containers)?),
        Rpc::RunPodSandbox => {
            let reply = decode_reply::<s::RunPodSandboxRequest>(bytes, budget)?;
            Reply::Sandbox(SandboxId(named("pod_sandbox_id", reply.pod_sandbox_id)?))
        }
        Rpc::PodSandboxStatus => {
            let reply = decode_reply::<s::PodSandboxStatusRequest>(bytes, budget)?;
            sandbox_status(reply.status.ok_or(Why::Lacks("status"))?)
        }
        Rpc::CreateContainer => {
            let reply = decode_reply::<c::CreateContainerRequest>(bytes, budget)?;
            Reply::Container(ContainerId(named("container_id", reply.container_id)?))
        }
        Rpc::ContainerStatus => {
            let reply = decode_reply::<c::ContainerStatusRequest>(bytes, budget)?;
            container_status(reply.status.ok_or(Why::Lacks("status"))?)
        }
        Rpc::ExecSync => exec(decode_reply::<c::ExecSyncRequest>(bytes, budget)?),
        #[cfg(feature = "streams")]
        Rpc::Exec | Rpc::Attach | Rpc::PortForward => streaming::decode(bytes, budget)?,
        Rpc::ImageStatus => {
            let reply = decode_reply::<i::ImageStatusRequest>(bytes, budget)?;
            Reply::Image(reply.image.map(image).transpose()?)
        }
        Rpc::PullImage => {
            let reply = decode_reply::<i::PullImageRequest>(bytes, budget)?;
            Reply::Pulled(named("image_ref", reply.image_ref)?)
        }
        // Their replies are empty today, or contain nothing that is needed; additions of newer
        // runtimes are ignored.
        Rpc::StopPodSandbox
        | Rpc::RemovePodSandbox
        | Rpc::StartContainer
        | Rpc::StopContainer
        | Rpc::RemoveContainer
        | Rpc::Kill
        | Rpc::Delete
        | Rpc::RemoveImage
        | Rpc::ReopenContainerLog => Reply::Done,
        Rpc::ImageFsInfo | Rpc::ListImages | Rpc::ListContainerStats | Rpc::ListPodSandboxStats => {
            Reply::HousekeepingCall(housekeeping::decode(rpc, bytes, budget)?)
        }
        Rpc::GetContainerEvents => return Err(Why::Lacks("one reply, because it is a stream")),
        #[cfg(feature = "runtime")]
        Rpc::Import | Rpc::UpdateContainerResources => {
            return Err(Why::Lacks("a reader here: the agent makes no such call"));
        }
    })
}

/// A list, if it is within the bound of every message.
fn within<T>(
    bytes: &[u8],
    budget: &CriBudget,
    read: fn(&[u8], usize) -> Result<Vec<T>, DecodeError>,
) -> Result<Vec<T>, DecodeError> {
    bounds::size(bytes, budget)?;
    read(bytes, budget.list_items_max)
}

/// A reply without the required contents; the runtime's fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unusable {
    rpc: Rpc,
    why: Why,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Why {
    Decode(DecodeError),
    /// The missing or empty field.
    Lacks(&'static str),
    /// `VersionResponse.version`, which must be ours.
    Version(String),
}

impl fmt::Display for Unusable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rpc = self.rpc.name();
        match &self.why {
            Why::Decode(error) => write!(f, "{rpc}: {error}"),
            Why::Lacks(what) => write!(f, "{rpc}: got a reply without {what}, expected it"),
            Why::Version(got) => write!(f, "{rpc}: got version {got:?}, expected {VERSION:?}"),
        }
    }
}

impl std::error::Error for Unusable {}

impl From<DecodeError> for Why {
    fn from(error: DecodeError) -> Self {
        Self::Decode(error)
    }
}

fn named(what: &'static str, text: String) -> Result<Box<str>, Why> {
    if text.is_empty() { Err(Why::Lacks(what)) } else { Ok(text.into()) }
}

fn version(reply: r::VersionResponse) -> Result<Reply, Why> {
    if reply.version != VERSION {
        return Err(Why::Version(reply.version));
    }
    named("runtime_api_version", reply.runtime_api_version)?;
    let runtime_name = named("runtime_name", reply.runtime_name)?.into();
    let runtime_version = named("runtime_version", reply.runtime_version)?.into();
    Ok(Reply::Version(Version { runtime_name, runtime_version }))
}

fn status(reply: r::StatusResponse) -> Result<Reply, Why> {
    let conditions = reply.status.ok_or(Why::Lacks("status"))?.conditions;
    let of = |name: &'static str| {
        let condition =
            conditions.iter().find(|condition| condition.r#type == name).ok_or(Why::Lacks(name))?;
        Ok::<_, Why>(if condition.status {
            Ok(())
        } else {
            Err(format!("{}: {}", condition.reason, condition.message))
        })
    };
    let handlers = reply.runtime_handlers.into_iter().map(|handler| {
        let features = handler.features.unwrap_or_default();
        RuntimeHandler {
            name: handler.name.into(),
            recursive_read_only_mounts: features.recursive_read_only_mounts,
            user_namespaces: features.user_namespaces,
        }
    });
    Ok(Reply::Status(RuntimeStatus {
        runtime: of("RuntimeReady")?,
        network: of("NetworkReady")?,
        handlers: handlers.collect(),
        strict_groups: reply.features.is_some_and(|features| features.supplemental_groups_policy),
    }))
}

fn state(from: c::ContainerState) -> ContainerState {
    match from {
        c::ContainerState::Created => ContainerState::Created,
        c::ContainerState::Running => ContainerState::Running,
        c::ContainerState::Exited => ContainerState::Exited,
        c::ContainerState::Unknown => ContainerState::Unknown,
    }
}

fn sandbox_status(from: s::PodSandboxStatus) -> Reply {
    let ready = from.state() == s::PodSandboxState::Ready;
    let options = from.linux.and_then(|linux| linux.namespaces?.options);
    let on_node = options.is_some_and(|options| options.network() == NamespaceMode::Node);
    let network = from.network.unwrap_or_default();
    let ips = std::iter::once(network.ip)
        .chain(network.additional_ips.into_iter().map(|additional| additional.ip))
        .filter(|ip| !ip.is_empty())
        .map(Into::into);
    Reply::SandboxStatus(Box::new(SandboxStatus {
        ready,
        created_at: from.created_at,
        network: if on_node { Network::Node } else { Network::Pod },
        ips: ips.collect(),
    }))
}

fn container_status(from: c::ContainerStatus) -> Reply {
    const PATH: &str = "io.kubernetes.container.terminationMessagePath";
    const POLICY: &str = "io.kubernetes.container.terminationMessagePolicy";
    let state = state(from.state());
    let path = from.annotations.get(PATH);
    let mount = from.mounts.into_iter().find(|mount| Some(&mount.container_path) == path);
    let policy = from.annotations.get(POLICY);
    Reply::ContainerStatus(Box::new(ContainerStatus {
        state,
        started_at: from.started_at,
        finished_at: from.finished_at,
        exit_code: from.exit_code,
        reason: from.reason.into(),
        message: from.message.into(),
        image: from.image.map(|image| image.image.into()).unwrap_or_default(),
        image_ref: from.image_ref.into(),
        message_file: mount.map(|mount| mount.host_path.into()),
        message_from_log: policy.is_some_and(|policy| policy == "FallbackToLogsOnError"),
    }))
}

fn exec(from: c::ExecSyncResponse) -> Reply {
    let (mut bytes, mut errors) = (from.stdout, from.stderr);
    let is_cut = bytes.len() + errors.len() > COMMAND_OUTPUT_BYTES_MAX;
    // Errors are short, and say most: they keep their part beside a long output.
    errors.truncate(COMMAND_OUTPUT_BYTES_MAX - bytes.len().min(COMMAND_OUTPUT_BYTES_MAX * 3 / 4));
    bytes.truncate(COMMAND_OUTPUT_BYTES_MAX - errors.len());
    let mut output = String::from_utf8_lossy(&bytes).into_owned();
    let errors_at = output.len();
    output.push_str(&String::from_utf8_lossy(&errors));
    Reply::Exec(Box::new(Exec {
        exit_code: from.exit_code,
        output: output.into(),
        errors_at,
        is_cut,
    }))
}

/// A present image has an id and a size (section 13.1).
fn image(from: i::Image) -> Result<Box<Image>, Why> {
    let id = named("the image's id", from.id)?;
    if from.size == 0 {
        return Err(Why::Lacks("the image's size"));
    }
    let user = match from.uid {
        Some(uid) => ImageUser::Uid(uid.value),
        None if from.username.is_empty() => ImageUser::Unset,
        None => ImageUser::Name(from.username.into()),
    };
    let digests = from.repo_digests.into_iter().take(IMAGE_DIGESTS_MAX).map(Into::into).collect();
    Ok(Box::new(Image { id, size: from.size, digests, user }))
}

#[cfg(test)]
pub(super) mod tests;
