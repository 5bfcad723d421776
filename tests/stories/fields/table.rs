//! The effect of each field.

/// One field.
pub struct Row {
    /// The place of the field.
    pub place: &'static str,
    pub field: &'static str,
    /// JSON.
    pub value: &'static str,
    /// Other fields that it needs: pointers and JSON.
    pub with: &'static [(&'static str, &'static str)],
    pub outcome: Fate,
}

#[derive(Clone, Copy, Debug)]
pub enum Fate {
    /// A request contains this, and does not without the field.
    Shows(&'static str),
    /// The pod does not run, with this reason.
    Refused(&'static str),
    /// Not used by the node: nothing differs, and the API shows it.
    Carried,
    /// It has an effect later: this story tests it.
    InStory(&'static str),
}

use super::volumes::VOLUMES;
use Fate::{Carried, InStory, Refused, Shows};

pub const fn row(
    place: &'static str,
    field: &'static str,
    value: &'static str,
    outcome: Fate,
) -> Row {
    Row { place, field, value, with: &[], outcome }
}

pub const fn row_with(
    place: &'static str,
    field: &'static str,
    value: &'static str,
    with: &'static [(&'static str, &'static str)],
    outcome: Fate,
) -> Row {
    Row { place, field, value, with, outcome }
}

const SPEC: &str = "/spec";
const POD_SECURITY: &str = "/spec/securityContext";
const MAIN: &str = "/spec/containers/0";
const SECURITY: &str = "/spec/containers/0/securityContext";
const RESOURCES: &str = "/spec/containers/0/resources";
const PORT: &str = "/spec/containers/0/ports/0";
const MOUNT: &str = "/spec/containers/0/volumeMounts/0";
const ENV: &str = "/spec/containers/0/env/0";
const FROM: &str = "/spec/containers/0/env/1/valueFrom";
const LIFECYCLE: &str = "/spec/containers/0/lifecycle";
const PROBE: &str = "/spec/containers/0/livenessProbe";

const NO_SOCKET: &[(&str, &str)] = &[("/spec/containers/0/livenessProbe/tcpSocket", "null")];
const NO_FIELD: &[(&str, &str)] = &[("/spec/containers/0/env/1/valueFrom/fieldRef", "null")];
const PRIVILEGED: &[(&str, &str)] = &[("/spec/containers/0/securityContext/privileged", "true")];
const READ_ONLY: &[(&str, &str)] = &[("/spec/containers/0/volumeMounts/0/readOnly", "true")];
const READY: &str = "probes::a_container_is_ready_once_its_readiness_probe_succeeds_and_not_\
                     before_its_delay";
const GROUP: &str = "claims::a_claimed_folder_is_given_to_the_pods_group_as_the_pod_says";
const STRICT: &str = "supplementalGroupsPolicy: Invalid value: \"Strict\"";

const ROWS: &[Row] = &[
    row(SPEC, "activeDeadlineSeconds", "60", InStory("lifecycle::a_pod_past_its_deadline_fails")),
    row(SPEC, "affinity", r#"{"podAffinity":{}}"#, Carried),
    row(SPEC, "automountServiceAccountToken", "true", Carried),
    row(SPEC, "containers", r#"[{"name":"x","image":"i:1"}]"#, Shows("name: \"x\"")),
    row(SPEC, "dnsConfig", r#"{"nameservers":["1.2.3.4"]}"#, Shows("1.2.3.4")),
    row(SPEC, "dnsPolicy", r#""Default""#, Shows("dns: None")),
    row(SPEC, "enableServiceLinks", "false", Carried),
    row(SPEC, "ephemeralContainers", r#"[{"name":"e","image":"i:2"}]"#, Shows("name: \"e\"")),
    row(SPEC, "hostAliases", r#"[{"ip":"1.2.3.4","hostnames":["box"]}]"#, Shows("1.2.3.4\\tbox")),
    row(SPEC, "hostIPC", "true", Shows("ipc: Node")),
    row(SPEC, "hostNetwork", "true", Shows("network: Node")),
    row(SPEC, "hostPID", "true", Shows("pid: Node")),
    row(SPEC, "hostUsers", "false", InStory("security::pods_with_users_of_their_own_share_none")),
    row(SPEC, "hostname", r#""box""#, Shows("hostname: \"box\"")),
    row(SPEC, "hostnameOverride", r#""box""#, Refused("spec.hostnameOverride")),
    row(
        SPEC,
        "imagePullSecrets",
        "[]",
        InStory("images::a_secret_that_is_missing_is_told_and_the_pull_goes_on_without"),
    ),
    row(SPEC, "initContainers", r#"[{"name":"j","image":"i:2"}]"#, Shows("name: \"j\"")),
    row(SPEC, "nodeName", r#""gw""#, Carried),
    row(
        SPEC,
        "nodeSelector",
        r#"{"disk":"ssd"}"#,
        Refused("didn't match Pod's node affinity/selector"),
    ),
    row(SPEC, "os", r#"{"name":"windows"}"#, Refused("OS field")),
    row(
        SPEC,
        "overhead",
        r#"{"cpu":"500m"}"#,
        Shows("overhead: Resources { cpu_period: 100000, cpu_quota: 50000"),
    ),
    row(SPEC, "preemptionPolicy", r#""Never""#, Carried),
    row(SPEC, "priority", "5", Carried),
    row(SPEC, "priorityClassName", r#""system-node-critical""#, Shows("oom_score_adj: -997")),
    row(
        SPEC,
        "readinessGates",
        r#"[{"conditionType":"x"}]"#,
        InStory("files::a_gate_that_nobody_opens_keeps_a_pod_from_being_ready"),
    ),
    row(SPEC, "resourceClaims", r#"[{"name":"x"}]"#, Refused("spec.resourceClaims")),
    row(SPEC, "resources", r#"{"limits":{"memory":"64Mi"}}"#, Shows("memory: Some(67108864)")),
    row(
        SPEC,
        "restartPolicy",
        r#""Never""#,
        InStory("decisions::main_containers_follow_the_restart_policy"),
    ),
    row(SPEC, "runtimeClassName", r#""kata""#, Refused("failed to get RuntimeClass kata")),
    row(SPEC, "schedulerName", r#""x""#, Carried),
    row(SPEC, "schedulingGates", r#"[{"name":"x"}]"#, Carried),
    row(SPEC, "securityContext", r#"{"runAsUser":7}"#, Shows("uid: Some(7)")),
    row(SPEC, "serviceAccount", r#""x""#, Carried),
    row(SPEC, "serviceAccountName", r#""x""#, Carried),
    row_with(
        SPEC,
        "setHostnameAsFQDN",
        "true",
        &[("/spec/subdomain", "\"sub\"")],
        Shows("hostname: \"p-gw.sub.default.svc.cluster.local\""),
    ),
    row(SPEC, "shareProcessNamespace", "true", Shows("pid: Pod")),
    row(SPEC, "subdomain", r#""sub""#, Shows("p-gw.sub.default.svc.cluster.local")),
    row(SPEC, "terminationGracePeriodSeconds", "77", Shows("grace_s: 77")),
    row(SPEC, "tolerations", r#"[{"operator":"Exists"}]"#, Carried),
    row(SPEC, "topologySpreadConstraints", r#"[{"maxSkew":1}]"#, Carried),
    row(SPEC, "volumes", r#"[{"name":"v","emptyDir":{}}]"#, Shows("kubernetes.io~empty-dir/v")),
    // Of the pod, for all its containers.
    row(
        POD_SECURITY,
        "appArmorProfile",
        r#"{"type":"RuntimeDefault"}"#,
        Shows("apparmor: Some(RuntimeDefault)"),
    ),
    row(POD_SECURITY, "fsGroup", "77", Shows("fs_group: Some(77)")),
    row(POD_SECURITY, "fsGroupChangePolicy", r#""OnRootMismatch""#, InStory(GROUP)),
    row_with(
        POD_SECURITY,
        "runAsGroup",
        "77",
        &[("/spec/securityContext/runAsUser", "7")],
        Shows("gid: Some(77)"),
    ),
    row(
        POD_SECURITY,
        "runAsNonRoot",
        "true",
        InStory("security::root_is_refused_where_it_is_not_wanted_and_the_rest_of_the_pod_runs"),
    ),
    row(POD_SECURITY, "runAsUser", "77", Shows("uid: Some(77)")),
    row(POD_SECURITY, "seLinuxChangePolicy", r#""Recursive""#, Carried),
    row(POD_SECURITY, "seLinuxOptions", r#"{"level":"s0"}"#, Shows("level: \"s0\"")),
    row(
        POD_SECURITY,
        "seccompProfile",
        r#"{"type":"RuntimeDefault"}"#,
        Shows("seccomp: RuntimeDefault"),
    ),
    row(POD_SECURITY, "supplementalGroups", "[77]", Shows("groups: [77]")),
    row(POD_SECURITY, "supplementalGroupsPolicy", r#""Strict""#, Refused(STRICT)),
    row(
        POD_SECURITY,
        "sysctls",
        r#"[{"name":"kernel.shm_rmid_forced","value":"1"}]"#,
        Shows("sysctls: {\"kernel.shm_rmid_forced\": \"1\"}"),
    ),
    row(
        POD_SECURITY,
        "windowsOptions",
        r#"{"hostProcess":true}"#,
        Refused("spec.securityContext.windowsOptions"),
    ),
    // Of the main container.
    row(MAIN, "args", r#"["one"]"#, Shows("args: [\"one\"]")),
    row(MAIN, "command", r#"["two"]"#, Shows("command: [\"two\"]")),
    row(MAIN, "env", r#"[{"name":"C","value":"y"}]"#, Shows("(\"C\", \"y\")")),
    row(
        MAIN,
        "envFrom",
        r#"[{"configMapRef":{"name":"none"}}]"#,
        InStory("environment::what_is_missing_is_said_and_heals_when_it_appears"),
    ),
    row(
        MAIN,
        "image",
        r#""i:2""#,
        InStory("lifecycle::a_new_image_restarts_the_container_in_its_sandbox"),
    ),
    row(MAIN, "imagePullPolicy", r#""Always""#, Shows("PullImage")),
    row(
        MAIN,
        "lifecycle",
        r#"{"postStart":{"exec":{"command":["hi"]}}}"#,
        Shows("command: [\"hi\"]"),
    ),
    row(MAIN, "livenessProbe", r#"{"exec":{"command":["ask"]}}"#, Shows("command: [\"ask\"]")),
    row(MAIN, "name", r#""x""#, Shows("name: \"x\"")),
    row(MAIN, "ports", r#"[{"containerPort":99}]"#, Shows("container_port: 99")),
    row(MAIN, "readinessProbe", r#"{"exec":{"command":["ask"]}}"#, Shows("command: [\"ask\"]")),
    row(MAIN, "resizePolicy", r#"[{"resourceName":"cpu","restartPolicy":"NotRequired"}]"#, Carried),
    row(MAIN, "resources", r#"{"limits":{"memory":"64Mi"}}"#, Shows("memory_limit: 67108864")),
    row(MAIN, "restartPolicy", r#""Always""#, Refused("spec.containers[0].restartPolicy")),
    row(
        MAIN,
        "restartPolicyRules",
        r#"[{"action":"Restart"}]"#,
        Refused("spec.containers[0].restartPolicyRules"),
    ),
    row(MAIN, "securityContext", r#"{"privileged":true}"#, Shows("privileged: true")),
    row(MAIN, "startupProbe", r#"{"exec":{"command":["ask"]}}"#, Shows("command: [\"ask\"]")),
    row(MAIN, "stdin", "true", Shows("stdin: true")),
    row(MAIN, "stdinOnce", "true", Shows("stdin_once: true")),
    row(MAIN, "terminationMessagePath", r#""/last""#, Shows("container_path: \"/last\"")),
    row(
        MAIN,
        "terminationMessagePolicy",
        r#""FallbackToLogsOnError""#,
        Shows("terminationMessagePolicy\": \"FallbackToLogsOnError\""),
    ),
    row(MAIN, "tty", "true", Shows("tty: true")),
    row(
        MAIN,
        "volumeDevices",
        r#"[{"name":"v","devicePath":"/dev/x"}]"#,
        Refused("spec.containers[0].volumeDevices"),
    ),
    row(
        MAIN,
        "volumeMounts",
        r#"[{"name":"v","mountPath":"/w"}]"#,
        Shows("container_path: \"/w\""),
    ),
    row(MAIN, "workingDir", r#""/var""#, Shows("working_dir: \"/var\"")),
    row_with(
        "/spec/initContainers/0",
        "restartPolicy",
        r#""OnFailure""#,
        &[("/spec/initContainers", "[{\"name\":\"i\",\"image\":\"i:2\"}]")],
        Refused("spec.initContainers[0].restartPolicy"),
    ),
    row(SECURITY, "allowPrivilegeEscalation", "false", Shows("no_new_privs: true")),
    row(
        SECURITY,
        "appArmorProfile",
        r#"{"type":"Unconfined"}"#,
        Shows("apparmor: Some(Unconfined)"),
    ),
    row(SECURITY, "capabilities", r#"{"add":["NET_ADMIN"]}"#, Shows("NET_ADMIN")),
    row(SECURITY, "privileged", "true", Shows("privileged: true")),
    row(
        SECURITY,
        "procMount",
        r#""Unmasked""#,
        InStory("security::what_a_container_may_do_is_passed_on"),
    ),
    row(SECURITY, "readOnlyRootFilesystem", "true", Shows("readonly_rootfs: true")),
    row_with(
        SECURITY,
        "runAsGroup",
        "77",
        &[("/spec/containers/0/securityContext/runAsUser", "7")],
        Shows("gid: Some(77)"),
    ),
    row(
        SECURITY,
        "runAsNonRoot",
        "true",
        InStory("security::root_is_refused_where_it_is_not_wanted_and_the_rest_of_the_pod_runs"),
    ),
    row(SECURITY, "runAsUser", "77", Shows("uid: Some(77)")),
    row(SECURITY, "seLinuxOptions", r#"{"level":"s0"}"#, Shows("level: \"s0\"")),
    row(
        SECURITY,
        "seccompProfile",
        r#"{"type":"Localhost","localhostProfile":"x"}"#,
        Shows("Localhost(\"/var/lib/kubelet/seccomp/x\")"),
    ),
    row(
        SECURITY,
        "windowsOptions",
        r#"{"hostProcess":true}"#,
        Refused("spec.containers[0].securityContext.windowsOptions"),
    ),
    row(RESOURCES, "claims", r#"[{"name":"x"}]"#, Refused("spec.containers[0].resources.claims")),
    row(RESOURCES, "limits", r#"{"cpu":"500m"}"#, Shows("cpu_quota: 50000")),
    row(RESOURCES, "limits", r#"{"memory":"64Mi"}"#, Shows("memory_limit: 67108864")),
    row(RESOURCES, "limits", r#"{"hugepages-2Mi":"4Mi"}"#, Shows("(\"2MB\", 4194304)")),
    row(RESOURCES, "limits", r#"{"hugepages-1Gi":"1Gi"}"#, Refused("resource: hugepages-1Gi")),
    row(
        RESOURCES,
        "limits",
        r#"{"example.com/gpu":"1"}"#,
        Refused("spec.containers[0].resources.limits[example.com/gpu]"),
    ),
    row(RESOURCES, "requests", r#"{"cpu":"500m"}"#, Shows("cpu_shares: 512")),
    row(PORT, "containerPort", "99", Shows("container_port: 99")),
    row(PORT, "hostIP", r#""127.0.0.1""#, Shows("host_ip: \"127.0.0.1\"")),
    row(PORT, "hostPort", "99", Shows("host_port: 99")),
    row(PORT, "name", r#""web""#, Shows("\\\"name\\\":\\\"web\\\"")),
    row(PORT, "protocol", r#""UDP""#, Shows("protocol: Udp")),
    row(MOUNT, "mountPath", r#""/w""#, Shows("container_path: \"/w\"")),
    row(MOUNT, "mountPropagation", r#""HostToContainer""#, Shows("propagation: HostToContainer")),
    row_with(
        MOUNT,
        "mountPropagation",
        r#""Bidirectional""#,
        PRIVILEGED,
        Shows("propagation: Bidirectional"),
    ),
    row(
        MOUNT,
        "mountPropagation",
        r#""Bidirectional""#,
        Refused("spec.containers[0].volumeMounts[0].mountPropagation"),
    ),
    row(MOUNT, "name", r#""none""#, Refused("spec.containers[0].volumeMounts[0].name")),
    row(MOUNT, "readOnly", "true", Shows("host_path: \"/srv\", readonly: true")),
    row_with(
        MOUNT,
        "recursiveReadOnly",
        r#""Enabled""#,
        READ_ONLY,
        InStory("claims::what_is_mounted_below_is_read_only_as_well_where_the_runtime_can"),
    ),
    row(MOUNT, "subPath", r#""part""#, Shows("path: \"part\"")),
    row(MOUNT, "subPathExpr", r#""$(A)-part""#, Shows("path: \"x-part\"")),
    row(ENV, "name", r#""Z""#, Shows("(\"Z\", \"x\")")),
    row(ENV, "value", r#""zz""#, Shows("(\"A\", \"zz\")")),
    row_with(
        ENV,
        "valueFrom",
        r#"{"fieldRef":{"fieldPath":"metadata.uid"}}"#,
        &[("/spec/containers/0/env/0/value", "\"\"")],
        Shows("(\"A\", \"u1\")"),
    ),
    row(FROM, "fieldRef", r#"{"fieldPath":"metadata.uid"}"#, Shows("(\"B\", \"u1\")")),
    row_with(
        FROM,
        "resourceFieldRef",
        r#"{"resource":"requests.cpu","divisor":"1m"}"#,
        NO_FIELD,
        Shows("(\"B\", \"10\")"),
    ),
    row_with(
        FROM,
        "configMapKeyRef",
        r#"{"name":"none","key":"k"}"#,
        NO_FIELD,
        InStory("environment::what_is_missing_is_said_and_heals_when_it_appears"),
    ),
    row_with(
        FROM,
        "secretKeyRef",
        r#"{"name":"none","key":"k"}"#,
        NO_FIELD,
        InStory("environment::what_is_missing_is_said_and_heals_when_it_appears"),
    ),
    row(
        FROM,
        "fileKeyRef",
        r#"{"path":"x"}"#,
        Refused("spec.containers[0].env[1].valueFrom.fileKeyRef"),
    ),
    row(LIFECYCLE, "postStart", r#"{"exec":{"command":["hi"]}}"#, Shows("command: [\"hi\"]")),
    row(LIFECYCLE, "preStop", r#"{"exec":{"command":["leave"]}}"#, Shows("command: [\"leave\"]")),
    row(LIFECYCLE, "stopSignal", r#""SIGINT""#, Refused("spec.containers[0].lifecycle.stopSignal")),
    row_with(PROBE, "exec", r#"{"command":["ask"]}"#, NO_SOCKET, Shows("command: [\"ask\"]")),
    row_with(PROBE, "grpc", r#"{"port":99}"#, NO_SOCKET, Shows("port: 99")),
    row_with(PROBE, "httpGet", r#"{"port":99,"path":"/x"}"#, NO_SOCKET, Shows("/x")),
    row(PROBE, "tcpSocket", r#"{"port":99}"#, Shows("port: 99")),
    row(
        PROBE,
        "failureThreshold",
        "7",
        InStory("probes::a_failing_startup_probe_restarts_the_container"),
    ),
    row(PROBE, "initialDelaySeconds", "7", InStory(READY)),
    row(PROBE, "periodSeconds", "7", InStory(READY)),
    row(
        PROBE,
        "successThreshold",
        "2",
        Refused("spec.containers[0].livenessProbe.successThreshold"),
    ),
    row(
        PROBE,
        "terminationGracePeriodSeconds",
        "7",
        InStory(
            "probes::a_failing_liveness_probe_restarts_the_container_with_the_probes_own_grace",
        ),
    ),
    row(PROBE, "timeoutSeconds", "7", InStory("probes::a_command_that_takes_too_long_has_failed")),
];

/// All rows.
pub fn rows() -> impl Iterator<Item = &'static Row> {
    ROWS.iter().chain(VOLUMES)
}
