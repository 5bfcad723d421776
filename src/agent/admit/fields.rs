//! Fields that have no type of their own, and whether they are supported.
//!
//! The tables contain the fields of core/v1 as of Kubernetes 1.34. When edged supports a field, the
//! field becomes typed in [`crate::model::pod`] and its row here is removed.

use super::{Findings, at};
use crate::agent::requests::STORAGE;
use crate::model::names::cut;
use crate::model::pod::{
    Container, EnvVarSource, Pod, PodSecurityContext, PodSpec, Profile, ResourceRequirements, Rest,
    SeLinuxOptions, SecurityContext, Untyped, is_nothing, plain,
};

/// How a field is treated. An empty value (null, empty text, list or map) is always accepted.
#[derive(Clone, Copy)]
enum Rule {
    /// No effect at the node, or only what edged does anyway.
    Fine,
    /// Not supported.
    Lacking,
    /// Not supported, because it depends on volumes.
    LackingVolumes,
    /// linux; otherwise the pod is for other nodes.
    Os,
}

type Table = &'static [(&'static str, Rule)];

use Rule::{Fine, Lacking, LackingVolumes, Os};

/// Metadata of the API server.
const METADATA: Table = &[
    ("finalizers", Fine),
    ("generateName", Fine),
    ("generation", Fine),
    ("managedFields", Fine),
    ("ownerReferences", Fine),
    ("resourceVersion", Fine),
    ("selfLink", Fine),
];

const POD_SPEC: Table = &[
    // The parts of it that concern the node are checked in `misplaced`.
    ("affinity", Fine),
    ("nodeSelector", Fine),
    // For the scheduler and the API server.
    ("preemptionPolicy", Fine),
    ("priority", Fine),
    ("priorityClassName", Fine),
    ("schedulerName", Fine),
    ("schedulingGates", Fine),
    ("tolerations", Fine),
    ("topologySpreadConstraints", Fine),
    ("workloadRef", Fine),
    // The API server adds these as volumes.
    ("automountServiceAccountToken", Fine),
    ("serviceAccount", Fine),
    ("serviceAccountName", Fine),
    ("hostnameOverride", Lacking),
    ("resourceClaims", Lacking),
    ("os", Os),
];

/// Untyped fields of pods and containers.
const SECURITY: Table = &[
    // How volumes are labelled, on hosts with SELinux.
    ("seLinuxChangePolicy", Fine),
    ("windowsOptions", Lacking),
];

const CONTAINER: Table = &[
    // Resources of a running pod are not changed here.
    ("resizePolicy", Fine),
    ("restartPolicyRules", Lacking),
    ("volumeDevices", LackingVolumes),
];

const ENV: Table = &[];

const PORT: Table = &[];

const RESOURCES: Table = &[("claims", Lacking)];

impl Findings {
    /// The untyped fields of the pod itself.
    pub(super) fn pod_fields(&mut self, pod: &Pod) {
        self.table("metadata", METADATA, &pod.metadata.rest);
        self.table("spec", POD_SPEC, &pod.spec.rest);
        self.resource_fields("spec", &pod.spec.resources);
        self.pod_security_fields(&pod.spec.security_context);
        for (path, secret) in at("spec.imagePullSecrets", &pod.spec.image_pull_secrets) {
            self.unknown(&path, &secret.rest);
        }
    }

    /// Fields that exist in other places only, and unknown fields of names and resolvers.
    pub(super) fn misplaced_fields(&mut self, spec: &PodSpec) {
        let mut plain = spec.init_containers.iter().chain(&spec.containers);
        if plain.any(|container| container.target_container_name.is_some()) {
            self.unknown.push("targetContainerName outside of spec.ephemeralContainers".to_owned());
        }
        self.unknown("spec.dnsConfig", &spec.dns_config.rest);
        for (path, option) in at("spec.dnsConfig.options", &spec.dns_config.options) {
            self.unknown(&path, &option.rest);
        }
        for (path, alias) in at("spec.hostAliases", &spec.host_aliases) {
            self.unknown(&path, &alias.rest);
        }
        for (path, gate) in at("spec.readinessGates", &spec.readiness_gates) {
            self.unknown(&path, &gate.rest);
        }
    }

    fn pod_security_fields(&mut self, context: &PodSecurityContext) {
        let path = "spec.securityContext";
        self.table(path, SECURITY, &context.rest);
        self.profile(&format!("{path}.seccompProfile"), context.seccomp_profile.as_ref());
        self.profile(&format!("{path}.appArmorProfile"), context.app_armor_profile.as_ref());
        self.selinux(path, context.se_linux_options.as_ref());
        for (index, sysctl) in context.sysctls.iter().enumerate() {
            self.unknown(&format!("{path}.sysctls[{index}]"), &sysctl.rest);
        }
    }

