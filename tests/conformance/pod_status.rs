//! Pod status: the order of conditions, addresses, the end, the QoS class; and replaced pods of the
//! folder.

use std::time::{Duration, Instant};

use crate::Entry;
use crate::case::{Case, SLEEP, quoted};
use crate::support::agent::{Pod, manifest};
use crate::support::wait::{always, until};

const CONDITIONS: &str = "Pod conditions managed by Kubelet";
const DELETED: &str = "Deleted pods handling";
const HOST_IPS: &str = "Pod Host IPs";
const IPS: &str = "Pod IPs";
const MIRROR: &str = "MirrorPod";
const GRACE: &str = "MirrorPodWithGracePeriod";
const STANDALONE: &str = "StandaloneMode";

pub(crate) const ROWS: &[Entry] = &[
    (
        "Pods Extended",
        "should be set on Pods with matching resource requests and limits for memory and cpu",
        class,
    ),
    (
        DELETED,
        "Should transition to Failed phase a pod which is deleted while pending",
        deleted_pending,
    ),
    (
        DELETED,
        "Should transition to Failed phase a deleted pod if non-zero exit codes: Restart policy \
         Always",
        |case| killed(case, "Always"),
    ),
    (
        DELETED,
        "Should transition to Failed phase a deleted pod if non-zero exit codes: Restart policy \
         OnFailure",
        |case| killed(case, "OnFailure"),
    ),
    (
        DELETED,
        "Should transition to Failed phase a deleted pod if non-zero exit codes: Restart policy \
         Never",
        |case| killed(case, "Never"),
    ),
    (
        DELETED,
        "Should transition to Succeeded phase a deleted pod when containers complete with 0 exit \
         code: Restart policy Always",
        |case| completed(case, "Always"),
    ),
    (
        DELETED,
        "Should transition to Succeeded phase a deleted pod when containers complete with 0 exit \
         code: Restart policy OnFailure",
        |case| completed(case, "OnFailure"),
    ),
    (
        DELETED,
        "Should transition to Succeeded phase a deleted pod when containers complete with 0 exit \
         code: Restart policy Never",
        |case| completed(case, "Never"),
    ),
    (
        "Pod SIGKILL",
        "The containers terminated forcefully by Sigkill should have the correct exit code(137) \
         and reason (Error)",
        sigkill,
    ),
    (
        HOST_IPS,
        "should add node IPs of all supported families to hostIPs of pod-network pod",
        |c| {
            host_ips(c, "");
        },
    ),
    (
        HOST_IPS,
        "should add node IPs of all supported families to hostIPs of host-network pod",
        |case| host_ips(case, "  hostNetwork: true\n"),
    ),
    (IPS, "should contain podIPs in status for succeeded pod", |case| ips_of_ended(case, 0)),
    (IPS, "should contain podIPs in status for failed pod", |case| ips_of_ended(case, 42)),
    (IPS, "should contain podIPs in status for during termination", ips_while_ending),
    (
        "Terminate Pods",
        "should not hang when terminating pods mounting non-existent volumes",
        ends_without_volume,
    ),
    (MIRROR, "should be updated when static pod updated", replaced),
    (MIRROR, "should successfully recreate when file is removed and recreated", recreated),
    (
        GRACE,
        "mirror pod termination should satisfy grace period when static pod is deleted",
        runs_for_its_grace_period,
    ),
    (
        GRACE,
        "mirror pod termination should satisfy grace period when static pod is updated",
        updated_after_its_grace_period,
    ),
    (
        GRACE,
        "should update a static pod when the static pod is updated multiple times during the \
         graceful termination period",
        updated_many_times,
    ),
    (STANDALONE, "the pod should be running", |case| {
        let pod = case.run("", SLEEP);
        assert_eq!(pod.condition("Ready"), "True");
    }),
    (
        STANDALONE,
        "the pod with the port on host network should be running and can be upgraded when the \
         container name changes",
        renamed,
    ),
    (CONDITIONS, READY_PLAIN, |case| in_order(case, false, false)),
    (CONDITIONS, READY_INIT, |case| in_order(case, true, false)),
    (CONDITIONS, MAP_PLAIN, |case| unmounted(case, "ConfigMap", false, false)),
    (CONDITIONS, MAP_INIT, |case| unmounted(case, "ConfigMap", true, false)),
    (CONDITIONS, SECRET_PLAIN, |case| unmounted(case, "Secret", false, false)),
    (CONDITIONS, SECRET_INIT, |case| unmounted(case, "Secret", true, false)),
    (CONDITIONS, STARTABLE_READY_PLAIN, |case| in_order(case, false, true)),
    (CONDITIONS, STARTABLE_READY_INIT, |case| in_order(case, true, true)),
    (CONDITIONS, STARTABLE_MAP_PLAIN, |case| unmounted(case, "ConfigMap", false, true)),
    (CONDITIONS, STARTABLE_MAP_INIT, |case| unmounted(case, "ConfigMap", true, true)),
    (CONDITIONS, STARTABLE_SECRET_PLAIN, |case| unmounted(case, "Secret", false, true)),
    (CONDITIONS, STARTABLE_SECRET_INIT, |case| unmounted(case, "Secret", true, true)),
];

