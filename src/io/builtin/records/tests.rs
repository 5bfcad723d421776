//! Records on a real disk: whole or put aside, and together.

use std::os::unix::fs::{PermissionsExt, symlink};

use super::*;
use crate::io::builtin::layout::Layout;
use crate::io::test_folder::TestFolder;
use crate::model::cri::{SandboxConfig, SandboxId};
use crate::model::runtime::{ContainerId, ImageId, ImageRecord, SandboxPhase, SandboxRecord};

/// Folders of a runtime, removed at the end.
struct Disk {
    _top: TestFolder,
    layout: Layout,
    records: Records,
}

impl Disk {
    fn new(name: &str) -> Self {
        let top = TestFolder::new(&format!("records-{name}"));
        let layout = Layout::new(top.join("run"), top.join("data"));
        let records = Records::open(&layout).expect("folders of ours");
        Self { _top: top, layout, records }
    }

    fn sandboxes(&self) -> (Vec<SandboxRecord>, Vec<Unread>) {
        let (stored, aside) = load(&self.layout).expect("it is readable");
        (stored.sandboxes, aside)
    }

    fn path(&self, record: &SandboxRecord) -> PathBuf {
        self.layout.record(&RecordKey::Sandbox(record.id.clone()))
    }

    /// Files with this extension.
    fn count(&self, extension: &str) -> usize {
        with_end(&self.layout.data().join("sb"), extension).expect("it is there").len()
    }

    fn save(&mut self, record: &SandboxRecord) {
        let record = Box::new(Record::Sandbox(record.clone()));
        self.records.save(Instant(0), record, Durability::Now);
        assert_eq!(self.records.commit(Instant(0)), Some(Ok(())));
    }

    fn copy(&self, record: &SandboxRecord) -> PathBuf {
        copy_of(&self.layout, &self.path(record))
    }

    /// RUN is in memory.
    fn reboot(&self) {
        fs::remove_dir_all(self.layout.copies()).expect("ours");
        files::make_dir(&self.layout.copies()).expect("ours");
    }
}

fn sandbox(number: u64, hostname: &str) -> SandboxRecord {
    SandboxRecord {
        id: SandboxId(format!("{number:064x}").into()),
        config: SandboxConfig { hostname: hostname.to_owned(), ..SandboxConfig::default() },
        phase: SandboxPhase::Making,
        created_at: 1,
        ips: vec!["10.88.0.2".into()],
        boot: process::boot_id().expect("it is readable"),
        program: "".into(),
    }
}

