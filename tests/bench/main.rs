//! What edged costs: time beside the bare calls, memory, CPU.
//!
//! ```text
//! cargo bench --bench bench [-- [--check] FILTER...]      writes target/bench.json
//! ```
//!
//! Every figure that depends on the machine stands beside a reference that was measured in the same
//! run, in turns with it, and only their ratio or their difference has a limit. Medians of several
//! rounds; the load of the machine is written down, because others on the same cores stretch both
//! sides, unevenly. With `--check` the exit code says whether every figure keeps its limit.
//!
//! **Time** is taken where it disturbs least: a pod's start is from the moment its manifest is
//! renamed into the folder to the moment that the agent's log line `status=Running` arrives on a
//! pipe that a thread of ours reads blocking. The line is written in the turn in which the status
//! becomes what `/pods` shows; the pipe adds some 50 µs to spans of 100 ms and more. Polling
//! `/pods` would add a request to the agent for every look.
//!
//! **The reference** ([`bare`]) is the same sequence of CRI calls with the same bytes, by the same
//! shim over a blocking socket, as many at once as the agent makes.
#![allow(clippy::disallowed_methods, reason = "a benchmark measures real time")]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a table on stdout, progress beside")]

#[cfg_attr(not(feature = "cloud"), allow(dead_code, reason = "figures of the cloud use the rest"))]
mod bare;
#[cfg(feature = "cloud")]
mod cloud;
#[cfg(feature = "cloud")]
mod cloud_link;
#[cfg(feature = "controller")]
mod controller;
#[cfg(feature = "devices")]
mod devices;
#[allow(dead_code, reason = "the whole-tests use the rest")]
mod fake;
#[cfg_attr(not(feature = "cloud"), allow(dead_code, reason = "figures of the cloud use the rest"))]
mod figure;
mod garbage;
mod memory;
#[cfg(feature = "metaserver")]
mod metaserver;
mod pods;
mod probes;
mod raw;
#[cfg(feature = "cloud")]
mod reboot;
mod rig;
#[cfg(feature = "runtime")]
mod runtime;
#[cfg(feature = "services")]
mod services;
mod shim;
mod simulator;
#[cfg(feature = "cloud")]
mod start;
#[cfg(feature = "streams")]
mod streams;
#[path = "../support/mod.rs"]
mod support;
mod watched;

use std::process::ExitCode;

use figure::{Figure, Report};
use rig::Rig;
use support::guard;

/// Figures that are measured together.
struct Group {
    names: &'static [&'static str],
    run: fn(&Rig) -> Vec<Figure>,
}

