//! `tests/conformance.md`: a row for each upstream test, and whether it passes or why not.

use std::fmt::Write as _;
use std::path::PathBuf;

use crate::aside::ASIDE;
use crate::upstream::UPSTREAM;
use crate::{Results, Row, yard};

/// Of the tests that this platform allows, so many must pass, in hundredths.
const PASS_PERCENT_MIN: usize = 95;

/// A row that no upstream test stands behind is a typing mistake, and so is one told twice.
pub(crate) fn assert_known(rows: &[Row]) {
    let known = |area: &str, name: &str| {
        UPSTREAM.iter().any(|group| group.area == area && group.names.contains(&name))
    };
    for (index, (area, name, _)) in rows.iter().enumerate() {
        assert!(known(area, name), "no upstream test {area}: {name}");
        let twice = rows[..index].iter().any(|row| (row.0, row.1) == (*area, *name));
        assert!(!twice, "two cases for {area}: {name}");
        assert!(aside(area, name).is_none(), "{area}: {name} has a case and stands aside");
    }
    for (area, name, _) in ASIDE {
        assert!(known(area, name), "no upstream test {area}: {name}");
    }
}

fn aside(area: &str, name: &str) -> Option<&'static str> {
    let found = ASIDE.iter().find(|aside| (aside.0, aside.1) == (area, name));
    found.map(|(_, _, why)| *why)
}

/// Writes the table; says whether it is as it was, and enough of it passes.
pub(crate) fn write(results: &Results) -> bool {
    let mut rows = String::new();
    let (mut passed, mut failed, mut beyond) = (0, 0, 0);
    for group in UPSTREAM {
        for &name in group.names {
            let verdict = match (results.get(&(group.area, name)), aside(group.area, name)) {
                (Some(Ok(())), _) => {
                    passed += 1;
                    "pass"
                }
                (Some(Err(_)), _) => {
                    failed += 1;
                    "fails"
                }
                (None, Some(why)) => {
                    beyond += 1;
                    why
                }
                (None, None) => {
                    failed += 1;
                    "no case yet"
                }
            };
            // The cell may hold no bar, and code in it no further backticks.
            let name = name.replace('`', "'").replace('|', "/");
            writeln!(rows, "| {} | `{name}` | {verdict} |", group.area).expect("a string grows");
        }
    }
    let text = format!(
        "# Conformance\n\n\
         Written by `cargo test --test conformance`: what becomes of each upstream test of \
         Kubernetes 1.32's\n\
         suites `[Conformance]` and `[NodeConformance]` that one node could be asked, as an \
         equivalent test of\n\
         the agent on a real containerd, with pods from the manifest folder.\n\n\
         Of {allowed} that concern a node without a cluster, {passed} pass and {failed} do not; \
         {beyond} are the API server's\n\
         alone or need one.\n\n\
         | area | test | result |\n|---|---|---|\n{rows}",
        allowed = passed + failed,
    );
    let path = path();
    let before = std::fs::read_to_string(&path).unwrap_or_default();
    std::fs::write(&path, &text).expect("a file of the project");
    let enough = passed * 100 >= (passed + failed) * PASS_PERCENT_MIN;
    if !enough {
        println!("conformance: {passed} of {} pass, too few", passed + failed);
    }
    if before != text {
        println!("conformance: tests/conformance.md was not up to date; now it is: commit it");
    }
    before == text && enough
}

fn path() -> PathBuf {
    yard::top().join("tests/conformance.md")
}
