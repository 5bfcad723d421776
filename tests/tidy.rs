//! Style and dependency rules as a test: those that `rustfmt` and clippy do not check. Every rule
//! is a function from a file's path and text to complaints. Each has a counter-test with a text
//! that it must refuse, because a rule that cannot fail checks nothing.
//!
//! The rules read the source with strings and comments blanked out, not a syntax tree: enough for
//! usual code, and without a further package.

#[path = "tidy/dialect.rs"]
mod dialect;
#[path = "tidy/errors.rs"]
mod errors;
#[path = "tidy/json.rs"]
mod json;
#[path = "tidy/limits.rs"]
mod limits;
#[path = "tidy/mutation.rs"]
mod mutation;
#[path = "tidy/packages.rs"]
mod packages;
#[path = "tidy/pages.rs"]
mod pages;
#[path = "tidy/siblings.rs"]
mod siblings;
#[path = "tidy/source.rs"]
mod source;
#[path = "tidy/tree.rs"]
mod tree;

use source::{attributes, block_len, body_start, code, each_path, line_at, words_of};
use tree::{File, hold, is_code, is_foreign, is_rust, is_script};

/// What a rule found: a line, counted from 1, and the problem there.
type Complaints = Vec<(usize, String)>;

// ---- the rules over the tree ----

#[test]
fn files_have_at_most_800_lines() {
    hold(|f| is_rust(&f.path), |f| file_length(&f.text));
}

#[test]
fn functions_have_at_most_70_lines() {
    hold(|f| is_rust(&f.path), |f| function_length(&f.text));
}

#[test]
fn lines_have_at_most_100_columns() {
    hold(|f| is_code(&f.path), |f| columns(&f.text));
}

#[test]
fn lines_have_no_tab_and_no_space_at_their_end() {
    hold(|f| !is_foreign(&f.path), |f| blanks(&f.path, &f.text));
}

#[test]
fn every_source_file_says_what_it_is_for() {
    hold(|f| is_rust(&f.path) && f.path.starts_with("src/"), |f| module_doc(&f.text));
}

#[test]
fn the_layers_see_only_what_lies_below_them() {
    hold(|f| is_rust(&f.path), |f| layers(&f.path, &f.text));
}

#[test]
fn only_the_event_loop_touches_the_world() {
    hold(|f| is_rust(&f.path), |f| outside_world(&f.path, &f.text));
}

#[test]
fn the_core_keeps_no_unordered_and_no_shared_state() {
    let cores = ["src/agent/", "src/controller/", "src/core/", "src/runtime/"];
    hold(|f| cores.iter().any(|at| f.path.starts_with(at)), |f| unordered_state(&f.text));
}

#[test]
fn what_is_left_to_do_names_its_condition() {
    hold(|f| !is_foreign(&f.path), |f| left_to_do(&f.text));
}

#[test]
fn no_test_is_ignored() {
    hold(|f| is_rust(&f.path), |f| ignored(&f.text));
}

#[test]
fn every_allowed_lint_has_a_reason() {
    hold(|f| is_rust(&f.path), |f| allowed(&f.text));
}

#[test]
fn scripts_are_strict_explained_and_executable() {
    hold(|f| is_script(&f.path), script);
}

#[test]
fn make_targets_are_explained_and_one_line_each() {
    hold(|f| f.path == "Makefile", |f| makefile(&f.text));
}

#[test]
fn no_text_names_a_registry_a_tracker_or_one_machine() {
    hold(|f| !f.path.ends_with("Cargo.lock"), |f| words(&f.text));
}

// ---- each rule ----

fn file_length(text: &str) -> Complaints {
    let lines = text.lines().count();
    one(lines > 800, 800, format!("the file has {lines} lines, expected at most 800"))
}

/// From the line of `fn` to that of its last brace.
fn function_length(text: &str) -> Complaints {
    let code = code(text);
    let mut found = Vec::new();
    for (at, word) in words_of(&code) {
        let rest = &code[at + word.len()..];
        let name = rest.trim_start();
        let named = name.starts_with(|c: char| c.is_alphabetic() || c == '_');
        if word != "fn" || !named {
            continue;
        }
        let Some(open) = body_start(rest) else { continue };
        let lines = rest[..open + block_len(&rest[open..])].matches('\n').count() + 1;
        if lines > 70 {
            let name = name.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or("");
            found.push((
                line_at(&code, at),
                format!("fn {name} has {lines} lines, expected at most 70"),
            ));
        }
    }
    found
}

