//! Events for the operator: one for each kind of failure, with its reason.

use edged::agent::event::Event;
use edged::limits;
use edged::model::cri::{CallError, Code, ContainerState};
use edged::model::job::JobSpec;

use crate::harness::{Harness, MAIN, START, container, pod, sandbox};
use crate::looks::answer_lists;

#[track_caller]
fn was_told(harness: &Harness, reported: &str) {
    assert!(
        harness.events.iter().any(|event| event == reported),
        "{reported}: {:#?}",
        harness.events
    );
}

/// The runtime's message for refusals here.
const NO: &str = "rpc error: code = Unknown desc = no";

fn running() -> Harness {
    let mut harness = Harness::new();
    harness.manifests(&[&pod(MAIN)]);
    harness.does_all(START);
    harness
}

#[test]
fn what_the_runtime_does_not_answer_is_told() {
    let mut harness = Harness::new();
    harness.sandboxes.push(sandbox("s1", 0, true));
    harness.containers.push(container("x0", "m", ContainerState::Running));
    harness.manifests(&[&pod(MAIN)]);
    harness.refuses("podsandbox_status s1", Code::Unknown, "no");
    was_told(&harness, &format!("FailedPodSandBoxStatus Unable to get pod sandbox status: {NO}"));
    harness.pass(limits::RETRY_MIN_MS);
    harness.does("podsandbox_status s1");
    harness.refuses("container_status x0", Code::Unknown, "no");
    was_told(&harness, &format!("FailedSync error determining status: {NO}"));
}

#[test]
fn a_pod_that_cannot_be_ended_is_told_of() {
    let reported = format!("FailedKillPod error killing pod: {NO}");
    let mut harness = running();
    harness.manifests(&[]);
    harness.refuses("stop_container c2 30", Code::Unknown, "no");
    was_told(&harness, &reported);
    harness.pass(limits::RETRY_MIN_MS);
    harness.events.clear();
    harness.does("stop_container c2 29");
    harness.refuses("stop_podsandbox s1", Code::Internal, "no");
    was_told(&harness, "FailedKillPod error killing pod: rpc error: code = Internal desc = no");
}

#[test]
fn what_cannot_be_removed_of_a_pod_that_goes_is_the_pods_trouble() {
    let mut harness = running();
    harness.manifests(&[]);
    harness.does_all(&["stop_container c2 30", "stop_podsandbox s1", "container_status c2"]);
    harness.refuses("remove_container c2", Code::Unknown, "no");
    was_told(&harness, &format!("FailedKillPod error killing pod: {NO}"));
    harness.pass(limits::RETRY_MS * 3 / 2);
    harness.does("remove_container c2");
    harness.refuses("remove_podsandbox s1", Code::Unknown, "no");
    harness.pass(5_000);
    let gone =
        |line: &String| line.contains("the runtime reports that it is gone, but still lists it");
    assert!(!harness.log.iter().any(gone), "it is not reported: {:?}", harness.log);
    harness.pass(limits::RETRY_MS * 3 / 2);
    // Now it is reported, and it is listed all the same.
    harness.refuses("remove_podsandbox s1", Code::NotFound, "no");
    harness.pass(5_000);
    assert_eq!(harness.agent.metrics().removed_listed, 1);
}

/// Two dead instances of a container that runs again.
fn with_a_dead_container() -> Harness {
    let mut harness = Harness::new();
    harness.sandboxes.push(sandbox("s1", 0, true));
    for attempt in 0..3 {
        let state = if attempt == 2 { ContainerState::Running } else { ContainerState::Exited };
        let mut found = container(&format!("x{attempt}"), "m", state);
        found.attempt = attempt;
        harness.containers.push(found);
    }
    harness
}

