//! Jobs of the built-in runtime: each is a child process `edged job runtime`, but for those that
//! only read the kernel's numbers.
//!
//! ```text
//!  start ─▶ child ─exit─▶ its answer, or how it died
//!             └─ deadline, cancelled: SIGKILL
//! ```
//!
//! Request and answer are in one file in memory, which is the child's standard input: a byte that
//! says which of the two it is, and postcard's bytes. The child replaces the request by the answer.
//! So neither end waits for the other, whatever the size. Both ends are this program, so there is
//! no version.
//! The child leads a process group, and the whole group is killed: plugins and OCI runtimes would
//! continue alone. If the server dies its jobs are killed with it; the next server does them again.
//! A job that runs a command in a container is told by SIGTERM first, so that it ends the command.
//!
//! How many run at once is the core's to say.

use std::fs::File;
use std::io::{self, Seek, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, Stdio};

use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::fail_point::{self, Who};
use super::layout::Settings;
use super::monitors::Ended;
use super::{cgroup, container, exec, images, process, sandbox, session, stats, update};
use crate::core::time::Instant;
use crate::io::clock;
use crate::limits::{RUNTIME_EXEC_KILL_MS, RUNTIME_JOB_BYTES_MAX};
use crate::model::runtime::{Job, JobFault, JobReply};
use crate::runtime::event::{Event, JobId};

/// The word after `edged job`.
pub const KIND: &str = "runtime";

/// All jobs that were started and have not ended.
#[derive(Debug)]
pub struct Jobs {
    program: PathBuf,
    settings: Settings,
    running: Vec<Running>,
}

#[derive(Debug)]
struct Running {
    child: Child,
    file: File,
    /// `None` once it is answered.
    job: Option<JobId>,
    /// When it is killed; `None`: it was.
    deadline: Option<Instant>,
    /// If it fails, the core cannot know which layers there are.
    changes_layers: bool,
    /// It is told before it is killed.
    is_told: bool,
}

/// The request to the child.
#[derive(Debug, Serialize, Deserialize)]
struct Order {
    /// The server's process id: a child that has another parent is an orphan.
    parent: i32,
    settings: Settings,
    job: Job,
}

impl Jobs {
    /// `program` is what children run: `/proc/self/exe`, which stays the same binary while an
    /// update replaces the file.
    pub fn new(program: PathBuf, settings: Settings) -> Self {
        Self { program, settings, running: Vec::new() }
    }

    /// Starts a job. Its one answer is pushed to `events`, now or later.
    pub fn start(&mut self, id: JobId, job: Job, deadline: Instant, events: &mut Vec<Event>) {
        if let Job::Stats(of) = &job
            && stats::is_quick(of)
        {
            let usages = stats::stats(&self.settings, of);
            events.push(Event::Job(id, Ok(JobReply::Stats(usages))));
            return;
        }
        match self.spawn(id, job, deadline) {
            Ok(running) => self.running.push(running),
            Err(why) => events.push(Event::Job(id, Err(JobFault::Failed(why.to_string())))),
        }
    }

    /// A child has ended: if it is one of these, its job is answered. Returns whether it is.
    pub fn ended(&mut self, pid: i32, how: Ended, events: &mut Vec<Event>) -> bool {
        let is_it = |running: &Running| running.child.id() as i32 == pid;
        let Some(at) = self.running.iter().position(is_it) else { return false };
        let mut ended = self.running.swap_remove(at);
        let Some(id) = ended.job.take() else { return true };
        let died = |why: io::Error| Err(JobFault::Died(format!("{how}; {why}")));
        let answer = read(&ended.file, Part::Answer).unwrap_or_else(died);
        let unsure = ended.changes_layers && answer.is_err();
        events.push(Event::Job(id, answer));
        if unsure {
            match images::layers(&self.settings) {
                Ok(layers) => events.push(Event::Layers(layers)),
                Err(why) => log::error!("cannot list the layers of images: {why}"),
            }
        }
        true
    }

    /// Kills jobs that are past their deadline.
    pub fn tick(&mut self, now: Instant) {
        for running in &mut self.running {
            if running.deadline.is_some_and(|deadline| deadline <= now) {
                running.kill(now);
            }
        }
    }

