//! Applies patches as the API server does: JSON merge patches (RFC 7396) and strategic merge
//! patches (Kubernetes' API conventions), whose lists are merged by a key that the type declares.
//!
//! The declarations (`patchStrategy` and `patchMergeKey` of core/v1) are listed by the name of the
//! list alone: among those of nodes, pods and their statuses, no two with one name differ.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use crate::limits::{LOCAL_LIST_MAX, LOCAL_PATCH_STEPS_MAX};
use crate::model::error::Peer;

/// Applies a JSON merge patch.
pub fn merge(target: &mut Value, patch: &Value) {
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

/// Applies a strategic merge patch. The error says what is invalid or too large.
pub fn strategic(target: &mut Value, patch: &Value) -> Result<(), Peer> {
    Strategic::default().merge(target, patch)
}

/// A strategic merge and its cost so far. A node may send any patch: lists are indexed by their
/// keys, and a patch that repeats an element so that its lists are indexed again reaches the limit.
#[derive(Debug, Default)]
struct Strategic {
    /// Elements and keys visited.
    steps: usize,
}

impl Strategic {
    fn merge(&mut self, target: &mut Value, patch: &Value) -> Result<(), Peer> {
        let Some(patch) = patch.as_object() else {
            *target = patch.clone();
            return Ok(());
        };
        if directive(patch) == Some("replace") {
            let fields = patch.iter().filter(|(key, _)| *key != DIRECTIVE);
            let fields = fields.map(|(key, value)| (key.clone(), value.clone()));
            *target = Value::Object(fields.collect());
            return Ok(());
        }
        let map = as_map(target);
        if let Some(retained) = patch.get(RETAIN).and_then(Value::as_array) {
            self.count(retained.len() + map.len())?;
            let retained: BTreeSet<&str> = retained.iter().filter_map(Value::as_str).collect();
            map.retain(|key, _| retained.contains(&**key));
        }
        self.count(patch.len())?;
        for (key, value) in patch {
            if let Some(list) = key.strip_prefix(PRIMITIVES) {
                let removed = value.as_array().ok_or_else(|| Peer::at(key, "expected a list"))?;
                if let Some(list) = map.get_mut(list).and_then(Value::as_array_mut) {
                    self.remove(list, removed)?;
                }
            }
            if key.starts_with('$') {
                continue;
            }
            match value {
                Value::Null => drop(map.remove(key)),
                Value::Object(_) => {
                    self.merge(map.entry(key.as_str()).or_insert(Value::Null), value)?;
                }
                Value::Array(elements) => {
                    let list = map.entry(key.as_str()).or_insert(Value::Null);
                    self.merge_list(list, key, elements)?;
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
                let order = order.as_array().ok_or_else(|| Peer::at(key, "expected a list"))?;
                self.sort(list, merge_key(name), order)?;
            }
        }
        Ok(())
    }

    fn merge_list(&mut self, target: &mut Value, name: &str, patch: &[Value]) -> Result<(), Peer> {
        let Some(key) = merge_key(name) else {
            if PRIMITIVE_LISTS.contains(&name) {
                return self.add(as_list(target), patch);
            }
            *target = patch.to_vec().into();
            return Ok(());
        };
        if patch.iter().any(|element| element_directive(element) == Some("replace")) {
            // Unchanged: a node may have two addresses of one type.
            let mut list = Vec::new();
            for element in patch.iter().filter(|element| element_directive(element).is_none()) {
                list.push(Value::Null);
                self.merge(list.last_mut().expect("pushed just now"), element)?;
            }
            *target = list.into();
            return Ok(());
        }
        let list = as_list(target);
        let mut elements: Vec<Option<Value>> = list.drain(..).map(Some).collect();
        let mut index: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        for (at, element) in elements.iter().enumerate() {
            if let Some(identity) = element.as_ref().and_then(|element| element.get(key)) {
                index.entry(self.identity(identity)?).or_default().push(at);
            }
        }
        for element in patch {
            let wanted = element.get(key);
            let wanted = wanted
                .ok_or_else(|| Peer::at(name, format_args!("got an element without {key}")))?;
            let wanted = self.identity(wanted)?;
            if element_directive(element) == Some("delete") {
                for at in index.remove(&wanted).into_iter().flatten() {
                    elements[at] = None;
                }
                continue;
            }
            let at = index.entry(wanted).or_insert_with(|| vec![elements.len()])[0];
            if at == elements.len() {
                if at >= LOCAL_LIST_MAX {
                    return Err(Peer::at(
                        name,
                        format_args!("got more than {LOCAL_LIST_MAX} elements"),
                    ));
                }
                elements.push(Some(Value::Null));
            }
            let target = elements[at].as_mut().expect("one that is indexed is there");
            self.merge(target, element)?;
        }
        list.extend(elements.into_iter().flatten());
        Ok(())
    }

    /// Merges a set of strings.
    fn add(&mut self, list: &mut Vec<Value>, patch: &[Value]) -> Result<(), Peer> {
        let mut known = self.identities(list)?;
        for element in patch.iter().filter(|element| !element.is_object()) {
            if known.insert(self.identity(element)?) {
                list.push(element.clone());
            }
        }
        Ok(())
    }

    fn remove(&mut self, list: &mut Vec<Value>, removed: &[Value]) -> Result<(), Peer> {
        let removed = self.identities(removed)?;
        self.count(list.len())?;
        list.retain(|element| !removed.contains(&element.to_string()));
        Ok(())
    }

    /// Elements that the order does not name stay behind those that it names.
    fn sort(&mut self, list: &mut [Value], key: Option<&str>, order: &[Value]) -> Result<(), Peer> {
        let of = |element: &Value| match key {
            Some(key) => element.get(key).map(Value::to_string),
            None => Some(element.to_string()),
        };
        self.count(order.len() + list.len())?;
        let mut places: BTreeMap<Option<String>, usize> = BTreeMap::new();
        for (at, element) in order.iter().enumerate() {
            places.entry(of(element)).or_insert(at);
        }
        list.sort_by_cached_key(|element| *places.get(&of(element)).unwrap_or(&order.len()));
        Ok(())
    }

    fn identities(&mut self, list: &[Value]) -> Result<BTreeSet<String>, Peer> {
        list.iter().map(|element| self.identity(element)).collect()
    }

    /// The identity of a value in a list.
    fn identity(&mut self, value: &Value) -> Result<String, Peer> {
        let text = value.to_string();
        self.count(1 + text.len() / STEP_BYTES)?;
        Ok(text)
    }

    fn count(&mut self, steps: usize) -> Result<(), Peer> {
        self.steps += steps;
        if self.steps <= LOCAL_PATCH_STEPS_MAX {
            return Ok(());
        }
        Err(Peer::new(format!(
            "got a patch of more than {LOCAL_PATCH_STEPS_MAX} steps, expected fewer"
        )))
    }
}

/// The merge key of a list; `None`: it is replaced as a whole.
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

/// The directive of an element.
fn element_directive(element: &Value) -> Option<&str> {
    element.as_object().and_then(directive)
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

/// Bytes of a key that cost as much as one element.
const STEP_BYTES: usize = 64;
const DIRECTIVE: &str = "$patch";
const RETAIN: &str = "$retainKeys";
const ORDER: &str = "$setElementOrder/";
const PRIMITIVES: &str = "$deleteFromPrimitiveList/";
/// Lists of strings, merged as sets.
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
    fn lists_are_merged_by_their_key_and_ordered_as_requested() {
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
        assert_eq!(why.to_string(), "conditions: got an element without type");
    }

    fn steps(target: &mut Value, patch: &Value) -> Result<usize, Peer> {
        let mut merge = Strategic::default();
        merge.merge(target, patch).map(|()| merge.steps)
    }

    #[test]
    fn the_work_of_a_patch_grows_with_its_size_and_not_with_its_square() {
        let conditions = |count: usize| -> Vec<Value> {
            (0..count).map(|at| json!({"type": format!("t{at}"), "status": "True"})).collect()
        };
        let (half, all) = (conditions(LOCAL_LIST_MAX / 2), conditions(LOCAL_LIST_MAX));
        let texts: Vec<Value> = (0..LOCAL_LIST_MAX).map(|at| json!(format!("f{at}"))).collect();
        for (old, make) in [
            (json!({}), (|list| json!({"conditions": list})) as fn(&[Value]) -> Value),
            (json!({"conditions": all}), |list| json!({"conditions": list})),
            (json!({"conditions": all}), |list| json!({"$setElementOrder/conditions": list})),
        ] {
            let few = steps(&mut old.clone(), &make(&half)).expect("fine");
            let many = steps(&mut old.clone(), &make(&all)).expect("fine");
            assert!(many <= 2 * few && many <= 8 * all.len(), "{few} {many}");
        }
        for patch in [
            json!({"finalizers": texts}),
            json!({"$deleteFromPrimitiveList/finalizers": texts}),
            json!({"$retainKeys": texts, "f1": 1}),
        ] {
            let many = steps(&mut json!({"finalizers": texts}), &patch).expect("fine");
            assert!(many <= 4 * texts.len(), "{many}");
        }
    }

    #[test]
    fn lists_are_bounded_and_so_is_what_a_patch_costs() {
        let conditions: Vec<Value> =
            (0..=LOCAL_LIST_MAX).map(|at| json!({"type": at, "status": "True"})).collect();
        let mut target = json!({"conditions": conditions});
        // An element of an older version stays, and its fields are changed.
        let one = json!({"conditions": [{"type": 1, "status": "False"}]});
        strategic(&mut target, &one).expect("it does not grow");
        let why = strategic(&mut json!({}), &json!({"conditions": conditions}));
        let many = format!("conditions: got more than {LOCAL_LIST_MAX} elements");
        assert_eq!(why, Err(Peer::new(many)));
        // Each repetition of a container would index its variables again.
        let old = json!({"containers": [{"name": "a", "env": target["conditions"]}]});
        let again = json!({"name": "a", "env": [{"name": "v1"}]});
        let patch = json!({"containers": vec![again; LOCAL_LIST_MAX]});
        let mut env = old.clone();
        for (at, element) in
            env["containers"][0]["env"].as_array_mut().into_iter().flatten().enumerate()
        {
            element["name"] = json!(format!("v{at}"));
        }
        let why = strategic(&mut env, &patch).expect_err("millions of steps").to_string();
        assert!(why.contains("steps, expected fewer"), "{why}");
    }

    #[test]
    fn the_steps_of_a_patch_are_counted_up_to_their_bound() {
        let retain = |count: usize| json!({"$retainKeys": vec![json!("a"); count]});
        // Each of these keys, and that of the directive.
        let most = steps(&mut json!({}), &retain(LOCAL_PATCH_STEPS_MAX - 1));
        assert_eq!(most, Ok(LOCAL_PATCH_STEPS_MAX));
        let why = steps(&mut json!({}), &retain(LOCAL_PATCH_STEPS_MAX))
            .expect_err("one more")
            .to_string();
        let expected = format!("got a patch of more than {LOCAL_PATCH_STEPS_MAX} steps, expected");
        assert!(why.starts_with(&expected), "{why}");
    }

    #[test]
    fn elements_of_one_key_in_a_list_that_is_replaced_stay() {
        let mut status = json!({"addresses": [{"type": "Hostname", "address": "a"}]});
        let two = json!([
            {"type": "InternalIP", "address": "192.0.2.1"},
            {"type": "InternalIP", "address": "2001:db8::1"},
        ]);
        let mut patch = json!({"addresses": two});
        patch["addresses"].as_array_mut().expect("a list").push(json!({"$patch": "replace"}));
        strategic(&mut status, &patch).expect("it makes sense");
        assert_eq!(status["addresses"], two);
    }

    #[test]
    fn all_of_one_key_are_deleted_and_may_come_again() {
        let mut status = json!({"conditions": [
            {"type": "A", "n": 1}, {"type": "B"}, {"type": "A", "n": 2}, {"no": "type"},
        ]});
        let patch = json!({"conditions": [
            {"$patch": "delete", "type": "A"}, {"type": "A", "n": 3}, {"type": "A", "m": 4},
        ]});
        strategic(&mut status, &patch).expect("it makes sense");
        let expected = json!([{"type": "B"}, {"no": "type"}, {"type": "A", "n": 3, "m": 4}]);
        assert_eq!(status["conditions"], expected);
    }
}
