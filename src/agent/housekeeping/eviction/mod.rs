//! Eviction: pods are evicted if the node is under pressure, or if a pod exceeds its disk limits
//! (spec section 9.4).
//!
//! ```text
//!  Rest ─due─▶ Measuring ─shortages, conditions─▶ Gathering ─usage of pods─▶ a limit is exceeded,
//!   ▲             ▲                                                           or a threshold met
//!   │             │                                                  │              │
//!   │             └── Reclaiming ◀── first what no pod needs ────────┘              │
//!   └──────────────── Leaving ◀── one pod for a threshold, all that pass a limit ◀──┘
//! ```
//!
//! A cycle begins with measurements of its own, so that no pod is evicted for a pressure that is
//! over. The usage of pods is collected only if a pod may have to be evicted; directories are
//! walked in a child process that can be killed. Never evicted: the pods of [`is_critical`].
//!
//! If we crash here: the next start measures again. An evicted pod that its source still wants
//! starts again, unless the source stored that it has failed.

mod local;
mod messages;
mod rank;
mod shortage;
mod usage;

use std::collections::{BTreeMap, BTreeSet};

use super::gc::Gc;
use super::{HousekeepingContext, MeasurePlan, Periodic};
use crate::agent::admit::is_critical;
use crate::agent::calls::Uid;
use crate::agent::event::{Action, Severity};
use crate::agent::pod::{Eviction, Origin, Phase, Pod, Wanted};
use crate::agent::time::{Instant, Now};
use crate::limits;
use crate::model::cgroup;
use crate::model::cri::{CallError, Reply};
use crate::model::housekeeping::{EvictionPolicy, Measures, Signal};
use crate::model::job::{JobError, JobReply};
use crate::model::node::Pressure;
use crate::model::recorded_event::EventType;
use shortage::{Observed, Shortage, Threshold};
use usage::{Needs, UsageCollector, Usages};

/// The eviction manager.
#[derive(Debug)]
pub struct EvictionManager {
    shortage: Shortage,
    grace_max_s: i64,
    pods_memory_max: u64,
    cycle: Periodic,
    /// When the limits of pods are checked.
    limits: Periodic,
    stage: Stage,
    /// The pending measurement was requested by the eviction manager.
    measure_pending: bool,
    observed: Option<Observed>,
    /// The path of the images was requested from the runtime, if it was necessary.
    image_path_requested: bool,
    /// The last logged reason why no pod was evicted.
    logged_reason: Option<String>,
    /// The pressures to report.
    pressures: Option<BTreeSet<Pressure>>,
    counts: BTreeMap<&'static str, u64>,
}

#[derive(Debug)]
enum Stage {
    Rest,
    /// At the beginning of a cycle.
    Measuring,
    Collecting(UsageCollector),
    Reclaiming(Reclaim),
    /// These pods were evicted: the next cycle begins when nothing is left of them.
    Cleaning {
        uids: Vec<Uid>,
        until: Instant,
    },
}

/// Garbage is removed before a pod is evicted.
#[derive(Debug)]
struct Reclaim {
    case: Case,
    what: Reclaimed,
    until: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reclaimed {
    Containers,
    Images,
    /// All garbage was removed: whether it was enough is being measured.
    Measuring,
}

/// Why a pod may have to be evicted.
#[derive(Debug)]
struct Case {
    /// The thresholds that are met, the most severe first.
    due: Vec<Threshold>,
    observed: Observed,
    usages: Usages,
}

impl EvictionManager {
    /// Nothing measured yet; all pods together may use `pods_memory_max` bytes.
    pub fn new(policy: &EvictionPolicy, pods_memory_max: u64, now: Instant) -> Self {
        Self {
            pods_memory_max,
            shortage: Shortage::new(policy),
            grace_max_s: policy.grace_max_s,
            cycle: Periodic::new(limits::EVICTION_MS, now),
            limits: Periodic::new(limits::EVICTION_LIMITS_MS, now),
            stage: Stage::Rest,
            measure_pending: false,
            observed: None,
            image_path_requested: false,
            logged_reason: None,
            pressures: None,
            counts: BTreeMap::new(),
        }
    }

