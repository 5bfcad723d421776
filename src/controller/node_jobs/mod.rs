//! Jobs for nodes, as KubeEdge's `taskmanager` and controller-manager do them (spec
//! `servicebus-router-tasks`, part C): images are pulled before they are needed, and agents are
//! upgraded, on some nodes at once.
//!
//! ```text
//!  ImagePrePullJob, NodeUpgradeJob ─watch─▶ jobs ─plan─▶ status ─write─▶ written ─request─▶ node
//!                                            ▲                                               │
//!                                            └───────────────────────── reports ─────────────┘
//! ```
//!
//! **All state is in the job's status.** A node is asked after the status is written that says so,
//! and that write fails if another has written meanwhile. So replicas need not know of each other:
//! each asks the nodes that are connected to it, and never more at once than the job allows. The
//! leader alone resolves the nodes of a new job, gives up those whose time is over, and ends the
//! job.
//!
//! A node whose request may have been lost is asked again when it connects, where that does no harm
//! (`progress::may_repeat`). A node that has left holds its slot until its time is over: whether it
//! works with another replica is not known here.
//!
//! Jobs that change the configuration of nodes are refused.
//!
//! If we crash here: the next controller reads the statuses and goes on. Reports that were not
//! written are lost; edged sends them again, EdgeCore does not, and is timed out.

mod job;
mod progress;
mod selector;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::Controller;
use super::cache::Cache;
use super::calls::{JobCall, OwnPart};
use super::event::{Action, Severity};
use super::key::{Key, NodeId};
use super::object::{Edge, Object};
use super::outbound;
use super::overview::JobOverview;
use super::time::{Backoff, Instant, Now};
use crate::limits::{
    CONTROLLER_JOBS_MAX, JOB_CALLS_MAX, JOB_CHECK_MS, JOB_NODES_MAX, JOB_RETRY_MAX_MS,
    JOB_RETRY_MIN_MS, JOB_SETTLE_MS, JOB_WRITE_BYTES, JOB_WRITE_MS, JOBS_PER_STEP,
};
use crate::model::api::{Call, CallError, CallResult, Kind};
use crate::model::cloud_message::Content;
use crate::model::error::Peer;
use crate::model::node_job::{Generation, JobAction, JobKey, JobKind, JobReport};
use job::{Job, JobPhase, NodePhase, NodeStatus, Status, kind_of};
use progress::{Ask, Link, Memory, Plan, Presence, View};

/// All jobs.
#[derive(Default)]
pub(super) struct NodeJobs {
    all: BTreeMap<Key, Entry>,
    /// When each is looked at.
    queue: BTreeSet<(Instant, Key)>,
    /// The jobs that are not over, by the nodes in their statuses that are not over.
    of_node: BTreeMap<Box<str>, BTreeSet<Key>>,
    calls: BTreeMap<JobCall, Key>,
    last: u64,
    /// Since when nodes may connect.
    ready_at: Option<Instant>,
    /// Refusals that were logged, by the kind.
    refused: BTreeSet<Kind>,
    /// That there are too many jobs was logged.
    is_full_logged: bool,
}

struct Entry {
    job: Job,
    /// The list in which it was seen last.
    round: u32,
    memory: Memory,
    running: Option<(JobCall, Vec<Ask>)>,
    /// Its place in the queue.
    due_at: Option<Instant>,
    /// It is not looked at before this time.
    next_at: Instant,
    backoff: Backoff,
}

impl Entry {
    fn is_over(&self) -> bool {
        self.job.status.phase.is_final()
    }

    /// The nodes that the job waits for.
    fn open_nodes(&self) -> impl Iterator<Item = &NodeStatus> {
        let nodes = self.job.status.nodes.iter().filter(|_| !self.is_over());
        nodes.filter(|node| !node.phase.is_over())
    }
}

