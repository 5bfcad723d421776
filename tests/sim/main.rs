//! The simulator: the whole core of the agent against a world that is drawn from a seed.
//!
//! ```text
//! cargo test --profile sim --test sim                 # 2,000 seeds from SIM_FIRST or 1 on
//! cargo test --profile sim --test sim -- 1 20000      # 20,000 seeds from seed 1 on
//! SEED=17 cargo test --profile sim --test sim         # one seed
//! SEED=17 TRACE=1 cargo test --profile sim --test sim # and everything that happens in it
//! ```
//!
//! Each seed has two phases. First the users change manifests while calls get lost, daemons
//! restart and machines reboot, at rates of which many are zero; the rules are checked after every
//! event. Then the faults stop, and the runtime must become what the manifests say, with true
//! statuses and without further changes. The rules are in `check`, the conditions of the end in
//! `ends`.
//!
//! Most worlds last minutes, with all faults at once. In six of 100, a site that is left alone, the
//! same happens within days: what an agent does by the clock is visible only in between. The report
//! includes the speed of each class of world.
//!
//! A rule that is never judged proves nothing: the report counts how often each was judged, and a
//! run of 2,000 seeds with the gateway's features fails if one never was.
//!
//! `scripts/mutants.sh` breaks the core on purpose and shows that this, or a story, detects it.
#![expect(clippy::print_stdout, reason = "the program prints its report")]

mod calls;
mod cgroups;
mod chance;
mod check;
mod clocks;
#[cfg(feature = "cloud")]
mod cloud;
#[cfg(not(feature = "cloud"))]
#[path = "cloud/absent.rs"]
mod cloud;
mod draw;
mod due;
mod ends;
mod faults;
mod folder;
mod heap;
mod housekeeping;
mod jobs;
mod link;
mod node;
#[cfg(feature = "streams")]
mod people;
mod probed;
mod program;
mod queries;
mod rule;
mod rules;
mod runner;
mod runtime;
#[cfg(feature = "services")]
mod services;
mod short;
mod tally;
mod trace;
mod turns;
mod users;
mod volumes;
mod world;

use std::process::ExitCode;

#[global_allocator]
static HEAP: heap::Heap = heap::Heap;

/// The name of the cargo target.
const TARGET: &str = "sim";
/// Seeds that once failed: they always run beside those that `make test` draws from the commit.
const ONCE_FAILED: [u64; 33] = [
    86,
    91,
    114,
    135,
    167,
    260,
    1_154,
    5_016,
    14_513,
    5_000_202,
    102_221_150,
    521_225_607,
    570_977_049,
    600_000_988,
    630_996_122,
    630_996_175,
    732_700_208,
    818_010_251,
    917_868_628,
    946_630_095,
    958_133_002,
    1_064_509_753,
    1_064_509_837,
    1_261_944_555,
    1_261_944_876,
    1_335_737_227,
    1_381_310_320,
    1_407_012_085,
    1_465_084_842,
    1_465_085_405,
    1_804_928_011,
    1_885_804_565,
    1_961_552_321,
];
/// Only with all features can a rule that is never judged be an error.
const IS_WHOLE: bool = cfg!(feature = "gateway");

fn main() -> ExitCode {
    runner::main()
}
