//! Jobs of the cloud for the node itself (spec `servicebus-router-tasks`, part C): what is asked,
//! and what the node reports. `wire/kubeedge/node_jobs` reads and writes the messages.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::time::Timestamp;
use super::tree::{fields, words};

/// The form of the messages. An answer is in the generation of its request: neither side of one
/// understands the other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Generation {
    /// `CloudCore` up to 1.20: one message for each stage, of which the cloud steers the order.
    V1Alpha1,
    /// Since 1.21: one message, and the node reports each action of the whole flow.
    #[default]
    V1Alpha2,
}

words!(Generation {
    "v1alpha1" => V1Alpha1,
    "v1alpha2" => V1Alpha2,
});

impl Generation {
    pub const fn name(self) -> &'static str {
        match self {
            Self::V1Alpha1 => "v1alpha1",
            Self::V1Alpha2 => "v1alpha2",
        }
    }
}

/// The kind of a job's object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum JobKind {
    /// `ImagePrePullJob`
    #[default]
    PrePull,
    /// `NodeUpgradeJob`
    Upgrade,
    /// `ConfigUpdateJob`, of v1alpha2 only.
    ConfigUpdate,
}

/// Which job of which node.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct JobKey {
    pub generation: Generation,
    pub kind: JobKind,
    /// `metadata.name` of the job, which has no namespace.
    pub name: Box<str>,
    pub node: Box<str>,
}

/// `imageprepulljob/nightly`
impl fmt::Display for JobKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.kind.resource(), self.name)
    }
}

words!(JobKind {
    "imageprepulljob" => PrePull,
    "nodeupgradejob" => Upgrade,
    "configupdatejob" => ConfigUpdate,
});

impl JobKind {
    /// Its name in a resource of v1alpha2.
    pub const fn resource(self) -> &'static str {
        match self {
            Self::PrePull => "imageprepulljob",
            Self::Upgrade => "nodeupgradejob",
            Self::ConfigUpdate => "configupdatejob",
        }
    }
}

/// One action of a job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum JobAction {
    /// The first stage of v1alpha1, which only asks whether the node does such jobs.
    #[default]
    Init,
    Check,
    /// An upgrade waits for somebody at the node.
    WaitingConfirmation,
    Pull,
    BackUp,
    Upgrade,
    /// Of the configuration.
    Update,
    RollBack,
}

words!(JobAction {
    "Init" => Init,
    "Check" => Check,
    "WaitingConfirmation" => WaitingConfirmation,
    "Pull" => Pull,
    "BackUp" => BackUp,
    "Upgrade" => Upgrade,
    "Update" => Update,
    "RollBack" => RollBack,
});

impl JobAction {
    const ALL: [Self; 8] = [
        Self::Init,
        Self::Check,
        Self::WaitingConfirmation,
        Self::Pull,
        Self::BackUp,
        Self::Upgrade,
        Self::Update,
        Self::RollBack,
    ];

    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|action| action.name() == name)
    }

    /// Its name in v1alpha2, which has no [`JobAction::Init`].
    pub const fn name(self) -> &'static str {
        match self {
            Self::Init => "Init",
            Self::Check => "Check",
            Self::WaitingConfirmation => "WaitingConfirmation",
            Self::Pull => "Pull",
            Self::BackUp => "BackUp",
            Self::Upgrade => "Upgrade",
            Self::Update => "Update",
            Self::RollBack => "RollBack",
        }
    }
}

/// A message for a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobRequest {
    pub key: JobKey,
    /// The stage that v1alpha1 asks for; in v1alpha2 the first one, mostly [`JobAction::Check`].
    pub action: JobAction,
    /// Or why it cannot be used.
    pub spec: Result<JobSpec, Box<str>>,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobSpec {
    PrePull(PrePullSpec),
    Upgrade(UpgradeSpec),
    /// The stage `Checking` of v1alpha1 names only what is to be checked.
    Checks(Vec<Box<str>>),
    /// Its fields are not read: such jobs are refused.
    ConfigUpdate,
}

