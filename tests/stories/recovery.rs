//! Failures, and the state after a restart.

use crate::harness::{Harness, MAIN, START, UID, container, pod, sandbox};
use edged::agent::event::{CallId, Event};
use edged::limits::{self, STREAM_FAILURES_MAX, STREAM_RETRY_MS, STREAM_TRUSTED_MS};
use edged::model::cri::{CallError, Code, ContainerState, Lost, Request};
use edged::model::error::Refusal;
use edged::model::manifest::{File, Folder};
use edged::model::pod::Pod;

#[test]
fn an_agent_that_restarts_only_looks() {
    let mut harness = Harness::new();
    harness.sandboxes.push(sandbox("s1", 0, true));
    harness.containers.push(container("c1", "m", ContainerState::Running));
    harness.manifests(&[&pod(MAIN)]);
    harness.does_all(&["podsandbox_status s1", "container_status c1"]);
    harness.pass(60_000);
    assert_eq!(harness.trace, ["podsandbox_status s1", "container_status c1"]);
    assert_eq!(harness.events, [] as [&str; 0]);
    assert_eq!(harness.status()["phase"], "Running");
}

#[test]
fn nothing_is_killed_as_unknown_before_the_folder_was_read() {
    let mut harness = Harness::new();
    harness.sandboxes.push(sandbox("s1", 0, true));
    harness.containers.push(container("c1", "m", ContainerState::Running));
    harness.pass(60_000);
    assert_eq!(harness.trace, [] as [&str; 0]);
    harness.manifests(&[]);
    assert_eq!(harness.open_calls(), ["stop_container c1 2"]);
}

#[test]
fn pods_of_the_folder_are_nobodys_orphans_while_a_manifest_is_broken() {
    let mut harness = Harness::new();
    harness.sandboxes.push(sandbox("s1", 0, true));
    harness.containers.push(container("c1", "m", ContainerState::Running));
    harness.broken_manifest();
    harness.pass(60_000);
    assert_eq!(harness.trace, [] as [&str; 0]);
    harness.manifests(&[&pod(MAIN)]);
    harness.does_all(&["podsandbox_status s1", "container_status c1"]);
    assert_eq!(harness.running(), ["m"]);
}

#[test]
fn an_orphan_that_is_wanted_again_is_a_pod_of_its_source() {
    let mut harness = Harness::new();
    harness.sandboxes.push(sandbox("s1", 0, true));
    harness.containers.push(container("c1", "m", ContainerState::Running));
    harness.manifests(&[]);
    harness.manifests(&[&pod(MAIN)]);
    let end = ["stop_container c1 2", "stop_podsandbox s1", "container_status c1"];
    harness.does_all(&end);
    harness.does_all(&["remove_container c1", "remove_podsandbox s1"]);
    harness.pass(100);
    harness.does_all(START);
    assert_eq!(harness.status()["phase"], "Running");
}

#[test]
fn a_pod_waits_for_one_of_its_name_that_no_manifest_tells_of() {
    let mut harness = Harness::new();
    harness.sandboxes.push(sandbox("s1", 0, true));
    harness.containers.push(container("c1", "m", ContainerState::Running));
    harness.broken_manifest();
    harness.pass(5_000);
    let refusal = Refusal { line: 1, column: 1, why: "bad".to_owned() };
    let other = pod(MAIN).replace(UID, "another");
    let content = vec![serde_json::from_str::<Pod>(&other).expect("a pod")].into();
    let files = vec![
        File { path: "/m/0".into(), changed_ns: 0, content: Err(refusal) },
        File { path: "/m/1".into(), changed_ns: 0, content: Ok(content) },
    ];
    let mut running = sandbox("s1", 0, true);
    running.pod.as_mut().expect("ours").name = "p-gw".into();
    harness.sandboxes[0] = running;
    harness.containers[0].pod.as_mut().expect("ours").name = "p-gw".into();
    harness.pass(2_000);
    harness.deliver(Event::Manifests(Folder { trouble: None, files }));
    assert!(
        !harness.open_calls().contains(&"run_podsandbox #0".to_owned()),
        "{:?}",
        harness.open_calls()
    );
    assert_eq!(harness.open_calls(), ["stop_container c1 2"]);
}

