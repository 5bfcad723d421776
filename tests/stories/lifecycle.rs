//! A pod's way from its manifest to its end.

use edged::agent::event::Event;
use edged::agent::time::Wall;
use edged::limits;
use edged::model::cri::{CallError, Code, ContainerState, Lost};

use crate::desk::{Desk, MAIN, START, UID, container, pod, sandbox};

fn start_main(desk: &mut Desk) {
    desk.manifests(&[&pod(MAIN)]);
    desk.does_all(START);
}

#[test]
fn a_pod_is_started_by_the_kubelets_trace() {
    let mut desk = Desk::new();
    desk.images.clear();
    let spec = format!(r#""initContainers":[{{"name":"i","image":"j:1"}}],{MAIN}"#);
    desk.manifests(&[&pod(&spec)]);
    desk.does_all(&["run_podsandbox #0", "podsandbox_status s1", "image_status j:1"]);
    desk.images = vec!["i:1", "j:1"];
    desk.does_all(&[
        "pull_image j:1",
        "image_status j:1",
        "create_container i#0",
        "start_container c2",
        "container_status c2",
    ]);
    assert_eq!(desk.asked_for(), [] as [&str; 0], "the main container waits");
    assert_eq!(desk.status()["phase"], "Pending");
    desk.exits("i", 0);
    desk.does_all(&[
        "container_status c2",
        "image_status i:1",
        "create_container m#0",
        "start_container c3",
        "container_status c3",
    ]);
    assert_eq!(desk.status()["phase"], "Running");
    assert_eq!(desk.status()["podIP"], "10.0.0.5");
}

#[test]
fn a_pod_that_is_removed_stops_gracefully_and_leaves_nothing() {
    let mut desk = Desk::new();
    start_main(&mut desk);
    desk.manifests(&[]);
    desk.does_all(&[
        "stop_container c2 30",
        "stop_podsandbox s1",
        "container_status c2",
        "remove_container c2",
        "remove_podsandbox s1",
    ]);
    desk.pass(100);
    assert_eq!(desk.agent.pods().count(), 0, "forgotten");
    assert_eq!(desk.asked_for(), [] as [&str; 0]);
}

#[test]
fn a_crashed_container_is_restarted_at_once_and_then_ever_later() {
    let mut desk = Desk::new();
    start_main(&mut desk);
    let mut id = 2;
    for (attempt, wait_ms) in [(1, 0), (2, 10_000), (3, 20_000), (4, 40_000)] {
        desk.exits("m", 1);
        desk.does(&format!("container_status c{id}"));
        if attempt >= 2 {
            let waiting = &desk.status()["containerStatuses"][0]["state"]["waiting"];
            assert_eq!(waiting["reason"], "CrashLoopBackOff");
            let message = waiting["message"].as_str().expect("a message");
            let delay = wait_ms / 1000;
            assert!(message.starts_with(&format!("back-off {delay}s restarting")), "{message}");
            // One dead instance is kept: the one before it goes meanwhile.
            desk.does(&format!("remove_container c{}", id - 1));
            desk.pass(wait_ms - 1_100);
            assert_eq!(desk.asked_for(), [] as [&str; 0], "attempt {attempt} came too early");
            desk.pass(1_200);
        }
        id += 1;
        desk.does_all(&[
            "image_status i:1",
            &format!("create_container m#{attempt}"),
            &format!("start_container c{id}"),
            &format!("container_status c{id}"),
        ]);
        assert_eq!(desk.status()["containerStatuses"][0]["restartCount"], attempt);
    }
}

#[test]
fn after_ten_minutes_of_running_a_crash_is_the_first_again() {
    let mut desk = Desk::new();
    start_main(&mut desk);
    desk.exits("m", 1);
    let again = ["image_status i:1", "create_container m#1", "start_container c3"];
    desk.does("container_status c2");
    desk.does_all(&again);
    desk.does("container_status c3");
    desk.pass(limits::BACKOFF_CALM_MS + 1_000);
    desk.exits("m", 1);
    desk.does("container_status c3");
    assert_eq!(desk.asked_for(), ["image_status i:1"]);
}

#[test]
fn an_image_that_comes_back_has_its_old_back_off() {
    let mut desk = Desk::new();
    start_main(&mut desk);
    desk.exits("m", 1);
    desk.does_all(&["container_status c2", "image_status i:1", "create_container m#1"]);
    desk.does_all(&["start_container c3", "container_status c3"]);
    // It is stopped for another image, which cannot be made a container of.
    desk.manifests(&[&pod(r#""containers":[{"name":"m","image":"i:2"}]"#)]);
    desk.does_all(&["stop_container c3 30", "container_status c3", "image_status i:2"]);
    desk.does("remove_container c2");
    desk.refuses("create_container m#2", Code::Unknown, "no");
    desk.manifests(&[&pod(MAIN)]);
    desk.pass(6_000);
    assert_eq!(desk.asked_for(), [] as [&str; 0]);
    let waiting = &desk.status()["containerStatuses"][0]["state"]["waiting"];
    assert_eq!(waiting["reason"], "CrashLoopBackOff");
    desk.pass(4_000);
    assert_eq!(desk.asked_for(), ["image_status i:1"]);
}

#[test]
fn a_new_image_restarts_the_container_in_its_sandbox() {
    let mut desk = Desk::new();
    start_main(&mut desk);
    desk.manifests(&[&pod(r#""containers":[{"name":"m","image":"i:2"}]"#)]);
    desk.does_all(&[
        "stop_container c2 30",
        "container_status c2",
        "image_status i:2",
        "create_container m#1",
        "start_container c3",
        "container_status c3",
    ]);
    assert!(desk.events.iter().any(|event| event.contains("m definition changed")));
    assert_eq!(desk.running(), ["m"]);
}

#[test]
fn a_job_ends_once_and_is_kept_for_its_logs() {
    let mut desk = Desk::new();
    let spec = format!(r#""restartPolicy":"Never",{MAIN}"#);
    desk.manifests(&[&pod(&spec)]);
    desk.does_all(START);
    desk.exits("m", 0);
    desk.does_all(&["container_status c2", "stop_podsandbox s1"]);
    desk.pass(60_000);
    assert_eq!(desk.asked_for(), [] as [&str; 0]);
    assert_eq!(desk.status()["phase"], "Succeeded");
    assert_eq!(desk.containers.len(), 1, "kept");
    let starts = desk.trace.iter().filter(|call| call.starts_with("run_podsandbox")).count();
    assert_eq!(starts, 1);
}

#[test]
fn sidecars_start_before_and_stop_after_the_main_containers() {
    let mut desk = Desk::new();
    let spec = format!(
        r#""restartPolicy":"Never","initContainers":[
            {{"name":"a","image":"i:1","restartPolicy":"Always"}},
            {{"name":"b","image":"i:1","restartPolicy":"Always"}}],{MAIN}"#
    );
    desk.manifests(&[&pod(&spec)]);
    desk.does_all(&["run_podsandbox #0", "podsandbox_status s1"]);
    for (name, id) in [("a", 2), ("b", 3), ("m", 4)] {
        desk.does_all(&[
            "image_status i:1",
            &format!("create_container {name}#0"),
            &format!("start_container c{id}"),
            &format!("container_status c{id}"),
        ]);
    }
    desk.exits("m", 3);
    desk.does_all(&[
        "container_status c4",
        "stop_container c3 30",
        "stop_container c2 30",
        "stop_podsandbox s1",
        "container_status c3",
        "container_status c2",
    ]);
    assert_eq!(desk.status()["phase"], "Failed", "by the main container alone");
}

#[test]
fn sidecars_wait_for_no_turn_once_the_grace_period_is_used_up() {
    let mut desk = Desk::new();
    let spec = format!(
        r#""initContainers":[{{"name":"a","image":"i:1","restartPolicy":"Always"}},
            {{"name":"b","image":"i:1","restartPolicy":"Always"}}],{MAIN}"#
    );
    desk.manifests(&[&pod(&spec)]);
    desk.does_all(&["run_podsandbox #0", "podsandbox_status s1"]);
    for (name, id) in [("a", 2), ("b", 3), ("m", 4)] {
        desk.does_all(&[
            "image_status i:1",
            &format!("create_container {name}#0"),
            &format!("start_container c{id}"),
            &format!("container_status c{id}"),
        ]);
    }
    desk.manifests(&[]);
    desk.pass(29_000);
    assert_eq!(desk.asked_for(), ["stop_container c4 30"], "there is time for an order");
    desk.pass(1_000);
    let mut asked = desk.asked_for();
    asked.sort();
    assert_eq!(asked, ["stop_container c2 2", "stop_container c3 2", "stop_container c4 30"]);
}

#[test]
fn a_sidecar_that_ends_again_keeps_no_later_container_from_beginning() {
    let mut desk = Desk::new();
    let spec = format!(
        r#""initContainers":[{{"name":"s","image":"i:1","restartPolicy":"Always"}},
            {{"name":"a","image":"i:1"}}],{MAIN}"#
    );
    desk.manifests(&[&pod(&spec)]);
    desk.does_all(&["run_podsandbox #0", "podsandbox_status s1"]);
    for (name, id) in [("s#0", 2), ("a#0", 3)] {
        desk.does_all(&[
            "image_status i:1",
            &format!("create_container {name}"),
            &format!("start_container c{id}"),
            &format!("container_status c{id}"),
        ]);
    }
    desk.exits("s", 1);
    desk.does_all(&["container_status c2", "image_status i:1", "create_container s#1"]);
    desk.does_all(&["start_container c4", "container_status c4"]);
    desk.exits("s", 1);
    desk.does_all(&["container_status c4", "remove_container c2"]);
    assert_eq!(desk.asked_for(), [""; 0], "the sidecar is backed off, the init container runs");
    desk.exits("a", 0);
    desk.does_all(&["container_status c3", "image_status i:1", "create_container m#0"]);
}

#[test]
fn containers_of_a_pod_stop_side_by_side_with_one_grace_period() {
    let mut desk = Desk::new();
    let two = r#""terminationGracePeriodSeconds":7,
        "containers":[{"name":"m","image":"i:1"},{"name":"n","image":"i:1"}]"#;
    desk.manifests(&[&pod(two)]);
    desk.does_all(&["run_podsandbox #0", "podsandbox_status s1"]);
    for (name, id) in [("m", 2), ("n", 3)] {
        desk.does_all(&[
            "image_status i:1",
            &format!("create_container {name}#0"),
            &format!("start_container c{id}"),
            &format!("container_status c{id}"),
        ]);
    }
    desk.manifests(&[]);
    assert_eq!(desk.asked_for(), ["stop_container c3 7", "stop_container c2 7"]);
}

#[test]
fn grace_only_shrinks_and_a_stop_that_was_given_more_is_asked_for_again() {
    let mut desk = Desk::new();
    start_main(&mut desk);
    let deleted = |grace: u32| {
        format!(
            r#"{{"metadata":{{"name":"p","uid":"u1","deletionTimestamp":"2027-01-01T00:00:00Z",
                "deletionGracePeriodSeconds":{grace}}},"spec":{{{MAIN}}}}}"#
        )
    };
    desk.manifests(&[&deleted(20)]);
    assert_eq!(desk.asked_for(), ["stop_container c2 20"]);
    desk.manifests(&[&deleted(40)]);
    assert_eq!(desk.asked_for(), ["stop_container c2 20"], "never longer");
    desk.refuses("stop_container c2 20", Code::Unknown, "no");
    desk.pass(1_000);
    assert_eq!(desk.asked_for(), ["stop_container c2 19"], "and not the next time either");
    desk.manifests(&[&deleted(0)]);
    assert_eq!(desk.asked_for(), ["stop_container c2 2"]);
    assert_eq!(desk.cancelled.len(), 1);
}

#[test]
fn the_end_of_a_pod_cancels_its_pull() {
    let mut desk = Desk::new();
    desk.images.clear();
    desk.manifests(&[&pod(MAIN)]);
    desk.does_all(&["run_podsandbox #0", "podsandbox_status s1", "image_status i:1"]);
    assert_eq!(desk.asked_for(), ["pull_image i:1"]);
    desk.manifests(&[]);
    assert_eq!(desk.cancelled.len(), 1);
    assert_eq!(desk.asked_for(), ["stop_podsandbox s1"]);
}

#[test]
fn a_changed_manifest_without_a_uid_is_another_pod_that_waits_for_the_old_one() {
    let mut desk = Desk::new();
    let with = |image: &str| {
        format!(
            r#"{{"metadata":{{"name":"p"}},
                "spec":{{"containers":[{{"name":"m","image":"{image}"}}]}}}}"#
        )
    };
    desk.manifests(&[&with("i:1")]);
    desk.does_all(START);
    desk.manifests(&[&with("i:2")]);
    assert_eq!(desk.asked_for(), ["stop_container c2 30"], "and no new sandbox beside it");
    desk.does_all(&["stop_container c2 30", "stop_podsandbox s1", "container_status c2"]);
    assert!(desk.asked_for().contains(&"run_podsandbox #0".to_owned()), "{:?}", desk.asked_for());
}

