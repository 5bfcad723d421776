//! Tasks, by containerd's own service beside the CRI on the same socket
//! (`containerd/api/services/tasks/v1/tasks.proto`).

/// `KillRequest`; `signal` by its number on Linux.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct KillRequest {
    #[prost(string, tag = "1")]
    pub container_id: String,
    #[prost(string, tag = "2")]
    pub exec_id: String,
    #[prost(uint32, tag = "3")]
    pub signal: u32,
    #[prost(bool, tag = "4")]
    pub all: bool,
}

/// `google.protobuf.Empty`.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct KillResponse {}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct DeleteTaskRequest {
    #[prost(string, tag = "1")]
    pub container_id: String,
}

/// `DeleteResponse`; its fields about the process are not needed.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct DeleteResponse {}
