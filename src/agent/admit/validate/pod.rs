//! Kubernetes' validation of names, resolvers, variables and ephemeral containers.

use core::net::IpAddr;
use std::collections::BTreeSet;

use super::{LABEL, is_label};
use crate::agent::admit::{Findings, at};
use crate::agent::downward::subscript;
use crate::model::names::cut;
use crate::model::pod::{
    Container, DnsPolicy, EnvVar, EnvVarSource, Pod, PodSpec, ResourceRequirements,
};

/// Paths of fields that a variable may refer to.
const FIELDS: [&str; 9] = [
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];
const RESOURCES: [&str; 3] = ["cpu", "memory", "ephemeral-storage"];
const IP: &str = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";

impl Findings {
    pub(super) fn names(&mut self, spec: &PodSpec) {
        if let Some(name) = spec.subdomain.as_deref().filter(|n| !n.is_empty() && !is_label(n)) {
            self.invalid("spec.subdomain", cut(name), LABEL);
        }
        for (index, alias) in spec.host_aliases.iter().enumerate() {
            let path = format!("spec.hostAliases[{index}]");
            if alias.ip.parse::<IpAddr>().is_err() {
                self.invalid(&format!("{path}.ip"), cut(&alias.ip), IP);
            }
            for (index, name) in alias.hostnames.iter().enumerate() {
                if !super::is_subdomain(name) {
                    let path = format!("{path}.hostnames[{index}]");
                    self.invalid(&path, cut(name), super::SUBDOMAIN);
                }
            }
        }
        let dns = &spec.dns_config;
        let path = "spec.dnsConfig";
        if spec.dns_policy == Some(DnsPolicy::None) && dns.nameservers.is_empty() {
            let what = "must provide at least one DNS nameserver when `dnsPolicy` is None";
            self.problem(&format!("{path}.nameservers"), &format!("Required value: {what}"));
        }
        for (index, server) in dns.nameservers.iter().enumerate() {
            if server.parse::<IpAddr>().is_err() {
                self.invalid(&format!("{path}.nameservers[{index}]"), cut(server), IP);
            }
        }
        for (index, search) in dns.searches.iter().enumerate() {
            let name = search.strip_suffix('.').unwrap_or(search).replace('_', "-");
            if !name.is_empty() && !super::is_subdomain(&name) {
                self.invalid(&format!("{path}.searches[{index}]"), cut(search), super::SUBDOMAIN);
            }
        }
        for (index, option) in dns.options.iter().enumerate() {
            let path = format!("{path}.options[{index}]");
            let sound = |text: &str| text.bytes().all(|b| b.is_ascii_graphic());
            if option.name.is_empty() {
                self.problem(&format!("{path}.name"), "Required value");
            } else if !sound(&option.name) || !option.value.as_deref().is_none_or(sound) {
                self.invalid(&path, cut(&option.name), "must not contain white space");
            }
        }
    }

    pub(super) fn variables(&mut self, path: &str, container: &Container) {
        for (index, from) in container.env_from.iter().enumerate() {
            let path = format!("{path}.envFrom[{index}]");
            if !from.prefix.bytes().all(|b| matches!(b, b' '..=b'~') && b != b'=') {
                self.invalid(&format!("{path}.prefix"), cut(&from.prefix), super::ENV_NAME);
            }
            match (&from.config_map_ref, &from.secret_ref) {
                (None, None) => {
                    let what = "must specify one of: `configMapRef` or `secretRef`";
                    self.problem(&path, &format!("Invalid value: \"\": {what}"));
                }
                (Some(_), Some(_)) => {
                    let what = "may not have more than one field specified at a time";
                    self.problem(&path, &format!("Invalid value: \"\": {what}"));
                }
                (Some(one), None) | (None, Some(one)) if one.name.is_empty() => {
                    self.problem(&format!("{path}.name"), "Required value");
                }
                (Some(_), None) | (None, Some(_)) => {}
            }
        }
        for (index, variable) in container.env.iter().enumerate() {
            if let Some(from) = &variable.value_from {
                self.value_source(&format!("{path}.env[{index}].valueFrom"), variable, from);
            }
        }
    }

