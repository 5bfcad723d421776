//! KubeEdge's requests for logs, commands and restarts (metaserver.md, sections 11.1 to 11.3), as
//! `keadm ctl` sends them, and kubectl those for a followed log and for `exec`.

use serde_json::json;

use super::body::{bad, is_segment, json_type, not_found};
use crate::limits::METASERVER_RESTARTS_MAX;
#[cfg(feature = "streams")]
use crate::model::cri::Pipes;
use crate::model::metaserver::{Call, Failure, Messages, MetaServerSettings};
#[cfg(feature = "streams")]
use crate::model::stream::{PodName, StreamRequest};
use crate::wire::http1::call;
#[cfg(feature = "streams")]
use crate::wire::http1::query::pairs;
use crate::wire::http1::query::unescaped_path;
#[cfg(feature = "streams")]
use crate::wire::kubelet::{self, Fault, Form};

/// Reads a request; `None`: it is another.
pub(super) fn read(
    request: &call::Call,
    settings: &MetaServerSettings,
) -> Result<Option<Call>, Failure> {
    let Some(rest) = request.path.strip_prefix("/api/v1/namespaces/") else { return Ok(None) };
    let parts: Vec<String> =
        rest.trim_end_matches('/').splitn(PARTS_MAX, '/').map(unescaped_path).collect();
    let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
    let (namespace, what) = match parts[..] {
        [namespace, "pods", "restart"] if request.method == "POST" => (namespace, What::Restart),
        [namespace, "pods", pod, "log"] => (namespace, What::Log(pod)),
        [namespace, "pods", pod, "exec"] => (namespace, What::Exec(pod)),
        _ => return Ok(None),
    };
    let name = match what {
        What::Restart => "restart",
        What::Log(pod) | What::Exec(pod) => pod,
    };
    if !is_segment(namespace) || !is_segment(name) || namespace.is_empty() || name.is_empty() {
        return Err(not_found(&request.path));
    }
    if !settings.requires_authorization && !settings.keadm_ctl {
        let message = "logs, exec and restart are forbidden: every program of this machine, and \
                       every pod on its network, could ask for them \
                       (modules.metaManager.metaServer.keadmCtl)";
        return Err(Failure::new(403, "Forbidden", message));
    }
    match what {
        What::Restart => restart(request, namespace).map(Some),
        What::Log(pod) => log(request, namespace, pod).map(Some),
        What::Exec(pod) => exec(request, namespace, pod).map(Some),
    }
}

