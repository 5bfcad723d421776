//! The durable rows, as far as they are needed while running.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::agent::cloud::rows::{Content, StoredObject};
use crate::model::status::PodStatus;

/// All durable rows.
#[derive(Debug, Default)]
pub(super) struct Stored {
    /// By key.
    rows: BTreeMap<Box<str>, StoredRow>,
    /// Bytes that the objects take, in memory or as text, whichever is more.
    bytes: usize,
    /// Rows of the store for which there is no memory, or which cannot be used: uids by key; an
    /// empty uid: not known. The rows stay in the store.
    unread: BTreeMap<Box<str>, Box<str>>,
}

/// A durable row.
#[derive(Debug)]
pub(super) struct StoredRow {
    pub version: Version,
    /// See [`Stored::bytes`].
    pub bytes: usize,
    pub object: StoredObject,
}

/// Distinguishes one state of an object from another.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Version {
    pub uid: Box<str>,
    /// `resourceVersion`; 0: not given.
    pub(super) number: u64,
    /// Hash of all fields except versions and statuses.
    digest: u64,
    deleting: bool,
}

impl Stored {
    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }

    /// See the field.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// In the order of their keys.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &StoredObject)> {
        self.rows.iter().map(|(key, row)| (&**key, &row.object))
    }

    pub(super) fn get(&self, key: &str) -> Option<&StoredRow> {
        self.rows.get(key)
    }

    /// The row takes the place of an unread one.
    pub(super) fn insert(&mut self, key: Box<str>, row: StoredRow) {
        self.bytes += row.bytes;
        self.rows.insert(key, row);
    }

    /// A change of this key is durable: returns the object before it.
    pub(super) fn remove(&mut self, key: &str) -> Option<StoredObject> {
        self.unread.remove(key);
        let row = self.rows.remove(key)?;
        self.bytes -= row.bytes;
        Some(row.object)
    }

    /// The object of this key has this version from now on, and is the same otherwise.
    pub(super) fn set_version(&mut self, key: &str, version: Version) {
        if let Some(row) = self.rows.get_mut(key) {
            row.version = version;
        }
    }

    pub(super) fn add_unread(&mut self, key: Box<str>, uid: Box<str>) {
        self.unread.insert(key, uid);
    }

    pub(super) fn unread_count(&self) -> usize {
        self.unread.len()
    }

    /// Whether there is an unread row of this key and uid. An empty uid matches any.
    pub(super) fn has_unread(&self, key: &str, uid: &str) -> bool {
        let unread = self.unread.get(key);
        unread.is_some_and(|unread| unread.is_empty() || uid.is_empty() || **unread == *uid)
    }

    /// Restores the terminal statuses that an earlier process stored, and perhaps reported.
    pub(super) fn restore_terminal_statuses(&mut self) {
        let statuses: BTreeMap<Box<str>, PodStatus> = self
            .iter()
            .filter_map(|(_, object)| match object {
                StoredObject::TerminalStatuses(uid, status) => {
                    Some((uid.clone(), (**status).clone()))
                }
                _ => None,
            })
            .collect();
        for row in self.rows.values_mut() {
            if let StoredObject::Pod(pod) = &mut row.object
                && !pod.status.phase.is_terminal()
                && let Some(status) = statuses.get(&*pod.metadata.uid)
            {
                Arc::make_mut(pod).status = status.clone();
            }
        }
    }
}

/// Bytes that a row takes in memory.
pub(super) fn memory_bytes(key: &str, version: &Version, object: &StoredObject) -> usize {
    let texts = 2 * size_of::<Box<str>>() + key.len() + version.uid.len();
    size_of::<StoredRow>() + texts + object.memory_bytes()
}

impl Version {
    pub(super) fn of(content: &Content<'_>) -> Self {
        Self {
            uid: content.uid.clone(),
            number: content.version,
            digest: content.digest,
            deleting: content.deleting,
        }
    }

    /// Whether the other version is the same state of the same object.
    pub(super) fn is_same_as(&self, other: &Self) -> bool {
        self.uid == other.uid && self.digest == other.digest
    }

    /// Whether the other version must not replace this one. A version without a number is accepted.
    pub(super) fn is_newer_than(&self, other: &Self) -> bool {
        let older = other.number != 0 && other.number < self.number;
        older || (self.uid == other.uid && self.deleting && !other.deleting)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(bytes: usize) -> StoredRow {
        StoredRow { version: Version::default(), bytes, object: StoredObject::Other }
    }

    #[test]
    fn the_bytes_are_those_of_the_rows() {
        let mut stored = Stored::default();
        stored.insert("a".into(), row(7));
        stored.insert("b".into(), row(5));
        assert_eq!((stored.len(), stored.bytes()), (2, 12));
        assert!(stored.remove("a").is_some() && stored.remove("a").is_none());
        assert_eq!((stored.len(), stored.bytes()), (1, 5));
    }

    #[test]
    fn an_unread_row_is_found_by_its_uid_until_it_is_written() {
        let mut stored = Stored::default();
        stored.add_unread("a".into(), "u".into());
        stored.add_unread("b".into(), "".into());
        for (key, uid, expected) in [
            ("a", "u", true),
            ("a", "", true),
            ("a", "v", false),
            ("b", "v", true),
            ("c", "u", false),
        ] {
            assert_eq!(stored.has_unread(key, uid), expected, "{key} {uid}");
        }
        assert!(stored.remove("a").is_none());
        assert!(!stored.has_unread("a", "u"));
        assert_eq!(stored.unread_count(), 1);
    }

    #[test]
    fn an_older_version_and_one_that_is_not_deleted_any_more_are_older() {
        let version =
            |uid: &str, number, deleting| Version { uid: uid.into(), number, digest: 0, deleting };
        let ours = version("u", 7, true);
        for (other, is_older) in [
            (version("u", 6, true), true),
            (version("u", 7, true), false),
            (version("u", 0, true), false),
            (version("u", 8, false), true),
            (version("v", 8, false), false),
        ] {
            assert_eq!(ours.is_newer_than(&other), is_older, "{other:?}");
        }
    }
}
