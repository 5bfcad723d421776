//! How the node belongs to its cloud: what the mind has to know of the configuration.

/// The settings; KubeEdge's keys, below `modules.edged` (`tailoredKubeletConfig` included) unless
/// told otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CloudSettings {
    /// What the node says of itself when it joins.
    pub registration: Registration,
    /// `modules.edgeHub.rotateCertificates`: a certificate is replaced before its end.
    pub rotate_certificates: bool,
    /// Milliseconds between signs of life on the link (`modules.edgeHub.heartbeat`).
    pub heartbeat_ms: u64,
    /// Messages a second up in the long run (`modules.edgeHub.messageQPS`).
    pub messages_per_second: u32,
    /// Messages up at once after a quiet time (`modules.edgeHub.messageBurst`).
    pub messages_burst: u32,
    /// How long the lease counts, seconds (`nodeLeaseDurationSeconds`).
    pub lease_duration_s: u32,
    /// Milliseconds between renewals: a quarter of that, as the kubelet has it; half of it on a
    /// thrifty link.
    pub lease_interval_ms: u64,
    /// Milliseconds between looks at the node's status (`nodeStatusUpdateFrequency`).
    pub status_update_ms: u64,
    /// Milliseconds after which it is told even if nothing changed (`nodeStatusReportFrequency`).
    pub status_report_ms: u64,
    /// Images that the node's status names at the most (`nodeStatusMaxImages`); `None`: all.
    pub status_images_max: Option<usize>,
    /// Milliseconds for a query's answer (`modules.metaManager.remoteQueryTimeout`).
    pub remote_query_timeout_ms: u64,
    /// Milliseconds after which what pods use is looked at again (`syncFrequency`).
    pub sync_ms: u64,
    /// Milliseconds between reports of all pods to clouds up to 1.10
    /// (`modules.metaManager.podStatusSyncInterval`).
    pub pod_status_sync_ms: u64,
    /// `reportEvent`: events go to the cloud.
    pub report_events: bool,
    /// Events a second in the long run (`eventRecordQPS`); 0: no bound.
    pub events_per_second: u32,
    /// Events at once after a quiet time (`eventBurst`).
    pub events_burst: u32,
}

/// What the node says of itself when it joins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registration {
    /// `registerNode`: the node's object is made where the cloud has none.
    pub register: bool,
    /// `registerNodeNamespace`: stands in the resource of the node's messages up to KubeEdge 1.22.
    pub namespace: String,
    /// `registerWithTaints`
    pub taints: Vec<Taint>,
    /// `registerSchedulable`: the scheduler may use the node.
    pub schedulable: bool,
}

/// What keeps pods off a node (core/v1, `Taint`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taint {
    /// A qualified name.
    pub key: String,
    /// May be empty.
    pub value: String,
    /// `NoSchedule`, `PreferNoSchedule` or `NoExecute`.
    pub effect: String,
}

/// KubeEdge's.
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

/// KubeEdge's.
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
