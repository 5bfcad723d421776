//! Patches, as the API server applies them: JSON merge patches (RFC 7396) and strategic ones
//! (Kubernetes' API conventions), whose lists are merged by a key that the type declares.
//!
//! The declarations (`patchStrategy` and `patchMergeKey` of core/v1) stand here by the name of the
//! list alone: of those that nodes, pods and their statuses have, no two of a name differ.

use serde_json::{Map, Value};

/// Applies a JSON merge patch.
pub(super) fn merge(target: &mut Value, patch: &Value) {
    let Some(patch) = patch.as_object() else {
        *target = patch.clone();
        return;
    };
    let map = as_map(target);
    for (key, value) in patch {
        if value.is_null() {
            map.remove(key);
        } else {
            merge(map.entry(key.as_str()).or_insert(Value::Null), value);
        }
    }
}

/// Applies a strategic merge patch. An error says what of it makes no sense.
pub(super) fn strategic(target: &mut Value, patch: &Value) -> Result<(), String> {
    let Some(patch) = patch.as_object() else {
        *target = patch.clone();
        return Ok(());
    };
    if directive(patch) == Some("replace") {
        let kept = patch.iter().filter(|(key, _)| *key != DIRECTIVE);
        *target = Value::Object(kept.map(|(key, value)| (key.clone(), value.clone())).collect());
        return Ok(());
    }
    let map = as_map(target);
    if let Some(kept) = patch.get(RETAIN).and_then(Value::as_array) {
        map.retain(|key, _| kept.iter().any(|kept| kept == key));
    }
    for (key, value) in patch {
        if let Some(list) = key.strip_prefix(PRIMITIVES) {
            let gone = value.as_array().ok_or_else(|| format!("{key}: expected a list"))?;
            if let Some(list) = map.get_mut(list).and_then(Value::as_array_mut) {
                list.retain(|element| !gone.contains(element));
            }
        }
        if key.starts_with('$') {
            continue;
        }
        match value {
            Value::Null => drop(map.remove(key)),
            Value::Object(_) => {
                strategic(map.entry(key.as_str()).or_insert(Value::Null), value)?;
            }
            Value::Array(elements) => {
                let list = map.entry(key.as_str()).or_insert(Value::Null);
                merge_list(list, key, elements)?;
            }
            Value::Bool(_) | Value::Number(_) | Value::String(_) => {
                map.insert(key.clone(), value.clone());
            }
        }
    }
    for (key, order) in patch {
        let list = key.strip_prefix(ORDER);
        let found = list.and_then(|name| Some((map.get_mut(name)?.as_array_mut()?, name)));
        if let Some((list, name)) = found {
            let order = order.as_array().ok_or_else(|| format!("{key}: expected a list"))?;
            sort(list, merge_key(name), order);
        }
    }
    Ok(())
}

fn merge_list(target: &mut Value, name: &str, patch: &[Value]) -> Result<(), String> {
    let said = |element: &Value, word: &str| {
        element.as_object().and_then(directive).is_some_and(|said| said == word)
    };
    let Some(key) = merge_key(name) else {
        if PRIMITIVE_LISTS.contains(&name) {
            let list = as_list(target);
            for element in patch.iter().filter(|element| !element.is_object()) {
                if !list.contains(element) {
                    list.push(element.clone());
                }
            }
            return Ok(());
        }
        *target = patch.to_vec().into();
        return Ok(());
    };
    if patch.iter().any(|element| said(element, "replace")) {
        *target = Value::Array(Vec::new());
    }
    let list = as_list(target);
    for element in patch {
        if said(element, "replace") && element.get(key).is_none() {
            continue;
        }
        let wanted = element.get(key);
        let wanted = wanted.ok_or_else(|| format!("{name}: got an element without {key}"))?;
        if said(element, "delete") {
            list.retain(|old| old.get(key) != Some(wanted));
            continue;
        }
        let at = list.iter().position(|old| old.get(key) == Some(wanted)).unwrap_or_else(|| {
            list.push(Value::Null);
            list.len() - 1
        });
        strategic(&mut list[at], element)?;
    }
    Ok(())
}

/// Elements that the order does not name stay behind those that it names.
fn sort(list: &mut [Value], key: Option<&str>, order: &[Value]) {
    list.sort_by_key(|element| {
        let same = |told: &Value| match key {
            Some(key) => told.get(key) == element.get(key),
            None => told == element,
        };
        order.iter().position(same).unwrap_or(order.len())
    });
}

