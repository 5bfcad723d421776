//! The store on a real file system: EdgeCore's own file, damage, a full or read-only disk.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::{AtomicU32, Ordering};

use super::crashes::Crashes;
use super::*;
use crate::agent::time::Instant;
use crate::limits::{
    START_CRASHES_MAX, START_MS, STORE_BYTES_MAX, STORE_KEY_BYTES_MAX, STORE_QUARANTINED_MAX,
    STORE_ROWS_MAX, STORE_VALUE_BYTES_MAX,
};

/// A folder of one test, removed at its end.
struct Place(PathBuf);

impl Place {
    fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("edged-store-{}-{number}", std::process::id());
        Self(std::env::temp_dir().join(name))
    }

    /// In a folder that does not exist yet.
    fn db(&self) -> PathBuf {
        self.0.join("kubeedge/edgecore.db")
    }

    fn files(&self) -> Vec<String> {
        let entries = fs::read_dir(self.0.join("kubeedge")).into_iter().flatten().flatten();
        let mut names: Vec<String> =
            entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    /// A store that was recorded from the real Go EdgeCore.
    fn edgecore(&self) -> Connection {
        fs::create_dir_all(self.0.join("kubeedge")).expect("a folder for the test");
        let conn = Connection::open(self.db()).expect("a new file");
        conn.execute_batch(include_str!("../../../tests/golden/store/edgecore-db.sql"))
            .expect("a dump of sqlite3's");
        conn
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn row(key: &str, value: &str) -> Row {
    let kind = key.split('/').nth(1).unwrap_or("pod");
    Row { key: key.into(), kind: kind.into(), value: value.into() }
}

fn put(key: &str, value: &str) -> Change {
    Change::Put(row(key, value))
}

fn delete(key: &str) -> Change {
    Change::Delete { key: key.into() }
}

fn open(path: &Path) -> (Disk, Saved) {
    Disk::open(path).expect("nobody else has it")
}

fn save(disk: &mut Disk, changes: &[Change]) -> Result<(), DiskError> {
    match disk.save(Revision(7), changes) {
        Event::Saved(Revision(7)) => Ok(()),
        Event::SaveFailed(Revision(7), why) => Err(why),
        other => panic!("{other:?}"),
    }
}

/// The process dies; its locks are released with its descriptors.
fn killed(disk: Disk) {
    let State::Open(conn) = disk.state else { panic!("it is open") };
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true).expect("it is known");
    drop(conn);
}

#[test]
fn what_was_saved_is_there_at_the_next_start() {
    let place = Place::new();
    let (mut disk, saved) = open(&place.db());
    assert_eq!(saved, Saved::new(vec![], StoreOrigin::New));
    let changes = [put("default/pod/b", "{1}"), put("default/pod/a", "{}"), delete("x/pod/y")];
    assert_eq!(save(&mut disk, &changes), Ok(()));
    assert_eq!(save(&mut disk, &[put("default/pod/b", "{2}"), put("n/secret/s", "{}")]), Ok(()));
    assert_eq!(save(&mut disk, &[delete("default/pod/a")]), Ok(()));
    let want = Saved::kept(vec![row("default/pod/b", "{2}"), row("n/secret/s", "{}")]);
    killed(disk);
    assert_eq!(place.files(), ["edgecore.db", "edgecore.db-wal"]);
    let (disk, saved) = open(&place.db());
    assert_eq!(saved, want);
    disk.close();
    assert_eq!(place.files(), ["edgecore.db"]);
    assert_eq!(open(&place.db()).1, want);
}

#[test]
fn only_we_may_read_what_we_made() {
    let place = Place::new();
    let (mut disk, _) = open(&place.db());
    assert_eq!(save(&mut disk, &[put("n/secret/s", "{}")]), Ok(()));
    let mode = |name: &str| {
        let path = place.0.join("kubeedge").join(name);
        fs::metadata(path).expect("it was made").permissions().mode() & 0o777
    };
    assert_eq!((mode(""), mode("edgecore.db"), mode("edgecore.db-wal")), (0o700, 0o600, 0o600));
}

#[test]
fn a_second_agent_is_refused() {
    let place = Place::new();
    let (disk, _) = open(&place.db());
    let refused = Disk::open(&place.db()).expect_err("the first one has it").to_string();
    assert!(
        refused
            .ends_with("is in use: another edged or EdgeCore runs on this machine; stop it first")
    );
    disk.close();
    open(&place.db());
}

#[test]
fn the_store_of_a_go_edgecore_is_taken_over_and_handed_back() {
    let place = Place::new();
    let edgecore = place.edgecore();
    let others = |conn: &Connection| -> Vec<String> {
        let tables =
            "SELECT name || ifnull(sql, '') FROM sqlite_schema WHERE name != 'meta' ORDER BY 1";
        let rows = "SELECT key || value FROM meta_v2 ORDER BY 1";
        let read = |sql| -> Vec<String> {
            let mut found = conn.prepare(sql).expect("the tables are there");
            let texts = found.query_map([], |row| row.get(0)).expect("texts");
            texts.map(|text| text.expect("a text")).collect()
        };
        [read(tables), read(rows)].concat()
    };
    let before = others(&edgecore);
    drop(edgecore);
    for turn in 0..2 {
        let (mut disk, saved) = open(&place.db());
        assert_eq!(saved.origin, StoreOrigin::Kept);
        assert_eq!(saved.rows.len(), 9 + turn);
        let token = saved.rows.iter().find(|row| &*row.kind == "serviceaccounttoken");
        let token = token.expect("one was recorded");
        assert!(token.key.starts_with("\"default\"/\"default\"/[]string{\"https://"), "{token:?}");
        assert_eq!(save(&mut disk, &[put("default/pod/new", "{}")]), Ok(()));
        // The second time it is left as after a crash.
        if turn == 0 {
            disk.close();
        } else {
            killed(disk);
        }
        let edgecore = Connection::open(place.db()).expect("the file is free");
        assert_eq!(others(&edgecore), before);
        // KubeEdge's own statement: an upsert as its ORM makes it.
        let sql =
            "INSERT OR REPLACE INTO meta (key, type, value) VALUES ('default/pod/p2', 'pod', ?)";
        assert_eq!(edgecore.execute(sql, [turn.to_string()]), Ok(1));
    }
    let (_disk, saved) = open(&place.db());
    assert_eq!(saved.rows.len(), 10);
    assert!(saved.rows.contains(&row("default/pod/p2", "1")));
}

/// What EdgeCore's ORM checks before it uses a table, and how it then reads and writes pods.
#[test]
fn a_store_that_we_made_is_one_that_edgecore_takes() {
    let place = Place::new();
    let (mut disk, _) = open(&place.db());
    let pod = r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p","uid":"u-1"}}"#;
    assert_eq!(save(&mut disk, &[put("default/pod/p", pod)]), Ok(()));
    disk.close();
    assert_eq!(place.files(), ["edgecore.db"], "a journal of ours would not be its own");
    let ours = Connection::open(place.db()).expect("the file is free");
    let other = Place::new();
    let theirs = other.edgecore();
    let text = |conn: &Connection, sql: &str| -> String {
        conn.query_row(sql, [], |row| row.get(0)).expect(sql)
    };
    assert_eq!(text(&ours, "PRAGMA journal_mode"), "delete");
    // From the file's header: no auto-vacuum, UTF-8.
    let head = fs::read(place.db()).expect("it is there");
    assert_eq!((&head[52..56], &head[56..60]), (&[0; 4][..], &[0, 0, 0, 1][..]));
    let number = |sql: &str| -> i64 { ours.query_row(sql, [], |row| row.get(0)).expect(sql) };
    // Literally: its migrations read the statement itself.
    let made = "SELECT sql FROM sqlite_schema WHERE name = 'meta'";
    assert_eq!(text(&ours, made), text(&theirs, made));
    let columns = |conn: &Connection| -> Vec<(String, String, i64, i64)> {
        let mut found = conn.prepare("PRAGMA table_info(meta)").expect("a table");
        let rows =
            found.query_map([], |row| Ok((row.get(1)?, row.get(2)?, row.get(3)?, row.get(5)?)));
        rows.expect("columns").map(|row| row.expect("a column")).collect()
    };
    let column = |name: &str, key| (name.to_owned(), "TEXT".to_owned(), 0, key);
    assert_eq!(columns(&ours), [column("key", 1), column("type", 0), column("value", 0)]);
    assert_eq!(columns(&ours), columns(&theirs));
    // Its own statements.
    assert_eq!(text(&ours, "SELECT value FROM meta WHERE type = 'pod'"), pod);
    let replace = "INSERT OR REPLACE INTO meta (key, type, value) VALUES (?, ?, ?)";
    assert_eq!(ours.execute(replace, ["default/pod/p", "pod", pod]), Ok(1));
    assert_eq!(number("SELECT count(*) FROM meta"), 1, "the key is unique");
    let remove = "DELETE FROM meta WHERE key = ? AND value LIKE ?";
    assert_eq!(ours.execute(remove, ["default/pod/p", "%u-2%"]), Ok(0));
    assert_eq!(ours.execute(remove, ["default/pod/p", "%u-1%"]), Ok(1));
}

#[test]
fn what_does_not_change_is_not_written() {
    let place = Place::new();
    let (mut disk, _) = open(&place.db());
    let changes = [put("default/pod/a", "{}"), put("default/pod/b", &"x".repeat(9_000))];
    assert_eq!(save(&mut disk, &changes), Ok(()));
    let wal = || fs::read(quarantine::beside(&place.db(), "-wal")).expect("it is there");
    let before = wal();
    assert_eq!(save(&mut disk, &changes), Ok(()));
    assert_eq!(save(&mut disk, &[delete("default/pod/none")]), Ok(()));
    assert!(wal() == before);
    assert_eq!(save(&mut disk, &[put("default/pod/a", "{1}")]), Ok(()));
    assert!(wal() != before);
}

#[test]
fn what_is_too_large_is_refused_and_nothing_of_it_is_kept() {
    let place = Place::new();
    let (mut disk, _) = open(&place.db());
    let large = "x".repeat(STORE_VALUE_BYTES_MAX + 1);
    let Err(DiskError::Failed(why)) =
        save(&mut disk, &[put("a/pod/a", "{}"), put("a/pod/b", &large)])
    else {
        panic!("it is too large")
    };
    assert_eq!(why, "a/pod/b: got 1572865 bytes, expected 1572864 at most");
    let many: Vec<Change> =
        (0..=STORE_ROWS_MAX).map(|number| put(&format!("a/pod/{number}"), "{}")).collect();
    let Err(DiskError::Failed(why)) = save(&mut disk, &many) else { panic!("too many") };
    assert_eq!(why, "a/pod/8192: the store may have 8192 rows at most");
    assert_eq!(save(&mut disk, &many[1..]), Ok(()));
    // A full store still accepts replacements and deletions.
    assert_eq!(save(&mut disk, &[put("a/pod/1", "{1}")]), Ok(()));
    assert!(save(&mut disk, &[put("a/pod/0", "{}")]).is_err());
    assert_eq!(save(&mut disk, &[delete("a/pod/1"), put("a/pod/0", "{}")]), Ok(()));
    assert!(save(&mut disk, &[put("", "{}")]).is_err());
    killed(disk);
    let (mut disk, saved) = open(&place.db());
    assert_eq!(saved.rows.len(), STORE_ROWS_MAX);
    assert!(save(&mut disk, &[put("a/pod/1", "{}")]).is_err());
}

#[test]
fn a_key_and_all_rows_together_have_bounds() {
    let place = Place::new();
    let (mut disk, _) = open(&place.db());
    let key = |bytes: usize| format!("a/pod/{}", "x".repeat(bytes - "a/pod/".len()));
    let long = key(STORE_KEY_BYTES_MAX + 1);
    let Err(DiskError::Failed(why)) = save(&mut disk, &[put(&long, "{}")]) else {
        panic!("one byte more")
    };
    let got = format!("got a key of {} bytes, expected {STORE_KEY_BYTES_MAX} at", long.len());
    assert!(why.contains(&got), "{why}");
    let longest = key(STORE_KEY_BYTES_MAX);
    assert_eq!(save(&mut disk, &[put(&longest, "{}")]), Ok(()));
    assert_eq!(save(&mut disk, &[delete(&longest)]), Ok(()));
    // Rows of the maximum size, and a last one that fills the rest.
    let value = |bytes: usize| "x".repeat(bytes);
    let row_bytes = "a/pod/0".len() + STORE_VALUE_BYTES_MAX;
    let whole = STORE_BYTES_MAX / row_bytes;
    assert!(whole <= 10, "their keys are of one length");
    for number in 0..whole {
        let change = put(&format!("a/pod/{number}"), &value(STORE_VALUE_BYTES_MAX));
        assert_eq!(save(&mut disk, &[change]), Ok(()));
    }
    let left = STORE_BYTES_MAX - whole * row_bytes - "a/pod/x".len();
    let Err(DiskError::Failed(why)) = save(&mut disk, &[put("a/pod/x", &value(left + 1))]) else {
        panic!("one byte more")
    };
    assert_eq!(why, format!("a/pod/x: the store may have {STORE_BYTES_MAX} bytes at most"));
    assert_eq!(save(&mut disk, &[put("a/pod/x", &value(left))]), Ok(()));
    assert!(save(&mut disk, &[put("a/pod/x", &value(left + 1))]).is_err(), "nor by growing");
    assert_eq!(save(&mut disk, &[put("a/pod/x", &value(left - 1))]), Ok(()));
}

#[test]
fn what_there_is_no_memory_for_stays_and_is_named() {
    let place = Place::new();
    let large = format!("{{\"metadata\":{{\"uid\":\"u\"}},\"more\":\"{}\"}}", "x".repeat(1_000));
    let (mut disk, _) = open(&place.db());
    let all = [put("a/pod/a", "{}"), put("a/pod/b", &large), put("a/pod/c", "{}")];
    assert_eq!(save(&mut disk, &all), Ok(()));
    disk.close();
    let with = |bytes: usize| {
        Disk::open_on(Vfs::with_memory(bytes), &place.db()).expect("nobody else has it")
    };
    let (mut disk, saved) = with(1_000);
    let rows = vec![row("a/pod/a", "{}"), row("a/pod/c", "{}")];
    let unread = vec![("a/pod/b".into(), "u".into())];
    assert_eq!(saved, Saved::new(rows, StoreOrigin::Part { unread }));
    // The store itself continues, and the next start may have enough memory.
    assert_eq!(save(&mut disk, &[delete("a/pod/a")]), Ok(()));
    disk.close();
    let (disk, saved) = with(2_000);
    let rows = vec![row("a/pod/b", &large), row("a/pod/c", "{}")];
    assert_eq!(saved, Saved::kept(rows));
    disk.close();
}

#[test]
fn a_long_log_is_shortened_again() {
    let place = Place::new();
    let (mut disk, _) = open(&place.db());
    let large = "x".repeat(64 << 10);
    let many: Vec<Change> =
        (0..100).map(|number| put(&format!("a/pod/{number}"), &large)).collect();
    assert_eq!(save(&mut disk, &many), Ok(()));
    for turn in 0..2 * STORE_WAL_PAGES {
        assert_eq!(save(&mut disk, &[put("a/pod/a", &turn.to_string())]), Ok(()));
    }
    let size = fs::metadata(quarantine::beside(&place.db(), "-wal")).expect("it is there").len();
    assert!(size <= u64::from(STORE_WAL_PAGES + 8) * 4_120, "{size}");
}

/// Overwrites a part of the file with bytes that are no valid page.
fn spoil(path: &Path, at: usize, length: usize) {
    let mut bytes = fs::read(path).expect("it is there");
    bytes[at..at + length].fill(0xa5);
    fs::write(path, bytes).expect("it can be written");
}

#[test]
fn a_damaged_store_is_put_aside_and_whole_rows_are_kept() {
    let place = Place::new();
    let many: Vec<Change> = (0..100)
        .map(|number| {
            put(&format!("a/pod/{number:02}"), &format!("{{\"x\":\"{}\"}}", "y".repeat(1_000)))
        })
        .collect();
    let turns = STORE_QUARANTINED_MAX + 1;
    for turn in 1..=turns {
        let (mut disk, saved) = open(&place.db());
        assert_eq!(saved.origin, if turn == 1 { StoreOrigin::New } else { StoreOrigin::Kept });
        assert_eq!(save(&mut disk, &many), Ok(()));
        disk.close();
        spoil(&place.db(), 40_000, 3_000);
        let (mut disk, saved) = open(&place.db());
        let StoreOrigin::Lost(why) = &saved.origin else { panic!("{:?}", saved.origin) };
        let count = saved.rows.len();
        assert!((90..103).contains(&count), "{count}");
        let whole = |row: &Row| {
            many.contains(&Change::Put(row.clone())) || row.key.starts_with("a/pod/new")
        };
        assert!(saved.rows.iter().all(whole));
        assert!(why.contains(&format!("edgecore.db.corrupt-{turn}; {count} of its rows")), "{why}");
        // It works like a new one.
        assert_eq!(save(&mut disk, &[put(&format!("a/pod/new{turn}"), "{}")]), Ok(()));
        killed(disk);
        let (disk, again) = open(&place.db());
        assert_eq!((again.rows.len(), again.origin), (count + 1, StoreOrigin::Kept));
        disk.close();
    }
    let kept = (2..=turns).map(|turn| format!("edgecore.db.corrupt-{turn}"));
    let left: Vec<String> = std::iter::once("edgecore.db".to_owned()).chain(kept).collect();
    assert_eq!(place.files(), left, "the oldest is gone");
}

#[test]
fn a_store_that_is_set_aside_is_not_read_and_is_there_as_it_was() {
    let place = Place::new();
    let why = "3 starts";
    let (mut disk, _) = open(&place.db());
    assert_eq!(save(&mut disk, &[put("a/pod/a", "{}")]), Ok(()));
    let held = Disk::set_aside(Vfs::default(), &place.db(), why).expect_err("it is in use");
    assert!(held.to_string().contains("is in use"), "{held}");
    killed(disk);
    let (mut disk, saved) =
        Disk::set_aside(Vfs::default(), &place.db(), why).expect("nobody else has it");
    let path = place.db().display().to_string();
    let lost = format!("{path} was moved aside unread ({why}); it is now {path}.corrupt-1");
    assert_eq!(saved, Saved::new(Vec::new(), StoreOrigin::Lost(lost)));
    assert_eq!(save(&mut disk, &[put("a/pod/b", "{}")]), Ok(()));
    disk.close();
    let keys = |path: &Path| -> Vec<Box<str>> {
        let (disk, saved) = open(path);
        disk.close();
        saved.rows.into_iter().map(|row| row.key).collect()
    };
    assert_eq!(keys(&place.db()), ["a/pod/b".into()]);
    assert_eq!(keys(&quarantine::beside(&place.db(), ".corrupt-1")), ["a/pod/a".into()]);
}

#[test]
fn only_crashes_within_a_minute_of_starts_in_a_row_are_counted() {
    let place = Place::new();
    fs::create_dir_all(place.0.join("other")).expect("a folder for the test");
    let start = |ms| Crashes::within(&place.0, &place.0, Instant(ms));
    for _ in 0..START_CRASHES_MAX {
        assert!(!start(5).are_too_many());
        start(5).count(Instant(5 + START_MS - 1));
        start(5).count(Instant(5 + START_MS));
    }
    let mut next = start(5);
    assert!(next.are_too_many());
    assert!(!Crashes::within(&place.0, &place.0.join("other"), Instant(5)).are_too_many());
    next.tick(Instant(5 + START_MS - 1));
    assert!(next.are_too_many());
    next.tick(Instant(5 + START_MS));
    assert!(!next.are_too_many());
    // What is no number counts for nothing.
    start(5).count(Instant(6));
    for file in fs::read_dir(&place.0).expect("it is there").flatten() {
        if file.path().is_file() {
            fs::write(file.path(), "many").expect("it can be written");
        }
    }
    assert!(!start(5).are_too_many());
}

/// Damages the store of a place.
type Damage = fn(&Place);

#[test]
fn a_look_from_outside_tells_what_a_store_is_like_and_leaves_no_trace() {
    let place = Place::new();
    assert_eq!(inspect(&place.db()).state, Health::Absent);
    let (mut disk, _) = open(&place.db());
    assert_eq!(save(&mut disk, &[put("a/pod/a", "{}"), put("a/pod/b", "{}")]), Ok(()));
    // With a log as after a crash, and without one.
    killed(disk);
    let looked = |rows: usize, files: &[&str]| {
        assert_eq!(place.files(), files);
        let found = inspect(&place.db());
        assert_eq!((found.state, found.mode), (Health::Sound(rows), Some(0o600)));
        assert_eq!(place.files(), files);
    };
    looked(2, &["edgecore.db", "edgecore.db-wal"]);
    let (mut disk, _) = open(&place.db());
    assert_eq!(save(&mut disk, &[put("a/pod/c", "{}")]), Ok(()));
    disk.close();
    looked(3, &["edgecore.db"]);
    spoil(&place.db(), 0, 16);
    let found = inspect(&place.db());
    assert!(matches!(found.state, Health::Damaged(_)), "{found:?}");
    assert!(found.aside.is_empty());
    let _ = open(&place.db());
    let found = inspect(&place.db());
    assert_eq!(found.aside.len(), 1, "{found:?}");
}

#[test]
fn every_kind_of_damage_ends_in_a_store_that_works() {
    fn put_all(place: &Place) {
        let (mut disk, _) = open(&place.db());
        assert_eq!(save(&mut disk, &[put("a/pod/a", "{}"), put("a/pod/b", "[1]")]), Ok(()));
        disk.close();
    }
    fn alter(place: &Place, sql: &str) {
        let conn = Connection::open(place.db()).expect("it is free");
        conn.execute_batch(sql).expect(sql);
    }
    let damages: [(&str, Damage); 6] = [
        ("no database at all", |place| fs::write(place.db(), "x".repeat(9_000)).expect("written")),
        ("cut", |place| {
            let file = fs::OpenOptions::new().write(true).open(place.db()).expect("it is there");
            file.set_len(5_000).expect("it can be cut");
        }),
        ("the head", |place| spoil(&place.db(), 16, 80)),
        ("the index", |place| {
            alter(
                place,
                "PRAGMA writable_schema = 1; \
            UPDATE sqlite_schema SET rootpage = 2 WHERE name = 'sqlite_autoindex_meta_1'",
            );
        }),
        ("another's table", |place| alter(place, "DROP TABLE meta; CREATE TABLE meta (a, b)")),
        ("a key without uniqueness", |place| {
            alter(
                place,
                "DROP TABLE meta; CREATE TABLE meta (key text, type text, value text); \
                INSERT INTO meta VALUES ('a/pod/a', 'pod', '1'), ('a/pod/a', 'pod', '2')",
            );
        }),
    ];
    for (name, damage) in damages {
        let place = Place::new();
        put_all(&place);
        damage(&place);
        let (mut disk, saved) = open(&place.db());
        assert!(matches!(saved.origin, StoreOrigin::Lost(_)), "{name}: {saved:?}");
        assert_eq!(save(&mut disk, &[put("a/pod/c", "{}")]), Ok(()), "{name}");
        disk.close();
        assert_eq!(open(&place.db()).1.rows.len(), saved.rows.len() + 1, "{name}");
    }
}

#[test]
fn a_replacement_that_was_interrupted_goes_on() {
    // Each step as the last one before a crash: the files, and the expected result.
    for (step, there, want) in [
        ("the new one was being made", &["", ".new", "-wal"][..], "old"),
        ("the old one is aside, its log is not", &[".new", ".corrupt-1", "-wal"], "new"),
        ("all of it is aside", &[".new", ".corrupt-1", ".corrupt-1-wal"], "new"),
    ] {
        let place = Place::new();
        let make = |end: &str, key: &str| {
            let (mut disk, _) = open(&quarantine::beside(&place.db(), end));
            assert_eq!(save(&mut disk, &[put(key, "{}")]), Ok(()));
            disk
        };
        // A log with content that is not in its database.
        let log_of = if there.contains(&"") { "" } else { ".corrupt-1" };
        killed(make(log_of, "a/pod/old"));
        let log = quarantine::beside(&place.db(), &format!("{log_of}-wal"));
        if there.contains(&"-wal") && !log_of.is_empty() {
            fs::rename(&log, quarantine::beside(&place.db(), "-wal")).expect("it is there");
        }
        make(".new", "a/pod/new").close();
        let mut want_there: Vec<String> =
            there.iter().map(|end| format!("edgecore.db{end}")).collect();
        want_there.sort();
        assert_eq!(place.files(), want_there, "{step}");
        let (disk, saved) = open(&place.db());
        let keys: Vec<&str> = saved.rows.iter().map(|row| &*row.key).collect();
        assert_eq!(keys, [format!("a/pod/{want}")], "{step}");
        disk.close();
        if want == "new" {
            let left = ["edgecore.db", "edgecore.db.corrupt-1", "edgecore.db.corrupt-1-wal"];
            assert_eq!(place.files(), left, "{step}");
        }
    }
}

#[test]
fn a_store_in_a_place_that_cannot_be_does_not_stop_anyone() {
    let place = Place::new();
    fs::create_dir_all(&place.0).expect("a folder for the test");
    // A file in the place of the folder.
    fs::write(place.0.join("kubeedge"), "").expect("it can be written");
    let (mut disk, saved) = open(&place.db());
    assert!(matches!(saved.origin, StoreOrigin::Lost(_)), "{saved:?}");
    assert!(matches!(save(&mut disk, &[put("a/pod/a", "{}")]), Err(DiskError::Failed(_))));
    disk.close();
}

#[test]
fn sqlite_is_built_with_what_the_store_needs_and_no_more() {
    let conn = Connection::open_in_memory().expect("memory is there");
    let json = conn.query_row("SELECT json('{}')", [], |row| row.get::<_, String>(0));
    let why = json.expect_err("LIBSQLITE3_FLAGS of .cargo/config.toml were not seen").to_string();
    assert!(why.contains("no such function: json"), "{why}");
}

#[test]
fn a_log_that_was_left_is_written_again_unchanged() {
    let place = Place::new();
    let (mut disk, _) = open(&place.db());
    let long = format!("\"{}\"", "a".repeat(20_000));
    for key in ["default/pod/a", "default/pod/b", "default/pod/c"] {
        assert_eq!(save(&mut disk, &[put(key, &long)]), Ok(()));
    }
    killed(disk);
    let log = quarantine::beside(&place.db(), "-wal");
    let before = fs::read(&log).expect("the log is left");
    Vfs::default().rewrite_log(&place.db()).expect("it is writable");
    assert_eq!(fs::read(&log).expect("the log is left"), before);
    let (disk, saved) = open(&place.db());
    assert_eq!((saved.rows.len(), saved.is_unsynced), (3, false));
    disk.close();
    Vfs::default().rewrite_log(&place.db()).expect("there is none");
    assert_eq!(place.files(), ["edgecore.db"]);
}

#[test]
fn a_journal_that_a_failed_close_left_is_removed() {
    let place = Place::new();
    let (mut disk, _) = open(&place.db());
    assert_eq!(save(&mut disk, &[put("default/pod/a", "{}")]), Ok(()));
    killed(disk);
    // Its header is zeroed: SQLite does not use it.
    fs::write(quarantine::beside(&place.db(), "-journal"), [0; 512]).expect("ours");
    let (disk, saved) = open(&place.db());
    assert_eq!(saved.rows.len(), 1);
    assert_eq!(place.files(), ["edgecore.db", "edgecore.db-wal"]);
    disk.close();
}

#[test]
fn a_left_log_is_written_again_once_however_often_the_store_is_retried() {
    static REWRITES: AtomicU32 = AtomicU32::new(0);
    fn rewrite(_: &Path) -> io::Result<()> {
        match REWRITES.fetch_add(1, Ordering::Relaxed) {
            0 => Err(io::Error::other("a sync fails")),
            _ => Ok(()),
        }
    }
    let place = Place::new();
    let (mut disk, _) = open(&place.db());
    assert_eq!(save(&mut disk, &[put("default/pod/a", "{}")]), Ok(()));
    killed(disk);
    let remove = |_: &Path| Err(io::Error::other("a journal stays"));
    let vfs = Vfs::of_test(TestVfs { name: "unix", rewrite, remove });
    let (mut disk, saved) = Disk::open_on(vfs, &place.db()).expect("nobody else has it");
    assert_eq!((saved.rows.len(), saved.is_unsynced), (1, true));
    for rewrites in [2, 2, 2] {
        let why = save(&mut disk, &[]).expect_err("the journal stays");
        assert!(why.to_string().contains("a journal stays"), "{why}");
        assert_eq!(REWRITES.load(Ordering::Relaxed), rewrites);
    }
}
