//! Every key, its default, and invalid values.

use super::super::Pulls;
use super::*;
use crate::limits::PULL_CALLS_MAX;
#[cfg(feature = "node-jobs")]
use crate::limits::UPGRADE_REPOSITORIES_MAX;
use crate::model::cgroup;
use crate::model::cri::CgroupDriver;
use crate::model::endpoint::{self, RuntimeEndpoint};

fn read(text: &str) -> Result<(Config, Vec<String>), Refusal> {
    let mut config = Config::default();
    overlay(&mut config, text.as_bytes()).map(|unused| (config, unused))
}

/// A file with this line under `modules.edged`, in line 2.
fn edged(line: &str) -> String {
    format!("modules: {{edged: {{\n {line}}}}}\n")
}

fn tailored(line: &str) -> String {
    edged(&format!("tailoredKubeletConfig: {{{line}}}"))
}

#[test]
fn the_shipped_file_names_every_key_and_its_default() {
    let text = include_str!("../../../config/edgecore.yaml");
    assert_eq!(read(text), Ok((Config::default(), Vec::new())));
    let own: &[&Table] = &[&EDGED, &TAILORED, &CRASH_LOOP];
    let more =
        [cloud::TABLES, builtin::TABLES, service_bus::TABLES, services::TABLES, watchdog::TABLES];
    let tables = [&[own][..], &more].concat().concat();
    for (key, _) in tables.iter().flat_map(|table| table.all()) {
        let start = format!("{key}:");
        let shown = text.lines().any(|line| line.trim_start().starts_with(&start));
        assert_eq!(shown, !ELSEWHERE.contains(key), "{key}");
    }
}

/// Keys of older files, which have another name or location now; and those that edged lacks.
const ELSEWHERE: [&str; 3] = ["remoteRuntimeEndpoint", "metaServer", "quic"];

#[test]
fn every_setting_is_taken() {
    let text = "\
apiVersion: edgecore.config.kubeedge.io/v1alpha2
kind: EdgeCore
edgecoreVersion: v1.20.0
modules:
  edged:
    enable: true
    hostnameOverride: Edge-1
    nodeIP: 10.0.0.7
    rootDirectory: /data/kubelet
    tailoredKubeletConfig:
      address: 127.0.0.2
      containerRuntimeEndpoint: unix:///run/crio/crio.sock
      crashLoopBackOff: {maxContainerRestartPeriod: 1m30s}
      maxPods: 12
      podLogsDir: /data/pods/
      readOnlyPort: 0
      serializeImagePulls: false
      maxParallelImagePulls: 3
      registryPullQPS: 0
      registryBurst: 20
      staticPodPath: /data/manifests
";
    let want = Config {
        node_name: "edge-1".to_owned(),
        node_ip: Some([10, 0, 0, 7].into()),
        listen: "127.0.0.2:0".parse().expect("an address"),
        runtime: RuntimeEndpoint::grpc("/run/crio/crio.sock"),
        runtime_is_named: true,
        crash_backoff_max_ms: 90_000,
        pods_max: 12,
        root: "/data/kubelet".to_owned(),
        pod_logs: "/data/pods".to_owned(),
        pulls: Pulls { serialize: false, parallel_max: Some(3), per_second: 0, burst: 20 },
        manifests: "/data/manifests".to_owned(),
        ..Config::default()
    };
    assert_eq!(read(text), Ok((want, Vec::new())));
    let old =
        edged("remoteRuntimeEndpoint: unix:///run/old.sock, hostnameOverride: '', nodeIP: ''");
    let want = Config {
        runtime: RuntimeEndpoint::grpc("/run/old.sock"),
        runtime_is_named: true,
        ..Config::default()
    };
    assert_eq!(read(&old), Ok((want, Vec::new())));
}

