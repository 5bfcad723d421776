//! Kubernetes' own validation of the typed fields, in its words.
//!
//! For pods from a cluster, the API server has done this; for a manifest folder nobody has. The
//! names matter most: they become directories, and part of every path below them.

mod pod;
mod resources;
mod security;

use core::net::IpAddr;
use std::collections::{BTreeMap, BTreeSet};

use super::Findings;
pub(super) use crate::model::names::{cut, is_dns_part, is_label, is_subdomain};
use crate::model::pod::{Container, ContainerPort, Pod, PodSpec, PortProtocol, RestartPolicy};

const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric \
    characters, '-' or '.', and must start and end with an alphanumeric character, and be at most \
    253 characters long";
pub(super) const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric \
    characters or '-', and must start and end with an alphanumeric character, and be at most 63 \
    characters long";
const UID: &str = "must consist of lower case alphanumeric characters or '-', and be at most 64 \
    characters long";

const ENV_NAME: &str = "a valid environment variable name must consist only of printable ASCII \
    characters other than '='";

/// Ports of the host that the pod's containers use.
pub(super) type HostPorts<'a> = BTreeSet<(u16, PortProtocol, &'a str)>;

impl Findings {
    pub(super) fn pod(&mut self, pod: &Pod) {
        self.metadata(pod);
        self.spec(pod);
        self.names(&pod.spec);
        self.whole_resources(pod);
        self.pod_security(pod);
    }

