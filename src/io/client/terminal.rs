//! This process's terminal in raw mode, for a command that has one in its container: each key goes
//! to the command, which echoes it and decides what ^C means.
//!
//! The mode is restored on every way out: by `Drop`, by the panic hook (a release aborts), and by
//! signals, which are read as a descriptor and end the session. **If the process is killed**, the
//! terminal stays raw: `stty sane` or `reset` mends it.
#![expect(unsafe_code, reason = "a terminal's size is read by an ioctl")]

use std::io::{self, IsTerminal};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, PoisonError};

use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::termios::{SetArg, Termios, cfmakeraw, tcgetattr, tcsetattr};

/// The terminal, raw until this is dropped.
#[derive(Debug)]
pub struct Terminal {
    fd: OwnedFd,
    signals: SignalFd,
}

/// What a signal says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// The terminal has another size.
    Resized,
    /// The process is to end.
    Ended(i32),
}

/// The mode to restore; for the panic hook it cannot lie in the [`Terminal`].
static SAVED: Mutex<Option<(OwnedFd, Termios)>> = Mutex::new(None);

/// Whether standard input is a terminal.
pub fn has_terminal() -> bool {
    io::stdin().is_terminal()
}

impl Terminal {
    /// Puts the terminal that is standard input into raw mode.
    pub fn of_stdin() -> io::Result<Self> {
        Self::raw(io::stdin().as_fd())
    }

    /// Puts this terminal into raw mode. There is one at most at a time.
    pub fn raw(fd: BorrowedFd<'_>) -> io::Result<Self> {
        let fd = fd.try_clone_to_owned()?;
        let saved = tcgetattr(&fd)?;
        let mut raw = saved.clone();
        cfmakeraw(&mut raw);
        let mask = mask();
        let signals = SignalFd::with_flags(&mask, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?;
        mask.thread_block()?;
        *lock() = Some((fd.try_clone()?, saved));
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            restore();
            hook(panic);
        }));
        let terminal = Self { fd, signals };
        tcsetattr(&terminal.fd, SetArg::TCSADRAIN, &raw)?;
        Ok(terminal)
    }

    /// Columns and rows; `None`: not known.
    pub fn size(&self) -> Option<(u16, u16)> {
        let mut size = libc::winsize { ws_row: 0, ws_col: 0, ws_xpixel: 0, ws_ypixel: 0 };
        // SAFETY: the kernel writes one `winsize` into one that lives here.
        let done = unsafe { libc::ioctl(self.fd.as_raw_fd(), libc::TIOCGWINSZ, &raw mut size) };
        (done == 0 && size.ws_col > 0 && size.ws_row > 0).then_some((size.ws_col, size.ws_row))
    }

    /// For `poll`.
    pub fn signals(&self) -> BorrowedFd<'_> {
        self.signals.as_fd()
    }

    /// The next pending signal.
    pub fn take(&self) -> Option<Notice> {
        let signal = self.signals.read_signal().ok()??.ssi_signo as i32;
        Some(if signal == Signal::SIGWINCH as i32 {
            Notice::Resized
        } else {
            Notice::Ended(signal)
        })
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        restore();
        // It fails for an invalid mask only.
        let _ = mask().thread_unblock();
    }
}

fn lock() -> std::sync::MutexGuard<'static, Option<(OwnedFd, Termios)>> {
    SAVED.lock().unwrap_or_else(PoisonError::into_inner)
}

fn mask() -> SigSet {
    ENDING.into_iter().chain([Signal::SIGWINCH]).collect()
}

fn restore() {
    if let Some((fd, saved)) = lock().take() {
        // A terminal that is gone needs nothing.
        let _ = tcsetattr(&fd, SetArg::TCSANOW, &saved);
    }
}

/// In raw mode no key sends one of these; others may.
const ENDING: [Signal; 4] = [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGQUIT];

#[cfg(test)]
mod tests {
    use nix::pty::{Winsize, openpty};
    use nix::sys::termios::LocalFlags;

    use super::*;

    /// A release aborts at a panic: nothing is dropped then.
    #[test]
    fn a_panic_restores_the_terminal_before_anything_is_dropped() {
        let size = Winsize { ws_row: 33, ws_col: 111, ws_xpixel: 0, ws_ypixel: 0 };
        let pty = openpty(Some(&size), None).expect("a terminal");
        let echoes = || {
            let mode = tcgetattr(&pty.slave).expect("a terminal");
            mode.local_flags.contains(LocalFlags::ECHO | LocalFlags::ICANON)
        };
        assert!(echoes());
        let terminal = Terminal::raw(pty.slave.as_fd()).expect("a terminal");
        assert!(!echoes());
        assert_eq!(terminal.size(), Some((111, 33)));
        assert!(terminal.take().is_none());
        std::panic::catch_unwind(|| panic!("on purpose")).expect_err("a panic");
        assert!(echoes());
        drop(terminal);
        let terminal = Terminal::raw(pty.slave.as_fd()).expect("a terminal");
        assert!(!echoes());
        drop(terminal);
        assert!(echoes());
    }
}
