//! What the answer to a call or a job teaches about the pod. A success teaches its effect at once;
//! a failure makes blind (rule R2).

use super::next::is_sidecar;
use super::observed::{ObservedContainer, ObservedSandbox};
use super::retention::GARBAGE_FAILED;
use super::tries::Try;
use super::{ContainerMemory, Image, LogDirs, PendingEvent, Pod, Step};
use crate::agent::event::{CallId, JobId, ProbeId};
use crate::agent::time::{Backoff, Instant, Now, Rng};
use crate::limits;
use crate::model::cri::{CallError, Code, ContainerId, ContainerState, Reply, SandboxId};
use crate::model::image::with_tag;
use crate::model::job::{JobError, JobSpec};
use crate::model::net::Finding;
use crate::model::pod::Container;
use crate::model::recorded_event::EventType;
use crate::model::status::Waiting;

/// What surrounds an answer.
#[derive(Debug)]
pub struct Answer {
    /// To which call.
    pub call: CallId,
    /// Milliseconds from the request to here.
    pub took_ms: u64,
    /// Looks begun so far: all of them began before the call ended.
    pub looks_begun: u64,
}

impl Pod {
    /// Takes the answer to a call of this pod. Returns what of it the runtime says is gone.
    pub fn answer(
        &mut self,
        now: Now,
        answer: &Answer,
        result: Result<Reply, CallError>,
        rng: &mut Rng,
    ) -> Option<Box<str>> {
        let at = self.doing.iter().position(|doing| doing.call == answer.call);
        let step = self.doing.remove(at.expect("the book says that the call is ours")).step;
        self.stale_looks = answer.looks_begun;
        self.fresh &= !step.is_change() && !step.is_stop();
        self.stir();
        let gone = gone(&step, &result);
        match result {
            Ok(reply) => self.succeeded(now, step, reply, answer.took_ms),
            Err(error) if is_gone(&error) && self.vanished(now.boot, &step) => {}
            Err(error) => {
                // Who only asked for an image knows as much as before.
                let asked = matches!(step, Step::ImageStatus { .. } | Step::Pull { .. });
                self.blind |= !asked;
                self.fresh &= asked;
                let mut retry_at = now.boot.plus_ms(rng.jitter_ms(limits::RETRY_MS));
                if let Step::RemoveContainer(id) = &step
                    && self.removal_failed(id, &error)
                {
                    retry_at = now.boot;
                }
                self.failed(now, step, &error, retry_at);
            }
        }
        gone
    }

    /// Takes the answer to a command that a probe or a hook of this pod asked for.
    pub fn called(&mut self, now: Now, call: CallId, result: Result<Reply, CallError>) {
        if let Some(result) = self.probe_called(now, call, result) {
            self.hook_called(call, result);
        }
    }

    /// Takes the answer to a query of a probe or a hook of this pod.
    pub fn found(&mut self, now: Now, probe: ProbeId, finding: Finding) {
        if let Some(finding) = self.probe_found(now, probe, finding) {
            self.hook_found(now.boot, probe, finding);
        }
    }

    /// Takes the answer to the job that makes the pod's folders. `false`: it is not this pod's.
    ///
    /// The runtime may have lost the containers that left logs there: their numbers are taken, and
    /// the count of restarts goes on (spec section 2.5).
    pub fn dirs_made(&mut self, now: Now, job: JobId, attempts: &[Option<u32>]) -> bool {
        if let Some(JobSpec::MakePodDirs { containers, .. }) = self.jobs.get(&job) {
            for (name, newest) in containers.iter().zip(attempts) {
                let floor = newest.map_or(0, |newest| newest.saturating_add(1));
                let memory = self.memory.entry(name.clone()).or_default();
                memory.attempt_floor = memory.attempt_floor.max(floor);
            }
        }
        self.job_done(now, job, &Ok(()))
    }

