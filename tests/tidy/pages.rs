//! The pages for users: README's length, valid links, a drawing that agrees with the figures.

use std::fs;
use std::path::{Component, Path, PathBuf};
use std::process::Command;

use crate::tree::{File, extension, hold};
use crate::{Complaints, one, refused};

const README_LINES_MAX: usize = 200;

fn top() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn the_readme_has_at_most_200_lines() {
    hold(|f| f.path == "README.md", |f| length(&f.text));
}

#[test]
fn links_between_pages_lead_somewhere() {
    hold(|f| extension(&f.path) == "md", links);
}

#[test]
fn the_drawing_shows_the_recorded_figures() {
    let drawn = Command::new("sh").arg(top().join("scripts/plots")).arg("--print").output();
    let drawn = drawn.expect("a shell is here");
    assert!(drawn.status.success(), "{}", String::from_utf8_lossy(&drawn.stderr));
    let kept = fs::read(top().join("docs/peers.svg")).expect("docs/peers.svg");
    assert!(
        drawn.stdout == kept,
        "docs/peers.svg differs from the output of scripts/plots: run it"
    );
}

#[test]
fn a_long_readme_is_refused() {
    assert_eq!(length(&"\n".repeat(README_LINES_MAX)), []);
    refused(&length(&"\n".repeat(README_LINES_MAX + 1)), README_LINES_MAX);
}

#[test]
fn a_link_to_nothing_is_refused() {
    let page = |text: &str| {
        let (path, text) = ("docs/any.md".to_owned(), text.to_owned());
        links(&File { path, text, executable: false })
    };
    assert_eq!(page("[a](../README.md#two-commands) [b](https://kubeedge.io) `[c](d)`"), []);
    refused(&page("\n[a](README.md)"), 2);
    refused(&page("[a](../README.md#three-commands)"), 1);
}

fn length(text: &str) -> Complaints {
    let lines = text.lines().count();
    let what = format!("the page has {lines} lines, expected at most {README_LINES_MAX}");
    one(lines > README_LINES_MAX, README_LINES_MAX, what)
}

/// Relative links, `[…](PATH)` or `[…](PATH#HEADING)`, outside of code.
fn links(page: &File) -> Complaints {
    let folder = Path::new(&page.path).parent().expect("a file is in a folder");
    let mut found = Vec::new();
    for (at, line) in page.text.lines().enumerate() {
        let prose: String = line.split('`').step_by(2).collect();
        for rest in prose.split("](").skip(1) {
            let target = rest.split(')').next().unwrap_or_default();
            if target.contains("://") {
                continue;
            }
            let (path, heading) = target.split_once('#').unwrap_or((target, ""));
            let path = if path.is_empty() { PathBuf::from(&page.path) } else { folder.join(path) };
            let path = top().join(flat(&path));
            let text = fs::read_to_string(&path).unwrap_or_default();
            if !path.exists() {
                found.push((at + 1, format!("{target}: there is no such file")));
            } else if !heading.is_empty() && !headings(&text).any(|it| it == heading) {
                found.push((at + 1, format!("{target}: the page has no such heading")));
            }
        }
    }
    found
}

/// Without `..`.
fn flat(path: &Path) -> PathBuf {
    let mut parts = Vec::new();
    for part in path.components() {
        if part == Component::ParentDir {
            parts.pop();
        } else {
            parts.push(part);
        }
    }
    parts.into_iter().collect()
}

/// The headings of a page, as links name them.
fn headings(text: &str) -> impl Iterator<Item = String> {
    text.lines().filter(|line| line.starts_with('#')).map(|line| {
        let words = line.trim_start_matches('#').trim().to_lowercase();
        let kept = words.chars().filter(|it| it.is_alphanumeric() || [' ', '-'].contains(it));
        kept.map(|it| if it == ' ' { '-' } else { it }).collect()
    })
}
