//! Services and Endpoints as a manifest or the cloud defines them (core/v1), and what the node
//! makes of them: one [`ServiceEntry`] for each Service, with the endpoints that this node can
//! reach.

use core::net::Ipv4Addr;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::pod::{Metadata, PortProtocol};
use super::probe::Port;
use super::tree::{fields, words};

/// A Service that another proxy serves carries this label, whatever its value: it is ignored here,
/// as EdgeMesh ignores it.
pub const OTHER_PROXY: &str = "service.edgemesh.kubeedge.io/service-proxy-name";

/// core/v1 `Service`, as far as it is read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Service {
    /// Name, namespace and labels.
    pub metadata: Metadata,
    pub spec: ServiceSpec,
}

fields!(Service {
    "metadata" => metadata,
    "spec" => spec,
});

/// core/v1 `ServiceSpec`
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ServiceSpec {
    pub kind: ServiceType,
    /// `None` for a headless one; empty: not assigned.
    pub cluster_ip: String,
    /// At most one of each family, the first one is `clusterIP`.
    pub cluster_ips: Vec<String>,
    pub ports: Vec<ServicePort>,
    /// Labels of its pods; empty: an Endpoints object of its name says where it leads to.
    pub selector: BTreeMap<String, String>,
    pub session_affinity: SessionAffinity,
    pub session_affinity_config: AffinityConfig,
    /// Pods count before they are ready.
    pub publish_not_ready_addresses: bool,
    /// The name that a Service of type ExternalName stands for.
    pub external_name: String,
}

fields!(ServiceSpec {
    "type" => kind,
    "clusterIP" => cluster_ip,
    "clusterIPs" => cluster_ips,
    "ports" => ports,
    "selector" => selector,
    "sessionAffinity" => session_affinity,
    "sessionAffinityConfig" => session_affinity_config,
    "publishNotReadyAddresses" => publish_not_ready_addresses,
    "externalName" => external_name,
});

/// `ServiceSpec.type`
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ServiceType {
    #[default]
    ClusterIp,
    NodePort,
    LoadBalancer,
    ExternalName,
}

words!(ServiceType {
    "ClusterIP" => ClusterIp,
    "NodePort" => NodePort,
    "LoadBalancer" => LoadBalancer,
    "ExternalName" => ExternalName,
});

/// `ServiceSpec.sessionAffinity`
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SessionAffinity {
    #[default]
    None,
    ClientIp,
}

words!(SessionAffinity {
    "None" => None,
    "ClientIP" => ClientIp,
});

/// core/v1 `SessionAffinityConfig`
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AffinityConfig {
    pub client_ip: ClientIpConfig,
}

fields!(AffinityConfig {
    "clientIP" => client_ip,
});

/// core/v1 `ClientIPConfig`
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClientIpConfig {
    /// 0: the default, three hours.
    pub timeout_seconds: i32,
}

fields!(ClientIpConfig {
    "timeoutSeconds" => timeout_seconds,
});

/// core/v1 `ServicePort`
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ServicePort {
    /// Empty only where there is one port.
    pub name: String,
    pub protocol: PortProtocol,
    /// 1–65535
    pub port: u16,
    /// A number, or the name of a port of the pod; `None`: the same as `port`.
    pub target_port: Option<Port>,
    /// 0: none.
    pub node_port: u16,
}

fields!(ServicePort {
    "name" => name,
    "protocol" => protocol,
    "port" => port,
    "targetPort" => target_port,
    "nodePort" => node_port,
});

/// core/v1 `Endpoints`, of a Service without selector.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Endpoints {
    /// Name and namespace of the Service.
    pub metadata: Metadata,
    pub subsets: Vec<EndpointSubset>,
}

fields!(Endpoints {
    "metadata" => metadata,
    "subsets" => subsets,
});

/// core/v1 `EndpointSubset`: each of these addresses has each of these ports.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EndpointSubset {
    pub addresses: Vec<EndpointAddress>,
    pub ports: Vec<EndpointPort>,
}

fields!(EndpointSubset {
    "addresses" => addresses,
    "ports" => ports,
});

/// core/v1 `EndpointAddress`
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EndpointAddress {
    pub ip: String,
    pub hostname: String,
    /// The node whose pod it is; empty: no pod's.
    pub node_name: String,
}

fields!(EndpointAddress {
    "ip" => ip,
    "hostname" => hostname,
    "nodeName" => node_name,
});

