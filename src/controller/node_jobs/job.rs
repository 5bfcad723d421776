//! A job as the API server has it: the part of its spec that is for the cloud, and its status
//! (spec `servicebus-router-tasks`, sections 16 to 19). The spec itself goes to the nodes as it
//! came.
//!
//! Fields of a status that are not known here stay.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::super::key::Key;
use super::super::nullable::Nullable;
use super::super::object::Object;
use super::selector::Selector;
use crate::limits::{
    JOB_CONFIRM_S, JOB_NODES_MAX, JOB_REASON_CHARS_MAX, JOB_STATUS_BYTES_MAX, JOB_TIMEOUT_S,
};
use crate::model::api::{Call, Kind, PatchType, Subresource, Verb};
use crate::model::cloud_message::Content;
use crate::model::error::Peer;
use crate::model::node_job::{JobAction, JobKey, JobKind, JobSpec, PrePullSpec};
use crate::model::raw;

/// A job.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) kind: JobKind,
    pub(super) uid: Arc<str>,
    /// `resourceVersion`
    pub(super) version: u64,
    /// It has a `deletionTimestamp`.
    pub(super) is_ending: bool,
    finalizers: Vec<String>,
    /// Or why no node can be asked.
    pub(super) spec: Result<Spec, String>,
    /// The spec as it came.
    pub(super) raw_spec: Arc<RawValue>,
    pub(super) status: Status,
    /// The whole object, for people.
    pub(super) text: Arc<RawValue>,
}

/// What the cloud does with a job.
#[derive(Debug)]
pub(super) struct Spec {
    /// `nodeNames`, each once.
    pub(super) names: Vec<Box<str>>,
    /// `labelSelector`
    pub(super) selector: Option<Selector>,
    /// Nodes at once.
    pub(super) concurrency: usize,
    /// `failureTolerate`: the share of nodes that may fail, in hundredths.
    pub(super) tolerated: u64,
    /// For each action.
    pub(super) timeout_s: u64,
    /// The Secret that a node needs to pull the images.
    pub(super) secret: Option<Key>,
    /// What is to be pulled, for the messages of v1alpha1.
    pub(super) pre_pull: PrePullSpec,
}

/// `status.phase`
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum JobPhase {
    /// Nobody has looked at the job yet.
    #[default]
    #[serde(rename = "")]
    New,
    /// Its nodes are known.
    Init,
    InProgress,
    Completed,
    Failure,
}

impl JobPhase {
    /// As it is written.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::New => "",
            Self::Init => "Init",
            Self::InProgress => "InProgress",
            Self::Completed => "Completed",
            Self::Failure => "Failure",
        }
    }

    pub(super) fn is_final(self) -> bool {
        matches!(self, Self::Completed | Self::Failure)
    }
}

/// `status.nodeStatus[].phase`
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) enum NodePhase {
    /// It was not asked yet.
    #[default]
    #[serde(alias = "")]
    Pending,
    InProgress,
    /// It did not report in time.
    Unknown,
    Successful,
    Failure,
}

impl NodePhase {
    /// As it is written.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::InProgress => "InProgress",
            Self::Unknown => "Unknown",
            Self::Successful => "Successful",
            Self::Failure => "Failure",
        }
    }

    /// Whether the job waits for it no more.
    pub(super) fn is_over(self) -> bool {
        !matches!(self, Self::Pending | Self::InProgress)
    }

    /// Whether it counts as failed.
    pub(super) fn is_failed(self) -> bool {
        matches!(self, Self::Failure | Self::Unknown)
    }
}

/// `status`, of all three kinds.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Status {
    pub(super) phase: JobPhase,
    pub(super) reason: Box<str>,
    #[serde(rename = "nodeStatus")]
    pub(super) nodes: Vec<NodeStatus>,
}

/// One of `status.nodeStatus`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct NodeStatus {
    #[serde(rename = "nodeName")]
    pub(super) name: Box<str>,
    pub(super) phase: NodePhase,
    /// Why it failed; while it works, when it was asked or has reported last.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(super) reason: Box<str>,
    #[serde(rename = "actionFlow", skip_serializing_if = "Vec::is_empty")]
    pub(super) actions: Vec<ActionStatus>,
    /// Of a pre-pull.
    #[serde(rename = "imageStatus", skip_serializing_if = "Vec::is_empty")]
    pub(super) images: Vec<ImageStatus>,
    /// Of an upgrade.
    #[serde(rename = "historicVersion", skip_serializing_if = "str::is_empty")]
    pub(super) from: Box<str>,
    #[serde(rename = "currentVersion", skip_serializing_if = "str::is_empty")]
    pub(super) to: Box<str>,
    #[serde(flatten)]
    others: Map<String, Value>,
}

