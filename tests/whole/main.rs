//! System tests: the real binary against a real containerd, with real pods.
//!
//! ```text
//! cargo test --test whole [-- FILTER...] [--list]
//! ```
//!
//! The tests run in three lanes in parallel ([`lanes`]). In each, one private containerd serves
//! nearly all tests, one after another; each test has its own folders, its own port and its own
//! agents, and its objects in the runtime are removed before the next one. Nothing is skipped: if
//! root, containerd, runc or the CNI plugins are missing, the run reports that and fails. Tests
//! poll for facts with a timeout; no test proves anything by sleeping, and none by being quick.
#![allow(clippy::disallowed_methods, reason = "real processes need real time")]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a runner prints what it does")]

mod api;
mod broken;
#[cfg(feature = "runtime")]
mod builtin;
mod cgroups;
mod changes;
mod cli;
#[cfg(feature = "cloud")]
mod cloud;
#[cfg(feature = "controller")]
mod controller;
#[cfg(all(feature = "controller", feature = "devices"))]
mod controller_devices;
#[cfg(all(feature = "controller", feature = "node-jobs"))]
mod controller_jobs;
#[cfg(feature = "controller")]
mod controller_kills;
#[cfg(all(feature = "controller", feature = "metaserver"))]
mod controller_metaserver;
#[cfg(all(feature = "controller", feature = "servicebus"))]
mod controller_router;
mod crashes;
#[cfg(feature = "controller")]
mod demo;
#[cfg(feature = "devices")]
mod devices;
#[cfg(all(feature = "devices", feature = "metaserver"))]
mod devices_edited;
#[cfg(feature = "cloud")]
mod disk;
mod ends;
mod eviction;
#[cfg(feature = "runtime")]
mod fail_points;
#[path = "../bench/fake/mod.rs"]
#[allow(dead_code, reason = "the benchmarks use the rest")]
mod fake;
#[cfg(feature = "runtime")]
mod full;
mod garbage;
#[cfg(feature = "controller")]
mod hostile;
mod images;
#[cfg(all(feature = "metaserver", feature = "streams"))]
mod keadm_ctl;
mod lanes;
mod memory;
#[cfg(feature = "metaserver")]
mod metaserver;
#[cfg(all(feature = "controller", feature = "node-jobs"))]
mod node_upgrade;
#[cfg(feature = "controller")]
mod page;
#[cfg(feature = "streams")]
mod people;
mod registry;
mod runtime;
#[cfg(feature = "servicebus")]
mod servicebus;
#[cfg(feature = "services")]
mod services;
mod starts;
mod storage;
#[path = "../support/mod.rs"]
mod support;
mod volumes;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use support::agent::Site;
use support::containerd::Containerd;
use support::{containerd, guard, process, verdict, wait};

/// The environment of every test.
pub struct World {
    containerd: Containerd,
    dir: PathBuf,
}

impl World {
    /// A site for a test: its folders and its port.
    pub fn site(&self, name: &str) -> Site {
        Site::new(self.dir.join(name), self.containerd.socket())
    }

