//! What goes wrong, and what is found after a restart.

use crate::desk::{Desk, MAIN, START, UID, container, pod, sandbox};
use edged::agent::event::{CallId, Event};
use edged::limits::{self, STREAM_FAILURES_MAX, STREAM_RETRY_MS, STREAM_TRUSTED_MS};
use edged::model::cri::{CallError, Code, ContainerState, Lost, Request};
use edged::model::manifest::{File, Folder, Refusal};
use edged::model::pod::Pod;

#[test]
fn an_agent_that_restarts_only_looks() {
    let mut desk = Desk::new();
    desk.sandboxes.push(sandbox("s1", 0, true));
    desk.containers.push(container("c1", "m", ContainerState::Running));
    desk.manifests(&[&pod(MAIN)]);
    desk.does_all(&["podsandbox_status s1", "container_status c1"]);
    desk.pass(60_000);
    assert_eq!(desk.trace, ["podsandbox_status s1", "container_status c1"]);
    assert_eq!(desk.events, [] as [&str; 0]);
    assert_eq!(desk.status()["phase"], "Running");
}

#[test]
fn nothing_is_killed_as_unknown_before_the_folder_was_read() {
    let mut desk = Desk::new();
    desk.sandboxes.push(sandbox("s1", 0, true));
    desk.containers.push(container("c1", "m", ContainerState::Running));
    desk.pass(60_000);
    assert_eq!(desk.trace, [] as [&str; 0]);
    desk.manifests(&[]);
    assert_eq!(desk.asked_for(), ["stop_container c1 2"]);
}

#[test]
fn pods_of_the_folder_are_nobodys_orphans_while_a_manifest_is_broken() {
    let mut desk = Desk::new();
    desk.sandboxes.push(sandbox("s1", 0, true));
    desk.containers.push(container("c1", "m", ContainerState::Running));
    desk.broken_manifest();
    desk.pass(60_000);
    assert_eq!(desk.trace, [] as [&str; 0]);
    desk.manifests(&[&pod(MAIN)]);
    desk.does_all(&["podsandbox_status s1", "container_status c1"]);
    assert_eq!(desk.running(), ["m"]);
}

#[test]
fn an_orphan_that_is_wanted_again_is_a_pod_of_its_source() {
    let mut desk = Desk::new();
    desk.sandboxes.push(sandbox("s1", 0, true));
    desk.containers.push(container("c1", "m", ContainerState::Running));
    desk.manifests(&[]);
    desk.manifests(&[&pod(MAIN)]);
    let end = ["stop_container c1 2", "stop_podsandbox s1", "container_status c1"];
    desk.does_all(&end);
    desk.does_all(&["remove_container c1", "remove_podsandbox s1"]);
    desk.pass(100);
    desk.does_all(START);
    assert_eq!(desk.status()["phase"], "Running");
}

#[test]
fn a_pod_waits_for_one_of_its_name_that_no_manifest_tells_of() {
    let mut desk = Desk::new();
    desk.sandboxes.push(sandbox("s1", 0, true));
    desk.containers.push(container("c1", "m", ContainerState::Running));
    desk.broken_manifest();
    desk.pass(5_000);
    let refusal = Refusal { line: 1, column: 1, why: "bad".to_owned() };
    let other = pod(MAIN).replace(UID, "another");
    let content = vec![serde_json::from_str::<Pod>(&other).expect("a pod")].into();
    let files = vec![
        File { path: "/m/0".into(), changed_ns: 0, content: Err(refusal) },
        File { path: "/m/1".into(), changed_ns: 0, content: Ok(content) },
    ];
    let mut running = sandbox("s1", 0, true);
    running.pod.as_mut().expect("ours").name = "p-gw".into();
    desk.sandboxes[0] = running;
    desk.containers[0].pod.as_mut().expect("ours").name = "p-gw".into();
    desk.pass(2_000);
    desk.tell(Event::Manifests(Folder { trouble: None, files }));
    assert!(!desk.asked_for().contains(&"run_podsandbox #0".to_owned()), "{:?}", desk.asked_for());
    assert_eq!(desk.asked_for(), ["stop_container c1 2"]);
}

