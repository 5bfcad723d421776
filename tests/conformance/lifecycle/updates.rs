//! Image updates while a pod initializes, runs, restarts or ends; and sidecars whose probes fail.

use std::time::Duration;

use super::{
    AREA, FOR_EVER, Log, OTHER_IMAGE, POLICIES, Plan, holds, init, main, sidecar, wait_ended,
};
use crate::Row;
use crate::case::Case;
use crate::support::agent::Pod;
use crate::support::wait::always;

const INIT: &str = "init-1";
const S1: &str = "restartable-init-1";
const S2: &str = "restartable-init-2";
const MAIN: &str = "regular-1";
const SECOND: &str = "regular-2";

const REGULAR: &str = "A pod is running only regular containers";
const STARTUP: &str = "running restartable init containers with startup probes";
const LIVENESS: &str = "running restartable init containers with liveness probes";

/// A test for each policy: its name before the policy, and its function.
type OfPolicy = (String, fn(&Case<'_>, &'static str));

fn of_policies() -> Vec<OfPolicy> {
    vec![
        (
            format!(
                "{REGULAR}: the regular container has its image updated during initialization: \
                 Should not start a regular container, restartPolicy="
            ),
            initializing,
        ),
        (
            format!(
                "{REGULAR}: The regular container has its image updated during termination: \
                 should not update the image when restartPolicy="
            ),
            ending,
        ),
        (
            "initializing an init container after a restartable init container: Should begin \
             initializing the pod, restartPolicy="
                .to_owned(),
            sidecar_before_init,
        ),
        (
            format!(
                "{STARTUP}: the image is updated after the restartable init container's startup \
                 probe fails: should update the image when restartPolicy="
            ),
            sidecar_startup,
        ),
        (
            format!(
                "{LIVENESS}: A restartable init container has its image changed after its \
                 liveness probe fails: should update the image when restartPolicy="
            ),
            sidecar_liveness,
        ),
    ]
}

pub(super) fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    for policy in POLICIES {
        for (name, run) in of_policies() {
            rows.push(Row::new(AREA, format!("{name}{policy}"), move |case| run(case, policy)));
        }
        let equals = if policy == "Always" { ", restartPolicy=" } else { " and restartPolicy=" };
        let name = format!(
            "{REGULAR}: the regular container has its image updated: should successfully restart \
             when the image is updated{equals}{policy}"
        );
        rows.push(Row::new(AREA, name, move |case| running(case, policy)));
    }
    for policy in ["Always", "OnFailure"] {
        for (kind, name) in [("startupProbe", "startup"), ("livenessProbe", "liveness")] {
            let name = format!(
                "{REGULAR}: The regular container has its image updated after a failed {name} \
                 probe: should update the image when restartPolicy={policy}"
            );
            rows.push(Row::new(AREA, name, move |case| failed_probe(case, policy, kind)));
        }
    }
    rows.extend(sidecars_with_probes());
    rows.extend(init_updates());
    rows
}

