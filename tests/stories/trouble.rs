//! Retries, and their times, where the runtime or the file system fails at first.

use edged::agent::event::Event;
use edged::agent::time::Instant;
use edged::limits;
use edged::model::cri::{CallError, Code, ContainerState, Lost, Request};
use edged::model::job::JobSpec;

use crate::harness::{Harness, MAIN, START, container, pod, sandbox};
use crate::looks::{answer_lists, lists};

const NOTHING: [&str; 0] = [];

fn running() -> Harness {
    let mut harness = Harness::new();
    harness.manifests(&[&pod(MAIN)]);
    harness.does_all(START);
    harness
}

/// Time passes up to this moment.
fn until(harness: &mut Harness, at: Instant) {
    harness.pass(at.since_ms(harness.now.boot));
}

/// Whether a call with this prefix is open.
fn is_requested(harness: &Harness, begin: &str) -> bool {
    harness.open_calls().iter().any(|call| call.starts_with(begin))
}

/// How many jobs of this kind were asked for.
fn jobs(harness: &Harness, is_it: fn(&JobSpec) -> bool) -> usize {
    harness.specs.iter().filter(|spec| is_it(spec)).count()
}

/// Jobs of this kind fail: they are retried every ten seconds.
#[track_caller]
fn is_tried_every_ten_seconds(harness: &mut Harness, began: Instant, is_it: fn(&JobSpec) -> bool) {
    let before = jobs(harness, is_it);
    until(harness, began.plus_ms(limits::RETRY_MS - 1));
    assert_eq!(jobs(harness, is_it), before, "the pause is not over");
    harness.pass(1);
    assert_eq!(jobs(harness, is_it), before + 1);
}

#[test]
fn folders_that_cannot_be_made_keep_a_pod_waiting_and_are_tried_again() {
    let mut harness = Harness::new();
    let is_it: fn(&JobSpec) -> bool = |spec| matches!(spec, JobSpec::MakePodDirs { .. });
    harness.taken.fails = Some(is_it);
    let began = harness.now.boot;
    harness.manifests(&[&pod(MAIN)]);
    let reported = "Failed error making pod data directories: no such device".to_owned();
    assert!(harness.events.contains(&reported), "{:?}", harness.events);
    is_tried_every_ten_seconds(&mut harness, began, is_it);
    assert_eq!(harness.open_calls(), NOTHING);
    harness.taken.fails = None;
    harness.pass(limits::RETRY_MS);
    assert_eq!(harness.open_calls(), ["run_podsandbox #0"]);
}

/// A removed pod, up to the removal of its folders, of which one fails.
#[track_caller]
fn keeps_its_sandbox_until_its_folders_are_gone(is_it: fn(&JobSpec) -> bool, reported: &str) {
    let mut harness = running();
    harness.taken.fails = Some(is_it);
    harness.manifests(&[]);
    harness.does_all(&["stop_container c2 30", "stop_podsandbox s1"]);
    let began = harness.now.boot;
    harness.does("container_status c2");
    assert!(harness.events.iter().any(|event| event == reported), "{:?}", harness.events);
    // From the sandbox a next life would know of the folders.
    assert!(!is_requested(&harness, "remove_podsandbox"), "{:?}", harness.open_calls());
    let began = if jobs(&harness, is_it) == 1 { began } else { harness.now.boot };
    is_tried_every_ten_seconds(&mut harness, began, is_it);
    harness.taken.fails = None;
    harness.pass(limits::RETRY_MS);
    harness.works();
    assert!(harness.trace.contains(&"remove_podsandbox s1".to_owned()), "{:?}", harness.trace);
    harness.pass(2_000);
    assert_eq!(harness.agent.pods().count(), 0);
}

#[test]
fn a_pod_is_not_forgotten_before_its_logs_are_removed() {
    keeps_its_sandbox_until_its_folders_are_gone(
        |spec| matches!(spec, JobSpec::RemoveLogDir(_)),
        "FailedKillPod error removing the pod's logs: no such device",
    );
    keeps_its_sandbox_until_its_folders_are_gone(
        |spec| matches!(spec, JobSpec::RemoveLog(_)),
        "FailedKillPod error removing the pod's logs: no such device",
    );
}

