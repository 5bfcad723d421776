//! The built-in runtime beside containerd: the same calls with the same bytes, on one machine, in
//! turns.
//!
//! ```text
//!  round 1   containerd  crun  runc        each rests before it begins
//!  round 2   crun  runc  containerd
//!  round 3   runc  containerd  crun        …
//! ```
//!
//! crun 1.8 refuses machines where cgroup v1 is mounted and v2 beside it has controllers. There the
//! whole benchmark runs in a mount namespace without that mount ([`aside`]), containerd as well.
//!
//! The program is the static one with the feature `runtime` if `make bench` could build it
//! ([`program`]), and agent, server and monitors are the same file, as on a gateway.

mod exec;
mod import;
mod logs;
mod memory;
mod power;
mod start;

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::rig::Rig;
use crate::support::agent::binary;
use crate::support::containerd::{Containerd, path};
use crate::support::top;

pub use exec::{EXEC, RPC, command, version};
pub use import::{NAMES as IMPORT, import};
pub use logs::{NAMES as LOGS, throughput};
pub use memory::{IDLE, TEN, idle, ten};
pub use power::{NAMES as POWER, cut};
pub use start::{ONE, THIRTY, one, thirty};

/// The mount that crun does not bear beside cgroup v1.
const UNIFIED: &str = "/sys/fs/cgroup/unified";
/// Set in the process that has left it.
const ASIDE: &str = "EDGED_BENCH_ASIDE";

/// On a machine with hybrid cgroups: starts this program anew where v2 is not mounted, and does not
/// return.
pub fn aside() {
    let controllers = std::fs::read_to_string(Path::new(UNIFIED).join("cgroup.controllers"));
    if controllers.unwrap_or_default().trim().is_empty() || std::env::var_os(ASIDE).is_some() {
        return;
    }
    eprintln!("bench: cgroups are hybrid: all of this run is without {UNIFIED}");
    let mut anew = Command::new("unshare");
    anew.args(["--mount", "sh", "-c", "umount \"$0\" && exec \"$@\"", UNIFIED])
        .args(std::env::args_os())
        .env(ASIDE, "1");
    panic!("unshare: {}", anew.exec());
}

/// A built-in runtime of its own, with the images, on this OCI runtime.
fn builtin(rig: &Rig, oci: &str) -> Containerd {
    Containerd::start_builtin(rig.new_folder("b"), program(), find(oci))
}

fn find(name: &str) -> PathBuf {
    let folders = path();
    let mut paths = std::env::split_paths(&folders).map(|folder| folder.join(name));
    let found = paths.find(|path| path.is_file());
    found.unwrap_or_else(|| panic!("{name} is missing: run `make setup`"))
}

/// What runs as agent, server and monitor.
fn program() -> PathBuf {
    let flashed = top().join("target/cross/edged-runtime");
    if flashed.is_file() { flashed } else { binary().to_owned() }
}

fn name_program() {
    let program = program();
    let which = if program == binary() { "release on glibc" } else { "static program" };
    eprintln!("bench: of the {which}, {}", program.display());
}

/// The sides of a round: each is the first in its turn.
fn order<const N: usize>(round: usize) -> [usize; N] {
    std::array::from_fn(|at| (round + at) % N)
}

/// Work that an earlier call has left behind is over; no multiple of any period.
fn settle() {
    std::thread::sleep(Duration::from_millis(337));
}
