//! Runs the programs with one mutant active each, until one of them notices.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use crate::compile::Programs;

/// A mutant that takes more memory than this, KiB, has been noticed.
const MEMORY_MAX_KIB: u32 = 6_000_000;
/// And one whose test says nothing for so long beyond what the slowest test takes.
const SILENT_MAX: Duration = Duration::from_secs(20);

/// What became of a mutant.
#[derive(Clone, PartialEq, Eq)]
pub enum Verdict {
    /// No test comes by.
    Unreached,
    /// By what: a level, and its test or rule.
    Caught(&'static str, String),
    Survived,
}

/// Tests that know a mutant, of one program.
struct Level {
    name: &'static str,
    program: PathBuf,
    /// By mutant, which tests reach it.
    reached: BTreeMap<u32, Vec<usize>>,
    /// Names, and how long each takes.
    tests: Vec<(String, Duration)>,
}

/// All that can notice.
pub struct Run {
    tree: PathBuf,
    levels: Vec<Level>,
}

/// The simulator, which reaches most, and takes longest.
pub struct Simulator {
    tree: PathBuf,
    program: PathBuf,
    seeds: u64,
    reached: BTreeSet<u32>,
    /// How long all seeds take.
    takes: Duration,
}

enum End {
    Passed,
    Failed(String),
}

impl Run {
    /// Runs all once without a mutant, and keeps what reaches which of them.
    pub fn record(tree: &Path, scratch: &Path, programs: &Programs) -> Result<Self, String> {
        let mut levels = Vec::new();
        let cores = ["agent::", "controller::", "mind::"];
        for (name, program, filter) in [
            ("units", &programs.units, &cores[..]),
            ("stories", &programs.stories, &[]),
            ("controller", &programs.controller, &[]),
        ] {
            let file = scratch.join(format!("reached-{name}"));
            let _ = fs::remove_file(&file);
            let mut command = Command::new(program);
            command.args(filter).args(["--test-threads", "2"]);
            command.env("MUTANT", format!("each:{}", file.display()));
            baseline(tree, name, command)?;
            levels.push(Level::read(name, program, &file));
        }
        Ok(Self { tree: tree.into(), levels })
    }

    /// Asks all levels in turn.
    pub fn judge(&self, id: u32) -> Verdict {
        let mut is_reached = false;
        for level in &self.levels {
            let Some(tests) = level.reached.get(&id) else { continue };
            is_reached = true;
            if let End::Failed(by) = self.ask(level, tests, id) {
                return Verdict::Caught(level.name, by);
            }
        }
        if is_reached { Verdict::Survived } else { Verdict::Unreached }
    }

    fn ask(&self, level: &Level, tests: &[usize], id: u32) -> End {
        let names = tests.iter().map(|test| &*level.tests[*test].0);
        let slowest = tests.iter().map(|test| level.tests[*test].1).max().unwrap_or_default();
        let mut words = vec!["--test-threads=1", "--exact"];
        words.extend(names);
        let child = start(&self.tree, &level.program, &words, id);
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
        tree: &Path,
        scratch: &Path,
        program: PathBuf,
        seeds: u64,
    ) -> Result<Self, String> {
        let file = scratch.join("reached-simulator");
        let _ = fs::remove_file(&file);
        let mut command = Command::new(&program);
        command.args(["1", &seeds.to_string()]);
        command.env("MUTANT", format!("all:{}", file.display()));
        let takes = baseline(tree, "seeds of the simulator", command)?;
        let reached = fs::read_to_string(&file).unwrap_or_default();
        let reached = reached.lines().map(|id| id.parse().expect("a number")).collect();
        Ok(Self { tree: tree.into(), program, seeds, reached, takes })
    }

    /// Asks it about a mutant that the tests let pass.
    pub fn judge(&self, id: u32, before: Verdict) -> Verdict {
        if !self.reached.contains(&id) {
            return before;
        }
        let seeds = self.seeds.to_string();
        let child = start(&self.tree, &self.program, &["1", &seeds], id);
        let is_end = |line: &str| {
            let what = line.strip_prefix("violated: ")?;
            Some(what.split(" times, first").next().unwrap_or(what).to_owned())
        };
        let most = 3 * SILENT_MAX + 5 * self.takes;
        match watch(child, most, most, is_end) {
            End::Failed(by) => Verdict::Caught("simulator", by),
            End::Passed => Verdict::Survived,
        }
    }
}

/// A test that fails without a mutant catches everything.
fn baseline(tree: &Path, name: &str, mut command: Command) -> Result<Duration, String> {
    let before = Instant::now();
    let done = command.current_dir(tree).output().map_err(|e| e.to_string())?;
    if !done.status.success() {
        let out = String::from_utf8_lossy(&done.stdout);
        return Err(format!("without a mutant, {name} fail: {out}"));
    }
    println!("{name}: {:.1} s without a mutant", before.elapsed().as_secs_f64());
    Ok(before.elapsed())
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

impl Level {
    fn read(name: &'static str, program: &Path, file: &Path) -> Self {
        let mut level =
            Self { name, program: program.into(), reached: BTreeMap::new(), tests: Vec::new() };
        let text = fs::read_to_string(file).unwrap_or_default();
        for line in text.lines() {
            let mut words = line.split('\t');
            let mut next = || words.next().expect("name, time and numbers");
            let (test, ms, ids) = (next(), next(), next());
            // What the harness or a thread of a test does cannot be asked for alone.
            if test.is_empty() || test == "main" {
                continue;
            }
            let at = level.tests.len();
            let takes = Duration::from_millis(ms.parse().expect("a number"));
            level.tests.push((test.into(), takes));
            for id in ids.split_terminator(',') {
                let id = id.parse().expect("a number");
                level.reached.entry(id).or_default().push(at);
            }
        }
        level
    }
}

/// Reads a program's lines until one of them says that it failed, it ends, or is silent too long.
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