    /// The runtime is back, and may be another: calls under way were answered before.
    pub fn up(&mut self) {
        self.image_path_requested = false;
    }

    /// Takes the machine's measurements.
    pub fn measured(&mut self, measures: &Measures) {
        if std::mem::take(&mut self.measure_pending) {
            self.observed = Some(Observed::of(measures, self.pods_memory_max));
        }
    }

    /// Takes the answer to a call for the usage of pods.
    pub fn answer(&mut self, result: &Result<Reply, CallError>) {
        self.collector().answer(result);
    }

    /// Takes the disk usage of directories; an error: it could not be measured.
    pub fn walked(&mut self, result: Result<JobReply, JobError>) {
        self.collector().walked(result);
    }

    /// What has requested usage: a collection ends only when everything is answered.
    fn collector(&mut self) -> &mut UsageCollector {
        let Stage::Collecting(collector) = &mut self.stage else {
            panic!("no usage is being collected")
        };
        collector
    }

    /// Pods evicted since the start, by signal.
    pub fn counts(&self) -> BTreeMap<&'static str, u64> {
        self.counts.clone()
    }

    /// The node's pressures, if they were measured since the last step.
    pub fn take_pressures(&mut self) -> Option<BTreeSet<Pressure>> {
        self.pressures.take()
    }

    /// When something is due.
    pub fn due_at(&self) -> Option<Instant> {
        match &self.stage {
            Stage::Rest => (!self.shortage.is_empty()).then(|| self.cycle.due_at()),
            Stage::Measuring | Stage::Collecting(_) => None,
            Stage::Reclaiming(reclaim) => Some(reclaim.until),
            Stage::Cleaning { until, .. } => Some(*until),
        }
    }

    /// Continues as far as possible. Returns whether the garbage collector has more to do.
    pub fn step(
        &mut self,
        now: Now,
        context: &mut HousekeepingContext<'_>,
        gc: &mut Gc,
        measure_plan: &mut MeasurePlan,
    ) -> bool {
        let wanted = self.reclaims();
        loop {
            let before = std::mem::discriminant(&self.stage);
            self.stage = match std::mem::replace(&mut self.stage, Stage::Rest) {
                Stage::Rest => self.begin(now, context, gc, measure_plan),
                Stage::Measuring => match self.observed.take() {
                    Some(observed) => self.evaluate(now, observed, context),
                    None => Stage::Measuring,
                },
                Stage::Collecting(mut collector) => {
                    collector.step(now, context);
                    if collector.is_done() {
                        self.decide(now, collector, context, gc)
                    } else {
                        Stage::Collecting(collector)
                    }
                }
                Stage::Reclaiming(reclaim) => self.reclaim(now, reclaim, context, gc, measure_plan),
                Stage::Cleaning { uids, until } => self.wait_for_cleanup(now, uids, until, context),
            };
            if std::mem::discriminant(&self.stage) == before {
                let reclaims = self.reclaims();
                return reclaims.is_some() && reclaims != wanted;
            }
        }
    }

    /// What the garbage collector has to remove.
    fn reclaims(&self) -> Option<Reclaimed> {
        match &self.stage {
            Stage::Reclaiming(Reclaim { what: Reclaimed::Measuring, .. }) => None,
            Stage::Reclaiming(reclaim) => Some(reclaim.what),
            Stage::Rest | Stage::Measuring | Stage::Collecting(_) | Stage::Cleaning { .. } => None,
        }
    }

