//! The lifecycle of a pod from its manifest to its end.

use edged::agent::event::Event;
use edged::agent::time::Wall;
use edged::limits;
use edged::model::cri::{CallError, Code, ContainerState, Lost};

use crate::harness::{Harness, MAIN, START, UID, container, pod, sandbox};

fn start_main(harness: &mut Harness) {
    harness.manifests(&[&pod(MAIN)]);
    harness.does_all(START);
}

#[test]
fn a_pod_is_started_by_the_kubelets_trace() {
    let mut harness = Harness::new();
    harness.images.clear();
    let spec = format!(r#""initContainers":[{{"name":"i","image":"j:1"}}],{MAIN}"#);
    harness.manifests(&[&pod(&spec)]);
    harness.does_all(&["run_podsandbox #0", "podsandbox_status s1", "image_status j:1"]);
    harness.images = vec!["i:1", "j:1"];
    harness.does_all(&[
        "pull_image j:1",
        "image_status j:1",
        "create_container i#0",
        "start_container c2",
        "container_status c2",
    ]);
    assert_eq!(harness.open_calls(), [] as [&str; 0], "the main container waits");
    assert_eq!(harness.status()["phase"], "Pending");
    harness.exits("i", 0);
    harness.does_all(&[
        "container_status c2",
        "image_status i:1",
        "create_container m#0",
        "start_container c3",
        "container_status c3",
    ]);
    assert_eq!(harness.status()["phase"], "Running");
    assert_eq!(harness.status()["podIP"], "10.0.0.5");
}

#[test]
fn a_pod_that_is_removed_stops_gracefully_and_leaves_nothing() {
    let mut harness = Harness::new();
    start_main(&mut harness);
    harness.manifests(&[]);
    harness.does_all(&[
        "stop_container c2 30",
        "stop_podsandbox s1",
        "container_status c2",
        "remove_container c2",
        "remove_podsandbox s1",
    ]);
    harness.pass(100);
    assert_eq!(harness.agent.pods().count(), 0, "forgotten");
    assert_eq!(harness.open_calls(), [] as [&str; 0]);
}

#[test]
fn a_crashed_container_is_restarted_at_once_and_then_ever_later() {
    let mut harness = Harness::new();
    start_main(&mut harness);
    let mut id = 2;
    for (attempt, wait_ms) in [(1, 0), (2, 10_000), (3, 20_000), (4, 40_000)] {
        harness.exits("m", 1);
        harness.does(&format!("container_status c{id}"));
        if attempt >= 2 {
            let waiting = &harness.status()["containerStatuses"][0]["state"]["waiting"];
            assert_eq!(waiting["reason"], "CrashLoopBackOff");
            let message = waiting["message"].as_str().expect("a message");
            let delay = wait_ms / 1000;
            assert!(message.starts_with(&format!("back-off {delay}s restarting")), "{message}");
            // One dead instance is kept: the one before it goes meanwhile.
            harness.does(&format!("remove_container c{}", id - 1));
            harness.pass(wait_ms - 1_100);
            assert_eq!(harness.open_calls(), [] as [&str; 0], "attempt {attempt} came too early");
            harness.pass(1_200);
        }
        id += 1;
        harness.does_all(&[
            "image_status i:1",
            &format!("create_container m#{attempt}"),
            &format!("start_container c{id}"),
            &format!("container_status c{id}"),
        ]);
        assert_eq!(harness.status()["containerStatuses"][0]["restartCount"], attempt);
    }
}

#[test]
fn after_ten_minutes_of_running_a_crash_is_the_first_again() {
    let mut harness = Harness::new();
    start_main(&mut harness);
    harness.exits("m", 1);
    let repeated = ["image_status i:1", "create_container m#1", "start_container c3"];
    harness.does("container_status c2");
    harness.does_all(&repeated);
    harness.does("container_status c3");
    harness.pass(limits::BACKOFF_CALM_MS + 1_000);
    harness.exits("m", 1);
    harness.does("container_status c3");
    assert_eq!(harness.open_calls(), ["image_status i:1"]);
}

#[test]
fn an_image_that_comes_back_has_its_old_back_off() {
    let mut harness = Harness::new();
    start_main(&mut harness);
    harness.exits("m", 1);
    harness.does_all(&["container_status c2", "image_status i:1", "create_container m#1"]);
    harness.does_all(&["start_container c3", "container_status c3"]);
    // It is stopped for another image, which cannot be made a container of.
    harness.manifests(&[&pod(r#""containers":[{"name":"m","image":"i:2"}]"#)]);
    harness.does_all(&["stop_container c3 30", "container_status c3", "image_status i:2"]);
    harness.does("remove_container c2");
    harness.refuses("create_container m#2", Code::Unknown, "no");
    harness.manifests(&[&pod(MAIN)]);
    harness.pass(6_000);
    assert_eq!(harness.open_calls(), [] as [&str; 0]);
    let waiting = &harness.status()["containerStatuses"][0]["state"]["waiting"];
    assert_eq!(waiting["reason"], "CrashLoopBackOff");
    harness.pass(4_000);
    assert_eq!(harness.open_calls(), ["image_status i:1"]);
}

#[test]
fn a_new_image_restarts_the_container_in_its_sandbox() {
    let mut harness = Harness::new();
    start_main(&mut harness);
    harness.manifests(&[&pod(r#""containers":[{"name":"m","image":"i:2"}]"#)]);
    harness.does_all(&[
        "stop_container c2 30",
        "container_status c2",
        "image_status i:2",
        "create_container m#1",
        "start_container c3",
        "container_status c3",
    ]);
    assert!(harness.events.iter().any(|event| event.contains("m definition changed")));
    assert_eq!(harness.running(), ["m"]);
}

#[test]
fn a_job_ends_once_and_is_kept_for_its_logs() {
    let mut harness = Harness::new();
    let spec = format!(r#""restartPolicy":"Never",{MAIN}"#);
    harness.manifests(&[&pod(&spec)]);
    harness.does_all(START);
    harness.exits("m", 0);
    harness.does_all(&["container_status c2", "stop_podsandbox s1"]);
    harness.pass(60_000);
    assert_eq!(harness.open_calls(), [] as [&str; 0]);
    assert_eq!(harness.status()["phase"], "Succeeded");
    assert_eq!(harness.containers.len(), 1, "kept");
    let starts = harness.trace.iter().filter(|call| call.starts_with("run_podsandbox")).count();
    assert_eq!(starts, 1);
}

#[test]
fn sidecars_start_before_and_stop_after_the_main_containers() {
    let mut harness = Harness::new();
    let spec = format!(
        r#""restartPolicy":"Never","initContainers":[
            {{"name":"a","image":"i:1","restartPolicy":"Always"}},
            {{"name":"b","image":"i:1","restartPolicy":"Always"}}],{MAIN}"#
    );
    harness.manifests(&[&pod(&spec)]);
    harness.does_all(&["run_podsandbox #0", "podsandbox_status s1"]);
    for (name, id) in [("a", 2), ("b", 3), ("m", 4)] {
        harness.does_all(&[
            "image_status i:1",
            &format!("create_container {name}#0"),
            &format!("start_container c{id}"),
            &format!("container_status c{id}"),
        ]);
    }
    harness.exits("m", 3);
    harness.does_all(&[
        "container_status c4",
        "stop_container c3 30",
        "stop_container c2 30",
        "stop_podsandbox s1",
        "container_status c3",
        "container_status c2",
    ]);
    assert_eq!(harness.status()["phase"], "Failed", "by the main container alone");
}

#[test]
fn sidecars_wait_for_no_turn_once_the_grace_period_is_used_up() {
    let mut harness = Harness::new();
    let spec = format!(
        r#""initContainers":[{{"name":"a","image":"i:1","restartPolicy":"Always"}},
            {{"name":"b","image":"i:1","restartPolicy":"Always"}}],{MAIN}"#
    );
    harness.manifests(&[&pod(&spec)]);
    harness.does_all(&["run_podsandbox #0", "podsandbox_status s1"]);
    for (name, id) in [("a", 2), ("b", 3), ("m", 4)] {
        harness.does_all(&[
            "image_status i:1",
            &format!("create_container {name}#0"),
            &format!("start_container c{id}"),
            &format!("container_status c{id}"),
        ]);
    }
    harness.manifests(&[]);
    harness.pass(29_000);
    assert_eq!(harness.open_calls(), ["stop_container c4 30"], "there is time for an order");
    harness.pass(1_000);
    let mut requested = harness.open_calls();
    requested.sort();
    assert_eq!(requested, ["stop_container c2 2", "stop_container c3 2", "stop_container c4 30"]);
}

#[test]
fn a_sidecar_that_ends_again_keeps_no_later_container_from_beginning() {
    let mut harness = Harness::new();
    let spec = format!(
        r#""initContainers":[{{"name":"s","image":"i:1","restartPolicy":"Always"}},
            {{"name":"a","image":"i:1"}}],{MAIN}"#
    );
    harness.manifests(&[&pod(&spec)]);
    harness.does_all(&["run_podsandbox #0", "podsandbox_status s1"]);
    for (name, id) in [("s#0", 2), ("a#0", 3)] {
        harness.does_all(&[
            "image_status i:1",
            &format!("create_container {name}"),
            &format!("start_container c{id}"),
            &format!("container_status c{id}"),
        ]);
    }
    harness.exits("s", 1);
    harness.does_all(&["container_status c2", "image_status i:1", "create_container s#1"]);
    harness.does_all(&["start_container c4", "container_status c4"]);
    harness.exits("s", 1);
    harness.does_all(&["container_status c4", "remove_container c2"]);
    assert_eq!(harness.open_calls(), [""; 0], "the sidecar is backed off, the init container runs");
    harness.exits("a", 0);
    harness.does_all(&["container_status c3", "image_status i:1", "create_container m#0"]);
}

#[test]
fn containers_of_a_pod_stop_side_by_side_with_one_grace_period() {
    let mut harness = Harness::new();
    let two = r#""terminationGracePeriodSeconds":7,
        "containers":[{"name":"m","image":"i:1"},{"name":"n","image":"i:1"}]"#;
    harness.manifests(&[&pod(two)]);
    harness.does_all(&["run_podsandbox #0", "podsandbox_status s1"]);
    for (name, id) in [("m", 2), ("n", 3)] {
        harness.does_all(&[
            "image_status i:1",
            &format!("create_container {name}#0"),
            &format!("start_container c{id}"),
            &format!("container_status c{id}"),
        ]);
    }
    harness.manifests(&[]);
    assert_eq!(harness.open_calls(), ["stop_container c3 7", "stop_container c2 7"]);
}

#[test]
fn grace_only_shrinks_and_a_stop_that_was_given_more_is_asked_for_again() {
    let mut harness = Harness::new();
    start_main(&mut harness);
    let deleted = |grace: u32| {
        format!(
            r#"{{"metadata":{{"name":"p","uid":"u1","deletionTimestamp":"2027-01-01T00:00:00Z",
                "deletionGracePeriodSeconds":{grace}}},"spec":{{{MAIN}}}}}"#
        )
    };
    harness.manifests(&[&deleted(20)]);
    assert_eq!(harness.open_calls(), ["stop_container c2 20"]);
    harness.manifests(&[&deleted(40)]);
    assert_eq!(harness.open_calls(), ["stop_container c2 20"], "never longer");
    harness.refuses("stop_container c2 20", Code::Unknown, "no");
    harness.pass(1_000);
    assert_eq!(harness.open_calls(), ["stop_container c2 19"], "and not the next time either");
    harness.manifests(&[&deleted(0)]);
    assert_eq!(harness.open_calls(), ["stop_container c2 2"]);
    assert_eq!(harness.cancelled.len(), 1);
}

#[test]
fn the_end_of_a_pod_cancels_its_pull() {
    let mut harness = Harness::new();
    harness.images.clear();
    harness.manifests(&[&pod(MAIN)]);
    harness.does_all(&["run_podsandbox #0", "podsandbox_status s1", "image_status i:1"]);
    assert_eq!(harness.open_calls(), ["pull_image i:1"]);
    harness.manifests(&[]);
    assert_eq!(harness.cancelled.len(), 1);
    assert_eq!(harness.open_calls(), ["stop_podsandbox s1"]);
}

#[test]
fn a_changed_manifest_without_a_uid_is_another_pod_that_waits_for_the_old_one() {
    let mut harness = Harness::new();
    let with = |image: &str| {
        format!(
            r#"{{"metadata":{{"name":"p"}},
                "spec":{{"containers":[{{"name":"m","image":"{image}"}}]}}}}"#
        )
    };
    harness.manifests(&[&with("i:1")]);
    harness.does_all(START);
    harness.manifests(&[&with("i:2")]);
    assert_eq!(harness.open_calls(), ["stop_container c2 30"], "and no new sandbox beside it");
    harness.does_all(&["stop_container c2 30", "stop_podsandbox s1", "container_status c2"]);
    assert!(
        harness.open_calls().contains(&"run_podsandbox #0".to_owned()),
        "{:?}",
        harness.open_calls()
    );
}

