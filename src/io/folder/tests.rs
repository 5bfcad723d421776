//! Real folders and a real inotify, with a simulated clock: the kernel queues an event before the
//! system call that caused it returns, so nothing here waits.

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use mio::Poll;

use super::*;
use crate::limits::{
    MANIFEST_BYTES_MAX, MANIFEST_FILES_MAX, MANIFEST_OBJECTS_BYTES_MAX, MANIFEST_OBJECTS_MAX,
    MANIFEST_PODS_MAX,
};
use crate::model::object::{ConfigMap, Object};
use crate::model::pod::Pod;

struct Place {
    dir: PathBuf,
    manifests: Manifests,
    now: Instant,
    poll: Poll,
}

/// A manifest of the tests is `ok`, `holds` with the numbers of pods, objects and bytes of objects,
/// or anything else.
fn parse(text: &[u8]) -> Result<Content, Refusal> {
    let text = String::from_utf8_lossy(text);
    match text.strip_prefix("holds ") {
        Some(numbers) => Ok(holding(numbers)),
        None if text == "ok" => Ok(Content::default()),
        None => Err(Refusal { line: 1, column: 1, why: format!("got {text:?}") }),
    }
}

fn holding(numbers: &str) -> Content {
    let mut numbers = numbers.split(' ').map(|number| number.parse().expect("a number"));
    let mut next = || -> usize { numbers.next().expect("three numbers") };
    let (pods, objects, bytes) = (next(), next(), next());
    let mut all = vec![ConfigMap::default(); objects];
    if let Some(first) = all.first_mut() {
        first.data.insert(String::new(), "x".repeat(bytes));
    }
    Content {
        pods: vec![Pod::default(); pods],
        objects: all.into_iter().map(|map| Arc::new(Object::ConfigMap(map))).collect(),
    }
}

fn agent(dir: &Path, poll: &Poll) -> Manifests {
    Manifests::open(dir.join("manifests"), parse, poll.registry(), Token(1))
        .remembering(dir.join(RECORD))
}

impl Place {
    fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("edged-folder-{}-{number}", std::process::id());
        let dir = std::env::temp_dir().join(name);
        fs::create_dir_all(&dir).expect("a folder for the test");
        let poll = Poll::new().expect("a poll");
        let manifests = agent(&dir, &poll);
        Self { dir, manifests, now: Instant(1_000_000), poll }
    }

    /// Replaces the agent by a new one.
    fn restart(&mut self) {
        self.manifests = agent(&self.dir, &self.poll);
    }

    fn with_folder() -> Self {
        let place = Self::new();
        fs::create_dir(place.path("")).expect("the folder");
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        let folder = self.dir.join("manifests");
        if name.is_empty() { folder } else { folder.join(name) }
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).expect(name);
    }

    /// What one turn reports, `name:what` for each file.
    fn turn(&mut self) -> Option<String> {
        self.manifests.ready(self.now);
        let folder = self.manifests.tick(self.now)?;
        let reported = folder.files.iter().map(|file| {
            let name = Path::new(&*file.path).file_name().expect("a name").to_string_lossy();
            match &file.content {
                Ok(_) => format!("{name}:ok"),
                Err(refusal) => format!("{name}:{}", refusal.why),
            }
        });
        let trouble = folder.trouble.map(|why| format!("NOT READ {why}"));
        Some(trouble.into_iter().chain(reported).collect::<Vec<_>>().join(" "))
    }

    /// From now on inotify reports nothing, as on a network file system.
    fn without_inotify(&mut self) {
        self.manifests.watch = Watch::none();
    }

    /// What is reported once nothing changes any more.
    fn settled(&mut self) -> Option<String> {
        let reported = self.turn().or_else(|| self.later(MANIFEST_SETTLE_MS));
        reported.or_else(|| self.later(MANIFEST_SETTLE_MS))
    }

    fn later(&mut self, ms: u64) -> Option<String> {
        self.now = self.now.plus_ms(ms);
        self.turn()
    }
}

impl std::fmt::Debug for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.manifests.fmt(f)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.dir);
    }
}

