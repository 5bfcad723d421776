//! Requests as the agent writes them, and with fields that it never sets.

use prost::Message;

use super::super::convert;
use super::super::convert::tests::{container_config, map, sandbox_config};
use super::super::image::{AuthConfig, ImageSpec, PullImageRequest};
use super::super::security::{
    Capability, IdMapping, LinuxContainerSecurityContext, NamespaceMode, UserNamespace,
};
use super::super::{container as c, image as i, sandbox as s, stats as st};
use super::*;
use crate::model::cri::{
    self, IpcNamespace, Namespaces, Network, PidNamespace, Profile, Resources, UserRange,
};
use crate::model::housekeeping::HousekeepingCall;
use crate::model::runtime::{ContainerConfig, ContainerId, SandboxConfig, SandboxId};

const RUNTIME: &str = "runtime.v1.RuntimeService";
const IMAGES: &str = "runtime.v1.ImageService";

fn served(request: &cri::Request) -> Request {
    let (rpc, message) = convert::encode(request);
    let call = decode(rpc.service(), rpc.name(), &message).expect("the agent's own request");
    assert!(!call.verbose);
    call.request
}

fn invalid(method: &str, message: &[u8]) -> String {
    let refusal = decode(RUNTIME, method, message).expect_err("it cannot be served");
    assert_eq!(refusal.code, Code::InvalidArgument, "{}", refusal.message);
    refusal.message
}

fn create(config: ContainerConfig) -> cri::Request {
    cri::Request::CreateContainer {
        sandbox: SandboxId("s".into()),
        config: Box::new(config),
        sandbox_config: Box::new(sandbox_config()),
    }
}

pub(super) fn create_message() -> c::CreateContainerRequest {
    let (_, message) = convert::encode(&create(container_config()));
    c::CreateContainerRequest::decode(&*message).expect("our own")
}

fn run_message() -> s::RunPodSandboxRequest {
    let request = cri::Request::RunPodSandbox(Box::new(sandbox_config()));
    s::RunPodSandboxRequest::decode(&*convert::encode(&request).1).expect("our own")
}

#[test]
fn a_sandbox_comes_back_as_the_agent_asked_for_it() {
    let node = sandbox_config();
    let empty = SandboxConfig { dns: Some(cri::Dns::default()), ..SandboxConfig::default() };
    let mut strict = sandbox_config();
    strict.security.user.strict_groups = true;
    strict.overhead.memory_swap_limit = -1;
    strict.resources.hugepages = vec![("2MB".to_owned(), 1 << 21), ("64KB".to_owned(), 0)];
    strict.resources.unified = map(&[("memory.high", "1")]);
    strict.security.user.groups = (-2..300).collect();
    strict.port_mappings[0].protocol = cri::Protocol::Sctp;
    for pid in [PidNamespace::Pod, PidNamespace::Node] {
        for ipc in [IpcNamespace::Pod, IpcNamespace::Node] {
            let users = Some(UserRange { first: u32::MAX - 10, count: 10 });
            strict.namespaces = Namespaces { network: Network::Pod, pid: pid.clone(), ipc, users };
            for config in [node.clone(), empty.clone(), strict.clone()] {
                let request = cri::Request::RunPodSandbox(Box::new(config.clone()));
                assert_eq!(served(&request), Request::RunPodSandbox(Box::new(config)));
            }
        }
    }
}

#[test]
fn a_container_comes_back_as_the_agent_asked_for_it() {
    let target = container_config();
    let mut plain = ContainerConfig { image_ref: "i".into(), ..ContainerConfig::default() };
    plain.security.seccomp = Profile::RuntimeDefault;
    let mut other = container_config();
    other.security.privileged = true;
    other.security.apparmor = Some(Profile::Unconfined);
    other.security.user.uid = Some(0);
    other.mounts[0].propagation = cri::Propagation::Bidirectional;
    other.namespaces = Namespaces::default();
    other.namespaces.users = Some(UserRange { first: 1 << 16, count: 1 << 16 });
    other.mounts[0].users = other.namespaces.users;
    other.security.selinux = Some(cri::Selinux { role: "r".to_owned(), ..Default::default() });
    other.envs.push((String::new(), String::new()));
    for config in [target, plain, other] {
        let (sandbox, expected) = ("s".into(), Box::new(config.clone()));
        assert_eq!(served(&create(config)), Request::CreateContainer { sandbox, config: expected });
    }
}

