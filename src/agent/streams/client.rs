//! Requests of MetaServer's clients for a log or a command: which container they mean, in the words
//! of KubeEdge (metaserver.md, sections 11.1 and 11.2).

use super::target;
use crate::agent::pods::Pods;
use crate::model::metaserver::{Failure, Messages, Reply};
use crate::model::pod::Pod;
use crate::model::stream::StreamRequest;

/// The annotation that names the container which tools mean where none is named.
const DEFAULT_CONTAINER: &str = "kubectl.kubernetes.io/default-container";

/// The request with the name of its container; an error is the client's answer.
pub(in crate::agent) fn resolved(
    pods: &Pods,
    request: &StreamRequest,
) -> Result<StreamRequest, Reply> {
    let mut request = request.clone();
    // Of a command, KubeEdge's clients expect errors as messages.
    let is_command = matches!(request, StreamRequest::Command { .. });
    let is_log = matches!(request, StreamRequest::Logs { .. });
    if let StreamRequest::Command { command, .. } | StreamRequest::Exec { command, .. } = &request
        && command.is_empty()
    {
        let why = "You must specify at least one command for the container".to_owned();
        return Err(refused(is_command, 400, "BadRequest", why));
    }
    let Some(name) = request.pod().cloned() else { return Ok(request) };
    let place = format!("\"/{}/{}\"", name.namespace, name.name);
    let Some(pod) = target::pod(pods, &name) else {
        return Err(refused(is_command, 404, "NotFound", format!("not found pod:{place}")));
    };
    let Some(container) = request.container_mut() else { return Ok(request) };
    if container.is_empty() {
        let Some(chosen) = chosen(pod.api(), is_log) else {
            let why = format!("more than one container in pod:{place}");
            return Err(refused(is_command, 400, "BadRequest", why));
        };
        *container = chosen;
    } else if pod.api().spec.all_containers().all(|it| it.name != *container) {
        let why = format!("not found container {container} in pod:{place}");
        return Err(refused(is_command, 404, "NotFound", why));
    }
    Ok(request)
}

/// The container that is meant where none is named; `None`: there are several.
fn chosen(pod: &Pod, is_log: bool) -> Option<Box<str>> {
    let containers = &pod.spec.containers;
    let default = pod.metadata.annotations.get(DEFAULT_CONTAINER);
    let named = default.and_then(|name| containers.iter().find(|it| *it.name == **name));
    let only = containers.first().filter(|_| is_log || containers.len() == 1);
    named.or(only).map(|container| container.name.clone())
}

fn refused(is_command: bool, code: u16, reason: &'static str, why: String) -> Reply {
    if is_command {
        return Reply::Messages(Messages { errors: vec![why], ..Messages::default() });
    }
    Reply::Failure(Failure::new(code, reason, why))
}