impl NodeStatus {
    pub(super) fn new(name: &str, phase: NodePhase, reason: &str) -> Self {
        Self { name: name.into(), phase, reason: shortened(reason), ..Self::default() }
    }
}

/// The result of an action, as a node has reported it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct ActionStatus {
    pub(super) action: Box<str>,
    /// `True` or `False`.
    pub(super) status: Box<str>,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(super) reason: Box<str>,
    /// By the node's clock, RFC 3339.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(super) time: Box<str>,
}

/// The result of one image.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct ImageStatus {
    pub(super) image: Box<str>,
    /// `True` or `False`.
    pub(super) status: Box<str>,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub(super) reason: Box<str>,
}

/// The first characters of a reason.
pub(super) fn shortened(reason: &str) -> Box<str> {
    match reason.char_indices().nth(JOB_REASON_CHARS_MAX) {
        Some((at, _)) => reason[..at].into(),
        None => reason.into(),
    }
}

#[derive(Deserialize)]
struct Document<'a> {
    #[serde(default)]
    metadata: Metadata,
    #[serde(borrow)]
    spec: Option<&'a RawValue>,
    #[serde(default)]
    status: Nullable<Status>,
}

#[derive(Default, Deserialize)]
struct Metadata {
    #[serde(default)]
    finalizers: Nullable<Vec<String>>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct PrePull {
    image_pre_pull_template: Nullable<Fields>,
}

/// The fields that all kinds have.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Fields {
    node_names: Nullable<Vec<Box<str>>>,
    label_selector: Option<Selector>,
    concurrency: Nullable<i64>,
    failure_tolerate: Nullable<Box<str>>,
    timeout_seconds: Nullable<i64>,
    require_confirmation: Nullable<bool>,
    images: Nullable<Vec<Box<str>>>,
    check_items: Nullable<Vec<Box<str>>>,
    /// `namespace/name`
    image_secrets: Nullable<Box<str>>,
    retry_times: Nullable<i32>,
}

/// The kind of a job's object; `None`: it is no job.
pub(in crate::controller) fn kind_of(kind: Kind) -> Option<JobKind> {
    match kind {
        Kind::ImagePrePullJob => Some(JobKind::PrePull),
        Kind::NodeUpgradeJob => Some(JobKind::Upgrade),
        Kind::ConfigUpdateJob => Some(JobKind::ConfigUpdate),
        _ => None,
    }
}

impl Job {
    /// Of an object of the API server.
    pub(super) fn read(kind: JobKind, object: &Object) -> Result<Self, Peer> {
        let document: Document<'_> = serde_json::from_str(object.json.get())
            .map_err(|error| Peer::new(error.to_string()))?;
        let nothing = serde_json::from_str("{}").expect("JSON");
        let raw_spec: &RawValue = document.spec.unwrap_or(nothing);
        Ok(Self {
            kind,
            uid: Arc::clone(&object.uid),
            version: object.version,
            is_ending: object.is_ending,
            finalizers: document.metadata.finalizers.0,
            spec: Spec::read(kind, raw_spec),
            raw_spec: Arc::from(raw_spec.to_owned()),
            status: document.status.0,
            text: Arc::clone(&object.json),
        })
    }

    /// The request for a stage of v1alpha1.
    pub(super) fn stage(&self, key: &JobKey, action: JobAction) -> Content {
        let pre_pull = self.spec.as_ref().map(|spec| spec.pre_pull.clone()).unwrap_or_default();
        let spec = if action == JobAction::Check {
            JobSpec::Checks(pre_pull.check_items)
        } else {
            JobSpec::PrePull(pre_pull)
        };
        Content::JobStage(Box::new((key.clone(), action, spec)))
    }

    /// The finalizer of KubeEdge's controller-manager, which nobody would remove while that does
    /// not run.
    fn finalizer(&self) -> String {
        format!("kubeedge.io/{}-controller", self.kind.resource())
    }

    /// Whether the job is deleted, and waits for its finalizer to be removed.
    pub(super) fn is_held(&self) -> bool {
        self.is_ending && self.finalizers.contains(&self.finalizer())
    }

    /// The call that lets a deleted job go.
    pub(super) fn release(&self, key: &Key) -> Call {
        let own = self.finalizer();
        let others: Vec<&String> = self.finalizers.iter().filter(|it| **it != own).collect();
        let version = self.version.to_string();
        let body = json!({"metadata": {"resourceVersion": version, "finalizers": others}});
        patch(key, None, &body)
    }

