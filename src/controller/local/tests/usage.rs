//! What nodes may store, up to the limit and beyond it.

use super::*;
use crate::limits::{
    LOCAL_ANNOTATIONS_BYTES_MAX, LOCAL_BYTES_MAX, LOCAL_DEPTH_MAX, LOCAL_LIST_MAX,
    LOCAL_NODE_BYTES_MAX, LOCAL_NODE_PODS, LOCAL_NODE_PODS_MAX, LOCAL_NODE_RESERVE_BYTES,
    LOCAL_NODES_MAX, LOCAL_OBJECT_BYTES_MAX, LOCAL_OBJECTS_MAX,
};

fn nested(depth: usize) -> Value {
    (1..depth).fold(json!({}), |inner, _| json!({"a": inner}))
}

fn status(kind: Kind, name: &str, status: &Value) -> Call {
    let patch = Verb::Patch(PatchType::Merge);
    let mut call = call(patch, kind, name, &json!({"status": status}));
    call.subresource = Some(Subresource::Status);
    call
}

fn mirror(node: &str, name: &str, note: &str) -> Call {
    let mut pod = pod(node, "a:1");
    pod["metadata"] = json!({"annotations": {"kubernetes.io/config.mirror": note}});
    call(Verb::Create, Kind::Pod, name, &pod)
}

#[test]
fn one_object_has_bounds_in_bytes_depth_and_lists() {
    let mut objects = with_node("gw");
    let text = |bytes: usize| json!({"a": "x".repeat(bytes)});
    let list = |count: usize| json!({"a": vec![0; count]});
    for (fits, too_much, expected) in [
        (nested(LOCAL_DEPTH_MAX - 1), nested(LOCAL_DEPTH_MAX), (422, "Invalid")),
        (list(LOCAL_LIST_MAX), list(LOCAL_LIST_MAX + 1), (422, "Invalid")),
        (
            text(LOCAL_OBJECT_BYTES_MAX - 1_000),
            text(LOCAL_OBJECT_BYTES_MAX),
            (413, "RequestEntityTooLarge"),
        ),
    ] {
        let before = value(objects.call(&status(Kind::Node, "gw", &json!({"b": 1})), NOW));
        let refused = code(objects.call(&status(Kind::Node, "gw", &too_much), NOW));
        assert_eq!(refused, (expected.0, expected.1.to_owned()));
        let get = call(Verb::Get, Kind::Node, "gw", &Value::Null);
        assert_eq!(value(objects.call(&get, NOW)), before, "nothing of it counts");
        value(objects.call(&status(Kind::Node, "gw", &fits), NOW));
        let delete = json!({"a": null});
        value(objects.call(&status(Kind::Node, "gw", &delete), NOW));
    }
    let list = format!("[{}]", objects.all(Kind::Node, "").collect::<Vec<&str>>().join(","));
    serde_json::from_str::<Value>(&list).expect("everybody can read it");
}

#[test]
fn all_objects_together_have_a_limit_and_heartbeats_are_accepted_beyond_it() {
    let mut objects = with_node("gw");
    // As if other nodes had stored this much.
    objects.usage.bytes = LOCAL_BYTES_MAX;
    let create = call(Verb::Create, Kind::Pod, "web", &pod("gw", "a:1"));
    assert_eq!(code(objects.call(&create, NOW)), (429, "TooManyRequests".to_owned()));
    value(objects.call(&status(Kind::Node, "gw", &json!({"b": 1})), NOW));
}

#[test]
fn a_full_store_takes_a_node_of_an_honest_size_and_no_larger_one() {
    for (more, fits) in [(0, true), (1, false)] {
        let mut objects = with_node("gw");
        let of = |text: &str| status(Kind::Node, "gw", &json!({"a": text}));
        let empty = value(objects.call(&of(""), NOW)).to_string().len();
        objects.usage.bytes = LOCAL_BYTES_MAX;
        let text = "x".repeat(LOCAL_NODE_RESERVE_BYTES - empty + more);
        let done = objects.call(&of(&text), NOW);
        if fits {
            assert_eq!(value(done).to_string().len(), LOCAL_NODE_RESERVE_BYTES);
        } else {
            assert_eq!(code(done), (429, "TooManyRequests".to_owned()));
        }
    }
}

