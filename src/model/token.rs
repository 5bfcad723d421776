//! Tokens of service accounts (authentication.k8s.io/v1 `TokenRequest`; wire spec section 5.9).

use super::time::Timestamp;
use super::tree::fields;

/// A token as the cloud issued it.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Token {
    /// The service account.
    pub metadata: Metadata,
    /// The request as the API server answered it.
    pub spec: Spec,
    /// The issued token.
    pub status: Status,
    /// Our own request; `None`: another agent stored it.
    pub request: Option<PodRequest>,
    /// Digests of the tokens before it, the latest last: some may still be valid.
    pub replaced: Vec<Box<str>>,
}

fields!(Token {
    "metadata" => metadata,
    "spec" => spec,
    "status" => status,
    "asked" => request,
    "replaced" => replaced,
});

/// The service account.
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

/// The request as the API server answered it: with its own audiences if none were named, and with a
/// shorter lifetime if it limits that.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Spec {
    pub audiences: Option<Vec<Box<str>>>,
    /// The lifetime, seconds.
    pub expiration_seconds: Option<i64>,
    /// The object that ends its validity.
    pub bound_object_ref: Option<Bound>,
}

fields!(Spec {
    "audiences" => audiences,
    "expirationSeconds" => expiration_seconds,
    "boundObjectRef" => bound_object_ref,
});

/// The request of a pod.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct PodRequest {
    /// The audience; empty: the API server.
    pub audience: Box<str>,
    /// The lifetime, seconds.
    pub seconds: i64,
}

fields!(PodRequest {
    "audience" => audience,
    "seconds" => seconds,
});

/// The pod that ends its validity.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Bound {
    pub name: Box<str>,
    pub uid: Box<str>,
}

fields!(Bound {
    "name" => name,
    "uid" => uid,
});

/// The issued token.
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
    /// The uid of the pod it is bound to; empty: none.
    pub fn pod_uid(&self) -> &str {
        self.spec.bound_object_ref.as_ref().map_or("", |bound| &bound.uid)
    }

    /// The end of its validity.
    pub fn ends_at(&self) -> Option<Timestamp> {
        Timestamp::parse(self.status.expiration_timestamp.as_deref()?)
    }
}

/// SHA-256 of a token, in hex: a name of it that gives nobody its rights.
#[cfg(feature = "metaserver-auth")]
pub fn digest(token: &str) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, token.as_bytes());
    super::hex::encode(digest.as_ref())
}

/// The token for a request like this one. The service account is not compared: a pod's service
/// account never changes.
///
/// Of tokens that another agent stored only the answers are known. The API server's own audiences
/// could be anything, so a request without an audience gets none if there are several of one
/// lifetime.
pub fn newest<'a>(
    all: impl Iterator<Item = &'a Token>,
    uid: &str,
    audience: &str,
    seconds: i64,
) -> Option<&'a Token> {
    let matches =
        |request: &PodRequest| *request.audience == *audience && request.seconds == seconds;
    let mut others: Vec<&Token> = Vec::new();
    for token in all.filter(|token| token.pod_uid() == uid) {
        match &token.request {
            Some(request) if matches(request) => return Some(token),
            None if token.spec.expiration_seconds == Some(seconds) => others.push(token),
            Some(_) | None => {}
        }
    }
    let differ = others.windows(2).any(|two| two[0].spec.audiences != two[1].spec.audiences);
    let fits = |token: &&Token| match audience {
        "" => !differ,
        _ => token.spec.audiences.iter().flatten().any(|told| **told == *audience),
    };
    others.into_iter().filter(fits).max_by_key(|token| token.ends_at())
}
