//! What people are told of what goes wrong: an event for each kind of it, with its reason.

use edged::agent::event::Event;
use edged::limits;
use edged::model::cri::{CallError, Code, ContainerState};
use edged::model::job::JobSpec;

use crate::desk::{Desk, MAIN, START, container, pod, sandbox};
use crate::looks::tell_all;

#[track_caller]
fn was_told(desk: &Desk, told: &str) {
    assert!(desk.events.iter().any(|event| event == told), "{told}: {:#?}", desk.events);
}

/// What the runtime says to what it refuses here.
const NO: &str = "rpc error: code = Unknown desc = no";

fn running() -> Desk {
    let mut desk = Desk::new();
    desk.manifests(&[&pod(MAIN)]);
    desk.does_all(START);
    desk
}

#[test]
fn what_the_runtime_does_not_answer_is_told() {
    let mut desk = Desk::new();
    desk.sandboxes.push(sandbox("s1", 0, true));
    desk.containers.push(container("x0", "m", ContainerState::Running));
    desk.manifests(&[&pod(MAIN)]);
    desk.refuses("podsandbox_status s1", Code::Unknown, "no");
    was_told(&desk, &format!("FailedPodSandBoxStatus Unable to get pod sandbox status: {NO}"));
    desk.pass(limits::RETRY_MIN_MS);
    desk.does("podsandbox_status s1");
    desk.refuses("container_status x0", Code::Unknown, "no");
    was_told(&desk, &format!("FailedSync error determining status: {NO}"));
}

#[test]
fn a_pod_that_cannot_be_ended_is_told_of() {
    let told = format!("FailedKillPod error killing pod: {NO}");
    let mut desk = running();
    desk.manifests(&[]);
    desk.refuses("stop_container c2 30", Code::Unknown, "no");
    was_told(&desk, &told);
    desk.pass(limits::RETRY_MIN_MS);
    desk.events.clear();
    desk.does("stop_container c2 29");
    desk.refuses("stop_podsandbox s1", Code::Internal, "no");
    was_told(&desk, "FailedKillPod error killing pod: rpc error: code = Internal desc = no");
}

#[test]
fn what_cannot_be_removed_of_a_pod_that_goes_is_the_pods_trouble() {
    let mut desk = running();
    desk.manifests(&[]);
    desk.does_all(&["stop_container c2 30", "stop_podsandbox s1", "container_status c2"]);
    desk.refuses("remove_container c2", Code::Unknown, "no");
    was_told(&desk, &format!("FailedKillPod error killing pod: {NO}"));
    desk.pass(limits::RETRY_MS * 3 / 2);
    desk.does("remove_container c2");
    desk.refuses("remove_podsandbox s1", Code::Unknown, "no");
    desk.pass(5_000);
    let gone = |line: &String| line.contains("the runtime says that it is gone, and lists it");
    assert!(!desk.log.iter().any(gone), "nobody said so: {:?}", desk.log);
    desk.pass(limits::RETRY_MS * 3 / 2);
    // Now it is said, and it is listed all the same.
    desk.refuses("remove_podsandbox s1", Code::NotFound, "no");
    desk.pass(5_000);
    assert_eq!(desk.agent.metrics().removed_listed, 1);
}

/// Two dead instances of a container that runs again.
fn with_a_dead_container() -> Desk {
    let mut desk = Desk::new();
    desk.sandboxes.push(sandbox("s1", 0, true));
    for attempt in 0..3 {
        let state = if attempt == 2 { ContainerState::Running } else { ContainerState::Exited };
        let mut found = container(&format!("x{attempt}"), "m", state);
        found.attempt = attempt;
        desk.containers.push(found);
    }
    desk
}

