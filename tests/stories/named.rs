//! Short names of requests, for the stories.

use std::sync::Arc;

use edged::model::cri::Request;
use edged::model::housekeeping::HousekeepingCall;

/// Answered by the harness itself.
pub fn is_list(request: &Request) -> bool {
    matches!(
        request,
        Request::Version
            | Request::RuntimeConfig
            | Request::Status
            | Request::ListPodSandbox
            | Request::ListContainers
            | Request::HousekeepingCall(
                HousekeepingCall::ImageFsInfo
                    | HousekeepingCall::ListImages
                    | HousekeepingCall::ListContainerStats
                    | HousekeepingCall::ListPodSandboxStats
            )
    )
}

/// `create_container m#1`, `stop_container c2 30` …
pub fn name(request: &Request) -> String {
    let what = match request {
        Request::RunPodSandbox(config) => format!("#{}", config.attempt),
        Request::CreateContainer { config, .. } => format!("{}#{}", config.name, config.attempt),
        Request::StopContainer { id, grace_s } => format!("{id} {grace_s}"),
        Request::ExecSync { id, command, .. } => format!("{id} {}", command.join(" ")),
        Request::StartContainer(id)
        | Request::RemoveContainer(id)
        | Request::Task { id, .. }
        | Request::ContainerStatus(id) => id.to_string(),
        Request::StopPodSandbox(id)
        | Request::RemovePodSandbox(id)
        | Request::PodSandboxStatus(id) => id.to_string(),
        Request::ImageStatus(image) | Request::PullImage { image, .. } => image.to_string(),
        Request::Version
        | Request::RuntimeConfig
        | Request::Status
        | Request::ListPodSandbox
        | Request::ListContainers
        | Request::GetContainerEvents => String::new(),
        Request::HousekeepingCall(HousekeepingCall::RemoveImage(id)) => id.to_string(),
        Request::HousekeepingCall(HousekeepingCall::ReopenContainerLog(id)) => id.to_string(),
        Request::HousekeepingCall(_) => String::new(),
        #[cfg(feature = "streams")]
        Request::Streaming(call) => format!("{call:?}"),
    };
    format!("{} {what}", request.operation())
}

/// A list as in a reply.
pub fn shared<T: Clone>(list: &[T]) -> Vec<Arc<T>> {
    list.iter().cloned().map(Arc::new).collect()
}
