//! The registry on loopback is not built in (feature `images`).

use std::net::SocketAddr;

use crate::agent::time::Instant;

#[derive(Debug)]
pub struct RegistryProcess;

impl RegistryProcess {
    /// Logs that there is no registry.
    pub fn new(_address: SocketAddr, folders: &[String]) -> Self {
        if !folders.is_empty() {
            log::warn!("imageFolders has no effect: not built in (feature `images`)");
        }
        Self
    }

    pub fn reap(&mut self, _now: Instant) {}

    pub fn tick(&mut self, _now: Instant) {}

    pub fn wake_at(&self) -> Option<Instant> {
        None
    }
}
