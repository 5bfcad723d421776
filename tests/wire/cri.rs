//! CRI v1: the bytes of real runtimes, error-prone field numbers, limits, secrets.

use std::collections::{BTreeMap, BTreeSet};

use edged::limits;
use edged::model::cri::{ContainerId, Reply, Request as CriRequest, TaskEnd};
use edged::wire::cri::container::{
    Container, ContainerConfig, ContainerMetadata, ContainerState, ContainerStatus,
    ContainerStatusResponse, ExecSyncRequest, ExecSyncResponse, KeyValue, ListContainersRequest,
    ListContainersResponse, Mount, MountPropagation,
};
use edged::wire::cri::convert::{self, encode};
use edged::wire::cri::events::GetEventsRequest;
use edged::wire::cri::image::{
    AuthConfig, Image, ImageSpec, ImageStatusRequest, ListImagesRequest, ListImagesResponse,
    PullImageRequest,
};
use edged::wire::cri::runtime::{
    CgroupDriver, RuntimeConfigRequest, StatusRequest, VersionRequest, VersionResponse,
};
use edged::wire::cri::sandbox::{
    LinuxPodSandboxStatus, Namespace, PodIp, PodSandboxMetadata, PodSandboxNetworkStatus,
    PodSandboxState, PodSandboxStatus, PodSandboxStatusResponse,
};
use edged::wire::cri::security::{NamespaceMode, NamespaceOption};
use edged::wire::cri::{DecodeError, Int64Value, Request, Rpc, decode};
use prost::Message;

use crate::golden::{self, hex};

fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

fn image(name: &str) -> ImageSpec {
    ImageSpec {
        image: name.to_owned(),
        user_specified_image: name.to_owned(),
        ..ImageSpec::default()
    }
}

fn container_list() -> ListContainersResponse {
    let container = |attempt| Container {
        id: "c0ffee".to_owned(),
        pod_sandbox_id: "5a9d".to_owned(),
        metadata: Some(ContainerMetadata { name: "web".to_owned(), attempt }),
        image: Some(image("busybox:1")),
        image_ref: "sha256:0".to_owned(),
        state: ContainerState::Exited.into(),
        created_at: 1_700_000_000_000_000_000,
        labels: map(&[("io.kubernetes.pod.name", "p"), ("", "")]),
        annotations: map(&[("a", "{\n\n}")]),
        image_id: "sha256:1".to_owned(),
    };
    ListContainersResponse { containers: (0..3).map(container).collect() }
}

fn container_status() -> ContainerStatusResponse {
    let mount = Mount {
        container_path: "/etc/hosts".to_owned(),
        readonly: true,
        propagation: MountPropagation::Bidirectional.into(),
        ..Mount::default()
    };
    let status = ContainerStatus {
        id: "c0ffee".to_owned(),
        exit_code: -1,
        finished_at: -5,
        mounts: vec![mount.clone(), mount],
        ..ContainerStatus::default()
    };
    ContainerStatusResponse { status: Some(status), info: map(&[("k", "v")]) }
}

fn sandbox_status() -> PodSandboxStatusResponse {
    let options = NamespaceOption { network: NamespaceMode::Node.into(), ..Default::default() };
    let ip = |ip: &str| PodIp { ip: ip.to_owned() };
    let status = PodSandboxStatus {
        id: "5a9d".to_owned(),
        state: PodSandboxState::NotReady.into(),
        network: Some(PodSandboxNetworkStatus {
            ip: "10.0.0.2".to_owned(),
            additional_ips: vec![ip("fd00::2"), ip("")],
        }),
        linux: Some(LinuxPodSandboxStatus {
            namespaces: Some(Namespace { options: Some(options) }),
        }),
        ..PodSandboxStatus::default()
    };
    PodSandboxStatusResponse { status: Some(status), timestamp: 7, ..Default::default() }
}

