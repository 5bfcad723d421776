//! The rows of the store as JSON: which object one has, in which state, and what of it is stored;
//! and the rows that the node itself makes.
//!
//! All JSON of the cloud side is here, and none is elsewhere in the core. It is not decoded in
//! `wire`, nor row by row when the store is read, because **whether** a text is decoded is decided
//! here. An object that has not changed since it was stored, mostly the echo of a status that we
//! wrote ourselves, is known by a digest of its text and never becomes a struct; one that is too
//! large for the memory is refused before it becomes one, and the cloud gets the reason. Decoded
//! at delivery, each echo would cost what only a change costs now. The store is read at once as
//! texts, of which one after another is decoded and counted: 256 KiB of JSON may be 87 MB of
//! values. And the rows are `EdgeCore`'s: texts as the cloud sent them, which both directions of
//! this file have to keep.
//!
//! `metadata.managedFields` is left out: it is a third of all bytes, and only says who wrote which
//! field at the API server. The rest is stored as it came.

#[cfg(feature = "devices")]
mod device_edit;
#[cfg(feature = "node-jobs")]
mod job;

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::agent;
use crate::agent::pod::DISRUPTED;
#[cfg(feature = "metaserver-auth")]
use crate::limits::ACCESS_VALUES_MAX;
use crate::limits::Budget;
#[cfg(feature = "metaserver-auth")]
use crate::model::access::Access;
#[cfg(feature = "devices")]
use crate::model::base64;
#[cfg(feature = "devices")]
use crate::model::device::{DeviceObject, Mapper, ModelObject};
use crate::model::message::Resource;
#[cfg(feature = "node-jobs")]
use crate::model::node_job::StoredJob;
use crate::model::object::{Object, Secret};
#[cfg(feature = "metaserver")]
use crate::model::pod::Metadata;
use crate::model::pod::{HOLD, MIRROR, Pod, ReadinessGate, SOURCE};
use crate::model::status::{
    Condition, ConditionKind, ContainerStatus, Phase, PodStatus, State, Terminated,
};
use crate::model::time::Timestamp;
use crate::model::token::Token;
use crate::model::tree::{self, Fault, Read as _, fields};
use crate::model::upstream::TokenRequest;

#[cfg(feature = "devices")]
pub(super) use device_edit::{DEVICE_EDIT, DeviceEdit};
#[cfg(feature = "node-jobs")]
pub(super) use job::{NODE_JOB, node_job};

/// An object of a message, parsed as far as necessary to decide whether it has changed.
#[derive(Debug)]
pub(super) struct Content<'a> {
    kind: &'a str,
    /// `metadata.uid`; empty: none.
    pub uid: Box<str>,
    /// `metadata.resourceVersion`; 0: none.
    pub version: u64,
    /// Hash of all fields that matter to a node.
    pub digest: u64,
    /// It has a deletion timestamp.
    pub deleting: bool,
    /// The text to be stored.
    pub value: String,
    pod: PodContent,
}

/// What a node keeps of a pod beside its metadata and its spec.
#[derive(Debug)]
struct PodContent {
    /// The part of its status that must be kept.
    status: PodStatus,
    /// The readiness gates with the status that others gave them.
    gates: Vec<ReadinessGate>,
    /// See [`Pod::is_to_be_held`].
    is_to_be_held: bool,
}

