//! The end of a pod as a whole.

use crate::agent::admit::Refused;

/// Why the pod as a whole failed: `status.reason` and `status.message`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// `UnsupportedFeature`, `NodePorts`, `DeadlineExceeded` …
    pub reason: &'static str,
    /// For people.
    pub message: String,
}

impl Verdict {
    /// It may not run here.
    pub fn rejected(refused: &Refused) -> Self {
        let message = format!("Pod was rejected: {}", refused.message);
        Self { reason: refused.reason, message }
    }
}
