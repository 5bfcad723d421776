//! Sibling modules depend on each other in one direction: otherwise none of them can be read,
//! tested or replaced without the others. A child may name its parent's types, and tests what they
//! need.

use std::collections::{BTreeMap, BTreeSet};

use crate::source::each_path;
use crate::tree::{all, is_rust};

#[test]
fn siblings_do_not_depend_on_each_other_in_a_circle() {
    let files: Vec<_> = all().into_iter().map(|file| (file.path, file.text)).collect();
    let parents: BTreeSet<&str> = files
        .iter()
        .filter(|(path, _)| is_code(path))
        .flat_map(|(path, _)| path.match_indices('/').map(|(at, _)| &path[..at]))
        .collect();
    let mut checked = 0;
    for parent in parents {
        let siblings = siblings(parent, &files);
        checked += usize::from(siblings.len() > 1);
        assert_eq!(circle(siblings), [""; 0], "{parent}");
    }
    assert!(checked > 50, "only {checked} modules have several children");
}

/// Each child of a module, with the siblings that its code names.
fn siblings(parent: &str, files: &[(String, String)]) -> BTreeMap<String, BTreeSet<String>> {
    let parent = modules(parent);
    let mut siblings: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (path, text) in files {
        let own = modules(path);
        let Some(name) = child_of(&parent, &own).filter(|_| is_code(path)) else { continue };
        let code = text.split("\n#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        let named = each_path(code, |path| {
            child_of(&parent, &resolved(&own, path)).filter(|other| *other != name)
        });
        siblings.entry(name).or_default().extend(named.into_iter().map(|(_, other)| other));
    }
    let names: BTreeSet<String> = siblings.keys().cloned().collect();
    for others in siblings.values_mut() {
        others.retain(|other| names.contains(other));
    }
    siblings
}

fn is_code(path: &str) -> bool {
    path.starts_with("src/") && is_rust(path) && !path.ends_with("tests.rs")
}

/// `src/agent/pod/mod.rs` → `agent`, `pod`. A stand-in for a module that is not built in is that
/// module.
fn modules(path: &str) -> Vec<String> {
    let path = path.strip_suffix(".rs").unwrap_or(path);
    let modules = path.split('/').skip(1).filter(|name| !["mod", "absent"].contains(name));
    modules.map(str::to_owned).collect()
}

fn child_of(parent: &[String], module: &[String]) -> Option<String> {
    module.strip_prefix(parent)?.first().cloned()
}

/// The module that a path in another one names, with the item at its end.
fn resolved(own: &[String], path: &str) -> Vec<String> {
    let mut at = own.to_vec();
    for (index, part) in path.split("::").enumerate() {
        match part {
            "crate" => at.clear(),
            "super" => drop(at.pop()),
            "self" => {}
            _ if index == 0 => return Vec::new(),
            name => at.push(name.to_owned()),
        }
    }
    at
}

/// The dependencies that are left when all modules without dependencies are taken away again and
/// again.
fn circle(mut siblings: BTreeMap<String, BTreeSet<String>>) -> Vec<String> {
    loop {
        let before = siblings.len();
        let left: BTreeSet<String> = siblings
            .iter()
            .filter(|(_, on)| !on.is_empty())
            .map(|(name, _)| name.clone())
            .collect();
        siblings.retain(|name, _| left.contains(name));
        for on in siblings.values_mut() {
            on.retain(|other| left.contains(other));
        }
        if siblings.len() == before {
            break;
        }
    }
    let edges = siblings.iter();
    edges.flat_map(|(name, on)| on.iter().map(move |on| format!("{name} names {on}"))).collect()
}

#[test]
fn a_circle_is_refused() {
    let check = |files: &[(&str, &str)]| {
        let files: Vec<_> =
            files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect();
        circle(siblings("src/agent", &files))
    };
    let fine = [
        ("src/agent/mod.rs", "use pods::Pods;"),
        (
            "src/agent/calls.rs",
            "use super::Config;\n#[cfg(test)]\nmod tests {\nuse super::super::pods;",
        ),
        ("src/agent/pods.rs", "use super::{calls, pod::Pod};"),
        ("src/agent/pod/mod.rs", "mod next;\nuse next::next;\nuse crate::agent::calls::Uid;"),
        ("src/agent/pod/next.rs", "use super::Pod;\nfn a() -> super::super::calls::Uid {}"),
        ("src/agent/pod/tests.rs", "use crate::agent::pods::Pods;"),
    ];
    assert_eq!(check(&fine), [""; 0]);
    for (path, text) in [
        ("src/agent/pod/next.rs", "use crate::{limits, agent::{pods::Pods, calls}};"),
        ("src/agent/pod/next.rs", "fn a(b: &super::super::pods::Pods) {}"),
        ("src/agent/pod/absent.rs", "use super::pods::Pods;"),
        ("src/agent/calls.rs", "use super::pods;"),
    ] {
        let changed =
            fine.map(|(other, old)| if other == path { (path, text) } else { (other, old) });
        let new = [(path, text)];
        let files: Vec<_> = changed.iter().chain(&new).copied().collect();
        assert!(check(&files).iter().any(|edge| edge.ends_with("names pods")), "{path}: {text}");
    }
}
