//! Probes: when they run, and the effects of their results.

use edged::agent::event::Event;
use edged::limits;
use edged::model::cri::{CallError, Code, ContainerState, Lost, Reply};
use edged::model::net::{Finding, Query};
use serde_json::{Value, json};

use crate::harness::{Harness, container, pod, sandbox};

/// An agent that is older than any period here: it does not spread probes.
fn harness() -> Harness {
    let mut harness = Harness::new();
    harness.pass(100_000);
    harness
}

/// A main container `m` with these fields, and a pod with these; it runs.
fn start(fields: &Value, pod_fields: &str) -> Harness {
    let mut harness = harness();
    let mut container = json!({"name": "m", "image": "i:1"});
    let map = container.as_object_mut().expect("a map");
    map.extend(fields.as_object().expect("a map").clone());
    harness.manifests(&[&pod(&format!(r#""containers":[{container}]{pod_fields}"#))]);
    harness.does_all(&["run_podsandbox #0", "podsandbox_status s1"]);
    start_main(&mut harness, 0, "c2");
    harness
}

fn start_main(harness: &mut Harness, attempt: u32, id: &str) {
    harness.does_all(&[
        "image_status i:1",
        &format!("create_container m#{attempt}"),
        &format!("start_container {id}"),
        &format!("container_status {id}"),
    ]);
}

fn status(harness: &Harness) -> Value {
    harness.status()["containerStatuses"][0].clone()
}

fn condition(harness: &Harness, kind: &str) -> Value {
    let status = harness.status();
    let mut all = status["conditions"].as_array().expect("conditions").iter();
    all.find(|condition| condition["type"] == kind).expect(kind).clone()
}

fn bad() -> Finding {
    Finding::Bad("HTTP probe failed with statuscode: 500".to_owned())
}

const TCP: &str = r#"{"port": 8080}"#;

fn tcp() -> Value {
    serde_json::from_str(TCP).expect("JSON")
}

#[test]
fn a_delay_counts_from_the_containers_start_through_restarts_of_the_agent() {
    let mut harness = harness();
    harness.pass(300_000);
    let started_ms = harness.now.wall.expect("it is set").0 - 290_000;
    harness.sandboxes.push(sandbox("s1", 0, true));
    harness.containers.push(container("x0", "m", ContainerState::Running));
    let probe = json!({"tcpSocket": tcp(), "initialDelaySeconds": 300});
    let main = json!({"name": "m", "image": "i:1", "readinessProbe": probe});
    harness.manifests(&[&pod(&format!(r#""containers":[{main}]"#))]);
    harness.does("podsandbox_status s1");
    let (call, request) = harness.take("container_status x0");
    let Reply::ContainerStatus(mut status) = harness.perform(&request) else {
        panic!("its answer")
    };
    status.started_at = started_ms * 1_000_000;
    harness.deliver(Event::Cri(call, Ok(Reply::ContainerStatus(status))));
    harness.pass(9_000);
    assert_eq!(harness.queries.len(), 0);
    harness.pass(1_500);
    assert_eq!(harness.queries.len(), 1);
}

#[test]
fn a_container_is_ready_once_its_readiness_probe_succeeds_and_not_before_its_delay() {
    let probe = json!({"tcpSocket": tcp(), "initialDelaySeconds": 5, "periodSeconds": 2});
    let mut harness = start(&json!({"readinessProbe": probe}), "");
    assert_eq!(
        (&status(&harness)["started"], &status(&harness)["ready"]),
        (&json!(true), &json!(false))
    );
    assert_eq!(condition(&harness, "Ready")["reason"], "ContainersNotReady");
    harness.pass(4_800);
    assert_eq!(harness.queries.len(), 0, "the delay is not over");
    harness.pass(300);
    let requested = Query::Tcp { host: "10.0.0.5".into(), port: 8080 };
    assert_eq!(harness.queries[0].1, requested);
    harness.finds(Finding::Good);
    assert_eq!(status(&harness)["ready"], true);
    assert_eq!(condition(&harness, "Ready")["status"], "True");
    // Three failures in a row count, and no fewer.
    for round in 1..=3 {
        harness.pass(2_000);
        harness.finds(bad());
        assert_eq!(status(&harness)["ready"], round < 3, "round {round}");
    }
    assert_eq!(condition(&harness, "ContainersReady")["status"], "False");
    let reported = "Unhealthy Readiness probe failed: HTTP probe failed with statuscode: 500";
    assert!(harness.events.iter().any(|event| event == reported), "{:?}", harness.events);
    assert_eq!(status(&harness)["restartCount"], 0, "readiness restarts nothing");
    assert_eq!(harness.open_calls(), [""; 0]);
}

#[test]
fn a_failing_liveness_probe_restarts_the_container_with_the_probes_own_grace() {
    let probe = json!({"exec": {"command": ["cat", "/x"]}, "failureThreshold": 2,
                       "terminationGracePeriodSeconds": 7});
    let mut harness =
        start(&json!({"livenessProbe": probe}), r#","terminationGracePeriodSeconds":500"#);
    harness.exec("c2 cat /x", 1, "no such file");
    assert_eq!(harness.open_calls(), [""; 0], "one failure is not enough");
    harness.pass(10_000);
    harness.exec("c2 cat /x", 1, "no such file");
    harness.does("stop_container c2 7");
    for reported in [
        "Unhealthy Liveness probe failed: no such file",
        "Killing Container m failed liveness probe, will be restarted",
    ] {
        assert!(
            harness.events.iter().any(|event| event == reported),
            "{reported}: {:?}",
            harness.events
        );
    }
    harness.does("container_status c2");
    start_main(&mut harness, 1, "c3");
    assert_eq!(status(&harness)["restartCount"], 1);
    // The new instance starts without results.
    harness.exec("c3 cat /x", 1, "");
    assert_eq!(harness.open_calls(), [""; 0]);
}

#[test]
fn a_pod_that_never_restarts_is_killed_by_its_liveness_probe_for_good() {
    let probe = json!({"tcpSocket": tcp(), "failureThreshold": 1});
    let mut harness = start(&json!({"livenessProbe": probe}), r#","restartPolicy":"Never""#);
    harness.finds(bad());
    harness.does_all(&["stop_container c2 30", "container_status c2", "stop_podsandbox s1"]);
    harness.pass(2_000);
    assert_eq!(harness.status()["phase"], "Failed");
    let reported = "Killing Container m failed liveness probe";
    assert!(harness.events.iter().any(|event| event == reported), "{:?}", harness.events);
}

#[test]
fn a_container_that_ends_well_when_killed_by_a_probe_is_restarted_on_failure() {
    let probe = json!({"tcpSocket": tcp(), "failureThreshold": 1});
    let mut harness = start(&json!({"livenessProbe": probe}), r#","restartPolicy":"OnFailure""#);
    harness.finds(bad());
    harness.exit_codes.push(("c2".into(), 0));
    harness.does_all(&["stop_container c2 30", "container_status c2"]);
    start_main(&mut harness, 1, "c3");
}

#[test]
fn startup_comes_first_and_the_others_right_after_it() {
    let fields = json!({
        "startupProbe": {"exec": {"command": ["s"]}, "periodSeconds": 5, "failureThreshold": 10},
        "readinessProbe": {"exec": {"command": ["r"]}, "periodSeconds": 60},
        "livenessProbe": {"exec": {"command": ["l"]}, "periodSeconds": 60},
    });
    let mut harness = start(&fields, "");
    harness.exec("c2 s", 1, "");
    assert_eq!(status(&harness)["started"], false);
    harness.pass(4_900);
    assert_eq!(harness.open_calls(), [""; 0], "neither early nor others");
    harness.pass(200);
    harness.exec("c2 s", 0, "");
    assert_eq!(
        (&status(&harness)["started"], &status(&harness)["ready"]),
        (&json!(true), &json!(false))
    );
    let mut requested = harness.open_calls();
    requested.sort();
    assert_eq!(requested, ["exec_sync c2 l", "exec_sync c2 r"]);
    harness.exec("c2 r", 0, "");
    harness.exec("c2 l", 0, "");
    assert_eq!(status(&harness)["ready"], true);
    harness.pass(20_000);
    assert_eq!(harness.open_calls(), [""; 0], "startup has decided");
}

#[test]
fn a_failing_startup_probe_restarts_the_container() {
    let probe = json!({"tcpSocket": tcp(), "failureThreshold": 1,
                       "terminationGracePeriodSeconds": 5});
    let mut harness = start(&json!({"startupProbe": probe}), "");
    harness.finds(bad());
    harness.does("stop_container c2 5");
    let reported = "Killing Container m failed startup probe, will be restarted";
    assert!(harness.events.iter().any(|event| event == reported), "{:?}", harness.events);
}

#[test]
fn the_next_container_waits_for_a_sidecars_startup_probe() {
    let mut harness = harness();
    harness.images = vec!["i:1", "s:1"];
    harness.manifests(&[&pod(
        r#""initContainers":[{"name":"s","image":"s:1","restartPolicy":"Always",
            "startupProbe":{"tcpSocket":{"port":1},"failureThreshold":2}}],
           "containers":[{"name":"m","image":"i:1"}]"#,
    )]);
    harness.does_all(&[
        "run_podsandbox #0",
        "podsandbox_status s1",
        "image_status s:1",
        "create_container s#0",
        "start_container c2",
        "container_status c2",
    ]);
    harness.pass(5_000);
    assert_eq!(harness.open_calls(), [""; 0], "the sidecar has not started");
    assert_eq!(harness.status()["phase"], "Pending");
    harness.finds(bad());
    harness.pass(10_000);
    harness.finds(Finding::Good);
    start_main(&mut harness, 0, "c3");
    assert_eq!(harness.status()["phase"], "Running");
}

#[test]
fn a_sidecars_liveness_probe_restarts_it_alone() {
    let mut harness = harness();
    harness.images = vec!["i:1", "s:1"];
    harness.manifests(&[&pod(
        r#""initContainers":[{"name":"s","image":"s:1","restartPolicy":"Always",
            "livenessProbe":{"tcpSocket":{"port":1},"failureThreshold":1}}],
           "restartPolicy":"Never","containers":[{"name":"m","image":"i:1"}]"#,
    )]);
    harness.does_all(&[
        "run_podsandbox #0",
        "podsandbox_status s1",
        "image_status s:1",
        "create_container s#0",
        "start_container c2",
        "container_status c2",
    ]);
    start_main(&mut harness, 0, "c3");
    harness.finds(bad());
    harness.does_all(&[
        "stop_container c2 30",
        "container_status c2",
        "image_status s:1",
        "create_container s#1",
        "start_container c4",
        "container_status c4",
    ]);
    let reported = "Killing Init container s failed liveness probe";
    assert!(harness.events.iter().any(|event| event == reported), "{:?}", harness.events);
}

#[test]
fn a_pod_that_ends_is_asked_whether_it_is_ready_and_nothing_else() {
    let probe = |command: &str| {
        json!({"exec": {"command": [command]}, "periodSeconds": 1,
                                       "failureThreshold": 1})
    };
    let fields = json!({"readinessProbe": probe("r"), "livenessProbe": probe("l")});
    let mut harness = start(&fields, "");
    harness.exec("c2 r", 0, "");
    harness.exec("c2 l", 0, "");
    assert_eq!(status(&harness)["ready"], true);
    harness.manifests(&[]);
    harness.pass(1_100);
    assert_eq!(harness.open_calls(), ["stop_container c2 30", "exec_sync c2 r"]);
    harness.exec("c2 r", 1, "");
    assert_eq!(status(&harness)["ready"], false);
    harness.pass(1_100);
    assert_eq!(harness.open_calls(), ["stop_container c2 30", "exec_sync c2 r"]);
    harness.does("stop_container c2 30");
    harness.pass(3_000);
    assert!(
        !harness.open_calls().contains(&"exec_sync c2 r".to_owned()),
        "{:?}",
        harness.open_calls()
    );
}

#[test]
fn an_error_is_tried_again_at_once_and_then_counts_for_nothing() {
    let probe = json!({"exec": {"command": ["a"]}, "failureThreshold": 1});
    let mut harness = start(&json!({"livenessProbe": probe}), "");
    let reported = "Unhealthy Liveness probe errored: rpc error: code = Unknown desc = no shim";
    for count in 1..=limits::PROBE_TRIES_MAX {
        harness.refuses("exec_sync c2 a", Code::Unknown, "no shim");
        let reported = harness.events.iter().filter(|event| *event == reported).count();
        assert_eq!(reported, usize::from(count == limits::PROBE_TRIES_MAX), "after {count}");
    }
    assert_eq!(harness.open_calls(), [""; 0]);
    harness.pass(10_000);
    assert_eq!(harness.open_calls(), ["exec_sync c2 a"], "the next round");
}

#[test]
fn of_a_long_failure_the_beginning_is_told() {
    let most = limits::PROBE_SHOWN_BYTES_MAX;
    let (fits, odd) = ("é".repeat(most / 2), format!("x{}", "é".repeat(most / 2)));
    for (output, shown) in [
        (fits.clone(), &*fits),
        (format!("{fits}x"), &fits),
        // A letter of two bytes has no room for its second.
        (odd.clone(), &odd[..most - 1]),
    ] {
        let mut harness = start(&json!({"readinessProbe": {"exec": {"command": ["a"]}}}), "");
        harness.exec("c2 a", 1, &output);
        let reported = format!("Unhealthy Readiness probe failed: {shown}");
        assert!(harness.events.contains(&reported), "{:?}", harness.events);
    }
}

#[test]
fn a_query_that_finds_no_room_is_asked_as_soon_as_there_is_some() {
    let probe = json!({"tcpSocket": tcp(), "periodSeconds": 100});
    let container = |at| {
        json!({"name": format!("m{at}"), "image": "i:1", "livenessProbe": probe,
               "readinessProbe": probe})
    };
    // Two more than the limit.
    let count = limits::PROBE_CONNECTIONS_MAX / 2 + 1;
    let containers: Vec<_> = (0..count).map(container).collect();
    let mut harness = harness();
    harness.manifests(&[&pod(&format!(r#""containers":{}"#, json!(containers)))]);
    harness.works();
    harness.pass(5_000);
    for left in [2, 1, 0] {
        assert_eq!(harness.queries.len(), limits::PROBE_CONNECTIONS_MAX, "{left} wait");
        harness.finds(Finding::Good);
        harness.pass(1_000);
    }
    assert_eq!(harness.queries.len(), limits::PROBE_CONNECTIONS_MAX - 1);
}

#[test]
fn a_command_that_takes_too_long_has_failed() {
    let probe = json!({"exec": {"command": ["sleep", "9"]}, "failureThreshold": 1,
                       "timeoutSeconds": 3});
    let (code, message) = (Code::DeadlineExceeded, "timeout 3s exceeded".to_owned());
    for late in [Lost::Deadline, Lost::Runtime { code, message }] {
        let mut harness = start(&json!({"livenessProbe": probe}), "");
        let (call, _) = harness.take("exec_sync c2 sleep 9");
        harness.deliver(Event::Cri(call, Err(CallError::Lost(late))));
        let reported =
            "Unhealthy Liveness probe failed: command timed out: \"sleep 9\" timed out after 3s";
        assert!(harness.events.iter().any(|event| event == reported), "{:?}", harness.events);
        assert_eq!(harness.open_calls(), ["stop_container c2 30"]);
    }
}

#[test]
fn a_port_that_is_not_there_is_an_error_and_no_failure() {
    let probe = json!({"tcpSocket": {"port": "web"}, "failureThreshold": 1});
    let mut harness = start(&json!({"livenessProbe": probe}), "");
    harness.pass(25_000);
    assert_eq!(harness.queries.len(), 0);
    assert_eq!(harness.open_calls(), [""; 0], "nothing is killed for a manifest's mistake");
    let reported = "Unhealthy Liveness probe errored: couldn't find port: \"web\" in its container";
    assert!(harness.events.iter().any(|event| event == reported), "{:?}", harness.events);
}

#[test]
fn a_redirect_to_elsewhere_is_a_success_that_is_told() {
    let probe = json!({"httpGet": {"port": 80}, "failureThreshold": 1});
    let mut harness = start(&json!({"livenessProbe": probe}), "");
    harness.finds(Finding::Warning("Probe terminated redirects, Response body: x".to_owned()));
    let reported =
        "ProbeWarning Liveness probe warning: Probe terminated redirects, Response body: x";
    assert!(harness.events.iter().any(|event| event == reported), "{:?}", harness.events);
    assert_eq!(harness.open_calls(), [""; 0]);
}

#[test]
fn a_young_agent_spreads_the_first_probes_over_their_period() {
    let mut harness = Harness::new();
    let mut asked_at = Vec::new();
    let pods: Vec<String> = (0..20)
        .map(|n| {
            format!(
                r#"{{"metadata":{{"name":"p{n}","uid":"u{n:02}"}},"spec":{{"containers":
                 [{{"name":"m","image":"i:1","readinessProbe":{{"tcpSocket":{{"port":1}}}}}}]}}}}"#
            )
        })
        .collect();
    let pods: Vec<&str> = pods.iter().map(String::as_str).collect();
    harness.manifests(&pods);
    harness.works();
    assert_eq!(harness.running().len(), 20);
    for second in 0..10 {
        harness.pass(1_000);
        while !harness.queries.is_empty() {
            asked_at.push(second);
            harness.finds(Finding::Good);
        }
    }
    let busy: std::collections::BTreeSet<u32> = asked_at.iter().copied().collect();
    assert_eq!(asked_at.len(), 20, "each once within a period: {asked_at:?}");
    assert!(busy.len() >= 6, "not together: {asked_at:?}");
}

#[test]
fn a_probe_that_finds_no_room_is_asked_as_soon_as_there_is_some() {
    let probe = json!({"exec": {"command": ["a"]}, "periodSeconds": 100});
    let container = |at| json!({"name": format!("m{at}"), "image": "i:1", "livenessProbe": probe});
    let of = |count| {
        let containers: Vec<_> = (0..count).map(container).collect();
        pod(&format!(r#""containers":{}"#, json!(containers)))
    };
    let other = of(1).replace("\"p\"", "\"q\"").replace("u1", "u2");
    let mut harness = harness();
    for pods in [&[&*of(limits::EXEC_CALLS_MAX)][..], &[&of(limits::EXEC_CALLS_MAX), &other]] {
        harness.manifests(pods);
        while let Some(it) = harness.open_calls().iter().find(|it| !it.starts_with("exec")).cloned()
        {
            harness.does(&it);
        }
        harness.pass(5_000);
    }
    let requested = harness.open_calls();
    assert_eq!(requested.len(), limits::EXEC_CALLS_MAX);
    harness.exec(&requested[0]["exec_sync ".len()..], 0, "");
    harness.pass(1_000);
    assert_eq!(harness.open_calls().len(), limits::EXEC_CALLS_MAX, "the one that was left");
}

#[test]
fn a_probe_whose_connection_is_lost_says_nothing_and_is_made_again() {
    let probe = json!({"exec": {"command": ["a"]}, "failureThreshold": 1});
    let mut harness = start(&json!({"livenessProbe": probe}), "");
    for _ in 0..5 {
        let (call, _) = harness.take("exec_sync c2 a");
        harness.deliver(Event::Cri(call, Err(CallError::Lost(Lost::Connection))));
        harness.pass(10_000);
    }
    assert_eq!(harness.open_calls(), ["exec_sync c2 a"], "nothing is killed");
}
