//! The simulator of the cloud side: one to three replicas of the whole mind between an API server,
//! a store and nodes, in a world that is drawn from a seed.
//!
//! ```text
//! cargo test --features controller --profile sim --test cloudsim             # 2,000 seeds
//! cargo test --features controller --profile sim --test cloudsim -- 1 20000  # so many from 1 on
//! SEED=17 TRACE=1 cargo test --features controller --profile sim --test cloudsim
//! ```
//!
//! First people change objects while links, watches, calls, the API server, the store and the
//! replicas fail, and nodes lie or attack, at rates of which many are zero. Then the faults stop,
//! and every honest node must come to have what the API server has for it, and no more; all that it
//! says has arrived; of a node that is no more no record is left; and all is quiet. The rules that
//! are held all the time stand in `check`, what the end must be in `ends`.
//!
//! How seeds are run, counted and replayed is as in the agent's simulator (`tests/sim`).
#![expect(clippy::print_stdout, reason = "the report is what this program is for")]

#[path = "../sim/chance.rs"]
#[expect(dead_code, reason = "the agent's simulator's; not all draws are needed here")]
mod chance;
mod check;
#[path = "../controller/cluster.rs"]
#[expect(dead_code, reason = "the stories'; not all of it is needed here")]
mod cluster;
mod ends;
mod faults;
mod hands;
mod node;
mod people;
#[path = "../sim/rule.rs"]
mod rule;
mod rules;
#[path = "../sim/runner.rs"]
mod runner;
mod tally;
#[path = "../sim/trace.rs"]
mod trace;
mod world;

use std::process::ExitCode;

use tally::Tally;
use world::World;

/// As cargo knows it.
const TARGET: &str = "cloudsim";
/// Seeds that once failed: they always run beside those that `make test` draws from the commit.
const ONCE_FAILED: [u64; 2] = [1_465_084_233, 1_465_084_371];
/// All of it is built in.
const IS_WHOLE: bool = true;

fn main() -> ExitCode {
    runner::main()
}

/// One seed from its first to its last moment.
fn live(seed: u64, clock: &runner::Clock) -> Tally {
    let mut world = World::new(seed);
    world.live();
    world.tally.spent(world.class, world.now, clock.ns());
    world.tally
}
