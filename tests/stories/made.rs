//! Created objects: the configurations of a pod's sandbox and containers.

use edged::agent::event::{Event, JobId};
use edged::model::cri::{ContainerConfig, Request, SandboxConfig};
use edged::model::job::LastWords;

use crate::harness::{Harness, UID};

/// Runs a pod `p` with this spec on a new harness, up to its container `m`.
pub fn made(spec: &str) -> (SandboxConfig, ContainerConfig) {
    made_on(&mut Harness::new(), spec)
}

/// The same on the story's harness.
pub fn made_on(harness: &mut Harness, spec: &str) -> (SandboxConfig, ContainerConfig) {
    harness.manifests(&[&annotated("", spec)]);
    let sandbox = sandbox_of(harness);
    harness.does("image_status i:1");
    (sandbox, container_of(harness))
}

/// The configuration of the requested sandbox; it is created and its addresses are reported.
#[track_caller]
pub fn sandbox_of(harness: &mut Harness) -> SandboxConfig {
    let (call, request) = harness.take("run_podsandbox #0");
    let reply = harness.perform(&request);
    harness.deliver(Event::Cri(call, Ok(reply)));
    let Request::RunPodSandbox(config) = request else { panic!("{request:?}") };
    harness.does("podsandbox_status s1");
    *config
}

/// The configuration of the requested container.
#[track_caller]
pub fn container_of(harness: &mut Harness) -> ContainerConfig {
    let (_, request) = harness.take("create_container m#0");
    let Request::CreateContainer { config, .. } = request else { panic!("{request:?}") };
    *config
}

/// A pod `p` with further metadata and this spec.
pub fn annotated(metadata: &str, spec: &str) -> String {
    format!(r#"{{"metadata":{{"name":"p","uid":"{UID}"{metadata}}},"spec":{{{spec}}}}}"#)
}

impl Harness {
    /// Termination messages are read at once.
    pub fn finish_read(&mut self, job: JobId, words: LastWords) -> bool {
        self.reads.push(words);
        if self.taken.reads_wait {
            self.taken.unread.push(job);
            return false;
        }
        let text = self.last_words.clone().into();
        self.agent.handle(self.now, Event::TerminationMessage(job, text));
        true
    }
}
