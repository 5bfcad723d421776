//! The agent's core: compares desired and observed state and decides what to request. No I/O, no
//! clock, no threads.
#![forbid(unsafe_code)]

pub mod admit;
pub mod amounts;
mod calls;
#[cfg(feature = "cloud")]
mod cloud;
#[cfg(not(feature = "cloud"))]
#[path = "cloud/absent.rs"]
mod cloud;
#[cfg(feature = "devices")]
mod devices;
pub mod downward;
pub mod event;
mod housekeeping;
pub mod image;
mod jobs;
#[cfg(feature = "metaserver")]
mod metaserver;
mod node;
#[cfg(feature = "node-jobs")]
mod node_jobs;
pub mod objects;
mod pleg;
pub mod pod;
mod pods;
#[cfg(feature = "probes")]
mod probe_results;
mod recorder;
mod removed;
mod requests;
#[cfg(any(feature = "devices", feature = "servicebus"))]
mod rule_rows;
mod runtime;
#[cfg(feature = "servicebus")]
pub mod service_bus;
#[cfg(feature = "services")]
pub mod services;
mod source;
#[cfg(feature = "streams")]
mod streams;
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
use event::{Action, CallId, Event, JobId, Out, ProbeId, Severity};
use housekeeping::{Housekeeping, HousekeepingContext};
use image::Images;
use jobs::{JobOwner, Jobs, Queries, QueryOwner};
use node::Node;
#[cfg(feature = "node-jobs")]
use node_jobs::NodeJobs;
use objects::{Objects, ObjectsOf};
use pleg::Pleg;
use pod::{Answer, HostInfo, PodContext};
use pods::{Knowledge, Pods, Sources};
use recorder::Recorder;
use removed::Removed;
use runtime::Runtime;
use source::Source;
use time::{Instant, Now, Rng, sooner};
use watchdog::Watchdog;

use crate::limits::{Budget, SHUTDOWN_MS};
use crate::model::cgroup::Cgroups;
use crate::model::cri::{CallError, Dns, Reply};
use crate::model::housekeeping::Settings as HousekeepingSettings;
use crate::model::job::{JobError, JobReply};
#[cfg(feature = "cloud")]
use crate::model::machine::Identity;
use crate::model::manifest::Folder;
#[cfg(feature = "metaserver")]
use crate::model::metaserver::MetaServerSettings;
use crate::model::metrics::Histogram;
use crate::model::net::Finding;
use crate::model::node::Pressure;
use crate::model::recorded_event::{EventType, Object};
#[cfg(feature = "cloud")]
use crate::model::settings::CloudSettings;
#[cfg(feature = "devices")]
use crate::model::settings::DeviceSettings;
use crate::model::settings::PodSettings;
#[cfg(feature = "servicebus")]
use crate::model::settings::ServiceBusSettings;
#[cfg(feature = "services")]
use crate::model::settings::ServiceSettings;
#[cfg(all(feature = "cloud", feature = "streams"))]
use crate::model::settings::TunnelSettings;
use crate::model::watchdog as watched;

/// The static configuration of the core.
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
    pub pods_max: usize,
    /// How pods are run.
    pub settings: PodSettings,
    /// The longest wait of a crashing container, milliseconds (`crashLoopBackOff`).
    pub crash_backoff_max_ms: u64,
    /// Settings of housekeeping.
    pub housekeeping: HousekeepingSettings,
    /// Pulls of images.
    pub pulls: image::Settings,
    /// The machine's watchdog.
    pub watchdog: watched::Settings,
    /// Settings of the cloud connection; `None`: no cloud, only the manifest folder.
    #[cfg(feature = "cloud")]
    pub cloud: Option<CloudSettings>,
    /// Settings of devices, which the cloud has; `None`: they are not served.
    #[cfg(feature = "devices")]
    pub devices: Option<DeviceSettings>,
    /// Settings of the Kubernetes API on the node; `None`: it is not served.
    #[cfg(feature = "metaserver")]
    pub metaserver: Option<MetaServerSettings>,
    /// Whether jobs of the cloud for the node itself are done (`modules.taskManager.enable`).
    #[cfg(feature = "node-jobs")]
    pub node_jobs: bool,
    /// Repositories of the images of upgrades that need no digest
    /// (`modules.taskManager.upgradeRepositories`).
    #[cfg(feature = "node-jobs")]
    pub upgrade_repositories: Vec<Box<str>>,
    /// Settings of ServiceBus; `None`: it is switched off.
    #[cfg(feature = "servicebus")]
    pub service_bus: Option<ServiceBusSettings>,
    /// Settings of Services by name; `None`: they are not served.
    #[cfg(feature = "services")]
    pub services: Option<ServiceSettings>,
    /// Settings of the stream tunnel; `None`: there is none.
    #[cfg(all(feature = "cloud", feature = "streams"))]
    pub tunnel: Option<TunnelSettings>,
}