/// The names of the conditions' tests, without and with the condition of the sandbox.
macro_rules! names {
    ($($plain:ident $startable:ident = $name:literal,)+) => {
        $(
            const $plain: &str =
                concat!("without PodReadyToStartContainersCondition condition: ", $name);
            const $startable: &str =
                concat!("including PodReadyToStartContainers condition: ", $name);
        )+
    };
}

names! {
    READY_PLAIN STARTABLE_READY_PLAIN = "a pod without init containers should report all \
        conditions set in expected order after the pod is up",
    READY_INIT STARTABLE_READY_INIT = "a pod with init containers should report all conditions \
        set in expected order after the pod is up",
    MAP_PLAIN STARTABLE_MAP_PLAIN = "a pod failing to mount volumes (ConfigMap) and without init \
        containers should report scheduled and initialized conditions set",
    MAP_INIT STARTABLE_MAP_INIT = "a pod failing to mount volumes (ConfigMap) and with init \
        containers should report just the scheduled condition set",
    SECRET_PLAIN STARTABLE_SECRET_PLAIN = "a pod failing to mount volumes (Secret) and without \
        init containers should report scheduled and initialized conditions set",
    SECRET_INIT STARTABLE_SECRET_INIT = "a pod failing to mount volumes (Secret) and with init \
        containers should report just the scheduled condition set",
}

fn class(case: &Case<'_>) {
    let resources = "    resources: {requests: {cpu: 100m, memory: 20Mi}, limits: {cpu: 100m, \
                     memory: 20Mi}}\n";
    let pod = case.run("", &format!("{SLEEP}{resources}"));
    assert_eq!(pod.0["status"]["qosClass"], "Guaranteed");
}

/// The end of `main`: exit code and reason.
fn end_of(pod: &Pod) -> (i64, String) {
    crate::lifecycle::ended(pod, "main")
}

fn deleted_pending(case: &Case<'_>) {
    let main = "    imagePullPolicy: Always\n";
    let text = manifest(&case.name, "", main);
    let text = text.replace("localhost/edged-demo:1", "invalid.invalid/no/such:1");
    let last = shown_end(case, || {
        case.put("pod", &text);
        // With a sandbox there is something to end.
        case.wait("its image cannot be pulled", |pod| {
            ["ErrImagePull", "ImagePullBackOff"].contains(&pod.waits_for("main"))
        })
    });
    assert_eq!(last.phase(), "Failed", "{}", last.0["status"]);
}

/// The number of pods to end until an end is observed.
const TRIES: usize = 4;

/// The observed end of a pod. It is visible only until the last object of the pod is removed, which
/// may be between two polls: then another pod is tried. If none is ever observed, the test fails.
fn shown_end(case: &Case<'_>, begin: impl Fn() -> Pod) -> Pod {
    let mut last = None;
    for _ in 0..TRIES {
        let shown = case.end_and_watch(&begin());
        if matches!(shown.phase(), "Failed" | "Succeeded") {
            return shown;
        }
        last = Some(shown);
    }
    panic!("of {TRIES} pods none was shown to have ended; the last: {last:?}")
}

