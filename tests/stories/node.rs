//! The harness's side of housekeeping.

use edged::agent::event::{Event, JobId};
use edged::model::cri::{Reply, Request};
use edged::model::housekeeping::{
    Amount, ContainerUsage, HousekeepingCall, HousekeepingReply, MeasureRequest, Measures, Room,
    SandboxUsage,
};
use edged::model::job::{JobError, JobReply, JobSpec, LogDir, Used, Walk};

use crate::harness::Harness;

/// Creating a pod's cgroup.
pub const CGROUP: &str = "its cgroup";
/// Creating a container's files.
pub const FILES: &str = "its files";

/// Sweeping links to logs.
pub const SWEEP: &str = "the sweep";

/// Walking through folders.
pub const WALK: &str = "the walk";

/// The usage of pods, as the runtime and walks report it.
#[derive(Default)]
pub struct Taken {
    pub containers: Vec<ContainerUsage>,
    pub sandboxes: Vec<SandboxUsage>,
    /// Uids of pods that have a cgroup without a process.
    pub idle_cgroups: Vec<&'static str>,
    /// A volume whose mount never ends, or [`CGROUP`], [`FILES`], [`SWEEP`] or [`WALK`], and its
    /// job.
    pub hangs: Option<&'static str>,
    pub hung: Option<JobId>,
    /// Termination messages are not delivered before the story does so.
    pub reads_wait: bool,
    pub unread: Vec<JobId>,
    /// Jobs that fail.
    pub fails: Option<fn(&JobSpec) -> bool>,
    /// A hanging job does not end when it is killed.
    pub deaf: bool,
    /// Mounts wait until the story releases them; the waiting ones.
    pub holds: bool,
    pub held: Vec<JobId>,
    /// The runtime does not report usage.
    pub silent: bool,
    /// The runtime does not report the processes of pods.
    pub mute: bool,
    /// Calls about images wait for the story: their path, and their list.
    pub no_place: bool,
    pub no_images: bool,
    /// Lists of pods and containers are answered by the story.
    pub lists_wait: bool,
    /// Bytes of folders, by the name of the volume or container; others do not exist.
    pub folders: Vec<(&'static str, u64)>,
    /// Names of the walked folders.
    pub walked: std::cell::RefCell<Vec<String>>,
}

impl Taken {
    pub fn hides(&self, request: &Request) -> bool {
        let is_list = matches!(request, Request::ListPodSandbox | Request::ListContainers);
        (self.lists_wait && is_list)
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
    /// The runtime's reply to a housekeeping call.
    pub fn node_reply(&self, housekeeping: &HousekeepingCall) -> HousekeepingReply {
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
        let requested = ask.pods_cgroup.as_deref() == Some("/kubepods");
        measures.pods_memory = measures.pods_memory.filter(|_| requested);
        measures.logs.retain(|(link, _)| ask.logs.contains(link));
        measures
    }

    /// The runtime performs all requests.
    pub fn works(&mut self) {
        while let Some(requested) = self.open_calls().first().cloned() {
            self.does(&requested);
        }
    }

    /// The runtime performs requests up to this one, which is the next.
    #[track_caller]
    pub fn works_until(&mut self, call: &str) {
        for _ in 0..100 {
            match self.open_calls().first().cloned() {
                Some(requested) if requested == call => return,
                Some(requested) => self.does(&requested),
                None => self.pass(1_000),
            }
        }
        panic!("no {call}: {:?}", self.trace);
    }

    /// The result of a job about volumes and cgroups.
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

    /// Ends a job, unless it hangs.
    pub fn finish_job(&mut self, job: JobId, spec: JobSpec, result: Result<(), JobError>) -> bool {
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

    /// Ends a hanging job.
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

    /// The event for the end of a job.
    pub fn job_event(&self, job: JobId, spec: JobSpec, result: Result<(), JobError>) -> Event {
        let result = match (spec, result) {
            (JobSpec::Measure(walk), _) => Ok(JobReply::Used(self.taken.walk(&walk))),
            (JobSpec::MakePodDirs { containers, .. }, Ok(())) => {
                Ok(JobReply::Attempts(vec![self.newest_log; containers.len()]))
            }
            #[cfg(feature = "node-jobs")]
            (JobSpec::Upgrade(step), Ok(())) => {
                let mut replies = self.upgrade.borrow_mut();
                let next = replies.pop_front().unwrap_or_else(|| panic!("no answer to {step:?}"));
                if replies.is_empty() {
                    replies.push_back(next.clone());
                }
                Ok(JobReply::Upgrade(next))
            }
            (_, result) => result.map(|()| JobReply::Done),
        };
        Event::Job(job, result)
    }

    /// The log whose reopening was taken from the open calls is reopened.
    pub fn reopened(&mut self) {
        let call = self.reopening.take().expect("it was requested");
        self.deliver(Event::Cri(call, Ok(Reply::Done)));
    }

    /// From now on this percentage of the images' file system, of 1,000 bytes, is used.
    pub fn fill(&mut self, percent: u64) {
        let bytes = Amount { capacity: 1_000, available: 1_000 - percent * 10 };
        self.machine.image_fs = Some(Room { bytes, ..Room::default() });
    }
}

/// Jobs that belong to no pod.
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
