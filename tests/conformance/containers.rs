//! Container environment and end: exit codes, termination messages, hosts files, variables; and
//! ephemeral containers.

use crate::Entry;
use crate::case::{Case, QUICK_END, SLEEP, quoted};
use crate::support::agent::{Pod, manifest};

const RUNTIME: &str = "Container Runtime";
const KUBELET: &str = "Kubelet";
const EXPANSION: &str = "Variable Expansion";
const DOWNWARD: &str = "Downward API";
const EPHEMERAL: &str = "Ephemeral Containers";

pub(crate) const ROWS: &[Entry] = &[
    (RUNTIME, "should run with the expected status", expected_status),
    (RUNTIME, "should report termination message if TerminationMessagePath is set", message),
    (
        RUNTIME,
        "should report termination message if TerminationMessagePath is set as non-root user and \
         at a non-default path",
        message_of_another_user,
    ),
    (
        RUNTIME,
        "should report termination message from log output if TerminationMessagePolicy \
         FallbackToLogsOnError is set",
        message_from_log,
    ),
    (
        RUNTIME,
        "should report termination message as empty when pod succeeds and \
         TerminationMessagePolicy FallbackToLogsOnError is set",
        message_empty_on_success,
    ),
    (
        RUNTIME,
        "should report termination message from file when pod succeeds and \
         TerminationMessagePolicy FallbackToLogsOnError is set",
        message_from_file_on_success,
    ),
    (KUBELET, "should print the output to logs", output),
    (KUBELET, "should have an terminated reason", reason),
    (KUBELET, "should be possible to delete", deletable),
    (KUBELET, "should write entries to /etc/hosts", hosts),
    (KUBELET, "should not write to root filesystem", root_read_only),
    (
        "Kubelet with pods in a privileged namespace",
        "should write entries to /etc/hosts when hostNetwork is enabled",
        hosts_of_the_node,
    ),
    ("KubeletManagedEtcHosts", "should test kubelet managed /etc/hosts file", managed_hosts),
    (EXPANSION, "should allow composing env vars into new env vars", composed),
    (EXPANSION, "should allow substituting values in a container's command", in_command),
    (EXPANSION, "should allow substituting values in a container's args", in_args),
    (
        DOWNWARD,
        "should provide pod name, namespace and IP address as env vars",
        name_namespace_address,
    ),
    (DOWNWARD, "should provide host IP as an env var", host_ip),
    (DOWNWARD, "should provide hostIPs as an env var", host_ips),
    (
        DOWNWARD,
        "should provide container's limits.cpu/memory and requests.cpu/memory as env vars",
        resources,
    ),
    (DOWNWARD, "should provide default limits.cpu/memory from node allocatable", allocatable),
    (DOWNWARD, "should provide pod UID as env vars", uid),
    ("ConfigMap", "should be consumable via environment variable", config_map_key),
    ("ConfigMap", "should be consumable via the environment", config_map_whole),
    (
        "ConfigMap",
        "should be consumable as environment variable names with various prefixes",
        |c| {
            prefixes(c, "ConfigMap", "data", "configMapRef");
        },
    ),
    (
        "Secrets",
        "should be consumable as environment variable names variable names with various prefixes",
        |case| prefixes(case, "Secret", "stringData", "secretRef"),
    ),
    (
        DOWNWARD,
        "should provide host IP and pod IP as an env var if pod uses host network",
        host_network_ips,
    ),
    ("Secrets", "should be consumable from pods in env vars", secret_key),
    ("Secrets", "should be consumable via the environment", secret_whole),
    (EPHEMERAL, "will start an ephemeral container in an existing pod", ephemeral),
    (EPHEMERAL, "should update the ephemeral containers in an existing pod", ephemerals),
];

/// `main` in the status, in its current state.
fn terminated(pod: &Pod) -> serde_json::Value {
    pod.0["status"]["containerStatuses"][0]["state"]["terminated"].clone()
}

/// Removes the case's pod, so that the next one is not mistaken for it.
fn leave(case: &Case<'_>, pod: &Pod) {
    case.take("pod");
    case.node.wait_gone(pod);
}