fn columns(text: &str) -> Complaints {
    each_line(text, |line| {
        let columns = line.chars().count();
        (columns > 100).then(|| format!("{columns} columns, expected at most 100"))
    })
}

fn blanks(path: &str, text: &str) -> Complaints {
    let tabs = path == "Makefile";
    let mut found = each_line(text, |line| {
        if line.ends_with([' ', '\t', '\r']) {
            Some("blank at the end of the line".to_owned())
        } else {
            (!tabs && line.contains('\t')).then(|| "a tab".to_owned())
        }
    });
    let end = text.lines().count();
    let whole = text.is_empty() || (text.ends_with('\n') && !text.ends_with("\n\n"));
    found.extend(one(!whole, end, "expected one newline at the end".to_owned()));
    found
}

fn module_doc(text: &str) -> Complaints {
    one(!text.starts_with("//! "), 1, "expected a module doc, `//! …`".to_owned())
}

/// `model ← wire ← io` and `model ← core ← agent, controller, runtime ← io`; wire and the cores
/// never depend on each other.
fn layers(path: &str, text: &str) -> Complaints {
    const BELOW: [(&str, &[&str]); 6] = [
        ("src/model", &["wire", "core", "agent", "controller", "io"]),
        ("src/wire", &["core", "agent", "controller", "io"]),
        ("src/core", &["wire", "agent", "controller", "io"]),
        ("src/agent", &["wire", "controller", "io"]),
        ("src/controller", &["wire", "agent", "io"]),
        ("src/runtime", &["wire", "agent", "controller", "io"]),
    ];
    let Some((_, barred)) = BELOW.iter().find(|(layer, _)| {
        path.strip_prefix(layer).is_some_and(|rest| rest.starts_with(['/', '.']))
    }) else {
        return Vec::new();
    };
    each_path(text, |path| {
        let mut parts = path.split("::").skip_while(|part| *part == "super" || *part == "self");
        let rooted = path.starts_with("crate::") || path.starts_with("super::");
        let first = if path.starts_with("crate::") { parts.nth(1) } else { parts.next() };
        let layer = first.filter(|name| rooted && barred.contains(name))?;
        Some(format!("{path} reaches into {layer}"))
    })
}

/// Sockets, files, processes, threads and clocks.
fn outside_world(path: &str, text: &str) -> Complaints {
    const ALLOWED: [&str; 5] = ["src/io/", "src/main.rs", "src/config.rs", "src/bin/", "tests/"];
    const PACKAGES: [&str; 7] = ["mio", "tungstenite", "rustls", "rusqlite", "ureq", "nix", "libc"];
    const STD: [&str; 5] = ["std::fs", "std::net", "std::process", "std::thread", "std::env"];
    if ALLOWED.iter().any(|at| path.starts_with(at)) {
        return Vec::new();
    }
    each_path(text, |path| {
        let first = path.split("::").next().unwrap_or_default();
        let std = STD.iter().any(|name| {
            path.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
        });
        let clock = ["Instant::now", "SystemTime::now"].iter().any(|name| path.ends_with(name));
        (PACKAGES.contains(&first) && path != first || std || clock)
            .then(|| format!("{path} belongs under src/io"))
    })
}

/// Order decides outcomes, and a seed must replay: so neither hashing nor shared cells.
fn unordered_state(text: &str) -> Complaints {
    let code = code(text);
    words_of(&code)
        .filter(|(_, word)| ["HashMap", "HashSet", "Rc", "RefCell"].contains(word))
        .map(|(at, word)| (line_at(&code, at), format!("{word} in the core")))
        .collect()
}

