//! Clouds up to KubeEdge 1.10: all pods are told of again each minute.

use edged::limits::METASYNC_PODS_MAX;
use edged::model::message::Message;
use edged::model::meta::Saved;
use serde_json::{Value, json};

use crate::sky::{Sky, content, pod};

/// Some time passes. An old cloud answers what it knows; what was said of pods.
fn pass(sky: &mut Sky, ms: u64) -> Vec<Message> {
    let mut said = Vec::new();
    for _ in 0..ms / 1_000 {
        sky.pass(1_000);
        sky.hear();
        for message in std::mem::take(&mut sky.sent) {
            let kind = message.route.resource.split('/').nth(1).unwrap_or_default().to_owned();
            if matches!(&*kind, "nodestatus" | "podstatus") {
                sky.answer(&message, &json!("OK"));
            }
            if kind.starts_with("pod") && message.header.parent_id.is_empty() {
                said.push(message);
            }
        }
        sky.work();
    }
    said
}

/// The cloud has been found to be old, and knows all there is of these pods.
fn old(names: &[&str]) -> Sky {
    let mut sky = Sky::with(Saved::default());
    sky.connect();
    for name in names {
        sky.push("insert", &format!("ns/pod/{name}"), &pod(name, name, 7));
    }
    pass(&mut sky, 100_000);
    sky
}

fn synced(said: &[Message]) -> Vec<&Message> {
    said.iter().filter(|message| &*message.route.source == "metaManager").collect()
}

#[test]
fn an_old_cloud_is_told_of_all_pods_each_minute() {
    let mut sky = old(&["a", "b"]);
    let said = pass(&mut sky, 180_000);
    let all = synced(&said);
    assert!(all.len() >= 3 && all.len() == said.len(), "{} of {}", all.len(), said.len());
    for two in all.windows(2) {
        assert_eq!(two[1].header.timestamp_ms - two[0].header.timestamp_ms, 60_000);
    }
    let route = &all[0].route;
    assert_eq!((&*route.group, &*route.operation), ("resource", "update"));
    assert_eq!(&*route.resource, "ns/podstatus");
    let told = content(all[0]);
    let told = told.as_array().expect("a list");
    let names: Vec<&Value> = told.iter().map(|one| &one["Name"]).collect();
    assert_eq!(names, ["a", "b"]);
    let keys: Vec<&String> = told[0].as_object().expect("a map").keys().collect();
    assert_eq!(keys, ["Name", "Status", "UID"]);
    assert_eq!((&told[0]["UID"], &told[0]["Status"]["phase"]), (&json!("a"), &json!("Running")));
}

#[test]
fn one_message_tells_of_so_many_pods_and_the_next_of_the_others() {
    let names: Vec<String> = (0..=METASYNC_PODS_MAX).map(|n| format!("p{n:03}")).collect();
    let mut sky = old(&names.iter().map(String::as_str).collect::<Vec<_>>());
    let said = pass(&mut sky, 60_000);
    let told = synced(&said).into_iter().map(content);
    let told: Vec<usize> = told.map(|all| all.as_array().map_or(0, Vec::len)).collect();
    assert_eq!(told, [METASYNC_PODS_MAX, 1]);
}

#[test]
fn what_an_old_cloud_says_is_gone_by_its_name_alone_ends() {
    let mut sky = old(&["a"]);
    let gone = json!({"metadata": {"name": "a", "namespace": "ns"}});
    sky.push("delete", "ns/pod/a", &gone);
    let said = pass(&mut sky, 120_000);
    assert_eq!(sky.desk.running(), [] as [&str; 0]);
    assert!(synced(&said).is_empty(), "there are no pods");
}

#[test]
fn a_cloud_of_today_is_told_nothing_twice() {
    let mut sky = Sky::new();
    sky.push("insert", "ns/pod/p", &pod("p", "u", 7));
    let lease = json!({"Object": null, "Err": {"ErrStatus": {"reason": "NotFound", "code": 404}}});
    for _ in 0..150 {
        sky.pass(1_000);
        sky.hear();
        sky.work();
        for message in std::mem::take(&mut sky.sent) {
            assert_ne!(&*message.route.source, "metaManager");
            if message.route.resource.contains("/lease/") {
                sky.answer(&message, &lease);
            }
        }
    }
}

#[test]
fn the_report_of_each_minute_tells_of_the_clouds_pods_alone_by_namespace() {
    let mut sky = old(&["a"]);
    let mut other = pod("b", "b", 7);
    other["metadata"]["namespace"] = json!("other");
    sky.push("insert", "other/pod/b", &other);
    sky.desk.manifests(&[&crate::desk::pod(crate::desk::MAIN)]);
    let said = pass(&mut sky, 30_000);
    let of_b = said.iter().rfind(|it| &*it.route.resource == "other/podstatus/b").expect("told");
    let status = &content(of_b)["Status"];
    assert_eq!((&status["qosClass"], &status["phase"]), (&json!("BestEffort"), &json!("Running")));
    assert_eq!(sky.desk.running().len(), 3);
    let said = pass(&mut sky, 60_000);
    let told: Vec<(String, Value)> = synced(&said)
        .iter()
        .map(|it| (it.route.resource.to_string(), content(it)[0]["Name"].clone()))
        .collect();
    assert_eq!(
        told,
        [("ns/podstatus".to_owned(), json!("a")), ("other/podstatus".to_owned(), json!("b"))]
    );
    assert!(synced(&said).iter().all(|it| content(it).as_array().map(Vec::len) == Some(1)));
}

#[test]
fn an_old_cloud_hears_of_no_end_that_is_not_durable_and_deletes_by_itself() {
    let mut sky = old(&[]);
    let mut job = pod("a", "a", 7);
    job["spec"]["restartPolicy"] = json!("Never");
    sky.push("insert", "ns/pod/a", &job);
    pass(&mut sky, 10_000);
    sky.keeps = false;
    sky.desk.exits("m", 0);
    let phases = |said: &[Message]| -> Vec<Value> {
        synced(said).iter().map(|it| content(it)[0]["Status"]["phase"].clone()).collect()
    };
    let said = pass(&mut sky, 120_000);
    assert!(!phases(&said).contains(&json!("Succeeded")), "{:?}", phases(&said));
    sky.keeps = true;
    while !sky.saves.is_empty() {
        sky.save();
    }
    let said = pass(&mut sky, 120_000);
    assert!(phases(&said).contains(&json!("Succeeded")), "{:?}", phases(&said));
    // One that it wants gone is not told of any more; nobody asks for its deletion.
    job["metadata"]["deletionTimestamp"] = json!("2027-01-15T08:00:30Z");
    job["metadata"]["resourceVersion"] = json!("9");
    sky.push("update", "ns/pod/a", &job);
    pass(&mut sky, 5_000);
    let said = pass(&mut sky, 120_000);
    assert!(said.iter().all(|it| &*it.route.operation != "delete"), "{said:?}");
}