#[test]
fn what_cannot_be_removed_of_a_pod_that_stays_is_the_nodes_trouble() {
    let looks = ["podsandbox_status s1", "container_status x2", "container_status x1"];
    let mut desk = with_a_dead_container();
    desk.manifests(&[&pod(MAIN)]);
    desk.does_all(&looks);
    desk.refuses("remove_container x0", Code::Unknown, "no");
    was_told(&desk, &format!("ContainerGCFailed failed to remove what is dead: {NO}"));
    assert!(desk.kinds.contains("Node"), "{:?}", desk.kinds);

    let mut desk = with_a_dead_container();
    desk.taken.fails = Some(|spec| matches!(spec, JobSpec::RemoveLog(_)));
    desk.manifests(&[&pod(MAIN)]);
    desk.does_all(&looks);
    let why = "failed to remove the logs of a dead container: no such device";
    was_told(&desk, &format!("ContainerGCFailed {why}"));
    assert_eq!(desk.asked_for(), [] as [&str; 0], "the logs go first");
    assert!(!desk.events.iter().any(|event| event.contains("FailedKillPod")), "{:?}", desk.events);
}

#[test]
fn an_image_that_cannot_be_looked_for_is_told_and_looked_for_later() {
    let mut desk = Desk::new();
    desk.manifests(&[&pod(MAIN)]);
    desk.does_all(&START[..2]);
    desk.refuses("image_status i:1", Code::Unknown, "no");
    let why = format!("Failed to inspect image \"i:1\": {NO}");
    was_told(&desk, &format!("InspectFailed {why}"));
    was_told(&desk, "Failed Error: ImageInspectError");
    let waiting = &desk.status()["containerStatuses"][0]["state"]["waiting"];
    assert_eq!(
        (&waiting["reason"], &waiting["message"]),
        (&"ImageInspectError".into(), &why.into())
    );
    desk.pass(limits::RETRY_MS - 500);
    assert_eq!(desk.asked_for(), [] as [&str; 0]);
    desk.pass(limits::RETRY_MS / 2 + 500);
    assert_eq!(desk.asked_for(), ["image_status i:1"]);
}

#[test]
fn a_container_that_cannot_be_made_is_told_and_made_later() {
    for (code, message, next) in [
        (Code::Unknown, "no", "create_container m#0"),
        (Code::AlreadyExists, "no", "create_container m#1"),
        (Code::Unknown, "name \"m\" is reserved for \"x\"", "create_container m#1"),
    ] {
        let mut desk = Desk::new();
        desk.manifests(&[&pod(MAIN)]);
        desk.does_all(&START[..3]);
        desk.refuses("create_container m#0", code, message);
        let why = format!("rpc error: code = {code:?} desc = {message}");
        was_told(&desk, &format!("Failed Error: {why}"));
        let waiting = &desk.status()["containerStatuses"][0]["state"]["waiting"];
        assert_eq!(waiting["reason"], "CreateContainerError");
        assert_eq!(waiting["message"], why);
        desk.pass(limits::RETRY_MS - 500);
        assert_eq!(desk.asked_for(), [] as [&str; 0], "{message}");
        desk.pass(limits::RETRY_MS / 2 + 500);
        desk.does("image_status i:1");
        assert_eq!(desk.asked_for(), [next], "{message}");
    }
}

#[test]
fn events_name_a_container_and_not_its_id() {
    let mut desk = Desk::new();
    desk.manifests(&[&pod(MAIN)]);
    desk.does_all(&START[..4]);
    desk.refuses("start_container c2", Code::Unknown, "task c2 has no c2");
    was_told(&desk, "Failed Error: rpc error: code = Unknown desc = task m has no m");
    let told = &desk.status()["containerStatuses"][0];
    assert_eq!(told["state"]["waiting"]["reason"], "RunContainerError");
    assert_eq!(told["lastState"], serde_json::json!({}), "there was none before");
}

