//! What becomes of a container when the server starts again: from its record, and what is found of
//! it in RUN and DATA.

use std::sync::Arc;

use super::{Container, Killing, Life, Monitor, Rest};
use crate::core::time::Now;
use crate::model::runtime::{
    ContainerPhase, ContainerRecord, Exit, MonitorFact, Process, SandboxRecord,
};
use crate::runtime::exit::{exited, start_error, unknown};
use crate::runtime::kept::Kept;

/// What is found of a container of this boot after a restart of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Remains {
    Nothing,
    /// A folder in RUN, no process.
    Folder,
    /// A monitor that answers.
    Monitored,
    /// It has ended, and how.
    Ended(MonitorFact),
    /// A process without a monitor, and when its program was started.
    Process(Process, Option<i64>),
}

impl Container {
    /// What is found without a record: it is removed.
    pub fn orphan(record: ContainerRecord) -> Self {
        let life = Life::Exited { is_saved: true, error: None };
        let rest = Rest { run: true, data: true };
        Self { is_leaving: true, ..Self::with(Kept::stored(record), None, life, rest) }
    }

    /// A record of this boot, with what is found.
    pub fn found(
        now: Now,
        record: ContainerRecord,
        sandbox: &SandboxRecord,
        remains: &Remains,
    ) -> Self {
        let rest = Rest { run: *remains != Remains::Nothing, data: true };
        let life = match (&record.phase, remains) {
            (ContainerPhase::Exited(_), _) => Life::Exited { is_saved: true, error: None },
            (ContainerPhase::Created, Remains::Nothing | Remains::Folder) => {
                Life::Created { made: false }
            }
            (ContainerPhase::Running { process, .. }, Remains::Monitored) => {
                let monitor = Monitor::default();
                Life::Running { process: process.clone(), monitor, killing: Killing::No }
            }
            (ContainerPhase::Running { process, .. }, Remains::Process(found, _))
                if process == found =>
            {
                alone(process)
            }
            // That it runs was to be saved lazily, and a client may have seen it.
            (
                ContainerPhase::Created | ContainerPhase::Starting(_),
                Remains::Process(process, Some(_)),
            ) => alone(process),
            _ => Life::Starting,
        };
        let is_over = matches!(life, Life::Starting) && *remains != Remains::Monitored;
        let mut container = Self::with(Kept::stored(record), Some(sandbox), life, rest);
        container.kept.is_visible = true;
        if is_over {
            container.ended_unseen(now, remains);
        } else if let Remains::Process(process, Some(started_at)) = remains {
            let mut record = ContainerRecord::clone(container.record());
            let (started_at, process) = (*started_at, process.clone());
            record.phase = ContainerPhase::Running { started_at, process };
            container.kept.show(Arc::new(record));
        }
        container
    }

    /// A record of an earlier boot, or of a sandbox that is lost.
    pub fn lost(
        now: Now,
        record: ContainerRecord,
        sandbox: Option<&SandboxRecord>,
        remains: &Remains,
    ) -> Self {
        let has_exited = matches!(record.phase, ContainerPhase::Exited(_));
        let life = Life::Exited { is_saved: has_exited, error: None };
        let rest = Rest { run: *remains != Remains::Nothing, data: true };
        let mut container = Self::with(Kept::stored(record), sandbox, life, rest);
        container.kept.is_visible = true;
        match remains {
            _ if has_exited => {}
            Remains::Ended(MonitorFact::Exited { .. }) => container.ended_unseen(now, remains),
            _ => container.exit_at_start(unknown(container.started_at(), now)),
        }
        container
    }

    /// After a restart: it was being started, and no monitor knows of it.
    fn ended_unseen(&mut self, now: Now, remains: &Remains) {
        let ended = match remains {
            Remains::Ended(fact) => fact,
            Remains::Nothing | Remains::Folder | Remains::Monitored | Remains::Process(..) => {
                &MonitorFact::Gone
            }
        };
        let was_running = matches!(self.record().phase, ContainerPhase::Running { .. });
        let exit = match ended {
            MonitorFact::Exited { code, oom_killed, at } => {
                let started_at = if was_running { self.started_at() } else { *at };
                exited(*code, *oom_killed, (started_at, *at))
            }
            _ if was_running => unknown(self.started_at(), now),
            MonitorFact::Failed(text) => start_error(now, text),
            MonitorFact::Started { .. } | MonitorFact::Reopened(_) | MonitorFact::Gone => {
                start_error(now, "the runtime ended while it was starting")
            }
        };
        self.exit_at_start(exit);
    }

    /// After a restart the exit is shown at once: the next start would find the same.
    fn exit_at_start(&mut self, exit: Exit) {
        let mut record = ContainerRecord::clone(self.record());
        record.phase = ContainerPhase::Exited(exit);
        self.kept.show(Arc::new(record.clone()));
        self.kept.save(record);
        self.life = Life::Exited { is_saved: false, error: None };
    }
}

/// It runs, and needs a monitor.
fn alone(process: &Process) -> Life {
    let monitor = Monitor { is_lost: true, ..Monitor::default() };
    Life::Running { process: process.clone(), monitor, killing: Killing::No }
}
