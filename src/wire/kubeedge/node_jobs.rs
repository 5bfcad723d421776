//! The messages of jobs for the node itself, of both generations (spec `servicebus-router-tasks`,
//! sections 15 and 20).
//!
//! ```text
//!              v1alpha2                                       v1alpha1
//!  down  op.   Check                                          prepull, upgrade
//!        res.  operations.kubeedge.io/v1alpha2/KIND/JOB/node/NODE   KIND/JOB/node/NODE
//!        cont. the job's spec                                 {"TaskID","Type","State","Item"}
//!  up    op.   UpdateNodeActionStatus                         prepull, upgrade
//!        res.  as it came                                     task/JOB/node/NODE
//!        cont. {"action","succ","finishTime",…}               {"NodeName","Event","Action",…}
//! ```
//!
//! Job and node are taken from the resource. Whether the node is the one of the session, its reader
//! has to compare. Unknown fields are ignored.

#[cfg(feature = "controller")]
mod cloud;
#[cfg(all(test, feature = "controller"))]
mod tests;

use std::fmt::Display;

use serde_json::value::RawValue;
use serde_json::{Value as Json, json};

use crate::limits::{NODE_JOB_IMAGES_MAX, NODE_JOB_TEXT_BYTES_MAX};
use crate::model::message::Route;
use crate::model::names::is_subdomain;
use crate::model::node_job::{
    Generation, ImageResult, JobAction, JobDetail, JobKey, JobKind, JobReport, JobRequest, JobSpec,
    PrePullSpec, UpgradeSpec,
};
use crate::model::tree::{self, Fault, Node, Read, Value, fields};
use crate::wire::edge;

#[cfg(feature = "controller")]
pub use cloud::{decode_report, encode_request};

/// Group and version in a resource of v1alpha2.
const API_VERSION: [&str; 2] = ["operations.kubeedge.io", "v1alpha2"];

/// The operation of a report of v1alpha2.
const REPORT: &str = "UpdateNodeActionStatus";

/// The first part of the resource of a report of v1alpha1.
const TASK: &str = "task";

const KINDS: [JobKind; 3] = [JobKind::PrePull, JobKind::Upgrade, JobKind::ConfigUpdate];

/// The name of a job's kind in v1alpha1, which has no job for the configuration.
fn type_name(kind: JobKind) -> &'static str {
    match kind {
        JobKind::PrePull => "prepull",
        JobKind::Upgrade => "upgrade",
        JobKind::ConfigUpdate => "configupdate",
    }
}

/// Every action: state and event of v1alpha1; empty: it has none. v1alpha2 has all but the first,
/// by their own names.
const ACTIONS: [(JobAction, &str, &str); 8] = [
    (JobAction::Init, "Init", "Init"),
    (JobAction::Check, "Checking", "Check"),
    (JobAction::WaitingConfirmation, "", "Confirm"),
    (JobAction::Pull, "Pulling", "Pull"),
    (JobAction::BackUp, "BackingUp", "Backup"),
    (JobAction::Upgrade, "Upgrading", "Upgrade"),
    (JobAction::Update, "", ""),
    (JobAction::RollBack, "RollingBack", "Rollback"),
];

/// State and event of v1alpha1.
fn words(action: JobAction) -> (&'static str, &'static str) {
    let (_, state, event) =
        ACTIONS.into_iter().find(|row| row.0 == action).expect("every action has a row");
    (state, event)
}

/// The action of this name in v1alpha2.
fn named(name: &str) -> Option<JobAction> {
    JobAction::named(name).filter(|action| *action != JobAction::Init)
}

// ---- requests ----

/// The request of a message of group `taskmanager`; `None`: its resource names no job, and nobody
/// waits for an answer.
pub fn decode_request(route: &Route, content: &str) -> Option<JobRequest> {
    let key = request_key(&route.resource)?;
    let node = tree::parse_json(content.as_bytes()).map_err(|refusal| refusal.why);
    let (action, spec) = match key.generation {
        Generation::V1Alpha2 => {
            let action = named(&route.operation);
            let spec = match action {
                Some(_) => node.and_then(|node| spec_of(key.kind, &node)),
                None => Err(format!("operation: got {:?}, expected Check", &*route.operation)),
            };
            (action.unwrap_or(JobAction::Check), spec)
        }
        Generation::V1Alpha1 => match node.and_then(|node| task(&node)) {
            Ok(Task { state, item }) => match stage(&state) {
                Some(action) => (action, item_of(key.kind, action, &item)),
                None => (JobAction::Init, Err(format!("State: got {state:?}, expected a stage"))),
            },
            Err(why) => (JobAction::Init, Err(why)),
        },
    };
    Some(JobRequest { key, action, spec: spec.map_err(Into::into) })
}

