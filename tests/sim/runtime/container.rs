//! Containers: making, starting, stopping and removing them, and how they end.

use std::collections::BTreeSet;
use std::sync::Arc;

use edged::model::cri::{
    self, CallError, Code, ContainerConfig, ContainerId, ContainerState, ContainerStatus, Reply,
    TaskEnd,
};

use super::quirks::{MissingProgram, Taken, refused};
use super::sandbox::{pod_of, reserved};
use super::{
    Begun, Clock, Container, ContainerNo, Effect, End, Holder, Operation, Runtime, SandboxNo,
    Serial, Task, Timer, number_of,
};
use crate::chance::Chance;
use crate::faults::Faults;
use crate::program::{HookOutcome, Program, Term, Then};

impl Runtime {
    pub(super) fn begin_container(
        &mut self,
        clock: Clock,
        serial: Serial,
        sandbox: &str,
        config: &ContainerConfig,
        faults: &Faults,
        chance: &mut Chance,
    ) -> Begun {
        let number = number_of(sandbox);
        if let Err(error) = self.can_hold(number, config) {
            return Begun::Answer(Err(error));
        }
        let name = format!("{}_{}_{}", config.name, self.sandboxes[&number].name, config.attempt);
        if let Some(holder) = self.holder(clock.now, &name) {
            return Begun::Answer(self.container_name_taken(clock, &name, holder));
        }
        self.names.insert(name.clone(), Holder::Operation(serial));
        let config = Box::new(config.clone());
        self.operations.insert(serial, Operation::Create { sandbox: number, config, name });
        Begun::Takes(chance.between(5, 80) + chance.spread(faults.latency_ms))
    }

    fn can_hold(&self, sandbox: SandboxNo, config: &ContainerConfig) -> Result<(), CallError> {
        let Some(found) = self.sandboxes.get(&sandbox) else {
            let message = format!("failed to find sandbox id \"s{sandbox}\": not found");
            return Err(refused(Code::NotFound, message));
        };
        if !found.listed.ready {
            let message = format!("sandbox container \"s{sandbox}\" is not running");
            return Err(refused(Code::Unknown, message));
        }
        if !self.registry.resolves(&config.image_ref) {
            let message = format!("failed to resolve image {:?}: not found", config.image_ref);
            return Err(refused(Code::NotFound, message));
        }
        let missing = Program::of(&config.command).then == Then::Missing;
        if missing && self.quirks.missing_program == MissingProgram::AtCreate {
            let message = "executable file not found in $PATH".to_owned();
            return Err(refused(Code::Unknown, message));
        }
        Ok(())
    }

    fn container_name_taken(
        &mut self,
        clock: Clock,
        name: &str,
        holder: Holder,
    ) -> Result<Reply, CallError> {
        match (self.quirks.taken, holder) {
            (Taken::Existing, Holder::Container(number)) => {
                Ok(Reply::Container(self.containers[&number].listed.id.clone()))
            }
            (Taken::Removed, Holder::Container(number)) => {
                self.outputs.effects.push(Effect::Displaced(number));
                self.end(clock, number, 137, "");
                self.forget_container(number);
                let message = format!("Conflict. The container name {name:?} is already in use");
                Err(refused(Code::Unknown, message))
            }
            (Taken::Refused(code), _) => Err(reserved("container", code, name, holder)),
            (Taken::Existing | Taken::Removed, _) => {
                Err(reserved("container", Code::Unknown, name, holder))
            }
        }
    }

    pub(super) fn finish_container(
        &mut self,
        clock: Clock,
        sandbox: SandboxNo,
        config: ContainerConfig,
        name: String,
    ) -> Result<Reply, CallError> {
        if let Err(error) = self.can_hold(sandbox, &config) {
            self.names.remove(&name);
            return Err(error);
        }
        let number = self.add_container(clock, sandbox, config, name);
        Ok(Reply::Container(self.containers[&number].listed.id.clone()))
    }

    /// A running container, as if created and started by an agent, or by somebody else.
    pub fn adopt_container(
        &mut self,
        clock: Clock,
        sandbox: SandboxNo,
        config: ContainerConfig,
    ) -> ContainerNo {
        let name = format!("{}_{}_{}", config.name, self.sandboxes[&sandbox].name, config.attempt);
        let number = self.add_container(clock, sandbox, config, name);
        self.run(clock, number);
        number
    }

