//! The harness's side of what keeps a node in order.

use edged::agent::event::{Event, JobId};
use edged::model::cri::{Reply, Request};
use edged::model::housekeeping::{
    Amount, ContainerUsage, HousekeepingCall, HousekeepingReply, MeasureRequest, Measures, Room,
    SandboxUsage,
};
use edged::model::job::{JobError, JobSpec, LogDir, Used, Walk};

use crate::harness::Harness;

/// That a pod's cgroup is made.
pub const CGROUP: &str = "its cgroup";
/// That a container's files are made.
pub const FILES: &str = "its files";

/// That links to logs are looked through.
pub const SWEEP: &str = "the sweep";

/// That folders are walked through.
pub const WALK: &str = "the walk";

/// What pods take, as the runtime and walks tell it.
#[derive(Default)]
pub struct Taken {
    pub containers: Vec<ContainerUsage>,
    pub sandboxes: Vec<SandboxUsage>,
    /// Uids of pods that have a cgroup without a process.
    pub idle_cgroups: Vec<&'static str>,
    /// A volume whose mount never ends, or [`CGROUP`], [`FILES`], [`SWEEP`] or [`WALK`], and the
    /// job that is about it.
    pub hangs: Option<&'static str>,
    pub hung: Option<JobId>,
    /// What ended containers left is not told before the story does so.
    pub words_wait: bool,
    pub unread: Vec<JobId>,
    /// Jobs that fail.
    pub fails: Option<fn(&JobSpec) -> bool>,
    /// What hangs does not end when it is killed.
    pub deaf: bool,
    /// No mount ends before it is let go on; those that have not.
    pub holds: bool,
    pub held: Vec<JobId>,
    /// The runtime does not tell.
    pub silent: bool,
    /// And not what processes pods have.
    pub mute: bool,
    /// What it is asked of images waits for the story: where they lie, which there are.
    pub no_place: bool,
    pub no_images: bool,
    /// Lists of pods and containers are answered by the story.
    pub looks_wait: bool,
    /// Bytes of folders, by the name of the volume or container; others are not there.
    pub folders: Vec<(&'static str, u64)>,
    /// Names of the folders that were walked through.
    pub walked: std::cell::RefCell<Vec<String>>,
}

impl Taken {
    pub fn hides(&self, request: &Request) -> bool {
        let is_list = matches!(request, Request::ListPodSandbox | Request::ListContainers);
        (self.looks_wait && is_list)
            || (self.no_place
                && *request == Request::HousekeepingCall(HousekeepingCall::ImageFsInfo))
            || (self.no_images
                && *request == Request::HousekeepingCall(HousekeepingCall::ListImages))
            || (self.mute
                && *request == Request::HousekeepingCall(HousekeepingCall::ListPodSandboxStats))
            || (self.silent
                && *request == Request::HousekeepingCall(HousekeepingCall::ListContainerStats))
    }

    pub fn walk(&self, walk: &Walk) -> Vec<Option<Used>> {
        let one = |name: &str| {
            self.walked.borrow_mut().push(format!("{:?} {name}", walk.kind));
            let (_, bytes) = *self.folders.iter().find(|(folder, _)| *folder == name)?;
            Some(Used { bytes, inodes: 1 })
        };
        walk.places.iter().map(|place| one(&place.name)).collect()
    }
}

impl Harness {
    /// What the runtime tells of the node.
    pub fn tell_of_node(&self, housekeeping: &HousekeepingCall) -> HousekeepingReply {
        match housekeeping {
            HousekeepingCall::ImageFsInfo => HousekeepingReply::ImageFs(Some("/images".into())),
            HousekeepingCall::ListImages => HousekeepingReply::Images(self.stored.clone()),
            HousekeepingCall::ListContainerStats => {
                HousekeepingReply::Containers(self.taken.containers.clone())
            }
            HousekeepingCall::ListPodSandboxStats => {
                HousekeepingReply::Sandboxes(self.taken.sandboxes.clone())
            }
            other => panic!("{other:?} is no look"),
        }
    }

    pub fn measure(&self, ask: &MeasureRequest) -> Measures {
        let mut measures = self.machine.clone();
        measures.image_fs = measures.image_fs.filter(|_| ask.image_fs.is_some());
        measures.log_dirs = measures.log_dirs.filter(|_| ask.log_dirs);
        measures.pids = measures.pids.filter(|_| ask.pids);
        if let (true, Some(known)) = (ask.log_dirs, &ask.cgroups_but) {
            let idle = self.taken.idle_cgroups.iter();
            let left = idle.filter(|uid| known.binary_search(&(**uid).into()).is_err());
            let left = left.map(|uid| LogDir::nameless(uid));
            measures.log_dirs.get_or_insert_default().extend(left);
        }
        let asked = ask.pods_cgroup.as_deref() == Some("/kubepods");
        measures.pods_memory = measures.pods_memory.filter(|_| asked);
        measures.logs.retain(|(link, _)| ask.logs.contains(link));
        measures
    }

