//! The controller's HTTP API: objects, changes to the manifest folder, jobs for nodes, health,
//! metrics.

mod apply;
mod page;

use std::path::{Path, PathBuf};

use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::api::local::Local;
use crate::controller::local::{Key, Objects};
use crate::controller::overview::Overview;
use crate::controller::time::Now;
use crate::controller::{Controller, Counters};
use crate::io::socket::Access;
use crate::model::api::{Call as ApiCall, CallError, Kind, Verb};
use crate::model::metrics::Histogram;
use crate::wire::http1::call::{self, Call};
use crate::wire::rest::{self, ApiRequest};

/// Everything that an answer may need.
pub(super) struct HttpContext<'a> {
    pub(super) controller: &'a Controller,
    /// `None`: the objects are in a cluster, and users ask its API server.
    pub(super) local: Option<&'a mut Local>,
    /// Why the API server cannot be reached, if that is so.
    pub(super) trouble: Option<String>,
    pub(super) folder: &'a Path,
    /// Of the token for who looks at the page.
    pub(super) token: &'a Path,
    pub(super) connections: usize,
    /// Stream tunnels of nodes, and requests through them.
    pub(super) tunnels: usize,
    pub(super) streams: usize,
    /// The reasons of refused connections, and their numbers.
    pub(super) refused: Vec<(&'static str, u64)>,
    pub(super) now: Now,
}

