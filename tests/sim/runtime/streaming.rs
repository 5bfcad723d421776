//! The runtime's calls for people.

use edged::model::cri::{CallError, Code, ContainerState, Reply, StreamingCall};
use edged::model::housekeeping::HousekeepingReply;

use super::{Runtime, number_of, refused};
use crate::short;

impl Runtime {
    /// A URL for a container that runs, or a sandbox that is ready; usage of all.
    pub(super) fn streaming(&self, call: &StreamingCall) -> Result<Reply, CallError> {
        let (kind, id) = match call {
            StreamingCall::ListContainerStats => {
                let all = HousekeepingReply::Containers(short::containers(self));
                return Ok(Reply::HousekeepingCall(all));
            }
            StreamingCall::PortForward { sandbox, .. } => {
                let ready = self.sandboxes.get(&number_of(&sandbox.0)).map(|it| it.listed.ready);
                let ready = ready.ok_or_else(|| self.quirks.not_found(&sandbox.0))?;
                if !ready {
                    let message = format!("sandbox container {sandbox} is not running");
                    return Err(refused(Code::Unknown, message));
                }
                ("portforward", &sandbox.0)
            }
            StreamingCall::Exec { container, .. } => ("exec", &container.0),
            StreamingCall::Attach { container, .. } => ("attach", &container.0),
        };
        if kind != "portforward" {
            let container = self.containers.get(&number_of(id));
            let container = container.ok_or_else(|| self.quirks.not_found(id))?;
            if container.listed.state != ContainerState::Running {
                let message = format!("container is in {:?} state", container.listed.state);
                return Err(refused(Code::Unknown, message));
            }
        }
        Ok(Reply::Url(format!("http://127.0.0.1:1/{kind}/{id}").into()))
    }
}