impl NodeJobs {
    /// A job was read. It replaces what is known, unless that is newer.
    fn put(&mut self, now: Instant, key: &Key, job: Job, round: u32) -> Result<(), Full> {
        let known = self.all.get_mut(key).filter(|entry| entry.job.uid == job.uid);
        if let Some(entry) = known {
            entry.round = entry.round.max(round);
            if entry.job.version >= job.version {
                return Ok(());
            }
            self.leave_nodes(key);
            let entry = self.all.get_mut(key).expect("just seen");
            entry.job = job;
        } else {
            self.remove(key);
            if self.all.len() >= CONTROLLER_JOBS_MAX && !self.make_room() {
                return Err(Full);
            }
            let (memory, running, due_at) = (Memory::default(), None, None);
            let (next_at, backoff) = (now, Backoff::default());
            let entry = Entry { job, round, memory, running, due_at, next_at, backoff };
            self.all.insert(key.clone(), entry);
        }
        let entry = &self.all[key];
        for node in entry.open_nodes() {
            self.of_node.entry(node.name.clone()).or_default().insert(key.clone());
        }
        self.schedule(key, now);
        Ok(())
    }

    /// The oldest job that is over is forgotten.
    fn make_room(&mut self) -> bool {
        let over = self.all.iter().filter(|(_, entry)| entry.is_over() && entry.running.is_none());
        let oldest = over.min_by_key(|(_, entry)| entry.job.version).map(|(key, _)| key.clone());
        oldest.is_some_and(|key| {
            self.remove(&key);
            true
        })
    }

    fn leave_nodes(&mut self, key: &Key) {
        let Some(entry) = self.all.get(key) else { return };
        for node in entry.open_nodes() {
            if let Some(keys) = self.of_node.get_mut(&node.name) {
                keys.remove(key);
                if keys.is_empty() {
                    self.of_node.remove(&node.name);
                }
            }
        }
    }

    /// The job does not exist any more.
    fn remove(&mut self, key: &Key) {
        self.leave_nodes(key);
        if let Some(entry) = self.all.remove(key)
            && let Some(at) = entry.due_at
        {
            self.queue.remove(&(at, key.clone()));
        }
    }

    /// The list of a kind is complete, as of this version.
    fn sweep(&mut self, kind: Kind, round: u32, version: u64) {
        let of_kind = self.all.iter().filter(|(key, _)| key.kind == kind);
        let gone =
            of_kind.filter(|(_, entry)| entry.round != round && entry.job.version <= version);
        for key in gone.map(|(key, _)| key.clone()).collect::<Vec<_>>() {
            self.remove(&key);
        }
    }

    /// The job is looked at then, or when it may be written next.
    fn schedule(&mut self, key: &Key, at: Instant) {
        let Some(entry) = self.all.get_mut(key).filter(|entry| entry.running.is_none()) else {
            return;
        };
        let at = at.max(entry.next_at);
        if let Some(before) = entry.due_at.replace(at) {
            self.queue.remove(&(before, key.clone()));
        }
        self.queue.insert((at, key.clone()));
    }

    /// A node has connected, or has begun a new life.
    fn node_changed(&mut self, now: Instant, node: &str, is_restarted: bool) {
        for key in self.of_node.get(node).cloned().unwrap_or_default() {
            if let Some(entry) = self.all.get_mut(&key)
                && is_restarted
            {
                entry.memory.restarted.insert(node.into());
            }
            self.schedule(&key, now);
        }
    }

    /// Takes the report of a node. Returns `false` if it is about no job of this node.
    fn report(&mut self, now: Instant, key: &Key, report: JobReport) -> bool {
        let Some(entry) = self.all.get_mut(key) else { return false };
        let has_node = entry.job.status.nodes.iter().any(|it| it.name == report.key.node);
        if has_node {
            progress::add_report(&mut entry.memory, report);
            self.schedule(key, now);
        }
        has_node
    }

