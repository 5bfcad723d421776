//! A child process that goes on in this program: for work that needs what its parent has at hand.
//! Everything else is started as a program of its own.
//!
//! The child has a copy of its parent's memory and descriptors. It drops nothing of them, and runs
//! no exit handler: it ends where its work ends. **If we crash here** the child ends with its
//! parent or by itself, as its work arranges it.

#![expect(unsafe_code, reason = "there is no safe fork, and no safe _exit")]

use std::panic::{AssertUnwindSafe, catch_unwind};

use nix::unistd::{ForkResult, Pid, fork};

/// The exit code of a child whose work panicked.
pub(super) const PANICKED: i32 = 255;

/// Starts a child that does `work`, which gives its exit code. Whoever reaps children reaps it.
pub(super) fn start(work: impl FnOnce() -> i32) -> nix::Result<Pid> {
    // SAFETY: this program has one thread, so that no lock is held by another one that does not
    // exist in the child.
    match unsafe { fork() }? {
        ForkResult::Parent { child } => Ok(child),
        ForkResult::Child => {
            let code = catch_unwind(AssertUnwindSafe(work)).unwrap_or(PANICKED);
            // SAFETY: it ends the process, and runs nothing of the parent's.
            unsafe { libc::_exit(code) }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use nix::sys::wait::{WaitStatus, waitpid};

    use super::*;

    /// Is dropped by the parent alone.
    struct OfParent(u32);

    impl Drop for OfParent {
        fn drop(&mut self) {
            if std::process::id() != self.0 {
                std::process::exit(9);
            }
        }
    }

    static PARENT: AtomicU32 = AtomicU32::new(0);

    /// Runs when a process of this program ends by exit(3).
    extern "C" fn at_exit() {
        if std::process::id() != PARENT.load(Ordering::Relaxed) {
            // SAFETY: it ends the process.
            unsafe { libc::_exit(8) }
        }
    }

    #[test]
    fn a_child_ends_with_the_code_of_its_work_and_drops_nothing_of_its_parents() {
        let _parents = OfParent(std::process::id());
        PARENT.store(std::process::id(), Ordering::Relaxed);
        // SAFETY: the handler touches nothing but the number.
        assert_eq!(unsafe { libc::atexit(at_exit) }, 0);
        for (code, ended) in [(Some(0), 0), (Some(7), 7), (None, PANICKED)] {
            let child = start(|| code.unwrap_or_else(|| std::panic::resume_unwind(Box::new(()))));
            let child = child.expect("there is room for a process");
            assert_eq!(waitpid(child, None), Ok(WaitStatus::Exited(child, ended)));
        }
    }
}
