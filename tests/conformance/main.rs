//! The upstream conformance tests that concern one node, each as an equivalent test of the real
//! agent on a real containerd. Writes the results to `tests/conformance.md`; where
//! `RUNTIME=builtin`, on the built-in runtime, to `tests/conformance-builtin.md`.
//!
//! ```text
//! cargo test --test conformance [-- FILTER...] [--common] [--list]
//! ```
//!
//! `--common` leaves out the tests of `test/e2e_node`, which need twice as long: `make test` runs
//! the others, `make conformance` all of them, including those that need the feature `probe-https`:
//! without it they count as excluded.
//!
//! One agent and one runtime serve most cases, several of them in parallel: each has pods of its
//! own name, as on a node. Cases that only observe for minutes have a thread each. A second node
//! runs beside that one, for cases that need other settings or a restart of the agent ([`Lane`]).
//! A test that [`upstream`] lists fails every run unless there is a case for it or a class in
//! [`exclusions`] with the reason. Only a whole run writes the table; the run fails if the table
//! differs from the committed one, so that it is never older than the agent.
#![allow(clippy::disallowed_methods, reason = "real processes need real time")]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a runner prints what it does")]

mod case;
mod classes;
mod containers;
mod exclusions;
mod hooks;
mod images;
mod init_containers;
mod lifecycle;
mod networking;
mod node_files;
mod node_kernel;
mod pod_status;
mod pods;
mod probe_servers;
mod probes;
mod restarts;
mod security;
mod special;
#[cfg(feature = "streams")]
mod streams;
#[path = "../support/mod.rs"]
mod support;
mod table;
mod upstream;
mod volume_downward;
mod volume_files;
mod volumes;
mod wave;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, mpsc};
use std::time::{Duration, Instant};

use case::{Case, Node};
use support::{guard, verdict};

