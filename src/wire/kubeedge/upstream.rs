//! Writes what a node sends: the route of each message, and its content.

use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};

use super::application;
use super::node_jobs::encode_report;
#[cfg(any(feature = "metaserver", feature = "services"))]
use crate::model::application::Scope;
use crate::model::base64;
#[cfg(feature = "devices")]
use crate::model::device::DeviceUpstream;
use crate::model::message::{Header, Message, Resource, Route};
use crate::model::node_job::JobReport;
use crate::model::pod::Pod;
use crate::model::recorded_event::{EventMetadata, RecordedEvent};
use crate::model::settings::Taint;
use crate::model::status::PodStatus;
use crate::model::status_patch::StatusPatch;
use crate::model::time::Timestamp;
use crate::model::upstream::{
    Lease, NodeObject, Origin, PodName, Reply, TokenRequest, Up, Upstream,
};
#[cfg(feature = "devices")]
use crate::wire::devices;
#[cfg(feature = "servicebus")]
use crate::wire::service_bus;

/// The envelope of a message.
pub fn encode(message: &Upstream) -> Message {
    let parent_id = match &message.content {
        Up::Reply(to, _) => to.id.clone(),
        #[cfg(feature = "servicebus")]
        Up::ServiceAnswer(to, _) => to.id.clone(),
        _ => Box::default(),
    };
    let Envelope { route, content } = envelope(message);
    let (id, timestamp_ms) = (message.id.clone(), message.timestamp_ms);
    let header = Header { id, parent_id, timestamp_ms, ..Header::default() };
    Message { header, route, content }
}

/// A message without its header.
struct Envelope {
    route: Route,
    content: Option<Box<RawValue>>,
}

impl Envelope {
    fn new(route: [&str; 4], content: Option<Box<RawValue>>) -> Self {
        let [source, group, operation, resource] = route.map(Box::from);
        Self { route: Route { source, group, operation, resource }, content }
    }

    /// A request or a report in edged's name (section 5).
    fn request(operation: &str, resource: &str, content: Option<Box<RawValue>>) -> Self {
        Self::new(["edged", "meta", operation, resource], content)
    }
}

fn envelope(message: &Upstream) -> Envelope {
    let request = Envelope::request;
    match &message.content {
        Up::KeepAlive => {
            Envelope::new(["websocket", "resource", "keepalive", "node"], Some(json("ping")))
        }
        Up::Reply(to, answer) => reply(to, answer),
        Up::QueryLease { node } => request("query", &lease_resource(node), None),
        Up::WriteLease(it) => {
            let operation = if it.version.is_some() { "update" } else { "insert" };
            request(operation, &lease_resource(&it.node), Some(lease(it)))
        }
        Up::InsertNode(it) => request("insert", &node_resource(it), Some(node(it))),
        Up::PatchNode { node, patch } => {
            let text = patch.as_ref().map_or("{}".to_owned(), node_patch);
            // A JSON string that contains JSON, as KubeEdge expects.
            request("patch", &of_node("nodepatch", node), Some(json(&text)))
        }
        Up::LabelNode { node, labels } => {
            let content = json!({"metadata": {"name": node, "labels": labels}});
            request("update", &of_node("node", node), Some(json(&content)))
        }
        Up::LegacyNodeStatus { node, namespace, uid, status } => {
            let content = json!({"UID": uid, "Status": status, "ExtendResources": null});
            request("update", &legacy_node(namespace, node), Some(json(&content)))
        }
        Up::PatchPod { pod, patch } => {
            request("patch", &of_pod("podpatch", pod), Some(json(&pod_patch(pod, patch))))
        }
        Up::LegacyPodStatus { pod, status } => {
            request("update", &of_pod("podstatus", pod), Some(json(&legacy_status(pod, status))))
        }
        Up::LegacyPodStatuses { namespace, pods } => legacy_statuses(namespace, pods),
        Up::DeletePod { key, uid } => {
            let content = json!({"gracePeriodSeconds": 0, "preconditions": {"uid": uid}});
            request("delete", key, Some(json(&content)))
        }
        Up::InsertMirror { key, pod, node, node_uid } => {
            request("insert", key, Some(json(&mirror(pod, node, node_uid))))
        }
        Up::QueryObject { key } => request("query", key, None),
        Up::RequestToken(it) => token(it),
        Up::ListPods { node, limit, page } => list_pods(node, *limit, page),
        #[cfg(feature = "services")]
        Up::ListServices { node, limit, page } => list_services(node, *limit, page),
        #[cfg(any(feature = "metaserver", feature = "services"))]
        Up::SyncWatches { node, watches } => sync_watches(node, watches),
        #[cfg(feature = "metaserver")]
        Up::Application(request) => to_controller(&application::encode(request)),
        Up::Event { is_new, digest, event: recorded, node } => {
            event(*is_new, *digest, recorded, node)
        }
        Up::NodeJob(report) => node_job(report),
        #[cfg(feature = "devices")]
        Up::Device(report) => device(report, message),
        #[cfg(feature = "servicebus")]
        Up::ServiceAnswer(_, answer) => {
            let content = RawValue::from_string(service_bus::encode_answer(answer));
            service_bus_upload("", content.expect("it is JSON"))
        }
        // A byte slice of Go.
        #[cfg(feature = "servicebus")]
        Up::ServiceRequest { url, body } => service_bus_upload(url, json(&base64::encode(body))),
        #[cfg(feature = "devices")]
        Up::Upload(upload) => {
            Envelope::new(["bus", "user", "upload", &upload.topic], Some(json(&upload.payload)))
        }
    }
}

