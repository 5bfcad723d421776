//! A function that others call fails with a type, which says whose fault it is (`model::error`, or
//! an error of its module): a text is for the reader, and nobody can act upon it.

use crate::source::{body_start, code, line_at, words_of};
use crate::tree::{all, hold, is_rust};
use crate::{Complaints, refused};

/// Where functions may have a text as an error, and why.
const UNTYPED: [(&str, &str); 2] = [
    ("src/agent/", "its functions have no types of errors yet"),
    ("src/model/cri.rs", "a condition that the runtime reports has a message, and is no failure"),
];

#[test]
fn no_public_function_fails_with_a_text() {
    let is_typed = |path: &str| {
        path.starts_with("src/") && !UNTYPED.iter().any(|(at, _)| path.starts_with(at))
    };
    hold(|f| is_rust(&f.path) && is_typed(&f.path), |f| untyped(&f.text));
    for (at, why) in UNTYPED {
        let mut files = all().into_iter().filter(|file| file.path.starts_with(at));
        assert!(files.any(|file| !untyped(&file.text).is_empty()), "{at} is typed: {why}");
    }
}

#[test]
fn a_text_as_an_error_is_refused() {
    for text in [
        "\npub fn a() -> Result<(), String> {}",
        "\npub(crate) fn a(b: &str) -> Option<Result<Vec<u8>, String>>;",
        "\n    pub(in crate::io) const fn a<T: Fn(u8)>(b: [u8; 3]) -> Result<(T, u8), String> {",
        "\npub fn a(b: impl Fn() -> Result<(), String>) {",
        "\npub(super) fn a(\n    b: u8,\n) -> Result<\n    Vec<u8>,\n    String,\n> {",
    ] {
        refused(&untyped(text), 2);
    }
    let fine = "fn a() -> Result<(), String> {}\n\
                pub fn b() -> Result<String, Error> { c::<Result<(), String>>() }\n\
                pub fn d(e: Result<u8, Input>) -> io::Result<String> {}";
    assert_eq!(untyped(fine), []);
}

/// Looks at whole signatures: a closure that is handed in fails, too.
fn untyped(text: &str) -> Complaints {
    let code = code(text);
    let mut found = Vec::new();
    for (at, _) in words_of(&code).filter(|(_, word)| *word == "fn") {
        let begins = code[..at].rfind([';', '{', '}', ']']).map_or(0, |end| end + 1);
        let rest = &code[at..];
        let end = body_start(rest).or_else(|| rest.find(';')).unwrap_or(rest.len());
        let is_public = code[begins..at].trim_start().starts_with("pub");
        if is_public && errors(&rest[..end]).any(|error| error == "String") {
            found.push((line_at(&code, at), "got String as the error, expected a type".to_owned()));
        }
    }
    found
}

/// The second argument of every `Result` that has one.
fn errors(signature: &str) -> impl Iterator<Item = &str> {
    signature.match_indices("Result<").filter_map(|(at, name)| {
        let arguments = &signature[at + name.len()..];
        let (mut depth, mut second, mut before) = (0, None, ' ');
        for (at, c) in arguments.char_indices() {
            match c {
                '<' | '(' | '[' => depth += 1,
                '>' if before == '-' => {}
                '>' if depth == 0 => {
                    return second.map(|from| arguments[from..at].trim_matches([' ', '\n', ',']));
                }
                '>' | ')' | ']' => depth -= 1,
                ',' if depth == 0 && second.is_none() => second = Some(at + 1),
                _ => {}
            }
            before = c;
        }
        None
    })
}
