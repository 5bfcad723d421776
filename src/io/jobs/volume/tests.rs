//! Volumes on a real file system, each test below its own folder. Mounts need root.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use nix::fcntl::open;

use super::super::pod_dir;
use super::*;
use crate::limits::{FILES_VOLUME_BYTES_MAX, LINKS_MAX};
use crate::model::job::{FileContent, FileEntry, FilesPlugin, HostPathKind as Kind};

/// A kubelet's root of one test, unmounted and removed at its end.
struct Place {
    path: PathBuf,
    pods: OwnedFd,
}

impl Place {
    fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("edged-volumes-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(path.join("pods")).expect("a folder for the test");
        let flags = OFlag::O_DIRECTORY | OFlag::O_RDONLY | OFlag::O_CLOEXEC;
        let pods = open(&path.join("pods"), flags, Mode::empty()).expect("it was made");
        Self { path, pods }
    }

    fn set_up(&self, source: Source, fs_group: Option<u32>) -> Result<(), Failure> {
        let (uid, volume, folder) = ("u".into(), "v".into(), "v".into());
        let nested = vec!["inner/deep".into()];
        set_up(self.pods.as_fd(), &VolumeSetUp { uid, volume, folder, source, fs_group, nested })
    }

    fn files(&self, files: &[(&str, u32, &str)], group: Option<u32>) -> Result<(), Failure> {
        let entry = |(path, mode, text): &(&str, u32, &str)| FileEntry {
            path: (*path).into(),
            mode: *mode,
            content: FileContent(text.as_bytes().into()),
        };
        let files = files.iter().map(entry).collect();
        let plugin = FilesPlugin::ConfigMap;
        self.set_up(Source::Files(Files { plugin, memory_bytes: None, files }), group)
    }

    fn volume(&self, below: &str) -> PathBuf {
        self.path.join("pods/u/volumes/kubernetes.io~configmap/v").join(below)
    }

    fn sub_path(&self, volume: &str, path: &str) -> Result<PathBuf, Failure> {
        bind_sub_path(
            self.pods.as_fd(),
            &SubPath {
                uid: "u".into(),
                container: "c".into(),
                index: 3,
                volume: "v".into(),
                volume_path: self.path.join(volume).to_string_lossy().into(),
                path: path.into(),
                remote: false,
            },
        )?;
        Ok(self.path.join("pods/u/volume-subpaths/v/c/3"))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = pod_dir::remove(self.pods.as_fd(), "u");
        let _ = fs::remove_dir_all(&self.path);
    }
}

fn mode(path: &std::path::Path) -> u32 {
    fs::metadata(path).expect("it is there").permissions().mode() & 0o7777
}

#[test]
fn files_appear_behind_links_with_their_modes() {
    let place = Place::new();
    place.files(&[("a", 0o600, "1"), ("d/b", 0o640, "2")], None).expect("written");
    assert_eq!(fs::read_to_string(place.volume("a")).expect("a"), "1");
    assert_eq!(fs::read_to_string(place.volume("d/b")).expect("b"), "2");
    assert_eq!((mode(&place.volume("a")), mode(&place.volume("d/b"))), (0o600, 0o640));
    assert_eq!(fs::read_link(place.volume("a")).expect("a link"), PathBuf::from("..data/a"));
    assert_eq!(fs::read_link(place.volume("d")).expect("a link"), PathBuf::from("..data/d"));
    assert!(place.volume("inner/deep").is_dir(), "another volume is mounted there");
    let data = fs::read_link(place.volume("..data")).expect("a link");
    assert!(data.to_string_lossy().starts_with("..20"), "{data:?}");
    let ready = "pods/u/plugins/kubernetes.io~empty-dir/wrapped_v/ready";
    assert!(place.path.join(ready).exists());
}