/// What an object is to a node.
#[derive(Clone, Debug)]
pub(super) enum StoredObject {
    /// A pod of this node.
    Pod(Arc<Pod>),
    /// An object that pods may use.
    Object(Arc<Object>),
    /// A token of a service account.
    Token(Arc<Token>),
    /// The terminal status of the pod of this uid, as the node found it.
    TerminalStatuses(Box<str>, Box<PodStatus>),
    /// The mirror of a static pod.
    Mirror(Mirror),
    /// The Node object of this node; its uid.
    Node(Box<str>),
    #[cfg(feature = "devices")]
    Device(Arc<DeviceObject>),
    #[cfg(feature = "devices")]
    DeviceModel(Arc<ModelObject>),
    /// What somebody on the node has made of a device.
    #[cfg(feature = "devices")]
    DeviceEdit(Arc<DeviceEdit>),
    /// The registration of a mapper.
    #[cfg(feature = "devices")]
    Mapper(Arc<Mapper>),
    /// A job for the node itself.
    #[cfg(feature = "node-jobs")]
    NodeJob(Arc<StoredJob>),
    /// What a service account may do here.
    #[cfg(feature = "metaserver-auth")]
    Access(Arc<Access>),
    /// The pod of this uid was held, and somebody on the node has released it.
    #[cfg(feature = "metaserver")]
    Released(Box<str>),
    /// Stored only because the cloud sent it.
    Other,
}

/// A mirror that the API server has, as far as the store knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mirror {
    /// The uid of the mirror, given by the API server.
    pub uid: Box<str>,
    /// The incarnation that it mirrors: the uid of the static pod.
    pub of: Box<str>,
    /// It has a deletion timestamp.
    pub deleting: bool,
}

/// The kind of the rows of terminal statuses.
pub(super) const TERMINAL_STATUS: &str = "podpatch";

/// The kind of the rows of pods that were released.
#[cfg(feature = "metaserver")]
pub(super) const RELEASE: &str = "podrelease";

/// The kind of the rows of rules for service accounts.
#[cfg(feature = "metaserver-auth")]
pub(super) const ACCESS: &str = "serviceaccountaccess";

/// The kinds of the rows that the node makes of a pod.
pub(super) const MADE_OF_PODS: &[&str] = &[
    TERMINAL_STATUS,
    #[cfg(feature = "metaserver")]
    RELEASE,
];

/// That this pod was released.
#[cfg(feature = "metaserver")]
pub(super) fn release(pod: &Pod) -> String {
    let Metadata { name, namespace, uid, .. } = &pod.metadata;
    json!({"metadata": {"name": name, "namespace": namespace, "uid": uid}}).to_string()
}

/// The kind of the rows of Services.
#[cfg(feature = "services")]
pub(super) const SERVICE: &str = "service";

/// The key of this kind for a pod: `default/podpatch/web`.
pub(super) fn pod_key(pod: &agent::pod::Pod, kind: &str) -> String {
    let metadata = &pod.api().metadata;
    Resource { namespace: Some(&metadata.namespace), kind, name: &metadata.name }.to_string()
}

impl StoredObject {
    /// About how many bytes of memory the object takes, in all parts of the agent.
    pub(super) fn memory_bytes(&self) -> usize {
        match self {
            // The metadata is in memory twice: as it came, and as it is used.
            Self::Pod(pod) => size_of::<Pod>() + pod.heap_bytes() + pod.metadata.heap_bytes(),
            Self::Object(object) => object.memory_bytes(),
            Self::Token(token) => size_of::<Token>() + token.heap_bytes(),
            Self::TerminalStatuses(..) => size_of::<PodStatus>(),
            Self::Mirror(it) => it.uid.len() + it.of.len(),
            #[cfg(feature = "metaserver")]
            Self::Released(uid) => uid.len(),
            #[cfg(feature = "metaserver-auth")]
            Self::Access(access) => size_of::<Access>() + access.heap_bytes(),
            #[cfg(feature = "devices")]
            Self::Device(device) => device.heap_bytes(),
            #[cfg(feature = "devices")]
            Self::DeviceModel(model) => model.heap_bytes(),
            #[cfg(feature = "devices")]
            Self::DeviceEdit(edit) => edit.heap_bytes(),
            #[cfg(feature = "devices")]
            Self::Mapper(mapper) => size_of::<Mapper>() + mapper.address.len(),
            // The text of the row is longer, and counts.
            #[cfg(feature = "node-jobs")]
            Self::NodeJob(_) => size_of::<StoredJob>(),
            Self::Node(_) | Self::Other => 0,
        }
    }

