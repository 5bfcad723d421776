//! The kubelet's paths for people and their queries ↔ requests (edgestream.md, section 7), for the
//! HTTP API and for the tunnel of the cloud alike.

pub mod answer;
#[cfg(feature = "metaserver")]
pub mod messages;
pub mod usage;

use crate::model::cri::Pipes;
use crate::model::stream::{LogOptions, PodName, Refusal, RefusalKind, Since, StreamRequest};
use crate::model::time::Timestamp;
use crate::wire::http1::query::{pairs, unescaped_path};

/// A request, and the form of its answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    pub request: StreamRequest,
    pub form: Form,
}

/// How an answer is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Text as it comes.
    Text,
    /// Whatever the client and the runtime agree on.
    Relayed,
    /// `/stats/summary`: JSON; of CPU and memory only.
    Summary { brief: bool },
    /// `/metrics/resource`
    Resource,
    /// `/metrics/cadvisor`
    Cadvisor,
    /// MetaServer's: a log, or its refusal as a `Status`.
    #[cfg(feature = "metaserver")]
    LogMessages,
    /// MetaServer's: what has become of a command.
    #[cfg(feature = "metaserver")]
    CommandMessages,
}

/// The request of a method, a path as it was sent, and a query; `None`: the path is another's.
pub fn parse(method: &str, path: &str, query: &str) -> Option<Result<Asked, Refusal>> {
    let mut parts = path.trim_start_matches('/').split('/').map(unescaped_path);
    let kind = parts.next()?;
    let parts: Vec<String> = parts.take(PARTS_MAX + 1).collect();
    let get = method == "GET";
    let upgrade = get || method == "POST";
    let (allowed, asked) = match (&*kind, parts.as_slice()) {
        ("containerLogs", [namespace, pod, container]) => {
            (get, logs(namespace, pod, container, query))
        }
        ("exec", [namespace, pod, middle @ .., container]) if middle.len() < 2 => {
            let pod = pod_name(namespace, pod, middle);
            (upgrade, exec(pod, container, query))
        }
        ("attach", [namespace, pod, middle @ .., container]) if middle.len() < 2 => {
            let pod = pod_name(namespace, pod, middle);
            let container = container.as_str().into();
            let attach = |pipes| StreamRequest::Attach { pod, container, pipes };
            (upgrade, pipes(query).map(attach).map(relayed))
        }
        ("portForward", [namespace, pod, uid @ ..]) if uid.len() < 2 => {
            let pod = pod_name(namespace, pod, uid);
            let forward = |ports| relayed(StreamRequest::PortForward { pod, ports });
            (upgrade, ports(query).map(forward))
        }
        ("run", [namespace, pod, middle @ .., container]) if middle.len() < 2 => {
            let pod = pod_name(namespace, pod, middle);
            let command = value(query, "cmd").unwrap_or_default();
            let command = command.split(' ').map(str::to_owned).collect();
            let request = StreamRequest::Run { pod, container: container.as_str().into(), command };
            (method == "POST", Ok(Asked { request, form: Form::Text }))
        }
        ("stats", [] | [_]) if parts.iter().all(|part| part.is_empty() || part == "summary") => {
            let brief = value(query, "only_cpu_and_memory").is_some_and(|text| is_true(&text));
            (get, Ok(usage(Form::Summary { brief })))
        }
        ("metrics", [part]) if part == "resource" => (get, Ok(usage(Form::Resource))),
        ("metrics", [part]) if part == "cadvisor" => (get, Ok(usage(Form::Cadvisor))),
        _ => return None,
    };
    if !allowed {
        let text = format!("got the method {method}, expected another for {path}");
        return Some(Err(Refusal::new(RefusalKind::MethodNotAllowed, text)));
    }
    Some(asked)
}

/// Elements of a path after the first one.
const PARTS_MAX: usize = 4;

fn relayed(request: StreamRequest) -> Asked {
    Asked { request, form: Form::Relayed }
}

fn usage(form: Form) -> Asked {
    Asked { request: StreamRequest::Usage, form }
}

fn pod_name(namespace: &str, name: &str, uid: &[String]) -> PodName {
    PodName {
        namespace: namespace.into(),
        name: name.into(),
        uid: uid.first().map(|uid| uid.as_str().into()),
    }
}

fn value(query: &str, name: &str) -> Option<String> {
    pairs(query).find(|(key, _)| key == name).map(|(_, value)| value)
}

/// As the API server reads booleans: everything is true except these.
fn is_true(text: &str) -> bool {
    !matches!(&*text.to_ascii_lowercase(), "false" | "0")
}

