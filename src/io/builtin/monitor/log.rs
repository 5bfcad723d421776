//! The log's file: opened, written, opened again. A write that fails drops what it could not write,
//! because a container must not wait for a disk.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

#[derive(Debug)]
pub(super) struct Log {
    /// Empty: there is none.
    path: PathBuf,
    file: Option<File>,
    /// Bytes of lines that could not be written.
    dropped: u64,
}

impl Log {
    /// An empty path: output is dropped.
    pub(super) fn open(path: &str) -> Result<Self, LogFault> {
        let mut log = Self { path: path.into(), file: None, dropped: 0 };
        log.reopen()?;
        Ok(log)
    }

    /// Opens the file that has the name now. If that fails, the old one goes on.
    pub(super) fn reopen(&mut self) -> Result<(), LogFault> {
        if self.path.as_os_str().is_empty() {
            return Ok(());
        }
        let opened = open(&self.path);
        let failed = |error| LogFault(format!("open {}: {error}", self.path.display()));
        self.file = Some(opened.map_err(failed)?);
        Ok(())
    }

    pub(super) fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Writes whole lines, or as many as there is room for.
    pub(super) fn write(&mut self, lines: &mut Vec<u8>) {
        if let Some(file) = &mut self.file {
            let written = write(file, lines);
            if written < lines.len() {
                // Of a line that was written in part nothing remains.
                let whole = lines[..written].iter().rposition(|byte| *byte == b'\n');
                let whole = whole.map_or(0, |at| at + 1);
                let length = file.metadata().map(|meta| meta.len()).unwrap_or_default();
                let _ = file.set_len(length.saturating_sub((written - whole) as u64));
                self.dropped += (lines.len() - whole) as u64;
            }
        }
        lines.clear();
    }
}

/// Why the log cannot be opened: the system's text.
#[derive(Debug)]
pub(super) struct LogFault(pub(super) String);

fn open(path: &Path) -> io::Result<File> {
    let flags = libc::O_NOFOLLOW;
    OpenOptions::new().append(true).create(true).mode(0o640).custom_flags(flags).open(path)
}

/// How much of it could be written.
fn write(file: &mut impl Write, bytes: &[u8]) -> usize {
    let mut written = 0;
    while written < bytes.len() {
        match file.write(&bytes[written..]) {
            Ok(0) => break,
            Ok(count) => written += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => break,
        }
    }
    written
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn place(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("edged-log-{name}-{}", std::process::id()))
    }

    #[test]
    fn a_log_that_was_renamed_is_opened_again_under_its_name() {
        let (path, old) = (place("a"), place("old"));
        let mut log = Log::open(path.to_str().expect("text")).expect("it opens");
        log.write(&mut b"one\n".to_vec());
        fs::rename(&path, &old).expect("ours");
        log.write(&mut b"two\n".to_vec());
        log.reopen().expect("it opens");
        let mut lines = b"three\n".to_vec();
        log.write(&mut lines);
        assert!(lines.is_empty());
        assert_eq!(fs::read(&old).expect("there"), b"one\ntwo\n");
        assert_eq!(fs::read(&path).expect("there"), b"three\n");
        let mode = fs::metadata(&path).expect("there").permissions().mode();
        assert_eq!(mode & 0o777 & !0o640, 0);
        // It cannot be opened: what is open remains.
        fs::rename(&path, &old).expect("ours");
        std::os::unix::fs::symlink(&old, &path).expect("a link");
        let LogFault(why) = log.reopen().expect_err("a link");
        assert!(why.starts_with(&format!("open {}: ", path.display())), "{why}");
        log.write(&mut b"four\n".to_vec());
        assert_eq!(fs::read(&old).expect("there"), b"three\nfour\n");
        let (_, _) = (fs::remove_file(&path), fs::remove_file(&old));
    }

    #[test]
    fn without_a_path_output_is_dropped() {
        let mut log = Log::open("").expect("nothing to open");
        log.write(&mut b"one\n".to_vec());
        log.reopen().expect("nothing to open");
        assert_eq!(log.dropped(), 0);
        assert!(Log::open("/none/at/all").is_err());
    }

    /// A file that takes so many bytes.
    struct Short(usize);

    impl Write for Short {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let count = bytes.len().min(self.0).min(3);
            self.0 -= count;
            if count == 0 { Err(io::Error::other("full")) } else { Ok(count) }
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn on_a_full_disk_whole_lines_remain_and_the_rest_is_counted() {
        // A device that is always full.
        let full = OpenOptions::new().append(true).open("/dev/full").expect("Linux has it");
        let mut log = Log { path: "/dev/full".into(), file: Some(full), dropped: 0 };
        log.write(&mut b"one\n".to_vec());
        assert_eq!(log.dropped(), 4);
        assert_eq!(write(&mut Short(10), b"0123456789abc"), 10);
        assert_eq!(write(&mut Short(99), b"0123"), 4);
    }
}
