//! Calls that a runtime refuses repeatedly are made ever more rarely.

use edged::agent::event::Event;
use edged::limits;
use edged::model::cri::{Code, ContainerState, Reply};

use crate::harness::{Harness, MAIN, START, UID, container, pod, sandbox};

/// The number of calls within a minute while the runtime refuses those with this prefix. A story
/// with calls without a pause does not end.
fn calls_in_a_minute(harness: &mut Harness, refused: &str) -> usize {
    let mut count = 0;
    for _ in 0..600 {
        while let Some(call) =
            harness.open_calls().into_iter().find(|call| call.starts_with(refused))
        {
            harness.refuses(&call, Code::Unknown, "no");
            count += 1;
            assert!(count < 100, "{call} is asked for without a pause");
        }
        harness.pass(100);
    }
    count
}

/// A pod that ran before the machine went down: its sandbox is dead, its containers have ended.
fn rebooted(spec: &str, names: &[&str]) -> Harness {
    let mut harness = Harness::new();
    harness.sandboxes.push(sandbox("s0", 0, false));
    for (n, name) in names.iter().enumerate() {
        let mut ended = container(&format!("x{n}"), name, ContainerState::Exited);
        ended.sandbox.0 = "s0".into();
        harness.containers.push(ended);
    }
    harness.manifests(&[&pod(spec)]);
    harness
}

#[test]
fn a_dead_sandbox_that_cannot_be_stopped_is_tried_every_ten_seconds() {
    let mut harness = rebooted(MAIN, &["m"]);
    harness.does("container_status x0");
    let calls = calls_in_a_minute(&mut harness, "stop_podsandbox");
    assert!((4..=7).contains(&calls), "{calls}");
    harness.pass(15_000);
    harness.does("stop_podsandbox s0");
    assert_eq!(harness.open_calls(), ["run_podsandbox #1"]);
}

#[test]
fn an_init_container_that_cannot_be_removed_is_tried_every_ten_seconds() {
    let spec = format!(r#""initContainers":[{{"name":"i","image":"i:2"}}],{MAIN}"#);
    let mut harness = rebooted(&spec, &["m", "i"]);
    harness.does_all(&["container_status x1", "container_status x0", "stop_podsandbox s0"]);
    let calls = calls_in_a_minute(&mut harness, "remove_container");
    assert!((4..=7).contains(&calls), "{calls}");
}

#[test]
fn a_container_that_cannot_be_stopped_is_tried_ever_more_rarely() {
    let mut harness = Harness::new();
    harness.manifests(&[&pod(MAIN)]);
    harness.does_all(START);
    harness.manifests(&[]);
    // 1, 2, 4, 8 and then 10 s apart.
    let calls = calls_in_a_minute(&mut harness, "stop_container");
    assert!((7..=9).contains(&calls), "{calls}");
    harness.pass(10_000);
    let call = harness.open_calls().pop().expect("it is requested again");
    harness.does_all(&[&call, "stop_podsandbox s1"]);
}

#[test]
fn one_that_cannot_be_stopped_is_tried_at_once_when_its_pod_ends() {
    let mut harness = Harness::new();
    let spec = r#""containers":[{"name":"a","image":"i:1"},{"name":"b","image":"i:2"}]"#;
    harness.sandboxes.push(sandbox("s1", 0, true));
    harness.containers.push(container("x0", "a", ContainerState::Running));
    let mut other = container("x1", "b", ContainerState::Running);
    other.image = "i:2".into();
    harness.containers.push(other);
    harness.manifests(&[&pod(spec)]);
    harness.does_all(&["podsandbox_status s1", "container_status x1", "container_status x0"]);
    // Only `a` is to be replaced; both go with the pod, long before the pause is over.
    harness.manifests(&[&pod(&spec.replace("i:1", "i:3"))]);
    for _ in 0..3 {
        harness.refuses("stop_container x0 30", Code::Unknown, "no");
        harness.pass(4_000);
    }
    harness.refuses("stop_container x0 30", Code::Unknown, "no");
    harness.manifests(&[]);
    assert_eq!(harness.open_calls(), ["stop_container x1 30", "stop_container x0 30"]);
}

/// The runtime refuses to stop the container until the next try is seconds away.
#[track_caller]
fn refuse_stops(harness: &mut Harness) {
    let refuse = |harness: &mut Harness| {
        let stop =
            harness.open_calls().into_iter().find(|requested| requested.starts_with("stop_"));
        harness.refuses(&stop.expect("it is to be stopped"), Code::Unknown, "no");
    };
    for _ in 0..4 {
        refuse(harness);
        for _ in 0..100 {
            if harness.open_calls().is_empty() {
                harness.pass(100);
            }
        }
    }
    refuse(harness);
    harness.pass(100);
    assert_eq!(harness.open_calls(), [] as [&str; 0], "there is a pause of seconds");
}

#[test]
fn what_was_refused_is_tried_at_once_when_the_pod_is_deleted_and_when_its_source_is_gone() {
    let mut harness = Harness::new();
    harness.manifests(&[&pod(MAIN)]);
    harness.does_all(START);
    // Of another image, it is to be replaced.
    let other = MAIN.replace("i:1", "i:3");
    harness.manifests(&[&pod(&other)]);
    refuse_stops(&mut harness);
    harness.manifests(&[&format!(
        r#"{{"metadata":{{"name":"p","uid":"u1","deletionTimestamp":"2027-01-01T00:00:00Z",
            "deletionGracePeriodSeconds":3600}},"spec":{{{other}}}}}"#
    )]);
    assert_eq!(harness.open_calls(), ["stop_container c2 3600"]);
    refuse_stops(&mut harness);
    harness.manifests(&[]);
    assert_eq!(harness.open_calls().len(), 1, "{:?}", harness.open_calls());
}

