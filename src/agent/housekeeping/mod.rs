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

#[cfg(feature = "eviction")]
mod eviction;
#[cfg(not(feature = "eviction"))]
#[path = "eviction/absent.rs"]
mod eviction;
mod gc;
#[cfg(feature = "cloud")]
mod inventory;
mod logs;
mod qos;

use std::collections::{BTreeMap, BTreeSet};

use crate::agent::Config;
use crate::agent::amounts::Amounts;
use crate::agent::calls::{CallTask, Calls, Class, Owner};
use crate::agent::event::{Action, Out};
use crate::agent::jobs::{JobOwner, JobTask, Jobs};
use crate::agent::pleg::{List, Pleg};
use crate::agent::pods::{Pods, Sources};
use crate::agent::recorder::Recorder;
use crate::agent::time::{Instant, Now};
use crate::limits;
use crate::model::cri::{CallError, CgroupDriver, Reply, Request};
#[cfg(feature = "cloud")]
use crate::model::housekeeping::StoredImage;
use crate::model::housekeeping::{HousekeepingCall, MeasureRequest, Measures};
use crate::model::job::{JobError, JobReply, JobSpec};
use crate::model::node::Pressure;
use crate::model::recorded_event::{EventType, Object};
use eviction::EvictionManager;
#[cfg(feature = "cloud")]
use inventory::Inventory;
use logs::Logs;
use qos::Qos;

#[derive(Debug)]
pub struct Housekeeping {
    measuring: Measuring,
    stepped_at: Instant,
    qos: Qos,
    gc: gc::Gc,
    #[cfg(feature = "cloud")]
    inventory: Inventory,
    logs: Logs,
    eviction: EvictionManager,
}

/// The [`Action::Measure`] under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Measuring {
    Not,
    Requested {
        /// It includes the image file system.
        images: bool,
    },
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
    /// The pending jobs.
    pub jobs: &'a mut Jobs,
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
            measuring: Measuring::Not,
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
        let Measuring::Requested { images } =
            std::mem::replace(&mut self.measuring, Measuring::Not)
        else {
            panic!("a measurement that was not requested")
        };
        self.gc.measured(now.boot, measures, images);
        self.logs.measured(measures);
        self.eviction.measured(measures);
    }

    /// Takes the answer to a call.
    pub fn answer(&mut self, now: Now, task: CallTask, result: &Result<Reply, CallError>) {
        match task {
            CallTask::ImagePath => self.gc.image_path_answer(now.boot, result),
            CallTask::Images => self.gc.images_answer(now.boot, result),
            #[cfg(feature = "cloud")]
            CallTask::Inventory => self.inventory.answer(result),
            CallTask::Logs => self.logs.answer(result),
            #[cfg(feature = "eviction")]
            CallTask::Eviction => self.eviction.answer(result),
        }
    }

    /// Takes the result of a job.
    pub fn job_done(&mut self, task: JobTask, result: Result<JobReply, JobError>) {
        match task {
            JobTask::Qos => self.qos.job_done(&result.map(drop)),
            JobTask::Orphans => self.gc.links_swept(),
            JobTask::Logs => self.logs.job_done(&result.map(drop)),
            #[cfg(feature = "eviction")]
            JobTask::Eviction => self.eviction.walked(result),
        }
    }

    /// These images are not collected, unless a container has used them since.
    #[cfg(feature = "node-jobs")]
    pub fn keep_images(&mut self, kept: Vec<(Box<str>, Instant)>) {
        self.gc.keep_images(kept);
    }

    /// The path of the runtime's images is asked for, also where none are collected.
    #[cfg(feature = "node-jobs")]
    pub fn want_image_path(&mut self) {
        self.gc.want_image_path();
    }

    /// The path of the runtime's images, if it is known.
    #[cfg(feature = "node-jobs")]
    pub fn image_path(&self) -> Option<&str> {
        self.gc.image_path()
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
        let mut measure_plan =
            MeasurePlan { closed: self.measuring != Measuring::Not, request: None };
        self.gc.step(now, context, &mut measure_plan);
        #[cfg(feature = "cloud")]
        self.inventory.step(now, context);
        self.logs.step(now, context, &mut measure_plan);
        #[cfg(feature = "eviction")]
        while self.eviction.step(now, context, &mut self.gc, &mut measure_plan) {
            self.gc.step(now, context, &mut measure_plan);
        }
        if let Some(request) = measure_plan.request {
            self.measuring = Measuring::Requested { images: request.image_fs.is_some() };
            context.out.push(Action::Measure(Box::new(request)));
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
    /// Makes a call for a task. `false`: there is no room.
    #[must_use]
    pub fn call(&mut self, now: Now, task: CallTask, call: HousekeepingCall) -> bool {
        let request = Request::HousekeepingCall(call);
        let room = self.calls.has_room(Class::of(&request));
        if room {
            self.calls.begin(now, Owner::Housekeeping(task), request, self.out);
        }
        room
    }

    /// Begins a job for a task.
    pub fn job(&mut self, now: Now, task: JobTask, spec: JobSpec) {
        self.jobs.begin(now, JobOwner::Housekeeping(task), spec, self.out);
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
    request: Option<MeasureRequest>,
}

impl MeasurePlan {
    /// The fields to set; `None`: a measurement is under way, try again after its answer.
    pub fn fields(&mut self) -> Option<&mut MeasureRequest> {
        (!self.closed).then(|| self.request.get_or_insert_with(MeasureRequest::default))
    }
}
