//! The simulator of the built-in runtime: its whole core on a machine that is drawn from a seed,
//! with a disk, a tmpfs, monitors, an OCI runtime and jobs that take time, fail and die.
//!
//! ```text
//! cargo test --features runtime --profile sim --test rtsim             # 2,000 seeds
//! cargo test --features runtime --profile sim --test rtsim -- 1 20000  # so many from 1 on
//! SEED=17 TRACE=1 cargo test --features runtime --profile sim --test rtsim
//! ```
//!
//! First a client makes calls, as an agent would and otherwise, while the server and monitors are
//! killed, the power fails, jobs and saves fail, at rates of which many are zero. Then the faults
//! stop; every call must be answered, the client removes everything, and nothing may be left on the
//! machine. The rules that are checked all the time are in `check`, those of the end in `world`.
//!
//! Seeds are run, counted and replayed as in the agent's simulator (`tests/sim`).
#![expect(clippy::print_stdout, reason = "the program prints its report")]

#[path = "../sim/chance.rs"]
#[expect(dead_code, reason = "shared with the agent's simulator; not all draws are needed here")]
mod chance;
mod check;
mod client;
mod faults;
mod machine;
#[path = "../sim/rule.rs"]
mod rule;
mod rules;
#[path = "../sim/runner.rs"]
mod runner;
mod server;
#[path = "../cloudsim/tally.rs"]
mod tally;
#[path = "../sim/trace.rs"]
mod trace;
mod world;

use std::process::ExitCode;

/// The name of the cargo target.
const TARGET: &str = "rtsim";
/// Seeds that once failed: they always run beside those that are drawn anew.
const ONCE_FAILED: [u64; 6] = [16, 303, 2_313, 2_728, 23_533, 1_327_831_993];
/// All features are built in.
const IS_WHOLE: bool = true;

fn main() -> ExitCode {
    runner::main()
}
