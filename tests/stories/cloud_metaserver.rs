//! MetaServer: the cloud's objects for programs on the gateway, with the cloud and without it.

use std::sync::Arc;

use edged::agent::event::Event;
use edged::limits::{
    METASERVER_LIST_PAGE, METASERVER_RETRY_MS, METASERVER_SAVE_MS, WATCHES_RETRY_MS,
};
use edged::model::application::{Gvr, Scope};
use edged::model::base64;
use edged::model::message::{Header, Message, Route};
use edged::model::meta::{Change, Saved};
use edged::model::metaserver::{
    Call, Caller, ClientId, Form, MetaServerSettings, Recency, Reply, RowChange, Source,
    StoredItem, Watch, WatchEvent,
};
use edged::model::settings::ServiceSettings;
use edged::wire::metaserver::item;
use serde_json::value::to_raw_value;
use serde_json::{Value, json};

use crate::cloud_harness::{CloudHarness, content};

fn object(name: &str, version: u64) -> Value {
    json!({"kind": "EndpointSlice", "apiVersion": "discovery.k8s.io/v1",
        "metadata": {"name": name, "namespace": "ns", "uid": format!("u-{name}"),
            "resourceVersion": version.to_string()},
        "endpoints": [{"addresses": [format!("10.0.0.{version}")]}]})
}

fn slices() -> Scope {
    Scope::all(Gvr::new("discovery.k8s.io", "v1", "endpointslices"))
}

fn with(saved: Saved) -> CloudHarness {
    CloudHarness::set_up(saved, |config| {
        config.metaserver = Some(MetaServerSettings::default());
    })
}

fn opened(cloud: &mut CloudHarness, id: u64, call: Call) {
    cloud.harness.deliver(Event::MetaServerOpened(ClientId(id), Box::new(call), Caller::Local));
    cloud.settle();
    cloud.pass(100);
}

fn list(cloud: &mut CloudHarness, id: u64) {
    let (scope, recency) = (slices(), Recency::Latest);
    opened(cloud, id, Call::List { scope, recency, form: Form::Whole });
}

fn watch(cloud: &mut CloudHarness, id: u64, scope: Scope, version: u64) {
    let (bookmarks, initial_events, form) = (false, false, Form::Whole);
    let timeout_s = Some(3_600);
    let watch = Watch { scope, version, timeout_s, bookmarks, initial_events, form };
    opened(cloud, id, Call::Watch(watch));
}

/// Our next message to the dynamic controller.
fn requested(cloud: &mut CloudHarness) -> Option<Message> {
    let at = cloud.sent.iter().position(|sent| &*sent.route.source == "metaserver")?;
    Some(cloud.sent.remove(at))
}

fn reply(cloud: &mut CloudHarness, to: &Message, resource: &str, answer: &Value) {
    let route = ["dynamiccontroller", "resource", "applicationResponse"].map(Box::from);
    let [source, group, operation] = route;
    cloud.replay(&Message {
        header: Header {
            id: "r".into(),
            parent_id: to.header.id.clone(),
            timestamp_ms: 1_800_000_000_000,
            ..Header::default()
        },
        route: Route { source, group, operation, resource: resource.into() },
        content: Some(to_raw_value(answer).expect("JSON")),
    });
    cloud.pass(100);
}

/// The cloud answers the next request, which must be a list of slices.
fn answer_list(cloud: &mut CloudHarness, items: &[Value], version: &str) -> Value {
    let request = requested(cloud).expect("a list is requested");
    let mut answer = content(&request);
    assert_eq!(answer["Verb"], "list");
    assert_eq!(answer["Key"], "/discovery.k8s.io/v1/endpointslices/null/null");
    let asked = options(&answer);
    let list = json!({"kind": "EndpointSliceList", "apiVersion": "discovery.k8s.io/v1",
        "metadata": {"resourceVersion": version}, "items": items});
    answer["Status"] = json!("Approved");
    answer["RespBody"] = json!(base64::encode(list.to_string().as_bytes()));
    reply(cloud, &request, "ignore/Application/ignore", &answer);
    asked
}

