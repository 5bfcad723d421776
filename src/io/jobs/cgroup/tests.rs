//! On folders that look like the kernel's, and on real cgroups if this process may make them.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::*;
use crate::io::test_folder::TestFolder;

struct Place(TestFolder);

impl Place {
    fn new() -> Self {
        Self(TestFolder::new("cgroup"))
    }

    /// A folder with files that the kernel would make.
    fn dir(&self, path: &str, files: &[&str]) {
        let dir = self.0.join(path);
        fs::create_dir_all(&dir).expect("a folder");
        for file in files {
            fs::write(dir.join(file), "").expect("a file");
        }
    }

    fn read(&self, path: &str) -> String {
        fs::read_to_string(self.0.join(path)).unwrap_or_else(|error| format!("{error}"))
    }
}

fn pod(class: QosClass) -> PodCgroup {
    let values = Values {
        cpu_shares: 512,
        cpu_quota: Some(50_000),
        cpu_period: 100_000,
        memory: Some(8 << 20),
        pids: Some(100),
        huge_pages: vec![("2MB".into(), 4 << 20)],
    };
    PodCgroup { uid: "u-1".into(), class, values }
}

const V1: [(&str, &str); 6] = [
    ("cpu/x/kubepods/burstable/podu-1/cpu.shares", "512"),
    ("cpu/x/kubepods/burstable/podu-1/cpu.cfs_quota_us", "50000"),
    ("cpu/x/kubepods/burstable/podu-1/cpu.cfs_period_us", "100000"),
    ("memory/x/kubepods/burstable/podu-1/memory.limit_in_bytes", "8388608"),
    ("pids/x/kubepods/burstable/podu-1/pids.max", "100"),
    ("hugetlb/x/kubepods/burstable/podu-1/hugetlb.2MB.limit_in_bytes", "4194304"),
];

#[test]
fn version_1_has_a_folder_for_each_controller() {
    let place = Place::new();
    for (path, _) in V1 {
        let (dir, file) = path.rsplit_once('/').expect("a path");
        place.dir(dir, &[file]);
    }
    let cgroups = Cgroups::new(place.0.to_path_buf(), Hierarchy::V1, vec!["x".into()]);
    cgroups.make_pod(&pod(QosClass::Burstable)).expect("made");
    for (path, want) in V1 {
        assert_eq!(place.read(path), want, "{path}");
    }
}

#[test]
fn version_2_has_one_folder_whose_parents_hand_their_controllers_down() {
    let place = Place::new();
    let control = ["cgroup.controllers", "cgroup.subtree_control"];
    for dir in ["", "kubepods"] {
        place.dir(dir, &control);
    }
    fs::write(place.0.join("cgroup.controllers"), "cpu io memory\n").expect("a file");
    let files = ["cpu.weight", "cpu.max", "memory.max", "pids.max", "hugetlb.2MB.max"];
    place.dir("kubepods/podu-1", &files);
    let cgroups = Cgroups::new(place.0.to_path_buf(), Hierarchy::V2, Vec::new());
    cgroups.make_pod(&pod(QosClass::Guaranteed)).expect("made");
    let got: Vec<_> =
        files.iter().map(|file| place.read(&format!("kubepods/podu-1/{file}"))).collect();
    assert_eq!(got, ["20", "50000 100000", "8388608", "100", "4194304"]);
    // A plain file keeps the beginning of the last write.
    assert_eq!(place.read("cgroup.subtree_control"), "+memory");
    let free = Values { cpu_period: 100_000, ..Values::default() };
    let free = PodCgroup { values: free, ..pod(QosClass::Guaranteed) };
    place.dir("kubepods/podu-1", &files);
    cgroups.make_pod(&free).expect("made");
    let got: Vec<_> =
        files.iter().map(|file| place.read(&format!("kubepods/podu-1/{file}"))).collect();
    assert_eq!(got, ["1", "max 100000", "max", "max", ""]);
}

