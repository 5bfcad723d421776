//! Users and privileges of containers, sysctls, and pods for other systems.

use crate::Entry;
use crate::case::{Case, SLEEP};

const AREA: &str = "Security Context";
const SYSCTLS: &str = "Sysctls";

pub(crate) const ROWS: &[Entry] = &[
    (AREA, "should run the container with uid 65534", |case| user(case, "65534")),
    (AREA, "should run the container with uid 0", |case| user(case, "0")),
    (
        AREA,
        "should run the container with readonly rootfs when readOnlyRootFilesystem=true",
        |case| root(case, true),
    ),
    (
        AREA,
        "should run the container with writable rootfs when readOnlyRootFilesystem=false",
        |case| root(case, false),
    ),
    (AREA, "should run the container as unprivileged when false", unprivileged),
    (AREA, "should allow privilege escalation when not explicitly set and uid != 0", |case| {
        escalation(case, "", "0");
    }),
    (AREA, "should not allow privilege escalation when false", |case| {
        escalation(case, ", allowPrivilegeEscalation: false", "1000");
    }),
    (AREA, "should allow privilege escalation when true", |case| {
        escalation(case, ", allowPrivilegeEscalation: true", "0");
    }),
    (
        AREA,
        "should support pod.Spec.SecurityContext.RunAsUser And pod.Spec.SecurityContext.RunAsGroup",
        |case| {
            let spec = "  securityContext: {runAsUser: 1001, runAsGroup: 2002}\n";
            assert_eq!(case.output_of(spec, "", "id -u; id -g"), ["1001", "2002"]);
        },
    ),
    (
        AREA,
        "should support container.SecurityContext.RunAsUser And \
         container.SecurityContext.RunAsGroup",
        |case| {
            let spec = "  securityContext: {runAsUser: 1001, runAsGroup: 2001}\n";
            let main = "    securityContext: {runAsUser: 1002, runAsGroup: 2002}\n";
            assert_eq!(case.output_of(spec, main, "id -u; id -g"), ["1002", "2002"]);
        },
    ),
    ("PrivilegedPod", "should enable privileged commands", privileged),
    (SYSCTLS, "should support sysctls", |case| sysctl(case, "kernel.shm_rmid_forced")),
    (
        SYSCTLS,
        "should not launch unsafe, but not explicitly enabled sysctls on the node",
        unsafe_sysctl,
    ),
    (SYSCTLS, "should support sysctls with slashes as separator", |case| {
        sysctl(case, "kernel/shm_rmid_forced");
    }),
    ("PodOSRejection", "should reject pod when the node OS doesn't match pod's OS", other_os),
];

fn user(case: &Case<'_>, uid: &str) {
    let fields = format!("    securityContext: {{runAsUser: {uid}}}\n");
    assert_eq!(case.output_of("", &fields, "id -u"), [uid]);
}

fn root(case: &Case<'_>, read_only: bool) {
    let fields = format!("    securityContext: {{readOnlyRootFilesystem: {read_only}}}\n");
    let pod = case.run_script("", &fields, "touch checkfile");
    assert_eq!(pod.phase(), if read_only { "Failed" } else { "Succeeded" });
}

const LINK: &str = "ip link add dummy1 type dummy";

fn unprivileged(case: &Case<'_>) {
    let fields = "    securityContext: {privileged: false}\n";
    let pod = case.run_script("", fields, &format!("{LINK} || true"));
    let errors = case.errors(&pod).join("\n");
    assert!(errors.contains("Operation not permitted"), "{errors}");
}

/// The user of a set-user-ID root program that user 1000 runs.
fn escalation(case: &Case<'_>, field: &str, want: &str) {
    let tools = case.node.tools();
    let spec = format!("  volumes: [{{name: tools, hostPath: {{path: {tools}}}}}]\n");
    let fields = format!(
        "    volumeMounts: [{{name: tools, mountPath: /tools}}]\n    \
         securityContext: {{runAsUser: 1000{field}}}\n"
    );
    let output = case.output_of(&spec, &fields, "/tools/euid");
    assert_eq!(output, [format!("Effective uid: {want}")]);
}

fn privileged(case: &Case<'_>) {
    let plain = format!("  - name: plain\n    image: localhost/edged-demo:1\n{SLEEP}");
    let main = format!("{SLEEP}    securityContext: {{privileged: true}}\n{plain}");
    let pod = case.run("", &main);
    let down = ["ip", "link", "set", "lo", "down"];
    let (code, _, errors) = case.exec(&pod, "main", &down);
    assert!(code == 0, "{code} {errors}");
    let (code, _, errors) = case.exec(&pod, "plain", &["ip", "link", "set", "lo", "up"]);
    assert!(code != 0 && errors.contains("Operation not permitted"), "{code} {errors}");
}

fn sysctl(case: &Case<'_>, name: &str) {
    let spec = format!("  securityContext: {{sysctls: [{{name: {name}, value: '1'}}]}}\n");
    assert_eq!(case.output_of(&spec, "", "cat /proc/sys/kernel/shm_rmid_forced"), ["1"]);
}

fn unsafe_sysctl(case: &Case<'_>) {
    let spec = "  securityContext: {sysctls: [{name: kernel.msgmax, value: '10000000000'}]}\n";
    case.put_pod(spec, SLEEP);
    let pod = case.wait("it is refused", |pod| pod.phase() == "Failed");
    assert_eq!(pod.reason(), "SysctlForbidden");
}

fn other_os(case: &Case<'_>) {
    case.put_pod("  os: {name: windows}\n", SLEEP);
    let pod = case.wait("it is refused", |pod| pod.phase() == "Failed");
    assert_eq!(pod.reason(), "PodOSNotSupported");
}
