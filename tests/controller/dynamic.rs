//! Requests and watches of a node's `MetaServer`.

use std::collections::BTreeMap;

use edged::controller::Config;
use edged::controller::SyncStore;
use edged::controller::dynamic::access::{Access, READS, RequestUser};
use edged::controller::overview::ResourceOverview;
use edged::limits::{
    ACK_MS, ACK_TRIES, APPLICATION_ANSWER_BYTES_MAX, APPLICATION_CALLS_ALL_MAX,
    APPLICATION_CALLS_MAX, APPLICATIONS_BYTES_MAX, APPLICATIONS_MAX, DYNAMIC_ANSWER_MS,
    DYNAMIC_COMPARED_MAX, DYNAMIC_EVENTS_MAX, DYNAMIC_REFUSED_MS, DYNAMIC_RELIST_MS,
    DYNAMIC_RESOURCES_MAX, DYNAMIC_SERVICES_MS, DYNAMIC_UNUSED_MS, LISTENER_GRACE_MS,
    LISTENERS_OF_NODE_MAX, REFUSED_RETRY_MIN_MS,
};
use edged::model::any_api::{AnyTarget, AnyVerb};
use edged::model::api::Kind;
use edged::model::application::Gvr;
use edged::model::base64;
use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::node;
use crate::world::{Faults, World, config};

pub fn services() -> Gvr {
    Gvr::new("", "v1", "services")
}

pub fn service(name: &str, port: u16) -> Value {
    json!({"kind": "Service", "apiVersion": "v1", "metadata": {"name": name, "namespace": "n",
        "labels": {"app": name}}, "spec": {"ports": [{"port": port}]}})
}

pub fn allowing(reads: &str, writes: &str, user: RequestUser) -> Config {
    let access = Access::parse(reads, writes, user).expect("lists");
    Config { access: Some(access), ..config() }
}

pub fn open() -> Config {
    let reads = format!("{READS},pods,configmaps,gadgets.x.org,*.many.org");
    allowing(&reads, "configmaps,leases.coordination.k8s.io", RequestUser::Controller)
}

/// With the connected nodes `e1` and `e2`, which have the node groups `g1` and `g2`.
pub fn world_with(config: fn() -> Config) -> World {
    let mut cluster = Cluster::default();
    for (name, group) in [("e1", "g1"), ("e2", "g2"), ("e3", "g1")] {
        let mut node = node(name);
        node["metadata"]["labels"]["apps.kubeedge.io/belonging-to"] = json!(group);
        cluster.apply(Kind::Node, node);
    }
    let mut world = World::with(config, SyncStore::Table, 7, cluster, Faults::default());
    world.pass(10);
    world.connect("e1");
    world.connect("e2");
    world.pass(10);
    for name in ["e1", "e2"] {
        world.edge(name).received.clear();
    }
    world
}

pub fn application(verb: &str, key: &str, option: &Value) -> Value {
    json!({"ID": format!("{verb} {key} {option}"), "Key": key, "Verb": verb, "Nodename": "e1",
        "Option": base64::encode(option.to_string().as_bytes()), "ReqBody": null,
        "Subresource": "", "RespBody": null, "Status": "InApplying", "Reason": "",
        "Error": {"ErrStatus": {"metadata": {}}}, "Timestamp": "0001-01-01T00:00:00Z"})
}

/// Sends an Application. Returns the id of its message.
pub fn apply(world: &mut World, node: &str, application: &Value) -> String {
    let message = world.edge(node).apply("null", application);
    world.send(node, message)
}

/// The answer to an Application, if there is one.
fn answer(world: &mut World, node: &str, id: &str) -> Option<Value> {
    let reply = world.edge(node).replies.remove(id)?;
    assert_eq!(&*reply.route.operation, "applicationResponse");
    assert_eq!(&*reply.route.source, "dynamiccontroller");
    world.edge(node).answers.remove(id)
}

pub fn applied(world: &mut World, node: &str, application: &Value) -> Value {
    let id = apply(world, node, application);
    world.pass(100);
    answer(world, node, &id).expect("an answer")
}

fn code(answer: &Value) -> u64 {
    assert_eq!(answer["Status"], "Rejected", "{answer}");
    answer["Error"]["ErrStatus"]["code"].as_u64().expect("a code")
}

