//! Cases of a node with other settings: seccomp by default, process limits, short back-offs,
//! parallel pulls; and the last cases there, with another agent or without a runtime.

use std::time::Duration;

use edged::wire::cri::image::ListImagesRequest;
use nix::sys::signal::Signal;

use crate::Entry;
use crate::case::{Case, SLEEP};
use crate::support::agent::{Pod, manifest};
use crate::support::cgroup;
use crate::support::cri::Cri;
use crate::support::process;
use crate::support::wait::{always, until, until_in};

const SECCOMP: &str = "SeccompDefault";

/// The settings of this node that differ from the defaults.
pub(crate) const SETTINGS: &str = "      seccompDefault: true
      podPidsLimit: 1024
      serializeImagePulls: false
      maxParallelImagePulls: 5
      crashLoopBackOff: {maxContainerRestartPeriod: 1s}
";

/// Cases for this node's settings.
pub(crate) const ROWS: &[Entry] = &[
    (SECCOMP, "should use the default seccomp profile when unspecified", |case| {
        assert_eq!(case.output_of("", "", MODE), ["2"]);
    }),
    (SECCOMP, "should use unconfined when specified", |case| {
        let fields = "    securityContext: {seccompProfile: {type: Unconfined}}\n";
        assert_eq!(case.output_of("", fields, MODE), ["0"]);
    }),
    ("PodPidsLimit", "should set pids.max for Pod", pids),
    (
        "Container Restart",
        "Lower node config container restart takes precedence: Reduced default restart backs off.",
        short_back_off,
    ),
];

/// Cases that run after all others on this node.
pub(crate) const LAST: &[Entry] = &[(
    "MirrorPodWithGracePeriod",
    "the mirror pod should terminate successfully",
    ends_while_no_runtime_answers,
)];

/// With these settings unused images are removed after a minute, at the next check: every five
/// minutes.
pub(crate) const AGED: &str = "      imageMaximumGCAge: 1m\n      imageMinimumGCAge: 1s\n";

/// Cases of a node that has just started with those settings.
pub(crate) const AGEING: &[Entry] = &[
    ("ImageGarbageCollect", "should GC unused images", unused_goes),
    ("ImageGarbageCollect", "should not GC unused images prematurely", not_at_once),
];

const UNUSED: &str = "localhost/edged-demo:2";

fn has_image(case: &Case<'_>) -> bool {
    let mut cri = Cri::connect(&case.node.containerd.socket()).expect("the runtime listens");
    let list = cri.call(&ListImagesRequest { filter: None }).expect("a list").images;
    list.iter().any(|image| image.repo_tags.iter().any(|name| name == UNUSED))
}

fn unused_goes(case: &Case<'_>) {
    until_in(Duration::from_secs(480), "the image is gone", || {
        std::thread::sleep(Duration::from_secs(1));
        if has_image(case) { Err(UNUSED.to_owned()) } else { Ok(()) }
    });
}

/// The age counts from the agent's start, as upstream's from a restart.
fn not_at_once(case: &Case<'_>) {
    always(Duration::from_secs(50), "the image stays", || {
        std::thread::sleep(Duration::from_secs(1));
        if has_image(case) { Ok(()) } else { Err("it is gone".to_owned()) }
    });
    unused_goes(case);
}

/// The kernel's mode of the process: 0 is none, 2 a filter.
const MODE: &str = "grep '^Seccomp:' /proc/self/status | awk '{print $2}'";

fn pids(case: &Case<'_>) {
    let limits = "    resources: {limits: {cpu: 10m, memory: 100Mi}}\n";
    let pod = case.run("", &format!("{SLEEP}{limits}"));
    let path = format!("special/kubepods/pod{}", pod.uid());
    let most = cgroup::value(&path, "pids.max", "pids.max");
    assert_eq!(most.as_deref(), Some("1024"));
}

/// The longest back-off of this node is a second, and upstream's most restarts are 298.
fn short_back_off(case: &Case<'_>) {
    case.put_pod("", "    command: [/bin/false]\n");
    case.wait("it waits for a second", |pod| {
        let waiting = &pod.container("main")["state"]["waiting"];
        let message = waiting["message"].as_str().unwrap_or_default();
        let found = message.starts_with("back-off ");
        assert!(!found || message.starts_with("back-off 1s "), "{message}");
        found
    });
    let pod = case.wait("it was restarted", |pod| pod.restarts("main") >= 3);
    assert!(pod.restarts("main") <= 298, "{}", pod.0["status"]);
}

/// The runtime stops while the pod ends, and comes back: the pod ends all the same.
fn ends_while_no_runtime_answers(case: &Case<'_>) {
    let main = "    command: [sh, -c, 'trap \"\" TERM; while :; do sleep 1; done']\n";
    case.put("pod", &manifest(&case.name, "  terminationGracePeriodSeconds: 20\n", main));
    let pod = case.wait("it runs", Pod::runs);
    case.take("pod");
    // As upstream: the stop is under way by then.
    std::thread::sleep(Duration::from_secs(2));
    // As init stops a service; `kill` would be a crash of the runtime, which is another test.
    let runtime = case.node.containerd.pid();
    process::signal(runtime, Signal::SIGTERM);
    until("the runtime has ended", || {
        if process::lives(runtime) { Err(format!("{runtime} runs")) } else { Ok(()) }
    });
    std::thread::sleep(Duration::from_secs(10));
    let shown = until("the agent answers", || case.node.site.pods());
    assert!(shown.iter().any(|shown| shown.uid() == pod.uid()), "it has not ended by then");
    case.node.containerd.start_daemon();
    case.node.wait_gone(&pod);
}
