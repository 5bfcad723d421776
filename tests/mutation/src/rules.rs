//! The named rules: each is broken in one place, by a changed text inside of a named function.
//!
//! ```text
//! name-of-the-rule
//!     agent/pod/next.rs terminating
//!     - !sandbox.stopped
//!     + sandbox.ready
//! ```
//!
//! The text after `-` must occur once, whatever its spaces and comments; without `+` it is removed.
//! A rule that is enforced in several places has several entries.

use crate::points::{Before, Function, Mutant};
use crate::source::Source;

/// One change that breaks a rule.
pub struct Place {
    pub rule: String,
    pub file: String,
    pub function: String,
    pub old: String,
    pub new: String,
}

/// Reads the list; a text that cannot be read is the writer's mistake.
pub fn read(text: &str) -> Result<Vec<Place>, String> {
    let mut all: Vec<Place> = Vec::new();
    let mut rule = String::new();
    for (at, line) in text.lines().enumerate() {
        let word = line.trim();
        let wrong = |expected: &str| format!("rules.txt:{}: expected {expected}", at + 1);
        if word.is_empty() || word.starts_with('#') {
            continue;
        }
        if !line.starts_with(' ') {
            rule = word.to_owned();
            if all.iter().any(|place| place.rule == rule) {
                return Err(wrong("another name: this one is taken"));
            }
        } else if let Some(old) = word.strip_prefix("- ") {
            let place = all.last_mut().ok_or_else(|| wrong("a file and a function first"))?;
            place.old.push_str(old);
            place.old.push('\n');
        } else if let Some(new) = word.strip_prefix("+ ") {
            let place = all.last_mut().ok_or_else(|| wrong("a file and a function first"))?;
            place.new.push_str(new);
            place.new.push('\n');
        } else {
            let (file, function) =
                word.split_once(' ').ok_or_else(|| wrong("a file and a function, or - and +"))?;
            all.push(Place {
                rule: rule.clone(),
                file: file.into(),
                function: function.into(),
                old: String::new(),
                new: String::new(),
            });
        }
    }
    Ok(all)
}

/// The mutant that breaks the rule at this place.
pub fn resolve(
    place: &Place,
    file: usize,
    source: &Source,
    functions: &[Function],
) -> Result<Mutant, String> {
    let say =
        |what: String| format!("rule {}: {what}, in {} {}", place.rule, place.file, place.function);
    let named: Vec<&Function> =
        functions.iter().filter(|function| function.path == place.function).collect();
    if named.is_empty() {
        return Err(say("there is no such function".into()));
    }
    let mut hits = Vec::new();
    for function in named {
        let (start, end) = function.range;
        for (from, to) in occurrences(&source.text[start..end], &place.old) {
            hits.push((function, (start + from, start + to)));
        }
    }
    let [(function, (from, to))] = hits[..] else {
        return Err(say(format!("{:?} stands {} times", place.old.trim(), hits.len())));
    };
    let inside = |range: &(usize, usize)| range.0 <= from && to <= range.1;
    let small = function.expressions.iter().copied().filter(inside);
    let around = if function.is_opaque {
        small.min_by_key(|range| range.1 - range.0).unwrap_or(function.range)
    } else {
        function.range
    };
    let text = &source.text;
    let broken = format!("{} {} {}", &text[around.0..from], place.new.trim(), &text[to..around.1]);
    let (before, after) = if around == function.range {
        (Before::Body(broken), " }")
    } else {
        (Before::Instead(broken), " })")
    };
    Ok(Mutant {
        id: 0,
        file,
        identity: format!("{} {}: rule {}", place.file, place.function, place.rule),
        rule: Some(place.rule.clone()),
        range: around,
        before,
        after,
    })
}

/// Where these words occur, bytes of the text.
fn occurrences(text: &str, wanted: &str) -> Vec<(usize, usize)> {
    let words = words_of(text);
    let wanted: Vec<&str> = words_of(wanted).into_iter().map(|(_, word)| word).collect();
    let at = |window: &[(usize, &str)]| {
        let last = window[window.len() - 1];
        (window[0].0, last.0 + last.1.len())
    };
    words
        .windows(wanted.len().max(1))
        .filter(|window| window.iter().map(|(_, word)| *word).eq(wanted.iter().copied()))
        .map(at)
        .collect()
}

/// The words and signs of a source text, without comments, and where each starts.
fn words_of(text: &str) -> Vec<(usize, &str)> {
    let bytes = text.as_bytes();
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80;
    let mut words = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let rest = &bytes[at..];
        let run = |from: usize, holds: &dyn Fn(u8) -> bool| {
            from + rest[from..].iter().take_while(|byte| holds(**byte)).count()
        };
        let len = match rest[0] {
            byte if byte.is_ascii_whitespace() => {
                at += 1;
                continue;
            }
            b'/' if rest.get(1) == Some(&b'/') => {
                at += run(0, &|byte| byte != b'\n');
                continue;
            }
            byte if is_word(byte) => run(0, &is_word),
            b'"' => quoted(rest),
            // A character; a lifetime is a sign and a word.
            b'\'' if rest.get(1) == Some(&b'\\') => 1 + run(2, &|byte| byte != b'\''),
            b'\'' if rest.get(2) == Some(&b'\'') => 3,
            _ => 1,
        };
        words.push((at, &text[at..at + len]));
        at += len;
    }
    words
}

fn quoted(rest: &[u8]) -> usize {
    let mut at = 1;
    while at < rest.len() && rest[at] != b'"' {
        at += if rest[at] == b'\\' { 2 } else { 1 };
    }
    (at + 1).min(rest.len())
}