    /// A folder for a test that brings its own runtime.
    pub fn folder(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// The shared runtime's socket.
    pub fn socket(&self) -> PathBuf {
        self.containerd.socket()
    }
}

/// A test: its name, and its function.
struct Test {
    name: &'static str,
    run: fn(&World),
}

/// Lists functions as tests under their own names.
#[macro_export]
macro_rules! tests {
    ($($(#[$when:meta])* $name:ident),* $(,)?) => {
        /// The tests of this module.
        pub(crate) const TESTS: &[(&str, fn(&$crate::World))] = &[
            $($(#[$when])* (concat!(module_path!(), "::", stringify!($name)), $name)),*
        ];
    };
}

/// The time limit of a test: several times what the longest needs, plus `SOAK_S`.
fn deadline() -> Duration {
    let soak = std::env::var("SOAK_S").ok().and_then(|text| text.parse().ok()).unwrap_or(0);
    Duration::from_secs(240 + soak)
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let filters: Vec<&String> = arguments.iter().filter(|word| !word.starts_with('-')).collect();
    let wanted = |test: &Test| filters.is_empty() || filters.iter().any(|f| test.name.contains(*f));
    let tests: Vec<Test> = all().into_iter().filter(wanted).filter(is_for_this_runtime).collect();
    if arguments.iter().any(|word| word == "--list") {
        for test in &tests {
            println!("{}: test", test.name);
        }
        return ExitCode::SUCCESS;
    }
    guard::install();
    let missing = support::missing();
    for what in &missing {
        println!("whole: missing {what}");
    }
    if !missing.is_empty() {
        println!("0 passed, {} failed", tests.len().max(1));
        return ExitCode::FAILURE;
    }
    verdict::note_panics();
    let lanes = lanes::count(tests.len());
    let passed = if arguments.iter().any(|word| word == lanes::LANE) {
        all_pass(&tests, lanes::Queue::from_stdin())
    } else if lanes > 1 {
        guard::guarded(|| lanes::run(lanes, tests.len(), &arguments))
    } else {
        all_pass(&tests, 0..tests.len())
    };
    // A filter that matches nothing is a mistake, not a success.
    if passed && !tests.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs the tests of these numbers in this process, and reports failures at the end.
fn all_pass(tests: &[Test], numbers: impl Iterator<Item = usize>) -> bool {
    let (passed, failed) = guard::guarded(|| run(tests, numbers));
    verdict::sum_up(passed, &failed);
    failed.is_empty()
}

/// Tests of what only containerd has or does. They do not run on the built-in runtime; what they
/// show is shown for it by another test, in `builtin` or `fail_points`.
const OF_CONTAINERD: [(&str, &str); 4] = [
    (
        "crashes::a_killed_sandbox_is_replaced_and_its_init",
        "builtin::a_pod_whose_process_namespace_is_gone_runs_again",
    ),
    (
        "crashes::what_is_gone_behind_the_runtimes_back",
        "builtin::what_an_oci_runtime_has_deleted_is_begun_anew_and_removed_once",
    ),
    (
        "ends::a_container_is_removed_though_a_cancelled_start",
        "fail_points::an_oci_runtime_that_is_killed_at_any_call_leaves_what_can_be_removed",
    ),
    (
        "runtime::what_stops_the_runtime_removes_the_sockets",
        "builtin::what_stops_the_runtime_leaves_no_process_and_no_mount",
    ),
];

/// Whether it is for the runtime that `RUNTIME` names; says so, if not.
fn is_for_this_runtime(test: &Test) -> bool {
    let is_it = |(name, _): &&(&str, &str)| test.name.contains(name);
    match OF_CONTAINERD.iter().find(is_it) {
        Some((_, other)) if containerd::kind() == containerd::Kind::Builtin => {
            println!("{} ... of containerd alone; here whole::{other}", test.name);
            false
        }
        _ => true,
    }
}

/// The longest first, so that no lane begins one when the others are done.
fn all() -> Vec<Test> {
    [
        eviction::TESTS,
        memory::TESTS,
        #[cfg(all(feature = "controller", feature = "devices"))]
        controller_devices::TESTS,
        #[cfg(feature = "metaserver")]
        metaserver::TESTS,
        #[cfg(all(feature = "metaserver", feature = "streams"))]
        keadm_ctl::TESTS,
        #[cfg(all(feature = "controller", feature = "metaserver"))]
        controller_metaserver::TESTS,
        #[cfg(all(feature = "controller", feature = "node-jobs"))]
        node_upgrade::TESTS,
        #[cfg(all(feature = "controller", feature = "node-jobs"))]
        controller_jobs::TESTS,
        #[cfg(all(feature = "controller", feature = "servicebus"))]
        controller_router::TESTS,
        #[cfg(feature = "controller")]
        controller_kills::TESTS,
        #[cfg(feature = "controller")]
        controller::TESTS,
        #[cfg(feature = "controller")]
        demo::TESTS,
        #[cfg(feature = "controller")]
        page::TESTS,
        garbage::TESTS,
        #[cfg(feature = "runtime")]
        builtin::TESTS,
        #[cfg(feature = "runtime")]
        fail_points::TESTS,
        #[cfg(feature = "runtime")]
        full::TESTS,
        #[cfg(feature = "devices")]
        devices::TESTS,
        #[cfg(all(feature = "devices", feature = "metaserver"))]
        devices_edited::TESTS,
        registry::TESTS,
        crashes::TESTS,
        ends::TESTS,
        images::TESTS,
        starts::TESTS,
        volumes::TESTS,
        storage::TESTS,
        cgroups::TESTS,
        changes::TESTS,
        broken::TESTS,
        #[cfg(feature = "streams")]
        people::TESTS,
        api::TESTS,
        #[cfg(feature = "cloud")]
        cloud::TESTS,
        #[cfg(feature = "cloud")]
        disk::TESTS,
        #[cfg(feature = "servicebus")]
        servicebus::TESTS,
        #[cfg(feature = "services")]
        services::TESTS,
        #[cfg(feature = "controller")]
        hostile::TESTS,
        cli::TESTS,
        runtime::TESTS,
    ]
    .into_iter()
    .flatten()
    .map(|&(name, run)| Test { name, run })
    .collect()
}

/// Runs them one by one; returns how many passed, and which failed and why.
fn run(tests: &[Test], numbers: impl Iterator<Item = usize>) -> (usize, Vec<(String, String)>) {
    let dir = support::scratch("whole");
    let world = World { containerd: Containerd::start(dir.join("c")), dir };
    let mut passed = 0;
    let mut failed = Vec::new();
    for test in numbers.map(|number| &tests[number]) {
        let begun = Instant::now();
        let result = attempt(test, &world);
        let took = begun.elapsed().as_secs_f64();
        match result {
            Ok(()) => {
                println!("{} ... ok ({took:.1} s)", test.name);
                passed += 1;
            }
            Err(why) => {
                println!("{} ... FAILED ({took:.1} s)\n{why}\n", test.name);
                failed.push((test.name.to_owned(), why));
            }
        }
        tidy_up(&world);
    }
    (passed, failed)
}

/// Runs a test in its own thread, so that a hanging test can be detected.
fn attempt(test: &Test, world: &World) -> Result<(), String> {
    std::thread::scope(|scope| {
        let (done, result) = mpsc::channel();
        scope.spawn(move || {
            let ended = catch_unwind(AssertUnwindSafe(|| (test.run)(world)));
            let _ = done.send(ended.map_err(|panic| verdict::why(&*panic)));
        });
        if let Ok(result) = result.recv_timeout(deadline()) {
            return result;
        }
        // All waiting ends now, and so does the test.
        wait::abandon(true);
        for pid in guard::processes() {
            process::signal(pid, nix::sys::signal::Signal::SIGKILL);
        }
        let Ok(result) = result.recv_timeout(Duration::from_secs(90)) else {
            println!("{} ... FAILED: hangs beyond its deadline; the run ends here", test.name);
            guard::clean();
            std::process::exit(1);
        };
        wait::abandon(false);
        let why = result.err().unwrap_or_default();
        Err(format!("met its deadline of {:?}\n{why}", deadline()))
    })
}

/// The leftovers of a test must not disturb the next one, least of all a dead runtime.
fn tidy_up(world: &World) {
    let tidied = catch_unwind(AssertUnwindSafe(|| {
        world.containerd.start_daemon();
        support::runtime_state::wipe(&world.socket());
    }));
    if let Err(panic) = tidied {
        println!("whole: cannot tidy up: {}", verdict::why(&*panic));
    }
}
