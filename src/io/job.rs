//! Jobs: quick ones run at once, those that may block run in a child process.
//!
//! ```text
//!  start ─▶ quick: done, answered
//!       └─▶ queue (bounded) ─▶ child `edged job <kind>` ─exit─▶ its answer, or how it died
//!                                 └─ deadline, ─▶ SIGKILL, answered; it occupies its slot
//!                                    cancelled     until it has ended
//!
//! A child, not a thread: a thread that is blocked in the kernel keeps the agent from exiting, so
//! init could not restart it. The child leads a process group, and the whole group is killed: a
//! mount(8) would continue alone. The child gets one end of a socket pair as standard input, the
//! folder that it works below as standard output, and no other descriptor of the agent. Messages
//! are a length (4 bytes, little-endian) and postcard. The answer fits into the socket's buffer, so
//! it is read after the child has ended: only SIGCHLD wakes the loop.
//!
//! Not here: what a job does (`io::jobs`). If the agent dies its children are killed with it; the
//! next agent observes the state and starts the jobs again.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, Stdio};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

use super::frame::{receive, send};
use super::jobs;
pub use super::jobs::{Cgroups, Roots};
use crate::agent::event::{Event, JobId};
use crate::agent::time::Instant;
use crate::limits::{JOB_QUEUE_MAX, JOBS_MAX};
use crate::model::housekeeping::{MeasureRequest, Measures};
use crate::model::job::{JobError, JobReply, JobSpec, LastWords};
#[cfg(feature = "cloud")]
use crate::model::settings::CloudLink;

/// All jobs that were started and have no answer yet.
#[derive(Debug)]
pub struct Jobs {
    program: PathBuf,
    roots: Roots,
    /// At most [`JOBS_MAX`] that wait for other machines, as many others, and one that requests a
    /// certificate.
    children: Vec<Running>,
    /// At most [`JOB_QUEUE_MAX`]; if it is full a new job is refused.
    queue: VecDeque<Waiting>,
}

#[derive(Debug)]
struct Running {
    kind: &'static str,
    child: Child,
    /// Non-blocking; holds the answer once the child has ended.
    socket: UnixStream,
    /// The job to answer and its deadline; `None` once it is answered.
    answer_to: Option<(JobId, Instant)>,
}

#[derive(Debug)]
struct Waiting {
    job: JobId,
    spec: JobSpec,
    kind: &'static str,
    deadline: Instant,
}

/// The request to the child.
#[derive(Debug, Serialize, Deserialize)]
struct Order {
    /// The agent's process id: a child that has another parent is an orphan.
    parent: i32,
    spec: JobSpec,
    /// For jobs that connect to the cloud. A token is passed here, because `ps` shows arguments.
    #[cfg(feature = "cloud")]
    link: Option<CloudLink>,
}

impl Jobs {
    /// `program` is what children run: `/proc/self/exe`, which stays the same binary while an
    /// update replaces the file.
    pub fn new(program: PathBuf, roots: Roots) -> Self {
        Self { program, roots, children: Vec::new(), queue: VecDeque::new() }
    }

    /// Runs or starts the job. Its one answer is pushed to `answers`, now or later.
    pub fn start(
        &mut self,
        job: JobId,
        spec: JobSpec,
        deadline: Instant,
        answers: &mut Vec<Event>,
    ) {
        let Some(kind) = jobs::kind(&spec) else {
            answers.push(Event::Job(job, jobs::run(&mut self.roots, &spec)));
            return;
        };
        // A child costs more than most folders: it is only for those that may take long.
        if let Some(done) = jobs::run_if_small(&mut self.roots, &spec) {
            answers.push(Event::Job(job, done.map(|()| JobReply::Done)));
            return;
        }
        if self.queue.len() >= JOB_QUEUE_MAX {
            let why = format!("{JOB_QUEUE_MAX} jobs are queued already");
            answers.push(Event::Job(job, Err(JobError::Failed(why))));
            return;
        }
        #[cfg(feature = "cloud")]
        let at_once = matches!(spec, JobSpec::Enrol { .. });
        #[cfg(not(feature = "cloud"))]
        let at_once = false;
        let waiting = Waiting { job, spec, kind, deadline };
        if at_once {
            // It waits for the network, so it must not wait for jobs that wait for a disk. The core
            // starts one at a time.
            self.begin(&waiting, answers);
            return;
        }
        self.queue.push_back(waiting);
        self.fill(answers);
    }

