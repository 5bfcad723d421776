//! What is done again, and when, where the runtime or the file system does not do it at once.

use edged::agent::event::Event;
use edged::agent::time::Instant;
use edged::limits;
use edged::model::cri::{CallError, Code, ContainerState, Lost, Request};
use edged::model::job::JobSpec;

use crate::desk::{Desk, MAIN, START, container, pod, sandbox};
use crate::looks::{lists, tell_all};

const NOTHING: [&str; 0] = [];

fn running() -> Desk {
    let mut desk = Desk::new();
    desk.manifests(&[&pod(MAIN)]);
    desk.does_all(START);
    desk
}

/// Time passes up to this moment.
fn until(desk: &mut Desk, at: Instant) {
    desk.pass(at.since_ms(desk.now.boot));
}

/// Whether a call that begins so is asked for.
fn asks(desk: &Desk, begin: &str) -> bool {
    desk.asked_for().iter().any(|call| call.starts_with(begin))
}

/// How many jobs of this kind were asked for.
fn jobs(desk: &Desk, is_it: fn(&JobSpec) -> bool) -> usize {
    desk.specs.iter().filter(|spec| is_it(spec)).count()
}

/// Jobs of this kind fail: they are tried every ten seconds.
#[track_caller]
fn is_tried_every_ten_seconds(desk: &mut Desk, began: Instant, is_it: fn(&JobSpec) -> bool) {
    let before = jobs(desk, is_it);
    until(desk, began.plus_ms(limits::RETRY_MS - 1));
    assert_eq!(jobs(desk, is_it), before, "the pause is not over");
    desk.pass(1);
    assert_eq!(jobs(desk, is_it), before + 1);
}

#[test]
fn folders_that_cannot_be_made_keep_a_pod_waiting_and_are_tried_again() {
    let mut desk = Desk::new();
    let is_it: fn(&JobSpec) -> bool = |spec| matches!(spec, JobSpec::MakePodDirs { .. });
    desk.taken.fails = Some(is_it);
    let began = desk.now.boot;
    desk.manifests(&[&pod(MAIN)]);
    let told = "Failed error making pod data directories: no such device".to_owned();
    assert!(desk.events.contains(&told), "{:?}", desk.events);
    is_tried_every_ten_seconds(&mut desk, began, is_it);
    assert_eq!(desk.asked_for(), NOTHING);
    desk.taken.fails = None;
    desk.pass(limits::RETRY_MS);
    assert_eq!(desk.asked_for(), ["run_podsandbox #0"]);
}

/// A pod that goes, up to the removal of its folders, of which one cannot be done.
#[track_caller]
fn keeps_its_sandbox_until_its_folders_are_gone(is_it: fn(&JobSpec) -> bool, told: &str) {
    let mut desk = running();
    desk.taken.fails = Some(is_it);
    desk.manifests(&[]);
    desk.does_all(&["stop_container c2 30", "stop_podsandbox s1"]);
    let began = desk.now.boot;
    desk.does("container_status c2");
    assert!(desk.events.iter().any(|event| event == told), "{:?}", desk.events);
    // By the sandbox a next life would know of the folders.
    assert!(!asks(&desk, "remove_podsandbox"), "{:?}", desk.asked_for());
    let began = if jobs(&desk, is_it) == 1 { began } else { desk.now.boot };
    is_tried_every_ten_seconds(&mut desk, began, is_it);
    desk.taken.fails = None;
    desk.pass(limits::RETRY_MS);
    desk.works();
    assert!(desk.trace.contains(&"remove_podsandbox s1".to_owned()), "{:?}", desk.trace);
    desk.pass(2_000);
    assert_eq!(desk.agent.pods().count(), 0);
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
    let mut desk = Desk::new();
    desk.sandboxes.push(sandbox("s1", 0, true));
    for (attempt, id) in [(0, "x0"), (1, "x1")] {
        let mut found = container(id, "m", ContainerState::Exited);
        found.attempt = attempt;
        if attempt == 1 {
            found.state = ContainerState::Running;
        }
        desk.containers.push(found);
    }
    desk.manifests(&[&pod(MAIN)]);
    for question in ["podsandbox_status s1", "container_status x1", "container_status x0"] {
        for wait_ms in [1, 2].map(|times| times * limits::RETRY_MIN_MS) {
            let began = desk.now.boot;
            desk.refuses(question, Code::Unknown, "no");
            until(&mut desk, began.plus_ms(wait_ms - 1));
            assert_eq!(desk.asked_for(), NOTHING, "{question}");
            desk.pass(1);
            assert_eq!(desk.asked_for(), [question]);
        }
        desk.does(question);
    }
}

