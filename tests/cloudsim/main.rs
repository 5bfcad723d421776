//! The simulator of the cloud side: one to three replicas of the whole core of the controller
//! between an API server, a store and nodes, in a world that is drawn from a seed.
//!
//! ```text
//! cargo test --features controller --profile sim --test cloudsim             # 2,000 seeds
//! cargo test --features controller --profile sim --test cloudsim -- 1 20000  # so many from 1 on
//! SEED=17 TRACE=1 cargo test --features controller --profile sim --test cloudsim
//! ```
//!
//! First the users change objects while links, watches, calls, the API server, the store and the
//! replicas fail, and nodes lie or attack, at rates of which many are zero. Then the faults stop,
//! and every honest node must end up with exactly the objects that the API server has for it; all
//! its reports have arrived; no record of a deleted node is left; and nothing more is sent. The
//! rules that are checked all the time are in `check`, the conditions of the end in `ends`.
//!
//! Seeds are run, counted and replayed as in the agent's simulator (`tests/sim`).
#![expect(clippy::print_stdout, reason = "the program prints its report")]

#[path = "../controller/any_cluster.rs"]
mod any_cluster;
#[path = "../sim/chance.rs"]
#[expect(dead_code, reason = "shared with the agent's simulator; not all draws are needed here")]
mod chance;
mod check;
#[path = "../controller/cluster.rs"]
#[expect(dead_code, reason = "shared with the stories; not all of it is needed here")]
mod cluster;
mod devices;
mod dynamic;
mod ends;
mod event_loop;
mod faults;
mod jobs;
mod node;
mod policy;
#[path = "../sim/rule.rs"]
mod rule;
mod rules;
#[path = "../sim/runner.rs"]
mod runner;
mod tally;
#[path = "../sim/trace.rs"]
mod trace;
mod users;
mod world;

use std::process::ExitCode;

/// The name of the cargo target.
const TARGET: &str = "cloudsim";
/// Seeds that once failed: they always run beside those that `make test` draws from the commit.
const ONCE_FAILED: [u64; 22] = [
    48,
    68,
    144,
    289,
    64_735_943,
    340_813_220,
    577_280_579,
    769_762_155,
    1_005_570_303,
    1_005_570_441,
    1_005_570_471,
    1_064_508_433,
    1_189_758_446,
    1_415_605_161,
    1_465_084_233,
    1_465_084_371,
    1_607_068_205,
    1_607_068_302,
    1_607_068_621,
    1_607_069_924,
    1_702_607_291,
    1_778_443_590,
];
/// All features are built in.
const IS_WHOLE: bool = true;

fn main() -> ExitCode {
    runner::main()
}
