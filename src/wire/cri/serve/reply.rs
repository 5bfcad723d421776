//! Replies, written as they are made: a list of a full node each second copies no label.

use std::sync::Arc;

use crate::model::cri::{
    ImageUser, IpcNamespace, Mount, Namespaces, Network, PidNamespace, Propagation, Resources,
    UserRange,
};
use crate::model::runtime::{
    Conditions, ContainerPhase, ContainerRecord, EventKind, ExitReason, ImageRecord, Reply,
    RuntimeEvent, SandboxRecord, Usage,
};
use crate::wire::protobuf::Writer;

/// What replies have that is not of the core.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    /// `runtime_version`
    pub version: &'a str,
    /// The folder of the images' layers, and that of the containers' own: absolute.
    pub layers: &'a str,
    pub own_layers: &'a str,
    /// Nanoseconds since 1970.
    pub now: i64,
    /// [`super::Call::verbose`]
    pub verbose: bool,
}

/// The message of a reply.
pub fn encode(reply: &Reply, context: &Context<'_>) -> Vec<u8> {
    let mut out = Writer::default();
    let w = &mut out;
    match reply {
        Reply::Version => {
            w.text(1, "0.1.0");
            w.text(2, "edged");
            w.text(3, context.version);
            w.text(4, "v1");
        }
        Reply::Status(conditions) => status(w, conditions),
        Reply::RuntimeConfig => w.message(1, &mut |linux| linux.number(1, CGROUPFS)),
        Reply::Sandbox(id) => w.text(1, &id.0),
        Reply::Container(id) => w.text(1, &id.0),
        Reply::Pulled(id) => w.text(1, &id.0),
        Reply::SandboxStatus(record) => w.message(1, &mut |w| sandbox_status(w, record)),
        Reply::Sandboxes(records) => {
            for record in records {
                w.message(1, &mut |w| sandbox(w, record));
            }
        }
        Reply::ContainerStatus(record, image) => {
            w.message(1, &mut |w| container_status(w, record, image.as_ref()));
            if context.verbose {
                info(w, record);
            }
        }
        Reply::Containers(all) => {
            for (record, image) in all {
                w.message(1, &mut |w| container(w, record, image.as_ref()));
            }
        }
        Reply::Exec(output) => {
            w.bytes(1, &output.stdout);
            w.bytes(2, &output.stderr);
            w.signed(3, output.exit_code.into());
        }
        Reply::Url(url) => w.text(1, url),
        Reply::ContainerStats(all) => {
            for (record, usage) in all {
                w.message(1, &mut |w| container_stats(w, record, usage, context));
            }
        }
        Reply::SandboxStats(all) => {
            for (record, usage) in all {
                w.message(1, &mut |w| sandbox_stats(w, record, usage));
            }
        }
        Reply::Images(records) => {
            for record in records {
                w.message(1, &mut |w| image(w, record));
            }
        }
        Reply::Image(record) => {
            if let Some(record) = record {
                w.message(1, &mut |w| image(w, record));
            }
        }
        Reply::ImageFs { used_bytes } => {
            w.message(1, &mut |w| file_system(w, context, context.layers, Some(*used_bytes), None));
            w.message(2, &mut |w| file_system(w, context, context.own_layers, None, None));
        }
        Reply::Imported(names) => w.texts(1, names),
        Reply::Done => {}
    }
    out.into_bytes()
}

/// `ContainerEventResponse`
pub fn encode_event(event: &RuntimeEvent) -> Vec<u8> {
    let kind = match event.kind {
        EventKind::Created => 0,
        EventKind::Started => 1,
        EventKind::Stopped => 2,
        EventKind::Deleted => 3,
    };
    let mut out = Writer::default();
    out.text(1, &event.id);
    out.number(2, kind);
    out.signed(3, event.at);
    if let Some(record) = &event.sandbox {
        out.message(4, &mut |w| sandbox_status(w, record));
    }
    for (record, image) in &event.containers {
        out.message(5, &mut |w| container_status(w, record, image.as_ref()));
    }
    out.into_bytes()
}

/// `CgroupDriver`
const CGROUPFS: u64 = 1;