#[test]
fn what_changes_changes_at_once_and_what_does_not_stays() {
    let place = Place::new();
    place.files(&[("a", 0o644, "1"), ("gone", 0o644, "x")], None).expect("written");
    let first = fs::read_link(place.volume("..data")).expect("a link");
    let held = fs::File::open(place.volume("..data")).expect("opens");
    place.files(&[("a", 0o600, "1"), ("gone", 0o644, "x")], None).expect("the same again");
    assert_eq!(fs::read_link(place.volume("..data")).expect("a link"), first, "modes alone");
    fs::create_dir(place.volume("..2020_01_01_00_00_00.left")).expect("a crash left it");
    place.files(&[("a", 0o644, "2"), ("new", 0o644, "y")], None).expect("written");
    assert_ne!(fs::read_link(place.volume("..data")).expect("a link"), first);
    assert_eq!(fs::read_to_string(place.volume("a")).expect("a"), "2");
    assert!(!place.volume("gone").is_symlink() && place.volume("new").exists());
    let dots = |name: &str| name.starts_with("..20");
    let left = pod_dir::names(open_of(&place).as_fd()).expect("names");
    let left: Vec<_> = left.iter().filter(|name| dots(&name.to_string_lossy())).collect();
    assert_eq!(left.len(), 1, "old folders go: {left:?}");
    drop(held);
    place.files(&[], None).expect("optional and gone");
    assert!(!place.volume("a").is_symlink() && !place.volume("new").is_symlink());
}

fn open_of(place: &Place) -> OwnedFd {
    open(&place.volume(""), OFlag::O_DIRECTORY, Mode::empty()).expect("it is there")
}

#[test]
fn a_crash_between_files_and_switch_costs_nothing() {
    let place = Place::new();
    place.files(&[("a", 0o644, "1")], None).expect("written");
    symlink("..elsewhere", place.volume("..data_tmp")).expect("a crash left it");
    fs::remove_file(place.volume("a")).expect("a crash before the link");
    place.files(&[("a", 0o644, "1")], None).expect("written");
    assert_eq!(fs::read_to_string(place.volume("a")).expect("linked again"), "1");
    place.files(&[("a", 0o644, "2")], None).expect("written");
    assert_eq!(fs::read_to_string(place.volume("a")).expect("a"), "2");
}

#[test]
fn keys_that_lead_out_of_the_volume_are_refused() {
    let place = Place::new();
    for path in ["..", "../x", "a/../../x", "/x", "", "a//b", "..data"] {
        assert!(place.files(&[(path, 0o644, "x")], None).is_err(), "{path}");
    }
    assert!(!place.path.join("pods/u/volumes/kubernetes.io~configmap/x").exists());
}

#[test]
fn the_pods_group_gets_in() {
    let place = Place::new();
    place.files(&[("a", 0o400, "1"), ("d/b", 0o600, "2")], Some(1234)).expect("as root");
    let meta = fs::metadata(place.volume("a")).expect("a");
    assert_eq!((meta.gid(), meta.mode() & 0o7777), (1234, 0o440));
    let meta = fs::metadata(place.volume("d")).expect("d");
    assert_eq!((meta.gid(), meta.mode() & 0o7777), (1234, 0o2755));
    place.set_up(Source::EmptyDir(Medium::Disk), Some(1234)).expect("made");
    let empty = place.path.join("pods/u/volumes/kubernetes.io~empty-dir/v");
    let meta = fs::metadata(&empty).expect("it is there");
    assert_eq!((meta.gid(), meta.mode() & 0o7777), (1234, 0o2777));
}

#[test]
fn memory_is_mounted_once_and_again_after_it_was_lost() {
    let place = Place::new();
    let source = || Source::EmptyDir(Medium::Memory { size_bytes: 1 << 20 });
    place.set_up(source(), None).expect("as root");
    let folder = place.path.join("pods/u/volumes/kubernetes.io~empty-dir/v");
    fs::write(folder.join("kept"), "x").expect("a file");
    place.set_up(source(), None).expect("again");
    assert!(folder.join("kept").exists(), "not mounted over");
    assert_eq!(mode(&folder), 0o777);
    assert!(fs::write(folder.join("big"), vec![0; 2 << 20]).is_err(), "bounded");
    pod_dir::tear_down(place.pods.as_fd(), "u").expect("unmounted");
    assert!(!place.path.join("pods/u/volumes").exists());
    fs::create_dir_all(&folder).expect("as after a reboot");
    place.set_up(source(), None).expect("mounted");
    assert!(!folder.join("kept").exists());
    fs::write(folder.join("new"), "x").expect("a file");
    pod_dir::remove(place.pods.as_fd(), "u").expect("all gone");
    assert!(!place.path.join("pods/u").exists());
}