fn killed(case: &Case<'_>, policy: &str) {
    let spec = format!("  restartPolicy: {policy}\n");
    let last = shown_end(case, || {
        case.put_pod(&spec, "    command: [sleep, '1800']\n");
        case.wait("it runs", Pod::runs)
    });
    assert_eq!(last.phase(), "Failed", "{}", last.0["status"]);
    assert_eq!(end_of(&last).0, 137);
}

/// A container that is ready once it traps SIGTERM, and then exits with this code.
fn trapping(exit: u8, pre_stop: &str) -> String {
    let script = format!(
        "trap 'kill $child' TERM; sleep 9999999 & child=$!; touch /tmp/trap; wait $child; exit \
         {exit}"
    );
    format!(
        "    command: [sh, -c, {}]\n    readinessProbe:\n      exec: {{command: [cat, \
         /tmp/trap]}}\n      periodSeconds: 1\n{pre_stop}",
        quoted(&script)
    )
}

fn wait_ready(case: &Case<'_>) -> Pod {
    case.wait("it is ready", |pod| pod.condition("Ready") == "True")
}

fn completed(case: &Case<'_>, policy: &str) {
    let spec = format!("  restartPolicy: {policy}\n");
    let last = shown_end(case, || {
        case.put("pod", &manifest(&case.name, &spec, &trapping(0, "")));
        wait_ready(case)
    });
    assert_eq!(last.phase(), "Succeeded", "{}", last.0["status"]);
    assert_eq!(end_of(&last).0, 0);
}

fn sigkill(case: &Case<'_>) {
    let main = "    command: [sh, -c, 'trap \"echo caught\" TERM INT; touch /tmp/healthy; sleep \
                1000']\n    readinessProbe:\n      exec: {command: [cat, /tmp/healthy]}\n      \
                initialDelaySeconds: 1\n      timeoutSeconds: 2\n";
    let spec = "  restartPolicy: Never\n  terminationGracePeriodSeconds: 5\n";
    let last = shown_end(case, || {
        case.put("pod", &manifest(&case.name, spec, main));
        wait_ready(case)
    });
    assert_eq!(end_of(&last), (137, "Error".to_owned()));
}

/// The node's addresses in its status are those of its interfaces.
fn host_ips(case: &Case<'_>, spec: &str) {
    let pod = case.run(spec, SLEEP);
    let status = &pod.0["status"];
    let all = status["hostIPs"].as_array().cloned().unwrap_or_default();
    let all: Vec<&str> = all.iter().filter_map(|one| one["ip"].as_str()).collect();
    assert!(!all.is_empty() && status["hostIP"] == all[0], "{status}");
    let families = all.iter().map(|ip| ip.contains(':'));
    let families: std::collections::BTreeSet<bool> = families.collect();
    assert_eq!(families.len(), all.len(), "one of each family: {all:?}");
    let output = std::process::Command::new("ip").args(["-o", "address"]).output();
    let interfaces = String::from_utf8_lossy(&output.expect("ip runs").stdout).into_owned();
    for ip in all {
        assert!(interfaces.contains(&format!(" {ip}/")), "{ip} is none of {interfaces}");
    }
}

fn has_ips(pod: &Pod) -> Result<(), String> {
    let status = &pod.0["status"];
    let first = status["podIPs"][0]["ip"].as_str().unwrap_or_default();
    let holds = !first.is_empty() && status["podIP"] == first;
    if holds { Ok(()) } else { Err(status.to_string()) }
}

fn ips_of_ended(case: &Case<'_>, exit: u8) {
    let pod = case.run_script("", "", &format!("sleep 1; exit {exit}"));
    assert_eq!(end_of(&pod).0, i64::from(exit));
    has_ips(&pod).expect("it has addresses");
}

fn ips_while_ending(case: &Case<'_>) {
    let hook = "    lifecycle: {preStop: {exec: {command: [sleep, '1']}}}\n";
    let spec = "  restartPolicy: Never\n";
    case.put("pod", &manifest(&case.name, spec, &trapping(42, hook)));
    let pod = wait_ready(case);
    let last = case.end_and_watch_with(&pod, |pod| has_ips(pod).expect("it has addresses"));
    assert_eq!(end_of(&last).0, 42);
}