    fn metadata(&mut self, pod: &Pod) {
        let metadata = &pod.metadata;
        if metadata.name.is_empty() {
            self.problem("metadata.name", "Required value: name is required");
        } else if !is_subdomain(&metadata.name) {
            self.invalid("metadata.name", cut(&metadata.name), SUBDOMAIN);
        }
        if !metadata.namespace.is_empty() && !is_label(&metadata.namespace) {
            self.invalid("metadata.namespace", cut(&metadata.namespace), LABEL);
        }
        let uid_holds = metadata.uid.len() <= 64
            && metadata.uid.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'z' | b'-'));
        if !uid_holds {
            self.invalid("metadata.uid", cut(&metadata.uid), UID);
        }
    }

    fn spec(&mut self, pod: &Pod) {
        let spec = &pod.spec;
        if let Some(seconds) = spec.termination_grace_period_seconds.filter(|&s| s < 0) {
            let path = "spec.terminationGracePeriodSeconds";
            self.invalid(path, seconds, "must be greater than or equal to 0");
        }
        let in_range = 1..=i64::from(i32::MAX);
        if let Some(seconds) = spec.active_deadline_seconds.filter(|s| !in_range.contains(s)) {
            let expected = "must be between 1 and 2147483647, inclusive";
            self.invalid("spec.activeDeadlineSeconds", seconds, expected);
        }
        if let Some(hostname) = spec.hostname.as_deref().filter(|h| !h.is_empty() && !is_label(h)) {
            self.invalid("spec.hostname", cut(hostname), LABEL);
        }
        if spec.containers.is_empty() {
            self.problem("spec.containers", "Required value");
        }
    }

    pub(super) fn init_container<'a>(
        &mut self,
        path: &str,
        container: &'a Container,
        spec: &PodSpec,
        names: &mut BTreeSet<&'a str>,
    ) {
        self.container(path, container, names);
        if let Some(policy) = container.restart_policy.filter(|p| *p != RestartPolicy::Always) {
            let problem =
                format!("Unsupported value: \"{policy:?}\": supported values: \"Always\"");
            self.problem(&format!("{path}.restartPolicy"), &problem);
        }
        self.ports(path, &container.ports, spec.host_network, &mut BTreeSet::new());
        if container.restart_policy.is_none() {
            self.no_probes(path, container);
        } else {
            self.probes(path, container);
        }
    }

    pub(super) fn main_container<'a>(
        &mut self,
        path: &str,
        container: &'a Container,
        spec: &PodSpec,
        names: &mut BTreeSet<&'a str>,
        host_ports: &mut HostPorts<'a>,
    ) {
        self.container(path, container, names);
        if container.restart_policy.is_some() {
            let problem = "Forbidden: may not be set for non-init containers";
            self.problem(&format!("{path}.restartPolicy"), problem);
        }
        self.ports(path, &container.ports, spec.host_network, host_ports);
        self.probes(path, container);
    }

    fn container<'a>(
        &mut self,
        path: &str,
        container: &'a Container,
        names: &mut BTreeSet<&'a str>,
    ) {
        let name_path = format!("{path}.name");
        let name = &*container.name;
        if name.is_empty() {
            self.problem(&name_path, "Required value");
        } else if !is_label(name) {
            self.invalid(&name_path, cut(name), LABEL);
        } else if !names.insert(name) {
            self.problem(&name_path, &format!("Duplicate value: {name:?}"));
        }
        let image = &*container.image;
        let image_path = format!("{path}.image");
        if image.is_empty() {
            self.problem(&image_path, "Required value");
        } else if image.trim() != image {
            self.invalid(&image_path, cut(image), "must not have leading or trailing whitespace");
        }
        for (index, env) in container.env.iter().enumerate() {
            let path = format!("{path}.env[{index}].name");
            if env.name.is_empty() {
                self.problem(&path, "Required value");
            } else if !env.name.bytes().all(|b| matches!(b, b' '..=b'~') && b != b'=') {
                self.invalid(&path, cut(&env.name), ENV_NAME);
            }
        }
        self.resources(&format!("{path}.resources"), &container.resources);
        self.variables(path, container);
        self.container_security(path, container);
    }

    fn ports<'a>(
        &mut self,
        path: &str,
        ports: &'a [ContainerPort],
        host_network: bool,
        host_ports: &mut HostPorts<'a>,
    ) {
        let mut names = BTreeMap::new();
        for (index, port) in ports.iter().enumerate() {
            let path = format!("{path}.ports[{index}]");
            if port.container_port == 0 {
                self.problem(&format!("{path}.containerPort"), "Required value");
            }
            let clashes = port.host_port != port.container_port && port.host_port != 0;
            if host_network && clashes {
                let expected = "must match `containerPort` when `hostNetwork` is true";
                self.invalid(&format!("{path}.hostPort"), port.host_port, expected);
            }
            let host_port = (port.host_port, port.protocol, port.host_ip.as_str());
            if port.host_port != 0 && !host_ports.insert(host_port) {
                let problem = format!("Duplicate value: {}", port.host_port);
                self.problem(&format!("{path}.hostPort"), &problem);
            }
            if !port.host_ip.is_empty() && port.host_ip.parse::<IpAddr>().is_err() {
                let expected = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
                self.invalid(&format!("{path}.hostIP"), cut(&port.host_ip), expected);
            }
            if port.name.is_empty() {
                continue;
            }
            let path = format!("{path}.name");
            if !is_port_name(&port.name) {
                let expected = "must contain only alpha-numeric characters (a-z, 0-9) and single \
                                hyphens, at least one letter, and at most 15 characters";
                self.invalid(&path, cut(&port.name), expected);
            } else if names.insert(&port.name, index).is_some() {
                self.problem(&path, &format!("Duplicate value: {:?}", port.name));
            }
        }
    }
}