#[test]
fn the_first_look_tells_and_an_unchanged_folder_is_not_told_again() {
    let mut place = Place::with_folder();
    place.write("b.yaml", "ok");
    place.write("a.yaml", "bad");
    place.write(".hidden", "ok");
    fs::create_dir(place.path("sub")).expect("a folder");
    assert_eq!(place.turn().as_deref(), Some("a.yaml:got \"bad\" b.yaml:ok"));
    assert_eq!(place.turn(), None);
    assert_eq!(place.later(MANIFEST_RESCAN_MS), None);
    assert!(place.manifests.wake_at() > place.now);
}

#[test]
fn a_file_that_is_closed_moved_or_removed_is_told_in_the_same_turn() {
    let mut place = Place::with_folder();
    assert_eq!(place.turn().as_deref(), Some(""));
    place.write("a", "ok");
    assert_eq!(place.turn().as_deref(), Some("a:ok"));
    place.write("a", "no");
    assert_eq!(place.turn().as_deref(), Some("a:got \"no\""));
    fs::write(place.dir.join("outside"), "ok").expect("a file");
    fs::rename(place.dir.join("outside"), place.path("b")).expect("moved");
    assert_eq!(place.turn().as_deref(), Some("a:got \"no\" b:ok"));
    fs::remove_file(place.path("a")).expect("removed");
    assert_eq!(place.turn().as_deref(), Some("b:ok"));
    fs::rename(place.path("b"), place.dir.join("outside")).expect("moved");
    assert_eq!(place.turn().as_deref(), Some(""));
}

#[test]
fn links_count_with_what_they_lead_to() {
    let mut place = Place::with_folder();
    fs::create_dir(place.path("..v1")).expect("a folder");
    fs::create_dir(place.path("..v2")).expect("a folder");
    fs::write(place.path("..v1/web"), "ok").expect("a file");
    fs::write(place.path("..v2/web"), "v2").expect("a file");
    symlink("..v1", place.path("..data")).expect("a link");
    place.turn();
    symlink("..data/web", place.path("web")).expect("a link");
    assert_eq!(place.turn().as_deref(), Some("web:ok"));
    // In the way a ConfigMap's folder is changed.
    symlink("..v2", place.path("..new")).expect("a link");
    fs::rename(place.path("..new"), place.path("..data")).expect("swapped");
    assert_eq!(place.turn().as_deref(), Some("web:got \"v2\""));
    symlink("/nowhere", place.path("dangling")).expect("a link");
    assert_eq!(place.turn(), None);
}

#[test]
fn a_file_that_is_still_written_is_read_once_it_is_closed() {
    use std::io::Write;
    let mut place = Place::with_folder();
    place.turn();
    let mut file = File::create(place.path("a")).expect("a file");
    file.write_all(b"o").expect("half of it");
    assert_eq!(place.turn(), None, "created is not complete");
    assert_eq!(place.later(MANIFEST_RESCAN_MS), None, "a look finds it half written");
    file.write_all(b"k").expect("the rest");
    drop(file);
    assert_eq!(place.turn().as_deref(), Some("a:ok"));
}

#[test]
fn what_an_editor_renames_at_once_is_not_read_before() {
    let mut place = Place::with_folder();
    place.write("web.yaml", "ok");
    assert_eq!(place.turn().as_deref(), Some("web.yaml:ok"));
    for name in ["sedAb3xYz", "4913", "web.yaml~"] {
        place.write(name, "no");
        assert_eq!(place.turn(), None, "{name} is closed, and about to go");
        fs::rename(place.path(name), place.path("web.yaml")).expect("moved");
        assert_eq!(place.turn().as_deref(), Some("web.yaml:got \"no\""));
        place.write("web.yaml", "ok");
        assert_eq!(place.turn().as_deref(), Some("web.yaml:ok"));
    }
    // A real file with such a name is reported a second later.
    place.write("sedative", "ok");
    assert_eq!(place.turn().as_deref(), Some("sedative:ok web.yaml:ok"));
    place.write("sedation1", "ok");
    assert_eq!(place.turn(), None);
    let reported = place.later(MANIFEST_SETTLE_MS);
    assert_eq!(reported.as_deref(), Some("sedation1:ok sedative:ok web.yaml:ok"));
}

