//! The end of pods with sidecars: the order in which containers end, and the pod's result.

use std::time::{Duration, Instant};

use super::{
    AREA, Container, FOR_EVER, Log, Named, POLICIES, Plan, ended, holds, init, main, sidecar,
    wait_ended,
};
use crate::Row;
use crate::case::Case;
use crate::support::agent::Pod;

const S1: &str = "restartable-init-1";
const S2: &str = "restartable-init-2";
const S3: &str = "restartable-init-3";
const MAIN: &str = "regular-1";

const TERMINATING: &str = "A pod with restartable init containers is terminating";

/// The tests of ending pods, by their names below that title.
const TESTS: &[Named] = &[
    (
        "The containers exit successfully: should terminate sidecars in reverse order after \
             all main containers have exited",
        reverse_order,
    ),
    (
        "The PreStop hooks don't exit: should terminate sidecars simultaneously if prestop \
             doesn't exit",
        endless_hooks,
    ),
    (
        "the restartable init containers have multiple PreStop hooks: should call sidecar \
             container PreStop hook simultaneously",
        simultaneous_hooks,
    ),
    (
        "Restartable init containers are terminated during initialization: should not hang in \
             termination if terminated during initialization",
        ended_in_initialization,
    ),
    (
        "there is a non-started restartable init container: should terminate restartable init \
             containers gracefully if there is a non-started restartable init container",
        unstarted,
    ),
    (
        "The restartable init containers exit with non-zero exit code: should mark pod as \
             succeeded if any of the restartable init containers have terminated with non-zero \
             exit code",
        sidecar_fails,
    ),
    (
        "The restartable init containers exit with non-zero exit code by prestop hook: should \
             mark pod as succeeded if any of the restartable init containers have terminated with \
             non-zero exit code by prestop hook",
        sidecar_hook_fails,
    ),
    (
        "The regular container has exceeded its termination grace period seconds: should mark \
             pod as failed if regular container has exceeded its termination grace period seconds",
        main_killed,
    ),
    (
        "The restartable init containers have exceeded its termination grace period seconds: \
             should mark pod as succeeded if any of the restartable init containers have exceeded \
             its termination grace period seconds",
        sidecar_killed,
    ),
    (
        "The regular containers have exceeded its termination grace period seconds by prestop \
             hook: should mark pod as failed if any of the prestop hook in regular container has \
             exceeded its termination grace period seconds",
        main_hook_killed,
    ),
    (
        "The restartable init containers have exceeded its termination grace period seconds \
             by prestop hook: should mark pod as succeeded if any of the prestop hook in \
             restartable init containers have exceeded its termination grace period seconds",
        sidecar_hook_killed,
    ),
];

pub(super) fn rows() -> Vec<Row> {
    let row = |&(name, run): &Named| Row::new(AREA, format!("{TERMINATING}: {name}"), run);
    let mut rows: Vec<Row> = TESTS.iter().map(row).collect();
    for policy in POLICIES {
        let name = format!(
            "{TERMINATING}: The containers exit successfully: A restartable init container has its \
             image updated during pod termination: should terminate gracefully when \
             restartPolicy={policy}"
        );
        rows.push(Row::new(AREA, name, move |case| updated_while_ending(case, policy)));
    }
    rows
}

/// Three sidecars, each with this change, and a main container that runs for five seconds.
fn three(change: impl Fn(Container) -> Container) -> Vec<Container> {
    let mut all: Vec<_> = [S1, S2, S3].map(|name| change(sidecar(name).gated())).into();
    all.push(main(MAIN).runs(5));
    all
}

fn begun_in_order(log: &Log) {
    holds!(log, log.starts_before(S1, S2), log.starts_before(S1, S3), log.starts_before(S2, S3));
    for name in [S1, S2, S3] {
        holds!(log, log.starts_before(name, MAIN));
    }
}

fn ended_in_order(log: &Log) {
    for name in [S1, S2, S3] {
        holds!(log, log.exits_before(MAIN, name));
    }
    holds!(log, log.exits_before(S3, S2), log.exits_before(S2, S1));
}

fn completed(pod: &Pod, names: &[&str]) {
    for name in names {
        assert_eq!(ended(pod, name), (0, "Completed".to_owned()), "{name}: {}", pod.0["status"]);
    }
}

fn killed(pod: &Pod, names: &[&str]) {
    for name in names {
        assert_eq!(ended(pod, name), (137, "Error".to_owned()), "{name}: {}", pod.0["status"]);
    }
}