    /// The next call, if one is due and there is room for it.
    fn next(&mut self, now: Now, cache: &Cache, leads: bool) -> Option<(JobCall, Call)> {
        for _ in 0..JOBS_PER_STEP {
            let is_due = |(at, _): &&(Instant, Key)| *at <= now.boot;
            let (at, key) = self.queue.first().filter(is_due)?.clone();
            if self.calls.len() >= JOB_CALLS_MAX {
                return None;
            }
            self.queue.remove(&(at, key.clone()));
            let settled_at = self.ready_at.unwrap_or(now.boot).plus_ms(JOB_SETTLE_MS);
            let is_settled = settled_at <= now.boot;
            let entry = self.all.get_mut(&key).expect("it is queued");
            entry.due_at = None;
            entry.next_at = now.boot.plus_ms(JOB_WRITE_MS);
            let presence = |name: &str| cache.presence(name);
            // Without a clock nothing is done.
            let next = now.timestamp().and_then(|wall| {
                let view = View { now: now.boot, wall, leads, presence: &presence };
                entry.next(&key, cache, &view, is_settled)
            });
            let Some((call, asks)) = next else {
                let is_idle = entry.is_over() && !entry.job.is_held();
                if !is_idle {
                    self.schedule(&key, now.boot.plus_ms(JOB_CHECK_MS));
                }
                continue;
            };
            self.last += 1;
            let id = JobCall(self.last);
            let bytes = call.body.as_ref().map_or(0, |body| body.get().len());
            let slices = 1 + bytes / JOB_WRITE_BYTES;
            entry.next_at = now.boot.plus_ms(JOB_WRITE_MS * slices as u64);
            entry.running = Some((id, asks));
            self.calls.insert(id, key);
            return Some((id, call));
        }
        None
    }

    /// When to step again if nothing happens before.
    pub(super) fn wake_at(&self) -> Option<Instant> {
        let (at, _) = self.queue.first()?;
        (self.calls.len() < JOB_CALLS_MAX).then_some(*at)
    }
}

/// There are too many jobs that are not over.
struct Full;

/// A job of one node.
#[derive(Clone, Copy, Debug)]
pub struct JobOfNode<'a> {
    pub kind: JobKind,
    pub name: &'a str,
    /// `Pending`, `InProgress` … of the node.
    pub phase: &'static str,
    pub reason: &'a str,
}

impl Entry {
    /// The call that is due, and the nodes that are asked when it has succeeded.
    fn next(
        &mut self,
        key: &Key,
        cache: &Cache,
        view: &View<'_>,
        is_settled: bool,
    ) -> Option<(Call, Vec<Ask>)> {
        if self.job.is_ending {
            let call = (view.leads && self.job.is_held()).then(|| self.job.release(key))?;
            return Some((call, Vec::new()));
        }
        let Plan { status, asks } = if self.job.status.phase == JobPhase::New {
            let status = view.leads.then(|| first_status(&self.job, cache, view, is_settled))??;
            Plan { status, asks: Vec::new() }
        } else {
            progress::plan(&self.job, &mut self.memory, view)
        };
        (status != self.job.status).then(|| (self.job.write(key, &status), asks))
    }
}

/// The first status of a job: its nodes are resolved and looked at. `None`: some of them may be
/// about to connect.
fn first_status(job: &Job, cache: &Cache, view: &View<'_>, is_settled: bool) -> Option<Status> {
    let failure = |reason: &str| {
        let (phase, reason) = (JobPhase::Failure, job::shortened(reason));
        Some(Status { phase, reason, nodes: Vec::new() })
    };
    if job.kind == JobKind::ConfigUpdate {
        return failure(NO_CONFIG);
    }
    let spec = match &job.spec {
        Ok(spec) => spec,
        Err(why) => return failure(why),
    };
    let names = match &spec.selector {
        None => spec.names.clone(),
        Some(selector) => cache.selected(selector),
    };
    if names.is_empty() {
        return failure("no nodes were matched with selector");
    }
    if names.len() > JOB_NODES_MAX {
        let got = names.len();
        return failure(&format!(
            "labelSelector: got {got} nodes, expected {JOB_NODES_MAX} at most"
        ));
    }
    let mut nodes = Vec::with_capacity(names.len());
    for name in &names {
        let is_known = cache.object(&Key::node(name)).is_some();
        let (phase, reason) = match (view.presence)(name) {
            Presence::Here(_) | Presence::Ready => (NodePhase::Pending, ""),
            Presence::Away if !is_settled => return None,
            Presence::Away if is_known => (NodePhase::Failure, "the node is not ready"),
            Presence::Away => (NodePhase::Failure, NO_NODE),
        };
        nodes.push(NodeStatus::new(name, phase, reason));
    }
    let mut status = Status { phase: JobPhase::Init, reason: Box::default(), nodes };
    progress::conclude(spec, &mut status);
    Some(status)
}

