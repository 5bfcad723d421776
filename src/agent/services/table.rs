//! The table of Services out of their objects and the pods of this node.

use core::net::Ipv4Addr;
use std::sync::Arc;

use super::Table;
use crate::agent::Pods;
use crate::agent::objects::ObjectsOf;
use crate::agent::pod::{self, Phase, Wanted};
use crate::limits::{AFFINITY_DEFAULT_S, SERVICE_ENDPOINTS_MAX, SERVICE_PORTS_MAX, SERVICES_MAX};
use crate::model::map::{Map, Set};
use crate::model::names::{is_label, is_subdomain};
use crate::model::pod::{Pod, PortProtocol};
use crate::model::probe::Port;
use crate::model::service::{
    Endpoint, EndpointPort, Endpoints, EntryKind, EntryPort, OTHER_PROXY, Protocol, Service,
    ServiceEntry, ServicePort, ServiceType, SessionAffinity,
};
use crate::model::settings::ServiceSettings;
use crate::model::status::ConditionKind;

/// A pod of this node as an endpoint.
#[derive(Clone, Copy, Debug)]
pub(super) struct Backend<'a> {
    pub(super) pod: &'a Pod,
    pub(super) ip: Ipv4Addr,
    pub(super) ready: bool,
    pub(super) terminating: bool,
}

/// The pods of this node that have an address.
pub(super) fn backends(pods: &Pods) -> Vec<Backend<'_>> {
    pods.iter().filter_map(backend).collect()
}

/// The table, and how many Services did not fit. An entry that is as it was is that of `old`.
pub(super) fn of(
    objects: ObjectsOf<'_>,
    backends: &[Backend<'_>],
    settings: &ServiceSettings,
    node_name: &str,
    old: &[Arc<ServiceEntry>],
) -> (Table, usize) {
    let mut by_namespace: Map<&str, Vec<&Backend<'_>>> = Map::new();
    for backend in backends {
        by_namespace.entry(&backend.pod.metadata.namespace).or_default().push(backend);
    }
    // One of the folder stands over one of the cloud.
    let both = objects.cloud.services().chain(objects.folder.services());
    let by_name: Map<(&str, &str), &Service> =
        both.map(|it| ((&*it.metadata.namespace, &*it.metadata.name), it)).collect();
    let served = |service: &&Service| {
        let metadata = &service.metadata;
        let is_named = is_label(&metadata.name) && is_label(&metadata.namespace);
        is_named && !metadata.labels.contains_key(OTHER_PROXY)
    };
    let all: Vec<&Service> = by_name.into_values().filter(served).collect();
    let mut taken: Set<Ipv4Addr> = all.iter().filter_map(|it| cluster_ip(it)).collect();
    let mut table = Table::new();
    for service in all.iter().take(SERVICES_MAX) {
        let metadata = &service.metadata;
        let Some(kind) = kind(service, settings, &mut taken) else { continue };
        let ports = ports(service, settings.node_ports);
        let of_namespace = by_namespace.get(&*metadata.namespace).map_or(&[][..], Vec::as_slice);
        let mut endpoints = if service.spec.kind == ServiceType::ExternalName {
            Vec::new()
        } else if service.spec.selector.is_empty() {
            let (namespace, name) = (&metadata.namespace, &metadata.name);
            let object = objects.folder.endpoints(namespace, name);
            let object = object.or_else(|| objects.cloud.endpoints(namespace, name));
            object.map_or_else(Vec::new, |object| written(object, &ports, node_name))
        } else {
            chosen(service, of_namespace)
        };
        endpoints.sort();
        endpoints.dedup();
        endpoints.truncate(SERVICE_ENDPOINTS_MAX);
        let entry = ServiceEntry {
            namespace: metadata.namespace.as_str().into(),
            name: metadata.name.as_str().into(),
            kind,
            ports,
            endpoints,
            affinity_s: affinity_s(service),
            of_pods: !service.spec.selector.is_empty(),
        };
        table.push(reused(entry, old));
    }
    (table, all.len().saturating_sub(SERVICES_MAX))
}

fn reused(entry: ServiceEntry, old: &[Arc<ServiceEntry>]) -> Arc<ServiceEntry> {
    let key = (&entry.namespace, &entry.name);
    let found = old.binary_search_by(|it| (&it.namespace, &it.name).cmp(&key)).ok();
    match found.map(|at| &old[at]).filter(|it| ***it == entry) {
        Some(same) => same.clone(),
        None => Arc::new(entry),
    }
}

fn backend(pod: &pod::Pod) -> Option<Backend<'_>> {
    let api = pod.api();
    let status = &api.status;
    if status.phase.is_terminal() || pod.phase() >= Phase::Terminated {
        return None;
    }
    let ip = status.pod_ips.iter().find_map(|it| it.ip.parse().ok())?;
    let is_ready = status.conditions.iter().any(|it| it.kind == ConditionKind::Ready && it.status);
    let terminating = pod.phase() > Phase::Syncing
        || *pod.wanted() != Wanted::Yes
        || api.metadata.deletion_timestamp.is_some();
    Some(Backend { pod: api, ip, ready: is_ready, terminating })
}