fn expected_status(case: &Case<'_>) {
    // It fails in its first instance and then runs; fails and then succeeds; fails.
    let count = "    command: [sh, -c, 'echo >> /count/n; n=$(wc -l < /count/n); ";
    let spec = |policy: &str| {
        format!("  restartPolicy: {policy}\n  volumes: [{{name: count, emptyDir: {{}}}}]\n")
    };
    let mount = "    volumeMounts: [{name: count, mountPath: /count}]\n";
    let script = |after: &str| format!("{count}[ $n -gt 1 ] || exit 1; {after}']\n{mount}");
    case.put_pod(&spec("Always"), &script("trap \"exit 0\" TERM; sleep 10000 & wait"));
    let pod = case.wait("it runs again", |pod| pod.runs() && pod.restarts("main") == 1);
    assert_eq!(pod.phase(), "Running");
    leave(case, &pod);
    case.put_pod(&spec("OnFailure"), &script("exit 0"));
    let pod = case.wait("it has succeeded", |pod| pod.phase() == "Succeeded");
    assert_eq!((pod.restarts("main"), &terminated(&pod)["exitCode"]), (1, &0.into()));
    leave(case, &pod);
    case.put_pod(&spec("Never"), &script("exit 0"));
    let pod = case.wait("it has failed", |pod| pod.phase() == "Failed");
    assert_eq!((pod.restarts("main"), &terminated(&pod)["exitCode"]), (0, &1.into()));
}

fn message_is(case: &Case<'_>, fields: &str, script: &str, phase: &str, want: &str) {
    let pod = case.run_script("", fields, script);
    assert_eq!(pod.phase(), phase);
    let message = terminated(&pod)["message"].as_str().unwrap_or_default().to_owned();
    assert_eq!(message, want, "{}", pod.0["status"]);
}

const FALLBACK: &str = "    terminationMessagePolicy: FallbackToLogsOnError\n";

fn message(case: &Case<'_>) {
    let path = "    terminationMessagePath: /dev/termination-log\n";
    message_is(case, path, "printf DONE > /dev/termination-log", "Succeeded", "DONE");
}

fn message_of_another_user(case: &Case<'_>) {
    let fields = "    terminationMessagePath: /dev/termination-custom-log\n    \
                  securityContext: {runAsUser: 1000}\n";
    message_is(case, fields, "printf DONE > /dev/termination-custom-log", "Succeeded", "DONE");
}

fn message_from_log(case: &Case<'_>) {
    message_is(case, FALLBACK, "printf DONE; exit 1", "Failed", "DONE");
}

fn message_empty_on_success(case: &Case<'_>) {
    message_is(case, FALLBACK, "echo DONE", "Succeeded", "");
}

fn message_from_file_on_success(case: &Case<'_>) {
    message_is(case, FALLBACK, "printf OK > /dev/termination-log; echo DONE", "Succeeded", "OK");
}

fn output(case: &Case<'_>) {
    assert_eq!(case.output_of("", "", "echo 'Hello World'"), ["Hello World"]);
}

fn reason(case: &Case<'_>) {
    case.put_pod("", "    command: [/bin/false]\n");
    let pod = case.wait("it has ended", |pod| {
        let status = &pod.0["status"]["containerStatuses"][0];
        !status["state"]["terminated"].is_null() || !status["lastState"]["terminated"].is_null()
    });
    let status = &pod.0["status"]["containerStatuses"][0];
    let ended = [&status["state"]["terminated"], &status["lastState"]["terminated"]];
    let ended = ended.into_iter().find(|end| !end.is_null()).expect("waited for");
    assert_eq!(ended["reason"], "Error");
}

fn deletable(case: &Case<'_>) {
    case.put_pod("", "    command: [/bin/false]\n");
    let pod = case.wait("it is there", |pod| !pod.0["metadata"]["uid"].is_null());
    case.take("pod");
    case.node.wait_gone(&pod);
}

const ALIASES: &str = "  hostAliases: [{ip: 123.45.67.89, hostnames: [foo, bar]}]\n";

fn hosts(case: &Case<'_>) {
    let lines = case.output_of(ALIASES, "", "cat /etc/hosts");
    assert!(lines.contains(&"123.45.67.89\tfoo\tbar".to_owned()), "{lines:?}");
    assert_eq!(lines[0], "# Kubernetes-managed hosts file.");
}

