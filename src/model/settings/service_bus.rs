//! The settings of ServiceBus; KubeEdge's keys, below `modules.serviceBus`.

use std::collections::BTreeSet;

use crate::limits::SERVICE_BUS_ENTRY_MS;

/// The settings of the core.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceBusSettings {
    /// `timeout`: milliseconds for an answer of the cloud to an application.
    pub timeout_ms: u64,
    /// Ports of services that the cloud may call (`modules.edged.serviceBusPorts`); empty: all from
    /// 1024 on but [`ServiceBusSettings::own_ports`].
    pub ports: BTreeSet<u16>,
    /// Ports of edged itself.
    pub own_ports: BTreeSet<u16>,
}

impl Default for ServiceBusSettings {
    fn default() -> Self {
        let (ports, own_ports) = (BTreeSet::new(), BTreeSet::new());
        Self { timeout_ms: SERVICE_BUS_ENTRY_MS, ports, own_ports }
    }
}
