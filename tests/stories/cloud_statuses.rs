//! The node's own fields of a pod's status in the cloud, and those of others.

use edged::model::meta::Saved;
use serde_json::{Value, json};

use crate::cloud_harness::{CloudHarness, content, patch, pod, row};

fn disrupted(reason: &str) -> Value {
    json!({"type": "DisruptionTarget", "status": "True", "reason": reason, "message": "it was low",
        "lastProbeTime": null, "lastTransitionTime": "2027-01-15T08:00:00Z"})
}

#[test]
fn why_a_pod_was_evicted_outlives_the_agent() {
    let mut evicted = pod("p", "u", 7);
    evicted["status"] = json!({"phase": "Failed", "reason": "Evicted", "message": "it was low",
        "conditions": [disrupted("TerminationByKubelet")]});
    let rows = vec![row("ns/pod/p", &evicted)];
    let mut cloud = CloudHarness::with(Saved::kept(rows));
    cloud.connect();
    cloud.sign_of_life();
    cloud.pass(5_000);
    let reported = cloud.take_sent("podpatch");
    assert_eq!(reported.len(), 1);
    let status = &patch(&reported[0])["status"];
    assert_eq!((&status["phase"], &status["message"]), (&"Failed".into(), &"it was low".into()));
    let conditions = status["conditions"].as_array().expect("a list");
    assert!(conditions.contains(&disrupted("TerminationByKubelet")), "{conditions:?}");
}

#[test]
fn who_makes_a_pod_go_says_so_and_the_node_does_not_take_it_back() {
    let mut cloud = CloudHarness::new();
    cloud.push("insert", "ns/pod/p", &pod("p", "u", 7));
    cloud.work();
    cloud.sign_of_life();
    cloud.pass(2_000);
    let reported = cloud.take_sent("podpatch");
    let mut changed = pod("p", "u", 8);
    let status = &cloud.harness.agent.pods().next().expect("one").status;
    changed["status"] = serde_json::to_value(status).expect("plain data");
    cloud.answer(&reported[0], &json!({"Object": changed, "Err": null}));
    changed["metadata"]["resourceVersion"] = json!("9");
    let conditions = changed["status"]["conditions"].as_array_mut().expect("a list");
    conditions.push(disrupted("EvictionByEvictionAPI"));
    cloud.push("update", "ns/pod/p", &changed);
    cloud.sign_of_life();
    cloud.pass(12_000);
    assert_eq!(cloud.take_sent("podpatch").len(), 0, "it differs in nothing of the node's");
    // Something of the node's own changes.
    cloud.harness.exits("m", 1);
    cloud.work();
    cloud.sign_of_life();
    cloud.pass(2_000);
    let reported = cloud.take_sent("podpatch");
    assert!(!reported.is_empty());
    for message in reported {
        let text = content(&message).to_string();
        assert!(!text.contains("DisruptionTarget"), "{text}");
    }
}

#[test]
fn pods_that_have_ended_take_no_room_in_the_next_life() {
    let ended = |name: &str, phase: &str| {
        let mut ended = pod(name, name, 7);
        ended["status"] = json!({"phase": phase});
        row(&format!("ns/pod/{name}"), &ended)
    };
    let rows = vec![
        ended("a", "Succeeded"),
        ended("b", "Failed"),
        row("ns/pod/c", &pod("c", "c", 7)),
        row("ns/pod/d", &pod("d", "d", 7)),
    ];
    let saved = Saved::kept(rows);
    let mut cloud = CloudHarness::set_up(saved, |config| config.pods_max = 2);
    cloud.work();
    assert_eq!(cloud.harness.running().len(), 2);
}

/// The former life began to evict the pod, reported it to the cloud, and was cut off.
fn about_to_be_evicted() -> CloudHarness {
    let mut leaving = pod("p", "u", 7);
    leaving["status"] = json!({"phase": "Running", "reason": "Evicted", "message": "it was low"});
    let rows = vec![row("ns/pod/p", &leaving)];
    CloudHarness::with(Saved::kept(rows))
}

