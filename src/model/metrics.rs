//! What is counted, by the kubelet's own metric names.

use std::collections::BTreeMap;

/// All counters since the agent's start, and the gauges of this moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Metrics {
    /// `kubelet_node_name{node}`
    pub node: String,
    /// `kubelet_desired_pods`: pods that a source wants, ended ones included.
    pub desired_pods: u64,
    /// `kubelet_running_pods`: pods with a ready sandbox.
    pub running_pods: u64,
    /// `kubelet_running_containers{container_state}`: created, running, exited, unknown.
    pub containers: [(&'static str, u64); 4],
    /// `kubelet_started_pods_total`: sandboxes that were made.
    pub started_pods: u64,
    /// `kubelet_started_pods_errors_total`
    pub started_pods_errors: u64,
    /// `kubelet_started_containers_total`
    pub started_containers: u64,
    /// `kubelet_started_containers_errors_total`
    pub started_containers_errors: u64,
    /// `kubelet_restarted_pods_total{static}`: pods that went and came back under their uid, of the
    /// cloud and of the manifest folder.
    pub restarted_pods: [u64; 2],
    /// `kubelet_orphaned_runtime_pods_total`: pods found in the runtime that no source wants.
    pub orphaned_pods: u64,
    /// `edged_removed_objects_listed`: sandboxes and containers that the runtime lists, and says
    /// are gone.
    pub removed_listed: u64,
    /// `kubelet_evictions{eviction_signal}`: pods evicted.
    pub evictions: BTreeMap<&'static str, u64>,
    /// `kubelet_runtime_operations_total`, `…_errors_total`, `…_duration_seconds{operation_type}`
    pub operations: BTreeMap<&'static str, Operation>,
    /// `kubelet_pod_start_sli_duration_seconds`: from the pod's arrival to the first sight of all
    /// its containers running, image pulls and init containers left out.
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

/// Times counted by size; resolution one millisecond.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Histogram {
    /// How many fell at or below each bound of [`Histogram::BOUNDS_MS`], not cumulated; the last
    /// is those beyond.
    pub counts: [u64; Self::BOUNDS_MS.len() + 1],
    /// Of all, milliseconds.
    pub sum_ms: u64,
}

impl Histogram {
    /// Upper bounds, milliseconds: from a list call (1 ms) to a pull over a thin link (10 min).
    pub const BOUNDS_MS: [u64; 16] =
        [1, 2, 5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 60_000, 300_000, 600_000];

    /// Counts one.
    pub fn observe_ms(&mut self, ms: u64) {
        let at = Self::BOUNDS_MS.iter().position(|&bound| ms <= bound);
        self.counts[at.unwrap_or(Self::BOUNDS_MS.len())] += 1;
        self.sum_ms = self.sum_ms.saturating_add(ms);
    }

    /// How many in all.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }
}