    /// Takes the answer to a job of this pod. `false`: it is not this pod's.
    pub fn job_done(&mut self, now: Now, job: JobId, result: &Result<(), JobError>) -> bool {
        let Some(spec) = self.jobs.remove(&job) else { return false };
        self.stir();
        if self.ended_in_vain(job, result) {
            return true;
        }
        let retry_at = now.boot.plus_ms(limits::RETRY_MS);
        match (spec, result) {
            (JobSpec::MakePodDirs { .. }, Ok(())) => self.log_dirs = LogDirs::Made,
            (JobSpec::MakePodDirs { .. }, Err(error)) => {
                self.log_dirs = LogDirs::Failed { retry_at };
                self.warn("Failed", format!("error making pod data directories: {error}"));
            }
            (JobSpec::RemoveLog(log), Ok(())) => self.cleared.push(ContainerId(log.id)),
            (JobSpec::RemoveLogDir(_), Ok(())) => self.log_dirs = LogDirs::Removed,
            (JobSpec::RemovePodDir(_), Ok(())) => self.dir_removed = true,
            (
                spec @ (JobSpec::SetUpVolume(_)
                | JobSpec::BindSubPath(_)
                | JobSpec::TearDownVolumes(_)),
                result,
            ) => self.volume_job_done(now.boot, spec, result),
            (spec @ (JobSpec::MakePodCgroup(_) | JobSpec::RemovePodCgroup(_)), result) => {
                self.cgroup_job_done(now.boot, spec, result);
            }
            (JobSpec::LinkLog(_), Ok(())) => {}
            (JobSpec::RemoveLog(_), Err(error)) if self.stays() => {
                self.clear_at = Some(retry_at);
                let why = format!("failed to remove the logs of a dead container: {error}");
                self.warn(GARBAGE_FAILED, why);
            }
            (JobSpec::MakeContainerFiles(files), result) => self.files_made(now, &files, result),
            (JobSpec::RemoveLog(_) | JobSpec::RemoveLogDir(_), Err(error)) => {
                self.clear_at = Some(retry_at);
                self.warn("FailedKillPod", format!("error removing the pod's logs: {error}"));
            }
            (JobSpec::RemovePodDir(_), Err(error)) => {
                self.clear_at = Some(retry_at);
                self.warn("FailedKillPod", format!("error removing the pod's directory: {error}"));
            }
            (
                JobSpec::SweepLinks { .. }
                | JobSpec::RotateLog { .. }
                | JobSpec::RestoreLog(_)
                | JobSpec::CompressLogs(_)
                | JobSpec::Measure(_)
                | JobSpec::SetQosCgroups(_),
                _,
            ) => panic!("{job:?} is no pod's"),
            #[cfg(feature = "cloud")]
            (JobSpec::Enrol { .. }, _) => panic!("{job:?} is no pod's"),
            (JobSpec::LinkLog(_), Err(error)) => {
                self.warn("Failed", format!("error linking the container's log: {error}"));
            }
        }
        true
    }