/// core/v1 `EndpointPort`
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EndpointPort {
    /// That of the Service's port.
    pub name: String,
    pub port: u16,
    pub protocol: PortProtocol,
}

fields!(EndpointPort {
    "name" => name,
    "port" => port,
    "protocol" => protocol,
});

/// One Service with what it leads to on this node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceEntry {
    pub namespace: Box<str>,
    pub name: Box<str>,
    pub kind: EntryKind,
    /// SCTP is left out.
    pub ports: Vec<EntryPort>,
    /// By address. Only those that take connections now.
    pub endpoints: Vec<Endpoint>,
    /// Connections of one client go to one endpoint, until none was made for so many seconds; 0:
    /// each goes to the next one.
    pub affinity_s: u32,
    /// Its endpoints are pods of this node, which other pods reach by their addresses.
    pub of_pods: bool,
}

/// How a Service is reached.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum EntryKind {
    /// By this address.
    Cluster(Ipv4Addr),
    /// By those of its endpoints, which its name resolves to.
    Headless,
    /// Its name stands for this one.
    External(Box<str>),
}

/// A port of a Service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EntryPort {
    /// May be empty.
    pub name: Box<str>,
    pub protocol: Protocol,
    pub port: u16,
    /// Also on the node's addresses; 0: not.
    pub node_port: u16,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Protocol {
    Tcp,
    Udp,
}

impl Protocol {
    /// In lower case, as in names and variables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
        }
    }
}

/// A pod, or another server, that a Service leads to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Endpoint {
    pub ip: Ipv4Addr,
    /// Its own name below the Service's; empty: that is made of its address.
    pub hostname: Box<str>,
    /// For each port of the Service, in the order of these; 0: it has none of this name.
    pub ports: Vec<u16>,
}

/// What the process that serves the Services tells of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServicesReport {
    /// What does not work, a line each.
    pub trouble: Vec<String>,
    /// TCP connections that are open now.
    pub connections: u64,
    /// UDP clients that are served now.
    pub flows: u64,
    /// Since its start: TCP connections accepted.
    pub accepted: u64,
    /// Those that no endpoint took.
    pub failed: u64,
    /// Since it does so: connections that the kernel has led to an endpoint. `None`: it does not.
    pub direct: Option<u64>,
    /// Since its start: DNS queries about Services.
    pub queries: u64,
    /// DNS queries that were forwarded.
    pub forwarded: u64,
    /// Those of them without an answer.
    pub unanswered: u64,
}

/// Services in short, for `edged status` and `/metrics`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ServicesOverview {
    /// Services that are known.
    pub services: usize,
    /// The last report of the process that serves them.
    pub report: ServicesReport,
}

/// A Service for `/edged/services` and `edged services`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ServiceInfo<'a> {
    pub metadata: ServiceName<'a>,
    /// `ClusterIP`, `Headless` or `ExternalName`.
    pub r#type: &'static str,
    /// The address, or the name that it stands for; empty: headless.
    pub address: String,
    /// `80/TCP`, `80:30080/TCP`
    pub ports: Vec<String>,
    /// `10.88.0.5:8080`
    pub endpoints: Vec<String>,
}

/// Where a Service is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct ServiceName<'a> {
    pub namespace: &'a str,
    pub name: &'a str,
}

impl ServiceEntry {
    /// What the API shows.
    pub fn info(&self) -> ServiceInfo<'_> {
        let (r#type, address) = match &self.kind {
            EntryKind::Cluster(ip) => ("ClusterIP", ip.to_string()),
            EntryKind::Headless => ("Headless", String::new()),
            EntryKind::External(name) => ("ExternalName", name.to_string()),
        };
        let port = |port: &EntryPort| {
            let protocol = port.protocol.name().to_uppercase();
            match port.node_port {
                0 => format!("{}/{protocol}", port.port),
                node => format!("{}:{node}/{protocol}", port.port),
            }
        };
        let endpoint = |endpoint: &Endpoint| {
            let ports = endpoint.ports.iter().filter(|port| **port > 0);
            let ports: Vec<String> = ports.map(ToString::to_string).collect();
            format!("{}:{}", endpoint.ip, ports.join(","))
        };
        ServiceInfo {
            metadata: ServiceName { namespace: &self.namespace, name: &self.name },
            r#type,
            address,
            ports: self.ports.iter().map(port).collect(),
            endpoints: self.endpoints.iter().map(endpoint).collect(),
        }
    }
}
