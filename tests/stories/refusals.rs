//! A runtime that refuses the same thing again and again is asked for it ever more rarely.

use edged::agent::event::Event;
use edged::limits;
use edged::model::cri::{Code, ContainerState, Reply};

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

/// The runtime refuses to stop the container until the next try is seconds away.
#[track_caller]
fn refuse_stops(desk: &mut Desk) {
    let refuse = |desk: &mut Desk| {
        let stop = desk.asked_for().into_iter().find(|asked| asked.starts_with("stop_"));
        desk.refuses(&stop.expect("it is to be stopped"), Code::Unknown, "no");
    };
    for _ in 0..4 {
        refuse(desk);
        for _ in 0..100 {
            if desk.asked_for().is_empty() {
                desk.pass(100);
            }
        }
    }
    refuse(desk);
    desk.pass(100);
    assert_eq!(desk.asked_for(), [] as [&str; 0], "there is a pause of seconds");
}

#[test]
fn what_was_refused_is_tried_at_once_when_the_pod_is_deleted_and_when_its_source_is_gone() {
    let mut desk = Desk::new();
    desk.manifests(&[&pod(MAIN)]);
    desk.does_all(START);
    // Of another image, it is to be replaced.
    let other = MAIN.replace("i:1", "i:3");
    desk.manifests(&[&pod(&other)]);
    refuse_stops(&mut desk);
    desk.manifests(&[&format!(
        r#"{{"metadata":{{"name":"p","uid":"u1","deletionTimestamp":"2027-01-01T00:00:00Z",
            "deletionGracePeriodSeconds":3600}},"spec":{{{other}}}}}"#
    )]);
    assert_eq!(desk.asked_for(), ["stop_container c2 3600"]);
    refuse_stops(&mut desk);
    desk.manifests(&[]);
    assert_eq!(desk.asked_for().len(), 1, "{:?}", desk.asked_for());
}

#[test]
fn what_was_refused_is_tried_at_once_when_a_pod_whose_time_is_over_is_deleted() {
    let mut desk = Desk::new();
    let spec = format!(r#""activeDeadlineSeconds":60,{MAIN}"#);
    desk.manifests(&[&pod(&spec)]);
    desk.does_all(START);
    desk.pass(60_000);
    refuse_stops(&mut desk);
    desk.manifests(&[&format!(
        r#"{{"metadata":{{"name":"p","uid":"u1","deletionTimestamp":"2027-01-01T00:00:00Z",
            "deletionGracePeriodSeconds":3600}},"spec":{{{spec}}}}}"#
    )]);
    assert_eq!(desk.asked_for().len(), 1, "{:?}", desk.asked_for());
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

/// How the runtime says that what it goes on to list is gone.
#[derive(Clone, Copy, PartialEq)]
enum Says {
    NotFound,
    Removed,
}

/// What it is asked for in this time about objects that it lists and says are gone.
fn asks_for_the_gone(desk: &mut Desk, minutes: usize, says: Says) -> usize {
    let mut count = 0;
    for _ in 0..minutes * 600 {
        while let Some(call) = desk.asked_for().into_iter().next() {
            match says {
                Says::NotFound => desk.refuses(&call, Code::NotFound, "an error occurred"),
                Says::Removed if call.starts_with("container_status") => desk.does(&call),
                Says::Removed => {
                    let (call, _) = desk.take(&call);
                    desk.tell(Event::Cri(call, Ok(Reply::Done)));
                }
            }
            count += 1;
            assert!(count < 100, "{call} is asked for without a pause");
        }
        desk.pass(100);
    }
    count
}

/// A pod of the folder that has ended and is gone from it: the runtime has lost a dead sandbox and
/// a dead container of it, as after `ctr container rm`, and lists both.
fn with_lost_objects() -> Desk {
    let mut desk = rebooted(MAIN, &["m"]);
    desk.does("container_status x0");
    desk.manifests(&[]);
    desk
}

#[test]
fn what_the_runtime_lists_and_does_not_have_is_asked_about_ever_more_rarely() {
    for says in [Says::NotFound, Says::Removed] {
        let mut desk = with_lost_objects();
        // Its stop, container and sandbox, and each again after 1, 2, 4, 8, 16 and 32 s, with what
        // a pod that nobody knows takes.
        let asks = asks_for_the_gone(&mut desk, 1, says);
        assert!((6..=30).contains(&asks), "{asks}");
        let gone = |line: &&String| line.contains("the runtime says that it is gone, and lists it");
        assert_eq!(desk.log.iter().filter(gone).count(), 2, "once of each: {:?}", desk.log);
        assert!(desk.log.iter().any(|line| line.contains("container=x0")), "{:?}", desk.log);
        assert!((1..=2).contains(&desk.agent.metrics().removed_listed), "they are counted");
        let before = desk.log.len();
        let asks = asks_for_the_gone(&mut desk, 60, says);
        assert!((6..=40).contains(&asks), "{asks} in an hour");
        assert!(desk.log.len() - before < 60, "{:?}", &desk.log[before..]);
        // Once the runtime lists them no more, nothing is left to count.
        desk.sandboxes.clear();
        desk.containers.clear();
        desk.pass(2 * limits::RELIST_IDLE_MS);
        assert_eq!(desk.agent.metrics().removed_listed, 0);
        assert_eq!(desk.agent.pods().count(), 0);
    }
}

#[test]
fn what_runs_by_the_lists_alone_is_stopped_ever_more_rarely() {
    let mut desk = Desk::new();
    desk.manifests(&[&pod(MAIN)]);
    desk.does_all(START);
    desk.manifests(&[]);
    let asks = asks_for_the_gone(&mut desk, 1, Says::NotFound);
    assert!((4..=40).contains(&asks), "{asks}");
    let gone = |line: &&String| line.contains("the runtime says that it is gone, and lists it");
    assert_eq!(desk.log.iter().filter(gone).count(), 2, "once of each: {:?}", desk.log);
}

#[test]
fn a_pod_begins_anew_beside_what_the_runtime_has_lost_of_it() {
    let mut desk = with_lost_objects();
    asks_for_the_gone(&mut desk, 1, Says::NotFound);
    desk.manifests(&[&pod(MAIN)]);
    desk.pass(1_000);
    let call = desk.asked_for().into_iter().next().expect("it begins");
    assert!(call.starts_with("run_podsandbox"), "{call}");
}

#[test]
fn a_runtime_that_is_back_is_asked_about_what_was_gone_before() {
    let mut desk = with_lost_objects();
    asks_for_the_gone(&mut desk, 10, Says::NotFound);
    desk.tell(Event::RuntimeDown { cause: "it ended".to_owned() });
    desk.tell(Event::RuntimeUp);
    desk.pass(2_000);
    assert!(!desk.asked_for().is_empty(), "it may have them again");
}