fn reverse_order(case: &Case<'_>) {
    Plan::new("Never", three(|one| one.ends_in(5))).put(case);
    let pod = wait_ended(case);
    completed(&pod, &[S1, S2, S3]);
    let log = Log::of(case);
    begun_in_order(&log);
    ended_in_order(&log);
}

/// Upstream's limits: hooks end within a second of each other, after the grace period of 30 s and
/// two more seconds of the containers. Here the runtime may end a hook whose time is over before it
/// ends the container, so that the hook has only the grace period.
fn endless_hooks(case: &Case<'_>) {
    let endless = "while :; do say PreStop-$who Looping; sleep 0.2; done";
    let hooked = |one: Container| {
        let script = endless.replace("$who", one.name());
        one.ends_in(5).pre_stop(&script, 0)
    };
    Plan::new("Never", three(hooked)).put(case);
    let pod = wait_ended(case);
    killed(&pod, &[S1, S2, S3]);
    let log = Log::of(case);
    begun_in_order(&log);
    let hooks = [S1, S2, S3].map(|name| format!("PreStop-{name}"));
    let first = |name: &String| log.first_s(name, "Starting").expect("the hook ran");
    let last = |name: &String| log.last_s(name, "Looping").expect("the hook went on");
    for hook in &hooks {
        let apart = (last(hook) - last(&hooks[0])).abs();
        assert!(apart <= 1.0, "{hook} ended {apart} s apart: {log:#?}");
        let lived = last(hook) - first(hook);
        assert!((29.0..=33.5).contains(&lived), "{hook} lived {lived} s: {log:#?}");
    }
}

fn simultaneous_hooks(case: &Case<'_>) {
    Plan::new("Never", three(|one| one.ends_in(5).pre_stop("sleep 1", 0))).put(case);
    let pod = wait_ended(case);
    completed(&pod, &[S1, S2, S3]);
    let log = Log::of(case);
    begun_in_order(&log);
    ended_in_order(&log);
    let begun = [S1, S2, S3]
        .map(|name| log.first_s(&format!("PreStop-{name}"), "Starting").expect("the hook ran"));
    for at in begun {
        assert!((at - begun[0]).abs() <= 1.0, "hooks began at {begun:?}");
    }
}

fn ended_in_initialization(case: &Case<'_>) {
    let mut all = vec![init("start-init").runs(300)];
    all.extend([S1, S2, S3].map(|name| sidecar(name).ends_in(5).pre_stop("sleep 1", 0)));
    all.push(main(MAIN).runs(5));
    Plan::new("Never", all).grace(3).put(case);
    let pod = case.wait("it initializes", |pod| {
        let status = pod.container("start-init");
        status["state"]["running"].is_object() && status["started"] == true
    });
    assert_eq!(pod.phase(), "Pending");
    case.take("pod");
    let begun = Instant::now();
    case.node.wait_gone(&pod);
    let took = begun.elapsed();
    // Sidecars that never started are not waited for: the grace period, upstream's two seconds, and
    // the delay by parallel cases.
    assert!(took < Duration::from_secs(3 + 2 + 8), "gone after {took:?}");
}

fn unstarted(case: &Case<'_>) {
    let never =
        "    startupProbe:\n      exec: {command: ['false']}\n      failureThreshold: 100\n";
    let all = vec![
        sidecar(S1).ends_in(1),
        sidecar(S2).ends_in(1).with(never),
        sidecar(S3).ends_in(1),
        main(MAIN),
    ];
    Plan::new("Never", all).put(case);
    let pod = case.wait("the second sidecar runs", |pod| {
        let status = pod.container(S2);
        status["state"]["running"].is_object() && status["started"] != true
    });
    assert_eq!(pod.phase(), "Pending");
    case.wait_log("both sidecars have begun", |log| log.starts(S1) && log.starts(S2));
    let last = case.end_and_watch(&pod);
    let log = Log::of(case);
    holds!(log, log.exits(S1), log.exits(S2), !log.starts(S3), !log.starts(MAIN));
    holds!(log, log.exits_before(S2, S1));
    completed(&last, &[S1, S2]);
}

/// Runs a pod and ends it; returns the last observed state.
fn ended_pod(case: &Case<'_>, grace_s: u32, containers: Vec<Container>) -> Pod {
    let names: Vec<String> = containers.iter().map(|one| one.name().to_owned()).collect();
    Plan::new("Never", containers).grace(grace_s).put(case);
    let pod = case.wait("it runs", |pod| pod.phase() == "Running");
    case.wait_log("all have started", |log| names.iter().all(|name| log.starts(name)));
    case.end_and_watch(&pod)
}