#[test]
fn events_say_which_field_of_the_pod_they_are_about() {
    let mut desk = Desk::new();
    desk.images.push("j:1");
    let ephemeral = r#""ephemeralContainers":[{"name":"e","image":"i:1"}]"#;
    let init = r#""initContainers":[{"name":"i","image":"j:1"}]"#;
    desk.manifests(&[&pod(&format!("{init},{ephemeral},{MAIN}"))]);
    let of = |desk: &mut Desk, call: &str| {
        desk.fields.clear();
        desk.does(call);
        desk.fields.iter().cloned().collect::<Vec<_>>()
    };
    desk.does_all(&["run_podsandbox #0", "podsandbox_status s1", "image_status i:1"]);
    assert_eq!(of(&mut desk, "create_container e#0"), ["spec.ephemeralContainers{e}"]);
    desk.does_all(&["start_container c2", "container_status c2", "image_status j:1"]);
    assert_eq!(of(&mut desk, "create_container i#0"), ["spec.initContainers{i}"]);
    desk.does_all(&["start_container c3", "container_status c3"]);
    desk.exits("i", 0);
    desk.does_all(&["container_status c3", "image_status i:1"]);
    assert_eq!(of(&mut desk, "create_container m#0"), ["spec.containers{m}"]);
}

#[test]
fn a_start_is_told_and_its_log_is_linked() {
    let mut desk = running();
    was_told(&desk, "Created Created container: m");
    was_told(&desk, "Started Started container m");
    assert_eq!(desk.kinds.iter().collect::<Vec<_>>(), [&"Pod"]);
    assert!(desk.fields.contains("spec.containers{m}"), "{:?}", desk.fields);
    assert!(!desk.fields.iter().any(|it| it.contains("init")), "{:?}", desk.fields);
    let linked = |desk: &Desk| {
        let links = |spec: &&JobSpec| matches!(spec, JobSpec::LinkLog(log) if &*log.id == "c2");
        desk.specs.iter().filter(links).count()
    };
    assert_eq!(linked(&desk), 1);
    desk.pass(60_000);
    assert_eq!(linked(&desk), 1, "once");

    let mut desk = Desk::new();
    desk.taken.fails = Some(|spec| matches!(spec, JobSpec::LinkLog(_)));
    desk.manifests(&[&pod(MAIN)]);
    desk.does_all(START);
    was_told(&desk, "Failed error linking the container's log: no such device");
    assert_eq!(desk.status()["phase"], "Running", "it does not matter to the pod");
}

