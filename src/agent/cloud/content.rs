//! The content of the cloud's messages: which object it is, in which state, and what to keep of it.
//!
//! `metadata.managedFields` is left out: it is a third of all bytes, and says who wrote which field
//! at the API server, which nobody here asks. What is left is kept as it came.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::mirror::Mirror;
use super::{bulk, terminal_status};
use crate::agent::pod::DISRUPTED;
use crate::agent::source::{MIRROR, SOURCE};
use crate::limits::Budget;
use crate::model::object::{Object, Secret};
use crate::model::pod::{Pod, ReadinessGate};
use crate::model::status::{
    Condition, ConditionKind, ContainerStatus, Phase, PodStatus, State, Terminated,
};
use crate::model::time::Timestamp;
use crate::model::token::Token;
use crate::model::tree::{self, Read as _, fields};

/// One object of a message, as far as it has to be read to tell whether it is news.
#[derive(Debug)]
pub(super) struct Content<'a> {
    kind: &'a str,
    /// `metadata.uid`; empty: none.
    pub uid: Box<str>,
    /// `metadata.resourceVersion`; 0: none.
    pub version: u64,
    /// Of all that makes a difference to a node.
    pub digest: u64,
    /// It has a deletion timestamp.
    pub deleting: bool,
    /// To be kept.
    pub value: String,
    /// Of a pod, what of its status must not be forgotten.
    status: PodStatus,
    /// Of a pod, whether others have opened its readiness gates.
    gates: Vec<ReadinessGate>,
}

/// What an object is to a node.
#[derive(Clone, Debug)]
pub(super) enum StoredObject {
    /// A pod for this node.
    Pod(Arc<Pod>),
    /// Pods may use it.
    Object(Arc<Object>),
    /// A token of a service account.
    Token(Arc<Token>),
    /// That the pod of this uid has ended, as the node found.
    TerminalStatuses(Box<str>, Box<PodStatus>),
    /// What the API server was shown of a pod of the manifest folder.
    Mirror(Mirror),
    /// This node; its uid.
    Node(Box<str>),
    /// Kept for the cloud's sake.
    Other,
}

impl StoredObject {
    /// About how many bytes of memory it takes, wherever the agent has it.
    pub(super) fn memory_bytes(&self) -> usize {
        match self {
            // Its metadata once as they came, and once as they are worked on.
            Self::Pod(pod) => size_of::<Pod>() + pod.heap_bytes() + pod.metadata.heap_bytes(),
            Self::Object(object) => object.memory_bytes(),
            Self::Token(token) => size_of::<Token>() + token.heap_bytes(),
            Self::TerminalStatuses(..) => size_of::<PodStatus>(),
            Self::Mirror(it) => it.uid.len() + it.of.len(),
            Self::Node(_) | Self::Other => 0,
        }
    }
}

type Map<'a> = BTreeMap<Box<str>, &'a RawValue>;

#[derive(Deserialize)]
struct Deep<'a>(#[serde(borrow)] Map<'a>);

/// Reads an object of a kind, in the words of the resource: `pod`, `configmap` …
pub(super) fn read<'a>(kind: &'a str, value: &str, budget: &Budget) -> Result<Content<'a>, String> {
    let told = |what: &str, error: serde_json::Error| format!("{what} of a {kind}: {error}");
    let Deep(mut object) = serde_json::from_str(value).map_err(|error| told("content", error))?;
    let metadata = object.get("metadata").map_or("{}", |raw| raw.get());
    let Deep(mut metadata) =
        serde_json::from_str(metadata).map_err(|error| told("metadata", error))?;
    metadata.remove("managedFields");
    let plain = |map: &Map<'_>, key: &str| -> Box<str> {
        let text = map.get(key).and_then(|raw| serde_json::from_str::<Box<str>>(raw.get()).ok());
        text.unwrap_or_default()
    };
    // A token has none of its own: newer API servers give it that of the service account.
    let is_token = kind == "serviceaccounttoken";
    let uid = if is_token { Box::default() } else { plain(&metadata, "uid") };
    let version = plain(&metadata, "resourceVersion").parse().unwrap_or(0);
    let deleting = metadata.get("deletionTimestamp").is_some_and(|raw| raw.get() != "null");
    let stripped = serde_json::value::to_raw_value(&metadata).expect("it was JSON");
    object.insert("metadata".into(), &stripped);
    let status = object.get("status").filter(|_| matches!(kind, "pod" | terminal_status::KIND));
    let status = status.map_or_else(PodStatus::default, |raw| seed(raw));
    let text = serde_json::to_string(&object).expect("it was JSON");
    tree::within_object(&text).map_err(|why| format!("content of a {kind}: {why}"))?;
    let mut gates = Vec::new();
    if kind == "pod" {
        bulk::pod(&text, budget).map_err(|why| format!("content of a pod: {why}"))?;
        gates = read_gates(&object);
    }
    // Whether a pod has ended must not be forgotten.
    let phase = status.phase.is_terminal().then_some(status.phase as u8);
    // A token that is renewed may differ in nothing but what was given.
    let given = object.get("status").filter(|_| is_token).map(|raw| raw.get());
    let told: Vec<_> = gates.iter().map(|gate| gate.reported).collect();
    let digest = digest(&object, &metadata, (phase, given, told));
    Ok(Content { kind, uid, version, digest, deleting, value: text, status, gates })
}

