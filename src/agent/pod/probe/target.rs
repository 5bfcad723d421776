//! A probe's or hook's handler → the request: addresses, ports and headers are filled in.

use std::fmt;

use crate::agent::pod::env::{EnvError, Environment};
use crate::model::net::{Expects, HttpQuery, KUBERNETES_VERSION, Query};
use crate::model::pod::{Container, Pod};
use crate::model::probe::{Handler, HttpGet, Port};

/// The request of a probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ProbeRequest {
    Exec(Vec<String>),
    /// Send this query over the network.
    Query(Query),
}

/// Why a handler names nothing that can be asked: the manifest's fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::agent::pod) enum TargetError {
    /// The container is not in the pod any more.
    NoContainer,
    /// This container's probe has no handler.
    NoHandler(Box<str>),
    NoAddress,
    /// The container has no port of this name.
    NoPort(String),
    PortNumber(i64),
    Env(EnvError),
}

impl fmt::Display for TargetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoContainer => f.write_str("its container is not in the pod any more"),
            Self::NoHandler(container) => write!(f, "missing probe handler for {container}"),
            Self::NoAddress => f.write_str("the pod has no address yet"),
            Self::NoPort(name) => write!(f, "couldn't find port: {name:?} in its container"),
            Self::PortNumber(number) => write!(f, "invalid port number: {number}"),
            Self::Env(why) => why.fmt(f),
        }
    }
}

/// The request for a probe's handler.
pub(super) fn probe_request(
    pod: &Pod,
    container: &Container,
    handler: &Handler,
    timeout_s: u32,
    expanded_bytes_max: usize,
) -> Result<ProbeRequest, TargetError> {
    if let Some(exec) = &handler.exec {
        let mut env =
            Environment::written(&container.env, expanded_bytes_max).map_err(TargetError::Env)?;
        let command = env.expand_all(&exec.command, "the probe's command");
        return command.map(ProbeRequest::Exec).map_err(TargetError::Env);
    }
    Ok(ProbeRequest::Query(if let Some(get) = &handler.http_get {
        let query = http(pod, container, get, Expects::Success, "kube-probe")?;
        Query::Http(Box::new(query))
    } else if let Some(tcp) = &handler.tcp_socket {
        Query::Tcp { host: host_of(pod, &tcp.host)?, port: port(container, &tcp.port)? }
    } else if let Some(grpc) = &handler.grpc {
        Query::Grpc {
            host: host_of(pod, "")?,
            port: port(container, &Port::Number(i64::from(grpc.port)))?,
            service: grpc.service.as_str().into(),
            timeout_s: u64::from(timeout_s),
        }
    } else {
        return Err(TargetError::NoHandler(container.name.clone()));
    }))
}

/// The request for the GET of a hook.
pub(in crate::agent::pod) fn hook_get(
    pod: &Pod,
    container: &Container,
    get: &HttpGet,
) -> Result<HttpQuery, TargetError> {
    // The kubelet's default, for hooks only.
    let unnamed = matches!(&get.port, Port::Name(name) if name.is_empty());
    let get = if unnamed { &HttpGet { port: Port::Number(80), ..get.clone() } } else { get };
    http(pod, container, get, Expects::Answer, "kube-lifecycle")
}

fn http(
    pod: &Pod,
    container: &Container,
    get: &HttpGet,
    expects: Expects,
    agent: &str,
) -> Result<HttpQuery, TargetError> {
    let target =
        if get.path.starts_with('/') { get.path.clone() } else { format!("/{}", get.path) };
    let target = target.split('#').next().unwrap_or_default().to_owned();
    Ok(HttpQuery {
        tls: get.scheme.eq_ignore_ascii_case("https"),
        host: host_of(pod, &get.host)?,
        port: port(container, &get.port)?,
        target,
        headers: headers(get, agent),
        expects,
    })
}

/// The headers of the spec, and two that are always sent; an empty `Accept` means none.
fn headers(get: &HttpGet, agent: &str) -> Vec<(String, String)> {
    let given = get.http_headers.iter().map(|header| (header.name.clone(), header.value.clone()));
    let mut headers: Vec<_> = given.collect();
    let has = |headers: &[(String, String)], name: &str| {
        headers.iter().any(|(given, _)| given.eq_ignore_ascii_case(name))
    };
    if !has(&headers, "User-Agent") {
        headers.push(("User-Agent".to_owned(), format!("{agent}/{KUBERNETES_VERSION}")));
    }
    if has(&headers, "Accept") {
        headers.retain(|(name, value)| !name.eq_ignore_ascii_case("Accept") || !value.is_empty());
    } else {
        headers.push(("Accept".to_owned(), "*/*".to_owned()));
    }
    headers
}

/// The configured host, or the pod's address.
fn host_of(pod: &Pod, written: &str) -> Result<Box<str>, TargetError> {
    match (written, pod.status.pod_ip.as_str()) {
        ("", "") => Err(TargetError::NoAddress),
        ("", ip) => Ok(ip.into()),
        (host, _) => Ok(host.into()),
    }
}

