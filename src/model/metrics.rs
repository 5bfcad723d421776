//! Metrics, under the kubelet's own names.

use std::collections::BTreeMap;

#[cfg(feature = "devices")]
use super::device::DeviceMetrics;
#[cfg(feature = "metaserver")]
use super::metaserver::MetaServerOverview;
#[cfg(feature = "node-jobs")]
use super::node_job::JobMetrics;
#[cfg(feature = "services")]
use super::service::ServicesOverview;
#[cfg(feature = "servicebus")]
use super::service_bus::BusOverview;

/// All counters since the agent's start, and the current gauges.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Metrics {
    /// `kubelet_node_name{node}`
    pub node: String,
    /// `kubelet_desired_pods`: pods that a source wants, with ended ones.
    pub desired_pods: u64,
    /// `kubelet_running_pods`: pods with a ready sandbox.
    pub running_pods: u64,
    /// `kubelet_running_containers{container_state}`: created, running, exited, unknown.
    pub containers: [(&'static str, u64); 4],
    /// `kubelet_started_pods_total`: created sandboxes.
    pub started_pods: u64,
    /// `kubelet_started_pods_errors_total`
    pub started_pods_errors: u64,
    /// `kubelet_started_containers_total`
    pub started_containers: u64,
    /// `kubelet_started_containers_errors_total`
    pub started_containers_errors: u64,
    /// `kubelet_restarted_pods_total{static}`: pods that were removed and came back under their
    /// uid, of the cloud and of the manifest folder.
    pub restarted_pods: [u64; 2],
    /// `kubelet_orphaned_runtime_pods_total`: pods found in the runtime that no source wants.
    pub orphaned_pods: u64,
    /// `edged_removed_objects_listed`: sandboxes and containers that the runtime lists although it
    /// reports them as removed.
    pub removed_listed: u64,
    /// `kubelet_evictions{eviction_signal}`: pods evicted.
    pub evictions: BTreeMap<&'static str, u64>,
    /// `kubelet_runtime_operations_total`, `…_errors_total`, `…_duration_seconds{operation_type}`
    pub operations: BTreeMap<&'static str, Operation>,
    /// `kubelet_pod_start_sli_duration_seconds`: from the pod's arrival until all its containers
    /// are observed running, without image pulls and init containers.
    pub pod_start: Histogram,
    /// `kubelet_pod_start_duration_seconds`: the same with everything.
    pub pod_start_total: Histogram,
    /// `kubelet_pleg_relist_duration_seconds`
    pub relist_duration: Histogram,
    /// `kubelet_pleg_relist_interval_seconds`
    pub relist_interval: Histogram,
    /// `kubelet_pleg_last_seen_seconds`: wall-clock seconds of the last believed list.
    pub relist_last_seen: Option<i64>,
    /// `kubelet_image_pull_duration_seconds`
    pub image_pull: Histogram,
    /// `None`: devices are not served.
    #[cfg(feature = "devices")]
    pub devices: Option<DeviceMetrics>,
    /// `None`: jobs for the node are switched off.
    #[cfg(feature = "node-jobs")]
    pub node_jobs: Option<JobMetrics>,
    /// `None`: Services are not served.
    #[cfg(feature = "servicebus")]
    pub service_bus: Option<BusOverview>,
    #[cfg(feature = "services")]
    pub services: Option<ServicesOverview>,
    /// `None`: the Kubernetes API is not served on the node.
    #[cfg(feature = "metaserver")]
    pub metaserver: Option<MetaServerOverview>,
}

/// Calls of one RPC.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Operation {
    /// Answered or lost.
    pub total: u64,
    /// Refused or lost.
    pub errors: u64,
    /// From the request to its answer.
    pub duration: Histogram,
}

/// Durations by size; resolution one millisecond.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Histogram {
    /// The count at or below each bound of [`Histogram::BOUNDS_MS`], not cumulated; the last is for
    /// those beyond.
    pub counts: [u64; Self::BOUNDS_MS.len() + 1],
    /// The sum, milliseconds.
    pub sum_ms: u64,
}

impl Histogram {
    /// Upper bounds, milliseconds: from a list call (1 ms) to a pull over a thin link (10 min).
    pub const BOUNDS_MS: [u64; 16] =
        [1, 2, 5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 60_000, 300_000, 600_000];

    /// Counts a duration.
    pub fn observe_ms(&mut self, ms: u64) {
        let at = Self::BOUNDS_MS.iter().position(|&bound| ms <= bound);
        self.counts[at.unwrap_or(Self::BOUNDS_MS.len())] += 1;
        self.sum_ms = self.sum_ms.saturating_add(ms);
    }

    /// The total count.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }
}
