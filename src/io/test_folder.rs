//! Folders of tests.

use std::fs;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// A folder of one test's own, removed at its end.
#[derive(Debug)]
pub(in crate::io) struct TestFolder(PathBuf);

impl TestFolder {
    /// An empty one. The name is for who finds it after a test that was killed.
    pub(in crate::io) fn new(name: &str) -> Self {
        Self::below(&std::env::temp_dir(), name)
    }

    /// The same in memory, where there is such a place: for what syncs much.
    #[cfg(feature = "runtime")]
    pub(in crate::io) fn in_memory(name: &str) -> Self {
        let memory = Path::new("/dev/shm");
        if memory.is_dir() { Self::below(memory, name) } else { Self::new(name) }
    }

    fn below(folder: &Path, name: &str) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("edged-{name}-{}-{number}", std::process::id());
        let path = folder.join(name);
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).expect("a folder of ours");
        Self(path)
    }

    /// The same with this file in it.
    pub(in crate::io) fn with(self, file: &str, says: &str) -> Self {
        self.write(file, says);
        self
    }

    /// Writes a file, whose folder is made if it is not there.
    pub(in crate::io) fn write(&self, file: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
        let path = self.0.join(file);
        fs::create_dir_all(path.parent().expect("below the top")).expect("a folder of ours");
        fs::write(&path, bytes).expect("a file of ours");
        path
    }
}

impl Deref for TestFolder {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.0
    }
}

impl Drop for TestFolder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