#[test]
fn a_pod_is_not_forgotten_before_its_folder_is_removed() {
    keeps_its_sandbox_until_its_folders_are_gone(
        |spec| matches!(spec, JobSpec::RemovePodDir(_)),
        "FailedKillPod error removing the pod's directory: no such device",
    );
}

#[test]
fn questions_that_were_answered_in_between_are_asked_again_as_soon_as_ever() {
    let mut harness = Harness::new();
    harness.sandboxes.push(sandbox("s1", 0, true));
    for (attempt, id) in [(0, "x0"), (1, "x1")] {
        let mut found = container(id, "m", ContainerState::Exited);
        found.attempt = attempt;
        if attempt == 1 {
            found.state = ContainerState::Running;
        }
        harness.containers.push(found);
    }
    harness.manifests(&[&pod(MAIN)]);
    for question in ["podsandbox_status s1", "container_status x1", "container_status x0"] {
        for wait_ms in [1, 2].map(|times| times * limits::RETRY_MIN_MS) {
            let began = harness.now.boot;
            harness.refuses(question, Code::Unknown, "no");
            until(&mut harness, began.plus_ms(wait_ms - 1));
            assert_eq!(harness.open_calls(), NOTHING, "{question}");
            harness.pass(1);
            assert_eq!(harness.open_calls(), [question]);
        }
        harness.does(question);
    }
}

#[test]
fn stops_that_are_answered_out_of_order_end_each_its_own_container() {
    let mut harness = Harness::new();
    let two = r#""containers":[{"name":"m","image":"i:1"},{"name":"n","image":"i:1"}]"#;
    harness.manifests(&[&pod(two)]);
    harness.does_all(&START[..5]);
    harness.does_all(&["container_status c2", "image_status i:1", "create_container n#0"]);
    harness.does_all(&["start_container c3", "container_status c3"]);
    harness.manifests(&[]);
    assert_eq!(harness.open_calls(), ["stop_container c3 30", "stop_container c2 30"]);
    harness.refuses("stop_container c2 30", Code::Unknown, "no");
    harness.does("stop_container c3 30");
    harness.pass(limits::RETRY_MIN_MS);
    assert_eq!(harness.open_calls(), ["stop_container c2 29"], "the other has ended");
}