#[test]
fn the_built_in_runtime_is_named_by_its_kind_or_its_socket_in_any_order() {
    let runtime = |text: &str| {
        read(text).map(|(config, unused)| {
            assert!(config.runtime_is_named, "{text}");
            (config.runtime, unused)
        })
    };
    for unnamed in ["containerRuntime: remote", "remoteRuntimeEndpoint: null"] {
        assert!(!read(&edged(unnamed)).expect(unnamed).0.runtime_is_named, "{unnamed}");
    }
    let other = "tailoredKubeletConfig: {containerRuntimeEndpoint: unix:///run/c.sock}";
    let own = "tailoredKubeletConfig: {containerRuntimeEndpoint: ttrpc:///a/sock}";
    let builtin = RuntimeEndpoint::ttrpc(endpoint::BUILTIN.to_owned());
    for (keys, expected) in [
        ("containerRuntime: builtin".to_owned(), builtin.clone()),
        (format!("containerRuntime: builtin, {other}"), builtin.clone()),
        (format!("{other}, containerRuntime: builtin"), builtin.clone()),
        ("remoteRuntimeEndpoint: builtin".to_owned(), builtin),
        (own.to_owned(), RuntimeEndpoint::ttrpc("/a/sock".to_owned())),
        (format!("containerRuntime: builtin, {own}"), RuntimeEndpoint::ttrpc("/a/sock".to_owned())),
        (format!("{own}, containerRuntime: builtin"), RuntimeEndpoint::ttrpc("/a/sock".to_owned())),
        (format!("containerRuntime: remote, {other}"), Some(RuntimeEndpoint::grpc("/run/c.sock"))),
    ] {
        match (runtime(&edged(&keys)), expected) {
            (got, Some(expected)) => assert_eq!(got, Ok((expected, Vec::new())), "{keys}"),
            (Err(why), None) => assert!(why.why.ends_with("not built in: runtime"), "{why:?}"),
            (got, None) => panic!("{keys}: {got:?}"),
        }
    }
}

#[test]
fn keys_without_effect_are_named_and_nulls_are_not() {
    let text = "modules:\n  eventBus: {mqttQOS: 0}\n  serviceBus: {port: 9060}\n  edged:\n    \
                certDirectory: /var/lib/certs\n    nodeLabels: null\n    cniConfDir: ''\n    \
                tailoredKubeletConfig: {oomScoreAdj: -999, featureGates: {}}\n";
    let (config, unused) = read(text).expect(text);
    assert_eq!(config, Config::default());
    assert_eq!(
        unused,
        [
            "modules.edged.certDirectory",
            "modules.edged.tailoredKubeletConfig.oomScoreAdj",
            #[cfg(not(feature = "devices"))]
            "modules.eventBus",
        ]
    );
    assert_eq!(read("# nothing\n"), Ok((Config::default(), Vec::new())));
}

#[test]
fn what_is_wrong_is_named_with_its_place() {
    for (text, want) in [
        ("kind: EdgeCor\n".to_owned(), ":1:7: kind: got \"EdgeCor\", expected EdgeCore"),
        (
            "apiVersion: edgecore.config.kubeedge.io/v1alpha1\n".to_owned(),
            ":1:13: apiVersion: got \"edgecore.config.kubeedge.io/v1alpha1\", expected \
             edgecore.config.kubeedge.io/v1alpha2",
        ),
        ("module: {}\n".to_owned(), ":1:1: module: got an unknown key"),
        ("modules: [edged]\n".to_owned(), ":1:10: modules: got a list, expected a map"),
        ("a: b\n---\nc: d\n".to_owned(), ":3:1: got a second document, expected one"),
        (edged("enable: false"), ":2:10: modules.edged.enable: got false, expected true"),
        (edged("nodeIp: 10.0.0.7"), ":2:2: modules.edged.nodeIp: got an unknown key"),
        (edged("nodeIP: 10.0.0"), "modules.edged.nodeIP: got \"10.0.0\", expected an IP"),
        (edged("hostnameOverride: a_b"), "hostnameOverride: got \"a_b\", expected a DNS"),
        (edged("hostnameOverride: 5"), "hostnameOverride: got 5, expected text"),
        (tailored("address: 0.0.0.0"), "address: got 0.0.0.0, expected a loopback address"),
        (tailored("readOnlyPort: 65536"), "got 65536, expected a whole number from 0 to 65535"),
        (tailored("cgroupDriver: 5"), "Config.cgroupDriver: got 5, expected text"),
        (tailored("failSwapOn: 'no'"), "failSwapOn: got \"no\", expected true or false"),
        (tailored("logging: [x]"), "Config.logging: got a list, expected a map"),
        (
            "modules: {eventBus: {enable: false, mqttMode: two}}\n".to_owned(),
            "modules.eventBus.mqttMode: got \"two\", expected a",
        ),
        (
            "modules: {eventBus: {enable: false, mqtt: 2}}\n".to_owned(),
            "modules.eventBus.mqtt: got an unknown key",
        ),
        (tailored("maxPods: 0"), "maxPods: got 0, expected a whole number from 1 to 512"),
        (tailored("maxPods: many"), "maxPods: got \"many\", expected a whole number"),
        (tailored("podLogsDir: /"), "podLogsDir: got \"/\", expected an absolute path"),
        (tailored("podLogsDir: /a/../b"), "podLogsDir: got \"/a/../b\", expected"),
        (tailored("staticPodPath: ''"), "staticPodPath: got \"\", expected an absolute path"),
        (
            tailored("containerRuntimeEndpoint: 'npipe:////./pipe'"),
            "got \"npipe:////./pipe\", expected unix:///",
        ),
        (tailored("cgroupDriver: none"), "got \"none\", expected cgroupfs or systemd"),
        (tailored("cgroupRoot: a/b"), "got \"a/b\", expected an absolute path of letters"),
        (tailored("cgroupRoot: /a/../b"), "got \"/a/../b\", expected an absolute path"),
        (tailored("cpuCFSQuotaPeriod: 2s"), "got 2s, expected 1ms to 1s"),
        (tailored("podPidsLimit: -2"), "got -2, expected a whole number from -1 to"),
        (
            tailored("crashLoopBackOff: {maxContainerRestartPeriod: 10}"),
            "crashLoopBackOff.maxContainerRestartPeriod: got 10, expected text",
        ),
        (
            tailored("crashLoopBackOff: {maxContainerRestartPeriod: 10m}"),
            "maxContainerRestartPeriod: got 10m, expected 1s to 300s",
        ),
    ] {
        let got = read(&text).expect_err(&text).to_string();
        assert!(got.contains(want), "{text}\n{got}\n{want}");
    }
}

