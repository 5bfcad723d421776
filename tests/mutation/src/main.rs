//! Mutation tests: breaks the cores by a few operators and by the named rules, and checks whether
//! the tests notice.
//!
//! ```text
//! edged-mutation TOP WORK [--rules] [--core NAME] [--levels NAME,…] [--seeds N]
//!                [--again | --new] [--list] [TEXT…]
//! ```
//!
//! All mutants are compiled into one copy of the tree, each behind a check at run time whether it
//! is the active one: one build serves thousands of them, and each costs only the tests that reach
//! its place. Those are known from one run without an active mutant.
//!
//! In WORK: `tree`, the mutated copy; `refused`, mutants that do not compile, for the next run;
//! `results-agent`, a line for each mutant, kept from run to run; `survivors.txt`, by file. TEXT
//! selects mutants whose identity contains it.

mod compile;
mod points;
mod report;
mod rules;
mod run;
mod schema;
mod source;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::mpsc::{Receiver, channel};
use std::time::Instant;

use points::Mutant;
use report::{Due, Results};
use run::{Level, Simulator, Tests, Verdict};
use schema::Rendered;
use source::Source;

const SEEDS: u64 = 150;
/// The folders with the rules, and with what the cores share.
const CORES: [&str; 6] = ["agent", "controller", "core", "model", "runtime", "wire"];
/// Their unit tests.
const UNITS: [&str; 6] = ["agent::", "controller::", "core::", "model::", "runtime::", "wire::"];
/// The features that the cores need beside the default ones.
const FEATURES: [&str; 3] = ["controller", "full", "runtime"];

/// The arguments.
struct Plan {
    top: PathBuf,
    work: PathBuf,
    rules_only: bool,
    core: String,
    seeds: u64,
    due: Due,
    list: bool,
    /// Stories, units, controller, simulator, cloudsim, rtsim: those of the cores, unless some are
    /// named.
    levels: Vec<String>,
    chosen: Vec<String>,
}

fn main() -> ExitCode {
    match Plan::new().and_then(|plan| work(&plan)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(why) => {
            eprintln!("mutation: {why}");
            ExitCode::FAILURE
        }
    }
}

impl Plan {
    fn new() -> Result<Self, String> {
        let mut words = std::env::args().skip(1);
        let mut folder = || words.next().ok_or("expected two folders: TOP and WORK");
        let (top, work) = (PathBuf::from(folder()?), PathBuf::from(folder()?));
        let mut plan = Self {
            top,
            work,
            rules_only: false,
            core: "agent".into(),
            seeds: SEEDS,
            due: Due::All,
            list: false,
            levels: Vec::new(),
            chosen: Vec::new(),
        };
        while let Some(word) = words.next() {
            match word.as_str() {
                "--rules" => plan.rules_only = true,
                "--again" => plan.due = Due::NotCaught,
                "--new" => plan.due = Due::Unknown,
                "--list" => plan.list = true,
                "--core" => plan.core = words.next().ok_or("--core: expected a name")?,
                "--levels" => {
                    let names = words.next().ok_or("--levels: expected names, with commas")?;
                    plan.levels = names.split(',').map(String::from).collect();
                }
                "--seeds" => {
                    let count = words.next().and_then(|word| word.parse().ok());
                    plan.seeds = count.ok_or("--seeds: expected a number")?;
                }
                word if word.starts_with("--") => return Err(format!("got {word}: see above")),
                _ => plan.chosen.push(word),
            }
        }
        Ok(plan)
    }
}

fn work(plan: &Plan) -> Result<bool, String> {
    let src = plan.top.join("src");
    let manifest = read(&plan.top.join("Cargo.toml"));
    let features = source::features(&manifest, &FEATURES);
    let of_core = |core: &&str| source::read_core(&src, core, &features);
    let sources: Vec<Source> = CORES.iter().flat_map(of_core).collect();
    let mut mutants = find(plan, &sources, &features)?;
    if plan.list {
        mutants.iter().for_each(|it| println!("{}", it.identity));
        return Ok(true);
    }
    let tree = plan.work.join("tree");
    copy_tree(&plan.top, &tree, &sources);
    let all = mutants.len();
    settle(plan, &tree, &sources, &mut mutants)?;
    let dropped = all - mutants.len();
    println!("{all} mutants, of which {dropped} do not compile");
    let accepted = report::Accepted::read(&read(&plan.top.join("tests/mutation/accepted.txt")))?;
    let is_whole = !plan.rules_only && plan.due == Due::All && plan.chosen.is_empty();
    let file = plan.work.join(format!("results-{}", plan.core));
    let mut results = Results::open(&file, is_whole, plan.due);
    judge(plan, &tree, &sources, &mutants, &mut results)?;
    let known: BTreeSet<&str> = mutants.iter().map(|it| &*it.identity).collect();
    let survivors = plan.work.join("survivors.txt");
    Ok(report::tell(&results, &known, &accepted, dropped, &survivors))
}