#[cfg(feature = "devices")]
fn device(report: &DeviceUpstream, message: &Upstream) -> Envelope {
    let (operation, resource, content) =
        devices::encode_cloud(report, &message.id, message.timestamp_ms);
    Envelope::new(["twin", "resource", operation, &resource], Some(content))
}

fn json<T: Serialize + ?Sized>(value: &T) -> Box<RawValue> {
    to_raw_value(value).expect("plain data")
}

fn node_job(report: &JobReport) -> Envelope {
    let (operation, resource, content) = encode_report(report);
    Envelope::new(["websocket", "hub", operation, &resource], Some(content))
}

// ---- answers ----

fn reply(to: &Origin, reply: &Reply) -> Envelope {
    let answer = |operation, content| {
        Envelope::new([&to.source, &to.group, operation, &to.resource], Some(content))
    };
    match reply {
        // As KubeEdge does, which has changed the route for another module before it answers.
        Reply::Stored
            if &*to.source == "devicecontroller"
                && matches!(&*to.operation, "insert" | "delete") =>
        {
            Envelope::new(["meta", "twin", "response", &to.resource], Some(json("OK")))
        }
        Reply::Stored => answer("response", json("OK")),
        Reply::Refused(why) => {
            let route = ["metamanager", &to.group, "error", &to.resource];
            Envelope::new(route, Some(json(why)))
        }
        Reply::Received => answer("response", json("ack")),
        Reply::NoServices => {
            let body = base64::encode(NOT_BUILT_IN.as_bytes());
            let content = json!({"header": {}, "status_code": 501, "body": body});
            Envelope::new(["servicebus", &to.group, "upload", ""], Some(json(&content)))
        }
        Reply::NoVolumes => answer("response", json(NOT_BUILT_IN)),
    }
}

/// The answer about features that edged does not have.
const NOT_BUILT_IN: &str = "not built into edged";

// ---- the node ----

/// Any namespace works; 1.23 and later use this one.
fn of_node(kind: &str, name: &str) -> String {
    Resource { namespace: None, kind, name }.to_string()
}

fn legacy_node(namespace: &str, name: &str) -> String {
    Resource { namespace: Some(namespace), kind: "nodestatus", name }.to_string()
}

fn node_resource(node: &NodeObject) -> String {
    match &node.legacy_namespace {
        Some(namespace) => legacy_node(namespace, &node.name),
        None => of_node("node", &node.name),
    }
}

fn node(node: &NodeObject) -> Box<RawValue> {
    let taint = |taint: &Taint| {
        let mut entry = json!({"key": taint.key, "effect": taint.effect});
        if !taint.value.is_empty() {
            entry["value"] = taint.value.as_str().into();
        }
        entry
    };
    let mut spec = json!({});
    if node.unschedulable {
        spec["unschedulable"] = true.into();
    }
    if !node.taints.is_empty() {
        spec["taints"] = node.taints.iter().map(taint).collect();
    }
    json(&json!({
        "metadata": {
            "name": node.name,
            "labels": node.labels,
            "annotations": {"volumes.kubernetes.io/controller-managed-attach-detach": "true"},
        },
        "spec": spec,
        "status": node.status,
    }))
}

