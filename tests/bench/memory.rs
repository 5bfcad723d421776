//! The agent's memory and CPU while idle, and after much activity.

use std::path::PathBuf;
use std::time::Duration;

use crate::fake::Fake;
use crate::figure::{Figure, Limit};
use crate::rig::{Network, Rig, idler};
use crate::support::agent::Site;
use crate::support::process::{cpu_seconds, pss_anon_kb, pss_kb};
use crate::support::top;
use crate::watched::{GONE, RUNS, Watched};

/// Names of [`steady_none`].
pub const STEADY_NONE: &[&str] = &["pods.memory.idle", "pods.cpu.idle"];
/// Names of [`steady_thirty`].
pub const STEADY_THIRTY: &[&str] = &["pods.memory.thirty", "pods.cpu.thirty"];
/// Names of [`simulated`].
pub const SIMULATED: &[&str] = &["pods.memory.simulated_110", "pods.cpu.simulated_110"];
/// Names of [`churn`].
pub const CHURN: &[&str] = &["pods.memory.churn", "pods.memory.churn_anon"];

/// Long enough for start-up, and for a few rounds of all periodic work.
const SETTLE: Duration = Duration::from_secs(8);
/// The window of a CPU figure.
const WINDOW: Duration = Duration::from_secs(60);

/// The program on gateways is static, and contains its libraries: if `make bench` has the tools to
/// build it, that one is measured, and the output names it.
pub fn start(site: &Site) -> Watched {
    let program = program(site);
    let which = if program == flashed() { "static program" } else { "release on glibc" };
    eprintln!("bench: of the {which}, {}", program.display());
    Watched::start_of(site, &program)
}

/// The program that [`start`] starts.
pub fn program(site: &Site) -> PathBuf {
    let flashed = flashed();
    if flashed.is_file() { flashed } else { site.command().get_program().into() }
}

/// Made by `make x86_64-musl`.
fn flashed() -> PathBuf {
    top().join("target/cross/x86_64-unknown-linux-musl/flash/edged")
}

/// Megabytes of a process.
fn pss_mb(pid: u32) -> f64 {
    pss_kb(pid) as f64 / 1024.0
}

/// CPU seconds a minute.
fn cpu_per_minute(pid: u32) -> f64 {
    let before = cpu_seconds(pid);
    std::thread::sleep(WINDOW);
    (cpu_seconds(pid) - before) * 60.0 / WINDOW.as_secs_f64()
}

fn steady(
    agent: &Watched,
    names: &'static [&'static str],
    memory_mb: f64,
    cpu: f64,
) -> Vec<Figure> {
    std::thread::sleep(SETTLE);
    let memory = pss_mb(agent.pid());
    let seconds = cpu_per_minute(agent.pid());
    vec![
        Figure::alone(names[0], memory, "MB", Some(Limit::Most(memory_mb))),
        Figure::alone(names[1], seconds, "s/min", Some(Limit::Most(cpu))),
    ]
}

/// No pods.
pub fn steady_none(rig: &Rig) -> Vec<Figure> {
    rig.wipe();
    let site = rig.site();
    let mut agent = start(&site);
    agent.wait_ready();
    steady(&agent, STEADY_NONE, 4.0, 0.01)
}

/// Thirty real pods.
pub fn steady_thirty(rig: &Rig) -> Vec<Figure> {
    rig.wipe();
    let site = rig.site();
    let mut agent = start(&site);
    put(&site, 0..30);
    agent.wait(30, RUNS);
    let figures = steady(&agent, STEADY_THIRTY, 5.0, 0.05);
    drop(agent);
    rig.wipe();
    figures
}

/// As many pods as a node may have, on a fake runtime.
pub fn simulated(rig: &Rig) -> Vec<Figure> {
    let fake = Fake::start(rig.socket("110.sock"));
    let site = rig.site_on(fake.socket().to_owned());
    let mut agent = start(&site);
    put(&site, 0..110);
    agent.wait(110, RUNS);
    steady(&agent, SIMULATED, 9.0, 0.2)
}

/// A thousand pods are created and removed, ten at a time, each with its own name.
pub fn churn(rig: &Rig) -> Vec<Figure> {
    // The first hundreds fill bounded data: events, buffers, the heap's free lists.
    const WARM: usize = 100;
    const ROUNDS: usize = 200;
    let fake = Fake::start(rig.socket("churn.sock"));
    let site = rig.site_on(fake.socket().to_owned());
    let mut agent = start(&site);
    agent.wait_ready();
    let mut before = (0, 0);
    for round in 0..ROUNDS {
        let names = round * 10..round * 10 + 10;
        put(&site, names.clone());
        agent.wait(10, RUNS);
        for n in names {
            site.take(&format!("p{n}.yaml"));
        }
        agent.wait(10, GONE);
        if round + 1 == WARM {
            std::thread::sleep(SETTLE);
            before = (pss_kb(agent.pid()), pss_anon_kb(agent.pid()));
        }
        if round % 20 == 19 {
            let (all, own) = (pss_kb(agent.pid()), pss_anon_kb(agent.pid()));
            eprintln!("bench:   {}: {all} kB, {own} of them no file's", (round + 1) * 10);
        }
    }
    std::thread::sleep(SETTLE);
    let grown = |after: u64, before: u64| after as f64 - before as f64;
    let all = grown(pss_kb(agent.pid()), before.0);
    let own = grown(pss_anon_kb(agent.pid()), before.1);
    vec![
        // A few pages more or less are the allocator's: massif shows constant heap usage.
        Figure::alone(CHURN[0], all, "kB", Some(Limit::Most(32.0))),
        Figure::alone(CHURN[1], own, "kB", Some(Limit::Most(32.0))),
    ]
}

fn put(site: &Site, names: std::ops::Range<usize>) {
    for n in names {
        site.put(&format!("p{n}.yaml"), &idler(&format!("p{n}"), Network::Host));
    }
}
