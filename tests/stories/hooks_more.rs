//! Hooks of several containers, interrupted hooks, and their events.

use edged::agent::event::Event;
use edged::limits;
use edged::model::cri::{CallError, ContainerState, Lost, PreStop};
use edged::model::net::{Finding, Query};
use serde_json::Value;

use crate::harness::{Harness, container, pod, sandbox};

const NOTHING: [&str; 0] = [];
const HI: &str = r#""postStart":{"exec":{"command":["hi"]}}"#;
const BYE: &str = r#""preStop":{"exec":{"command":["bye"]}}"#;

/// A container of this name with these hooks.
fn hooked(name: &str, hooks: &str) -> String {
    format!(r#"{{"name":"{name}","image":"i:1","lifecycle":{{{hooks}}}}}"#)
}

fn plain(name: &str) -> String {
    format!(r#"{{"name":"{name}","image":"i:1"}}"#)
}

fn with(containers: &[String], fields: &str) -> String {
    pod(&format!(r#""containers":[{}]{fields}"#, containers.join(",")))
}

/// Main containers with these hooks run; the runtime has performed all requests except hooks.
fn run(containers: &[String], fields: &str) -> Harness {
    let mut harness = Harness::new();
    harness.manifests(&[&with(containers, fields)]);
    while let Some(requested) =
        harness.open_calls().into_iter().find(|it| !it.starts_with("exec_sync"))
    {
        harness.does(&requested);
    }
    harness
}

fn reported(harness: &Harness, event: &str) -> usize {
    harness.events.iter().filter(|it| *it == event).count()
}

fn main_status(harness: &Harness, at: usize) -> Value {
    harness.status()["containerStatuses"][at].clone()
}

const FAILED_STOP: &str = "FailedPreStopHook PreStopHook failed";

#[test]
fn only_the_container_whose_post_start_runs_is_starting() {
    let mut harness = run(&[plain("a"), hooked("b", HI)], "");
    assert_eq!(harness.open_calls(), ["exec_sync c3 hi"]);
    assert_eq!(main_status(&harness, 0)["ready"], true);
    assert!(main_status(&harness, 0)["state"]["running"].is_object());
    assert_eq!(main_status(&harness, 1)["state"]["waiting"]["reason"], "ContainerCreating");
    assert_eq!(main_status(&harness, 1)["ready"], false);
    assert!(
        !harness.events.iter().any(|event| event.starts_with("Killing")),
        "{:?}",
        harness.events
    );
    harness.exec("c3 hi", 0, "");
    harness.does("container_status c3");
    assert!(main_status(&harness, 1)["state"]["running"].is_object());
}

#[test]
fn one_that_is_in_its_pre_stop_still_runs() {
    let mut harness = run(&[hooked("a", BYE)], "");
    harness.manifests(&[]);
    assert_eq!(harness.open_calls(), ["exec_sync c2 bye"]);
    assert!(main_status(&harness, 0)["state"]["running"].is_object());
    assert_eq!(main_status(&harness, 0)["ready"], true);
}

#[test]
fn a_container_that_sleeps_after_its_start_has_started_then() {
    let mut harness = run(&[hooked("a", r#""postStart":{"sleep":{"seconds":5}}"#)], "");
    assert_eq!(main_status(&harness, 0)["started"], false);
    harness.pass(5_000);
    assert_eq!(main_status(&harness, 0)["started"], true);
    // And one that sleeps for no time has at once.
    let harness = run(&[hooked("a", r#""postStart":{"sleep":{"seconds":0}}"#)], "");
    assert_eq!(main_status(&harness, 0)["started"], true);
}

#[test]
fn a_hook_of_a_container_that_ends_is_given_up() {
    let mut harness = run(&[hooked("a", HI)], r#","restartPolicy":"Never""#);
    assert_eq!(harness.open_calls(), ["exec_sync c2 hi"]);
    harness.exits("a", 3);
    assert_eq!(harness.cancelled.len(), 1);
    assert_eq!(harness.open_calls(), ["container_status c2"]);
    harness.does("container_status c2");
    assert_eq!(main_status(&harness, 0)["state"]["terminated"]["exitCode"], 3);

    let mut harness = run(&[hooked("a", BYE)], "");
    harness.manifests(&[]);
    assert_eq!(harness.open_calls(), ["exec_sync c2 bye"]);
    harness.exits("a", 0);
    assert_eq!((harness.cancelled.len(), reported(&harness, FAILED_STOP)), (1, 0));
    harness.works();
    harness.pass(2_000);
    assert_eq!(harness.agent.pods().count(), 0);
}

#[test]
fn a_hook_of_a_container_that_somebody_removed_keeps_no_pod() {
    let mut harness = run(&[hooked("a", HI)], "");
    harness.containers.clear();
    harness.pass(1_000);
    assert_eq!(harness.cancelled.len(), 1);
    harness.manifests(&[]);
    harness.works();
    harness.pass(2_000);
    assert_eq!(harness.agent.pods().count(), 0);
}

#[test]
fn a_post_start_that_its_pod_gave_up_is_given_up_once() {
    let mut harness = run(&[hooked("a", HI)], "");
    harness.manifests(&[]);
    harness.works();
    harness.pass(2_000);
    assert_eq!(harness.cancelled.len(), 1);
    assert_eq!(harness.agent.pods().count(), 0);
}

#[test]
fn a_stop_follows_the_sleep_before_it() {
    let mut harness = run(&[hooked("a", r#""preStop":{"sleep":{"seconds":5}}"#)], "");
    harness.manifests(&[]);
    harness.pass(4_900);
    assert_eq!(harness.open_calls(), NOTHING);
    harness.pass(100);
    assert_eq!(harness.open_calls(), ["stop_container c2 25"]);
    harness.pass(20_000);
    assert_eq!(harness.open_calls(), ["stop_container c2 25"], "it sleeps no second time");
}

#[test]
fn a_sleep_that_is_longer_than_the_grace_period_is_cut_short_and_no_failure() {
    let sleep = r#""preStop":{"sleep":{"seconds":50}}"#;
    let mut harness = run(&[hooked("a", sleep)], r#","terminationGracePeriodSeconds":9"#);
    harness.manifests(&[]);
    harness.pass(8_900);
    assert_eq!(harness.open_calls(), NOTHING);
    harness.pass(100);
    assert_eq!(harness.open_calls(), ["stop_container c2 2"]);
    assert_eq!(reported(&harness, FAILED_STOP), 0);
}

#[test]
fn hooks_of_several_containers_run_side_by_side_and_each_once() {
    let mut harness = run(&[hooked("a", BYE), hooked("b", BYE)], "");
    harness.manifests(&[]);
    assert_eq!(harness.open_calls(), ["exec_sync c3 bye", "exec_sync c2 bye"]);
    harness.exec("c2 bye", 0, "");
    assert_eq!(harness.open_calls(), ["exec_sync c3 bye", "stop_container c2 30"]);
    harness.exec("c3 bye", 1, "");
    assert_eq!(harness.open_calls(), ["stop_container c2 30", "stop_container c3 30"]);
    assert_eq!(reported(&harness, FAILED_STOP), 1);
}

#[test]
fn hooks_that_hang_are_all_given_up_with_the_grace_period() {
    let both = [hooked("a", BYE), hooked("b", BYE)];
    let mut harness = run(&both, r#","terminationGracePeriodSeconds":9"#);
    harness.manifests(&[]);
    harness.pass(9_000);
    assert_eq!(harness.cancelled.len(), 2);
    assert_eq!(harness.open_calls(), ["stop_container c3 2", "stop_container c2 2"]);
}

#[test]
fn a_pre_stop_after_a_failed_post_start_is_given_up_like_any_other() {
    let mut harness =
        run(&[hooked("a", &format!("{HI},{BYE}"))], r#","terminationGracePeriodSeconds":9"#);
    harness.exec("c2 hi", 7, "");
    harness.does("container_status c2");
    assert_eq!(harness.open_calls(), ["exec_sync c2 bye"]);
    assert_eq!(
        (&main_status(&harness, 0)["started"], &main_status(&harness, 0)["ready"]),
        (&false.into(), &false.into())
    );
    harness.pass(9_000);
    assert_eq!(harness.open_calls(), ["stop_container c2 2"]);
    assert_eq!((harness.cancelled.len(), reported(&harness, FAILED_STOP)), (1, 1));
}

#[test]
fn a_get_before_a_stop_is_given_up_with_the_grace_period() {
    let get = r#""preStop":{"httpGet":{"port":80}}"#;
    let mut harness = run(&[hooked("a", get)], r#","terminationGracePeriodSeconds":9"#);
    harness.manifests(&[]);
    assert_eq!(harness.queries.len(), 1);
    harness.pass(9_000);
    assert_eq!(harness.queries.len(), 0);
    assert_eq!(harness.open_calls(), ["stop_container c2 2"]);
}

#[test]
fn a_hook_that_names_no_port_of_its_container_fails() {
    let get = r#""postStart":{"httpGet":{"port":"web"}}"#;
    let mut harness = run(&[hooked("a", get)], "");
    assert_eq!(harness.queries.len(), 0);
    assert!(reported(&harness, "FailedPostStartHook PostStartHook failed") > 0);
    harness.pass(1_000);
    assert!(harness.trace.contains(&"stop_container c2 30".to_owned()), "{:?}", harness.trace);
}

#[test]
fn hooks_wait_for_room() {
    let count = limits::HOOK_CALLS_MAX + 1;
    let all: Vec<_> = (0..count).map(|at| hooked(&format!("m{at}"), BYE)).collect();
    let mut harness = run(&all, "");
    harness.manifests(&[]);
    assert_eq!(harness.open_calls().len(), limits::HOOK_CALLS_MAX);
    let first = harness.open_calls().remove(0);
    harness.exec(first.strip_prefix("exec_sync ").expect("a hook"), 0, "");
    let requested = harness.open_calls();
    let hooks = requested.iter().filter(|call| call.starts_with("exec_sync")).count();
    assert_eq!(hooks, limits::HOOK_CALLS_MAX, "the last one's turn has come");
}

#[cfg(feature = "probes")]
#[test]
fn what_a_probe_wants_stopped_has_the_probes_grace_also_with_a_hook_before() {
    let probe = r#""livenessProbe":{"tcpSocket":{"port":1},"failureThreshold":1,
        "terminationGracePeriodSeconds":7}"#;
    let main = format!(r#"{{"name":"a","image":"i:1",{probe},"lifecycle":{{{BYE}}}}}"#);
    let mut harness = Harness::new();
    harness.pass(100_000);
    harness.manifests(&[&with(&[main], "")]);
    harness.works();
    harness.finds(Finding::Bad("no".to_owned()));
    harness.exec("c2 bye", 0, "");
    assert_eq!(harness.open_calls(), ["stop_container c2 7"]);
}

#[test]
fn a_stop_that_began_with_its_hook_is_not_taken_back() {
    let mut harness = run(&[hooked("a", BYE)], "");
    let other = with(&[hooked("a", BYE)], "").replace("i:1", "i:2");
    harness.manifests(&[&other]);
    assert_eq!(harness.open_calls(), ["exec_sync c2 bye"]);
    harness.manifests(&[&with(&[hooked("a", BYE)], "")]);
    harness.exec("c2 bye", 0, "");
    harness.does_all(&["stop_container c2 30", "container_status c2", "image_status i:1"]);
}

#[test]
fn while_a_sidecar_is_stopped_for_another_image_what_it_gates_does_not_begin() {
    let mut harness = Harness::new();
    harness.images = vec!["i:1", "s:1"];
    let spec = |sidecar: &str| {
        pod(&format!(
            r#""initContainers":[{{"name":"s","image":"{sidecar}","restartPolicy":"Always",
                "lifecycle":{{{BYE}}}}}],"containers":[{{"name":"m","image":"gone:1"}}]"#
        ))
    };
    harness.manifests(&[&spec("s:1")]);
    harness.works_until("pull_image gone:1");
    harness.refuses("pull_image gone:1", edged::model::cri::Code::NotFound, "not found");
    harness.does("image_status gone:1");
    harness.manifests(&[&spec("s:2")]);
    assert_eq!(harness.open_calls(), ["exec_sync c2 bye"]);
    harness.pass(15_000);
    assert_eq!(harness.open_calls(), ["exec_sync c2 bye"]);
}

#[test]
fn what_is_dead_is_not_removed_unseen_while_a_post_start_runs() {
    let mut harness = Harness::new();
    harness.sandboxes = vec![sandbox("s0", 0, false)];
    harness.manifests(&[&with(&[hooked("a", HI)], "")]);
    harness.works_until("exec_sync c2 hi");
    assert_eq!(harness.open_calls(), ["exec_sync c2 hi", "remove_podsandbox s0"]);
    harness.taken.lists_wait = true;
    let (call, _) = harness.take("remove_podsandbox s0");
    harness.deliver(Event::Cri(call, Err(CallError::Lost(Lost::Deadline))));
    harness.pass(60_000);
    assert!(!harness.open_calls().iter().any(|call| call.starts_with("remove_")));
}

#[test]
fn a_container_that_the_runtime_lost_track_of_has_no_hook() {
    let mut harness = Harness::new();
    harness.sandboxes.push(sandbox("s1", 0, true));
    harness.containers.push(container("x0", "a", ContainerState::Unknown));
    harness.manifests(&[&with(&[hooked("a", BYE)], "")]);
    harness.does_all(&["podsandbox_status s1", "container_status x0"]);
    assert_eq!(harness.open_calls(), ["stop_container x0 30"]);
}

#[test]
fn a_start_hook_whose_connection_is_lost_has_failed() {
    let mut harness = run(&[hooked("a", HI)], "");
    let (call, _) = harness.take("exec_sync c2 hi");
    harness.deliver(Event::Cri(call, Err(CallError::Lost(Lost::Connection))));
    harness.does_all(&["container_status c2", "stop_container c2 30", "container_status c2"]);
    assert_eq!(main_status(&harness, 0)["state"]["waiting"]["reason"], "PostStartHookError");
}

/// A container `m` of a pod whose manifest is gone, with this hook noted.
fn orphan(handler: &str, ready: bool, state: ContainerState) -> Harness {
    let mut harness = Harness::new();
    let mut left = container("c1", "m", state);
    left.pre_stop = Some(Box::new(PreStop { handler: handler.into(), ports: "".into() }));
    harness.sandboxes.push(sandbox("s1", 0, ready));
    harness.containers.push(left);
    harness.manifests(&[]);
    harness
}

#[test]
fn an_orphan_is_asked_for_its_address_only_where_a_hook_needs_it() {
    let (up, get) = (ContainerState::Running, r#"{"httpGet":{"port":80}}"#);
    assert_eq!(orphan(get, true, up).open_calls(), ["podsandbox_status s1"]);
    // A dead sandbox has none, a container that has ended no hook.
    assert_eq!(orphan(get, false, up).open_calls(), ["stop_container c1 2"]);
    assert_eq!(orphan(get, true, ContainerState::Exited).open_calls(), ["stop_podsandbox s1"]);
    let harness = orphan(r#"{"httpGet":{"port":80,"host":"192.0.2.7"}}"#, true, up);
    assert_eq!(harness.open_calls(), NOTHING);
    let [(_, Query::Http(query))] = &harness.queries[..] else { panic!("no query") };
    assert_eq!(&*query.host, "192.0.2.7");
}

#[test]
fn a_hook_that_can_be_read_is_not_told_to_have_failed_and_another_is_once() {
    let mut harness = orphan(r#"{"exec":{"command":["bye"]}}"#, true, ContainerState::Running);
    harness.exec("c1 bye", 0, "");
    assert_eq!(reported(&harness, FAILED_STOP), 0);
    let mut harness = orphan("{", true, ContainerState::Running);
    for _ in 0..3 {
        harness.refuses("stop_container c1 2", edged::model::cri::Code::Unknown, "no");
        harness.pass(limits::RETRY_MS);
    }
    assert_eq!(reported(&harness, FAILED_STOP), 1);
}

#[test]
fn a_container_that_its_pod_no_longer_names_does_not_come_back_for_its_hook() {
    let mut harness = Harness::new();
    let mut left = container("x0", "old", ContainerState::Exited);
    left.pre_stop = Some(Box::new(PreStop { handler: "{}".into(), ports: "".into() }));
    harness.sandboxes.push(sandbox("s1", 0, true));
    harness.containers.push(left);
    harness.manifests(&[&with(&[plain("a")], "")]);
    harness.works();
    assert_eq!(harness.running(), ["a"]);
    assert_eq!(harness.status()["containerStatuses"].as_array().map(Vec::len), Some(1));
}