    fn begin(
        &mut self,
        now: Now,
        context: &mut HousekeepingContext<'_>,
        gc: &mut Gc,
        measure_plan: &mut MeasurePlan,
    ) -> Stage {
        // Only then all pods are searched.
        if !self.cycle.is_due(now.boot) {
            return Stage::Rest;
        }
        if self.shortage.is_empty() && !context.pods.iter().any(Pod::bounds_disk) {
            return Stage::Rest;
        }
        // The disk of the images decides what can be reclaimed, and which pod is evicted.
        let known = gc.find_image_path(now, context, self.image_path_requested);
        self.image_path_requested = true;
        if known && self.request_measures(context, gc, measure_plan) {
            self.cycle.done(now.boot);
            return Stage::Measuring;
        }
        Stage::Rest
    }

    /// Requests a measurement; `false`: another one is under way.
    fn request_measures(
        &mut self,
        context: &HousekeepingContext<'_>,
        gc: &Gc,
        measure_plan: &mut MeasurePlan,
    ) -> bool {
        let Some(request) = measure_plan.fields() else { return false };
        if let Some(path) = gc.image_path() {
            request.image_fs = Some(path.into());
        }
        request.pids |= self.shortage.has(Signal::Pids);
        let settings = &context.config.settings.cgroups;
        if settings.per_qos && self.shortage.has(Signal::PodsMemory) {
            request.pods_cgroup = Some(cgroup::all_pods(context.driver, &settings.root).into());
        }
        self.measure_pending = true;
        self.observed = None;
        true
    }

    /// The beginning of a cycle: evaluates the pressures.
    fn evaluate(
        &mut self,
        now: Now,
        observed: Observed,
        context: &mut HousekeepingContext<'_>,
    ) -> Stage {
        let (due, pressures) = self.shortage.observe(now.boot, &observed);
        self.pressures = Some(pressures);
        if !self.shortage.is_met() && !context.pods.iter().any(Pod::bounds_disk) {
            self.logged_reason = None;
        }
        let limits = self.limits.is_due(now.boot) && context.pods.iter().any(Pod::bounds_disk);
        if limits {
            self.limits.done(now.boot);
        }
        if due.is_empty() && !limits {
            return Stage::Rest;
        }
        let needs = Needs::new(&due, limits);
        let candidates = context.pods.iter().filter(|pod| is_candidate(pod));
        Stage::Collecting(UsageCollector::new(needs, due, observed, candidates))
    }

    /// The usage of pods is known now.
    fn decide(
        &mut self,
        now: Now,
        collector: UsageCollector,
        context: &mut HousekeepingContext<'_>,
        gc: &mut Gc,
    ) -> Stage {
        let UsageCollector { needs, due, observed, usages, failed, .. } = collector;
        if let Some(why) = failed {
            self.log_once(
                context,
                &format!("no pod is evicted: the usage of pods is not known: {why}"),
            );
            return Stage::Rest;
        }
        if needs.limits {
            let gone = self.evict_violators(&observed, &usages, context);
            if !gone.is_empty() {
                return cleaning(now, gone);
            }
        }
        let Some(first) = due.first() else { return Stage::Rest };
        let message = format!("Attempting to reclaim {}", messages::resource(first.signal));
        context.record_event(now, EventType::Warning, "EvictionThresholdMet", message);
        let reclaims = first.frees_images(observed.dedicated);
        let case = Case { due, observed, usages };
        if !reclaims {
            return self.evict_one(now, &case, context);
        }
        gc.reclaim_containers();
        let until = now.boot.plus_ms(limits::EVICTION_RECLAIM_MS);
        Stage::Reclaiming(Reclaim { case, what: Reclaimed::Containers, until })
    }

