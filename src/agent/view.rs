//! Read access to the core: pods, events, counters.

#[cfg(feature = "services")]
use std::sync::Arc;

#[cfg(feature = "devices")]
use super::devices::Devices;
#[cfg(feature = "node-jobs")]
use super::node_jobs::NodeJobs;
use super::pod::{Origin, Wanted};
#[cfg(feature = "servicebus")]
use super::service_bus::ServiceBus;
#[cfg(feature = "services")]
use super::services::Services;
use super::time::Now;
use super::{Agent, pod};
use crate::model::cri::ContainerState;
#[cfg(feature = "devices")]
use crate::model::device::DeviceInfo;
use crate::model::metrics::Metrics;
use crate::model::node::Condition;
use crate::model::pod::Pod;
use crate::model::recorded_event::RecordedEvent;
#[cfg(feature = "services")]
use crate::model::service::ServiceEntry;
use crate::model::status::Phase;
use crate::model::view::{Overview, RunningPod};

impl Agent {
    /// The pods of the sources with their statuses, by namespace and name: `/pods`. A pod that no
    /// source wants any more is included, with a deletion timestamp, until it is gone.
    pub fn pods(&self) -> impl Iterator<Item = &Pod> {
        let mut pods: Vec<&Pod> = self.own_pods().map(pod::Pod::api).collect();
        pods.sort_by_key(|pod| (&pod.metadata.namespace, &pod.metadata.name, &pod.metadata.uid));
        pods.into_iter()
    }

    fn own_pods(&self) -> impl Iterator<Item = &pod::Pod> {
        self.pods.iter().filter(|pod| pod.origin() != Origin::Runtime)
    }

    /// The pods that run according to the runtime: `/runningpods/`.
    pub fn running_pods(&self) -> Vec<RunningPod> {
        let pods = self.pods.iter().filter_map(|pod| {
            let observed = pod.observed();
            let runs = observed.sandboxes.iter().any(|sandbox| sandbox.ready) || observed.may_run();
            let containers = observed
                .containers
                .iter()
                .filter(|observed| observed.state == ContainerState::Running);
            let metadata = &pod.api().metadata;
            runs.then(|| RunningPod {
                uid: pod.uid().clone(),
                namespace: metadata.namespace.as_str().into(),
                name: metadata.name.as_str().into(),
                containers: containers
                    .map(|observed| (observed.name.clone(), observed.image.clone()))
                    .collect(),
            })
        });
        pods.collect()
    }

    /// The last events, the oldest first.
    pub fn events(&self) -> impl Iterator<Item = &RecordedEvent> {
        self.recorder.iter()
    }

    /// Grows whenever a pod is added, removed, or has its status computed.
    pub fn revision(&self) -> u64 {
        self.pods.revision()
    }

    /// One pod of the sources or the runtime, by uid.
    pub fn pod(&self, uid: &str) -> Option<&pod::Pod> {
        self.pods.get(uid)
    }

    /// The current counters and gauges.
    pub fn metrics(&self) -> Metrics {
        let operations = self.calls.operations();
        let count = |name, errors| {
            operations
                .get(name)
                .map_or(0, |counts| if errors { counts.errors } else { counts.total })
        };
        let observed = || self.pods.iter().map(pod::Pod::observed);
        let containers = |state| {
            let all = observed().flat_map(|observed| &observed.containers);
            all.filter(|observed| observed.state == state).count() as u64
        };
        let (relist_duration, relist_interval) = self.pleg.histograms();
        let ready =
            observed().filter(|observed| observed.sandboxes.iter().any(|sandbox| sandbox.ready));
        Metrics {
            node: self.config.node_name.clone(),
            desired_pods: self.own_pods().filter(|pod| *pod.wanted() == Wanted::Yes).count() as u64,
            running_pods: ready.count() as u64,
            containers: [
                ("created", containers(ContainerState::Created)),
                ("running", containers(ContainerState::Running)),
                ("exited", containers(ContainerState::Exited)),
                ("unknown", containers(ContainerState::Unknown)),
            ],
            started_pods: count("run_podsandbox", false),
            started_pods_errors: count("run_podsandbox", true),
            started_containers: count("start_container", false),
            started_containers_errors: count("start_container", true),
            restarted_pods: self.pods.restarted_total(),
            orphaned_pods: self.pods.orphans_total(),
            removed_listed: self.removed.listed(),
            evictions: self.housekeeping.evictions(),
            operations: operations.clone(),
            pod_start: self.pod_start.clone(),
            pod_start_total: self.pod_start_total.clone(),
            relist_duration: relist_duration.clone(),
            relist_interval: relist_interval.clone(),
            relist_last_seen: self.relist_last_seen(),
            image_pull: self.calls.duration_of("pull_image"),
            #[cfg(feature = "devices")]
            devices: self.device_core().map(Devices::metrics),
            #[cfg(feature = "node-jobs")]
            node_jobs: self.node_jobs().map(NodeJobs::metrics),
            #[cfg(feature = "servicebus")]
            service_bus: self.service_bus().map(ServiceBus::overview),
            #[cfg(feature = "services")]
            services: self.services.as_ref().map(Services::overview),
            #[cfg(feature = "metaserver")]
            metaserver: self.metaserver_overview(),
        }
    }