/// Runs one level after the other over the mutants that the earlier ones did not catch. A level is
/// built while those before it run.
fn judge(
    plan: &Plan,
    tree: &Path,
    sources: &[Source],
    mutants: &[Mutant],
    results: &mut Results,
) -> Result<(), String> {
    let is_chosen = |it: &&Mutant| {
        let is_named = plan.chosen.is_empty()
            || plan.chosen.iter().any(|text| it.identity.contains(text.as_str()));
        is_named && results.is_due(&it.identity)
    };
    let mut due: Vec<&Mutant> = mutants.iter().filter(is_chosen).collect();
    // In the order of the given texts; rules first.
    let place = |it: &Mutant| plan.chosen.iter().position(|text| it.identity.contains(&**text));
    due.sort_by_key(|it| (it.rule.is_none(), place(it)));
    let levels = levels(plan, &due);
    let mut reached = BTreeSet::new();
    let programs = build(tree, &levels);
    for name in levels {
        let program = programs.recv().expect("one for each level")?;
        let folders = (tree, &*plan.work);
        let mut level = match name {
            "simulator" | "cloudsim" | "rtsim" => {
                Level::Simulator(Simulator::record(name, folders, program, plan.seeds)?)
            }
            "units" => Level::Tests(Tests::record(name, folders, program, &UNITS)?),
            _ => Level::Tests(Tests::record(name, folders, program, &[])?),
        };
        let before = Instant::now();
        let (mut count, all) = (0, due.len());
        due.retain(|mutant| {
            let mut verdict = level.judge(mutant);
            if verdict != Verdict::Unreached {
                reached.insert(mutant.id);
            } else if reached.contains(&mutant.id) {
                verdict = Verdict::Survived;
            }
            let line = sources[mutant.file].line(mutant.range.0);
            results.add(mutant, &verdict, line);
            count += 1;
            if count % 100 == 0 {
                println!("{name}: {count} of {all} in {} s", before.elapsed().as_secs());
            }
            !matches!(verdict, Verdict::Caught(..))
        });
        println!("{name}: {} of {all} passed", due.len());
    }
    Ok(())
}

/// The levels that can reach one of these mutants, the quickest first.
fn levels(plan: &Plan, due: &[&Mutant]) -> Vec<&'static str> {
    // What the cores share is reached from each.
    let concerns = |others: &[&str]| {
        due.iter().any(|it| !others.iter().any(|other| it.identity.starts_with(other)))
    };
    let of_agent = concerns(&["controller/", "runtime/"]);
    let of_controller = concerns(&["agent/", "runtime/"]);
    let of_runtime = concerns(&["agent/", "controller/"]);
    let all = [
        ("stories", of_agent || of_controller),
        ("units", true),
        ("controller", of_controller),
        ("simulator", of_agent || of_controller),
        ("cloudsim", of_controller),
        ("rtsim", of_runtime),
    ];
    let is_named = |name: &str| plan.levels.is_empty() || plan.levels.iter().any(|it| it == name);
    all.into_iter().filter(|(name, holds)| *holds && is_named(name)).map(|(name, _)| name).collect()
}