/// A case in a module's list: the upstream test by its area and name, and its function.
pub(crate) type Entry = (&'static str, &'static str, fn(&Case<'_>));

/// A case of the runner.
pub(crate) struct Row {
    /// The upstream test's area.
    pub(crate) area: &'static str,
    /// Its name.
    pub(crate) name: Cow<'static, str>,
    lane: Lane,
    run: Box<dyn Fn(&Case<'_>) + Send + Sync>,
}

/// How a case runs in parallel with others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lane {
    /// In order, [`SIDE_BY_SIDE`] at a time.
    Turn,
    /// From the beginning, with all of this kind: it only observes for minutes.
    Watch,
    /// On the node with other settings, from the beginning.
    Special,
    /// The same, and its agent restarts when all of this kind are ready for that.
    Wave,
    /// There, after the others.
    Last,
    /// On a separate node, on which images age.
    Ageing,
}

impl Lane {
    fn is_common(self) -> bool {
        matches!(self, Lane::Turn | Lane::Watch)
    }
}

impl Row {
    /// A case with a composed name.
    pub(crate) fn new(
        area: &'static str,
        name: impl Into<Cow<'static, str>>,
        run: impl Fn(&Case<'_>) + Send + Sync + 'static,
    ) -> Row {
        Row { area, name: name.into(), lane: Lane::Turn, run: Box::new(run) }
    }
}

/// The results of a whole run, by area and name.
pub(crate) type Results = BTreeMap<(String, String), Result<(), String>>;

/// The settings of the common node that differ from the defaults: cases take minutes instead of
/// hours.
const COMMON: &str = "      crashLoopBackOff: {maxContainerRestartPeriod: 20s}\n";

/// Cases in parallel: nearly all of them only wait.
const SIDE_BY_SIDE: usize = 10;

/// Between the starts of cases that wait for long: all at once would delay each other's start.
const BETWEEN_STARTS: Duration = Duration::from_millis(1_200);

/// The time limit of a case, after which the run is given up: several times what the longest needs.
const DEADLINE: Duration = Duration::from_secs(900);

fn rows() -> Vec<Row> {
    let lists = [
        pods::ROWS,
        #[cfg(feature = "streams")]
        streams::ROWS,
        pod_status::ROWS,
        classes::ROWS,
        containers::ROWS,
        security::ROWS,
        init_containers::ROWS,
        networking::ROWS,
        node_files::ROWS,
        node_kernel::ROWS,
        node_kernel::of_runtime(),
        probes::ROWS,
        hooks::ROWS,
        images::ROWS,
        volumes::ROWS,
        volume_files::ROWS,
        volume_downward::ROWS,
    ];
    let watches = [probes::WATCHES, volume_files::WATCHES, node_files::WATCHES].concat();
    let special = [special::ROWS, images::SPECIAL].concat();
    let wave = [restarts::WAVE, images::WAVE].concat();
    let lanes = [
        (Lane::Turn, lists.concat()),
        (Lane::Watch, watches),
        (Lane::Special, special),
        (Lane::Wave, wave),
        (Lane::Last, special::LAST.to_vec()),
        (Lane::Ageing, special::AGEING.to_vec()),
    ];
    let listed = lanes.into_iter().flat_map(|(lane, entries)| {
        let row = move |(area, name, run)| Row { lane, ..Row::new(area, name, run) };
        entries.into_iter().map(row)
    });
    // The longest come first, so that none of them runs alone at the end.
    lifecycle::rows().into_iter().chain(listed).collect()
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let filters: Vec<&String> = arguments.iter().filter(|word| !word.starts_with('-')).collect();
    let is_common = arguments.iter().any(|word| word == "--common");
    let node_suite: BTreeSet<(&str, &str)> = upstream::specs()
        .iter()
        .filter(|spec| is_common && spec.of_node_suite)
        .map(|spec| (spec.area, spec.name))
        .collect();
    let wanted = |row: &Row| {
        if node_suite.contains(&(row.area, &*row.name)) {
            return false;
        }
        let whole = format!("{}: {}", row.area, row.name);
        filters.is_empty() || filters.iter().any(|filter| whole.contains(*filter))
    };
    let all = rows();
    let mistakes = table::mistakes(&all);
    for mistake in &mistakes {
        println!("conformance: {mistake}");
    }
    let chosen: Vec<Row> = all.into_iter().filter(wanted).collect();
    if arguments.iter().any(|word| word == "--list") {
        for row in &chosen {
            println!("{}: {}: test", row.area, row.name);
        }
        return ExitCode::SUCCESS;
    }
    guard::install();
    let missing = support::missing();
    for what in &missing {
        println!("conformance: missing {what}");
    }
    if !missing.is_empty() || chosen.is_empty() {
        println!("0 passed, {} failed", chosen.len().max(1));
        return ExitCode::FAILURE;
    }
    verdict::note_panics();
    let results = guard::guarded(|| run(&chosen));
    let failed = table::surprises(&results);
    verdict::sum_up(results.len() - failed.len(), &failed);
    let complete = mistakes.is_empty();
    let is_whole = filters.is_empty() && !is_common;
    let table_stands = !is_whole || complete && table::write(&results);
    if complete && failed.is_empty() && table_stands {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn run(rows: &[Row]) -> Results {
    let results = Mutex::new(Results::new());
    let (ageing, others): (Vec<&Row>, _) = rows.iter().partition(|row| row.lane == Lane::Ageing);
    let (common, special): (Vec<&Row>, _) =
        others.into_iter().partition(|row| row.lane.is_common());
    std::thread::scope(|scope| {
        if !ageing.is_empty() {
            scope.spawn(|| run_ageing(&ageing, &results));
        }
        if !common.is_empty() {
            scope.spawn(|| run_common(&common, &results));
        }
        if !special.is_empty() {
            scope.spawn(|| run_special(&special, &results));
        }
    });
    results.into_inner().expect("all threads are joined")
}

fn work(node: &Node, row: &Row, results: &Mutex<Results>) {
    let result = attempt(node, row);
    let key = (row.area.to_owned(), row.name.to_string());
    results.lock().expect("no thread panics with it").insert(key, result);
}

/// Runs the cases of the common node.
fn run_common(rows: &[&Row], results: &Mutex<Results>) {
    let node = Node::new("common", COMMON);
    let agent = node.site.start();
    agent.wait_listening();
    let turns: Vec<_> = rows.iter().filter(|row| row.lane == Lane::Turn).collect();
    let turn = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        let mut delay = Duration::ZERO;
        for row in rows.iter().filter(|row| row.lane == Lane::Watch) {
            let node = &node;
            scope.spawn(move || {
                std::thread::sleep(delay);
                work(node, row, results);
            });
            delay += BETWEEN_STARTS;
        }
        for _ in 0..SIDE_BY_SIDE {
            scope.spawn(|| {
                while let Some(row) = turns.get(turn.fetch_add(1, Ordering::SeqCst)) {
                    work(&node, row, results);
                }
            });
        }
    });
    wait_empty(&node, "the common node", results);
    drop(agent);
}

/// Runs the cases of the node with other settings, whose agent restarts.
fn run_special(rows: &[&Row], results: &Mutex<Results>) {
    let node = Node::new("special", special::SETTINGS);
    let agent = node.site.start();
    agent.wait_listening();
    let of = |lane: Lane| rows.iter().filter(move |row| row.lane == lane);
    node.wave.expect(of(Lane::Wave).count());
    let _agent = std::thread::scope(|scope| {
        let mut delay = Duration::ZERO;
        for row in of(Lane::Wave).chain(of(Lane::Special)) {
            let node = &node;
            scope.spawn(move || {
                std::thread::sleep(delay);
                work(node, row, results);
            });
            delay += BETWEEN_STARTS;
        }
        node.wave.restart(&node, agent)
    });
    for row in of(Lane::Last) {
        work(&node, row, results);
    }
    wait_empty(&node, "the special node", results);
}

/// Runs the cases of the node on which unused images are removed.
fn run_ageing(rows: &[&Row], results: &Mutex<Results>) {
    let node = Node::new("ageing", special::AGED);
    let _agent = node.site.start();
    std::thread::scope(|scope| {
        for row in rows {
            scope.spawn(|| work(&node, row, results));
        }
    });
}

/// A case that leaves something behind has failed; the names of its pods show which one.
fn wait_empty(node: &Node, which: &str, results: &Mutex<Results>) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| node.site.wait_empty())) {
        let left = (which.to_owned(), "leaves nothing behind".to_owned());
        results.lock().expect("no thread panics with it").insert(left, Err(verdict::why(&*panic)));
    }
}

/// Runs a case in its own thread, so that a hanging case can be detected.
fn attempt(node: &Node, Row { area, name, lane, run }: &Row) -> Result<(), String> {
    let begun = Instant::now();
    let result = std::thread::scope(|scope| {
        let (done, result) = mpsc::channel();
        scope.spawn(move || {
            let case = node.case();
            let ended = catch_unwind(AssertUnwindSafe(|| run(&case)));
            case.end();
            if *lane == Lane::Wave {
                node.wave.leave(&case.name);
            }
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