fn node_patch(patch: &StatusPatch) -> String {
    format!("{{\"status\":{}}}", patch.json())
}

fn lease_resource(node: &str) -> String {
    Resource { namespace: Some("kube-node-lease"), kind: "lease", name: node }.to_string()
}

/// Fields that are left out are kept by the API server, or derived from the resource: the
/// namespace. These bytes are most of the traffic of an idle link.
fn lease(lease: &Lease) -> Box<RawValue> {
    let node = &*lease.node;
    let mut metadata = json!({"name": node});
    if let Some(version) = &lease.version {
        metadata["resourceVersion"] = (**version).into();
    }
    if let Some(uid) = &lease.owner {
        metadata["ownerReferences"] =
            json!([{"apiVersion": "v1", "kind": "Node", "name": node, "uid": uid}]);
    }
    json(&json!({
        "metadata": metadata,
        "spec": {
            "holderIdentity": node,
            "leaseDurationSeconds": lease.duration_s,
            "renewTime": micro_time(lease.renewed_at_ms),
        },
    }))
}

/// `metav1.MicroTime` of milliseconds since the epoch.
fn micro_time(ms: i64) -> String {
    let seconds = Timestamp(ms.div_euclid(1_000)).to_string();
    let seconds = seconds.strip_suffix('Z').expect("UTC");
    format!("{seconds}.{:03}000Z", ms.rem_euclid(1_000))
}

// ---- pods ----

fn of_pod(kind: &str, pod: &PodName) -> String {
    Resource { namespace: Some(&pod.namespace), kind, name: &pod.name }.to_string()
}

/// A text, because KubeEdge expects a JSON string that contains JSON.
fn pod_patch(pod: &PodName, patch: &StatusPatch) -> String {
    let metadata = json!({"uid": pod.uid});
    format!("{{\"metadata\":{metadata},\"status\":{}}}", patch.json())
}

/// In the name of MetaManager, as it was called up to 1.11.
fn legacy_statuses(namespace: &str, pods: &[(PodName, PodStatus)]) -> Envelope {
    let resource = Resource { namespace: Some(namespace), kind: "podstatus", name: "" };
    let all: Vec<Value> = pods.iter().map(|(pod, status)| legacy_status(pod, status)).collect();
    let route = ["metaManager", "resource", "update", &resource.to_string()];
    Envelope::new(route, Some(json(&all)))
}

fn legacy_status(pod: &PodName, status: &PodStatus) -> Value {
    json!({"UID": pod.uid, "Name": pod.name, "Status": status})
}

/// The mirror pod as the API server should have it.
fn mirror(pod: &Pod, node: &str, node_uid: &str) -> Value {
    let text = serde_json::to_string(pod).expect("plain data");
    let mut mirror: Value = serde_json::from_str(&text).expect("it was JSON");
    mirror["apiVersion"] = "v1".into();
    mirror["kind"] = "Pod".into();
    mirror["status"].take();
    let metadata = &mut mirror["metadata"];
    if let Some(metadata) = metadata.as_object_mut() {
        let copied = ["name", "namespace", "labels", "annotations"];
        metadata.retain(|key, _| copied.contains(&&**key));
    }
    metadata["ownerReferences"] = json!([{"apiVersion": "v1", "kind": "Node", "name": node,
        "uid": node_uid, "controller": true}]);
    // Otherwise the cloud would delete it when the node is away for five minutes.
    let stays = json!({"operator": "Exists", "effect": "NoExecute"});
    match &mut mirror["spec"]["tolerations"] {
        Value::Array(tolerations) if tolerations.contains(&stays) => {}
        Value::Array(tolerations) => tolerations.push(stays),
        none => *none = json!([stays]),
    }
    mirror
}

/// In ServiceBus' name. CloudCore passes on only what has this operation.
#[cfg(feature = "servicebus")]
fn service_bus_upload(resource: &str, content: Box<RawValue>) -> Envelope {
    Envelope::new(["servicebus", "user", "upload", resource], Some(content))
}

