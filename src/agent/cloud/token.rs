//! Tokens of service accounts (authentication.k8s.io/v1 `TokenRequest`; wire spec section 5.9).

use serde::Deserialize;

/// A token as the cloud gave it.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Token {
    pub metadata: Metadata,
    pub spec: Spec,
    pub status: Status,
}

/// Whose it is.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Metadata {
    /// The service account.
    pub name: Box<str>,
    pub namespace: Box<str>,
}

/// What was asked for.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Spec {
    pub audiences: Option<Vec<Box<str>>>,
    pub expiration_seconds: Option<i64>,
    pub bound_object_ref: Option<Bound>,
}

/// What it ends with.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Bound {
    pub name: Box<str>,
    pub uid: Box<str>,
}

/// What was given.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Status {
    pub token: Box<str>,
    /// RFC 3339.
    pub expiration_timestamp: Option<Box<str>>,
}

/// A token is a secret.
impl std::fmt::Debug for Status {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "until {:?}", self.expiration_timestamp)
    }
}
