//! Kernel features of containers: namespaces, cgroups, memory, masks of /proc, seccomp, AppArmor,
//! and OOM scores.

use std::fs;

use crate::Entry;
use crate::case::{Case, QUICK_END, SLEEP, quoted};
use crate::support::agent::{Pod, manifest};
use crate::support::cgroup;
use crate::support::containerd::{self, Kind};
use crate::support::wait::until;

const SECURITY: &str = "Security Context";
const CGROUPS: &str = "Kubelet Cgroup Manager";
const MISC: &str = "Container Manager Misc";
const OOM: &str = "OOMKiller";
const READ_ONLY: &str = "Mount recursive read-only";

pub(crate) const ROWS: &[Entry] = &[
    (
        SECURITY,
        "containers in pods using isolated PID namespaces should all receive PID 1",
        pid_one,
    ),
    (
        SECURITY,
        "processes in containers sharing a pod namespace should be able to see each other",
        shared_pids,
    ),
    (SECURITY, "should show its pid in the host PID namespace", |case| host_pid(case, true)),
    (SECURITY, "should not show its pid in the non-hostpid containers", |case| {
        host_pid(case, false);
    }),
    (SECURITY, "should show the shared memory ID in the host IPC containers", |case| {
        host_ipc(case, true);
    }),
    (SECURITY, "should not show the shared memory ID in the non-hostIPC containers", |case| {
        host_ipc(case, false);
    }),
    (SECURITY, "should listen on same port in the host network containers", |case| {
        host_network(case, true);
    }),
    (SECURITY, "shouldn't show the same port in the non-hostnetwork containers", |case| {
        host_network(case, false);
    }),
    ("DefaultProcMount", "will mask proc mounts by default", masked),
    (CGROUPS, "Top level QoS containers should have been created", classes),
    (CGROUPS, "Pod containers should have been created under the cgroup-root", |case| {
        let same = "{cpu: 100m, memory: 100Mi}";
        pod_cgroup(case, &format!("{{requests: {same}, limits: {same}}}"), "");
    }),
    (CGROUPS, "Pod containers should have been created under the BestEffort cgroup", |case| {
        pod_cgroup(case, "{}", "besteffort/");
    }),
    (CGROUPS, "Pod containers should have been created under the Burstable cgroup", |case| {
        let requests = "{cpu: 100m, memory: 100Mi}";
        let limits = "{cpu: 200m, memory: 200Mi}";
        pod_cgroup(case, &format!("{{requests: {requests}, limits: {limits}}}"), "burstable/");
    }),
    (
        "Kubelet PodOverhead handling",
        "Pod cgroup should be sum of overhead and resource limits",
        |c| {
            overhead(c);
        },
    ),
    (MISC, "burstable container's oom-score-adj should be between [2, 1000)", |case| {
        let value = score(case, "    resources: {requests: {cpu: 100m, memory: 50Mi}}\n");
        assert!((2..1000).contains(&value), "{value}");
    }),
    (
        OOM,
        "single process container: The containers terminated by OOM killer should have the reason \
         set to OOMKilled",
        |case| oom_killed(case, false),
    ),
    (
        OOM,
        "init container: The containers terminated by OOM killer should have the reason set to \
         OOMKilled",
        |case| oom_killed(case, true),
    ),
    ("AppArmor", "should reject a pod with an AppArmor profile in annotation", |case| {
        app_armor(case, true);
    }),
    ("AppArmor", "should reject a pod with an AppArmor profile in field", |case| {
        app_armor(case, false);
    }),
    (READ_ONLY, "should accept non-recursive read-only mounts", plain_read_only),
];

/// The built-in runtime makes mounts read-only recursively, and user namespaces; containerd does
/// from 2.0 on.
pub(crate) fn of_runtime() -> &'static [Entry] {
    if is_recursive() {
        &[
            (READ_ONLY, "should accept recursive read-only mounts", recursive_read_only),
            ("ProcMount", "will unmask proc mounts if requested", unmasked),
        ]
    } else {
        &[(READ_ONLY, "should reject recursive read-only mounts", no_recursive_read_only)]
    }
}

fn second(name: &str, fields: &str) -> String {
    format!("  - name: {name}\n    image: localhost/edged-demo:1\n{fields}")
}

fn pid_one(case: &Case<'_>) {
    let script = "    command: [sh, -c, 'echo $$$$; exec sleep 10000']\n";
    let pod = case.run("", &format!("{script}{}", second("other", script)));
    for container in ["main", "other"] {
        case.wait_output(&pod, container, "it has written", |lines| lines == ["1"]);
    }
}

fn shared_pids(case: &Case<'_>) {
    let one = "    command: [sh, -c, 'trap : TERM; while :; do sleep 1; done']\n";
    let other = second("other", "    command: [sleep, '10000']\n");
    let pod = case.run("  shareProcessNamespace: true\n", &format!("{one}{other}"));
    // The pause process is the first, and both containers see each other's processes.
    for container in ["main", "other"] {
        let (code, output, errors) = case.exec(&pod, container, &["ps", "-o", "pid,args"]);
        assert_eq!(code, 0, "{errors}");
        let first = output.lines().nth(1).unwrap_or_default().trim().to_owned();
        assert!(first.starts_with("1 ") && first.contains("pause"), "{output}");
        assert!(output.contains("trap : TERM") && output.contains("sleep 10000"), "{output}");
    }
}

