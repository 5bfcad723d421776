//! Runs cargo over the mutated tree: what it refuses, and the programs that it builds.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::FEATURES;
use crate::schema::Rendered;

/// Packages are built as for other tests, our own code optimized so that thousands of runs of
/// stories are quick.
const QUICK: [&str; 2] = ["--config", "profile.dev.package.edged.opt-level=1"];

fn cargo(tree: &Path, arguments: &[&str]) -> (bool, Vec<Value>) {
    let done = Command::new("scripts/cargo")
        .current_dir(tree)
        .args(arguments)
        .args(["--quiet", "--locked", "--features", &FEATURES.join(",")])
        .args(["--message-format", "json"])
        .stderr(Stdio::inherit())
        .output()
        .expect("scripts/cargo can be started");
    let text = String::from_utf8(done.stdout).expect("JSON is UTF-8");
    let lines = text.lines().filter_map(|line| serde_json::from_str(line).ok());
    (done.status.success(), lines.collect())
}

/// Compiles all mutants; returns those that the compiler refuses, or why that is unknown.
pub fn refused(tree: &Path, files: &BTreeMap<String, Rendered>) -> Result<BTreeSet<u32>, String> {
    let (fits, messages) = cargo(tree, &[&["check", "--lib"], &QUICK[..]].concat());
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

/// Builds a test program, and returns its path. Simulators have a profile of their own.
pub fn build(tree: &Path, target: &[&str]) -> Result<PathBuf, String> {
    let simulates = target.iter().any(|it| ["sim", "cloudsim", "rtsim"].contains(it));
    let how = if simulates { ["--profile", "sim"] } else { QUICK };
    let (fits, messages) = cargo(tree, &[&["test", "--no-run"], &how, target].concat());
    if !fits {
        let told = messages.iter().filter_map(|it| it["message"]["rendered"].as_str());
        return Err(told.collect());
    }
    let of_tests = messages.iter().filter(|it| it["profile"]["test"] == true);
    let mut programs = of_tests.filter_map(|message| message["executable"].as_str());
    programs.next().map(PathBuf::from).ok_or_else(|| format!("no program {target:?} was built"))
}
