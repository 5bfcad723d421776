//! InitContainer: in their order, each to its end, before the main containers.

use std::time::Duration;

use crate::Entry;
use crate::case::{Case, SLEEP};
use crate::support::agent::Pod;

const AREA: &str = "InitContainer";

pub(crate) const ROWS: &[Entry] = &[
    (AREA, "should invoke init containers on a RestartNever pod", restart_never),
    (AREA, "should invoke init containers on a RestartAlways pod", restart_always),
    (
        AREA,
        "should not start app containers if init containers fail on a RestartAlways pod",
        failing_is_tried_again,
    ),
    (
        AREA,
        "should not start app containers and fail the pod if init containers fail on a \
         RestartNever pod",
        failing_ends_the_pod,
    ),
];

/// Two init containers that run these commands.
fn inits(first: &str, second: &str) -> String {
    let init = |name: &str, command: &str| {
        let image = "localhost/edged-demo:1";
        format!("  - name: {name}\n    image: {image}\n    command: [sh, -c, {command}]\n")
    };
    format!("  initContainers:\n{}{}", init("init1", first), init("init2", second))
}

fn restart_never(case: &Case<'_>) {
    let spec = format!("  restartPolicy: Never\n{}", inits("'true'", "'true'"));
    case.put_pod(&spec, "    command: [sh, -c, 'true']\n");
    let pod = case.wait("it has ended", |pod| pod.phase() == "Succeeded");
    initialized(&pod, "True", "PodCompleted", "");
    let ended = |name: &str| pod.container(name)["state"]["terminated"].clone();
    for name in ["init1", "init2", "main"] {
        assert_eq!(ended(name)["exitCode"], 0, "{name}");
        assert_eq!(pod.restarts(name), 0, "{name}");
    }
    for name in ["init1", "init2"] {
        assert_eq!(pod.container(name)["ready"], true, "{name}");
    }
    let time = |name: &str, key: &str| ended(name)[key].as_str().unwrap_or_default().to_owned();
    assert!(time("init1", "finishedAt") <= time("init2", "startedAt"));
    assert!(time("init2", "finishedAt") <= time("main", "startedAt"));
}

fn restart_always(case: &Case<'_>) {
    let pod = case.run(&inits("'true'", "'true'"), SLEEP);
    assert_eq!(pod.phase(), "Running");
    initialized(&pod, "True", "", "");
    for name in ["init1", "init2"] {
        assert_eq!(pod.container(name)["state"]["terminated"]["exitCode"], 0, "{name}");
        assert_eq!(pod.container(name)["ready"], true, "{name}");
    }
}

/// The condition Initialized has this status, reason and message.
fn initialized(pod: &Pod, status: &str, reason: &str, message: &str) {
    let all = pod.0["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let found = all.iter().find(|condition| condition["type"] == "Initialized");
    let found = found.unwrap_or_else(|| panic!("no condition Initialized: {all:?}"));
    let text = |key: &str| found[key].as_str().unwrap_or_default();
    assert_eq!((text("status"), text("reason"), text("message")), (status, reason, message));
}

fn failing_is_tried_again(case: &Case<'_>) {
    case.put_pod(&inits("'exit 1'", "'true'"), SLEEP);
    let bound = Duration::from_secs(120);
    let pod = case.wait_in(bound, "the init container has failed and was tried again", |pod| {
        // Nothing else starts on the way.
        for name in ["main", "init2"] {
            if !pod.container(name).is_null() {
                assert_eq!(pod.waits_for(name), "PodInitializing", "{}", pod.0["status"]);
            }
        }
        let first = &pod.container("init1")["state"]["terminated"];
        assert!(first.is_null() || first["exitCode"] != 0, "{first}");
        pod.restarts("init1") >= 3
    });
    let last = &pod.container("init1")["lastState"]["terminated"];
    assert!(last.is_object(), "{}", pod.0["status"]);
    assert_eq!(pod.phase(), "Pending");
    let message = "containers with incomplete status: [init1 init2]";
    initialized(&pod, "False", "ContainersNotInitialized", message);
    for name in ["init1", "init2"] {
        assert_eq!(pod.container(name)["ready"], false, "{name}");
    }
}

fn failing_ends_the_pod(case: &Case<'_>) {
    let spec = format!("  restartPolicy: Never\n{}", inits("'true'", "'exit 1'"));
    case.put_pod(&spec, SLEEP);
    let pod = case.wait("it has failed", |pod| pod.phase() == "Failed");
    assert_eq!(pod.container("init1")["state"]["terminated"]["exitCode"], 0);
    assert_eq!(pod.container("init2")["state"]["terminated"]["exitCode"], 1);
    assert_eq!(pod.container("init1")["ready"], true);
    assert_eq!(pod.container("init2")["ready"], false);
    let message = "containers with incomplete status: [init2]";
    initialized(&pod, "False", "ContainersNotInitialized", message);
    assert_eq!(pod.waits_for("main"), "PodInitializing");
    assert_eq!(pod.container_id("main"), "", "the main container was never made");
}
