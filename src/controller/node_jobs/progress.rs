//! What the status of a job should be now: a pure function of the recorded status, the reports of
//! nodes, which nodes are there, and the time.
//!
//! ```text
//!  New ─nodes are resolved─▶ Init ─▶ InProgress ─all nodes are over─▶ Completed │ Failure
//!
//!  node: Pending ─asked─▶ InProgress ─▶ Successful │ Failure
//!                             └─ time-out ─▶ Unknown ─late report─▶ Successful │ Failure
//! ```
//!
//! Nothing goes back. The phase of a job that is over stays, whatever is reported late.
//!
//! While a node works, the reason in its status says when it was asked or has reported last: the
//! next controller goes on by it.

use std::collections::{BTreeMap, BTreeSet};

use super::super::Session;
use super::super::key::NodeId;
use super::super::object::Edge;
use super::super::time::Instant;
use super::job::shortened;
use super::job::{ActionStatus, ImageStatus, Job, JobPhase, NodePhase, NodeStatus, Spec, Status};
use crate::limits::JOB_SETTLE_MS;
use crate::model::node_job::{ImageResult, JobAction, JobDetail, JobKind, JobReport};
use crate::model::time::Timestamp;

/// What this controller knows of a job beside its object.
#[derive(Debug, Default)]
pub(super) struct Memory {
    /// Reports that are not recorded yet, by node: each action once.
    pub(super) reports: BTreeMap<Box<str>, Vec<JobReport>>,
    /// In which session each node was asked, in this life.
    pub(super) asked: BTreeMap<Box<str>, Session>,
    /// Nodes whose request was not sent, because their session had ended.
    pub(super) unsent: BTreeSet<Box<str>>,
    /// Nodes that have begun a new life since they were asked.
    pub(super) restarted: BTreeSet<Box<str>>,
    /// When each node is given up, and by which time in its status that was set.
    deadlines: BTreeMap<Box<str>, (Box<str>, Instant)>,
}

/// What is known of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Presence {
    /// It has a session here.
    Here(Link),
    /// It is ready: it has one with another replica, or is about to have one.
    Ready,
    /// It has left, or does not exist.
    Away,
}

/// A node with a session here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Link {
    pub(super) id: NodeId,
    pub(super) session: Session,
    pub(super) edge: Edge,
}

/// The world around a job.
pub(super) struct View<'a> {
    pub(super) now: Instant,
    pub(super) wall: Timestamp,
    /// This replica does what only one may do.
    pub(super) leads: bool,
    pub(super) presence: &'a dyn Fn(&str) -> Presence,
}

/// A node to be asked once the status is written that says so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Ask {
    pub(super) node: Box<str>,
    pub(super) link: Link,
}

/// The status as it should be.
#[derive(Debug, Default)]
pub(super) struct Plan {
    pub(super) status: Status,
    pub(super) asks: Vec<Ask>,
}

/// The plan for a job whose nodes are resolved.
pub(super) fn plan(job: &Job, memory: &mut Memory, view: &View<'_>) -> Plan {
    let mut plan = Plan { status: job.status.clone(), asks: Vec::new() };
    take_reports(job.kind, &mut plan.status, memory, view.wall);
    let (Ok(spec), false) = (&job.spec, plan.status.phase.is_final()) else {
        return plan;
    };
    let presences: Vec<Presence> =
        plan.status.nodes.iter().map(|node| (view.presence)(&node.name)).collect();
    if view.leads {
        give_up(NodePhase::InProgress, spec, &mut plan.status, memory, view);
    }
    let free = ask(job, spec, &mut plan, &presences, memory, view);
    if !plan.asks.is_empty() {
        plan.status.phase = JobPhase::InProgress;
    }
    if free == 0 {
        memory.deadlines.retain(|_, (since, _)| !since.is_empty());
    }
    if view.leads {
        if free > 0 {
            give_up(NodePhase::Pending, spec, &mut plan.status, memory, view);
        }
        conclude(spec, &mut plan.status);
    }
    plan
}

/// Adds a report; one about an action that waits already is left out.
pub(super) fn add_report(memory: &mut Memory, report: JobReport) {
    let waiting = memory.reports.entry(report.key.node.clone()).or_default();
    if waiting.iter().all(|it| it.action != report.action) {
        waiting.push(report);
    }
}

/// Adds the reports to the status. Those that change nothing are recorded already, or late.
fn take_reports(kind: JobKind, status: &mut Status, memory: &mut Memory, wall: Timestamp) {
    for node in &mut status.nodes {
        let Some(waiting) = memory.reports.get_mut(&node.name) else { continue };
        waiting.retain(|report| take(kind, node, report, wall));
        if waiting.is_empty() {
            memory.reports.remove(&node.name);
        }
    }
}

