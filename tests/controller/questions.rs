//! Reports and requests of nodes, and the answers.

use edged::model::api::{Kind, PatchType, Subresource, Verb};
use edged::model::base64;
use serde_json::{Value, json};

use crate::world::World;
use crate::{config_map, listed, node, pod, pod_with, received};

/// Sends a request, and returns the answer.
fn requested(world: &mut World, operation: &str, resource: &str, content: Option<&Value>) -> Value {
    let message = world.edge("e1").request(operation, resource, content);
    let id = world.send("e1", message);
    world.pass(100);
    world.edge("e1").answers.remove(&id).unwrap_or_else(|| json!("no answer"))
}

fn with_pod() -> World {
    let mut world = listed(&[
        (Kind::Node, node("e1")),
        (Kind::ConfigMap, config_map("m", "1")),
        (Kind::Pod, pod_with("web", "e1", "m", "s")),
    ]);
    world.connect("e1");
    world.pass(100);
    received(&mut world, "e1");
    world
}

#[test]
fn a_node_registers_and_gets_what_is_its_own() {
    let mut world = listed(&[]);
    world.connect("e1");
    let message = world.edge("e1").register();
    let id = world.send("e1", message);
    world.pass(100);
    let answer = world.edge("e1").answers[&id].clone();
    assert_eq!(answer["Err"], Value::Null);
    assert_eq!(answer["Object"]["metadata"]["name"], "e1");
    assert_eq!(received(&mut world, "e1"), ["response null/node/e1", "update null/node/e1"]);
    let message = world.edge("e1").register();
    let id = world.send("e1", message);
    world.pass(100);
    let answer = world.edge("e1").answers[&id].clone();
    assert_eq!(answer["Err"]["ErrStatus"]["reason"], "AlreadyExists");
    assert_eq!(answer["Err"]["ErrStatus"]["code"], 409);
    // It has just begun a new life, maybe with an empty store: that is recorded first.
    assert_eq!(received(&mut world, "e1"), ["update null/node/e1", "response null/node/e1"]);
}

#[test]
fn a_registration_is_answered_when_what_the_node_may_have_lost_is_on_record() {
    let mut world = with_pod();
    // It does not register again once it has an answer, whatever happens to us.
    world.faults.save_fails = 1_000;
    let message = world.edge("e1").register();
    let id = world.send("e1", message);
    world.pass(500);
    assert!(!world.edge("e1").answers.contains_key(&id));
    world.faults.save_fails = 0;
    world.pass(5_000);
    assert!(world.edge("e1").answers.contains_key(&id));
}

#[test]
fn a_node_that_lost_its_store_is_served_again_and_told_what_is_gone() {
    let mut world = with_pod();
    world.cluster.apply(Kind::Pod, pod("second", "e1"));
    world.pass(100);
    let session = world.session("e1").expect("on");
    world.disconnect(session);
    world.cluster.remove(&(Kind::Pod, "n".to_owned(), "second".to_owned()));
    world.edge("e1").store.clear();
    world.connect("e1");
    let message = world.edge("e1").register();
    world.send("e1", message);
    world.pass(100);
    let reported = received(&mut world, "e1");
    assert!(reported.contains(&"delete n/pod/second".to_owned()), "{reported:?}");
    assert!(reported.contains(&"update n/pod/web".to_owned()), "{reported:?}");
    assert!(world.edge("e1").store.contains_key("n/configmap/m"));
}

#[test]
fn statuses_are_patched_and_their_echo_is_no_news() {
    let mut world = with_pod();
    let pod = world.edge("e1").store["n/pod/web"].clone();
    let message = world.edge("e1").pod_patch(&pod, "Running");
    let id = world.send("e1", message);
    world.pass(20_000);
    let answer = &world.edge("e1").answers[&id];
    assert_eq!(
        (&answer["Err"], &answer["Object"]["status"]["phase"]),
        (&Value::Null, &json!("Running"))
    );
    let call = world.calls.last().expect("a call");
    let strategic = Verb::Patch(PatchType::Strategic);
    assert_eq!((call.verb, call.subresource), (strategic, Some(Subresource::Status)));
    assert_eq!(received(&mut world, "e1"), ["response n/podpatch/web"], "no push of its report");
    let version = answer_version(&world);
    let row = world.rows.values().find(|row| row.kind == Kind::Pod).expect("a record");
    assert_eq!(row.version, version, "it counts as acknowledged");
    let status =
        r#"{"status":{"conditions":[{"type":"Ready","status":"True","lastHeartbeatTime":"x"}]}}"#;
    let answer = requested(&mut world, "patch", "null/nodepatch/e1", Some(&json!(status)));
    assert_eq!(answer["Object"]["status"]["conditions"][0]["status"], "True");
}

