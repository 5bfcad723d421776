//! The volumes of one pod: all are set up before its sandbox and torn down after its last
//! container.
//!
//! ```text
//!  spec, objects ──plan──▶ to do ──job──▶ done ──(something differs)──▶ to do …
//!                                   └─fails─▶ retried after 0.5 s, 1 s … 2 min
//! ```
//!
//! The desired set-up is planned again whenever the spec or an object may differ, and its digest is
//! compared with that of the last set-up, so the content is not kept in memory. A volume that was
//! set up once since the agent's start stays usable for starting containers even if a later update
//! fails; a failed update is retried while the old content stays (spec sections 4.2 and 4.5).
//!
//! Objects of the cloud's pods are requested when the pod arrives, and come a moment later: missing
//! ones are reported only after a delay.
//!
//! Only volumes that a container mounts count. If we crash here: every volume is set up again, and
//! the job finds what exists.

use std::collections::BTreeSet;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};

use super::env::{EnvError, Environment, references};
use super::names::log_dir;
use super::plan::{Next, Step};
use super::{Origin, Phase, Pod, PodContext, memory_limit};
use crate::agent::objects::Objects;
use crate::agent::time::{Backoff, BackoffBounds, Instant, Now, sooner};
use crate::agent::volume::{Location, VolumeError};
use crate::agent::{Config, volume};
use crate::limits;
use crate::model::cri::{Mount, Propagation};
use crate::model::job::{JobError, JobSpec, SubPath, VolumeSetUp};
use crate::model::map::{Map, Set};
use crate::model::pod::{self as api, Container, MountPropagation, RecursiveReadOnly, VolumeMount};
use crate::model::recorded_event::EventType;
use crate::model::status::VolumeMountStatus;

/// The state of a pod's volumes.
#[derive(Debug, Default)]
pub(super) struct Volumes {
    /// The plan is up to date: spec and objects have not changed since.
    planned: bool,
    /// By name: the volumes that a container mounts.
    each: Map<Box<str>, VolumeState>,
    /// Since when the pod has waited for them, or since that was last reported.
    waits_since: Option<Instant>,
    /// Bind mounts of sub-paths that exist, by container.
    bound: Map<Box<str>, Bound>,
    removed: bool,
    failures: Failures,
    /// The pod's runtime handler supports recursive read-only mounts.
    recursive: bool,
}

/// The state of one volume.
#[derive(Debug, Default)]
struct VolumeState {
    /// The set-up to carry out; `None`: it is done, or it cannot be planned.
    todo: Option<Box<VolumeSetUp>>,
    /// Why it cannot be planned.
    trouble: Option<VolumeError>,
    /// The trouble is reported.
    reported: bool,
    /// Where the volume is, as last planned.
    location: Option<Location>,
    /// Digest of the last successful set-up since the agent's start.
    done: Option<u64>,
    /// Another set-up failed since: parts of it may exist.
    unsure: bool,
    failures: Failures,
}

/// Failed tries in a row.
#[derive(Debug, Default)]
struct Failures {
    backoff: Backoff,
    retry_at: Option<Instant>,
}

/// The sub-paths that are mounted for one instance of a container.
#[derive(Debug, Default)]
struct Bound {
    attempt: u32,
    indices: Set<u32>,
}

/// The progress of the volumes.
#[derive(Debug, Default)]
pub(super) struct Progress {
    /// The next job.
    pub job: Option<JobSpec>,
    /// When there is something to do or to report, if nothing happens before.
    pub until: Option<Instant>,
    /// Some volume has not been set up since the agent's start.
    pub waits: bool,
}

impl Volumes {
    /// The spec or an object may have changed.
    pub(super) fn mark_dirty(&mut self) {
        self.planned = false;
    }

    /// Whether the pod's runtime handler supports recursive read-only mounts.
    pub(super) fn may_be_recursive(&self) -> bool {
        self.recursive
    }
}

impl Failures {
    fn record(&mut self, now: Instant) {
        let bounds = BackoffBounds {
            min_ms: limits::VOLUME_RETRY_MIN_MS,
            max_ms: limits::VOLUME_RETRY_MAX_MS,
            calm_ms: limits::BACKOFF_CALM_MS,
        };
        self.backoff.grow(now, now, bounds);
        self.retry_at = Some(now.plus_ms(self.backoff.delay_ms()));
    }
}

