//! Results of probes survive a restart of the agent: a container that still runs keeps those that
//! were saved of it, and no other container gets them.

use std::collections::BTreeMap;

use edged::agent::event::Event;
use edged::limits;
use edged::model::cri::{ContainerId, ContainerState};
use edged::model::net::Finding;
use edged::model::probe::ProbeResults;
use serde_json::{Value, json};

use crate::desk::{Desk, container, pod, sandbox};

/// The results of one container.
fn only(id: &str, started: bool, ready: bool) -> BTreeMap<ContainerId, ProbeResults> {
    [(ContainerId(id.into()), ProbeResults { started, ready })].into()
}

/// A pod whose container `m` has all three probes.
fn probed() -> String {
    let probe = |port: u16| json!({"tcpSocket": {"port": port}, "periodSeconds": 2});
    let main = json!({"name": "m", "image": "i:1", "startupProbe": probe(1),
                      "readinessProbe": probe(2), "livenessProbe": probe(3)});
    pod(&format!(r#""containers":[{main}]"#))
}

fn served(desk: &Desk) -> (bool, bool) {
    let status: Value = desk.status()["containerStatuses"][0].clone();
    (status["started"] == true, status["ready"] == true)
}

/// An agent that starts with these saved results, and finds `x0` running.
fn restarted(left: BTreeMap<ContainerId, ProbeResults>) -> Desk {
    let mut desk = Desk::new();
    desk.tell(Event::SavedProbeResults(left));
    desk.sandboxes.push(sandbox("s1", 0, true));
    desk.containers.push(container("x0", "m", ContainerState::Running));
    desk.manifests(&[&probed()]);
    desk.does_all(&["podsandbox_status s1", "container_status x0"]);
    desk
}

/// The ports that are asked within a period, each time with success.
fn asked(desk: &mut Desk) -> Vec<u16> {
    let mut ports = Vec::new();
    for _ in 0..4 {
        desk.pass(500);
        while let Some((_, query)) = desk.queries.first() {
            let edged::model::net::Query::Tcp { port, .. } = query else { panic!("{query:?}") };
            ports.push(*port);
            desk.finds(Finding::Good);
        }
    }
    ports.sort_unstable();
    ports.dedup();
    ports
}

#[test]
fn results_are_saved_when_they_change() {
    let mut desk = Desk::new();
    desk.pass(100_000);
    desk.manifests(&[&probed()]);
    desk.does_all(&["run_podsandbox #0", "podsandbox_status s1", "image_status i:1"]);
    desk.does_all(&["create_container m#0", "start_container c2", "container_status c2"]);
    assert_eq!(desk.saved_results, None, "there are no results yet");
    desk.finds(Finding::Good);
    assert_eq!(desk.saved_results.take(), Some(only("c2", true, false)));
    assert_eq!(asked(&mut desk), [2, 3]);
    assert_eq!(desk.saved_results.take(), Some(only("c2", true, true)));
    asked(&mut desk);
    assert_eq!(desk.saved_results, None, "nothing has changed");
    desk.exits("m", 1);
    desk.pass(2_000);
    assert_eq!(desk.saved_results.take(), Some(BTreeMap::new()));
}

#[test]
fn a_container_that_still_runs_keeps_its_results() {
    let mut desk = restarted(only("x0", true, true));
    assert_eq!(served(&desk), (true, true));
    assert_eq!(desk.status()["conditions"][2]["status"], "True", "Ready");
    // Startup is not asked again. The others find out how it is now.
    assert_eq!(asked(&mut desk), [2, 3]);
    assert_eq!(desk.saved_results, None, "it is as it was");
    for round in 1..=3 {
        desk.pass(2_000);
        desk.queries.sort_by_key(|(_, query)| format!("{query:?}"));
        desk.finds(Finding::Bad("no".to_owned()));
        desk.finds(Finding::Good);
        assert_eq!(served(&desk), (true, round < 3), "round {round}");
    }
    assert_eq!(desk.saved_results, Some(only("x0", true, false)));
}

#[test]
fn a_container_that_had_started_and_was_not_ready_stays_so() {
    let mut desk = restarted(only("x0", true, false));
    assert_eq!(served(&desk), (true, false));
    assert_eq!(asked(&mut desk), [2, 3]);
    assert_eq!(served(&desk), (true, true));
}

#[test]
fn results_do_not_count_for_another_container() {
    let mut desk = restarted(only("x9", true, true));
    assert_eq!(served(&desk), (false, false));
    assert_eq!(desk.saved_results, Some(BTreeMap::new()), "all was inspected: it is gone");
    assert_eq!(asked(&mut desk), [1, 2, 3]);
    assert_eq!(desk.saved_results, Some(only("x0", true, true)));
}

#[test]
fn loaded_results_are_kept_until_all_pods_have_been_inspected() {
    let mut desk = Desk::new();
    desk.tell(Event::SavedProbeResults(only("x0", true, true)));
    desk.sandboxes.push(sandbox("s1", 0, true));
    desk.containers.push(container("x0", "m", ContainerState::Running));
    desk.pass(10 * limits::RELIST_GAP_MAX_MS);
    assert_eq!(desk.saved_results, None, "no source has delivered yet");
    desk.manifests(&[&probed()]);
    assert_eq!(desk.saved_results, None, "the pod has not been inspected yet");
    desk.does_all(&["podsandbox_status s1", "container_status x0"]);
    assert_eq!(desk.saved_results, None, "it holds");
}

#[test]
fn a_sidecar_that_had_started_lets_the_main_container_start() {
    let mut desk = Desk::new();
    desk.tell(Event::SavedProbeResults(only("x0", true, true)));
    desk.sandboxes.push(sandbox("s1", 0, true));
    desk.containers.push(container("x0", "side", ContainerState::Running));
    let probe = json!({"tcpSocket": {"port": 1}, "periodSeconds": 3600});
    let side = json!({"name": "side", "image": "i:1", "restartPolicy": "Always",
                      "startupProbe": probe});
    let main = json!({"name": "m", "image": "i:1"});
    desk.manifests(&[&pod(&format!(r#""initContainers":[{side}],"containers":[{main}]"#))]);
    desk.does_all(&["podsandbox_status s1", "container_status x0"]);
    // Nothing happens in between that has the pod looked at.
    desk.does_all(&["image_status i:1", "create_container m#0"]);
}

#[test]
fn a_result_that_probes_have_refuted_is_not_saved_while_the_rest_is_inspected() {
    let mut desk = Desk::new();
    desk.tell(Event::SavedProbeResults(only("x1", true, true)));
    desk.sandboxes.push(sandbox("s1", 0, true));
    desk.containers.push(container("x0", "m", ContainerState::Running));
    desk.containers.push(container("x1", "n", ContainerState::Running));
    let probe = json!({"tcpSocket": {"port": 2}, "periodSeconds": 2, "failureThreshold": 1});
    let main = json!({"name": "n", "image": "i:1", "readinessProbe": probe});
    desk.manifests(&[&pod(&format!(r#""containers":[{main},{{"name":"m","image":"i:1"}}]"#))]);
    desk.does_all(&["podsandbox_status s1", "container_status x1"]);
    // The runtime does not say how `m` is, and the pod waits for that.
    let (_, _) = desk.take("container_status x0");
    desk.pass(2_000);
    desk.finds(Finding::Bad("no".to_owned()));
    assert_eq!(desk.saved_results, Some(BTreeMap::new()), "`n` is not ready any more");
    // What has taken its place is not it.
    desk.exits("n", 1);
    desk.pass(2_000);
    assert_eq!(desk.saved_results, Some(BTreeMap::new()));
}
