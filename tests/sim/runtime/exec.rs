//! Commands in containers: probes and hooks, answered as the container's program defines.

use edged::model::cri::{CallError, Code, ContainerState, Exec, Lost, Reply};

use super::quirks::refused;
use super::{Begun, Clock, Container, ContainerNo, Operation, Runtime, Serial, number_of};
use crate::chance::Chance;
use crate::faults::Faults;
use crate::program::HookOutcome;

impl Runtime {
    pub(super) fn begin_exec(
        &mut self,
        serial: Serial,
        (id, command, timeout_s): (&str, &[String], u32),
        (faults, chance): (&Faults, &mut Chance),
    ) -> Begun {
        let number = number_of(id);
        let Some(container) = self.containers.get(&number) else {
            return Begun::Answer(Err(self.quirks.not_found(id)));
        };
        if !container.alive {
            let message = format!("container is in {:?} state", container.listed.state);
            return Begun::Answer(Err(refused(Code::Unknown, message)));
        }
        let word = command.last().map(String::as_str).unwrap_or_default();
        let behaviour = container.program.behaviour;
        let conduct = match word {
            "post" => behaviour.post,
            "pre" => behaviour.pre,
            _ => HookOutcome::Well,
        };
        let usual_ms = chance.between(5, 60) + chance.spread(faults.latency_ms);
        let ms = match conduct {
            HookOutcome::Well | HookOutcome::Fails => usual_ms,
            HookOutcome::Slow(ms) => usual_ms + ms,
        };
        let timeout_ms = if timeout_s == 0 { u64::MAX } else { u64::from(timeout_s) * 1000 };
        let late = ms > timeout_ms;
        let fails = conduct == HookOutcome::Fails;
        let probes = !matches!(word, "post" | "pre");
        self.operations.insert(serial, Operation::Exec { number, probes, fails, late });
        Begun::Takes(ms.min(timeout_ms))
    }

    pub(super) fn finish_exec(
        &self,
        clock: Clock,
        number: ContainerNo,
        (probes, fails, late): (bool, bool, bool),
    ) -> Result<Reply, CallError> {
        if late {
            return Err(CallError::Lost(Lost::Deadline));
        }
        let well = if probes { self.is_well(clock.now, number) } else { Some(!fails) };
        match well {
            Some(well) => Ok(exit(i32::from(!well))),
            None => Ok(exit(137)),
        }
    }

    /// Commands in a container end with it.
    pub(super) fn end_execs(&mut self, number: ContainerNo) {
        let of_it = |operation: &Operation| match operation {
            Operation::Exec { number: other, .. } => *other == number,
            _ => false,
        };
        let ended = self.operations.iter().filter(|(_, operation)| of_it(operation));
        let ended: Vec<Serial> = ended.map(|(&serial, _)| serial).collect();
        for serial in ended {
            self.operations.remove(&serial);
            self.outputs.answers.push((serial, Ok(exit(137))));
        }
    }

    /// The container that listens on a port: each one has its own.
    pub fn listens(&self, port: u16) -> Option<ContainerNo> {
        let mut all = self.containers.iter().rev();
        all.find(|(_, it)| it.alive && it.program.behaviour.port == port).map(|(&number, _)| number)
    }

    /// The container that listened there last, if none does any more. A manifest that has moved to
    /// another file is another pod on the same port.
    pub fn last_on(&self, host: &str, port: u16) -> Option<ContainerNo> {
        let is_there = |sandbox| {
            let ip = self.sandboxes.get(sandbox).and_then(|sandbox| sandbox.ip.as_deref());
            ip.is_none_or(|ip| ip == host)
        };
        // One that was created late was never started.
        let began = |it: &Container| it.listed.state != ContainerState::Created;
        let mut all = self.containers.iter().rev().filter(|(_, it)| began(it));
        all.find(|(_, it)| it.program.behaviour.port == port && is_there(&it.sandbox))
            .map(|(&number, _)| number)
    }

    /// Whether the probes of a living container succeed.
    pub fn is_well(&self, now: u64, number: ContainerNo) -> Option<bool> {
        let container = self.containers.get(&number).filter(|it| it.alive)?;
        Some(container.program.behaviour.is_well(now - container.began_at))
    }
}

fn exit(exit_code: i32) -> Reply {
    Reply::Exec(Box::new(Exec { exit_code, ..Exec::default() }))
}