/// The next job for the volumes, and whether containers have to wait for them.
pub(super) fn progress(pod: &Pod, now: Instant) -> Progress {
    let mut progress = Progress::default();
    let under_way: BTreeSet<&str> = pod
        .runner
        .jobs()
        .filter_map(|job| match job {
            JobSpec::SetUpVolume(wanted) => Some(&*wanted.volume),
            _ => None,
        })
        .collect();
    for (name, state) in &pod.volumes.each {
        let waits = state.done.is_none();
        progress.waits |= waits;
        let Some(todo) = &state.todo else { continue };
        if under_way.contains(&**name) {
            continue;
        }
        match state.failures.retry_at.filter(|&at| at > now) {
            Some(at) => progress.until = sooner(progress.until, Some(at)),
            None if progress.job.is_none() && under_way.len() < limits::VOLUME_JOBS_MAX => {
                progress.job = Some(JobSpec::SetUpVolume(todo.clone()));
            }
            None => {}
        }
    }
    if progress.waits {
        let tell_at = pod.volumes.waits_since.unwrap_or(now).plus_ms(limits::VOLUME_WAIT_MS);
        progress.until = sooner(progress.until, Some(tell_at));
    }
    progress.until = sooner(progress.until, pod.troubles_at());
    progress
}

/// What blocks the sandbox on behalf of the volumes; `None`: nothing.
pub(super) fn gate(pod: &Pod, now: Instant) -> Option<Next> {
    let progress = progress(pod, now);
    if !progress.waits {
        return None;
    }
    let wait = progress.until.map_or(Next::Rest, Next::Until);
    Some(progress.job.map_or(wait, Next::Job))
}

/// Whether nothing is left to tear down.
pub(super) fn are_down(pod: &Pod) -> bool {
    pod.volumes.removed || !uses_any(&pod.api.spec)
}

/// Nothing runs any more: the volumes are torn down, whether the pod is kept or not. The volumes of
/// a pod that is not wanted are removed with its directory.
pub(super) fn tear_down(pod: &Pod, now: Instant) -> Option<Next> {
    if !pod.is_wanted() || are_down(pod) {
        return None;
    }
    let job = JobSpec::TearDownVolumes(log_dir(&pod.api));
    // A volume whose set-up is still running would reappear.
    if pod.runner.has_jobs() {
        return Some(Next::Rest);
    }
    Some(match pod.volumes.failures.retry_at.filter(|&at| at > now) {
        Some(at) => Next::Until(at),
        None => Next::Job(job),
    })
}

/// Whether nothing of the volumes is left on the node, or never was.
pub(super) fn are_gone(pod: &Pod) -> bool {
    pod.volumes.removed || !uses_any(&pod.api.spec)
}

/// Why a container has no mounts, in the kubelet's words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MountError {
    NoVolume {
        volume: Box<str>,
        container: Box<str>,
    },
    /// The runtime cannot make everything below the mount read-only.
    NotRecursive {
        volume: Box<str>,
    },
    /// Variables that `subPathExpr` names, and that are empty or missing.
    NoValue(String),
    /// This sub-path is an absolute path.
    Absolute(String),
    /// This sub-path leads out of the volume.
    Parent(String),
    Env(EnvError),
}

impl fmt::Display for MountError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoVolume { volume, container } => {
                write!(f, "cannot find volume {volume:?} to mount into container {container:?}")
            }
            Self::NotRecursive { volume } => write!(
                f,
                "failed to resolve recursive read-only mode: volume {volume:?} requested \
                 recursive read-only mode, but it is not supported by the runtime"
            ),
            Self::NoValue(names) => write!(f, "missing value for {names}"),
            Self::Absolute(path) => {
                write!(f, "error SubPath `{path}` must not be an absolute path")
            }
            Self::Parent(path) => {
                write!(f, "unable to provision SubPath `{path}`: must not contain '..'")
            }
            Self::Env(why) => why.fmt(f),
        }
    }
}

/// `ContainerConfig.mounts` from the container's volume mounts, or why there are none.
pub fn mounts(
    pod: &api::Pod,
    container: &Container,
    envs: &mut Environment,
    mount_context: MountContext<'_>,
) -> Result<Vec<Mount>, MountError> {
    let each = container.volume_mounts.iter().enumerate();
    each.map(|(index, mount)| one_mount(pod, container, (index, mount), envs, mount_context))
        .collect()
}

/// What mounts depend on besides the spec.
#[derive(Clone, Copy, Debug)]
pub struct MountContext<'a> {
    /// The kubelet's root.
    pub root: &'a str,
    /// Where the volumes are, by name.
    pub locations: &'a Map<Box<str>, Location>,
    /// The runtime can make everything mounted below a mount read-only.
    pub recursive: bool,
}