#[test]
fn what_carries_no_kubelet_labels_is_left_alone() {
    let mut desk = Desk::new();
    let mut foreign = sandbox("s9", 0, true);
    foreign.pod = None;
    desk.sandboxes.push(foreign);
    let mut alien = container("c9", "m", ContainerState::Running);
    alien.pod = None;
    desk.containers.push(alien);
    desk.manifests(&[]);
    desk.pass(60_000);
    assert_eq!(desk.trace, [] as [&str; 0]);
}

#[test]
fn a_dead_sandbox_takes_its_containers_along_and_init_runs_again() {
    let mut desk = Desk::new();
    desk.sandboxes.push(sandbox("s0", 0, false));
    for (id, name, state) in
        [("x1", "m", ContainerState::Running), ("x2", "i", ContainerState::Exited)]
    {
        let mut found = container(id, name, state);
        found.sandbox.0 = "s0".into();
        desk.containers.push(found);
    }
    let spec = format!(r#""initContainers":[{{"name":"i","image":"i:2"}}],{MAIN}"#);
    desk.manifests(&[&pod(&spec)]);
    desk.does_all(&[
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
    assert!(desk.events.iter().any(|event| event.starts_with("SandboxChanged")));
    assert_eq!(desk.agent.metrics().restarted_pods, [0, 0], "the pod is the same");
}

#[test]
fn after_a_lost_answer_the_pod_is_looked_at_before_anything_else() {
    let mut desk = Desk::new();
    desk.manifests(&[&pod(MAIN)]);
    desk.does_all(&["run_podsandbox #0", "podsandbox_status s1", "image_status i:1"]);
    // The runtime makes the container, and the answer is lost.
    let (call, request) = desk.take("create_container m#0");
    desk.perform(&request);
    desk.tell(Event::Cri(call, Err(CallError::Lost(Lost::Deadline))));
    desk.pass(20_000);
    assert_eq!(desk.asked_for(), ["start_container c2"], "it is found, and not made twice");
}

#[test]
fn a_list_begun_before_the_last_call_ended_is_not_believed() {
    let mut desk = Desk::new();
    desk.manifests(&[&pod(MAIN)]);
    // While the sandbox is being made, lists are begun and answered without it.
    desk.pass(3_000);
    desk.does_all(&["run_podsandbox #0", "podsandbox_status s1", "image_status i:1"]);
    let runs = desk.trace.iter().filter(|call| call.starts_with("run_podsandbox")).count();
    assert_eq!(runs, 1);
}

#[test]
fn an_answer_older_than_a_look_brings_no_container_back_to_life() {
    let mut desk = Desk::new();
    desk.sandboxes.push(sandbox("s1", 0, true));
    desk.containers.push(container("c1", "m", ContainerState::Running));
    desk.manifests(&[&pod(MAIN)]);
    desk.does("podsandbox_status s1");
    // On its way the answer is overtaken by a look that finds the container ended.
    let (call, request) = desk.take("container_status c1");
    let old = desk.perform(&request);
    desk.exits("m", 1);
    desk.tell(Event::Cri(call, Ok(old)));
    let told = desk.status()["containerStatuses"][0].clone();
    assert!(told["state"]["running"].is_null() && told["ready"] == false, "{told}");
    desk.pass(1_000);
    desk.does("container_status c1");
    let told = desk.status()["containerStatuses"][0].clone();
    assert_eq!(told["state"]["terminated"]["exitCode"], 1, "{told}");
}

#[test]
fn an_answer_older_than_a_look_brings_no_sandbox_back_to_life() {
    let mut desk = Desk::new();
    desk.sandboxes.push(sandbox("s1", 0, true));
    desk.manifests(&[&pod(MAIN)]);
    let (call, request) = desk.take("podsandbox_status s1");
    let old = desk.perform(&request);
    desk.sandboxes[0].ready = false;
    desk.pass(1_000);
    desk.tell(Event::Cri(call, Ok(old)));
    desk.pass(1_000);
    assert_eq!(desk.asked_for(), ["stop_podsandbox s1"]);
}

#[test]
fn a_refused_sandbox_is_tried_again_after_ten_seconds() {
    let mut desk = Desk::new();
    desk.manifests(&[&pod(MAIN)]);
    desk.refuses("run_podsandbox #0", Code::Unknown, "no network");
    desk.pass(9_000);
    assert_eq!(desk.asked_for(), [] as [&str; 0]);
    desk.pass(7_000);
    assert_eq!(desk.asked_for(), ["run_podsandbox #0"]);
    assert!(desk.events.iter().any(|e| e.starts_with("FailedCreatePodSandBox Failed to create")));
}

#[test]
fn a_name_that_stays_taken_is_left_to_its_holder() {
    let mut desk = Desk::new();
    desk.manifests(&[&pod(MAIN)]);
    for refusal in 1..=limits::NAME_TAKEN_MAX {
        let soon_at = desk.now.boot.plus_ms(limits::RETRY_TAKEN_MS << refusal);
        desk.refuses("run_podsandbox #0", Code::Unknown, "name \"x\" is reserved for \"y\"");
        let wait_ms = soon_at.since_ms(desk.now.boot);
        if wait_ms < limits::RETRY_MS {
            desk.pass(wait_ms - 1);
            assert_eq!(desk.asked_for(), [] as [&str; 0], "refusal {refusal}");
            desk.pass(1);
        } else {
            // Any failed step is tried again by then.
            desk.pass(wait_ms);
        }
    }
    assert_eq!(desk.asked_for(), ["run_podsandbox #1"]);
}

#[test]
fn a_failing_pull_backs_off_and_says_why() {
    let mut desk = Desk::new();
    desk.images.clear();
    desk.manifests(&[&pod(MAIN)]);
    desk.does_all(&["run_podsandbox #0", "podsandbox_status s1", "image_status i:1"]);
    desk.refuses("pull_image i:1", Code::NotFound, "no such image");
    desk.does("image_status i:1");
    let waiting = desk.status()["containerStatuses"][0]["state"]["waiting"].clone();
    assert_eq!(waiting["reason"], "ImagePullBackOff");
    let message = waiting["message"].as_str().expect("a message");
    assert!(message.starts_with("Back-off pulling image \"i:1\": ErrImagePull: "), "{message}");
    desk.pass(9_000);
    assert_eq!(desk.asked_for(), [] as [&str; 0]);
    desk.pass(2_000);
    desk.does("image_status i:1");
    assert_eq!(desk.asked_for(), ["pull_image i:1"]);
}

#[test]
fn an_image_that_is_brought_in_by_hand_ends_the_back_off_of_its_pull() {
    let mut desk = Desk::new();
    desk.images.clear();
    desk.manifests(&[&pod(MAIN)]);
    desk.does_all(&["run_podsandbox #0", "podsandbox_status s1", "image_status i:1"]);
    let recheck_ms = limits::IMAGE_RECHECK_MS;
    for wait_ms in [1, 2, 4, 8].map(|times| times * limits::BACKOFF_MIN_MS) {
        desk.refuses("pull_image i:1", Code::Unknown, "no route");
        desk.does("image_status i:1");
        for _ in 0..wait_ms / recheck_ms {
            desk.pass(recheck_ms);
            desk.does("image_status i:1");
        }
        if wait_ms % recheck_ms > 0 {
            desk.pass(wait_ms % recheck_ms);
            desk.does("image_status i:1");
        }
    }
    desk.refuses("pull_image i:1", Code::Unknown, "no route");
    let looked_at = desk.now.boot;
    desk.does("image_status i:1");
    desk.images = vec!["i:1"];
    desk.pass(looked_at.plus_ms(recheck_ms - 1).since_ms(desk.now.boot));
    assert_eq!(desk.asked_for(), [] as [&str; 0]);
    desk.pass(1);
    desk.does_all(&["image_status i:1", "create_container m#0"]);
}

#[test]
fn a_runtime_that_goes_and_comes_back_is_looked_at_and_no_more() {
    let mut desk = Desk::new();
    desk.manifests(&[&pod(MAIN)]);
    desk.does_all(START);
    let before = desk.trace.len();
    desk.tell(Event::RuntimeDown { cause: "connection refused".to_owned() });
    desk.pass(60_000);
    assert_eq!(desk.trace.len(), before, "nothing is asked of a runtime that is not there");
    desk.tell(Event::RuntimeUp);
    desk.pass(5_000);
    assert_eq!(desk.trace.len(), before, "and nothing was wrong when it came back");
}

#[test]
fn where_the_runtime_tells_of_changes_lists_become_rare() {
    let mut desk = Desk::with_stream(true);
    desk.manifests(&[&pod(MAIN)]);
    desk.does_all(START);
    desk.pass(10_000);
    let lists = |desk: &Desk| desk.agent.metrics().operations["list_containers"].total;
    let before = lists(&desk);
    desk.pass(2 * limits::RELIST_EVENTED_MS);
    assert_eq!(lists(&desk) - before, 2);
    // A hint makes it look at once.
    desk.containers[0].state = ContainerState::Exited;
    let stream = desk.open.iter().find(|(_, r)| *r == Request::GetContainerEvents);
    let call = stream.map(|(call, _)| *call).expect("the stream is open");
    desk.tell(Event::Changed(call));
    assert_eq!(desk.asked_for(), ["container_status c2"]);
}

/// The event stream that is open.
fn stream(desk: &Desk) -> Option<CallId> {
    let open = desk.open.iter().find(|(_, request)| *request == Request::GetContainerEvents);
    open.map(|(call, _)| *call)
}

/// It ends.
#[track_caller]
fn end_stream(desk: &mut Desk) {
    let call = stream(desk).expect("the stream is open");
    desk.open.retain(|(open, _)| *open != call);
    desk.tell(Event::Cri(call, Err(CallError::Lost(Lost::Connection))));
}

#[test]
fn an_event_stream_that_lived_may_end_as_often_as_it_likes() {
    let mut desk = Desk::with_stream(true);
    for _ in 0..2 * STREAM_FAILURES_MAX {
        desk.pass(STREAM_TRUSTED_MS);
        end_stream(&mut desk);
        desk.pass(STREAM_RETRY_MS - 500);
        assert_eq!(stream(&desk), None, "not without a pause");
        desk.pass(500);
    }
    assert!(stream(&desk).is_some());
}

#[test]
fn an_event_stream_that_never_lives_is_given_up_until_the_runtime_is_another() {
    let mut desk = Desk::with_stream(true);
    for life in 0..2 {
        for _ in 0..STREAM_FAILURES_MAX {
            end_stream(&mut desk);
            desk.pass(STREAM_RETRY_MS);
        }
        assert_eq!(stream(&desk), None, "in life {life}");
        desk.pass(60_000);
        assert_eq!(stream(&desk), None, "in life {life}");
        desk.tell(Event::RuntimeDown { cause: "connection refused".to_owned() });
        desk.tell(Event::RuntimeUp);
        assert!(stream(&desk).is_some(), "in life {life}");
    }
}

#[test]
fn a_hint_that_comes_in_the_middle_of_a_change_is_followed_after_it() {
    let mut desk = Desk::with_stream(true);
    let two = r#""containers":[{"name":"a","image":"i:1"},{"name":"b","image":"i:2"}]"#;
    desk.manifests(&[&pod(two)]);
    desk.pass(10_000);
    desk.does_all(&["run_podsandbox #0", "podsandbox_status s1", "image_status i:1"]);
    desk.does_all(&["create_container a#0", "start_container c2"]);
    desk.does_all(&["container_status c2", "image_status i:2"]);
    let (call, request) = desk.take("create_container b#0");
    // The first ends, and the runtime says so, while the second is being made.
    desk.containers[0].state = ContainerState::Exited;
    let stream = desk.open.iter().find(|(_, r)| *r == Request::GetContainerEvents);
    let hint = stream.map(|(call, _)| *call).expect("the stream is open");
    desk.tell(Event::Changed(hint));
    desk.pass(200);
    let reply = desk.perform(&request);
    desk.tell(Event::Cri(call, Ok(reply)));
    desk.does_all(&["start_container c3", "container_status c3"]);
    desk.pass(1_000);
    assert_eq!(desk.asked_for(), ["container_status c2"]);
}

#[test]
fn a_second_pod_on_a_host_port_fails() {
    let mut desk = Desk::new();
    let on_port = |name: &str, uid: &str| {
        format!(
            r#"{{"metadata":{{"name":"{name}","uid":"{uid}"}},"spec":{{"containers":[{{"name":"m",
                "image":"i:1","ports":[{{"containerPort":80,"hostPort":8080}}]}}]}}}}"#
        )
    };
    desk.manifests(&[&on_port("a", "u1"), &on_port("b", "u2")]);
    desk.pass(100);
    let failed: Vec<_> = desk.agent.pods().filter(|pod| pod.status.reason == "NodePorts").collect();
    assert_eq!(failed.len(), 1);
    assert_eq!(failed[0].metadata.name, "b-gw");
    // The kubelet tells reason and message of a pod it never let in, and no containers: one that
    // never was must not be called lost.
    assert_eq!(failed[0].status.container_statuses, []);
}

