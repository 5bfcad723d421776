//! Housekeeping of the node, independent of single pods: measures free resources, removes garbage,
//! rotates logs, and evicts pods under pressure (spec sections 8, 9.4 and 11).
//!
//! ```text
//!  a wake-up by other parts ─▶ due? ─▶ Measure ─▶ Measured ─▶ images · logs · eviction
//!                                                               │ calls and jobs of their own,
//!                                                               └ garbage of pods is marked
//! ```
//!
//! Nothing here is urgent: it is done when the check of the runtime's health wakes the loop anyway,
//! and wakes the loop itself only if that does not happen for long. Each task has at most one call
//! or job under way, so that none can crowd out the pods.
//!
//! If we crash here: every task begins with a measurement or a list, so it is done again after the
//! restart.

use std::collections::{BTreeMap, BTreeSet};

use super::amounts::Amounts;
use super::calls::{Calls, Owner};
use super::event::{Action, CallId, JobId, Out};
use super::eviction::EvictionManager;
use super::gc;
#[cfg(feature = "cloud")]
use super::inventory::Inventory;
use super::logs::Logs;
use super::pleg::{List, Pleg};
use super::pods::{Pods, Sources};
use super::qos::Qos;
use super::recorder::Recorder;
use super::time::{Instant, Now};
use crate::agent::Config;
use crate::limits;
use crate::model::cri::{CallError, CgroupDriver, Reply, Request};
#[cfg(feature = "cloud")]
use crate::model::housekeeping::StoredImage;
use crate::model::housekeeping::{HousekeepingCall, MeasureRequest, Measures};
use crate::model::job::{JobError, JobSpec, Used};
use crate::model::node::Pressure;
use crate::model::recorded_event::{EventType, Object};

#[derive(Debug)]
pub struct Housekeeping {
    /// An [`Action::Measure`] is under way.
    measuring: bool,
    /// It includes the image file system.
    images_measured: bool,
    stepped_at: Instant,
    qos: Qos,
    gc: gc::Gc,
    #[cfg(feature = "cloud")]
    inventory: Inventory,
    logs: Logs,
    eviction: EvictionManager,
}

/// Everything that a housekeeping task needs.
pub struct HousekeepingContext<'a> {
    /// All pods.
    pub pods: &'a mut Pods,
    /// What is known of the sources, for pods that are not among them.
    pub sources: Sources,
    /// The static configuration.
    pub config: &'a Config,
    /// How cgroups are named.
    pub driver: CgroupDriver,
    /// The pending runtime calls.
    pub calls: &'a mut Calls,
    /// The last job's number.
    pub last_job: &'a mut u64,
    /// The event recorder.
    pub recorder: &'a mut Recorder,
    /// The source of relists.
    pub pleg: &'a mut Pleg,
    /// Where requests go.
    pub out: &'a mut Out,
}

impl Housekeeping {
    /// Nothing done yet.
    pub fn new(config: &Config, now: Now) -> Self {
        let settings = &config.housekeeping;
        let pods_memory_max = Amounts::of_pods(config).memory_bytes;
        Self {
            measuring: false,
            images_measured: false,
            stepped_at: now.boot,
            qos: Qos::new(now.boot),
            gc: gc::Gc::new(settings, now.boot),
            #[cfg(feature = "cloud")]
            inventory: Inventory::new(config, now.boot),
            logs: Logs::new(settings.logs.clone(), now.boot),
            eviction: EvictionManager::new(&settings.eviction, pods_memory_max, now.boot),
        }
    }

    /// The runtime is back, and may be another.
    pub fn up(&mut self) {
        self.gc.up();
        #[cfg(feature = "cloud")]
        self.inventory.up();
        self.logs.up();
        self.eviction.up();
    }

    /// The set of pods has changed.
    pub fn pods_changed(&mut self, now: Now) {
        self.qos.mark_dirty(now.boot);
    }

    /// Takes the result of a relist.
    pub fn take_list(&mut self, now: Now, list: &List, pods: &Pods) {
        self.gc.take_list(now.boot, list, pods);
    }

    /// Takes the machine's measurements.
    pub fn measured(&mut self, now: Now, measures: &Measures) {
        assert!(std::mem::take(&mut self.measuring), "a measurement that was not requested");
        self.gc.measured(now.boot, measures, self.images_measured);
        self.logs.measured(measures);
        self.eviction.measured(measures);
    }

    /// Takes the answer to a housekeeping call.
    pub fn answer(&mut self, now: Now, call: CallId, result: &Result<Reply, CallError>) {
        if self.gc.answer(now.boot, call, result) {
            return;
        }
        #[cfg(feature = "cloud")]
        if self.inventory.answer(call, result) {
            return;
        }
        if self.logs.answer(call, result) {
            return;
        }
        if self.eviction.answer(call, result) {
            return;
        }
        panic!("{call:?} is not a housekeeping call, answered by {result:?} at {:?}", now.boot);
    }

