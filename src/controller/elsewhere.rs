//! What is asked of modules that are not here: MetaServer's cloud side, routers and tasks (wire
//! spec sections 5.12 and 5.13). All is counted; who waits for an answer gets one that says so.

use serde_json::{Map, Value, json};

use super::Controller;
use super::key::NodeId;
use super::say::{self, Origin};
use super::time::Now;
use crate::model::message::{Message, inner};

/// All requests of MetaServer's that watch, which it sends again now and then.
const WATCHES: &str = "watchapp/sync";
const REASON: &str = "MetaServer's cloud side is not built into edgecontroller";

impl Controller {
    /// A message to a module that is not here.
    pub(super) fn ask_elsewhere(&mut self, now: Now, id: NodeId, message: &Message) {
        self.counters.messages_unserved += 1;
        if &*message.route.source != "metaserver" {
            return;
        }
        let watches = &*message.route.resource == WATCHES;
        let content = message.content.as_deref().map(inner).unwrap_or_default();
        let content = serde_json::from_str::<Map<String, Value>>(&content);
        let Some(answer) = content.ok().and_then(|asked| rejected(asked, watches)) else {
            let why = format!(
                "got a request of MetaServer's that is none, expected {}",
                if watches { "Applications by their ids" } else { "an Application" }
            );
            return self.offended(id, &why);
        };
        let resource = if watches { WATCHES } else { "ignore/Application/ignore" };
        let origin = Origin { id: message.header.id.clone(), resource: resource.into() };
        let mut answer = say::response(&mut self.rng, now, &origin, 0, Some(say::json(&answer)));
        answer.route.source = "dynamiccontroller".into();
        if !watches {
            answer.route.operation = "applicationResponse".into();
        }
        self.answer(id, answer);
    }
}

/// The same, with what has become of it.
fn rejected(mut asked: Map<String, Value>, watches: bool) -> Option<Map<String, Value>> {
    if watches {
        for watch in asked.values_mut() {
            reject(watch.as_object_mut()?);
        }
        return Some(asked);
    }
    asked.get("ID")?.as_str()?;
    reject(&mut asked);
    Some(asked)
}

fn reject(application: &mut Map<String, Value>) {
    // It is not needed for the answer, and may be all of an object.
    application.insert("ReqBody".to_owned(), json!(""));
    application.insert("Status".to_owned(), json!("Rejected"));
    application.insert("Reason".to_owned(), json!(REASON));
    let status = json!({"metadata": {}, "status": "Failure", "message": REASON,
        "reason": "NotImplemented", "code": 501});
    application.insert("Error".to_owned(), json!({"ErrStatus": status}));
}
