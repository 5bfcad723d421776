//! Signals as a descriptor: TERM and INT stop the agent, HUP reads the configuration again, CHLD
//! says that a child ended.
//!
//! They are blocked for that, and the standard library hands the mask on to children, as those do
//! to what they start: [`let_through`] is the first thing a child does. All other signals keep
//! their default; SIGPIPE is ignored by the Rust runtime. A crash leaves nothing.

use std::io;
use std::os::fd::AsRawFd;

use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

/// What a signal asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SignalAction {
    /// SIGTERM or SIGINT.
    Stop,
    /// SIGHUP.
    Reload,
    /// SIGCHLD: one child ended or more.
    ChildEnded,
}

/// The four signals, blocked for this process and readable here.
#[derive(Debug)]
pub struct Signals {
    fd: SignalFd,
}

impl Signals {
    /// Blocks the signals in the calling thread, which must be the only one.
    pub fn open(registry: &Registry, token: Token) -> io::Result<Self> {
        let mask = four();
        mask.thread_block()?;
        let fd = SignalFd::with_flags(&mask, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?;
        registry.register(&mut SourceFd(&fd.as_raw_fd()), token, Interest::READABLE)?;
        Ok(Self { fd })
    }

    /// The next signal that waits; `None` when none does. At most four can.
    pub fn take(&mut self) -> Option<SignalAction> {
        loop {
            let signal = self.fd.read_signal().ok()??.ssi_signo as i32;
            return Some(match Signal::try_from(signal) {
                Ok(Signal::SIGTERM | Signal::SIGINT) => SignalAction::Stop,
                Ok(Signal::SIGHUP) => SignalAction::Reload,
                Ok(Signal::SIGCHLD) => SignalAction::ChildEnded,
                _ => continue,
            });
        }
    }
}

/// In a child, before all else: the signals do what they do in any process.
pub fn let_through() {
    // It fails for no mask there is.
    let _ = four().thread_unblock();
}

fn four() -> SigSet {
    [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGCHLD].into_iter().collect()
}