/// The address that its object names.
fn cluster_ip(service: &Service) -> Option<Ipv4Addr> {
    let spec = &service.spec;
    let all = [&spec.cluster_ip].into_iter().chain(&spec.cluster_ips);
    all.filter_map(|ip| ip.parse().ok()).find(|ip| is_usable(*ip))
}

/// Whether it may be an address of the link: nothing that this machine or its network already has a
/// use for.
fn is_usable(ip: Ipv4Addr) -> bool {
    !(ip.is_loopback()
        || ip.is_unspecified()
        || ip.is_multicast()
        || ip.is_broadcast()
        || ip.is_link_local())
}

/// `None`: it has neither an IPv4 address nor endpoints of its own.
fn kind(
    service: &Service,
    settings: &ServiceSettings,
    taken: &mut Set<Ipv4Addr>,
) -> Option<EntryKind> {
    let spec = &service.spec;
    if spec.kind == ServiceType::ExternalName {
        let name = spec.external_name.trim_end_matches('.').to_ascii_lowercase();
        return is_subdomain(&name).then(|| EntryKind::External(name.into()));
    }
    if spec.cluster_ip == "None" {
        return Some(EntryKind::Headless);
    }
    if let Some(ip) = cluster_ip(service) {
        return Some(EntryKind::Cluster(ip));
    }
    // An object of a manifest folder, where no API server has given it an address.
    if !spec.cluster_ip.is_empty() {
        return None;
    }
    let metadata = &service.metadata;
    let ip = assigned(&metadata.namespace, &metadata.name, settings.range, taken)?;
    taken.insert(ip);
    Some(EntryKind::Cluster(ip))
}

/// An address out of the range that follows from the name: the same after each restart, and on each
/// node with these manifests.
fn assigned(
    namespace: &str,
    name: &str,
    (first, bits): (Ipv4Addr, u8),
    taken: &Set<Ipv4Addr>,
) -> Option<Ipv4Addr> {
    let hosts = (1_u32 << (32 - u32::from(bits.clamp(8, 30)))) - 2;
    // FNV-1a.
    let hash = [namespace.as_bytes(), b"/", name.as_bytes()]
        .into_iter()
        .flatten()
        .fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193));
    let begin = hash % hosts;
    let at = |step: u32| Ipv4Addr::from(u32::from(first) + 1 + (begin + step) % hosts);
    (0..hosts.min(2 * SERVICES_MAX as u32)).map(at).find(|ip| !taken.contains(ip))
}

fn affinity_s(service: &Service) -> u32 {
    if service.spec.session_affinity == SessionAffinity::None {
        return 0;
    }
    let given = service.spec.session_affinity_config.client_ip.timeout_seconds;
    u32::try_from(given).ok().filter(|s| *s > 0).unwrap_or(AFFINITY_DEFAULT_S)
}