fn logs(namespace: &str, pod: &str, container: &str, query: &str) -> Result<Asked, Refusal> {
    let bad = |message: &str| {
        Refusal::new(RefusalKind::BadRequest, format!("{{\"message\": \"{message}\"}}"))
    };
    for (value, what) in
        [(pod, "podID"), (container, "container name"), (namespace, "podNamespace")]
    {
        if value.is_empty() {
            return Err(bad(&format!("Missing {what}.")));
        }
    }
    let options = log_options(query).map_err(|fault| match fault {
        Fault::Undecodable => bad("Unable to decode query."),
        Fault::Invalid => Refusal::new(RefusalKind::Invalid, "{\"message\": \"Invalid request.\"}"),
    })?;
    let pod = pod_name(namespace, pod, &[]);
    let request = StreamRequest::Logs { pod, container: container.into(), options };
    Ok(Asked { request, form: Form::Text })
}

/// Why the options of a log are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::wire) enum Fault {
    Undecodable,
    Invalid,
}

pub(in crate::wire) fn log_options(query: &str) -> Result<LogOptions, Fault> {
    let mut options = LogOptions::default();
    let (mut seconds, mut time, mut tail) = (None, None, None);
    let number = |text: &str| text.parse::<i64>().map_err(|_| Fault::Undecodable);
    for (name, value) in pairs(query) {
        match &*name {
            "follow" => options.follow = is_true(&value),
            "previous" => options.previous = is_true(&value),
            "timestamps" => options.timestamps = is_true(&value),
            "tailLines" => options.tail = Some(at_least(number(&value)?, 0)?),
            // The spelling of old clients is the stronger one.
            "tail" if value == "all" => tail = Some(None),
            "tail" => tail = Some(Some(at_least(number(&value)?, 0)?)),
            "limitBytes" => options.limit_bytes = Some(at_least(number(&value)?, 1)?),
            "sinceSeconds" => seconds = Some(at_least(number(&value)?, 1)?),
            "sinceTime" => {
                time = Some(Timestamp::parse_with_offset(&value).ok_or(Fault::Undecodable)?);
            }
            "stream" if !matches!(&*value, "" | "All") => return Err(Fault::Invalid),
            _ => {}
        }
    }
    options.tail = tail.unwrap_or(options.tail);
    options.since = match (seconds, time) {
        (Some(_), Some(_)) => return Err(Fault::Invalid),
        (Some(seconds), None) => Some(Since::Seconds(seconds)),
        (None, time) => time.map(Since::Time),
    };
    Ok(options)
}

fn at_least(number: i64, min: u64) -> Result<u64, Fault> {
    u64::try_from(number).ok().filter(|number| *number >= min).ok_or(Fault::Invalid)
}

fn exec(pod: PodName, container: &str, query: &str) -> Result<Asked, Refusal> {
    let pipes = pipes(query)?;
    let commands = pairs(query).filter(|(name, _)| name == "command");
    let command = commands.map(|(_, word)| word).collect();
    Ok(relayed(StreamRequest::Exec { pod, container: container.into(), command, pipes }))
}

fn pipes(query: &str) -> Result<Pipes, Refusal> {
    let is = |name: &str| value(query, name).as_deref() == Some("1");
    let (stdin, stdout, stderr, tty) = (is("input"), is("output"), is("error"), is("tty"));
    if !stdin && !stdout && !stderr {
        let text = "you must specify at least 1 of stdin, stdout, stderr";
        return Err(Refusal::new(RefusalKind::BadRequest, text));
    }
    Ok(Pipes { stdin, stdout, stderr, tty })
}

