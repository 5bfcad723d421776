//! What people and scrapers are answered: objects, changes to the manifest folder, health, metrics.

mod apply;

use std::path::{Path, PathBuf};

use super::api::local::Local;
use crate::controller::Controller;
use crate::controller::local::{Key, Objects};
use crate::controller::time::Now;
use crate::io::socket::Access;
use crate::model::api::{Call as ApiCall, CallError, Kind, Verb};
use crate::wire::http1::call::{self, Call};
use crate::wire::rest::{self, Asked};

/// All that an answer may need.
pub(super) struct Desk<'a> {
    pub(super) controller: &'a Controller,
    /// `None`: the objects are a cluster's, and people ask that.
    pub(super) local: Option<&'a mut Local>,
    /// Why the API server is not to be reached, if that is so.
    pub(super) trouble: Option<String>,
    pub(super) folder: &'a Path,
    pub(super) connections: usize,
    /// Why connections were refused, and how many.
    pub(super) refused: Vec<(&'static str, u64)>,
    pub(super) now: Now,
}

type Answer = (u16, &'static str, Vec<u8>);

impl Desk<'_> {
    /// The answer, head and all.
    pub(super) fn answer(&mut self, call: &Call, access: Access) -> Vec<u8> {
        let (status, kind, body) = match (&*call.method, &*call.path) {
            ("GET", "/healthz") => match &self.trouble {
                Some(why) => text(503, why),
                None if self.controller.is_ready() => text(200, "ok"),
                None => text(503, "the objects are not all known yet"),
            },
            ("GET", "/metrics") => (200, METRICS, self.metrics().into_bytes()),
            _ if access == Access::Public => text(403, PUBLIC),
            _ if self.local.is_none() => text(404, "the objects are the cluster's: ask kubectl"),
            ("POST", "/apply") => self.apply(call),
            ("GET" | "DELETE", _) => self.object(call),
            _ => text(405, "expected GET, DELETE, or POST /apply"),
        };
        call::answer(status, kind, &body)
    }

    fn objects(&mut self) -> &mut Objects {
        &mut self.local.as_mut().expect("looked at before").objects
    }

    fn object(&mut self, call: &Call) -> Answer {
        match rest::read(call) {
            Ok(Asked::List { kind, namespace, .. }) => self.list(kind, &namespace),
            Ok(Asked::Call(call)) if call.verb == Verb::Get => self.call(&call),
            Ok(Asked::Call(call)) if call.verb == Verb::Delete => self.delete(&call),
            Ok(_) => text(405, "expected to read or to delete"),
            Err((status, why)) => text(status, &why),
        }
    }

    fn list(&mut self, kind: Kind, namespace: &str) -> Answer {
        let version = self.objects().version();
        let items = self.objects().all(kind, namespace).collect::<Vec<&str>>().join(",");
        let body = format!(
            "{{\"kind\":\"{}List\",\"apiVersion\":\"{}\",\"metadata\":\
             {{\"resourceVersion\":\"{}\"}},\"items\":[{}]}}\n",
            kind.name(),
            kind.api_version(),
            version,
            items
        );
        (200, JSON, body.into_bytes())
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

    /// What a file wants is deleted with the file, if we wrote that; else whoever did has to.
    fn delete(&mut self, call: &ApiCall) -> Answer {
        let key =
            Key { kind: call.kind, namespace: call.namespace.clone(), name: call.name.clone() };
        let Some(source) = self.objects().source(&key).map(PathBuf::from) else {
            return self.call(call);
        };
        let name = named(&key);
        if self.file(&key).ok().as_ref() != Some(&source) {
            let file = source.display();
            return text(409, &format!("{name} stands in {file}: take it out there"));
        }
        match std::fs::remove_file(&source) {
            Ok(()) => text(200, &format!("{name} deleted")),
            Err(error) => text(500, &format!("{}: {error}", source.display())),
        }
    }

    fn metrics(&self) -> String {
        let it = self.controller.counters();
        let mut page = Vec::new();
        let ms = |bound: u64| bound as f64 / 1_000.0;
        for (name, kind, value) in [
            ("nodes_connected", "gauge", it.nodes_connected as u64),
            ("connections", "gauge", self.connections as u64),
            ("messages_down_total", "counter", it.messages_down),
            ("bytes_down_total", "counter", it.bytes_down),
            ("messages_up_total", "counter", it.messages_up),
            ("bytes_up_total", "counter", it.bytes_up),
            ("resends_total", "counter", it.resends),
            ("queued", "gauge", it.queued as u64),
            ("calls", "gauge", it.calls as u64),
            ("sessions_refused_total", "counter", it.sessions_refused),
            ("messages_refused_total", "counter", it.messages_refused),
            ("messages_unserved_total", "counter", it.messages_unserved),
            ("certificates_total", "counter", it.certificates),
            ("lists_total", "counter", it.lists),
            ("leads", "gauge", u64::from(it.leads)),
            ("records_removed_total", "counter", it.records_removed),
        ] {
            page.push(format!("# TYPE {PREFIX}{name} {kind}\n{PREFIX}{name} {value}\n"));
        }
        let name = format!("{PREFIX}connections_refused_total");
        page.push(format!("# TYPE {name} counter\n"));
        for (why, count) in &self.refused {
            page.push(format!("{name}{{reason=\"{why}\"}} {count}\n"));
        }
        let name = format!("{PREFIX}ack_latency_seconds");
        page.push(format!("# TYPE {name} histogram\n"));
        let mut sum = 0;
        let bounds = crate::model::metrics::Histogram::BOUNDS_MS;
        for (bound, count) in bounds.iter().zip(it.ack_latency.counts) {
            sum += count;
            page.push(format!("{name}_bucket{{le=\"{}\"}} {sum}\n", ms(*bound)));
        }
        let (count, total) = (it.ack_latency.count(), ms(it.ack_latency.sum_ms));
        page.push(format!("{name}_bucket{{le=\"+Inf\"}} {count}\n"));
        page.push(format!("{name}_sum {total}\n{name}_count {count}\n"));
        page.concat()
    }
}

/// As kubectl names it: `pod/web`.
fn named(key: &Key) -> String {
    format!("{}/{}", key.kind.name().to_ascii_lowercase(), key.name)
}

fn text(status: u16, line: &str) -> Answer {
    (status, TEXT, format!("{line}\n").into_bytes())
}

const PUBLIC: &str = "any user can ask this port, so it has /healthz and /metrics only: ask for \
                      objects through the unix socket in the data folder";
const PREFIX: &str = "edgecontroller_";
const TEXT: &str = "text/plain; charset=utf-8";
const JSON: &str = "application/json";
const METRICS: &str = "text/plain; version=0.0.4; charset=utf-8";
