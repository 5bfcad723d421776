//! Applies the answers to calls and jobs to the pod. The effect of a success is applied at once; a
//! failure requires a new list (rule R2).

use super::Pod;
use super::next::is_sidecar;
use super::plan::Step;
use crate::agent::event::{CallId, JobId};
use crate::agent::time::{Instant, Now, Rng};
use crate::limits;
use crate::model::cri::{CallError, Code, ContainerId, ContainerState, Reply, SandboxId};
use crate::model::image::with_tag;
use crate::model::job::{JobError, JobSpec};
use crate::model::pod::Container;
use crate::model::recorded_event::EventType;
use crate::model::status::Waiting;

/// The answer to a call, but for its result.
#[derive(Debug)]
pub struct Answer {
    pub call: CallId,
    /// Milliseconds from the request to the answer.
    pub took_ms: u64,
    /// Relists begun so far: all of them began before the call ended.
    pub relists_begun: u64,
}

impl Pod {
    /// Takes the answer to a call of this pod. Returns the id of the object that is gone by this
    /// answer.
    pub fn answer(
        &mut self,
        now: Now,
        answer: &Answer,
        result: Result<Reply, CallError>,
        rng: &mut Rng,
    ) -> Option<Box<str>> {
        let step = self.runner.end_call(answer.call);
        self.observed.call_ended(answer.relists_begun, step.is_change() || step.is_stop());
        self.mark_dirty();
        let gone = gone(&step, &result);
        match result {
            Ok(reply) => self.succeeded(now, step, reply, answer.took_ms),
            Err(error) if is_gone(&error) && self.vanished(now.boot, &step) => {}
            Err(error) => {
                // A call that only reads an image changes nothing.
                if !matches!(step, Step::ImageStatus { .. } | Step::Pull { .. }) {
                    self.observed.call_failed();
                }
                let mut retry_at = now.boot.plus_ms(rng.jitter_ms(limits::RETRY_MS));
                if let Step::RemoveContainer(id) = &step
                    && self.runner.removal_failed(id, &error)
                {
                    retry_at = now.boot;
                }
                self.failed(now, step, &error, retry_at);
            }
        }
        gone
    }

    /// Takes the answer to the job that creates the pod's directories.
    ///
    /// The runtime may have lost the containers that left logs there: their attempt numbers are
    /// taken, and the restart count continues (spec section 2.5).
    pub fn dirs_made(&mut self, now: Now, job: JobId, attempts: &[Option<u32>]) {
        if let Some(JobSpec::MakePodDirs { containers, .. }) = self.runner.job(job) {
            for (name, newest) in containers.iter().zip(attempts) {
                if let Some(newest) = newest {
                    self.records.of(name).number_taken(*newest);
                }
            }
        }
        self.job_done(now, job, &Ok(()));
    }

    /// Takes the answer to a job of this pod.
    pub fn job_done(&mut self, now: Now, job: JobId, result: &Result<(), JobError>) {
        let (spec, is_cancelled) = self.runner.end_job(job, result);
        self.mark_dirty();
        if is_cancelled {
            return;
        }
        let retry_at = now.boot.plus_ms(limits::RETRY_MS);
        match (spec, result) {
            (JobSpec::MakePodDirs { .. }, Ok(())) => self.files.dirs_made(),
            (JobSpec::MakePodDirs { .. }, Err(error)) => {
                self.files.dirs_failed(retry_at);
                self.warn("Failed", format!("error making pod data directories: {error}"));
            }
            (JobSpec::RemoveLog(log), Ok(())) => self.files.log_removed(ContainerId(log.id)),
            (JobSpec::RemoveLogDir(_), Ok(())) => self.files.log_dir_removed(),
            (JobSpec::RemovePodDir(_), Ok(())) => self.files.dir_removed(),
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
            (JobSpec::RemoveLog(_), Err(error)) if self.is_wanted() => {
                self.runner.hold_cleanup(retry_at);
                let why = format!("failed to remove the logs of a dead container: {error}");
                self.warn_of_garbage(why);
            }
            (JobSpec::MakeContainerFiles(files), result) => self.files_made(now, &files, result),
            (JobSpec::RemoveLog(_) | JobSpec::RemoveLogDir(_), Err(error)) => {
                self.runner.hold_cleanup(retry_at);
                self.warn("FailedKillPod", format!("error removing the pod's logs: {error}"));
            }
            (JobSpec::RemovePodDir(_), Err(error)) => {
                self.runner.hold_cleanup(retry_at);
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
            ) => panic!("{job:?} is not a pod's job"),
            #[cfg(feature = "cloud")]
            (JobSpec::Enrol { .. }, _) => panic!("{job:?} is not a pod's job"),
            #[cfg(feature = "node-jobs")]
            (JobSpec::MeasureNode { .. } | JobSpec::Upgrade(_), _) => {
                panic!("{job:?} is not a pod's job")
            }
            (JobSpec::LinkLog(_), Err(error)) => {
                self.warn("Failed", format!("error linking the container's log: {error}"));
            }
        }
    }