    /// The uid of the pod that the node has made it of.
    pub(super) fn made_of(&self) -> Option<&str> {
        match self {
            Self::TerminalStatuses(uid, _) => Some(uid),
            #[cfg(feature = "metaserver")]
            Self::Released(uid) => Some(uid),
            _ => None,
        }
    }

    /// Which pods run depends on it.
    pub(super) fn decides_about_pods(&self) -> bool {
        #[cfg(feature = "metaserver")]
        if matches!(self, Self::Released(_)) {
            return true;
        }
        matches!(self, Self::Pod(_))
    }

    /// A device, an edit of one, or a model.
    #[cfg(feature = "devices")]
    pub(super) fn is_of_devices(&self) -> bool {
        matches!(self, Self::Device(_) | Self::DeviceModel(_) | Self::DeviceEdit(_))
    }

    #[cfg(not(feature = "devices"))]
    #[expect(clippy::unused_self, reason = "as where they are built in")]
    pub(super) fn is_of_devices(&self) -> bool {
        false
    }
}

type Map<'a> = BTreeMap<Box<str>, &'a RawValue>;

#[derive(Deserialize)]
struct Deep<'a>(#[serde(borrow)] Map<'a>);

/// Parses an object of a kind, named as in the resource: `pod`, `configmap` …
pub(super) fn read<'a>(kind: &'a str, value: &str, budget: &Budget) -> Result<Content<'a>, String> {
    let fault = |what: &str, error: serde_json::Error| format!("{what} of a {kind}: {error}");
    let Deep(mut object) = serde_json::from_str(value).map_err(|error| fault("content", error))?;
    let metadata = object.get("metadata").map_or("{}", |raw| raw.get());
    let Deep(mut metadata) =
        serde_json::from_str(metadata).map_err(|error| fault("metadata", error))?;
    metadata.remove("managedFields");
    let plain = |map: &Map<'_>, key: &str| -> Box<str> {
        let text = map.get(key).and_then(|raw| serde_json::from_str::<Box<str>>(raw.get()).ok());
        text.unwrap_or_default()
    };
    // A token has no uid of its own: newer API servers give it that of the service account.
    let is_token = kind == "serviceaccounttoken";
    let uid = if is_token { Box::default() } else { plain(&metadata, "uid") };
    let version = plain(&metadata, "resourceVersion").parse().unwrap_or(0);
    let deleting = metadata.get("deletionTimestamp").is_some_and(|raw| raw.get() != "null");
    let stripped = serde_json::value::to_raw_value(&metadata).expect("it was JSON");
    object.insert("metadata".into(), &stripped);
    let status = object.get("status").filter(|_| matches!(kind, "pod" | TERMINAL_STATUS));
    let status = status.map_or_else(PodStatus::default, |raw| seed(raw));
    let text = serde_json::to_string(&object).expect("it was JSON");
    tree::within_object(&text).map_err(|why| format!("content of a {kind}: {why}"))?;
    let mut gates = Vec::new();
    if kind == "pod" {
        let most = budget.pod_values_max;
        tree::within_values(&text, most, budget)
            .map_err(|why| format!("content of a pod: {why}"))?;
        gates = read_gates(&object);
    }
    #[cfg(feature = "metaserver-auth")]
    if kind == ACCESS {
        tree::within_values(&text, ACCESS_VALUES_MAX, budget)
            .map_err(|why| format!("content of a {kind}: {why}"))?;
    }
    let phase = object.get("status").map(|raw| raw.get());
    let is_to_be_held = kind == "pod" && !deleting && is_marked(&metadata) && is_pending(phase);
    // That a pod has ended must not be forgotten.
    let phase = status.phase.is_terminal().then_some(status.phase as u8);
    // A renewed token may differ only in its status.
    let given = object.get("status").filter(|_| is_token).map(|raw| raw.get());
    let gate_statuses: Vec<_> = gates.iter().map(|gate| gate.reported).collect();
    let digest = digest(&object, &metadata, (phase, given, gate_statuses, is_to_be_held));
    let pod = PodContent { status, gates, is_to_be_held };
    Ok(Content { kind, uid, version, digest, deleting, value: text, pod })
}

