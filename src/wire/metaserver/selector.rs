//! Label and field selectors of a query, as far as they are served.

use crate::limits::{SELECTOR_REQUIREMENTS_MAX, SELECTOR_VALUES_MAX};
use crate::model::application::{Requirement, Scope};
use crate::model::metaserver::Failure;

fn bad(message: String) -> Failure {
    Failure::new(400, "BadRequest", message)
}

/// Reads a label selector.
pub(super) fn labels(text: &str) -> Result<Vec<Requirement>, Failure> {
    let mut all = Vec::new();
    let mut rest = text.trim();
    while !rest.is_empty() {
        // A comma within parentheses is between values.
        let end = rest.find(',').filter(|end| !rest[..*end].contains('('));
        let end = end.or_else(|| {
            let close = rest.find(')')?;
            rest[close..].find(',').map(|more| close + more)
        });
        let (one, more) = end.map_or((rest, ""), |end| (&rest[..end], &rest[end + 1..]));
        all.push(requirement(one.trim()).ok_or_else(|| {
            bad(format!("unable to parse requirement: got {one:?}, expected key=value"))
        })?);
        if all.len() > SELECTOR_REQUIREMENTS_MAX {
            let most = SELECTOR_REQUIREMENTS_MAX;
            return Err(bad(format!("expected a selector of {most} requirements at most")));
        }
        rest = more.trim();
    }
    all.sort();
    all.dedup();
    Ok(all)
}

fn requirement(text: &str) -> Option<Requirement> {
    if let Some(key) = text.strip_prefix('!') {
        return Some(Requirement::Absent(key_of(key)?));
    }
    if let Some((head, values)) = text.split_once('(') {
        let (key, operator) = head.trim().rsplit_once(char::is_whitespace)?;
        let values = values.strip_suffix(')')?.split(',').map(str::trim);
        let mut values: Vec<Box<str>> = values.map(value_of).collect::<Option<_>>()?;
        values.sort();
        values.dedup();
        let is_short = values.len() <= SELECTOR_VALUES_MAX;
        return match operator.trim() {
            "in" if is_short => Some(Requirement::In(key_of(key)?, values)),
            "notin" if is_short => Some(Requirement::NotIn(key_of(key)?, values)),
            _ => None,
        };
    }
    if let Some((key, value)) = text.split_once("!=") {
        return Some(Requirement::NotIn(key_of(key)?, vec![value_of(value.trim())?]));
    }
    if let Some((key, value)) = text.split_once('=') {
        let value = value.strip_prefix('=').unwrap_or(value);
        return Some(Requirement::In(key_of(key)?, vec![value_of(value.trim())?]));
    }
    Some(Requirement::Exists(key_of(text)?))
}

/// A label's name: what could end a selector or begin another must not be in it.
fn key_of(text: &str) -> Option<Box<str>> {
    let text = text.trim();
    let is_valid =
        |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'/');
    (!text.is_empty() && text.bytes().all(is_valid)).then(|| text.into())
}

fn value_of(text: &str) -> Option<Box<str>> {
    let is_valid = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    text.bytes().all(is_valid).then(|| text.into())
}

/// Takes a field selector into the scope.
pub(super) fn fields(text: &str, scope: &mut Scope) -> Result<(), Failure> {
    for term in text.split(',').map(str::trim).filter(|term| !term.is_empty()) {
        let (field, value) = term.split_once('=').unwrap_or((term, ""));
        let value = value.strip_prefix('=').unwrap_or(value).trim();
        let is_valid =
            |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
        let is_pods = scope.gvr.group.is_empty() && &*scope.gvr.resource == "pods";
        let place = match field.trim() {
            "metadata.name" => &mut scope.name,
            "metadata.namespace" => &mut scope.namespace,
            "spec.nodeName" if is_pods => &mut scope.node,
            other => return Err(bad(format!("field label not supported: {other}"))),
        };
        if value.is_empty() || !value.bytes().all(is_valid) {
            return Err(bad(format!("got the field selector {term:?}, expected a name")));
        }
        if !place.is_empty() && **place != *value {
            return Err(bad(format!("got {value:?} beside {place:?} for {field}")));
        }
        *place = value.into();
    }
    Ok(())
}
