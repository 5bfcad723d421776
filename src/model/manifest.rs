//! The manifest folder as it was read: what each file holds, or why it cannot be used.

use std::sync::Arc;

use super::object::Object;
use super::pod::Pod;

/// The whole folder at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Folder<C = Content> {
    /// Why the folder itself cannot be read, with its path. A file that is not among `files` is
    /// then not gone, but stays as it was read before.
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
    /// What is in it, or what is wrong with it. A file counts as a whole.
    pub content: Result<C, Refusal>,
}

/// What a file holds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Content {
    /// In order.
    pub pods: Vec<Pod>,
    /// In order; shared, because they may be large and nobody changes them.
    pub objects: Vec<Arc<Object>>,
}

impl From<Vec<Pod>> for Content {
    fn from(pods: Vec<Pod>) -> Self {
        Self { pods, objects: Vec::new() }
    }
}

/// What makes a pod invalid at any node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invalid {
    /// The first field concerned: `spec.containers[0].name`.
    pub path: String,
    /// All of it, without that path at the beginning.
    pub why: String,
    /// Fields that nobody knows: the mistyped one is often among them.
    pub unknown: Vec<String>,
}

/// Says what is wrong with a pod of a manifest.
pub type Validate = fn(&Pod) -> Option<Invalid>;

/// Why a file cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// From 1; 0 where the text has no place to point at.
    pub line: u32,
    /// From 1.
    pub column: u32,
    /// What was got, what was expected.
    pub why: String,
}

impl std::fmt::Display for Refusal {
    /// Continues a path: `/etc/…/web.yaml` + `:3:7: got …`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.line {
            0 => write!(f, ": {}", self.why),
            line => write!(f, ":{line}:{}: {}", self.column, self.why),
        }
    }
}