#[test]
fn what_was_refused_is_tried_at_once_when_a_pod_whose_time_is_over_is_deleted() {
    let mut harness = Harness::new();
    let spec = format!(r#""activeDeadlineSeconds":60,{MAIN}"#);
    harness.manifests(&[&pod(&spec)]);
    harness.does_all(START);
    harness.pass(60_000);
    refuse_stops(&mut harness);
    harness.manifests(&[&format!(
        r#"{{"metadata":{{"name":"p","uid":"u1","deletionTimestamp":"2027-01-01T00:00:00Z",
            "deletionGracePeriodSeconds":3600}},"spec":{{{spec}}}}}"#
    )]);
    assert_eq!(harness.open_calls().len(), 1, "{:?}", harness.open_calls());
}

#[test]
fn what_cannot_be_inspected_is_asked_of_ever_more_rarely() {
    for (refused, before) in
        [("podsandbox_status", &[][..]), ("container_status", &["podsandbox_status s1"])]
    {
        let mut harness = Harness::new();
        harness.sandboxes.push(sandbox("s1", 0, true));
        harness.containers.push(container("x0", "m", ContainerState::Running));
        harness.manifests(&[&pod(MAIN)]);
        harness.does_all(before);
        let calls = calls_in_a_minute(&mut harness, refused);
        assert!((7..=9).contains(&calls), "{refused}: {calls}");
    }
}

#[test]
fn dead_containers_that_cannot_be_removed_are_tried_every_ten_seconds() {
    let mut harness = Harness::new();
    harness.sandboxes.push(sandbox("s1", 0, true));
    for attempt in 0..3 {
        let state = if attempt == 2 { ContainerState::Running } else { ContainerState::Exited };
        let mut found = container(&format!("x{attempt}"), "m", state);
        found.attempt = attempt;
        harness.containers.push(found);
    }
    harness.manifests(&[&pod(MAIN)]);
    harness.does_all(&["podsandbox_status s1", "container_status x2", "container_status x1"]);
    let calls = calls_in_a_minute(&mut harness, "remove_container");
    assert!((4..=7).contains(&calls), "{calls}");
}

#[test]
fn one_made_and_never_started_that_cannot_be_removed_is_tried_every_ten_seconds() {
    let mut harness = Harness::new();
    harness.sandboxes.push(sandbox("s1", 0, true));
    let mut made = container("x0", "m", ContainerState::Created);
    made.image = "i:2".into();
    harness.containers.push(made);
    harness.manifests(&[&pod(MAIN)]);
    harness.does("podsandbox_status s1");
    let calls = calls_in_a_minute(&mut harness, "remove_container");
    assert!((4..=7).contains(&calls), "{calls}");
    assert!(harness.agent.pods().any(|pod| pod.metadata.uid == UID));
}

