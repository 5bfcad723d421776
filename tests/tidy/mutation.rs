//! The named rules of tests/mutation have their places in the source: otherwise a change that moves
//! one would be found only by the next manual run of `make mutants`.

use crate::Complaints;
use crate::tree::{all, hold};

const RULES: &str = "tests/mutation/rules.txt";

#[test]
fn every_named_rule_has_its_place() {
    let files = all();
    let source = |name: &str| {
        let path = format!("src/{name}");
        files.iter().find(|file| file.path == path).map(|file| file.text.clone())
    };
    hold(|f| f.path == RULES, |f| places(&f.text, source));
}

/// Each `file function` must exist, and contain the text after `-`.
fn places(rules: &str, source: impl Fn(&str) -> Option<String>) -> Complaints {
    let mut found = Complaints::new();
    let mut text: Option<String> = None;
    let mut old = (0, String::new());
    for (at, line) in (1..).zip(rules.lines().chain([""])) {
        let line = line.strip_prefix("    ").unwrap_or_default();
        if let Some(more) = line.strip_prefix("- ") {
            old = (at, old.1 + more);
            continue;
        }
        // Removed text is also in the function, and is checked with its last line.
        let (at_old, missing) = std::mem::take(&mut old);
        if let Some(text) = &text
            && !squeezed(text).contains(&squeezed(&missing))
        {
            found.push((at_old, format!("expected in the function: {missing}")));
        }
        if line.is_empty() || line.starts_with("+ ") {
            continue;
        }
        let (file, function) = line.split_once(' ').unwrap_or((line, ""));
        let name = function.rsplit("::").next().unwrap_or_default();
        text = source(file).map(|text| functions(&text, name)).filter(|text| !text.is_empty());
        if text.is_none() {
            found.push((at, format!("expected in src: {file} with a function {name}")));
        }
    }
    found
}

/// The functions of this name in a formatted file.
fn functions(text: &str, name: &str) -> String {
    let is_start = |line: &str| {
        let rest = line.split_once(&format!("fn {name}")).map(|(_, rest)| rest);
        rest.is_some_and(|rest| rest.starts_with(['(', '<']))
    };
    let (mut found, mut end) = (String::new(), None);
    for line in text.lines() {
        if end.is_none() && is_start(line) {
            let indent = &line[..line.len() - line.trim_start().len()];
            end = Some(format!("{indent}}}"));
        }
        if end.is_some() {
            found.push_str(line);
            found.push('\n');
        }
        if end.as_deref() == Some(line) {
            end = None;
        }
    }
    found
}

/// Without blanks and comments.
fn squeezed(text: &str) -> String {
    let lines = text.lines().map(|line| line.split("// ").next().unwrap_or_default());
    lines.flat_map(str::chars).filter(|c| !c.is_whitespace()).collect()
}

#[test]
fn a_place_that_is_not_there_is_refused() {
    let source = |name: &str| {
        (name == "a.rs")
            .then(|| String::from("fn f() {\n    g(\n        1,\n    )\n}\nfn i() {\n    5\n}\n"))
    };
    let lines = |rules: &str| -> Vec<usize> {
        places(rules, source).into_iter().map(|(line, _)| line).collect()
    };
    assert!(lines("rule\n    a.rs T::f\n    - g(1,)\n    + g(2)\n").is_empty());
    assert_eq!(lines("rule\n    a.rs T::f\n    - g(3)\n"), [3]);
    assert_eq!(lines("rule\n    a.rs T::f\n    - 5\n"), [3]);
    assert_eq!(lines("rule\n    b.rs T::f\n    - g(1,)\n\nnext\n    a.rs h\n    - 1\n"), [2, 6]);
}
