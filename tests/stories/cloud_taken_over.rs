//! Pods of the cloud that another agent started: its reports about them stay valid.

use edged::model::cri::{ContainerState, PodRef};
use edged::model::meta::Saved;
use serde_json::json;

use crate::cloud_harness::{CloudHarness, pod, row};
use crate::harness::{container, sandbox};

#[test]
fn of_an_init_container_that_another_agent_removed_the_end_is_known() {
    let at = "2026-11-22T12:36:53Z";
    let mut theirs = pod("p", "u1", 7);
    theirs["spec"]["initContainers"] = json!([{"name": "i", "image": "i:2"}]);
    let end = json!({"exitCode": 0, "reason": "Completed", "startedAt": at, "finishedAt": at,
        "containerID": "containerd://c0"});
    let ready = json!({"type": "Ready", "status": "True", "lastTransitionTime": at});
    theirs["status"] = json!({
        "phase": "Running", "conditions": [ready],
        "initContainerStatuses": [{
            "name": "i", "state": {"terminated": end}, "lastState": {}, "ready": true,
            "restartCount": 0, "image": "i:2", "imageID": "sha256:2", "started": false,
            "containerID": "containerd://c0",
        }],
    });
    let rows = vec![row("ns/pod/p", &theirs)];
    let saved = Saved::kept(rows);
    let mut cloud = CloudHarness::beside(
        saved,
        |_| (),
        |harness| {
            let mut main = container("c1", "m", ContainerState::Running);
            main.pod =
                main.pod.map(|pod| PodRef { namespace: "ns".into(), name: "p".into(), ..pod });
            let mut running = sandbox("s1", 0, true);
            (running.pod, running.source) = (main.pod.clone(), Some("api".into()));
            harness.sandboxes.push(running);
            harness.containers.push(main);
        },
    );
    cloud.work();
    assert_eq!(cloud.harness.trace, ["podsandbox_status s1", "container_status c1"]);
    let status = cloud.harness.status();
    assert_eq!(status["initContainerStatuses"][0], theirs["status"]["initContainerStatuses"][0]);
    let conditions = status["conditions"].as_array().expect("conditions");
    let ready = conditions.iter().find(|reported| reported["type"] == "Ready").expect("it runs");
    assert_eq!((&ready["status"], &ready["lastTransitionTime"]), (&json!("True"), &json!(at)));
}
