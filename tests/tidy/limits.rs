//! Every limit has a test that reaches it, or at least one that names it.

use std::collections::BTreeSet;

use crate::source::words_of;
use crate::tree::{File, all, hold, is_rust};
use crate::{Complaints, refused};

#[test]
fn every_limit_is_named_in_a_test() {
    let files = all();
    let tested = tested(&files);
    hold(|f| is_limits(&f.path), |f| unnamed(&f.text, &tested));
}

#[test]
fn a_limit_that_no_test_names_is_refused() {
    let file = |path: &str, text: &str| File {
        path: path.to_owned(),
        text: text.to_owned(),
        executable: false,
    };
    let limits = "pub const A_MAX: usize = 1;\npub const B_MAX: usize = 2;\n";
    let named = file("src/io/a.rs", "#[cfg(test)]\nmod tests {\n use A_MAX;\n}\n");
    let used = file("src/io/b.rs", "use B_MAX;\n#[cfg(test)]\nmod tests {\n}\n");
    let stories = file("tests/stories/b.rs", "assert!(at < B_MAX);\n");
    refused(&unnamed(limits, &tested(&[named, used])), 2);
    refused(&unnamed(limits, &tested(&[stories])), 1);
}

fn is_limits(path: &str) -> bool {
    path == "src/limits.rs" || path.starts_with("src/limits/")
}

/// The words of all tests: test files, and the test modules at the end of other files.
fn tested(files: &[File]) -> BTreeSet<&str> {
    let mut words = BTreeSet::new();
    for file in files.iter().filter(|file| is_rust(&file.path) && !is_limits(&file.path)) {
        let path = &file.path;
        let is_test =
            path.starts_with("tests/") || path.contains("/tests/") || path.ends_with("/tests.rs");
        let text = if is_test { Some(&*file.text) } else { tests_of(&file.text) };
        words.extend(text.into_iter().flat_map(words_of).map(|(_, word)| word));
    }
    words
}

fn tests_of(text: &str) -> Option<&str> {
    text.find("#[cfg(test)]\nmod tests {").map(|at| &text[at..])
}

fn unnamed(text: &str, tested: &BTreeSet<&str>) -> Complaints {
    let mut found = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let name = line.strip_prefix("pub const ").and_then(|rest| rest.split(':').next());
        if let Some(name) = name.filter(|name| !tested.contains(name)) {
            found.push((at + 1, format!("{name} is named in no test: which test reaches it?")));
        }
    }
    found
}