/// In MetaServer's name.
const TO_CONTROLLER: [&str; 4] = ["metaserver", "dynamiccontroller", "null", "null"];

fn to_controller(content: &Value) -> Envelope {
    Envelope::new(TO_CONTROLLER, Some(json(content)))
}

/// Without a `resourceVersion` the API server answers from its storage, not from a cache.
fn list_pods(node: &str, limit: u32, page: &str) -> Envelope {
    let mut options = json!({"fieldSelector": format!("spec.nodeName={node}"), "limit": limit});
    if !page.is_empty() {
        options["continue"] = page.into();
    }
    let content = application::request("edged", "/core/v1/pods/null/null", "list", node, &options);
    to_controller(&content)
}

#[cfg(feature = "services")]
fn list_services(node: &str, limit: u32, page: &str) -> Envelope {
    let mut options = json!({"limit": limit});
    if !page.is_empty() {
        options["continue"] = page.into();
    }
    let content = application::request("edged", SERVICES, "list", node, &options);
    to_controller(&content)
}

#[cfg(any(feature = "metaserver", feature = "services"))]
fn sync_watches(node: &str, watches: &[Scope]) -> Envelope {
    let [source, group, operation, _] = TO_CONTROLLER;
    let watch = |scope: &Scope| {
        let id = scope.id(node);
        let mut options = json!({"watch": true});
        application::select(&mut options, &scope.label_selector(), &scope.field_selector());
        let key = scope.gvr.key(&scope.namespace, "");
        let content = application::request(&id, &key, "watch", node, &options);
        (id, content)
    };
    let all: serde_json::Map<String, Value> = watches.iter().map(watch).collect();
    Envelope::new([source, group, operation, "watchapp/sync"], Some(json(&all)))
}

/// All Services.
#[cfg(feature = "services")]
const SERVICES: &str = "/core/v1/services/null/null";

fn token(request: &TokenRequest) -> Envelope {
    let namespace = Some(&*request.namespace);
    let resource = Resource { namespace, kind: "serviceaccounttoken", name: &request.account };
    let audiences = (!request.audience.is_empty()).then_some([&*request.audience]);
    let content = json!({
        "metadata": {"creationTimestamp": null},
        "spec": {
            "audiences": audiences,
            "expirationSeconds": request.seconds,
            "boundObjectRef": bound(request),
        },
        "status": {"token": "", "expirationTimestamp": null},
    });
    Envelope::request("query", &resource.to_string(), Some(json(&content)))
}

fn bound(request: &TokenRequest) -> Value {
    json!({"kind": "Pod", "apiVersion": "v1", "name": request.pod, "uid": request.uid})
}

// ---- events ----

/// core/v1 `Event`
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Event<'a> {
    metadata: EventMetadata<'a>,
    #[serde(flatten)]
    recorded: &'a RecordedEvent,
    source: Source<'a>,
    reporting_component: &'static str,
    reporting_instance: &'a str,
}

#[derive(Serialize)]
struct Source<'a> {
    component: &'static str,
    host: &'a str,
}

/// The name of the kubelet there.
const COMPONENT: &str = "kubelet";

fn event(is_new: bool, digest: u64, recorded: &RecordedEvent, node: &str) -> Envelope {
    let object = &recorded.involved_object;
    let namespace = if object.namespace.is_empty() { "default" } else { &object.namespace };
    let name = format!("{}.{digest:016x}", object.name);
    let content = Event {
        metadata: EventMetadata { name: &name, namespace, annotations: &recorded.annotations },
        recorded,
        source: Source { component: COMPONENT, host: node },
        reporting_component: COMPONENT,
        reporting_instance: node,
    };
    let resource = Resource { namespace: Some(namespace), kind: "event", name: &name };
    let operation = if is_new { "insert" } else { "update" };
    Envelope::request(operation, &resource.to_string(), Some(json(&content)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_a_renewal_has_six_decimals() {
        assert_eq!(micro_time(1_795_196_809_807), "2026-11-20T17:46:49.807000Z");
        assert_eq!(micro_time(1_795_196_809_000), "2026-11-20T17:46:49.000000Z");
    }
}
