//! Machines as found in the field, and the report about each.

use super::super::Verdict;
use super::*;
use crate::config::Config;
use crate::io::diagnostics::Room;
#[cfg(feature = "runtime")]
use crate::model::endpoint::RuntimeEndpoint;
use crate::model::error::System;

const V2: &str = "cgroup2 /sys/fs/cgroup cgroup2 rw,nosuid 0 0\n";
const V1: &str = "tmpfs /sys/fs/cgroup tmpfs rw 0 0\n\
    cgroup /sys/fs/cgroup/memory cgroup rw,memory 0 0\n\
    cgroup /sys/fs/cgroup/cpu cgroup rw,cpu,cpuacct 0 0\n";
const CGROUPS: &str =
    "#subsys_name\thierarchy\tnum_cgroups\tenabled\ncpu\t2\t1\t1\nmemory\t3\t1\t1\n";
const BRIDGE: &str = r#"{"cniVersion": "1.0.0", "name": "pods", "plugins": [
    {"type": "bridge", "ipam": {"type": "host-local"}}, {"type": "portmap"}]}"#;

fn room(path: &str) -> Room {
    Room {
        path: path.to_owned(),
        writable: true,
        free_bytes: 1 << 30,
        bytes: 4 << 30,
        free_inodes: 90_000,
        inodes: 100_000,
    }
}

/// A machine with everything that pods need.
fn machine() -> Diagnostics {
    let owned = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
    let version =
        Version { runtime_name: "containerd".to_owned(), runtime_version: "1.6.20".to_owned() };
    Diagnostics {
        config: Config { node_name: "gw".to_owned(), ..Config::default() },
        config_trouble: None,
        config_warning: None,
        config_exposed: None,
        rivals: Vec::new(),
        kernel: "6.1.0-13-arm64\n".to_owned(),
        mounts: V2.to_owned(),
        cgroups: String::new(),
        controllers: Some("cpuset cpu io memory pids\n".to_owned()),
        filesystems: "nodev\tproc\n\text4\nnodev\toverlay\n".to_owned(),
        namespaces: owned(&["cgroup", "ipc", "mnt", "net", "pid", "user", "uts"]),
        br_netfilter: true,
        ip_forward: "1\n".to_owned(),
        capabilities: Some(0x1ff_ffff_ffff),
        clock: true,
        hosts: true,
        root: Some(Ok(room("/var/lib/kubelet"))),
        logs: Some(Ok(room("/var/log"))),
        runtime: Some(Ok((version, RuntimeStatus::of(Ok(()), Ok(()))))),
        cni: vec![("10-pods.conflist".to_owned(), BRIDGE.to_owned())],
        cni_plugins: owned(&["bridge", "host-local", "portmap"]),
        manifests: Some(Ok(Vec::new())),
        #[cfg(feature = "runtime")]
        builtin: None,
        #[cfg(feature = "cloud")]
        cloud: None,
        #[cfg(feature = "devices")]
        devices: None,
        #[cfg(feature = "services")]
        services: None,
        #[cfg(feature = "node-jobs")]
        release_key: true,
        #[cfg(feature = "metaserver")]
        metaserver: None,
    }
}

/// The rows that are not ok, as `verdict name: detail → remedy`.
fn troubles(facts: &Diagnostics) -> Vec<String> {
    let rows = all(facts);
    let bad = rows.iter().filter(|row| row.verdict != Verdict::Ok);
    bad.map(|row| {
        let remedy = row.remedy.as_deref().unwrap_or_default();
        format!("{} {}: {} → {remedy}", row.verdict.word(), row.name, row.detail)
    })
    .collect()
}

/// With this one change, exactly this is reported.
fn check(change: impl Fn(&mut Diagnostics), start: &str, remedy: &str) {
    let mut facts = machine();
    change(&mut facts);
    let troubles = troubles(&facts);
    assert_eq!(troubles.len(), 1, "{troubles:#?}\nexpected {start}");
    assert!(troubles[0].starts_with(start), "{}\n{start}", troubles[0]);
    assert!(troubles[0].contains(remedy), "{}\n{remedy}", troubles[0]);
}

