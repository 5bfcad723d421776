//! From a manifest to running containers: how they are started, and in which order.

use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use crate::World;
use crate::support::agent::{LogLine, Pod, Site, entries, manifest, sleeper};
use crate::support::containerd::{Kind, kind};
use crate::support::port::free_port;
use crate::support::wait::until;
use crate::support::{http, process, runtime_state};

crate::tests![
    a_pod_on_the_hosts_network_starts_as_its_manifest_says,
    the_runtime_is_told_what_a_kubelet_would_tell_it,
    a_pod_on_the_pod_network_is_reached_by_its_address_and_its_host_port,
    init_containers_and_sidecars_run_before_the_main_container_in_their_order,
    thirty_pods_at_once_all_run_and_all_leave_without_a_trace,
    no_port_is_given_to_two_programs,
];

const AS_WRITTEN: &str = r#"    command:
    - sh
    - -c
    - 'trap "exit 0" TERM; echo "env $GREETING, $1"; echo "dir $PWD"; echo oops >&2;
      sleep 100000 & wait'
    args: [zero, "args $(NAME)"]
    workingDir: /var
    env:
    - {name: NAME, value: world}
    - {name: GREETING, value: hello $(NAME)}
    resources:
      limits: {cpu: 500m, memory: 64Mi}
      requests: {cpu: 250m, memory: 32Mi}
"#;

fn a_pod_on_the_hosts_network_starts_as_its_manifest_says(world: &World) {
    let site = world.site("starts-host");
    let _agent = site.start();
    site.put("one.yaml", &manifest("one", "  hostNetwork: true\n", AS_WRITTEN));
    let pod = site.wait_running("one");
    let expected = ["env hello world, args world", "dir /var"];
    let lines = until("the output is in the pod's log", || {
        let lines = site.log_lines(&pod, "main", 0);
        if lines.len() == 3 { Ok(lines) } else { Err(format!("{lines:?}")) }
    });
    assert_eq!(LogLine::texts(&lines, "stdout"), expected);
    assert_eq!(LogLine::texts(&lines, "stderr"), ["oops"]);
    for line in &lines {
        assert_eq!(line.tag, "F", "{line:?}");
        assert!(is_rfc3339_nano(&line.time), "{line:?}");
    }
    assert_eq!(pod.condition("Ready"), "True");
    assert_eq!(pod.condition("ContainersReady"), "True");
    assert_eq!(pod.condition("Initialized"), "True");
    assert_eq!(pod.condition("PodScheduled"), "True");
    assert_eq!(pod.0["status"]["qosClass"], "Burstable");
    let id = pod.container_id("main");
    let link = site.container_logs.join(format!("one-gw_default_main-{id}.log"));
    assert_eq!(fs::canonicalize(&link).ok(), fs::canonicalize(site.log_file(&pod, "main", 0)).ok());
    assert!(link.exists(), "{} in {:?}", link.display(), entries(&site.container_logs));

    let pid = runtime_state::pid_of(&site.runtime, &id);
    assert_eq!(namespace(pid, "net"), namespace(std::process::id(), "net"));
    assert_ne!(namespace(pid, "pid"), namespace(std::process::id(), "pid"));
    cgroup_limits_are(pid, 64 << 20, 50_000, 256);
    site.take("one.yaml");
    site.wait_gone(&pod);
}

fn the_runtime_is_told_what_a_kubelet_would_tell_it(world: &World) {
    let site = world.site("starts-told");
    let _agent = site.start();
    let text = sleeper("told").replace(
        "  name: told\n",
        "  name: told\n  namespace: shop\n  labels: {app: till}\n  annotations: {note: \"yes\"}\n",
    );
    site.put("told.yaml", &text);
    let pod = site.wait_running("told");
    assert_eq!(pod.namespace(), "shop");
    assert_eq!(pod.0["metadata"]["annotations"]["kubernetes.io/config.source"], "file");
    assert_eq!(pod.0["spec"]["nodeName"], "gw");
    let state = site.runtime_state().of(pod.uid());
    let [sandbox] = state.ready()[..] else { panic!("{}", state.short()) };
    let metadata = sandbox.metadata.clone().expect("metadata");
    assert_eq!((&*metadata.name, &*metadata.namespace), ("told-gw", "shop"));
    assert_eq!((&*metadata.uid, metadata.attempt), (pod.uid(), 0));
    let labels = [
        ("app", "till"),
        ("io.kubernetes.pod.name", "told-gw"),
        ("io.kubernetes.pod.namespace", "shop"),
        ("io.kubernetes.pod.uid", pod.uid()),
    ];
    for (name, value) in labels {
        assert_eq!(sandbox.labels.get(name).map(String::as_str), Some(value), "{name}");
    }
    let note = sandbox.annotations.get("note").map(String::as_str);
    assert_eq!(note, Some("yes"));
    assert_eq!(sandbox.annotations.get("kubernetes.io/config.source").unwrap(), "file");
    assert!(sandbox.annotations.contains_key("kubernetes.io/config.seen"));

    let [main] = state.running("main")[..] else { panic!("{}", state.short()) };
    assert_eq!(main.metadata.clone().map(|it| it.attempt), Some(0));
    assert_eq!(main.labels["io.kubernetes.container.name"], "main");
    assert_eq!(main.labels["io.kubernetes.pod.uid"], pod.uid());
    let annotation = |name: &str| main.annotations.get(name).map(String::as_str);
    let hash = kubelets_hash("main", "localhost/edged-demo:1");
    assert_eq!(annotation("io.kubernetes.container.hash"), Some(&*hash));
    assert_eq!(annotation("io.kubernetes.container.restartCount"), Some("0"));
    assert_eq!(annotation("io.kubernetes.pod.terminationGracePeriod"), Some("5"));
    assert_eq!(annotation("io.kubernetes.container.terminationMessagePolicy"), Some("File"));
    site.take("told.yaml");
    site.wait_gone(&pod);
}