#[test]
fn stops_that_are_answered_out_of_order_end_each_its_own_container() {
    let mut desk = Desk::new();
    let two = r#""containers":[{"name":"m","image":"i:1"},{"name":"n","image":"i:1"}]"#;
    desk.manifests(&[&pod(two)]);
    desk.does_all(&START[..5]);
    desk.does_all(&["container_status c2", "image_status i:1", "create_container n#0"]);
    desk.does_all(&["start_container c3", "container_status c3"]);
    desk.manifests(&[]);
    assert_eq!(desk.asked_for(), ["stop_container c3 30", "stop_container c2 30"]);
    desk.refuses("stop_container c2 30", Code::Unknown, "no");
    desk.does("stop_container c3 30");
    desk.pass(limits::RETRY_MIN_MS);
    assert_eq!(desk.asked_for(), ["stop_container c2 29"], "the other has ended");
}

#[test]
fn two_containers_whose_images_change_stop_side_by_side() {
    let two = |a: &str, b: &str| {
        pod(&format!(r#""containers":[{{"name":"m","image":"{a}"}},{{"name":"n","image":"{b}"}}]"#))
    };
    let mut desk = Desk::new();
    desk.manifests(&[&two("i:1", "i:1")]);
    desk.does_all(&START[..5]);
    desk.does_all(&["container_status c2", "image_status i:1", "create_container n#0"]);
    desk.does_all(&["start_container c3", "container_status c3"]);
    desk.manifests(&[&two("i:2", "i:2")]);
    assert_eq!(desk.asked_for(), ["stop_container c2 30", "stop_container c3 30"]);
}

#[test]
fn a_pod_has_ended_only_when_a_look_after_its_last_stop_says_so() {
    let mut desk = running();
    desk.manifests(&[]);
    desk.does("stop_container c2 30");
    desk.pass(2_000);
    desk.taken.looks_wait = true;
    desk.does("stop_podsandbox s1");
    desk.pass(5_000);
    assert!(!asks(&desk, "container_status"), "{:?}", desk.asked_for());
    // A start that an earlier life asked for has had its effect meanwhile.
    desk.containers.push(container("x9", "m", ContainerState::Running));
    tell_all(&mut desk);
    assert!(asks(&desk, "stop_container x9"), "{:?}", desk.asked_for());
}

#[test]
fn without_a_sandbox_a_look_must_follow_the_last_stop_as_well() {
    let mut desk = Desk::new();
    desk.containers.push(container("x0", "m", ContainerState::Running));
    desk.manifests(&[]);
    assert_eq!(desk.asked_for(), ["stop_container x0 2"]);
    desk.taken.looks_wait = true;
    desk.does("stop_container x0 2");
    desk.pass(5_000);
    assert!(!asks(&desk, "container_status"), "{:?}", desk.asked_for());
    tell_all(&mut desk);
    assert!(asks(&desk, "container_status x0"), "{:?}", desk.asked_for());
}

#[test]
fn a_list_that_was_begun_before_a_change_ended_is_not_believed() {
    let mut desk = Desk::with_stream(true);
    let two = r#""containers":[{"name":"a","image":"i:1"},{"name":"b","image":"i:2"}]"#;
    desk.manifests(&[&pod(two)]);
    desk.pass(10_000);
    desk.does_all(&["run_podsandbox #0", "podsandbox_status s1", "image_status i:1"]);
    desk.does_all(&["create_container a#0", "start_container c2"]);
    desk.does_all(&["container_status c2", "image_status i:2"]);
    let stream = desk.open.iter().find(|(_, it)| *it == Request::GetContainerEvents);
    let hint = stream.map(|(call, _)| *call).expect("the stream is open");
    desk.taken.looks_wait = true;
    desk.tell(Event::Changed(hint));
    desk.pass(200);
    let old = desk.containers.clone();
    assert_eq!(lists(&desk).len(), 2);
    desk.does("create_container b#0");
    let now = std::mem::replace(&mut desk.containers, old);
    tell_all(&mut desk);
    desk.containers = now;
    assert!(asks(&desk, "start_container c3"), "{:?}", desk.asked_for());
    desk.does("start_container c3");
    // What the hint was about is not known yet.
    desk.pass(200);
    assert_eq!(lists(&desk).len(), 2);
    tell_all(&mut desk);
    desk.taken.looks_wait = false;
    desk.does("container_status c3");
    let looks = |desk: &Desk| desk.agent.metrics().operations["list_containers"].total;
    let before = looks(&desk);
    desk.pass(limits::RELIST_EVENTED_MS / 2);
    assert_eq!(looks(&desk), before, "one was enough");
}

#[test]
fn a_list_from_before_a_start_does_not_undo_it() {
    let mut desk = Desk::with_stream(true);
    desk.manifests(&[&pod(MAIN)]);
    desk.pass(10_000);
    desk.does_all(&START[..4]);
    let stream = desk.open.iter().find(|(_, it)| *it == Request::GetContainerEvents);
    let hint = stream.map(|(call, _)| *call).expect("the stream is open");
    desk.taken.looks_wait = true;
    desk.tell(Event::Changed(hint));
    desk.pass(200);
    let old = desk.containers.clone();
    assert_eq!(lists(&desk).len(), 2);
    desk.does("start_container c2");
    let now = std::mem::replace(&mut desk.containers, old);
    tell_all(&mut desk);
    desk.containers = now;
    assert!(asks(&desk, "container_status c2"), "{:?}", desk.asked_for());
    desk.does("container_status c2");
    assert!(!asks(&desk, "start_container"), "{:?}", desk.asked_for());
    let told = desk.status()["containerStatuses"][0].clone();
    assert!(told["state"]["running"].is_object(), "{told}");
    // The one that could not be believed is made up for.
    desk.pass(200);
    assert_eq!(lists(&desk).len(), 2);
}

#[test]
fn a_container_that_a_dying_sandbox_refuses_is_made_at_once_in_the_next() {
    let mut desk = Desk::with_stream(true);
    desk.manifests(&[&pod(MAIN)]);
    desk.does_all(&START[..3]);
    desk.sandboxes[0].ready = false;
    desk.refuses("create_container m#0", Code::Unknown, "sandbox container is not running");
    desk.pass(1_000);
    let waiting = &desk.status()["containerStatuses"][0]["state"]["waiting"];
    assert_eq!(waiting["reason"], "ContainerCreating", "it did not fail");
    let began = desk.now.boot;
    desk.works_until("create_container m#0");
    assert!(desk.now.boot.since_ms(began) < 2_000);
    assert_eq!(desk.sandboxes.len(), 2);
}

#[test]
fn while_something_is_being_made_no_look_is_repeated_for_it() {
    let mut desk = Desk::with_stream(true);
    desk.manifests(&[&pod(MAIN)]);
    desk.pass(10_000);
    desk.does_all(&START[..3]);
    let stream = desk.open.iter().find(|(_, it)| *it == Request::GetContainerEvents);
    let hint = stream.map(|(call, _)| *call).expect("the stream is open");
    let looks = |desk: &Desk| desk.agent.metrics().operations["list_containers"].total;
    let before = looks(&desk);
    desk.tell(Event::Changed(hint));
    desk.pass(limits::RELIST_EVENTED_MS / 2);
    assert_eq!(looks(&desk) - before, 1);
    desk.does("create_container m#0");
    desk.does_all(&["start_container c2", "container_status c2"]);
    desk.pass(1_000);
    assert_eq!(looks(&desk) - before, 2, "the one that could not be believed is made up for");
}

#[test]
fn a_sandbox_that_cannot_be_stopped_when_its_pod_ends_is_tried_every_ten_seconds() {
    let mut desk = running();
    desk.manifests(&[]);
    desk.does("stop_container c2 30");
    let began = desk.now.boot;
    desk.refuses("stop_podsandbox s1", Code::Unknown, "no");
    until(&mut desk, began.plus_ms(limits::RETRY_MS - 1));
    assert_eq!(desk.asked_for(), NOTHING);
    desk.pass(limits::RETRY_MS / 2 + 1);
    assert_eq!(desk.asked_for(), ["stop_podsandbox s1"]);
}

#[test]
fn of_a_pod_that_goes_nothing_is_removed_without_a_look_after_a_lost_answer() {
    let mut desk = running();
    desk.manifests(&[]);
    desk.does_all(&["stop_container c2 30", "stop_podsandbox s1", "container_status c2"]);
    desk.taken.looks_wait = true;
    let (call, _) = desk.take("remove_container c2");
    desk.tell(Event::Cri(call, Err(CallError::Lost(Lost::Deadline))));
    desk.pass(60_000);
    assert!(!asks(&desk, "remove_"), "{:?}", desk.asked_for());
    // It had its effect.
    desk.containers.clear();
    tell_all(&mut desk);
    desk.taken.looks_wait = false;
    assert!(asks(&desk, "remove_podsandbox s1"), "{:?}", desk.asked_for());
}

#[test]
fn of_a_pod_that_ends_nothing_is_stopped_without_a_look_after_a_lost_answer() {
    let mut desk = running();
    desk.manifests(&[]);
    desk.taken.looks_wait = true;
    let (call, _) = desk.take("stop_container c2 30");
    desk.tell(Event::Cri(call, Err(CallError::Lost(Lost::Deadline))));
    desk.pass(20_000);
    assert!(!asks(&desk, "stop_"), "{:?}", desk.asked_for());
    tell_all(&mut desk);
    assert!(asks(&desk, "stop_container c2"), "{:?}", desk.asked_for());
}

#[test]
fn a_shorter_grace_period_is_given_at_once_though_the_last_stop_was_refused() {
    let mut desk = running();
    let deleted = |grace: u32| {
        format!(
            r#"{{"metadata":{{"name":"p","uid":"u1","deletionTimestamp":"2027-01-01T00:00:00Z",
                "deletionGracePeriodSeconds":{grace}}},"spec":{{{MAIN}}}}}"#
        )
    };
    desk.manifests(&[&deleted(60)]);
    desk.refuses("stop_container c2 60", Code::Unknown, "no");
    assert_eq!(desk.asked_for(), NOTHING);
    desk.manifests(&[&deleted(20)]);
    assert_eq!(desk.asked_for(), ["stop_container c2 20"]);
}

