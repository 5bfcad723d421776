//! Label and field selectors of a query, as far as they are served.

use crate::model::application::Scope;
use crate::model::metaserver::Failure;
use crate::model::selector::LabelSelector;

fn bad(message: String) -> Failure {
    Failure::new(400, "BadRequest", message)
}

/// Reads a label selector.
pub(super) fn labels(text: &str) -> Result<LabelSelector, Failure> {
    LabelSelector::parse(text).map_err(|why| bad(why.to_string()))
}

/// Takes a field selector into the scope.
pub(super) fn fields(text: &str, scope: &mut Scope) -> Result<(), Failure> {
    for term in text.split(',').map(str::trim).filter(|term| !term.is_empty()) {
        let (field, value) = term.split_once('=').unwrap_or((term, ""));
        let value = value.strip_prefix('=').unwrap_or(value).trim();
        if is_pods(scope) && field.trim() == "status.phase!" {
            scope.other_phases.insert(phase(term, value)?);
            continue;
        }
        let is_valid =
            |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
        let is_pods = is_pods(scope);
        let place = match field.trim() {
            "metadata.name" => &mut scope.name,
            "metadata.namespace" => &mut scope.namespace,
            "spec.nodeName" if is_pods => &mut scope.node,
            "status.phase" if is_pods => {
                phase(term, value)?;
                &mut scope.phase
            }
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

fn is_pods(scope: &Scope) -> bool {
    scope.gvr.is("", "pods")
}

/// A phase of pods: a selector that `kubectl describe node` sends names two of them.
fn phase(term: &str, value: &str) -> Result<Box<str>, Failure> {
    if !PHASES.contains(&value) {
        let expected = PHASES.join(", ");
        return Err(bad(format!("got the field selector {term:?}, expected one of {expected}")));
    }
    Ok(value.into())
}

const PHASES: [&str; 5] = ["Pending", "Running", "Succeeded", "Failed", "Unknown"];
