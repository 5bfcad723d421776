//! Clouds up to KubeEdge 1.10: all pods are reported each minute.

use edged::limits::{METASYNC_PODS_MAX, UNSENT_MAX};
use edged::model::message::Message;
use edged::model::meta::Saved;
use edged::model::settings::CloudSettings;
use serde_json::{Value, json};

use crate::cloud_full;
use crate::cloud_harness::{CloudHarness, content, pod};

/// Time passes. An old cloud answers what it supports; returns the reports about pods.
fn pass(cloud: &mut CloudHarness, ms: u64) -> Vec<Message> {
    let mut sent = Vec::new();
    for _ in 0..ms / 1_000 {
        cloud.pass(1_000);
        cloud.sign_of_life();
        for message in std::mem::take(&mut cloud.sent) {
            let kind = message.route.resource.split('/').nth(1).unwrap_or_default().to_owned();
            if matches!(&*kind, "nodestatus" | "podstatus") {
                cloud.answer(&message, &json!("OK"));
            }
            if kind.starts_with("pod") && message.header.parent_id.is_empty() {
                sent.push(message);
            }
        }
        cloud.work();
    }
    sent
}

/// The cloud was detected as old, and has everything about these pods.
fn old(names: &[&str]) -> CloudHarness {
    old_by(CloudSettings::default(), names)
}

/// As [`old`], with these settings.
fn old_by(settings: CloudSettings, names: &[&str]) -> CloudHarness {
    let mut cloud = CloudHarness::set("gw", Saved::default(), settings);
    cloud.connect();
    for name in names {
        cloud.push("insert", &format!("ns/pod/{name}"), &pod(name, name, 7));
    }
    pass(&mut cloud, 100_000);
    cloud
}

fn synced(sent: &[Message]) -> Vec<&Message> {
    sent.iter().filter(|message| &*message.route.source == "metaManager").collect()
}

#[test]
fn an_old_cloud_is_told_of_all_pods_each_minute() {
    let mut cloud = old(&["a", "b"]);
    let sent = pass(&mut cloud, 180_000);
    let all = synced(&sent);
    assert!(all.len() >= 3 && all.len() == sent.len(), "{} of {}", all.len(), sent.len());
    for two in all.windows(2) {
        assert_eq!(two[1].header.timestamp_ms - two[0].header.timestamp_ms, 60_000);
    }
    let route = &all[0].route;
    assert_eq!((&*route.group, &*route.operation), ("resource", "update"));
    assert_eq!(&*route.resource, "ns/podstatus");
    let reported = content(all[0]);
    let reported = reported.as_array().expect("a list");
    let names: Vec<&Value> = reported.iter().map(|one| &one["Name"]).collect();
    assert_eq!(names, ["a", "b"]);
    let keys: Vec<&String> = reported[0].as_object().expect("a map").keys().collect();
    assert_eq!(keys, ["Name", "Status", "UID"]);
    assert_eq!(
        (&reported[0]["UID"], &reported[0]["Status"]["phase"]),
        (&json!("a"), &json!("Running"))
    );
}

#[test]
fn the_report_of_all_pods_comes_in_the_moment_in_which_it_is_due() {
    let settings = CloudSettings { pod_status_sync_ms: 61_003, ..CloudSettings::default() };
    let mut cloud = old_by(settings, &["a"]);
    let sent = pass(&mut cloud, 190_000);
    let at: Vec<i64> = synced(&sent).iter().map(|it| it.header.timestamp_ms).collect();
    assert!(at.len() >= 3 && at.windows(2).all(|two| two[1] - two[0] == 61_003), "{at:?}");
}

#[test]
fn one_message_tells_of_so_many_pods_and_the_next_of_the_others() {
    let names: Vec<String> = (0..=METASYNC_PODS_MAX).map(|n| format!("p{n:03}")).collect();
    let mut cloud = old(&names.iter().map(String::as_str).collect::<Vec<_>>());
    let sent = pass(&mut cloud, 60_000);
    let reported = synced(&sent).into_iter().map(content);
    let reported: Vec<usize> = reported.map(|all| all.as_array().map_or(0, Vec::len)).collect();
    assert_eq!(reported, [METASYNC_PODS_MAX, 1]);
}

#[test]
fn what_an_old_cloud_says_is_gone_by_its_name_alone_ends() {
    let mut cloud = old(&["a"]);
    let gone = json!({"metadata": {"name": "a", "namespace": "ns"}});
    cloud.push("delete", "ns/pod/a", &gone);
    let sent = pass(&mut cloud, 120_000);
    assert_eq!(cloud.harness.running(), [] as [&str; 0]);
    assert!(synced(&sent).is_empty(), "there are no pods");
}

