//! Relists: when the runtime is listed, and the effects of a failed relist.

use edged::agent::event::{CallId, Event};
use edged::limits::{
    OLD_ANSWER_MS, RELIST_GAP_MAX_MS, RELIST_GAP_MIN_MS, RELIST_IDLE_MS, RELIST_MS, RELIST_RETRY_MS,
};
use edged::model::cri::{CallError, Code, ContainerState, Lost, Reply, Request};

use crate::harness::{Harness, MAIN, START, container, pod, sandbox};
use crate::named::shared;

/// Open list calls.
pub fn lists(harness: &Harness) -> Vec<Request> {
    let open = harness.open.iter().map(|(_, request)| request.clone());
    open.filter(|it| matches!(it, Request::ListPodSandbox | Request::ListContainers)).collect()
}

fn reported(harness: &Harness, list: &Request) -> Reply {
    match list {
        Request::ListPodSandbox => Reply::Sandboxes(shared(&harness.sandboxes)),
        _ => Reply::Containers(shared(&harness.containers)),
    }
}

/// One of the lists is answered with the actual state.
#[track_caller]
fn tells(harness: &mut Harness, list: &Request) {
    let reply = reported(harness, list);
    answers(harness, list, Ok(reply));
}

/// Both open lists are answered.
#[track_caller]
pub fn answer_lists(harness: &mut Harness) {
    for list in lists(harness) {
        tells(harness, &list);
    }
}

#[track_caller]
fn answers(harness: &mut Harness, list: &Request, result: Result<Reply, CallError>) {
    let at = harness.open.iter().position(|(_, request)| request == list).expect("it is requested");
    let (call, _) = harness.open.remove(at);
    harness.deliver(Event::Cri(call, result));
}

/// A pod runs, and the next relist waits for its answers.
fn relisting() -> Harness {
    let mut harness = Harness::new();
    harness.manifests(&[&pod(MAIN)]);
    harness.does_all(START);
    harness.pass(10 * RELIST_MS);
    harness.taken.lists_wait = true;
    while lists(&harness).is_empty() {
        harness.pass(1);
    }
    harness
}

#[test]
fn when_the_runtime_was_last_looked_at_is_measured() {
    let mut harness = Harness::new();
    harness.manifests(&[&pod(MAIN)]);
    harness.does_all(START);
    harness.taken.lists_wait = true;
    harness.pass(2 * RELIST_MS);
    let last = harness.agent.metrics().relist_last_seen.expect("it was");
    harness.pass(20_000);
    assert_eq!(harness.agent.metrics().relist_last_seen, Some(last), "no look was answered since");
    let wall_s = harness.now.wall.expect("a clock").0 / 1_000;
    assert!((20..24).contains(&(wall_s - last)), "{last} of {wall_s}");
}

#[test]
fn a_look_of_which_either_half_fails_is_none_and_comes_again_soon() {
    let halves = [Request::ListPodSandbox, Request::ListContainers];
    for (failing, other) in [(0, 1), (1, 0)] {
        for first in [failing, other] {
            let mut harness = relisting();
            for half in [first, 1 - first] {
                if half == failing {
                    let message = "too many".to_owned();
                    let error = CallError::Refused { code: Code::ResourceExhausted, message };
                    answers(&mut harness, &halves[half], Err(error));
                } else {
                    tells(&mut harness, &halves[half]);
                }
            }
            assert_eq!(harness.open_calls(), [] as [&str; 0], "nothing was seen to be gone");
            // The harness has passed some time already.
            harness.pass(RELIST_RETRY_MS - RELIST_GAP_MAX_MS - 1);
            assert_eq!(lists(&harness).len(), 0);
            harness.pass(1);
            assert_eq!(lists(&harness).len(), 2);
            assert_eq!(harness.status()["phase"], "Running");
        }
    }
}