    /// The call that writes this status; it fails if another has written meanwhile.
    pub(super) fn write(&self, key: &Key, status: &Status) -> Call {
        let mut new = json!({"phase": status.phase, "reason": status.reason});
        if status.nodes != self.status.nodes {
            new["nodeStatus"] = Value::Array(bounded(&status.nodes));
        }
        let metadata = json!({"resourceVersion": self.version.to_string()});
        let body = json!({"metadata": metadata, "status": new});
        patch(key, Some(Subresource::Status), &body)
    }
}

fn patch(key: &Key, subresource: Option<Subresource>, body: &Value) -> Call {
    Call {
        verb: Verb::Patch(PatchType::Merge),
        kind: key.kind,
        namespace: "".into(),
        name: key.name.as_ref().into(),
        subresource,
        body: Some(raw::json(body)),
    }
}

/// The list of nodes, within [`JOB_STATUS_BYTES_MAX`].
fn bounded(nodes: &[NodeStatus]) -> Vec<Value> {
    let mut list: Vec<Value> = nodes.iter().map(|node| json!(node)).collect();
    let is_large = |list: &[Value]| {
        list.iter().map(|node| node.to_string().len() + 1).sum::<usize>() > JOB_STATUS_BYTES_MAX
    };
    for part in ["imageStatus", "actionFlow"] {
        if !is_large(&list) {
            break;
        }
        // What a node that works has reported decides whether it is asked again.
        for node in list.iter_mut().filter(|node| node["phase"] != "InProgress") {
            node.as_object_mut().expect("a node's status").remove(part);
        }
    }
    list
}

impl Spec {
    fn read(kind: JobKind, raw: &RawValue) -> Result<Self, String> {
        let wrong = |error: serde_json::Error| format!("spec: {error}");
        let (fields, place) = if kind == JobKind::PrePull {
            let read: PrePull = serde_json::from_str(raw.get()).map_err(wrong)?;
            (read.image_pre_pull_template.0, "spec.imagePrePullTemplate")
        } else {
            (serde_json::from_str::<Fields>(raw.get()).map_err(wrong)?, "spec")
        };
        if kind == JobKind::PrePull && fields.images.is_empty() {
            return Err(format!("{place}.images: got none, expected images"));
        }
        let mut names = fields.node_names.0;
        let mut seen = std::collections::BTreeSet::new();
        names.retain(|name| seen.insert(name.clone()));
        match (names.is_empty(), &fields.label_selector) {
            (false, Some(_)) => {
                return Err(
                    "nodeNames and nodeSelector cannot be specified at the same time".to_owned()
                );
            }
            (true, None) => {
                return Err("nodeNames and nodeSelector cannot both be empty".to_owned());
            }
            (true, Some(_)) | (false, None) => {}
        }
        if names.len() > JOB_NODES_MAX {
            let got = names.len();
            return Err(format!("{place}.nodeNames: got {got}, expected {JOB_NODES_MAX} at most"));
        }
        let default_s = if fields.require_confirmation.0 { JOB_CONFIRM_S } else { JOB_TIMEOUT_S };
        let timeout_s = u64::try_from(fields.timeout_seconds.0).ok().filter(|it| *it > 0);
        Ok(Self {
            names,
            selector: fields.label_selector,
            concurrency: usize::try_from(fields.concurrency.0).unwrap_or(0).max(1),
            tolerated: tolerated(&fields.failure_tolerate)
                .map_err(|why| format!("{place}.failureTolerate: {why}"))?,
            timeout_s: timeout_s.unwrap_or(default_s),
            secret: secret(&fields.image_secrets)
                .map_err(|why| format!("{place}.imageSecrets: {why}"))?,
            pre_pull: PrePullSpec {
                images: fields.images.0,
                check_items: fields.check_items.0,
                image_secret: fields.image_secrets.0,
                retry_times: fields.retry_times.0,
            },
        })
    }
}

/// From `0.1`; nothing is 0.
fn tolerated(text: &str) -> Result<u64, String> {
    if text.is_empty() {
        return Ok(0);
    }
    let share: Option<f64> = text.parse().ok().filter(|share| (0.0..=1.0).contains(share));
    let share = share.ok_or_else(|| format!("got {text:?}, expected a number from 0 to 1"))?;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to 100")]
    let hundredths = (share * 100.0).round() as u64;
    Ok(hundredths)
}

fn secret(text: &str) -> Result<Option<Key>, String> {
    if text.is_empty() {
        return Ok(None);
    }
    match text.split_once('/') {
        Some((namespace, name)) if !namespace.is_empty() && !name.is_empty() => {
            Ok(Some(Key::new(Kind::Secret, namespace, name)))
        }
        _ => Err(format!("got {text:?}, expected namespace/name")),
    }
}
