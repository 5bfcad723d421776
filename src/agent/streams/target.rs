//! Which pod and which container a request means, by the kubelet's rules and in its words.

use crate::agent::pod::{Pod, Wanted};
use crate::agent::pods::Pods;
use crate::model::cri::{ContainerId, ContainerState, SandboxId};
use crate::model::job::LogDir;
use crate::model::status::{ContainerStatus, State, Terminated};
use crate::model::stream::{LogFile, PodName, Refusal, RefusalKind};
use crate::model::time::Timestamp;

/// A log, and its container if that may still write.
pub(super) struct Log {
    pub(super) file: LogFile,
    pub(super) container: Option<ContainerId>,
}

/// During a replacement two instances have one name: the one that runs is meant, or else the one
/// that is wanted.
pub(super) fn pod<'a>(pods: &'a Pods, wanted: &PodName) -> Option<&'a Pod> {
    let named = pods.iter().filter(|pod| {
        let metadata = &pod.api().metadata;
        *metadata.namespace == *wanted.namespace
            && *metadata.name == *wanted.name
            && wanted.uid.as_ref().is_none_or(|uid| uid == pod.uid())
    });
    named.max_by_key(|pod| (pod.observed().may_run(), *pod.wanted() == Wanted::Yes))
}

fn found<'a>(pods: &'a Pods, wanted: &PodName) -> Result<&'a Pod, Refusal> {
    pod(pods, wanted).ok_or_else(|| Refusal::new(RefusalKind::NotFound, "pod does not exist"))
}

/// Where the log of a container is, or why there is none.
pub(super) fn log(
    pods: &Pods,
    name: &PodName,
    container: &str,
    previous: bool,
) -> Result<Log, Refusal> {
    let not_found = |text: String| Refusal::new(RefusalKind::NotFound, text);
    let plain = &name.name;
    let pod = pod(pods, name).ok_or_else(|| not_found(format!("pod {plain:?} does not exist")))?;
    if pod.api().spec.all_containers().all(|it| *it.name != *container) {
        return Err(not_found(format!("container {container:?} not found in pod {plain:?}")));
    }
    let refuse = |what: &str| {
        let text = format!("container {container:?} in pod {plain:?} {what}");
        Refusal::new(RefusalKind::BadRequest, text)
    };
    let status = status(pod, container).ok_or_else(|| refuse("is not available"))?;
    let instance = if previous {
        last_ended(&status.last_state).ok_or_else(|| {
            let text =
                format!("previous terminated container {container:?} in pod {plain:?} not found");
            Refusal::new(RefusalKind::BadRequest, text)
        })?
    } else {
        current(status).map_err(|what| refuse(&what))?
    };
    // The runtime may have forgotten an instance whose log still exists. Attempts count restarts.
    let runs = matches!(status.state, State::Running(_) | State::Terminated(_));
    let is_last = last_ended(&status.last_state) == Some(instance);
    let counted = status.restart_count.saturating_sub(u32::from(runs && is_last));
    let observed = pod.observed().containers.iter().find(|it| *it.id.0 == *bare(instance));
    let metadata = &pod.api().metadata;
    Ok(Log {
        file: LogFile {
            pod: LogDir {
                namespace: metadata.namespace.as_str().into(),
                name: metadata.name.as_str().into(),
                uid: pod.uid().clone(),
            },
            container: container.into(),
            attempt: observed.map_or(counted, |it| it.attempt),
        },
        container: observed.filter(|it| it.state != ContainerState::Exited).map(|it| it.id.clone()),
    })
}

/// The instance whose log is meant, by its id; the error says why there is none.
fn current(status: &ContainerStatus) -> Result<&str, String> {
    let ended = last_ended(&status.last_state);
    match &status.state {
        State::Running(_) => Ok(&status.container_id),
        // Of an instance that was not created the one before is shown.
        State::Terminated(now) => id_of(now).or(ended).ok_or_else(|| "is terminated".to_owned()),
        State::Waiting(_) | State::Unset if matches!(status.last_state, State::Terminated(_)) => {
            ended.ok_or_else(|| "is terminated".to_owned())
        }
        State::Waiting(waiting) => Err(match waiting.reason {
            "ErrImagePull" => "is waiting to start: image can't be pulled".to_owned(),
            "ImagePullBackOff" => {
                "is waiting to start: trying and failing to pull image".to_owned()
            }
            reason => format!("is waiting to start: {reason}"),
        }),
        State::Unset => Err("is waiting to start - no logs yet".to_owned()),
    }
}

fn last_ended(state: &State) -> Option<&str> {
    match state {
        State::Terminated(ended) => id_of(ended),
        State::Waiting(_) | State::Running(_) | State::Unset => None,
    }
}

fn id_of(ended: &Terminated) -> Option<&str> {
    Some(&*ended.container_id).filter(|id| !id.is_empty())
}

/// Without the runtime's name: `containerd://`.
fn bare(id: &str) -> &str {
    id.split_once("://").map_or(id, |(_, id)| id)
}

/// The running instance of a container, for a command.
pub(super) fn running(
    pods: &Pods,
    name: &PodName,
    container: &str,
) -> Result<ContainerId, Refusal> {
    let pod = found(pods, name)?;
    running_in(pod, container).ok_or_else(|| {
        Refusal::new(RefusalKind::Internal, format!("container not found ({container:?})"))
    })
}

fn running_in(pod: &Pod, container: &str) -> Option<ContainerId> {
    let mut all = pod.observed().containers.iter();
    let found = all.find(|it| *it.name == *container && it.state == ContainerState::Running);
    found.map(|it| it.id.clone())
}

/// The running instance of a container, and whether it has a terminal.
pub(super) fn attached(
    pods: &Pods,
    name: &PodName,
    container: &str,
) -> Result<(ContainerId, bool), Refusal> {
    let pod = found(pods, name)?;
    let spec = pod.api().spec.all_containers().find(|it| *it.name == *container);
    let id = running_in(pod, container);
    id.zip(spec.map(|spec| spec.tty)).ok_or_else(|| {
        let (pod, namespace) = (&name.name, &name.namespace);
        let text = format!("container {container} not found in pod {pod}_{namespace}");
        Refusal::new(RefusalKind::Internal, text)
    })
}

/// The sandbox of a pod that runs.
pub(super) fn sandbox(pods: &Pods, name: &PodName) -> Result<SandboxId, Refusal> {
    let pod = found(pods, name)?;
    let ready = pod.observed().sandboxes.iter().find(|sandbox| sandbox.ready);
    ready.map(|sandbox| sandbox.id.clone()).ok_or_else(|| {
        let text = format!("pod not found ({:?})", format!("{}_{}", name.name, name.namespace));
        Refusal::new(RefusalKind::Internal, text)
    })
}

/// The status of a container of any kind.
pub(super) fn status<'a>(pod: &'a Pod, container: &str) -> Option<&'a ContainerStatus> {
    let status = &pod.api().status;
    [
        &status.container_statuses,
        &status.init_container_statuses,
        &status.ephemeral_container_statuses,
    ]
    .into_iter()
    .flatten()
    .find(|status| *status.name == *container)
}

pub(super) fn started_at(status: &ContainerStatus) -> Option<Timestamp> {
    match &status.state {
        State::Running(running) => running.started_at,
        State::Waiting(_) | State::Terminated(_) | State::Unset => None,
    }
}