    fn add_container(
        &mut self,
        clock: Clock,
        sandbox: SandboxNo,
        config: ContainerConfig,
        name: String,
    ) -> ContainerNo {
        let number = self.number();
        let pod = pod_of(&config.labels);
        let label = config.labels.get("io.kubernetes.container.name");
        let note = |key: &str| config.annotations.get(key).map(String::as_str);
        let grace_s = note("io.kubernetes.pod.terminationGracePeriod");
        let listed = Arc::new(cri::Container {
            id: ContainerId(format!("c{number}").into()),
            pod,
            name: label.map(|label| label.as_str().into()).unwrap_or_default(),
            sandbox: self.sandboxes[&sandbox].listed.id.clone(),
            attempt: config.attempt,
            state: ContainerState::Created,
            created_at: clock.nanos,
            image: config.image.clone(),
            image_id: config.image_ref.clone(),
            hash: note("io.kubernetes.container.hash").map(Into::into),
            grace_s: grace_s.map(|grace| grace.parse().expect("an annotation of ours")),
            pre_stop: note("io.kubernetes.container.preStopHandler").map(|handler| {
                let ports = note("io.kubernetes.container.ports").unwrap_or_default();
                Box::new(cri::PreStop { handler: handler.into(), ports: ports.into() })
            }),
        });
        let status = ContainerStatus {
            state: ContainerState::Created,
            started_at: 0,
            finished_at: 0,
            exit_code: 0,
            reason: "".into(),
            message: "".into(),
            image: config.image,
            image_ref: config.image_ref,
            message_file: config.mounts.last().map(|mount| mount.host_path.as_str().into()),
            message_from_log: false,
        };
        self.names.insert(name.clone(), Holder::Container(number));
        let container = Container {
            listed,
            status,
            sandbox,
            alive: false,
            made_at: clock.now,
            was_unknown: false,
            program: Program::of(&config.command),
            began_at: 0,
            ended_at: 0,
            log_path: config.log_path,
            name,
            stops: Vec::new(),
            found_ended: false,
            task: None,
        };
        self.containers.insert(number, container);
        self.outputs.effects.push(Effect::Made(number));
        number
    }

    pub(super) fn start_container(
        &mut self,
        clock: Clock,
        id: &str,
        log_dirs: &BTreeSet<String>,
        fails: bool,
    ) -> Result<Reply, CallError> {
        let number = number_of(id);
        let Some(container) = self.containers.get(&number) else {
            return Err(self.quirks.not_found(id));
        };
        if container.listed.state != ContainerState::Created {
            let message = format!("container {id:?} is in {:?} state", container.listed.state);
            return Err(refused(Code::FailedPrecondition, message));
        }
        let sandbox = &self.sandboxes[&container.sandbox];
        if !sandbox.listed.ready {
            let message = format!("sandbox container {} is not running", sandbox.listed.id);
            return Err(refused(Code::Unknown, message));
        }
        let folder = container.log_path.rsplit_once('/').map_or("", |(folder, _)| folder);
        let folder = format!("{}/{folder}", sandbox.log_directory);
        if !log_dirs.contains(&folder) {
            self.fail_start(clock, number, 128, "StartError");
            return Err(refused(
                Code::Unknown,
                format!("open {folder}: no such file or directory"),
            ));
        }
        if let (Then::Missing, MissingProgram::AtStart(code, reason)) =
            (container.program.then, self.quirks.missing_program)
        {
            self.fail_start(clock, number, code, reason);
            let message = "exec: \"/bin/act\": no such file or directory".to_owned();
            return Err(refused(Code::Unknown, message));
        }
        if fails {
            self.fail_start(clock, number, 128, "StartError");
            self.leave_task(number);
            let message = "failed to create shim task: no space left on device".to_owned();
            return Err(refused(Code::Unknown, message));
        }
        self.run(clock, number);
        Ok(Reply::Done)
    }

    fn run(&mut self, clock: Clock, number: ContainerNo) {
        let container = self.containers.get_mut(&number).expect("callers pass an existing one");
        Arc::make_mut(&mut container.listed).state = ContainerState::Running;
        container.status.started_at = clock.nanos;
        container.alive = true;
        container.began_at = clock.now;
        match container.program.run(container.listed.attempt) {
            Then::Run => {}
            Then::Exit(code) => {
                let at = clock.now + container.program.after_ms;
                self.outputs.timers.push((at, Timer::Ends(number, code)));
            }
            Then::Missing => panic!("a missing program was handled before"),
        }
        self.outputs.effects.push(Effect::Started(number));
    }

    fn fail_start(&mut self, clock: Clock, number: ContainerNo, code: i32, reason: &str) {
        let container = self.containers.get_mut(&number).expect("callers pass an existing one");
        let end = container.exit(clock, code, reason);
        self.outputs.effects.push(Effect::Ended(number, end));
    }

    /// The container's process ends, if it lives.
    pub fn end(&mut self, clock: Clock, number: ContainerNo, code: i32, reason: &str) {
        let Some(container) = self.containers.get_mut(&number).filter(|it| it.alive) else {
            return;
        };
        container.alive = false;
        container.ended_at = clock.now;
        let end = container.exit(clock, code, reason);
        if self.is_down {
            // The daemon does not notice it.
            container.found_ended = true;
        }
        for serial in std::mem::take(&mut container.stops) {
            self.operations.remove(&serial);
            self.outputs.answers.push((serial, Ok(Reply::Done)));
        }
        self.outputs.effects.push(Effect::Ended(number, end));
        self.end_execs(number);
    }

