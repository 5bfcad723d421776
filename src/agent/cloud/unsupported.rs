//! Answers messages about features that edged does not have: routers, node jobs, CSI volumes,
//! device twins (wire spec sections 4.8 to 4.10, 5.13 and 10).

use serde_json::json;

use super::talk::{self, Origin};
use crate::agent::time::{Now, Rng};
use crate::model::message::Message;

/// The text of all these answers.
const WHY: &str = "not built into edged";

/// The answer to a message of an unsupported group; `None`: no answer is expected.
pub(super) fn answer(rng: &mut Rng, now: Now, message: &Message) -> Option<Message> {
    let route = &message.route;
    let to = Origin::of(message);
    match &*route.group {
        "taskmanager" => {
            let finished = now.timestamp().unwrap_or_default().to_string();
            let content = json!({
                "action": &*route.operation, "succ": false, "finishTime": finished,
                "reason": WHY, "extend": "",
            });
            let mut response =
                talk::answer(rng, now, &to, "UpdateNodeActionStatus", talk::json(&content));
            response.route.source = "websocket".into();
            response.route.group = "hub".into();
            Some(response)
        }
        // An HTTP request for a service on the node; subscriptions are not answered.
        "user" if &*route.source == "router_servicebus" && is_http(&route.operation) => {
            let content = json!({"header": {}, "status_code": 501, "body": NOT_BUILT_IN_BASE64});
            let mut response = talk::answer(rng, now, &to, "upload", talk::json(&content));
            response.route.source = "servicebus".into();
            response.route.resource = "".into();
            Some(response)
        }
        _ => None,
    }
}

/// `not built into edged`
const NOT_BUILT_IN_BASE64: &str = "bm90IGJ1aWx0IGludG8gZWRnZWQ=";

fn is_http(operation: &str) -> bool {
    matches!(operation, "GET" | "HEAD" | "POST" | "PUT" | "PATCH" | "DELETE" | "OPTIONS")
}

/// Whether it is a call of the CSI controller (section 4.9).
pub(super) fn is_volume(operation: &str) -> bool {
    matches!(
        operation,
        "createvolume" | "deletevolume" | "controllerpublishvolume" | "controllerunpublishvolume"
    )
}

/// The answer to a call of the CSI controller.
pub(super) fn no_volume(rng: &mut Rng, now: Now, message: &Message) -> Message {
    talk::answer(rng, now, &Origin::of(message), "response", talk::json(WHY))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_base64_constant_is_the_text() {
        let bytes = crate::model::base64::decode(NOT_BUILT_IN_BASE64).expect("base64");
        assert_eq!(bytes, WHY.as_bytes());
    }
}