#[derive(Clone, Copy)]
enum What<'a> {
    Restart,
    /// Of this pod.
    Log(&'a str),
    Exec(&'a str),
}

/// Parts of a path after `namespaces`; what has more is another's.
const PARTS_MAX: usize = 5;

fn restart(request: &call::Call, namespace: &str) -> Result<Call, Failure> {
    // keadm sends no Content-Type, and client-go its usual one.
    json_type(request)?;
    let pods: Vec<Box<str>> = serde_json::from_slice(&request.body)
        .map_err(|_| bad("got another body, expected a JSON array of the names of pods"))?;
    if pods.len() > METASERVER_RESTARTS_MAX {
        let (got, most) = (pods.len(), METASERVER_RESTARTS_MAX);
        return Err(bad(format!("got {got} pods, expected {most} at most")));
    }
    if let Some(wrong) = pods.iter().find(|name| name.is_empty() || !is_segment(name)) {
        return Err(bad(format!("got {wrong:?}, expected the name of a pod")));
    }
    Ok(Call::Restart { namespace: namespace.into(), pods })
}

fn method(request: &call::Call, expected: &[&str]) -> Result<(), Failure> {
    if expected.contains(&&*request.method) {
        return Ok(());
    }
    let message = format!("got {}, expected {}", request.method, expected.join(" or "));
    Err(Failure::new(405, "MethodNotAllowed", message))
}

#[cfg(feature = "streams")]
fn log(request: &call::Call, namespace: &str, pod: &str) -> Result<Call, Failure> {
    method(request, &["GET"])?;
    let options = kubelet::log_options(&request.query).map_err(|fault| match fault {
        Fault::Undecodable => bad("Unable to decode query."),
        Fault::Invalid => Failure::new(422, "Invalid", "Invalid request."),
    })?;
    let (pod, container) = (pod_name(namespace, pod), container(request));
    Ok(Call::Stream(Box::new(StreamRequest::Logs { pod, container, options })))
}

/// With an upgrade, bytes go both ways, with or without a terminal; otherwise the answer has what
/// the command has written.
#[cfg(feature = "streams")]
fn exec(request: &call::Call, namespace: &str, pod: &str) -> Result<Call, Failure> {
    let (pod, container) = (pod_name(namespace, pod), container(request));
    let commands = pairs(&request.query).filter(|(name, _)| name == "command");
    let command: Vec<String> = commands.map(|(_, word)| word).collect();
    if !request.has_word("connection", "upgrade") {
        method(request, &["POST"])?;
        if is_true(request, "tty") {
            return Err(bad(
                "got no upgrade, expected one to SPDY/3.1 or websocket for a terminal",
            ));
        }
        let request = StreamRequest::Command { pod, container, command };
        return Ok(Call::Stream(Box::new(request)));
    }
    method(request, &["GET", "POST"])?;
    let is = |name: &str| is_true(request, name);
    let pipes =
        Pipes { stdin: is("stdin"), stdout: is("stdout"), stderr: is("stderr"), tty: is("tty") };
    if !pipes.stdin && !pipes.stdout && !pipes.stderr {
        return Err(bad("you must specify at least 1 of stdin, stdout, stderr"));
    }
    Ok(Call::Stream(Box::new(StreamRequest::Exec { pod, container, command, pipes })))
}

#[cfg(feature = "streams")]
fn pod_name(namespace: &str, name: &str) -> PodName {
    PodName { namespace: namespace.into(), name: name.into(), uid: None }
}

/// Empty: none is named.
#[cfg(feature = "streams")]
fn container(request: &call::Call) -> Box<str> {
    request.query_value("container").unwrap_or_default().into()
}

#[cfg(feature = "streams")]
fn is_true(request: &call::Call, key: &str) -> bool {
    request.query_value(key).is_some_and(|value| !matches!(&*value, "" | "false" | "0"))
}

/// How its answer is written.
#[cfg(feature = "streams")]
pub fn form(request: &StreamRequest) -> Form {
    match request {
        // KubeEdge's clients read JSON, unless they follow.
        StreamRequest::Logs { options, .. } if !options.follow => Form::LogMessages,
        StreamRequest::Command { .. } => Form::CommandMessages,
        StreamRequest::Exec { .. }
        | StreamRequest::Attach { .. }
        | StreamRequest::PortForward { .. } => Form::Relayed,
        StreamRequest::Logs { .. } | StreamRequest::Run { .. } | StreamRequest::Usage => Form::Text,
    }
}

#[cfg(not(feature = "streams"))]
fn log(request: &call::Call, _: &str, _: &str) -> Result<Call, Failure> {
    method(request, &["GET"])?;
    Err(not_built_in())
}

#[cfg(not(feature = "streams"))]
fn exec(request: &call::Call, _: &str, _: &str) -> Result<Call, Failure> {
    method(request, &["GET", "POST"])?;
    Err(not_built_in())
}

#[cfg(not(feature = "streams"))]
fn not_built_in() -> Failure {
    let message = "logs and exec are not built into this edged (feature streams)";
    Failure::new(501, "NotImplemented", message)
}

/// JSON of a restart's answer: what is empty is left out, as by KubeEdge.
pub(super) fn messages(messages: &Messages) -> String {
    let mut answer = json!({});
    if !messages.done.is_empty() {
        answer["LogMessages"] = json!(messages.done);
    }
    if !messages.errors.is_empty() {
        answer["errMessages"] = json!(messages.errors);
    }
    answer.to_string()
}