    fn succeeded(&mut self, now: Now, step: Step, reply: Reply, took_ms: u64) {
        match (step, reply) {
            (Step::RunSandbox { attempt }, Reply::Sandbox(id)) => {
                self.taken = 0;
                self.retry_at = None;
                self.seen.add_sandbox(ObservedSandbox::made(id, attempt));
            }
            (Step::InspectSandbox(id), Reply::SandboxStatus(status)) => {
                self.is_answered();
                if let Some(sandbox) = self.seen.sandbox_mut(&id) {
                    sandbox.inspect(*status);
                    self.take_address(&id);
                }
            }
            (Step::StopSandbox(id), Reply::Done) => self.sandbox_stopped(now.boot, &id),
            (Step::RemoveSandbox(id), Reply::Done) => self.sandbox_removed(&id),
            (Step::ImageStatus { container, image }, Reply::Image(here)) => {
                let here = here.map(|here| *here);
                self.image_told(now, &container, &image, here);
            }
            (Step::Pull { container, image }, Reply::Pulled(image_ref)) => {
                self.pulled(now.boot, &container, &image, image_ref, took_ms);
            }
            (Step::Create { container, attempt, image, .. }, Reply::Container(id)) => {
                self.created(&container, attempt, image, id);
            }
            (Step::Start { id, container }, Reply::Done) => {
                self.normal(&container, "Started", format!("Started container {container}"));
                let memory = self.remember(&container);
                memory.failure = None;
                memory.restart_due = None;
                memory.tried = Try::None;
                self.turn(now.boot, &id, ContainerState::Running);
                self.expect_post_start(now.boot, &id, &container);
                self.to_link.push(id);
                self.timing.started = true;
            }
            (Step::InspectContainer(id), Reply::ContainerStatus(status)) => {
                let ended = status.state == ContainerState::Exited;
                let container = self.seen.container_mut(&id);
                if container.is_none_or(|container| container.inspect(now.boot, status)) {
                    self.is_answered();
                } else {
                    self.ask_once_more(now.boot);
                }
                self.to_read.extend(ended.then_some(id));
            }
            (Step::Stop { id, .. }, Reply::Done) => {
                self.turn(now.boot, &id, ContainerState::Exited);
            }
            (Step::RemoveContainer(id), Reply::Done) => self.container_removed(&id),
            (Step::EndTask { id, end }, Reply::Done) => self.task_ended(now.boot, id, end),
            (step, reply) => panic!("{step:?} cannot answer {reply:?}"),
        }
    }

    /// The object of the call is gone: what was to be stopped or removed is, and the rest has to
    /// look. Says whether that was all there is to learn.
    fn vanished(&mut self, now: Instant, step: &Step) -> bool {
        match step {
            Step::Stop { id, .. } | Step::RemoveContainer(id) | Step::InspectContainer(id) => {
                self.turn(now, id, ContainerState::Exited);
                self.container_removed(id);
            }
            Step::StopSandbox(id) => self.sandbox_stopped(now, id),
            Step::RemoveSandbox(id) => self.sandbox_removed(id),
            Step::EndTask { id, end } => self.task_ended(now, id.clone(), *end),
            Step::InspectSandbox(_)
            | Step::RunSandbox { .. }
            | Step::ImageStatus { .. }
            | Step::Pull { .. }
            | Step::Create { .. }
            | Step::Start { .. } => return false,
        }
        true
    }

    fn failed(&mut self, now: Now, step: Step, error: &CallError, retry_at: Instant) {
        match step {
            Step::RunSandbox { attempt } => {
                self.retry_at = Some(retry_at);
                if is_name_taken(error) {
                    // Whoever holds the name is under way, and soon given up or done; or it is left
                    // behind for good.
                    self.taken += 1;
                    let soon_ms = limits::RETRY_TAKEN_MS << self.taken.min(limits::NAME_TAKEN_MAX);
                    self.retry_at = Some(retry_at.min(now.boot.plus_ms(soon_ms)));
                    if self.taken >= limits::NAME_TAKEN_MAX {
                        self.attempt_floor = attempt + 1;
                        self.taken = 0;
                    }
                }
                let why = format!("Failed to create pod sandbox: {error}");
                self.warn("FailedCreatePodSandBox", why);
            }
            Step::InspectSandbox(_) => {
                self.ask_later(now.boot);
                self.warn(
                    "FailedPodSandBoxStatus",
                    format!("Unable to get pod sandbox status: {error}"),
                );
            }
            Step::RemoveSandbox(_) | Step::RemoveContainer(_) if self.stays() => {
                self.retry_at = Some(retry_at);
                self.clear_at = Some(retry_at);
                self.warn(GARBAGE_FAILED, format!("failed to remove what is dead: {error}"));
            }
            Step::StopSandbox(_) | Step::RemoveSandbox(_) | Step::RemoveContainer(_) => {
                self.retry_at = Some(retry_at);
                self.warn("FailedKillPod", format!("error killing pod: {error}"));
            }
            Step::EndTask { id, end } => self.task_ended(now.boot, id, end),
            Step::Stop { id, .. } => {
                self.stop_later(now.boot, &id);
                self.warn("FailedKillPod", format!("error killing pod: {error}"));
            }
            Step::InspectContainer(_) => {
                self.ask_later(now.boot);
                self.warn("FailedSync", format!("error determining status: {error}"));
            }
            Step::ImageStatus { container, image } => {
                let image = with_tag(&image);
                let message = format!("Failed to inspect image \"{image}\": {error}");
                self.hold(&container, "ImageInspectError", message.clone(), retry_at);
                self.tell(&container, EventType::Warning, "InspectFailed", message);
                self.error(&container, "ImageInspectError");
            }
            Step::Pull { container, image } => {
                self.pull_refused(now.boot, &container, &image, error);
            }
            Step::Create { container, attempt, .. } => {
                if is_name_taken(error) {
                    self.remember(&container).attempt_floor = attempt + 1;
                }
                self.fail_try(&container, None, error);
                self.put_off_start(&container, "CreateContainerError", error, retry_at);
            }
            Step::Start { id, container } => {
                self.fail_try(&container, Some(&id), error);
                // containerd's word for a start that an earlier life of the agent asked for.
                let soon = error.to_string().contains("in starting state");
                let soon_at = now.boot.plus_ms(limits::RETRY_TAKEN_MS);
                let retry_at = if soon { retry_at.min(soon_at) } else { retry_at };
                self.put_off_start(&container, "RunContainerError", error, retry_at);
            }
        }
    }