fn body(answer: &Value) -> Value {
    assert_eq!(answer["Status"], "Approved", "{answer}");
    let bytes = answer["RespBody"].as_str().and_then(base64::decode).expect("base64");
    serde_json::from_slice(&bytes).expect("JSON")
}

pub fn watch(key: &str, labels: &str) -> Value {
    application("watch", key, &json!({"labelSelector": labels, "watch": true}))
}

pub fn all_services() -> Value {
    watch("/core/v1/services/null/null", "")
}

/// The events that a node received since the last call: operation and resource.
pub fn events(world: &mut World, node: &str) -> Vec<String> {
    let received = std::mem::take(&mut world.edge(node).received);
    let events = received.into_iter().filter(|(operation, ..)| operation != "applicationResponse");
    events.map(|(operation, resource, _)| format!("{operation} {resource}")).collect()
}

pub fn sync(world: &mut World, node: &str, watches: &[Value]) -> Value {
    let all: BTreeMap<&str, &Value> =
        watches.iter().map(|watch| (watch["ID"].as_str().expect("an id"), watch)).collect();
    let message = world.edge(node).apply("watchapp/sync", &json!(all));
    let id = world.send(node, message);
    world.pass(100);
    answer(world, node, &id).expect("an answer")
}

/// Time passes, and the node sends signs of life.
fn pass_alive(world: &mut World, node: &str, ms: u64) {
    let end = world.now.boot.0 + ms;
    while world.now.boot.0 < end {
        let sign = world.edge(node).keepalive();
        world.send(node, sign);
        world.pass((end - world.now.boot.0).min(10_000));
    }
}

#[test]
fn a_list_is_answered_without_managed_fields() {
    let mut world = world_with(open);
    world.any.apply(&services(), service("web", 80));
    world.any.apply(&services(), service("db", 81));
    let option = json!({"labelSelector": "app=web", "timeoutSeconds": 7});
    let list =
        body(&applied(&mut world, "e1", &application("list", "/core/v1/services/n/null", &option)));
    assert_eq!(list["items"].as_array().map(Vec::len), Some(1));
    assert_eq!(list["items"][0]["spec"]["ports"][0]["port"], 80);
    assert!(!list.to_string().contains("managedFields"));
    let one = application("get", "/core/v1/services/n/db", &json!({}));
    assert_eq!(body(&applied(&mut world, "e1", &one))["metadata"]["name"], "db");
    let none = application("get", "/core/v1/services/n/none", &json!({}));
    assert_eq!(code(&applied(&mut world, "e1", &none)), 404);
    let version = applied(&mut world, "e1", &application("get", "/readyz", &json!({})));
    assert_eq!(version["RespBody"], base64::encode(b"ok"), "a text that is no JSON");
    let counters = world.controller.counters();
    assert_eq!((counters.applications, counters.applications_rejected), (4, 1));
}

#[test]
fn what_is_not_allowed_is_rejected_and_not_called() {
    let mut world = world_with(open);
    let mut refused = |verb: &str, key: &str| {
        let answer = applied(&mut world, "e1", &application(verb, key, &json!({})));
        (code(&answer), world.any_calls.len())
    };
    assert_eq!(refused("get", "/core/v1/secrets/n/s"), (403, 0));
    assert_eq!(refused("watch", "/core/v1/secrets/null/null"), (403, 0));
    assert_eq!(refused("delete", "/core/v1/services/n/web"), (403, 0));
    assert_eq!(refused("get", "/core/v1/pods/../secrets"), (400, 0));
    assert_eq!(refused("connect", "/core/v1/pods/n/p"), (400, 0));
    assert!(world.any_watched().is_empty());
}