    fn value_source(&mut self, path: &str, variable: &EnvVar, from: &EnvVarSource) {
        let count = usize::from(from.field_ref.is_some())
            + usize::from(from.resource_field_ref.is_some())
            + usize::from(from.config_map_key_ref.is_some())
            + usize::from(from.secret_key_ref.is_some());
        if !variable.value.is_empty() {
            let what = "may not be specified when `value` is not empty";
            self.problem(path, &format!("Invalid value: \"\": {what}"));
        } else if count != 1 {
            let what = if count == 0 {
                "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef` or \
                 `secretKeyRef`"
            } else {
                "may not have more than one field specified at a time"
            };
            self.problem(path, &format!("Invalid value: \"\": {what}"));
        }
        if let Some(field) = &from.field_ref {
            let known = match subscript(&field.field_path) {
                Some((map, _)) => ["metadata.labels", "metadata.annotations"].contains(&map),
                None => FIELDS.contains(&&*field.field_path),
            };
            if !known {
                let what = format!(
                    "Unsupported value: {:?}: supported values: {}",
                    cut(&field.field_path),
                    FIELDS.map(|field| format!("{field:?}")).join(", ")
                );
                self.problem(&format!("{path}.fieldRef.fieldPath"), &what);
            }
        }
        if let Some(resource) = &from.resource_field_ref {
            let name = resource.resource.split_once('.');
            let known = name.is_some_and(|(kind, name)| {
                ["limits", "requests"].contains(&kind)
                    && (RESOURCES.contains(&name) || name.starts_with("hugepages-"))
            });
            if !known {
                let got = cut(&resource.resource);
                let what = format!(
                    "Unsupported value: {got:?}: supported values: \
                    \"limits.cpu\", \"limits.ephemeral-storage\", \"limits.memory\", \
                    \"requests.cpu\", \"requests.ephemeral-storage\", \"requests.memory\""
                );
                self.problem(&format!("{path}.resourceFieldRef.resource"), &what);
            }
        }
        let keys =
            [("configMapKeyRef", &from.config_map_key_ref), ("secretKeyRef", &from.secret_key_ref)];
        for (field, wanted) in keys {
            let Some(wanted) = wanted else { continue };
            if wanted.name.is_empty() {
                self.problem(&format!("{path}.{field}.name"), "Required value");
            }
            if wanted.key.is_empty() {
                self.problem(&format!("{path}.{field}.key"), "Required value");
            }
        }
    }