    /// Kills one job.
    pub fn kill(&mut self, id: JobId, now: Instant) {
        if let Some(running) = self.running.iter_mut().find(|running| running.job == Some(id)) {
            running.kill(now);
        }
    }

    /// Kills all of them and waits until they have ended, for this long at most: the program that
    /// takes this process's place does not know them. Each is answered once it is reaped.
    pub fn kill_all(&mut self, within_ms: u64) {
        let now = clock::boot();
        self.running.iter_mut().for_each(|running| running.kill(now));
        let until = now.plus_ms(within_ms);
        for running in &self.running {
            let pid = Pid::from_raw(running.child.id() as i32);
            let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT | WaitPidFlag::WNOHANG;
            let lives = || waitid(Id::Pid(pid), flags) == Ok(WaitStatus::StillAlive);
            while lives() && clock::boot() < until {
                process::pause(1);
            }
        }
        // One that was only told.
        self.running.iter_mut().for_each(|running| running.kill(until));
    }

    /// When to call [`Jobs::tick`].
    pub fn wake_at(&self) -> Option<Instant> {
        self.running.iter().filter_map(|running| running.deadline).min()
    }

    fn spawn(&self, id: JobId, job: Job, deadline: Instant) -> io::Result<Running> {
        let changes_layers =
            matches!(job, Job::Pull { .. } | Job::Import { .. } | Job::RemoveLayers { .. });
        let is_told = matches!(job, Job::Exec { .. });
        let settings = self.settings.with_program(job.program());
        let order = Order { parent: std::process::id() as i32, settings, job };
        let mut file = File::from(memfd_create(c"job", MFdFlags::MFD_CLOEXEC)?);
        write(&mut file, Part::Request, &order)?;
        let child = Command::new(&self.program)
            .args(["job", KIND])
            .stdin(Stdio::from(OwnedFd::from(file.try_clone()?)))
            .stdout(Stdio::null())
            .process_group(0)
            .spawn()?;
        log::debug!("job={} pid={} started", id.0, child.id());
        let (job, deadline) = (Some(id), Some(deadline));
        Ok(Running { child, file, job, deadline, changes_layers, is_told })
    }
}

impl Running {
    /// The process may end later, when the kernel can end it.
    fn kill(&mut self, now: Instant) {
        // It is not reaped yet, so that its pid cannot belong to another process.
        let pid = Pid::from_raw(self.child.id() as i32);
        if std::mem::take(&mut self.is_told) {
            self.deadline = Some(now.plus_ms(RUNTIME_EXEC_KILL_MS));
            let _ = kill(pid, Signal::SIGTERM);
        } else {
            self.deadline = None;
            let _ = killpg(pid, Signal::SIGKILL);
        }
    }
}

/// What a file in memory has. A child that dies may leave its request there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Request,
    Answer,
}

impl Part {
    fn mark(self) -> u8 {
        match self {
            Self::Request => b'?',
            Self::Answer => b'!',
        }
    }
}

/// Replaces the contents, and leaves the position at the beginning.
pub(super) fn write(file: &mut File, part: Part, message: &impl Serialize) -> io::Result<()> {
    let message = postcard::to_stdvec(message).map_err(io::Error::other)?;
    let bytes = 1 + message.len();
    if bytes > RUNTIME_JOB_BYTES_MAX {
        return Err(io::Error::other(format!(
            "got a message of {bytes} bytes, expected {RUNTIME_JOB_BYTES_MAX} at most"
        )));
    }
    file.set_len(0)?;
    file.rewind()?;
    file.write_all(&[part.mark()])?;
    file.write_all(&message)?;
    file.rewind()
}

pub(super) fn read<T: DeserializeOwned>(file: &File, part: Part) -> io::Result<T> {
    let bytes = file.metadata()?.len() as usize;
    if bytes > RUNTIME_JOB_BYTES_MAX {
        return Err(io::Error::other(format!(
            "got a message of {bytes} bytes, expected {RUNTIME_JOB_BYTES_MAX} at most"
        )));
    }
    let mut message = vec![0; bytes];
    file.read_exact_at(&mut message, 0)?;
    let message = message.strip_prefix(&[part.mark()]);
    let message = message.and_then(|message| postcard::from_bytes(message).ok());
    message.ok_or_else(|| {
        io::Error::other(match part {
            Part::Request => "it was sent no request",
            Part::Answer => "it sent no answer",
        })
    })
}

