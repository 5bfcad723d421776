//! Words that must not come back: riddles of an earlier time, each with the field's own word.

use crate::source::words_of;
use crate::tree::hold;
use crate::{Complaints, refused};

/// A word in lower case, and what to say in its place.
const DIALECT: [(&str, &str); 20] = [
    ("chore", "a task of housekeeping"),
    ("chores", "housekeeping"),
    ("condemn", "mark as garbage"),
    ("condemned", "garbage"),
    ("doom", "write a tombstone"),
    ("doomed", "a tombstone"),
    ("grudge", "a refusal"),
    ("grudges", "refusals"),
    ("mind", "the core"),
    ("minds", "cores"),
    ("naught", "nothing"),
    ("platter", "the disk"),
    ("restless", "needs a plan"),
    ("shelf", "the image store"),
    ("stir", "mark as changed"),
    ("upkeep", "housekeeping"),
    ("vain", "abandoned, or without effect"),
    ("whim", "what a user does"),
    ("whims", "what users do"),
    ("yard", "what supports the tests"),
];

#[test]
fn the_source_speaks_the_words_of_its_field() {
    hold(
        |f| !f.path.ends_with("Cargo.lock") && f.path != "tests/tidy/dialect.rs",
        |f| dialect(&f.text),
    );
}

#[test]
fn a_word_of_the_dialect_is_refused() {
    refused(&dialect("//! The core.\n/// The mind.\n"), 2);
    refused(&dialect("fn a() {}\nfn is_restless() {}\n"), 2);
    refused(&dialect("fn a() {}\nstruct DoomedPods;\n"), 2);
    assert!(dialect("fn remind() {}\n").is_empty());
}

/// Also as a part of a name: `is_restless`, `DoomedPods`.
fn dialect(text: &str) -> Complaints {
    let mut found = Vec::new();
    for (at, line) in text.lines().enumerate() {
        for (_, word) in words_of(line) {
            let parts = parts(word);
            let known = DIALECT.iter().find(|(old, _)| parts.iter().any(|part| part == old));
            if let Some((old, new)) = known {
                found.push((at + 1, format!("got {old:?}, expected the field's word: {new}")));
            }
        }
    }
    found
}

/// The words that a name is made of, in lower case.
fn parts(name: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut was_lower = false;
    for c in name.chars() {
        if c == '_' || (c.is_uppercase() && was_lower) {
            parts.push(String::new());
        }
        was_lower = c.is_lowercase();
        if c != '_' {
            parts.last_mut().expect("one at least").extend(c.to_lowercase());
        }
    }
    parts
}
