//! Log folders on a real file system, each test below its own folder.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;

use super::*;
use crate::io::test_folder::TestFolder;
use crate::limits::{
    ATTEMPT_MAX, LOG_DIRS_MAX, MOUNTS_STACKED_MAX, REMOVE_DEPTH_MAX, TERMINATION_LOG_BYTES_MAX,
    TERMINATION_LOG_LINES_MAX, TERMINATION_LOG_READ_BYTES, TERMINATION_MESSAGE_BYTES_MAX,
};
use crate::model::job::{LastWords, LogDir, LogLink};

/// For most jobs only success matters.
fn run(roots: &mut Roots, spec: &JobSpec) -> Result<(), JobError> {
    super::run(roots, spec).map(drop)
}

struct Place(TestFolder);

impl Place {
    fn new() -> Self {
        Self(TestFolder::new("jobs"))
    }

    fn roots(&self) -> Roots {
        Roots::new(&self.0.join("kubelet"), self.0.join("pods"), Some(self.0.join("containers")))
    }

    fn path(&self, below: &str) -> PathBuf {
        self.0.join(below)
    }
}

fn pod() -> LogDir {
    LogDir { namespace: "ns".into(), name: "web".into(), uid: "u-1".into() }
}

fn log_of(attempt: u32) -> LogLink {
    LogLink { pod: pod(), container: "app".into(), attempt, id: "abc".into() }
}

fn made(place: &Place) -> Roots {
    let mut roots = place.roots();
    let spec = JobSpec::MakePodDirs { pod: pod(), containers: vec!["app".into(), "side".into()] };
    assert_eq!(run(&mut roots, &spec), Ok(()));
    assert_eq!(run(&mut roots, &spec), Ok(()), "made twice");
    roots
}

#[test]
fn folders_are_made_with_the_kubelets_names_and_modes() {
    let place = Place::new();
    made(&place);
    for below in ["pods/ns_web_u-1", "pods/ns_web_u-1/app", "pods/ns_web_u-1/side"] {
        let meta = fs::metadata(place.path(below)).expect(below);
        assert_eq!(meta.permissions().mode() & 0o7777, 0o755, "{below}");
    }
}

#[test]
fn the_newest_log_of_each_container_is_reported() {
    let place = Place::new();
    let mut roots = made(&place);
    for name in ["9.log", "10.log", "11.log.20260101-000000.gz", "12.logs", "x.log", "-1.log"] {
        fs::write(place.path("pods/ns_web_u-1/app").join(name), "").expect(name);
    }
    let huge = place.path("pods/ns_web_u-1/side/4294967295.log");
    fs::write(huge, "").expect("a log");
    let names = ["app", "side", "new"].map(Box::from).to_vec();
    let spec = JobSpec::MakePodDirs { pod: pod(), containers: names };
    let newest = vec![Some(11), Some(ATTEMPT_MAX), None];
    assert_eq!(super::run(&mut roots, &spec), Ok(JobReply::Attempts(newest)));
}

#[test]
fn a_log_is_linked_once_it_exists_and_a_stale_link_is_replaced() {
    let place = Place::new();
    let mut roots = made(&place);
    let spec = JobSpec::LinkLog(log_of(0));
    assert!(run(&mut roots, &spec).is_err(), "there is no log yet");
    fs::write(place.path("pods/ns_web_u-1/app/0.log"), "").expect("a log");
    let link = place.path("containers/web_ns_app-abc.log");
    symlink("/nowhere", &link).expect("a stale link");
    for _ in 0..2 {
        assert_eq!(run(&mut roots, &spec), Ok(()));
        assert_eq!(fs::read_link(&link).ok(), Some(place.path("pods/ns_web_u-1/app/0.log")));
    }
    assert_eq!(run(&mut roots, &JobSpec::RemoveLog(log_of(0))), Ok(()));
    assert!(link.symlink_metadata().is_err());
}

#[test]
fn the_links_name_is_cut_to_what_a_file_system_takes() {
    let place = Place::new();
    let mut roots = place.roots();
    let mut long = log_of(0);
    long.pod.name = "n".repeat(150).into();
    long.container = "c".repeat(63).into();
    long.id = "i".repeat(64).into();
    let dirs =
        JobSpec::MakePodDirs { pod: long.pod.clone(), containers: vec![long.container.clone()] };
    assert_eq!(run(&mut roots, &dirs), Ok(()));
    let file = format!("pods/ns_{}_u-1/{}/0.log", long.pod.name, long.container);
    fs::write(place.path(&file), "").expect("a log");
    assert_eq!(run(&mut roots, &JobSpec::LinkLog(long)), Ok(()));
    let mut names = fs::read_dir(place.path("containers")).expect("the folder");
    let name = names.next().expect("a link").expect("its entry").file_name();
    assert_eq!(name.len(), 255);
    assert!(name.to_string_lossy().ends_with("i.log"));
}

