//! What people and scrapers are answered: objects, changes to the manifest folder, health, metrics.

use std::path::{Path, PathBuf};

use super::api::local::Local;
use crate::agent::admit;
use crate::controller::Controller;
use crate::controller::local::{Key, Objects};
use crate::controller::time::Now;
use crate::io::cloud::files;
use crate::model::api::{Call as ApiCall, CallError, Kind, Verb};
use crate::model::raw::Manifest;
use crate::wire::http1::call::{self, Call};
use crate::wire::manifest::raw;
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
    pub(super) fn answer(&mut self, call: &Call) -> Vec<u8> {
        let (status, kind, body) = match (&*call.method, &*call.path) {
            ("GET", "/healthz") => match &self.trouble {
                Some(why) => text(503, why),
                None if self.controller.is_ready() => text(200, "ok"),
                None => text(503, "the objects are not all known yet"),
            },
            ("GET", "/metrics") => (200, METRICS, self.metrics().into_bytes()),
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
        if source != self.file(&key) {
            let file = source.display();
            return text(409, &format!("{name} stands in {file}: take it out there"));
        }
        match std::fs::remove_file(&source) {
            Ok(()) => text(200, &format!("{name} deleted")),
            Err(error) => text(500, &format!("{}: {error}", source.display())),
        }
    }

    /// Each object becomes a file of its own in the folder, where it is found at once.
    fn apply(&mut self, call: &Call) -> Answer {
        // A web page cannot send this without being asked whether it may.
        if call.header("content-type") != "application/yaml" {
            return text(415, "expected the Content-Type application/yaml");
        }
        let manifests = match raw::parse_valid(&call.body, admit::invalid) {
            Ok(manifests) => manifests,
            Err(refusal) => return text(400, &refusal.to_string()),
        };
        for manifest in &manifests {
            let key = key_of(manifest);
            let file = self.file(&key);
            if let Some(other) = self.objects().source(&key).filter(|it| Path::new(it) != file) {
                let name = named(&key);
                return text(409, &format!("{name} stands in {other}: change it there"));
            }
        }
        let mut said = String::new();
        for manifest in &manifests {
            let key = key_of(manifest);
            let file = self.file(&key);
            let json = format!("{:#}\n", manifest.value);
            if let Err(error) = files::store(&file, &json, files::PRIVATE) {
                return text(500, &error.to_string());
            }
            said.extend([&named(&key), " is in ", &*file.to_string_lossy(), "\n"]);
        }
        (200, TEXT, said.into_bytes())
    }

    /// Of an object that was applied.
    fn file(&self, key: &Key) -> PathBuf {
        let Key { kind, namespace, name } = key;
        let kind = kind.name().to_ascii_lowercase();
        // Names of objects have no slash; whatever has is no name, and must not leave the folder.
        let safe = |text: &str| text.replace(['/', '\0'], "_");
        let name = format!("{kind}.{}.{}.json", safe(namespace), safe(name));
        self.folder.join(name)
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

fn key_of(manifest: &Manifest) -> Key {
    let Manifest { kind, namespace, name, .. } = manifest;
    Key { kind: *kind, namespace: namespace.clone(), name: name.clone() }
}

fn named(key: &Key) -> String {
    let Key { kind, namespace, name } = key;
    let slash = if namespace.is_empty() { "" } else { "/" };
    format!("{} {namespace}{slash}{name}", kind.name().to_ascii_lowercase())
}

fn text(status: u16, line: &str) -> Answer {
    (status, TEXT, format!("{line}\n").into_bytes())
}

const PREFIX: &str = "edgecontroller_";
const TEXT: &str = "text/plain; charset=utf-8";
const JSON: &str = "application/json";
const METRICS: &str = "text/plain; version=0.0.4; charset=utf-8";