/// By which key a list is merged; `None`: it is replaced as a whole.
fn merge_key(list: &str) -> Option<&'static str> {
    match list {
        "conditions" | "addresses" => Some("type"),
        "podIPs" | "hostIPs" => Some("ip"),
        "containers"
        | "initContainers"
        | "ephemeralContainers"
        | "env"
        | "imagePullSecrets"
        | "resourceClaims"
        | "volumes"
        | "volumesAttached" => Some("name"),
        "ownerReferences" => Some("uid"),
        "ports" => Some("containerPort"),
        "volumeMounts" => Some("mountPath"),
        "volumeDevices" => Some("devicePath"),
        "taints" => Some("key"),
        "hostAliases" => Some("ip"),
        "topologySpreadConstraints" => Some("topologyKey"),
        _ => None,
    }
}

fn directive(map: &Map<String, Value>) -> Option<&str> {
    map.get(DIRECTIVE).and_then(Value::as_str)
}

fn as_map(target: &mut Value) -> &mut Map<String, Value> {
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    target.as_object_mut().expect("made one just now")
}

fn as_list(target: &mut Value) -> &mut Vec<Value> {
    if !target.is_array() {
        *target = Value::Array(Vec::new());
    }
    target.as_array_mut().expect("made one just now")
}

const DIRECTIVE: &str = "$patch";
const RETAIN: &str = "$retainKeys";
const ORDER: &str = "$setElementOrder/";
const PRIMITIVES: &str = "$deleteFromPrimitiveList/";
/// Of texts; merged as sets.
const PRIMITIVE_LISTS: [&str; 2] = ["finalizers", "podCIDRs"];

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_examples_of_the_rfc_hold() {
        for (target, patch, result) in [
            (json!({"a": "b"}), json!({"a": "c"}), json!({"a": "c"})),
            (json!({"a": "b"}), json!({"b": "c"}), json!({"a": "b", "b": "c"})),
            (json!({"a": "b"}), json!({"a": null}), json!({})),
            (json!({"a": ["b"]}), json!({"a": "c"}), json!({"a": "c"})),
            (
                json!({"a": {"b": "c"}}),
                json!({"a": {"b": "d", "c": null}}),
                json!({"a": {"b": "d"}}),
            ),
            (json!({"a": [{"b": "c"}]}), json!({"a": [1]}), json!({"a": [1]})),
            (json!(["a", "b"]), json!(["c", "d"]), json!(["c", "d"])),
            (json!({"a": "foo"}), json!("bar"), json!("bar")),
            (json!({}), json!({"a": {"bb": {"ccc": null}}}), json!({"a": {"bb": {}}})),
        ] {
            let mut got = target.clone();
            merge(&mut got, &patch);
            assert_eq!(got, result, "{target} {patch}");
        }
    }

    #[test]
    fn lists_are_merged_by_their_key_and_ordered_as_told() {
        let mut status = json!({"conditions": [
            {"type": "Ready", "status": "False"}, {"type": "Old", "status": "True"},
        ]});
        let patch = json!({
            "$setElementOrder/conditions": [{"type": "Initialized"}, {"type": "Ready"}],
            "conditions": [
                {"type": "Ready", "status": "True"}, {"type": "Initialized", "status": "True"},
                {"$patch": "delete", "type": "Old"},
            ],
            "containerStatuses": [{"name": "a"}],
        });
        strategic(&mut status, &patch).expect("it makes sense");
        let conditions = json!([
            {"type": "Initialized", "status": "True"}, {"type": "Ready", "status": "True"},
        ]);
        assert_eq!(status, json!({"conditions": conditions, "containerStatuses": [{"name": "a"}]}));
        let again = json!({"containerStatuses": [{"name": "b"}]});
        strategic(&mut status, &again).expect("it makes sense");
        assert_eq!(status["containerStatuses"], json!([{"name": "b"}]), "atomic");
    }

    #[test]
    fn a_list_and_a_map_can_be_replaced() {
        let mut status = json!({"addresses": [{"type": "Hostname", "address": "a"}]});
        let patch = json!({"addresses": [
            {"type": "InternalIP", "address": "1"}, {"$patch": "replace"},
        ]});
        strategic(&mut status, &patch).expect("it makes sense");
        assert_eq!(status["addresses"], json!([{"type": "InternalIP", "address": "1"}]));
        let patch = json!({"x": {"$patch": "replace", "b": 1}});
        let mut target = json!({"x": {"a": 1}});
        strategic(&mut target, &patch).expect("it makes sense");
        assert_eq!(target, json!({"x": {"b": 1}}));
        let wrong = json!({"conditions": [{"status": "True"}]});
        let why = strategic(&mut status, &wrong).expect_err("which one?");
        assert_eq!(why, "conditions: got an element without type");
    }
}
