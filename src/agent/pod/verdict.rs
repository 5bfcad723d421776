//! Why a pod as a whole has failed.

/// Why a pod cannot run here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// `status.reason`
    pub reason: &'static str,
    /// Names every field concerned.
    pub message: String,
}

/// `status.reason` and `status.message` of the failed pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// `UnsupportedFeature`, `NodePorts`, `DeadlineExceeded` …
    pub reason: &'static str,
    /// For the user.
    pub message: String,
}

impl Verdict {
    /// It may not run here.
    pub fn rejected(refused: &Refused) -> Self {
        let message = format!("Pod was rejected: {}", refused.message);
        Self { reason: refused.reason, message }
    }
}