#[test]
fn a_manifest_that_comes_back_while_the_pod_ends_starts_it_anew() {
    let mut desk = Desk::new();
    start_main(&mut desk);
    desk.manifests(&[]);
    desk.manifests(&[&pod(MAIN)]);
    assert_eq!(desk.agent.metrics().restarted_pods, [0, 0]);
    desk.does_all(&[
        "stop_container c2 30",
        "stop_podsandbox s1",
        "container_status c2",
        "remove_container c2",
        "remove_podsandbox s1",
    ]);
    desk.pass(100);
    assert_eq!(desk.asked_for(), ["run_podsandbox #0"]);
    assert_eq!(desk.agent.metrics().restarted_pods, [0, 1]);
}

#[test]
fn a_pod_past_its_deadline_fails() {
    let mut desk = Desk::new();
    let spec = format!(r#""activeDeadlineSeconds":60,{MAIN}"#);
    desk.manifests(&[&pod(&spec)]);
    desk.does_all(START);
    desk.pass(60_000);
    desk.does_all(&["stop_container c2 30", "stop_podsandbox s1", "container_status c2"]);
    assert_eq!(desk.status()["phase"], "Failed");
    assert_eq!(desk.status()["reason"], "DeadlineExceeded");
}

#[test]
fn a_deadline_counts_from_the_start_time_through_restarts_of_the_agent() {
    let spec = format!(r#""activeDeadlineSeconds":3600,{MAIN}"#);
    for (age_s, left_s) in [(3_000, 600), (7_200, 0)] {
        let mut desk = Desk::new();
        let mut made = sandbox("s1", 0, true);
        made.created_at = (desk.now.wall.expect("it is set").0 - age_s * 1000) * 1_000_000;
        desk.sandboxes.push(made);
        desk.containers.push(container("x0", "m", ContainerState::Running));
        desk.pass(2_000);
        desk.manifests(&[&pod(&spec)]);
        if left_s > 0 {
            desk.does_all(&["podsandbox_status s1", "container_status x0"]);
            desk.pass(left_s * 1000 - 5_000);
            assert_eq!(desk.asked_for(), [] as [&str; 0], "{left_s} s are left");
            desk.pass(5_000);
        }
        assert!(desk.asked_for().contains(&"stop_container x0 30".to_owned()), "{age_s}");
    }
}

#[test]
fn a_deadline_is_kept_by_the_time_that_passes_wherever_the_clock_is_set_to() {
    for jump_ms in [-7_200_000, 7_200_000] {
        let mut desk = Desk::new();
        desk.manifests(&[&pod(&format!(r#""activeDeadlineSeconds":600,{MAIN}"#))]);
        desk.does_all(START);
        desk.pass(60_000);
        desk.now.wall = desk.now.wall.map(|wall| Wall(wall.0 + jump_ms));
        desk.exits("m", 1);
        desk.does_all(&["container_status c2", "image_status i:1", "create_container m#1"]);
        desk.does_all(&["start_container c3", "container_status c3"]);
        desk.pass(530_000);
        assert_eq!(desk.asked_for(), [] as [&str; 0], "{jump_ms}");
        desk.pass(20_000);
        assert_eq!(desk.asked_for(), ["stop_container c3 30"], "{jump_ms}");
    }
}

#[test]
fn without_a_pod_network_only_pods_of_the_hosts_network_begin() {
    let mut desk = Desk::new();
    desk.runtime.network = Err("NetworkPluginNotReady: cni plugin not initialized".to_owned());
    desk.pass(limits::STATUS_VALID_MS);
    // It may be the one that brings the network.
    let cni = pod(&format!(r#""hostNetwork":true,{MAIN}"#)).replace("\"p\"", "\"q\"");
    desk.manifests(&[&pod(MAIN), &cni.replace("u1", "u2")]);
    desk.does("run_podsandbox #0");
    assert_eq!(desk.sandboxes[0].pod.as_ref().map(|pod| &*pod.uid), Some("u2"));
    desk.does_all(&["podsandbox_status s1", "image_status i:1"]);
    desk.does_all(&["create_container m#0", "start_container c2", "container_status c2"]);
    desk.pass(60_000);
    assert_eq!(desk.asked_for(), [] as [&str; 0]);
    desk.runtime.network = Ok(());
    desk.pass(limits::STATUS_VALID_MS);
    assert_eq!(desk.asked_for(), ["run_podsandbox #0"]);
}

#[test]
fn a_sandbox_of_1970_says_nothing_about_a_deadline() {
    let mut desk = Desk::new();
    desk.sandboxes.push(sandbox("s1", 0, true));
    desk.containers.push(container("x0", "m", ContainerState::Running));
    let spec = format!(r#""activeDeadlineSeconds":3600,{MAIN}"#);
    desk.manifests(&[&pod(&spec)]);
    desk.does_all(&["podsandbox_status s1", "container_status x0"]);
    desk.pass(3_500_000);
    assert_eq!(desk.asked_for(), [] as [&str; 0]);
}

#[test]
fn sigterm_leaves_the_pods_as_they_are() {
    let mut desk = Desk::new();
    start_main(&mut desk);
    desk.tell(Event::Stop);
    assert!(desk.exited);
    assert_eq!(desk.asked_for(), [] as [&str; 0]);
    assert_eq!(desk.running(), ["m"]);
}

/// Up to the start of a pod's container, which the runtime has been asked for.
fn starting() -> Desk {
    let mut desk = Desk::new();
    desk.manifests(&[&pod(MAIN)]);
    desk.does_all(&START[..4]);
    assert_eq!(desk.asked_for(), ["start_container c2"]);
    desk
}

#[test]
fn sigterm_does_not_tear_what_the_runtime_is_making() {
    let mut desk = starting();
    desk.tell(Event::Stop);
    assert!(!desk.exited, "containerd would keep a process that it can never remove");
    // Neither time nor news make it begin anything.
    desk.pass(limits::LEAVE_MS / 2);
    desk.manifests(&[&pod(MAIN), &pod(MAIN).replace(UID, "v").replace(r#""p""#, r#""q""#)]);
    desk.tell(Event::Stop);
    assert_eq!(desk.asked_for(), ["start_container c2"]);
    assert!(!desk.exited);
    let before = desk.trace.len();
    desk.does("start_container c2");
    assert!(desk.exited);
    assert_eq!(desk.trace[before..], [] as [&str; 0]);
    assert_eq!(desk.running(), ["m"]);
}

#[test]
fn sigterm_waits_no_longer_than_its_bound_for_a_runtime_that_does_not_answer() {
    let mut desk = starting();
    desk.tell(Event::Stop);
    desk.pass(limits::LEAVE_MS - 1);
    assert!(!desk.exited);
    // Asking again moves nothing.
    desk.tell(Event::Stop);
    desk.pass(1);
    assert!(desk.exited);
}

#[test]
fn sigterm_waits_for_no_call_of_a_runtime_that_is_gone() {
    let mut desk = starting();
    desk.tell(Event::Stop);
    let (call, _) = desk.take("start_container c2");
    desk.tell(Event::Cri(call, Err(CallError::Lost(Lost::Connection))));
    assert!(desk.exited);
}

#[test]
fn sigterm_waits_for_no_pull() {
    let mut desk = Desk::new();
    desk.images.clear();
    desk.manifests(&[&pod(MAIN)]);
    desk.does_all(&START[..3]);
    assert_eq!(desk.asked_for(), ["pull_image i:1"]);
    desk.tell(Event::Stop);
    assert!(desk.exited);
}

#[test]
fn sigterm_waits_for_no_grace_period() {
    let mut desk = Desk::new();
    start_main(&mut desk);
    desk.manifests(&[]);
    assert_eq!(desk.asked_for(), ["stop_container c2 30"]);
    desk.tell(Event::Stop);
    assert!(desk.exited);
}

#[test]
fn a_grace_period_longer_than_any_time_is_as_long_as_time_goes() {
    let mut desk = Desk::new();
    let patient = format!(r#"{MAIN},"terminationGracePeriodSeconds":9223372036854775807"#);
    desk.manifests(&[&pod(&patient)]);
    desk.does_all(START);
    desk.manifests(&[]);
    let stop = desk.asked_for().pop().expect("it is stopped");
    desk.does_all(&[&stop, "stop_podsandbox s1", "container_status c2", "remove_container c2"]);
}
