//! Removes values that may be secret from pods, for users other than root.
//!
//! Names stay; values are removed: those of environment variables, annotations (`kubectl apply`
//! stores the whole pod in one) and HTTP headers, and the arguments of commands after the program's
//! name. The kernel shows the arguments of running processes to every user, but not those of
//! containers that do not run, nor if `/proc` is mounted with `hidepid`.

use serde::ser::{Error, Serialize, Serializer};
use serde_json::Value;

use crate::model::pod::Pod;

/// Serializes a pod without these values. One pod at a time is converted: the list may be long.
pub(super) struct Redacted<'a>(pub(super) &'a Pod);

impl Serialize for Redacted<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        // Through JSON text: a second serializer for all pod types would cost 30 KB.
        let text = serde_json::to_vec(self.0).map_err(S::Error::custom)?;
        let mut pod: Value = serde_json::from_slice(&text).map_err(S::Error::custom)?;
        redact(&mut pod);
        pod.serialize(to)
    }
}

/// Replaces a value.
pub(super) const HIDDEN: &str = "<redacted>";

/// Anywhere in a pod: the three kinds of containers have them, and their probes and hooks.
pub(in crate::io) fn redact(value: &mut Value) {
    match value {
        Value::Array(list) => list.iter_mut().for_each(redact),
        Value::Object(map) => {
            for (key, value) in map {
                match (&**key, &mut *value) {
                    ("env" | "httpHeaders", Value::Array(list)) => {
                        list.iter_mut().filter_map(|it| it.get_mut("value")).for_each(hide);
                    }
                    ("command", Value::Array(words)) => words.iter_mut().skip(1).for_each(hide),
                    ("args", Value::Array(words)) => words.iter_mut().for_each(hide),
                    ("annotations", Value::Object(map)) => {
                        let secret = |(key, _): &(&String, _)| !key.starts_with(AGENTS_OWN);
                        map.iter_mut().filter(secret).for_each(|(_, value)| hide(value));
                    }
                    _ => redact(value),
                }
            }
        }
        _ => {}
    }
}

fn hide(value: &mut Value) {
    *value = HIDDEN.into();
}

/// Annotations that a node agent itself sets: the pod's source, its start time, its hash.
const AGENTS_OWN: &str = "kubernetes.io/config.";

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn names_stay_and_values_go() {
        let container = json!({
            "name": "c", "image": "i", "command": ["sh", "-c", "login s3cret"], "args": ["s3cret"],
            "env": [{"name": "A", "value": "s3cret"},
                    {"name": "B", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}],
            "livenessProbe": {"exec": {"command": ["check", "s3cret"]}},
            "lifecycle": {"preStop": {"httpGet": {
                "path": "/", "httpHeaders": [{"name": "Authorization", "value": "s3cret"}]}}},
        });
        let mut pod = json!({
            "metadata": {"name": "p", "labels": {"env": "prod"}, "annotations": {
                "kubernetes.io/config.source": "file",
                "kubectl.kubernetes.io/last-applied-configuration": "{s3cret}"}},
            "spec": {"containers": [container.clone()], "initContainers": [container.clone()],
                     "ephemeralContainers": [container]},
            "status": {"phase": "Running"},
        });
        redact(&mut pod);
        let text = pod.to_string();
        assert!(!text.contains("s3cret"), "{text}");
        let first = &pod["spec"]["containers"][0];
        assert_eq!(first["env"][0], json!({"name": "A", "value": HIDDEN}));
        assert_eq!(first["env"][1]["valueFrom"]["secretKeyRef"]["key"], "k");
        assert_eq!(first["command"], json!(["sh", HIDDEN, HIDDEN]));
        assert_eq!(pod["metadata"]["annotations"]["kubernetes.io/config.source"], "file");
        assert_eq!(pod["metadata"]["labels"]["env"], "prod");
        assert_eq!(pod["status"]["phase"], "Running");
    }
}
