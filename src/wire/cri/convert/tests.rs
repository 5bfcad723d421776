//! Replies as runtimes write them, and requests read back with the wire's own structs.

use prost::Message;

use super::super::security::ProfileType;
use std::collections::BTreeMap;

use super::*;
use crate::limits::{COMMAND_OUTPUT_BYTES_MAX, IMAGE_DIGESTS_MAX, PROBE_OUTPUT_BYTES_MAX};
use crate::model::cri::{
    ContainerConfig, ContainerSecurity, Device, Dns, ExecPurpose, IpcNamespace, Mount, Namespaces,
    PidNamespace, PortMapping, Profile, Propagation, Protocol, Resources, SandboxConfig,
    SandboxSecurity, Selinux, Terminal, User,
};
use crate::model::cri::{PodRef, Sandbox};
use crate::model::time::Timestamp;

pub(in crate::wire::cri) fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

pub(in crate::wire::cri) fn sandbox_config() -> SandboxConfig {
    SandboxConfig {
        pod: PodRef { uid: "u".into(), namespace: "ns".into(), name: "web".into() },
        attempt: 2,
        hostname: "web".to_owned(),
        log_directory: "/var/log/pods/ns_web_u".to_owned(),
        port_mappings: vec![PortMapping {
            protocol: Protocol::Udp,
            container_port: 53,
            host_port: 5353,
            host_ip: "127.0.0.1".to_owned(),
        }],
        labels: map(&[("app", "web")]),
        annotations: map(&[("kubernetes.io/config.source", "file")]),
        dns: Some(Dns {
            servers: vec!["169.254.96.16".to_owned()],
            searches: vec!["ns.svc.cluster.local".to_owned()],
            options: vec!["ndots:5".to_owned()],
        }),
        runtime_handler: "kata".into(),
        cgroup_parent: "/kubepods/podu".to_owned(),
        sysctls: map(&[("kernel.sem", "1 2 3 4")]),
        namespaces: Namespaces { network: Network::Node, ..Namespaces::default() },
        security: SandboxSecurity {
            privileged: true,
            user: User { uid: Some(1), gid: Some(2), groups: vec![3], ..User::default() },
            selinux: Some(Selinux { kind: "spc_t".to_owned(), ..Selinux::default() }),
        },
        resources: Resources { cpu_shares: 2, memory_limit: 64 << 20, ..Resources::default() },
        overhead: Resources::default(),
    }
}

pub(in crate::wire::cri) fn container_config() -> ContainerConfig {
    ContainerConfig {
        name: "app".into(),
        attempt: 3,
        image_ref: "sha256:1".into(),
        image: "busybox:1".into(),
        command: vec!["sh".to_owned()],
        args: vec!["-c".to_owned()],
        working_dir: "/w".to_owned(),
        mounts: vec![
            Mount {
                container_path: "/data".to_owned(),
                host_path: "/srv/data".to_owned(),
                readonly: true,
                recursive_read_only: true,
                propagation: Propagation::HostToContainer,
                users: None,
                image: None,
            },
            Mount {
                container_path: "/i".to_owned(),
                image: Some(("sha256:2".into(), "tools:1".into())),
                ..Mount::default()
            },
        ],
        envs: vec![("B".to_owned(), "1".to_owned()), ("A".to_owned(), "2".to_owned())],
        labels: map(&[("io.kubernetes.container.name", "app")]),
        annotations: BTreeMap::new(),
        log_path: "app/3.log".to_owned(),
        terminal: Terminal { stdin: true, stdin_once: false, tty: true },
        resources: Resources {
            oom_score_adj: -997,
            cpu_quota: 5_000,
            cpuset_cpus: "0-1".to_owned(),
            cpuset_mems: "0".to_owned(),
            ..Resources::default()
        },
        namespaces: Namespaces {
            network: Network::Pod,
            pid: PidNamespace::Target(ContainerId("c0".into())),
            ipc: IpcNamespace::Node,
            users: None,
        },
        security: ContainerSecurity {
            user: User { name: "web".into(), gid: Some(5), strict_groups: true, ..User::default() },
            add_capabilities: vec!["NET_ADMIN".to_owned()],
            drop_capabilities: vec!["ALL".to_owned()],
            readonly_rootfs: true,
            no_new_privs: true,
            masked_paths: vec!["/proc/kcore".to_owned()],
            readonly_paths: vec!["/proc/sys".to_owned()],
            seccomp: Profile::Localhost("/k/seccomp/p.json".to_owned()),
            apparmor: Some(Profile::Localhost("p".to_owned())),
            ..ContainerSecurity::default()
        },
        devices: vec![Device {
            container_path: "/dev/serial".to_owned(),
            host_path: "/dev/ttyS0".to_owned(),
            permissions: "rw".into(),
        }],
    }
}

