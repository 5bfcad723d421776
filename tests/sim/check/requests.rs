//! Rules about the agent's requests to the runtime and to the file system.

use std::rc::Rc;

use edged::agent::event::{CallId, JobId};
use edged::agent::time::Instant;
use edged::limits;
#[cfg(feature = "streams")]
use edged::model::cri::ExecPurpose;
use edged::model::cri::{ContainerConfig, ContainerState, Request, SandboxConfig, SandboxId};
use edged::model::job::{JobSpec, LogDir, LogLink};
use edged::model::pod::{self as api, RestartPolicy};

use super::calls::{Class, Kind, Open, classify};
use super::{Check, Role};
use crate::draw;
use crate::rule::judge;
use crate::runtime::{Runtime, number_of};

impl Check {
    /// The agent requests a call.
    pub fn request(
        &mut self,
        now: u64,
        runtime: &Runtime,
        id: CallId,
        request: &Request,
        deadline: u64,
    ) {
        judge!(deadline > now, "[deadline] {id:?} has a deadline before its request");
        self.calls.take_id(id);
        judge!(self.connection.is_up(), "[connection] requests {request:?} without a connection");
        let (class, kind) = classify(request);
        if let Request::HousekeepingCall(housekeeping) = request {
            self.check_housekeeping(now, runtime, id, housekeeping);
        }
        let pod = self.pod_of(request);
        if let Request::ExecSync { id: container, command, .. } = request {
            let word = command.last().map(String::as_str).unwrap_or_default();
            self.exec_requested(now, runtime, id, number_of(&container.0), word);
        }
        self.check_room(class, pod, kind, request);
        // A pull for no pod is a job's.
        let of_pod = kind != Kind::Pull || pod.is_some();
        if of_pod && matches!(kind, Kind::Change | Kind::StopContainer | Kind::Pull) {
            let of_cloud = pod.is_some_and(|at| self.pods[at].of_cloud);
            judge!(
                self.manifests.are_delivered() || of_cloud,
                "[sources first] requests {request:?}, and no source has delivered"
            );
        }
        if let Some(at) = pod {
            let garbage = self.is_for_garbage(id, request);
            if matches!(kind, Kind::Change | Kind::StopContainer | Kind::Pull) && !garbage {
                self.pods[at].requested_at = now;
            }
            if matches!(kind, Kind::Change | Kind::StopContainer) {
                self.check_orphan(at, request);
            }
            self.check_change(now, runtime, at, request, deadline);
            if kind != Kind::Exec {
                self.pods[at].count_request(now);
                self.pods[at].observation.call_begins(id, kind);
            }
        }
        let pod = pod.filter(|_| kind != Kind::Exec);
        self.relist.requested(kind, id);
        let has_image = match request {
            Request::ImageStatus(image) => self.with_image(image),
            _ => Vec::new(),
        };
        for &at in &has_image {
            self.pods[at].observation.image_question_begins();
        }
        self.calls.begin(id, Open { class, pod, kind, requested_at: now, has_image });
    }

    /// A bound for the whole node removes dead containers of healthy pods.
    fn is_for_garbage(&mut self, id: CallId, request: &Request) -> bool {
        let ends = matches!(
            request,
            Request::RemoveContainer(_)
                | Request::Task { .. }
                | Request::RemovePodSandbox(_)
                | Request::StopPodSandbox(_)
        );
        let repeated = match request {
            Request::RemoveContainer(container) => {
                self.garbage.retries_removal(id, number_of(&container.0))
            }
            _ => false,
        };
        self.garbage.is_bounded() && ends || repeated
    }

    /// Pods that have a container of this image, by their present or earlier manifest.
    fn with_image(&self, image: &str) -> Vec<usize> {
        let image = draw::full_name(image);
        let has = |pod: &Option<Rc<api::Pod>>| {
            let specs = pod.iter().map(|pod| &pod.spec);
            let mut all = specs.flat_map(|it| it.init_containers.iter().chain(&it.containers));
            all.any(|container| draw::full_name(&container.image) == image)
        };
        let pods = self.pods.iter().enumerate();
        pods.filter(|(_, pod)| has(&pod.desired) || has(&pod.spec_was)).map(|(at, _)| at).collect()
    }