/// Adds a report to the status of its node. Returns whether it changes anything.
pub(super) fn take(
    kind: JobKind,
    node: &mut NodeStatus,
    report: &JobReport,
    wall: Timestamp,
) -> bool {
    let Some(name) = recorded_name(kind, report.action) else { return false };
    let is_open = matches!(node.phase, NodePhase::InProgress | NodePhase::Unknown);
    if !is_open || node.actions.iter().any(|action| *action.action == *name) {
        return false;
    }
    let why = report.result.as_ref().err().map_or("", |why| &**why);
    let status = if report.result.is_ok() { "True" } else { "False" };
    let time = report.at.map(|at| at.to_string()).unwrap_or_default();
    node.actions.push(ActionStatus {
        action: name.into(),
        status: status.into(),
        reason: shortened(why),
        time: time.into(),
    });
    match &report.detail {
        JobDetail::Nothing => {}
        JobDetail::Images(images) => {
            node.images = images.iter().map(image).collect();
        }
        JobDetail::Versions { from, to } => {
            (node.from, node.to) = (shortened(from), shortened(to));
        }
    }
    let (phase, reason) = match (report.action, &report.result) {
        (JobAction::Pull | JobAction::Upgrade, Ok(())) => (NodePhase::Successful, String::new()),
        (JobAction::RollBack, result) => (NodePhase::Failure, went_back(node, result)),
        // It goes back to the version that it had, and reports that.
        (JobAction::Upgrade, Err(_)) | (_, Ok(())) if node.phase == NodePhase::InProgress => {
            (NodePhase::InProgress, format!("reported {name} at {wall}"))
        }
        (JobAction::Upgrade, Err(_)) | (_, Ok(())) => return true,
        (_, Err(_)) => (NodePhase::Failure, format!("{name}: {}", failure(node, why))),
    };
    (node.phase, node.reason) = (phase, shortened(&reason));
    true
}

/// The name of an action in `actionFlow`; `None`: the kind has no such action, or it is not
/// recorded.
fn recorded_name(kind: JobKind, action: JobAction) -> Option<&'static str> {
    let name = match action {
        JobAction::Check => "Check",
        JobAction::Pull if kind == JobKind::PrePull => "Pull",
        JobAction::WaitingConfirmation if kind == JobKind::Upgrade => "WaitingConfirmation",
        JobAction::BackUp if kind == JobKind::Upgrade => "BackUp",
        JobAction::Upgrade if kind == JobKind::Upgrade => "Upgrade",
        JobAction::RollBack if kind == JobKind::Upgrade => "RollBack",
        JobAction::Init
        | JobAction::Pull
        | JobAction::WaitingConfirmation
        | JobAction::BackUp
        | JobAction::Upgrade
        | JobAction::Update
        | JobAction::RollBack => return None,
    };
    Some(name)
}

fn image(it: &ImageResult) -> ImageStatus {
    let reason = it.result.as_ref().err().map_or("", |why| &**why);
    let status = if it.result.is_ok() { "True" } else { "False" };
    ImageStatus { image: shortened(&it.image), status: status.into(), reason: shortened(reason) }
}

/// Why an action failed, with the first image that could not be pulled.
fn failure(node: &NodeStatus, why: &str) -> String {
    match node.images.iter().find(|image| &*image.status == "False") {
        Some(image) => format!("{why}: {}: {}", image.image, image.reason),
        None => why.to_owned(),
    }
}

/// Why a node went back to the version that it had.
fn went_back(node: &NodeStatus, result: &Result<(), Box<str>>) -> String {
    let upgrade = node.actions.iter().find(|it| &*it.action == "Upgrade");
    let why = upgrade.map_or("", |it| &*it.reason);
    match result {
        Ok(()) => format!("RollBack: it went back, because the upgrade failed: {why}"),
        Err(back) => format!("RollBack: {back}; the upgrade failed: {why}"),
    }
}

/// Asks nodes, as far as there are slots. Returns how many are free then.
fn ask(
    job: &Job,
    spec: &Spec,
    plan: &mut Plan,
    presences: &[Presence],
    memory: &Memory,
    view: &View<'_>,
) -> usize {
    let nodes = &mut plan.status.nodes;
    // Also of nodes that seem to have left: they may have a session with another replica.
    let mut held = nodes.iter().filter(|node| node.phase == NodePhase::InProgress).count();
    let is_stopped = job.kind == JobKind::Upgrade && has_failed(spec, nodes);
    for (node, presence) in nodes.iter_mut().zip(presences) {
        let Presence::Here(link) = presence else { continue };
        let is_first = node.phase == NodePhase::Pending;
        let is_due = if is_first {
            !is_stopped && held < spec.concurrency
        } else {
            let may =
                node.phase == NodePhase::InProgress && may_repeat(job.kind, node, link, memory);
            may && held <= spec.concurrency
        };
        if !is_due {
            continue;
        }
        if link.edge == Edge::Stages && job.kind == JobKind::Upgrade {
            let why = "its EdgeCore is older than 1.21: upgrade it with keadm on the node";
            (node.phase, node.reason) = (NodePhase::Failure, why.into());
            continue;
        }
        node.reason = match since(&node.reason) {
            before if is_first || before.is_empty() => format!("asked at {}", view.wall).into(),
            before => format!("{before}, asked again at {}", view.wall).into(),
        };
        node.phase = NodePhase::InProgress;
        held += usize::from(is_first);
        plan.asks.push(Ask { node: node.name.clone(), link: *link });
    }
    if is_stopped {
        let why = "not asked: too many nodes have failed";
        for node in nodes.iter_mut().filter(|node| node.phase == NodePhase::Pending) {
            (node.phase, node.reason) = (NodePhase::Failure, why.into());
        }
    }
    spec.concurrency.saturating_sub(held)
}

