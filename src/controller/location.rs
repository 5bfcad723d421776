//! LocationCache: the ConfigMaps, Secrets, claims and rules of accounts that a pod needs on its
//! node (wire spec section 8.4; unlike in KubeEdge, init and ephemeral containers count as well),
//! and the model that a device needs.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

use super::key::Key;
use super::nullable::Nullable;
use crate::limits::DEVICE_RECORDED_MAX;
use crate::model::api::Kind;
use crate::model::error::Peer;

/// The parts of a pod's spec that matter here.
#[derive(Debug, Default)]
pub(super) struct PodFacts {
    /// `nodeName`; never empty in a pod that is sent to a node.
    pub(super) node: Box<str>,
    /// `serviceAccountName`, or its old name `serviceAccount`.
    pub(super) account: Box<str>,
    /// ConfigMaps and Secrets, and the rules of its account.
    pub(super) needs: BTreeSet<Key>,
    /// PersistentVolumeClaims.
    pub(super) claims: BTreeSet<Box<str>>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Spec {
    node_name: Nullable<Box<str>>,
    service_account_name: Nullable<Box<str>>,
    service_account: Nullable<Box<str>>,
    containers: Nullable<Vec<Nullable<Container>>>,
    init_containers: Nullable<Vec<Nullable<Container>>>,
    ephemeral_containers: Nullable<Vec<Nullable<Container>>>,
    volumes: Nullable<Vec<Nullable<Volume>>>,
    image_pull_secrets: Nullable<Vec<Nullable<Named>>>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Container {
    env: Nullable<Vec<Nullable<Env>>>,
    env_from: Nullable<Vec<Nullable<EnvFrom>>>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Env {
    value_from: Option<ValueFrom>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ValueFrom {
    config_map_key_ref: Nullable<Named>,
    secret_key_ref: Nullable<Named>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct EnvFrom {
    config_map_ref: Nullable<Named>,
    secret_ref: Nullable<Named>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Named {
    name: Nullable<Box<str>>,
}

/// Every key except the name is a source. A source that cannot be parsed is an error: otherwise the
/// API server might ignore what is wrong with it and accept the rest.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Volume {
    #[serde(rename = "name")]
    _name: IgnoredAny,
    #[serde(flatten)]
    sources: BTreeMap<Box<str>, Nullable<Box<VolumeSource>>>,
}

/// The references in any kind of source.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct VolumeSource {
    name: Nullable<Box<str>>,
    secret_name: Nullable<Box<str>>,
    claim_name: Nullable<Box<str>>,
    secret_ref: Option<Named>,
    node_publish_secret_ref: Option<Named>,
    sources: Nullable<Vec<Nullable<Projection>>>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Projection {
    config_map: Nullable<Named>,
    secret: Nullable<Named>,
}

/// The parts of a device that matter here (spec `devices`, section 1).
#[derive(Debug, Default)]
pub(super) struct DeviceFacts {
    /// `spec.nodeName`; empty: it is on no node.
    pub(super) node: Box<str>,
    /// Its model, if it names one.
    pub(super) needs: BTreeSet<Key>,
    /// The names in `spec.properties`.
    pub(super) properties: BTreeSet<Box<str>>,
    /// The label `description`; empty: none.
    pub(super) description: Box<str>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct DeviceSpec {
    node_name: Nullable<Box<str>>,
    device_model_ref: Nullable<Named>,
    properties: Nullable<Vec<Nullable<Named>>>,
}

impl DeviceFacts {
    /// Parses a device's spec; `None`: it has none, which the API server accepts.
    pub(super) fn read(
        namespace: &str,
        spec: Option<&RawValue>,
        description: &str,
    ) -> Result<Self, Peer> {
        let spec: DeviceSpec = match spec {
            Some(spec) => {
                serde_json::from_str::<Nullable<_>>(spec.get())
                    .map_err(|error| Peer::at("spec", error))?
                    .0
            }
            None => DeviceSpec::default(),
        };
        let model = &*spec.device_model_ref.name;
        let needs = Some(Key::new(Kind::DeviceModel, namespace, model));
        let named = spec.properties.0.into_iter().map(|property| property.0.name.0);
        Ok(Self {
            node: spec.node_name.0,
            needs: needs.filter(|key| !key.name.is_empty()).into_iter().collect(),
            properties: named.take(DEVICE_RECORDED_MAX).collect(),
            description: description.into(),
        })
    }
}

impl PodFacts {
    /// Parses a pod's spec.
    pub(super) fn read(namespace: &str, spec: &RawValue) -> Result<Self, Peer> {
        let spec: Spec =
            serde_json::from_str(spec.get()).map_err(|error| Peer::at("spec", error))?;
        let mut needs = Needs { namespace, keys: BTreeSet::new() };
        let containers = spec.containers.iter().chain(&*spec.init_containers);
        for container in containers.chain(&*spec.ephemeral_containers) {
            needs.container(container);
        }
        let mut claims = BTreeSet::new();
        for (kind, source) in spec.volumes.iter().flat_map(|volume| &volume.sources) {
            needs.volume(kind, source);
            if !source.claim_name.is_empty() {
                claims.insert(source.claim_name.0.clone());
            }
        }
        for secret in &*spec.image_pull_secrets {
            needs.secret(&secret.name);
        }
        let named = !spec.service_account_name.is_empty();
        let account = if named { spec.service_account_name } else { spec.service_account };
        let (node, account) = (spec.node_name.0, account.0);
        needs.add(Kind::ServiceAccountAccess, &account);
        Ok(Self { node, account, needs: needs.keys, claims })
    }
}

struct Needs<'a> {
    namespace: &'a str,
    keys: BTreeSet<Key>,
}

impl Needs<'_> {
    fn add(&mut self, kind: Kind, name: &str) {
        if !name.is_empty() {
            self.keys.insert(Key::new(kind, self.namespace, name));
        }
    }

    fn map(&mut self, name: &str) {
        self.add(Kind::ConfigMap, name);
    }

    fn secret(&mut self, name: &str) {
        self.add(Kind::Secret, name);
    }

    fn container(&mut self, container: &Container) {
        for from in &*container.env_from {
            self.map(&from.config_map_ref.name);
            self.secret(&from.secret_ref.name);
        }
        for from in container.env.iter().filter_map(|env| env.value_from.as_ref()) {
            self.map(&from.config_map_key_ref.name);
            self.secret(&from.secret_key_ref.name);
        }
    }

    fn volume(&mut self, kind: &str, source: &VolumeSource) {
        if kind == "configMap" {
            self.map(&source.name);
        }
        self.secret(&source.secret_name);
        for named in source.secret_ref.iter().chain(&source.node_publish_secret_ref) {
            self.secret(&named.name);
        }
        for projection in &*source.sources {
            self.map(&projection.config_map.name);
            self.secret(&projection.secret.name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_device_its_node_model_and_properties_are_read() {
        let read = |spec: &str| {
            let spec = RawValue::from_string(spec.to_owned()).expect("JSON");
            DeviceFacts::read("n", Some(&spec), "d").map_err(|why| why.to_string())
        };
        let facts = read(
            r#"{"nodeName":"e","deviceModelRef":{"name":"m"},"properties":[{"name":"a"},
            {"name":"b","desired":{"value":"1"}}],"protocol":{"protocolName":"modbus"}}"#,
        );
        let facts = facts.expect("a device");
        assert_eq!((&*facts.node, &*facts.description), ("e", "d"));
        let needs: Vec<String> = facts.needs.iter().map(ToString::to_string).collect();
        assert_eq!(needs, ["n/devicemodel/m"]);
        assert_eq!(facts.properties.into_iter().collect::<Vec<_>>(), ["a".into(), "b".into()]);
        // No field is required by the API server.
        for spec in ["{}", "null", r#"{"deviceModelRef":null,"properties":[null]}"#] {
            let facts = read(spec).expect(spec);
            assert!(facts.node.is_empty() && facts.needs.is_empty(), "{spec}");
        }
        assert!(DeviceFacts::read("n", None, "").expect("a device").node.is_empty());
        assert!(read(r#"{"nodeName":7}"#).expect_err("no name").starts_with("spec: "));
        let many: Vec<String> =
            (0..=DEVICE_RECORDED_MAX).map(|at| format!(r#"{{"name":"{at}"}}"#)).collect();
        let facts = read(&format!(r#"{{"properties":[{}]}}"#, many.join(","))).expect("a device");
        assert_eq!(facts.properties.len(), DEVICE_RECORDED_MAX);
    }

    #[test]
    fn whatever_a_pod_names_is_found() {
        let spec = r#"{"nodeName":"e","serviceAccountName":"robot",
          "containers":[{"envFrom":[{"configMapRef":{"name":"c1"}},{"secretRef":{"name":"s1"}}],
            "env":[{"name":"A","value":"b"},
                   {"valueFrom":{"configMapKeyRef":{"name":"c2","key":"k"}}},
                   {"valueFrom":{"fieldRef":{"fieldPath":"spec.nodeName"}}}]}],
          "initContainers":[{"env":[{"valueFrom":{"secretKeyRef":{"name":"s2","key":"k"}}}],
            "restartPolicy":"Always"}],
          "ephemeralContainers":[{"envFrom":[{"secretRef":{"name":"s3"}}]}],
          "volumes":[{"name":"v1","configMap":{"name":"c3","items":[]}},
            {"name":"v2","secret":{"secretName":"s4"}},
            {"name":"v3","projected":{"sources":[{"configMap":{"name":"c4"}},
               {"secret":{"name":"s5"}},{"serviceAccountToken":{"path":"t"}}]}},
            {"name":"v4","persistentVolumeClaim":{"claimName":"p1"}},
            {"name":"v5","csi":{"driver":"d","nodePublishSecretRef":{"name":"s6"}}},
            {"name":"v6","hostPath":{"path":"/"}},
            {"name":"v7","cephfs":{"monitors":["a"],"secretRef":{"name":"s7"}}}],
          "imagePullSecrets":[{"name":"s8"}]}"#;
        let spec = RawValue::from_string(spec.to_owned()).expect("JSON");
        let facts = PodFacts::read("n", &spec).expect("a spec");
        let needs: Vec<String> = facts.needs.iter().map(ToString::to_string).collect();
        let maps = (1..=4).map(|at| format!("n/configmap/c{at}"));
        let secrets = (1..=8).map(|at| format!("n/secret/s{at}"));
        let access = ["n/serviceaccountaccess/robot".to_owned()];
        assert_eq!(needs, maps.chain(secrets).chain(access).collect::<Vec<_>>());
        assert_eq!((&*facts.node, &*facts.account), ("e", "robot"));
        assert_eq!(facts.claims.into_iter().collect::<Vec<_>>(), ["p1".into()]);
    }
}