#[test]
fn an_answer_that_waits_for_the_store_says_how_the_object_is_then() {
    let mut world =
        listed(&[(Kind::Node, node("e1")), (Kind::Pod, pod_with("web", "e1", "m", "s"))]);
    world.connect("e1");
    world.pass(100);
    let map = (Kind::ConfigMap, "n".to_owned(), "m".to_owned());
    for is_made_anew in [true, false] {
        world.faults.save_fails = 1_000;
        world.cluster.apply(Kind::ConfigMap, config_map("m", "1"));
        world.pass(100);
        let message = world.edge("e1").request("query", "n/configmap/m", None);
        let id = world.send("e1", message);
        world.pass(100);
        world.cluster.remove(&map);
        if is_made_anew {
            world.cluster.apply(Kind::ConfigMap, config_map("m", "2"));
        }
        world.pass(100);
        assert!(!world.edge("e1").answers.contains_key(&id), "it is not on record");
        world.faults.save_fails = 0;
        world.pass(5_000);
        let answer = world.edge("e1").answers.remove(&id).unwrap_or_default();
        if is_made_anew {
            assert_eq!(answer["data"]["k"], "2", "{answer}");
            world.cluster.remove(&map);
            world.pass(5_000);
        } else {
            assert_eq!(answer["ErrStatus"]["reason"], "NotFound", "{answer}");
        }
        assert_eq!(world.controller.counters().queued, 0);
        assert!(!world.edge("e1").store.contains_key("n/configmap/m"));
    }
}

#[test]
fn what_a_node_says_of_anothers_pod_hides_it_from_nobody() {
    for delay_ms in [0, 500] {
        let mut world =
            listed(&[(Kind::Node, node("liar")), (Kind::ConfigMap, config_map("m", "1"))]);
        world.connect("liar");
        world.pass(100);
        world.faults.delay_ms = delay_ms;
        // The node does not exist yet, so its pods are not accepted.
        let there =
            [pod_with("made-before", "e1", "m", "s"), pod_with("made-after", "e1", "m", "s")];
        world.cluster.apply(Kind::Pod, there[0].clone());
        world.pass(2_000);
        for pod in &there {
            let mut pod = pod.clone();
            pod["metadata"]["uid"] = json!("made-up");
            let message = world.edge("liar").pod_patch(&pod, "Running");
            world.send("liar", message);
        }
        world.faults.save_fails = 1_000;
        world.pass(delay_ms);
        world.cluster.apply(Kind::Pod, there[1].clone());
        world.pass(5_000);
        // It is not connected to report that they are gone.
        let session = world.session("liar").expect("on");
        world.disconnect(session);
        world.faults.save_fails = 0;
        world.pass(5_000);
        world.cluster.apply(Kind::Node, node("e1"));
        world.connect("e1");
        world.pass(10_000);
        for name in ["n/pod/made-before", "n/pod/made-after", "n/configmap/m"] {
            let store = &world.edge("e1").store;
            assert!(store.contains_key(name), "{name}: {:?}", store.keys());
        }
    }
}

fn answer_version(world: &World) -> u64 {
    let name = (Kind::Pod, "n".to_owned(), "web".to_owned());
    let version = &world.cluster.objects[&name]["metadata"]["resourceVersion"];
    version.as_str().expect("a version").parse().expect("a number")
}

#[test]
fn a_picture_of_a_static_pod_is_made_and_a_second_one_is_refused_beside_an_object() {
    let mut world = with_pod();
    let mut picture = pod("static-e1", "e1");
    picture["spec"].as_object_mut().expect("a map").remove("serviceAccountName");
    picture["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": "0123"});
    let answer = requested(&mut world, "insert", "n/pod/static-e1", Some(&picture));
    assert_eq!(answer["Err"], Value::Null, "{answer}");
    assert_eq!(answer["Object"]["metadata"]["name"], "static-e1");
    // A kubelet compares the annotations of that object, though there is none.
    let answer = requested(&mut world, "insert", "n/pod/static-e1", Some(&picture));
    assert_eq!(answer["Err"]["ErrStatus"]["reason"], "AlreadyExists", "{answer}");
    assert_eq!(answer["Object"], json!({}));
}

