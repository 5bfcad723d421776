//! The server's half of the codec: requests as the built-in runtime's core gets them, and its
//! replies. What a client may ask for is read out of the bytes directly, without the structs of the
//! other modules: these are for the agent, which writes requests and reads replies.
//!
//! **Nothing of a configuration is ignored.** A field that this runtime does not support is refused
//! by its name (InvalidArgument), and one of a newer CRI by its number: a container without the
//! restriction or the device that was asked for is worse than none. In other messages unknown
//! fields are skipped, as protobuf has it.
//!
//! **Bounds.** The framing bounds a message, and [`RUNTIME_ITEMS_MAX`] each list in it.

mod config;
mod reply;
mod security;
mod users;

use std::collections::BTreeMap;

use super::Rpc;
use crate::limits::RUNTIME_ITEMS_MAX;
use crate::model::base64;
use crate::model::image::ImageName;
use crate::model::runtime::{
    Code, ContainerFilter, ContainerState, Pipes, Refusal, RegistryAuth, Request, SandboxFilter,
};
use crate::wire::protobuf::{Malformed, Value, fields};
use crate::wire::rpc;

pub(super) use config::{container as container_config, resources, sandbox as sandbox_config};
pub use reply::{Context, encode, encode_event};

/// A call as it came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    pub request: Request,
    /// `verbose`: the reply shall have `info`.
    pub verbose: bool,
}

/// Reads a request. `service` is qualified by its package.
pub fn decode(service: &str, method: &str, message: &[u8]) -> Result<Call, Refusal> {
    let named = |rpc: &&Rpc| rpc.service() == service && rpc.name() == method;
    let request = Rpc::ALL.iter().find(named).and_then(|rpc| request(*rpc, message).transpose());
    match request {
        Some(Ok(request)) => Ok(Call { request, verbose: is_verbose(method, message) }),
        Some(Err(Malformed(why))) => {
            Err(Refusal { code: Code::InvalidArgument, message: format!("{method}: {why}") })
        }
        None => {
            let message = format!("unknown method {method} for service {service}");
            Err(Refusal { code: Code::Unimplemented, message })
        }
    }
}

/// A refusal as the framing has it.
pub fn status(refusal: &Refusal) -> rpc::Status {
    let code = match refusal.code {
        Code::Cancelled => rpc::Code::Cancelled,
        Code::Unknown => rpc::Code::Unknown,
        Code::InvalidArgument => rpc::Code::InvalidArgument,
        Code::DeadlineExceeded => rpc::Code::DeadlineExceeded,
        Code::NotFound => rpc::Code::NotFound,
        Code::AlreadyExists => rpc::Code::AlreadyExists,
        Code::PermissionDenied => rpc::Code::PermissionDenied,
        Code::ResourceExhausted => rpc::Code::ResourceExhausted,
        Code::FailedPrecondition => rpc::Code::FailedPrecondition,
        Code::Aborted => rpc::Code::Aborted,
        Code::OutOfRange => rpc::Code::OutOfRange,
        Code::Unimplemented => rpc::Code::Unimplemented,
        Code::Internal => rpc::Code::Internal,
        Code::Unavailable => rpc::Code::Unavailable,
        Code::DataLoss => rpc::Code::DataLoss,
        Code::Unauthenticated => rpc::Code::Unauthenticated,
    };
    rpc::Status { code, message: refusal.message.clone() }
}

/// The statuses have it in field 2.
fn is_verbose(method: &str, message: &[u8]) -> bool {
    method.ends_with("Status") && number_in(message, 2).is_ok_and(|verbose| verbose != 0)
}