impl<'a> MountContext<'a> {
    /// For a pod without volumes.
    pub fn nothing(root: &'a str) -> Self {
        static NONE: Map<Box<str>, Location> = Map::new();
        Self { root, locations: &NONE, recursive: false }
    }
}

fn one_mount(
    pod: &api::Pod,
    container: &Container,
    (index, mount): (usize, &VolumeMount),
    envs: &mut Environment,
    mount_context: MountContext<'_>,
) -> Result<Mount, MountError> {
    let location = mount_context.locations.get(&mount.name).ok_or_else(|| {
        MountError::NoVolume { volume: mount.name.clone(), container: container.name.clone() }
    })?;
    let host_path = match sub_path(mount, envs)? {
        Some(_) => format!(
            "{}/pods/{}/volume-subpaths/{}/{}/{index}",
            mount_context.root, pod.metadata.uid, mount.name, container.name
        ),
        None => location.host_path.clone(),
    };
    let recursive_read_only = is_recursive(mount, mount_context.recursive);
    if recursive_read_only && !mount_context.recursive {
        return Err(MountError::NotRecursive { volume: mount.name.clone() });
    }
    let absolute = mount.mount_path.starts_with('/');
    Ok(Mount {
        container_path: format!("{}{}", if absolute { "" } else { "/" }, mount.mount_path),
        host_path,
        readonly: mount.read_only || location.read_only,
        recursive_read_only,
        propagation: match mount.mount_propagation {
            None | Some(MountPropagation::None) => Propagation::Private,
            Some(MountPropagation::HostToContainer) => Propagation::HostToContainer,
            Some(MountPropagation::Bidirectional) => Propagation::Bidirectional,
        },
        users: None,
        image: None,
    })
}

/// The sub-path of the volume that is mounted; `None`: its root.
fn sub_path(mount: &VolumeMount, envs: &mut Environment) -> Result<Option<String>, MountError> {
    let path = if mount.sub_path_expr.is_empty() {
        mount.sub_path.clone()
    } else {
        let has_value = |name: &str| envs.value(name).is_some_and(|value| !value.is_empty());
        let references = references(&mount.sub_path_expr).into_iter();
        let missing: Vec<&str> = references.filter(|name| !has_value(name)).collect();
        if !missing.is_empty() {
            return Err(MountError::NoValue(missing.join(", ")));
        }
        envs.expand(&mount.sub_path_expr, &|| "in subPathExpr".to_owned())
            .map_err(MountError::Env)?
    };
    if path.is_empty() {
        return Ok(None);
    }
    if path.starts_with('/') {
        return Err(MountError::Absolute(path));
    }
    if path.split('/').any(|part| part == "..") {
        return Err(MountError::Parent(path));
    }
    Ok(Some(path))
}

/// Whether the mount and everything mounted below it are read-only. `able`: the runtime supports
/// that. If it does not, a container that requires it is not created.
fn is_recursive(mount: &VolumeMount, able: bool) -> bool {
    match mount.recursive_read_only {
        None | Some(RecursiveReadOnly::Disabled) => false,
        Some(RecursiveReadOnly::IfPossible) => able,
        Some(RecursiveReadOnly::Enabled) => true,
    }
}

/// Names of the volumes that containers mount.
fn mounted(spec: &api::PodSpec) -> BTreeSet<&str> {
    let all = spec.init_containers.iter().chain(&spec.containers);
    all.flat_map(|container| &container.volume_mounts).map(|mount| &*mount.name).collect()
}

fn uses_any(spec: &api::PodSpec) -> bool {
    let mounted = mounted(spec);
    spec.volumes.iter().any(|volume| mounted.contains(&*volume.name))
}

fn digest(wanted: &VolumeSetUp) -> u64 {
    let mut hasher = DefaultHasher::new();
    wanted.hash(&mut hasher);
    hasher.finish()
}

