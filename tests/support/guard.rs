//! Cleans up everything that was started: after the last test, after a panic, at Ctrl-C.
//!
//! Code that starts a process or creates a folder registers it here, and removes it again once it
//! is gone, so that no pid is signalled that belongs to another process by then.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

use nix::sys::signal::{SigSet, Signal, kill};
use nix::unistd::Pid;

/// What has to be cleaned up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Left {
    /// A process of ours, by its id.
    Process(u32),
    /// A process that cleans up by itself when it is stopped, by its id.
    Lane(u32),
    /// A private runtime, by its folder.
    Runtime(super::containerd::Kind, PathBuf),
    /// A folder of this run.
    Folder(PathBuf),
}

static LEFT: Mutex<Vec<Left>> = Mutex::new(Vec::new());

/// Must be called first, in the only thread: from here on SIGINT and SIGTERM clean up, then end the
/// process. Children start with signals unblocked, because `std` unblocks them.
pub fn install() {
    let mut set = SigSet::empty();
    set.add(Signal::SIGINT);
    set.add(Signal::SIGTERM);
    set.thread_block().expect("signals of ours can be blocked");
    std::thread::spawn(move || {
        let signal = set.wait().expect("a set of signals can be waited for");
        clean();
        std::process::exit(128 + signal as i32);
    });
}

fn left() -> MutexGuard<'static, Vec<Left>> {
    LEFT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Registers something for the clean-up.
pub fn keep(one: Left) {
    left().push(one);
}

/// Removes it from the clean-up.
pub fn gone(one: &Left) {
    left().retain(|other| other != one);
}

/// Processes that are still registered.
pub fn processes() -> Vec<u32> {
    let pid = |one: &Left| match one {
        Left::Process(pid) => Some(*pid),
        Left::Lane(_) | Left::Runtime(..) | Left::Folder(_) => None,
    };
    left().iter().filter_map(pid).collect()
}

/// Runs the whole program; cleans up before this returns or panics on.
pub fn guarded<T>(program: impl FnOnce() -> T) -> T {
    let ended = catch_unwind(AssertUnwindSafe(program));
    clean();
    ended.unwrap_or_else(|panic| resume_unwind(panic))
}

/// Mounts of agents in one of our folders: they leave them to the next agent on purpose.
pub fn unmount_below(dir: &std::path::Path) {
    let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let points = table.lines().filter_map(|line| line.split(' ').nth(4));
    let ours: Vec<&str> =
        points.filter(|point| std::path::Path::new(point).starts_with(dir)).collect();
    for point in ours.iter().rev() {
        let _ = Command::new("umount").args(["-l", point]).status();
    }
}

/// Cleans up everything, the last first. A second caller waits until the first is done.
pub fn clean() {
    static CLEANING: Mutex<()> = Mutex::new(());
    let _cleaning = CLEANING.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        let Some(one) = left().pop() else { return super::cgroup::sweep() };
        match one {
            Left::Process(pid) => {
                let _ = kill(Pid::from_raw(pid.cast_signed()), Signal::SIGKILL);
            }
            Left::Lane(pid) => end_lane(Pid::from_raw(pid.cast_signed())),
            Left::Runtime(kind, dir) => {
                let mut script = super::containerd::script(kind);
                let stop = script.arg("stop").arg(&dir).stdout(Stdio::null()).status();
                if !stop.as_ref().is_ok_and(std::process::ExitStatus::success) {
                    eprintln!("cannot stop the runtime in {}: {stop:?}", dir.display());
                }
            }
            Left::Folder(dir) => {
                unmount_below(&dir);
                if let Err(error) = std::fs::remove_dir_all(&dir) {
                    eprintln!("cannot remove {}: {error}", dir.display());
                }
            }
        }
    }
}

/// Stops a lane and waits until another thread has reaped it.
fn end_lane(pid: Pid) {
    for _ in 0..LANE_ENDS_S * 10 {
        if kill(pid, Signal::SIGTERM).is_err() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    eprintln!("the lane {pid} does not end");
    let _ = kill(pid, Signal::SIGKILL);
}

/// Stopping a containerd with all its pods takes some seconds on a busy machine.
const LANE_ENDS_S: u32 = 60;