    /// The pod of the request; only Kubernetes pods may be named.
    fn pod_of(&mut self, request: &Request) -> Option<usize> {
        let config = match request {
            // Beside the pod's own calls.
            #[cfg(feature = "streams")]
            Request::Streaming(_) | Request::ExecSync { purpose: ExecPurpose::Person, .. } => {
                return None;
            }
            Request::RunPodSandbox(config) => config,
            Request::PullImage { sandbox_config, .. } if sandbox_config.pod.uid.is_empty() => {
                return None;
            }
            Request::PullImage { sandbox_config, .. } => sandbox_config,
            Request::CreateContainer { sandbox_config, sandbox, .. } => {
                self.pod_of_sandbox(sandbox, request);
                sandbox_config
            }
            Request::StopPodSandbox(id)
            | Request::RemovePodSandbox(id)
            | Request::PodSandboxStatus(id) => return self.pod_of_sandbox(id, request),
            Request::StartContainer(id)
            | Request::StopContainer { id, .. }
            | Request::RemoveContainer(id)
            | Request::Task { id, .. }
            | Request::ContainerStatus(id)
            | Request::ExecSync { id, .. } => {
                let number = number_of(&id.0);
                if !self.instances.has_existed(number) {
                    return None;
                }
                let owner = self.instances.owner_of(number);
                judge!(owner.is_some(), "[strangers] {request:?} names a container of no pod");
                return owner;
            }
            Request::Version
            | Request::RuntimeConfig
            | Request::Status
            | Request::ListPodSandbox
            | Request::ListContainers
            | Request::GetContainerEvents
            | Request::HousekeepingCall(_)
            | Request::ImageStatus(_) => return None,
        };
        Some(self.pods.index_or_add(&config.pod))
    }

    fn pod_of_sandbox(&self, id: &SandboxId, request: &Request) -> Option<usize> {
        let number = number_of(&id.0);
        if !self.instances.has_sandbox_existed(number) {
            return None;
        }
        let owner = self.instances.sandbox_owner(number);
        judge!(owner.is_some(), "[strangers] {request:?} names a sandbox of no pod");
        owner
    }

    fn check_room(&self, class: Class, pod: Option<usize>, kind: Kind, request: &Request) {
        let calls_max = match class {
            Class::List => limits::READ_CALLS_MAX,
            Class::Stop => limits::STOP_CALLS_MAX,
            Class::Pull => self.pulls.parallel_max,
            Class::Work => limits::WORK_CALLS_MAX,
            Class::HousekeepingCall => limits::HOUSEKEEPING_CALLS_MAX,
            Class::Exec => limits::EXEC_CALLS_MAX,
            Class::Hook => limits::HOOK_CALLS_MAX,
            #[cfg(feature = "streams")]
            Class::Stream => limits::STREAM_CALLS_MAX,
        };
        let open = self.calls.count(class);
        judge!(open < calls_max, "[room] {open} {class:?} calls under way, and one more");
        // Commands in containers run beside all other calls.
        if let Some(at) = pod.filter(|_| kind != Kind::Exec) {
            let pod = &self.pods[at];
            let beside = pod.observation.excludes(kind);
            judge!(
                beside.is_none(),
                "[one call] pod {}: requests {request:?} while {beside:?} is under way",
                pod.uid
            );
        }
    }