fn read<M: Message + Default>((_, bytes): (Rpc, Vec<u8>)) -> M {
    M::decode(bytes.as_slice()).expect("our own message")
}

#[test]
fn every_request_has_the_rpc_of_its_operation() {
    let sandbox_config = Box::new(sandbox_config());
    let (sandbox, container) = (SandboxId("s".into()), ContainerId("c".into()));
    let requests = [
        Request::Version,
        Request::Status,
        Request::RuntimeConfig,
        Request::ListPodSandbox,
        Request::ListContainers,
        Request::GetContainerEvents,
        Request::RunPodSandbox(sandbox_config.clone()),
        Request::StopPodSandbox(sandbox.clone()),
        Request::RemovePodSandbox(sandbox.clone()),
        Request::PodSandboxStatus(sandbox.clone()),
        Request::CreateContainer {
            sandbox,
            config: Box::new(container_config()),
            sandbox_config: sandbox_config.clone(),
        },
        Request::StartContainer(container.clone()),
        Request::StopContainer { id: container.clone(), grace_s: 5 },
        Request::RemoveContainer(container.clone()),
        Request::ContainerStatus(container),
        Request::ImageStatus("busybox:1".into()),
        Request::PullImage { image: "busybox:1".into(), auth: None, sandbox_config },
    ];
    for request in requests {
        let (rpc, _) = encode(&request);
        let operation = request.operation().replace('_', "");
        assert_eq!(rpc.name().to_lowercase(), operation);
        if request != Request::GetContainerEvents {
            // An empty message is a valid reply to some, an unusable one to the others; never a
            // panic.
            let _ = decode(rpc, &[]);
        }
    }
}

