//! Restarts of the agent, or of the node: containers that run on, init containers that do not run
//! again, and the order in which others start again.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use edged::wire::cri::container::{RemoveContainerRequest, StopContainerRequest};
use edged::wire::cri::sandbox::StopPodSandboxRequest;

use crate::Entry;
use crate::case::{Case, QUICK_END, SLEEP};
use crate::lifecycle::{self, FOR_EVER, Log, OTHER_IMAGE, Plan, holds, init, main, sidecar};
use crate::support::agent::{Pod, manifest};
use crate::support::cri::Cri;
use crate::support::wait::{always, until, until_in};

const UNCHANGED: &str = "Not Change Container Status";
const STATIC: &str = "StaticPod";
const STANDALONE: &str = "StandaloneMode";

/// Cases that share the restart of the agent.
pub(crate) const WAVE: &[Entry] = &[
    (
        lifecycle::AREA,
        "A node reboots: should restart the containers in right order after the node reboot",
        reboot,
    ),
    (
        lifecycle::AREA,
        "A node running restartable init containers reboots: should restart the containers in \
         right order after the node reboot",
        reboot_with_sidecar,
    ),
    (
        lifecycle::AREA,
        "A node running restartable init containers reboots: A node is rebooting and receives an \
         update request: should handle an update during the node reboot",
        |case| update(case, true),
    ),
    (
        lifecycle::AREA,
        "A node running restartable init containers reboots: A node is rebooting and receives an \
         update request: should handle an update during the kubelet restart",
        |case| update(case, false),
    ),
    (
        lifecycle::AREA,
        "The kubelet restarts: a Pod is initialized and running: should not restart any completed \
         init container after the kubelet restart",
        |case| inits_stay(case, false, false),
    ),
    (
        lifecycle::AREA,
        "The kubelet restarts: a Pod is initialized and running: should not restart any completed \
         init container, even after the completed init container statuses have been removed and \
         the kubelet restarted",
        |case| inits_stay(case, false, true),
    ),
    (
        lifecycle::AREA,
        "The kubelet restarts: a Pod is initializing the long-running init container: should not \
         restart any completed init container after the kubelet restart",
        |case| inits_stay(case, true, false),
    ),
    (
        lifecycle::AREA,
        "The kubelet restarts: a Pod is initializing the long-running init container: should not \
         restart any completed init container, even after the completed init container statuses \
         have been removed and the kubelet restarted",
        |case| inits_stay(case, true, true),
    ),
    (UNCHANGED, "should not affect pod status when pod has no probe", |case| {
        unchanged(case, 1, "");
    }),
    (UNCHANGED, "should not affect pod status when pod has startupProbe", |case| {
        unchanged(case, 1, STARTUP);
    }),
    (UNCHANGED, "should not affect pod status when pod has readinessProbe", |case| {
        unchanged(case, 1, READINESS);
    }),
    (UNCHANGED, "should not affect pod status when pod has startupProbe and readinessProbe", |c| {
        unchanged(c, 1, &[STARTUP, READINESS].concat());
    }),
    (UNCHANGED, "should not affect pod status when pod has multiple containers", |case| {
        unchanged(case, 2, "");
    }),
    (
        UNCHANGED,
        "should not affect pod status when pod has multiple containers with startupProbes",
        |case| unchanged(case, 2, STARTUP),
    ),
    (
        UNCHANGED,
        "should not affect pod status when pod has multiple containers with readinessProbes",
        |case| unchanged(case, 2, READINESS),
    ),
    (
        UNCHANGED,
        "should not affect pod status when pod has multiple containers with startup and readiness \
         probes",
        |case| unchanged(case, 2, &[STARTUP, READINESS].concat()),
    ),
    (
        UNCHANGED,
        "should not affect pod status when restartable init container has no probe",
        |case| sidecar_unchanged(case, ""),
    ),
    (
        UNCHANGED,
        "should not affect pod status when restartable init container has startupProbe",
        |case| sidecar_unchanged(case, STARTUP),
    ),
    (
        UNCHANGED,
        "should not affect pod status when restartable init container has readinessProbe",
        |case| sidecar_unchanged(case, READINESS),
    ),
    (
        UNCHANGED,
        "should not affect pod status when restartable init container has startupProbe and \
         readinessProbe",
        |case| sidecar_unchanged(case, &[STARTUP, READINESS].concat()),
    ),
    (
        UNCHANGED,
        "should restart regular containers when sidecar with startupProbe is running after kubelet \
         restart",
        crasher,
    ),
    ("MirrorPod", "should not change container status", |case| {
        unchanged(case, 1, &[STARTUP, READINESS].concat());
    }),
    (STATIC, "should be ready after init container is removed and kubelet restarts", init_removed),
    (
        STATIC,
        "should be ready after sidecar container is removed and kubelet restarts",
        sidecar_removed,
    ),
    (
        STANDALONE,
        "should be ready after init container is removed and kubelet restarts",
        init_removed,
    ),
    (STANDALONE, "the pod should be running and kubelet not panic", |case| {
        case.run("", SLEEP);
        case.across_restart(|| ());
        case.wait("it runs", Pod::runs);
    }),
    (
        "Pods status phase",
        "should be pending during the execution of the init container after the node reboot",
        pending_after_reboot,
    ),
    (
        "Unknown Pods",
        "the static pod should be terminated and cleaned up due to becoming a unknown pod due to \
         being force deleted while kubelet is not running",
        unknown,
    ),
    ("Restart", "should correctly account for terminated pods after restart", accounted),
];