#[test]
fn what_the_node_has_is_looked_at_as_its_type_says() {
    let place = Place::new();
    let path = |below: &str| place.path.join(below).to_string_lossy().into_owned();
    let check = |below: &str, kind| host_path::check(&path(below), kind).map_err(|why| why.0);
    fs::write(path("file"), "x").expect("a file");
    let not = |below: &str, what: &str| {
        Err(format!("hostPath type check failed: {} is not a {what}", path(below)))
    };
    assert_eq!(check("none", Kind::Unset), Ok(()));
    assert_eq!(check("made/deep", Kind::DirectoryOrCreate), Ok(()));
    assert_eq!(check("made/deep", Kind::Directory), Ok(()));
    assert_eq!(mode(&place.path.join("made/deep")), 0o755);
    assert_eq!(check("new", Kind::FileOrCreate), Ok(()));
    assert_eq!(mode(&place.path.join("new")), 0o644);
    assert!(check("nowhere/new", Kind::FileOrCreate).is_err(), "parents are not made");
    assert_eq!(check("file", Kind::File), Ok(()));
    assert_eq!(check("file", Kind::FileOrCreate), Ok(()));
    assert_eq!(check("file", Kind::Directory), not("file", "directory"));
    assert_eq!(check("file", Kind::DirectoryOrCreate), not("file", "directory"));
    assert_eq!(check("made", Kind::File), not("made", "file"));
    assert_eq!(check("none", Kind::File), not("none", "file"));
    assert_eq!(check("file", Kind::Socket), not("file", "socket file"));
    assert_eq!(check("file", Kind::CharDevice), not("file", "character device"));
    assert_eq!(check("file", Kind::BlockDevice), not("file", "block device"));
    assert_eq!(host_path::check("/dev/null", Kind::CharDevice), Ok(()));
    let _socket = std::os::unix::net::UnixListener::bind(path("socket")).expect("a socket");
    assert_eq!(check("socket", Kind::Socket), Ok(()));
}

#[test]
fn a_part_of_a_volume_is_mounted_by_itself() {
    let place = Place::new();
    fs::create_dir_all(place.path.join("vol/a")).expect("a folder");
    fs::write(place.path.join("vol/a/file"), "x").expect("a file");
    let seen = place.sub_path("vol", "a").expect("as root");
    assert_eq!(fs::read_to_string(seen.join("file")).expect("seen"), "x");
    place.sub_path("vol", "a").expect("again");
    // The file for the next container may be another, and of another kind.
    let seen = place.sub_path("vol", "a/file").expect("a file");
    assert_eq!(fs::read_to_string(&seen).expect("seen"), "x");
    let mut mode_of_volume = fs::metadata(place.path.join("vol")).expect("there").permissions();
    mode_of_volume.set_mode(0o2777);
    fs::set_permissions(place.path.join("vol"), mode_of_volume).expect("ours");
    let seen = place.sub_path("vol", "new/deep").expect("made");
    assert!(seen.is_dir());
    assert_eq!(mode(&place.path.join("vol/new/deep")), 0o2777, "as the volume itself");
    pod_dir::tear_down(place.pods.as_fd(), "u").expect("unmounted");
    assert!(!place.path.join("pods/u/volume-subpaths").exists());
    assert!(place.path.join("vol/a/file").exists(), "what was seen stays");
}

