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
    /// What was asked for, by our own account; `None`: another agent has kept it.
    pub asked: Option<Asked>,
}

fields!(Token {
    "metadata" => metadata,
    "spec" => spec,
    "status" => status,
    "asked" => asked,
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

/// What was asked for, as the API server answers: with its own audiences where none were named, and
/// with a shorter life where it gives no longer one.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Spec {
    /// Who is to take it.
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

/// What was asked for, as a pod says it.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Asked {
    /// Who is to take it; empty: the API server.
    pub audience: Box<str>,
    /// Of its life.
    pub seconds: i64,
}

fields!(Asked {
    "audience" => audience,
    "seconds" => seconds,
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
}

/// The token of a pod for who asks for one like this. Whose it is needs no look: a pod's service
/// account never changes.
///
/// Of those that another agent has kept only the answers are known. The API server's own audiences
/// could be anything, so who names none is given none where there are several of one life.
pub fn newest<'a>(
    all: impl Iterator<Item = &'a Token>,
    uid: &str,
    audience: &str,
    seconds: i64,
) -> Option<&'a Token> {
    let is_asked = |asked: &Asked| *asked.audience == *audience && asked.seconds == seconds;
    let mut others: Vec<&Token> = Vec::new();
    for token in all.filter(|token| token.pod_uid() == uid) {
        match &token.asked {
            Some(asked) if is_asked(asked) => return Some(token),
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