/// `StatusResponse`
fn status(w: &mut Writer, conditions: &Conditions) {
    let all = [("RuntimeReady", &conditions.runtime), ("NetworkReady", &conditions.network)];
    w.message(1, &mut |w| {
        for (name, condition) in all {
            w.message(1, &mut |w| {
                w.text(1, name);
                w.flag(2, condition.is_ok());
                if let Err((reason, message)) = condition {
                    w.text(3, reason);
                    w.text(4, message);
                }
            });
        }
    });
    for handler in &conditions.handlers {
        w.message(3, &mut |w| {
            w.text(1, &handler.name);
            w.message(2, &mut |features| {
                features.flag(1, handler.recursive_read_only);
                features.flag(2, handler.user_namespaces);
            });
        });
    }
    // `supplemental_groups_policy`
    w.message(4, &mut |features| features.flag(1, true));
}

/// `PodSandbox`
fn sandbox(w: &mut Writer, record: &SandboxRecord) {
    w.text(1, &record.id.0);
    sandbox_metadata(w, 2, record);
    w.flag(3, !record.is_ready());
    w.signed(4, record.created_at);
    w.map(5, &record.config.labels);
    w.map(6, &record.config.annotations);
    w.text(7, &record.config.runtime_handler);
}

/// `PodSandboxStatus`
fn sandbox_status(w: &mut Writer, record: &SandboxRecord) {
    w.text(1, &record.id.0);
    sandbox_metadata(w, 2, record);
    w.flag(3, !record.is_ready());
    w.signed(4, record.created_at);
    w.message(5, &mut |network| {
        let mut ips = record.ips.iter();
        network.text(1, ips.next().map_or("", |ip| ip));
        for ip in ips {
            network.message(2, &mut |additional| additional.text(1, ip));
        }
    });
    w.message(6, &mut |linux| {
        linux.message(1, &mut |w| w.message(2, &mut |w| namespaces(w, &record.config.namespaces)));
    });
    w.map(7, &record.config.labels);
    w.map(8, &record.config.annotations);
    w.text(9, &record.config.runtime_handler);
}

/// `PodSandboxMetadata`
fn sandbox_metadata(w: &mut Writer, field: u32, record: &SandboxRecord) {
    let pod = &record.config.pod;
    w.message(field, &mut |w| {
        w.text(1, &pod.name);
        w.text(2, &pod.uid);
        w.text(3, &pod.namespace);
        w.number(4, record.config.attempt.into());
    });
}

/// `NamespaceOption`
fn namespaces(w: &mut Writer, options: &Namespaces) {
    const POD: u64 = 0;
    const CONTAINER: u64 = 1;
    const NODE: u64 = 2;
    const TARGET: u64 = 3;
    w.number(
        1,
        match options.network {
            Network::Pod => POD,
            Network::Node => NODE,
        },
    );
    w.number(
        2,
        match options.pid {
            PidNamespace::Pod => POD,
            PidNamespace::Container => CONTAINER,
            PidNamespace::Node => NODE,
            PidNamespace::Target(_) => TARGET,
        },
    );
    w.number(
        3,
        match options.ipc {
            IpcNamespace::Pod => POD,
            IpcNamespace::Node => NODE,
        },
    );
    if let PidNamespace::Target(id) = &options.pid {
        w.text(4, &id.0);
    }
    if let Some(users) = options.users {
        w.message(5, &mut |w| {
            mapping(w, 2, users);
            mapping(w, 3, users);
        });
    }
}

/// `IDMapping`
fn mapping(w: &mut Writer, field: u32, users: UserRange) {
    w.message(field, &mut |w| {
        w.number(1, users.first.into());
        w.number(3, users.count.into());
    });
}

/// `Container`
fn container(w: &mut Writer, record: &ContainerRecord, image: Option<&Arc<ImageRecord>>) {
    w.text(1, &record.id.0);
    w.text(2, &record.sandbox.0);
    container_metadata(w, 3, record);
    image_spec(w, 4, record, image);
    w.text(5, image_ref(record, image));
    w.number(6, state(record));
    w.signed(7, record.created_at);
    w.map(8, &record.config.labels);
    w.map(9, &record.config.annotations);
    w.text(10, &record.image.0);
}

