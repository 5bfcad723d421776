//! The parts around the program on a gateway: the scripts of `config/init` and `scripts/install`,
//! run by busybox's shell with busybox's tools, and a read-only root.
#![allow(clippy::disallowed_methods, reason = "real processes need real time")]

mod install;
mod keeper;
#[path = "../support/program.rs"]
mod program;
mod read_only;
mod server;
mod signed;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// The folder of the project.
const TOP: &str = env!("CARGO_MANIFEST_DIR");
/// The timeout of waiting for operations that take a moment on an idle machine.
const BOUND: Duration = Duration::from_secs(60);

/// A folder for one test with busybox's tools in `bin`; removed at its end.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Self {
        static LAST: AtomicU32 = AtomicU32::new(0);
        let number = LAST.fetch_add(1, Ordering::SeqCst);
        let name = format!("edged-gateway.{}.{number}", std::process::id());
        let scratch = Self(std::env::temp_dir().join(name));
        let bin = scratch.path("bin");
        fs::create_dir_all(&bin).expect("a folder of ours");
        let list = Command::new("/bin/busybox").arg("--list").output();
        let list = list.expect("/bin/busybox is missing: run `make setup`").stdout;
        for applet in String::from_utf8(list).expect("names").lines() {
            symlink("/bin/busybox", bin.join(applet)).expect("a folder of ours");
        }
        scratch
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// An executable script of this name.
    fn program(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        program::write(&path, text.as_bytes());
        path
    }

    /// busybox's shell on this script of the project, with no other tools.
    fn sh(&self, script: &str) -> Command {
        let mut command = Command::new("/bin/busybox");
        command.arg("sh").arg(Path::new(TOP).join(script)).env("PATH", self.path("bin"));
        command
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_default().trim().to_owned()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Waits until it holds.
fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < BOUND, "waited {BOUND:?} for: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
