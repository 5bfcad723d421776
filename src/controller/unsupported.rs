//! Answers requests for modules that do not exist here: MetaServer's cloud side
//! (wire spec section 5.12). All are counted; requests that expect an answer get an
//! error.
//!
//! One request of MetaServer is served: a node may list its own pods. So a node that lost its store
//! learns which of its running pods are still wanted.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::Controller;
use super::downstream::NodeContext;
use super::key::NodeId;
use super::object::Object;
use super::outbound::{self, Origin};
use super::requests::{Form, NodeRequest, Then};
use super::time::{Now, Rng};
use crate::model::api::{Call, Kind, Verb};
use crate::model::cloud_message::{CloudMessage, Content, Failure};
use crate::model::edge_message::{Application, EdgeContent, EdgeMessage};
use crate::model::raw;

const REASON: &str = "MetaServer's cloud side is not built into edgecontroller";
/// All pods, of all namespaces.
const PODS: &str = "/core/v1/pods/null/null";

impl Controller {
    /// A message to a module that does not exist here.
    pub(super) fn unsupported_message(&mut self, now: Now, id: NodeId, message: EdgeMessage) {
        let of = |resource: &str| Origin { id: message.header.id, resource: resource.into() };
        let (origin, operation, content) = match message.content {
            EdgeContent::Application(application) => {
                let origin = of("ignore/Application/ignore");
                if let Some(request) = own_pods(&application, &self.cache.at(id).name, &origin)
                    && self.queue_request(id, request)
                {
                    return;
                }
                (origin, ANSWER, Content::Rejected(application.request, REASON))
            }
            EdgeContent::Watches(all) => {
                (of(&message.route.resource), "response", Content::WatchesRejected(all, REASON))
            }
            EdgeContent::Invalid(why)
                if matches!(&*message.route.source, "metaserver" | "servicebus") =>
            {
                self.counters.messages_unserved += 1;
                return self.count_offence(id, &why.to_string());
            }
            _ => {
                self.counters.messages_unserved += 1;
                return;
            }
        };
        self.counters.messages_unserved += 1;
        let answer = answer(&mut self.rng, now, &origin, operation, content);
        self.answer(id, answer);
    }
}

const ANSWER: &str = "applicationResponse";

fn answer(
    rng: &mut Rng,
    now: Now,
    origin: &Origin,
    operation: &'static str,
    content: Content,
) -> Box<CloudMessage> {
    let mut answer = outbound::response(rng, now, origin, 0, content);
    answer.source = "dynamiccontroller";
    answer.operation = operation;
    answer
}

/// The request for the pods of this node; `None`: it is another request.
fn own_pods(application: &Application, node: &str, origin: &Origin) -> Option<NodeRequest> {
    let Application { verb, key, options, request } = application;
    let options = options.as_ref()?;
    let is_own = options.field_selector == format!("spec.nodeName={node}");
    if &**verb != "list" || &**key != PODS || !is_own {
        return None;
    }
    let call = Call {
        verb: Verb::List,
        kind: Kind::Pod,
        namespace: "".into(),
        name: "".into(),
        subresource: None,
        body: Some(raw::json(options)),
    };
    let then = Then::List(request.clone());
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
    let content = Content::Listed(request.into(), list);
    answer(context.rng, context.now, origin, ANSWER, content)
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
