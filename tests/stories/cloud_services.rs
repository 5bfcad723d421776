//! Services of the cloud: listed once per connection, then watched, and kept without a link.

use edged::limits::{SERVICES_LIST_PAGE, SERVICES_LIST_RETRY_MS};
use edged::model::base64;
use edged::model::message::{Header, Message, Route};
use edged::model::meta::{Change, Saved};
use edged::model::settings::ServiceSettings;
use serde_json::value::to_raw_value;
use serde_json::{Value, json};

use crate::cloud_harness::{CloudHarness, content, row};
use crate::cluster::refusal;

fn service(name: &str, version: u64) -> Value {
    json!({"kind": "Service", "apiVersion": "v1",
        "metadata": {"name": name, "namespace": "ns", "uid": format!("u-{name}"),
            "resourceVersion": version.to_string()},
        "spec": {"clusterIP": format!("10.96.0.{version}"), "ports": [{"port": 80}]}})
}

fn stored(names: &[&str]) -> Saved {
    let key = |name| format!("ns/service/{name}");
    Saved::kept(names.iter().map(|&name| row(&key(name), &service(name, 7))).collect())
}

fn with(saved: Saved) -> CloudHarness {
    CloudHarness::set_up(saved, |config| config.services = Some(ServiceSettings::default()))
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
}

fn list(cloud: &mut CloudHarness, to: &Message, items: &[Value], next: &str) {
    let list = json!({"kind": "ServiceList", "apiVersion": "v1",
        "metadata": {"resourceVersion": "90", "continue": next}, "items": items});
    let mut answer = content(to);
    answer["Status"] = json!("Approved");
    answer["RespBody"] = json!(base64::encode(list.to_string().as_bytes()));
    reply(cloud, to, "ignore/Application/ignore", &answer);
    cloud.pass(1_000);
}

fn options(application: &Value) -> Value {
    let text = application["Option"].as_str().expect("a text");
    serde_json::from_slice(&base64::decode(text).expect("base64")).expect("JSON")
}

/// The names in the last table that was given out.
fn served(cloud: &CloudHarness) -> Vec<String> {
    let table = cloud.harness.services.last().expect("a table");
    table.iter().map(|it| it.name.to_string()).collect()
}

/// So many seconds pass, and the link lives.
fn alive(cloud: &mut CloudHarness, seconds: u64) {
    for _ in 0..seconds {
        cloud.pass(1_000);
        cloud.sign_of_life();
        for lease in cloud.take_sent("lease") {
            cloud.answer(&lease, &refusal("InternalError", 500));
        }
    }
}

fn lines(cloud: &CloudHarness) -> usize {
    let about = |line: &&String| line.starts_with("cloud: Services are as last stored");
    cloud.harness.warnings.iter().filter(about).count()
}

#[test]
fn services_are_listed_then_watched_and_those_that_are_gone_are_removed() {
    let mut cloud = with(stored(&["gone", "old"]));
    assert_eq!(served(&cloud), ["gone", "old"], "without a link they are as stored");
    cloud.connect();
    let first = requested(&mut cloud).expect("a list");
    let asked = content(&first);
    assert_eq!(
        (&asked["Verb"], &asked["Key"]),
        (&json!("list"), &json!("/core/v1/services/null/null"))
    );
    assert_eq!(options(&asked), json!({"limit": SERVICES_LIST_PAGE}));
    list(&mut cloud, &first, &[service("old", 7)], "more");
    let second = requested(&mut cloud).expect("the next page");
    assert_eq!(options(&content(&second))["continue"], "more");
    assert_eq!(served(&cloud), ["gone", "old"], "the list is not whole yet");
    list(&mut cloud, &second, &[service("new", 8)], "");
    assert_eq!(served(&cloud), ["new", "old"]);
    let is_old =
        |change: &Change| matches!(change, Change::Put(row) if &*row.key == "ns/service/old");
    assert!(!cloud.written.iter().any(is_old), "what is as it was costs no write");
    // Now the watch, under the same id in each connection.
    let watch = requested(&mut cloud).expect("the live watches");
    assert_eq!(&*watch.route.resource, "watchapp/sync");
    let watches = content(&watch);
    let (id, application) = watches.as_object().expect("a map").iter().next().expect("one");
    assert_eq!((&**id, &application["Verb"]), ("edged-services-gw", &json!("watch")));
    assert_eq!(options(application), json!({"watch": true}));
    reply(&mut cloud, &watch, "watchapp/sync", &json!({}));
    cloud.sent.clear();
    // What it brings is stored, served and acknowledged.
    let route = ["dynamiccontroller", "resource", "update", "ns/service/new"];
    let pushed = cloud.push_to(route, &service("new", 9));
    assert!(cloud.acked().contains(&pushed));
    let table = cloud.harness.services.last().expect("a table");
    assert_eq!(table[0].info().address, "10.96.0.9");
    let gone = json!({"metadata": {"name": "old", "namespace": "ns", "uid": "u-old"}});
    let deleted = cloud.push("delete", "ns/service/old", &gone);
    assert!(cloud.acked().contains(&deleted));
    assert_eq!(served(&cloud), ["new"]);
    alive(&mut cloud, SERVICES_LIST_RETRY_MS / 500);
    assert!(requested(&mut cloud).is_none(), "nothing more is asked in this connection");
}

#[test]
fn a_cloud_without_a_dynamic_controller_is_asked_again_after_minutes_and_named_once() {
    let mut cloud = with(stored(&["old"]));
    cloud.connect();
    requested(&mut cloud).expect("a list");
    alive(&mut cloud, 100);
    assert_eq!(lines(&cloud), 1, "{:?}", cloud.harness.warnings);
    assert!(requested(&mut cloud).is_none(), "it is not asked all the time");
    assert_eq!(served(&cloud), ["old"]);
    alive(&mut cloud, SERVICES_LIST_RETRY_MS / 1_000);
    let again = requested(&mut cloud).expect("another list");
    assert_eq!(lines(&cloud), 1);
    // An answer that is no list removes nothing.
    let mut rejected = content(&again);
    rejected["Status"] = json!("Rejected");
    rejected["Reason"] = json!("no services");
    reply(&mut cloud, &again, "ignore/Application/ignore", &rejected);
    assert_eq!((served(&cloud), lines(&cloud)), (vec!["old".to_owned()], 2));
}

#[test]
fn nothing_is_asked_where_services_are_switched_off() {
    let mut cloud = CloudHarness::with(stored(&["old"]));
    cloud.connect();
    cloud.pass(10_000);
    assert!(requested(&mut cloud).is_none());
    assert!(cloud.harness.services.is_empty());
}

#[test]
fn a_watch_that_the_cloud_refuses_is_named() {
    let mut cloud = with(stored(&[]));
    cloud.connect();
    let first = requested(&mut cloud).expect("a list");
    list(&mut cloud, &first, &[], "");
    let watch = requested(&mut cloud).expect("the live watches");
    let mut refused = content(&watch);
    refused["edged-services-gw"]["Status"] = json!("Rejected");
    refused["edged-services-gw"]["Reason"] = json!("no rights");
    reply(&mut cloud, &watch, "watchapp/sync", &refused);
    assert_eq!(lines(&cloud), 1, "{:?}", cloud.harness.warnings);
    assert!(cloud.harness.warnings.iter().any(|line| line.ends_with("no rights")));
}