#[test]
fn a_change_without_a_close_counts_after_it_settled() {
    use std::io::Write;
    let mut place = Place::with_folder();
    place.turn();
    let mut file = File::create(place.path("a")).expect("a file");
    file.write_all(b"ok").expect("all of it");
    assert_eq!(place.later(MANIFEST_RESCAN_MS), None);
    assert_eq!(place.manifests.wake_at(), place.now.plus_ms(MANIFEST_SETTLE_MS));
    assert_eq!(place.later(MANIFEST_SETTLE_MS).as_deref(), Some("a:ok"));
}

#[test]
fn an_absent_folder_is_not_read_and_is_seen_when_it_appears() {
    let mut place = Place::new();
    let reported = place.turn().expect("at the start it is reported at once");
    assert!(reported.starts_with("NOT READ ") && reported.contains("No such file"), "{reported}");
    assert_eq!(place.later(MANIFEST_RESCAN_MS), None, "once");
    fs::create_dir(place.path("")).expect("the folder");
    assert_eq!(place.turn().as_deref(), Some(""), "an empty folder says that none is wanted");
    place.write("a", "ok");
    assert_eq!(place.turn().as_deref(), Some("a:ok"));
}

#[test]
fn a_folder_that_goes_keeps_its_files_until_it_is_back() {
    let mut place = Place::with_folder();
    place.write("a", "ok");
    assert_eq!(place.turn().as_deref(), Some("a:ok"));
    fs::rename(place.path(""), place.dir.join("elsewhere")).expect("moved");
    assert_eq!(place.turn(), None, "perhaps another follows at once");
    let reported = place.later(MANIFEST_SETTLE_MS).expect("reported");
    assert!(reported.starts_with("NOT READ ") && reported.ends_with(" a:ok"), "{reported}");
    assert_eq!(place.later(MANIFEST_RESCAN_MS), None, "once");
    fs::rename(place.dir.join("elsewhere"), place.path("")).expect("moved back");
    assert_eq!(place.turn().as_deref(), Some("a:ok"));
    fs::remove_file(place.path("a")).expect("removed");
    assert_eq!(place.turn().as_deref(), Some(""), "it is the same folder, and empty");
    // An empty folder has no manifests to lose: any other folder is as good.
    fs::rename(place.path(""), place.dir.join("elsewhere")).expect("moved");
    fs::create_dir(place.path("")).expect("another");
    assert_eq!(place.later(MANIFEST_RESCAN_MS), None);
    assert_eq!(place.later(MANIFEST_SETTLE_MS).as_deref(), Some(""));
}

#[test]
fn an_empty_folder_in_the_place_of_a_full_one_is_not_believed() {
    let mut place = Place::with_folder();
    place.write("a", "ok");
    place.write("b", "ok");
    assert_eq!(place.turn().as_deref(), Some("a:ok b:ok"));
    let is_refused =
        |reported: &str| reported.starts_with("NOT READ ") && reported.contains("is not the one");
    for another in ["empty", "README"] {
        let _ = fs::rename(place.path(""), place.dir.join(format!("before {another}")));
        fs::create_dir(place.path("")).expect("another");
        if another == "README" {
            place.write("README", "no manifest");
        }
        let reported = place.settled().expect("reported");
        assert!(is_refused(&reported), "{reported}");
        assert_eq!(place.later(MANIFEST_RESCAN_MS), None, "once");
        place.restart();
        let reported = place.turn().expect("reported");
        assert!(is_refused(&reported), "after a restart: {reported}");
    }
    // The first folder is back, as after the partition is mounted again.
    fs::remove_dir_all(place.path("")).expect("removed");
    fs::rename(place.dir.join("before empty"), place.path("")).expect("moved back");
    place.restart();
    assert_eq!(place.turn().as_deref(), Some("a:ok b:ok"));
}