    fn succeeded(&mut self, now: Now, step: Step, reply: Reply, took_ms: u64) {
        match (step, reply) {
            (Step::RunSandbox { attempt }, Reply::Sandbox(id)) => {
                self.runner.sandbox_made();
                let users = self.users();
                self.observed.add_sandbox(id, attempt, users);
            }
            (Step::InspectSandbox(id), Reply::SandboxStatus(status)) => {
                self.observed.inspect_sandbox(&id, *status);
                self.take_address(&id);
            }
            (Step::StopSandbox(id), Reply::Done) => self.sandbox_stopped(now.boot, &id),
            (Step::RemoveSandbox(id), Reply::Done) => self.sandbox_removed(&id),
            (Step::ImageStatus { container, image }, Reply::Image(here)) => {
                let here = here.map(|here| *here);
                self.image_status(now, &container, &image, here);
            }
            (Step::Pull { container, image }, Reply::Pulled(image_ref)) => {
                self.pulled(now.boot, &container, &image, image_ref, took_ms);
            }
            (Step::Create { container, attempt, image, .. }, Reply::Container(id)) => {
                self.created(&container, attempt, image, id);
            }
            (Step::Start { id, container }, Reply::Done) => {
                self.normal(&container, "Started", format!("Started container {container}"));
                self.records.of(&container).started();
                self.observed.turn(now.boot, &id, ContainerState::Running);
                self.expect_post_start(now.boot, &id, &container);
                self.files.started(id);
                self.lifecycle.container_started();
            }
            (Step::InspectContainer(id), Reply::ContainerStatus(status)) => {
                let ended = status.state == ContainerState::Exited;
                self.observed.inspect_container(now.boot, &id, status);
                if ended {
                    self.files.ended(id);
                }
            }
            (Step::Stop { id, .. }, Reply::Done) => {
                self.observed.turn(now.boot, &id, ContainerState::Exited);
            }
            (Step::RemoveContainer(id), Reply::Done) => self.container_removed(&id),
            (Step::EndTask { id, end }, Reply::Done) => self.runner.task_ended(now.boot, id, end),
            (step, reply) => panic!("{step:?} cannot answer {}", reply.kind()),
        }
    }