#[test]
fn a_cloud_of_today_is_told_nothing_twice() {
    let mut cloud = CloudHarness::new();
    cloud.push("insert", "ns/pod/p", &pod("p", "u", 7));
    let lease = json!({"Object": null, "Err": {"ErrStatus": {"reason": "NotFound", "code": 404}}});
    for _ in 0..150 {
        cloud.pass(1_000);
        cloud.sign_of_life();
        cloud.work();
        for message in std::mem::take(&mut cloud.sent) {
            assert_ne!(&*message.route.source, "metaManager");
            if message.route.resource.contains("/lease/") {
                cloud.answer(&message, &lease);
            }
        }
    }
}

#[test]
fn the_report_of_each_minute_tells_of_the_clouds_pods_alone_by_namespace() {
    let mut cloud = old(&["a"]);
    let mut other = pod("b", "b", 7);
    other["metadata"]["namespace"] = json!("other");
    cloud.push("insert", "other/pod/b", &other);
    cloud.harness.manifests(&[&crate::harness::pod(crate::harness::MAIN)]);
    let sent = pass(&mut cloud, 30_000);
    let of_b = sent.iter().rfind(|it| &*it.route.resource == "other/podstatus/b").expect("told");
    let status = &content(of_b)["Status"];
    assert_eq!((&status["qosClass"], &status["phase"]), (&json!("BestEffort"), &json!("Running")));
    assert_eq!(cloud.harness.running().len(), 3);
    let sent = pass(&mut cloud, 60_000);
    let reported: Vec<(String, Value)> = synced(&sent)
        .iter()
        .map(|it| (it.route.resource.to_string(), content(it)[0]["Name"].clone()))
        .collect();
    assert_eq!(
        reported,
        [("ns/podstatus".to_owned(), json!("a")), ("other/podstatus".to_owned(), json!("b"))]
    );
    assert!(synced(&sent).iter().all(|it| content(it).as_array().map(Vec::len) == Some(1)));
}

#[test]
fn an_old_cloud_hears_of_no_end_that_is_not_durable_and_deletes_by_itself() {
    let mut cloud = old(&[]);
    let mut job = pod("a", "a", 7);
    job["spec"]["restartPolicy"] = json!("Never");
    cloud.push("insert", "ns/pod/a", &job);
    pass(&mut cloud, 10_000);
    cloud.keeps = false;
    cloud.harness.exits("m", 0);
    let phases = |sent: &[Message]| -> Vec<Value> {
        synced(sent).iter().map(|it| content(it)[0]["Status"]["phase"].clone()).collect()
    };
    let sent = pass(&mut cloud, 120_000);
    assert!(!phases(&sent).contains(&json!("Succeeded")), "{:?}", phases(&sent));
    cloud.keeps = true;
    while !cloud.saves.is_empty() {
        cloud.save();
    }
    let sent = pass(&mut cloud, 120_000);
    assert!(phases(&sent).contains(&json!("Succeeded")), "{:?}", phases(&sent));
    // A pod that is being deleted is not reported any more; its deletion is not requested.
    job["metadata"]["deletionTimestamp"] = json!("2027-01-15T08:00:30Z");
    job["metadata"]["resourceVersion"] = json!("9");
    cloud.push("update", "ns/pod/a", &job);
    pass(&mut cloud, 5_000);
    let sent = pass(&mut cloud, 120_000);
    assert!(sent.iter().all(|it| &*it.route.operation != "delete"), "{sent:?}");
}

/// Time passes; neither the cloud nor the runtime does anything.
fn wait(cloud: &mut CloudHarness, seconds: u64) -> Vec<Message> {
    cloud_full::pass(cloud, seconds);
    let sent = std::mem::take(&mut cloud.sent);
    sent.into_iter().filter(|it| it.route.resource.contains("/podstatus")).collect()
}

#[test]
fn of_a_pod_that_is_gone_there_an_old_cloud_is_told_nothing_while_it_ends() {
    let mut cloud = old(&["a"]);
    let gone = json!({"metadata": {"name": "a", "namespace": "ns"}});
    cloud.push("delete", "ns/pod/a", &gone);
    let sent = wait(&mut cloud, 130);
    assert_eq!(cloud.harness.running(), ["m"], "it takes its time");
    assert!(sent.is_empty(), "{sent:?}");
}

#[test]
fn what_is_not_known_of_a_pod_an_old_cloud_is_not_told() {
    let mut cloud = old(&["a"]);
    cloud.harness.exits("m", 1);
    assert_eq!(cloud.harness.open_calls(), ["container_status c2"]);
    let sent = wait(&mut cloud, 130);
    assert!(sent.is_empty(), "{sent:?}");
    cloud.work();
    assert!(!synced(&wait(&mut cloud, 70)).is_empty());
}

