//! Lifecycle hooks: when they run, and the effects of failures.

use edged::limits;
use edged::model::cri::{Code, ContainerState, PreStop, Request};
use edged::model::net::{Finding, Query};
use serde_json::Value;

use crate::harness::{Harness, container, pod, sandbox};

/// The main container `m` has this lifecycle; its start was asked for and done.
fn start(lifecycle: &str, pod_fields: &str) -> Harness {
    let mut harness = Harness::new();
    let container = format!(r#"{{"name":"m","image":"i:1","lifecycle":{lifecycle}}}"#);
    harness.manifests(&[&pod(&format!(r#""containers":[{container}]{pod_fields}"#))]);
    harness.does_all(&[
        "run_podsandbox #0",
        "podsandbox_status s1",
        "image_status i:1",
        "create_container m#0",
        "start_container c2",
    ]);
    harness
}

fn run(lifecycle: &str, pod_fields: &str) -> Harness {
    let mut harness = start(lifecycle, pod_fields);
    harness.does("container_status c2");
    harness
}

fn main_state(harness: &Harness) -> Value {
    harness.status()["containerStatuses"][0]["state"].clone()
}

fn was_told(harness: &Harness, reported: &str) {
    assert!(
        harness.events.iter().any(|event| event == reported),
        "{reported}: {:?}",
        harness.events
    );
}

#[test]
fn a_failed_post_start_keeps_no_other_from_beginning() {
    let mut harness = Harness::new();
    harness.manifests(&[&pod(r#""containers":[{"name":"a","image":"i:1","lifecycle":{
            "postStart":{"exec":{"command":["hi"]}},"preStop":{"exec":{"command":["bye"]}}}},
        {"name":"b","image":"i:2","lifecycle":{"postStart":{"exec":{"command":["there"]}}}}]"#)]);
    harness.does_all(&["run_podsandbox #0", "podsandbox_status s1", "image_status i:1"]);
    harness.does_all(&["create_container a#0", "start_container c2"]);
    harness.exec("c2 hi", 1, "");
    harness.does_all(&["container_status c2", "image_status i:2", "create_container b#0"]);
    harness.does("start_container c3");
    assert_eq!(harness.open_calls(), ["exec_sync c2 bye", "exec_sync c3 there"]);
}

#[test]
fn nothing_else_begins_until_post_start_is_over() {
    let mut harness = Harness::new();
    harness.manifests(&[&pod(r#""containers":[{"name":"a","image":"i:1",
                          "lifecycle":{"postStart":{"exec":{"command":["hi"]}}}},
                         {"name":"b","image":"i:2"}]"#)]);
    harness.does_all(&[
        "run_podsandbox #0",
        "podsandbox_status s1",
        "image_status i:1",
        "create_container a#0",
        "start_container c2",
    ]);
    harness.pass(60_000);
    assert_eq!(harness.open_calls(), ["exec_sync c2 hi"]);
    assert_eq!(harness.status()["phase"], "Pending");
    assert_eq!(main_state(&harness)["waiting"]["reason"], "ContainerCreating");
    harness.exec("c2 hi", 0, "");
    harness.does_all(&["container_status c2", "image_status i:2", "create_container b#0"]);
    assert!(main_state(&harness)["running"].is_object());
}

#[test]
fn a_container_whose_post_start_fails_is_killed_and_tried_again() {
    let hooks =
        r#"{"postStart":{"exec":{"command":["hi"]}},"preStop":{"exec":{"command":["bye"]}}}"#;
    let mut harness = start(hooks, "");
    harness.exec("c2 hi", 7, "secret\n");
    was_told(&harness, "FailedPostStartHook PostStartHook failed");
    harness.does("container_status c2");
    was_told(&harness, "Killing FailedPostStartHook");
    // The other hook runs all the same.
    harness.exec("c2 bye", 0, "");
    harness.does_all(&["stop_container c2 30", "container_status c2"]);
    let waiting = &main_state(&harness)["waiting"];
    assert_eq!(waiting["reason"], "PostStartHookError");
    assert_eq!(
        waiting["message"],
        "Exec lifecycle hook ([hi]) for Container \"m\" in Pod \"p-gw_default(u1)\" failed - \
         error: command 'hi' exited with 7: secret, message: \"secret\\n\""
    );
    harness.does_all(&["image_status i:1", "create_container m#1", "start_container c3"]);
    harness.exec("c3 hi", 0, "");
    harness.does("container_status c3");
    assert!(main_state(&harness)["running"].is_object());
}

#[test]
fn a_post_start_by_get_asks_the_pods_own_address_and_any_answer_will_do() {
    let get = r#"{"postStart":{"httpGet":{"port":8080,"path":"hello"}}}"#;
    let mut harness = start(get, "");
    let Query::Http(query) = &harness.queries[0].1 else { panic!("a GET") };
    assert_eq!((&*query.host, query.port, &*query.target), ("10.0.0.5", 8080, "/hello"));
    harness.finds(Finding::Good);
    harness.does("container_status c2");
}

#[test]
fn a_hook_over_tls_that_meets_plain_http_asks_again_without_its_secrets() {
    let get = r#"{"postStart":{"httpGet":{"port":8080,"scheme":"HTTPS",
                  "httpHeaders":[{"name":"Authorization","value":"x"}]}}}"#;
    if !cfg!(feature = "probe-https") {
        let mut harness = Harness::new();
        let container = format!(r#"{{"name":"m","image":"i:1","lifecycle":{get}}}"#);
        harness.manifests(&[&pod(&format!(r#""containers":[{container}]"#))]);
        harness.pass(1_000);
        assert_eq!(harness.status()["reason"], "UnsupportedFeature");
        return;
    }
    let mut harness = start(get, "");
    harness.finds(Finding::NotTls("http: server gave HTTP response to HTTPS client".to_owned()));
    let Query::Http(query) = &harness.queries[0].1 else { panic!("a GET") };
    assert!(!query.tls && query.headers.iter().all(|(name, _)| name != "Authorization"));
    harness.finds(Finding::Good);
    was_told(
        &harness,
        "LifecycleHTTPFallback request to HTTPS lifecycle hook 10.0.0.5:8080 got HTTP response, \
         retry with HTTP succeeded",
    );
    harness.does("container_status c2");
}

#[test]
fn post_start_may_sleep() {
    let mut harness = start(r#"{"postStart":{"sleep":{"seconds":5}}}"#, "");
    harness.pass(4_900);
    assert_eq!(harness.open_calls(), [""; 0]);
    harness.pass(200);
    assert_eq!(harness.open_calls(), ["container_status c2"]);
}

#[test]
fn pre_stop_runs_once_before_the_stop_and_takes_of_its_grace() {
    let mut harness = run(r#"{"preStop":{"exec":{"command":["bye"]}}}"#, "");
    harness.manifests(&[]);
    assert_eq!(harness.open_calls(), ["exec_sync c2 bye"]);
    was_told(&harness, "Killing Stopping container m");
    harness.pass(12_400);
    assert_eq!(harness.open_calls(), ["exec_sync c2 bye"]);
    harness.exec("c2 bye", 0, "");
    // Twelve whole seconds are gone.
    harness.refuses("stop_container c2 18", Code::Unknown, "busy");
    harness.pass(1_000);
    assert_eq!(harness.open_calls(), ["stop_container c2 17"], "the hook is not run again");
    harness.does("stop_container c2 17");
    assert_eq!(harness.events.iter().filter(|event| event.starts_with("Killing")).count(), 1);
}

#[test]
fn a_failed_pre_stop_keeps_nothing_from_being_stopped() {
    let mut harness = run(r#"{"preStop":{"exec":{"command":["bye"]}}}"#, "");
    harness.manifests(&[]);
    harness.exec("c2 bye", 1, "secret");
    was_told(&harness, "FailedPreStopHook PreStopHook failed");
    assert!(!harness.events.iter().any(|event| event.contains("secret")));
    harness.does("stop_container c2 30");
}

#[test]
fn a_pre_stop_that_hangs_is_given_up_with_its_grace_and_two_seconds_are_left() {
    let mut harness =
        run(r#"{"preStop":{"exec":{"command":["bye"]}}}"#, r#","terminationGracePeriodSeconds":9"#);
    harness.manifests(&[]);
    harness.pass(8_900);
    assert_eq!(harness.open_calls(), ["exec_sync c2 bye"]);
    harness.pass(200);
    assert_eq!(harness.open_calls(), ["stop_container c2 2"]);
    assert_eq!(harness.cancelled.len(), 1);
    was_told(&harness, "FailedPreStopHook PreStopHook failed");
}

#[test]
fn a_sleep_before_the_stop_ends_with_the_container() {
    let mut harness = run(r#"{"preStop":{"sleep":{"seconds":20}}}"#, "");
    harness.manifests(&[]);
    harness.pass(5_000);
    assert_eq!(harness.open_calls(), [""; 0], "asleep");
    harness.exits("m", 0);
    assert_eq!(harness.open_calls(), ["stop_podsandbox s1"], "nothing is left to be stopped");
}

#[test]
fn a_sleep_of_nothing_is_over_at_once() {
    let mut harness = run(r#"{"preStop":{"sleep":{"seconds":0}}}"#, "");
    harness.manifests(&[]);
    harness.pass(100);
    assert_eq!(harness.open_calls(), ["stop_container c2 30"]);
}

#[test]
fn hooks_of_sidecars_begin_with_the_others_and_their_stop_comes_after() {
    let mut harness = Harness::new();
    harness.images = vec!["i:1", "s:1"];
    harness.manifests(&[&pod(
        r#""initContainers":[{"name":"s","image":"s:1","restartPolicy":"Always",
            "lifecycle":{"preStop":{"exec":{"command":["bye"]}}}}],
           "containers":[{"name":"m","image":"i:1"}]"#,
    )]);
    harness.does_all(&[
        "run_podsandbox #0",
        "podsandbox_status s1",
        "image_status s:1",
        "create_container s#0",
        "start_container c2",
        "container_status c2",
        "image_status i:1",
        "create_container m#0",
        "start_container c3",
        "container_status c3",
    ]);
    harness.manifests(&[]);
    let mut requested = harness.open_calls();
    requested.sort();
    assert_eq!(requested, ["exec_sync c2 bye", "stop_container c3 30"]);
    harness.exec("c2 bye", 0, "");
    assert_eq!(harness.open_calls(), ["stop_container c3 30"], "the sidecar waits for its turn");
    harness.does_all(&["stop_container c3 30", "stop_container c2 30"]);
}

#[test]
fn none_restarts_while_another_is_in_its_pre_stop() {
    let mut harness = Harness::new();
    harness.images = vec!["i:1", "s:1"];
    harness.manifests(&[&pod(
        r#""initContainers":[{"name":"s","image":"s:1","restartPolicy":"Always"}],
           "containers":[{"name":"m","image":"i:1","lifecycle":{
             "postStart":{"exec":{"command":["hi"]}},"preStop":{"exec":{"command":["bye"]}}}}]"#,
    )]);
    harness.does_all(&[
        "run_podsandbox #0",
        "podsandbox_status s1",
        "image_status s:1",
        "create_container s#0",
        "start_container c2",
        "container_status c2",
        "image_status i:1",
        "create_container m#0",
        "start_container c3",
    ]);
    harness.exec("c3 hi", 7, "");
    harness.does("container_status c3");
    harness.exits("s", 1);
    harness.does("container_status c2");
    assert_eq!(harness.open_calls(), ["exec_sync c3 bye"], "the hook is part of a stop");
    harness.exec("c3 bye", 0, "");
    harness.does_all(&["stop_container c3 29", "container_status c3", "image_status s:1"]);
    harness.does("create_container s#1");
}

#[test]
fn a_pod_that_ends_gives_up_its_post_start() {
    let mut harness = start(r#"{"postStart":{"exec":{"command":["hi"]}}}"#, "");
    assert_eq!(harness.open_calls(), ["exec_sync c2 hi"]);
    harness.manifests(&[]);
    assert_eq!(harness.open_calls(), ["stop_container c2 30"]);
    assert_eq!(harness.cancelled.len(), 1);
}

#[test]
fn one_whose_post_start_failed_is_not_said_to_be_ready_because_its_pod_ends() {
    let mut harness = start(r#"{"postStart":{"exec":{"command":["hi"]}}}"#, "");
    harness.exec("c2 hi", 7, "");
    harness.does("container_status c2");
    assert_eq!(harness.open_calls(), ["stop_container c2 30"]);
    harness.manifests(&[]);
    let reported = harness.status()["containerStatuses"][0].clone();
    assert_eq!(
        (&reported["started"], &reported["ready"]),
        (&false.into(), &false.into()),
        "{reported}"
    );
}

#[test]
fn what_is_dead_goes_while_a_post_start_runs() {
    let mut harness = Harness::new();
    harness.sandboxes = vec![sandbox("s0", 0, false)];
    harness.manifests(&[&pod(r#""containers":[{"name":"m","image":"i:1",
                          "lifecycle":{"postStart":{"exec":{"command":["hi"]}}}}]"#)]);
    harness.does_all(&[
        "stop_podsandbox s0",
        "run_podsandbox #1",
        "podsandbox_status s1",
        "image_status i:1",
        "create_container m#0",
        "start_container c2",
    ]);
    assert_eq!(harness.open_calls(), ["exec_sync c2 hi", "remove_podsandbox s0"]);
    harness.does("remove_podsandbox s0");
    harness.pass(60_000);
    assert_eq!(harness.open_calls(), ["exec_sync c2 hi"]);
}

#[test]
fn a_later_agent_finds_the_hook_on_the_container() {
    let mut harness = Harness::new();
    let hook = r#"{"exec":{"command":["bye"]}}"#;
    let container = format!(r#"{{"name":"m","image":"i:1","lifecycle":{{"preStop":{hook}}}}}"#);
    harness.manifests(&[&pod(&format!(r#""containers":[{container}]"#))]);
    harness.does_all(&["run_podsandbox #0", "podsandbox_status s1", "image_status i:1"]);
    let (_, request) = harness.take("create_container m#0");
    let Request::CreateContainer { config, .. } = request else { panic!("{request:?}") };
    let key = "io.kubernetes.container.preStopHandler";
    assert_eq!(config.annotations.get(key).map(String::as_str), Some(hook));
}

/// The container `m` of a pod whose manifest is gone runs, with this hook and these ports noted.
fn orphan(handler: &str, ports: &str) -> Harness {
    let mut harness = Harness::new();
    let mut left = container("c1", "m", ContainerState::Running);
    let (handler, ports) = (handler.into(), ports.into());
    left.pre_stop = Some(Box::new(PreStop { handler, ports }));
    harness.sandboxes.push(sandbox("s1", 0, true));
    harness.containers.push(left);
    harness.manifests(&[]);
    harness
}

#[test]
fn a_pod_whose_manifest_is_gone_still_has_its_pre_stop() {
    let mut harness = orphan(r#"{"exec":{"command":["bye"]}}"#, "");
    assert_eq!(harness.open_calls(), ["exec_sync c1 bye"]);
    was_told(&harness, "Killing Stopping container m");
    harness.exec("c1 bye", 0, "");
    harness.does("stop_container c1 2");
}

#[test]
fn the_pre_stop_of_an_orphan_has_no_more_time_than_its_grace() {
    let mut harness = orphan(r#"{"exec":{"command":["bye"]}}"#, "");
    let grace_ms = limits::GRACE_ORPHAN_S as u64 * 1_000;
    harness.pass(grace_ms - 1);
    assert_eq!(harness.open_calls(), ["exec_sync c1 bye"]);
    harness.pass(1);
    was_told(&harness, "FailedPreStopHook PreStopHook failed");
    harness.does("stop_container c1 2");
}

#[test]
fn a_hook_over_http_finds_an_orphan_by_what_the_runtime_knows() {
    let get = r#"{"httpGet":{"path":"/bye","port":"web"}}"#;
    let mut harness = orphan(get, r#"[{"name":"web","containerPort":8080,"protocol":"TCP"}]"#);
    assert_eq!(harness.open_calls(), ["podsandbox_status s1"]);
    harness.does("podsandbox_status s1");
    let [(_, Query::Http(query))] = &harness.queries[..] else { panic!("no query") };
    assert_eq!((&*query.host, query.port, &*query.target), ("10.0.0.5", 8080, "/bye"));
    harness.finds(Finding::Good);
    harness.does("stop_container c1 2");
    // One whose address cannot be found out is stopped all the same.
    let mut harness = orphan(get, "");
    harness.refuses("podsandbox_status s1", Code::Internal, "no");
    harness.pass(1_100);
    harness.refuses("podsandbox_status s1", Code::Internal, "no");
    harness.does("stop_container c1 2");
}

#[test]
fn what_is_noted_and_cannot_be_read_keeps_no_orphan() {
    for (handler, ports) in [("{", ""), ("[]", ""), (r#"{"sleep":{"seconds":1}}"#, "{}")] {
        let mut harness = orphan(handler, ports);
        was_told(&harness, "FailedPreStopHook PreStopHook failed");
        harness.does("stop_container c1 2");
    }
}
