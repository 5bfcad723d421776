//! The rounds of probes: when each runs, and for which container it counts.

use edged::agent::event::Event;
use edged::limits;
use edged::model::cri::{Code, ContainerState, Reply};
use edged::model::map::Map;
use edged::model::net::{Finding, Query};
use serde_json::{Value, json};

use crate::harness::{Harness, container, pod, sandbox};

const NOTHING: [&str; 0] = [];

/// The agent is older than any period here; the runtime reports changes, so that only the probes
/// wake it.
fn harness() -> Harness {
    let mut harness = Harness::with_stream(true);
    harness.pass(100_000);
    harness
}

/// Main containers with these fields run.
fn run(containers: &[Value]) -> Harness {
    let mut harness = harness();
    harness.manifests(&[&pod(&format!(r#""containers":{}"#, json!(containers)))]);
    harness.works();
    harness
}

fn tcp(port: u16, period_s: u32) -> Value {
    json!({"tcpSocket": {"port": port}, "periodSeconds": period_s})
}

/// The ports with open probes, in order.
fn requested(harness: &Harness) -> Vec<u16> {
    let port = |query: &Query| match query {
        Query::Tcp { port, .. } => *port,
        other => panic!("{other:?}"),
    };
    let mut ports: Vec<u16> = harness.queries.iter().map(|(_, query)| port(query)).collect();
    ports.sort_unstable();
    ports
}

/// Open probes are answered with success, port by port.
fn succeed(harness: &mut Harness) {
    while !harness.queries.is_empty() {
        harness.finds(Finding::Good);
    }
}

fn served(harness: &Harness, at: usize) -> (bool, bool) {
    let status = harness.status()["containerStatuses"][at].clone();
    (status["started"] == true, status["ready"] == true)
}

#[test]
fn rounds_follow_each_other_by_their_period() {
    let main = json!({"name": "m", "image": "i:1", "readinessProbe": tcp(1, 7)});
    let mut harness = run(&[main]);
    harness.finds(Finding::Good);
    while requested(&harness).is_empty() {
        harness.pass(1);
    }
    let first = harness.now.boot;
    for round in 1..4 {
        // However long the answer takes.
        harness.pass(100 + 1_000 * round);
        harness.finds(Finding::Good);
        harness.pass(first.plus_ms(7_000 * round - 1).since_ms(harness.now.boot));
        assert_eq!(requested(&harness), [0; 0], "round {round}");
        harness.pass(1);
        assert_eq!(requested(&harness), [1], "round {round}");
    }
}

#[test]
fn the_other_probes_begin_with_the_end_of_startup_and_their_periods_too() {
    let main = json!({"name": "m", "image": "i:1", "startupProbe": tcp(1, 7),
                      "readinessProbe": tcp(2, 10), "livenessProbe": tcp(3, 10)});
    let mut harness = run(&[main]);
    harness.finds(Finding::Bad("no".to_owned()));
    let before = harness.now.boot;
    harness.pass(10_000);
    assert_eq!(requested(&harness), [1]);
    harness.finds(Finding::Good);
    let began = harness.now.boot;
    assert!(began.since_ms(before) >= 10_000);
    assert_eq!(requested(&harness), [2, 3]);
    succeed(&mut harness);
    assert_eq!(served(&harness, 0), (true, true));
    harness.pass(began.plus_ms(9_899).since_ms(harness.now.boot));
    assert_eq!(requested(&harness), [0; 0], "a whole period after the first");
    harness.pass(101);
    assert_eq!(requested(&harness), [2, 3]);
}

#[test]
fn what_a_probe_says_is_said_of_its_own_container() {
    let mut harness = run(&[
        json!({"name": "m", "image": "i:1", "startupProbe": tcp(1, 60)}),
        json!({"name": "n", "image": "i:1", "readinessProbe": tcp(2, 60)}),
        json!({"name": "o", "image": "i:1", "readinessProbe": tcp(3, 60)}),
    ]);
    assert_eq!(requested(&harness), [1, 2, 3], "none waits for another's startup");
    let at = harness.queries.iter().position(|(_, query)| format!("{query:?}").contains("port: 2"));
    let ready = harness.queries.remove(at.expect("it is probed"));
    harness.queries.insert(0, ready);
    harness.finds(Finding::Good);
    assert_eq!(
        [0, 1, 2].map(|at| served(&harness, at)),
        [(false, false), (true, true), (true, false)]
    );
    assert_eq!(harness.saved_results.as_ref().map(Map::len), Some(1), "of that one alone");
}

#[test]
fn without_probes_nothing_is_saved_of_them() {
    let harness = run(&[json!({"name": "m", "image": "i:1"})]);
    assert_eq!(served(&harness, 0), (true, true));
    assert_eq!(harness.saved_results, None);
    let liveness = json!({"name": "m", "image": "i:1", "livenessProbe": tcp(1, 60)});
    let mut harness = run(&[liveness]);
    succeed(&mut harness);
    assert_eq!(harness.saved_results, None, "it lives, as one that has just begun");
}

#[cfg(feature = "probes")]
#[test]
fn a_container_is_not_probed_while_its_post_start_runs() {
    let hook = json!({"postStart": {"exec": {"command": ["hi"]}}});
    let mut harness = harness();
    let main = json!({"name": "m", "image": "i:1", "lifecycle": hook, "livenessProbe": tcp(1, 5)});
    harness.manifests(&[&pod(&format!(r#""containers":[{main}]"#))]);
    harness.works_until("exec_sync c2 hi");
    harness.pass(20_000);
    assert_eq!(requested(&harness), [0; 0]);
    harness.exec("c2 hi", 0, "");
    harness.does("container_status c2");
    assert_eq!(requested(&harness), [1]);
}

#[test]
fn a_container_that_we_started_is_probed_though_the_runtime_does_not_tell_of_it() {
    let mut harness = harness();
    let main = json!({"name": "m", "image": "i:1", "livenessProbe": tcp(1, 5)});
    harness.manifests(&[&pod(&format!(r#""containers":[{main}]"#))]);
    harness.works_until("container_status c2");
    harness.refuses("container_status c2", Code::Unknown, "no");
    assert_eq!(requested(&harness), [1]);
}

#[test]
fn what_is_being_stopped_is_not_asked_whether_it_lives() {
    let main = |image: &str| json!({"name": "m", "image": image, "livenessProbe": tcp(1, 5)});
    let mut harness = run(&[main("i:1")]);
    assert_eq!(requested(&harness), [1]);
    harness.manifests(&[&pod(&format!(r#""containers":[{}]"#, main("i:2")))]);
    assert_eq!(harness.open_calls(), ["stop_container c2 30"]);
    assert_eq!(requested(&harness), [0; 0], "open probes are cancelled");
    harness.pass(20_000);
    assert_eq!(requested(&harness), [0; 0]);
}

#[cfg(feature = "probes")]
#[test]
fn what_is_in_its_pre_stop_is_not_asked_whether_it_lives() {
    let main = |image: &str| {
        json!({"name": "m", "image": image, "livenessProbe": tcp(1, 5),
               "lifecycle": {"preStop": {"exec": {"command": ["bye"]}}}})
    };
    let mut harness = run(&[main("i:1")]);
    succeed(&mut harness);
    harness.manifests(&[&pod(&format!(r#""containers":[{}]"#, main("i:2")))]);
    assert_eq!(harness.open_calls(), ["exec_sync c2 bye"]);
    harness.pass(20_000);
    assert_eq!(requested(&harness), [0; 0]);
}

#[test]
fn a_query_about_a_container_that_ends_is_given_up() {
    let main = json!({"name": "m", "image": "i:1", "readinessProbe": tcp(1, 60)});
    let mut harness = run(&[main]);
    assert_eq!(requested(&harness), [1]);
    harness.containers[0].state = ContainerState::Exited;
    harness.pass(limits::RELIST_EVENTED_MS);
    assert_eq!(requested(&harness), [0; 0]);
    // The next instance is probed, and is not ready before its first success.
    harness.works();
    assert_eq!((requested(&harness), served(&harness, 0)), (vec![1], (true, false)));
}

#[test]
fn a_start_in_1970_says_nothing_of_a_delay() {
    let mut harness = harness();
    harness.sandboxes.push(sandbox("s1", 0, true));
    harness.containers.push(container("x0", "m", ContainerState::Running));
    let probe = json!({"tcpSocket": {"port": 1}, "initialDelaySeconds": 300});
    let main = json!({"name": "m", "image": "i:1", "readinessProbe": probe});
    harness.manifests(&[&pod(&format!(r#""containers":[{main}]"#))]);
    harness.pass(limits::RELIST_EVENTED_MS);
    harness.does("podsandbox_status s1");
    let (call, request) = harness.take("container_status x0");
    let Reply::ContainerStatus(mut status) = harness.perform(&request) else {
        panic!("its answer")
    };
    status.started_at = 60_000_000_000;
    let began = harness.now.boot;
    harness.deliver(Event::Cri(call, Ok(Reply::ContainerStatus(status))));
    harness.pass(began.plus_ms(299_000).since_ms(harness.now.boot));
    assert_eq!(requested(&harness), [0; 0]);
    harness.pass(1_000);
    assert_eq!(requested(&harness), [1]);
}

#[test]
fn a_round_after_errors_is_a_round_like_any_other() {
    let probe = json!({"exec": {"command": ["a"]}, "failureThreshold": 1, "periodSeconds": 20});
    let main = json!({"name": "m", "image": "i:1", "livenessProbe": probe});
    let mut harness = harness();
    harness.manifests(&[&pod(&format!(r#""containers":[{main}]"#))]);
    harness.works_until("exec_sync c2 a");
    for round in 0..3 {
        for _ in 0..limits::PROBE_TRIES_MAX {
            assert_eq!(harness.open_calls(), ["exec_sync c2 a"], "round {round}: at once");
            harness.refuses("exec_sync c2 a", Code::Unknown, "no shim");
        }
        assert_eq!(harness.open_calls(), NOTHING, "round {round}");
        harness.pass(19_000);
        assert_eq!(harness.open_calls(), NOTHING, "round {round}");
        harness.pass(1_000);
    }
}

#[test]
fn that_a_sidecar_is_begun_again_is_not_said_as_it_is_its_nature() {
    let mut harness = harness();
    let probe = r#""livenessProbe":{"tcpSocket":{"port":1},"failureThreshold":1}"#;
    let sidecar = format!(r#"{{"name":"s","image":"i:1","restartPolicy":"Always",{probe}}}"#);
    harness.manifests(&[&pod(&format!(
        r#""initContainers":[{sidecar}],"containers":[{{"name":"m","image":"i:1"}}]"#
    ))]);
    harness.works();
    harness.finds(Finding::Bad("no".to_owned()));
    let reported = "Killing Init container s failed liveness probe".to_owned();
    assert!(harness.events.contains(&reported), "{:?}", harness.events);
}
