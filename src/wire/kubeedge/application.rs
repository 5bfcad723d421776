//! Requests of MetaServer to the dynamic controller, and its answers (spec `metaserver`, section
//! 6). Both have one form, KubeEdge's `Application`: an answer is the request with a result in it.
//!
//! Here is the node's side: it writes requests and reads answers. The cloud's is in `cloud`.

#[cfg(feature = "controller")]
pub(super) mod cloud;

#[cfg(feature = "metaserver")]
use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::limits::Budget;
#[cfg(feature = "metaserver")]
use crate::model::application::{APPLICATION_ID, Application, Options};
use crate::model::base64;
use crate::model::error::Peer;
#[cfg(feature = "metaserver")]
use crate::model::message::{self, Message};
#[cfg(feature = "metaserver")]
use crate::model::metaserver::Answer;
use crate::model::tree;
#[cfg(feature = "metaserver")]
use crate::wire::metaserver::item;

// ---- requests ----

/// KubeEdge's ids are digests, by which the cloud only recognizes watches.
pub(super) fn request(id: &str, key: &str, verb: &str, node: &str, options: &Value) -> Value {
    json!({
        "ID": id, "Key": key, "Verb": verb, "Nodename": node,
        "Option": base64::encode(options.to_string().as_bytes()), "ReqBody": "",
        "Subresource": "", "RespBody": null, "Status": "InApplying", "Reason": "",
    })
}

/// Adds selectors to the options of a list or a watch; empty: none.
#[cfg(any(feature = "metaserver", feature = "services"))]
pub(super) fn select(options: &mut Value, labels: &str, fields: &str) {
    for (key, selector) in [("labelSelector", labels), ("fieldSelector", fields)] {
        if !selector.is_empty() {
            options[key] = selector.into();
        }
    }
}

#[cfg(feature = "metaserver")]
pub(super) fn encode(application: &Application) -> Value {
    let options = match &application.options {
        Options::None => json!({}),
        Options::List { labels, fields, limit, page } => {
            let mut options = json!({"limit": limit});
            select(&mut options, labels, fields);
            if !page.is_empty() {
                options["continue"] = (**page).into();
            }
            options
        }
        Options::Given(text) => serde_json::from_str(text).unwrap_or_default(),
    };
    let Application { id, key, verb, node, body, subresource, .. } = application;
    let mut content = request(id, key, verb, node, &options);
    if let Some(body) = body {
        content["ReqBody"] = base64::encode(body.as_bytes()).into();
    }
    content["Subresource"] = (**subresource).into();
    content
}

// ---- answers ----

/// An answer, as far as a node reads it.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Answered<'a> {
    #[cfg(feature = "metaserver")]
    #[serde(rename = "ID", default)]
    id: Box<str>,
    #[cfg(feature = "metaserver")]
    #[serde(default)]
    verb: Box<str>,
    #[serde(default)]
    pub(super) status: Box<str>,
    #[serde(default)]
    reason: Option<Box<str>>,
    #[serde(borrow, default)]
    error: Option<Failed<'a>>,
    #[serde(default)]
    pub(super) resp_body: Option<Box<str>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Failed<'a> {
    #[serde(borrow, default)]
    err_status: Option<&'a RawValue>,
}

/// meta/v1 `Status`
#[derive(Default, Deserialize)]
#[serde(default)]
struct Status {
    #[cfg(feature = "metaserver")]
    code: u16,
    message: Option<Box<str>>,
}

impl Answered<'_> {
    /// Whether the API server has done what was requested.
    pub(super) fn is_approved(&self) -> bool {
        &*self.status == "Approved"
    }

    /// Why it was not approved; empty: it gives no reason.
    pub(super) fn why(&self) -> Box<str> {
        let message = self.err_status().message.filter(|message| !message.is_empty());
        message.or_else(|| self.reason.clone()).unwrap_or_default()
    }

    fn err_status(&self) -> Status {
        let status = self.error.as_ref().and_then(|error| error.err_status);
        status.and_then(|it| serde_json::from_str(it.get()).ok()).unwrap_or_default()
    }
}

