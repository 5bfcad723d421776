//! Computes the patch that turns one status into another: a two-way strategic merge patch of
//! Kubernetes, for the `status` of nodes and pods (core/v1).
//!
//! ```text
//!  old: conditions [A=1, B=1]  podIPs [x]      patch: $setElementOrder/conditions [A, B]
//!  new: conditions [A=1, B=2]  podIPs [x]  ──▶        conditions [B=2]
//! ```
//!
//! Three of the lists of a status are merged by a key, so only the elements that changed are sent,
//! and the order of all if anything is sent. A node's addresses are merged as well, by a key that
//! is not unique in them, so they are replaced as a whole, as the kubelet does. Every other list is
//! replaced as a whole by the API server itself.
//!
//! `null` and a missing key are the same: a patch cannot express the difference.
//!
//! In the model and not in `wire`, because a core decides by it: what makes no difference is not
//! sent.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

/// The part of a status that differs, as JSON: the content of a patch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatusPatch(Box<str>);

impl StatusPatch {
    pub(super) fn new(difference: &Value) -> Self {
        Self(difference.to_string().into())
    }

    /// The value of the patch's `status`.
    pub fn json(&self) -> &str {
        &self.0
    }
}

/// The patch that turns `old` into `new`, both the JSON of a `status`; `None`: no difference.
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

/// How a list of a status is patched, if not as one value.
#[derive(Clone, Copy, Debug)]
enum Strategy {
    /// Element by element, identified by this key.
    Merge(&'static str),
    /// As a whole, which the patch has to say.
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

/// Patches two values of a key that differ; returns `false` if it does not handle this key.
type Special<'a> = &'a dyn Fn(&mut Map<String, Value>, &str, &Value, &Value) -> bool;

fn of_maps(
    old: &Map<String, Value>,
    new: &Map<String, Value>,
    special: Special<'_>,
) -> Map<String, Value> {
    let mut patch = Map::new();
    let is_set = |map: &Map<String, Value>, key: &str| map.get(key).is_some_and(|v| !v.is_null());
    for key in old.keys().filter(|key| is_set(old, key) && !is_set(new, key)) {
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

/// Patches a list in place; always returns `true`: the patch is complete.
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
    let mut changed = Vec::new();
    let by_id: BTreeMap<&str, &Map<String, Value>> = old.iter().copied().collect();
    let stay: BTreeSet<&str> = new.iter().map(|(id, _)| *id).collect();
    for (id, to) in &new {
        let Some(from) = by_id.get(id) else {
            changed.push(Value::Object((*to).clone()));
            continue;
        };
        let mut changes = of_maps(from, to, &|_, _, _, _| false);
        if !changes.is_empty() {
            changes.insert(key.to_owned(), (*id).into());
            changed.push(Value::Object(changes));
        }
    }
    for (id, _) in old.iter().filter(|(id, _)| !stay.contains(id)) {
        changed.push(json!({"$patch": "delete", key: id}));
    }
    if !new.is_empty() {
        let order = new.iter().map(|(id, _)| json!({key: id})).collect();
        patch.insert(format!("$setElementOrder/{name}"), order);
    }
    if !changed.is_empty() {
        patch.insert(name.to_owned(), changed.into());
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

/// Whether two values are equal.
fn same(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Object(left), Value::Object(right)) => {
            let in_right = |key: &String| right.get(key).unwrap_or(&Value::Null);
            left.iter().all(|(key, value)| same(value, in_right(key)))
                && right.iter().all(|(key, value)| value.is_null() || left.contains_key(key))
        }
        (Value::Array(left), Value::Array(right)) => {
            left.len() == right.len()
                && left.iter().zip(right).all(|(left, right)| same(left, right))
        }
        (left, right) => left == right,
    }
}

#[cfg(test)]
mod tests;
