//! Seccomp filters that crun has made of profiles, kept for the next container.
//!
//! To make a filter of some 350 names costs crun more than all else in a start. It leaves what it
//! has made in its state folder, and takes a filter that is ready in an annotation. So a container
//! of a profile for which there is none yet gets a file that names it, and its monitor keeps the
//! filter under that name:
//!
//! ```text
//!  make     profile, crun ─▶ KEY ─▶ RUN/seccomp/KEY: an annotation; none: KEY in c/ID/seccomp
//!  monitor  crun create ─▶ oci/ID/seccomp.bpf ─▶ RUN/seccomp/KEY
//! ```
//!
//! KEY is a digest of the profile and of the program's file: a new crun makes its own. runc leaves
//! no such file. **If we crash here** a filter is not kept, and the next container makes it again.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::Path;

use super::layout::{Settings, is_id};
use crate::limits::{SECCOMP_FILTER_BYTES_MAX, SECCOMP_FILTERS_MAX};
use crate::model::base64;
use crate::wire::oci;

/// The filter of this profile in base64. `None`: there is none, and the monitor of the container
/// that has this folder shall keep it.
pub(super) fn find(settings: &Settings, folder: &Path, profile: &str) -> Option<String> {
    let key = key(&settings.oci, profile).ok()?;
    let filter = read(&settings.layout.seccomp().join(&key));
    if filter.is_err() {
        // A start without it is only slower.
        let _ = fs::write(folder.join(KEY), key);
    }
    filter.ok().map(|filter| base64::encode(&filter))
}

/// Keeps what crun has made, if it is asked for; called in the container's folder. It makes nothing
/// fail.
pub(super) fn keep(settings: &Settings, id: &str) {
    let Ok(key) = fs::read_to_string(KEY) else { return };
    let Ok(filter) = read(&settings.layout.oci().join(id).join("seccomp.bpf")) else { return };
    if is_id(&key)
        && let Err(why) = store(&settings.layout.seccomp(), &key, &filter)
    {
        log::debug!("a seccomp filter is not kept: {why}");
    }
}

fn store(folder: &Path, key: &str, filter: &[u8]) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let kept: Vec<_> = fs::read_dir(folder)?.flatten().map(|entry| entry.path()).collect();
    // Those of profiles and programs that are no longer in use.
    if kept.len() >= SECCOMP_FILTERS_MAX {
        kept.iter().try_for_each(fs::remove_file)?;
    }
    // Monitors may do so at once, each of its own container's.
    let unfinished = format!("{key}.{}", std::process::id());
    fs::write(folder.join(&unfinished), filter)?;
    fs::rename(folder.join(unfinished), folder.join(key))
}

/// The file that names the filter to be kept.
const KEY: &str = "seccomp";

/// 64 hex digits.
fn key(program: &Path, profile: &str) -> io::Result<String> {
    let meta = fs::metadata(program)?;
    let file = (meta.dev(), meta.ino(), meta.size(), meta.mtime(), meta.mtime_nsec());
    let digest = oci::sha256(format!("{} {file:?} {profile}", program.display()).as_bytes());
    Ok(digest.trim_start_matches("sha256:").to_owned())
}

/// A whole filter: its instructions have 8 bytes (seccomp(2)).
fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut filter = Vec::new();
    File::open(path)?.take(SECCOMP_FILTER_BYTES_MAX + 1).read_to_end(&mut filter)?;
    let is_whole = filter.len() as u64 <= SECCOMP_FILTER_BYTES_MAX
        && !filter.is_empty()
        && filter.len().is_multiple_of(8);
    if is_whole { Ok(filter) } else { Err(io::Error::other("it is no filter")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_are_kept_up_to_a_bound_and_only_whole_ones() {
        let top = std::env::temp_dir().join(format!("edged-filters-{}", std::process::id()));
        let file = top.join("0");
        for (bytes, whole) in [
            (0, false),
            (8, true),
            (12, false),
            (SECCOMP_FILTER_BYTES_MAX as usize, true),
            (SECCOMP_FILTER_BYTES_MAX as usize + 8, false),
        ] {
            store(&top, "0", &vec![7; bytes]).expect("a folder of ours");
            assert_eq!(read(&file).is_ok(), whole, "{bytes} bytes");
        }
        for at in 1..SECCOMP_FILTERS_MAX {
            store(&top, &at.to_string(), b"8 bytes.").expect("a folder of ours");
        }
        let count = || fs::read_dir(&top).expect("ours").count();
        assert_eq!(count(), SECCOMP_FILTERS_MAX);
        store(&top, "more", b"8 bytes.").expect("a folder of ours");
        assert_eq!(count(), 1, "the others are old");
        fs::remove_dir_all(&top).expect("ours");
    }

    #[test]
    fn another_profile_or_program_has_another_key() {
        let keys = [("/bin/sh", "{}"), ("/bin/sh", "[]"), ("/proc/self/exe", "{}")]
            .map(|(program, profile)| key(Path::new(program), profile).expect("it is there"));
        assert!(keys.iter().all(|key| is_id(key)), "{keys:?}");
        assert!(keys[0] != keys[1] && keys[0] != keys[2]);
        assert!(key(Path::new("/none"), "{}").is_err());
    }
}
