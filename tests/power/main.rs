//! Power cuts: the real store on a simulated disk, which loses data that was not synced, sector by
//! sector and in any order. After each cut everything that was acknowledged as saved must be there,
//! nothing may be older, and every start must succeed.
//!
//! ```text
//! cargo test --profile sim --test power            # 1,000 cuts, from seed SIM_FIRST or 1 on
//! cargo test --profile sim --test power -- 10000   # as many as are given
//! SEED=17 cargo test --profile sim --test power    # one seed; with TRACE=1, all that happens
//! ```
//!
//! Then the same on a disk that acknowledges syncs and does not do them, which corresponds to
//! `synchronous=OFF`: there it must find a loss, otherwise the test detects nothing at all.
#![expect(clippy::print_stdout, reason = "the program prints its report")]

#[path = "../sim/chance.rs"]
#[expect(dead_code, reason = "shared with the simulator; not all draws are needed here")]
mod chance;
#[cfg(feature = "devices")]
mod devices;
#[cfg(not(feature = "devices"))]
#[path = "devices/absent.rs"]
mod devices;
mod disk;
mod life;
mod vfs;

use std::process::ExitCode;
use std::sync::LazyLock;

use life::Tally;

/// Cuts in `make test`.
const CUTS_DEFAULT: u64 = 1_000;
/// Cuts of one seed.
const CUTS_PER_SEED: u64 = 20;
/// Seeds that once failed: they always run.
const ONCE_FAILED: [u64; 2] = [30_000_674, 1_526_240_026];
/// Cuts until a disk that lies must be detected.
const CUTS_OF_LIES: u64 = 1_000;

/// Prints what happens, if requested.
pub fn trace(what: std::fmt::Arguments<'_>) {
    static ASKED: LazyLock<bool> = LazyLock::new(|| std::env::var_os("TRACE").is_some());
    if *ASKED {
        println!("{what}");
    }
}

fn main() -> ExitCode {
    vfs::register();
    let number = |text: String| text.parse::<u64>().expect("a number");
    let cuts = std::env::args().skip(1).find(|arg| !arg.starts_with('-')).map(number);
    let variable = |name| std::env::var(name).ok().map(number);
    let (first, count) = if let Some(seed) = variable("SEED") {
        (seed, 1)
    } else {
        let count = cuts.unwrap_or(CUTS_DEFAULT).div_ceil(CUTS_PER_SEED);
        (variable("SIM_FIRST").unwrap_or(1), count)
    };
    let seeds = first..first + count;
    let features = if cfg!(feature = "devices") { " --features devices" } else { "" };
    println!("seeds {first} to {} and {ONCE_FAILED:?}", seeds.end - 1);
    let mut tally = Tally::default();
    for seed in seeds.chain(ONCE_FAILED) {
        if let Err(why) = life::live(seed, CUTS_PER_SEED, false, &mut tally) {
            println!(
                "violated: {why}\n  SEED={seed} scripts/cargo test --locked{features} \
                 --profile sim --test power"
            );
            return ExitCode::FAILURE;
        }
    }
    println!("{tally:#?}");
    let mut lies = Tally::default();
    let found = (1..=CUTS_OF_LIES / CUTS_PER_SEED)
        .find_map(|seed| life::live(seed, CUTS_PER_SEED, true, &mut lies).err());
    let Some(why) = found else {
        println!("a disk that does not sync was not found out in {} cuts", lies.cuts);
        return ExitCode::FAILURE;
    };
    println!("a disk that does not sync was found out at cut {}: {why}", lies.cuts);
    ExitCode::SUCCESS
}