/// Whether the pod sees a process of the node: this one.
fn host_pid(case: &Case<'_>, shared: bool) {
    let own = std::process::id();
    let node = fs::read_to_string("/proc/self/cmdline").expect("Linux");
    let script = format!("tr '\\\\0' '\\n' < /proc/{own}/cmdline || true");
    let output =
        case.output_of(&format!("  hostPID: {shared}\n"), "", &script.replace("\\\\", "\\"));
    let first = node.split('\0').next().expect("a name");
    assert_eq!(output.first().is_some_and(|line| line == first), shared, "{output:?}");
}

/// Whether the pod sees a segment of shared memory of the node.
fn host_ipc(case: &Case<'_>, shared: bool) {
    let (spec, fields) = tools(case);
    // It is in a pod in the host's IPC namespace.
    let owner = format!("{}-owner", case.name);
    let text = manifest(
        &owner,
        &format!("{QUICK_END}{spec}  hostIPC: true\n"),
        &format!("    command: [/tools/shm, make]\n{fields}"),
    );
    case.put("owner", &text);
    let pod = case.node.wait_running(&owner);
    let id = case.wait_output(&pod, "main", "it has made one", |lines| !lines.is_empty());
    let script = format!("/tools/shm has {} && echo seen || echo unseen", id[0]);
    let output = case.output_of(&format!("{spec}  hostIPC: {shared}\n"), fields, &script);
    assert_eq!(output, [if shared { "seen" } else { "unseen" }]);
}

/// Fields of `spec` and of the container: the tools at `/tools`.
fn tools(case: &Case<'_>) -> (String, &'static str) {
    let path = case.node.tools();
    let volume = format!("  volumes: [{{name: tools, hostPath: {{path: {path}}}}}]\n");
    (volume, "    volumeMounts: [{name: tools, mountPath: /tools, readOnly: true}]\n")
}

/// Whether the pod sees a listening port of the node.
fn host_network(case: &Case<'_>, shared: bool) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let port = listener.local_addr().expect("it is bound").port();
    let script = format!("netstat -tln | grep ':{port} ' || true");
    let output = case.output_of(&format!("  hostNetwork: {shared}\n"), "", &script);
    assert_eq!(!output.is_empty(), shared, "{output:?}");
}

fn masked(case: &Case<'_>) {
    let lines = case.output_of("", "", "grep ' /proc' /proc/mounts");
    let read_only = lines.iter().filter(|line| line.contains(" ro,")).count();
    assert!(lines.len() > 1 && read_only > 0, "{lines:?}");
}

fn unmasked(case: &Case<'_>) {
    let fields = "    securityContext: {procMount: Unmasked}\n";
    let lines = case.output_of("  hostUsers: false\n", fields, "grep ' /proc' /proc/mounts");
    let points: Vec<_> = lines.iter().filter_map(|line| line.split(' ').nth(1)).collect();
    assert_eq!(points, ["/proc"], "{lines:?}");
}

fn classes(case: &Case<'_>) {
    case.run("", SLEEP);
    for class in ["burstable", "besteffort"] {
        assert!(!cgroup::all(&format!("common/kubepods/{class}")).is_empty(), "{class}");
    }
}

/// Its folder exists while it runs, and is removed after it.
fn pod_cgroup(case: &Case<'_>, resources: &str, class: &str) {
    let pod = case.run("", &format!("{SLEEP}    resources: {resources}\n"));
    let path = format!("common/kubepods/{class}pod{}", pod.uid());
    assert!(!cgroup::all(&path).is_empty(), "{path}");
    case.take("pod");
    case.node.wait_gone(&pod);
    assert!(cgroup::all(&path).is_empty(), "{path}");
}

/// A class whose pods need 200m and 140Mi each beside their containers.
fn put_class(case: &Case<'_>) {
    let text = format!(
        "apiVersion: node.k8s.io/v1\nkind: RuntimeClass\nmetadata: {{name: {}}}\nhandler: runc\n\
         overhead: {{podFixed: {{cpu: 200m, memory: 140Mi}}}}\n",
        case.name
    );
    case.put("class", &text);
}

fn overhead(case: &Case<'_>) {
    put_class(case);
    let same = "{cpu: 100m, memory: 100Mi}";
    let main = format!("{SLEEP}    resources: {{requests: {same}, limits: {same}}}\n");
    let pod = case.run(&format!("  runtimeClassName: {}\n", case.name), &main);
    let path = format!("common/kubepods/pod{}", pod.uid());
    for (v1, v2, wants) in [
        ("memory.limit_in_bytes", "memory.max", ["251658240", "251658240"]),
        ("cpu.cfs_quota_us", "cpu.max", ["30000", "30000 100000"]),
    ] {
        let got = cgroup::value(&path, v1, v2).expect("the pod's cgroup");
        assert!(wants.contains(&&*got), "{v1} {v2}: {got}, not {wants:?}");
    }
}

