//! The methods: names, paths, and the request and reply of each.

use super::container::{
    ContainerStatusRequest, ContainerStatusResponse, CreateContainerRequest,
    CreateContainerResponse, ExecSyncRequest, ExecSyncResponse, ListContainersRequest,
    ListContainersResponse, RemoveContainerRequest, RemoveContainerResponse,
    ReopenContainerLogRequest, ReopenContainerLogResponse, StartContainerRequest,
    StartContainerResponse, StopContainerRequest, StopContainerResponse,
};
#[cfg(feature = "runtime")]
use super::container::{UpdateContainerResourcesRequest, UpdateContainerResourcesResponse};
#[cfg(feature = "runtime")]
use super::edged::{ImportRequest, ImportResponse};
use super::events::{ContainerEventResponse, GetEventsRequest};
use super::image::{
    ImageFsInfoRequest, ImageFsInfoResponse, ImageStatusRequest, ImageStatusResponse,
    ListImagesRequest, ListImagesResponse, PullImageRequest, PullImageResponse, RemoveImageRequest,
    RemoveImageResponse,
};
use super::runtime::{
    RuntimeConfigRequest, RuntimeConfigResponse, StatusRequest, StatusResponse, VersionRequest,
    VersionResponse,
};
use super::sandbox::{
    ListPodSandboxRequest, ListPodSandboxResponse, PodSandboxStatusRequest,
    PodSandboxStatusResponse, RemovePodSandboxRequest, RemovePodSandboxResponse,
    RunPodSandboxRequest, RunPodSandboxResponse, StopPodSandboxRequest, StopPodSandboxResponse,
};
use super::stats::{
    ListContainerStatsRequest, ListContainerStatsResponse, ListPodSandboxStatsRequest,
    ListPodSandboxStatsResponse,
};
#[cfg(feature = "streams")]
use super::streaming::{
    AttachRequest, AttachResponse, ExecRequest, ExecResponse, PortForwardRequest,
    PortForwardResponse,
};
use super::task::{DeleteResponse, DeleteTaskRequest, KillRequest, KillResponse};

/// A request message; its type defines the method and the reply.
pub trait Request: prost::Message {
    /// The method.
    const RPC: Rpc;
    /// The reply, or what each message of a server stream is.
    type Reply: prost::Message + Default;
}

/// Declares [`Rpc`] and [`Request`] from one table, so that they cannot disagree.
macro_rules! methods {
    ($($package:literal {
        $($(#[$only:meta])* $service:ident $method:ident: $request:ident => $reply:ident;)*
    })*) => {
        /// A method of CRI v1, or one that a runtime has beside it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Rpc {
            $($($(#[$only])* $method,)*)*
        }

        impl Rpc {
            /// All methods, runtime service first.
            pub const ALL: &[Rpc] = &[$($($(#[$only])* Rpc::$method,)*)*];

            /// The method's name, as in the protobuf service.
            pub fn name(self) -> &'static str {
                match self {
                    $($($(#[$only])* Rpc::$method => stringify!($method),)*)*
                }
            }

            /// The protobuf service with its package.
            pub fn service(self) -> &'static str {
                match self {
                    $($($(#[$only])* Rpc::$method => concat!(
                        $package, ".", stringify!($service)
                    ),)*)*
                }
            }

            /// The path of its HTTP/2 request.
            pub fn path(self) -> &'static str {
                match self {
                    $($($(#[$only])* Rpc::$method => concat!(
                        "/", $package, ".", stringify!($service), "/", stringify!($method)
                    ),)*)*
                }
            }
        }

        $($($(#[$only])* impl Request for $request {
            const RPC: Rpc = Rpc::$method;
            type Reply = $reply;
        })*)*
    };
}

methods! {
    "runtime.v1" {
        RuntimeService Version: VersionRequest => VersionResponse;
        RuntimeService Status: StatusRequest => StatusResponse;
        RuntimeService RuntimeConfig: RuntimeConfigRequest => RuntimeConfigResponse;
        RuntimeService RunPodSandbox: RunPodSandboxRequest => RunPodSandboxResponse;
        RuntimeService StopPodSandbox: StopPodSandboxRequest => StopPodSandboxResponse;
        RuntimeService RemovePodSandbox: RemovePodSandboxRequest => RemovePodSandboxResponse;
        RuntimeService PodSandboxStatus: PodSandboxStatusRequest => PodSandboxStatusResponse;
        RuntimeService ListPodSandbox: ListPodSandboxRequest => ListPodSandboxResponse;
        RuntimeService CreateContainer: CreateContainerRequest => CreateContainerResponse;
        RuntimeService StartContainer: StartContainerRequest => StartContainerResponse;
        RuntimeService StopContainer: StopContainerRequest => StopContainerResponse;
        RuntimeService RemoveContainer: RemoveContainerRequest => RemoveContainerResponse;
        RuntimeService ListContainers: ListContainersRequest => ListContainersResponse;
        RuntimeService ContainerStatus: ContainerStatusRequest => ContainerStatusResponse;
        RuntimeService ReopenContainerLog: ReopenContainerLogRequest => ReopenContainerLogResponse;
        #[cfg(feature = "runtime")]
        RuntimeService UpdateContainerResources:
            UpdateContainerResourcesRequest => UpdateContainerResourcesResponse;
        RuntimeService ExecSync: ExecSyncRequest => ExecSyncResponse;
        #[cfg(feature = "streams")]
        RuntimeService Exec: ExecRequest => ExecResponse;
        #[cfg(feature = "streams")]
        RuntimeService Attach: AttachRequest => AttachResponse;
        #[cfg(feature = "streams")]
        RuntimeService PortForward: PortForwardRequest => PortForwardResponse;
        RuntimeService ListContainerStats: ListContainerStatsRequest => ListContainerStatsResponse;
        RuntimeService ListPodSandboxStats:
            ListPodSandboxStatsRequest => ListPodSandboxStatsResponse;
        RuntimeService GetContainerEvents: GetEventsRequest => ContainerEventResponse;
        ImageService ListImages: ListImagesRequest => ListImagesResponse;
        ImageService ImageStatus: ImageStatusRequest => ImageStatusResponse;
        ImageService PullImage: PullImageRequest => PullImageResponse;
        ImageService RemoveImage: RemoveImageRequest => RemoveImageResponse;
        ImageService ImageFsInfo: ImageFsInfoRequest => ImageFsInfoResponse;
    }
    "containerd.services.tasks.v1" {
        Tasks Kill: KillRequest => KillResponse;
        Tasks Delete: DeleteTaskRequest => DeleteResponse;
    }
    "edged.runtime.v1" {
        #[cfg(feature = "runtime")]
        Images Import: ImportRequest => ImportResponse;
    }
}

impl Rpc {
    /// Whether the server answers with a stream of messages.
    pub fn is_stream(self) -> bool {
        self == Rpc::GetContainerEvents
    }

    /// The metadata of a request. containerd's own services serve many namespaces; CRI's containers
    /// are in one of them.
    pub fn metadata(self) -> Option<(&'static str, &'static str)> {
        let in_namespace = matches!(self, Rpc::Kill | Rpc::Delete);
        in_namespace.then_some(("containerd-namespace", "k8s.io"))
    }

    /// Whether the fields of the reply hold a container's own bytes, which may look like anything.
    pub(super) fn is_opaque(self) -> bool {
        self == Rpc::ExecSync
    }
}
