//! The sources of a container's environment variables (core/v1).

use std::fmt;

use serde::Serialize;

use super::Rest;
use crate::model::quantity::Quantity;
use crate::model::tree::fields;
use crate::model::untyped::is_default;

/// core/v1 `EnvVar`. Its `Debug` does not show the value: it may be secret.
#[derive(Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EnvVar {
    /// Printable ASCII without `=`.
    pub name: String,
    /// `$(NAME)` is replaced by variables defined before.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub value: String,
    /// Instead of `value`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value_from: Option<Box<EnvVarSource>>,
    /// The other fields.
    #[serde(flatten)]
    pub rest: Rest,
}

fields!(EnvVar {
    "name" => name,
    "value" => value,
    "valueFrom" => value_from,
} rest rest);

impl fmt::Debug for EnvVar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, value, value_from, rest } = self;
        f.debug_struct("EnvVar")
            .field("name", name)
            .field("value", &format_args!("{} bytes", value.len()))
            .field("value_from", value_from)
            .field("rest", rest)
            .finish()
    }
}

/// core/v1 `EnvVarSource`: one of these.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EnvVarSource {
    /// A field of the pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub field_ref: Option<FieldRef>,
    /// A request or limit of a container.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource_field_ref: Option<ResourceFieldRef>,
    /// A value of a ConfigMap.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config_map_key_ref: Option<KeyRef>,
    /// A value of a Secret.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret_key_ref: Option<KeyRef>,
    /// The other fields.
    #[serde(flatten)]
    pub rest: Rest,
}

fields!(EnvVarSource {
    "fieldRef" => field_ref,
    "resourceFieldRef" => resource_field_ref,
    "configMapKeyRef" => config_map_key_ref,
    "secretKeyRef" => secret_key_ref,
} rest rest);

/// core/v1 `ObjectFieldSelector`
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FieldRef {
    /// Default `v1`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub api_version: String,
    /// `metadata.name`, `metadata.labels['app']` …
    pub field_path: String,
    /// The other fields.
    #[serde(flatten)]
    pub rest: Rest,
}

fields!(FieldRef {
    "apiVersion" => api_version,
    "fieldPath" => field_path,
} rest rest);

/// core/v1 `ResourceFieldSelector`
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourceFieldRef {
    /// The container; in a variable, empty is the container itself.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub container_name: String,
    /// `limits.cpu`, `requests.memory` …
    pub resource: String,
    /// The unit; unset or 0 is 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub divisor: Option<Quantity>,
    /// The other fields.
    #[serde(flatten)]
    pub rest: Rest,
}

fields!(ResourceFieldRef {
    "containerName" => container_name,
    "resource" => resource,
    "divisor" => divisor,
} rest rest);

/// core/v1 `ConfigMapKeySelector` and `SecretKeySelector`
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct KeyRef {
    /// Of the object, in the pod's namespace.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// In its data.
    pub key: String,
    /// If the object or key is missing, the variable is not defined.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub optional: Option<bool>,
    /// The other fields.
    #[serde(flatten)]
    pub rest: Rest,
}

fields!(KeyRef {
    "name" => name,
    "key" => key,
    "optional" => optional,
} rest rest);

/// core/v1 `EnvFromSource`: all of an object's keys.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EnvFrom {
    /// The prefix of each key.
    #[serde(skip_serializing_if = "is_default")]
    pub prefix: String,
    /// A ConfigMap's texts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config_map_ref: Option<ObjectRef>,
    /// A Secret's texts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<ObjectRef>,
    /// The other fields.
    #[serde(flatten)]
    pub rest: Rest,
}

fields!(EnvFrom {
    "prefix" => prefix,
    "configMapRef" => config_map_ref,
    "secretRef" => secret_ref,
} rest rest);

/// core/v1 `ConfigMapEnvSource` and `SecretEnvSource`
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ObjectRef {
    /// In the pod's namespace.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// It may be missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub optional: Option<bool>,
    /// The other fields.
    #[serde(flatten)]
    pub rest: Rest,
}

fields!(ObjectRef {
    "name" => name,
    "optional" => optional,
} rest rest);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_is_shown_without_its_value() {
        let variable = EnvVar { name: "TOKEN".into(), value: "hidden".into(), ..EnvVar::default() };
        let shown = format!("{variable:?}");
        assert!(shown.contains("TOKEN") && shown.contains("6 bytes"), "{shown}");
        assert!(!shown.contains("hidden"), "{shown}");
    }
}