#[test]
fn a_look_that_failed_is_no_hurry_once_one_came_whole() {
    let mut harness = relisting();
    let message = "too many".to_owned();
    let error = CallError::Refused { code: Code::ResourceExhausted, message };
    answers(&mut harness, &Request::ListPodSandbox, Err(error));
    tells(&mut harness, &Request::ListContainers);
    harness.pass(RELIST_RETRY_MS);
    tells(&mut harness, &Request::ListPodSandbox);
    tells(&mut harness, &Request::ListContainers);
    // It began when half a second after the first was over.
    harness.pass(RELIST_MS - 2 * RELIST_GAP_MAX_MS - 1);
    assert_eq!(lists(&harness).len(), 0);
    harness.pass(1);
    assert_eq!(lists(&harness).len(), 2);
}

/// A harness whose runtime reports changes, with a running pod or none, and the open stream.
fn evented(has_pod: bool) -> (Harness, CallId) {
    let mut harness = Harness::with_stream(true);
    if has_pod {
        harness.manifests(&[&pod(MAIN)]);
        harness.does_all(START);
    } else {
        harness.manifests(&[]);
    }
    harness.pass(10 * RELIST_MS);
    let events = harness.open.iter().find(|(_, it)| *it == Request::GetContainerEvents);
    let events = events.map(|(call, _)| *call).expect("the stream is open");
    (harness, events)
}

#[test]
fn the_longer_a_look_takes_the_later_comes_the_next_that_is_waited_for() {
    for (took_ms, gap_ms) in [(1, RELIST_GAP_MIN_MS), (8, 32), (20, RELIST_GAP_MAX_MS)] {
        for has_pod in [true, false] {
            let (mut harness, events) = evented(has_pod);
            harness.taken.lists_wait = true;
            harness.agent.handle(harness.now, Event::Changed(events));
            harness.step();
            let began = harness.now.boot;
            harness.pass(took_ms);
            for list in lists(&harness) {
                let at = harness.open.iter().position(|(_, request)| *request == list);
                let (call, _) = harness.open.remove(at.expect("it is requested"));
                let reply = reported(&harness, &list);
                harness.agent.handle(harness.now, Event::Cri(call, Ok(reply)));
            }
            harness.agent.handle(harness.now, Event::Changed(events));
            harness.step();
            while lists(&harness).is_empty() {
                harness.pass(1);
            }
            let waited_ms = harness.now.boot.since_ms(began);
            assert_eq!(waited_ms, gap_ms, "after {took_ms} ms, with a pod: {has_pod}");
        }
    }
}

#[test]
fn an_event_stream_that_ends_is_made_up_for_by_a_look() {
    let count = |harness: &Harness| harness.agent.metrics().operations["list_containers"].total;
    let (mut harness, events) = evented(false);
    let before = count(&harness);
    while count(&harness) == before {
        harness.pass(100);
    }
    let before = count(&harness);
    harness.open.retain(|(call, _)| *call != events);
    harness.deliver(Event::Cri(events, Err(CallError::Lost(Lost::Connection))));
    assert_eq!(count(&harness) - before, 1);
}

#[test]
fn where_there_is_no_pod_looks_are_rare() {
    let count = |harness: &Harness| harness.agent.metrics().operations["list_containers"].total;
    let mut harness = Harness::new();
    harness.manifests(&[]);
    harness.pass(RELIST_IDLE_MS);
    let before = count(&harness);
    harness.pass(10 * RELIST_IDLE_MS);
    assert!((10..=11).contains(&(count(&harness) - before)), "{}", count(&harness) - before);
    harness.manifests(&[&pod(MAIN)]);
    harness.does_all(START);
    let before = count(&harness);
    harness.pass(10 * RELIST_MS);
    assert!((10..=11).contains(&(count(&harness) - before)), "{}", count(&harness) - before);
}

