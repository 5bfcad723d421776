//! Signals as a descriptor: TERM and INT stop the agent, HUP reloads the configuration, CHLD
//! reports that a child ended.
//!
//! The signals are blocked for that. Children inherit the mask, and so do their children:
//! [`let_through`] is the first thing a child does. All other signals keep their default; the Rust
//! runtime ignores SIGPIPE. A crash leaves nothing.

use std::io;
use std::os::fd::AsRawFd;

use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

/// What a signal requests.
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

    /// The next pending signal, if there is one. At most four can be pending.
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

/// In a child, before all else: restores the default handling of the signals.
pub fn let_through() {
    // It fails for an invalid mask only.
    let _ = four().thread_unblock();
}

fn four() -> SigSet {
    [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGCHLD].into_iter().collect()
}