#[test]
fn writes_are_made_as_the_nodes_user_where_that_is_configured() {
    let as_node = || allowing("configmaps", "configmaps", RequestUser::Node);
    for (config, user) in [(open as fn() -> Config, None), (as_node, Some("e1"))] {
        let mut world = world_with(config);
        let object = json!({"kind": "ConfigMap", "apiVersion": "v1", "data": {"k": "v"},
            "metadata": {"name": "m", "namespace": "n"}});
        let option = json!({"fieldManager": "f"});
        let mut create = application("create", "/core/v1/configmaps/n/null", &option);
        create["ReqBody"] = base64::encode(object.to_string().as_bytes()).into();
        assert_eq!(body(&applied(&mut world, "e1", &create))["data"]["k"], "v");
        let call = world.any_calls.last().expect("a call");
        assert_eq!((call.verb, call.node.as_deref()), (AnyVerb::Create, user));
        assert_eq!(call.parameter("fieldManager"), "f");
        let delete = application("delete", "/core/v1/configmaps/n/m", &json!({}));
        let answer = applied(&mut world, "e1", &delete);
        assert_eq!((&answer["Status"], &answer["RespBody"]), (&json!("Approved"), &Value::Null));
        let maps = Gvr::new("", "v1", "configmaps");
        assert_eq!(world.any.of(&maps).count(), 0);
    }
}

#[test]
fn all_nodes_share_one_watch_and_each_gets_what_it_selects() {
    let mut world = world_with(open);
    world.any.apply(&services(), service("web", 80));
    world.any.apply(&services(), service("db", 81));
    assert_eq!(applied(&mut world, "e1", &all_services())["Status"], "Approved");
    let some = watch("/core/v1/services/n/null", "app=db");
    assert_eq!(applied(&mut world, "e2", &some)["Status"], "Approved");
    assert_eq!(world.any_watched(), [services().to_string()]);
    assert_eq!(events(&mut world, "e1"), ["insert n/service/db", "insert n/service/web"]);
    assert_eq!(events(&mut world, "e2"), ["insert n/service/db"]);

    world.any.apply(&services(), service("web", 82));
    world.pass(100);
    assert_eq!(events(&mut world, "e1"), ["update n/service/web"]);
    assert_eq!(events(&mut world, "e2"), [""; 0]);
    let has = world.edge("e1").messages.last().expect("an event").clone();
    assert_eq!(&*has.route.source, "dynamiccontroller");
    assert!(!has.header.resource_version.is_empty());

    world.any.remove(&services(), "n", "db");
    world.pass(100);
    for node in ["e1", "e2"] {
        assert_eq!(events(&mut world, node), ["delete n/service/db"]);
        let deleted = world.edge(node).messages.last().expect("an event").clone();
        let deleted: Value =
            serde_json::from_str(deleted.content.expect("an object").get()).expect("JSON");
        assert_eq!(deleted["metadata"]["labels"]["app"], "db", "its selector is compared");
    }
    let counters = world.controller.counters();
    assert_eq!((counters.dynamic_resources, counters.dynamic_listeners), (1, 2));
    assert_eq!(counters.dynamic_events, 6);
    let shown = world.controller.overview().resources.expect("nodes may request it");
    let [ResourceOverview { name, state, objects, bytes, nodes, watches, trouble }] = &shown[..]
    else {
        panic!("{shown:?}");
    };
    assert_eq!((&**name, &**state, &**trouble), ("services", "watching", ""));
    assert_eq!((*objects, *nodes, *watches), (1, 2, 2));
    assert!(*bytes > 0);
}

#[test]
fn an_object_that_leaves_the_selector_is_told_once_and_its_deletion_too() {
    let mut world = world_with(open);
    world.any.apply(&services(), service("db", 81));
    applied(&mut world, "e1", &watch("/core/v1/services/n/null", "app=db"));
    assert_eq!(events(&mut world, "e1"), ["insert n/service/db"]);
    let mut left = service("db", 81);
    left["metadata"]["labels"]["app"] = json!("other");
    for (object, expected) in [(left.clone(), vec!["update n/service/db"]), (left, vec![])] {
        world.any.apply(&services(), object);
        world.pass(100);
        assert_eq!(events(&mut world, "e1"), expected);
    }
    world.any.remove(&services(), "n", "db");
    world.pass(100);
    assert_eq!(events(&mut world, "e1"), ["delete n/service/db"]);
}

