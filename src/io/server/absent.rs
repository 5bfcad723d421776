//! In the place of the HTTP API where it was left out (feature `api`): listens nowhere.

use std::net::SocketAddr;

use mio::event::Event as Ready;
use mio::{Registry, Token};

use crate::agent::Agent;
use crate::agent::time::{Instant, Now};

/// Nothing.
#[derive(Debug)]
pub struct Server;

impl Server {
    /// Says that there is none.
    pub fn new(address: SocketAddr, _socket: &std::path::Path, _first: Token) -> Self {
        if address.port() != 0 {
            log::info!("no HTTP API on {address}: not built into this edged (feature `api`)");
        }
        Self
    }

    /// None is.
    pub fn owns(&self, _token: Token) -> bool {
        false
    }

    /// Nothing to try.
    pub fn retry(&mut self) {}

    /// Nothing is.
    pub fn ready(&mut self, _ready: &Ready) {}

    /// Nothing to do.
    pub fn tick(&mut self, _now: Now, _registry: &Registry, _agent: &Agent) {}

    /// Never.
    pub fn wake_at(&self) -> Option<Instant> {
        None
    }
}
