//! What the node keeps of the cloud's objects: rows of KubeEdge's table `meta`.

/// Names one [`crate::agent::event::Action::Save`]. Never used twice, and only grows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Revision(pub u64);

/// One row of `meta`.
#[derive(Clone, PartialEq, Eq)]
pub struct Row {
    /// `default/pod/web`: the resource of the message that brought it.
    pub key: Box<str>,
    /// `pod`, `configmap` …: the second part of the key.
    pub kind: Box<str>,
    /// JSON of the object.
    pub value: Box<str>,
}

/// Values may be secret: only their size is told.
impl std::fmt::Debug for Row {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({} bytes)", self.key, self.value.len())
    }
}

/// What changes in the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// The row is there from now on, whatever was.
    Put(Row),
    /// The row is gone from now on, if there was one.
    Delete {
        /// Which.
        key: Box<str>,
    },
}

/// What the store held when it was opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Saved {
    /// In the order of their keys.
    pub rows: Vec<Row>,
    /// Whether that is all there ever was.
    pub origin: StoreOrigin,
}

/// How the store came to hold what it holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum StoreOrigin {
    /// It was kept: what it does not hold the cloud has not sent.
    #[default]
    Kept,
    /// It was kept, and there is not the memory to read all of it.
    Part {
        /// The rows that were left as they are: their keys, and their objects' uids.
        unread: Vec<(Box<str>, Box<str>)>,
    },
    /// There was none; one was made.
    New,
    /// There was one that could not be used: it was put aside, or cannot even be opened.
    Lost(String),
}

/// Why a change is not kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DiskError {
    /// No room on the disk.
    Full(String),
    /// The file is damaged.
    Corrupt(String),
    /// Anything else.
    Failed(String),
}

impl std::fmt::Display for DiskError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Full(why) => write!(f, "no room: {why}"),
            Self::Corrupt(why) => write!(f, "damaged: {why}"),
            Self::Failed(why) => f.write_str(why),
        }
    }
}
