//! Requests as the agent writes them and with fields that it never sets; replies as the agent reads
//! them, and field by field with the wire's own structs.

use std::sync::Arc;

use prost::Message;

use super::super::convert;
use super::super::convert::tests::{container_config, map, sandbox_config};
use super::super::image::{AuthConfig, ImageSpec, PullImageRequest};
use super::super::security::{Capability, IdMapping, NamespaceMode, UserNamespace};
use super::super::{container as c, events, image as i, runtime as r, sandbox as s, stats as st};
use super::*;
use crate::model::cri::{self, IpcNamespace, Namespaces, Network, PidNamespace, Profile};
use crate::model::housekeeping::{ContainerUsage, HousekeepingCall, HousekeepingReply};
use crate::model::housekeeping::{SandboxUsage, StoredImage};
use crate::model::runtime::{
    BootId, Conditions, ContainerConfig, ContainerId, ContainerPhase, ContainerRecord, DiffId,
    EventKind, ExecOutput, Exit, ExitReason, ImageConfig, ImageId, ImageRecord, Process, Reply,
    RuntimeEvent, SandboxConfig, SandboxId, SandboxPhase, SandboxRecord, Usage,
};

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

fn create_message() -> c::CreateContainerRequest {
    let (_, message) = convert::encode(&create(container_config()));
    c::CreateContainerRequest::decode(&*message).expect("our own")
}

fn run_message() -> s::RunPodSandboxRequest {
    let request = cri::Request::RunPodSandbox(Box::new(sandbox_config()));
    s::RunPodSandboxRequest::decode(&*convert::encode(&request).1).expect("our own")
}

