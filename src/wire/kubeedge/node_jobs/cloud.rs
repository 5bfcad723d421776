//! The cloud's side: requests are written, reports are read.

use serde_json::value::RawValue;
use serde_json::{Value as Json, json};

use super::{
    ACTIONS, KINDS, REPORT, TASK, job_key, named, request_key, resource, type_name, words,
};
use crate::limits::{NODE_JOB_IMAGES_MAX, NODE_JOB_REPORT_BYTES_MAX, NODE_JOB_TEXT_BYTES_MAX};
use crate::model::error::Peer;
use crate::model::message::Route;
use crate::model::node_job::{
    Generation, ImageResult, JobAction, JobDetail, JobKey, JobReport, JobSpec,
};
use crate::model::time::Timestamp;
use crate::model::tree::{self, Fault, Node, Read, Value};
use crate::wire::edge;

/// Operation, resource and content of a request; source and group are `taskmanager`.
///
/// `action` is the first of a flow in v1alpha2, and the stage in v1alpha1.
pub fn encode_request(
    key: &JobKey,
    action: JobAction,
    spec: &JobSpec,
) -> (&'static str, String, Box<RawValue>) {
    let (state, _) = words(action);
    match key.generation {
        Generation::V1Alpha2 => (action.name(), resource(key), edge::content(&spec_json(spec))),
        Generation::V1Alpha1 => {
            let content = json!({
                "TaskID": key.name, "Type": type_name(key.kind), "State": state,
                "Item": item_json(key, spec),
            });
            (type_name(key.kind), resource(key), edge::content(&content))
        }
    }
}

fn spec_json(spec: &JobSpec) -> Json {
    match spec {
        JobSpec::PrePull(spec) => json!({"imagePrePullTemplate": {
            "images": spec.images, "checkItems": spec.check_items,
            "imageSecrets": spec.image_secret, "retryTimes": spec.retry_times,
        }}),
        JobSpec::Upgrade(spec) => {
            let digests = &spec.digests;
            let is_given = !digests.amd64.is_empty() || !digests.arm64.is_empty();
            let digests = is_given.then(|| json!({"amd64": digests.amd64, "arm64": digests.arm64}));
            json!({
                "version": spec.version, "image": spec.image, "imageDigestGatter": digests,
                "checkItems": spec.check_items,
                "requireConfirmation": spec.require_confirmation,
            })
        }
        JobSpec::Checks(items) => json!({"checkItems": items}),
        JobSpec::ConfigUpdate => json!({}),
    }
}

fn item_json(key: &JobKey, spec: &JobSpec) -> Json {
    match spec {
        JobSpec::PrePull(spec) => json!({
            "Images": spec.images, "NodeName": key.node, "Secret": spec.image_secret,
            "RetryTimes": spec.retry_times, "CheckItems": spec.check_items,
        }),
        JobSpec::Upgrade(spec) => json!({
            "UpgradeID": key.name, "HistoryID": spec.history_id, "Version": spec.version,
            "UpgradeTool": "keadm", "Image": spec.image, "ImageDigest": spec.image_digest,
            "RequireConfirmation": spec.require_confirmation,
        }),
        JobSpec::Checks(items) => json!({"CheckItem": items}),
        JobSpec::ConfigUpdate => json!({}),
    }
}

/// The report of a message of a node; `None`: it is none.
///
/// The kind of a job of v1alpha1 is the operation; its report names no time.
pub fn decode_report(route: &Route, content: &str) -> Option<Result<JobReport, Peer>> {
    let key = report_key(route)?;
    Some(report(key, content))
}

fn report_key(route: &Route) -> Option<JobKey> {
    let parts: Vec<&str> = route.resource.split('/').take(5).collect();
    if let [TASK, name, "node", node] = parts[..] {
        let kind = KINDS[..2].iter().find(|it| type_name(**it) == &*route.operation)?;
        return job_key(Generation::V1Alpha1, *kind, name, node);
    }
    let key = request_key(&route.resource).filter(|_| &*route.operation == REPORT)?;
    (key.generation == Generation::V1Alpha2).then_some(key)
}

/// Both forms at once: their names differ in case.
#[derive(Default)]
struct Content {
    name: Box<str>,
    is_success: bool,
    outcome: Box<str>,
    finish_time: Box<str>,
    reason: Box<str>,
    extend: Box<str>,
}