/// The marker is put together here, or this file would break its own rule.
fn left_to_do(text: &str) -> Complaints {
    const MARKS: [&str; 3] = [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X")];
    let mut found = Vec::new();
    for (at, word) in words_of(text).filter(|(_, word)| MARKS.contains(word)) {
        let condition = text[at + word.len()..].strip_prefix('(').and_then(|c| c.split_once(')'));
        if condition.is_none_or(|(condition, _)| condition.trim().is_empty()) {
            found.push((line_at(text, at), format!("{word} without (its condition)")));
        }
    }
    found
}

fn ignored(text: &str) -> Complaints {
    attributes(text, |content| {
        content.starts_with("ignore").then(|| "an ignored test proves nothing".to_owned())
    })
}

fn allowed(text: &str) -> Complaints {
    attributes(text, |content| {
        let relaxes = words_of(content).any(|(at, word)| {
            ["allow", "expect"].contains(&word) && content[at + word.len()..].starts_with('(')
        });
        (relaxes && !content.contains("reason ="))
            .then(|| format!("#[{content}] without a reason = \"…\""))
    })
}

fn script(file: &File) -> Complaints {
    let (shell, strict) = match file.path.as_str() {
        ".ci/run" => ("#!/usr/bin/env bash\n# ", "\nset -euo pipefail\n"),
        _ => ("#!/bin/sh\n# ", "\nset -eu\n"),
    };
    let mut found = Vec::new();
    found.extend(one(!file.text.starts_with(shell), 1, format!("expected to begin {shell:?}")));
    found.extend(one(!file.text.contains(strict), 1, format!("expected {strict:?}")));
    found.extend(one(!file.text.contains("\n# When: "), 1, "expected «# When: …»".to_owned()));
    found.extend(one(!file.executable, 1, "expected to be executable".to_owned()));
    found
}

fn makefile(text: &str) -> Complaints {
    let mut recipe = 0;
    each_line(text, |line| {
        recipe = if line.starts_with('\t') { recipe + 1 } else { 0 };
        let target = line.split(':').next().filter(|_| line.contains(':') && !line.contains('='));
        let target = target.filter(|name| name.starts_with(|c: char| c.is_ascii_lowercase()));
        if recipe > 1 {
            Some("a recipe of more than one line belongs in scripts/".to_owned())
        } else {
            (target.is_some() && !line.contains(" ## "))
                .then(|| "expected «## what it does» after the target".to_owned())
        }
    })
}

/// Put together here for the same reason as above.
fn words(text: &str) -> Complaints {
    const WORDS: [&str; 11] = [
        concat!("crates", ".io"),
        concat!("pypi", ".org"),
        concat!("python", "hosted"),
        concat!("npm", "js."),
        concat!("proxy.golang", ".org"),
        concat!("debian", ".org"),
        concat!("rust-lang", ".org"),
        concat!("../", "shared"),
        concat!("/work", "/wt"),
        concat!("/work", "/main"),
        concat!("issue", " #"),
    ];
    each_line(text, |line| {
        let word = WORDS.iter().find(|word| line.contains(*word))?;
        Some(format!("names «{word}»"))
    })
}

fn one(wrong: bool, line: usize, what: String) -> Complaints {
    if wrong { vec![(line, what)] } else { Vec::new() }
}

fn each_line(text: &str, mut rule: impl FnMut(&str) -> Option<String>) -> Complaints {
    let found = text.split('\n').enumerate();
    found.filter_map(|(at, line)| Some((at + 1, rule(line)?))).collect()
}

// ---- each rule can fail ----

#[test]
fn a_long_file_is_refused() {
    assert_eq!(file_length(&"//\n".repeat(800)), []);
    refused(&file_length(&"//\n".repeat(801)), 800);
}

#[test]
fn a_long_function_is_refused() {
    let of = |lines: usize| format!("\nfn a(b: fn(u8)) {{\n{}}}\n", "b(1); // }\n".repeat(lines));
    assert_eq!(function_length(&of(68)), []);
    refused(&function_length(&of(69)), 2);
    let hidden = of(69).replace("b(1); // }", "b(\"}\"); let c = '}'; let d = r#\"\"}\"#;");
    refused(&function_length(&hidden), 2);
    assert_eq!(function_length(&format!("fn a(b: [u8; 3]);\n{}", "\n".repeat(99))), []);
}

#[test]
fn a_wide_line_is_refused() {
    assert_eq!(columns(&"é".repeat(100)), []);
    refused(&columns(&format!("\n{}", "x".repeat(101))), 2);
}

#[test]
fn tabs_and_loose_ends_are_refused() {
    assert_eq!(blanks("a.rs", "a\n"), []);
    assert_eq!(blanks("Makefile", "a:\n\tb\n"), []);
    for text in ["\ta\n", "a \n", "a\r\n", "a"] {
        refused(&blanks("a.rs", text), 1);
    }
    refused(&blanks("a.rs", "a\n\n"), 2);
}

#[test]
fn a_missing_module_doc_is_refused() {
    assert_eq!(module_doc("//! What it is for.\n"), []);
    refused(&module_doc("use std::fmt;\n"), 1);
}

#[test]
fn a_reach_into_another_layer_is_refused() {
    for (path, text) in [
        ("src/model/pod.rs", "\nuse crate::wire::cri;"),
        ("src/model/pod.rs", "\nuse crate::{limits, agent::{hub, meta}};"),
        ("src/wire/cri.rs", "\nfn a() { crate::io::now() }"),
        ("src/agent/mod.rs", "\nuse super::wire;"),
        ("src/agent/pod/next.rs", "\nuse super::super::io::disk;"),
        ("src/runtime/images.rs", "\nuse crate::wire::oci;"),
    ] {
        refused(&layers(path, text), 2);
    }
    let fine =
        "use crate::{agent, model}; use std::io; // crate::wire\nconst A: &str = \"crate::io\";";
    assert_eq!(layers("src/agent/hub.rs", fine), []);
    assert_eq!(layers("src/io/mod.rs", "use crate::{agent, wire};"), []);
}

#[test]
fn the_world_outside_the_event_loop_is_refused() {
    for text in [
        "use mio::Poll;",
        "use std::{fmt, fs};",
        "use std::{collections::BTreeMap, net::{IpAddr, TcpStream}};",
        "let a = std::env::var(b);",
        "let a = Instant::now();",
        "let a = libc::getpid();",
        "use nix::{sys::signal, unistd};",
    ] {
        refused(&outside_world("src/agent/mod.rs", text), 1);
        assert_eq!(outside_world("src/io/mod.rs", text), []);
    }
    let fine = "use std::{fmt, io}; let rustls = 1; struct Now { boot: Instant }";
    assert_eq!(outside_world("src/wire/h2.rs", fine), []);
}

#[test]
fn hashing_and_shared_cells_are_refused_in_the_core() {
    assert_eq!(unordered_state("use std::collections::BTreeMap; // not HashMap"), []);
    refused(&unordered_state("use std::collections::{BTreeMap, HashMap};"), 1);
    refused(&unordered_state("\nstruct A { b: Rc<u8> }"), 2);
}

#[test]
fn an_unconditional_mark_is_refused() {
    let mark = concat!("TO", "DO");
    assert_eq!(
        left_to_do(&format!("// {mark}(once containerd 2 is the minimum): drop this\n")),
        []
    );
    refused(&left_to_do(&format!("\n// {mark}: drop this\n")), 2);
    refused(&left_to_do(&format!("# {mark}( ) drop this\n")), 1);
}

#[test]
fn an_ignored_test_is_refused() {
    assert_eq!(ignored("// #[ignore]\nconst A: &str = \"#[ignore]\";"), []);
    refused(&ignored("#[test]\n#[ignore = \"slow\"]\nfn a() {}"), 2);
}

#[test]
fn a_lint_allowed_without_reason_is_refused() {
    assert_eq!(allowed("#[allow(dead_code, reason = \"read by the debugger\")]"), []);
    refused(&allowed("#![allow(\n    dead_code,\n)]"), 1);
    refused(&allowed("\n#[cfg_attr(test, expect(dead_code))]"), 2);
}

#[test]
fn a_careless_script_is_refused() {
    let script_of = |text: &str, executable: bool| {
        script(&File { path: "scripts/a".to_owned(), text: text.to_owned(), executable })
    };
    let good = "#!/bin/sh\n# Says.\n# When: always.\nset -eu\n";
    assert_eq!(script_of(good, true), []);
    refused(&script_of(good, false), 1);
    for part in ["/bin/sh\n# Says", "# When: always.", "set -eu"] {
        refused(&script_of(&good.replace(part, ""), true), 1);
    }
}

#[test]
fn an_unexplained_or_long_make_target_is_refused() {
    assert_eq!(makefile("A := b\n.PHONY: a\na: b ## does it\n\tb\n"), []);
    refused(&makefile("\na: b\n"), 2);
    refused(&makefile("a: ## does it\n\tb\n\tc\n"), 3);
}

#[test]
fn a_barred_word_is_refused() {
    assert_eq!(words("a crate's index\n"), []);
    refused(&words(concat!("\nfetch it from crates", ".io\n")), 2);
}

fn refused(complaints: &[(usize, String)], line: usize) {
    let mut lines: Vec<usize> = complaints.iter().map(|(line, _)| *line).collect();
    lines.dedup();
    assert_eq!(lines, [line], "{complaints:?}");
}