fn hosts_of_the_node(case: &Case<'_>) {
    let lines = case.output_of(&format!("  hostNetwork: true\n{ALIASES}"), "", "cat /etc/hosts");
    assert!(lines.contains(&"123.45.67.89\tfoo\tbar".to_owned()), "{lines:?}");
    assert_eq!(lines[0], "# Kubernetes-managed hosts file (host network).");
    let node = std::fs::read_to_string("/etc/hosts").expect("the node has one");
    assert!(node.lines().all(|line| lines.contains(&line.to_owned())), "{node}\n{lines:?}");
}

fn root_read_only(case: &Case<'_>) {
    let fields = "    securityContext: {readOnlyRootFilesystem: true}\n";
    let pod = case.run_script("", fields, "echo test > /file");
    assert_eq!(pod.phase(), "Failed");
    let errors = case.errors(&pod).join("\n");
    assert!(errors.contains("Read-only file system"), "{errors}");
}

fn managed_hosts(case: &Case<'_>) {
    let head = "head -1 /etc/hosts";
    let managed = "# Kubernetes-managed hosts file.";
    let first = |spec: &str, fields: &str| {
        let pod = case.run_script(spec, fields, head);
        let output = case.output(&pod);
        leave(case, &pod);
        output
    };
    assert_eq!(first("", ""), [managed]);
    // A container with its own file keeps it.
    let own = format!("{}/own-hosts", case.node.dir.display());
    std::fs::write(&own, "# its own\n").expect("a file of ours");
    let spec = format!("  volumes: [{{name: own, hostPath: {{path: {own}, type: File}}}}]\n");
    let mount = "    volumeMounts: [{name: own, mountPath: /etc/hosts}]\n";
    assert_eq!(first(&spec, mount), ["# its own"]);
    let lines = first("  hostNetwork: true\n", "");
    assert_eq!(lines, ["# Kubernetes-managed hosts file (host network)."]);
}

fn composed(case: &Case<'_>) {
    let env = "    env: [{name: FOO, value: foo-value}, {name: BAR, value: bar-value},\n      \
               {name: FOOBAR, value: $(FOO);;$(BAR)}]\n";
    assert_eq!(case.output_of("", env, "echo $FOOBAR"), ["foo-value;;bar-value"]);
}

fn in_command(case: &Case<'_>) {
    let fields = "    command: [sh, -c, 'TEST_VAR=wrong; echo \"$(TEST_VAR)\"']\n    \
                  env: [{name: TEST_VAR, value: test-value}]\n";
    case.put_pod("  restartPolicy: Never\n", fields);
    let pod = case.wait("it has succeeded", |pod| pod.phase() == "Succeeded");
    assert_eq!(case.output(&pod), ["test-value"]);
}

fn in_args(case: &Case<'_>) {
    let fields = "    command: [sh, -c]\n    args: ['TEST_VAR=wrong; echo \"$(TEST_VAR)\"']\n    \
                  env: [{name: TEST_VAR, value: test-value}]\n";
    case.put_pod("  restartPolicy: Never\n", fields);
    let pod = case.wait("it has succeeded", |pod| pod.phase() == "Succeeded");
    assert_eq!(case.output(&pod), ["test-value"]);
}

/// The values of variables with these sources, in their order.
fn values(case: &Case<'_>, resources: &str, sources: &[(&str, &str)]) -> (Pod, Vec<String>) {
    use std::fmt::Write as _;
    let mut env = String::from("    env:\n");
    let mut script = String::new();
    for (number, (kind, fields)) in sources.iter().enumerate() {
        writeln!(env, "    - {{name: V{number}, valueFrom: {{{kind}: {{{fields}}}}}}}")
            .expect("a String takes all");
        write!(script, "echo \"$V{number}\"; ").expect("a String takes all");
    }
    let pod = case.run_script("", &format!("{resources}{env}"), &script);
    assert_eq!(pod.phase(), "Succeeded", "{:?}", case.errors(&pod));
    let output = case.output(&pod);
    (pod, output)
}

