//! The manifest folder as it was read: the content of each file, or why it is invalid.

use std::sync::Arc;

use super::error::Refusal;
use super::object::Object;
use super::pod::Pod;

/// The whole folder at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Folder<C = Content> {
    /// Why the folder itself cannot be read, with its path. Then a file that is not among `files`
    /// is not removed, but unchanged.
    pub trouble: Option<Box<str>>,
    /// By path, ascending.
    pub files: Vec<File<C>>,
}

/// One file.
#[derive(Clone, Debug, PartialEq)]
pub struct File<C = Content> {
    /// Absolute.
    pub path: Box<str>,
    /// When it last changed, in nanoseconds since 1970 (`st_ctim`); 0: not known.
    pub changed_ns: i64,
    /// Its content, or its error. A file is accepted or refused as a whole.
    pub content: Result<C, Refusal>,
}

/// The content of a file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Content {
    /// In order.
    pub pods: Vec<Pod>,
    /// In order; shared, because they may be large and do not change.
    pub objects: Vec<Arc<Object>>,
}

impl From<Vec<Pod>> for Content {
    fn from(pods: Vec<Pod>) -> Self {
        Self { pods, objects: Vec::new() }
    }
}

/// Why a pod is invalid on any node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invalid {
    /// The first field concerned: `spec.containers[0].name`.
    pub path: String,
    /// The whole error, without that path at the beginning.
    pub why: String,
    /// Unknown fields: a misspelt one is often among them.
    pub unknown: Vec<String>,
}

/// Checks a pod of a manifest.
pub type Validate = fn(&Pod) -> Option<Invalid>;
