//! The conditions of the node (spec section 9.2).

use crate::agent::cloud::node::NodeInputs;
use crate::agent::time::{Instant, Now};
use crate::limits::RUNTIME_DOWN_MS;
use crate::model::node_status::{Condition, NodeStatus};

/// Whether the node can run pods.
#[derive(Debug, Default)]
pub(in crate::agent::cloud::node) struct Health {
    /// The reasons why it cannot.
    troubles: Vec<String>,
    /// Since when the runtime is down, and whether it was ever up.
    down_since: Option<Instant>,
    was_up: bool,
}

impl Health {
    /// Computes the health.
    pub(in crate::agent::cloud::node) fn update(&mut self, inputs: &NodeInputs<'_>, now: Now) {
        self.troubles.clear();
        let status = inputs.runtime.status();
        if let Some(Err(why)) = status.map(|status| &status.runtime) {
            let why = condition("RuntimeReady", why);
            self.troubles.push(format!("container runtime not ready: {why}"));
        } else if let Some(why) = inputs.runtime.trouble(now) {
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
            self.troubles.extend(pleg_trouble(inputs, now));
        }
        if let Some(why) = inputs.runtime.network_trouble() {
            let why = condition("NetworkReady", why);
            self.troubles.push(format!("container runtime network not ready: {why}"));
        }
    }

    pub(in crate::agent::cloud::node) fn is_ready(&self) -> bool {
        self.troubles.is_empty()
    }

    /// The node's conditions, `Ready` last. `store_trouble`: why changes from the cloud cannot be
    /// saved.
    pub(in crate::agent::cloud::node) fn conditions(
        &self,
        inputs: &NodeInputs<'_>,
        store_trouble: Option<&str>,
        remote: Option<&NodeStatus>,
    ) -> Vec<Condition> {
        let mut all = pressures(inputs);
        // Reported from the first failure on.
        if store_trouble.is_some() || remote.is_some_and(|remote| remote.has_condition(STORE)) {
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

/// The pressure conditions, as the eviction manager found them.
fn pressures(inputs: &NodeInputs<'_>) -> Vec<Condition> {
    let conditions = inputs.node.conditions().map(|condition| Condition {
        kind: condition.kind,
        is_true: condition.status,
        reason: condition.reason,
        message: condition.message.to_owned(),
    });
    conditions.collect()
}

/// A condition of edged: changes from the cloud cannot be saved, so they are not accepted.
const STORE: &str = "StoreProblem";

fn store(trouble: Option<&str>) -> Condition {
    let (is_true, reason, message) = match trouble {
        Some(why) => {
            (true, "StoreCannotKeep", format!("edged cannot store what the cloud sends: {why}"))
        }
        None => (false, "StoreKeeps", "edged stores what the cloud sends".to_owned()),
    };
    Condition { kind: STORE, is_true, reason, message }
}

/// As the CRI's condition is printed, from «reason: message».
fn condition(kind: &str, why: &str) -> String {
    let (reason, message) = why.split_once(": ").unwrap_or(("", why));
    format!("{kind}=false reason:{reason} message:{message}")
}

/// The age is left out: a message that always changes would be reported all the time.
fn pleg_trouble(inputs: &NodeInputs<'_>, now: Now) -> Option<String> {
    let why = inputs.pleg.trouble(now)?;
    let stable = why.split_once(" ago").map_or(&*why, |_| "pleg was last seen active too long ago");
    Some(format!("PLEG is not healthy: {stable}"))
}
