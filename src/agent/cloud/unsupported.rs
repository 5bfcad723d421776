//! Answers messages about features that edged does not have: routers, node jobs, CSI volumes,
//! device twins (wire spec sections 4.8 to 4.10, 5.13 and 10).

use crate::agent::time::Now;
use crate::model::message::Message;
use crate::model::upstream::Reply;

/// The answer to a message of an unsupported group; `None`: no answer is expected.
pub(super) fn reply(now: Now, message: &Message) -> Option<Reply> {
    let route = &message.route;
    match &*route.group {
        "taskmanager" => Some(Reply::NoNodeJobs {
            action: route.operation.clone(),
            at: now.timestamp().unwrap_or_default(),
        }),
        // An HTTP request for a service on the node; subscriptions are not answered.
        "user" if &*route.source == "router_servicebus" && is_http(&route.operation) => {
            Some(Reply::NoServices)
        }
        _ => None,
    }
}

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