    /// The object of the call is gone: if the call was to stop or remove it, that is done; other
    /// calls need a new list. Returns whether nothing else has to be learnt.
    fn vanished(&mut self, now: Instant, step: &Step) -> bool {
        match step {
            Step::Stop { id, .. } | Step::RemoveContainer(id) | Step::InspectContainer(id) => {
                self.observed.turn(now, id, ContainerState::Exited);
                self.container_removed(id);
            }
            Step::StopSandbox(id) => self.sandbox_stopped(now, id),
            Step::RemoveSandbox(id) => self.sandbox_removed(id),
            Step::EndTask { id, end } => self.runner.task_ended(now, id.clone(), *end),
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
                if is_name_taken(error) {
                    self.runner.name_taken(now.boot, attempt, retry_at);
                } else {
                    self.runner.hold(retry_at);
                }
                let why = format!("Failed to create pod sandbox: {error}");
                self.warn("FailedCreatePodSandBox", why);
            }
            Step::InspectSandbox(_) => {
                self.observed.inspection_failed(now.boot);
                self.warn(
                    "FailedPodSandBoxStatus",
                    format!("Unable to get pod sandbox status: {error}"),
                );
            }
            Step::RemoveSandbox(_) | Step::RemoveContainer(_) if self.is_wanted() => {
                self.runner.hold(retry_at);
                self.runner.hold_cleanup(retry_at);
                self.warn_of_garbage(format!("failed to remove garbage: {error}"));
            }
            Step::StopSandbox(_) | Step::RemoveSandbox(_) | Step::RemoveContainer(_) => {
                self.runner.hold(retry_at);
                self.warn("FailedKillPod", format!("error killing pod: {error}"));
            }
            Step::EndTask { id, end } => self.runner.task_ended(now.boot, id, end),
            Step::Stop { id, .. } => {
                self.observed.stop_failed(now.boot, &id);
                self.warn("FailedKillPod", format!("error killing pod: {error}"));
            }
            Step::InspectContainer(_) => {
                self.observed.inspection_failed(now.boot);
                self.warn("FailedSync", format!("error determining status: {error}"));
            }
            Step::ImageStatus { container, image } => {
                let image = with_tag(&image);
                let message = format!("Failed to inspect image \"{image}\": {error}");
                self.hold(&container, "ImageInspectError", message.clone(), retry_at);
                self.record_event(&container, EventType::Warning, "InspectFailed", message);
                self.error(&container, "ImageInspectError");
            }
            Step::Pull { container, image } => {
                self.pull_refused(now.boot, &container, &image, error);
            }
            Step::Create { container, attempt, .. } => {
                if is_name_taken(error) {
                    self.records.of(&container).number_taken(attempt);
                }
                self.records.of(&container).fail_try(None, error);
                self.put_off_start(&container, "CreateContainerError", error, retry_at);
            }
            Step::Start { id, container } => {
                self.records.of(&container).fail_try(Some(&id), error);
                // containerd's message for a start that an earlier start of the agent requested.
                let soon = error.to_string().contains("in starting state");
                let soon_at = now.boot.plus_ms(limits::RETRY_TAKEN_MS);
                let retry_at = if soon { retry_at.min(soon_at) } else { retry_at };
                self.put_off_start(&container, "RunContainerError", error, retry_at);
            }
        }
    }

    fn created(&mut self, name: &str, attempt: u32, image: Box<str>, id: ContainerId) {
        self.normal(name, "Created", format!("Created container: {name}"));
        self.records.of(name).created(attempt);
        self.observed.add_container(id, name, attempt, image);
    }

    fn sandbox_stopped(&mut self, now: Instant, id: &SandboxId) {
        self.cgroup_left();
        self.observed.sandbox_stopped(now, id);
    }

    fn sandbox_removed(&mut self, id: &SandboxId) {
        if let Some(attempt) = self.observed.sandbox_removed(id) {
            self.runner.sandbox_removed(attempt);
        }
    }

    fn container_removed(&mut self, id: &ContainerId) {
        let Some(gone) = self.observed.container(id) else { return };
        let (name, attempt) = (gone.name.clone(), gone.attempt);
        self.records.of(&name).removed(id, attempt);
        self.observed.container_removed(id);
        self.files.keep_known(|known| known != id);
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

    /// Puts the container off until `until`, with the reason for its status.
    pub(super) fn hold(
        &mut self,
        name: &str,
        reason: &'static str,
        message: String,
        until: Instant,
    ) {
        let record = self.records.of(name);
        record.put_off(until);
        record.set_failure(Waiting { reason, message });
    }

    pub(super) fn spec_of(&self, name: &str) -> Option<&Container> {
        let spec = &self.api.spec;
        spec.all_containers().find(|container| *container.name == *name)
    }

    /// Containers of the spec that may run beside the main containers.
    pub(super) fn sidecars(&self) -> impl Iterator<Item = &Container> {
        self.api.spec.init_containers.iter().filter(|init| is_sidecar(init))
    }
}

/// The id of the sandbox or container that is gone by this answer.
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

/// containerd and CRI-O keep the name of a container that they are still creating or failed to
/// clean up.
fn is_name_taken(error: &CallError) -> bool {
    match error {
        CallError::Refused { code: Code::AlreadyExists, .. } => true,
        CallError::Refused { message, .. } => message.contains("is reserved for"),
        CallError::Lost(_) => false,
    }
}
