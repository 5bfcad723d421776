//! Runs the programs with one mutant active each, until one of them fails.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use crate::points::Mutant;

/// A mutant that takes more memory than this, KiB, is caught.
const MEMORY_MAX_KIB: u32 = 6_000_000;
/// A mutant is caught whose test is silent for longer than this beyond the slowest test.
const SILENT_MAX: Duration = Duration::from_secs(20);
/// The shortest limit for all seeds of the simulator.
const SIMULATOR_MAX: Duration = Duration::from_secs(300);
/// This many tests that caught mutants of the same file run first.
const KEEN_MAX: usize = 4;
/// Tests that together take this long run next, and then those that take four times as long.
const FIRST: Duration = Duration::from_millis(200);

/// The result of a mutant.
#[derive(Clone, PartialEq, Eq)]
pub enum Verdict {
    /// No test reaches it.
    Unreached,
    /// By what: a level, and its test or rule.
    Caught(&'static str, String),
    Survived,
}

/// A level of tests.
pub enum Level {
    Tests(Tests),
    Simulator(Simulator),
}

impl Level {
    pub fn judge(&mut self, mutant: &Mutant) -> Verdict {
        match self {
            Self::Tests(tests) => tests.judge(mutant),
            Self::Simulator(simulator) => simulator.judge(mutant),
        }
    }
}

/// A test program.
pub struct Tests {
    name: &'static str,
    tree: PathBuf,
    program: PathBuf,
    /// By mutant, the tests that reach it.
    reached: BTreeMap<u32, Vec<usize>>,
    /// Names, with durations; the longest come last.
    tests: Vec<(String, Duration)>,
    /// By file, the tests that caught its mutants, the latest first.
    keen: BTreeMap<usize, Vec<usize>>,
}

/// A simulator, which reaches most, and takes longest.
pub struct Simulator {
    name: &'static str,
    tree: PathBuf,
    program: PathBuf,
    seeds: u64,
    reached: BTreeSet<u32>,
    /// Duration of all seeds.
    takes: Duration,
}

enum End {
    Passed,
    Failed(String),
}

impl Tests {
    /// Runs all tests once without a mutant.
    pub fn record(
        name: &'static str,
        (tree, scratch): (&Path, &Path),
        program: PathBuf,
        filter: &[&str],
    ) -> Result<Self, String> {
        let mut command = Command::new(&program);
        command.args(filter).args(["--test-threads", "2"]);
        let file = record((tree, scratch), name, &program, ("each", command))?;
        let mut all: Vec<(Duration, String, Vec<u32>)> = Vec::new();
        for line in fs::read_to_string(&file).unwrap_or_default().lines() {
            let [test, ms, ids] = line.split('\t').collect::<Vec<_>>()[..] else {
                return Err(format!("{}: got {line:?}", file.display()));
            };
            // Code of the harness or of a test's thread cannot be selected alone.
            if test.is_empty() || test == "main" {
                continue;
            }
            let number = |id: &str| id.parse().expect("a number");
            let ids = ids.split_terminator(',').map(number).collect();
            all.push((Duration::from_millis(u64::from(number(ms))), test.into(), ids));
        }
        all.sort();
        let mut reached: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
        for (at, (.., ids)) in all.iter().enumerate() {
            ids.iter().for_each(|id| reached.entry(*id).or_default().push(at));
        }
        let tests = all.into_iter().map(|(takes, test, _)| (test, takes)).collect();
        let (tree, keen) = (tree.into(), BTreeMap::new());
        Ok(Self { name, tree, program, reached, tests, keen })
    }

    fn judge(&mut self, mutant: &Mutant) -> Verdict {
        let Some(tests) = self.reached.get(&mutant.id) else { return Verdict::Unreached };
        let keen = self.keen.entry(mutant.file).or_default();
        let first: Vec<usize> =
            keen.iter().copied().filter(|it| tests.contains(it)).take(KEEN_MAX).collect();
        let rest: Vec<usize> = tests.iter().copied().filter(|it| !first.contains(it)).collect();
        let mut rest = &rest[..];
        let mut takes_max = FIRST;
        let mut part = &first[..];
        loop {
            if !part.is_empty()
                && let End::Failed(by) = self.ask(part, mutant.id)
            {
                if let Some(at) = self.tests.iter().position(|(test, _)| *test == by) {
                    let keen = self.keen.get_mut(&mutant.file).expect("made above");
                    keen.retain(|it| *it != at);
                    keen.insert(0, at);
                }
                return Verdict::Caught(self.name, by);
            }
            if rest.is_empty() {
                return Verdict::Survived;
            }
            let mut sum = Duration::ZERO;
            let takes = |test: &&usize| {
                sum += self.tests[**test].1;
                sum <= takes_max
            };
            let count = rest.iter().take_while(takes).count().max(1);
            (part, rest) = rest.split_at(count);
            takes_max *= 4;
        }
    }