#[test]
fn links_in_a_volume_lead_nowhere_else() {
    let place = Place::new();
    fs::create_dir_all(place.path.join("vol/in/side")).expect("a folder");
    fs::create_dir_all(place.path.join("secret")).expect("a folder");
    for (link, to) in [
        ("up", "../secret"),
        ("far", "/etc"),
        ("in/over", "../../secret"),
        ("loop", "loop"),
        ("twice", "up"),
        ("fine", "in/../in/side"),
        ("in/back", "../in/side"),
    ] {
        symlink(to, place.path.join("vol").join(link)).expect("a link");
    }
    for path in ["up", "far", "far/passwd", "in/over", "loop", "twice", "in/../../secret"] {
        let got = place.sub_path("vol", path);
        assert!(got.is_err(), "{path}: {got:?}");
    }
    assert!(place.sub_path("vol", "fine").is_ok());
    assert!(place.sub_path("vol", "in/back").is_ok());
    place.files(&[("a", 0o644, "1")], None).expect("written");
    let volume = "pods/u/volumes/kubernetes.io~configmap/v";
    let seen = place.sub_path(volume, "a").expect("a link of our own making");
    assert_eq!(fs::read_to_string(seen).expect("seen"), "1");
}

#[test]
fn the_way_to_a_part_of_a_volume_goes_over_so_many_links() {
    let place = Place::new();
    fs::create_dir_all(place.path.join("vol/0")).expect("a folder");
    for link in 1..=LINKS_MAX + 1 {
        symlink((link - 1).to_string(), place.path.join(format!("vol/{link}"))).expect("a link");
    }
    place.sub_path("vol", &LINKS_MAX.to_string()).expect("as many as the kernel follows");
    let Err(Failure(why)) = place.sub_path("vol", &(LINKS_MAX + 1).to_string()) else {
        panic!("one more")
    };
    assert!(why.contains("Too many symbolic links"), "{why}");
}

#[test]
fn the_files_of_a_secret_have_a_bound_of_memory() {
    let place = Place::new();
    let set_up = |bytes: u64| {
        let content = FileContent(vec![b'x'; bytes as usize].into());
        let files = vec![FileEntry { path: "a".into(), mode: 0o600, content }];
        let (plugin, memory_bytes) = (FilesPlugin::Secret, Some(FILES_VOLUME_BYTES_MAX));
        place.set_up(Source::Files(Files { plugin, memory_bytes, files }), None)
    };
    // The folders and links need a page or two themselves.
    set_up(FILES_VOLUME_BYTES_MAX - (64 << 10)).expect("as root");
    pod_dir::tear_down(place.pods.as_fd(), "u").expect("unmounted");
    let Err(Failure(why)) = set_up(FILES_VOLUME_BYTES_MAX + 1) else { panic!("one byte more") };
    assert!(why.contains("No space left on device"), "{why}");
}

#[test]
fn volumes_of_other_kinds_keep_what_is_in_them() {
    let place = Place::new();
    let theirs = place.path.join("pods/u/volumes/kubernetes.io~csi/pv/mount");
    fs::create_dir_all(&theirs).expect("a folder");
    fs::write(theirs.join("data"), "x").expect("a file");
    let why = pod_dir::remove(place.pods.as_fd(), "u").expect_err("somebody's data").0;
    assert_eq!(why, "kubernetes.io~csi/pv: rmdir pv: Directory not empty");
    assert!(theirs.join("data").exists());
    let nfs = place.path.join("pods/u/volumes/kubernetes.io~nfs/v");
    fs::create_dir_all(nfs.join("data")).expect("a folder");
    assert!(pod_dir::remove(place.pods.as_fd(), "u").is_err());
    assert!(nfs.join("data").exists(), "only what is empty goes");
}

