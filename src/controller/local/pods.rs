//! The defaults of core/v1 that an API server adds to a new pod and a kubelet relies on.

use serde_json::{Map, Value, json};

pub(super) fn complete(pod: &mut Value) {
    if !pod["spec"].is_object() {
        pod["spec"] = json!({});
    }
    let spec = pod["spec"].as_object_mut().expect("made one just now");
    fill(
        spec,
        &json!({
            "restartPolicy": "Always",
            "terminationGracePeriodSeconds": 30,
            "dnsPolicy": "ClusterFirst",
            "schedulerName": "default-scheduler",
            "securityContext": {},
            "enableServiceLinks": true,
        }),
    );
    for list in ["containers", "initContainers"] {
        for container in elements(spec, list) {
            complete_container(container);
        }
    }
    for volume in elements(spec, "volumes") {
        for (kind, defaults) in [
            ("configMap", json!({"defaultMode": 420})),
            ("secret", json!({"defaultMode": 420})),
            ("downwardAPI", json!({"defaultMode": 420})),
            ("projected", json!({"defaultMode": 420})),
            ("hostPath", json!({"type": ""})),
        ] {
            if let Some(source) = volume.get_mut(kind).and_then(Value::as_object_mut) {
                fill(source, &defaults);
            }
        }
    }
    pod["status"] = json!({"phase": "Pending", "qosClass": class(&pod["spec"])});
}

fn complete_container(container: &mut Map<String, Value>) {
    let image = container.get("image").and_then(Value::as_str).unwrap_or_default();
    let name = image.rsplit('/').next().unwrap_or_default();
    let latest = !image.contains('@') && (!name.contains(':') || name.ends_with(":latest"));
    let policy = if latest { "Always" } else { "IfNotPresent" };
    fill(
        container,
        &json!({
            "imagePullPolicy": policy,
            "terminationMessagePath": "/dev/termination-log",
            "terminationMessagePolicy": "File",
            "resources": {},
        }),
    );
    for port in elements(container, "ports") {
        fill(port, &json!({"protocol": "TCP"}));
    }
    for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
        let Some(probe) = container.get_mut(probe).and_then(Value::as_object_mut) else { continue };
        fill(
            probe,
            &json!({
                "timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1,
                "failureThreshold": 3,
            }),
        );
        if let Some(get) = probe.get_mut("httpGet").and_then(Value::as_object_mut) {
            fill(get, &json!({"path": "/", "scheme": "HTTP"}));
        }
    }
}

/// The QoS class: `BestEffort`, `Burstable` or `Guaranteed`.
fn class(spec: &Value) -> &'static str {
    let containers: Vec<&Value> = ["containers", "initContainers"]
        .into_iter()
        .filter_map(|list| spec[list].as_array())
        .flatten()
        .collect();
    let amounts = |container: &Value, kind: &str| -> Vec<(String, String)> {
        let map = container["resources"][kind].as_object();
        let known = |name: &str| matches!(name, "cpu" | "memory");
        let text = |value: &Value| value.as_str().map_or(value.to_string(), str::to_owned);
        let amounts = map.into_iter().flatten().filter(|(name, _)| known(name));
        amounts.map(|(name, value)| (name.clone(), text(value))).collect()
    };
    let asks = |container: &&Value| {
        !amounts(container, "requests").is_empty() || !amounts(container, "limits").is_empty()
    };
    let sure = |container: &&Value| {
        let (limits, requests) = (amounts(container, "limits"), amounts(container, "requests"));
        limits.len() == 2 && requests.iter().all(|request| limits.contains(request))
    };
    if !containers.iter().any(asks) {
        "BestEffort"
    } else if containers.iter().all(sure) {
        "Guaranteed"
    } else {
        "Burstable"
    }
}

fn elements<'a>(
    map: &'a mut Map<String, Value>,
    list: &str,
) -> impl Iterator<Item = &'a mut Map<String, Value>> {
    let list = map.get_mut(list).and_then(Value::as_array_mut);
    list.into_iter().flatten().filter_map(Value::as_object_mut)
}

fn fill(map: &mut Map<String, Value>, defaults: &Value) {
    for (key, value) in defaults.as_object().expect("defaults are a map") {
        let there = map.entry(key.as_str()).or_insert(Value::Null);
        if there.is_null() {
            *there = value.clone();
        }
    }
}