type Answer = (u16, &'static str, Vec<u8>);

impl HttpContext<'_> {
    /// The complete answer.
    pub(super) fn answer(&mut self, call: &Call, access: Access) -> Vec<u8> {
        if let Some(bytes) = self.page(call, access) {
            return bytes;
        }
        let (status, kind, body) = match (&*call.method, &*call.path) {
            ("GET", "/healthz") => match &self.trouble {
                Some(why) => text(503, why),
                None if self.controller.is_ready() => text(200, "ok"),
                None => text(503, "not all objects are known yet"),
            },
            ("GET", "/metrics") => (200, METRICS, self.metrics().into_bytes()),
            _ if !self.admits(call, access) => text(403, PUBLIC),
            ("GET", "/status") => self.status(),
            _ if self.local.is_none() => self
                .known(call)
                .unwrap_or_else(|| text(404, "the objects are in the cluster: use kubectl")),
            ("POST", "/apply") => self.apply(call),
            ("POST", "/jobs") => self.create_jobs(call),
            ("GET", _) => self.nodes(call, access).unwrap_or_else(|| self.object(call)),
            ("DELETE", _) => self.object(call),
            _ => text(405, "expected GET, DELETE, or POST /apply or /jobs"),
        };
        call::answer(status, kind, &body)
    }

    /// For `edgecontroller status`.
    fn status(&self) -> Answer {
        #[derive(Serialize)]
        struct State<'a> {
            trouble: Option<&'a str>,
            tunnels: usize,
            streams: usize,
            #[serde(flatten)]
            overview: Overview,
        }
        let (tunnels, streams) = (self.tunnels, self.streams);
        let (trouble, overview) = (self.trouble.as_deref(), self.controller.overview());
        let state = State { trouble, tunnels, streams, overview };
        let body = serde_json::to_vec(&state).expect("it has only texts and numbers");
        (200, JSON, body)
    }

    fn objects(&mut self) -> &mut Objects {
        &mut self.local.as_mut().expect("looked at before").objects
    }

    fn object(&mut self, call: &Call) -> Answer {
        match rest::read(call) {
            Ok(ApiRequest::List { kind, namespace, .. }) => self.list(kind, &namespace),
            Ok(ApiRequest::Call(call)) if call.verb == Verb::Get => self.call(&call),
            Ok(ApiRequest::Call(call)) if call.verb == Verb::Delete => self.delete(&call),
            Ok(_) => text(405, "expected GET or DELETE"),
            Err((status, why)) => text(status, &why),
        }
    }

    fn list(&mut self, kind: Kind, namespace: &str) -> Answer {
        let version = self.objects().version();
        let items: Vec<&str> = self.objects().all(kind, namespace).collect();
        list_of(kind, version, &items)
    }

    /// In a cluster: rules, the jobs for nodes, the devices that nodes have, and their statuses as
    /// far as they are known here: those that were reported since the start. `None`: the path is
    /// another.
    fn known(&self, call: &Call) -> Option<Answer> {
        let is_get = call.method == "GET";
        let Ok(ApiRequest::List { kind, namespace, .. }) = rest::read(call) else { return None };
        if !is_get || !namespace.is_empty() {
            return None;
        }
        let all = self.controller.devices();
        let items: Vec<String> = match kind {
            Kind::Device => all.map(|(device, _)| device.to_owned()).collect(),
            Kind::DeviceStatus => all.filter_map(|(_, status)| status).collect(),
            _ if kind.is_node_job() => self.controller.node_jobs(kind).map(str::to_owned).collect(),
            Kind::Rule => self.controller.rules().map(str::to_owned).collect(),
            _ => return None,
        };
        Some(list_of(kind, 0, &items))
    }

    fn call(&mut self, call: &ApiCall) -> Answer {
        let now = self.now.timestamp();
        match self.objects().call(call, now) {
            Ok(object) => (200, JSON, format!("{object}\n").into_bytes()),
            Err(CallError::Refused { code, status }) => {
                (code, JSON, format!("{status}\n").into_bytes())
            }
            Err(CallError::Lost(why)) => text(500, &why),
        }
    }

    /// Deletes the object's file if we wrote it; otherwise the user must delete the file.
    /// Without a grace period the object does not wait for the turn that finds the file gone, nor
    /// for its node's confirmation.
    fn delete(&mut self, call: &ApiCall) -> Answer {
        let key =
            Key { kind: call.kind, namespace: call.namespace.clone(), name: call.name.clone() };
        let Some(source) = self.objects().source(&key).map(PathBuf::from) else {
            return self.call(call);
        };
        let name = named(&key);
        if self.file(&key).ok().as_ref() != Some(&source) {
            let file = source.display();
            return text(409, &format!("{name} is in {file}: remove it there"));
        }
        match std::fs::remove_file(&source) {
            Ok(()) if is_forced(call) => {
                self.objects().unwant(&key);
                self.call(call)
            }
            Ok(()) => text(200, &format!("{name} deleted")),
            Err(error) => text(500, &format!("{}: {error}", source.display())),
        }
    }

    /// Name, type, help and value of each metric that is one number.
    fn samples(&self, it: &Counters) -> Vec<(&'static str, &'static str, &'static str, u64)> {
        vec![
            ("nodes_connected", GAUGE, "Nodes with a session", it.nodes_connected as u64),
            ("connections", GAUGE, "Open connections of nodes", self.connections as u64),
            ("stream_tunnels", GAUGE, "Nodes with a stream tunnel", self.tunnels as u64),
            ("streams", GAUGE, "Requests through stream tunnels", self.streams as u64),
            ("messages_down_total", COUNTER, "Messages sent to nodes", it.messages_down),
            ("bytes_down_total", COUNTER, "Bytes of messages sent to nodes", it.bytes_down),
            ("messages_up_total", COUNTER, "Messages of nodes", it.messages_up),
            ("bytes_up_total", COUNTER, "Bytes of messages of nodes", it.bytes_up),
            (
                "resends_total",
                COUNTER,
                "Messages sent again, since no acknowledgement came",
                it.resends,
            ),
            ("queued", GAUGE, "Objects that wait to be sent to their nodes", it.queued as u64),
            ("calls", GAUGE, "Calls of the API server that are not answered yet", it.calls as u64),
            (
                "sessions_refused_total",
                COUNTER,
                "Nodes that dialled and were refused",
                it.sessions_refused,
            ),
            (
                "messages_refused_total",
                COUNTER,
                "Messages of nodes that were wrong or not allowed",
                it.messages_refused,
            ),
            (
                "messages_unserved_total",
                COUNTER,
                "Messages of nodes for parts of KubeEdge that are not here",
                it.messages_unserved,
            ),
            ("device_reports_total", COUNTER, "Reports of nodes about devices", it.device_reports),
            (
                "device_reports_ignored_total",
                COUNTER,
                "Reports about devices that the node does not have",
                it.device_reports_ignored,
            ),
            (
                "device_writes_total",
                COUNTER,
                "Statuses of devices that were written",
                it.device_writes,
            ),
            ("jobs_open", GAUGE, "Jobs for nodes that are not over", it.jobs_open as u64),
            ("job_requests_total", COUNTER, "Requests to nodes to work on a job", it.job_requests),
            ("job_reports_total", COUNTER, "Reports of nodes about jobs", it.job_reports),
            (
                "job_reports_ignored_total",
                COUNTER,
                "Reports about jobs that the node does not have",
                it.job_reports_ignored,
            ),
            ("job_writes_total", COUNTER, "Statuses of jobs that were written", it.job_writes),
            ("certificates_total", COUNTER, "Certificates issued to nodes", it.certificates),
            ("lists_total", COUNTER, "Lists of objects read from the API server", it.lists),
            ("leads", GAUGE, "1 where this replica serves the nodes", u64::from(it.leads)),
            (
                "records_removed_total",
                COUNTER,
                "Records of what nodes have that were removed as stale",
                it.records_removed,
            ),
        ]
    }

    /// The same of nodes' `MetaServers`.
    fn metaserver_samples(it: &Counters) -> Vec<(&'static str, &'static str, &'static str, u64)> {
        vec![
            (
                "metaserver_requests_total",
                COUNTER,
                "Requests of nodes' MetaServers",
                it.applications,
            ),
            (
                "metaserver_rejected_total",
                COUNTER,
                "Requests of nodes' MetaServers that were rejected, here or by the API server",
                it.applications_rejected,
            ),
            (
                "metaserver_resources",
                GAUGE,
                "Resources of the API server that are watched for nodes' MetaServers",
                it.dynamic_resources as u64,
            ),
            (
                "metaserver_watches",
                GAUGE,
                "Watches of nodes' MetaServers",
                it.dynamic_listeners as u64,
            ),
            (
                "metaserver_events_total",
                COUNTER,
                "Events of these watches that were sent to nodes",
                it.dynamic_events,
            ),
        ]
    }

    fn metrics(&self) -> String {
        let it = self.controller.counters();
        let mut page = Vec::new();
        let mut family = |name: &str, kind: &str, help: &str, samples: String| {
            let name = format!("{PREFIX}{name}");
            page.push(format!("# HELP {name} {help}\n# TYPE {name} {kind}\n{samples}"));
        };
        let samples = self.samples(&it).into_iter().chain(Self::metaserver_samples(&it));
        for (name, kind, help, value) in
            samples.chain(policy_samples(&it)).chain(router_samples(&it))
        {
            family(name, kind, help, format!("{PREFIX}{name} {value}\n"));
        }
        let name = "connections_refused_total";
        let count =
            |(why, count): &(&str, u64)| format!("{PREFIX}{name}{{reason=\"{why}\"}} {count}\n");
        let help = "Connections of nodes that were refused, by the reason";
        family(name, COUNTER, help, self.refused.iter().map(count).collect());
        let name = "ack_latency_seconds";
        let help = "From a message to a node to its acknowledgement";
        family(name, "histogram", help, buckets(name, &it.ack_latency));
        page.concat()
    }
}

