//! In the place of the registry on loopback where it was left out (feature `images`).

use std::net::SocketAddr;

use crate::agent::time::Instant;

/// Nothing.
#[derive(Debug)]
pub struct RegistryProcess;

impl RegistryProcess {
    /// Says that there is none.
    pub fn new(_address: SocketAddr, folders: &[String]) -> Self {
        if !folders.is_empty() {
            log::warn!("imageFolders has no effect: not built in (feature `images`)");
        }
        Self
    }

    /// None has.
    pub fn reap(&mut self, _now: Instant) {}

    /// Nothing to start.
    pub fn tick(&mut self, _now: Instant) {}

    /// Never.
    pub fn wake_at(&self) -> Option<Instant> {
        None
    }
}
