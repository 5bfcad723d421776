//! Images: pulls that must fail and pulls that must not; an image's own command.

use std::net::{Ipv4Addr, TcpListener};
use std::process::Command;
use std::time::{Duration, Instant};

use edged::model::base64;

use crate::Entry;
use crate::case::{Case, QUICK_END, SLEEP};
use crate::support::agent::{Pod, manifest};
use crate::support::http;
use crate::support::registry::{Gate, Registry, archive, archive_with};
use crate::support::wait::until;

const RUNTIME: &str = "Container Runtime";
const CONTAINERS: &str = "Containers";
const SECURITY: &str = "Security Context";

pub(crate) const ROWS: &[Entry] = &[
    (RUNTIME, "should not be able to pull image from invalid registry", invalid_registry),
    (RUNTIME, "should be able to pull image", pull),
    (RUNTIME, "should not be able to pull from private registry without secret", private),
    (RUNTIME, "should be able to pull from private registry with secret", private_with_secret),
    ("ImageID", "should be set to the manifest digest (from RepoDigests) when available", image_id),
    ("Pull Image", "should be waiting more", one_at_a_time),
    ("Pull Image", "Image pull retry backs off on error.", back_off),
    (SECURITY, "should run with an explicit non-root user ID", |case| {
        let pod = non_root(case, None, "1000");
        assert_eq!((pod.phase(), case.output(&pod)), ("Succeeded", vec!["1000".to_owned()]));
    }),
    (SECURITY, "should not run with an explicit root user ID", |case| {
        is_not_run(case, Some("1234"), "0");
    }),
    (SECURITY, "should run with an image specified user ID", |case| {
        let pod = non_root(case, Some("1234"), "null");
        assert_eq!((pod.phase(), case.output(&pod)), ("Succeeded", vec!["1234".to_owned()]));
    }),
    (SECURITY, "should not run without a specified user ID", |case| {
        is_not_run(case, None, "null");
    }),
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

/// On the node with parallel pulls.
pub(crate) const SPECIAL: &[Entry] =
    &[("Pull Image", "should pull immediately if no more than 5 pods", side_by_side)];

/// While the node's agent restarts.
pub(crate) const WAVE: &[Entry] = &[(
    "Container Runtime Conformance Test",
    "should be able to pull from private registry with credential provider",
    private_with_credentials,
)];

/// Writes the case's pod with another image and pull policy Always.
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

/// A registry behind a proxy, and the name of the case's image there.
fn gated(case: &Case<'_>) -> (Registry, Gate, String) {
    let registry = registry(case);
    let gate = Gate::before(registry.address, Some(("user", "word")), Duration::ZERO);
    let image = format!("{}/localhost/{}:1", gate.address, case.name);
    (registry, gate, image)
}

/// Docker's configuration with the proxy's login.
fn credentials(gate: &Gate) -> String {
    let auth = base64::encode(b"user:word");
    format!("{{\"auths\":{{\"{}\":{{\"auth\":\"{auth}\"}}}}}}", gate.address)
}

fn private_with_secret(case: &Case<'_>) {
    let (_registry, gate, image) = gated(case);
    let secret = format!(
        "apiVersion: v1\nkind: Secret\nmetadata: {{name: {}-pull}}\ntype: \
         kubernetes.io/dockerconfigjson\nstringData:\n  .dockerconfigjson: '{}'\n",
        case.name,
        credentials(&gate)
    );
    case.put("secret", &secret);
    let spec = format!("{QUICK_END}  imagePullSecrets: [{{name: {}-pull}}]\n", case.name);
    let main = format!("    imagePullPolicy: Always\n{SLEEP}");
    let text = manifest(&case.name, &spec, &main);
    case.put("pod", &text.replace("localhost/edged-demo:1", &image));
    case.wait("it runs", Pod::runs);
}

/// The node's own credentials are read when its agent starts.
fn private_with_credentials(case: &Case<'_>) {
    let (_registry, gate, image) = gated(case);
    let file = case.node.site.root.join("config.json");
    case.across_restart(|| {
        std::fs::write(&file, credentials(&gate)).expect("a file of ours");
    });
    put(case, &image, SLEEP);
    case.wait("it runs", Pod::runs);
    std::fs::remove_file(file).expect("it was written");
}

/// Several images are pulled in parallel if the node is configured so.
fn side_by_side(case: &Case<'_>) {
    // Their sandboxes may start some seconds apart.
    assert!(most_pulls_at_once(case, Duration::from_secs(4)) > 1);
}

/// The digest is that of the manifest, computed here.
fn image_id(case: &Case<'_>) {
    // No other case has an image of this content, whose name might be shown instead.
    let cmd = format!("[\"{}\"]", case.name);
    let registry = Registry::start(&archive(&case.node.dir, &case.name, "[]", &cmd));
    let image = format!("{}/localhost/{}", registry.address, case.name);
    put(case, &format!("{image}:1"), SLEEP);
    let pod = case.wait("it runs", Pod::runs);
    let path = format!("/v2/localhost/{}/manifests/1", case.name);
    let manifest = http::get(registry.address, &path).expect("the registry answers").body;
    let file = case.node.dir.join(format!("manifest-{}", case.name));
    std::fs::write(&file, manifest).expect("a file of ours");
    let output = Command::new("sha256sum").arg(&file).output().expect("coreutils");
    let digest = String::from_utf8_lossy(&output.stdout).into_owned();
    let digest = digest.split(' ').next().expect("a sum");
    assert_eq!(pod.container("main")["imageID"], format!("{image}@sha256:{digest}"));
}

/// The node pulls one image after another by default.
fn one_at_a_time(case: &Case<'_>) {
    assert_eq!(most_pulls_at_once(case, Duration::from_millis(500)), 1);
}

/// Two pods with an image each, from a registry with this delay of each request.
fn most_pulls_at_once(case: &Case<'_>, delay: Duration) -> usize {
    let names = ["a", "b"].map(|what| format!("{}-{what}", case.name));
    let folder = case.node.dir.join(format!("both-{}", case.name));
    std::fs::create_dir_all(&folder).expect("a folder of ours");
    for name in &names {
        let made = archive(&case.node.dir, name, "[]", "[\"/bin/sh\"]").join(format!("{name}.tar"));
        std::fs::copy(made, folder.join(format!("{name}.tar"))).expect("it was made");
    }
    let registry = Registry::start(&folder);
    let gate = Gate::before(registry.address, None, delay);
    for (name, what) in names.iter().zip(["pod", "other"]) {
        let text = manifest(name, QUICK_END, SLEEP);
        let image = format!("{}/localhost/{name}:1", gate.address);
        case.put(what, &text.replace("localhost/edged-demo:1", &image));
    }
    for name in &names {
        case.node.wait_running(name);
    }
    gate.most_at_once()
}

/// A failing registry is tried again after ten seconds, then after twenty.
fn back_off(case: &Case<'_>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port is free");
    let address = listener.local_addr().expect("it is bound");
    put(case, &format!("{address}/localhost/none:1"), SLEEP);
    // One pull sends several requests, of the built-in runtime within seconds: from the last of
    // them to the next pull the agent waits.
    let mut gaps: Vec<u64> = Vec::new();
    let mut last: Option<Instant> = None;
    // The agent keeps so many events, and others' pods have some too: it is looked for in time.
    let mut is_told = false;
    while gaps.len() < 2 {
        drop(listener.accept().expect("the runtime sends a request"));
        let messages = case.events("BackOff");
        is_told |= messages.iter().any(|text| text.contains("Back-off pulling image"));
        let gap = last.map_or(Duration::ZERO, |last| last.elapsed());
        if gap > Duration::from_secs(5) {
            gaps.push(gap.as_secs());
        }
        last = Some(Instant::now());
    }
    assert!((8..=16).contains(&gaps[0]) && (18..=30).contains(&gaps[1]), "{gaps:?}");
    assert!(is_told, "{:?}", case.events("BackOff"));
}

/// Writes a pod that must not be root, with an image of this user; it prints its user.
fn put_non_root(case: &Case<'_>, image_user: Option<&str>, user: &str) -> Registry {
    let folder = archive_with(&case.node.dir, &case.name, &|config| {
        if let Some(user) = image_user {
            config["User"] = user.into();
        }
    });
    let registry = Registry::start(&folder);
    let main = format!(
        "    command: [id, -u]\n    securityContext: {{runAsNonRoot: true, runAsUser: {user}}}\n"
    );
    put(case, &format!("{}/localhost/{}:1", registry.address, case.name), &main);
    registry
}

fn non_root(case: &Case<'_>, image_user: Option<&str>, user: &str) -> Pod {
    let _registry = put_non_root(case, image_user, user);
    case.wait("it has ended", |pod| matches!(pod.phase(), "Succeeded" | "Failed"))
}

fn is_not_run(case: &Case<'_>, image_user: Option<&str>, user: &str) {
    let _registry = put_non_root(case, image_user, user);
    let pod = case.wait("its container is not made", |pod| {
        pod.waits_for("main") == "CreateContainerConfigError"
    });
    assert_eq!(pod.phase(), "Pending");
    until("there is an event of it", || {
        let messages = case.events("Failed");
        if messages.is_empty() { Err("none".to_owned()) } else { Ok(()) }
    });
}

/// The output of the image with these fields of the container.
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
    // With a command of the container the image's arguments are ignored.
    let script = "    command: [sh, -c, 'echo \"got $#: $0\"', override]\n";
    assert_eq!(printed(case, script), ["got 0: override"]);
}

fn other_both(case: &Case<'_>) {
    let both = "    command: [/bin/echo, override]\n    args: [override, arguments]\n";
    assert_eq!(printed(case, both), ["override override arguments"]);
}
