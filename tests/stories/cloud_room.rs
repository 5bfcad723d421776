//! Pods of the cloud whose requests exceed the node's free resources.

use serde_json::{Value, json};

use crate::cloud_harness::{CloudHarness, pod, row};
use crate::harness::{START, container, sandbox};
use edged::model::cri::ContainerState;
use edged::model::meta::Saved;
use edged::model::settings::CloudSettings;

/// A pod of the cloud that requests this many cores; the node has two.
fn asking(name: &str, uid: &str, cores: u64) -> Value {
    let mut pod = pod(name, uid, 7);
    pod["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": cores}});
    pod
}

fn refused(cloud: &CloudHarness) -> Vec<(&str, &str)> {
    let refused = cloud.harness.agent.pods().filter(|pod| !pod.status.reason.is_empty());
    refused.map(|pod| (&*pod.status.reason, &*pod.status.message)).collect()
}

#[test]
fn who_asks_for_more_than_is_left_fails() {
    let mut cloud = CloudHarness::new();
    cloud.push("insert", "ns/pod/p", &asking("p", "u", 1));
    cloud.push("insert", "ns/pod/q", &asking("q", "v", 2));
    let message = "Pod was rejected: Node didn't have enough resource: cpu, requested: 2000, used: \
                   1000, capacity: 2000";
    assert_eq!(refused(&cloud), [("OutOfcpu", message)]);
    cloud.harness.does_all(START);
    assert_eq!(cloud.harness.running(), ["m"]);
}

#[test]
fn who_ran_before_the_agent_is_not_asked_again() {
    let rows = vec![row("ns/pod/p", &asking("p", "u", 3))];
    let set = |config: &mut edged::agent::Config| config.cloud = Some(CloudSettings::default());
    let cloud = CloudHarness::beside(Saved::kept(rows), set, |harness| {
        let mut one = sandbox("s1", 0, true);
        one.source = Some("api".into());
        one.pod = Some(edged::model::cri::PodRef {
            uid: "u".into(),
            namespace: "ns".into(),
            name: "p".into(),
        });
        let mut runs = container("c1", "m", ContainerState::Running);
        runs.pod = one.pod.clone();
        harness.sandboxes.push(one);
        harness.containers.push(runs);
    });
    assert_eq!(refused(&cloud), [] as [(&str, &str); 0]);
    assert_eq!(cloud.harness.running(), ["m"]);
}