/// The machine's resources and features.
#[derive(Clone, Debug, Default)]
pub struct Machine {
    /// Bytes.
    pub memory_bytes: u64,
    /// Thousandths of a core.
    pub cpu_milli: u64,
    /// The maximum number of processes and threads; 0: not known.
    pub pids_max: u64,
    /// The first two numbers of Linux's version.
    pub kernel: (u32, u32),
    /// The kernel enforces AppArmor profiles.
    pub apparmor: bool,
    /// Bytes of the file system with the kubelet's root.
    pub storage_bytes: u64,
    /// Bounds of the data from outside that this process keeps.
    pub budget: Budget,
    /// Bytes reserved for huge pages, by page size in bytes.
    pub huge_pages: BTreeMap<u64, u64>,
    /// Directories with thermal counters of the processors, which are hidden from containers.
    pub thermal_paths: Vec<String>,
    /// The machine's identity, for the cloud.
    #[cfg(feature = "cloud")]
    pub identity: Identity,
    /// Where pods' cgroups can be created.
    pub cgroups: Cgroups,
}

/// The whole core of the agent.
pub struct Agent {
    config: Config,
    booted_at: Instant,
    rng: Rng,
    source: Source,
    /// Objects of the manifest folder.
    objects: Objects,
    cloud: Option<Box<Cloud>>,
    /// Objects of the cloud: its pods do not see the folder's objects, and the folder's pods do not
    /// see these.
    cloud_objects: Objects,
    pods: Pods,
    #[cfg(feature = "probes")]
    probe_results: probe_results::SavedResults,
    /// Objects that the runtime reported as gone.
    removed: Removed,
    runtime: Runtime,
    pleg: Pleg,
    calls: Calls,
    images: Images,
    queries: Queries,
    recorder: Recorder,
    housekeeping: Housekeeping,
    #[cfg(feature = "services")]
    services: Option<services::Services>,
    #[cfg(feature = "streams")]
    streams: streams::Streams,
    watchdog: Watchdog,
    node: Node,
    addresses: Vec<String>,
    resolver: Dns,
    jobs: Jobs,
    pod_start: Histogram,
    pod_start_total: Histogram,
    /// The last logged trouble with the runtime.
    logged_trouble: Option<String>,
    /// Log lines that events caused.
    pending: Out,
    /// After SIGTERM: exit at this time at the latest.
    leave_by: Option<Instant>,
    /// As of the last step.
    now: Now,
}

