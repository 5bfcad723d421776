//! The mind: what is wanted, what is seen, and what to ask for. No I/O, no clock, no threads.
#![forbid(unsafe_code)]

pub mod admit;
pub mod amounts;
mod calls;
#[cfg(feature = "cloud")]
mod cloud;
#[cfg(not(feature = "cloud"))]
#[path = "cloud/absent.rs"]
mod cloud;
pub mod event;
#[cfg(feature = "eviction")]
mod eviction;
#[cfg(not(feature = "eviction"))]
#[path = "eviction/absent.rs"]
mod eviction;
mod gc;
mod housekeeping;
pub mod image;
#[cfg(feature = "cloud")]
mod inventory;
mod logs;
mod node;
pub mod objects;
mod pleg;
pub mod pod;
mod pods;
#[cfg(feature = "probes")]
mod probe_results;
mod qos;
mod queries;
mod recorder;
mod removed;
mod requests;
mod runtime;
mod source;
mod view;
mod volume;
#[cfg(feature = "watchdog")]
mod watchdog;
#[cfg(not(feature = "watchdog"))]
#[path = "watchdog/absent.rs"]
mod watchdog;

use std::collections::{BTreeMap, BTreeSet};

pub use crate::core::{rate, time};

use calls::{Calls, Outcome, Owner};
use cloud::Cloud;
use event::{Action, CallId, Event, Out, Severity};
use housekeeping::{Housekeeping, HousekeepingContext};
use image::Images;
use node::Node;
use objects::{Objects, ObjectsOf};
use pleg::Pleg;
use pod::{Answer, Place, PodContext};
use pods::{Knowledge, Pods, Sources};
use queries::Queries;
use recorder::Recorder;
use removed::Removed;
use runtime::Runtime;
use source::Source;
use time::{Instant, Now, Rng};
use watchdog::Watchdog;

use crate::limits::{Budget, SHUTDOWN_MS};
use crate::model::cgroup::Cgroups;
use crate::model::cri::{CallError, Dns, Reply};
use crate::model::housekeeping::Settings as HousekeepingSettings;
#[cfg(feature = "cloud")]
use crate::model::machine::Identity;
use crate::model::metrics::Histogram;
use crate::model::node::Pressure;
use crate::model::recorded_event::{EventType, Object};
#[cfg(feature = "cloud")]
use crate::model::settings::CloudSettings;
use crate::model::settings::PodSettings;
use crate::model::watchdog as watched;

/// What the mind must know before it starts; none of it changes while it runs.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// The node's name: lower case, a DNS subdomain.
    pub node_name: String,
    /// The node's labels beyond those that every node has (`nodeLabels`).
    pub node_labels: BTreeMap<String, String>,
    /// Absolute folder of the pods' volumes and files: `/var/lib/kubelet`.
    pub root: String,
    /// Absolute folder of the pods' logs: `/var/log/pods`.
    pub pod_logs: String,
    /// What the machine has.
    pub machine: Machine,
    /// The most pods at once (`maxPods`).
    pub pods_max: usize,
    /// How pods are run.
    pub settings: PodSettings,
    /// The longest wait of a crashing container, milliseconds (`crashLoopBackOff`).
    pub crash_backoff_max_ms: u64,
    /// By what the node is kept in order.
    pub housekeeping: HousekeepingSettings,
    /// Pulls of images.
    pub pulls: image::Settings,
    /// The machine's watchdog.
    pub watchdog: watched::Settings,
    /// How the node belongs to its cloud; `None`: there is none, and the folder is all there is.
    #[cfg(feature = "cloud")]
    pub cloud: Option<CloudSettings>,
}

/// What the machine has.
#[derive(Clone, Debug, Default)]
pub struct Machine {
    /// Bytes.
    pub memory_bytes: u64,
    /// Thousandths of a core.
    pub cpu_milli: u64,
    /// Processes and threads at once; 0: not known.
    pub pids_max: u64,
    /// Linux's version: the first two numbers.
    pub kernel: (u32, u32),
    /// The kernel enforces AppArmor profiles.
    pub apparmor: bool,
    /// Bytes of the file system with the kubelet's root.
    pub storage_bytes: u64,
    /// The bounds of what others may make this process keep.
    pub budget: Budget,
    /// Bytes set aside for huge pages, by the bytes of one page.
    pub huge_pages: BTreeMap<u64, u64>,
    /// Folders with counters of the processors' heat, which containers are not to see.
    pub thermal_paths: Vec<String>,
    /// Who it is, for the cloud.
    #[cfg(feature = "cloud")]
    pub identity: Identity,
    /// Where pods' cgroups can be made.
    pub cgroups: Cgroups,
}

