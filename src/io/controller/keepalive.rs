//! TCP keepalive: detects a connection whose other end has disappeared. A watch of the API server
//! may be silent for minutes, and nodes would get no changes until its timeout; a followed log may
//! be silent for days.

use std::io;
use std::os::fd::AsFd;

use nix::sys::socket::{setsockopt, sockopt};

use crate::limits::{
    API_DEAD_MS, API_KEEPALIVE_IDLE_S, API_KEEPALIVE_PROBE_S, API_KEEPALIVE_PROBES,
};

/// Makes the kernel send keepalive probes, and end the connection if they are not answered.
pub(in crate::io::controller) fn probe(socket: &impl AsFd) -> io::Result<()> {
    setsockopt(socket, sockopt::KeepAlive, &true)?;
    setsockopt(socket, sockopt::TcpKeepIdle, &API_KEEPALIVE_IDLE_S)?;
    setsockopt(socket, sockopt::TcpKeepInterval, &API_KEEPALIVE_PROBE_S)?;
    setsockopt(socket, sockopt::TcpKeepCount, &API_KEEPALIVE_PROBES)?;
    Ok(())
}

/// The same, also if sent data is not acknowledged, when the kernel sends no probes. Not for who
/// may pause in reading.
pub(in crate::io::controller) fn watch_over(socket: &impl AsFd) -> io::Result<()> {
    probe(socket)?;
    setsockopt(socket, sockopt::TcpUserTimeout, &API_DEAD_MS)?;
    Ok(())
}
