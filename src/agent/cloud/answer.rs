//! Parses the cloud's answer to a request (wire spec section 5): an object, «OK», or an error.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::bulk;
use crate::limits::Budget;
use crate::model::message::Message;

/// The answer to a request.
#[derive(Debug)]
pub(super) enum Answer {
    /// The object as the API server has it now.
    Object(Box<RawValue>),
    Done,
    /// The API server refused.
    Refused(Refusal),
}

/// meta/v1 `Status` of a failure.
#[derive(Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(super) struct Refusal {
    /// `NotFound`, `AlreadyExists`, `Conflict` …; empty if the cloud does not say.
    pub reason: Box<str>,
    /// For the user.
    pub message: Box<str>,
    /// The HTTP status; 0 if the cloud does not say.
    pub code: u16,
}

/// `ObjectResp`: both keys are always present, which distinguishes it from a bare object.
#[derive(Deserialize)]
struct ObjectResp<'a> {
    #[serde(borrow, rename = "Object", deserialize_with = "Option::deserialize")]
    object: Option<&'a RawValue>,
    #[serde(rename = "Err", deserialize_with = "Option::deserialize")]
    error: Option<Failure>,
}

#[derive(Deserialize)]
struct Failure {
    #[serde(default, rename = "ErrStatus")]
    status: Refusal,
}

#[derive(Deserialize)]
struct Bare {
    #[serde(rename = "ErrStatus")]
    status: Option<Refusal>,
    metadata: Option<serde::de::IgnoredAny>,
}

impl Answer {
    /// Parses an answer. Anything that is neither an object nor «OK» is a refusal: an answer that
    /// is not understood must not count as an object.
    pub(super) fn read(message: &Message, budget: &Budget) -> Self {
        let Some(content) = &message.content else { return Self::unclear("nothing") };
        let text = match bulk::inner(content, budget) {
            Ok(text) => text,
            Err(why) => return Self::unclear(&why),
        };
        if &*message.route.operation == "error" {
            return Self::unclear(&text);
        }
        if text == "OK" {
            return Self::Done;
        }
        if let Ok(parsed) = serde_json::from_str::<ObjectResp<'_>>(&text) {
            return match (parsed.error, parsed.object) {
                (Some(failure), _) if failure.status.is_failure() => Self::Refused(failure.status),
                // Go's cloud writes «{}» for an error that is not from the API server, beside an
                // object without any field.
                (Some(_), Some(object)) if !is_named(object) => {
                    Self::unclear("an empty error and an empty object")
                }
                (Some(_) | None, Some(object)) => Self::Object(object.to_owned()),
                (Some(_) | None, None) => Self::unclear("neither an object nor an error"),
            };
        }
        match serde_json::from_str::<Bare>(&text) {
            Ok(Bare { status: Some(refusal), .. }) => Self::Refused(refusal),
            Ok(Bare { metadata: Some(_), .. }) => match RawValue::from_string(text.into_owned()) {
                Ok(object) => Self::Object(object),
                Err(error) => Self::unclear(&error.to_string()),
            },
            Ok(_) => Self::unclear("neither an object nor an error"),
            Err(_) => Self::unclear(&text),
        }
    }

    fn unclear(got: &str) -> Self {
        let got: String = got.chars().take(256).collect();
        Self::Refused(Refusal { message: got.into(), ..Refusal::default() })
    }
}

fn is_named(object: &RawValue) -> bool {
    serde_json::from_str::<Named>(object.get()).is_ok_and(|parsed| !parsed.metadata.name.is_empty())
}

#[derive(Deserialize)]
struct Named {
    metadata: Name,
}

#[derive(Deserialize)]
struct Name {
    #[serde(default)]
    name: Box<str>,
}

impl Refusal {
    /// The API server has no such object, or not this incarnation of it.
    pub(super) fn is_not_found(&self) -> bool {
        self.code == 404 || &*self.reason == "NotFound"
    }

    /// The API server itself says that it has no pod of this name. A 404 of a proxy, or of a
    /// namespace, has another message.
    pub(super) fn has_no_pod(&self, name: &str) -> bool {
        self.is_not_found() && *self.message == *format!("pods \"{name}\" not found")
    }

    /// The object was changed, or deleted and created again, since we knew it.
    pub(super) fn is_conflict(&self) -> bool {
        self.code == 409 || &*self.reason == "Conflict"
    }

    /// Go sometimes writes an empty error for «no error».
    fn is_failure(&self) -> bool {
        *self != Self::default()
    }
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (&*self.reason, &*self.message) {
            ("", "") => f.write_str("refused without a reason"),
            ("", message) => f.write_str(message),
            (reason, message) => write!(f, "{message} ({reason})"),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::model::message::{Header, Route};

    fn read(operation: &str, content: &Value) -> Answer {
        let content = serde_json::value::to_raw_value(content).expect("JSON");
        let route = Route { operation: operation.into(), ..Route::default() };
        let message = Message { header: Header::default(), route, content: Some(content) };
        Answer::read(&message, &Budget::FULL)
    }

    fn refusal(code: u16, reason: &str, message: &str) -> Refusal {
        Refusal { reason: reason.into(), message: message.into(), code }
    }

    #[test]
    fn an_answer_is_an_object_done_or_a_refusal() {
        let object = json!({"metadata": {"name": "p"}, "spec": {}});
        let unnamed = json!({"metadata": {"creationTimestamp": null}, "spec": {}});
        let not_found =
            json!({"ErrStatus": {"reason": "NotFound", "message": "no p", "code": 404}});
        let no_p = "no p (NotFound)";
        for (operation, content, expected) in [
            ("response", json!("OK"), "done"),
            ("response", object.clone(), "object"),
            ("response", json!({"Object": object, "Err": null}), "object"),
            // How Go writes «no error».
            ("response", json!({"Object": object, "Err": {}}), "object"),
            ("response", json!({"Object": object, "Err": {"ErrStatus": {}}}), "object"),
            (
                "response",
                json!({"Object": unnamed, "Err": {}}),
                "an empty error and an empty object",
            ),
            ("response", json!({"Object": unnamed, "Err": not_found}), no_p),
            ("response", json!({"Object": null, "Err": not_found}), no_p),
            ("response", not_found, no_p),
            ("response", json!({"Object": null, "Err": null}), "neither an object nor an error"),
            ("response", json!({"spec": {}}), "neither an object nor an error"),
            ("response", json!("no"), "no"),
            // Whatever the content is.
            ("error", json!("OK"), "OK"),
            ("error", object.clone(), &*object.to_string()),
        ] {
            let got = match read(operation, &content) {
                Answer::Object(_) => "object".to_owned(),
                Answer::Done => "done".to_owned(),
                Answer::Refused(why) => why.to_string(),
            };
            assert_eq!(got, expected, "{operation} {content}");
        }
    }

    #[test]
    fn a_refusal_is_classified_by_its_code_or_its_reason() {
        for (refused, not_found, conflict) in [
            (refusal(404, "", ""), true, false),
            (refusal(0, "NotFound", ""), true, false),
            (refusal(409, "AlreadyExists", ""), false, true),
            (refusal(0, "Conflict", ""), false, true),
            (refusal(500, "InternalError", ""), false, false),
        ] {
            let got = (refused.is_not_found(), refused.is_conflict());
            assert_eq!(got, (not_found, conflict), "{refused:?}");
        }
        let message = "pods \"p\" not found";
        assert!(refusal(404, "NotFound", message).has_no_pod("p"));
        assert!(!refusal(404, "NotFound", message).has_no_pod("q"));
        assert!(!refusal(403, "Forbidden", message).has_no_pod("p"));
    }
}
