//! What differs between two statuses, as the patch that makes the one into the other: a two-way
//! strategic merge patch of Kubernetes, for the `status` of nodes and pods (core/v1).
//!
//! ```text
//!  old: conditions [A=1, B=1]  podIPs [x]      patch: $setElementOrder/conditions [A, B]
//!  new: conditions [A=1, B=2]  podIPs [x]  ──▶        conditions [B=2]
//! ```
//!
//! Of the lists of a status, three are merged by a key, so only the elements that changed are told,
//! and the order of all where anything is told. A node's addresses are merged as well, by a key
//! that is not unique in them, so they are replaced as a whole, as the kubelet does. Every other
//! list is replaced as a whole by the API server itself.
//!
//! `null` and nothing are the same: the patch has no word for the difference.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

/// What makes `old` into `new`, both the JSON of a `status`; `None`: nothing differs.
pub(super) fn diff(old: &Value, new: &Value) -> Option<Value> {
    let none = Map::new();
    let patch = of_maps(
        old.as_object().unwrap_or(&none),
        new.as_object().unwrap_or(&none),
        &|patch, key, old, new| match (old.as_array(), new.as_array(), strategy(key)) {
            (Some(old), Some(new), Some(strategy)) => of_lists(patch, key, strategy, old, new),
            _ => false,
        },
    );
    (!patch.is_empty()).then_some(Value::Object(patch))
}

/// How a list of a status is patched, other than as one value.
#[derive(Clone, Copy, Debug)]
enum Strategy {
    /// Element by element, told apart by this key.
    Merge(&'static str),
    /// As a whole, which has to be said.
    Replace,
}

/// core/v1 `PodStatus` and `NodeStatus`: `patchStrategy`, `patchMergeKey`.
fn strategy(list: &str) -> Option<Strategy> {
    match list {
        "conditions" => Some(Strategy::Merge("type")),
        "podIPs" | "hostIPs" => Some(Strategy::Merge("ip")),
        "addresses" => Some(Strategy::Replace),
        _ => None,
    }
}

/// Patches two values of a key that differ; `false`: not its business.
type Special<'a> = &'a dyn Fn(&mut Map<String, Value>, &str, &Value, &Value) -> bool;

fn of_maps(
    old: &Map<String, Value>,
    new: &Map<String, Value>,
    special: Special<'_>,
) -> Map<String, Value> {
    let mut patch = Map::new();
    let there = |map: &Map<String, Value>, key: &str| map.get(key).is_some_and(|v| !v.is_null());
    for key in old.keys().filter(|key| there(old, key) && !there(new, key)) {
        patch.insert(key.clone(), Value::Null);
    }
    for (key, to) in new.iter().filter(|(_, to)| !to.is_null()) {
        let Some(from) = old.get(key).filter(|from| !from.is_null()) else {
            patch.insert(key.clone(), to.clone());
            continue;
        };
        if same(from, to) || special(&mut patch, key, from, to) {
            continue;
        }
        let value = match (from.as_object(), to.as_object()) {
            (Some(from), Some(to)) => Value::Object(of_maps(from, to, &|_, _, _, _| false)),
            _ => to.clone(),
        };
        patch.insert(key.clone(), value);
    }
    patch
}

/// Patches a list in place; `true`, as it is always told how.
fn of_lists(
    patch: &mut Map<String, Value>,
    name: &str,
    strategy: Strategy,
    old: &[Value],
    new: &[Value],
) -> bool {
    let merged = match strategy {
        Strategy::Merge(key) => keyed(old, key).zip(keyed(new, key)).map(|both| (key, both)),
        Strategy::Replace => None,
    };
    let Some((key, (old, new))) = merged else {
        let replace = std::iter::once(json!({"$patch": "replace"}));
        patch.insert(name.to_owned(), new.iter().cloned().chain(replace).collect());
        return true;
    };
    let mut told = Vec::new();
    let by_id: BTreeMap<&str, &Map<String, Value>> = old.iter().copied().collect();
    let stay: BTreeSet<&str> = new.iter().map(|(id, _)| *id).collect();
    for (id, to) in &new {
        let Some(from) = by_id.get(id) else {
            told.push(Value::Object((*to).clone()));
            continue;
        };
        let mut changes = of_maps(from, to, &|_, _, _, _| false);
        if !changes.is_empty() {
            changes.insert(key.to_owned(), (*id).into());
            told.push(Value::Object(changes));
        }
    }
    for (id, _) in old.iter().filter(|(id, _)| !stay.contains(id)) {
        told.push(json!({"$patch": "delete", key: id}));
    }
    if !new.is_empty() {
        let order = new.iter().map(|(id, _)| json!({key: id})).collect();
        patch.insert(format!("$setElementOrder/{name}"), order);
    }
    if !told.is_empty() {
        patch.insert(name.to_owned(), told.into());
    }
    true
}

/// The elements with their keys; `None`: some have none, or two have the same.
fn keyed<'a>(list: &'a [Value], key: &str) -> Option<Vec<(&'a str, &'a Map<String, Value>)>> {
    let mut all: Vec<(&str, &Map<String, Value>)> = Vec::with_capacity(list.len());
    let mut ids = BTreeSet::new();
    for element in list {
        let element = element.as_object()?;
        let id = element.get(key)?.as_str()?;
        if !ids.insert(id) {
            return None;
        }
        all.push((id, element));
    }
    Some(all)
}

/// Whether two values say the same.
fn same(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Object(one), Value::Object(other)) => {
            let of_other = |key: &String| other.get(key).unwrap_or(&Value::Null);
            one.iter().all(|(key, value)| same(value, of_other(key)))
                && other.iter().all(|(key, value)| value.is_null() || one.contains_key(key))
        }
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| same(one, other))
        }
        (one, other) => one == other,
    }
}

#[cfg(test)]
mod tests;
