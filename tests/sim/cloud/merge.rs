//! The API server's strategic merge patch, as far as statuses need it (Kubernetes' API conventions;
//! core/v1 `patchStrategy` and `patchMergeKey` of `PodStatus` and `NodeStatus`). Written
//! independently of the core's own code, which makes such patches.

use serde_json::{Map, Value};

/// Applies a patch to an object.
pub fn apply(target: &mut Value, patch: &Value) {
    let Some(patch) = patch.as_object() else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let map = target.as_object_mut().expect("just inserted");
    for (key, value) in patch {
        if key.starts_with('$') {
            continue;
        }
        match value {
            Value::Null => {
                map.remove(key);
            }
            Value::Object(_) => apply(map.entry(key.as_str()).or_insert(Value::Null), value),
            Value::Array(elements) => {
                let list = map.entry(key.as_str()).or_insert(Value::Null);
                apply_list(list, key, elements);
            }
            Value::Bool(_) | Value::Number(_) | Value::String(_) => {
                map.insert(key.clone(), value.clone());
            }
        }
    }
    for (key, order) in patch {
        if let Some(list) = key.strip_prefix("$setElementOrder/")
            && let Some(merge_key) = merge_key(list)
        {
            let list = map.get_mut(list).and_then(Value::as_array_mut);
            sort(list.expect("an order is of a list"), merge_key, order);
        }
    }
}

fn merge_key(list: &str) -> Option<&'static str> {
    match list {
        "conditions" | "addresses" => Some("type"),
        "podIPs" | "hostIPs" => Some("ip"),
        _ => None,
    }
}

fn apply_list(target: &mut Value, name: &str, patch: &[Value]) {
    let Some(key) = merge_key(name) else {
        *target = patch.to_vec().into();
        return;
    };
    let is_value = |element: &&Value| element.get("$patch").is_none();
    let word = |element: &Value, word: &str| element.get("$patch").is_some_and(|it| it == word);
    if !target.is_array() || patch.iter().any(|element| word(element, "replace")) {
        *target = Value::Array(Vec::new());
    }
    let list = target.as_array_mut().expect("just inserted");
    for gone in patch.iter().filter(|element| word(element, "delete")) {
        list.retain(|element| element.get(key) != gone.get(key));
    }
    for element in patch.iter().filter(is_value) {
        match list.iter_mut().find(|old| old.get(key) == element.get(key)) {
            Some(old) => apply(old, element),
            None => list.push(element.clone()),
        }
    }
}

/// Elements that the order does not name stay after those that it names.
fn sort(list: &mut [Value], key: &str, order: &Value) {
    let order = order.as_array().expect("an order is a list");
    let place = |element: &Value| {
        let same = |original: &Value| original.get(key) == element.get(key);
        order.iter().position(same).unwrap_or(order.len())
    };
    list.sort_by_key(place);
}