#[test]
fn pulls_side_by_side_have_a_bound() {
    let key = "serializeImagePulls: false, maxParallelImagePulls";
    let read = |pulls: usize| read(&tailored(&format!("{key}: {pulls}")));
    let (config, _) = read(PULL_CALLS_MAX).expect("as many as may be");
    assert_eq!(config.pulls.parallel_max, Some(PULL_CALLS_MAX));
    let why = read(PULL_CALLS_MAX + 1).expect_err("one more").to_string();
    let expected = format!("expected a whole number from 1 to {PULL_CALLS_MAX}");
    assert!(why.ends_with(&expected), "{why}");
    // Several pulls without a number: the default number.
    let pulls = Pulls { parallel_max: None, ..config.pulls };
    assert_eq!(pulls.parallel(), PULL_CALLS_MAX);
}

#[test]
fn the_pods_cgroups_are_as_the_keys_say() {
    let text = tailored(
        "cgroupsPerQOS: false, cgroupDriver: systemd, cgroupRoot: /a/b-c/, podPidsLimit: 100, \
         cpuCFSQuota: false, cpuCFSQuotaPeriod: 10ms, singleProcessOOMKill: true",
    );
    let mut want = Config::default();
    want.settings.cgroups = cgroup::Settings {
        per_qos: false,
        driver: CgroupDriver::Systemd,
        root: vec!["a".into(), "b-c".into()],
        pids_max: Some(100),
        cpu_quota: false,
        cpu_period_us: 10_000,
        single_oom_kill: true,
    };
    assert_eq!(read(&text), Ok((want, Vec::new())));
    let none = tailored("cgroupRoot: '/', podPidsLimit: -1");
    assert_eq!(read(&none), Ok((Config::default(), Vec::new())));
}

#[cfg(feature = "node-jobs")]
#[test]
fn repositories_of_upgrades_are_names_without_tag_and_digest() {
    let of = |list: &str| {
        let keys = format!("enable: true, upgradeRepositories: {list}");
        read(&format!("modules: {{taskManager: {{{keys}}}}}\n"))
    };
    let (config, unused) = of("[registry.example/edged, edged]").expect("repositories");
    assert!(config.node_jobs && unused.is_empty(), "{unused:?}");
    let expected = ["registry.example/edged".into(), "docker.io/library/edged".into()];
    assert_eq!(config.upgrade_repositories, expected);
    assert!(of(&format!("{:?}", vec!["a"; UPGRADE_REPOSITORIES_MAX])).is_ok());
    let many = format!("{:?}", vec!["a"; UPGRADE_REPOSITORIES_MAX + 1]);
    for (list, expected) in [
        ("all", "got \"all\", expected a list of repositories"),
        ("[r/a:1]", "expected a repository without tag and digest"),
        ("[A B]", "expected a repository: invalid reference format"),
        (&*many, "got 17 repositories, expected 16 at most"),
    ] {
        let why = of(list).expect_err(expected).why;
        assert!(why.contains(expected), "got {why:?}, expected {expected:?}");
    }
}
