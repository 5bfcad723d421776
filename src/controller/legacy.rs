//! Converts the full statuses that edges up to 1.11 send (wire spec sections 5.3 and 5.6) into
//! patches: what others have set stays.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use super::time::Now;

/// The patch (RFC 7396) of a node's status. Attached volumes, and the port that a tunnel has set,
/// are not the node's to set.
pub(super) fn node_status(mut new: Map<String, Value>, old: Option<&str>) -> Value {
    let old = status_of(old);
    new.remove("volumesAttached");
    if old["daemonEndpoints"]["kubeletEndpoint"]["Port"].as_u64().is_some_and(|port| port != 0) {
        new.remove("daemonEndpoints");
    }
    let conditions = merged(new.remove("conditions"), &old["conditions"], None);
    new.insert("conditions".to_owned(), conditions);
    Value::Object(new)
}

/// The patch (RFC 7396) of a pod's status: all of it, except conditions that others have set.
pub(super) fn pod_status(mut new: Map<String, Value>, old: &str, now: Now) -> Value {
    let old = status_of(Some(old));
    let at = now.timestamp().map(|at| at.to_string());
    let conditions = merged(new.remove("conditions"), &old["conditions"], at.as_deref());
    new.insert("conditions".to_owned(), conditions);
    if old["startTime"].is_string() {
        new.insert("startTime".to_owned(), old["startTime"].clone());
    }
    if let Some(statuses) = new.get_mut("containerStatuses").and_then(Value::as_array_mut) {
        statuses.sort_by(|a, b| a["name"].as_str().cmp(&b["name"].as_str()));
    }
    for key in old.as_object().into_iter().flat_map(Map::keys) {
        // These are set by the scheduler and other components.
        let others = matches!(&**key, "qosClass" | "nominatedNodeName" | "resize");
        if !others && !new.contains_key(key) {
            new.insert(key.clone(), Value::Null);
        }
    }
    Value::Object(new)
}

/// Whether the pod has ended, and all its containers have ended or never started.
pub(super) fn is_terminated(status: &Value) -> bool {
    let ended = matches!(status["phase"].as_str(), Some("Succeeded" | "Failed"));
    let statuses = status["containerStatuses"].as_array().into_iter().flatten();
    ended
        && statuses.into_iter().all(|status| {
            let state = &status["state"];
            state["terminated"].is_object() || state["waiting"].is_object()
        })
}

fn status_of(object: Option<&str>) -> Value {
    let object = object.and_then(|text| serde_json::from_str::<Value>(text).ok());
    object.map_or(Value::Null, |mut object| object["status"].take())
}

/// Conditions by their type. An unchanged condition keeps its transition time; a condition that was
/// not sent stays: the scheduler sets `PodScheduled`.
fn merged(new: Option<Value>, old: &Value, now: Option<&str>) -> Value {
    let old = old.as_array().cloned().unwrap_or_default();
    let mut all = Vec::new();
    let new = match new {
        Some(Value::Array(new)) => new,
        Some(_) | None => Vec::new(),
    };
    // A node may send any number of them, and repeat them.
    let kind = |condition: &Value| condition["type"].to_string();
    let mut before: BTreeMap<String, &Value> = BTreeMap::new();
    for condition in &old {
        before.entry(kind(condition)).or_insert(condition);
    }
    let mut sent = BTreeSet::new();
    for mut condition in new {
        let kind = kind(&condition);
        let before = before.get(&kind);
        let same = before.is_some_and(|before| before["status"] == condition["status"]);
        let since = match before {
            Some(before) if same => before["lastTransitionTime"].clone(),
            Some(_) | None if condition["lastTransitionTime"].is_string() => {
                condition["lastTransitionTime"].clone()
            }
            Some(_) | None => json!(now),
        };
        if condition.is_object() && !since.is_null() {
            condition["lastTransitionTime"] = since;
        }
        sent.insert(kind);
        all.push(condition);
    }
    all.extend(old.iter().filter(|before| !sent.contains(&kind(before))).cloned());
    Value::Array(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controller::time::{Instant, Wall};

    fn map(value: &Value) -> Map<String, Value> {
        value.as_object().cloned().expect("a map")
    }

    #[test]
    fn a_pods_status_is_replaced_except_the_fields_of_others() {
        let now = Now { boot: Instant(0), wall: Some(Wall(1_800_000_000_000)) };
        let old = json!({"status": {"startTime": "s", "message": "old", "qosClass": "Burstable",
            "conditions": [
                {"type": "PodScheduled", "status": "True", "lastTransitionTime": "a"},
                {"type": "Ready", "status": "True", "lastTransitionTime": "b"},
                {"type": "Initialized", "status": "False", "lastTransitionTime": "c"}]}});
        let new = map(&json!({"phase": "Running", "startTime": "later", "conditions": [
                {"type": "Ready", "status": "True", "lastTransitionTime": "x"},
                {"type": "Initialized", "status": "True"}],
            "containerStatuses": [{"name": "b"}, {"name": "a"}]}));
        let expected = json!({"phase": "Running", "startTime": "s", "message": null, "conditions": [
                {"type": "Ready", "status": "True", "lastTransitionTime": "b"},
                {"type": "Initialized", "status": "True",
                 "lastTransitionTime": "2027-01-15T08:00:00Z"},
                {"type": "PodScheduled", "status": "True", "lastTransitionTime": "a"}],
            "containerStatuses": [{"name": "a"}, {"name": "b"}]});
        assert_eq!(pod_status(new, &old.to_string(), now), expected);
    }

    #[test]
    fn any_number_of_conditions_is_merged_in_time_that_grows_with_it() {
        // If each were compared with each other, these would take hours.
        let conditions = |from: usize| -> Value {
            let one = |n: usize| json!({"type": n.to_string(), "status": "True"});
            (from..from + 100_000).map(one).collect()
        };
        let old = json!({"status": {"conditions": conditions(0)}}).to_string();
        let new = map(&json!({"conditions": conditions(50_000)}));
        let status = node_status(new, Some(&old));
        assert_eq!(status["conditions"].as_array().map(Vec::len), Some(150_000));
    }

    #[test]
    fn a_nodes_status_leaves_volumes_and_the_tunnels_port_alone() {
        let old = json!({"status": {"daemonEndpoints": {"kubeletEndpoint": {"Port": 10351}}}});
        let new = map(&json!({"volumesAttached": [], "capacity": {"cpu": "1"},
            "daemonEndpoints": {"kubeletEndpoint": {"Port": 10350}}, "conditions": []}));
        let expected = json!({"capacity": {"cpu": "1"}, "conditions": []});
        assert_eq!(node_status(new, Some(&old.to_string())), expected);
    }

    #[test]
    fn a_pod_is_over_when_it_ended_and_nothing_of_it_runs() {
        for (status, over) in [
            (json!({"phase": "Succeeded"}), true),
            (json!({"phase": "Running"}), false),
            (json!({"phase": "Failed", "containerStatuses": [{"state": {"running": {}}}]}), false),
            (
                json!({"phase": "Failed", "containerStatuses": [
                    {"state": {"terminated": {}}}, {"state": {"waiting": {}}}]}),
                true,
            ),
        ] {
            assert_eq!(is_terminated(&status), over, "{status}");
        }
    }
}
