//! Signatures of upgrades: those that `scripts/release` makes, `edged verify-release` verifies and
//! `edged-run` accepts; and that nothing else is executed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::keeper::{Gateway, good};
use crate::{Scratch, TOP};

/// Runs a script of ours with the machine's shell, as the maker of a release does.
fn release(args: &[&str], files: &[&Path]) {
    let mut command = Command::new(Path::new(TOP).join("scripts/release"));
    let done = command.args(args).args(files).output().expect("a shell");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}

/// A gateway whose installed edged verifies as the real one does, after this command.
fn gateway(before: &str) -> Gateway {
    let gateway = Gateway::new();
    let real = env!("CARGO_BIN_EXE_edged");
    let verifies = format!("verify-release) {before}\nexec {real} \"$@\" ;;\nversion)");
    let flashed = good("flashed").replacen("version)", &verifies, 1);
    gateway.scratch.program("edged-flashed", &flashed);
    gateway
}

/// An edged that leaves a trace wherever anything of it is executed.
fn traced(scratch: &Scratch, name: &str) -> PathBuf {
    let trace = scratch.path("trace").display().to_string();
    let text = good(name).replacen("case", &format!("echo $0 >>{trace}\ncase"), 1);
    scratch.program(name, &text)
}

/// A pair of keys, of which the gateway has the public one.
fn key(scratch: &Scratch, name: &str) -> PathBuf {
    let key = scratch.path(name);
    release(&["--new-key"], &[&key]);
    key
}

/// The error message.
fn refused(gateway: &Gateway, file: &Path) -> String {
    let done = gateway.command().arg("upgrade").arg(file).output().expect("busybox runs");
    let why = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(!done.status.success(), "{why}");
    assert!(why.contains("edged-run upgrade --unsigned"), "{why}");
    assert!(!gateway.scratch.path("trace").exists(), "it was run");
    let slot = gateway.scratch.path("home/a");
    let left = fs::read_dir(slot).expect("the slot").count();
    assert_eq!((left, &*gateway.current()), (0, ""), "something of it stays");
    assert!(gateway.is_trusted());
    why
}

#[test]
fn what_the_release_key_signed_is_tried() {
    let gateway = gateway("");
    let scratch = &gateway.scratch;
    let key = key(scratch, "release");
    let new = traced(scratch, "new");
    release(&["--sign"], &[&key, &new]);
    let done = gateway.command().arg("verify").arg(&new).output().expect("busybox runs");
    let output = String::from_utf8_lossy(&done.stdout);
    assert!(done.status.success() && output.contains("signed by the release key"), "{done:?}");
    let done = gateway.command().arg("upgrade").arg(&new).output().expect("busybox runs");
    assert!(done.status.success(), "{done:?}");
    assert_eq!(gateway.current(), "a");
    // Only the copy was executed, and no other file.
    assert_eq!(scratch.read("trace"), scratch.path("home/a/edged.new").display().to_string());
    assert_eq!(fs::read_dir(scratch.path("home/a")).expect("the slot").count(), 1);
}

#[test]
fn nothing_is_run_of_what_it_did_not_sign() {
    let gateway = gateway("");
    let scratch = &gateway.scratch;
    let new = traced(scratch, "new");
    assert!(refused(&gateway, &new).contains("got no release key in "));
    let key = key(scratch, "release");
    assert!(refused(&gateway, &new).contains("got no signature beside it"));
    let other = scratch.path("other");
    release(&["--new-key"], &[&other]);
    release(&["--sign"], &[&other, &new]);
    assert!(refused(&gateway, &new).contains("is not a signature of it by this key"));
    release(&["--sign"], &[&key, &new]);
    let text = fs::read_to_string(&new).expect("a file of ours");
    fs::write(&new, text + "# more\n").expect("a file of ours");
    assert!(refused(&gateway, &new).contains("is not a signature of it by this key"));
    // An edged without verification accepts nothing.
    release(&["--sign"], &[&key, &new]);
    let old = good("flashed").replacen("case", "[ $1 != verify-release ] || exit 2\ncase", 1);
    scratch.program("edged-flashed", &old);
    refused(&gateway, &new);
    let mut command = gateway.command();
    let done = command.args(["upgrade", "--unsigned"]).arg(&new).output().expect("busybox runs");
    assert!(done.status.success(), "{done:?}");
    assert_eq!(gateway.current(), "a");
}

#[test]
fn what_was_checked_is_what_is_run() {
    // An attacker with write access to the upgrade's folder replaces it while it is verified.
    let gateway = gateway("cp $EVIL $NEW");
    let scratch = &gateway.scratch;
    let key = key(scratch, "release");
    let new = scratch.program("new", &good("new"));
    release(&["--sign"], &[&key, &new]);
    let evil = traced(scratch, "evil");
    let mut command = gateway.command();
    command.env("EVIL", &evil).env("NEW", &new).arg("upgrade").arg(&new);
    let done = command.output().expect("busybox runs");
    assert!(done.status.success(), "{done:?}");
    assert_eq!(fs::read_to_string(&new).ok(), fs::read_to_string(&evil).ok(), "it was replaced");
    assert_eq!(fs::read_to_string(scratch.path("home/a/edged")).expect("a copy"), good("new"));
    assert!(!scratch.path("trace").exists(), "it was run");
}

#[test]
fn a_key_is_kept_secret_and_never_made_twice() {
    use std::os::unix::fs::PermissionsExt;
    let scratch = Scratch::new();
    let key = key(&scratch, "release");
    let mode = fs::metadata(&key).expect("it was made").permissions().mode();
    assert_eq!(mode & 0o077, 0, "{mode:o}");
    let before = fs::read(&key).expect("it was made");
    let mut command = Command::new(Path::new(TOP).join("scripts/release"));
    let done = command.arg("--new-key").arg(&key).output().expect("a shell");
    assert!(!done.status.success());
    assert_eq!(fs::read(&key).expect("it is there"), before, "releases could be signed no more");
}
