//! Keys of an object → files of a volume.

use std::collections::BTreeMap;

use crate::model::job::{FileContent, FileEntry};
use crate::model::pod::KeyToPath;

/// The selection from an object.
#[derive(Clone, Copy)]
pub(super) struct Choice<'a> {
    /// The keys; none: all.
    pub items: &'a [KeyToPath],
    /// For files without a mode of their own.
    pub mode: i32,
    /// A missing key is not an error.
    pub optional: bool,
    /// The error text of a missing key, before its name.
    pub missing: &'static str,
}

/// The files, or the missing key.
pub(super) fn choose(
    data: &BTreeMap<&str, &[u8]>,
    choice: Choice<'_>,
) -> Result<Vec<FileEntry>, String> {
    let entry = |path: &str, mode: i32, bytes: &[u8]| FileEntry {
        path: path.into(),
        mode: mode.unsigned_abs() & 0o777,
        content: FileContent(bytes.into()),
    };
    if choice.items.is_empty() {
        return Ok(data.iter().map(|(key, bytes)| entry(key, choice.mode, bytes)).collect());
    }
    let mut files = Vec::new();
    for item in choice.items {
        match data.get(&*item.key) {
            Some(bytes) => files.push(entry(&item.path, item.mode.unwrap_or(choice.mode), bytes)),
            None if choice.optional => {}
            None => return Err(format!("{}: {}", choice.missing, item.key)),
        }
    }
    Ok(files)
}