#[test]
fn numbers_of_what_is_gone_are_never_given_again() {
    // A container that an earlier life made, and one that this life has removed.
    let mut desk = Desk::new();
    desk.sandboxes.push(sandbox("s1", 0, true));
    let mut found = container("x3", "m", ContainerState::Running);
    found.attempt = 3;
    desk.containers.push(found);
    desk.manifests(&[&pod(MAIN)]);
    desk.does_all(&["podsandbox_status s1", "container_status x3"]);
    desk.containers.clear();
    desk.pass(1_000);
    desk.does_all(&["image_status i:1", "create_container m#4", "start_container c1"]);
    desk.does("container_status c1");
    for attempt in [5, 6] {
        desk.exits("m", 1);
        desk.works_until(&format!("create_container m#{attempt}"));
        desk.works();
    }
    assert_eq!(desk.containers.len(), 2, "the first of them is removed");
    desk.containers.clear();
    desk.pass(1_000);
    desk.works_until("create_container m#7");
}

#[test]
fn sandboxes_count_on_when_the_newest_is_gone() {
    let mut desk = Desk::new();
    desk.sandboxes = vec![sandbox("s1", 1, true), sandbox("s0", 0, false)];
    desk.containers.push(container("x0", "m", ContainerState::Running));
    desk.manifests(&[&pod(MAIN)]);
    desk.does_all(&["podsandbox_status s1", "container_status x0"]);
    desk.does_all(&["stop_podsandbox s0", "remove_podsandbox s0"]);
    assert_eq!(desk.asked_for(), NOTHING, "the other stays");
    desk.sandboxes.clear();
    desk.containers.clear();
    desk.pass(1_000);
    assert_eq!(desk.asked_for(), ["run_podsandbox #1"]);
}

