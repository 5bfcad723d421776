//! Keys: nodes by number, objects by kind, namespace and name.

use std::fmt;
use std::sync::Arc;

use crate::model::api::Kind;

/// A node that we know. Never reused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct NodeId(pub(super) u32);

/// An object. Ordered by kind, so that the objects that pods use are sent before the pods.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    pub(super) kind: Kind,
    /// Empty: cluster-scoped.
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

/// Whether this kind is `devicecontroller`'s.
pub(super) fn is_of_devices(kind: Kind) -> bool {
    matches!(kind, Kind::Device | Kind::DeviceModel)
}

/// Whether objects of this kind are made here, of other objects. They have no `resourceVersion`:
/// their version is a hash of the content.
pub(super) fn is_computed(kind: Kind) -> bool {
    kind == Kind::ServiceAccountAccess
}

/// As on the wire: `default/pod/web`, `null/node/edge-1`.
impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let namespace = if self.namespace.is_empty() { "null" } else { &self.namespace };
        write!(f, "{namespace}/{}/{}", self.kind.name().to_ascii_lowercase(), self.name)
    }
}