    fn check_change(
        &mut self,
        now: u64,
        runtime: &Runtime,
        at: usize,
        request: &Request,
        deadline: u64,
    ) {
        match request {
            Request::RunPodSandbox(config) => self.check_run(runtime, at, config),
            Request::CreateContainer { sandbox, config, .. } => {
                self.check_may_begin(at, request);
                self.check_post_start(at, request);
                self.check_one_sandbox(at, sandbox, request);
                self.check_create(runtime, at, config);
                let first = config.namespaces.users.map(|users| users.first);
                let has = runtime.sandboxes.get(&number_of(&sandbox.0));
                let has = has.and_then(|sandbox| sandbox.listed.first_user);
                judge!(
                    has.is_none() || first == has,
                    "[own users] a container has {first:?} in {sandbox}, which has {has:?}"
                );
                let slot = self.pods[at].slot_at(&config.name);
                let slot = &mut self.pods[at].slots[slot];
                slot.requested.push(config.attempt);
                slot.requested_at = now;
            }
            Request::StartContainer(_) | Request::PullImage { .. } => {
                self.check_may_begin(at, request);
                self.check_post_start(at, request);
            }
            Request::StopContainer { id, grace_s } => {
                // With only the minimum grace there was no time for a hook.
                if *grace_s > limits::STOP_GRACE_MIN_S {
                    self.check_pre_stop(runtime, at, number_of(&id.0));
                }
                self.check_stop(now, runtime, at, number_of(&id.0), *grace_s, deadline);
            }
            // As a removal: it must not end a running container.
            Request::RemoveContainer(id) | Request::Task { id, .. } => {
                self.check_remove(runtime, at, number_of(&id.0));
            }
            Request::StopPodSandbox(id) => self.check_stop_sandbox(now, at, number_of(&id.0)),
            Request::RemovePodSandbox(id) => self.check_remove_sandbox(at, number_of(&id.0)),
            Request::PodSandboxStatus(_)
            | Request::ContainerStatus(_)
            | Request::ExecSync { .. } => {}
            Request::Version
            | Request::RuntimeConfig
            | Request::Status
            | Request::ListPodSandbox
            | Request::ListContainers
            | Request::GetContainerEvents
            | Request::HousekeepingCall(_)
            | Request::ImageStatus(_) => panic!("{request:?} belongs to no pod"),
            #[cfg(feature = "streams")]
            Request::Streaming(_) => panic!("{request:?} belongs to no pod"),
        }
    }

    /// Nothing starts in a pod that no source wants, that has ended, or that is refused.
    fn check_may_begin(&self, at: usize, request: &Request) {
        let pod = &self.pods[at];
        let uid = &pod.uid;
        judge!(pod.desired.is_some(), "[gone is gone] {request:?}, and no source wants pod {uid}");
        let Some(desired) = &pod.desired else { return };
        let refused = draw::is_refused(desired) || pod.is_out();
        judge!(!refused, "[refused] {request:?} for pod {uid}");
        judge!(
            pod.reported.terminal().is_none() || pod.came_back,
            "[ended is ended] {request:?}, and pod {uid} was reported {:?}",
            pod.reported.terminal()
        );
        judge!(
            !pod.came_back,
            "[old run first] {request:?}, and the last run of pod {uid} is not known to have ended"
        );
    }

    fn check_run(&self, runtime: &Runtime, at: usize, config: &SandboxConfig) {
        check_sandbox_config(config);
        self.check_may_begin(at, &Request::RunPodSandbox(Box::new(config.clone())));
        let pod = &self.pods[at];
        let source = config.annotations.get("kubernetes.io/config.source").map(String::as_str);
        let wanted_by = if pod.of_cloud { "api" } else { "file" };
        judge!(source == Some(wanted_by), "[labels] pod {} has the source {source:?}", pod.uid);
        self.check_users(runtime, config);
        let known = self.instances.sandboxes_of(at);
        for (number, sandbox) in known.filter(|(_, it)| pod.observation.knows(it.made_at)) {
            let listed = &runtime.sandboxes[&number].listed;
            judge!(
                config.attempt > listed.attempt,
                "[attempts grow] pod {}: sandbox {} after {}",
                pod.uid,
                config.attempt,
                listed.attempt
            );
            let long_down = sandbox.down_at.is_some_and(|down| pod.observation.knows(down));
            let bad = !sandbox.has_ip || pod.ready_sandboxes > 1;
            judge!(
                !listed.ready || long_down || bad,
                "[one sandbox] pod {} requests another sandbox beside s{number}",
                pod.uid
            );
        }
    }

