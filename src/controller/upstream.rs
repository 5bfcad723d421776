//! Authorizes and translates messages from nodes (wire spec section 5), by the rules of the Node
//! authorizer, which are always on. A node may access its own Node and Lease, the pods bound to it,
//! and the objects that these use.
//!
//! Nothing of a message is passed on that would let the node change more: patches of a status carry
//! a status only, and labels that Kubernetes reserves are left out, as its NodeRestriction does.

use std::collections::BTreeSet;

use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::cache::Cache;
use super::key::{Key, NodeId};
use super::location::PodFacts;
use super::outbound::Origin;
use super::requests::{Form, NodeRequest, Then};
use super::{legacy, restrict};
use crate::model::api::{Call, Kind, PatchType, Subresource, Verb};
use crate::model::edge_message::EdgeContent;
use crate::model::message::{Resource, Route};
use crate::model::raw;

/// The result of parsing a message.
#[derive(Debug)]
pub(super) enum InboundOutcome {
    /// Requests to the API server.
    Requests(Vec<NodeRequest>),
    /// The message is not for this controller, and harmless.
    Ignored,
}

/// Why a message is refused.
#[derive(Debug)]
pub(super) struct Problem {
    pub(super) code: u16,
    pub(super) reason: &'static str,
    pub(super) why: String,
    /// The form of the answer.
    pub(super) form: Form,
}

/// A message of a node, with the state needed to judge it.
pub(super) struct Reader<'a> {
    pub(super) cache: &'a Cache,
    pub(super) id: NodeId,
    pub(super) node: &'a str,
    /// Of the message.
    pub(super) origin: &'a Origin,
    pub(super) route: &'a Route,
    /// The time, which old clouds fill in.
    pub(super) now: super::time::Now,
}

/// The namespace of the nodes' leases.
const LEASES: &str = "kube-node-lease";