fn cri(case: &Case<'_>) -> Cri {
    Cri::connect(&case.node.containerd.socket()).expect("containerd listens")
}

/// The effect of a reboot on a pod: its sandbox and containers end.
fn stop_sandbox(case: &Case<'_>, pod: &Pod) {
    let mut cri = cri(case);
    for sandbox in case.node.site.runtime_state().of(pod.uid()).sandboxes {
        let request = StopPodSandboxRequest { pod_sandbox_id: sandbox.id };
        cri.call(&request).expect("it can be stopped");
    }
}

/// Removes containers of these names, running or not.
fn remove(case: &Case<'_>, pod: &Pod, names: &[&str]) {
    let mut cri = cri(case);
    for name in names {
        let container_id = pod.container_id(name);
        let stop = StopContainerRequest { container_id: container_id.clone(), timeout: 0 };
        let _ = cri.call(&stop);
        cri.call(&RemoveContainerRequest { container_id }).expect("it can be removed");
    }
}

const MAIN: &str = "regular-1";
const S2: &str = "restartable-init-2";

/// Whether these started in this order for the n-th time, counted from zero.
fn in_order(log: &Log, names: &[&str], n: usize) -> bool {
    let at: Option<Vec<usize>> = names.iter().map(|name| log.nth(name, "Started", n)).collect();
    at.is_some_and(|at| at.is_sorted())
}

fn reboot(case: &Case<'_>) {
    const NAMES: [&str; 4] = ["init-1", "init-2", "init-3", MAIN];
    let inits = ["init-1", "init-2", "init-3"].map(|name| init(name).runs(2));
    let plan = Plan::new("Always", [inits.to_vec(), vec![main(MAIN).runs(FOR_EVER)]].concat());
    plan.put(case);
    let pod = case.wait("it runs", Pod::runs);
    case.wait_log("all have started", |log| in_order(log, &NAMES, 0));
    case.across_restart(|| stop_sandbox(case, &pod));
    case.wait("it runs again", |pod| pod.restarts(MAIN) >= 1 && pod.runs());
    case.wait_log("all have started again", |log| log.nth(MAIN, "Started", 1).is_some());
    let log = Log::of(case);
    holds!(log, in_order(&log, &NAMES, 0), in_order(&log, &NAMES, 1));
}

fn with_sidecar() -> Plan {
    let all = vec![
        init("init-1").runs(6),
        sidecar(S2),
        init("init-3").runs(6),
        main(MAIN).runs(FOR_EVER),
    ];
    Plan::new("Always", all)
}

fn reboot_with_sidecar(case: &Case<'_>) {
    const NAMES: [&str; 4] = ["init-1", S2, "init-3", MAIN];
    with_sidecar().put(case);
    let pod = case.wait("it runs", Pod::runs);
    case.wait_log("all have started", |log| in_order(log, &NAMES, 0));
    case.across_restart(|| stop_sandbox(case, &pod));
    case.wait("it initializes again", |pod| {
        let initializes = pod.restarts("init-1") >= 1 && pod.restarts(MAIN) == 0;
        assert!(!initializes || pod.phase() == "Pending", "{}", pod.0["status"]);
        initializes
    });
    case.wait("it runs again", Pod::runs);
    case.wait_log("all have started again", |log| log.nth(MAIN, "Started", 1).is_some());
    let log = Log::of(case);
    holds!(log, in_order(&log, &NAMES, 0), in_order(&log, &NAMES, 1));
}

fn update(case: &Case<'_>, reboots: bool) {
    let plan = with_sidecar();
    plan.put(case);
    let pod = case.wait("it runs", Pod::runs);
    case.across_restart(|| {
        if reboots {
            stop_sandbox(case, &pod);
        }
    });
    plan.updated(S2, OTHER_IMAGE).put(case);
    let bound = Duration::from_secs(120);
    case.wait_in(bound, "it runs", |pod| {
        (pod.restarts(MAIN) >= 1) == reboots && pod.phase() == "Running"
    });
    case.wait("the sidecar has the other image", |pod| {
        pod.restarts(S2) >= 1 && pod.container(S2)["image"] == OTHER_IMAGE
    });
}