#[test]
fn what_carries_no_kubelet_labels_is_left_alone() {
    let mut harness = Harness::new();
    let mut foreign = sandbox("s9", 0, true);
    foreign.pod = None;
    harness.sandboxes.push(foreign);
    let mut alien = container("c9", "m", ContainerState::Running);
    alien.pod = None;
    harness.containers.push(alien);
    harness.manifests(&[]);
    harness.pass(60_000);
    assert_eq!(harness.trace, [] as [&str; 0]);
}

#[test]
fn a_dead_sandbox_takes_its_containers_along_and_init_runs_again() {
    let mut harness = Harness::new();
    harness.sandboxes.push(sandbox("s0", 0, false));
    for (id, name, state) in
        [("x1", "m", ContainerState::Running), ("x2", "i", ContainerState::Exited)]
    {
        let mut found = container(id, name, state);
        found.sandbox.0 = "s0".into();
        harness.containers.push(found);
    }
    let spec = format!(r#""initContainers":[{{"name":"i","image":"i:2"}}],{MAIN}"#);
    harness.manifests(&[&pod(&spec)]);
    harness.does_all(&[
        "container_status x2",
        "container_status x1",
        "stop_container x1 30",
        "container_status x1",
        "stop_podsandbox s0",
        "remove_container x2",
        "run_podsandbox #1",
        "podsandbox_status s1",
        "image_status i:2",
        "create_container i#1",
    ]);
    assert!(harness.events.iter().any(|event| event.starts_with("SandboxChanged")));
    assert_eq!(harness.agent.metrics().restarted_pods, [0, 0], "the pod is the same");
}

#[test]
fn after_a_lost_answer_the_pod_is_looked_at_before_anything_else() {
    let mut harness = Harness::new();
    harness.manifests(&[&pod(MAIN)]);
    harness.does_all(&["run_podsandbox #0", "podsandbox_status s1", "image_status i:1"]);
    // The runtime creates the container, and the answer is lost.
    let (call, request) = harness.take("create_container m#0");
    harness.perform(&request);
    harness.deliver(Event::Cri(call, Err(CallError::Lost(Lost::Deadline))));
    harness.pass(20_000);
    assert_eq!(harness.open_calls(), ["start_container c2"], "it is found, and not made twice");
}

#[test]
fn a_list_begun_before_the_last_call_ended_is_not_believed() {
    let mut harness = Harness::new();
    harness.manifests(&[&pod(MAIN)]);
    // While the sandbox is being made, lists are begun and answered without it.
    harness.pass(3_000);
    harness.does_all(&["run_podsandbox #0", "podsandbox_status s1", "image_status i:1"]);
    let runs = harness.trace.iter().filter(|call| call.starts_with("run_podsandbox")).count();
    assert_eq!(runs, 1);
}

#[test]
fn an_answer_older_than_a_look_brings_no_container_back_to_life() {
    let mut harness = Harness::new();
    harness.sandboxes.push(sandbox("s1", 0, true));
    harness.containers.push(container("c1", "m", ContainerState::Running));
    harness.manifests(&[&pod(MAIN)]);
    harness.does("podsandbox_status s1");
    // The answer is overtaken by a relist that finds the container ended.
    let (call, request) = harness.take("container_status c1");
    let old = harness.perform(&request);
    harness.exits("m", 1);
    harness.deliver(Event::Cri(call, Ok(old)));
    let reported = harness.status()["containerStatuses"][0].clone();
    assert!(reported["state"]["running"].is_null() && reported["ready"] == false, "{reported}");
    harness.pass(1_000);
    harness.does("container_status c1");
    let reported = harness.status()["containerStatuses"][0].clone();
    assert_eq!(reported["state"]["terminated"]["exitCode"], 1, "{reported}");
}

#[test]
fn an_answer_older_than_a_look_brings_no_sandbox_back_to_life() {
    let mut harness = Harness::new();
    harness.sandboxes.push(sandbox("s1", 0, true));
    harness.manifests(&[&pod(MAIN)]);
    let (call, request) = harness.take("podsandbox_status s1");
    let old = harness.perform(&request);
    harness.sandboxes[0].ready = false;
    harness.pass(1_000);
    harness.deliver(Event::Cri(call, Ok(old)));
    harness.pass(1_000);
    assert_eq!(harness.open_calls(), ["stop_podsandbox s1"]);
}

#[test]
fn a_refused_sandbox_is_tried_again_after_ten_seconds() {
    let mut harness = Harness::new();
    harness.manifests(&[&pod(MAIN)]);
    harness.refuses("run_podsandbox #0", Code::Unknown, "no network");
    harness.pass(9_000);
    assert_eq!(harness.open_calls(), [] as [&str; 0]);
    harness.pass(7_000);
    assert_eq!(harness.open_calls(), ["run_podsandbox #0"]);
    assert!(
        harness.events.iter().any(|e| e.starts_with("FailedCreatePodSandBox Failed to create"))
    );
}

#[test]
fn a_name_that_stays_taken_is_left_to_its_holder() {
    let mut harness = Harness::new();
    harness.manifests(&[&pod(MAIN)]);
    for refusal in 1..=limits::NAME_TAKEN_MAX {
        let soon_at = harness.now.boot.plus_ms(limits::RETRY_TAKEN_MS << refusal);
        harness.refuses("run_podsandbox #0", Code::Unknown, "name \"x\" is reserved for \"y\"");
        let wait_ms = soon_at.since_ms(harness.now.boot);
        if wait_ms < limits::RETRY_MS {
            harness.pass(wait_ms - 1);
            assert_eq!(harness.open_calls(), [] as [&str; 0], "refusal {refusal}");
            harness.pass(1);
        } else {
            // Any failed step is tried again by then.
            harness.pass(wait_ms);
        }
    }
    assert_eq!(harness.open_calls(), ["run_podsandbox #1"]);
}

#[test]
fn a_failing_pull_backs_off_and_says_why() {
    let mut harness = Harness::new();
    harness.images.clear();
    harness.manifests(&[&pod(MAIN)]);
    harness.does_all(&["run_podsandbox #0", "podsandbox_status s1", "image_status i:1"]);
    harness.refuses("pull_image i:1", Code::NotFound, "no such image");
    harness.does("image_status i:1");
    let waiting = harness.status()["containerStatuses"][0]["state"]["waiting"].clone();
    assert_eq!(waiting["reason"], "ImagePullBackOff");
    let message = waiting["message"].as_str().expect("a message");
    assert!(message.starts_with("Back-off pulling image \"i:1\": ErrImagePull: "), "{message}");
    harness.pass(9_000);
    assert_eq!(harness.open_calls(), [] as [&str; 0]);
    harness.pass(2_000);
    harness.does("image_status i:1");
    assert_eq!(harness.open_calls(), ["pull_image i:1"]);
}

#[test]
fn an_image_that_is_brought_in_by_hand_ends_the_back_off_of_its_pull() {
    let mut harness = Harness::new();
    harness.images.clear();
    harness.manifests(&[&pod(MAIN)]);
    harness.does_all(&["run_podsandbox #0", "podsandbox_status s1", "image_status i:1"]);
    let recheck_ms = limits::IMAGE_RECHECK_MS;
    for wait_ms in [1, 2, 4, 8].map(|times| times * limits::BACKOFF_MIN_MS) {
        harness.refuses("pull_image i:1", Code::Unknown, "no route");
        harness.does("image_status i:1");
        for _ in 0..wait_ms / recheck_ms {
            harness.pass(recheck_ms);
            harness.does("image_status i:1");
        }
        if wait_ms % recheck_ms > 0 {
            harness.pass(wait_ms % recheck_ms);
            harness.does("image_status i:1");
        }
    }
    harness.refuses("pull_image i:1", Code::Unknown, "no route");
    let relisting = harness.now.boot;
    harness.does("image_status i:1");
    harness.images = vec!["i:1"];
    harness.pass(relisting.plus_ms(recheck_ms - 1).since_ms(harness.now.boot));
    assert_eq!(harness.open_calls(), [] as [&str; 0]);
    harness.pass(1);
    harness.does_all(&["image_status i:1", "create_container m#0"]);
}

#[test]
fn a_runtime_that_goes_and_comes_back_is_looked_at_and_no_more() {
    let mut harness = Harness::new();
    harness.manifests(&[&pod(MAIN)]);
    harness.does_all(START);
    let before = harness.trace.len();
    harness.deliver(Event::RuntimeDown { cause: "connection refused".to_owned() });
    harness.pass(60_000);
    assert_eq!(harness.trace.len(), before, "nothing is requested from a missing runtime");
    harness.deliver(Event::RuntimeUp);
    harness.pass(5_000);
    assert_eq!(harness.trace.len(), before, "and nothing was wrong when it came back");
}

#[test]
fn where_the_runtime_tells_of_changes_lists_become_rare() {
    let mut harness = Harness::with_stream(true);
    harness.manifests(&[&pod(MAIN)]);
    harness.does_all(START);
    harness.pass(10_000);
    let lists = |harness: &Harness| harness.agent.metrics().operations["list_containers"].total;
    let before = lists(&harness);
    harness.pass(2 * limits::RELIST_EVENTED_MS);
    assert_eq!(lists(&harness) - before, 2);
    // A hint triggers a relist at once.
    harness.containers[0].state = ContainerState::Exited;
    let stream = harness.open.iter().find(|(_, r)| *r == Request::GetContainerEvents);
    let call = stream.map(|(call, _)| *call).expect("the stream is open");
    harness.deliver(Event::Changed(call));
    assert_eq!(harness.open_calls(), ["container_status c2"]);
}

/// The event stream that is open.
fn stream(harness: &Harness) -> Option<CallId> {
    let open = harness.open.iter().find(|(_, request)| *request == Request::GetContainerEvents);
    open.map(|(call, _)| *call)
}

/// It ends.
#[track_caller]
fn end_stream(harness: &mut Harness) {
    let call = stream(harness).expect("the stream is open");
    harness.open.retain(|(open, _)| *open != call);
    harness.deliver(Event::Cri(call, Err(CallError::Lost(Lost::Connection))));
}

#[test]
fn an_event_stream_that_lived_may_end_as_often_as_it_likes() {
    let mut harness = Harness::with_stream(true);
    for _ in 0..2 * STREAM_FAILURES_MAX {
        harness.pass(STREAM_TRUSTED_MS);
        end_stream(&mut harness);
        harness.pass(STREAM_RETRY_MS - 500);
        assert_eq!(stream(&harness), None, "not without a pause");
        harness.pass(500);
    }
    assert!(stream(&harness).is_some());
}

#[test]
fn an_event_stream_that_never_lives_is_given_up_until_the_runtime_is_another() {
    let mut harness = Harness::with_stream(true);
    for life in 0..2 {
        for _ in 0..STREAM_FAILURES_MAX {
            end_stream(&mut harness);
            harness.pass(STREAM_RETRY_MS);
        }
        assert_eq!(stream(&harness), None, "in life {life}");
        harness.pass(60_000);
        assert_eq!(stream(&harness), None, "in life {life}");
        harness.deliver(Event::RuntimeDown { cause: "connection refused".to_owned() });
        harness.deliver(Event::RuntimeUp);
        assert!(stream(&harness).is_some(), "in life {life}");
    }
}

#[test]
fn a_hint_that_comes_in_the_middle_of_a_change_is_followed_after_it() {
    let mut harness = Harness::with_stream(true);
    let two = r#""containers":[{"name":"a","image":"i:1"},{"name":"b","image":"i:2"}]"#;
    harness.manifests(&[&pod(two)]);
    harness.pass(10_000);
    harness.does_all(&["run_podsandbox #0", "podsandbox_status s1", "image_status i:1"]);
    harness.does_all(&["create_container a#0", "start_container c2"]);
    harness.does_all(&["container_status c2", "image_status i:2"]);
    let (call, request) = harness.take("create_container b#0");
    // The first ends, and the runtime says so, while the second is being made.
    harness.containers[0].state = ContainerState::Exited;
    let stream = harness.open.iter().find(|(_, r)| *r == Request::GetContainerEvents);
    let hint = stream.map(|(call, _)| *call).expect("the stream is open");
    harness.deliver(Event::Changed(hint));
    harness.pass(200);
    let reply = harness.perform(&request);
    harness.deliver(Event::Cri(call, Ok(reply)));
    harness.does_all(&["start_container c3", "container_status c3"]);
    harness.pass(1_000);
    assert_eq!(harness.open_calls(), ["container_status c2"]);
}

#[test]
fn a_second_pod_on_a_host_port_fails() {
    let mut harness = Harness::new();
    let on_port = |name: &str, uid: &str| {
        format!(
            r#"{{"metadata":{{"name":"{name}","uid":"{uid}"}},"spec":{{"containers":[{{"name":"m",
                "image":"i:1","ports":[{{"containerPort":80,"hostPort":8080}}]}}]}}}}"#
        )
    };
    harness.manifests(&[&on_port("a", "u1"), &on_port("b", "u2")]);
    harness.pass(100);
    let failed: Vec<_> =
        harness.agent.pods().filter(|pod| pod.status.reason == "NodePorts").collect();
    assert_eq!(failed.len(), 1);
    assert_eq!(failed[0].metadata.name, "b-gw");
    // The kubelet reports reason and message of a pod it never admitted, and no containers: one
    // that never existed must not be called lost.
    assert_eq!(failed[0].status.container_statuses, []);
}

