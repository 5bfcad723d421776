//! Results of probes survive a restart of the agent: a container that still runs keeps those that
//! were saved of it, and no other container gets them.

use edged::agent::event::Event;
use edged::limits;
use edged::model::cri::{ContainerId, ContainerState};
use edged::model::map::Map;
use edged::model::net::Finding;
use edged::model::probe::ProbeResults;
use serde_json::{Value, json};

use crate::harness::{Harness, container, pod, sandbox};

/// The results of one container.
fn only(id: &str, started: bool, ready: bool) -> Map<ContainerId, ProbeResults> {
    [(ContainerId(id.into()), ProbeResults { started, ready })].into()
}

/// A pod whose container `m` has all three probes.
fn probed() -> String {
    let probe = |port: u16| json!({"tcpSocket": {"port": port}, "periodSeconds": 2});
    let main = json!({"name": "m", "image": "i:1", "startupProbe": probe(1),
                      "readinessProbe": probe(2), "livenessProbe": probe(3)});
    pod(&format!(r#""containers":[{main}]"#))
}

fn served(harness: &Harness) -> (bool, bool) {
    let status: Value = harness.status()["containerStatuses"][0].clone();
    (status["started"] == true, status["ready"] == true)
}

/// An agent that starts with these saved results, and finds `x0` running.
fn restarted(left: Map<ContainerId, ProbeResults>) -> Harness {
    let mut harness = Harness::new();
    harness.deliver(Event::SavedProbeResults(left));
    harness.sandboxes.push(sandbox("s1", 0, true));
    harness.containers.push(container("x0", "m", ContainerState::Running));
    harness.manifests(&[&probed()]);
    harness.does_all(&["podsandbox_status s1", "container_status x0"]);
    harness
}

/// The ports that are probed within a period, each with success.
fn requested(harness: &mut Harness) -> Vec<u16> {
    let mut ports = Vec::new();
    for _ in 0..4 {
        harness.pass(500);
        while let Some((_, query)) = harness.queries.first() {
            let edged::model::net::Query::Tcp { port, .. } = query else { panic!("{query:?}") };
            ports.push(*port);
            harness.finds(Finding::Good);
        }
    }
    ports.sort_unstable();
    ports.dedup();
    ports
}

#[test]
fn results_are_saved_when_they_change() {
    let mut harness = Harness::new();
    harness.pass(100_000);
    harness.manifests(&[&probed()]);
    harness.does_all(&["run_podsandbox #0", "podsandbox_status s1", "image_status i:1"]);
    harness.does_all(&["create_container m#0", "start_container c2", "container_status c2"]);
    assert_eq!(harness.saved_results, None, "there are no results yet");
    harness.finds(Finding::Good);
    assert_eq!(harness.saved_results.take(), Some(only("c2", true, false)));
    assert_eq!(requested(&mut harness), [2, 3]);
    assert_eq!(harness.saved_results.take(), Some(only("c2", true, true)));
    requested(&mut harness);
    assert_eq!(harness.saved_results, None, "nothing has changed");
    harness.exits("m", 1);
    harness.pass(2_000);
    assert_eq!(harness.saved_results.take(), Some(Map::new()));
}

#[test]
fn a_container_that_still_runs_keeps_its_results() {
    let mut harness = restarted(only("x0", true, true));
    assert_eq!(served(&harness), (true, true));
    assert_eq!(harness.status()["conditions"][2]["status"], "True", "Ready");
    // Startup is not probed again. The others probe the current state.
    assert_eq!(requested(&mut harness), [2, 3]);
    assert_eq!(harness.saved_results, None, "it is as it was");
    for round in 1..=3 {
        harness.pass(2_000);
        harness.queries.sort_by_key(|(_, query)| format!("{query:?}"));
        harness.finds(Finding::Bad("no".to_owned()));
        harness.finds(Finding::Good);
        assert_eq!(served(&harness), (true, round < 3), "round {round}");
    }
    assert_eq!(harness.saved_results, Some(only("x0", true, false)));
}

#[test]
fn a_container_that_had_started_and_was_not_ready_stays_so() {
    let mut harness = restarted(only("x0", true, false));
    assert_eq!(served(&harness), (true, false));
    assert_eq!(requested(&mut harness), [2, 3]);
    assert_eq!(served(&harness), (true, true));
}

#[test]
fn results_do_not_count_for_another_container() {
    let mut harness = restarted(only("x9", true, true));
    assert_eq!(served(&harness), (false, false));
    assert_eq!(harness.saved_results, Some(Map::new()), "all was inspected: it is gone");
    assert_eq!(requested(&mut harness), [1, 2, 3]);
    assert_eq!(harness.saved_results, Some(only("x0", true, true)));
}

#[test]
fn loaded_results_are_kept_until_all_pods_have_been_inspected() {
    let mut harness = Harness::new();
    harness.deliver(Event::SavedProbeResults(only("x0", true, true)));
    harness.sandboxes.push(sandbox("s1", 0, true));
    harness.containers.push(container("x0", "m", ContainerState::Running));
    harness.pass(10 * limits::RELIST_GAP_MAX_MS);
    assert_eq!(harness.saved_results, None, "no source has delivered yet");
    harness.manifests(&[&probed()]);
    assert_eq!(harness.saved_results, None, "the pod has not been inspected yet");
    harness.does_all(&["podsandbox_status s1", "container_status x0"]);
    assert_eq!(harness.saved_results, None, "it holds");
}

#[test]
fn a_sidecar_that_had_started_lets_the_main_container_start() {
    let mut harness = Harness::new();
    harness.deliver(Event::SavedProbeResults(only("x0", true, true)));
    harness.sandboxes.push(sandbox("s1", 0, true));
    harness.containers.push(container("x0", "side", ContainerState::Running));
    let probe = json!({"tcpSocket": {"port": 1}, "periodSeconds": 3600});
    let side = json!({"name": "side", "image": "i:1", "restartPolicy": "Always",
                      "startupProbe": probe});
    let main = json!({"name": "m", "image": "i:1"});
    harness.manifests(&[&pod(&format!(r#""initContainers":[{side}],"containers":[{main}]"#))]);
    harness.does_all(&["podsandbox_status s1", "container_status x0"]);
    // Nothing happens in between that has the pod looked at.
    harness.does_all(&["image_status i:1", "create_container m#0"]);
}

#[test]
fn a_result_that_probes_have_refuted_is_not_saved_while_the_rest_is_inspected() {
    let mut harness = Harness::new();
    harness.deliver(Event::SavedProbeResults(only("x1", true, true)));
    harness.sandboxes.push(sandbox("s1", 0, true));
    harness.containers.push(container("x0", "m", ContainerState::Running));
    harness.containers.push(container("x1", "n", ContainerState::Running));
    let probe = json!({"tcpSocket": {"port": 2}, "periodSeconds": 2, "failureThreshold": 1});
    let main = json!({"name": "n", "image": "i:1", "readinessProbe": probe});
    harness.manifests(&[&pod(&format!(r#""containers":[{main},{{"name":"m","image":"i:1"}}]"#))]);
    harness.does_all(&["podsandbox_status s1", "container_status x1"]);
    // The runtime does not say how `m` is, and the pod waits for that.
    let (_, _) = harness.take("container_status x0");
    harness.pass(2_000);
    harness.finds(Finding::Bad("no".to_owned()));
    assert_eq!(harness.saved_results, Some(Map::new()), "`n` is not ready any more");
    // The container in its place is another one.
    harness.exits("n", 1);
    harness.pass(2_000);
    assert_eq!(harness.saved_results, Some(Map::new()));
}
