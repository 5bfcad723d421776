//! The rules of beliefs and requests, one by one (rules R1 to R6).

use edged::agent::event::Event;
use edged::model::cri::{CallError, ContainerState, Lost};

use crate::harness::{Harness, MAIN, START, container, pod, sandbox};

#[test]
fn after_a_lost_answer_nobody_waits_for_the_next_look_by_itself() {
    // Where there is an event stream that comes in half a minute.
    let mut harness = Harness::with_stream(true);
    harness.manifests(&[&pod(MAIN)]);
    harness.pass(10_000);
    harness.does_all(&["run_podsandbox #0", "podsandbox_status s1", "image_status i:1"]);
    let (call, request) = harness.take("create_container m#0");
    harness.perform(&request);
    harness.deliver(Event::Cri(call, Err(CallError::Lost(Lost::Deadline))));
    harness.pass(16_000);
    assert_eq!(harness.open_calls(), ["start_container c2"]);
}

#[test]
fn a_manifest_that_breaks_leaves_its_pods_as_they_are() {
    let mut harness = Harness::new();
    harness.manifests(&[&pod(MAIN)]);
    harness.does_all(START);
    harness.broken_manifest();
    harness.pass(60_000);
    assert_eq!(harness.open_calls(), [] as [&str; 0]);
    assert_eq!(harness.running(), ["m"]);
}

#[test]
fn a_sandbox_that_died_is_stopped_before_its_pod_has_ended() {
    let mut harness = Harness::new();
    harness.manifests(&[&pod(&format!(r#""restartPolicy":"Never",{MAIN}"#))]);
    harness.does_all(START);
    // Its network is still there.
    harness.sandboxes[0].ready = false;
    harness.exits("m", 0);
    harness.does("container_status c2");
    assert_eq!(harness.open_calls(), ["stop_podsandbox s1"]);
    assert_eq!(harness.status()["phase"], "Running");
    harness.does("stop_podsandbox s1");
    harness.pass(1_000);
    assert_eq!(harness.status()["phase"], "Succeeded");
}

/// A pod that has ended, and is kept.
fn ended() -> Harness {
    let mut harness = Harness::new();
    harness.manifests(&[&pod(&format!(r#""restartPolicy":"Never",{MAIN}"#))]);
    harness.does_all(START);
    harness.exits("m", 0);
    harness.does_all(&["container_status c2", "stop_podsandbox s1"]);
    harness.pass(2_000);
    assert_eq!(harness.status()["phase"], "Succeeded");
    assert_eq!(harness.open_calls(), [] as [&str; 0]);
    harness
}

#[test]
fn a_container_that_starts_after_its_pod_has_ended_is_stopped() {
    let mut harness = ended();
    // A call of an earlier life takes effect.
    harness.containers.push(container("c9", "m", ContainerState::Running));
    harness.pass(2_000);
    assert_eq!(harness.open_calls(), ["stop_container c9 2"]);
}

#[test]
fn nothing_else_is_asked_for_while_a_container_is_being_made() {
    let mut harness = Harness::new();
    let two = r#""containers":[{"name":"a","image":"i:1"},{"name":"b","image":"i:2"}]"#;
    harness.manifests(&[&pod(two)]);
    harness.does_all(&["run_podsandbox #0", "podsandbox_status s1", "image_status i:1"]);
    harness.does_all(&["create_container a#0", "start_container c2"]);
    harness.does_all(&["container_status c2", "image_status i:2"]);
    assert_eq!(harness.open_calls(), ["create_container b#0"]);
    // The one that runs is to have another image.
    harness.manifests(&[&pod(&two.replace("i:1", "i:3"))]);
    harness.pass(3_000);
    assert_eq!(harness.open_calls(), ["create_container b#0"]);
}

#[test]
fn a_sandbox_that_shows_after_its_pod_has_ended_is_stopped() {
    let mut harness = ended();
    // A call of an earlier life takes effect: it is dead, and its network still there.
    harness.sandboxes.push(sandbox("s9", 1, false));
    harness.pass(15_000);
    assert_eq!(harness.open_calls(), ["stop_podsandbox s9"]);
}
