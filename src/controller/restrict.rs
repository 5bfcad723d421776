//! What a node may set on its own Node beside the status: Kubernetes' NodeRestriction, and the
//! labels by which KubeEdge recognizes its nodes.

use serde_json::{Map, Value, json};

use crate::model::api::{EDGE_LABEL, Kind};

/// Labels under kubernetes.io and k8s.io that a node may set.
const OWN: [&str; 9] = [
    "kubernetes.io/hostname",
    "kubernetes.io/os",
    "kubernetes.io/arch",
    "beta.kubernetes.io/os",
    "beta.kubernetes.io/arch",
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    EDGE_LABEL,
    "node-role.kubernetes.io/agent",
];
/// Prefixes of labels that a node may set.
const OWN_PREFIXES: [&str; 2] = ["node.kubernetes.io/", "kubelet.kubernetes.io/"];

/// Whether a node may set this label on itself.
fn may_set(label: &str) -> bool {
    let domain = label.split_once('/').map_or("", |(domain, _)| domain);
    let reserved = ["kubernetes.io", "k8s.io"].iter().any(|reserved| {
        domain == *reserved || domain.strip_suffix(reserved).is_some_and(|rest| rest.ends_with('.'))
    });
    let own = OWN.contains(&label) || OWN_PREFIXES.iter().any(|own| label.starts_with(own));
    !label.starts_with('$') && (!reserved || own)
}

/// The labels and annotations that the node may set.
pub(super) fn metadata(content: &Value) -> Value {
    let mut metadata = Map::new();
    if let Some(labels) = content["labels"].as_object() {
        let own = labels.iter().filter(|(label, _)| may_set(label));
        let own: Map<String, Value> = own.map(|(k, v)| (k.clone(), v.clone())).collect();
        metadata.insert("labels".to_owned(), Value::Object(own));
    }
    if let Some(annotations) = content["annotations"].as_object() {
        let own = annotations.iter().filter(|(name, _)| !name.starts_with('$'));
        let own: Map<String, Value> = own.map(|(k, v)| (k.clone(), v.clone())).collect();
        metadata.insert("annotations".to_owned(), Value::Object(own));
    }
    Value::Object(metadata)
}

/// The Node to create when a node registers: its name is that of its certificate, and it has the
/// label of edge nodes.
pub(super) fn node(content: &Value, name: &str) -> Value {
    let mut metadata = metadata(&content["metadata"]);
    metadata["name"] = json!(name);
    if !metadata["labels"].is_object() {
        metadata["labels"] = json!({});
    }
    metadata["labels"][EDGE_LABEL] = json!("");
    let mut node = json!({
        "kind": Kind::Node.name(), "apiVersion": Kind::Node.api_version(), "metadata": metadata,
    });
    for part in ["spec", "status"] {
        if content[part].is_object() {
            node[part] = content[part].clone();
        }
    }
    node
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_sets_no_labels_that_are_not_its_own() {
        for (label, may) in [
            ("kubernetes.io/arch", true),
            ("node-role.kubernetes.io/edge", true),
            ("node.kubernetes.io/instance-type", true),
            ("example.com/site", true),
            ("site", true),
            ("notkubernetes.io/a", true),
            ("node-role.kubernetes.io/control-plane", false),
            ("node-restriction.kubernetes.io/a", false),
            ("x.k8s.io/a", false),
            ("$patch", false),
        ] {
            assert_eq!(may_set(label), may, "{label}");
        }
        let content = json!({"metadata": {"name": "other", "labels": {"k8s.io/a": "1", "b": "2"},
            "annotations": {"c": "3"}, "finalizers": ["d"]}, "status": {"phase": "x"}, "data": 1});
        let expected = json!({"kind": "Node", "apiVersion": "v1", "status": {"phase": "x"},
            "metadata": {"name": "e", "annotations": {"c": "3"},
                "labels": {"b": "2", EDGE_LABEL: ""}}});
        assert_eq!(node(&content, "e"), expected);
    }
}