#[test]
fn of_a_crashing_init_container_one_dead_instance_is_kept() {
    let mut harness = Harness::new();
    for attempt in 0..3 {
        let mut dead = container(&format!("x{attempt}"), "i", ContainerState::Exited);
        dead.attempt = attempt;
        harness.exit_codes.push((dead.id.0.clone(), 1));
        harness.containers.push(dead);
    }
    harness.sandboxes.push(sandbox("s1", 0, true));
    let spec = format!(r#""initContainers":[{{"name":"i","image":"i:1"}}],{MAIN}"#);
    harness.manifests(&[&pod(&spec)]);
    harness.does_all(&[
        "podsandbox_status s1",
        "container_status x2",
        "container_status x1",
        "image_status i:1",
        "remove_container x1",
        "container_status x0",
        "remove_container x0",
        "create_container i#3",
        "start_container c1",
        "container_status c1",
    ]);
}

#[test]
fn a_replaced_pod_ends_even_while_another_manifest_is_broken() {
    use edged::model::error::Refusal;
    use edged::model::manifest::{File, Folder};
    use edged::model::pod::Pod;
    let mut harness = Harness::new();
    harness.sandboxes.push(sandbox("s1", 0, true));
    harness.containers.push(container("c1", "m", ContainerState::Running));
    let newer = format!(r#"{{"metadata":{{"name":"p","uid":"u2"}},"spec":{{{MAIN}}}}}"#);
    let pods: Vec<Pod> = vec![serde_json::from_str(&newer).expect("a pod")];
    let good = Ok(pods.into());
    let refusal = Refusal { line: 1, column: 1, why: "bad".to_owned() };
    let files = vec![
        File { path: "/m/0".into(), changed_ns: 0, content: good },
        File { path: "/m/1".into(), changed_ns: 0, content: Err(refusal) },
    ];
    harness.deliver(Event::Manifests(Folder { trouble: None, files }));
    assert_eq!(harness.open_calls(), ["stop_container c1 2"], "and nothing starts beside it");
    harness.does_all(&["stop_container c1 2", "stop_podsandbox s1", "container_status c1"]);
    assert!(
        harness.open_calls().contains(&"run_podsandbox #0".to_owned()),
        "{:?}",
        harness.open_calls()
    );
}

#[test]
fn logs_that_cannot_be_removed_are_tried_again_at_leisure() {
    let mut harness = Harness::new();
    harness.read_only = true;
    for attempt in 0..3 {
        let mut dead = container(&format!("x{attempt}"), "m", ContainerState::Exited);
        dead.attempt = attempt;
        harness.containers.push(dead);
    }
    harness.sandboxes.push(sandbox("s1", 0, true));
    harness.manifests(&[&pod(MAIN)]);
    harness.does_all(&["podsandbox_status s1", "container_status x2", "container_status x1"]);
    harness.does_all(&["image_status i:1", "create_container m#3", "start_container c1"]);
    harness.does("container_status c1");
    let before = harness.jobs;
    harness.pass(60_000);
    assert!(
        (1..=7).contains(&(harness.jobs - before)),
        "{} jobs in a minute",
        harness.jobs - before
    );
    // The same where the pod ends.
    harness.manifests(&[]);
    harness.does_all(&["stop_container c1 30", "stop_podsandbox s1", "container_status c1"]);
    let before = harness.jobs;
    harness.pass(60_000);
    assert!(
        (1..=21).contains(&(harness.jobs - before)),
        "{} jobs in a minute",
        harness.jobs - before
    );
}

#[test]
fn a_container_that_was_made_and_never_started_makes_room_for_its_successor() {
    let mut harness = Harness::new();
    harness.sandboxes.push(sandbox("s1", 0, true));
    let mut made = container("x0", "m", ContainerState::Created);
    made.image = "i:0".into();
    harness.containers.push(made);
    harness.manifests(&[&pod(MAIN)]);
    // Its start may be under way still, and take effect after all.
    harness.does_all(&["podsandbox_status s1", "remove_container x0", "image_status i:1"]);
    harness.does("create_container m#1");
}

#[test]
fn without_pods_status_and_look_share_a_wake_every_ten_seconds() {
    let mut harness = Harness::new();
    harness.manifests(&[]);
    harness.pass(30_000);
    let end = harness.now.boot.plus_ms(6 * limits::RELIST_IDLE_MS);
    let mut wakes = 0;
    while let Some(at) = harness.agent.wake_at().filter(|&at| at <= end) {
        harness.pass(at.since_ms(harness.now.boot));
        wakes += 1;
    }
    assert_eq!(wakes, 6);
    // With the first pod everything is relisted as often as ever.
    harness.manifests(&[&pod(MAIN)]);
    harness.pass(1_000);
    assert!(harness.agent.wake_at().is_some_and(|at| at.since_ms(harness.now.boot) <= 1_000));
}

#[test]
fn a_container_is_known_by_the_image_that_it_was_asked_for_with() {
    let mut harness = Harness::new();
    harness.manifests(&[&pod(MAIN)]);
    harness.does_all(&["run_podsandbox #0", "podsandbox_status s1", "image_status i:1"]);
    assert_eq!(harness.open_calls(), ["create_container m#0"]);
    let (call, request) = harness.take("create_container m#0");
    let made = harness.perform(&request);
    harness.manifests(&[&pod(&MAIN.replace("i:1", "i:2"))]);
    harness.deliver(Event::Cri(call, Ok(made)));
    // It has the old image: to start it would mean to stop it again.
    assert_eq!(harness.open_calls(), ["remove_container c2"]);
}

#[test]
fn a_runtime_that_lost_all_goes_on_counting_behind_the_logs() {
    let mut harness = Harness::new();
    harness.newest_log = Some(6);
    harness.manifests(&[&pod(MAIN)]);
    harness.does_all(&["run_podsandbox #0", "podsandbox_status s1", "image_status i:1"]);
    assert_eq!(harness.open_calls(), ["create_container m#7"]);
    harness.does_all(&["create_container m#7", "start_container c2"]);
    assert_eq!(harness.status()["containerStatuses"][0]["restartCount"], 7);
}

/// A pod whose container has ended, and whose next start is refused because the runtime is stopping
/// the sandbox. The story decides what the relist then shows.
fn refused_in_an_ending_sandbox(harness: &mut Harness) {
    harness.manifests(&[&pod(MAIN)]);
    harness.does_all(START);
    harness.exits("m", 137);
    harness.does_all(&["container_status c2", "image_status i:1", "create_container m#1"]);
    harness.containers[1].state = ContainerState::Exited;
    harness.exit_codes.push(("c3".into(), 128));
}

#[test]
fn a_start_that_is_refused_in_a_sandbox_that_ends_counts_for_nothing() {
    let mut harness = Harness::with_stream(true);
    refused_in_an_ending_sandbox(&mut harness);
    harness.sandboxes[0].ready = false;
    let began = harness.now.boot;
    harness.refuses("start_container c3", Code::Unknown, "sandbox container is not running");
    harness.pass(1_000);
    harness.does_all(&[
        "container_status c3",
        "stop_podsandbox s1",
        "remove_container c3",
        "run_podsandbox #1",
        "podsandbox_status s4",
        "image_status i:1",
        "create_container m#1",
        "start_container c5",
        "container_status c5",
    ]);
    assert!(harness.now.boot.since_ms(began) < 10_000, "nothing was waited for");
    let status = harness.status();
    assert_eq!(status["containerStatuses"][0]["restartCount"], 1, "{status}");
    assert_eq!(status["containerStatuses"][0]["lastState"]["terminated"]["exitCode"], 137);
}

#[test]
fn a_start_that_is_refused_in_a_sandbox_that_stays_is_put_off_and_counts() {
    let mut harness = Harness::with_stream(true);
    refused_in_an_ending_sandbox(&mut harness);
    harness.refuses("start_container c3", Code::Unknown, "no such program");
    harness.pass(5_000);
    harness.does_all(&["container_status c3", "remove_container c2"]);
    assert_eq!(harness.open_calls(), [] as [&str; 0]);
    let status = harness.status();
    assert_eq!(status["containerStatuses"][0]["restartCount"], 1, "{status}");
    harness.pass(20_000);
    harness.does_all(&["image_status i:1", "create_container m#2"]);
}

#[test]
fn sandboxes_that_never_last_are_forgiven_once() {
    let mut harness = Harness::with_stream(true);
    refused_in_an_ending_sandbox(&mut harness);
    harness.sandboxes[0].ready = false;
    harness.refuses("start_container c3", Code::Unknown, "sandbox container is not running");
    harness.pass(1_000);
    harness.does_all(&[
        "container_status c3",
        "stop_podsandbox s1",
        "remove_container c3",
        "run_podsandbox #1",
        "podsandbox_status s4",
        "image_status i:1",
        "create_container m#1",
    ]);
    harness.sandboxes[1].ready = false;
    harness.refuses("start_container c5", Code::Unknown, "sandbox container is not running");
    harness.pass(1_000);
    harness.does_all(&["stop_podsandbox s4", "run_podsandbox #2", "podsandbox_status s6"]);
    assert_eq!(harness.open_calls(), [] as [&str; 0], "the container waits");
}