#[test]
fn an_old_cloud_is_told_all_of_a_status_though_it_has_some_of_it() {
    let mut cloud = old(&[]);
    cloud.push("insert", "ns/pod/a", &pod("a", "a", 7));
    // Its sandbox takes a while to make.
    let sent = wait(&mut cloud, 5);
    let status = &content(sent.last().expect("that it has come"))["Status"];
    assert_eq!((&status["phase"], &status["qosClass"]), (&json!("Pending"), &json!("BestEffort")));
}

#[test]
fn the_report_of_all_namespaces_goes_out_as_fast_as_it_may() {
    let settings =
        CloudSettings { messages_per_second: 10, messages_burst: 1, ..CloudSettings::default() };
    let mut cloud = old_by(settings, &["a"]);
    for name in ["b", "c", "d"] {
        let mut other = pod(name, name, 7);
        other["metadata"]["namespace"] = json!(name);
        cloud.push("insert", &format!("{name}/pod/{name}"), &other);
    }
    pass(&mut cloud, 10_000);
    let sent = pass(&mut cloud, 60_000);
    let at: Vec<i64> = synced(&sent).iter().map(|it| it.header.timestamp_ms).collect();
    assert!(!at.is_empty());
    for report in at.chunks(4) {
        assert!(report.windows(2).all(|two| two[1] - two[0] <= 200), "ten in a second: {at:?}");
    }
}

#[test]
fn an_old_cloud_is_told_how_a_node_is_once_it_has_the_node() {
    let mut cloud = CloudHarness::with(Saved::default());
    cloud.connect();
    // By then it is known to be old.
    cloud_full::pass(&mut cloud, 100);
    let sent = cloud.take_sent("nodestatus");
    let operations: Vec<&str> = sent.iter().map(|it| &*it.route.operation).collect();
    assert_eq!(operations, ["insert"]);
    cloud.answer(&sent[0], &json!("OK"));
    cloud.pass(1_000);
    let sent = cloud.take_sent("nodestatus");
    let operations: Vec<&str> = sent.iter().map(|it| &*it.route.operation).collect();
    assert_eq!(operations, ["update"]);
}

#[test]
fn the_report_of_each_minute_waits_for_room_on_the_link_and_tells_of_each_namespace_once() {
    let mut cloud = old(&["a"]);
    for name in ["b", "c"] {
        let mut other = pod(name, name, 7);
        other["metadata"]["namespace"] = json!(name);
        cloud.push("insert", &format!("{name}/pod/{name}"), &other);
    }
    // The next report is due a few seconds later.
    while synced(&pass(&mut cloud, 1_000)).is_empty() {}
    pass(&mut cloud, 55_000);
    cloud.takes = false;
    cloud.flood(cloud_full::absent());
    cloud_full::pass(&mut cloud, 30);
    assert_eq!(cloud_full::own(&cloud), [] as [&str; 0], "nor a report about the node");
    // One after the other leaves.
    let mut reported = Vec::new();
    for _ in 0..20 {
        cloud.leave(1);
        let sent = std::mem::take(&mut cloud.sent);
        reported.extend(synced(&sent).iter().map(|it| it.route.resource.to_string()));
    }
    reported.sort();
    assert_eq!(reported, ["b/podstatus", "c/podstatus", "ns/podstatus"]);
    // The next one comes a minute after this one was due.
    assert!(synced(&pass(&mut cloud, 25_000)).is_empty());
    cloud.takes = true;
    cloud.leave(2 * UNSENT_MAX);
    assert_eq!(synced(&pass(&mut cloud, 10_000)).len(), 3);
}

#[test]
fn over_a_new_link_that_is_full_an_old_cloud_is_told_nothing_before_there_is_room() {
    let mut cloud = old(&["a"]);
    cloud.disconnect();
    cloud.pass(20_000);
    cloud.sent.clear();
    cloud.takes = false;
    cloud.connect_amid(cloud_full::absent());
    cloud_full::pass(&mut cloud, 30);
    assert_eq!(cloud_full::own(&cloud), [] as [&str; 0]);
    cloud.takes = true;
    cloud.leave(2 * UNSENT_MAX);
    let sent = cloud.take_sent("nodestatus");
    assert_eq!(sent.iter().filter(|it| &*it.route.operation == "insert").count(), 1);
}

#[test]
fn after_a_break_the_next_report_of_all_pods_comes_a_minute_after_the_link() {
    let mut cloud = old(&["a"]);
    cloud.disconnect();
    cloud.pass(90_000);
    cloud.sent.clear();
    let up_ms = cloud.clock_ms();
    cloud.connect();
    let sent = pass(&mut cloud, 100_000);
    let at: Vec<i64> = synced(&sent).iter().map(|it| it.header.timestamp_ms - up_ms).collect();
    assert_eq!(at, [60_000]);
}
