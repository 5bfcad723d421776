//! Rust source with its strings and comments blanked out, and what can be read from it without a
//! syntax tree: words, paths, attributes, bodies. Line numbers do not change.

use crate::Complaints;

/// The code alone: strings, characters and comments become blanks, newlines stay.
pub(crate) fn code(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = bytes.to_vec();
    let mut at = 0;
    while at < bytes.len() {
        let len = skipped_len(text, at);
        for byte in out[at..at + len].iter_mut().filter(|byte| **byte != b'\n') {
            *byte = b' ';
        }
        at += len.max(1);
    }
    String::from_utf8(out).expect("whole literals and comments become ASCII")
}

/// The length of a comment or literal that starts here; 0 for code.
fn skipped_len(text: &str, at: usize) -> usize {
    let rest = &text.as_bytes()[at..];
    let in_word = at > 0 && is_word(text.as_bytes()[at - 1]);
    match rest {
        [b'/', b'/', ..] => rest.iter().position(|b| *b == b'\n').unwrap_or(rest.len()),
        [b'/', b'*', ..] => comment_len(rest),
        [b'"', ..] => quoted_len(rest, b'"'),
        [b'r', b'"' | b'#', ..] if !in_word => raw_len(rest),
        [b'b' | b'c', b'r', b'"' | b'#', ..] if !in_word => match raw_len(&rest[1..]) {
            0 => 0,
            len => len + 1,
        },
        // A lifetime has no closing quote after its one character.
        [b'\'', b'\\', ..] => quoted_len(rest, b'\''),
        [b'\'', ..] => {
            let character = text[at + 1..].chars().next().map_or(0, char::len_utf8);
            if rest.get(1 + character) == Some(&b'\'') { character + 2 } else { 0 }
        }
        _ => 0,
    }
}

fn comment_len(rest: &[u8]) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < rest.len() {
        match rest[at..] {
            [b'/', b'*', ..] => (depth, at) = (depth + 1, at + 2),
            [b'*', b'/', ..] => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            break;
        }
    }
    at
}

fn quoted_len(rest: &[u8], quote: u8) -> usize {
    let mut at = 1;
    while at < rest.len() && rest[at] != quote {
        at += if rest[at] == b'\\' { 2 } else { 1 };
    }
    (at + 1).min(rest.len())
}

/// `r#"…"#`; a raw identifier `r#type` is code.
fn raw_len(rest: &[u8]) -> usize {
    let hashes = rest[1..].iter().take_while(|byte| **byte == b'#').count();
    if rest.get(1 + hashes) != Some(&b'"') {
        return 0;
    }
    let end = [b"\"", b"#".repeat(hashes).as_slice()].concat();
    let body = &rest[2 + hashes..];
    let found = body.windows(end.len()).position(|window| window == end.as_slice());
    found.map_or(rest.len(), |found| 2 + hashes + found + end.len())
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80
}

/// The line of a byte, counted from 1.
pub(crate) fn line_at(text: &str, at: usize) -> usize {
    text[..at].matches('\n').count() + 1
}

/// Every word with its start.
pub(crate) fn words_of(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let start = text.as_ptr() as usize;
    text.split(|c: char| !c.is_alphanumeric() && c != '_')
        .filter(|word| !word.is_empty())
        .map(move |word| (word.as_ptr() as usize - start, word))
}

/// The start of a function's body; none if the declaration ends first.
pub(crate) fn body_start(code: &str) -> Option<usize> {
    let mut depth = 0;
    for (at, byte) in code.bytes().enumerate() {
        match byte {
            b'(' | b'[' => depth += 1,
            b')' | b']' => depth -= 1,
            b'{' if depth == 0 => return Some(at),
            b';' if depth == 0 => return None,
            _ => {}
        }
    }
    None
}

/// The length from an opening bracket to its closing one.
pub(crate) fn block_len(code: &str) -> usize {
    let mut depth = 0;
    for (at, byte) in code.bytes().enumerate() {
        match byte {
            b'{' | b'(' | b'[' => depth += 1,
            b'}' | b')' | b']' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return at + 1;
        }
    }
    code.len()
}

/// Calls `rule` for every path with at least two parts, with `use` trees expanded.
pub(crate) fn each_path(text: &str, rule: impl Fn(&str) -> Option<String>) -> Complaints {
    let code = code(text);
    let mut found = Vec::new();
    let mut done = 0;
    for (at, _) in words_of(&code) {
        if at < done {
            continue;
        }
        let mut paths = Vec::new();
        done = at + expand(&code[at..], "", &mut paths);
        let complaints = paths.iter().filter(|path| path.contains("::")).filter_map(|p| rule(p));
        found.extend(complaints.map(|what| (line_at(&code, at), what)));
    }
    found
}

/// Expands `a::b::{c, d::e}` into its paths, and returns its length.
fn expand(code: &str, before: &str, paths: &mut Vec<String>) -> usize {
    let word = code.bytes().take_while(|byte| is_word(*byte)).count();
    let path = format!("{before}{}", &code[..word]);
    let Some(rest) = code[word..].strip_prefix("::") else {
        paths.push(path);
        return word;
    };
    let before = format!("{path}::");
    if rest.bytes().next().is_some_and(is_word) {
        return word + 2 + expand(rest, &before, paths);
    }
    if !rest.starts_with('{') {
        paths.push(path);
        return word + 2;
    }
    let group = block_len(rest);
    let mut at = 1;
    while at < group {
        let entry = rest[at..].bytes().next().is_some_and(is_word);
        at += if entry { expand(&rest[at..], &before, paths) } else { 1 };
    }
    word + 2 + group
}

/// Calls `rule` for the contents of every attribute.
pub(crate) fn attributes(text: &str, rule: impl Fn(&str) -> Option<String>) -> Complaints {
    let code = code(text);
    let mut found = Vec::new();
    for (at, _) in code.match_indices('#') {
        let open = at + 1 + usize::from(code[at + 1..].starts_with('!'));
        if !code[open..].starts_with('[') {
            continue;
        }
        let len = block_len(&code[open..]);
        let content = code[open + 1..open + len.max(2) - 1].trim();
        found.extend(rule(content).map(|what| (line_at(&code, at), what)));
    }
    found
}