#[test]
fn of_two_sandboxes_none_stays_and_the_new_one_is_used_at_once() {
    let mut desk = Desk::new();
    desk.sandboxes = vec![sandbox("a", 0, true), sandbox("b", 1, true)];
    desk.manifests(&[&pod(MAIN)]);
    desk.does("podsandbox_status b");
    desk.does_all(&["stop_podsandbox b", "stop_podsandbox a"]);
    desk.taken.looks_wait = true;
    desk.does("run_podsandbox #2");
    desk.does("podsandbox_status s1");
    assert!(asks(&desk, "image_status i:1"), "{:?}", desk.asked_for());
}

#[test]
fn a_container_that_could_not_be_made_for_a_while_ends_as_any_other() {
    let mut desk = Desk::new();
    desk.manifests(&[&pod(MAIN)]);
    desk.does_all(&START[..3]);
    desk.refuses("create_container m#0", Code::Unknown, "no");
    desk.pass(limits::RETRY_MS * 3 / 2);
    desk.does_all(&["image_status i:1", "create_container m#0", "start_container c2"]);
    desk.does("container_status c2");
    desk.exits("m", 3);
    desk.does("container_status c2");
    let told = desk.status()["containerStatuses"][0]["state"].clone();
    assert_eq!(told["terminated"]["exitCode"], 3, "{told}");
}