/// Only websockets have them in the query; SPDY names one for each connection.
fn ports(query: &str) -> Result<Vec<u16>, Refusal> {
    let bad = |text: String| Err(Refusal::new(RefusalKind::BadRequest, text));
    let mut ports = Vec::new();
    for (_, value) in pairs(query).filter(|(name, _)| matches!(&**name, "port" | "ports")) {
        for text in value.split(',') {
            match text.parse::<u16>() {
                _ if text.is_empty() => {
                    return bad("query parameter \"port\" cannot be empty".to_owned());
                }
                Ok(0) => return bad("port \"0\" must be > 0".to_owned()),
                Ok(port) => ports.push(port),
                Err(error) => return bad(format!("unable to parse {text:?} as a port: {error}")),
            }
        }
    }
    Ok(ports)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(method: &str, target: &str) -> Result<Asked, Refusal> {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        parse(method, path, query).expect("a path of ours")
    }

    fn pod(uid: Option<&str>) -> PodName {
        PodName { namespace: "default".into(), name: "p".into(), uid: uid.map(Into::into) }
    }

    #[test]
    fn paths_of_others_are_left_to_them() {
        for path in [
            "/",
            "/pods",
            "/metrics",
            "/metrics/probes",
            "/exec/default/p",
            "/exec/default/p/u/c/x",
            "/containerLogs/default/p",
            "/stats/container",
            "/portForward/default",
            "/portForward/default/p/u/x",
        ] {
            assert_eq!(parse("GET", path, ""), None, "{path}");
        }
    }

    #[test]
    fn a_log_has_its_options() {
        let got = parsed(
            "GET",
            "/containerLogs/default/p/c?follow=true&previous=1&tailLines=5&sinceSeconds=60\
             &timestamps=True&limitBytes=10&pretty=false",
        );
        let options = LogOptions {
            follow: true,
            previous: true,
            tail: Some(5),
            since: Some(Since::Seconds(60)),
            timestamps: true,
            limit_bytes: Some(10),
        };
        let request = StreamRequest::Logs { pod: pod(None), container: "c".into(), options };
        assert_eq!(got, Ok(Asked { request, form: Form::Text }));
        let tail = |query: &str| log_options(query).ok().and_then(|options| options.tail);
        assert_eq!(tail("tailLines=5&tail=all"), None);
        assert_eq!(tail("tail=3&tailLines=5"), Some(3));
    }

    #[test]
    fn invalid_options_get_the_kubelets_answers() {
        let undecodable =
            Refusal::new(RefusalKind::BadRequest, "{\"message\": \"Unable to decode query.\"}");
        let invalid = Refusal::new(RefusalKind::Invalid, "{\"message\": \"Invalid request.\"}");
        for (query, want) in [
            ("tailLines=x", &undecodable),
            ("sinceTime=yesterday", &undecodable),
            ("tailLines=-1", &invalid),
            ("limitBytes=0", &invalid),
            ("sinceSeconds=0", &invalid),
            ("sinceSeconds=1&sinceTime=2026-01-01T00:00:00Z", &invalid),
            ("stream=Stderr", &invalid),
        ] {
            let got = parsed("GET", &format!("/containerLogs/default/p/c?{query}"));
            assert_eq!(got.as_ref(), Err(want), "{query}");
        }
        let missing = parsed("GET", "/containerLogs/default//c").expect_err("no pod");
        assert_eq!(missing.text, "{\"message\": \"Missing podID.\"}");
    }

    #[test]
    fn a_command_is_decoded_word_by_word() {
        let got = parsed(
            "POST",
            "/exec/default/p/u-1/c?command=sh&command=-c&command=echo+a%2Fb&output=1&error=true",
        );
        let pipes = Pipes { stdout: true, ..Pipes::default() };
        let command = ["sh", "-c", "echo a/b"].map(str::to_owned).to_vec();
        let request =
            StreamRequest::Exec { pod: pod(Some("u-1")), container: "c".into(), command, pipes };
        assert_eq!(got, Ok(Asked { request, form: Form::Relayed }));
        let none = parsed("GET", "/attach/default/p/c?tty=1").expect_err("nothing to attach");
        assert_eq!(none.text, "you must specify at least 1 of stdin, stdout, stderr");
    }

    #[test]
    fn ports_are_numbers_from_one() {
        let got = parsed("GET", "/portForward/default/p?port=80,81&port=82").expect("valid");
        let StreamRequest::PortForward { ports, .. } = got.request else { panic!("{got:?}") };
        assert_eq!(ports, [80, 81, 82]);
        for (query, text) in [
            ("port=", "query parameter \"port\" cannot be empty"),
            ("port=0", "port \"0\" must be > 0"),
            ("port=x", "unable to parse \"x\" as a port: invalid digit found in string"),
        ] {
            let got = parsed("GET", &format!("/portForward/default/p?{query}"));
            assert_eq!(got.expect_err(query).text, text);
        }
    }

    #[test]
    fn each_path_has_its_methods() {
        for (method, path) in [
            ("POST", "/containerLogs/default/p/c"),
            ("GET", "/run/default/p/c"),
            ("DELETE", "/exec/default/p/c?output=1"),
        ] {
            let refusal = parsed(method, path).expect_err("another method");
            assert_eq!(refusal.kind, RefusalKind::MethodNotAllowed, "{method} {path}");
        }
        for path in ["/stats", "/stats/", "/stats/summary", "/metrics/resource"] {
            let asked = parsed("GET", path).expect("valid");
            assert_eq!(asked.request, StreamRequest::Usage, "{path}");
        }
    }
}
