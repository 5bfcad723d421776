//! Tokens of service accounts (authentication.k8s.io/v1 `TokenRequest`; wire spec section 5.9).

use super::time::Timestamp;
use super::tree::fields;

/// A token as the cloud gave it.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Token {
    /// Whose it is.
    pub metadata: Metadata,
    /// What was asked for.
    pub spec: Spec,
    /// What was given.
    pub status: Status,
}

fields!(Token {
    "metadata" => metadata,
    "spec" => spec,
    "status" => status,
});

/// Whose it is.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Metadata {
    /// The service account.
    pub name: Box<str>,
    /// Of the service account.
    pub namespace: Box<str>,
}

fields!(Metadata {
    "name" => name,
    "namespace" => namespace,
});

/// What was asked for.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Spec {
    /// Who is to take it; none: the API server.
    pub audiences: Option<Vec<Box<str>>>,
    /// Of its life.
    pub expiration_seconds: Option<i64>,
    /// With what it ends before.
    pub bound_object_ref: Option<Bound>,
}

fields!(Spec {
    "audiences" => audiences,
    "expirationSeconds" => expiration_seconds,
    "boundObjectRef" => bound_object_ref,
});

/// What it ends with.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Bound {
    /// A pod's.
    pub name: Box<str>,
    /// A pod's.
    pub uid: Box<str>,
}

fields!(Bound {
    "name" => name,
    "uid" => uid,
});

/// What was given.
#[derive(Default, PartialEq, Eq)]
pub struct Status {
    /// A JWT.
    pub token: Box<str>,
    /// RFC 3339.
    pub expiration_timestamp: Option<Box<str>>,
}

fields!(Status {
    "token" => token,
    "expirationTimestamp" => expiration_timestamp,
});

/// A token is a secret.
impl std::fmt::Debug for Status {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "until {:?}", self.expiration_timestamp)
    }
}

impl Token {
    /// The uid of the pod that it ends with; empty: none.
    pub fn pod_uid(&self) -> &str {
        self.spec.bound_object_ref.as_ref().map_or("", |bound| &bound.uid)
    }

    /// When it ends.
    pub fn ends_at(&self) -> Option<Timestamp> {
        Timestamp::parse(self.status.expiration_timestamp.as_deref()?)
    }

    /// Whether it is what somebody asks for who says these things of it.
    pub fn answers(&self, account: &str, audience: &str, seconds: i64) -> bool {
        let audiences = self.spec.audiences.as_deref().unwrap_or_default();
        // Where none was asked for the API server fills in its own.
        let fits = audience.is_empty() || audiences.iter().any(|told| **told == *audience);
        *self.metadata.name == *account && fits && self.spec.expiration_seconds == Some(seconds)
    }
}
