//! The environment variables of Services (`enableServiceLinks`), as a kubelet has them.
//!
//! Of the Services of the pod's namespace that have a ClusterIP and are known when the container is
//! created. Not of `kubernetes`: `KUBERNETES_PORT` tells programs of EdgeMesh that they are in the
//! cloud, and that Service leads to no endpoint of this node.

use std::sync::Arc;

use crate::model::service::{EntryKind, ServiceEntry};

/// The Service of the API server, in namespace `default`.
const API_SERVER: &str = "kubernetes";

/// Name and value of each, for a pod of this namespace.
pub fn of(table: &[Arc<ServiceEntry>], namespace: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for service in table.iter().filter(|it| *it.namespace == *namespace) {
        let EntryKind::Cluster(ip) = &service.kind else { continue };
        if *service.name == *API_SERVER {
            continue;
        }
        let prefix = upper(&service.name);
        let mut set = |end: &str, value: String| found.push((format!("{prefix}_{end}"), value));
        set("SERVICE_HOST", ip.to_string());
        for (at, port) in service.ports.iter().enumerate() {
            let (number, protocol) = (port.port, port.protocol.name());
            let url = format!("{protocol}://{ip}:{number}");
            if at == 0 {
                set("SERVICE_PORT", number.to_string());
                set("PORT", url.clone());
            }
            if !port.name.is_empty() {
                set(&format!("SERVICE_PORT_{}", upper(&port.name)), number.to_string());
            }
            let of_port = format!("PORT_{number}_{}", protocol.to_uppercase());
            set(&of_port, url);
            set(&format!("{of_port}_PROTO"), protocol.to_owned());
            set(&format!("{of_port}_PORT"), number.to_string());
            set(&format!("{of_port}_ADDR"), ip.to_string());
        }
    }
    found
}

fn upper(name: &str) -> String {
    name.to_ascii_uppercase().replace('-', "_")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::service::{EntryPort, Protocol};

    fn entry(namespace: &str, name: &str, kind: EntryKind) -> Arc<ServiceEntry> {
        let port = |name: &str, port, protocol| EntryPort {
            name: name.into(),
            protocol,
            port,
            node_port: 0,
        };
        Arc::new(ServiceEntry {
            namespace: namespace.into(),
            name: name.into(),
            kind,
            ports: vec![port("http", 80, Protocol::Tcp), port("", 53, Protocol::Udp)],
            endpoints: Vec::new(),
            affinity_s: 0,
            of_pods: true,
        })
    }

    #[test]
    fn the_variables_are_those_of_a_kubelet() {
        let cluster = || EntryKind::Cluster([10, 96, 0, 7].into());
        let table = [
            entry("default", "kubernetes", cluster()),
            entry("ns", "head", EntryKind::Headless),
            entry("ns", "my-web", cluster()),
            entry("other", "far", cluster()),
        ];
        let all: Vec<String> =
            of(&table, "ns").into_iter().map(|(name, value)| format!("{name}={value}")).collect();
        let expected = [
            "MY_WEB_SERVICE_HOST=10.96.0.7",
            "MY_WEB_SERVICE_PORT=80",
            "MY_WEB_PORT=tcp://10.96.0.7:80",
            "MY_WEB_SERVICE_PORT_HTTP=80",
            "MY_WEB_PORT_80_TCP=tcp://10.96.0.7:80",
            "MY_WEB_PORT_80_TCP_PROTO=tcp",
            "MY_WEB_PORT_80_TCP_PORT=80",
            "MY_WEB_PORT_80_TCP_ADDR=10.96.0.7",
            "MY_WEB_PORT_53_UDP=udp://10.96.0.7:53",
            "MY_WEB_PORT_53_UDP_PROTO=udp",
            "MY_WEB_PORT_53_UDP_PORT=53",
            "MY_WEB_PORT_53_UDP_ADDR=10.96.0.7",
        ];
        assert_eq!(all, expected);
        // Programs of EdgeMesh take this for the cloud.
        let cluster = of(&table, "default");
        assert!(cluster.iter().all(|(name, _)| name != "KUBERNETES_PORT"), "{cluster:?}");
    }
}