#[test]
fn every_request_of_the_agent_is_understood() {
    let (sandbox, container) = (SandboxId("s".into()), ContainerId("c".into()));
    let auth = cri::Auth { username: "u".into(), password: "p:w".into() };
    let pull = |auth| cri::Request::PullImage {
        image: "a/b:1".into(),
        auth,
        sandbox_config: Box::new(sandbox_config()),
    };
    let basic = Some(("u".into(), "p:w".into()));
    for (request, expected) in [
        (cri::Request::Version, Request::Version),
        (cri::Request::Status, Request::Status),
        (cri::Request::RuntimeConfig, Request::RuntimeConfig),
        (cri::Request::ListPodSandbox, Request::ListPodSandbox(SandboxFilter::default())),
        (cri::Request::ListContainers, Request::ListContainers(ContainerFilter::default())),
        (cri::Request::GetContainerEvents, Request::GetContainerEvents),
        (cri::Request::StopPodSandbox(sandbox.clone()), Request::StopPodSandbox("s".into())),
        (cri::Request::RemovePodSandbox(sandbox.clone()), Request::RemovePodSandbox("s".into())),
        (cri::Request::PodSandboxStatus(sandbox), Request::PodSandboxStatus("s".into())),
        (cri::Request::StartContainer(container.clone()), Request::StartContainer("c".into())),
        (
            cri::Request::StopContainer { id: container.clone(), grace_s: -1 },
            Request::StopContainer { id: "c".into(), grace_s: -1 },
        ),
        (cri::Request::RemoveContainer(container.clone()), Request::RemoveContainer("c".into())),
        (cri::Request::ContainerStatus(container.clone()), Request::ContainerStatus("c".into())),
        (
            cri::Request::ExecSync {
                id: container.clone(),
                command: vec!["a".to_owned(), String::new()],
                timeout_s: 3,
                purpose: cri::ExecPurpose::Probe,
            },
            Request::ExecSync {
                id: "c".into(),
                command: vec!["a".to_owned(), String::new()],
                timeout_s: 3,
            },
        ),
        (cri::Request::ImageStatus("i".into()), Request::ImageStatus("i".into())),
        (pull(None), Request::PullImage { image: "a/b:1".into(), auth: None }),
        (
            pull(Some(auth)),
            Request::PullImage {
                image: "a/b:1".into(),
                auth: Some(RegistryAuth { basic, ..RegistryAuth::default() }),
            },
        ),
    ] {
        assert_eq!(served(&request), expected);
    }
}

#[test]
fn every_request_of_people_is_understood() {
    let container = ContainerId("c".into());
    let people = cri::Request::Streaming;
    let input = Pipes { stdin: true, ..Pipes::default() };
    let all = Pipes { stdout: true, stderr: true, ..input };
    for (request, expected) in [
        (
            people(cri::StreamingCall::Exec {
                container: container.clone(),
                command: vec!["sh".to_owned()],
                pipes: Pipes { tty: true, ..input },
            }),
            Request::Exec {
                id: "c".into(),
                command: vec!["sh".to_owned()],
                pipes: Pipes { tty: true, ..input },
            },
        ),
        (
            people(cri::StreamingCall::Attach { container, pipes: all }),
            Request::Attach { id: "c".into(), pipes: all },
        ),
        (
            people(cri::StreamingCall::PortForward {
                sandbox: SandboxId("s".into()),
                ports: vec![1, 65_535],
            }),
            Request::PortForward { sandbox: "s".into(), ports: vec![1, 65_535] },
        ),
    ] {
        assert_eq!(served(&request), expected);
    }
}

#[test]
fn every_request_of_the_agents_housekeeping_is_understood() {
    let container = ContainerId("c".into());
    let housekeeping = cri::Request::HousekeepingCall;
    for (request, expected) in [
        (housekeeping(HousekeepingCall::ImageFsInfo), Request::ImageFsInfo),
        (housekeeping(HousekeepingCall::ListImages), Request::ListImages(None)),
        (
            housekeeping(HousekeepingCall::RemoveImage("sha256:1".into())),
            Request::RemoveImage("sha256:1".into()),
        ),
        (
            housekeeping(HousekeepingCall::ReopenContainerLog(container)),
            Request::ReopenContainerLog("c".into()),
        ),
        (
            housekeeping(HousekeepingCall::ListContainerStats),
            Request::ListContainerStats(ContainerFilter::default()),
        ),
        (
            housekeeping(HousekeepingCall::ListPodSandboxStats),
            Request::ListPodSandboxStats(SandboxFilter::default()),
        ),
    ] {
        assert_eq!(served(&request), expected);
    }
}