/// `None`: not served.
fn request(rpc: Rpc, message: &[u8]) -> Result<Option<Request>, Malformed> {
    let sandbox = || id(message, "pod_sandbox_id");
    let container = || id(message, "container_id");
    Ok(Some(match rpc {
        Rpc::Version => Request::Version,
        Rpc::Status => Request::Status,
        Rpc::RuntimeConfig => Request::RuntimeConfig,
        Rpc::RunPodSandbox => {
            let handler = text_in(message, 2)?;
            let config = config::sandbox(required(message, 1, "config")?, handler)?;
            Request::RunPodSandbox(Box::new(config))
        }
        Rpc::StopPodSandbox => Request::StopPodSandbox(sandbox()?),
        Rpc::RemovePodSandbox => Request::RemovePodSandbox(sandbox()?),
        Rpc::PodSandboxStatus => Request::PodSandboxStatus(sandbox()?),
        Rpc::ListPodSandbox => Request::ListPodSandbox(sandbox_filter(message, Some(2), 3)?),
        Rpc::CreateContainer => {
            let config = config::container(required(message, 2, "config")?)?;
            Request::CreateContainer { sandbox: sandbox()?, config: Box::new(config) }
        }
        Rpc::StartContainer => Request::StartContainer(container()?),
        Rpc::StopContainer => {
            Request::StopContainer { id: container()?, grace_s: number_in(message, 2)? as i64 }
        }
        Rpc::RemoveContainer => Request::RemoveContainer(container()?),
        Rpc::ContainerStatus => Request::ContainerStatus(container()?),
        Rpc::ListContainers => Request::ListContainers(container_filter(message, Some(2), [3, 4])?),
        Rpc::UpdateContainerResources => update(container()?, message)?,
        Rpc::ReopenContainerLog => Request::ReopenContainerLog(container()?),
        Rpc::ExecSync => exec(container()?, message)?,
        Rpc::ListContainerStats => {
            Request::ListContainerStats(container_filter(message, None, [2, 3])?)
        }
        Rpc::ListPodSandboxStats => Request::ListPodSandboxStats(sandbox_filter(message, None, 2)?),
        Rpc::GetContainerEvents => Request::GetContainerEvents,
        Rpc::ListImages => {
            let image = message_in(message, 1)?.map(|filter| image_in(filter, 1)).transpose()?;
            Request::ListImages(image.filter(|name| !name.is_empty()).map(Into::into))
        }
        Rpc::ImageStatus => Request::ImageStatus(image(message)?),
        Rpc::PullImage => {
            let image = image(message)?;
            let auth = message_in(message, 2)?.map(|auth| self::auth(auth, &image)).transpose()?;
            Request::PullImage { image, auth: auth.flatten() }
        }
        Rpc::RemoveImage => Request::RemoveImage(image(message)?),
        Rpc::ImageFsInfo => Request::ImageFsInfo,
        Rpc::Import => match text_in(message, 1)? {
            path if path.starts_with('/') => Request::ImportImages { path: path.into() },
            path => return Err(Malformed(format!("path: got {path:?}, expected an absolute one"))),
        },
        Rpc::Exec => {
            let pipes = pipes(message, [4, 5, 6, 3])?;
            Request::Exec { id: container()?, command: command(message)?, pipes }
        }
        Rpc::Attach => Request::Attach { id: container()?, pipes: pipes(message, [2, 4, 5, 3])? },
        Rpc::PortForward => Request::PortForward { sandbox: sandbox()?, ports: ports(message)? },
        Rpc::Kill | Rpc::Delete => return Ok(None),
    }))
}

/// Field 1. The empty text, of which every id begins, is none.
fn id(message: &[u8], name: &str) -> Result<Box<str>, Malformed> {
    match text_in(message, 1)? {
        "" => Err(Malformed(format!("{name}: got none, expected an id"))),
        id => Ok(id.into()),
    }
}

/// `UpdateContainerResourcesRequest`. Its annotations only inform.
fn update(id: Box<str>, message: &[u8]) -> Result<Request, Malformed> {
    if let Some(value) = last(message, 3)? {
        absent("UpdateContainerResourcesRequest.windows", value)?;
    }
    let resources = resources(required(message, 2, "linux")?)?;
    Ok(Request::UpdateContainerResources { id, resources: Box::new(resources) })
}

fn exec(id: Box<str>, message: &[u8]) -> Result<Request, Malformed> {
    let (command, timeout_s) = (command(message)?, number_in(message, 3)? as i64);
    Ok(Request::ExecSync { id, command, timeout_s })
}

/// Field 2.
fn command(message: &[u8]) -> Result<Vec<String>, Malformed> {
    let mut command = Vec::new();
    for field in fields(message) {
        if let (2, word) = field? {
            push(&mut command, word.text()?.to_owned())?;
        }
    }
    if command.is_empty() {
        return Err(Malformed("cmd: got none, expected a command".to_owned()));
    }
    Ok(command)
}

