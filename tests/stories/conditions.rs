//! A pod's status over time: its conditions and their times, its addresses, and what is kept of
//! removed containers.

use edged::agent::event::Event;
use edged::agent::time::Wall;
use edged::model::cri::{Code, ContainerState, Reply};
use serde_json::{Value, json};

use crate::harness::{Harness, MAIN, START, container, pod, sandbox};

fn condition(harness: &Harness, kind: &str) -> Value {
    let status = harness.status();
    let mut all = status["conditions"].as_array().expect("conditions").iter();
    all.find(|it| it["type"] == kind).expect(kind).clone()
}

/// Its value, reason and message.
fn condition_of(harness: &Harness, kind: &str) -> (String, String, String) {
    let it = condition(harness, kind);
    let text = |key: &str| it[key].as_str().unwrap_or_default().to_owned();
    (text("status"), text("reason"), text("message"))
}

fn text((value, reason, message): (&str, &str, &str)) -> (String, String, String) {
    (value.to_owned(), reason.to_owned(), message.to_owned())
}

fn main_status(harness: &Harness) -> Value {
    harness.status()["containerStatuses"][0].clone()
}

/// Init `i`, sidecar `s`, main containers `m` and `n`.
fn full(policy: &str) -> String {
    pod(&format!(
        r#""restartPolicy":"{policy}","initContainers":[{{"name":"i","image":"i:1"}},
            {{"name":"s","image":"i:1","restartPolicy":"Always"}}],
           "containers":[{{"name":"n","image":"i:1"}},{{"name":"m","image":"i:1"}}]"#
    ))
}

#[test]
fn conditions_name_what_a_pod_waits_for() {
    let mut harness = Harness::new();
    harness.manifests(&[&full("Always")]);
    let initialized = |harness: &Harness| condition_of(harness, "Initialized");
    let open = "containers with incomplete status: ";
    let not = "ContainersNotInitialized";
    assert_eq!(initialized(&harness), text(("False", not, &format!("{open}[i s]"))));
    assert_eq!(condition_of(&harness, "PodReadyToStartContainers").0, "False");
    harness.works();
    assert_eq!(initialized(&harness), text(("False", not, &format!("{open}[i s]"))));
    assert_eq!(condition_of(&harness, "PodReadyToStartContainers").0, "True");
    let unready = "containers with unready status: [m n s]";
    assert_eq!(condition_of(&harness, "Ready"), text(("False", "ContainersNotReady", unready)));
    harness.exits("i", 0);
    harness.works_until("create_container s#0");
    assert_eq!(initialized(&harness), text(("False", not, &format!("{open}[s]"))));
    assert_eq!(harness.status()["initContainerStatuses"][0]["ready"], true);
    harness.works_until("create_container n#0");
    assert_eq!(initialized(&harness), text(("True", "", "")), "though none of them has begun");
    harness.works_until("create_container m#0");
    let unready = "containers with unready status: [m]";
    assert_eq!(
        condition_of(&harness, "ContainersReady"),
        text(("False", "ContainersNotReady", unready))
    );
    harness.works();
    for kind in ["Ready", "ContainersReady"] {
        assert_eq!(condition_of(&harness, kind), text(("True", "", "")));
    }
    // A sidecar counts like a main container.
    harness.exits("s", 1);
    let unready = "containers with unready status: [s]";
    assert_eq!(condition_of(&harness, "Ready"), text(("False", "ContainersNotReady", unready)));
    // It was initialised, whatever the sidecar does.
    assert_eq!(initialized(&harness).0, "True");
    let names = harness.status()["containerStatuses"].clone();
    assert_eq!((&names[0]["name"], &names[1]["name"]), (&"m".into(), &"n".into()), "by name");
}

#[test]
fn conditions_keep_the_time_of_their_last_change() {
    let mut harness = Harness::new();
    harness.manifests(&[&pod(MAIN)]);
    let at = |harness: &Harness, kind: &str| condition(harness, kind)["lastTransitionTime"].clone();
    let scheduled = at(&harness, "PodScheduled");
    let unready = at(&harness, "Ready");
    assert_eq!(scheduled, unready);
    harness.pass(5_000);
    harness.does_all(START);
    let ready = at(&harness, "Ready");
    assert_ne!(ready, unready);
    assert_eq!(at(&harness, "PodScheduled"), scheduled);
    harness.pass(5_000);
    harness.exits("m", 1);
    assert_ne!(at(&harness, "Ready"), ready);
    // Without a clock they have no times, and get them once it is set.
    let mut harness = Harness::new();
    let wall = harness.now.wall.take();
    harness.manifests(&[&pod(MAIN)]);
    harness.does_all(START);
    assert_eq!(at(&harness, "Ready"), Value::Null);
    harness.now.wall = wall;
    harness.pass(2_000);
    assert_ne!(at(&harness, "Ready"), Value::Null);
}

