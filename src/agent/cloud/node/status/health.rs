//! What the node's conditions say (spec section 9.2).

use serde_json::{Value, json};

use super::{Beat, Seen};
use crate::agent::time::{Instant, Now};
use crate::limits::RUNTIME_DOWN_MS;

/// One condition, as we see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::agent::cloud::node) struct Condition {
    pub kind: &'static str,
    pub is_true: bool,
    pub reason: &'static str,
    pub message: String,
}

/// Whether the node serves pods.
#[derive(Debug, Default)]
pub(in crate::agent::cloud::node) struct Health {
    /// What keeps it from that.
    troubles: Vec<String>,
    /// Since when the runtime is not there, and whether it ever was.
    down_since: Option<Instant>,
    was_up: bool,
}

impl Health {
    /// Looks at it.
    pub(in crate::agent::cloud::node) fn look(&mut self, seen: &Seen<'_>, now: Now) {
        self.troubles.clear();
        let told = seen.runtime.status();
        if let Some(Err(why)) = told.map(|status| &status.runtime) {
            let why = condition("RuntimeReady", why);
            self.troubles.push(format!("container runtime not ready: {why}"));
        } else if let Some(why) = seen.runtime.trouble(now) {
            let since = *self.down_since.get_or_insert(now.boot);
            if !self.was_up {
                let why = "container runtime status check may not have completed yet";
                self.troubles.push(why.to_owned());
            } else if now.boot.since_ms(since) >= RUNTIME_DOWN_MS {
                self.troubles.push(format!("container runtime is down: {why}"));
            }
        } else {
            self.down_since = None;
            self.was_up = true;
            self.troubles.extend(pleg_trouble(seen, now));
        }
        if let Some(why) = seen.runtime.network_trouble() {
            let why = condition("NetworkReady", why);
            self.troubles.push(format!("container runtime network not ready: {why}"));
        }
    }

    pub(in crate::agent::cloud::node) fn is_ready(&self) -> bool {
        self.troubles.is_empty()
    }

    /// The node's conditions, `Ready` last. `store_trouble`: why nothing of the cloud's is kept.
    pub(in crate::agent::cloud::node) fn conditions(
        &self,
        seen: &Seen<'_>,
        store_trouble: Option<&str>,
        base: Option<&Value>,
    ) -> Vec<Condition> {
        let mut all = pressures(seen);
        // Told of from the first trouble on.
        if store_trouble.is_some() || super::has(base, STORE) {
            all.push(store(store_trouble));
        }
        all.push(self.ready());
        all
    }

    fn ready(&self) -> Condition {
        let (is_true, reason, message) = match &self.troubles[..] {
            [] => (true, "EdgeReady", "edge is posting ready status".to_owned()),
            [trouble] => (false, "KubeletNotReady", trouble.clone()),
            troubles => (false, "KubeletNotReady", format!("[{}]", troubles.join(", "))),
        };
        Condition { kind: "Ready", is_true, reason, message }
    }
}

/// What the node runs short of, as the eviction has found out.
fn pressures(seen: &Seen<'_>) -> Vec<Condition> {
    let told = seen.node.conditions().map(|told| Condition {
        kind: told.kind,
        is_true: told.status,
        reason: told.reason,
        message: told.message.to_owned(),
    });
    told.collect()
}

/// Our own: what the cloud sends cannot be kept, so it is not taken.
const STORE: &str = "StoreProblem";

fn store(trouble: Option<&str>) -> Condition {
    let (is_true, reason, message) = match trouble {
        Some(why) => {
            (true, "StoreCannotKeep", format!("edged does not keep what the cloud sends: {why}"))
        }
        None => (false, "StoreKeeps", "edged keeps what the cloud sends".to_owned()),
    };
    Condition { kind: STORE, is_true, reason, message }
}

/// As the CRI's condition is printed, out of «reason: message».
fn condition(kind: &str, why: &str) -> String {
    let (reason, message) = why.split_once(": ").unwrap_or(("", why));
    format!("{kind}=false reason:{reason} message:{message}")
}

/// The age is left out: a message that changes all the time would be told all the time.
fn pleg_trouble(seen: &Seen<'_>, now: Now) -> Option<String> {
    let why = seen.pleg.trouble(now)?;
    let stable = why.split_once(" ago").map_or(&*why, |_| "pleg was last seen active too long ago");
    Some(format!("PLEG is not healthy: {stable}"))
}

impl Condition {
    /// As it is told, where the cloud has `had`; `null`: nothing.
    pub(super) fn over(&self, had: &Value, now: Now, beat: Beat) -> Value {
        let status = if self.is_true { "True" } else { "False" };
        let same = had["status"] == status;
        let unchanged =
            same && had["reason"] == self.reason && had["message"] == self.message.as_str();
        let at = || now.timestamp().map_or(Value::Null, |at| json!(at));
        let kept = |key: &str| if had[key].is_null() { at() } else { had[key].clone() };
        let beat_at = match beat {
            Beat::WithChanges if unchanged => kept("lastHeartbeatTime"),
            Beat::New | Beat::WithChanges => at(),
        };
        let changed_at = if same { kept("lastTransitionTime") } else { at() };
        let mut told = json!({
            "type": self.kind,
            "status": status,
            "reason": self.reason,
            "message": self.message,
        });
        for (key, at) in [("lastHeartbeatTime", beat_at), ("lastTransitionTime", changed_at)] {
            if !at.is_null() {
                told[key] = at;
            }
        }
        told
    }
}
