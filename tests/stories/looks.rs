//! When the runtime is looked at, and what a look that fails is worth.

use edged::agent::event::{CallId, Event};
use edged::limits::{
    OLD_ANSWER_MS, RELIST_GAP_MAX_MS, RELIST_GAP_MIN_MS, RELIST_HEALTHY_MS, RELIST_IDLE_MS,
    RELIST_MS, RELIST_RETRY_MS,
};
use edged::model::cri::{CallError, Code, ContainerState, Lost, Reply, Request};

use crate::desk::{Desk, MAIN, START, container, pod, sandbox};
use crate::named::shared;

/// Lists that are asked for and not answered.
pub fn lists(desk: &Desk) -> Vec<Request> {
    let open = desk.open.iter().map(|(_, request)| request.clone());
    open.filter(|it| matches!(it, Request::ListPodSandbox | Request::ListContainers)).collect()
}

fn told(desk: &Desk, list: &Request) -> Reply {
    match list {
        Request::ListPodSandbox => Reply::Sandboxes(shared(&desk.sandboxes)),
        _ => Reply::Containers(shared(&desk.containers)),
    }
}

/// One of the lists is told as it is.
#[track_caller]
fn tells(desk: &mut Desk, list: &Request) {
    let reply = told(desk, list);
    answers(desk, list, Ok(reply));
}

/// Both are, those that are asked for now.
#[track_caller]
pub fn tell_all(desk: &mut Desk) {
    for list in lists(desk) {
        tells(desk, &list);
    }
}

#[track_caller]
fn answers(desk: &mut Desk, list: &Request, result: Result<Reply, CallError>) {
    let at = desk.open.iter().position(|(_, request)| request == list).expect("it is asked for");
    let (call, _) = desk.open.remove(at);
    desk.tell(Event::Cri(call, result));
}

/// A pod runs, and the next look waits for its answers.
fn looked_at() -> Desk {
    let mut desk = Desk::new();
    desk.manifests(&[&pod(MAIN)]);
    desk.does_all(START);
    desk.pass(10 * RELIST_MS);
    desk.taken.looks_wait = true;
    while lists(&desk).is_empty() {
        desk.pass(1);
    }
    desk
}

#[test]
fn when_the_runtime_was_last_looked_at_is_measured() {
    let mut desk = Desk::new();
    desk.manifests(&[&pod(MAIN)]);
    desk.does_all(START);
    desk.taken.looks_wait = true;
    desk.pass(2 * RELIST_MS);
    let last = desk.agent.metrics().relist_last_seen.expect("it was");
    desk.pass(20_000);
    assert_eq!(desk.agent.metrics().relist_last_seen, Some(last), "no look was answered since");
    let wall_s = desk.now.wall.expect("a clock").0 / 1_000;
    assert!((20..24).contains(&(wall_s - last)), "{last} of {wall_s}");
}

#[test]
fn a_look_of_which_either_half_fails_is_none_and_comes_again_soon() {
    let halves = [Request::ListPodSandbox, Request::ListContainers];
    for (failing, other) in [(0, 1), (1, 0)] {
        for first in [failing, other] {
            let mut desk = looked_at();
            for half in [first, 1 - first] {
                if half == failing {
                    let message = "too many".to_owned();
                    let error = CallError::Refused { code: Code::ResourceExhausted, message };
                    answers(&mut desk, &halves[half], Err(error));
                } else {
                    tells(&mut desk, &halves[half]);
                }
            }
            assert_eq!(desk.asked_for(), [] as [&str; 0], "nothing was seen to be gone");
            // The desk has passed some time already.
            desk.pass(RELIST_RETRY_MS - RELIST_GAP_MAX_MS - 1);
            assert_eq!(lists(&desk).len(), 0);
            desk.pass(1);
            assert_eq!(lists(&desk).len(), 2);
            assert_eq!(desk.status()["phase"], "Running");
        }
    }
}

