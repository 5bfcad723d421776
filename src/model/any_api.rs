//! Calls to the API server about resources of any kind, named as in its paths: a node may request
//! kinds of which this program knows nothing.

use std::fmt;

use super::application::Gvr;

/// Names and values of the parameters of a query, not escaped.
pub type Parameters = Vec<(Box<str>, Box<str>)>;

/// One call.
#[derive(Clone)]
pub struct AnyCall {
    pub verb: AnyVerb,
    pub target: AnyTarget,
    pub query: Parameters,
    /// The object, the patch or the `DeleteOptions`; empty: none.
    pub body: Box<[u8]>,
    /// The node as whose user it is made; `None`: as our own.
    pub node: Option<Box<str>>,
}

/// The operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnyVerb {
    /// GET of one object, of a part of it, or of a path.
    Get,
    /// GET of a collection.
    List,
    /// POST: to the collection, or to the named object's part.
    Create,
    /// PUT
    Update,
    /// PATCH, with this `Content-Type`.
    Patch(&'static str),
    /// DELETE
    Delete,
}

/// What a call is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AnyTarget {
    /// An object, or a collection if it has no name.
    Object {
        resource: Gvr,
        /// Empty: none, or all.
        namespace: Box<str>,
        /// Empty: none.
        name: Box<str>,
        /// Empty: the object itself.
        subresource: Box<str>,
    },
    /// A path of no resource: `/version`. An answer that is no JSON comes as a JSON string.
    Path(Box<str>),
}

impl AnyCall {
    /// Whether it changes nothing.
    pub fn is_read(&self) -> bool {
        matches!(self.verb, AnyVerb::Get | AnyVerb::List)
    }

    /// The value of a parameter; empty: there is none.
    pub fn parameter(&self, name: &str) -> &str {
        self.query.iter().find(|(key, _)| &**key == name).map_or("", |(_, value)| value)
    }

    /// The resource that it is about, if it is about one.
    pub fn resource(&self) -> Option<&Gvr> {
        match &self.target {
            AnyTarget::Object { resource, .. } => Some(resource),
            AnyTarget::Path(_) => None,
        }
    }

    /// Its size in memory, about.
    pub fn bytes(&self) -> usize {
        /// Names and parameters.
        const REST: usize = 512;
        let query: usize = self.query.iter().map(|(key, value)| key.len() + value.len()).sum();
        REST + query + self.body.len()
    }
}

/// Bodies may be secret.
impl fmt::Debug for AnyCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { verb, target, query, body, node } = self;
        write!(f, "{verb:?} {target:?} {query:?} as {node:?} ({} bytes)", body.len())
    }
}