#[test]
fn a_name_that_is_taken_for_the_next_sandbox_is_tried_as_often_as_the_first() {
    let taken = "name \"x\" is reserved for \"y\"";
    let soon = |desk: &mut Desk, call: &str, refusal: u32| {
        let began = desk.now.boot;
        desk.refuses(call, Code::Unknown, taken);
        until(desk, began.plus_ms((limits::RETRY_TAKEN_MS << refusal) - 1));
        assert_eq!(desk.asked_for(), NOTHING, "refusal {refusal} of {call}");
        desk.pass(1);
        assert_eq!(desk.asked_for(), [call], "refusal {refusal}");
    };
    let mut desk = Desk::new();
    desk.manifests(&[&pod(MAIN)]);
    for refusal in 1..=3 {
        soon(&mut desk, "run_podsandbox #0", refusal);
    }
    desk.does_all(START);
    desk.sandboxes[0].ready = false;
    desk.exits("m", 1);
    desk.does_all(&["container_status c2", "stop_podsandbox s1"]);
    for refusal in 1..limits::NAME_TAKEN_MAX {
        if limits::RETRY_TAKEN_MS << refusal < limits::RETRY_MS {
            soon(&mut desk, "run_podsandbox #1", refusal);
        }
    }
}

#[test]
fn a_name_after_one_that_stays_taken_has_all_its_tries() {
    let taken = "name \"x\" is reserved for \"y\"";
    let mut desk = Desk::new();
    desk.manifests(&[&pod(MAIN)]);
    for _ in 0..limits::NAME_TAKEN_MAX {
        desk.refuses("run_podsandbox #0", Code::Unknown, taken);
        desk.pass(limits::RETRY_MS * 3 / 2);
    }
    desk.refuses("run_podsandbox #1", Code::Unknown, taken);
    desk.pass(limits::RETRY_MS * 3 / 2);
    assert_eq!(desk.asked_for(), ["run_podsandbox #1"]);
}

#[test]
fn a_sandbox_that_lasted_for_one_start_is_forgiven_its_end_again() {
    let mut desk = Desk::with_stream(true);
    desk.manifests(&[&pod(MAIN)]);
    desk.does_all(START);
    for (sandbox, made, next) in [(0, "c3", 1), (1, "c6", 2)] {
        let began = desk.now.boot;
        desk.exits("m", 137);
        desk.works_until(&format!("start_container {made}"));
        let seen = desk.containers.iter_mut().find(|seen| &*seen.id.0 == made).expect("made");
        seen.state = ContainerState::Exited;
        desk.exit_codes.push((made.into(), 128));
        desk.sandboxes.iter_mut().for_each(|it| it.ready = false);
        let start = format!("start_container {made}");
        desk.refuses(&start, Code::Unknown, "sandbox container is not running");
        desk.pass(1_000);
        desk.works_until(&format!("run_podsandbox #{next}"));
        desk.works();
        let waited_ms = desk.now.boot.since_ms(began);
        assert_eq!(desk.running(), ["m"], "sandbox {sandbox}");
        assert!(waited_ms < limits::BACKOFF_MIN_MS, "sandbox {sandbox}: {waited_ms} ms");
        desk.pass(limits::BACKOFF_CALM_MS + 1_000);
        desk.works();
    }
    assert_eq!(desk.running(), ["m"]);
}

#[test]
fn a_shorter_grace_period_gives_up_every_stop_that_was_given_more() {
    let mut desk = Desk::new();
    let two = r#""containers":[{"name":"m","image":"i:1"},{"name":"n","image":"i:1"}]"#;
    let deleted = |grace: u32| {
        format!(
            r#"{{"metadata":{{"name":"p","uid":"u1","deletionTimestamp":"2027-01-01T00:00:00Z",
                "deletionGracePeriodSeconds":{grace}}},"spec":{{{two}}}}}"#
        )
    };
    desk.manifests(&[&pod(two)]);
    desk.works();
    desk.manifests(&[&deleted(60)]);
    assert_eq!(desk.asked_for(), ["stop_container c3 60", "stop_container c2 60"]);
    desk.manifests(&[&deleted(5)]);
    assert_eq!(desk.cancelled.len(), 2);
    let mut asked = desk.asked_for();
    asked.sort();
    assert_eq!(asked, ["stop_container c2 5", "stop_container c3 5"]);
}

#[test]
fn each_try_to_make_a_container_gets_files_of_its_own() {
    let mut desk = Desk::new();
    desk.manifests(&[&pod(MAIN)]);
    desk.does_all(&START[..3]);
    let is_it: fn(&JobSpec) -> bool = |spec| matches!(spec, JobSpec::MakeContainerFiles(_));
    assert_eq!(jobs(&desk, is_it), 1);
    desk.refuses("create_container m#0", Code::Unknown, "no");
    desk.pass(limits::RETRY_MS * 3 / 2);
    desk.works_until("create_container m#0");
    assert_eq!(jobs(&desk, is_it), 2);
}
