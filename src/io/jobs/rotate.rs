//! Rotates logs; the rotated ones are beside the current log (spec section 11):
//!
//! ```text
//!  0.log · 0.log.20261121-194501 · 0.log.20261121-180233.gz · …
//! ```
//!
//! The newest rotated log stays uncompressed, for programs that still read it; older ones are
//! compressed. Names sort by age: if the clock went back or is not set yet, the next name is a
//! second later than the newest one.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{BufReader, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, openat, renameat};
use nix::sys::stat::{Mode, fstatat};
use nix::unistd::linkat;

use super::{Component, Failure, gzip, log, tree};
use crate::model::job::LogLink;
use crate::model::time::Timestamp;

/// Removes surplus logs, and renames the current one.
pub(super) fn rotate(
    logs: BorrowedFd<'_>,
    link: &LogLink,
    files_max: usize,
    at_s: i64,
) -> Result<(), Failure> {
    let Some(place) = Place::open(logs, link)? else { return Ok(()) };
    let mut old = place.rotated()?;
    // Leave room for the current log and the one that it becomes.
    let surplus = old.len().saturating_sub(files_max.saturating_sub(2));
    for name in old.drain(..surplus) {
        log::remove_file(place.dir.as_fd(), Component::new(&name)?)?;
    }
    let newest = old.last().and_then(|name| place.stamp_of(name));
    let stamp = newest.map_or(at_s, |newest| at_s.max(newest + 1));
    let name = format!("{}.{}", place.current, stamp_text(stamp));
    renameat(&place.dir, place.current.as_str(), &place.dir, name.as_str())
        .map_err(|errno| Failure::at("rename", &place.current, errno))
}

/// The runtime has not opened a new log: makes the newest rotated log the current one again, unless
/// there is one by now.
pub(super) fn restore(logs: BorrowedFd<'_>, link: &LogLink) -> Result<(), Failure> {
    let Some(place) = Place::open(logs, link)? else { return Ok(()) };
    let Some(name) = place.plain()?.pop() else { return Ok(()) };
    // A link, not a rename: a log that the runtime makes at this moment is not replaced.
    let flags = AtFlags::empty();
    match linkat(&place.dir, name.as_os_str(), &place.dir, place.current.as_str(), flags) {
        Ok(()) => log::remove_file(place.dir.as_fd(), Component::new(&name)?),
        Err(Errno::EEXIST) => Ok(()),
        Err(errno) => Err(Failure::at("link", &name, errno)),
    }
}

/// Compresses all rotated logs but the newest. A failure does not stop the others; the first one
/// is returned.
pub(super) fn compress(logs: BorrowedFd<'_>, link: &LogLink) -> Result<(), Failure> {
    let Some(place) = Place::open(logs, link)? else { return Ok(()) };
    let mut plain = place.plain()?;
    plain.pop();
    plain.iter().map(|name| place.compress(name)).reduce(Result::and).unwrap_or(Ok(()))
}

/// The logs of a container.
struct Place {
    dir: OwnedFd,
    /// `0.log`
    current: String,
}

impl Place {
    fn open(logs: BorrowedFd<'_>, link: &LogLink) -> Result<Option<Self>, Failure> {
        let name = log::dir_name(&link.pod)?;
        let Some(pod) = tree::existing_dir(logs, Component::new(&name)?)? else {
            return Ok(None);
        };
        let container = Component::new(link.container.as_ref())?;
        let dir = tree::existing_dir(pod.as_fd(), container)?;
        Ok(dir.map(|dir| Self { dir, current: format!("{}.log", link.attempt) }))
    }

    /// The rotated logs, the oldest first, after incomplete files are removed.
    fn rotated(&self) -> Result<Vec<OsString>, Failure> {
        let failed = |errno| Failure::at("readdir", &self.current, errno);
        let flags = OFlag::O_DIRECTORY | OFlag::O_RDONLY | OFlag::O_CLOEXEC;
        let prefix = format!("{}.", self.current);
        let mut names: Vec<String> = Vec::new();
        for entry in Dir::openat(&self.dir, ".", flags, Mode::empty()).map_err(failed)?.iter() {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name().to_str().ok().filter(|name| name.starts_with(&prefix));
            names.extend(name.map(str::to_owned));
        }
        names.sort();
        let packed = |name: &String| names.binary_search(&format!("{name}.gz")).is_ok();
        let (gone, rest): (Vec<_>, Vec<_>) =
            names.iter().partition(|name| name.as_bytes().ends_with(b".tmp") || packed(name));
        for name in gone {
            log::remove_file(self.dir.as_fd(), Component::new(name)?)?;
        }
        Ok(rest.into_iter().map(OsString::from).collect())
    }