#[test]
fn only_the_pods_own_folders_go() {
    let place = Place::new();
    for dir in [
        "cpu/kubepods/podu-1/abc/def",
        "memory/kubepods/besteffort/podu-1",
        "memory/kubepods/besteffort/podu-12/abc",
        "memory/kubepods/burstable/podu-1/abc",
        "memory/podu-1",
        "memory/other/podu-1",
    ] {
        place.dir(dir, &[]);
    }
    let cgroups = Cgroups::new(place.0.to_path_buf(), Hierarchy::V1, Vec::new());
    cgroups.remove_pod("u-1").expect("removed");
    let is = |path: &str| place.0.join(path).is_dir();
    assert!(!is("cpu/kubepods/podu-1") && is("cpu/kubepods"));
    assert!(!is("memory/kubepods/besteffort/podu-1") && is("memory/kubepods/besteffort"));
    assert!(!is("memory/kubepods/burstable/podu-1"));
    for kept in ["memory/kubepods/besteffort/podu-12/abc", "memory/podu-1", "memory/other/podu-1"] {
        assert!(is(kept), "{kept}");
    }
    cgroups.remove_pod("u-1").expect("nothing is left to remove");
    for uid in ["", "..", "../x", "a/b"] {
        assert!(cgroups.remove_pod(uid).is_err(), "{uid:?}");
        assert!(
            cgroups.make_pod(&PodCgroup { uid: uid.into(), ..pod(QosClass::Burstable) }).is_err()
        );
    }
}

#[test]
fn only_cgroups_without_a_process_are_idle() {
    let place = Place::new();
    let procs = ["cgroup.procs"];
    for dir in [
        "cpu/kubepods/podleft",
        "cpu/kubepods/podleft/abc",
        "cpu/kubepods/podknown",
        "cpu/kubepods/podelsewhere",
        "memory/kubepods/burstable/podelsewhere",
        "memory/kubepods/besteffort/podbusy",
        "memory/kubepods/besteffort/podbusy/abc",
        "memory/kubepods/besteffort/podNobodys",
        "memory/kubepods/besteffort/other",
        "memory/podoutside",
    ] {
        place.dir(dir, &procs);
    }
    let run =
        |dir: &str| fs::write(place.0.join(dir).join("cgroup.procs"), "77\n").expect("a file");
    run("memory/kubepods/besteffort/podbusy/abc");
    run("memory/kubepods/burstable/podelsewhere");
    let cgroups = Cgroups::new(place.0.to_path_buf(), Hierarchy::V1, Vec::new());
    let idle = |known: &[&str]| {
        let known: Vec<Box<str>> = known.iter().map(|&uid| uid.into()).collect();
        let idle = cgroups.idle_pods(&known).expect("it can be read");
        idle.into_iter().collect::<Vec<_>>()
    };
    assert_eq!(idle(&["a", "known", "z"]), ["left"]);
    assert_eq!(idle(&["busy", "left"]), ["known"]);
}

#[test]
fn cgroups_in_one_another_are_gone_down_to_a_depth() {
    for (depth, within) in [(CGROUP_DEPTH_MAX - 1, true), (CGROUP_DEPTH_MAX, false)] {
        let place = Place::new();
        let mut dir = "kubepods/podu-1".to_owned();
        place.dir(&dir, &["cgroup.procs"]);
        for _ in 0..depth {
            dir += "/c";
            place.dir(&dir, &["cgroup.procs"]);
        }
        let cgroups = Cgroups::new(place.0.to_path_buf(), Hierarchy::V2, Vec::new());
        let idle = cgroups.idle_pods(&[]).expect("it can be read");
        assert_eq!(idle.len(), usize::from(within), "{depth}: what is not seen is not idle");
        // On a plain file system only a folder without files can be removed.
        let removed = remove_as_the_kernel_would(&place, &cgroups);
        match removed {
            Ok(()) => assert!(within, "{depth}"),
            Err(Failure(why)) => {
                let message = format!("c: got more than {CGROUP_DEPTH_MAX} cgroups in it");
                assert_eq!((within, why), (false, message), "{depth}");
            }
        }
    }
}

/// The kernel removes its files with their cgroup: here they are removed before.
fn remove_as_the_kernel_would(place: &Place, cgroups: &Cgroups) -> Result<(), Failure> {
    let mut dir = place.0.join("kubepods/podu-1");
    while dir.is_dir() {
        fs::remove_file(dir.join("cgroup.procs")).expect("ours");
        dir.push("c");
    }
    cgroups.remove_pod("u-1")
}