    fn container_security_fields(&mut self, path: &str, context: &SecurityContext) {
        let path = format!("{path}.securityContext");
        self.table(&path, SECURITY, &context.rest);
        self.unknown(&format!("{path}.capabilities"), &context.capabilities.rest);
        self.profile(&format!("{path}.seccompProfile"), context.seccomp_profile.as_ref());
        self.profile(&format!("{path}.appArmorProfile"), context.app_armor_profile.as_ref());
        self.selinux(&path, context.se_linux_options.as_ref());
    }

    fn value_from(&mut self, path: &str, from: &EnvVarSource) {
        self.table(path, &[("fileKeyRef", Lacking)], &from.rest);
        self.rest(&format!("{path}.fieldRef"), from.field_ref.as_ref().map(|it| &it.rest));
        let resource = from.resource_field_ref.as_ref();
        self.rest(&format!("{path}.resourceFieldRef"), resource.map(|it| &it.rest));
        let map = from.config_map_key_ref.as_ref();
        self.rest(&format!("{path}.configMapKeyRef"), map.map(|it| &it.rest));
        let secret = from.secret_key_ref.as_ref();
        self.rest(&format!("{path}.secretKeyRef"), secret.map(|it| &it.rest));
    }

    fn rest(&mut self, path: &str, rest: Option<&Rest>) {
        if let Some(rest) = rest {
            self.unknown(path, rest);
        }
    }

    fn profile(&mut self, path: &str, profile: Option<&Profile>) {
        if let Some(profile) = profile {
            self.unknown(path, &profile.rest);
        }
    }

    fn selinux(&mut self, path: &str, options: Option<&SeLinuxOptions>) {
        if let Some(options) = options {
            self.unknown(&format!("{path}.seLinuxOptions"), &options.rest);
        }
    }

    /// The untyped fields of a container.
    pub(super) fn container_fields(&mut self, path: &str, container: &Container) {
        self.table(path, CONTAINER, &container.rest);
        self.probe_fields(path, container);
        for (index, env) in container.env.iter().enumerate() {
            let path = format!("{path}.env[{index}]");
            self.table(&path, ENV, &env.rest);
            if let Some(from) = &env.value_from {
                self.value_from(&format!("{path}.valueFrom"), from);
            }
        }
        for (index, from) in container.env_from.iter().enumerate() {
            let path = format!("{path}.envFrom[{index}]");
            self.unknown(&path, &from.rest);
            let refs = [("configMapRef", &from.config_map_ref), ("secretRef", &from.secret_ref)];
            for (field, wanted) in refs {
                let rest = wanted.as_ref().map(|wanted| &wanted.rest);
                self.rest(&format!("{path}.{field}"), rest);
            }
        }
        for (index, port) in container.ports.iter().enumerate() {
            self.table(&format!("{path}.ports[{index}]"), PORT, &port.rest);
        }
        self.container_security_fields(path, &container.security_context);
        self.resource_fields(path, &container.resources);
    }

    fn resource_fields(&mut self, path: &str, resources: &ResourceRequirements) {
        let path = format!("{path}.resources");
        self.table(&path, RESOURCES, &resources.rest);
        // A request is for the scheduler; of the limits, only these are enforced.
        for name in resources.limits.keys().filter(|name| !is_limited(name)) {
            self.features.push(format!("{path}.limits[{}]", cut(name)));
        }
    }

    /// Fields of a place without a table.
    pub(super) fn unknown(&mut self, path: &str, fields: &Rest) {
        self.table(path, &[], fields);
    }

    fn table(&mut self, path: &str, table: Table, fields: &Rest) {
        for (name, value) in fields {
            let path = format!("{path}.{}", cut(name));
            match table.iter().find(|(known, _)| known == name) {
                None => self.unknown.push(path),
                Some(_) if is_nothing(value) => {}
                Some((_, rule)) => self.field(path, *rule, value),
            }
        }
    }

    fn field(&mut self, path: String, rule: Rule, value: &Untyped) {
        match rule {
            Fine => {}
            Lacking => self.features.push(path),
            LackingVolumes => self.volumes.push(path),
            Os => {
                self.foreign_os = value.get("name").is_none_or(|name| plain(name) != "linux");
            }
        }
    }
}