fn protocol(of: PortProtocol) -> Option<Protocol> {
    match of {
        PortProtocol::Tcp => Some(Protocol::Tcp),
        PortProtocol::Udp => Some(Protocol::Udp),
        PortProtocol::Sctp => None,
    }
}

/// The ports that are served.
fn served(service: &Service) -> impl Iterator<Item = (&ServicePort, Protocol)> {
    let is_port =
        |port: &&ServicePort| port.port > 0 && (port.name.is_empty() || is_label(&port.name));
    let all = service.spec.ports.iter().filter(is_port);
    all.filter_map(|port| Some((port, protocol(port.protocol)?))).take(SERVICE_PORTS_MAX)
}

fn ports(service: &Service, node_ports: bool) -> Vec<EntryPort> {
    let of_node = node_ports
        && matches!(service.spec.kind, ServiceType::NodePort | ServiceType::LoadBalancer);
    let port = |(port, protocol): (&ServicePort, Protocol)| EntryPort {
        name: port.name.as_str().into(),
        protocol,
        port: port.port,
        node_port: if of_node { port.node_port } else { 0 },
    };
    served(service).map(port).collect()
}

/// The pods that its selector chooses: those that are ready, else those that end and still serve.
fn chosen(service: &Service, of_namespace: &[&Backend<'_>]) -> Vec<Endpoint> {
    let spec = &service.spec;
    let fits = |backend: &&&Backend<'_>| {
        let labels = &backend.pod.metadata.labels;
        spec.selector.iter().all(|(key, value)| labels.get(key) == Some(value))
            && (backend.ready || spec.publish_not_ready_addresses)
    };
    let of = |terminating: bool| -> Vec<Endpoint> {
        let all = of_namespace.iter().filter(fits).filter(|it| it.terminating == terminating);
        all.map(|backend| endpoint(service, backend)).collect()
    };
    let lasting = of(false);
    if lasting.is_empty() { of(true) } else { lasting }
}

fn endpoint(service: &Service, backend: &Backend<'_>) -> Endpoint {
    let spec = &backend.pod.spec;
    let is_named = spec.subdomain.as_deref() == Some(&*service.metadata.name);
    let hostname = spec.hostname.as_deref().filter(|name| is_named && is_label(name));
    let hostname = hostname.unwrap_or_default();
    let ports = served(service).map(|(port, protocol)| target(port, protocol, backend.pod));
    Endpoint { ip: backend.ip, hostname: hostname.into(), ports: ports.collect() }
}

/// The pod's port; 0: it has none of this name.
fn target(port: &ServicePort, protocol: Protocol, pod: &Pod) -> u16 {
    let name = match &port.target_port {
        None | Some(Port::Number(0)) => return port.port,
        Some(Port::Number(number)) => return u16::try_from(*number).unwrap_or(0),
        Some(Port::Name(name)) => name,
    };
    let all = pod.spec.containers.iter().flat_map(|container| &container.ports);
    let mut named =
        all.filter(|it| it.name == *name && self::protocol(it.protocol) == Some(protocol));
    named.next().map_or(0, |it| it.container_port)
}

/// What an Endpoints object names, without the pods of other nodes.
fn written(object: &Endpoints, ports: &[EntryPort], node_name: &str) -> Vec<Endpoint> {
    let mut found = Vec::new();
    for subset in &object.subsets {
        let number = |port: &EntryPort| {
            let same = |it: &&EndpointPort| {
                *it.name == *port.name && protocol(it.protocol) == Some(port.protocol)
            };
            subset.ports.iter().find(same).map_or(0, |it| it.port)
        };
        let numbers: Vec<u16> = ports.iter().map(number).collect();
        for address in &subset.addresses {
            let is_reached = address.node_name.is_empty() || address.node_name == node_name;
            let Some(ip) = address.ip.parse().ok().filter(|_| is_reached) else { continue };
            let hostname = Some(&*address.hostname).filter(|name| is_label(name));
            let hostname = hostname.unwrap_or_default().into();
            found.push(Endpoint { ip, hostname, ports: numbers.clone() });
        }
    }
    found
}