fn options(application: &Value) -> Value {
    let text = application["Option"].as_str().expect("a text");
    serde_json::from_slice(&base64::decode(text).expect("base64")).expect("JSON")
}

/// The cloud takes the watches that the next message names; returns their ids.
fn take_watches(cloud: &mut CloudHarness) -> Vec<String> {
    let sync = requested(cloud).expect("the live watches");
    assert_eq!(&*sync.route.resource, "watchapp/sync");
    let watches = content(&sync);
    reply(cloud, &sync, "watchapp/sync", &json!({}));
    watches.as_object().expect("a map").keys().cloned().collect()
}

fn replies(cloud: &mut CloudHarness) -> Vec<(u64, String)> {
    let shown = |(id, reply): (ClientId, Reply)| {
        let names = |items: &[Arc<edged::model::application::Item>]| {
            items
                .iter()
                .map(|it| format!("{}@{}", it.name, it.version))
                .collect::<Vec<_>>()
                .join(" ")
        };
        let text = match reply {
            Reply::List { items, source: Source::Cloud, .. } => format!("[{}]", names(&items)),
            Reply::List { items, .. } => format!("stored [{}]", names(&items)),
            Reply::Watching(it) => format!("watch [{}]", names(&it.items)),
            Reply::Event(WatchEvent::Added(_, it)) => format!("+{}", names(&[it])),
            Reply::Event(WatchEvent::Modified(_, it)) => format!("~{}", names(&[it])),
            Reply::Event(WatchEvent::Deleted(_, it)) => format!("-{}", names(&[it])),
            Reply::Remote(code, body) => format!("{code} {body}"),
            other => format!("{other:?}"),
        };
        (id.0, text)
    };
    std::mem::take(&mut cloud.replies).into_iter().map(shown).collect()
}

fn one(id: u64, text: &str) -> Vec<(u64, String)> {
    vec![(id, text.to_owned())]
}

/// So many seconds pass, and the link lives.
fn alive(cloud: &mut CloudHarness, seconds: u64) {
    for _ in 0..seconds {
        cloud.pass(1_000);
        cloud.sign_of_life();
    }
}

#[test]
fn a_list_and_a_watch_go_through_the_cloud_and_are_kept_for_the_time_without_it() {
    let mut cloud = with(Saved::kept(Vec::new()));
    cloud.connect();
    assert_eq!(take_watches(&mut cloud), Vec::<String>::new(), "those of before are ended");
    list(&mut cloud, 1);
    let asked = answer_list(&mut cloud, &[object("a", 5)], "9");
    assert_eq!(asked, json!({"limit": METASERVER_LIST_PAGE}));
    assert_eq!(replies(&mut cloud), one(1, "[a@5]"));
    watch(&mut cloud, 2, slices(), 9);
    let id = "edged-endpointslices.discovery.k8s.io.v1-gw";
    assert_eq!(take_watches(&mut cloud), [id]);
    answer_list(&mut cloud, &[object("a", 5)], "10");
    assert_eq!(replies(&mut cloud), one(2, "watch []"));
    // What the watch brings is acknowledged at once, and written later.
    let route = ["dynamiccontroller", "resource", "update", "ns/endpointslice/b"];
    let pushed = cloud.push_to(route, &object("b", 12));
    assert!(cloud.acked().contains(&pushed));
    assert_eq!(replies(&mut cloud), one(2, "+b@12"));
    let is_slice = |change: &Change| match change {
        Change::Put(row) => row.key.contains("endpointslice"),
        _ => false,
    };
    assert!(!cloud.written.iter().any(is_slice), "it has a table of its own");
    alive(&mut cloud, METASERVER_SAVE_MS / 1_000 + 10);
    let row = |change: &Change| match change {
        Change::Item(RowChange::Put(gvr, item)) => Some(gvr.key(&item.namespace, &item.name)),
        _ => None,
    };
    let keys: Vec<String> = cloud.written.iter().filter_map(row).collect();
    let key = |name| format!("/discovery.k8s.io/v1/endpointslices/ns/{name}");
    assert_eq!(keys, [key("a"), key("b")]);
    // The deletion names nothing but the uid.
    let route = ["edgecontroller", "resource", "delete", "ns/endpointslice/a"];
    let deleted =
        cloud.push_to(route, &json!({"metadata": {"name": "a", "namespace": "ns", "uid": "u-a"}}));
    assert!(cloud.acked().contains(&deleted));
    assert_eq!(replies(&mut cloud), one(2, "-a@5"));
    cloud.disconnect();
    list(&mut cloud, 3);
    assert_eq!(replies(&mut cloud), one(3, "stored [b@12]"));
}