/// `oom_score_adj` of a running container's process.
fn score(case: &Case<'_>, resources: &str) -> i64 {
    let pod = case.run("", &format!("{SLEEP}{resources}"));
    case.sh(&pod, "cat /proc/1/oom_score_adj").trim().parse().expect("a number")
}

fn oom_killed(case: &Case<'_>, init: bool) {
    // It reads all input into memory until the end of a line, which never comes.
    let script = quoted("exec grep y /dev/zero");
    let hungry = format!(
        "    command: [sh, -c, {script}]\n    resources: {{requests: {{memory: 15Mi}}, limits: \
         {{memory: 15Mi}}}}\n"
    );
    let spec = "  restartPolicy: Never\n";
    if init {
        let inits = format!("  initContainers:\n{}", second("hungry", &hungry));
        case.put_pod(&format!("{spec}{inits}"), SLEEP);
    } else {
        case.put_pod(spec, &hungry);
    }
    let pod = case.wait("it is killed", |pod| pod.phase() == "Failed");
    let name = if init { "hungry" } else { "main" };
    let (code, reason) = crate::lifecycle::ended(&pod, name);
    // As upstream: a runtime may set the reason too late.
    assert_eq!(code, 137, "{reason}: {}", pod.0["status"]);
    assert!(["OOMKilled", "Error"].contains(&&*reason), "{reason}");
}

fn app_armor(case: &Case<'_>, annotation: bool) {
    let enabled = fs::read_to_string("/sys/module/apparmor/parameters/enabled");
    let enabled = enabled.is_ok_and(|text| text.starts_with('Y'));
    assert!(!enabled, "this kernel has AppArmor: the test is of one without");
    let text = if annotation {
        let key = "container.apparmor.security.beta.kubernetes.io/main";
        let metadata = format!("metadata:\n  annotations: {{{key}: runtime/default}}\n");
        manifest(&case.name, QUICK_END, SLEEP).replace("metadata:\n", &metadata)
    } else {
        let fields = "    securityContext: {appArmorProfile: {type: RuntimeDefault}}\n";
        manifest(&case.name, QUICK_END, &format!("{SLEEP}{fields}"))
    };
    case.put("pod", &text);
    let pod = case.wait("it is refused", |pod| pod.phase() == "Failed");
    assert_eq!(pod.reason(), "AppArmor", "{}", pod.0["status"]);
}

fn mounts(pod: &Pod) -> Vec<(String, Option<String>)> {
    let all = pod.container("main")["volumeMounts"].as_array().cloned().unwrap_or_default();
    let of = |mount: &serde_json::Value| {
        let recursive = mount["recursiveReadOnly"].as_str().map(str::to_owned);
        (mount["mountPath"].as_str().unwrap_or_default().to_owned(), recursive)
    };
    all.iter().map(of).collect()
}

fn is_recursive() -> bool {
    containerd::kind() == Kind::Builtin
}

fn plain_read_only(case: &Case<'_>) {
    let spec = "  volumes: [{name: v, emptyDir: {}}]\n";
    let mounts_of = |fields: &str| format!("    - {{name: v, mountPath: {fields}}}\n");
    let main = format!(
        "{SLEEP}    volumeMounts:\n{}{}{}{}",
        mounts_of("/rro-if-possible, readOnly: true, recursiveReadOnly: IfPossible"),
        mounts_of("/rro-disabled, readOnly: true, recursiveReadOnly: Disabled"),
        mounts_of("/ro, readOnly: true"),
        mounts_of("/rw"),
    );
    let pod = case.run(spec, &main);
    let shown = mounts(&pod);
    for (path, want) in [
        ("/rro-if-possible", Some(if is_recursive() { "Enabled" } else { "Disabled" })),
        ("/rro-disabled", Some("Disabled")),
        ("/ro", Some("Disabled")),
        ("/rw", None),
    ] {
        let found = shown.iter().find(|(shown, _)| shown == path);
        let found = found.unwrap_or_else(|| panic!("no {path} among {shown:?}"));
        assert_eq!(found.1.as_deref(), want, "{path}");
    }
}

fn put_recursive(case: &Case<'_>) {
    let spec = "  volumes: [{name: v, emptyDir: {}}]\n";
    let main = format!(
        "{SLEEP}    volumeMounts: [{{name: v, mountPath: /v, readOnly: true, recursiveReadOnly: \
         Enabled}}]\n"
    );
    case.put_pod(spec, &main);
}

fn recursive_read_only(case: &Case<'_>) {
    put_recursive(case);
    let pod = case.wait("it runs", Pod::runs);
    assert_eq!(mounts(&pod), [("/v".to_owned(), Some("Enabled".to_owned()))]);
}

fn no_recursive_read_only(case: &Case<'_>) {
    put_recursive(case);
    until("its container cannot be made", || {
        let pod = case.pod();
        let reason = pod.waits_for("main").to_owned();
        if reason == "CreateContainerConfigError" {
            Ok(())
        } else {
            Err(pod.0["status"].to_string())
        }
    });
}
