//! Tests of the objects through their public interface.

mod lifecycle;
mod usage;

use serde_json::value::RawValue;

use super::*;
use crate::limits::{
    JOBS_KEPT_MAX, LOCAL_EVENTS_BYTES_MAX, LOCAL_EVENTS_MAX, LOCAL_HISTORY_BYTES_MAX,
    LOCAL_HISTORY_MAX,
};
use crate::model::any_api::{AnyCall, AnyTarget, AnyVerb};
use crate::model::api::{Call, CallError, CallResult, PatchType, Subresource, Verb};
use crate::model::raw::Manifest;

const NOW: Option<Timestamp> = Some(Timestamp(1_800_000_000));

fn objects() -> Objects {
    Objects::load(Vec::new(), 1_000, 7)
}

/// With one node.
fn with_node(name: &str) -> Objects {
    let mut objects = objects();
    let node = json!({"metadata": {"labels": {EDGE_LABEL: ""}}});
    value(objects.call(&call(Verb::Create, Kind::Node, name, &node), NOW));
    objects.take_changes();
    objects
}

fn call(verb: Verb, kind: Kind, name: &str, body: &Value) -> Call {
    let body = RawValue::from_string(body.to_string()).expect("JSON");
    let namespace = if kind.is_namespaced() { "default" } else { "" };
    Call {
        verb,
        kind,
        namespace: namespace.into(),
        name: name.into(),
        subresource: None,
        body: Some(body),
    }
}

fn value(result: CallResult) -> Value {
    serde_json::from_str(result.expect("it is done").get()).expect("JSON")
}

fn code(result: CallResult) -> (u16, String) {
    match result {
        Err(CallError::Refused { code, status }) => {
            let status: Value = serde_json::from_str(status.get()).expect("JSON");
            (code, status["reason"].as_str().expect("a reason").to_owned())
        }
        other => panic!("{other:?}"),
    }
}

fn pod(node: &str, image: &str) -> Value {
    json!({"metadata": {"name": "web"}, "spec": {
        "nodeName": node, "containers": [{"name": "main", "image": image}],
    }})
}

fn key(kind: Kind, name: &str) -> Key {
    let namespace = if kind.is_namespaced() { "default" } else { "" };
    Key { kind, namespace: namespace.into(), name: name.into() }
}

fn manifest(kind: Kind, name: &str, value: Value) -> Manifest {
    let Key { kind, namespace, name } = key(kind, name);
    let size_bytes = value.to_string().len();
    Manifest { kind, namespace, name, value: value.into(), size_bytes }
}

#[test]
fn an_object_is_made_changed_and_taken_away_with_growing_versions() {
    let mut objects = objects();
    let map = |text: &str| json!({"data": {"k": text}});
    let made = value(objects.call(&call(Verb::Create, Kind::ConfigMap, "cm", &map("a")), NOW));
    assert_eq!(made["metadata"]["resourceVersion"], "1001");
    assert_eq!(made["metadata"]["creationTimestamp"], "2027-01-15T08:00:00Z");
    assert_eq!(made["kind"], "ConfigMap");
    let again = objects.call(&call(Verb::Create, Kind::ConfigMap, "cm", &map("a")), NOW);
    assert_eq!(code(again), (409, "AlreadyExists".to_owned()));
    let patch = call(Verb::Patch(PatchType::Merge), Kind::ConfigMap, "cm", &map("b"));
    let changed = value(objects.call(&patch, NOW));
    assert_eq!(changed["metadata"]["resourceVersion"], "1002");
    assert_eq!(changed["metadata"]["uid"], made["metadata"]["uid"]);
    let same = value(objects.call(&patch, NOW));
    assert_eq!(same["metadata"]["resourceVersion"], "1002", "nothing differs");
    let delete = call(Verb::Delete, Kind::ConfigMap, "cm", &Value::Null);
    value(objects.call(&delete, NOW));
    assert_eq!(code(objects.call(&delete, NOW)), (404, "NotFound".to_owned()));
    let watch_event: Vec<Option<WatchEvent>> =
        objects.take_changes().into_iter().map(|it| it.watch_event).collect();
    assert!(matches!(
        watch_event[..],
        [Some(WatchEvent::Changed(_)), Some(WatchEvent::Changed(_)), Some(WatchEvent::Deleted(_))]
    ));
    assert_eq!(objects.since(Kind::ConfigMap, 1_001).expect("it is known").len(), 2);
    assert_eq!(objects.since(Kind::ConfigMap, 999), None, "before our time");
}