impl Content<'_> {
    /// What the object is to this node, and what is to be kept of it. It costs most of the time:
    /// what is no news is not asked for it.
    pub(super) fn thing(self, node: &str) -> Result<(StoredObject, String), String> {
        let Self { kind, uid, value, status, gates, .. } = self;
        let thing = thing((kind, &uid), &value, node, (status, gates));
        thing.map(|thing| (thing, value)).map_err(|error| format!("content of a {kind}: {error}"))
    }
}

/// `told`: of its status, what makes a difference to a node.
fn digest(object: &Map<'_>, metadata: &Map<'_>, told: impl Hash) -> u64 {
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
    told.hash(&mut digest);
    digest.finish()
}

/// Of a pod's status in the cloud, what the node must not forget when all that ran is gone.
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

/// Of a pod's spec, what few of them have.
#[derive(Default)]
struct Gates {
    readiness_gates: Vec<ReadinessGate>,
}

fields!(Gates {
    "readinessGates" => readiness_gates,
});

/// A pod's readiness gates, and what its status says of them.
fn read_gates(pod: &Map<'_>) -> Vec<ReadinessGate> {
    let spec = pod.get("spec").map(|raw| raw.get());
    let Some(spec) = spec.filter(|spec| spec.contains("\"readinessGates\"")) else {
        return Vec::new();
    };
    let Gates { readiness_gates: mut gates } = tree::of_json(spec).unwrap_or_default();
    let status = pod.get("status").and_then(|raw| tree::of_json::<RemoteStatus>(raw.get()).ok());
    let told = status.unwrap_or_default().conditions.into_iter().rev();
    // The first of a type counts.
    let told: BTreeMap<Box<str>, RemoteCondition> =
        told.map(|told| (told.r#type.clone(), told)).collect();
    for gate in &mut gates {
        let condition = told.get(&*gate.condition_type);
        gate.reported = condition.map(|told| match &*told.status {
            "True" => "True",
            "False" => "False",
            _ => "Unknown",
        });
    }
    gates
}

/// A status to begin with. One that is not understood is none.
fn seed(raw: &RawValue) -> PodStatus {
    let told: RemoteStatus = tree::of_json(raw.get()).unwrap_or_default();
    let at = |text: Option<Box<str>>| text.and_then(|text| Timestamp::parse(&text));
    let phase = match &*told.phase {
        "Succeeded" => Phase::Succeeded,
        "Failed" => Phase::Failed,
        // How far it is the runtime tells.
        _ => Phase::Pending,
    };
    let mut seen = BTreeSet::new();
    let conditions = told.conditions.into_iter().filter_map(|told| {
        let kind = ConditionKind::parse(&told.r#type)?;
        // The first of a kind counts.
        if !seen.insert(kind as u8) {
            return None;
        }
        // All others are worked out anew.
        let stays = kind == ConditionKind::DisruptionTarget;
        if stays && *told.reason != *DISRUPTED {
            return None;
        }
        Some(Condition {
            kind,
            status: &*told.status == "True",
            last_probe_time: None,
            last_transition_time: at(told.last_transition_time),
            reason: if stays { DISRUPTED } else { "" },
            message: if stays { told.message.into() } else { String::new() },
        })
    });
    // Of one that was about to be ended for this reason, this life has to find that anew.
    let over = phase.is_terminal();
    let mut names = BTreeSet::new();
    let inits = told.init_container_statuses.iter().filter_map(ended);
    let inits = inits.filter(|told| names.insert(told.name.clone()));
    PodStatus {
        phase,
        reason: if over { told.reason.into() } else { String::new() },
        message: if over { told.message.into() } else { String::new() },
        start_time: at(told.start_time),
        conditions: conditions.collect(),
        init_container_statuses: inits.collect(),
        ..PodStatus::default()
    }
}

/// Of an init container that has ended. An agent before us may have removed it while the pod runs.
/// Not its restarts: one that is there, or is run again, tells of them itself.
fn ended(told: &Json) -> Option<ContainerStatus> {
    let text = |from: Option<&Value>| from.and_then(Value::as_str).unwrap_or_default().to_owned();
    let end = told.get("state")?.get("terminated")?;
    let at = |key| Timestamp::parse(end.get(key)?.as_str()?);
    let exit_code = i32::try_from(end.get("exitCode")?.as_i64()?).ok()?;
    let container_id = text(told.get("containerID"));
    Some(ContainerStatus {
        name: text(told.get("name")).into(),
        state: State::Terminated(Box::new(Terminated {
            exit_code,
            reason: text(end.get("reason")).into(),
            message: text(end.get("message")).into(),
            started_at: at("startedAt"),
            finished_at: at("finishedAt"),
            container_id: container_id.clone(),
        })),
        ready: told.get("ready").and_then(Value::as_bool).unwrap_or(false),
        started: Some(false),
        image: text(told.get("image")).into(),
        image_id: text(told.get("imageID")).into(),
        container_id,
        ..ContainerStatus::default()
    })
}

fn thing(
    (kind, uid): (&str, &str),
    text: &str,
    node: &str,
    (status, gates): (PodStatus, Vec<ReadinessGate>),
) -> Result<StoredObject, String> {
    let object = |object| StoredObject::Object(Arc::new(object));
    Ok(match kind {
        "pod" => pod(tree::of_json(text)?, node, (status, gates)),
        "configmap" => object(Object::ConfigMap(tree::of_json(text)?)),
        "secret" => object(Object::Secret(secret(text)?)),
        "persistentvolumeclaim" => object(Object::Claim(tree::of_json(text)?)),
        "persistentvolume" => object(Object::PersistentVolume(Box::new(tree::of_json(text)?))),
        "serviceaccounttoken" => StoredObject::Token(Arc::new(tree::of_json(text)?)),
        terminal_status::KIND if status.phase.is_terminal() => {
            StoredObject::TerminalStatuses(uid.into(), Box::new(status))
        }
        "node" => {
            let told: Named = tree::of_json(text)?;
            if *told.metadata.name == *node {
                StoredObject::Node(told.metadata.uid)
            } else {
                StoredObject::Other
            }
        }
        _ => StoredObject::Other,
    })
}

/// Pods of other nodes are none of ours, and mirrors are never run.
fn pod(mut pod: Pod, node: &str, (status, gates): (PodStatus, Vec<ReadinessGate>)) -> StoredObject {
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
    pod.status = status;
    if !gates.is_empty() {
        Arc::make_mut(&mut pod.spec).readiness_gates = gates;
    }
    StoredObject::Pod(Arc::new(pod))
}

fn secret(text: &str) -> Result<Secret, String> {
    let node = tree::parse_json(text.as_bytes()).map_err(|refusal| refusal.why)?;
    tree::read(&node, &[]).map_err(|fault| Secret::hide(fault).message())
}

/// `metadata.uid` of what a deletion is about; empty: not told.
pub(super) fn uid(text: &str) -> Box<str> {
    tree::of_json::<Named>(text).map(|told| told.metadata.uid).unwrap_or_default()
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
    fn what_is_wrong_is_told_with_its_path_and_of_a_secret_without_its_values() {
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
            let why = read.thing("gw").expect_err(text);
            assert_eq!(why, format!("content of a {kind}: {expected}"));
        }
    }

    #[test]
    fn what_an_object_takes_in_memory_is_more_than_its_text_and_counted() {
        let bytes = |kind: &str, text: &str| {
            let read = read(kind, text, &Budget::FULL).and_then(|it| it.thing("gw"));
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
        // Metadata are there twice.
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
        let (thing, _) = read.and_then(|it| it.thing("gw")).expect("a pod");
        let StoredObject::Pod(pod) = thing else { panic!("{thing:?}") };
        let conditions: Vec<bool> = pod.status.conditions.iter().map(|it| it.status).collect();
        assert_eq!((conditions, pod.status.init_container_statuses.len()), (vec![false], 1));
        assert_eq!(pod.spec.readiness_gates[0].reported, Some("True"));
    }

    #[test]
    fn what_go_writes_for_nothing_is_nothing() {
        let text = r#"{"metadata":{"name":"a","labels":null},
            "spec":{"nodeName":"gw","volumes":null,"containers":[{"name":"c","env":null}]}}"#;
        let read = read("pod", text, &Budget::FULL);
        let (thing, _) = read.and_then(|it| it.thing("gw")).expect("a pod");
        let StoredObject::Pod(pod) = thing else { panic!("{thing:?}") };
        assert!(pod.metadata.labels.is_empty() && pod.spec.volumes.is_empty());
        assert_eq!(pod.spec.containers.len(), 1);
    }
}
