//! Tables, KubeEdge's own patches, and random statuses: each patch, applied as the API server
//! applies it, turns the one status into the other.

use super::*;

/// Numbers that look random, always the same (splitmix64).
struct Rng(u64);

impl Rng {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % end
    }
}

/// Applies a patch as the API server does.
fn apply(to: &mut Map<String, Value>, patch: &Map<String, Value>) {
    for (key, value) in patch {
        if key.starts_with("$setElementOrder/") {
            continue;
        }
        let old = to.remove(key);
        let new = match (old, value) {
            (_, Value::Null) => continue,
            (Some(Value::Object(mut old)), Value::Object(value)) => {
                apply(&mut old, value);
                Value::Object(old)
            }
            (Some(Value::Array(mut old)), Value::Array(list)) if strategy(key).is_some() => {
                merge(&mut old, list, merge_key(key));
                Value::Array(old)
            }
            (_, value) => value.clone(),
        };
        to.insert(key.clone(), new);
    }
    for (key, order) in patch {
        if let Some(key) = key.strip_prefix("$setElementOrder/")
            && let Some(Value::Array(list)) = to.get_mut(key)
            && let Some(order) = order.as_array()
        {
            let by = merge_key(key);
            list.sort_by_key(|element| order.iter().position(|other| other[by] == element[by]));
        }
    }
}

fn merge_key(list: &str) -> &'static str {
    if list.ends_with("IPs") { "ip" } else { "type" }
}

fn merge(old: &mut Vec<Value>, patch: &[Value], key: &str) {
    if patch.iter().any(|element| element["$patch"] == "replace") {
        *old = patch.iter().filter(|element| element.get("$patch").is_none()).cloned().collect();
        return;
    }
    for element in patch {
        if element["$patch"] == "delete" {
            old.retain(|other| other[key] != element[key]);
            continue;
        }
        let element = element.as_object().expect("a map");
        match old.iter_mut().find(|other| other.get(key) == element.get(key)) {
            Some(other) => apply(other.as_object_mut().expect("a map"), element),
            None => old.push(Value::Object(element.clone())),
        }
    }
}

fn applied(old: &Value, patch: Option<&Value>) -> Value {
    let mut new = old.as_object().cloned().unwrap_or_default();
    if let Some(patch) = patch {
        apply(&mut new, patch.as_object().expect("a map"));
    }
    Value::Object(new)
}

#[test]
fn a_patch_tells_what_differs_and_no_more() {
    of_a_table(Vec::from([
        ("nothing", json!({}), json!({}), Value::Null),
        ("the same", json!({"a": {"b": [1]}}), json!({"a": {"b": [1]}}), Value::Null),
        ("null is nothing", json!({"a": null}), json!({}), Value::Null),
        ("nor does nothing become null", json!({}), json!({"a": null}), Value::Null),
        ("new", json!({}), json!({"phase": "Running"}), json!({"phase": "Running"})),
        ("gone", json!({"phase": "Running"}), json!({}), json!({"phase": null})),
        ("another kind", json!({"a": {"b": 1}}), json!({"a": 1}), json!({"a": 1})),
        (
            "deep",
            json!({"capacity": {"cpu": "2", "memory": "1Ki", "x": "1"}}),
            json!({"capacity": {"cpu": "2", "memory": "2Ki"}}),
            json!({"capacity": {"memory": "2Ki", "x": null}}),
        ),
        (
            "other lists are one value",
            json!({"images": [{"names": ["a"]}, {"names": ["b"]}]}),
            json!({"images": [{"names": ["a"]}]}),
            json!({"images": [{"names": ["a"]}]}),
        ),
    ]));
}