impl Pod {
    /// Plans the volumes again if the spec or an object may have changed, and reports volumes that
    /// the pod has waited for too long.
    pub(super) fn plan_volumes(&mut self, now: Instant, objects: &Objects, config: &Config) {
        if self.phase() != Phase::Syncing || self.lifecycle.verdict().is_some() {
            return;
        }
        if !self.volumes.planned {
            self.volumes.planned = true;
            self.plan_each(objects, config);
        }
        let waits: Vec<&str> = self
            .volumes
            .each
            .iter()
            .filter_map(|(name, state)| state.done.is_none().then_some(&**name))
            .collect();
        let waited = (!waits.is_empty()).then(|| self.volumes.waits_since.unwrap_or(now));
        self.volumes.waits_since = waited;
        if waited.is_some_and(|since| now.since_ms(since) >= limits::VOLUME_WAIT_MS) {
            let message = format!(
                "Unable to attach or mount volumes: unmounted volumes=[{}], unattached \
                 volumes=[], failed to process volumes=[]: context deadline exceeded",
                waits.join(" ")
            );
            self.volumes.waits_since = Some(now);
            self.warn("FailedMount", message);
        }
        self.report_troubles(now);
    }

    fn plan_each(&mut self, objects: &Objects, config: &Config) {
        let spec = &self.api.spec;
        let memory_limit = memory_limit(spec);
        let context = volume::Context { pod: &self.api, objects, config, memory_limit };
        let mut old = std::mem::take(&mut self.volumes.each);
        let (mounted, nested) = (mounted(spec), volume::nested(spec));
        for wanted in spec.volumes.iter().filter(|volume| mounted.contains(&*volume.name)) {
            let mut state = old.remove(&wanted.name).unwrap_or_default();
            match volume::plan(wanted, context) {
                Ok((source, location)) => {
                    let set_up = VolumeSetUp {
                        uid: self.uid.clone(),
                        volume: wanted.name.clone(),
                        folder: location.folder.clone(),
                        source,
                        fs_group: volume::fs_group(spec),
                        nested: nested
                            .get(&*wanted.name)
                            .map(|paths| paths.iter().map(|&path| path.into()).collect())
                            .unwrap_or_default(),
                    };
                    state.trouble = None;
                    state.location = Some(location);
                    let is_done = state.done == Some(digest(&set_up)) && !state.unsure;
                    state.todo = (!is_done).then(|| Box::new(set_up));
                }
                Err(why) => {
                    state.reported &= state.trouble.as_ref() == Some(&why);
                    (state.todo, state.trouble) = (None, Some(why));
                }
            }
            self.volumes.each.insert(wanted.name.clone(), state);
        }
    }

    /// Where the volumes are, by name.
    pub(super) fn locations(&self) -> Map<Box<str>, Location> {
        let each = self.volumes.each.iter();
        each.filter_map(|(name, state)| Some((name.clone(), state.location.clone()?))).collect()
    }

    /// Before a container is created, the sub-paths it mounts are bind-mounted. Returns whether it
    /// has to wait for that.
    pub(super) fn bind_sub_paths(
        &mut self,
        now: Now,
        step: &Step,
        context: &mut PodContext<'_>,
    ) -> bool {
        let Step::Create { container, attempt, .. } = step else { return false };
        let Some(spec) = self.spec_of(container) else { return false };
        if spec.volume_mounts.is_empty() {
            return false;
        }
        let bound = self.volumes.bound.get(container).filter(|bound| bound.attempt == *attempt);
        let is_bound = |index: u32| bound.is_some_and(|bound| bound.indices.contains(&index));
        // Errors in it are reported when the container is requested.
        let bytes_max = context.config.machine.budget.expanded_bytes_max;
        let envs = self.environment(spec, context);
        let mut envs = envs.unwrap_or_else(|_| Environment::within(bytes_max));
        let locations = self.locations();
        let mut jobs = Vec::new();
        for (index, mount) in (0..).zip(&spec.volume_mounts).filter(|(at, _)| !is_bound(*at)) {
            // Errors in a sub-path are reported when the container is created.
            let Ok(Some(path)) = sub_path(mount, &mut envs) else { continue };
            let Some(location) = locations.get(&mount.name) else { continue };
            jobs.push(JobSpec::BindSubPath(Box::new(SubPath {
                uid: self.uid.clone(),
                container: container.clone(),
                index,
                volume: mount.name.clone(),
                volume_path: location.host_path.as_str().into(),
                path: path.into(),
                // The job recognises a remote file system by its mount.
                remote: false,
            })));
        }
        if jobs.is_empty() {
            return false;
        }
        let (container, attempt) = (container.clone(), *attempt);
        let bound = self.volumes.bound.entry(container).or_default();
        if bound.attempt != attempt {
            *bound = Bound { attempt, indices: Set::new() };
        }
        for job in jobs {
            if !self.runner.has_job(&job) {
                self.begin_job(now, job, context);
            }
        }
        true
    }