/// Whether a node that was asked is asked again in this session: the request may have been lost, or
/// the node has forgotten it. EdgeCore does an upgrade twice that is requested twice.
fn may_repeat(kind: JobKind, node: &NodeStatus, link: &Link, memory: &Memory) -> bool {
    if memory.asked.get(&node.name) == Some(&link.session) {
        return false;
    }
    if memory.unsent.contains(&node.name) {
        return kind != JobKind::ConfigUpdate;
    }
    let is_silent = node.actions.is_empty() && !memory.reports.contains_key(&node.name);
    match kind {
        // In v1alpha1 a session knows nothing of the stages of the one before.
        JobKind::PrePull => {
            is_silent || memory.restarted.contains(&node.name) || link.edge == Edge::Stages
        }
        JobKind::Upgrade => is_silent && link.edge == Edge::Idempotent,
        JobKind::ConfigUpdate => false,
    }
}

/// Whether more of the nodes that were asked have failed than may fail.
fn has_failed(spec: &Spec, nodes: &[NodeStatus]) -> bool {
    let was_asked =
        |node: &&NodeStatus| !node.actions.is_empty() || node.phase == NodePhase::Unknown;
    let failed = nodes.iter().filter(was_asked).filter(|node| node.phase.is_failed()).count();
    exceeds(spec, failed, nodes.len())
}

/// Rounded to hundredths, as by KubeEdge; but where none may fail, one of 300 is too many.
fn exceeds(spec: &Spec, failed: usize, total: usize) -> bool {
    let (failed, total) = (failed as u64, total.max(1) as u64);
    let hundredths = (failed * 200 + total) / (2 * total);
    if spec.tolerated == 0 { failed > 0 } else { hundredths > spec.tolerated }
}

/// Gives up the nodes of this phase whose time is over. The time of a node that was never asked
/// runs while there is a slot for it.
fn give_up(
    phase: NodePhase,
    spec: &Spec,
    status: &mut Status,
    memory: &mut Memory,
    view: &View<'_>,
) {
    let timeout_ms = spec.timeout_s.saturating_mul(1_000);
    for node in status.nodes.iter_mut().filter(|node| node.phase == phase) {
        let since = since(&node.reason);
        let known = memory.deadlines.get(&node.name).filter(|(known, _)| **known == *since);
        let at = known.map_or_else(
            || {
                let passed_ms = passed_ms(since, view.wall);
                // A node that reported while no controller ran has time to say it again.
                let left_ms = timeout_ms.saturating_sub(passed_ms);
                view.now.plus_ms(left_ms.max(timeout_ms.min(JOB_SETTLE_MS)))
            },
            |(_, at)| *at,
        );
        memory.deadlines.insert(node.name.clone(), (since.into(), at));
        if view.now < at {
            continue;
        }
        memory.deadlines.remove(&node.name);
        let seconds = spec.timeout_s;
        let upgrade = node.actions.iter().find(|it| &*it.action == "Upgrade");
        let (phase, reason) = match (node.phase, upgrade) {
            (NodePhase::Pending, _) => {
                (NodePhase::Unknown, format!("timed out: not connected within {seconds} s"))
            }
            // Only its way back was not reported.
            (_, Some(upgrade)) => (NodePhase::Failure, format!("Upgrade: {}", upgrade.reason)),
            (_, None) => (NodePhase::Unknown, format!("timed out: no report within {seconds} s")),
        };
        (node.phase, node.reason) = (phase, shortened(&reason));
    }
}

/// The first part of a reason: its time does not begin anew when the node is asked again.
fn since(reason: &str) -> &str {
    reason.split(", ").next().unwrap_or_default()
}

/// Milliseconds since a time such as `asked at 2027-01-15T08:00:00Z`.
fn passed_ms(since: &str, wall: Timestamp) -> u64 {
    let at = since.rsplit_once(" at ").and_then(|(_, at)| Timestamp::parse(at));
    let passed_s = at.map_or(0, |at| wall.0.saturating_sub(at.0).max(0));
    passed_s.unsigned_abs().saturating_mul(1_000)
}

/// The phase of the job.
pub(super) fn conclude(spec: &Spec, status: &mut Status) {
    let nodes = &status.nodes;
    let (total, failed) = (nodes.len(), nodes.iter().filter(|it| it.phase.is_failed()).count());
    if nodes.iter().any(|node| !node.phase.is_over()) {
        if nodes.iter().any(|node| node.phase == NodePhase::InProgress) {
            status.phase = JobPhase::InProgress;
        }
    } else if exceeds(spec, failed, total) {
        status.phase = JobPhase::Failure;
        status.reason = format!(
            "the number of failed nodes is {failed}/{total}, which exceeds the failure tolerance \
             threshold"
        )
        .into();
    } else {
        status.phase = JobPhase::Completed;
    }
}