#[test]
fn a_machine_with_everything_is_well() {
    assert_eq!(troubles(&machine()), [""; 0]);
    let v1 = Diagnostics { mounts: V1.to_owned(), cgroups: CGROUPS.to_owned(), ..machine() };
    assert_eq!(troubles(&v1), [""; 0]);
    assert!(all(&v1).iter().any(|row| row.detail == "version 1 with memory"));
    let mounts = format!("{V1}cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n");
    let hybrid = Diagnostics { mounts, ..v1 };
    assert!(all(&hybrid).iter().any(|row| row.detail == "hybrid with memory"));
}

#[test]
fn kernels_and_cgroups_are_judged() {
    check(|facts| "3.10.0".clone_into(&mut facts.kernel), "fail kernel: Linux 3.10.0", "3.18");
    check(|facts| "4.9.337-v7".clone_into(&mut facts.kernel), "warn kernel: Linux 4.9.337", "4.14");
    check(|facts| "next".clone_into(&mut facts.kernel), "warn kernel: got release \"next\"", "");
    let memory = "cgroup_enable=memory cgroup_memory=1";
    let controllers = |text: &str| Some(text.to_owned());
    check(
        |facts| facts.controllers = controllers("cpuset cpu io pids"),
        "fail cgroups: version 2, without the memory controller",
        memory,
    );
    check(
        |facts| facts.controllers = controllers("memory cpu"),
        "warn cgroups: version 2, without the controller cpu or pids",
        "CONFIG_CGROUP_PIDS",
    );
    check(
        |facts| {
            V1.clone_into(&mut facts.mounts);
            facts.cgroups = CGROUPS.replace("memory\t3\t1\t1", "memory\t0\t1\t0");
        },
        "fail cgroups: version 1, without the memory controller",
        memory,
    );
    check(
        |facts| {
            "cgroup /sys/fs/cgroup/cpu cgroup rw,cpu 0 0\n".clone_into(&mut facts.mounts);
            CGROUPS.clone_into(&mut facts.cgroups);
        },
        "fail cgroups: version 1, the memory controller is not mounted",
        "mount -t cgroup -o memory",
    );
    check(|facts| facts.mounts.clear(), "fail cgroups: not mounted", "mount -t cgroup2");
    check(
        |facts| facts.namespaces.retain(|name| name != "pid"),
        "fail namespaces: the kernel lacks pid",
        "CONFIG_NAMESPACES",
    );
    check(|facts| facts.filesystems.clear(), "warn overlay: ", "modprobe overlay");
}

#[test]
fn the_remedy_names_the_keys_of_the_runtime_that_answers() {
    let old = "[plugins.\"io.containerd.grpc.v1.cri\"]";
    let new = "[plugins.\"io.containerd.cri.v1.runtime\"]";
    let set = "restrict_oom_score_adj = true";
    let cri_o = "CRI-O has no setting for it";
    for (name, version, named, not) in [
        ("containerd", "1.6.20~ds1", &[old, set][..], &[new][..]),
        ("containerd", "v1.7.34", &[old, set], &[new]),
        ("containerd", "v2.3.4", &[new, set, "where its version is 2"], &[]),
        ("containerd", "2.1.9+unknown", &[new, set], &[]),
        ("cri-o", "1.36.3", &[cri_o], &["containerd", set]),
        ("another", "1.0", &["CAP_SYS_RESOURCE"], &["containerd", "CRI-O", set]),
    ] {
        let mut facts = machine();
        facts.capabilities = Some(0);
        let version =
            Version { runtime_name: name.to_owned(), runtime_version: version.to_owned() };
        facts.runtime = Some(Ok((version.clone(), RuntimeStatus::of(Ok(()), Ok(())))));
        let troubles = troubles(&facts);
        let [trouble] = &troubles[..] else { panic!("{version:?}: {troubles:#?}") };
        for word in named {
            assert!(trouble.contains(word), "{version:?}: {trouble}\nexpected {word}");
        }
        for word in not {
            assert!(!trouble.contains(word), "{version:?}: {trouble}\nexpected no {word}");
        }
    }
}

