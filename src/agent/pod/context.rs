//! What a pod is given for a step.

#[cfg(feature = "services")]
use std::sync::Arc;

use super::HostInfo;
use crate::agent::Config;
use crate::agent::calls::Calls;
use crate::agent::event::Out;
use crate::agent::image::Images;
use crate::agent::jobs::{Jobs, Queries};
use crate::agent::objects::ObjectsOf;
use crate::agent::pleg::Pleg;
use crate::agent::recorder::Recorder;
use crate::agent::time::{Instant, Rng};
#[cfg(feature = "probes")]
use crate::model::cri::ContainerId;
use crate::model::cri::{CgroupDriver, Dns, RuntimeStatus};
#[cfg(feature = "probes")]
use crate::model::map::Map;
#[cfg(feature = "probes")]
use crate::model::probe::ProbeResults;
#[cfg(feature = "services")]
use crate::model::service::ServiceEntry;

/// Everything that a pod needs for a step.
pub struct PodContext<'a> {
    /// The static configuration.
    pub config: &'a Config,
    /// ConfigMaps and Secrets.
    pub objects: ObjectsOf<'a>,
    /// The Services that are known, by namespace and name.
    #[cfg(feature = "services")]
    pub services: &'a [Arc<ServiceEntry>],
    /// The node's addresses and the runtime's name.
    pub host_info: HostInfo<'a>,
    /// The runtime's last reported status.
    pub runtime: Option<&'a RuntimeStatus>,
    /// How cgroups are named.
    pub driver: CgroupDriver,
    /// What the host's `resolv.conf` says.
    pub resolver: &'a Dns,
    /// The pending runtime calls.
    pub calls: &'a mut Calls,
    /// The pending queries of probes and hooks.
    pub queries: &'a mut Queries,
    /// Results of probes from before the agent's restart.
    #[cfg(feature = "probes")]
    pub saved_results: &'a Map<ContainerId, ProbeResults>,
    /// For random delays.
    pub rng: &'a mut Rng,
    /// When this process of the agent began.
    pub booted_at: Instant,
    /// The pending jobs.
    pub jobs: &'a mut Jobs,
    /// The event recorder.
    pub recorder: &'a mut Recorder,
    /// The state that pulls of all pods share.
    pub images: &'a mut Images,
    pub pleg: &'a mut Pleg,
    /// Where requests go.
    pub out: &'a mut Out,
}