fn stage(state: &str) -> Option<JobAction> {
    if state.is_empty() {
        return Some(JobAction::Init);
    }
    ACTIONS.iter().find(|row| row.1 == state).map(|row| row.0)
}

fn request_key(resource: &str) -> Option<JobKey> {
    let parts: Vec<&str> = resource.split('/').take(7).collect();
    let (generation, kind, name, node) = match parts[..] {
        [group, version, kind, name, "node", node] if [group, version] == API_VERSION => {
            let kind = KINDS.into_iter().find(|it| it.resource() == kind)?;
            (Generation::V1Alpha2, kind, name, node)
        }
        [kind, name, "node", node] => {
            let kind = KINDS[..2].iter().find(|it| type_name(**it) == kind)?;
            (Generation::V1Alpha1, *kind, name, node)
        }
        _ => return None,
    };
    job_key(generation, kind, name, node)
}

/// Both names are those of objects: what is no name comes from no API server.
fn job_key(generation: Generation, kind: JobKind, name: &str, node: &str) -> Option<JobKey> {
    let is_valid = is_subdomain(name) && is_subdomain(node);
    is_valid.then(|| JobKey { generation, kind, name: name.into(), node: node.into() })
}

#[derive(Default)]
struct Task {
    state: Box<str>,
    item: Raw,
}

fields!(Task {
    "State" => state,
    "Item" => item,
});

/// A part that is read later.
#[derive(Default)]
struct Raw(Option<Node>);

impl Read for Raw {
    fn read(&mut self, node: &Node) -> Result<(), Fault> {
        self.0 = Some(node.clone());
        Ok(())
    }
}

fn task(node: &Node) -> Result<Task, String> {
    tree::read(node, &[]).map_err(shown)
}

fn shown(why: impl Display) -> String {
    why.to_string()
}

/// `ImagePrePullJobSpec`
#[derive(Default)]
struct Template {
    template: PrePullSpec,
}

fields!(Template {
    "imagePrePullTemplate" => template,
});

fn spec_of(kind: JobKind, node: &Node) -> Result<JobSpec, String> {
    match kind {
        JobKind::PrePull => {
            let Template { template } = tree::read(node, &[]).map_err(shown)?;
            bounded_pre_pull(template)
        }
        JobKind::Upgrade => bounded_upgrade(tree::read(node, &[]).map_err(shown)?),
        JobKind::ConfigUpdate => Ok(JobSpec::ConfigUpdate),
    }
}

/// `ImagePrePullJobRequest`
#[derive(Default)]
struct PrePullItem(PrePullSpec);

impl PrePullItem {
    fn field(&mut self, key: &str, node: &Node) -> Result<(), Fault> {
        match key {
            "Images" => self.0.images.read(node),
            "Secret" => self.0.image_secret.read(node),
            "RetryTimes" => self.0.retry_times.read(node),
            "CheckItems" => self.0.check_items.read(node),
            _ => Ok(()),
        }
    }
}

/// `NodeUpgradeJobRequest`
#[derive(Default)]
struct UpgradeItem(UpgradeSpec);

impl UpgradeItem {
    fn field(&mut self, key: &str, node: &Node) -> Result<(), Fault> {
        match key {
            "HistoryID" => self.0.history_id.read(node),
            "Version" => self.0.version.read(node),
            "Image" => self.0.image.read(node),
            "ImageDigest" => self.0.image_digest.read(node),
            "RequireConfirmation" => self.0.require_confirmation.read(node),
            _ => Ok(()),
        }
    }
}

fn item_of(kind: JobKind, action: JobAction, item: &Raw) -> Result<JobSpec, String> {
    let nothing = Node { at: tree::Mark::default(), value: Value::Null };
    let node = item.0.as_ref().unwrap_or(&nothing);
    if action == JobAction::Check {
        let mut items: Vec<Box<str>> = Vec::new();
        let mut take = |key: &str, node: &Node| match key {
            "CheckItem" => items.read(node),
            _ => Ok(()),
        };
        tree::each(node, &mut take).map_err(shown)?;
        check_texts("CheckItem", &items)?;
        return Ok(JobSpec::Checks(items));
    }
    if kind == JobKind::PrePull {
        let mut read = PrePullItem::default();
        tree::each(node, &mut |key, node| read.field(key, node)).map_err(shown)?;
        bounded_pre_pull(read.0)
    } else {
        let mut read = UpgradeItem::default();
        tree::each(node, &mut |key, node| read.field(key, node)).map_err(shown)?;
        bounded_upgrade(read.0)
    }
}

