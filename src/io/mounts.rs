//! The table of mounts (`/proc/self/mountinfo`), and which mounts may hang: an access to a file
//! system whose server is gone blocks for ever. The kernel's table answers at once. Nothing is
//! stored.

use std::borrow::Cow;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::{fs, io};

use super::sys;
use crate::limits::LINKS_MAX;

/// File systems that wait for another machine, or for any user's program. Those of programs may
/// have a subtype after a dot: `fuse.sshfs`.
const REMOTE: [&str; 16] = [
    "9p",
    "afs",
    "autofs",
    "ceph",
    "cifs",
    "coda",
    "fuse",
    "gfs2",
    "glusterfs",
    "lustre",
    "ncpfs",
    "nfs",
    "nfs4",
    "ocfs2",
    "smb3",
    "smbfs",
];

/// The kernel's table.
pub(super) fn table() -> io::Result<String> {
    sys::kernel_text("/proc/self/mountinfo")
}

/// One line of the table.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Mount<'a> {
    /// The mount point.
    pub point: Cow<'a, str>,
    /// The kind of file system.
    pub kind: &'a str,
    /// Whether mounts below it propagate to other namespaces.
    pub shared: bool,
    /// Whether those of another namespace propagate to it.
    pub slave: bool,
}

impl Mount<'_> {
    /// Its server, or the process that serves it, may be gone.
    pub(super) fn may_hang(&self) -> bool {
        let kind = self.kind.split('.').next().unwrap_or_default();
        REMOTE.contains(&kind)
    }
}

/// The mount of a path: the deepest, and the last of several on one mount point.
pub(super) fn over<'a>(table: &'a str, path: &Path) -> Option<Mount<'a>> {
    // Converted with the same loss as the table.
    let path = path.to_string_lossy();
    // Different mount points above one path differ in length.
    mounts(table)
        .filter(|mount| Path::new(&*path).starts_with(&*mount.point))
        .max_by_key(|mount| mount.point.len())
}

/// Whether there is a mount below a path.
pub(super) fn are_below(table: &str, path: &Path) -> bool {
    mounts(table).any(|mount| {
        let point = Path::new(&*mount.point);
        point != path && point.starts_with(path)
    })
}

fn mounts(table: &str) -> impl Iterator<Item = Mount<'_>> {
    table.lines().filter_map(|line| {
        let (left, right) = line.split_once(" - ")?;
        let mut left = left.split(' ');
        let point = unescape(left.nth(4)?);
        let (mut shared, mut slave) = (false, false);
        for field in left {
            shared |= field.starts_with("shared:");
            slave |= field.starts_with("master:");
        }
        Some(Mount { point, kind: right.split(' ').next()?, shared, slave })
    })
}

/// The first mount on a path that may hang; links are followed. Nothing on it is accessed: all
/// steps before it are on other mounts.
pub(super) fn remote<'a>(table: &'a str, path: &Path) -> Option<Mount<'a>> {
    if !mounts(table).any(|mount| mount.may_hang()) {
        return None;
    }
    let mut at = PathBuf::new();
    let mut ahead = steps(path);
    let mut links = 0;
    while let Some(step) = ahead.pop() {
        match step.as_bytes() {
            b"." => continue,
            b".." => {
                at.pop();
                continue;
            }
            // An absolute step replaces the whole path.
            _ => at.push(step),
        }
        // If the root hangs, so does edged: only the mount of the final path counts.
        let found = over(table, &at).filter(Mount::may_hang);
        if let Some(found) = found.filter(|mount| mount.point != "/") {
            return Some(found);
        }
        if let Ok(to) = fs::read_link(&at) {
            links += 1;
            if links > LINKS_MAX {
                // The kernel does not follow more links either.
                break;
            }
            at.pop();
            ahead.extend(steps(&to));
        }
    }
    over(table, &at).filter(Mount::may_hang)
}

/// The components of a path, the last one first.
fn steps(path: &Path) -> Vec<OsString> {
    path.components().rev().map(|step| step.as_os_str().to_owned()).collect()
}