fn image_list() -> ListImagesResponse {
    let image = |size| Image {
        id: "sha256:1".to_owned(),
        repo_tags: vec!["busybox:1".to_owned(), String::new()],
        size,
        uid: Some(Int64Value { value: 0 }),
        pinned: true,
        ..Image::default()
    };
    ListImagesResponse { images: vec![image(0), image(u64::MAX)] }
}

/// Replies for mutation tests.
pub fn samples() -> Vec<Vec<u8>> {
    vec![
        container_list().encode_to_vec(),
        container_status().encode_to_vec(),
        sandbox_status().encode_to_vec(),
        image_list().encode_to_vec(),
    ]
}

#[test]
fn replies_round_trip() {
    let [containers, status, sandbox, images] = samples().try_into().unwrap();
    assert_eq!(decode::<ListContainersRequest>(&containers), Ok(container_list()));
    assert_eq!(
        decode::<edged::wire::cri::container::ContainerStatusRequest>(&status),
        Ok(container_status())
    );
    let decoded = decode::<edged::wire::cri::sandbox::PodSandboxStatusRequest>(&sandbox);
    assert_eq!(decoded, Ok(sandbox_status()));
    assert_eq!(decode::<ListImagesRequest>(&images), Ok(image_list()));
}

#[test]
fn real_runtimes_versions_are_read() {
    let expected = [
        (golden::CONNECTIONS[0], "containerd", "1.6.20~ds1"),
        (golden::CONNECTIONS[1], "containerd", "2.3.4+unknown"),
        (golden::CONNECTIONS[2], "cri-o", "1.36.3"),
    ];
    for (file, name, version) in expected {
        let frames = golden::frames(&golden::section(file, "1"));
        let data = frames.iter().find(|frame| frame.kind == 0).unwrap();
        let reply = VersionResponse {
            version: "0.1.0".to_owned(),
            runtime_name: name.to_owned(),
            runtime_version: version.to_owned(),
            runtime_api_version: "v1".to_owned(),
        };
        assert_eq!(decode::<VersionRequest>(&data.payload[5..]), Ok(reply.clone()));
        assert_eq!(reply.encode_to_vec(), data.payload[5..], "the same bytes back");
    }
    // The request of that capture.
    let request = VersionRequest { version: "v1".to_owned() };
    assert_eq!(request.encode_to_vec(), hex("0a027631"));
}

#[test]
fn field_numbers_that_are_easily_mistaken() {
    let metadata = PodSandboxMetadata {
        name: "n".to_owned(),
        uid: "u".to_owned(),
        namespace: "s".to_owned(),
        attempt: 1,
    };
    assert_eq!(metadata.encode_to_vec(), hex("0a016e 120175 1a0173 2001"));
    let spec = ImageSpec { user_specified_image: "i".to_owned(), ..ImageSpec::default() };
    assert_eq!(spec.encode_to_vec(), hex("920101 69"));
    let config = ContainerConfig { log_path: "l".to_owned(), tty: true, ..Default::default() };
    assert_eq!(config.encode_to_vec(), hex("5a016c 7001"));
    let namespace = Namespace { options: Some(NamespaceOption { pid: 1, ..Default::default() }) };
    assert_eq!(namespace.encode_to_vec(), hex("12021001"));
    // A negative number has ten bytes; a value that is present but zero has an empty message.
    let exec = ExecSyncResponse { exit_code: -1, ..ExecSyncResponse::default() };
    assert_eq!(exec.encode_to_vec(), hex("18ffffffffffffffffff01"));
    let image = Image { uid: Some(Int64Value { value: 0 }), ..Image::default() };
    assert_eq!(image.encode_to_vec(), hex("2a00"));
}