#[test]
fn what_cannot_be_removed_of_a_pod_that_stays_is_the_nodes_trouble() {
    let looks = ["podsandbox_status s1", "container_status x2", "container_status x1"];
    let mut harness = with_a_dead_container();
    harness.manifests(&[&pod(MAIN)]);
    harness.does_all(&looks);
    harness.refuses("remove_container x0", Code::Unknown, "no");
    was_told(&harness, &format!("ContainerGCFailed failed to remove garbage: {NO}"));
    assert!(harness.kinds.contains("Node"), "{:?}", harness.kinds);

    let mut harness = with_a_dead_container();
    harness.taken.fails = Some(|spec| matches!(spec, JobSpec::RemoveLog(_)));
    harness.manifests(&[&pod(MAIN)]);
    harness.does_all(&looks);
    let why = "failed to remove the logs of a dead container: no such device";
    was_told(&harness, &format!("ContainerGCFailed {why}"));
    assert_eq!(harness.open_calls(), [] as [&str; 0], "the logs go first");
    assert!(
        !harness.events.iter().any(|event| event.contains("FailedKillPod")),
        "{:?}",
        harness.events
    );
}

#[test]
fn an_image_that_cannot_be_looked_for_is_told_and_looked_for_later() {
    let mut harness = Harness::new();
    harness.manifests(&[&pod(MAIN)]);
    harness.does_all(&START[..2]);
    harness.refuses("image_status i:1", Code::Unknown, "no");
    let why = format!("Failed to inspect image \"i:1\": {NO}");
    was_told(&harness, &format!("InspectFailed {why}"));
    was_told(&harness, "Failed Error: ImageInspectError");
    let waiting = &harness.status()["containerStatuses"][0]["state"]["waiting"];
    assert_eq!(
        (&waiting["reason"], &waiting["message"]),
        (&"ImageInspectError".into(), &why.into())
    );
    harness.pass(limits::RETRY_MS - 500);
    assert_eq!(harness.open_calls(), [] as [&str; 0]);
    harness.pass(limits::RETRY_MS / 2 + 500);
    assert_eq!(harness.open_calls(), ["image_status i:1"]);
}

#[test]
fn a_container_that_cannot_be_made_is_told_and_made_later() {
    for (code, message, next) in [
        (Code::Unknown, "no", "create_container m#0"),
        (Code::AlreadyExists, "no", "create_container m#1"),
        (Code::Unknown, "name \"m\" is reserved for \"x\"", "create_container m#1"),
    ] {
        let mut harness = Harness::new();
        harness.manifests(&[&pod(MAIN)]);
        harness.does_all(&START[..3]);
        harness.refuses("create_container m#0", code, message);
        let why = format!("rpc error: code = {code:?} desc = {message}");
        was_told(&harness, &format!("Failed Error: {why}"));
        let waiting = &harness.status()["containerStatuses"][0]["state"]["waiting"];
        assert_eq!(waiting["reason"], "CreateContainerError");
        assert_eq!(waiting["message"], why);
        harness.pass(limits::RETRY_MS - 500);
        assert_eq!(harness.open_calls(), [] as [&str; 0], "{message}");
        harness.pass(limits::RETRY_MS / 2 + 500);
        harness.does("image_status i:1");
        assert_eq!(harness.open_calls(), [next], "{message}");
    }
}

#[test]
fn events_name_a_container_and_not_its_id() {
    let mut harness = Harness::new();
    harness.manifests(&[&pod(MAIN)]);
    harness.does_all(&START[..4]);
    harness.refuses("start_container c2", Code::Unknown, "task c2 has no c2");
    was_told(&harness, "Failed Error: rpc error: code = Unknown desc = task m has no m");
    let reported = &harness.status()["containerStatuses"][0];
    assert_eq!(reported["state"]["waiting"]["reason"], "RunContainerError");
    assert_eq!(reported["lastState"], serde_json::json!({}), "there was none before");
}