const NO_CONFIG: &str = "edgecontroller does not change the configuration of nodes: change \
    edgecore.yaml on the node, and restart its agent";
const NO_NODE: &str = "there is no node of this name with the label node-role.kubernetes.io/edge";

impl Cache {
    /// What is known of a node.
    fn presence(&self, name: &str) -> Presence {
        let object = self.object(&Key::node(name)).and_then(|object| object.node.as_ref());
        let id = self.id_of(name);
        let link = id.and_then(|id| Some((id, self.nodes.get(&id)?.link.as_ref()?)));
        match (link, object) {
            (Some((id, link)), _) => {
                let edge = object.map_or(Edge::default(), |facts| facts.edge);
                Presence::Here(Link { id, session: link.session, edge })
            }
            (None, Some(facts)) if facts.is_ready => Presence::Ready,
            (None, _) => Presence::Away,
        }
    }

    /// The names of the nodes with such labels, one more than a job may have at the most.
    fn selected(&self, selector: &selector::Selector) -> Vec<Box<str>> {
        let nodes = self.nodes.values().filter(|node| node.is_known);
        let selected = nodes.filter(|node| {
            let object = self.object(&Key::node(&node.name));
            object.is_some_and(|object| selector.matches(&object.labels()))
        });
        let mut names: Vec<Box<str>> =
            selected.take(JOB_NODES_MAX + 1).map(|node| (*node.name).into()).collect();
        names.sort_unstable();
        names
    }
}

impl Controller {
    /// A job was listed, or has changed.
    pub(super) fn job_read(&mut self, now: Now, object: &Object, key: &Key) -> Result<(), Peer> {
        let kind = kind_of(key.kind).expect("it is a job's");
        let job = Job::read(kind, object)?;
        if self.jobs.put(now.boot, key, job, object.round).is_err()
            && !std::mem::replace(&mut self.jobs.is_full_logged, true)
        {
            let line = format!(
                "{key}: waits until this controller starts anew: {CONTROLLER_JOBS_MAX} jobs are \
                 not over"
            );
            self.pending.push(Action::Log(Severity::Warn, line));
        }
        self.update_job_secrets(key);
        Ok(())
    }

    /// A list has a job that cannot be read: it stays as it was.
    pub(super) fn job_unread(&mut self, key: &Key, round: u32) {
        if let Some(entry) = self.jobs.all.get_mut(key) {
            entry.round = round;
        }
    }

    /// A job was deleted.
    pub(super) fn job_deleted(&mut self, key: &Key) {
        self.jobs.remove(key);
        self.update_job_secrets(key);
    }

    /// All jobs of a kind were listed.
    pub(super) fn jobs_listed(&mut self, kind: Kind, round: u32, version: u64) {
        self.jobs.sweep(kind, round, version);
        let known = &self.jobs.all;
        self.cache.job_secrets.retain(|key, _| known.contains_key(key));
    }

    /// The nodes that work on a job may read the Secret that it names.
    fn update_job_secrets(&mut self, key: &Key) {
        let entry = self.jobs.all.get(key).filter(|entry| !entry.is_over());
        let secret = entry.and_then(|entry| entry.job.spec.as_ref().ok()?.secret.clone());
        let Some((entry, secret)) = entry.zip(secret) else {
            self.cache.job_secrets.remove(key);
            return;
        };
        let works = |node: &&NodeStatus| node.phase == NodePhase::InProgress;
        let nodes = entry.job.status.nodes.iter().filter(works).map(|node| node.name.clone());
        self.cache.job_secrets.insert(key.clone(), (secret, nodes.collect()));
    }