    /// Measures the logs that are requested.
    pub fn measure(&mut self, request: &MeasureRequest, measures: &mut Measures) {
        jobs::measure(&mut self.roots, request, measures);
    }

    /// Reads at once the termination message or log of an ended container.
    pub fn read(&mut self, job: JobId, last_words: &LastWords) -> Event {
        Event::TerminationMessage(job, jobs::read(&mut self.roots, last_words).into())
    }

    /// One child or several have ended: answers them, and starts queued jobs.
    pub fn reap(&mut self, answers: &mut Vec<Event>) {
        self.children.retain_mut(|running| match running.child.try_wait() {
            Ok(None) => true,
            ended => {
                if let Some((job, _)) = running.answer_to.take() {
                    let answer = receive::<Result<JobReply, JobError>>(&mut running.socket);
                    let answer = answer.unwrap_or_else(|why| {
                        let how = ended.map_or_else(
                            |error| error.to_string(),
                            |status| status.map_or_else(String::new, |status| status.to_string()),
                        );
                        Err(JobError::Died(format!("{how}; {why}")))
                    });
                    answers.push(Event::Job(job, answer));
                }
                false
            }
        });
        self.fill(answers);
    }

    /// Kills jobs that are past their deadline.
    pub fn tick(&mut self, now: Instant, answers: &mut Vec<Event>) {
        for running in &mut self.children {
            if let Some((job, _)) = running.answer_to.take_if(|(_, deadline)| *deadline <= now) {
                running.kill();
                answers.push(Event::Job(job, Err(JobError::Deadline)));
            }
        }
        self.queue.retain(|waiting| {
            let late = waiting.deadline <= now;
            if late {
                answers.push(Event::Job(waiting.job, Err(JobError::Deadline)));
            }
            !late
        });
    }

    /// Cancels one job, if it is not answered yet.
    pub fn kill(&mut self, job: JobId, answers: &mut Vec<Event>) {
        let is_it = |answer_to: &mut (JobId, Instant)| answer_to.0 == job;
        for running in &mut self.children {
            if running.answer_to.take_if(is_it).is_some() {
                running.kill();
                answers.push(Event::Job(job, Err(JobError::Killed)));
            }
        }
        self.queue.retain(|waiting| {
            if waiting.job == job {
                answers.push(Event::Job(job, Err(JobError::Killed)));
            }
            waiting.job != job
        });
    }

    /// When to call [`Jobs::tick`].
    pub fn wake_at(&self) -> Option<Instant> {
        let running = self.children.iter().filter_map(|running| Some(running.answer_to?.1));
        running.chain(self.queue.iter().map(|waiting| waiting.deadline)).min()
    }

    /// Starts queued jobs while there are free slots.
    fn fill(&mut self, answers: &mut Vec<Event>) {
        let has_room = |children: &[Running], kind: &str| {
            let like = children.iter().filter(|one| jobs::place(one.kind) == jobs::place(kind));
            like.count() < JOBS_MAX
        };
        while let Some(at) = self.queue.iter().position(|it| has_room(&self.children, it.kind)) {
            let waiting = self.queue.remove(at).expect("it was just found");
            self.begin(&waiting, answers);
        }
    }

    fn begin(&mut self, waiting: &Waiting, answers: &mut Vec<Event>) {
        match self.spawn(waiting) {
            Ok(running) => self.children.push(running),
            Err(why) => answers.push(Event::Job(waiting.job, Err(JobError::Failed(why)))),
        }
    }

    fn spawn(&mut self, waiting: &Waiting) -> Result<Running, String> {
        let failed = |what: &str, error: &dyn std::fmt::Display| format!("{what}: {error}");
        let root = self
            .roots
            .of(&waiting.spec)
            .handle()
            .map_err(|failure| JobError::from(failure).to_string())?;
        let root = root.try_clone_to_owned().map_err(|error| failed("dup", &error))?;
        let (mut ours, theirs) =
            UnixStream::pair().map_err(|error| failed("socketpair", &error))?;
        ours.set_nonblocking(true).map_err(|error| failed("fcntl", &error))?;
        let order = Order {
            parent: std::process::id() as i32,
            spec: waiting.spec.clone(),
            #[cfg(feature = "cloud")]
            link: self.roots.link_for(&waiting.spec),
        };
        send(&mut ours, &order).map_err(|error| failed("write", &error))?;
        let child = Command::new(&self.program)
            .args(["job", waiting.kind])
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::from(root))
            .process_group(0)
            .spawn()
            .map_err(|error| failed("cannot start a child", &error))?;
        log::debug!("job={} kind={} pid={} started", waiting.job.0, waiting.kind, child.id());
        Ok(Running {
            kind: waiting.kind,
            child,
            socket: ours,
            answer_to: Some((waiting.job, waiting.deadline)),
        })
    }
}

