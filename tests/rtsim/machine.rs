//! The machine: what is on its disk, what is on its tmpfs, and which processes live.

use std::collections::{BTreeMap, BTreeSet};

use edged::model::runtime::{
    BootId, ContainerId, DiffId, ImageConfig, ImageId, ImageRecord, Job, JobReply, MonitorFact,
    Process, Record, RecordKey, SandboxId, SandboxRecord, Usage,
};

/// What does not go with the server.
#[derive(Default)]
pub struct Machine {
    pub boots: u64,
    /// Records that no crash takes away.
    pub records: BTreeMap<RecordKey, Record>,
    /// Containers' own layers on the disk.
    pub data: BTreeSet<ContainerId>,
    pub layers: BTreeSet<DiffId>,
    /// Addresses of sandboxes, with CNI's results on the disk.
    pub addresses: BTreeSet<SandboxId>,
    /// Folders, mounts and namespaces of sandboxes on the tmpfs.
    pub sandboxes: BTreeSet<SandboxId>,
    /// Records in those folders: of sandboxes whose record on the disk may still be older.
    pub in_run: BTreeMap<SandboxId, SandboxRecord>,
    /// Those of them whose process namespace has ended: nothing can be started in them.
    pub unheld: BTreeSet<SandboxId>,
    /// Folders of containers on the tmpfs, with their exit records.
    pub folders: BTreeMap<ContainerId, Option<MonitorFact>>,
    pub processes: BTreeMap<ContainerId, Proc>,
    pub monitors: BTreeMap<ContainerId, Monitor>,
    /// State of the OCI runtime on the tmpfs: from the creation of a container until its deletion.
    pub oci: BTreeSet<ContainerId>,
    pub last_pid: i32,
    /// How processes have ended, with what the runtime can know of it.
    pub truth: BTreeMap<ContainerId, Truth>,
}

/// The first process of a container.
pub struct Proc {
    pub process: Process,
    /// Its program runs; before, it waits for the start.
    pub is_started: bool,
    pub started_at: i64,
    /// The server's life in which its monitor was started: who reaps it if that is gone.
    pub life: u64,
    /// What its cgroup allows.
    pub memory_limit: i64,
}

pub struct Monitor {
    /// Tells one monitor of a container from the next.
    pub number: u64,
    pub adopts: bool,
}

/// How a process has ended.
#[derive(Clone, Copy, Debug)]
pub struct Truth {
    pub code: i32,
    /// Somebody who lives has seen it, and has written it down.
    pub is_kept: bool,
    /// Its monitor was gone: its parent was the server.
    pub by_server: bool,
}

/// One thing that a job does.
#[derive(Clone, Debug)]
pub enum Effect {
    Sandbox(SandboxId, bool),
    Address(SandboxId, bool),
    Folder(ContainerId),
    Data(ContainerId, bool),
    Kill(ContainerId),
    /// Memory of a container that has a process.
    Limit(ContainerId, i64),
    NoFolder(ContainerId),
    Layer(DiffId, bool),
}

impl Machine {
    pub fn boot_id(&self) -> BootId {
        BootId(format!("boot-{}", self.boots).into())
    }

    /// The power fails: what is not on the disk is gone.
    pub fn power_cut(&mut self) {
        self.boots += 1;
        self.sandboxes.clear();
        self.in_run.clear();
        self.unheld.clear();
        self.folders.clear();
        self.oci.clear();
        self.monitors.clear();
        self.processes.clear();
    }