impl Content<'_> {
    /// What the object is to this node, and the text to store. This is the expensive part: it is
    /// not called for an object that has not changed.
    pub(super) fn into_object(self, node: &str) -> Result<(StoredObject, String), String> {
        let Self { kind, uid, value, pod, .. } = self;
        let object = stored_object((kind, &uid), &value, node, pod);
        object
            .map(|object| (object, value))
            .map_err(|error| format!("content of a {kind}: {error}"))
    }
}

/// `status`: hash of the part of the status that matters to a node.
fn digest(object: &Map<'_>, metadata: &Map<'_>, status: impl Hash) -> u64 {
    let mut digest = DefaultHasher::new();
    for (key, raw) in object
        .iter()
        .filter(|(key, _)| !matches!(&***key, "metadata" | "status" | "kind" | "apiVersion"))
    {
        (key, raw.get()).hash(&mut digest);
    }
    for (key, raw) in metadata.iter().filter(|(key, _)| &***key != "resourceVersion") {
        (key, raw.get()).hash(&mut digest);
    }
    status.hash(&mut digest);
    digest.finish()
}

/// The row of a pod's terminal status: the part of it that a restarted process needs.
pub(super) fn terminal_status(pod: &Pod) -> String {
    let status = &pod.status;
    let value = json!({"metadata": {"uid": pod.metadata.uid}, "status": {
        "phase": status.phase, "reason": status.reason, "message": status.message,
        "startTime": status.start_time, "conditions": status.conditions,
    }});
    value.to_string()
}

/// The row of a token: the cloud's answer, with the names, the request and the digests of the
/// tokens before it added. `None`: the answer is no token.
pub(super) fn token(answer: &str, request: &TokenRequest, replaced: &[Box<str>]) -> Option<String> {
    let TokenRequest { namespace, account, pod, uid, audience, seconds } = request;
    let mut row: Value = serde_json::from_str(answer).ok()?;
    row["status"]["token"].as_str().filter(|token| !token.is_empty())?;
    let metadata = row.get_mut("metadata")?.as_object_mut()?;
    metadata.insert("name".to_owned(), (**account).into());
    metadata.insert("namespace".to_owned(), (**namespace).into());
    let bound = json!({"kind": "Pod", "apiVersion": "v1", "name": pod, "uid": uid});
    row.get_mut("spec")?.as_object_mut()?.insert("boundObjectRef".to_owned(), bound);
    row["asked"] = json!({"audience": audience, "seconds": seconds});
    if !replaced.is_empty() {
        row["replaced"] = json!(replaced);
    }
    Some(row.to_string())
}

/// The kind of the rows of mappers.
#[cfg(feature = "devices")]
pub(super) const MAPPER: &str = "devicemapper";

/// The row of a mapper, as `EdgeCore` writes it.
#[cfg(feature = "devices")]
pub(super) fn mapper(mapper: &Mapper) -> String {
    let Mapper { name, version, api_version, protocol, address, state } = mapper;
    let address = base64::encode(address.as_bytes());
    let row = json!({"name": name, "version": version, "api_version": api_version,
        "protocol": protocol, "address": address, "state": state});
    row.to_string()
}

#[cfg(feature = "devices")]
fn registration(text: &str) -> Result<Mapper, Fault> {
    let Registration { name, version, api_version, protocol, address, state } =
        tree::of_json(text)?;
    let bytes = base64::decode(&address).and_then(|bytes| String::from_utf8(bytes).ok());
    let address =
        bytes.ok_or_else(|| Fault::bare("address: got no base64 of a text".to_owned()))?;
    Ok(Mapper { name, version, api_version, protocol, address: address.into(), state })
}

#[cfg(feature = "devices")]
#[derive(Default)]
struct Registration {
    name: Box<str>,
    version: Box<str>,
    api_version: Box<str>,
    protocol: Box<str>,
    address: Box<str>,
    state: Box<str>,
}