fn sidecars_with_probes() -> [Row; 4] {
    let row = |name: String, run: fn(&Case<'_>)| Row::new(AREA, name, run);
    [
        row(
            format!(
                "{STARTUP}: should launch restartable init containers serially considering the \
                 startup probe"
            ),
            startup_in_order,
        ),
        row(
            format!(
                "{STARTUP}: using a PreStop hook: should call the container's preStop hook and not \
                 launch next container if the restartable init container's startup probe fails"
            ),
            startup_hook,
        ),
        row(
            format!(
                "{LIVENESS}: should call the container's preStop hook and start the next container \
                 if the restartable init container's liveness probe fails"
            ),
            liveness_hook,
        ),
        row(
            "A restartable init container with startup probe fails initially: should continue \
             probing and allow regular container to start after the restartable init container \
             recovers"
                .to_owned(),
            recovers,
        ),
    ]
}

fn init_updates() -> [Row; 3] {
    let begin = "Running a pod with init containers and regular containers, restartPolicy=Always: \
                 the init container is updated with a new image: should not restart";
    let row = |name: &str, run: fn(&Case<'_>)| Row::new(AREA, format!("{begin} {name}"), run);
    [
        row("init container when updated with a new image after finishing", |case| {
            init_unmoved(case, OTHER_IMAGE);
        }),
        row("the init container if the image is updated during initialization", |case| {
            init_unmoved(case, super::BAD_IMAGE);
        }),
        row("the init container if the image is updated during termination", init_ending),
    ]
}

/// Whether a container has the other image and has restarted at least this often.
fn has_other(pod: &Pod, name: &str, restarts: u64) -> bool {
    pod.container(name)["image"] == OTHER_IMAGE && pod.restarts(name) >= restarts
}

fn running(case: &Case<'_>, policy: &'static str) {
    let plan = Plan::new(policy, vec![main(MAIN).runs(60), main(SECOND).runs(60)]);
    plan.put(case);
    case.wait("it runs", Pod::runs);
    plan.updated(MAIN, OTHER_IMAGE).put(case);
    // Upstream's timeout.
    let pod = case.wait_in(Duration::from_secs(20), "it runs with the other image", |pod| {
        pod.container(MAIN)["state"]["running"].is_object() && has_other(pod, MAIN, 1)
    });
    assert!(pod.container(SECOND)["state"]["running"].is_object(), "{}", pod.0["status"]);
    assert_eq!(pod.restarts(SECOND), 0);
}

fn initializing(case: &Case<'_>, policy: &'static str) {
    let mains = [MAIN, SECOND].map(|name| main(name).runs(10).ends_in(1));
    let plan = Plan::new(policy, [vec![init(INIT).runs(30)], mains.into()].concat());
    plan.put(case);
    case.wait("it initializes", |pod| {
        let status = pod.container(INIT);
        status["state"]["running"].is_object() && status["started"] == true
    });
    plan.updated(MAIN, OTHER_IMAGE).put(case);
    always(Duration::from_secs(7), "no main container starts", || {
        let pod = case.pod();
        let idle = |name: &str| {
            pod.restarts(name) == 0 && pod.container(name)["state"]["running"].is_null()
        };
        let holds = pod.phase() == "Pending" && idle(MAIN) && idle(SECOND);
        if holds { Ok(()) } else { Err(pod.0["status"].to_string()) }
    });
    case.wait("both run for the first time, one with the other image", |pod| {
        pod.runs() && pod.restarts(MAIN) + pod.restarts(SECOND) == 0 && has_other(pod, MAIN, 0)
    });
}

/// The image changes after its probe has failed once.
fn failed_probe(case: &Case<'_>, policy: &'static str, kind: &str) {
    let probe = failing(kind, 4);
    let plan = Plan::new(policy, vec![main(MAIN).runs(600).with(&probe)]);
    plan.put(case);
    case.wait("its probe restarts it", |pod| pod.restarts(MAIN) >= 1);
    plan.updated(MAIN, OTHER_IMAGE).put(case);
    case.wait("it has the other image", |pod| has_other(pod, MAIN, 2));
}

fn failing(kind: &str, delay_s: u32) -> String {
    format!(
        "    {kind}:\n      exec: {{command: [sh, -c, 'exit 1']}}\n      initialDelaySeconds: \
         {delay_s}\n      periodSeconds: 1\n      failureThreshold: 1\n"
    )
}

/// The pod of a folder ends when its manifest is removed; the same name with another image is
/// another pod, which waits. The ending one is not changed.
fn ending(case: &Case<'_>, policy: &'static str) {
    let plan = Plan::new(policy, vec![main(MAIN).runs(FOR_EVER).ends_in(10).exits(1)]);
    plan.put(case);
    let pod = case.wait("it runs", Pod::runs);
    case.wait_log("it has started", |log| log.starts(MAIN));
    case.take("pod");
    let next = plan.updated(MAIN, OTHER_IMAGE);
    next.put_with_uid(case, &format!("{}-next", case.name));
    let last = case.watch_end(&pod, |pod| {
        let status = pod.container(MAIN);
        assert!(status["restartCount"] == 0 && status["image"] != OTHER_IMAGE, "{status}");
    });
    assert_eq!(super::ended(&last, MAIN).0, 1, "{}", last.0["status"]);
    case.wait("the other pod runs", |pod| pod.runs() && has_other(pod, MAIN, 0));
    let log = Log::of(case);
    holds!(log, log.nth(MAIN, "Exiting", 0) < log.nth(MAIN, "Starting", 1));
    case.end_at_once();
}

fn sidecar_before_init(case: &Case<'_>, policy: &'static str) {
    const NEXT: &str = "init-2";
    let next = if policy == "Never" { init(NEXT).runs(15).exits(1) } else { init(NEXT).runs(600) };
    let all = vec![
        init(INIT),
        sidecar(S1).ends_in(5).gated(),
        next,
        sidecar(S2).runs(1).ends_in(1).gated(),
        main(MAIN).ends_in(1),
    ];
    let plan = Plan::new(policy, all);
    plan.put(case);
    case.wait("its second init container runs", |pod| {
        assert_eq!(pod.phase(), "Pending");
        let status = pod.container(NEXT);
        status["state"]["running"].is_object() && status["started"] == true
    });
    plan.updated(S1, OTHER_IMAGE).put(case);
    case.wait("the sidecar has the other image", |pod| {
        pod.container(S1)["state"]["running"].is_object() && has_other(pod, S1, 1)
    });
    if policy == "Never" {
        wait_ended(case);
    } else {
        case.wait_log("the sidecar writes again", |log| log.restarted(S1));
    }
    let log = Log::of(case);
    holds!(log, log.starts_before(INIT, S1), log.starts_before(S1, NEXT), log.starts(NEXT));
    holds!(log, !log.starts(S2), !log.starts(MAIN), !log.restarted(INIT), !log.restarted(NEXT));
    holds!(log, log.restarted(S1));
    if policy == "Never" {
        holds!(log, log.exits(NEXT), log.exits(S1), log.exits(INIT));
        let last_exit = log.last_s(S1, "Exiting");
        holds!(log, log.first_s(NEXT, "Exiting") < last_exit);
    }
}

fn sidecar_startup(case: &Case<'_>, policy: &'static str) {
    let probe = failing("startupProbe", 4);
    let all = vec![sidecar(S1), sidecar(S2).with(&probe), main(MAIN)];
    let plan = Plan::new(policy, all);
    plan.put(case);
    case.wait("its probe restarts it", |pod| pod.restarts(S2) >= 1);
    plan.updated(S2, OTHER_IMAGE).put(case);
    let pod = case.wait("it has the other image", |pod| has_other(pod, S2, 2));
    assert_eq!(pod.phase(), "Pending");
    let log = Log::of(case);
    holds!(log, !log.starts(MAIN), !log.restarted(S1));
}

fn sidecar_liveness(case: &Case<'_>, policy: &'static str) {
    let probe = failing("livenessProbe", 4);
    let run_s = if policy == "Always" { 1 } else { 600 };
    let all = vec![sidecar(S1), sidecar(S2).with(&probe), main(MAIN).runs(run_s)];
    let plan = Plan::new(policy, all);
    plan.put(case);
    case.wait("its probe restarts it", |pod| pod.restarts(S2) >= 1);
    plan.updated(S2, OTHER_IMAGE).put(case);
    case.wait("it has the other image", |pod| has_other(pod, S2, 2));
    let log = Log::of(case);
    holds!(log, log.starts(MAIN), !log.restarted(S1));
    assert_eq!(log.restarted(MAIN), policy == "Always", "{log:#?}");
}

fn startup_in_order(case: &Case<'_>) {
    let probe = "    startupProbe:\n      exec: {command: [test, -f, /tmp/started]}\n      \
                 periodSeconds: 1\n      failureThreshold: 60\n";
    let all = vec![
        sidecar(S1).starts_in(4).with(probe),
        sidecar(S2).starts_in(4).with(probe),
        main(MAIN),
    ];
    Plan::new("Never", all).put(case);
    wait_ended(case);
    let log = Log::of(case);
    holds!(log, log.starts_before(S1, S2), log.starts_before(S2, MAIN));
}

fn startup_hook(case: &Case<'_>) {
    let probe = failing("startupProbe", 3);
    let sidecar = sidecar(S1).ends_in(4).with(&probe).pre_stop("sleep 1", 0);
    Plan::new("Always", vec![sidecar, main(MAIN)]).put(case);
    let pod = case.wait("it was restarted twice", |pod| pod.restarts(S1) >= 2);
    assert_eq!(pod.phase(), "Pending");
    let log = Log::of(case);
    let hook = "PreStop-restartable-init-1";
    holds!(log, log.together(S1, hook), log.starts(hook), log.exits(S1), !log.starts(MAIN));
}

fn liveness_hook(case: &Case<'_>) {
    let probe = failing("livenessProbe", 3);
    let sidecar = sidecar(S1).ends_in(4).with(&probe).pre_stop("sleep 1", 0);
    Plan::new("Always", vec![sidecar, main(MAIN)]).put(case);
    let bound = Duration::from_secs(120);
    case.wait_in(bound, "both were restarted", |pod| {
        pod.restarts(S1) >= 2 && pod.restarts(MAIN) >= 1
    });
    let log = Log::of(case);
    let hook = "PreStop-restartable-init-1";
    holds!(log, log.together(S1, hook), log.starts(hook), log.exits(S1), log.starts(MAIN));
}

/// It fails once, and the probes continue after that.
fn recovers(case: &Case<'_>) {
    let count = "  volumes: [{name: count, emptyDir: {}}]\n";
    let mount = "    volumeMounts: [{name: count, mountPath: /count}]\n";
    let script = "if [ -f /count/done ]; then exec sleep 120; fi; touch /count/done; exit 1";
    let probe = "    startupProbe:\n      exec: {command: [test, -f, /count/done]}\n      \
                 initialDelaySeconds: 3\n      periodSeconds: 2\n      failureThreshold: 10\n";
    let inits = format!(
        "  initContainers:\n  - name: {S1}\n    restartPolicy: Always\n    image: \
         localhost/edged-demo:1\n    command: [sh, -c, '{script}']\n{mount}{probe}"
    );
    let ready = "    startupProbe:\n      exec: {command: ['true']}\n      periodSeconds: 1\n";
    let main = format!("    command: [sleep, '120']\n{ready}");
    case.put_pod(&format!("  restartPolicy: Never\n{count}{inits}"), &main);
    case.wait("the sidecar was restarted", |pod| pod.restarts(S1) >= 1);
    case.wait("the sidecar runs", |pod| pod.container(S1)["state"]["running"].is_object());
    case.wait("the main container runs", |pod| {
        pod.container("main")["state"]["running"].is_object()
    });
}

/// An init container that has ended does not run again for another image.
fn init_unmoved(case: &Case<'_>, image: &'static str) {
    let plan = Plan::new("Always", vec![init(INIT), main(MAIN).runs(FOR_EVER)]);
    plan.put(case);
    case.wait("it runs", Pod::runs);
    plan.updated(INIT, image).put(case);
    case.wait("the other image is wanted", |pod| {
        pod.0["spec"]["initContainers"][0]["image"] == image
    });
    always(Duration::from_secs(5), "the init container stays as it is", || {
        let pod = case.pod();
        let status = pod.container(INIT);
        let holds = status["state"]["terminated"]["exitCode"] == 0
            && status["image"] != image
            && status["restartCount"] == 0;
        if holds { Ok(()) } else { Err(status.to_string()) }
    });
    let log = Log::of(case);
    holds!(log, log.starts(INIT), !log.restarted(INIT));
}

fn init_ending(case: &Case<'_>) {
    let all = vec![init(INIT), main(MAIN).runs(FOR_EVER).ends_in(8).exits(1)];
    let plan = Plan::new("Never", all);
    plan.put(case);
    let pod = case.wait("it runs", Pod::runs);
    case.wait_log("it has started", |log| log.starts(MAIN));
    case.take("pod");
    plan.updated(INIT, OTHER_IMAGE).put_with_uid(case, &format!("{}-next", case.name));
    case.watch_end(&pod, |pod| {
        let status = pod.container(INIT);
        assert!(status["restartCount"] == 0 && status["image"] != OTHER_IMAGE, "{status}");
    });
    case.end_at_once();
}