    fn created(&mut self, name: &str, attempt: u32, image: Box<str>, id: ContainerId) {
        self.normal(name, "Created", format!("Created container: {name}"));
        let memory = self.remember(name);
        memory.image = Image::Unknown;
        memory.attempt_floor = attempt + 1;
        let hash = super::hash::container_hash(name, &image);
        let sandbox = self.seen.sandbox().expect("made in a sandbox that is known").id.clone();
        self.seen.add_container(ObservedContainer {
            id,
            name: name.into(),
            sandbox,
            attempt,
            state: ContainerState::Created,
            created_at: 0,
            image,
            hash: Some(hash),
            grace_s: None,
            status: None,
            began_at: None,
            exited_at: None,
            stops: Backoff::default(),
        });
    }

    fn turn(&mut self, now: Instant, id: &ContainerId, state: ContainerState) {
        if let Some(container) = self.seen.container_mut(id) {
            container.turn(now, state);
        }
    }

    /// `StopPodSandbox` kills what is in it.
    fn sandbox_stopped(&mut self, now: Instant, id: &SandboxId) {
        self.cgroup_left();
        if let Some(sandbox) = self.seen.sandbox_mut(id) {
            sandbox.ready = false;
            sandbox.stopped = true;
        }
        for container in self.seen.containers.iter_mut().filter(|c| c.sandbox == *id) {
            if container.may_run() {
                container.turn(now, ContainerState::Exited);
            }
        }
    }

    fn sandbox_removed(&mut self, id: &SandboxId) {
        let gone = self.seen.sandbox_mut(id).map(|sandbox| sandbox.attempt + 1);
        self.attempt_floor = self.attempt_floor.max(gone.unwrap_or(0));
        self.seen.sandboxes.retain(|sandbox| sandbox.id != *id);
        self.seen.containers.retain(|container| container.sandbox != *id);
    }

    fn container_removed(&mut self, id: &ContainerId) {
        let Some(gone) = self.seen.container(id) else { return };
        let (name, attempt) = (gone.name.clone(), gone.attempt);
        let frees = self.frees_number(&name, id);
        let memory = self.remember(&name);
        memory.attempt_floor = if frees { attempt } else { memory.attempt_floor.max(attempt + 1) };
        self.seen.containers.retain(|container| container.id != *id);
        self.cleared.retain(|cleared| cleared != id);
    }