fn ends_without_volume(case: &Case<'_>) {
    let spec = "  volumes: [{name: v, secret: {secretName: non-existent}}]\n";
    let main = format!("{SLEEP}    volumeMounts: [{{name: v, mountPath: /v}}]\n");
    case.put("pod", &manifest(&case.name, spec, &main));
    let pod = case
        .wait("its containers are not ready", |pod| pod.condition("ContainersReady") == "False");
    case.take("pod");
    let begun = Instant::now();
    case.node.wait_gone(&pod);
    // Upstream's limit, and the delay by parallel cases. A pod that hangs takes minutes.
    assert!(begun.elapsed() < Duration::from_secs(10 + 30), "gone after {:?}", begun.elapsed());
}

const IMAGE: &str = "localhost/edged-demo:1";
const OTHER_IMAGE: &str = "localhost/edged-demo:2";

fn wait_replaced(case: &Case<'_>, before: &Pod, image: &str) -> Pod {
    case.wait("another pod runs in its place", |pod| {
        pod.uid() != before.uid() && pod.runs() && pod.0["spec"]["containers"][0]["image"] == image
    })
}

/// A pod without its own uid is another one for each content of its file.
fn replaced(case: &Case<'_>) {
    let before = case.run("", SLEEP);
    let text = manifest(&case.name, "  terminationGracePeriodSeconds: 1\n", SLEEP);
    case.put("pod", &text.replace(IMAGE, OTHER_IMAGE));
    wait_replaced(case, &before, OTHER_IMAGE);
    case.node.wait_gone(&before);
}

/// The same file again: the same pod, restarted or running on.
fn recreated(case: &Case<'_>) {
    let before = case.run("", SLEEP);
    case.take("pod");
    until("the agent ends it", || {
        let pod = case.node.pod(&case.name);
        if pod.as_ref().is_ok_and(Pod::runs) { Err("it runs".to_owned()) } else { Ok(()) }
    });
    case.put_pod("", SLEEP);
    case.wait("its container was begun anew", |pod| {
        pod.runs() && pod.container_id("main") != before.container_id("main")
    });
    always(Duration::from_secs(10), "it runs on", || {
        let pod = case.pod();
        if pod.runs() { Ok(()) } else { Err(pod.0["status"].to_string()) }
    });
    let pod = case.pod();
    case.take("pod");
    case.node.wait_gone(&pod);
}

/// A pod that uses its whole grace period of twenty seconds.
fn slow_to_end(case: &Case<'_>, image: &str) -> String {
    let main = "    command: [sh, -c, 'trap \"\" TERM; while :; do sleep 1; done']\n";
    let text = manifest(&case.name, "  terminationGracePeriodSeconds: 20\n", main);
    text.replace(IMAGE, image)
}

/// As upstream observes it.
const NEARLY: Duration = Duration::from_secs(19);

fn still_runs(case: &Case<'_>, pod: &Pod) {
    always(NEARLY, "it runs until its grace period is over", || {
        let pods = case.node.pods();
        let found = pods.iter().find(|shown| shown.uid() == pod.uid());
        if found.is_some_and(Pod::runs) {
            Ok(())
        } else {
            Err(found.map_or_else(|| "gone".to_owned(), |pod| pod.0["status"].to_string()))
        }
    });
}

fn runs_for_its_grace_period(case: &Case<'_>) {
    case.put("pod", &slow_to_end(case, IMAGE));
    let pod = case.wait("it runs", Pod::runs);
    case.take("pod");
    still_runs(case, &pod);
    case.node.wait_gone(&pod);
}

fn updated_after_its_grace_period(case: &Case<'_>) {
    case.put("pod", &slow_to_end(case, IMAGE));
    let pod = case.wait("it runs", Pod::runs);
    let next = manifest(&case.name, "  terminationGracePeriodSeconds: 1\n", SLEEP);
    case.put("pod", &next.replace(IMAGE, OTHER_IMAGE));
    still_runs(case, &pod);
    wait_replaced(case, &pod, OTHER_IMAGE);
}