#[cfg(feature = "devices")]
fields!(Registration {
    "name" => name,
    "version" => version,
    "api_version" => api_version,
    "protocol" => protocol,
    "address" => address,
    "state" => state,
});

/// The row of a store that does not know all pods.
#[derive(Default, Serialize, Deserialize)]
struct LostMark {
    /// Uids of pods; rows of earlier versions have none.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    gone: BTreeSet<Box<str>>,
}

/// The row that says that the store does not know all pods, and which of them were deleted.
pub(super) fn lost_mark(gone: BTreeSet<Box<str>>) -> String {
    serde_json::to_string(&LostMark { gone }).expect("plain data")
}

/// The uids of the deleted pods in that row.
pub(super) fn uids_of_lost_mark(value: &str) -> BTreeSet<Box<str>> {
    serde_json::from_str::<LostMark>(value).unwrap_or_default().gone
}

/// The part of a pod's remote status that the node must keep when the containers are gone.
#[derive(Default)]
struct RemoteStatus {
    phase: Box<str>,
    reason: Box<str>,
    message: Box<str>,
    start_time: Option<Box<str>>,
    conditions: Vec<RemoteCondition>,
    init_container_statuses: Vec<Json>,
}

type Json = serde_json::Map<String, Value>;

fields!(RemoteStatus {
    "phase" => phase,
    "reason" => reason,
    "message" => message,
    "startTime" => start_time,
    "conditions" => conditions,
    "initContainerStatuses" => init_container_statuses,
});

#[derive(Default)]
struct RemoteCondition {
    r#type: Box<str>,
    status: Box<str>,
    last_transition_time: Option<Box<str>>,
    reason: Box<str>,
    message: Box<str>,
}

fields!(RemoteCondition {
    "type" => r#type,
    "status" => status,
    "lastTransitionTime" => last_transition_time,
    "reason" => reason,
    "message" => message,
});

/// The readiness gates in a pod's spec.
#[derive(Default)]
struct Gates {
    readiness_gates: Vec<ReadinessGate>,
}

fields!(Gates {
    "readinessGates" => readiness_gates,
});