fn field(path: &'static str) -> (&'static str, &'static str) {
    ("fieldRef", path)
}

fn name_namespace_address(case: &Case<'_>) {
    let paths = [
        field("fieldPath: metadata.name"),
        field("fieldPath: metadata.namespace"),
        field("fieldPath: status.podIP"),
    ];
    let (pod, values) = values(case, "", &paths);
    let want = [&pod.0["metadata"]["name"], &pod.0["metadata"]["namespace"]];
    assert_eq!(values[..2], want.map(|text| text.as_str().expect("a text").to_owned()));
    assert!(values[2].parse::<std::net::IpAddr>().is_ok(), "{values:?}");
    assert_eq!(values[2], pod.0["status"]["podIP"]);
}

fn host_ip(case: &Case<'_>) {
    let (pod, values) = values(case, "", &[field("fieldPath: status.hostIP")]);
    assert_eq!(values, [pod.0["status"]["hostIP"].as_str().expect("a text")]);
}

fn host_ips(case: &Case<'_>) {
    let (pod, values) = values(case, "", &[field("fieldPath: status.hostIPs")]);
    let ips = pod.0["status"]["hostIPs"].as_array().expect("a list").clone();
    let ips: Vec<&str> = ips.iter().filter_map(|ip| ip["ip"].as_str()).collect();
    assert_eq!(values, [ips.join(",")]);
}

const LIMITS: [(&str, &str); 2] =
    [("resourceFieldRef", "resource: limits.cpu"), ("resourceFieldRef", "resource: limits.memory")];

fn resources(case: &Case<'_>) {
    let resources = "    resources: {requests: {cpu: 250m, memory: 32Mi}, \
                     limits: {cpu: 1250m, memory: 64Mi}}\n";
    let requests = [
        ("resourceFieldRef", "resource: requests.cpu"),
        ("resourceFieldRef", "resource: requests.memory"),
    ];
    let (_, values) = values(case, resources, &[LIMITS, requests].concat());
    assert_eq!(values, ["2", "67108864", "1", "33554432"]);
}

fn allocatable(case: &Case<'_>) {
    let (_, values) = values(case, "", &LIMITS);
    let text = std::fs::read_to_string("/proc/cpuinfo").expect("Linux");
    let cores = text.lines().filter(|line| line.starts_with("processor")).count();
    assert_eq!(values[0], cores.to_string());
    let memory = std::fs::read_to_string("/proc/meminfo").expect("Linux");
    let kib = memory.split_ascii_whitespace().nth(1).and_then(|kib| kib.parse::<u64>().ok());
    assert_eq!(values[1], (kib.expect("a number") * 1024).to_string());
}

fn uid(case: &Case<'_>) {
    let (pod, values) = values(case, "", &[field("fieldPath: metadata.uid")]);
    assert_eq!(values, [pod.0["metadata"]["uid"].as_str().expect("a text")]);
}

/// An object of this kind with two texts, named after the case.
fn put_object(case: &Case<'_>, kind: &str, data: &str) -> String {
    let name = format!("{}-object", case.name);
    let text = format!(
        "apiVersion: v1\nkind: {kind}\nmetadata: {{name: {name}}}\n\
         {data}: {{data_1: value-1, data_2: value-2}}\n"
    );
    case.put("object", &text);
    name
}

fn key_of(case: &Case<'_>, kind: &str, data: &str, from: &'static str) {
    let name = put_object(case, kind, data);
    let wanted = format!("name: {name}, key: data_1");
    let (_, values) = values(case, "", &[(from, &wanted)]);
    assert_eq!(values, ["value-1"]);
}

fn whole_of(case: &Case<'_>, kind: &str, data: &str, from: &str) {
    let name = put_object(case, kind, data);
    let fields = format!(
        "    envFrom: [{{{from}: {{name: {name}}}}}, {{prefix: p_, {from}: {{name: {name}}}}}]\n"
    );
    let lines = case.output_of("", &fields, "echo $data_1 $data_2 $p_data_1 $p_data_2");
    assert_eq!(lines, ["value-1 value-2 value-1 value-2"]);
}

