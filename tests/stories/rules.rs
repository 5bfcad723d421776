//! The rules of what is believed and what is asked for, one by one (rules R1 to R6).

use edged::agent::event::Event;
use edged::model::cri::{CallError, ContainerState, Lost};

use crate::desk::{Desk, MAIN, START, container, pod, sandbox};

#[test]
fn after_a_lost_answer_nobody_waits_for_the_next_look_by_itself() {
    // Where there is an event stream that comes in half a minute.
    let mut desk = Desk::with_stream(true);
    desk.manifests(&[&pod(MAIN)]);
    desk.pass(10_000);
    desk.does_all(&["run_podsandbox #0", "podsandbox_status s1", "image_status i:1"]);
    let (call, request) = desk.take("create_container m#0");
    desk.perform(&request);
    desk.tell(Event::Cri(call, Err(CallError::Lost(Lost::Deadline))));
    desk.pass(16_000);
    assert_eq!(desk.asked_for(), ["start_container c2"]);
}

#[test]
fn a_manifest_that_breaks_leaves_its_pods_as_they_are() {
    let mut desk = Desk::new();
    desk.manifests(&[&pod(MAIN)]);
    desk.does_all(START);
    desk.broken_manifest();
    desk.pass(60_000);
    assert_eq!(desk.asked_for(), [] as [&str; 0]);
    assert_eq!(desk.running(), ["m"]);
}

#[test]
fn a_sandbox_that_died_is_stopped_before_its_pod_has_ended() {
    let mut desk = Desk::new();
    desk.manifests(&[&pod(&format!(r#""restartPolicy":"Never",{MAIN}"#))]);
    desk.does_all(START);
    // Its network is still there.
    desk.sandboxes[0].ready = false;
    desk.exits("m", 0);
    desk.does("container_status c2");
    assert_eq!(desk.asked_for(), ["stop_podsandbox s1"]);
    assert_eq!(desk.status()["phase"], "Running");
    desk.does("stop_podsandbox s1");
    desk.pass(1_000);
    assert_eq!(desk.status()["phase"], "Succeeded");
}

/// A pod that has ended, and is kept.
fn ended() -> Desk {
    let mut desk = Desk::new();
    desk.manifests(&[&pod(&format!(r#""restartPolicy":"Never",{MAIN}"#))]);
    desk.does_all(START);
    desk.exits("m", 0);
    desk.does_all(&["container_status c2", "stop_podsandbox s1"]);
    desk.pass(2_000);
    assert_eq!(desk.status()["phase"], "Succeeded");
    assert_eq!(desk.asked_for(), [] as [&str; 0]);
    desk
}

#[test]
fn a_container_that_starts_after_its_pod_has_ended_is_stopped() {
    let mut desk = ended();
    // A call of an earlier life takes effect.
    desk.containers.push(container("c9", "m", ContainerState::Running));
    desk.pass(2_000);
    assert_eq!(desk.asked_for(), ["stop_container c9 2"]);
}

#[test]
fn nothing_else_is_asked_for_while_a_container_is_being_made() {
    let mut desk = Desk::new();
    let two = r#""containers":[{"name":"a","image":"i:1"},{"name":"b","image":"i:2"}]"#;
    desk.manifests(&[&pod(two)]);
    desk.does_all(&["run_podsandbox #0", "podsandbox_status s1", "image_status i:1"]);
    desk.does_all(&["create_container a#0", "start_container c2"]);
    desk.does_all(&["container_status c2", "image_status i:2"]);
    assert_eq!(desk.asked_for(), ["create_container b#0"]);
    // The one that runs is to have another image.
    desk.manifests(&[&pod(&two.replace("i:1", "i:3"))]);
    desk.pass(3_000);
    assert_eq!(desk.asked_for(), ["create_container b#0"]);
}

#[test]
fn a_sandbox_that_shows_after_its_pod_has_ended_is_stopped() {
    let mut desk = ended();
    // A call of an earlier life takes effect: it is dead, and its network still there.
    desk.sandboxes.push(sandbox("s9", 1, false));
    desk.pass(15_000);
    assert_eq!(desk.asked_for(), ["stop_podsandbox s9"]);
}
