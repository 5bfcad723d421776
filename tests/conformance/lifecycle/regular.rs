//! Pods without sidecars: init containers before main containers, hooks, probes and restarts.

use std::time::{Duration, Instant};

use super::{
    AREA, BAD_IMAGE, FOR_EVER, Log, Named, Plan, ended, holds, init, main, sidecar, wait_ended,
};
use crate::Row;
use crate::case::Case;
use crate::support::agent::manifest;

const I1: &str = "init-1";
const I2: &str = "init-2";
const I3: &str = "init-3";
const MAIN: &str = "regular-1";
const SECOND: &str = "regular-2";

const NEVER: &str =
    "Running a pod with init containers and regular containers, restartPolicy=Never";

/// The common part of the tests of hooks before a kill.
macro_rules! before_kill {
    ($probe:literal, $name:literal) => {
        concat!(
            "A regular container has a PreStop hook: A regular container fails a ",
            $probe,
            " probe: ",
            $name
        )
    };
}

/// The tests of that title, by their names below it.
const TESTS: &[Named] = &[
    (
        "A pod initializes successfully: should launch init container serially before a regular \
         container",
        serially,
    ),
    (
        "an init container fails: should not launch regular containers if an init container fails",
        init_fails,
    ),
    (
        "The regular container has a PostStart hook: should run Init container to completion \
         before call to PostStart of regular container",
        post_start_after_init,
    ),
    (
        "running a Pod with a failed regular container: should restart failing container when pod \
         restartPolicy is Always",
        restarts,
    ),
    (
        "Running a pod with multiple containers and a PostStart hook: should not launch second \
         container before PostStart of the first container completed",
        post_start_before_second,
    ),
    (
        "A regular container restarts with init containers: shouldn't restart init containers upon \
         regular container restart",
        init_once,
    ),
    (
        "a pod cannot terminate gracefully: should respect termination grace period seconds",
        |case| grace(case, ""),
    ),
    (
        "a pod cannot terminate gracefully: should respect termination grace period seconds with \
         long-running preStop hook",
        |case| grace(case, "    lifecycle: {preStop: {exec: {command: [sleep, '10000']}}}\n"),
    ),
    (
        before_kill!(
            "startup",
            "should call the container's preStop hook and terminate it if its startup probe fails"
        ),
        |case| hook_before_kill(case, "startupProbe"),
    ),
    (
        before_kill!(
            "liveness",
            "should call the container's preStop hook and terminate it if its liveness probe fails"
        ),
        |case| hook_before_kill(case, "livenessProbe"),
    ),
    (
        before_kill!(
            "liveness",
            "a pod is terminating because its liveness probe fails: should execute readiness probe \
             while in preStop, but not liveness"
        ),
        readiness_in_hook,
    ),
    (
        before_kill!(
            "liveness",
            "a pod is terminating because its liveness probe fails: should not continue running \
             liveness probes for restartable init containers and restart them while in preStop"
        ),
        sidecar_unprobed_in_hook,
    ),
];

