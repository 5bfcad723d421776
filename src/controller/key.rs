//! Names of things: nodes by number, objects by kind, namespace and name.

use std::fmt;
use std::sync::Arc;

use crate::model::api::Kind;

/// A node that we have heard of. Never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct NodeId(pub(super) u32);

/// An object. In the order of kinds, so that what pods use goes before the pods.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    pub(super) kind: Kind,
    /// Empty: in none.
    pub(super) namespace: Arc<str>,
    pub(super) name: Arc<str>,
}

impl Key {
    pub(super) fn new(kind: Kind, namespace: &str, name: &str) -> Self {
        Self { kind, namespace: namespace.into(), name: name.into() }
    }

    pub(super) fn node(name: &str) -> Self {
        Self::new(Kind::Node, "", name)
    }
}

/// As the wire writes it: `default/pod/web`, `null/node/edge-1`.
impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let namespace = if self.namespace.is_empty() { "null" } else { &self.namespace };
        write!(f, "{namespace}/{}/{}", self.kind.name().to_ascii_lowercase(), self.name)
    }
}