#[test]
fn looks_are_measured() {
    let mut harness = relisting();
    let before = harness.agent.metrics();
    harness.pass(30);
    tells(&mut harness, &Request::ListPodSandbox);
    tells(&mut harness, &Request::ListContainers);
    let after = harness.agent.metrics();
    assert_eq!(after.relist_duration.sum_ms - before.relist_duration.sum_ms, 30);
    harness.pass(RELIST_MS);
    let last = harness.agent.metrics();
    assert_eq!(last.relist_interval.sum_ms - after.relist_interval.sum_ms, RELIST_MS);
}

#[test]
fn a_runtime_that_is_back_is_looked_at_at_once() {
    let count = |harness: &Harness| harness.agent.metrics().operations["list_containers"].total;
    let mut harness = Harness::with_stream(true);
    harness.manifests(&[]);
    harness.pass(RELIST_IDLE_MS);
    let before = count(&harness);
    while count(&harness) == before {
        harness.pass(100);
    }
    let before = count(&harness);
    harness.deliver(Event::RuntimeDown { cause: "connection refused".to_owned() });
    harness.deliver(Event::RuntimeUp);
    assert_eq!(count(&harness) - before, 1);
}

#[test]
fn a_look_that_failed_because_the_runtime_went_does_not_delay_the_next() {
    let mut harness = relisting();
    for list in [Request::ListPodSandbox, Request::ListContainers] {
        answers(&mut harness, &list, Err(CallError::Lost(Lost::Connection)));
    }
    harness.deliver(Event::RuntimeDown { cause: "connection reset".to_owned() });
    harness.deliver(Event::RuntimeUp);
    assert_eq!(lists(&harness).len(), 2);
}

/// A main container beside a sidecar has ended, and the answer of its inspection, which was
/// overtaken by a list, shows it as running.
fn answered_too_late() -> Harness {
    let mut harness = Harness::new();
    harness.sandboxes.push(sandbox("s1", 0, true));
    harness.containers.push(container("x0", "s", ContainerState::Running));
    let mut main = container("x1", "m", ContainerState::Running);
    main.image = "i:2".into();
    harness.containers.push(main);
    harness
        .manifests(&[&pod(r#""restartPolicy":"Never","containers":[{"name":"m","image":"i:2"}],
            "initContainers":[{"name":"s","image":"i:1","restartPolicy":"Always"}]"#)]);
    harness.does("podsandbox_status s1");
    if harness.open_calls() == ["container_status x0"] {
        harness.does("container_status x0");
    }
    let (call, request) = harness.take("container_status x1");
    let runs = harness.perform(&request);
    harness.exits("m", 0);
    harness.agent.handle(harness.now, Event::Cri(call, Ok(runs)));
    harness
}

#[test]
fn an_answer_that_a_list_has_overtaken_delays_no_stop() {
    let mut harness = answered_too_late();
    harness.taken.lists_wait = true;
    harness.agent.handle(harness.now, Harness::folder(&[]));
    harness.step();
    assert_eq!(harness.open_calls(), ["stop_container x0 30"]);
}

#[test]
fn who_is_inspected_too_late_for_ever_is_inspected_ever_more_rarely() {
    let mut harness = answered_too_late();
    harness.step();
    harness.pass(OLD_ANSWER_MS - 1);
    assert_eq!(harness.open_calls(), [] as [&str; 0]);
    harness.pass(1);
    let mut requested = 0;
    for _ in 0..6_000 {
        if harness.open_calls().contains(&"container_status x1".to_owned()) {
            requested += 1;
            let (call, request) = harness.take("container_status x1");
            let mut reply = harness.perform(&request);
            let Reply::ContainerStatus(status) = &mut reply else { panic!("got {reply:?}") };
            status.state = ContainerState::Running;
            harness.agent.handle(harness.now, Event::Cri(call, Ok(reply)));
            harness.step();
        }
        harness.pass(10);
    }
    // 10 ms, 20, and so on, then every 10 s.
    assert!((13..=16).contains(&requested), "{requested}");
}