#[test]
fn after_a_reboot_without_a_link_the_rows_are_served() {
    let text = object("a", 5).to_string();
    let item = Arc::new(item::read(&text, None).expect("an object"));
    let mut saved = Saved::kept(Vec::new());
    saved.items = vec![StoredItem { item, has_row: true }];
    let mut cloud = with(saved);
    list(&mut cloud, 1);
    assert_eq!(replies(&mut cloud), one(1, "stored [a@5]"));
    watch(&mut cloud, 2, slices(), 0);
    assert_eq!(replies(&mut cloud), one(2, "watch [a@5]"));
    // The link comes: the cloud is asked, and the watch goes on with what has changed.
    cloud.connect();
    assert_eq!(answer_list(&mut cloud, &[object("a", 7)], "9")["limit"], 1, "whether it serves it");
    take_watches(&mut cloud);
    assert_eq!(take_watches(&mut cloud).len(), 1);
    answer_list(&mut cloud, &[object("a", 7), object("c", 8)], "9");
    let mut got = replies(&mut cloud);
    got.sort();
    assert_eq!(got, [(2, "+c@8".to_owned()), (2, "~a@7".to_owned())]);
}

/// What has changed while there was no link comes from the cloud's synchroniser, which knows no
/// watches: it is a row of `meta`. Its deletion may come by the watch.
#[test]
fn a_deletion_that_comes_by_a_watch_removes_the_row_as_well() {
    let mut cloud = with(Saved::kept(Vec::new()));
    cloud.connect();
    let route = ["edgecontroller", "resource", "update", "ns/endpointslice/a"];
    cloud.push_to(route, &object("a", 5));
    let is_put = |change: &Change| matches!(change, Change::Put(row) if row.key.contains("/a"));
    assert!(cloud.written.iter().any(is_put), "{:?}", cloud.written);
    let route = ["dynamiccontroller", "resource", "delete", "ns/endpointslice/a"];
    let deleted = cloud.push_to(route, &object("a", 6));
    let is_it = |key: &str| key == "ns/endpointslice/a";
    let is_delete = |change: &Change| matches!(change, Change::Delete { key } if is_it(key));
    assert!(cloud.written.iter().any(is_delete), "{:?}", cloud.written);
    assert!(cloud.acked().contains(&deleted));
}

#[test]
fn a_refusal_of_the_api_server_is_the_answer() {
    let mut cloud = with(Saved::kept(Vec::new()));
    cloud.connect();
    take_watches(&mut cloud);
    list(&mut cloud, 1);
    let request = requested(&mut cloud).expect("a list");
    let mut answer = content(&request);
    answer["Status"] = json!("Rejected");
    let status = json!({"status": "Failure", "message": "no rights", "reason": "Forbidden",
        "code": 403});
    answer["Error"] = json!({"ErrStatus": status});
    reply(&mut cloud, &request, "ignore/Application/ignore", &answer);
    let got = replies(&mut cloud);
    assert!(got[0].1.starts_with("403 ") && got[0].1.contains("no rights"), "{got:?}");
    let body: Value = serde_json::from_str(&got[0].1[4..]).expect("JSON");
    assert_eq!((&body["kind"], &body["apiVersion"]), (&json!("Status"), &json!("v1")));
}