#[test]
fn objects_are_counted_and_nodes_have_places_beyond_the_others() {
    let mut objects = with_node("gw");
    // As if other nodes had stored so many.
    let fill = |objects: &mut Objects, count: usize| {
        for number in objects.rows.len()..count {
            let key = key(Kind::ConfigMap, &format!("c-{number}"));
            let row = Row { text: "{}".into(), made_of: None };
            let object = Object::new(&key, row, &Value::Null);
            objects.rows.insert(key, object);
        }
    };
    let node = |name: &str| call(Verb::Create, Kind::Node, name, &json!({}));
    let mut lease = call(Verb::Create, Kind::Lease, "gw", &json!({"spec": {}}));
    lease.namespace = "kube-node-lease".into();
    let full = (429, "TooManyRequests".to_owned());
    fill(&mut objects, LOCAL_OBJECTS_MAX - 1);
    value(objects.call(&mirror("gw", "last", "x"), NOW));
    assert_eq!(code(objects.call(&mirror("gw", "more", "x"), NOW)), full);
    value(objects.call(&node("gw-2"), NOW));
    fill(&mut objects, LOCAL_OBJECTS_MAX + LOCAL_NODES_MAX - 1);
    value(objects.call(&lease, NOW));
    assert_eq!(code(objects.call(&node("gw-3"), NOW)), full);
    value(objects.call(&status(Kind::Node, "gw", &json!({"phase": "x"})), NOW));
    let delete = call(Verb::Delete, Kind::Node, "gw-2", &Value::Null);
    value(objects.call(&delete, NOW));
    value(objects.call(&node("gw-3"), NOW));
}

#[test]
fn annotations_grow_up_to_their_bound_and_the_node_goes_on() {
    let mut objects = with_node("gw");
    let grow = |name: &str, bytes: usize| {
        let body = json!({"metadata": {"annotations": {name: "x".repeat(bytes)}}});
        call(Verb::Patch(PatchType::Merge), Kind::Node, "gw", &body)
    };
    value(objects.call(&grow("a", LOCAL_ANNOTATIONS_BYTES_MAX - 10), NOW));
    assert_eq!(code(objects.call(&grow("b", 10), NOW)).0, 422);
    value(objects.call(&grow("a", 10), NOW));
    value(objects.call(&status(Kind::Node, "gw", &json!({"phase": "x"})), NOW));
}

#[test]
fn a_node_has_twice_as_many_mirror_pods_as_it_takes_pods() {
    for (capacity, most) in [
        (Value::Null, LOCAL_NODE_PODS),
        (json!("20"), 20),
        (json!(7), 7),
        (json!(1_000_000_000_u64), LOCAL_NODE_PODS_MAX),
        (json!("many"), LOCAL_NODE_PODS),
    ] {
        let mut objects = with_node("gw");
        let capacity = json!({"capacity": {"pods": capacity}});
        value(objects.call(&status(Kind::Node, "gw", &capacity), NOW));
        for number in 0..2 * most {
            value(objects.call(&mirror("gw", &format!("m-{number}"), "x"), NOW));
        }
        let one_more = code(objects.call(&mirror("gw", "more", "x"), NOW));
        assert_eq!(one_more, (429, "TooManyRequests".to_owned()), "{capacity}");
        let delete = json!({"gracePeriodSeconds": 0});
        value(objects.call(&call(Verb::Delete, Kind::Pod, "m-0", &delete), NOW));
        value(objects.call(&mirror("gw", "more", "x"), NOW));
        value(objects.call(&mirror("other", "theirs", "x"), NOW));
    }
}

