//! Requests of people: which pod or node they mean, and the request that its node gets.

use crate::controller::Controller;
use crate::controller::event::Tunnel;
use crate::model::stream::{PodName, Refusal, RefusalKind, StreamRequest};
use crate::wire::http1::call::Call;
use crate::wire::http1::is_of_upgrade;
use crate::wire::http1::query::unescaped_path;
use crate::wire::kubelet;
use crate::wire::tunnel::{Connect, Kind};

/// Whether a path of the HTTP API is one of these requests.
pub(in crate::io) fn is_stream(path: &str) -> bool {
    let first = path.trim_start_matches('/').split('/').next();
    matches!(first, Some("containerLogs" | "exec" | "attach" | "portForward" | "nodes"))
}

/// A request, ready for its node.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Route {
    pub(super) target: Target,
    /// The message that opens it: [`Kind::Exec`] or [`Kind::Attach`], of which the answer comes
    /// back whole, with its status.
    pub(super) kind: Kind,
    /// Without its id.
    pub(super) connect: Connect,
    /// The client sends bytes for the node.
    pub(super) is_relayed: bool,
    /// Its answer may begin at any time.
    pub(super) is_patient: bool,
}

/// What a request names.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::io) enum Target {
    /// A pod; `node`: it has to be on this one.
    Pod {
        name: PodName,
        is_log: bool,
        node: Option<String>,
    },
    Node(String),
    /// A node by its name or one of its addresses.
    Host(String),
}

impl Target {
    /// The node to which the request goes, and its tunnel.
    pub(in crate::io) fn find(
        &self,
        controller: &Controller,
    ) -> Result<(Box<str>, Tunnel), Refusal> {
        let node = self.node(controller)?;
        Ok((node.into(), controller.tunnel_of(node)?))
    }

    fn node<'a>(&'a self, controller: &'a Controller) -> Result<&'a str, Refusal> {
        let (pod, is_log, named) = match self {
            Self::Node(node) => return Ok(node),
            Self::Host(host) => return controller.node_at(host),
            Self::Pod { name, is_log, node } => (name, is_log, node),
        };
        let node = controller.node_of_pod(&pod.namespace, &pod.name);
        // Who may ask one node through the API server may not ask another.
        let node = node.filter(|node| named.as_ref().is_none_or(|named| named == node));
        node.ok_or_else(|| {
            let text = match is_log {
                true => format!("pod {:?} does not exist", pod.name),
                false => "pod does not exist".to_owned(),
            };
            Refusal::new(RefusalKind::NotFound, text)
        })
    }
}

/// Reads a request of the controller's own API to one of the paths of [`is_stream`].
pub(super) fn of_own_api(call: &Call) -> Result<Route, Refusal> {
    let unknown = || {
        let expected = "/containerLogs, /exec, /attach and /portForward of a pod, and \
                        /nodes/NODE/ with stats/summary, metrics/resource or metrics/cadvisor";
        unknown(&call.path, expected)
    };
    let of_node = call.path.trim_start_matches('/').strip_prefix("nodes/");
    let (node, raw_path) = match of_node.map(|rest| rest.split_once('/')) {
        None => (None, call.path.clone()),
        Some(Some((node, rest))) if !node.is_empty() => {
            (Some(unescaped_path(node)), format!("/{rest}"))
        }
        Some(_) => return Err(unknown()),
    };
    let asked = kubelet::parse(&call.method, &raw_path, &call.query).ok_or_else(unknown)??;
    match (&asked.request, &node) {
        (StreamRequest::Usage, Some(_)) => {}
        (StreamRequest::Run { .. } | StreamRequest::Command { .. } | StreamRequest::Usage, _)
        | (_, Some(_)) => {
            return Err(unknown());
        }
        (_, None) => {}
    }
    let target = match (pod_of(&asked.request), node) {
        (Some((name, is_log)), _) => Target::Pod { name, is_log, node: None },
        (None, Some(node)) => Target::Node(node),
        (None, None) => return Err(unknown()),
    };
    Ok(Route::new(call, raw_path, target, Some(&asked.request)))
}