#[test]
fn a_change_of_resources_names_those_that_change() {
    let linux = c::LinuxContainerResources {
        memory_limit_in_bytes: 5,
        cpuset_cpus: "0-1".to_owned(),
        ..Default::default()
    };
    let container_id = "c0".to_owned();
    let mut message = c::UpdateContainerResourcesRequest { container_id, linux: Some(linux) };
    let call = decode(RUNTIME, "UpdateContainerResources", &message.encode_to_vec());
    let resources = Box::new(Resources {
        memory_limit: 5,
        cpuset_cpus: "0-1".to_owned(),
        ..Resources::default()
    });
    let expected = Request::UpdateContainerResources { id: "c0".into(), resources };
    assert_eq!(call.expect("it is served").request, expected);
    let mut windows = message.encode_to_vec();
    windows.extend(b"\x1a\x02\x08\x01");
    let why = invalid("UpdateContainerResources", &windows);
    assert!(why.contains("UpdateContainerResourcesRequest.windows is not supported"), "{why}");
    message.linux = None;
    let why = invalid("UpdateContainerResources", &message.encode_to_vec());
    assert_eq!(why, "UpdateContainerResources: linux: got none, expected one");
}

#[test]
fn fields_of_a_container_that_are_not_supported_are_refused_by_name() {
    type Change = fn(&mut c::ContainerConfig);
    fn context(config: &mut c::ContainerConfig) -> &mut LinuxContainerSecurityContext {
        config.linux.as_mut().expect("linux").security_context.as_mut().expect("a context")
    }
    let changes: [(&str, Change); 10] = [
        ("ContainerConfig.CDI_devices", |config| config.cdi_devices.push(c::CdiDevice::default())),
        ("ImageSpec.runtime_handler", |config| {
            config.image.as_mut().expect("an image").runtime_handler = "kata".to_owned();
        }),
        ("Mount.selinux_relabel", |config| config.mounts[0].selinux_relabel = true),
        ("Mount: got different mappings", |config| {
            let mapping = IdMapping { host_id: 9, container_id: 0, length: 1 };
            config.mounts[0].uid_mappings.push(mapping);
        }),
        ("Capability.add_ambient_capabilities", |config| {
            let add_ambient_capabilities = vec!["NET_RAW".to_owned()];
            context(config).capabilities =
                Some(Capability { add_ambient_capabilities, ..Capability::default() });
        }),
        ("LinuxContainerSecurityContext.seccomp_profile_path", |config| {
            context(config).seccomp_profile_path = "unconfined".to_owned();
        }),
        ("NamespaceOption.userns_options", |config| {
            let options = context(config).namespace_options.as_mut().expect("options");
            let mode = NamespaceMode::Target.into();
            options.userns_options = Some(UserNamespace { mode, ..UserNamespace::default() });
        }),
        ("NamespaceOption.userns_options", |config| {
            let options = context(config).namespace_options.as_mut().expect("options");
            let uids = vec![IdMapping { host_id: 9, container_id: 0, length: 1 }];
            let mode = NamespaceMode::Node.into();
            let gids = uids.clone();
            options.userns_options = Some(UserNamespace { mode, uids, gids });
        }),
        ("NamespaceOption.network", |config| {
            let options = context(config).namespace_options.as_mut().expect("options");
            options.network = NamespaceMode::Container.into();
        }),
        ("NamespaceOption.target_id", |config| {
            let options = context(config).namespace_options.as_mut().expect("options");
            options.target_id.clear();
        }),
    ];
    for (name, change) in changes {
        let mut request = create_message();
        change(request.config.as_mut().expect("a config"));
        let why = invalid("CreateContainer", &request.encode_to_vec());
        assert!(why.starts_with(&format!("CreateContainer: {name}")), "{name}: {why}");
    }
    // The host's user namespace is what there is.
    let mut request = create_message();
    let options = context(request.config.as_mut().expect("one")).namespace_options.as_mut();
    options.expect("options").userns_options =
        Some(UserNamespace { mode: NamespaceMode::Node.into(), ..UserNamespace::default() });
    decode(RUNTIME, "CreateContainer", &request.encode_to_vec()).expect("it is served");
}