impl Agent {
    /// Starts with the configuration only; lists the runtime before it acts.
    pub fn boot(config: Config, now: Now, seed: u64) -> Self {
        let housekeeping = Housekeeping::new(&config, now);
        let driver = config.settings.cgroups.driver;
        let pulls = config.pulls;
        let cloud = Self::cloud(&config, now);
        let watchdog = Watchdog::new(&config.watchdog, now.boot);
        #[cfg(feature = "services")]
        let services = Self::services(&config, now);
        #[cfg(all(feature = "cloud", feature = "streams"))]
        let streams = streams::Streams::with_tunnel(config.tunnel, now);
        #[cfg(all(feature = "streams", not(feature = "cloud")))]
        let streams = streams::Streams::default();
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
            recorder: Recorder::default(),
            #[cfg(feature = "services")]
            services,
            #[cfg(feature = "streams")]
            streams,
            housekeeping,
            node: Node::default(),
            addresses: Vec::new(),
            resolver: Dns::default(),
            jobs: Jobs::default(),
            pod_start: Histogram::default(),
            pod_start_total: Histogram::default(),
            // So that the first line logged is either that the runtime is ready or why it is not.
            logged_trouble: Some(String::new()),
            pending: Out::default(),
            leave_by: None,
            now,
        }
    }

    /// Takes one event. Requests nothing.
    pub fn handle(&mut self, now: Now, event: Event) {
        let now = self.with_cloud_clock(now);
        self.watchdog.learn(&event);
        match event {
            Event::RuntimeUp => self.runtime_up(now),
            Event::RuntimeDown { cause } => self.runtime.down(cause),
            Event::Cri(call, result) => self.answer(now, call, result),
            Event::Changed(call) => self.pleg.changed(call),
            Event::Manifests(folder) => self.take_manifests(now, folder),
            Event::Job(job, result) => self.job_done(now, job, result),
            Event::Measured(measures) => self.housekeeping.measured(now, &measures),
            Event::Probe(probe, finding) => self.query_done(now, probe, finding),
            Event::TerminationMessage(job, text) => {
                let JobOwner::Pod(uid) = self.jobs.end(job) else {
                    panic!("only pods read termination messages, {job:?} is another's")
                };
                self.pods.with_work(&uid).termination_message_read(job, &text);
            }
            #[cfg(feature = "probes")]
            Event::SavedProbeResults(saved) => self.probe_results.load(saved),
            #[cfg(not(feature = "probes"))]
            Event::SavedProbeResults(_) => {}
            Event::Credentials(keyring) => self.images.take_node(*keyring),
            // Running containers keep their configuration; new ones get the new one.
            Event::Resolver(dns) => self.resolver = *dns,
            Event::Addresses(addresses) => {
                self.addresses = addresses;
                self.pods.iter_mut().for_each(pod::Pod::mark_dirty);
            }
            #[cfg(feature = "cloud")]
            Event::Loaded(_)
            | Event::Saved(_)
            | Event::SaveFailed(..)
            | Event::LinkUp(..)
            | Event::LinkDown(..)
            | Event::LinkActive(_)
            | Event::Sent(..)
            | Event::Cloud(..) => self.handle_cloud(now, event),
            #[cfg(feature = "devices")]
            Event::Device(_) => self.handle_cloud(now, event),
            #[cfg(feature = "metaserver")]
            Event::MetaServerOpened(..) | Event::MetaServerClosed(_) => {
                self.handle_cloud(now, event);
            }
            #[cfg(feature = "metaserver-auth")]
            Event::InCluster(place) => {
                let changed = self.cloud_objects.take_in_cluster(place);
                self.pods.objects_changed(&changed);
            }
            #[cfg(feature = "servicebus")]
            Event::ServiceBus(_) => {
                self.handle_cloud(now, event);
            }
            #[cfg(feature = "services")]
            Event::Services(report) => self.take_services_report(*report),
            #[cfg(feature = "streams")]
            Event::StreamOpened(id, request) => self.streams.open(id, *request),
            #[cfg(feature = "streams")]
            Event::StreamClosed(id) => self.streams.close(id),
            #[cfg(all(feature = "cloud", feature = "streams"))]
            Event::TunnelUp(_) | Event::TunnelDown(..) | Event::TunnelActive(_) => {
                self.streams.tunnel_event(now, &event, &mut self.rng, &mut self.pending);
            }
            #[cfg(feature = "node-jobs")]
            Event::ConfirmUpgrade => self.confirm_upgrade(),
            Event::Stop => {
                self.leave_by.get_or_insert(now.boot.plus_ms(SHUTDOWN_MS));
            }
        }
    }

    /// Ignored if it was cancelled while its answer was on the way.
    fn query_done(&mut self, now: Now, probe: ProbeId, finding: Finding) {
        let Some(owner) = self.queries.end(probe) else { return };
        let (QueryOwner::Probe(uid) | QueryOwner::Hook(uid)) = &owner;
        let pod = self.pods.with_work(uid);
        match owner {
            QueryOwner::Probe(_) => pod.probe_query_done(now, probe, finding),
            QueryOwner::Hook(_) => pod.hook_query_done(now.boot, probe, finding),
        }
    }

    fn take_manifests(&mut self, now: Now, folder: Folder) {
        let refusal = |pod: &_| Some(admit::refusal(pod, &self.config)?.message);
        let name = &self.config.node_name;
        self.source.take(folder, name, &refusal, &mut self.pending);
        let changed = self.objects.take(self.source.objects(), &mut self.pending);
        self.pods.objects_changed(&changed);
        #[cfg(feature = "services")]
        self.services.iter_mut().for_each(services::Services::objects_changed);
        self.update_desired_pods(now);
    }

    fn runtime_up(&mut self, now: Now) {
        self.runtime.up(now);
        self.pleg.up(now);
        self.pods.up();
        self.removed.up();
        self.housekeeping.up();
    }

    fn job_done(&mut self, now: Now, job: JobId, result: Result<JobReply, JobError>) {
        match self.jobs.end(job) {
            #[cfg(feature = "cloud")]
            JobOwner::Cloud => self.cloud_job_done(now, &result.map(drop)),
            JobOwner::Housekeeping(task) => self.housekeeping.job_done(task, result),
            #[cfg(feature = "node-jobs")]
            JobOwner::NodeJobs => self.node_jobs_mut().job_done(job, result),
            JobOwner::Pod(uid) => {
                let pod = self.pods.with_work(&uid);
                match result {
                    Ok(JobReply::Attempts(attempts)) => pod.dirs_made(now, job, &attempts),
                    result => pod.job_done(now, job, &result.map(drop)),
                }
            }
        }
    }

    fn answer(&mut self, now: Now, call: CallId, result: Result<Reply, CallError>) {
        let outcome = if result.is_ok() { Outcome::Answered } else { Outcome::Failed };
        // Ignored if it was cancelled while its answer was on the way.
        let Some((owner, took_ms)) = self.calls.end(now, call, outcome) else { return };
        match owner {
            Owner::Runtime => {
                self.runtime.answer(now, call, result, self.pods.is_empty());
            }
            Owner::Pleg => {
                if let Some(mut list) = self.pleg.answer(now, call, result) {
                    self.removed.filter(now, &mut list, &mut self.pending);
                    let renamed = self.source.take_over(&list, &self.pods);
                    if !renamed.is_empty() {
                        self.pods.remove(&renamed);
                        self.update_desired_pods(now);
                    }
                    self.housekeeping.take_list(now, &list, &self.pods);
                    let tombstones = self.cloud.as_ref().map(|cloud| cloud.tombstones());
                    self.pods.take_list(now, list, self.sources(), tombstones);
                    if let Some(cloud) = self.cloud.as_mut().filter(|_| self.pods.is_complete()) {
                        cloud.all_pods_known();
                    }
                }
            }
            Owner::Housekeeping(task) => self.housekeeping.answer(now, task, &result),
            #[cfg(feature = "node-jobs")]
            Owner::NodeJobs => self.node_jobs_mut().answer(now.boot, call, result),
            Owner::Probe(uid) => {
                self.pods.with_work(&uid).probe_exec_done(now, call, result);
            }
            Owner::Hook(uid) => self.pods.with_work(&uid).hook_exec_done(call, result),
            #[cfg(feature = "streams")]
            Owner::Stream(id) => {
                self.streams.answer((id, call), result, &self.pods, &mut self.pending);
            }
            Owner::Pod(uid) => {
                let answer = Answer { call, took_ms, relists_begun: self.pleg.begun() };
                let pod = self.pods.with_work(&uid);
                if let Some(id) = pod.answer(now, &answer, result, &mut self.rng) {
                    self.removed.answered(id, answer.relists_begun);
                }
            }
        }
    }

    /// Takes the desired pods of all sources together.
    fn update_desired_pods(&mut self, now: Now) {
        let mut desired = self.source.desired();
        if let Some(cloud) = &self.cloud {
            desired.add_cloud(cloud.pods());
            desired.held = cloud.held();
        }
        self.pods.set_desired(now, desired, &self.config);
        self.housekeeping.pods_changed(now);
        // Orphans are found by a relist.
        self.pleg.request_relist();
    }

    fn sources(&self) -> Sources {
        let folder = match (self.source.is_delivered(), self.source.is_broken()) {
            (false, false) => Knowledge::Silent,
            (false, true) => Knowledge::Unread,
            (true, true) => Knowledge::Broken,
            (true, false) => Knowledge::Whole,
        };
        // Without a cloud, pods that a cloud once wanted are unwanted.
        let cloud = self.cloud.as_ref().map_or(Knowledge::Whole, |cloud| cloud.knowledge());
        Sources { folder, cloud }
    }

    /// Derives the requests from the current state.
    pub fn step(&mut self, now: Now, out: &mut Out) {
        let now = self.with_cloud_clock(now);
        self.now = now;
        if self.leave_by.is_some() {
            // No requests any more, not even those that follow from an event.
            self.pending.actions.retain(|action| matches!(action, Action::Log(..)));
        }
        out.actions.append(&mut self.pending.actions);
        if let Some(by) = self.leave_by {
            // The next start of the agent sees later changes by listing, except for the results of
            // probes: these are saved for it.
            self.pods.refresh(now, host_info(&self.runtime, &self.addresses));
            #[cfg(feature = "probes")]
            self.probe_results.step(&self.pods, out);
            let is_saved = self.save_before_exit(now, out);
            if by <= now.boot || (!self.calls.has_work() && is_saved) {
                out.push(Action::Exit);
            }
            return;
        }
        self.step_parts(now, out);
        #[cfg(feature = "services")]
        self.step_services(now, out);
        #[cfg(feature = "streams")]
        self.step_streams(now, out);
        // Last, because it checks the requests of all the others.
        self.watchdog.step(now.boot, self.runtime.is_ready(now), out);
    }

    fn step_parts(&mut self, now: Now, out: &mut Out) {
        self.runtime.step(now, &mut self.calls, out);
        self.log_trouble(now, out);
        if !self.runtime.is_ready(now) {
            let host_info = host_info(&self.runtime, &self.addresses);
            self.pods.refresh(now, host_info);
            self.step_cloud(now, out);
            return;
        }
        loop {
            // Before the pods: it marks their garbage, and continues where garbage was removed.
            self.step_housekeeping(now, out);
            let moved = self.step_pods(now, out);
            // After the pods, which come first.
            #[cfg(feature = "node-jobs")]
            let moved = self.step_node_jobs(now, out) || moved;
            let forgot = self.pods.forget(now, &self.config);
            // Others may have waited for that.
            if !moved && !forgot {
                break;
            }
        }
        #[cfg(feature = "probes")]
        self.probe_results.step(&self.pods, out);
        self.calls.log_long_pulls(now, out);
        // Last, so that relists that pods requested begin in the same step.
        self.pleg.step(now, self.pods.is_empty(), &mut self.calls, out);
        self.step_cloud(now, out);
    }

    fn step_housekeeping(&mut self, now: Now, out: &mut Out) {
        let sources = self.sources();
        let mut context = HousekeepingContext {
            pods: &mut self.pods,
            sources,
            config: &self.config,
            driver: self.runtime.driver(),
            calls: &mut self.calls,
            jobs: &mut self.jobs,
            recorder: &mut self.recorder,
            pleg: &mut self.pleg,
            out,
        };
        self.housekeeping.step(now, &mut context);
        if let Some(pressures) = self.housekeeping.take_pressures() {
            self.take_pressures(now, pressures, out);
        }
    }

    /// Sets the node's pressures: records changes, and admission uses them from now on.
    fn take_pressures(&mut self, now: Now, pressures: BTreeSet<Pressure>, out: &mut Out) {
        self.pods.set_pressures(&pressures);
        for pressure in self.node.set_pressures(now, pressures) {
            let name = &self.config.node_name;
            let reason = pressure.change(self.node.pressures().contains(&pressure));
            let message = format!("Node {name} status is now: {reason}");
            self.recorder.add(now, Object::node(name), EventType::Normal, reason, message, out);
        }
    }

    #[cfg(feature = "services")]
    fn take_services_report(&mut self, report: crate::model::service::ServicesReport) {
        if let Some(services) = &mut self.services {
            services.take_report(report, &mut self.pending);
        }
    }

    #[cfg(feature = "services")]
    fn services(config: &Config, now: Now) -> Option<services::Services> {
        let settings = config.services.clone()?;
        Some(services::Services::new(settings, &config.node_name, now))
    }

    #[cfg(feature = "services")]
    fn step_services(&mut self, now: Now, out: &mut Out) {
        let is_read = self.sources().are_known();
        if let Some(services) = &mut self.services {
            let is_whole = is_read && self.pods.is_listed();
            let objects = ObjectsOf { folder: &self.objects, cloud: &self.cloud_objects };
            services.step(now, &self.pods, is_whole, objects, out);
        }
    }

    #[cfg(feature = "streams")]
    fn step_streams(&mut self, now: Now, out: &mut Out) {
        let trouble = self.runtime.trouble(now);
        self.streams.step(now, &self.pods, trouble.as_deref(), &mut self.calls, out);
        #[cfg(feature = "cloud")]
        self.streams.step_tunnel(now, self.addresses.first(), &mut self.rng, out);
    }

    /// Returns whether a pod entered another phase.
    fn step_pods(&mut self, now: Now, out: &mut Out) -> bool {
        self.calls.begin_pods();
        let host_info = host_info(&self.runtime, &self.addresses);
        let mut context = PodContext {
            config: &self.config,
            objects: ObjectsOf { folder: &self.objects, cloud: &self.cloud_objects },
            #[cfg(feature = "services")]
            services: self.services.as_ref().map_or(&[], services::Services::table),
            host_info,
            runtime: self.runtime.status(),
            driver: self.runtime.driver(),
            resolver: &self.resolver,
            calls: &mut self.calls,
            queries: &mut self.queries,
            #[cfg(feature = "probes")]
            saved_results: self.probe_results.loaded(),
            rng: &mut self.rng,
            booted_at: self.booted_at,
            jobs: &mut self.jobs,
            recorder: &mut self.recorder,
            images: &mut self.images,
            pleg: &mut self.pleg,
            out,
        };
        let stepped = self.pods.step(now, self.runtime.status(), host_info, &mut context);
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

    /// Logs once why the runtime cannot be used, and once that it is ready again.
    fn log_trouble(&mut self, now: Now, out: &mut Out) {
        if self.runtime.is_settling()
            || (self.logged_trouble.is_none() && self.runtime.is_ready(now))
        {
            return;
        }
        let trouble = self.runtime.trouble(now);
        if trouble == self.logged_trouble {
            return;
        }
        match &trouble {
            Some(why) => {
                out.push(Action::Log(Severity::Warn, format!("runtime not usable: {why}")));
            }
            None => out.push(Action::Log(Severity::Info, "runtime ready".to_owned())),
        }
        self.logged_trouble = trouble;
    }

    /// Whether objects of pods are being made, started or removed.
    #[cfg(feature = "streams")]
    pub fn is_changing_pods(&self) -> bool {
        self.calls.has_work()
    }

    /// When to call [`Agent::step`] again if nothing happens before; strictly after the last step.
    pub fn wake_at(&self) -> Option<Instant> {
        if self.leave_by.is_some() {
            return sooner(self.leave_by, self.save_before_exit_at());
        }
        #[cfg(all(feature = "cloud", feature = "streams"))]
        let of_tunnel = self.streams.wake_at();
        #[cfg(not(all(feature = "cloud", feature = "streams")))]
        let of_tunnel = None;
        #[cfg(feature = "services")]
        let of_services = self.services.as_ref().and_then(services::Services::wake_at);
        #[cfg(not(feature = "services"))]
        let of_services = None;
        let of_cloud = self.cloud_wake_at();
        let always =
            [self.runtime.wake_at(), of_cloud, self.watchdog.wake_at(), of_services, of_tunnel];
        let mut wake_at = always.into_iter().flatten().min();
        if self.runtime.is_ready(self.now) {
            let own = self.housekeeping.wake_at();
            let of_calls = self.calls.wake_at();
            #[cfg(feature = "node-jobs")]
            let of_calls = sooner(of_calls, self.node_jobs().and_then(NodeJobs::wake_at));
            wake_at = [wake_at, self.pods.wake_at(), self.pleg.wake_at(self.now), own, of_calls]
                .into_iter()
                .flatten()
                .min();
        }
        wake_at
    }
}

fn host_info<'a>(runtime: &'a Runtime, addresses: &'a [String]) -> HostInfo<'a> {
    let runtime_name = runtime.version().map_or("", |version| &version.runtime_name);
    HostInfo { addresses, runtime_name }
}