fn sidecar_fails(case: &Case<'_>) {
    let all = vec![
        sidecar(S1).ends_in(1),
        sidecar(S2).ends_in(1).exits(1),
        sidecar(S3).ends_in(1),
        main(MAIN).runs(FOR_EVER).ends_in(1),
    ];
    let pod = ended_pod(case, 30, all);
    assert_eq!(pod.phase(), "Succeeded");
    completed(&pod, &[MAIN, S1, S3]);
    assert_eq!(ended(&pod, S2), (1, "Error".to_owned()));
}

fn sidecar_hook_fails(case: &Case<'_>) {
    let all = vec![
        sidecar(S1).ends_in(1).pre_stop("sleep 1", 0),
        sidecar(S2).ends_in(1).pre_stop("sleep 1", 1),
        sidecar(S3).ends_in(1).pre_stop("sleep 1", 0),
        main(MAIN).runs(FOR_EVER).ends_in(1),
    ];
    let pod = ended_pod(case, 30, all);
    assert_eq!(pod.phase(), "Succeeded");
    completed(&pod, &[MAIN, S1, S2, S3]);
}

fn main_killed(case: &Case<'_>) {
    let all = vec![
        sidecar(S1).ends_in(20),
        sidecar(S2).ends_in(1),
        sidecar(S3).ends_in(20),
        main(MAIN).runs(FOR_EVER).ends_in(20),
    ];
    let pod = ended_pod(case, 5, all);
    assert_eq!(pod.phase(), "Failed");
    killed(&pod, &[MAIN, S1, S3]);
    completed(&pod, &[S2]);
}

fn sidecar_killed(case: &Case<'_>) {
    let all = vec![
        sidecar(S1).gated().ends_in(1),
        sidecar(S2).gated().ends_in(20),
        sidecar(S3).gated().ends_in(1),
        main(MAIN).runs(FOR_EVER).ends_in(1),
    ];
    let pod = ended_pod(case, 5, all);
    assert_eq!(pod.phase(), "Succeeded");
    completed(&pod, &[MAIN, S1, S3]);
    killed(&pod, &[S2]);
}

fn main_hook_killed(case: &Case<'_>) {
    let all = vec![
        sidecar(S1).gated().ends_in(1),
        sidecar(S2).gated().ends_in(20),
        sidecar(S3).gated().ends_in(1),
        main(MAIN).runs(FOR_EVER).ends_in(20).pre_stop("sleep 20", 0),
    ];
    let pod = ended_pod(case, 5, all);
    assert_eq!(pod.phase(), "Failed");
    killed(&pod, &[MAIN, S2]);
    completed(&pod, &[S1, S3]);
}

fn sidecar_hook_killed(case: &Case<'_>) {
    let all = vec![
        sidecar(S1).ends_in(1).pre_stop("sleep 1", 0),
        sidecar(S2).ends_in(20).pre_stop("sleep 30", 0),
        sidecar(S3).ends_in(1).pre_stop("sleep 1", 0),
        main(MAIN).runs(FOR_EVER).ends_in(1),
    ];
    let pod = ended_pod(case, 5, all);
    assert_eq!(pod.phase(), "Succeeded");
    completed(&pod, &[MAIN, S1, S3]);
    killed(&pod, &[S2]);
}

/// The pod of a folder ends when its manifest is removed, so its image can no longer change: the
/// same name with another image is a pod that waits for this one. Nothing of the old pod restarts.
fn updated_while_ending(case: &Case<'_>, policy: &'static str) {
    let all = vec![
        init("init-1"),
        sidecar(S2).ends_in(5),
        sidecar(S3).ends_in(5),
        main(MAIN).runs(FOR_EVER).ends_in(5),
    ];
    let plan = Plan::new(policy, all).grace(180);
    plan.put(case);
    let pod = case.wait("it runs", |pod| pod.phase() == "Running");
    case.wait_log("all have started", |log| [S2, S3, MAIN].iter().all(|name| log.starts(name)));
    case.end_and_watch_with(&pod, |pod| {
        for name in ["init-1", S2, S3, MAIN] {
            assert_eq!(pod.restarts(name), 0, "{name}: {}", pod.0["status"]);
        }
    });
    let log = Log::of(case);
    holds!(log, !log.restarted(S2), !log.restarted(S3), !log.restarted(MAIN));
    holds!(log, log.exits_before(MAIN, S3), log.exits_before(S3, S2));
}
