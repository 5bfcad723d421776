//! The stream of container events.

use super::container::ContainerStatus;
use super::sandbox::PodSandboxStatus;
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct GetEventsRequest {}

/// `ContainerEventResponse`. Runtimes replay old events at the start of a stream.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ContainerEventResponse {
    #[prost(string, tag = "1")]
    pub container_id: String,
    #[prost(enumeration = "ContainerEventType", tag = "2")]
    pub container_event_type: i32,
    #[prost(int64, tag = "3")]
    pub created_at: i64,
    #[prost(message, optional, tag = "4")]
    pub pod_sandbox_status: Option<PodSandboxStatus>,
    #[prost(message, repeated, tag = "5")]
    pub containers_statuses: Vec<ContainerStatus>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum ContainerEventType {
    Created = 0,
    Started = 1,
    Stopped = 2,
    Deleted = 3,
}
