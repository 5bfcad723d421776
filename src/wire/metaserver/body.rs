//! What requests have in common: names, bodies of JSON, and refusals.

use serde_json::value::RawValue;

use crate::model::metaserver::Failure;
use crate::model::tree;
use crate::wire::http1::call;

pub(super) fn bad(message: impl Into<String>) -> Failure {
    Failure::new(400, "BadRequest", message)
}

pub(super) fn not_found(path: &str) -> Failure {
    let message = format!("the server could not find the requested resource: {path}");
    Failure::new(404, "NotFound", message)
}

/// Whether it may be part of a key (Kubernetes' path segment names).
pub(super) fn is_segment(text: &str) -> bool {
    let is_plain =
        |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'/' | b'%' | b'"' | b'\\');
    !matches!(text, "." | ".." | "null") && text.len() <= 253 && text.bytes().all(is_plain)
}

/// A body is JSON, also where nothing is said: typed clients may send protobuf.
pub(super) fn json_type(request: &call::Call) -> Result<(), Failure> {
    let kind = media_type(request);
    if !matches!(kind, "" | "application/json") {
        let message = format!("got Content-Type: {kind}, expected application/json");
        return Err(Failure::new(415, "UnsupportedMediaType", message));
    }
    Ok(())
}

/// The `Content-Type` of a request without its parameters.
pub(super) fn media_type(request: &call::Call) -> &str {
    request.header("content-type").split(';').next().unwrap_or_default().trim()
}

/// A body that is JSON; `None`: it is empty.
pub(super) fn json_text(body: &[u8]) -> Result<Option<&str>, Failure> {
    if body.is_empty() {
        return Ok(None);
    }
    let text = std::str::from_utf8(body).ok();
    let is_json = |text: &&str| {
        tree::within_object(text).is_ok() && serde_json::from_str::<&RawValue>(text).is_ok()
    };
    text.filter(is_json).map(Some).ok_or_else(|| bad("got a body that is no JSON object"))
}