    fn reclaim(
        &mut self,
        now: Now,
        mut reclaim: Reclaim,
        context: &mut HousekeepingContext<'_>,
        gc: &mut Gc,
        measure_plan: &mut MeasurePlan,
    ) -> Stage {
        let late = reclaim.until <= now.boot;
        match reclaim.what {
            Reclaimed::Containers => {
                let busy = gc.is_reclaiming() || context.pods.iter().any(Pod::has_garbage);
                if !busy || late {
                    gc.reclaim_images();
                    reclaim.what = Reclaimed::Images;
                    reclaim.until = now.boot.plus_ms(limits::EVICTION_RECLAIM_MS);
                }
            }
            Reclaimed::Images => {
                if (!gc.is_reclaiming() || late) && self.request_measures(context, gc, measure_plan)
                {
                    reclaim.what = Reclaimed::Measuring;
                }
            }
            Reclaimed::Measuring => {
                if let Some(observed) = self.observed.take() {
                    if self.shortage.is_over(&observed) {
                        return Stage::Rest;
                    }
                    return self.evict_one(now, &reclaim.case, context);
                }
            }
        }
        Stage::Reclaiming(reclaim)
    }

    /// Evicts all pods that exceed their disk limits.
    fn evict_violators(
        &mut self,
        observed: &Observed,
        usages: &Usages,
        context: &mut HousekeepingContext<'_>,
    ) -> Vec<Uid> {
        let mut gone = Vec::new();
        for (uid, usage) in usages {
            let Some(pod) = context.pods.get_mut(uid).filter(|pod| is_candidate(pod)) else {
                continue;
            };
            let Some((signal, message)) = local::violation(pod.api(), usage, observed.dedicated)
            else {
                continue;
            };
            if is_critical(pod.api()) {
                self.log_once(
                    context,
                    &format!("uid={uid} not evicted, because it is critical: {message}"),
                );
                continue;
            }
            *self.counts.entry(signal).or_default() += 1;
            pod.evict(Eviction::at_once(message));
            gone.push(uid.clone());
        }
        gone
    }

    /// Evicts one pod for the most severe shortage.
    fn evict_one(&mut self, now: Now, case: &Case, context: &mut HousekeepingContext<'_>) -> Stage {
        let threshold = &case.due[0];
        let resource = messages::resource(threshold.signal);
        let pods = context.pods.iter().filter(|pod| is_candidate(pod));
        let dedicated = case.observed.dedicated;
        let Some(uid) = rank::first(pods, threshold.signal, dedicated, &case.usages) else {
            self.log_once(
                context,
                &format!("the node is low on {resource}, and no pod can be evicted"),
            );
            return Stage::Rest;
        };
        let pod = context.pods.get_mut(&uid).expect("just chosen");
        let grace_s = match threshold.grace_ms {
            None => 1,
            Some(_) => self.grace_max_s,
        };
        let (message, annotations) =
            messages::message(pod.api(), case.usages.get(&uid), &case.due, &case.observed);
        *self.counts.entry(threshold.name()).or_default() += 1;
        pod.evict(Eviction { message, grace_s, annotations, disrupted: true });
        self.logged_reason = None;
        cleaning(now, vec![uid])
    }

    fn wait_for_cleanup(
        &mut self,
        now: Now,
        uids: Vec<Uid>,
        until: Instant,
        context: &HousekeepingContext<'_>,
    ) -> Stage {
        let left = |uid: &Uid| context.pods.get(uid).is_some_and(|pod| !pod.is_cleaned_up());
        if until > now.boot && uids.iter().any(left) {
            return Stage::Cleaning { uids, until };
        }
        self.cycle = Periodic::new(limits::EVICTION_MS, now.boot);
        Stage::Rest
    }

    fn log_once(&mut self, context: &mut HousekeepingContext<'_>, why: &str) {
        if self.logged_reason.as_deref() != Some(why) {
            self.logged_reason = Some(why.to_owned());
            context.out.push(Action::Log(Severity::Warn, why.to_owned()));
        }
    }
}

/// A pod that may be evicted, if it is not critical: it runs, or is about to.
fn is_candidate(pod: &Pod) -> bool {
    pod.phase() == Phase::Syncing
        && pod.is_active()
        && pod.origin() != Origin::Runtime
        && *pod.wanted() == Wanted::Yes
}

fn cleaning(now: Now, uids: Vec<Uid>) -> Stage {
    Stage::Cleaning { uids, until: now.boot.plus_ms(limits::EVICTION_CLEAN_MS) }
}