/// The whole mind.
pub struct Agent {
    config: Config,
    booted_at: Instant,
    rng: Rng,
    source: Source,
    /// Of the manifest folder.
    objects: Objects,
    cloud: Option<Box<Cloud>>,
    /// Of the cloud: its pods do not see the folder's, nor the other way round.
    cloud_objects: Objects,
    pods: Pods,
    #[cfg(feature = "probes")]
    probe_results: probe_results::SavedResults,
    /// What the runtime says is gone.
    removed: Removed,
    runtime: Runtime,
    pleg: Pleg,
    calls: Calls,
    images: Images,
    queries: Queries,
    notes: Recorder,
    housekeeping: Housekeeping,
    watchdog: Watchdog,
    node: Node,
    addresses: Vec<String>,
    resolver: Dns,
    last_job: u64,
    pod_start: Histogram,
    pod_start_total: Histogram,
    /// The trouble with the runtime that was last said.
    said: Option<String>,
    /// Log lines that came up while learning.
    pending: Out,
    /// Told to end, which it does by then at the latest.
    leave_by: Option<Instant>,
    /// As of the last step.
    now: Now,
}

impl Agent {
    /// Knows nothing yet but its configuration; looks at the runtime before it acts.
    pub fn boot(config: Config, now: Now, seed: u64) -> Self {
        let housekeeping = Housekeeping::new(&config, now);
        let driver = config.settings.cgroups.driver;
        let pulls = config.pulls;
        let cloud = Self::cloud(&config, now);
        let watchdog = Watchdog::new(&config.watchdog, now.boot);
        Self {
            watchdog,
            cloud,
            cloud_objects: Objects::default(),
            config,
            booted_at: now.boot,
            rng: Rng::new(seed),
            source: Source::default(),
            objects: Objects::default(),
            pods: Pods::default(),
            #[cfg(feature = "probes")]
            probe_results: probe_results::SavedResults::default(),
            removed: Removed::default(),
            runtime: Runtime::new(now, driver),
            pleg: Pleg::new(),
            calls: Calls::new(pulls.parallel_max),
            images: Images::new(pulls, now),
            queries: Queries::default(),
            notes: Recorder::default(),
            housekeeping,
            node: Node::default(),
            addresses: Vec::new(),
            resolver: Dns::default(),
            last_job: 0,
            pod_start: Histogram::default(),
            pod_start_total: Histogram::default(),
            // So that the first thing said is either that it is ready or why it is not.
            said: Some(String::new()),
            pending: Out::default(),
            leave_by: None,
            now,
        }
    }

    /// Learns one fact. Asks for nothing.
    pub fn handle(&mut self, now: Now, event: Event) {
        let now = self.with_cloud_clock(now);
        self.watchdog.learn(&event);
        match event {
            Event::RuntimeUp => self.runtime_up(now),
            Event::RuntimeDown { cause } => self.runtime.down(cause),
            Event::Cri(call, result) => self.answer(now, call, result),
            Event::Changed(call) => self.pleg.changed(call),
            Event::Manifests(folder) => {
                let refusal = |pod: &_| Some(admit::refusal(pod, &self.config)?.message);
                let name = &self.config.node_name;
                self.source.take(folder, name, &refusal, &mut self.pending);
                let changed = self.objects.take(self.source.objects(), &mut self.pending);
                self.pods.objects_changed(&changed);
                self.want(now);
            }
            Event::Job(job, result) => {
                let taken = self.cloud_job_done(now, job, &result)
                    || self.housekeeping.job_done(job, &result)
                    || self.pods.iter_mut().any(|pod| pod.job_done(now, job, &result));
                assert!(taken, "answer to {job:?}, which nobody asked for");
            }
            Event::Used(job, used) => {
                let taken = self.housekeeping.used(job, Some(used));
                assert!(taken, "answer to {job:?}, which nobody asked for");
            }
            Event::Attempts(job, attempts) => {
                let taken = self.pods.iter_mut().any(|pod| pod.dirs_made(now, job, &attempts));
                assert!(taken, "answer to {job:?}, which nobody asked for");
            }
            Event::Measured(measures) => self.housekeeping.measured(now, &measures),
            // Cancelled while its answer was on the way: of no more interest.
            Event::Probe(probe, finding) => {
                if let Some(uid) = self.queries.end(probe) {
                    let pod = self.pods.get_mut(&uid).expect("a pod with a query is not forgotten");
                    pod.found(now, probe, finding);
                }
            }
            Event::LastWords(job, text) => {
                let taken = self.pods.iter_mut().any(|pod| pod.words_read(job, &text));
                assert!(taken, "answer to {job:?}, which nobody asked for");
            }
            #[cfg(feature = "probes")]
            Event::SavedProbeResults(saved) => self.probe_results.load(saved),
            #[cfg(not(feature = "probes"))]
            Event::SavedProbeResults(_) => {}
            Event::Credentials(keyring) => self.images.take_node(*keyring),
            // What runs keeps what it has; what starts is told the new.
            Event::Resolver(dns) => self.resolver = *dns,
            Event::Addresses(addresses) => {
                self.addresses = addresses;
                self.pods.iter_mut().for_each(pod::Pod::stir);
            }
            #[cfg(feature = "cloud")]
            Event::Loaded(_)
            | Event::Saved(_)
            | Event::SaveFailed(..)
            | Event::LinkUp(..)
            | Event::LinkDown(..)
            | Event::Heard(_)
            | Event::Sent(..)
            | Event::Cloud(..) => self.handle_cloud(now, event),
            Event::Stop => {
                self.leave_by.get_or_insert(now.boot.plus_ms(SHUTDOWN_MS));
            }
        }
    }

