//! `tests/conformance.md`: a row for each upstream test, with its result or the reason of its
//! exclusion. With the built-in runtime: `tests/conformance-builtin.md`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use crate::exclusions::{self, Class, Exclusion};
use crate::support::containerd::{self, Kind};
use crate::upstream::{self, Spec};
use crate::{Results, Row, support};

/// The share of the tests with a case that must pass, percent.
const PASS_PERCENT_MIN: usize = 99;

/// Errors of the list of cases, which fail any run: an upstream test without a case and without a
/// class, a case or class without an upstream test, and a test with both.
pub(crate) fn mistakes(rows: &[Row]) -> Vec<String> {
    let specs = upstream::specs();
    let known: BTreeSet<_> = specs.iter().map(|spec| (spec.area, spec.name)).collect();
    let mut mistakes = Vec::new();
    if known.len() < specs.len() {
        mistakes.push("the list of upstream's tests has one twice".to_owned());
    }
    let mut cases = BTreeSet::new();
    for row in rows {
        let (area, name) = (row.area, &*row.name);
        if !known.contains(&(area, name)) {
            mistakes.push(format!("no upstream test {area}: {name}"));
        }
        if !cases.insert((area, name)) {
            mistakes.push(format!("two cases for {area}: {name}"));
        }
        if let Some(exclusion) = exclusion(area, name) {
            mistakes.push(format!("{area}: {name} has a case and «{}»", exclusion.why));
        }
    }
    for &(area, name) in &known {
        if !cases.contains(&(area, name)) && exclusion(area, name).is_none() {
            mistakes.push(format!("neither a case nor a class: {area}: {name}"));
        }
    }
    for Exclusion { area, name, .. } in exclusions::with(containerd::kind()) {
        if !specs.iter().any(|spec| spec.area == *area && spec.name.starts_with(name)) {
            mistakes.push(format!("no upstream test begins with {area}: {name}"));
        }
    }
    mistakes
}

fn exclusion(area: &str, name: &str) -> Option<&'static Exclusion> {
    let mut all = exclusions::with(containerd::kind());
    all.find(|found| found.area == area && name.starts_with(found.name))
}

/// The number of rows by result.
#[derive(Debug, Default)]
struct Tally {
    passed: usize,
    failed: usize,
    excluded: BTreeMap<Class, usize>,
}

impl Tally {
    fn excluded(&self) -> usize {
        self.excluded.values().sum()
    }

    fn enough(&self) -> bool {
        self.passed * 100 >= (self.passed + self.failed) * PASS_PERCENT_MIN
    }
}

/// Writes the table; returns whether it is unchanged, and enough of it passes.
pub(crate) fn write(results: &Results) -> bool {
    let specs = upstream::specs();
    let mut tally = Tally::default();
    let mut rows = String::new();
    for spec in &specs {
        let verdict = verdict(spec, results, &mut tally);
        // The cell must not contain a bar, and code in it no further backticks.
        let name = spec.name.replace('`', "'").replace('|', "/");
        let tags = match (spec.conformance, spec.node_conformance) {
            (true, true) => "C N",
            (true, false) => "C",
            (false, true) => "N",
            (false, false) => "",
        };
        writeln!(rows, "| {} | `{name}` | {tags} | {verdict} |", spec.area)
            .expect("a string grows");
    }
    let kind = containerd::kind();
    let text = format!("{}{rows}", head(kind, &specs, &tally));
    let path = path(kind);
    let before = std::fs::read_to_string(&path).unwrap_or_default();
    std::fs::write(&path, &text).expect("a file of the project");
    let enough = tally.enough();
    if !enough {
        println!("conformance: {} fail, too many", tally.failed);
    }
    if before != text {
        let name = path.strip_prefix(support::top()).map_or_else(|_| &*path, Path::new).display();
        println!("conformance: {name} was not up to date; now it is: commit it");
    }
    before == text && enough
}