/// The newer fields of newer runtimes are skipped; enums of theirs do not fail.
#[test]
fn unknown_fields_and_values_are_taken() {
    let reply = hex("0a 08 9206 0378797a 1009 8001 2a");
    let error = decode::<VersionRequest>(&reply);
    assert!(error.is_err(), "a string that is no string is malformed: {error:?}");
    let list = decode::<ListContainersRequest>(&hex("0a0b 0a0163 3063 9a3f0378797a ba3e0178"));
    let list = list.unwrap();
    assert_eq!((list.containers[0].id.as_str(), list.containers[0].state), ("c", 99));
    assert_eq!(list.containers[0].state(), ContainerState::Created);
}

/// zero is SYSTEMD, but only if `linux` is there.
#[test]
fn an_absent_cgroup_driver_is_not_systemd() {
    assert_eq!(decode::<RuntimeConfigRequest>(&[]).unwrap().linux, None);
    let config = decode::<RuntimeConfigRequest>(&hex("0a00")).unwrap().linux.unwrap();
    assert_eq!(config.cgroup_driver(), CgroupDriver::Systemd);
}

#[test]
fn replies_have_bounds() {
    let large = vec![0; limits::CRI_MESSAGE_BYTES_MAX + 1];
    let error = decode::<VersionRequest>(&large).unwrap_err();
    assert_eq!(error, DecodeError::TooLarge { got_bytes: large.len(), max_bytes: large.len() - 1 });
    assert_eq!(error.to_string(), "reply has 16777217 bytes, expected at most 16777216");

    let containers = |count: usize| hex("0a00").repeat(count);
    let most = decode::<ListContainersRequest>(&containers(limits::CRI_FIELDS_MAX)).unwrap();
    assert_eq!(most.containers.len(), limits::CRI_FIELDS_MAX);
    let too_many = containers(limits::CRI_FIELDS_MAX + 1);
    let error = decode::<ListContainersRequest>(&too_many).unwrap_err();
    assert_eq!(error.to_string(), "reply has more fields than the 131072 expected at most");

    // The same, hidden: in a nested field, after a group, before a malformed end.
    let mounts = hex("7200").repeat(limits::CRI_FIELDS_MAX);
    let nested = ContainerStatusResponse::default().encode_to_vec();
    let mut hidden = [nested, hex("0a 80 80 10")].concat();
    hidden.extend(&mounts);
    for bytes in
        [hidden.clone(), [hex("a306a406"), hidden].concat(), [too_many, vec![0x0f]].concat()]
    {
        let error = decode::<edged::wire::cri::container::ContainerStatusRequest>(&bytes);
        assert_eq!(error.unwrap_err(), DecodeError::TooManyFields { max: limits::CRI_FIELDS_MAX });
    }
}

/// Nothing is decoded below the deepest level of any message.
#[test]
fn fields_are_counted_as_deep_as_messages_may_lie_in_one_another() {
    // Field 100, which is unknown, with this content.
    let around = |inner: Vec<u8>| {
        let mut outer = hex("a206");
        prost::encoding::encode_varint(inner.len() as u64, &mut outer);
        outer.extend(inner);
        outer
    };
    let within = |depth: usize| {
        let fields = hex("0a00").repeat(limits::CRI_FIELDS_MAX + 1);
        decode::<ListContainersRequest>(&(0..depth).fold(fields, |inner, _| around(inner)))
    };
    let max = limits::CRI_FIELDS_MAX;
    assert_eq!(within(limits::CRI_DEPTH_MAX), Err(DecodeError::TooManyFields { max }));
    assert_eq!(within(limits::CRI_DEPTH_MAX + 1), Ok(ListContainersResponse::default()));
}

/// A number that is packed has one byte, and eight where it is kept.
#[test]
fn the_groups_of_a_container_are_passed_over() {
    let groups = "00".repeat(100);
    let reply = hex(&format!("0a6b 920168 0a66 1a64 {groups}"));
    let read = decode::<edged::wire::cri::container::ContainerStatusRequest>(&reply).unwrap();
    assert_eq!(read.encode_to_vec(), hex("0a00"));
}

