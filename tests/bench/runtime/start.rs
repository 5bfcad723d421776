//! How long pods take to start and to end: bare calls, so that the runtimes alone are compared.

use std::path::PathBuf;

use super::{builtin, name_program, order, settle};
use crate::bare::{Bare, DELETE, START};
use crate::figure::{Figure, Limit};
use crate::rig::{Network, Rig, idler};
use crate::support::runtime_state;

/// Names of [`one`].
pub const ONE: &[&str] = &[
    "runtime.start.host.crun",
    "runtime.start.host.runc",
    "runtime.delete.host",
    "runtime.start.cni.crun",
    "runtime.start.cni.runc",
    "runtime.delete.cni",
];
/// Names of [`thirty`].
pub const THIRTY: &[&str] = &["runtime.start.thirty", "runtime.start.thirty.cni"];

const ONE_ROUNDS: usize = 24;
const THIRTY_ROUNDS: usize = 6;

/// Milliseconds of every round.
#[derive(Default)]
struct Times {
    start: Vec<f64>,
    delete: Vec<f64>,
}

/// One pod at a time, from RunPodSandbox to a status that says that it runs, and from
/// StopContainer to RemovePodSandbox.
pub fn one(rig: &Rig) -> Vec<Figure> {
    name_program();
    rig.wipe();
    let (crun, runc) = (builtin(rig, "crun"), builtin(rig, "runc"));
    let sides = [rig.runtime(), crun.socket(), runc.socket()];
    let host = compare(rig, ONE[0], &sides, &[idler("p", Network::Host)], ONE_ROUNDS);
    let cni = compare(rig, ONE[3], &sides, &[idler("p", Network::Cni)], ONE_ROUNDS);
    crun.cut();
    runc.cut();
    let figure = |name, values: &[f64], references: &[f64], most| {
        Figure::beside(name, values, references, "ms", Limit::Ratio(most))
    };
    vec![
        figure(ONE[0], &host[1].start, &host[0].start, 0.20),
        figure(ONE[1], &host[2].start, &host[0].start, 0.40),
        figure(ONE[2], &host[1].delete, &host[0].delete, 0.40),
        figure(ONE[3], &cni[1].start, &cni[0].start, 0.35),
        figure(ONE[4], &cni[2].start, &cni[0].start, 0.40),
        figure(ONE[5], &cni[1].delete, &cni[0].delete, 0.60),
    ]
}

/// Thirty at once, as many calls under way as the agent makes.
pub fn thirty(rig: &Rig) -> Vec<Figure> {
    rig.wipe();
    let crun = builtin(rig, "crun");
    let sides = [rig.runtime(), crun.socket()];
    let measured = |name, network| {
        let texts: Vec<String> = (0..30).map(|n| idler(&format!("p{n}"), network)).collect();
        let times = compare(rig, name, &sides, &texts, THIRTY_ROUNDS);
        Figure::beside(name, &times[1].start, &times[0].start, "ms", Limit::Ratio(0.40))
    };
    let figures = vec![measured(THIRTY[0], Network::Host), measured(THIRTY[1], Network::Cni)];
    crun.cut();
    figures
}

fn compare<const N: usize>(
    rig: &Rig,
    name: &str,
    sides: &[PathBuf; N],
    texts: &[String],
    rounds: usize,
) -> [Times; N] {
    let mut bares = sides.each_ref().map(|socket| {
        let site = rig.site_on(socket.clone());
        Bare::connect(socket, &site.pod_logs, texts)
    });
    let mut times = [const { Times { start: Vec::new(), delete: Vec::new() } }; N];
    // The first warms the caches of all.
    for round in 0..=rounds {
        let mut shown = [(0.0, 0.0); N];
        for side in order::<N>(round) {
            settle();
            let start = bares[side].run(START) * 1_000.0;
            let running = runtime_state::list(&sides[side]).running("main").len();
            assert_eq!(running, texts.len(), "what the answers say is so");
            settle();
            let delete = bares[side].run(DELETE) * 1_000.0;
            shown[side] = (start, delete);
        }
        eprintln!("bench:   {name} round {round}: start, delete {shown:.1?}");
        if round > 0 {
            for (times, (start, delete)) in times.iter_mut().zip(shown) {
                times.start.push(start);
                times.delete.push(delete);
            }
        }
    }
    times
}
