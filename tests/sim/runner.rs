//! Runs many seeds in parallel and reports which failed, how to replay them, and which rules were
//! never judged. The crate's `World` is what a seed defines.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::rule;
use crate::tally::Tally;
use crate::trace::{self, Mode};
use crate::world::World;
use crate::{IS_WHOLE, ONCE_FAILED, TARGET};
use nix::time::{ClockId, clock_gettime};

const SEEDS_DEFAULT: u64 = 2_000;
/// Stop after this many failed seeds.
const FAILURES_MAX: usize = 25;
/// This many are reported with their traces.
const TRACES_MAX: usize = 3;

thread_local! {
    static WHY: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Which seeds to run.
struct Plan {
    first: u64,
    count: u64,
    /// Additional seeds.
    also: &'static [u64],
    trace: Mode,
    failures_max: usize,
}

/// The results.
#[derive(Default)]
struct Total {
    passed: u64,
    failed: BTreeMap<u64, String>,
    tally: Tally,
}

/// Runs what the arguments and the environment request.
pub fn main() -> ExitCode {
    let plan = match Plan::new() {
        Ok(plan) => plan,
        Err(usage) => {
            println!("{usage}");
            return ExitCode::FAILURE;
        }
    };
    std::panic::set_hook(Box::new(|info| {
        WHY.set(info.to_string().replace('\n', " "));
    }));
    println!("{}", plan.summary());
    let total = run_all(&plan);
    let cpu_s = cpu_ns(ClockId::CLOCK_PROCESS_CPUTIME_ID) as f64 / 1e9;
    report(&plan, &total, cpu_s);
    if total.failed.is_empty() && total.asleep(&plan).is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

impl Plan {
    fn new() -> Result<Self, String> {
        let variable = |name| std::env::var(name).ok();
        let number = |text: &str| {
            text.parse::<u64>().map_err(|_| format!("got {text:?}, expected a number"))
        };
        let trace = if variable("TRACE").is_some() { Mode::Print } else { Mode::Off };
        let failures_max =
            variable("SIM_FAILURES").map_or(Ok(FAILURES_MAX as u64), |n| number(&n))?;
        let failures_max = failures_max as usize;
        if let Some(seed) = variable("SEED") {
            return Ok(Self { first: number(&seed)?, count: 1, also: &[], trace, failures_max });
        }
        // Options are for the usual test harness.
        let arguments: Vec<String> =
            std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
        let also: &[u64] = if arguments.is_empty() { &ONCE_FAILED } else { &[] };
        let (first, count) = match arguments.as_slice() {
            [] => {
                let first = variable("SIM_FIRST").map_or(Ok(1), |first| number(&first))?;
                let count = variable("SIM_SEEDS").map_or(Ok(SEEDS_DEFAULT), |n| number(&n))?;
                (first, count)
            }
            [count] => (1, number(count)?),
            [first, count] => (number(first)?, number(count)?),
            more => return Err(format!("got {more:?}, expected the first seed and a count")),
        };
        Ok(Self { first, count, also, trace, failures_max })
    }

    /// The number of seeds.
    fn len(&self) -> u64 {
        self.count + self.also.len() as u64
    }

    /// The seed at this index.
    fn seed(&self, at: u64) -> u64 {
        let fresh = |at: u64| self.first + at - self.also.len() as u64;
        self.also.get(at as usize).copied().unwrap_or_else(|| fresh(at))
    }

    /// A one-line description.
    fn summary(&self) -> String {
        let last = self.first + self.count.saturating_sub(1);
        let also = if self.also.is_empty() {
            String::new()
        } else {
            format!(", and {:?}, which once failed", self.also)
        };
        format!("seeds {} to {last}{also}", self.first)
    }
}

fn run_all(plan: &Plan) -> Total {
    let total = Mutex::new(Total::default());
    let next = AtomicU64::new(0);
    let enough = AtomicBool::new(false);
    let one_by_one = plan.trace == Mode::Print;
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let workers = if one_by_one { 1 } else { (cores as u64).min(plan.len()) };
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                while !enough.load(Ordering::Relaxed) {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    if at >= plan.len() {
                        break;
                    }
                    let seed = plan.seed(at);
                    let (result, tally) = run(seed, plan.trace);
                    let mut total = total.lock().expect("no worker panics while it counts");
                    total.count(plan, seed, result, &tally);
                    enough.fetch_or(total.failed.len() >= plan.failures_max, Ordering::Relaxed);
                }
            });
        }
    });
    total.into_inner().expect("no worker panics while it counts")
}

