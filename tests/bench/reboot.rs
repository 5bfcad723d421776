//! How soon the pods of a cloud start after a reboot without that cloud: the agent was there first,
//! has them in its store alone, and waits for the runtime.
//!
//! ```text
//! agent starts ─▶ dial fails ─▶ socket answers ─▶ back-off ─▶ looks ─▶ calls ─▶ StartContainer
//!                                        └───────────────── measured ──────────────────┘
//! ```
//!
//! The runtime is cut as the power would cut it: what it keeps on the disk is there again, and the
//! pods of before are dead in it. The end is the agent's line of the call `StartContainer` at level
//! debug: it is written in the turn at whose end the call leaves.

use std::net::UdpSocket;
use std::process::Command;
use std::time::{Duration, Instant};

use edged::wire::cri::runtime::VersionRequest;

use crate::bare::{Bare, START};
use crate::figure::{Figure, Limit};
use crate::rig::{Network, Rig, idler};
use crate::support::agent::Site;
use crate::support::cloud::{Cloud, Setup};
use crate::support::containerd::Containerd;
use crate::support::cri::Cri;
use crate::support::harass::idle;
use crate::support::joined::{self, join};
use crate::support::wait::until;
use crate::watched::Watched;

/// Names of [`offline`].
pub const NAMES: &[&str] = &["cloud.reboot"];

const ROUNDS: u32 = 7;
const PODS: usize = 10;
/// An address that nothing else uses.
const NAME_SERVER: &str = "127.0.53.53";
const NOWHERE: &str = "no-such-host.invalid";
/// By then the back-off between dials is at its longest.
const OUTAGE: Duration = Duration::from_secs(2);
const PATIENCE: Duration = Duration::from_secs(60);
/// The log line of the call.
const COMMAND: &str = "rpc=StartContainer";

/// Milliseconds from the first answer on the runtime's socket to the first container's start, of
/// ten pods; compared with a client that polls every half millisecond whether the runtime is ready,
/// and then makes the same calls.
pub fn offline(rig: &Rig) -> Vec<Figure> {
    rig.wipe();
    let mut site = rig.site();
    fill_store(&mut site);
    rig.wipe();
    let dark = Dark::new(&site);
    let (mut took, mut reference) = (Vec::new(), Vec::new());
    // The first warms the caches of both.
    for round in 0..=ROUNDS {
        let bare_took = bare(rig, &site);
        rig.wipe();
        let agent_took = agent(rig, &mut site, &dark, round);
        rig.wipe();
        eprintln!("bench:   {} round {round}: {agent_took:.1} ms beside {bare_took:.1}", NAMES[0]);
        if round > 0 {
            took.push(agent_took);
            reference.push(bare_took);
        }
    }
    assert!(dark.was_asked(), "names were looked up there");
    vec![Figure::beside(NAMES[0], &took, &reference, "ms", Limit::Above(300.0))]
}

/// The cloud sends its pods, and is never reachable again.
fn fill_store(site: &mut Site) {
    let cloud = Cloud::start(&Setup::default());
    join(site, &cloud);
    let agent = Watched::start(site);
    cloud.connected(1);
    let put = |n| {
        let (resource, pod) = idle(&format!("p{n}"));
        cloud.put(&resource, pod)
    };
    let ids: Vec<String> = (0..PODS).map(put).collect();
    wait_running(site);
    for id in &ids {
        cloud.acked(id);
    }
    drop(agent);
    let (https, websocket) = (format!("{NOWHERE}:10002"), format!("{NOWHERE}:10000"));
    joined::configure(site, &joined::store(site), &https, &websocket, "x.y.z.w");
}

fn bare(rig: &Rig, site: &Site) -> f64 {
    let texts: Vec<String> = (0..PODS).map(|n| idler(&format!("b{n}"), Network::Host)).collect();
    let mut bare = Bare::connect(&site.runtime, &site.pod_logs, &texts);
    bare.run(START);
    let containerd = rig.containerd();
    containerd.cut();
    boot(containerd, || bare.run_again(&site.runtime))
}

fn agent(rig: &Rig, site: &mut Site, dark: &Dark, round: u32) -> f64 {
    let containerd = rig.containerd();
    let before = dark.start(site);
    wait_running(site);
    // Killed with SIGKILL.
    drop(before);
    containerd.cut();
    site.level = "debug";
    let mut after = dark.start(site);
    site.level = "info";
    after.wait(1, "no connection to the runtime");
    // Not in step with the back-offs between dials.
    std::thread::sleep(OUTAGE + round * Duration::from_millis(37));
    let took = boot(containerd, || after.wait(1, COMMAND));
    wait_running(site);
    took
}

/// Every pod runs. Their phase does not show it: it is in the store, and has not changed.
fn wait_running(site: &Site) {
    until("every pod runs", || {
        let state = site.runtime_state();
        let all = (state.running("main").len(), state.ready().len()) == (PODS, PODS);
        if all { Ok(()) } else { Err(state.short()) }
    });
}

/// Starts the runtime; milliseconds from its first answer to the awaited event.
fn boot(containerd: &Containerd, wait: impl FnOnce() -> Instant) -> f64 {
    let socket = containerd.socket();
    let begun = Instant::now();
    let (answered, ended) = std::thread::scope(|scope| {
        let starting = scope.spawn(|| containerd.start_daemon());
        let answers = || {
            let version = VersionRequest { version: String::new() };
            Cri::connect(&socket).is_ok_and(|mut cri| cri.call(&version).is_ok())
        };
        while !answers() {
            assert!(begun.elapsed() < PATIENCE, "the runtime does not start");
            std::thread::sleep(Duration::from_micros(500));
        }
        let answered = Instant::now();
        let ended = wait();
        starting.join().expect("it starts");
        (answered, ended)
    });
    (ended - answered).as_secs_f64() * 1_000.0
}

/// A name server that receives queries and never answers.
struct Dark {
    resolv_conf: String,
    server: UdpSocket,
}

impl Dark {
    fn new(site: &Site) -> Self {
        let server = UdpSocket::bind((NAME_SERVER, 53)).expect("a port of loopback for root");
        let path = site.dir.join("resolv.conf");
        std::fs::write(&path, format!("nameserver {NAME_SERVER}\n")).expect("a file of ours");
        Self { resolv_conf: path.to_string_lossy().into_owned(), server }
    }

    /// Whether a query came.
    fn was_asked(&self) -> bool {
        self.server.set_nonblocking(true).expect("a socket of ours");
        self.server.recv(&mut [0; 512]).is_ok()
    }

    /// Starts an agent there, in a separate mount namespace.
    fn start(&self, site: &Site) -> Watched {
        let made = site.command();
        let mut command = Command::new("unshare");
        command
            .args(["--mount", "sh", "-c", "mount --bind \"$0\" /etc/resolv.conf && exec \"$@\""])
            .arg(&self.resolv_conf)
            .arg(made.get_program())
            .args(made.get_args());
        Watched::start_by(command)
    }
}