/// Each prefix makes separate names; so does none.
fn prefixes(case: &Case<'_>, kind: &str, data: &str, from: &str) {
    use std::fmt::Write as _;
    let name = put_object(case, kind, data);
    let mut fields = String::from("    envFrom:\n");
    let all = ["", "1-", "$_-", "ABC_", "#@!"];
    for prefix in all {
        writeln!(fields, "    - {{prefix: '{prefix}', {from}: {{name: {name}}}}}")
            .expect("a String takes all");
    }
    // A shell would drop invalid names of variables.
    case.put_pod("  restartPolicy: Never\n", &format!("    command: [env]\n{fields}"));
    let pod = case.wait("it has succeeded", |pod| pod.phase() == "Succeeded");
    let lines = case.output(&pod);
    for prefix in all {
        for number in [1, 2] {
            let want = format!("{prefix}data_{number}=value-{number}");
            assert!(lines.contains(&want), "{want}: {lines:?}");
        }
    }
}

fn host_network_ips(case: &Case<'_>) {
    let fields = "    env:\n    - {name: HOST_IP, valueFrom: {fieldRef: {fieldPath: \
                  status.hostIP}}}\n    - {name: POD_IP, valueFrom: {fieldRef: {fieldPath: \
                  status.podIP}}}\n";
    let lines = case.output_of("  hostNetwork: true\n", fields, "echo $HOST_IP; echo $POD_IP");
    let host = case.pod().0["status"]["hostIP"].as_str().unwrap_or_default().to_owned();
    assert!(!host.is_empty());
    assert_eq!(lines, [host.clone(), host]);
}

fn config_map_key(case: &Case<'_>) {
    key_of(case, "ConfigMap", "data", "configMapKeyRef");
}

fn config_map_whole(case: &Case<'_>) {
    whole_of(case, "ConfigMap", "data", "configMapRef");
}

fn secret_key(case: &Case<'_>) {
    key_of(case, "Secret", "stringData", "secretKeyRef");
}

fn secret_whole(case: &Case<'_>) {
    whole_of(case, "Secret", "stringData", "secretRef");
}

/// The case's pod, with ephemeral containers of these names.
fn with_ephemerals(case: &Case<'_>, names: &[&str]) -> String {
    use std::fmt::Write as _;
    let mut spec = format!("{QUICK_END}  ephemeralContainers: [");
    for name in names {
        let script = quoted("echo polo; trap 'exit 0' TERM; sleep 100000 & wait");
        write!(
            spec,
            "{{name: {name}, image: 'localhost/edged-demo:1', targetContainerName: main, \
             command: [sh, -c, {script}]}},"
        )
        .expect("a String takes all");
    }
    // A pod of the folder has its uid from its manifest, unless the manifest has one.
    manifest(&case.name, &format!("{spec}]\n"), SLEEP)
        .replace("metadata:\n", &format!("metadata:\n  uid: {}-fixed\n", case.name))
}

fn ephemerals_run(pod: &Pod, count: usize) -> bool {
    let all = pod.0["status"]["ephemeralContainerStatuses"].as_array().cloned();
    let all = all.unwrap_or_default();
    all.len() == count && all.iter().all(|values| !values["state"]["running"].is_null())
}

fn ephemeral(case: &Case<'_>) {
    case.put("pod", &with_ephemerals(case, &[]));
    let before = case.node.wait_running(&case.name);
    case.put("pod", &with_ephemerals(case, &["debugger"]));
    let pod = case.wait("it runs", |pod| ephemerals_run(pod, 1));
    case.wait_output(&pod, "debugger", "it has written", |lines| lines == ["polo"]);
    assert_eq!(pod.container_id("main"), before.container_id("main"), "undisturbed");
}

fn ephemerals(case: &Case<'_>) {
    case.put("pod", &with_ephemerals(case, &[]));
    case.node.wait_running(&case.name);
    case.put("pod", &with_ephemerals(case, &["first"]));
    case.wait("the first runs", |pod| ephemerals_run(pod, 1));
    case.put("pod", &with_ephemerals(case, &["first", "second"]));
    let pod = case.wait("both run", |pod| ephemerals_run(pod, 2));
    case.wait_output(&pod, "second", "it has written", |lines| lines == ["polo"]);
}
