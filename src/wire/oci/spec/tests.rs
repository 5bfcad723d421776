//! Compares with what containerd 1.6.20 wrote for the same pods (`tests/golden/oci`: without
//! annotations, with short names of folders, seccomp's rules and the list of devices left out).

use serde_json::{Value, json};

use super::*;
use crate::model::cri::{Mount as Asked, Namespaces, SandboxConfig, Terminal, User as AskedUser};
use crate::model::runtime::{
    BootId, ContainerId, ContainerPhase, ImageId, SandboxId, SandboxPhase,
};

fn sandbox(network: Network, cgroup_parent: &str) -> SandboxRecord {
    let namespaces = Namespaces { network, ..Namespaces::default() };
    let cgroup_parent = cgroup_parent.to_owned();
    SandboxRecord {
        id: SandboxId("sb".into()),
        config: SandboxConfig { cgroup_parent, namespaces, ..SandboxConfig::default() },
        phase: SandboxPhase::Ready,
        created_at: 0,
        ips: Vec::new(),
        boot: BootId::default(),
        program: "".into(),
    }
}

fn container(config: ContainerConfig) -> ContainerRecord {
    ContainerRecord {
        id: ContainerId("ID".into()),
        sandbox: SandboxId("sb".into()),
        config,
        log: "".into(),
        image: ImageId("sha256:".into()),
        layers: Vec::new(),
        stop_signal: 15,
        created_at: 0,
        phase: ContainerPhase::Created,
    }
}

fn image() -> ImageConfig {
    ImageConfig {
        env: vec!["PATH=/usr/sbin:/usr/bin:/sbin:/bin".into(), "DEMO_VERSION=1".into()],
        cmd: vec!["/bin/sh".into()],
        ..ImageConfig::default()
    }
}

fn host(config: &ContainerConfig, hostname: &str, groups: &[u32]) -> Host {
    let user = &config.security.user;
    let id = |id: Option<i64>| id.map_or(0, |id| id as u32);
    Host {
        sandbox: "/sb".to_owned(),
        hostname: hostname.to_owned(),
        user: User { uid: id(user.uid), gid: id(user.gid), additional_gids: groups.to_vec() },
        pid_namespace: None,
        sources: config.mounts.iter().map(|mount| mount.host_path.clone()).collect(),
        volumes: Vec::new(),
        devices: Vec::new(),
        seccomp: None,
        seccomp_filter: None,
        apparmor: None,
        // This machine's lacks one.
        capabilities: Capabilities(((1 << 41) - 1) & !(1 << 24)),
        oom_score_adj_min: -1_000,
        limits: Limits { cgroup2: false, swap: true, hugetlb: true },
        selinux: false,
        users: config.namespaces.users,
    }
}

fn written(sandbox: &SandboxRecord, config: &ContainerConfig, host: &Host) -> Value {
    let bytes = bundle(sandbox, &container(config.clone()), &image(), host).expect("it is fine");
    serde_json::from_slice(&bytes).expect("JSON")
}

/// Without what differs in form only: empty lists, orders without meaning, and the namespaces of a
/// pod on the host's network, which containerd joins by their names.
fn plain(mut spec: Value, on_host: bool) -> Value {
    let linux = spec["linux"].as_object_mut().expect("an object");
    if let Some(seccomp) = linux.get_mut("seccomp") {
        seccomp["syscalls"] = json!("see seccomp.rs");
    }
    linux.retain(|_, value| *value != json!([]));
    let resources = linux["resources"].as_object_mut().expect("an object");
    resources.retain(|_, value| *value != json!([]) && *value != json!({}));
    let namespaces = linux["namespaces"].as_array_mut().expect("a list");
    namespaces.retain(|one| !(on_host && (one["type"] == "uts" || one["type"] == "network")));
    namespaces.sort_by_key(|one| one["type"].to_string());
    for (key, value) in [("terminal", json!(false)), ("noNewPrivileges", json!(false))] {
        let process = spec["process"].as_object_mut().expect("an object");
        process.entry(key).or_insert(value);
    }
    spec["root"].as_object_mut().expect("an object").entry("readonly").or_insert(json!(false));
    for set in ["bounding", "effective", "permitted"] {
        let names = spec["process"]["capabilities"][set].as_array_mut().expect("a list");
        names.sort_by_key(Value::to_string);
    }
    spec
}

