//! What the controller keeps of each node: which object it has, in which version (KubeEdge's
//! ObjectSync; wire spec section 8.2).

use super::api::Kind;

/// One object that a node has, or may have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Which node.
    pub node: Box<str>,
    /// What the object is.
    pub kind: Kind,
    /// Where it lies; empty: in none.
    pub namespace: Box<str>,
    /// What it is called.
    pub name: Box<str>,
    /// Which incarnation of it.
    pub uid: Box<str>,
    /// The `resourceVersion` that the node has acknowledged; 0: it was only sent.
    pub version: u64,
}

/// What changes. Records are told apart by node, kind, namespace and name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// The record is there from now on, in the place of any other.
    Put(Record),
    /// The record is gone from now on, if there was one.
    Delete {
        /// Which node's.
        node: Box<str>,
        /// Of which object.
        kind: Kind,
        /// Where that lies; empty: in none.
        namespace: Box<str>,
        /// What that is called.
        name: Box<str>,
    },
}