#[test]
fn a_pod_that_has_ended_says_so_in_its_conditions() {
    for (code, phase, reason) in [(0, "Succeeded", "PodCompleted"), (1, "Failed", "PodFailed")] {
        let mut harness = Harness::new();
        harness.manifests(&[&pod(&format!(r#""restartPolicy":"Never",{MAIN}"#))]);
        harness.does_all(START);
        harness.exits("m", code);
        harness.works();
        harness.pass(2_000);
        assert_eq!(harness.status()["phase"], phase);
        for kind in ["Ready", "ContainersReady"] {
            assert_eq!(condition_of(&harness, kind), text(("False", reason, "")), "{kind}");
        }
        let initialized = if code == 0 { reason } else { "" };
        assert_eq!(condition_of(&harness, "Initialized"), text(("True", initialized, "")));
        assert_eq!(harness.status()["podIP"], "10.0.0.5", "as its logs name it");
    }
}

#[test]
fn a_pod_on_the_hosts_network_has_the_hosts_addresses_from_its_sandbox_on() {
    let mut harness = Harness::new();
    harness.manifests(&[&pod(&format!(r#""hostNetwork":true,{MAIN}"#))]);
    assert_eq!(harness.status()["podIP"], Value::Null);
    harness.does("run_podsandbox #0");
    harness.does("podsandbox_status s1");
    let status = harness.status();
    assert_eq!((&status["podIP"], &status["hostIP"]), (&"192.0.2.1".into(), &"192.0.2.1".into()));
}

#[test]
fn a_pod_that_was_refused_has_no_containers_to_tell_of() {
    let mut harness = Harness::new();
    let more = r#""nodeSelector":{"no":"such"},"initContainers":[{"name":"i","image":"i:1"}],
        "ephemeralContainers":[{"name":"e","image":"i:1"}]"#;
    harness.manifests(&[&pod(&format!("{more},{MAIN}"))]);
    let status = harness.status();
    assert_eq!(status["phase"], "Failed", "{status}");
    for key in ["initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses"] {
        assert!(status.get(key).is_none_or(|it| *it == json!([])), "{key}: {status}");
    }
    // One that failed later has.
    let mut harness = Harness::new();
    harness.manifests(&[&pod(&format!(r#""activeDeadlineSeconds":5,{MAIN}"#))]);
    harness.does_all(START);
    harness.pass(5_000);
    harness.works();
    assert_eq!(harness.status()["containerStatuses"].as_array().map(Vec::len), Some(1));
}

#[test]
fn a_container_that_somebody_removed_counts_as_one_that_ended() {
    let mut harness = Harness::new();
    harness.manifests(&[&pod(MAIN)]);
    harness.does_all(START);
    harness.containers.clear();
    harness.pass(1_000);
    let reported = main_status(&harness);
    let last = &reported["lastState"]["terminated"];
    assert_eq!(
        (&last["exitCode"], &last["reason"]),
        (&137.into(), &"ContainerStatusUnknown".into())
    );
    let why = "The container could not be located when the pod was deleted.  The container used to \
               be Running";
    assert_eq!(last["message"], why);
    assert_eq!(reported["restartCount"], 1);
    assert_eq!(reported["state"]["waiting"]["reason"], "ContainerCreating");
    assert_eq!((&reported["ready"], &reported["started"]), (&false.into(), &false.into()));
    // It is reported once, and the next one continues the count.
    harness.pass(1_000);
    assert_eq!(main_status(&harness)["restartCount"], 1);
    harness.works();
    let reported = main_status(&harness);
    assert_eq!(reported["restartCount"], 1, "{reported}");
    assert_eq!(reported["lastState"]["terminated"]["exitCode"], 137, "{reported}");
}

#[test]
fn of_one_that_is_removed_after_its_end_the_end_is_kept() {
    let mut harness = Harness::new();
    harness.manifests(&[&pod(&format!(r#""restartPolicy":"Never",{MAIN}"#))]);
    harness.does_all(START);
    harness.exits("m", 3);
    harness.works();
    harness.pass(2_000);
    harness.containers.clear();
    harness.pass(2_000);
    let reported = main_status(&harness);
    assert_eq!(reported["state"]["terminated"]["exitCode"], 3, "{reported}");
    assert_eq!(reported["restartCount"], 0);
    assert_eq!(harness.status()["phase"], "Failed");
}

#[test]
fn why_one_that_ended_cannot_run_again_stands_over_how_it_ended() {
    let mut harness = Harness::new();
    harness.manifests(&[&pod(MAIN)]);
    harness.does_all(START);
    harness.exits("m", 3);
    harness.does_all(&["container_status c2", "image_status i:1"]);
    harness.refuses("create_container m#1", Code::Unknown, "no");
    let reported = main_status(&harness);
    assert_eq!(reported["state"]["waiting"]["reason"], "CreateContainerError", "{reported}");
    assert_eq!(reported["lastState"]["terminated"]["exitCode"], 3, "{reported}");
    // Once its pod ends no retry follows.
    harness.manifests(&[]);
    assert_eq!(main_status(&harness)["state"]["terminated"]["exitCode"], 3);
}

#[test]
fn what_waits_to_be_initialised_says_so() {
    let mut harness = Harness::new();
    harness.manifests(&[&full("Always")]);
    assert_eq!(main_status(&harness)["state"]["waiting"]["reason"], "PodInitializing");
    let init = &harness.status()["initContainerStatuses"][0];
    assert_eq!(init["state"]["waiting"]["reason"], "PodInitializing");
    assert_eq!((&init["started"], &init["ready"]), (&false.into(), &false.into()));
    harness.works();
    let init = &harness.status()["initContainerStatuses"][0];
    assert_eq!((&init["started"], &init["ready"]), (&true.into(), &false.into()), "it runs");
    harness.exits("i", 0);
    harness.does("container_status c2");
    let init = &harness.status()["initContainerStatuses"][0];
    assert_eq!((&init["started"], &init["ready"]), (&false.into(), &true.into()), "it is done");
}

#[test]
fn a_pod_whose_end_finds_it_half_begun_says_what_never_ran() {
    // The second init container never began, and the main containers neither.
    let mut harness = Harness::new();
    let inits = r#""initContainers":[{"name":"i","image":"i:1"},{"name":"j","image":"i:1"}]"#;
    harness.manifests(&[&pod(&format!(r#""restartPolicy":"Never",{inits},{MAIN}"#))]);
    harness.works();
    harness.exits("i", 1);
    harness.works();
    harness.pass(2_000);
    let status = harness.status();
    assert_eq!(status["phase"], "Failed");
    let inits = &status["initContainerStatuses"];
    assert_eq!(inits[0]["state"]["terminated"]["exitCode"], 1);
    assert_eq!(inits[1]["state"]["waiting"]["reason"], "PodInitializing", "{inits}");
    assert_eq!(main_status(&harness)["state"]["waiting"]["reason"], "PodInitializing");
    // With one main container started, the other is reported as lost.
    let mut harness = Harness::new();
    harness.images = vec!["i:1"];
    let two = r#""containers":[{"name":"m","image":"i:1"},{"name":"n","image":"gone:1"}]"#;
    harness.manifests(&[&pod(&format!(r#""activeDeadlineSeconds":60,{two}"#))]);
    harness.works_until("pull_image gone:1");
    harness.pass(60_000);
    harness.works();
    harness.pass(2_000);
    let status = harness.status();
    assert_eq!(
        (&status["phase"], &status["reason"]),
        (&"Failed".into(), &"DeadlineExceeded".into())
    );
    let end = &status["containerStatuses"][1]["state"]["terminated"];
    assert_eq!(end["reason"], "ContainerStatusUnknown", "{status}");
    let why = "The container could not be located when the pod was terminated";
    assert_eq!((&end["message"], &end["exitCode"]), (&why.into(), &137.into()));
    let closed = &status["containerStatuses"][1];
    assert_eq!((&closed["ready"], &closed["started"]), (&false.into(), &false.into()));
}

#[test]
fn what_an_earlier_life_of_a_running_pod_was_is_not_taken_back_before_all_is_looked_at() {
    let mut harness = Harness::new();
    harness.sandboxes.push(sandbox("s1", 0, true));
    let mut found = container("x0", "m", ContainerState::Running);
    found.attempt = 4;
    harness.containers.push(found);
    harness.manifests(&[&pod(MAIN)]);
    assert_eq!(condition(&harness, "PodScheduled")["status"], "True");
    let reported = main_status(&harness);
    assert_eq!(
        reported["state"]["waiting"],
        json!({}),
        "it is not known yet how it is: {reported}"
    );
    assert_eq!(
        (&reported["restartCount"], &reported["containerID"]),
        (&4.into(), &"containerd://x0".into())
    );
    assert_eq!(reported["image"], "i:1");
    harness.works();
    let reported = main_status(&harness);
    assert!(reported["state"]["running"].is_object(), "{reported}");
    assert_eq!((&reported["imageID"], &reported["lastState"]), (&"sha256:1".into(), &json!({})));
}

#[test]
fn times_of_1970_are_times_that_nobody_knows() {
    let mut harness = Harness::new();
    harness.now.wall = Some(Wall(1_000));
    harness.manifests(&[&pod(MAIN)]);
    harness.does_all(START);
    assert_eq!(harness.status()["phase"], "Running");
}

#[test]
fn an_init_container_that_runs_is_not_complete() {
    let mut harness = Harness::new();
    let init = r#""initContainers":[{"name":"i","image":"i:1"}]"#;
    harness.manifests(&[&pod(&format!("{init},{MAIN}"))]);
    harness.works();
    let message = "containers with incomplete status: [i]";
    let expected = text(("False", "ContainersNotInitialized", message));
    assert_eq!(condition_of(&harness, "Initialized"), expected);
}

#[cfg(feature = "probes")]
#[test]
fn a_sidecar_that_has_started_is_complete_though_it_is_not_ready() {
    let mut harness = Harness::new();
    let probe = r#""readinessProbe":{"tcpSocket":{"port":1}}"#;
    let sidecar = format!(r#"{{"name":"s","image":"i:1","restartPolicy":"Always",{probe}}}"#);
    harness.manifests(&[&pod(&format!(r#""initContainers":[{sidecar}],{MAIN}"#))]);
    harness.works_until("create_container m#0");
    assert_eq!(condition_of(&harness, "Initialized"), text(("True", "", "")));
    let unready = "containers with unready status: [m s]";
    assert_eq!(condition_of(&harness, "Ready"), text(("False", "ContainersNotReady", unready)));
}

#[test]
fn a_gate_is_of_no_interest_before_the_containers_are_ready() {
    let mut harness = Harness::new();
    harness.manifests(&[&pod(&format!(r#""readinessGates":[{{"conditionType":"a/b"}}],{MAIN}"#))]);
    let unready = "containers with unready status: [m]";
    assert_eq!(condition_of(&harness, "Ready"), text(("False", "ContainersNotReady", unready)));
}

#[test]
fn a_pod_that_failed_has_failed_however_well_its_containers_end() {
    let mut harness = Harness::new();
    harness.manifests(&[&pod(&format!(r#""activeDeadlineSeconds":5,{MAIN}"#))]);
    harness.does_all(START);
    harness.exit_codes.push(("c2".into(), 0));
    harness.pass(5_000);
    harness.works();
    harness.pass(2_000);
    assert_eq!(main_status(&harness)["state"]["terminated"]["exitCode"], 0);
    assert_eq!(harness.status()["phase"], "Failed");
    // A deleted pod has ended, whatever its restart policy.
    let mut harness = Harness::new();
    harness.manifests(&[&pod(MAIN)]);
    harness.does_all(START);
    let deleted = r#""uid":"u1","deletionTimestamp":"2027-01-01T00:00:00Z""#;
    harness.manifests(&[&pod(MAIN).replace(r#""uid":"u1""#, deleted)]);
    harness.works();
    harness.pass(2_000);
    assert_eq!(harness.status()["phase"], "Failed");
}

#[test]
fn a_start_time_is_that_of_the_oldest_sandbox() {
    let mut harness = Harness::new();
    for (id, attempt, at_s) in [("s1", 1, 1_799_999_000_i64), ("s0", 0, 1_799_990_000)] {
        let mut found = sandbox(id, attempt, attempt == 1);
        found.created_at = at_s * 1_000_000_000;
        harness.sandboxes.push(found);
    }
    harness.containers.push(container("x0", "m", ContainerState::Running));
    harness.pass(2_000);
    harness.manifests(&[&pod(MAIN)]);
    harness.works();
    assert_eq!(harness.status()["startTime"], "2027-01-15T05:13:20Z");
}

#[test]
fn how_a_container_ended_before_is_told_by_the_newest_that_ended() {
    let mut harness = Harness::new();
    harness.sandboxes.push(sandbox("s1", 0, true));
    let states = [ContainerState::Exited, ContainerState::Created, ContainerState::Running];
    for (attempt, state) in (0..).zip(states) {
        let mut found = container(&format!("x{attempt}"), "m", state);
        found.attempt = attempt;
        harness.containers.push(found);
    }
    harness.exit_codes.push(("x0".into(), 9));
    harness.manifests(&[&pod(MAIN)]);
    harness.does_all(&["podsandbox_status s1", "container_status x2"]);
    if harness.open_calls().contains(&"container_status x0".to_owned()) {
        harness.does("container_status x0");
    }
    let last = main_status(&harness)["lastState"].clone();
    assert!(last.get("waiting").is_none(), "{last}");
}

#[test]
fn an_image_is_told_as_the_runtime_names_it_and_of_its_own_instance() {
    let mut harness = Harness::new();
    harness.manifests(&[&pod(MAIN)]);
    harness.does_all(&START[..5]);
    let (call, request) = harness.take("container_status c2");
    let Reply::ContainerStatus(mut reported) = harness.perform(&request) else {
        panic!("a status")
    };
    (reported.image, reported.image_ref) = ("docker.io/library/i:1".into(), "sha256:9".into());
    harness.deliver(Event::Cri(call, Ok(Reply::ContainerStatus(reported))));
    let image = |harness: &Harness| {
        let reported = main_status(harness);
        let text = |key: &str| reported[key].as_str().unwrap_or_default().to_owned();
        (text("image"), text("imageID"))
    };
    let first = ("docker.io/library/i:1".to_owned(), "sha256:9".to_owned());
    assert_eq!(image(&harness), first);
    harness.exits("m", 1);
    assert_eq!(image(&harness), first, "it is known though it was not asked again");
    harness.manifests(&[&pod(&MAIN.replace("i:1", "i:2"))]);
    harness.works_until("start_container c3");
    assert_eq!(image(&harness), ("i:2".to_owned(), String::new()), "of the next nothing is known");
}

#[test]
fn a_sidecar_that_somebody_removed_has_not_completed() {
    let mut harness = Harness::new();
    let sidecar = r#"{"name":"s","image":"i:1","restartPolicy":"Always"}"#;
    harness.manifests(&[&pod(&format!(r#""initContainers":[{sidecar}],{MAIN}"#))]);
    harness.works();
    harness.containers.retain(|observed| &*observed.name != "s");
    harness.pass(1_000);
    let reported = harness.status()["initContainerStatuses"][0].clone();
    assert!(reported["state"]["terminated"].is_null(), "{reported}");
    assert_eq!(reported["ready"], false);
}

#[test]
fn ephemeral_containers_are_told_by_name_and_times_that_nobody_has_are_left_out() {
    let mut harness = Harness::new();
    let one = |name: &str| format!(r#"{{"name":"{name}","image":"i:1"}}"#);
    let ephemerals = format!(r#""ephemeralContainers":[{},{}]"#, one("z"), one("a"));
    harness.manifests(&[&pod(&format!("{ephemerals},{MAIN}"))]);
    harness.works();
    let reported = harness.status()["ephemeralContainerStatuses"].clone();
    assert_eq!((&reported[0]["name"], &reported[1]["name"]), (&"a".into(), &"z".into()));
    harness.exits("a", 1);
    let call = harness.open_calls().remove(0);
    let (call, request) = harness.take(&call);
    let Reply::ContainerStatus(mut reported) = harness.perform(&request) else {
        panic!("a status")
    };
    reported.started_at = 0;
    harness.deliver(Event::Cri(call, Ok(Reply::ContainerStatus(reported))));
    let end = harness.status()["ephemeralContainerStatuses"][0]["state"]["terminated"].clone();
    assert_eq!(end["startedAt"], Value::Null, "{end}");
    assert_ne!(end["finishedAt"], Value::Null, "{end}");
}
