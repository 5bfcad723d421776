//! A new or lost store: the cloud is asked which of the running pods are still desired.

use edged::agent::Config;
use edged::limits::{Budget, RELIST_PAGE, UNSAVED_TOMBSTONES_MAX};
use edged::model::base64;
use edged::model::cri::ContainerState;
use edged::model::message::{Header, Message, Route};
use edged::model::meta::{Change, Saved, StoreOrigin};
use edged::model::settings::CloudSettings;
use serde_json::value::to_raw_value;
use serde_json::{Value, json};

use crate::cloud_full;
use crate::cloud_harness::{CloudHarness, content, pod, row};
use crate::harness::{UID, container, sandbox};

const STOPS: &[&str] = &["stop_container c1 2"];
const NOTHING: &[&str] = &[];
const MARK: &str = "edged/store/incomplete";

/// A pod that some cloud has sent runs, and the store is this.
fn after(saved: Saved) -> CloudHarness {
    let set = |config: &mut Config| config.cloud = Some(CloudSettings::default());
    let mut cloud = CloudHarness::beside(saved, set, |harness| {
        let mut one = sandbox("s1", 0, true);
        one.source = Some("api".into());
        harness.sandboxes.push(one);
        harness.containers.push(container("c1", "m", ContainerState::Running));
    });
    cloud.pass(2_000);
    cloud
}

fn lost() -> CloudHarness {
    let mut cloud = after(Saved::new(vec![], StoreOrigin::New));
    cloud.connect();
    cloud
}

/// The list request.
fn requested(cloud: &mut CloudHarness) -> Option<Message> {
    let at = cloud.sent.iter().position(|sent| &*sent.route.source == "metaserver")?;
    Some(cloud.sent.remove(at))
}

fn options(question: &Message) -> Value {
    let text = content(question)["Option"].as_str().expect("a text").to_owned();
    serde_json::from_slice(&base64::decode(&text).expect("base64")).expect("JSON")
}

fn reply(cloud: &mut CloudHarness, to: &Message, application: &Value) {
    let route = ["dynamiccontroller", "resource", "applicationResponse"].map(Box::from);
    let [source, group, operation] = route;
    cloud.replay(&Message {
        header: Header {
            id: "r".into(),
            parent_id: to.header.id.clone(),
            timestamp_ms: 1_800_000_000_000,
            ..Header::default()
        },
        route: Route { source, group, operation, resource: "ignore/Application/ignore".into() },
        content: Some(to_raw_value(application).expect("JSON")),
    });
}

/// The cloud has these pods, and more on the next page.
fn list(cloud: &mut CloudHarness, to: &Message, pods: &[Value], next: &str) {
    let metadata = json!({"resourceVersion": "90", "continue": next});
    let list = json!({"kind": "PodList", "apiVersion": "v1", "metadata": metadata, "items": pods});
    let body = base64::encode(list.to_string().as_bytes());
    let mut reported = content(to);
    reported["Status"] = json!("Approved");
    reported["RespBody"] = json!(body);
    reply(cloud, to, &reported);
    cloud.pass(2_000);
}

/// The pod that runs.
fn own() -> Value {
    let mut own = pod("p-gw", UID, 7);
    own["metadata"]["namespace"] = json!("default");
    own
}

fn is_new(cloud: &CloudHarness) -> bool {
    let overview = cloud.harness.agent.overview(cloud.harness.now);
    overview.cloud.expect("there is one").store_is_new
}

#[test]
fn why_the_store_was_lost_is_shown_until_the_cloud_has_listed_its_pods() {
    let lost = StoreOrigin::Lost("it was set aside".to_owned());
    let mut cloud = after(Saved::new(vec![], lost));
    cloud.connect();
    let shown = |cloud: &CloudHarness| {
        let overview = cloud.harness.agent.overview(cloud.harness.now);
        overview.cloud.expect("there is one").store_loss
    };
    assert_eq!(shown(&cloud).as_deref(), Some("it was set aside"));
    let question = requested(&mut cloud).expect("a question");
    list(&mut cloud, &question, &[], "");
    assert_eq!(shown(&cloud), None);
}

#[test]
fn what_the_cloud_does_not_list_ends() {
    let mut cloud = lost();
    let question = requested(&mut cloud).expect("a question");
    assert_eq!(content(&question)["Key"], "/core/v1/pods/null/null");
    assert_eq!(content(&question)["Verb"], "list");
    assert_eq!(
        options(&question),
        json!({"fieldSelector": "spec.nodeName=gw", "limit": RELIST_PAGE})
    );
    assert_eq!(cloud.harness.open_calls(), NOTHING);
    list(&mut cloud, &question, &[], "");
    assert_eq!(cloud.harness.open_calls(), STOPS);
    assert!(!is_new(&cloud));
}