    /// Takes the answer to a job. `false`: it is not a housekeeping job.
    pub fn job_done(&mut self, job: JobId, result: &Result<(), JobError>) -> bool {
        if self.qos.job_done(job, result) {
            return true;
        }
        if self.gc.job_done(job, result) {
            return true;
        }
        if self.logs.job_done(job, result) {
            return true;
        }
        result.is_err() && self.used(job, None)
    }

    /// Takes the disk usage of directories; `None`: it could not be measured. `false`: it is not a
    /// housekeeping job.
    pub fn used(&mut self, job: JobId, used: Option<Vec<Option<Used>>>) -> bool {
        self.eviction.used(job, used)
    }

    /// The images in the node's status; `None`: not known yet.
    #[cfg(feature = "cloud")]
    pub fn images(&self) -> Option<&[StoredImage]> {
        self.inventory.images()
    }

    /// The node's pressures, if they were measured since the last step.
    pub fn take_pressures(&mut self) -> Option<BTreeSet<Pressure>> {
        self.eviction.take_pressures()
    }

    /// Pods evicted since the start, by signal.
    pub fn evictions(&self) -> BTreeMap<&'static str, u64> {
        self.eviction.counts()
    }

    /// Requests what is due.
    pub fn step(&mut self, now: Now, context: &mut HousekeepingContext<'_>) {
        self.stepped_at = now.boot;
        self.qos.step(now, context);
        let mut measure_plan = MeasurePlan { closed: self.measuring, ask: None };
        self.gc.step(now, context, &mut measure_plan);
        #[cfg(feature = "cloud")]
        self.inventory.step(now, context);
        self.logs.step(now, context, &mut measure_plan);
        #[cfg(feature = "eviction")]
        while self.eviction.step(now, context, &mut self.gc, &mut measure_plan) {
            self.gc.step(now, context, &mut measure_plan);
        }
        if let Some(ask) = measure_plan.ask {
            self.measuring = true;
            self.images_measured = ask.image_fs.is_some();
            context.out.push(Action::Measure(Box::new(ask)));
        }
    }

    /// When to step again if nothing happens before.
    pub fn wake_at(&self) -> Option<Instant> {
        let due = [
            Some(self.qos.due_at()),
            self.gc.due_at(),
            #[cfg(feature = "cloud")]
            self.inventory.due_at(),
            self.logs.due_at(),
            self.eviction.due_at(),
        ];
        let due_at = due.into_iter().flatten().min()?;
        // A task that is due and could not be done is retried no sooner.
        Some(due_at.max(self.stepped_at).plus_ms(limits::HOUSEKEEPING_LATE_MS))
    }
}

/// A periodic task, done when other parts have woken the loop.
#[derive(Clone, Copy, Debug)]
pub struct Periodic {
    due_at: Instant,
    period_ms: u64,
}

impl Periodic {
    /// Due for the first time at once.
    pub fn new(period_ms: u64, now: Instant) -> Self {
        Self { due_at: now, period_ms }
    }

    /// Whether it is due, or nearly.
    pub fn is_due(&self, now: Instant) -> bool {
        let early_ms = limits::HOUSEKEEPING_EARLY_MS.min(self.period_ms / 5);
        self.due_at <= now.plus_ms(early_ms)
    }

    /// It is done until the next period.
    pub fn done(&mut self, now: Instant) {
        self.due_at = now.plus_ms(self.period_ms);
    }

    /// Not due before this time.
    pub fn put_off(&mut self, until: Instant) {
        self.due_at = self.due_at.max(until);
    }

    /// When it is due.
    pub fn due_at(&self) -> Instant {
        self.due_at
    }
}

impl HousekeepingContext<'_> {
    /// Makes a call, if there is room.
    pub fn call(&mut self, now: Now, housekeeping: HousekeepingCall) -> Option<CallId> {
        let request = Request::HousekeepingCall(housekeeping);
        let room = self.calls.has_room(super::calls::Class::of(&request));
        room.then(|| self.calls.begin(now, Owner::Housekeeping, request, self.out))
    }

    /// Starts a job.
    pub fn job(&mut self, now: Now, spec: JobSpec) -> JobId {
        *self.last_job += 1;
        let job = JobId(*self.last_job);
        let deadline = now.boot.plus_ms(limits::JOB_DEADLINE_MS);
        self.out.push(Action::Job { job, spec, deadline });
        job
    }

    /// Records an event about the node.
    pub fn record_event(
        &mut self,
        now: Now,
        kind: EventType,
        reason: &'static str,
        message: String,
    ) {
        let object = Object::node(&self.config.node_name);
        self.recorder.add(now, object, kind, reason, message, self.out);
    }
}

/// What is to be measured in this step.
#[derive(Debug)]
pub struct MeasurePlan {
    closed: bool,
    ask: Option<MeasureRequest>,
}

impl MeasurePlan {
    /// The fields to set; `None`: a measurement is under way, try again after its answer.
    pub fn fields(&mut self) -> Option<&mut MeasureRequest> {
        (!self.closed).then(|| self.ask.get_or_insert_with(MeasureRequest::default))
    }
}