    /// The runtime does all that it is asked.
    pub fn works(&mut self) {
        while let Some(asked) = self.asked_for().first().cloned() {
            self.does(&asked);
        }
    }

    /// It does so up to this, which is the next to be done.
    #[track_caller]
    pub fn works_until(&mut self, call: &str) {
        for _ in 0..100 {
            match self.asked_for().first().cloned() {
                Some(asked) if asked == call => return,
                Some(asked) => self.does(&asked),
                None => self.pass(1_000),
            }
        }
        panic!("no {call}: {:?}", self.trace);
    }

    /// What becomes of a job about volumes and cgroups.
    pub fn volume_job(&mut self, spec: &JobSpec) -> Result<(), JobError> {
        if self.taken.fails.is_some_and(|fails| fails(spec)) {
            return Err(JobError::Failed("no such device".to_owned()));
        }
        let (what, volume) = match spec {
            JobSpec::MakePodCgroup(_) | JobSpec::RemovePodCgroup(_) | JobSpec::SetQosCgroups(_)
                if self.bad_cgroups =>
            {
                return Err(JobError::Failed("no such device".to_owned()));
            }
            JobSpec::SetUpVolume(wanted) => ("set up", wanted.volume.clone()),
            JobSpec::BindSubPath(part) => ("bind", part.volume.clone()),
            JobSpec::TearDownVolumes(pod) => ("tear down", pod.uid.clone()),
            _ => return Ok(()),
        };
        self.volume_jobs.push(format!("{what} {volume}"));
        let bad = self.bad_volume == Some(&*volume);
        if bad { Err(JobError::Failed("no such device".to_owned())) } else { Ok(()) }
    }

    /// Tells how a job ended, unless it hangs.
    pub fn tell_job(&mut self, job: JobId, spec: JobSpec, result: Result<(), JobError>) -> bool {
        let about = match &spec {
            JobSpec::SetUpVolume(wanted) => Some(&*wanted.volume),
            JobSpec::MakePodCgroup(_) => Some(CGROUP),
            JobSpec::MakeContainerFiles(_) => Some(FILES),
            JobSpec::SweepLinks { .. } => Some(SWEEP),
            JobSpec::Measure(_) => Some(WALK),
            _ => None,
        };
        if about.is_some() && self.taken.hangs == about {
            assert_eq!(self.taken.hung.replace(job), None, "one at a time");
            return false;
        }
        if self.taken.holds && matches!(spec, JobSpec::SetUpVolume(_)) {
            self.taken.held.push(job);
            return false;
        }
        let event = self.job_event(job, spec, result);
        self.agent.handle(self.now, event);
        true
    }

    /// Ends one that hangs.
    pub fn kill_job(&mut self, job: JobId) -> bool {
        assert_eq!(self.taken.hung.take(), Some(job), "it is killed once, and no other");
        self.volume_jobs.push("kill".to_owned());
        if self.taken.deaf {
            self.taken.hung = Some(job);
            return false;
        }
        self.agent.handle(self.now, Event::Job(job, Err(JobError::Killed)));
        true
    }

    /// What the agent hears of a job.
    pub fn job_event(&self, job: JobId, spec: JobSpec, result: Result<(), JobError>) -> Event {
        match (spec, result) {
            (JobSpec::Measure(walk), _) => Event::Used(job, self.taken.walk(&walk)),
            (JobSpec::MakePodDirs { containers, .. }, Ok(())) => {
                Event::Attempts(job, vec![self.newest_log; containers.len()])
            }
            (_, result) => Event::Job(job, result),
        }
    }

    /// The log that was to be reopened, and was taken out of the book, is.
    pub fn reopened(&mut self) {
        let call = self.reopening.take().expect("it was asked for");
        self.tell(Event::Cri(call, Ok(Reply::Done)));
    }

    /// So many percent of the images' file system, of 1,000 bytes, are used from now on.
    pub fn fill(&mut self, percent: u64) {
        let bytes = Amount { capacity: 1_000, available: 1_000 - percent * 10 };
        self.machine.image_fs = Some(Room { bytes, ..Room::default() });
    }
}

/// Jobs that are no pod's.
pub fn is_of_the_node(spec: &JobSpec) -> bool {
    #[cfg(feature = "cloud")]
    if matches!(spec, JobSpec::Enrol { .. }) {
        return true;
    }
    matches!(
        spec,
        JobSpec::SweepLinks { .. }
            | JobSpec::RotateLog { .. }
            | JobSpec::RestoreLog(_)
            | JobSpec::CompressLogs(_)
            | JobSpec::Measure(_)
            | JobSpec::SetQosCgroups(_)
    )
}