const GROUPS: &[Group] = &[
    Group { names: pods::ONE, run: pods::one },
    Group { names: pods::THIRTY, run: pods::thirty },
    Group { names: pods::COLD, run: pods::cold },
    Group { names: shim::NAMES, run: shim::list },
    Group { names: memory::STEADY_NONE, run: memory::steady_none },
    Group { names: memory::STEADY_THIRTY, run: memory::steady_thirty },
    Group { names: memory::SIMULATED, run: memory::simulated },
    Group { names: memory::CHURN, run: memory::churn },
    Group { names: probes::CPU, run: probes::cpu },
    Group { names: probes::LATE, run: probes::late },
    Group { names: garbage::NAMES, run: garbage::stall },
    #[cfg(feature = "cloud")]
    Group { names: start::NAMES, run: start::first_call },
    #[cfg(feature = "cloud")]
    Group { names: cloud::MEMORY, run: cloud::memory },
    #[cfg(feature = "cloud")]
    Group { names: cloud::READY, run: cloud::ready },
    #[cfg(feature = "cloud")]
    Group { names: cloud::FLASH, run: cloud::flash },
    #[cfg(feature = "cloud")]
    Group { names: reboot::NAMES, run: reboot::offline },
    #[cfg(feature = "cloud")]
    Group { names: cloud_link::BACK, run: cloud_link::back },
    #[cfg(feature = "cloud")]
    Group { names: cloud_link::IDLE, run: cloud_link::idle },
    #[cfg(feature = "devices")]
    Group { names: devices::UPDATES, run: devices::updates },
    #[cfg(feature = "devices")]
    Group { names: devices::MEMORY, run: devices::memory },
    #[cfg(feature = "devices")]
    Group { names: devices::IDLE, run: devices::idle },
    #[cfg(feature = "devices")]
    Group { names: devices::FLASH, run: devices::flash },
    #[cfg(feature = "services")]
    Group { names: services::NAMES, run: services::names },
    #[cfg(feature = "services")]
    Group { names: services::SERVED, run: services::served },
    #[cfg(feature = "metaserver")]
    Group { names: metaserver::NAMES, run: metaserver::informers },
    #[cfg(feature = "streams")]
    Group { names: streams::LOG, run: streams::throughput },
    #[cfg(feature = "streams")]
    Group { names: streams::BESIDE, run: streams::beside },
    #[cfg(feature = "streams")]
    Group { names: streams::EXEC, run: streams::latency },
    #[cfg(feature = "streams")]
    Group { names: streams::MEMORY, run: streams::growth },
    #[cfg(feature = "runtime")]
    Group { names: runtime::TEN, run: runtime::ten },
    #[cfg(feature = "runtime")]
    Group { names: runtime::IDLE, run: runtime::idle },
    #[cfg(feature = "runtime")]
    Group { names: runtime::ONE, run: runtime::one },
    #[cfg(feature = "runtime")]
    Group { names: runtime::THIRTY, run: runtime::thirty },
    #[cfg(feature = "runtime")]
    Group { names: runtime::EXEC, run: runtime::command },
    #[cfg(feature = "runtime")]
    Group { names: runtime::RPC, run: runtime::version },
    #[cfg(feature = "runtime")]
    Group { names: runtime::LOGS, run: runtime::throughput },
    #[cfg(feature = "runtime")]
    Group { names: runtime::POWER, run: runtime::cut },
    #[cfg(feature = "runtime")]
    Group { names: runtime::IMPORT, run: runtime::import },
    #[cfg(feature = "controller")]
    Group { names: controller::NAMES, run: controller::load },
    Group { names: simulator::NAMES, run: simulator::speed },
];

fn main() -> ExitCode {
    #[cfg(feature = "controller")]
    if let Some(pki) = std::env::var_os(controller::tls::ALONE) {
        println!("{}", controller::tls::alone(pki.as_ref()));
        return ExitCode::SUCCESS;
    }
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let check = arguments.iter().any(|word| word == "--check");
    // Cargo itself passes --bench.
    let filters: Vec<&String> = arguments.iter().filter(|word| !word.starts_with("--")).collect();
    let wanted = |name: &str| filters.is_empty() || filters.iter().any(|f| name.contains(*f));
    #[cfg(feature = "runtime")]
    if GROUPS
        .iter()
        .flat_map(|group| group.names)
        .any(|it| it.starts_with("runtime.") && wanted(it))
    {
        runtime::aside();
    }
    guard::install();
    let missing = support::missing();
    if !missing.is_empty() {
        for what in &missing {
            eprintln!("bench: missing {what}");
        }
        return ExitCode::FAILURE;
    }
    let report = guard::guarded(|| measure(&wanted));
    print!("{}", report.table());
    let path = support::top().join("target/bench.json");
    if let Err(error) = std::fs::write(&path, report.json()) {
        eprintln!("bench: {}: {error}", path.display());
        return ExitCode::FAILURE;
    }
    eprintln!("bench: written to {}", path.display());
    if report.is_empty() || (check && !report.passes()) {
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

fn measure(wanted: &dyn Fn(&str) -> bool) -> Report {
    let rig = Rig::new();
    let mut report = Report::default();
    for group in GROUPS.iter().filter(|group| group.names.iter().any(|name| wanted(name))) {
        eprintln!("bench: {}  (load {})", group.names.join(" "), rig::load());
        report.add((group.run)(&rig).into_iter().filter(|figure| wanted(figure.name)));
    }
    report
}