    fn runtime_up(&mut self, now: Now) {
        self.runtime.up(now);
        self.pleg.up(now);
        self.pods.up();
        self.removed.up();
        self.housekeeping.up();
    }

    fn answer(&mut self, now: Now, call: CallId, result: Result<Reply, CallError>) {
        let outcome = if result.is_ok() { Outcome::Answered } else { Outcome::Failed };
        // Cancelled while its answer was on the way: of no more interest.
        let Some((owner, took_ms)) = self.calls.end(now, call, outcome) else { return };
        match owner {
            Owner::Runtime => {
                self.runtime.answer(now, call, result, self.pods.is_empty());
            }
            Owner::Pleg => {
                if let Some(mut list) = self.pleg.answer(now, call, result) {
                    self.removed.sift(now, &mut list, &mut self.pending);
                    let renamed = self.source.take_over(&list, &self.pods);
                    if !renamed.is_empty() {
                        self.pods.remove(&renamed);
                        self.want(now);
                    }
                    self.housekeeping.look(now, &list, &self.pods);
                    let doomed = self.cloud.as_ref().map(|cloud| cloud.tombstones());
                    self.pods.look(now, list, self.sources(), doomed);
                    if let Some(cloud) = self.cloud.as_mut().filter(|_| self.pods.is_complete()) {
                        cloud.all_pods_known();
                    }
                }
            }
            Owner::Housekeeping => self.housekeeping.answer(now, call, &result),
            Owner::Exec(uid) => {
                let pod = self.pods.get_mut(&uid).expect("a pod with a call is not forgotten");
                pod.called(now, call, result);
            }
            Owner::Pod(uid) => {
                let answer = Answer { call, took_ms, looks_begun: self.pleg.begun() };
                let pod = self.pods.get_mut(&uid).expect("a pod with a call is not forgotten");
                if let Some(id) = pod.answer(now, &answer, result, &mut self.rng) {
                    self.removed.answered(id, answer.looks_begun);
                }
            }
        }
    }

    /// What all sources want, together.
    fn want(&mut self, now: Now) {
        let mut wish = self.source.wish();
        if let Some(cloud) = &self.cloud {
            wish.add_cloud(cloud.pods());
        }
        self.pods.want(now, wish, &self.config);
        self.housekeeping.pods_changed(now);
        // What nobody wants is found by looking.
        self.pleg.want();
    }

    fn sources(&self) -> Sources {
        let folder = match (self.source.is_delivered(), self.source.is_broken()) {
            (false, false) => Knowledge::Silent,
            (false, true) => Knowledge::Unread,
            (true, true) => Knowledge::Broken,
            (true, false) => Knowledge::Whole,
        };
        // Without a cloud, what one wanted once nobody wants any more.
        let cloud = self.cloud.as_ref().map_or(Knowledge::Whole, |cloud| cloud.knowledge());
        Sources { folder, cloud }
    }

    /// Looks at all that is known and asks for what is missing.
    pub fn step(&mut self, now: Now, out: &mut Out) {
        let now = self.with_cloud_clock(now);
        self.now = now;
        out.actions.append(&mut self.pending.actions);
        if let Some(by) = self.leave_by {
            // The next agent sees by looking what changes now, but for results of probes: those
            // are saved for it.
            self.pods.refresh(now, place(&self.runtime, &self.addresses));
            #[cfg(feature = "probes")]
            self.probe_results.step(&self.pods, out);
            if by <= now.boot || !self.calls.has_work() {
                out.push(Action::Exit);
            }
            return;
        }
        self.step_parts(now, out);
        // Last: it looks at what all of them asked for.
        self.watchdog.step(now.boot, self.runtime.is_ready(now), out);
    }