impl Running {
    /// The process may end later, when the kernel can end it; until then it occupies its slot.
    fn kill(&mut self) {
        // It is not reaped yet, so that its pid cannot belong to another process.
        let _ = killpg(Pid::from_raw(self.child.id() as i32), Signal::SIGKILL);
    }
}

/// The main function of a child: `edged job <kind>`. It gets its whole input through standard
/// input.
pub fn child(kind: &str) -> ExitCode {
    #[cfg(feature = "runtime")]
    if kind == super::builtin::jobs::KIND {
        return super::builtin::jobs::child();
    }
    #[cfg(feature = "runtime")]
    if kind == super::builtin::look::KIND {
        return super::builtin::look::child();
    }
    super::signal::let_through();
    #[cfg(feature = "cloud")]
    if kind == super::cloud::names::KIND {
        return super::cloud::names::child();
    }
    // Also safe if the parent died before this line: see `Order::parent`.
    let tied = nix::sys::prctl::set_pdeathsig(Signal::SIGKILL);
    let Ok(stdin) = io::stdin().as_fd().try_clone_to_owned() else { return ExitCode::FAILURE };
    let mut socket = UnixStream::from(stdin);
    let answer = match receive::<Order>(&mut socket) {
        Err(why) => Err(JobError::Failed(format!("no request: {why}"))),
        Ok(order) if tied.is_err() || nix::unistd::getppid().as_raw() != order.parent => {
            return ExitCode::FAILURE;
        }
        Ok(order) if jobs::kind(&order.spec) != Some(kind) => {
            let expected = jobs::kind(&order.spec);
            Err(JobError::Failed(format!("got the job {kind:?}, expected {expected:?}")))
        }
        #[cfg(feature = "cloud")]
        Ok(Order { spec: JobSpec::Enrol { renew }, link: Some(link), .. }) => {
            let enrolled = super::cloud::enrol(&link, renew, super::clock::now().wall);
            enrolled.map(|_| JobReply::Done).map_err(|error| JobError::Failed(error.to_string()))
        }
        #[cfg(feature = "node-jobs")]
        Ok(Order { spec: JobSpec::Upgrade(step), .. }) => {
            super::upgrade::run(&step).map(JobReply::Upgrade)
        }
        Ok(order) => jobs::run_in_child(io::stdout().as_fd(), &order.spec),
    };
    match send(&mut socket, &answer) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::WALK_BYTES_MAX;
    use crate::model::job::{FolderKind, LogDir, Place, Used, Walk};

    #[test]
    fn a_walk_has_as_many_folders_as_go_into_one_message_both_ways() {
        let place = |name: usize| {
            let pod = LogDir { namespace: "".into(), name: "".into(), uid: "".into() };
            Place { pod, name: "x".repeat(name).into() }
        };
        // The bytes of a folder beside its names.
        let around = 32;
        let mut walk = Walk::new(FolderKind::Logs);
        assert!(walk.push(place(WALK_BYTES_MAX - around + 1)).is_err());
        assert!(walk.push(place(WALK_BYTES_MAX - around)).is_ok());
        assert!(walk.push(place(0)).is_err(), "it is full");
        let mut walk = Walk::new(FolderKind::Logs);
        while walk.push(place(0)).is_ok() {}
        assert_eq!(walk.places.len(), WALK_BYTES_MAX / around);
        let (mut ours, _theirs) = UnixStream::pair().expect("a pair");
        let used = Used { bytes: u64::MAX, inodes: u64::MAX };
        let answer: Result<JobReply, JobError> =
            Ok(JobReply::Used(vec![Some(used); walk.places.len()]));
        let order = Order {
            parent: i32::MIN,
            spec: JobSpec::Measure(walk),
            #[cfg(feature = "cloud")]
            link: None,
        };
        send(&mut ours, &order).expect("there");
        send(&mut ours, &answer).expect("and back");
    }
}