    fn relist_last_seen(&self) -> Option<i64> {
        let age_ms = self.now.boot.since_ms(self.pleg.last_done_at()?) as i64;
        Some((self.now.wall?.0 - age_ms).div_euclid(1000))
    }

    /// The node's conditions about pressures, for its status.
    pub fn node_conditions(&self) -> impl Iterator<Item = Condition> {
        self.node.conditions()
    }

    fn pressures(&self) -> Option<Vec<String>> {
        let counts = self.node.pressures().iter().map(|pressure| pressure.kind().to_owned());
        cfg!(feature = "eviction").then(|| counts.collect())
    }

    /// A summary of the agent.
    pub fn overview(&self, now: Now) -> Overview {
        let version = self.runtime.version();
        let running = self.own_pods().filter(|pod| pod.api().status.phase == Phase::Running);
        Overview {
            node: self.config.node_name.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            uptime_ms: now.boot.since_ms(self.booted_at),
            time: now.timestamp(),
            revision: self.pods.revision() + self.recorder.count(),
            runtime: version
                .map(|version| format!("{} {}", version.runtime_name, version.runtime_version))
                .unwrap_or_default(),
            runtime_trouble: self.runtime.trouble(now),
            network_trouble: self.runtime.network_trouble().map(str::to_owned),
            pressures: self.pressures(),
            manifest_trouble: self.source.trouble().map(str::to_owned).collect(),
            pods_wanted: self.own_pods().filter(|pod| *pod.wanted() == Wanted::Yes).count(),
            pods_running: running.count(),
            pulls: (self.calls.pulls())
                .map(|(image, began)| (image.to_owned(), now.boot.since_ms(began)))
                .collect(),
            evented: self.pleg.is_evented(now),
            cloud: self.cloud_overview(now),
            #[cfg(all(feature = "cloud", feature = "streams"))]
            tunnel: self.streams.tunnel_overview(now),
            #[cfg(not(all(feature = "cloud", feature = "streams")))]
            tunnel: None,
            #[cfg(feature = "devices")]
            devices: self.device_core().map(|core| core.overview(now)),
            #[cfg(feature = "node-jobs")]
            node_jobs: self.node_jobs().map(NodeJobs::overview),
            #[cfg(feature = "servicebus")]
            service_bus: self.service_bus().map(ServiceBus::overview),
            #[cfg(feature = "services")]
            services: self.services.as_ref().map(Services::overview),
            #[cfg(feature = "metaserver")]
            metaserver: self.metaserver_overview(),
        }
    }

    /// All Services that are known, by namespace and name; `None`: they are not served.
    #[cfg(feature = "services")]
    pub fn service_table(&self) -> Option<&[Arc<ServiceEntry>]> {
        self.services.as_ref().map(Services::table)
    }

    /// All devices, by id; `None`: they are not served.
    #[cfg(feature = "devices")]
    pub fn devices(&self) -> Option<impl Iterator<Item = DeviceInfo<'_>>> {
        self.device_core().map(Devices::infos)
    }
}