impl Reader<'_> {
    /// Authorizes and translates the message.
    pub(super) fn read(&self, content: EdgeContent) -> Result<InboundOutcome, Problem> {
        let Some(resource) = Resource::parse(&self.route.resource) else {
            return Ok(InboundOutcome::Ignored);
        };
        let request = match (&*self.route.operation, resource.kind) {
            ("insert", "node") => self.register(&resource, content, Form::ObjectResp),
            ("insert", "nodestatus") => self.register(&resource, content, Form::OkIfThere),
            ("update", "node") => self.node_labels(&resource, content),
            ("query", "node") => {
                self.own(&resource, Form::Object)?;
                self.request(Verb::Get, Kind::Node, &resource, None, Form::Object)
            }
            ("patch", "nodepatch") => self.node_patch(&resource, content),
            ("update", "nodestatus") => self.node_status(&resource, content),
            ("query", "lease") => {
                self.own_lease(&resource)?;
                self.request(Verb::Get, Kind::Lease, &resource, None, Form::ObjectResp)
            }
            ("insert", "lease") => self.lease(&resource, content, Verb::Create),
            ("update", "lease") => self.lease(&resource, content, Verb::Update),
            ("patch", "podpatch") => self.pod_patch(&resource, content),
            ("update", "podstatus") => return self.pod_statuses(&resource, content),
            ("delete", "pod") => self.pod_delete(&resource, content),
            ("insert", "pod") => self.mirror_pod(&resource, content),
            ("query", "configmap") => self.needed(&resource, Kind::ConfigMap),
            ("query", "secret") => self.needed(&resource, Kind::Secret),
            ("query", "serviceaccounttoken") => self.token(&resource, content),
            ("query", "persistentvolumeclaim") => self.claim(&resource),
            ("query", "persistentvolume") => {
                let request =
                    self.request(Verb::Get, Kind::PersistentVolume, &resource, None, Form::Object);
                request.map(|request| NodeRequest { then: Then::Bound(self.claims()), ..request })
            }
            ("query", "volumeattachment") => {
                let request =
                    self.request(Verb::Get, Kind::VolumeAttachment, &resource, None, Form::Object);
                request.map(|request| NodeRequest {
                    then: Then::Attached(self.node.into()),
                    ..request
                })
            }
            ("insert" | "update" | "patch", "event") => self.event(&resource, content),
            _ => return Ok(InboundOutcome::Ignored),
        };
        request.map(|request| InboundOutcome::Requests(vec![request]))
    }

    fn request(
        &self,
        verb: Verb,
        kind: Kind,
        resource: &Resource<'_>,
        body: Option<Box<RawValue>>,
        form: Form,
    ) -> Result<NodeRequest, Problem> {
        if resource.name.is_empty() {
            return Err(bad(form, format!("got {}, expected a name", self.route.resource)));
        }
        let namespace = resource.namespace.filter(|_| kind.is_namespaced()).unwrap_or_default();
        if kind.is_namespaced() && namespace.is_empty() {
            let got = &self.route.resource;
            return Err(bad(form, format!("got {got}, expected a namespace")));
        }
        let (namespace, name) = (namespace.into(), resource.name.into());
        let call = Call { verb, kind, namespace, name, subresource: None, body };
        Ok(self.of(call, form))
    }

    fn of(&self, call: Call, form: Form) -> NodeRequest {
        let (origin, call) = (self.origin.clone(), Box::new(call));
        NodeRequest { origin, call, form, then: Then::Nothing }
    }

    /// Fails if the resource is not the node itself.
    fn own(&self, resource: &Resource<'_>, form: Form) -> Result<(), Problem> {
        if resource.name == self.node { Ok(()) } else { Err(self.foreign(form)) }
    }

    fn own_lease(&self, resource: &Resource<'_>) -> Result<(), Problem> {
        self.own(resource, Form::ObjectResp)?;
        let own = resource.namespace == Some(LEASES);
        if own { Ok(()) } else { Err(self.foreign(Form::ObjectResp)) }
    }

    fn foreign(&self, form: Form) -> Problem {
        let why = format!("node {} may not touch {}", self.node, self.route.resource);
        Problem { code: 403, reason: "Forbidden", why, form }
    }

    // ---- the node ----

    fn register(
        &self,
        resource: &Resource<'_>,
        content: EdgeContent,
        form: Form,
    ) -> Result<NodeRequest, Problem> {
        self.own(resource, form)?;
        let body = restrict::node(&object(content, form)?, self.node);
        let mut request =
            self.request(Verb::Create, Kind::Node, resource, Some(raw::json(&body)), form)?;
        if form == Form::OkIfThere {
            request.origin.resource = format!("default/node/{}", self.node).into();
        }
        Ok(NodeRequest { then: Then::Registered, ..request })
    }

    fn node_labels(
        &self,
        resource: &Resource<'_>,
        content: EdgeContent,
    ) -> Result<NodeRequest, Problem> {
        self.own(resource, Form::Ok)?;
        let node = object(content, Form::Ok)?;
        let body = json!({"metadata": restrict::metadata(&node["metadata"])});
        let merge = Verb::Patch(PatchType::Merge);
        let request =
            self.request(merge, Kind::Node, resource, Some(raw::json(&body)), Form::Ok)?;
        Ok(NodeRequest { then: Then::Learn, ..request })
    }

    fn node_patch(
        &self,
        resource: &Resource<'_>,
        content: EdgeContent,
    ) -> Result<NodeRequest, Problem> {
        self.own(resource, Form::ObjectResp)?;
        let patch = object(content, Form::ObjectResp)?;
        let mut status = patch.get("status").cloned().unwrap_or_else(|| json!({}));
        let old = self.cache.object(&Key::node(self.node)).and_then(|object| object.node.as_ref());
        if old.is_some_and(|facts| facts.kubelet_port != 0)
            && let Some(status) = status.as_object_mut()
        {
            // As in full statuses: a tunnel's port is not the node's to set.
            status.remove("daemonEndpoints");
        }
        let mut body = json!({"status": status});
        let metadata = restrict::metadata(&patch["metadata"]);
        if metadata.as_object().is_some_and(|metadata| !metadata.is_empty()) {
            body["metadata"] = metadata;
        }
        self.status_patch(Kind::Node, resource, &body, PatchType::Strategic, Form::ObjectResp)
    }

    fn status_patch(
        &self,
        kind: Kind,
        resource: &Resource<'_>,
        body: &Value,
        patch: PatchType,
        form: Form,
    ) -> Result<NodeRequest, Problem> {
        let body = Some(raw::json(body));
        let mut request = self.request(Verb::Patch(patch), kind, resource, body, form)?;
        request.call.subresource = Some(Subresource::Status);
        Ok(NodeRequest { then: Then::Learn, ..request })
    }

    fn node_status(
        &self,
        resource: &Resource<'_>,
        content: EdgeContent,
    ) -> Result<NodeRequest, Problem> {
        let form = Form::OkOrNothing;
        self.own(resource, form)?;
        let EdgeContent::NodeStatus(status) = content else {
            return Err(unreadable(content, form));
        };
        let old = self.cache.object(&Key::node(self.node)).map(|object| object.json.get());
        let body = json!({"status": legacy::node_status(status, old)});
        let mut request = self.status_patch(Kind::Node, resource, &body, PatchType::Merge, form)?;
        request.origin.resource = format!("default/node/{}", self.node).into();
        Ok(request)
    }

    fn lease(
        &self,
        resource: &Resource<'_>,
        content: EdgeContent,
        verb: Verb,
    ) -> Result<NodeRequest, Problem> {
        let form = Form::ObjectResp;
        self.own_lease(resource)?;
        let mut lease = object(content, form)?;
        if !lease.is_object() || !lease["metadata"].is_object() {
            return Err(bad(form, "got no lease".to_owned()));
        }
        lease["metadata"]["name"] = json!(self.node);
        lease["metadata"]["namespace"] = json!(LEASES);
        lease["kind"] = json!(Kind::Lease.name());
        lease["apiVersion"] = json!(Kind::Lease.api_version());
        self.request(verb, Kind::Lease, resource, Some(raw::json(&lease)), form)
    }

    // ---- pods ----

    /// The pod, if it is bound to this node; `None`: it does not exist, or is bound to another
    /// node.
    fn pod(&self, namespace: Option<&str>, name: &str) -> Option<&super::object::Object> {
        let key = Key::new(Kind::Pod, namespace.unwrap_or_default(), name);
        let pod = self.cache.object(&key)?;
        let facts = pod.pod.as_ref()?;
        (*facts.node == *self.node).then_some(pod)
    }

    fn pod_patch(
        &self,
        resource: &Resource<'_>,
        content: EdgeContent,
    ) -> Result<NodeRequest, Problem> {
        let form = Form::ObjectResp;
        let patch = object(content, form)?;
        let named_uid = patch["metadata"]["uid"].as_str();
        let pod = self.pod(resource.namespace, resource.name);
        let Some(pod) = pod.filter(|pod| named_uid.is_none_or(|uid| *pod.uid == *uid)) else {
            return self.missing(resource, named_uid.unwrap_or_default(), form);
        };
        let uid = named_uid.unwrap_or(&pod.uid);
        let status = patch.get("status").cloned().unwrap_or_else(|| json!({}));
        let body = json!({"metadata": {"uid": uid}, "status": status});
        self.status_patch(Kind::Pod, resource, &body, PatchType::Strategic, form)
    }

    /// A pod that is not known as this node's. The API server is asked: if it has no such pod
    /// either, the node has to delete it.
    fn missing(
        &self,
        resource: &Resource<'_>,
        uid: &str,
        form: Form,
    ) -> Result<NodeRequest, Problem> {
        let request = self.request(Verb::Get, Kind::Pod, resource, None, form)?;
        let key = Key::new(Kind::Pod, resource.namespace.unwrap_or_default(), resource.name);
        Ok(NodeRequest { then: Then::Missing { key, uid: uid.into() }, ..request })
    }

    fn pod_statuses(
        &self,
        resource: &Resource<'_>,
        content: EdgeContent,
    ) -> Result<InboundOutcome, Problem> {
        let EdgeContent::PodStatuses(updates) = content else {
            return Err(unreadable(content, Form::OkOrNothing));
        };
        let mut requests = Vec::new();
        for update in updates {
            let pod = self.pod(resource.namespace, &update.name);
            let of = Resource { name: &update.name, kind: "pod", ..*resource };
            let Some(pod) = pod.filter(|pod| *pod.uid == *update.uid) else {
                requests.push(self.missing(&of, &update.uid, Form::OkIfGone)?);
                continue;
            };
            let status = legacy::pod_status(update.status, pod.json.get(), self.now);
            let is_over = pod.is_ending && legacy::is_terminated(&status);
            let body = json!({"metadata": {"uid": &*update.uid}, "status": status});
            let mut request =
                self.status_patch(Kind::Pod, &of, &body, PatchType::Merge, Form::Ok)?;
            if is_over {
                request.then = Then::Finish { uid: update.uid };
            }
            requests.push(request);
        }
        Ok(InboundOutcome::Requests(requests))
    }

    fn pod_delete(
        &self,
        resource: &Resource<'_>,
        content: EdgeContent,
    ) -> Result<NodeRequest, Problem> {
        let form = Form::OkIfGone;
        let EdgeContent::Deletion(uid) = content else { return Err(unreadable(content, form)) };
        if self.pod(resource.namespace, resource.name).is_none_or(|pod| *pod.uid != *uid) {
            return self.missing(resource, &uid, form);
        }
        let body = raw::json(&delete_options(&uid));
        self.request(Verb::Delete, Kind::Pod, resource, Some(body), form)
    }

    fn mirror_pod(
        &self,
        resource: &Resource<'_>,
        content: EdgeContent,
    ) -> Result<NodeRequest, Problem> {
        let form = Form::Made;
        let pod = object(content, form)?;
        let is_mirror = pod["metadata"]["annotations"]["kubernetes.io/config.mirror"].is_string();
        let namespace = resource.namespace.unwrap_or_default();
        let facts = PodFacts::read(namespace, &raw::json(&pod["spec"]));
        let facts = facts.map_err(|why| bad(form, why.to_string()))?;
        let harmless = facts.needs.is_empty() && facts.claims.is_empty();
        if !is_mirror || *facts.node != *self.node || !harmless || !facts.account.is_empty() {
            return Err(self.foreign(form));
        }
        self.request(Verb::Create, Kind::Pod, resource, Some(raw::json(&pod)), form)
    }

    // ---- what pods use ----

    fn needed(&self, resource: &Resource<'_>, kind: Kind) -> Result<NodeRequest, Problem> {
        let form = Form::Object;
        let key = Key::new(kind, resource.namespace.unwrap_or_default(), resource.name);
        let request = self.request(Verb::Get, kind, resource, None, form);
        if !self.cache.nodes[&self.id].wanted.contains(&key) {
            // A copy that is not kept up to date: it is read for each job anew.
            return if self.is_of_job(&key) { request } else { Err(self.foreign(form)) };
        }
        Ok(NodeRequest { then: Then::Give(key), ..request? })
    }

    /// Whether the node works on a job that names this Secret.
    fn is_of_job(&self, key: &Key) -> bool {
        let mut secrets = self.cache.job_secrets.values();
        secrets.any(|(secret, nodes)| secret == key && nodes.contains(self.node))
    }

    fn token(&self, resource: &Resource<'_>, content: EdgeContent) -> Result<NodeRequest, Problem> {
        let form = Form::Object;
        let EdgeContent::Token(bound) = content else { return Err(unreadable(content, form)) };
        let pod = self.pod(resource.namespace, &bound.name).filter(|pod| *pod.uid == *bound.uid);
        let account = pod.and_then(|pod| pod.pod.as_ref()).map(|facts| &*facts.account);
        let account = account.map(|name| if name.is_empty() { "default" } else { name });
        if &*bound.kind != "Pod" || account != Some(resource.name) {
            return Err(self.foreign(form));
        }
        let body = Some(bound.request);
        let mut request = self.request(Verb::Create, Kind::ServiceAccount, resource, body, form)?;
        request.call.subresource = Some(Subresource::Token);
        Ok(request)
    }

    fn claims(&self) -> BTreeSet<(Box<str>, Box<str>)> {
        let pods = self.cache.nodes[&self.id].bound.keys();
        let facts = pods.filter_map(|key| Some((key, self.cache.object(key)?.pod.as_ref()?)));
        let own = facts.filter(|(_, facts)| *facts.node == *self.node);
        let claims = own.flat_map(|(key, facts)| {
            facts.claims.iter().map(|claim| (Box::from(&*key.namespace), claim.clone()))
        });
        claims.collect()
    }

    fn claim(&self, resource: &Resource<'_>) -> Result<NodeRequest, Problem> {
        let form = Form::Object;
        let namespace = resource.namespace.unwrap_or_default();
        if !self.claims().contains(&(namespace.into(), resource.name.into())) {
            return Err(self.foreign(form));
        }
        self.request(Verb::Get, Kind::PersistentVolumeClaim, resource, None, form)
    }

    fn event(&self, resource: &Resource<'_>, content: EdgeContent) -> Result<NodeRequest, Problem> {
        let form = Form::Silent;
        let EdgeContent::Event(event, patch) = content else {
            return Err(unreadable(content, form));
        };
        let about = &event["involvedObject"];
        let (kind, name) = (about["kind"].as_str(), about["name"].as_str().unwrap_or_default());
        let own = match kind {
            Some("Node") => name == self.node,
            Some("Pod") => self.pod(about["namespace"].as_str(), name).is_some(),
            Some(_) | None => false,
        };
        // As in the API server: events of a cluster-scoped object are in the default namespace.
        let of_object = about["namespace"].as_str().unwrap_or_default();
        let home = match kind {
            Some("Node") if of_object.is_empty() => "default",
            Some("Node") | None => "",
            Some(_) => of_object,
        };
        let written = event["metadata"]["namespace"].as_str().unwrap_or(home);
        let at_home = resource.namespace == Some(home) && written == home;
        let prefix = format!("{name}.");
        if !own || !at_home || !resource.name.starts_with(&prefix) {
            return Err(self.foreign(form));
        }
        let (verb, body) = match (&*self.route.operation, patch) {
            ("insert", None) => (Verb::Create, raw::json(&event)),
            (_, Some(patch)) => {
                let body = patch.map_err(|why| bad(form, why.to_string()))?;
                (Verb::Patch(PatchType::Strategic), body)
            }
            (_, None) => (Verb::Update, raw::json(&event)),
        };
        self.request(verb, Kind::Event, resource, Some(body), form)
    }
}

pub(super) fn delete_options(uid: &str) -> Value {
    json!({
        "kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0,
        "preconditions": {"uid": uid},
    })
}

fn object(content: EdgeContent, form: Form) -> Result<Value, Problem> {
    match content {
        EdgeContent::Object(object) => Ok(object),
        other => Err(unreadable(other, form)),
    }
}

/// The content is not what the route says.
fn unreadable(content: EdgeContent, form: Form) -> Problem {
    match content {
        EdgeContent::Invalid(why) => bad(form, why.to_string()),
        _ => bad(form, "got no content".to_owned()),
    }
}

fn bad(form: Form, why: String) -> Problem {
    Problem { code: 400, reason: "BadRequest", why, form }
}
