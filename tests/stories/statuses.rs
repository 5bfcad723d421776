//! What the API shows.

use edged::model::cri::{Code, ContainerState};

use crate::desk::{Desk, MAIN, START, container, pod, sandbox};

#[test]
fn a_running_pod_shows_what_a_kubelet_shows() {
    let mut desk = Desk::new();
    desk.manifests(&[&pod(MAIN)]);
    let pending = desk.status();
    assert_eq!(pending["phase"], "Pending");
    let waiting = &pending["containerStatuses"][0]["state"]["waiting"];
    assert_eq!(waiting["reason"], "ContainerCreating");
    desk.does_all(START);
    let status = desk.status();
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
    let mut desk = Desk::new();
    desk.manifests(&[&pod(MAIN)]);
    desk.does_all(START);
    desk.exits("m", 3);
    desk.does_all(&[
        "container_status c2",
        "image_status i:1",
        "create_container m#1",
        "start_container c3",
        "container_status c3",
    ]);
    let main = &desk.status()["containerStatuses"][0];
    assert_eq!(main["restartCount"], 1);
    assert_eq!(main["lastState"]["terminated"]["exitCode"], 3);
    assert_eq!(main["lastState"]["terminated"]["reason"], "Error");
    assert_eq!(main["lastState"]["terminated"]["containerID"], "containerd://c2");
}

#[test]
fn without_a_clock_no_time_is_made_up() {
    let mut desk = Desk::new();
    desk.now.wall = None;
    desk.manifests(&[&pod(MAIN)]);
    let status = desk.status();
    assert_eq!(status["startTime"], serde_json::Value::Null);
    assert_eq!(status["conditions"][0]["lastTransitionTime"], serde_json::Value::Null);
}

#[test]
fn a_pod_that_fails_with_its_containers_lost_still_shows_that_they_ran() {
    let mut desk = Desk::new();
    desk.manifests(&[&pod(&format!(r#"{MAIN},"activeDeadlineSeconds":60"#))]);
    desk.does_all(START);
    desk.exits("m", 1);
    desk.does_all(&["container_status c2", "image_status i:1", "create_container m#1"]);
    desk.does_all(&["start_container c3", "container_status c3"]);
    // Somebody removes them all by hand.
    desk.containers.clear();
    desk.pass(1_000);
    desk.does("image_status i:1");
    desk.refuses("create_container m#2", Code::Unknown, "no");
    desk.pass(60_000);
    assert_eq!(desk.status()["reason"], "DeadlineExceeded");
    let told = &desk.status()["containerStatuses"][0];
    assert!(told["restartCount"].as_u64().is_some_and(|count| count >= 1), "{told}");
}

#[test]
fn an_init_container_that_cannot_run_again_says_why() {
    let mut desk = Desk::new();
    desk.sandboxes.push(sandbox("s0", 0, false));
    for (id, name) in [("x0", "m"), ("x1", "i")] {
        let mut ended = container(id, name, ContainerState::Exited);
        ended.sandbox.0 = "s0".into();
        desk.containers.push(ended);
    }
    let init = r#""initContainers":[{"name":"i","image":"gone:1"}]"#;
    desk.manifests(&[&pod(&format!("{init},{MAIN}"))]);
    desk.does_all(&["container_status x1", "container_status x0", "stop_podsandbox s0"]);
    desk.does_all(&["remove_container x1", "run_podsandbox #1", "podsandbox_status s1"]);
    desk.does("image_status gone:1");
    desk.refuses("pull_image gone:1", Code::NotFound, "no such host");
    let told = &desk.status()["initContainerStatuses"][0];
    assert_eq!(told["state"]["waiting"]["reason"], "ErrImagePull", "{told}");
    assert_eq!(told["lastState"]["terminated"]["exitCode"], 0);
    assert_eq!(told["ready"], false);
}