#[test]
fn users_are_one_range_of_users_without_privileges() {
    let mapping = |host_id, container_id, length| IdMapping { host_id, container_id, length };
    let good = mapping(1 << 16, 0, 1 << 16);
    let namespace = |mode: NamespaceMode, uids: &[IdMapping], gids: &[IdMapping]| UserNamespace {
        mode: mode.into(),
        uids: uids.to_vec(),
        gids: gids.to_vec(),
    };
    let pod = |uids: &[IdMapping]| namespace(NamespaceMode::Pod, uids, uids);
    for (options, expected) in [
        (pod(&[]), "got no mapping, expected one"),
        (pod(&[good, good]), "userns_options.uids: got several mappings, expected one"),
        (namespace(NamespaceMode::Pod, &[good], &[]), "got different mappings of users and of"),
        (pod(&[mapping(9, 1, 9)]), "userns_options.uids: got container_id 1, expected 0"),
        (pod(&[mapping(0, 0, 9)]), "got host_id or length 0, expected users without privileges"),
        (pod(&[mapping(9, 0, 0)]), "got host_id or length 0"),
        (pod(&[mapping(9, 0, u32::MAX)]), "got a range of users that ends beyond 4294967294"),
        (namespace(NamespaceMode::Node, &[good], &[good]), "got a mapping with the host's users"),
    ] {
        let mut request = run_message();
        let linux = request.config.as_mut().and_then(|config| config.linux.as_mut());
        let security = linux.and_then(|linux| linux.security_context.as_mut()).expect("it is set");
        security.namespace_options.as_mut().expect("it is set").userns_options = Some(options);
        let why = invalid("RunPodSandbox", &request.encode_to_vec());
        assert!(why.contains(expected), "{why}");
    }
}

/// Fields that the wire's structs do not have, after those of a good message.
#[test]
fn fields_of_newer_versions_and_other_systems_are_refused_as_well() {
    let config = create_message().config.expect("a config").encode_to_vec();
    let sandbox = run_message().config.expect("a config").encode_to_vec();
    let with = |config: &[u8], field: &[u8]| [config, field].concat();
    let wrap = |tag: u8, inner: &[u8]| {
        let mut out = vec![tag];
        prost::encoding::encode_varint(inner.len() as u64, &mut out);
        out.extend_from_slice(inner);
        out
    };
    let container = |field: &[u8]| wrap(0x12, &with(&config, field));
    for (message, expected) in [
        (container(b"\x82\x01\x00"), "ContainerConfig.windows is not supported by this runtime"),
        (
            container(b"\x90\x01\x0f"),
            "ContainerConfig.stop_signal is not supported by this runtime",
        ),
        (
            container(b"\xa2\x06\x00"),
            "ContainerConfig has field 100, which this runtime does not know",
        ),
        (container(&wrap(0x3a, b"\x52\x01a")), "Mount.image_sub_path is not supported"),
        (container(&wrap(0x3a, b"\x5a\x01a")), "Mount has field 11, which this runtime does not"),
        (container(&wrap(0x3a, b"\x28\x07")), "Mount.propagation: got 7, expected 0 to 2"),
        (container(&wrap(0x7a, b"\x1a\x00")), "LinuxContainerConfig has field 3, which"),
        (container(b"\x62\x01\x01"), "got a field with bytes, expected a varint"),
    ] {
        let why = invalid("CreateContainer", &with(b"\x0a\x01s", &message));
        assert!(why.contains(expected), "{why}\n{expected}");
    }
    for (field, expected) in [
        (&b"\x4a\x00"[..], "PodSandboxConfig.windows is not supported by this runtime"),
        (b"\x52\x00", "PodSandboxConfig has field 10, which this runtime does not know"),
        (b"\x2a\x04\x10\x80\x80\x04", "PortMapping.container_port: got 65536, expected 0 to 65535"),
        (b"\x2a\x02\x08\x03", "PortMapping.protocol: got 3, expected 0 to 2"),
        (b"\x42\x02\x30\x01", "LinuxPodSandboxConfig has field 6, which this runtime does not"),
    ] {
        let why = invalid("RunPodSandbox", &wrap(0x0a, &with(&sandbox, field)));
        assert!(why.contains(expected), "{why}\n{expected}");
    }
}