/// Reads a request of kube-apiserver: to a kubelet at the address of its node, or at its name. Its
/// proxy for nodes says in a header which node is meant, and so do others' requests.
pub(super) fn of_api_server(call: &Call) -> Result<Route, Refusal> {
    let uri = call.header("x-forwarded-uri");
    let node = forwarded_node(uri);
    // kube-apiserver checks what a user may do by the path as it was sent, but asks for it without
    // its `..`: such a request is for no node that was checked. Only upgrades lack the header.
    if node.is_none() && !uri.is_empty() && !is_upgrade(call) {
        let text = format!("got the X-Forwarded-Uri {uri:?}, expected /api/v1/nodes/NODE/proxy/…");
        return Err(Refusal::new(RefusalKind::BadRequest, text));
    }
    let asked = kubelet::parse(&call.method, &call.path, &call.query).transpose()?;
    let request = asked.as_ref().map(|asked| &asked.request);
    let target = match (request.and_then(pod_of), node) {
        (Some((name, is_log)), node) => Target::Pod { name, is_log, node },
        (None, _) if request.is_none() && !is_of_node(&call.path) => {
            let expected = "/containerLogs, /exec, /attach, /portForward and /run of a pod, \
                            /stats, /metrics, /pods, /runningpods or /healthz";
            return Err(unknown(&call.path, expected));
        }
        (None, _) if call.method != "GET" => {
            let text = format!("got the method {}, expected GET for {}", call.method, call.path);
            return Err(Refusal::new(RefusalKind::MethodNotAllowed, text));
        }
        (None, Some(node)) => Target::Node(node),
        (None, None) => Target::Host(host_of(call.header("host")).to_owned()),
    };
    Ok(Route::new(call, call.path.clone(), target, request))
}

fn unknown(path: &str, expected: &str) -> Refusal {
    Refusal::new(RefusalKind::NotFound, format!("got {path}, expected {expected}"))
}

/// The pod of a request, and whether it is about its log.
fn pod_of(request: &StreamRequest) -> Option<(PodName, bool)> {
    match request {
        StreamRequest::Logs { pod, .. } => Some((pod.clone(), true)),
        StreamRequest::Exec { pod, .. }
        | StreamRequest::Attach { pod, .. }
        | StreamRequest::PortForward { pod, .. }
        | StreamRequest::Run { pod, .. }
        | StreamRequest::Command { pod, .. } => Some((pod.clone(), false)),
        StreamRequest::Usage => None,
    }
}

/// Whether a path of a kubelet, which [`kubelet::parse`] does not know, is about the whole node and
/// changes nothing.
fn is_of_node(path: &str) -> bool {
    let first = path.trim_start_matches('/').split('/').next();
    matches!(first, Some("stats" | "metrics" | "pods" | "runningpods" | "healthz"))
}

/// The node in `/api/v1/nodes/NODE/proxy/…`, where it may have a scheme and a port.
fn forwarded_node(uri: &str) -> Option<String> {
    let (node, rest) = uri.strip_prefix("/api/v1/nodes/")?.split_once('/')?;
    if rest != "proxy" && !rest.starts_with("proxy/") && !rest.starts_with("proxy?") {
        return None;
    }
    let node = unescaped_path(node);
    let parts: Vec<&str> = node.split(':').collect();
    let ([name] | [name, _] | [_, name, _]) = parts[..] else { return None };
    (!name.is_empty()).then(|| name.to_owned())
}

/// A `Host` without its port.
fn host_of(host: &str) -> &str {
    if let Some((address, _)) = host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        return address;
    }
    host.rsplit_once(':').filter(|(name, _)| !name.contains(':')).map_or(host, |(name, _)| name)
}

fn is_upgrade(call: &Call) -> bool {
    call.has_word("connection", "upgrade") && !call.header("upgrade").is_empty()
}