/// As long as upstream checks that no init container runs again.
const A_MINUTE: Duration = Duration::from_secs(60);

fn inits_stay(case: &Case<'_>, initializing: bool, removed: bool) {
    const LONG: &str = "long-running-init-3";
    let third = if initializing { init(LONG).runs(FOR_EVER) } else { init("init-3") };
    let names: &[&str] =
        if initializing { &["init-1", "init-2"] } else { &["init-1", "init-2", "init-3"] };
    let all = vec![init("init-1"), init("init-2"), third, main(MAIN).runs(FOR_EVER)];
    Plan::new("Always", all).put(case);
    let pod = case.wait("it is as far as that", |pod| {
        if initializing {
            let status = pod.container(LONG);
            status["state"]["running"].is_object() && status["started"] == true
        } else {
            pod.runs()
        }
    });
    case.across_restart(|| {
        if removed {
            remove(case, &pod, names);
        }
    });
    let running = if initializing { LONG } else { MAIN };
    always(A_MINUTE, "no init container runs again", || {
        let pod = case.pod();
        std::thread::sleep(Duration::from_millis(500));
        let still = names.iter().all(|name| pod.restarts(name) == 0);
        if still { Ok(()) } else { Err(pod.0["status"].to_string()) }
    });
    let pod = case.pod();
    assert!(pod.container(running)["state"]["running"].is_object(), "{}", pod.0["status"]);
    let log = Log::of(case);
    for two in names.windows(2) {
        holds!(log, log.starts_before(two[0], two[1]), log.exits_before(two[0], two[1]));
    }
    for name in names.iter().chain([&running]) {
        holds!(log, !log.restarted(name));
    }
}

/// Upstream's probes answer at once. These take their time, so that the status before the first
/// answer to a new agent lasts long enough to be observed.
const STARTUP: &str = "    startupProbe:\n      exec: {command: [sleep, '8']}\n      \
                       timeoutSeconds: 30\n      periodSeconds: 1\n";
const READINESS: &str = "    readinessProbe:\n      exec: {command: [sleep, '8']}\n      \
                         timeoutSeconds: 30\n      periodSeconds: 1\n";

/// Whether a container is unchanged: never restarted, started and ready.
fn is_as_it_was(pod: &Pod, name: &str) -> bool {
    let status = pod.container(name);
    status["restartCount"] == 0 && status["started"] == true && status["ready"] == true
}

/// Observes the pod while the agent restarts, and five seconds longer. An agent that has not listed
/// the runtime's objects yet returns pods as their manifests are, as a kubelet's own API does;
/// upstream observes what the kubelet reports after its first list.
fn watch_restart(case: &Case<'_>, names: &[&str]) {
    let wait = |pod: &Pod| pod.phase() == "Running" && pod.condition("Ready") == "True";
    let pod = case.wait("it is ready", wait);
    for name in names {
        assert!(is_as_it_was(&pod, name), "{}", pod.0["status"]);
    }
    // As upstream: so that an old state is not mistaken for a start.
    std::thread::sleep(Duration::from_secs(11));
    let over = AtomicBool::new(false);
    let (site, name) = (&case.node.site, &*case.name);
    std::thread::scope(|scope| {
        let watch = scope.spawn(|| {
            while !over.load(Ordering::SeqCst) {
                // No agent, no answer.
                let shown = site.pod(name);
                let runs =
                    |name: &&str, pod: &Pod| pod.container(name)["state"]["running"].is_object();
                if let Ok(pod) = shown
                    && names.iter().all(|name| runs(name, &pod))
                {
                    let holds = pod.phase() == "Running"
                        && names.iter().all(|name| is_as_it_was(&pod, name));
                    assert!(holds, "{}", pod.0["status"]);
                }
                std::thread::sleep(Duration::from_millis(100));
            }
        });
        case.across_restart(|| ());
        std::thread::sleep(Duration::from_secs(5));
        over.store(true, Ordering::SeqCst);
        if let Err(panic) = watch.join() {
            std::panic::resume_unwind(panic);
        }
    });
    let after = case.pod();
    for name in names {
        assert!(is_as_it_was(&after, name), "{}", after.0["status"]);
        assert_eq!(after.container_id(name), pod.container_id(name));
    }
}

fn unchanged(case: &Case<'_>, count: usize, probes: &str) {
    let second = format!("  - name: second\n    image: localhost/edged-demo:1\n{SLEEP}{probes}");
    let second = if count == 2 { &*second } else { "" };
    case.put_pod("", &format!("{SLEEP}{probes}{second}"));
    watch_restart(case, &["main", "second"][..count]);
}

fn sidecar_unchanged(case: &Case<'_>, probes: &str) {
    case.put_without_grace(QUICK_END, &format!("{SLEEP}{probes}"), true);
    watch_restart(case, &["sidecar"]);
}