/// A body of an answer as JSON, checked against the limits of what the cloud sends.
pub(super) fn body(body: Option<&str>, budget: &Budget) -> Result<String, Peer> {
    let body = base64::decode(body.unwrap_or_default());
    let body = body.ok_or_else(|| Peer::new("got no base64"))?;
    let body = String::from_utf8(body).map_err(|_| Peer::new("got no UTF-8"))?;
    let fits = tree::within_values(&body, budget.message_values_max, budget);
    fits.map_err(|why| Peer::new(why.to_string()))?;
    Ok(body)
}

/// The answer to a request of MetaServer; `None`: it answers another request.
#[cfg(feature = "metaserver")]
pub(super) fn answer(message: &Message, budget: &Budget) -> Option<Answer> {
    let text = message::inner(message.content.as_deref()?);
    let answered: Answered<'_> = serde_json::from_str(&text).ok()?;
    if !answered.id.starts_with(APPLICATION_ID) {
        return None;
    }
    if !answered.is_approved() {
        return Some(refusal(&answered));
    }
    Some(done(&answered, budget).unwrap_or_else(|why| Answer::Failed(why.into())))
}

#[cfg(feature = "metaserver")]
fn refusal(answered: &Answered<'_>) -> Answer {
    let code = answered.err_status().code;
    match answered.error.as_ref().and_then(|error| error.err_status) {
        Some(status) if (400..600).contains(&code) => Answer::Refused(code, whole(status)),
        _ => {
            let reason = answered.reason.as_deref().filter(|reason| !reason.is_empty());
            let reason = reason.unwrap_or("it gives no reason");
            list_refusal(reason).unwrap_or_else(|| Answer::Failed(reason.into()))
        }
    }
}

/// A refusal of a list by CloudCore, which keeps only the text of the API server's error. `None`:
/// it is no refusal, for example because the API server could not be reached.
#[cfg(feature = "metaserver")]
fn list_refusal(reason: &str) -> Option<Answer> {
    let message = reason.strip_prefix("get current list error: ")?;
    let known = [
        (404, "NotFound", "could not find the requested resource"),
        (403, "Forbidden", " is forbidden: "),
        (410, "Expired", "continue parameter is too old"),
    ];
    let (code, reason, _) = known.into_iter().find(|(.., text)| message.contains(text))?;
    let status = serde_json::json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": reason, "code": code,
    });
    Some(Answer::Refused(code, status.to_string().into()))
}

/// The `Status` as the API server answers it: the cloud leaves its kind out.
#[cfg(feature = "metaserver")]
fn whole(status: &RawValue) -> Box<str> {
    let parsed: Result<serde_json::Map<String, Value>, _> = serde_json::from_str(status.get());
    let Ok(mut status) = parsed else { return status.get().into() };
    status.insert("kind".to_owned(), "Status".into());
    status.insert("apiVersion".to_owned(), "v1".into());
    Value::Object(status).to_string().into()
}

#[cfg(feature = "metaserver")]
fn done(answered: &Answered<'_>, budget: &Budget) -> Result<Answer, String> {
    let body = body(answered.resp_body.as_deref(), budget).map_err(|why| why.to_string())?;
    match &*answered.verb {
        "list" => item::page(&body).map(Answer::Page).map_err(|why| why.to_string()),
        "get" => match item::read(&body, None) {
            Some(item) => Ok(Answer::Item(Arc::new(item))),
            None => Err("got an answer that is no object".to_owned()),
        },
        _ if matches!(body.trim(), "" | "null") => Ok(Answer::Done(None)),
        _ => match serde_json::from_str::<&RawValue>(&body) {
            Ok(text) => Ok(Answer::Done(Some(text.get().into()))),
            Err(_) => Err("got an answer that is no JSON".to_owned()),
        },
    }
}