#[cfg(feature = "runtime")]
#[test]
fn where_the_built_in_runtime_does_not_answer_it_is_to_be_started() {
    let change = |facts: &mut Diagnostics| {
        let endpoint = RuntimeEndpoint::ttrpc("/rt/sock".to_owned());
        facts.config.runtime = endpoint.expect("it is built in");
        facts.runtime = Some(Err(System::new("refused").into()));
        // It raises the scores of containers to its own; others fail.
        facts.capabilities = None;
    };
    check(change, "fail runtime: /rt/sock: refused", "start it with edged runtime");
}

#[test]
fn where_no_runtime_answers_its_socket_tells_which_one_was_meant() {
    for (socket, containerd) in [
        ("/run/containerd/containerd.sock", true),
        ("/var/run/crio/crio.sock", false),
        ("/run/crio.d/containerd.sock", true),
    ] {
        let mut facts = machine();
        socket.clone_into(&mut facts.config.runtime.socket);
        facts.runtime = Some(Err(System::new("refused").into()));
        facts.capabilities = None;
        for trouble in troubles(&facts) {
            let told = trouble.split_once(" → ").expect("a remedy").1;
            assert_eq!(told.contains("containerd"), containerd, "{trouble}");
        }
    }
}

#[test]
fn the_runtime_and_its_network_are_judged() {
    check(
        |facts| facts.runtime = Some(Err(System::new("there is no such socket").into())),
        "fail runtime: /run/containerd/containerd.sock: there is no such socket",
        "disabled_plugins",
    );
    let status =
        |facts: &mut Diagnostics, runtime: Result<(), String>, network: Result<(), String>| {
            let version = Version::default();
            facts.runtime = Some(Ok((version, RuntimeStatus::of(runtime, network))));
        };
    let why = || Err("not yet".to_owned());
    check(|facts| status(facts, why(), Ok(())), "fail runtime:  , not ready: not yet", "log");
    check(
        |facts| status(facts, Ok(()), why()),
        "warn network: not ready: not yet; only pods with hostNetwork can run",
        "CNI",
    );
    check(
        |facts| facts.cni_plugins.retain(|name| name != "portmap"),
        "warn cni: 10-pods.conflist needs portmap, not found in /opt/cni/bin",
        "containernetworking-plugins",
    );
    check(
        |facts| "{}".clone_into(&mut facts.cni[0].1),
        "warn cni: /etc/cni/net.d/10-pods.conflist names no plugin",
        "",
    );
    check(
        |facts| facts.br_netfilter = false,
        "warn bridge: not loaded: br_netfilter",
        "modprobe br_netfilter",
    );
    check(|facts| "0\n".clone_into(&mut facts.ip_forward), "warn bridge: ", "ip_forward=1");
    let mut elsewhere = machine();
    elsewhere.cni.clear();
    assert_eq!(troubles(&elsewhere), [""; 0], "the runtime knows better");
    status(&mut elsewhere, Ok(()), why());
    assert_eq!(troubles(&elsewhere).len(), 2, "no network and no configuration");
}

#[test]
fn what_the_process_may_do_is_judged() {
    for capabilities in [Some(0x0000_0000_a80c_25fb & !SYS_RESOURCE_BIT), None] {
        check(
            |facts| facts.capabilities = capabilities,
            "warn oom-score: may not be lowered here (no CAP_SYS_RESOURCE): if the runtime may \
             not either, pods fail with `can't get final child's PID from pipe: EOF`",
            "restrict_oom_score_adj = true",
        );
    }
}