/// A test by its name, and its check of the pod's log.
type LogTest = (&'static str, fn(&Log));

/// The tests of one pod whose init container has no image.
const BAD_IMAGE_TESTS: &[LogTest] = &[
    ("should mark a Pod as failed and produce log", |_| ()),
    ("should not start an init container", |log| holds!(log, !log.starts(I1))),
    ("should not start a regular container", |log| holds!(log, !log.starts(MAIN))),
];

pub(super) fn rows() -> Vec<Row> {
    let row = |&(name, run): &Named| Row::new(AREA, format!("{NEVER}: {name}"), run);
    let bad = "have init container in a Pod with restartPolicy=Never: an init container fails to \
               start because of a bad image";
    let of_bad = |&(name, check): &LogTest| {
        Row::new(AREA, format!("{NEVER}: {bad}: {name}"), move |case| {
            check(&case.node.once(bad, || bad_image(case)));
        })
    };
    TESTS.iter().map(row).chain(BAD_IMAGE_TESTS.iter().map(of_bad)).collect()
}

fn serially(case: &Case<'_>) {
    let probe = "    startupProbe:\n      exec: {command: [test, -f, /tmp/started]}\n      \
                 periodSeconds: 1\n      failureThreshold: 60\n";
    let main = main(MAIN).starts_in(3).runs(2).with(probe);
    Plan::new("Never", vec![init(I1), init(I2), init(I3), main]).put(case);
    wait_ended(case);
    in_order(&Log::of(case));
}

fn in_order(log: &Log) {
    holds!(log, log.starts_before(I1, I2), log.exits_before(I1, I2));
    holds!(log, log.starts_before(I2, I3), log.exits_before(I2, I3));
    holds!(log, log.starts_before(I3, MAIN), log.exits_before(I3, MAIN));
}

fn init_fails(case: &Case<'_>) {
    Plan::new("Never", vec![init(I1).exits(1), main(MAIN)]).put(case);
    let pod = wait_ended(case);
    assert_eq!((pod.phase(), pod.reason()), ("Failed", ""));
    let log = Log::of(case);
    holds!(log, log.starts(I1), log.exits(I1), !log.starts(MAIN));
}

fn post_start_after_init(case: &Case<'_>) {
    Plan::new("Never", vec![init(I1), main(MAIN).runs(6).post_start(1)]).put(case);
    wait_ended(case);
    let log = Log::of(case);
    let hook = "PostStart-regular-1";
    holds!(log, log.starts_before(I1, hook), log.exits_before(I1, hook), log.together(MAIN, hook));
}

fn post_start_before_second(case: &Case<'_>) {
    let first = main(MAIN).runs(6).post_start(1);
    Plan::new("Never", vec![first, main(SECOND)]).put(case);
    wait_ended(case);
    let log = Log::of(case);
    let hook = "PostStart-regular-1";
    holds!(log, log.starts_before(hook, SECOND), log.exits_before(hook, SECOND));
}

fn wait_restarts(case: &Case<'_>, count: u64) {
    let bound = Duration::from_secs(120);
    case.wait_in(bound, "it was restarted", |pod| pod.restarts(MAIN) >= count);
}

fn restarts(case: &Case<'_>) {
    Plan::new("Always", vec![main(MAIN).exits(1)]).put(case);
    wait_restarts(case, 3);
    let log = Log::of(case);
    holds!(log, log.starts(MAIN), log.starts_before(MAIN, MAIN), log.exits_before(MAIN, MAIN));
}

fn init_once(case: &Case<'_>) {
    let main = main(MAIN).runs(2).exits(255);
    Plan::new("Always", vec![init(I1), init(I2), init(I3), main]).put(case);
    wait_restarts(case, 3);
    let log = Log::of(case);
    in_order(&log);
    holds!(log, !log.restarted(I1), !log.restarted(I2), !log.restarted(I3), log.restarted(MAIN));
}

fn bad_image(case: &Case<'_>) -> Log {
    Plan::new("Never", vec![init(I1).image(BAD_IMAGE), main(MAIN)]).put(case);
    let pod = case.wait("its image cannot be had", |pod| pod.waits_for(I1) == "ImagePullBackOff");
    assert_eq!(pod.phase(), "Pending");
    Log::of(case)
}

/// A container that ignores SIGTERM.
fn grace(case: &Case<'_>, fields: &str) {
    let spec = "  terminationGracePeriodSeconds: 30\n";
    let main = format!("    command: [sleep, '10000']\n{fields}");
    case.put("pod", &manifest(&case.name, spec, &main));
    let pod = case.node.wait_running(&case.name);
    case.take("pod");
    let begun = Instant::now();
    case.node.wait_gone(&pod);
    let took = begun.elapsed();
    // Upstream's limit, the grace period and half a minute, and the delay by parallel cases.
    let bounds = Duration::from_secs(28)..Duration::from_secs(60 + 30);
    assert!(bounds.contains(&took), "gone after {took:?}");
}

fn hook_before_kill(case: &Case<'_>, kind: &str) {
    let probe = format!(
        "    {kind}:\n      exec: {{command: ['false']}}\n      initialDelaySeconds: 3\n      \
         failureThreshold: 1\n      periodSeconds: 1\n"
    );
    let main = main(MAIN).runs(100).ends_in(5).with(&probe).pre_stop("sleep 1", 0);
    Plan::new("Never", vec![main]).put(case);
    wait_ended(case);
    let log = Log::of(case);
    let hook = "PreStop-regular-1";
    holds!(log, log.together(MAIN, hook), log.starts(hook), log.exits(MAIN));
}

const QUICKLY: &str = "      periodSeconds: 1\n      failureThreshold: 1\n";

fn readiness_in_hook(case: &Case<'_>) {
    let later = format!("      initialDelaySeconds: 4\n{QUICKLY}");
    let main = main(MAIN)
        .runs(100)
        .ends_in(5)
        .probed("livenessProbe", "Liveness", 1, &later)
        .probed("readinessProbe", "Readiness", 0, "      periodSeconds: 1\n")
        .pre_stop("sleep 8", 0);
    Plan::new("Never", vec![main]).grace(100).put(case);
    wait_ended(case);
    let log = Log::of(case);
    let hook = "PreStop-regular-1";
    holds!(log, log.together_first(hook, "Readiness-regular-1"));
    holds!(log, !log.together_first(hook, "Liveness-regular-1"));
}

fn sidecar_unprobed_in_hook(case: &Case<'_>) {
    const SIDECAR: &str = "restartable-init-1";
    let first = format!("      initialDelaySeconds: 1\n{QUICKLY}");
    let later = format!("      initialDelaySeconds: 6\n{QUICKLY}");
    let sidecar =
        sidecar(SIDECAR).runs(FOR_EVER).ends_in(1).probed("livenessProbe", "Liveness", 1, &first);
    let main = main(MAIN)
        .runs(100)
        .ends_in(5)
        .probed("livenessProbe", "Liveness", 1, &later)
        .pre_stop("sleep 20", 0);
    Plan::new("Never", vec![sidecar, main]).grace(100).put(case);
    let pod = wait_ended(case);
    assert_eq!(ended(&pod, MAIN).0, 0, "{}", pod.0["status"]);
    let log = Log::of(case);
    let hook = "PreStop-regular-1";
    holds!(log, !log.starts_before(hook, "Liveness-restartable-init-1"));
    holds!(log, !log.together_first(hook, SIDECAR));
}