#[test]
fn two_containers_whose_images_change_stop_side_by_side() {
    let two = |a: &str, b: &str| {
        pod(&format!(r#""containers":[{{"name":"m","image":"{a}"}},{{"name":"n","image":"{b}"}}]"#))
    };
    let mut harness = Harness::new();
    harness.manifests(&[&two("i:1", "i:1")]);
    harness.does_all(&START[..5]);
    harness.does_all(&["container_status c2", "image_status i:1", "create_container n#0"]);
    harness.does_all(&["start_container c3", "container_status c3"]);
    harness.manifests(&[&two("i:2", "i:2")]);
    assert_eq!(harness.open_calls(), ["stop_container c2 30", "stop_container c3 30"]);
}

#[test]
fn a_pod_has_ended_only_when_a_look_after_its_last_stop_says_so() {
    let mut harness = running();
    harness.manifests(&[]);
    harness.does("stop_container c2 30");
    harness.pass(2_000);
    harness.taken.lists_wait = true;
    harness.does("stop_podsandbox s1");
    harness.pass(5_000);
    assert!(!is_requested(&harness, "container_status"), "{:?}", harness.open_calls());
    // A start that an earlier life requested has taken effect meanwhile.
    harness.containers.push(container("x9", "m", ContainerState::Running));
    answer_lists(&mut harness);
    assert!(is_requested(&harness, "stop_container x9"), "{:?}", harness.open_calls());
}

#[test]
fn without_a_sandbox_a_look_must_follow_the_last_stop_as_well() {
    let mut harness = Harness::new();
    harness.containers.push(container("x0", "m", ContainerState::Running));
    harness.manifests(&[]);
    assert_eq!(harness.open_calls(), ["stop_container x0 2"]);
    harness.taken.lists_wait = true;
    harness.does("stop_container x0 2");
    harness.pass(5_000);
    assert!(!is_requested(&harness, "container_status"), "{:?}", harness.open_calls());
    answer_lists(&mut harness);
    assert!(is_requested(&harness, "container_status x0"), "{:?}", harness.open_calls());
}

#[test]
fn a_list_that_was_begun_before_a_change_ended_is_not_believed() {
    let mut harness = Harness::with_stream(true);
    let two = r#""containers":[{"name":"a","image":"i:1"},{"name":"b","image":"i:2"}]"#;
    harness.manifests(&[&pod(two)]);
    harness.pass(10_000);
    harness.does_all(&["run_podsandbox #0", "podsandbox_status s1", "image_status i:1"]);
    harness.does_all(&["create_container a#0", "start_container c2"]);
    harness.does_all(&["container_status c2", "image_status i:2"]);
    let stream = harness.open.iter().find(|(_, it)| *it == Request::GetContainerEvents);
    let hint = stream.map(|(call, _)| *call).expect("the stream is open");
    harness.taken.lists_wait = true;
    harness.deliver(Event::Changed(hint));
    harness.pass(200);
    let old = harness.containers.clone();
    assert_eq!(lists(&harness).len(), 2);
    harness.does("create_container b#0");
    let now = std::mem::replace(&mut harness.containers, old);
    answer_lists(&mut harness);
    harness.containers = now;
    assert!(is_requested(&harness, "start_container c3"), "{:?}", harness.open_calls());
    harness.does("start_container c3");
    // The subject of the hint is not known yet.
    harness.pass(200);
    assert_eq!(lists(&harness).len(), 2);
    answer_lists(&mut harness);
    harness.taken.lists_wait = false;
    harness.does("container_status c3");
    let looks = |harness: &Harness| harness.agent.metrics().operations["list_containers"].total;
    let before = looks(&harness);
    harness.pass(limits::RELIST_EVENTED_MS / 2);
    assert_eq!(looks(&harness), before, "one was enough");
}

#[test]
fn a_list_from_before_a_start_does_not_undo_it() {
    let mut harness = Harness::with_stream(true);
    harness.manifests(&[&pod(MAIN)]);
    harness.pass(10_000);
    harness.does_all(&START[..4]);
    let stream = harness.open.iter().find(|(_, it)| *it == Request::GetContainerEvents);
    let hint = stream.map(|(call, _)| *call).expect("the stream is open");
    harness.taken.lists_wait = true;
    harness.deliver(Event::Changed(hint));
    harness.pass(200);
    let old = harness.containers.clone();
    assert_eq!(lists(&harness).len(), 2);
    harness.does("start_container c2");
    let now = std::mem::replace(&mut harness.containers, old);
    answer_lists(&mut harness);
    harness.containers = now;
    assert!(is_requested(&harness, "container_status c2"), "{:?}", harness.open_calls());
    harness.does("container_status c2");
    assert!(!is_requested(&harness, "start_container"), "{:?}", harness.open_calls());
    let reported = harness.status()["containerStatuses"][0].clone();
    assert!(reported["state"]["running"].is_object(), "{reported}");
    // The one that could not be believed is repeated.
    harness.pass(200);
    assert_eq!(lists(&harness).len(), 2);
}

#[test]
fn a_container_that_a_dying_sandbox_refuses_is_made_at_once_in_the_next() {
    let mut harness = Harness::with_stream(true);
    harness.manifests(&[&pod(MAIN)]);
    harness.does_all(&START[..3]);
    harness.sandboxes[0].ready = false;
    harness.refuses("create_container m#0", Code::Unknown, "sandbox container is not running");
    harness.pass(1_000);
    let waiting = &harness.status()["containerStatuses"][0]["state"]["waiting"];
    assert_eq!(waiting["reason"], "ContainerCreating", "it did not fail");
    let began = harness.now.boot;
    harness.works_until("create_container m#0");
    assert!(harness.now.boot.since_ms(began) < 2_000);
    assert_eq!(harness.sandboxes.len(), 2);
}

#[test]
fn while_something_is_being_made_no_look_is_repeated_for_it() {
    let mut harness = Harness::with_stream(true);
    harness.manifests(&[&pod(MAIN)]);
    harness.pass(10_000);
    harness.does_all(&START[..3]);
    let stream = harness.open.iter().find(|(_, it)| *it == Request::GetContainerEvents);
    let hint = stream.map(|(call, _)| *call).expect("the stream is open");
    let looks = |harness: &Harness| harness.agent.metrics().operations["list_containers"].total;
    let before = looks(&harness);
    harness.deliver(Event::Changed(hint));
    harness.pass(limits::RELIST_EVENTED_MS / 2);
    assert_eq!(looks(&harness) - before, 1);
    harness.does("create_container m#0");
    harness.does_all(&["start_container c2", "container_status c2"]);
    harness.pass(1_000);
    assert_eq!(looks(&harness) - before, 2, "the one that could not be believed is made up for");
}

#[test]
fn a_sandbox_that_cannot_be_stopped_when_its_pod_ends_is_tried_every_ten_seconds() {
    let mut harness = running();
    harness.manifests(&[]);
    harness.does("stop_container c2 30");
    let began = harness.now.boot;
    harness.refuses("stop_podsandbox s1", Code::Unknown, "no");
    until(&mut harness, began.plus_ms(limits::RETRY_MS - 1));
    assert_eq!(harness.open_calls(), NOTHING);
    harness.pass(limits::RETRY_MS / 2 + 1);
    assert_eq!(harness.open_calls(), ["stop_podsandbox s1"]);
}

#[test]
fn of_a_pod_that_goes_nothing_is_removed_without_a_look_after_a_lost_answer() {
    let mut harness = running();
    harness.manifests(&[]);
    harness.does_all(&["stop_container c2 30", "stop_podsandbox s1", "container_status c2"]);
    harness.taken.lists_wait = true;
    let (call, _) = harness.take("remove_container c2");
    harness.deliver(Event::Cri(call, Err(CallError::Lost(Lost::Deadline))));
    harness.pass(60_000);
    assert!(!is_requested(&harness, "remove_"), "{:?}", harness.open_calls());
    // It took effect.
    harness.containers.clear();
    answer_lists(&mut harness);
    harness.taken.lists_wait = false;
    assert!(is_requested(&harness, "remove_podsandbox s1"), "{:?}", harness.open_calls());
}

#[test]
fn of_a_pod_that_ends_nothing_is_stopped_without_a_look_after_a_lost_answer() {
    let mut harness = running();
    harness.manifests(&[]);
    harness.taken.lists_wait = true;
    let (call, _) = harness.take("stop_container c2 30");
    harness.deliver(Event::Cri(call, Err(CallError::Lost(Lost::Deadline))));
    harness.pass(20_000);
    assert!(!is_requested(&harness, "stop_"), "{:?}", harness.open_calls());
    answer_lists(&mut harness);
    assert!(is_requested(&harness, "stop_container c2"), "{:?}", harness.open_calls());
}

#[test]
fn a_shorter_grace_period_is_given_at_once_though_the_last_stop_was_refused() {
    let mut harness = running();
    let deleted = |grace: u32| {
        format!(
            r#"{{"metadata":{{"name":"p","uid":"u1","deletionTimestamp":"2027-01-01T00:00:00Z",
                "deletionGracePeriodSeconds":{grace}}},"spec":{{{MAIN}}}}}"#
        )
    };
    harness.manifests(&[&deleted(60)]);
    harness.refuses("stop_container c2 60", Code::Unknown, "no");
    assert_eq!(harness.open_calls(), NOTHING);
    harness.manifests(&[&deleted(20)]);
    assert_eq!(harness.open_calls(), ["stop_container c2 20"]);
}