#[test]
fn only_the_ended_containers_logs_are_removed() {
    let place = Place::new();
    let mut roots = made(&place);
    let dir = place.path("pods/ns_web_u-1/app");
    for name in ["1.log", "1.log.20260101-000000", "1.log.x.gz", "11.log", "0.log", "1.logs"] {
        fs::write(dir.join(name), "").expect(name);
    }
    assert_eq!(run(&mut roots, &JobSpec::RemoveLog(log_of(1))), Ok(()));
    assert_eq!(run(&mut roots, &JobSpec::RemoveLog(log_of(1))), Ok(()), "removed twice");
    let mut left: Vec<_> = fs::read_dir(&dir)
        .expect("the folder")
        .map(|entry| entry.expect("an entry").file_name().into_string().expect("text"))
        .collect();
    left.sort();
    assert_eq!(left, ["0.log", "1.logs", "11.log"]);
}

#[test]
fn a_pods_folder_goes_with_all_in_it_and_links_in_it_lead_nowhere() {
    let place = Place::new();
    let mut roots = made(&place);
    let dir = place.path("pods/ns_web_u-1");
    fs::create_dir_all(place.path("precious/deep")).expect("a folder");
    fs::write(place.path("precious/deep/file"), "keep").expect("a file");
    symlink(place.path("precious"), dir.join("app/link")).expect("a link");
    fs::create_dir_all(dir.join("app/a/b/c")).expect("folders");
    for number in 0..300 {
        fs::write(dir.join(format!("app/a/{number}")), "").expect("a file");
    }
    for _ in 0..2 {
        assert_eq!(run(&mut roots, &JobSpec::RemoveLogDir(pod())), Ok(()));
        assert!(!dir.exists());
    }
    assert_eq!(fs::read_to_string(place.path("precious/deep/file")).ok().as_deref(), Some("keep"));
}

#[test]
fn a_folder_that_is_a_link_is_not_entered() {
    let place = Place::new();
    let mut roots = made(&place);
    fs::create_dir_all(place.path("precious/app")).expect("a folder");
    fs::write(place.path("precious/app/0.log"), "keep").expect("a file");
    fs::remove_dir_all(place.path("pods/ns_web_u-1")).expect("removed");
    symlink(place.path("precious"), place.path("pods/ns_web_u-1")).expect("a link");
    assert!(run(&mut roots, &JobSpec::RemoveLog(log_of(0))).is_err());
    let dirs = JobSpec::MakePodDirs { pod: pod(), containers: vec!["new".into()] };
    assert!(run(&mut roots, &dirs).is_err());
    // The link itself is removed.
    assert_eq!(run(&mut roots, &JobSpec::RemoveLogDir(pod())), Ok(()));
    assert!(place.path("precious/app/0.log").exists());
    assert!(!place.path("precious/new").exists());
}

/// Made step by step: its path is longer than the kernel accepts.
fn dig(top: &Path, depth: usize) {
    let mut dir = open(top, OFlag::O_DIRECTORY, Mode::empty()).expect("it is there");
    for _ in 0..depth {
        nix::sys::stat::mkdirat(&dir, "d", Mode::S_IRWXU).expect("a folder");
        let flags = OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        dir = nix::fcntl::openat(&dir, "d", flags, Mode::empty()).expect("just made");
    }
    let file = nix::fcntl::openat(&dir, "file", OFlag::O_CREAT | OFlag::O_WRONLY, Mode::S_IRWXU);
    std::io::Write::write_all(&mut fs::File::from(file.expect("a file")), &[1; 9_000])
        .expect("9 k");
}

#[test]
fn a_tree_is_removed_however_deep_it_is() {
    let place = Place::new();
    let mut roots = made(&place);
    let dir = place.path("pods/ns_web_u-1");
    dig(&dir.join("app"), 3 * REMOVE_DEPTH_MAX + 7);
    // A folder with two that are too deep below it.
    dig(&dir.join("side"), REMOVE_DEPTH_MAX - 3);
    let flat = format!("side/{}", "d/".repeat(REMOVE_DEPTH_MAX - 3));
    fs::create_dir_all(dir.join(&flat).join("x/y/z")).expect("folders");
    fs::create_dir_all(dir.join(&flat).join("y/y/z")).expect("folders");
    assert_eq!(run(&mut roots, &JobSpec::RemoveLogDir(pod())), Ok(()));
    assert!(!dir.exists());
}

