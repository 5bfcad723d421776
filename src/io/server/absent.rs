//! The HTTP API is not built in (feature `api`): nothing listens.

use std::net::SocketAddr;

use mio::event::Event as Ready;
use mio::{Registry, Token};

use super::streams::Handover;
use crate::agent::Agent;
use crate::agent::event::Event;
use crate::agent::time::{Instant, Now};

#[derive(Debug)]
pub struct Server;

impl Server {
    /// Logs that there is no API.
    pub fn new(address: SocketAddr, _socket: &std::path::Path, _first: Token) -> Self {
        if address.port() != 0 {
            log::info!("no HTTP API on {address}: not built into this edged (feature `api`)");
        }
        Self
    }

    pub fn owns(&self, _token: Token) -> bool {
        false
    }

    pub fn retry(&mut self) {}

    pub fn ready(&mut self, _ready: &Ready) {}

    pub fn tick(
        &mut self,
        _now: Now,
        _registry: &Registry,
        _agent: &Agent,
        _events: &mut Vec<Event>,
    ) -> Vec<Handover> {
        Vec::new()
    }

    pub fn wake_at(&self) -> Option<Instant> {
        None
    }
}
