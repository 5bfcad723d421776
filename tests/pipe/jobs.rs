//! `io::job` with real children: the built binary, and programs that misbehave.

use std::fs;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use edged::agent::event::{Event, JobId};
use edged::agent::time::Instant;
use edged::io::job::{Jobs, Roots};
use edged::limits::{JOB_QUEUE_MAX, JOBS_MAX, REMOVE_AT_ONCE_MAX};
use edged::model::job::{JobError, JobReply, JobSpec, LogDir};
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::stat::Mode;
use nix::sys::wait::{Id, WaitPidFlag, waitid};
use nix::unistd::{Pid, mkfifo};

const NOW: Instant = Instant(1_000);
const LATER: Instant = Instant(60_000);

/// No other test with children in parallel: waiting is for any child.
pub fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The folders of a test, used exclusively.
struct Place {
    dir: PathBuf,
    jobs: Jobs,
    _alone: MutexGuard<'static, ()>,
}

impl Place {
    fn with(program: &str) -> Self {
        let alone = alone();
        let dir = std::env::temp_dir().join(format!("edged-children-{}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(&dir).expect("a folder for the test");
        let roots = Roots::new(&dir.join("kubelet"), dir.join("pods"), None);
        Self { jobs: Jobs::new(PathBuf::from(program), roots), dir, _alone: alone }
    }

    /// The folder of the pod's logs.
    fn folder(&self) -> PathBuf {
        self.dir.join("pods/ns_web_u")
    }

    /// Has more files than are removed without a child.
    fn fill(&self) {
        fs::create_dir_all(self.folder().join("app")).expect("a folder");
        for number in 0..=REMOVE_AT_ONCE_MAX {
            fs::write(self.folder().join(format!("app/{number}.log")), "").expect("a log");
        }
    }

    fn start(&mut self, job: u64) -> Vec<Event> {
        self.fill();
        let mut events = Vec::new();
        self.jobs.start(JobId(job), remove(), LATER, &mut events);
        events
    }

    /// Waits until a child has ended, as SIGCHLD would report.
    fn ended(&mut self) -> Vec<Event> {
        let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT;
        waitid(Id::All, flags).expect("there is a child");
        let mut events = Vec::new();
        self.jobs.reap(&mut events);
        events
    }

    fn tick(&mut self, now: Instant) -> Vec<Event> {
        let mut events = Vec::new();
        self.jobs.tick(now, &mut events);
        events
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.dir);
    }
}

fn remove() -> JobSpec {
    JobSpec::RemoveLogDir(pod())
}

fn pod() -> LogDir {
    LogDir { namespace: "ns".into(), name: "web".into(), uid: "u".into() }
}

/// Programs of the tests, beside this file.
fn misbehaving(name: &str) -> String {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/pipe");
    dir.join(name).into_os_string().into_string().expect("text")
}

#[test]
fn a_child_removes_the_pods_folder_and_answers() {
    let mut place = Place::with(env!("CARGO_BIN_EXE_edged"));
    fs::create_dir_all(place.folder().join("app/deep")).expect("folders");
    fs::create_dir_all(place.dir.join("pods/ns_other_u")).expect("a folder");
    assert!(place.start(1).is_empty(), "not inline");
    let events = place.ended();
    assert!(matches!(events[..], [Event::Job(JobId(1), Ok(JobReply::Done))]), "{events:?}");
    assert!(!place.folder().exists());
    assert!(place.dir.join("pods/ns_other_u").exists());
    assert_eq!(place.jobs.wake_at(), None);
}

#[test]
fn a_folder_with_little_in_it_needs_no_child() {
    let mut place = Place::with("/nowhere/edged");
    fs::create_dir_all(place.folder().join("app")).expect("folders");
    fs::write(place.folder().join("app/0.log"), "text").expect("a log");
    let mut events = Vec::new();
    place.jobs.start(JobId(1), remove(), LATER, &mut events);
    assert!(matches!(events[..], [Event::Job(JobId(1), Ok(JobReply::Done))]), "{events:?}");
    assert!(!place.folder().exists());
}

#[test]
fn what_the_child_could_not_do_is_said() {
    let mut place = Place::with(env!("CARGO_BIN_EXE_edged"));
    let data = place.dir.join("kubelet/pods/u/volumes/kubernetes.io~csi/pv/data");
    fs::create_dir_all(&data).expect("folders of somebody's driver");
    let mut events = Vec::new();
    place.jobs.start(JobId(1), JobSpec::RemovePodDir(pod()), LATER, &mut events);
    assert!(events.is_empty(), "not inline: {events:?}");
    let events = place.ended();
    let [Event::Job(JobId(1), Err(JobError::Failed(why)))] = &events[..] else {
        panic!("{events:?}")
    };
    assert_eq!(why, "kubernetes.io~csi/pv: rmdir pv: Directory not empty");
    assert!(data.exists());
}

#[test]
fn a_child_that_ends_without_an_answer_died() {
    let mut place = Place::with("/bin/false");
    place.start(1);
    let events = place.ended();
    let [Event::Job(JobId(1), Err(JobError::Died(how)))] = &events[..] else {
        panic!("{events:?}")
    };
    assert_eq!(how, "exit status: 1; it sent nothing");
}

#[test]
fn a_program_that_is_not_there_fails_at_once() {
    let mut place = Place::with("/nowhere/edged");
    let events = place.start(1);
    assert!(matches!(events[..], [Event::Job(JobId(1), Err(JobError::Failed(_)))]), "{events:?}");
}

#[test]
fn a_child_inherits_only_its_three_descriptors() {
    let mut place = Place::with(&misbehaving("descriptors"));
    place.start(1);
    let events = place.ended();
    let [Event::Job(_, Err(JobError::Died(how)))] = &events[..] else { panic!("{events:?}") };
    assert_eq!(how, "exit status: 0; it sent nothing");
}

/// The agent reads four signals from a descriptor, and has them blocked for that.
#[test]
#[expect(clippy::disallowed_methods, reason = "another process is what ends")]
fn signals_reach_a_child_and_what_it_starts() {
    let _alone = alone();
    let deadly = [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP];
    let blocked: SigSet = deadly.into_iter().chain([Signal::SIGCHLD]).collect();
    // nohup and shells let their background processes ignore some of them, which children inherit.
    let status = fs::read_to_string("/proc/self/status").expect("the kernel's word");
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:\t"));
    let ignored = u64::from_str_radix(ignored.expect("a mask"), 16).expect("in hexadecimal");
    let heeded = |signal: &Signal| ignored & (1 << (*signal as u32 - 1)) == 0;
    assert!(heeded(&Signal::SIGTERM), "that signal is not ignored");
    let mut lines = vec!["job remove-log-dir".to_owned()];
    if cfg!(feature = "cloud") {
        lines.push("job resolve".to_owned());
    }
    if cfg!(feature = "images") {
        lines.push(format!("images serve --listen 127.0.0.1:0 {}", env!("CARGO_TARGET_TMPDIR")));
    }
    for line in &lines {
        for signal in deadly.into_iter().filter(heeded) {
            let (ours, theirs) = UnixStream::pair().expect("a pair");
            blocked.thread_block().expect("it is this thread's own");
            let child = Command::new(env!("CARGO_BIN_EXE_edged"))
                .args(line.split(' '))
                .stdin(Stdio::from(OwnedFd::from(theirs)))
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn();
            blocked.thread_unblock().expect("it is this thread's own");
            let mut child = child.expect("it starts");
            // It waits for the child to pass the signal, which has nothing else to do: it gets no
            // request.
            kill(Pid::from_raw(child.id() as i32), signal).expect("it lives");
            let mut tries = 0..1_000;
            while child.try_wait().expect("it is ours").is_none() {
                if tries.next().is_none() {
                    child.kill().expect("it lives");
                }
                std::thread::sleep(Duration::from_millis(10));
            }
            drop(ours);
            let ended = child.wait().expect("it ended");
            assert_eq!(ended.signal(), Some(signal as i32), "{line}: {ended}");
        }
    }
}

#[cfg(feature = "cloud")]
#[test]
fn who_applies_for_a_certificate_takes_no_place_of_others() {
    let mut place = Place::with(&misbehaving("hang"));
    fs::create_dir_all(place.dir.join("kubelet/pods")).expect("a folder");
    let mut events = Vec::new();
    place.jobs.start(JobId(9_999), JobSpec::Enrol { renew: false }, LATER, &mut events);
    assert!(events.is_empty(), "{events:?}");
    for job in 1..=JOBS_MAX as u64 + 1 {
        assert!(place.start(job).is_empty());
    }
    let children = fs::read_to_string("/proc/thread-self/children").expect("the kernel's list");
    assert_eq!(place.tick(LATER).len(), JOBS_MAX + 2);
    while waitid(Id::All, WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT).is_ok() {
        place.ended();
    }
    assert_eq!(children.split_whitespace().count(), JOBS_MAX + 1, "with the one that applies");
}

#[test]
fn a_hanging_child_is_killed_at_its_deadline_and_its_place_is_given_on() {
    let mut place = Place::with(&misbehaving("hang"));
    for job in 1..=JOBS_MAX as u64 + 1 {
        assert!(place.start(job).is_empty());
    }
    assert_eq!(place.jobs.wake_at(), Some(LATER));
    assert!(place.tick(NOW).is_empty());
    let events = place.tick(LATER);
    assert_eq!(events.len(), JOBS_MAX + 1, "the waiting one too: {events:?}");
    assert!(events.iter().all(|event| matches!(event, Event::Job(_, Err(JobError::Deadline)))));
    assert_eq!(place.jobs.wake_at(), None);
    assert!(place.tick(LATER).is_empty(), "answered once");
    assert!(place.start(9).is_empty(), "waits for a place");
    assert!(place.ended().is_empty());
    let events = place.tick(LATER);
    assert!(matches!(events[..], [Event::Job(JobId(9), Err(JobError::Deadline))]), "{events:?}");
    while waitid(Id::All, WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT).is_ok() {
        assert!(place.ended().is_empty());
    }
}

#[test]
fn a_job_that_is_given_up_ends_with_all_that_it_started() {
    let mut place = Place::with(&misbehaving("hang-below"));
    place.fill();
    let below = place.dir.join("pods/below");
    mkfifo(&below, Mode::S_IRWXU).expect("a pipe with a name");
    assert!(place.start(1).is_empty());
    // Both of them hold its other end.
    let mut below = fs::File::open(below).expect("the child opens it too");
    below.read_exact(&mut [0; 3]).expect("the child has one of its own");
    let mut events = Vec::new();
    place.jobs.kill(JobId(2), &mut events);
    assert!(events.is_empty(), "another's: {events:?}");
    place.jobs.kill(JobId(1), &mut events);
    assert!(matches!(events[..], [Event::Job(JobId(1), Err(JobError::Killed))]), "{events:?}");
    assert_eq!(place.jobs.wake_at(), None);
    assert_eq!(below.read(&mut [0]).expect("an end"), 0, "both are gone");
    assert!(place.ended().is_empty(), "answered once");
    place.jobs.kill(JobId(1), &mut events);
    assert_eq!(events.len(), 1, "answered once: {events:?}");
}

#[test]
fn a_job_that_waits_for_a_place_can_be_given_up() {
    let mut place = Place::with(&misbehaving("hang"));
    for job in 1..=JOBS_MAX as u64 + 1 {
        assert!(place.start(job).is_empty());
    }
    let last = JobId(JOBS_MAX as u64 + 1);
    let mut events = Vec::new();
    place.jobs.kill(last, &mut events);
    assert!(matches!(&events[..], [Event::Job(job, Err(JobError::Killed))] if *job == last));
    assert_eq!(place.tick(LATER).len(), JOBS_MAX, "the others go on");
    while waitid(Id::All, WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT).is_ok() {
        assert!(place.ended().is_empty(), "answered once");
    }
}

#[test]
fn more_jobs_than_may_wait_are_refused() {
    let mut place = Place::with(&misbehaving("hang"));
    for job in 1..=(JOBS_MAX + JOB_QUEUE_MAX) as u64 {
        assert!(place.start(job).is_empty(), "{job}");
    }
    let events = place.start(9_999);
    assert!(
        matches!(events[..], [Event::Job(JobId(9_999), Err(JobError::Failed(_)))]),
        "{events:?}"
    );
    assert_eq!(place.tick(LATER).len(), JOBS_MAX + JOB_QUEUE_MAX);
    while waitid(Id::All, WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT).is_ok() {
        place.ended();
    }
}

#[test]
fn a_child_without_an_order_ends() {
    let _alone = alone();
    let status = Command::new(env!("CARGO_BIN_EXE_edged"))
        .args(["job", "remove-log-dir"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status()
        .expect("it runs");
    assert!(!status.success());
}