#[test]
fn an_image_that_must_not_be_pulled_and_is_not_there_is_told() {
    let mut desk = Desk::new();
    desk.images.clear();
    let never = MAIN.replace(r#""i:1""#, r#""i:1","imagePullPolicy":"Never""#);
    desk.manifests(&[&pod(&never)]);
    desk.does_all(&START[..3]);
    let why = "Container image \"i:1\" is not present with pull policy of Never";
    was_told(&desk, &format!("ErrImageNeverPull {why}"));
    was_told(&desk, "Failed Error: ErrImageNeverPull");
}

#[test]
fn an_image_that_is_there_is_told_with_what_it_took() {
    let desk = running();
    was_told(&desk, "Pulled Container image \"i:1\" already present on machine");
    let mut desk = Desk::new();
    desk.images.clear();
    desk.manifests(&[&pod(MAIN)]);
    desk.does_all(&START[..3]);
    desk.pass(2_500);
    desk.images.push("i:1");
    desk.does_all(&["pull_image i:1", "image_status i:1"]);
    let size = "Image size: 5 bytes.";
    let told = desk.events.iter().find(|event| event.starts_with("Pulled Success"));
    let told = told.expect("it is told");
    assert!(told.starts_with("Pulled Successfully pulled image \"i:1\" in 2.5"), "{told}");
    assert!(told.ends_with(size), "{told}");
}

#[test]
fn an_answer_about_a_pod_that_is_gone_counts_as_done() {
    let mut desk = running();
    desk.manifests(&[]);
    desk.does_all(&["stop_container c2 30", "stop_podsandbox s1", "container_status c2"]);
    desk.does("remove_container c2");
    desk.taken.looks_wait = true;
    let (call, _) = desk.take("remove_podsandbox s1");
    let message = "not found".to_owned();
    let error = CallError::Refused { code: Code::NotFound, message };
    desk.sandboxes.clear();
    desk.tell(Event::Cri(call, Err(error)));
    let again = |desk: &Desk| desk.asked_for().iter().any(|call| call.contains("podsandbox s1"));
    assert!(!again(&desk), "{:?}", desk.asked_for());
    assert_eq!(desk.agent.pods().count(), 1, "a look has to say so");
    tell_all(&mut desk);
    assert_eq!(desk.agent.pods().count(), 0);
}

#[test]
fn why_a_container_is_stopped_is_told() {
    let lost = "Killing Container is in \"unknown\" state, try killing it before restart";
    let mut desk = Desk::new();
    desk.sandboxes.push(sandbox("s1", 0, true));
    desk.containers.push(container("x0", "m", ContainerState::Unknown));
    desk.manifests(&[&pod(MAIN)]);
    desk.does_all(&["podsandbox_status s1", "container_status x0"]);
    assert_eq!(desk.asked_for(), ["stop_container x0 30"]);
    was_told(&desk, lost);
    let main = |image: &str| {
        pod(&format!(
            r#""initContainers":[{{"name":"s","image":"{image}","restartPolicy":"Always"}}],{MAIN}"#
        ))
    };
    let mut desk = Desk::new();
    desk.manifests(&[&main("i:1")]);
    desk.works();
    desk.manifests(&[&main("i:2")]);
    was_told(&desk, "Killing Init container s definition changed");
    desk.works();
    assert_eq!(desk.running().len(), 2, "it runs again");
    let never =
        |image: &str| pod(&format!(r#""restartPolicy":"Never",{}"#, MAIN.replace("i:1", image)));
    let mut desk = Desk::new();
    desk.manifests(&[&never("i:1")]);
    desk.works();
    desk.manifests(&[&never("i:2")]);
    was_told(&desk, "Killing Container m definition changed, will be restarted");
    desk.works();
    assert_eq!(desk.running(), ["m"], "whatever the policy says of ends");
}

#[test]
fn a_sandbox_that_is_replaced_is_told_and_the_first_is_not() {
    let mut desk = running();
    assert!(!desk.events.iter().any(|event| event.starts_with("SandboxChanged")));
    desk.sandboxes[0].ready = false;
    desk.pass(1_000);
    desk.works();
    was_told(&desk, "SandboxChanged Pod sandbox changed, it will be killed and re-created.");
}

#[test]
fn long_back_offs_are_told_in_minutes() {
    let mut desk = running();
    let mut delays = Vec::new();
    while delays.len() < 6 {
        desk.exits("m", 1);
        desk.works();
        let waiting = desk.status()["containerStatuses"][0]["state"]["waiting"].clone();
        if let Some(message) = waiting["message"].as_str() {
            let rest = message.strip_prefix("back-off ").expect("a back-off");
            delays.push(rest.split(' ').next().unwrap_or_default().to_owned());
            assert!(message.ends_with("container=m pod=p-gw_default(u1)"), "{message}");
        }
        while desk.running().is_empty() {
            desk.pass(10_000);
            desk.works();
        }
    }
    assert_eq!(delays, ["10s", "20s", "40s", "1m20s", "2m40s", "5m0s"]);
    was_told(&desk, "BackOff Back-off restarting failed container m in pod p-gw_default(u1)");
    assert!(!desk.events.iter().any(|event| event.starts_with("Failed Error")));
}

#[test]
fn a_network_that_is_not_ready_is_told_once() {
    let mut desk = Desk::new();
    desk.runtime.network = Err("NetworkPluginNotReady: cni plugin not initialized".to_owned());
    desk.pass(limits::STATUS_VALID_MS);
    desk.manifests(&[&pod(MAIN)]);
    desk.pass(60_000);
    let why = "NetworkNotReady network is not ready: NetworkPluginNotReady: cni plugin not \
               initialized";
    assert_eq!(desk.events.iter().filter(|event| *event == why).count(), 1, "{:?}", desk.events);
    assert_eq!(desk.asked_for(), [] as [&str; 0]);
}

#[test]
fn how_far_a_pod_is_stands_in_the_log_with_the_reason() {
    let ended = |desk: &Desk, why: &str| {
        let line = format!("pod=default/p-gw uid=u1 phase=Terminating why={why:?}");
        assert!(desk.log.contains(&line), "{line}: {:#?}", desk.log);
    };
    let mut desk = running();
    desk.manifests(&[]);
    ended(&desk, "no source wants it");
    let mut desk = Desk::new();
    desk.manifests(&[&pod(&format!(r#""restartPolicy":"Never",{MAIN}"#))]);
    desk.works();
    desk.exits("m", 0);
    desk.works();
    ended(&desk, "its containers have ended");
    let mut desk = running();
    let deleted = format!(
        r#"{{"metadata":{{"name":"p","uid":"u1","deletionTimestamp":"2027-01-01T00:00:00Z"}},
            "spec":{{{MAIN}}}}}"#
    );
    desk.manifests(&[&deleted]);
    ended(&desk, "deleted");
    let mut desk = Desk::new();
    desk.manifests(&[&pod(&format!(r#""activeDeadlineSeconds":5,{MAIN}"#))]);
    desk.works();
    desk.pass(5_000);
    ended(&desk, "DeadlineExceeded");
    let told = "DeadlineExceeded Pod was active on the node longer than the specified deadline";
    was_told(&desk, told);
}

#[test]
fn a_crash_that_may_not_wait_long_waits_as_long_as_it_may() {
    let mut desk = Desk::with(|config| config.crash_backoff_max_ms = 3_000);
    desk.manifests(&[&pod(MAIN)]);
    desk.works();
    for attempt in 1..4 {
        desk.exits("m", 1);
        desk.works();
        desk.pass(3_000);
        desk.works();
        assert_eq!(desk.status()["containerStatuses"][0]["restartCount"], attempt);
    }
}

#[test]
fn an_image_that_waits_for_its_turn_is_told_as_an_error() {
    let mut desk = Desk::new();
    desk.images.clear();
    desk.manifests(&[&pod(MAIN)]);
    desk.works_until("pull_image i:1");
    desk.refuses("pull_image i:1", Code::NotFound, "not found");
    desk.does("image_status i:1");
    was_told(&desk, "BackOff Back-off pulling image \"i:1\"");
    was_told(&desk, "Failed Error: ImagePullBackOff");
}

#[test]
fn what_of_the_resolver_is_left_out_is_told_with_each_sandbox() {
    let mut desk = Desk::new();
    let servers = r#""dnsConfig":{"nameservers":["1.1.1.1","1.1.1.2","1.1.1.3","1.1.1.4"]}"#;
    desk.manifests(&[&pod(&format!("{servers},{MAIN}"))]);
    desk.works();
    let told = |desk: &Desk| {
        desk.events.iter().filter(|event| event.starts_with("DNSConfigForming")).count()
    };
    assert_eq!(told(&desk), 1, "{:?}", desk.events);
    desk.sandboxes[0].ready = false;
    desk.pass(1_000);
    desk.works();
    assert_eq!(told(&desk), 2);
}

#[test]
fn beside_a_sidecar_a_main_container_is_none() {
    let with = |image: &str| {
        let sidecar = r#"{"name":"s","image":"i:1","restartPolicy":"Always"}"#;
        pod(&format!(r#""initContainers":[{sidecar}],{}"#, MAIN.replace("i:1", image)))
    };
    let mut desk = Desk::new();
    desk.manifests(&[&with("i:1")]);
    desk.works();
    desk.manifests(&[&with("i:2")]);
    was_told(&desk, "Killing Container m definition changed, will be restarted");
}

#[test]
fn what_has_no_name_is_told_of_as_the_nodes() {
    let mut desk = Desk::new();
    desk.taken.fails = Some(|spec| matches!(spec, JobSpec::RemoveLogDir(_)));
    desk.machine.log_dirs = Some(vec![edged::model::job::LogDir::nameless("u9")]);
    desk.manifests(&[]);
    desk.pass(2 * limits::GARBAGE_MS);
    was_told(&desk, "FailedKillPod error removing the pod's logs: no such device");
    assert_eq!(desk.kinds.iter().collect::<Vec<_>>(), [&"Node"]);
}
