//! Answers requests for modules that do not exist here: MetaServer's cloud side, routers and tasks
//! (wire spec sections 5.12 and 5.13). All are counted; requests that expect an answer get an
//! error.
//!
//! One request of MetaServer is served: a node may list its own pods. So a node that lost its store
//! learns which of its running pods are still wanted.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::Controller;
use super::downstream::NodeContext;
use super::key::NodeId;
use super::object::Object;
use super::requests::{Form, NodeRequest, Then};
use super::say::{self, Origin};
use super::time::{Now, Rng};
use crate::model::api::{Call, Kind, ListOptions, Verb};
use crate::model::base64;
use crate::model::message::{Message, inner};

/// The resource of all watch requests of MetaServer, which it repeats now and then.
const WATCHES: &str = "watchapp/sync";
const REASON: &str = "MetaServer's cloud side is not built into edgecontroller";
/// All pods, of all namespaces.
const PODS: &str = "/core/v1/pods/null/null";

impl Controller {
    /// A message to a module that does not exist here.
    pub(super) fn unsupported_message(&mut self, now: Now, id: NodeId, message: &Message) {
        if &*message.route.source != "metaserver" {
            self.counters.messages_unserved += 1;
            return;
        }
        let watches = &*message.route.resource == WATCHES;
        let content = message.content.as_deref().map(inner).unwrap_or_default();
        let content = serde_json::from_str::<Map<String, Value>>(&content);
        let origin =
            Origin { id: message.header.id.clone(), resource: answer_resource(watches).into() };
        if let Ok(application) = &content
            && let Some(request) = own_pods(application, &self.cache.at(id).name, &origin)
            && self.queue_request(id, request)
        {
            return;
        }
        self.counters.messages_unserved += 1;
        let Some(content) = content.ok().and_then(|application| rejected(application, watches))
        else {
            let why = format!(
                "got a malformed request of MetaServer, expected {}",
                if watches { "Applications by their ids" } else { "an Application" }
            );
            return self.count_offence(id, &why);
        };
        let operation = if watches { "response" } else { ANSWER };
        let answer = answer(&mut self.rng, now, &origin, operation, &content);
        self.answer(id, answer);
    }
}

const ANSWER: &str = "applicationResponse";

fn answer_resource(watches: bool) -> &'static str {
    if watches { WATCHES } else { "ignore/Application/ignore" }
}

fn answer(
    rng: &mut Rng,
    now: Now,
    origin: &Origin,
    operation: &str,
    content: &Map<String, Value>,
) -> Box<Message> {
    let mut answer = say::response(rng, now, origin, 0, Some(say::json(content)));
    answer.route.source = "dynamiccontroller".into();
    answer.route.operation = operation.into();
    answer
}

/// The request for the pods of this node; `None`: it is another request.
fn own_pods(application: &Map<String, Value>, node: &str, origin: &Origin) -> Option<NodeRequest> {
    let text = |key: &str| application.get(key).and_then(Value::as_str);
    if text("Verb")? != "list" || text("Key")? != PODS {
        return None;
    }
    let options = base64::decode(text("Option")?)?;
    let options: ListOptions = serde_json::from_slice(&options).ok()?;
    if options.field_selector != format!("spec.nodeName={node}") {
        return None;
    }
    let call = Call {
        verb: Verb::List,
        kind: Kind::Pod,
        namespace: "".into(),
        name: "".into(),
        subresource: None,
        body: Some(say::json(&options)),
    };
    let mut application = application.clone();
    application.remove("ReqBody");
    let then = Then::List(Value::Object(application).to_string().into());
    Some(NodeRequest { origin: origin.clone(), call: Box::new(call), form: Form::Object, then })
}

/// The answer of the API server to such a request.
pub(super) fn listed(
    context: &mut NodeContext<'_>,
    origin: &Origin,
    application: &str,
    result: &Result<Box<RawValue>, (u16, Box<RawValue>)>,
) -> Box<Message> {
    let mut content: Map<String, Value> =
        serde_json::from_str(application).expect("it was read before");
    let error = match result.as_ref().map(|list| without_managed_fields(list)) {
        Ok(Some(list)) => {
            content.insert("Status".to_owned(), json!("Approved"));
            content.insert("RespBody".to_owned(), base64::encode(list.as_bytes()).into());
            return answer(context.rng, context.now, origin, ANSWER, &content);
        }
        Ok(None) => say::status(500, "InternalError", "the API server's list cannot be parsed"),
        Err((_, status)) => status.clone(),
    };
    content.insert("Status".to_owned(), json!("Rejected"));
    content.insert("Error".to_owned(), json!({"ErrStatus": error}));
    answer(context.rng, context.now, origin, ANSWER, &content)
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
            *item = say::copy(&read.object.json);
        }
    }
    serde_json::to_string(&list).ok()
}

/// The same application, with its rejection.
fn rejected(mut application: Map<String, Value>, watches: bool) -> Option<Map<String, Value>> {
    if watches {
        for watch in application.values_mut() {
            reject(watch.as_object_mut()?);
        }
        return Some(application);
    }
    application.get("ID")?.as_str()?;
    reject(&mut application);
    Some(application)
}

fn reject(application: &mut Map<String, Value>) {
    // It is not needed for the answer, and may be a whole object.
    application.insert("ReqBody".to_owned(), json!(""));
    application.insert("Status".to_owned(), json!("Rejected"));
    application.insert("Reason".to_owned(), json!(REASON));
    let status = json!({"metadata": {}, "status": "Failure", "message": REASON,
        "reason": "NotImplemented", "code": 501});
    application.insert("Error".to_owned(), json!({"ErrStatus": status}));
}