    /// Takes the end of a volume job.
    pub(super) fn volume_job_done(
        &mut self,
        now: Instant,
        spec: JobSpec,
        result: &Result<(), JobError>,
    ) {
        match (spec, result) {
            (JobSpec::SetUpVolume(done), Ok(())) => {
                let digest = digest(&done);
                let Some(state) = self.volumes.each.get_mut(&done.volume) else { return };
                state.done = Some(digest);
                state.unsure = false;
                state.failures = Failures::default();
                state.todo.take_if(|todo| **todo == *done);
                // A change while the job ran was compared with the state before the job.
                self.volumes.mark_dirty();
            }
            (JobSpec::SetUpVolume(failed), Err(error)) => {
                if let Some(state) = self.volumes.each.get_mut(&failed.volume) {
                    state.unsure = true;
                    state.failures.record(now);
                }
                self.volumes.mark_dirty();
                self.cannot_mount(&failed.volume, &error.to_string());
            }
            (JobSpec::BindSubPath(part), Ok(())) => {
                let bound = self.volumes.bound.entry(part.container).or_default();
                bound.indices.insert(part.index);
            }
            (JobSpec::BindSubPath(part), Err(_)) => self.cannot_bind(now, &part),
            (JobSpec::TearDownVolumes(_), Ok(())) => self.volumes.removed = true,
            (JobSpec::TearDownVolumes(_), Err(error)) => {
                self.volumes.failures.record(now);
                self.warn("FailedUnMount", format!("UnmountVolume.TearDown failed: {error}"));
            }
            (other, _) => panic!("{} is not about volumes", other.kind()),
        }
    }

    /// Without the text of the system error: it would tell a container what lies beside its volume.
    fn cannot_bind(&mut self, now: Instant, part: &SubPath) {
        let message = format!(
            "failed to prepare subPath for volumeMount {:?} of container {:?}",
            part.volume, part.container
        );
        let until = now.plus_ms(limits::RETRY_MS);
        self.records.of(&part.container).misconfigured(until, message.clone());
        let container = part.container.clone();
        self.record_event(&container, EventType::Warning, "Failed", format!("Error: {message}"));
    }

    // ---- troubles ----

    /// When there is something to report, if that is not now.
    pub(super) fn troubles_at(&self) -> Option<Instant> {
        let is_patient = self.origin == Origin::Cloud;
        let since = self.volumes.waits_since.filter(|_| is_patient)?;
        let unreported =
            self.volumes.each.values().any(|state| state.trouble.is_some() && !state.reported);
        unreported.then(|| since.plus_ms(limits::OBJECT_WAIT_MS))
    }

    /// Reports each trouble once.
    pub(super) fn report_troubles(&mut self, now: Instant) {
        if self.troubles_at().is_some_and(|at| at > now) {
            return;
        }
        let mut troubles = Vec::new();
        for (name, state) in &mut self.volumes.each {
            if let Some(why) = state.trouble.as_ref().filter(|_| !state.reported) {
                troubles.push((name.clone(), why.to_string()));
                state.reported = true;
            }
        }
        for (name, why) in troubles {
            self.cannot_mount(&name, &why);
        }
    }

    pub(super) fn cannot_mount(&mut self, volume: &str, why: &str) {
        let message = format!("MountVolume.SetUp failed for volume {volume:?} : {why}");
        self.events.warn("FailedMount", message);
    }

    // ---- mounts in the status ----

    /// Records whether the pod's runtime handler supports recursive read-only mounts.
    pub(super) fn plan_mounts(&mut self, context: &PodContext<'_>) {
        let handler = self.runtime_handler(context);
        let recursive = handler.is_some_and(|handler| handler.recursive_read_only_mounts);
        if recursive != self.volumes.recursive {
            self.volumes.recursive = recursive;
            self.status_cache.mark_stale();
        }
    }

    /// The container's mounts as the runtime has them, in the order of its spec.
    pub(super) fn mounts_of(&self, spec: &Container) -> Vec<VolumeMountStatus> {
        let status = |mount: &VolumeMount| {
            let mode = if is_recursive(mount, self.volumes.recursive) {
                RecursiveReadOnly::Enabled
            } else {
                RecursiveReadOnly::Disabled
            };
            VolumeMountStatus {
                name: mount.name.clone(),
                mount_path: mount.mount_path.as_str().into(),
                read_only: mount.read_only,
                recursive_read_only: mount.read_only.then_some(mode),
            }
        };
        spec.volume_mounts.iter().map(status).collect()
    }
}
