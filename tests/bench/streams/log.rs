//! The speed of a log, and a pod's start beside one that is read as fast as it comes.

use std::io::Read;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::{ask, drain, fill, manifest, open_logs, path};
use crate::figure::{Figure, Limit};
use crate::rig::{Network, Rig, idler};
use crate::support::agent::Site;
use crate::watched::{GONE, RUNS, Watched};

/// Names of [`throughput`].
pub const NAMES: &[&str] = &["streams.log", "streams.log.timestamps"];
/// Names of [`beside`].
pub const BESIDE: &[&str] = &["streams.pod_start", "streams.pod_start.cat"];

const ROUNDS: usize = 11;
const BYTES: usize = 256 << 20;
const BESIDE_ROUNDS: usize = 25;
const MIB: f64 = 1_048_576.0;

/// MiB of a log's file a second through the port, compared with `cat` of the file into a
/// connection to a port; both are read by the same loop.
pub fn throughput(rig: &Rig) -> Vec<Figure> {
    rig.wipe();
    let site = rig.site();
    open_logs(&site);
    site.put("seen.yaml", &manifest());
    let agent = Watched::start(&site);
    let file = fill(&site, BYTES);
    let mut rates = [const { Vec::new() }; 3];
    // The first fills the page cache.
    for round in 0..=ROUNDS {
        let came = [
            rate(|| {
                let (count, _) = drain(&mut cat(&file));
                assert!(count >= BYTES);
            }),
            rate(|| whole(site.api, "")),
            rate(|| whole(site.api, "timestamps=true")),
        ];
        eprintln!("bench:   {} round {round}: {came:.0?} MiB/s, the first by cat", NAMES[0]);
        if round > 0 {
            rates.iter_mut().zip(came).for_each(|(rates, rate)| rates.push(rate));
        }
    }
    drop(agent);
    rig.wipe();
    let [cat, plain, stamped] = rates;
    vec![
        Figure::beside(NAMES[0], &plain, &cat, "MiB/s", Limit::Share(0.80)),
        Figure::beside(NAMES[1], &stamped, &cat, "MiB/s", Limit::Share(0.60)),
    ]
}

/// MiB a second of whoever handles the file once.
fn rate(once: impl FnOnce()) -> f64 {
    let begun = Instant::now();
    once();
    BYTES as f64 / MIB / begun.elapsed().as_secs_f64()
}

/// Reads the log to its end.
fn whole(api: SocketAddr, query: &str) {
    let stream = TcpStream::connect(api).expect("it listens");
    let (count, last) = drain(&mut ask(stream, &path("containerLogs", query)));
    // Before its text a line has 40 bytes of 140.
    assert!(count > BYTES / 3 * 2 && last.ends_with(b"0\r\n\r\n"), "{count} bytes");
}

/// A connection to which `cat` writes a file.
fn cat(file: &Path) -> TcpStream {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let far = TcpStream::connect(listener.local_addr().expect("bound")).expect("it listens");
    let (near, _) = listener.accept().expect("it was dialled");
    let mut cat = Command::new("cat")
        .arg(file)
        .stdout(Stdio::from(OwnedFd::from(far)))
        .spawn()
        .expect("every machine has it");
    std::thread::spawn(move || cat.wait());
    near
}

/// Reads something again and again, as fast as it comes.
struct Reading {
    ends: Arc<AtomicBool>,
    bytes: Arc<AtomicUsize>,
    thread: JoinHandle<()>,
    begun: Instant,
}

impl Reading {
    fn start<S: Read>(open: impl Fn() -> S + Send + 'static) -> Self {
        let (ends, bytes) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let (stopped, counted) = (ends.clone(), bytes.clone());
        let thread = std::thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                counted.fetch_add(drain(&mut open()).0, Ordering::Relaxed);
            }
        });
        Self { ends, bytes, thread, begun: Instant::now() }
    }

    /// MiB a second.
    fn stop(self) -> f64 {
        self.ends.store(true, Ordering::Relaxed);
        self.thread.join().expect("it only reads");
        self.bytes.load(Ordering::Relaxed) as f64 / MIB / self.begun.elapsed().as_secs_f64()
    }
}

/// Seconds of a pod's start beside a log that is read at full speed, compared with a start without;
/// and with one beside `cat` of the file, which takes the same cores and not the agent's time.
pub fn beside(rig: &Rig) -> Vec<Figure> {
    rig.wipe();
    let site = rig.site();
    open_logs(&site);
    site.put("seen.yaml", &manifest());
    let mut agent = Watched::start(&site);
    agent.wait(1, RUNS);
    // It is read to its end before a round ends.
    let file = fill(&site, 32 << 20);
    let api = site.api;
    let (mut alone, mut beside, mut cats) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..=BESIDE_ROUNDS {
        let without = start_one(&site, &mut agent);
        let reading = Reading::start(move || {
            ask(TcpStream::connect(api).expect("it listens"), &path("containerLogs", ""))
        });
        let with = start_one(&site, &mut agent);
        let speed = reading.stop();
        let name = file.clone();
        let reading = Reading::start(move || cat(&name));
        let with_cat = start_one(&site, &mut agent);
        let cat_speed = reading.stop();
        eprintln!(
            "bench:   {} round {round}: {with:.3} s at {speed:.0} MiB/s beside {without:.3}; \
             {with_cat:.3} s at {cat_speed:.0} MiB/s of cat",
            BESIDE[0]
        );
        if round > 0 {
            alone.push(without);
            beside.push(with);
            cats.push(with_cat);
        }
    }
    drop(agent);
    rig.wipe();
    vec![
        Figure::beside(BESIDE[0], &beside, &alone, "s", Limit::Ratio(1.10)),
        Figure::beside(BESIDE[1], &beside, &cats, "s", Limit::Ratio(1.10)),
    ]
}

/// Seconds until a pod runs; it is gone afterwards.
fn start_one(site: &Site, agent: &mut Watched) -> f64 {
    // Earlier work is over; no multiple of the agent's periods.
    let settle = || std::thread::sleep(Duration::from_millis(337));
    settle();
    let begun = Instant::now();
    site.put("p.yaml", &idler("p", Network::Host));
    let took = (agent.wait(1, RUNS) - begun).as_secs_f64();
    settle();
    site.take("p.yaml");
    agent.wait(1, GONE);
    took
}
