//! Counts messages to modules that do not exist here, and passes the requests of MetaServer on
//! (wire spec section 5.12).
//!
//! One request of MetaServer is always served: a node may list its own pods. So a node that lost
//! its store learns which of its running pods are still wanted.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::downstream::NodeContext;
use super::key::NodeId;
use super::object::Object;
use super::outbound::{self, Origin};
use super::requests::{Form, NodeRequest, Then};
use super::time::{Now, Rng};
use super::{Controller, Session};
use crate::model::any_api::{AnyCall, AnyTarget, AnyVerb};
use crate::model::api::{Call, Kind, ListOptions, Verb};
use crate::model::cloud_message::{CloudMessage, Content, Failure};
use crate::model::edge_message::{EdgeContent, EdgeMessage};
use crate::model::raw;

pub(super) const REASON: &str = "edgecontroller serves no MetaServer: --metaserver-reads is off";

impl Controller {
    /// A message of MetaServer, or to a module that does not exist here.
    pub(super) fn unsupported_message(
        &mut self,
        now: Now,
        id: NodeId,
        session: Session,
        message: EdgeMessage,
    ) {
        let of = |resource: &str| Origin { id: message.header.id, resource: resource.into() };
        match message.content {
            EdgeContent::Application(application) => {
                let origin = of("ignore/Application/ignore");
                self.application(now, id, session, &origin, *application);
            }
            EdgeContent::Watches(sync) => {
                let origin = of(&message.route.resource);
                self.sync_watches(now, id, session, &origin, sync);
            }
            EdgeContent::Invalid(why)
                if matches!(&*message.route.source, "metaserver" | "servicebus") =>
            {
                self.counters.messages_unserved += 1;
                self.count_offence(id, &why.to_string());
            }
            _ => self.counters.messages_unserved += 1,
        }
    }
}

/// The answer to a message of MetaServer.
pub(super) fn answer(
    rng: &mut Rng,
    now: Now,
    origin: &Origin,
    content: Content,
) -> Box<CloudMessage> {
    let mut answer = outbound::response(rng, now, origin, 0, content);
    (answer.source, answer.operation) = (outbound::DYNAMIC, "applicationResponse");
    answer
}

/// The request for the pods of this node; `None`: it is another request.
pub(super) fn own_pods(
    call: &AnyCall,
    node: &str,
    origin: &Origin,
    request: &str,
) -> Option<NodeRequest> {
    let AnyTarget::Object { resource, namespace, .. } = &call.target else { return None };
    let selector = call.parameter("fieldSelector");
    let is_own = selector.strip_prefix("spec.nodeName=") == Some(node)
        && call.parameter("labelSelector").is_empty()
        && (resource.is("", "pods") && namespace.is_empty());
    if call.verb != AnyVerb::List || !is_own {
        return None;
    }
    let options = ListOptions {
        field_selector: selector.to_owned(),
        limit: call.parameter("limit").parse().unwrap_or_default(),
        r#continue: call.parameter("continue").to_owned(),
    };
    let call = Call {
        verb: Verb::List,
        kind: Kind::Pod,
        namespace: "".into(),
        name: "".into(),
        subresource: None,
        body: Some(raw::json(&options)),
    };
    let then = Then::List(request.into());
    Some(NodeRequest { origin: origin.clone(), call: Box::new(call), form: Form::Object, then })
}

/// The answer of the API server to such a request.
pub(super) fn listed(
    context: &mut NodeContext<'_>,
    origin: &Origin,
    request: &str,
    result: Result<Box<RawValue>, (u16, Failure)>,
) -> Box<CloudMessage> {
    let list = result.map_err(|(_, failure)| failure).and_then(|list| {
        let whole = without_managed_fields(&list).map(Into::into);
        let why = "the API server's list cannot be parsed";
        whole.ok_or_else(|| Failure::new(500, "InternalError", why))
    });
    answer(context.rng, context.now, origin, Content::Applied(request.into(), list))
}

#[derive(Serialize, Deserialize)]
struct List {
    #[serde(default)]
    kind: String,
    #[serde(default, rename = "apiVersion")]
    api_version: String,
    metadata: Box<RawValue>,
    items: Option<Vec<Box<RawValue>>>,
}

/// `managedFields` are more than a third of what the API server sends.
fn without_managed_fields(list: &RawValue) -> Option<String> {
    let mut list: List = serde_json::from_str(list.get()).ok()?;
    for item in list.items.iter_mut().flatten() {
        // The node may be able to parse a pod that cannot be parsed here.
        if let Ok(read) = Object::read(Kind::Pod, item) {
            *item = (*read.object.json).to_owned();
        }
    }
    serde_json::to_string(&list).ok()
}