#[test]
fn what_cannot_be_removed_keeps_nothing_else() {
    let place = Place::new();
    let mut roots = made(&place);
    let dir = place.path("pods/ns_web_u-1");
    let mounts = ["a", "b"].map(|name| dir.join("app").join(name).join("mount"));
    for name in ["a", "b", "c", "d", "e", "f"] {
        fs::create_dir_all(dir.join("app").join(name)).expect("a folder");
        fs::write(dir.join("app").join(name).join("file"), "").expect("a file");
    }
    let (tmpfs, flags) = (Some("tmpfs"), nix::mount::MsFlags::empty());
    for mount in &mounts {
        fs::create_dir_all(mount).expect("a folder");
        nix::mount::mount(tmpfs, mount, tmpfs, flags, None::<&str>).expect("as root");
    }
    let failed = run(&mut roots, &JobSpec::RemoveLogDir(pod()));
    for mount in &mounts {
        nix::mount::umount(mount).expect("ours");
    }
    assert_eq!(failed, Err(JobError::Failed("open mount: Cross-device link".to_owned())));
    let left = fs::read_dir(dir.join("app")).expect("a folder").count();
    let files = ["a/file", "b/file"].map(|file| dir.join("app").join(file).exists());
    assert_eq!((left, files), (2, [false; 2]));
}

#[test]
fn mounts_one_over_the_other_are_undone_as_far_as_there_is_reason() {
    let place = Place::new();
    let dir = place.path("volume");
    fs::create_dir(&dir).expect("a folder");
    let (tmpfs, flags) = (Some("tmpfs"), nix::mount::MsFlags::empty());
    let parent = open(&*place.0, OFlag::O_DIRECTORY, Mode::empty()).expect("it is there");
    let name = Component::new("volume").expect("a component");
    for (mounts, undone) in [(MOUNTS_STACKED_MAX, true), (MOUNTS_STACKED_MAX + 1, false)] {
        for _ in 0..mounts {
            nix::mount::mount(tmpfs, &dir, tmpfs, flags, None::<&str>).expect("as root");
        }
        let first = pod_dir::unmount(parent.as_fd(), name);
        let second = pod_dir::unmount(parent.as_fd(), name);
        assert_eq!(nix::mount::umount(&dir), Err(Errno::EINVAL), "none is left");
        assert_eq!((first.is_ok(), second.is_ok()), (undone, true), "{mounts} mounts");
    }
}

#[test]
fn folders_of_pods_are_looked_at_up_to_a_number() {
    let place = Place::new();
    let names = |dir: &str, name: &dyn Fn(usize) -> String| {
        for number in 0..=LOG_DIRS_MAX {
            fs::create_dir_all(place.path(dir).join(name(number))).expect("a folder");
        }
        open(&place.path(dir), OFlag::O_DIRECTORY, Mode::empty()).expect("it is there")
    };
    let logs = names("pods", &|number| format!("ns_p_u{number}"));
    let dirs = names("dirs", &|number| format!("u{number}"));
    let found = || {
        let (logs, dirs) = (log::dirs(logs.as_fd()), pod_dir::uids(dirs.as_fd()));
        (logs.expect("it can be read").len(), dirs.expect("it can be read").len())
    };
    assert_eq!(found(), (LOG_DIRS_MAX, LOG_DIRS_MAX));
    for number in 0..2 {
        fs::remove_dir(place.path(&format!("pods/ns_p_u{number}"))).expect("ours");
        fs::remove_dir(place.path(&format!("dirs/u{number}"))).expect("ours");
    }
    assert_eq!(found(), (LOG_DIRS_MAX - 1, LOG_DIRS_MAX - 1));
}

#[test]
fn of_what_a_container_left_the_end_is_read() {
    let place = Place::new();
    let mut roots = made(&place);
    let last_words =
        LastWords { pod: pod(), container: "app".into(), file: Some("words".into()), log: Some(0) };
    let mut text_of = |file: &str, log: &str| {
        let dir = place.path("kubelet/pods/u-1/containers/app");
        fs::create_dir_all(&dir).expect("a folder");
        fs::write(dir.join("words"), file).expect("a file");
        fs::write(place.path("pods/ns_web_u-1/app/0.log"), log).expect("a log");
        read(&mut roots, &last_words)
    };
    let text = format!("a{}", "b".repeat(TERMINATION_MESSAGE_BYTES_MAX - 1));
    assert_eq!(text_of(&text, ""), text);
    assert_eq!(text_of(&format!("{text}b"), ""), "b".repeat(TERMINATION_MESSAGE_BYTES_MAX));
    let line = |tag: &str, text: &str| format!("2026-01-01T00:00:00.1Z stdout {tag} {text}\n");
    let (first, rest) = (line("F", "a"), line("F", "b"));
    assert_eq!(
        text_of("", &(first.clone() + &rest.repeat(TERMINATION_LOG_LINES_MAX - 1)))
            .matches('a')
            .count(),
        1
    );
    assert_eq!(
        text_of("", &(first + &rest.repeat(TERMINATION_LOG_LINES_MAX))),
        "b\n".repeat(TERMINATION_LOG_LINES_MAX)
    );
    let long = line("F", &format!("a{}", "b".repeat(TERMINATION_LOG_BYTES_MAX - 2)));
    assert_eq!(text_of("", &long).find('a'), Some(0));
    let long = line("F", &format!("a{}", "b".repeat(TERMINATION_LOG_BYTES_MAX - 1)));
    assert_eq!(text_of("", &long).len(), TERMINATION_LOG_BYTES_MAX);
    assert_eq!(text_of("", &long).find('a'), None);
    // One line in so many pieces that their times and tags alone fill the limit of the read.
    let piece = "2026-01-01T00:00:00Z stdout P b\n";
    let pieces = TERMINATION_LOG_READ_BYTES / piece.len();
    assert_eq!(pieces * piece.len(), TERMINATION_LOG_READ_BYTES, "none is read in part");
    assert_eq!(text_of("", &piece.repeat(10 * pieces)), "b".repeat(pieces));
}