#[test]
fn uid_and_version_are_conditions_where_they_are_named() {
    let mut objects = objects();
    value(objects.call(&call(Verb::Create, Kind::Pod, "web", &pod("gw", "a:1")), NOW));
    let patch = |metadata: Value| {
        let body = json!({"metadata": metadata, "status": {"phase": "Running"}});
        let mut call = call(Verb::Patch(PatchType::Strategic), Kind::Pod, "web", &body);
        call.subresource = Some(Subresource::Status);
        call
    };
    for bad in [json!({"uid": "another"}), json!({"resourceVersion": "3"})] {
        let refused = code(objects.call(&patch(bad), NOW));
        assert_eq!(refused, (409, "Conflict".to_owned()));
    }
    let uid =
        objects.value(&key(Kind::Pod, "web")).expect("it is there")["metadata"]["uid"].clone();
    let done = value(objects.call(&patch(json!({"uid": uid})), NOW));
    assert_eq!(done["status"]["phase"], "Running");
    assert_eq!(done["status"]["qosClass"], "BestEffort");
}

#[test]
fn the_status_and_the_rest_are_written_apart() {
    let mut objects = objects();
    let node = json!({"metadata": {"labels": {EDGE_LABEL: ""}}, "status": {"a": 1}});
    value(objects.call(&call(Verb::Create, Kind::Node, "gw", &node), NOW));
    let both = json!({"metadata": {"labels": {"x": "y"}}, "status": {"a": 2}});
    let mut patch = call(Verb::Patch(PatchType::Strategic), Kind::Node, "gw", &both);
    let whole = value(objects.call(&patch, NOW));
    assert_eq!(
        (&whole["metadata"]["labels"]["x"], &whole["status"]["a"]),
        (&json!("y"), &json!(1))
    );
    patch.subresource = Some(Subresource::Status);
    patch.body = Some(
        RawValue::from_string(r#"{"metadata":{"labels":{"x":"z"}},"status":{"a":3}}"#.into())
            .expect("JSON"),
    );
    let status = value(objects.call(&patch, NOW));
    assert_eq!(
        (&status["metadata"]["labels"]["x"], &status["status"]["a"]),
        (&json!("y"), &json!(3))
    );
}

#[test]
fn a_pod_on_a_node_is_marked_and_goes_when_the_node_says_so() {
    let mut objects = with_node("gw");
    let made = value(objects.call(&call(Verb::Create, Kind::Pod, "web", &pod("gw", "a:1")), NOW));
    let delete = |body: Value| call(Verb::Delete, Kind::Pod, "web", &body);
    let marked = value(objects.call(&delete(Value::Null), NOW));
    assert_eq!(marked["metadata"]["deletionTimestamp"], "2027-01-15T08:00:30Z");
    let sooner = value(objects.call(&delete(json!({"gracePeriodSeconds": 5})), NOW));
    assert_eq!(sooner["metadata"]["deletionGracePeriodSeconds"], 5);
    let later = value(objects.call(&delete(json!({"gracePeriodSeconds": 60})), NOW));
    assert_eq!(later["metadata"]["deletionGracePeriodSeconds"], 5, "it only becomes less");
    let by = |uid: Value| json!({"gracePeriodSeconds": 0, "preconditions": {"uid": uid}});
    assert_eq!(code(objects.call(&delete(by(json!("another"))), NOW)).0, 409);
    value(objects.call(&delete(by(made["metadata"]["uid"].clone())), NOW));
    assert_eq!(code(objects.call(&delete(Value::Null), NOW)).0, 404);
}

#[test]
fn a_pod_of_a_node_that_there_is_not_goes_at_once() {
    let mut objects = objects();
    value(objects.call(&call(Verb::Create, Kind::Pod, "web", &pod("gone", "a:1")), NOW));
    let delete = call(Verb::Delete, Kind::Pod, "web", &Value::Null);
    value(objects.call(&delete, NOW));
    assert_eq!(code(objects.call(&delete, NOW)).0, 404);
}

#[test]
fn a_new_store_gives_the_uids_that_a_lost_one_gave_and_each_of_them_once() {
    let file = |it: Value| vec![("a".into(), Some(vec![manifest(Kind::Pod, "web", it)]))];
    let uid = |objects: &Objects| {
        let pod = objects.value(&key(Kind::Pod, "web")).expect("it is made");
        pod["metadata"]["uid"].as_str().expect("a uid").to_owned()
    };
    let new = |seed: u64| {
        let mut objects = Objects::load(Vec::new(), 1_000, seed);
        objects.derive_uids();
        objects.want(file(pod("gw", "a:1")), NOW);
        objects
    };
    let (mut first, again) = (new(1), new(2));
    assert_eq!(uid(&first), uid(&again));
    assert_eq!(uid(&first).as_bytes()[14], b'8', "version 8: {}", uid(&first));
    let before = uid(&first);
    value(first.call(&call(Verb::Delete, Kind::Pod, "web", &Value::Null), NOW));
    assert_ne!(uid(&first), before, "it is another pod, which a node may begin");
    let mut other = Objects::load(Vec::new(), 1_000, 1);
    other.derive_uids();
    let mut changed = pod("gw", "a:1");
    changed["spec"]["hostNetwork"] = json!(true);
    other.want(file(changed), NOW);
    assert_ne!(uid(&other), before, "it is not what the nodes run");
    let mut late = Objects::load(Vec::new(), 1_000, 1);
    late.derive_uids();
    late.all_was_read(NOW);
    late.want(file(pod("gw", "a:1")), NOW);
    assert_ne!(uid(&late), before, "there may have been one in this store's life");
}

#[test]
fn lists_show_only_what_the_selector_includes() {
    let mut objects = objects();
    value(objects.call(&call(Verb::Create, Kind::Pod, "web", &pod("", "a:1")), NOW));
    assert_eq!(objects.list(Kind::Pod).count(), 0);
    assert_eq!(objects.all(Kind::Pod, "").count(), 1);
    assert_eq!(objects.take_changes()[0].watch_event, None);
    let bound = json!({"spec": {"nodeName": "gw"}});
    value(objects.call(&call(Verb::Patch(PatchType::Merge), Kind::Pod, "web", &bound), NOW));
    assert_eq!(objects.list(Kind::Pod).count(), 1);
    assert!(matches!(objects.take_changes()[0].watch_event, Some(WatchEvent::Changed(_))));
}

#[test]
fn manifests_are_brought_about_and_what_none_wants_goes() {
    let mut objects = objects();
    let map = |text: &str| manifest(Kind::ConfigMap, "cm", json!({"data": {"k": text}}));
    let file = |manifests: Vec<Manifest>| vec![("a.yaml".into(), Some(manifests))];
    objects.want(file(vec![map("a")]), NOW);
    let first = objects.value(&key(Kind::ConfigMap, "cm")).expect("it is made");
    objects.want(file(vec![map("a")]), NOW);
    assert_eq!(objects.value(&key(Kind::ConfigMap, "cm")), Some(first.clone()), "nothing new");
    objects.want(file(vec![map("b")]), NOW);
    let second = objects.value(&key(Kind::ConfigMap, "cm")).expect("it is changed");
    assert_eq!(second["metadata"]["uid"], first["metadata"]["uid"]);
    assert_eq!(second["data"]["k"], "b");
    objects.want(vec![("a.yaml".into(), None)], NOW);
    objects.all_was_read(NOW);
    assert!(objects.value(&key(Kind::ConfigMap, "cm")).is_some(), "an error is no deletion");
    objects.want_still(Vec::new(), NOW);
    assert!(objects.value(&key(Kind::ConfigMap, "cm")).is_some(), "nor is a lost folder");
    let files =
        vec![("a.yaml".into(), Some(vec![map("b")])), ("b.yaml".into(), Some(vec![map("c")]))];
    let duplicates = objects.want(files, NOW);
    let (source, winner) = ("b.yaml".into(), "a.yaml".into());
    assert_eq!(duplicates, [Duplicate { name: "ConfigMap default/cm".to_owned(), source, winner }]);
    objects.want(Vec::new(), NOW);
    assert_eq!(objects.value(&key(Kind::ConfigMap, "cm")), None);
}

#[test]
fn a_pod_whose_manifest_changed_in_more_than_its_images_is_replaced() {
    let mut objects = with_node("gw");
    let file =
        |value: Value| vec![("a.yaml".into(), Some(vec![manifest(Kind::Pod, "web", value)]))];
    objects.want(file(pod("gw", "a:1")), NOW);
    objects.all_was_read(NOW);
    let web = key(Kind::Pod, "web");
    let first = objects.value(&web).expect("it is made");
    objects.want(file(pod("gw", "a:2")), NOW);
    let image = objects.value(&web).expect("it is changed");
    assert_eq!(image["metadata"]["uid"], first["metadata"]["uid"]);
    assert_eq!(image["spec"]["containers"][0]["image"], "a:2");
    let mut other = pod("gw", "a:2");
    other["spec"]["hostNetwork"] = json!(true);
    objects.want(file(other), NOW);
    let ending = objects.value(&web).expect("its node has not said so");
    assert!(ending["metadata"]["deletionTimestamp"].is_string());
    let last = call(Verb::Delete, Kind::Pod, "web", &json!({"gracePeriodSeconds": 0}));
    value(objects.call(&last, NOW));
    let new = objects.value(&web).expect("the new one begins");
    assert_ne!(new["metadata"]["uid"], first["metadata"]["uid"]);
    assert_eq!(new["spec"]["hostNetwork"], true);
}

#[test]
fn stored_objects_are_loaded_unchanged() {
    let mut objects = with_node("gw");
    let file = |it: &str| vec![("a".into(), Some(vec![manifest(Kind::Pod, "web", pod("gw", it))]))];
    objects.want(file("a:1"), NOW);
    let rows = objects.rows.iter().map(|(key, object)| (key.clone(), object.row.clone())).collect();
    let mut next = Objects::load(rows, 5_000, 8);
    next.want(file("a:1"), NOW);
    next.all_was_read(NOW);
    assert!(next.take_changes().is_empty(), "nothing differs");
    next.want(file("a:2"), NOW);
    assert_eq!(next.take_changes()[0].version, 5_001);
}

#[test]
fn a_grace_period_longer_than_any_time_ends_with_the_last_year_that_is_written() {
    let mut objects = with_node("gw");
    value(objects.call(&call(Verb::Create, Kind::Pod, "web", &pod("gw", "a:1")), NOW));
    let delete = call(Verb::Delete, Kind::Pod, "web", &json!({"gracePeriodSeconds": i64::MAX}));
    let marked = value(objects.call(&delete, NOW));
    assert_eq!(marked["metadata"]["deletionTimestamp"], "9999-12-31T23:59:59Z");
}

#[test]
fn what_is_no_object_is_refused() {
    let mut objects = objects();
    value(objects.call(&call(Verb::Create, Kind::Event, "one", &json!({"count": 1})), NOW));
    for body in [json!(5), json!("x"), json!([]), json!({"metadata": "x"}), json!({"metadata": []})]
    {
        let status = Some(Subresource::Status);
        for (verb, subresource, name) in [
            (Verb::Patch(PatchType::Merge), None, "one"),
            (Verb::Patch(PatchType::Merge), status, "one"),
            (Verb::Patch(PatchType::Strategic), None, "one"),
            (Verb::Patch(PatchType::Strategic), status, "one"),
            (Verb::Update, None, "one"),
            (Verb::Update, status, "one"),
            (Verb::Create, None, "two"),
        ] {
            let call = Call { subresource, ..call(verb, Kind::Event, name, &body) };
            let refused = code(objects.call(&call, NOW));
            assert_eq!(refused, (400, "BadRequest".to_owned()), "{call:?}");
        }
    }
    let one = objects.value(&key(Kind::Event, "one")).expect("it is there");
    assert_eq!(one["count"], 1);
}

#[test]
fn stored_nulls_are_removed_and_the_pod_stays() {
    let mut objects = with_node("gw");
    let file = |it: Value| vec![("a".into(), Some(vec![manifest(Kind::Pod, "web", it)]))];
    let mut with = pod("gw", "a:1");
    with["spec"]["volumes"] = Value::Null;
    with["metadata"]["labels"] = Value::Null;
    objects.want(file(with), NOW);
    let rows = objects.rows.iter().map(|(key, object)| (key.clone(), object.row.clone())).collect();
    let uid = objects.value(&key(Kind::Pod, "web")).expect("it is made")["metadata"]["uid"].clone();
    let mut next = Objects::load(rows, 5_000, 8);
    let loaded = next.value(&key(Kind::Pod, "web")).expect("it is kept");
    assert!(!loaded.to_string().contains("null"), "{loaded}");
    next.want(file(pod("gw", "a:1")), NOW);
    next.all_was_read(NOW);
    let now = next.value(&key(Kind::Pod, "web")).expect("it goes on");
    assert_eq!((&now["metadata"]["uid"], now["metadata"].get("deletionTimestamp")), (&uid, None));
    assert_eq!(next.take_changes().len(), 1);
    next.want(file(json!({"spec": {"nodeName": "gw", "hostNetwork": true}})), NOW);
    let ending = next.value(&key(Kind::Pod, "web")).expect("its node has not said so");
    assert!(ending["metadata"]["deletionTimestamp"].is_string());
}

#[test]
fn events_are_in_memory_and_never_stored() {
    let event = |text: &str| {
        let about = json!({"kind": "Node", "name": "gw"});
        json!({"involvedObject": about, "reason": "A", "message": text})
    };
    let mut objects = objects();
    let before = objects.version();
    let create = call(Verb::Create, Kind::Event, "gw.1", &event("a"));
    assert_eq!(value(objects.call(&create, NOW))["message"], "a");
    let count = json!({"count": 2});
    let patch = call(Verb::Patch(PatchType::Strategic), Kind::Event, "gw.1", &count);
    assert_eq!(value(objects.call(&patch, NOW))["count"], 2);
    assert_eq!(objects.all(Kind::Event, "").count(), 1);
    for at in 2..LOCAL_EVENTS_MAX + 10 {
        let name = format!("gw.{at}");
        value(objects.call(&call(Verb::Create, Kind::Event, &name, &event("b")), NOW));
    }
    assert_eq!(objects.all(Kind::Event, "").count(), LOCAL_EVENTS_MAX);
    let get = |name: &str| call(Verb::Get, Kind::Event, name, &Value::Null);
    assert_eq!(code(objects.call(&get("gw.1"), NOW)).0, 404, "the oldest goes first");
    value(objects.call(&get("gw.100"), NOW));
    value(objects.call(&call(Verb::Delete, Kind::Event, "gw.100", &Value::Null), NOW));
    let large = event(&"x".repeat(LOCAL_EVENTS_BYTES_MAX / 4));
    for at in 0..9 {
        let name = format!("gw.large-{at}");
        value(objects.call(&call(Verb::Create, Kind::Event, &name, &large), NOW));
    }
    assert_eq!(objects.all(Kind::Event, "").count(), 3);
    let grown = json!({"note": "x".repeat(LOCAL_EVENTS_BYTES_MAX / 9)});
    for at in 6..9 {
        let name = format!("gw.large-{at}");
        let patch = call(Verb::Patch(PatchType::Merge), Kind::Event, &name, &grown);
        value(objects.call(&patch, NOW));
    }
    assert_eq!(objects.all(Kind::Event, "").count(), 2);
    assert!(objects.take_changes().is_empty(), "the disk and the watches know nothing of them");
    assert_eq!(objects.version(), before);
    assert!(objects.history.is_empty());
}

#[test]
fn stored_events_of_an_older_version_are_dropped() {
    let text = json!({"metadata": {"name": "gw.1", "resourceVersion": "7"}}).to_string();
    let row = Row { text: text.into(), made_of: None };
    let mut objects = Objects::load(vec![(key(Kind::Event, "gw.1"), row)], 1_000, 7);
    assert_eq!(objects.all(Kind::Event, "").count(), 0);
    let changes = objects.take_changes();
    assert_eq!(changes.len(), 1);
    assert!(changes[0].row.is_none() && changes[0].watch_event.is_none());
    assert_eq!((changes[0].key.kind, changes[0].version), (Kind::Event, 1_000));
}

#[test]
fn what_watches_may_have_missed_is_bounded_by_its_bytes() {
    let mut objects = objects();
    let map = |text: &str| json!({"data": {"k": text.repeat(1 << 20)}});
    value(objects.call(&call(Verb::Create, Kind::ConfigMap, "cm", &map("a")), NOW));
    for at in 0..40 {
        let text = if at % 2 == 0 { "b" } else { "c" };
        let patch = call(Verb::Patch(PatchType::Merge), Kind::ConfigMap, "cm", &map(text));
        value(objects.call(&patch, NOW));
        objects.take_changes();
    }
    let bytes: usize =
        objects.history.iter().map(|(.., watch_event)| watch_event.text().len()).sum();
    assert!(bytes <= LOCAL_HISTORY_BYTES_MAX, "{bytes}");
    assert_eq!(objects.since(Kind::ConfigMap, 1_001), None, "that is forgotten");
    assert_eq!(objects.since(Kind::ConfigMap, objects.version() - 2).expect("known").len(), 2);
}

#[test]
fn what_watches_may_have_missed_is_bounded_by_its_count() {
    let mut objects = objects();
    let before = objects.version();
    let missed = |objects: &Objects, version: u64| {
        objects.since(Kind::ConfigMap, version).map(|missed| missed.len())
    };
    for at in 0..LOCAL_HISTORY_MAX {
        let name = format!("cm-{at}");
        value(objects.call(&call(Verb::Create, Kind::ConfigMap, &name, &json!({})), NOW));
        objects.take_changes();
    }
    assert_eq!(missed(&objects, before), Some(LOCAL_HISTORY_MAX));
    value(objects.call(&call(Verb::Create, Kind::ConfigMap, "more", &json!({})), NOW));
    assert_eq!(missed(&objects, before), None, "it lists anew");
    assert_eq!(missed(&objects, before + 1), Some(LOCAL_HISTORY_MAX));
}

#[test]
fn a_status_goes_with_its_device_and_whether_there_are_statuses_is_answered() {
    let mut objects = objects();
    objects.all_was_read(NOW);
    let device = json!({"spec": {"nodeName": "gw"}});
    value(objects.call(&call(Verb::Create, Kind::Device, "pump", &device), NOW));
    let status = json!({"status": {"state": "online"}});
    let made = value(objects.call(&call(Verb::Create, Kind::DeviceStatus, "pump", &status), NOW));
    assert_eq!(made["status"]["state"], "online");
    let list = call(Verb::List, Kind::DeviceStatus, "", &json!({"limit": 1}));
    let listed = value(objects.call(&list, NOW));
    assert_eq!(
        (&listed["kind"], listed["items"].as_array().map(Vec::len)),
        (&json!("DeviceStatusList"), Some(1))
    );
    let patch = json!({"metadata": {"resourceVersion": "1"}, "status": {"state": "offline"}});
    let merge = Verb::Patch(PatchType::Merge);
    let refused = objects.call(&call(merge, Kind::DeviceStatus, "pump", &patch), NOW);
    assert_eq!(code(refused).0, 409, "it is of another version");
    objects.take_changes();
    value(objects.call(&call(Verb::Delete, Kind::Device, "pump", &json!({})), NOW));
    let gone: Vec<Kind> = objects.take_changes().iter().map(|change| change.key.kind).collect();
    assert_eq!(gone, [Kind::Device, Kind::DeviceStatus]);
}

#[test]
fn of_the_jobs_that_commands_have_made_the_latest_that_are_over_are_kept() {
    let mut objects = Objects::load(Vec::new(), 0, 7);
    let kind = Kind::ImagePrePullJob;
    let over = |objects: &mut Objects, name: &str, phase: &str| {
        let body = json!({"metadata": {"name": name}, "spec": {}});
        objects.call(&call(Verb::Create, kind, name, &body), NOW).expect("it is made");
        let mut write =
            call(Verb::Patch(PatchType::Merge), kind, name, &json!({"status": {"phase": phase}}));
        write.subresource = Some(Subresource::Status);
        objects.call(&write, NOW).expect("it is there");
    };
    over(&mut objects, "open", "InProgress");
    for at in 0..=JOBS_KEPT_MAX {
        over(&mut objects, &format!("j{at}"), "Completed");
    }
    objects.prune_jobs(JOBS_KEPT_MAX);
    let names: Vec<&str> = objects.keyed(kind).map(|(key, _)| &*key.name).collect();
    assert_eq!(names.len(), JOBS_KEPT_MAX + 1);
    assert!(names.contains(&"open") && !names.contains(&"j0"), "the oldest");
}

/// `kubectl` asks for these before it lists anything, through the MetaServer of an EdgeCore.
#[test]
fn the_kinds_of_manifests_are_discovered() {
    let objects = objects();
    let ask = |path: &str| {
        objects.call_any(&AnyCall {
            verb: AnyVerb::Get,
            target: AnyTarget::Path(path.into()),
            query: Vec::new(),
            body: Box::default(),
            node: None,
        })
    };
    assert_eq!(value(ask("/api"))["versions"], json!(["v1"]));
    let groups = value(ask("/apis"));
    let named = |name: &str| {
        let groups = groups["groups"].as_array().expect("a list");
        groups.iter().find(|it| it["name"] == name).cloned().expect("a group")
    };
    let rules = json!({"groupVersion": "rules.kubeedge.io/v1", "version": "v1"});
    assert_eq!(named("rules.kubeedge.io")["preferredVersion"], rules);
    assert_eq!(value(ask("/apis/rules.kubeedge.io")), named("rules.kubeedge.io"));
    for kind in Kind::ALL {
        let path = match kind.api_version() {
            "v1" => "/api/v1".to_owned(),
            other => format!("/apis/{other}/"),
        };
        let list = value(ask(&path));
        let all = list["resources"].as_array().expect("a list");
        let of_it = all.iter().find(|it| it["name"] == kind.plural()).expect("a resource");
        assert_eq!(of_it["namespaced"], kind.is_namespaced());
        if kind == Kind::Pod {
            assert_eq!(of_it["shortNames"], json!(["po"]));
        }
    }
    assert_eq!(value(ask("/readyz")), "ok");
    for path in ["/", "/apis/nowhere.example", "/api/v2", "/openapi/v2", "/apis/a/b/c"] {
        assert_eq!(code(ask(path)), (404, "NotFound".to_owned()), "{path}");
    }
}