#[test]
fn what_a_request_must_have_is_named() {
    for (method, message, expected) in [
        ("RunPodSandbox", &b""[..], "config: got none, expected one"),
        ("RunPodSandbox", b"\x0a\x00", "PodSandboxConfig.metadata: got none, expected one"),
        ("CreateContainer", b"\x0a\x01s", "config: got none, expected one"),
        ("CreateContainer", b"\x0a\x01s\x12\x00", "ContainerConfig.image: got none, expected one"),
        ("CreateContainer", b"\x0a\x01s\x12\x05\x12\x03\x0a\x01i", "metadata: got none, expected"),
        ("StartContainer", b"", "container_id: got none, expected an id"),
        ("StopPodSandbox", b"\x0a\x00", "pod_sandbox_id: got none, expected an id"),
        ("ExecSync", b"\x0a\x01c", "cmd: got none, expected a command"),
        ("Exec", b"\x0a\x01c", "one of stdin, stdout, or stderr must be set"),
        ("Exec", b"\x0a\x01c\x18\x01\x30\x01", "tty and stderr cannot both be true"),
        ("Exec", b"\x0a\x01c\x28\x01", "cmd: got none, expected a command"),
        ("Attach", b"\x0a\x01c\x18\x01", "one of stdin, stdout, or stderr must be set"),
        ("Attach", b"\x0a\x01c\x18\x01\x28\x01", "tty and stderr cannot both be true"),
        ("PortForward", b"\x0a\x01s\x10\x00", "port: got 0, expected 1 to 65535"),
        ("PortForward", b"\x0a\x01s\x12\x03\x80\x80\x04", "port: got 65536, expected 1 to 65535"),
        ("StopContainer", b"\x0a\x01\xff", "got a string that is no UTF-8"),
        ("StopContainer", b"\x0a\x01c\x15", "got no field at byte 3 of 4, expected one"),
    ] {
        let why = invalid(method, message);
        assert!(why.starts_with(method) && why.contains(expected), "{why}\n{expected}");
    }
    let image = decode(IMAGES, "PullImage", b"").map_err(|refusal| refusal.message);
    assert_eq!(image, Err("PullImage: image: got none, expected a name or an id".to_owned()));
    let import = decode("edged.runtime.v1.Images", "Import", b"\x0a\x01a");
    let why = "Import: path: got \"a\", expected an absolute one";
    assert_eq!(import.map_err(|refusal| refusal.message), Err(why.to_owned()));
    let import = decode("edged.runtime.v1.Images", "Import", b"\x0a\x02/a").expect("a path");
    assert_eq!(import.request, Request::ImportImages { path: "/a".into() });
}

#[test]
fn methods_that_are_not_served_are_unimplemented() {
    for (service, method) in [
        (RUNTIME, "CheckpointContainer"),
        (RUNTIME, "UpdateRuntimeConfig"),
        (RUNTIME, "PullImage"),
        ("containerd.services.tasks.v1.Tasks", "Kill"),
        ("", ""),
    ] {
        let refusal = decode(service, method, b"").expect_err("it is not served");
        assert_eq!(refusal.code, Code::Unimplemented);
        let expected = format!("unknown method {method} for service {service}");
        assert_eq!(refusal.message, expected);
    }
}