/// The main function of a child.
pub fn child() -> ExitCode {
    crate::io::signal::let_through();
    let tied = nix::sys::prctl::set_pdeathsig(Signal::SIGKILL);
    let Ok(stdin) = io::stdin().as_fd().try_clone_to_owned() else { return ExitCode::FAILURE };
    let mut file = File::from(stdin);
    let order = read::<Order>(&file, Part::Request);
    let answer = match order {
        Err(why) => Err(JobFault::Failed(why.to_string())),
        // Also safe if the parent died before the line above.
        Ok(order) if tied.is_err() || nix::unistd::getppid().as_raw() != order.parent => {
            return ExitCode::FAILURE;
        }
        Ok(order) => {
            let step = |what| fail_point::step(order.settings.layout.run(), Who::Job, what);
            step("begins");
            let answer = run(&order.settings, order.job);
            step("is done, and has not answered");
            answer
        }
    };
    match write(&mut file, Part::Answer, &answer) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

fn run(settings: &Settings, job: Job) -> Result<JobReply, JobFault> {
    match job {
        Job::MakeSandbox(record) => {
            let made = sandbox::make(settings, &record)?;
            // A container follows as a rule, and crun joins its cgroups before a grace period that
            // the container's job begins can end.
            cgroup::begin_grace_period_aside();
            Ok(made)
        }
        Job::EndSandbox(record) => sandbox::end(settings, &record),
        Job::MakeContainer { sandbox, container, image } => {
            cgroup::begin_grace_period_aside();
            container::make(settings, &sandbox, &container, &image)
        }
        Job::EndContainer(folder) => container::end(settings, &folder),
        Job::RemoveContainer(id) => container::remove(settings, &id),
        Job::Update { container, resources } => update::update(settings, &container, &resources),
        Job::Exec { container, command, timeout_s } => {
            exec::exec(settings, &container, &command, timeout_s)
        }
        Job::Open(session) => session::open(settings, &session),
        Job::Pull { image, auth } => images::pull(settings, &image, auth.as_ref()),
        Job::Import { path } => images::import(settings, &path),
        Job::RemoveLayers { layers, downloads } => {
            images::remove_layers(settings, &layers, downloads)
        }
        Job::Stats(of) => Ok(JobReply::Stats(stats::stats(settings, &of))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::limits::RUNTIME_ANEW_MS;

    /// A restart in place must not leave a job of which nobody knows.
    #[test]
    fn all_are_killed_before_another_program_takes_this_ones_place() {
        let mut jobs = Jobs::new("/bin/sleep".into(), Settings::of(&Config::default()));
        let child = || Command::new("sleep").arg("600").process_group(0).spawn();
        let file = || File::from(memfd_create(c"test", MFdFlags::MFD_CLOEXEC).expect("memory"));
        jobs.running = (0..3)
            .map(|id| Running {
                child: child().expect("it is there"),
                file: file(),
                job: Some(JobId(id)),
                deadline: None,
                changes_layers: false,
                is_told: false,
            })
            .collect();
        let begun = clock::boot();
        jobs.kill_all(RUNTIME_ANEW_MS);
        assert!(clock::boot().since_ms(begun) < RUNTIME_ANEW_MS, "it waited for nothing");
        for mut running in jobs.running {
            let status = running.child.try_wait().expect("it is ours");
            assert!(status.is_some_and(|status| !status.success()), "it was reaped, or lives");
        }
    }

    #[test]
    fn a_job_that_is_told_to_end_has_a_moment_and_is_killed_then() {
        let mut shell = Command::new("sh");
        // It tells when it no longer ends by itself.
        shell.args(["-c", "trap 'echo told' TERM; echo ready; while :; do sleep 0.01; done"]);
        let child = shell.process_group(0).stdout(Stdio::piped()).spawn();
        let mut child = child.expect("a shell");
        let mut words = io::BufReader::new(child.stdout.take().expect("piped"));
        let mut line = || {
            let mut line = String::new();
            io::BufRead::read_line(&mut words, &mut line).expect("it speaks");
            line
        };
        assert_eq!(line(), "ready\n");
        let file = File::from(memfd_create(c"test", MFdFlags::MFD_CLOEXEC).expect("memory"));
        let (job, deadline) = (Some(JobId(1)), Some(Instant(9)));
        let mut running =
            Running { child, file, job, deadline, changes_layers: false, is_told: true };
        running.kill(Instant(9));
        assert_eq!(running.deadline, Some(Instant(9 + RUNTIME_EXEC_KILL_MS)));
        assert_eq!(line(), "told\n");
        running.kill(Instant(9 + RUNTIME_EXEC_KILL_MS));
        assert_eq!(running.deadline, None);
        let status = running.child.wait().expect("ours");
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(libc::SIGKILL));
    }

    #[test]
    fn a_message_has_a_bound_for_both_ends() {
        let mut file = File::from(memfd_create(c"test", MFdFlags::MFD_CLOEXEC).expect("memory"));
        // The mark, and three bytes for the length.
        let message = |bytes: usize| "x".repeat(bytes - 4);
        let full = message(RUNTIME_JOB_BYTES_MAX);
        write(&mut file, Part::Answer, &full).expect("as long as may be");
        let read_back = read::<String>(&file, Part::Answer).expect("it was written");
        assert_eq!(read_back.len(), RUNTIME_JOB_BYTES_MAX - 4);
        let more = message(RUNTIME_JOB_BYTES_MAX + 1);
        let refused = write(&mut file, Part::Answer, &more).expect_err("too long");
        assert!(refused.to_string().contains("expected 1048576 at most"), "{refused}");
        file.set_len(RUNTIME_JOB_BYTES_MAX as u64 + 1).expect("memory");
        let refused = read::<String>(&file, Part::Answer).expect_err("too long").to_string();
        assert!(refused.starts_with("got a message of 1048577 bytes"), "{refused}");
    }

    #[test]
    fn an_answer_replaces_a_longer_request_and_half_of_one_is_none() {
        let mut file = File::from(memfd_create(c"test", MFdFlags::MFD_CLOEXEC).expect("memory"));
        let read_answer = |file: &File| read::<Result<JobReply, JobFault>>(file, Part::Answer);
        let answer: Result<JobReply, JobFault> = Err(JobFault::Failed("because".to_owned()));
        // The same bytes, but for the mark.
        write(&mut file, Part::Request, &answer).expect("there is room");
        let refused = read_answer(&file).expect_err("a request is no answer").to_string();
        assert_eq!(refused, "it sent no answer");
        write(&mut file, Part::Request, &"a request".repeat(100)).expect("there is room");
        write(&mut file, Part::Answer, &answer).expect("there is room");
        assert_eq!(read_answer(&file).expect("an answer"), answer);
        let bytes = file.metadata().expect("memory").len();
        for bytes in (0..bytes).rev() {
            file.set_len(bytes).expect("memory");
            assert!(read_answer(&file).is_err(), "its child was killed after {bytes} bytes");
        }
    }

    /// Records go to jobs in their stored form.
    #[test]
    fn a_job_arrives_with_its_records() {
        use crate::model::runtime::{
            BootId, SandboxConfig, SandboxId, SandboxPhase, SandboxRecord,
        };
        let record = SandboxRecord {
            id: SandboxId("a".repeat(64).into()),
            config: SandboxConfig { hostname: "web".to_owned(), ..SandboxConfig::default() },
            phase: SandboxPhase::Ready,
            created_at: -1,
            ips: vec!["10.88.0.2".into(), "".into()],
            boot: BootId("b".into()),
            program: "/usr/bin/crun".into(),
        };
        let job = Job::MakeSandbox(Box::new(record));
        let mut file = File::from(memfd_create(c"test", MFdFlags::MFD_CLOEXEC).expect("memory"));
        write(&mut file, Part::Request, &job).expect("there is room");
        assert_eq!(read::<Job>(&file, Part::Request).expect("a request"), job);
    }
}