#[test]
fn a_manifest_that_comes_back_while_the_pod_ends_starts_it_anew() {
    let mut harness = Harness::new();
    start_main(&mut harness);
    harness.manifests(&[]);
    harness.manifests(&[&pod(MAIN)]);
    assert_eq!(harness.agent.metrics().restarted_pods, [0, 0]);
    harness.does_all(&[
        "stop_container c2 30",
        "stop_podsandbox s1",
        "container_status c2",
        "remove_container c2",
        "remove_podsandbox s1",
    ]);
    harness.pass(100);
    assert_eq!(harness.open_calls(), ["run_podsandbox #0"]);
    assert_eq!(harness.agent.metrics().restarted_pods, [0, 1]);
}

#[test]
fn a_pod_past_its_deadline_fails() {
    let mut harness = Harness::new();
    let spec = format!(r#""activeDeadlineSeconds":60,{MAIN}"#);
    harness.manifests(&[&pod(&spec)]);
    harness.does_all(START);
    harness.pass(60_000);
    harness.does_all(&["stop_container c2 30", "stop_podsandbox s1", "container_status c2"]);
    assert_eq!(harness.status()["phase"], "Failed");
    assert_eq!(harness.status()["reason"], "DeadlineExceeded");
}

#[test]
fn a_deadline_counts_from_the_start_time_through_restarts_of_the_agent() {
    let spec = format!(r#""activeDeadlineSeconds":3600,{MAIN}"#);
    for (age_s, left_s) in [(3_000, 600), (7_200, 0)] {
        let mut harness = Harness::new();
        let mut made = sandbox("s1", 0, true);
        made.created_at = (harness.now.wall.expect("it is set").0 - age_s * 1000) * 1_000_000;
        harness.sandboxes.push(made);
        harness.containers.push(container("x0", "m", ContainerState::Running));
        harness.pass(2_000);
        harness.manifests(&[&pod(&spec)]);
        if left_s > 0 {
            harness.does_all(&["podsandbox_status s1", "container_status x0"]);
            harness.pass(left_s * 1000 - 5_000);
            assert_eq!(harness.open_calls(), [] as [&str; 0], "{left_s} s are left");
            harness.pass(5_000);
        }
        assert!(harness.open_calls().contains(&"stop_container x0 30".to_owned()), "{age_s}");
    }
}

#[test]
fn a_deadline_is_kept_by_the_time_that_passes_wherever_the_clock_is_set_to() {
    for jump_ms in [-7_200_000, 7_200_000] {
        let mut harness = Harness::new();
        harness.manifests(&[&pod(&format!(r#""activeDeadlineSeconds":600,{MAIN}"#))]);
        harness.does_all(START);
        harness.pass(60_000);
        harness.now.wall = harness.now.wall.map(|wall| Wall(wall.0 + jump_ms));
        harness.exits("m", 1);
        harness.does_all(&["container_status c2", "image_status i:1", "create_container m#1"]);
        harness.does_all(&["start_container c3", "container_status c3"]);
        harness.pass(530_000);
        assert_eq!(harness.open_calls(), [] as [&str; 0], "{jump_ms}");
        harness.pass(20_000);
        assert_eq!(harness.open_calls(), ["stop_container c3 30"], "{jump_ms}");
    }
}

#[test]
fn without_a_pod_network_only_pods_of_the_hosts_network_begin() {
    let mut harness = Harness::new();
    harness.runtime.network = Err("NetworkPluginNotReady: cni plugin not initialized".to_owned());
    harness.pass(limits::STATUS_VALID_MS);
    // It may be the one that brings the network.
    let cni = pod(&format!(r#""hostNetwork":true,{MAIN}"#)).replace("\"p\"", "\"q\"");
    harness.manifests(&[&pod(MAIN), &cni.replace("u1", "u2")]);
    harness.does("run_podsandbox #0");
    assert_eq!(harness.sandboxes[0].pod.as_ref().map(|pod| &*pod.uid), Some("u2"));
    harness.does_all(&["podsandbox_status s1", "image_status i:1"]);
    harness.does_all(&["create_container m#0", "start_container c2", "container_status c2"]);
    harness.pass(60_000);
    assert_eq!(harness.open_calls(), [] as [&str; 0]);
    harness.runtime.network = Ok(());
    harness.pass(limits::STATUS_VALID_MS);
    assert_eq!(harness.open_calls(), ["run_podsandbox #0"]);
}

#[test]
fn a_sandbox_of_1970_says_nothing_about_a_deadline() {
    let mut harness = Harness::new();
    harness.sandboxes.push(sandbox("s1", 0, true));
    harness.containers.push(container("x0", "m", ContainerState::Running));
    let spec = format!(r#""activeDeadlineSeconds":3600,{MAIN}"#);
    harness.manifests(&[&pod(&spec)]);
    harness.does_all(&["podsandbox_status s1", "container_status x0"]);
    harness.pass(3_500_000);
    assert_eq!(harness.open_calls(), [] as [&str; 0]);
}

#[test]
fn sigterm_leaves_the_pods_as_they_are() {
    let mut harness = Harness::new();
    start_main(&mut harness);
    harness.deliver(Event::Stop);
    assert!(harness.exited);
    assert_eq!(harness.open_calls(), [] as [&str; 0]);
    assert_eq!(harness.running(), ["m"]);
}

/// Up to the start of a pod's container, which was requested from the runtime.
fn starting() -> Harness {
    let mut harness = Harness::new();
    harness.manifests(&[&pod(MAIN)]);
    harness.does_all(&START[..4]);
    assert_eq!(harness.open_calls(), ["start_container c2"]);
    harness
}

#[test]
fn sigterm_does_not_tear_what_the_runtime_is_making() {
    let mut harness = starting();
    harness.deliver(Event::Stop);
    assert!(!harness.exited, "containerd would keep a process that it can never remove");
    // Neither time nor events make it start anything.
    harness.pass(limits::SHUTDOWN_MS / 2);
    harness.manifests(&[&pod(MAIN), &pod(MAIN).replace(UID, "v").replace(r#""p""#, r#""q""#)]);
    harness.deliver(Event::Stop);
    assert_eq!(harness.open_calls(), ["start_container c2"]);
    assert!(!harness.exited);
    let before = harness.trace.len();
    harness.does("start_container c2");
    assert!(harness.exited);
    assert_eq!(harness.trace[before..], [] as [&str; 0]);
    assert_eq!(harness.running(), ["m"]);
}

#[test]
fn sigterm_waits_no_longer_than_its_bound_for_a_runtime_that_does_not_answer() {
    let mut harness = starting();
    harness.deliver(Event::Stop);
    harness.pass(limits::SHUTDOWN_MS - 1);
    assert!(!harness.exited);
    // A second stop changes nothing.
    harness.deliver(Event::Stop);
    harness.pass(1);
    assert!(harness.exited);
}

#[test]
fn sigterm_waits_for_no_call_of_a_runtime_that_is_gone() {
    let mut harness = starting();
    harness.deliver(Event::Stop);
    let (call, _) = harness.take("start_container c2");
    harness.deliver(Event::Cri(call, Err(CallError::Lost(Lost::Connection))));
    assert!(harness.exited);
}

#[test]
fn sigterm_waits_for_no_pull() {
    let mut harness = Harness::new();
    harness.images.clear();
    harness.manifests(&[&pod(MAIN)]);
    harness.does_all(&START[..3]);
    assert_eq!(harness.open_calls(), ["pull_image i:1"]);
    harness.deliver(Event::Stop);
    assert!(harness.exited);
}

#[test]
fn sigterm_waits_for_no_grace_period() {
    let mut harness = Harness::new();
    start_main(&mut harness);
    harness.manifests(&[]);
    assert_eq!(harness.open_calls(), ["stop_container c2 30"]);
    harness.deliver(Event::Stop);
    assert!(harness.exited);
}

#[test]
fn a_grace_period_longer_than_any_time_is_as_long_as_time_goes() {
    let mut harness = Harness::new();
    let patient = format!(r#"{MAIN},"terminationGracePeriodSeconds":9223372036854775807"#);
    harness.manifests(&[&pod(&patient)]);
    harness.does_all(START);
    harness.manifests(&[]);
    let stop = harness.open_calls().pop().expect("it is stopped");
    harness.does_all(&[&stop, "stop_podsandbox s1", "container_status c2", "remove_container c2"]);
}
