//! The costs of a cloud connection: memory, flash, and the time until the node is ready.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::figure::{Figure, Limit, median};
use crate::rig::Rig;
use crate::support::agent::NODE;
use crate::support::cloud::{Cloud, Received, Setup};
use crate::support::containerd::run;
use crate::support::harass::{harass, idle};
use crate::support::joined::{self, join};
use crate::support::process::pss_kb;
use crate::support::wait::until;
use crate::watched::{RUNS, Watched};

/// Names of [`memory`].
pub const MEMORY: &[&str] = &["cloud.memory.thirty", "cloud.memory.hostile"];
/// Names of [`ready`].
pub const READY: &[&str] = &["cloud.ready"];
/// Names of [`flash`].
pub const FLASH: &[&str] = &["cloud.flash.pod", "cloud.flash.day"];

/// Start-up is over, and its results have been reported.
const SETTLE: Duration = Duration::from_secs(20);
const ROUNDS: usize = 7;
const PODS: usize = 10;
/// Bytes written in it are scaled to a day.
const WINDOW: Duration = Duration::from_secs(120);

/// Megabytes with thirty pods of the cloud, and the maximum while that cloud is hostile.
pub fn memory(rig: &Rig) -> Vec<Figure> {
    rig.wipe();
    let cloud = Cloud::start(&Setup::default());
    let mut site = rig.site();
    join(&mut site, &cloud);
    let mut agent = crate::memory::start(&site);
    cloud.connected(1);
    for n in 0..30 {
        let (resource, pod) = idle(&format!("p{n}"));
        cloud.put(&resource, pod);
    }
    agent.wait(30, RUNS);
    std::thread::sleep(SETTLE);
    let steady = pss_kb(agent.pid()) as f64 / 1024.0;
    let most = Most::of(agent.pid());
    harass(&cloud, 1);
    let most = most.end() as f64 / 1024.0;
    let running = site.pods().expect("it answers").iter().filter(|pod| pod.runs()).count();
    assert_eq!(running, 30, "whatever the cloud sends");
    drop(agent);
    rig.wipe();
    vec![
        Figure::alone(MEMORY[0], steady, "MB", Some(Limit::Most(6.0))),
        Figure::alone(MEMORY[1], most, "MB", Some(Limit::Most(32.0))),
    ]
}

/// The peak memory of a process, polled.
struct Most {
    ends: Arc<AtomicBool>,
    highest_kb: Arc<AtomicU64>,
    thread: std::thread::JoinHandle<()>,
}

impl Most {
    fn of(pid: u32) -> Self {
        let (ends, highest_kb) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (stopped, reported) = (ends.clone(), highest_kb.clone());
        let thread = std::thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                reported.fetch_max(pss_kb(pid), Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(10));
            }
        });
        Self { ends, highest_kb, thread }
    }

    fn end(self) -> u64 {
        self.ends.store(true, Ordering::Relaxed);
        self.thread.join().expect("it only looks");
        self.highest_kb.load(Ordering::Relaxed)
    }
}

/// Milliseconds from the start of an agent that has joined before to the message about a ready
/// node.
pub fn ready(rig: &Rig) -> Vec<Figure> {
    rig.wipe();
    let cloud = Cloud::start(&Setup::default());
    let mut site = rig.site();
    join(&mut site, &cloud);
    // The first start requests a certificate.
    let first = Watched::start(&site);
    until("the node is ready", || found(&cloud, 0));
    drop(first);
    let round = |_| {
        cloud.left_alone();
        cloud.remove(&format!("null/node/{NODE}"));
        let before = cloud.received().len();
        let started = Instant::now();
        let agent = Watched::start(&site);
        while found(&cloud, before).is_err() {
            assert!(started.elapsed() < SETTLE, "the node is not ready");
            std::thread::sleep(Duration::from_micros(500));
        }
        let took = started.elapsed().as_secs_f64() * 1_000.0;
        drop(agent);
        took
    };
    let took: Vec<f64> = (0..ROUNDS).map(round).collect();
    vec![Figure::alone(READY[0], median(&took), "ms", Some(Limit::Most(100.0)))]
}

/// A message about a ready node, after this many messages.
fn found(cloud: &Cloud, after: usize) -> Result<(), String> {
    let reported = cloud.received();
    let is_ready = |reported: &Received| {
        let content = reported.content();
        let conditions = content.pointer("/status/conditions").and_then(Value::as_array).cloned();
        let mut conditions = conditions.into_iter().flatten();
        conditions.any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
    };
    let late = reported.get(after..).unwrap_or_default();
    if late.iter().any(is_ready) { Ok(()) } else { Err(format!("{} messages", late.len())) }
}

