//! What of a pod's status in the cloud is the node's, and what is others'.

use edged::model::meta::{Saved, StoreOrigin};
use serde_json::{Value, json};

use crate::cloud_harness::{Sky, content, patch, pod, row};

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
    let mut sky = Sky::with(Saved { rows, origin: StoreOrigin::Kept });
    sky.connect();
    sky.hear();
    sky.pass(5_000);
    let told = sky.said("podpatch");
    assert_eq!(told.len(), 1);
    let status = &patch(&told[0])["status"];
    assert_eq!((&status["phase"], &status["message"]), (&"Failed".into(), &"it was low".into()));
    let conditions = status["conditions"].as_array().expect("a list");
    assert!(conditions.contains(&disrupted("TerminationByKubelet")), "{conditions:?}");
}

#[test]
fn who_makes_a_pod_go_says_so_and_the_node_does_not_take_it_back() {
    let mut sky = Sky::new();
    sky.push("insert", "ns/pod/p", &pod("p", "u", 7));
    sky.work();
    sky.hear();
    sky.pass(2_000);
    let told = sky.said("podpatch");
    let mut changed = pod("p", "u", 8);
    let status = &sky.desk.agent.pods().next().expect("one").status;
    changed["status"] = serde_json::to_value(status).expect("plain data");
    sky.answer(&told[0], &json!({"Object": changed, "Err": null}));
    changed["metadata"]["resourceVersion"] = json!("9");
    let conditions = changed["status"]["conditions"].as_array_mut().expect("a list");
    conditions.push(disrupted("EvictionByEvictionAPI"));
    sky.push("update", "ns/pod/p", &changed);
    sky.hear();
    sky.pass(12_000);
    assert_eq!(sky.said("podpatch").len(), 0, "it differs in nothing of the node's");
    // Something of the node's own changes.
    sky.desk.exits("m", 1);
    sky.work();
    sky.hear();
    sky.pass(2_000);
    let told = sky.said("podpatch");
    assert!(!told.is_empty());
    for message in told {
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
    let saved = Saved { rows, origin: StoreOrigin::Kept };
    let mut sky = Sky::set_up(saved, |config| config.pods_max = 2);
    sky.work();
    assert_eq!(sky.desk.running().len(), 2);
}

/// The life before began to evict the pod, told the cloud, and was cut off.
fn about_to_be_evicted() -> Sky {
    let mut leaving = pod("p", "u", 7);
    leaving["status"] = json!({"phase": "Running", "reason": "Evicted", "message": "it was low"});
    let rows = vec![row("ns/pod/p", &leaving)];
    Sky::with(Saved { rows, origin: StoreOrigin::Kept })
}

#[test]
fn a_pod_that_was_about_to_be_evicted_in_an_earlier_life_is_not_said_to_be() {
    let mut sky = about_to_be_evicted();
    sky.work();
    let status = sky.desk.status();
    assert_eq!(status["phase"], "Running");
    assert!(status.get("reason").is_none() && status.get("message").is_none(), "{status}");
}

#[test]
fn what_an_earlier_life_said_of_a_pod_is_taken_back() {
    let mut sky = about_to_be_evicted();
    sky.connect();
    sky.hear();
    sky.pass(5_000);
    let status = patch(&sky.said("podpatch")[0])["status"].clone();
    let status = status.as_object().expect("a map");
    assert_eq!((&status["reason"], &status["message"]), (&Value::Null, &Value::Null));
}

#[test]
fn a_pod_whose_phase_somebody_has_made_final_in_the_cloud_ends_and_stays_so() {
    for phase in ["Failed", "Succeeded"] {
        let mut sky = Sky::new();
        let mut wanted = pod("p", "u", 7);
        wanted["spec"]["terminationGracePeriodSeconds"] = json!(7);
        sky.push("insert", "ns/pod/p", &wanted);
        sky.work();
        sky.hear();
        sky.pass(2_000);
        let mut runs = wanted.clone();
        let mut told = sky.said("podpatch");
        while let Some(message) = told.pop() {
            runs["metadata"]["resourceVersion"] = json!("8");
            let status = patch(&message)["status"].clone();
            for (key, value) in status.as_object().expect("a map") {
                runs["status"][key] = value.clone();
            }
            sky.answer(&message, &json!({"Object": runs, "Err": null}));
            told = sky.said("podpatch");
        }
        let mut given_up = wanted.clone();
        given_up["metadata"]["resourceVersion"] = json!("9");
        given_up["status"] =
            json!({"phase": phase, "reason": "Shutdown", "message": "the node was drained"});
        let id = sky.push("update", "ns/pod/p", &given_up);
        assert!(sky.acked().contains(&id));
        assert_eq!(sky.desk.asked_for(), ["stop_container c2 7"]);
        sky.work();
        sky.hear();
        sky.pass(15_000);
        assert_eq!(sky.desk.running(), [] as [&str; 0], "whatever its restartPolicy");
        let status = sky.desk.status();
        assert_eq!((&status["phase"], &status["reason"]), (&json!(phase), &json!("Shutdown")));
        assert_eq!(status["message"], "the node was drained");
        let told = sky.said("podpatch");
        assert!(!told.is_empty(), "of its containers");
        for message in told {
            let status = &patch(&message)["status"];
            assert!(status.get("phase").is_none() && status.get("reason").is_none(), "{status}");
        }
        // Nobody has asked for its deletion.
        assert!(sky.sent.iter().all(|said| &*said.route.operation != "delete"));
    }
}

/// A pod whose gate others open; with this value of their condition, none where it is empty.
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
fn ready(sky: &Sky) -> (String, String) {
    let status = sky.desk.status();
    let all = status["conditions"].as_array().expect("a list");
    let ready = all.iter().find(|it| it["type"] == "Ready").expect("it is told");
    let text = |key: &str| ready[key].as_str().unwrap_or_default().to_owned();
    (text("status"), text("message"))
}

#[test]
fn a_gate_that_others_open_makes_a_pod_ready() {
    let mut sky = Sky::new();
    sky.push("insert", "ns/pod/p", &gated(7, ""));
    sky.work();
    let none = "corresponding condition of pod readiness gate \"site/up\" does not exist.";
    assert_eq!(ready(&sky), ("False".to_owned(), none.to_owned()));
    sky.keeps = false;
    sky.push("update", "ns/pod/p", &gated(8, "True"));
    assert_eq!(sky.saves.len(), 1, "the next life has to know it");
    assert_eq!(ready(&sky).0, "False", "not before it is durable");
    sky.save();
    sky.keeps = true;
    assert_eq!(ready(&sky), ("True".to_owned(), String::new()));
    sky.hear();
    sky.pass(12_000);
    let told = sky.said("podpatch");
    assert!(!told.is_empty());
    for said in told {
        let told = patch(&said)["status"]["conditions"].clone();
        let theirs = |it: &Value| it["type"].as_str().is_some_and(|kind| kind.starts_with("site/"));
        assert!(!told.as_array().expect("a list").iter().any(theirs), "others': {told}");
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
        sky.push("update", "ns/pod/p", &gated(version, value));
        assert_eq!(ready(&sky), ("False".to_owned(), why.to_owned()));
    }
    assert_eq!(sky.desk.running(), ["m"], "nothing else comes of it");
    assert_eq!(sky.desk.asked_for(), [] as [&str; 0]);
}

#[test]
fn a_gate_that_was_open_is_open_in_the_next_life() {
    let rows = vec![row("ns/pod/p", &gated(8, "True"))];
    let mut sky = Sky::with(Saved { rows, origin: StoreOrigin::Kept });
    sky.work();
    assert_eq!(ready(&sky), ("True".to_owned(), String::new()));
}

#[test]
fn what_the_cloud_does_not_answer_is_told_again() {
    let mut sky = Sky::new();
    sky.push("insert", "ns/pod/p", &pod("p", "u", 7));
    sky.work();
    sky.hear();
    sky.pass(2_000);
    assert_eq!(sky.said("podpatch").len(), 1);
    for _ in 0..10 {
        sky.pass(10_000);
        sky.hear();
    }
    // By then the cloud is taken for an old one, which has another word for it.
    assert_eq!(sky.said("podstatus").len(), 1);
}

#[test]
fn a_cloud_that_has_lost_what_it_was_told_is_told_the_same_again() {
    let mut sky = Sky::new();
    let lost = |version: u64| pod("p", "u", version);
    sky.push("insert", "ns/pod/p", &lost(7));
    sky.work();
    for version in [100, 200, 300] {
        sky.hear();
        sky.pass(12_000);
        let told = sky.said("podpatch");
        let [message] = &told[..] else { panic!("{version}: {told:?}") };
        assert_eq!(patch(message)["status"]["phase"], "Running");
        let mut has = lost(version);
        has["status"] = sky.desk.status();
        sky.answer(message, &json!({"Object": has, "Err": null}));
        sky.pass(12_000);
        assert!(sky.said("podpatch").is_empty(), "it has all of it");
        // Its store is lost: it comes back with the pod as the manifest has it.
        sky.disconnect();
        sky.pass(15_000);
        sky.connect();
        sky.push("update", "ns/pod/p", &lost(version + 50));
    }
}

#[test]
fn who_else_made_a_pod_go_is_not_named_by_the_next_life() {
    let mut going = pod("p", "u", 7);
    going["status"] =
        json!({"phase": "Running", "conditions": [disrupted("PreemptionByScheduler")]});
    let rows = vec![row("ns/pod/p", &going)];
    let mut sky = Sky::with(Saved { rows, origin: StoreOrigin::Kept });
    sky.work();
    let conditions = sky.desk.status()["conditions"].to_string();
    assert!(!conditions.contains("DisruptionTarget"), "{conditions}");
}