    /// With their untyped fields.
    pub(in crate::agent::admit) fn ephemeral_containers<'a>(
        &mut self,
        pod: &'a Pod,
        names: &mut BTreeSet<&'a str>,
    ) {
        let path = "spec.ephemeralContainers";
        // With a uid derived from the manifest, every change makes another pod.
        let digest = pod.metadata.uid.len() == 32 && !pod.metadata.uid.contains('-');
        if !pod.spec.ephemeral_containers.is_empty() && digest {
            self.problem(path, "Forbidden: cannot be set on create");
        }
        for (path, container) in at(path, &pod.spec.ephemeral_containers) {
            self.container_fields(&path, container);
            self.container(&path, container, names);
            let set = [
                ("ports", !container.ports.is_empty()),
                ("resources", container.resources != ResourceRequirements::default()),
                ("restartPolicy", container.restart_policy.is_some()),
                ("lifecycle", container.lifecycle.is_some()),
                ("livenessProbe", container.liveness_probe.is_some()),
                ("readinessProbe", container.readiness_probe.is_some()),
                ("startupProbe", container.startup_probe.is_some()),
            ];
            for (field, _) in set.into_iter().filter(|(_, is_set)| *is_set) {
                let what = "Forbidden: cannot be set for an Ephemeral Container";
                self.problem(&format!("{path}.{field}"), what);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::agent::admit::tests::{pod, problems};

    #[track_caller]
    fn check(spec: &str, want: &str) {
        let main = if spec.contains("\"containers\"") {
            ""
        } else {
            r#", "containers": [{"name": "c", "image": "i"}]"#
        };
        let json = format!(r#"{{"metadata": {{"name": "a"}}, "spec": {{{spec}{main}}}}}"#);
        let got = problems(&pod(&json));
        match want {
            "" => assert_eq!(got, [] as [String; 0], "{json}"),
            want => {
                assert_eq!(got.len(), 1, "{json}\n{got:#?}");
                assert!(got[0].starts_with(want), "{json}\ngot  {}\nwant {want}", got[0]);
            }
        }
    }

    #[test]
    fn what_is_wrong_with_names_and_resolvers_is_named() {
        for (spec, want) in [
            (r#""subdomain": "a", "hostAliases": [{"ip": "1.2.3.4", "hostnames": ["a.b"]}]"#, ""),
            (r#""subdomain": "a.b""#, "spec.subdomain: Invalid value: \"a.b\": a lowercase"),
            (r#""hostAliases": [{"ip": "me"}]"#, "spec.hostAliases[0].ip: Invalid value: \"me\""),
            (
                r#""hostAliases": [{"ip": "::1", "hostnames": ["a b"]}]"#,
                "spec.hostAliases[0].hostnames[0]: Invalid value: \"a b\"",
            ),
            (r#""dnsPolicy": "None""#, "spec.dnsConfig.nameservers: Required value: must provide"),
            (
                r#""dnsConfig": {"nameservers": ["dns"]}"#,
                "spec.dnsConfig.nameservers[0]: Invalid value: \"dns\": must be a valid IP",
            ),
            (r#""dnsConfig": {"searches": ["a_b.c.", "."], "options": [{"name": "edns0"}]}"#, ""),
            (r#""dnsConfig": {"searches": ["a b"]}"#, "spec.dnsConfig.searches[0]: Invalid value"),
            (r#""dnsConfig": {"options": [{}]}"#, "spec.dnsConfig.options[0].name: Required value"),
        ] {
            check(spec, want);
        }
    }

    #[test]
    fn what_is_wrong_with_variables_is_named() {
        let path = "spec.containers[0].env[0].valueFrom";
        for (from, want) in [
            (r#"{"fieldRef": {"fieldPath": "metadata.labels['a']"}}"#, String::new()),
            (
                r#"{"fieldRef": {"fieldPath": "spec.hostname"}}"#,
                format!("{path}.fieldRef.fieldPath: Unsupported value: \"spec.hostname\""),
            ),
            (r#"{"resourceFieldRef": {"resource": "limits.hugepages-2Mi"}}"#, String::new()),
            (
                r#"{"resourceFieldRef": {"resource": "limits.gpu"}}"#,
                format!("{path}.resourceFieldRef.resource: Unsupported value: \"limits.gpu\""),
            ),
            (
                r#"{"secretKeyRef": {"name": "s"}}"#,
                format!("{path}.secretKeyRef.key: Required value"),
            ),
            (
                r#"{"configMapKeyRef": {"key": "k"}}"#,
                format!("{path}.configMapKeyRef.name: Required value"),
            ),
            ("{}", format!("{path}: Invalid value: \"\": must specify one of")),
        ] {
            let spec = format!(
                r#""containers": [{{"name": "c", "image": "i",
                    "env": [{{"name": "A", "valueFrom": {from}}}]}}]"#
            );
            check(&spec, &want);
        }
        for (from, want) in [
            (r#"{"prefix": "P_", "configMapRef": {"name": "m"}}"#, ""),
            ("{}", "spec.containers[0].envFrom[0]: Invalid value: \"\": must specify one of"),
            (r#"{"secretRef": {}}"#, "spec.containers[0].envFrom[0].name: Required value"),
            (
                r#"{"prefix": "a=", "secretRef": {"name": "s"}}"#,
                "spec.containers[0].envFrom[0].prefix: Invalid value: \"a=\"",
            ),
        ] {
            let spec =
                format!(r#""containers": [{{"name": "c", "image": "i", "envFrom": [{from}]}}]"#);
            check(&spec, want);
        }
    }

    #[test]
    fn what_is_wrong_with_ephemeral_containers_is_named() {
        for (container, want) in [
            (r#"{"name": "e", "image": "i", "targetContainerName": "c"}"#, ""),
            (
                r#"{"name": "c", "image": "i"}"#,
                "spec.ephemeralContainers[0].name: Duplicate value: \"c\"",
            ),
            (
                r#"{"name": "e", "image": "i", "ports": [{"containerPort": 1}]}"#,
                "spec.ephemeralContainers[0].ports: Forbidden: cannot be set for an Ephemeral",
            ),
            (
                r#"{"name": "e", "image": "i", "livenessProbe": {}}"#,
                "spec.ephemeralContainers[0].livenessProbe: Forbidden: cannot be set",
            ),
        ] {
            check(&format!(r#""ephemeralContainers": [{container}]"#), want);
        }
        let json = r#"{"metadata": {"name": "a", "uid": "0123456789abcdef0123456789abcdef"},
            "spec": {"containers": [{"name": "c", "image": "i"}],
                     "ephemeralContainers": [{"name": "e", "image": "i"}]}}"#;
        let want = "spec.ephemeralContainers: Forbidden: cannot be set on create";
        assert_eq!(problems(&pod(json)), [want]);
    }
}
