//! An unreadable manifest folder, or unsupported pods in it: what runs continues.

use crate::harness::{Harness, MAIN, UID, container, pod, sandbox};
use edged::agent::event::Event;
use edged::model::cri::ContainerState;
use edged::model::manifest::Folder;

/// The folder itself cannot be read.
fn lost() -> Event {
    let trouble = Some("/m: the folder cannot be read: No such file or directory".into());
    Event::Manifests(Folder { trouble, files: Vec::new() })
}

#[test]
fn a_folder_that_vanishes_ends_nothing() {
    let mut harness = Harness::new();
    harness.sandboxes.push(sandbox("s1", 0, true));
    harness.containers.push(container("c1", "m", ContainerState::Running));
    harness.manifests(&[&pod(MAIN)]);
    harness.does_all(&["podsandbox_status s1", "container_status c1"]);
    harness.deliver(lost());
    harness.pass(60_000);
    assert_eq!(harness.trace, ["podsandbox_status s1", "container_status c1"]);
    assert_eq!(harness.running(), ["m"]);
    harness.manifests(&[]);
    assert_eq!(harness.open_calls(), ["stop_container c1 30"]);
}

#[test]
fn a_folder_that_is_not_there_at_the_start_ends_nothing() {
    let mut harness = Harness::new();
    harness.sandboxes.push(sandbox("s1", 0, true));
    harness.containers.push(container("c1", "m", ContainerState::Running));
    harness.deliver(lost());
    harness.pass(60_000);
    assert_eq!(harness.trace, [] as [&str; 0]);
    harness.manifests(&[&pod(MAIN)]);
    harness.does_all(&["podsandbox_status s1", "container_status c1"]);
    assert_eq!(harness.running(), ["m"]);
}

#[test]
fn a_manifest_that_cannot_run_here_leaves_the_pod_that_runs() {
    let mut harness = Harness::new();
    harness.sandboxes.push(sandbox("s1", 0, true));
    harness.containers.push(container("c1", "m", ContainerState::Running));
    harness.manifests(&[&pod(MAIN)]);
    harness.does_all(&["podsandbox_status s1", "container_status c1"]);
    let no_containers = format!(r#"{{"metadata":{{"name":"p","uid":"{UID}"}},"spec":{{}}}}"#);
    let unsupported = pod(&format!(r#""hostnameOverride":"box",{MAIN}"#)).replace(UID, "another");
    for broken in [no_containers, unsupported] {
        harness.manifests(&[&broken]);
        harness.pass(60_000);
        assert_eq!(harness.trace, ["podsandbox_status s1", "container_status c1"], "{broken}");
        assert_eq!(harness.status()["phase"], "Running");
    }
    harness.manifests(&[&pod(MAIN)]);
    harness.pass(60_000);
    assert_eq!(harness.running(), ["m"]);
}