#[test]
fn lists_are_merged_as_the_api_server_merges_them() {
    of_a_table(Vec::from([
        (
            "a list that was not there is sent as a whole, without an order",
            json!({}),
            json!({"conditions": [{"type": "A", "status": "True"}]}),
            json!({"conditions": [{"type": "A", "status": "True"}]}),
        ),
        (
            "of conditions, what changed; the order of all",
            json!({"conditions": [{"type": "A", "status": "True", "message": "m"}, {"type": "B"}]}),
            json!({"conditions": [{"type": "A", "status": "False"}, {"type": "B"}]}),
            json!({
                "$setElementOrder/conditions": [{"type": "A"}, {"type": "B"}],
                "conditions": [{"type": "A", "status": "False", "message": null}],
            }),
        ),
        (
            "another order only",
            json!({"conditions": [{"type": "A"}, {"type": "B"}]}),
            json!({"conditions": [{"type": "B"}, {"type": "A"}]}),
            json!({"$setElementOrder/conditions": [{"type": "B"}, {"type": "A"}]}),
        ),
        (
            "another address of a pod",
            json!({"podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}]}),
            json!({"podIP": "10.0.0.2", "podIPs": [{"ip": "10.0.0.2"}]}),
            json!({
                "podIP": "10.0.0.2",
                "$setElementOrder/podIPs": [{"ip": "10.0.0.2"}],
                "podIPs": [{"ip": "10.0.0.2"}, {"$patch": "delete", "ip": "10.0.0.1"}],
            }),
        ),
        (
            "no address any more",
            json!({"hostIPs": [{"ip": "10.0.0.1"}]}),
            json!({"hostIPs": []}),
            json!({"hostIPs": [{"$patch": "delete", "ip": "10.0.0.1"}]}),
        ),
        (
            "a node's addresses are replaced",
            json!({"addresses": [{"type": "InternalIP", "address": "10.0.0.1"}]}),
            json!({"addresses": [
                {"type": "InternalIP", "address": "10.0.0.2"},
                {"type": "InternalIP", "address": "fd00::2"},
            ]}),
            json!({"addresses": [
                {"type": "InternalIP", "address": "10.0.0.2"},
                {"type": "InternalIP", "address": "fd00::2"},
                {"$patch": "replace"},
            ]}),
        ),
        (
            "a list that cannot be merged is replaced",
            json!({"conditions": [{"type": "A"}, {"type": "A", "status": "True"}]}),
            json!({"conditions": [{"type": "A"}]}),
            json!({"conditions": [{"type": "A"}, {"$patch": "replace"}]}),
        ),
    ]));
}

fn of_a_table(table: Vec<(&'static str, Value, Value, Value)>) {
    for (what, old, new, patch) in table {
        let got = diff(&old, &new);
        assert_eq!(got.as_ref().unwrap_or(&Value::Null), &patch, "{what}");
        assert!(same(&applied(&old, got.as_ref()), &new), "{what}");
    }
}

/// Recorded between the real EdgeCore and the real `CloudCore`.
const GOLDEN: [&str; 5] = [
    include_str!("../../../tests/golden/edge/00-join.txt"),
    include_str!("../../../tests/golden/edge/02-pod_create.txt"),
    include_str!("../../../tests/golden/statuses/04-statuses-of-pod_update_image.txt"),
    include_str!("../../../tests/golden/statuses/05-statuses-of-pod_full.txt"),
    include_str!("../../../tests/golden/statuses/12-statuses-of-pod_delete.txt"),
];

/// From the status that the cloud had to the one that it had after it.
#[test]
fn the_patches_are_those_of_edgecore() {
    let mut tested = 0;
    for conversation in GOLDEN {
        let mut had = Value::Null;
        let mut patch = None;
        for line in conversation.lines() {
            let message: Value = serde_json::from_str(&line[2..]).expect("a message");
            let content = &message["content"];
            if message["route"]["operation"] == "patch" {
                let text = content.as_str().expect("a text");
                patch = Some(serde_json::from_str::<Value>(text).expect("a patch"));
                continue;
            }
            // The same status is sent as an answer and as an update of its own, in either order.
            let object = if content["Object"].is_object() { &content["Object"] } else { content };
            let Some(status) = object.get("status") else { continue };
            if let Some(patch) = patch.take() {
                let got = diff(&had, status);
                let theirs = patch.get("status");
                assert_eq!(got.as_ref(), theirs, "from {had} to {status}");
                assert!(same(&applied(&had, got.as_ref()), status), "{got:?} of {had}");
                tested += 1;
            }
            had = status.clone();
        }
    }
    assert_eq!(tested, 10);
}

#[test]
fn a_patch_makes_any_status_into_any_other() {
    let mut rng = Rng(5);
    for round in 0..5_000 {
        let (old, new) = (status(&mut rng), status(&mut rng));
        let patch = diff(&old, &new);
        let got = applied(&old, patch.as_ref());
        assert!(same(&got, &new), "{round}: {old} and {patch:?} made {got}, expected {new}");
        assert_eq!(diff(&got, &new), None, "{round}: nothing is left to patch");
        assert_eq!(patch.is_none(), same(&old, &new), "{round}");
    }
}

fn status(rng: &mut Rng) -> Value {
    let mut status = Map::new();
    let keys = ["phase", "conditions", "podIPs", "addresses", "capacity", "images", "nodeInfo"];
    for key in keys {
        let value = match (rng.below(5), key) {
            (0, _) => continue,
            (1, _) => Value::Null,
            (_, "phase") => scalar(rng),
            (_, "conditions") => elements(rng, "type"),
            (_, "podIPs") => elements(rng, "ip"),
            (_, "addresses") => (0..rng.below(3)).map(|_| map(rng, 1)).collect(),
            (_, "images") => (0..rng.below(3)).map(|_| map(rng, 1)).collect(),
            _ => map(rng, 2),
        };
        status.insert(key.to_owned(), value);
    }
    Value::Object(status)
}

/// Keys are mostly unique.
fn elements(rng: &mut Rng, key: &str) -> Value {
    let mut list: Vec<Value> = Vec::new();
    for _ in 0..rng.below(4) {
        let mut element = map(rng, 0);
        element[key] = format!("k{}", rng.below(4)).into();
        if rng.below(20) == 0 || list.iter().all(|other| other[key] != element[key]) {
            list.push(element);
        }
    }
    list.into()
}

fn map(rng: &mut Rng, depth: u32) -> Value {
    let mut map = Map::new();
    for key in ["a", "b", "c"] {
        match rng.below(4) {
            0 => None,
            1 if depth > 0 => map.insert(key.to_owned(), self::map(rng, depth - 1)),
            _ => map.insert(key.to_owned(), scalar(rng)),
        };
    }
    Value::Object(map)
}

fn scalar(rng: &mut Rng) -> Value {
    match rng.below(6) {
        0 => Value::Null,
        1 => json!(true),
        2 => json!([]),
        3 => json!({}),
        number => json!(number),
    }
}

#[test]
fn the_work_of_a_patch_grows_with_its_lists_and_not_with_their_square() {
    // If each element were compared with each other, these would take minutes.
    let ips = |from: usize| -> Vec<Value> {
        (from..from + 100_000).map(|n| json!({"ip": n.to_string()})).collect()
    };
    let (old, new) = (json!({"podIPs": ips(0)}), json!({"podIPs": ips(50_000)}));
    let patch = diff(&old, &new).expect("they differ");
    let changed = patch["podIPs"].as_array().expect("what came and what went").len();
    assert_eq!(changed, 100_000);
}
