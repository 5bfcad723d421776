//! A runtime that refuses the same thing again and again is asked for it ever more rarely.

use edged::model::cri::{Code, ContainerState};

use crate::desk::{Desk, MAIN, START, UID, container, pod, sandbox};

/// What this runtime is asked for within a minute while it refuses whatever begins so. A story in
/// which it is asked without a pause comes to no end.
fn asks_in_a_minute(desk: &mut Desk, refused: &str) -> usize {
    let mut count = 0;
    for _ in 0..600 {
        while let Some(call) = desk.asked_for().into_iter().find(|call| call.starts_with(refused)) {
            desk.refuses(&call, Code::Unknown, "no");
            count += 1;
            assert!(count < 100, "{call} is asked for without a pause");
        }
        desk.pass(100);
    }
    count
}

/// A pod that ran before the machine went down: its sandbox is dead, its containers have ended.
fn rebooted(spec: &str, names: &[&str]) -> Desk {
    let mut desk = Desk::new();
    desk.sandboxes.push(sandbox("s0", 0, false));
    for (n, name) in names.iter().enumerate() {
        let mut ended = container(&format!("x{n}"), name, ContainerState::Exited);
        ended.sandbox.0 = "s0".into();
        desk.containers.push(ended);
    }
    desk.manifests(&[&pod(spec)]);
    desk
}

#[test]
fn a_dead_sandbox_that_cannot_be_stopped_is_tried_every_ten_seconds() {
    let mut desk = rebooted(MAIN, &["m"]);
    desk.does("container_status x0");
    let asks = asks_in_a_minute(&mut desk, "stop_podsandbox");
    assert!((4..=7).contains(&asks), "{asks}");
    desk.pass(15_000);
    desk.does("stop_podsandbox s0");
    assert_eq!(desk.asked_for(), ["run_podsandbox #1"]);
}

#[test]
fn an_init_container_that_cannot_be_removed_is_tried_every_ten_seconds() {
    let spec = format!(r#""initContainers":[{{"name":"i","image":"i:2"}}],{MAIN}"#);
    let mut desk = rebooted(&spec, &["m", "i"]);
    desk.does_all(&["container_status x1", "container_status x0", "stop_podsandbox s0"]);
    let asks = asks_in_a_minute(&mut desk, "remove_container");
    assert!((4..=7).contains(&asks), "{asks}");
}

#[test]
fn a_container_that_cannot_be_stopped_is_tried_ever_more_rarely() {
    let mut desk = Desk::new();
    desk.manifests(&[&pod(MAIN)]);
    desk.does_all(START);
    desk.manifests(&[]);
    // 1, 2, 4, 8 and then 10 s apart.
    let asks = asks_in_a_minute(&mut desk, "stop_container");
    assert!((7..=9).contains(&asks), "{asks}");
    desk.pass(10_000);
    let call = desk.asked_for().pop().expect("it is asked for again");
    desk.does_all(&[&call, "stop_podsandbox s1"]);
}

#[test]
fn one_that_cannot_be_stopped_is_tried_at_once_when_its_pod_ends() {
    let mut desk = Desk::new();
    let spec = r#""containers":[{"name":"a","image":"i:1"},{"name":"b","image":"i:2"}]"#;
    desk.sandboxes.push(sandbox("s1", 0, true));
    desk.containers.push(container("x0", "a", ContainerState::Running));
    let mut other = container("x1", "b", ContainerState::Running);
    other.image = "i:2".into();
    desk.containers.push(other);
    desk.manifests(&[&pod(spec)]);
    desk.does_all(&["podsandbox_status s1", "container_status x1", "container_status x0"]);
    // Only `a` is to be replaced; both go with the pod, long before the pause is over.
    desk.manifests(&[&pod(&spec.replace("i:1", "i:3"))]);
    for _ in 0..3 {
        desk.refuses("stop_container x0 30", Code::Unknown, "no");
        desk.pass(4_000);
    }
    desk.refuses("stop_container x0 30", Code::Unknown, "no");
    desk.manifests(&[]);
    assert_eq!(desk.asked_for(), ["stop_container x1 30", "stop_container x0 30"]);
}

#[test]
fn what_cannot_be_inspected_is_asked_of_ever_more_rarely() {
    for (refused, before) in
        [("podsandbox_status", &[][..]), ("container_status", &["podsandbox_status s1"])]
    {
        let mut desk = Desk::new();
        desk.sandboxes.push(sandbox("s1", 0, true));
        desk.containers.push(container("x0", "m", ContainerState::Running));
        desk.manifests(&[&pod(MAIN)]);
        desk.does_all(before);
        let asks = asks_in_a_minute(&mut desk, refused);
        assert!((7..=9).contains(&asks), "{refused}: {asks}");
    }
}

#[test]
fn dead_containers_that_cannot_be_removed_are_tried_every_ten_seconds() {
    let mut desk = Desk::new();
    desk.sandboxes.push(sandbox("s1", 0, true));
    for attempt in 0..3 {
        let state = if attempt == 2 { ContainerState::Running } else { ContainerState::Exited };
        let mut found = container(&format!("x{attempt}"), "m", state);
        found.attempt = attempt;
        desk.containers.push(found);
    }
    desk.manifests(&[&pod(MAIN)]);
    desk.does_all(&["podsandbox_status s1", "container_status x2", "container_status x1"]);
    let asks = asks_in_a_minute(&mut desk, "remove_container");
    assert!((4..=7).contains(&asks), "{asks}");
}

#[test]
fn one_made_and_never_started_that_cannot_be_removed_is_tried_every_ten_seconds() {
    let mut desk = Desk::new();
    desk.sandboxes.push(sandbox("s1", 0, true));
    let mut made = container("x0", "m", ContainerState::Created);
    made.image = "i:2".into();
    desk.containers.push(made);
    desk.manifests(&[&pod(MAIN)]);
    desk.does("podsandbox_status s1");
    let asks = asks_in_a_minute(&mut desk, "remove_container");
    assert!((4..=7).contains(&asks), "{asks}");
    assert!(desk.agent.pods().any(|pod| pod.metadata.uid == UID));
}
