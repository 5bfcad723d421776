//! The upstream conformance tests that concern one node, each as an equivalent test of the real
//! agent on a real containerd. Writes what it found to `tests/conformance.md`.
//!
//! ```text
//! cargo test --test conformance [-- FILTER...] [--list]
//! ```
//!
//! One agent and one containerd serve all cases, several of them side by side: each has pods of its
//! own name, as on a node. A case that is not here fails the run as long as [`upstream`] names it
//! and [`aside`] does not say why it cannot be. Only a whole run writes the table; the run fails if
//! that changes what is committed, so that the table is never older than the agent.
#![allow(clippy::disallowed_methods, reason = "real processes live in real time")]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a runner tells what it does")]

mod aside;
mod case;
mod classes;
mod containers;
mod hooks;
mod images;
mod init_containers;
mod networking;
mod pods;
mod probes;
mod security;
mod table;
mod upstream;
mod volume_downward;
mod volume_files;
mod volumes;
#[path = "../yard/mod.rs"]
mod yard;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, mpsc};
use std::time::{Duration, Instant};

use case::{Case, Node};
use yard::{guard, verdict};

/// An upstream test by its area and name, and what stands for it here.
pub(crate) type Row = (&'static str, &'static str, fn(&Case<'_>));

/// What a whole run found, by area and name.
pub(crate) type Results = BTreeMap<(&'static str, &'static str), Result<(), String>>;

/// Cases side by side: nearly all of them only wait.
const SIDE_BY_SIDE: usize = 6;

/// A case may take this long before the run is given up: several times what the longest needs.
const DEADLINE: Duration = Duration::from_secs(400);

fn rows() -> Vec<Row> {
    [
        pods::ROWS,
        classes::ROWS,
        containers::ROWS,
        security::ROWS,
        init_containers::ROWS,
        networking::ROWS,
        probes::ROWS,
        hooks::ROWS,
        images::ROWS,
        volumes::ROWS,
        volume_files::ROWS,
        volume_downward::ROWS,
    ]
    .concat()
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let filters: Vec<&String> = arguments.iter().filter(|word| !word.starts_with('-')).collect();
    let wanted = |(area, name, _): &Row| {
        let whole = format!("{area}: {name}");
        filters.is_empty() || filters.iter().any(|filter| whole.contains(*filter))
    };
    let all = rows();
    table::assert_known(&all);
    let chosen: Vec<Row> = all.into_iter().filter(wanted).collect();
    if arguments.iter().any(|word| word == "--list") {
        for (area, name, _) in &chosen {
            println!("{area}: {name}: test");
        }
        return ExitCode::SUCCESS;
    }
    guard::install();
    let missing = yard::missing();
    for what in &missing {
        println!("conformance: missing {what}");
    }
    if !missing.is_empty() || chosen.is_empty() {
        println!("0 passed, {} failed", chosen.len().max(1));
        return ExitCode::FAILURE;
    }
    verdict::note_panics();
    let results = guard::guarded(|| run(&chosen));
    let failed: Vec<_> = results.iter().filter_map(failure).collect();
    verdict::sum_up(results.len() - failed.len(), &failed);
    let table_stands = !filters.is_empty() || table::write(&results);
    if failed.is_empty() && table_stands { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The name of a case that failed, and why.
fn failure(
    (&(area, name), result): (&(&str, &str), &Result<(), String>),
) -> Option<(String, String)> {
    let why = result.as_ref().err()?;
    Some((format!("{area}: {name}"), why.clone()))
}

fn run(rows: &[Row]) -> Results {
    let node = Node::new();
    let agent = node.site.start();
    agent.wait_listening();
    let results = Mutex::new(Results::new());
    let turn = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..SIDE_BY_SIDE {
            scope.spawn(|| {
                while let Some(row) = rows.get(turn.fetch_add(1, Ordering::SeqCst)) {
                    let result = attempt(&node, row);
                    results.lock().expect("nobody panics with it").insert((row.0, row.1), result);
                }
            });
        }
    });
    // A case that leaves something behind has not passed; which one, its pods' names tell.
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| node.site.wait_empty())) {
        let left = ("the run", "leaves nothing behind");
        results.lock().expect("all threads are joined").insert(left, Err(verdict::why(&*panic)));
    }
    drop(agent);
    results.into_inner().expect("all threads are joined")
}

/// One case in a thread of its own, so that one that hangs can be told from one that works.
fn attempt(node: &Node, &(area, name, run): &Row) -> Result<(), String> {
    let begun = Instant::now();
    let result = std::thread::scope(|scope| {
        let (done, result) = mpsc::channel();
        scope.spawn(move || {
            let case = node.case();
            let ended = catch_unwind(AssertUnwindSafe(|| run(&case)));
            case.end();
            let _ = done.send(ended.map_err(|panic| verdict::why(&*panic)));
        });
        result.recv_timeout(DEADLINE).unwrap_or_else(|_| {
            println!("{area}: {name} ... FAILED: hangs beyond {DEADLINE:?}; the run ends here");
            guard::clean();
            std::process::exit(1);
        })
    });
    let took = begun.elapsed().as_secs_f64();
    match &result {
        Ok(()) => println!("{area}: {name} ... ok ({took:.1} s)"),
        Err(why) => println!("{area}: {name} ... FAILED ({took:.1} s)\n{why}\n"),
    }
    result
}