#[test]
fn a_picture_that_would_open_anothers_things_to_its_node_is_refused() {
    let mut world = with_pod();
    let mut picture = pod("static-e1", "e1");
    picture["spec"].as_object_mut().expect("a map").remove("serviceAccountName");
    picture["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": "0123"});
    let volume = |source: Value| {
        let mut map = json!({"name": "v"});
        map.as_object_mut().expect("a map").extend(source.as_object().expect("a map").clone());
        ("volumes", json!([map]))
    };
    for (field, value) in [
        // The API server ignores unknown fields, and accepts the rest.
        volume(json!({"configMap": {"name": "M", "secretName": 1}})),
        volume(json!({"configMap": {"name": "M", "sources": {}}})),
        volume(json!({"persistentVolumeClaim": {"claimName": "p", "name": []}})),
        volume(json!({"secret": {"secretName": "s", "secretRef": 7}})),
        volume(json!({"projected": {"sources": [{"configMap": {"name": "M", "secretRef": 1}}]}})),
        volume(json!({"configMap": {"name": "M"}, "hostPath": 1})),
        ("serviceAccount", json!("robot")),
        ("serviceAccountName", json!("robot")),
    ] {
        let mut picture = picture.clone();
        picture["spec"][field] = value;
        let message = world.edge("e1").request("insert", "n/pod/static-e1", Some(&picture));
        let id = world.send("e1", message);
        world.pass(100);
        let answer = world.edge("e1").answers.remove(&id).expect("an answer");
        assert!(answer["Err"]["ErrStatus"]["code"].is_u64(), "{picture}: {answer}");
    }
    let made = world.cluster.objects.keys().any(|(.., name)| name == "static-e1");
    assert!(!made);
}

#[test]
fn a_lease_is_asked_for_made_and_renewed() {
    let mut world = with_pod();
    let resource = "kube-node-lease/lease/e1";
    let answer = requested(&mut world, "query", resource, None);
    assert_eq!(
        (&answer["Object"], &answer["Err"]["ErrStatus"]["reason"]),
        (&Value::Null, &json!("NotFound"))
    );
    let lease = json!({"metadata": {"name": "e1", "namespace": "kube-node-lease"},
        "spec": {"holderIdentity": "e1", "leaseDurationSeconds": 40}});
    let answer = requested(&mut world, "insert", resource, Some(&lease));
    assert_eq!(answer["Err"], Value::Null);
    let renewed = requested(&mut world, "update", resource, Some(&answer["Object"]));
    assert_eq!(renewed["Err"], Value::Null);
    let stale = requested(&mut world, "update", resource, Some(&answer["Object"]));
    assert_eq!(stale["Err"]["ErrStatus"]["reason"], "Conflict");
}

#[test]
fn a_pod_is_deleted_at_last_by_its_node_and_no_other_of_its_name() {
    let mut world = with_pod();
    let delete = |uid: &str| json!({"gracePeriodSeconds": 0, "preconditions": {"uid": uid}});
    let uid = world.edge("e1").store["n/pod/web"]["metadata"]["uid"].clone();
    let uid = uid.as_str().expect("a uid").to_owned();
    assert_eq!(requested(&mut world, "delete", "n/pod/web", Some(&delete("another"))), "OK");
    assert!(world.cluster.objects.contains_key(&(Kind::Pod, "n".into(), "web".into())));
    received(&mut world, "e1");
    assert_eq!(requested(&mut world, "delete", "n/pod/web", Some(&delete(&uid))), "OK");
    assert!(!world.cluster.objects.contains_key(&(Kind::Pod, "n".into(), "web".into())));
    let mut reported = received(&mut world, "e1");
    reported.sort();
    assert_eq!(reported, ["delete n/pod/web", "response n/pod/web"]);
    assert_eq!(requested(&mut world, "delete", "n/pod/web", Some(&json!(uid))), "OK", "old edges");
}

