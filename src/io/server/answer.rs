//! The paths of the HTTP API and their answers. Reads the agent, changes nothing.

use serde::Serialize;
use serde_json::json;

#[cfg(feature = "devices")]
use super::devices::Device;
use super::redact::Redacted;
use crate::agent::Agent;
use crate::agent::time::Now;
use crate::io::socket::Access;
use crate::model::pod::Pod;
use crate::model::recorded_event::{EventMetadata, RecordedEvent};
use crate::model::view::RunningPod;
use crate::wire::http1::{Response, Status};

/// The complete answer to a request for this path.
pub(super) fn to(path: &str, access: Access, now: Now, agent: &Agent) -> Response {
    match path {
        // These paths ask whether the event loop runs, and the loop itself answers. /edged/status
        // shows the runtime's state: a restart of edged would not repair it.
        "/healthz" | "/healthz/ping" | "/healthz/log" | "/healthz/syncloop" => {
            Response::text(Status::Ok, "ok")
        }
        "/pods" | "/pods/" => match access {
            Access::Public => json(&list("PodList", agent.pods().map(Redacted).collect())),
            Access::Protected => json(&list("PodList", agent.pods().collect::<Vec<&Pod>>())),
        },
        "/runningpods" | "/runningpods/" => {
            let pods = agent.running_pods();
            json(&list("PodList", pods.iter().map(running_pod).collect()))
        }
        "/events" => json(&list("EventList", agent.events().map(event).collect())),
        "/edged/status" => json(&agent.overview(now)),
        #[cfg(feature = "devices")]
        "/edged/devices" => devices(access, agent),
        #[cfg(feature = "services")]
        "/edged/services" => services(agent),
        "/metrics" => {
            use crate::wire::metrics;
            let page = metrics::render(&agent.metrics(), super::process::read());
            let body = page.into_bytes();
            Response { status: Status::Ok, content_type: metrics::CONTENT_TYPE, more: "", body }
        }
        _ => page(path).unwrap_or_else(|| Response::text(Status::NotFound, &there_is())),
    }
}

#[cfg(feature = "devices")]
fn devices(access: Access, agent: &Agent) -> Response {
    let Some(devices) = agent.devices() else {
        let why = "devices are not served: no cloud is configured, or \
                   modules.deviceTwin.enable is false";
        return Response::text(Status::NotFound, why);
    };
    let devices: Vec<_> = devices.collect();
    let shown = devices.iter().map(|device| Device::of(device, access));
    json(&list("DeviceList", shown.collect()))
}

#[cfg(feature = "services")]
fn services(agent: &Agent) -> Response {
    match agent.service_table() {
        Some(table) => json(&list("ServiceList", table.iter().map(|it| it.info()).collect())),
        None => Response::text(
            Status::NotFound,
            "Services are not served: modules.edged.services.enable is false",
        ),
    }
}

#[cfg(feature = "page")]
fn page(path: &str) -> Option<Response> {
    crate::io::page::file(path, crate::io::page::Shown::Agent)
}

#[cfg(not(feature = "page"))]
fn page(_: &str) -> Option<Response> {
    None
}

/// The available paths, in one line.
fn there_is() -> String {
    let mut paths = "not here: there are /healthz /healthz/syncloop /pods /runningpods/ /metrics \
                     /events /edged/status"
        .to_owned();
    if cfg!(feature = "devices") {
        paths.push_str(" /edged/devices");
    }
    if cfg!(feature = "services") {
        paths.push_str(" /edged/services");
    }
    paths
}

/// A list as the API writes it.
#[derive(Serialize)]
struct List<T> {
    kind: &'static str,
    #[serde(rename = "apiVersion")]
    api_version: &'static str,
    metadata: Empty,
    /// `None` is null: the kubelet writes an empty list so.
    items: Option<Vec<T>>,
}

#[derive(Serialize)]
struct Empty {}

fn list<T>(kind: &'static str, items: Vec<T>) -> List<T> {
    let items = Some(items).filter(|items| !items.is_empty());
    List { kind, api_version: "v1", metadata: Empty {}, items }
}

fn running_pod(pod: &RunningPod) -> serde_json::Value {
    let containers: Vec<_> = pod
        .containers
        .iter()
        .map(|(name, image)| json!({"name": name, "image": image, "resources": {}}))
        .collect();
    json!({
        "metadata": {"name": pod.name, "namespace": pod.namespace, "uid": pod.uid},
        "spec": {"containers": containers},
        "status": {},
    })
}

/// core/v1 `Event`; it has no name from an API server, so its name is that of its object.
#[derive(Serialize)]
struct Event<'a> {
    metadata: EventMetadata<'a>,
    #[serde(flatten)]
    note: &'a RecordedEvent,
    source: Source,
}

#[derive(Serialize)]
struct Source {
    component: &'static str,
}

fn event(note: &RecordedEvent) -> Event<'_> {
    let about = &note.involved_object;
    let annotations = &note.annotations;
    let metadata = EventMetadata { name: &about.name, namespace: &about.namespace, annotations };
    Event { metadata, note, source: Source { component: "edged" } }
}

fn json(value: &impl Serialize) -> Response {
    let mut body = serde_json::to_vec(value).expect("views are plain data");
    body.push(b'\n');
    Response { status: Status::Ok, content_type: "application/json", more: "", body }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::recorded_event::{EventType, Object};

    #[test]
    fn an_event_has_its_annotations_among_its_metadata() {
        let mut note = RecordedEvent {
            involved_object: Object::node("gw"),
            kind: EventType::Warning,
            reason: "Evicted",
            message: "it was low".to_owned(),
            annotations: [("starved_resource", "memory".to_owned())].into(),
            count: 1,
            first_timestamp: None,
            last_timestamp: None,
        };
        let shown = serde_json::to_value(event(&note)).expect("plain data");
        assert_eq!(shown["metadata"]["annotations"], json!({"starved_resource": "memory"}));
        assert_eq!(shown["annotations"], json!(null));
        note.annotations.clear();
        let shown = serde_json::to_value(event(&note)).expect("plain data");
        assert_eq!(shown["metadata"], json!({"name": "gw"}));
    }
}