#[test]
fn a_resource_that_is_not_there_or_not_shown_is_rejected_with_a_status() {
    let mut world = world_with(open);
    let gadgets = Gvr::new("x.org", "v1", "gadgets");
    world.any.unserved.insert(gadgets.clone());
    world.any.forbidden.insert(services());
    let gadget_watch = watch("/x.org/v1/gadgets/null/null", "");
    assert_eq!(code(&applied(&mut world, "e1", &gadget_watch)), 404);
    assert_eq!(code(&applied(&mut world, "e1", &all_services())), 403);
    let shown = world.controller.overview().resources.expect("nodes may request it");
    let gadget = shown.iter().find(|it| it.name == "gadgets.x.org").expect("it is kept");
    assert!(gadget.trouble.starts_with("404: "), "{gadget:?}");
    let lists = world.controller.counters().lists;
    assert_eq!(code(&applied(&mut world, "e2", &gadget_watch)), 404, "known for a while");
    assert_eq!(world.controller.counters().lists, lists);
    // Nothing else is disturbed.
    let maps = applied(&mut world, "e1", &watch("/core/v1/configmaps/null/null", ""));
    assert_eq!(maps["Status"], "Approved");

    world.any.unserved.clear();
    world.pass(DYNAMIC_REFUSED_MS);
    assert_eq!(applied(&mut world, "e2", &gadget_watch)["Status"], "Approved");
}

#[test]
fn a_watch_whose_resource_is_not_listed_in_time_is_held_and_served_later() {
    let mut world = world_with(open);
    world.any_is_silent = true;
    let id = apply(&mut world, "e1", &all_services());
    world.pass(DYNAMIC_ANSWER_MS - 10);
    assert_eq!(answer(&mut world, "e1", &id), None);
    world.pass(20);
    assert_eq!(answer(&mut world, "e1", &id).expect("an answer")["Status"], "Approved");
}

#[test]
fn a_held_watch_of_a_resource_that_comes_later_is_served_then() {
    let mut world = world_with(open);
    world.any.unserved.insert(services());
    let failed = sync(&mut world, "e1", &[all_services()]);
    assert_eq!(failed, json!({}), "it is not known yet");
    world.any.unserved.clear();
    world.any.apply(&services(), service("web", 80));
    pass_alive(&mut world, "e1", DYNAMIC_RELIST_MS - 200);
    assert_eq!(events(&mut world, "e1"), [""; 0]);
    world.pass(300);
    assert_eq!(events(&mut world, "e1"), ["insert n/service/web"]);
}

#[test]
fn events_are_sent_until_they_are_acknowledged_and_then_later() {
    let mut world = world_with(open);
    world.any.apply(&services(), service("web", 80));
    world.edge("e1").deaf = true;
    apply(&mut world, "e1", &all_services());
    pass_alive(&mut world, "e1", ACK_MS * u64::from(ACK_TRIES) + 100);
    let sent = events(&mut world, "e1");
    assert_eq!(sent.len(), ACK_TRIES as usize, "{sent:?}");
    pass_alive(&mut world, "e1", REFUSED_RETRY_MIN_MS - 200);
    assert_eq!(events(&mut world, "e1"), [""; 0]);
    world.edge("e1").deaf = false;
    world.pass(200);
    assert_eq!(events(&mut world, "e1"), ["insert n/service/web"], "it may not have it");
    pass_alive(&mut world, "e1", 60_000);
    assert_eq!(events(&mut world, "e1"), [""; 0]);
}

#[test]
fn only_the_newest_version_waits_and_events_under_way_are_bounded() {
    let mut world = world_with(open);
    for at in 0..=DYNAMIC_EVENTS_MAX {
        world.any.apply(&services(), service(&format!("s{at:02}"), 80));
    }
    world.edge("e1").deaf = true;
    apply(&mut world, "e1", &all_services());
    world.pass(1_000);
    assert_eq!(events(&mut world, "e1").len(), DYNAMIC_EVENTS_MAX);
    let last = format!("s{DYNAMIC_EVENTS_MAX:02}");
    for port in 81..90 {
        world.any.apply(&services(), service(&last, port));
    }
    world.edge("e1").deaf = false;
    world.pass(ACK_MS);
    let sent = events(&mut world, "e1");
    let of_last = sent.iter().filter(|event| event.ends_with(&last)).count();
    assert_eq!((sent.len(), of_last), (DYNAMIC_EVENTS_MAX + 1, 1), "{sent:?}");
    assert_eq!(
        world.edge("e1").store[&format!("n/service/{last}")]["spec"]["ports"][0]["port"],
        89
    );
}