#[test]
fn a_query_brings_a_copy_that_is_kept_up_to_date() {
    let mut world = with_pod();
    let answer = requested(&mut world, "query", "n/configmap/m", None);
    assert_eq!(answer["data"]["k"], "1");
    let missing = requested(&mut world, "query", "n/secret/s", None);
    assert_eq!(missing["ErrStatus"]["reason"], "NotFound");
    received(&mut world, "e1");
    world.cluster.apply(Kind::ConfigMap, config_map("m", "2"));
    world.pass(100);
    assert_eq!(received(&mut world, "e1"), ["update n/configmap/m"]);
}

#[test]
fn tokens_and_claims_are_for_the_nodes_own_pods() {
    let mut world = with_pod();
    let pod = world.edge("e1").store["n/pod/web"].clone();
    let request = json!({"spec": {"audiences": ["a"], "expirationSeconds": 3607, "boundObjectRef":
        {"kind": "Pod", "name": "web", "uid": pod["metadata"]["uid"]}}});
    let answer = requested(&mut world, "query", "n/serviceaccounttoken/robot", Some(&request));
    assert_eq!(answer["status"]["token"], "t");
    let other = requested(&mut world, "query", "n/serviceaccounttoken/admin", Some(&request));
    assert_eq!(other["ErrStatus"]["code"], 403);
    let claim = requested(&mut world, "query", "n/persistentvolumeclaim/c", None);
    assert_eq!(claim["ErrStatus"]["code"], 403);
}

#[test]
fn old_edges_tell_statuses_whole_and_pods_end_by_them() {
    let mut world = with_pod();
    let uid = world.edge("e1").store["n/pod/web"]["metadata"]["uid"].clone();
    let name = (Kind::Pod, "n".to_owned(), "web".to_owned());
    let reported = |phase: &str| json!({"UID": uid, "Name": "web", "Status": {"phase": phase}});
    let resource = "n/podstatus/web";
    assert_eq!(requested(&mut world, "update", resource, Some(&reported("Running"))), "OK");
    assert_eq!(world.cluster.objects[&name]["status"]["phase"], "Running");
    world.cluster.delete_pod(&name);
    world.pass(100);
    assert_eq!(
        requested(&mut world, "update", "n/podstatus", Some(&json!([reported("Succeeded")]))),
        "OK"
    );
    assert!(!world.cluster.objects.contains_key(&name), "it was deleted for the node");
    received(&mut world, "e1");
    let registered = requested(
        &mut world,
        "update",
        "default/nodestatus/e1",
        Some(&json!({"UID": "", "Status": {"phase": "Running"}, "ExtendResources": null})),
    );
    assert_eq!(registered, "OK");
    assert!(received(&mut world, "e1").contains(&"response default/node/e1".to_owned()));
}

#[test]
fn a_pod_that_only_its_node_knows_is_taken_from_it() {
    let mut world = with_pod();
    let ghost = json!({"metadata": {"name": "ghost", "namespace": "n", "uid": "u-9"}});
    world.edge("e1").store.insert("n/pod/ghost".to_owned(), ghost.clone());
    let message = world.edge("e1").pod_patch(&ghost, "Running");
    let id = world.send("e1", message);
    world.pass(100);
    assert_eq!(world.edge("e1").answers[&id]["Err"]["ErrStatus"]["code"], 404);
    assert_eq!(received(&mut world, "e1"), ["response n/podpatch/ghost", "delete n/pod/ghost"]);
    assert!(!world.edge("e1").store.contains_key("n/pod/ghost"));
    assert!(world.rows.values().all(|row| &*row.name != "ghost"));
}

#[test]
fn events_are_written_for_what_is_the_nodes_own() {
    let mut world = with_pod();
    let event = |kind: &str, name: &str| {
        json!({"metadata": {"name": format!("{name}.1"),
        "namespace": "n"}, "involvedObject": {"kind": kind, "name": name, "namespace": "n"}})
    };
    requested(&mut world, "insert", "n/event/web.1", Some(&event("Pod", "web")));
    assert!(world.cluster.objects.contains_key(&(Kind::Event, "n".into(), "web.1".into())));
    requested(&mut world, "insert", "n/event/other.1", Some(&event("Pod", "other")));
    assert!(!world.cluster.objects.contains_key(&(Kind::Event, "n".into(), "other.1".into())));
}