fn a_pod_on_the_pod_network_is_reached_by_its_address_and_its_host_port(world: &World) {
    let site = world.site("starts-cni");
    let _agent = site.start();
    let port = free_port();
    let container = format!(
        "    command: [sh, -c, 'trap \"exit 0\" TERM; mkdir -p /www; hostname > /www/index.html; \
         httpd -f -p 8080 -h /www & wait']\n    ports:\n    \
         - {{containerPort: 8080, hostPort: {port}, protocol: TCP}}\n"
    );
    site.put("web.yaml", &manifest("web", "  terminationGracePeriodSeconds: 5\n", &container));
    let pod = site.wait_running("web");
    let ip: IpAddr = pod.ip().parse().expect("an address");
    let host: IpAddr = pod.0["status"]["hostIP"].as_str().unwrap_or_default().parse().expect("one");
    assert_ne!(ip, host);
    for to in [SocketAddr::new(ip, 8080), SocketAddr::new(host, port)] {
        until(&format!("the pod answers at {to}"), || {
            let answer = http::get(to, "/").map_err(|error| error.to_string())?;
            if answer.body.trim() == "web-gw" { Ok(()) } else { Err(format!("{answer:?}")) }
        });
    }
    let netns = netns_of(&site, &pod);
    assert!(netns.exists(), "{}", netns.display());
    site.take("web.yaml");
    site.wait_gone(&pod);
    assert!(!netns.exists(), "{} is left", netns.display());
}

const ORDERED: &str = "apiVersion: v1
kind: Pod
metadata: {name: ordered}
spec:
  hostNetwork: true
  initContainers:
  - name: first
    image: localhost/edged-demo:1
    command: [sh, -c, 'echo begin; sleep 0.3; echo end']
  - name: beside
    image: localhost/edged-demo:1
    restartPolicy: Always
    command: [sh, -c, 'trap \"exit 0\" TERM; echo begin; sleep 100000 & wait']
  - name: second
    image: localhost/edged-demo:1
    command: [sh, -c, 'echo begin; sleep 0.3; echo end']
  containers:
  - name: main
    image: localhost/edged-demo:1
    command: [sh, -c, 'trap \"exit 0\" TERM; echo begin; sleep 100000 & wait']
";

fn init_containers_and_sidecars_run_before_the_main_container_in_their_order(world: &World) {
    let site = world.site("starts-order");
    let _agent = site.start();
    site.put("ordered.yaml", ORDERED);
    let pod = site.wait_running("ordered");
    let line = |container: &str, text: &str| -> LogLine {
        until(&format!("{container} says {text}"), || {
            let lines = site.log_lines(&pod, container, 0);
            lines.iter().find(|line| line.text == text).cloned().ok_or(format!("{lines:?}"))
        })
    };
    let order = [
        line("first", "begin"),
        line("first", "end"),
        line("beside", "begin"),
        line("second", "begin"),
        line("second", "end"),
        line("main", "begin"),
    ];
    let times: Vec<String> = order.iter().map(|line| sortable(&line.time)).collect();
    // The sidecar and the next container write to different pipes: only the start is ordered.
    assert!(
        times[0] <= times[1] && times[1] <= times[2].clone().min(times[3].clone()),
        "{order:?}"
    );
    assert!(times[3] <= times[4] && times[4] <= times[5], "{order:?}");
    let status = |name: &str| pod.container(name)["state"].clone();
    assert_eq!(status("first")["terminated"]["exitCode"], 0);
    assert_eq!(status("second")["terminated"]["reason"], "Completed");
    assert!(status("beside")["running"].is_object(), "{}", status("beside"));
    assert_eq!(pod.container("beside")["started"], true);
    for name in ["first", "beside", "second", "main"] {
        assert_eq!(pod.restarts(name), 0, "{name}");
    }
    site.take("ordered.yaml");
    site.wait_gone(&pod);
}