#[test]
fn idle_cgroups_are_found_up_to_a_number() {
    let place = Place::new();
    for number in 0..=LOG_DIRS_MAX {
        place.dir(&format!("kubepods/podu{number}"), &["cgroup.procs"]);
    }
    let cgroups = Cgroups::new(place.0.to_path_buf(), Hierarchy::V2, Vec::new());
    assert_eq!(cgroups.idle_pods(&[]).expect("it can be read").len(), LOG_DIRS_MAX);
}

#[test]
fn a_machine_without_cgroups_says_so() {
    let cgroups = Cgroups::new("/nowhere".into(), Hierarchy::None, Vec::new());
    let Failure(why) = cgroups.make_pod(&pod(QosClass::Burstable)).expect_err("nothing is there");
    assert_eq!(why, "this machine has no cgroups to write to");
    cgroups.remove_pod("u-1").expect("nothing is there");
    let gone = Cgroups::new("/nowhere".into(), Hierarchy::V2, Vec::new());
    let Failure(why) = gone.make_pod(&pod(QosClass::Burstable)).expect_err("nothing is there");
    assert_eq!(why, "/nowhere is gone");
}

#[test]
fn a_process_whose_number_was_read_in_part_is_not_killed_for_another() {
    let place = Place::new();
    let mut other = Command::new("sleep").arg("60").spawn().expect("sleep");
    let number = other.id().to_string();
    // Up to the limit, and then the rest of a longer number.
    let before = CGROUP_PROCS_BYTES_MAX as usize - number.len();
    let list = "1\n".repeat(before / 2) + &"\n".repeat(before % 2) + &number + "7\n";
    fs::write(place.0.join("cgroup.procs"), list).expect("a file");
    let dir = open_top(&place.0).expect("it opens").expect("it is there");
    let killed = kill_all(dir.as_fd());
    let ended = other.try_wait().expect("it is ours");
    other.kill().expect("it lives");
    other.wait().expect("it ended");
    assert_eq!((killed, ended), (0, None));
}

/// The kernel accepts the values, and processes in a pod's cgroup are killed when it is removed.
#[test]
fn the_kernel_itself_takes_them() {
    let top = Path::new("/sys/fs/cgroup");
    let hierarchy = crate::io::sys::machine("/").cgroups.hierarchy;
    assert_ne!(hierarchy, Hierarchy::None, "run the tests as root, with /sys/fs/cgroup writable");
    let root = format!("edged-test-{}", std::process::id());
    let cgroups = Cgroups::new(top.to_owned(), hierarchy, vec![root.as_str().into()]);
    let all = Values { cpu_shares: 1_024, cpu_period: 100_000, ..Values::default() };
    let qos = QosCgroups { all, burstable_shares: 256 };
    cgroups.set_qos(&qos).expect("the kernel takes them");
    let wanted = PodCgroup {
        values: Values { huge_pages: Vec::new(), ..pod(QosClass::Burstable).values },
        ..pod(QosClass::Burstable)
    };
    cgroups.make_pod(&wanted).expect("the kernel takes them");
    let (place, file) = match hierarchy {
        Hierarchy::V1 => (top.join("memory").join(&root), "memory.limit_in_bytes"),
        Hierarchy::V2 | Hierarchy::None => (top.join(&root), "memory.max"),
    };
    let dir = place.join("kubepods/burstable/podu-1");
    assert_eq!(fs::read_to_string(dir.join(file)).expect("a value").trim(), "8388608");
    let mut stray = Command::new("sleep").arg("60").spawn().expect("sleep");
    fs::create_dir(dir.join("c")).expect("a container's cgroup");
    fs::write(dir.join("c/cgroup.procs"), stray.id().to_string()).expect("it is moved");
    let Failure(why) = cgroups.remove_pod("u-1").expect_err("it is not empty");
    assert_eq!(why, "c: 1 processes were still in it and were killed");
    let ended = stray.wait().expect("it ended");
    assert!(!ended.success(), "{ended}");
    cgroups.remove_pod("u-1").expect("now it is empty");
    assert!(!dir.exists());
    for hierarchy in cgroups.tops().expect("they open") {
        if let Some(own) = existing(hierarchy.as_fd(), &vec![root.as_str()]).expect("it opens") {
            remove(own.as_fd(), Component::new(ALL_PODS).expect("a name"), 0).expect("ours");
            let name = Component::new(&root).expect("a name");
            remove(hierarchy.as_fd(), name, 0).expect("ours");
        }
    }
}
