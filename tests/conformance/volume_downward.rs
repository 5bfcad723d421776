//! Volumes with fields of the pod, separately and projected, and all kinds in one.

use crate::Entry;
use crate::case::{Case, QUICK_END, SLEEP};
use crate::support::agent::manifest;
use crate::support::wait::until;

const PLAIN: &str = "Downward API volume";
const PROJECTED: &str = "Projected downwardAPI";
const NAME: &str = "should provide podname only";
const DEFAULT_MODE: &str = "should set DefaultMode on files";
const ITEM_MODE: &str = "should set mode on item file";
const LABELS: &str = "should update labels on modification";
const ANNOTATIONS: &str = "should update annotations on modification";
const CPU_LIMIT: &str = "should provide container's cpu limit";
const MEMORY_LIMIT: &str = "should provide container's memory limit";
const CPU_REQUEST: &str = "should provide container's cpu request";
const MEMORY_REQUEST: &str = "should provide container's memory request";
const GROUP: &str = "should provide podname as non-root with fsgroup";
const GROUP_MODE: &str = "should provide podname as non-root with fsgroup and defaultMode";
const NODE_CPU: &str =
    "should provide node allocatable (cpu) as default cpu limit if the limit is not set";
const NODE_MEMORY: &str =
    "should provide node allocatable (memory) as default memory limit if the limit is not set";

pub(crate) const ROWS: &[Entry] = &[
    (PLAIN, NAME, name::<false>),
    (PLAIN, DEFAULT_MODE, default_mode::<false>),
    (PLAIN, ITEM_MODE, item_mode::<false>),
    (PLAIN, LABELS, labels::<false>),
    (PLAIN, ANNOTATIONS, annotations::<false>),
    (PLAIN, CPU_LIMIT, cpu_limit::<false>),
    (PLAIN, MEMORY_LIMIT, memory_limit::<false>),
    (PLAIN, CPU_REQUEST, cpu_request::<false>),
    (PLAIN, MEMORY_REQUEST, memory_request::<false>),
    (PLAIN, NODE_CPU, node_cpu::<false>),
    (PLAIN, NODE_MEMORY, node_memory::<false>),
    (PLAIN, GROUP, group::<false>),
    (PLAIN, GROUP_MODE, group_mode::<false>),
    (PROJECTED, NAME, name::<true>),
    (PROJECTED, DEFAULT_MODE, default_mode::<true>),
    (PROJECTED, ITEM_MODE, item_mode::<true>),
    (PROJECTED, LABELS, labels::<true>),
    (PROJECTED, ANNOTATIONS, annotations::<true>),
    (PROJECTED, CPU_LIMIT, cpu_limit::<true>),
    (PROJECTED, MEMORY_LIMIT, memory_limit::<true>),
    (PROJECTED, CPU_REQUEST, cpu_request::<true>),
    (PROJECTED, MEMORY_REQUEST, memory_request::<true>),
    (PROJECTED, NODE_CPU, node_cpu::<true>),
    (PROJECTED, NODE_MEMORY, node_memory::<true>),
    (PROJECTED, GROUP, group::<true>),
    (PROJECTED, GROUP_MODE, group_mode::<true>),
    (
        "Projected combined",
        "should project all components that make up the projection API",
        combined,
    ),
];

const MOUNT: &str = "    volumeMounts: [{name: v, mountPath: /v}]\n";

/// One file `f` in a volume with this content.
fn volume(projected: bool, mode: &str, item: &str) -> String {
    let items = format!("items: [{{path: f, {item}}}]");
    let source = if projected {
        format!("projected: {{{mode}sources: [{{downwardAPI: {{{items}}}}}]}}")
    } else {
        format!("downwardAPI: {{{mode}{items}}}")
    };
    format!("  volumes: [{{name: v, {source}}}]\n")
}

const POD_NAME: &str = "fieldRef: {fieldPath: metadata.name}";

/// Mode and content of the file.
fn observe(case: &Case<'_>, volume: &str, main: &str) -> Vec<String> {
    case.output_of(volume, &format!("{main}{MOUNT}"), "stat -L -c %a /v/f; cat /v/f; echo")
}

fn name<const PROJECTED: bool>(case: &Case<'_>) {
    let output = observe(case, &volume(PROJECTED, "", POD_NAME), "");
    assert_eq!(output, ["644", case.pod().name()]);
}

fn default_mode<const PROJECTED: bool>(case: &Case<'_>) {
    let output = observe(case, &volume(PROJECTED, "defaultMode: 0400, ", POD_NAME), "");
    assert_eq!(output, ["400", case.pod().name()]);
}

fn item_mode<const PROJECTED: bool>(case: &Case<'_>) {
    let output = observe(case, &volume(PROJECTED, "", &format!("mode: 0400, {POD_NAME}")), "");
    assert_eq!(output, ["400", case.pod().name()]);
}