#[test]
fn a_sandbox_is_asked_for_as_the_kubelet_does() {
    let encoded = encode(&Request::RunPodSandbox(Box::new(sandbox_config())));
    let request: s::RunPodSandboxRequest = read(encoded);
    assert_eq!(request.runtime_handler, "kata");
    let config = request.config.expect("a config");
    let metadata = config.metadata.expect("metadata");
    assert_eq!((&*metadata.name, &*metadata.uid, &*metadata.namespace), ("web", "u", "ns"));
    assert_eq!(metadata.attempt, 2);
    let port = &config.port_mappings[0];
    assert_eq!(port.protocol(), s::Protocol::Udp);
    assert_eq!((port.container_port, port.host_port, &*port.host_ip), (53, 5353, "127.0.0.1"));
    let linux = config.linux.expect("linux");
    let context = linux.security_context.expect("a context");
    let options = context.namespace_options.expect("options");
    assert_eq!(options.network(), NamespaceMode::Node);
    assert_eq!(options.pid(), NamespaceMode::Container);
    assert_eq!(options.ipc(), NamespaceMode::Pod);
    let seccomp = context.seccomp.expect("seccomp");
    assert_eq!(seccomp.profile_type(), ProfileType::RuntimeDefault);
    assert!(context.privileged);
    let ids = [context.run_as_user, context.run_as_group].map(|id| id.expect("an id").value);
    assert_eq!((ids, &*context.supplemental_groups), ([1, 2], &[3][..]));
    assert_eq!(context.selinux_options.expect("options").r#type, "spc_t");
    assert_eq!(linux.cgroup_parent, "/kubepods/podu");
    assert_eq!(linux.sysctls, map(&[("kernel.sem", "1 2 3 4")]));
    assert_eq!(linux.overhead, None);
    let dns = config.dns_config.expect("a configuration");
    assert_eq!((&*dns.servers[0], &*dns.options[0]), ("169.254.96.16", "ndots:5"));
    assert_eq!(linux.resources.expect("resources").memory_limit_in_bytes, 64 << 20);
}

#[test]
fn a_container_is_asked_for_as_the_kubelet_does() {
    let encoded = encode(&Request::CreateContainer {
        sandbox: SandboxId("s".into()),
        config: Box::new(container_config()),
        sandbox_config: Box::new(sandbox_config()),
    });
    let request: c::CreateContainerRequest = read(encoded);
    assert_eq!(request.pod_sandbox_id, "s");
    assert_eq!(request.sandbox_config, Some(config::sandbox(&sandbox_config())));
    let config = request.config.expect("a config");
    let image = config.image.expect("an image");
    assert_eq!((&*image.image, &*image.user_specified_image), ("sha256:1", "busybox:1"));
    let envs: Vec<_> = config.envs.iter().map(|env| (&*env.key, &*env.value)).collect();
    assert_eq!(envs, [("B", "1"), ("A", "2")], "in the order of the spec");
    let (data, tools) = (&config.mounts[0], &config.mounts[1]);
    assert_eq!((&*data.container_path, &*data.host_path), ("/data", "/srv/data"));
    assert!(data.readonly && data.recursive_read_only && data.image.is_none());
    assert_eq!(data.propagation(), c::MountPropagation::HostToContainer);
    let told = tools.image.as_ref().map(|image| (&*image.image, &*image.user_specified_image));
    assert_eq!(told, Some(("sha256:2", "tools:1")));
    assert!(!tools.readonly && tools.host_path.is_empty());
    assert!(config.stdin && config.tty && !config.stdin_once);
    let linux = config.linux.expect("linux");
    let resources = linux.resources.expect("resources");
    assert_eq!((resources.oom_score_adj, resources.cpu_quota), (-997, 5_000));
    let context = linux.security_context.expect("a context");
    let options = context.namespace_options.expect("options");
    assert_eq!(options.network(), NamespaceMode::Pod);
    assert_eq!((options.pid(), &*options.target_id), (NamespaceMode::Target, "c0"));
    assert_eq!(options.ipc(), NamespaceMode::Node);
    let seccomp = context.seccomp.expect("seccomp");
    assert_eq!(seccomp.profile_type(), ProfileType::Localhost);
    assert_eq!(seccomp.localhost_ref, "/k/seccomp/p.json");
    assert_eq!(
        (&*context.masked_paths[0], &*context.readonly_paths[0]),
        ("/proc/kcore", "/proc/sys")
    );
    assert_eq!((&*context.run_as_username, context.run_as_user), ("web", None));
    assert_eq!(context.run_as_group.map(|id| id.value), Some(5));
    assert_eq!(context.supplemental_groups_policy, 1);
    assert!(context.readonly_rootfs && context.no_new_privs && !context.privileged);
    assert_eq!(context.apparmor_profile, "localhost/p");
    assert_eq!(context.apparmor.expect("a profile").localhost_ref, "p");
    let capabilities = context.capabilities.expect("capabilities");
    assert_eq!(capabilities.add_capabilities, ["NET_ADMIN"]);
    assert_eq!(capabilities.drop_capabilities, ["ALL"]);
}

#[test]
fn a_command_is_asked_for_with_its_timeout_and_its_outputs_are_cut_together() {
    let request = Request::ExecSync {
        id: ContainerId("c1".into()),
        command: vec!["cat".to_owned(), "/x".to_owned()],
        timeout_s: 3,
        purpose: ExecPurpose::Probe,
    };
    let (rpc, bytes) = encode(&request);
    assert_eq!(rpc, Rpc::ExecSync);
    let sent = c::ExecSyncRequest::decode(&*bytes).expect("our own");
    assert_eq!((&*sent.container_id, sent.cmd.join(" "), sent.timeout), ("c1", "cat /x".into(), 3));
    let reply = |stdout: Vec<u8>, stderr: &[u8]| {
        let reply = c::ExecSyncResponse { stdout, stderr: stderr.to_vec(), exit_code: 2 };
        match decode(Rpc::ExecSync, &reply.encode_to_vec()) {
            Ok(Reply::Exec(exec)) => exec,
            other => panic!("{other:?}"),
        }
    };
    let short = reply(b"out ".to_vec(), b"err \xff");
    assert_eq!((short.exit_code, &*short.output), (2, "out err \u{fffd}"));
    assert_eq!((short.errors_at, short.is_cut), (4, false));
    assert_eq!(short.beginning(9), "out err ", "no half of a character");
    let long = reply(vec![b'a'; COMMAND_OUTPUT_BYTES_MAX - 1], b"bc");
    assert_eq!(long.output.len(), COMMAND_OUTPUT_BYTES_MAX);
    assert!(long.output.ends_with("abc"), "errors are short, and keep their part");
    assert_eq!((long.errors_at, long.is_cut), (COMMAND_OUTPUT_BYTES_MAX - 2, true));
    assert_eq!(long.beginning(PROBE_OUTPUT_BYTES_MAX).len(), PROBE_OUTPUT_BYTES_MAX);
    let both = reply(vec![b'a'; COMMAND_OUTPUT_BYTES_MAX], &vec![b'e'; COMMAND_OUTPUT_BYTES_MAX]);
    assert_eq!((both.output.len(), both.errors_at), (COMMAND_OUTPUT_BYTES_MAX, 48 << 10));
}

#[test]
fn listed_sandboxes_belong_to_the_pod_of_their_labels_or_to_none() {
    let labels = [
        ("io.kubernetes.pod.uid", "u"),
        ("io.kubernetes.pod.namespace", "ns"),
        ("io.kubernetes.pod.name", "web"),
    ];
    let item = |id: &str, labels: &[(&str, &str)]| s::PodSandbox {
        id: id.to_owned(),
        metadata: Some(s::PodSandboxMetadata { attempt: 4, ..Default::default() }),
        state: 0,
        created_at: 7,
        labels: map(labels),
        annotations: map(&[
            ("kubernetes.io/config.source", "file"),
            ("kubernetes.io/config.seen", "2026-08-06T10:00:00.5Z"),
            ("edged/first-user", "131072"),
        ]),
        runtime_handler: String::new(),
    };
    let items = vec![item("1", &labels), item("2", &labels[1..]), item("3", &[])];
    let bytes = s::ListPodSandboxResponse { items }.encode_to_vec();
    let Ok(Reply::Sandboxes(list)) = decode(Rpc::ListPodSandbox, &bytes) else { panic!("no list") };
    let pod = PodRef { uid: "u".into(), namespace: "ns".into(), name: "web".into() };
    assert_eq!(
        *list[0],
        Sandbox {
            id: SandboxId("1".into()),
            pod: Some(pod),
            attempt: 4,
            ready: true,
            created_at: 7,
            source: Some("file".into()),
            seen_at: Timestamp::parse("2026-08-06T10:00:00Z"),
            first_user: Some(131_072),
        }
    );
    assert_eq!((&list[1].pod, &list[2].pod), (&None, &None));
}

#[test]
fn listed_containers_carry_what_a_later_agent_knows_them_by() {
    let item = c::Container {
        id: "c1".to_owned(),
        pod_sandbox_id: "s1".to_owned(),
        metadata: Some(c::ContainerMetadata { name: "app".to_owned(), attempt: 5 }),
        image: Some(i::ImageSpec { image: "sha256:1".to_owned(), ..Default::default() }),
        state: 2,
        created_at: 9,
        labels: map(&[
            ("io.kubernetes.pod.uid", "u"),
            ("io.kubernetes.pod.namespace", "ns"),
            ("io.kubernetes.pod.name", "web"),
            ("io.kubernetes.container.name", "app"),
        ]),
        annotations: map(&[
            ("io.kubernetes.container.hash", "abcd"),
            ("io.kubernetes.pod.terminationGracePeriod", "30"),
            ("io.kubernetes.container.ports", "[]"),
            ("io.kubernetes.container.preStopHandler", "{}"),
        ]),
        ..Default::default()
    };
    let foreign = c::Container { id: "c2".to_owned(), state: 99, ..Default::default() };
    let bytes = c::ListContainersResponse { containers: vec![item, foreign] }.encode_to_vec();
    let Ok(Reply::Containers(list)) = decode(Rpc::ListContainers, &bytes) else {
        panic!("no list")
    };
    let one = &list[0];
    assert_eq!((&*one.id.0, &*one.sandbox.0, &*one.name), ("c1", "s1", "app"));
    assert_eq!((one.attempt, one.state), (5, ContainerState::Exited));
    assert_eq!((one.hash.as_deref(), one.grace_s), (Some("abcd"), Some(30)));
    assert_eq!(one.pod.as_ref().map(|pod| &*pod.uid), Some("u"));
    let noted = one.pre_stop.as_ref().map(|noted| (&*noted.handler, &*noted.ports));
    assert_eq!((noted, &list[1].pre_stop), (Some(("{}", "[]")), &None));
    assert_eq!((&list[1].pod, &list[1].hash, list[1].grace_s), (&None, &None, None));
}

#[test]
fn an_absent_image_is_none_and_one_without_size_is_refused() {
    let reply = |image| i::ImageStatusResponse { image, info: BTreeMap::new() }.encode_to_vec();
    let image = |size| i::Image { id: "sha256:1".to_owned(), size, ..Default::default() };
    let decode = |bytes: Vec<u8>| decode(Rpc::ImageStatus, &bytes);
    assert_eq!(decode(reply(None)), Ok(Reply::Image(None)));
    let found =
        Image { id: "sha256:1".into(), size: 5, digests: Vec::new(), user: ImageUser::Unset };
    assert_eq!(decode(reply(Some(image(5)))), Ok(Reply::Image(Some(Box::new(found)))));
    let repo_digests = vec!["r@sha256:00".to_owned(); IMAGE_DIGESTS_MAX + 1];
    let Ok(Reply::Image(Some(found))) = decode(reply(Some(i::Image { repo_digests, ..image(5) })))
    else {
        panic!("an image")
    };
    assert_eq!(found.digests, vec!["r@sha256:00".into(); IMAGE_DIGESTS_MAX]);
    let error = decode(reply(Some(image(0)))).expect_err("no size");
    let text = "ImageStatus: got a reply without the image's size, expected it";
    assert_eq!(error.to_string(), text);
}

#[test]
fn the_conditions_of_the_runtime_keep_their_reasons() {
    let condition = |kind: &str, status| r::RuntimeCondition {
        r#type: kind.to_owned(),
        status,
        reason: "NetworkPluginNotReady".to_owned(),
        message: "cni plugin not initialized".to_owned(),
    };
    let reply = |conditions| {
        let status = Some(r::RuntimeStatus { conditions });
        r::StatusResponse { status, ..Default::default() }.encode_to_vec()
    };
    let both = reply(vec![condition("NetworkReady", false), condition("RuntimeReady", true)]);
    let why = "NetworkPluginNotReady: cni plugin not initialized".to_owned();
    let expected = RuntimeStatus::of(Ok(()), Err(why));
    assert_eq!(decode(Rpc::Status, &both), Ok(Reply::Status(expected)));
    let error = decode(Rpc::Status, &reply(vec![condition("RuntimeReady", true)]));
    let text = "Status: got a reply without NetworkReady, expected it";
    assert_eq!(error.expect_err("one is missing").to_string(), text);
}

#[test]
fn versions_other_than_ours_and_malformed_replies_are_refused_with_their_reason() {
    let reply = |version: &str, name: &str| {
        let text = |text: &str| text.to_owned();
        r::VersionResponse {
            version: text(version),
            runtime_name: text(name),
            runtime_version: text("1.6.20~ds1"),
            runtime_api_version: text("v1"),
        }
        .encode_to_vec()
    };
    let expected =
        Version { runtime_name: "containerd".into(), runtime_version: "1.6.20~ds1".into() };
    let decode = |bytes: &[u8]| decode(Rpc::Version, bytes);
    assert_eq!(decode(&reply("0.1.0", "containerd")), Ok(Reply::Version(expected)));
    for (bytes, text) in [
        (reply("0.2.0", "containerd"), "Version: got version \"0.2.0\", expected \"0.1.0\""),
        (reply("0.1.0", ""), "Version: got a reply without runtime_name, expected it"),
    ] {
        assert_eq!(decode(&bytes).expect_err(text).to_string(), text);
    }
    assert!(decode(b"\xff\xff").is_err());
}

#[test]
fn a_sandboxes_addresses_come_in_order_and_the_host_has_none() {
    let status = s::PodSandboxStatus {
        network: Some(s::PodSandboxNetworkStatus {
            ip: "10.0.0.2".to_owned(),
            additional_ips: vec![s::PodIp { ip: "fd00::2".to_owned() }],
        }),
        ..Default::default()
    };
    let reply = |status| {
        s::PodSandboxStatusResponse { status: Some(status), ..Default::default() }.encode_to_vec()
    };
    let decode = |status| match decode(Rpc::PodSandboxStatus, &reply(status)) {
        Ok(Reply::SandboxStatus(status)) => status,
        other => panic!("got {other:?}"),
    };
    assert_eq!(decode(status).ips, ["10.0.0.2".into(), "fd00::2".into()]);
    assert!(decode(s::PodSandboxStatus::default()).ips.is_empty());
}
