//! A connection whose other end is gone without a word is noticed: a watch may be silent for
//! minutes, and nodes would hear of nothing until its time is out.

use std::io;
use std::os::fd::AsFd;

use nix::sys::socket::{setsockopt, sockopt};

use crate::limits::{
    API_DEAD_MS, API_KEEPALIVE_IDLE_S, API_KEEPALIVE_PROBE_S, API_KEEPALIVE_PROBES,
};

/// Has the kernel ask the other end whether it is there, and give it up if it does not answer; and
/// as well if it does not take what it is sent, when there are no such questions.
pub(super) fn watch_over(socket: &impl AsFd) -> io::Result<()> {
    setsockopt(socket, sockopt::KeepAlive, &true)?;
    setsockopt(socket, sockopt::TcpKeepIdle, &API_KEEPALIVE_IDLE_S)?;
    setsockopt(socket, sockopt::TcpKeepInterval, &API_KEEPALIVE_PROBE_S)?;
    setsockopt(socket, sockopt::TcpKeepCount, &API_KEEPALIVE_PROBES)?;
    setsockopt(socket, sockopt::TcpUserTimeout, &API_DEAD_MS)?;
    Ok(())
}