    /// No other pod has the users that are asked for, as far as the agent knows.
    fn check_users(&self, runtime: &Runtime, config: &SandboxConfig) {
        let Some(users) = config.namespaces.users else { return };
        let uid = &config.pod.uid;
        let is_known = |number: u32| {
            self.instances.sandbox(number).is_some_and(|sandbox| {
                sandbox.pod.is_some_and(|at| self.pods[at].observation.knows(sandbox.made_at))
            })
        };
        let taken = runtime.sandboxes.iter().find(|(number, sandbox)| {
            let listed = &sandbox.listed;
            listed.first_user == Some(users.first)
                && listed.pod.as_ref().is_some_and(|pod| pod.uid != *uid)
                && is_known(**number)
        });
        let taken = taken.map(|(_, sandbox)| &sandbox.listed);
        judge!(taken.is_none(), "[own users] pod {uid} asks for {users:?}, which {taken:?} has");
    }

    /// Nothing starts in a sandbox that is known to be down, or in one of two.
    fn check_one_sandbox(&self, at: usize, sandbox: &SandboxId, request: &Request) {
        let pod = &self.pods[at];
        let number = number_of(&sandbox.0);
        let known = |number: u32| {
            self.instances.sandbox(number).is_some_and(|it| pod.observation.knows(it.made_at))
        };
        let down = self
            .instances
            .sandbox(number)
            .is_none_or(|it| it.down_at.is_some_and(|down| pod.observation.knows(down)));
        judge!(
            !(down && known(number)),
            "[ready sandbox] {request:?}: pod {} is known to be down there",
            pod.uid
        );
        let ready = self
            .instances
            .sandboxes_of(at)
            .filter(|&(number, it)| it.down_at.is_none() && known(number));
        let ready = ready.count();
        judge!(ready <= 1, "[one sandbox] {request:?} in one of {ready} of pod {}", pod.uid);
    }

    fn check_create(&mut self, runtime: &Runtime, at: usize, config: &ContainerConfig) {
        let pod = &self.pods[at];
        let (uid, name) = (&pod.uid, &config.name);
        let note = |key: &str| config.annotations.get(key).map(String::as_str).unwrap_or_default();
        let attempt = config.attempt.to_string();
        judge!(
            note("io.kubernetes.container.restartCount") == attempt
                && config.log_path == format!("{name}/{attempt}.log")
                && !note("io.kubernetes.container.hash").is_empty(),
            "[labels] pod {uid}: {config:?}"
        );
        let made = self.files_made.remove(&(pod.uid.clone(), name.clone(), config.attempt));
        judge!(made, "[files first] pod {uid}: {name}#{attempt} is made without its files");
        let pod = &self.pods[at];
        let same = runtime.containers.iter().filter(|(number, it)| {
            it.listed.name == *name
                && self.instances.place_of(**number).is_some_and(|(pod, _)| pod == at)
        });
        let mut newest = None;
        for (&number, container) in same {
            let ended = container.ended_at.max(container.began_at);
            if !pod.observation.knows(container.made_at.max(ended)) {
                continue;
            }
            judge!(
                config.attempt > container.listed.attempt,
                "[attempts grow] pod {uid}: {name} {} after {}",
                config.attempt,
                container.listed.attempt
            );
            judge!(
                !container.alive,
                "[stop before start] pod {uid}: requests another {name} while c{number} runs"
            );
            newest = Some((number, container)).max_by_attempt(newest);
        }
        let Some((number, newest)) = newest else { return };
        if newest.listed.state != ContainerState::Exited || newest.ended_at == 0 {
            return;
        }
        let done = newest.succeeded();
        let slot = pod.slots.iter().find(|slot| slot.name == *name).expect("it has an instance");
        // The agent knows the end of a container that it stopped itself before any list shows it.
        let due = newest.listed.image != config.image
            || slot.to_restart.iter().any(|&stopped| stopped >= number);
        let policy = pod.desired.as_ref().map(|desired| desired.spec.restart_policy);
        let allowed = match (pod.role(name), policy) {
            (Some(Role::Main), Some(RestartPolicy::Never)) => due,
            (Some(Role::Main), Some(RestartPolicy::OnFailure)) => due || !done,
            (Some(Role::Init), _) => !(done && self.is_in_newest(runtime, at, newest.sandbox)),
            _ => true,
        };
        judge!(
            allowed,
            "[restart policy] pod {uid} ({policy:?}): {name} restarts, c{number} ended with {}",
            newest.status.exit_code
        );
    }

