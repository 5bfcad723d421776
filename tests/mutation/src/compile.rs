//! Cargo over the mutated tree: what it refuses, and the programs that it builds.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::schema::Rendered;

/// The programs of tests that are asked about a mutant.
pub struct Programs {
    pub units: PathBuf,
    pub stories: PathBuf,
    pub controller: PathBuf,
}

fn cargo(tree: &Path, arguments: &[&str]) -> (bool, Vec<Value>) {
    let done = Command::new("scripts/cargo")
        .current_dir(tree)
        .args(arguments)
        .args(["--quiet", "--locked", "--features", "controller", "--message-format", "json"])
        .stderr(Stdio::inherit())
        .output()
        .expect("scripts/cargo can be started");
    let text = String::from_utf8(done.stdout).expect("JSON is UTF-8");
    let lines = text.lines().filter_map(|line| serde_json::from_str(line).ok());
    (done.status.success(), lines.collect())
}

/// Asks the compiler about all; says which mutants it refuses, or why that cannot be said.
pub fn refused(tree: &Path, files: &BTreeMap<String, Rendered>) -> Result<BTreeSet<u32>, String> {
    let (fits, messages) = cargo(tree, &["check", "--lib"]);
    let mut refused = BTreeSet::new();
    let mut unclear = Vec::new();
    for message in &messages {
        let message = &message["message"];
        if message["level"] != "error" || message["spans"].as_array().is_none_or(Vec::is_empty) {
            continue;
        }
        match culprits(message, files) {
            found if found.is_empty() => {
                unclear.push(message["rendered"].as_str().unwrap_or_default().to_owned());
            }
            found => refused.extend(found),
        }
    }
    if !fits && refused.is_empty() { Err(unclear.concat()) } else { Ok(refused) }
}

fn culprits(message: &Value, files: &BTreeMap<String, Rendered>) -> BTreeSet<u32> {
    let spans = message["spans"].as_array().into_iter().flatten();
    let below = message["children"].as_array().into_iter().flatten();
    let below = below.flat_map(|child| child["spans"].as_array().into_iter().flatten());
    let all: Vec<&Value> = spans.chain(below).collect();
    let place = |span: &Value| {
        let path = span["file_name"].as_str()?.strip_prefix("src/")?;
        let start = span["byte_start"].as_u64()? as usize;
        let end = span["byte_end"].as_u64()? as usize;
        Some((files.get(path)?, start, end))
    };
    for wanted in [true, false] {
        let here = all.iter().filter(|span| (span["is_primary"] == true) == wanted);
        let here: Vec<_> = here.filter_map(|span| place(span)).collect();
        let found: BTreeSet<u32> =
            here.iter().filter_map(|(file, start, end)| file.culprit(*start, *end)).collect();
        if !found.is_empty() {
            return found;
        }
    }
    let about = all.iter().filter_map(|span| place(span));
    about.flat_map(|(file, start, end)| file.about(start, end)).collect()
}

/// Builds the tests.
pub fn build_tests(tree: &Path) -> Result<Programs, String> {
    let arguments = ["test", "--no-run", "--lib", "--test", "stories", "--test", "controller"];
    let mut built = build(tree, &arguments)?;
    let mut take =
        |name: &str| built.remove(name).ok_or_else(|| format!("no program {name} was built"));
    Ok(Programs {
        units: take("edged")?,
        stories: take("stories")?,
        controller: take("controller")?,
    })
}

/// Builds the simulator, with optimization: it takes longer than all others.
pub fn build_simulator(tree: &Path) -> Result<PathBuf, String> {
    let arguments = ["test", "--no-run", "--profile", "sim", "--test", "sim"];
    build(tree, &arguments)?.remove("sim").ok_or_else(|| "no simulator was built".into())
}

fn build(tree: &Path, arguments: &[&str]) -> Result<BTreeMap<String, PathBuf>, String> {
    let (fits, messages) = cargo(tree, arguments);
    if !fits {
        let told = messages.iter().filter_map(|it| it["message"]["rendered"].as_str());
        return Err(told.collect());
    }
    let of_tests = messages.iter().filter(|it| it["profile"]["test"] == true);
    let named = of_tests.filter_map(|message| {
        let name = message["target"]["name"].as_str()?;
        Some((name.to_owned(), PathBuf::from(message["executable"].as_str()?)))
    });
    Ok(named.collect())
}