#[test]
fn a_folder_with_manifests_in_the_place_of_another_counts_once_it_is_filled() {
    let mut place = Place::with_folder();
    place.write("a", "ok");
    place.write("b", "ok");
    assert_eq!(place.turn().as_deref(), Some("a:ok b:ok"));
    fs::create_dir(place.dir.join("new")).expect("another");
    fs::write(place.dir.join("new/a"), "ok").expect("a file");
    fs::rename(place.path(""), place.dir.join("old")).expect("moved");
    assert_eq!(place.turn(), None);
    fs::rename(place.dir.join("new"), place.path("")).expect("moved");
    assert_eq!(place.turn(), None, "it may be about to be filled");
    place.write("b", "ok");
    assert_eq!(place.turn(), None);
    assert_eq!(place.later(MANIFEST_SETTLE_MS), None, "found without a close, a is read now");
    assert_eq!(place.later(MANIFEST_SETTLE_MS).as_deref(), Some("a:ok b:ok"));
    // From now on the new folder is trusted: when it is empty, no pod is wanted.
    fs::remove_file(place.path("a")).expect("removed");
    assert_eq!(place.turn().as_deref(), Some("b:ok"));
    fs::remove_file(place.path("b")).expect("removed");
    assert_eq!(place.turn().as_deref(), Some(""));
}

#[test]
fn a_folder_that_is_filled_without_end_counts_in_the_end() {
    let mut place = Place::with_folder();
    place.write("a", "ok");
    assert_eq!(place.turn().as_deref(), Some("a:ok"));
    fs::rename(place.path(""), place.dir.join("old")).expect("moved");
    fs::create_dir(place.path("")).expect("another");
    let mut reported = place.turn();
    for number in 0..MANIFEST_HOLD_MS / (MANIFEST_SETTLE_MS / 2) {
        assert_eq!(reported, None, "file {number}");
        place.write(&format!("b{number}"), "ok");
        reported = place.later(MANIFEST_SETTLE_MS / 2);
    }
    assert!(reported.is_some_and(|reported| reported.starts_with("b0:ok ")));
}

#[test]
fn what_is_no_regular_file_or_too_large_never_stops_the_rest() {
    let mut place = Place::with_folder();
    let fifo = place.path("fifo");
    nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRUSR).expect("a pipe");
    let large = File::create(place.path("large")).expect("a file");
    large.set_len(MANIFEST_BYTES_MAX as u64 + 1).expect("a hole");
    place.write("web", "ok");
    let reported = place.turn().expect("reported");
    assert_eq!(reported, "large:got 10485761 bytes, expected 10485760 at most web:ok");
    assert_eq!(place.later(MANIFEST_RESCAN_MS), None);
}

#[test]
fn a_place_that_is_no_folder_is_trouble_and_not_an_empty_set() {
    let mut place = Place::new();
    fs::write(place.path(""), "").expect("a file");
    let reported = place.turn().expect("reported");
    assert!(
        reported.starts_with("NOT READ ") && reported.contains("Not a directory"),
        "{reported}"
    );
    fs::remove_file(place.path("")).expect("removed");
    fs::create_dir(place.path("")).expect("the folder");
    place.write("a", "ok");
    assert_eq!(place.later(MANIFEST_RESCAN_MS).as_deref(), Some("a:ok"));
    fs::remove_dir_all(place.path("")).expect("removed");
    fs::write(place.path(""), "").expect("a file");
    assert_eq!(place.later(MANIFEST_RESCAN_MS), None);
    let reported = place.later(MANIFEST_SETTLE_MS).expect("reported");
    assert!(reported.contains("the folder cannot be read: Not a directory"), "{reported}");
    assert!(reported.ends_with(" a:ok"), "{reported}");
}

#[test]
fn another_folder_takes_the_place_of_the_first_with_its_first_reading() {
    let mut place = Place::with_folder();
    place.write("a", "ok");
    assert_eq!(place.turn().as_deref(), Some("a:ok"));
    fs::create_dir(place.dir.join("other")).expect("a folder");
    fs::write(place.dir.join("other/b"), "ok").expect("a file");
    place.manifests.follow(place.dir.join("other"));
    assert_eq!(place.manifests.wake_at(), Instant(0));
    assert_eq!(place.turn().as_deref(), Some("b:ok"));
    place.manifests.follow(place.dir.join("mistyped"));
    assert!(place.turn().is_some_and(|reported| reported.starts_with("NOT READ ")));
    place.manifests.follow(place.dir.join("other"));
    assert_eq!(place.turn().as_deref(), Some("b:ok"));
    place.write("a", "changed");
    assert_eq!(place.turn(), None, "the first one is watched no more");
    fs::write(place.dir.join("other/c"), "ok").expect("a file");
    assert_eq!(place.turn().as_deref(), Some("b:ok c:ok"));
}

