//! Objects as a person writes them, whatever their kind: what the controller takes of a folder.

use std::fmt;
use std::sync::Arc;

use serde_json::Value;

use super::api::Kind;

/// An object of a manifest.
#[derive(Clone, PartialEq)]
pub struct Manifest {
    /// What it is.
    pub kind: Kind,
    /// Where it lies; empty: in none.
    pub namespace: Box<str>,
    /// What it is called.
    pub name: Box<str>,
    /// Its JSON, as it was written; shared, because a folder is told of again and again.
    pub value: Arc<Value>,
    /// Of that JSON as text.
    pub size_bytes: usize,
}

/// Values may be secret.
impl fmt::Debug for Manifest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}/{}", self.kind.name(), self.namespace, self.name)
    }
}
