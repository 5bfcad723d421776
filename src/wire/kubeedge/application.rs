//! Reads the dynamic controller's answers to requests of MetaServer (metaserver.md, section 6).

use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::limits::Budget;
use crate::model::application::APPLICATION_ID;
use crate::model::base64;
use crate::model::message::{self, Message};
use crate::model::metaserver::Answer;
use crate::model::tree;
use crate::wire::metaserver::item;

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Application<'a> {
    #[serde(rename = "ID", default)]
    id: Box<str>,
    #[serde(default)]
    verb: Box<str>,
    #[serde(default)]
    status: Box<str>,
    #[serde(default)]
    reason: Option<Box<str>>,
    #[serde(borrow, default)]
    error: Option<Failed<'a>>,
    #[serde(default)]
    resp_body: Option<Box<str>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Failed<'a> {
    #[serde(borrow, default)]
    err_status: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Status {
    code: u16,
}

/// `None`: it answers another request.
pub(super) fn answer(message: &Message, budget: &Budget) -> Option<Answer> {
    let text = message::inner(message.content.as_deref()?);
    let application: Application<'_> = serde_json::from_str(&text).ok()?;
    if !application.id.starts_with(APPLICATION_ID) {
        return None;
    }
    if &*application.status != "Approved" {
        return Some(refusal(&application));
    }
    Some(body(&application, budget).unwrap_or_else(|why| Answer::Failed(why.into())))
}

fn refusal(application: &Application<'_>) -> Answer {
    let status = application.error.as_ref().and_then(|error| error.err_status);
    let code = status
        .map_or(0, |status| serde_json::from_str::<Status>(status.get()).unwrap_or_default().code);
    match status {
        Some(status) if (400..600).contains(&code) => Answer::Refused(code, whole(status)),
        _ => {
            let reason = application.reason.as_deref().filter(|reason| !reason.is_empty());
            Answer::Failed(reason.unwrap_or("it gives no reason").into())
        }
    }
}

/// The `Status` as the API server answers it: the cloud leaves its kind out.
fn whole(status: &RawValue) -> Box<str> {
    let parsed: Result<serde_json::Map<String, serde_json::Value>, _> =
        serde_json::from_str(status.get());
    let Ok(mut status) = parsed else { return status.get().into() };
    status.insert("kind".to_owned(), "Status".into());
    status.insert("apiVersion".to_owned(), "v1".into());
    serde_json::Value::Object(status).to_string().into()
}

fn body(application: &Application<'_>, budget: &Budget) -> Result<Answer, String> {
    let body = application.resp_body.as_deref().unwrap_or_default();
    let body = base64::decode(body).ok_or("got no base64")?;
    let body = String::from_utf8(body).map_err(|_| "got no UTF-8")?;
    tree::within_values(&body, budget.message_values_max, budget).map_err(|it| it.to_string())?;
    match &*application.verb {
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
