//! TCP keepalive: detects a connection whose other end has disappeared. A watch may be silent for
//! minutes, and nodes would get no changes until its timeout.

use std::io;
use std::os::fd::AsFd;

use nix::sys::socket::{setsockopt, sockopt};

use crate::limits::{
    API_DEAD_MS, API_KEEPALIVE_IDLE_S, API_KEEPALIVE_PROBE_S, API_KEEPALIVE_PROBES,
};

/// Makes the kernel send keepalive probes, and end the connection if they are not answered; also
/// if sent data is not acknowledged, when the kernel sends no probes.
pub(super) fn watch_over(socket: &impl AsFd) -> io::Result<()> {
    setsockopt(socket, sockopt::KeepAlive, &true)?;
    setsockopt(socket, sockopt::TcpKeepIdle, &API_KEEPALIVE_IDLE_S)?;
    setsockopt(socket, sockopt::TcpKeepInterval, &API_KEEPALIVE_PROBE_S)?;
    setsockopt(socket, sockopt::TcpKeepCount, &API_KEEPALIVE_PROBES)?;
    setsockopt(socket, sockopt::TcpUserTimeout, &API_DEAD_MS)?;
    Ok(())
}