/// The output of a command may look like any number of fields.
#[test]
fn output_of_a_command_is_not_counted() {
    let stdout = b"\n\0".repeat(1 << 20);
    let reply = ExecSyncResponse { stdout, ..ExecSyncResponse::default() };
    assert_eq!(decode::<ExecSyncRequest>(&reply.encode_to_vec()), Ok(reply));
}

#[test]
fn a_malformed_reply_is_an_error() {
    let error = decode::<VersionRequest>(&hex("0a05")).unwrap_err().to_string();
    assert!(error.starts_with("reply is malformed: "), "{error}");
}

#[test]
fn secrets_are_not_in_debug() {
    let auth = AuthConfig {
        username: "hidden-name".to_owned(),
        password: "hidden-word".to_owned(),
        auth: "hidden-auth".to_owned(),
        server_address: "registry".to_owned(),
        identity_token: "hidden-identity".to_owned(),
        registry_token: "hidden-registry".to_owned(),
    };
    let pull = PullImageRequest { auth: Some(auth), ..PullImageRequest::default() };
    let env = KeyValue { key: "TOKEN".to_owned(), value: "hidden-value".to_owned() };
    let config = ContainerConfig { envs: vec![env], ..ContainerConfig::default() };
    let text = format!("{pull:?} {config:?}");
    assert!(!text.contains("hidden"), "{text}");
    assert!(text.contains("registry") && text.contains("TOKEN"));
}

#[test]
fn methods_have_their_paths() {
    assert_eq!(Rpc::Version.path(), "/runtime.v1.RuntimeService/Version");
    assert_eq!(Rpc::PullImage.path(), "/runtime.v1.ImageService/PullImage");
    assert_eq!(GetEventsRequest::RPC, Rpc::GetContainerEvents);
    assert_eq!(StatusRequest::RPC.name(), "Status");
    assert_eq!(ImageStatusRequest::RPC.path(), "/runtime.v1.ImageService/ImageStatus");
    let streams: Vec<_> = Rpc::ALL.iter().filter(|rpc| rpc.is_stream()).collect();
    assert_eq!(streams, [&Rpc::GetContainerEvents]);
    for rpc in Rpc::ALL {
        assert_eq!(rpc.path(), format!("/{}/{}", rpc.service(), rpc.name()));
    }
    let paths: BTreeSet<_> = Rpc::ALL.iter().map(|rpc| rpc.path()).collect();
    let count = if cfg!(feature = "streams") { 29 } else { 26 };
    let count = count + if cfg!(feature = "runtime") { 2 } else { 0 };
    assert_eq!((paths.len(), Rpc::ALL.len()), (count, count));
}

#[test]
fn a_task_is_ended_by_containerds_own_service_in_the_namespace_of_cri() {
    assert_eq!(Rpc::Kill.path(), "/containerd.services.tasks.v1.Tasks/Kill");
    assert_eq!(Rpc::Delete.path(), "/containerd.services.tasks.v1.Tasks/Delete");
    let spaced: Vec<_> = Rpc::ALL.iter().filter(|rpc| rpc.metadata().is_some()).collect();
    assert_eq!(spaced, [&Rpc::Kill, &Rpc::Delete]);
    assert_eq!(Rpc::Kill.metadata(), Some(("containerd-namespace", "k8s.io")));
    // As `ctr tasks kill --all --signal 9 ab` and `ctr tasks delete ab` write them.
    let of = |end| encode(&CriRequest::Task { id: ContainerId("ab".into()), end }).1;
    assert_eq!(of(TaskEnd::Kill), [0x0a, 2, b'a', b'b', 0x18, 9, 0x20, 1]);
    assert_eq!(of(TaskEnd::Delete), [0x0a, 2, b'a', b'b']);
    // A real one: the container's name, the pid, the exit code and the time.
    let reply = [0x0a, 1, b'a', 0x10, 0x85, 0x1f, 0x18, 0x89, 1, 0x22, 2, 8, 1];
    assert_eq!(convert::decode(Rpc::Delete, &reply).ok(), Some(Reply::Done));
}