/// Builds the programs of these levels, one after the other, in the background.
fn build(tree: &Path, levels: &[&'static str]) -> Receiver<Result<PathBuf, String>> {
    let (sender, programs) = channel();
    let (tree, levels) = (tree.to_owned(), levels.to_vec());
    std::thread::spawn(move || {
        for level in levels {
            let target = match level {
                "units" => &["--lib"][..],
                "simulator" => &["--test", "sim"],
                other => &["--test", other],
            };
            if sender.send(compile::build(&tree, target)).is_err() {
                return;
            }
        }
    });
    programs
}

/// Whether the file belongs to this core. Devices are a part of the agent that can be chosen alone.
fn is_of(core: &str, path: &str) -> bool {
    match core {
        "devices" => path.starts_with("agent/devices/") || path == "agent/cloud/devices.rs",
        _ => path.starts_with(&format!("{core}/")),
    }
}

/// The generated mutants of the chosen core, and those of the rules.
fn find(
    plan: &Plan,
    sources: &[Source],
    features: &BTreeSet<String>,
) -> Result<Vec<Mutant>, String> {
    let places = rules::read(&read(&plan.top.join("tests/mutation/rules.txt")))?;
    let mut mutants = Vec::new();
    let mut functions = Vec::new();
    for (at, source) in sources.iter().enumerate() {
        let found = points::find(source, at, features);
        functions.push(found.functions);
        if !plan.rules_only && is_of(&plan.core, &source.path) {
            mutants.extend(found.mutants);
        }
    }
    let mut wrong = Vec::new();
    for place in &places {
        let at = sources.iter().position(|source| source.path == place.file);
        let found = match at {
            Some(at) => rules::resolve(place, at, &sources[at], &functions[at]),
            None => Err(format!("rule {}: there is no src/{}", place.rule, place.file)),
        };
        match found {
            Ok(mutant) => mutants.push(mutant),
            Err(why) => wrong.push(why),
        }
    }
    if !wrong.is_empty() {
        return Err(wrong.join("\nmutation: "));
    }
    // All places of a rule are broken together.
    let mut of_rules = BTreeMap::new();
    for (number, mutant) in (1..).zip(&mut mutants) {
        mutant.id = match &mutant.rule {
            Some(rule) => *of_rules.entry(rule.clone()).or_insert(number),
            None => number,
        };
    }
    Ok(mutants)
}

/// Writes the mutants into the tree, without those that the compiler refuses: it is run repeatedly,
/// because it reports some errors only where there are no others.
fn settle(
    plan: &Plan,
    tree: &Path,
    sources: &[Source],
    mutants: &mut Vec<Mutant>,
) -> Result<(), String> {
    let refused_before = plan.work.join("refused");
    let mut text = fs::read_to_string(&refused_before).unwrap_or_default();
    let known: BTreeSet<String> = text.lines().map(String::from).collect();
    mutants.retain(|it| it.rule.is_some() || !known.contains(&it.identity));
    let library = format!(
        "#![allow(warnings, arithmetic_overflow, unconditional_panic)]\n{}\npub mod mutation;\n",
        read(&plan.top.join("src/lib.rs"))
    );
    // The file exists while the tree is known to compile.
    let settled = plan.work.join("settled");
    let mut changed = !settled.exists();
    changed |= schema::write(&tree.join("src/lib.rs"), library.as_bytes());
    changed |= schema::write(&tree.join("src/mutation.rs"), include_bytes!("active.rs"));
    loop {
        let mut files = BTreeMap::new();
        for (at, source) in sources.iter().enumerate() {
            let here: Vec<&Mutant> = mutants.iter().filter(|it| it.file == at).collect();
            let rendered: Rendered = schema::render(source, &here);
            let path = tree.join("src").join(&source.path);
            changed |= schema::write(&path, rendered.text.as_bytes());
            files.insert(source.path.clone(), rendered);
        }
        if !changed {
            return Ok(());
        }
        let _ = fs::remove_file(&settled);
        let refused = compile::refused(tree, &files)?;
        if refused.is_empty() {
            fs::write(&settled, "").expect("there is room");
            return Ok(());
        }
        println!("the compiler refuses {} mutants", refused.len());
        if let Some(rule) = mutants.iter().find(|it| it.rule.is_some() && refused.contains(&it.id))
        {
            return Err(format!("{} does not compile", rule.identity));
        }
        mutants.retain(|it| {
            let fits = !refused.contains(&it.id);
            if !fits {
                text.push_str(&format!("{}\n", it.identity));
            }
            fits
        });
        fs::write(&refused_before, &text).expect("there is room");
    }
}

/// Copies the tree as git knows it, with uncommitted changes; the cores are written over it, except
/// their test files.
fn copy_tree(top: &Path, tree: &Path, sources: &[Source]) {
    let listed = Command::new("git")
        .current_dir(top)
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .output()
        .expect("git is there");
    let names = String::from_utf8(listed.stdout).expect("names here are UTF-8");
    let rendered: BTreeSet<String> = sources.iter().map(|it| format!("src/{}", it.path)).collect();
    for name in names.split_terminator('\0').filter(|name| *name != "src/lib.rs") {
        let (from, to) = (top.join(name), tree.join(name));
        // A file that was deleted and not committed yet.
        let Ok(text) = fs::read(&from) else { continue };
        // What the last run wrote is written again only where it differs.
        if !rendered.contains(name) || !to.exists() {
            schema::write(&to, &text);
        }
        let mode = fs::metadata(&from).expect("just read").permissions();
        fs::set_permissions(&to, mode).expect("just written");
    }
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}