/// The kernel writes spaces and backslashes in paths as `\040`.
fn unescape(path: &str) -> Cow<'_, str> {
    let mut parts = path.split('\\');
    let first = parts.next().unwrap_or_default();
    let mut text = Cow::Borrowed(first);
    for part in parts {
        let code = part.get(..3).and_then(|digits| u8::from_str_radix(digits, 8).ok());
        let text = text.to_mut();
        match code {
            Some(code) => {
                text.push(char::from(code));
                text.push_str(&part[3..]);
            }
            None => text.push_str(part),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::fs::symlink;

    use super::*;

    const TABLE: &str = "\
27 1 254:0 / / rw,relatime - ext4 /dev/root rw
30 27 0:26 / /run rw - tmpfs tmpfs rw
31 27 0:30 / /mnt/share rw,relatime shared:7 - nfs4 host:/x rw
32 27 254:0 /var/lib/kubelet /var/lib/kubelet rw shared:9 - ext4 /dev/root rw
33 31 0:31 / /mnt/share/fuse rw - fuse.sshfs x rw
34 27 0:32 / /mnt/NAS\\040share rw master:2 - cifs //host/x rw
35 27 0:33 / /auto rw - autofs systemd-1 rw
36 35 8:1 / /auto rw - ext4 /dev/sda1 rw
";

    #[test]
    fn the_mount_that_a_path_lies_on_is_the_deepest() {
        for (path, point, shared, kind) in [
            ("/var/lib", "/", false, "ext4"),
            ("/var/lib/kubelet", "/var/lib/kubelet", true, "ext4"),
            ("/var/lib/kubelet/pods", "/var/lib/kubelet", true, "ext4"),
            ("/var/lib/kubelet2", "/", false, "ext4"),
            ("/mnt/share/a/b", "/mnt/share", true, "nfs4"),
            ("/mnt/share/fuse", "/mnt/share/fuse", false, "fuse.sshfs"),
            ("/mnt/NAS share/a", "/mnt/NAS share", false, "cifs"),
            ("/auto/a", "/auto", false, "ext4"),
        ] {
            let over = over(TABLE, Path::new(path)).expect(path);
            let slave = kind == "cifs";
            assert_eq!(over, Mount { point: point.into(), shared, slave, kind }, "{path}");
            let remote = ["nfs4", "cifs", "fuse.sshfs"].contains(&kind);
            assert_eq!(over.may_hang(), remote, "{path}");
        }
        assert!(over("", Path::new("/")).is_none());
    }

    #[test]
    fn links_are_followed_up_to_what_may_hang() {
        let top = std::env::temp_dir().join(format!("edged-way-{}", std::process::id()));
        fs::create_dir_all(top.join("nas/data/in")).expect("folders");
        fs::create_dir_all(top.join("here")).expect("a folder");
        let nas = top.join("nas").into_os_string().into_string().expect("text");
        let far = format!("{nas}/data");
        // The test assumes no links behind the mount.
        for (link, to) in [
            ("far", &*far),
            ("near", "./nas"),
            ("here/up", "../far/in"),
            ("twice", "here/up"),
            ("loop", "loop"),
            ("fine", "here/../here"),
            ("nas/out", "../here"),
        ] {
            symlink(to, top.join(link)).expect("a link");
        }
        let table = format!(
            "1 0 8:1 / / rw - ext4 /dev/a rw\n2 1 0:9 / {nas} rw - nfs4 h:/x rw\n\
                             3 2 8:2 / {nas}/disk rw - ext4 /dev/b rw\n"
        );
        let hangs =
            ["far", "far/in", "near", "here/up", "twice/x", "nas/out", "nas/disk", "none/../nas"];
        for path in hangs {
            let found = remote(&table, &top.join(path));
            assert_eq!(found.map(|mount| mount.point), Some(Cow::from(&*nas)), "{path}");
        }
        for path in ["", "here", "fine", "loop", "none/deep", "here/../fine", "nas2"] {
            assert_eq!(remote(&table, &top.join(path)), None, "{path}");
        }
        fs::remove_dir_all(&top).expect("ours");
    }

    #[test]
    fn the_way_to_what_may_hang_goes_over_as_many_links_as_the_kernel_follows() {
        let top = std::env::temp_dir().join(format!("edged-links-{}", std::process::id()));
        fs::create_dir_all(top.join("nas")).expect("a folder");
        symlink("nas", top.join("1")).expect("a link");
        for link in 2..=LINKS_MAX + 1 {
            symlink((link - 1).to_string(), top.join(link.to_string())).expect("a link");
        }
        let nas = top.join("nas");
        let table = format!(
            "1 0 8:1 / / rw - ext4 /dev/a rw\n2 1 0:9 / {} rw - nfs4 h:/x rw\n",
            nas.display()
        );
        let hangs = |links: usize| remote(&table, &top.join(links.to_string())).is_some();
        assert!(hangs(LINKS_MAX));
        assert!(!hangs(LINKS_MAX + 1), "opening it fails, and nothing waits");
        fs::remove_dir_all(&top).expect("ours");
    }

    #[test]
    fn a_root_on_another_machine_is_not_on_the_way_to_what_lies_here() {
        let table = "1 0 0:9 / / rw - nfs4 h:/x rw\n2 1 8:1 / /var rw - ext4 /dev/a rw\n";
        let kind = |path: &str| remote(table, Path::new(path)).map(|mount| mount.kind);
        assert_eq!((kind("/var/none"), kind("/none")), (None, Some("nfs4")));
    }

    #[test]
    fn a_list_with_a_name_that_is_no_text_is_read_all_the_same() {
        let place = std::env::temp_dir().join(format!("edged-mounts-{}", std::process::id()));
        let label = b"1 0 8:1 / /media/K\xfcche rw - vfat /dev/sda1 rw\n";
        fs::write(&place, [label, TABLE.as_bytes()].concat()).expect("a file of ours");
        let table = sys::kernel_text(&place).expect("readable");
        fs::remove_file(&place).expect("ours");
        assert_eq!(over(&table, Path::new("/mnt/share/a")).map(|on| on.kind), Some("nfs4"));
        let stick = Path::new(OsStr::from_bytes(b"/media/K\xfcche/a"));
        assert_eq!(over(&table, stick).map(|on| on.kind), Some("vfat"));
    }
}