/// `ContainerStatus`
fn container_status(w: &mut Writer, record: &ContainerRecord, image: Option<&Arc<ImageRecord>>) {
    w.text(1, &record.id.0);
    container_metadata(w, 2, record);
    w.number(3, state(record));
    w.signed(4, record.created_at);
    match &record.phase {
        ContainerPhase::Created | ContainerPhase::Starting(_) => {}
        ContainerPhase::Running { started_at, process: _ } => w.signed(5, *started_at),
        ContainerPhase::Exited(exit) => {
            w.signed(5, exit.started_at);
            w.signed(6, exit.finished_at);
            w.signed(7, exit.code.into());
            w.text(
                10,
                match exit.reason {
                    ExitReason::Completed => "Completed",
                    ExitReason::Error => "Error",
                    ExitReason::OomKilled => "OOMKilled",
                    ExitReason::StartError => "StartError",
                    ExitReason::Unknown => "Unknown",
                },
            );
            w.text(11, &exit.message);
        }
    }
    image_spec(w, 8, record, image);
    w.text(9, image_ref(record, image));
    w.map(12, &record.config.labels);
    w.map(13, &record.config.annotations);
    for mounted in &record.config.mounts {
        w.message(14, &mut |w| mount(w, mounted));
    }
    w.text(15, &record.log);
    if record.config.resources != Resources::default() {
        w.message(16, &mut |w| w.message(1, &mut |w| resources(w, &record.config.resources)));
    }
    w.text(17, &record.image.0);
}

/// `info` of a running container: its process.
fn info(w: &mut Writer, record: &ContainerRecord) {
    if let ContainerPhase::Running { process, .. } = &record.phase {
        let text = format!("{{\"pid\":{}}}", process.pid);
        w.map(2, &[("info".to_owned(), text)].into());
    }
}

/// `ContainerMetadata`
fn container_metadata(w: &mut Writer, field: u32, record: &ContainerRecord) {
    w.message(field, &mut |w| {
        w.text(1, &record.config.name);
        w.number(2, record.config.attempt.into());
    });
}

/// `ContainerState`
fn state(record: &ContainerRecord) -> u64 {
    match record.phase {
        ContainerPhase::Created | ContainerPhase::Starting(_) => 0,
        ContainerPhase::Running { .. } => 1,
        ContainerPhase::Exited(_) => 2,
    }
}

/// `ImageSpec`: the image's first tag where it has one, else as the request had it.
fn image_spec(
    w: &mut Writer,
    field: u32,
    record: &ContainerRecord,
    image: Option<&Arc<ImageRecord>>,
) {
    let tag = image.and_then(|image| image.tags.first());
    w.message(field, &mut |w| {
        w.text(1, tag.unwrap_or(&record.config.image_ref));
        w.text(18, &record.config.image);
    });
}

/// `image_ref`: a repository's digest where there is one, else the id.
fn image_ref<'a>(record: &'a ContainerRecord, image: Option<&'a Arc<ImageRecord>>) -> &'a str {
    image.and_then(|image| image.digests.first()).unwrap_or(&record.image.0)
}

/// `Mount`
fn mount(w: &mut Writer, mount: &Mount) {
    w.text(1, &mount.container_path);
    w.text(2, &mount.host_path);
    w.flag(3, mount.readonly);
    w.number(
        5,
        match mount.propagation {
            Propagation::Private => 0,
            Propagation::HostToContainer => 1,
            Propagation::Bidirectional => 2,
        },
    );
    if let Some(users) = mount.users {
        mapping(w, 6, users);
        mapping(w, 7, users);
    }
    w.flag(8, mount.recursive_read_only);
    if let Some((image, user_specified)) = &mount.image {
        w.message(9, &mut |w| {
            w.text(1, image);
            w.text(18, user_specified);
        });
    }
}