fn thirty_pods_at_once_all_run_and_all_leave_without_a_trace(world: &World) {
    const COUNT: usize = 30;
    let site = world.site("starts-thirty");
    let agent = site.start();
    for n in 0..COUNT {
        site.put(&format!("p{n}.yaml"), &sleeper(&format!("p{n}")));
    }
    until("thirty pods run", || {
        let running = site.pods()?.iter().filter(|pod| pod.runs()).count();
        if running == COUNT { Ok(()) } else { Err(format!("{running} run\n{}", site.log_tail())) }
    });
    let state = site.runtime_state();
    assert_eq!(state.ready().len(), COUNT, "{}", state.short());
    assert_eq!(state.containers.len(), COUNT, "{}", state.short());
    for pod in site.pods().expect("it listens") {
        assert_eq!(pod.restarts("main"), 0, "{}", pod.name());
    }
    for n in 0..COUNT {
        site.take(&format!("p{n}.yaml"));
    }
    site.wait_empty();
    until("no child is left behind", || {
        let children = process::children(agent.pid());
        if children.is_empty() { Ok(()) } else { Err(format!("{children:?}")) }
    });
}

/// The namespace of a process, by the kernel's number.
fn namespace(pid: u32, kind: &str) -> PathBuf {
    fs::read_link(format!("/proc/{pid}/ns/{kind}")).expect("the process lives")
}

/// The path where CNI keeps the network namespace of a pod.
fn netns_of(site: &Site, pod: &Pod) -> PathBuf {
    let state = site.runtime_state().of(pod.uid());
    let id = &state.ready()[0].id;
    if kind() == Kind::Builtin {
        return site.runtime.with_file_name("sb").join(id).join("net");
    }
    let info = runtime_state::sandbox_info(&site.runtime, id);
    let all = info["runtimeSpec"]["linux"]["namespaces"].as_array().cloned().unwrap_or_default();
    let network = all.iter().find(|one| one["type"] == "network").expect("a network namespace");
    network["path"].as_str().expect("with a path").into()
}

/// The limits that the kernel enforces on a process, in either version of cgroups.
fn cgroup_limits_are(pid: u32, memory_bytes: u64, quota_us: u64, shares: u64) {
    let cgroups = fs::read_to_string(format!("/proc/{pid}/cgroup")).expect("the process lives");
    let path_of = |controller: &str| {
        cgroups.lines().find_map(|line| {
            let mut parts = line.splitn(3, ':').skip(1);
            let mut controllers = parts.next()?.split(',');
            controllers.any(|one| one == controller).then(|| parts.next())?
        })
    };
    let read = |root: &str, path: &str, file: &str| {
        let file = format!("{root}{path}/{file}");
        let text = fs::read_to_string(&file).unwrap_or_else(|error| panic!("{file}: {error}"));
        text.trim().to_owned()
    };
    if let (Some(memory), Some(cpu)) = (path_of("memory"), path_of("cpu")) {
        let of_memory = read("/sys/fs/cgroup/memory", memory, "memory.limit_in_bytes");
        assert_eq!(of_memory, memory_bytes.to_string());
        let of_cpu = |file| read("/sys/fs/cgroup/cpu", cpu, file);
        assert_eq!(of_cpu("cpu.cfs_quota_us"), quota_us.to_string());
        assert_eq!(of_cpu("cpu.cfs_period_us"), "100000");
        assert_eq!(of_cpu("cpu.shares"), shares.to_string());
    } else {
        let path = path_of("").expect("cgroup v2");
        let file = |file| read("/sys/fs/cgroup", path, file);
        assert_eq!(file("memory.max"), memory_bytes.to_string());
        assert_eq!(file("cpu.max"), format!("{quota_us} 100000"));
        // The OCI runtimes' formula for 2–262144 shares to 1–10000.
        assert_eq!(file("cpu.weight"), (1 + (shares - 2) * 9999 / 262_142).to_string());
    }
}

/// Kubernetes' hash of a container since 1.31, implemented independently of the agent's.
fn kubelets_hash(name: &str, image: &str) -> String {
    let json = format!(r#"{{"image":"{image}","name":"{name}"}}"#);
    let bytes: Vec<String> = json.bytes().map(|byte| byte.to_string()).collect();
    let text = format!("([]uint8)[{}]", bytes.join(" "));
    let fnv = |hash: u32, byte: u8| (hash ^ u32::from(byte)).wrapping_mul(16_777_619);
    format!("{:x}", text.bytes().fold(2_166_136_261, fnv))
}

/// `2026-01-02T03:04:05.678Z`, with up to nine digits after the point, or an offset for the Z.
fn is_rfc3339_nano(text: &str) -> bool {
    let shape: String = text.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
    let Some(rest) = shape.strip_prefix("0000-00-00T00:00:00") else { return false };
    let rest = rest.strip_prefix('.').map_or(rest, |fraction| fraction.trim_start_matches('0'));
    rest == "Z" || rest == "+00:00" || rest == "-00:00"
}

/// The runtime omits zeros at the end of the fraction.
fn sortable(time: &str) -> String {
    let (seconds, fraction) = time.trim_end_matches('Z').split_once('.').unwrap_or((time, ""));
    format!("{seconds}.{fraction:0<9}")
}

/// The kernel's own, on port 0, repeat after some tens.
fn no_port_is_given_to_two_programs(_: &World) {
    let ports: Vec<u16> = (0..400).map(|_| free_port()).collect();
    let mut different = ports.clone();
    different.sort_unstable();
    different.dedup();
    assert_eq!(different.len(), ports.len(), "{ports:?}");
}