/// The fields of `spec.imagePrePullTemplate` that a node reads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PrePullSpec {
    pub images: Vec<Box<str>>,
    /// Of `cpu`, `mem` and `disk`.
    pub check_items: Vec<Box<str>>,
    /// `namespace/name` of a Secret; empty: none.
    pub image_secret: Box<str>,
    /// More tries for what could not be pulled; not negative.
    pub retry_times: i32,
}

fields!(PrePullSpec {
    "images" => images,
    "checkItems" => check_items,
    "imageSecrets" => image_secret,
    "retryTimes" => retry_times,
});

/// The fields of a `NodeUpgradeJob`'s spec that a node reads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UpgradeSpec {
    /// `v1.2.3`
    pub version: Box<str>,
    /// A repository, with a digest or without; empty: not given.
    pub image: Box<str>,
    pub digests: ImageDigests,
    pub check_items: Vec<Box<str>>,
    pub require_confirmation: bool,
    /// Of v1alpha1: the digest of the image for this node; empty: not given.
    pub image_digest: Box<str>,
    /// Of v1alpha1: the id of the history entry.
    pub history_id: Box<str>,
}

fields!(UpgradeSpec {
    "version" => version,
    "image" => image,
    "imageDigestGatter" => digests,
    "checkItems" => check_items,
    "requireConfirmation" => require_confirmation,
    "imageDigest" => image_digest,
    "historyID" => history_id,
});

/// `imageDigestGatter`, as KubeEdge spells it: digests of the image by architecture.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImageDigests {
    pub amd64: Box<str>,
    pub arm64: Box<str>,
}

fields!(ImageDigests {
    "amd64" => amd64,
    "arm64" => arm64,
});

/// The report about one action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobReport {
    pub key: JobKey,
    pub action: JobAction,
    /// Or why it failed.
    pub result: Result<(), Box<str>>,
    /// When the action ended. `None` only of a report that was read: v1alpha1 has no time, and a
    /// malformed one is as good as none.
    pub at: Option<Timestamp>,
    pub detail: JobDetail,
}

/// What a report says beside its result.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum JobDetail {
    #[default]
    Nothing,
    /// Of [`JobAction::Pull`].
    Images(Vec<ImageResult>),
    /// Of the actions of an upgrade that have a version before and one after.
    Versions { from: Box<str>, to: Box<str> },
}

/// The result of one image of a pre-pull.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageResult {
    /// As the job names it.
    pub image: Box<str>,
    /// Or why it is not on the node.
    pub result: Result<(), Box<str>>,
}

/// A job as the store has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredJob {
    pub key: JobKey,
    /// Of the last stage that was asked for.
    pub spec: JobSpec,
    pub stage: JobStage,
    /// Of all actions that have ended, in order.
    pub reports: Vec<JobReport>,
    /// So many of them have reached the cloud.
    pub confirmed: usize,
    /// How far an upgrade is.
    pub upgrade: UpgradeProgress,
}

/// How far an upgrade is beyond its stage.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UpgradeProgress {
    /// Somebody at the node has confirmed it.
    pub is_confirmed: bool,
    /// The digest of the program whose trial was begun or is about to begin, `sha256:…`; empty:
    /// none. It is stored before the trial begins, so that whichever program runs afterwards
    /// reports what has become of it.
    pub program: Box<str>,
    /// The version of edged that began the trial, with `v`.
    pub from: Box<str>,
}

fields!(UpgradeProgress {
    "isConfirmed" => is_confirmed,
    "program" => program,
    "from" => from,
});

/// How far a job is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobStage {
    /// For the cloud's next message, or for somebody at the node.
    Waiting,
    Doing(JobAction),
    /// The last report is written. When; `None`: there was no clock.
    Finished(Option<Timestamp>),
}

/// A job in short, for the status display.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct JobOverview {
    /// `imageprepulljob/nightly`
    pub name: String,
    /// `Pull`, `waiting`, `finished`
    pub stage: String,
    /// Images that are on the node, and all of the job.
    pub images: (usize, usize),
    /// Why it failed, or what it waits for; empty: nothing.
    pub trouble: String,
    /// Reports that the cloud may not have got yet.
    pub unconfirmed: usize,
}

/// Counters of jobs since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JobMetrics {
    /// Jobs that have not finished.
    pub open: u64,
    pub succeeded: u64,
    pub failed: u64,
    pub refused: u64,
}