#[test]
fn what_the_cloud_lists_goes_on_and_is_kept_before_anything_ends() {
    let mut cloud = lost();
    let question = requested(&mut cloud).expect("a question");
    cloud.keeps = false;
    list(&mut cloud, &question, &[own()], "");
    assert!(is_new(&cloud), "nothing of it is durable");
    let changes = cloud.save();
    assert!(
        matches!(&changes[..], [Change::Put(row)] if &*row.key == "default/pod/p-gw"),
        "{changes:?}"
    );
    assert!(!is_new(&cloud));
    let changes = cloud.save();
    assert!(matches!(&changes[..], [Change::Delete { key }] if &**key == MARK), "{changes:?}");
    cloud.pass(5_000);
    assert_eq!(cloud.harness.open_calls().iter().filter(|it| it.contains("stop")).count(), 0);
    assert!(cloud.harness.agent.pod(UID).is_some());
}

#[test]
fn what_is_not_listed_ends_once_what_is_listed_is_kept_and_that_is_said_once() {
    let mut cloud = lost();
    let question = requested(&mut cloud).expect("a question");
    cloud.keeps = false;
    // Some clouds do not send the kind of the list.
    let body = json!({"metadata": {}, "items": [pod("a", "ua", 3)]}).to_string();
    let body = base64::encode(body.as_bytes());
    reply(&mut cloud, &question, &json!({"Status": "Approved", "RespBody": body}));
    cloud.pass(2_000);
    assert!(!cloud.harness.open_calls().contains(&STOPS[0].to_owned()), "nothing of it is durable");
    cloud.keeps = true;
    while !cloud.saves.is_empty() {
        cloud.save();
    }
    cloud.pass(2_000);
    assert!(
        cloud.harness.open_calls().contains(&STOPS[0].to_owned()),
        "{:?}",
        cloud.harness.open_calls()
    );
    for n in 0..3 {
        cloud.push("insert", "ns/pod/b", &pod("b", "ub", 7 + n));
    }
    let line = "all pods of this node are stored; other pods are stopped";
    assert_eq!(cloud.harness.log.iter().filter(|reported| reported.contains(line)).count(), 1);
}

#[test]
fn a_long_list_comes_page_by_page_and_only_the_whole_one_counts() {
    let mut cloud = lost();
    let question = requested(&mut cloud).expect("a question");
    list(&mut cloud, &question, &[pod("a", "ua", 3)], "token");
    assert!(is_new(&cloud));
    let question = requested(&mut cloud).expect("the next page");
    assert_eq!(options(&question)["continue"], "token");
    list(&mut cloud, &question, &[own()], "");
    assert!(!is_new(&cloud));
    assert!(cloud.harness.agent.pod("ua").is_some() && cloud.harness.agent.pod(UID).is_some());
}

#[test]
fn the_next_page_is_asked_for_once_the_one_before_is_kept() {
    let mut cloud = lost();
    let question = requested(&mut cloud).expect("a question");
    cloud.keeps = false;
    list(&mut cloud, &question, &[pod("a", "ua", 3)], "token");
    assert!(requested(&mut cloud).is_none(), "pages do not pile up before a slow disk");
    cloud.save();
    assert!(requested(&mut cloud).is_some());
}