    fn put_off_start(
        &mut self,
        name: &str,
        reason: &'static str,
        error: &CallError,
        until: Instant,
    ) {
        self.hold(name, reason, error.to_string(), until);
        self.error(name, &error.to_string());
    }

    /// Not before `until`, and why.
    pub(super) fn hold(
        &mut self,
        name: &str,
        reason: &'static str,
        message: String,
        until: Instant,
    ) {
        let memory = self.remember(name);
        memory.image = Image::Unknown;
        memory.failure = Some(Waiting { reason, message });
        memory.hold_until = Some(until);
    }

    /// What is remembered of a container; begins empty.
    pub(super) fn remember(&mut self, name: &str) -> &mut ContainerMemory {
        if !self.memory.contains_key(name) {
            self.memory.insert(name.into(), ContainerMemory::default());
        }
        self.memory.get_mut(name).expect("it is there now")
    }

    pub(super) fn spec_of(&self, name: &str) -> Option<&Container> {
        let spec = &self.api.spec;
        spec.all_containers().find(|container| *container.name == *name)
    }

    fn normal(&mut self, container: &str, reason: &'static str, message: String) {
        self.tell(container, EventType::Normal, reason, message);
    }

    pub(super) fn error(&mut self, container: &str, what: &str) {
        self.tell(container, EventType::Warning, "Failed", format!("Error: {what}"));
    }

    /// An event about one container. Ids in it become the container's name, so that repeats are
    /// known as such.
    pub(super) fn tell(
        &mut self,
        container: &str,
        kind: EventType,
        reason: &'static str,
        mut message: String,
    ) {
        for seen in self.seen.of(container) {
            if message.contains(&*seen.id.0) {
                message = message.replace(&*seen.id.0, container);
            }
        }
        self.news.push(PendingEvent { kind, container: Some(container.into()), reason, message });
    }

    /// `spec.containers{web}`
    pub(super) fn field_path(&self, container: &str) -> String {
        let spec = &self.api.spec;
        let among = |all: &[Container]| all.iter().any(|one| *one.name == *container);
        let kind = if among(&spec.init_containers) {
            "initContainers"
        } else if among(&spec.ephemeral_containers) {
            "ephemeralContainers"
        } else {
            "containers"
        };
        format!("spec.{kind}{{{container}}}")
    }

    /// Containers that may run beside the main ones, by the spec.
    pub(super) fn sidecars(&self) -> impl Iterator<Item = &Container> {
        self.api.spec.init_containers.iter().filter(|init| is_sidecar(init))
    }
}

/// The sandbox or the container that is gone by this answer.
fn gone(step: &Step, result: &Result<Reply, CallError>) -> Option<Box<str>> {
    let vanished = result.as_ref().is_err_and(is_gone);
    match step {
        Step::RemoveContainer(id) if vanished || result.is_ok() => Some(id.0.clone()),
        Step::RemoveSandbox(id) if vanished || result.is_ok() => Some(id.0.clone()),
        Step::Stop { id, .. } | Step::InspectContainer(id) if vanished => Some(id.0.clone()),
        Step::StopSandbox(id) if vanished => Some(id.0.clone()),
        Step::RemoveContainer(_)
        | Step::RemoveSandbox(_)
        | Step::Stop { .. }
        | Step::InspectContainer(_)
        | Step::StopSandbox(_)
        | Step::InspectSandbox(_)
        | Step::RunSandbox { .. }
        | Step::ImageStatus { .. }
        | Step::Pull { .. }
        | Step::Create { .. }
        | Step::Start { .. }
        | Step::EndTask { .. } => None,
    }
}

fn is_gone(error: &CallError) -> bool {
    matches!(error, CallError::Refused { code: Code::NotFound, .. })
}

/// containerd and CRI-O keep the name of what they are still making, or failed to clean up.
fn is_name_taken(error: &CallError) -> bool {
    match error {
        CallError::Refused { code: Code::AlreadyExists, .. } => true,
        CallError::Refused { message, .. } => message.contains("is reserved for"),
        CallError::Lost(_) => false,
    }
}