#[test]
fn the_place_is_judged() {
    check(|facts| facts.clock = false, "warn clock: ", "ntpd");
    check(|facts| facts.hosts = false, "warn hosts: ", "/etc/hosts");
    let logs = |facts: &mut Diagnostics, change: fn(&mut Room)| {
        if let Some(Ok(room)) = &mut facts.logs {
            change(room);
        }
    };
    check(
        |facts| logs(facts, |room| room.writable = false),
        "fail logs: /var/log cannot be written to",
        "--pod-logs",
    );
    check(
        |facts| logs(facts, |room| room.free_bytes = 1 << 20),
        "warn logs: /var/log has 1 MiB of 4096 MiB free",
        "make room",
    );
    check(
        |facts| logs(facts, |room| room.free_inodes = 1),
        "warn logs: /var/log has 1 of 100000 inodes left",
        "inodes",
    );
    check(
        |facts| facts.logs = Some(Err(System::new("/: gone"))),
        "fail logs: /: gone",
        "--pod-logs",
    );
    let read_only = || Some(Ok(Room { writable: false, ..room("/var/lib") }));
    check(
        |facts| facts.root = read_only(),
        "fail root: /var/lib cannot be written to",
        "with --root-dir or rootDirectory",
    );
}

#[test]
fn the_configuration_and_the_manifests_are_judged() {
    check(
        |facts| facts.config_trouble = Some("/e.yaml:1:1: got …".to_owned()),
        "fail config: /e.yaml:1:1: got …",
        "correct",
    );
    check(
        |facts| facts.config_warning = Some("no effect: x".to_owned()),
        "warn config: no effect: x",
        "",
    );
    check(
        |facts| facts.config_exposed = Some("/c.yaml".to_owned()),
        "warn config: /c.yaml holds a token",
        "chmod 600 /c.yaml",
    );
    for (same, verdict) in [(Some(true), "fail"), (None, "warn")] {
        check(
            |facts| facts.rivals = vec![Rival { name: "kubelet".to_owned(), pid: 7, same }],
            &format!("{verdict} agents: kubelet (pid 7) "),
            "stop kubelet",
        );
    }
    check(
        |facts| facts.manifests = Some(Err(System::new("/m: No such file or directory"))),
        "warn manifests: /m: No such file",
        "mkdir -p /etc/kubeedge/manifests",
    );
    let file = |text: &str| Some(Ok(vec![("/m/a.yaml".to_owned(), Ok(text.as_bytes().to_vec()))]));
    check(
        |facts| {
            let spoilt = ("/m/a.yaml".to_owned(), Err(System::new("Input/output error")));
            facts.manifests = Some(Ok(vec![spoilt]));
        },
        "fail manifests: /m/a.yaml: cannot be read: Input/output error",
        "dmesg",
    );
    check(
        |facts| facts.manifests = file("apiVersion: v1\nkind: Pod\nspec: 5\n"),
        "fail manifests: /m/a.yaml:3:7: spec: got 5, expected a map",
        "correct",
    );
    let pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec:\n  containers:\n  - \
               {name: c, image: i, X}\n";
    check(
        |facts| {
            facts.manifests = file(&pod.replace('X', "restartPolicyRules: [{action: Restart}]"));
        },
        "fail manifests: /m/a.yaml: pod \"a\": not built into this edged: \
         spec.containers[0].restartPolicyRules",
        "refused",
    );
    check(
        |facts| facts.manifests = file(&pod.replace('X', "livenesProbe: {}")),
        "warn manifests: /m/a.yaml: pod \"a\": not known: spec.containers[0].livenesProbe",
        "spelled",
    );
    let facts = Diagnostics { manifests: file(&pod.replace(", X", "")), ..machine() };
    assert!(all(&facts).iter().any(|row| row.detail == "/etc/kubeedge/manifests: files 1, pods 1"));
}

#[cfg(feature = "node-jobs")]
#[test]
fn jobs_need_a_cloud_and_upgrades_a_key() {
    let mut facts = machine();
    assert_eq!(node_jobs(&facts), None);
    facts.config.node_jobs = true;
    assert_eq!(node_jobs(&facts).expect("a row").verdict, Verdict::Warn);
    let row = upgrades(true, &[]);
    assert_eq!((row.verdict, &*row.detail), (Verdict::Ok, "edged is upgraded by digest"));
    let row = upgrades(true, &["r.example/edged".into()]);
    assert_eq!(row.detail, "edged is upgraded by digest, or from r.example/edged");
    let row = upgrades(false, &[]);
    assert_eq!(row.verdict, Verdict::Warn);
    assert!(row.detail.starts_with("no job upgrades edged: there is no /"), "{row:?}");
}
