//! Statuses in the API.

use edged::agent::event::Event;
use edged::agent::time::Wall;
use edged::model::cri::{Code, ContainerState, Request};
use edged::model::time::Timestamp;
use serde_json::Value;

use crate::harness::{Harness, MAIN, START, UID, container, pod, sandbox};

#[test]
fn a_running_pod_shows_what_a_kubelet_shows() {
    let mut harness = Harness::new();
    harness.manifests(&[&pod(MAIN)]);
    let pending = harness.status();
    assert_eq!(pending["phase"], "Pending");
    let waiting = &pending["containerStatuses"][0]["state"]["waiting"];
    assert_eq!(waiting["reason"], "ContainerCreating");
    harness.does_all(START);
    let status = harness.status();
    assert_eq!(status["qosClass"], "BestEffort");
    assert_eq!(status["hostIP"], "192.0.2.1");
    assert_eq!(status["podIPs"][0]["ip"], "10.0.0.5");
    let main = &status["containerStatuses"][0];
    assert_eq!(main["containerID"], "containerd://c2");
    assert_eq!(main["state"]["running"]["startedAt"], "2027-01-15T08:00:00Z");
    assert_eq!(main["ready"], true);
    assert_eq!(main["started"], true);
    assert_eq!(main["lastState"], serde_json::json!({}));
    let conditions: Vec<String> = status["conditions"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|c| {
            format!("{}={}", c["type"].as_str().expect("text"), c["status"].as_str().expect("text"))
        })
        .collect();
    assert_eq!(
        conditions,
        [
            "PodReadyToStartContainers=True",
            "Initialized=True",
            "Ready=True",
            "ContainersReady=True",
            "PodScheduled=True"
        ]
    );
}

#[test]
fn a_restarted_container_shows_how_it_ended_before() {
    let mut harness = Harness::new();
    harness.manifests(&[&pod(MAIN)]);
    harness.does_all(START);
    harness.exits("m", 3);
    harness.does_all(&[
        "container_status c2",
        "image_status i:1",
        "create_container m#1",
        "start_container c3",
        "container_status c3",
    ]);
    let main = &harness.status()["containerStatuses"][0];
    assert_eq!(main["restartCount"], 1);
    assert_eq!(main["lastState"]["terminated"]["exitCode"], 3);
    assert_eq!(main["lastState"]["terminated"]["reason"], "Error");
    assert_eq!(main["lastState"]["terminated"]["containerID"], "containerd://c2");
}

#[test]
fn without_a_clock_no_time_is_made_up() {
    let mut harness = Harness::new();
    harness.now.wall = None;
    harness.manifests(&[&pod(MAIN)]);
    let status = harness.status();
    assert_eq!(status["startTime"], Value::Null);
    assert_eq!(status["conditions"][0]["lastTransitionTime"], Value::Null);
}