#[test]
fn a_look_that_failed_is_no_hurry_once_one_came_whole() {
    let mut desk = looked_at();
    let message = "too many".to_owned();
    let error = CallError::Refused { code: Code::ResourceExhausted, message };
    answers(&mut desk, &Request::ListPodSandbox, Err(error));
    tells(&mut desk, &Request::ListContainers);
    desk.pass(RELIST_RETRY_MS);
    tells(&mut desk, &Request::ListPodSandbox);
    tells(&mut desk, &Request::ListContainers);
    // It began when half a second after the first was over.
    desk.pass(RELIST_MS - 2 * RELIST_GAP_MAX_MS - 1);
    assert_eq!(lists(&desk).len(), 0);
    desk.pass(1);
    assert_eq!(lists(&desk).len(), 2);
}

/// A desk whose runtime tells of changes, with a pod that runs or none, and the open stream.
fn evented(has_pod: bool) -> (Desk, CallId) {
    let mut desk = Desk::with_stream(true);
    if has_pod {
        desk.manifests(&[&pod(MAIN)]);
        desk.does_all(START);
    } else {
        desk.manifests(&[]);
    }
    desk.pass(10 * RELIST_MS);
    let events = desk.open.iter().find(|(_, it)| *it == Request::GetContainerEvents);
    let events = events.map(|(call, _)| *call).expect("the stream is open");
    (desk, events)
}

#[test]
fn the_longer_a_look_takes_the_later_comes_the_next_that_is_waited_for() {
    for (took_ms, gap_ms) in [(1, RELIST_GAP_MIN_MS), (8, 32), (20, RELIST_GAP_MAX_MS)] {
        for has_pod in [true, false] {
            let (mut desk, events) = evented(has_pod);
            desk.taken.looks_wait = true;
            desk.agent.handle(desk.now, Event::Changed(events));
            desk.step();
            let began = desk.now.boot;
            desk.pass(took_ms);
            for list in lists(&desk) {
                let at = desk.open.iter().position(|(_, request)| *request == list);
                let (call, _) = desk.open.remove(at.expect("it is asked for"));
                let reply = told(&desk, &list);
                desk.agent.handle(desk.now, Event::Cri(call, Ok(reply)));
            }
            desk.agent.handle(desk.now, Event::Changed(events));
            desk.step();
            while lists(&desk).is_empty() {
                desk.pass(1);
            }
            let waited_ms = desk.now.boot.since_ms(began);
            assert_eq!(waited_ms, gap_ms, "after {took_ms} ms, with a pod: {has_pod}");
        }
    }
}

#[test]
fn an_event_stream_that_ends_is_made_up_for_by_a_look() {
    let count = |desk: &Desk| desk.agent.metrics().operations["list_containers"].total;
    let (mut desk, events) = evented(false);
    let before = count(&desk);
    while count(&desk) == before {
        desk.pass(100);
    }
    let before = count(&desk);
    desk.open.retain(|(call, _)| *call != events);
    desk.tell(Event::Cri(events, Err(CallError::Lost(Lost::Connection))));
    assert_eq!(count(&desk) - before, 1);
}

#[test]
fn without_a_whole_look_for_minutes_the_agent_calls_itself_unhealthy() {
    let mut desk = looked_at();
    assert_eq!(desk.agent.health(desk.now), Ok(()));
    desk.pass(RELIST_HEALTHY_MS - 2 * RELIST_MS);
    assert_eq!(desk.agent.health(desk.now), Ok(()));
    desk.pass(3 * RELIST_MS);
    let why = desk.agent.health(desk.now).expect_err("it sees nothing");
    assert!(why.starts_with("pleg was last seen active 18"), "{why}");
    assert!(why.ends_with("s ago; threshold is 180s"), "{why}");
    tells(&mut desk, &Request::ListPodSandbox);
    tells(&mut desk, &Request::ListContainers);
    assert_eq!(desk.agent.health(desk.now), Ok(()));
}

#[test]
fn where_there_is_no_pod_looks_are_rare() {
    let count = |desk: &Desk| desk.agent.metrics().operations["list_containers"].total;
    let mut desk = Desk::new();
    desk.manifests(&[]);
    desk.pass(RELIST_IDLE_MS);
    let before = count(&desk);
    desk.pass(10 * RELIST_IDLE_MS);
    assert!((10..=11).contains(&(count(&desk) - before)), "{}", count(&desk) - before);
    desk.manifests(&[&pod(MAIN)]);
    desk.does_all(START);
    let before = count(&desk);
    desk.pass(10 * RELIST_MS);
    assert!((10..=11).contains(&(count(&desk) - before)), "{}", count(&desk) - before);
}

