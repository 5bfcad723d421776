//! Images from files and folders on the gateway, for links that cannot pull: a registry on loopback
//! from which any runtime can pull, in a child process that the agent restarts.
//!
//! ```text
//!  runtime ──GET /v2/…──▶ 127.0.0.1:10351 (child: registry, archive) ─▶ /media/stick/*.tar
//!                              ▲ restarts it
//!                            agent (RegistryProcess)
//! ```
//!
//! A child, because a file on a stick that is unplugged may block the reader. It ends with
//! the agent. If it crashes, a pull in progress fails and is retried with its pod's back-off.

pub mod archive;
#[cfg(feature = "runtime")]
mod builtin;
pub mod image_store;
mod import;
mod registry;

#[cfg(test)]
mod tests;

pub use import::import;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use nix::sys::signal::Signal;

use super::log::Limit;
use crate::agent::time::Instant;
use crate::limits::MIRROR_RESTART_MS;

/// Starts and restarts the registry's process.
#[derive(Debug)]
pub struct RegistryProcess {
    address: SocketAddr,
    /// Empty: no registry is wanted.
    folders: Vec<String>,
    child: Option<Child>,
    start_at: Instant,
    failures: u32,
    limit: Limit,
}

impl RegistryProcess {
    /// [`RegistryProcess::tick`] starts it; never if there are no folders.
    pub fn new(address: SocketAddr, folders: &[String]) -> Self {
        let (folders, child, start_at) = (folders.to_vec(), None, Instant(0));
        Self { address, folders, child, start_at, failures: 0, limit: Limit::default() }
    }

    /// A child of the process has ended, perhaps this one.
    pub fn reap(&mut self, now: Instant) {
        let Some(child) = &mut self.child else { return };
        let ended = match child.try_wait() {
            Ok(None) => return,
            Ok(Some(status)) => status.to_string(),
            Err(error) => error.to_string(),
        };
        self.child = None;
        let wait_ms = MIRROR_RESTART_MS << self.failures.min(6);
        self.failures += 1;
        self.start_at = now.plus_ms(wait_ms);
        if let Some(repeats) = self.limit.pass(now) {
            log::warn!(
                "the registry on {} has ended ({ended}); it is started again in {} s; \
                 repeats={repeats}",
                self.address,
                wait_ms / 1_000
            );
        }
    }

    /// Starts it if that is due.
    pub fn tick(&mut self, now: Instant) {
        if self.wake_at().is_none_or(|at| at > now) {
            return;
        }
        let mut command = Command::new("/proc/self/exe");
        command.args(["images", "serve", "--listen"]).arg(self.address.to_string());
        command.arg("--child-of").arg(std::process::id().to_string()).args(&self.folders);
        match command.stdin(Stdio::null()).stdout(Stdio::null()).spawn() {
            Ok(child) => self.child = Some(child),
            Err(error) => {
                log::warn!("cannot start the registry on {}: {error}", self.address);
                self.start_at = now.plus_ms(60 * MIRROR_RESTART_MS);
            }
        }
    }

    /// When to call [`RegistryProcess::tick`].
    pub fn wake_at(&self) -> Option<Instant> {
        (self.child.is_none() && !self.folders.is_empty()).then_some(self.start_at)
    }
}

impl Drop for RegistryProcess {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            // Either it has ended already, or it is killed now.
            let _ = child.kill();
        }
    }
}

/// Serves in this process until something fails; returns the reason. `parent`: the process with
/// which this one ends.
pub fn serve(
    address: SocketAddr,
    folders: Vec<PathBuf>,
    parent: Option<i32>,
    listening: &mut dyn FnMut(SocketAddr),
) -> String {
    super::signal::let_through();
    if let Some(parent) = parent {
        let tied = nix::sys::prctl::set_pdeathsig(Signal::SIGKILL);
        if tied.is_err() || nix::unistd::getppid().as_raw() != parent {
            return "the agent has ended".to_owned();
        }
    }
    match registry::Registry::open(address, folders) {
        Ok(mirror) => {
            listening(mirror.bound());
            mirror.run().to_string()
        }
        Err(error) => format!("cannot listen on {address}: {error}"),
    }
}
