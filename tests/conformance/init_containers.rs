//! InitContainer: in their order, each to its end, before the main containers.

use crate::Row;
use crate::case::{Case, SLEEP};

const AREA: &str = "InitContainer";

pub(crate) const ROWS: &[Row] = &[
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
    assert_eq!(pod.condition("Initialized"), "True");
    let ended = |name: &str| pod.container(name)["state"]["terminated"].clone();
    for name in ["init1", "init2", "main"] {
        assert_eq!(ended(name)["exitCode"], 0, "{name}");
        assert_eq!(pod.restarts(name), 0, "{name}");
    }
    let time = |name: &str, key: &str| ended(name)[key].as_str().unwrap_or_default().to_owned();
    assert!(time("init1", "finishedAt") <= time("init2", "startedAt"));
    assert!(time("init2", "finishedAt") <= time("main", "startedAt"));
}

fn restart_always(case: &Case<'_>) {
    let pod = case.run(&inits("'true'", "'true'"), SLEEP);
    assert_eq!(pod.condition("Initialized"), "True");
    for name in ["init1", "init2"] {
        assert_eq!(pod.container(name)["state"]["terminated"]["exitCode"], 0, "{name}");
        assert_eq!(pod.container(name)["ready"], true, "{name}");
    }
}

fn failing_is_tried_again(case: &Case<'_>) {
    case.put_pod(&inits("'exit 1'", "'true'"), SLEEP);
    let pod = case.wait("the init container was tried again", |pod| pod.restarts("init1") >= 2);
    assert_eq!(pod.phase(), "Pending");
    assert_eq!(pod.condition("Initialized"), "False");
    assert_eq!(pod.waits_for("main"), "PodInitializing");
    assert_eq!(pod.waits_for("init2"), "PodInitializing");
}

fn failing_ends_the_pod(case: &Case<'_>) {
    let spec = format!("  restartPolicy: Never\n{}", inits("'true'", "'exit 1'"));
    case.put_pod(&spec, SLEEP);
    let pod = case.wait("it has failed", |pod| pod.phase() == "Failed");
    assert_eq!(pod.container("init1")["state"]["terminated"]["exitCode"], 0);
    assert_eq!(pod.container("init2")["state"]["terminated"]["exitCode"], 1);
    assert_eq!(pod.condition("Initialized"), "False");
    assert_eq!(pod.container_id("main"), "", "the main container was never made");
}