#[test]
fn the_last_files_by_name_of_a_folder_with_too_many_are_left_out() {
    let mut place = Place::with_folder();
    let name = |number: usize| format!("{number:05}");
    for number in 0..=MANIFEST_FILES_MAX {
        place.write(&name(number), "ok");
    }
    let reported = (0..100).find_map(|_| place.turn()).expect("it is read");
    assert_eq!(reported.split(' ').count(), MANIFEST_FILES_MAX);
    assert!(reported.ends_with(&format!(" {}:ok", name(MANIFEST_FILES_MAX - 1))));
    fs::remove_file(place.path(&name(0))).expect("removed");
    let reported = (0..3).find_map(|_| place.later(MANIFEST_SETTLE_MS)).expect("it is read");
    assert!(reported.ends_with(&format!(" {}:ok", name(MANIFEST_FILES_MAX))), "there is room");
}

#[test]
fn a_file_with_more_than_the_folder_may_still_have_is_left_out() {
    let left_out = |got: &str| format!("{got} in the whole folder: this file is ignored");
    let (pods, objects) = (MANIFEST_PODS_MAX, MANIFEST_OBJECTS_MAX);
    let bytes = MANIFEST_OBJECTS_BYTES_MAX;
    for (first, fits, beyond, got) in [
        ([1, 0, 0], [pods - 1, 0, 0], [pods, 0, 0], format!("got more than {pods} pods")),
        (
            [0, 1, 0],
            [0, objects - 1, 0],
            [0, objects, 0],
            format!("got more than {objects} ConfigMaps and Secrets"),
        ),
        (
            [0, 1, 1],
            [0, 1, bytes - 1],
            [0, 1, bytes],
            format!("got more than {bytes} bytes of ConfigMaps and Secrets"),
        ),
    ] {
        let mut place = Place::with_folder();
        let holds =
            |numbers: [usize; 3]| format!("holds {}", numbers.map(|n| n.to_string()).join(" "));
        place.write("a", &holds(first));
        place.write("b", &holds(fits));
        assert_eq!(place.turn().as_deref(), Some("a:ok b:ok"), "{got}");
        place.write("b", &holds(beyond));
        assert_eq!(place.turn(), Some(format!("a:ok b:{}", left_out(&got))));
    }
}

#[test]
fn a_large_folder_is_read_over_several_turns() {
    let mut place = Place::with_folder();
    let text = "x".repeat(MANIFEST_TURN_BYTES);
    for name in ["a", "b", "c"] {
        place.write(name, &text);
    }
    assert_eq!(place.turn(), None);
    assert_eq!(place.manifests.wake_at(), Instant(0), "the rest follows at once");
    assert_eq!(place.turn(), None);
    assert!(place.turn().is_some());
}

/// A scan that comes before inotify reports the change, or where inotify reports nothing.
#[test]
fn a_file_that_is_renamed_is_never_told_as_removed() {
    let mut place = Place::with_folder();
    place.write("a", "ok");
    place.write("c", "ok");
    assert_eq!(place.turn().as_deref(), Some("a:ok c:ok"));
    place.without_inotify();
    fs::rename(place.path("a"), place.path("b")).expect("moved");
    assert_eq!(place.later(MANIFEST_RESCAN_MS), None, "a is gone, b is not read yet");
    assert_eq!(place.later(MANIFEST_SETTLE_MS).as_deref(), Some("b:ok c:ok"));
    // Over an existing file.
    place.write("b", "no");
    fs::rename(place.path("b"), place.path("c")).expect("moved");
    assert_eq!(place.later(MANIFEST_RESCAN_MS), None, "c is what b was");
    assert_eq!(place.later(MANIFEST_SETTLE_MS).as_deref(), Some("c:got \"no\""));
}