/// How the runtime reports that a listed object is gone.
#[derive(Clone, Copy, PartialEq)]
enum RemovedForm {
    NotFound,
    Removed,
}

/// The number of calls in this time about objects that it lists and reports as gone.
fn calls_about_removed(harness: &mut Harness, minutes: usize, form: RemovedForm) -> usize {
    let mut count = 0;
    for _ in 0..minutes * 600 {
        while let Some(call) = harness.open_calls().into_iter().next() {
            match form {
                RemovedForm::NotFound => {
                    harness.refuses(&call, Code::NotFound, "an error occurred");
                }
                RemovedForm::Removed if call.starts_with("container_status") => harness.does(&call),
                RemovedForm::Removed => {
                    let (call, _) = harness.take(&call);
                    harness.deliver(Event::Cri(call, Ok(Reply::Done)));
                }
            }
            count += 1;
            assert!(count < 100, "{call} is asked for without a pause");
        }
        harness.pass(100);
    }
    count
}

/// A pod that has ended and was removed from the folder: the runtime has lost a dead sandbox and a
/// dead container of it, as after `ctr container rm`, and lists both.
fn with_lost_objects() -> Harness {
    let mut harness = rebooted(MAIN, &["m"]);
    harness.does("container_status x0");
    harness.manifests(&[]);
    harness
}

#[test]
fn what_the_runtime_lists_and_does_not_have_is_asked_about_ever_more_rarely() {
    for form in [RemovedForm::NotFound, RemovedForm::Removed] {
        let mut harness = with_lost_objects();
        // Its stop, container and sandbox, and each again after 1, 2, 4, 8, 16 and 32 s, with the
        // calls for an unknown pod.
        let calls = calls_about_removed(&mut harness, 1, form);
        assert!((6..=30).contains(&calls), "{calls}");
        let gone = |line: &&String| {
            line.contains("the runtime reports that it is gone, but still lists it")
        };
        assert_eq!(harness.log.iter().filter(gone).count(), 2, "once of each: {:?}", harness.log);
        assert!(harness.log.iter().any(|line| line.contains("container=x0")), "{:?}", harness.log);
        assert!((1..=2).contains(&harness.agent.metrics().removed_listed), "they are counted");
        let before = harness.log.len();
        let calls = calls_about_removed(&mut harness, 60, form);
        assert!((6..=40).contains(&calls), "{calls} in an hour");
        assert!(harness.log.len() - before < 60, "{:?}", &harness.log[before..]);
        // Once the runtime does not list them any more, nothing is left to count.
        harness.sandboxes.clear();
        harness.containers.clear();
        harness.pass(2 * limits::RELIST_IDLE_MS);
        assert_eq!(harness.agent.metrics().removed_listed, 0);
        assert_eq!(harness.agent.pods().count(), 0);
    }
}

#[test]
fn what_runs_by_the_lists_alone_is_stopped_ever_more_rarely() {
    let mut harness = Harness::new();
    harness.manifests(&[&pod(MAIN)]);
    harness.does_all(START);
    harness.manifests(&[]);
    let calls = calls_about_removed(&mut harness, 1, RemovedForm::NotFound);
    assert!((4..=40).contains(&calls), "{calls}");
    let gone =
        |line: &&String| line.contains("the runtime reports that it is gone, but still lists it");
    assert_eq!(harness.log.iter().filter(gone).count(), 2, "once of each: {:?}", harness.log);
}

#[test]
fn a_pod_begins_anew_beside_what_the_runtime_has_lost_of_it() {
    let mut harness = with_lost_objects();
    calls_about_removed(&mut harness, 1, RemovedForm::NotFound);
    harness.manifests(&[&pod(MAIN)]);
    harness.pass(1_000);
    let call = harness.open_calls().into_iter().next().expect("it begins");
    assert!(call.starts_with("run_podsandbox"), "{call}");
}

#[test]
fn a_runtime_that_is_back_is_asked_about_what_was_gone_before() {
    let mut harness = with_lost_objects();
    calls_about_removed(&mut harness, 10, RemovedForm::NotFound);
    harness.deliver(Event::RuntimeDown { cause: "it ended".to_owned() });
    harness.deliver(Event::RuntimeUp);
    harness.pass(2_000);
    assert!(!harness.open_calls().is_empty(), "it may have them again");
}
