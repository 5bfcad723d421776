//! Admission of pods where there is not enough room for all.

use edged::model::cri::{Container, ContainerState, PodRef, Sandbox};

use crate::harness::{Harness, MAIN, container, sandbox};

fn named(name: &str, uid: &str, spec: &str) -> String {
    format!(r#"{{"metadata":{{"name":"{name}","uid":"{uid}"}},"spec":{{{spec}}}}}"#)
}

/// Pod `b` has run since before the agent.
fn with_b_running(mut harness: Harness) -> Harness {
    let b = PodRef { uid: "u2".into(), namespace: "default".into(), name: "b-gw".into() };
    harness.sandboxes.push(Sandbox { pod: Some(b.clone()), ..sandbox("s1", 0, true) });
    let runs = container("x1", "m", ContainerState::Running);
    harness.containers.push(Container { pod: Some(b), ..runs });
    harness
}

/// Names of the refused pods, with the reasons.
fn refused(harness: &Harness) -> Vec<(&str, &str)> {
    let refused = harness.agent.pods().filter(|pod| !pod.status.reason.is_empty());
    refused.map(|pod| (&*pod.metadata.name, &*pod.status.reason)).collect()
}

#[test]
fn after_a_restart_what_runs_is_not_refused_for_what_never_ran() {
    let mut harness = with_b_running(Harness::with(|config| config.pods_max = 1));
    harness.manifests(&[&named("a", "u1", MAIN), &named("b", "u2", MAIN)]);
    assert_eq!(harness.open_calls(), ["podsandbox_status s1"]);
    assert_eq!(refused(&harness), [("a-gw", "OutOfpods")]);
    harness.does_all(&["podsandbox_status s1", "container_status x1"]);
    harness.pass(5_000);
    assert_eq!(harness.open_calls(), [] as [&str; 0]);
    assert_eq!(harness.running(), ["m"]);
}

#[test]
fn after_a_restart_what_runs_keeps_its_host_port() {
    let spec = r#""containers":[{"name":"m","image":"i:1",
                                 "ports":[{"containerPort":80,"hostPort":8080}]}]"#;
    let mut harness = with_b_running(Harness::new());
    harness.manifests(&[&named("a", "u1", spec), &named("b", "u2", spec)]);
    assert_eq!(refused(&harness), [("a-gw", "NodePorts")]);
    harness.does_all(&["podsandbox_status s1", "container_status x1"]);
    harness.pass(5_000);
    assert_eq!(harness.running(), ["m"]);
}

#[test]
fn a_pod_too_many_fails_and_the_others_run() {
    let mut harness = Harness::with(|config| config.pods_max = 2);
    let pods = [named("a", "u1", MAIN), named("b", "u2", MAIN), named("c", "u3", MAIN)];
    harness.manifests(&[&pods[0], &pods[1]]);
    assert_eq!(harness.open_calls(), ["run_podsandbox #0", "run_podsandbox #0"]);
    harness.manifests(&[&pods[0], &pods[1], &pods[2]]);
    harness.pass(5_000);
    assert_eq!(refused(&harness), [("c-gw", "OutOfpods")]);
    let c = harness.agent.pods().find(|pod| pod.metadata.name == "c-gw").expect("it is wanted");
    assert_eq!(
        c.status.message,
        "Pod was rejected: Node didn't have enough resource: pods, requested: 1, used: 2, \
         capacity: 2"
    );
    assert_eq!(harness.open_calls(), ["run_podsandbox #0", "run_podsandbox #0"]);
}

#[test]
fn who_was_told_to_go_in_the_same_turn_leaves_its_room() {
    let mut harness = Harness::with(|config| config.pods_max = 1);
    let (a, b) = (named("a", "u1", MAIN), named("b", "u2", MAIN));
    harness.manifests(&[&a]);
    // Two deliveries of the folder without a step between them.
    harness.agent.handle(harness.now, Harness::folder(&[&a, &b]));
    harness.manifests(&[&b]);
    assert_eq!(refused(&harness), [] as [(&str, &str); 0]);
}

#[test]
fn a_pod_that_was_refused_takes_nothing_from_those_after_it() {
    let on_ports = |name: &str, ports: &[u16]| {
        let ports: Vec<String> = ports
            .iter()
            .map(|port| format!(r#"{{"containerPort":{port},"hostPort":{port}}}"#))
            .collect();
        format!(
            r#"{{"metadata":{{"name":"{name}","uid":"u-{name}"}},"spec":{{"containers":[
                {{"name":"m","image":"i:1","ports":[{}]}}]}}}}"#,
            ports.join(",")
        )
    };
    let mut harness = Harness::new();
    let all = [on_ports("a", &[80]), on_ports("b", &[80, 90]), on_ports("c", &[90])];
    harness.manifests(&[&*all[0], &*all[1], &*all[2]]);
    harness.works();
    let refused = harness.agent.pods().filter(|pod| pod.status.reason == "NodePorts");
    assert_eq!(refused.map(|pod| &*pod.metadata.name).collect::<Vec<_>>(), ["b-gw"]);
    assert_eq!(harness.running().len(), 2);
}