#[test]
fn mounts_that_nobody_knows_are_not_entered() {
    let place = Place::new();
    place.set_up(Source::EmptyDir(Medium::Disk), None).expect("made");
    let folder = place.path.join("pods/u/volumes/kubernetes.io~empty-dir/v/inner");
    let outside = place.path.join("outside");
    fs::create_dir_all(&folder).expect("a folder");
    fs::create_dir_all(&outside).expect("a folder");
    fs::write(outside.join("data"), "x").expect("a file");
    let handle = |path: &PathBuf| open(path, OFlag::O_PATH, Mode::empty()).expect("it is there");
    mount::bind(handle(&outside).as_fd(), handle(&folder).as_fd()).expect("as root");
    assert!(pod_dir::remove(place.pods.as_fd(), "u").is_err());
    assert!(outside.join("data").exists());
    let _ = nix::mount::umount(&folder);
}

#[test]
fn a_folder_of_the_node_is_shown_given_to_the_group_and_left() {
    let place = Place::new();
    let ssd = place.path.join("ssd");
    fs::create_dir_all(ssd.join("deep")).expect("a folder");
    fs::write(ssd.join("deep/data"), "x").expect("a file");
    fs::set_permissions(ssd.join("deep/data"), fs::Permissions::from_mode(0o600)).expect("ours");
    symlink("/etc/passwd", ssd.join("link")).expect("a link");
    let passwd = fs::metadata("/etc/passwd").expect("it is there");
    let path: Box<str> = ssd.to_string_lossy().into();
    let local = |if_needed| Source::Local { path: path.clone(), if_needed };
    let shown = place.path.join("pods/u/volumes/kubernetes.io~local-volume/v");
    place.set_up(local(false), Some(1234)).expect("mounted");
    place.set_up(local(false), Some(1234)).expect("and found again");
    assert_eq!(fs::read_to_string(shown.join("deep/data")).expect("shown"), "x");
    for (below, mode) in [("", 0o2775), ("deep", 0o2775), ("deep/data", 0o660)] {
        let is = fs::metadata(ssd.join(below)).expect(below);
        assert_eq!((is.gid(), is.mode() & 0o7777), (1234, mode), "{below:?}");
    }
    let link = fs::symlink_metadata(ssd.join("link")).expect("a link");
    assert_eq!(link.gid(), 1234);
    let now = fs::metadata("/etc/passwd").expect("it is there");
    assert_eq!((now.gid(), now.mode()), (passwd.gid(), passwd.mode()), "links lead nowhere");
    fs::write(ssd.join("later"), "x").expect("a file");
    std::os::unix::fs::chown(ssd.join("later"), None, Some(0)).expect("as root");
    place.set_up(local(true), Some(1234)).expect("its root is the group's");
    assert_eq!(fs::metadata(ssd.join("later")).expect("a file").gid(), 0);
    pod_dir::tear_down(place.pods.as_fd(), "u").expect("unmounted");
    assert!(!shown.exists() && ssd.join("deep/data").exists());
    for (path, want) in [("/nowhere/at/all", "does not exist"), ("/etc/passwd", "is not a direc")] {
        let source = Source::Local { path: path.into(), if_needed: false };
        let Failure(why) = place.set_up(source, None).expect_err(path);
        assert!(why.contains(want), "{why}");
    }
}

#[test]
fn what_another_machine_shows_is_given_up_when_its_pod_goes() {
    let place = Place::new();
    let outside = place.path.join("outside");
    let shown = place.path.join("pods/u/volumes/kubernetes.io~nfs/v");
    fs::create_dir_all(&outside).expect("a folder");
    fs::create_dir_all(&shown).expect("a folder");
    fs::write(outside.join("data"), "x").expect("a file");
    let handle = |path: &PathBuf| open(path, OFlag::O_PATH, Mode::empty()).expect("it is there");
    mount::bind(handle(&outside).as_fd(), handle(&shown).as_fd()).expect("as root");
    // A process still has it open, as with a machine that does not answer.
    let held = fs::File::open(shown.join("data")).expect("a file");
    pod_dir::tear_down(place.pods.as_fd(), "u").expect("unmounted all the same");
    assert!(!shown.exists() && outside.join("data").exists());
    drop(held);
}
