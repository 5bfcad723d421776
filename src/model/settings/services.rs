//! Settings of Services by name (`modules.edged.services`).

use core::net::Ipv4Addr;

/// How Services are served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceSettings {
    /// `address`: where DNS is answered, on a link of its own.
    pub address: Ipv4Addr,
    /// `clusterIPRange`: the addresses of Services that name none; the network's address and the
    /// length of its prefix.
    pub range: (Ipv4Addr, u8),
    /// `nodePorts`: Services of type NodePort are also served on the node's addresses.
    pub node_ports: bool,
    /// `upstreamServers`: name servers for all other names; empty: those of the host.
    pub upstream: Vec<String>,
}

impl Default for ServiceSettings {
    fn default() -> Self {
        Self {
            // EdgeMesh's, which existing files name in `clusterDNS`.
            address: Ipv4Addr::new(169, 254, 96, 16),
            range: (Ipv4Addr::new(10, 96, 0, 0), 16),
            node_ports: false,
            upstream: Vec::new(),
        }
    }
}