#[test]
fn numbers_of_what_is_gone_are_never_given_again() {
    // A container that an earlier life created, and one that this life has removed.
    let mut harness = Harness::new();
    harness.sandboxes.push(sandbox("s1", 0, true));
    let mut found = container("x3", "m", ContainerState::Running);
    found.attempt = 3;
    harness.containers.push(found);
    harness.manifests(&[&pod(MAIN)]);
    harness.does_all(&["podsandbox_status s1", "container_status x3"]);
    harness.containers.clear();
    harness.pass(1_000);
    harness.does_all(&["image_status i:1", "create_container m#4", "start_container c1"]);
    harness.does("container_status c1");
    for attempt in [5, 6] {
        harness.exits("m", 1);
        harness.works_until(&format!("create_container m#{attempt}"));
        harness.works();
    }
    assert_eq!(harness.containers.len(), 2, "the first of them is removed");
    harness.containers.clear();
    harness.pass(1_000);
    harness.works_until("create_container m#7");
}

#[test]
fn sandboxes_count_on_when_the_newest_is_gone() {
    let mut harness = Harness::new();
    harness.sandboxes = vec![sandbox("s1", 1, true), sandbox("s0", 0, false)];
    harness.containers.push(container("x0", "m", ContainerState::Running));
    harness.manifests(&[&pod(MAIN)]);
    harness.does_all(&["podsandbox_status s1", "container_status x0"]);
    harness.does_all(&["stop_podsandbox s0", "remove_podsandbox s0"]);
    assert_eq!(harness.open_calls(), NOTHING, "the other stays");
    harness.sandboxes.clear();
    harness.containers.clear();
    harness.pass(1_000);
    assert_eq!(harness.open_calls(), ["run_podsandbox #1"]);
}