#[test]
fn more_objects_than_are_compared_at_once_arrive_all() {
    let mut world = world_with(open);
    for at in 0..=2 * DYNAMIC_COMPARED_MAX {
        world.any.apply(&services(), service(&format!("s{at:04}"), 80));
    }
    applied(&mut world, "e1", &watch("/core/v1/services/null/null", "app=s0000"));
    assert_eq!(events(&mut world, "e1"), ["insert n/service/s0000"]);
    applied(&mut world, "e1", &all_services());
    world.pass(10_000);
    assert_eq!(events(&mut world, "e1").len(), 2 * DYNAMIC_COMPARED_MAX);
}

#[test]
fn after_a_reconnection_only_what_changed_is_sent() {
    let mut world = world_with(open);
    world.any.apply(&services(), service("web", 80));
    world.any.apply(&services(), service("db", 81));
    applied(&mut world, "e1", &all_services());
    events(&mut world, "e1");
    let session = world.session("e1").expect("a session");
    world.disconnect(session);
    world.any.apply(&services(), service("new", 82));
    world.any.remove(&services(), "n", "db");
    world.pass(LISTENER_GRACE_MS - 1_000);
    world.connect("e1");
    world.pass(100);
    let mut sent = events(&mut world, "e1");
    sent.retain(|event| event.contains("/service/"));
    sent.sort();
    assert_eq!(sent, ["delete n/service/db", "insert n/service/new"]);
    // The node names its watches: nothing is sent again.
    assert_eq!(sync(&mut world, "e1", &[all_services()]), json!({}));
    assert_eq!(events(&mut world, "e1"), [""; 0]);
}

#[test]
fn watches_end_with_the_grace_period_and_come_back_by_sync() {
    let mut world = world_with(open);
    world.any.apply(&services(), service("web", 80));
    applied(&mut world, "e1", &all_services());
    let session = world.session("e1").expect("a session");
    world.disconnect(session);
    world.pass(LISTENER_GRACE_MS + 100);
    assert_eq!(world.controller.counters().dynamic_listeners, 0);
    world.pass(DYNAMIC_UNUSED_MS);
    assert!(world.any_watched().is_empty(), "nobody needs it");
    world.connect("e1");
    world.pass(100);
    events(&mut world, "e1");
    let forbidden = watch("/core/v1/secrets/null/null", "");
    let failed = sync(&mut world, "e1", &[all_services(), forbidden.clone()]);
    assert_eq!(failed.as_object().map(serde_json::Map::len), Some(1));
    assert_eq!(code(&failed[forbidden["ID"].as_str().expect("an id")]), 403);
    world.pass(100);
    assert_eq!(events(&mut world, "e1"), ["insert n/service/web"]);
    // A sync without it ends it.
    sync(&mut world, "e1", &[]);
    assert_eq!(world.controller.counters().dynamic_listeners, 0);
}

#[test]
fn a_node_that_registers_may_have_lost_all() {
    let mut world = world_with(open);
    world.any.apply(&services(), service("web", 80));
    world.any.apply(&services(), service("db", 81));
    applied(&mut world, "e1", &all_services());
    events(&mut world, "e1");
    let session = world.session("e1").expect("a session");
    world.disconnect(session);
    world.any.remove(&services(), "n", "db");
    world.connect("e1");
    let message = world.edge("e1").register();
    world.send("e1", message);
    world.pass(100);
    assert_eq!(world.controller.counters().dynamic_listeners, 0, "it has begun a new life");
    applied(&mut world, "e1", &all_services());
    let sent = events(&mut world, "e1");
    assert!(sent.contains(&"insert n/service/web".to_owned()), "{sent:?}");
}

#[test]
fn the_nodes_own_pods_do_not_come_twice() {
    let mut world = world_with(open);
    let pods = Gvr::new("", "v1", "pods");
    for (name, on) in [("own", "e1"), ("other", "e2")] {
        let pod = json!({"kind": "Pod", "apiVersion": "v1",
            "metadata": {"name": name, "namespace": "n"}, "spec": {"nodeName": on}});
        world.any.apply(&pods, pod);
    }
    applied(&mut world, "e1", &watch("/core/v1/pods/null/null", ""));
    assert_eq!(events(&mut world, "e1"), ["insert n/pod/other"]);
}