/// KiB on the device below the store for a pod's creation, compared with as many saves by SQLite
/// with its defaults; MiB a day with ten pods at rest.
pub fn flash(rig: &Rig) -> Vec<Figure> {
    rig.wipe();
    let cloud = Cloud::start(&Setup::default());
    let mut site = rig.site();
    let disk = Disk::new(&site.dir);
    let store = disk.mount.join("edgecore.db");
    let (https, websocket) = (cloud.https.to_string(), cloud.websocket.to_string());
    joined::configure(&mut site, &store, &https, &websocket, &cloud.token());
    let mut agent = Watched::start(&site);
    cloud.connected(1);
    std::thread::sleep(SETTLE);
    let before_all = acks(&cloud);
    let create = |n: usize| {
        let before = disk.written_kib();
        let (resource, pod) = idle(&format!("p{n}"));
        cloud.put(&resource, pod);
        agent.wait(1, RUNS);
        until("the cloud knows it", || {
            let status = cloud.object(&resource)["status"].clone();
            if status["phase"] == "Running" { Ok(()) } else { Err(status.to_string()) }
        });
        // The cloud's updates about it are stored as well.
        std::thread::sleep(Duration::from_secs(3));
        disk.written_kib() - before
    };
    let created: Vec<f64> = (0..PODS).map(create).collect();
    let saves = (acks(&cloud) - before_all).div_ceil(PODS);
    std::thread::sleep(SETTLE);
    let before = disk.written_kib();
    std::thread::sleep(WINDOW);
    let windows_a_day = 86_400.0 / WINDOW.as_secs_f64();
    let day = (disk.written_kib() - before) / 1_024.0 * windows_a_day;
    drop(agent);
    let default = as_it_comes(&disk, &store, saves);
    eprintln!("bench:   {saves} saves for a pod");
    rig.wipe();
    let pod = Figure::alone(FLASH[0], median(&created), "KiB", Some(Limit::Most(64.0)));
    vec![
        Figure { reference: Some(default), ..pod },
        Figure::alone(FLASH[1], day, "MiB/day", Some(Limit::Most(1.0))),
    ]
}

/// Pushes that were acknowledged.
fn acks(cloud: &Cloud) -> usize {
    cloud.received().iter().filter(|reported| !reported.parent().is_empty()).count()
}

/// KiB for this many saves of a pod by a SQLite with its defaults.
fn as_it_comes(disk: &Disk, store: &Path, saves: usize) -> f64 {
    let stored = rusqlite::Connection::open(store).expect("the agent has ended");
    let sql = "SELECT key, type, value FROM meta WHERE type = 'pod' LIMIT 1";
    let row: (String, String, String) = stored
        .query_row(sql, [], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
        .expect("a pod is kept");
    let plain = rusqlite::Connection::open(disk.mount.join("plain.db")).expect("a new file");
    plain
        .execute_batch("CREATE TABLE meta (key TEXT PRIMARY KEY, type TEXT, value TEXT)")
        .expect("a table");
    let save = |n: usize| {
        let key = format!("{}{n}", row.0);
        let before = disk.written_kib();
        for _ in 0..saves {
            let sql = "INSERT OR REPLACE INTO meta (key, type, value) VALUES (?1, ?2, ?3)";
            plain.execute(sql, (&key, &row.1, &row.2)).expect("it has room");
        }
        disk.written_kib() - before
    };
    median(&(0..PODS).map(save).collect::<Vec<f64>>())
}

/// A file system on a separate block device, whose writes the kernel counts.
pub struct Disk {
    pub mount: PathBuf,
    stat: PathBuf,
}

impl Disk {
    pub fn new(dir: &Path) -> Self {
        let (image, mount) = (dir.join("disk.img"), dir.join("disk"));
        fs::create_dir_all(&mount).expect("a folder of ours");
        let file = fs::File::create(&image).expect("a file of ours");
        file.set_len(64 << 20).expect("it is sparse");
        // Nothing is left to be initialised later.
        let lazy = "lazy_itable_init=0,lazy_journal_init=0";
        run(Command::new("mke2fs").args(["-q", "-t", "ext4", "-E", lazy]).arg(&image));
        // The loop device goes with the mount, which goes with the folder.
        run(Command::new("mount").args(["-o", "loop,noatime"]).arg(&image).arg(&mount));
        let reported = run(Command::new("findmnt").args(["-n", "-o", "SOURCE"]).arg(&mount));
        let device = reported.trim().strip_prefix("/dev/").expect("a loop device").to_owned();
        let stat = Path::new("/sys/block").join(device).join("stat");
        Self { mount, stat }
    }

    /// Everything that was written to the device.
    pub fn written_kib(&self) -> f64 {
        run(Command::new("sync").arg("-f").arg(&self.mount));
        let stat = fs::read_to_string(&self.stat).expect("the kernel counts");
        // Field 7 (Documentation/block/stat.rst): sectors of 512 bytes.
        let sectors: f64 =
            stat.split_whitespace().nth(6).and_then(|it| it.parse().ok()).expect("a number");
        sectors / 2.0
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.mount).status();
    }
}