/// Else a node could write into namespaces in which it has nothing.
#[test]
fn an_event_lies_where_its_object_does() {
    let mut world = with_pod();
    let mut number = 0;
    let mut is_taken = |kind: &str, name: &str, of: &str, at: &str, written: &str| {
        number += 1;
        let event_name = format!("{name}.{number}");
        let event = json!({"metadata": {"name": event_name, "namespace": written},
            "involvedObject": {"kind": kind, "name": name, "namespace": of}});
        requested(&mut world, "insert", &format!("{at}/event/{event_name}"), Some(&event));
        let mut stored = world.cluster.objects.keys();
        stored.any(|(kind, _, name)| *kind == Kind::Event && *name == event_name)
    };
    assert!(is_taken("Pod", "web", "n", "n", "n"));
    assert!(!is_taken("Pod", "web", "n", "kube-system", "kube-system"));
    assert!(!is_taken("Pod", "web", "n", "n", "kube-system"));
    assert!(is_taken("Node", "e1", "", "default", "default"));
    assert!(!is_taken("Node", "e1", "", "kube-system", "kube-system"));
    assert!(!is_taken("Node", "e1", "kube-system", "kube-system", "kube-system"));
}

/// MetaServer's answer to an Application of the node `e1`.
fn applied(world: &mut World, requested: &Value) -> Value {
    let message = world.edge("e1").apply("null", requested);
    let id = world.send("e1", message);
    world.pass(100);
    let reply = world.edge("e1").replies.remove(&id).expect("an answer");
    assert_eq!(&*reply.route.operation, "applicationResponse");
    assert_eq!(&*reply.route.resource, "ignore/Application/ignore");
    world.edge("e1").answers.remove(&id).expect("an answer")
}

#[test]
fn a_node_may_list_its_own_pods_and_no_others() {
    let mut world = with_pod();
    world.cluster.apply(Kind::Pod, pod("other", "e2"));
    world.pass(100);
    for (selector, status) in [
        ("spec.nodeName=e1", "Approved"),
        ("spec.nodeName=e2", "Rejected"),
        ("spec.nodeName=e1,status.phase=Running", "Rejected"),
        ("", "Rejected"),
    ] {
        let options = json!({"fieldSelector": selector, "limit": 10}).to_string();
        let query = json!({"ID": "ab", "Key": "/core/v1/pods/null/null", "Verb": "list",
            "Nodename": "e1", "Option": base64::encode(options.as_bytes()), "ReqBody": "",
            "Status": "InApplying", "Reason": ""});
        let answer = applied(&mut world, &query);
        assert_eq!((&answer["ID"], &answer["Status"]), (&json!("ab"), &json!(status)));
        if status == "Approved" {
            let body = answer["RespBody"].as_str().and_then(base64::decode).expect("base64");
            let list: Value = serde_json::from_slice(&body).expect("JSON");
            assert_eq!(list["items"].as_array().map(Vec::len), Some(1), "{list}");
            assert_eq!(list["items"][0]["metadata"]["name"], "web");
            assert_eq!(list["items"][0]["kind"], "Pod");
        }
    }
}

#[test]
fn who_asks_a_module_that_is_not_here_is_told_so() {
    let mut world = listed(&[(Kind::Node, node("e1"))]);
    world.connect("e1");
    let call = json!({"ID": "ab", "Key": "/core/v1/pods/n/null", "Verb": "list", "Nodename": "e1",
        "Option": "e30=", "ReqBody": "e30=", "Status": "InApplying", "Reason": ""});
    let answer = applied(&mut world, &call);
    assert_eq!((&answer["ID"], &answer["Status"]), (&json!("ab"), &json!("Rejected")));
    assert_eq!(answer["Error"]["ErrStatus"]["code"], 501);

    let message = world.edge("e1").apply("watchapp/sync", &json!({"ab": call}));
    let id = world.send("e1", message);
    world.pass(100);
    let answer = world.edge("e1").answers.remove(&id).expect("an answer");
    assert_eq!(answer["ab"]["Status"], "Rejected");
    let counters = world.controller.counters();
    assert_eq!((counters.messages_unserved, counters.messages_refused), (2, 0));

    let message = world.edge("e1").apply("null", &json!(["none"]));
    world.send("e1", message);
    world.pass(100);
    assert_eq!(world.controller.counters().messages_refused, 1);
}