#[test]
fn a_node_fills_its_share_and_lives_and_others_do_not_notice() {
    let mut objects = with_node("gw");
    let note = "x".repeat(LOCAL_ANNOTATIONS_BYTES_MAX - 100);
    let made = (0..1_000).take_while(|number| {
        objects.call(&mirror("gw", &format!("m-{number}"), &note), NOW).is_ok()
    });
    let made = made.count();
    assert_eq!(made, LOCAL_NODE_BYTES_MAX / note.len() - 1, "some more than the notes");
    assert!(objects.usage.of("gw").bytes <= LOCAL_NODE_BYTES_MAX);
    let mut lease = call(Verb::Create, Kind::Lease, "gw", &json!({"spec": {}}));
    lease.namespace = "kube-node-lease".into();
    value(objects.call(&lease, NOW));
    value(objects.call(&status(Kind::Node, "gw", &json!({"phase": "x"})), NOW));
    value(objects.call(&mirror("other", "theirs", &note), NOW));
    for number in 0..made {
        let delete = json!({"gracePeriodSeconds": 0});
        let name = format!("m-{number}");
        value(objects.call(&call(Verb::Delete, Kind::Pod, &name, &delete), NOW));
    }
    let share = objects.usage.of("gw");
    assert!(share.bytes < 2_000 && share.mirrors == 0, "{share:?}");
}

#[test]
fn objects_of_an_older_version_beyond_the_limits_lock_no_node_out() {
    let row = |value: Value| Row { text: value.to_string().into(), made_of: None };
    let meta = |name: &str| json!({"name": name, "uid": "u", "resourceVersion": "5"});
    let mut grown = meta("grown");
    grown["labels"] = json!({EDGE_LABEL: ""});
    grown["annotations"] = json!({"a": "x".repeat(3 << 20)});
    let large = "x".repeat(2 << 20);
    let mut rows = vec![
        (key(Kind::Node, "grown"), row(json!({"metadata": grown}))),
        (key(Kind::Node, "deep"), row(json!({"metadata": meta("deep"), "status": nested(120)}))),
        (key(Kind::Node, "fat"), row(json!({"metadata": meta("fat"), "status": {"a": large}}))),
        (key(Kind::Node, "spec"), row(json!({"metadata": meta("spec"), "spec": {"a": large}}))),
    ];
    for number in 0..2 * LOCAL_NODE_PODS + 30 {
        let name = format!("m-{number}");
        let mut pod = pod("gw", "a:1");
        pod["metadata"] = meta(&name);
        pod["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": "x"});
        rows.push((key(Kind::Pod, &name), row(pod)));
    }
    let mut objects = Objects::load(rows, 1_000, 7);
    assert_eq!(objects.trimmed(), 4 + 30);
    assert_eq!(objects.all(Kind::Pod, "").count(), 2 * LOCAL_NODE_PODS);
    for name in ["grown", "deep", "fat", "spec"] {
        let node = objects.value(&key(Kind::Node, name)).expect("it is there");
        assert!(node.to_string().len() < 1_000, "{name}");
        assert_eq!(node["metadata"]["uid"], "u", "{name}");
        value(objects.call(&status(Kind::Node, name, &json!({"phase": "x"})), NOW));
    }
    assert_eq!(objects.list(Kind::Node).count(), 1, "its label stays");
    let changes = objects.take_changes();
    let delete = changes.iter().filter(|change| change.row.is_none()).count();
    assert_eq!(delete, 30, "the disk is rid of them");
    assert_eq!(changes.len(), 4 + 30 + 4);
}

#[test]
fn what_a_manifest_wants_is_not_the_nodes_to_pay_for() {
    let mut objects = with_node("gw");
    let mut web = pod("gw", "a:1");
    web["spec"]["x"] = json!("x".repeat(2 << 20));
    objects.want(vec![("a".into(), Some(vec![manifest(Kind::Pod, "web", web)]))], NOW);
    value(objects.call(&status(Kind::Pod, "web", &json!({"phase": "Pending"})), NOW));
    let refused = objects.call(&status(Kind::Pod, "web", &json!({"phase": "Running"})), NOW);
    value(refused);
}
