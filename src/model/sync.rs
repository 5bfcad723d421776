//! The controller's records of each node: which object it has, in which version (KubeEdge's
//! ObjectSync; wire spec section 8.2).

use super::api::Kind;

/// An object that a node has, or may have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The node's name.
    pub node: Box<str>,
    pub kind: Kind,
    /// Its namespace; empty: none.
    pub namespace: Box<str>,
    /// Its name.
    pub name: Box<str>,
    /// Its incarnation.
    pub uid: Box<str>,
    /// The `resourceVersion` that the node has acknowledged; 0: it was only sent.
    pub version: u64,
}

/// A change. Records are identified by node, kind, namespace and name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// The record exists from now on, replacing any other.
    Put(Record),
    /// The record does not exist from now on.
    Delete {
        node: Box<str>,
        kind: Kind,
        /// Its namespace; empty: none.
        namespace: Box<str>,
        /// Its name.
        name: Box<str>,
    },
}