/// A pod's readiness gates, with the conditions of its status.
fn read_gates(pod: &Map<'_>) -> Vec<ReadinessGate> {
    let spec = pod.get("spec").map(|raw| raw.get());
    let Some(spec) = spec.filter(|spec| spec.contains("\"readinessGates\"")) else {
        return Vec::new();
    };
    let Gates { readiness_gates: mut gates } = tree::of_json(spec).unwrap_or_default();
    let status = pod.get("status").and_then(|raw| tree::of_json::<RemoteStatus>(raw.get()).ok());
    let conditions = status.unwrap_or_default().conditions.into_iter().rev();
    // The first condition of a type wins.
    let conditions: BTreeMap<Box<str>, RemoteCondition> =
        conditions.map(|it| (it.r#type.clone(), it)).collect();
    for gate in &mut gates {
        let condition = conditions.get(&*gate.condition_type);
        gate.reported = condition.map(|condition| match &*condition.status {
            "True" => "True",
            "False" => "False",
            _ => "Unknown",
        });
    }
    gates
}

/// Whether the annotation [`HOLD`] says so.
fn is_marked(metadata: &Map<'_>) -> bool {
    let annotations = metadata.get("annotations").map(|raw| raw.get());
    let annotations = annotations.filter(|text| text.contains(HOLD));
    let Some(Ok(Deep(all))) = annotations.map(serde_json::from_str) else { return false };
    all.get(HOLD).is_some_and(|raw| raw.get() == "\"true\"")
}

/// Whether a pod with this status is still to start.
fn is_pending(status: Option<&str>) -> bool {
    let phase = status.and_then(|text| tree::of_json::<RemoteStatus>(text).ok());
    matches!(&*phase.unwrap_or_default().phase, "" | "Pending")
}

/// The initial status of a pod. A status that cannot be parsed counts as empty.
fn seed(raw: &RawValue) -> PodStatus {
    let remote: RemoteStatus = tree::of_json(raw.get()).unwrap_or_default();
    let at = |text: Option<Box<str>>| text.and_then(|text| Timestamp::parse(&text));
    let phase = match &*remote.phase {
        "Succeeded" => Phase::Succeeded,
        "Failed" => Phase::Failed,
        // The runtime shows how far the pod is.
        _ => Phase::Pending,
    };
    let mut kinds = BTreeSet::new();
    let conditions = remote.conditions.into_iter().filter_map(|condition| {
        let kind = ConditionKind::parse(&condition.r#type)?;
        // The first condition of a kind wins.
        if !kinds.insert(kind as u8) {
            return None;
        }
        // All others are computed again.
        let stays = kind == ConditionKind::DisruptionTarget;
        if stays && *condition.reason != *DISRUPTED {
            return None;
        }
        Some(Condition {
            kind,
            status: &*condition.status == "True",
            last_probe_time: None,
            last_transition_time: at(condition.last_transition_time),
            reason: if stays { DISRUPTED } else { "" },
            message: if stays { condition.message.into() } else { String::new() },
        })
    });
    // A pod that was about to be evicted for this reason is judged again after a restart.
    let over = phase.is_terminal();
    let mut names = BTreeSet::new();
    let inits = remote.init_container_statuses.iter().filter_map(terminated);
    let inits = inits.filter(|init| names.insert(init.name.clone()));
    PodStatus {
        phase,
        reason: if over { remote.reason.into() } else { String::new() },
        message: if over { remote.message.into() } else { String::new() },
        start_time: at(remote.start_time),
        conditions: conditions.collect(),
        init_container_statuses: inits.collect(),
        ..PodStatus::default()
    }
}

/// The status of an init container that has ended. An earlier process may have removed the
/// container while the pod runs. Restarts are left out: a container that exists, or runs again,
/// shows them itself.
fn terminated(remote: &Json) -> Option<ContainerStatus> {
    let text = |from: Option<&Value>| from.and_then(Value::as_str).unwrap_or_default().to_owned();
    let end = remote.get("state")?.get("terminated")?;
    let at = |key| Timestamp::parse(end.get(key)?.as_str()?);
    let exit_code = i32::try_from(end.get("exitCode")?.as_i64()?).ok()?;
    let container_id = text(remote.get("containerID"));
    Some(ContainerStatus {
        name: text(remote.get("name")).into(),
        state: State::Terminated(Box::new(Terminated {
            exit_code,
            reason: text(end.get("reason")).into(),
            message: text(end.get("message")).into(),
            started_at: at("startedAt"),
            finished_at: at("finishedAt"),
            container_id: container_id.clone(),
        })),
        ready: remote.get("ready").and_then(Value::as_bool).unwrap_or(false),
        started: Some(false),
        image: text(remote.get("image")).into(),
        image_id: text(remote.get("imageID")).into(),
        container_id,
        ..ContainerStatus::default()
    })
}

fn stored_object(
    (kind, uid): (&str, &str),
    text: &str,
    node: &str,
    content: PodContent,
) -> Result<StoredObject, Fault> {
    let object = |object| StoredObject::Object(Arc::new(object));
    Ok(match kind {
        "pod" => pod(tree::of_json(text)?, node, content),
        "configmap" => object(Object::ConfigMap(tree::of_json(text)?)),
        "secret" => object(Object::Secret(secret(text)?)),
        "persistentvolumeclaim" => object(Object::Claim(tree::of_json(text)?)),
        "persistentvolume" => object(Object::PersistentVolume(Box::new(tree::of_json(text)?))),
        #[cfg(feature = "services")]
        SERVICE => object(Object::Service(Box::new(tree::of_json(text)?))),
        "serviceaccounttoken" => StoredObject::Token(Arc::new(tree::of_json(text)?)),
        #[cfg(feature = "metaserver-auth")]
        ACCESS => StoredObject::Access(Arc::new(tree::of_json(text)?)),
        #[cfg(feature = "metaserver")]
        RELEASE => StoredObject::Released(uid.into()),
        TERMINAL_STATUS if content.status.phase.is_terminal() => {
            StoredObject::TerminalStatuses(uid.into(), Box::new(content.status))
        }
        #[cfg(feature = "devices")]
        "device" => StoredObject::Device(Arc::new(DeviceObject::read(text)?)),
        #[cfg(feature = "devices")]
        "devicemodel" => StoredObject::DeviceModel(Arc::new(ModelObject::read(text)?)),
        #[cfg(feature = "devices")]
        DEVICE_EDIT => {
            StoredObject::DeviceEdit(Arc::new(DeviceEdit::read(text).map_err(Fault::bare)?))
        }
        #[cfg(feature = "devices")]
        MAPPER => StoredObject::Mapper(Arc::new(registration(text)?)),
        #[cfg(feature = "node-jobs")]
        NODE_JOB => StoredObject::NodeJob(Arc::new(job::read(text)?)),
        "node" => {
            let object: Named = tree::of_json(text)?;
            if *object.metadata.name == *node {
                StoredObject::Node(object.metadata.uid)
            } else {
                StoredObject::Other
            }
        }
        _ => StoredObject::Other,
    })
}

/// Pods of other nodes are ignored, and mirrors never run.
fn pod(mut pod: Pod, node: &str, content: PodContent) -> StoredObject {
    let PodContent { status, gates, is_to_be_held } = content;
    let metadata = &mut pod.metadata;
    if pod.spec.node_name.as_deref() != Some(node) {
        return StoredObject::Other;
    }
    if let Some(of) = metadata.annotations.get(MIRROR) {
        let deleting = metadata.deletion_timestamp.is_some();
        let (uid, of) = (metadata.uid.as_str().into(), of.as_str().into());
        return StoredObject::Mirror(Mirror { uid, of, deleting });
    }
    metadata.annotations.insert(SOURCE.to_owned(), "api".to_owned());
    (pod.status, pod.is_to_be_held) = (status, is_to_be_held);
    if !gates.is_empty() {
        Arc::make_mut(&mut pod.spec).readiness_gates = gates;
    }
    StoredObject::Pod(Arc::new(pod))
}

fn secret(text: &str) -> Result<Secret, Fault> {
    let node = tree::parse_json(text.as_bytes()).map_err(|refusal| Fault::bare(refusal.why))?;
    tree::read(&node, &[]).map_err(Secret::hide)
}

#[derive(Default)]
struct Named {
    metadata: Names,
}

fields!(Named {
    "metadata" => metadata,
});

#[derive(Default)]
struct Names {
    name: Box<str>,
    uid: Box<str>,
}

fields!(Names {
    "name" => name,
    "uid" => uid,
});

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_the_path_and_never_shows_values_of_a_secret() {
        for (kind, text, expected) in [
            ("pod", r#"{"spec":{"containers":7}}"#, "spec.containers: got 7, expected a list"),
            (
                "pod",
                r#"{"spec":{"containers":[{"ports":[{"containerPort":"x"}]}]}}"#,
                "spec.containers[0].ports[0].containerPort: got \"x\", expected a whole number \
                 from 0 to 65535",
            ),
            (
                "secret",
                r#"{"data":{"key":"hush!"}}"#,
                "data.key: got a value that is not shown, expected base64",
            ),
        ] {
            let read = read(kind, text, &Budget::FULL).expect("the outline is right");
            let why = read.into_object("gw").expect_err(text);
            assert_eq!(why, format!("content of a {kind}: {expected}"));
        }
    }

    #[test]
    fn what_an_object_takes_in_memory_is_more_than_its_text_and_counted() {
        let bytes = |kind: &str, text: &str| {
            let read = read(kind, text, &Budget::FULL).and_then(|it| it.into_object("gw"));
            read.expect(text).0.memory_bytes()
        };
        let pod = |containers: &str| {
            format!(r#"{{"spec":{{"nodeName":"gw","containers":[{containers}]}}}}"#)
        };
        let few = bytes("pod", &pod(&["{}"; 10].join(",")));
        let many = bytes("pod", &pod(&["{}"; 110].join(",")));
        assert!(many - few >= 100 * size_of::<crate::model::pod::Container>(), "{few} {many}");
        let annotated = |annotation: &str| {
            let metadata = format!(r#""metadata":{{"annotations":{{"a":"{annotation}"}}}}"#);
            bytes("pod", &format!(r#"{{{metadata},"spec":{{"nodeName":"gw"}}}}"#))
        };
        // The metadata is in memory twice.
        let more = annotated(&"x".repeat(1_000)) - annotated("x");
        assert!((1_950..2_050).contains(&more), "{more}");
        let secret = bytes("secret", r#"{"data":{"a":"AAAA","b":"AAAA"}}"#);
        assert!((150..1_000).contains(&secret), "{secret}");
        assert_eq!(bytes("node", r#"{"metadata":{"name":"other"}}"#), 0);
    }

    #[test]
    fn of_a_status_with_many_conditions_of_a_kind_the_first_counts() {
        let of = |status: &str| format!(r#"{{"type":"Ready","status":"{status}"}}"#);
        let gate = |status: &str| format!(r#"{{"type":"a/gate","status":"{status}"}}"#);
        let all = [of("False"), of("True"), gate("True"), gate("False")].join(",");
        let init = r#"{"name":"i","state":{"terminated":{"exitCode":3}}}"#;
        let text = format!(
            r#"{{"metadata":{{"name":"a"}},"spec":{{"nodeName":"gw","containers":[{{"name":"c"}}],
                "readinessGates":[{{"conditionType":"a/gate"}}]}},
                "status":{{"conditions":[{all}],"initContainerStatuses":[{init},{init}]}}}}"#
        );
        let read = read("pod", &text, &Budget::FULL);
        let (object, _) = read.and_then(|it| it.into_object("gw")).expect("a pod");
        let StoredObject::Pod(pod) = object else { panic!("{object:?}") };
        let conditions: Vec<bool> = pod.status.conditions.iter().map(|it| it.status).collect();
        assert_eq!((conditions, pod.status.init_container_statuses.len()), (vec![false], 1));
        assert_eq!(pod.spec.readiness_gates[0].reported, Some("True"));
    }

    #[cfg(feature = "metaserver-auth")]
    #[test]
    fn rules_of_a_service_account_are_bounded() {
        let of = |verbs: usize| {
            let verbs = vec![r#""get""#; verbs].join(",");
            let rules = format!(r#"[{{"verbs":[{verbs}]}}]"#);
            format!(r#"{{"spec":{{"accessRoleBinding":[{{"rules":{rules}}}]}}}}"#)
        };
        read(ACCESS, &of(ACCESS_VALUES_MAX - 100), &Budget::FULL).expect("some hundred rules");
        let why = read(ACCESS, &of(ACCESS_VALUES_MAX + 1), &Budget::FULL).expect_err("too many");
        assert!(why.contains(&format!("expected at most {ACCESS_VALUES_MAX}")), "{why}");
    }

    #[test]
    fn what_go_writes_for_nothing_is_nothing() {
        let text = r#"{"metadata":{"name":"a","labels":null},
            "spec":{"nodeName":"gw","volumes":null,"containers":[{"name":"c","env":null}]}}"#;
        let read = read("pod", text, &Budget::FULL);
        let (object, _) = read.and_then(|it| it.into_object("gw")).expect("a pod");
        let StoredObject::Pod(pod) = object else { panic!("{object:?}") };
        assert!(pod.metadata.labels.is_empty() && pod.spec.volumes.is_empty());
        assert_eq!(pod.spec.containers.len(), 1);
    }
}