    fn is_in_newest(&self, runtime: &Runtime, at: usize, sandbox: u32) -> bool {
        let own = runtime.sandboxes.iter().filter(|(number, _)| {
            self.instances.sandbox(**number).is_some_and(|it| it.pod == Some(at))
        });
        let newest = own.max_by_key(|(_, it)| it.listed.attempt).map(|(&number, _)| number);
        newest == Some(sandbox)
    }

    fn check_removed_log(&self, at: usize, link: &LogLink) {
        let container = self.instances.container(number_of(&link.id));
        let runs = container.is_some_and(|it| self.pods[at].observation.shows_alive(it));
        judge!(!runs, "[logs] {link:?} is removed, of a container that runs");
    }

    fn begin_job(&mut self, now: u64, id: JobId, deadline: u64) {
        judge!(deadline > now, "[deadline] {id:?} has a deadline before its request");
        judge!(id > self.last_job, "[ids] {id:?} after {:?}", self.last_job);
        self.last_job = id;
    }

    /// The agent requests a job.
    pub fn job(&mut self, now: u64, id: JobId, spec: &JobSpec, deadline: u64) {
        self.begin_job(now, id, deadline);
        let at = match spec {
            JobSpec::MakePodDirs { pod, .. }
            | JobSpec::RemoveLogDir(pod)
            | JobSpec::RemovePodDir(pod)
            | JobSpec::TearDownVolumes(pod)
            | JobSpec::LinkLog(LogLink { pod, .. })
            | JobSpec::RemoveLog(LogLink { pod, .. }) => self.pod_named(pod),
            JobSpec::MakeContainerFiles(files) => self.pod_named(&files.pod),
            JobSpec::SweepLinks { .. }
            | JobSpec::RotateLog { .. }
            | JobSpec::RestoreLog(_)
            | JobSpec::CompressLogs(_)
            | JobSpec::Measure(_)
            | JobSpec::SetQosCgroups(_) => {
                judge!(self.check_node_job(id, spec), "[jobs] {spec:?} belongs to no pod");
                return;
            }
            #[cfg(feature = "cloud")]
            JobSpec::Enrol { .. } => return,
            #[cfg(feature = "node-jobs")]
            JobSpec::MeasureNode { .. } | JobSpec::Upgrade(_) => return,
            JobSpec::SetUpVolume(wanted) => self.pods.index(&wanted.uid),
            JobSpec::BindSubPath(wanted) => self.pods.index(&wanted.uid),
            JobSpec::MakePodCgroup(wanted) => self.pods.index(&wanted.uid),
            JobSpec::RemovePodCgroup(uid) => self.pods.index(uid),
        };
        self.pods[at].count_request(now);
        let pod = &self.pods[at];
        match spec {
            JobSpec::MakePodDirs { .. } => {
                judge!(pod.desired.is_some(), "[gone is gone] {spec:?}");
            }
            JobSpec::MakeContainerFiles(files) => {
                judge!(pod.desired.is_some(), "[gone is gone] {spec:?}");
                self.files_requested.insert(id, (**files).clone());
            }
            JobSpec::LinkLog(_)
            | JobSpec::SweepLinks { .. }
            | JobSpec::RotateLog { .. }
            | JobSpec::RestoreLog(_)
            | JobSpec::CompressLogs(_)
            | JobSpec::Measure(_)
            | JobSpec::SetQosCgroups(_) => {}
            JobSpec::SetUpVolume(_) | JobSpec::BindSubPath(_) | JobSpec::MakePodCgroup(_) => {
                judge!(pod.desired.is_some(), "[gone is gone] {spec:?}");
            }
            JobSpec::RemovePodCgroup(_) => {
                judge!(pod.alive == 0, "[cgroup last] {spec:?} of a pod that runs");
            }
            JobSpec::TearDownVolumes(_) => {
                judge!(pod.alive == 0, "[volumes last] {spec:?} of a pod that runs");
            }
            JobSpec::RemoveLog(link) => self.check_removed_log(at, link),
            JobSpec::RemoveLogDir(_) | JobSpec::RemovePodDir(_) => {
                judge!(
                    pod.desired.is_none() || pod.came_back,
                    "[logs] {spec:?} of a pod that is wanted"
                );
                judge!(pod.alive == 0, "[logs] {spec:?} of a pod that runs");
            }
            #[cfg(feature = "cloud")]
            JobSpec::Enrol { .. } => {}
            #[cfg(feature = "node-jobs")]
            JobSpec::MeasureNode { .. } | JobSpec::Upgrade(_) => {}
        }
    }

