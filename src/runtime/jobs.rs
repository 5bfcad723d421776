//! Jobs and starts of containers: those under way, each with its owner, and those that wait for
//! their turn. After a crash nothing is under way: the server's end kills its jobs.

use std::collections::VecDeque;

use super::event::{Action, CallId, JobId, Out};
use crate::core::time::Instant;
use crate::core::work::WorkBook;
use crate::limits::{
    RUNTIME_ENDS_MAX, RUNTIME_EXECS_MAX, RUNTIME_JOB_MS, RUNTIME_MEASURES_MAX, RUNTIME_PULLS_MAX,
    RUNTIME_REMOVALS_MAX, RUNTIME_SESSION_OPENS_MAX, RUNTIME_STARTS_MAX,
};
use crate::model::map::Map;
use crate::model::runtime::{ContainerId, Job, MonitorStart, SandboxId};

/// Jobs of a class have a bound together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    Start,
    End,
    Exec,
    Pull,
    Removal,
    Measure,
    Open,
}

/// Each class, with how many may be under way.
const CLASSES: [(Class, usize); 7] = [
    (Class::Start, RUNTIME_STARTS_MAX),
    (Class::End, RUNTIME_ENDS_MAX),
    (Class::Exec, RUNTIME_EXECS_MAX),
    (Class::Pull, RUNTIME_PULLS_MAX),
    (Class::Removal, RUNTIME_REMOVALS_MAX),
    (Class::Measure, RUNTIME_MEASURES_MAX),
    (Class::Open, RUNTIME_SESSION_OPENS_MAX),
];

/// Who gets the answer of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Owner {
    Sandbox(SandboxId),
    Container(ContainerId),
    /// A pull or import, by its number.
    Pull(u64),
    /// The images: layers are removed.
    Layers,
    /// A command, or a session that is opened.
    Exec(CallId),
    /// A change of its resources.
    Update(ContainerId),
    Measure(CallId),
}

#[derive(Debug, Default)]
pub struct Jobs {
    waiting: VecDeque<Waiting>,
    book: WorkBook<JobId, (Class, Owner)>,
    /// Containers that are being started, each with the moment when that has taken too long.
    starts: Map<ContainerId, Instant>,
}

#[derive(Debug)]
enum Waiting {
    Job { owner: Owner, job: Job, ms: u64 },
    Start(Box<MonitorStart>),
}

/// What became of a cancelled job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CancelledJob {
    /// It was waiting: there is no answer.
    Removed,
    /// Its answer comes.
    Killed,
}

impl Jobs {
    /// Requests a job in its turn; it may take so many milliseconds from then on.
    pub fn add(&mut self, owner: Owner, job: Job, ms: u64) {
        self.waiting.push_back(Waiting::Job { owner, job, ms });
    }

    /// Requests the start of a container in its turn.
    pub fn add_start(&mut self, start: MonitorStart) {
        self.waiting.push_back(Waiting::Start(Box::new(start)));
    }

    /// A container that an earlier life of the server has begun to start.
    pub fn watch_start(&mut self, id: ContainerId, now: Instant) {
        self.starts.insert(id, now.plus_ms(RUNTIME_JOB_MS));
    }

    /// The start of this container is over, as it may be.
    pub fn start_over(&mut self, id: &ContainerId) {
        self.starts.remove(id);
    }

    /// A container whose start has taken too long; counted as over.
    pub fn take_late_start(&mut self, now: Instant) -> Option<ContainerId> {
        let late = self.starts.iter().find(|(_, late_at)| **late_at <= now)?.0.clone();
        self.starts.remove(&late);
        Some(late)
    }

    pub fn wake_at(&self) -> Option<Instant> {
        self.starts.values().min().copied()
    }

    /// The owner of a job that has ended. `None`: there is no such job.
    pub fn end(&mut self, id: JobId) -> Option<Owner> {
        self.book.end(id).map(|(_, owner)| owner)
    }

    /// Ends what this owner waits for.
    pub fn cancel(&mut self, owner: &Owner, out: &mut Out) -> CancelledJob {
        let waiting = self.waiting.iter().position(|waiting| match waiting {
            Waiting::Job { owner: other, .. } => other == owner,
            Waiting::Start(_) => false,
        });
        if let Some(at) = waiting {
            self.waiting.remove(at);
            return CancelledJob::Removed;
        }
        let job = self.book.iter().find(|(_, (_, other))| other == owner);
        out.push(Action::KillJob(job.expect("what has an owner waits or runs").0));
        CancelledJob::Killed
    }

    /// Requests what has its turn, in the order in which it came.
    pub fn step(&mut self, now: Instant, out: &mut Out) {
        for (class, max) in CLASSES {
            let mut free = max.saturating_sub(self.count(class));
            while free > 0 {
                let next = self.waiting.iter().position(|waiting| waiting.class() == class);
                let Some(next) = next.and_then(|at| self.waiting.remove(at)) else { break };
                free -= 1;
                match next {
                    Waiting::Job { owner, job, ms } => {
                        let id = self.book.begin((class, owner));
                        out.push(Action::Job(id, job, now.plus_ms(ms)));
                    }
                    Waiting::Start(start) => {
                        self.watch_start(start.id.clone(), now);
                        out.push(Action::Monitor(start));
                    }
                }
            }
        }
    }

    fn count(&self, class: Class) -> usize {
        let starts = if class == Class::Start { self.starts.len() } else { 0 };
        starts + self.book.owners().filter(|(other, _)| *other == class).count()
    }
}

impl Waiting {
    fn class(&self) -> Class {
        match self {
            Self::Start(_) => Class::Start,
            Self::Job { job, .. } => match job {
                Job::MakeSandbox(_) | Job::MakeContainer { .. } => Class::Start,
                Job::EndSandbox(_) | Job::EndContainer(_) => Class::End,
                Job::Exec { .. } | Job::Update { .. } => Class::Exec,
                Job::Pull { .. } | Job::Import { .. } => Class::Pull,
                Job::RemoveContainer(_) | Job::RemoveLayers { .. } => Class::Removal,
                Job::Stats(_) => Class::Measure,
                Job::Open(_) => Class::Open,
            },
        }
    }
}