/// Those of the rules of service accounts, as [`HttpContext::samples`].
fn policy_samples(it: &Counters) -> Vec<(&'static str, &'static str, &'static str, u64)> {
    vec![
        (
            "access_rules_refused",
            GAUGE,
            "Service accounts of nodes' pods that have too many rules",
            it.policy_refused as u64,
        ),
        (
            "access_rules_computed_total",
            COUNTER,
            "Times that the rules of a service account were put together",
            it.policy_computed,
        ),
    ]
}

/// Those of the router, as [`HttpContext::samples`].
fn router_samples(it: &Counters) -> Vec<(&'static str, &'static str, &'static str, u64)> {
    vec![
        ("rules", GAUGE, "Rules for custom messages", it.rules as u64),
        (
            "router_waiting",
            GAUGE,
            "Requests that wait for nodes, and uploads that wait for REST endpoints",
            it.router_waiting as u64,
        ),
        ("router_requests_total", COUNTER, "Requests of clients for nodes", it.router_requests),
        (
            "router_requests_failed_total",
            COUNTER,
            "Requests of clients that were refused or not answered, or got an error",
            it.router_requests_failed,
        ),
        ("router_uploads_total", COUNTER, "Messages for REST endpoints", it.router_uploads),
        (
            "router_uploads_failed_total",
            COUNTER,
            "Messages that were dropped or not accepted by a REST endpoint",
            it.router_uploads_failed,
        ),
        ("router_writes_total", COUNTER, "Statuses of rules that were written", it.router_writes),
    ]
}

/// The samples of a histogram.
fn buckets(name: &str, histogram: &Histogram) -> String {
    let seconds = |ms: u64| ms as f64 / 1_000.0;
    let mut lines = Vec::new();
    let mut sum = 0;
    for (bound, count) in Histogram::BOUNDS_MS.iter().zip(histogram.counts) {
        sum += count;
        lines.push(format!("_bucket{{le=\"{}\"}} {sum}", seconds(*bound)));
    }
    let (count, total) = (histogram.count(), seconds(histogram.sum_ms));
    lines.push(format!("_bucket{{le=\"+Inf\"}} {count}"));
    lines.push(format!("_sum {total}"));
    lines.push(format!("_count {count}"));
    lines.iter().flat_map(|line| [PREFIX, name, line, "\n"]).collect()
}

/// A list of objects, which are JSON.
fn list_of<T: std::borrow::Borrow<str>>(kind: Kind, version: u64, items: &[T]) -> Answer {
    let body = format!(
        "{{\"kind\":\"{}List\",\"apiVersion\":\"{}\",\"metadata\":\
         {{\"resourceVersion\":\"{}\"}},\"items\":[{}]}}\n",
        kind.name(),
        kind.api_version(),
        version,
        items.join(",")
    );
    (200, JSON, body.into_bytes())
}

/// Whether it is to be deleted at once.
fn is_forced(call: &ApiCall) -> bool {
    let body = call.body.as_deref().map(RawValue::get).unwrap_or_default();
    let options: Value = serde_json::from_str(body).unwrap_or_default();
    options["gracePeriodSeconds"] == 0
}

/// In kubectl's form: `pod/web`.
fn named(key: &Key) -> String {
    format!("{}/{}", key.kind.name().to_ascii_lowercase(), key.name)
}

fn text(status: u16, line: &str) -> Answer {
    (status, TEXT, format!("{line}\n").into_bytes())
}

const PUBLIC: &str = "any user can connect to this port, so it has only /healthz, /metrics and a \
    page: objects are available through the unix socket in the data folder";
const PREFIX: &str = "edgecontroller_";
const GAUGE: &str = "gauge";
const COUNTER: &str = "counter";
const TEXT: &str = "text/plain; charset=utf-8";
const JSON: &str = "application/json";
const METRICS: &str = "text/plain; version=0.0.4; charset=utf-8";
