//! Replies as the agent reads them, and field by field with the wire's own structs.

use prost::Message;

use super::super::tests::create_message;
use super::*;
use crate::model::cri::{self, ContainerState};
use crate::model::housekeeping::{ContainerUsage, HousekeepingReply, SandboxUsage, StoredImage};
use crate::model::runtime::{
    BootId, ContainerId, DiffId, ExecOutput, Exit, Handler, ImageConfig, ImageId, Process,
    SandboxId, SandboxPhase,
};
use crate::wire::cri::convert::tests::{container_config, map, sandbox_config};
use crate::wire::cri::security::NamespaceMode;
use crate::wire::cri::{Rpc, convert, edged};
use crate::wire::cri::{
    container as c, events, image as i, runtime as r, sandbox as s, stats as st,
};

const CONTEXT: Context<'_> =
    Context { version: "1.2.3", layers: "/d/layers", own_layers: "/d/c", now: 99, verbose: false };

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
        program: "/usr/bin/crun".into(),
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
    let handlers = [("", true), ("runc", false)].map(|(name, recursive_read_only)| Handler {
        name: name.into(),
        program: "/usr/bin/crun".into(),
        recursive_read_only,
        user_namespaces: !recursive_read_only,
    });
    let handlers = handlers.into();
    let reply = Reply::Status(Conditions { runtime: Ok(()), network: down, handlers });
    let cri::Reply::Status(status) = read(Rpc::Status, &reply) else { panic!("a status") };
    let default = cri::RuntimeHandler { recursive_read_only_mounts: true, ..Default::default() };
    let runc =
        cri::RuntimeHandler { name: "runc".into(), user_namespaces: true, ..Default::default() };
    let expected = cri::RuntimeStatus {
        handlers: vec![default, runc],
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
        first_user: None,
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
    let expected = cri::Image {
        id: "sha256:1".into(),
        size: 4_096,
        digests: vec!["docker.io/library/busybox@sha256:2".into()],
        user: ImageUser::Uid(1_000),
    };
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
    let names: edged::ImportResponse = whole(&names);
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