#[test]
fn events_say_which_field_of_the_pod_they_are_about() {
    let mut harness = Harness::new();
    harness.images.push("j:1");
    let ephemeral = r#""ephemeralContainers":[{"name":"e","image":"i:1"}]"#;
    let init = r#""initContainers":[{"name":"i","image":"j:1"}]"#;
    harness.manifests(&[&pod(&format!("{init},{ephemeral},{MAIN}"))]);
    let of = |harness: &mut Harness, call: &str| {
        harness.fields.clear();
        harness.does(call);
        harness.fields.iter().cloned().collect::<Vec<_>>()
    };
    harness.does_all(&["run_podsandbox #0", "podsandbox_status s1", "image_status i:1"]);
    assert_eq!(of(&mut harness, "create_container e#0"), ["spec.ephemeralContainers{e}"]);
    harness.does_all(&["start_container c2", "container_status c2", "image_status j:1"]);
    assert_eq!(of(&mut harness, "create_container i#0"), ["spec.initContainers{i}"]);
    harness.does_all(&["start_container c3", "container_status c3"]);
    harness.exits("i", 0);
    harness.does_all(&["container_status c3", "image_status i:1"]);
    assert_eq!(of(&mut harness, "create_container m#0"), ["spec.containers{m}"]);
}

#[test]
fn a_start_is_told_and_its_log_is_linked() {
    let mut harness = running();
    was_told(&harness, "Created Created container: m");
    was_told(&harness, "Started Started container m");
    assert_eq!(harness.kinds.iter().collect::<Vec<_>>(), [&"Pod"]);
    assert!(harness.fields.contains("spec.containers{m}"), "{:?}", harness.fields);
    assert!(!harness.fields.iter().any(|it| it.contains("init")), "{:?}", harness.fields);
    let linked = |harness: &Harness| {
        let links = |spec: &&JobSpec| matches!(spec, JobSpec::LinkLog(log) if &*log.id == "c2");
        harness.specs.iter().filter(links).count()
    };
    assert_eq!(linked(&harness), 1);
    harness.pass(60_000);
    assert_eq!(linked(&harness), 1, "once");

    let mut harness = Harness::new();
    harness.taken.fails = Some(|spec| matches!(spec, JobSpec::LinkLog(_)));
    harness.manifests(&[&pod(MAIN)]);
    harness.does_all(START);
    was_told(&harness, "Failed error linking the container's log: no such device");
    assert_eq!(harness.status()["phase"], "Running", "it does not matter to the pod");
}