fn bounded_pre_pull(mut spec: PrePullSpec) -> Result<JobSpec, String> {
    check_texts("images", &spec.images)?;
    check_texts("checkItems", &spec.check_items)?;
    check_text("imageSecrets", &spec.image_secret)?;
    spec.retry_times = spec.retry_times.max(0);
    Ok(JobSpec::PrePull(spec))
}

fn bounded_upgrade(spec: UpgradeSpec) -> Result<JobSpec, String> {
    check_texts("checkItems", &spec.check_items)?;
    let UpgradeSpec { version, image, digests, image_digest, history_id, .. } = &spec;
    for (name, text) in [
        ("version", version),
        ("image", image),
        ("imageDigestGatter.amd64", &digests.amd64),
        ("imageDigestGatter.arm64", &digests.arm64),
        ("imageDigest", image_digest),
        ("historyID", history_id),
    ] {
        check_text(name, text)?;
    }
    Ok(JobSpec::Upgrade(spec))
}

fn check_texts(name: &str, all: &[Box<str>]) -> Result<(), String> {
    if all.len() > NODE_JOB_IMAGES_MAX {
        let got = all.len();
        return Err(format!("{name}: got {got} entries, expected {NODE_JOB_IMAGES_MAX} at most"));
    }
    all.iter().try_for_each(|text| check_text(name, text))
}

fn check_text(name: &str, text: &str) -> Result<(), String> {
    let got = text.len();
    if got <= NODE_JOB_TEXT_BYTES_MAX {
        return Ok(());
    }
    Err(format!("{name}: got {got} bytes, expected {NODE_JOB_TEXT_BYTES_MAX} at most"))
}

// ---- reports ----

/// Operation, resource and content of a report.
pub fn encode_report(report: &JobReport) -> (&'static str, String, Box<RawValue>) {
    let JobReport { key, action, result, at, detail } = report;
    let reason = result.as_ref().err().map_or("", |why| why);
    let (_, event) = words(*action);
    match key.generation {
        Generation::V1Alpha2 => {
            let at = at.unwrap_or_default();
            let content = json!({
                "action": action.name(), "succ": result.is_ok(), "finishTime": at, "reason": reason,
                "extend": extend(detail, key.generation),
            });
            (REPORT, resource(key), edge::content(&content))
        }
        Generation::V1Alpha1 => {
            let outcome = match (action, result) {
                (JobAction::WaitingConfirmation, Ok(())) => "Confirmation",
                (_, Ok(())) => "Success",
                (_, Err(_)) => "Failure",
            };
            let content = json!({
                "NodeName": key.node, "State": "", "Event": event, "Action": outcome,
                "Reason": reason, "Time": "",
                "ExternalMessage": extend(detail, key.generation),
            });
            let resource = format!("{TASK}/{}/node/{}", key.name, key.node);
            (type_name(key.kind), resource, edge::content(&content))
        }
    }
}

/// The resource of a request, and in v1alpha2 that of its reports.
fn resource(key: &JobKey) -> String {
    let (name, node) = (&key.name, &key.node);
    match key.generation {
        Generation::V1Alpha2 => {
            format!("{}/{}/node/{node}", API_VERSION.join("/"), key)
        }
        Generation::V1Alpha1 => format!("{}/{name}/node/{node}", type_name(key.kind)),
    }
}

/// A text that contains JSON for images, and two versions for an upgrade.
fn extend(detail: &JobDetail, generation: Generation) -> String {
    match detail {
        JobDetail::Nothing => String::new(),
        JobDetail::Versions { from, to } => match generation {
            Generation::V1Alpha2 => format!("{from},{to}"),
            Generation::V1Alpha1 => String::new(),
        },
        JobDetail::Images(images) => {
            let all: Vec<Json> = images.iter().map(|image| image_json(image, generation)).collect();
            edge::content(&all).get().to_owned()
        }
    }
}

fn image_json(ImageResult { image, result }: &ImageResult, generation: Generation) -> Json {
    let mut entry = match (generation, result) {
        (Generation::V1Alpha2, Ok(())) => json!({"image": image, "status": "True"}),
        (Generation::V1Alpha2, Err(_)) => json!({"image": image, "status": "False"}),
        (Generation::V1Alpha1, Ok(())) => json!({"image": image, "state": "Successful"}),
        (Generation::V1Alpha1, Err(_)) => json!({"image": image, "state": "Failed"}),
    };
    if let Err(why) = result {
        entry["reason"] = (**why).into();
    }
    entry
}
