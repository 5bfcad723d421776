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

#[derive(Debug, PartialEq, Eq)]
pub(in crate::io) enum Target {
    Pod { name: PodName, is_log: bool },
    Node(String),
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
        let (pod, is_log) = match self {
            Self::Node(node) => return Ok(node),
            Self::Pod { name, is_log } => (name, is_log),
        };
        controller.node_of_pod(&pod.namespace, &pod.name).ok_or_else(|| {
            let text = match is_log {
                true => format!("pod {:?} does not exist", pod.name),
                false => "pod does not exist".to_owned(),
            };
            Refusal::new(RefusalKind::NotFound, text)
        })
    }
}

/// Reads a request of one of the paths of [`is_stream`].
pub(super) fn route(call: &Call) -> Result<Route, Refusal> {
    let unknown = || {
        let expected = "/containerLogs, /exec, /attach and /portForward of a pod, and \
                        /nodes/NODE/ with stats/summary, metrics/resource or metrics/cadvisor";
        let text = format!("got {}, expected {expected}", call.path);
        Refusal::new(RefusalKind::NotFound, text)
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
    let (is_log, is_attach) = match &asked.request {
        StreamRequest::Logs { .. } => (true, false),
        StreamRequest::Attach { .. } => (false, true),
        _ => (false, false),
    };
    let is_patient =
        matches!(&asked.request, StreamRequest::Logs { options, .. } if options.follow);
    let target = match (asked.request, node) {
        (StreamRequest::Usage, Some(node)) => Target::Node(node),
        (
            StreamRequest::Logs { pod: name, .. }
            | StreamRequest::Exec { pod: name, .. }
            | StreamRequest::Attach { pod: name, .. }
            | StreamRequest::PortForward { pod: name, .. },
            None,
        ) => Target::Pod { name, is_log },
        _ => return Err(unknown()),
    };
    let is_relayed = call.has_word("connection", "upgrade") && !call.header("upgrade").is_empty();
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
    Ok(Route { target, kind, connect, is_relayed, is_patient })
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
            let route = route(&call("GET", target, &[("host", "localhost")])).expect(target);
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
            let route = route(&call("POST", target, &SPDY)).expect(target);
            assert_eq!((route.kind, route.is_relayed), (kind, true), "{target}");
            let names: Vec<_> = route.connect.headers.iter().map(|(name, _)| &**name).collect();
            assert_eq!(names, ["connection", "upgrade", "x-stream-protocol-version"], "{target}");
            assert_eq!(route.connect.target(), target);
        }
    }

    #[test]
    fn only_a_followed_log_may_be_silent() {
        let is_patient = |target| route(&call("GET", target, &[])).expect(target).is_patient;
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
            let refusal = route(&call(method, target, &[])).expect_err(target);
            assert_eq!(refusal.kind, kind, "{target}");
        }
        for path in ["/", "/healthz", "/apply", "/api/v1/nodes", "/stats/summary", "/run/a/b/c"] {
            assert!(!is_stream(path), "{path}");
        }
    }
}