    /// Makes the calls about jobs that are due.
    pub(super) fn run_node_jobs(&mut self, now: Now) {
        for (id, is_restarted) in std::mem::take(&mut self.cache.arrived) {
            if let Some(node) = self.cache.nodes.get(&id) {
                self.jobs.node_changed(now.boot, &node.name, is_restarted);
            }
        }
        if !self.is_ready() || self.stopping {
            return;
        }
        self.jobs.ready_at.get_or_insert(now.boot);
        let leads = self.leader_election.leads(now.boot);
        while let Some((id, call)) = self.jobs.next(now, &self.cache, leads) {
            self.call_own(now, OwnPart::NodeJob(id), Some(call));
        }
    }

    /// The API server has answered a call about a job.
    pub(super) fn node_job_answered(&mut self, now: Now, id: JobCall, result: CallResult) {
        let key = self.jobs.calls.remove(&id).expect("an answer to a call that was made");
        let entry = self.jobs.all.get_mut(&key);
        let running = entry.and_then(|entry| entry.running.take_if(|(running, _)| *running == id));
        // It may have been deleted, and made anew.
        let Some((_, asks)) = running else { return };
        match result {
            Ok(raw) => {
                self.counters.job_writes += 1;
                self.jobs.refused.remove(&key.kind);
                let uid = Arc::clone(&self.jobs.all[&key].job.uid);
                if let Ok(read) = Object::read(key.kind, &raw)
                    && read.object.uid == uid
                    && self.job_read(now, &read.object, &key).is_ok()
                {
                    let entry = self.jobs.all.get_mut(&key).expect("just read");
                    entry.backoff = Backoff::default();
                    self.request(now, &key, asks);
                }
                self.jobs.schedule(&key, now.boot);
            }
            Err(CallError::Refused { code: 404, .. }) => self.job_deleted(&key),
            Err(error) => {
                let is_conflict = matches!(error, CallError::Refused { code: 409, .. });
                let entry = self.jobs.all.get_mut(&key).expect("just seen");
                let at = if is_conflict {
                    entry.next_at
                } else {
                    entry.backoff.retry_at(now.boot, JOB_RETRY_MIN_MS, JOB_RETRY_MAX_MS)
                };
                entry.next_at = entry.next_at.max(at);
                self.jobs.schedule(&key, at);
                self.job_refused(&key, &error);
            }
        }
    }

    /// Logged once for each kind, until a write succeeds.
    fn job_refused(&mut self, key: &Key, error: &CallError) {
        if let CallError::Refused { code: 400 | 403 | 413 | 422, status } = error
            && self.jobs.refused.insert(key.kind)
        {
            let why: String = status.get().chars().take(512).collect();
            let line = format!("{key}: the API server refuses its status: {why}");
            self.pending.push(Action::Log(Severity::Warn, line));
        }
    }

    /// Asks nodes, if they are still connected.
    fn request(&mut self, now: Now, key: &Key, asks: Vec<Ask>) {
        for Ask { node, link } in asks {
            let entry = self.jobs.all.get_mut(key).expect("it was just written");
            let open = self.cache.nodes.get_mut(&link.id).and_then(|it| it.link.as_mut());
            let Some(open) = open.filter(|open| open.session == link.session) else {
                entry.memory.unsent.insert(node);
                continue;
            };
            entry.memory.unsent.remove(&node);
            entry.memory.asked.insert(node.clone(), link.session);
            entry.memory.restarted.remove(&node);
            let generation = link.edge.generation();
            let (kind, name) = (entry.job.kind, key.name.as_ref().into());
            let of = JobKey { generation, kind, name, node: node.clone() };
            let content = match generation {
                Generation::V1Alpha2 => Content::Object(Arc::clone(&entry.job.raw_spec)),
                Generation::V1Alpha1 => entry.job.stage(&of, JobAction::Init),
            };
            open.reply(outbound::job(&mut self.rng, now, &of, content));
            self.counters.job_requests += 1;
            self.cache.ready.insert(link.id);
            let line = format!("node={node}: asked for {key}");
            self.pending.push(Action::Log(Severity::Info, line));
        }
    }