/// From the fields with these numbers: `stdin`, `stdout`, `stderr`, `tty`. Refusals have the words
/// of Kubernetes' own servers.
fn pipes(message: &[u8], numbers: [u64; 4]) -> Result<Pipes, Malformed> {
    let mut flags = [false; 4];
    for (flag, number) in flags.iter_mut().zip(numbers) {
        *flag = number_in(message, number)? != 0;
    }
    let [stdin, stdout, stderr, tty] = flags;
    if tty && stderr {
        return Err(Malformed("tty and stderr cannot both be true".to_owned()));
    }
    if !stdin && !stdout && !stderr {
        return Err(Malformed("one of stdin, stdout, or stderr must be set".to_owned()));
    }
    Ok(Pipes { stdin, stdout, stderr, tty })
}

/// Field 2, whose numbers may be packed.
fn ports(message: &[u8]) -> Result<Vec<u16>, Malformed> {
    let mut ports = Vec::new();
    for field in fields(message) {
        if let (2, value) = field? {
            value.numbers(|number| {
                let port = u16::try_from(number).ok().filter(|port| *port > 0);
                let wrong =
                    || Malformed(format!("port: got {}, expected 1 to 65535", number as i64));
                push(&mut ports, port.ok_or_else(wrong)?)
            })?;
        }
    }
    Ok(ports)
}

/// Field 1, an `ImageSpec`.
fn image(message: &[u8]) -> Result<Box<str>, Malformed> {
    match image_in(message, 1)? {
        "" => Err(Malformed("image: got none, expected a name or an id".to_owned())),
        name => Ok(name.into()),
    }
}

/// `image` of an `ImageSpec`; empty where there is none.
fn image_in(message: &[u8], number: u64) -> Result<&str, Malformed> {
    message_in(message, number)?.map_or(Ok(""), |image| text_in(image, 1))
}

/// `AuthConfig`. Credentials for another server than the image's are none.
fn auth(message: &[u8], image: &str) -> Result<Option<RegistryAuth>, Malformed> {
    let server = text_in(message, 4)?;
    if !server.is_empty() {
        let host = server.split_once("://").map_or(server, |(_, rest)| rest);
        let host = host.split('/').next().unwrap_or_default();
        let domain = ImageName::parse(image).map(|name| name.domain);
        if !domain.is_ok_and(|domain| *domain == *host || is_hub(&domain) && is_hub(host)) {
            return Ok(None);
        }
    }
    let some = |text: &str| (!text.is_empty()).then(|| text.into());
    let (user, password) = (text_in(message, 1)?, text_in(message, 2)?);
    let basic = match (user, text_in(message, 3)?) {
        ("", "") => None,
        ("", coded) => Some(coded_pair(coded)?),
        (user, _) => Some((user.into(), password.into())),
    };
    let auth = RegistryAuth {
        basic,
        identity_token: some(text_in(message, 5)?),
        registry_token: some(text_in(message, 6)?),
    };
    Ok((auth != RegistryAuth::default()).then_some(auth))
}

/// Docker Hub has several names.
fn is_hub(host: &str) -> bool {
    host == "docker.io" || host.ends_with(".docker.io")
}

/// `auth`: base64 of `username:password`.
fn coded_pair(coded: &str) -> Result<(Box<str>, Box<str>), Malformed> {
    let plain = base64::decode(coded).and_then(|bytes| String::from_utf8(bytes).ok());
    let pair = plain.as_deref().and_then(|plain| plain.split_once(':'));
    let (user, password) = pair.ok_or_else(|| {
        Malformed("auth.auth: got another text, expected base64 of username:password".to_owned())
    })?;
    // Some tools pad with NUL.
    Ok((user.into(), password.trim_end_matches('\0').into()))
}

/// Field 1, whose fields are `id`, then these.
fn sandbox_filter(
    message: &[u8],
    state: Option<u64>,
    labels: u64,
) -> Result<SandboxFilter, Malformed> {
    let Some(filter) = message_in(message, 1)? else { return Ok(SandboxFilter::default()) };
    let state = state.map(|number| message_in(filter, number)).transpose()?.flatten();
    Ok(SandboxFilter {
        id: text_in(filter, 1)?.into(),
        ready: state.map(|state| Ok(number_in(state, 1)? == 0)).transpose()?,
        labels: map_in(filter, labels)?,
    })
}

