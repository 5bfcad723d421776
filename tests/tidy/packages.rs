//! The sources and licences of packages, checked without any tool but cargo. `cargo deny` reads the
//! same list and checks more: advisories, yanked and duplicate packages.

use std::collections::BTreeSet;
use std::env;
use std::fs;
use std::process::Command;

use serde_json::{Map, Value};

#[test]
fn every_package_comes_from_the_one_index() {
    assert_eq!(foreign_sources(&read("Cargo.lock")), Vec::<&str>::new());
}

#[test]
fn every_package_has_a_licence_of_the_list() {
    let allowed = allowed_licences(&read("deny.toml"));
    assert!(allowed.contains(&"MIT".to_owned()), "got {allowed:?}");
    for package in packages() {
        let [name, licence] = ["name", "license"].map(|key| text(&package[key]));
        assert!(satisfied(&licence, &allowed), "{name} is under {licence}, expected {allowed:?}");
    }
}

/// What the simulators run is all that there is.
#[test]
fn the_package_of_the_simulators_switches_on_every_feature() {
    let packages = packages();
    let features = |name: &str| {
        let package = packages.iter().find(|package| package["name"] == name);
        let features = &package.expect("a package of this workspace")["features"];
        features.as_object().expect("names, with what they switch on").clone()
    };
    let (all, simulated) = (features("edged"), features("edged-simulators"));
    let names = |all: &Map<String, Value>| all.keys().cloned().collect::<BTreeSet<_>>();
    assert_eq!(names(&simulated), names(&all));
    let on = simulated["default"].as_array().expect("a list").iter().map(text);
    let mut due = names(&all);
    due.remove("default");
    assert_eq!(on.collect::<BTreeSet<_>>(), due);
}

#[test]
fn a_package_from_elsewhere_is_refused() {
    let index = "source = \"registry+https://github.com/rust-lang/any\"\n";
    assert_eq!(foreign_sources(index), Vec::<&str>::new());
    let git = "source = \"git+https://github.com/rust-lang/log#0\"\n";
    assert_eq!(foreign_sources(&format!("{index}{git}")), [git.trim()]);
}

#[test]
fn a_licence_beyond_the_list_is_refused() {
    let allowed = allowed_licences("[licenses]\nallow = [\n  \"MIT\",\n  \"Unicode-3.0\",\n]\n");
    for fine in ["MIT", "GPL-3.0/MIT", "(ISC OR MIT) AND Unicode-3.0", "(MIT AND ISC) OR MIT"] {
        assert!(satisfied(fine, &allowed), "{fine}");
    }
    for bad in ["", "GPL-3.0", "MIT AND GPL-3.0", "(MIT AND GPL-3.0) OR ISC", "MIT WITH it"] {
        assert!(!satisfied(bad, &allowed), "{bad}");
    }
}

fn foreign_sources(lock: &str) -> Vec<&str> {
    lock.lines()
        .filter(|line| line.starts_with("source = "))
        .filter(|line| !line.starts_with("source = \"registry+https://github.com/rust-lang/"))
        .collect()
}

fn allowed_licences(deny: &str) -> Vec<String> {
    let list = deny.split_once("\nallow = [\n").and_then(|(_, rest)| rest.split_once(']'));
    let (list, _) = list.expect("deny.toml has a list `allow`, a line each");
    list.split(',').map(|name| name.trim().trim_matches('"').to_owned()).collect()
}

/// All packages that are built on this machine, tests included, as `cargo metadata` has them.
fn packages() -> Vec<Value> {
    let cargo = env::var_os("CARGO").expect("cargo runs this test and sets its path");
    let platform = format!("{}-unknown-linux-gnu", env::consts::ARCH);
    let out = Command::new(cargo)
        .args(["metadata", "--format-version=1", "--locked", "--offline", "--all-features"])
        .args(["--filter-platform", &platform])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo runs");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let metadata: Value = serde_json::from_slice(&out.stdout).expect("cargo metadata is JSON");
    metadata["packages"].as_array().expect("a list of packages").clone()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// Evaluates an SPDX expression: OR binds less than AND, `/` is an old OR; WITH is not supported.
fn satisfied(expression: &str, allowed: &[String]) -> bool {
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let mut words = spaced.split_whitespace().peekable();
    let fits = any_of(&mut words, allowed);
    fits && words.next().is_none()
}

type Words<'a> = std::iter::Peekable<std::str::SplitWhitespace<'a>>;

fn any_of(words: &mut Words<'_>, allowed: &[String]) -> bool {
    let mut fits = all_of(words, allowed);
    while words.next_if_eq(&"OR").is_some() {
        fits |= all_of(words, allowed);
    }
    fits
}

fn all_of(words: &mut Words<'_>, allowed: &[String]) -> bool {
    let mut fits = true;
    loop {
        fits &= match words.next() {
            Some("(") => {
                let inner = any_of(words, allowed);
                (words.next() == Some(")")) && inner
            }
            Some(name) => allowed.iter().any(|known| known == name),
            None => false,
        };
        if words.next_if_eq(&"AND").is_none() {
            return fits;
        }
    }
}

fn read(name: &str) -> String {
    let path = format!("{}/{name}", env!("CARGO_MANIFEST_DIR"));
    fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path}: {e}"))
}
