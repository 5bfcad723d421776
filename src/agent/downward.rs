//! The downward API: fields and resources of a pod, as variables and in files (spec section 3.5).

use std::fmt;

use crate::agent::Config;
use crate::agent::amounts::Amounts;
use crate::model::pod::{Container, Pod, ResourceFieldRef};
use crate::model::quantity::Quantity;

/// The pod and its node.
#[derive(Clone, Copy, Debug)]
pub struct Downward<'a> {
    /// The pod.
    pub pod: &'a Pod,
    /// The node's addresses, the primary first.
    pub host_ips: &'a [String],
    /// The pod's addresses, the primary first; the host's addresses with host networking.
    pub pod_ips: &'a [String],
    /// For the limits of containers without one: all that the node gives to pods.
    pub config: &'a Config,
}

impl Downward<'_> {
    /// The text of a field; `None`: there is no such field.
    pub fn field(&self, path: &str) -> Option<String> {
        let metadata = &self.pod.metadata;
        let first = |ips: &[String]| ips.first().cloned().unwrap_or_default();
        if let Some((map, key)) = subscript(path) {
            let map = match map {
                "metadata.labels" => &metadata.labels,
                "metadata.annotations" => &metadata.annotations,
                _ => return None,
            };
            return Some(map.get(key).cloned().unwrap_or_default());
        }
        Some(match path {
            "metadata.name" => metadata.name.clone(),
            "metadata.namespace" => metadata.namespace.clone(),
            "metadata.uid" => metadata.uid.clone(),
            "spec.nodeName" => self.pod.spec.node_name.clone().unwrap_or_default(),
            "spec.serviceAccountName" => {
                let name = self.pod.spec.rest.get("serviceAccountName");
                name.and_then(|name| name.as_str()).unwrap_or_default().to_owned()
            }
            "status.hostIP" => first(self.host_ips),
            "status.hostIPs" => self.host_ips.join(","),
            "status.podIP" => first(self.pod_ips),
            "status.podIPs" => self.pod_ips.join(","),
            _ => return None,
        })
    }

    /// A container's request or limit in units of the divisor, rounded up. `own` is used if no
    /// container is named.
    pub fn resource(
        &self,
        from: &ResourceFieldRef,
        own: &Container,
    ) -> Result<String, ResourceError> {
        let container = if from.container_name.is_empty() {
            own
        } else {
            let named = |container: &&Container| *container.name == *from.container_name;
            let found = self.pod.spec.all_containers().find(named);
            found.ok_or_else(|| ResourceError::NoContainer(from.container_name.clone()))?
        };
        let unsupported = || ResourceError::Unsupported(from.resource.clone());
        let (kind, name) = from.resource.split_once('.').ok_or_else(unsupported)?;
        let known = ["cpu", "memory", "ephemeral-storage"].contains(&name);
        if !known && !name.starts_with("hugepages-") {
            return Err(unsupported());
        }
        let limit = container.resources.limits.get(name);
        let milli = match kind {
            "limits" => limit.map(Quantity::milli).filter(|milli| *milli > 0).or(self.whole(name)),
            "requests" => container.resources.requests.get(name).or(limit).map(Quantity::milli),
            _ => return Err(unsupported()),
        };
        let divisor = from.divisor.as_ref().map(Quantity::milli).filter(|milli| *milli > 0);
        let (value, divisor) =
            (i128::from(milli.unwrap_or(0)), i128::from(divisor.unwrap_or(1000)));
        Ok((value / divisor + i128::from(value % divisor > 0)).to_string())
    }

    /// The allocatable amount of a resource, in thousandths.
    fn whole(&self, name: &str) -> Option<i64> {
        let bytes = |bytes: u64| i64::try_from(bytes).ok()?.checked_mul(1000);
        let amounts = Amounts::allocatable(self.config);
        match name {
            "cpu" => i64::try_from(amounts.cpu_milli).ok(),
            "memory" => bytes(amounts.memory_bytes),
            "ephemeral-storage" => bytes(amounts.storage_bytes),
            _ => None,
        }
    }
}

/// Why a resource field has no value; in the kubelet's words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ResourceError {
    /// The pod has no container of this name.
    NoContainer(String),
    /// The field names no request or limit.
    Unsupported(String),
}

impl fmt::Display for ResourceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoContainer(name) => write!(f, "container {name} not found"),
            Self::Unsupported(field) => write!(f, "unsupported container resource : {field}"),
        }
    }
}