fn verdict(spec: &Spec, results: &Results, tally: &mut Tally) -> String {
    match results.get(&(spec.area.to_owned(), spec.name.to_owned())) {
        Some(Ok(())) => {
            tally.passed += 1;
            "pass".to_owned()
        }
        Some(Err(_)) => {
            tally.failed += 1;
            match known_failure(spec.area, spec.name) {
                Some(why) => format!("fails: {why}"),
                None => "fails".to_owned(),
            }
        }
        None => {
            let found = exclusion(spec.area, spec.name).expect("checked before the run");
            *tally.excluded.entry(found.class).or_default() += 1;
            format!("{}: {}", found.class.label(), found.why)
        }
    }
}

/// Unexpected results of a run: cases that fail and are not known to, and cases that are known to
/// fail and pass.
pub(crate) fn surprises(results: &Results) -> Vec<(String, String)> {
    let mut surprises = Vec::new();
    for ((area, name), result) in results {
        let why = match (result, known_failure(area, name)) {
            (Ok(()), None) | (Err(_), Some(_)) => continue,
            (Err(why), None) => why.clone(),
            (Ok(()), Some(_)) => "it passes: take it out of KNOWN_FAILURES".to_owned(),
        };
        surprises.push((format!("{area}: {name}"), why));
    }
    surprises
}

/// Why a case fails, if that is known.
fn known_failure(area: &str, name: &str) -> Option<&'static str> {
    let all = match containerd::kind() {
        Kind::Containerd => KNOWN_FAILURES,
        Kind::Builtin => KNOWN_FAILURES_OF_BUILTIN,
    };
    let found = all.iter().find(|known| (known.0, known.1) == (area, name));
    found.map(|(_, _, why)| *why)
}

/// Cases that fail, by area and name, each with the agent's fault.
const KNOWN_FAILURES: &[(&str, &str, &str)] = &[];

/// The same with the built-in runtime.
const KNOWN_FAILURES_OF_BUILTIN: &[(&str, &str, &str)] = &[(
    "Pull Image",
    "should pull immediately if no more than 5 pods",
    "the built-in runtime pulls one image after the other",
)];

fn head(kind: Kind, specs: &[Spec], tally: &Tally) -> String {
    let (title, command, runtime) = match kind {
        Kind::Containerd => ("Conformance", "make conformance", "a real\ncontainerd"),
        Kind::Builtin => (
            "Conformance with the built-in runtime",
            "make conformance RUNTIME=builtin",
            "the\nbuilt-in runtime",
        ),
    };
    let count = |of: fn(&Spec) -> bool| specs.iter().filter(|spec| of(spec)).count();
    let mut text = format!(
        "# {title}\n\n\
         Written by `{command}`: what becomes of each of the {all} tests of Kubernetes\n\
         {version} that a node can be asked: those of `test/e2e/common` and `test/e2e/node` with \
         the tag\n\
         `[Conformance]` (C) or `[NodeConformance]` (N), and all of `test/e2e_node`. {c} have the \
         tag C,\n\
         {n} the tag N. «pass» and «fails» are results of an equivalent test of the agent on \
         {runtime}, with pods of the manifest folder.\n\n\
         Of {requests} that were asked, {passed} pass and {failed} fail. {excluded} are not asked, \
         by classes:\n\n\
         | class | tests | means |\n|---|---|---|\n",
        all = specs.len(),
        version = upstream::VERSION,
        c = count(|spec| spec.conformance),
        n = count(|spec| spec.node_conformance),
        requests = tally.passed + tally.failed,
        passed = tally.passed,
        failed = tally.failed,
        excluded = tally.excluded(),
    );
    for (class, count) in &tally.excluded {
        writeln!(text, "| {} | {count} | {} |", class.label(), class.means())
            .expect("a string grows");
    }
    text + "\n| area | test | tags | result |\n|---|---|---|---|\n"
}

fn path(kind: Kind) -> PathBuf {
    support::top().join(match kind {
        Kind::Containerd => "tests/conformance.md",
        Kind::Builtin => "tests/conformance-builtin.md",
    })
}