#[test]
fn an_image_that_must_not_be_pulled_and_is_not_there_is_told() {
    let mut harness = Harness::new();
    harness.images.clear();
    let never = MAIN.replace(r#""i:1""#, r#""i:1","imagePullPolicy":"Never""#);
    harness.manifests(&[&pod(&never)]);
    harness.does_all(&START[..3]);
    let why = "Container image \"i:1\" is not present with pull policy of Never";
    was_told(&harness, &format!("ErrImageNeverPull {why}"));
    was_told(&harness, "Failed Error: ErrImageNeverPull");
}

#[test]
fn an_image_that_is_there_is_told_with_what_it_took() {
    let harness = running();
    was_told(&harness, "Pulled Container image \"i:1\" already present on machine");
    let mut harness = Harness::new();
    harness.images.clear();
    harness.manifests(&[&pod(MAIN)]);
    harness.does_all(&START[..3]);
    harness.pass(2_500);
    harness.images.push("i:1");
    harness.does_all(&["pull_image i:1", "image_status i:1"]);
    let size = "Image size: 5 bytes.";
    let reported = harness.events.iter().find(|event| event.starts_with("Pulled Success"));
    let reported = reported.expect("it is reported");
    assert!(reported.starts_with("Pulled Successfully pulled image \"i:1\" in 2.5"), "{reported}");
    assert!(reported.ends_with(size), "{reported}");
}

#[test]
fn an_answer_about_a_pod_that_is_gone_counts_as_done() {
    let mut harness = running();
    harness.manifests(&[]);
    harness.does_all(&["stop_container c2 30", "stop_podsandbox s1", "container_status c2"]);
    harness.does("remove_container c2");
    harness.taken.lists_wait = true;
    let (call, _) = harness.take("remove_podsandbox s1");
    let message = "not found".to_owned();
    let error = CallError::Refused { code: Code::NotFound, message };
    harness.sandboxes.clear();
    harness.deliver(Event::Cri(call, Err(error)));
    let repeated =
        |harness: &Harness| harness.open_calls().iter().any(|call| call.contains("podsandbox s1"));
    assert!(!repeated(&harness), "{:?}", harness.open_calls());
    assert_eq!(harness.agent.pods().count(), 1, "a look has to say so");
    answer_lists(&mut harness);
    assert_eq!(harness.agent.pods().count(), 0);
}

#[test]
fn why_a_container_is_stopped_is_told() {
    let lost = "Killing Container is in \"unknown\" state, try killing it before restart";
    let mut harness = Harness::new();
    harness.sandboxes.push(sandbox("s1", 0, true));
    harness.containers.push(container("x0", "m", ContainerState::Unknown));
    harness.manifests(&[&pod(MAIN)]);
    harness.does_all(&["podsandbox_status s1", "container_status x0"]);
    assert_eq!(harness.open_calls(), ["stop_container x0 30"]);
    was_told(&harness, lost);
    let main = |image: &str| {
        pod(&format!(
            r#""initContainers":[{{"name":"s","image":"{image}","restartPolicy":"Always"}}],{MAIN}"#
        ))
    };
    let mut harness = Harness::new();
    harness.manifests(&[&main("i:1")]);
    harness.works();
    harness.manifests(&[&main("i:2")]);
    was_told(&harness, "Killing Init container s definition changed");
    harness.works();
    assert_eq!(harness.running().len(), 2, "it runs again");
    let never =
        |image: &str| pod(&format!(r#""restartPolicy":"Never",{}"#, MAIN.replace("i:1", image)));
    let mut harness = Harness::new();
    harness.manifests(&[&never("i:1")]);
    harness.works();
    harness.manifests(&[&never("i:2")]);
    was_told(&harness, "Killing Container m definition changed, will be restarted");
    harness.works();
    assert_eq!(harness.running(), ["m"], "whatever the restart policy is");
}

#[test]
fn a_sandbox_that_is_replaced_is_told_and_the_first_is_not() {
    let mut harness = running();
    assert!(!harness.events.iter().any(|event| event.starts_with("SandboxChanged")));
    harness.sandboxes[0].ready = false;
    harness.pass(1_000);
    harness.works();
    was_told(&harness, "SandboxChanged Pod sandbox changed, it will be killed and re-created.");
}

#[test]
fn long_back_offs_are_told_in_minutes() {
    let mut harness = running();
    let mut delays = Vec::new();
    while delays.len() < 6 {
        harness.exits("m", 1);
        harness.works();
        let waiting = harness.status()["containerStatuses"][0]["state"]["waiting"].clone();
        if let Some(message) = waiting["message"].as_str() {
            let rest = message.strip_prefix("back-off ").expect("a back-off");
            delays.push(rest.split(' ').next().unwrap_or_default().to_owned());
            assert!(message.ends_with("container=m pod=p-gw_default(u1)"), "{message}");
        }
        while harness.running().is_empty() {
            harness.pass(10_000);
            harness.works();
        }
    }
    assert_eq!(delays, ["10s", "20s", "40s", "1m20s", "2m40s", "5m0s"]);
    was_told(&harness, "BackOff Back-off restarting failed container m in pod p-gw_default(u1)");
    assert!(!harness.events.iter().any(|event| event.starts_with("Failed Error")));
}

#[test]
fn a_network_that_is_not_ready_is_told_once() {
    let mut harness = Harness::new();
    harness.runtime.network = Err("NetworkPluginNotReady: cni plugin not initialized".to_owned());
    harness.pass(limits::STATUS_VALID_MS);
    harness.manifests(&[&pod(MAIN)]);
    harness.pass(60_000);
    let why = "NetworkNotReady network is not ready: NetworkPluginNotReady: cni plugin not \
               initialized";
    assert_eq!(
        harness.events.iter().filter(|event| *event == why).count(),
        1,
        "{:?}",
        harness.events
    );
    assert_eq!(harness.open_calls(), [] as [&str; 0]);
}

#[test]
fn how_far_a_pod_is_stands_in_the_log_with_the_reason() {
    let ended = |harness: &Harness, why: &str| {
        let line = format!("pod=default/p-gw uid=u1 phase=Terminating why={why:?}");
        assert!(harness.log.contains(&line), "{line}: {:#?}", harness.log);
    };
    let mut harness = running();
    harness.manifests(&[]);
    ended(&harness, "no source wants it");
    let mut harness = Harness::new();
    harness.manifests(&[&pod(&format!(r#""restartPolicy":"Never",{MAIN}"#))]);
    harness.works();
    harness.exits("m", 0);
    harness.works();
    ended(&harness, "its containers have ended");
    let mut harness = running();
    let deleted = format!(
        r#"{{"metadata":{{"name":"p","uid":"u1","deletionTimestamp":"2027-01-01T00:00:00Z"}},
            "spec":{{{MAIN}}}}}"#
    );
    harness.manifests(&[&deleted]);
    ended(&harness, "deleted");
    let mut harness = Harness::new();
    harness.manifests(&[&pod(&format!(r#""activeDeadlineSeconds":5,{MAIN}"#))]);
    harness.works();
    harness.pass(5_000);
    ended(&harness, "DeadlineExceeded");
    let reported = "DeadlineExceeded Pod was active on the node longer than the specified deadline";
    was_told(&harness, reported);
}

#[test]
fn a_crash_that_may_not_wait_long_waits_as_long_as_it_may() {
    let mut harness = Harness::with(|config| config.crash_backoff_max_ms = 3_000);
    harness.manifests(&[&pod(MAIN)]);
    harness.works();
    for attempt in 1..4 {
        harness.exits("m", 1);
        harness.works();
        harness.pass(3_000);
        harness.works();
        assert_eq!(harness.status()["containerStatuses"][0]["restartCount"], attempt);
    }
}

#[test]
fn an_image_that_waits_for_its_turn_is_told_as_an_error() {
    let mut harness = Harness::new();
    harness.images.clear();
    harness.manifests(&[&pod(MAIN)]);
    harness.works_until("pull_image i:1");
    harness.refuses("pull_image i:1", Code::NotFound, "not found");
    harness.does("image_status i:1");
    was_told(&harness, "BackOff Back-off pulling image \"i:1\"");
    was_told(&harness, "Failed Error: ImagePullBackOff");
}

#[test]
fn what_of_the_resolver_is_left_out_is_told_with_each_sandbox() {
    let mut harness = Harness::new();
    let servers = r#""dnsConfig":{"nameservers":["1.1.1.1","1.1.1.2","1.1.1.3","1.1.1.4"]}"#;
    harness.manifests(&[&pod(&format!("{servers},{MAIN}"))]);
    harness.works();
    let reported = |harness: &Harness| {
        harness.events.iter().filter(|event| event.starts_with("DNSConfigForming")).count()
    };
    assert_eq!(reported(&harness), 1, "{:?}", harness.events);
    harness.sandboxes[0].ready = false;
    harness.pass(1_000);
    harness.works();
    assert_eq!(reported(&harness), 2);
}

#[test]
fn beside_a_sidecar_a_main_container_is_none() {
    let with = |image: &str| {
        let sidecar = r#"{"name":"s","image":"i:1","restartPolicy":"Always"}"#;
        pod(&format!(r#""initContainers":[{sidecar}],{}"#, MAIN.replace("i:1", image)))
    };
    let mut harness = Harness::new();
    harness.manifests(&[&with("i:1")]);
    harness.works();
    harness.manifests(&[&with("i:2")]);
    was_told(&harness, "Killing Container m definition changed, will be restarted");
}

#[test]
fn what_has_no_name_is_told_of_as_the_nodes() {
    let mut harness = Harness::new();
    harness.taken.fails = Some(|spec| matches!(spec, JobSpec::RemoveLogDir(_)));
    harness.machine.log_dirs = Some(vec![edged::model::job::LogDir::nameless("u9")]);
    harness.manifests(&[]);
    harness.pass(2 * limits::GARBAGE_MS);
    was_told(&harness, "FailedKillPod error removing the pod's logs: no such device");
    assert_eq!(harness.kinds.iter().collect::<Vec<_>>(), [&"Node"]);
}
