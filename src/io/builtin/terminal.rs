//! The size of a terminal.

use std::os::fd::{AsFd, AsRawFd};

/// Sets it; what is no terminal stays as it is.
#[expect(unsafe_code, reason = "a terminal's size is set by an ioctl")]
pub(super) fn resize(terminal: &impl AsFd, rows: u16, columns: u16) {
    let size = libc::winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: the call reads the structure, which lives through it; what is no terminal answers
    // with an error.
    let _ = unsafe { libc::ioctl(terminal.as_fd().as_raw_fd(), libc::TIOCSWINSZ, &raw const size) };
}