#[test]
fn a_service_may_limit_its_addresses_to_the_nodes_group() {
    let mut world = world_with(open);
    let endpoints = Gvr::new("", "v1", "endpoints");
    let mut web = service("web", 80);
    web["metadata"]["annotations"] =
        json!({"apps.kubeedge.io/service-topology": "range-nodegroup"});
    world.any.apply(&services(), web);
    let address = |node: &str| json!({"ip": node, "nodeName": node});
    let object = json!({"kind": "Endpoints", "apiVersion": "v1",
        "metadata": {"name": "web", "namespace": "n"},
        "subsets": [{"addresses": [address("e1"), address("e2"), address("e3")]}]});
    world.any.apply(&endpoints, object);
    let nodes = |object: &Value| -> Vec<String> {
        let all = object["subsets"][0]["addresses"].as_array().cloned().unwrap_or_default();
        all.iter().map(|it| it["nodeName"].as_str().expect("a node").to_owned()).collect()
    };
    let list = application("list", "/core/v1/endpoints/n/null", &json!({}));
    let listed = body(&applied(&mut world, "e1", &list));
    assert_eq!(nodes(&listed["items"][0]), ["e1", "e3"]);
    for (node, expected) in [("e1", vec!["e1", "e3"]), ("e2", vec!["e2"])] {
        applied(&mut world, node, &watch("/core/v1/endpoints/null/null", ""));
        assert_eq!(nodes(&world.edge(node).store["n/endpoints/web"]), expected, "{node}");
    }
    // A node comes into another group.
    let mut moved = node("e3");
    moved["metadata"]["labels"]["apps.kubeedge.io/belonging-to"] = json!("g2");
    world.cluster.apply(Kind::Node, moved);
    world.pass(1_000);
    assert_eq!(nodes(&world.edge("e1").store["n/endpoints/web"]), ["e1"]);
    assert_eq!(nodes(&world.edge("e2").store["n/endpoints/web"]), ["e2", "e3"]);
    // The Service does not limit them any more.
    world.any.apply(&services(), service("web", 80));
    world.pass(1_000);
    assert_eq!(nodes(&world.edge("e1").store["n/endpoints/web"]), ["e1", "e2", "e3"]);
}

#[test]
fn endpoints_wait_for_the_services_that_limit_them_and_not_for_ever() {
    let mut world = world_with(open);
    world.any_is_silent = true;
    let list = application("list", "/core/v1/endpoints/n/null", &json!({}));
    apply(&mut world, "e1", &list);
    world.pass(DYNAMIC_SERVICES_MS - 10);
    assert_eq!(world.any_calls.len(), 0);
    world.pass(20);
    assert_eq!(world.any_calls.len(), 1);
}

#[test]
fn as_a_nodes_user_a_watch_needs_that_it_may_list() {
    let as_node = || allowing(READS, "", RequestUser::Node);
    let mut world = world_with(as_node);
    world.any.powerless.insert("e2".into());
    assert_eq!(applied(&mut world, "e1", &all_services())["Status"], "Approved");
    let call = world.any_calls.last().expect("a call");
    assert_eq!((call.verb, call.parameter("limit")), (AnyVerb::List, "1"));
    assert_eq!(code(&applied(&mut world, "e2", &all_services())), 403);
    assert_eq!(world.controller.counters().dynamic_listeners, 1);
}

#[test]
fn requests_of_a_node_are_bounded_and_hold_up_no_other() {
    let mut world = world_with(open);
    world.any_is_silent = true;
    let get = |at: usize| application("get", &format!("/core/v1/services/n/s{at}"), &json!({}));
    let ids: Vec<String> = (0..=APPLICATION_CALLS_MAX + APPLICATIONS_MAX)
        .map(|at| apply(&mut world, "e1", &get(at)))
        .collect();
    world.pass(100);
    assert_eq!(world.any_calls.len(), APPLICATION_CALLS_MAX);
    let answers: Vec<Option<Value>> = ids.iter().map(|id| answer(&mut world, "e1", id)).collect();
    let refused: Vec<u64> = answers.iter().flatten().map(code).collect();
    assert_eq!(refused, [429], "the last one");
    apply(&mut world, "e2", &get(0));
    world.pass(100);
    assert_eq!(world.any_calls.len(), APPLICATION_CALLS_MAX + 1);
}