/// Changes one of the pod's maps while it runs.
fn follows(case: &Case<'_>, projected: bool, map: &str) {
    let with = |value: &str| {
        let volume = volume(projected, "", &format!("fieldRef: {{fieldPath: metadata.{map}}}"));
        let text =
            manifest(&case.name, &format!("{QUICK_END}{volume}"), &format!("{SLEEP}{MOUNT}"));
        let uid = format!("{}-fixed", case.name);
        let metadata = format!("metadata:\n  uid: {uid}\n  {map}: {{builder: {value}}}\n");
        text.replace("metadata:\n", &metadata)
    };
    let wait = |value: &str| {
        let pod = case.node.wait_running(&case.name);
        until(&format!("the file says {value}"), || {
            let (_, output, errors) = case.exec(&pod, "main", &["cat", "/v/f"]);
            let line = format!("builder=\"{value}\"");
            let found = output.lines().any(|it| it == line);
            if found { Ok(()) } else { Err(format!("{output}{errors}")) }
        });
        pod
    };
    case.put("pod", &with("bar"));
    let before = wait("bar");
    case.put("pod", &with("foo"));
    let after = wait("foo");
    assert_eq!(after.container_id("main"), before.container_id("main"), "undisturbed");
}

fn labels<const PROJECTED: bool>(case: &Case<'_>) {
    follows(case, PROJECTED, "labels");
}

fn annotations<const PROJECTED: bool>(case: &Case<'_>) {
    follows(case, PROJECTED, "annotations");
}

const RESOURCES: &str = "    resources: {requests: {cpu: 250m, memory: 32Mi}, \
                         limits: {cpu: 1250m, memory: 64Mi}}\n";

fn resource(case: &Case<'_>, projected: bool, resource: &str, main: &str) -> String {
    let divisor = if resource.ends_with("cpu") { "1m" } else { "1" };
    let from = format!(
        "resourceFieldRef: {{containerName: main, resource: {resource}, divisor: {divisor}}}"
    );
    observe(case, &volume(projected, "", &from), main).remove(1)
}

fn cpu_limit<const PROJECTED: bool>(case: &Case<'_>) {
    assert_eq!(resource(case, PROJECTED, "limits.cpu", RESOURCES), "1250");
}

fn memory_limit<const PROJECTED: bool>(case: &Case<'_>) {
    assert_eq!(resource(case, PROJECTED, "limits.memory", RESOURCES), "67108864");
}

fn cpu_request<const PROJECTED: bool>(case: &Case<'_>) {
    assert_eq!(resource(case, PROJECTED, "requests.cpu", RESOURCES), "250");
}

fn memory_request<const PROJECTED: bool>(case: &Case<'_>) {
    assert_eq!(resource(case, PROJECTED, "requests.memory", RESOURCES), "33554432");
}

/// Nothing of the node is reserved, so everything that the kernel reports can be allocated.
fn node_cpu<const PROJECTED: bool>(case: &Case<'_>) {
    let text = std::fs::read_to_string("/proc/cpuinfo").expect("Linux");
    let cores = text.lines().filter(|line| line.starts_with("processor")).count();
    assert_eq!(resource(case, PROJECTED, "limits.cpu", ""), (cores * 1000).to_string());
}

fn node_memory<const PROJECTED: bool>(case: &Case<'_>) {
    let text = std::fs::read_to_string("/proc/meminfo").expect("Linux");
    let total = text.lines().find_map(|line| line.strip_prefix("MemTotal:")).expect("Linux");
    let kib: u64 = total.trim().trim_end_matches(" kB").parse().expect("a number");
    assert_eq!(resource(case, PROJECTED, "limits.memory", ""), (kib * 1024).to_string());
}

/// Another user of the volume's group.
const OTHER: &str = "  securityContext: {runAsUser: 1000, fsGroup: 1234}\n";

fn group<const PROJECTED: bool>(case: &Case<'_>) {
    let spec = format!("{OTHER}{}", volume(PROJECTED, "", POD_NAME));
    assert_eq!(observe(case, &spec, "")[1], case.pod().name());
}

fn group_mode<const PROJECTED: bool>(case: &Case<'_>) {
    let spec = format!("{OTHER}{}", volume(PROJECTED, "defaultMode: 0440, ", POD_NAME));
    assert_eq!(observe(case, &spec, ""), ["440", case.pod().name()]);
}

fn combined(case: &Case<'_>) {
    let name = &case.name;
    let object = |kind: &str, what: &str, data: &str| {
        let metadata = format!("metadata: {{name: {name}-{what}}}");
        case.put(what, &format!("apiVersion: v1\nkind: {kind}\n{metadata}\n{data}\n"));
    };
    object("ConfigMap", "cm", "data: {c: value-c}");
    object("Secret", "s", "stringData: {s: value-s}");
    let volume = format!(
        "  volumes:\n  - name: v\n    projected:\n      sources:\n      \
         - configMap: {{name: {name}-cm, items: [{{key: c, path: c}}]}}\n      \
         - secret: {{name: {name}-s, items: [{{key: s, path: s}}]}}\n      \
         - downwardAPI: {{items: [{{path: name, {POD_NAME}}}]}}\n"
    );
    let script = "for f in c s name; do cat /v/$f; echo; done";
    let output = case.output_of(&volume, MOUNT, script);
    assert_eq!(output, ["value-c", "value-s", case.pod().name()]);
}
