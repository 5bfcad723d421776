//! Calls about resources by their paths, which a node's `MetaServer` makes: of the kinds that are
//! here, objects may be read.

use serde_json::json;
use serde_json::value::{RawValue, to_raw_value};

use super::{Key, Objects, discovery};
use crate::controller::dynamic::AnyObject;
use crate::model::any_api::{AnyCall, AnyTarget, AnyVerb};
use crate::model::api::{CallError, CallResult, Kind};
use crate::model::application::Gvr;
use crate::model::selector::{FieldSelector, LabelSelector};

impl Objects {
    /// Answers a call.
    pub fn call_any(&self, call: &AnyCall) -> CallResult {
        let (resource, namespace, name, subresource) = match &call.target {
            AnyTarget::Object { resource, namespace, name, subresource } => {
                (resource, namespace, name, subresource)
            }
            AnyTarget::Path(path) => {
                let missing = || refused(404, "NotFound", "a folder of manifests has no such path");
                let answer = discovery::answer(path).ok_or_else(missing)?;
                return Ok(to_raw_value(&answer).expect("plain data"));
            }
        };
        let kind = kind_of(resource).ok_or_else(|| unknown(resource))?;
        match call.verb {
            AnyVerb::Get if subresource.is_empty() => {
                let key = Key { kind, namespace: namespace.clone(), name: name.clone() };
                let plural = kind.plural();
                let text = self.text(&key).ok_or_else(|| {
                    refused(404, "NotFound", &format!("{plural} \"{name}\" not found"))
                })?;
                Ok(raw(text))
            }
            AnyVerb::List => self.list_any(kind, namespace, call),
            _ => Err(refused(405, "MethodNotAllowed", "objects of manifests are only read here")),
        }
    }

    fn list_any(&self, kind: Kind, namespace: &str, call: &AnyCall) -> CallResult {
        if !self.read {
            return Err(refused(503, "ServiceUnavailable", "the manifests are being read"));
        }
        let bad = |why: crate::model::error::Peer| refused(400, "BadRequest", &why.to_string());
        let labels = LabelSelector::parse(call.parameter("labelSelector")).map_err(bad)?;
        let fields = FieldSelector::parse(call.parameter("fieldSelector")).map_err(bad)?;
        let is_selected = |text: &&str| {
            let object = AnyObject::read(&raw(text));
            object.is_ok_and(|(name, it)| {
                labels.matches(&it.labels) && fields.matches(&it.fields(&name))
            })
        };
        let items: Vec<Box<RawValue>> =
            self.all(kind, namespace).filter(is_selected).map(raw).collect();
        let list = json!({"kind": format!("{}List", kind.name()), "apiVersion": kind.api_version(),
            "metadata": {"resourceVersion": self.version().to_string()}, "items": items});
        Ok(to_raw_value(&list).expect("plain data"))
    }
}

/// The kind of a resource that is here.
pub fn kind_of(resource: &Gvr) -> Option<Kind> {
    let version = resource.api_version();
    let is_it = |kind: &Kind| kind.plural() == &*resource.resource && kind.api_version() == version;
    Kind::ALL.into_iter().find(is_it)
}

/// What an API server answers about a resource that it does not have.
pub fn unknown(resource: &Gvr) -> CallError {
    let why = format!("the server could not find the requested resource {resource}");
    refused(404, "NotFound", &why)
}

fn refused(code: u16, reason: &str, message: &str) -> CallError {
    let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": reason, "code": code});
    CallError::Refused { code, status: to_raw_value(&status).expect("plain data") }
}

fn raw(text: &str) -> Box<RawValue> {
    RawValue::from_string(text.to_owned()).expect("it was written as JSON")
}