#[test]
fn of_two_sandboxes_none_stays_and_the_new_one_is_used_at_once() {
    let mut harness = Harness::new();
    harness.sandboxes = vec![sandbox("a", 0, true), sandbox("b", 1, true)];
    harness.manifests(&[&pod(MAIN)]);
    harness.does("podsandbox_status b");
    harness.does_all(&["stop_podsandbox b", "stop_podsandbox a"]);
    harness.taken.lists_wait = true;
    harness.does("run_podsandbox #2");
    harness.does("podsandbox_status s1");
    assert!(is_requested(&harness, "image_status i:1"), "{:?}", harness.open_calls());
}

#[test]
fn a_container_that_could_not_be_made_for_a_while_ends_as_any_other() {
    let mut harness = Harness::new();
    harness.manifests(&[&pod(MAIN)]);
    harness.does_all(&START[..3]);
    harness.refuses("create_container m#0", Code::Unknown, "no");
    harness.pass(limits::RETRY_MS * 3 / 2);
    harness.does_all(&["image_status i:1", "create_container m#0", "start_container c2"]);
    harness.does("container_status c2");
    harness.exits("m", 3);
    harness.does("container_status c2");
    let reported = harness.status()["containerStatuses"][0]["state"].clone();
    assert_eq!(reported["terminated"]["exitCode"], 3, "{reported}");
}

#[test]
fn a_name_that_is_taken_for_the_next_sandbox_is_tried_as_often_as_the_first() {
    let taken = "name \"x\" is reserved for \"y\"";
    let soon = |harness: &mut Harness, call: &str, refusal: u32| {
        let began = harness.now.boot;
        harness.refuses(call, Code::Unknown, taken);
        until(harness, began.plus_ms((limits::RETRY_TAKEN_MS << refusal) - 1));
        assert_eq!(harness.open_calls(), NOTHING, "refusal {refusal} of {call}");
        harness.pass(1);
        assert_eq!(harness.open_calls(), [call], "refusal {refusal}");
    };
    let mut harness = Harness::new();
    harness.manifests(&[&pod(MAIN)]);
    for refusal in 1..=3 {
        soon(&mut harness, "run_podsandbox #0", refusal);
    }
    harness.does_all(START);
    harness.sandboxes[0].ready = false;
    harness.exits("m", 1);
    harness.does_all(&["container_status c2", "stop_podsandbox s1"]);
    for refusal in 1..limits::NAME_TAKEN_MAX {
        if limits::RETRY_TAKEN_MS << refusal < limits::RETRY_MS {
            soon(&mut harness, "run_podsandbox #1", refusal);
        }
    }
}