    fn ask(&self, tests: &[usize], id: u32) -> End {
        let names = tests.iter().map(|test| &*self.tests[*test].0);
        let slowest = tests.iter().map(|test| self.tests[*test].1).max().unwrap_or_default();
        let mut words = vec!["--test-threads=1", "--exact"];
        words.extend(names);
        let child = start(&self.tree, &self.program, &words, id);
        let is_end = |line: &str| {
            let rest = line.strip_prefix("test ")?;
            let name = rest.strip_suffix(" ... FAILED")?;
            Some(name.trim_end_matches(" - should panic").to_owned())
        };
        watch(child, SILENT_MAX + 10 * slowest, SILENT_MAX * 30, is_end)
    }
}

impl Simulator {
    /// Runs all seeds once without a mutant.
    pub fn record(
        name: &'static str,
        (tree, scratch): (&Path, &Path),
        program: PathBuf,
        seeds: u64,
    ) -> Result<Self, String> {
        let mut command = Command::new(&program);
        command.args(["1", &seeds.to_string()]);
        let before = Instant::now();
        let run = format!("{name}-{seeds}-seeds");
        let file = record((tree, scratch), &run, &program, ("all", command))?;
        let takes = before.elapsed();
        let reached = fs::read_to_string(&file).unwrap_or_default();
        let reached = reached.lines().map(|id| id.parse().expect("a number")).collect();
        Ok(Self { name, tree: tree.into(), program, seeds, reached, takes })
    }

    fn judge(&self, mutant: &Mutant) -> Verdict {
        if !self.reached.contains(&mutant.id) {
            return Verdict::Unreached;
        }
        let seeds = self.seeds.to_string();
        let child = start(&self.tree, &self.program, &["1", &seeds], mutant.id);
        let is_end = |line: &str| {
            let what = line.strip_prefix("violated: ")?;
            Some(what.split(" times, first").next().unwrap_or(what).to_owned())
        };
        let most = SIMULATOR_MAX.max(5 * self.takes);
        match watch(child, most, most, is_end) {
            End::Failed(by) => Verdict::Caught(self.name, by),
            End::Passed => Verdict::Survived,
        }
    }
}

/// Runs a program without a mutant: a test that fails then would catch everything. Returns the file
/// with the mutants that each test reaches; the file of an earlier run of the same program serves
/// as well.
fn record(
    (tree, scratch): (&Path, &Path),
    name: &str,
    program: &Path,
    (mode, mut command): (&str, Command),
) -> Result<PathBuf, String> {
    let file = scratch.join(format!("reached-{name}"));
    let changed = |path: &Path| fs::metadata(path).and_then(|about| about.modified());
    let built = changed(program).map_err(|e| format!("{}: {e}", program.display()))?;
    if changed(&file).is_ok_and(|at| at > built) {
        return Ok(file);
    }
    let unfinished = file.with_extension("unfinished");
    let _ = fs::remove_file(&unfinished);
    let before = Instant::now();
    command.current_dir(tree).env("MUTANT", format!("{mode}:{}", unfinished.display()));
    let done = command.output().map_err(|e| e.to_string())?;
    if !done.status.success() {
        let out = String::from_utf8_lossy(&done.stdout);
        return Err(format!("without a mutant, {name} fail: {out}"));
    }
    println!("{name}: {:.1} s without a mutant", before.elapsed().as_secs_f64());
    fs::rename(&unfinished, &file).map_err(|e| format!("{}: {e}", file.display()))?;
    Ok(file)
}

fn start(tree: &Path, program: &Path, words: &[&str], id: u32) -> Child {
    Command::new("sh")
        .arg("-c")
        .arg(format!("ulimit -v {MEMORY_MAX_KIB}; exec \"$0\" \"$@\""))
        .arg(program)
        .args(words)
        .current_dir(tree)
        .env("MUTANT", id.to_string())
        .env("SIM_FAILURES", "1")
        .env("RUST_BACKTRACE", "0")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("sh can be started")
}

/// Reads a program's lines until one reports a failure, it ends, or is silent too long.
fn watch(
    mut child: Child,
    silent_max: Duration,
    all_max: Duration,
    is_end: impl Fn(&str) -> Option<String>,
) -> End {
    let lines = lines_of(child.stdout.take().expect("it is piped"));
    let until = Instant::now() + all_max;
    let end = loop {
        let left = until.saturating_duration_since(Instant::now());
        match lines.recv_timeout(silent_max.min(left)) {
            Ok(line) => {
                if let Some(by) = is_end(&line) {
                    break End::Failed(by);
                }
            }
            Err(RecvTimeoutError::Timeout) => break End::Failed("no end".into()),
            Err(RecvTimeoutError::Disconnected) => {
                let status = child.wait().expect("it was started");
                if status.success() {
                    break End::Passed;
                }
                break End::Failed(format!("{status}"));
            }
        }
    };
    let _ = child.kill();
    let _ = child.wait();
    end
}

fn lines_of(out: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, lines) = channel();
    std::thread::spawn(move || {
        let mut out = BufReader::new(out);
        let mut line = Vec::new();
        while out.read_until(b'\n', &mut line).is_ok_and(|len| len > 0) {
            let text = String::from_utf8_lossy(&line).trim_end().to_owned();
            if sender.send(text).is_err() {
                return;
            }
            line.clear();
        }
    });
    lines
}