#[test]
fn filters_and_verbose_are_read() {
    let labels = map(&[("a", "b")]);
    let filter = s::PodSandboxFilter {
        id: "12".to_owned(),
        state: Some(s::PodSandboxStateValue { state: s::PodSandboxState::NotReady.into() }),
        label_selector: labels.clone(),
    };
    let list = s::ListPodSandboxRequest { filter: Some(filter) }.encode_to_vec();
    let expected = SandboxFilter { id: "12".into(), ready: Some(false), labels: labels.clone() };
    let read = |service, method, bytes: &[u8]| decode(service, method, bytes).expect("a request");
    let request = read(RUNTIME, "ListPodSandbox", &list).request;
    assert_eq!(request, Request::ListPodSandbox(expected.clone()));
    let filter = st::PodSandboxStatsFilter { id: "12".to_owned(), label_selector: labels.clone() };
    let list = st::ListPodSandboxStatsRequest { filter: Some(filter) }.encode_to_vec();
    let request = read(RUNTIME, "ListPodSandboxStats", &list).request;
    let expected = SandboxFilter { ready: None, ..expected };
    assert_eq!(request, Request::ListPodSandboxStats(expected));
    let filter = c::ContainerFilter {
        id: "34".to_owned(),
        state: Some(c::ContainerStateValue { state: 0 }),
        pod_sandbox_id: "12".to_owned(),
        label_selector: labels.clone(),
    };
    let list = c::ListContainersRequest { filter: Some(filter) }.encode_to_vec();
    let expected = ContainerFilter {
        id: "34".into(),
        sandbox: "12".into(),
        state: Some(ContainerState::Created),
        labels: labels.clone(),
    };
    let request = read(RUNTIME, "ListContainers", &list).request;
    assert_eq!(request, Request::ListContainers(expected.clone()));
    let filter = st::ContainerStatsFilter {
        id: "34".to_owned(),
        pod_sandbox_id: "12".to_owned(),
        label_selector: labels,
    };
    let list = st::ListContainerStatsRequest { filter: Some(filter) }.encode_to_vec();
    let request = read(RUNTIME, "ListContainerStats", &list).request;
    let expected = ContainerFilter { state: None, ..expected };
    assert_eq!(request, Request::ListContainerStats(expected));
    let image = Some(ImageSpec { image: "i".to_owned(), ..ImageSpec::default() });
    let list = i::ListImagesRequest { filter: Some(i::ImageFilter { image }) }.encode_to_vec();
    let request = read(IMAGES, "ListImages", &list).request;
    assert_eq!(request, Request::ListImages(Some("i".into())));

    let status = c::ContainerStatusRequest { container_id: "c".to_owned(), verbose: true };
    assert!(read(RUNTIME, "ContainerStatus", &status.encode_to_vec()).verbose);
}

#[test]
fn credentials_come_in_each_form_and_for_their_own_server() {
    let read = |auth: AuthConfig, name: &str| {
        let image = Some(ImageSpec { image: name.to_owned(), ..ImageSpec::default() });
        let request = PullImageRequest { image, auth: Some(auth), sandbox_config: None };
        match decode(IMAGES, "PullImage", &request.encode_to_vec()) {
            Ok(Call { request: Request::PullImage { auth, .. }, .. }) => Ok(auth),
            Ok(other) => panic!("{other:?}"),
            Err(refusal) => Err(refusal.message),
        }
    };
    let basic = |user: &str, password: &str| {
        let basic = Some((user.into(), password.into()));
        Ok(Some(RegistryAuth { basic, ..RegistryAuth::default() }))
    };
    let named = |server: &str| AuthConfig {
        username: "u".to_owned(),
        password: "p".to_owned(),
        server_address: server.to_owned(),
        ..AuthConfig::default()
    };
    assert_eq!(read(named(""), "r.example/a:1"), basic("u", "p"));
    assert_eq!(read(named("r.example"), "r.example/a:1"), basic("u", "p"));
    assert_eq!(read(named("https://r.example/v2/"), "r.example/a:1"), basic("u", "p"));
    assert_eq!(read(named("https://index.docker.io/v1/"), "busybox"), basic("u", "p"));
    assert_eq!(read(named("https://other.example"), "r.example/a:1"), Ok(None));
    assert_eq!(read(named("https://evildocker.io"), "busybox"), Ok(None));
    assert_eq!(read(AuthConfig::default(), "busybox"), Ok(None));
    let coded = |auth: &str| AuthConfig { auth: auth.to_owned(), ..AuthConfig::default() };
    assert_eq!(read(coded(&base64::encode(b"a:b:c\0")), "i"), basic("a", "b:c"));
    for wrong in [base64::encode(b"a"), "%".to_owned(), base64::encode(b"\xff:")] {
        let why = read(coded(&wrong), "i").expect_err("no pair");
        assert!(why.contains("expected base64 of username:password"), "{why}");
        assert!(!why.contains(&wrong), "it may be secret: {why}");
    }
    let tokens = AuthConfig {
        identity_token: "it".to_owned(),
        registry_token: "rt".to_owned(),
        ..AuthConfig::default()
    };
    let expected = RegistryAuth {
        basic: None,
        identity_token: Some("it".into()),
        registry_token: Some("rt".into()),
    };
    assert_eq!(read(tokens, "i"), Ok(Some(expected)));
}