    pub(super) fn stop_container(
        &mut self,
        clock: Clock,
        serial: Serial,
        id: &str,
        grace_s: i64,
    ) -> Begun {
        let number = number_of(id);
        let Some(container) = self.containers.get_mut(&number) else {
            let done = self.quirks.stop_missing_is_done;
            let answer = if done { Ok(Reply::Done) } else { Err(self.quirks.not_found(id)) };
            return Begun::Answer(answer);
        };
        if !container.alive {
            if container.listed.state == ContainerState::Unknown {
                let end = container.exit(clock, 255, "Unknown");
                self.outputs.effects.push(Effect::Ended(number, end));
            }
            return Begun::Answer(Ok(Reply::Done));
        }
        if grace_s <= 0 {
            self.end(clock, number, 137, "");
            return Begun::Answer(Ok(Reply::Done));
        }
        container.stops.push(serial);
        self.operations.insert(serial, Operation::Stop(number));
        if let Term::End(ms, code) = container.program.term {
            self.outputs.timers.push((clock.now + ms, Timer::Ends(number, code)));
        }
        let kill_at = clock.now + grace_s.unsigned_abs() * 1000;
        self.outputs.timers.push((kill_at, Timer::Kill(number, serial)));
        Begun::Waits
    }

    /// containerd leaves a task behind after some starts that fail.
    fn leave_task(&mut self, number: ContainerNo) {
        let container = self.containers.get_mut(&number).expect("callers pass an existing one");
        container.task =
            (self.quirks.leaves_tasks() && number.is_multiple_of(3)).then_some(Task::Waits);
    }

    /// The leftover task that prevents the removal of the container.
    pub(super) fn check_task(&self, number: ContainerNo) -> Result<(), CallError> {
        match &self.containers[&number] {
            Container { task: None, .. } => Ok(()),
            Container { listed, .. } => {
                let message = format!("cannot delete running task {}", listed.id);
                Err(refused(Code::FailedPrecondition, message))
            }
        }
    }

    pub(super) fn end_task(&mut self, id: &str, end: TaskEnd) -> Result<Reply, CallError> {
        if !self.quirks.leaves_tasks() {
            let message = "unknown service containerd.services.tasks.v1.Tasks".to_owned();
            return Err(refused(Code::Unimplemented, message));
        }
        let container = self.containers.get_mut(&number_of(id));
        let Some(task) = container.map(|it| &mut it.task).filter(|task| task.is_some()) else {
            return Err(refused(Code::NotFound, format!("no running task found: task {id}")));
        };
        match (end, &task) {
            (TaskEnd::Kill, _) => *task = Some(Task::Killed),
            (TaskEnd::Delete, Some(Task::Killed)) => *task = None,
            (TaskEnd::Delete, _) => {
                let message = "task must be stopped before deletion: created".to_owned();
                return Err(refused(Code::FailedPrecondition, message));
            }
        }
        Ok(Reply::Done)
    }

    pub(super) fn remove_container(&mut self, clock: Clock, id: &str) -> Result<Reply, CallError> {
        let number = number_of(id);
        if self.containers.contains_key(&number) {
            self.check_task(number)?;
            self.end(clock, number, 137, "");
            self.forget_container(number);
        }
        Ok(Reply::Done)
    }

    pub(super) fn forget_container(&mut self, number: ContainerNo) {
        let container = self.containers.remove(&number).expect("callers pass an existing one");
        assert!(!container.alive, "c{number} is removed while it runs");
        self.names.remove(&container.name);
        self.outputs.effects.push(Effect::Gone(number));
    }

    pub(super) fn container_status(&self, id: &str) -> Result<Reply, CallError> {
        let found = self.containers.get(&number_of(id));
        let container = found.ok_or_else(|| self.quirks.not_found(id))?;
        let mut status = container.status.clone();
        status.state = container.listed.state;
        Ok(Reply::ContainerStatus(Box::new(status)))
    }

    pub(super) fn list_containers(&self) -> Vec<Arc<cri::Container>> {
        self.containers.values().map(|container| container.listed.clone()).collect()
    }
}

impl Container {
    /// It never ends by itself, and none of its probes will fail.
    pub fn runs_for_ever(&self, now: u64) -> bool {
        let behaviour = self.program.behaviour;
        let well = behaviour.sick_ms == 0 && behaviour.is_well(now - self.began_at);
        let well = well && behaviour.post != HookOutcome::Fails;
        self.alive && well && self.program.run(self.listed.attempt) == Then::Run
    }

    /// Has ended, as lists show it.
    pub fn is_exited(&self) -> bool {
        self.listed.state == ContainerState::Exited
    }

    pub(super) fn lose_track(&mut self) {
        Arc::make_mut(&mut self.listed).state = ContainerState::Unknown;
        self.was_unknown = true;
    }

    pub(super) fn exit(&mut self, clock: Clock, code: i32, reason: &str) -> End {
        let fitting = if code == 0 { "Completed" } else { "Error" };
        Arc::make_mut(&mut self.listed).state = ContainerState::Exited;
        self.status.finished_at = clock.nanos;
        self.status.exit_code = code;
        self.status.reason = if reason.is_empty() { fitting } else { reason }.into();
        if self.succeeded() { End::Well } else { End::Badly }
    }

    /// Ended as an init container must. Some runtimes report 0 for one that ran out of memory.
    pub fn succeeded(&self) -> bool {
        self.is_exited() && self.status.exit_code == 0 && &*self.status.reason != "OOMKilled"
    }
}