#[test]
fn a_pod_that_fails_with_its_containers_lost_still_shows_that_they_ran() {
    let mut harness = Harness::new();
    harness.manifests(&[&pod(&format!(r#"{MAIN},"activeDeadlineSeconds":60"#))]);
    harness.does_all(START);
    harness.exits("m", 1);
    harness.does_all(&["container_status c2", "image_status i:1", "create_container m#1"]);
    harness.does_all(&["start_container c3", "container_status c3"]);
    // Another tool removes them all.
    harness.containers.clear();
    harness.pass(1_000);
    harness.does("image_status i:1");
    harness.refuses("create_container m#2", Code::Unknown, "no");
    harness.pass(60_000);
    assert_eq!(harness.status()["reason"], "DeadlineExceeded");
    let reported = &harness.status()["containerStatuses"][0];
    assert!(reported["restartCount"].as_u64().is_some_and(|count| count >= 1), "{reported}");
}

#[test]
fn an_ended_pod_shows_its_last_run_also_when_somebody_has_removed_that() {
    let mut harness = Harness::new();
    let first = pod(&format!(r#"{MAIN},"restartPolicy":"OnFailure""#));
    harness.manifests(&[&first]);
    harness.does_all(START);
    harness.exits("m", 3);
    harness.does_all(&["container_status c2", "image_status i:1", "create_container m#1"]);
    harness.does_all(&["start_container c3", "container_status c3"]);
    harness.exits("m", 0);
    harness.does_all(&["container_status c3", "stop_podsandbox s1"]);
    harness.pass(10_000);
    let before = harness.status();
    assert_eq!(before["phase"], "Succeeded");
    assert_eq!(before["containerStatuses"][0]["containerID"], "containerd://c3");
    harness.containers.retain(|container| &*container.id.0 != "c3");
    assert_eq!(harness.containers.len(), 1, "the first run is left");
    // Without another pod nothing would be listed any more.
    let other = pod(MAIN).replace(UID, "another").replace(r#""name":"p""#, r#""name":"q""#);
    harness.manifests(&[&first, &other]);
    harness.refuses("remove_container c2", Code::Unknown, "busy");
    harness.refuses("run_podsandbox #0", Code::Unknown, "no");
    harness.pass(2_000);
    assert_eq!(harness.status()["containerStatuses"], before["containerStatuses"]);
    assert_eq!(harness.status()["phase"], "Succeeded");
}

#[test]
fn an_init_container_that_cannot_run_again_says_why() {
    let mut harness = Harness::new();
    harness.sandboxes.push(sandbox("s0", 0, false));
    for (id, name) in [("x0", "m"), ("x1", "i")] {
        let mut ended = container(id, name, ContainerState::Exited);
        ended.sandbox.0 = "s0".into();
        harness.containers.push(ended);
    }
    let init = r#""initContainers":[{"name":"i","image":"gone:1"}]"#;
    harness.manifests(&[&pod(&format!("{init},{MAIN}"))]);
    harness.does_all(&["container_status x1", "container_status x0", "stop_podsandbox s0"]);
    harness.does_all(&["remove_container x1", "run_podsandbox #1", "podsandbox_status s1"]);
    harness.does("image_status gone:1");
    harness.refuses("pull_image gone:1", Code::NotFound, "no such host");
    let reported = &harness.status()["initContainerStatuses"][0];
    assert_eq!(reported["state"]["waiting"]["reason"], "ErrImagePull", "{reported}");
    assert_eq!(reported["lastState"]["terminated"]["exitCode"], 0);
    assert_eq!(reported["ready"], false);
}

#[test]
fn a_start_time_is_noted_with_the_sandbox_and_holds_in_every_life() {
    let mut harness = Harness::new();
    let copied = pod(MAIN).replacen(
        r#""metadata":{"#,
        r#""metadata":{"annotations":{"kubernetes.io/config.seen":"2026-01-01T00:00:00Z"},"#,
        1,
    );
    harness.manifests(&[&copied]);
    let (call, request) = harness.take("run_podsandbox #0");
    let Request::RunPodSandbox(config) = &request else { panic!("{request:?}") };
    let noted = config.annotations["kubernetes.io/config.seen"].clone();
    let reply = harness.perform(&request);
    harness.deliver(Event::Cri(call, Ok(reply)));
    harness.does_all(&START[1..]);
    assert_eq!(harness.status()["startTime"], noted, "not the value of a copied manifest");

    // A later life, after two days.
    let mut harness = Harness::new();
    harness.now.wall = harness.now.wall.map(|wall| Wall(wall.0 + 172_800_000));
    let mut found = sandbox("s1", 0, true);
    found.seen_at = Timestamp::parse(&noted);
    found.created_at = found.seen_at.expect("a time").0 * 1_000_000_000 + 3_000_000_000;
    harness.sandboxes.push(found.clone());
    harness.containers.push(container("x0", "m", ContainerState::Running));
    harness.manifests(&[&pod(MAIN)]);
    assert_eq!(harness.status()["startTime"], Value::Null, "nothing was requested yet");
    harness.does_all(&["podsandbox_status s1", "container_status x0"]);
    assert_eq!(harness.status()["startTime"], noted);

    // One after a power cut: nothing of it runs, and its sandbox is not inspected.
    let mut harness = Harness::new();
    found.ready = false;
    harness.sandboxes.push(found);
    harness.manifests(&[&pod(MAIN)]);
    harness.pass(2_000);
    assert_eq!(harness.status()["startTime"], noted);
}

#[test]
fn a_clock_that_is_set_late_gives_a_quiet_pod_its_start_time() {
    let mut harness = Harness::new();
    let wall = harness.now.wall.take();
    harness.manifests(&[&pod(MAIN)]);
    harness.does_all(START);
    harness.pass(20_000);
    assert_eq!(harness.status()["startTime"], Value::Null);
    harness.now.wall = wall;
    harness.pass(2_000);
    let reported = harness.status()["startTime"].clone();
    assert_ne!(reported, Value::Null);
    harness.pass(20_000);
    assert_eq!(harness.status()["startTime"], reported);
}

#[test]
fn what_ran_before_the_agent_without_a_note_began_when_its_sandbox_was_made() {
    for (made_at, reported) in
        [(1_799_999_000, "2027-01-15T07:43:20Z"), (60, "2027-01-15T08:00:02Z")]
    {
        let mut harness = Harness::new();
        let mut found = sandbox("s1", 0, true);
        found.created_at = made_at * 1_000_000_000;
        harness.sandboxes.push(found);
        harness.containers.push(container("x0", "m", ContainerState::Running));
        harness.pass(2_000);
        harness.manifests(&[&pod(MAIN)]);
        harness.does_all(&["podsandbox_status s1", "container_status x0"]);
        assert_eq!(harness.status()["startTime"], reported, "never 1970");
    }
}
