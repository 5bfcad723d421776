//! Images: pulls that must fail and pulls that must not; an image's own command.

use std::time::Duration;

use crate::Row;
use crate::case::{Case, QUICK_END, SLEEP};
use crate::yard::agent::{Pod, manifest};
use crate::yard::registry::{Gate, Registry, archive};

const RUNTIME: &str = "Container Runtime";
const CONTAINERS: &str = "Containers";

pub(crate) const ROWS: &[Row] = &[
    (RUNTIME, "should not be able to pull image from invalid registry", invalid_registry),
    (RUNTIME, "should be able to pull image", pull),
    (RUNTIME, "should not be able to pull from private registry without secret", private),
    (CONTAINERS, "should use the image defaults if command and args are blank", defaults),
    (
        CONTAINERS,
        "should be able to override the image's default arguments (container cmd)",
        other_arguments,
    ),
    (
        CONTAINERS,
        "should be able to override the image's default command (container entrypoint)",
        other_command,
    ),
    (
        CONTAINERS,
        "should be able to override the image's default command and arguments",
        other_both,
    ),
];

/// Puts the case's pod with another image, which has to be asked for each time.
fn put(case: &Case<'_>, image: &str, main: &str) {
    let main = format!("    imagePullPolicy: Always\n{main}");
    let text = manifest(&case.name, &format!("{QUICK_END}  restartPolicy: Never\n"), &main);
    case.put("pod", &text.replace("localhost/edged-demo:1", image));
}

fn is_refused(case: &Case<'_>) {
    let pod = case.wait("its image cannot be pulled", |pod| {
        ["ErrImagePull", "ImagePullBackOff"].contains(&pod.waits_for("main"))
    });
    assert_eq!(pod.phase(), "Pending");
}

fn invalid_registry(case: &Case<'_>) {
    put(case, "invalid.invalid/invalid/alpine:3.1", SLEEP);
    is_refused(case);
}

fn registry(case: &Case<'_>) -> Registry {
    let entry = r#"["/bin/echo", "entry"]"#;
    let folder = archive(&case.node.dir, &case.name, entry, r#"["cmd"]"#);
    Registry::start(&folder)
}

fn pull(case: &Case<'_>) {
    let registry = registry(case);
    put(case, &format!("{}/localhost/{}:1", registry.address, case.name), SLEEP);
    let pod = case.wait("it runs", Pod::runs);
    assert!(!pod.container("main")["imageID"].as_str().unwrap_or_default().is_empty());
}

fn private(case: &Case<'_>) {
    let registry = registry(case);
    let gate = Gate::before(registry.address, Some(("user", "word")), Duration::ZERO);
    put(case, &format!("{}/localhost/{}:1", gate.address, case.name), SLEEP);
    is_refused(case);
}

/// What the image prints when the container says this of its command.
fn printed(case: &Case<'_>, main: &str) -> Vec<String> {
    let registry = registry(case);
    put(case, &format!("{}/localhost/{}:1", registry.address, case.name), main);
    let pod = case.wait("it has ended", |pod| matches!(pod.phase(), "Succeeded" | "Failed"));
    assert_eq!(pod.phase(), "Succeeded", "{}", pod.0["status"]);
    case.output(&pod)
}

fn defaults(case: &Case<'_>) {
    assert_eq!(printed(case, ""), ["entry cmd"]);
}

fn other_arguments(case: &Case<'_>) {
    assert_eq!(printed(case, "    args: [override, arguments]\n"), ["entry override arguments"]);
}

fn other_command(case: &Case<'_>) {
    // With a command of the container's own the image's arguments do not count.
    let script = "    command: [sh, -c, 'echo \"got $#: $0\"', override]\n";
    assert_eq!(printed(case, script), ["got 0: override"]);
}

fn other_both(case: &Case<'_>) {
    let both = "    command: [/bin/echo, override]\n    args: [override, arguments]\n";
    assert_eq!(printed(case, both), ["override override arguments"]);
}