    fn step_parts(&mut self, now: Now, out: &mut Out) {
        self.runtime.step(now, &mut self.calls, out);
        self.say_trouble(now, out);
        if !self.runtime.is_ready(now) {
            let place = place(&self.runtime, &self.addresses);
            self.pods.refresh(now, place);
            self.step_cloud(now, out);
            return;
        }
        loop {
            // Before the pods: it tells them what to part with, and goes on where one is gone.
            self.step_chores(now, out);
            let moved = self.step_pods(now, out);
            let forgot = self.pods.forget(now, &self.config);
            // Others may have waited for that.
            if !moved && !forgot {
                break;
            }
        }
        #[cfg(feature = "probes")]
        self.probe_results.step(&self.pods, out);
        self.calls.tell_pulls(now, out);
        // Last: what the pods want to see is begun in the same step.
        self.pleg.step(now, self.pods.is_empty(), &mut self.calls, out);
        self.step_cloud(now, out);
    }

    fn step_chores(&mut self, now: Now, out: &mut Out) {
        let sources = self.sources();
        let mut context = HousekeepingContext {
            pods: &mut self.pods,
            sources,
            config: &self.config,
            driver: self.runtime.driver(),
            calls: &mut self.calls,
            last_job: &mut self.last_job,
            notes: &mut self.notes,
            pleg: &mut self.pleg,
            out,
        };
        self.housekeeping.step(now, &mut context);
        if let Some(pressures) = self.housekeeping.take_pressures() {
            self.take_pressures(now, pressures, out);
        }
    }

    /// What the node runs short of: told where it changed, and heeded by who comes next.
    fn take_pressures(&mut self, now: Now, pressures: BTreeSet<Pressure>, out: &mut Out) {
        self.pods.press(&pressures);
        for pressure in self.node.set_pressures(now, pressures) {
            let name = &self.config.node_name;
            let reason = pressure.change(self.node.pressures().contains(&pressure));
            let message = format!("Node {name} status is now: {reason}");
            self.notes.add(now, Object::node(name), EventType::Normal, reason, message, out);
        }
    }

    /// Says whether a pod went on to another phase.
    fn step_pods(&mut self, now: Now, out: &mut Out) -> bool {
        let place = place(&self.runtime, &self.addresses);
        let mut context = PodContext {
            config: &self.config,
            objects: ObjectsOf { folder: &self.objects, cloud: &self.cloud_objects },
            place,
            runtime: self.runtime.status(),
            driver: self.runtime.driver(),
            resolver: &self.resolver,
            calls: &mut self.calls,
            queries: &mut self.queries,
            #[cfg(feature = "probes")]
            saved_results: self.probe_results.loaded(),
            rng: &mut self.rng,
            booted_at: self.booted_at,
            last_job: &mut self.last_job,
            notes: &mut self.notes,
            images: &mut self.images,
            pleg: &mut self.pleg,
            out,
        };
        let stepped = self.pods.step(now, self.runtime.status(), place, &mut context);
        for uid in stepped.changed {
            let pod = self.pods.get_mut(&uid).expect("just stepped");
            let line = format!("{}uid={uid} status={:?}", pod.log_name(), pod.api().status.phase);
            out.push(Action::Log(Severity::Info, line));
            if let Some((total_ms, sli_ms)) = pod.take_start(now) {
                self.pod_start_total.observe_ms(total_ms);
                if let Some(ms) = sli_ms {
                    self.pod_start.observe_ms(ms);
                }
            }
        }
        stepped.moved
    }

    /// Says once what keeps the runtime from being used, and once that it is over.
    fn say_trouble(&mut self, now: Now, out: &mut Out) {
        if self.runtime.is_settling() || (self.said.is_none() && self.runtime.is_ready(now)) {
            return;
        }
        let trouble = self.runtime.trouble(now);
        if trouble == self.said {
            return;
        }
        match &trouble {
            Some(why) => {
                out.push(Action::Log(Severity::Warn, format!("runtime not usable: {why}")));
            }
            None => out.push(Action::Log(Severity::Info, "runtime ready".to_owned())),
        }
        self.said = trouble;
    }

    /// When to call [`Agent::step`] again if nothing happens before; strictly after the last step.
    pub fn wake_at(&self) -> Option<Instant> {
        if self.leave_by.is_some() {
            return self.leave_by;
        }
        let always = [self.runtime.wake_at(), self.cloud_wake_at(), self.watchdog.wake_at()];
        let mut wake_at = always.into_iter().flatten().min();
        if self.runtime.is_ready(self.now) {
            let own = self.housekeeping.wake_at();
            let of_calls = self.calls.wake_at();
            wake_at = [wake_at, self.pods.wake_at(), self.pleg.wake_at(self.now), own, of_calls]
                .into_iter()
                .flatten()
                .min();
        }
        wake_at
    }
}

fn place<'a>(runtime: &'a Runtime, addresses: &'a [String]) -> Place<'a> {
    let runtime_name = runtime.version().map_or("", |version| &version.runtime_name);
    Place { addresses, runtime_name }
}