#[test]
fn requests_of_a_node_are_bounded_in_bytes() {
    let mut world = world_with(open);
    world.any_is_silent = true;
    let mut create = application("create", "/core/v1/configmaps/n/null", &json!({}));
    create["ReqBody"] = base64::encode(&vec![b'x'; APPLICATIONS_BYTES_MAX / 4]).into();
    // The request is kept for its answer as well: half as many fit.
    for _ in 0..APPLICATION_CALLS_MAX {
        apply(&mut world, "e1", &create);
        world.pass(10);
    }
    assert_eq!(world.any_calls.len(), APPLICATION_CALLS_MAX);
    let last: Vec<String> = (0..2).map(|_| apply(&mut world, "e1", &create)).collect();
    world.pass(100);
    assert_eq!(answer(&mut world, "e1", &last[0]), None);
    let refused = answer(&mut world, "e1", &last[1]).expect("an answer");
    assert_eq!(code(&refused), 429);
}

#[test]
fn calls_for_all_nodes_are_bounded() {
    let mut world = world_with(open);
    world.any_is_silent = true;
    let get = application("get", "/core/v1/services/n/s", &json!({}));
    let nodes = APPLICATION_CALLS_ALL_MAX / APPLICATION_CALLS_MAX + 1;
    for at in 0..nodes {
        let name = format!("x{at}");
        world.connect(&name);
        world.pass(10);
        for _ in 0..APPLICATION_CALLS_MAX {
            apply(&mut world, &name, &get);
        }
    }
    world.pass(100);
    assert_eq!(world.any_calls.len(), APPLICATION_CALLS_ALL_MAX);
}

#[test]
fn an_answer_has_a_bound() {
    let mut world = world_with(open);
    let mut large = service("web", 80);
    large["spec"]["x"] = json!("x".repeat(APPLICATION_ANSWER_BYTES_MAX));
    world.any.apply(&services(), large);
    let list = application("list", "/core/v1/services/n/null", &json!({}));
    assert_eq!(code(&applied(&mut world, "e1", &list)), 413);
    assert!(world.session("e1").is_some());
}

#[test]
fn watches_of_a_node_and_resources_are_bounded() {
    let mut world = world_with(open);
    let of = |at: usize| watch("/core/v1/services/null/null", &format!("a=v{at}"));
    for at in 0..LISTENERS_OF_NODE_MAX {
        assert_eq!(applied(&mut world, "e1", &of(at))["Status"], "Approved", "{at}");
    }
    assert_eq!(code(&applied(&mut world, "e1", &of(LISTENERS_OF_NODE_MAX))), 429);
    let kind = |at: usize| watch(&format!("/many.org/v1/kind{at}/null/null"), "");
    for at in 1..DYNAMIC_RESOURCES_MAX {
        assert_eq!(applied(&mut world, "e2", &kind(at))["Status"], "Approved", "{at}");
    }
    assert_eq!(code(&applied(&mut world, "e2", &kind(0))), 429);
    // One that nobody needs makes room.
    let others: Vec<Value> = (2..DYNAMIC_RESOURCES_MAX).map(kind).collect();
    sync(&mut world, "e2", &others);
    assert_eq!(applied(&mut world, "e2", &kind(0))["Status"], "Approved");
    let unwatched = Gvr::new("many.org", "v1", "kind1").to_string();
    assert!(!world.any_watched().contains(&unwatched));
}

#[test]
fn a_restart_of_the_controller_is_healed_by_sync() {
    let mut world = world_with(open);
    world.any.apply(&services(), service("web", 80));
    applied(&mut world, "e1", &all_services());
    world.crash();
    world.pass(100);
    world.connect("e1");
    world.pass(100);
    events(&mut world, "e1");
    assert_eq!(sync(&mut world, "e1", &[all_services()]), json!({}));
    world.pass(100);
    assert_eq!(events(&mut world, "e1"), ["insert n/service/web"]);
}

#[test]
fn a_call_is_made_for_the_object_that_is_named() {
    let mut world = world_with(open);
    let get = application("get", "/core/v1/namespaces/kube-system/kube-system", &json!({}));
    applied(&mut world, "e1", &get);
    let AnyTarget::Object { namespace, name, .. } = &world.any_calls[0].target else { panic!() };
    assert_eq!((&**namespace, &**name), ("", "kube-system"));
}