#[test]
fn a_file_that_is_renamed_before_it_is_read_is_found_before_the_rest_is_told() {
    let mut place = Place::with_folder();
    let text = "x".repeat(MANIFEST_TURN_BYTES);
    for name in ["a", "b"] {
        place.write(name, &text);
    }
    assert!(place.turn().is_none(), "a is read, and b comes next");
    fs::rename(place.path("b"), place.path("c")).expect("moved");
    assert!(place.manifests.tick(place.now).is_none(), "b is gone, and nobody looked where to");
    assert_eq!(place.manifests.wake_at(), place.now);
    let reported = place.turn().expect("reported");
    assert!(reported.starts_with("a:") && reported.contains(" c:") && !reported.contains("b:"));
}

#[test]
fn what_is_written_to_without_end_holds_a_removal_for_a_while() {
    use std::io::Write;
    let mut place = Place::with_folder();
    place.write("a", "ok");
    assert_eq!(place.turn().as_deref(), Some("a:ok"));
    let mut file = File::create(place.path("endless")).expect("a file");
    assert_eq!(place.turn(), None);
    fs::remove_file(place.path("a")).expect("removed");
    let removed = place.now;
    assert_eq!(place.turn(), None, "what is written may be what a was");
    loop {
        file.write_all(b"x").expect("more of it");
        assert!(place.manifests.wake_at() <= removed.plus_ms(MANIFEST_HOLD_MS));
        let reported = place.later(MANIFEST_SETTLE_MS / 2);
        if place.now.since_ms(removed) >= MANIFEST_HOLD_MS {
            assert_eq!(reported.as_deref(), Some(""));
            break;
        }
        assert_eq!(reported, None);
    }
    // Other changes are reported as usual.
    place.write("b", "ok");
    assert_eq!(place.turn().as_deref(), Some("b:ok"));
}

#[test]
fn a_file_that_cannot_be_looked_at_is_trouble_and_not_removed() {
    let mut place = Place::with_folder();
    place.write("a", "ok");
    assert_eq!(place.turn().as_deref(), Some("a:ok"));
    fs::remove_file(place.path("a")).expect("removed");
    symlink("a", place.path("a")).expect("a link to itself");
    let reported = place.turn().expect("reported");
    assert!(reported.starts_with("a:cannot be read: Too many levels"), "{reported}");
    assert_eq!(place.later(MANIFEST_RESCAN_MS), None, "it is said once");
    place.write("b", "ok");
    assert!(place.turn().expect("reported").ends_with(" b:ok"));
    fs::remove_file(place.path("a")).expect("removed");
    assert_eq!(place.turn().as_deref(), Some("b:ok"));
    symlink("b/c", place.path("a")).expect("a link to nothing");
    assert_eq!(place.turn(), None);
}

/// Each scan comes between some of the renames, and many come in the middle of one.
#[test]
#[expect(clippy::disallowed_methods, reason = "another process is what renames")]
fn none_of_many_files_that_are_renamed_meanwhile_is_told_as_removed() {
    const FILES: usize = 500;
    let mut place = Place::with_folder();
    for file in 0..FILES {
        place.write(&format!("0-{file}"), "ok");
    }
    while place.turn().is_none() {}
    place.without_inotify();
    for round in 0..8 {
        let folder = place.path("");
        let renames = std::thread::spawn(move || {
            for file in 0..FILES {
                let name = |round: usize| folder.join(format!("{round}-{file}"));
                fs::rename(name(round), name(round + 1)).expect("moved");
            }
        });
        let mut reported = String::new();
        let new = format!("{}-", round + 1);
        // However slow the machine is, the renames end before the hold does.
        let (began, step_ms) = (place.now, MANIFEST_SETTLE_MS / 20);
        while !renames.is_finished() || reported.matches(&new).count() < FILES {
            if !renames.is_finished() && place.now.since_ms(began) > MANIFEST_HOLD_MS / 2 {
                std::thread::yield_now();
                continue;
            }
            reported = place.later(step_ms).unwrap_or(reported);
            let names = reported.split_whitespace().map(|file| &file[2..]);
            let names: BTreeSet<&str> = names.collect();
            assert!(
                reported.is_empty() || names.len() == FILES,
                "reported {} of {FILES}",
                names.len()
            );
            if renames.is_finished() {
                place.now = place.now.max(place.manifests.wake_at());
            }
        }
        renames.join().expect("all moved");
    }
}