/// `LinuxContainerResources`
fn resources(w: &mut Writer, resources: &Resources) {
    w.signed(1, resources.cpu_period);
    w.signed(2, resources.cpu_quota);
    w.signed(3, resources.cpu_shares);
    w.signed(4, resources.memory_limit);
    w.signed(5, resources.oom_score_adj);
    w.text(6, &resources.cpuset_cpus);
    w.text(7, &resources.cpuset_mems);
    for (size, limit) in &resources.hugepages {
        w.message(8, &mut |w| {
            w.text(1, size);
            w.number(2, *limit);
        });
    }
    w.map(9, &resources.unified);
    w.signed(10, resources.memory_swap_limit);
}

/// `Image`
fn image(w: &mut Writer, record: &ImageRecord) {
    w.text(1, &record.id.0);
    w.texts(2, &record.tags);
    w.texts(3, &record.digests);
    w.number(4, record.size);
    match record.config.image_user() {
        ImageUser::Unset => {}
        ImageUser::Uid(uid) => w.message(5, &mut |value| value.signed(1, uid)),
        ImageUser::Name(name) => w.text(6, &name),
    }
    w.flag(8, record.pinned);
}

/// `ContainerStats`
fn container_stats(w: &mut Writer, record: &ContainerRecord, usage: &Usage, context: &Context<'_>) {
    w.message(1, &mut |w| {
        w.text(1, &record.id.0);
        container_metadata(w, 2, record);
        w.map(3, &record.config.labels);
        w.map(4, &record.config.annotations);
    });
    cpu_and_memory(w, [2, 3], usage);
    if let Some((bytes, inodes)) = usage.layer {
        let context = Context { now: usage.at, ..*context };
        let folder = context.own_layers;
        w.message(4, &mut |w| file_system(w, &context, folder, Some(bytes), Some(inodes)));
    }
}

/// `PodSandboxStats`
fn sandbox_stats(w: &mut Writer, record: &SandboxRecord, usage: &Usage) {
    w.message(1, &mut |w| {
        w.text(1, &record.id.0);
        sandbox_metadata(w, 2, record);
        w.map(3, &record.config.labels);
        w.map(4, &record.config.annotations);
    });
    w.message(2, &mut |w| {
        cpu_and_memory(w, [1, 2], usage);
        if let Some(counters) = usage.network {
            w.message(3, &mut |w| {
                w.signed(1, usage.at);
                w.message(2, &mut |w| {
                    w.text(1, "eth0");
                    for (field, counter) in (2..).zip(counters) {
                        counted(w, field, Some(counter));
                    }
                });
            });
        }
        if usage.processes.is_some() {
            w.message(4, &mut |w| {
                w.signed(1, usage.at);
                counted(w, 2, usage.processes);
            });
        }
    });
}

/// `CpuUsage`, `MemoryUsage`
fn cpu_and_memory(w: &mut Writer, [cpu, memory]: [u32; 2], usage: &Usage) {
    if usage.cpu_ns.is_some() {
        w.message(cpu, &mut |w| {
            w.signed(1, usage.at);
            counted(w, 2, usage.cpu_ns);
        });
    }
    let working_set = usage.memory_working_set;
    if usage.memory_usage.is_some() || working_set.is_some() {
        let available = usage.memory_limit.zip(working_set);
        w.message(memory, &mut |w| {
            w.signed(1, usage.at);
            counted(w, 2, working_set);
            counted(w, 3, available.map(|(limit, used)| limit.saturating_sub(used)));
            counted(w, 4, usage.memory_usage);
            counted(w, 5, usage.memory_rss);
            counted(w, 6, usage.page_faults);
            counted(w, 7, usage.major_page_faults);
        });
    }
}

/// `FilesystemUsage`
fn file_system(
    w: &mut Writer,
    context: &Context<'_>,
    folder: &str,
    bytes: Option<u64>,
    inodes: Option<u64>,
) {
    w.signed(1, context.now);
    w.message(2, &mut |id| id.text(1, folder));
    counted(w, 3, bytes);
    counted(w, 4, inodes);
}

/// `UInt64Value`
fn counted(w: &mut Writer, field: u32, value: Option<u64>) {
    if let Some(value) = value {
        w.message(field, &mut |w| w.number(1, value));
    }
}

#[cfg(test)]
mod tests;