#[test]
fn profiles_are_read_in_both_forms() {
    for (text, expected) in [
        ("", Ok(None)),
        ("unconfined", Ok(Some(Profile::Unconfined))),
        ("runtime/default", Ok(Some(Profile::RuntimeDefault))),
        ("localhost/p/q", Ok(Some(Profile::Localhost("p/q".to_owned())))),
        ("localhost/", Err(())),
        ("docker/default", Err(())),
        ("p", Err(())),
    ] {
        let mut request = create_message();
        let linux = request.config.as_mut().expect("one").linux.as_mut().expect("linux");
        let context = linux.security_context.as_mut().expect("a context");
        (context.apparmor, context.apparmor_profile) = (None, text.to_owned());
        let read = decode(RUNTIME, "CreateContainer", &request.encode_to_vec());
        let read = read.map_err(drop).map(|call| match call.request {
            Request::CreateContainer { config, .. } => config.security.apparmor,
            other => panic!("{other:?}"),
        });
        assert_eq!(read, expected, "{text}");
    }
}

#[test]
fn a_list_of_a_request_has_a_bound() {
    let exec = |count: usize| {
        let cmd = vec![String::new(); count];
        c::ExecSyncRequest { container_id: "c".to_owned(), cmd, timeout: 0 }.encode_to_vec()
    };
    decode(RUNTIME, "ExecSync", &exec(RUNTIME_ITEMS_MAX)).expect("as many as may be");
    let why = invalid("ExecSync", &exec(RUNTIME_ITEMS_MAX + 1));
    let expected = format!("got a list of more than {RUNTIME_ITEMS_MAX} items, expected fewer");
    assert!(why.ends_with(&expected), "{why}");
    let mut request = run_message();
    let config = request.config.as_mut().expect("one");
    config.labels = (0..=RUNTIME_ITEMS_MAX).map(|n| (n.to_string(), String::new())).collect();
    assert!(invalid("RunPodSandbox", &request.encode_to_vec()).ends_with(&expected));
    let mut request = run_message();
    let context = request.config.as_mut().expect("one").linux.as_mut().expect("linux");
    let context = context.security_context.as_mut().expect("a context");
    context.supplemental_groups = vec![1; RUNTIME_ITEMS_MAX + 1];
    assert!(invalid("RunPodSandbox", &request.encode_to_vec()).ends_with(&expected));
}

#[test]
fn a_request_cut_anywhere_is_refused_or_has_less_and_never_more() {
    let whole = create_message().encode_to_vec();
    let Ok(Call { request: Request::CreateContainer { config, .. }, .. }) =
        decode(RUNTIME, "CreateContainer", &whole)
    else {
        panic!("a request")
    };
    for end in 0..whole.len() {
        match decode(RUNTIME, "CreateContainer", &whole[..end]) {
            Err(refusal) => assert_eq!(refusal.code, Code::InvalidArgument),
            // Only the sandbox's configuration, which is not read, is missing.
            Ok(call) => {
                let (sandbox, config) = ("s".into(), config.clone());
                assert_eq!(call.request, Request::CreateContainer { sandbox, config });
            }
        }
    }
    for at in 0..whole.len() {
        for bits in [0x01, 0x08, 0x80, 0xff] {
            let mut spoilt = whole.clone();
            spoilt[at] ^= bits;
            let _ = decode(RUNTIME, "CreateContainer", &spoilt);
        }
    }
}

#[test]
fn a_refusal_keeps_its_code_and_its_words() {
    for (code, expected) in [
        (Code::Cancelled, rpc::Code::Cancelled),
        (Code::Unknown, rpc::Code::Unknown),
        (Code::InvalidArgument, rpc::Code::InvalidArgument),
        (Code::DeadlineExceeded, rpc::Code::DeadlineExceeded),
        (Code::NotFound, rpc::Code::NotFound),
        (Code::Unimplemented, rpc::Code::Unimplemented),
        (Code::Unauthenticated, rpc::Code::Unauthenticated),
    ] {
        assert_eq!(format!("{code:?}"), format!("{expected:?}"));
        let refusal = Refusal { code, message: "why".to_owned() };
        assert_eq!(status(&refusal), rpc::Status { code: expected, message: "why".to_owned() });
    }
}