/// RFC 6335, in lower case.
fn is_port_name(name: &str) -> bool {
    name.len() <= 15
        && is_dns_part(name)
        && !name.contains("--")
        && name.bytes().any(|b| b.is_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use crate::agent::admit::tests::{pod, problems};

    fn check(json: &str, want: &[&str]) {
        let got = problems(&pod(json));
        assert_eq!(got.len(), want.len(), "{json}\n{got:#?}");
        for (got, want) in got.iter().zip(want) {
            assert!(got.starts_with(want), "{json}\ngot  {got}\nwant {want}");
        }
    }

    fn with_metadata(metadata: &str) -> String {
        format!(
            r#"{{"metadata": {metadata},
                 "spec": {{"containers": [{{"name": "c", "image": "i"}}]}}}}"#
        )
    }

    #[test]
    fn names_that_become_paths_are_checked() {
        let long = "a".repeat(254);
        for (metadata, want) in [
            (r#"{"name": "a.b-c.9", "namespace": "kube-system", "uid": "0-9a-z"}"#.to_owned(), ""),
            (format!(r#"{{"name": "{}"}}"#, &long[1..]), ""),
            (format!(r#"{{"name": "{long}"}}"#), "metadata.name: Invalid value: \"aaa"),
            (r#"{"name": ""}"#.to_owned(), "metadata.name: Required value"),
            (r#"{"name": "Web"}"#.to_owned(), "metadata.name: Invalid value: \"Web\": a lowercase"),
            (r#"{"name": ".."}"#.to_owned(), "metadata.name: Invalid value: \"..\""),
            (r#"{"name": "a/b"}"#.to_owned(), "metadata.name: Invalid value"),
            (r#"{"name": "-a"}"#.to_owned(), "metadata.name: Invalid value"),
            (r#"{"name": "a."}"#.to_owned(), "metadata.name: Invalid value"),
            (r#"{"name": "a_b"}"#.to_owned(), "metadata.name: Invalid value"),
            (r#"{"name": "é"}"#.to_owned(), "metadata.name: Invalid value"),
            (
                r#"{"name": "a", "namespace": "a.b"}"#.to_owned(),
                "metadata.namespace: Invalid value: \"a.b\"",
            ),
            (
                format!(r#"{{"name": "a", "namespace": "{}"}}"#, &long[..64]),
                "metadata.namespace: Invalid value",
            ),
            (r#"{"name": "a", "uid": "../x"}"#.to_owned(), "metadata.uid: Invalid value: \"../x\""),
            (r#"{"name": "a", "uid": "a_b"}"#.to_owned(), "metadata.uid: Invalid value"),
            (
                format!(r#"{{"name": "a", "uid": "{}"}}"#, &long[..65]),
                "metadata.uid: Invalid value",
            ),
        ] {
            let want = [want];
            check(&with_metadata(&metadata), if want == [""] { &[] } else { &want });
        }
    }

    #[test]
    fn what_is_wrong_with_a_spec_is_named() {
        for (spec, want) in [
            (r#""containers": []"#, "spec.containers: Required value"),
            (
                r#""terminationGracePeriodSeconds": -1"#,
                "spec.terminationGracePeriodSeconds: Invalid value: -1: must be greater than or",
            ),
            (r#""activeDeadlineSeconds": 0"#, "spec.activeDeadlineSeconds: Invalid value: 0: must"),
            (
                r#""activeDeadlineSeconds": 2147483648"#,
                "spec.activeDeadlineSeconds: Invalid value: 2147483648",
            ),
            (r#""hostname": "a.b""#, "spec.hostname: Invalid value: \"a.b\""),
            (r#""hostname": "", "terminationGracePeriodSeconds": 0"#, ""),
            (
                r#""initContainers": [{"name": "c", "image": "i"}]"#,
                "spec.containers[0].name: Duplicate value: \"c\"",
            ),
            (r#""initContainers": [{"name": "s", "image": "i", "restartPolicy": "Always"}]"#, ""),
            (
                r#""initContainers": [{"name": "s", "image": "i", "restartPolicy": "Never"}]"#,
                "spec.initContainers[0].restartPolicy: Unsupported value: \"Never\": supported \
                 values: \"Always\"",
            ),
            (
                r#""hostNetwork": true, "initContainers":
                   [{"name": "s", "image": "i", "ports": [{"containerPort": 1, "hostPort": 2}]}]"#,
                "spec.initContainers[0].ports[0].hostPort: Invalid value: 2: must match",
            ),
        ] {
            let rest = if spec.contains("\"containers\"") {
                spec.to_owned()
            } else {
                format!(r#"{spec}, "containers": [{{"name": "c", "image": "i"}}]"#)
            };
            let json = format!(r#"{{"metadata": {{"name": "a"}}, "spec": {{{rest}}}}}"#);
            let want = [want];
            check(&json, if want == [""] { &[] } else { &want });
        }
    }

    #[test]
    fn what_is_wrong_with_a_container_is_named() {
        for (fields, want) in [
            (r#""image": "i""#, "name: Required value"),
            (r#""name": "Web", "image": "i""#, "name: Invalid value: \"Web\": a lowercase"),
            (r#""name": "a.b", "image": "i""#, "name: Invalid value"),
            (r#""name": "c""#, "image: Required value"),
            (r#""name": "c", "image": " i""#, "image: Invalid value: \" i\": must not have"),
            (
                r#""name": "c", "image": "i", "restartPolicy": "Always""#,
                "restartPolicy: Forbidden: may not be set for non-init containers",
            ),
            (r#""name": "c", "image": "i", "env": [{"name": ""}]"#, "env[0].name: Required value"),
            (
                r#""name": "c", "image": "i", "env": [{"name": "A=B"}]"#,
                "env[0].name: Invalid value: \"A=B\": a valid environment variable name",
            ),
            (r#""name": "c", "image": "i", "env": [{"name": "é"}]"#, "env[0].name: Invalid value"),
            (r#""name": "c", "image": "i", "env": [{"name": "a b.c-1"}]"#, ""),
            (
                r#""name": "c", "image": "i", "ports": [{}]"#,
                "ports[0].containerPort: Required value",
            ),
            (
                r#""name": "c", "image": "i", "ports":
                   [{"containerPort": 1, "hostPort": 2}, {"containerPort": 3, "hostPort": 2}]"#,
                "ports[1].hostPort: Duplicate value: 2",
            ),
            (
                r#""name": "c", "image": "i", "ports": [{"containerPort": 1, "hostPort": 2},
                   {"containerPort": 1, "hostPort": 2, "protocol": "UDP"}]"#,
                "",
            ),
            (
                r#""name": "c", "image": "i", "ports": [{"containerPort": 1, "hostIP": "me"}]"#,
                "ports[0].hostIP: Invalid value: \"me\"",
            ),
            (
                r#""name": "c", "image": "i", "ports": [{"containerPort": 1, "name": "80"}]"#,
                "ports[0].name: Invalid value: \"80\"",
            ),
            (
                r#""name": "c", "image": "i", "ports": [{"containerPort": 1, "name": "web"},
                   {"containerPort": 2, "name": "web"}]"#,
                "ports[1].name: Duplicate value: \"web\"",
            ),
            (
                r#""name": "c", "image": "i", "resources": {"limits": {"cpu": "-1"}}"#,
                "resources.limits[cpu]: Invalid value: \"-1\": must be greater than or equal to 0",
            ),
            (
                r#""name": "c", "image": "i", "resources":
                   {"limits": {"cpu": 1}, "requests": {"cpu": "1001m", "memory": 5}}"#,
                "resources.requests[cpu]: Invalid value: \"1001m\": must be less than or equal to \
                 cpu limit of 1",
            ),
        ] {
            let json = format!(
                r#"{{"metadata": {{"name": "a"}}, "spec": {{"containers": [{{{fields}}}]}}}}"#
            );
            let want = [&*format!("spec.containers[0].{want}")];
            check(&json, if want == ["spec.containers[0]."] { &[] } else { &want });
        }
    }

    #[test]
    fn all_problems_are_named_at_once() {
        check(
            r#"{"metadata": {"name": "A", "namespace": "B"}, "spec": {"containers": [{}, {}]}}"#,
            &[
                "metadata.name: Invalid",
                "metadata.namespace: Invalid",
                "spec.containers[0].name: Required",
                "spec.containers[0].image: Required",
                "spec.containers[1].name: Required",
                "spec.containers[1].image: Required",
            ],
        );
    }
}
