//! How long pods take to start and to end, compared with the bare calls.

use std::time::Instant;

use crate::bare::{Bare, DELETE, START};
use crate::figure::{Figure, Limit};
use crate::rig::{Network, Rig, idler};
use crate::support::agent::Site;
use crate::watched::{GONE, RUNS, Watched};

/// Names of [`one`].
pub const ONE: &[&str] =
    &["pods.start.one", "pods.delete.one", "pods.start.one.cni", "pods.delete.one.cni"];
/// Names of [`thirty`].
pub const THIRTY: &[&str] =
    &["pods.start.thirty", "pods.delete.thirty", "pods.start.thirty.cni", "pods.delete.thirty.cni"];
/// Names of [`cold`].
pub const COLD: &[&str] = &["pods.cold_start.ten"];

const ONE_ROUNDS: usize = 25;
const THIRTY_ROUNDS: usize = 5;
const COLD_ROUNDS: usize = 11;

/// Seconds of every round, on both sides.
#[derive(Default)]
struct Times {
    start: Vec<f64>,
    delete: Vec<f64>,
    bare_start: Vec<f64>,
    bare_delete: Vec<f64>,
}

/// One pod at a time.
pub fn one(rig: &Rig) -> Vec<Figure> {
    let mut figures = compare(rig, Network::Host, 1, ONE_ROUNDS, [ONE[0], ONE[1]], 1.10);
    figures.extend(compare(rig, Network::Cni, 1, ONE_ROUNDS, [ONE[2], ONE[3]], 1.10));
    figures
}

/// Thirty at once.
pub fn thirty(rig: &Rig) -> Vec<Figure> {
    let rounds = THIRTY_ROUNDS;
    let mut figures = compare(rig, Network::Host, 30, rounds, [THIRTY[0], THIRTY[1]], 1.15);
    figures.extend(compare(rig, Network::Cni, 30, rounds, [THIRTY[2], THIRTY[3]], 1.15));
    figures
}

fn compare(
    rig: &Rig,
    network: Network,
    count: usize,
    rounds: usize,
    [start, delete]: [&'static str; 2],
    most: f64,
) -> Vec<Figure> {
    rig.wipe();
    let texts = texts(count, network);
    let mut times = Times::default();
    // The agent is stopped during the bare rounds, whose pods would be its orphans.
    for round in 0..=rounds {
        let bare_site = rig.site();
        let mut bare = Bare::connect(&bare_site.runtime, &bare_site.pod_logs, &texts);
        // As before the agent's pods: a runtime that has rested for a moment is slower.
        settle();
        let bare_start = bare.run(START);
        // As for the agent's pods: one that has only just started does not listen yet.
        settle();
        let bare_delete = bare.run(DELETE);
        let (started, deleted) = measured(&rig.site(), &texts);
        eprintln!(
            "bench:   {start} round {round}: start {started:.3} s beside {bare_start:.3}, \
             delete {deleted:.3} s beside {bare_delete:.3}"
        );
        // The first warms the caches of both.
        if round > 0 {
            times.start.push(started);
            times.delete.push(deleted);
            times.bare_start.push(bare_start);
            times.bare_delete.push(bare_delete);
        }
    }
    let limit = Limit::Ratio(most);
    vec![
        Figure::beside(start, &times.start, &times.bare_start, "s", limit),
        Figure::beside(delete, &times.delete, &times.bare_delete, "s", limit),
    ]
}

fn texts(count: usize, network: Network) -> Vec<String> {
    (0..count).map(|n| idler(&format!("p{n}"), network)).collect()
}

/// Manifests appear, and are removed; seconds for both.
fn measured(site: &Site, texts: &[String]) -> (f64, f64) {
    let mut agent = Watched::start(site);
    agent.wait_ready();
    settle();
    for (n, text) in texts.iter().enumerate() {
        std::fs::write(site.dir.join(format!("p{n}.yaml")), text).expect("a file of ours");
    }
    let begun = Instant::now();
    for n in 0..texts.len() {
        let name = format!("p{n}.yaml");
        std::fs::rename(site.dir.join(&name), site.manifests.join(&name)).expect("ours");
    }
    let started = agent.wait(texts.len(), RUNS) - begun;
    let running = site.runtime_state().ready().len();
    assert_eq!(running, texts.len(), "what the log says is so");
    settle();
    let begun = Instant::now();
    for n in 0..texts.len() {
        std::fs::remove_file(site.manifests.join(format!("p{n}.yaml"))).expect("ours");
    }
    let deleted = agent.wait(texts.len(), GONE) - begun;
    assert!(site.runtime_state().is_empty(), "what the log says is so");
    (started.as_secs_f64(), deleted.as_secs_f64())
}

/// Earlier work is over; a fraction of a second that is no multiple of the agent's period, so that
/// its relists come at different points of each round.
fn settle() {
    std::thread::sleep(std::time::Duration::from_millis(637));
}

/// The agent starts with ten manifests, and the runtime is empty.
pub fn cold(rig: &Rig) -> Vec<Figure> {
    const COUNT: usize = 10;
    rig.wipe();
    let texts = texts(COUNT, Network::Host);
    let (mut cold, mut bare_starts) = (Vec::new(), Vec::new());
    for round in 0..=COLD_ROUNDS {
        settle();
        let bare_site = rig.site();
        let mut bare = Bare::connect(&bare_site.runtime, &bare_site.pod_logs, &texts);
        let bare_start = bare.run(START);
        settle();
        bare.run(DELETE);
        settle();
        let site = rig.site();
        for (n, text) in texts.iter().enumerate() {
            site.put(&format!("p{n}.yaml"), text);
        }
        let begun = Instant::now();
        let mut agent = Watched::start(&site);
        let took = (agent.wait(COUNT, RUNS) - begun).as_secs_f64();
        eprintln!("bench:   {} round {round}: {took:.3} s beside {bare_start:.3}", COLD[0]);
        drop(agent);
        rig.wipe();
        if round > 0 {
            cold.push(took);
            bare_starts.push(bare_start);
        }
    }
    vec![Figure::beside(COLD[0], &cold, &bare_starts, "s", Limit::Ratio(1.15))]
}