/// Likewise.
fn container_filter(
    message: &[u8],
    state: Option<u64>,
    [sandbox, labels]: [u64; 2],
) -> Result<ContainerFilter, Malformed> {
    let Some(filter) = message_in(message, 1)? else { return Ok(ContainerFilter::default()) };
    let state = state.map(|number| message_in(filter, number)).transpose()?.flatten();
    let state = state.map(|state| number_in(state, 1)).transpose()?;
    Ok(ContainerFilter {
        id: text_in(filter, 1)?.into(),
        sandbox: text_in(filter, sandbox)?.into(),
        state: state.map(|number| match number {
            0 => ContainerState::Created,
            1 => ContainerState::Running,
            2 => ContainerState::Exited,
            _ => ContainerState::Unknown,
        }),
        labels: map_in(filter, labels)?,
    })
}

fn required<'a>(message: &'a [u8], number: u64, name: &str) -> Result<&'a [u8], Malformed> {
    message_in(message, number)?.ok_or_else(|| Malformed(format!("{name}: got none, expected one")))
}

fn message_in(message: &[u8], number: u64) -> Result<Option<&[u8]>, Malformed> {
    last(message, number)?.map(Value::bytes).transpose()
}

fn text_in(message: &[u8], number: u64) -> Result<&str, Malformed> {
    last(message, number)?.map_or(Ok(""), Value::text)
}

fn number_in(message: &[u8], number: u64) -> Result<u64, Malformed> {
    last(message, number)?.map_or(Ok(0), Value::number)
}

fn map_in(message: &[u8], number: u64) -> Result<BTreeMap<String, String>, Malformed> {
    let mut map = BTreeMap::new();
    for field in fields(message) {
        let (found, value) = field?;
        if found == number {
            insert(&mut map, value)?;
        }
    }
    Ok(map)
}

/// Of several values of a field the last one counts.
fn last(message: &[u8], number: u64) -> Result<Option<Value<'_>>, Malformed> {
    let mut found = None;
    for field in fields(message) {
        let (other, value) = field?;
        if other == number {
            found = Some(value);
        }
    }
    Ok(found)
}

fn owned(value: Value<'_>) -> Result<String, Malformed> {
    value.text().map(str::to_owned)
}

/// An enum's value: a place in this list.
fn choice<T: Copy>(name: &str, value: Value<'_>, all: &[T]) -> Result<T, Malformed> {
    let number = value.number()?;
    let found = usize::try_from(number).ok().and_then(|at| all.get(at)).copied();
    found.ok_or_else(|| {
        let last = all.len() - 1;
        Malformed(format!("{name}: got {}, expected 0 to {last}", number as i64))
    })
}

/// A field that is not supported, unless it has its default.
fn absent(name: &str, value: Value<'_>) -> Result<(), Malformed> {
    match value {
        Value::Number(0) | Value::Bytes([]) => Ok(()),
        Value::Number(_) | Value::Bytes(_) | Value::Fixed | Value::Group => Err(unsupported(name)),
    }
}

fn unsupported(name: &str) -> Malformed {
    Malformed(format!("{name} is not supported by this runtime"))
}

fn unknown(name: &str, number: u64) -> Malformed {
    Malformed(format!("{name} has field {number}, which this runtime does not know"))
}

fn push<T>(list: &mut Vec<T>, item: T) -> Result<(), Malformed> {
    if list.len() >= RUNTIME_ITEMS_MAX {
        return Err(too_many());
    }
    list.push(item);
    Ok(())
}

fn insert(map: &mut BTreeMap<String, String>, entry: Value<'_>) -> Result<(), Malformed> {
    if map.len() >= RUNTIME_ITEMS_MAX {
        return Err(too_many());
    }
    let (key, value) = entry.entry()?;
    map.insert(key, value);
    Ok(())
}

fn too_many() -> Malformed {
    Malformed(format!("got a list of more than {RUNTIME_ITEMS_MAX} items, expected fewer"))
}

#[cfg(test)]
mod tests;
