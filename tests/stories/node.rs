//! The desk's side of what keeps a node in order.

use edged::agent::event::Event;
use edged::model::cri::Reply;
use edged::model::job::{JobError, JobSpec};
use edged::model::upkeep::{Amount, Ask, Measures, Room};

use crate::desk::Desk;

impl Desk {
    pub fn measure(&self, ask: &Ask) -> Measures {
        let mut measures = self.machine.clone();
        measures.image_fs = measures.image_fs.filter(|_| ask.image_fs.is_some());
        measures.log_dirs = measures.log_dirs.filter(|_| ask.log_dirs);
        measures.logs.retain(|(link, _)| ask.logs.contains(link));
        measures
    }

    /// What becomes of a job about volumes and cgroups.
    pub fn volume_job(&mut self, spec: &JobSpec) -> Result<(), JobError> {
        let (what, volume) = match spec {
            JobSpec::MakePodCgroup(_) if self.bad_cgroups => {
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
            | JobSpec::SetQosCgroups(_)
    )
}