/// The number of a port (the kubelet's `ResolveContainerPort`).
fn port(container: &Container, port: &Port) -> Result<u16, TargetError> {
    let number = match port {
        Port::Number(number) => Some(*number),
        Port::Name(name) => {
            let mut named = container.ports.iter().filter(|port| port.name == *name);
            named.next().map(|port| i64::from(port.container_port)).or_else(|| name.parse().ok())
        }
    };
    let valid = number.and_then(|number| u16::try_from(number).ok()).filter(|&number| number > 0);
    valid.ok_or_else(|| match (port, number) {
        (Port::Name(name), None) => TargetError::NoPort(name.clone()),
        (_, number) => TargetError::PortNumber(number.unwrap_or_default()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::probe::HttpHeader;

    fn pod() -> Pod {
        let mut pod: Pod = serde_json::from_str(
            r#"{"metadata":{"name":"p"},"spec":{"containers":[{"name":"c","image":"i",
               "env":[{"name":"F","value":"/x"}],
               "ports":[{"containerPort":8080,"name":"web"}]}]}}"#,
        )
        .expect("a pod");
        pod.status.pod_ip = "10.0.0.5".to_owned();
        pod
    }

    fn request(handler: &str) -> Result<ProbeRequest, TargetError> {
        let pod = pod();
        let handler: Handler = serde_json::from_str(handler).expect(handler);
        probe_request(&pod, &pod.spec.containers[0], &handler, 2, 1 << 20)
    }

    #[test]
    fn ports_go_by_number_name_or_digits() {
        for (port, expected) in [
            ("8081", Ok(8081)),
            (r#""web""#, Ok(8080)),
            (r#""81""#, Ok(81)),
            (r#""db""#, Err(r#"couldn't find port: "db" in its container"#)),
            ("0", Err("invalid port number: 0")),
            ("65536", Err("invalid port number: 65536")),
            (r#""-1""#, Err("invalid port number: -1")),
        ] {
            let got = request(&format!(r#"{{"tcpSocket":{{"port":{port}}}}}"#));
            let got = got.map_err(|why| why.to_string());
            let expected = expected
                .map_err(str::to_owned)
                .map(|port| ProbeRequest::Query(Query::Tcp { host: "10.0.0.5".into(), port }));
            assert_eq!(got, expected, "{port}");
        }
    }

    #[test]
    fn defaults_of_a_get_do_not_override_the_spec() {
        let Ok(ProbeRequest::Query(Query::Http(plain))) = request(r#"{"httpGet":{"port":"web"}}"#)
        else {
            panic!("a GET")
        };
        assert_eq!((&*plain.host, plain.port, &*plain.target), ("10.0.0.5", 8080, "/"));
        let pairs = [("User-Agent", "kube-probe/1.32"), ("Accept", "*/*")];
        assert_eq!(plain.headers, pairs.map(|(n, v)| (n.to_owned(), v.to_owned())));
        let text = r#"{"httpGet":{"port":1,"httpHeaders":[{"name":"ACCEPT","value":"text/html"},
            {"name":"X-Empty","value":""}]}}"#;
        let Ok(ProbeRequest::Query(Query::Http(own))) = request(text) else { panic!("a GET") };
        let pairs = [("ACCEPT", "text/html"), ("X-Empty", ""), ("User-Agent", "kube-probe/1.32")];
        assert_eq!(own.headers, pairs.map(|(n, v)| (n.to_owned(), v.to_owned())));
        let text = r#"{"httpGet":{"port":1,"host":"h","scheme":"HTTPS","path":"a?b#c","httpHeaders":
            [{"name":"accept","value":""},{"name":"user-agent","value":"me"}]}}"#;
        let Ok(ProbeRequest::Query(Query::Http(full))) = request(text) else { panic!("a GET") };
        assert_eq!((full.tls, &*full.host, &*full.target), (true, "h", "/a?b"));
        assert_eq!(full.headers, [("user-agent".to_owned(), "me".to_owned())]);
    }

    #[test]
    fn commands_use_the_containers_environment() {
        let got = request(r#"{"exec":{"command":["cat","$(F)/y","$$(F)"]}}"#);
        assert_eq!(got, Ok(ProbeRequest::Exec(["cat", "/x/y", "$(F)"].map(str::to_owned).into())));
        let nothing = request("{}").expect_err("nothing to ask");
        assert_eq!(nothing.to_string(), "missing probe handler for c");
    }

    #[test]
    fn hooks_have_their_own_user_agent_and_default_port() {
        let pod = pod();
        let get = HttpGet {
            port: Port::Name(String::new()),
            http_headers: vec![HttpHeader { name: "X".to_owned(), value: "1".to_owned() }],
            ..HttpGet::default()
        };
        let query = hook_get(&pod, &pod.spec.containers[0], &get).expect("a port");
        assert_eq!((query.port, query.expects), (80, Expects::Answer));
        assert_eq!(query.headers[1].1, "kube-lifecycle/1.32");
    }
}
