//! Whether this machine can still run containers: looked at again after one could not be started.
//!
//! ```text
//!  start: ready ─ a container fails ─▶ wanted ─▶ child looks ─▶ ready, or not ready
//!                                                  ▲               │
//!                                                  └── each Status ┘
//! ```
//!
//! `crun --version` may hang, so a child process looks, `edged job runtime-look`; one at a time,
//! and with a pause between two. While all is well none is started, however often the state is
//! asked for. The child writes its answer into its standard input, as jobs do ([`super::jobs`]). If
//! the server dies the child is killed; a restarted server has looked anyway.

use std::fs::File;
use std::io::{self, Seek};
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, Stdio};

use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::signal::Signal;

use super::environment::{self, NotReady};
use super::jobs::{self, Part};
use crate::core::time::Instant;
use crate::limits::RUNTIME_CONDITIONS_MS;

/// The word after `edged job`.
pub const KIND: &str = "runtime-look";

#[derive(Debug)]
pub(super) struct Look {
    program: PathBuf,
    child: Option<(Child, File)>,
    /// When the last one began.
    looked_at: Instant,
    /// A container could not be started since then.
    is_wanted: bool,
}

impl Look {
    /// The machine was looked at now. `program` is what children run.
    pub fn new(program: PathBuf, now: Instant) -> Self {
        Self { program, child: None, looked_at: now, is_wanted: false }
    }

    /// A container could not be started.
    pub fn failed(&mut self) {
        self.is_wanted = true;
    }

    /// Starts a child if one is due. `is_asked`: a client asks for the state, which was not ready.
    pub fn tick(&mut self, now: Instant, is_asked: bool) {
        let is_old = now.since_ms(self.looked_at) >= RUNTIME_CONDITIONS_MS;
        if !(self.is_wanted || is_asked) || !is_old || self.child.is_some() {
            return;
        }
        self.looked_at = now;
        self.is_wanted = false;
        match self.spawn() {
            Ok(child) => self.child = Some(child),
            Err(error) => log::warn!("cannot look at the machine: {error}"),
        }
    }

    fn spawn(&self) -> io::Result<(Child, File)> {
        let file = File::from(memfd_create(c"look", MFdFlags::MFD_CLOEXEC)?);
        let child = Command::new(&self.program)
            .args(["job", KIND])
            .stdin(Stdio::from(OwnedFd::from(file.try_clone()?)))
            .stdout(Stdio::null())
            .spawn()?;
        Ok((child, file))
    }

    /// A child of this process has ended. `Some`: it is this one.
    pub fn ended(&mut self, pid: i32) -> Option<io::Result<Result<(), NotReady>>> {
        let (_, file) = self.child.take_if(|(child, _)| child.id() as i32 == pid)?;
        Some(jobs::read(&file, Part::Answer))
    }
}

/// The main function of a child.
pub fn child() -> ExitCode {
    crate::io::signal::let_through();
    let _ = nix::sys::prctl::set_pdeathsig(Signal::SIGKILL);
    let looked = environment::examine().map(drop);
    let answer = io::stdin().as_fd().try_clone_to_owned().map(File::from).and_then(|mut file| {
        file.rewind()?;
        jobs::write(&mut file, Part::Answer, &looked)
    });
    if answer.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// Long after the start.
    const NOW: Instant = Instant(1_000_000);

    fn wait(look: &mut Look) -> io::Result<Result<(), NotReady>> {
        let (child, _) = look.child.as_mut().expect("a child was started");
        child.wait().expect("it is ours");
        let pid = child.id() as i32;
        assert!(look.ended(pid + 1).is_none(), "another process");
        look.ended(pid).expect("it is this one")
    }

    #[test]
    fn no_process_is_started_while_all_is_well_however_often_it_is_asked() {
        let mut look = Look::new("/bin/true".into(), Instant(0));
        for ms in 0..100 {
            look.tick(NOW.plus_ms(ms * RUNTIME_CONDITIONS_MS), false);
            assert!(look.child.is_none(), "a process after {ms}");
        }
    }

    #[test]
    fn after_a_failure_one_child_looks_and_pauses() {
        let path = std::env::temp_dir().join(format!("edged-look-{}", std::process::id()));
        // `Err` of two texts, each after its length.
        let script = "#!/bin/sh\nprintf '!\\001\\004Gone\\007no crun' >/proc/self/fd/0\n";
        fs::write(&path, script).expect("a file of ours");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("ours");
        let mut look = Look::new(path.clone(), NOW);
        look.failed();
        look.tick(NOW.plus_ms(RUNTIME_CONDITIONS_MS - 1), false);
        assert!(look.child.is_none(), "it was looked at a moment ago");
        let now = NOW.plus_ms(RUNTIME_CONDITIONS_MS);
        look.tick(now, false);
        let first = look.child.as_ref().map(|(child, _)| child.id());
        look.failed();
        look.tick(now.plus_ms(RUNTIME_CONDITIONS_MS), false);
        assert_eq!(look.child.as_ref().map(|(child, _)| child.id()), first, "one at a time");
        let answer = wait(&mut look).expect("an answer");
        assert_eq!(answer, Err(("Gone".into(), "no crun".into())));
        // What failed meanwhile is looked at as well.
        look.tick(now.plus_ms(RUNTIME_CONDITIONS_MS), false);
        wait(&mut look).expect("an answer").expect_err("still gone");
        // Nothing fails where nothing is started: the state is asked for.
        let now = now.plus_ms(2 * RUNTIME_CONDITIONS_MS);
        look.tick(now, true);
        wait(&mut look).expect("an answer").expect_err("still gone");
        look.tick(now.plus_ms(RUNTIME_CONDITIONS_MS - 1), true);
        assert!(look.child.is_none(), "with a pause");
        fs::remove_file(&path).expect("ours");
    }

    #[test]
    fn a_child_that_dies_says_nothing() {
        let mut look = Look::new("/bin/false".into(), Instant(0));
        look.failed();
        look.tick(NOW, false);
        assert!(wait(&mut look).is_err());
    }
}
