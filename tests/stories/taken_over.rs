//! Pods that another agent started, EdgeCore or a kubelet, run on unchanged.

use edged::agent::event::Event;
use edged::model::cri::ContainerState;
use edged::model::manifest::{File, Folder};
use edged::model::pod::Pod;

use crate::harness::{Harness, MAIN, UID, container, pod, sandbox};

const LOOKS: [&str; 2] = ["podsandbox_status s1", "container_status c1"];

/// A pod `p` without its own uid, in a file that was changed at that time.
fn put_folder(harness: &mut Harness, image: &str, changed_ns: i64) {
    let json = pod(&MAIN.replace("i:1", image)).replace(&format!(r#","uid":"{UID}""#), "");
    let content = Ok(vec![serde_json::from_str::<Pod>(&json).expect("a pod")].into());
    let files = vec![File { path: "/m/0".into(), changed_ns, content }];
    harness.deliver(Event::Manifests(Folder { trouble: None, files }));
}

/// It runs under the uid `u1`, since 20 ns after 1970.
fn begun_by_another() -> Harness {
    let mut harness = Harness::new();
    let mut theirs = sandbox("s1", 0, true);
    theirs.created_at = 20;
    harness.sandboxes.push(theirs);
    harness.containers.push(container("c1", "m", ContainerState::Running));
    harness
}

#[test]
fn a_static_pod_keeps_the_uid_that_another_agent_gave_it() {
    let mut harness = begun_by_another();
    put_folder(&mut harness, "i:1", 10);
    harness.does_all(&LOOKS);
    harness.pass(60_000);
    assert_eq!(harness.trace, LOOKS);
    assert_eq!(harness.status()["phase"], "Running");
    let pods: Vec<&Pod> = harness.agent.pods().collect();
    assert_eq!(pods.len(), 1);
    assert_eq!(pods[0].metadata.uid, "u1");
    assert_eq!(pods[0].metadata.annotations["kubernetes.io/config.hash"], "u1");
    // The folder is read again, with nothing new in this file.
    put_folder(&mut harness, "i:1", 10);
    harness.pass(30_000);
    assert_eq!(harness.trace, LOOKS);
}

#[test]
fn a_static_pod_that_another_agent_began_is_begun_anew_when_its_manifest_changes() {
    let mut harness = begun_by_another();
    put_folder(&mut harness, "i:1", 10);
    harness.does_all(&LOOKS);
    put_folder(&mut harness, "i:2", 30);
    assert_eq!(harness.open_calls(), ["stop_container c1 30"]);
}

#[test]
fn a_static_pod_whose_file_changed_since_another_agent_began_it_is_begun_anew() {
    let mut harness = begun_by_another();
    put_folder(&mut harness, "i:1", 30);
    assert_eq!(harness.open_calls(), ["stop_container c1 2"]);
}

#[test]
fn a_static_pod_whose_sandbox_has_died_is_begun_anew() {
    let mut harness = begun_by_another();
    harness.sandboxes[0].ready = false;
    put_folder(&mut harness, "i:1", 10);
    assert_eq!(harness.open_calls(), ["stop_container c1 2"]);
}

#[test]
fn a_pod_of_the_cloud_gives_its_uid_to_no_file() {
    let mut harness = begun_by_another();
    harness.sandboxes[0].source = Some("api".into());
    put_folder(&mut harness, "i:1", 10);
    assert_eq!(harness.open_calls(), ["stop_container c1 2"]);
}

#[test]
fn beside_what_we_began_ourselves_what_another_agent_began_ends() {
    let mut harness = begun_by_another();
    put_folder(&mut harness, "i:1", 0);
    let own = harness.agent.pods().find(|pod| pod.metadata.uid != "u1");
    let ours = own.expect("it waits for the other to end").metadata.uid.as_str().into();
    let mut harness = begun_by_another();
    let mut own = sandbox("s2", 0, true);
    own.pod.as_mut().expect("a pod").uid = ours;
    harness.sandboxes.push(own);
    put_folder(&mut harness, "i:1", 10);
    assert_eq!(harness.open_calls(), ["stop_container c1 2"]);
}
