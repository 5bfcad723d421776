//! The node's copy of the cloud's objects: rows of KubeEdge's table `meta`; and the changes of its
//! tables of devices, which are saved with them.

#[cfg(feature = "devices")]
use super::device::{DeviceChange, StoredDevices};
#[cfg(feature = "metaserver")]
use super::metaserver::{RowChange, StoredItem};
#[cfg(any(feature = "devices", feature = "servicebus"))]
use super::rule_row::RuleRow;

/// Identifies one [`crate::agent::event::Action::Save`]. Never used twice, and only grows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Revision(pub u64);

/// One row of `meta`.
#[derive(Clone, PartialEq, Eq)]
pub struct Row {
    /// `default/pod/web`: the resource of the message that contained it.
    pub key: Box<str>,
    /// `pod`, `configmap` …: the second part of the key.
    pub kind: Box<str>,
    /// JSON of the object.
    pub value: Box<str>,
}

/// Values may be secret: only their size is shown.
impl std::fmt::Debug for Row {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({} bytes)", self.key, self.value.len())
    }
}

/// A change of the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// The row exists from now on, replacing any other.
    Put(Row),
    /// The row does not exist from now on.
    Delete { key: Box<str> },
    /// Of the tables of devices.
    #[cfg(feature = "devices")]
    Device(DeviceChange),
    /// Of the table of MetaServer.
    #[cfg(feature = "metaserver")]
    Item(RowChange),
    /// Of the table `sub_topics`.
    #[cfg(feature = "devices")]
    SubTopic(RuleRow),
    /// Of the table `target_urls`.
    #[cfg(feature = "servicebus")]
    TargetUrl(RuleRow),
}

/// The content of the store when it was opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Saved {
    /// In the order of their keys.
    pub rows: Vec<Row>,
    /// Whether that is everything ever stored.
    pub origin: StoreOrigin,
    /// A sync of the rows has failed: until the next save succeeds, a power cut may undo the last
    /// changes of the process before.
    pub is_unsynced: bool,
    /// The tables of devices.
    #[cfg(feature = "devices")]
    pub devices: StoredDevices,
    /// The objects that MetaServer may serve.
    #[cfg(feature = "metaserver")]
    pub items: Vec<StoredItem>,
    /// The rows of `sub_topics`.
    #[cfg(feature = "devices")]
    pub sub_topics: Vec<Box<str>>,
    /// The rows of `target_urls`.
    #[cfg(feature = "servicebus")]
    pub target_urls: Vec<Box<str>>,
}

impl Saved {
    pub fn new(rows: Vec<Row>, origin: StoreOrigin) -> Self {
        Self { rows, origin, ..Self::default() }
    }

    /// The complete content of a store.
    pub fn kept(rows: Vec<Row>) -> Self {
        Self::new(rows, StoreOrigin::Kept)
    }
}

/// The origin of the store's content.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum StoreOrigin {
    /// It was kept: objects that are not in it were not sent by the cloud.
    #[default]
    Kept,
    /// It was kept, and there is not enough memory to read all of it.
    Part {
        /// The rows that were not read: their keys, and their objects' uids.
        unread: Vec<(Box<str>, Box<str>)>,
    },
    /// There was none; a new one was created.
    New,
    /// It could not be used: it was put aside, or cannot even be opened.
    Lost(String),
}

/// Why a change is not stored.
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
