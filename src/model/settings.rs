//! The settings for pods beside their own specs; and for the link to the cloud.

#[cfg(feature = "cloud")]
mod cloud;
#[cfg(feature = "devices")]
mod devices;
#[cfg(feature = "devices")]
mod mqtt;
#[cfg(feature = "cloud")]
mod node;
#[cfg(feature = "servicebus")]
mod service_bus;
#[cfg(feature = "services")]
mod services;

#[cfg(all(feature = "cloud", feature = "streams"))]
pub use cloud::TunnelSettings;
#[cfg(feature = "cloud")]
pub use cloud::{CloudLink, Secret};
#[cfg(feature = "devices")]
pub use devices::{BusSettings, DeviceSettings};
#[cfg(feature = "devices")]
pub use mqtt::{MqttBrokerSettings, MqttClientSettings, MqttMode, MqttServer, MqttSettings};
#[cfg(feature = "cloud")]
pub use node::{CloudSettings, Registration, Taint};
#[cfg(feature = "servicebus")]
pub use service_bus::ServiceBusSettings;
#[cfg(feature = "services")]
pub use services::ServiceSettings;

use super::cgroup;

/// The settings; KubeEdge's keys, below `modules.edged.tailoredKubeletConfig`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodSettings {
    /// `allowedUnsafeSysctls`: sysctls beyond the safe ones that pods may set; `*` at the end
    /// matches any rest.
    pub allowed_sysctls: Vec<String>,
    /// `seccompDefault`: containers without a seccomp profile get the runtime's.
    pub seccomp_default: bool,
    /// `clusterDNS`: name servers of pods; empty: those of the host.
    pub cluster_dns: Vec<String>,
    /// `clusterDomain`: the domain of pods and services.
    pub cluster_domain: String,
    /// `resolvConf`: absolute path of the host's; empty: pods get nothing of the host's.
    pub resolv_conf: String,
    /// The pods' cgroups.
    pub cgroups: cgroup::Settings,
}

impl Default for PodSettings {
    fn default() -> Self {
        Self {
            allowed_sysctls: Vec::new(),
            seccomp_default: false,
            cluster_dns: Vec::new(),
            cluster_domain: "cluster.local".to_owned(),
            resolv_conf: "/etc/resolv.conf".to_owned(),
            cgroups: cgroup::Settings::default(),
        }
    }
}