impl Content {
    fn field(&mut self, key: &str, node: &Node) -> Result<(), Fault> {
        match key {
            "action" | "Event" => self.name.read(node),
            "succ" => self.is_success.read(node),
            "Action" => self.outcome.read(node),
            "finishTime" => self.finish_time.read(node),
            "reason" | "Reason" => self.reason.read(node),
            "extend" | "ExternalMessage" => self.extend.read(node),
            _ => Ok(()),
        }
    }
}

fn report(key: JobKey, content: &str) -> Result<JobReport, Peer> {
    if content.len() > NODE_JOB_REPORT_BYTES_MAX {
        let got = content.len();
        return Err(Peer::new(format!(
            "got {got} bytes, expected {NODE_JOB_REPORT_BYTES_MAX} at most"
        )));
    }
    let node = parsed(content)?;
    let mut read = Content::default();
    tree::each(&node, &mut |key, node| read.field(key, node)).map_err(peer)?;
    let action = match key.generation {
        Generation::V1Alpha2 => named(&read.name),
        // `Upgrading` is what EdgeCore reports if it has the version already.
        Generation::V1Alpha1 => ACTIONS
            .iter()
            .find(|row| !row.2.is_empty() && (*row.2 == *read.name || *row.1 == *read.name))
            .map(|row| row.0),
    };
    let action = action.ok_or_else(|| {
        Peer::new(format!("got {:?}, expected an action", tree::shorten(&read.name)))
    })?;
    let is_success = match key.generation {
        Generation::V1Alpha2 => read.is_success,
        Generation::V1Alpha1 => matches!(&*read.outcome, "Success" | "Confirmation"),
    };
    let result = if is_success { Ok(()) } else { Err(cut(&read.reason)) };
    let detail = detail(action, &read.extend)?;
    Ok(JobReport { key, action, result, at: Timestamp::parse(&read.finish_time), detail })
}

fn parsed(text: &str) -> Result<Node, Peer> {
    tree::parse_json(text.as_bytes()).map_err(|refusal| Peer::new(refusal.why))
}

#[expect(clippy::needless_pass_by_value, reason = "it is a function for `map_err`")]
fn peer(fault: Fault) -> Peer {
    Peer::new(fault.to_string())
}

/// A reason goes into the job's status, which has a bound.
fn cut(text: &str) -> Box<str> {
    let mut end = text.len().min(NODE_JOB_TEXT_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end].into()
}

fn detail(action: JobAction, extend: &str) -> Result<JobDetail, Peer> {
    match action {
        JobAction::Pull if !extend.is_empty() && extend != "null" => {
            let node = parsed(extend).map_err(|why| Peer::at("extend", why))?;
            let Value::List(list) = &node.value else {
                return Err(Peer::new(format!("extend: got {}, expected a list", node.value)));
            };
            if list.len() > NODE_JOB_IMAGES_MAX {
                let got = list.len();
                return Err(Peer::new(format!(
                    "extend: got {got} images, expected {NODE_JOB_IMAGES_MAX} at most"
                )));
            }
            let images = list.iter().map(image).collect::<Result<_, _>>();
            Ok(JobDetail::Images(images.map_err(|why| Peer::at("extend", why))?))
        }
        JobAction::BackUp | JobAction::Upgrade | JobAction::RollBack => {
            Ok(match extend.split_once(',') {
                Some((from, to)) if !to.contains(',') => {
                    JobDetail::Versions { from: cut(from), to: cut(to) }
                }
                Some(_) | None => JobDetail::Nothing,
            })
        }
        JobAction::Init
        | JobAction::Check
        | JobAction::WaitingConfirmation
        | JobAction::Pull
        | JobAction::Update => Ok(JobDetail::Nothing),
    }
}

fn image(node: &Node) -> Result<ImageResult, Peer> {
    let (mut name, mut state, mut reason) = <(Box<str>, Box<str>, Box<str>)>::default();
    let mut take = |key: &str, node: &Node| match key {
        "image" => name.read(node),
        "status" | "state" => state.read(node),
        "reason" => reason.read(node),
        _ => Ok(()),
    };
    tree::each(node, &mut take).map_err(peer)?;
    let is_pulled = matches!(&*state, "True" | "Successful");
    let result = if is_pulled { Ok(()) } else { Err(cut(&reason)) };
    Ok(ImageResult { image: cut(&name), result })
}
