//! Usage of containers and sandboxes. Times in nanoseconds since 1970, sizes in bytes.

use std::collections::BTreeMap;

use super::UInt64Value;
use super::container::ContainerMetadata;
use super::image::FilesystemUsage;
use super::sandbox_config::PodSandboxMetadata;
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ListContainerStatsRequest {
    #[prost(message, optional, tag = "1")]
    pub filter: Option<ContainerStatsFilter>,
}

/// `ContainerStatsFilter`: all fields that are set must match.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ContainerStatsFilter {
    #[prost(string, tag = "1")]
    pub id: String,
    #[prost(string, tag = "2")]
    pub pod_sandbox_id: String,
    #[prost(btree_map = "string, string", tag = "3")]
    pub label_selector: BTreeMap<String, String>,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ListContainerStatsResponse {
    #[prost(message, repeated, tag = "1")]
    pub stats: Vec<ContainerStats>,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ContainerStats {
    #[prost(message, optional, tag = "1")]
    pub attributes: Option<ContainerAttributes>,
    #[prost(message, optional, tag = "2")]
    pub cpu: Option<CpuUsage>,
    #[prost(message, optional, tag = "3")]
    pub memory: Option<MemoryUsage>,
    #[prost(message, optional, tag = "4")]
    pub writable_layer: Option<FilesystemUsage>,
    #[prost(message, optional, tag = "5")]
    pub swap: Option<SwapUsage>,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ContainerAttributes {
    #[prost(string, tag = "1")]
    pub id: String,
    #[prost(message, optional, tag = "2")]
    pub metadata: Option<ContainerMetadata>,
    #[prost(btree_map = "string, string", tag = "3")]
    pub labels: BTreeMap<String, String>,
    #[prost(btree_map = "string, string", tag = "4")]
    pub annotations: BTreeMap<String, String>,
}

#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct CpuUsage {
    #[prost(int64, tag = "1")]
    pub timestamp: i64,
    #[prost(message, optional, tag = "2")]
    pub usage_core_nano_seconds: Option<UInt64Value>,
    #[prost(message, optional, tag = "3")]
    pub usage_nano_cores: Option<UInt64Value>,
}

#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct MemoryUsage {
    #[prost(int64, tag = "1")]
    pub timestamp: i64,
    #[prost(message, optional, tag = "2")]
    pub working_set_bytes: Option<UInt64Value>,
    #[prost(message, optional, tag = "3")]
    pub available_bytes: Option<UInt64Value>,
    #[prost(message, optional, tag = "4")]
    pub usage_bytes: Option<UInt64Value>,
    #[prost(message, optional, tag = "5")]
    pub rss_bytes: Option<UInt64Value>,
    #[prost(message, optional, tag = "6")]
    pub page_faults: Option<UInt64Value>,
    #[prost(message, optional, tag = "7")]
    pub major_page_faults: Option<UInt64Value>,
}

#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct SwapUsage {
    #[prost(int64, tag = "1")]
    pub timestamp: i64,
    #[prost(message, optional, tag = "2")]
    pub swap_available_bytes: Option<UInt64Value>,
    #[prost(message, optional, tag = "3")]
    pub swap_usage_bytes: Option<UInt64Value>,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ListPodSandboxStatsRequest {
    #[prost(message, optional, tag = "1")]
    pub filter: Option<PodSandboxStatsFilter>,
}

/// `PodSandboxStatsFilter`: all fields that are set must match.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct PodSandboxStatsFilter {
    #[prost(string, tag = "1")]
    pub id: String,
    #[prost(btree_map = "string, string", tag = "2")]
    pub label_selector: BTreeMap<String, String>,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ListPodSandboxStatsResponse {
    #[prost(message, repeated, tag = "1")]
    pub stats: Vec<PodSandboxStats>,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct PodSandboxStats {
    #[prost(message, optional, tag = "1")]
    pub attributes: Option<PodSandboxAttributes>,
    #[prost(message, optional, tag = "2")]
    pub linux: Option<LinuxPodSandboxStats>,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct PodSandboxAttributes {
    #[prost(string, tag = "1")]
    pub id: String,
    #[prost(message, optional, tag = "2")]
    pub metadata: Option<PodSandboxMetadata>,
    #[prost(btree_map = "string, string", tag = "3")]
    pub labels: BTreeMap<String, String>,
    #[prost(btree_map = "string, string", tag = "4")]
    pub annotations: BTreeMap<String, String>,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct LinuxPodSandboxStats {
    #[prost(message, optional, tag = "1")]
    pub cpu: Option<CpuUsage>,
    #[prost(message, optional, tag = "2")]
    pub memory: Option<MemoryUsage>,
    #[prost(message, optional, tag = "3")]
    pub network: Option<NetworkUsage>,
    #[prost(message, optional, tag = "4")]
    pub process: Option<ProcessUsage>,
    #[prost(message, repeated, tag = "5")]
    pub containers: Vec<ContainerStats>,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct NetworkUsage {
    #[prost(int64, tag = "1")]
    pub timestamp: i64,
    #[prost(message, optional, tag = "2")]
    pub default_interface: Option<NetworkInterfaceUsage>,
    #[prost(message, repeated, tag = "3")]
    pub interfaces: Vec<NetworkInterfaceUsage>,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct NetworkInterfaceUsage {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(message, optional, tag = "2")]
    pub rx_bytes: Option<UInt64Value>,
    #[prost(message, optional, tag = "3")]
    pub rx_errors: Option<UInt64Value>,
    #[prost(message, optional, tag = "4")]
    pub tx_bytes: Option<UInt64Value>,
    #[prost(message, optional, tag = "5")]
    pub tx_errors: Option<UInt64Value>,
}

#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct ProcessUsage {
    #[prost(int64, tag = "1")]
    pub timestamp: i64,
    #[prost(message, optional, tag = "2")]
    pub process_count: Option<UInt64Value>,
}