fn crasher(case: &Case<'_>) {
    case.put_without_grace(QUICK_END, &format!("{SLEEP}{STARTUP}"), true);
    case.wait("it is ready", |pod| pod.condition("Ready") == "True");
    std::thread::sleep(Duration::from_secs(11));
    case.across_restart(|| ());
    let pod = case.wait("it runs", Pod::runs);
    case.exec(&pod, "main", &["kill", "1"]);
    let pod = case.wait("its main container was begun anew", |pod| {
        pod.restarts("main") >= 1 && pod.container("main")["state"]["running"].is_object()
    });
    let sidecar = pod.container("sidecar");
    assert!(sidecar["state"]["running"].is_object() && sidecar["restartCount"] == 0, "{sidecar}");
}

fn init_removed(case: &Case<'_>) {
    let init = "  initContainers: [{name: init, image: 'localhost/edged-demo:1', command: [ls]}]\n";
    let pod = case.run(init, SLEEP);
    assert_eq!(lifecycle::ended(&pod, "init"), (0, "Completed".to_owned()));
    remove(case, &pod, &["init"]);
    case.across_restart(|| ());
    let pod = case.wait("its init container is said to have completed", |pod| {
        lifecycle::ended(pod, "init") == (0, "Completed".to_owned()) && pod.runs()
    });
    let end = &pod.container("init")["state"]["terminated"];
    let message = end["message"].as_str().unwrap_or_default();
    assert!(message.contains("Unable to get init container status"), "{end}");
}

fn sidecar_removed(case: &Case<'_>) {
    case.put_without_grace(QUICK_END, SLEEP, true);
    let pod = case.wait("it runs", |pod| {
        pod.container("sidecar")["state"]["running"].is_object() && pod.runs()
    });
    case.across_restart(|| remove(case, &pod, &["sidecar"]));
    case.wait("the sidecar was begun anew", |now| {
        now.container("sidecar")["state"]["running"].is_object()
            && now.container_id("sidecar") != pod.container_id("sidecar")
    });
}

fn pending_after_reboot(case: &Case<'_>) {
    let plan = Plan::new("Always", vec![init("init").runs(15), main(MAIN).runs(FOR_EVER)]);
    plan.put(case);
    let pod = case.wait("it runs", Pod::runs);
    case.across_restart(|| stop_sandbox(case, &pod));
    case.wait("its init container runs again", |pod| {
        let status = pod.container("init");
        let again = status["restartCount"] != 0 && status["state"]["running"].is_object();
        assert!(!again || pod.phase() == "Pending", "{}", pod.0["status"]);
        again
    });
    case.wait("it runs again", Pod::runs);
}

fn unknown(case: &Case<'_>) {
    let main = "    command: [sh, -c, 'trap \"\" TERM; while :; do sleep 1; done']\n";
    let text = manifest(&case.name, "  terminationGracePeriodSeconds: 20\n", main);
    case.put("pod", &text);
    let pod = case.wait("it runs", Pod::runs);
    case.across_restart(|| case.take("pod"));
    case.node.wait_gone(&pod);
}

/// Pods that have ended take none of the node's CPU, before a restart and after it.
fn accounted(case: &Case<'_>) {
    let cores = std::thread::available_parallelism().expect("there are some").get();
    let name = |what: &str, number: usize| format!("{}-{what}{number}", case.name);
    let put = |what: &str, number: usize, spec: &str, main: &str| {
        let text = manifest(&name(what, number), &format!("{QUICK_END}{spec}"), main);
        case.put(&format!("{what}{number}"), &text);
    };
    for number in 0..cores {
        let limits = "    resources: {limits: {cpu: 950m, memory: 20Mi}}\n";
        let main = format!("    command: [echo, hi]\n{limits}");
        put("never", number, "  restartPolicy: Never\n", &main);
    }
    let all = |what: &str, count: usize, is: fn(&Pod) -> bool| {
        for number in 0..count {
            until_in(Duration::from_secs(90), &format!("{what}{number}"), || {
                let pod = case.node.pod(&name(what, number))?;
                if is(&pod) { Ok(()) } else { Err(pod.0["status"].to_string()) }
            });
        }
    };
    all("never", cores, |pod| pod.phase() == "Succeeded");
    let always_count = cores / 2 + 1;
    for number in 0..always_count {
        let limits = "    resources: {limits: {cpu: '1', memory: 20Mi}}\n";
        put("always", number, "", &format!("{SLEEP}{limits}"));
    }
    all("always", always_count, Pod::runs);
    case.across_restart(|| ());
    until("the agent answers", || case.node.site.pods());
    std::thread::sleep(Duration::from_secs(10));
    all("never", cores, |pod| pod.phase() == "Succeeded");
    all("always", always_count, Pod::runs);
}