    /// The effects of a whole job, in their order.
    pub fn effects(job: &Job) -> Vec<Effect> {
        match job {
            Job::MakeSandbox(record) => {
                let id = &record.id;
                vec![
                    Effect::Address(id.clone(), false),
                    Effect::Sandbox(id.clone(), true),
                    Effect::Address(id.clone(), true),
                ]
            }
            Job::EndSandbox(record) => {
                let id = &record.id;
                vec![Effect::Address(id.clone(), false), Effect::Sandbox(id.clone(), false)]
            }
            Job::MakeContainer { container, .. } => {
                let id = &container.id;
                vec![Effect::Data(id.clone(), true), Effect::Folder(id.clone())]
            }
            Job::EndContainer(folder) => {
                vec![Effect::Kill(folder.id.clone()), Effect::NoFolder(folder.id.clone())]
            }
            Job::RemoveContainer(id) => vec![Effect::Data(id.clone(), false)],
            Job::Pull { image, .. } => {
                let all = image_of(image).layers.into_iter();
                all.map(|layer| Effect::Layer(layer, true)).collect()
            }
            Job::Import { .. } => {
                let all = ["a:1", "c:1"].into_iter().flat_map(|name| image_of(name).layers);
                all.map(|layer| Effect::Layer(layer, true)).collect()
            }
            Job::RemoveLayers { layers, .. } => {
                layers.iter().map(|layer| Effect::Layer(layer.clone(), false)).collect()
            }
            Job::Update { container, resources } => {
                vec![Effect::Limit(container.id.clone(), resources.memory_limit)]
            }
            Job::Exec { .. } | Job::Open(_) | Job::Stats(_) => Vec::new(),
        }
    }

    pub fn apply(&mut self, effect: Effect) {
        match effect {
            Effect::Sandbox(id, is_there) => {
                self.unheld.remove(&id);
                if is_there {
                    self.sandboxes.insert(id);
                } else {
                    self.sandboxes.remove(&id);
                    self.in_run.remove(&id);
                }
            }
            Effect::Address(id, true) => drop(self.addresses.insert(id)),
            Effect::Address(id, false) => drop(self.addresses.remove(&id)),
            Effect::Folder(id) => drop(self.folders.entry(id).or_insert(None)),
            Effect::Data(id, true) => drop(self.data.insert(id)),
            Effect::Data(id, false) => drop(self.data.remove(&id)),
            Effect::Kill(id) => {
                self.processes.remove(&id);
                self.monitors.remove(&id);
                self.oci.remove(&id);
            }
            Effect::Limit(id, limit) => {
                if let Some(process) = self.processes.get_mut(&id) {
                    process.memory_limit = limit;
                }
            }
            Effect::NoFolder(id) => drop(self.folders.remove(&id)),
            Effect::Layer(id, true) => drop(self.layers.insert(id)),
            Effect::Layer(id, false) => drop(self.layers.remove(&id)),
        }
    }

    /// What a job that succeeds answers.
    pub fn reply(job: &Job) -> JobReply {
        match job {
            Job::MakeSandbox(_) => JobReply::Network(vec!["10.1.0.2".into()]),
            Job::Exec { .. } => JobReply::Exec(edged::model::runtime::ExecOutput::default()),
            Job::Open(_) => JobReply::Url("unix:///run/s/0-1".into()),
            Job::Pull { image, .. } => JobReply::Image(Box::new(image_of(image))),
            Job::Import { .. } => JobReply::Images(vec![image_of("a:1"), image_of("c:1")]),
            Job::Stats(of) => {
                let one = |of: &edged::model::runtime::StatsOf| Usage {
                    layer: of.layer_of.as_ref().map(|_| (1, 1)),
                    ..Usage::default()
                };
                JobReply::Stats(of.iter().map(one).collect())
            }
            Job::EndSandbox(_)
            | Job::MakeContainer { .. }
            | Job::EndContainer(_)
            | Job::Update { .. }
            | Job::RemoveContainer(_)
            | Job::RemoveLayers { .. } => JobReply::Done,
        }
    }
}

/// The image that a registry has under this name. `NAME:TAG#2` is what the tag has later.
pub fn image_of(name: &str) -> ImageRecord {
    let hex = |text: &str| {
        let sum = text.bytes().fold(7_u64, |sum, byte| sum.wrapping_mul(31) + u64::from(byte));
        format!("sha256:{}", format!("{sum:016x}").repeat(4))
    };
    let layer = |text: &str| DiffId(hex(text).into());
    let tag = name.split('#').next().expect("one part at least");
    ImageRecord {
        id: ImageId(hex(name).into()),
        tags: vec![format!("docker.io/library/{tag}").into()],
        digests: Vec::new(),
        layers: vec![layer("base"), layer(name)],
        size: 1_000,
        pinned: false,
        config: ImageConfig::default(),
    }
}