#[test]
fn a_tree_that_is_too_deep_is_measured_as_far_as_it_goes() {
    use crate::model::job::{Place as At, Walk};
    let place = Place::new();
    let mut roots = made(&place);
    let app = place.path("pods/ns_web_u-1/app");
    fs::write(app.join("0.log"), vec![1; 1 << 20]).expect("a log");
    dig(&app, REMOVE_DEPTH_MAX + 9);
    let at = At { pod: pod(), name: "app".into() };
    let spec = JobSpec::Measure(Walk { kind: FolderKind::Logs, places: vec![at] });
    let Ok(JobReply::Used(used)) = super::run(&mut roots, &spec) else { panic!("not measured") };
    let used = used[0].as_ref().expect("a lower bound");
    assert!(used.bytes >= 1 << 20 && used.inodes > 256, "{used:?}");
    let _ = run(&mut roots, &JobSpec::RemoveLogDir(pod()));
}

#[test]
fn a_log_that_cannot_be_compressed_leaves_nothing_and_keeps_no_other() {
    let place = Place::new();
    let mut roots = made(&place);
    let app = place.path("pods/ns_web_u-1/app");
    // It opens like a log, and cannot be read.
    fs::create_dir(app.join("0.log.20260101-000000")).expect("a folder");
    for day in [2, 3] {
        fs::write(app.join(format!("0.log.2026010{day}-000000")), "text").expect("a log");
    }
    assert!(run(&mut roots, &JobSpec::CompressLogs(log_of(0))).is_err());
    let entries = fs::read_dir(&app).expect("the folder");
    let mut left: Vec<_> = entries.map(|entry| entry.expect("an entry").file_name()).collect();
    left.sort();
    let days = ["1-000000", "2-000000.gz", "3-000000"];
    assert_eq!(left, days.map(|day| std::ffi::OsString::from(format!("0.log.2026010{day}"))));
}

#[test]
fn names_that_are_no_component_are_refused_by_every_job() {
    let place = Place::new();
    let mut roots = made(&place);
    for bad in ["", ".", "..", "a/b", "/", "/bin", "a\0", &"x".repeat(256)] {
        for part in 0..5 {
            let mut link = log_of(0);
            let field = match part {
                0 => &mut link.pod.namespace,
                1 => &mut link.pod.name,
                2 => &mut link.pod.uid,
                3 => &mut link.container,
                _ => &mut link.id,
            };
            *field = bad.into();
            let dirs = JobSpec::MakePodDirs {
                pod: link.pod.clone(),
                containers: vec![link.container.clone()],
            };
            let expected_bad = |spec: &JobSpec, roots: &mut Roots| {
                assert!(run(roots, spec).is_err(), "{spec:?}");
            };
            if part < 4 {
                expected_bad(&dirs, &mut roots);
            }
            if part < 3 {
                expected_bad(&JobSpec::RemoveLogDir(link.pod.clone()), &mut roots);
            }
            expected_bad(&JobSpec::LinkLog(link.clone()), &mut roots);
            expected_bad(&JobSpec::RemoveLog(link), &mut roots);
        }
    }
    assert!(place.path("pods/ns_web_u-1/app").exists());
}

#[test]
fn a_root_that_was_removed_is_made_again() {
    let place = Place::new();
    let mut roots = made(&place);
    fs::remove_dir_all(place.path("pods")).expect("removed");
    let spec = JobSpec::MakePodDirs { pod: pod(), containers: vec![] };
    assert_eq!(run(&mut roots, &spec), Ok(()));
    assert!(place.path("pods/ns_web_u-1").exists());
}