#[test]
fn services_by_name_and_clients_share_one_watch() {
    let mut cloud = CloudHarness::set_up(Saved::kept(Vec::new()), |config| {
        config.metaserver = Some(MetaServerSettings::default());
        config.services = Some(ServiceSettings::default());
    });
    cloud.connect();
    // The list of Services, and the end of old watches, in whichever order.
    let mut listed = false;
    for _ in 0..2 {
        let request = requested(&mut cloud).expect("a request");
        if &*request.route.resource == "watchapp/sync" {
            reply(&mut cloud, &request, "watchapp/sync", &json!({}));
            continue;
        }
        let mut answer = content(&request);
        let none = json!({"kind": "ServiceList", "apiVersion": "v1",
            "metadata": {"resourceVersion": "5"}, "items": []});
        answer["Status"] = json!("Approved");
        answer["RespBody"] = json!(base64::encode(none.to_string().as_bytes()));
        reply(&mut cloud, &request, "ignore/Application/ignore", &answer);
        cloud.pass(1_000);
        listed = true;
    }
    assert!(listed);
    assert_eq!(take_watches(&mut cloud), ["edged-services-gw"]);
    watch(&mut cloud, 1, slices(), 0);
    answer_list(&mut cloud, &[], "9");
    let both = ["edged-endpointslices.discovery.k8s.io.v1-gw", "edged-services-gw"];
    assert_eq!(take_watches(&mut cloud), both, "neither ends the other");
}

#[test]
fn a_watch_that_the_cloud_refuses_is_an_error_and_is_tried_again_later() {
    let mut cloud = with(Saved::kept(Vec::new()));
    cloud.connect();
    take_watches(&mut cloud);
    watch(&mut cloud, 1, slices(), 0);
    answer_list(&mut cloud, &[], "9");
    let sync = requested(&mut cloud).expect("the live watches");
    let mut refused = content(&sync);
    let id = "edged-endpointslices.discovery.k8s.io.v1-gw";
    refused[id]["Status"] = json!("Rejected");
    refused[id]["Reason"] = json!("no rights");
    reply(&mut cloud, &sync, "watchapp/sync", &refused);
    let got = replies(&mut cloud);
    assert!(got[0].1.contains("503") && got[0].1.contains("no rights"), "{got:?}");
    alive(&mut cloud, WATCHES_RETRY_MS / 1_000 + 1);
    assert!(requested(&mut cloud).is_none(), "nobody watches any more");
}

/// The cloud answers the next request, which must be a list, whichever.
fn answer_empty_list(cloud: &mut CloudHarness) {
    let request = requested(cloud).expect("a list is requested");
    let mut answer = content(&request);
    assert_eq!(answer["Verb"], "list");
    let none = json!({"kind": "EndpointSliceList", "apiVersion": "discovery.k8s.io/v1",
        "metadata": {"resourceVersion": "9"}, "items": []});
    answer["Status"] = json!("Approved");
    answer["RespBody"] = json!(base64::encode(none.to_string().as_bytes()));
    reply(cloud, &request, "ignore/Application/ignore", &answer);
}

/// All watches are named in each message. While one is not served, changes are missed: it begins
/// anew.
#[test]
fn a_watch_that_is_refused_beside_another_is_listed_again_later() {
    let mut cloud = with(Saved::kept(Vec::new()));
    cloud.connect();
    take_watches(&mut cloud);
    watch(&mut cloud, 1, slices(), 0);
    answer_list(&mut cloud, &[], "9");
    let first = take_watches(&mut cloud).pop().expect("one is watched");
    answer_list(&mut cloud, &[], "9");
    assert_eq!(replies(&mut cloud), one(1, "watch []"));
    watch(&mut cloud, 2, Scope { namespace: "ns".into(), ..slices() }, 0);
    answer_empty_list(&mut cloud);
    let sync = requested(&mut cloud).expect("both watches");
    let mut refused = content(&sync);
    assert_eq!(refused.as_object().expect("a map").len(), 2);
    refused.as_object_mut().expect("a map").retain(|id, _| *id == first);
    refused[&first]["Status"] = json!("Rejected");
    refused[&first]["Reason"] = json!("no rights");
    reply(&mut cloud, &sync, "watchapp/sync", &refused);
    answer_empty_list(&mut cloud);
    alive(&mut cloud, METASERVER_RETRY_MS / 1_000 + 1);
    assert_eq!(take_watches(&mut cloud).len(), 2, "it is tried again");
    answer_list(&mut cloud, &[object("a", 12)], "12");
    let got = replies(&mut cloud);
    assert!(got.contains(&one(1, "+a@12")[0]), "{got:?}");
}
