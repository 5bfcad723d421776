//! The path of a rule whose source is rest, and which of several a request means (spec
//! `servicebus-router-tasks`, section 4).
//!
//! A pattern matches a path that begins with its elements, where `{name}` is any one element. Of
//! several that match the longest one is taken, and of those the one with the earlier literal
//! element: one of them, in any order of rules. CloudCore searches a regular expression in the
//! whole URL, and takes one of several by chance.

use std::cmp::Ordering;

use crate::limits::ROUTER_PATH_ELEMENTS_MAX;
use crate::model::error::Input;

/// The path of a rule.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Pattern(Box<[Element]>);

/// One of its elements. Literals come first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Element {
    Literal(Box<str>),
    /// `{name}`
    Any,
}

impl Pattern {
    /// Reads `/a/{b}/c`. Slashes at both ends do not count.
    pub(super) fn read(path: &str) -> Result<Self, Input> {
        let wrong = |expected: String| Err(Input::quoted(path, expected));
        let trimmed = path.trim_matches('/');
        if trimmed.is_empty() {
            return Ok(Self(Box::default()));
        }
        let mut elements = Vec::new();
        for element in trimmed.split('/') {
            let name = element.strip_prefix('{').and_then(|rest| rest.strip_suffix('}'));
            let is_literal = !element.is_empty()
                && !is_dots(element)
                && element.bytes().all(|byte| byte.is_ascii_graphic())
                && !element.contains(['{', '}', '?', '#']);
            elements.push(match name {
                Some(name) if !name.is_empty() && !name.contains(['{', '}']) => Element::Any,
                None if is_literal => Element::Literal(element.into()),
                Some(_) | None => {
                    return wrong("elements of visible ASCII characters, or {name}".to_owned());
                }
            });
        }
        if elements.len() > ROUTER_PATH_ELEMENTS_MAX {
            return wrong(format!("{ROUTER_PATH_ELEMENTS_MAX} elements at most"));
        }
        Ok(Self(elements.into()))
    }

    /// What follows in a path that it matches, without the slash before it.
    pub(super) fn match_path<'a>(&self, path: &'a str) -> Option<&'a str> {
        let mut rest = Some(path);
        for element in &self.0 {
            let (first, tail) = match rest?.split_once('/') {
                Some((first, tail)) => (first, Some(tail)),
                None => (rest?, None),
            };
            let fits = match element {
                Element::Literal(literal) => **literal == *first,
                Element::Any => !first.is_empty(),
            };
            if !fits {
                return None;
            }
            rest = tail;
        }
        Some(rest.unwrap_or_default())
    }

    /// Which of two that match the same path is meant: the greater one.
    pub(super) fn preference(&self, other: &Self) -> Ordering {
        self.0.len().cmp(&other.0.len()).then_with(|| other.cmp(self))
    }
}

/// Whether an element of a path leads elsewhere: `.` and `..`, escaped or not.
pub(super) fn is_dots(element: &str) -> bool {
    let plain = element.to_ascii_lowercase().replace("%2e", ".");
    matches!(&*plain, "." | "..")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(path: &str) -> Pattern {
        Pattern::read(path).expect(path)
    }

    #[test]
    fn a_pattern_matches_whole_elements_from_the_beginning() {
        for (of, path, rest) in [
            ("/a", "a", Some("")),
            ("/a", "a/", Some("")),
            ("a/", "a/b/c", Some("b/c")),
            ("/a", "ab", None),
            ("/a", "x/a", None),
            ("/a/b", "a", None),
            ("/a//", "a", Some("")),
            ("/a/{id}/b", "a/7/b/c", Some("c")),
            ("/a/{id}/b", "a//b", None),
            ("/{id}", "", None),
            ("/", "a/b", Some("a/b")),
            ("/", "", Some("")),
            ("/a.c", "abc", None),
        ] {
            assert_eq!(pattern(of).match_path(path), rest, "{of} {path}");
        }
    }

    #[test]
    fn the_longest_is_meant_and_then_the_one_with_the_earlier_literal() {
        for (better, worse) in [
            ("/a/b", "/a"),
            ("/{x}/{y}", "/a"),
            ("/a/{x}", "/{x}/b"),
            ("/a/b/{x}", "/a/{x}/c"),
            ("/a", "/"),
        ] {
            let (better, worse) = (pattern(better), pattern(worse));
            assert_eq!(better.preference(&worse), Ordering::Greater, "{better:?} {worse:?}");
            assert_eq!(worse.preference(&better), Ordering::Less, "{better:?} {worse:?}");
        }
        assert_eq!(pattern("/a/{x}"), pattern("a/{other}/"), "names do not matter");
    }

    #[test]
    fn what_is_no_path_is_refused() {
        let long = "/a".repeat(ROUTER_PATH_ELEMENTS_MAX + 1);
        for path in
            ["/a//b", "/a/../b", "/%2E./b", "/{}", "/{a}b", "/a{b", "/a b", "/ä", "/a?b", &long]
        {
            let why = Pattern::read(path).expect_err(path).to_string();
            assert!(why.contains("expected"), "{why}");
        }
        pattern(&"/a".repeat(ROUTER_PATH_ELEMENTS_MAX));
    }
}