/// `metadata.labels['app']` → map and key.
pub fn subscript(path: &str) -> Option<(&str, &str)> {
    let (map, key) = path.strip_suffix(']')?.split_once('[')?;
    let quoted = |quote: char| key.strip_prefix(quote)?.strip_suffix(quote);
    Some((map, quoted('\'').or_else(|| quoted('"'))?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::Machine;
    use crate::model::housekeeping::{Signal, Threshold};

    fn pod() -> Pod {
        let json = r#"{"metadata":{"name":"p","namespace":"ns","uid":"u",
                "labels":{"app":"web"},"annotations":{"a.b/c":"d"}},
            "spec":{"nodeName":"gw","serviceAccountName":"sa","containers":[
                {"name":"a","resources":{"limits":{"cpu":"1500m","memory":"64Mi"}}},
                {"name":"b","resources":{"requests":{"cpu":"250m"}}},
                {"name":"z","resources":{"limits":{"cpu":"0"}}}]}}"#;
        serde_json::from_str(json).expect("a pod")
    }

    fn with<T>(pod: &Pod, ask: impl FnOnce(&Downward<'_>) -> T) -> T {
        let ips = |all: &[&str]| -> Vec<String> { all.iter().map(|&ip| ip.to_owned()).collect() };
        let (host_ips, pod_ips) = (ips(&["192.0.2.1", "fd00::1"]), ips(&["10.0.0.5"]));
        let machine = Machine {
            memory_bytes: (1 << 30) + (100 << 20),
            cpu_milli: 2000,
            storage_bytes: 1 << 33,
            ..Machine::default()
        };
        let mut config = Config { machine, ..Config::default() };
        config.housekeeping.eviction.hard = [(Signal::Memory, Threshold::Amount(100 << 20))].into();
        let (host_ips, pod_ips, config) = (&host_ips[..], &pod_ips[..], &config);
        ask(&Downward { pod, host_ips, pod_ips, config })
    }

    #[test]
    fn fields_are_found_by_their_path() {
        for (path, want) in [
            ("metadata.name", Some("p")),
            ("metadata.namespace", Some("ns")),
            ("metadata.uid", Some("u")),
            ("metadata.labels['app']", Some("web")),
            ("metadata.labels[\"app\"]", Some("web")),
            ("metadata.labels['none']", Some("")),
            ("metadata.annotations['a.b/c']", Some("d")),
            ("spec.nodeName", Some("gw")),
            ("spec.serviceAccountName", Some("sa")),
            ("status.hostIP", Some("192.0.2.1")),
            ("status.hostIPs", Some("192.0.2.1,fd00::1")),
            ("status.podIP", Some("10.0.0.5")),
            ("status.podIPs", Some("10.0.0.5")),
            ("metadata.labels", None),
            ("metadata.finalizers['a']", None),
            ("metadata.labels[app]", None),
            ("spec.hostname", None),
        ] {
            assert_eq!(with(&pod(), |it| it.field(path)).as_deref(), want, "{path}");
        }
    }

    #[test]
    fn resources_are_rounded_up_in_units_of_the_divisor() {
        let pod = pod();
        for (container, resource, divisor, want) in [
            ("", "limits.cpu", "", Ok("2")),
            ("", "limits.cpu", "1m", Ok("1500")),
            ("", "limits.cpu", "0", Ok("2")),
            ("", "requests.cpu", "1m", Ok("1500")),
            ("", "limits.memory", "1Mi", Ok("64")),
            ("", "limits.memory", "", Ok("67108864")),
            ("b", "limits.cpu", "1m", Ok("2000")),
            // No limit is written as none or as 0.
            ("z", "limits.cpu", "1m", Ok("2000")),
            ("b", "limits.memory", "1Gi", Ok("1")),
            ("b", "limits.ephemeral-storage", "1Gi", Ok("8")),
            ("b", "requests.cpu", "", Ok("1")),
            ("b", "requests.memory", "", Ok("0")),
            ("b", "limits.hugepages-2Mi", "", Ok("0")),
            ("c", "limits.cpu", "", Err("container c not found")),
            ("", "limits.gpu", "", Err("unsupported container resource : limits.gpu")),
            ("", "cpu", "", Err("unsupported container resource : cpu")),
        ] {
            let from = ResourceFieldRef {
                container_name: container.to_owned(),
                resource: resource.to_owned(),
                divisor: (!divisor.is_empty()).then(|| divisor.parse().expect("a quantity")),
                ..ResourceFieldRef::default()
            };
            let got = with(&pod, |it| it.resource(&from, &pod.spec.containers[0]));
            let got = got.map_err(|why| why.to_string());
            let want = want.map(str::to_owned).map_err(str::to_owned);
            assert_eq!(got, want, "{container} {resource} {divisor}");
        }
    }
}