// ---- requests ----

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
            strict.namespaces = Namespaces { network: Network::Pod, pid: pid.clone(), ipc };
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
    let housekeeping = cri::Request::HousekeepingCall;
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
fn fields_of_a_container_that_are_not_supported_are_refused_by_name() {
    type Change = fn(&mut c::ContainerConfig);
    fn context(
        config: &mut c::ContainerConfig,
    ) -> &mut super::super::security::LinuxContainerSecurityContext {
        config.linux.as_mut().expect("linux").security_context.as_mut().expect("a context")
    }
    fn resources(config: &mut c::ContainerConfig) -> &mut c::LinuxContainerResources {
        config.linux.as_mut().expect("linux").resources.as_mut().expect("resources")
    }
    let changes: [(&str, Change); 14] = [
        ("ContainerConfig.devices", |config| config.devices.push(c::Device::default())),
        ("ContainerConfig.CDI_devices", |config| config.cdi_devices.push(c::CdiDevice::default())),
        ("ImageSpec.runtime_handler", |config| {
            config.image.as_mut().expect("an image").runtime_handler = "kata".to_owned();
        }),
        ("Mount.selinux_relabel", |config| config.mounts[0].selinux_relabel = true),
        ("Mount.uidMappings", |config| config.mounts[0].uid_mappings.push(IdMapping::default())),
        ("Mount.gidMappings", |config| config.mounts[0].gid_mappings.push(IdMapping::default())),
        ("LinuxContainerResources.cpuset_cpus", |config| {
            resources(config).cpuset_cpus = "0-1".to_owned();
        }),
        ("LinuxContainerResources.cpuset_mems", |config| {
            resources(config).cpuset_mems = "0".to_owned();
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
            options.userns_options = Some(UserNamespace::default());
        }),
        ("NamespaceOption.userns_options", |config| {
            let options = context(config).namespace_options.as_mut().expect("options");
            let uids = vec![IdMapping { host_id: 0, container_id: 0, length: 1 }];
            let mode = NamespaceMode::Node.into();
            options.userns_options = Some(UserNamespace { mode, uids, ..Default::default() });
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
        (RUNTIME, "PortForward"),
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

// ---- replies ----

const CONTEXT: Context<'_> = Context {
    version: "1.2.3",
    layers: "/d/layers",
    own_layers: "/d/c",
    now: 99,
    recursive_read_only: true,
    verbose: false,
};

fn read(rpc: Rpc, reply: &Reply) -> cri::Reply {
    convert::decode(rpc, &encode(reply, &CONTEXT)).expect("the agent reads it")
}

fn whole<M: Message + Default>(reply: &Reply) -> M {
    M::decode(&*encode(reply, &Context { verbose: true, ..CONTEXT })).expect("our own")
}

fn sandbox_record() -> Arc<SandboxRecord> {
    let mut config = sandbox_config();
    config.labels = map(&[
        ("io.kubernetes.pod.uid", "u"),
        ("io.kubernetes.pod.namespace", "ns"),
        ("io.kubernetes.pod.name", "web"),
    ]);
    config.namespaces = Namespaces { pid: PidNamespace::Node, ..Namespaces::default() };
    Arc::new(SandboxRecord {
        id: SandboxId("s1".into()),
        config,
        phase: SandboxPhase::Ready,
        created_at: 7,
        ips: vec!["10.0.0.2".into(), "fd00::2".into()],
        boot: BootId("b".into()),
    })
}

fn container_record(phase: ContainerPhase) -> Arc<ContainerRecord> {
    let mut config = container_config();
    config.labels = map(&[
        ("io.kubernetes.pod.uid", "u"),
        ("io.kubernetes.pod.namespace", "ns"),
        ("io.kubernetes.pod.name", "web"),
        ("io.kubernetes.container.name", "app"),
    ]);
    config.annotations = map(&[
        ("io.kubernetes.container.hash", "abcd"),
        ("io.kubernetes.container.terminationMessagePath", "/data"),
    ]);
    Arc::new(ContainerRecord {
        id: ContainerId("c1".into()),
        sandbox: SandboxId("s1".into()),
        config,
        log: "/var/log/pods/p/app/3.log".into(),
        image: ImageId("sha256:1".into()),
        layers: Vec::new(),
        stop_signal: 15,
        created_at: 8,
        phase,
    })
}

fn image_record() -> Arc<ImageRecord> {
    Arc::new(ImageRecord {
        id: ImageId("sha256:1".into()),
        tags: vec!["docker.io/library/busybox:1".into()],
        digests: vec!["docker.io/library/busybox@sha256:2".into()],
        layers: vec![DiffId("sha256:3".into())],
        size: 4_096,
        pinned: true,
        config: ImageConfig { user: "1000:5".into(), ..ImageConfig::default() },
    })
}

fn running() -> ContainerPhase {
    let process = Process { pid: 42, start_time: 1, boot: BootId::default() };
    ContainerPhase::Running { started_at: 9, process }
}

fn exited(code: i32, reason: ExitReason) -> ContainerPhase {
    let message = "why".into();
    ContainerPhase::Exited(Exit { code, reason, message, started_at: 9, finished_at: 10 })
}

#[test]
fn version_status_and_configuration_are_read_by_the_agent() {
    let cri::Reply::Version(version) = read(Rpc::Version, &Reply::Version) else { panic!("one") };
    assert_eq!((&*version.runtime_name, &*version.runtime_version), ("edged", "1.2.3"));
    let down = Err(("NetworkPluginNotReady".into(), "no conflist".into()));
    let reply = Reply::Status(Conditions { runtime: Ok(()), network: down });
    let cri::Reply::Status(status) = read(Rpc::Status, &reply) else { panic!("a status") };
    let handler = cri::RuntimeHandler { recursive_read_only_mounts: true, ..Default::default() };
    let expected = cri::RuntimeStatus {
        handlers: vec![handler],
        strict_groups: true,
        ..cri::RuntimeStatus::of(Ok(()), Err("NetworkPluginNotReady: no conflist".to_owned()))
    };
    assert_eq!(status, expected);
    let driver = read(Rpc::RuntimeConfig, &Reply::RuntimeConfig);
    assert_eq!(driver, cri::Reply::CgroupDriver(Some(cri::CgroupDriver::Cgroupfs)));
    let whole: r::VersionResponse = whole(&Reply::Version);
    assert_eq!((&*whole.version, &*whole.runtime_api_version), ("0.1.0", "v1"));
}

#[test]
fn sandboxes_are_read_by_the_agent() {
    let record = sandbox_record();
    let stopped =
        Arc::new(SandboxRecord { phase: SandboxPhase::Stopping, ips: vec![], ..(*record).clone() });
    let list = Reply::Sandboxes(vec![record.clone(), stopped.clone()]);
    let cri::Reply::Sandboxes(read_list) = read(Rpc::ListPodSandbox, &list) else { panic!("some") };
    let pod = cri::PodRef { uid: "u".into(), namespace: "ns".into(), name: "web".into() };
    let expected = cri::Sandbox {
        id: SandboxId("s1".into()),
        pod: Some(pod),
        attempt: 2,
        ready: true,
        created_at: 7,
        source: Some("file".into()),
        seen_at: None,
    };
    assert_eq!(*read_list[0], expected);
    assert_eq!(*read_list[1], cri::Sandbox { ready: false, ..expected });
    let reply = read(Rpc::PodSandboxStatus, &Reply::SandboxStatus(record.clone()));
    let expected = cri::SandboxStatus {
        ready: true,
        created_at: 7,
        network: Network::Pod,
        ips: vec!["10.0.0.2".into(), "fd00::2".into()],
    };
    assert_eq!(reply, cri::Reply::SandboxStatus(Box::new(expected.clone())));
    let reply = read(Rpc::PodSandboxStatus, &Reply::SandboxStatus(stopped));
    let expected = cri::SandboxStatus { ready: false, ips: Vec::new(), ..expected };
    assert_eq!(reply, cri::Reply::SandboxStatus(Box::new(expected)));

    let reply: s::PodSandboxStatusResponse = whole(&Reply::SandboxStatus(record.clone()));
    let status = reply.status.expect("a status");
    let metadata = status.metadata.clone().expect("metadata");
    assert_eq!((&*metadata.name, &*metadata.uid, &*metadata.namespace), ("web", "u", "ns"));
    let linux = status.linux.expect("linux").namespaces.expect("namespaces");
    let options = linux.options.expect("options");
    assert_eq!((options.network(), options.pid()), (NamespaceMode::Pod, NamespaceMode::Node));
    assert_eq!(
        (&status.labels, &status.annotations),
        (&record.config.labels, &record.config.annotations)
    );
    assert_eq!(status.runtime_handler, "kata");
    let list: s::ListPodSandboxResponse = whole(&Reply::Sandboxes(vec![record]));
    assert_eq!((&list.items[0].metadata, &list.items[0].labels), (&Some(metadata), &status.labels));
}

#[test]
fn each_state_of_a_container_is_as_in_the_cri() {
    let state = |phase| {
        let reply = Reply::ContainerStatus(container_record(phase), None);
        match read(Rpc::ContainerStatus, &reply) {
            cri::Reply::ContainerStatus(status) => {
                let reason = status.reason.to_string();
                (status.state, status.started_at, status.finished_at, status.exit_code, reason)
            }
            other => panic!("{other:?}"),
        }
    };
    let none = String::new();
    assert_eq!(state(ContainerPhase::Created), (ContainerState::Created, 0, 0, 0, none.clone()));
    let starting = ContainerPhase::Starting(BootId::default());
    assert_eq!(state(starting), (ContainerState::Created, 0, 0, 0, none.clone()));
    assert_eq!(state(running()), (ContainerState::Running, 9, 0, 0, none));
    for (code, reason, name) in [
        (0, ExitReason::Completed, "Completed"),
        (5, ExitReason::Error, "Error"),
        (137, ExitReason::OomKilled, "OOMKilled"),
        (128, ExitReason::StartError, "StartError"),
        (255, ExitReason::Unknown, "Unknown"),
        (-1, ExitReason::Error, "Error"),
    ] {
        let expected = (ContainerState::Exited, 9, 10, code, name.to_owned());
        assert_eq!(state(exited(code, reason)), expected);
    }
}

#[test]
fn a_container_is_read_by_the_agent_with_its_image() {
    let record = container_record(running());
    let image = Some(image_record());
    let reply = Reply::ContainerStatus(record.clone(), image.clone());
    let cri::Reply::ContainerStatus(status) = read(Rpc::ContainerStatus, &reply) else {
        panic!("a status")
    };
    assert_eq!(&*status.image, "docker.io/library/busybox:1");
    assert_eq!(&*status.image_ref, "docker.io/library/busybox@sha256:2");
    assert_eq!(status.message_file.as_deref(), Some("/srv/data"));
    let list = Reply::Containers(vec![(record.clone(), image), (record.clone(), None)]);
    let cri::Reply::Containers(all) = read(Rpc::ListContainers, &list) else { panic!("a list") };
    let expected = cri::Container {
        id: ContainerId("c1".into()),
        pod: Some(cri::PodRef { uid: "u".into(), namespace: "ns".into(), name: "web".into() }),
        name: "app".into(),
        sandbox: SandboxId("s1".into()),
        attempt: 3,
        state: ContainerState::Running,
        created_at: 8,
        image: "busybox:1".into(),
        image_id: "sha256:1".into(),
        hash: Some("abcd".into()),
        grace_s: None,
        pre_stop: None,
    };
    assert_eq!((&*all[0], &*all[1]), (&expected, &expected));

    let gone = Reply::ContainerStatus(record.clone(), None);
    let reply: c::ContainerStatusResponse = whole(&gone);
    assert_eq!(reply.info, map(&[("info", "{\"pid\":42}")]));
    let status = reply.status.expect("a status");
    let spec = status.image.expect("an image");
    assert_eq!((&*spec.image, &*spec.user_specified_image), ("sha256:1", "busybox:1"));
    assert_eq!((&*status.image_ref, &*status.image_id), ("sha256:1", "sha256:1"));
    assert_eq!(&*status.log_path, "/var/log/pods/p/app/3.log");
    assert_eq!(
        (&status.labels, &status.annotations),
        (&record.config.labels, &record.config.annotations)
    );
    // What was asked for is written as the agent writes it.
    let asked = create_message().config.expect("a config");
    assert_eq!(status.mounts, asked.mounts);
    let resources = asked.linux.expect("linux").resources;
    assert_eq!(status.resources.expect("resources").linux, resources);
    assert!(
        whole::<c::ContainerStatusResponse>(&Reply::ContainerStatus(
            container_record(ContainerPhase::Created),
            None
        ))
        .info
        .is_empty()
    );
    let quiet = c::ContainerStatusResponse::decode(&*encode(&gone, &CONTEXT)).expect("our own");
    assert!(quiet.info.is_empty(), "only where it is asked for");
}

#[test]
fn usage_is_read_by_the_agent() {
    let usage = Usage {
        at: 5,
        cpu_ns: Some(1),
        memory_usage: Some(20),
        memory_working_set: Some(12),
        memory_rss: Some(3),
        page_faults: Some(4),
        major_page_faults: Some(0),
        memory_limit: Some(30),
        processes: Some(6),
        layer: Some((7, 8)),
        network: Some([1, 2, 3, 4]),
    };
    let both = vec![(container_record(running()), usage.clone())];
    let reply = Reply::ContainerStats(both);
    let expected = ContainerUsage {
        id: "c1".into(),
        uid: "u".into(),
        name: "app".into(),
        memory: Some(12),
        memory_usage: Some(20),
        memory_rss: Some(3),
        memory_at: 5,
        cpu_ns: Some(1),
        cpu_nano_cores: None,
        cpu_at: 5,
        disk: Some(7),
        inodes: Some(8),
    };
    let expected = HousekeepingReply::Containers(vec![expected]);
    assert_eq!(read(Rpc::ListContainerStats, &reply), cri::Reply::HousekeepingCall(expected));
    let list: st::ListContainerStatsResponse = whole(&reply);
    let memory = list.stats[0].memory.expect("memory");
    assert_eq!(memory.available_bytes.expect("a limit").value, 18);
    assert_eq!(memory.major_page_faults.expect("zero is a count").value, 0);
    let layer = list.stats[0].writable_layer.clone().expect("a layer");
    assert_eq!((layer.timestamp, &*layer.fs_id.expect("one").mountpoint), (5, "/d/c"));

    let reply = Reply::SandboxStats(vec![(sandbox_record(), usage)]);
    let expected = SandboxUsage { uid: "u".into(), processes: Some(6) };
    let expected = HousekeepingReply::Sandboxes(vec![expected]);
    assert_eq!(read(Rpc::ListPodSandboxStats, &reply), cri::Reply::HousekeepingCall(expected));
    let list: st::ListPodSandboxStatsResponse = whole(&reply);
    let linux = list.stats[0].linux.clone().expect("linux");
    let eth0 = linux.network.expect("a network").default_interface.expect("one");
    let counters = [eth0.rx_bytes, eth0.rx_errors, eth0.tx_bytes, eth0.tx_errors];
    assert_eq!(
        (&*eth0.name, counters.map(|count| count.expect("one").value)),
        ("eth0", [1, 2, 3, 4])
    );
    assert_eq!(linux.cpu.expect("cpu").usage_core_nano_seconds.expect("one").value, 1);

    let nothing = Reply::ContainerStats(vec![(container_record(running()), Usage::default())]);
    let list: st::ListContainerStatsResponse = whole(&nothing);
    let stats = &list.stats[0];
    assert!(stats.cpu.is_none() && stats.memory.is_none() && stats.writable_layer.is_none());
}

#[test]
fn images_and_other_replies_are_read_by_the_agent() {
    let image = image_record();
    let reply = read(Rpc::ImageStatus, &Reply::Image(Some(image.clone())));
    let expected =
        cri::Image { id: "sha256:1".into(), size: 4_096, user: cri::ImageUser::Uid(1_000) };
    assert_eq!(reply, cri::Reply::Image(Some(Box::new(expected))));
    assert_eq!(read(Rpc::ImageStatus, &Reply::Image(None)), cri::Reply::Image(None));
    let list = Reply::Images(vec![image]);
    let stored = StoredImage {
        id: "sha256:1".into(),
        names: vec![
            "docker.io/library/busybox:1".into(),
            "docker.io/library/busybox@sha256:2".into(),
        ],
        size: 4_096,
        pinned: true,
    };
    let expected = HousekeepingReply::Images(vec![stored]);
    assert_eq!(read(Rpc::ListImages, &list), cri::Reply::HousekeepingCall(expected));
    let expected = HousekeepingReply::ImageFs(Some("/d/layers".into()));
    let fs = Reply::ImageFs { used_bytes: 11 };
    assert_eq!(read(Rpc::ImageFsInfo, &fs), cri::Reply::HousekeepingCall(expected));
    let info: i::ImageFsInfoResponse = whole(&fs);
    assert_eq!(info.image_filesystems[0].used_bytes.expect("bytes").value, 11);
    assert_eq!(info.image_filesystems[0].timestamp, 99);
    let own = info.container_filesystems[0].fs_id.clone().expect("one");
    assert_eq!(own.mountpoint, "/d/c");

    let sandbox = Reply::Sandbox(SandboxId("s".into()));
    assert_eq!(read(Rpc::RunPodSandbox, &sandbox), cri::Reply::Sandbox(SandboxId("s".into())));
    let container = Reply::Container(ContainerId("c".into()));
    let expected = cri::Reply::Container(ContainerId("c".into()));
    assert_eq!(read(Rpc::CreateContainer, &container), expected);
    let pulled = Reply::Pulled(ImageId("sha256:1".into()));
    assert_eq!(read(Rpc::PullImage, &pulled), cri::Reply::Pulled("sha256:1".into()));
    assert_eq!(read(Rpc::StopContainer, &Reply::Done), cri::Reply::Done);
    let output = ExecOutput { stdout: b"o\xff".to_vec(), stderr: b"e".to_vec(), exit_code: 3 };
    let cri::Reply::Exec(exec) = read(Rpc::ExecSync, &Reply::Exec(Box::new(output))) else {
        panic!("an exit code")
    };
    assert_eq!((exec.exit_code, &*exec.output), (3, "o\u{fffd}e"));
    let names = Reply::Imported(vec!["a:1".into(), "b:2".into()]);
    let names: super::super::edged::ImportResponse = whole(&names);
    assert_eq!(names.names, ["a:1", "b:2"]);
}

#[test]
fn an_event_has_the_sandbox_and_its_containers() {
    let event = RuntimeEvent {
        id: "c1".into(),
        kind: EventKind::Stopped,
        at: 12,
        sandbox: Some(sandbox_record()),
        containers: vec![(container_record(exited(1, ExitReason::Error)), None)],
    };
    let read = |event: &RuntimeEvent| {
        events::ContainerEventResponse::decode(&*encode_event(event)).expect("our own")
    };
    let whole = read(&event);
    assert_eq!((&*whole.container_id, whole.created_at), ("c1", 12));
    assert_eq!(whole.container_event_type(), events::ContainerEventType::Stopped);
    assert_eq!(whole.pod_sandbox_status.expect("a sandbox").id, "s1");
    assert_eq!(whole.containers_statuses[0].exit_code, 1);
    for (kind, expected) in [
        (EventKind::Created, events::ContainerEventType::Created),
        (EventKind::Started, events::ContainerEventType::Started),
        (EventKind::Deleted, events::ContainerEventType::Deleted),
    ] {
        let gone = RuntimeEvent { kind, sandbox: None, containers: Vec::new(), ..event.clone() };
        let whole = read(&gone);
        assert_eq!((whole.container_event_type(), whole.pod_sandbox_status), (expected, None));
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