#[test]
fn of_a_crashing_init_container_one_dead_instance_is_kept() {
    let mut desk = Desk::new();
    for attempt in 0..3 {
        let mut dead = container(&format!("x{attempt}"), "i", ContainerState::Exited);
        dead.attempt = attempt;
        desk.exit_codes.push((dead.id.0.clone(), 1));
        desk.containers.push(dead);
    }
    desk.sandboxes.push(sandbox("s1", 0, true));
    let spec = format!(r#""initContainers":[{{"name":"i","image":"i:1"}}],{MAIN}"#);
    desk.manifests(&[&pod(&spec)]);
    desk.does_all(&[
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
    use edged::model::manifest::{File, Folder, Refusal};
    use edged::model::pod::Pod;
    let mut desk = Desk::new();
    desk.sandboxes.push(sandbox("s1", 0, true));
    desk.containers.push(container("c1", "m", ContainerState::Running));
    let newer = format!(r#"{{"metadata":{{"name":"p","uid":"u2"}},"spec":{{{MAIN}}}}}"#);
    let pods: Vec<Pod> = vec![serde_json::from_str(&newer).expect("a pod")];
    let good = Ok(pods.into());
    let refusal = Refusal { line: 1, column: 1, why: "bad".to_owned() };
    let files = vec![
        File { path: "/m/0".into(), changed_ns: 0, content: good },
        File { path: "/m/1".into(), changed_ns: 0, content: Err(refusal) },
    ];
    desk.tell(Event::Manifests(Folder { trouble: None, files }));
    assert_eq!(desk.asked_for(), ["stop_container c1 2"], "and nothing starts beside it");
    desk.does_all(&["stop_container c1 2", "stop_podsandbox s1", "container_status c1"]);
    assert!(desk.asked_for().contains(&"run_podsandbox #0".to_owned()), "{:?}", desk.asked_for());
}

#[test]
fn logs_that_cannot_be_removed_are_tried_again_at_leisure() {
    let mut desk = Desk::new();
    desk.read_only = true;
    for attempt in 0..3 {
        let mut dead = container(&format!("x{attempt}"), "m", ContainerState::Exited);
        dead.attempt = attempt;
        desk.containers.push(dead);
    }
    desk.sandboxes.push(sandbox("s1", 0, true));
    desk.manifests(&[&pod(MAIN)]);
    desk.does_all(&["podsandbox_status s1", "container_status x2", "container_status x1"]);
    desk.does_all(&["image_status i:1", "create_container m#3", "start_container c1"]);
    desk.does("container_status c1");
    let before = desk.jobs;
    desk.pass(60_000);
    assert!((1..=7).contains(&(desk.jobs - before)), "{} jobs in a minute", desk.jobs - before);
    // The same where the pod ends.
    desk.manifests(&[]);
    desk.does_all(&["stop_container c1 30", "stop_podsandbox s1", "container_status c1"]);
    let before = desk.jobs;
    desk.pass(60_000);
    assert!((1..=21).contains(&(desk.jobs - before)), "{} jobs in a minute", desk.jobs - before);
}

#[test]
fn a_container_that_was_made_and_never_started_makes_room_for_its_successor() {
    let mut desk = Desk::new();
    desk.sandboxes.push(sandbox("s1", 0, true));
    let mut made = container("x0", "m", ContainerState::Created);
    made.image = "i:0".into();
    desk.containers.push(made);
    desk.manifests(&[&pod(MAIN)]);
    // Its start may be under way still, and take effect after all.
    desk.does_all(&["podsandbox_status s1", "remove_container x0", "image_status i:1"]);
    desk.does("create_container m#1");
}

#[test]
fn without_pods_status_and_look_share_a_wake_every_ten_seconds() {
    let mut desk = Desk::new();
    desk.manifests(&[]);
    desk.pass(30_000);
    let end = desk.now.boot.plus_ms(6 * limits::RELIST_IDLE_MS);
    let mut wakes = 0;
    while let Some(at) = desk.agent.wake_at().filter(|&at| at <= end) {
        desk.pass(at.since_ms(desk.now.boot));
        wakes += 1;
    }
    assert_eq!(wakes, 6);
    // With the first pod everything is looked at as often as ever.
    desk.manifests(&[&pod(MAIN)]);
    desk.pass(1_000);
    assert!(desk.agent.wake_at().is_some_and(|at| at.since_ms(desk.now.boot) <= 1_000));
}

#[test]
fn a_container_is_known_by_the_image_that_it_was_asked_for_with() {
    let mut desk = Desk::new();
    desk.manifests(&[&pod(MAIN)]);
    desk.does_all(&["run_podsandbox #0", "podsandbox_status s1", "image_status i:1"]);
    assert_eq!(desk.asked_for(), ["create_container m#0"]);
    let (call, request) = desk.take("create_container m#0");
    let made = desk.perform(&request);
    desk.manifests(&[&pod(&MAIN.replace("i:1", "i:2"))]);
    desk.tell(Event::Cri(call, Ok(made)));
    // It is of the old image: to start it would be to stop it again.
    assert_eq!(desk.asked_for(), ["remove_container c2"]);
}

#[test]
fn a_runtime_that_lost_all_goes_on_counting_behind_the_logs() {
    let mut desk = Desk::new();
    desk.newest_log = Some(6);
    desk.manifests(&[&pod(MAIN)]);
    desk.does_all(&["run_podsandbox #0", "podsandbox_status s1", "image_status i:1"]);
    assert_eq!(desk.asked_for(), ["create_container m#7"]);
    desk.does_all(&["create_container m#7", "start_container c2"]);
    assert_eq!(desk.status()["containerStatuses"][0]["restartCount"], 7);
}

/// A pod whose container has ended, and whose next try to start is refused because the runtime is
/// stopping the sandbox. What the look shows then is the story's.
fn refused_in_an_ending_sandbox(desk: &mut Desk) {
    desk.manifests(&[&pod(MAIN)]);
    desk.does_all(START);
    desk.exits("m", 137);
    desk.does_all(&["container_status c2", "image_status i:1", "create_container m#1"]);
    desk.containers[1].state = ContainerState::Exited;
    desk.exit_codes.push(("c3".into(), 128));
}

#[test]
fn a_start_that_is_refused_in_a_sandbox_that_ends_counts_for_nothing() {
    let mut desk = Desk::with_stream(true);
    refused_in_an_ending_sandbox(&mut desk);
    desk.sandboxes[0].ready = false;
    let began = desk.now.boot;
    desk.refuses("start_container c3", Code::Unknown, "sandbox container is not running");
    desk.pass(1_000);
    desk.does_all(&[
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
    assert!(desk.now.boot.since_ms(began) < 10_000, "nothing was waited for");
    let status = desk.status();
    assert_eq!(status["containerStatuses"][0]["restartCount"], 1, "{status}");
    assert_eq!(status["containerStatuses"][0]["lastState"]["terminated"]["exitCode"], 137);
}

#[test]
fn a_start_that_is_refused_in_a_sandbox_that_stays_is_put_off_and_counts() {
    let mut desk = Desk::with_stream(true);
    refused_in_an_ending_sandbox(&mut desk);
    desk.refuses("start_container c3", Code::Unknown, "no such program");
    desk.pass(5_000);
    desk.does_all(&["container_status c3", "remove_container c2"]);
    assert_eq!(desk.asked_for(), [] as [&str; 0]);
    let status = desk.status();
    assert_eq!(status["containerStatuses"][0]["restartCount"], 1, "{status}");
    desk.pass(20_000);
    desk.does_all(&["image_status i:1", "create_container m#2"]);
}

#[test]
fn sandboxes_that_never_last_are_forgiven_once() {
    let mut desk = Desk::with_stream(true);
    refused_in_an_ending_sandbox(&mut desk);
    desk.sandboxes[0].ready = false;
    desk.refuses("start_container c3", Code::Unknown, "sandbox container is not running");
    desk.pass(1_000);
    desk.does_all(&[
        "container_status c3",
        "stop_podsandbox s1",
        "remove_container c3",
        "run_podsandbox #1",
        "podsandbox_status s4",
        "image_status i:1",
        "create_container m#1",
    ]);
    desk.sandboxes[1].ready = false;
    desk.refuses("start_container c5", Code::Unknown, "sandbox container is not running");
    desk.pass(1_000);
    desk.does_all(&["stop_podsandbox s4", "run_podsandbox #2", "podsandbox_status s6"]);
    assert_eq!(desk.asked_for(), [] as [&str; 0], "the container waits");
}