    /// A node reports an action of a job.
    pub(super) fn job_report(&mut self, now: Now, id: NodeId, report: JobReport) {
        self.counters.job_reports += 1;
        let node = self.cache.at(id).name.clone();
        if *report.key.node != *node {
            self.counters.job_reports_ignored += 1;
            let why = format!("got a report of node {:?} about {}", report.key.node, report.key);
            return self.count_offence(id, &why);
        }
        let kind = Kind::NODE_JOBS.into_iter().find(|kind| kind_of(*kind) == Some(report.key.kind));
        let key = Key::new(kind.expect("every kind has an object"), "", &report.key.name);
        self.next_stage(now, id, &key, &report);
        if !self.jobs.report(now.boot, &key, report) {
            // The job was deleted.
            self.counters.job_reports_ignored += 1;
        }
    }

    /// In v1alpha1 the cloud asks for each stage of a pre-pull when the one before is reported.
    fn next_stage(&mut self, now: Now, id: NodeId, key: &Key, report: &JobReport) {
        let next = match (report.key.generation, report.action, &report.result) {
            (Generation::V1Alpha1, JobAction::Init, Ok(())) => JobAction::Check,
            (Generation::V1Alpha1, JobAction::Check, Ok(())) => JobAction::Pull,
            (Generation::V1Alpha1 | Generation::V1Alpha2, ..) => return,
        };
        let link = self.cache.at(id).link.as_mut().expect("a session that is on");
        let entry = self.jobs.all.get(key).filter(|entry| {
            let is_asked = entry.memory.asked.get(&report.key.node) == Some(&link.session);
            is_asked && entry.job.kind == JobKind::PrePull
        });
        let Some(entry) = entry else { return };
        let content = entry.job.stage(&report.key, next);
        link.reply(outbound::job(&mut self.rng, now, &report.key, content));
        self.cache.ready.insert(id);
    }

    /// All jobs that are known, JSON of objects.
    pub fn node_jobs(&self, kind: Kind) -> impl Iterator<Item = &str> {
        let of_kind = self.jobs.all.iter().filter(move |(key, _)| key.kind == kind);
        of_kind.map(|(_, entry)| entry.job.text.get())
    }

    /// The jobs that this node has or had to do.
    pub fn jobs_of<'a>(&'a self, node: &'a str) -> impl Iterator<Item = JobOfNode<'a>> {
        self.jobs.all.iter().filter_map(move |(key, entry)| {
            let status = entry.job.status.nodes.iter().find(|it| *it.name == *node)?;
            let (phase, reason) = (status.phase.name(), &*status.reason);
            Some(JobOfNode { kind: entry.job.kind, name: &key.name, phase, reason })
        })
    }

    /// The jobs that are not over, in short.
    pub(super) fn job_overviews(&self) -> Vec<JobOverview> {
        let open = self.jobs.all.iter().filter(|(_, entry)| !entry.is_over());
        let overview = |(key, entry): (&Key, &Entry)| {
            let Status { phase, nodes, .. } = &entry.job.status;
            let count = |is: fn(NodePhase) -> bool| nodes.iter().filter(|it| is(it.phase)).count();
            JobOverview {
                name: format!("{}/{}", key.kind.name().to_ascii_lowercase(), key.name),
                phase: phase.name().to_owned(),
                nodes: nodes.len(),
                working: count(|it| it == NodePhase::InProgress),
                done: count(NodePhase::is_over),
                failed: count(NodePhase::is_failed),
            }
        };
        open.map(overview).collect()
    }

    /// How many jobs are not over.
    pub(super) fn open_jobs(&self) -> usize {
        self.jobs.all.values().filter(|entry| !entry.is_over()).count()
    }
}
