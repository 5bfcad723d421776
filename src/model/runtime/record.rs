//! What the built-in runtime keeps: on flash one record for each sandbox, container and image.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{ContainerConfig, ContainerId, ContainerState, ImageUser, SandboxConfig, SandboxId};

/// One file: `sb/ID.rec`, `c/ID.rec`, `images/HEX.rec`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    Sandbox(SandboxRecord),
    Container(ContainerRecord),
    Image(ImageRecord),
}

/// Names a record.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RecordKey {
    Sandbox(SandboxId),
    Container(ContainerId),
    Image(ImageId),
}

impl Record {
    pub fn key(&self) -> RecordKey {
        match self {
            Self::Sandbox(record) => RecordKey::Sandbox(record.id.clone()),
            Self::Container(record) => RecordKey::Container(record.id.clone()),
            Self::Image(record) => RecordKey::Image(record.id.clone()),
        }
    }
}

/// The kernel's `boot_id`: which boot a process or a mount belongs to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BootId(pub Box<str>);

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SandboxRecord {
    pub id: SandboxId,
    /// As `RunPodSandbox` asked for it.
    pub config: SandboxConfig,
    pub phase: SandboxPhase,
    /// Nanoseconds since 1970.
    pub created_at: i64,
    /// The first is `network.ip`. Empty on the host's network, and once it is stopped.
    pub ips: Vec<Box<str>>,
    /// The boot that its namespaces belong to.
    pub boot: BootId,
    /// The OCI runtime's program for all of its containers, absolute: that of its handler when it
    /// was made. Empty: the server's own choice.
    pub program: Box<str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SandboxPhase {
    /// Saved before anything of it is made: whatever a crash leaves is found by this.
    Making,
    /// `SANDBOX_READY`
    Ready,
    /// `SANDBOX_NOTREADY`: stopped, or from before a reboot; its network may not be taken down yet.
    Stopping,
    /// `SANDBOX_NOTREADY`: nothing of it is left but this record.
    NotReady,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerRecord {
    pub id: ContainerId,
    pub sandbox: SandboxId,
    /// As `CreateContainer` asked for it.
    pub config: ContainerConfig,
    /// Absolute: the sandbox's `log_directory` with the container's `log_path`. Empty: no log.
    pub log: Box<str>,
    /// What it is made of; the image may be gone.
    pub image: ImageId,
    /// Its layers, the lowest first: they stay while the container exists.
    pub layers: Vec<DiffId>,
    /// The image's stop signal by its number; 15 where it names none.
    pub stop_signal: i32,
    /// Nanoseconds since 1970.
    pub created_at: i64,
    pub phase: ContainerPhase,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ContainerPhase {
    /// `CONTAINER_CREATED`
    Created,
    /// A monitor was started for it: a process may live.
    Starting(BootId),
    /// `CONTAINER_RUNNING`
    Running {
        /// Nanoseconds since 1970.
        started_at: i64,
        process: Process,
    },
    /// `CONTAINER_EXITED`
    Exited(Exit),
}

/// A process, so that another one with its number is not taken for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    pub pid: i32,
    /// Field 22 of `/proc/PID/stat`, in clock ticks since boot.
    pub start_time: u64,
    pub boot: BootId,
}

/// How a container ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exit {
    /// Of the process; 128 and the signal's number; 128 where it could not be started; 255 where
    /// nobody knows.
    pub code: i32,
    pub reason: ExitReason,
    /// The OCI runtime's text where it could not be started.
    pub message: Box<str>,
    /// Nanoseconds since 1970; 0: it never ran.
    pub started_at: i64,
    /// Nanoseconds since 1970.
    pub finished_at: i64,
}

/// `reason` of an exited container: the variant's name, but `OOMKilled`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExitReason {
    /// Code 0.
    Completed,
    Error,
    /// The kernel's OOM killer took a process of its cgroup.
    OomKilled,
    StartError,
    /// Nobody saw it end: a reboot, or two crashes.
    Unknown,
}

/// `sha256:` and 64 hex digits of the image's configuration.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ImageId(pub Box<str>);

/// `sha256:` and 64 hex digits of a layer as an uncompressed archive: its folder's name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct DiffId(pub Box<str>);

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageRecord {
    pub id: ImageId,
    /// Full names with tags: `docker.io/library/busybox:1`.
    pub tags: Vec<Box<str>>,
    /// `NAME@sha256:…` of the manifest or index that was pulled; none for an imported one.
    pub digests: Vec<Box<str>>,
    /// The lowest first.
    pub layers: Vec<DiffId>,
    /// Bytes of its unpacked layers and its configuration; never 0.
    pub size: u64,
    /// Never to be removed.
    pub pinned: bool,
    pub config: ImageConfig,
}

/// The part `config` of an image's configuration (OCI image-spec).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImageConfig {
    /// `User` as written: `uid`, `name`, either with `:group`.
    pub user: Box<str>,
    /// `Env`: `NAME=value`.
    pub env: Vec<Box<str>>,
    /// `Entrypoint`
    pub entrypoint: Vec<Box<str>>,
    /// `Cmd`
    pub cmd: Vec<Box<str>>,
    /// `WorkingDir`
    pub working_dir: Box<str>,
    /// The keys of `Volumes`.
    pub volumes: Vec<Box<str>>,
    /// `StopSignal`: a name with or without `SIG`, or a number.
    pub stop_signal: Box<str>,
    /// `Labels`
    pub labels: BTreeMap<String, String>,
}

impl ImageConfig {
    /// `uid` and `username` of CRI's `Image`.
    pub fn image_user(&self) -> ImageUser {
        let user = self.user.split(':').next().unwrap_or_default();
        match user.parse::<u32>() {
            Ok(uid) => ImageUser::Uid(i64::from(uid)),
            Err(_) if user.is_empty() => ImageUser::Unset,
            Err(_) => ImageUser::Name(user.into()),
        }
    }
}

impl ContainerRecord {
    pub fn state(&self) -> ContainerState {
        match self.phase {
            ContainerPhase::Created | ContainerPhase::Starting(_) => ContainerState::Created,
            ContainerPhase::Running { .. } => ContainerState::Running,
            ContainerPhase::Exited(_) => ContainerState::Exited,
        }
    }
}

impl SandboxRecord {
    pub fn is_ready(&self) -> bool {
        self.phase == SandboxPhase::Ready
    }

    /// The cgroup of one of its containers, absolute in each hierarchy.
    pub fn cgroup(&self, container: &ContainerId) -> String {
        let parent = self.config.cgroup_parent.trim_end_matches('/');
        let parent = if parent.is_empty() { "/edged" } else { parent };
        format!("{parent}/{container}")
    }
}
