//! The node in its cloud: the part of the configuration that the core needs.

/// The settings; KubeEdge's keys, below `modules.edged` (with `tailoredKubeletConfig`) unless noted
/// otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CloudSettings {
    /// The node's registration.
    pub registration: Registration,
    /// `modules.edgeHub.rotateCertificates`: a certificate is renewed before its end.
    pub rotate_certificates: bool,
    /// Milliseconds between heartbeats on the link (`modules.edgeHub.heartbeat`).
    pub heartbeat_ms: u64,
    /// Average number of messages per second to the cloud (`modules.edgeHub.messageQPS`).
    pub messages_per_second: u32,
    /// Burst of messages after an idle time (`modules.edgeHub.messageBurst`).
    pub messages_burst: u32,
    /// Duration of the lease, seconds (`nodeLeaseDurationSeconds`).
    pub lease_duration_s: u32,
    /// Milliseconds between renewals: a quarter of that, as in the kubelet; half of it on a metered
    /// link.
    pub lease_interval_ms: u64,
    /// Milliseconds between checks of the node's status (`nodeStatusUpdateFrequency`).
    pub status_update_ms: u64,
    /// Milliseconds after which it is reported without a change (`nodeStatusReportFrequency`).
    pub status_report_ms: u64,
    /// The most images in the node's status (`nodeStatusMaxImages`); `None`: all.
    pub status_images_max: Option<usize>,
    /// Timeout of a query, milliseconds (`modules.metaManager.remoteQueryTimeout`).
    pub remote_query_timeout_ms: u64,
    /// Milliseconds after which objects of pods are checked again (`syncFrequency`).
    pub sync_ms: u64,
    /// Milliseconds between reports of all pods to clouds up to 1.10
    /// (`modules.metaManager.podStatusSyncInterval`).
    pub pod_status_sync_ms: u64,
    /// `reportEvent`: events are sent to the cloud.
    pub report_events: bool,
    /// Average number of events per second (`eventRecordQPS`); 0: no limit.
    pub events_per_second: u32,
    /// Burst of events after an idle time (`eventBurst`).
    pub events_burst: u32,
}

/// The node's registration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registration {
    /// `registerNode`: the node's object is created if the cloud has none.
    pub register: bool,
    /// `registerNodeNamespace`: in the resource of the node's messages up to KubeEdge 1.22.
    pub namespace: String,
    /// `registerWithTaints`
    pub taints: Vec<Taint>,
    /// `registerSchedulable`: the scheduler may use the node.
    pub schedulable: bool,
}

/// A taint keeps pods off a node (core/v1, `Taint`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taint {
    /// A qualified name.
    pub key: String,
    /// May be empty.
    pub value: String,
    /// `NoSchedule`, `PreferNoSchedule` or `NoExecute`.
    pub effect: String,
}

/// KubeEdge's defaults.
impl Default for CloudSettings {
    fn default() -> Self {
        Self {
            registration: Registration::default(),
            rotate_certificates: true,
            heartbeat_ms: 15_000,
            messages_per_second: 30,
            messages_burst: 60,
            lease_duration_s: 40,
            lease_interval_ms: 10_000,
            status_update_ms: 10_000,
            status_report_ms: 300_000,
            status_images_max: Some(0),
            remote_query_timeout_ms: 60_000,
            sync_ms: 60_000,
            pod_status_sync_ms: 60_000,
            report_events: false,
            events_per_second: 50,
            events_burst: 100,
        }
    }
}

/// KubeEdge's defaults.
impl Default for Registration {
    fn default() -> Self {
        Self {
            register: true,
            namespace: "default".to_owned(),
            taints: Vec::new(),
            schedulable: true,
        }
    }
}