#[test]
fn looks_are_measured() {
    let mut desk = looked_at();
    let before = desk.agent.metrics();
    desk.pass(30);
    tells(&mut desk, &Request::ListPodSandbox);
    tells(&mut desk, &Request::ListContainers);
    let after = desk.agent.metrics();
    assert_eq!(after.relist_duration.sum_ms - before.relist_duration.sum_ms, 30);
    desk.pass(RELIST_MS);
    let last = desk.agent.metrics();
    assert_eq!(last.relist_interval.sum_ms - after.relist_interval.sum_ms, RELIST_MS);
}

#[test]
fn a_runtime_that_is_back_is_looked_at_at_once() {
    let count = |desk: &Desk| desk.agent.metrics().operations["list_containers"].total;
    let mut desk = Desk::with_stream(true);
    desk.manifests(&[]);
    desk.pass(RELIST_IDLE_MS);
    let before = count(&desk);
    while count(&desk) == before {
        desk.pass(100);
    }
    let before = count(&desk);
    desk.tell(Event::RuntimeDown { cause: "connection refused".to_owned() });
    desk.tell(Event::RuntimeUp);
    assert_eq!(count(&desk) - before, 1);
}

#[test]
fn a_look_that_failed_because_the_runtime_went_does_not_delay_the_next() {
    let mut desk = looked_at();
    for list in [Request::ListPodSandbox, Request::ListContainers] {
        answers(&mut desk, &list, Err(CallError::Lost(Lost::Connection)));
    }
    desk.tell(Event::RuntimeDown { cause: "connection reset".to_owned() });
    desk.tell(Event::RuntimeUp);
    assert_eq!(lists(&desk).len(), 2);
}

/// A main container beside a sidecar has ended, and the answer of its inspection, which a list has
/// overtaken, says that it runs.
fn answered_too_late() -> Desk {
    let mut desk = Desk::new();
    desk.sandboxes.push(sandbox("s1", 0, true));
    desk.containers.push(container("x0", "s", ContainerState::Running));
    let mut main = container("x1", "m", ContainerState::Running);
    main.image = "i:2".into();
    desk.containers.push(main);
    desk.manifests(&[&pod(r#""restartPolicy":"Never","containers":[{"name":"m","image":"i:2"}],
            "initContainers":[{"name":"s","image":"i:1","restartPolicy":"Always"}]"#)]);
    desk.does("podsandbox_status s1");
    if desk.asked_for() == ["container_status x0"] {
        desk.does("container_status x0");
    }
    let (call, request) = desk.take("container_status x1");
    let runs = desk.perform(&request);
    desk.exits("m", 0);
    desk.agent.handle(desk.now, Event::Cri(call, Ok(runs)));
    desk
}

#[test]
fn an_answer_that_a_list_has_overtaken_delays_no_stop() {
    let mut desk = answered_too_late();
    desk.taken.looks_wait = true;
    desk.agent.handle(desk.now, Desk::folder(&[]));
    desk.step();
    assert_eq!(desk.asked_for(), ["stop_container x0 30"]);
}

#[test]
fn who_is_inspected_too_late_for_ever_is_inspected_ever_more_rarely() {
    let mut desk = answered_too_late();
    desk.step();
    desk.pass(OLD_ANSWER_MS - 1);
    assert_eq!(desk.asked_for(), [] as [&str; 0]);
    desk.pass(1);
    let mut asked = 0;
    for _ in 0..6_000 {
        if desk.asked_for().contains(&"container_status x1".to_owned()) {
            asked += 1;
            let (call, request) = desk.take("container_status x1");
            let mut reply = desk.perform(&request);
            let Reply::ContainerStatus(status) = &mut reply else { panic!("got {reply:?}") };
            status.state = ContainerState::Running;
            desk.agent.handle(desk.now, Event::Cri(call, Ok(reply)));
            desk.step();
        }
        desk.pass(10);
    }
    // 10 ms, 20, and so on, then every 10 s.
    assert!((13..=16).contains(&asked), "{asked}");
}