/// Upstream writes it three hundred times, a tenth of a second apart.
fn updated_many_times(case: &Case<'_>) {
    case.put("pod", &slow_to_end(case, IMAGE));
    let pod = case.wait("it runs", Pod::runs);
    let end = Instant::now() + Duration::from_secs(30);
    for number in 0.. {
        case.put("pod", &slow_to_end(case, &format!("invalid.invalid/image:{number}")));
        std::thread::sleep(Duration::from_millis(100));
        if Instant::now() > end {
            break;
        }
    }
    let next = manifest(&case.name, "  terminationGracePeriodSeconds: 1\n", SLEEP);
    case.put("pod", &next.replace(IMAGE, OTHER_IMAGE));
    wait_replaced(case, &pod, OTHER_IMAGE);
}

fn renamed(case: &Case<'_>) {
    let port = crate::support::port::free_port();
    let text = |name: &str| {
        let main = format!("{SLEEP}    ports: [{{name: tcp, containerPort: {port}}}]\n");
        let spec = "  hostNetwork: true\n  terminationGracePeriodSeconds: 1\n";
        manifest(&case.name, spec, &main).replace("- name: main", &format!("- name: {name}"))
    };
    case.put("pod", &text("main"));
    wait_ready(case);
    case.put("pod", &text("upgraded"));
    case.wait("it runs with the other name", |pod| {
        pod.0["spec"]["containers"][0]["name"] == "upgraded" && pod.condition("Ready") == "True"
    });
}

/// The last transition time of a condition in the status; it must have this status.
pub(crate) fn since(pod: &Pod, kind: &str, status: &str) -> String {
    let all = pod.0["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let found = all.iter().find(|condition| condition["type"] == kind);
    let found = found.unwrap_or_else(|| panic!("no condition {kind}: {all:?}"));
    assert_eq!(found["status"], status, "{kind}: {all:?}");
    found["lastTransitionTime"].as_str().expect("a time").to_owned()
}

const STARTABLE: &str = "PodReadyToStartContainers";

fn with_init(init: bool) -> &'static str {
    if init {
        "  initContainers: [{name: init, image: 'localhost/edged-demo:1', command: ['true']}]\n"
    } else {
        ""
    }
}

fn in_order(case: &Case<'_>, init: bool, startable: bool) {
    case.put_pod(with_init(init), SLEEP);
    let pod = wait_ready(case);
    let scheduled = since(&pod, "PodScheduled", "True");
    let initialized = since(&pod, "Initialized", "True");
    let mut before = initialized.clone();
    if startable {
        let ready_to_start = since(&pod, STARTABLE, "True");
        if init {
            assert!(ready_to_start >= scheduled && ready_to_start <= initialized);
        } else {
            assert!(ready_to_start >= initialized);
            before = ready_to_start;
        }
    } else {
        assert!(initialized >= scheduled);
    }
    let containers = since(&pod, "ContainersReady", "True");
    assert!(containers >= before);
    assert!(since(&pod, "Ready", "True") >= containers);
}

fn unmounted(case: &Case<'_>, kind: &str, init: bool, startable: bool) {
    let name = format!("{}-object", case.name);
    let source = if kind == "ConfigMap" {
        format!("configMap: {{name: {name}}}")
    } else {
        format!("secret: {{secretName: {name}}}")
    };
    let spec = format!("{}  volumes: [{{name: v, {source}}}]\n", with_init(init));
    let main = format!("{SLEEP}    volumeMounts: [{{name: v, mountPath: /v}}]\n");
    case.put_pod(&spec, &main);
    until("it says that it cannot mount", || {
        let messages = case.events("FailedMount");
        let found = messages.iter().any(|m| m.contains("MountVolume.SetUp failed for volume"));
        if found { Ok(()) } else { Err(format!("{messages:?}")) }
    });
    let pod = case.pod();
    let scheduled = since(&pod, "PodScheduled", "True");
    if startable {
        since(&pod, STARTABLE, "False");
    }
    if init {
        since(&pod, "Initialized", "False");
    } else {
        assert!(since(&pod, "Initialized", "True") >= scheduled);
    }
    since(&pod, "ContainersReady", "False");
    since(&pod, "Ready", "False");
    case.put(
        "object",
        &format!(
            "apiVersion: v1\nkind: {kind}\nmetadata: {{name: {name}}}\ndata: {{key: dmFsdWU=}}\n"
        ),
    );
    let pod = wait_ready(case);
    since(&pod, "PodScheduled", "True");
    since(&pod, "Initialized", "True");
    if startable {
        since(&pod, STARTABLE, "True");
    }
}