impl Route {
    /// `request`: as far as it is known.
    fn new(call: &Call, raw_path: String, target: Target, request: Option<&StreamRequest>) -> Self {
        let is_attach = matches!(request, Some(StreamRequest::Attach { .. }));
        let is_patient =
            matches!(request, Some(StreamRequest::Logs { options, .. }) if options.follow);
        // Of others nothing but the answer may pass: what follows them would reach the node's
        // kubelet as a second request, which nobody has checked.
        let may_relay = matches!(
            request,
            Some(
                StreamRequest::Exec { .. }
                    | StreamRequest::Attach { .. }
                    | StreamRequest::PortForward { .. }
            )
        );
        let is_relayed = may_relay && is_upgrade(call);
        let headers = if is_relayed {
            let of_upgrade =
                |(name, _): &&(String, String)| is_of_upgrade(name) && name != "content-length";
            call.headers.iter().filter(of_upgrade).cloned().collect()
        } else {
            // Otherwise EdgeCore keeps the request for as long as its kubelet keeps the connection.
            vec![("connection".to_owned(), "close".to_owned())]
        };
        let connect = Connect {
            id: 0,
            method: call.method.clone(),
            path: unescaped_path(&raw_path),
            raw_path,
            query: call.query.clone(),
            headers,
        };
        let kind = if is_relayed && is_attach { Kind::Attach } else { Kind::Exec };
        Self { target, kind, connect, is_relayed, is_patient }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(method: &str, target: &str, headers: &[(&str, &str)]) -> Call {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let headers = headers.iter().map(|(name, value)| ((*name).into(), (*value).into()));
        Call {
            method: method.into(),
            path: path.into(),
            query: query.into(),
            headers: headers.collect(),
            body: Vec::new(),
        }
    }

    const SPDY: [(&str, &str); 4] = [
        ("host", "localhost"),
        ("connection", "Upgrade"),
        ("upgrade", "SPDY/3.1"),
        ("x-stream-protocol-version", "v4.channel.k8s.io"),
    ];

    #[test]
    fn what_has_no_upgrade_is_sent_as_a_connection_that_is_closed() {
        for (target, node, path) in [
            ("/containerLogs/default/p/c?tailLines=5", None, "/containerLogs/default/p/c"),
            ("/attach/default/p/c?output=1", None, "/attach/default/p/c"),
            ("/nodes/gw1/stats/summary", Some("gw1"), "/stats/summary"),
            ("/nodes/gw1/metrics/resource", Some("gw1"), "/metrics/resource"),
            ("/nodes/gw1/metrics/cadvisor", Some("gw1"), "/metrics/cadvisor"),
        ] {
            assert!(is_stream(target), "{target}");
            let route = of_own_api(&call("GET", target, &[("host", "localhost")])).expect(target);
            assert_eq!((route.kind, route.is_relayed), (Kind::Exec, false), "{target}");
            assert_eq!((&*route.connect.method, &*route.connect.path), ("GET", path), "{target}");
            assert_eq!(route.connect.headers, [("connection".to_owned(), "close".to_owned())]);
            match (&route.target, node) {
                (Target::Node(got), Some(node)) => assert_eq!(got, node),
                (Target::Pod { name, .. }, None) => assert_eq!(&*name.name, "p"),
                other => panic!("{target}: {other:?}"),
            }
        }
    }

    #[test]
    fn an_upgrade_is_passed_on_with_its_headers_alone() {
        for (target, kind) in [
            ("/exec/default/p/u/c?command=sh&output=1", Kind::Exec),
            ("/attach/default/p/c?output=1", Kind::Attach),
            ("/portForward/default/p", Kind::Exec),
        ] {
            let route = of_own_api(&call("POST", target, &SPDY)).expect(target);
            assert_eq!((route.kind, route.is_relayed), (kind, true), "{target}");
            let names: Vec<_> = route.connect.headers.iter().map(|(name, _)| &**name).collect();
            assert_eq!(names, ["connection", "upgrade", "x-stream-protocol-version"], "{target}");
            assert_eq!(route.connect.target(), target);
        }
    }

    #[test]
    fn the_api_server_names_pods_by_path_and_nodes_by_header_or_address() {
        let forwarded = |node: &str| format!("/api/v1/nodes/{node}/proxy/stats/summary?a=b");
        let ask = |method, target, host: &str, forwarded: &str| {
            let headers = [("host", host), ("x-forwarded-uri", forwarded)];
            of_api_server(&call(method, target, &headers))
        };
        let host = "192.0.2.1:10351";
        for (target, host, uri, expected) in [
            ("/stats/summary", host, "", Target::Host("192.0.2.1".into())),
            ("/metrics/resource", "gw1", "", Target::Host("gw1".into())),
            ("/metrics", "[2001:db8::1]:1", "", Target::Host("2001:db8::1".into())),
            ("/stats/n/p/u/c", "2001:db8::1", "", Target::Host("2001:db8::1".into())),
            ("/pods", host, &forwarded("gw1"), Target::Node("gw1".into())),
            ("/pods", host, &forwarded("gw1:10351"), Target::Node("gw1".into())),
            ("/pods", host, &forwarded("https:gw1:10351"), Target::Node("gw1".into())),
            ("/pods", host, "/api/v1/nodes/gw1/proxy", Target::Node("gw1".into())),
        ] {
            let route = ask("GET", target, host, uri).expect(target);
            assert_eq!((route.target, route.kind), (expected, Kind::Exec), "{target} {uri}");
            assert_eq!(route.connect.target(), target);
        }
        for (target, node) in [
            ("/containerLogs/default/p/c", None),
            ("/exec/default/p/c?output=1", None),
            ("/portForward/default/p", None),
            ("/run/default/p/u/c?cmd=ls", Some("gw1")),
        ] {
            let method = if target.starts_with("/containerLogs") { "GET" } else { "POST" };
            let uri = node.map(forwarded).unwrap_or_default();
            match ask(method, target, host, &uri).expect(target).target {
                Target::Pod { name, node: got, .. } => {
                    assert_eq!((&*name.name, got.as_deref()), ("p", node), "{target}");
                }
                other => panic!("{target}: {other:?}"),
            }
        }
        for (method, target, kind) in [
            ("GET", "/", RefusalKind::NotFound),
            ("GET", "/nodes/gw1/stats/summary", RefusalKind::NotFound),
            ("GET", "/configz", RefusalKind::NotFound),
            ("POST", "/checkpoint/default/p/c", RefusalKind::NotFound),
            ("GET", "/run/default/p/c?cmd=ls", RefusalKind::MethodNotAllowed),
            ("POST", "/pods", RefusalKind::MethodNotAllowed),
            ("DELETE", "/stats/summary", RefusalKind::MethodNotAllowed),
        ] {
            let refusal = ask(method, target, host, &forwarded("gw1")).expect_err(target);
            assert_eq!(refusal.kind, kind, "{target}");
        }
    }

    #[test]
    fn a_path_that_leaves_the_node_that_was_checked_is_refused() {
        // kube-apiserver asks for `/api/v1/nodes/gw1/proxy/../../run/…` so.
        for (method, target, uri) in [
            ("POST", "/run/default/p/c?cmd=id", "/api/v1/nodes/run/default/p/c"),
            ("GET", "/containerLogs/default/p/c", "/api/v1/nodes/containerLogs/default/p/c"),
            ("GET", "/pods", "/api/v1/nodes/pods"),
            ("GET", "/pods", "/api/v1/nodes/gw1/status"),
            ("GET", "/pods", "/api/v1/nodes//proxy/pods"),
        ] {
            let headers = [("host", "gw2"), ("x-forwarded-uri", uri)];
            let refusal = of_api_server(&call(method, target, &headers)).expect_err(uri);
            assert_eq!(refusal.kind, RefusalKind::BadRequest, "{uri}");
        }
    }

    #[test]
    fn nothing_follows_a_request_for_anything_but_a_stream() {
        for target in ["/containerLogs/default/p/c", "/nodes/gw1/stats/summary"] {
            let route = of_own_api(&call("GET", target, &SPDY)).expect(target);
            assert!(!route.is_relayed, "{target}");
            assert_eq!(route.connect.headers, [("connection".to_owned(), "close".to_owned())]);
        }
        let mut headers = SPDY.to_vec();
        headers.push(("host", "gw1"));
        let route = of_api_server(&call("GET", "/pods", &headers)).expect("the node's address");
        assert!(!route.is_relayed);
    }

    #[test]
    fn only_a_followed_log_may_be_silent() {
        let is_patient = |target| of_own_api(&call("GET", target, &[])).expect(target).is_patient;
        assert!(is_patient("/containerLogs/default/p/c?follow=true"));
        assert!(!is_patient("/containerLogs/default/p/c?follow=false"));
        assert!(!is_patient("/nodes/gw1/stats/summary"));
    }

    #[test]
    fn whatever_else_is_refused() {
        for (method, target, kind) in [
            ("GET", "/nodes", RefusalKind::NotFound),
            ("GET", "/nodes//stats/summary", RefusalKind::NotFound),
            ("GET", "/nodes/gw1/pods", RefusalKind::NotFound),
            ("GET", "/nodes/gw1/containerLogs/default/p/c", RefusalKind::NotFound),
            ("POST", "/nodes/gw1/run/default/p/c?cmd=ls", RefusalKind::NotFound),
            ("GET", "/exec/default/p", RefusalKind::NotFound),
            ("DELETE", "/exec/default/p/c?output=1", RefusalKind::MethodNotAllowed),
            ("GET", "/containerLogs/default/p/c?tailLines=x", RefusalKind::BadRequest),
        ] {
            let refusal = of_own_api(&call(method, target, &[])).expect_err(target);
            assert_eq!(refusal.kind, kind, "{target}");
        }
        for path in ["/", "/healthz", "/apply", "/api/v1/nodes", "/stats/summary", "/run/a/b/c"] {
            assert!(!is_stream(path), "{path}");
        }
    }
}
