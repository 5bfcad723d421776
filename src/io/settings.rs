//! Distributes the configuration: to the core, to the link, and what a reload cannot change.

use super::sys;
use crate::agent;
use crate::config::Config;
#[cfg(feature = "cloud")]
use crate::model::settings::CloudLink;

/// The cloud to connect to, if there is one.
#[cfg(feature = "cloud")]
pub(super) fn link_of(config: &Config) -> Option<CloudLink> {
    config.cloud.is_configured().then(|| config.link())
}

/// The configuration of the agent's core.
pub(super) fn agent_config(config: &Config) -> agent::Config {
    agent::Config {
        node_name: config.node_name.clone(),
        node_labels: config.node_labels.clone(),
        root: config.root.clone(),
        pod_logs: config.pod_logs.clone(),
        machine: sys::machine(&config.root),
        pods_max: config.pods_max,
        settings: config.settings.clone(),
        crash_backoff_max_ms: config.crash_backoff_max_ms,
        housekeeping: config.housekeeping.clone(),
        watchdog: config.watchdog.clone(),
        pulls: agent::image::Settings {
            parallel_max: config.pulls.parallel(),
            per_second: config.pulls.per_second,
            burst: config.pulls.burst,
        },
        #[cfg(feature = "cloud")]
        cloud: config.cloud.is_configured().then(|| config.cloud.settings.clone()),
        #[cfg(feature = "devices")]
        devices: config.device_settings(),
        #[cfg(feature = "node-jobs")]
        node_jobs: config.node_jobs,
        #[cfg(feature = "node-jobs")]
        upgrade_repositories: config.upgrade_repositories.clone(),
        #[cfg(feature = "metaserver")]
        metaserver: config.metaserver.settings().cloned(),
        #[cfg(feature = "servicebus")]
        service_bus: config.service_bus_settings(),
        #[cfg(feature = "services")]
        services: config.services.settings().cloned(),
        #[cfg(all(feature = "cloud", feature = "streams"))]
        tunnel: config.tunnel_settings(),
    }
}

/// The settings that changed but need a restart, by their flags or keys.
pub(super) fn needs_restart(old: &Config, new: &Config) -> Vec<&'static str> {
    [
        ("node-name", old.node_name != new.node_name),
        ("nodeLabels", old.node_labels != new.node_labels),
        ("node-ip", old.node_ip != new.node_ip),
        ("runtime", old.runtime != new.runtime),
        ("root-dir", old.root != new.root),
        ("pod-logs", old.pod_logs != new.pod_logs),
        ("container-logs", old.container_logs != new.container_logs),
        ("listen", old.listen != new.listen),
        ("maxPods", old.pods_max != new.pods_max),
        ("the settings of pods", old.settings != new.settings),
        ("crashLoopBackOff", old.crash_backoff_max_ms != new.crash_backoff_max_ms),
        ("garbage, log and eviction settings", old.housekeeping != new.housekeeping),
        ("serializeImagePulls and its like", old.pulls != new.pulls),
        ("openStreams", old.open_streams != new.open_streams),
        ("imageFolders", old.image_folders != new.image_folders),
        ("watchdog", old.watchdog != new.watchdog),
        ("imageMirrorPort", old.image_mirror != new.image_mirror),
        ("the settings of the cloud and its store", old.cloud != new.cloud),
        ("deviceTwin and eventBus", old.devices != new.devices),
        ("taskManager", old.node_jobs != new.node_jobs),
        ("metaServer", old.metaserver != new.metaserver),
        ("serviceBus", old.service_bus != new.service_bus),
        ("services", old.services != new.services),
    ]
    .into_iter()
    .filter_map(|(name, differs)| differs.then_some(name))
    .collect()
}