#[test]
fn a_pod_that_was_about_to_be_evicted_in_an_earlier_life_is_not_said_to_be() {
    let mut cloud = about_to_be_evicted();
    cloud.work();
    let status = cloud.harness.status();
    assert_eq!(status["phase"], "Running");
    assert!(status.get("reason").is_none() && status.get("message").is_none(), "{status}");
}

#[test]
fn what_an_earlier_life_said_of_a_pod_is_taken_back() {
    let mut cloud = about_to_be_evicted();
    cloud.connect();
    cloud.sign_of_life();
    cloud.pass(5_000);
    let status = patch(&cloud.take_sent("podpatch")[0])["status"].clone();
    let status = status.as_object().expect("a map");
    assert_eq!((&status["reason"], &status["message"]), (&Value::Null, &Value::Null));
}

#[test]
fn a_pod_whose_phase_somebody_has_made_final_in_the_cloud_ends_and_stays_so() {
    for phase in ["Failed", "Succeeded"] {
        let mut cloud = CloudHarness::new();
        let mut wanted = pod("p", "u", 7);
        wanted["spec"]["terminationGracePeriodSeconds"] = json!(7);
        cloud.push("insert", "ns/pod/p", &wanted);
        cloud.work();
        cloud.sign_of_life();
        cloud.pass(2_000);
        let mut runs = wanted.clone();
        let mut reported = cloud.take_sent("podpatch");
        while let Some(message) = reported.pop() {
            runs["metadata"]["resourceVersion"] = json!("8");
            let status = patch(&message)["status"].clone();
            for (key, value) in status.as_object().expect("a map") {
                runs["status"][key] = value.clone();
            }
            cloud.answer(&message, &json!({"Object": runs, "Err": null}));
            reported = cloud.take_sent("podpatch");
        }
        let mut given_up = wanted.clone();
        given_up["metadata"]["resourceVersion"] = json!("9");
        given_up["status"] =
            json!({"phase": phase, "reason": "Shutdown", "message": "the node was drained"});
        let id = cloud.push("update", "ns/pod/p", &given_up);
        assert!(cloud.acked().contains(&id));
        assert_eq!(cloud.harness.open_calls(), ["stop_container c2 7"]);
        cloud.work();
        cloud.sign_of_life();
        cloud.pass(15_000);
        assert_eq!(cloud.harness.running(), [] as [&str; 0], "whatever its restartPolicy");
        let status = cloud.harness.status();
        assert_eq!((&status["phase"], &status["reason"]), (&json!(phase), &json!("Shutdown")));
        assert_eq!(status["message"], "the node was drained");
        let reported = cloud.take_sent("podpatch");
        assert!(!reported.is_empty(), "of its containers");
        for message in reported {
            let status = &patch(&message)["status"];
            assert!(status.get("phase").is_none() && status.get("reason").is_none(), "{status}");
        }
        // Its deletion was not requested.
        assert!(cloud.sent.iter().all(|sent| &*sent.route.operation != "delete"));
    }
}

/// A pod whose readiness gate others open; with this value of their condition, none if it is empty.
fn gated(version: u64, value: &str) -> Value {
    let mut gated = pod("p", "u", version);
    gated["spec"]["readinessGates"] = json!([{"conditionType": "site/up"}]);
    if !value.is_empty() {
        gated["status"]["conditions"] = json!([
            {"type": "site/up", "status": value}, {"type": "site/other", "status": "False"}]);
    }
    gated
}

/// Whether the pod is ready, and why not.
fn ready(cloud: &CloudHarness) -> (String, String) {
    let status = cloud.harness.status();
    let all = status["conditions"].as_array().expect("a list");
    let ready = all.iter().find(|it| it["type"] == "Ready").expect("it is reported");
    let text = |key: &str| ready[key].as_str().unwrap_or_default().to_owned();
    (text("status"), text("message"))
}