fn containerds(text: &str, on_host: bool) -> Value {
    plain(serde_json::from_str(text).expect("JSON"), on_host)
}

fn asked(container_path: &str, host_path: &str) -> Asked {
    Asked {
        container_path: container_path.to_owned(),
        host_path: format!("/pod/{host_path}"),
        ..Asked::default()
    }
}

fn strings(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

/// What the agent asks of every container that is not privileged.
fn paths(config: &mut ContainerConfig) {
    config.security.masked_paths = strings(
        "/proc/asound /proc/acpi /proc/interrupts /proc/kcore /proc/keys /proc/latency_stats \
         /proc/timer_list /proc/timer_stats /proc/sched_debug /proc/scsi /sys/firmware \
         /sys/devices/virtual/powercap",
    );
    config.security.readonly_paths =
        strings("/proc/bus /proc/fs /proc/irq /proc/sys /proc/sysrq-trigger");
}

fn sleeping() -> ContainerConfig {
    ContainerConfig { command: strings("sleep 1000"), ..ContainerConfig::default() }
}

#[test]
fn a_container_with_limits_a_user_and_volumes_is_as_containerd_has_it() {
    let mut config = sleeping();
    paths(&mut config);
    config.envs = vec![("PATH".into(), "/bin".into()), ("A".into(), "b".into())];
    config.resources = Resources {
        cpu_period: 100_000,
        cpu_quota: 50_000,
        cpu_shares: 512,
        memory_limit: 64 << 20,
        oom_score_adj: 998,
        ..Resources::default()
    };
    config.mounts = vec![
        Asked { readonly: true, ..asked("/data/e", "volumes/kubernetes.io~empty-dir/e") },
        Asked {
            propagation: Propagation::HostToContainer,
            ..asked("/d", "volumes/kubernetes.io~empty-dir/t")
        },
        asked("/etc/hosts", "etc-hosts"),
        asked("/dev/termination-log", "containers/a/f6808fec"),
    ];
    let security = &mut config.security;
    security.user = AskedUser { uid: Some(1_000), gid: Some(1_001), ..AskedUser::default() };
    security.add_capabilities = strings("NET_ADMIN");
    security.drop_capabilities = strings("CHOWN");
    security.no_new_privs = true;
    security.seccomp = Profile::RuntimeDefault;
    let host = host(&config, "vm", &[77, 88, 1_001]);
    let sandbox = sandbox(Network::Node, "/kubepods/burstable/pod1");
    let golden = include_str!("../../../../tests/golden/oci/limited.json");
    assert_eq!(plain(written(&sandbox, &config, &host), true), containerds(golden, true));
}

#[test]
fn a_privileged_container_is_as_containerd_has_it() {
    let mut config = sleeping();
    // Its own lists do not count.
    paths(&mut config);
    config.security.privileged = true;
    config.security.readonly_rootfs = true;
    config.security.seccomp = Profile::RuntimeDefault;
    config.resources = Resources {
        cpu_period: 100_000,
        cpu_shares: 2,
        oom_score_adj: 999,
        ..Resources::default()
    };
    config.mounts = vec![
        asked("/etc/hosts", "etc-hosts"),
        asked("/dev/termination-log", "containers/p/a79c53df"),
    ];
    let mut host = host(&config, "vm", &[0, 77, 88]);
    let mut sandbox = sandbox(Network::Node, "/kubepods/burstable/pod1");
    let refused = bundle(&sandbox, &container(config.clone()), &image(), &host).expect_err("no");
    assert!(refused.to_string().starts_with("privileged: got a privileged container"));
    sandbox.config.security.privileged = true;
    let golden = include_str!("../../../../tests/golden/oci/privileged.json");
    assert_eq!(plain(written(&sandbox, &config, &host), true), containerds(golden, true));
    host.devices = vec![Device {
        path: "/dev/kmsg".to_owned(),
        kind: "c",
        major: 1,
        minor: 11,
        file_mode: 0o644,
        uid: 0,
        gid: 0,
        access: None,
    }];
    let spec = written(&sandbox, &config, &host);
    let device = json!({"path": "/dev/kmsg", "type": "c", "major": 1, "minor": 11,
                        "fileMode": 0o644, "uid": 0, "gid": 0});
    assert_eq!(spec["linux"]["devices"], json!([device]));
}

#[test]
fn a_container_with_a_terminal_is_as_containerd_has_it() {
    let mut config = sleeping();
    paths(&mut config);
    config.terminal = Terminal { stdin: true, stdin_once: false, tty: true };
    config.working_dir = "/not/there".to_owned();
    config.resources = Resources {
        cpu_period: 100_000,
        cpu_shares: 2,
        oom_score_adj: 1_000,
        ..Resources::default()
    };
    config.mounts = vec![
        asked("/etc/hosts", "etc-hosts"),
        asked("/dev/termination-log", "containers/a/96d90e0e"),
    ];
    let host = host(&config, "net-rtc", &[0]);
    let sandbox = sandbox(Network::Pod, "/kubepods/besteffort/pod1");
    let golden = include_str!("../../../../tests/golden/oci/terminal.json");
    assert_eq!(plain(written(&sandbox, &config, &host), false), containerds(golden, false));
}

#[test]
fn the_command_is_put_together_of_the_pods_and_the_images() {
    let image = ImageConfig {
        entrypoint: vec!["entry".into()],
        cmd: vec!["x".into(), "y".into()],
        ..ImageConfig::default()
    };
    for (command, given, expected) in
        [("", "", "entry x y"), ("", "a", "entry a"), ("run", "", "run"), ("run", "a b", "run a b")]
    {
        let config = ContainerConfig {
            command: strings(command),
            args: strings(given),
            ..ContainerConfig::default()
        };
        let found = args(&config, &image).expect("there is one").join(" ");
        assert_eq!(found, expected, "{command:?} {given:?}");
    }
    let none = args(&ContainerConfig::default(), &ImageConfig::default()).expect_err("nothing");
    assert_eq!(none.to_string(), "command: no command specified");
}

#[test]
fn the_last_variable_of_a_name_counts_at_the_place_of_the_first() {
    let image = ImageConfig {
        env: vec!["B=1".into(), "HOSTNAME=other".into(), "C=".into()],
        ..ImageConfig::default()
    };
    let envs = vec![("C".to_owned(), "a=b".to_owned()), ("PATH".to_owned(), "/x".to_owned())];
    let config = ContainerConfig { envs, ..ContainerConfig::default() };
    let found = env(&config, &image, "pod");
    assert_eq!(found.join(" "), "PATH=/x HOSTNAME=other B=1 C=a=b");
    assert_eq!(env(&sleeping(), &ImageConfig::default(), "pod")[0], PATH);
}

#[test]
fn what_a_pod_mounts_itself_takes_the_place_of_the_defaults() {
    let mut config = sleeping();
    config.security.readonly_rootfs = true;
    config.mounts = ["/dev/shm/", "/a/b", "/a", "/sys//fs/./cgroup", "/etc/hostname", "/vol"]
        .map(|path| asked(path, "x"))
        .into();
    let mut host = host(&config, "vm", &[]);
    host.volumes = vec![("/vol".into(), "/none".into()), ("/v/w/".into(), "/data/0".into())];
    let mut record = sandbox(Network::Pod, "");
    record.config.namespaces.ipc = IpcNamespace::Node;
    let spec = written(&record, &config, &host);
    let mounts = spec["mounts"].as_array().expect("a list");
    let found: Vec<_> = mounts
        .iter()
        .map(|one| format!("{}={}", one["destination"], one["source"]).replace('"', ""))
        .collect();
    assert_eq!(
        found.join(" "),
        "/proc=proc /dev=tmpfs /dev/pts=devpts /dev/mqueue=mqueue /sys=sysfs /a=/pod/x /vol=/pod/x \
         /dev/shm=/pod/x /a/b=/pod/x /etc/hostname=/pod/x /v/w=/data/0 /etc/hosts=/sb/hosts \
         /etc/resolv.conf=/sb/resolv.conf /sys/fs/cgroup=/pod/x"
    );
    let hosts = mounts.iter().find(|one| one["destination"] == "/etc/hosts").expect("mounted");
    assert_eq!(hosts["options"], json!(["rbind", "rprivate", "ro"]), "as the root is");
    config.mounts.clear();
    host.sources.clear();
    let spec = written(&record, &config, &host);
    let shm =
        spec["mounts"].as_array().expect("a list").iter().find(|m| m["destination"] == "/dev/shm");
    assert_eq!(shm.expect("mounted")["source"], "/dev/shm", "the host's, with its namespace");
    for path in ["a", "/", "/a/../b", "", "/."] {
        config.mounts = vec![asked(path, "x")];
        host.sources = vec!["/x".to_owned()];
        let refused = bundle(&record, &container(config.clone()), &image(), &host);
        let why = refused.expect_err("refused").to_string();
        assert!(why.starts_with("container_path: got "), "{why}");
    }
}

#[test]
fn namespaces_are_those_of_the_sandbox_or_of_the_machine() {
    let kinds = |spec: &Value| {
        let all = spec["linux"]["namespaces"].as_array().expect("a list").iter();
        let one = |one: &Value| match one["path"].as_str() {
            Some(path) => format!("{}={path}", one["type"].as_str().expect("text")),
            None => one["type"].as_str().expect("text").to_owned(),
        };
        all.map(one).collect::<Vec<_>>().join(" ")
    };
    let config = sleeping();
    let mut host = host(&config, "vm", &[]);
    let pod = written(&sandbox(Network::Pod, ""), &config, &host);
    assert_eq!(kinds(&pod), "mount pid ipc=/sb/ipc network=/sb/net uts=/sb/uts");
    assert_eq!(pod["linux"]["cgroupsPath"], "/edged/ID");
    let mut node = sandbox(Network::Node, "");
    node.config.namespaces.ipc = IpcNamespace::Node;
    let mut shared = config.clone();
    shared.namespaces.pid = PidNamespace::Node;
    host.limits.cgroup2 = true;
    assert_eq!(kinds(&written(&node, &shared, &host)), "mount cgroup");
    shared.security.privileged = true;
    node.config.security.privileged = true;
    assert_eq!(kinds(&written(&node, &shared, &host)), "mount");
    shared.namespaces.pid = PidNamespace::Target(ContainerId("c".into()));
    let refused = bundle(&node, &container(shared.clone()), &image(), &host).expect_err("nobody");
    assert_eq!(refused.to_string(), "pid: there is no such process namespace");
    host.pid_namespace = Some("/proc/7/ns/pid".to_owned());
    assert_eq!(kinds(&written(&node, &shared, &host)), "mount pid=/proc/7/ns/pid");
}

#[test]
fn what_the_machine_cannot_limit_is_left_out_or_refused() {
    let mut config = sleeping();
    config.resources = Resources {
        memory_limit: 5,
        memory_swap_limit: 9,
        hugepages: vec![("2MB".to_owned(), 7)],
        oom_score_adj: -999,
        ..Resources::default()
    };
    let mut host = host(&config, "vm", &[]);
    let record = sandbox(Network::Pod, "");
    let spec = written(&record, &config, &host);
    assert_eq!(spec["linux"]["resources"]["memory"], json!({"limit": 5, "swap": 9}));
    let huge = json!([{"pageSize": "2MB", "limit": 7}]);
    assert_eq!(spec["linux"]["resources"]["hugepageLimits"], huge);
    assert_eq!(spec["process"]["oomScoreAdj"], -999);
    (host.limits.swap, host.limits.hugetlb, host.oom_score_adj_min) = (false, false, 0);
    let spec = written(&record, &config, &host);
    assert_eq!(spec["linux"]["resources"]["memory"], json!({"limit": 5}));
    assert!(spec["linux"]["resources"].get("hugepageLimits").is_none());
    assert_eq!(spec["process"]["oomScoreAdj"], 0);
    config.resources.unified = [("memory.oom.group".to_owned(), "1".to_owned())].into();
    let refused = bundle(&record, &container(config.clone()), &image(), &host).expect_err("v1");
    assert!(refused.to_string().starts_with("unified: got files of cgroup v2"), "{refused}");
    host.limits.cgroup2 = true;
    let spec = written(&record, &config, &host);
    assert_eq!(spec["linux"]["resources"]["unified"], json!({"memory.oom.group": "1"}));
}

#[test]
fn profiles_of_the_operator_go_in_as_they_are() {
    let mut config = sleeping();
    config.security.seccomp = Profile::Localhost("/etc/p.json".to_owned());
    config.security.selinux = Some(Selinux {
        user: "u".to_owned(),
        role: "r".to_owned(),
        kind: "t".to_owned(),
        level: "s0".to_owned(),
    });
    let mut host = host(&config, "vm", &[]);
    host.apparmor = Some("web".to_owned());
    let mut record = sandbox(Network::Pod, "");
    assert!(bundle(&record, &container(config.clone()), &image(), &host).is_err());
    let text = r#"{"defaultAction":"SCMP_ACT_LOG","later":[1]}"#;
    host.seccomp = Some(RawValue::from_string(text.to_owned()).expect("JSON"));
    let spec = written(&record, &config, &host);
    assert_eq!(spec["linux"]["seccomp"], json!({"defaultAction": "SCMP_ACT_LOG", "later": [1]}));
    assert_eq!(spec["process"]["apparmorProfile"], "web");
    assert!(spec["process"].get("selinuxLabel").is_none(), "the machine has none");
    host.selinux = true;
    let spec = written(&record, &config, &host);
    assert_eq!(spec["process"]["selinuxLabel"], "u:r:t:s0");
    assert_eq!(spec["linux"]["mountLabel"], "u:r:t:s0");
    assert!(spec.get("annotations").is_none());
    host.seccomp_filter = Some("AAAA".to_owned());
    let spec = written(&record, &config, &host);
    assert_eq!(spec["annotations"], json!({"run.oci.seccomp_bpf_data": "AAAA"}));
    let profile = seccomp_profile(&config.security, &host).expect("fine");
    assert_eq!(profile.as_deref(), Some(text));
    config.security.selinux.as_mut().expect("set").level = String::new();
    let refused = bundle(&record, &container(config.clone()), &image(), &host).expect_err("half");
    assert!(refused.to_string().starts_with("selinux_options: level: got \"\""), "{refused}");
    (config.security.privileged, record.config.security.privileged) = (true, true);
    (host.selinux, host.seccomp_filter) = (false, None);
    let spec = written(&record, &config, &host);
    assert!(spec["linux"].get("seccomp").is_none());
    assert_eq!(seccomp_profile(&config.security, &host), Ok(None));
}

#[test]
fn devices_are_those_that_are_asked_for_with_their_rules() {
    let config = sleeping();
    let mut host = host(&config, "vm", &[]);
    let device = |path: &str, access: Option<&str>| Device {
        path: path.to_owned(),
        kind: "c",
        major: 4,
        minor: 64,
        file_mode: 0o600,
        uid: 0,
        gid: 20,
        access: access.map(Into::into),
    };
    host.devices = vec![device("/dev//serial/", Some("rw")), device("/dev/kmsg", None)];
    let mut record = sandbox(Network::Pod, "");
    let spec = written(&record, &config, &host);
    assert_eq!(spec["linux"]["devices"][0]["path"], "/dev/serial");
    assert_eq!(
        spec["linux"]["resources"]["devices"],
        json!([{"allow": false, "access": "rwm"},
               {"allow": true, "type": "c", "major": 4, "minor": 64, "access": "rw"}])
    );
    record.config.security.privileged = true;
    let mut privileged = config.clone();
    privileged.security.privileged = true;
    let spec = written(&record, &privileged, &host);
    let all = json!([{"allow": true, "access": "rwm"}]);
    assert_eq!(spec["linux"]["resources"]["devices"], all);
    host.devices = vec![device("../x", Some("r"))];
    let refused = bundle(&record, &container(config), &image(), &host).expect_err("no place");
    assert!(refused.to_string().starts_with("container_path: got \"../x\""), "{refused}");
}

#[test]
fn an_update_has_no_devices_and_no_huge_pages() {
    let resources = Resources {
        cpu_shares: 512,
        memory_limit: 5,
        cpuset_cpus: "0-1".to_owned(),
        hugepages: vec![("2MB".to_owned(), 7)],
        ..Resources::default()
    };
    let limits = Limits { cgroup2: true, swap: true, hugetlb: true };
    let text = |limits| {
        let text = update(&resources, limits).expect("fine");
        serde_json::from_slice::<Value>(&text).expect("JSON")
    };
    let expected =
        json!({"memory": {"limit": 5, "swap": 5}, "cpu": {"shares": 512, "cpus": "0-1"}});
    assert_eq!(text(limits), expected);
    assert_eq!(text(Limits { swap: false, ..limits })["memory"], json!({"limit": 5}));
    let files = [("cpu.idle".to_owned(), "1".to_owned())].into();
    let unified = Resources { unified: files, ..resources.clone() };
    assert!(update(&unified, Limits::default()).is_err(), "v1 has no such files");
}

#[test]
fn mounts_say_how_they_are_mounted() {
    let mut config = sleeping();
    config.mounts = vec![
        Asked { readonly: true, recursive_read_only: true, ..asked("/a", "x") },
        Asked { propagation: Propagation::Bidirectional, ..asked("/b", "x") },
    ];
    let mut host = host(&config, "vm", &[]);
    let record = sandbox(Network::Pod, "");
    let spec = written(&record, &config, &host);
    let options = |at: &str| {
        let all = spec["mounts"].as_array().expect("a list");
        all.iter().find(|one| one["destination"] == at).expect("mounted")["options"].clone()
    };
    assert_eq!(options("/a"), json!(["rbind", "rprivate", "rro"]));
    assert_eq!(options("/b"), json!(["rbind", "rshared", "rw"]));
    assert_eq!(spec["linux"]["rootfsPropagation"], "rshared");
    config.mounts[0].image = Some(("a".into(), "b".into()));
    host.sources = vec![String::new(), String::new()];
    let refused = bundle(&record, &container(config), &image(), &host).expect_err("an image");
    let why = refused.to_string();
    assert_eq!(why, "/a: mounts: volumes of images are not supported by this runtime");
}

#[test]
fn a_command_gets_the_containers_own_process() {
    let config = br#"{"process":{"terminal":true,"args":["a"],"cwd":"/c","x":[1]},"root":{}}"#;
    let process = exec_process(config, &strings("ls -l"), false).expect("it has a process");
    let process: Value = serde_json::from_slice(&process).expect("JSON");
    assert_eq!(process, json!({"terminal": false, "args": ["ls", "-l"], "cwd": "/c", "x": [1]}));
    for bad in [&b""[..], b"{}", b"[]", b"{\"process\":[]}", b"{\"process\":{}"] {
        assert_eq!(exec_process(bad, &[], false), None, "{bad:?}");
    }
}

#[test]
fn a_pod_with_users_of_its_own_joins_their_namespace() {
    let mut config = ContainerConfig { command: vec!["a".to_owned()], ..Default::default() };
    let sandbox = sandbox(Network::Pod, "/kubepods");
    let plain = written(&sandbox, &config, &host(&config, "h", &[]));
    assert!(plain["linux"].get("uidMappings").is_none(), "{plain}");
    config.namespaces.users = Some(UserRange { first: 65_536, count: 1_000 });
    let own = written(&sandbox, &config, &host(&config, "h", &[]));
    let mapping = serde_json::json!([{"containerID": 0, "hostID": 65_536, "size": 1_000}]);
    assert_eq!(own["linux"]["uidMappings"], mapping);
    assert_eq!(own["linux"]["gidMappings"], mapping);
    let namespaces = own["linux"]["namespaces"].as_array().expect("a list");
    assert!(namespaces.contains(&serde_json::json!({"type": "user", "path": "/sb/user"})));
}