impl Total {
    fn count(&mut self, plan: &Plan, seed: u64, result: Result<(), String>, tally: &Tally) {
        self.tally.merge(tally);
        match result {
            Ok(()) => self.passed += 1,
            Err(why) => {
                println!("seed {seed}: {why}\n  {}", replay(seed));
                self.failed.insert(seed, why);
            }
        }
        let done = self.passed + self.failed.len() as u64;
        let tenth = (plan.len() / 10).max(1);
        if plan.count >= 100 && done.is_multiple_of(tenth) {
            println!("{done} of {} seeds, {} failed", plan.len(), self.failed.len());
        }
    }

    /// The rules that none of many seeds judged: the simulator does not test them.
    fn asleep(&self, plan: &Plan) -> Vec<&'static str> {
        let many = self.failed.is_empty() && plan.count >= rule::SEEDS_ENOUGH;
        if many && IS_WHOLE { self.tally.judged.asleep() } else { Vec::new() }
    }
}

/// The processor time of this thread from now on.
struct Clock(u64);

impl Clock {
    fn start() -> Self {
        Self(cpu_ns(ClockId::CLOCK_THREAD_CPUTIME_ID))
    }

    /// Nanoseconds.
    fn ns(&self) -> u64 {
        cpu_ns(ClockId::CLOCK_THREAD_CPUTIME_ID) - self.0
    }
}

/// One seed from its first to its last moment.
fn run(seed: u64, mode: Mode) -> (Result<(), String>, Tally) {
    trace::begin(mode);
    rule::take();
    let clock = Clock::start();
    let lived = catch_unwind(AssertUnwindSafe(|| {
        let mut world = World::new(seed);
        let simulated_ms = world.live();
        world.tally.spent(world.class, simulated_ms, clock.ns());
        world.tally
    }));
    match lived {
        Ok(mut tally) => {
            tally.judged = rule::take();
            (Ok(()), tally)
        }
        Err(_) => (Err(WHY.take()), Tally::default()),
    }
}

/// The command that replays a seed.
fn replay(seed: u64) -> String {
    let features = match TARGET {
        "cloudsim" => " --features controller",
        "rtsim" => " --features runtime",
        "sim" if cfg!(feature = "devices") => " --features devices",
        _ => "",
    };
    format!(
        "SEED={seed} TRACE=1 scripts/cargo test --locked{features} --profile sim --test {TARGET}"
    )
}

fn report(plan: &Plan, total: &Total, cpu_s: f64) {
    for (&seed, why) in total.failed.iter().take(TRACES_MAX) {
        if plan.trace == Mode::Print {
            break;
        }
        let (second, _) = run(seed, Mode::Keep);
        println!("\n---- seed {seed}: {why}");
        for line in trace::kept_lines() {
            println!("{line}");
        }
        if second.as_ref().err() != Some(why) {
            println!("NOT DETERMINISTIC: the second run of seed {seed} came to {second:?}");
        }
        println!("replay: {}", replay(seed));
    }
    let tally = &total.tally;
    println!();
    for line in tally.lines(cpu_s) {
        println!("{line}");
    }
    let mut rules: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    for (&seed, why) in &total.failed {
        let rule = why.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
        let rule = rule.map_or("panic in the core", |(rule, _)| rule);
        rules.entry(rule).or_insert((seed, 0)).1 += 1;
    }
    for (rule, (seed, count)) in rules {
        println!("violated: [{rule}] {count} times, first by seed {seed}");
    }
    for rule in total.asleep(plan) {
        println!("unused: [{rule}] was never judged");
    }
    println!("{} passed, {} failed", total.passed, total.failed.len());
}

/// Processor nanoseconds that this thread or process has used.
fn cpu_ns(of: ClockId) -> u64 {
    let used = clock_gettime(of).expect("Linux has this clock");
    used.tv_sec() as u64 * 1_000_000_000 + used.tv_nsec() as u64
}