#[test]
fn a_list_that_is_none_or_cannot_be_kept_ends_nothing() {
    let body =
        |text: &str| json!({"Status": "Approved", "RespBody": base64::encode(text.as_bytes())});
    let mut broken = own();
    broken["spec"]["containers"] = json!(7);
    let with_broken = json!({"kind": "PodList", "metadata": {}, "items": [broken]}).to_string();
    for (n, answer) in [
        json!({"Status": "Rejected", "Reason": "no", "Error": {"ErrStatus": {"message": "no"}}}),
        json!({"Status": "Approved", "RespBody": null}),
        json!("OK"),
        body("{}"),
        body(r#"{"kind":"Status","metadata":{},"items":[]}"#),
        body(&with_broken),
    ]
    .iter()
    .enumerate()
    {
        let mut cloud = lost();
        let question = requested(&mut cloud).expect("a question");
        reply(&mut cloud, &question, answer);
        cloud.pass(10_000);
        assert_eq!(cloud.harness.open_calls(), NOTHING, "{n}");
        assert!(is_new(&cloud), "{n}");
        assert!(requested(&mut cloud).is_none(), "{n}: not at once");
        cloud.pass(30_000);
        assert!(requested(&mut cloud).is_some(), "{n}: again");
    }
}

#[test]
fn a_list_that_would_take_too_much_memory_is_of_no_use() {
    let mut cloud = lost();
    let question = requested(&mut cloud).expect("a question");
    let crumbs = vec![0; Budget::FULL.message_values_max];
    let list = json!({"kind": "PodList", "metadata": {}, "items": [], "more": crumbs});
    let body = base64::encode(list.to_string().as_bytes());
    reply(&mut cloud, &question, &json!({"Status": "Approved", "RespBody": body}));
    cloud.pass(2_000);
    assert_eq!(cloud.harness.open_calls(), NOTHING);
    let line = "the cloud's list of pods cannot be used: got ";
    assert_eq!(cloud.harness.log.iter().filter(|reported| reported.contains(line)).count(), 1);
}

#[test]
fn a_cloud_that_does_not_list_is_asked_for_less_and_more_and_more_seldom() {
    let mut cloud = lost();
    let mut questions = Vec::new();
    for _ in 0..900 {
        cloud.sign_of_life();
        cloud.pass(1_000);
        questions.extend(requested(&mut cloud).map(|question| options(&question)["limit"].clone()));
    }
    assert_eq!(questions[0], RELIST_PAGE);
    assert!(questions[1..].iter().all(|limit| *limit == 1), "{questions:?}");
    assert!((2..=5).contains(&questions.len()), "{questions:?}");
    assert_eq!(cloud.harness.open_calls(), NOTHING);
}

#[test]
fn the_list_is_asked_for_when_the_link_has_room() {
    let mut cloud = after(Saved::new(vec![], StoreOrigin::New));
    cloud.takes = false;
    cloud.connect_amid(cloud_full::absent());
    cloud_full::pass(&mut cloud, 20);
    assert!(requested(&mut cloud).is_none(), "it is full from the start");
    cloud_full::empty(&mut cloud);
    assert!(requested(&mut cloud).is_some());
}

#[test]
fn a_store_that_holds_all_asks_for_no_list() {
    let mut cloud =
        after(Saved { rows: vec![row("default/pod/p-gw", &own())], ..Saved::default() });
    cloud.connect();
    cloud.pass(60_000);
    assert!(requested(&mut cloud).is_none());
}

#[test]
fn a_pod_that_the_cloud_says_is_gone_ends_though_the_store_does_not_know_it() {
    let mut cloud = lost();
    cloud.acked();
    cloud.keeps = false;
    let gone = json!({"metadata": {"name": "p-gw", "namespace": "default", "uid": UID}});
    let id = cloud.push("delete", "default/pod/p-gw", &gone);
    assert_eq!(cloud.acked(), [] as [&str; 0], "nothing of it is durable");
    let repeated = cloud.push("delete", "default/pod/p-gw", &gone);
    cloud.pass(5_000);
    assert_eq!(cloud.harness.open_calls(), NOTHING);
    let changes = cloud.save();
    let [Change::Put(mark)] = &changes[..] else { panic!("{changes:?}") };
    assert_eq!(serde_json::from_str::<Value>(&mark.value).expect("JSON"), json!({"gone": [UID]}));
    let mut acked = cloud.acked();
    assert!(acked.contains(&id));
    while !cloud.saves.is_empty() {
        cloud.save();
    }
    acked.extend(cloud.acked());
    assert!(acked.contains(&repeated));
    cloud.pass(5_000);
    assert_eq!(cloud.harness.open_calls(), STOPS);

    // The next life ends it as well.
    let next = after(Saved::kept(vec![mark.clone()]));
    assert_eq!(next.harness.open_calls(), STOPS);
    assert!(!is_new(&next), "no other pod runs");
}

#[test]
fn of_so_many_unknown_pods_it_is_kept_that_they_are_gone_and_others_wait_for_the_list() {
    let mut cloud = lost();
    cloud.acked();
    cloud.keeps = false;
    let mut mark = Value::Null;
    for n in 0..=UNSAVED_TOMBSTONES_MAX {
        let gone = json!({"metadata": {"name": format!("p{n}"), "uid": format!("u{n:04}")}});
        let id = cloud.push("delete", &format!("default/pod/p{n}"), &gone);
        while !cloud.saves.is_empty() {
            for change in cloud.save() {
                if let Change::Put(row) = change {
                    mark = serde_json::from_str(&row.value).expect("JSON");
                }
            }
        }
        cloud.pass(100);
        assert_eq!(cloud.acked(), [id], "or the cloud would send nothing else");
    }
    let expected: Value = (0..UNSAVED_TOMBSTONES_MAX).map(|n| format!("u{n:04}")).collect();
    assert_eq!(mark["gone"], expected);
}