fn is_limited(resource: &str) -> bool {
    matches!(resource, "cpu" | "memory")
        || resource.starts_with("hugepages-")
        // A pod that exceeds its disk limit is evicted.
        || resource == STORAGE && cfg!(feature = "eviction")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::{Value, json};

    use super::*;
    use crate::agent::admit::tests::pod;

    const BASE: &str = r#"{"metadata": {"name": "a"}, "spec": {
        "initContainers": [{"name": "i", "image": "i"}],
        "containers": [{"name": "c", "image": "i", "env": [{"name": "A"}],
                        "ports": [{"containerPort": 1}]}]}}"#;

    type Place = fn(&mut Pod) -> &mut Rest;

    /// The table of each place, and how to set an untyped field there.
    fn places() -> Vec<(&'static str, Table, Place)> {
        vec![
            ("metadata", METADATA, |pod| &mut pod.metadata.rest),
            ("spec", POD_SPEC, |pod| &mut Arc::make_mut(&mut pod.spec).rest),
            ("spec.initContainers[0]", CONTAINER, |pod| {
                &mut Arc::make_mut(&mut pod.spec).init_containers[0].rest
            }),
            ("spec.containers[0]", CONTAINER, |pod| {
                &mut Arc::make_mut(&mut pod.spec).containers[0].rest
            }),
            ("spec.containers[0].env[0]", ENV, |pod| {
                &mut Arc::make_mut(&mut pod.spec).containers[0].env[0].rest
            }),
            ("spec.containers[0].ports[0]", PORT, |pod| {
                &mut Arc::make_mut(&mut pod.spec).containers[0].ports[0].rest
            }),
            ("spec.securityContext", SECURITY, |pod| {
                &mut Arc::make_mut(&mut pod.spec).security_context.rest
            }),
            ("spec.containers[0].securityContext", SECURITY, |pod| {
                &mut Arc::make_mut(&mut pod.spec).containers[0].security_context.rest
            }),
            ("spec.containers[0].securityContext.capabilities", &[], |pod| {
                &mut Arc::make_mut(&mut pod.spec).containers[0].security_context.capabilities.rest
            }),
            ("spec.containers[0].resources", RESOURCES, |pod| {
                &mut Arc::make_mut(&mut pod.spec).containers[0].resources.rest
            }),
        ]
    }

    fn found(place: Place, name: &str, value: Value) -> Findings {
        let mut pod = pod(BASE);
        place(&mut pod).insert(name.to_owned(), value);
        Findings::of(&pod)
    }

    fn all(found: &Findings) -> Vec<&String> {
        found.volumes.iter().chain(&found.features).chain(&found.unknown).collect()
    }

    /// Checks the table recursively: each row in each place has the effect of its rule.
    fn check(path: &str, table: Table, put: &dyn Fn(&str, Value) -> Findings) {
        for (name, rule) in table {
            for nothing in
                [json!(null), json!([]), json!({}), json!(""), json!({"a": [], "b": null})]
            {
                let found = put(name, nothing);
                assert_eq!(all(&found), [""; 0], "{path}.{name}");
                assert!(!found.foreign_os, "{path}.{name}");
            }
            let path = format!("{path}.{name}");
            let found = put(name, json!({"anything": 1}));
            match rule {
                Fine => assert_eq!(all(&found), [""; 0], "{path}"),
                Lacking => assert_eq!(found.features, [path]),
                LackingVolumes => assert_eq!(found.volumes, [path]),
                Os => assert!(found.foreign_os),
            }
        }
    }

    #[test]
    fn every_row_of_every_table_holds_in_every_place() {
        for (path, table, place) in places() {
            check(path, table, &|name, value| found(place, name, value));
        }
    }

    #[test]
    fn fields_in_no_table_are_unknown_and_no_reason_to_refuse() {
        for (path, _, place) in places() {
            let found = found(place, "livenesProbe", json!({"exec": {}}));
            assert_eq!(found.unknown, [format!("{path}.livenesProbe")]);
            assert!(found.features.is_empty() && found.volumes.is_empty());
        }
    }

    #[test]
    fn limits_that_nobody_keeps_are_named() {
        let mut pod = pod(BASE);
        let limits = &mut Arc::make_mut(&mut pod.spec).containers[0].resources.limits;
        for name in ["cpu", "memory", "hugepages-2Mi", "example.com/gpu", "ephemeral-storage"] {
            limits.insert(name.to_owned(), "1".parse().expect("a quantity"));
        }
        let of = |name: &str| format!("spec.containers[0].resources.limits[{name}]");
        let mut unkept = vec![of("example.com/gpu")];
        if !cfg!(feature = "eviction") {
            unkept.insert(0, of("ephemeral-storage"));
        }
        assert_eq!(Findings::of(&pod).features, unkept);
    }

    #[test]
    fn linux_is_no_foreign_os() {
        let os =
            |value| found(|pod| &mut Arc::make_mut(&mut pod.spec).rest, "os", value).foreign_os;
        assert!(!os(json!({"name": "linux"})));
        assert!(os(json!({"name": "windows"})));
    }
}