    /// The logs that are not compressed, the oldest first.
    fn plain(&self) -> Result<Vec<OsString>, Failure> {
        let is_plain = |name: &OsString| !name.as_encoded_bytes().ends_with(b".gz");
        Ok(self.rotated()?.into_iter().filter(is_plain).collect())
    }

    /// Seconds since 1970 of `0.log.20261121-194501`, compressed or not.
    fn stamp_of(&self, name: &OsStr) -> Option<i64> {
        let rest = name.to_str()?.strip_prefix(&self.current)?.strip_prefix('.')?;
        stamp_parse(rest.strip_suffix(".gz").unwrap_or(rest))
    }

    fn compress(&self, name: &OsStr) -> Result<(), Failure> {
        let text = name.to_string_lossy();
        let made = format!("{text}.tmp");
        let done = self.compress_to(name, &text, &made);
        if done.is_err() {
            // On a full disk it would use space for nothing.
            log::remove_file(self.dir.as_fd(), Component::new(&made)?)?;
        }
        done
    }

    fn compress_to(&self, name: &OsStr, text: &str, made: &str) -> Result<(), Failure> {
        let packed = format!("{text}.gz");
        let failure =
            |what: &str, error: std::io::Error| Failure(format!("{what} {text}: {error}"));
        let flags = OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let source = openat(&self.dir, name, flags | OFlag::O_RDONLY, Mode::empty())
            .map_err(|errno| Failure::at("open", name, errno))?;
        let target = openat(
            &self.dir,
            made,
            flags | OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_TRUNC,
            Mode::from_bits_truncate(0o644),
        )
        .map_err(|errno| Failure::at("create", made, errno))?;
        let mut target = File::from(target);
        gzip::compress(&mut BufReader::new(File::from(source)), &mut target)
            .and_then(|()| target.flush())
            .and_then(|()| target.sync_data())
            .map_err(|error| failure("compress", error))?;
        renameat(&self.dir, made, &self.dir, packed.as_str())
            .map_err(|errno| Failure::at("rename", made, errno))?;
        // Removed while we read it: its container was removed, so the new file is removed, too.
        let here = fstatat(&self.dir, name, AtFlags::AT_SYMLINK_NOFOLLOW);
        let spare = if here.is_ok() { name } else { OsStr::new(&packed) };
        log::remove_file(self.dir.as_fd(), Component::new(spare)?)
    }
}

/// `20261121-194501`
fn stamp_text(at_s: i64) -> String {
    let text = Timestamp(at_s).to_string();
    text.trim_end_matches('Z').replace(['-', ':'], "").replace('T', "-")
}

fn stamp_parse(text: &str) -> Option<i64> {
    let (date, time) = text.split_once('-')?;
    if date.len() != 8 || time.len() != 6 {
        return None;
    }
    let number = |text: &str, from: usize, to: usize| text.get(from..to)?.parse::<i64>().ok();
    let (year, month, day) = (number(date, 0, 4)?, number(date, 4, 6)?, number(date, 6, 8)?);
    let days = Timestamp::days(year, month, day);
    let (hours, minutes) = (number(time, 0, 2)?, number(time, 2, 4)?);
    Some(((days * 24 + hours) * 60 + minutes) * 60 + number(time, 4, 6)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_are_read_as_they_are_written() {
        for at_s in [0, 951_782_399, 951_782_400, 1_763_666_951, 4_102_444_799] {
            assert_eq!(stamp_parse(&stamp_text(at_s)), Some(at_s), "{}", stamp_text(at_s));
        }
        assert_eq!(stamp_text(1_763_666_951), "20251120-192911");
        for text in ["", "20251120", "20251120-1929", "2025112x-192911", "é0251120-192911"] {
            assert_eq!(stamp_parse(text), None, "{text}");
        }
    }
}