    /// Only folders of pods that exist or existed are changed.
    fn pod_named(&self, pod: &LogDir) -> usize {
        if *pod == LogDir::nameless(&pod.uid) {
            return self.pods.index(&pod.uid);
        }
        let of_name = self.pods.named(&pod.namespace, &pod.name).unwrap_or_default();
        let found = of_name.iter().find(|&&at| self.pods[at].uid == pod.uid);
        *found.unwrap_or_else(|| panic!("[logs] {pod:?} is no known pod"))
    }

    /// The agent was stopped and has taken a step since: it begins nothing, and exits as soon as
    /// the runtime has finished what it creates, starts or removes, or when its time is over.
    /// `has_devices`: their values may have to be saved before.
    pub fn leaving(
        &self,
        (stopped_at, now): (Instant, Instant),
        requests: usize,
        ends: bool,
        has_devices: bool,
    ) {
        judge!(requests == 0, "[leaving] makes {requests} requests after a stop");
        let work = self.calls.count(Class::Work);
        let may_wait = work > 0 && now < stopped_at.plus_ms(limits::SHUTDOWN_MS);
        let may_save = has_devices && now < stopped_at.plus_ms(limits::SHUTDOWN_MS);
        judge!(
            ends || may_wait || may_save,
            "[exit] the agent was stopped at {stopped_at:?}, and goes on"
        );
        judge!(
            !ends || !may_wait,
            "[leaving] exits while {work} calls are open that must not be cut off"
        );
    }
}

/// The newer of two instances by attempt.
trait Newest: Sized {
    fn max_by_attempt(self, other: Self) -> Self;
}

impl Newest for Option<(u32, &crate::runtime::Container)> {
    fn max_by_attempt(self, other: Self) -> Self {
        let attempt = |it: &Self| it.as_ref().map(|(_, container)| container.listed.attempt);
        if attempt(&self) >= attempt(&other) { self } else { other }
    }
}

/// The names by which the runtime and other tools identify the pod.
fn check_sandbox_config(config: &SandboxConfig) {
    let label = |key: &str| config.labels.get(key).map(String::as_str).unwrap_or_default();
    let pod = &config.pod;
    let labelled = label("io.kubernetes.pod.uid") == &*pod.uid
        && label("io.kubernetes.pod.name") == &*pod.name
        && label("io.kubernetes.pod.namespace") == &*pod.namespace;
    judge!(labelled, "[labels] {config:?}");
    let name = format!("{}_{}_{}", pod.namespace, pod.name, pod.uid);
    let folder = format!("{}/{name}", crate::world::POD_LOGS);
    judge!(config.log_directory == folder, "[labels] {} is no {folder}", config.log_directory);
}