#[test]
fn what_is_saved_comes_back_until_it_is_erased() {
    let mut disk = Disk::new("back");
    let (first, second) = (sandbox(1, "a\n\"é"), sandbox(2, "b"));
    disk.save(&first);
    disk.save(&second);
    let mode = fs::metadata(disk.path(&first)).expect("it is there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let ready = SandboxRecord { phase: SandboxPhase::Ready, ..first.clone() };
    disk.save(&ready);
    assert_eq!(disk.sandboxes(), (vec![ready, second.clone()], vec![]));
    disk.records.erase(RecordKey::Sandbox(first.id.clone()));
    disk.records.erase(RecordKey::Sandbox(sandbox(3, "").id));
    assert_eq!(disk.records.commit(Instant(0)), Some(Ok(())), "absent is erased");
    assert_eq!(disk.sandboxes(), (vec![second], vec![]));
    assert_eq!(disk.records.commit(Instant(0)), None, "nothing is left to do");
    assert_eq!(fs::read_dir(disk.layout.tmp()).expect("it is there").count(), 0);
}

#[test]
fn all_three_kinds_have_their_folders() {
    let mut disk = Disk::new("kinds");
    let digest = |of: char| format!("sha256:{}", of.to_string().repeat(64));
    let image = ImageRecord {
        id: ImageId(digest('a').into()),
        tags: vec!["docker.io/library/busybox:1".into()],
        digests: vec![],
        layers: vec![crate::model::runtime::DiffId(digest('b').into())],
        size: 1,
        pinned: false,
        config: crate::model::runtime::ImageConfig::default(),
    };
    let container = crate::model::runtime::ContainerRecord {
        id: ContainerId("c".repeat(64).into()),
        sandbox: sandbox(1, "").id,
        config: crate::model::runtime::ContainerConfig {
            image_ref: "sha256:1".into(),
            ..Default::default()
        },
        log: "".into(),
        image: image.id.clone(),
        layers: image.layers.clone(),
        stop_signal: 15,
        created_at: 2,
        phase: crate::model::runtime::ContainerPhase::Created,
    };
    for record in [Record::Image(image.clone()), Record::Container(container.clone())] {
        disk.records.save(Instant(0), Box::new(record), Durability::Now);
    }
    disk.records.commit(Instant(0)).expect("two records").expect("durable");
    fs::create_dir(disk.layout.own_layer(&container.id)).expect("its folder lies beside it");
    let (stored, aside) = load(&disk.layout).expect("it is readable");
    assert_eq!((stored.images, stored.containers), (vec![image], vec![container]));
    assert_eq!(aside, []);
    let copies = fs::read_dir(disk.layout.copies()).expect("it is there");
    assert_eq!(copies.count(), 1, "an image runs nothing");
    assert_eq!(stored.boot.0.len(), 36);
}

#[test]
fn a_file_torn_or_spoilt_at_any_byte_is_put_aside() {
    let mut disk = Disk::new("torn");
    let (whole, other) = (sandbox(1, "whole"), sandbox(2, "other"));
    disk.save(&other);
    disk.save(&whole);
    disk.reboot();
    let path = disk.path(&whole);
    let bytes = fs::read(&path).expect("it is there");
    for at in 0..bytes.len() {
        assert!(decode(&bytes[..at]).is_err(), "torn after {at} bytes");
        let mut spoilt = bytes.clone();
        spoilt[at] ^= 1;
        assert!(decode(&spoilt).is_err(), "spoilt at byte {at}");
    }
    fs::write(&path, &bytes[..bytes.len() / 2]).expect("a file of ours");
    let (kept, aside) = disk.sandboxes();
    assert_eq!(kept, [other]);
    let why = "it is not whole: its checksum differs".to_owned();
    assert_eq!(aside, [Unread { path: path.clone(), why, copy: None }]);
    assert_eq!(disk.sandboxes().1, [], "it is reported once");
    assert_eq!(fs::read(path.with_extension("bad")).expect("it is kept").len(), bytes.len() / 2);
}

#[test]
fn what_is_no_record_of_this_form_is_named_and_foreign_ids_are_refused() {
    let mut disk = Disk::new("newer");
    let (record, other) = (sandbox(1, "x"), sandbox(2, "other"));
    disk.save(&other);
    let message = record::encode(&Record::Sandbox(record.clone()));
    let newer = [&message[..], b"\xba\x06\x01?"].concat();
    assert_eq!(decode(&with_sum(VERSION, &newer)), Ok(Record::Sandbox(record.clone())));
    let refused = |bytes: &[u8]| decode(bytes).expect_err("it is none").to_string();
    let version = refused(&with_sum(VERSION + 1, &message));
    assert_eq!(version, "got version 2 of a record's form, expected 1");
    let json = refused(b"{\"Sandbox\":{\"id\":\"0\"}}\n");
    assert_eq!(json, r#"got a file that begins "{\"Sandbox\":{", expected "edged record""#);
    let half = refused(&with_sum(VERSION, &message[..message.len() - 1]));
    assert!(half.starts_with("not readable: "), "{half}");

    // Another version's file does not stop the others, and is named.
    fs::write(disk.path(&record), with_sum(VERSION + 1, &message)).expect("a file of ours");
    let (kept, aside) = disk.sandboxes();
    assert_eq!(kept, [other]);
    assert_eq!(aside, [Unread { path: disk.path(&record), why: version, copy: None }]);

    let mut way_out = record.clone();
    way_out.id.0 = "../../../etc/passwd".into();
    let refused = refused(&with_sum(VERSION, &record::encode(&Record::Sandbox(way_out))));
    assert!(refused.starts_with("got the id \"../../../etc/passwd\", expected"), "{refused}");
    disk.save(&record);
    let renamed = disk.path(&sandbox(3, ""));
    fs::rename(disk.path(&record), &renamed).expect("ours");
    let (kept, aside) = disk.sandboxes();
    assert_eq!((kept.len(), aside.len()), (1, 1), "{aside:?}");
    assert!(aside[0].why.starts_with("got the record of /"), "{aside:?}");
}

/// A link to itself fails as a bad block does: when it is opened.
#[test]
fn a_record_that_cannot_be_read_is_put_aside_and_stops_no_other() {
    let mut disk = Disk::new("unreadable");
    let (unreadable, other) = (sandbox(1, "x"), sandbox(2, "other"));
    disk.save(&other);
    let path = disk.path(&unreadable);
    symlink(&path, &path).expect("a folder of ours");
    let (kept, aside) = disk.sandboxes();
    assert_eq!((&kept[..], aside.len()), (&[other.clone()][..], 1), "{aside:?}");
    let expected = format!("read {}: Too many levels", path.display());
    assert!(aside[0].path == path && aside[0].why.starts_with(&expected), "{aside:?}");
    assert_eq!(disk.sandboxes(), (vec![other.clone()], vec![]), "it is reported once");

    // Where it cannot be renamed either, the server starts all the same.
    symlink(&path, &path).expect("a folder of ours");
    fs::remove_file(path.with_extension("bad")).expect("ours");
    fs::create_dir_all(path.with_extension("bad")).expect("ours");
    let (kept, aside) = disk.sandboxes();
    assert_eq!((&kept[..], aside.len()), (&[other][..], 1), "{aside:?}");
    let why = &aside[0].why;
    assert!(why.contains("Too many levels") && why.contains("; it stays where it is: "), "{why}");
    // It goes with the object that it was of.
    disk.records.erase(RecordKey::Sandbox(unreadable.id));
    assert_eq!(disk.records.commit(Instant(0)), Some(Ok(())));
    assert_eq!(disk.sandboxes().1, []);
}

/// What a bad block, and what a torn file do to a record whose container may run.
#[test]
fn a_record_that_cannot_be_read_is_taken_from_its_copy_and_saved_again() {
    let mut disk = Disk::new("copy");
    let making = sandbox(1, "x");
    let ready = SandboxRecord { phase: SandboxPhase::Ready, ..making.clone() };
    let path = disk.path(&ready);
    let link = |path: &Path| symlink(path, path).expect("a folder of ours");
    let tear = |path: &Path| fs::write(path, &MAGIC[..7]).expect("a folder of ours");
    let spoil = |is_link| if is_link { link(&path) } else { tear(&path) };
    for (is_link, begin) in [(true, "read "), (false, "got a file that begins")] {
        disk.save(&making);
        disk.save(&ready);
        fs::remove_file(&path).expect("ours");
        spoil(is_link);
        for _ in 0..2 {
            let (kept, mut unread) = disk.sandboxes();
            let Unread { path: of, why, copy } = unread.remove(0);
            assert_eq!((kept, of, unread), (vec![ready.clone()], path.clone(), vec![]));
            assert!(why.starts_with(begin), "{why}");
            assert_eq!(copy, Some(Box::new(Record::Sandbox(ready.clone()))));
        }
        assert_eq!(disk.count("bad"), 0, "what is saved again takes its place");
        disk.save(&ready);
        assert_eq!(disk.sandboxes(), (vec![ready.clone()], vec![]));
    }
}

#[test]
fn a_copy_counts_only_if_it_is_whole_and_of_this_record() {
    let mut disk = Disk::new("copies");
    let (one, other) = (sandbox(1, "x"), sandbox(2, "y"));
    let spoilt = |disk: &mut Disk, copy: &[u8]| {
        disk.save(&one);
        fs::write(disk.path(&one), "?").expect("ours");
        fs::write(disk.copy(&one), copy).expect("ours");
        let (kept, unread) = disk.sandboxes();
        assert!(unread.len() == 1 && unread[0].copy.is_none(), "{unread:?}");
        kept
    };
    assert_eq!(spoilt(&mut disk, b"?"), []);
    let bytes = encode(&Record::Sandbox(other.clone())).expect("it is small");
    assert_eq!(spoilt(&mut disk, &bytes), []);
    assert_eq!(disk.count("bad"), 1);
}

#[test]
fn a_copy_is_never_older_than_its_record_after_a_start_and_goes_with_it() {
    let mut disk = Disk::new("copies-old");
    let making = sandbox(1, "x");
    let ready = SandboxRecord { phase: SandboxPhase::Ready, ..making.clone() };
    let copied = |disk: &Disk| read(&disk.layout, &disk.copy(&ready), &disk.path(&ready)).ok();
    let is = |record: &SandboxRecord| Some(Record::Sandbox(record.clone()));
    disk.save(&making);
    assert_eq!(copied(&disk), is(&making));
    let old = fs::read(disk.copy(&making)).expect("it is there");
    disk.save(&ready);
    assert_eq!(copied(&disk), is(&ready));
    // A server that was killed just before it wrote the copy; and one that wrote none.
    fs::write(disk.copy(&ready), old).expect("ours");
    for _ in 0..2 {
        disk.sandboxes();
        assert_eq!(copied(&disk), is(&ready));
        disk.reboot();
    }
    // There is no room for it: the record is saved all the same, and an old copy is removed.
    disk.save(&making);
    fs::create_dir(disk.copy(&ready).with_extension("new")).expect("ours");
    disk.save(&ready);
    assert_eq!((disk.sandboxes().0, copied(&disk)), (vec![ready.clone()], None));
    fs::remove_dir(disk.copy(&ready).with_extension("new")).expect("ours");
    disk.save(&ready);
    assert_eq!(copied(&disk), is(&ready));
    // Also with what was to be saved in the same turn.
    disk.records.save(Instant(0), Box::new(Record::Sandbox(ready.clone())), Durability::Now);
    disk.records.erase(RecordKey::Sandbox(ready.id.clone()));
    assert_eq!(disk.records.commit(Instant(0)), Some(Ok(())));
    assert_eq!(fs::read_dir(disk.layout.copies()).expect("it is there").count(), 0);
}

#[test]
fn a_record_has_a_bound_and_so_have_those_that_are_put_aside() {
    let mut disk = Disk::new("bounds");
    let bytes_of = |hostname: usize| {
        encode(&Record::Sandbox(sandbox(1, &"x".repeat(hostname)))).map(|bytes| bytes.len())
    };
    // A name of no bytes has no field, and one of 128 a longer length than one of 127.
    let beside = bytes_of(60_000).expect("it is small") - 60_000;
    assert_eq!(bytes_of(RECORD_BYTES_MAX - beside), Ok(RECORD_BYTES_MAX));
    let large = sandbox(1, &"x".repeat(RECORD_BYTES_MAX - beside + 1));
    disk.records.save(Instant(0), Box::new(Record::Sandbox(large)), Durability::Now);
    let refused = disk.records.commit(Instant(0)).expect("one").expect_err("one byte more");
    let path = disk.path(&sandbox(1, ""));
    let bytes = RECORD_BYTES_MAX + 1;
    let expected = format!("{}: got a record of {bytes} bytes, expected", path.display());
    assert!(refused.to_string().starts_with(&expected), "{refused}");
    let long = vec![0; RECORD_BYTES_MAX];
    let refused = decode(&with_sum(VERSION, &long)).expect_err("too long").to_string();
    assert_eq!(refused, format!("got more than {RECORD_BYTES_MAX} bytes"));

    for number in 0..RECORDS_BAD_MAX as u64 + 3 {
        fs::write(disk.path(&sandbox(number, "")), "?").expect("a file of ours");
    }
    assert_eq!(disk.sandboxes().1.len(), RECORDS_BAD_MAX + 3);
    assert_eq!((disk.count("rec"), disk.count("bad")), (0, RECORDS_BAD_MAX));
}

#[test]
fn as_many_records_as_there_may_be_are_read_and_no_more() {
    let disk = Disk::new("many");
    for number in 0..=RECORDS_MAX as u64 {
        let record = sandbox(number, "x");
        let bytes = encode(&Record::Sandbox(record.clone())).expect("it is small");
        fs::write(disk.path(&record), bytes).expect("a file of ours");
    }
    let (kept, aside) = disk.sandboxes();
    assert_eq!((kept.len(), aside.len()), (RECORDS_MAX, 1));
    assert_eq!(disk.count("rec"), RECORDS_MAX + 1, "nothing is wrong with it");
}

#[test]
fn what_is_saved_lazily_waits_for_the_last_of_its_kind() {
    let mut disk = Disk::new("lazy");
    let names = |disk: &Disk| -> Vec<String> {
        disk.sandboxes().0.into_iter().map(|record| record.config.hostname).collect()
    };
    let save = |disk: &mut Disk, at: u64, name: &str, durability| {
        disk.records.save(Instant(at), Box::new(Record::Sandbox(sandbox(1, name))), durability);
        disk.records.commit(Instant(at))
    };
    assert_eq!(save(&mut disk, 0, "a", Durability::Lazily), None);
    assert_eq!(save(&mut disk, 10, "b", Durability::Lazily), None);
    assert_eq!(disk.records.wake_at(), Some(Instant(RECORD_LAZY_MS)), "it waits no longer");
    assert_eq!(disk.records.commit(Instant(RECORD_LAZY_MS - 1)), None);
    assert_eq!(names(&disk), [""; 0]);
    assert_eq!(disk.records.commit(Instant(RECORD_LAZY_MS)), None);
    assert_eq!((names(&disk), disk.records.wake_at()), (vec!["b".to_owned()], None));

    // What must be durable at once takes the place of what was to come later.
    assert_eq!(save(&mut disk, 2_000, "c", Durability::Lazily), None);
    assert_eq!(save(&mut disk, 2_001, "d", Durability::Now), Some(Ok(())));
    assert_eq!((names(&disk), disk.records.wake_at()), (vec!["d".to_owned()], None));
    assert_eq!(save(&mut disk, 2_002, "e", Durability::Lazily), None);
    disk.records.erase(RecordKey::Sandbox(sandbox(1, "").id));
    assert_eq!(disk.records.commit(Instant(2_002)), Some(Ok(())));
    assert_eq!(disk.records.commit(Instant(9_000)), None);
    assert_eq!(names(&disk), [""; 0], "an erased record does not come back");
}

#[test]
fn one_that_cannot_be_saved_holds_back_no_other_and_leaves_nothing_unfinished() {
    let mut disk = Disk::new("one");
    for number in 0..3 {
        let record = Box::new(Record::Sandbox(sandbox(number, "x")));
        disk.records.save(Instant(0), record, Durability::Lazily);
    }
    // In the place of the second one is what no file replaces.
    let taken = disk.path(&sandbox(1, ""));
    fs::create_dir(&taken).expect("a folder of ours");
    assert_eq!(disk.records.commit(Instant(RECORD_LAZY_MS)), None);
    let is_there = |number: u64| disk.path(&sandbox(number, "")).is_file();
    assert_eq!([0, 1, 2].map(is_there), [true, false, true]);
    assert_eq!(fs::read_dir(disk.layout.tmp()).expect("it is there").count(), 0);
    fs::remove_dir(taken).expect("ours");
    let again = disk.records.wake_at().expect("it is not given up");
    assert_eq!(disk.records.commit(again), None);
    assert_eq!(disk.sandboxes().0.len(), 3);
}

#[test]
fn a_failure_is_told_and_what_is_lazy_is_tried_again() {
    let mut disk = Disk::new("failure");
    let record = || Box::new(Record::Sandbox(sandbox(1, "x")));
    fs::remove_dir(disk.layout.tmp()).expect("ours");
    disk.records.save(Instant(0), record(), Durability::Now);
    let refused = disk.records.commit(Instant(0)).expect("one").expect_err("no folder");
    assert!(refused.to_string().contains("No such file"), "{refused}");
    disk.records.save(Instant(1), record(), Durability::Lazily);
    assert_eq!(disk.records.commit(Instant(1 + RECORD_LAZY_MS)), None);
    let again = disk.records.wake_at().expect("it is not given up");
    assert_eq!(again, Instant(1 + 2 * RECORD_LAZY_MS));
    fs::create_dir(disk.layout.tmp()).expect("ours");
    assert_eq!(disk.records.commit(again), None);
    assert_eq!(disk.sandboxes().0.len(), 1);
}

#[test]
fn that_a_sandbox_is_ready_is_in_run_at_once_and_on_the_disk_soon() {
    let mut disk = Disk::new("run");
    let making = sandbox(1, "x");
    disk.save(&making);
    let in_run = copy_of(&disk.layout, &disk.path(&making));
    let ready = SandboxRecord { phase: SandboxPhase::Ready, ..making.clone() };
    let save = |disk: &mut Disk, record: &SandboxRecord, durability| {
        let record = Box::new(Record::Sandbox(record.clone()));
        disk.records.save(Instant(0), record, durability);
    };
    save(&mut disk, &ready, Durability::InRun);
    assert_eq!(disk.sandboxes().0, std::slice::from_ref(&ready), "a crash does not lose it");

    // What is not whole, of another sandbox or of an earlier boot does not count.
    let whole = fs::read(&in_run).expect("it is there");
    let encoded = |record| encode(&Record::Sandbox(record)).expect("it is small");
    let earlier =
        SandboxRecord { boot: crate::model::runtime::BootId("b".into()), ..ready.clone() };
    let other = SandboxRecord { id: sandbox(2, "").id, ..ready.clone() };
    for bad in [whole[..whole.len() - 1].to_vec(), encoded(earlier), encoded(other)] {
        fs::write(&in_run, bad).expect("a file of ours");
        assert_eq!(disk.sandboxes().0, std::slice::from_ref(&making));
    }
    fs::write(&in_run, whole).expect("a file of ours");

    assert_eq!(disk.records.commit(Instant(RECORD_LAZY_MS - 1)), None);
    assert_eq!(disk.records.commit(Instant(RECORD_LAZY_MS)), None);
    fs::remove_file(&in_run).expect("it is there");
    assert_eq!(disk.sandboxes().0, std::slice::from_ref(&ready));

    // What the disk has since is newer.
    let stopping = SandboxRecord { phase: SandboxPhase::Stopping, ..making };
    disk.save(&stopping);
    fs::write(&in_run, encoded(ready)).expect("a file of ours");
    assert_eq!(disk.sandboxes().0, [stopping]);
}

#[test]
fn a_sandbox_that_run_takes_no_more_is_durable_at_once() {
    let mut disk = Disk::new("fallback");
    let making = sandbox(1, "x");
    disk.save(&making);
    let ready = SandboxRecord { phase: SandboxPhase::Ready, ..making };
    fs::remove_dir_all(disk.layout.copies()).expect("ours");
    let record = Box::new(Record::Sandbox(ready.clone()));
    disk.records.save(Instant(0), record, Durability::InRun);
    assert_eq!(disk.sandboxes().0, [ready], "there is no folder in RUN");
}