#[test]
fn a_name_after_one_that_stays_taken_has_all_its_tries() {
    let taken = "name \"x\" is reserved for \"y\"";
    let mut harness = Harness::new();
    harness.manifests(&[&pod(MAIN)]);
    for _ in 0..limits::NAME_TAKEN_MAX {
        harness.refuses("run_podsandbox #0", Code::Unknown, taken);
        harness.pass(limits::RETRY_MS * 3 / 2);
    }
    harness.refuses("run_podsandbox #1", Code::Unknown, taken);
    harness.pass(limits::RETRY_MS * 3 / 2);
    assert_eq!(harness.open_calls(), ["run_podsandbox #1"]);
}

#[test]
fn a_sandbox_that_lasted_for_one_start_is_forgiven_its_end_again() {
    let mut harness = Harness::with_stream(true);
    harness.manifests(&[&pod(MAIN)]);
    harness.does_all(START);
    for (sandbox, made, next) in [(0, "c3", 1), (1, "c6", 2)] {
        let began = harness.now.boot;
        harness.exits("m", 137);
        harness.works_until(&format!("start_container {made}"));
        let observed =
            harness.containers.iter_mut().find(|observed| &*observed.id.0 == made).expect("made");
        observed.state = ContainerState::Exited;
        harness.exit_codes.push((made.into(), 128));
        harness.sandboxes.iter_mut().for_each(|it| it.ready = false);
        let start = format!("start_container {made}");
        harness.refuses(&start, Code::Unknown, "sandbox container is not running");
        harness.pass(1_000);
        harness.works_until(&format!("run_podsandbox #{next}"));
        harness.works();
        let waited_ms = harness.now.boot.since_ms(began);
        assert_eq!(harness.running(), ["m"], "sandbox {sandbox}");
        assert!(waited_ms < limits::BACKOFF_MIN_MS, "sandbox {sandbox}: {waited_ms} ms");
        harness.pass(limits::BACKOFF_CALM_MS + 1_000);
        harness.works();
    }
    assert_eq!(harness.running(), ["m"]);
}

#[test]
fn a_shorter_grace_period_gives_up_every_stop_that_was_given_more() {
    let mut harness = Harness::new();
    let two = r#""containers":[{"name":"m","image":"i:1"},{"name":"n","image":"i:1"}]"#;
    let deleted = |grace: u32| {
        format!(
            r#"{{"metadata":{{"name":"p","uid":"u1","deletionTimestamp":"2027-01-01T00:00:00Z",
                "deletionGracePeriodSeconds":{grace}}},"spec":{{{two}}}}}"#
        )
    };
    harness.manifests(&[&pod(two)]);
    harness.works();
    harness.manifests(&[&deleted(60)]);
    assert_eq!(harness.open_calls(), ["stop_container c3 60", "stop_container c2 60"]);
    harness.manifests(&[&deleted(5)]);
    assert_eq!(harness.cancelled.len(), 2);
    let mut requested = harness.open_calls();
    requested.sort();
    assert_eq!(requested, ["stop_container c2 5", "stop_container c3 5"]);
}

#[test]
fn each_try_to_make_a_container_gets_files_of_its_own() {
    let mut harness = Harness::new();
    harness.manifests(&[&pod(MAIN)]);
    harness.does_all(&START[..3]);
    let is_it: fn(&JobSpec) -> bool = |spec| matches!(spec, JobSpec::MakeContainerFiles(_));
    assert_eq!(jobs(&harness, is_it), 1);
    harness.refuses("create_container m#0", Code::Unknown, "no");
    harness.pass(limits::RETRY_MS * 3 / 2);
    harness.works_until("create_container m#0");
    assert_eq!(jobs(&harness, is_it), 2);
}