#[test]
fn a_gate_that_others_open_makes_a_pod_ready() {
    let mut cloud = CloudHarness::new();
    cloud.push("insert", "ns/pod/p", &gated(7, ""));
    cloud.work();
    let none = "corresponding condition of pod readiness gate \"site/up\" does not exist.";
    assert_eq!(ready(&cloud), ("False".to_owned(), none.to_owned()));
    cloud.keeps = false;
    cloud.push("update", "ns/pod/p", &gated(8, "True"));
    assert_eq!(cloud.saves.len(), 1, "the next life has to know it");
    assert_eq!(ready(&cloud).0, "False", "not before it is durable");
    cloud.save();
    cloud.keeps = true;
    assert_eq!(ready(&cloud), ("True".to_owned(), String::new()));
    cloud.sign_of_life();
    cloud.pass(12_000);
    let reported = cloud.take_sent("podpatch");
    assert!(!reported.is_empty());
    for sent in reported {
        let reported = patch(&sent)["status"]["conditions"].clone();
        let theirs = |it: &Value| it["type"].as_str().is_some_and(|kind| kind.starts_with("site/"));
        assert!(!reported.as_array().expect("a list").iter().any(theirs), "others': {reported}");
    }
    for (version, value, why) in [
        (9, "False", "the status of pod readiness gate \"site/up\" is not \"True\", but False"),
        (
            10,
            "Unknown",
            "the status of pod readiness gate \"site/up\" is not \"True\", but Unknown",
        ),
        (11, "", none),
    ] {
        cloud.push("update", "ns/pod/p", &gated(version, value));
        assert_eq!(ready(&cloud), ("False".to_owned(), why.to_owned()));
    }
    assert_eq!(cloud.harness.running(), ["m"], "nothing else comes of it");
    assert_eq!(cloud.harness.open_calls(), [] as [&str; 0]);
}

#[test]
fn a_gate_that_was_open_is_open_in_the_next_life() {
    let rows = vec![row("ns/pod/p", &gated(8, "True"))];
    let mut cloud = CloudHarness::with(Saved::kept(rows));
    cloud.work();
    assert_eq!(ready(&cloud), ("True".to_owned(), String::new()));
}

#[test]
fn what_the_cloud_does_not_answer_is_told_again() {
    let mut cloud = CloudHarness::new();
    cloud.push("insert", "ns/pod/p", &pod("p", "u", 7));
    cloud.work();
    cloud.sign_of_life();
    cloud.pass(2_000);
    assert_eq!(cloud.take_sent("podpatch").len(), 1);
    for _ in 0..10 {
        cloud.pass(10_000);
        cloud.sign_of_life();
    }
    // By then the cloud is taken for an old one, which has another word for it.
    assert_eq!(cloud.take_sent("podstatus").len(), 1);
}

#[test]
fn a_cloud_that_has_lost_what_it_was_told_is_told_the_same_again() {
    let mut cloud = CloudHarness::new();
    let lost = |version: u64| pod("p", "u", version);
    cloud.push("insert", "ns/pod/p", &lost(7));
    cloud.work();
    for version in [100, 200, 300] {
        cloud.sign_of_life();
        cloud.pass(12_000);
        let reported = cloud.take_sent("podpatch");
        let [message] = &reported[..] else { panic!("{version}: {reported:?}") };
        assert_eq!(patch(message)["status"]["phase"], "Running");
        let mut has = lost(version);
        has["status"] = cloud.harness.status();
        cloud.answer(message, &json!({"Object": has, "Err": null}));
        cloud.pass(12_000);
        assert!(cloud.take_sent("podpatch").is_empty(), "it has all of it");
        // Its store is lost: it comes back with the pod as the manifest has it.
        cloud.disconnect();
        cloud.pass(15_000);
        cloud.connect();
        cloud.push("update", "ns/pod/p", &lost(version + 50));
    }
}

#[test]
fn who_else_made_a_pod_go_is_not_named_by_the_next_life() {
    let mut going = pod("p", "u", 7);
    going["status"] =
        json!({"phase": "Running", "conditions": [disrupted("PreemptionByScheduler")]});
    let rows = vec![row("ns/pod/p", &going)];
    let mut cloud = CloudHarness::with(Saved::kept(rows));
    cloud.work();
    let conditions = cloud.harness.status()["conditions"].to_string();
    assert!(!conditions.contains("DisruptionTarget"), "{conditions}");
}
