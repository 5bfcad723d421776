//! How soon pods run again after a power cut: the processes and RUN are gone, the disk is not.

use std::time::{Duration, Instant};

use edged::wire::cri::container::{Container, ContainerState, ListContainersRequest};

use super::{builtin, name_program, order, program};
use crate::figure::{Figure, Limit};
use crate::rig::{Network, Rig, idler};
use crate::support::agent::Site;
use crate::support::containerd::Containerd;
use crate::support::cri::Cri;
use crate::watched::{RUNS, Watched};

/// Names of [`cut`].
pub const NAMES: &[&str] = &["runtime.powercut.ten"];

const ROUNDS: usize = 6;
const PODS: usize = 10;
const PATIENCE: Duration = Duration::from_secs(60);

/// Seconds from the start of agent and server to the last of ten pods that runs.
pub fn cut(rig: &Rig) -> Vec<Figure> {
    name_program();
    rig.wipe();
    let crun = builtin(rig, "crun");
    let sides = [rig.containerd(), &crun];
    let sites = sides.map(|runtime| {
        let site = rig.site_on(runtime.socket());
        for n in 0..PODS {
            site.put(&format!("p{n}.yaml"), &idler(&format!("p{n}"), Network::Host));
        }
        let mut agent = Watched::start_of(&site, &program());
        agent.wait(PODS, RUNS);
        site
    });
    let mut times = [const { Vec::new() }; 2];
    for round in 0..=ROUNDS {
        let mut shown = [0.0; 2];
        for side in order::<2>(round) {
            shown[side] = again(&sites[side], sides[side]);
        }
        eprintln!("bench:   {} round {round}: {shown:.3?} s, the first by containerd", NAMES[0]);
        if round > 0 {
            times.iter_mut().zip(shown).for_each(|(times, time)| times.push(time));
        }
    }
    crun.cut();
    rig.wipe();
    vec![Figure::beside(NAMES[0], &times[1], &times[0], "s", Limit::Ratio(0.50))]
}

/// No agent runs; its pods may.
fn again(site: &Site, runtime: &Containerd) -> f64 {
    runtime.cut();
    std::thread::scope(|scope| {
        let starting = scope.spawn(|| runtime.start_daemon());
        // What the script does before that is not the runtime's.
        wait_until("the server is started", || runtime.dir().join("pid").exists());
        let begun = Instant::now();
        let agent = Watched::start_of(site, &program());
        // The agent's own line says that a pod runs also where it has run before the cut.
        let mut cri = None;
        wait_until("all run", || {
            cri = cri.take().or_else(|| Cri::connect(&runtime.socket()).ok());
            cri.as_mut().is_some_and(|cri| running(cri) == Some(PODS))
        });
        let took = begun.elapsed().as_secs_f64();
        starting.join().expect("it starts");
        // Which kills it.
        drop(agent);
        took
    })
}

/// `None`: it does not answer yet.
fn running(cri: &mut Cri) -> Option<usize> {
    let listed = cri.call(&ListContainersRequest { filter: None }).ok()?;
    let runs = |one: &&Container| one.state() == ContainerState::Running;
    Some(listed.containers.iter().filter(runs).count())
}

/// Looks often, which costs the same on both sides.
fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "not within {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}
