//! The runtime itself: version, conditions, configuration.

use std::collections::BTreeMap;

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct VersionRequest {
    #[prost(string, tag = "1")]
    pub version: String,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct VersionResponse {
    #[prost(string, tag = "1")]
    pub version: String,
    #[prost(string, tag = "2")]
    pub runtime_name: String,
    #[prost(string, tag = "3")]
    pub runtime_version: String,
    #[prost(string, tag = "4")]
    pub runtime_api_version: String,
}

#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct StatusRequest {
    #[prost(bool, tag = "1")]
    pub verbose: bool,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct StatusResponse {
    #[prost(message, optional, tag = "1")]
    pub status: Option<RuntimeStatus>,
    #[prost(btree_map = "string, string", tag = "2")]
    pub info: BTreeMap<String, String>,
    #[prost(message, repeated, tag = "3")]
    pub runtime_handlers: Vec<RuntimeHandler>,
    #[prost(message, optional, tag = "4")]
    pub features: Option<RuntimeFeatures>,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct RuntimeStatus {
    #[prost(message, repeated, tag = "1")]
    pub conditions: Vec<RuntimeCondition>,
}

/// `RuntimeCondition`; `RuntimeReady` and `NetworkReady` must be among them.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct RuntimeCondition {
    #[prost(string, tag = "1")]
    pub r#type: String,
    #[prost(bool, tag = "2")]
    pub status: bool,
    #[prost(string, tag = "3")]
    pub reason: String,
    #[prost(string, tag = "4")]
    pub message: String,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct RuntimeHandler {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(message, optional, tag = "2")]
    pub features: Option<RuntimeHandlerFeatures>,
}

#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct RuntimeHandlerFeatures {
    #[prost(bool, tag = "1")]
    pub recursive_read_only_mounts: bool,
    #[prost(bool, tag = "2")]
    pub user_namespaces: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct RuntimeFeatures {
    #[prost(bool, tag = "1")]
    pub supplemental_groups_policy: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct RuntimeConfigRequest {}

/// `RuntimeConfigResponse`. Without `linux` the driver is not specified; zero is SYSTEMD.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct RuntimeConfigResponse {
    #[prost(message, optional, tag = "1")]
    pub linux: Option<LinuxRuntimeConfiguration>,
}

#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct LinuxRuntimeConfiguration {
    #[prost(enumeration = "CgroupDriver", tag = "1")]
    pub cgroup_driver: i32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum CgroupDriver {
    Systemd = 0,
    Cgroupfs = 1,
}
